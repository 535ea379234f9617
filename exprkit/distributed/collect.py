"""Sends pieces of work to workers, and yields the results in the order of the pieces.

In: slices, and a function that says which task one is.  Out: the results.

What happens to a piece:

=========================  ==================================================================================
a thread has no more       it takes what is left of another's; dask's workers do the same
a worker dies              dask runs it again on another; where that has failed too often, in halves
memory runs out            in halves, down to a single expression, of which the error then speaks
nothing is finished for    what is left is given to the other workers as well; who is first counts, and a
long (``LATE``)            warning names the late one
an error                   is raised; the other pieces are called off
Ctrl-C                     all are called off; what runs ends with its piece
no worker is left          their cluster is asked for others, and a warning says so; it goes on when some have
                           come, and ends with an error when none have for long (``Workers.look_after``)
=========================  ==================================================================================

The results of a piece have the same bits wherever it is computed, so none of this changes what comes out.  Nothing here
waits for a single worker: what is finished comes into a queue, of dask's workers by dask's own thread.

    >>> from exprkit.distributed.collect import halves
    >>> halves((2, 7), MemoryError("expressions 2 to 6"))
    [(2, 4), (4, 7)]
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
import warnings
from asyncio import CancelledError
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from exprkit.distributed.tasks import TooLarge
from exprkit.distributed.threads import Place, places_of, thread_of
from exprkit.distributed.workers import TICK, Workers, new_name, quiet
from exprkit.errors import BackendError, number_of
from exprkit.runtime.progress import look, looked_at

LATE = 30.0  # seconds without a result, and ...
LATE_WAITS = 4  # ... times the longest wait so far, after which work is given out again; both chosen, not measured
TIMES = 3  # that the same piece is given out, at most; chosen, not measured
Cut = tuple[int, int]
# Of a cut, and the worker for which it is meant: a function and its arguments.  None: for any worker, as when it is
# given out a second time, and then the arguments depend on nothing that lies on another one.
Task = Callable[[Cut, str | None], tuple[Any, ...]]
Put = Callable[[Cut, Any], Any]


def collect(
    workers: Workers,
    name: str,
    cuts: list[Cut],
    task: Task,
    done: Callable[[int], Any] = lambda n: None,
    on_device: bool = False,
    put: Put | None = None,
) -> list[tuple[Cut, Any]]:
    """The results of all cuts, or of the parts that they were cut into, in order.

    ``put`` takes them instead, as they come and once each: in the thread that has made one, if it is of this process.
    ``task`` is called there too.
    """
    results: dict[Cut, Any] = {}
    put = put or results.__setitem__
    if workers.devices:
        _Threads(places_of(workers.devices, on_device), task, done, put).take(cuts)
    else:
        _Cluster(workers, name, task, done, put, on_device).take(cuts)
    return sorted(results.items(), key=lambda item: item[0])


def halves(cut: Cut, error: BaseException) -> list[Cut]:
    """A cut in two, for what failed as one; of a single expression that is the error."""
    if cut[1] - cut[0] < 2:
        raise error
    middle = (cut[0] + cut[1]) // 2
    return [(cut[0], middle), (middle, cut[1])]


class _Cancelled(Exception):
    """Ends a piece whose result is not needed any more."""


class _Collection:
    """Pieces that are handed out, and what comes of them."""

    def __init__(self, task: Task, done: Callable[[int], Any], put: Put) -> None:
        self._task, self._done, self._put = task, done, put
        self._running: dict[Any, Cut] = {}  # by what stands for a piece that was given to a worker
        self._ended: SimpleQueue[tuple[Any, Any]] = SimpleQueue()  # that, and its result or the error

    def take(self, cuts: list[Cut]) -> None:
        """Have all pieces worked on, and put where they belong."""
        try:
            self._hand_out(cuts)
            last, longest = time.monotonic(), 0.0
            while self._running:
                self._look_after()
                try:
                    ended = [self._ended.get(timeout=TICK)]
                except Empty:
                    look()
                    if time.monotonic() - last < max(LATE, LATE_WAITS * longest):
                        continue
                    self._give_late()
                else:
                    while not self._ended.empty():
                        ended.append(self._ended.get())
                    for handed, result in sorted(ended, key=lambda item: self._running.get(item[0], (0, 0))):
                        self._finished(handed, result)
                    longest = max(longest, time.monotonic() - last)
                last = time.monotonic()
        finally:
            self._call_off(list(self._running))

    def _finished(self, handed: Any, result: Any) -> None:
        cut = self._running.pop(handed, None)
        if cut is None:  # another worker was quicker
            return
        twins = [other for other, same in self._running.items() if same == cut]
        if isinstance(result, BaseException):
            if not twins:  # else somebody else has it
                self._failed(handed, cut, result)
            return
        for other in twins:
            del self._running[other]
        self._call_off(twins)
        if isinstance(result, TooLarge):
            self._hand_out(halves(cut, MemoryError(f"{_named(cut)}: {result.why}")))
        else:
            self._put(cut, result)
            self._done(cut[1] - cut[0])

    def _times(self, cut: Cut) -> int:
        """The number of workers that have a piece."""
        return list(self._running.values()).count(cut)

    def _hand_out(self, cuts: list[Cut]) -> None:
        raise NotImplementedError

    def _give_late(self) -> None:
        """Give out a second time what others may do quicker."""
        raise NotImplementedError

    def _look_after(self) -> None:
        """See whether the workers are still there."""

    def _call_off(self, handed: list[Any]) -> None:
        """Call off pieces that are not needed any more."""

    def _failed(self, handed: Any, cut: Cut, error: BaseException) -> None:
        raise error


class _Threads(_Collection):
    """Pieces that the devices' threads take: each those meant for it, then what the others have left.

    A thread writes its results itself.
    """

    def __init__(self, places: list[Place], task: Task, done: Callable[[int], Any], put: Put) -> None:
        super().__init__(task, done, lambda cut, result: None)
        self._places, self._write, self._number = places, put, itertools.count()
        self._left: list[deque[tuple[int, Cut]]] = [deque() for _ in places]  # of each thread, numbered
        self._open: dict[Cut, None] = {}  # those that nobody has written; whoever takes one out does
        self._begun: set[int] = set()  # of whose pieces others may take: one that is about to begin has what they need
        self._at_work: dict[int, Cut] = {}  # by the thread's number

    def take(self, cuts: list[Cut]) -> None:
        try:
            super().take(cuts)
        finally:  # called off if something was raised: what runs writes nothing any more
            self._open.clear()
            for left in self._left:
                left.clear()

    def _hand_out(self, cuts: list[Cut]) -> None:
        for k, cut in enumerate(cuts):
            self._open[cut] = None
            self._give(cut, k % len(self._left))
        self._call()

    def _give(self, cut: Cut, k: int) -> None:
        piece = next(self._number), cut
        self._running[piece] = cut
        self._left[k].append(piece)

    def _call(self) -> None:
        """Have all threads see what is left."""
        for k, place in enumerate(self._places):
            thread_of(*place).do(functools.partial(self._work, k))

    def _work(self, k: int) -> None:
        """In a device's thread."""
        if k not in self._begun:
            self._begun.add(k)
            if len(self._left[k]) > 1:
                self._call()  # those that were here before
        while (piece := self._next(k)) is not None:
            self._at_work[k] = cut = piece[1]
            try:
                function, *arguments = self._task(cut, str(self._places[k]))
                with looked_at(functools.partial(self._check, cut)):
                    result = function(*arguments)
                del arguments
                if isinstance(result, TooLarge):
                    self._ended.put((piece, result))
                elif self._open.pop(cut, self) is None:
                    self._write(cut, result)
                    self._ended.put((piece, None))
            except _Cancelled:
                pass
            except BaseException as error:
                self._ended.put((piece, error))
        self._at_work.pop(k, None)

    def _check(self, cut: Cut, n: int) -> None:
        """Go on with a piece, unless it is called off or another thread was quicker."""
        if cut not in self._open:
            raise _Cancelled

    def _next(self, k: int) -> tuple[int, Cut] | None:
        """The next piece of a thread, or else the last one of the thread with most left."""
        most = max((self._left[other] for other in list(self._begun)), key=len)
        for left, take in ((self._left[k], deque.popleft), (most, deque.pop)):
            with contextlib.suppress(IndexError):
                return take(left)
        return None

    def _give_late(self) -> None:
        """Give what is being worked on for long to other devices' threads that do nothing."""
        at_work, turns = dict(self._at_work), itertools.count()
        for k, cut in at_work.items():
            device = self._places[k].device
            idle = [j for j, place in enumerate(self._places) if j not in at_work and place.device != device]
            if idle and 0 < self._times(cut) < TIMES:
                warnings.warn(
                    f"device {device} is late with {_named(cut)}: given to another as well",
                    RuntimeWarning,
                    stacklevel=2,
                )
                self._give(cut, idle[next(turns) % len(idle)])
        self._begun.update(range(len(self._places)))
        self._call()


class _Cluster(_Collection):
    """Pieces that dask's workers take; futures stand for them."""

    def __init__(
        self, workers: Workers, name: str, task: Task, done: Callable[[int], Any], put: Put, on_device: bool
    ) -> None:
        super().__init__(task, done, put)
        self._workers, self._on_device = workers, on_device
        self._name, self._number = f"{name}-{new_name()}", itertools.count()

    def take(self, cuts: list[Cut]) -> None:
        try:
            with quiet(), self._workers.client.as_current():
                super().take(cuts)
        except Exception as error:
            if self._workers.connected:
                raise
            raise BackendError("the scheduler is gone and the client closed: start both, then call again") from error

    def _hand_out(self, cuts: list[Cut], others: list[str] | None = None) -> None:
        client = self._workers.client
        for cut in cuts:
            k, places = next(self._number), [] if others else self._workers.places(self._on_device)
            place = places[k % len(places)] if places else None  # where its engine was left by the call before
            function, *arguments = self._task(cut, place)
            where, key = [place] if place else others, f"{self._name}-{k}"
            future = client.submit(
                function, *arguments, key=key, pure=False, workers=where, allow_other_workers=bool(where)
            )
            self._running[future] = cut
            client.loop.add_callback(self._bring, future)

    def _look_after(self) -> None:
        """If all workers are others: dask leaves a task lying that was meant for one when the last one died."""
        if self._workers.look_after():
            cuts = sorted(set(self._running.values()))
            self._call_off(list(self._running))
            self._running.clear()
            self._hand_out(cuts)

    async def _bring(self, future: Any) -> None:
        """In dask's thread: wait for a result."""
        try:
            result = await self._workers.client.gather(future, asynchronous=True)
        except (Exception, CancelledError) as error:
            result = error
        self._ended.put((future, result))

    def _call_off(self, handed: list[Any]) -> None:
        if handed and self._workers.connected:
            self._workers.client.cancel(handed, force=True)

    def _failed(self, handed: Any, cut: Cut, error: BaseException) -> None:
        from distributed.scheduler import KilledWorker, NoValidWorkerError, NoWorkerError

        if isinstance(error, CancelledError) or handed.status in ("cancelled", "lost"):  # the scheduler has lost it
            self._hand_out([cut])
        elif isinstance(error, NoWorkerError | NoValidWorkerError):  # the scheduler waits no longer
            raise self._workers.alone() from error
        elif isinstance(error, KilledWorker):
            died = BackendError(
                f"{_named(cut)}: every worker that tried died, the last was {error.last_worker.address}; "
                "its log says why, as too little memory"
            )
            self._hand_out(halves(cut, died))
        else:
            raise error

    def _give_late(self) -> None:
        movable = {future.key: cut for future, cut in self._running.items() if self._times(cut) < TIMES}
        tasks = self._workers.client.processing()
        for address, keys in tasks.items():
            others = [other for other in self._workers.addresses() if other != address]
            late = [movable.pop(key) for key in keys if key in movable]
            if others and late:
                warnings.warn(
                    f"worker {address} is late with {number_of(len(late), 'slice')}: given to others as well",
                    RuntimeWarning,
                    stacklevel=2,
                )
                self._hand_out(late, others)
        if tasks:  # nobody has the rest: all workers that might died at once
            self._hand_out(list(movable.values()))


def _named(cut: Cut) -> str:
    return f"expression {cut[0]}" if cut[1] - cut[0] == 1 else f"expressions {cut[0]} to {cut[1] - 1}"
