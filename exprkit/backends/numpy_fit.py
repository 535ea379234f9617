"""The definition of a fit: Levenberg-Marquardt for one expression after the other, by plain NumPy.

Beside ``backends/numpy.py``, which calls it; the fits of all other backends take the same
steps.

    >>> import numpy as np
    >>> from exprkit.backends.numpy_fit import step
    >>> step(np.array([[2.0, 0.0], [0.0, 0.0]]), np.array([4.0, 0.0]), np.array([2.0, 0.0]), 0.0)
    array([-2.,  0.])

Marquardt's scaling, by the largest diagonal of late (an old one fades, or an expression that begins
steep never gets away), and Nielsen's way of lowering the damping after a step that was as good as
predicted.  Parameters that the expression is linear in are solved before the first step and hardly damped
in the others: whatever the rest does, they follow at once, as in variable projection (G. H. Golub,
V. Pereyra, SIAM J. Numer. Anal. 10, 1973).  A parameter whose diagonal is 0 or
not finite stays where it is, so that Jacobians of deficient rank, common among machine-made
expressions, do no harm (G. Kronberger, "Local optimization often is ill-conditioned in genetic
programming for symbolic regression", arXiv 2209.00942).  A trial whose loss is not finite is a
rejected step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from exprkit import objective
from exprkit.dependence import dependence
from exprkit.objective import Fitted, Options
from exprkit.population import Population

Model = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class Equations(NamedTuple):
    """The objective at a point and what the next step is made from."""

    loss: float
    jtr: np.ndarray
    jtj: np.ndarray


def fit_all(
    pop: Population,
    model_of: Callable[[int, np.ndarray], tuple[np.ndarray, np.ndarray]],
    starts: np.ndarray,
    y: np.ndarray,
    w: np.ndarray,
    options: Options,
) -> Fitted:
    """Fit every expression from each of its starts, (n_starts, n_exprs, max_params); the best one counts."""
    known = dependence(pop)
    n_exprs, width = starts.shape[1:]
    fitted = Fitted(
        np.full((n_exprs, width), np.nan), np.full(n_exprs, np.nan), np.zeros(n_exprs, np.int32),
        np.full(n_exprs, objective.INVALID, np.uint8), 0,
    )  # fmt: skip
    evaluations = 0
    for i in np.flatnonzero(pop.valid).tolist():
        n = int(pop.n_params[i])
        lower = np.full(n, -np.inf) if options.lower is None else options.lower[i, :n]
        upper = np.full(n, np.inf) if options.upper is None else options.upper[i, :n]
        linear = np.array([bool(int(known.linear[i]) >> j & 1) if j < 64 else False for j in range(n)], bool)
        for start in starts[:, i, :n]:
            model = functools.partial(model_of, i)
            made = _Fit(model, y, w, options, lower, upper, linear, bool(known.differentiable[i]))
            with np.errstate(all="ignore"):
                params, loss, iterations, status = made.run(start)
            evaluations += made.evaluations
            first, better = fitted.status[i] == objective.INVALID, loss < fitted.loss[i]
            if first or better or (np.isnan(fitted.loss[i]) and not np.isnan(loss)):
                fitted.params[i, :n], fitted.loss[i] = params, loss
                fitted.iterations[i], fitted.status[i] = iterations, status
    return fitted._replace(evaluations=evaluations)


def step(
    jtj: np.ndarray, jtr: np.ndarray, scale: np.ndarray, damping: float, fixed: np.ndarray | None = None
) -> np.ndarray | None:
    """The damped step of the parameters that can move, 0 for the others; None: the equations have no solution."""
    active = is_sound(jtj, jtr)
    if fixed is not None:
        active &= ~fixed
    d = np.zeros(len(jtr))
    if np.any(active):
        A = (jtj + damping * np.diag(scale))[np.ix_(active, active)]
        try:
            L = np.linalg.cholesky(A)
        except np.linalg.LinAlgError:
            return None
        d[active] = np.linalg.solve(L.T, np.linalg.solve(L, -jtr[active]))
    return d if np.all(np.isfinite(d)) else None


def is_sound(jtj: np.ndarray, jtr: np.ndarray) -> np.ndarray:
    """The parameters that change the values, by numbers that can be reckoned with."""
    return np.isfinite(np.diag(jtj)) & (np.diag(jtj) > 0) & np.isfinite(jtr)


def flat_status(now: Equations) -> int:
    """Why a fit ends where there is no slope."""
    return objective.GTOL if np.any(is_sound(now.jtj, now.jtr)) else objective.FLAT


class _Fit:
    """One expression from one start."""

    def __init__(
        self, model: Model, y: np.ndarray, w: np.ndarray, options: Options, lower: np.ndarray, upper: np.ndarray,
        linear: np.ndarray, differentiable: bool,
    ) -> None:  # fmt: skip
        self.model, self.options, self.lower, self.upper = model, options, lower, upper
        self.y, self.w, self.some = y, w, w > 0
        self.linear, self.differentiable = linear & options.linear, differentiable
        self.share = np.where(self.linear, objective.FREE, 1.0)  # of the damping
        self.evaluations = 0

    def run(self, start: np.ndarray) -> tuple[np.ndarray, float, int, int]:
        """(parameters, loss, iterations, status)"""
        o = self.options
        if not np.any(self.some):
            return start, 0.0, 0, objective.NO_WEIGHT
        p = np.clip(start, self.lower, self.upper)
        now = self.equations(p)
        if len(p) == 0 or not self.differentiable:
            return p, now.loss, 0, objective.NO_DERIVATIVE if len(p) else objective.NO_PARAMETERS
        if not np.isfinite(now.loss):
            return start, np.nan, 0, objective.NOT_FINITE
        p, now = self.solved_linear(p, now)
        damping, scale = objective.FIRST_DAMPING, np.diag(now.jtj)
        if self.flat(p, now):
            return p, now.loss, 0, flat_status(now)
        for iteration in range(1, o.max_iter + 1):
            if damping > objective.MOST_DAMPING:
                return p, now.loss, iteration - 1, objective.STUCK
            d = step(now.jtj, now.jtr, self.share * scale, damping, self.held(p, now))
            if d is None:
                damping *= objective.HARDER
                continue
            trial = np.clip(p + d, self.lower, self.upper)
            d = trial - p
            if np.all(np.abs(d) <= o.tol * (np.abs(p) + o.tol)):
                return p, now.loss, iteration, objective.XTOL
            new = self.equations(trial)
            predicted = -(2 * now.jtr[d != 0] @ d[d != 0] + _quadratic(now.jtj, d))
            gain = now.loss - new.loss
            done = not gain > o.tol * now.loss and predicted <= o.tol * now.loss
            if not gain > 0:
                if done:
                    return p, now.loss, iteration, objective.FTOL
                damping *= objective.HARDER
                continue
            easier = max(objective.EASIER, 1 - (2 * gain / predicted - 1) ** 3)
            damping = max(objective.LEAST_DAMPING, damping * easier)
            p, now = trial, new
            scale = np.fmax(objective.FADING * scale, np.diag(now.jtj))
            if self.flat(p, now):
                return p, now.loss, iteration, flat_status(now)
            if done:
                return p, now.loss, iteration, objective.FTOL
        return p, now.loss, o.max_iter, objective.MAX_ITER

    def solved_linear(self, p: np.ndarray, now: Equations) -> tuple[np.ndarray, Equations]:
        """The parameters that the expression is linear in at their best, if that lowers the loss."""
        if not np.any(self.linear):
            return p, now
        d = step(now.jtj, now.jtr, self.share * np.diag(now.jtj), objective.LEAST_DAMPING, ~self.linear)
        if d is None or not np.any(d):
            return p, now
        trial = np.clip(p + d, self.lower, self.upper)
        new = self.equations(trial)
        return (trial, new) if new.loss < now.loss else (p, now)

    def held(self, p: np.ndarray, now: Equations) -> np.ndarray:
        """Parameters at a bound that the loss pushes against."""
        return ((p <= self.lower) & (now.jtr > 0)) | ((p >= self.upper) & (now.jtr < 0))

    def flat(self, p: np.ndarray, now: Equations) -> bool:
        active = is_sound(now.jtj, now.jtr) & ~self.held(p, now)
        slope, size = np.abs(now.jtr[active]), np.sqrt(np.diag(now.jtj)[active]) * np.sqrt(max(now.loss, 0.0))
        return bool(np.all(slope <= self.options.gtol * size))

    def equations(self, p: np.ndarray) -> Equations:
        self.evaluations += 1
        f, J = self.model(p)
        f, J, y, w = f[self.some], J[self.some], self.y[self.some], self.w[self.some]
        losses, q = losses_and_weights(self.options.kind, self.options.delta, f, y)
        q = w * q
        return Equations(float(w @ losses), J.T @ (q * (f - y)), (J.T * q) @ J)


def _quadratic(jtj: np.ndarray, d: np.ndarray) -> float:
    """d' JTJ d over the parameters that move (the others' entries may be nan)."""
    moves = d != 0
    return float(d[moves] @ jtj[np.ix_(moves, moves)] @ d[moves])


def losses_and_weights(kind: int, delta: float, f: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """L and q of every point (the table in ``objective``)."""
    r = f - y
    size = np.abs(r)
    if kind == objective.ABSOLUTE:
        return size, 0.5 / np.maximum(size, delta)
    if kind == objective.HUBER:
        return np.where(size <= delta, r * r, delta * (2 * size - delta)), np.where(size <= delta, 1.0, delta / size)
    if kind == objective.POISSON:
        log = np.where(y > 0, y * np.log(y / f), 0.0)
        return np.where(f > 0, 2 * (log - (y - f)), np.nan), 1 / f
    return r * r, np.ones_like(r)
