"""The race, to be watched: backends, expressions, points and steps are chosen, and bars grow.

Part of the explorer's view: it shows what ``race.race`` yields, and ``Evaluator.explain``.

    >>> from exprkit.explorer.contest import RacePanel
    >>> "cpu" in RacePanel().backends.options
    True
"""

from __future__ import annotations

import html
from threading import Event
from typing import Any

import numpy as np

from exprkit import data
from exprkit.backends import backends
from exprkit.errors import brought_by
from exprkit.evaluate.evaluator import Evaluator
from exprkit.explorer import race
from exprkit.explorer.aspects import Points, Shown, code_page, complaint, page
from exprkit.explorer.meter import Meter, Progress
from exprkit.expressions import generate
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population

with brought_by("notebooks"):
    import ipywidgets as widgets

SOURCES = ("the thesis's", "random", "all up to a size")


class RacePanel(widgets.VBox):
    """The race view.

    Attributes
    ----------
    laps : list of Lap
        Of the race that runs or ran last.
    """

    def __init__(self, meter: Meter | None = None) -> None:
        self._meter = meter or Meter()
        self._points = Points(data.rough_pipe())
        self.laps: list[race.Lap] = []
        found = backends()
        here = [name for name, status in found.items() if status.available]
        absent: dict[str, list[str]] = {}  # reason: the backends it keeps away
        for name, status in found.items():
            if not status.available:
                absent.setdefault(status.detail, []).append(name)
        self.backends = widgets.SelectMultiple(options=here, value=here, rows=max(2, len(here)), description="backends")
        self.source = widgets.Dropdown(options=SOURCES, description="expressions")
        self.n_exprs = _count(1000, "number")
        self.n_points = _count(362, "points")
        self.n_steps = _count(20, "steps")
        self.precision = widgets.Dropdown(options=["ieee", "fast"], description="precision")
        self.dtype = widgets.Dropdown(options=["float32", "float64"], description="type")
        self.button = widgets.Button(description="Race", icon="flag-checkered")
        self.button.on_click(lambda _: self.start())
        self.picture, self.why, self.code = widgets.HTML(), widgets.HTML(), widgets.HTML()
        missing = widgets.HTML("".join(
            f"<div>not here: {', '.join(names)}; {html.escape(reason)}</div>" for reason, names in absent.items()
        ))  # fmt: skip
        super().__init__([
            widgets.HBox([self.backends, widgets.VBox([self.source, self.n_exprs]),
                          widgets.VBox([self.n_points, self.n_steps]), widgets.VBox([self.precision, self.dtype])]),
            missing, self.button, self.picture, self.why, self.code,
        ])  # fmt: skip

    def set_points(self, points: Points) -> None:
        """The data of the next race."""
        self._points = points

    def start(self) -> None:
        """Run the race beside the notebook's messages."""
        self._meter.run("race", self.run)

    def run(self, stop: Event, progress: Progress) -> None:
        """Run the race in this thread."""
        chosen = list(self.backends.value)
        pop, code = self._population()
        points = self._points.dataset.repeat_to(int(self.n_points.value))
        options = {"precision": self.precision.value, "dtype": self.dtype.value}
        n_steps, nodes = int(self.n_steps.value), float(len(pop.kinds)) * len(points)
        self.laps = []
        self.code.value = code_page(self._code(code, chosen, len(points), n_steps, options))
        self.why.value = _explained(pop, points.X, options | {"n_steps": n_steps})
        for lap in race.race(pop, points.X, chosen, n_steps, stop=stop, **options):
            self.laps.append(lap)
            progress(len(self.laps), len(chosen) * n_steps)
            if self._meter.due():
                self.picture.value = race.chart(self.laps, nodes)
        self.picture.value = race.chart(self.laps, nodes)

    def _population(self) -> tuple[Population, str]:
        n, n_vars = int(self.n_exprs.value), self._points.dataset.X.shape[1]
        if self.source.value == SOURCES[0]:
            own = parse(data.esr_sample())
            code = f"own = ek.parse(ek.data.esr_sample())\npop = own[np.arange({n}) % len(own)]"
            return own[np.arange(n) % len(own)], code
        if self.source.value == SOURCES[1]:
            return generate.random(n, n_vars=n_vars), f"pop = ek.generate.random({n}, n_vars={n_vars})"
        nodes = next(size for size in range(1, 50) if generate.count_exhaustive(size, n_vars=n_vars) >= n)
        code = f"pop = ek.generate.exhaustive({nodes}, n_vars={n_vars})[:{n}]"
        return generate.exhaustive(nodes, n_vars=n_vars)[:n], code

    def _code(self, pop: str, chosen: list[str], n_points: int, n_steps: int, options: dict[str, Any]) -> str:
        own = "".join(f", {name}={value!r}" for name, value in options.items())
        return (
            f"import numpy as np\nimport exprkit as ek\nfrom exprkit.explorer.race import race\n\n{pop}\n"
            f"{self._points.code}\nX = points.repeat_to({n_points}).X\n"
            f"print(ek.Evaluator(pop, X{own}, n_steps={n_steps}).explain())\n"
            f"for lap in race(pop, X, {chosen!r}, {n_steps}{own}):\n    print(lap)"
        )


def _explained(pop: Population, X: np.ndarray, options: dict[str, Any]) -> str:
    """What ``backend="auto"`` takes, and why."""
    try:
        text = Evaluator(pop, X, **options).explain()
    except Exception as error:
        return complaint(error)
    return page(Shown("text", f"auto takes {text}", ""))


def _count(value: int, description: str) -> Any:
    return widgets.BoundedIntText(value, min=1, max=10_000_000, description=description)
