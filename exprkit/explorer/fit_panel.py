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
from collections.abc import Sequence
from threading import RLock
from typing import Any

import numpy as np

import exprkit as ek
from exprkit.errors import ExprkitError, brought_by, shortened
from exprkit.explorer.drawings import AXES, CurvePlot, widest
from exprkit.explorer.inspectors import Subject
from exprkit.explorer.jobs import JobQueue, Progress, ProgressBar, Stopped
from exprkit.explorer.pages import CodeView, Picture, button, choice, error_page, red_page, show_if, table_page
from exprkit.fitting.fit_problem import LOSSES
from exprkit.fitting.fitted_expression import rounded
from exprkit.runtime.jit import COMPILING
from exprkit.text.tokens import VARIABLE

with brought_by("notebooks"):
    import ipywidgets as widgets

Numbers = Sequence[float] | np.ndarray
SHOWN = {"sse": "sse", "mse": "mse", "rmse": "rmse", "mae": "mae", "R2": "r2"}  # losses as they are called
START = 1.0
RESTARTS = 5  # beside the first start
NO_BETTER = 1e-6  # of a constant's loss: so much less is no less
REACH, GRID = 5.0, 0.002  # of a slider: times the number in its middle, to either side; and a step, as a share
MOST_SLIDERS = 12
OWN = "a text"  # as loss
LONGEST = 60  # characters of an expression in the words on the picture
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
    A fit starts where ``ek.fit`` does, and also from what was set or fitted for this expression.  A slider stands in
    its middle where its parameter was typed or fitted, and changes it by up to ``REACH`` times that.
    """

    plot: CurvePlot

    def __init__(self, queue: JobQueue | None = None, progress_bar: ProgressBar | None = None) -> None:
        self.queue, self._progress_bar = queue or JobQueue(print), progress_bar or ProgressBar()
        self.params = np.empty(0)
        self.result: ek.FitResult | None = None
        self._start: list[float] | None = None  # where the best fit started; None: where ``ek.fit`` does
        self._constant = np.inf  # the loss of a constant
        self._subject: Subject | None = None
        self._is_set = False  # whether the user has chosen the parameters of this expression
        self._middle = np.empty(0)  # parameters where the sliders are in their middle
        self._drawing = RLock()  # held while the expression changes or is drawn: jobs draw as well
        self._drawn: Any = None  # what ``plot`` is of: data, variable, axes
        self._drawn_at: Any = None  # the evaluator at its places
        self.sliders, self.numbers = widgets.VBox(), widgets.VBox()
        self.fit_button = button(
            "Fit",
            lambda: self._progress_bar.run("fitting", self._fit_beside),
            "148px",
            icon="bullseye",
            tooltip="from what is set, from ones and from random starts",
        )
        self.loss = choice("loss", [*LOSSES, OWN], width="220px")
        self.own_loss = widgets.Text(
            placeholder="as logcosh(f - y)",
            description=OWN,
            tooltip="over f and y",
            layout=widgets.Layout(width="320px", display="none"),
        )
        self.loss.observe(lambda change: show_if(self.own_loss, change["new"] == OWN), "value")
        layout = widgets.Layout(width="220px")
        self.restarts = widgets.BoundedIntText(RESTARTS, min=0, max=10_000, description="restarts", layout=layout)
        self.along, self.axes = choice("along", [""], width="220px"), choice("axes", AXES, width="220px")
        for field in (self.along, self.axes):
            field.observe(lambda _: self.queue.put("curve", self.draw), "value")
        self.scores, self.code, self.more = widgets.HTML(), CodeView(), widgets.HTML()
        self.picture = Picture(format="png", layout=widgets.Layout(width="760px", max_width="100%"))
        fields = self.fit_button, self.loss, self.own_loss, self.restarts, self.along, self.axes, self.scores
        controls = widgets.HBox([self.sliders, self.numbers]), self.more, *fields
        left = widgets.VBox(controls, layout=widgets.Layout(width="360px", flex="0 0 auto"))
        right = widgets.VBox([self.picture, self.code], layout=widgets.Layout(flex="1 1 400px", min_width="300px"))
        wrapped = widgets.Layout(flex_flow="row wrap")  # below each other where it is narrow
        super().__init__([left, right], layout=wrapped)

    def show(self, subject: Subject, params: Numbers | None = None) -> None:
        """Show another expression, with these parameters, and 1 for those that are not there.

        With None what has been set stays while the text grows over the same data, if it has values somewhere.
        """
        with self._drawing:
            before, n_params = self._subject, subject.expression.n_params
            if params is None and before is not None and self._is_set and _grows(before, subject):
                params = self.params
            chosen = np.asarray(() if params is None else params)[:n_params]
            self._ev, self._drawn_at = subject.evaluator(), None
            self.params = np.append(chosen, np.full(n_params - len(chosen), START)).astype(np.float64)
            self._is_set = len(chosen) > 0 and bool(np.isfinite(self._ev.evaluate([self.params])).any())
            if not self._is_set:
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
        with self._drawing:
            if self._subject is not None:
                self._draw(self._subject)

    def _draw(self, subject: Subject) -> None:
        points, params, result = subject.points.dataset, self.params.copy(), self.result  # a handler may change them
        to_draw = id(points), self.along.index or 0, self.axes.value
        if self._drawn != to_draw:
            self.plot, self._drawn, self._drawn_at = CurvePlot(points, *to_draw[1:]), to_draw, None
        if self._drawn_at is None:
            self._drawn_at = subject.evaluator(self.plot.places)
        band = None
        if result is not None and np.isfinite(result.covariance[0]).all():
            band = half_band(self._drawn_at, [params], result.covariance[0])
        values, drawn = (ev.evaluate([params])[0] for ev in (self._ev, self._drawn_at))
        self.picture.value = self.plot.draw(values, drawn, band)
        self.picture.tooltip = f"{points.target} and {shortened(subject.text, LONGEST)} over {self.along.value}"
        losses = scores(self._ev, [params], points.y)
        self.scores.value = red_page(self._warnings(losses, result)) + table_page(losses) + self._outcome(result)
        self.code.show(self._code(subject, params, result))

    def _warnings(self, losses: dict[str, float], result: ek.FitResult | None) -> list[str]:
        """Warnings about the values and the fit."""
        warnings = []
        if n := losses["not finite"]:
            warnings.append(f"no finite value at {n:,} of {len(self._ev.X):,} points")
        depends = bool((self._ev.pop.kinds == VARIABLE).any())
        if result is not None and depends and result.loss[0] >= (1 - NO_BETTER) * self._constant:
            warnings.append("the fit is no better than a constant: take more restarts, or move the sliders first")
        elif losses["R2"] < 0:
            warnings.append(f"{'' if result else 'not fitted: '}worse than a constant (R2 < 0)")
        return warnings

    # ── sliders ──

    def _set_sliders(self, subject: Subject) -> None:
        """Show the parameters as numbers, each slider in its middle."""
        names = subject.expression.parameters or [f"p{i + 1}" for i in range(len(self.params))]
        sliders, numbers = (list(box.children[: len(self.params)]) for box in (self.sliders, self.numbers))
        for place in range(len(sliders), min(len(self.params), MOST_SLIDERS)):
            layout = widgets.Layout(width="190px")
            slider = widgets.FloatSlider(0.0, min=-1.0, max=1.0, step=GRID, readout=False, layout=layout)
            slider.observe(lambda change, place=place: self._moved(place, change["new"]), "value")
            number = widgets.FloatText(START, tooltip="any number", layout=widgets.Layout(width="160px"))
            number.observe(lambda change, place=place: self._typed(place, change["new"]), "value")
            sliders.append(slider)
            numbers.append(number)
        self._middle = self.params.copy()
        for slider, number, name, value in zip(sliders, numbers, names, self.params.tolist(), strict=False):
            slider.description, slider.value = name, 0.0
            _show_number(number, value)
        left = len(self.params) - len(sliders)
        self.more.value = f"{left} more, which a fit changes as well" if left else ""
        if len(sliders) != len(self.sliders.children):
            self.sliders.children, self.numbers.children = sliders, numbers

    def _moved(self, place: int, position: float) -> None:
        """A slider was moved, by the user or back to its middle."""
        if place < len(self.params):
            middle, steps = self._middle[place], round(position / GRID)  # a browser may send 0 in other bits
            value = middle + REACH * (abs(middle) or START) * GRID * steps
            if value != self.params[place]:
                self._set(place, value)
                _show_number(self.numbers.children[place], value)

    def _typed(self, place: int, value: float) -> None:
        """A number was typed, of any size; one that is not finite is taken back."""
        if self._subject is not None and place < len(self.params) and value != self.params[place]:
            if np.isfinite(value):
                self._set(place, value)
            self._set_sliders(self._subject)

    def _set(self, place: int, value: float) -> None:
        self.params[place], self.result, self._is_set = value, None, True
        self.queue.put("curve", self.draw)

    # ── the fit ──

    @property
    def chosen_loss(self) -> str:
        """As ``ek.fit`` takes it: a name, or a text of the user's."""
        return str(self.own_loss.value if self.loss.value == OWN else self.loss.value)

    def fit(self) -> None:
        """Fit, and move the sliders to the result."""
        if self._subject is not None and len(self.params):
            self._take(self._subject, *self._fitted(self._subject, None))

    def _fit_beside(self, progress: Progress) -> None:
        """Fit in the background, while the panel is in use, until it is stopped."""
        subject = self._subject
        if subject is None or not len(self.params):
            return
        self.fit_button.description = "Fitting …"
        self.scores.value = f"fitting; before the first fit {COMPILING}"
        try:
            fitted = self._fitted(subject, progress)
        except ExprkitError as error:
            message = error_page(error)
            self.queue.put("fit", lambda: setattr(self.scores, "value", message))  # after what is still to be drawn
        except Stopped:
            self.queue.put("curve", self.draw)
            raise
        else:
            self.queue.put("fit", lambda: self._take(subject, *fitted))
        finally:
            self.fit_button.description = "Fit"

    def _fitted(self, subject: Subject, progress: Progress | None) -> tuple[list[float] | None, ek.FitResult, float]:
        """The better fit, without a start or from what was set: that start, its result; and a constant's loss."""
        X, y, own = subject.points.dataset.X, subject.points.dataset.y, self.params.tolist()
        options: dict[str, Any] = {
            "loss": self.chosen_loss,
            "backend": subject.backend,
            "dtype": subject.dtype,
            "precision": subject.precision,
            "progress": progress or False,
        }
        start, result = None, ek.fit(subject.pop, X, y, restarts=int(self.restarts.value), **options)
        if self._is_set or self.result is not None:
            other = ek.fit(subject.pop, X, y, init=[own], **options)
            if other.loss[0] < result.loss[0] or not np.isfinite(result.loss[0]):
                start, result = own, other
        constant = ek.fit("p1", X, y, init=[[float(np.mean(y))]], **options)
        return start, result, float(constant.loss[0])

    def _take(self, subject: Subject, start: list[float] | None, result: ek.FitResult, constant: float) -> None:
        """Show a result, unless it is of an expression that is not looked at any more."""
        if subject is self._subject:
            self._start, self._constant, self._is_set = start, constant, False
            self.params, self.result = result.params[0].copy(), result
            self._set_sliders(subject)
            self.draw()

    def _outcome(self, result: ek.FitResult | None) -> str:
        """The fitted parameters with their standard errors, and why the fit ended."""
        if result is None:
            return ""
        names = [slider.description for slider in self.sliders.children]
        values = zip(names, result.params[0].tolist(), result.standard_errors[0].tolist(), strict=False)
        rows = {name: with_error(value, error) for name, value, error in values}
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
        start = f", restarts={self.restarts.value}" if self._start is None else f", init=[{_rounded(self._start)}]"
        options = f"{loss}{start}{subject.options()}"
        return f"{code}\n\nek.fit(pop, points.X, points.y{options}).to_pandas()"


def _grows(before: Subject, after: Subject) -> bool:
    """True where a text is continued, on the same data."""
    return after.points is before.points and after.text.startswith(before.text)


def with_error(value: float, error: float) -> str:
    """A number and its standard error, both to the error's second digit.

    >>> with_error(2.00010637, 0.000203), with_error(31415.9, 213.0), with_error(0.5, float("nan"))
    ('2.00011 ± 0.00020', '3.142e4 ± 0.021e4', '0.5')
    """
    if not 0 < error < np.inf:
        return f"{value:.6g}"
    mantissa, _, exponent = rounded(value, error, None).partition("e")
    size = f"{error / 10 ** int(exponent or 0):.{len(mantissa.partition('.')[2])}f}"
    return " ± ".join(f"{text}{exponent and 'e' + exponent}" for text in (mantissa, size))


def _rounded(params: Numbers) -> list[float]:
    return [float(f"{value:.6g}") for value in params]


def _show_number(field: Any, value: float) -> None:
    """Show a parameter with all its digits."""
    if np.isfinite(value):
        field.value = value
