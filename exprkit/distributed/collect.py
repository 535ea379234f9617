"""Pieces of work handed out to dask's workers, and what they give in the pieces' order.

In: slices, and a function that submits one.  Out: the results.

What happens to a piece:

=========================  ==================================================================================
a worker dies              dask runs it again on another; where that has failed too often, in halves
memory runs out            in halves, down to a single expression, of which the error then speaks
nothing is finished for    what is left is given to the other workers as well; who is first counts, and a
long (``LATE``)            warning names the late one
an error                   that of the first piece, in their order; the others are called off
Ctrl-C                     all are called off; what runs ends with its piece
no worker is left          a warning says so; it goes on when others have come
=========================  ==================================================================================

The results of a piece have the same bits wherever it is computed, so none of this changes what comes out.

    >>> from exprkit.distributed.collect import halves
    >>> halves((2, 7))
    [(2, 4), (4, 7)]
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

from exprkit.distributed.tasks import TooLarge
from exprkit.distributed.workers import Workers, quiet
from exprkit.errors import BackendError, number_of

LATE = 30.0  # seconds without a result before work is given out a second time, and four times the longest wait so far
TIMES = 3  # that the same work is given out
TICK = 0.2  # seconds between two looks at that
Cut = tuple[int, int]
Submit = Callable[..., Any]  # of a cut, and for a second time the workers it may go to: gives a future


def collect(
    workers: Workers, cuts: list[Cut], submit: Submit, done: Callable[[int], Any] = lambda n: None
) -> list[tuple[Cut, Any]]:
    """The results of all cuts, or of the parts that they were cut into, in order."""
    return _Collection(workers, submit, done).of(cuts)


def halves(cut: Cut) -> list[Cut]:
    """A cut in two, for what is too large in one."""
    middle = (cut[0] + cut[1]) // 2
    return [(cut[0], middle), (middle, cut[1])]


class _Collection:
    """What is being worked on, and what is there."""

    def __init__(self, workers: Workers, submit: Submit, done: Callable[[int], Any]) -> None:
        self._workers, self._submit, self._done = workers, submit, done
        self._running: dict[Any, Cut] = {}
        self._found: dict[Cut, Any] = {}
        self._last, self._longest = time.monotonic(), 0.0

    def of(self, cuts: list[Cut]) -> list[tuple[Cut, Any]]:
        try:
            with quiet(), self._workers.client.as_current():
                for cut in cuts:
                    self._running[self._submit(cut)] = cut
                while self._running:
                    self._wait()
        finally:  # called off if something was raised
            if self._running:
                self._workers.client.cancel(list(self._running), force=True)
        return sorted(self._found.items(), key=lambda one: one[0])

    def _wait(self) -> None:
        """Until something is finished, or nothing is for a while."""
        from distributed import wait

        try:
            finished = wait(list(self._running), timeout=TICK, return_when="FIRST_COMPLETED").done
        except TimeoutError:
            self._look_for_late()
            return
        ready = [future for future in finished if future.status == "finished"]
        for future, result in zip(ready, self._workers.client.gather(ready), strict=True):
            self._take(future, result)
        for future in sorted(finished.difference(ready), key=lambda one: self._running.get(one, (0, 0))):
            self._failed(future)
        self._longest, self._last = max(self._longest, time.monotonic() - self._last), time.monotonic()

    def _take(self, future: Any, result: Any) -> None:
        cut = self._running.pop(future, None)
        if cut is None:  # another worker was quicker
            return
        twins = [other for other, same in self._running.items() if same == cut]
        for other in twins:
            del self._running[other]
        self._workers.client.cancel(twins, force=True)
        if isinstance(result, TooLarge):
            self._cut(cut, MemoryError(f"{_named(cut)}: {result.why}"))
        else:
            self._found[cut] = result
            self._done(cut[1] - cut[0])

    def _failed(self, future: Any) -> None:
        from distributed.scheduler import KilledWorker

        cut = self._running.pop(future, None)
        if cut is None or cut in self._running.values():  # somebody else has it
            return
        if future.status == "cancelled":  # the scheduler has lost it
            self._running[self._submit(cut)] = cut
            return
        error = future.exception()
        if not isinstance(error, KilledWorker):
            raise error
        self._cut(cut, BackendError(
            f"{_named(cut)}: every worker that tried died, the last was {error.last_worker.address}; "
            "its log says why, as too little memory"
        ))  # fmt: skip

    def _cut(self, cut: Cut, error: BaseException) -> None:
        """Try in halves what failed as one, or give up."""
        if cut[1] - cut[0] < 2:
            raise error
        for half in halves(cut):
            self._running[self._submit(half)] = half

    def _look_for_late(self) -> None:
        """Give out a second time what others may do quicker."""
        if time.monotonic() - self._last < max(LATE, 4 * self._longest):
            return
        self._last = time.monotonic()
        cuts = list(self._running.values())
        once = {future.key: future for future, cut in self._running.items() if cuts.count(cut) < TIMES}
        there = self._workers.client.processing()
        if not there:
            warnings.warn("no worker is left: waiting for others to come", RuntimeWarning, stacklevel=2)
        for address, keys in there.items():
            others = [other for other in self._workers.places(True) if other != address]
            late = [once[key] for key in keys if key in once]
            if others and late:
                warnings.warn(f"worker {address} is late with {number_of(len(late), 'slice')}: given to others as well",
                              RuntimeWarning, stacklevel=2)  # fmt: skip
                for future in late:
                    self._running[self._submit(self._running[future], others)] = self._running[future]
            once = {key: future for key, future in once.items() if key not in keys}
        for future in once.values() if there else ():  # nobody has it: all workers that might died at once
            self._running[self._submit(self._running[future])] = self._running[future]


def _named(cut: Cut) -> str:
    return f"expression {cut[0]}" if cut[1] - cut[0] == 1 else f"expressions {cut[0]} to {cut[1] - 1}"
