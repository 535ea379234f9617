"""Genetic programming on several devices: the island model, with migration through the common front.

In: a ``FormulaSearch`` after its stages, and ``Workers``.  Out: its front, with the islands' best formulas.

    for EPOCH generations at a time:
        every island breeds from the common front, with its own seed
        the common front takes the formulas of the islands' fronts (migration)

The result depends on the seed and the number of islands, not on who works where or when.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from exprkit.distributed.shared import SharedObject
from exprkit.distributed.workers import Workers
from exprkit.expressions.population import Population
from exprkit.operators import defined
from exprkit.regression.problem.rows import Rows
from exprkit.regression.stages.discovery import Discovery
from exprkit.regression.stages.search import FormulaSearch
from exprkit.regression.stages.search_problem import SearchSettings
from exprkit.runtime import machine
from exprkit.runtime.budget import Budget, Ended

EPOCH = 20  # generations between two migrations
# settings that an island does without, or has its own values of
NOT_SHARED = ("operators", "early_stop", "guesses", "seed", "threads", "niterations", "outermost")


def evolve(search: FormulaSearch, settings: SearchSettings, workers: Workers, show: Callable[[], None]) -> str:
    """Breed on all workers, and let the front of the search take the result; returns why that ended."""
    rows, names = search.problem.rows, [field.name for field in dataclasses.fields(settings)]
    columns = None if rows.loss_rows is None else list(rows.loss_rows.columns)
    islands = SharedObject(workers, Rows.of_arrays, rows.arrays, columns, rows.coarseness, backend=settings.backend)
    shared = {name: getattr(settings, name) for name in names if name not in NOT_SHARED}
    shared["operators"], n = [row.name for row in settings.operators], islands.n_places
    for first in range(0, settings.niterations, EPOCH):
        generations = min(EPOCH, settings.niterations - first)
        front = Population.of([entry.expression for entry in search.front.entries()])

        def arguments(k: int, end: int) -> tuple[Any, ...]:
            own = {"niterations": generations, "seed": settings.seed + 7919 * (first * n + k)}  # noqa: B023  called
            return {**shared, **own}, front  # noqa: B023  before the next round

        try:
            for _, (formulas, n_evals) in islands.each(_bred, [(k, k + 1) for k in range(n)], arguments):
                search.problem.budget.count(n_evals)
                search.offer(formulas)
            search.stage = f"generation {first + generations}"
            show()
            search.problem.budget.check()
        except Ended as ended:
            return str(ended)
        if any(settings.early_stop(entry.loss, entry.size) for entry in search.front.entries()):
            return "the loss is as small as was asked for"
    return f"{settings.niterations:,} iterations are done on {n} islands"


def _bred(rows: Rows, settings: dict[str, Any], front: Population) -> tuple[Population, int]:
    """On a worker: the front after some generations, and how many functions were tried."""
    operators, budget = tuple(filter(None, map(defined.spelled, settings["operators"]))), Budget()
    discovery = Discovery(rows, SearchSettings(**{**settings, "operators": operators, "threads": 1}), budget)
    discovery.search.offer(front)
    with contextlib.suppress(Ended), np.errstate(all="ignore"), machine.limited(1):
        discovery.evolve()
    return Population.of([entry.expression for entry in discovery.search.front.entries()]), budget.n_evals
