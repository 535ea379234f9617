"""``exprkit.explore``: the explorer widget and its tabs.

Puts the panels together.  Handlers only put jobs into a queue; what is shown first is made at once, so that a
notebook shows it without a click.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import exprkit as ek
from exprkit.errors import ArgumentError, ExprkitError, brought_by, checks_keywords
from exprkit.explorer import pages
from exprkit.explorer.fit_panel import FitPanel, Numbers
from exprkit.explorer.inspectors import INSPECTORS, Subject, formula
from exprkit.explorer.jobs import JobQueue, ProgressBar
from exprkit.explorer.population_panel import PopulationPanel
from exprkit.explorer.race import RacePanel
from exprkit.explorer.search_panel import SearchPanel
from exprkit.explorer.sources import Points, points_of, renamed, uploaded

with brought_by("notebooks"):
    import ipywidgets as widgets

FIRST = "p1 * x1 ^ p2 + p3 / x2"
FIRST_PARAMS = (1.5, -0.25, 0.05)  # near its fit to the rough pipe
PAUSE = 0.25  # seconds without a key, then the text is read
N_EXAMPLES = 20
CURVE, POPULATION, SEARCH, RACE = "Curve and fit", "Population", "Search", "Race"
ROUGH_PIPE, NIKURADSE, CSV, YOURS = "rough pipe (synthetic)", "Nikuradse (downloaded)", "a CSV file", "your table"


@checks_keywords
def explore(
    expression: str | ek.Expression | None = None,
    table: Any = None,
    target: str | None = None,
    *,
    population: Any = None,
    backend: str = "auto",
    precision: str = "ieee",
    dtype: str = "float32",
) -> Explorer:
    """Show the explorer in a notebook: one expression at every stage, its fit, populations and searches.

    Parameters
    ----------
    expression : str or Expression, optional
        The expression shown first; by default an example.
    table : Dataset, DataFrame, mapping of columns or path of a CSV file, optional
        The data; by default ``data.rough_pipe()``.  A table's columns are the variables by
        their own names where these can be names, else ``x1, x2, …``.
    target : str, optional
        The target column of the table; by default the last one.
    population : Population, or whatever ``parse`` takes, optional
        For the population panel; by default the thesis's sample.
    backend, precision, dtype
        As for ``Evaluator``.

    Returns
    -------
    Explorer
        A widget, which is displayed if it is the last line of a cell.

    Raises
    ------
    ParseError, DataError
        If ``expression``, ``table`` or ``population`` is none.
    ArgumentError
        If ``expression`` is a population, or ``target`` is given without ``table``.
    BackendError
        If the backend can't run here.
    MissingError
        If ipywidgets is not installed.

    Examples
    --------
    >>> import exprkit as ek
    >>> explorer = ek.explore("p1 + p2 / x2")
    >>> explorer.expression, explorer.params.tolist()
    (<Expression: p1 + p2 / x2>, [1.0, 1.0])
    """
    if isinstance(expression, ek.Population):
        raise ArgumentError("explore shows one expression; give a population as population=")
    points = points_of(table, target)
    if expression is None:
        expression = FIRST if points.variables is None else "p1"
    if population is not None and not isinstance(population, ek.Population):
        population = ek.parse(population, variables=points.variables)
    return Explorer(expression, points, population, backend=backend, precision=precision, dtype=dtype)


def _examples() -> list[str]:
    """Expressions to begin with, shortest first: some of the thesis's that have parameters."""
    pop = ek.parse(ek.data.esr_sample())
    own = pop[pop.n_params > 0]
    return [FIRST, *own[np.argsort(own.n_tokens, kind="stable")].texts()[:N_EXAMPLES]]


class Explorer(widgets.VBox):
    """The widget that ``explore`` makes.

    Attributes
    ----------
    expression : Expression
        The last text without an error.
    params : float64 array, (n_params,)
        Its parameters.
    result : FitResult or None
        Of its last fit, until a slider is moved.
    population : Population or None
        That of the population panel.
    search_panel : SearchPanel
        Its ``model`` is the regressor of the last search.
    text : ipywidgets.Text
    """

    def __init__(
        self, expression: str | ek.Expression, points: Points, population: ek.Population | None, **options: str
    ) -> None:
        subject = Subject(expression, points, **options)
        subject.evaluator()  # raises what is wrong with the options before any widget is made
        self._options, self._given = options, points
        self.queue, self.progress_bar = JobQueue(self._failed), ProgressBar()
        self.fit_panel = FitPanel(self.queue, self.progress_bar)
        self.population_panel = PopulationPanel(self._select, self.progress_bar, options)
        self.search_panel = SearchPanel(self._select, self.progress_bar)
        self.race_panel = RacePanel(self.population_panel, self.progress_bar, options)
        self.inspectors = {name: widgets.HTMLMath() for name in INSPECTORS}
        self.codes = {name: pages.CodeView() for name in INSPECTORS}
        sides = [widgets.VBox([self.inspectors[name], self.codes[name]]) for name in INSPECTORS]
        panels = self.population_panel, self.search_panel, self.race_panel
        self.tabs = widgets.Tab(
            [self.fit_panel, *sides, *panels], titles=(CURVE, *INSPECTORS, POPULATION, SEARCH, RACE)
        )
        self._fresh: set[str] = set()  # inspectors that show the expression as it is
        self.tabs.add_class(pages.TABS)
        self.formula, self.error, self.columns = widgets.HTMLMath(), widgets.HTML(), widgets.HTML()
        head = self._make_head(subject.text), self.columns, self.formula, self.error, self._make_options()
        look = widgets.HTML(pages.LOOK, layout=widgets.Layout(display="none"))
        super().__init__([look, *head, self.tabs, self.progress_bar])
        self.add_class(pages.WHOLE)
        self._use(points)
        if population is not None:
            self.population_panel.give(population)
        self._show(subject, FIRST_PARAMS if subject.text == FIRST and points.code == Points.code else None)
        self.tabs.observe(lambda _: self.queue.put("tab", self._draw_tab), "selected_index")

    @property
    def expression(self) -> ek.Expression:
        return self._subject.expression

    @property
    def params(self) -> np.ndarray:
        return self.fit_panel.params.copy()

    @property
    def result(self) -> ek.FitResult | None:
        return self.fit_panel.result

    @property
    def population(self) -> ek.Population | None:
        table = self.population_panel.table
        return None if table is None else table.pop

    # ── widgets ──

    def _make_head(self, text: str) -> Any:
        layout = widgets.Layout(flex="1 1 280px")
        self.text = widgets.Text(text, placeholder="an expression", description="expression", layout=layout)
        self.text.observe(lambda change: self._type(change["new"]), "value")
        texts = [("pick one …", ""), *((text, text) for text in _examples())]
        self.examples = pages.choice("", texts, "", width="170px", tooltip="examples of expressions")
        self.examples.observe(lambda change: self._example(change["new"]), "value")
        return pages.line(self.text, self.examples)

    def _make_options(self) -> Any:
        offered = [ROUGH_PIPE, NIKURADSE, CSV]
        self.data = pages.choice(
            "data", offered if self._given.code == Points.code else [YOURS, *offered], width="270px"
        )
        self.data.observe(lambda change: self._choose_data(change["new"], change["old"]), "value")
        self.path, self.target, self.chosen = fields = [
            widgets.Text(placeholder=words, continuous_update=False, layout=widgets.Layout(width="260px"))
            for words in (
                "path of a CSV file of any size",
                "target: its column (or the last)",
                "columns: a, b, … (or all others)",
            )
        ]
        for field in fields:
            field.observe(lambda _: self._load(), "value")
        self.read_button = pages.button("Read", self._load, "70px", tooltip="read the file anew")
        self.upload = widgets.FileUpload(
            accept=".csv,.tsv,.txt",
            description="Upload, up to 10 MB",
            layout=widgets.Layout(width="225px"),
            tooltip="a larger file ends Jupyter's connection: write its path into the field instead",
        )
        self.upload.observe(lambda _: self._load_uploaded(), "value")
        self.csv = pages.line(*fields, self.read_button, self.upload)
        pages.show_if(self.csv, False)
        usable = ["auto", *(name for name, status in ek.backends().items() if status.available)]
        self.backend = pages.choice("backend", usable, self._options["backend"])
        self.precision = pages.choice("precision", ["ieee", "fast"], self._options["precision"])
        self.dtype = pages.choice("type", ["float32", "float64"], self._options["dtype"])
        options = {"backend": self.backend, "precision": self.precision, "dtype": self.dtype}
        for name, option in options.items():
            option.observe(lambda change, name=name: self._set_option(name, change["new"]), "value")
        return pages.line(self.data, self.csv, *options.values())

    # ── what happens ──

    def _type(self, text: str) -> None:
        """A key was pressed, or the text was set."""
        self.queue.put("text", lambda: self._read(text), delay=PAUSE)

    def _read(self, text: str) -> None:
        if text != self._subject.text or self.error.value:
            self._open(text)

    def _select(self, text: str, params: Numbers | None) -> None:
        """An expression of the population was selected: its curve is shown."""
        self.tabs.selected_index = 0
        self.queue.put("text", lambda: self._write(text, params or ()))

    def _example(self, text: str) -> None:
        if text:
            self.queue.put("text", lambda: self._write(renamed(ek.parse(text), self._points).texts()[0], ()))

    def _open(self, text: str, params: Numbers | None = None) -> None:
        """Show an expression, or an error with its caret, and the one before pale."""
        self._outdate()
        try:
            subject = Subject(text, self._points, **self._options)
        except ExprkitError as error:
            self.error.value = pages.error_page(error)
        else:
            self._show(subject, params)

    def _outdate(self) -> None:
        """Make pale what is of another expression or other data."""
        for old in (self.formula, self.tabs):
            old.add_class(pages.STALE)

    def _write(self, text: str, params: Numbers | None = None) -> None:
        """Show an expression that was not typed, and write it into the field."""
        self._open(text, params)
        self.text.value = text

    def _show(self, subject: Subject, params: Numbers | None = None) -> None:
        self._subject = subject
        self.error.value = ""
        self.formula.value = formula(subject).page
        self.fit_panel.show(subject, params)
        for current in (self.formula, self.tabs):
            current.remove_class(pages.STALE)
        self._fresh.clear()
        self._draw_tab()

    def _draw_tab(self) -> None:
        """Draw the tab that is open, if it does not show the expression as it is."""
        name = self.tabs.titles[self.tabs.selected_index or 0]
        if name == POPULATION and self.population_panel.table is None:
            self.population_panel.read()
        if name in self.inspectors and name not in self._fresh:
            self._fresh.add(name)
            self._inspect(name)

    def _inspect(self, name: str) -> None:
        inspector, code = self.inspectors[name], self.codes[name]
        inspector.value = pages.text_page("computing …")  # of the first time, what there is to compile, too
        pages.show_if(code, False)
        try:
            view = INSPECTORS[name](self._subject)
        except Exception as error:  # what cannot be shown here leaves the others
            inspector.value = pages.error_page(error)
        else:
            inspector.value = view.page
            code.show(view.code)
            pages.show_if(code, True)

    def _set_option(self, name: str, value: str) -> None:
        self._options[name] = value
        self.queue.put("option", lambda: self._open(self._subject.text, self.fit_panel.params))

    def _failed(self, error: Exception) -> None:
        self.error.value = pages.error_page(error)

    # ── data ──

    def _choose_data(self, name: str, before: str) -> None:
        pages.show_if(self.csv, name == CSV)
        if name == CSV:
            self._load()
        elif name == NIKURADSE:
            self.progress_bar.run("downloading", lambda _: self._download(before))
        else:
            self._take(lambda: self._given if name == YOURS else points_of(None, None))

    def _download(self, before: str) -> None:
        """Take the measurements; without a network the field names the data from before again."""
        try:
            points = Points(ek.data.nikuradse(), "points = ek.data.nikuradse()")
        except ExprkitError:
            self.data.value = before
            raise
        self._take(lambda: points)

    def _load(self) -> None:
        """A file, its target or its columns were entered; without a path it is the uploaded file."""
        path, target = self.path.value.strip(), self.target.value.strip() or None
        columns = [name.strip() for name in self.chosen.value.split(",") if name.strip()] or None
        if path:
            self._take(lambda: points_of(path, target, columns))
        elif files := self.upload.value:
            name, content = files[-1]["name"], bytes(files[-1]["content"])
            self._take(lambda: uploaded(name, content, target, columns))

    def _load_uploaded(self) -> None:
        """A file was uploaded: it takes the place of the one that a path names."""
        self.path.value = ""
        self._load()

    def _take(self, make_points: Callable[[], Points]) -> None:
        self.queue.put("data", lambda: self._change_data(make_points()))

    def _change_data(self, points: Points) -> None:
        """Use other data; the expression's variables keep their places, whatever they are called there."""
        typed = self.text.value
        self._use(points)
        if typed == self._subject.text:
            self._outdate()  # until it is drawn, or for good if it needs more columns
            self._write(renamed(self._subject.pop, points).texts()[0])
        else:  # what was typed meanwhile stays
            self._open(typed)

    def _use(self, points: Points) -> None:
        self._points = self.race_panel.points = self.search_panel.points = points
        self.columns.value = pages.text_page(points.columns_page)
        self.population_panel.set_points(points)
