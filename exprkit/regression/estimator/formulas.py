"""``FormulaTable``: what can be read of a fitted search: its front as a table, a formula as text, figures.

In: a ``DescribedFront`` and what is selected of it.  Out: a DataFrame, LaTeX, SymPy, Python, plots.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from exprkit.errors import ArgumentError, brief, brought_by, checks_methods, listed, whole
from exprkit.evaluate.tables import DataTable
from exprkit.expressions.expression import Expression
from exprkit.fitting.plot import beside_data
from exprkit.regression.estimator.equations import (
    LEAST_DRAWN,
    DescribedFront,
    draw_front,
    python_text,
    scores,
    selected,
)
from exprkit.regression.estimator.reduction import Reduction, reduction_of
from exprkit.regression.estimator.refusals import checked_rows
from exprkit.regression.estimator.template import TemplateFront
from exprkit.regression.formulas.archive import VisitedFormulas
from exprkit.regression.formulas.values import values_of
from exprkit.search.patterns import holders
from exprkit.text import printer

with brought_by("search"):
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    import pandas as pd
    import sympy
    from matplotlib.figure import Figure


NOT_KEPT = ("_table", "_data", "reduction_")  # in a pickle
MARK = ">>>>"  # of the formula that is selected


@checks_methods
class FormulaTable(BaseEstimator):
    """The formulas of a search, by their row of ``equations_``; without a number the one that is selected."""

    n_features_in_: int
    _front: DescribedFront
    visited_: VisitedFormulas
    model_selection: str
    parsimony: float
    stopped_: str
    noise_: str
    n_rows_searched_: int
    _n_rows: int
    _data: tuple[np.ndarray, np.ndarray] | None = None
    template: str | None = None
    _template: TemplateFront | None = None
    _target_name = "y"

    @property
    def equations_(self) -> pd.DataFrame:
        chosen = self._index(None)  # which complains where nothing is fitted
        if "_table" not in self.__dict__:
            self._table = self._described_table()
        return self._table.assign(selected=[i == chosen for i in range(len(self._table))])

    def get_best(self, index: int | None = None) -> pd.Series:
        """Row ``index`` of ``equations_``; by default the one that ``model_selection`` selects.

        >>> X = np.arange(1.0, 9.0)[:, None]
        >>> model = ek.SymbolicRegressor(niterations=0, pool_size=0).fit(X, 3 * X[:, 0])
        >>> model.get_best()["equation"]
        '3 * x1'
        """
        return self.equations_.iloc[self._index(index)]

    def sympy(self, index: int | None = None) -> sympy.Expr:
        """The formula of row ``index`` (as for ``get_best``) as a SymPy object.

        >>> X = np.arange(1.0, 9.0)[:, None]
        >>> ek.SymbolicRegressor(niterations=0, pool_size=0).fit(X, 3 * X[:, 0]).sympy()
        3*x1
        """
        return self._named(index).sympy()

    def latex(self, index: int | None = None, precision: int | None = None, errors: bool = False) -> str:
        r"""The formula of row ``index`` (as for ``get_best``) in LaTeX.

        Parameters
        ----------
        index : int, optional
        precision : int, optional
            Digits of its numbers; by default as many as their standard errors leave.
        errors : bool
            Write the standard errors behind the numbers: ``\left(3.00 \pm 0.02\right)``.

        Examples
        --------
        >>> X = np.arange(1.0, 9.0)[:, None]
        >>> print(ek.SymbolicRegressor(niterations=0, pool_size=0).fit(X, 3 * X[:, 0]).latex())
        3 \cdot x_{1}
        """
        chosen = self._index(index)
        return self._front.latex(chosen, precision, errors)

    def latex_table(self, indices: Sequence[int] | int | None = None, precision: int | None = None) -> str:
        r"""Rows ``indices`` (default: all) as a LaTeX table (package booktabs); ``precision`` as for ``latex``.

        >>> X = np.arange(1.0, 9.0)[:, None]
        >>> print(ek.SymbolicRegressor(niterations=0, pool_size=0).fit(X, 3 * X[:, 0]).latex_table().splitlines()[4])
        $y = 13.5$ & $1$ & $47.2$ \\
        """
        check_is_fitted(self, "_front")
        front, every = self._front, range(len(self._front.entries)) if indices is None else listed(indices)
        rows = []
        for i in map(self._index, [indices] if every is None else every):
            size, loss = front.entries[i].size, _scientific(front.entries[i].loss)
            rows.append((f"$y = {front.latex(i, precision)}$", f"${size}$", f"${loss}$"))
        return printer.booktabs("lcc", ["Equation", "Complexity", "Loss"], rows)

    def parameter_table(self, index: int | None = None) -> pd.DataFrame:
        """The numbers of row ``index`` (as for ``get_best``), p1, p2, … in the order in which they stand in its text.

        Returns
        -------
        DataFrame
            Columns "value" and "error", the standard error as of ``ek.fit`` (nan where the data do not determine a
            number); ``attrs["formula"]`` is the text with p1, p2, … and ``attrs["covariance"]`` their covariance.

        Examples
        --------
        >>> X = np.arange(1.0, 9.0)[:, None]
        >>> ek.SymbolicRegressor(niterations=0, pool_size=0).fit(X, 3 * X[:, 0]).parameter_table().round(3)
            value  error
        p1    3.0    0.0
        """
        with brought_by("search"):
            import pandas as pd

        form, values, errors = self._front.parts(chosen := self._index(index))
        names = [f"p{k + 1}" for k in range(len(values))]
        table = pd.DataFrame({"value": values, "error": errors}, index=names)
        covariance = self._front.covariances[chosen, : len(names), : len(names)]
        table.attrs = {"formula": str(form), "covariance": covariance.tolist()}
        return table

    @property
    def functions_(self) -> dict[str, Expression]:
        """The unknown functions of ``template`` in the formula that is selected, by name.

        >>> X = np.arange(1.0, 9.0)[:, None]
        >>> model = ek.SymbolicRegressor(template="f(x1) + 1", niterations=0, pool_size=0).fit(X, 3 * X[:, 0] + 1)
        >>> model.functions_
        {'f': <Expression: 3 * x1>}

        Raises
        ------
        AttributeError
            Without ``template``.
        """
        chosen = self._index(None)
        if self._template is None or self.template is None:
            raise AttributeError("functions_ are those of template=, which the search did not have")
        return self._template.functions(chosen)

    def group_numbers(self, index: int | None = None) -> pd.DataFrame:
        """The numbers of row ``index`` (as for ``get_best``) that go by ``groups``: a row for each category.

        >>> table = {"x1": np.arange(12.0), "site": ["a"] * 6 + ["b"] * 6}
        >>> table["y"] = table["x1"] * np.repeat([2.0, 5.0], 6)
        >>> model = ek.SymbolicRegressor(groups="site", niterations=0, pool_size=0, random_state=0).fit(table, "y")
        >>> model.group_numbers().round(6).to_dict()
        {'p1[site]': {'a': 2.0, 'b': 5.0}}

        Raises
        ------
        ArgumentError
            Without ``groups``.
        """
        chosen = self._index(index)
        with brought_by("search"):
            import pandas as pd

        if self._template is None or self._template.group is None:
            raise ArgumentError("no number goes by category: the search was without groups=")
        names, categories = self._template.names(chosen), pd.Index(self._template.categories, name=self._template.group)
        return pd.DataFrame(dict(zip(names, self._template.numbers_of(chosen), strict=True)), categories)

    def to_numpy(self, index: int | None = None) -> str:
        """Formula ``index`` (as for ``get_best``) as text of a Python function ``f(X, params)`` that needs only NumPy.

        X is an array of all columns; ``params`` are by default the numbers of the formula.

        >>> X = np.arange(1.0, 9.0)[:, None]
        >>> print(ek.SymbolicRegressor(niterations=0, pool_size=0).fit(X, 3 * X[:, 0]).to_numpy().splitlines()[4])
            # p1 * x1
        """
        return python_text(self._exported(index), "to_numpy")

    def jax(self, index: int | None = None) -> str:
        """``to_numpy(index)`` for JAX, to be used with ``jax.grad`` and ``jax.jit``; float32 by JAX's default.

        >>> X = np.arange(1.0, 9.0)[:, None]
        >>> print(ek.SymbolicRegressor(niterations=0, pool_size=0).fit(X, 3 * X[:, 0]).jax().splitlines()[-1].strip())
        return p1 * x1
        """
        return python_text(self._exported(index), "jax")

    def torch(self, index: int | None = None) -> str:
        """``to_numpy(index)`` for PyTorch; ``params``, a ``torch.nn.Parameter`` for example, can be trained.

        Raises
        ------
        OperandError
            For a formula with ``gamma``, which PyTorch does not have.

        Examples
        --------
        >>> X = np.arange(1.0, 9.0)[:, None]
        >>> print(ek.SymbolicRegressor(niterations=0, pool_size=0).fit(X, 3 * X[:, 0]).torch().splitlines()[-1].strip())
        return p1 * x1
        """
        return python_text(self._exported(index), "torch")

    def explore(
        self, pattern: str | None = None, max_size: int | None = None, best: int | None = 50, anywhere: bool = True
    ) -> pd.DataFrame:
        """The best formulas of ``visited_``, all that the search evaluated, that hold a pattern.

        Parameters
        ----------
        pattern : str, optional
            A formula as text.  Names that are no columns stand for anything, ``p1``, ``p2``, … for numbers: the same
            name for the same each time.  ``a * exp(-b * x1)`` is in ``2 + 3 * exp(-0.5 * x1)``, and
            ``exp(x1 * 4) * x2`` is such a formula: operands have any order, and a name that comes once any sign.
        max_size : int, optional
            Tokens of a formula at most.
        best : int, optional
            Number of formulas at most; None: all.
        anywhere : bool
            Whether any part of a formula may be the pattern; else the formula itself has to be.

        Returns
        -------
        DataFrame
            Columns "complexity", "loss" and "equation", the least loss first; the index is the place in ``visited_``.
            The loss is that of the step that evaluated it: in generations at a sample of 256 rows.

        Raises
        ------
        ArgumentError
            Where no formulas were kept, or a pattern has more than some ten sums and products.
        ParseError
            For a pattern that is no formula.

        Examples
        --------
        >>> import exprkit as ek
        >>> X = [[1.0], [2.0], [3.0], [5.0], [7.0], [9.0], [12.0]]
        >>> model = ek.SymbolicRegressor(niterations=0, pool_size=300, random_state=0).fit(X, [3 * x for x, in X])
        >>> model.explore("a * x1", best=1)["equation"].tolist()
        ['3 * x1']
        """
        check_is_fitted(self, "_front")
        with brought_by("search"):
            import pandas as pd

        if not len(self.visited_):
            raise ArgumentError(
                "no formula was kept: keep_visited= of the fit was 0, or the file is of an older version"
            )
        rows = holders(self.visited_.pop, pattern, best, max_size, anywhere)
        chosen = self.visited_.pop[rows]
        columns = {"complexity": chosen.n_tokens, "loss": self.visited_.loss[rows], "equation": chosen.texts()}
        return pd.DataFrame(columns, index=rows)

    def plot_front(self, ax: Any = None) -> Any:
        """Plot loss over complexity into ``ax`` (default: new), with the selected formula marked; returns the axes.

        >>> X = np.arange(1.0, 9.0)[:, None]
        >>> ek.SymbolicRegressor(niterations=0, pool_size=0).fit(X, 3 * X[:, 0]).plot_front().get_xlabel()
        'complexity (tokens)'
        """
        chosen = self._index(None)  # which complains where nothing is fitted
        with brought_by("notebooks"):
            import matplotlib.pyplot as plt

        if not (ax is None or isinstance(ax, plt.Axes)):
            raise ArgumentError(f"ax must be axes of Matplotlib, as plt.subplots() gives them, not {brief(ax)}")
        if ax is None:
            ax = plt.subplots(figsize=(5, 3.2), layout="constrained")[1]
        sizes, losses = zip(*((entry.size, entry.loss) for entry in self._front.entries), strict=True)
        draw_front(ax, sizes, losses)
        ax.plot(sizes[chosen], max(losses[chosen], LEAST_DRAWN), "o", ms=9, mfc="none", mec="C3")
        return ax

    @functools.cached_property
    def reduction_(self) -> Reduction:
        """The products of powers of the variables that y depends on, as ``ek.reduce`` finds them.

        Raises
        ------
        AttributeError
            For a model that was loaded or unpickled: it does not have the data of its fit.
        """
        if self._data is None:
            raise AttributeError("reduction_ needs the data of the fit, which a model that was loaded does not have")
        return reduction_of(*self._data, self._front.names, self._target_name)

    def plot(self, index: int | None = None, X: Any = None, y: Any = None) -> Figure:
        """Formula ``index`` (as for ``get_best``) beside the data, and what it leaves of y, as ``FitResult.plot``.

        Parameters
        ----------
        index : int, optional
        X, y : array or table, optional
            Other data than those of the fit; a model that was loaded or unpickled has none of its own.

        Returns
        -------
        matplotlib Figure

        Examples
        --------
        >>> X = np.arange(1.0, 9.0)[:, None]
        >>> figure = ek.SymbolicRegressor(niterations=0, pool_size=0).fit(X, 3 * X[:, 0]).plot()
        >>> figure.savefig("law.pdf")
        """
        chosen = self._index(index)
        if (X is None) != (y is None) or (X is None and self._data is None):
            raise ArgumentError("plot needs X and y: a model that was loaded does not have the data of its fit")
        if X is None:
            assert self._data is not None
            X, y = self._data
        else:
            X, y = self._columns(X), np.asarray(DataTable(X, y).target_numbers(), np.float64)
        formula = self._front.named(chosen)
        curve = self._front.short(chosen), formula, lambda X: values_of([formula], X)[0]
        return beside_data([curve], X, y, self._front.names, target=self._target_name)

    def __str__(self) -> str:
        """The formulas, the selected one marked; before a fit the parameters."""
        if not hasattr(self, "_front"):
            return repr(self)
        front, chosen = self._front, self._index(None)
        rows = [("", "complexity", "loss", "description", "equation")]
        rows += [
            (MARK * (i == chosen), str(entry.size), f"{entry.loss:.4g}", f"{front.lengths[i]:.1f}", front.short(i))
            for i, entry in enumerate(front.entries)
        ]
        widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
        lines = ["  ".join([*map(str.rjust, row[:-1], widths), row[-1]]) for row in rows]
        return "\n".join([*lines, *self._notes()])

    def _repr_html_(self) -> str:
        """In a notebook: the parameters, and after a fit the front."""
        parameters: str = self._repr_html_inner()
        if not hasattr(self, "_front"):
            return parameters
        columns = ["complexity", "loss", "score", "description_length", "equation"]
        table, chosen = self.equations_[columns], self._index(None)
        table = table.assign(equation=[self._front.short(i) for i in range(len(table))])
        table.index = [MARK if i == chosen else str(i) for i in range(len(table))]
        notes = [f"<p>{note}</p>" for note in self._notes()]
        return "".join([parameters, table.to_html(float_format="{:.4g}".format), *notes])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name not in NOT_KEPT}

    # ── inside ──

    def _described_table(self) -> pd.DataFrame:
        """``equations_`` but for the column "selected"."""
        with brought_by("search"):
            import pandas as pd

        front, every, used = self._front, range(len(self._front.entries)), ~np.isnan(self._front.numbers)
        formulas = [front.named(i) for i in every]
        return pd.DataFrame(
            {
                "complexity": [entry.size for entry in front.entries],
                "loss": [entry.loss for entry in front.entries],
                "score": scores(front.entries, 0.0),
                "equation": [front.text(formula) for formula in formulas],
                "description_length": front.lengths,
                "sympy_format": [formula.sympy() for formula in formulas],
                "latex": [front.latex(i) for i in every],
                "parameters": [front.numbers[i][used[i]].tolist() for i in every],
                "parameter_errors": [front.errors[i][used[i]].tolist() for i in every],
            }
        )

    def _notes(self) -> list[str]:
        """Notes on the rows that were searched, and their weights."""
        notes = []
        if self.n_rows_searched_ < self._n_rows:
            notes.append(f"searched in {self.n_rows_searched_:,} of {self._n_rows:,} rows, fitted to all")
        if self.noise_ == "proportional":
            notes.append("rows weigh less where y is large, as noise grows with y (noise='constant' for equal weights)")
        if any(refused := getattr(self, "refused_", {}).values()):
            broken, unproved = refused
            notes.append(f"refused for their shape: {broken:,} formulas that break it, {unproved:,} not proved")
        return notes

    def _named(self, index: int | None) -> Expression:
        chosen = self._index(index)  # which complains where nothing is fitted
        return self._front.named(chosen)

    def _forget(self) -> None:
        """Nothing of an earlier fit is left that is made of it when it is asked for."""
        for derived in ("_table", "reduction_", "_template"):
            self.__dict__.pop(derived, None)

    def _exported(self, index: int | None) -> Expression:
        """The same, where no number of it goes by category, which Python functions do not have."""
        formula = self._named(index)
        if self._template is not None and self._template.group is not None:
            raise ArgumentError(f"numbers go by {self._template.group!r}, which only predict, tables and texts show")
        return formula

    def _columns(self, X: Any) -> np.ndarray:
        """The columns of X that formulas are over; where numbers go by category these stand behind them."""
        if self._template is None or self._template.group is None:
            return checked_rows(self, X)
        table = DataTable(X)
        codes = self._template.codes(table.taken(self._template.group))
        return self._template.columns(checked_rows(self, table.X), codes)

    def _index(self, index: int | None) -> int:
        check_is_fitted(self, "_front")
        front, n = self._front, len(self._front.entries)
        if index is None:
            return selected(front, self.model_selection, float(self.parsimony))
        return whole("index", index, -n, n - 1) % n


def _scientific(number: float) -> str:
    mantissa, _, exponent = f"{number:.3g}".partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa
