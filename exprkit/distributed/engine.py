"""An engine that cuts the population into slices, which workers evaluate and fit.

In: a population, data, ``Workers`` and the backend that they run.  Out: what that backend's own engine would give, bit
by bit, in the order of the population: an expression's results do not depend on what is beside it.

    >>> import numpy as np
    >>> from exprkit.distributed.engine import cuts_of
    >>> cuts_of(np.array([0, 10, 12, 14, 16, 20]), n_slices=2)  # an expression that costs as much as the others
    [(0, 1), (1, 5)]

How many slices: of a work that is estimated to take less than ``LEAST`` seconds a slice (``LEAST_HERE`` in this
process), as few as that makes; else one for each place that works, more where they are long, so that who is done first
takes what is left and an interrupt is soon answered.  The devices of this process write results where they belong; its
GPUs are given several slices each, of which one is brought there while another runs, unless that were so many that they
waited for Python, of which all threads have one (``slices_of_gpus``).
"""

from __future__ import annotations

import contextlib
import functools
import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends import contract, cost_model, known
from exprkit.backends.loss_tokens import Tokens
from exprkit.backends.objective import Fitted, Options
from exprkit.backends.precision import Precision
from exprkit.distributed import tasks
from exprkit.distributed.collect import Cut, Put, collect
from exprkit.distributed.tasks import EngineSetting, SlicePlace, slice_of
from exprkit.distributed.workers import Workers, new_name
from exprkit.errors import number_of
from exprkit.expressions.population import Population
from exprkit.operators import defined, ops
from exprkit.runtime import slices
from exprkit.text.tokens import OPERATOR

LEAST, LEAST_HERE, MOST = 0.02, 0.001, 0.5  # seconds of a slice, by the estimate
LOCKED = 0.001  # seconds that a slice of a GPU holds Python's lock
BLOCKS = 4096  # of expressions, at whose borders a population is cut
STOLEN = 0.1  # seconds of a worker's share, by the estimate, from which on it is cut so that others can take of it
PARTS = 4  # that it is cut into then, and at once where a slice is prepared while another runs
COST_OF_EXPRESSION = 4  # in tokens
EVALUATIONS = 25  # of a fit, from a start


def backend_of(workers: Workers, name: str) -> contract.Backend:
    """A backend as data, whose engine is that of all workers together."""
    backend = known(name)
    workers.check(name)
    kind = SlicedDerivatives if backend.differentiates else SlicedEngine
    return backend._replace(
        describe=lambda: str(workers),
        engine=functools.partial(kind, workers=workers, backend=name),
        takes_device_populations=False,
        adopt=contract.no_device,
        empty=None,
        empty_on_host=np.empty,
    )


def cuts_of(ends: np.ndarray, n_slices: int) -> list[Cut]:
    """Slices of about the same cost; ``ends``: 0, then the cost of all expressions up to each one."""
    return slices.cut_into(ends, min(n_slices, len(ends) - 1))


def slices_of_gpus(seconds: float, n_gpus: int, places: int) -> int:
    """The number of slices that work of some seconds is cut into for GPUs of this process.

    Their shares of Python's lock add up, to half of the time that a device works at the most.  Where that is less than
    a slice a device, k devices take ``seconds / k + k LOCKED``, which is least at the root of ``seconds / LOCKED``.

    >>> [slices_of_gpus(seconds, n_gpus=2, places=4) for seconds in (0.001, 0.003, 0.01, 0.03, 0.04, 1)]
    [1, 1, 2, 4, 8, 16]
    """
    most = seconds / (2 * n_gpus * LOCKED)
    if most < n_gpus:
        return max(1, min(n_gpus, int(math.sqrt(seconds / LOCKED))))
    if most < places:
        return n_gpus
    return places * max(min(int(most / places), PARTS), math.ceil(seconds / places / MOST))


class TextSum(NamedTuple):
    """A loss that is a text, and what it reads."""

    tokens: Tokens
    columns: np.ndarray
    counted: bool


class SlicedEngine(contract.Engine):
    """A population made ready for one data set on workers."""

    def __init__(
        self,
        pop: Population,
        X: np.ndarray,
        *,
        precision: str | Precision,
        dtype: np.dtype,
        workers: Workers,
        backend: str,
        threads: int | None = None,
        **options: Any,
    ) -> None:
        tasks.refuse_functions(pop, workers)
        self.workers, self.X, self.dtype = workers, X, np.dtype(dtype)
        self.on_device = workers.on_gpu(backend)
        self.threads = threads or workers.cores(self.on_device)
        self._fast = (precision if isinstance(precision, str) else precision.operators) == "fast"
        self._setting = EngineSetting(
            new_name(), backend, precision, self.dtype.name, self.threads, tuple(sorted(options.items()))
        )
        self._points = {name: KeptArrays(workers, name) for name in ("X", "y", "weights")}
        self._points["X"].take(X)
        if workers.devices:
            weakref.finalize(self, workers.everywhere, tasks.forget, self._setting.data).atexit = False
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
        tasks.refuse_functions(pop, self.workers)
        self.pop, self._name = pop, new_name()
        self._tokens: dict[Cut, KeptArrays] = {}  # of the slices that were handed out before
        return True

    def evaluate(self, params: np.ndarray, out: np.ndarray) -> None:
        """Write every element of ``out``, (n_sets, n_exprs, n_points)."""
        self._fill("evaluate", (out,), params)

    def loss_sums(self, params: np.ndarray, y: np.ndarray, weights: np.ndarray | None, kind: str) -> np.ndarray:
        """Sums over the points, float64 (n_sets, n_exprs)."""
        return self._sums("loss_sums", (0,), params, y, weights, kind)[0]

    def prepare_text(self, loss: Tokens, columns: np.ndarray, counted: bool) -> TextSum | None:
        """A loss that is a text; None where other processes do not know an operator of the user's in it."""
        rows = (defined.row(code) for code in defined.codes_in(*loss, OPERATOR))
        known = all(isinstance(row, defined.Definition) and row.text in ops.LOSS_FORMULAS for row in rows)
        return TextSum(loss, columns, counted) if known or self.workers.devices else None

    def sums(self, params: np.ndarray, prepared: Any, counts: Any = None, out: Any = None) -> np.ndarray | None:
        """The sums of a prepared loss, as one device makes them; None if the engines can't add up its text."""
        if not isinstance(prepared, TextSum):
            return self.loss_sums(params, *prepared)
        whole, text = np.zeros(params.shape[:2]), (prepared.tokens, prepared.counted)
        return whole if self._fill("text_sums", (whole,), params, prepared.columns, None, *text) else None

    def decisions(self) -> list[str]:
        """Who works, and how the population is cut."""
        edges, cost, seconds = self._cost(1)
        cuts, places = self._cuts(edges, cost, seconds), self._places()
        share = max(np.diff(cost[np.searchsorted(edges, cuts)])[:, 0]) / max(float(cost[-1]), 1.0)
        reason = (
            "more would wait for Python"
            if len(cuts) < places and self.workers.devices and self.on_device
            else f"shorter than {self._least:g} s each would not repay it"
            if len(cuts) < places
            else "one for each that works"
            if len(cuts) == places
            else f"several for each, of {MOST:g} s at the most, so that nobody waits long"
        )
        where = "where it lies" if self.workers.devices else "to a worker once; losses and parameters come back"
        return [
            f"{self.workers}",
            f"losses: {number_of(len(cuts), 'slice')} of about {seconds / len(cuts):.2g} s by the estimate, the "
            f"dearest {share:.0%} of the tokens: {reason}",
            f"the data ({self.X.nbytes / 1e6:.3g} MB) {'is read' if self.workers.devices else 'goes'} {where}",
        ]

    # ── slices ──

    def _places(self) -> int:
        return len(self.workers.places(self.on_device))

    @property
    def _least(self) -> float:
        return LEAST_HERE if self.workers.devices else LEAST

    def _cost(self, passes: float, by_parameter: bool = False) -> tuple[np.ndarray, np.ndarray, float]:
        """Borders of blocks, the cost of all expressions up to each, and the seconds of all on one worker's place."""
        n = len(self.pop)
        edges = np.unique(np.linspace(0, n, min(n, BLOCKS) + 1).astype(np.int64))
        cost = np.diff(self.pop.offsets[edges]) + COST_OF_EXPRESSION * np.diff(edges)
        if by_parameter:
            cost = cost * (1 + np.add.reduceat(self.pop.n_params, edges[:-1], dtype=np.int32) / np.diff(edges))
        ends = np.concatenate([[0], np.cumsum(cost)])
        work = cost_model.work_of(
            self.pop, len(self.X), dtype=self.dtype, fast=self._fast, n_steps=1, threads=self.threads, on_device=False
        )
        backend = self._setting.backend
        setup, step, *_ = cost_model.estimate(work, cost_model.COSTS.get(backend, cost_model.COSTS["cpu"]))
        dearer = float(ends[-1]) / max(len(self.pop.kinds) + COST_OF_EXPRESSION * n, 1)
        return edges, ends, setup + step * passes * dearer

    def _cuts(self, edges: np.ndarray, ends: np.ndarray, seconds: float) -> list[Cut]:
        places = self._places()
        of_each = seconds / places
        if self.workers.devices and self.on_device:
            n_slices = slices_of_gpus(seconds, len(self.workers.devices), places)
        elif of_each < self._least:
            n_slices = max(1, int(seconds / self._least))
        else:
            n_slices = places * max(1, min(int(of_each / STOLEN), PARTS), math.ceil(of_each / MOST))
        return [(int(edges[a]), int(edges[b])) for a, b in cuts_of(ends, n_slices)]

    def _each(
        self,
        method: str,
        put: Put,
        params: np.ndarray,
        y: Any = None,
        weights: Any = None,
        *rest: Any,
        passes: float = 1,
        by_parameter: bool = False,
    ) -> None:
        """Have ``put`` take what a method of the slices' own engines gives."""
        if not len(self.pop):
            return
        cuts = self._cuts(*self._cost(passes * len(params), by_parameter))
        goal = () if method in ("evaluate", "jacobian") else self.points(y, weights)[1:]
        pop, name, sent = self.pop, self._name, self._tokens  # a thread may look at them after an interrupt

        def task(cut: Cut, place: str | None) -> tuple[Any, ...]:
            width = int(pop.n_params[slice(*cut)].max(initial=0))
            slice_params = np.ascontiguousarray(params[:, slice(*cut), :width])
            if cut not in sent:
                sent[cut] = KeptArrays(self.workers, "tokens").take(slice_of(pop, *cut, not self.workers.devices))
            X, tokens = self._points["X"].at(place), sent[cut].at(place)
            arguments = [slice_params, *(_of_some(argument, cut, width, place) for argument in (*goal, *rest))]
            return tasks.call, self._setting, X, SlicePlace(name, *cut), tokens, method, arguments

        collect(self.workers, method, cuts, task, self._watch, self.on_device, put)

    def points(self, y: np.ndarray | None, weights: np.ndarray | None) -> list[KeptArrays]:
        """X, y and weights on the workers."""
        self._points["y"].take(y)
        self._points["weights"].take(weights)
        return list(self._points.values())

    def _sums(self, method: str, n_widths: tuple[int, ...], params: np.ndarray, *rest: Any) -> tuple[np.ndarray, ...]:
        """Arrays (n_sets, n_exprs, ...) of a method, each so many times as wide as there are parameters.

        Expressions that have fewer parameters get zeros.
        """
        lead, width = params.shape[:2], params.shape[2]
        whole = tuple(np.zeros((*lead, *(width,) * n)) for n in n_widths)
        self._fill(method, whole, params, *rest, by_parameter=len(n_widths) > 1)
        return whole

    def _fill(self, method: str, whole: tuple[np.ndarray, ...], params: np.ndarray, *rest: Any, **cost: Any) -> bool:
        """Have arrays, (n_sets, n_exprs, ...), take the results of a method; False where an engine gives none.

        0 stands for parameters that an expression has not, nan in all of one that could not be read.
        """
        valid, refused = self.pop.valid, []

        def put(cut: Cut, results: Any) -> None:
            rows = slice(*cut)
            if results is None:
                refused.append(cut)
                return
            for array, part in zip(whole, results if isinstance(results, tuple) else (results,), strict=True):
                if part.shape[2:] != array.shape[2:]:
                    array[:, rows] = 0
                array[(slice(None), rows, *map(slice, part.shape[2:]))] = part
                if not valid[rows].all():
                    array[:, rows][:, ~valid[rows]] = np.nan

        self._each(method, put, params, *rest, **cost)
        return not refused


class SlicedDerivatives(SlicedEngine, contract.Differentiable):
    """The same for a backend that makes derivatives and fits."""

    fits_again = True

    def jacobian(self, params: np.ndarray, out: np.ndarray) -> None:
        """Write the derivatives into ``out``, (n_sets, n_exprs, n_points, max_params)."""
        self._fill("jacobian", (out,), params, by_parameter=True)

    def normal_equations(self, params: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> tuple[Any, ...]:
        """J'WJ, J'Wr and the sum of w r^2."""
        return self._sums("normal_equations", (2, 1, 0), params, y, weights)

    def loss_and_grad(
        self, params: np.ndarray, y: np.ndarray, weights: np.ndarray | None, kind: str
    ) -> tuple[Any, ...]:
        """The sum of a loss and its gradient."""
        return self._sums("loss_and_grad", (0, 1), params, y, weights, kind)

    def fit(self, starts: np.ndarray, y: np.ndarray, weights: np.ndarray | None, options: Options) -> Fitted:
        """Every expression's best fit, each slice's on its worker from beginning to end."""
        return self._fitted("fit", starts, y, weights, options)

    def fit_again(
        self,
        starts: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray | None,
        options: Options,
        again: Callable[[], tuple[Any, Any, Any]],
    ) -> Fitted:
        """The same; what float32 spoils is fitted anew on the worker, before anything comes back."""
        other, *of_other = again()
        points = other.points(*of_other)
        return self._fitted("fit_again", starts, y, weights, options, other._setting, *points)

    def _fitted(self, method: str, starts: np.ndarray, y: Any, weights: Any, *rest: Any) -> Fitted:
        n, width = starts.shape[1:]
        whole = Fitted(np.empty((n, width)), np.empty(n), np.empty(n, np.int32), np.empty(n, np.uint8), 0)
        evaluations = []

        def put(cut: Cut, fits: Fitted) -> None:
            rows, n_params = slice(*cut), fits.params.shape[1]
            whole.params[rows, :n_params], whole.params[rows, n_params:] = fits.params, np.nan
            for array, part in zip(whole[1:4], fits[1:4], strict=True):
                array[rows] = part
            evaluations.append(fits.evaluations)

        self._each(method, put, starts, y, weights, *rest, passes=EVALUATIONS, by_parameter=True)
        return whole._replace(evaluations=sum(evaluations))


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
        if self._workers.devices:  # which read it where it lies
            self._value, self.name = value, new_name()
        elif not (isinstance(value, np.ndarray) and np.array_equal(self._value, value)):
            value = value.copy() if isinstance(value, np.ndarray) else value
            self._value, self._futures, self.name = value, {}, new_name()
        return self

    def at(self, place: str | None) -> Any:
        """Where they are for a task on that worker, brought there if they are not; themselves for one that runs
        anywhere, and for threads of this process.
        """
        if self._value is None or place is None or self._workers.devices:
            return self._value
        addresses = self._workers.addresses()
        ready = {
            address: future
            for address, future in self._futures.items()
            if address in addresses and future.status in ("pending", "finished")
        }
        if place not in ready:
            value = next(iter(ready.values()), self._value)  # from worker to worker, where one has them
            ready[place] = self._workers.client.submit(
                _same, value, key=f"{self._kind}-{new_name()}", pure=False, workers=[place], allow_other_workers=True
            )
        self._futures = ready
        return ready[place]


def _same(value: Any) -> Any:
    return value
