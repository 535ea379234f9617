"""Checkpoints: the state of a search on disk, so that a killed search continues with the same bits.

In: a ``Discovery`` at every step.  Out: a file, written whole or not at all; a ``CheckpointState`` and its seed,
read again by a search of the same data and settings.

The file is that of a population, the front's formulas (``ek.Population.load`` shows them), with the arrays of
``search.state_file`` and these beside it.  Random numbers depend on the seed and on counters alone, so there is no
state of a generator.

=====================  ====================================
array                  what it holds
=====================  ====================================
``search.FIELD``       of ``CheckpointState``, as the codec writes it
``evolution.NAME``     ``Evolution.state``
=====================  ====================================
"""

from __future__ import annotations

from typing import Any

import numpy as np

from exprkit.expressions.population import Population
from exprkit.regression.stages.discovery import CheckpointState, Discovery
from exprkit.runtime import codec, files
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
        self._resumable: CheckpointState | None = None
        if self._file.arrays is not None:
            with files.damage_errors(self._file.path, WHAT):
                self._resumable = _state_of(self._file.arrays)
        self.seed = None if self._resumable is None else self._resumable.seed

    def attach(self, discovery: Discovery) -> None:
        """Resume a search from the file; where there is none, write the first, so that an unwritable path is told."""
        if self._file.path is None:
            return
        self._file.begin(discovery.search.problem.rows.arrays, settings_of_result(discovery.resolved))
        if self._resumable is None:
            self.save(discovery)
        else:
            discovery.resume(self._resumable)

    def save(self, discovery: Discovery) -> None:
        """Write the state of the search, if the last file is old."""
        self._file.save(lambda: _arrays(discovery))


def settings_of_result(resolved: dict[str, Any]) -> dict[str, Any]:
    """The settings that decide the result, under the names of the user's parameters."""
    return {USER_NAMES.get(name, name): value for name, value in resolved.items() if name not in MUTABLE}


def _arrays(discovery: Discovery) -> dict[str, Any]:
    state = discovery.checkpoint()
    evolution = codec.in_part("evolution", state.evolution)
    return state.front.to_arrays() | codec.to_arrays("search", state) | evolution


def _state_of(arrays: dict[str, np.ndarray]) -> CheckpointState:
    """The state of a search from the arrays of a file."""
    front, evolution = Population.from_arrays(arrays), codec.of_part("evolution", arrays)
    fields = codec.from_arrays("search", CheckpointState, arrays, n=len(front))
    return CheckpointState(**fields, front=front, evolution=evolution)
