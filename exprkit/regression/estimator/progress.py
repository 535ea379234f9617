"""Progress display of a search, and ways to stop it.

In: the search, again and again.  Out: a bar of tqdm; in a notebook the front, as a table and a figure that grow; or
calls of a function of the user's.

================  =================================================================================
``progress=``     what is shown
================  =================================================================================
None              a bar (of the time or number of functions, if limited, else of stages and generations), or the table
                  and figure, where somebody looks and the search takes a second
False             nothing
True              the same from the beginning, whoever looks
a function        called with a ``SearchView``; the search ends where it returns True
================  =================================================================================
"""

from __future__ import annotations

import base64
import html
import io
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from exprkit.errors import ArgumentError, brief, brought_by, shortened
from exprkit.expressions.expression import Expression
from exprkit.regression.estimator.equations import draw_front, rounded
from exprkit.runtime.budget import Ended

if TYPE_CHECKING:
    from exprkit.regression.formulas.front import Entry
    from exprkit.regression.stages.discovery import Discovery

EVERY = 0.1  # seconds between two updates
FIGURE_EVERY = 1.0  # seconds between two figures of the front, of some 0.05 s each
DELAY = 1.0  # seconds before a search is shown by default
MAX_CHARACTERS = 60  # of a formula beside the bar
STOPPED = "it was stopped"


class SearchView(NamedTuple):
    """A search at a moment: its stage, the time, and its front from the shortest formula on."""

    stage: str
    generation: int  # 0 before the first
    n_evals: int
    seconds: float
    complexity: list[int]
    loss: list[float]
    equation: list[str]
    short: list[str]  # the same, their numbers with four digits


class ProgressDisplay:
    """The progress of a search: a bar, a page of a notebook, or calls of the user's function."""

    def __init__(self, progress: Any, names: tuple[str, ...] | None) -> None:
        if not (progress is None or isinstance(progress, bool) or callable(progress)):
            what = "None, True, False or a function of a SearchView"
            raise ArgumentError(f"progress must be {what}, not {brief(progress)}")
        self._names = names
        self._callback: Callable[[SearchView], Any] | None = progress if callable(progress) else None
        self._notebook = in_notebook()
        self._after = DELAY if progress is None else 0.0
        is_watched = self._notebook or (sys.stderr is not None and sys.stderr.isatty())
        is_visible = is_watched if progress is None else bool(progress)
        self._is_shown = is_visible and self._callback is None
        self.discovery: Discovery | None = None  # what is shown
        self._entries: list[Entry] = []  # that ``_equations`` are of
        self._equations: tuple[list[str], list[str]] = [], []
        self._begin = self._last = self._last_figure = time.perf_counter()
        self._bar: Any = None
        self._display: Any = None

    def __enter__(self) -> ProgressDisplay:
        return self

    def __exit__(self, *error: object) -> None:
        if self._callback is not None and error[0] is None:
            self._callback(self.view())  # how it ended, however short it was
        if self._display is not None:
            self._draw()
        if self._bar is not None:
            self._bar.close()

    def refresh(self) -> None:
        """Update the display, if the last update is old; an interrupt is seen here.

        Raises
        ------
        Ended
            Where the user's function returns true.
        """
        now = time.perf_counter()
        if now - self._last <= EVERY:
            return
        self._last = now
        if self._callback is not None:
            if self._callback(self.view()):
                raise Ended(STOPPED)
        elif self._is_shown and self.discovery is not None and now - self._begin >= self._after:
            self._move_bar(self.discovery)
            if self._notebook and now - self._last_figure > FIGURE_EVERY:
                self._draw()
                self._last_figure = time.perf_counter()

    def view(self) -> SearchView:
        """The search at this moment."""
        if self.discovery is None:
            return SearchView("begin", 0, 0, 0.0, [], [], [], [])
        search = self.discovery.search
        entries = search.front.entries()
        if entries != self._entries:
            named = [Expression(e.expression.kinds, e.expression.values, self._names) for e in entries]
            self._entries = entries
            self._equations = [str(formula) for formula in named], [str(rounded(formula, 4)) for formula in named]
        budget = search.problem.budget
        return SearchView(
            search.stage,
            self.discovery.generation,
            budget.n_evals,
            budget.seconds,
            [e.size for e in entries],
            [e.loss for e in entries],
            *map(list, self._equations),
        )

    def _move_bar(self, discovery: Discovery) -> None:
        done, total, unit = discovery.spent
        if self._bar is None:
            with brought_by("search"):
                from tqdm.auto import tqdm
            shown = "{desc}: {percentage:3.0f}%|{bar}| {n:.0f} of {total:.0f} " + unit
            self._bar = tqdm(total=total, leave=False, bar_format=shown)
        view = self.view()
        best = min(zip(view.loss, view.short, strict=True), default=None)
        least = f", loss {best[0]:.3g}: {shortened(best[1], MAX_CHARACTERS)}" if best else ""
        self._bar.n = min(done, total)
        self._bar.set_description_str(view.stage + least, refresh=True)

    def _draw(self) -> None:
        """Draw the front in the place of the last figure."""
        from IPython.display import HTML, display

        page = HTML(front_page(self.view()))
        if self._display is None:
            self._display = display(page, display_id=True)
        else:
            self._display.update(page)


# ── the page of a notebook ──


def front_page(view: SearchView) -> str:
    """HTML: what the search does, and its front as a table beside a figure."""
    head = f"{view.stage}: {view.n_evals:,} functions in {view.seconds:.1f} s"
    rows = "".join(
        f"<tr><td>{size}</td><td>{loss:.4g}</td><td style='text-align:left'><code>{html.escape(text)}</code></td></tr>"
        for size, loss, text in zip(view.complexity, view.loss, view.short, strict=True)
    )
    table = f"<table><tr><th>complexity</th><th>loss</th><th>equation</th></tr>{rows}</table>"
    side_by_side = "display:flex;flex-wrap:wrap;gap:1em;align-items:flex-start"
    return f"<div>{html.escape(head)}</div><div style='{side_by_side}'>{table}{_figure(view)}</div>"


def _figure(view: SearchView) -> str:
    """The front as a picture, drawn by Matplotlib; nothing where that is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return ""
    figure = Figure((4.2, 2.8), layout="constrained")
    draw_front(figure.add_subplot(), view.complexity, view.loss)
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return f'<img alt="the front" src="data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}">'


def in_notebook() -> bool:
    """Whether Jupyter shows what is displayed."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return "IPKernelApp" in getattr(get_ipython(), "config", {})
