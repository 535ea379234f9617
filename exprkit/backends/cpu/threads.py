"""The threads that run the tasks of compiled loops, and how a call gets them: without Python's lock.

In: a compiled loop that takes tasks off a ``WorkQueue``, and what it reads.  Out: all tasks done.

    >>> from typing import NamedTuple
    >>> import numpy as np
    >>> from exprkit.backends.cpu.threads import WorkQueue, next_task, task_loop
    >>> class Squares(NamedTuple):
    ...     of: np.ndarray
    >>> @task_loop
    ... def square(squares, scratch, queue, me, most):
    ...     k = next_task(queue, me)
    ...     while k >= 0:
    ...         squares.of[k] = k * k
    ...         k = next_task(queue, me)
    ...     return 0
    >>> squares = Squares(np.zeros(4))
    >>> WorkQueue(square, squares, 2 * [squares], np.dtype([("none", np.int64)])).run((0,), 4, threads=2)
    >>> squares.of.tolist()
    [0.0, 1.0, 4.0, 9.0]

A worker is started by Python and then stays in compiled code: to wake 15 by way of Python, whose lock they need one
after the other, takes 320 to 500 us, by a lock of each, which needs nothing of Python, 35 to 230 (16 cores, medians by
how long they slept).  Its state is one number, changed by compare and exchange: IDLE (it polls), ASLEEP (it waits for
its lock), a queue that asks it to take part, or BUSY.  What happens in a call, plainly::

    caller                                            worker
    write the arguments, share out the tasks          poll, for SPIN_SECONDS, then sleep, until a queue asks
    ask those who are IDLE, and wake some             if the queue still wants it:
    do tasks: own ones, then what others have left        do tasks: own ones, then what others have left
    take back what nobody has followed                    give back its number in the queue
    wait for those at work

Who takes part has a number in the queue, the same one in call after call where the calls are alike, and a share of
the tasks, so that what it reads and writes stays in the caches of its core; who is done helps the others.
A call that is interrupted leaves no task, and who has a long one looks for that between pieces of its work.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import _thread
import contextlib
import ctypes
import functools
import os
import threading
import time
from typing import Any

import numpy as np
from numba import types

from exprkit.runtime.borrowed import stored
from exprkit.runtime.intrinsics import atomic_add, atomic_load, atomic_store, call, call_whole, exchange, pause
from exprkit.runtime.jit import compiled, inline
from exprkit.runtime.progress import look

SPIN_SECONDS = 3e-4  # that a worker polls before it sleeps: 15 that poll follow in 3 us, asleep in 35 to 230 (16 cores)
CALLER_SPINS = 2000  # until the caller, whose tasks are done, lets other programs go ahead: about 50 us
MOST_THREADS = 256  # of a call, this one with them
DONE = 1 << 61  # more than there are tasks

IDLE, ASLEEP, BUSY = range(3)  # states of a worker; or the address of a queue that asks it, and above it its number
NUMBER_BITS = 48  # addresses have fewer
LINE = 128  # bytes from worker to worker, and from share to share: a pair of cache lines
LOCK = 8  # bytes: where the lock of a worker is
RELEASE, ACQUIRE = 8, 16  # of the crew, which begins with the number of its workers
FUNCTION, PROGRAMS, SCRATCH, SCRATCH_BYTES, SHARES, THREADS, WAKES, PIECE, STOPPED = range(0, 72, 8)  # of a queue
CALL = 128  # where its arguments begin
END, TAKEN = 8, 16  # of a share, which begins with its next task; whether somebody has its number
FINISHED, MORE, LEAVING = range(3)

task_loop = functools.partial(compiled, no_cfunc_wrapper=False, no_cpython_wrapper=True)


class WorkQueue:
    """Calls of ``loop(programs, scratch, queue, me, most)``, for which each thread has a scratch of its own.

    The loop takes tasks by ``next_task(queue, me)``, up to ``most`` if it likes, and says whether it has any left.
    """

    def __init__(self, loop: Any, programs: Any, scratches: list[Any], arguments: np.dtype) -> None:
        self.threads, self._programs, self._scratches = len(scratches), _in_memory([programs]), _in_memory(scratches)
        self._keeps = programs, scratches
        shares = CALL + -(-arguments.itemsize // LINE) * LINE
        self._memory = np.zeros(shares + LINE * (self.threads + 1), np.uint8)
        start = -self._memory.ctypes.data % LINE
        self.address = self._memory.ctypes.data + start
        self._call = self._memory[start + CALL :][: arguments.itemsize].view(arguments)
        self._memory[start:][:CALL].view(np.int64)[: THREADS // 8] = (
            _address(loop, programs, scratches[0]),
            self._programs.ctypes.data,
            self._scratches.ctypes.data,
            self._scratches.shape[1],
            self.address + shares,
        )

    def run(
        self,
        arguments: tuple[Any, ...],
        n_tasks: int,
        threads: int,
        wakes: int = MOST_THREADS,
        piece: int = DONE,
        owners: Any = None,
    ) -> None:
        """Do all tasks, by this thread and others, of which ``wakes`` may sleep; ``piece`` of them between two looks.

        ``owners`` hold the memory that the arguments are addresses of.  A queue whose call was interrupted is not to
        be used again: a worker may still be at that call.
        """
        workers = crew().with_workers(threads - 1, wakes) if threads > 1 else 0
        self._call[0] = arguments
        _share_out(self.address, n_tasks, threads, wakes, piece)
        _under_way[self.address] = self, owners
        try:
            while (state := _go(self.address, workers)) == MORE:
                look()  # here Python sees that the user wants to stop
        except BaseException:
            _stop(self.address)
            self._wait(LEAVING, workers)
            raise
        self._wait(state, workers)

    def _wait(self, state: int, workers: int) -> None:
        """Return when no worker is at the call any more."""
        while state != FINISHED:
            time.sleep(0)
            state = _left(self.address, workers)
        del _under_way[self.address]


_under_way: dict[int, Any] = {}  # calls, which workers know by an address; one that was interrupted twice stays


def _in_memory(bags: list[Any]) -> np.ndarray:
    """A row for each bag, as compiled code reads it; somebody else keeps the arrays."""
    memory = np.zeros((len(bags), _store(bags[0], 0)), np.uint8)
    for k, bag in enumerate(bags):
        _store(bag, memory.ctypes.data + k * memory.shape[1])
    return memory


def _address(loop: Any, programs: Any, scratch: Any) -> int:
    """The address of the machine code for bags of these types."""
    kinds = loop.typeof_pyval(programs), loop.typeof_pyval(scratch), types.int64, types.int64, types.int64
    if (loop, kinds) not in _addresses:
        loop.compile(kinds)
        result = loop.overloads[kinds]
        name = result.fndesc.llvm_cfunc_wrapper_name
        _addresses[loop, kinds] = int(result.library.get_pointer_to_function(name))
    return _addresses[loop, kinds]


_addresses: dict[Any, int] = {}  # of the loops that have been used, by their arguments' types


class Crew:
    """The workers of this process: their number and, a ``LINE`` for each, state and lock."""

    def __init__(self) -> None:
        memory, self._starting = np.zeros(LINE * (MOST_THREADS + 1), np.uint8), threading.Lock()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))  # workers outlive whoever would free it, even Python
        start = -memory.ctypes.data % LINE
        self.address, self._lines = memory.ctypes.data + start, memory[start:].view(np.int64)
        for place, name in ((RELEASE, "release"), (ACQUIRE, "acquire")):
            function = getattr(ctypes.pythonapi, f"PyThread_{name}_lock")
            self._lines[place // 8] = ctypes.cast(function, ctypes.c_void_p).value or 0
        self._n = 0

    def with_workers(self, n: int, more: int) -> int:
        """The address, now that there are n workers or so many ``more``; fewer if none can be started."""
        if more and self._n < n:
            with self._starting, contextlib.suppress(RuntimeError):
                for _ in range(min(more, n - self._n)):
                    self._start(self.address + LINE * (self._n + 1))
                    self._n += 1
                    self._lines[0] = self._n
        return self.address

    def _start(self, worker: int) -> None:
        place = (worker + LOCK - self.address) // 8
        if not self._lines[place]:  # else the last thread could not be started
            lock = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThread_allocate_lock", ctypes.pythonapi))()
            ctypes.pythonapi.PyThread_acquire_lock(ctypes.c_void_p(lock), 1)
            self._lines[place] = lock
        _thread.start_new_thread(_work, (worker, self.address, _spins()))


@functools.cache
def crew() -> Crew:
    return Crew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=crew.cache_clear)  # threads do not survive a fork


@functools.cache
def _spins() -> int:
    """The number of polls in ``SPIN_SECONDS``; a pause takes 10 to 50 ns."""
    idle, seconds = np.zeros(1, np.int64), []
    for _ in range(5):
        start = time.perf_counter()
        _poll(idle.ctypes.data, 1000)
        seconds.append(time.perf_counter() - start)
    return int(1000 * SPIN_SECONDS / max(min(seconds), 1e-6))


# ── in compiled code ─────────────────────────────────────────────────────────────────


@compiled
def _store(bag, address):
    return stored(bag, address)


@compiled
def _poll(worker, spins):
    """Poll for a queue that asks, so often at the most; the state."""
    state = atomic_load(worker)
    while state == IDLE and spins > 0:
        pause()
        state = atomic_load(worker)
        spins -= 1
    return state


@compiled
def _work(worker, crew, spins):
    """Take part in one call after another, for good; perhaps it was asked before it ran."""
    while True:
        state = _poll(worker, spins)
        if state == IDLE:
            if exchange(worker, IDLE, ASLEEP):
                call_whole(atomic_load(crew + ACQUIRE), (atomic_load(worker + LOCK), 1))
        elif exchange(worker, state, BUSY):
            queue, me = state & ((1 << NUMBER_BITS) - 1), state >> NUMBER_BITS
            while _take_part(queue, me):
                pass
            atomic_store(worker, IDLE)
            atomic_store(_share(queue, me) + TAKEN, 0)


@compiled
def _ask(queue, crew, state, most):
    """Have up to ``most`` workers of that state, IDLE or ASLEEP, take part, if the queue wants more."""
    me, threads = 1, atomic_load(queue + THREADS)
    for k in range(1, atomic_load(crew) + 1):
        worker = crew + LINE * k
        if atomic_load(worker) != state or most <= 0:
            continue
        while me < threads and not exchange(_share(queue, me) + TAKEN, 0, 1):
            me += 1
        if me == threads:
            return
        if exchange(worker, state, queue | (me << NUMBER_BITS)):
            if state == ASLEEP:
                call(atomic_load(crew + RELEASE), (atomic_load(worker + LOCK),))
            me, most = me + 1, most - 1
        else:
            atomic_store(_share(queue, me) + TAKEN, 0)


@inline
def _share(queue, me):
    return atomic_load(queue + SHARES) + LINE * me


@inline
def _take_part(queue, me):
    """Do a piece of work; whether any is left."""
    most, scratch = atomic_load(queue + PIECE), atomic_load(queue + SCRATCH) + me * atomic_load(queue + SCRATCH_BYTES)
    return call_whole(atomic_load(queue + FUNCTION), (atomic_load(queue + PROGRAMS), scratch, queue, me, most))


@compiled
def next_task(queue, me):
    """The number of a task that nobody else has; -1: none is left."""
    threads = atomic_load(queue + THREADS)
    for _ in range(threads):
        share = _share(queue, me)
        if atomic_load(share) < atomic_load(share + END):
            k = atomic_add(share, 1)
            if k < atomic_load(share + END):
                return k
        me = me + 1 if me + 1 < threads else 0
    return -1


@inline
def is_stopped(queue):
    """Whether the call was interrupted, so that nobody wants what is left of it."""
    return atomic_load(queue + STOPPED) != 0


@compiled
def _share_out(queue, n_tasks, threads, wakes, piece):
    atomic_store(queue + THREADS, threads)
    atomic_store(queue + WAKES, wakes)
    atomic_store(queue + PIECE, piece)
    for me in range(threads):
        share = _share(queue, me)
        atomic_store(share, n_tasks * me // threads)
        atomic_store(share + END, n_tasks * (me + 1) // threads)


@compiled
def _go(queue, crew):
    """Do a piece of work, while others do what they can: FINISHED, or MORE are left, or others are LEAVING."""
    if crew != 0:
        _ask(queue, crew, IDLE, MOST_THREADS)
        _ask(queue, crew, ASLEEP, atomic_load(queue + WAKES))
    if _take_part(queue, 0):
        return MORE
    return _left(queue, crew)


@compiled
def _left(queue, crew):
    """Take back what was asked of those who have not followed; FINISHED: nobody is at the call any more."""
    for k in range(1, atomic_load(crew) + 1 if crew != 0 else 0):
        state = atomic_load(crew + LINE * k)
        if state & ((1 << NUMBER_BITS) - 1) == queue and exchange(crew + LINE * k, state, IDLE):
            atomic_store(_share(queue, state >> NUMBER_BITS) + TAKEN, 0)
    spins = CALLER_SPINS
    for me in range(1, atomic_load(queue + THREADS)):
        while atomic_load(_share(queue, me) + TAKEN) != 0:
            pause()
            spins -= 1
            if spins == 0:
                return LEAVING
    return FINISHED


@compiled
def _stop(queue):
    atomic_store(queue + STOPPED, 1)
    for me in range(atomic_load(queue + THREADS)):
        atomic_store(_share(queue, me), DONE)
