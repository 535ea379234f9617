"""Rounding of numbers to simple ones: fractions, fractions of pi, short decimals.

In: a number, or a formula.  Out: the simple number close to it; the formula with such numbers.

    >>> from exprkit.regression.formulas.numbers import simple_number
    >>> simple_number(0.33333333333342)
    0.3333333333333333
"""

from __future__ import annotations

import functools
import math

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.text.tokens import CONSTANT

# Chosen, not measured.
CLOSE = 1e-10  # relative distance within which a number is taken for a simple one
MAX_DENOMINATOR = 12
MAX_NUMERATOR = 100
MAX_DIGITS = 6  # of a short decimal
CACHE_SIZE = 1 << 14  # numbers and trees whose simple forms are cached: formulas of a search have many in common


@functools.lru_cache(maxsize=CACHE_SIZE)
def simple_number(number: float, close: float = CLOSE) -> float:
    """The simplest fraction, fraction of pi or short decimal within ``close`` of a number; else the number itself."""
    if not math.isfinite(number) or number == 0:
        return number
    if (fraction := simple_fraction(number, close)) is not None:
        return fraction
    for digits in range(1, MAX_DIGITS + 1):
        short = float(f"{number:.{digits}g}")
        if abs(short - number) <= close * abs(number):
            return short
    return number


@functools.lru_cache(maxsize=CACHE_SIZE)
def simple_fraction(number: float, close: float = CLOSE) -> float | None:
    """The simplest fraction, or fraction of pi, within ``close`` of a number other than 0; None if there is none."""
    for unit in (1.0, math.pi):
        for denominator in range(1, MAX_DENOMINATOR + 1):
            numerator = round(number / unit * denominator)
            simple = unit * numerator / denominator
            if 0 < abs(numerator) <= MAX_NUMERATOR and abs(simple - number) <= close * abs(number):
                return simple
    return None


def numbers_of(expression: Expression) -> list[float]:
    """The constants of a formula, in order."""
    numbers: list[float] = expression.values[expression.kinds == CONSTANT].view(np.float64).tolist()
    return numbers


def plain_numbers(expression: Expression) -> Expression:
    """The formula with its constants replaced by simple numbers close to them."""
    values, numbers = expression.values.copy(), [simple_number(number) for number in numbers_of(expression)]
    values[expression.kinds == CONSTANT] = np.array(numbers).view(np.uint64)
    return Expression(expression.kinds, values, expression.variables)
