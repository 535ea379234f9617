"""Checks of tables that no formula can be searched in, reported by column; scikit-learn makes the other checks.

In: X, y and weights as they are given.  Out: arrays, or an error.

    >>> import pandas as pd
    >>> from exprkit.regression.estimator.refusals import refuse_columns
    >>> refuse_columns(pd.DataFrame({"Re": [1.0, None], "pipe": ["steel", "iron"]}))
    Traceback (most recent call last):
    exprkit.errors.DataError: X: column 'pipe' holds 'steel', which is not a number: leave it out, or convert it
"""

from __future__ import annotations

from typing import Any

import numpy as np

from exprkit.errors import ArgumentError, DataError, brief, brought_by, number_of
from exprkit.evaluate.tables import check_order, labels_of

with brought_by("search"):
    from sklearn.utils.validation import _check_sample_weight, validate_data

SMALLEST, LARGEST = 1e-145, 1e150  # of y: of others the squares leave the range of float64


def checked_data(model: Any, X: Any, y: Any, sample_weight: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """X, y and weights of a fit as float64 arrays; the estimator remembers X's columns.

    Raises
    ------
    ArgumentError, DataError, ValueError
    """
    refuse_masks(X=X, y=y, sample_weight=sample_weight)
    refuse_columns(X)
    refuse_target(X, y, sample_weight)
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
    refuse_columns(X)
    return np.ascontiguousarray(validate_data(model, X, reset=False, dtype=np.float64))


def refuse_masks(**arrays: Any) -> None:
    """An error for masked values, which scikit-learn would take for numbers like all others.

    Raises
    ------
    DataError
    """
    for name, values in arrays.items():
        if np.ma.is_masked(values):
            raise DataError(f"{name} has masked values: leave those rows out, or give them weight 0 and a number")


def refuse_columns(X: Any) -> None:
    """An error for a DataFrame's column that holds no numbers, lacks some, or has another's name, or for none.

    Raises
    ------
    DataError
    """
    if not (hasattr(X, "columns") and hasattr(X, "iloc")):
        return
    names = list(X.columns)
    if not names:
        raise DataError("X has no columns: nothing is left that a formula could be made of")
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"X: {number_of(names.count(name), 'column')} are called {name!r}")
    for name in names:
        column = X[name]
        there = column[column.notna()]
        for value in there.iloc[: 1 if column.dtype != object else None]:
            if not _is_real(value):
                what = f"X: column {name!r} holds {brief(value)}, which is not a number"
                raise DataError(f"{what}: leave it out, or convert it")
    for name in names:
        if lacking := int(X[name].isna().sum()):
            share = f"{lacking:,} of {number_of(len(X), 'value')}"
            raise DataError(f"X: column {name!r} contains NaN, it lacks {share}: leave those rows out, or fill them in")


def refuse_target(X: Any, y: Any, sample_weight: Any) -> None:
    """An error for a target of texts, and for what has the labels of X's rows in another order.

    Raises
    ------
    DataError
    """
    check_order(labels_of(X), y=y, sample_weight=sample_weight)
    if getattr(getattr(y, "dtype", None), "kind", "O") in "fiub":
        return
    for value in y if hasattr(y, "__len__") else ():
        if isinstance(value, str):
            raise DataError(f"y holds {str(value)!r}, which is not a number: convert it (pandas.to_numeric)")


def _is_real(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, str)


def refuse_sizes(y: np.ndarray) -> None:
    """An error for numbers whose squares can not be added up.

    Raises
    ------
    DataError
    """
    size = float(np.abs(y).max(initial=0.0))
    if size and not SMALLEST < size < LARGEST:
        raise DataError(f"y is up to {size:.3g}, and the squares of such numbers can not be added up: search for "
                        f"y / {10.0 ** np.round(np.log10(size)):.3g}")  # fmt: skip
