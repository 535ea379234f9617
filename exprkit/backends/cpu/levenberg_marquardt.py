"""Fits on the CPU: the whole Levenberg-Marquardt loop of every expression in compiled code.

One evaluation (``equations`` of ``loop``) an iteration,
which is the trial of a step and, where the step is taken, the equations of the next one.
The steps are those of ``backends.levenberg_marquardt``.

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

from typing import Any, NamedTuple

import numpy as np
from numba import carray

from exprkit.backends import decisions, levenberg_marquardt, objective
from exprkit.backends.cpu.loop import STATE_HEADER, begin, call_of, equations, job_of, loss_so_far, no_equations
from exprkit.backends.cpu.threads import is_stopped, next_task, task_loop
from exprkit.backends.cpu.tiles import TILE
from exprkit.backends.decisions import RUNNING
from exprkit.backends.objective import Fitted
from exprkit.expressions.population import Population
from exprkit.programs.linearity import dependence
from exprkit.runtime.intrinsics import pointer
from exprkit.runtime.jit import compiled, inline

PIECE = (1 << 27) // TILE  # instructions of a tile between two looks for Ctrl-C: about a tenth of a second
begin_fit, advance = levenberg_marquardt.begin, levenberg_marquardt.advance
PER_TILE = 4  # instructions that the sums of a tile are worth, beside one for each of them
NO_ROW = 0  # rows are counted from 1, so that memory of zeros holds none

FIT = np.dtype([("loss", np.float64), ("evaluations", np.int64), ("iterations", np.int32), ("status", np.uint8)])


class Fits(NamedTuple):
    """The programs of a population, and the verdict and the linear parameters of every expression."""

    programs: Any
    verdicts: np.ndarray
    linear: np.ndarray  # bits of the parameters that it is linear in


def fits_of(pop: Population, programs: Any, threads: int) -> Fits:
    """What fits of a population read."""
    linear, differentiable = dependence(pop, threads)
    return Fits(programs, decisions.verdicts(pop, differentiable), linear)


def best_of(pop: Population, params: np.ndarray, fits: np.ndarray, nothing: float) -> Fitted:
    """The best start of each expression (``objective.best_starts``)."""
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
    """The limits and settings of the fit of a row (``backends.levenberg_marquardt``)."""

    n: int  # parameters
    lower: np.ndarray
    upper: np.ndarray
    bounded: bool
    linear: np.uint64  # bits of the parameters that the expression is linear in
    verdict: int  # RUNNING, or why nothing is to be fitted
    max_iter: int
    limit: float  # of the loss: what is above it has ``patience`` steps
    patience: int
    tol: float
    gtol: float


PROGRESS = np.dtype([
    ("damping", np.float64), ("predicted", np.float64), ("phase", np.int64), ("iterations", np.int64),
    ("evaluations", np.int64), ("row", np.int64), ("status", np.int64), ("tile", np.int64),
])  # fmt: skip
LOSS = 8  # number of the header that is the loss, behind those of PROGRESS


class State(NamedTuple):
    """The state of the fit of a row (``backends.levenberg_marquardt``); one for each thread."""

    progress: np.ndarray  # one PROGRESS
    loss: np.ndarray
    p: np.ndarray
    trial: np.ndarray
    step: np.ndarray
    scale: np.ndarray
    jtr: np.ndarray
    jtj: np.ndarray
    factor: np.ndarray


@inline
def state_of(memory, n):
    """The state that lies in ``memory``, of ``state_size(n)`` numbers."""
    at, square = memory.ctypes.data + 8 * STATE_HEADER, 8 * n * n
    return State(
        carray(pointer(memory.ctypes.data), 1, PROGRESS), carray(pointer(memory.ctypes.data + 8 * LOSS), 1, np.float64),
        _vector(at, n, 0), _vector(at, n, 1), _vector(at, n, 2), _vector(at, n, 3), _vector(at, n, 4),
        carray(pointer(at + 40 * n), (n, n), np.float64), carray(pointer(at + 40 * n + square), (n, n), np.float64),
    )  # fmt: skip


@inline
def _vector(at, n, k):
    return carray(pointer(at + 8 * n * k), n, np.float64)


@task_loop
def drive_fits(fits, scratch, queue, me, most):
    """Run up to ``most`` instructions of fits, row after row, from where the last call came to; whether any is left."""
    programs, at, state = fits.programs, call_of(queue), state_of(scratch.fit, len(scratch.columns))
    stands = state.progress[0]
    if stands.row == NO_ROW:
        _begin_row(stands, queue, me)
    job = job_of(queue, state.p)
    fit = carray(pointer(at.fits), at.n_rows, FIT)
    lower = carray(pointer(at.lower), (at.n_bounds, at.width), np.float64)
    upper = carray(pointer(at.upper), (at.n_bounds, at.width), np.float64)
    limits = carray(pointer(at.limits), at.n_limits, np.float64)
    while stands.row != NO_ROW and most > 0:
        if is_stopped(queue):
            stands.row = NO_ROW
            break
        expr = (stands.row - 1) % len(programs.n_params)
        if fits.verdicts[expr] != objective.INVALID:
            bound = expr if at.n_bounds > 1 else 0
            linear = fits.linear[expr] if at.linear else np.uint64(0)
            terms = FitTerms(
                programs.n_params[expr] + 0,
                lower[bound],
                upper[bound],
                True,
                linear,
                fits.verdicts[expr] + 0,
                at.max_iter,
                limits[expr if at.n_limits > 1 else 0],
                at.patience,
                at.tol,
                at.gtol,
            )
            most = _fit_row(programs, job, scratch, terms, state, fit, most)
            if stands.status == RUNNING:
                break
        _begin_row(stands, queue, me)
    return np.int64(stands.row != NO_ROW)


@inline
def _begin_row(stands, queue, me):
    """Take the next row, if one is left."""
    stands.row, stands.evaluations, stands.tile, stands.status = next_task(queue, me) + 1, 0, 0, RUNNING


@compiled
def _fit_row(programs, job, scratch, terms, state, fit, most):
    """Go on with a row; gives what is left of ``most`` instructions, and of the row what its status says.

    There is one place that evaluates, so that all of it becomes one piece of machine code.
    """
    now = state.progress[0]
    row, last = now.row - 1, programs.n_tiles
    expr = row % len(programs.n_params)
    if now.evaluations == 0 and now.tile == 0:
        state.loss[0] = np.inf
        begin_fit(state, terms, job.params[row], terms.n)
    cost = programs.offsets[expr + 1] - programs.offsets[expr] + terms.n * (terms.n + 3) // 2 + PER_TILE
    while now.status == RUNNING and most > 0:
        if now.tile == 0:
            for j in range(terms.n):
                scratch.params[0, j] = state.trial[j]
            begin(programs, scratch.params, scratch, 0, expr, 0)
            no_equations(programs, scratch, expr)
        end = min(now.tile + most // cost + 1, last)
        is_over = equations(programs, job, scratch, expr, now.tile, end, state.loss[0])
        most -= cost * (end - now.tile)
        now.tile = end
        if is_over or end == last:
            now.tile = 0
            now.status = advance(state, terms, scratch.sums, loss_so_far(scratch))
    if now.status != RUNNING:
        for j in range(terms.n):
            job.params[row, j] = state.p[j]
        fit[row].loss = np.nan if now.status == objective.NOT_FINITE else state.loss[0]
        fit[row].status, fit[row].iterations, fit[row].evaluations = now.status, now.iterations, now.evaluations
    return most
