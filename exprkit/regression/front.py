"""The front: of every size the formula of least loss, as long as more tokens lower it.

In: formulas with their losses.  Out: the Pareto front.

    >>> import exprkit as ek
    >>> from exprkit.regression.front import Front
    >>> front = Front(maxsize=10)
    >>> [front.offer(ek.parse(text)[0], loss) for text, loss in (("x1", 3.0), ("x1 + 1", 1.0), ("x1 * x2", 2.0))]
    [True, True, False]
    >>> [str(entry.expression) for entry in front.entries()]
    ['x1', 'x1 + 1']
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.text.tokens import CONSTANT


class Entry(NamedTuple):
    """A formula, its numbers standing in it as constants."""

    expression: Expression
    loss: float
    size: int


class Front:
    """Formulas of up to ``maxsize`` tokens, one of each size; of losses below ``floor`` the plainer numbers win."""

    def __init__(self, maxsize: int, floor: float = 0.0) -> None:
        self.maxsize, self.floor = maxsize, floor
        self._best: dict[int, Entry] = {}

    def offer(self, expression: Expression, loss: float) -> bool:
        """Take a formula in, if nothing of its size or less is as good; whether it was."""
        size = expression.n_tokens
        loss = max(float(loss), 0.0)
        if size > self.maxsize or not loss < float("inf"):
            return False
        if not self._is_better(size, loss) and not self._is_plainer(expression, loss):
            return False
        self._best[size] = Entry(expression, loss, size)
        for larger in [other for other in self._best if other > size]:
            if max(self._best[larger].loss, self.floor) >= max(loss, self.floor):
                del self._best[larger]
        return True

    def _is_better(self, size: int, loss: float) -> bool:
        at_most = [entry.loss for entry in self._best.values() if entry.size <= size]
        return max(loss, self.floor) < max(min(at_most, default=float("inf")), self.floor)

    def _is_plainer(self, expression: Expression, loss: float) -> bool:
        """Whether it is as good as the one of its size, and its numbers take fewer digits."""
        there = self._best.get(expression.n_tokens)
        as_good = there is not None and max(loss, self.floor) == max(there.loss, self.floor)
        return as_good and _digits(expression) < _digits(there.expression)  # type: ignore[union-attr]

    def entries(self) -> list[Entry]:
        """The smallest first."""
        return [self._best[size] for size in sorted(self._best)]

    def restore(self, entries: Iterable[Entry]) -> None:
        """Take in what ``entries`` gave, as it was."""
        self._best = {entry.size: entry for entry in entries}

    @property
    def least(self) -> float:
        """The least loss."""
        return min((entry.loss for entry in self._best.values()), default=float("inf"))


def _digits(expression: Expression) -> int:
    """That its numbers take."""
    numbers = expression.values[expression.kinds == CONSTANT].view(np.float64)
    return sum(len(repr(number)) for number in numbers.tolist())
