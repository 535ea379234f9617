"""Fitted regressors on disk: npz without pickle, the file of a population with further arrays.

In: a fitted ``SymbolicRegressor``.  Out: a file; the attributes of one that predicts the same.

    >>> import pathlib, tempfile
    >>> import exprkit as ek
    >>> X = [[1.0], [2.0], [3.0], [5.0], [7.0], [9.0], [12.0]]
    >>> model = ek.SymbolicRegressor(pool_size=300, random_state=0).fit(X, [3 * x for x, in X])
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.npz"
    >>> model.save(path)
    >>> ek.load(path).predict([[20.0]]), ek.Population.load(path).texts()[-1]
    (array([60.]), '3 * x1')

====================  ====================================================================================
array                 what it holds
====================  ====================================================================================
``model.settings``    JSON of ``get_params``; a function, or a source of random numbers, is null
``model.format``      FORMAT
``model.COLUMN``      of every formula, numbers and their errors (n, most numbers), nan where there are fewer
``model.NUMBER``      what ``fit`` says of the search, and ``n_features_in``
``model.features``    names of the table's columns; missing where there were none
====================  ====================================================================================
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from exprkit.expressions import population_file
from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.regression.front import Entry, Front
from exprkit.runtime import files

FORMAT = 1
COLUMNS = {"loss": "f", "length": "f", "exact": "b", "numbers": "f", "errors": "f"}  # kinds of their dtypes
NUMBERS = {
    "n_evals": int,
    "seconds": float,
    "as_good_as_0": float,
    "stopped": str,
    "interrupted": bool,
    "n_features_in": int,
}


def save(path: Any, settings: dict[str, Any], named: Population, columns: dict[str, Any], numbers: dict[str, Any],
         features: Any = None) -> None:  # fmt: skip
    """Write a model: its formulas with the names that they have, ``COLUMNS`` and ``NUMBERS``."""
    plain = json.dumps({name: _plain(value) for name, value in settings.items()})
    words = None if features is None else np.array(features, np.str_)
    arrays = {"format": FORMAT, "settings": plain, "features": words, **columns, **numbers}
    files.write_arrays(path, population_file.arrays_of(named) | population_file.in_part("model", arrays))


def restored(arrays: dict[str, np.ndarray], Model: Any) -> Any:
    """A fitted ``Model`` from the arrays of a file."""
    pop, held = Population.from_arrays(arrays), population_file.part(arrays, "model", FORMAT)
    settings, known = json.loads(str(held["settings"])), Model().get_params()
    model = Model(**{name: value for name, value in settings.items() if name in known})
    columns = {name: _column(held[name], len(pop), kind) for name, kind in COLUMNS.items()}
    numbers = {name: kind(held[name]) for name, kind in NUMBERS.items()}
    if not len(pop) or pop.max_params or pop.n_vars > numbers["n_features_in"]:
        raise ValueError("no formulas of its columns")
    front = Front(int(pop.n_tokens.max()), numbers["as_good_as_0"])
    if not (np.diff(pop.n_tokens) > 0).all():
        raise ValueError("formulas that are no front")
    formulas = [Expression(formula.kinds, formula.values) for formula in pop]
    front.restore(map(Entry, formulas, columns["loss"].tolist(), pop.n_tokens.tolist()))
    features = held.get("features")
    model.restore(front, pop.variables, columns, numbers, None if features is None else features.astype(object))
    return model


def _column(array: np.ndarray, n: int, kind: str) -> np.ndarray:
    if len(array) != n or array.dtype.kind != kind:
        raise ValueError(f"an array of {array.dtype} and shape {array.shape} for {n} formulas")
    return array


def _plain(value: Any) -> Any:
    """A setting as JSON has it."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (Expression, Path)):
        return str(value)
    return value if isinstance(value, (bool, int, float, str, type(None))) else None


def rows(listed: list[list[float]]) -> np.ndarray:
    """Lists of numbers as an array, nan behind the shorter ones."""
    wide = np.full((len(listed), max(map(len, listed), default=0)), np.nan)
    for row, numbers in zip(wide, listed, strict=True):
        row[: len(numbers)] = numbers
    return wide
