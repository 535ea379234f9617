"""Tables in Markdown, as the README and the conclusions have them.

Beside the pipeline: ``conclusions`` and ``readme`` write with it.

    >>> from exprkit.study.markdown import table
    >>> print(table(("a", "b"), [("1", "2")]))
    | a | b |
    | --- | --- |
    | 1 | 2 |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["table"]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A head and rows, each cell a text."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))
