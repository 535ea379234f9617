"""Log-odds of classes against the first one: an estimate before there is a formula, and responses near an estimate.

In: rows whose y are numbers of classes.  Out: targets and weights, as a search by squared errors wants them.

    >>> import numpy as np
    >>> from exprkit.classification.log_odds import probabilities_of_labels
    >>> probabilities_of_labels(np.array([8.0, 3.0]))  # a row for a class: the label may be wrong
    array([[0.9, 0.1],
           [0.2, 0.8]])
"""

from __future__ import annotations

import math

import numpy as np

from exprkit.errors import brought_by
from exprkit.regression.problem import effort
from exprkit.regression.problem.rows import Rows

with brought_by("search"):
    from scipy.special import expit
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

DEGREE = 3  # of the polynomial of the first estimate; chosen, not measured
MOST_TERMS = 200  # of that polynomial, or its degree is less: some seconds for 10,000 rows
MOST_STEPS = 1_000  # of its fit
SURE = 0.98  # probability beyond which a working response is too far away from a straight line to be one
LARGEST = 700.0  # of log-odds: exp is finite


def probabilities_of_labels(counts: np.ndarray) -> np.ndarray:
    """Probabilities of classes, (n_classes, n_classes), in a row of each class, of which there are so many rows.

    Not 0 and 1, for which log-odds would be infinite where a formula separates the classes: J. C. Platt, "Probabilistic
    outputs for support vector machines", 1999; of more than two classes P. S. Laplace's rule of succession.
    """
    n = len(counts)
    return (np.eye(n) * counts + 1.0) / (counts[:, None] + n)


def first_estimate(rows: Rows, probabilities: np.ndarray) -> np.ndarray:
    """Log-odds against the first class, (n_rows, n_classes - 1), by a polynomial with a penalty on its numbers."""
    few, n_vars, n = rows.at_most(effort.ROWS.search, 0), rows.X.shape[1], len(probabilities)
    degree = max(d for d in range(1, DEGREE + 1) if d == 1 or math.comb(n_vars + d, d) <= MOST_TERMS)
    terms = make_pipeline(StandardScaler(), PolynomialFeatures(degree, include_bias=False), StandardScaler())
    Z, weights = terms.fit_transform(few.X), probabilities[few.y.astype(int)] * few.w[:, None]
    labels = np.repeat(np.arange(n), len(few))
    fit = LogisticRegression(max_iter=MOST_STEPS).fit(np.tile(Z, (n, 1)), labels, weights.T.ravel())
    scores = fit.decision_function(terms.transform(rows.X))
    return scores[:, None] if n == 2 else scores[:, 1:] - scores[:, :1]


def others_of(log_odds: np.ndarray, k: int) -> np.ndarray:
    """Logarithm of the odds of all classes but one against the first, (n_rows,): that class has f less this."""
    others = np.delete(log_odds, k, axis=1)
    return np.asarray(np.logaddexp.reduce(np.column_stack([np.zeros(len(others)), others]), axis=1))


def working_response(f: np.ndarray, others: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Targets and weights, (n_rows,) each, by which squares are the logistic loss near log-odds f.

    J. A. Nelder and R. W. M. Wedderburn, "Generalized linear models", J. R. Statist. Soc. A 135, 1972.  ``t``: the
    probability of the class by the label.
    """
    p = np.clip(expit(f - others), 1 - SURE, SURE)
    return np.log(p / (1 - p)) + others + (t - p) / (p * (1 - p)), p * (1 - p)
