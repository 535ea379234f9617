"""What expressions are compared with, checked once: a target and weights that are asked for again and again.

In: ``y`` and weights as the user gave them, and as an engine takes them.  Out: ``LossTarget``, which says whether
others are the same.

    >>> import numpy as np
    >>> from exprkit.evaluate.loss_target import LossTarget
    >>> y = np.arange(3.0)
    >>> goal = LossTarget.of(y, None, y, None)
    >>> goal.is_of(y, None)
    True
    >>> y[0] = 5
    >>> goal.is_of(y, None)
    False
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

MOST_KEPT = 1 << 20  # bytes of a host's array whose numbers are kept to compare with: checking larger ones is as cheap


class LossTarget(NamedTuple):
    """A target and weights."""

    y: Any  # as the user gave them
    weights: Any
    numbers: tuple[bytes | None, bytes | None] | None  # what they were; None of a device's; None: to be looked at anew
    target: Any  # as engines take them
    w: Any
    is_complete: bool | None  # no number of the target is missing; None: it lies on a device, which was not asked

    @classmethod
    def of(cls, y: Any, weights: Any, target: Any, w: Any, frozen: bool = False) -> LossTarget:
        """Of arrays that have been checked; ``frozen``: those of the host's in memory that nobody writes to."""
        numbers = None
        if _can_be_known(y, target) and (weights is None or _can_be_known(weights, w)):
            numbers = _bytes_of(y), _bytes_of(weights)
            if frozen:
                target, w = _frozen(target), _frozen(w)
        complete = not bool(np.isnan(target).any()) if isinstance(target, np.ndarray) else None
        return cls(y, weights, numbers, target, w, complete)

    @staticmethod
    def has(goal: LossTarget | None, y: Any, weights: Any) -> tuple[bool, bool]:
        """Whether they are the arrays of a goal; their numbers may have changed."""
        return (False, False) if goal is None else (y is goal.y, weights is goal.weights)

    def is_of(self, y: Any, weights: Any) -> bool:
        """Whether these are the same arrays with the same numbers; of a device's, the same arrays."""
        if y is not self.y or weights is not self.weights or self.numbers is None:
            return False
        was_y, was_weights = self.numbers
        return (was_y is None or y.tobytes() == was_y) and (was_weights is None or weights.tobytes() == was_weights)


def _can_be_known(given: Any, taken: Any) -> bool:
    """Whether it is a small array of NumPy's, whose numbers can be looked at, or lies on a device as it is taken."""
    if isinstance(given, np.ndarray):
        return type(given) is np.ndarray and given.nbytes <= MOST_KEPT
    return given is taken


def _bytes_of(array: Any) -> bytes | None:
    return array.tobytes() if isinstance(array, np.ndarray) else None


def _frozen(array: Any) -> Any:
    """A copy of an array of the host's that can't be written to: who has it need not look whether it is the same."""
    if not isinstance(array, np.ndarray):
        return array
    own = array.copy()
    own.flags.writeable = False
    return own
