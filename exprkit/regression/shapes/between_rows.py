"""Wild rows: where a formula of noisy data is undefined or far off, although its variables are as they usually are.

In: formulas with numbers, the ``Sample`` that they were fitted to.  Out: by how much their errors are larger there.

    >>> import numpy as np
    >>> from exprkit.expressions.parser import parse
    >>> from exprkit.regression.shapes.between_rows import wild_errors
    >>> from exprkit.regression.problem.sample import Sample
    >>> X = np.random.default_rng(0).uniform(0, 1, (50, 2))
    >>> errors = wild_errors(list(parse(["x1", "sqrt(x1 - 0.02)", "0.001 / (x1 - 0.5)"])), Sample(X, X[:, 0]))
    >>> (errors > 0).tolist()
    [False, True, True]

=======  ==============================================================================================================
beside   rows on lines through two rows of the sample, between them or as far beyond as half their distance, where no
         variable is beyond its least and largest value
beyond   rows in which one variable is less than its least value, or more than its largest, by as much as a hundredth of
         the rows are apart from that; of as many new rows as the sample has about one is so far off at either end
=======  ==============================================================================================================

A pole between two rows, a root of what is negative beside them, or an exponential that is large from the first row on
that is not there changes no error at any row of the sample.
"""

from __future__ import annotations

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.regression.formulas.values import values_of
from exprkit.regression.problem.sample import Sample

ROWS = 1_000  # beside the sample's that are looked at
HALF = 0.5  # share of the distance of two rows
FAR_OFF = 1.0  # of the range of y beside it
BESIDE = 10.0  # times a formula's mean squared error is taken to be that of rows beside at which it is far off,
UNDEFINED = BEYOND = 100.0  # that of those at which it is no number, and that of a row beyond
OUTMOST = 0.01  # share of the rows that says how far beyond


def wild_errors(formulas: list[Expression], sample: Sample, threads: int | None = None) -> np.ndarray:
    """By formula the mean squared error that wild rows add, in multiples of the one at the sample's rows."""
    beside, beyond = _rows_beside(sample.X), _rows_beyond(sample.X)
    values, least, most = (
        values_of(formulas, np.concatenate([beside, beyond]), threads), sample.y.min(), sample.y.max()
    )  # fmt: skip
    room = FAR_OFF * (most - least)
    is_wild = ~((values >= least - room) & (values <= most + room))
    n = len(beside)
    of_beside = np.where(np.isfinite(values[:, :n]), BESIDE * is_wild[:, :n], UNDEFINED)
    added: np.ndarray = of_beside.mean(axis=1) + BEYOND * is_wild[:, n:].sum(axis=1) / len(sample)
    return added


def _rows_beside(X: np.ndarray) -> np.ndarray:
    """Rows on lines through two rows; a variable of whole numbers is as it is in one of them."""
    random = np.random.Generator(np.random.Philox(len(X)))
    a, b = X[random.integers(0, len(X), (2, ROWS))]
    t = random.uniform(-HALF, 1 + HALF, (ROWS, 1))
    rows = np.where(_is_whole(X), np.where(t < 0.5, a, b), a + t * (b - a))
    return np.clip(rows, X.min(axis=0), X.max(axis=0))


def _rows_beyond(X: np.ndarray) -> np.ndarray:
    """Rows of the sample with one variable beyond its range; whole numbers remain so, and signs; counts may be 0."""
    outmost = min(int(OUTMOST * len(X)), len(X) - 1)
    rows = []
    for k, whole in enumerate(_is_whole(X)):
        order = np.argpartition(X[:, k], sorted({0, outmost, len(X) - 1 - outmost, len(X) - 1}))
        for end, inner in ((order[0], order[outmost]), (order[-1], order[-1 - outmost])):
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
