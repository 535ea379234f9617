"""The last steps of fits: on the Jacobian itself, in float64, until the loss is stationary.

In: expressions, complete data, an objective and parameters.  Out: parameters, losses, and whether they are a minimum.

    >>> import exprkit as ek, numpy as np
    >>> from exprkit.backends.objective import Options
    >>> from exprkit.fitting.finishing.factors import CountedPoints
    >>> from exprkit.fitting.finishing.finish import finish
    >>> x = 1e6 + np.arange(5.0)
    >>> points = CountedPoints(x[:, None], 3 + 2 * (x - 1e6), np.ones(5))
    >>> found = finish(ek.parse(["p1 + p2 * x1"]), points, Options(), np.ones((1, 2)))
    >>> found.params[0].round(3).tolist(), bool(found.is_minimum[0])
    ([-1999997.0, 2.0], True)

The backends' fits step by normal equations, J'J, whose condition is the square of J's, and end where the loss no longer
falls.  Of columns far from 0 for their spread that is anywhere.  Here a step is solved by orthogonal factors of J with
columns of equal norm, in a trust region around the parameters, measured in the columns' largest norms (J. J. More, "The
Levenberg-Marquardt algorithm", 1978): no unit of a parameter or a column counts.

Parameters are at a minimum where the whole step (of Gauss and Newton) is short in units of the standard errors:
the part of r that lies in J's columns is at most ``AIM`` of the residual deviation, or no more than rounding makes.
From there ``sharpen`` goes on, of few expressions, by whole steps while each is shorter than the last: what they gain
is lost in the loss's rounding, but not in the slope's.  A parameter at a bound that the loss pushes against is constant
to the others.  Where steps gain next to nothing although a parameter grows or shrinks with each, the least loss is at
infinity, or 0: they end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exprkit.backends import objective
from exprkit.backends.objective import Fitted, Options
from exprkit.evaluate.compute import Compute
from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.population import Population
from exprkit.fitting.finishing.factors import (
    LAST_PLACES,
    ON_HOST,
    CountedPoints,
    JacobianFactors,
    Model,
    parts_of,
)
from exprkit.fitting.finishing.saddles import SIGNS, beside, curves_upwards
from exprkit.fitting.finishing.stationarity import (
    ENDLESS,
    EPS,
    FEW_DIGITS,
    is_stationary,
    projected,
    pushed,
    sides_of,
    tolerances,
)
from exprkit.fitting.likelihood import FitGoal, points_of
from exprkit.fitting.starts.candidates import some_rows
from exprkit.programs.linearity import dependence

AIM = 1e-7  # standard errors that a step may still have at a minimum: parameters to seven digits of their errors
ENOUGH = 1e-3  # ... where no shorter one lowers the loss: it is lost in rounding
UNABLE = (objective.NO_PARAMETERS, objective.NO_WEIGHT, objective.INVALID, objective.NO_DERIVATIVE)
GOOD, BAD, LEAST = 0.75, 0.25, 1e-4  # of the gain that was predicted: enlarge the region, narrow it, accept
NEWTON = 12  # steps that find the damping of a radius
STEPS, LEAST_STEPS = 1000, 20  # of an expression, by how many there are; MGH17 of NIST takes 750 from its first start
# steps one after the other that gain less than that share of the squared residual deviation (a ten thousandth of a
# standard error) although a parameter changes by a tenth of itself: what p1 + 1 / p2 gains halves with every step then,
# so that all further ones gain no more; it would take 25 to 90 of them until that is lost in rounding
CREEPING, GAIN, CHANGE = 3, 1e-8, 0.1
SPAN, SLOW = 50, 1e-4  # steps in which the loss has to fall by that share: parameters that run away stop
# Whole steps at a minimum, and how much shorter than the last each has to be: with 0.5 two of NIST's 27 (ENSO, MGH09)
# end before their eighth digit
LAST_STEPS, SHORTER = 50, 0.9
WORK = 1 << 25  # numbers of Jacobians that the steps of a population may take: some tenths of a second of a core
SADDLE_ROWS, SADDLE_WORK = 1024, 1 << 16  # rows, and numbers of Jacobians in all, by which saddle points are told
SMALL_ON_GPU = 1 << 21  # what is finished by default where a GPU makes the fits


class Finished(NamedTuple):
    """Parameters and losses after the last steps."""

    params: np.ndarray  # float64 (n_exprs, max_params)
    loss: np.ndarray  # the objective; nan where it is not finite at the start
    steps: np.ndarray  # int64 (n_exprs,)
    is_minimum: np.ndarray  # bool (n_exprs,)
    is_endless: np.ndarray  # bool (n_exprs,): the loss has its least value where a parameter is infinite, or 0

    def take(self, which: np.ndarray, other: Finished, better: np.ndarray) -> None:
        """Take over what is ``better`` of another run of the expressions ``which``."""
        rows = which[better]
        for old, new in zip(self, other, strict=True):
            old[(rows, slice(new.shape[-1]))[: old.ndim]] = new[better]


def finished(
    fitted: Fitted, ev: Evaluator, goal: FitGoal, options: Options, starts: np.ndarray, is_limited: bool
) -> Fitted:
    """Fits, finished; of few, those at no minimum then begin again at their first start, and the better one counts.

    ``is_limited``: by ``options.max_iter`` steps altogether.
    """
    pop, points = ev.pop, points_of(ev.pop, goal)
    compute = Compute("numpy" if ev.backend == "numpy" else "cpu", ev.precision, "float64", ev.threads)
    able = np.isfinite(fitted.loss) & ~np.isin(fitted.status, UNABLE)
    if is_limited:
        able &= fitted.status != objective.MAX_ITER
    which = np.flatnonzero(able)
    if not len(which) or not len(points.y):
        return fitted
    size = len(which) * len(points.y) * (pop.max_params + 1)
    steps = int(np.clip(WORK // size, LEAST_STEPS, STEPS))
    few, width = pop[which], pop[which].max_params
    own = options.of(which, width)._replace(max_iter=min(steps, options.max_iter) if is_limited else steps)
    ends = finish(few, points, own, fitted.params[which, :width], compute=compute)
    if options.kind == objective.SUM:  # whose steps come near slowly
        left = np.flatnonzero(~ends.is_minimum)
        ends.is_minimum[left] = is_stationary(
            few[left], points, own.of(left, width), ends.params[left], threads=ev.threads
        )
    again = np.flatnonzero(~ends.is_minimum & ~ends.is_endless if steps > SPAN else [])
    if len(again):
        rest = few[again]
        first = starts[0, which[again], : rest.max_params]
        other = finish(rest, points, own.of(again, rest.max_params), first, far=True, compute=compute)
        ends.take(again, other, ~(ends.loss[again] <= other.loss) & np.isfinite(other.loss))
    params, loss, status = fitted.params.copy(), fitted.loss.copy(), fitted.status.copy()
    status[which[_leave_saddles(ends, few, points, own, fitted.iterations[which] == 0, compute)]] = objective.FTOL
    if steps > SPAN and options.kind not in (objective.SUM, objective.ABSOLUTE):  # few, and whole steps are Newton's
        sharpen(ends, few, points, own, compute)
    good = np.isfinite(ends.loss)
    params[which[good], :width], loss[which[good]] = ends.params[good], ends.loss[good]
    old = status[which]
    ended = np.where(np.isin(old, objective.CONVERGED), old, objective.FTOL)
    failed = np.where((ends.steps >= own.max_iter) | (old == objective.MAX_ITER), objective.MAX_ITER, objective.STUCK)
    failed = np.where(ends.is_endless, ENDLESS, failed)
    failed = np.where(old == objective.NO_SLOPE, old, failed)
    status[which] = np.where(ends.is_minimum, ended, failed)
    return Fitted(params, loss, fitted.iterations, status, fitted.evaluations + int(ends.steps.sum()))


def sharpen(ends: Finished, pop: Population, points: CountedPoints, options: Options, compute: Compute) -> None:
    """Replace parameters at minima, with their losses, by those to which whole steps of shrinking length lead.

    The length is measured in residuals; one that is no more than rounding makes of them is 0.
    """
    minima = np.flatnonzero(ends.is_minimum)
    for part in parts_of(len(minima), len(points.y), ends.params.shape[1]):
        rows = minima[part]
        few = pop[rows]
        width = few.max_params
        own, p, loss = options.of(rows, width), np.nan_to_num(ends.params[rows, :width]), ends.loss[rows]
        lower, upper = sides_of(own, p.shape)
        with np.errstate(all="ignore"):
            model = Model(few, points, own, compute)
            step, length, noise = _whole_step(model.factors(p), p, lower, upper, len(points.y))
            left = length > noise
            for _ in range(min(LAST_STEPS, own.max_iter)):
                if not np.any(left):
                    break
                trial = np.where(left[:, None], np.clip(p + step, lower, upper), p)
                new_loss = model.loss(trial)
                step, new_length, noise = _whole_step(model.factors(trial), trial, lower, upper, len(points.y))
                left &= new_length < SHORTER * length
                left &= np.sqrt(new_loss) <= np.sqrt(loss) * (1 + FEW_DIGITS * EPS) + FEW_DIGITS * noise
                p[left], loss[left], length[left] = trial[left], new_loss[left], new_length[left]
                ends.steps[rows[left]] += 1
                left &= length > noise
        ends.params[rows, :width] = np.where(np.arange(width) < few.n_params[:, None], p, np.nan)
        ends.loss[rows] = loss


def _whole_step(
    now: JacobianFactors, p: np.ndarray, lower: np.ndarray, upper: np.ndarray, n_points: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The step of Gauss and Newton, its length in residuals (nan: a derivative is not finite), and their rounding."""
    held = pushed(now, p, lower, upper)
    u, s, V, rank = projected(now, np.where(held[:, None, :], 0.0, now.R))
    step = -np.einsum("mji,mj->mi", V, u / s) / np.where(now.norm > 0, now.norm, 1.0)
    length = np.where(now.finite, np.linalg.norm(u, axis=1), np.nan)
    return step, length, np.sqrt(tolerances(now, p, n_points, rank)[1])


def _leave_saddles(
    found: Finished, pop: Population, points: CountedPoints, options: Options, is_idle: np.ndarray, compute: Compute
) -> np.ndarray:
    """Go on to a minimum from where the loss is stationary, but less beside it; returns of which expressions.

    On a sample of the rows, and on all where that finds less; of many expressions, or a loss
    that adds up values, those that ``is_idle`` names.
    """
    nonlinear = dependence(pop)
    linear = np.bitwise_count(nonlinear.linear) * (options.kind == objective.SQUARES)
    rows = some_rows(len(points.y), SADDLE_ROWS, np.random.Generator(np.random.PCG64(len(points.y))))
    able = found.is_minimum & (linear < pop.n_params)
    size = len(SIGNS) * np.sum(able) * len(rows) * (pop.max_params + 1)
    if size > SADDLE_WORK or options.kind == objective.SUM:  # whose steps come near slowly
        able &= is_idle
    which, sample = np.flatnonzero(able), CountedPoints(*(np.ascontiguousarray(column[rows]) for column in points))
    if len(which) and options.kind != objective.SUM:
        own, p = options.of(which, pop.max_params), np.nan_to_num(found.params[which, : pop.max_params])
        which = which[~curves_upwards(pop[which], sample, own, p, compute)]
    if not len(which):
        return which
    few = pop[which]
    width = few.max_params
    own, p = options.of(which, width), np.nan_to_num(found.params[which, :width])
    copies = np.tile(np.arange(len(which)), len(SIGNS))
    starts = beside(few, sample, own, p, nonlinear.linear[which]).reshape(-1, width)
    moved = finish(few[copies], sample, own.of(copies, width), starts, far=True, compute=compute)
    shape = len(SIGNS), len(which)
    loss, ends = np.where(moved.is_minimum, moved.loss, np.inf).reshape(shape), moved.params.reshape(*shape, width)
    best = objective.best_starts(loss, ends, np.full(shape, objective.FTOL), options.nothing)
    with np.errstate(all="ignore"):
        known = Model(few, sample, own, compute).loss(p)
    lower = np.flatnonzero(_is_lower(loss[best, np.arange(len(which))], known, options))
    if not len(lower):
        return lower
    again = finish(few[lower], points, own.of(lower, width), ends[best[lower], lower], compute=compute)
    better = again.is_minimum & _is_lower(again.loss, found.loss[which[lower]], options)
    found.take(which[lower], again, better)
    return which[lower[better]]


def _is_lower(loss: np.ndarray, known: np.ndarray, options: Options) -> np.ndarray:
    """Whether losses are less than known ones by more than rounding."""
    return np.asarray(loss < known - objective.SAME * np.abs(known) - options.nothing)


def finish(
    pop: Population,
    points: CountedPoints,
    options: Options,
    params: np.ndarray,
    *,
    far: bool = False,
    compute: Compute = ON_HOST,
) -> Finished:
    """Step to the minimum from ``params``, (n_exprs, max_params).

    ``far``: it may be far away, so that the first steps are no longer than the parameters themselves.
    """
    n = len(params)
    ends = Finished(params.copy(), np.full(n, np.nan), np.zeros(n, np.int64), np.zeros(n, bool), np.zeros(n, bool))
    for part in parts_of(n, len(points.y), params.shape[1]):
        few = pop[part]
        P = few.max_params
        own, p = options.of(part, P), np.nan_to_num(params[part, :P], nan=0.0)
        lower, upper = sides_of(own, p.shape)
        p = np.clip(p, lower, upper)
        ends.params[part, :P] = np.where(np.arange(P) < few.n_params[:, None], p, np.nan)
        which = np.flatnonzero(few.valid & (few.n_params > 0) & (len(points.y) > 0))
        if len(which):
            with np.errstate(all="ignore"):
                bounds = lower[which], upper[which]
                _TrustRegions(few[which], part[which], points, own, p[which], *bounds, far, compute).run(ends)
    return ends


class _TrustRegions:
    """Steps of expressions side by side; those that are done leave once they are as many as the others.

    All arrays among the attributes have a row for each expression.
    """

    def __init__(
        self,
        pop: Population,
        rows: np.ndarray,
        points: CountedPoints,
        options: Options,
        params: np.ndarray,
        lower: np.ndarray,
        upper: np.ndarray,
        far: bool,
        compute: Compute,
    ) -> None:
        self._pop, self._points, self._options, self._compute = pop, points, options, compute
        self.rows, self.p, self.lower, self.upper = rows, params, lower, upper
        self.model = Model(pop, points, options, compute)
        self.loss, self.now = self.model.loss(self.p), self.model.factors(self.p)
        self.unit = self.now.norm.copy()
        size = np.linalg.norm(self.unit * self.p, axis=1)
        self.radius = np.where((size > 0) & far, size, np.inf)
        self.steps, self.is_minimum = np.zeros(len(rows), np.int64), np.zeros(len(rows), bool)
        self.creeping, self.is_endless = np.zeros(len(rows), np.int64), np.zeros(len(rows), bool)
        self.done, self.before = ~np.isfinite(self.loss), self.loss.copy()
        self.n_points, self.aim = len(points.y), max(AIM, options.tol)

    def run(self, ends: Finished) -> None:
        """Step until all are done; ``ends`` takes what they come to."""
        for k in range(1, 1 + min(STEPS, self._options.max_iter)):
            self.step()
            if k % SPAN == 0:
                self.done |= ~(self.loss < self.before - SLOW * np.abs(self.before))
                self.before = self.loss.copy()
            if np.all(self.done):
                break
            if 2 * np.sum(self.done) >= len(self.done):
                self._write(ends)
                self._keep(~self.done)
        self._write(ends)

    def _write(self, ends: Finished) -> None:
        P = self.p.shape[1]
        ends.params[self.rows, :P] = np.where(np.arange(P) < self._pop.n_params[:, None], self.p, np.nan)
        ends.loss[self.rows], ends.steps[self.rows] = self.loss, self.steps
        ends.is_minimum[self.rows], ends.is_endless[self.rows] = self.is_minimum, self.is_endless

    def _keep(self, left: np.ndarray) -> None:
        """Leave all but some expressions behind."""
        self._pop = self._pop[left]
        self.model = Model(self._pop, self._points, self._options, self._compute)
        self.now = JacobianFactors(*(array[left] for array in self.now))
        for name, array in vars(self).items():
            if isinstance(array, np.ndarray):
                setattr(self, name, array[left])

    def step(self) -> None:
        """One trial step of every expression."""
        now, unit = self.now, np.where(self.unit > 0, self.unit, 1.0)
        share = now.norm / unit
        held = pushed(now, self.p, self.lower, self.upper)
        z, within, rank, is_whole = self._solved(now.R * share[:, None, :], held)
        deviation, noise = tolerances(now, self.p, self.n_points, rank)
        near = within <= np.maximum(self.aim**2 * deviation, noise)
        fresh = np.all(share > 0.5, axis=1) | np.all(now.norm == 0, axis=1)
        for _ in range(self.p.shape[1]):
            blocked = ((self.p <= self.lower) & (z < 0)) | ((self.p >= self.upper) & (z > 0))
            if not np.any(blocked & ~held):
                break
            held |= blocked
            z, *_ = self._solved(now.R * share[:, None, :], held)
        trial = np.where(self.done[:, None], self.p, np.clip(self.p + z / unit, self.lower, self.upper))
        d = (trial - self.p) * now.norm
        change = np.einsum("mij,mj->mi", now.R, d)
        predicted = -np.sum((2 * now.q + change) * change, axis=1)
        loss = self.model.loss(trial)
        gain = self.loss - loss
        accepted = ~self.done & (gain > LEAST * predicted) & (predicted > 0)
        still = np.all(np.abs(trial - self.p) <= EPS * np.abs(self.p), axis=1)
        size = np.linalg.norm((trial - self.p) * unit, axis=1)
        unclear = 2 * np.sqrt((now.rest**2 + np.sum(now.q**2, axis=1)) * noise)  # of a loss by what rounding makes of r
        hidden = predicted <= np.maximum(4 * EPS * np.abs(self.loss), unclear)
        if self.model.kind == objective.SUM:
            hidden = predicted <= 4 * EPS * np.abs(self.loss)
            unclear = LAST_PLACES * np.abs(self.p * now.norm).max(axis=1, initial=0.0) ** 2
        unsure = ~self.done & (~accepted | hidden) & (np.abs(gain) <= unclear) & (predicted > 0)
        lost = hidden & ~unsure | still
        narrow = ~(gain > BAD * predicted) & ~unsure
        wide = (gain > GOOD * predicted) | (is_whole & accepted)
        self.radius = np.where(narrow, BAD * size, np.where(wide, np.maximum(self.radius, 2 * size), self.radius))
        self.steps += ~self.done
        ended = ~self.done & ((near & fresh) | lost)
        long = np.any(np.abs(trial - self.p) > CHANGE * np.maximum(np.abs(trial), np.abs(self.p)), axis=1)
        creeps = long & ~near & ~is_whole & (np.maximum(predicted, gain) <= GAIN * deviation)
        self.creeping = np.where(creeps, self.creeping + 1, 0)
        self.is_endless |= ~self.done & ~ended & (self.creeping >= CREEPING)
        self._try_0(trial)
        close = within <= np.maximum(ENOUGH**2 * deviation, FEW_DIGITS**2 * noise)
        at_minimum = (near | close) & now.finite
        self.is_minimum[ended] = at_minimum[ended]
        self.done |= ended | self.is_endless
        moved = (accepted | unsure) & ~self.done
        if np.any(moved):
            new = self.model.factors(trial)
            steeper = ~(np.sum(new.q**2, axis=1) < np.sum(now.q**2, axis=1))  # where the loss is but rounding
            spoiled = moved & (now.finite & ~new.finite | unsure & steeper)  # or a derivative is not finite: no way on
            self.radius[spoiled], moved = BAD * size[spoiled], moved & ~spoiled
            no_further = unsure & steeper & hidden & ~self.done
            self.is_minimum[no_further], self.done = at_minimum[no_further], self.done | no_further
            self.now = JacobianFactors(
                *(np.where(moved.reshape(-1, *[1] * (a.ndim - 1)), a, b) for a, b in zip(new, now, strict=True))
            )
            self.unit = np.where(moved[:, None], np.maximum(new.norm, self.unit), self.unit)
        better = moved | (ended & near & (gain >= 0))
        self.p[better], self.loss[better] = trial[better], loss[better]
        self.unit = np.where((near & ~fresh)[:, None], self.now.norm, self.unit)

    def _try_0(self, trial: np.ndarray) -> None:
        """End at 0 what goes there without end, where the loss is as small there: that of ``p1^2 * x1`` may be."""
        endless = self.is_endless & ~self.done
        if np.any(endless):
            at_0 = np.where(endless[:, None] & (np.abs(trial) < (1 - CHANGE) * np.abs(self.p)), 0.0, self.p)
            at_0 = np.clip(at_0, self.lower, self.upper)
            loss = self.model.loss(at_0)
            least = endless & np.any(at_0 != self.p, axis=1) & (loss <= self.loss)
            self.p[least], self.loss[least] = at_0[least], loss[least]
            self.is_minimum |= least
            self.done |= least
            self.is_endless &= ~least

    def _solved(self, A: np.ndarray, held: np.ndarray) -> tuple[np.ndarray, ...]:
        """The step in the region: (step times unit, square of r's part in J's columns, rank, whether it is whole)."""
        u, s, V, rank = projected(self.now, np.where(held[:, None, :] | self.done[:, None, None], 0.0, A))
        w, damping = u / s, np.zeros(len(s))
        length = np.linalg.norm(w, axis=1)
        is_whole = length <= self.radius
        for _ in range(NEWTON):
            far = length > 1.1 * self.radius
            if not np.any(far):
                break
            slope = np.sum(w * w / (s * s + damping[:, None]), axis=1)
            damping = np.where(far, damping + (length / self.radius - 1) * length**2 / slope, damping)
            w = u * s / (s * s + damping[:, None])
            length = np.linalg.norm(w, axis=1)
        return -np.einsum("mji,mj->mi", V, w), np.sum(u * u, axis=1), rank, is_whole
