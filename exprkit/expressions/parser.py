"""``parse``: text, SymPy expressions and Expressions to a population.

``reader`` reads the texts; what is not text is read here.

=======================  ==============================================================
``-x1^2``                ``-(x1^2)``; ``^`` and ``**`` are the same
``2^-x1^2``              ``2^(-(x1^2))``; powers group from the right
``x1 * -2``              the constant -2; ``-(2)`` is the operator applied to 2
``1 2. .5 1e-3 1f0``     float64, correctly rounded (``1f0``: to float32, as in Julia)
``1//3  1//0``           Julia's fractions of two whole numbers; ``1//0`` is inf
``inf nan pi``           constants, also ``Inf``, ``NaN``, ``π``, ``Inf32``, ``NaN32``
``x1 p1``                variables and parameters from 1, or the names that are given
```Temp (°C)` ``         a name that is no identifier, between backquotes
``max(a, b, c)``         ``max(max(a, b), c)``, also for min, add and mul
``(x1 > 0.5) * x2``      comparisons are 1 or 0 and bind loosest; also ``<``, ``>=`` and ``<=``
=======================  ==============================================================
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from exprkit.errors import ExprkitError, ParseError, brief, checks_keywords, one_of
from exprkit.expressions.population import Population
from exprkit.runtime import files, ranges
from exprkit.text.names import USUAL, Given, Names, columns_of
from exprkit.text.reader import Batch, from_items, from_lines, tokens_of

if TYPE_CHECKING:
    from exprkit.text.parse_errors import Fault


@ranges.shown("parse")
@checks_keywords
def parse(
    source: Any,
    *,
    data: Any = None,
    variables: Given = None,
    parameters: Given = None,
    errors: Literal["raise", "mask"] = "raise",
) -> Population:
    """Read expressions.

    Parameters
    ----------
    source : str, iterable, path or file
        One text; or a list of texts, SymPy objects and Expressions, in any mixture; or a ``pathlib.Path`` or open
        file with one expression per line (UTF-8; blank lines and lines that begin with ``#`` do not count).
    data : DataFrame, dict of columns or Dataset, optional
        Its columns' names are the variables.
    variables, parameters : None, int or list of str
        None: ``x1, x2, …`` and ``p1, p2, …``; a number: so many of them; a list: their names.  A name that is no
        identifier stands between backquotes in a text; one that is a function's too means that where ``(`` follows.
    errors : "raise" or "mask"
        "raise": a bad expression is an error, which names the first few. "mask": bad ones stay in the
        population without tokens, ``Population.valid`` marks them and ``Population.errors`` says why.

    Returns
    -------
    Population

    Raises
    ------
    ParseError
        ``indices`` of the exception holds the indices of all bad expressions.

    Notes
    -----
    Limits, each with its own message: 65,535 tokens per expression, 1,000,000 nested parentheses, 16 MiB of
    text an expression, 1,000 digits a number, ``x65535`` and ``p65535``.

    Examples
    --------
    >>> import exprkit as ek
    >>> ek.parse(["x1^2 + p1", "exp(-x2)"]).texts()
    ['x1 ^ 2 + p1', 'exp(-x2)']
    """
    one_of("errors", errors, ("raise", "mask"))
    batch = _read(source)
    batch.names = names = _names(batch, data, variables, parameters)
    kinds, values, offsets, faults = tokens_of(batch)
    if batch.objects:
        kinds, values, offsets = _splice(kinds, values, offsets, _parse_objects(batch, faults))
        faults = dict(sorted(faults.items()))
    population = Population._adopt(kinds, values, offsets, names.variables, names.parameters, faults)
    if faults and errors == "raise":
        raise population.errors.error(len(population), alone=batch.alone)
    return population


# ── sources ──────────────────────────────────────────────────────────────────────────


def _read(source: Any) -> Batch:
    """The batch behind whatever the user gave."""
    if isinstance(source, np.ndarray) and source.ndim == 0:
        source = source.item()
    if isinstance(source, bytearray):
        source = bytes(source)
    if isinstance(source, (str, bytes)):
        return from_items([source], alone=True)
    if isinstance(source, os.PathLike):
        with files.file_errors(source, "read"), open(source, "rb") as file:
            data = bytearray(os.fstat(file.fileno()).st_size)
            data[file.readinto(data) :] = file.read() + b"\n"  # a pipe has no size, and a file may grow
            return from_lines(data)
    if hasattr(source, "read"):
        content = source.read()
        content = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        return from_lines(bytearray(content) + b"\n")
    if is_object(source):
        return from_items([source], alone=True)
    if isinstance(source, (Set, Mapping)) or not isinstance(source, Iterable):
        raise ParseError(
            f"cannot parse an object of type {type(source).__name__}: "
            "give a text, a list of texts, a path or an open file"
        )
    return from_items(source.tolist() if isinstance(source, np.ndarray) else list(source))


def is_object(item: Any) -> bool:
    """True for a SymPy object or an Expression (without importing SymPy)."""
    from exprkit.expressions.expression import Expression

    sympy = sys.modules.get("sympy")
    return isinstance(item, Expression) or (sympy is not None and isinstance(item, sympy.Basic))


def _names(batch: Batch, data: Any, variables: Given, parameters: Given) -> Names:
    """The names that are given, or else those of the first Expression that has any."""
    from exprkit.expressions.expression import Expression

    if data is not None:
        if variables is not None:
            raise ParseError("variables are named by data= or by variables=, not by both")
        return Names(columns_of(data), parameters, of_data=True)

    for item in batch.objects.values():
        if isinstance(item, Expression):
            variables = item.variables if variables is None else variables
            parameters = item.parameters if parameters is None else parameters
    return USUAL if variables is None and parameters is None else Names(variables, parameters)


# ── what is not text ─────────────────────────────────────────────────────────────────


def _parse_objects(batch: Batch, faults: dict[int, Fault]) -> dict[int, tuple[np.ndarray, np.ndarray] | None]:
    """Tokens of the SymPy objects and Expressions by index; None for the bad ones, which go to ``faults``."""
    tokens: dict[int, tuple[np.ndarray, np.ndarray] | None] = {}
    for index, item in batch.objects.items():
        try:
            tokens[index] = _object_tokens(item, batch.names)
        except ExprkitError as error:
            tokens[index] = None
            faults[index] = batch.fault(index, reason=str(error))
    return tokens


def _object_tokens(item: Any, names: Names) -> tuple[np.ndarray, np.ndarray]:
    from exprkit.expressions.expression import Expression, tokens_under

    if isinstance(item, Expression):
        if not item.valid:
            raise ParseError("the Expression is one that could not be read")
        return tokens_under(item, names)
    if is_object(item):
        from exprkit.text import sympy_bridge

        return sympy_bridge.read(item, names)
    shown = brief(float(item) if isinstance(item, float) else item, 38)  # NumPy's write their type
    is_number = isinstance(item, (int, float)) and not isinstance(item, bool) and item == item
    hint = f"; write it as a text, '{shown}'" if is_number else ""
    raise ParseError(f"{shown} is neither a text nor a SymPy object nor an Expression{hint}")


def _splice(
    kinds: np.ndarray, values: np.ndarray, offsets: np.ndarray, tokens: dict[int, tuple[np.ndarray, np.ndarray] | None]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The arrays with the tokens of further expressions put in at their indices."""
    lengths = np.diff(offsets)
    pieces: list[tuple[np.ndarray, np.ndarray]] = []
    done = 0
    for index, piece in sorted(tokens.items()):
        pieces.append((kinds[done : offsets[index]], values[done : offsets[index]]))
        done = offsets[index]
        if piece is not None:
            pieces.append(piece)
            lengths[index] = len(piece[0])
    pieces.append((kinds[done:], values[done:]))
    joined = [np.concatenate(arrays) for arrays in zip(*pieces, strict=True)]
    return joined[0], joined[1], np.concatenate([[0], np.cumsum(lengths)])
