"""The line that shows long work: what runs, how far it is, and a button that stops it.

Part of the explorer's view; the work itself is done on a ``Desk``.

    >>> from exprkit.explorer.meter import Meter
    >>> meter = Meter()
    >>> meter.run("counting", lambda stop, progress: progress(3, 3))
    >>> meter.desk.wait()
    True
    >>> "counting: done" in meter.text.value
    True
"""

from __future__ import annotations

import html
from collections.abc import Callable
from threading import Event
from time import monotonic

from exprkit.errors import brought_by
from exprkit.explorer.aspects import complaint
from exprkit.explorer.race import spoken
from exprkit.explorer.work import Desk

with brought_by("notebooks"):
    import ipywidgets as widgets

FULL = 1000  # of the bar
PAUSE = 0.1  # seconds between two pictures of the same thing

Progress = Callable[[int, int], None]


class Meter(widgets.HBox):
    """Runs one long job at a time; a second one is told to wait.

    ``text``, ``bar`` and ``button`` are its widgets, ``desk`` does the jobs.
    """

    def __init__(self) -> None:
        self.desk = Desk(self._failed)
        self.bar = widgets.IntProgress(max=FULL, layout=widgets.Layout(width="240px"))
        self.button = widgets.Button(description="Stop", disabled=True, layout=widgets.Layout(width="80px"))
        self.button.on_click(lambda _: self.desk.stop())
        self.text = widgets.HTML("nothing runs")
        self._what, self._shown = "", 0.0
        super().__init__([self.bar, self.button, self.text])

    def run(self, what: str, job: Callable[[Event, Progress], None]) -> None:
        """Start ``job(stop, progress)``; it calls ``progress(done, total)`` and returns when ``stop`` is set."""
        if self.desk.busy:
            self._say(f"{self._what} is still running: stop it first")
            return
        self._what, self._shown = what, 0.0
        self.desk.put(what, lambda stop: self._work(job, stop))

    def due(self) -> bool:
        """Whether the last picture is old enough for another; of what is drawn between two steps."""
        if monotonic() - self._shown < PAUSE:
            return False
        self._shown = monotonic()
        return True

    def _work(self, job: Callable[[Event, Progress], None], stop: Event) -> None:
        begin = monotonic()
        self.bar.value, self.button.disabled = 0, False
        self._say(f"{self._what} …")
        seen = 0.0

        def progress(done: int, total: int) -> None:
            nonlocal seen
            if monotonic() - seen > PAUSE or done == total:
                seen = monotonic()
                self.bar.value = FULL * done // max(total, 1)
                self._say(f"{self._what}: {done:,} of {total:,}")

        try:
            job(stop, progress)
        finally:
            self.button.disabled = True
        self._say(f"{self._what}: {'stopped' if stop.is_set() else 'done'} after {spoken(monotonic() - begin)}")

    def _failed(self, kind: str, error: Exception) -> None:
        self.text.value = complaint(error)

    def _say(self, text: str) -> None:
        self.text.value = html.escape(text)
