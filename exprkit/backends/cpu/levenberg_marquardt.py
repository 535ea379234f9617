"""Fits on the CPU: the whole Levenberg-Marquardt loop of every expression in compiled code.

One evaluation (``equations`` of ``derivatives``) an iteration,
which is the trial of a step and, where the step is taken, the equations of the next one.
``reference`` says plainly what is computed; the steps here are the same.

    >>> import exprkit as ek, numpy as np
    >>> x = np.linspace(0, 1, 20)[:, None]
    >>> ek.fit(ek.parse(["p1 * exp(p2 * x1)"]), x, 3 * np.exp(-x[:, 0]), backend="cpu").params.round(4)
    array([[ 3., -1.]])

A row is one expression from one start; threads take the next row when they are done with one,
so an expression that converges early costs no more than it takes.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exprkit.backends import objective
from exprkit.backends.cpu.derivatives import GradientJob, Gradients, Scratch, equations
from exprkit.backends.cpu.tiles import ZERO, begin
from exprkit.backends.objective import Fitted, Options
from exprkit.programs.linearity import dependence
from exprkit.runtime.intrinsics import lent, take
from exprkit.runtime.jit import compiled

FTOL, XTOL, GTOL, MAX_ITER, STUCK = range(5)
NOT_FINITE, NO_PARAMETERS, NO_DERIVATIVE = objective.NOT_FINITE, objective.NO_PARAMETERS, objective.NO_DERIVATIVE
FLAT, NO_SLOPE, FADING, FREE, HARDER, EASIER = (
    objective.FLAT, objective.NO_SLOPE, objective.FADING, objective.FREE, objective.HARDER, objective.EASIER,
)  # fmt: skip
FIRST_DAMPING, LEAST_DAMPING, MOST_DAMPING = objective.FIRST_DAMPING, objective.LEAST_DAMPING, objective.MOST_DAMPING
START, LINEAR, TRIAL = range(3)  # what is evaluated: the start, the linear parameters solved, a step
ROWS_AT_ONCE = 1 << 24  # instructions x points between two looks for Ctrl-C, an evaluation of every row


def fit(
    gradients: Gradients, starts: np.ndarray, y: np.ndarray, weights: np.ndarray | None, options: Options
) -> Fitted:
    """Fit every expression from each of its starts, (n_starts, n_exprs, max_params); the best one counts."""
    n_starts, n_exprs, width = starts.shape
    n_rows = n_starts * n_exprs
    rows = _FitRows(
        np.array(starts.reshape(n_rows, width)), np.full(n_rows, np.nan), np.zeros(n_rows, np.int32),
        np.full(n_rows, objective.INVALID, np.uint8), np.zeros(n_rows, np.int64),
    )  # fmt: skip
    if gradients.n_points == 0 or (weights is not None and not np.any(weights > 0)):
        rows.loss[:], rows.status[:] = 0.0, objective.NO_WEIGHT
    else:
        _run(gradients, rows, y, weights, options)
    return _best(gradients, rows, n_starts, n_exprs, width)


def _run(gradients: Gradients, rows: _FitRows, y: np.ndarray, weights: np.ndarray | None, options: Options) -> None:
    n_exprs, width = len(gradients.pop), rows.params.shape[1]
    unbounded = options.lower is None and options.upper is None
    shape = (1, width) if unbounded else (n_exprs, width)
    lower, upper = (
        np.full(shape, side) if given is None else np.ascontiguousarray(given, np.float64)
        for given, side in ((options.lower, -np.inf), (options.upper, np.inf))
    )
    linear, differentiable = dependence(gradients.pop)
    if not options.linear:
        linear = np.zeros(n_exprs, np.uint64)
    loop = _Loop(
        gradients.pop.valid, linear, differentiable, lower, upper, options.max_iter, options.tol, options.gtol,
    )  # fmt: skip
    goal = gradients.goal(y, weights, options.kind, options.delta)

    def drive(job: GradientJob, scratch: Scratch, most: int) -> bool:
        return _drive(gradients.machine, goal, loop, rows, job, scratch, _State.make(width), most)

    at_once = max(1, ROWS_AT_ONCE * n_exprs // max(gradients.n_points * len(gradients.program.code), 1))
    gradients.each_row(len(rows.loss), at_once, drive)


def _best(gradients: Gradients, rows: _FitRows, n_starts: int, n_exprs: int, width: int) -> Fitted:
    """Of each expression the start with the least finite loss, the earliest of equals."""
    loss = rows.loss.reshape(n_starts, n_exprs)
    best = np.argmin(np.where(np.isfinite(loss), loss, np.inf), axis=0) * n_exprs + np.arange(n_exprs)
    params, valid = rows.params[best], gradients.pop.valid
    params[np.arange(width) >= gradients.program.n_params[:, None]] = np.nan
    params[~valid] = np.nan
    status = np.where(valid, rows.status[best], objective.INVALID).astype(np.uint8)
    found = np.where(valid, rows.loss[best], np.nan)
    return Fitted(params, found, rows.iterations[best], status, int(rows.evaluations.sum()))


# ── the compiled loop ────────────────────────────────────────────────────────────────


class _FitRows(NamedTuple):
    """What every row begins and ends with."""

    params: np.ndarray  # (n_rows, max_params): the start, then the end
    loss: np.ndarray
    iterations: np.ndarray
    status: np.ndarray
    evaluations: np.ndarray


class _Loop(NamedTuple):
    """How to fit; bounds of one row hold for all expressions."""

    valid: np.ndarray
    linear: np.ndarray
    differentiable: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    max_iter: int
    tol: float
    gtol: float


class _State(NamedTuple):
    """A row's equations at the present point; one for each thread."""

    jtr: np.ndarray
    jtj: np.ndarray  # full
    scale: np.ndarray  # the largest diagonal of late
    share: np.ndarray  # of the damping
    d: np.ndarray  # the step
    way: np.ndarray  # from there to the least value of the model, of the active ones
    trial: np.ndarray
    active: np.ndarray  # numbers of the parameters that can move
    A: np.ndarray

    @classmethod
    def make(cls, width: int) -> _State:
        n = max(width, 1)
        return cls(
            np.zeros(n), np.zeros((n, n)), np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n),
            np.zeros(n, np.int64), np.zeros((n, n)),
        )  # fmt: skip


_part = compiled(forceinline=True)


@compiled
def _drive(machine, goal, loop, rows, job, scratch, state, most):
    """Fit up to ``most`` rows; False: none is left."""
    machine, goal, job, scratch = lent(machine), lent(goal), lent(job), lent(scratch)
    loop, rows, state = lent(loop), lent(rows), lent(state)
    n_exprs = len(machine.n_params)
    for _ in range(most):
        row = take(job.counter.ctypes.data)
        if row >= len(rows.loss):
            return False
        if loop.valid[row % n_exprs]:
            _fit_row(machine, goal, loop, rows, scratch, state, row, row % n_exprs)
    return True


@compiled
def _fit_row(machine, goal, loop, rows, scratch, state, row, expr):
    """Fit one row.  There is one place that evaluates, so that all of it becomes one piece of machine code."""
    p, n = rows.params[row], np.int64(machine.n_params[expr])
    bound = expr if len(loop.lower) > 1 else 0
    lower, upper = loop.lower[bound], loop.upper[bound]
    for j in range(n):
        state.trial[j] = min(max(p[j], lower[j]), upper[j])
        state.share[j] = FREE if _is_in(loop.linear[expr], j) else 1.0
    phase, loss, limit, predicted = START, np.inf, np.inf, 0.0
    damping, iteration, status = FIRST_DAMPING, 0, -1
    while status < 0:
        for j in range(n):
            scratch.params[0, j] = state.trial[j]
        rows.evaluations[row] += 1
        begin(machine, scratch, scratch, ZERO, expr, ZERO)
        new = equations(machine, goal, scratch, expr, ZERO, goal.n_tiles, limit, True)
        if phase == START:
            loss = new
            status = _at_start(n, loop.differentiable[expr], new)
            if status >= 0:
                loss = np.nan if status == NOT_FINITE else new
                continue
        elif phase == TRIAL:
            gain = loss - new
            if not gain > loop.tol * loss and 0 <= predicted <= loop.tol * loss:
                status = FTOL
            damping = max(LEAST_DAMPING, damping * (_eased(gain, predicted) if gain > 0 else HARDER))
        if phase == START or new < loss:
            loss = limit = new
            _accept(scratch, state, p, n, 0.0 if phase < TRIAL else FADING)
            if phase == TRIAL and _flat(loop, state, p, n, loss, lower, upper):
                status = GTOL
        phase += 1
        if phase == LINEAR and status < 0:
            if loop.linear[expr] != 0 and _step(
                state, p, n, _choose(state, p, n, lower, upper, loop.linear[expr]), LEAST_DAMPING, lower, upper
            ):
                _move(state, p, n, lower, upper)
                continue
            phase = TRIAL
        if phase == TRIAL and _flat(loop, state, p, n, loss, lower, upper):
            status = GTOL
        phase = TRIAL
        while status < 0:
            if iteration == loop.max_iter:
                status = MAX_ITER
                break
            if damping > MOST_DAMPING:
                status = STUCK
                break
            iteration += 1
            n_active = _choose(state, p, n, lower, upper, np.uint64(0))
            if not _step(state, p, n, n_active, damping, lower, upper):
                damping *= HARDER
                continue
            if _move(state, p, n, lower, upper) <= loop.tol:
                status = XTOL
            predicted = _predicted(state, n)
            break
    if status == GTOL and not _any_is_sound(state, n):
        status = FLAT
    if status in (FTOL, XTOL, GTOL, FLAT) and not _all_finite(state, n):
        status = NO_SLOPE
    rows.loss[row], rows.status[row], rows.iterations[row] = loss, status, iteration


@_part
def _at_start(n, differentiable, loss):
    """The status where there is nothing to be done, else -1."""
    if n == 0:
        return NO_PARAMETERS
    if not differentiable:
        return NO_DERIVATIVE
    return -1 if np.isfinite(loss) else NOT_FINITE


@_part
def _eased(gain, predicted):
    """What the damping is multiplied with after a step that helped: less, the better the model foretold it."""
    return max(EASIER, 1 - (2 * gain / predicted - 1) ** 3) if predicted > 0 else HARDER


@_part
def _move(state, p, n, lower, upper):
    """Take the step within the bounds, one that meets a bound exactly there; gives the tolerance that it is within."""
    largest = 0.0
    for j in range(n):
        trial = p[j] + state.d[j]
        if state.d[j] >= upper[j] - p[j]:
            trial = upper[j]
        elif state.d[j] <= lower[j] - p[j]:
            trial = lower[j]
        state.trial[j] = min(max(trial, lower[j]), upper[j])
        state.d[j] = state.trial[j] - p[j]
        size, place = abs(state.d[j]), abs(p[j])
        if size > 0:  # size <= tol * (place + tol), solved for tol
            largest = max(largest, 2 * size / (place + np.sqrt(place * place + 4 * size)))
    return largest


@_part
def _accept(scratch, state, p, n, fading):
    """The trial becomes the present point, its sums the equations; the scale forgets, but not at once."""
    k = n
    for j in range(n):
        p[j] = state.trial[j]
        state.jtr[j] = scratch.sums[j]
        for m in range(j, n):
            state.jtj[j, m] = state.jtj[m, j] = scratch.sums[k]
            k += 1
        state.scale[j] *= fading
        if not state.jtj[j, j] <= state.scale[j]:
            state.scale[j] = state.jtj[j, j]


@_part
def _can_move(state, p, j, lower, upper):
    """Its equation is sound, and it is not at a bound that the loss pushes against."""
    slope = state.jtr[j]
    held = (p[j] <= lower[j] and slope > 0) or (p[j] >= upper[j] and slope < 0)
    return _is_sound(state, j) and not held


@_part
def _is_sound(state, j):
    """It changes the values, by numbers that can be reckoned with."""
    diagonal = state.jtj[j, j]
    return diagonal > 0 and np.isfinite(diagonal) and np.isfinite(state.jtr[j])


@_part
def _any_is_sound(state, n):
    found = False
    for j in range(n):
        found |= _is_sound(state, j)
    return found


@_part
def _all_finite(state, n):
    """Every derivative is a number."""
    finite = True
    for j in range(n):
        finite &= np.isfinite(state.jtr[j]) and np.isfinite(state.jtj[j, j])
    return finite


@_part
def _is_in(mask, j):
    return j < 64 and (mask >> np.uint64(j)) & np.uint64(1) != 0


@_part
def _choose(state, p, n, lower, upper, mask):
    """List the parameters that can move and, unless the mask is 0, whose bit is set; gives how many."""
    n_active = 0
    for j in range(n):
        if mask != 0 and not _is_in(mask, j):
            continue
        if _can_move(state, p, j, lower, upper):
            state.active[n_active] = j
            n_active += 1
    return n_active


@_part
def _flat(loop, state, p, n, loss, lower, upper):
    for j in range(n):
        if _can_move(state, p, j, lower, upper) and not abs(state.jtr[j]) <= loop.gtol * np.sqrt(
            state.jtj[j, j]
        ) * np.sqrt(max(loss, 0.0)):
            return False
    return True


@_part
def _predicted(state, n):
    """By how much the loss should fall."""
    slope = curve = 0.0
    for j in range(n):
        if state.d[j] != 0:
            slope += state.jtr[j] * state.d[j]
            for m in range(n):
                if state.d[m] != 0:
                    curve += state.d[j] * state.jtj[j, m] * state.d[m]
    return -(2 * slope + curve)


@_part
def _step(state, p, n, n_active, damping, lower, upper):
    """The damped step of the active parameters, 0 for the others; False: the equations have no solution.

    Where the way meets a bound, that parameter stays there and the rest is solved anew for the others.
    """
    state.d[:n] = 0.0
    found = n_active > 0
    while n_active > 0:
        if not _solve(state, n, n_active, damping):
            return False
        share = 1.0
        for k in range(n_active):
            share = min(share, _share(state, p, state.active[k], lower, upper))
        left = 0
        for k in range(n_active):
            j = state.active[k]
            if share < 1 and _share(state, p, j, lower, upper) <= share:
                state.d[j] = upper[j] - p[j] if state.way[j] > 0 else lower[j] - p[j]
                continue
            state.d[j] += share * state.way[j]
            state.active[left] = j
            left += 1
        n_active = left if share < 1 else 0
    return found


@_part
def _share(state, p, j, lower, upper):
    """How much of its way a parameter can go until it meets a bound; 1 or more: all."""
    way = state.way[j]
    if way == 0:
        return 1.0
    return ((upper[j] if way > 0 else lower[j]) - p[j] - state.d[j]) / way


@_part
def _solve(state, n, n_active, damping):
    """Solve the damped equations of the active parameters by Cholesky's method, from where the step has come to."""
    A, way, active = state.A, state.way, state.active
    for i in range(n_active):
        for k in range(i + 1):
            total = state.jtj[active[i], active[k]]
            if i == k:
                total += damping * state.share[active[i]] * state.scale[active[i]]
            for m in range(k):
                total -= A[i, m] * A[k, m]
            if i > k:
                A[i, k] = total / A[k, k]
            elif total > 0 and np.isfinite(total):
                A[i, i] = np.sqrt(total)
            else:
                return False
    for i in range(n_active):  # the lower triangle, then its transpose
        j = active[i]
        total = -state.jtr[j] - damping * state.share[j] * state.scale[j] * state.d[j]
        for m in range(n):
            if state.d[m] != 0:
                total -= state.jtj[j, m] * state.d[m]
        for m in range(i):
            total -= A[i, m] * way[active[m]]
        way[j] = total / A[i, i]
    for i in range(n_active - 1, -1, -1):
        total = way[active[i]]
        for m in range(i + 1, n_active):
            total -= A[m, i] * way[active[m]]
        way[active[i]] = total / A[i, i]
        if not np.isfinite(way[active[i]]):
            return False
    return True
