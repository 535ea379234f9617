"""The population: a table to sort and page through, its fits, its front, its files.

Part of the explorer's view: it shows what ``table.Table`` knows.

    >>> import exprkit as ek
    >>> from exprkit.explorer.aspects import Points
    >>> from exprkit.explorer.many import PopulationPanel
    >>> panel = PopulationPanel(lambda text, params: print("open", text))
    >>> panel.use(ek.parse(["x1 + x2", "x1"]), Points(ek.data.rough_pipe()))
    >>> panel.rows.children[0].click()  # the best one
    open x1
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

import numpy as np

from exprkit import data
from exprkit.errors import DataError, brought_by
from exprkit.explorer.aspects import Points, code_page, complaint, renamed
from exprkit.explorer.meter import Meter, Progress
from exprkit.explorer.table import COLUMNS, ROWS, Row, Table
from exprkit.expressions import generate
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population

with brought_by("notebooks"):
    import ipywidgets as widgets

SAMPLE, WRITTEN, FILE, GIVEN = "the thesis's sample", "written below", "a file", "as given"
EXHAUSTIVE, RANDOM = "all up to a size", "random ones"
ROW_HEIGHT = "28px"
WIDE, NARROW = "360px", "88px"
HEADS = {"number": "expression", "parameters": "params"}  # where they differ from the column's name
ROW_CLASS = "exprkit-row"
MOST_SHOWN = 60  # characters of a row's text

Open = Callable[[str, "Sequence[float] | None"], None]


class PopulationPanel(widgets.VBox):
    """The population view.

    Parameters
    ----------
    opened : function of (text, params)
        Called when a row is chosen; ``params`` only after a fit.
    meter : Meter, optional
        Where long work runs.
    options : dict, optional
        Of the ``Evaluator``; read anew for every population.

    Attributes
    ----------
    table : Table or None
    rows : VBox of the page's buttons
    """

    def __init__(self, opened: Open, meter: Meter | None = None, options: dict[str, str] | None = None) -> None:
        self._opened, self._meter, self._options = opened, meter or Meter(), options if options is not None else {}
        self.table: Table | None = None
        self._points: Points | None = None
        self._given: Population | None = None
        self._code = ""
        self._by, self._descending, self._page, self._chosen = "loss", False, 0, -1
        self._order = np.empty(0, np.int64)
        super().__init__([self._make_source(), self._make_table(), self._make_files()])

    # ── where expressions come from ──

    def _make_source(self) -> Any:
        self.source = widgets.Dropdown(
            options=[SAMPLE, WRITTEN, FILE, EXHAUSTIVE, RANDOM], layout=widgets.Layout(width="200px")
        )
        self.size = widgets.BoundedIntText(1000, min=1, max=10_000_000, description="number",
                                           layout=widgets.Layout(width="190px"))  # fmt: skip
        self.path = widgets.Text(placeholder="path of a text file, one expression a line")
        self.written = widgets.Textarea(placeholder="one expression a line", layout=widgets.Layout(width="98%"))
        self.read_button = widgets.Button(description="Show", layout=widgets.Layout(width="80px"))
        self.read_button.on_click(lambda _: self.read())
        self.fit_button = widgets.Button(description="Fit all", layout=widgets.Layout(width="80px"))
        self.fit_button.on_click(lambda _: self.fit())
        self.source.observe(lambda _: self._offer(), "value")
        self.written.observe(lambda change: setattr(self.source, "value", WRITTEN) if change["new"] else None, "value")
        self._offer()
        head = widgets.HBox([self.source, self.size, self.path, self.read_button, self.fit_button])
        return widgets.VBox([head, self.written])

    def _offer(self) -> None:
        """Show the fields that the chosen source needs."""
        for field, sources in ((self.size, (EXHAUSTIVE, RANDOM)), (self.path, (FILE,)), (self.written, (WRITTEN,))):
            field.layout.display = None if self.source.value in sources else "none"

    def give(self, pop: Population) -> None:
        """Offer a population of the caller's, and choose it."""
        self._given = pop
        self.source.options = [GIVEN, *(option for option in self.source.options if option != GIVEN)]
        self.source.value = GIVEN

    def read(self) -> None:
        """Make the chosen population and show it, beside the notebook's messages."""
        points = self._points
        if points is not None:
            self._meter.run("reading", lambda stop, progress: self.use(self._population(points), points))

    def _population(self, points: Points) -> Population:
        """The chosen population; its code is kept."""
        names, n_vars = points.variables, points.dataset.X.shape[1]
        source, size = self.source.value, int(self.size.value)
        named = f", variables={list(names)!r}" if names else ""
        if source == GIVEN and self._given is not None:
            self._code = "pop = ...  # the population that was given to ek.explore"
            return self._given
        if source == WRITTEN:
            lines = [line.strip() for line in self.written.value.splitlines() if line.strip()]
            self._code = f'pop = ek.parse({lines!r}{named}, errors="mask")'
            return parse(lines, variables=names, errors="mask")
        if source == FILE:
            path = Path(self.path.value).expanduser()
            if not path.is_file():
                raise DataError(f"there is no file {str(path)!r}")
            self._code = f'pop = ek.parse(Path({str(path)!r}){named}, errors="mask")  # from pathlib import Path'
            return parse(path, variables=names, errors="mask")
        if source == SAMPLE:
            self._code = "pop = ek.parse(ek.data.esr_sample())"
            return renamed(parse(data.esr_sample()), points)
        if source == RANDOM:
            self._code = f"pop = ek.generate.random({size}, n_vars={n_vars})"
            return renamed(generate.random(size, n_vars=n_vars), points)
        nodes = next(n for n in range(1, 50) if generate.count_exhaustive(n, n_vars=n_vars) >= size)
        self._code = f"pop = ek.generate.exhaustive({nodes}, n_vars={n_vars})[:{size}]"
        return renamed(generate.exhaustive(nodes, n_vars=n_vars)[:size], points)

    def use(self, pop: Population, points: Points) -> None:
        """Show a population on a data set."""
        self._points = points
        self.table = Table(pop, points.dataset, **self._options)
        self._chosen = -1
        self._sort()

    def set_points(self, points: Points) -> None:
        """The data of the next population; what is shown of another data set goes."""
        if self._points is not points:
            self._points, self.table = points, None

    # ── the table ──

    def _make_table(self) -> Any:
        self.heads = []
        for name in COLUMNS:
            width = WIDE if name == "number" else NARROW
            head = widgets.Button(layout=widgets.Layout(width=width, margin="0", height=ROW_HEIGHT))
            head.on_click(lambda _, name=name: self.sort(name))
            self.heads.append(head)
        self.rows = widgets.VBox([self._row_button(place) for place in range(ROWS)])
        self.cells, self.front, self.code = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self.before = widgets.Button(description="◀", layout=widgets.Layout(width="44px"))
        self.after = widgets.Button(description="▶", layout=widgets.Layout(width="44px"))
        self.before.on_click(lambda _: self.turn(-1))
        self.after.on_click(lambda _: self.turn(1))
        self.where = widgets.HTML()
        self.summary = widgets.HTML()
        return widgets.VBox([
            self.summary, widgets.HBox(self.heads), widgets.HBox([self.rows, self.cells]),
            widgets.HBox([self.before, self.where, self.after]), self.front, self.code,
        ])  # fmt: skip

    def _row_button(self, place: int) -> Any:
        layout = widgets.Layout(width=WIDE, height=ROW_HEIGHT, margin="0")
        button = widgets.Button(layout=layout, style={"font_family": "monospace"})
        button.add_class(ROW_CLASS)
        button.on_click(lambda _: self.choose(place))
        return button

    def sort(self, by: str) -> None:
        """Sort by a column; the other way round if it is the one already."""
        self._descending = not self._descending if by == self._by else False
        self._by = by
        self._sort()

    def _sort(self) -> None:
        if self.table is not None:
            self._order = self.table.order(self._by, self._descending)
            self._page = 0
            self.draw()

    def turn(self, pages: int) -> None:
        """Turn pages."""
        if self.table is not None:
            self._page = min(max(self._page + pages, 0), self.table.n_pages() - 1)
            self._draw_rows()

    def choose(self, place: int) -> None:
        """Open the expression in a row of the page."""
        if self.table is None or self._page * ROWS + place >= len(self._order):
            return
        row = self.table.page(self._order, self._page)[place]
        if row.tokens:
            self._chosen = row.number
            self.draw()
            self._opened(row.text, row.params)

    def draw(self) -> None:
        """Draw rows and front as they are."""
        if self.table is None:
            return
        unfitted = "" if self.table.fitted.all() or not self.table.pop.max_params else "; parameters are 1 until fitted"
        self.summary.value = html.escape(repr(self.table.pop)[1:-1] + unfitted)
        self._draw_rows()
        self.front.value = self.table.front_chart(None if self._chosen < 0 else self._chosen)
        points = self._points.code if self._points else ""
        code = f"import exprkit as ek\nfrom exprkit.explorer.table import Table\n\n{self._code}\n{points}\n"
        self.code.value = code_page(f"{code}table = Table(pop, points)\ntable.to_pandas().sort_values({self._by!r})")

    def _draw_rows(self) -> None:
        table = self.table
        if table is None:
            return
        shown = table.page(self._order, self._page)
        for place, button in enumerate(self.rows.children):
            button.layout.display = None if place < len(shown) else "none"
            if place < len(shown):
                row = shown[place]
                button.description = f"{row.number}: {_short(row.text)}"
                button.tooltip = row.text[:1000]
                button.button_style = "info" if row.number == self._chosen else ""
        self.cells.value = _cells(shown)
        for head, name in zip(self.heads, COLUMNS, strict=True):
            mark = "" if name != self._by else " ▼" if self._descending else " ▲"
            head.description = HEADS.get(name, name) + mark
        self.where.value = f"page {self._page + 1:,} of {table.n_pages():,}"

    # ── fits and files ──

    def fit(self) -> None:
        """Fit all expressions, beside the notebook's messages."""
        if self.table is not None:
            table = self.table
            self._meter.run("fitting", lambda stop, progress: self._fit(table, stop, progress))

    def _fit(self, table: Table, stop: Event, progress: Progress) -> None:
        next_look = monotonic()

        def shown(done: int, total: int) -> None:
            nonlocal next_look
            progress(done, total)
            if monotonic() > next_look and table is self.table:
                begin = monotonic()
                self._sort()
                next_look = monotonic() + max(0.5, 20 * (monotonic() - begin))  # of a large table the less often

        table.fit(stop, shown, **self._options)
        if table is self.table:
            self._sort()

    def _make_files(self) -> Any:
        self.file = widgets.Text("population.csv", layout=widgets.Layout(width="260px"))
        self.csv_button = widgets.Button(description="Write CSV", layout=widgets.Layout(width="100px"))
        self.sympy_button = widgets.Button(description="Write SymPy", layout=widgets.Layout(width="110px"))
        self.csv_button.on_click(lambda _: self._write("to_csv", ".csv"))
        self.sympy_button.on_click(lambda _: self._write("to_sympy", ".sympy.txt"))
        self.written_to = widgets.HTML()
        return widgets.HBox([self.file, self.csv_button, self.sympy_button, self.written_to])

    def _write(self, how: str, suffix: str) -> None:
        table, path = self.table, Path(self.file.value).expanduser().with_suffix(suffix)
        if table is None:
            return

        def job(stop: Event, progress: Progress) -> None:
            written = table.to_csv(path) if how == "to_csv" else table.to_sympy(path, stop, progress)
            self.written_to.value = html.escape(str(written)) if written else ""

        self._meter.run(f"writing {path.name}", job)

    def failed(self, error: Exception) -> None:
        """Show what went wrong."""
        self.summary.value = complaint(error)


def _short(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 2] + " …"


def _cells(rows: Sequence[Row]) -> str:
    """The numbers beside the rows' buttons."""
    lines = []
    for row in rows:
        params = "" if row.params is None else ", ".join(f"{value:.4g}" for value in row.params)
        cells = (f"{row.tokens:,}", f"{row.structure:,}", f"{row.parameters:,}", f"{row.loss:.5g}")
        style = f"width:{NARROW};padding:0;text-align:center"
        numbers = "".join(f"<td style='{style}'>{cell}</td>" for cell in cells)
        lines.append(f"<tr style='height:{ROW_HEIGHT}'>{numbers}<td style='padding:0 10px'>{params}</td></tr>")
    style = f"border-collapse:collapse;line-height:{ROW_HEIGHT};white-space:nowrap"
    left = f"<style>.{ROW_CLASS} {{ text-align: left; padding: 0 6px }}</style>"
    return f'{left}<table style="{style}">{"".join(lines)}</table>'
