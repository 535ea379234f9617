"""The explorer: an expression looked at from every side, a population, a race.

The top of the explorer: puts its panels together.  Handlers only put work on a desk; what
is shown first is made at once, so that a notebook shows it without a click.

    >>> import exprkit as ek
    >>> explorer = ek.explore("p1 + p2 / x2")
    >>> explorer.expression, explorer.params.tolist()
    (<Expression: p1 + p2 / x2>, [1.0, 1.0])
"""

from __future__ import annotations

from typing import Any

import numpy as np

from exprkit import data
from exprkit.backends import backends
from exprkit.errors import ArgumentError, ExprkitError, brought_by
from exprkit.evaluate.evaluator import Evaluator
from exprkit.explorer.aspects import (
    ASPECTS,
    Points,
    Subject,
    code_page,
    complaint,
    formula,
    page,
    renamed,
    usable_names,
)
from exprkit.explorer.contest import RacePanel
from exprkit.explorer.many import PopulationPanel
from exprkit.explorer.meter import Meter
from exprkit.explorer.tuner import Numbers, Tuner
from exprkit.explorer.work import Desk
from exprkit.expressions.expression import Expression
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population

with brought_by("notebooks"):
    import ipywidgets as widgets

FIRST = "p1 + p2 * x1 ^ p3 / x2"
PAUSE = 0.25  # seconds without a key, then the text is read
N_EXAMPLES = 20
CURVE, POPULATION, RACE = "Curve and fit", "Population", "Race"
NIKURADSE_CODE = "points = ek.data.nikuradse()"
ROUGH_PIPE, NIKURADSE, CSV, YOURS = "rough pipe (synthetic)", "Nikuradse (downloaded)", "a CSV file", "your table"


def explore(
    expression: str | Expression | None = None, table: Any = None, target: str | None = None, *,
    population: Any = None, backend: str = "auto", precision: str = "ieee", dtype: str = "float32",
) -> Explorer:  # fmt: skip
    """Look at an expression from every side, fit it, and look through populations, in a notebook.

    Parameters
    ----------
    expression : str or Expression, optional
        What to look at first.
    table : Dataset, DataFrame, mapping of columns or path of a CSV file, optional
        The data; by default ``data.rough_pipe()``.  A table's columns are the variables by
        their own names where these can be names, else ``x1, x2, …``.
    target : str, optional
        The table's column that is to be explained; by default the last one.
    population : Population, or whatever ``parse`` takes, optional
        For the population view; by default the thesis's sample.
    backend, precision, dtype
        As for ``Evaluator``.

    Returns
    -------
    Explorer
        A widget; as the last line of a cell it is shown.

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
    """
    if isinstance(expression, Population):
        raise ArgumentError("explore looks at one expression; a population goes by population=")
    points = _points(table, target)
    if expression is None:
        expression = FIRST if points.variables is None else "p1"
    if population is not None and not isinstance(population, Population):
        population = parse(population, variables=points.variables)
    return Explorer(expression, points, population, backend=backend, precision=precision, dtype=dtype)


def _examples() -> list[str]:
    """Expressions to begin with, shortest first: some of the thesis's that have parameters."""
    pop = parse(data.esr_sample())
    own = pop[pop.n_params > 0]
    return [FIRST, *own[np.argsort(own.n_tokens, kind="stable")].texts()[:N_EXAMPLES]]


def _points(table: Any, target: str | None) -> Points:
    if table is None:
        if target is not None:
            raise ArgumentError("target names a column of table, and no table was given")
        return Points(data.rough_pipe())
    if isinstance(table, data.Dataset):
        return Points(table, "points = ...  # the Dataset that was given to ek.explore")
    dataset = data.from_table(table, target)
    shown = repr(table) if isinstance(table, str) else "table"
    wanted = f", target={target!r}" if target is not None else ""
    return Points(dataset, f"points = ek.data.from_table({shown}{wanted})", usable_names(dataset.variables))


class Explorer(widgets.VBox):
    """The widget that ``explore`` makes.

    Attributes
    ----------
    expression : Expression
        The one that is shown: the last text without an error.
    params : float64 array, (n_params,)
        Its parameters.
    result : FitResult or None
        Of its last fit, until a slider is moved.
    population : Population or None
        The one in the population view.
    text : ipywidgets.Text
    """

    def __init__(
        self, expression: str | Expression, points: Points, population: Population | None, **options: str
    ) -> None:
        subject = Subject(str(expression), points, **options)
        # raises what is wrong with the options before any widget is made
        Evaluator(subject.pop, points.dataset.X, subject.backend, subject.precision, subject.dtype)
        self.desk, self.meter = Desk(self._failed), Meter()
        self._points, self._options = points, options
        self._given = points
        self.tuner = Tuner(self.desk)
        self.many = PopulationPanel(self._picked, self.meter, options)
        self.contest = RacePanel(self.meter)
        self.sides = {name: widgets.HTMLMath() for name in ASPECTS}
        self.tabs = widgets.Tab(
            [self.tuner, *self.sides.values(), self.many, self.contest], titles=(CURVE, *ASPECTS, POPULATION, RACE)
        )
        self._fresh: set[str] = set()  # tabs that show the expression as it is
        head, options_line = self._make_head(str(expression)), self._make_options()
        super().__init__([head, self.formula, self.error, options_line, self.tabs, self.meter])
        self._use(points)
        if population is not None:
            self.many.give(population)
        self._adopt(subject)
        self.tabs.observe(lambda _: self.desk.put("tab", lambda stop: self._draw_tab()), "selected_index")

    @property
    def expression(self) -> Expression:
        return self._subject.expression

    @property
    def params(self) -> np.ndarray:
        return self.tuner.params.copy()

    @property
    def result(self) -> Any:
        return self.tuner.result

    @property
    def population(self) -> Population | None:
        return None if self.many.table is None else self.many.table.pop

    # ── widgets ──

    def _make_head(self, text: str) -> Any:
        self.text = widgets.Text(text, continuous_update=True, placeholder="an expression", description="expression",
                                 layout=widgets.Layout(flex="1 1 auto"))  # fmt: skip
        self.text.observe(lambda change: self._typed(change["new"]), "value")
        self.examples = widgets.Dropdown(options=[("pick one …", ""), *((text, text) for text in _examples())],
                                         layout=widgets.Layout(width="170px"))  # fmt: skip
        self.examples.observe(lambda change: self._example(change["new"]), "value")
        self.formula, self.error = widgets.HTMLMath(), widgets.HTML()
        return widgets.HBox([self.text, self.examples])

    def _make_options(self) -> Any:
        narrow = widgets.Layout(width="190px")
        usable = ["auto", *(name for name, status in backends().items() if status.available)]
        offered = [ROUGH_PIPE, NIKURADSE, CSV]
        usual = self._points.code == Points.code
        self.data = widgets.Dropdown(options=offered if usual else [YOURS, *offered], description="data",
                                     layout=widgets.Layout(width="270px"))  # fmt: skip
        field = {"continuous_update": False, "layout": widgets.Layout(width="260px")}
        self.path = widgets.Text(placeholder="path of a CSV file, then Enter", **field)
        self.target = widgets.Text(placeholder="target: its column (or the last)", **field)
        self.csv = widgets.HBox([self.path, self.target], layout=widgets.Layout(display="none"))
        self.backend = widgets.Dropdown(options=usable, value=self._options["backend"], description="backend",
                                        layout=narrow)  # fmt: skip
        self.precision = widgets.Dropdown(options=["ieee", "fast"], value=self._options["precision"],
                                          description="precision", layout=narrow)  # fmt: skip
        self.dtype = widgets.Dropdown(options=["float32", "float64"], value=self._options["dtype"],
                                      description="type", layout=narrow)  # fmt: skip
        self.data.observe(lambda change: self._choose_data(change["new"]), "value")
        self.path.observe(lambda _: self._load(), "value")
        self.target.observe(lambda _: self._load(), "value")
        for name in ("backend", "precision", "dtype"):
            getattr(self, name).observe(lambda change, name=name: self._set_option(name, change["new"]), "value")
        return widgets.HBox([self.data, self.csv, self.backend, self.precision, self.dtype],
                            layout=widgets.Layout(flex_flow="row wrap"))  # fmt: skip

    # ── what happens ──

    def _typed(self, text: str) -> None:
        """A key was pressed, or the text was set."""
        self.desk.put("text", lambda stop: self._read(text), delay=PAUSE)

    def _read(self, text: str) -> None:
        if text != self._subject.text or self.error.value:
            self._open(text)

    def _picked(self, text: str, params: Numbers | None) -> None:
        """An expression of the examples or the population was chosen."""
        self.desk.put("text", lambda stop: self._show(text, params))

    def _example(self, text: str) -> None:
        if text:
            self.desk.put("text", lambda stop: self._show(renamed(parse(text), self._points).texts()[0]))

    def _show(self, text: str, params: Numbers | None = None) -> None:
        self._open(text, params)
        self.text.value = text

    def _open(self, text: str, params: Numbers | None = None) -> None:
        """Look at an expression; an error is shown with its caret, and what was there before stays."""
        try:
            subject = Subject(text, self._points, **self._options)
        except ExprkitError as error:
            self.error.value = complaint(error)
            return
        self._adopt(subject, params)

    def _adopt(self, subject: Subject, params: Numbers | None = None) -> None:
        self._subject = subject
        self.error.value = ""
        self.formula.value = page(formula(subject))
        self.tuner.show(subject, params)
        self._fresh.clear()
        self._draw_tab()

    def _draw_tab(self) -> None:
        """Draw the tab that is open, if it does not show the expression as it is."""
        name = self.tabs.titles[self.tabs.selected_index or 0]
        if name == POPULATION and self.many.table is None:
            self.many.read()
        if name in self.sides and name not in self._fresh:
            self._fresh.add(name)
            self._draw_side(name)

    def _draw_side(self, name: str) -> None:
        if not self.sides[name].value:
            self.sides[name].value = "…"  # the first time, there may be something to compile
        try:
            shown = ASPECTS[name](self._subject)
        except Exception as error:  # a side that cannot be shown here leaves the others
            self.sides[name].value = complaint(error)
        else:
            self.sides[name].value = page(shown) + code_page(shown.code)

    def _set_option(self, name: str, value: str) -> None:
        self._options[name] = value
        self.desk.put("option", lambda stop: self._open(self._subject.text, self.tuner.params))

    def _failed(self, kind: str, error: Exception) -> None:
        self.error.value = complaint(error)

    # ── data ──

    def _choose_data(self, choice: str) -> None:
        self.csv.layout.display = None if choice == CSV else "none"
        if choice == YOURS:
            self._take(self._given)
        elif choice == ROUGH_PIPE:
            self._take(Points(data.rough_pipe()))
        elif choice == NIKURADSE:
            self.meter.run("downloading", lambda stop, progress: self._take(Points(data.nikuradse(), NIKURADSE_CODE)))

    def _load(self) -> None:
        """A CSV file's path or its target was entered."""
        path, target = self.path.value.strip(), self.target.value.strip() or None
        if path:
            self.desk.put("data", lambda stop: self._change_data(_points(path, target)))

    def _take(self, points: Points) -> None:
        self.desk.put("data", lambda stop: self._change_data(points))

    def _change_data(self, points: Points) -> None:
        """Use other data; the expression's variables keep their places, whatever they are called there."""
        self._use(points)
        self._show(renamed(self._subject.pop, points).texts()[0])

    def _use(self, points: Points) -> None:
        self._points = points
        self.many.set_points(points)
        self.contest.set_points(points)
