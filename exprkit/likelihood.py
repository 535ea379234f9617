"""Likelihoods of a fit, and how well the data determine its parameters.

Beside ``fit``, which calls it; ``description`` as well.

    >>> from exprkit.likelihood import negative_log_likelihood
    >>> import numpy as np
    >>> y = np.array([1.0, 2.0])
    >>> negative_log_likelihood("gaussian", np.array([2.0]), y, np.ones(2)).round(4)  # both errors are 1
    array([2.8379])
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from exprkit.evaluate import Evaluator

LIKELIHOODS = ("gaussian", "poisson")
CHUNK = 1 << 24  # numbers of a jacobian at a time
SINGULAR = 1e-13  # reciprocal condition of the scaled equations below which nothing is determined

_log_gamma = np.vectorize(math.lgamma, otypes=[np.float64])


def negative_log_likelihood(kind: str, found: np.ndarray, y: np.ndarray, w: np.ndarray | None) -> np.ndarray:
    """Of the objective ``found`` (sum of squares or Poisson's deviance) at its least.

    "gaussian": the weights are 1 / variance; without weights the variance is the mean square.
    "poisson": the expression is the mean of y.
    """
    y = np.asarray(y, np.float64)
    counted = np.ones(len(y)) if w is None else np.asarray(w, np.float64)
    some = counted > 0
    n, w64, y = int(some.sum()), counted[some], y[some]
    with np.errstate(all="ignore"):
        if kind == "poisson":
            log = np.where(y > 0, y * np.log(y), 0.0)
            return found / 2 + np.sum(w64 * (y - log + _log_gamma(y + 1))) if n else found / 2
        if w is None:
            return n / 2 * (np.log(2 * np.pi * found / n) + 1)
        return found / 2 + np.sum(np.log(2 * np.pi / w64)) / 2


def sums_of_squares(ev: Evaluator, params: np.ndarray, y: np.ndarray, w: np.ndarray | None) -> np.ndarray:
    """The sum of w r^2 of every expression, (n_exprs,)."""
    return ev._engine.loss_sums(_one_set(ev, params), y, w, "square")[0]


def information(
    ev: Evaluator, X: Any, params: np.ndarray, y: np.ndarray, w: np.ndarray | None, kind: str, delta: float
) -> tuple[np.ndarray, np.ndarray]:
    """J'QJ of the objective at ``params``, (n_exprs, P, P), and the spread of its gradient, J' (QR)^2 J."""
    if kind in ("squares", "gaussian"):
        jtj = ev._engine.normal_equations(_one_set(ev, params), np.ascontiguousarray(y), w)[0][0]
        return jtj, jtj
    n_exprs, width = params.shape
    A, B = np.zeros((n_exprs, width, width)), np.zeros((n_exprs, width, width))
    data, y, w = _counted(X, y, w)
    for part, p, made in _parts(ev, data, params, max(width, 1)):
        f, J = made.evaluate(p), made.jacobian(p)
        n = p.shape[1]
        with np.errstate(all="ignore"):
            q = w / f if kind == "poisson" else w * np.minimum(1.0, delta / np.abs(f - y))
            A[part, :n, :n] = np.einsum("epi,ep,epj->eij", J, q, J)
            B[part, :n, :n] = np.einsum("epi,ep,epj->eij", J, (q * (f - y)) ** 2, J)
    return A, B


def objective_at(
    ev: Evaluator, X: Any, params: np.ndarray, y: np.ndarray, w: np.ndarray | None, kind: str
) -> np.ndarray:
    """The sum of squares ("gaussian") or Poisson's deviance at ``params``, (n_exprs,)."""
    if kind == "gaussian":
        return sums_of_squares(ev, params, y, w)
    data, y, w = _counted(X, y, w)
    found = np.empty(len(params))
    for part, p, made in _parts(ev, data, params, 1):
        f = made.evaluate(p)
        with np.errstate(all="ignore"):
            log = np.where(y > 0, y * np.log(y / f), 0.0)
            found[part] = np.where(f > 0, 2 * (log - (y - f)), np.nan) @ w
    return found


def _counted(X: Any, y: np.ndarray, w: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Data, target and weights of the points that count, in float64."""
    w = np.ones(len(y)) if w is None else w.astype(np.float64)
    return np.asarray(X, np.float64)[w > 0], y[w > 0].astype(np.float64), w[w > 0]


def _parts(
    ev: Evaluator, data: np.ndarray, params: np.ndarray, width: int
) -> Iterator[tuple[slice, np.ndarray, Evaluator]]:
    """The population in parts whose matrices fit in memory: where, parameters, an evaluator in float64."""
    at_once = max(1, CHUNK // max(len(data) * width, 1))
    for first in range(0, len(params), at_once):
        part = slice(first, min(first + at_once, len(params)))
        some = ev.pop[part]
        p = np.nan_to_num(params[part, : some.max_params], nan=0.0)
        yield part, p, type(ev)(some, data, "cpu", dtype="float64", threads=ev.threads)


def _one_set(ev: Evaluator, params: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(np.nan_to_num(params, nan=0.0)[None].astype(ev.dtype))


def covariance(
    ev: Evaluator, X: Any, params: np.ndarray, y: np.ndarray, w: np.ndarray | None, kind: str, delta: float
) -> np.ndarray:
    """The parameters' covariance, (n_exprs, P, P); nan where the data do not determine them.

    "squares", and "gaussian" without weights: (J'WJ)^-1 times the residual variance; "gaussian" with
    weights and "poisson": the inverse of Fisher's information; "huber": the sandwich of an M-estimator.
    "mae": nan, as it would need the density of the errors at 0.
    """
    n_exprs, width = params.shape
    found = np.full((n_exprs, width, width), np.nan)
    if kind == "mae" or width == 0:
        return found
    A, B = information(ev, X, params, y, w, kind, delta)
    n_points = len(y) if w is None else int(np.sum(w > 0))
    factor = np.ones(n_exprs)
    if kind == "squares" or (kind == "gaussian" and w is None):
        free = n_points - ev.pop.n_params
        with np.errstate(invalid="ignore"):
            factor = np.where(free > 0, sums_of_squares(ev, params, y, w) / np.maximum(free, 1), np.nan)
    for n in np.unique(ev.pop.n_params[ev.pop.valid]).tolist():
        which = np.flatnonzero((ev.pop.n_params == n) & ev.pop.valid)
        if n:
            inverse = _inverses(A[which, :n, :n])
            if kind == "huber":
                inverse = inverse @ B[which, :n, :n] @ inverse
            found[which, :n, :n] = factor[which, None, None] * inverse
    return found


def _inverses(A: np.ndarray) -> np.ndarray:
    """The inverses of symmetric matrices, (m, n, n); nan where one is singular or not finite."""
    diagonal = np.diagonal(A, axis1=1, axis2=2)
    with np.errstate(all="ignore"):
        scale = 1 / np.sqrt(diagonal)
        scaled = A * scale[:, :, None] * scale[:, None, :]
        sound = np.isfinite(scaled).all(axis=(1, 2))
        scaled[~sound] = np.eye(A.shape[1])
        values = np.linalg.eigvalsh(scaled)
        sound &= values[:, 0] > SINGULAR * values[:, -1]
        scaled[~sound] = np.eye(A.shape[1])
        inverse = np.linalg.inv(scaled) * scale[:, :, None] * scale[:, None, :]
    inverse[~sound] = np.nan
    return inverse
