"""Errors between rows: formulas that are undefined or far off where the variables have usual values.

In: formulas, the ``Rows`` that they were fitted to.  Out: their errors there, in multiples of those at the rows.

    >>> import numpy as np
    >>> from exprkit.expressions.parser import parse
    >>> from exprkit.regression.shapes.between_rows import errors_between_rows
    >>> from exprkit.regression.problem.rows import Rows
    >>> X = np.random.default_rng(0).uniform(0, 1, (50, 2))
    >>> formulas = list(parse(["x1", "sqrt(x1 - 0.02)", "0.001 / (x1 - 0.5)"]))
    >>> errors = errors_between_rows(formulas, Rows(X, X[:, 0]))
    >>> (errors > 0).tolist()
    [False, True, True]

=======  ==============================================================================================================
between  rows on lines through two rows of the data, between them or as far beyond as half their distance, where no
         variable is beyond its least and largest value
beyond   rows in which one variable is less than its least value, or more than its largest, by as much as a hundredth of
         the rows are apart from that; of as many new rows as the data have about one is so far off at either end
=======  ==============================================================================================================

A pole between two rows, a root that is undefined between them, or an exponential that grows right behind the last row
changes no error at any row of the data.
"""

from __future__ import annotations

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.regression.formulas.values import values_of
from exprkit.regression.problem.rows import Rows

ROWS = 1_000  # random rows between those of the data (chosen, not measured)
EXTENSION = 0.5  # of a line beyond two rows, as a share of their distance (chosen, not measured)
FAR_OFF = 1.0  # distance from the range of y, as a share of it (chosen, not measured)
# squared errors where a formula is far off, in multiples of its mean squared error (chosen, not measured)
ERROR_BETWEEN = 10.0  # at a row between
UNDEFINED = 100.0  # at a row between where it is no number
BEYOND = 100.0  # at a row beyond
EDGE = 0.01  # share of the rows at an end of a variable's range, which says how far beyond new rows lie (chosen)


def errors_between_rows(formulas: list[Expression], rows: Rows) -> np.ndarray:
    """The mean squared error that rows between and beyond add, in multiples of that at the rows, (n,)."""
    between, beyond = _rows_between(rows.X), _rows_beyond(rows.X)
    values, low, high = (values_of(formulas, np.concatenate([between, beyond])), rows.y.min(), rows.y.max())
    room = FAR_OFF * (high - low)
    is_far_off = ~((values >= low - room) & (values <= high + room))
    n = len(between)
    errors = np.where(np.isfinite(values[:, :n]), ERROR_BETWEEN * is_far_off[:, :n], UNDEFINED)
    added: np.ndarray = errors.mean(axis=1) + BEYOND * is_far_off[:, n:].sum(axis=1) / len(rows)
    return added


def _rows_between(X: np.ndarray) -> np.ndarray:
    """Random rows on lines through two rows of X; a variable of whole numbers is copied from the nearer one."""
    random = np.random.Generator(np.random.Philox(len(X)))
    a, b = X[random.integers(0, len(X), (2, ROWS))]
    t = random.uniform(-EXTENSION, 1 + EXTENSION, (ROWS, 1))
    rows = np.where(_is_whole(X), np.where(t < 0.5, a, b), a + t * (b - a))
    return np.clip(rows, X.min(axis=0), X.max(axis=0))


def _rows_beyond(X: np.ndarray) -> np.ndarray:
    """Rows of the rows with one variable beyond its range; whole numbers remain so, and signs; counts may be 0."""
    n_edge = min(int(EDGE * len(X)), len(X) - 1)
    rows = []
    for k, whole in enumerate(_is_whole(X)):
        order = np.argpartition(X[:, k], sorted({0, n_edge, len(X) - 1 - n_edge, len(X) - 1}))
        for end, inner in ((order[0], order[n_edge]), (order[-1], order[-1 - n_edge])):
            edge = X[end, k]
            with np.errstate(over="ignore"):
                new = edge + (edge - X[inner, k])
            if np.sign(new) != np.sign(edge):
                new = 0.0 if whole else edge / 2
            if new != edge and np.isfinite(new):
                row = X[end].copy()
                row[k] = new
                rows.append(row)
    return np.array(rows).reshape(-1, X.shape[1])


def _is_whole(X: np.ndarray) -> np.ndarray:
    whole: np.ndarray = (np.round(X) == X).all(axis=0)
    return whole
