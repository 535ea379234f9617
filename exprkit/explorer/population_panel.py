"""The population panel: a table to sort and page through, its fits, its front, its files.

In: expressions from a sample, a text, a file or a generator.  Out: what ``table.Table`` knows of them; a row that
is selected opens.

    >>> import exprkit as ek
    >>> from exprkit.explorer.sources import Points
    >>> from exprkit.explorer.population_panel import PopulationPanel
    >>> panel = PopulationPanel(lambda text, params: print("open", text))
    >>> panel.use(ek.parse(["x1 + x2", "x1"]), Points(ek.data.rough_pipe()))
    >>> panel.rows.index = 0  # the best one
    open x1
"""

from __future__ import annotations

import html
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

import exprkit as ek
from exprkit.errors import DataError, brought_by, number_of
from exprkit.explorer.jobs import Progress, ProgressBar, Stopped
from exprkit.explorer.pages import CLASS, FONT, CodeView, button, choice, show_if
from exprkit.explorer.sources import EXHAUSTIVE, RANDOM, SAMPLE, Points, arguments, generated, operators_code, renamed
from exprkit.explorer.table import COLUMNS, Row, Table

with brought_by("notebooks"):
    import ipywidgets as widgets

WRITTEN, FILE, GIVEN = "written below", "a file", "as given"
ROWS = 12  # of a page
WIDTHS = (11, 9, 62, 13, 12)  # of the columns, in characters; a narrow page shows the first ones
DRAWINGS = 20  # of a table while it is fitted


class PopulationPanel(widgets.VBox):
    """The population panel: ``rows`` is a page of its ``table``.

    ``opened(text, params)`` is called when a row is selected, with parameters only after a fit; ``options``, the
    ``Evaluator``'s, are read anew for every population.
    """

    def __init__(
        self,
        opened: Callable[[str, list[float] | None], None],
        progress_bar: ProgressBar | None = None,
        options: dict[str, str] | None = None,
    ) -> None:
        self._opened, self._progress_bar = opened, progress_bar or ProgressBar()
        self._options = {} if options is None else options
        self.table: Table | None = None
        self._points: Points | None = None
        self._given: ek.Population | None = None
        self._code = ""
        self._by, self._descending, self._chosen = "loss", False, -1
        self._order = np.empty(0, np.int64)
        super().__init__([self._make_source(), self._make_table(), self._make_files()])

    # ── where expressions come from ──

    def _make_source(self) -> Any:
        self.source = choice("", [SAMPLE, WRITTEN, FILE, EXHAUSTIVE, RANDOM], width="200px")
        self.size = widgets.BoundedIntText(
            1000, min=1, max=10_000_000, description="number", layout=widgets.Layout(width="190px")
        )
        self.path = widgets.Text(placeholder="path of a text file, one expression per line")
        self.written = widgets.Textarea(placeholder="one expression per line", layout=widgets.Layout(width="98%"))
        self.read_button = button("Show", lambda: self.read())
        self.fit_button = button("Fit all", lambda: self._run("fitting", self._fit))
        self.fold = widgets.Checkbox(
            False, indent=False, description="the shortest of each loss", layout=widgets.Layout(width="200px")
        )
        self.fold.observe(lambda _: self._sort(), "value")
        self.source.observe(lambda _: self._offer(), "value")
        self.written.observe(lambda change: setattr(self.source, "value", WRITTEN) if change["new"] else None, "value")
        self._offer()
        fields = [self.source, self.size, self.path, self.read_button, self.fit_button, self.fold]
        head = widgets.HBox(fields, layout=widgets.Layout(flex_flow="row wrap"))
        return widgets.VBox([head, self.written])

    def _offer(self) -> None:
        """Show the fields that the source needs."""
        for field, sources in ((self.size, (EXHAUSTIVE, RANDOM)), (self.path, (FILE,)), (self.written, (WRITTEN,))):
            show_if(field, self.source.value in sources)

    def give(self, pop: ek.Population) -> None:
        """Offer a population of the caller's, and choose it."""
        self._given = pop
        self.source.options = [GIVEN, *(option for option in self.source.options if option != GIVEN)]
        self.source.value = GIVEN

    def read(self) -> None:
        """Make the population and show it, beside the notebook's messages."""
        points = self._points
        if points is not None:
            self._progress_bar.run("reading", lambda stop, progress: self._read(points, stop, progress))

    def _read(self, points: Points, stop: Event, progress: Progress) -> None:
        def shown(done: int, total: int) -> None:
            progress(done, total)
            if stop.is_set():
                raise Stopped

        self.use(self._population(points, shown), points)

    def _population(self, points: Points, progress: Callable[[int, int], None]) -> ek.Population:
        """The population; its code is kept."""
        source = self.source.value
        if source == GIVEN and self._given is not None:
            self._code = "pop = ...  # the population that was given to ek.explore"
            return self._given
        if source not in (WRITTEN, FILE):
            pop, self._code = generated(source, int(self.size.value), points.dataset.X.shape[1], progress)
            return renamed(pop, points)
        lines: Any = [line.strip() for line in self.written.value.splitlines() if line.strip()]
        if source == FILE:
            lines = Path(self.path.value.strip()).expanduser()
            if not lines.name:
                raise DataError("the path of a text file is missing")
            if not lines.is_file():
                raise DataError(f"there is no file {str(lines)!r}")
        shown = f"pathlib.Path({str(lines)!r})" if source == FILE else repr(lines)
        self._code = f'pop = ek.parse({shown}{points.names_code}, errors="mask")'
        return ek.parse(lines, variables=points.variables, errors="mask")

    def use(self, pop: ek.Population, points: Points) -> None:
        """Show a population on a data set."""
        self._points, self._chosen = points, -1
        self.table = Table(pop, points.dataset, **self._options)
        self._sort()

    def set_points(self, points: Points) -> None:
        """The data of the next population; what is shown of another data set goes."""
        if self._points is not points:
            self._points, self.table = points, None

    # ── the table ──

    def _make_table(self) -> Any:
        cells = [widgets.Layout(width=f"{width}ch", margin="0", flex="0 0 auto") for width in WIDTHS]
        self.heads = [widgets.Button(layout=cell) for cell in cells]
        for name, head in zip(COLUMNS, self.heads, strict=True):
            head.on_click(lambda _, name=name: self.sort(name))
        wide = widgets.Layout(width="calc(100% - 4px)", min_width=f"{sum(WIDTHS) + 30}ch")  # with its borders
        self.rows = widgets.Select(rows=ROWS, layout=wide)
        self.rows.observe(self._select, "index")
        self.page = widgets.BoundedIntText(1, min=1, max=1, description="page", layout=widgets.Layout(width="190px"))
        self.page.observe(lambda _: self._draw_rows(), "value")
        self.n_pages, self.summary, self.front, self.code = widgets.HTML(), widgets.HTML(), widgets.HTML(), CodeView()
        last = widgets.HTML(f"<span class='{CLASS}' style='font:13px monospace'>fitted parameters</span>")
        table = widgets.VBox([widgets.HBox([*self.heads, last]), self.rows], layout=widgets.Layout(overflow="auto"))
        table.add_class(CLASS)
        pages = widgets.HBox([self.page, self.n_pages])
        return widgets.VBox([widgets.HTML(FONT), self.summary, table, pages, self.front, self.code])

    def sort(self, by: str) -> None:
        """Sort by a column; the other way round if it is the one already."""
        self._descending = not self._descending if by == self._by else False
        self._by = by
        self._sort()

    def _sort(self) -> None:
        if self.table is not None:
            self._order = self.table.order(self._by, self._descending)
            if self.fold.value:
                self._order = self._order[self.table.shortest()[self._order]]
            self.page.value = 1
            self.page.max = max(1, -(-len(self._order) // ROWS))
            self.n_pages.value = f"of {self.page.max:,}"
            self.draw()

    def draw(self) -> None:
        """Draw rows, front and code as they are."""
        table = self.table
        if table is None or self._points is None:
            return
        summary = repr(table.pop)[1:-1] + _fitted_so_far(table) + _not_finite(table)
        self.summary.value = html.escape(f"{summary}; a row that is clicked opens, as the other tabs show it")
        self._draw_rows()
        self.front.value = table.front_page(None if self._chosen < 0 else self._chosen)
        self.code.show(
            f"import pathlib\n\nimport exprkit as ek\n\n{operators_code(table.pop)}{self._code}\n{self._points.code}\n"
            f"result = ek.fit(pop, points.X, points.y{arguments(self._options)}).to_pandas()"
        )

    @property
    def _first(self) -> int:
        """Where the page begins in the order."""
        return ROWS * (int(self.page.value) - 1)

    def _draw_rows(self) -> None:
        if self.table is None:
            return
        page = self.table.rows(self._order[self._first : self._first + ROWS])
        self.rows.unobserve(self._select, "index")  # of the user's selections only
        self.rows.options = [_line(row) for row in page]
        self.rows.index = next((place for place, row in enumerate(page) if row.number == self._chosen), None)
        self.rows.observe(self._select, "index")
        for head, name in zip(self.heads, COLUMNS, strict=True):
            mark = "" if name != self._by else " ▼" if self._descending else " ▲"
            head.description = ("expression" if name == "number" else name) + mark

    def _select(self, change: Any) -> None:
        """A row was selected: open its expression."""
        if self.table is None or change["new"] is None:
            return
        row = self.table.rows(self._order[[self._first + change["new"]]])[0]
        if row.tokens:
            self._chosen = row.number
            self.front.value = self.table.front_page(row.number)
            self._opened(row.text, row.params)

    # ── fits and files ──

    def _run(self, what: str, job: Callable[[Table, Event, Progress], object]) -> None:
        """Do something with the table beside the notebook's messages."""
        table = self.table
        if table is not None:
            self._progress_bar.run(what, lambda stop, progress: job(table, stop, progress))

    def _fit(self, table: Table, stop: Event, progress: Progress) -> None:
        drawn = 0

        def shown(done: int, total: int) -> bool:
            nonlocal drawn
            if table is self.table and done * DRAWINGS >= (drawn + 1) * total:
                drawn = done * DRAWINGS // total
                self._sort()
            return progress(done, total)

        table.fit(stop, shown)
        if table is self.table:
            self._sort()

    def _make_files(self) -> Any:
        self.file = widgets.Text("population.csv", layout=widgets.Layout(width="260px"))
        self.csv_button = button("Write CSV", lambda: self._write(".csv"), "100px")
        self.sympy_button = button("Write SymPy", lambda: self._write(".sympy.txt"), "110px")
        self.written_to = widgets.HTML()
        wrapped = widgets.Layout(flex_flow="row wrap")
        return widgets.HBox([self.file, self.csv_button, self.sympy_button, self.written_to], layout=wrapped)

    def _write(self, suffix: str) -> None:
        named = self.file.value.strip()

        def write(table: Table, stop: Event, progress: Progress) -> None:
            if not (path := Path(named)).name:
                raise DataError("the name of the file is missing")
            path = path.with_suffix(suffix)
            written = table.to_csv(path) if suffix == ".csv" else table.to_sympy(path, stop, progress)
            self.written_to.value = html.escape(str(written or ""))

        self._run(f"writing {named}", write)


def _fitted_so_far(table: Table) -> str:
    n, done = int(table.pop.valid.sum()), int(table.fitted.sum())
    if done == n or not table.pop.max_params:
        return ""
    return f"; {done:,} of {n:,} fitted, the others' parameters are 1" if done else "; parameters are 1 until fitted"


def _not_finite(table: Table) -> str:
    n = int((table.pop.valid & np.isnan(table.loss)).sum())
    return f"; nan: {number_of(n, 'expression')} without a value at some point" if n else ""


def _line(row: Row) -> str:
    """A row of the page, as wide as the heads."""
    text, most = f"{row.number}: {row.text}", WIDTHS[COLUMNS.index("number")]
    text = text if len(text) < most else text[: most - 3] + " …"
    params = ", ".join(f"{value:.4g}" for value in row.params or ())
    cells = f"{row.loss:.5g}", f"{row.tokens:,}", text, f"{row.parameters:,}", f"{row.structure:,}"
    return "".join(f"{cell:<{width}}" for cell, width in zip(cells, WIDTHS, strict=True)) + params
