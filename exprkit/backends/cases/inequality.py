"""Symbolic quantities and inequalities: one function each, evaluated with numbers, arrays or SymPy symbols.

In: functions of a mapping from symbols to values.  Out: whether an inequality holds, its text, its numbers, and the
relation between polynomials that it is.

    >>> from exprkit.backends.cases.inequality import Inequality, Quantity, symbol
    >>> twice = Inequality(Quantity("twice s", lambda at: 2 * at["s"]), symbol("Z_B"))
    >>> print(twice, "|", twice.with_numbers({"s": 3, "Z_B": 4}), "|", twice.relation())
    twice s <= Z_B | twice s = 6 > 4 = Z_B | 2*s <= Z_B
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import sympy

Values = Mapping[str, Any]  # of symbols

MEANINGS = {
    "Z_B": "shared memory of a block, bytes", "Z_M": "shared memory of a multiprocessor, bytes",
    "S": "multiprocessors", "R_M": "registers of a multiprocessor", "N": "data points",
    "E": "expressions times parameter sets", "c": "columns (variables and functions of one)",
    "s": "values put aside at a time", "m": "parameters of an expression", "i": "instructions of an expression",
    "r": "results of a prologue", "g": "expressions per structure",
    "u": "1: uncommon operators are used", "p": "1: operators that need many registers are used (powers)",
    "b": "1: the code of the operators for 8 vectors outgrows the instruction cache",
    "d": "1: structures that differ in their columns alone share code",
}  # fmt: skip
MAY_BE_ZERO = frozenset("csmrdupb")


class Quantity(NamedTuple):
    """A number that depends on symbols."""

    words: str
    of: Callable[[Values], Any]
    name: str = ""  # that stands for it in formulas, in LaTeX; without one its formula does


class Inequality(NamedTuple):
    """``left <= right``, or strictly less."""

    left: Quantity
    right: Quantity
    strict: bool = False

    def holds(self, values: Values) -> Any:
        """True or False, or an array of them."""
        left, right = self.left.of(values), self.right.of(values)
        return left < right if self.strict else left <= right

    def refused(self) -> Inequality:
        """What holds where this does not."""
        return Inequality(self.right, self.left, not self.strict)

    def __str__(self) -> str:
        return f"{self.left.words} {'<' if self.strict else '<='} {self.right.words}"

    def with_numbers(self, values: Values) -> str:
        """Both sides with their numbers and the sign that is between them."""
        left, right = self.left.of(values), self.right.of(values)
        sign = "<" if left < right else "=" if left == right else ">"
        sign = "<=" if sign != ">" and not self.strict else sign
        before, behind = shown(left), shown(right)
        before = before if before == self.left.words else f"{self.left.words} = {before}"
        behind = behind if behind == self.right.words else f"{behind} = {self.right.words}"
        return f"{before} {sign} {behind}"

    def relation(self) -> sympy.Basic:
        """As SymPy has it, in ``symbols``; a quantity that has a name stands as that."""
        left, right = (formula(side) for side in (self.left, self.right))
        return left < right if self.strict else left <= right


class AllOf(NamedTuple):
    """Inequalities that are asked together: accepted where all hold; or, negated, where one of them does not."""

    parts: tuple[Inequality, ...]
    negated: bool = False

    def holds(self, values: Values) -> Any:
        """True or False, or an array of them."""
        all_hold = functools.reduce(lambda a, b: a & b, (part.holds(values) for part in self.parts))
        return ~np.asarray(all_hold) if self.negated else all_hold

    def refused(self) -> AllOf:
        """What holds where this does not."""
        return self._replace(negated=not self.negated)

    def joined(self, words: Callable[[Inequality], str]) -> str:
        """What is said of each, by "and"; or of what holds where it does not, by "or"."""
        if self.negated:
            return " or ".join(words(part.refused()) for part in self.parts)
        return " and ".join(map(words, self.parts))

    def __str__(self) -> str:
        return self.joined(str)

    def with_numbers(self, values: Values) -> str:
        """All of them with their numbers, or those that do not hold."""
        failing = [part for part in self.parts if not part.holds(values)]
        return ("; " if failing else " and ").join(part.with_numbers(values) for part in failing or self.parts)

    def relation(self) -> sympy.Basic:
        """As SymPy has it."""
        import sympy

        if self.negated:
            return sympy.Or(*(part.refused().relation() for part in self.parts))
        return sympy.And(*(part.relation() for part in self.parts))


Constraint = Inequality | AllOf


def all_of(*parts: Inequality | None) -> Constraint | None:
    """Those that are asked, together; None: nothing is."""
    asked = tuple(part for part in parts if part is not None)
    return (AllOf(asked) if len(asked) > 1 else asked[0]) if asked else None


def shown(value: Any) -> str:
    """A number in few digits."""
    if not np.isfinite(value):
        return "infinite"
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.1f}"


def formula(quantity: Quantity) -> sympy.Expr:
    """A quantity in symbols, or its name."""
    import sympy

    if quantity.name:
        return sympy.Symbol(quantity.name, positive=True)
    return sympy.expand(quantity.of(symbols()))


@functools.cache
def symbols() -> dict[str, sympy.Symbol]:
    """All symbols; whole numbers above 0, or from 0 on."""
    import sympy

    signs = {name: {"nonnegative" if name in MAY_BE_ZERO else "positive": True} for name in MEANINGS}
    return {name: sympy.Symbol(name, integer=True, **sign) for name, sign in signs.items()}


def of_symbols(known: Values) -> dict[sympy.Symbol, Any]:
    """Values by SymPy's symbols, as ``subs`` takes them."""
    return {symbols()[name]: value for name, value in known.items() if name in MEANINGS}


def symbol(name: str) -> Quantity:
    """A symbol as a quantity."""
    return Quantity(name, lambda at: at[name])


def number(value: Any, words: str = "") -> Quantity:
    """A number that depends on nothing."""
    return Quantity(words or f"{value:,}", lambda at: value)
