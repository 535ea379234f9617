"""``Minimum``: one fitted expression at the least value of its loss, and fits of many copies of it as one call.

In: a ``FitResult`` of one expression.  Out: what the ways to an interval share.

A loss of the user's own and a prior count as what they were fitted as.  The deviance is what a likelihood ratio is
judged by: of squared errors the rise of their sum over the residual variance, else twice that of the negative
log-likelihood.
"""

from __future__ import annotations

import functools
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends import objective
from exprkit.backends.objective import Fitted, Options
from exprkit.errors import ArgumentError, brief, brought_by, one_of, whole
from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.population import Population
from exprkit.fitting import first_order
from exprkit.fitting.finishing import orthogonal
from exprkit.fitting.finishing.factors import CountedPoints
from exprkit.fitting.finishing.finish import finish
from exprkit.fitting.likelihood import points_of
from exprkit.operators import ops
from exprkit.text.tokens import OPERATOR, VARIABLE

TOL = 1e-10  # relative change of loss and parameters at which a refit ends
STEPS = 200  # of a refit
LAST_STEPS = 50  # of one that is finished
NOTHING = 1e-10  # share of the largest singular value of the scaled Jacobian that is 0 but for rounding
ESTIMABLE = 1e-8  # share of a prediction's scaled derivatives across what is determined, that rounding leaves
HARD = 1e-4  # the same, below which refits are finished by orthogonal factors
RESAMPLES = ("residuals", "pairs", "parametric")
MOST_REFITS = 1_000_000
LOST = 0.05  # share of refits that may have no finite loss
AT_ONCE = 1 << 22  # numbers of the columns that a bootstrap adds to the data


class Minimum(NamedTuple):
    """An expression at the least value of its loss."""

    result: Any  # the FitResult of what was fitted
    pop: Population  # of one expression
    params: np.ndarray  # float64 (P,)
    points: CountedPoints  # of weight above 0
    values: np.ndarray  # float64 (n_points,): predictions there
    jacobian: np.ndarray  # float64 (n_points, P)
    free: float  # degrees of freedom of the residual variance; inf where it is known
    variance: float  # of an error of weight 1
    is_hard: bool  # so that J'J loses digits
    n_known: int  # rows that a prior adds
    given: Any  # the FitGoal of the data as it was measured

    @classmethod
    def of(cls, result: Any) -> Minimum:
        """Raises ArgumentError where nothing is there that an interval could be of."""
        inner = result._composed or result
        if not len(inner.goal.y):
            raise ArgumentError("rows that were read in pieces are not kept: a fit has to hold its data for this")
        inner = inner if inner.goal.x_error is None else orthogonal.linear(inner)
        params = inner.params[0, : inner.pop.max_params]
        if not (np.isfinite(params).all() and np.isfinite(inner.loss[0])):
            raise ArgumentError(f"there is no fitted parameter: {result.reason[0]}")
        points = points_of(inner.pop, inner.goal)
        ev = Evaluator(inner.pop, points.X, "cpu", dtype="float64")
        f, J = ev.evaluate(params[None])[0], ev.jacobian(params[None])[0]
        J = np.where(inner.at_bound[0, : len(params)], 0.0, J)
        if endless := int(np.sum(~np.isfinite(J).all(axis=1))):
            raise ArgumentError(f"the derivatives of {inner.pop[0]} are not finite at {endless:,} of {len(f):,} points")
        is_scaled = inner.goal.loss == "squares" or (inner.goal.loss == "gaussian" and inner.goal.w is None)
        sizes = np.linalg.svd(scaled(J * np.sqrt(points.w)[:, None]), compute_uv=False)
        free: float = len(f) - int(np.sum(sizes > NOTHING * sizes[:1]))
        with np.errstate(all="ignore"):
            variance = float(np.sum(points.w * (points.y - f) ** 2) / np.float64(free)) if is_scaled else 1.0
        n_known = len(inner.goal.y) - len(result.goal.y)
        free = free if is_scaled else np.inf
        is_hard = bool(np.any(sizes[-1:] < HARD * sizes[:1]))
        return cls(inner, inner.pop, params, points, f, J, free, variance, is_hard, n_known, result.goal)

    @property
    def covariance(self) -> np.ndarray:
        """Of the parameters, (P, P)."""
        return self.result.covariance[0, : len(self.params), : len(self.params)]

    def variances(self, J: np.ndarray) -> np.ndarray:
        """Of predictions with the derivatives J, (n, P): (n,); a parameter at a bound is a constant.

        Where parameters cannot be told apart a prediction that is the same for all of them has a variance, by the
        singular values of the fit's Jacobian; others are nan (estimable functions: G. A. F. Seber and A. J. Lee,
        "Linear Regression Analysis" (2003), section 3.9).
        """
        held = self.result.at_bound[0, : len(self.params)]
        J, C = np.where(held, 0.0, J), np.where(held | held[:, None], 0.0, self.covariance)
        if np.isfinite(C).all() or self.options.kind != objective.SQUARES:
            with np.errstate(invalid="ignore"):
                return np.asarray(np.einsum("ip,pq,iq->i", J, C, J))
        own = self.jacobian * np.sqrt(self.points.w)[:, None]
        size = np.linalg.norm(own, axis=0)
        _, sizes, V = np.linalg.svd(scaled(own), full_matrices=True)
        J = J / np.where(size > 0, size, 1.0)
        along, rank = J @ V.T, int(np.sum(sizes > NOTHING * sizes[:1]))
        is_same = np.linalg.norm(along[:, rank:], axis=1) <= ESTIMABLE * np.linalg.norm(J, axis=1)
        return np.where(is_same, self.variance * np.sum((along[:, :rank] / sizes[:rank]) ** 2, axis=1), np.nan)

    @property
    def sides(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of the parameters, (P,) each."""
        goal, n = self.result.goal, len(self.params)
        lower = np.full(n, -np.inf) if goal.lower is None else goal.lower[0, :n]
        return lower, np.full(n, np.inf) if goal.upper is None else goal.upper[0, :n]

    def quantile(self, level: float) -> float:
        """How many standard errors an interval of that level reaches: by Student's t, or the normal distribution."""
        tail = (1 + between_0_and_1("level", level)) / 2
        if np.isinf(self.free):
            return NormalDist().inv_cdf(tail)
        with brought_by("search"):
            from scipy.special import stdtrit

        return float(stdtrit(self.free, tail))

    def refits(self, sides: tuple[np.ndarray, np.ndarray], starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Fits of copies of the expression between ``sides``, (n, P) each, from ``starts``, (n_starts, n, P).

        Returns
        -------
        parameters (n, P) and deviances (n,), both float64; nan where the loss is not finite
        """
        if self.given.x_error is not None:
            found = [orthogonal.of_goal(self.pop, self.given, start, *sides) for start in starts]
            least = np.argmin([np.nan_to_num(one.loss, nan=np.inf) for one in found], axis=0)
            params, loss = (np.stack([one[k] for one in found])[least, np.arange(len(least))] for k in (0, 1))
            return params, loss / self.variance
        pop = self.pop[np.zeros(len(sides[0]), np.int64)]
        options = self.options._replace(lower=sides[0], upper=sides[1])
        fitted = _fitted(self._evaluator(pop, self.points.X), starts, self.points.y, self.points.w, options)
        params, loss = fitted.params, fitted.loss
        if self.is_hard:
            ends = finish(pop, self.points, options._replace(max_iter=LAST_STEPS), params)
            better = ends.loss <= loss
            params, loss = np.where(better[:, None], ends.params, params), np.where(better, ends.loss, loss)
        return params, loss * (2 if options.kind == objective.SUM else 1) / self.variance

    @property
    def options(self) -> Options:
        goal = self.result.goal
        kind = objective.KINDS[goal.loss]
        delta = objective.floor_of(goal.y, goal.w) if kind == objective.ABSOLUTE else goal.delta
        return Options(kind, delta, STEPS, TOL, TOL)

    def bootstrap(self, resample: str, n: int, seed: int) -> np.ndarray:
        """Parameters of fits to ``n`` resampled data sets, float64 (n, P).

        "residuals": drawn from those of the fit, enlarged by their leverages; "parametric": normal errors, or
        Poisson's; "pairs": drawn rows, of any loss.

        B. Efron and R. J. Tibshirani, "An Introduction to the Bootstrap" (1993), chapters 6 and 9.
        """
        one_of("resample", resample, RESAMPLES)
        whole("n", n, 2, MOST_REFITS)
        random, size = np.random.default_rng(whole("seed", seed, 0)), len(self.points.y)
        is_pairs, kind = resample == "pairs", self.options.kind
        if self.n_known and resample != "parametric":
            raise ArgumentError("a prior is no row of the data to draw: take resample='parametric'")
        if self.given.x_error is not None and resample == "residuals":
            raise ArgumentError("a residual has errors of y and X in it: take resample='parametric' or 'pairs'")
        if is_pairs:
            drawn = random.multinomial(size, np.full(size, 1 / size), n).astype(np.float64)
        elif kind == objective.SQUARES:
            own = self.standard_residuals()
            errors = random.standard_normal((n, size)) if resample == "parametric" else random.choice(own, (n, size))
            drawn = self.values + errors * np.sqrt(self.variance / self.points.w)
        elif kind == objective.POISSON and resample == "parametric":
            drawn = random.poisson(self.values, (n, size)).astype(np.float64)
        else:
            raise ArgumentError(f"loss={self.result.goal.loss!r} has no bootstrap by {resample}: take resample='pairs'")
        at_once = max(1, AT_ONCE // size) if kind == objective.SQUARES else 1
        fit = self._fit_columns if kind == objective.SQUARES else self._fit_one
        if self.given.x_error is not None:
            fit, at_once = functools.partial(self._fit_distances, random), max(1, at_once // 8)
        params = np.concatenate([fit(drawn[first : first + at_once], is_pairs) for first in range(0, n, at_once)])
        if (lost := int(np.sum(~np.isfinite(params).all(axis=1)))) > LOST * n:
            raise ArgumentError(f"{lost:,} of {n:,} refits have no finite loss: take another resample= or bounds")
        return params[np.isfinite(params).all(axis=1)]

    def without(self, rows: np.ndarray) -> np.ndarray:
        """Parameters (1, P) of a fit without some rows, bool (n_points,)."""
        return self._fit_one(np.where(rows, 0.0, 1.0)[None], True)

    def standard_residuals(self) -> np.ndarray:
        """Residuals of squared errors, centred, of one variance: r sqrt(w / (1 - h) / s^2), (n_points,)."""
        with np.errstate(all="ignore"):
            r = (self.points.y - self.values) * np.sqrt(self.points.w / (1 - self.leverage) / self.variance)
        r = r[np.isfinite(r)]
        if not len(r):
            reason = "the fit is exact, or has as many parameters as points"
            raise ArgumentError(f"a bootstrap by residuals needs residuals: {reason}")
        return r - r.mean()

    @property
    def leverage(self) -> np.ndarray:
        """How much each point draws its own prediction, (n_points,), from 0 to 1."""
        U, sizes, _ = np.linalg.svd(scaled(self.jacobian * np.sqrt(self.points.w)[:, None]), full_matrices=False)
        return np.minimum(np.sum(U[:, sizes > NOTHING * sizes[0]] ** 2, axis=1), 1.0)

    def _fit_columns(self, drawn: np.ndarray, is_pairs: bool) -> np.ndarray:
        """Fits to data sets (n, n_points) as one population, each data set a column that one expression has.

        f is fitted to y + d as f - d is to y; to rows that are drawn c times, as sqrt(c) (f - y) is to 0.
        """
        X, y, w = self.points
        n, width, one = len(drawn), X.shape[1], self.pop[0]
        column = width + 1 + np.arange(n, dtype=np.uint64)
        before = [column] if is_pairs else []
        after = (
            [np.full(n, width), np.full(n, ops.SUB), np.full(n, ops.MUL)] if is_pairs else [column, np.full(n, ops.SUB)]
        )
        kinds = [VARIABLE] * is_pairs + one.kinds.tolist() + [VARIABLE, OPERATOR] + [OPERATOR] * is_pairs
        own = np.broadcast_to(one.values, (n, len(one.values)))
        values = np.column_stack([*before, own, *after]).astype(np.uint64)
        pop = Population(np.tile(np.array(kinds, np.uint8), n), values.ravel(), np.arange(n + 1) * values.shape[1])
        columns = np.sqrt(drawn) if is_pairs else drawn - y
        return self._fit(pop, np.column_stack([X, y, columns.T]), 0 * y if is_pairs else y, w)

    def _fit_distances(self, random: np.random.Generator, drawn: np.ndarray, is_pairs: bool) -> np.ndarray:
        """Fits of orthogonal distances to rows that are drawn so many times, or to y with new errors of X and y."""
        goal, counted = self.given, self.given.w > 0
        X, y, w, errors = goal.X[counted], goal.y[counted], goal.w[counted], goal.x_error[counted]
        shape = (len(drawn), *errors.shape)
        if is_pairs:
            X, y, w = np.broadcast_to(X[:, : shape[2]], shape), np.broadcast_to(y, drawn.shape), w * drawn
        else:
            size = np.sqrt(self.variance)
            X = self.points.X[:, : shape[2]] + size * errors * random.standard_normal(shape)
            y = self.values + size * random.standard_normal(drawn.shape) / np.sqrt(w)
            w = np.broadcast_to(w, drawn.shape)
        starts, *sides = (np.tile(one, (len(drawn), 1)) for one in (self.params, *self.sides))
        found = orthogonal.fit(self.pop, X, y, w, errors, starts, *sides)
        return np.where(np.isfinite(found.loss)[:, None], found.params, np.nan)

    def _fit_one(self, drawn: np.ndarray, is_pairs: bool) -> np.ndarray:
        """The fit to a data set (1, n_points), or to rows that are drawn so many times."""
        X, y, w = self.points
        return self._fit(self.pop, X, y if is_pairs else drawn[0], w * drawn[0] if is_pairs else w)

    def _fit(self, pop: Population, X: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
        lower, upper = (np.tile(side, (len(pop), 1)) for side in self.sides)
        starts = np.tile(self.params, (1, len(pop), 1))
        fitted = _fitted(self._evaluator(pop, X), starts, y, w, self.options._replace(lower=lower, upper=upper))
        return np.where(np.isfinite(fitted.loss)[:, None], fitted.params, np.nan)

    def _evaluator(self, pop: Population, X: np.ndarray) -> Evaluator:
        ev = self.result.evaluator
        return Evaluator(pop, X, ev.backend, dtype="float64", threads=ev.threads)


def _fitted(ev: Evaluator, starts: np.ndarray, y: np.ndarray, w: np.ndarray, options: Options) -> Fitted:
    y, w = ev.target(y, w, own=True)
    if options.kind == objective.SUM:
        return first_order.minimise(ev, "lbfgs", starts, y, w, options)
    return ev.derivatives().fit(starts, y, w, options)


def scaled(J: np.ndarray) -> np.ndarray:
    """A Jacobian, (n_points, P), whose columns have the norm 1, or 0."""
    size = np.linalg.norm(J, axis=0)
    return np.asarray(J / np.where(size > 0, size, 1.0))


def between_0_and_1(what: str, number: Any) -> float:
    if not (isinstance(number, int | float | np.floating) and 0 < number < 1):
        raise ArgumentError(f"{what} must be a number between 0 and 1, not {brief(number)}")
    return float(number)
