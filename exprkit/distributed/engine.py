"""An engine whose population is cut into slices, which workers evaluate and fit.

In: a population, data, ``Workers`` and the backend that they run.  Out: what that backend's own engine would give, bit
by bit, in the order of the population: an expression's results do not depend on what is beside it.

    >>> import numpy as np
    >>> from exprkit.distributed.engine import cuts_of
    >>> cuts_of(np.array([0, 10, 12, 14, 16, 20]), n_slices=2)  # an expression that costs as much as the others
    [(0, 1), (1, 5)]

How many slices: of a work that is estimated to take less than ``LEAST`` seconds a slice, as few as that makes; else one
for each place that works, more where they are long, so that who is done first takes what is left and an interrupt is
soon answered.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from exprkit.backends import contract, cost_model, known
from exprkit.backends.objective import Fitted, Options
from exprkit.backends.precision import Precision
from exprkit.distributed import tasks
from exprkit.distributed.collect import Cut, collect
from exprkit.distributed.tasks import EngineSetting, SlicePlace, TokenSlice
from exprkit.distributed.workers import Workers, new_name
from exprkit.errors import number_of
from exprkit.expressions.population import Population
from exprkit.runtime import slices

LEAST, MOST = 0.02, 0.5  # seconds of a slice, by the estimate
STOLEN = 0.1  # seconds of a worker's share, by the estimate, from which on it is cut so that others can take of it
PARTS = 4  # that it is cut into then
COST_OF_EXPRESSION = 4  # in tokens
EVALUATIONS = 25  # of a fit, from a start


def backend_of(workers: Workers, name: str) -> contract.Backend:
    """A backend as data, whose engine is that of all workers together."""
    backend = known(name)
    workers.check(name)
    kind = SlicedDerivatives if backend.differentiates else SlicedEngine
    return backend._replace(
        describe=lambda: str(workers), engine=functools.partial(kind, workers=workers, backend=name),
        takes_device_populations=False, adopt=contract.no_device, empty=None, empty_on_host=np.empty,
    )  # fmt: skip


def cuts_of(ends: np.ndarray, n_slices: int) -> list[Cut]:
    """Slices of about the same cost; ``ends``: 0, then the cost of all expressions up to each one."""
    return slices.cut_into(ends, min(n_slices, len(ends) - 1))


class SlicedEngine(contract.Engine):
    """A population made ready for one data set on workers."""

    def __init__(
        self, pop: Population, X: np.ndarray, *, precision: str | Precision, dtype: np.dtype, workers: Workers,
        backend: str, threads: int | None = None, **options: Any,
    ) -> None:  # fmt: skip
        self.workers, self.X, self.dtype = workers, X, np.dtype(dtype)
        self.on_device = known(backend).empty is not None
        self.threads = threads or workers.cores(self.on_device)
        self._fast = (precision if isinstance(precision, str) else precision.operators) == "fast"
        self._setting = EngineSetting(
            new_name(), backend, precision, self.dtype.name, self.threads, tuple(sorted(options.items())),
            workers.devices,
        )  # fmt: skip
        self._points = {name: KeptArrays(workers, name) for name in ("X", "y", "weights")}
        self._points["X"].take(X)
        self._watch: Callable[[int], Any] = lambda n: None
        self.update(pop)

    @contextlib.contextmanager
    def watched(self, done: Callable[[int], Any]) -> Iterator[None]:
        """Tell ``done``, in here, how many more expressions are done."""
        before, self._watch = self._watch, done
        try:
            yield
        finally:
            self._watch = before

    def update(self, pop: Population) -> bool:
        """Take another population; data and engines stay where they are."""
        self.pop, self._name = pop, new_name()
        self._tokens: dict[Cut, KeptArrays] = {}  # of the slices that were handed out before
        return True

    def evaluate(self, params: np.ndarray, out: np.ndarray) -> None:
        """Write every element of ``out``, (n_sets, n_exprs, n_points)."""
        for (begin, end), values in self._each("evaluate", params):
            out[:, begin:end] = values

    def loss_sums(self, params: np.ndarray, y: np.ndarray, weights: np.ndarray | None, kind: str) -> np.ndarray:
        """Sums over the points, float64 (n_sets, n_exprs)."""
        return self._joined(self._each("loss_sums", params, y, weights, kind), params, 1)[0]

    def decisions(self) -> list[str]:
        """Who works, and how the population is cut."""
        cost, seconds = self._cost(1)
        cuts = self._cuts(cost, seconds)
        of_each = seconds / len(cuts) / self._places()
        share = max(cost[end] - cost[begin] for begin, end in cuts) / max(int(cost[-1]), 1)
        reason = (
            f"shorter than {LEAST:g} s each would not repay sending them" if len(cuts) < self._places()
            else "one for each that works" if len(cuts) == self._places()
            else f"several for each, of {MOST:g} s at the most, so that nobody waits long"
        )
        return [
            f"{self.workers}",
            f"losses: {number_of(len(cuts), 'slice')} of about {of_each * self._places():.2g} s by the estimate, the "
            f"dearest {share:.0%} of the tokens: {reason}",
            f"the data ({self.X.nbytes / 1e6:.3g} MB) goes to a worker once; losses and parameters come back",
        ]

    # ── slices ──

    def _places(self) -> int:
        return len(self.workers.places(self.on_device))

    def _cost(self, passes: float, by_parameter: bool = False) -> tuple[np.ndarray, float]:
        """The cost of all expressions up to each one, in tokens, and the seconds of all on one worker's place."""
        own = np.diff(self.pop.offsets) + COST_OF_EXPRESSION
        own = own * (1 + self.pop.n_params) if by_parameter else own
        ends = np.concatenate([[0], np.cumsum(own)])
        work = cost_model.work_of(
            self.pop, len(self.X), dtype=self.dtype, fast=self._fast, n_steps=1, threads=self.threads, on_device=False
        )
        backend = self._setting.backend
        setup, step, *_ = cost_model.estimate(work, cost_model.COSTS.get(backend, cost_model.COSTS["cpu"]))
        dearer = float(ends[-1]) / max(len(self.pop.kinds) + COST_OF_EXPRESSION * len(self.pop), 1)
        return ends, setup + step * passes * dearer

    def _cuts(self, ends: np.ndarray, seconds: float) -> list[Cut]:
        places = self._places()
        of_each = seconds / places
        if of_each < LEAST:
            return cuts_of(ends, max(1, int(seconds / LEAST)))
        parts = max(min(int(of_each / STOLEN), PARTS), math.ceil(of_each / MOST))
        return cuts_of(ends, places * max(1, parts))

    def _each(
        self, method: str, params: np.ndarray, y: Any = None, weights: Any = None, *rest: Any,
        passes: float = 1, by_parameter: bool = False,
    ) -> list[tuple[Cut, Any]]:  # fmt: skip
        """What a method of the slices' own engines gives."""
        if not len(self.pop):
            return [((0, 0), self._nothing(method, params, y, weights, *rest))]
        ends, seconds = self._cost(passes * len(params), by_parameter)
        goal = () if method in ("evaluate", "jacobian") else self.points(y, weights)[1:]

        def task(cut: Cut, place: str | None) -> tuple[Any, ...]:
            width = self.width(cut)
            own = np.ascontiguousarray(params[:, slice(*cut), :width])
            if cut not in self._tokens:
                self._tokens[cut] = KeptArrays(self.workers, "tokens").take(TokenSlice.of(self.pop, *cut))
            X, tokens = self._points["X"].at(place), self._tokens[cut].at(place)
            arguments = [own, *(_of_some(one, cut, width, place) for one in (*goal, *rest))]
            return tasks.call, self._setting, X, SlicePlace(self._name, *cut), tokens, method, arguments

        return collect(self.workers, method, self._cuts(ends, seconds), task, self._watch, self.on_device)

    def points(self, y: np.ndarray | None, weights: np.ndarray | None) -> list[KeptArrays]:
        """X, y and weights on the workers."""
        for name, value in (("y", y), ("weights", weights)):
            self._points[name].take(None if value is None else value.copy())
        return list(self._points.values())

    def _nothing(self, method: str, params: np.ndarray, *rest: Any) -> Any:
        """Of no expressions; the definition's shapes."""
        shape = {"evaluate": (*params.shape[:2], len(self.X)), "jacobian": (*params.shape[:2], len(self.X), 0)}
        if method in shape:
            return np.empty(shape[method], self.dtype)
        engine = known("numpy").engine(self.pop, self.X, precision="ieee", dtype=self.dtype)
        return getattr(engine, method)(params, *rest)

    def width(self, cut: Cut) -> int:
        """The most parameters that an expression of a slice has."""
        return int(self.pop.n_params[slice(*cut)].max(initial=0))

    def _joined(self, found: list[tuple[Cut, Any]], params: np.ndarray, n_arrays: int) -> tuple[np.ndarray, ...]:
        """Arrays (n_sets, n_exprs, ...) of the slices' own; whose expressions have fewer parameters get zeros."""
        joined = []
        for k in range(n_arrays):
            parts = [(cut, part if n_arrays == 1 else part[k]) for cut, part in found]
            n_widths = parts[0][1].ndim - 2
            whole = np.zeros((len(params), len(self.pop), *(params.shape[2],) * n_widths))
            for (begin, end), part in parts:
                whole[(slice(None), slice(begin, end), *map(slice, part.shape[2:]))] = part
                bad = ~self.pop.valid[begin:end]
                if n_widths and bad.any():
                    whole[:, begin:end][:, bad] = np.nan
            joined.append(whole)
        return tuple(joined)


class SlicedDerivatives(SlicedEngine, contract.Differentiable):
    """The same for a backend that makes derivatives and fits."""

    fits_again = True

    def jacobian(self, params: np.ndarray, out: np.ndarray) -> None:
        """Write the derivatives into ``out``, (n_sets, n_exprs, n_points, max_params)."""
        out[...] = 0
        for (begin, end), J in self._each("jacobian", params, by_parameter=True):
            out[:, begin:end, :, : J.shape[3]] = J
        out[:, ~self.pop.valid] = np.nan

    def normal_equations(self, params: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> tuple[Any, ...]:
        """J'WJ, J'Wr and the sum of w r^2."""
        found = self._each("normal_equations", params, y, weights, by_parameter=True)
        return self._joined(found, params, 3)

    def loss_and_grad(
        self, params: np.ndarray, y: np.ndarray, weights: np.ndarray | None, kind: str
    ) -> tuple[Any, ...]:  # fmt: skip
        """The sum of a loss and its gradient."""
        found = self._each("loss_and_grad", params, y, weights, kind, by_parameter=True)
        return self._joined(found, params, 2)

    def fit(self, starts: np.ndarray, y: np.ndarray, weights: np.ndarray | None, options: Options) -> Fitted:
        """Every expression's best fit, each slice's on its worker from beginning to end."""
        return self._fitted("fit", starts, y, weights, options)

    def fit_again(
        self, starts: np.ndarray, y: np.ndarray, weights: np.ndarray | None, options: Options, other: Any,
        other_y: np.ndarray, other_weights: np.ndarray | None,
    ) -> Fitted:  # fmt: skip
        """The same; what float32 spoils is fitted anew on the worker, before anything comes back."""
        points = other.points(other_y, other_weights)
        return self._fitted("fit_again", starts, y, weights, options, other._setting, *points)

    def _fitted(self, method: str, starts: np.ndarray, y: Any, weights: Any, *rest: Any) -> Fitted:
        n, width = starts.shape[1:]
        whole = Fitted(np.full((n, width), np.nan), np.empty(n), np.empty(n, np.int32), np.empty(n, np.uint8), 0)
        found = self._each(method, starts, y, weights, *rest, passes=EVALUATIONS, by_parameter=True) if n else []
        for (begin, end), one in found:
            whole.params[begin:end, : one.params.shape[1]] = one.params
            for array, part in zip(whole[1:4], one[1:4], strict=True):
                array[begin:end] = part
        return whole._replace(evaluations=sum(one.evaluations for _, one in found))


def _of_some(argument: Any, cut: Cut, width: int, place: str | None) -> Any:
    """An argument for a slice: bounds and limits of a fit are those of its expressions, kept arrays where they are."""
    if isinstance(argument, KeptArrays):
        return argument.at(place)
    return argument.of(slice(*cut), width) if isinstance(argument, Options) else argument


class KeptArrays:
    """Arrays that go to a worker once and stay there, as long as they are the same; tasks name them.

    A task brings them, so that the scheduler can have them made again where a worker has died; every worker has a task
    of its own, since of copies dask keeps one.
    """

    def __init__(self, workers: Workers, name: str) -> None:
        self._workers, self._kind = workers, name
        self.name = ""
        self._value: Any = None
        self._futures: dict[str, Any] = {}  # by the workers' addresses

    def take(self, value: Any) -> KeptArrays:
        """Hold these; an array that is equal to what is held stays where it is."""
        if not (isinstance(value, np.ndarray) and np.array_equal(self._value, value)):
            self._value, self._futures, self.name = value, {}, new_name()
        return self

    def at(self, place: str | None) -> Any:
        """Where they are for a task on that worker, brought there if they are not; themselves for one that runs
        anywhere, and for threads of this process.
        """
        if self._value is None or place is None or self._workers.devices:
            return self._value
        there = self._workers.there()
        ready = {where: one for where, one in self._futures.items()
                 if where in there and one.status in ("pending", "finished")}  # fmt: skip
        if place not in ready:
            value = next(iter(ready.values()), self._value)  # from worker to worker, where one has them
            ready[place] = self._workers.client.submit(
                _same, value, key=f"{self._kind}-{new_name()}", pure=False, workers=[place], allow_other_workers=True
            )
        self._futures = ready
        return ready[place]


def _same(value: Any) -> Any:
    return value
