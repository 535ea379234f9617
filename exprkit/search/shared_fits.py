"""``best_fits`` of chunks of functions, distributed over workers.

In: what ``best_fits`` takes, and ``Workers``.  Out: what it gives, bit by bit: what an expression is fitted beside does
not matter to it.

    >>> import numpy as np
    >>> import exprkit as ek
    >>> from exprkit.distributed.workers import workers_of
    >>> from exprkit.search.shared_fits import SharedFits
    >>> x = np.linspace(0.1, 2, 20)[:, None]
    >>> shared = SharedFits(workers_of(2, None), x, 3 * x[:, 0] ** -2.5, None, {"loss": "gaussian", "dtype": "float64"})
    >>> pop = ek.parse(["p1 * x1 ^ p2", "p1 + x1"])
    >>> shared.best_fits(pop, np.array([7, 8]), restarts=10, seed=0, sizes=np.ones(1)).params[0].round(3).tolist()
    [3.0, -2.5]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from exprkit.distributed.collect import Cut, collect
from exprkit.distributed.engine import COST_OF_EXPRESSION, KeptArrays, cuts_of
from exprkit.distributed.tasks import TooLarge, on_device, population_of, refuse_functions, slice_of
from exprkit.distributed.workers import Workers
from exprkit.expressions.population import Population
from exprkit.fitting.fit import FitProblem
from exprkit.search.best_fits import BestFits, best_fits

# Of a worker's share, by whether it is a GPU's: who is done first takes what is left, but a GPU wants many at a time
PARTS = {False: 2, True: 1}
LEAST = 512  # functions of a slice: fits of fewer take hardly less time


class SharedFits:
    """A fit problem that workers have, each its own."""

    def __init__(
        self, workers: Workers, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None, settings: dict[str, Any]
    ) -> None:
        self.workers, self.on_gpu = workers, workers.on_gpu(settings.get("backend", "auto"))
        self._settings = {**settings, "threads": settings.get("threads") or workers.cores(self.on_gpu)}
        self._data = KeptArrays(workers, "data").take((X, y, weights))

    def places(self) -> int:
        """How many slices are worked on at a time."""
        return len(self.workers.places(self.on_gpu))

    def devices(self) -> int:
        """How many devices work; a GPU of this process works on two slices at a time."""
        return len(self.workers.devices) or self.places()

    def best_fits(
        self,
        pop: Population,
        names: np.ndarray,
        restarts: int,
        seed: int,
        sizes: np.ndarray,
        check: Callable[[], Any] = lambda: None,
    ) -> BestFits:
        """As ``best_fits``, but for the goal; ``check`` is called after every slice."""
        refuse_functions(pop, self.workers)
        cost = (np.diff(pop.offsets) + COST_OF_EXPRESSION) * (1 + pop.n_params)
        n_slices = min(PARTS[self.on_gpu] * self.places(), len(pop) // LEAST)
        cuts = cuts_of(np.concatenate([[0], np.cumsum(cost)]), n_slices)

        def task(cut: Cut, place: str | None) -> tuple[Any, ...]:
            arguments = slice_of(pop, *cut, not self.workers.devices), names[slice(*cut)], restarts, seed, sizes
            data = self._data.name, self._data.at(place)
            return _best_fits, *data, self._settings, self.on_gpu, arguments

        return _joined(collect(self.workers, "best_fits", cuts, task, lambda n: check(), self.on_gpu), pop)


def _joined(slices: list[tuple[Cut, BestFits]], pop: Population) -> BestFits:
    """The slices' fits as those of all."""
    n, width = len(pop), pop.max_params
    params, at_bound = np.full((n, width), np.nan), np.zeros((n, width), bool)
    for (begin, end), fits in slices:
        params[begin:end, : fits.params.shape[1]] = fits.params
        at_bound[begin:end, : fits.params.shape[1]] = fits.at_bound
    loss, times = (np.concatenate([fits[k] for _, fits in slices] or [np.empty(0)]) for k in (1, 2))
    return BestFits(params, loss, times, at_bound, None, sum(fits.evaluations for _, fits in slices))


# The problems of a worker's threads that no task uses now: (data, problem) by worker
_idle: dict[str, list[tuple[str, FitProblem]]] = defaultdict(list)


def _best_fits(
    name: str,
    data: tuple[Any, ...],
    settings: dict[str, Any],
    on_gpu: bool,
    arguments: tuple[Any, ...],
) -> BestFits | TooLarge:
    """On a worker: the fits of a slice."""
    tokens, names, *rest = arguments
    with on_device(on_gpu) as worker:
        entry = next((item for item in _idle[worker] if item[0] == name), None)
        if entry is not None:
            _idle[worker].remove(entry)
        X, y, weights = data
        problem = FitProblem(X, y, weights=weights, accuracy="screen", **settings) if entry is None else entry[1]
        try:
            fits = best_fits(problem, population_of(tokens), names, *rest)
        except MemoryError as error:
            return TooLarge(str(error) or "MemoryError")
        _idle[worker] = [(name, problem), *(item for item in _idle[worker] if item[0] == name)]
        return fits._replace(goal=None)
