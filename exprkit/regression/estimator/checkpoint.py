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
``search.data``        SHA-256 of the rows
``search.settings``    JSON of all that decides the result, by name, also of what was left open (``as_texts``)
``search.numbers``     seed, stages, generation, n_evals
``search.loss``        of the formulas
``evolution.NAME``     ``Evolution.state``
=====================  ==========================================================================
"""

from __future__ import annotations

import hashlib
import json
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
from exprkit.regression.discovery import Discovery, Halfway
from exprkit.regression.front import Entry
from exprkit.regression.sample import Sample

FORMAT = 2
EVERY = 1.0  # seconds between two writings, which take some milliseconds;
SHARE = 0.05  # of the time is spent on those that take longer
EVOLUTION = "evolution."
FREE = {"niterations", "early_stop", "threads"}  # settings that may be others when a search goes on
OWN_NAMES = {"loss": "elementwise_loss", "tournament_size": "tournament_selection_n", "seed": "random_state"}
LONGEST = 80  # characters of a setting that are kept as they are


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
        self._path, self._due = _checked(path), 0.0
        self._data, self._settings = np.empty(0, np.uint8), "{}"
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
        self._data, settings = digest(search.sample), as_texts(search.resolved)
        self._settings = json.dumps(settings)
        if self._found is None:
            self.keep(search)
            return
        halfway, _, data, of_file = self._found
        differs = [] if np.array_equal(data, self._data) else ["its data is other data"]
        differs += [f"its {name} is {of_file.get(name)}, not {value}" for name, value in settings.items()
                    if of_file.get(name) != value]  # fmt: skip
        if differs:
            raise FileError(
                f"{str(self._path)!r} is the checkpoint of another search: {'; '.join(differs)}.  Take another file, "
                "or remove it"
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
            "search.format": np.int64(FORMAT), "search.data": self._data, "search.settings": np.array(self._settings),
            "search.numbers": np.array(numbers, np.int64),
            "search.loss": np.array([entry.loss for entry in halfway.front], np.float64),
        }  # fmt: skip
        further |= {f"{EVOLUTION}{name}": array for name, array in halfway.evolution.items()}
        population_file.save(parse([entry.expression for entry in halfway.front]), self._path, further)
        end = time.monotonic()
        self._due = end + max(EVERY, (end - begin) / SHARE)


def digest(sample: Sample) -> np.ndarray:
    """SHA-256 of the rows."""
    told = hashlib.sha256()
    for array in sample.arrays:
        told.update(str(array.shape).encode() + array.tobytes())
    return np.frombuffer(told.digest(), np.uint8)


def as_texts(resolved: dict[str, Any]) -> dict[str, str]:
    """As texts, under the names that users know; of long ones the beginning and SHA-256."""
    found = {}
    for name, value in resolved.items():
        if name not in FREE:
            text = _text(value)
            short = text if len(text) <= LONGEST else f"{text[:40]}… {hashlib.sha256(text.encode()).hexdigest()[:20]}"
            found[OWN_NAMES.get(name, name)] = short
    return found


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


def _read(path: Path) -> tuple[Halfway, int, np.ndarray, dict[str, str]] | None:
    """(how far, seed, digest of the data, settings); None where there is no file."""
    further: dict[str, np.ndarray] = {}
    try:
        arrays, names = population_file.load(path, further)
        return _halfway(Population(*arrays, **names), further)
    except NoSuchFileError:
        return None
    except (PopulationError, KeyError, TypeError, ValueError, IndexError) as error:
        raise FileError(f"{str(path)!r} is no checkpoint of a search, or is damaged: {error}") from error


def _halfway(
    pop: Population, arrays: dict[str, np.ndarray]
) -> tuple[Halfway, int, np.ndarray, dict[str, str]]:
    if arrays["search.format"] != FORMAT:
        raise ValueError(f"a checkpoint of another format than {FORMAT}")
    seed, stages, generation, n_evals = arrays["search.numbers"].tolist()
    loss = arrays["search.loss"]
    if loss.shape != (len(pop),) or loss.dtype != np.float64:
        raise ValueError("losses that are not those of its formulas")
    front = [Entry(pop[i], float(loss[i]), pop[i].n_tokens) for i in range(len(pop))]
    evolution = {name.removeprefix(EVOLUTION): array for name, array in arrays.items() if name.startswith(EVOLUTION)}
    settings = json.loads(str(arrays["search.settings"]))
    if not isinstance(settings, dict):
        raise ValueError("settings that are none")
    return Halfway(stages, generation, n_evals, front, evolution), seed, arrays["search.data"], settings
