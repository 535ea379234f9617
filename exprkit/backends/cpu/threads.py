"""A thread pool whose workers share the tasks of a call, and spin 0.3 ms for the next one before they sleep.

In: compiled loops that take tasks off a ``WorkQueue``.  Out: all tasks done.

    >>> import numpy as np
    >>> from exprkit.backends.cpu.threads import WorkQueue
    >>> from exprkit.runtime.intrinsics import take
    >>> queue, tasks = WorkQueue(np.dtype([("first", np.int64)]), serve=None), []
    >>> def work():
    ...     tasks.append(take(queue.address))
    ...     return tasks[-1] < 2
    >>> queue.run((0,), n_tasks=3, threads=1, work=work)
    >>> tasks
    [0, 1, 2]

To wake a thread takes some 80 us, since each has to get Python's lock first, one after the other:
with 16 threads longer than many a call lasts.  So a thread that has helped stays in compiled code
and polls its queue for the next call, for as long as that would take; calls that follow
each other closely, as those of a fit or of a benchmark do, begin at once.

What the caller and a worker do, plainly::

    caller                                      worker
    write the call's arguments                  while, within SPIN_SECONDS, COUNTER < N_TASKS:
    COUNTER = 0                                     WORKING += 1
    take tasks until none is left                   take tasks until none is left
    COUNTER = DONE, or STOPPED                      WORKING -= 1
    wait until WORKING = 0

A task is taken by adding one to COUNTER.  Who gets a number below N_TASKS reads arguments that
stay until it has left: the caller waits.  Who comes late gets DONE or more, and reads nothing.
A call that is interrupted leaves STOPPED there, and who has a long task looks for it between pieces of its work.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from exprkit.runtime import slices
from exprkit.runtime.intrinsics import atomic_add, atomic_load, atomic_store, pause, take
from exprkit.runtime.jit import compiled, inline
from exprkit.runtime.progress import look

DONE = 1 << 61  # more than there are tasks
STOPPED = 1 << 62  # more than DONE, whoever has taken a task since
SPIN_SECONDS = 3e-4  # that a worker polls for the next call: some three times what it takes to wake one
CALLER_SPINS = 2000  # until the caller, whose tasks are done, lets other programs go ahead: about 50 us

COUNTER, WORKING, PRESENT, N_TASKS = 0, 64, 128, 192  # bytes from the queue's address: a cache line each
HEADER = np.dtype(
    {
        "names": ["counter", "working", "present", "n_tasks"],
        "formats": [np.int64] * 4,
        "offsets": [COUNTER, WORKING, PRESENT, N_TASKS],
        "itemsize": 256,
    }
)


class WorkQueue:
    """A call's tasks and arguments (``call``, of a structured dtype), and the workers that poll for them.

    ``serve(queue, spins)``, in a thread of its own, takes tasks of every call until it has polled the queue so often
    and there was none.
    """

    def __init__(self, arguments: np.dtype, serve: Callable[[WorkQueue, int], None]) -> None:
        self.process = os.getpid()
        self._memory = np.zeros(HEADER.itemsize + 64, np.uint8)
        start = -self._memory.ctypes.data % 64
        self.header = self._memory[start : start + HEADER.itemsize].view(HEADER)
        self.header["counter"] = DONE
        self.address = self.header.ctypes.data
        self.call = np.zeros(1, arguments)
        self._serve = serve
        self._owners: Any = None  # of the memory that the arguments are addresses of

    def run(
        self, arguments: tuple[Any, ...], n_tasks: int, threads: int, work: Callable[[], bool], owners: Any = None
    ) -> None:
        """Do all tasks: this thread by ``work()``, which takes some and says whether any are left, and others.

        A queue whose call was interrupted is not to be used again: a worker may still be at that call.
        """
        self._owners, end = owners, DONE
        self.call[0] = arguments
        self.header["n_tasks"] = n_tasks
        _open(self.address)
        try:
            with contextlib.suppress(RuntimeError):  # no more threads can be started, or Python ends: do with fewer
                for _ in range(threads - 1 - int(self.header["present"][0])):
                    slices.pool().submit(self._help)
                    _count(self.address, 1)
            while work():
                look()  # here Python sees that the user wants to stop
        except BaseException:
            end = STOPPED
            raise
        finally:
            while not _closed(self.address, end):
                time.sleep(0)
        self._owners = None

    def _help(self) -> None:
        try:
            self._serve(self, _spins())
        finally:
            _count(self.address, -1)


@functools.cache
def _spins() -> int:
    """The number of polls of a queue in ``SPIN_SECONDS``; a pause takes 10 to 50 ns."""
    empty = np.zeros(1, HEADER)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        wait(empty.ctypes.data, 1000)
        seconds.append(time.perf_counter() - start)
    return int(1000 * SPIN_SECONDS / max(min(seconds), 1e-6))


@compiled
def wait(queue, spins):
    """Poll for a call with tasks left, so often at the most; whether there is one."""
    for _ in range(spins):
        if atomic_load(queue) < atomic_load(queue + N_TASKS):
            return True
        pause()
    return False


@compiled
def enter(queue):
    """A worker begins with a call."""
    atomic_add(queue + WORKING, 1)


@compiled
def leave(queue):
    atomic_add(queue + WORKING, -1)


@compiled
def next_task(queue):
    """The number of a task that nobody else has; -1: none is left."""
    k = take(queue)
    return k if k < atomic_load(queue + N_TASKS) else -1


@compiled
def _open(queue):
    atomic_store(queue, 0)


@inline
def is_stopped(queue):
    """Whether the call was interrupted, so that nobody wants what is left of it."""
    return atomic_load(queue) >= STOPPED


@compiled
def _closed(queue, end):
    """Give out no more tasks; whether, after a moment at the most, no worker is at the call any more."""
    atomic_store(queue, end)
    for _ in range(CALLER_SPINS):
        if atomic_load(queue + WORKING) == 0:
            return True
        pause()
    return False


@compiled
def _count(queue, n):
    atomic_add(queue + PRESENT, n)
