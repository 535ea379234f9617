"""The race panel: the time of the same work on each backend, measured by ``ek.bench``, and which one "auto" takes.

>>> import exprkit as ek
>>> from exprkit.explorer.race import standings
>>> samples = ek.bench.measure(["x1 + p1"], ek.data.rough_pipe(), ["cpu", "numpy"], n_steps=3, n_samples=2)
>>> sorted(standings(samples)["backend"])
['cpu', 'numpy']
"""

from __future__ import annotations

from typing import Any

import exprkit as ek
from exprkit.errors import ArgumentError, brought_by, duration
from exprkit.explorer.drawings import BLUE
from exprkit.explorer.jobs import Progress, ProgressBar
from exprkit.explorer.pages import CodeView, button, error_page, line, text_page
from exprkit.explorer.population_panel import PopulationPanel
from exprkit.explorer.sources import Points, arguments, operators_code

with brought_by("notebooks"):
    import ipywidgets as widgets

N_SAMPLES, SECONDS = 5, 10.0  # of each backend, besides the first; no further sample starts after so long
RATIO = "times the fastest"


def standings(samples: Any) -> Any:
    """Medians of samples, the fastest first: backend, device, a step, node evaluations a second, ratio; a DataFrame."""
    medians = ek.bench.medians(samples).sort_values("step_s", ignore_index=True)
    table = medians[["backend", "device"]].assign(**{"a step": medians["step_s"].map(duration)})
    table["nodes/s"] = medians["node_evals_per_s"].map("{:.2g}".format)
    table[RATIO] = medians["step_s"] / medians["step_s"].min()
    return table


class RacePanel(widgets.VBox):
    """The race panel: the valid expressions of ``population`` on ``points``; ``samples`` are of the last race.

    ``options``, the ``Evaluator``'s, are read anew for every race.
    """

    def __init__(
        self, population: PopulationPanel, progress_bar: ProgressBar, options: dict[str, str] | None = None
    ) -> None:
        self._population, self._progress_bar, self._options = population, progress_bar, options or {}
        self.points = Points(ek.data.rough_pipe())
        self.samples: Any = None
        every = ek.backends()
        here = [name for name, status in every.items() if status.available]
        absent = [f"not here: {name}; {status.detail}" for name, status in every.items() if not status.available]
        self.backends = widgets.SelectMultiple(options=here, value=here, rows=max(2, len(here)), description="backends")
        self.n_points, self.n_steps = (
            widgets.BoundedIntText(value, min=1, max=10_000_000, description=name)
            for name, value in (("points", 362), ("steps", 20))
        )
        self.button = button("Race", lambda: self._progress_bar.run("race", self.run), "148px", icon="flag-checkered")
        self.standings, self.why, self.code = widgets.HTML(), widgets.HTML(), CodeView()
        words = widgets.HTML(text_page("\n".join(["the expressions of the tab Population are raced", *absent])))
        fields = line(self.backends, widgets.VBox([self.n_points, self.n_steps]))
        super().__init__([fields, words, self.button, self.standings, self.why, self.code])

    def run(self, progress: Progress) -> None:
        """Run the race in this thread."""
        if self._population.table is None:
            self._population.read_now(progress)
        assert self._population.table is not None
        pop, backends = self._population.table.pop, list(self.backends.value)
        if not backends:
            raise ArgumentError("a race needs 1 or more of backends: select them in the list")
        pop = pop[pop.valid]
        points = self.points.dataset.repeat_to(int(self.n_points.value))
        options: dict[str, Any] = {name: value for name, value in self._options.items() if name != "backend"}
        limits: dict[str, Any] = {"n_steps": int(self.n_steps.value), "n_samples": N_SAMPLES, "seconds": SECONDS}
        self.code.show(
            f"import pathlib\n\nimport exprkit as ek\n\n{operators_code(pop)}{self._population.pop_code}\n"
            f"pop = pop[pop.valid]\n{self.points.code}\npoints = points.repeat_to({len(points)})\n"
            f"print(ek.Evaluator(pop, points.X{arguments(options)}, n_steps={limits['n_steps']}).explain())\n"
            f"print(ek.bench.medians(ek.bench.measure(pop, points, {backends!r}{arguments(options | limits)})).T)"
        )
        try:
            auto = ek.Evaluator(pop, points.X, n_steps=limits["n_steps"], **options)
            self.why.value = text_page(f"auto takes {auto.explain()}")
        except Exception as error:  # the race may go on
            self.why.value = error_page(error)

        self.show(ek.bench.measure(pop, points, backends, progress=progress, **options, **limits))

    def show(self, samples: Any) -> None:
        """Show the standings of samples, each ratio as a bar."""
        self.samples, table = samples, standings(samples)
        words = [name for name in table if name != RATIO]
        page = table.style.hide().format(escape="html", subset=words).format("{:.2f}", subset=[RATIO])
        self.standings.value = page.bar(subset=[RATIO], color=BLUE, vmin=0).to_html()
