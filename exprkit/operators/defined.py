"""Operators of the user's own, beside the table: what parsers, printers and generators ask for a name or a code.

In: a ``Definition``, which ``text.define`` makes of a formula.  Out: rows by name and by code, the table's and the
user's.  A population keeps the codes of these operators and prints their names; lowering and derivatives see their
formulas (``Population.expanded``), so no backend knows them.  Codes are those of a process: files and pickles
hold the definitions as text.

    >>> from exprkit.operators import defined
    >>> defined.row(1).name, defined.row(defined.FIRST_CODE - 1)
    ('add', None)
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from exprkit.errors import ArgumentError
from exprkit.operators import ops

FIRST_CODE, END_CODE = 120, 200  # codes of user operators; the table's grow from below, lowering's stand above
MOST_OPERANDS = 3
OPERAND = 4  # kind of a formula's token: operand number so-and-so; follows the kinds of ``text.tokens``


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

    infix: ClassVar[None] = None
    precedence: ClassVar[int] = 9
    right: ClassVar[bool] = False
    chain: ClassVar[bool] = False
    commutative: ClassVar[bool] = False

    @property
    def arity(self) -> int:
        return len(self.operands)

    @property
    def meaning(self) -> str:
        return self.formula

    @property
    def text(self) -> str:
        """As ``operator`` takes it."""
        return f"{self.name}({', '.join(self.operands)}) = {self.formula}"

    def same_as(self, other: Definition) -> bool:
        """Whether both mean and look the same; what operands are called is no matter."""
        return (
            (self.arity, self.domain, self.latex_parts) == (other.arity, other.domain, other.latex_parts)
            and np.array_equal(self.kinds, other.kinds)
            and np.array_equal(self.values, other.values)
        )


Written = ops.Operator | Definition  # an operator as texts have it
Saved = tuple[int, str, str, tuple[ops.Interval, ...]]  # code in the tokens beside it, text, latex, domain

_LOCK = threading.Lock()
_BY_NAME: dict[str, Definition] = {}
_BY_CODE: dict[int, Definition] = {}


def add(definition: Definition) -> Definition:
    """Take an operator in, with a code of its own; one that is known comes back as it is.

    Raises
    ------
    ArgumentError
        for a name that has another meaning, or for too many operators.
    """
    with _LOCK:
        known = _BY_NAME.get(definition.name)
        if known is None:
            code = FIRST_CODE + len(_BY_NAME)
            if code == END_CODE:
                raise ArgumentError(f"there are {len(_BY_NAME)} operators of your own already; no more fit")
            _BY_NAME[definition.name] = _BY_CODE[code] = definition = replace(definition, code=code)
            return definition
    if not known.same_as(definition):
        raise ArgumentError(f"operator {known.name!r} is {known.text!r} already; give the new one another name")
    return known


def count() -> int:
    """How many operators are defined; tables that are made of them are made anew when it has grown."""
    return len(_BY_NAME)


def all_rows() -> list[Written]:
    """The table's rows and the user's."""
    return [*ops.OPERATORS, *_BY_NAME.values()]


def definitions() -> list[Definition]:
    """The user's operators, in the order of their definition."""
    return list(_BY_NAME.values())


def spelled(name: Any) -> Written | None:
    """The operator of this name or alias."""
    return (ops.BY_SPELLING.get(name) or _BY_NAME.get(name)) if isinstance(name, str) else None


def spellings() -> dict[str, Written]:
    """All names and aliases with their rows."""
    return {**ops.BY_SPELLING, **_BY_NAME}


def row(code: int) -> Written | None:
    """The operator of this code, internal ones included."""
    return ops.BY_CODE.get(code) or _BY_CODE.get(code)


def arity() -> np.ndarray:
    """By code, 0 where there is no operator; of the internal ones too."""
    found = ops.ARITY.copy()
    for definition in definitions():
        found[definition.code] = definition.arity
    return found


def codes_in(kinds: np.ndarray, values: np.ndarray, operator_kind: int) -> list[int]:
    """The codes of user operators among tokens, ascending."""
    if not _BY_NAME:
        return []
    codes = values[kinds == operator_kind]
    return np.unique(codes[(codes >= FIRST_CODE) & (codes < END_CODE)]).tolist()


def saved(codes: Iterable[int]) -> tuple[Saved, ...]:
    """What a file or a pickle needs to know of operators, those that they are made of first."""
    needed: set[str] = set()
    waiting = [_BY_CODE[code] for code in codes]
    while waiting:
        one = waiting.pop()
        if one.name not in needed:
            needed.add(one.name)
            waiting += [_BY_NAME[name] for name in one.uses]
    return tuple(
        (one.code, one.text, one.latex, one.domain) for one in definitions() if one.name in needed
    )  # fmt: skip
