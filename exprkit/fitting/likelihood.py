"""Likelihoods of a fit, its covariances, and how well the data determine the parameters.

In: a fit's losses and normal equations.  Out: negative log-likelihoods, covariances, standard errors.

    >>> from exprkit.fitting.likelihood import FitGoal, negative_log_likelihood
    >>> import numpy as np
    >>> goal = FitGoal("gaussian", y=np.array([1.0, 2.0]), w=np.ones(2))
    >>> negative_log_likelihood(goal, np.array([2.0])).round(4)  # both errors are 1
    array([2.8379])

What the data say of a parameter is the second derivative of the negative log-likelihood by it, the observed
information.  With f an expression's value at a point, y the target and w the point's weight, it is the sum of
curve (df/dp)^2 + slope d2f/dp2 over the points:

========  ==============================================  =====================  =========================
kind      negative log-likelihood of a point              slope                  curve
========  ==============================================  =====================  =========================
gaussian  w (f - y)^2 / 2 v + log(2 pi v / w) / 2         w (f - y) / v          w / v
poisson   w (f - y log f + log y!)                        w (1 - y / f)          w y / f^2
sum       w f                                             w                      0
========  ==============================================  =====================  =========================

v is 1 where the weights are 1 / variance, else the mean square of f - y.  Without its second term the sum is
Gauss's and Newton's (of Poisson's likelihood, its expectation: Fisher's), of which a covariance is made; with
it, it is made by differences of the exact gradient.  A "sum" is of expressions that are likelihoods themselves.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from exprkit.backends import objective as objectives
from exprkit.backends.objective import Options
from exprkit.evaluate import inputs
from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.population import Population
from exprkit.fitting.finishing.factors import SMALL, CountedPoints, gradient_changes, triangles
from exprkit.programs.linearity import dependence

CHUNK = 1 << 24  # numbers of the matrices in use at a time
MATRICES = 4  # (n_exprs, n_points), beside a jacobian
SINGULAR = {"float32": 1e-11, "float64": 1e-13}  # share of the largest eigenvalue that is 0 but for rounding
FACTORS = 1e-26  # the same of the squared singular values of J, whose condition may be 1e13
FREE_OF = 1e-6  # part in what is not determined below which a parameter has none
SHARES = (1e-2, 1e-4, 1e-6)  # how far a difference reaches: of a standard error or a tenth of the parameter
AGREE = 0.01  # share that half as long a difference may differ by; else there is a kink near, or no derivative
FEWEST = 1000.0  # roundings of the parameter that a difference has to span, for its third digit
LITTLE = 1.0  # parameter^2 times the derivative, if less: it is smaller than its precision whatever the digits are

_log_gamma = np.vectorize(math.lgamma, otypes=[np.float64])


class FitGoal(NamedTuple):
    """Loss, data and bounds of a fit, in the host's memory."""

    loss: str
    delta: float = 1.0
    X: Annotated[np.ndarray, "float[points, vars]"] = np.empty((0, 0))  # of the fit's dtype, as ``y`` and ``w``
    y: Annotated[np.ndarray, "float[points]"] = np.empty(0)
    w: Annotated[np.ndarray, "float[points]"] | None = None
    lower: Annotated[np.ndarray, "float[n, width]"] | None = None  # (n_exprs, max_params)
    upper: Annotated[np.ndarray, "float[n, width]"] | None = None
    target: str = "y"  # what y is called
    x_error: Annotated[np.ndarray, "float[points, vars]"] | None = None  # standard deviations of X


def negative_log_likelihood(goal: FitGoal, objective: np.ndarray) -> np.ndarray:
    """The negative log-likelihood by the least value of the ``objective`` (sum of squares or Poisson's deviance).

    "gaussian": the weights are 1 / variance; without weights the variance is the mean square (``variance``).
    "poisson": the expression is the mean of y.  "sum": it is the objective.
    """
    if goal.loss == "sum":
        return objective
    y = np.asarray(goal.y, np.float64)
    w = np.ones(len(y)) if goal.w is None else np.asarray(goal.w, np.float64)
    y, w = y[w > 0], w[w > 0]
    with np.errstate(all="ignore"):
        if goal.loss == "poisson":
            log = np.where(y > 0, y * np.log(y), 0.0)
            return objective / 2 + np.sum(w * (y - log + _log_gamma(y + 1))) if len(y) else objective / 2
        if goal.w is None:
            v = variance(objective, goal.y)
            return len(y) / 2 * np.log(2 * np.pi * v) + objective / (2 * v)
        return objective / 2 + np.sum(np.log(2 * np.pi / w)) / 2


def variance(sse: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The mean of the squared errors, whose sums are ``sse``, but no less than y's own rounding makes.

    What tells the data exactly, or to their last digit, would have an infinite likelihood or that of noise.
    """
    y = np.asarray(y)
    eps = np.finfo(y.dtype if y.dtype.kind == "f" else np.float64).eps
    with np.errstate(all="ignore"):
        least = np.mean((eps * y.astype(np.float64)) ** 2) + np.finfo(np.float64).tiny if len(y) else np.nan
        return np.maximum(sse / max(len(y), 1), least)


def sums_of_squares(ev: Evaluator, params: np.ndarray, y: np.ndarray, w: np.ndarray | None) -> np.ndarray:
    """The sum of w r^2 of every expression, (n_exprs,)."""
    return ev.engine.loss_sums(_one_set(ev, params), y, w, "square")[0]


def points_of(pop: Population, goal: FitGoal) -> CountedPoints:
    """The points of a fit of weight above 0, in float64, but with the numbers that the fit had."""
    w = np.ones(len(goal.y)) if goal.w is None else goal.w.astype(np.float64)
    X = inputs.data_matrix(goal.X, pop, goal.y.dtype)[0]
    return CountedPoints(X[w > 0].astype(np.float64), goal.y[w > 0].astype(np.float64), w[w > 0])


# ── the observed information ─────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The likelihood of a fit's data under any expressions: ``at`` parameters, and its second derivatives there.

    In float64 on the CPU.
    """

    goal: FitGoal
    points: CountedPoints
    threads: int | None

    def at(self, pop: Population, params: np.ndarray) -> np.ndarray:
        """The negative log-likelihood of every expression, (n_exprs,); nan where it has none."""
        objective = np.empty(len(pop))
        for part, p, ev in parts_of(pop, self.points, params, MATRICES, self.threads):
            objective[part] = self._objective(ev.evaluate(p))
        return negative_log_likelihood(self.goal, objective)

    def information(self, pop: Population, params: np.ndarray) -> np.ndarray:
        """Its second derivative by every parameter, (n_exprs, P); nan where there is none.

        By differences of the exact gradient, but where an expression is linear in a parameter.
        """
        second = np.zeros(params.shape)
        linear = dependence(pop).linear
        for part, p, ev in parts_of(pop, self.points, params, MATRICES + params.shape[1], self.threads):
            v = self._variance(ev.evaluate(p))
            newton = self._newton(ev, p, v)
            for j in range(p.shape[1]):
                bit = np.uint64(1 << j) if j < 64 else np.uint64(0)
                curved = np.flatnonzero((linear[part] & bit == 0) & (ev.pop.n_params > j) & np.isfinite(newton[:, j]))
                newton[curved, j] = self._by_differences(ev.pop[curved], p[curved], v[curved], j, newton[curved, j])
            second[part, : p.shape[1]] = newton
        return np.where(np.isfinite(second), second, np.nan)

    def _by_differences(
        self, pop: Population, params: np.ndarray, v: np.ndarray, j: int, newton: np.ndarray
    ) -> np.ndarray:
        """The second derivative by parameter j, extrapolated from two differences that agree, or shorter ones."""
        second, waiting = np.full(len(pop), np.nan), np.arange(len(pop))
        with np.errstate(all="ignore"):
            length = np.fmin(1 / np.sqrt(newton), 0.1 * np.where(params[:, j] == 0, 1, np.abs(params[:, j])))
            exact = SHARES[0] * length < FEWEST * np.spacing(np.abs(params[:, j]))  # no error is left that would count
            second[exact], waiting = newton[exact], waiting[~exact]
            for share in SHARES:
                if not len(waiting):
                    break
                few = pop[waiting]
                p, h = params[waiting, : few.max_params], share * length[waiting]
                ev = Evaluator(few, self.points.X, "cpu", dtype="float64", threads=self.threads)
                gradient = functools.partial(self._gradient, ev, v[waiting], j)
                long, short = (
                    gradient_changes(gradient, p, step[:, None], [j])[0] / ((p[:, j] + step) - (p[:, j] - step))
                    for step in (h, h / 2)
                )
                little = np.maximum(np.abs(long), np.abs(short)) * p[:, j] ** 2 < LITTLE
                agree = (np.abs(long - short) <= AGREE * np.abs(short)) | little
                second[waiting[agree]] = ((4 * short - long) / 3)[agree]
                waiting = waiting[~agree]
        return second

    def _gradient(self, ev: Evaluator, v: np.ndarray, j: int, sets: np.ndarray) -> np.ndarray:
        """The first derivative by parameter j at sets of parameters, (n_sets, n_exprs)."""
        if self.goal.loss == "poisson":
            slope = self._slope_and_curve(ev.evaluate(sets))[0]
            return np.einsum("sep,sep->se", slope, ev.jacobian(sets)[..., j])
        kind, unit = ("sse", 2 * v[:, 0]) if self.goal.loss == "gaussian" else ("sum", 1.0)
        return np.asarray(ev.loss_and_grad(sets, self.points.y, kind, self.points.w)[1][..., j] / unit)

    def _newton(self, ev: Evaluator, p: np.ndarray, v: np.ndarray) -> np.ndarray:
        """The sum of curve (df/dp)^2."""
        if self.goal.loss == "sum":
            return np.zeros(p.shape)
        with np.errstate(all="ignore"):
            if self.goal.loss == "gaussian":
                A = ev.normal_equations(p, self.points.y, self.points.w)[0]
                return np.diagonal(A, axis1=1, axis2=2) / v
            return np.einsum("ep,epj->ej", self._slope_and_curve(ev.evaluate(p))[1], ev.jacobian(p) ** 2)

    def _objective(self, f: np.ndarray) -> np.ndarray:
        """The sum of w r^2 or Poisson's deviance."""
        _, y, w = self.points
        with np.errstate(all="ignore"):
            return objectives.loss_of(objectives.KINDS[self.goal.loss], f - y, f, y, 1.0, np) @ w

    def _variance(self, f: np.ndarray) -> np.ndarray:
        has_variance = self.goal.loss != "gaussian" or self.goal.w is not None
        return np.ones((len(f), 1)) if has_variance else variance(self._objective(f), self.goal.y)[:, None]

    def _slope_and_curve(self, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Slope and curve of Poisson's likelihood at every point (the table of the module)."""
        _, y, w = self.points
        ratio = np.where(y > 0, y / f, 0.0)  # 0 log 0 = 0
        return w * (1 - ratio), w * np.where(y > 0, ratio / f, 0.0)


def parts_of(
    pop: Population, points: CountedPoints, params: np.ndarray, width: int, threads: int | None
) -> Iterator[tuple[slice, np.ndarray, Evaluator]]:
    """The population in parts whose matrices fit in memory: where, parameters, an evaluator in float64."""
    at_once = max(1, CHUNK // max(len(points.X) * width, 1))
    for first in range(0, len(params), at_once):
        part = slice(first, min(first + at_once, len(params)))
        few = pop[part]
        p = np.nan_to_num(params[part, : few.max_params], nan=0.0)
        yield part, p, Evaluator(few, points.X, "cpu", dtype="float64", threads=threads)


# ── the covariance ───────────────────────────────────────────────────────────────────


def information(ev: Evaluator, params: np.ndarray, goal: FitGoal) -> tuple[np.ndarray, np.ndarray]:
    """J'QJ of the objective at ``params``, (n_exprs, P, P), and the spread of its gradient, J' (QR)^2 J."""
    if goal.loss in ("squares", "gaussian"):
        y = np.ascontiguousarray(goal.y)
        jtj = ev.derivatives().normal_equations(_one_set(ev, params), y, goal.w)[0][0]
        return jtj, jtj
    n_exprs, width = params.shape
    A, B = np.zeros((n_exprs, width, width)), np.zeros((n_exprs, width, width))
    points = points_of(ev.pop, goal)
    for part, p, ev64 in parts_of(ev.pop, points, params, max(width, 1), ev.threads):
        f, J = ev64.evaluate(p), ev64.jacobian(p)
        n, r = p.shape[1], f - points.y
        with np.errstate(all="ignore"):
            q = points.w * objectives.weight_of(objectives.KINDS[goal.loss], r, f, goal.delta, np)
            A[part, :n, :n] = np.einsum("epi,ep,epj->eij", J, q, J)
            B[part, :n, :n] = np.einsum("epi,ep,epj->eij", J, (q * r) ** 2, J)
    return A, B


def _one_set(ev: Evaluator, params: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(np.nan_to_num(params, nan=0.0)[None].astype(ev.dtype))


def covariance(ev: Evaluator, params: np.ndarray, goal: FitGoal, held: np.ndarray) -> np.ndarray:
    """The parameters' covariance, (n_exprs, P, P); nan for those that the data do not determine or that are ``held``.

    "squares", and "gaussian" without weights: (J'WJ)^-1 times the residual variance; "gaussian" with
    weights and "poisson": the inverse of Fisher's information; "huber": the sandwich of an M-estimator.
    "mae": nan, as it would need the density of the errors at 0, and so of "sum" and of a loss of the user's own that
    was read from a file, which does not hold what it was fitted as.
    By orthogonal factors of J in float64; of many expressions, or many points, by J'WJ.
    """
    if goal.loss in ("mae", "sum") or goal.loss not in objectives.KINDS or params.shape[1] == 0:
        return np.full((*params.shape, params.shape[1]), np.nan)
    scaled = goal.loss == "squares" or (goal.loss == "gaussian" and goal.w is None)
    sse = sums_of_squares(ev, params, goal.y, goal.w) if scaled else None
    n_points = len(goal.y) if goal.w is None else int(np.sum(goal.w > 0))
    is_small = params.size * n_points <= SMALL
    if is_small:
        options = Options(objectives.KINDS[goal.loss], goal.delta)
        A = triangles(ev.pop, points_of(ev.pop, goal), options, params, ev.threads)
    middle: np.ndarray | None = None
    if goal.loss == "huber":
        equations, middle = information(ev, params, goal)
    elif not is_small:
        equations, _ = information(ev, params, goal)
    if is_small:
        return inverted(ev.pop, A, held, FACTORS, n_points, sse, middle, factored=True)
    return inverted(ev.pop, equations, held, SINGULAR[ev.dtype.name], n_points, sse, middle)


def inverted(
    pop: Population,
    A: np.ndarray,
    held: np.ndarray,
    singular: float,
    n_points: Any,
    sse: np.ndarray | None,
    middle: np.ndarray | None = None,
    factored: bool = False,
) -> np.ndarray:
    """Covariances by the equations' matrices J'J, (n_exprs, P, P), or, ``factored``, by R of J = QR.

    Held parameters are constants to the others.
    ``sse``: times the residual variance of these sums of squares, of so many points; ``middle``: of a sandwich.
    """
    fixed, result = held[:, :, None] | held[:, None, :], np.full(A.shape, np.nan)
    A = np.where(held[:, None, :] if factored else fixed, 0.0, A)
    middle = None if middle is None else np.where(fixed, 0.0, middle)
    for n in np.unique(pop.n_params[pop.valid & (pop.n_params > 0)]).tolist():
        which = np.flatnonzero((pop.n_params == n) & pop.valid)
        inverse, lost, rank = inverses(A[which, :n, :n], singular, factored)
        free = np.broadcast_to(n_points, len(pop))[which] - rank
        with np.errstate(all="ignore"):
            if middle is not None:
                inverse = inverse @ middle[which, :n, :n] @ inverse
            if sse is not None:
                inverse *= np.where(free > 0, sse[which] / np.maximum(free, 1), np.nan)[:, None, None]
        result[which, :n, :n] = np.where(lost[:, :, None] | lost[:, None, :], np.nan, inverse)
    return result


def inverses(A: np.ndarray, singular: float, factored: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pseudo-inverses of symmetric matrices, (m, n, n), which unknowns they do not determine, and their ranks.

    Of equations that have many solutions an unknown is determined where it is the same in all of them: where it
    has no part in what the equations leave open.  ``factored``: the matrices are R'R of these R.
    """
    with np.errstate(all="ignore"):
        diagonal = np.sum(A * A, axis=1) if factored else np.diagonal(A, axis1=1, axis2=2)
        scale = np.where(diagonal > 0, 1 / np.sqrt(diagonal), 0.0)
        both = scale[:, :, None] * scale[:, None, :]
        scaled = A * (scale[:, None, :] if factored else both)
        bad = ~np.isfinite(scaled).all(axis=(1, 2))
        scaled[bad] = 0.0
        if factored:
            _, roots, vectors = np.linalg.svd(scaled)
            values, vectors = roots**2, vectors.transpose(0, 2, 1)
        else:
            values, vectors = np.linalg.eigh(scaled)
        open_ones = values <= singular * values.max(axis=1, keepdims=True)
        roots = vectors * np.where(open_ones, 0.0, 1 / np.sqrt(values))[:, None, :]
        inverse = roots @ roots.transpose(0, 2, 1) * both
    lost = np.linalg.norm(np.where(open_ones[:, None, :], vectors, 0.0), axis=2) > FREE_OF
    return inverse, lost | bad[:, None], np.sum(~open_ones, axis=1)
