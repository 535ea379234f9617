"""User-defined operators, next to the table: lookup by name or code for parsers, printers and generators.

In: a ``Definition``, which ``text.define`` makes of a formula, or a row of the table that ``functions`` makes of a
Python function.  Out: rows by name and by code, the table's and the user's.  A population keeps the codes of these
operators and prints their names; lowering and derivatives see formulas (``Population.expanded``), which no backend
knows, and the functions as any other row.  Codes are those of a process: files and pickles hold formulas as text, and
of functions the name alone.

    >>> from exprkit.operators import defined
    >>> defined.row(1).name, defined.row(defined.FIRST_CODE - 1)
    ('add', None)
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from exprkit.errors import ArgumentError
from exprkit.operators import ops

FIRST_CODE, END_CODE = 64, 200  # codes of user operators; the table's grow from below, lowering's stand above
MOST_OPERANDS = 3
T = TypeVar("T")
OPERATOR, OPERAND = 3, 4  # kinds of a formula's tokens: as ``text.tokens`` has it, and behind those the operands


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Definition:
    """An operator that is a formula; of ``ops.Operator``'s cells it has those that say how it is written."""

    code: int = 0  # ``add`` gives it one
    name: str
    operands: tuple[str, ...]
    formula: str  # over the operands, in exprkit's own text
    kinds: np.ndarray = field(repr=False)  # uint8: the formula's tokens, operators of the user's own written out
    values: np.ndarray = field(repr=False)  # uint64
    uses: tuple[str, ...]  # operators of the user's own that the formula names
    domain: tuple[ops.Interval, ...]
    latex: str  # as it was given; "": by its name
    latex_parts: tuple[str, ...]  # what stands before, between and after the operands
    function: bool = False  # it has no formula: its tokens are its operands packed, and the row of a function

    infix: ClassVar[None] = None
    precedence: ClassVar[int] = 9
    right: ClassVar[bool] = False
    chain: ClassVar[bool] = False
    commutative: ClassVar[bool] = False
    rewrite: ClassVar[ops.Rewrite] = ops.Rewrite()

    @property
    def arity(self) -> int:
        return len(self.operands)

    @property
    def meaning(self) -> str:
        return self.formula

    @property
    def text(self) -> str:
        """The definition as ``operator`` takes it; of a function its head."""
        return head(self) if self.function else f"{self.name}({', '.join(self.operands)}) = {self.formula}"

    @property
    def numpy(self) -> Callable[..., np.ndarray]:
        """The formula as a function of float64 arrays, for searches."""
        return lambda *operands: evaluated(self.kinds, self.values, operands)

    def same_as(self, other: Definition) -> bool:
        """Whether both mean and look the same; what operands are called is no matter."""
        return (
            (self.arity, self.domain, self.latex_parts) == (other.arity, other.domain, other.latex_parts)
            and np.array_equal(self.kinds, other.kinds)
            and np.array_equal(self.values, other.values)
        )


def folded(
    kinds: np.ndarray, values: np.ndarray, leaf: Callable[[int, int], T], operator: Callable[[Written, list[T]], T]
) -> T:
    """What postfix tokens are: ``leaf(kind, value)`` of each leaf, ``operator(row, operands)`` of each operator."""
    stack: list[T] = []
    for kind, value in zip(kinds.tolist(), values.tolist(), strict=True):
        if kind == OPERATOR:
            row = known(value)
            operands = stack[len(stack) - row.arity :]
            del stack[len(stack) - row.arity :]
            stack.append(operator(row, operands))
        else:
            stack.append(leaf(kind, value))
    return stack[0]


def evaluated(kinds: np.ndarray, values: np.ndarray, operands: Sequence[Any]) -> Any:
    """A formula's tokens with these operands, by the table's NumPy functions."""

    def leaf(kind: int, value: int) -> Any:
        return operands[value] if kind == OPERAND else np.uint64(value).view(np.float64)

    return folded(kinds, values, leaf, lambda row, own: row.numpy(*own))


Written = ops.Operator | Definition  # an operator as texts have it
Saved = tuple[int, str, str, tuple[ops.Interval, ...]]  # code in the tokens beside it, text, latex, domain

_LOCK = threading.Lock()
_codes = iter(range(FIRST_CODE, END_CODE))  # that nothing has had: what was made of another operator may still be about
_n_added = 0
_BY_NAME: dict[str, Definition] = {}
_BY_CODE: dict[int, Definition] = {}
_REPLACED: list[Definition] = []  # functions that another of their name came after
_FUNCTIONS: dict[int, ops.Operator] = {}  # by code; ``ops`` has them by code and name too
_TABLES: list[Callable[[], None]] = []  # what forgets the tables that are made of the rows


def table_of_rows(make: Callable[..., Any]) -> Callable[..., Any]:
    """``functools.cache`` for what is made of the table: made anew once a row has come in."""
    cached = functools.cache(make)
    _TABLES.append(cached.cache_clear)
    return cached


def add_row(row: ops.Operator) -> ops.Operator:
    """Put an operator without a formula into the table, with a code of its own.

    Of two of the same name texts mean the later one, and populations the one that they were made with, which has no
    CUDA text any more.

    Raises
    ------
    ArgumentError
        for too many operators.
    """
    with _LOCK:
        row = replace(row, code=_next_code())
        ops.ARITY.flags.writeable = True
        ops.ARITY[row.code] = row.arity
        ops.ARITY.flags.writeable = False
        older = [replace(other, cuda=ops.Cuda("")) for other in functions() if other.name == row.name]
        for other in (*older, row):  # kernels hold one text of a name
            ops.BY_CODE[other.code] = ops.IN_VALUES[other.code] = _FUNCTIONS[other.code] = other
        if not row.packed:  # texts mean the ``Definition`` that packs its operands
            ops.BY_NAME[row.name] = ops.BY_SPELLING[row.name] = row
        for forget in _TABLES:
            forget()
    return row


def _next_code() -> int:
    global _n_added
    code = next(_codes, None)
    if code is None:
        raise ArgumentError(f"there are {END_CODE - FIRST_CODE} operators of your own already; no more fit")
    _n_added += 1
    return code


def functions() -> list[ops.Operator]:
    """The operators without a formula."""
    return list(_FUNCTIONS.values())


def add(definition: Definition) -> Definition:
    """Take an operator in, with a code of its own; one that is known comes back as it is.

    Raises
    ------
    ArgumentError
        for a name that has another meaning, or for too many operators.
    """
    with _LOCK:
        known = _BY_NAME.get(definition.name)
        if known is not None and known.function and definition.function:
            _REPLACED.append(known)
            known = None
        if known is None:
            code = _next_code()
            _BY_NAME[definition.name] = _BY_CODE[code] = definition = replace(definition, code=code)
            return definition
    if not known.same_as(definition):
        raise ArgumentError(f"operator {known.name!r} is {known.text!r} already; give the new one another name")
    return known


def count() -> int:
    """The number of operators added so far: tables made of the operators are out of date when it has grown."""
    return _n_added


def all_rows() -> list[Written]:
    """The table's rows and the user's."""
    return [*table(), *definitions()]


def table() -> list[ops.Operator]:
    """The table's rows, and those of functions."""
    return [*ops.OPERATORS, *functions()]


def definitions() -> list[Definition]:
    """The user's operators that are formulas, or functions of three operands, in the order of their definition."""
    return [*_REPLACED, *_BY_NAME.values()]


def spelled(name: Any) -> Written | None:
    """The operator of this name or alias."""
    return (ops.BY_SPELLING.get(name) or _BY_NAME.get(name)) if isinstance(name, str) else None


def spellings() -> dict[str, Written]:
    """All names and aliases with their rows."""
    return {**ops.BY_SPELLING, **_BY_NAME}


def row(code: int) -> Written | None:
    """The operator of this code, internal ones included."""
    return ops.BY_CODE.get(code) or _BY_CODE.get(code)


def known(code: int) -> Written:
    """The operator of a code that there is."""
    result = row(code)
    assert result is not None, f"no operator has the code {code}"
    return result


def arity() -> np.ndarray:
    """The number of operands by code, internal operators included; 0 where there is no operator."""
    arities = ops.ARITY.copy()
    for definition in definitions():
        arities[definition.code] = definition.arity
    return arities


def codes_in(kinds: np.ndarray, values: np.ndarray, operator_kind: int) -> list[int]:
    """The codes of user operators among tokens, ascending."""
    if not count():
        return []
    codes = values[kinds == operator_kind]
    return np.unique(codes[(codes >= FIRST_CODE) & (codes < END_CODE)]).tolist()


def has_formulas(codes: Iterable[int]) -> bool:
    """Whether some of these operators are formulas, to be written out."""
    return any(code in _BY_CODE for code in codes)


def has_packed(codes: Iterable[int]) -> bool:
    """Whether some of these operators are functions of three operands, the first two of which are packed."""
    return any(code in _FUNCTIONS and _FUNCTIONS[code].packed for code in codes)


def is_packed(code: int) -> bool:
    """Whether this is what packs operands, or takes them packed."""
    return code == ops.PAIR_OF or has_packed([code])


def unpacked(kinds: np.ndarray, values: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens as they are written: functions of three operands in the place of their rows, and nothing packed."""
    of_row = {int(definition.values[-1]): definition.code for definition in definitions() if definition.function}
    if not of_row:
        return kinds, values, offsets
    operators = kinds == OPERATOR
    packs = operators & (values == ops.PAIR_OF)
    if not packs.any():
        return kinds, values, offsets
    own = np.arange(256, dtype=np.uint64)
    own[list(of_row)] = list(of_row.values())
    values = values.copy()
    values[operators] = own[values[operators]]
    return kinds[~packs], values[~packs], offsets - np.append(0, np.cumsum(packs))[offsets]


def without_cuda(codes: Iterable[int]) -> list[str]:
    """The names of those among these operators that have no CUDA text."""
    return [_FUNCTIONS[code].name for code in codes if code in _FUNCTIONS and not _FUNCTIONS[code].cuda.formula]


def without_cuda_slopes(codes: Iterable[int]) -> list[str]:
    """The names of the operators without CUDA text in derivatives of these."""
    return without_cuda(in_slopes(codes))


def in_slopes(codes: Iterable[int]) -> list[int]:
    """The functions in derivatives of these operators."""
    texts = " ".join(text for code in codes if code in _FUNCTIONS for text in _FUNCTIONS[code].derivative)
    words = set(re.findall(r"\w+", texts))
    return [row.code for row in functions() if row.name in words]


def saved(codes: Iterable[int]) -> tuple[Saved, ...]:
    """The entries of a file or a pickle for these operators, those that their formulas name first.

    Of a function name and operands alone: its code is never kept.
    """
    needed: set[str] = set()
    waiting = [row for code in codes if (row := _FUNCTIONS.get(code) or _BY_CODE.get(code))]
    while waiting:
        one = waiting.pop()
        if one.name not in needed:
            needed.add(one.name)
            waiting += [row for name in getattr(one, "uses", ()) if (row := spelled(name))]
    named = [(row.code, head(row), "", ()) for row in functions() if row.name in needed]
    known = [one for one in definitions() if one.name in needed]
    return (*named, *((one.code, one.text, *(("", ()) if one.function else (one.latex, one.domain))) for one in known))


def head(row: Written) -> str:
    """The operator with its operands, as in ``airy(a)``; of a row whose first two are packed ``name((a, b), c)``."""
    if isinstance(row, ops.Operator) and row.packed:
        return f"{row.name}((a, b), c)"
    return f"{row.name}({', '.join('abc'[: row.arity])})"
