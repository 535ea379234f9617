"""Description length: the nats needed to write down an expression, its parameters and the data given both.

In: a ``FitResult``.  Out: nats by expression.  Ranks expressions by what they explain against what they cost.

The sum of three terms (D. J. Bartlett, H. Desmond, P. G. Ferreira, "Exhaustive Symbolic
Regression", arXiv 2211.11461, equation 6):

- the residuals: the negative log-likelihood at its least;
- the parameters: sum over them of log |theta| + log(I) / 2 - log(3) / 2, where I is the observed
  information, the second derivative of the negative log-likelihood by the parameter: its size in steps
  of its precision sqrt(12 / I), and its sign;
- the function: k log n + the sum of the sizes of log |c| of the constants c in it, where k counts its
  nodes and n the different operators, variables and constants among them (a parameter is one kind).

A parameter of less than a step is set to 0 and costs nothing; the likelihood is taken anew.  So a
parameter that is written down costs log 2 or more.  Where 0 is outside a parameter's bounds or leaves no finite
likelihood (it stands in a denominator, say), an expression can not be written down: its length is inf.  Of an
expression with several such parameters

1. all are set to 0 together;
2. where that can not be, one after the other, always the one of the fewest steps that can be 0, and what
   the others' steps are is computed anew each time; the length is inf if one of less than a step is left.

It is inf as well where there is no likelihood, and where a fit did not end at a maximum of it: where an
information is not finite, or negative and not as good as 0 (its size makes no step).  A parameter at a
bound (``FitResult.at_bound``) is no free number but a constant that was given, and costs what a constant
does, the size of log |theta|.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.objective import LIKELIHOODS
from exprkit.errors import ArgumentError, brought_by, checks_keywords
from exprkit.expressions import checks
from exprkit.expressions.population import Population
from exprkit.fitting.likelihood import FitGoal, Likelihood, points_of
from exprkit.runtime.progress import Progress, parts
from exprkit.text.tokens import PARAMETER

NATS = "total", "residuals", "parameters", "function"


@dataclass(frozen=True, eq=False)
class DescriptionLength:
    """In nats, float64 (n_exprs,) each.

    ``total`` is the sum of ``residuals`` (the negative log-likelihood; nan where there is none), ``parameters``
    (never negative) and ``function``; inf, never nan, where an expression or its parameters can not be code.
    ``params`` are the fit's, with 0 for those of less than a step of their precision.
    """

    total: np.ndarray
    residuals: np.ndarray
    parameters: np.ndarray
    function: np.ndarray
    params: np.ndarray

    @classmethod
    def of(cls, result: Any) -> DescriptionLength:
        """The lengths of a fit's ``result``; also of a "sum" of negative log-likelihoods of a point."""
        likelihood = Likelihood(result.goal, points_of(result.pop, result.goal), result.evaluator.threads)
        code = _as_fitted(result, likelihood)
        _set_to_0(code, likelihood)
        with np.errstate(all="ignore"):
            free = np.where(code.free, np.where(code.steps >= 1, np.log(2 * code.steps), np.inf), 0.0)
            bound = np.where(result.at_bound & (code.params != 0), np.abs(np.log(np.abs(code.params))), 0.0)
        parameters = np.where(np.isnan(code.residuals), np.nan, (free + bound).sum(axis=1))
        function = cls.of_functions(result.pop)
        total = code.residuals + parameters + function
        total[np.isnan(total)] = np.inf
        return cls(total, code.residuals, parameters, function, code.params)

    @staticmethod
    def of_functions(pop: Population) -> np.ndarray:
        """k log n and the constants' length of each of ``pop``, float64 (n_exprs,); nan for an unreadable one."""
        length = np.full(len(pop), np.nan)
        checks.function_lengths(pop.kinds, pop.values, pop.values.view(np.float64), pop.offsets, length)
        return length

    def to_pandas(self) -> Any:
        """A DataFrame of the lengths, a row for each expression in the fit's order."""
        with brought_by("notebooks"):
            import pandas as pd
        return pd.DataFrame({name: getattr(self, name) for name in NATS})


@checks_keywords
def description_length(result: Any, progress: Progress = False) -> DescriptionLength:
    """The description length of every expression of a fit.

    Parameters
    ----------
    result : FitResult
        Of ``ek.fit(..., loss="gaussian")`` or ``"poisson"``.
    progress : bool or callable
        Show a bar; or a function that is called with (done, total).

    Returns
    -------
    DescriptionLength

    Raises
    ------
    ArgumentError
        For a fit of another loss: it has no likelihood.

    Examples
    --------
    >>> import exprkit as ek, numpy as np
    >>> x = np.linspace(0, 1, 20)[:, None]
    >>> pop = ek.parse(["p1 + p2 * x1", "p1 + p2 * x1 + p3 * x1^2"])
    >>> noise = 0.01 * np.random.default_rng(0).standard_normal(20)
    >>> int(np.argmin(ek.description_length(ek.fit(pop, x, 1 + x[:, 0] + noise, loss="gaussian")).total))
    0
    """
    if not isinstance(getattr(result, "goal", None), FitGoal):
        raise ArgumentError(f"description_length takes what ek.fit gives, not {type(result).__name__}")
    if result.kind not in LIKELIHOODS:
        raise ArgumentError(f"a fit of loss={result.kind!r} has no likelihood: use loss='gaussian' or 'poisson'")
    if progress is not False:
        return _joined(
            [DescriptionLength.of(result[part]) for part in parts(len(result), progress, "describing")], result.pop
        )
    return DescriptionLength.of(result)


def _joined(pieces: list[DescriptionLength], pop: Population) -> DescriptionLength:
    """The lengths of parts of a population as one."""
    params = [
        np.pad(piece.params, ((0, 0), (0, pop.max_params - piece.params.shape[1])), constant_values=np.nan)
        for piece in pieces
    ]
    nats = {name: np.concatenate([getattr(piece, name) for piece in pieces]) for name in NATS}
    return DescriptionLength(**nats, params=np.concatenate(params))


def front(cost: np.ndarray, loss: np.ndarray, tolerance: np.ndarray) -> np.ndarray:
    """The Pareto front, as indices: what nothing of the same cost or less beats in its loss, the cheapest first.

    What costs more has to lower the loss by more than its ``tolerance``, or both count as one, and the cheaper stays;
    of equally cheap ones the first.  What has no finite loss is left out.
    """
    cost = np.round(cost, 9)
    order = np.lexsort((loss, cost))
    order = order[np.isfinite(loss[order])]
    order = order[loss[order] < np.minimum.accumulate(np.append(np.inf, loss[order]))[:-1]]
    best: list[int] = []
    for i in order.tolist():
        if not best or loss[i] < loss[best[-1]] - tolerance[i]:
            best.append(int(np.argmax((cost == cost[i]) & (loss <= loss[i] + tolerance[i]))))
    return np.array(best, np.int64)


# ── parameters, as they are written down ─────────────────────────────────────────────


class _Encoding(NamedTuple):
    """The encoding of every expression; arrays (n_exprs, max_params) but the first two."""

    pop: Population
    residuals: np.ndarray  # (n_exprs,)
    params: np.ndarray
    free: np.ndarray  # in the expression, not at a bound and not set to 0
    steps: np.ndarray  # its size by its precision; nan where there is no maximum of the likelihood
    may_be_0: np.ndarray  # 0 is within its bounds


def _as_fitted(result: Any, likelihood: Likelihood) -> _Encoding:
    pop, params = result.pop, result.params
    free = parameters_of(pop) & ~result.at_bound & np.isfinite(result.loss)[:, None]
    low, high = (np.zeros(1) if side is None else side for side in (result.goal.lower, result.goal.upper))
    rows = np.flatnonzero(free.any(axis=1))
    steps = np.zeros(params.shape)
    steps[rows] = _steps(params[rows], likelihood.information(pop[rows], params[rows]))
    return _Encoding(pop, result.loss.copy(), params.copy(), free, steps, (low <= 0) & (high >= 0) & free)


def parameters_of(pop: Population) -> np.ndarray:
    """A mask of the parameters in each expression, bool (n_exprs, max_params)."""
    present = np.zeros((len(pop), pop.max_params), bool)
    tokens = pop.kinds == PARAMETER
    present[np.repeat(np.arange(len(pop)), pop.n_tokens)[tokens], pop.values[tokens]] = True
    return present


def _steps(params: np.ndarray, information: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        steps = np.abs(params) * np.sqrt(np.abs(information) / 12)
        return np.where((information > 0) | (steps < 1), steps, np.nan)


def _set_to_0(code: _Encoding, likelihood: Likelihood) -> None:
    """All parameters of less than a step, where that can be."""
    small = code.free & (code.steps < 1)
    rows = np.flatnonzero(small.any(axis=1))
    if not len(rows):
        return
    trial = np.where(small[rows], 0.0, code.params[rows])
    residuals = likelihood.at(code.pop[rows], trial)
    fine = np.isfinite(residuals) & (code.may_be_0 | ~small)[rows].all(axis=1)
    done = rows[fine]
    code.params[done], code.residuals[done] = trial[fine], residuals[fine]
    code.free[done] &= ~small[done]
    _one_by_one(code, likelihood, rows[~fine])


def _one_by_one(code: _Encoding, likelihood: Likelihood, rows: np.ndarray) -> None:
    """The smallest parameter of each of these expressions, until none is of less than a step or can be 0."""
    tried = np.zeros(code.params.shape, bool)
    while True:
        left = code.free & (code.steps < 1) & code.may_be_0 & ~tried
        rows = rows[left[rows].any(axis=1)]
        if not len(rows):
            return
        j = np.argmin(np.where(left[rows], code.steps[rows], np.inf), axis=1)
        trial = code.params[rows]
        trial[np.arange(len(rows)), j] = 0.0
        residuals = likelihood.at(code.pop[rows], trial)
        fine = np.isfinite(residuals)
        tried[rows[~fine], j[~fine]] = True
        done = rows[fine]
        if len(done):
            code.params[done], code.residuals[done] = trial[fine], residuals[fine]
            code.free[done, j[fine]], tried[done] = False, False
            code.steps[done] = _steps(trial[fine], likelihood.information(code.pop[done], trial[fine]))
