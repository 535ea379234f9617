"""Work beside a notebook's messages: a desk does jobs in a thread of its own, and can be stopped.

Part of the explorer's view.  A widget's handler only puts a job on a desk, so that the
notebook stays alive; of jobs of one kind that wait, only the newest is done.

    >>> from exprkit.explorer.work import Desk
    >>> desk, found = Desk(), []
    >>> desk.put("sum", lambda stop: found.append(1 + 2))
    >>> desk.wait()
    True
    >>> found
    [3]
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

Job = Callable[[threading.Event], None]


class _Waiting(NamedTuple):
    due: float
    job: Job


class Desk:
    """Does jobs one after the other in a thread that ends when there are none.

    Parameters
    ----------
    failed : function of (kind, exception), optional
        Called in the thread when a job raises; without it the thread reports the exception.
    """

    def __init__(self, failed: Callable[[str, Exception], None] | None = None) -> None:
        self._failed = failed
        self._changed = threading.Condition()
        self._waiting: dict[str, _Waiting] = {}
        self._busy = False
        self._stop = threading.Event()

    def put(self, kind: str, job: Job, delay: float = 0.0) -> None:
        """Have ``job(stop)`` done after ``delay`` seconds, in place of one of this kind that waits.

        A long job looks at ``stop.is_set()`` now and then, and returns when it is.
        """
        with self._changed:
            self._waiting[kind] = _Waiting(monotonic() + delay, job)
            if not self._busy:
                self._busy = True
                threading.Thread(target=self._work, name="exprkit explorer", daemon=True).start()
            self._changed.notify_all()

    def stop(self) -> None:
        """Ask the running job to end, and forget those that wait."""
        with self._changed:
            self._waiting.clear()
            self._stop.set()
            self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to do; False if that takes longer than ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy, timeout)

    @property
    def busy(self) -> bool:
        """Whether a job runs or waits."""
        return self._busy

    def _work(self) -> None:
        while (taken := self._next()) is not None:
            kind, job = taken
            try:
                job(self._stop)
            except Exception as error:  # whatever a job raises is shown, and the desk goes on
                if self._failed is None:
                    self._end()
                    raise
                self._failed(kind, error)

    def _next(self) -> tuple[str, Job] | None:
        """The job that is due first, waiting for it; None, and the thread's end, if there is none."""
        with self._changed:
            while self._waiting:
                kind = min(self._waiting, key=lambda kind: self._waiting[kind].due)
                left = self._waiting[kind].due - monotonic()
                if left <= 0:
                    self._stop.clear()
                    return kind, self._waiting.pop(kind).job
                self._changed.wait(left)
            self._busy = False
            self._changed.notify_all()
            return None

    def _end(self) -> None:
        with self._changed:
            self._busy = False
            self._changed.notify_all()
