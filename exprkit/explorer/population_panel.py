"""The population panel: a table to sort and select from, its fits, its front, its files.

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
from typing import Any

import numpy as np

import exprkit as ek
from exprkit.errors import DataError, brought_by, number_of, shortened
from exprkit.explorer.jobs import Progress, ProgressBar
from exprkit.explorer.pages import CLASS, CodeView, RowList, button, choice, line, show_if, under_heads
from exprkit.explorer.sources import EXHAUSTIVE, RANDOM, SAMPLE, Points, arguments, generated, operators_code, renamed
from exprkit.explorer.table import Table

with brought_by("notebooks"):
    import ipywidgets as widgets

WRITTEN, FILE, GIVEN = "written below", "a file", "as given"
MOST_ROWS = 1000  # to select from: the first ones of the order
DRAWINGS = 20  # of a table while it is fitted
WIDTHS = {"loss": 11, "tokens": 9, "number": 62, "parameters": 13, "structure": 12}  # of the columns, in characters


class PopulationPanel(widgets.VBox):
    """The population panel: ``rows`` are the first of its ``table``, in its order.

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
        self.pop_code = ""
        self._by, self._descending, self._selected = "loss", False, -1
        self._order = np.empty(0, np.int64)
        super().__init__([*self._make_source(), *self._make_table(), self._make_files()])

    # ── where expressions come from ──

    def _make_source(self) -> list[Any]:
        sources = [SAMPLE, WRITTEN, FILE, EXHAUSTIVE, RANDOM]
        self.source = choice("", sources, width="200px", tooltip="expressions to take")
        layout = widgets.Layout(width="190px")
        self.size = widgets.BoundedIntText(1000, min=1, max=10_000_000, description="number", layout=layout)
        self.path = widgets.Text(placeholder="path of a text file, one expression per line")
        self.written = widgets.Textarea(placeholder="one expression per line", layout=widgets.Layout(width="98%"))
        self.read_button = button("Show", self.read)
        self.fit_button = button("Fit all", lambda: self._run("fitting", self._fit))
        self.fold = widgets.Checkbox(
            False, indent=False, description="the shortest of each loss", layout=widgets.Layout(width="200px")
        )
        self.fold.observe(lambda _: self._sort(), "value")
        self.source.observe(lambda _: self._offer(), "value")
        self.written.observe(lambda change: setattr(self.source, "value", WRITTEN) if change["new"] else None, "value")
        self._offer()
        return [line(self.source, self.size, self.path, self.read_button, self.fit_button, self.fold), self.written]

    def _offer(self) -> None:
        """Show the fields that the source needs."""
        for field, sources in ((self.size, (EXHAUSTIVE, RANDOM)), (self.path, (FILE,)), (self.written, (WRITTEN,))):
            show_if(field, self.source.value in sources)

    def give(self, pop: ek.Population) -> None:
        """Offer a population of the caller's, and choose it."""
        self._given = pop
        self.source.options = [GIVEN, *self.source.options]
        self.source.value = GIVEN

    def read(self) -> None:
        """Make the population and show it, in the background."""
        self._progress_bar.run("reading", self.read_now)

    def read_now(self, progress: Progress) -> None:
        """Make the population and show it, in this thread."""
        points = self._points
        if points is not None:
            self.use(self._population(points, progress), points)

    def _population(self, points: Points, progress: Progress) -> ek.Population:
        """The population; its code is kept."""
        source = self.source.value
        if source == GIVEN and self._given is not None:
            self.pop_code = "pop = ...  # the population that was given to ek.explore"
            return self._given
        if source not in (WRITTEN, FILE):
            pop, self.pop_code = generated(source, int(self.size.value), points.dataset.X.shape[1], progress)
            return renamed(pop, points)
        lines: Any = [line.strip() for line in self.written.value.splitlines() if line.strip()]
        if source == FILE:
            lines = Path(self.path.value.strip()).expanduser()
            if not lines.name:
                raise DataError("the path of a text file is missing")
            if not lines.is_file():
                raise DataError(f"there is no file {str(lines)!r}")
        code = f"pathlib.Path({str(lines)!r})" if source == FILE else repr(lines)
        self.pop_code = f'pop = ek.parse({code}{points.names_code}, errors="mask")'
        return ek.parse(lines, variables=points.variables, errors="mask")

    def use(self, pop: ek.Population, points: Points) -> None:
        """Show a population on a data set."""
        self._points, self._selected = points, -1
        self.table = Table(pop, points.dataset, **self._options)
        self._sort()

    def set_points(self, points: Points) -> None:
        """The data of the next population; a table on another data set goes."""
        if self._points is not points:
            self._points, self.table = points, None

    # ── the table ──

    def _make_table(self) -> list[Any]:
        self.heads = {}
        for name, width in WIDTHS.items():
            cell = widgets.Layout(width=f"{width}ch", margin="0", flex="0 0 auto")
            self.heads[name] = widgets.Button(layout=cell)
            self.heads[name].on_click(lambda _, name=name: self.sort(name))
        last = widgets.HTML(f"<span class='{CLASS}' style='font:13px monospace'>fitted parameters</span>")
        self.rows = RowList(self._select, f"{sum(WIDTHS.values()) + 30}ch")
        table = under_heads(widgets.HBox([*self.heads.values(), last]), self.rows)
        self.summary, self.front, self.code = widgets.HTML(), widgets.HTML(), CodeView()
        return [self.summary, table, self.front, self.code]

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
            self._draw(self.table)

    def _draw(self, table: Table) -> None:
        """Draw rows, front and code as they are."""
        assert self._points is not None
        left = len(self._order) - MOST_ROWS
        more = f"; the first {MOST_ROWS:,} rows are shown, a CSV file has all" if left > 0 else ""
        words = "; a row that is clicked opens, as the other tabs show it"
        self.summary.value = html.escape(repr(table.pop)[1:-1] + _notes(table) + more + words)
        numbers = self._order[:MOST_ROWS]
        place = np.flatnonzero(numbers == self._selected)
        self.rows.show(_lines(table, numbers), int(place[0]) if len(place) else None)
        for name, head in self.heads.items():
            mark = "" if name != self._by else " ▼" if self._descending else " ▲"
            head.description = ("expression" if name == "number" else name) + mark
        self.front.value = table.front_page([] if self._selected < 0 else [self._selected])
        self.code.show(
            f"import pathlib\n\nimport exprkit as ek\n\n{operators_code(table.pop)}{self.pop_code}\n"
            f"{self._points.code}\nresult = ek.fit(pop, points.X, points.y{arguments(self._options)}).to_pandas()"
        )

    def _select(self, place: int) -> None:
        """A row was selected: open its expression."""
        table, number = self.table, int(self._order[place])
        if table is not None and table.pop.valid[number]:
            self._selected = number
            self.front.value = table.front_page([number])
            self._opened(table.texts([number])[0], table.params_of(number))

    # ── fits and files ──

    def _run(self, what: str, job: Callable[[Table, Progress], object]) -> None:
        """Do something with the table in the background."""
        table = self.table
        if table is not None:
            self._progress_bar.run(what, lambda progress: job(table, progress))

    def _fit(self, table: Table, progress: Progress) -> None:
        n_drawn = 0

        def draw(done: int, total: int) -> bool:
            nonlocal n_drawn
            if table is self.table and done * DRAWINGS >= (n_drawn + 1) * total:
                n_drawn = done * DRAWINGS // total
                self._sort()
            return progress(done, total)

        try:
            table.fit(draw)
        finally:  # what is fitted is shown, also when the user stops it
            if table is self.table:
                self._sort()

    def _make_files(self) -> Any:
        self.file = widgets.Text("population.csv", layout=widgets.Layout(width="260px"))
        self.csv_button = button("Write CSV", lambda: self._write(".csv"), "100px")
        self.sympy_button = button("Write SymPy", lambda: self._write(".sympy.txt"), "110px")
        self.written_to = widgets.HTML()
        return line(self.file, self.csv_button, self.sympy_button, self.written_to)

    def _write(self, suffix: str) -> None:
        name = self.file.value.strip()

        def write(table: Table, progress: Progress) -> None:
            if not (path := Path(name)).name:
                raise DataError("the name of the file is missing")
            path = path.with_suffix(suffix)
            written = table.to_csv(path) if suffix == ".csv" else table.to_sympy(path, progress)
            self.written_to.value = html.escape(str(written))

        self._run(f"writing {name}", write)


def _notes(table: Table) -> str:
    """The numbers of expressions that are fitted, and that have no loss."""
    n, done, notes = int(table.pop.valid.sum()), int(table.fitted.sum()), ""
    if done < n and table.pop.max_params:
        notes = (
            f"; {done:,} of {n:,} fitted, the others' parameters are 1" if done else "; parameters are 1 until fitted"
        )
    no_loss = int((table.pop.valid & np.isnan(table.loss)).sum())
    return notes + f"; nan: {number_of(no_loss, 'expression')} without a value at some point" * (no_loss > 0)


def _lines(table: Table, numbers: np.ndarray) -> list[str]:
    """Rows of the table, as wide as the heads."""
    lines, texts = [], table.texts(numbers)
    for row, text in zip(table.columns.iloc[numbers].itertuples(index=False), texts, strict=True):
        cells = (
            f"{row.loss:.5g}",
            f"{row.tokens:,}",
            shortened(f"{row.number}: {text}", WIDTHS["number"] - 1),
            f"{row.parameters:,}",
            f"{row.structure:,}",
        )
        params = ", ".join(f"{value:.4g}" for value in table.params_of(row.number) or ())
        lines.append("".join(f"{cell:<{width}}" for cell, width in zip(cells, WIDTHS.values(), strict=True)) + params)
    return lines
