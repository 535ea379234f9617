"""Fits on the CPU: the whole Levenberg-Marquardt loop of every expression in compiled code.

One evaluation (``equations`` of ``loop``) an iteration,
which is the trial of a step and, where the step is taken, the equations of the next one.
``reference`` says plainly what is computed; the steps here are the same.

    >>> import exprkit as ek, numpy as np
    >>> x = np.linspace(0, 1, 20)[:, None]
    >>> ek.fit(ek.parse(["p1 * exp(p2 * x1)"]), x, 3 * np.exp(-x[:, 0]), backend="cpu").params.round(4)
    array([[ 3., -1.]])

A row is one expression from one start; threads take the next row when they are done with one,
so an expression that converges early costs no more than it takes.  After a piece of work the loop comes back, in
the middle of a row as well, so that Python sees Ctrl-C; the row's state waits in the thread's memory.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import carray

from exprkit.backends import decisions, objective
from exprkit.backends.cpu.loop import STATE_HEADER, begin, equations, job_of, loss_so_far, no_equations
from exprkit.backends.cpu.threads import enter, is_stopped, leave, next_task, wait
from exprkit.backends.cpu.tiles import TILE
from exprkit.backends.decisions import AT_LINEAR_STEP, AT_START, AT_STEP, FADING, FREE, HARDER, LEAST_DAMPING, RUNNING
from exprkit.backends.objective import Fitted
from exprkit.expressions.population import Population
from exprkit.programs.linearity import dependence
from exprkit.runtime.intrinsics import pointer
from exprkit.runtime.jit import compiled, inline

FIRST_DAMPING, MOST_DAMPING = decisions.FIRST_DAMPING, decisions.MOST_DAMPING

PIECE = (1 << 27) // TILE  # instructions of a tile between two looks for Ctrl-C: about a tenth of a second
PER_TILE = 4  # instructions that the sums of a tile are worth, beside one for each of them
NO_ROW = 0  # rows are counted from 1, so that memory of zeros holds none

FIT = np.dtype([("loss", np.float64), ("evaluations", np.int64), ("iterations", np.int32), ("status", np.uint8)])


class Fits(NamedTuple):
    """What is known of every expression."""

    valid: np.ndarray
    linear: np.ndarray  # bits of the parameters that it is linear in
    differentiable: np.ndarray


def fits_of(pop: Population, threads: int) -> Fits:
    """What is known of every expression."""
    linear, differentiable = dependence(pop, threads)
    return Fits(pop.valid, linear, differentiable)


def best_of(pop: Population, params: np.ndarray, fits: np.ndarray, nothing: float) -> Fitted:
    """Of each expression the best start (``objective.best_starts``)."""
    n_starts, n_exprs, width = params.shape
    params[:, np.arange(width) >= pop.n_params[:, None]] = np.nan
    loss, status = (fits[name].reshape(n_starts, n_exprs) for name in ("loss", "status"))
    best = objective.best_starts(loss, params, status, nothing)
    best = best * n_exprs + np.arange(n_exprs)
    params, fitted = params.reshape(n_starts * n_exprs, width)[best], fits[best]
    params[~pop.valid], fitted["loss"][~pop.valid], fitted["status"][~pop.valid] = np.nan, np.nan, objective.INVALID
    evaluations = int(fits["evaluations"].sum())
    return Fitted(params, fitted["loss"], fitted["iterations"], fitted["status"], evaluations)


# ── the compiled loop ────────────────────────────────────────────────────────────────


class FitTerms(NamedTuple):
    """What the fit of a row has to keep to."""

    n: int  # parameters
    lower: np.ndarray
    upper: np.ndarray
    linear: np.uint64  # bits of the parameters that the expression is linear in
    differentiable: bool
    max_iter: int
    limit: float  # of the loss: what is above it has as many steps as this
    patience: int
    tol: float
    gtol: float


PROGRESS = np.dtype([
    ("loss", np.float64), ("damping", np.float64), ("predicted", np.float64), ("phase", np.int64),
    ("iterations", np.int64), ("evaluations", np.int64), ("row", np.int64), ("status", np.int64), ("tile", np.int64),
])  # fmt: skip


class State(NamedTuple):
    """Where the fit of a row stands; one for each thread."""

    progress: np.ndarray  # one PROGRESS
    p: np.ndarray
    trial: np.ndarray  # what is evaluated next
    jtr: np.ndarray  # at p
    jtj: np.ndarray  # full
    scale: np.ndarray  # the fading maximum of the diagonal
    share: np.ndarray  # of the damping
    d: np.ndarray  # the step
    way: np.ndarray  # from there to the least value of the model, of the active ones
    active: np.ndarray  # numbers of the parameters that can move
    A: np.ndarray


first_reason, final_reason = inline(decisions.first_reason), inline(decisions.final_reason)
damped, is_settled, is_enough = map(inline, (decisions.damped, decisions.is_settled, decisions.is_enough))


@inline
def state_of(memory, n):
    """The state that lies in ``memory``, of ``state_size(n)`` numbers."""
    at, square = memory.ctypes.data + 8 * STATE_HEADER, 8 * n * n
    return State(
        carray(pointer(memory.ctypes.data), 1, PROGRESS),
        _vector(at, n, 0),
        _vector(at, n, 1),
        _vector(at, n, 2),
        carray(pointer(at + 64 * n), (n, n), np.float64),
        _vector(at, n, 3),
        _vector(at, n, 4),
        _vector(at, n, 5),
        _vector(at, n, 6),
        carray(pointer(at + 56 * n), n, np.int64),
        carray(pointer(at + 64 * n + square), (n, n), np.float64),
    )


@inline
def _vector(at, n, k):
    return carray(pointer(at + 8 * n * k), n, np.float64)


@compiled
def serve_fits(fits, programs, scratch, now, queue, spins):
    """Take tasks of every call of the queue, until there has been none for a while."""
    while wait(queue, spins):
        enter(queue)
        while drive_fits(fits, programs, scratch, now, queue, PIECE):
            pass
        leave(queue)


@compiled
def drive_fits(fits, programs, scratch, now, queue, most):
    """Run up to ``most`` instructions of fits, row after row, from where the last call came to; False: none is left."""
    at, state = now[0], state_of(scratch.fit, len(scratch.columns))
    stands = state.progress[0]
    if stands.row == NO_ROW:
        _begin_row(stands, queue)
    job = job_of(now, state.p)
    fit = carray(pointer(at.fits), at.n_rows, FIT)
    lower = carray(pointer(at.lower), (at.n_bounds, at.width), np.float64)
    upper = carray(pointer(at.upper), (at.n_bounds, at.width), np.float64)
    limits = carray(pointer(at.limits), at.n_limits, np.float64)
    while stands.row != NO_ROW and most > 0:
        if is_stopped(queue):
            stands.row = NO_ROW
            break
        expr = (stands.row - 1) % len(programs.n_params)
        if fits.valid[expr]:
            bound = expr if at.n_bounds > 1 else 0
            linear = fits.linear[expr] if at.linear else np.uint64(0)
            terms = FitTerms(
                programs.n_params[expr] + 0,
                lower[bound],
                upper[bound],
                linear,
                fits.differentiable[expr],
                at.max_iter,
                limits[expr if at.n_limits > 1 else 0],
                at.patience,
                at.tol,
                at.gtol,
            )
            most = _fit_row(programs, job, scratch, terms, state, fit, most)
            if stands.status == RUNNING:
                break
        _begin_row(stands, queue)
    return stands.row != NO_ROW


@inline
def _begin_row(stands, queue):
    """Take the next row, if one is left."""
    stands.row, stands.evaluations, stands.tile, stands.status = next_task(queue) + 1, 0, 0, RUNNING


@compiled
def _fit_row(programs, job, scratch, terms, state, fit, most):
    """Go on with a row; gives what is left of ``most`` instructions, and of the row what its status says.

    There is one place that evaluates, so that all of it becomes one piece of machine code.
    """
    now = state.progress[0]
    row, last = now.row - 1, programs.n_tiles
    expr = row % len(programs.n_params)
    if now.evaluations == 0 and now.tile == 0:
        now.loss, now.damping, now.predicted = np.inf, FIRST_DAMPING, 0.0
        now.phase = now.iterations = 0
        for j in range(terms.n):
            state.trial[j] = min(max(job.params[row, j], terms.lower[j]), terms.upper[j])
            state.share[j] = FREE if _is_in(terms.linear, j) else 1.0
    cost = programs.offsets[expr + 1] - programs.offsets[expr] + terms.n * (terms.n + 3) // 2 + PER_TILE
    while now.status == RUNNING and most > 0:
        if now.tile == 0:
            for j in range(terms.n):
                scratch.params[0, j] = state.trial[j]
            begin(programs, scratch.params, scratch, 0, expr, 0)
            no_equations(programs, scratch, expr)
        end = min(now.tile + most // cost + 1, last)
        is_over = equations(programs, job, scratch, expr, now.tile, end, now.loss)
        most -= cost * (end - now.tile)
        now.tile = end
        if is_over or end == last:
            now.tile = 0
            now.status = advance(terms, state, scratch.sums, loss_so_far(scratch))
    if now.status != RUNNING:
        for j in range(terms.n):
            job.params[row, j] = state.p[j]
        fit[row].loss = np.nan if now.status == objective.NOT_FINITE else now.loss
        fit[row].status, fit[row].iterations, fit[row].evaluations = now.status, now.iterations, now.evaluations
    return most


@inline
def advance(terms, state, sums, new):
    """After an evaluation of the trial: take it in, and find the next one; RUNNING, or why the fit ends."""
    now, holds = state.progress[0], 0
    now.evaluations += 1
    if now.phase == AT_STEP:
        gain = now.loss - new
        holds |= is_settled(now.loss, gain, now.predicted, terms.tol) << objective.FTOL
        now.damping = damped(now.damping, gain, now.predicted)
        if gain > 0:
            _accept(terms, state, sums, new, FADING)
            holds |= _stationary(terms, state)
    elif now.phase == AT_START:
        _accept(terms, state, sums, new, 0.0)
        holds |= (terms.n == 0) << objective.NO_PARAMETERS | (not terms.differentiable) << objective.NO_DERIVATIVE
        holds |= (not np.isfinite(new)) << objective.NOT_FINITE
        if holds == 0:
            if _propose_linear(terms, state):
                now.phase = AT_LINEAR_STEP
                return RUNNING
            holds = _stationary(terms, state)
    else:
        if new < now.loss:
            _accept(terms, state, sums, new, 0.0)
        holds |= _stationary(terms, state)
    now.phase = AT_STEP
    status = first_reason(holds)
    if status == RUNNING:
        status = _propose(terms, state)
    return final_reason(status, _all_finite(terms, state))


@inline
def _accept(terms, state, sums, new, fading):
    """The trial becomes the present point, its sums the equations; the scale forgets, but not at once."""
    state.progress[0].loss = new
    k = terms.n
    for j in range(terms.n):
        state.p[j] = state.trial[j]
        state.jtr[j] = sums[j]
        for m in range(j, terms.n):
            state.jtj[j, m] = state.jtj[m, j] = sums[k]
            k += 1
        state.scale[j] *= fading
        if not state.jtj[j, j] <= state.scale[j]:
            state.scale[j] = state.jtj[j, j]


@inline
def _propose(terms, state):
    """Find the trial of the next step; RUNNING, or why there is none."""
    now, solved = state.progress[0], False
    while not solved:
        enough = is_enough(now.iterations, terms.max_iter, now.loss, terms.limit, terms.patience)
        holds = enough << objective.MAX_ITER
        holds |= (now.damping > MOST_DAMPING) << objective.STUCK
        if holds != 0:
            return first_reason(holds)
        now.iterations += 1
        solved = _step(terms, state, _choose(terms, state, np.uint64(0)), now.damping)
        if not solved:
            now.damping *= HARDER
    _move(terms, state)
    now.predicted = _predicted(terms, state)
    return first_reason(_is_still(terms, state) << objective.XTOL)


@inline
def _propose_linear(terms, state):
    """Make the trial that with the linear parameters at their best; whether there is such."""
    if terms.linear == 0 or not _step(terms, state, _choose(terms, state, terms.linear), LEAST_DAMPING):
        return False
    return _move(terms, state)


@inline
def _move(terms, state):
    """Make the trial, of parameters that meet a bound exactly there; whether any moves."""
    moves = False
    for j in range(terms.n):
        p, lower, upper = state.p[j], terms.lower[j], terms.upper[j]
        trial = p + state.d[j]
        if state.d[j] >= upper - p:
            trial = upper
        elif state.d[j] <= lower - p:
            trial = lower
        state.trial[j] = min(max(trial, lower), upper)
        state.d[j] = state.trial[j] - p
        moves |= state.d[j] != 0
    return moves


@inline
def _is_still(terms, state):
    """No parameter moves by more than its tolerance."""
    share = 0.0  # of the values that the parameters make: the largest, squared
    for j in range(terms.n):
        part = state.p[j] * state.p[j] * state.jtj[j, j]
        if part > share and np.isfinite(part):
            share = part
    for j in range(terms.n):
        if state.d[j] != 0:
            diagonal = state.jtj[j, j]
            unit = np.sqrt(share / diagonal) if diagonal != 0 else np.inf * share  # as the quotient is elsewhere
            if not abs(state.d[j]) <= terms.tol * (abs(state.p[j]) + terms.tol * unit):
                return False
    return True


@inline
def _can_move(terms, state, j):
    """It is usable, and not at a bound that the loss pushes against."""
    slope, p = state.jtr[j], state.p[j]
    held = (p <= terms.lower[j] and slope > 0) or (p >= terms.upper[j] and slope < 0)
    return _is_usable(state, j) and not held


@inline
def _is_usable(state, j):
    """It changes the values, and its derivatives are finite."""
    diagonal = state.jtj[j, j]
    return diagonal > 0 and np.isfinite(diagonal) and np.isfinite(state.jtr[j])


@inline
def _all_finite(terms, state):
    finite = True
    for j in range(terms.n):
        finite &= np.isfinite(state.jtr[j]) and np.isfinite(state.jtj[j, j])
    return finite


@inline
def _is_in(mask, j):
    return j < 64 and (mask >> np.uint64(j)) & np.uint64(1) != 0


@inline
def _choose(terms, state, mask):
    """List the parameters that can move and, unless the mask is 0, whose bit is set; gives how many."""
    n_active = 0
    for j in range(terms.n):
        if mask != 0 and not _is_in(mask, j):
            continue
        if _can_move(terms, state, j):
            state.active[n_active] = j
            n_active += 1
    return n_active


@inline
def _stationary(terms, state):
    """The bits of GTOL, if the loss slopes along no parameter that can move, and of FLAT, if none is usable."""
    usable, loss = False, np.sqrt(max(state.progress[0].loss, 0.0))
    for j in range(terms.n):
        usable |= _is_usable(state, j)
        if _can_move(terms, state, j) and not abs(state.jtr[j]) <= terms.gtol * np.sqrt(state.jtj[j, j]) * loss:
            return 0
    return 1 << objective.GTOL | (not usable) << objective.FLAT


@inline
def _predicted(terms, state):
    """By how much the loss should fall."""
    slope = curve = 0.0
    for j in range(terms.n):
        if state.d[j] != 0:
            slope += state.jtr[j] * state.d[j]
            for m in range(terms.n):
                if state.d[m] != 0:
                    curve += state.d[j] * state.jtj[j, m] * state.d[m]
    return -(2 * slope + curve)


@inline
def _step(terms, state, n_active, damping):
    """The damped step of the active parameters, 0 for the others; False: the equations have no solution.

    Where the way meets a bound, that parameter stays there and the rest is solved anew for the others.
    """
    state.d[: terms.n] = 0.0
    while n_active > 0:
        if not _solve(terms, state, n_active, damping):
            return False
        share = 1.0
        for k in range(n_active):
            share = min(share, _share(terms, state, state.active[k]))
        left = 0
        for k in range(n_active):
            j = state.active[k]
            if share < 1 and _share(terms, state, j) <= share:
                state.d[j] = (terms.upper[j] if state.way[j] > 0 else terms.lower[j]) - state.p[j]
                continue
            state.d[j] += share * state.way[j]
            state.active[left] = j
            left += 1
        n_active = left if share < 1 else 0
    return True


@inline
def _share(terms, state, j):
    """How much of its way a parameter can go until it meets a bound; 1 or more: all."""
    way = state.way[j]
    if way == 0:
        return 1.0
    return ((terms.upper[j] if way > 0 else terms.lower[j]) - state.p[j] - state.d[j]) / way


@inline
def _solve(terms, state, n_active, damping):
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
        for m in range(terms.n):
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
