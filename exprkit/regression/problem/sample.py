"""The sample: the distinct rows of a search's data, in an order of its own.

In: X, y and weights.  Out: arrays that are the same for rows in another order, for a row that is there twice and one
of weight 2, and whether or not rows of weight 0 are there.

    >>> from exprkit.regression.problem.sample import Sample
    >>> sample = Sample([[1.0], [2.0], [1.0], [9.0]], [3.0, 4.0, 3.0, 7.0], [1, 1, 1, 0])
    >>> sample.y.tolist(), sample.w.tolist()
    ([3.0, 4.0], [2.0, 1.0])
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

EXACT, USUALLY = 1e-8, 1e-12  # error as a share of y that counts as rounding: at every row, at half of them
SELDOM = 0.2  # share of the rows
EXACT_SHARE = 1e-13  # of y: errors below it are as good as 0
VARIES = 1e6  # y counts as no larger than so many times what it varies by: a large constant in it hides no rest
MOST_ROWS = 2.0**53  # that weights can count
ULPS = 8
LAST_PLACES = ULPS * np.finfo(np.float64).eps  # share of y that is rounding all the same


class LossRows(NamedTuple):
    """What a loss of the user's own knows of every row, float64 (n_rows,) each."""

    y: np.ndarray
    least: np.ndarray  # the least that the loss can be
    columns: Mapping[str, np.ndarray]


class Sample:
    """Rows with weights.

    Attributes
    ----------
    X : float64 array, (n_rows, n_vars)
    y, w : float64 arrays, (n_rows,)
    coarseness : float
        Share of y that was rounded before it was given: float32 and float16 have fewer digits.
    copies : int array, (n_rows,)
        How many rows were equal, of those of weight above 0.
    given : LossRows or None
        For a loss of the user's own, of which ``y`` is where it is least.

    Parameters
    ----------
    columns : dict of arrays (n_rows,)
        What a loss of the user's own names besides.
    merged : bool
        Whether rows that are equal become one.
    """

    given: LossRows | None = None
    coarseness: float = 0.0

    def __init__(
        self, X: Any, y: Any, weights: Any = None, columns: Mapping[str, Any] | None = None, merged: bool = True
    ) -> None:
        X, y = np.asarray(X, np.float64), np.asarray(y, np.float64)
        w = np.ones(len(y)) if weights is None else np.asarray(weights, np.float64)
        beside = [] if columns is None else [np.asarray(column, np.float64) for column in columns.values()]
        rows, w = np.column_stack([X, y, *beside])[w > 0], w[w > 0]
        self.copies = np.ones(len(w), np.int64)
        order = _rising([*rows.T, *([] if merged else [w])])
        rows, w = rows[order], w[order]
        if merged:
            first = np.flatnonzero(np.append(True, (rows[1:] != rows[:-1]).any(axis=1)))
            rows, w, self.copies = rows[first], np.add.reduceat(w, first), np.diff(np.append(first, len(w)))
        self.w = w
        self.X, (self.y, *beside) = np.ascontiguousarray(rows[:, : X.shape[1]]), rows.T[X.shape[1] :].copy()
        self.total = float(self.w.sum())
        if columns is not None:
            self.given = LossRows(self.y, np.zeros(len(rows)), dict(zip(columns, beside, strict=False)))

    def __len__(self) -> int:
        return len(self.y)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """All that it is made of; ``of_arrays`` makes it of them."""
        given = () if self.given is None else (self.given.y, self.given.least, *self.given.columns.values())
        return self.X, self.y, self.w, *given

    @classmethod
    def of_arrays(cls, arrays: Sequence[np.ndarray], columns: Sequence[str] | None) -> Sample:
        """The same sample; ``columns``: the names of those of a loss of the user's own."""
        sample = cls.__new__(cls)
        sample.X, sample.y, sample.w, *given = arrays
        sample.total, sample.copies = float(sample.w.sum()), np.ones(len(sample.y), np.int64)
        if columns is not None:
            sample.given = LossRows(given[0], given[1], dict(zip(columns, given[2:], strict=True)))
        return sample

    def subsample(self, n: int, seed: int) -> Sample:
        """Some of the rows, drawn; where y or a variable is 0, which it seldom is, only if there are no others."""
        random = np.random.Generator(np.random.Philox([seed, n]))
        order = random.permutation(len(self))
        first = order[: max(4 * n, 1000)]
        numbers = np.column_stack([self.y[first], self.X[first]])
        seldom = (numbers == 0).mean(axis=0) < SELDOM  # a column of 0 and 1, say, has to be there with both
        usual = (numbers[:, seldom] != 0).all(axis=1)
        return self.at(np.concatenate([first[usual], first[~usual]])[:n])

    def at(self, rows: np.ndarray) -> Sample:
        """Some of the rows."""
        part = self._with(X=np.ascontiguousarray(self.X[rows]), y=self.y[rows], w=self.w[rows])
        part.total, part.copies = float(part.w.sum()), self.copies[rows]
        if self.given is not None:
            columns = {name: column[rows] for name, column in self.given.columns.items()}
            part.given = LossRows(self.given.y[rows], self.given.least[rows], columns)
        return part

    def unmerged(self) -> Sample:
        """Rows that were equal as many as they were."""
        if (self.copies == 1).all():
            return self
        every = self.at(np.repeat(np.arange(len(self)), self.copies))
        every = every.with_weights(every.w / every.copies)
        every.copies = np.ones(len(every), np.int64)
        return every

    def with_y(self, y: np.ndarray) -> Sample:
        """The same rows with something else in y's place."""
        return self._with(y=y)

    def with_weights(self, w: np.ndarray) -> Sample:
        """The same rows with other weights."""
        return self._with(w=w, total=float(w.sum()))

    def with_targets(self, y: np.ndarray, least: np.ndarray) -> Sample:
        """The same rows, y where the loss of the user's own is least."""
        assert self.given is not None
        return self._with(y=y, given=self.given._replace(least=least))

    def _with(self, **changed: Any) -> Sample:
        part = copy.copy(self)
        part.__dict__.update(changed)
        return part

    def with_precision_of(self, dtype: np.dtype) -> Sample:
        """The same rows, of a y that was of this type."""
        few = dtype.kind == "f" and dtype.itemsize < 8
        return self._with(coarseness=ULPS * float(np.finfo(dtype).eps)) if few else self

    def is_exact(self, values: np.ndarray) -> np.ndarray:
        """Whether rows of values are y but for rounding, which is larger where terms cancel."""
        with np.errstate(all="ignore"):
            error = np.maximum(np.abs(values - self.y) - self.coarseness * np.abs(self.y), 0.0)
            limit = self.rounding(EXACT) + self.rounding(1e-14).max(initial=0)
            exact = np.asarray((error <= limit).all(axis=-1))
            exact[exact] = np.median(error[exact] - self.rounding(USUALLY), axis=-1) <= 0
        return exact

    def rounding(self, share: float) -> np.ndarray:
        """The errors of y, (n_rows,), that count as rounding where this share of it does."""
        size = np.abs(self.y)
        varies = VARIES * np.ptp(self.y) if len(self) else 0.0
        return np.asarray(np.maximum(share * np.minimum(size, varies), min(share, LAST_PLACES) * size))


def as_counts(weights: np.ndarray | None) -> np.ndarray | None:
    """Weights as numbers of rows: whole ones are; others tell rows apart, and their mean becomes 1.

    What adds up to 1, or is one over a variance, does not say how much is known.

        >>> as_counts(np.array([0.0, 1.0, 3.0])), as_counts(np.array([0.0, 0.25, 0.75]))
        (array([0., 1., 3.]), array([0. , 0.5, 1.5]))
    """
    if weights is None or ((weights == np.rint(weights)).all() and weights.max() < MOST_ROWS):
        return weights
    weights = weights / weights.max()
    return np.asarray(weights / weights[weights > 0].mean())


def _rising(keys: Sequence[np.ndarray]) -> np.ndarray:
    """What sorts rows by the first key, then the next: as ``lexsort`` does, which takes its time for every key."""
    order = np.argsort(keys[0], kind="stable")
    same = np.append(np.diff(keys[0][order]) == 0, False)
    tied = np.flatnonzero(same | np.append(False, same[:-1]))
    some = order[tied]
    order[tied] = some[np.lexsort([key[some] for key in keys[::-1]])]
    return order
