"""What fitted expressions are ranked by: losses and information criteria, a number an expression.

In: a ``FitResult``.  Out: float64 (n_exprs,); less is better, but for R2.

    >>> import exprkit as ek, numpy as np
    >>> x = np.linspace(0, 1, 200)[:, None]
    >>> noise = 0.1 * np.random.default_rng(0).standard_normal(200)
    >>> pop = ek.parse(["p1 + p2 * x1", "p1 + p2 * x1 + p3 * x1^2 + p4 * x1^3"])
    >>> int(np.argmin(ek.fit(pop, x, 1 + x[:, 0] + noise).score("bic")))
    0

H. Akaike, "A new look at the statistical model identification", IEEE Trans. Automatic Control 19, 1974;
G. Schwarz, "Estimating the dimension of a model", Annals of Statistics 6, 1978.  Both count the parameters that
are free, and a variance that is estimated.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from exprkit.errors import ArgumentError, did_you_mean
from exprkit.fitting.description_length import description_length, parameters_of
from exprkit.fitting.likelihood import LIKELIHOODS, variance

BY = ("loss", "r2", "aic", "bic", "description_length", "nodes")
NATS = 0.01  # a likelihood ratio of one per cent says nothing; what differs by less is as good
DIGITS = 6  # of losses that are told apart


def score(result: Any, by: str) -> np.ndarray:
    """The numbers of one of ``BY``.

    Raises
    ------
    ArgumentError
        For another name, and where the fit's loss has no likelihood.
    """
    if by not in BY:
        known = ", ".join(map(repr, BY))
        raise ArgumentError(f"by must be one of {known}, not {by!r}{did_you_mean(str(by), BY)}")
    if by in ("aic", "bic"):
        return _information(result, by)
    if by == "description_length":
        return description_length(result).total
    return np.asarray({"loss": result.loss, "r2": result.r2, "nodes": result.pop.n_tokens}[by], np.float64)


def sortable(numbers: np.ndarray, by: str) -> np.ndarray:
    """Numbers that rise from good to bad, equal where the difference says nothing; inf for nan."""
    if by in ("loss", "r2"):
        numbers = _to_digits(numbers if by == "loss" else 1 - numbers)
    elif by != "nodes":
        numbers = np.round(numbers / NATS)
    return np.where(np.isnan(numbers), np.inf, numbers)


def _to_digits(numbers: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        unit = 10.0 ** (np.floor(np.log10(np.abs(numbers))) - DIGITS + 1)
        return np.where(np.isfinite(unit) & (unit > 0), np.round(numbers / unit) * unit, numbers)


def _information(result: Any, by: str) -> np.ndarray:
    """Akaike's or Schwarz's criterion."""
    goal = result.goal
    w = np.ones(len(goal.y)) if goal.w is None else np.asarray(goal.w, np.float64)
    n = int(np.sum(w > 0))
    free = (parameters_of(result.pop) & ~result.at_bound).sum(axis=1)
    if goal.loss == "squares":
        v = variance(result.loss, goal.y[w > 0])
        nll = n / 2 * (np.log(2 * np.pi * v) + 1) - np.sum(np.log(w[w > 0])) / 2
    elif goal.loss in LIKELIHOODS:
        nll = result.loss
    else:
        raise ArgumentError(f"a fit of loss={goal.loss!r} has no likelihood: use 'squares', 'gaussian' or 'poisson'")
    estimated = goal.loss == "squares" or (goal.loss == "gaussian" and goal.w is None)
    return 2 * nll + (2 if by == "aic" else np.log(n)) * (free + estimated)
