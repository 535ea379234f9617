"""Accidents: a formula is y at every row because it is y, or because it holds as much as the rows tell.

In: a ``Sample``, and a formula that is exact at its rows.  Out: whether the rows tell more bits than the formula takes.

    >>> import exprkit as ek, numpy as np
    >>> from exprkit.regression.rules.accident import Evidence
    >>> from exprkit.regression.problem.sample import Sample
    >>> X = np.arange(20.0)[:, None]
    >>> told, labels = Evidence(Sample(X, np.sqrt(X[:, 0]))), Evidence(Sample(X, X[:, 0] % 7 > 3))
    >>> formula = ek.parse("tanh(4e22 * exp(30 * sin(0.7318 * x1)))")[0]
    >>> [round(one.bits) for one in (told, labels)], told.exceeds(formula), labels.exceeds(formula)
    ([508, 18], True, False)

The rows tell the different values of y, and which row has which: of labels 0 and 1 a bit a row.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.regression.formulas.numbers import DENOMINATORS, LARGEST_NUMERATOR
from exprkit.regression.formulas.parameters import is_fraction, n_inexact
from exprkit.regression.problem.sample import EXACT, USUALLY, Sample
from exprkit.text.tokens import CONSTANT, VARIABLE

SPARE = 2  # rows more than numbers at least
TOKEN = 4.0  # bits: one of some sixteen operators and kinds of leaves
FEW = 16.0  # bits of a row: whole numbers and decimals of four digits have less
MOST_VALUES = 1_000  # of y that are looked at: more than any formula takes


class Evidence:
    """What the rows of a sample tell.

    Attributes
    ----------
    bits : float
    most : float
        Of a value of y, and so of a number that the rows determine.
    least_error : float
        Share of y's variance that errors of labels and of whole numbers tell something down to; 0 of other numbers.
    """

    def __init__(self, sample: Sample) -> None:
        self.n_rows, self._of_variable = len(sample), math.log2(max(sample.X.shape[1], 1))
        self.most = -math.log2(max(math.sqrt(EXACT * USUALLY), sample.coarseness))
        values, counts = np.unique(sample.y, return_counts=True)
        orders = math.lgamma(counts.sum() + 1) - sum(map(math.lgamma, counts + 1.0)) - math.lgamma(len(counts) + 1)
        self.bits = orders / math.log(2) + sum(_bits(one, self.most) for one in values[:MOST_VALUES].tolist())
        if len(values) < 2:
            self.bits = math.inf  # all is told
        a_row = self.bits / max(self.n_rows, 1)
        self.least_error = 4.0**-a_row if a_row < FEW else 0.0

    def exceeds(self, formula: Expression) -> bool:
        """Whether they tell more than a formula takes: by a token, a variable and the digits of a number each."""
        numbers = formula.values[formula.kinds == CONSTANT].view(np.float64).tolist()
        bits = TOKEN * formula.n_tokens + self._of_variable * int((formula.kinds == VARIABLE).sum())
        bits += sum(_bits(one, self.most) for one in numbers)
        return bool(bits < self.bits and n_inexact(formula) + SPARE <= self.n_rows)


def _bits(number: float, most: float) -> float:
    """Of a number as a decimal or a simple fraction, with its sign."""
    if not math.isfinite(number):
        return most
    if is_fraction(number):
        most = min(most, math.log2(DENOMINATORS * LARGEST_NUMERATOR) + 1)
    exact = Fraction(repr(number))
    return min(most, math.log2(max(abs(exact.numerator), 1) * exact.denominator) + 1)
