"""``ExpressionRegressor``: fits of given expressions as a scikit-learn estimator; the best of them predicts.

In: X and y, expressions.  Out: their fits, best first, and predictions of one of them.

    >>> import numpy as np
    >>> import exprkit as ek
    >>> X = np.linspace(1.0, 3.0, 20)[:, None]
    >>> model = ek.ExpressionRegressor(["p1 * x1", "p1 * x1^p2", "p1 * exp(p2 * x1)"]).fit(X, 2 * X[:, 0] ** 1.5)
    >>> print(model.found_.pop[0])
    p1 * x1 ^ p2
    >>> model.predict([[4.0]]).round(6)
    array([16.])
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from exprkit.errors import ArgumentError, brought_by, checks_keywords, checks_methods, listed, one_of, whole
from exprkit.evaluate.inputs import named_population
from exprkit.evaluate.tables import DataTable
from exprkit.expressions.expression import Expression
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population
from exprkit.fitting import ranking
from exprkit.fitting.fit_problem import FitProblem
from exprkit.fitting.fit_result import FitResult
from exprkit.fitting.fitted_expression import FittedExpression
from exprkit.regression.estimator.refusals import checked_data, checked_rows, names_of
from exprkit.regression.estimator.regressor import seed_of
from exprkit.regression.sums.linear import least_squares

with brought_by("search"):
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils.validation import check_is_fitted


@checks_methods
@dataclass(eq=False, repr=False)
class ExpressionRegressor(RegressorMixin, BaseEstimator):
    """Given expressions, fitted to data; the best one predicts.

    For ``Pipeline``, ``cross_val_score`` and ``GridSearchCV``, which may choose among lists of ``expressions``, too.
    ``exprkit.fit`` takes more settings; ``SymbolicRegressor`` finds expressions.

    Parameters
    ----------
    expressions : str, Expression, Population or list of these, optional
        Texts name a DataFrame's columns, or x1, x2, ... by their order.  By default p1 and a parameter times each
        variable.
    select : {"loss", "r2", "aic", "bic", "description_length", "nodes"}
        By what the best one is chosen, as in ``FitResult.rank``.
    loss, restarts, bounds, backend
        As in ``exprkit.fit``.
    random_state : int, RandomState or None
        Of the starts of ``restarts``.

    Attributes
    ----------
    found_ : FitResult
        The fits in float64, the best first.
    n_features_in_ : int
    feature_names_in_ : array of str
        Where X is a DataFrame.

    Examples
    --------
    >>> import exprkit as ek
    >>> model = ek.ExpressionRegressor(["p1 * x1", "p1 * sqrt(x1)"]).fit([[1.0], [4.0], [9.0]], [2, 4, 6])
    >>> model.predict([[16.0]]).round(6)
    array([8.])
    """

    expressions: Any = None
    _: KW_ONLY
    select: str = "bic"
    loss: str = "squares"
    restarts: int = 0
    bounds: Any = None
    backend: str = "auto"
    random_state: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ExpressionRegressor:
        """Fit all expressions.

        Parameters
        ----------
        X : array or table, (n_rows, n_vars)
            As for ``exprkit.fit``; a path is that of a CSV file.
        y : array, (n_rows,), or str
            For a table X the name of its column.
        sample_weight : array, (n_rows,), or str, optional
            What a row counts.

        Raises
        ------
        ArgumentError
            For a parameter that is none, or if no expression has a loss.
        ParseError
            For a text that is no expression, or names a column that there is not.
        ValueError
            For data that scikit-learn's estimators refuse.

        Examples
        --------
        >>> model = ek.ExpressionRegressor(["p1 * x1", "p1 + x1"]).fit([[1.0], [2.0], [3.0]], [2.0, 4.0, 6.0])
        >>> print(model.get_best())
        2 * x1
        """
        one_of("select", self.select, ranking.BY)
        whole("restarts", self.restarts, 0)
        table = DataTable(X, y, sample_weight)
        self._target_name, (X, y, weights) = table.target, checked_data(self, table)
        init = least_squares(X, y, weights)[None] if self.expressions is None else None
        chosen = {"loss": self.loss, "bounds": self.bounds, "backend": self.backend}
        problem = FitProblem(X, y, weights=weights, dtype="float64", **chosen)
        problem.target_name = self._target_name
        fits = problem.fit(self._population(), init=init, restarts=self.restarts, seed=seed_of(self.random_state))
        if not len(fits):
            raise ArgumentError("expressions is empty: nothing is left that could be fitted")
        if not np.isfinite(fits.loss).any():
            raise ArgumentError(f"no expression has a loss at these data: the first is {fits.pop[0]}")
        self.found_: FitResult = fits.rank(self.select)
        return self

    def _population(self) -> Population:
        names = names_of(self)
        if self.expressions is None:
            variables = [f"`{name}`" for name in names or ()] or [f"x{k + 1}" for k in range(self.n_features_in_)]
            terms = [f"p{k + 2} * {name}" for k, name in enumerate(variables)]
            return parse([" + ".join(["p1", *terms])], variables=names)
        if isinstance(self.expressions, Population):
            return self.expressions
        several = listed(self.expressions)
        expressions = (self.expressions,) if several is None else several
        texts = [str(text) if isinstance(text, Expression) else text for text in expressions]
        return named_population(texts, names or (), variables=names)

    def get_best(self, index: int = 0) -> FittedExpression:
        """The best expression with its numbers, or the ``index``-th best.

        >>> model = ek.ExpressionRegressor(["p1 * x1", "p1 + x1"]).fit([[1.0], [2.0], [3.0]], [2.0, 4.0, 6.0])
        >>> model.get_best(1).params
        array([2.])
        """
        check_is_fitted(self, "found_")
        return self.found_[index]

    def predict(self, X: Any, index: int = 0) -> np.ndarray:
        """Predictions of the best expression, or of the ``index``-th best.

        Parameters
        ----------
        X : array or DataFrame, (n_rows, n_vars)
        index : int

        Returns
        -------
        float64 array, (n_rows,)

        Examples
        --------
        >>> model = ek.ExpressionRegressor(["p1 * x1", "p1 + x1"]).fit([[1.0], [2.0], [3.0]], [2.0, 4.0, 6.0])
        >>> model.predict([[4.0]]).round(3)
        array([8.])
        """
        check_is_fitted(self, "found_")
        return self.found_.predict(checked_rows(self, X), index)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R2 of what the best expression gives; X, y and sample_weight as for ``fit``.

        >>> X, y = [[1.0], [2.0], [3.0]], [2.1, 3.9, 6.0]
        >>> round(ek.ExpressionRegressor("p1 * x1").fit(X, y).score(X, y), 3)
        0.997
        """
        table = DataTable(X, y, sample_weight)
        return float(super().score(table.X, table.y, table.weights))


ExpressionRegressor.__init__ = checks_keywords(ExpressionRegressor.__init__)  # type: ignore[method-assign]
