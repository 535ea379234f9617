"""``best_fits`` of chunks of functions, distributed over workers.

In: what ``best_fits`` takes, and ``Workers``.  Out: what it gives, bit by bit: what an expression is fitted beside does
not matter to it.

    >>> import numpy as np
    >>> import exprkit as ek
    >>> from exprkit.distributed.workers import workers_of
    >>> from exprkit.search.shared_fits import shared_best_fits, shared_problem
    >>> x = np.linspace(0.1, 2, 20)[:, None]
    >>> settings = {"loss": "gaussian", "dtype": "float64", "backend": "cpu"}
    >>> problem = shared_problem(workers_of(2, None), x, 3 * x[:, 0] ** -2.5, None, settings)
    >>> pop = ek.parse(["p1 * x1 ^ p2", "p1 + x1"])
    >>> shared_best_fits(problem, pop, np.array([7, 8]), 10, 0, np.ones(1)).params[0].round(3).tolist()
    [3.0, -2.5]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from exprkit.distributed.shared import SharedObject
from exprkit.distributed.workers import Workers
from exprkit.expressions.population import Population
from exprkit.fitting.fit import FitProblem
from exprkit.search.best_fits import BestFits, best_fits

# Of a worker's share, a CPU's and a GPU's: who is done first takes what is left, but a GPU wants many at a time
PARTS = 2, 1
LEAST = 512  # functions of a slice: fits of fewer take hardly less time


def shared_problem(
    workers: Workers, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None, settings: dict[str, Any]
) -> SharedObject:
    """A fit problem that workers have, each its own."""
    backend = settings.get("backend", "auto")
    settings = {**settings, "threads": settings.get("threads") or workers.cores(workers.on_gpu(backend))}
    return SharedObject(workers, _problem, (X, y, weights), settings, backend=backend)


def shared_best_fits(
    problem: SharedObject,
    pop: Population,
    names: np.ndarray,
    restarts: int,
    seed: int,
    sizes: np.ndarray,
    check: Callable[[], Any] = lambda: None,
) -> BestFits:
    """As ``best_fits``, but for the goal; ``check`` is called after every slice."""

    def arguments(begin: int, end: int) -> tuple[Any, ...]:
        return pop.part(begin, end), names[begin:end], restarts, seed, sizes

    return _joined(problem.each(_best_fits, problem.cuts(pop, PARTS, LEAST), arguments, check), pop)


def _problem(X: np.ndarray, y: np.ndarray, weights: np.ndarray | None, settings: dict[str, Any]) -> FitProblem:
    return FitProblem(X, y, weights=weights, accuracy="screen", **settings)


def _best_fits(problem: FitProblem, *arguments: Any) -> BestFits:
    """On a worker: the fits of a slice."""
    return best_fits(problem, *arguments)._replace(goal=None)


def _joined(slices: list[tuple[tuple[int, int], BestFits]], pop: Population) -> BestFits:
    """The slices' fits as those of all."""
    n, width = len(pop), pop.max_params
    params, at_bound = np.full((n, width), np.nan), np.zeros((n, width), bool)
    for (begin, end), fits in slices:
        params[begin:end, : fits.params.shape[1]] = fits.params
        at_bound[begin:end, : fits.params.shape[1]] = fits.at_bound
    loss, times = (np.concatenate([fits[k] for _, fits in slices] or [np.empty(0)]) for k in (1, 2))
    return BestFits(params, loss, times, at_bound, None, sum(fits.evaluations for _, fits in slices))
