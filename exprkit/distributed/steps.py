"""Levenberg-Marquardt for many expressions at once, one step of all of them after the other.

In: normal equations of all, from wherever they were added up.  Out: what is evaluated next, and why fits ended.  The
steps are those of every other fit (``backends.levenberg_marquardt``).

    >>> import numpy as np, exprkit as ek
    >>> from exprkit.backends.objective import Options
    >>> from exprkit.distributed.steps import Steps
    >>> x, y = np.arange(4.0), 2 * np.arange(4.0) + 1
    >>> steps = Steps(ek.parse(["p1 * x1 + p2"]), np.ones((1, 2)), Options())
    >>> while len(steps.running):
    ...     J, r = np.column_stack([x, np.ones(4)]), steps.trial[0, 0] * x + steps.trial[0, 1] - y
    ...     steps.take(steps.running, (J.T @ J)[None], (J.T @ r)[None], np.array([r @ r]))
    >>> steps.fitted().params.round(6)
    array([[2., 1.]])
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from exprkit.backends import decisions, objective
from exprkit.backends.cpu.levenberg_marquardt import PROGRESS, FitTerms, State, advance
from exprkit.backends.decisions import FIRST_DAMPING, RUNNING
from exprkit.backends.objective import Fitted, Options
from exprkit.expressions.population import Population
from exprkit.programs.linearity import dependence
from exprkit.runtime.jit import compiled


class Steps:
    """The state of a population's fits.

    Attributes
    ----------
    trial : float64 array, (n_exprs, max_params)
        What is evaluated next.
    """

    def __init__(self, pop: Population, starts: np.ndarray, options: Options) -> None:
        n, width = starts.shape
        self._pop, self._options = pop, options
        linear, differentiable = dependence(pop)
        verdicts = decisions.verdicts(pop, differentiable).astype(np.int64)
        self._known = pop.n_params, linear if options.linear else np.zeros_like(linear), verdicts
        self._bounds = [
            np.full((n, width), end) if side is None else np.ascontiguousarray(side)
            for side, end in ((options.lower, -np.inf), (options.upper, np.inf))
        ]
        self._limits = np.full(n, np.inf) if options.limits is None else np.asarray(options.limits, np.float64)
        p, trial, step, scale, jtr = (np.zeros((n, width)) for _ in range(5))
        jtj, factor = (np.zeros((n, width, width)) for _ in range(2))
        self._state = State(np.zeros(n, PROGRESS), np.full(n, np.inf), p, trial, step, scale, jtr, jtj, factor)
        self._state.progress["damping"] = FIRST_DAMPING
        self.trial = self._state.trial
        self.trial[...] = np.clip(np.where(np.isnan(starts), 0.0, starts), *self._bounds)
        self._status = np.where(pop.valid, RUNNING, objective.INVALID).astype(np.int64)

    @property
    def running(self) -> np.ndarray:
        """The numbers of the expressions whose fit goes on."""
        return np.flatnonzero(self._status == RUNNING)

    def take(self, which: np.ndarray, jtj: np.ndarray, jtr: np.ndarray, loss: np.ndarray) -> None:
        """Normal equations at the trials of some expressions, their r being f - y: one step of each."""
        options = self._options
        ends = int(options.max_iter), int(options.patience), float(options.tol), float(options.gtol)
        _take(which, jtj, jtr, loss, *self._known, *self._bounds, self._limits, ends, self._state, self._status)

    def fitted(self) -> Fitted:
        """The results of all fits."""
        now = self._state.progress
        params = self._state.p.copy()
        params[np.arange(params.shape[1]) >= self._pop.n_params[:, None]] = np.nan
        bad = self._status == objective.INVALID
        params[bad] = np.nan
        lost = bad | (self._status == objective.NOT_FINITE)
        loss = np.where(lost, np.nan, self._state.loss)
        iterations = now["iterations"].astype(np.int32)
        return Fitted(params, loss, iterations, self._status.astype(np.uint8), int(now["evaluations"].sum()))


@compiled
def _take(which, jtj, jtr, loss, n_params, linear, verdicts, lower, upper, limits, ends, all_states, status):
    max_iter, patience, tol, gtol = ends
    width = jtr.shape[1]
    sums = np.empty(width + width * (width + 1) // 2)
    for k in range(len(which)):
        i = which[k]
        n = n_params[i] + 0
        terms = FitTerms(n, lower[i], upper[i], True, linear[i], verdicts[i], max_iter, limits[i], patience, tol, gtol)
        state = State(
            all_states.progress[i : i + 1], all_states.loss[i : i + 1], all_states.p[i], all_states.trial[i],
            all_states.step[i], all_states.scale[i], all_states.jtr[i], all_states.jtj[i], all_states.factor[i],
        )  # fmt: skip
        place = n
        for j in range(n):
            sums[j] = jtr[k, j]
            for m in range(j, n):
                sums[place] = jtj[k, j, m]
                place += 1
        status[i] = advance(state, terms, sums, loss[k])
