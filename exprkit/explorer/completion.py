"""Completion in IPython and JupyterLab: inside a string, Tab offers operators and the columns of a notebook's tables.

In: the start of a word and a namespace.  Out: the words.

    >>> from exprkit.explorer.completion import words
    >>> words("tan", {"table": {"tan δ": [0.1], "drag": [0.4]}})
    ['tan', 'tanh', '`tan δ`']
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import exprkit as ek
from exprkit.operators import defined
from exprkit.text.names import in_text

WHOLE_STRING = re.compile(r'"[^"]*"|\'[^\']*\'')


def add(shell: Any) -> None:
    """Offer words of formulas to an IPython shell."""
    from IPython.core.completer import SimpleCompletion, context_matcher

    @context_matcher()
    def formulas(context: Any) -> dict[str, list[Any]]:
        rest = WHOLE_STRING.sub("", context.text_until_cursor)
        inside = '"' in rest or "'" in rest
        return {"completions": [SimpleCompletion(word) for word in words(context.token, shell.user_ns) if inside]}

    shell.Completer.custom_matchers.append(formulas)


def words(start: str, namespace: Mapping[str, Any]) -> list[str]:
    """Operators and columns of tables in a namespace that begin with ``start``, as a text has them."""
    columns = {name for thing in list(namespace.values()) for name in _columns(thing) if isinstance(name, str)}
    operators = sorted(name for name in defined.spellings() if name.startswith(start))
    return operators + [in_text(name) for name in sorted(columns) if name.startswith(start)]


def _columns(thing: Any) -> Iterator[Any]:
    if isinstance(thing, ek.data.Dataset):
        yield from (*thing.variables, thing.target)
    elif isinstance(thing, Mapping) and all(hasattr(values, "__len__") for values in thing.values()):
        yield from thing
    elif hasattr(type(thing), "columns") and hasattr(thing, "__len__"):  # pandas, polars
        yield from thing.columns
