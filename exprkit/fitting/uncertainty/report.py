"""Reports of one fitted expression: a text as lmfit writes it, and a figure of what may be wrong with the fit.

In: a ``Minimum``.  Out: a ``Report``, a figure of Matplotlib's.

Leverage is how much a point draws its own prediction, Cook's distance how far the parameters move without it (R. D.
Cook, "Detection of influential observation in linear regression", Technometrics 19, 1977).  A profile is drawn as the
root of its deviance over the distance in standard errors: straight where intervals by the delta method are right.
Gradients are each point's pull at a parameter, |w r df/dp| in units of those of normal errors: a point above the
line decides about it alone (half-normal plots: C. Daniel, Technometrics 1, 1959).
"""

from __future__ import annotations

import base64
import html
import io
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from exprkit.backends import objective
from exprkit.errors import ArgumentError, brought_by, number_of
from exprkit.fitting.plot import CURVE, DATA
from exprkit.fitting.uncertainty.intervals import correlation, deviances, steps_of
from exprkit.fitting.uncertainty.minimum import Minimum, scaled
from exprkit.fitting.uncertainty.predictions import bands
from exprkit.fitting.uncertainty.words import identifiability
from exprkit.text.names import word_of
from exprkit.text.tokens import VARIABLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LITTLE = 0.1  # correlations below are not listed
METHODS = {"lm": "Levenberg-Marquardt", "lbfgs": "L-BFGS", "adam": "Adam"}
PROFILE = np.linspace(-3, 3, 13)  # standard errors at which profiles are drawn
ROUNDING = 32 * float(np.finfo(np.float64).eps)  # share of y that residuals are of a fit that is exact
MANY = 4.0  # times the mean: leverages, and Cook's distances times n, above are marked with their row


class Report(str):
    """A text that Jupyter shows as it is, with the figure below it if it has one."""

    figure: Figure | None = None

    def _repr_html_(self) -> str:
        """HTML, complete in itself: a figure is part of it, as PNG."""
        picture, drawn = "", io.BytesIO()
        if self.figure is not None:
            self.figure.savefig(drawn, format="png")
            picture = f'<img src="data:image/png;base64,{base64.b64encode(drawn.getvalue()).decode()}">'
        return f"<pre>{html.escape(self)}</pre>{picture}"


def report(least: Minimum, one: Any, figure: bool) -> Report:
    """The text, and the figure if it is asked for."""
    with brought_by("search"):
        from scipy.special import chdtrc

    result, names, n = one._result, one.names, len(least.points.y)
    statistics = {
        "fitting method": METHODS[result.method],
        "# function evals": f"{result.n_evaluations:,}",
        "# data points": f"{n:,}",
        "# variables": f"{len(names) - int(one.at_bound.sum())}",
        result.kind: f"{one.loss:.8g}",
    }
    if np.isfinite(least.free):
        statistics["reduced chi-square"] = f"{least.variance:.8g}"
    if result.kind == "gaussian" and result.goal.w is not None and least.result is result:
        chi = float(np.sum(least.points.w * (least.points.y - least.values) ** 2))
        free = n - len(names) + int(one.at_bound.sum())
        statistics["chi-square"] = f"{chi:.8g}, {number_of(free, 'degree')} of freedom: p = {chdtrc(free, chi):.3g}"
    if least.result is result and result.kind in ("squares", *objective.LIKELIHOODS):
        names_of = {"aic": "Akaike info crit", "bic": "Bayesian info crit"}
        statistics |= {name: f"{result.score(by)[0]:.8g}" for by, name in names_of.items()}
    statistics |= {"R-squared": f"{one.r2:.8g}", "ended because": one.reason}
    tied = [(f"{name} (tied)", value, error) for name, (value, error) in one.tied.items()]
    width = max((len(name) for name in (*names, *(name for name, *_ in tied))), default=0)
    lines = ["[[Model]]", f"    {one.expression}", "[[Fit Statistics]]"]
    lines += [f"    {name:<18} = {value}" for name, value in statistics.items()]
    lines += ["[[Variables]]"] if names else []
    for name, value, error in [*zip(names, one.params.tolist(), one.standard_errors.tolist(), strict=True), *tied]:
        share = f" ({100 * abs(error / value):.2f}%)" if value else ""
        known = f"+/- {error:.8g}{share}" if error >= 0 else "(no standard error)"
        lines.append(f"    {name + ':':<{width + 1}} {value:.8g} {known}")
    near = correlation(least, names).to_numpy()
    pairs = [(i, j) for i, j in np.argwhere(np.triu(np.abs(near) >= LITTLE, 1)).tolist()]
    if pairs:
        lines.append(f"[[Correlations]] (unreported correlations are < {LITTLE:.3f})")
    for i, j in sorted(pairs, key=lambda pair: -abs(near[pair])):
        lines.append(f"    C({names[i]}, {names[j]}) = {near[i, j]:+.4f}")
    sentences = identifiability(least, names)
    lines += ["[[Identifiability]]", *(f"    {sentence}" for sentence in sentences)] if sentences else []
    text = Report("\n".join(lines))
    text.figure = diagnostics(least, result, names) if figure else None
    return text


def diagnostics(least: Minimum, result: Any, names: list[str]) -> Figure:
    """Eight panels: bands, residuals, quantiles, leverages, Cook's distances, profiles, gradients, correlations.

    Without parameters, or residuals that errors could be told from, the first two.
    """
    with brought_by("notebooks"):
        import matplotlib.pyplot as plt

    if least.options.kind != objective.SQUARES:
        raise ArgumentError(f"diagnostics are of squared errors, not of loss={result.kind!r}")
    left, whole = (np.sqrt(np.sum(least.points.w * a**2)) for a in (least.points.y - least.values, least.points.y))
    if not (least.variance > 0 and left > ROUNDING * whole and len(least.params)):
        return _without_errors(least, result)
    h, free = least.leverage, len(least.params)
    with np.errstate(all="ignore"):
        size = (least.points.y - least.values) * np.sqrt(least.points.w / least.variance)
        residuals = size / np.sqrt(1 - h)
        cook = residuals**2 * h / (1 - h) / free
    drawn, panels = plt.subplots(2, 4, figsize=(16, 7), layout="constrained")
    plt.close(drawn)
    fit, over, quantiles, lever, moved, profile, pulls, pairs = panels.flat
    _draw_bands(fit, least, result)
    over.axhline(0, color=DATA)
    over.plot(least.values, residuals, ".")
    over.set(xlabel="predicted", ylabel="studentised residual")
    ordered = np.sort(residuals[np.isfinite(residuals)])
    normal = [NormalDist().inv_cdf((i + 0.5) / len(ordered)) for i in range(len(ordered))]
    quantiles.axline((0, 0), slope=1, color=DATA)
    quantiles.plot(normal, ordered, ".")
    quantiles.set(xlabel="normal quantile", ylabel="studentised residual")
    for axes, numbers, what in ((lever, h, "leverage"), (moved, cook, "Cook's distance")):
        axes.vlines(np.arange(len(numbers)), 0, numbers)
        for row in np.flatnonzero(numbers > MANY * np.nanmean(numbers)).tolist():
            axes.annotate(str(row), (row, numbers[row]), fontsize="small", ha="center", va="bottom")
        axes.set(xlabel="row", ylabel=what)
    j = np.flatnonzero(~least.result.at_bound[0, :free])
    values = np.clip((least.params + PROFILE[:, None] * steps_of(least)).T, *(side[:, None] for side in least.sides))[j]
    rise, _ = deviances(least, [j], [values], np.tile(least.params, (len(j), 1)))
    away = (values - least.params[j, None]) / steps_of(least)[j, None]
    profile.axline((0, 0), slope=1, color=DATA)
    for name, x, deviance in zip(np.array(names)[j], away, rise, strict=True):
        profile.plot(x, np.sign(x) * np.sqrt(np.maximum(deviance, 0)), label=name.replace("$", r"\$"))
    profile.set(xlabel="standard errors from the fit", ylabel="root of the deviance")
    slopes = np.abs(scaled(least.jacobian * np.sqrt(least.points.w)[:, None]) * size[:, None]) * np.sqrt(len(size))
    half = [NormalDist().inv_cdf(0.5 + (i + 0.5) / len(size) / 2) for i in range(len(size))]
    pulls.axline((0, 0), slope=1, color=DATA)
    for k in j.tolist():
        pulls.plot(half, np.sort(slopes[:, k]), ".", label=names[k].replace("$", r"\$"))
    pulls.set(xlabel="half-normal quantile", ylabel="gradient")
    near = correlation(least, names).to_numpy()
    drawn.colorbar(pairs.imshow(near, vmin=-1, vmax=1, cmap="RdBu"), ax=pairs, label="correlation")
    for set_ticks in (pairs.set_xticks, pairs.set_yticks):
        set_ticks(range(free), [name.replace("$", r"\$") for name in names])
    for axes in (profile, pulls):
        axes.legend(frameon=False, fontsize="small")
    return drawn


def _without_errors(least: Minimum, result: Any) -> Figure:
    """The curve beside the data, and what is left."""
    with brought_by("notebooks"):
        from matplotlib.figure import Figure

    drawn = Figure(figsize=(8, 3.5), layout="constrained")
    fit, over = drawn.subplots(1, 2)
    _draw_bands(fit, least, result)
    over.axhline(0, color=DATA)
    over.plot(least.values, least.points.y - least.values, ".")
    over.set(xlabel="predicted", ylabel="residual")
    reason = "exact, or as many parameters as points" if len(least.params) else "no parameters"
    drawn.suptitle(f"{reason}: nothing to tell errors of parameters from", fontsize="medium")
    return drawn


def _draw_bands(axes: Any, least: Minimum, result: Any) -> None:
    """Data, curve and bands of 95 % over the only variable, or y over what is predicted."""
    X, y, one = result.goal.X, result.goal.y, result.pop[0]
    used = np.unique(one.values[one.kinds == VARIABLE]).astype(int)
    if len(used) == 1:
        along = np.zeros((CURVE, X.shape[1]))
        x = along[:, used[0]] = np.linspace(X[:, used[0]].min(), X[:, used[0]].max(), CURVE)
        is_plain = result.goal.w is None and least.result is result
        for kind, opacity in (("observation", 0.15), ("mean", 0.35))[not is_plain :]:
            band = bands(least, result, along, 0.95, kind, "delta", None, "residuals", 2, 0)
            axes.fill_between(x, band["lower"], band["upper"], color="C0", alpha=opacity, linewidth=0)
        axes.plot(X[:, used[0]], y, ".", color=DATA)
        axes.plot(x, band["prediction"])
        axes.set_xlabel(word_of(VARIABLE, int(used[0]), result.pop.variables), parse_math=False)
    else:
        axes.axline((float(y.mean()),) * 2, slope=1, color=DATA)
        axes.plot(result.predict(X, 0), y, ".")
        axes.set_xlabel("predicted")
    axes.set_ylabel(result.goal.target, parse_math=False)
