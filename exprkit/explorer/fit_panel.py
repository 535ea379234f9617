"""The fit panel: sliders for the parameters, the curve against the data, and the fit.

In: a ``Subject``.  Out: a picture that follows the sliders, losses, and the result of a fit with its band of 95 %.

    >>> from exprkit.explorer.fit_panel import FitPanel
    >>> from exprkit.explorer.inspectors import Subject
    >>> panel = FitPanel()
    >>> panel.show(Subject("p1 + p2 / x2"))
    >>> [slider.description for slider in panel.sliders.children]
    ['p1', 'p2']
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

import numpy as np

import exprkit as ek
from exprkit.errors import ExprkitError, brought_by
from exprkit.explorer.drawings import CurvePlot, widest
from exprkit.explorer.inspectors import Subject
from exprkit.explorer.jobs import JobQueue, ProgressBar, Stopped
from exprkit.explorer.pages import CodeView, choice, error_page, show_if, table_page, text_page
from exprkit.fitting.fit import LOSSES
from exprkit.runtime.jit import COMPILING

with brought_by("notebooks"):
    import ipywidgets as widgets

Numbers = Sequence[float] | np.ndarray
SHOWN = {"sse": "sse", "mse": "mse", "rmse": "rmse", "mae": "mae", "R2": "r2"}  # losses as they are called
START = 1.0
RANGE = 5.0
MOST_SLIDERS = 12
OWN = "a text"  # as loss
DIGITS = 5  # of a number that a slider can be moved in
STANDARD_DEVIATIONS = 1.959964  # on either side hold 95 % of a normal distribution


def scores(ev: ek.Evaluator, params: Any, y: np.ndarray) -> dict[str, float]:
    """Every loss of the evaluator's first expression, and at how many points it is not finite."""
    losses = {name: float(ev.loss(params, y, kind=kind)[0]) for name, kind in SHOWN.items()}
    losses["not finite"] = int(np.sum(~np.isfinite(np.asarray(ev.evaluate(params)[0]))))
    return losses


def half_band(ev: ek.Evaluator, params: Any, covariance: np.ndarray) -> np.ndarray:
    """Half the width of the 95 % band of the first expression after a fit, (n_points,): 1.96 sqrt(J C J')."""
    J = np.asarray(ev.jacobian(params), np.float64)[0, :, : len(covariance)]
    with np.errstate(invalid="ignore"):
        return STANDARD_DEVIATIONS * np.sqrt(np.einsum("ij,jk,ik->i", J, covariance, J))


class FitPanel(widgets.HBox):
    """Sliders, curve, residuals and losses of one expression.

    ``params`` is what the sliders say, or the last fit; ``result`` is the fit's, as long as the parameters are its own.
    """

    plot: CurvePlot

    def __init__(self, queue: JobQueue | None = None, progress_bar: ProgressBar | None = None) -> None:
        self.queue, self._progress_bar = queue or JobQueue(lambda kind, error: None), progress_bar or ProgressBar()
        self.params = np.empty(0)
        self.result: ek.FitResult | None = None
        self._start = np.empty(0)  # of the last fit
        self._subject: Subject | None = None
        self._grids: dict[int, tuple[float, float, float]] = {}  # ends and step that a slider had before
        self._drawn: Any = None  # what ``plot`` is of: data, variable
        self.sliders, self.numbers = widgets.VBox(), widgets.VBox()
        self.fit_button = widgets.Button(description="Fit", icon="bullseye", tooltip="Levenberg-Marquardt, from here")
        self.fit_button.on_click(lambda _: self._progress_bar.run("fitting", lambda stop, _: self._fit_beside(stop)))
        self.loss = choice("loss", [*LOSSES, OWN], width="220px")
        self.own_loss = widgets.Text(placeholder="as logcosh(f - y)", description=OWN, tooltip="over f and y",
                                     layout=widgets.Layout(width="320px", display="none"))  # fmt: skip
        self.loss.observe(lambda change: show_if(self.own_loss, change["new"] == OWN), "value")
        self.restarts = widgets.BoundedIntText(0, min=0, max=10_000, description="restarts",
                                               layout=widgets.Layout(width="220px"))  # fmt: skip
        self.along = choice("along", [""], width="220px")
        self.along.observe(lambda _: self.queue.put("curve", lambda stop: self.draw()), "value")
        self.scores, self.code, self.more = widgets.HTML(), CodeView(), widgets.HTML()
        self.picture = widgets.Image(format="png", layout=widgets.Layout(width="760px", max_width="100%"))
        fields = self.fit_button, self.loss, self.own_loss, self.restarts, self.along, self.scores
        controls = widgets.HBox([self.sliders, self.numbers]), self.more, *fields
        left = widgets.VBox(controls, layout=widgets.Layout(width="330px", flex="0 0 auto"))
        right = widgets.VBox([self.picture, self.code], layout=widgets.Layout(flex="1 1 400px", min_width="300px"))
        wrapped = widgets.Layout(flex_flow="row wrap")  # below each other where it is narrow
        super().__init__([left, right], layout=wrapped)

    def show(self, subject: Subject, params: Numbers | None = None) -> None:
        """Show another expression, with these parameters, and 1 for those that are not there.

        With None what has been set stays, as while the text is written on, if it has values somewhere.
        """
        n_params = subject.expression.n_params
        kept = (self.params if params is None else np.asarray(params))[:n_params].tolist()
        self._ev = subject.evaluator()
        self.params = np.array([*kept, *[START] * (n_params - len(kept))], np.float64)
        if params is None and not self._is_finite():  # what was set for another expression is nothing for this one
            self.params[:] = START
        self._subject, self.result = subject, None
        points = subject.points.dataset
        if tuple(self.along.options) != points.variables:
            self.along.options = points.variables
            self.along.index = widest(points)
        self._set_sliders(subject)
        self.fit_button.disabled = n_params == 0
        self.draw()

    def draw(self) -> None:
        """Draw for the parameters as they are."""
        subject = self._subject
        if subject is None:
            return
        points, params, result = subject.points.dataset, self.params.copy(), self.result  # a handler may change them
        along = self.along.index or 0
        if self._drawn != (id(points), along):
            self.plot, self._drawn = CurvePlot(points, along), (id(points), along)
        band = None
        if result is not None and np.isfinite(result.covariance[0]).all():
            band = half_band(self._ev, [params], result.covariance[0])
        self.picture.value = self.plot.draw(self._ev.evaluate([params])[0], band)
        self.scores.value = table_page(scores(self._ev, [params], points.y)) + self._outcome(result)
        self.code.show(self._code(subject, params, result))

    def _is_finite(self) -> bool:
        return bool(np.isfinite(self._ev.evaluate([self.params])).any())

    # ── sliders ──

    def _set_sliders(self, subject: Subject) -> None:
        names = subject.expression.parameters or [f"p{i + 1}" for i in range(len(self.params))]
        own, numbers = (list(box.children[: len(self.params)]) for box in (self.sliders, self.numbers))
        for place in range(len(own), min(len(self.params), MOST_SLIDERS)):
            slider = widgets.FloatSlider(START, min=-RANGE, max=RANGE, step=0.01, readout=False,
                                         layout=widgets.Layout(width="190px"))  # fmt: skip
            slider.observe(lambda change, place=place: self._moved(place, change["owner"]), "value")
            number = widgets.FloatText(START, tooltip="any number", layout=widgets.Layout(width="130px"))
            number.observe(lambda change, place=place: self._typed(place, change["new"]), "value")
            own.append(slider)
            numbers.append(number)
        for place, (slider, name, value) in enumerate(zip(own, names, self.params.tolist(), strict=False)):
            slider.description = name
            before = slider.min, slider.max, slider.step
            _set_slider(slider, value)
            if before != (slider.min, slider.max, slider.step):
                self._grids[place] = before
            self._show_number(numbers[place], value)
        left = len(self.params) - len(own)
        self.more.value = f"{left} more, which a fit changes as well" if left else ""
        if len(own) != len(self.sliders.children):
            self.sliders.children, self.numbers.children = own, numbers

    def _moved(self, place: int, slider: Any) -> None:
        """A slider was moved: by the user, or by ``_set_sliders``, whose value the browser rounds and sends back."""
        if place < len(self.params) and not _shows(slider, self.params[place]):
            if _is_echo(slider.value, self.params[place], self._grids.get(place)):
                slider.value = float(self.params[place])
                return
            self.params[place] = slider.value
            self.result = None
            self._show_number(self.numbers.children[place], slider.value)
            self.queue.put("curve", lambda stop: self.draw())

    @staticmethod
    def _show_number(number: Any, value: float) -> None:
        """A parameter with all its digits."""
        if np.isfinite(value):
            number.value = value

    def _typed(self, place: int, value: float) -> None:
        """A number was typed, of any size."""
        if self._subject is None or place >= len(self.params) or value == self.params[place]:
            return
        if np.isfinite(value):
            self.params[place], self.result = value, None
            self.queue.put("curve", lambda stop: self.draw())
        self._set_sliders(self._subject)

    # ── the fit ──

    @property
    def chosen_loss(self) -> str:
        """As ``ek.fit`` takes it: a name, or a text of the user's."""
        return str(self.own_loss.value if self.loss.value == OWN else self.loss.value)

    def fit(self) -> None:
        """Fit from the parameters as they are, and move the sliders to the result."""
        if self._subject is not None and len(self.params):
            self._take(self._subject, self.params, self._fitted(self._subject, self.params, False))

    def _fit_beside(self, stop: Event) -> None:
        """The same beside the notebook's messages and what is drawn, until it is stopped."""

        def shown(done: int, total: int) -> None:
            if stop.is_set():
                raise Stopped

        subject, start = self._subject, self.params.copy()
        if subject is None or not len(start):
            return
        self.fit_button.description = "Fitting …"
        self.scores.value = text_page(f"fitting; before the first fit {COMPILING}")
        try:
            result = self._fitted(subject, start, shown)
        except ExprkitError as error:
            said = error_page(error)
            self.queue.put("fit", lambda _: setattr(self.scores, "value", said))  # after what is still to be drawn
        except Stopped:
            self.queue.put("curve", lambda _: self.draw())
            raise
        else:
            self.queue.put("fit", lambda _: self._take(subject, start, result))
        finally:
            self.fit_button.description = "Fit"

    def _fitted(
        self, subject: Subject, start: np.ndarray, progress: bool | Callable[[int, int], None]
    ) -> ek.FitResult:  # fmt: skip
        points = subject.points.dataset
        return ek.fit(
            subject.pop, points.X, points.y, init=[start], loss=self.chosen_loss,
            restarts=int(self.restarts.value), backend=subject.backend, precision=subject.precision,
            dtype=subject.dtype, progress=progress,
        )  # fmt: skip

    def _take(self, subject: Subject, start: np.ndarray, result: ek.FitResult) -> None:
        """Show a result, unless it is of an expression that is not looked at any more."""
        if subject is self._subject:
            self._start, self.params, self.result = start, result.params[0].copy(), result
            self._set_sliders(subject)
            self.draw()

    def _outcome(self, result: ek.FitResult | None) -> str:
        """The fitted parameters with their standard errors, and why the fit ended."""
        if result is None:
            return ""
        names = [slider.description for slider in self.sliders.children]
        values = zip(names, result.params[0].tolist(), result.standard_errors[0].tolist(), strict=False)
        rows = {name: f"{value:.6g}" + (f" ± {error:.2g}" if error == error else "") for name, value, error in values}
        n = int(result.iterations[0])
        why = f"{result.reason[0]}, after {n} iteration{'s' * (n != 1)}"
        return table_page(rows) + f'<div style="line-height:1.4">{html.escape(why)}</div>'

    def _code(self, subject: Subject, params: np.ndarray, result: ek.FitResult | None) -> str:
        code = (
            f"{subject.evaluator_code}params = [{_rounded(params)}]\n"
            'y = ev.evaluate(params)[0]\nprint(ev.loss(params, points.y, kind="rmse"))'
        )
        if result is None:
            return code
        loss = f", loss={self.chosen_loss!r}" if self.chosen_loss != LOSSES[0] else ""
        restarts = f", restarts={self.restarts.value}" if self.restarts.value else ""
        options = f"{loss}{restarts}{subject.options()}"
        return f"{code}\n\nek.fit(pop, points.X, points.y, init=[{_rounded(self._start)}]{options}).to_pandas()"


def _rounded(params: np.ndarray) -> list[float]:
    return [float(f"{value:.6g}") for value in params.tolist()]


def _set_slider(slider: Any, value: float) -> None:
    """Move a slider, and its ends where the value lies outside."""
    if not np.isfinite(value):
        return
    with slider.hold_sync():  # the browser hears of all at once, and rounds no value to another one's step
        while not slider.min <= value <= slider.max:
            reach = 2 * max(abs(slider.min), abs(slider.max))
            slider.min, slider.max = -reach, reach
        slider.step = min(slider.max / 500, _fine(value))
        slider.value = value


def _fine(value: float) -> float:
    """A step in which a number has five digits."""
    return 10.0 ** (np.floor(np.log10(abs(value))) - DIGITS + 1) if value else 1.0


def _shows(slider: Any, value: float) -> bool:
    """Whether the slider stands at this value, or at the step that is nearest to it."""
    return slider.value == value or _is_echo(slider.value, value, (slider.min, slider.max, slider.step))


def _is_echo(shown: float, value: float, grid: tuple[float, float, float] | None) -> bool:
    """Whether a browser that knows these ends and this step shows a value so."""
    if grid is None:
        return False
    low, high, step = grid
    nearest = low + np.floor((np.clip(value, low, high) - low) / step + 0.5) * step
    return bool(abs(shown - nearest) < 1e-3 * step)
