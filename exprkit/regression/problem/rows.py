"""Rows: the distinct rows of a search's data, sorted, with weights.

In: X, y and weights.  Out: arrays that depend neither on the order of the rows, nor on whether a row is repeated or has
a larger weight, nor on rows of weight 0.

    >>> from exprkit.regression.problem.rows import Rows
    >>> rows = Rows([[1.0], [2.0], [1.0], [9.0]], [3.0, 4.0, 3.0, 7.0], [1, 1, 1, 0])
    >>> rows.y.tolist(), rows.w.tolist()
    ([3.0, 4.0], [2.0, 1.0])
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

# Errors that count as rounding; all were chosen, not measured.
MAX_ERROR = 1e-8  # share of y, at every row
MEDIAN_ERROR = 1e-12  # share of y, at half of the rows
FLOOR_ERROR = 1e-13  # share of y: a loss of such errors is as good as 0
MAX_OFFSET = 1e6  # times the range of y that |y| counts as at most: a large constant in y hides no residuals
ULPS = 8  # units in the last place
LAST_PLACES = ULPS * np.finfo(np.float64).eps  # share of y that is rounding whatever its range
RARE_ZEROS = 0.2  # share of the rows below which the zeros of a column are left out of subsamples
MAX_DIGITS = 12  # of rounded values: more agree with an exact formula to MEDIAN_ERROR; chosen, not measured
RARE_DIGITS = 0.05  # probability of as many zeros at the end of any value below which they were not digits of it
MAX_COUNT = 2.0**53  # rows that a weight can count: the largest exact whole number


class LossRows(NamedTuple):
    """The inputs of a user's loss text, float64 (n_rows,) each."""

    y: np.ndarray
    least: np.ndarray  # minimum of the loss at each row
    columns: Mapping[str, np.ndarray]


class Rows:
    """Rows of data with weights ``w``, whose sum is ``total``; equal rows become one if they are ``merged``.

    ``columns``: further inputs of a user's loss text, by name.  ``copies`` counts the equal rows that became each one.
    """

    loss_rows: LossRows | None = None  # inputs of a user's loss text; ``y`` is the minimiser of the loss at each row
    coarseness: float = 0.0  # relative rounding error of y in its original type, as float32

    def __init__(
        self, X: Any, y: Any, weights: Any = None, columns: Mapping[str, Any] | None = None, merged: bool = True
    ) -> None:
        X, y = np.asarray(X, np.float64), np.asarray(y, np.float64)
        w = np.ones(len(y)) if weights is None else np.asarray(weights, np.float64)
        extra = [] if columns is None else [np.asarray(column, np.float64) for column in columns.values()]
        table, w = np.column_stack([X, y, *extra])[w > 0], w[w > 0]
        self.copies = np.ones(len(w), np.int64)
        order = _sorting_order([*table.T, *([] if merged else [w])])
        table, w = table[order], w[order]
        if merged:
            first = np.flatnonzero(np.append(True, (table[1:] != table[:-1]).any(axis=1)))
            table, w, self.copies = table[first], np.add.reduceat(w, first), np.diff(np.append(first, len(w)))
        self.w = w
        self.X, (self.y, *extra) = np.ascontiguousarray(table[:, : X.shape[1]]), table.T[X.shape[1] :].copy()
        self.total = float(self.w.sum())
        if columns is not None:
            self.loss_rows = LossRows(self.y, np.zeros(len(table)), dict(zip(columns, extra, strict=False)))

    def __len__(self) -> int:
        return len(self.y)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays from which ``of_arrays`` makes the rows again."""
        if self.loss_rows is None:
            return self.X, self.y, self.w
        return self.X, self.y, self.w, self.loss_rows.y, self.loss_rows.least, *self.loss_rows.columns.values()

    @classmethod
    def of_arrays(cls, *parts: Any) -> Rows:
        """Rows of their ``arrays``, the names of the columns of a loss text (or None), and their ``coarseness``."""
        rows = cls.__new__(cls)
        rows.X, rows.y, rows.w, *loss_rows, columns, rows.coarseness = parts
        rows.total, rows.copies = float(rows.w.sum()), np.ones(len(rows.y), np.int64)
        if columns is not None:
            rows.loss_rows = LossRows(loss_rows[0], loss_rows[1], dict(zip(columns, loss_rows[2:], strict=True)))
        return rows

    def subsample(self, n: int, seed: int) -> Rows:
        """A random subsample of n rows.

        Rows in which y or a variable is 0 are taken last, if it is 0 in few rows: they say little of a formula.
        """
        random = np.random.Generator(np.random.Philox([seed, n]))
        order = random.permutation(len(self))
        candidates = order[: max(4 * n, 1000)]
        values = np.column_stack([self.y[candidates], self.X[candidates]])
        has_rare_zeros = (values == 0).mean(axis=0) < RARE_ZEROS  # a column of 0 and 1, say, is needed with both
        is_nonzero = (values[:, has_rare_zeros] != 0).all(axis=1)
        return self.at(np.concatenate([candidates[is_nonzero], candidates[~is_nonzero]])[:n])

    def at_most(self, n: int, seed: int) -> Rows:
        """The rows, or a random subsample of n where there are more."""
        return self if len(self) <= n else self.subsample(n, seed)

    def at(self, indices: np.ndarray) -> Rows:
        """The rows with these indices."""
        part = self._with(X=np.ascontiguousarray(self.X[indices]), y=self.y[indices], w=self.w[indices])
        part.total, part.copies = float(part.w.sum()), self.copies[indices]
        if self.loss_rows is not None:
            columns = {name: column[indices] for name, column in self.loss_rows.columns.items()}
            part.loss_rows = LossRows(self.loss_rows.y[indices], self.loss_rows.least[indices], columns)
        return part

    def unmerged(self) -> Rows:
        """The rows, each repeated as often as it was in the data, weights divided accordingly."""
        if (self.copies == 1).all():
            return self
        repeated = self.at(np.repeat(np.arange(len(self)), self.copies))
        repeated = repeated.with_weights(repeated.w / repeated.copies)
        repeated.copies = np.ones(len(repeated), np.int64)
        return repeated

    def with_X(self, X: np.ndarray) -> Rows:
        """The same rows with other columns."""
        return self._with(X=np.ascontiguousarray(X))

    def with_y(self, y: np.ndarray) -> Rows:
        """The rows with another y, (n_rows,)."""
        return self._with(y=y)

    def with_weights(self, w: np.ndarray) -> Rows:
        """The rows with other weights, (n_rows,)."""
        return self._with(w=w, total=float(w.sum()))

    def with_targets(self, y: np.ndarray, least: np.ndarray) -> Rows:
        """The rows with y as the minimiser of a user's loss, and ``least`` as its minimum, (n_rows,) each."""
        assert self.loss_rows is not None
        return self._with(y=y, loss_rows=self.loss_rows._replace(least=least))

    def _with(self, **attributes: Any) -> Rows:
        rows = copy.copy(self)
        rows.__dict__.update(attributes)
        return rows

    def with_precision_of(self, dtype: np.dtype) -> Rows:
        """The rows, whose y was rounded to this type before."""
        is_short = dtype.kind == "f" and dtype.itemsize < 8
        return self._with(coarseness=ULPS * float(np.finfo(dtype).eps)) if is_short else self

    def is_exact(self, values: np.ndarray) -> np.ndarray:
        """Whether values, (n_exprs, n_rows) or (n_rows,), equal y up to rounding, also where terms cancel."""
        with np.errstate(all="ignore"):
            error = np.maximum(np.abs(values - self.y) - self.coarseness * np.abs(self.y), 0.0)
            limit = self.rounding(MAX_ERROR) + self.rounding(1e-14).max(initial=0)
            exact = np.asarray((error <= limit).all(axis=-1))
            exact[exact] = np.median(error[exact] - self.rounding(MEDIAN_ERROR), axis=-1) <= 0
        return exact

    @property
    def resolution(self) -> np.ndarray | None:
        """The last decimal place of every y, (n_rows,); None where y was not rounded, or to whole numbers.

        Zeros at the end of a value count where others have as many digits, or decimals, unless they are too many to be
        there by chance.

            >>> Rows([[1.0], [2.0], [3.0], [4.0]], [1.37, 24.0, 0.125, 9e4]).resolution.tolist()
            [0.01, 0.1, 0.001, 10000.0]
        """
        if not len(self) or not np.isfinite(self.y).all():
            return None
        numbers = [Decimal(repr(value)).normalize().as_tuple() for value in self.y.tolist()]
        digits, last = np.array([(len(number.digits), int(number.exponent)) for number in numbers]).T
        if last.min() >= 0 or digits.max() > MAX_DIGITS:
            return None
        full = np.where(self.y == 0, last.min(), np.maximum(last + digits - digits.max(), last.min()))
        is_full = (self.y == 0) | (len(self) * 10.0 ** (full - last) >= RARE_DIGITS)
        return np.asarray(10.0 ** np.where(is_full, np.minimum(full, last), last))

    def rounding(self, share: float) -> np.ndarray:
        """The largest error of every row, (n_rows,), that counts as rounding, for a relative error of ``share``."""
        size = np.abs(self.y)
        limit = MAX_OFFSET * np.ptp(self.y) if len(self) else 0.0
        return np.asarray(np.maximum(share * np.minimum(size, limit), min(share, LAST_PLACES) * size))


def as_counts(weights: np.ndarray | None) -> np.ndarray | None:
    """Weights as numbers of rows: whole weights as they are, others scaled to a mean of 1.

    Weights that add up to 1, or are inverse variances, do not say how many observations there are.

        >>> as_counts(np.array([0.0, 1.0, 3.0])), as_counts(np.array([0.0, 0.25, 0.75]))
        (array([0., 1., 3.]), array([0. , 0.5, 1.5]))
    """
    if weights is None or ((weights == np.rint(weights)).all() and weights.max() < MAX_COUNT):
        return weights
    weights = weights / weights.max()
    return np.asarray(weights / weights[weights > 0].mean())


def _sorting_order(keys: Sequence[np.ndarray]) -> np.ndarray:
    """The indices that sort rows by the first key, ties by the next ones: ``lexsort``, which is slow for many keys."""
    order = np.argsort(keys[0], kind="stable")
    equals_next = np.append(np.diff(keys[0][order]) == 0, False)
    places = np.flatnonzero(equals_next | np.append(False, equals_next[:-1]))
    ties = order[places]
    order[places] = ties[np.lexsort([key[ties] for key in keys[::-1]])]
    return order
