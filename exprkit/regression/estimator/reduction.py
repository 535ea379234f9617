"""``exprkit.reduce``: the products of powers of the variables, and their differences, that data depend on.

In: X and y.  Out: a ``Reduction``, its groups as expressions and as columns, formulas of them converted back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from exprkit.errors import ArgumentError, brought_by, checks_keywords, checks_methods
from exprkit.evaluate.tables import DataTable
from exprkit.expressions.expression import Expression
from exprkit.expressions.parser import parse
from exprkit.regression.problem.rows import Rows
from exprkit.regression.rules.groups import UnitSystem
from exprkit.regression.rules.scalings import Scaling, scaling
from exprkit.regression.rules.translations import Translations, translations
from exprkit.text.tokens import Words

with brought_by("search"):
    from sklearn.utils.validation import check_X_y
    from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINT = 4.0  # points, of the plot


@checks_methods
@dataclass(frozen=True, repr=False)
class Reduction:
    """Data as a factor times a function of fewer variables: ``y = factor * F(groups)``.

    Attributes
    ----------
    groups : tuple of Expression
        The products of powers that y depends on, of variables or of differences and sums of two that stand for both;
        all variables where there is no reduction.
    factor : Expression
        A product of powers; 1 where y has none.
    evidence : float
        How many times likelier the data are, as a logarithm, for a smooth function of the groups than for one of all
        variables; nan where there is no reduction.
    noise : float
        The standard deviation that no smooth function of the groups explains, as a share of the root mean square of y.
    X, y : array, (n_rows, n_vars) and (n_rows,)
        The rows that were reduced.
    variables : tuple of str
        The names of X's columns.
    target : str
        The name of y.
    pairs : Translations
        The differences and sums that stand for two variables each; none of most data.
    system : UnitSystem
        The columns, some of them ``pairs``, that stand in the factor and in the groups, with their powers.

    Examples
    --------
    >>> import exprkit as ek
    >>> points = ek.data.rough_pipe()
    >>> type(ek.reduce(points, points.y)).__name__
    'Reduction'
    """

    groups: tuple[Expression, ...]
    factor: Expression
    evidence: float
    noise: float
    X: np.ndarray
    y: np.ndarray
    variables: tuple[str, ...]
    target: str
    pairs: Translations
    system: UnitSystem

    @property
    def is_reduced(self) -> bool:
        """Whether there are fewer groups than variables."""
        return not np.isnan(self.evidence)

    def transform(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Values of the groups, (n_rows, n_groups), and of the factor, (n_rows,), at rows of X, (n_rows, n_vars).

        >>> x = np.random.default_rng(0).uniform(1, 2, (50, 2))
        >>> reduction = ek.reduce(x, np.sin(x[:, 0] / x[:, 1]))
        >>> [values.shape for values in reduction.transform(x)]
        [(50, 1), (50,)]
        """
        return self.system.columns(self.pairs.columns(np.asarray(DataTable(X).frame(), np.float64))[0])

    def restored(self, formula: str | Expression) -> Expression:
        """A formula F of the groups x1, x2, ... as one of the variables, times the factor.

        Raises
        ------
        ArgumentError
            For a formula of more variables than there are groups.

        Examples
        --------
        >>> x = np.random.default_rng(0).uniform(1, 2, (50, 2))
        >>> print(ek.reduce(x, np.sin(x[:, 0] / x[:, 1])).restored("sin(x1)"))
        sin(x1 / x2)
        """
        (expression,) = parse(formula) if isinstance(formula, str) else [formula]
        if expression.n_vars > len(self.groups):
            raise ArgumentError(f"the formula has {expression.n_vars} variables, there are {len(self.groups)} groups")
        return _named(self.pairs.restored(self.system.restored(expression)), self.variables)

    def plot(self) -> Figure:
        """The data collapsed: y over the factor against each group, matplotlib's Figure.

        >>> x = np.random.default_rng(0).uniform(1, 2, (50, 2))
        >>> figure = ek.reduce(x, np.sin(x[:, 0] / x[:, 1])).plot()  # figure.savefig("collapse.pdf")
        """
        with brought_by("notebooks"):
            import matplotlib.pyplot as plt

        columns, factor = self.transform(self.X)
        n = max(1, len(self.groups))
        figure, axes = plt.subplots(1, n, figsize=(4.5 * n, 3.7), layout="constrained", squeeze=False, sharey=True)
        plt.close(figure)
        axes[0, 0].set_ylabel(self.target if str(self.factor) == "1" else f"{self.target} / ({self.factor})")
        for axis, column, group in zip(axes[0], columns.T, self.groups, strict=False):
            axis.plot(column, self.y / factor, ".", markersize=POINT)
            axis.set_xlabel(str(group))
        if not self.groups:
            axes[0, 0].plot(self.y / factor, ".", markersize=POINT)
            axes[0, 0].set_xlabel("row")
        return figure

    def __str__(self) -> str:
        groups, factor = " and ".join(map(str, self.groups)), str(self.factor)
        if not self.is_reduced:
            return f"{self.target} as a function of {groups}: no reduction was found"
        of_groups = f"a function of {groups} only" if groups else "a number"
        text = of_groups if factor == "1" else f"{factor} times {of_groups}"
        return f"{self.target} is {text} (log evidence {self.evidence:+.0f}, noise {self.noise:.1g})"

    __repr__ = __str__


@checks_keywords
def reduce(X: Any, y: Any, *, weights: Any = None) -> Reduction:
    """The products of powers of the variables, and differences of them, on which data depend.

    Buckingham's theorem without units.

    Parameters
    ----------
    X : array or table, (n_rows, n_vars)
        As ``SymbolicRegressor.fit`` takes it.
    y : array, (n_rows,), or str
        The target, or the name of its column.
    weights : array, (n_rows,), or str, optional
        Rows of weight 0 are left out.

    Returns
    -------
    Reduction
        The same for the same data.  At most 2,000 rows are looked at, which takes about a second; of fewer than 40, or
        more than 12 columns that vary, nothing is reduced.

    Raises
    ------
    DataError, ValueError
        For data that ``SymbolicRegressor.fit`` refuses.

    Notes
    -----
    Rows are looked at whose variables and y have the signs that are most frequent.  A Gaussian process in the
    logarithms tells the gradients, which span the groups (active subspaces, P. G. Constantine, 2015); their powers are
    rounded to simple fractions, and accepted where the evidence for a function of the groups is no less than for one
    of all variables.  Where the derivatives by two variables are opposite or equal, their sum or difference stands for
    both, if there are fewer groups then.

    Examples
    --------
    >>> import exprkit as ek
    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(1, 3, (300, 4))
    >>> y = X[:, 0] * np.tanh(X[:, 1] * X[:, 2] / X[:, 3])
    >>> reduction = ek.reduce(X, y)
    >>> print(*reduction.groups, "|", reduction.factor)
    x2 * x3 / x4 | x1
    >>> print(reduction.restored("tanh(x1)"))
    tanh(x2 * x3 / x4) * x1
    """
    table = DataTable(X, y, weights)
    frame, w = table.frame(), table.weight_numbers()
    names = DataTable.free_names(frame.columns) if hasattr(frame, "columns") else None
    checked, values = check_X_y(frame, table.target_numbers(), dtype=np.float64, y_numeric=True)
    rows = Rows(checked, values, w)
    return reduction_of(rows.X, rows.y, names, table.target)


@threadpool_limits.wrap(limits=1, user_api="blas")  # of 200 rows: on a busy machine more threads take 20 times as long
def reduction_of(X: np.ndarray, y: np.ndarray, names: Words, target: str) -> Reduction:
    """The reduction of data that have been checked; without names the variables are x1, x2, ..."""
    n = X.shape[1]
    variables, none = names or tuple(f"x{k + 1}" for k in range(n)), Translations((), n)
    each = [_scales(none, X, y)]
    if (pairs := translations(Rows(X, y))) is not None:
        each.append(_scales(pairs, X, y))
    pairs, scales = min(each, key=lambda one: len(one[1].system.remaining))
    system = scales.system
    alone = system._replace(y_powers=(0.0,) * len(system.repeating))
    groups = [alone.restored(parse([f"x{k + 1}"])[0]) for k in range(len(system.remaining))]
    *of_variables, factor = (
        _named(pairs.restored(part), variables) for part in [*groups, system.restored(parse(["1"])[0])]
    )
    return Reduction(tuple(of_variables), factor, scales.evidence, scales.noise, X, y, variables, target, pairs, system)


def _scales(pairs: Translations, X: np.ndarray, y: np.ndarray) -> tuple[Translations, Scaling]:
    """Differences and sums, and the groups of them and of the other variables, with the evidence for both."""
    columns = pairs.columns(X)[0]
    if (scales := scaling(Rows(columns, y))) is not None:
        return pairs, scales._replace(evidence=scales.evidence + pairs.evidence)
    n, evidence = columns.shape[1], pairs.evidence if pairs.pairs else np.nan
    return pairs, Scaling(UnitSystem((), tuple(range(n)), ((),) * n, (), n), evidence, pairs.noise)


def _named(formula: Expression, names: Words) -> Expression:
    return Expression(formula.kinds, formula.values, names)
