"""Fit files: the npz file of a population, with further arrays, without pickle; and JSON for other languages.

    >>> import exprkit as ek, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "fit.npz"
    >>> ek.fit("p1 * x1", [[1.0], [2.0]], [2.0, 4.0]).save(path)
    >>> ek.load(path).predict([[5.0]]).round(3), ek.Population.load(path).texts()
    (array([[10.]]), ['p1 * x1'])

``fit.NAME`` is an attribute of ``FitResult``, ``goal.NAME`` a field of ``FitGoal``, the data among them
(``runtime.codec``).  JSON has the numbers without the data, of which it has the SHA-256: what reads it can
compute and compare; numbers that are not finite are null.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from exprkit.errors import ArgumentError, brief, did_you_mean
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population
from exprkit.fitting import ranking
from exprkit.fitting.finishing.stationarity import REASONS
from exprkit.fitting.likelihood import FitGoal
from exprkit.runtime import codec, files
from exprkit.text.names import word_of
from exprkit.text.tokens import VARIABLE
from exprkit.version import __version__

FORMAT = "exprkit fit, 1"  # of JSON; the number rises where a field changes


def save(result: Any, path: str | os.PathLike[str]) -> None:
    """Write a ``FitResult``, with the status that it was found to have."""
    settled = replace(result, ended=result.status, is_screened=False)
    fit = codec.to_arrays("fit", settled) | codec.to_arrays("goal", result.goal)
    files.write_arrays(path, result.pop.to_arrays() | fit | {"fit.units": np.asarray(json.dumps(result.units))})


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
    units = json.loads(str(arrays.get("fit.units", "{}")))
    if not isinstance(units, dict) or not all(isinstance(unit, str) for unit in units.values()):
        raise ValueError("its units are no texts by name")
    return attributes | {"pop": pop, "goal": goal, "units": units}


# ── JSON ──


def to_json(result: Any, path: Any, units: Mapping[str, str] | None) -> str:
    """The text of a ``FitResult``, written to ``path`` unless that is None."""
    pop, goal, target = result.pop, result.goal, result.goal.target
    names = [word_of(VARIABLE, k, pop.variables) for k in range(pop.n_vars)]
    known = result.units | dict(units or {})
    for name, unit in known.items():
        if name not in (*names, target) or not isinstance(unit, str):
            hint = did_you_mean(str(name), [*names, target])
            raise ArgumentError(
                f"units must be texts by the names {', '.join([*names, target])}, not {brief(known)}{hint}"
            )
    digest = hashlib.sha256()
    for array in (goal.X, goal.y, goal.w):
        digest.update(b"" if array is None else np.ascontiguousarray(array, "<f8").tobytes())
    lower, upper = (np.full(result.params.shape, np.nan) if s is None else s for s in (goal.lower, goal.upper))
    scores = dict[str, np.ndarray]()
    for by in ranking.OF_DATA:
        with contextlib.suppress(ArgumentError):  # a loss that has no likelihood
            scores[by] = result.score(by)
    arrays = {"params": result.params, "standard_errors": result.standard_errors, "lower": lower, "upper": upper}
    arrays, formulas = arrays | {"digits": result.digits}, []
    for i, (n, formula, reason) in enumerate(zip(pop.n_params.tolist(), pop.texts(), result.reason, strict=True)):
        row: dict[str, Any] = {"formula": formula} | {name: _numbers(a[i, :n]) for name, a in arrays.items()}
        row["covariance"] = [_numbers(line) for line in result.covariance[i, :n, :n]]
        row |= {by: _numbers(score[i]) for by, score in scores.items()}
        row |= {name: _numbers(getattr(result, name)[i]) for name in ("loss", "r2", "iterations", "status")}
        formulas.append(row | {"converged": bool(result.converged[i]), "reason": reason})
    versions = {"exprkit": __version__, "numpy": np.__version__, "python": platform.python_version()}
    record: dict[str, Any] = {
        "format": FORMAT,
        "versions": versions,
        "target": {"name": target, "unit": known.get(target)},
    }
    record |= {"columns": [{"name": name, "unit": known.get(name)} for name in names]}
    record |= {"parameters": pop.parameter_names, "ties": result.ties, "loss": result.kind, "method": result.method}
    record |= {"n_points": len(goal.y), "data_sha256": digest.hexdigest() if len(goal.y) else None}
    text = json.dumps(record | {"formulas": formulas}, indent=1, ensure_ascii=False, allow_nan=False)
    if path is not None:
        files.write_text(files.checked_path(path), text)
    return text


def from_json(path: Any, Result: type) -> Any:
    """A ``FitResult`` without its data, of a file or of the text."""
    if isinstance(path, str) and path.lstrip().startswith("{"):
        path, text = "the text", path
    else:
        with files.file_errors(path := files.checked_path(path), "read"):
            text = Path(path).read_bytes()
    with files.damage_errors(path, "fit in JSON"):
        record = json.loads(text)
        if record["format"] != FORMAT:
            raise ValueError(f"its format is {brief(record['format'])}, not {FORMAT!r}")
        rows, columns = record["formulas"], [column["name"] for column in record["columns"]]
        texts = [row["formula"] for row in rows]
        pop = parse(texts, variables=columns, parameters=record["parameters"], errors="mask")
        if [bool(text) for text in texts] != pop.valid.tolist():
            raise ValueError("a formula cannot be read: operators of your own have to be defined before")
        shape = (len(rows), pop.max_params)
        of = {name: np.full(shape, np.nan) for name in ("params", "lower", "upper", "digits")}
        covariance = np.full((*shape, pop.max_params), np.nan)
        for i, (row, n) in enumerate(zip(rows, pop.n_params.tolist(), strict=True)):
            for name, array in of.items():
                array[i, :n] = np.array(row[name], np.float64)
            covariance[i, :n, :n] = np.array(row["covariance"], np.float64).reshape(n, n)
        loss, r2 = (np.array([row[name] for row in rows], np.float64) for name in ("loss", "r2"))
        ints = np.array([[row["iterations"], row["status"]] for row in rows], np.int64).reshape(-1, 2)
        steps, ended = ints[:, 0], ints[:, 1]
        if not all(status in REASONS for status in ended.tolist()):
            raise ValueError("unknown status")
        lower, upper = (np.where(np.isnan(of[k]), side, of[k]) for k, side in (("lower", -np.inf), ("upper", np.inf)))
        data = np.empty((0, len(columns))), np.empty(0), None
        goal = FitGoal(record["loss"], 1.0, *data, lower, upper, record["target"]["name"])
        ends = of["params"], loss, steps.astype(np.int32), ended.astype(np.uint8), int(steps.sum()), r2
        scores = {
            by: np.array([row[by] for row in rows], np.float64) for by in ranking.OF_DATA if rows and by in rows[0]
        }
        units = {one["name"]: one["unit"] for one in (*record["columns"], record["target"]) if one["unit"]}
        known = {"method": record["method"], "ties": record["ties"], "columns": scores, "units": units}
        result = Result(pop, *ends, 0.0, goal, None, **known)
    result.__dict__ |= {"covariance": covariance, "digits": of["digits"]}
    return result


def _numbers(array: Any) -> Any:
    """As lists of JSON; null for what is not finite."""
    numbers = np.asarray(array).astype(object)
    numbers[~np.isfinite(array)] = None
    return numbers.tolist()
