"""Checkpoints: a search on disk, so that one that was killed goes on where it was, with the same bits.

In: a ``Discovery`` at every step.  Out: a file, written whole or not at all; a ``Halfway`` and its seed, read again
by a search of the same data and settings.

    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from exprkit.runtime.budget import Budget
    >>> from exprkit.regression.discovery import Discovery, SearchSettings
    >>> from exprkit.regression.estimator.checkpoint import Checkpoint
    >>> from exprkit.regression.sample import Sample
    >>> X = np.random.default_rng(0).uniform(1, 2, (50, 2))
    >>> sample, path = Sample(X, X[:, 0] / (3 + 5 * X[:, 1])), pathlib.Path(tempfile.mkdtemp()) / "search.npz"
    >>> kept = Checkpoint(path)
    >>> search = Discovery(sample, SearchSettings(seed=5), Budget(), kept=kept.keep)
    >>> kept.begin(search)
    >>> search.run()
    'a formula is exact'
    >>> Checkpoint(path).seed
    5

The file is that of a population, the front's formulas (``ek.Population.load`` shows them), with these arrays beside
it.  What a search draws depends on its seed and on counters alone, so nothing else is to be kept.

=====================  ==========================================================================
array                  what it holds
=====================  ==========================================================================
``search.format``      FORMAT
``search.digest``      SHA-256 of data and settings
``search.numbers``     seed, stages, generation, n_evals
``search.loss``        of the formulas
``evolution.NAME``     ``Evolution.state``
=====================  ==========================================================================
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from exprkit.errors import ArgumentError, FileError, NoSuchFileError, PopulationError, brief
from exprkit.expressions import population_file
from exprkit.expressions.expression import Expression
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.regression.discovery import Discovery, Halfway, SearchSettings
from exprkit.regression.front import Entry
from exprkit.regression.sample import Sample

FORMAT = 1
EVERY = 1.0  # seconds between two writings, which take some milliseconds;
SHARE = 0.05  # of the time is spent on those that take longer
EVOLUTION = "evolution."
FREE = {"niterations", "early_stop", "threads"}  # settings that may be others when a search goes on


class Checkpoint:
    """A path, or None, where a search keeps how far it is.

    Attributes
    ----------
    seed : int or None
        Of the search that is there.

    Raises
    ------
    ArgumentError
        If ``path`` is none.
    FileError
        If what is there is no checkpoint, or is damaged.
    """

    def __init__(self, path: Any) -> None:
        self._path, self._due, self._digest = _checked(path), 0.0, np.empty(0, np.uint8)
        self._found = None if self._path is None else _read(self._path)
        self.seed = None if self._found is None else self._found[1]

    def begin(self, search: Discovery) -> None:
        """Let a search go on from what is there; where nothing is, a first file shows that there can be one.

        Raises
        ------
        FileError
            If what is there is of other data or settings, or the file cannot be written.
        """
        if self._path is None:
            return
        self._digest = digest(search.sample, search.settings)
        if self._found is None:
            self.keep(search)
            return
        halfway, _, of_file = self._found
        if not np.array_equal(of_file, self._digest):
            raise FileError(
                f"{str(self._path)!r} is the checkpoint of a search of other data or settings; take another file, or "
                "remove it"
            )
        search.resume(halfway)

    def keep(self, search: Discovery) -> None:
        """Write how far the search is, if that was long ago."""
        begin = time.monotonic()
        if self._path is None or begin < self._due:
            return
        halfway = search.halfway()
        numbers = [search.settings.seed, halfway.stages, halfway.generation, halfway.n_evals]
        further: dict[str, Any] = {
            "search.format": np.int64(FORMAT), "search.digest": self._digest,
            "search.numbers": np.array(numbers, np.int64),
            "search.loss": np.array([entry.loss for entry in halfway.front], np.float64),
        }  # fmt: skip
        further |= {f"{EVOLUTION}{name}": array for name, array in halfway.evolution.items()}
        population_file.save(parse([entry.expression for entry in halfway.front]), self._path, further)
        end = time.monotonic()
        self._due = end + max(EVERY, (end - begin) / SHARE)


def digest(sample: Sample, settings: SearchSettings) -> np.ndarray:
    """SHA-256 of all that the formulas depend on."""
    told = hashlib.sha256()
    for array in sample.arrays:
        told.update(str(array.shape).encode() + array.tobytes())
    for field in dataclasses.fields(settings):
        if field.name not in FREE:
            told.update(f"{field.name}={_text(getattr(settings, field.name))};".encode())
    return np.frombuffer(told.digest(), np.uint8)


def _text(value: Any) -> str:
    """All of a setting, the same in every process."""
    if isinstance(value, ops.Operator):
        return value.name
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, (tuple, list)):
        return f"({','.join(map(_text, value))})"
    if isinstance(value, dict):
        return _text(list(value.items()))
    plain = isinstance(value, (Expression, str, int, float, np.generic)) or value is None
    return str(value) if plain else f"{type(value).__name__}{_text(vars(value))}"


def _checked(path: Any) -> Path | None:
    try:
        return None if path is None else Path(os.fsdecode(path)).expanduser()
    except TypeError:
        raise ArgumentError(f"checkpoint must be None or the path of a file, not {brief(path)}") from None


def _read(path: Path) -> tuple[Halfway, int, np.ndarray] | None:
    """(how far, seed, digest); None where there is no file."""
    further: dict[str, np.ndarray] = {}
    try:
        arrays, names = population_file.load(path, further)
        return _halfway(Population(*arrays, **names), further)
    except NoSuchFileError:
        return None
    except (PopulationError, KeyError, TypeError, ValueError, IndexError) as error:
        raise FileError(f"{str(path)!r} is no checkpoint of a search, or is damaged: {error}") from error


def _halfway(pop: Population, arrays: dict[str, np.ndarray]) -> tuple[Halfway, int, np.ndarray]:
    if arrays["search.format"] != FORMAT:
        raise ValueError(f"a checkpoint of another format than {FORMAT}")
    seed, stages, generation, n_evals = arrays["search.numbers"].tolist()
    loss = arrays["search.loss"]
    if loss.shape != (len(pop),) or loss.dtype != np.float64:
        raise ValueError("losses that are not those of its formulas")
    front = [Entry(pop[i], float(loss[i]), pop[i].n_tokens) for i in range(len(pop))]
    evolution = {name.removeprefix(EVOLUTION): array for name, array in arrays.items() if name.startswith(EVOLUTION)}
    return Halfway(stages, generation, n_evals, front, evolution), seed, arrays["search.digest"]
