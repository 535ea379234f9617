"""Which fitted expressions predict the same: one function written in many ways, as every search finds it.

In: a ``FitResult``.  Out: the first of each that are alike.

Two are alike where their R2 are, and their predictions at some of the data points.  Sorted by R2, an expression is
compared with those before it whose R2 is near enough: points where two predictions differ by at most t standard
deviations of y change R2 by at most 2 t sqrt(1 - R2) + t^2 (Cauchy and Schwarz).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from exprkit.errors import ArgumentError, brief
from exprkit.evaluate.evaluator import Evaluator

TOLERANCE = 1e-4  # of the spread of y; parameters that have converged differ by less
MOST_POINTS = 64  # that are looked at
ROUNDING = 1e-6  # of 1 - R2, and of R2 near 1, in float32
PART = 1 << 15  # expressions that are evaluated at a time


def alike(result: Any, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    """Groups of expressions that predict the same.

    Returns
    -------
    simplest : int64 array, (n_groups,)
        The expression of fewest tokens of each group.
    group : int64 array, (n_exprs,)
        The group of every expression; those without a loss are alone.
    """
    if not (isinstance(tolerance, int | float | np.floating) and 0 < tolerance < 1):
        raise ArgumentError(f"tolerance must be a number between 0 and 1, not {brief(tolerance)}")
    fine = np.flatnonzero(np.isfinite(result.loss) & np.isfinite(result.r2))
    order = fine[np.lexsort((result.pop.n_tokens[fine], -result.r2[fine]))]
    values = _predictions(result, order)
    group = np.arange(len(result))
    group[order] = order[_groups(values, result.r2[order], tolerance)]
    return _simplest(result, group), np.unique(group, return_inverse=True)[1]


def _predictions(result: Any, order: np.ndarray) -> np.ndarray:
    """Of some expressions at some points, (n, n_points), in standard deviations of y."""
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
