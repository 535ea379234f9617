"""The Pareto front: the best formula of each size, as long as more tokens lower the loss or save numbers.

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

from exprkit.expressions.expression import Expression
from exprkit.regression.formulas.numbers import numbers_of

# what the best of very many formulas gains by accident: data/results/laws.md, "Least expected error at other rows"
NATS_PER_NUMBER = 2.0
NATS_PER_TOKEN = 1.25
# Chosen, not measured.
MIN_GAIN = 1e-13  # share of a loss by which a longer formula must be better: more than rounding
MIN_SAVED = 1.0  # nats by which its description must be shorter, where its loss is no less
INEXACT = 2.0  # times the floor, the least loss that an inexact formula counts with


class Entry(NamedTuple):
    """A formula of the front; its numbers are constants."""

    expression: Expression
    loss: float
    size: int
    is_polished: bool = False  # whether simpler numbers were tried in it
    is_exact: bool = False  # whether its values equal y up to rounding at every row


class FrontView:
    """A front as stages read it: the best formula of each size up to ``maxsize`` tokens.

    ``floor`` is the loss of rounding errors, ``rows`` the number of observations.  A larger formula has less loss than
    each smaller one, or fewer numbers, which save more of a description than its tokens and its loss cost.
    """

    def __init__(self, maxsize: int, floor: float = 0.0, rows: float = 1.0) -> None:
        self.maxsize, self.floor, self.rows = maxsize, floor, rows
        self._best: dict[int, Entry] = {}

    def entries(self) -> list[Entry]:
        """The entries, smallest first."""
        return sorted(self._best.values(), key=lambda entry: entry.size)

    def by_nats(self) -> list[Entry]:
        """The entries by description length, the shortest first; of equal ones the smallest."""
        return sorted(self.entries(), key=self.nats)

    @property
    def min_loss(self) -> float:
        """The least loss of all entries, inf without any."""
        return min((entry.loss for entry in self._best.values()), default=float("inf"))

    @property
    def best(self) -> Entry:
        """The entry of least loss, of equal ones the smallest; there has to be one."""
        return min(self.entries(), key=self.counted_loss)

    def counted_loss(self, entry: Entry) -> float:
        """The loss that an entry is compared by, at least the floor."""
        return max(entry.loss, self.floor if entry.is_exact else INEXACT * self.floor)

    def nats(self, entry: Entry) -> float:
        """Description length in nats (J. Rissanen, Automatica 14, 1978), but for the tokens.

        ``rows / 2`` times the logarithm of the loss, and the lengths of the numbers: digits, at most as many as the
        rows determine.
        """
        loss = self.counted_loss(entry)
        if not loss > 0:
            return -math.inf
        most = 2 + 0.5 * math.log(max(self.rows, 2.0))  # nats, of a number as exact as the rows determine it
        return self.rows / 2 * math.log(loss) + sum(min(_cost(n), most) for n in numbers_of(entry.expression))

    def is_needed(self, new: Entry, smaller: Iterable[Entry], min_gain: float = MIN_GAIN) -> bool:
        """Whether a formula has less loss, or a shorter description, tokens included, than each smaller one."""
        loss = self.counted_loss(new) / (1 - min_gain)
        better = [entry for entry in smaller if not loss < self.counted_loss(entry)]
        if not better or any(entry.is_exact for entry in better):
            return not better
        limit = min(self.nats(entry) + NATS_PER_TOKEN * entry.size for entry in better)
        limit -= NATS_PER_TOKEN * new.size + MIN_SAVED
        if not new.loss < math.inf or self.rows / 2 * math.log(self.counted_loss(new) or 1e-300) >= limit:
            return False  # whatever its numbers
        return self.nats(new) < limit


class Front(FrontView):
    """A front that takes formulas.

    Of two formulas of one size the one of shorter description length stays (``nats``).  Losses below ``floor``
    are equal, but an exact formula is better than an inexact one: large values may be right where small ones are wrong.
    """

    def offer(self, expression: Expression, loss: float, is_exact: bool = False) -> bool:
        """Add a formula if none of its size or less is as good; returns whether it was added."""
        if not self.accepts(expression, loss, is_exact):
            return False
        new = _entry(expression, loss, is_exact)
        self._best[new.size] = new
        for larger in [size for size in self._best if size > new.size]:
            if not self.is_needed(self._best[larger], [new], 0.0):
                del self._best[larger]
        return True

    def accepts(self, expression: Expression, loss: float, is_exact: bool = False) -> bool:
        """Whether ``offer`` would add it."""
        new = _entry(expression, loss, is_exact)
        return new.size <= self.maxsize and new.loss < float("inf") and self._is_better(new)

    def _is_better(self, new: Entry) -> bool:
        """Whether it is needed beside shorter entries, and its description shorter than that of its size."""
        if not self.is_needed(new, [entry for entry in self._best.values() if entry.size < new.size]):
            return False
        current = self._best.get(new.size)
        if current is None:
            return True
        nats, current_nats = self.nats(new), self.nats(current)
        return nats < current_nats or (nats == current_nats and _digits(new.expression) < _digits(current.expression))

    def mark_polished(self, entry: Entry) -> None:
        """Note of an entry of the front that simpler numbers were tried in it."""
        if self._best.get(entry.size) == entry:
            self._best[entry.size] = entry._replace(is_polished=True)

    def restore(self, entries: Iterable[Entry]) -> None:
        """Replace all entries by those of ``entries()``."""
        self._best = {entry.size: entry for entry in entries}


def _entry(expression: Expression, loss: float, is_exact: bool) -> Entry:
    return Entry(expression, max(float(loss), 0.0), expression.n_tokens, is_exact=is_exact)


def _digits(expression: Expression) -> int:
    """Characters of its numbers."""
    return sum(len(repr(number)) for number in numbers_of(expression))


def _cost(number: float) -> float:
    """Length of a number in nats: the logarithm of its digits without zeros at the ends, and 1 for a decimal point."""
    digits = repr(abs(number)).partition("e")[0].replace(".", "").strip("0")
    return (math.log(float(digits)) if digits.isdigit() else 0.0) + (not float(number).is_integer())
