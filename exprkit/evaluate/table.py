"""The data of a search or an estimator, checked where a user hands them over.

In: an array or a table, a target, weights.  Out: ``Table``, which scikit-learn's checks follow, or ``CheckedData``.

    >>> import pandas as pd
    >>> from exprkit.evaluate.table import Table
    >>> Table(pd.DataFrame({"Re": [1.0, None]})).frame()
    Traceback (most recent call last):
    exprkit.errors.DataError: X: column 'Re' contains NaN, it lacks 1 of 2 values: leave those rows out, or fill them in
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from exprkit.errors import ArgumentError, DataError, brief, brought_by, number_of
from exprkit.evaluate import inputs, tables
from exprkit.evaluate.rounding import harm
from exprkit.expressions.population import Population
from exprkit.numbers import as_numbers
from exprkit.text.tokens import VARIABLE

DOUBLE = np.dtype(np.float64)


class Table:
    """X with the y and the weights of its rows; those that are names of its columns are taken out of it.

    Attributes
    ----------
    X, y, weights : as they were given
    target : str
        The name of y.

    Raises
    ------
    DataError
        For a column that there is not, and for masked values.
    """

    def __init__(self, X: Any, y: Any = None, weights: Any = None) -> None:
        for name, values in {"X": X, "y": y, "sample_weight": weights}.items():
            if np.ma.is_masked(values):
                raise DataError(f"{name} has masked values: leave those rows out, or give them weight 0 and a number")
        self.target, self.X = tables.name_of_target(X, y), tables.table_of(X)
        columns: dict[str, Any] = {}
        for name in dict.fromkeys(one for one in (y, weights) if isinstance(one, str)) if self._has_names else ():
            self.X, columns[name] = tables.target_of(self.X, name)
        self.y, self.weights = (columns.get(one, one) if isinstance(one, str) else one for one in (y, weights))

    @property
    def _has_names(self) -> bool:
        return tables.is_table(self.X)

    def frame(self) -> Any:
        """X; a dict, a Dataset, a Series or an array with named fields as a DataFrame.  Single numbers are one row.

        Raises
        ------
        DataError
            For a column that is no use, and for what is no table and no array.
        """
        X = self.X
        if self._has_names and isinstance(X, Mapping):
            with brought_by("search"):
                import pandas as pd
            lengths = {name: len(one) for name, one in X.items() if _is_sequence(one)}
            tables.refuse_lengths(lengths)
            X = pd.DataFrame(dict(X), index=None if lengths else [0])
        if not _is_sequence(X) and not hasattr(X, "__array__"):
            raise DataError(f"X must be an array (n_rows, n_vars) or a table, not {brief(X)}")
        if tables.is_table(X):
            _refuse_columns(X)
        if isinstance(X, np.ndarray) and X.ndim == 2:
            for i in range(X.shape[1]):
                _refuse_rounding(f"X: column x{i + 1}", X[:, i])
        return X

    def target_numbers(self) -> Any:
        """y; as numbers where it is a table's column, a list or of objects.

        Raises
        ------
        DataError
            For texts, dates, categories, a single number, and for labels of X's rows in another order.
        """
        y = self.y
        tables.check_order(tables.labels_of(self.X), y=y, sample_weight=self.weights)
        _refuse_name("y", y)
        numbers = y if getattr(getattr(y, "dtype", None), "kind", "O") in "fiubc" else as_numbers("y", y)
        if getattr(numbers, "ndim", 1) == 0:
            raise DataError(f"y should be a 1d array, a number for every row of X, not {brief(y)}")
        flat = np.asarray(numbers).ravel()
        _refuse_rounding("y", flat)
        if flat.dtype.kind in "iuf":
            inputs.refuse_sizes(flat)
        return numbers

    def weight_numbers(self) -> Any:
        """Weights, as numbers where they are several.

        Raises
        ------
        DataError
            For texts, dates and categories.
        """
        _refuse_name("sample_weight", self.weights)
        alone = isinstance(self.weights, int | float | None)
        return self.weights if alone else as_numbers("sample_weight", self.weights)


def _refuse_columns(X: Any) -> None:
    """An error for a table's column that holds no numbers, lacks some, or has another's name, or for none."""
    names = list(X.columns)
    if not names:
        raise DataError("X has no columns: nothing is left that a formula could be made of")
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"X: {number_of(names.count(name), 'column')} are called {name!r}")
    for name in names:
        column = as_numbers(f"X: column {name!r}", X[name])
        _refuse_rounding(f"X: column {name!r}", column)
        if lacking := int(np.isnan(column).sum()):
            share = f"{lacking:,} of {number_of(len(X), 'value')}"
            raise DataError(f"X: column {name!r} contains NaN, it lacks {share}: leave those rows out, or fill them in")
        if endless := int(np.isinf(column).sum()):
            share = f"{endless:,} of {number_of(len(X), 'value')}"
            raise DataError(f"X: column {name!r} is infinite in {share}: leave those rows out")


def _refuse_rounding(what: str, values: np.ndarray) -> None:
    """An error for numbers that float64 can not tell apart: whole ones beyond 2^53, say."""
    if values.dtype.kind in "iuf" and (lost := harm(values, np.dtype(np.float64))):
        raise DataError(f"{what}: {lost}")


def _is_sequence(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str | bytes | Set) and getattr(value, "ndim", 1) != 0


def _refuse_name(what: str, values: Any) -> None:
    if isinstance(values, str):
        raise DataError(f"{what} is the text {brief(values)}: give the numbers, table[{brief(values)}] without it in X")


@dataclass(frozen=True, eq=False)
class CheckedData:
    """The data of a search; X and y in float64."""

    X: np.ndarray  # (n_points, n_vars)
    y: np.ndarray
    weights: np.ndarray | None
    variables: tuple[str, ...] | None

    @classmethod
    def of(cls, X: Any, y: Any, weights: Any = None, sigma: Any = None, drops: bool = False) -> CheckedData:
        """Data of fits with all columns; ``drops``: without the points at which y or a column is missing.

        Raises
        ------
        ArgumentError, DataError
        """
        X, y = tables.target_of(X, y)
        names = tuple(tables.names_in(X)) if tables.is_table(X) else None
        if drops:
            n = len(names) if names is not None else np.asarray(X).shape[-1]
            codes = np.arange(n, dtype=np.uint64)
            variables = Population(np.full(n, VARIABLE, np.uint8), codes, np.arange(n + 1), variables=names)
            one = sigma is None or np.isscalar(sigma)
            sigma = sigma if one else tables.complete(X, y, sigma, variables)[2]
            X, y, weights = tables.complete(X, y, weights, variables)
        tables.check_order(tables.labels_of(X), weights=weights, sigma=sigma)
        empty = Population([], [], [0], variables=names)
        data = inputs.data_matrix(X, empty, DOUBLE)
        for reason in data.unusable.values():  # a search uses all columns
            raise DataError(reason)
        columns = np.asarray(inputs.on_host(data.values), np.float64)
        if 0 in columns.shape:
            raise DataError(f"X has no {'points' if len(columns) == 0 else 'columns'}: its shape is {columns.shape}")
        target = _vector("y", y, len(columns))
        if sigma is not None:
            if weights is not None:
                raise ArgumentError("weights are 1 / sigma^2: give only one of them")
            deviations = _vector("sigma", np.full(len(columns), sigma) if np.isscalar(sigma) else sigma, len(columns))
            if not (np.isfinite(deviations) & (deviations > 0)).all():
                raise ArgumentError("sigma must be > 0 at every point")
            weights = 1 / deviations**2
        weights = inputs.on_host(inputs.weights_vector(weights, len(columns), DOUBLE))
        if weights is not None and not (weights > 0).any():
            raise DataError("all weights are 0: there are no points to fit")
        inputs.refuse_infinite(columns, weights, empty)
        inputs.refuse_sizes(target if weights is None else target[weights > 0])
        return cls(columns, target, weights, names)


def _vector(name: str, values: Any, n_points: int) -> np.ndarray:
    return np.asarray(inputs.on_host(inputs.point_vector(name, values, n_points, DOUBLE)))
