"""Whether parameters are at a minimum: how long the step of Gauss and Newton from there is, in standard errors.

In: expressions, complete data, an objective, parameters.  Out: for each expression whether its loss is stationary.

    >>> import exprkit as ek, numpy as np
    >>> from exprkit.backends.objective import Options
    >>> from exprkit.fitting.finishing.factors import ON_HOST, CountedPoints
    >>> from exprkit.fitting.finishing.stationarity import is_stationary
    >>> points = CountedPoints(np.arange(1.0, 4.0)[:, None], np.array([2.0, 4.1, 5.9]), np.ones(3))
    >>> is_stationary(ek.parse(["p1 * x1"] * 2), points, Options(), np.array([[1.9929], [1.5]]))
    array([ True, False])

The step's length in units of the standard errors is that of the part of r that lies in J's columns, in units of the
residual deviation: no unit of a parameter, a column or y counts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from exprkit.backends import objective
from exprkit.backends.objective import Options
from exprkit.expressions.population import Population
from exprkit.fitting.finishing.factors import ON_HOST, CountedPoints, JacobianFactors, Model, parts_of

EPS = float(np.finfo(np.float64).eps)
RANK = 1e-14  # share of the largest singular value that is rounding, of columns of norm 1
# standard errors that a step may have from where a backend's fit, whose loss no longer fell, ended; with 0.001 instead
# 75 of 100 expressions of at most seven nodes have converged, with 1 instead 77 (10,000 of them, 362 points, float64)
SETTLED = 0.1
FEW_DIGITS = 10.0  # last places of f that are lost in rounding

# reasons that the last steps and the test have, beside those of the backends' fits
FALLING, ENDLESS = range(len(objective.REASONS), len(objective.REASONS) + 2)
REASONS = {
    **objective.REASONS,
    FALLING: "the loss no longer falls, but the parameters are not at a minimum: accuracy='final', or float64, goes on",
    ENDLESS: "the loss falls less and less as a parameter grows without end or goes to 0: it has no minimum there",
}


def projected(now: JacobianFactors, R: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The part of r that lies in the columns of R, (m, P) by singular directions, and the latter: (u, s, V', rank)."""
    U, s, V = np.linalg.svd(R)
    u = np.einsum("mij,mi->mj", U, now.q)
    lost = s <= RANK * s[:, :1]
    u[lost] = 0
    return u, np.where(lost, 1.0, s), V, np.sum(u != 0, axis=1)


def tolerances(
    now: JacobianFactors, p: np.ndarray, n_points: int, rank: np.ndarray, eps: float = EPS
) -> tuple[np.ndarray, np.ndarray]:
    """Squares: of the residual deviation, and of what rounding of f (to ``eps``) or the parameters makes of r."""
    deviation = (now.rest**2 + np.sum(now.q**2, axis=1)) / np.maximum(n_points - rank, 1)
    largest = np.abs(p * now.norm).max(axis=1, initial=0.0)
    return deviation, np.maximum(eps * now.size, EPS * largest) ** 2


def pushed(now: JacobianFactors, p: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Parameters at a bound that the loss pushes against, bool (m, P): constants to the others."""
    slope = np.einsum("mij,mi->mj", now.R, now.q)
    return ((p <= lower) & (slope > 0)) | ((p >= upper) & (slope < 0))


def sides_of(options: Options, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Lower and upper bounds of parameters, infinite where there are none."""
    ends = (options.lower, -np.inf), (options.upper, np.inf)
    return [np.full(shape, end) if side is None else side for side, end in ends]


def is_stationary(
    pop: Population,
    points: CountedPoints,
    options: Options,
    params: np.ndarray,
    eps: float = EPS,
    threads: int | None = None,
) -> np.ndarray:
    """Whether steps from ``params``, (n_exprs, max_params), are shorter than ``SETTLED`` standard errors, or rounding.

    ``eps``: the last place of the numbers that the fits were made in.
    """
    is_at_minimum = np.ones(len(pop), bool)
    for part in parts_of(len(pop), len(points.y), params.shape[1]):
        few = pop[part]
        own, p = options.of(part, few.max_params), np.nan_to_num(params[part, : few.max_params], nan=0.0)
        if not few.max_params or not len(points.y):
            continue
        with np.errstate(all="ignore"):
            now = Model(few, points, own, replace(ON_HOST, threads=threads)).factors(p)
            is_at_minimum[part] = is_short(now, p, own, len(points.y), eps)
    return is_at_minimum


def is_short(now: JacobianFactors, p: np.ndarray, options: Options, n_points: int, eps: float) -> np.ndarray:
    """Whether the step from ``p`` is, by the factors there; ``eps`` as of ``is_stationary``."""
    held = pushed(now, p, *sides_of(options, p.shape))
    u, _, _, rank = projected(now, np.where(held[:, None, :], 0.0, now.R))
    deviation, noise = tolerances(now, p, n_points, rank, eps)
    most = np.maximum(SETTLED**2 * deviation, FEW_DIGITS**2 * noise)
    return np.asarray(now.finite & (np.sum(u * u, axis=1) <= most))
