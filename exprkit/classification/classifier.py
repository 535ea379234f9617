"""``SymbolicClassifier``: formulas of the log-odds of classes, as a scikit-learn estimator.

In: X and labels.  Out: formulas, probabilities and labels.

A search is quick where a formula's errors are squared ones.  So it searches for log-odds that a polynomial estimates,
then for the working response of the logistic loss near the formulas so far; the formulas of all these searches are
fitted by the logistic loss itself, and one is selected by that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from exprkit.classification import log_odds
from exprkit.errors import ArgumentError, DataError, brought_by, checks_methods, number_of, whole
from exprkit.evaluate.tables import DataTable
from exprkit.regression.estimator.refusals import checked_data, checked_rows, named_rows
from exprkit.regression.estimator.regressor import SymbolicRegressor, search_of
from exprkit.regression.estimator.searches_file import SavedSearches
from exprkit.regression.problem.goal import LOGISTIC
from exprkit.regression.problem.rows import Rows, as_counts

with brought_by("search"):
    from scipy.special import softmax
    from sklearn.base import ClassifierMixin, clone
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    import pandas as pd
    import sympy

SECONDS = 10.0  # of counted work, of a search
SWEEPS = 2  # in which formulas of several classes are fitted in turn, each beside the others


@checks_methods
class SymbolicClassifier(ClassifierMixin, SavedSearches):
    """Search for formulas of the log-odds of classes.

    For each class but the first a formula f of log(p / p_first): of two classes the second has probability
    1 / (1 + exp(-f)), of more each has its part of the sum of exp(f), with f = 0 of the first.

    Parameters
    ----------
    search : SymbolicRegressor, optional
        What searches, with its operators, limits and ``model_selection``; by default one of 10 s of counted work
        (``deterministic``).
    rounds : int
        Searches for each class.

    Attributes
    ----------
    classes_ : array
        The labels, sorted.
    models_ : list of SymbolicRegressor
        The formulas of log-odds, of a model for each class but the first; losses are logistic, in nats a row.
    searches_ : list of SymbolicRegressor
        The searches in their order, for all classes in each round.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> import exprkit as ek, numpy as np
    >>> X = np.random.default_rng(0).uniform(1, 3, (200, 2))
    >>> search = ek.SymbolicRegressor(niterations=0, pool_size=300, maxsize=5, random_state=0)
    >>> model = ek.SymbolicClassifier(search, rounds=1).fit(X, np.where(X[:, 0] > X[:, 1], "above", "below"))
    >>> model.predict([[3.0, 1.5], [1.5, 3.0]]).tolist()
    ['above', 'below']
    """

    KEPT: ClassVar = {"classes_": np.ndarray, "n_features_in_": int, "_target_name": str}
    SEARCHES: ClassVar = ("models_", "searches_")

    def __init__(self, search: SymbolicRegressor | None = None, *, rounds: int = 2) -> None:
        self.search = search
        self.rounds = rounds

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SymbolicClassifier:
        """Search for the formulas of labels.

        Parameters
        ----------
        X : array or table, (n_rows, n_vars)
            As for ``SymbolicRegressor``.
        y : array, (n_rows,), or str
            Labels, texts or whole numbers; for a table X the name of their column.
        sample_weight : array, (n_rows,), or str, optional
            What a row counts; for classes of unequal sizes a weight for each class.

        Raises
        ------
        ArgumentError
            For a parameter that can't be.
        DataError, ValueError
            For labels that are missing or all the same, and for data that scikit-learn's estimators refuse.
        """
        rounds = whole("rounds", self.rounds, 1)
        search = search_of(self.search, SECONDS)
        if search.elementwise_loss != "squares":
            raise ArgumentError("search: classes have a loss of their own; leave elementwise_loss='squares'")
        if search.template is not None or search.groups is not None:
            raise ArgumentError("search: formulas of log-odds have no template= and groups=: leave them out")
        table = DataTable(X, y, sample_weight, labels=True)
        X, y, weights = checked_data(self, table, labels=True)
        self._target_name = table.target
        kept = slice(None) if weights is None else weights > 0
        self.classes_, codes = _numbered(y[kept])
        rows = Rows(X[kept], codes, None if weights is None else as_counts(weights[kept]))
        labels, n = rows.y.astype(int), len(self.classes_)
        smooth = log_odds.probabilities_of_labels(np.bincount(labels, rows.w, n))
        t, f = smooth[labels], log_odds.first_estimate(rows, smooth)
        data = named_rows(self, rows.X)
        self.searches_: list[SymbolicRegressor] = []
        texts: list[list[str]] = [[] for _ in range(n - 1)]
        for turn in range(rounds):
            for k in range(n - 1):
                response, w = log_odds.working_response(f[:, k], log_odds.others_of(f, k), t[:, k + 1])
                model = clone(search).fit(data, response if turn else f[:, k], rows.w * w)
                texts[k] += model.equations_["equation"].tolist()
                self.searches_.append(model)
            self.models_ = [search] * (n - 1)
            for _ in range(SWEEPS if n > 2 else 1):
                for k in range(n - 1):
                    settings = {"guesses": list(dict.fromkeys(texts[k])), "elementwise_loss": LOGISTIC, "max_evals": 1}
                    model = clone(search).set_params(**settings)
                    model.fit(data, t[:, k + 1], rows.w, columns={"c": log_odds.others_of(f, k)})
                    self.models_[k], f[:, k] = model, _bounded(model.predict(data))
        return self

    # ── predictions ──

    def _log_odds(self, X: Any) -> np.ndarray:
        """Log-odds against the first class, (n_rows, n_classes), 0 of that class."""
        check_is_fitted(self, "models_")
        X = checked_rows(self, X)
        data = named_rows(self, X)
        return np.column_stack([np.zeros(len(X)), *(_bounded(model.predict(data)) for model in self.models_)])

    def decision_function(self, X: Any) -> np.ndarray:
        """Log-odds at X: of two classes of the second, (n_rows,); of more of each against the first, (n_rows, n)."""
        f = self._log_odds(X)
        return f[:, 1] if len(self.classes_) == 2 else f

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of ``classes_`` at rows X, (n_rows, n_classes); nan where a formula has no value."""
        return np.asarray(softmax(self._log_odds(X), axis=1))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each row of X, (n_rows,).

        Raises
        ------
        DataError
            Where a formula has no value, as a logarithm of what is below 0.
        """
        f = self._log_odds(X)
        if (lost := np.flatnonzero(np.isnan(f).any(axis=1))).size:
            raise DataError(f"a formula has no value at {number_of(len(lost), 'row')}, the first of them row {lost[0]}")
        return np.asarray(self.classes_[f.argmax(axis=1)])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of the rows whose label is predicted; X, y and sample_weight as for ``fit``."""
        table = DataTable(X, y, sample_weight, labels=True)
        return float(super().score(table.X, table.y, table.weight_numbers()))

    # ── formulas ──

    def _of_each(self, asked: Callable[[SymbolicRegressor], Any]) -> Any:
        check_is_fitted(self, "models_")
        answers = [asked(model) for model in self.models_]
        return answers[0] if len(answers) == 1 else answers

    @property
    def equations_(self) -> pd.DataFrame | list[pd.DataFrame]:
        """The formulas as ``SymbolicRegressor.equations_``; of more than two classes a list of tables."""
        return self._of_each(lambda model: model.equations_)

    def sympy(self) -> sympy.Expr | list[sympy.Expr]:
        """The selected formula as a SymPy object; of more than two classes a list of them."""
        return self._of_each(lambda model: model.sympy())

    def latex(self, precision: int | None = None) -> str | list[str]:
        """The selected formula in LaTeX, numbers with ``precision`` digits; of more than two classes a list of them."""
        return self._of_each(lambda model: model.latex(precision=precision))

    def __str__(self) -> str:
        """The formulas of each class; before a fit the parameters."""
        if not hasattr(self, "models_"):
            return repr(self)
        first, *others = self.classes_
        heads = [f"log-odds of {label} against {first}:" for label in others]
        return "\n".join(f"{head}\n{model}" for head, model in zip(heads, self.models_, strict=True))


def _numbered(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct labels, and their numbers in each row."""
    if any(label is None or label != label for label in y.tolist()):
        raise DataError("y has missing labels: leave those rows out")
    try:
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
    except TypeError:
        raise DataError("y mixes labels that cannot be sorted, as texts and numbers") from None
    if len(classes) < 2:
        raise DataError(f"y has labels of one class, {classes[0]}: a classifier needs two")
    return classes, codes


def _bounded(f: np.ndarray) -> np.ndarray:
    return np.clip(f, -log_odds.LARGEST, log_odds.LARGEST)
