"""Checks of tables that no formula can be searched in, reported by column; scikit-learn makes the other checks.

In: X and y as they are given.  Out: nothing, or an error.

    >>> import pandas as pd
    >>> from exprkit.regression.estimator.refusals import refuse_columns
    >>> refuse_columns(pd.DataFrame({"Re": [1.0, None], "pipe": ["steel", "iron"]}))
    Traceback (most recent call last):
    exprkit.errors.DataError: X: column 'pipe' holds 'steel', which is not a number: leave it out, or convert it
"""

from __future__ import annotations

from typing import Any

import numpy as np

from exprkit.errors import DataError, brief, number_of
from exprkit.evaluate.tables import check_order, labels_of

SMALLEST, LARGEST = 1e-145, 1e150  # of y: of others the squares leave the range of float64


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
