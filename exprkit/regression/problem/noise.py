"""Noise: whether the residuals of a formula are not correlated between neighbouring rows, though y is.

In: ``Rows``, a formula's values.  Out: whether the residuals are noise.

    >>> import numpy as np
    >>> from exprkit.regression.problem.noise import is_noise
    >>> from exprkit.regression.problem.rows import Rows
    >>> random = np.random.default_rng(0)
    >>> X = random.uniform(1, 2, (200, 2))
    >>> rows = Rows(X, X[:, 0] * X[:, 1] ** 2 + 0.01 * random.standard_normal(200))
    >>> a, b = rows.X.T
    >>> is_noise(rows, a * b**2), is_noise(rows, a * (3 * b - 2.2))
    (True, False)

What a law and another formula differ by is smooth, so that rows with nearly the same X differ by nearly the same;
noise does not depend on X.  The measure is Moran's I (P. A. P. Moran, "Notes on continuous stochastic phenomena",
Biometrika 37, 1950), the mean product of neighbours over that of rows with themselves, with its variance without
correlation (A. D. Cliff, J. K. Ord, "Spatial Processes", 1981); of ranks, since a few rows may be far off.
"""

from __future__ import annotations

import numpy as np

from exprkit.regression.problem.rows import Rows

MAX_ROWS = 1_000  # rows; distances of all pairs are computed
MIN_ROWS = 30
N_NEIGHBOURS = 3  # of each row
MAX_NOISE_SCORE = 3.5  # standard deviations; -3.6 to 3.1 of 89 residuals of noise, 4 to 28 of 39 others (laws.md)
MIN_SIGNAL_SCORE = 6.0  # standard deviations of y itself; chosen, not measured


def is_noise(rows: Rows, values: np.ndarray) -> bool:
    """Whether the residuals of neighbouring rows are not correlated, though their y are.

    False where y is not correlated either: X may have so many columns that no rows are near to others.
    """
    residuals = rows.y - values
    if len(residuals) < MIN_ROWS or not rows.X.shape[1] or not np.isfinite(residuals).all():
        return False
    neighbours = nearest_neighbours(rows.X)
    is_uncorrelated = moran_z_score(residuals, neighbours) < MAX_NOISE_SCORE
    return is_uncorrelated and moran_z_score(rows.y, neighbours) > MIN_SIGNAL_SCORE


def nearest_neighbours(X: np.ndarray) -> np.ndarray:
    """Indices of the rows nearest to each row, (n_rows, N_NEIGHBOURS), by Euclidean distance of the columns' ranks.

    Of fewer rows all others.
    """
    points = np.column_stack([ranks(column) for column in X.T])
    squares = (points**2).sum(axis=1)
    distance = squares[:, None] + squares - 2 * points @ points.T
    np.fill_diagonal(distance, np.inf)
    n = min(N_NEIGHBOURS, len(X) - 1)
    neighbours: np.ndarray = np.argpartition(distance, n, axis=1)[:, :n]
    return neighbours


def moran_z_score(values: np.ndarray, neighbours: np.ndarray) -> float:
    """Moran's I of the ranks of values, (n_rows,), in standard deviations from its mean without correlation.

    ``neighbours`` as from ``nearest_neighbours``.  Moments under normality: Cliff and Ord, Spatial Processes, 1981.
    """
    n = len(values)
    rank = ranks(values)
    if not (square := (rank**2).sum()) > 0:
        return 0.0
    moran_i = (rank[:, None] * rank[neighbours]).sum() / square * n / neighbours.size
    weights = np.zeros((n, n))
    np.put_along_axis(weights, neighbours, 1.0, axis=1)
    s0, s1 = float(neighbours.size), ((weights + weights.T) ** 2).sum() / 2
    s2 = ((weights.sum(axis=0) + weights.sum(axis=1)) ** 2).sum()
    variance = (n * n * s1 - n * s2 + 3 * s0**2) / (s0**2 * (n * n - 1)) - 1 / (n - 1) ** 2
    return float((moran_i + 1 / (n - 1)) / np.sqrt(variance))


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks of values scaled from -1/2 to 1/2, ties at their mean, (n,)."""
    _, index, count = np.unique(values, return_inverse=True, return_counts=True)
    middle = (np.cumsum(count) - (count - 1) / 2 - 0.5) / len(values) - 0.5
    return np.asarray(middle[index])
