"""Memory for arrays that are made again and again: taken once more when nobody has the last ones any longer.

In: how many numbers.  Out: an array.  Fresh memory costs more than filling it, and arrays of one generation are of
about the size of the next one's.

    >>> import numpy as np
    >>> from exprkit.runtime.recycled import Recycled
    >>> memory = Recycled()
    >>> first, second = memory.empty(1000, np.int32), memory.empty(1000, np.int32)
    >>> place = first.ctypes.data
    >>> del first
    >>> memory.empty(990, np.int32).ctypes.data == place
    True
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

SPARE = 8  # room for a population that is longer by one part in so many


class Recycled:
    """Stretches of memory, each for one array at a time; of one thread."""

    def __init__(self) -> None:
        self._rooms: list[np.ndarray] = []

    def empty(self, n: int, dtype: Any) -> np.ndarray:
        """An array that is not yet written, in the smallest stretch that nobody uses and that is long enough."""
        dtype = np.dtype(dtype)
        n_bytes = n * dtype.itemsize
        free = [k for k in range(len(self._rooms)) if self._is_free(k)]
        fitting = min(
            (k for k in free if self._rooms[k].nbytes >= n_bytes), key=lambda k: self._rooms[k].nbytes, default=None
        )
        if fitting is None:
            if free:  # too short now: it makes way for a longer one
                del self._rooms[max(free, key=lambda k: self._rooms[k].nbytes)]
            self._rooms.append(np.empty(n_bytes + n_bytes // SPARE, np.uint8))
            fitting = len(self._rooms) - 1
        return self._rooms[fitting][:n_bytes].view(dtype)

    def _is_free(self, k: int) -> bool:
        """Whether no array lies there: one holds a reference to the memory that it is part of."""
        return sys.getrefcount(self._rooms[k]) == UNUSED


def _references_alone() -> int:
    rooms = [np.empty(1, np.uint8)]
    return sys.getrefcount(rooms[0])


UNUSED = _references_alone()  # of the list, and of the question


def fresh(n: int, dtype: Any) -> np.ndarray:
    """The same in memory of its own."""
    return np.empty(n, dtype)
