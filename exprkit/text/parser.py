"""Text and SymPy to a population: the first stage of the pipeline.

``parse`` joins all texts into one array of bytes and lets ``shunting`` read it; the
array's errors are worded by ``parse_errors``.

    >>> import exprkit as ek
    >>> ek.parse(["x1^2 + p1", "exp(-x2)"]).texts()
    ['x1 ^ 2 + p1', 'exp(-x2)']

=======================  ==============================================================
``-x1^2``                ``-(x1^2)``; ``^`` and ``**`` are the same
``2^-x1^2``              ``2^(-(x1^2))``; powers group from the right
``x1 * -2``              the constant -2; ``-(2)`` is the operator applied to 2
``1 2. .5 1e-3 1f0``     float64, correctly rounded (``1f0``: to float32, as in Julia)
``1//3  1//0``           Julia's fractions of two whole numbers; ``1//0`` is inf
``inf nan pi``           constants, also ``Inf``, ``NaN``, ``π``, ``Inf32``, ``NaN32``
``x1 p1``                variables and parameters from 1, or the names that are given
``max(a, b, c)``         ``max(max(a, b), c)``, also for min, add and mul
=======================  ==============================================================
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from exprkit import files
from exprkit.errors import ExprkitError, ParseError, one_of
from exprkit.population import Population
from exprkit.text.names import USUAL, Given, Names

if TYPE_CHECKING:
    from exprkit.text.parse_errors import Fault

BLOCK = 1 << 18  # bytes of text that are parsed at a time; what they become stays in the cache


def parse(
    source: Any, *, variables: Given = None, parameters: Given = None, errors: Literal["raise", "mask"] = "raise"
) -> Population:
    """Read expressions.

    Parameters
    ----------
    source : str, iterable, path or file
        One text; or many texts, SymPy objects and Expressions, mixed at will; or a ``pathlib.Path`` or open
        file with one expression a line (UTF-8; blank lines and lines that begin with ``#`` do not count).
    variables, parameters : None, int or list of str
        None: ``x1, x2, …`` and ``p1, p2, …``; a number: so many of them; a list: their names.
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
    Limits, each with its own message: 65,535 tokens an expression, 1,000,000 nested parentheses, 16 MiB of
    text an expression, 1,000 digits a number, ``x65535`` and ``p65535``.
    """
    one_of("errors", errors, ("raise", "mask"))
    batch = _read(source)
    batch.names = names = _names(batch, variables, parameters)
    kinds, values, offsets, faults = _parse_texts(batch)
    if batch.objects:
        kinds, values, offsets = _splice(kinds, values, offsets, _parse_objects(batch, faults))
        faults = dict(sorted(faults.items()))
    population = Population._of_parser(kinds, values, offsets, names, faults)
    if faults and errors == "raise":
        raise population.errors.error(len(population), alone=batch.alone)
    return population


@dataclass(slots=True)
class Batch:
    """What is to be parsed: the texts as bytes, each followed by a 0, and what is not text."""

    data: bytes
    starts: np.ndarray
    ends: np.ndarray
    lines: np.ndarray | None = None  # line in the file, counted from 1
    objects: dict[int, Any] = field(default_factory=dict)  # these have an empty text
    alone: bool = False  # the user gave one expression, not a list
    names: Names = USUAL

    def raw(self, index: int) -> bytes:
        return self.data[self.starts[index] : self.ends[index]]

    def fault(self, index: int, code: int = 0, place: int = 0, extent: int = 1, count: int = 0, **why: str) -> Fault:
        from exprkit.text.parse_errors import Fault

        line = None if self.lines is None else int(self.lines[index])
        raw = None if index in self.objects else self.raw(index)
        return Fault(self.names, raw, line, code, place, extent, count, **why)


# ── sources ──────────────────────────────────────────────────────────────────────────


def _read(source: Any) -> Batch:
    """The batch behind whatever the user gave."""
    if isinstance(source, np.ndarray) and source.ndim == 0:
        source = source.item()
    if isinstance(source, bytearray):
        source = bytes(source)
    if isinstance(source, (str, bytes)):
        return _from_items([source], alone=True)
    if isinstance(source, os.PathLike):
        with files.told(source, "read"):
            return _from_lines(Path(source).read_bytes())
    if hasattr(source, "read"):
        content = source.read()
        return _from_lines(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
    if _is_object(source):
        return _from_items([source], alone=True)
    if isinstance(source, (Set, Mapping)) or not isinstance(source, Iterable):
        raise ParseError(
            f"cannot parse a {type(source).__name__}: give a text, a list of texts, a path or an open file"
        )
    return _from_items(source.tolist() if isinstance(source, np.ndarray) else list(source))


def _is_object(item: Any) -> bool:
    """Whether it is a SymPy object or an Expression (without importing SymPy)."""
    from exprkit.expression import Expression

    sympy = sys.modules.get("sympy")
    return isinstance(item, Expression) or (sympy is not None and isinstance(item, sympy.Basic))


def _from_items(items: list[Any], alone: bool = False) -> Batch:
    objects = {}
    try:
        joined = "\0".join(items)
    except TypeError:  # not all of them are texts
        items = [item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else item for item in items]
        objects = {index: item for index, item in enumerate(items) if not isinstance(item, str)}
        items = ["" if index in objects else item for index, item in enumerate(items)]
        joined = "\0".join(items)
    if joined.count("\0") != len(items) - 1:  # a text holds the separator; \1 is as wrong there as \0
        joined = "\0".join([item.replace("\0", "\1") for item in items])
    try:
        data = joined.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        data = joined.encode("utf-8", "surrogatepass")
    batch = _separated(data + b"\0") if items else Batch(b"", *np.zeros((2, 0), np.int64))
    batch.objects, batch.alone = objects, alone
    return batch


def _from_lines(data: bytes) -> Batch:
    """One expression a line; lines that are blank or begin with # do not count."""
    from exprkit.text.shunting import first_bytes, rules

    data = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    batch = _separated(data.replace(b"\0", b"\1").replace(b"\n", b"\0") + b"\0")
    first = first_bytes(np.frombuffer(batch.data, np.uint8), batch.starts, rules())
    kept = np.flatnonzero((first != 0) & (first != ord("#")))
    return Batch(batch.data, batch.starts[kept], batch.ends[kept], lines=kept + 1)


def _separated(data: bytes) -> Batch:
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 0)
    starts = np.empty_like(ends)
    starts[0], starts[1:] = 0, ends[:-1] + 1
    return Batch(data, starts, ends)


def _names(batch: Batch, variables: Given, parameters: Given) -> Names:
    """The names that are given, or else those of the first Expression that has any."""
    from exprkit.expression import Expression

    for item in batch.objects.values():
        if isinstance(item, Expression):
            variables = item.variables if variables is None else variables
            parameters = item.parameters if parameters is None else parameters
    return USUAL if variables is None and parameters is None else Names(variables, parameters)


# ── texts ────────────────────────────────────────────────────────────────────────────


def _parse_texts(batch: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[int, Fault]]:
    """(kinds, values, offsets, faults by index) of all texts."""
    from exprkit.text import shunting

    n = len(batch.starts)
    longest = min(int((batch.ends - batch.starts).max(initial=0)), shunting.MAX_BYTES)
    work = shunting.workspace(max(BLOCK, longest), longest)
    found = np.zeros((4, n), np.int32)
    text, names, rules = np.frombuffer(batch.data, np.uint8), tuple(batch.names.table), shunting.rules()
    offsets = np.zeros(n + 1, np.int64)
    kinds, values = [], []
    done = total = 0
    while done < n:
        first = done
        done, n_tokens, n_slow = shunting.parse_block(
            text, batch.starts, batch.ends, first, names, rules, tuple(work), offsets, found
        )
        for token, start, end, flags in work.slow[:n_slow].tolist():
            work.values[token] = _exactly(batch.data[start:end].decode(), flags)
        kinds.append(work.kinds[:n_tokens].copy())
        values.append(work.values[:n_tokens].copy())
        offsets[first + 1 : done + 1] += total
        total += n_tokens
    faults = {
        index: batch.fault(index, *found[:, index].tolist())
        for index in np.flatnonzero(found[0]).tolist()
        if index not in batch.objects
    }
    return _joined(kinds, np.uint8), _joined(values, np.uint64), offsets, faults


def _joined(parts: list[np.ndarray], dtype: type) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype), *parts])


def _exactly(literal: str, flags: int) -> np.uint64:
    """Bits of a literal whose first 19 digits do not decide them (and of fractions of large numbers)."""
    from exprkit.text import shunting
    from exprkit.text.decimals import nearest_float, nearest_single

    if flags & shunting.SLOW_RATIONAL:
        above, below = literal.split("//")
        number = nearest_float(Fraction(int(above), int(below))) if int(below) else float("inf")
    elif flags & shunting.SLOW_SINGLE:
        number = nearest_single(literal.replace("f", "e"))
    else:
        number = float(literal)
    return np.float64(-number if flags & shunting.SLOW_NEGATIVE else number).view(np.uint64)


# ── what is not text ─────────────────────────────────────────────────────────────────


def _parse_objects(
    batch: Batch, faults: dict[int, Fault]
) -> dict[int, tuple[np.ndarray, np.ndarray] | None]:
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
    from exprkit.expression import Expression, tokens_under

    if isinstance(item, Expression):
        if not item.valid:
            raise ParseError("the Expression is one that could not be read")
        return tokens_under(item, names)
    if _is_object(item):
        from exprkit.text import sympy_io

        return sympy_io.read(item, names)
    shown = repr(item)
    shown = shown if len(shown) <= 40 else shown[:37] + "…"
    hint = f"; write it as a text, '{shown}'" if isinstance(item, (int, float)) and item == item else ""
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
