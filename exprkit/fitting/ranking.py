"""Ranking criteria of fitted expressions, and the test whether two predict the same.

In: a ``FitResult``.  Out: a number an expression, of which less is better but for R2; the first of each that are alike.

    >>> import exprkit as ek, numpy as np
    >>> x = np.linspace(0, 1, 200)[:, None]
    >>> noise = 0.1 * np.random.default_rng(0).standard_normal(200)
    >>> pop = ek.parse(["p1 + p2 * x1", "p1 + p2 * x1 + p3 * x1^2 + p4 * x1^3"])
    >>> int(np.argmin(ek.fit(pop, x, 1 + x[:, 0] + noise).score("bic")))
    0

H. Akaike, "A new look at the statistical model identification", IEEE Trans. Automatic Control 19, 1974;
G. Schwarz, "Estimating the dimension of a model", Annals of Statistics 6, 1978.  Both count the parameters that
are free, and a variance that is estimated.

Two expressions are alike where their R2 are, and their predictions at some of the data points.  Sorted by R2, one is
compared with those before it whose R2 is near enough: points where two predictions differ by at most t standard
deviations of y change R2 by at most 2 t sqrt(1 - R2) + t^2 (Cauchy and Schwarz).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from exprkit.backends.objective import LIKELIHOODS
from exprkit.errors import ArgumentError, brief, one_of
from exprkit.evaluate.evaluator import Evaluator
from exprkit.fitting.description_length import description_length, parameters_of
from exprkit.fitting.likelihood import variance

OF_DATA = ("aic", "bic", "description_length")  # which need them
BY = ("loss", "r2", *OF_DATA, "nodes")
NATS = 0.01  # a likelihood ratio of one per cent says nothing; what differs by less is as good
DIGITS = 6  # of losses that are told apart
TOLERANCE = 1e-4  # of the spread of y; parameters that have converged differ by less
MOST_POINTS = 64  # that are looked at
ROUNDING = 1e-6  # of 1 - R2, and of R2 near 1, in float32
PART = 1 << 15  # expressions that are evaluated at a time


def score(result: Any, by: str) -> np.ndarray:
    """The numbers of one of ``BY``.

    Raises ArgumentError for another name, and where the fit's loss has no likelihood.
    """
    one_of("by", by, BY)
    if by in OF_DATA and not len(result.goal.y):
        if by not in result.columns:
            raise ArgumentError(f"a fit that does not hold its data has no {by}")
        return np.asarray(result.columns[by])
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


# ── which predict the same ───────────────────────────────────────────────────────────


def alike(result: Any, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    """The expression of fewest tokens of each group that predicts the same, and the group of every expression."""
    if not (isinstance(tolerance, int | float | np.floating) and 0 < tolerance < 1):
        raise ArgumentError(f"tolerance must be a number between 0 and 1, not {brief(tolerance)}")
    fine = np.flatnonzero(np.isfinite(result.loss) & np.isfinite(result.r2))
    order = fine[np.lexsort((result.pop.n_tokens[fine], -result.r2[fine]))]
    values = _predictions(result, order)
    group = np.arange(len(result))
    group[order] = order[_groups(values, result.r2[order], tolerance)]
    return _simplest(result, group), np.unique(group, return_inverse=True)[1]


def _predictions(result: Any, order: np.ndarray) -> np.ndarray:
    """Predictions of expressions at ``MOST_POINTS`` points, (n, n_points), in standard deviations of y."""
    goal = result.goal
    counted = np.arange(len(goal.y)) if goal.w is None else np.flatnonzero(goal.w > 0)
    looked_at = counted[np.linspace(0, len(counted) - 1, min(MOST_POINTS, len(counted))).round().astype(int)]
    spread = float(np.std(goal.y[counted].astype(np.float64))) or 1.0
    values = np.empty((len(order), len(looked_at)))
    for begin in range(0, len(order), PART):
        rows = order[begin : begin + PART]
        ev = Evaluator(result.pop[rows], goal.X[looked_at], "cpu", dtype="float64")
        values[begin : begin + PART] = ev.evaluate(result.params[rows])
    return values / spread


def _groups(values: np.ndarray, r2: np.ndarray, tolerance: float) -> np.ndarray:
    """For every row the first that it is alike to; R2 falls."""
    first = np.arange(len(values))
    reach = tolerance * (2 * np.sqrt(np.maximum(1 - r2, 0)) + tolerance) + ROUNDING * (2 - r2)
    starts = np.searchsorted(-r2, -(r2 + reach))
    heads, n_heads = np.empty(len(values), np.int64), 0
    for i, start in enumerate(starts.tolist()):
        near = heads[np.searchsorted(heads[:n_heads], start) : n_heads]
        same = near[(np.abs(values[near] - values[i]) <= tolerance).all(axis=1)]
        if len(same):
            first[i] = same[0]
        else:
            heads[n_heads], n_heads = i, n_heads + 1
    return first


def _simplest(result: Any, group: np.ndarray) -> np.ndarray:
    """The expression of fewest tokens, and of these the first, of each group."""
    order = np.lexsort((np.arange(len(group)), result.pop.n_tokens, group))
    return order[np.unique(group[order], return_index=True)[1]]
