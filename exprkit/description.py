"""Description length: how many nats an expression and the data, told by it, take to write down.

After a fit: ranks expressions by what they explain against what they cost.

    >>> import exprkit as ek, numpy as np
    >>> x = np.linspace(0, 1, 20)[:, None]
    >>> pop = ek.parse(["p1 + p2 * x1", "p1 + p2 * x1 + p3 * x1^2"])
    >>> noise = 0.01 * np.random.default_rng(0).standard_normal(20)
    >>> int(np.argmin(ek.description_length(ek.fit(pop, x, 1 + x[:, 0] + noise, loss="gaussian")).total))
    0

The sum of three terms (D. J. Bartlett, H. Desmond, P. G. Ferreira, "Exhaustive Symbolic
Regression", arXiv 2211.11461, equation 6):

- the residuals: the negative log-likelihood at its least;
- the parameters: sum over them of log |theta| + log(I) / 2 - log(3) / 2, where I is the parameter's
  element of the diagonal of Fisher's information: its size in steps of its precision sqrt(12 / I),
  and its sign.  A parameter that is less than its precision is set to 0 and costs nothing (the loss
  is taken anew);
- the function: k log n + the sum of the sizes of log |c| of the constants c in it, where k counts its
  nodes and n the different operators, variables and constants among them (a parameter is one kind).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from exprkit import postfix
from exprkit.errors import ArgumentError
from exprkit.fits import FitResult
from exprkit.likelihood import LIKELIHOODS, information, negative_log_likelihood, objective_at, sums_of_squares
from exprkit.population import Population

PER_PARAMETER = -math.log(3) / 2


@dataclass(frozen=True, eq=False)
class DescriptionLength:
    """In nats, float64 (n_exprs,) each; nan where an expression has no likelihood.

    ``total`` is the sum of ``residuals`` (the negative log-likelihood), ``parameters`` and ``function``.
    ``params`` are the fit's, with 0 for those that are less than their precision.
    """

    total: np.ndarray
    residuals: np.ndarray
    parameters: np.ndarray
    function: np.ndarray
    params: np.ndarray


def description_length(result: FitResult) -> DescriptionLength:
    """The description length of every expression of a fit.

    Parameters
    ----------
    result : FitResult
        Of ``ek.fit(..., loss="gaussian")`` or ``"poisson"``.

    Returns
    -------
    DescriptionLength

    Raises
    ------
    ArgumentError
        For a fit of another loss: it has no likelihood.
    """
    if not isinstance(result, FitResult):
        raise ArgumentError(f"description_length takes what ek.fit gives, not {type(result).__name__}")
    if result.kind not in LIKELIHOODS:
        raise ArgumentError(f"a fit of loss={result.kind!r} has no likelihood: use loss='gaussian' or 'poisson'")
    fisher = _fisher(result)
    params, theta = result.params.copy(), np.abs(result.params)
    with np.errstate(all="ignore"):
        small = theta * np.sqrt(fisher / 12) < 1  # also where the data do not determine it
        small |= ~(fisher > 0)
    used = ~np.isnan(params)
    residuals, params = _without(result, params, small & used)
    counted = used & (params != 0)
    with np.errstate(all="ignore"):
        each = np.where(counted, np.log(theta) + np.log(fisher) / 2 + PER_PARAMETER, 0.0)
    parameters = np.where(np.isnan(residuals), np.nan, each.sum(axis=1))
    function = function_length(result.pop)
    return DescriptionLength(residuals + parameters + function, residuals, parameters, function, params)


def function_length(pop: Population) -> np.ndarray:
    """k log n and what the constants take of every expression, float64 (n_exprs,); nan where it could not be read."""
    length = np.full(len(pop), np.nan)
    postfix.function_lengths(pop.kinds, pop.values, pop.values.view(np.float64), pop.offsets, length)
    return length


def _fisher(result: FitResult) -> np.ndarray:
    """The diagonal of Fisher's information at the fit's end, (n_exprs, max_params)."""
    ev = result.evaluator
    A, _ = information(ev, result._X, result.params, result._y, result._weights, result.kind, result._delta)
    diagonal = np.diagonal(A, axis1=1, axis2=2).copy()
    if result.kind == "gaussian" and result._weights is None:  # the variance is the mean square
        with np.errstate(all="ignore"):
            sse = sums_of_squares(ev, result.params, result._y, None)
            diagonal = diagonal / (sse / len(result._y))[:, None]
    return diagonal


def _without(result: FitResult, params: np.ndarray, small: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Likelihoods and parameters with those marked set to 0; as they were where that is not finite."""
    which = np.any(small, axis=1)
    if not np.any(which):
        return result.loss.copy(), params
    shortened = np.where(small, 0.0, params)
    found = objective_at(result.evaluator, result._X, shortened, result._y, result._weights, result.kind)
    residuals = negative_log_likelihood(result.kind, found, result._y, result._weights)
    sound = which & np.isfinite(residuals)
    return np.where(sound, residuals, result.loss), np.where(sound[:, None], shortened, params)
