"""An expression beside the data: its curve, residuals, losses, and how sure a fit is of it.

Part of the explorer; numbers come from an ``Evaluator``, pictures from ``svg``.

    >>> import exprkit as ek
    >>> from exprkit.explorer import curve
    >>> points = ek.data.rough_pipe()
    >>> ev = ek.Evaluator(ek.parse("p1 / x2"), points.X)
    >>> sorted(curve.scores(ev, [[2.0]], points.y))
    ['R2', 'mae', 'mse', 'not finite', 'rmse', 'sse']
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from exprkit.data import Dataset
from exprkit.evaluate.evaluator import LOSSES, Evaluator
from exprkit.explorer import svg

DRAWN = 2000  # points at the most; of more, evenly many are left out
MOST_GROUPS = 8  # so many values of the other variables make a line each
SURE = 1.959964  # standard deviations that hold 95 % of a normal distribution


def scores(ev: Evaluator, params: Any, y: np.ndarray) -> dict[str, float]:
    """Every loss of the evaluator's first expression, R2, and at how many points it is not finite."""
    found = {kind: float(ev.loss(params, y, kind=kind)[0]) for kind in LOSSES}
    with np.errstate(all="ignore"):
        found["R2"] = float(1 - np.float64(found["sse"]) / np.sum((y - np.mean(y)) ** 2))
    found["not finite"] = int(np.sum(~np.isfinite(np.asarray(ev.evaluate(params)[0]))))
    return found


def band(ev: Evaluator, params: Any, covariance: np.ndarray) -> np.ndarray:
    """Half the width of the 95 % band of the first expression, (n_points,): 1.96 sqrt(J C J').

    Parameters
    ----------
    ev : Evaluator
    params
        As for ``ev.evaluate``.
    covariance : array, (n_params, n_params)
        Of a fit.
    """
    n_params = len(covariance)
    J = np.asarray(ev.jacobian(params), np.float64)[0, :, :n_params]
    with np.errstate(invalid="ignore"):
        return SURE * np.sqrt(np.einsum("ij,jk,ik->i", J, covariance, J))


def fitted(points: Dataset, values: np.ndarray, along: int = 0, half_band: np.ndarray | None = None) -> str:
    """The data as dots and an expression's values as lines, along one variable; SVG.

    Where the other variables have up to eight values between them, each has its own line and
    colour; where they have more, the expression's values are dots too.

    Parameters
    ----------
    points : Dataset
    values : array, (n_points,)
        Of the expression.
    along : int
        Which variable goes to the right.
    half_band : array, (n_points,), optional
        Drawn on either side of the values.
    """
    points, values, half_band = _drawn(points, values, half_band)
    x = points.X[:, along]
    chart = svg.Chart(svg.Axis(x, points.variables[along]), svg.Axis(points.y, "target and expression", margin=0.15))
    groups = list(_groups(points.X, along))
    lines = len(groups) > 1 or points.X.shape[1] == 1
    for place, group in enumerate(groups):
        colour = svg.SERIES[place % len(svg.SERIES)]
        chart.dots(x[group], points.y[group], colour if len(groups) > 1 else svg.GREY)
        if half_band is not None:
            draw = chart.band if lines else chart.whiskers
            draw(x[group], (values - half_band)[group], (values + half_band)[group], colour)
        (chart.line if lines else chart.dots)(x[group], values[group], colour)
    finite = values[np.isfinite(values)]
    if not len(finite):
        chart.note("the expression is not finite at any point")
    elif finite.min() > chart.y.high or finite.max() < chart.y.low:
        chart.note(f"the expression is out of sight: {finite.min():.4g} to {finite.max():.4g}")
    return chart.svg()


def residuals(points: Dataset, values: np.ndarray, along: int = 0) -> str:
    """Expression minus target along one variable; SVG."""
    points, values, _ = _drawn(points, values, None)
    x = points.X[:, along]
    with np.errstate(invalid="ignore"):
        left = values - points.y
    chart = svg.Chart(svg.Axis(x, points.variables[along]), svg.Axis(np.append(left, 0.0), "residual"), height=170)
    chart.line([x.min(), x.max()], [0.0, 0.0], svg.GREY, 1.0)
    for place, group in enumerate(_groups(points.X, along)):
        chart.dots(x[group], left[group], svg.SERIES[place % len(svg.SERIES)])
    return chart.svg()


def widest(points: Dataset) -> int:
    """The variable with the most different values, which is the one to draw along."""
    return int(np.argmax([len(np.unique(column)) for column in points.X.T]))


def _drawn(
    points: Dataset, values: np.ndarray, half_band: np.ndarray | None
) -> tuple[Dataset, np.ndarray, np.ndarray | None]:
    """As many of the points as are drawn."""
    rows = slice(None, None, -(-len(points) // DRAWN))
    kept = Dataset(points.X[rows], points.y[rows], points.variables, points.name)
    return kept, np.asarray(values, np.float64)[rows], None if half_band is None else half_band[rows]


def _groups(X: np.ndarray, along: int) -> Iterator[np.ndarray]:
    """Rows that share the values of all variables but one, sorted by that one; all rows where there are too many."""
    others = np.delete(X, along, axis=1)
    which = np.unique(others, axis=0, return_inverse=True)[1].ravel()
    if which.max(initial=0) >= MOST_GROUPS:
        which[:] = 0
    for group in range(which.max(initial=0) + 1):
        rows = np.flatnonzero(which == group)
        yield rows[np.argsort(X[rows, along], kind="stable")]
