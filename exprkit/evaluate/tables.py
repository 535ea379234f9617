"""Tables: the columns of a DataFrame or a dict that a population's variables stand for, as numbers.

``inputs`` takes everything else that data may be.

    >>> import exprkit as ek
    >>> from exprkit.evaluate.tables import columns
    >>> columns({"T": [290, 291], "conc": [0.1, None]}, ek.parse("x1 + x2"))
    {"x1 ('T')": array([290, 291]), "x2 ('conc')": array([0.1, nan])}

A population with names takes its columns by name.  One without takes them by name if the table has all of x1, x2, …
that it uses, else by position.  What is missing (None, pandas' NA) is nan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from exprkit.errors import DataError
from exprkit.expressions.population import Population
from exprkit.numbers import as_numbers
from exprkit.text.tokens import VARIABLE


def is_table(X: Any) -> bool:
    """Whether it has columns with names."""
    return isinstance(X, Mapping) or (hasattr(X, "columns") and hasattr(X, "to_numpy"))


def length(table: Any) -> int:
    """How many rows it has."""
    first = next(iter(table.values()), ()) if isinstance(table, Mapping) else table
    return len(first) if hasattr(first, "__len__") else 0


def columns(table: Any, pop: Population) -> dict[str, np.ndarray | None]:
    """The numbers of the variables' columns by what errors call them; None for one that is not there nor used."""
    names = list(table if isinstance(table, Mapping) else table.columns)
    arrays = {name: None if place is None else _column(table, names[place], place, f"column {name} of X")
              for name, place in _places(names, pop)}  # fmt: skip
    lengths = {name: len(values) for name, values in arrays.items() if values is not None}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {n:,}" for name, n in lengths.items())
        raise DataError(f"the columns of X have different lengths: {listed}")
    return arrays


def _column(table: Any, name: Any, place: int, what: str) -> np.ndarray:
    """Its numbers, (n_points,)."""
    numbers = as_numbers(what, table.iloc[:, place] if hasattr(table, "iloc") else table[name])
    if numbers.ndim != 1:
        raise DataError(f"{what} must have one number a data point, not shape {numbers.shape}")
    return numbers


def used_columns(pop: Population) -> list[int]:
    """The variables that occur in an expression."""
    return np.flatnonzero(np.bincount(pop.values[pop.kinds == VARIABLE].astype(np.int64))).tolist()


def _places(names: list[Any], pop: Population) -> list[tuple[str, int | None]]:
    """For every variable what its column is called, and which one it is."""
    if pop.variables is not None:
        return [(repr(name), _place(names, name)) for name in pop.variables]
    defaults = [f"x{i + 1}" for i in range(pop.n_vars)]
    used = {defaults[i] for i in used_columns(pop)}
    lacking = [name for name in defaults if name in used and name not in names]
    if used and not lacking:
        return [(name, _place(names, name) if name in used else None) for name in defaults]
    here = list(zip(names, defaults, strict=False))
    if astray := [name for name in defaults if name in used and name in names and (name, name) not in here]:
        raise DataError(
            f"X has a column {astray[0]!r}, but none is called {lacking[0]!r}: name all columns that are used, or none "
            "of them, to be taken in their order"
        )
    return [(name if column == name else f"{name} ({str(column)!r})", place)
            for place, (column, name) in enumerate(here)]  # fmt: skip


def _place(names: list[Any], name: str) -> int:
    if name not in names:
        raise DataError(f"X has no column {name!r}; its columns are {', '.join(map(str, names))}")
    if names.count(name) > 1:
        raise DataError(f"X has {names.count(name)} columns called {name!r}: names must differ")
    return names.index(name)
