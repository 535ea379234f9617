"""Noise: whether rows nearby tell nothing of what a formula leaves of y, though they tell of y.

In: a ``Sample``, a formula's values.  Out: whether noise is all that is left.

    >>> import numpy as np
    >>> from exprkit.regression.problem.noise import is_noise
    >>> from exprkit.regression.problem.sample import Sample
    >>> random = np.random.default_rng(0)
    >>> X = random.uniform(1, 2, (200, 2))
    >>> sample = Sample(X, X[:, 0] * X[:, 1] ** 2 + 0.01 * random.standard_normal(200))
    >>> a, b = sample.X.T
    >>> is_noise(sample, a * b**2), is_noise(sample, a * (3 * b - 2.2))
    (True, False)

What a law and another formula differ by is smooth, so that rows with nearly the same X differ by nearly the same;
noise does not know of X.  The measure is that of P. A. P. Moran ("Notes on continuous stochastic phenomena",
Biometrika 37, 1950), the mean product of neighbours over that of rows with themselves, whose variance where nothing is
to be told A. D. Cliff and J. K. Ord give ("Spatial Processes", 1981); of ranks, since few rows may be far off.
"""

from __future__ import annotations

import numpy as np

from exprkit.regression.problem.sample import Sample

ROWS = 1_000  # more tell no more
FEWEST_ROWS = 30
NEIGHBOURS = 3
NOTHING, MUCH = 3.5, 6.0  # standard deviations up to which rows nearby tell nothing, and from which they tell of y


def is_noise(sample: Sample, values: np.ndarray) -> bool:
    """Whether rows nearby say nothing of y beside the values, but would say it if there were anything.

    Where X has so many columns that no rows are near to others, they say nothing of y either: that is no answer.

    Parameters
    ----------
    values : array, float64 (rows,)
        Of a formula.
    """
    rest = sample.y - values
    if len(rest) < FEWEST_ROWS or not sample.X.shape[1] or not np.isfinite(rest).all():
        return False
    near = nearest_neighbours(sample.X)
    return moran_z_score(rest, near) < NOTHING and moran_z_score(sample.y, near) > MUCH


def nearest_neighbours(X: np.ndarray) -> np.ndarray:
    """Of every row the nearest others, with the columns as ranks, (rows, NEIGHBOURS)."""
    places = np.column_stack([ranks(column) for column in X.T])
    squares = (places**2).sum(axis=1)
    distance = squares[:, None] + squares - 2 * places @ places.T
    np.fill_diagonal(distance, np.inf)
    found: np.ndarray = np.argpartition(distance, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
    return found


def moran_z_score(of: np.ndarray, near: np.ndarray) -> float:
    """By how many standard deviations rows are more like those near to them than by accident."""
    n = len(of)
    place = ranks(of)
    if not (square := (place**2).sum()) > 0:
        return 0.0
    alike = (place[:, None] * place[near]).sum() / square * n / near.size
    weights = np.zeros((n, n))
    np.put_along_axis(weights, near, 1.0, axis=1)
    s0, s1 = float(near.size), ((weights + weights.T) ** 2).sum() / 2
    s2 = ((weights.sum(axis=0) + weights.sum(axis=1)) ** 2).sum()
    variance = (n * n * s1 - n * s2 + 3 * s0**2) / (s0**2 * (n * n - 1)) - 1 / (n - 1) ** 2
    return float((alike + 1 / (n - 1)) / np.sqrt(variance))


def ranks(values: np.ndarray) -> np.ndarray:
    """From -1/2 to 1/2, equal ones at their mean."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    middle = (np.cumsum(count) - (count - 1) / 2 - 0.5) / len(values) - 0.5
    return np.asarray(middle[place])
