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

import contextlib
import html
from collections.abc import Callable
from typing import Any

import numpy as np

import exprkit as ek
from exprkit.errors import ArgumentError, brought_by
from exprkit.explorer import drawings
from exprkit.explorer.jobs import Progress, ProgressBar, Stopped
from exprkit.explorer.pages import CodeView, RowList, button, line, under_heads
from exprkit.explorer.sources import Points, arguments
from exprkit.text.tokens import CONSTANT, PARAMETER

with brought_by("notebooks"):
    import ipywidgets as widgets
    import pandas as pd

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
        self._front = NONE  # sizes and losses
        width = {"layout": widgets.Layout(width="180px")}
        self.seconds = widgets.BoundedFloatText(SECONDS, min=0.1, max=1e6, description="seconds", **width)
        self.maxsize = widgets.BoundedIntText(MAXSIZE, min=1, max=100, description="most tokens", **width)
        self.unary, self.without = (
            widgets.Text(placeholder=usual, description=name, tooltip=words, layout=widgets.Layout(width="280px"))
            for name, usual, words in (
                ("functions", "all that are usual", "exp, log, … separated by commas"),
                ("leave out", "no column", "columns that formulas may not use, separated by commas"),
            )
        )
        self.button = button("Search", self.start, "100px", icon="search")
        self.rows = RowList(self._select, "40ch")
        self.summary, self.front, self.code = widgets.HTML(), widgets.HTML(), CodeView()
        self.summary.value = "looks for formulas of the target; a row that is clicked opens, as all other tabs show it"
        heads = widgets.HTML(f"<pre style='font:13px monospace;margin:0'>{'size':<6}{'loss (rmse)':<12}formula</pre>")
        fields = line(self.seconds, self.maxsize, self.unary, self.without, self.button)
        super().__init__([fields, self.summary, under_heads(heads, self.rows), self.front, self.code])

    def start(self) -> None:
        """Search, in the background."""
        points = self.points
        self._progress_bar.run("searching", lambda progress: self._search(points, progress), " s")

    def wait(self, timeout: float | None = None) -> str:
        """Wait until the search has ended; says why it has."""
        self._progress_bar.wait(timeout)
        return "" if self.model is None else str(self.model.stopped_)

    def _search(self, points: Points, progress: Progress) -> None:
        seconds = float(self.seconds.value)
        settings: dict[str, Any] = {"timeout_in_seconds": seconds, "maxsize": self.maxsize.value, "random_state": 0}
        unary, without = (
            [name.strip() for name in field.value.split(",") if name.strip()] for field in (self.unary, self.without)
        )
        if unary:
            settings["unary_operators"] = unary
        table = _table(points, without)
        self.model, self._searched = None, points
        self.code.show(_code(points, without, settings))
        self._show([], [], [])

        def look(view: Any) -> bool:
            with contextlib.suppress(Stopped):  # the search ends itself, and keeps what it has
                progress(min(int(view.seconds), int(seconds)), max(int(seconds), 1))
            self.summary.value = html.escape(f"{view.stage}; {view.n_evals:,} functions tried")
            self._show(view.complexity, view.loss, view.equation)
            return self._progress_bar.stop.is_set()

        model = ek.SymbolicRegressor(**settings, niterations=10**6, progress=look)
        model.fit(table, points.dataset.y)
        equations, self.model = model.equations_, model
        best = str(model.get_best().equation)
        sizes, losses, texts = (equations[name].tolist() for name in ("complexity", "loss", "equation"))
        self._show(sizes, losses, texts, best)
        words = f"{model.stopped_}; {model.n_evals_:,} functions tried; selected: {_shortened(best, points)}"
        self.summary.value = html.escape(words)

    def _show(self, sizes: list[int], losses: list[float], texts: list[str], best: str = "") -> None:
        """The front, if it has changed, the search's choice marked; the user's selection stays."""
        if texts == self._texts and texts and not best:
            return
        selected = None if self.rows.index is None else self._texts[self.rows.index]
        self._texts, self._front = texts, (np.array(sizes, float), np.sqrt(losses))
        rows = zip(sizes, self._front[1].tolist(), texts, strict=True)
        lines = [
            f"{size:<6}{loss:<12.5g}{_shortened(text, self._searched)}" + "   ◀ selected" * (text == best)
            for size, loss, text in rows
        ]
        self.rows.show(lines, texts.index(selected) if selected in texts else None)
        self._draw()

    def _draw(self) -> None:
        at = self.rows.index
        selected = NONE if at is None else (self._front[0][[at]], self._front[1][[at]])
        titles = [*self._texts, *([] if at is None else [self._texts[at]])]
        self.front.value = drawings.front_page(NONE, self._front, selected, titles) if self._texts else ""

    def _select(self, place: int) -> None:
        """A row was selected: open its formula."""
        self._draw()
        self._opened(*_with_parameters(self._texts[place], self._searched))


def _with_parameters(text: str, points: Points) -> tuple[str, list[float]]:
    """A formula with parameters in the place of its numbers, and these."""
    formula = ek.parse(text, variables=points.variables)[0]
    places = formula.kinds == CONSTANT
    kinds, values = formula.kinds.copy(), formula.values.copy()
    numbers = values[places].view(np.float64).tolist()
    kinds[places], values[places] = PARAMETER, np.arange(len(numbers), dtype=np.uint64)
    return str(ek.Expression(kinds, values, formula.variables)), numbers


def _shortened(text: str, points: Points) -> str:
    """A formula, its numbers with four digits."""
    free, numbers = _with_parameters(text, points)
    formula = ek.parse(free, variables=points.variables)[0]
    return str(formula.with_numbers([float(f"{number:.4g}") for number in numbers]))


def _table(points: Points, without: list[str]) -> pd.DataFrame:
    """The variables' columns by their names, but for some."""
    for name in without:
        if name not in points.names:
            raise ArgumentError(f"leave out: there is no column {name!r}; there are {', '.join(points.names)}")
    return pd.DataFrame(points.dataset.X, columns=list(points.names)).drop(columns=without)


def _code(points: Points, without: list[str], settings: dict[str, Any]) -> str:
    columns = "points.variables" if points.names == points.dataset.variables else repr(list(points.names))
    X = f"pd.DataFrame(points.X, columns={columns})" + (f".drop(columns={without!r})" if without else "")
    return (
        f"import pandas as pd\n\nimport exprkit as ek\n\n{points.code}\n"
        f"model = ek.SymbolicRegressor(niterations=10**6{arguments(settings)})\n"
        f"model.fit({X}, points.y)\nmodel.equations_"
    )
