"""The definition of a fit: Levenberg-Marquardt for one expression after the other, by plain NumPy.

In: a population and data.  Out: parameters and why a fit ended.  The fits of all other backends take the same
steps.

    >>> import numpy as np
    >>> from exprkit.backends.reference.levenberg_marquardt import step
    >>> step(np.array([[2.0, 0.0], [0.0, 0.0]]), np.array([4.0, 0.0]), np.array([2.0, 0.0]), 0.0)
    array([-2.,  0.])

Marquardt's scaling, by the largest diagonal of late (an old one fades, or an expression that begins
steep never gets away), and Nielsen's way of lowering the damping after a step that was as good as
predicted.  Parameters that the expression is linear in are solved before the first step and hardly damped
in the others: whatever the rest does, they follow at once, as in variable projection (G. H. Golub,
V. Pereyra, SIAM J. Numer. Anal. 10, 1973).  A parameter whose diagonal is 0 or
not finite stays where it is, so that Jacobians of deficient rank, common among machine-made
expressions, do no harm (G. Kronberger, "Local optimization often is ill-conditioned in genetic
programming for symbolic regression", arXiv 2209.00942); a fit that ends where a derivative is not
finite has not converged.  A trial whose loss is not finite is a rejected step.

Bounds: the step goes towards the least value of the damped quadratic model; where it meets a bound
that parameter stays there, and the rest of the way is solved anew for the others.  The model falls
along all of this way, which a step that is solved at once and then clipped does not promise.

What is looked at, in this order (all backends keep it):

=====================  =====================================================================
before a step          MAX_ITER, STUCK (the damping is at its most), XTOL (a step that small)
after one that helps   GTOL or FLAT (nothing slopes), then FTOL
after another          FTOL, where the model did not promise more either
=====================  =====================================================================
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from exprkit.backends import objective
from exprkit.backends.objective import Fitted, Options
from exprkit.expressions.population import Population
from exprkit.programs.linearity import dependence

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
    jtj: np.ndarray, jtr: np.ndarray, scale: np.ndarray, damping: float, fixed: np.ndarray | None = None,
    least: np.ndarray | None = None, most: np.ndarray | None = None,
) -> np.ndarray | None:  # fmt: skip
    """The damped step of the parameters that can move, 0 for the others; None: the equations have no solution.

    ``least`` and ``most`` are what the bounds leave of it.
    """
    n = len(jtr)
    least, most = (np.full(n, side) if given is None else given for given, side in ((least, -np.inf), (most, np.inf)))
    active = is_sound(jtj, jtr)
    if fixed is not None:
        active &= ~fixed
    A, d = jtj + damping * np.diag(scale), np.zeros(n)
    while np.any(active):
        moved = d != 0
        slope = jtr[active] + A[np.ix_(active, moved)] @ d[moved]
        try:
            L = np.linalg.cholesky(A[np.ix_(active, active)])
        except np.linalg.LinAlgError:
            return None
        way = np.zeros(n)
        way[active] = np.linalg.solve(L.T, np.linalg.solve(L, -slope))
        if not np.all(np.isfinite(way)):
            return None
        bound = np.where(way > 0, most, least)
        share = np.where(way == 0, np.inf, (bound - d) / way)  # of the way, up to each one's bound
        if np.min(share) >= 1:
            return d + way
        met = share <= np.min(share)
        d = np.where(met, bound, d + np.min(share) * way)
        active &= ~met
    return d


def is_sound(jtj: np.ndarray, jtr: np.ndarray) -> np.ndarray:
    """The parameters that change the values, by numbers that can be reckoned with."""
    return np.isfinite(np.diag(jtj)) & (np.diag(jtj) > 0) & np.isfinite(jtr)


def flat_status(now: Equations) -> int:
    """Why a fit ends where there is no slope."""
    return objective.GTOL if np.any(is_sound(now.jtj, now.jtr)) else objective.FLAT


def eased(gain: float, predicted: float) -> float:
    """What the damping is multiplied with after a step that helped: less, the better the model foretold it."""
    if not predicted > 0:
        return objective.HARDER
    return max(objective.EASIER, 1 - (2 * gain / predicted - 1) ** 3)


def final_status(status: int, now: Equations) -> int:
    """The status, unless it is that of success where a derivative is not finite."""
    known = np.all(np.isfinite(now.jtr) & np.isfinite(np.diag(now.jtj)))
    return objective.NO_SLOPE if status in objective.CONVERGED and not known else status


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
        if not np.any(self.some):
            return start, 0.0, 0, objective.NO_WEIGHT
        p = np.clip(start, self.lower, self.upper)
        now = self.equations(p)
        if len(p) == 0 or not self.differentiable:
            return p, now.loss, 0, objective.NO_DERIVATIVE if len(p) else objective.NO_PARAMETERS
        if not np.isfinite(now.loss):
            return start, np.nan, 0, objective.NOT_FINITE
        p, now, iterations, status = self.descend(*self.solved_linear(p, now))
        return p, now.loss, iterations, final_status(status, now)

    def descend(self, p: np.ndarray, now: Equations) -> tuple[np.ndarray, Equations, int, int]:
        """Step after step, until one of the reasons to end."""
        tol = self.options.tol
        damping, scale = objective.FIRST_DAMPING, np.diag(now.jtj)
        if self.flat(p, now):
            return p, now, 0, flat_status(now)
        for iteration in range(1, self.options.max_iter + 1):
            if damping > objective.MOST_DAMPING:
                return p, now, iteration - 1, objective.STUCK
            d = step(
                now.jtj, now.jtr, self.share * scale, damping, self.held(p, now), self.lower - p, self.upper - p,
            )  # fmt: skip
            if d is None:
                damping *= objective.HARDER
                continue
            trial = self.moved(p, d)
            d = trial - p
            if np.all(np.abs(d) <= tol * (np.abs(p) + tol)):
                return p, now, iteration, objective.XTOL
            new = self.equations(trial)
            predicted = -(2 * now.jtr[d != 0] @ d[d != 0] + _quadratic(now.jtj, d))
            gain = now.loss - new.loss
            done = not gain > tol * now.loss and 0 <= predicted <= tol * now.loss
            if gain > 0:
                damping *= eased(gain, predicted)
                damping = max(objective.LEAST_DAMPING, damping)
                p, now = trial, new
                scale = np.fmax(objective.FADING * scale, np.diag(now.jtj))
                if self.flat(p, now):
                    return p, now, iteration, flat_status(now)
            else:
                damping *= objective.HARDER
            if done:
                return p, now, iteration, objective.FTOL
        return p, now, self.options.max_iter, objective.MAX_ITER

    def solved_linear(self, p: np.ndarray, now: Equations) -> tuple[np.ndarray, Equations]:
        """The parameters that the expression is linear in at their best, if that lowers the loss."""
        if not np.any(self.linear):
            return p, now
        fixed = ~self.linear | self.held(p, now)
        scale = self.share * np.diag(now.jtj)
        d = step(now.jtj, now.jtr, scale, objective.LEAST_DAMPING, fixed, self.lower - p, self.upper - p)
        if d is None or not np.any(d):
            return p, now
        trial = self.moved(p, d)
        new = self.equations(trial)
        return (trial, new) if new.loss < now.loss else (p, now)

    def moved(self, p: np.ndarray, d: np.ndarray) -> np.ndarray:
        """The parameters after a step, those that meet a bound exactly there."""
        trial = np.where(d >= self.upper - p, self.upper, np.where(d <= self.lower - p, self.lower, p + d))
        return np.clip(trial, self.lower, self.upper)

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
