"""Reference implementation of fits: Levenberg-Marquardt for one expression at a time, in plain NumPy.

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

What is accepted, how the damping changes and why a fit ends: ``decisions``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from exprkit.backends import decisions, objective
from exprkit.backends.decisions import AT_LINEAR_STEP, AT_START, AT_STEP, RUNNING
from exprkit.backends.objective import Fitted, Options
from exprkit.expressions.population import Population
from exprkit.programs.linearity import dependence
from exprkit.runtime.progress import look

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
    linearity = dependence(pop)
    params, loss = np.full(starts.shape, np.nan), np.full(starts.shape[:2], np.nan)
    iterations = np.zeros(loss.shape, np.int32)
    status = np.full(loss.shape, objective.INVALID, np.uint8)
    evaluations = 0
    for i in np.flatnonzero(pop.valid).tolist():
        n = int(pop.n_params[i])
        lower = np.full(n, -np.inf) if options.lower is None else options.lower[i, :n]
        upper = np.full(n, np.inf) if options.upper is None else options.upper[i, :n]
        linear = np.array([bool(int(linearity.linear[i]) >> j & 1) if j < 64 else False for j in range(n)], bool)
        for k, start in enumerate(starts[:, i, :n]):
            model = functools.partial(model_of, i)
            limit = np.inf if options.limits is None else float(options.limits[i])
            terms = Terms(options, lower, upper, linear & options.linear, bool(linearity.differentiable[i]), limit)
            fit = LevenbergMarquardt(model, y, w, terms, start)
            with np.errstate(all="ignore"):
                loss[k, i], status[k, i] = fit.run()
            params[k, i, :n], iterations[k, i] = fit.p, fit.iterations
            evaluations += fit.evaluations
    best = objective.best_starts(loss, params, status, options.nothing), np.arange(len(pop))
    return Fitted(params[best], loss[best], iterations[best], status[best], evaluations)


def step(
    jtj: np.ndarray,
    jtr: np.ndarray,
    scale: np.ndarray,
    damping: float,
    fixed: np.ndarray | None = None,
    least: np.ndarray | None = None,
    most: np.ndarray | None = None,
) -> np.ndarray | None:
    """The damped step of the parameters that can move, 0 for the others; None: the equations have no solution.

    ``least`` and ``most`` are what the bounds leave of it.
    """
    n = len(jtr)
    least, most = (np.full(n, end) if side is None else side for side, end in ((least, -np.inf), (most, np.inf)))
    active = is_usable(jtj, jtr)
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


def is_usable(jtj: np.ndarray, jtr: np.ndarray) -> np.ndarray:
    """The parameters that change the values, by numbers that can be reckoned with."""
    return np.isfinite(np.diag(jtj)) & (np.diag(jtj) > 0) & np.isfinite(jtr)


class Terms(NamedTuple):
    """The limits and settings of a fit of one expression."""

    options: Options
    lower: np.ndarray
    upper: np.ndarray
    linear: np.ndarray  # the parameters that the expression is linear in
    differentiable: bool
    limit: float  # of the loss: what is above it has few steps


class LevenbergMarquardt:
    """A fit of one expression from one start: ``trial`` is what is evaluated next."""

    def __init__(self, model: Model, y: np.ndarray, w: np.ndarray, terms: Terms, start: np.ndarray) -> None:
        self.model, self.y, self.w, self.has_weight, self.terms = model, y, w, w > 0, terms
        self.share = np.where(terms.linear, decisions.LINEAR_DAMPING, 1.0)  # of the damping
        self.p, self.trial = start, np.clip(start, terms.lower, terms.upper)
        self.phase, self.damping, self.predicted = AT_START, decisions.FIRST_DAMPING, 0.0
        self.iterations = self.evaluations = 0

    def run(self) -> tuple[float, int]:
        """The loss and why the fit ended."""
        if not np.any(self.has_weight):
            return 0.0, objective.NO_WEIGHT
        status = RUNNING
        while status == RUNNING:
            status = self.advance(self.equations(self.trial))
        return np.nan if status == objective.NOT_FINITE else self.now.loss, status

    def advance(self, new: Equations) -> int:
        """After an evaluation of the trial: take it in, and find the next one; RUNNING, or why the fit ends."""
        holds, terms = 0, self.terms
        if self.phase == AT_STEP:
            gain = self.now.loss - new.loss
            holds |= decisions.is_settled(self.now.loss, gain, self.predicted, terms.options.tol) << objective.FTOL
            self.damping = decisions.damped(self.damping, gain, self.predicted)
            if gain > 0:
                self.accept(new, decisions.SCALE_DECAY * self.scale)
                holds |= self.stationary()
        elif self.phase == AT_START:
            self.accept(new, np.zeros(len(self.p)))
            holds |= (len(self.p) == 0) << objective.NO_PARAMETERS
            holds |= (not terms.differentiable) << objective.NO_DERIVATIVE
            holds |= (not np.isfinite(new.loss)) << objective.NOT_FINITE
            if not holds and self.propose_linear():
                self.phase = AT_LINEAR_STEP
                return RUNNING
            holds = holds or self.stationary()
        else:
            if new.loss < self.now.loss:
                self.accept(new, np.zeros(len(self.p)))
            holds |= self.stationary()
        self.phase = AT_STEP
        status = decisions.first_reason(holds)
        status = self.propose() if status == RUNNING else status
        finite = bool(np.all(np.isfinite(self.now.jtr) & np.isfinite(np.diag(self.now.jtj))))
        return decisions.final_reason(status, finite)

    def accept(self, new: Equations, faded_scale: np.ndarray) -> None:
        self.p, self.now = self.trial, new
        self.scale = np.fmax(faded_scale, np.diag(new.jtj))

    def propose(self) -> int:
        """Find the trial of the next step; RUNNING, or why there is none."""
        d, options = None, self.terms.options
        while d is None:
            enough = decisions.is_enough(
                self.iterations, options.max_iter, self.now.loss, self.terms.limit, options.patience
            )
            holds = enough << objective.MAX_ITER
            holds |= (self.damping > decisions.MOST_DAMPING) << objective.STUCK
            if holds:
                return decisions.first_reason(holds)
            self.iterations += 1
            d = self.step(self.damping, self.held())
            if d is None:
                self.damping *= decisions.DAMPING_INCREASE
        d = self.move(d)
        moved = d != 0
        self.predicted = -(2 * self.now.jtr[moved] @ d[moved] + _quadratic(self.now.jtj, d))
        return decisions.first_reason(int(self.is_still(d)) << objective.XTOL)

    def is_still(self, d: np.ndarray) -> bool:
        """No parameter moves by more than its tolerance; ``decisions`` says what its unit is."""
        tol, diagonal, moved = self.terms.options.tol, np.diag(self.now.jtj), d != 0
        parts = self.p**2 * diagonal
        unit = np.sqrt(max(parts[np.isfinite(parts)], default=0.0) / diagonal[moved])
        return bool(np.all(np.abs(d[moved]) <= tol * (np.abs(self.p[moved]) + tol * unit)))

    def propose_linear(self) -> bool:
        """Make the trial that with the linear parameters at their best; whether there is such."""
        if not np.any(self.terms.linear):
            return False
        d = self.step(decisions.LEAST_DAMPING, ~self.terms.linear | self.held())
        return d is not None and bool(np.any(self.move(d)))

    def step(self, damping: float, fixed: np.ndarray) -> np.ndarray | None:
        bounds = self.terms.lower - self.p, self.terms.upper - self.p
        return step(self.now.jtj, self.now.jtr, self.share * self.scale, damping, fixed, *bounds)

    def move(self, d: np.ndarray) -> np.ndarray:
        """Make the trial, of parameters that meet a bound exactly there; gives the step that leads to it."""
        lower, upper = self.terms.lower, self.terms.upper
        trial = np.where(d >= upper - self.p, upper, np.where(d <= lower - self.p, lower, self.p + d))
        self.trial = np.clip(trial, lower, upper)
        return self.trial - self.p

    def held(self) -> np.ndarray:
        """Parameters at a bound that the loss pushes against."""
        slope = self.now.jtr
        return ((self.p <= self.terms.lower) & (slope > 0)) | ((self.p >= self.terms.upper) & (slope < 0))

    def stationary(self) -> int:
        """The bits of GTOL, if the loss slopes along no parameter that can move, and of FLAT, if none is usable."""
        usable, diagonal = is_usable(self.now.jtj, self.now.jtr), np.diag(self.now.jtj)
        active = usable & ~self.held()
        size = np.sqrt(diagonal[active]) * np.sqrt(max(self.now.loss, 0.0))
        flat = bool(np.all(np.abs(self.now.jtr[active]) <= self.terms.options.gtol * size))
        return flat << objective.GTOL | (flat and not np.any(usable)) << objective.FLAT

    def equations(self, p: np.ndarray) -> Equations:
        look()
        self.evaluations += 1
        f, J = self.model(p)
        f, J, y, w = f[self.has_weight], J[self.has_weight], self.y[self.has_weight], self.w[self.has_weight]
        losses, q = losses_and_weights(self.terms.options.kind, self.terms.options.delta, f, y)
        q = w * q
        return Equations(float(w @ losses), J.T @ (q * (f - y)), (J.T * q) @ J)


def _quadratic(jtj: np.ndarray, d: np.ndarray) -> float:
    """d' JTJ d over the parameters that move (the others' entries may be nan)."""
    moves = d != 0
    return float(d[moves] @ jtj[np.ix_(moves, moves)] @ d[moves])


def losses_and_weights(kind: int, delta: float, f: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """L and q of every point (the table in ``objective``)."""
    r = f - y
    q = objective.weight_of(kind, r, f, delta, np)
    return objective.loss_of(kind, r, f, y, delta, np), np.ones_like(r) if q is None else q
