"""Checkpoints: the state of a search on disk, so that a killed search continues with the same bits.

In: a ``Discovery`` at every step.  Out: a file, written whole or not at all; a ``CheckpointState`` and its seed,
read again by a search of the same data and settings.

    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from exprkit.runtime.budget import Budget
    >>> from exprkit.regression.stages.discovery import Discovery
    >>> from exprkit.regression.stages.settings import SearchSettings
    >>> from exprkit.regression.estimator.checkpoint import Checkpoint
    >>> from exprkit.regression.problem.rows import Rows
    >>> X = np.random.default_rng(0).uniform(1, 2, (50, 2))
    >>> rows, path = Rows(X, X[:, 0] / (3 + 5 * X[:, 1])), pathlib.Path(tempfile.mkdtemp()) / "search.npz"
    >>> checkpoint = Checkpoint(path)
    >>> discovery = Discovery(rows, SearchSettings(seed=5), Budget(), save=checkpoint.save)
    >>> checkpoint.attach(discovery)
    >>> discovery.run()
    'a formula is exact'
    >>> Checkpoint(path).seed
    5

The file is that of a population, the front's formulas (``ek.Population.load`` shows them), with the arrays of
``search.state_file`` and these beside it.  Random numbers depend on the seed and on counters alone, so there is no
state of a generator.

=====================  ====================================
array                  what it holds
=====================  ====================================
``search.numbers``     seed, stages, generation, n_evals, work, is_noisy
``search.loss``        of the formulas
``search.polished``    whether simpler numbers have been tried in them
``evolution.NAME``     ``Evolution.state``
=====================  ====================================
"""

from __future__ import annotations

from typing import Any

import numpy as np

from exprkit.expressions import population_file
from exprkit.expressions.population import Population
from exprkit.regression.formulas.front import Entry
from exprkit.regression.stages.discovery import CheckpointState, Discovery
from exprkit.runtime import files
from exprkit.search.state_file import WHAT, StateFile

MUTABLE = {"niterations", "early_stop", "threads"}  # settings that may change when a search continues
USER_NAMES = {"loss": "elementwise_loss", "seed": "random_state"}


class Checkpoint:
    """The file of a search's state, at a path, or none (None); errors are those of ``StateFile``.

    Attributes
    ----------
    seed : int or None
        Of the search that the file is of.
    """

    def __init__(self, path: Any) -> None:
        self._file = StateFile(path, "checkpoint")
        self._resumable = None
        if self._file.arrays is not None:
            with files.damage_errors(self._file.path, WHAT):
                self._resumable = _state_of(self._file.arrays)
        self.seed = None if self._resumable is None else self._resumable[1]

    def attach(self, discovery: Discovery) -> None:
        """Resume a search from the file; where there is none, write the first, so that an unwritable path is told."""
        if self._file.path is None:
            return
        self._file.begin(discovery.search.problem.rows.arrays, settings_of_result(discovery.resolved))
        if self._resumable is None:
            self.save(discovery)
        else:
            discovery.resume(self._resumable[0])

    def save(self, discovery: Discovery) -> None:
        """Write the state of the search, if the last file is old."""
        self._file.save(lambda: _arrays(discovery))


def settings_of_result(resolved: dict[str, Any]) -> dict[str, Any]:
    """The settings that decide the result, under the names of the user's parameters."""
    return {USER_NAMES.get(name, name): value for name, value in resolved.items() if name not in MUTABLE}


def _arrays(discovery: Discovery) -> dict[str, Any]:
    state = discovery.checkpoint()
    return {
        **population_file.arrays_of(Population.of([entry.expression for entry in state.front])),
        "search.numbers": [
            discovery.search.problem.settings.seed,
            state.stages,
            state.generation,
            state.n_evals,
            state.work,
            state.is_noisy,
        ],
        "search.loss": np.array([entry.loss for entry in state.front], np.float64),
        "search.polished": np.array([entry.is_polished for entry in state.front], bool),
        "search.exact": np.array([entry.is_exact for entry in state.front], bool),
        **population_file.in_part("evolution", state.evolution),
    }


def _state_of(arrays: dict[str, np.ndarray]) -> tuple[CheckpointState, int]:
    """The state of a search, and its seed, from the arrays of a file."""
    pop, loss = Population.from_arrays(arrays), arrays["search.loss"]
    polished, exact = arrays["search.polished"], arrays["search.exact"]
    seed, stages, generation, n_evals, work, is_noisy = arrays["search.numbers"].tolist()
    if loss.shape != (len(pop),) or loss.dtype != np.float64:
        raise ValueError("losses that are not those of its formulas")
    if not all(array.shape == loss.shape and array.dtype == bool for array in (polished, exact)):
        raise ValueError("another number of formulas that were polished, or that are exact")
    front = [Entry(pop[i], float(loss[i]), pop[i].n_tokens, bool(polished[i]), bool(exact[i])) for i in range(len(pop))]
    evolution = population_file.of_part(arrays, "evolution")
    return CheckpointState(stages, generation, n_evals, work, bool(is_noisy), front, evolution), seed
