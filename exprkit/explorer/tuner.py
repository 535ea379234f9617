"""The curve: sliders for the parameters, the expression against the data, and its fit.

Part of the explorer's view: it shows what ``curve`` computes and ``exprkit.fit`` finds.

    >>> from exprkit.explorer.aspects import Subject
    >>> from exprkit.explorer.tuner import Tuner
    >>> tuner = Tuner()
    >>> tuner.show(Subject("p1 + p2 / x2"))
    >>> [slider.description for slider in tuner.sliders.children]
    ['p1', 'p2']
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from exprkit.errors import ExprkitError, brought_by
from exprkit.evaluate.evaluator import Evaluator
from exprkit.explorer import curve
from exprkit.explorer.aspects import Subject, code_page, complaint
from exprkit.explorer.work import Desk
from exprkit.fitting.fit import LOSSES, FitResult, fit
from exprkit.text.names import NUMBERED
from exprkit.text.tokens import PARAMETER

with brought_by("notebooks"):
    import ipywidgets as widgets

Numbers = Sequence[float] | np.ndarray
START = 1.0
RANGE = 5.0
MOST_SLIDERS = 12


class Tuner(widgets.HBox):
    """Sliders, curve, residuals and losses of one expression.

    Attributes
    ----------
    params : float64 array, (n_params,)
        What the sliders say, or the fit found.
    result : FitResult or None
        Of the last fit, as long as the parameters are those it found.
    """

    def __init__(self, desk: Desk | None = None) -> None:
        self.desk = desk or Desk()
        self.params = np.empty(0)
        self.result: FitResult | None = None
        self._start = np.empty(0)  # of the last fit
        self._subject: Subject | None = None
        self.sliders = widgets.VBox()
        self.fit_button = widgets.Button(description="Fit", icon="bullseye", tooltip="Levenberg-Marquardt, from here")
        self.fit_button.on_click(lambda _: self.desk.put("fit", lambda stop: self.fit()))
        narrow = widgets.Layout(width="220px")
        self.loss = widgets.Dropdown(options=LOSSES, description="loss", layout=narrow)
        self.restarts = widgets.BoundedIntText(0, min=0, max=10_000, description="restarts", layout=narrow)
        self.along = widgets.Dropdown(description="along", layout=narrow)
        self.along.observe(lambda _: self.redraw(), "value")
        self.scores, self.picture, self.code, self.more = (widgets.HTML() for _ in range(4))
        controls = self.sliders, self.more, self.fit_button, self.loss, self.restarts, self.along, self.scores
        left = widgets.VBox(controls, layout=widgets.Layout(width="330px", flex="0 0 auto"))
        super().__init__([left, widgets.VBox([self.picture, self.code])])

    def show(self, subject: Subject, params: Numbers | None = None) -> None:
        """Show another expression, with these parameters or 1 each."""
        n_params = subject.expression.n_params
        if params is None:
            kept = self.params[:n_params]  # what has been set stays while the text is written on
            params = [*kept.tolist(), *[START] * (n_params - len(kept))]
        self._subject, self.params, self.result = subject, np.array(params, np.float64), None
        self.ev = Evaluator(subject.pop, subject.points.dataset.X, subject.backend, subject.precision, subject.dtype)
        self._set_axes(subject)
        self._set_sliders(subject)
        self.fit_button.disabled = n_params == 0
        self.draw()

    def redraw(self) -> None:
        """Draw soon, in the desk's thread."""
        self.desk.put("curve", lambda stop: self.draw())

    def draw(self) -> None:
        """Draw for the parameters as they are."""
        subject = self._subject
        if subject is None:
            return
        points, params, result = subject.points.dataset, self.params.copy(), self.result  # a handler may change them
        values = np.asarray(self.ev.evaluate([params])[0], np.float64)
        along = self.along.index or 0
        fitted = curve.fitted(points, values, along, self._band(params, result))
        self.picture.value = fitted + curve.residuals(points, values, along)
        self.scores.value = _table(curve.scores(self.ev, [params], points.y)) + self._found(result)
        self.code.value = code_page(self._code(subject, params, result))

    # ── widgets ──

    def _set_axes(self, subject: Subject) -> None:
        names = subject.points.dataset.variables
        if tuple(self.along.options) != names:
            self.along.options = names
            self.along.index = curve.widest(subject.points.dataset)

    def _set_sliders(self, subject: Subject) -> None:
        names = subject.expression.parameters or [f"{NUMBERED[PARAMETER]}{i + 1}" for i in range(len(self.params))]
        own = list(self.sliders.children[: len(self.params)])
        for place in range(len(own), min(len(self.params), MOST_SLIDERS)):
            slider = widgets.FloatSlider(
                START, min=-RANGE, max=RANGE, step=0.01, readout_format=".4g", layout=widgets.Layout(width="320px")
            )
            slider.observe(lambda change, place=place: self._moved(place, change["owner"]), "value")
            own.append(slider)
        for slider, name, value in zip(own, names, self.params.tolist(), strict=False):
            slider.description = name
            _set_slider(slider, value)
        left = len(self.params) - len(own)
        self.more.value = f"{left} more, which a fit changes as well" if left else ""
        if len(own) != len(self.sliders.children):
            self.sliders.children = own

    def _moved(self, place: int, slider: Any) -> None:
        """A slider was moved: by the user, or by ``_set_sliders``, whose value the browser rounds and sends back."""
        if place < len(self.params) and not _shows(slider, self.params[place]):
            self.params[place] = slider.value
            self.result = None
            self.redraw()

    # ── the fit ──

    def fit(self) -> None:
        """Fit from the parameters as they are, and move the sliders to what was found."""
        subject = self._subject
        if subject is None or not len(self.params):
            return
        points = subject.points.dataset
        self.fit_button.description = "Fitting …"  # the first fit compiles its loops, which takes seconds
        try:
            found = fit(
                subject.pop, points.X, points.y, init=[self.params], loss=self.loss.value,
                restarts=int(self.restarts.value), backend=subject.backend, precision=subject.precision,
                dtype=subject.dtype,
            )  # fmt: skip
        except ExprkitError as error:
            self.scores.value = complaint(error)
            return
        finally:
            self.fit_button.description = "Fit"
        self._start, self.params, self.result = self.params, found.params[0].copy(), found
        self._set_sliders(subject)
        self.draw()

    def _band(self, params: np.ndarray, result: FitResult | None) -> np.ndarray | None:
        """How sure the last fit is of the curve, as long as its parameters are shown."""
        if result is None or not np.isfinite(result.covariance[0]).all():
            return None
        return curve.band(self.ev, [params], result.covariance[0])

    def _found(self, result: FitResult | None) -> str:
        """The fitted parameters with their standard errors, and why the fit ended."""
        if result is None:
            return ""
        names = [slider.description for slider in self.sliders.children]
        values = zip(names, result.params[0].tolist(), result.standard_errors[0].tolist(), strict=False)
        rows = {name: f"{value:.6g}" + (f" ± {error:.2g}" if error == error else "") for name, value, error in values}
        n = int(result.iterations[0])
        why = f"{result.reason[0]}, after {n} iteration{'s' * (n != 1)}"
        return _table(rows) + f'<div style="line-height:1.4">{html.escape(why)}</div>'

    def _code(self, subject: Subject, params: np.ndarray, result: FitResult | None) -> str:
        lines = [
            f"{subject.evaluator()}params = [{_rounded(params)}]",
            "y = ev.evaluate(params)[0]",
            'print(ev.loss(params, points.y, kind="rmse"))',
        ]
        if result is not None:
            chosen = f", loss={self.loss.value!r}" if self.loss.value != LOSSES[0] else ""
            more = f", restarts={self.restarts.value}" if self.restarts.value else ""
            call = f"ek.fit(pop, points.X, points.y, init=[{_rounded(self._start)}]{chosen}{more}{subject.options})"
            lines.append(f"\n{call}.to_pandas()")
        return "\n".join(lines)


def _rounded(params: np.ndarray) -> list[float]:
    return [float(f"{value:.6g}") for value in params.tolist()]


def _set_slider(slider: Any, value: float) -> None:
    """Move a slider, and its ends where the value lies outside."""
    if not np.isfinite(value):
        return
    while not slider.min <= value <= slider.max:
        reach = 2 * max(abs(slider.min), abs(slider.max))
        slider.min, slider.max, slider.step = -reach, reach, reach / 500
    slider.value = value


def _shows(slider: Any, value: float) -> bool:
    """Whether the slider stands at this value, or at the step that is nearest to it."""
    nearest = slider.min + np.floor((value - slider.min) / slider.step + 0.5) * slider.step
    return slider.value == value or abs(slider.value - nearest) < 1e-3 * slider.step


def _table(rows: dict[str, Any]) -> str:
    """Names and numbers as lines of HTML."""
    cells = "".join(
        f"<tr><td style='padding-right:12px'>{html.escape(name)}</td>"
        f"<td>{value:.6g}</td></tr>" if isinstance(value, float) else
        f"<tr><td style='padding-right:12px'>{html.escape(name)}</td><td>{html.escape(str(value))}</td></tr>"
        for name, value in rows.items()
    )  # fmt: skip
    return f'<table style="line-height:1.5">{cells}</table>'
