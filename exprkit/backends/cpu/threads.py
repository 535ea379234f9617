"""A thread pool whose workers share the work of a call, and spin 0.3 ms for the next one before they sleep.

In: a compiled loop that takes pieces of work.  Out: all pieces done.

    >>> import numpy as np
    >>> from exprkit.backends.cpu.threads import together
    >>> counter, done = np.zeros(1, np.int64), []
    >>> def work(most):
    ...     done.append(counter[0])
    ...     counter[0] += 1
    ...     return counter[0] < 3
    >>> together(1, 1, counter, work)
    >>> [int(k) for k in done]
    [0, 1, 2]

To wake a thread takes some 80 us, since each has to get Python's lock first, one after the other:
with 16 threads longer than many a call lasts.  So a thread that has helped stays in compiled code
and looks at its ``Board`` for the next call, for as long as that would take; calls that follow
each other closely, as those of a fit or of a benchmark do, begin at once.

What board and threads do, plainly::

    caller                                      thread
    write the call's numbers                    while, within PATIENCE, COUNTER < PIECES:
    COUNTER = 0                                     WORKING += 1
    take pieces until none is left                  take pieces until none is left
    COUNTER = DONE                                  WORKING -= 1
    wait until WORKING = 0

A piece is taken by adding one to COUNTER.  Who gets a number below PIECES reads numbers that
stay until it has left: the caller waits.  Who comes late gets DONE or more, and reads nothing.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from exprkit.runtime.intrinsics import atomic_add, atomic_load, atomic_store, pause
from exprkit.runtime.jit import compiled

DONE = 1 << 62  # more than there are pieces of work
PATIENCE = 3e-4  # seconds that a thread waits for the next call
_SPINS = 2000  # until the caller lets other programs go ahead

COUNTER, WORKING, PRESENT, PIECES = 0, 8, 16, 24  # a cache line each; the call's own numbers follow
NUMBERS = 25
_LINES = 8


class Board:
    """What the caller and its threads tell each other, and the threads that look at it.

    Parameters
    ----------
    serve : callable
        ``serve(address, looks)``: in a thread of its own, takes pieces of every call until it has looked at the
        board so often and there was none.
    """

    def __init__(self, serve: Callable[[int, int], None]) -> None:
        self.process = os.getpid()
        self._memory = np.zeros(8 * _LINES + 8, np.int64)
        start = -self._memory.ctypes.data % 64 // 8
        self.numbers = self._memory[start : start + 8 * _LINES]
        self.numbers[COUNTER] = DONE
        self.address = self.numbers.ctypes.data
        self._serve = serve
        self._held: Any = None  # the memory that the call's addresses are of

    def run(self, numbers: Sequence[int], pieces: int, threads: int, work: Callable[[], bool], held: Any) -> None:
        """Do all pieces: this thread by ``work()``, which takes some and says whether any are left, and others.

        A board whose call was interrupted is not to be used again: a thread may still work for that call.
        """
        self._held = held
        self.numbers[NUMBERS : NUMBERS + len(numbers)] = numbers
        self.numbers[PIECES] = pieces
        _open(self.address)
        try:
            with contextlib.suppress(RuntimeError):  # no more threads can be started, or Python ends: do with fewer
                for _ in range(threads - 1 - int(self.numbers[PRESENT])):
                    _pool(threads - 1).submit(self._help)
                    _count(self.address, 1)
            while work():
                pass  # here Python sees that the user wants to stop
        finally:
            self._close()
        self._held = None

    def _close(self) -> None:
        while not _closed(self.address):
            time.sleep(0)

    def _help(self) -> None:
        try:
            self._serve(self.address, _looks())
        finally:
            _count(self.address, -1)


@functools.cache
def _looks() -> int:
    """How often a thread looks at a board in ``PATIENCE``; a pause takes 10 to 50 ns."""
    board = np.zeros(PIECES + 1, np.int64)
    took = []
    for _ in range(5):
        start = time.perf_counter()
        wait(board.ctypes.data, 1000)
        took.append(time.perf_counter() - start)
    return int(1000 * PATIENCE / max(min(took), 1e-6))


@compiled
def wait(board, looks):
    """Look for a call with pieces left, so often at the most; whether there is one."""
    for _ in range(looks):
        if atomic_load(board) < atomic_load(board + 8 * PIECES):
            return True
        pause()
    return False


@compiled
def _open(board):
    atomic_store(board, 0)


@compiled
def _closed(board):
    """Give out no more pieces; whether, after a moment at the most, no other thread works any more."""
    atomic_store(board, DONE)
    for _ in range(_SPINS):
        if atomic_load(board + 8 * WORKING) == 0:
            return True
        pause()
    return False


@compiled
def _count(board, n):
    atomic_add(board + 8 * PRESENT, n)


def together(threads: int, at_once: int, counter: np.ndarray, work: Callable[[int], bool]) -> None:
    """Call ``work(most)``, which takes up to so many pieces off ``counter`` and says whether any are left.

    This thread works, and as many more as there are; for calls that last.
    """
    others: list[Future[bool]] = []
    try:
        with contextlib.suppress(RuntimeError):  # the system starts no more threads, or Python ends: do with fewer
            while len(others) < threads - 1:
                others.append(_pool(threads - 1).submit(work, DONE))
        while work(at_once):
            pass  # here Python sees that the user wants to stop
    finally:
        counter[0] = DONE
        for other in others:
            if not other.cancel():  # it has started
                other.result()


_pools: list[tuple[int, ThreadPoolExecutor]] = []  # how many threads, and the pool of them


def _pool(n: int) -> ThreadPoolExecutor:
    """The one pool, of the most threads that any call has asked for; those of a smaller one end when they are idle."""
    for most, pool in _pools:
        if most >= n:
            return pool
    pool = ThreadPoolExecutor(n, thread_name_prefix="exprkit")
    _pools[:] = [(n, pool)]
    return pool


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)  # threads do not survive a fork
