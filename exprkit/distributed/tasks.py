"""Tasks on a worker: a backend's engine on a slice of the population, kept for the next call.

In: arrays.  Out: arrays, or ``TooLarge`` where memory ran out.

    >>> import numpy as np
    >>> import exprkit as ek
    >>> from exprkit.distributed.tasks import TokenSlice
    >>> tokens = TokenSlice.of(ek.parse(["x1 + 1", "x1 * p1", "x1 / p1"]), 1, 3)
    >>> tokens.population().texts()
    ['x1 * p1', 'x1 / p1']
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from exprkit.backends import load
from exprkit.backends.contract import Engine
from exprkit.backends.gpu import device as gpu
from exprkit.backends.objective import Fitted, Options, with_spoiled_anew
from exprkit.distributed.threads import device_here
from exprkit.errors import ArgumentError
from exprkit.expressions.population import Population
from exprkit.operators import defined

Held = TypeVar("Held")
MOST_ENGINES = 8  # that a worker keeps: a search's next call takes one of them


class TokenSlice(NamedTuple):
    """A slice of a population as arrays, which is all that travels to other processes."""

    kinds: np.ndarray
    values: np.ndarray
    offsets: np.ndarray
    shares: bool

    @classmethod
    def of(cls, pop: Population, begin: int, end: int) -> TokenSlice:
        """The slice, with formulas in place of operators of the user's own, whose codes are those of this process."""
        if defined.definitions():
            shares, pop = pop.shares, pop.part(begin, end).expanded()
            begin, end, pop.shares = 0, end - begin, shares
        first, last = int(pop.offsets[begin]), int(pop.offsets[end])
        offsets = pop.offsets[begin : end + 1] - first
        return cls(pop.kinds[first:last], pop.values[first:last], offsets, pop.shares)

    def population(self) -> Population:
        """The population, its tokens checked once more."""
        pop = Population(self.kinds, self.values, self.offsets)
        pop.shares = self.shares
        return pop


def refuse_functions(pop: Any, workers: Any) -> None:
    """An error for operators that are functions of this process, before anything is sent; formulas are written out."""
    codes = () if workers.devices else pop.user_operators()
    for row in defined.functions():
        if row.code in codes:
            raise ArgumentError(
                f"operator {row.name!r} is a function of this process, which a client's workers do not know: define it "
                f"by a formula, exprkit.operator('{defined.head(row)} = …'), or leave client= out"
            )


def slice_of(pop: Population, begin: int, end: int, travels: bool) -> TokenSlice | Population:
    """A slice for a worker; where it does not travel a view of tokens that have been checked."""
    return TokenSlice.of(pop, begin, end) if travels else pop.part(begin, end)


def population_of(tokens: TokenSlice | Population) -> Population:
    """The population of what ``slice_of`` gives."""
    return tokens if isinstance(tokens, Population) else tokens.population()


class EngineSetting(NamedTuple):
    """The arguments of an engine beside population and data."""

    data: str  # names the data
    backend: str
    precision: Any
    dtype: str
    threads: int
    options: tuple[tuple[str, Any], ...]

    def engine(self, pop: Population, X: np.ndarray) -> Engine:
        return load(self.backend).engine(
            pop, X, precision=self.precision, dtype=np.dtype(self.dtype), threads=self.threads, **dict(self.options)
        )


class TooLarge(NamedTuple):
    """In place of a result: there was not enough memory for it."""

    why: str


class SlicePlace(NamedTuple):
    """A slice of a population: the population's name, and where the slice begins and ends."""

    population: str  # names it
    begin: int
    end: int


def call(
    setting: EngineSetting,
    X: np.ndarray,
    which: SlicePlace,
    tokens: TokenSlice | Population,
    method: str,
    arguments: list[Any],
) -> Any:
    """A method of the engine of a slice."""

    def called(engines: deque[Ready]) -> Any:
        with _engine(engines, setting, X, which, lambda: population_of(tokens)) as engine:
            if method == "fit_again":
                return _fit_again(engines, which, engine, *arguments)
            return _METHODS[method](engine, len(X), setting.dtype, *arguments)

    with on_device(load(setting.backend).empty is not None) as worker:
        return twice(lambda: called(_kept[worker]), of_device(_kept, worker))


def twice(work: Callable[[], Any], held: Iterable[Any]) -> Any:
    """The result of ``work``; where memory runs out, that of a second try with ``held`` cleared, then ``TooLarge``."""
    try:
        return work()
    except MemoryError:
        with _choosing:
            for things in held:
                things.clear()
    try:
        return work()
    except MemoryError as error:
        return TooLarge(str(error) or "MemoryError")


def _fit_again(
    engines: deque[Ready], which: SlicePlace, engine: Any, starts: np.ndarray, y: np.ndarray,
    weights: np.ndarray | None, options: Options, setting: EngineSetting, X: np.ndarray, *points: Any,
) -> Fitted:  # fmt: skip
    """Fits, and those that float32 spoils made anew by an engine of float64 on data of float64."""
    if engine.fits_again:
        with contextlib.ExitStack() as stack:

            def again() -> tuple[Any, ...]:
                return stack.enter_context(_engine(engines, setting, X, which, lambda: engine.pop)), *points

            return engine.fit_again(starts, y, weights, options, again)

    def fit(pop: Population, starts: np.ndarray, options: Options) -> Fitted:
        engine_64: Any = setting.engine(pop, X)
        return engine_64.fit(starts, *points, options)

    return with_spoiled_anew(engine.fit(starts, y, weights, options), engine.pop, starts, options, fit)


Ready = tuple[EngineSetting, SlicePlace, Engine]
# Engines that no task uses now, by worker, the last used at the end; a worker's tasks take them out and put them back
_kept: dict[str, deque[Ready]] = defaultdict(deque)
_texts: WeakKeyDictionary[Engine, tuple[np.ndarray, Any]] = WeakKeyDictionary()  # columns and sum of the last text
_locks: dict[Any, threading.Lock] = defaultdict(threading.Lock)
_choosing = threading.Lock()


@contextlib.contextmanager
def _engine(
    engines: deque[Ready], setting: EngineSetting, X: np.ndarray, which: SlicePlace, tokens: Callable[[], Population]
) -> Iterator[Engine]:
    """The slice's own engine, or one of an earlier population on the same data that takes it, or a new one."""
    engine = _ready(engines, setting, X, which, tokens)
    yield engine
    engines.append((setting, which, engine))
    while len(engines) > MOST_ENGINES:
        engines.popleft()


def _ready(
    engines: deque[Ready], setting: EngineSetting, X: np.ndarray, which: SlicePlace, tokens: Callable[[], Population]
) -> Engine:
    with _choosing:
        same = next((entry for entry in engines if entry[:2] == (setting, which)), None)
        others = (entry for entry in engines if entry[0] == setting and entry[1].population != which.population)
        reusable = same or next(others, None)
        if reusable is not None:
            engines.remove(reusable)
    if same is not None:
        return same[2]
    pop = tokens()
    if reusable is not None and reusable[2].update(pop):
        return reusable[2]
    return setting.engine(pop, X)


def forget(data: str) -> None:
    """In a device's thread: let go of its engines on some data."""
    engines = _kept[str(device_here())]
    with _choosing:
        for entry in [entry for entry in engines if entry[0].data == data]:
            engines.remove(entry)


def of_device(by_worker: dict[str, Held], worker: str) -> list[Held]:
    """The values of all workers of a worker's device: the threads of a GPU share its memory."""
    device = worker.partition(",")[0]
    return [value for name, value in list(by_worker.items()) if name.partition(",")[0] == device]


@contextlib.contextmanager
def on_device(is_gpu: bool) -> Iterator[str]:
    """In a worker's task: on its own device, one task at a time there; gives the worker's name."""
    place = device_here()
    if place is not None:
        if is_gpu:
            gpu.use(*place)
        yield str(place)
        return
    from distributed import get_worker

    address = get_worker().address
    with _locks[address] if is_gpu else contextlib.nullcontext():
        yield address


# ── methods of engines, as tasks call them ──


def _evaluate(engine: Engine, n_points: int, dtype: str, params: np.ndarray) -> np.ndarray:
    out = np.empty((*params.shape[:2], n_points), dtype)
    engine.evaluate(params, out)
    return out


def _jacobian(engine: Any, n_points: int, dtype: str, params: np.ndarray) -> np.ndarray:
    out = np.empty((*params.shape[:2], n_points, params.shape[2]), dtype)
    engine.jacobian(params, out)
    return out


def _text_sums(
    engine: Engine, n_points: int, dtype: str, params: np.ndarray, columns: np.ndarray, weights: None, *loss: Any
) -> np.ndarray | None:
    """Sums of a loss that is a text, by its tokens and whether points are counted; None where there are none."""
    known = _texts.get(engine)
    if known is None or known[0] is not columns:
        tokens, counted = loss
        known = _texts[engine] = columns, engine.prepare_text(tokens, columns, counted)
    return None if known[1] is None else engine.sums(params, known[1])


def _plain(name: str) -> Any:
    return lambda engine, n_points, dtype, *arguments: getattr(engine, name)(*arguments)


_METHODS: dict[str, Any] = {"evaluate": _evaluate, "jacobian": _jacobian, "text_sums": _text_sums} | {
    name: _plain(name) for name in ("loss_sums", "normal_equations", "loss_and_grad", "fit")
}
