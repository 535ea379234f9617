"""Least squares of all columns: what a search has to be better than, however early it is ended.

In: a ``Sample``.  Out: a formula, if there is one.

    >>> from exprkit.regression.sums.linear import linear_formulas
    >>> from exprkit.regression.problem.sample import Sample
    >>> X = [[1.0, 0.0], [2.0, 1.0], [3.0, 0.0], [4.0, 1.0]]
    >>> str(linear_formulas(Sample(X, [7 + 2 * a - 4 * b for a, b in X]))[0])
    '2 * x1 + 7 - 4 * x2'
"""

from __future__ import annotations

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.operators import ops
from exprkit.regression.formulas.numbers import plain_numbers
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.trees import Tree, expression_of
from exprkit.regression.problem.sample import Sample
from exprkit.text.tokens import CONSTANT, OPERATOR, VARIABLE


def linear_formulas(sample: Sample) -> list[Expression]:
    """A number, and a number times each column that is not the same everywhere; none where they are too large."""
    varies = np.flatnonzero(np.ptp(sample.X, axis=0))
    with np.errstate(all="ignore"):
        found = least_squares(sample.X[:, varies], sample.y, sample.w)
    if not len(varies) or not np.isfinite(found).all():
        return []
    first, *numbers = found.tolist()
    tree: Tree = (CONSTANT, first)
    for i, number in zip(varies.tolist(), numbers, strict=True):
        tree = (OPERATOR, ops.ADD, tree, (OPERATOR, ops.MUL, (CONSTANT, number), (VARIABLE, i)))
    return [plain_numbers(simplified(expression_of(tree)))]


def least_squares(X: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """What a constant and each column are multiplied by; with more columns than rows those of the least size."""
    root = np.ones(len(X)) if weights is None else np.sqrt(weights)
    columns = np.column_stack([np.ones(len(X)), X]) * root[:, None]
    return np.asarray(np.linalg.lstsq(columns, y * root, rcond=None)[0])
