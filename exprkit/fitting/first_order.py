"""First-order optimisers for all expressions of a population at once: Adam and L-BFGS.

In: a function of losses and gradients, and starts.  Out: parameters.  Plain NumPy over arrays
(n_exprs, max_params); the gradients are the backend's ``loss_and_grad``.  Within bounds both
project: a step ends at the nearest point that is allowed, and a parameter at a bound that the loss
pushes against stays there (of L-BFGS, D. P. Bertsekas, "Projected Newton methods for optimization
problems with simple constraints", SIAM J. Control Optim. 20, 1982; of Adam, S. J. Reddi, S. Kale,
S. Kumar, "On the convergence of Adam and beyond", ICLR 2018).

    >>> from exprkit.fitting.first_order import MAX_ITER
    >>> list(MAX_ITER)
    ['lbfgs', 'adam']
"""

from __future__ import annotations

from typing import Any

import numpy as np

from exprkit.backends import objective
from exprkit.backends.objective import Fitted, Options
from exprkit.programs.linearity import dependence
from exprkit.runtime.progress import look

MAX_ITER = {"lbfgs": 200, "adam": 1000}  # by method; Adam's steps are as long whatever the gradient, so it needs more
AT_ONCE = 1 << 16  # expressions times starts
MEMORY = 8  # steps that L-BFGS remembers; Nocedal's 3 to 20
HALVINGS = 30  # of a step of L-BFGS: to a billionth, where float32's parameters no longer change
DECREASE = 1e-4  # share of the slope that a step must gain (Armijo's condition; Nocedal and Wright, equation 3.4)
KINDS = {objective.SQUARES: "sse", objective.ABSOLUTE: "mae", objective.SUM: "sum"}
RATE, FIRST, SECOND, TINY = 0.05, 0.9, 0.999, 1e-12  # of Adam: step, decay of both moments (its authors'), floor


def minimise(ev: Any, method: str, starts: np.ndarray, y: np.ndarray, w: np.ndarray | None, options: Options) -> Fitted:
    """Minimise the sum of w r^2, w abs r or w r from every start, (n_starts, n_exprs, max_params); the best counts."""
    run = {"lbfgs": _lbfgs, "adam": _adam}[method]
    n, width = starts.shape[1:]
    best: Fitted | None = None
    at_once = max(1, AT_ONCE // max(n, 1))
    for first in range(0, len(starts), at_once):
        part = starts[first : first + at_once]
        problem = _Problem(ev, y, w, options, len(part))
        with np.errstate(over="ignore", invalid="ignore"):  # a step too far is inf or nan, which is no better
            begin = problem.within(part.reshape(len(part) * n, width))
            ends = problem.fitted(*run(problem, begin, options.max_iter, options.tol))
        for k in range(len(part)):
            params, loss, iterations, status = (array[k * n : (k + 1) * n] for array in ends[:4])
            result = Fitted(params, loss, iterations, status, 0 if k else ends.evaluations)
            best = result if best is None else _better(best, result, options.nothing)
    assert best is not None
    return best


def _better(best: Fitted, result: Fitted, nothing: float) -> Fitted:
    """The better of two fits of every expression."""
    loss, params, status = (
        np.array([getattr(one, name) for one in (best, result)]) for name in ("loss", "params", "status")
    )
    better = objective.best_starts(loss, params, status, nothing) == 1
    params, loss, iterations, status = (
        np.where(better[:, None] if new.ndim == 2 else better, new, old)
        for new, old in zip(result[:4], best[:4], strict=True)
    )
    return Fitted(params, loss, iterations, status, best.evaluations + result.evaluations)


class _Problem:
    """The loss and its gradient of every expression from some starts, a row each, and what can be said without them."""

    def __init__(self, ev: Any, y: np.ndarray, w: np.ndarray | None, options: Options, n_starts: int) -> None:
        self.lower = -np.inf if options.lower is None else np.tile(options.lower, (n_starts, 1))
        self.upper = np.inf if options.upper is None else np.tile(options.upper, (n_starts, 1))
        self.y, self.w, self.n_starts = y, w, n_starts
        self.valid, self.n_params = np.tile(ev.pop.valid, n_starts), np.tile(ev.pop.n_params, n_starts)
        self.kind = KINDS[options.kind]
        self.total = 1.0 if self.kind != "mae" else float(len(y) if w is None else np.sum(w, dtype=np.float64))
        self.fits = self.valid & (self.n_params > 0) & np.tile(dependence(ev.pop).differentiable, n_starts)
        self.eps = 4 * np.finfo(ev.dtype).eps
        self.evaluations = 0
        self._step = ev.loss_of(y, self.kind, w)

    def within(self, p: np.ndarray) -> np.ndarray:
        """The nearest parameters within the bounds."""
        return np.clip(p, self.lower, self.upper)

    def __call__(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Losses (inf where not finite) and gradients (0 where not finite)."""
        loss, gradient = self.raw(p)
        gradient = np.where(np.isfinite(gradient) & self.fits[:, None], gradient, 0.0)
        return np.where(np.isfinite(loss), loss, np.inf), gradient

    def raw(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        look()
        self.evaluations += len(p)
        if self.total == 0:
            return np.zeros(len(p)), np.zeros(p.shape)
        sets = p.reshape(self.n_starts, len(p) // self.n_starts, p.shape[1])
        loss, gradient = self._step.with_gradient(sets)
        return loss.reshape(len(p)), gradient.reshape(p.shape)

    def free(self, p: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """The gradient, 0 where a bound stops the descent."""
        held = ((p <= self.lower) & (gradient > 0)) | ((p >= self.upper) & (gradient < 0))
        return np.where(held, 0.0, gradient)

    def fitted(self, p: np.ndarray, loss: np.ndarray, iterations: np.ndarray, status: np.ndarray) -> Fitted:
        counts = len(self.y) > 0 if self.w is None else bool(np.any(self.w > 0))
        status = status.copy()
        stopped = np.isin(status, objective.CONVERGED) & ~np.isfinite(self.raw(p)[1]).all(axis=1)
        status[stopped] = objective.NO_SLOPE
        status[~np.isfinite(loss)] = objective.NOT_FINITE
        status[self.valid & ~self.fits] = objective.NO_DERIVATIVE
        status[self.n_params == 0] = objective.NO_PARAMETERS
        if not counts:
            status[:], loss = objective.NO_WEIGHT, np.zeros(len(p))
        status[~self.valid] = objective.INVALID
        p = np.where((np.arange(p.shape[1]) < self.n_params[:, None]) & self.valid[:, None], p, np.nan)
        loss = np.where(self.valid & np.isfinite(loss), loss * (self.total or 1.0), np.nan)
        iterations = np.where(self.fits, iterations, 0)
        return Fitted(p, loss, iterations.astype(np.int32), status.astype(np.uint8), self.evaluations)


def _adam(problem: _Problem, start: np.ndarray, max_iter: int, tol: float) -> tuple[np.ndarray, ...]:
    """D. P. Kingma, J. Ba, "Adam", arXiv 1412.6980, with a step that shrinks to 0 over the iterations."""
    p = start.copy()
    loss, gradient = problem(p)
    best, best_loss = p.copy(), loss.copy()
    m, v = np.zeros(p.shape), np.zeros(p.shape)
    iterations, status = np.zeros(len(p), np.int32), np.full(len(p), objective.MAX_ITER)
    active = problem.fits & np.isfinite(loss)
    for k in range(1, max_iter + 1):
        if not np.any(active):
            break
        m, v = FIRST * m + (1 - FIRST) * gradient, SECOND * v + (1 - SECOND) * gradient**2
        rate = RATE * (1 - (k - 1) / max_iter)
        d = -rate * (m / (1 - FIRST**k)) / (np.sqrt(v / (1 - SECOND**k)) + TINY)
        p, before = np.where(active[:, None], problem.within(p + d), p), p
        d = p - before
        iterations += active
        loss, gradient = problem(p)
        better = active & (loss < best_loss)
        best[better], best_loss[better] = p[better], loss[better]
        still = active & np.all(np.abs(d) <= tol * (np.abs(p) + tol), axis=1)
        flat = active & np.all(problem.free(p, gradient) == 0, axis=1) & np.isfinite(loss)
        status[still], status[flat] = objective.XTOL, objective.GTOL
        active &= ~(still | flat)
    return best, best_loss, iterations, status


def _lbfgs(problem: _Problem, start: np.ndarray, max_iter: int, tol: float) -> tuple[np.ndarray, ...]:
    """J. Nocedal's two-loop recursion with halved steps until the loss falls enough, expression by expression."""
    p = start.copy()
    loss, gradient = problem(p)
    iterations, status = np.zeros(len(p), np.int32), np.full(len(p), objective.MAX_ITER)
    active = problem.fits & np.isfinite(loss)
    steps: list[np.ndarray] = []
    changes: list[np.ndarray] = []
    for _ in range(max_iter):
        free = problem.free(p, gradient)
        flat = active & np.all(free == 0, axis=1)
        status[flat] = objective.GTOL
        active &= ~flat
        if not np.any(active):
            break
        d = np.where(free == gradient, _direction(free, steps, changes), 0.0)  # what a bound holds stays there
        uphill = ~(np.sum(d * free, axis=1) < 0)
        d[uphill] = -free[uphill]
        if not steps:  # nothing is known of the scale yet
            d *= np.minimum(1, 1 / np.maximum(np.linalg.norm(free, axis=1), TINY))[:, None]
        new_p, new_loss, new_gradient, moved = _halved(problem, p, loss, gradient, d, active)
        iterations += active
        gain = loss - new_loss
        stuck, done = active & ~moved, active & moved & (gain <= tol * np.abs(loss))
        still = active & moved & np.all(np.abs(new_p - p) <= tol * (np.abs(p) + tol), axis=1)
        rounded = -np.sum(d * free, axis=1) <= problem.eps * np.abs(loss)  # what is left to gain is lost in rounding
        status[stuck], status[still], status[done | (stuck & rounded)] = objective.STUCK, objective.XTOL, objective.FTOL
        steps, changes = [*steps, new_p - p][-MEMORY:], [*changes, new_gradient - gradient][-MEMORY:]
        p, loss, gradient = new_p, new_loss, new_gradient
        active &= ~(stuck | done | still)
    return p, loss, iterations, status


def _direction(gradient: np.ndarray, steps: list[np.ndarray], changes: list[np.ndarray]) -> np.ndarray:
    """- H gradient for every expression; a step without positive curvature is left out."""
    d, kept = -gradient, []
    for s, c in zip(reversed(steps), reversed(changes), strict=True):
        curve = np.sum(s * c, axis=1)
        convex = curve > TINY * np.sum(c * c, axis=1)
        rho = np.where(convex, 1 / np.where(convex, curve, 1.0), 0.0)
        a = rho * np.sum(s * d, axis=1)
        d = d - a[:, None] * c
        kept.append((s, c, rho, a))
    scaled = np.zeros(len(d), bool)
    for _, c, rho, _ in kept:  # the newest of them gives the scale
        size = np.where((rho > 0) & ~scaled, 1 / np.where(rho > 0, rho * np.sum(c * c, axis=1), 1.0), 1.0)
        scaled |= rho > 0
        d = d * size[:, None]
    for s, c, rho, a in reversed(kept):
        d = d + (a - rho * np.sum(c * d, axis=1))[:, None] * s
    return d


def _halved(
    problem: _Problem, p: np.ndarray, loss: np.ndarray, gradient: np.ndarray, d: np.ndarray, active: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Steps along ``d``, halved for each expression until its loss falls; (p, loss, gradient, whether it fell)."""
    new_p, new_loss, new_gradient = p.copy(), loss.copy(), gradient.copy()
    waiting, size = active.copy(), np.ones(len(p))
    for _ in range(HALVINGS):
        trial = np.where(waiting[:, None], problem.within(p + size[:, None] * d), new_p)
        trial_loss, trial_gradient = problem(trial)
        slope = np.sum(gradient * (trial - p), axis=1)
        fell = waiting & (trial_loss <= loss + DECREASE * slope) & (trial_loss < loss)
        new_p[fell], new_loss[fell], new_gradient[fell] = trial[fell], trial_loss[fell], trial_gradient[fell]
        waiting &= ~fell
        if not np.any(waiting):
            break
        size = np.where(waiting, size / 2, size)
    return new_p, new_loss, new_gradient, active & ~waiting
