"""The Pareto front: the formula of least loss per size, as long as more tokens lower the loss.

In: formulas with their losses.  Out: the Pareto front.

    >>> import exprkit as ek
    >>> from exprkit.regression.formulas.front import Front
    >>> front = Front(maxsize=10)
    >>> [front.offer(ek.parse(text)[0], loss) for text, loss in (("x1", 3.0), ("x1 + 1", 1.0), ("x1 * x2", 2.0))]
    [True, True, False]
    >>> [str(entry.expression) for entry in front.entries()]
    ['x1', 'x1 + 1']
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.text.tokens import CONSTANT

ROUNDING = 1e-13  # share of a loss by which a longer formula has to be better at least
INEXACT = 2.0  # times the floor is the least that an inexact formula's loss counts as


class Entry(NamedTuple):
    """A formula, its numbers standing in it as constants."""

    expression: Expression
    loss: float
    size: int
    is_polished: bool = False  # whether simpler numbers have been tried in it
    is_exact: bool = False  # whether it is y but for rounding at every row


class Front:
    """Formulas of up to ``maxsize`` tokens, one of each size.

    Of two formulas of a size the one wins that takes fewer nats together with its numbers: ``rows / 2`` times the
    logarithm of its loss, and what its numbers take to be written.  Losses below ``floor`` count as equal, but that of
    a formula that is exact is the smaller one: of a sum over the rows large values may be all, and small ones wrong.
    """

    def __init__(self, maxsize: int, floor: float = 0.0, rows: float = 0.0) -> None:
        self.maxsize, self.floor, self.rows = maxsize, floor, rows
        self._best: dict[int, Entry] = {}

    def offer(self, expression: Expression, loss: float, is_exact: bool = False) -> bool:
        """Take a formula in, if nothing of its size or less is as good; whether it was."""
        if not self.accepts(expression, loss, is_exact):
            return False
        new = _entry(expression, loss, is_exact)
        self._best[new.size] = new
        for larger in [other for other in self._best if other > new.size]:
            if self.counted_loss(self._best[larger]) >= self.counted_loss(new):
                del self._best[larger]
        return True

    def accepts(self, expression: Expression, loss: float, is_exact: bool = False) -> bool:
        """Whether ``offer`` would take it in."""
        new = _entry(expression, loss, is_exact)
        return new.size <= self.maxsize and new.loss < float("inf") and self._is_better(new)

    def counted_loss(self, entry: Entry) -> float:
        """The loss that it counts with."""
        return max(entry.loss, self.floor if entry.is_exact else INEXACT * self.floor)

    def _is_better(self, new: Entry) -> bool:
        """Whether it is better than what is smaller, and takes fewer nats than the one of its size."""
        smaller = [self.counted_loss(entry) for entry in self._best.values() if entry.size < new.size]
        if not self.counted_loss(new) < min(smaller, default=float("inf")) * (1 - ROUNDING):
            return False
        there = self._best.get(new.size)
        if there is None:
            return True
        nats, before = self.nats(new), self.nats(there)
        return nats < before or (nats == before and _digits(new.expression) < _digits(there.expression))

    def nats(self, entry: Entry) -> float:
        """``rows / 2`` times the logarithm of its loss, and what its numbers take to be written."""
        loss = self.counted_loss(entry)
        if not loss > 0:
            return -math.inf
        if not self.rows:
            return math.log(loss)
        most = 2 + 0.5 * math.log(max(self.rows, 2.0))  # of a number that is as exact as so many rows make it
        return self.rows / 2 * math.log(loss) + sum(min(_cost(n), most) for n in _numbers(entry.expression))

    def mark_polished(self, entry: Entry) -> None:
        """Say of a formula that is there that simpler numbers have been tried in it."""
        if self._best.get(entry.size) == entry:
            self._best[entry.size] = entry._replace(is_polished=True)

    def entries(self) -> list[Entry]:
        """The smallest first."""
        return sorted(self._best.values(), key=lambda entry: entry.size)

    def copy(self) -> Front:
        """The same, whatever becomes of this one."""
        other = Front(self.maxsize, self.floor, self.rows)
        other.restore(self.entries())
        return other

    def restore(self, entries: Iterable[Entry]) -> None:
        """Take in what ``entries`` gave, as it was."""
        self._best = {entry.size: entry for entry in entries}

    def by_nats(self) -> list[Entry]:
        """The formula first that takes the fewest nats; of equal ones the smallest."""
        return sorted(self.entries(), key=self.nats)

    @property
    def min_loss(self) -> float:
        """The least loss."""
        return min((entry.loss for entry in self._best.values()), default=float("inf"))


def _entry(expression: Expression, loss: float, is_exact: bool) -> Entry:
    return Entry(expression, max(float(loss), 0.0), expression.n_tokens, is_exact=is_exact)


def _digits(expression: Expression) -> int:
    """That its numbers take."""
    return sum(len(repr(number)) for number in _numbers(expression))


def _numbers(expression: Expression) -> list[float]:
    numbers: list[float] = expression.values[expression.kinds == CONSTANT].view(np.float64).tolist()
    return numbers


def _cost(number: float) -> float:
    """In nats: of the digits but for zeros at the ends, and one for a point."""
    digits = repr(abs(number)).partition("e")[0].replace(".", "").strip("0")
    return (math.log(float(digits)) if digits.isdigit() else 0.0) + (not float(number).is_integer())
