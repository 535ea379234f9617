"""Work of the explorer in the background: a queue of short jobs, and a bar for one long job.

A widget's handler only submits work, so that the notebook stays responsive.

    >>> from exprkit.explorer.jobs import JobQueue
    >>> queue, sums = JobQueue(print), []
    >>> queue.put("sum", lambda: sums.append(1 + 2))
    >>> queue.wait()
    True
    >>> sums
    [3]
"""

from __future__ import annotations

import atexit
import concurrent.futures as futures
import html
from collections.abc import Callable
from threading import Event, Thread
from time import monotonic, sleep
from weakref import WeakSet

from exprkit.errors import brought_by, duration, number_of
from exprkit.explorer.pages import error_page
from exprkit.runtime.jit import COMPILING, compiling_watched

with brought_by("notebooks"):
    import ipywidgets as widgets

FULL = 1000  # of the bar
PAUSE = 0.1  # seconds between two states of the bar
PATIENCE = 30.0  # seconds that the end of Python waits for a stopped job

Progress = Callable[[int, int], bool]


class JobQueue:
    """Does short jobs in one thread, of those of a kind that wait the newest alone; ``failed`` gets their errors."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed
        self._newest: dict[str, Callable[[], object]] = {}
        self._executor = futures.ThreadPoolExecutor(1, "exprkit explorer")
        self._last: futures.Future[None] | None = None

    def put(self, kind: str, job: Callable[[], object], delay: float = 0.0) -> None:
        """Have ``job()`` done after ``delay`` seconds, in place of one of this kind that waits."""
        self._newest[kind] = job
        self._last = self._executor.submit(self._work, kind, job, delay)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all jobs are done; False if that takes longer than ``timeout`` seconds."""
        end = None if timeout is None else monotonic() + timeout
        while (last := self._last) is not None:
            if futures.wait([last], None if end is None else max(end - monotonic(), 0)).not_done:
                return False
            if last is self._last:
                break
        return True

    def _work(self, kind: str, job: Callable[[], object], delay: float) -> None:
        if delay and self._newest[kind] is job:
            sleep(delay)
        if self._newest[kind] is job:
            try:
                job()
            except Exception as error:  # is shown, and the queue goes on
                self._failed(error)


class Stopped(Exception):
    """Ends a job whose stop button was pressed."""


class ProgressBar(widgets.HBox):
    """Runs one long job at a time, with a bar, a text and a button that stops it.

    >>> from exprkit.explorer.jobs import ProgressBar
    >>> bar = ProgressBar()
    >>> bar.run("counting", lambda progress: progress(3, 3))
    >>> bar.wait(), bar.text.value[:14]
    (True, 'counting: done')
    """

    def __init__(self) -> None:
        self.bar = widgets.IntProgress(max=FULL, layout=widgets.Layout(width="240px"))
        layout = widgets.Layout(width="80px", flex="0 0 auto")
        self.button = widgets.Button(description="Stop", disabled=True, layout=layout)
        self.stop, self._what = Event(), ""
        self.button.on_click(lambda _: self.stop.set())
        self.text = widgets.HTML()
        self._thread: Thread | None = None
        super().__init__([self.bar, self.button, self.text])
        _bars.add(self)

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def run(self, what: str, job: Callable[[Progress], object], unit: str = "") -> None:
        """Start ``job(progress)``, which calls ``progress(done, total)``, numbers of ``unit``.

        That is True where the bar moves, and raises ``Stopped`` once the button was pressed, when ``stop`` is set.
        """
        if self.busy:
            self._say(f"{self._what} is still running: stop it first")
            return
        self._what = what
        self.stop.clear()
        self._thread = Thread(target=self._work, args=(job, unit), name="exprkit explorer's work", daemon=True)
        self._thread.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the job has ended; False if that takes longer than ``timeout`` seconds."""
        if self._thread is not None:
            self._thread.join(timeout)
        return not self.busy

    def _work(self, job: Callable[[Progress], object], unit: str) -> None:
        begin, last_shown = monotonic(), 0.0
        self.bar.value, self.button.disabled = 0, False
        self._say(f"{self._what} …")

        def progress(done: int, total: int) -> bool:
            nonlocal last_shown
            if self.stop.is_set():
                raise Stopped
            if monotonic() - last_shown < PAUSE and done < total:
                return False
            last_shown = monotonic()
            self.bar.value = FULL * done // max(total, 1)
            self._say(f"{self._what}: {done:,} of {total:,}{unit}")
            return True

        def compiling(loops: int) -> None:
            if not last_shown:
                self._say(f"{self._what}: {COMPILING}; {number_of(loops, 'loop')} so far")

        try:
            with compiling_watched(compiling):
                job(progress)
        except Stopped:
            pass
        except Exception as error:
            self.text.value = error_page(error)
            return
        finally:
            self.button.disabled = True
        how = "stopped" if self.stop.is_set() else "done"
        self._say(f"{self._what}: {how} after {duration(monotonic() - begin)}")

    def _say(self, text: str) -> None:
        self.text.value = html.escape(text)


_bars: WeakSet[ProgressBar] = WeakSet()


@atexit.register
def _stop_all() -> None:
    """End all jobs first: a thread that Python ends within a library of C++ ends the process with an error."""
    bars = list(_bars)
    for bar in bars:
        bar.stop.set()
    for bar in bars:
        bar.wait(PATIENCE)
