"""Fit files: the npz file of a population, with further arrays, without pickle.

    >>> import exprkit as ek, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "fit.npz"
    >>> ek.fit("p1 * x1", [[1.0], [2.0]], [2.0, 4.0]).save(path)
    >>> ek.load(path).predict([[5.0]]).round(3), ek.Population.load(path).texts()
    (array([[10.]]), ['p1 * x1'])

``fit.NAME`` is an attribute of ``FitResult``, ``goal.NAME`` a field of ``FitGoal``, the data among them
(``runtime.codec``).
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

from exprkit.expressions.population import Population
from exprkit.fitting.finishing.stationarity import REASONS
from exprkit.fitting.likelihood import FitGoal
from exprkit.runtime import codec, files


def save(result: Any, path: str | os.PathLike[str]) -> None:
    """Write a ``FitResult``, with the status that it was found to have."""
    settled = replace(result, ended=result.status, is_screened=False)
    fit = codec.to_arrays("fit", settled) | codec.to_arrays("goal", result.goal)
    files.write_arrays(path, result.pop.to_arrays() | fit)


def fields(arrays: dict[str, np.ndarray], Result: type) -> dict[str, Any]:
    """The attributes of a ``FitResult``, each of the type and shape that it has to be."""
    pop = Population.from_arrays(arrays)
    sizes = {"n": len(pop), "width": pop.max_params}
    attributes = codec.from_arrays("fit", Result, arrays, **sizes)
    if len(pop) and int(attributes["ended"].max()) >= len(REASONS):
        raise ValueError("unknown status")
    goal = FitGoal(**codec.from_arrays("goal", FitGoal, arrays, **sizes))
    if goal.X.shape[1] < pop.n_vars:
        raise ValueError("too few columns of data")
    return attributes | {"pop": pop, "goal": goal}
