"""Least squares of all columns: what a search has to be better than, however early it is ended.

In: ``Rows``.  Out: a formula, if there is one.

    >>> from exprkit.regression.sums.linear import linear_formulas
    >>> from exprkit.regression.problem.rows import Rows
    >>> X = [[1.0, 0.0], [2.0, 1.0], [3.0, 0.0], [4.0, 1.0]]
    >>> str(linear_formulas(Rows(X, [7 + 2 * a - 4 * b for a, b in X]))[0])
    '2 * x1 + 7 - 4 * x2'
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.regression.formulas.numbers import plain_numbers
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.trees import combination, expression_of
from exprkit.regression.problem.rows import Rows
from exprkit.text.tokens import VARIABLE


def linear_formulas(rows: Rows) -> list[Expression]:
    """The linear regression of y on all columns that vary, as a formula; none where its numbers are not finite."""
    varies = np.flatnonzero(np.ptp(rows.X, axis=0))
    with np.errstate(all="ignore"):
        numbers = least_squares(rows.X[:, varies], rows.y, rows.w)
    if not len(varies) or not np.isfinite(numbers).all():
        return []
    columns = [None, *((VARIABLE, i) for i in varies.tolist())]
    tree = combination(zip(numbers.tolist(), columns, strict=True))
    return [plain_numbers(simplified(expression_of(tree)))]


def slopes_of(value: Callable[[np.ndarray], np.ndarray], v: np.ndarray) -> np.ndarray:
    """The derivative of a function at v, by differences."""
    with np.errstate(all="ignore"):
        step = 1e-6 * np.maximum(np.abs(v), 1e-300)
        return np.asarray((value(v + step) - value(v - step)) / (2 * step))


def weights_behind(value: Callable[[np.ndarray], np.ndarray], v: np.ndarray, weights: np.ndarray) -> np.ndarray | None:
    """Weights by which squared errors of v are those of y = value(v), their sum 1; None where they are not finite."""
    with np.errstate(all="ignore"):
        weight = np.where(weights > 0, weights * slopes_of(value, v) ** 2, 0.0)
        weight = weight / weight.sum()
    return weight if np.isfinite(weight).all() else None


def coefficients(columns: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Coefficients of a linear regression of y on columns of any sizes, which are scaled for it."""
    with np.errstate(all="ignore"):
        scale = np.abs(columns).max(axis=0)
        return np.asarray(np.linalg.lstsq(columns / scale, y, rcond=None)[0] / scale)


def least_squares(X: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Constant and coefficients of a weighted linear regression; of more columns than rows those of least norm."""
    root = np.ones(len(X)) if weights is None else np.sqrt(weights)
    columns = np.column_stack([np.ones(len(X)), X]) * root[:, None]
    return np.asarray(np.linalg.lstsq(columns, y * root, rcond=None)[0])
