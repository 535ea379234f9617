"""The sample: the data of a search, each different row once, in an order of its own.

In: X, y and weights.  Out: arrays that are the same for rows in another order, for a row that is there twice and one
of weight 2, and whether or not rows of weight 0 are there.

    >>> from exprkit.regression.sample import Sample
    >>> sample = Sample([[1.0], [2.0], [1.0], [9.0]], [3.0, 4.0, 3.0, 7.0], [1, 1, 1, 0])
    >>> sample.y.tolist(), sample.w.tolist()
    ([3.0, 4.0], [2.0, 1.0])
"""

from __future__ import annotations

from typing import Any

import numpy as np

EXACT, USUALLY = 1e-8, 1e-12  # error as a share of y that counts as rounding: at every row, at half of them
NOISE_FLOOR = 1e-26  # of the mean square of y: losses below it are as good as 0


class Sample:
    """Rows with weights.

    Attributes
    ----------
    X : float64 array, (n_rows, n_vars)
    y, w : float64 arrays, (n_rows,)
    """

    def __init__(self, X: Any, y: Any, weights: Any = None) -> None:
        X, y = np.asarray(X, np.float64), np.asarray(y, np.float64)
        w = np.ones(len(y)) if weights is None else np.asarray(weights, np.float64)
        rows, place = np.unique(np.column_stack([X, y])[w > 0], axis=0, return_inverse=True)
        self.X, self.y = np.ascontiguousarray(rows[:, :-1]), rows[:, -1].copy()
        self.w = np.bincount(place.ravel(), w[w > 0], len(rows))
        self.total = float(self.w.sum())

    def __len__(self) -> int:
        return len(self.y)

    @property
    def floor(self) -> float:
        """A mean square that is as good as 0."""
        return NOISE_FLOOR * float(self.w @ self.y**2) / self.total

    def few(self, n: int, seed: int) -> Sample:
        """Some of the rows, drawn; those where y or a variable is 0 only where there are no others."""
        random = np.random.Generator(np.random.Philox([seed, n]))
        order = random.permutation(len(self))
        usual = (self.y[order] != 0) & (self.X[order] != 0).all(axis=1)
        chosen = np.concatenate([order[usual], order[~usual]])[:n]
        part = Sample.__new__(Sample)
        part.X, part.y, part.w = np.ascontiguousarray(self.X[chosen]), self.y[chosen], self.w[chosen]
        part.total = float(part.w.sum())
        return part

    def of(self, v: np.ndarray) -> Sample:
        """The same rows with something else in y's place."""
        part = Sample.__new__(Sample)
        part.X, part.y, part.w, part.total = self.X, v, self.w, self.total
        return part

    def loss(self, values: np.ndarray, kind: str) -> np.ndarray:
        """The weighted mean of the loss of rows of values, inf where it is no number; of Huber's, delta is 1."""
        with np.errstate(all="ignore"):
            error = np.abs(values - self.y)
            each = error**2 if kind == "squares" else error
            if kind == "huber":
                each = np.where(error <= 1, error**2 / 2, error - 0.5)
            loss = each @ self.w / self.total
        return np.where(np.isfinite(loss), loss, np.inf)

    def is_exact(self, values: np.ndarray) -> np.ndarray:
        """Whether rows of values are y but for rounding, which is larger where terms cancel."""
        with np.errstate(all="ignore"):
            error = np.abs(values - self.y)
            limit = EXACT * np.abs(self.y) + 1e-14 * np.abs(self.y).max(initial=0)
            usual = np.median(error - USUALLY * np.abs(self.y), axis=-1) <= 0
        return np.asarray((error <= limit).all(axis=-1) & usual)
