"""Symbols, quantities made of them, and inequalities between two: with numbers, arrays or SymPy's symbols as values.

In: functions of a mapping from symbols to values.  Out: whether an inequality holds, and its text.

    >>> from exprkit.backends.cases.inequality import Inequality, Quantity, symbol
    >>> twice = Inequality(Quantity("twice s", lambda at: 2 * at["s"]), symbol("Z_B"))
    >>> print(twice, "|", twice.with_numbers({"s": 3, "Z_B": 4}), "|", twice.left.polynomial({}))
    twice s <= Z_B | twice s = 6 > 4 = Z_B | 2*s
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

Values = Mapping[str, Any]  # of symbols


class SymbolMeaning(NamedTuple):
    """A number of the machine, the data or the expressions."""

    argument: str  # of ``Cases.at``
    meaning: str
    most: int = 0  # that a tree is made for; of the machine: what cards have
    often_zero: bool = False


SYMBOLS = {
    "N": SymbolMeaning("n_points", "data points", 10**8),
    "E": SymbolMeaning("n_exprs", "expressions times parameter sets", 10**6),
    "c": SymbolMeaning("n_columns", "columns (variables and functions of one)", 1000),
    "s": SymbolMeaning("n_slots", "values put aside at a time", 16, True),
    "Z_B": SymbolMeaning("shared_per_block", "shared memory of a block, bytes"),
    "Z_M": SymbolMeaning("shared_per_multiprocessor", "shared memory of a multiprocessor, bytes"),
    "S": SymbolMeaning("multiprocessors", "multiprocessors"),
    "R_M": SymbolMeaning("registers", "registers of a multiprocessor"),
    "m": SymbolMeaning("n_params", "parameters of an expression", 16),
    "i": SymbolMeaning("n_instructions", "instructions of an expression", 200),
    "r": SymbolMeaning("n_results", "results of a prologue", 20, True),
    "g": SymbolMeaning("exprs_per_structure", "expressions per structure", 10**4),
    "d": SymbolMeaning("shared_code", "1: structures that differ in their columns alone share code", 1, True),
    "u": SymbolMeaning("uncommon_operators", "1: uncommon operators are used", 1, True),
    "p": SymbolMeaning("powers", "1: operators that need many registers are used (powers)", 1, True),
    "b": SymbolMeaning(
        "bulky_operators", "1: the operators' code for 8 vectors outgrows the instruction cache", 1, True
    ),
}
MACHINE = ("Z_B", "Z_M", "S", "R_M")  # as ``DeviceLimits`` has them


class Quantity(NamedTuple):
    """A number that depends on symbols."""

    words: str
    of: Callable[[Values], Any]
    is_polynomial: bool = True

    def polynomial(self, known: Values) -> str:
        """The quantity as a polynomial in the symbols that are not known."""
        import sympy

        symbols = {name: sympy.Symbol(name, integer=True, nonnegative=True) for name in SYMBOLS}
        return str(sympy.expand(self.of({**symbols, **known})))


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
        """The inequality that holds where this does not."""
        return Inequality(self.right, self.left, not self.strict)

    def __str__(self) -> str:
        return f"{self.left.words} {'<' if self.strict else '<='} {self.right.words}"

    def with_polynomial(self, known: Values) -> str:
        """The words, and the left side as a polynomial if it is one."""
        value = self.left.polynomial(known) if self.left.is_polynomial else self.left.words
        return str(self) if value == self.left.words else f"{self.left.words} = {self._replace(left=number(0, value))}"

    def with_numbers(self, values: Values) -> str:
        """Both sides with their numbers and the sign that is between them."""
        left, right = self.left.of(values), self.right.of(values)
        sign = "<" if left < right else "=" if left == right else ">"
        sign = "<=" if sign != ">" and not self.strict else sign
        before, behind = shown(left), shown(right)
        before = before if before == self.left.words else f"{self.left.words} = {before}"
        behind = behind if behind == self.right.words else f"{behind} = {self.right.words}"
        return f"{before} {sign} {behind}"


class AllOf(NamedTuple):
    """Inequalities that are asked together: accepted where all hold; negated: where one of them does not."""

    parts: tuple[Inequality, ...]
    negated: bool = False

    def holds(self, values: Values) -> Any:
        """True or False, or an array of them."""
        all_hold = functools.reduce(lambda a, b: a & b, (part.holds(values) for part in self.parts))
        return ~np.asarray(all_hold) if self.negated else all_hold

    def refused(self) -> AllOf:
        """The negation."""
        return self._replace(negated=not self.negated)

    def __str__(self) -> str:
        return (
            " or ".join(str(part.refused()) for part in self.parts)
            if self.negated
            else " and ".join(map(str, self.parts))
        )

    def with_polynomial(self, known: Values) -> str:
        """The words of all, with polynomials."""
        return " and ".join(part.with_polynomial(known) for part in self.parts)

    def with_numbers(self, values: Values) -> str:
        """All of them with their numbers, or those that do not hold."""
        failing = [part for part in self.parts if not part.holds(values)]
        return ("; " if failing else " and ").join(part.with_numbers(values) for part in failing or self.parts)


Constraint = Inequality | AllOf


def all_of(*parts: Inequality | None) -> Constraint | None:
    """The inequalities together; None if there is none."""
    asked = tuple(part for part in parts if part is not None)
    return (AllOf(asked) if len(asked) > 1 else asked[0]) if asked else None


def compared(words: str, here: Callable[[Values], Any], other: str, there: Callable[[Values], Any]) -> Inequality:
    """The inequality of two times, which are no polynomials."""
    return Inequality(Quantity(words, here, False), Quantity(other, there, False))


def shown(value: Any) -> str:
    """A number in few digits."""
    if not np.isfinite(value):
        return "infinite"
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.1f}"


def symbol(name: str) -> Quantity:
    """A symbol as a quantity."""
    return Quantity(name, lambda at: at[name])


def number(value: Any, words: str = "") -> Quantity:
    """A number that depends on nothing."""
    return Quantity(words or f"{value:,}", lambda at: value)
