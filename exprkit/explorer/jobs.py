"""A queue of background jobs in a thread of its own, with a progress bar for long ones.

A widget's handler only puts a job into a queue, so that the notebook stays alive; of jobs of one kind that
wait, only the newest is done.

    >>> from exprkit.explorer.jobs import JobQueue
    >>> queue, sums = JobQueue(print), []
    >>> queue.put("sum", lambda stop: sums.append(1 + 2))
    >>> queue.wait()
    True
    >>> sums
    [3]
"""

from __future__ import annotations

import atexit
import html
from collections.abc import Callable
from threading import Condition, Event, Thread
from time import monotonic
from weakref import WeakSet

from exprkit.errors import brought_by, number_of
from exprkit.explorer.pages import error_page
from exprkit.runtime.jit import COMPILING, compiling_watched

with brought_by("notebooks"):
    import ipywidgets as widgets

FULL = 1000  # of the bar
PAUSE = 0.1  # seconds between two states that are shown
PATIENCE = 30.0  # seconds that the end of Python waits for a job that has been told to end

Job = Callable[[Event], None]
Progress = Callable[[int, int], bool]


_queues: WeakSet[JobQueue] = WeakSet()


@atexit.register
def _end_all() -> None:
    """A thread that Python ends while it is within a library of C++ ends the process with an error."""
    queues = list(_queues)
    for queue in queues:
        queue.stop()
    for queue in queues:
        queue.wait(PATIENCE)


class JobQueue:
    """Does jobs one after the other, in a thread that ends when there are none; ``failed`` shows what one raises."""

    def __init__(self, failed: Callable[[str, Exception], None]) -> None:
        self._failed = failed
        self._changed = Condition()
        self._waiting: dict[str, tuple[float, Job]] = {}  # kind: (when it is due, job)
        self._stop = Event()
        self.busy = False  # whether a job runs or waits
        _queues.add(self)

    def put(self, kind: str, job: Job, delay: float = 0.0) -> None:
        """Have ``job(stop)`` done after ``delay`` seconds, in place of one of this kind that waits.

        A long job looks at ``stop.is_set()`` now and then, and returns when it is.
        """
        with self._changed:
            self._waiting[kind] = monotonic() + delay, job
            if not self.busy:
                self.busy = True
                Thread(target=self._work, name="exprkit explorer", daemon=True).start()
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
            return self._changed.wait_for(lambda: not self.busy, timeout)

    def _work(self) -> None:
        while (first := self._next()) is not None:
            kind, job = first
            try:
                job(self._stop)
            except Exception as error:  # whatever a job raises is shown, and the queue goes on
                self._failed(kind, error)

    def _next(self) -> tuple[str, Job] | None:
        """The job that is due first, waiting for it; None, and the thread's end, if there is none."""
        with self._changed:
            while self._waiting:
                kind, (due, job) = min(self._waiting.items(), key=lambda item: item[1][0])
                if due <= monotonic():
                    self._stop.clear()
                    del self._waiting[kind]
                    return kind, job
                self._changed.wait(due - monotonic())
            self.busy = False
            self._changed.notify_all()
            return None


class Stopped(Exception):
    """What ends a job whose stop button was pressed."""


class ProgressBar(widgets.HBox):
    """Runs one long job at a time, shows how far it is, and has a button that stops it; a second one has to wait.

    ``text``, ``bar`` and ``button`` are its widgets, ``queue`` does the jobs.

        >>> from exprkit.explorer.jobs import ProgressBar
        >>> bar = ProgressBar()
        >>> bar.run("counting", lambda stop, progress: progress(3, 3))
        >>> bar.queue.wait(), bar.text.value[:14]
        (True, 'counting: done')
    """

    def __init__(self) -> None:
        self.queue = JobQueue(self._failed)
        self.bar = widgets.IntProgress(max=FULL, layout=widgets.Layout(width="240px"))
        self.button = widgets.Button(
            description="Stop", disabled=True, layout=widgets.Layout(width="80px", flex="0 0 auto")
        )
        self.button.on_click(lambda _: self.queue.stop())
        self.text = widgets.HTML()
        self._what = ""
        super().__init__([self.bar, self.button, self.text])

    def run(self, what: str, job: Callable[[Event, Progress], object], unit: str = "") -> None:
        """Start ``job(stop, progress)``, which returns when ``stop`` is set; ``unit`` is of what is counted.

        It calls ``progress(done, total)``, which is True when it is time to show other things, too.
        """
        if self.queue.busy:
            self._say(f"{self._what} is still running: stop it first")
            return
        self._what = what
        self.queue.put(what, lambda stop: self._work(job, stop, unit))

    def _work(self, job: Callable[[Event, Progress], object], stop: Event, unit: str) -> None:
        begin, shown = monotonic(), 0.0
        self.bar.value, self.button.disabled = 0, False
        self._say(f"{self._what} …")

        def progress(done: int, total: int) -> bool:
            nonlocal shown
            if monotonic() - shown < PAUSE and done < total:
                return False
            shown = monotonic()
            self.bar.value = FULL * done // max(total, 1)
            self._say(f"{self._what}: {done:,} of {total:,}{unit}")
            return True

        def compiling(loops: int) -> None:
            if not shown:  # in its midst, what has been done is told
                self._say(f"{self._what}: {COMPILING}; {number_of(loops, 'loop')} so far")

        try:
            with compiling_watched(compiling):
                job(stop, progress)
        except Stopped:
            stop.set()
        finally:
            self.button.disabled = True
        self._say(f"{self._what}: {'stopped' if stop.is_set() else 'done'} after {duration(monotonic() - begin)}")

    def _failed(self, kind: str, error: Exception) -> None:
        self.text.value = error_page(error)

    def _say(self, text: str) -> None:
        self.text.value = html.escape(text)


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
