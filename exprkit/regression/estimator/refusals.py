"""Checks of tables that no formula can be searched in, reported by column; scikit-learn makes the other checks.

In: X, y and weights as they are given.  Out: arrays, or an error.

    >>> import pandas as pd
    >>> from exprkit.regression.estimator.refusals import refuse_columns
    >>> refuse_columns(pd.DataFrame({"Re": [1.0, None]}))
    Traceback (most recent call last):
    exprkit.errors.DataError: X: column 'Re' contains NaN, it lacks 1 of 2 values: leave those rows out, or fill them in
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from exprkit.errors import ArgumentError, DataError, brief, brought_by, number_of
from exprkit.evaluate.inputs import refuse_sizes
from exprkit.evaluate.rounding import harm
from exprkit.evaluate.tables import check_order, is_table, labels_of, refuse_lengths, table_of
from exprkit.evaluate.tables import target_of as column_apart
from exprkit.numbers import as_numbers

with brought_by("search"):
    import pandas as pd
    from sklearn.utils.validation import _check_sample_weight, validate_data


def checked_data(model: Any, X: Any, y: Any, sample_weight: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """X, y and weights of a fit as float64 arrays; the estimator remembers X's columns.

    Raises
    ------
    ArgumentError, DataError, ValueError
    """
    refuse_masks(X=X, y=y, sample_weight=sample_weight)
    X = frame_of(X)
    y, sample_weight = target_of(X, y, sample_weight), weights_of(sample_weight)  # which have no labels any more
    X, y = validate_data(model, X, y, dtype=np.float64, y_numeric=True)
    refuse_sizes(y)
    if sample_weight is None:
        return X, np.asarray(y, np.float64), None
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise ArgumentError("sample_weight is 0 at every row: nothing is left to be fitted")
    return X, np.asarray(y, np.float64), weights


def checked_rows(model: Any, X: Any) -> np.ndarray:
    """X of a prediction as a float64 array with the columns of the fit.

    Raises
    ------
    DataError, ValueError
    """
    refuse_masks(X=X)
    X, target = frame_of(X), getattr(model, "_target_name", None)
    if target in getattr(X, "columns", ()) and target not in getattr(model, "feature_names_in_", (target,)):
        X = column_apart(X, target)[0]  # the table that was fitted
    return np.ascontiguousarray(validate_data(model, X, reset=False, dtype=np.float64))


def named_columns(X: Any, *vectors: Any) -> tuple[Any, ...]:
    """X and vectors such as y; those that are names of columns of a table X, or of a CSV file, are taken out of it.

    Raises
    ------
    DataError
        For a column that there is not.
    """
    if any(isinstance(vector, str) for vector in vectors) and is_table(table_of(X)):
        X, columns = table_of(X), {name: None for name in vectors if isinstance(name, str)}
        for name in columns:
            X, columns[name] = column_apart(X, name)
        vectors = tuple(columns[vector] if isinstance(vector, str) else vector for vector in vectors)
    return X, *vectors


def refuse_masks(**arrays: Any) -> None:
    """An error for masked values, which scikit-learn would take for numbers like all others.

    Raises
    ------
    DataError
    """
    for name, values in arrays.items():
        if np.ma.is_masked(values):
            raise DataError(f"{name} has masked values: leave those rows out, or give them weight 0 and a number")


def frame_of(X: Any) -> Any:
    """A dict, a Dataset, a Series, an array with named fields as a DataFrame; other tables and arrays as they are.

    A dict of single numbers is one row.

    Raises
    ------
    DataError
        For a column that is no use, and for what is no table and no array.
    """
    X = table_of(X)
    if is_table(X) and isinstance(X, Mapping):
        lengths = {name: len(column) for name, column in X.items() if _is_sequence(column)}
        refuse_lengths(lengths)
        X = pd.DataFrame(dict(X), index=None if lengths else [0])
    if not _is_sequence(X) and not hasattr(X, "__array__"):
        raise DataError(f"X must be an array (n_rows, n_vars) or a table, not {brief(X)}")
    X = as_numbers("X", X) if isinstance(X, list | tuple) else X
    refuse_columns(X)
    if isinstance(X, np.ndarray) and X.ndim == 2:
        for i in range(X.shape[1]):
            refuse_rounding(f"X: column x{i + 1}", X[:, i])
            refuse_gaps(f"X: column x{i + 1}", X[:, i])
    return X


def refuse_columns(X: Any) -> None:
    """An error for a table's column that holds no numbers, lacks some, or has another's name, or for none.

    Raises
    ------
    DataError
    """
    if not is_table(X):
        return
    names = list(X.columns)
    if not names:
        raise DataError("X has no columns: nothing is left that a formula could be made of")
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"X: {number_of(names.count(name), 'column')} are called {name!r}")
    for name in names:
        column = as_numbers(f"X: column {name!r}", X[name])
        refuse_rounding(f"X: column {name!r}", column)
        refuse_gaps(f"X: column {name!r}", column)


def refuse_gaps(what: str, values: np.ndarray) -> None:
    """An error for numbers that are missing or infinite.

    Raises
    ------
    DataError
    """
    if values.dtype.kind != "f":
        return
    n = number_of(values.size, "value")
    if lacking := int(np.isnan(values).sum()):
        raise DataError(f"{what} contains NaN, it lacks {lacking:,} of {n}: leave those rows out, or fill them in")
    if endless := int(np.isinf(values).sum()):
        raise DataError(f"{what} is infinite in {endless:,} of {n}: leave those rows out")


def refuse_rounding(what: str, values: np.ndarray) -> None:
    """An error for numbers that float64 can not tell apart: whole ones beyond 2^53, say.

    Raises
    ------
    DataError
    """
    if values.dtype.kind in "iuf" and (lost := harm(values, np.dtype(np.float64))):
        raise DataError(f"{what}: {lost}")


def _is_sequence(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str | bytes | Set) and getattr(value, "ndim", 1) != 0


def target_of(X: Any, y: Any, sample_weight: Any) -> Any:
    """y; as numbers where it is a table's column, a list or of objects.

    Raises
    ------
    DataError
        For texts, dates and categories, for a single number, and for what has the labels of X's rows in another order.
    """
    check_order(labels_of(X), y=y, sample_weight=sample_weight)
    _refuse_name("y", y)
    numbers = y if getattr(getattr(y, "dtype", None), "kind", "O") in "fiubc" else as_numbers("y", y)
    if getattr(numbers, "ndim", 1) == 0:
        raise DataError(f"y should be a 1d array, a number for every row of X, not {brief(y)}")
    refuse_rounding("y", np.asarray(numbers).ravel())
    refuse_gaps("y", np.asarray(numbers))
    return numbers


def _refuse_name(what: str, values: Any) -> None:
    if isinstance(values, str):
        raise DataError(f"{what} is the text {brief(values)}: give the numbers, table[{brief(values)}] without it in X")


def weights_of(sample_weight: Any) -> Any:
    """Weights as numbers where they are several.

    Raises
    ------
    DataError
        For texts, dates and categories.
    """
    _refuse_name("sample_weight", sample_weight)
    alone = isinstance(sample_weight, int | float | None)
    return sample_weight if alone else as_numbers("sample_weight", sample_weight)
