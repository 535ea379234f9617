"""Genetic programming on several devices: islands with a seed each, whose fronts migrate.

In: a ``Discovery`` after its other stages, and ``Workers``.  Out: its front, with what the islands found.

    for EPOCH generations at a time:
        every island breeds, begun with the common front and random numbers of its own
        the common front takes what the islands' fronts have

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
from exprkit.regression.problem.sample import Sample
from exprkit.regression.stages.discovery import Discovery
from exprkit.regression.stages.settings import SearchSettings
from exprkit.runtime.budget import Budget, Ended

EPOCH = 20  # generations between two migrations
# settings that an island has otherwise, or no use for
OWN = ("operators", "early_stop", "guesses", "seed", "threads", "niterations", "outermost")


def evolve(
    search: Discovery, settings: SearchSettings, workers: Workers, shown: Callable[[Discovery], Any]
) -> str:  # fmt: skip
    """Breed on all workers; says why it ended."""
    sample, on_gpu = search.problem.sample, workers.on_gpu(settings.backend)
    n = len(workers.places(on_gpu))
    data = KeptArrays(workers, "data").take(sample.arrays)
    words = {one.name: getattr(settings, one.name) for one in dataclasses.fields(settings) if one.name not in OWN}
    words["columns"] = None if sample.loss_rows is None else list(sample.loss_rows.columns)
    words["operators"], words["coarseness"] = [row.name for row in settings.operators], sample.coarseness
    for first in range(0, settings.niterations, EPOCH):
        generations = min(EPOCH, settings.niterations - first)
        formulas = Population.of([entry.expression for entry in search.front.entries()])
        front = slice_of(formulas, 0, len(formulas), travels=not workers.devices)

        def island(cut: Cut, place: str | None) -> tuple[Any, ...]:
            seed = settings.seed + 7919 * (first * n + cut[0])  # noqa: B023  it is called before the next round
            own = {**words, "niterations": generations, "seed": seed}  # noqa: B023
            return _island, on_gpu, data.at(place), own, front, not workers.devices  # noqa: B023

        try:
            cuts = [(k, k + 1) for k in range(n)]
            for _, (tokens, n_evals) in collect(workers, "island", cuts, island, on_device=on_gpu):
                search.problem.budget.count(n_evals)
                search.offer(population_of(tokens))
            search.stage = f"generation {first + generations}"
            shown(search)
            search.problem.budget.check()
        except Ended as ended:
            return str(ended)
        if any(settings.early_stop(entry.loss, entry.size) for entry in search.front.entries()):
            return "the loss is as small as was asked for"
    return f"{settings.niterations:,} iterations are done on {n} islands"


def _island(
    on_gpu: bool, data: tuple[Any, ...], words: dict[str, Any], front: TokenSlice | Population, travels: bool
) -> tuple[TokenSlice | Population, int]:  # fmt: skip
    """On a worker: some generations; the front, and how many functions were tried."""
    with on_device(on_gpu):
        formulas, n_evals = _bred(data, words, population_of(front))
    return slice_of(formulas, 0, len(formulas), travels), n_evals


def _bred(data: tuple[Any, ...], words: dict[str, Any], front: Population) -> tuple[Population, int]:
    words = dict(words)
    sample = Sample.of_arrays(data, words.pop("columns"))
    sample.coarseness = words.pop("coarseness")
    operators = tuple(filter(None, map(defined.spelled, words["operators"])))
    budget = Budget()
    search = Discovery(sample, SearchSettings(**{**words, "operators": operators, "threads": 1}), budget)
    search.offer(front)
    with contextlib.suppress(Ended), np.errstate(all="ignore"):
        search.evolve()
    return Population.of([entry.expression for entry in search.front.entries()]), budget.n_evals
