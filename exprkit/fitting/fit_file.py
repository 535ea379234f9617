"""Fits on disk: npz without pickle; the file of a population with further arrays.

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

import os
from typing import Any

import numpy as np

from exprkit.backends import objective
from exprkit.errors import PopulationError
from exprkit.expressions import population_file
from exprkit.expressions.population import Population
from exprkit.fitting.likelihood import FitGoal

FORMAT = 1
ARRAYS = ("params", "loss", "iterations", "status", "r2", "at_bound", "index")
NUMBERS = ("n_evaluations", "seconds")


def save(result: Any, path: str | os.PathLike[str]) -> None:
    """Write a ``FitResult``."""
    arrays: dict[str, Any] = {"fit.format": np.int64(FORMAT)}
    arrays |= {f"fit.{name}": np.asarray(getattr(result, name)) for name in (*ARRAYS, *NUMBERS)}
    goal = {name: value for name, value in result.goal._asdict().items() if value is not None}
    arrays |= {f"goal.{name}": np.asarray(value) for name, value in goal.items()}
    arrays |= {f"columns.{name}": column for name, column in result.columns.items()}
    population_file.save(result.pop, path, arrays)


def load(path: str | os.PathLike[str]) -> tuple[Population, dict[str, Any] | None]:
    """The population of a file and, if it is that of a fit, the attributes of its ``FitResult``.

    Errors are those of ``exprkit.load``.
    """
    further: dict[str, np.ndarray] = {}
    arrays, names = population_file.load(path, further)
    pop = Population(*arrays, **names)
    if "fit.format" not in further:
        return pop, None
    if int(further["fit.format"]) != FORMAT:
        raise PopulationError(f"{os.fspath(path)!r} has a fit of another format than {FORMAT}, the one that is read")
    try:
        return pop, _fields(pop, further)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise PopulationError(f"{os.fspath(path)!r} holds no fit of its expressions: {error!r}") from error


def _fields(pop: Population, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The attributes, each of the type and shape that it has to be."""
    n, width = len(pop), pop.max_params
    fields: dict[str, Any] = {name: _shaped(arrays[f"fit.{name}"], (n,), "fiu") for name in ARRAYS[1:5]}
    fields["index"] = _shaped(arrays["fit.index"], (n,), "iu")
    fields["params"] = _shaped(arrays["fit.params"], (n, width), "f")
    fields["at_bound"] = _shaped(arrays["fit.at_bound"], (n, width), "b")
    if n and int(fields["status"].max()) >= len(objective.REASONS):
        raise ValueError("a status that there is not")
    fields["n_evaluations"], fields["seconds"] = int(arrays["fit.n_evaluations"]), float(arrays["fit.seconds"])
    fields["columns"] = {name.removeprefix("columns."): _shaped(column, (n,), "fiub")
                         for name, column in arrays.items() if name.startswith("columns.")}  # fmt: skip
    return fields | {"goal": _goal(pop, arrays)}


def _goal(pop: Population, arrays: dict[str, np.ndarray]) -> FitGoal:
    held = {name: arrays[f"goal.{name}"] for name in FitGoal._fields if f"goal.{name}" in arrays}
    n_points = len(held["y"])
    X = _shaped(held["X"], (n_points, held["X"].shape[1]), "f")
    if X.shape[1] < pop.n_vars:
        raise ValueError("too few columns of data")
    bounds = {name: _shaped(held[name], (len(pop), pop.max_params), "f") for name in ("lower", "upper") if name in held}
    w = _shaped(held["w"], (n_points,), "f") if "w" in held else None
    return FitGoal(str(held["loss"]), float(held["delta"]), X, _shaped(held["y"], (n_points,), "f"), w, **bounds)


def _shaped(array: np.ndarray, shape: tuple[int, ...], kinds: str) -> np.ndarray:
    if array.shape != shape or array.dtype.kind not in kinds:
        raise ValueError(f"an array of {array.dtype} and shape {array.shape} where {shape} must be")
    return array
