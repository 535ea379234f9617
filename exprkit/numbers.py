"""Conversion of user input to arrays of real numbers, with an error that names the argument.

>>> from exprkit.numbers import as_numbers
>>> as_numbers("y", [1, None, 2.5])
array([1. , nan, 2.5])
"""

from __future__ import annotations

import re
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from exprkit.errors import DataError, brief

REMEDIES = {  # by the kind of NumPy's types
    "M": ": take the time since the first, (t - t.iloc[0]).dt.total_seconds()",
    "m": ": take .dt.total_seconds()",
    "number": ": pandas.to_numeric converts text to numbers",
    "word": ": categories are for groups= of exprkit.fit, or become columns of 0 and 1 (pandas.get_dummies)",
}


def as_numbers(what: str, values: Any, gaps: bool = True) -> np.ndarray:
    """An array of real numbers; nan where one is missing, if there may be ``gaps``."""
    check_quantities(what, values)
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        if not gaps:
            raise DataError(f"{what} has masked values: fill them with numbers")
        values = np.ma.filled(values.astype(np.float64), np.nan)
    try:
        array = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    except ValueError:
        raise DataError(f"{what} must be an array of numbers; its rows have different lengths") from None
    except (TypeError, OverflowError, RuntimeError) as error:
        raise DataError(f"{what} must be an array of numbers: {error}") from None
    if array.dtype.kind in "fiub":
        return array
    if array.dtype.kind in "OU":
        numbers = [_as_number(what, item, gaps) for item in array.ravel().tolist()]
        return np.array(numbers, np.float64).reshape(array.shape)
    raise DataError(f"{what} must hold real numbers, not {array.dtype}{REMEDIES.get(array.dtype.kind, '')}")


def check_quantities(what: str, values: Any) -> None:
    """An error for categories of pandas or polars that are no numbers, and for numbers with units."""
    if hasattr(values, "magnitude") and hasattr(values, "units"):
        raise DataError(
            f"{what} has the unit {values.units}: give the numbers, as .to(…).magnitude (SymbolicRegressor's fit takes "
            "units by X_units= and y_units=)"
        )
    categories = getattr(getattr(values, "dtype", None), "categories", None)
    if categories is not None and getattr(getattr(categories, "dtype", None), "kind", "O") not in "fiub":
        names = list(map(str, dict.fromkeys(categories if hasattr(categories, "dtype") else values)))
        listed = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        raise DataError(
            f"{what} holds categories ({listed}), not quantities: leave it out, or make a column of 0 and 1 of each "
            "(pandas.get_dummies)"
        )


def _as_number(what: str, value: Any, gaps: bool) -> float:
    """A Python object as a number."""
    if gaps and (value is None or type(value).__name__ == "NAType"):
        return np.nan
    try:
        if isinstance(value, (Real, Decimal, np.bool_)):
            return float(value)
    except OverflowError:
        raise DataError(f"{what} holds a number too large for float64") from None
    kind = _kind_of_text(value) if isinstance(value, str) else "M" if hasattr(value, "timestamp") else ""
    raise DataError(f"{what} must hold real numbers, not {brief(value)}{REMEDIES.get(kind, '')}")


def _kind_of_text(text: str) -> str:
    if re.match(r"\d{1,4}[-./]\d{1,2}[-./]\d", text):
        return "M"
    return "number" if re.search(r"\d", text) and re.match(r"[-+−\s.,\d]", text) else "word"
