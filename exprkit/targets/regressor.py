"""``MultiTargetRegressor``: formulas of several targets that share parts, as a scikit-learn estimator.

In: X and targets in columns.  Out: a formula for each, and predictions in columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from exprkit.errors import brought_by, checks_methods
from exprkit.evaluate.tables import DataTable, target_of
from exprkit.expressions.expression import Expression
from exprkit.regression.estimator.equations import VETO, selected
from exprkit.regression.estimator.refusals import checked_rows, named_rows
from exprkit.regression.estimator.regressor import SymbolicRegressor, search_of
from exprkit.regression.estimator.searches_file import SavedSearches
from exprkit.regression.formulas.front import NATS_PER_TOKEN
from exprkit.regression.formulas.trees import Tree, expression_of
from exprkit.targets import parts
from exprkit.text.tokens import VARIABLE

with brought_by("search"):
    from sklearn.base import MultiOutputMixin, RegressorMixin, clone
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

if TYPE_CHECKING:
    import pandas as pd
    import sympy

SECONDS = 20.0  # of counted work, of the search for one target
SMALLEST = 3  # tokens of a part that a search begins with
SWEEPS = 10  # over the targets, each with the formula that is best beside the others'


@checks_methods
class MultiTargetRegressor(MultiOutputMixin, RegressorMixin, SavedSearches):
    """Search for formulas of several targets, which share parts where that costs no accuracy that could be told.

    A ``SymbolicRegressor`` searches for each target, and begins with the parts of the formulas before.  Of the formulas
    that the data don't tell apart those are selected that are shortest together, a part of several counted once.

    Parameters
    ----------
    search : SymbolicRegressor, optional
        What searches for each target, for so long; by default 20 s of counted work (``deterministic``).

    Attributes
    ----------
    target_names_ : list of str
        Names of the targets; y1, y2, ... where columns have none.
    models_ : list of SymbolicRegressor
        The searches, one for each target, with all their formulas.
    chosen_ : list of int
        The selected row of each model's ``equations_``.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> import exprkit as ek, numpy as np
    >>> X = np.random.default_rng(0).uniform(1, 3, (60, 2))
    >>> search = ek.SymbolicRegressor(niterations=0, pool_size=300, maxsize=9, random_state=0)
    >>> product = X[:, 0] * X[:, 1]
    >>> model = ek.MultiTargetRegressor(search).fit(X, np.stack([np.exp(product), 3 - product], axis=1))
    >>> print(model)
    u1 = x1 * x2
    y1 = exp(u1)
    y2 = 3 - u1
    """

    KEPT: ClassVar = {"target_names_": list, "chosen_": list, "n_features_in_": int, "_is_flat": bool}
    SEARCHES: ClassVar = ("models_",)

    def __init__(self, search: SymbolicRegressor | None = None) -> None:
        self.search = search

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MultiTargetRegressor:
        """Search for formulas of the targets.

        Parameters
        ----------
        X : array or table, (n_rows, n_vars)
            As for ``SymbolicRegressor``.
        y : array or DataFrame, (n_rows, n_targets) or (n_rows,), or list of str
            For a table X the names of its columns.
        sample_weight : array, (n_rows,), optional
            What a row counts, for all targets.

        Raises
        ------
        ArgumentError
            For a parameter that can't be.
        DataError, ValueError
            For data that scikit-learn's estimators refuse, and for a target with missing values.
        """
        search = search_of(self.search, SECONDS)
        names = list(map(str, getattr(y, "columns", ())))
        if isinstance(y, list | tuple) and all(isinstance(name, str) for name in y):
            names, columns = list(y), []
            for name in names:
                X, column = target_of(X, name)
                columns.append(column)
            y = np.stack(columns, axis=1)
        table = DataTable(X, y, sample_weight)
        X, Y = validate_data(
            self, table.frame(), table.target_numbers(), dtype=np.float64, multi_output=True, y_numeric=True
        )
        w = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=np.float64)
        self._is_flat, Y = Y.ndim == 1, np.asarray(Y, np.float64).reshape(len(X), -1)
        self.target_names_ = names or [f"y{k + 1}" for k in range(Y.shape[1])]
        self.models_: list[SymbolicRegressor] = []
        begun = list(search.guesses or ())
        for target in Y.T:
            guesses = None if search.template is not None else begun or None
            model = clone(search).set_params(guesses=guesses).fit(named_rows(self, X), target, w)
            self.models_.append(model)
            tree = parts.ordered(model._front.entries[model._index(None)].expression)
            new = [self._text(part) for part in parts.parts_of(tree) if parts.nodes(part) >= SMALLEST]
            begun = list(dict.fromkeys([*begun, *sorted(new)]))
        self._choose()
        return self

    def _text(self, tree: Tree, others: tuple[str, ...] = ()) -> str:
        formula, names = expression_of(tree), self.models_[0]._words()
        return str(Expression(formula.kinds, formula.values, (*names, *others)))

    def _choose(self) -> None:
        """Of the formulas of each front that are as good those that are shortest beside the other targets'."""
        self.chosen_ = [model._index(None) for model in self.models_]
        fronts = [model._front for model in self.models_]
        trees = [[parts.ordered(entry.expression) for entry in front.entries] for front in fronts]
        prices = []
        for model, front in zip(self.models_, fronts, strict=True):
            best = selected(front, model.model_selection, float(model.parsimony))
            dearer = np.maximum(front.expected - front.expected[best], front.lengths - front.lengths[best])
            is_worse = (dearer > VETO) | (front.poles & ~front.poles[best]) | (front.exact[best] & ~front.exact)
            prices.append(np.where(is_worse, np.inf, np.maximum(dearer, 0.0)))

        def price(chosen: list[int]) -> float:
            own = sum(float(price[i]) for price, i in zip(prices, chosen, strict=True))
            return own - NATS_PER_TOKEN * parts.n_shared([tree[i] for tree, i in zip(trees, chosen, strict=True)])

        for _ in range(SWEEPS):
            before = list(self.chosen_)
            for k, front in enumerate(fronts):
                options = [[*self.chosen_[:k], i, *self.chosen_[k + 1 :]] for i in range(len(front.entries))]
                self.chosen_ = min([self.chosen_, *options], key=price)
            if self.chosen_ == before:
                break

    def _trees(self) -> list[Tree]:
        """The trees of the selected formulas."""
        return self._of_each(lambda model, i: parts.ordered(model._front.entries[i].expression))

    def predict(self, X: Any) -> np.ndarray:
        """Predictions, float64 (n_rows, n_targets); (n_rows,) after a fit of such a y.

        Parameters
        ----------
        X : array or table, (n_rows, n_vars)
        """
        check_is_fitted(self, "models_")
        for name in {*self.target_names_} & {*DataTable(X).names} - {*getattr(self, "feature_names_in_", ())}:
            X, _ = target_of(X, name)  # the table that was fitted
        data = named_rows(self, checked_rows(self, X))
        columns = [model.predict(data, i) for model, i in zip(self.models_, self.chosen_, strict=True)]
        return columns[0] if self._is_flat else np.stack(columns, axis=1)

    def _of_each(self, asked: Callable[[SymbolicRegressor, int], Any]) -> list[Any]:
        check_is_fitted(self, "models_")
        return [asked(model, i) for model, i in zip(self.models_, self.chosen_, strict=True)]

    @property
    def equations_(self) -> list[pd.DataFrame]:
        """The formulas of each target, as ``SymbolicRegressor.equations_``."""
        return self._of_each(lambda model, i: model.equations_.assign(selected=np.arange(len(model.equations_)) == i))

    def sympy(self) -> list[sympy.Expr]:
        """The selected formula of each target as a SymPy object."""
        return self._of_each(lambda model, i: model.sympy(i))

    def latex(self, precision: int | None = None) -> list[str]:
        """The selected formula of each target in LaTeX, its numbers with so many digits.

        Parameters
        ----------
        precision : int, optional
        """
        return self._of_each(lambda model, i: model.latex(i, precision))

    @property
    def shared_(self) -> list[str]:
        """The parts that several of the selected formulas have, the largest first."""
        return [self._text(part) for part in parts.shared(self._trees())]

    def __str__(self) -> str:
        """The selected formulas, parts that they share by names; before a fit the parameters."""
        if not hasattr(self, "models_"):
            return repr(self)
        n, common = self.n_features_in_, parts.shared(self._trees())[::-1]  # small ones are in large ones
        words = [f"u{j + 1}" for j in range(len(common))]
        names: dict[Tree, Tree] = {}
        lines = []
        for j, part in enumerate(common):
            lines.append(f"{words[j]} = {self._text(parts.named(part, names), tuple(words))}")
            names[part] = VARIABLE, n + j
        for target, tree in zip(self.target_names_, self._trees(), strict=True):
            lines.append(f"{target} = {self._text(parts.named(tree, names), tuple(words))}")
        return "\n".join(lines)
