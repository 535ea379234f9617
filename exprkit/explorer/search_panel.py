"""The search panel: a search for formulas that shows results while it runs; each opens in the other panels.

In: the explorer's data.  Out: the front of a ``SymbolicRegressor``, as it grows; a row that is selected opens, its
numbers as parameters.

    >>> import exprkit as ek
    >>> from exprkit.explorer.search_panel import SearchPanel
    >>> from exprkit.explorer.sources import points_of
    >>> panel = SearchPanel(lambda text, params: print("open", text, params))
    >>> panel.points = points_of({"T": [1.0, 2, 3, 4, 5, 6, 8, 9], "y": [0.5, 1, 1.5, 2, 2.5, 3, 4, 4.5]}, None)
    >>> panel.start()
    >>> panel.wait()
    'a formula is exact'
    >>> panel.rows.index = len(panel.rows.options) - 1
    open p1 * T [0.5]
"""

from __future__ import annotations

import html
from collections.abc import Callable
from threading import Event
from typing import Any

import numpy as np

import exprkit as ek
from exprkit.errors import ArgumentError, brought_by
from exprkit.explorer import drawings
from exprkit.explorer.jobs import Progress, ProgressBar
from exprkit.explorer.pages import CLASS, FONT, CodeView, button, picture_page
from exprkit.explorer.sources import Points
from exprkit.fitting.fitted_expression import numbered
from exprkit.text.tokens import CONSTANT, PARAMETER

with brought_by("notebooks"):
    import ipywidgets as widgets

ROWS = 12  # of the front that are seen at once
NONE = np.empty(0), np.empty(0)  # nothing to draw
SECONDS, MAXSIZE = 20.0, 20


class SearchPanel(widgets.VBox):
    """The search panel; ``opened(text, params)`` is called when a formula is selected.

    Attributes
    ----------
    points : Points
        The data of the next search.
    model : SymbolicRegressor or None
        That of the last search, once it has ended.
    """

    def __init__(self, opened: Callable[[str, list[float]], None], progress_bar: ProgressBar | None = None) -> None:
        self._opened, self._progress_bar = opened, progress_bar or ProgressBar()
        self.points = Points(ek.data.rough_pipe())
        self.model: Any = None
        self._searched = self.points  # the data of ``_texts``
        self._texts: list[str] = []  # of the front, the shortest first
        self._sizes, self._losses = NONE
        self.seconds = widgets.BoundedFloatText(SECONDS, min=0.1, max=1e6, description="seconds")
        self.maxsize = widgets.BoundedIntText(MAXSIZE, min=1, max=100, description="most tokens")
        self.unary = widgets.Text(
            placeholder="all that are usual", description="functions", tooltip="exp, log, … separated by commas"
        )
        self.without = widgets.Text(
            placeholder="no column",
            description="leave out",
            tooltip="columns that formulas may not use, separated by commas",
        )
        fields = (self.seconds, "180px"), (self.maxsize, "180px"), (self.unary, "280px"), (self.without, "280px")
        for field, width in fields:
            field.layout.width = width
        self.button = button("Search", self.start, "100px", icon="search")
        self.rows = widgets.Select(rows=ROWS, layout=widgets.Layout(width="calc(100% - 4px)", min_width="40ch"))
        self.rows.observe(self._select, "index")
        self.summary, self.front, self.code = widgets.HTML(), widgets.HTML(), CodeView()
        self.summary.value = "looks for formulas of the target; a row that is clicked opens, as all other tabs show it"
        head = widgets.HTML(f"<pre style='font:13px monospace;margin:0'>{'size':<6}{'loss (rmse)':<12}formula</pre>")
        table = widgets.VBox([head, self.rows], layout=widgets.Layout(overflow="auto"))
        table.add_class(CLASS)
        head_row = widgets.HBox(
            [*(field for field, _ in fields), self.button], layout=widgets.Layout(flex_flow="row wrap")
        )
        super().__init__([widgets.HTML(FONT), head_row, self.summary, table, self.front, self.code])

    def start(self) -> None:
        """Search, beside the notebook's messages."""
        points = self.points
        self._progress_bar.run("searching", lambda stop, progress: self._search(points, stop, progress), " s")

    def wait(self, timeout: float | None = None) -> str:
        """Wait until the search has ended; says why it has."""
        self._progress_bar.queue.wait(timeout)
        return "" if self.model is None else str(self.model.stopped_)

    def _search(self, points: Points, stop: Event, progress: Progress) -> None:
        seconds = float(self.seconds.value)
        settings: dict[str, Any] = {"timeout_in_seconds": seconds, "maxsize": self.maxsize.value, "random_state": 0}
        if names := _listed(self.unary.value):
            settings["unary_operators"] = names
        without = _listed(self.without.value)
        table = _table(points, without)
        self.model, self._searched = None, points
        self.code.show(_code(points, without, settings))
        self._show([], [], [])

        def seen(view: Any) -> bool:
            progress(min(int(view.seconds), int(seconds)), max(int(seconds), 1))
            self.summary.value = html.escape(f"{view.stage}; {view.n_evals:,} functions tried")
            self._show(view.complexity, view.loss, view.equation)
            return stop.is_set()

        model = ek.SymbolicRegressor(**settings, niterations=10**6, progress=seen)
        model.fit(table, points.dataset.y)
        equations, self.model = model.equations_, model
        best = str(model.get_best().equation)
        self._show(equations["complexity"].tolist(), equations["loss"].tolist(), equations["equation"].tolist(), best)
        selected = shortened(best, points)
        self.summary.value = html.escape(f"{model.stopped_}; {model.n_evals_:,} functions tried; selected: {selected}")

    def _show(self, sizes: list[int], losses: list[float], texts: list[str], best: str = "") -> None:
        """The front, if it has changed, the search's choice marked; what the user chose of it stays chosen."""
        if texts == self._texts and texts and not best:
            return
        chosen = None if self.rows.index is None else self._texts[self.rows.index]
        self._texts, self._sizes, self._losses = texts, np.array(sizes, float), np.sqrt(losses)
        self.rows.unobserve(self._select, "index")  # of the user's selections only
        words = [shortened(text, self._searched) + "   ◀ selected" * (text == best) for text in texts]
        rows = zip(sizes, self._losses.tolist(), words, strict=True)
        self.rows.options = [f"{size:<6}{loss:<12.5g}{text}" for size, loss, text in rows]
        self.rows.index = texts.index(chosen) if chosen in texts else None
        self.rows.observe(self._select, "index")
        self._draw()

    def _draw(self) -> None:
        if not self._texts:
            self.front.value = ""
            return
        line = self._sizes, self._losses
        at = self.rows.index
        png, places = drawings.front(NONE, line, NONE if at is None else (line[0][[at]], line[1][[at]]))
        titles = [f"{text}\nloss (rmse) {loss:.4g}" for text, loss in zip(self._texts, line[1], strict=True)]
        self.front.value = picture_page(png, places[: len(titles)].tolist(), titles, alt=drawings.FRONT)

    def _select(self, change: Any) -> None:
        """A row was selected: open its formula."""
        if change["new"] is not None:
            self._draw()
            self._opened(*with_parameters(self._texts[change["new"]], self._searched))


def with_parameters(text: str, points: Points) -> tuple[str, list[float]]:
    """A formula with parameters in the place of its numbers, and these."""
    formula = ek.parse(text, variables=points.variables)[0]
    places = formula.kinds == CONSTANT
    kinds, values = formula.kinds.copy(), formula.values.copy()
    numbers = values[places].view(np.float64).tolist()
    kinds[places], values[places] = PARAMETER, np.arange(len(numbers), dtype=np.uint64)
    return str(ek.Expression(kinds, values, formula.variables)), numbers


def shortened(text: str, points: Points) -> str:
    """A formula, its numbers with four digits."""
    free, numbers = with_parameters(text, points)
    formula = ek.parse(free, variables=points.variables)[0]
    return str(numbered(formula, [float(f"{number:.4g}") for number in numbers]))


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _table(points: Points, without: list[str]) -> Any:
    """The variables' columns by their names, but for some."""
    with brought_by("notebooks"):
        import pandas as pd

    names = points.names
    for name in without:
        if name not in names:
            raise ArgumentError(f"leave out: there is no column {name!r}; there are {', '.join(names)}")
    return pd.DataFrame(points.dataset.X, columns=list(names)).drop(columns=without)


def _code(points: Points, without: list[str], settings: dict[str, Any]) -> str:
    given = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    columns = "points.variables" if points.names == points.dataset.variables else repr(list(points.names))
    X = f"pd.DataFrame(points.X, columns={columns})" + (f".drop(columns={without!r})" if without else "")
    return (
        f"import pandas as pd\n\nimport exprkit as ek\n\n{points.code}\n"
        f"model = ek.SymbolicRegressor(niterations=10**6, {given})\nmodel.fit({X}, points.y)\nmodel.equations_"
    )
