"""Coincidences: a formula may equal y at every row because it holds as much information as the rows do.

In: ``Rows``, and a formula that is exact at its rows.  Out: whether the data hold more bits than the formula does.

    >>> import exprkit as ek, numpy as np
    >>> from exprkit.regression.rules.accident import CoincidenceTest
    >>> from exprkit.regression.problem.rows import Rows
    >>> X = np.arange(20.0)[:, None]
    >>> numbers, labels = CoincidenceTest(Rows(X, np.sqrt(X[:, 0]))), CoincidenceTest(Rows(X, X[:, 0] % 7 > 3))
    >>> formula = ek.parse("tanh(4e22 * exp(30 * sin(0.7318 * x1)))")[0]
    >>> [round(data.bits) for data in (numbers, labels)], numbers.exceeds(formula), labels.exceeds(formula)
    ([508, 18], True, False)

The data hold the different values of y, and which row has which (the logarithm of a multinomial coefficient): of labels
0 and 1 a bit a row.  A formula holds its tokens and the digits of its numbers, as in minimum description length
(J. Rissanen, Automatica 14, 1978).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.regression.formulas.numbers import MAX_DENOMINATOR, MAX_NUMERATOR
from exprkit.regression.formulas.parameters import is_fraction, n_inexact
from exprkit.regression.problem.rows import MAX_ERROR, MEDIAN_ERROR, Rows
from exprkit.text.tokens import CONSTANT, VARIABLE

MIN_SPARE_ROWS = 2  # rows more than numbers of a formula; chosen, not measured
TOKEN_BITS = 4.0  # bits: one of some sixteen operators and kinds of leaves
MAX_COARSE_BITS = 16.0  # bits a row, below which y is labels, whole numbers or decimals of four digits
MAX_VALUES = 1_000  # values of y that are counted: more bits than any formula holds


class CoincidenceTest:
    """Test of an exact formula for coincidence, by the information in y.

    ``bits`` is that of all rows, ``max_bits`` that of one value of y, and so of a number that the rows determine.
    ``least_error`` is the share of y's variance below which errors of coarse y (labels, whole numbers) say nothing.
    """

    def __init__(self, rows: Rows) -> None:
        self.n_rows, self._bits_of_variable = len(rows), math.log2(max(rows.X.shape[1], 1))
        self.max_bits = -math.log2(max(math.sqrt(MAX_ERROR * MEDIAN_ERROR), rows.coarseness))
        values, counts = np.unique(rows.y, return_counts=True)
        orders = math.lgamma(counts.sum() + 1) - sum(map(math.lgamma, counts + 1.0)) - math.lgamma(len(counts) + 1)
        self.bits = orders / math.log(2) + sum(_bits(value, self.max_bits) for value in values[:MAX_VALUES].tolist())
        if len(values) < 2:
            self.bits = math.inf  # a constant y is no coincidence
        bits_a_row = self.bits / max(self.n_rows, 1)
        self.least_error = 4.0**-bits_a_row if bits_a_row < MAX_COARSE_BITS else 0.0

    def exceeds(self, formula: Expression) -> bool:
        """Whether the data hold more bits than a formula's tokens, variables and digits of numbers."""
        numbers = formula.values[formula.kinds == CONSTANT].view(np.float64).tolist()
        bits = TOKEN_BITS * formula.n_tokens + self._bits_of_variable * int((formula.kinds == VARIABLE).sum())
        bits += sum(_bits(number, self.max_bits) for number in numbers)
        return bool(bits < self.bits and n_inexact(formula) + MIN_SPARE_ROWS <= self.n_rows)


def _bits(number: float, most: float) -> float:
    """Bits of a number as a decimal or a simple fraction, with its sign, ``most`` at most."""
    if not math.isfinite(number):
        return most
    if is_fraction(number):
        most = min(most, math.log2(MAX_DENOMINATOR * MAX_NUMERATOR) + 1)
    exact = Fraction(repr(number))
    return min(most, math.log2(max(abs(exact.numerator), 1) * exact.denominator) + 1)
