"""Wild rows: where a formula of noisy data is undefined or far off, although its variables are as they usually are.

In: formulas with numbers, the ``Sample`` that they were fitted to.  Out: the share of rows of no sample.

    >>> import numpy as np
    >>> from exprkit.expressions.parser import parse
    >>> from exprkit.regression.nonlinear.wild import wild_shares
    >>> from exprkit.regression.sample import Sample
    >>> X = np.random.default_rng(0).uniform(0, 1, (50, 2))
    >>> shares = wild_shares(list(parse(["x1", "sqrt(x1 - 0.02)", "0.001 / (x1 - 0.5)"])), Sample(X, X[:, 0]))
    >>> (shares > 0).tolist()
    [False, True, True]

The rows are on lines through two rows of the sample, between them or as far beyond as half their distance, and no
variable is beyond its least and largest value.  A pole between two rows, or a root of what is negative beside them,
changes no error at any row of the sample.
"""

from __future__ import annotations

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.regression.confirm import values_of
from exprkit.regression.sample import Sample

ROWS = 1_000  # that are looked at
BEYOND = 0.5  # share of the distance of two rows
FAR_OFF = 1.0  # of the range of y beside it
WILD = 10.0  # how much larger the error is taken to be where a formula is wild than at the sample's rows


def wild_shares(formulas: list[Expression], sample: Sample, threads: int | None = None) -> np.ndarray:
    """By formula the share of the rows at which it is no number, or by more than its range outside of y's range."""
    values, least, most = values_of(formulas, _rows_beside(sample.X), threads), sample.y.min(), sample.y.max()
    room = FAR_OFF * (most - least)
    return 1 - ((values >= least - room) & (values <= most + room)).mean(axis=1)


def _rows_beside(X: np.ndarray) -> np.ndarray:
    """Rows on lines through two rows; a variable of whole numbers is as it is in one of them."""
    random = np.random.Generator(np.random.Philox(len(X)))
    a, b = X[random.integers(0, len(X), (2, ROWS))]
    t = random.uniform(-BEYOND, 1 + BEYOND, (ROWS, 1))
    whole = (np.round(X) == X).all(axis=0)
    rows = np.where(whole, np.where(t < 0.5, a, b), a + t * (b - a))
    return np.clip(rows, X.min(axis=0), X.max(axis=0))
