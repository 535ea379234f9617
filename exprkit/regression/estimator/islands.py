"""Genetic programming on several devices: the island model, with migration through the common front.

In: a ``FormulaSearch`` after its stages, and ``Workers``.  Out: its front, with the islands' best formulas.

    for EPOCH generations at a time:
        every island breeds from the common front, with its own seed
        the common front takes the formulas of the islands' fronts (migration)

The result depends on the seed and the number of islands, not on who works where or when.

    >>> import numpy as np
    >>> import exprkit as ek
    >>> X = np.random.default_rng(0).uniform(1, 2, (60, 1))
    >>> model = ek.SymbolicRegressor(devices=2, niterations=2, pool_size=0, population_size=50, random_state=0)
    >>> model.fit(X, np.sin(3 * X[:, 0]) + 0.1 * X[:, 0]).stopped_
    '2 iterations are done on 2 islands'
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from exprkit.distributed.collect import Cut, collect
from exprkit.distributed.engine import KeptArrays
from exprkit.distributed.tasks import TokenSlice, on_device, population_of, slice_of
from exprkit.distributed.workers import Workers
from exprkit.expressions.population import Population
from exprkit.operators import defined
from exprkit.regression.problem.rows import Rows
from exprkit.regression.stages.discovery import Discovery
from exprkit.regression.stages.search import FormulaSearch
from exprkit.regression.stages.settings import SearchSettings
from exprkit.runtime.budget import Budget, Ended

EPOCH = 20  # generations between two migrations
# settings that an island does without, or has its own values of
NOT_SHARED = ("operators", "early_stop", "guesses", "seed", "threads", "niterations", "outermost")


def evolve(search: FormulaSearch, settings: SearchSettings, workers: Workers, show: Callable[[], None]) -> str:
    """Breed on all workers, and let the front of the search take the result; returns why that ended."""
    rows, on_gpu = search.problem.rows, workers.on_gpu(settings.backend)
    n = len(workers.places(on_gpu))
    data = KeptArrays(workers, "data").take(rows.arrays)
    names = [field.name for field in dataclasses.fields(settings) if field.name not in NOT_SHARED]
    shared = {name: getattr(settings, name) for name in names}
    shared["columns"] = None if rows.loss_rows is None else list(rows.loss_rows.columns)
    shared["operators"], shared["coarseness"] = [row.name for row in settings.operators], rows.coarseness
    for first in range(0, settings.niterations, EPOCH):
        generations = min(EPOCH, settings.niterations - first)
        formulas = Population.of([entry.expression for entry in search.front.entries()])
        front = slice_of(formulas, 0, len(formulas), travels=not workers.devices)

        def island(cut: Cut, place: str | None) -> tuple[Any, ...]:
            seed = settings.seed + 7919 * (first * n + cut[0])  # noqa: B023  it is called before the next round
            island_settings = {**shared, "niterations": generations, "seed": seed}  # noqa: B023
            return _island, on_gpu, data.at(place), island_settings, front, not workers.devices  # noqa: B023

        try:
            cuts = [(k, k + 1) for k in range(n)]
            for _, (tokens, n_evals) in collect(workers, "island", cuts, island, on_device=on_gpu):
                search.problem.budget.count(n_evals)
                search.offer(population_of(tokens))
            search.stage = f"generation {first + generations}"
            show()
            search.problem.budget.check()
        except Ended as ended:
            return str(ended)
        if any(settings.early_stop(entry.loss, entry.size) for entry in search.front.entries()):
            return "the loss is as small as was asked for"
    return f"{settings.niterations:,} iterations are done on {n} islands"


def _island(
    on_gpu: bool, data: tuple[Any, ...], settings: dict[str, Any], front: TokenSlice | Population, travels: bool
) -> tuple[TokenSlice | Population, int]:
    """On a worker: some generations; returns the island's front, and how many functions were tried."""
    with on_device(on_gpu):
        formulas, n_evals = _bred(data, settings, population_of(front))
    return slice_of(formulas, 0, len(formulas), travels), n_evals


def _bred(data: tuple[Any, ...], settings: dict[str, Any], front: Population) -> tuple[Population, int]:
    settings = dict(settings)
    rows = Rows.of_arrays(data, settings.pop("columns"))
    rows.coarseness = settings.pop("coarseness")
    operators = tuple(filter(None, map(defined.spelled, settings["operators"])))
    budget = Budget()
    discovery = Discovery(rows, SearchSettings(**{**settings, "operators": operators, "threads": 1}), budget)
    discovery.search.offer(front)
    with contextlib.suppress(Ended), np.errstate(all="ignore"):
        discovery.evolve()
    return Population.of([entry.expression for entry in discovery.search.front.entries()]), budget.n_evals
