"""What expressions are compared with, checked once: a target and weights that are asked for again and again.

In: ``y`` and weights as the user gave them, and as an engine takes them.  Out: ``LossTarget``, which says whether
others are the same, and ``RepeatedLoss``, a call that is made again with few looks.

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

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

MOST_KEPT = 1 << 20  # bytes of a host's array whose numbers are kept to compare with: checking larger ones is as cheap


class KnownArrays(NamedTuple):
    """Arrays as a user gave them: to see with little work that others are the same ones."""

    given: tuple[Any, ...]
    numbers: tuple[bytes | None, ...]  # what they were; None of a device's, which are read where they lie

    @classmethod
    def of(cls, given: Iterable[tuple[Any, bool]]) -> KnownArrays | None:
        """Each with whether it is read just there; None where one would have to be looked at anew."""
        arrays, numbers = [], []
        for array, is_read_there in given:
            on_host = isinstance(array, np.ndarray)
            if array is not None and not (is_read_there or (type(array) is np.ndarray and array.nbytes <= MOST_KEPT)):
                return None
            arrays.append(array)
            numbers.append(array.tobytes() if on_host else None)
        return cls(tuple(arrays), tuple(numbers))

    def are(self, *arrays: Any) -> bool:
        """Whether these are the same arrays with the same numbers; of a device's, the same arrays."""
        for array, given, was in zip(arrays, self.given, self.numbers, strict=True):
            if array is not given or (was is not None and array.tobytes() != was):
                return False
        return True


class LossTarget(NamedTuple):
    """A target and weights."""

    y: Any  # as the user gave them
    weights: Any
    known: KnownArrays | None  # the two; None: to be looked at anew
    target: Any  # as engines take them
    w: Any
    is_complete: bool | None  # no number of the target is missing; None: it lies on a device, which was not asked

    @classmethod
    def of(cls, y: Any, weights: Any, target: Any, w: Any, frozen: bool = False) -> LossTarget:
        """Of arrays that have been checked; ``frozen``: those of the host's in memory that nobody writes to."""
        known = KnownArrays.of((given, _is_there(given, taken)) for given, taken in ((y, target), (weights, w)))
        if known is not None and frozen:
            target, w = _frozen(target), _frozen(w)
        complete = not bool(np.isnan(target).any()) if isinstance(target, np.ndarray) else None
        return cls(y, weights, known, target, w, complete)

    @staticmethod
    def has(goal: LossTarget | None, y: Any, weights: Any) -> tuple[bool, bool]:
        """Whether they are the arrays of a goal; their numbers may have changed."""
        return (False, False) if goal is None else (y is goal.y, weights is goal.weights)

    def is_of(self, y: Any, weights: Any) -> bool:
        """Whether these are the same arrays with the same numbers; of a device's, the same arrays."""
        return self.known is not None and self.known.are(y, weights)


class Asked(NamedTuple):
    """What makes a loss, but for parameters: to see with little work that the same is asked for."""

    kind: str  # its name, or a text
    link: str | None
    columns: tuple[str, ...] | None  # what a text's columns are called
    arrays: KnownArrays  # y, weights and these columns

    def is_that(self, y: Any, kind: Any, weights: Any, columns: Any, link: Any) -> bool:
        if type(kind) is not str or kind != self.kind or link is not self.link:
            return False
        if columns is None or self.columns is None:
            return columns is self.columns and self.arrays.are(y, weights)
        is_named = type(columns) is dict and tuple(columns) == self.columns
        return is_named and self.arrays.are(y, weights, *columns.values())


class RepeatedLoss:
    """A loss that is asked for again: with few looks where nothing but numbers and memory are others.

    Parameters
    ----------
    asked : Asked
    sums : function
        Makes the sums of parameters, memory or None, and the losses' shape; None where it can't (``Engine.again``).
    finish : function
        Makes the losses of new sums.
    like : (type, dtype, shape)
        Of parameters as they are asked for.
    shape : tuple of int
        Of the losses.
    stored : bool
        Whether they are stored where the caller wants them, on the device.
    """

    __slots__ = ("_asked", "_finish", "_flag", "_like", "_losses", "_out", "_sums")

    def __init__(
        self,
        asked: Asked,
        sums: Callable[..., Any],
        finish: Callable[[Any], Any],
        like: tuple[Any, ...],
        shape: tuple[int, ...],
        stored: bool,
    ) -> None:
        self._asked, self._sums, self._finish, self._out = asked, sums, finish, stored
        self._like, self._losses = like, (like[0], np.dtype(np.float64), shape)
        self._flag = "carray" if issubclass(like[0], np.ndarray) else "c_contiguous"

    def __call__(self, params: Any, y: Any, kind: Any, weights: Any, out: Any, columns: Any, link: Any) -> Any | None:
        """The losses; None where something else is asked for, or what is asked for has to be looked at."""
        if (out is not None) != self._out or not self._is_like(params, self._like):
            return None
        if not self._asked.is_that(y, kind, weights, columns, link):
            return None
        if out is not None and not self._is_like(out, self._losses):
            return None
        sums = self._sums(params, out, self._losses[-1])
        return sums if sums is None or out is not None else self._finish(sums)

    def _is_like(self, array: Any, like: tuple[Any, ...]) -> bool:
        """Whether it is an array as an engine takes one."""
        kind, dtype, shape = like
        is_like = type(array) is kind and array.dtype == dtype and array.shape == shape
        return is_like and getattr(array.flags, self._flag)


def _is_there(given: Any, taken: Any) -> bool:
    """Whether an array lies on a device as it is taken."""
    return given is taken and not isinstance(given, np.ndarray)


def _frozen(array: Any) -> Any:
    """A copy of an array of the host's that can't be written to: who has it need not look whether it is the same."""
    if not isinstance(array, np.ndarray):
        return array
    own = array.copy()
    own.flags.writeable = False
    return own
