"""Numbers of formulas rounded to simple ones: fractions, fractions of pi, short decimals.

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

CLOSE = 1e-10  # share of a number within which it is taken for a simple one
DENOMINATORS = 12
LARGEST_NUMERATOR = 100
DIGITS = 6  # of a short decimal
KNOWN = 1 << 14  # numbers and trees whose short forms are kept: formulas that are looked at have much in common


@functools.lru_cache(maxsize=KNOWN)
def simple_number(number: float, close: float = CLOSE) -> float:
    """The simplest fraction, fraction of pi or short decimal that a number is close to; else the number."""
    if not math.isfinite(number) or number == 0:
        return number
    if (fraction := simple_fraction(number, close)) is not None:
        return fraction
    for digits in range(1, DIGITS + 1):
        short = float(f"{number:.{digits}g}")
        if abs(short - number) <= close * abs(number):
            return short
    return number


@functools.lru_cache(maxsize=KNOWN)
def simple_fraction(number: float, close: float = CLOSE) -> float | None:
    """The simplest fraction, or fraction of pi, that a number other than 0 is close to, if there is one."""
    for unit in (1.0, math.pi):
        for denominator in range(1, DENOMINATORS + 1):
            numerator = round(number / unit * denominator)
            simple = unit * numerator / denominator
            if 0 < abs(numerator) <= LARGEST_NUMERATOR and abs(simple - number) <= close * abs(number):
                return simple
    return None


def plain_numbers(expression: Expression, close: float = CLOSE) -> Expression:
    """The formula, with simple numbers where they are close."""
    values = expression.values.copy()
    constants = expression.kinds == CONSTANT
    numbers = [simple_number(number, close) for number in values[constants].view(np.float64).tolist()]
    values[constants] = np.array(numbers).view(np.uint64)
    return Expression(expression.kinds, values, expression.variables)
