"""The race panel: times the same expressions, points and steps on one backend after the other.

``study.bench`` measures; this one is to be watched.

    >>> import exprkit as ek
    >>> from exprkit.explorer.race import race
    >>> laps = list(race(ek.parse(["x1 + p1"]), ek.data.rough_pipe().X, ["cpu", "numpy"], n_steps=3))
    >>> [(lap.backend, lap.step) for lap in laps]
    [('cpu', 1), ('cpu', 2), ('cpu', 3), ('numpy', 1), ('numpy', 2), ('numpy', 3)]
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from threading import Event
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

import exprkit as ek
from exprkit.errors import ArgumentError, brought_by
from exprkit.evaluate.case_discussion import ARCHITECTURES
from exprkit.explorer import drawings
from exprkit.explorer.jobs import Progress, ProgressBar, duration
from exprkit.explorer.pages import CodeView, Picture, choice, error_page, show_if, text_page
from exprkit.explorer.sources import EXHAUSTIVE, RANDOM, SAMPLE, Points, generated

with brought_by("notebooks"):
    import ipywidgets as widgets

PARAMETER_SETS = 8  # made beforehand and taken in turn
PARAMETER_RANGE = (-2.0, 2.0)


class Lap(NamedTuple):
    """A step of one backend: its number from 1, its seconds, and those of making the evaluator."""

    backend: str
    step: int
    seconds: float
    prepare_s: float


def race(
    pop: ek.Population, X: Any, backends: Sequence[str], n_steps: int = 100, *, precision: str = "ieee",
    dtype: str = "float32", stop: Event | None = None,
) -> Iterator[Lap]:  # fmt: skip
    """Let each backend evaluate everything ``n_steps`` times, with new parameters at each step, until ``stop`` is set.

    A backend evaluates once before its first lap, so that no lap holds the compiling of what is
    compiled once for all; its evaluator is made anew after that, and timed as ``prepare_s``.

    Raises
    ------
    ArgumentError
        If there is nothing to race.
    BackendError
        If a backend can't run here; before the first lap.
    """
    if not backends or n_steps < 1 or not len(pop):
        raise ArgumentError("a race needs 1 or more expressions, backends and steps")
    for name in backends:
        ek.Evaluator(pop[:1], X[:1], name)
    random = np.random.Generator(np.random.PCG64(0))
    sets = [random.uniform(*PARAMETER_RANGE, (len(pop), pop.max_params)) for _ in range(min(n_steps, PARAMETER_SETS))]
    out = np.zeros((len(pop), len(X)), dtype)
    for name in backends:
        ek.Evaluator(pop, X, name, precision=precision, dtype=dtype).evaluate(sets[0], out=out)
        begin = perf_counter()
        ev = ek.Evaluator(pop, X, name, precision=precision, dtype=dtype)
        prepare_s = perf_counter() - begin
        for step in range(n_steps):
            if stop is not None and stop.is_set():
                return
            begin = perf_counter()
            ev.evaluate(sets[step % len(sets)], out=out)
            yield Lap(name, step + 1, perf_counter() - begin, prepare_s)


def standings(laps: Sequence[Lap], node_evaluations: float) -> list[tuple[str, float, str]]:
    """The state of a race as bars, in the order of the start: a backend, its seconds per step, and the words behind it.

    ``node_evaluations``: tokens x points of one step.
    """
    times: dict[str, list[float]] = {}
    for lap in laps:
        times.setdefault(lap.backend, []).append(lap.seconds)
    means = {name: sum(seconds) / len(seconds) for name, seconds in times.items()}
    return [
        (name, mean, f"{duration(mean)} a step, {node_evaluations / mean:.2g} nodes/s") for name, mean in means.items()
    ]


class RacePanel(widgets.VBox):
    """The race panel; ``points`` are the data of the next race, ``laps`` those of the one that runs or ran last."""

    def __init__(self, progress_bar: ProgressBar | None = None) -> None:
        self._progress_bar = progress_bar or ProgressBar()
        self.points = Points(ek.data.rough_pipe())
        self.laps: list[Lap] = []
        every = ek.backends()
        here = [name for name, status in every.items() if status.available]
        absent: dict[str, list[str]] = {}  # reason: the backends it keeps away
        for name, status in every.items():
            if not status.available:
                absent.setdefault(status.detail, []).append(name)
        self.backends = widgets.SelectMultiple(options=here, value=here, rows=max(2, len(here)), description="backends")
        self.source = choice("expressions", [SAMPLE, RANDOM, EXHAUSTIVE], width="280px")
        self.n_exprs, self.n_points = _count(1000, "number"), _count(362, "points")
        self.n_steps = _count(20, "steps")
        self.precision = choice("precision", ["ieee", "fast"], width="190px")
        self.dtype = choice("type", ["float32", "float64"], width="190px")
        self.card = choice("card", list(ARCHITECTURES), width="190px")
        self.button = widgets.Button(description="Race", icon="flag-checkered")
        self.button.on_click(lambda _: self._progress_bar.run("race", self.run))
        self.picture, self.code = Picture(format="png"), CodeView()
        self.why, self.path = widgets.HTML(), widgets.HTML()
        self.picture.layout = widgets.Layout(display="none", width="640px", max_width="100%")
        missing = widgets.HTML("".join(
            f"<div>not here: {', '.join(names)}; {html.escape(reason)}</div>" for reason, names in absent.items()
        ))  # fmt: skip
        super().__init__([
            widgets.HBox([self.backends, widgets.VBox([self.source, self.n_exprs]),
                          widgets.VBox([self.n_points, self.n_steps]),
                          widgets.VBox([self.precision, self.dtype, self.card])],
                         layout=widgets.Layout(flex_flow="row wrap")),
            missing, self.button, self.picture, self.why, self.path, self.code,
        ])  # fmt: skip

    def run(self, stop: Event, progress: Progress) -> None:
        """Run the race in this thread."""
        backends, n_steps = list(self.backends.value), int(self.n_steps.value)
        points = self.points.dataset.repeat_to(int(self.n_points.value))
        n = int(self.n_exprs.value)
        pop, code = generated(self.source.value, n, points.X.shape[1])
        pop = pop[np.arange(n) % len(pop)]
        options = {"precision": self.precision.value, "dtype": self.dtype.value}
        nodes = float(len(pop.kinds)) * len(points)
        self.laps = []
        own = "".join(f", {name}={value!r}" for name, value in options.items())
        self.code.show(
            f"import numpy as np\nimport exprkit as ek\nfrom exprkit.explorer.race import race\n\n{code}\n"
            f"pop = pop[np.arange({n}) % len(pop)]\n{self.points.code}\nX = points.repeat_to({len(points)}).X\n"
            f"print(ek.Evaluator(pop, X{own}, n_steps={n_steps}).explain())\n"
            f"print(ek.cases(pop, X=X{own}).at(device={self.card.value!r}).why())\n"
            f"for lap in race(pop, X, {backends!r}, {n_steps}{own}):\n    print(lap)"
        )
        self.why.value = _choice_page(pop, points.X, options | {"n_steps": n_steps})
        self.path.value = _path_page(pop, points.X, options, self.card.value)
        for lap in race(pop, points.X, backends, n_steps, stop=stop, **options):
            self.laps.append(lap)
            if progress(len(self.laps), len(backends) * n_steps):
                self._draw(nodes)
        self._draw(nodes)

    def _draw(self, nodes: float) -> None:
        bars = standings(self.laps, nodes)
        self.picture.value = drawings.bars(bars)
        self.picture.tooltip = "; ".join(f"{name}: {words}" for name, _, words in bars)
        show_if(self.picture, True)


def _choice_page(pop: ek.Population, X: np.ndarray, options: dict[str, Any]) -> str:
    """What ``backend="auto"`` takes, and why."""
    try:
        return text_page(f"auto takes {ek.Evaluator(pop, X, **options).explain()}")
    except Exception as error:
        return error_page(error)


def _path_page(pop: ek.Population, X: np.ndarray, options: dict[str, Any], card: str) -> str:
    """Which variants of the GPU's interpreter sum errors and fit on a card, and why."""
    tasks = {"losses": "square"} | ({"fits": "fit"} if pop.max_params else {})
    paths = (f"{what}:\n{ek.cases(pop, task, X=X, **options).at(device=card).why()}" for what, task in tasks.items())
    return text_page(f"on {card}, " + "\n\n".join(paths))


def _count(value: int, description: str) -> Any:
    return widgets.BoundedIntText(value, min=1, max=10_000_000, description=description)
