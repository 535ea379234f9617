"""scikit-learn's checks of the data of an estimator, after those of a ``DataTable``.

In: a model and a ``DataTable``.  Out: float64 arrays, or an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from exprkit.errors import ArgumentError, brought_by
from exprkit.evaluate.tables import DataTable

with brought_by("search"):
    from sklearn.utils.validation import _check_sample_weight, validate_data


def checked_data(
    model: Any, table: DataTable, labels: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """X, y and weights of a fit as float64 arrays, y as it is if it holds labels; the estimator remembers X's columns.

    Raises
    ------
    ArgumentError, DataError, ValueError
    """
    if not labels and getattr(table.y, "ndim", 1) == 2 and table.y.shape[1] > 1:
        raise ArgumentError(f"y has {table.y.shape[1]} columns: ek.MultiTargetRegressor is for several targets")
    X, y, sample_weight = table.frame(), table.y if labels else table.target_numbers(), table.weight_numbers()
    X, y = validate_data(model, X, y, dtype=np.float64, y_numeric=not labels)
    y = y if labels else np.asarray(y, np.float64)
    if sample_weight is None:
        return X, y, None
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise ArgumentError("sample_weight is 0 at every row: nothing is left to be fitted")
    return X, y, weights


def checked_rows(model: Any, X: Any) -> np.ndarray:
    """X of a prediction as a float64 array with the columns of the fit.

    Raises
    ------
    DataError, ValueError
    """
    table, target = DataTable(X), getattr(model, "_target_name", None)
    if target in table.names and target not in getattr(model, "feature_names_in_", (target,)):
        table = DataTable(X, target, labels=True)  # the table that was fitted
    X = table.frame()
    return np.ascontiguousarray(validate_data(model, X, reset=False, dtype=np.float64))


def names_of(model: Any) -> tuple[str, ...] | None:
    """The columns' names as formulas have them; None where columns have no names."""
    return DataTable.free_names(model.feature_names_in_) if hasattr(model, "feature_names_in_") else None


def named_rows(model: Any, X: np.ndarray) -> Any:
    """Columns by the names that the fit had, as another estimator takes them; X where they had none."""
    names = getattr(model, "feature_names_in_", None)
    return X if names is None else dict(zip(names, X.T, strict=True))
