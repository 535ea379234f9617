"""Checkpoints: the state of a search on disk, so that a killed search continues with the same bits.

In: a ``Discovery`` at every step.  Out: a file, written whole or not at all; a ``CheckpointState`` and its seed,
read again by a search of the same data and settings.

    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from exprkit.runtime.budget import Budget
    >>> from exprkit.regression.stages.discovery import Discovery
    >>> from exprkit.regression.stages.settings import SearchSettings
    >>> from exprkit.regression.estimator.checkpoint import Checkpoint
    >>> from exprkit.regression.problem.sample import Sample
    >>> X = np.random.default_rng(0).uniform(1, 2, (50, 2))
    >>> sample, path = Sample(X, X[:, 0] / (3 + 5 * X[:, 1])), pathlib.Path(tempfile.mkdtemp()) / "search.npz"
    >>> kept = Checkpoint(path)
    >>> search = Discovery(sample, SearchSettings(seed=5), Budget(), save=kept.keep)
    >>> kept.begin(search)
    >>> search.run()
    'a formula is exact'
    >>> Checkpoint(path).seed
    5

The file is that of a population, the front's formulas (``ek.Population.load`` shows them), with the arrays of
``search.state_file`` and these beside it.  What a search draws depends on its seed and on counters alone, so nothing
else is to be kept.

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

FREE = {"niterations", "early_stop", "threads"}  # settings that may be others when a search goes on
OWN_NAMES = {"loss": "elementwise_loss", "seed": "random_state"}


class Checkpoint:
    """A path, or None, where a search keeps how far it is; errors are those of ``StateFile``.

    Attributes
    ----------
    seed : int or None
        Of the search that is there.
    """

    def __init__(self, path: Any) -> None:
        self._file = StateFile(path, "checkpoint")
        self._found = None
        if self._file.arrays is not None:
            with files.damage_errors(self._file.path, WHAT):
                self._found = _state_of(self._file.arrays)
        self.seed = None if self._found is None else self._found[1]

    def begin(self, search: Discovery) -> None:
        """Let a search go on from what is there; where nothing is, a first file shows that there can be one."""
        if self._file.path is None:
            return
        self._file.begin(search.problem.sample.arrays, own_settings(search.resolved))
        if self._found is None:
            self.keep(search)
        else:
            search.resume(self._found[0])

    def keep(self, search: Discovery) -> None:
        """Write how far the search is, if that was long ago."""
        self._file.save(lambda: _arrays(search))


def own_settings(resolved: dict[str, Any]) -> dict[str, Any]:
    """Those that decide the result, under the names that users know."""
    return {OWN_NAMES.get(name, name): value for name, value in resolved.items() if name not in FREE}


def _arrays(search: Discovery) -> dict[str, Any]:
    state = search.checkpoint()
    return {
        **population_file.arrays_of(Population.of([entry.expression for entry in state.front])),
        "search.numbers": [search.problem.settings.seed, state.stages, state.generation, state.n_evals, state.work,
                           state.is_noisy],
        "search.loss": np.array([entry.loss for entry in state.front], np.float64),
        "search.polished": np.array([entry.is_polished for entry in state.front], bool),
        "search.exact": np.array([entry.is_exact for entry in state.front], bool),
        **population_file.in_part("evolution", state.evolution),
    }


def _state_of(arrays: dict[str, np.ndarray]) -> tuple[CheckpointState, int]:
    """How far the search is, and its seed."""
    pop, loss = Population.from_arrays(arrays), arrays["search.loss"]
    polished, exact = arrays["search.polished"], arrays["search.exact"]
    seed, stages, generation, n_evals, work, is_noisy = arrays["search.numbers"].tolist()
    if loss.shape != (len(pop),) or loss.dtype != np.float64:
        raise ValueError("losses that are not those of its formulas")
    if not all(one.shape == loss.shape and one.dtype == bool for one in (polished, exact)):
        raise ValueError("another number of formulas that were polished, or that are exact")
    front = [
        Entry(pop[i], float(loss[i]), pop[i].n_tokens, bool(polished[i]), bool(exact[i])) for i in range(len(pop))
    ]
    evolution = population_file.of_part(arrays, "evolution")
    return CheckpointState(stages, generation, n_evals, work, bool(is_noisy), front, evolution), seed
