"""Fit files: the npz file of a population, with further arrays, without pickle.

    >>> import exprkit as ek, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "fit.npz"
    >>> ek.fit("p1 * x1", [[1.0], [2.0]], [2.0, 4.0]).save(path)
    >>> ek.load(path).predict([[5.0]]).round(3), ek.Population.load(path).texts()
    (array([[10.]]), ['p1 * x1'])

===================  =====================================================================================
array                what it holds
===================  =====================================================================================
``fit.format``       FORMAT
``fit.NAME``         an attribute of ``FitResult``
``goal.NAME``        a field of ``FitGoal``, the data among them; missing where it is None
``columns.NAME``     a further column
===================  =====================================================================================
"""

from __future__ import annotations

import functools
import operator
import os
from typing import Any

import numpy as np

from exprkit.expressions import population_file
from exprkit.expressions.population import Population
from exprkit.expressions.population_file import shaped
from exprkit.fitting.finishing.stationarity import REASONS
from exprkit.fitting.likelihood import FitGoal
from exprkit.runtime import files

FORMAT = 1
ARRAYS = ("params", "loss", "iterations", "status", "r2", "at_bound", "index")
NUMBERS = ("n_evaluations", "seconds")


def save(result: Any, path: str | os.PathLike[str]) -> None:
    """Write a ``FitResult``."""
    fields = {"format": FORMAT} | {name: getattr(result, name) for name in (*ARRAYS, *NUMBERS)}
    parts = {"fit": fields, "goal": result.goal._asdict(), "columns": result.columns}
    arrays = [population_file.in_part(name, part) for name, part in parts.items()]
    files.write_arrays(path, functools.reduce(operator.or_, arrays, population_file.arrays_of(result.pop)))


def fields(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The attributes of a ``FitResult``, each of the type and shape that it has to be."""
    pop = Population.from_arrays(arrays)
    n, width = len(pop), pop.max_params
    part = population_file.part(arrays, "fit", FORMAT)
    found: dict[str, Any] = {name: shaped(part[name], "fiu", n) for name in ARRAYS[1:5]}
    found["ended"] = found.pop("status")
    if n and int(found["ended"].max()) >= len(REASONS):
        raise ValueError("unknown status")
    found["index"] = shaped(part["index"], "iu", n)
    found["params"] = shaped(part["params"], "f", n, width)
    found["at_bound"] = shaped(part["at_bound"], "b", n, width)
    columns = population_file.of_part(arrays, "columns")
    return found | {
        "pop": pop,
        "n_evaluations": int(part["n_evaluations"]),
        "seconds": float(part["seconds"]),
        "columns": {name: shaped(column, "fiub", n) for name, column in columns.items()},
        "goal": _goal(pop, population_file.of_part(arrays, "goal")),
    }


def _goal(pop: Population, held: dict[str, np.ndarray]) -> FitGoal:
    n_points = len(held["y"])
    X = shaped(held["X"], "f", n_points, None)
    if X.shape[1] < pop.n_vars:
        raise ValueError("too few columns of data")
    wide = len(pop), pop.max_params
    bounds = {name: shaped(held[name], "f", *wide) for name in ("lower", "upper") if name in held}
    w = shaped(held["w"], "f", n_points) if "w" in held else None
    y, target = shaped(held["y"], "f", n_points), str(held.get("target", "y"))
    return FitGoal(str(held["loss"]), float(held["delta"]), X, y, w, **bounds, target=target)
