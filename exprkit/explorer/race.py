"""The race panel: the time of the same work on each backend, measured by ``ek.bench``, and which one "auto" takes.

>>> import exprkit as ek
>>> from exprkit.explorer.race import standings
>>> samples = ek.bench.measure(["x1 + p1"], ek.data.rough_pipe(), ["cpu", "numpy"], n_steps=3, n_samples=2)
>>> sorted(standings(samples)["backend"])
['cpu', 'numpy']
"""

from __future__ import annotations

import html
from threading import Event
from typing import Any

import numpy as np

import exprkit as ek
from exprkit.errors import brought_by
from exprkit.evaluate.case_discussion import ARCHITECTURES
from exprkit.explorer.drawings import BLUE
from exprkit.explorer.jobs import Progress, ProgressBar, Stopped, duration
from exprkit.explorer.pages import CodeView, button, choice, error_page, text_page
from exprkit.explorer.sources import EXHAUSTIVE, RANDOM, SAMPLE, Points, arguments, generated

with brought_by("notebooks"):
    import ipywidgets as widgets

N_SAMPLES, SECONDS = 5, 10.0  # of each backend, besides the first; no further sample starts after so long
RATIO = "times the fastest"


def standings(samples: Any) -> Any:
    """Medians of samples, the fastest first: backend, device, a step, node evaluations a second, ratio; a DataFrame."""
    medians = ek.bench.medians(samples).sort_values("step_s")
    table = medians[["backend", "device"]].assign(step=medians["step_s"].map(duration))
    table["nodes/s"] = medians["node_evals_per_s"].map("{:.2g}".format)
    table[RATIO] = medians["step_s"] / medians["step_s"].min()
    return table.rename(columns={"step": "a step"}).reset_index(drop=True)


class RacePanel(widgets.VBox):
    """The race panel; ``points`` are the data of the next race, ``samples`` those of the one that ran last."""

    def __init__(self, progress_bar: ProgressBar | None = None) -> None:
        self._progress_bar = progress_bar or ProgressBar()
        self.points = Points(ek.data.rough_pipe())
        self.samples: Any = None
        every = ek.backends()
        here = [name for name, status in every.items() if status.available]
        absent = [f"not here: {name}; {status.detail}" for name, status in every.items() if not status.available]
        self.backends = widgets.SelectMultiple(options=here, value=here, rows=max(2, len(here)), description="backends")
        self.source = choice("expressions", [SAMPLE, RANDOM, EXHAUSTIVE], width="280px")
        self.n_exprs, self.n_points = _count(1000, "number"), _count(362, "points")
        self.n_steps = _count(20, "steps")
        self.precision = choice("precision", ["ieee", "fast"], width="190px")
        self.dtype = choice("type", ["float32", "float64"], width="190px")
        self.card = choice("card", list(ARCHITECTURES), width="190px")
        self.button = button("Race", lambda: self._progress_bar.run("race", self.run), "148px", icon="flag-checkered")
        self.standings, self.why, self.path, self.code = widgets.HTML(), widgets.HTML(), widgets.HTML(), CodeView()
        missing = widgets.HTML("".join(f"<div>{html.escape(line)}</div>" for line in absent))
        super().__init__(
            [
                widgets.HBox(
                    [
                        self.backends,
                        widgets.VBox([self.source, self.n_exprs]),
                        widgets.VBox([self.n_points, self.n_steps]),
                        widgets.VBox([self.precision, self.dtype, self.card]),
                    ],
                    layout=widgets.Layout(flex_flow="row wrap"),
                ),
                missing,
                self.button,
                self.standings,
                self.why,
                self.path,
                self.code,
            ]
        )

    def run(self, stop: Event, progress: Progress) -> None:
        """Run the race in this thread."""
        backends, n, n_points = list(self.backends.value), int(self.n_exprs.value), int(self.n_points.value)
        points = self.points.dataset.repeat_to(n_points)
        pop, code = generated(self.source.value, n, points.X.shape[1])
        pop = pop[np.arange(n) % len(pop)]
        options: dict[str, Any] = {"precision": self.precision.value, "dtype": self.dtype.value}
        limits: dict[str, Any] = {"n_steps": int(self.n_steps.value), "n_samples": N_SAMPLES, "seconds": SECONDS}
        own = arguments(options)
        self.code.show(
            f"import numpy as np\nimport exprkit as ek\n\n{code}\npop = pop[np.arange({n}) % len(pop)]\n"
            f"{self.points.code}\npoints = points.repeat_to({n_points})\n"
            f"print(ek.Evaluator(pop, points.X{own}, n_steps={limits['n_steps']}).explain())\n"
            f"print(ek.cases(pop, X=points.X{own}).at(device={self.card.value!r}).why())\n"
            f"print(ek.bench.medians(ek.bench.measure(pop, points, {backends!r}{arguments(options | limits)})).T)"
        )
        self.why.value = _choice_page(pop, points.X, options | {"n_steps": limits["n_steps"]})
        self.path.value = _path_page(pop, points.X, options, self.card.value)

        def measured(done: int, total: int) -> None:
            progress(done, total)
            if stop.is_set():
                raise Stopped

        self.show(ek.bench.measure(pop, points, backends, progress=measured, **options, **limits))

    def show(self, samples: Any) -> None:
        """Show the standings of samples, each ratio as a bar."""
        self.samples, table = samples, standings(samples)
        words = [name for name in table if name != RATIO]
        shown = table.style.hide().format(escape="html", subset=words).format("{:.2f}", subset=[RATIO])
        self.standings.value = shown.bar(subset=[RATIO], color=BLUE, vmin=0).to_html()


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
