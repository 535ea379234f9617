"""``FormulaTable``: what can be read of a fitted search: its front as a table, a formula as text, figures.

In: a ``DescribedFront`` and what is selected of it.  Out: a DataFrame, LaTeX, SymPy, Python, plots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from exprkit.errors import brought_by, listed, whole
from exprkit.expressions.expression import Expression
from exprkit.regression.estimator import equations
from exprkit.regression.estimator.equations import DescribedFront

with brought_by("search"):
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    import pandas as pd
    import sympy


class FormulaTable(BaseEstimator):
    """The formulas of a search, by their row of ``equations_``; without a number the one that is selected."""

    _front: DescribedFront
    model_selection: str
    parsimony: float

    @property
    def equations_(self) -> pd.DataFrame:
        check_is_fitted(self, "_front")
        if "_table" not in self.__dict__:
            self._table = self._front.table()
        return self._table

    def get_best(self, index: int | None = None) -> pd.Series:
        """Row ``index`` of ``equations_``; by default the one that ``model_selection`` selects."""
        return self.equations_.iloc[self._index(index)]

    def sympy(self, index: int | None = None) -> sympy.Expr:
        """The formula of row ``index`` (as for ``get_best``) as a SymPy object."""
        return self._named(index).sympy()

    def latex(self, index: int | None = None, precision: int = 4) -> str:
        """The formula of row ``index`` (as for ``get_best``) in LaTeX, its numbers with ``precision`` digits."""
        return equations.latex(self._named(index), precision)

    def latex_table(self, indices: Sequence[int] | int | None = None, precision: int = 4) -> str:
        """Rows ``indices`` (default: all) as a LaTeX table (package booktabs), with ``precision`` digits."""
        check_is_fitted(self, "_front")
        every = range(len(self._front.entries)) if indices is None else listed(indices)
        return self._front.latex_table(map(self._index, [indices] if every is None else every), precision)

    def to_numpy(self, index: int | None = None) -> str:
        """Formula ``index`` (as for ``get_best``) as text of a Python function ``f(X, params)`` that needs only NumPy.

        X is an array of all columns; ``params`` are by default the numbers of the formula.
        """
        return equations.python_text(self._named(index), "to_numpy")

    def jax(self, index: int | None = None) -> str:
        """``to_numpy(index)`` for JAX, to be used with ``jax.grad`` and ``jax.jit``; float32 by JAX's default."""
        return equations.python_text(self._named(index), "jax")

    def torch(self, index: int | None = None) -> str:
        """``to_numpy(index)`` for PyTorch; ``params``, a ``torch.nn.Parameter`` for example, can be trained.

        Raises
        ------
        OperandError
            For a formula with ``gamma``, which PyTorch does not have.
        """
        return equations.python_text(self._named(index), "torch")

    def plot_front(self, ax: Any = None) -> Any:
        """Plot loss over complexity into ``ax`` (default: new), with the selected formula marked; returns the axes."""
        chosen = self._index(None)  # which complains where nothing is fitted
        return self._front.plot(chosen, ax)

    def _repr_html_(self) -> str:
        """In a notebook: the parameters, and after a fit the front."""
        shown: str = self._repr_html_inner()
        if not hasattr(self, "_front"):
            return shown
        columns = ["complexity", "loss", "score", "equation"]
        return shown + str(self.equations_[columns].to_html(float_format="{:.4g}".format))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_table"}

    # ── inside ──

    def _named(self, index: int | None) -> Expression:
        chosen = self._index(index)  # which complains where nothing is fitted
        return self._front.named(chosen)

    def _index(self, index: int | None) -> int:
        check_is_fitted(self, "_front")
        front, n = self._front, len(self._front.entries)
        if index is None:
            return equations.selected(front, self.model_selection, float(self.parsimony))
        return whole("index", index, -n, n - 1) % n
