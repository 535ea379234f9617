"""Translations: differences and sums of two variables that stand for both, ``y = F(x1, x2 - x3)``.

In: ``Rows``.  Out: the pairs, and data and formulas converted from and to them.

    >>> import numpy as np
    >>> from exprkit.regression.rules.translations import translations
    >>> from exprkit.regression.problem.rows import Rows
    >>> random = np.random.default_rng(0)
    >>> X = random.uniform(1, 3, (300, 3))
    >>> y = X[:, 0] * np.exp(-((X[:, 1] - X[:, 2]) ** 2)) + 0.01 * random.standard_normal(300)
    >>> translations(Rows(X, y)).pairs
    ((1, 2, -1.0),)

Where y depends on x2 - x3 alone, its derivatives by x2 and x3 add up to 0 at every row, those of a ``surrogate``
nearly.  A pair counts if the evidence for a Gaussian process of the difference is no less than for one of both.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.operators import ops
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.trees import Tree, expression_of, replaced_variables, tree_of
from exprkit.regression.problem.rows import Rows
from exprkit.regression.rules.groups import MAX_VARIABLES
from exprkit.regression.rules.surrogate import surrogate_of
from exprkit.text.tokens import OPERATOR, VARIABLE

# Chosen, not measured.
MAX_ROWS = 200  # rows of the Gaussian processes, whose cost grows with the third power
MIN_ROWS = 40
MAX_SHARE = 0.1  # of the squares of two derivatives that those of their sum may be
MIN_EVIDENCE = 1.0  # difference of logarithms, below which one variable misses something that two tell


class Translations(NamedTuple):
    """Pairs of variables of which the first plus sign times the second stands for both, in data of ``n`` variables.

    ``evidence``: logarithm of the ratio of evidence, of the pairs to the variables; ``noise``: the standard deviation
    that no smooth function of the pairs explains, as a share of the root mean square of y.
    """

    pairs: tuple[tuple[int, int, float], ...]
    n: int
    evidence: float = 0.0
    noise: float = np.nan

    @property
    def kept(self) -> list[int]:
        """Indices of the variables that remain, some of them as differences or sums."""
        second = {j for _, j, _ in self.pairs}
        return [k for k in range(self.n) if k not in second]

    def columns(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The remaining variables, (n_rows, n_remaining), and the unit of y, 1, (n_rows,), as of a ``UnitSystem``."""
        X = X.copy()
        for i, j, sign in self.pairs:
            X[:, i] += sign * X[:, j]
        return X[:, self.kept], np.ones(len(X))

    def restored(self, formula: Expression) -> Expression:
        """A formula of the remaining variables as one of all."""
        trees: list[Tree] = [(VARIABLE, k) for k in range(self.n)]
        for i, j, sign in self.pairs:
            trees[i] = (OPERATOR, ops.ADD if sign > 0 else ops.SUB, (VARIABLE, i), (VARIABLE, j))
        return simplified(expression_of(replaced_variables(tree_of(formula), [trees[k] for k in self.kept])))


def translations(rows: Rows) -> Translations | None:
    """The differences and sums that stand for two variables each; None where there are none."""
    n = rows.X.shape[1]
    part = rows.subsample(min(MAX_ROWS, len(rows)), 0)
    if len(part) < MIN_ROWS or not 2 <= n <= MAX_VARIABLES or not np.ptp(part.y):
        return None
    v, noise = (part.y - part.y.mean()) / part.y.std(), np.ones(len(part))
    result = Translations((), n)
    full = surrogate_of(_standard(part.X), v, noise)
    slopes = full.gradients() / part.X.std(axis=0)
    candidates = []
    for i, j in itertools.combinations(np.flatnonzero(np.ptp(part.X, axis=0) > 0).tolist(), 2):
        squares = np.sum(slopes[:, i] ** 2) + np.sum(slopes[:, j] ** 2)
        for sign in (-1.0, 1.0):
            share = np.sum((slopes[:, j] - sign * slopes[:, i]) ** 2) / squares
            if share < MAX_SHARE:
                candidates.append((share, i, j, sign))
    for _, i, j, sign in sorted(candidates):
        if {i, j}.intersection(k for pair in result.pairs for k in pair[:2]):
            continue
        extended = Translations((*result.pairs, (i, j, sign)), n)
        reduced = surrogate_of(_standard(extended.columns(part.X)[0]), v, noise)
        if (more := reduced.evidence - full.evidence) > MIN_EVIDENCE:
            share = reduced.noise * part.y.std() / np.sqrt(np.mean(part.y**2))
            result, full = extended._replace(evidence=result.evidence + more, noise=float(share)), reduced
    return result if result.pairs else None


def _standard(X: np.ndarray) -> np.ndarray:
    varying = X[:, np.ptp(X, axis=0) > 0]
    return np.asarray((varying - varying.mean(axis=0)) / varying.std(axis=0))
