"""What runs on a worker: a backend's engine on a slice of the population, kept for the next call.

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
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends import load
from exprkit.backends.contract import Engine
from exprkit.expressions.population import Population

MOST_ENGINES = 8  # that a worker keeps: a search's next call takes one of them


class TokenSlice(NamedTuple):
    """A slice of a population as arrays, which is all that travels."""

    kinds: np.ndarray
    values: np.ndarray
    offsets: np.ndarray
    shares: bool

    @classmethod
    def of(cls, pop: Population, begin: int, end: int) -> TokenSlice:
        first, last = int(pop.offsets[begin]), int(pop.offsets[end])
        offsets = pop.offsets[begin : end + 1] - first
        return cls(pop.kinds[first:last], pop.values[first:last], offsets, pop.shares)

    def population(self) -> Population:
        """The population, its tokens checked once more."""
        pop = Population(self.kinds, self.values, self.offsets)
        pop.shares = self.shares
        return pop


class EngineSetting(NamedTuple):
    """What an engine is made with beside population and data."""

    data: str  # names the data
    backend: str
    precision: Any
    dtype: str
    threads: int
    options: tuple[tuple[str, Any], ...]
    devices: tuple[int, ...] | None  # by the worker's name

    def engine(self, pop: Population, X: np.ndarray) -> Engine:
        return load(self.backend).engine(
            pop, X, precision=self.precision, dtype=np.dtype(self.dtype), threads=self.threads, **dict(self.options)
        )


class TooLarge(NamedTuple):
    """In place of a result: there was not enough memory for it."""

    why: str


class SlicePlace(NamedTuple):
    """Which part of which population."""

    population: str  # names it
    begin: int
    end: int


def call(
    setting: EngineSetting, X: np.ndarray, which: SlicePlace, tokens: TokenSlice, method: str, arguments: list[Any]
) -> Any:  # fmt: skip
    """A method of the engine of a slice."""
    with on_device(setting.devices, load(setting.backend).empty is not None) as worker:
        try:
            return _called(worker, setting, X, which, tokens, method, arguments)
        except MemoryError:
            _kept[worker].clear()
        try:  # once more with all that is free
            return _called(worker, setting, X, which, tokens, method, arguments)
        except MemoryError as error:
            return TooLarge(str(error) or "MemoryError")


def _called(
    worker: Any, setting: EngineSetting, X: np.ndarray, which: SlicePlace, tokens: TokenSlice, method: str,
    arguments: list[Any],
) -> Any:  # fmt: skip
    engine = _ready(_kept[worker], setting, X, which, tokens)
    found = _METHODS[method](engine, len(X), setting.dtype, *arguments)
    _kept[worker].append((setting, which, engine))
    while len(_kept[worker]) > MOST_ENGINES:
        _kept[worker].popleft()
    return found


Ready = tuple[EngineSetting, SlicePlace, Engine]
# Engines that no task uses now, by worker, the last used at the end; a worker's tasks take them out and put them back
_kept: dict[Any, deque[Ready]] = defaultdict(deque)
_locks: dict[Any, threading.Lock] = defaultdict(threading.Lock)
_choosing = threading.Lock()


def _ready(kept: deque[Ready], setting: EngineSetting, X: np.ndarray, which: SlicePlace, tokens: TokenSlice) -> Engine:
    """The slice's own engine, or one of an earlier population on the same data that takes it, or a new one."""
    with _choosing:
        own = next((one for one in kept if one[:2] == (setting, which)), None)
        old = own or next((one for one in kept if one[0] == setting and one[1].population != which.population), None)
        if old is not None:
            kept.remove(old)
    if own is not None:
        return own[2]
    pop = tokens.population()
    if old is not None and old[2].update(pop):
        return old[2]
    return setting.engine(pop, X)


@contextlib.contextmanager
def on_device(devices: tuple[int, ...] | None, is_gpu: bool) -> Iterator[str]:
    """In a worker's task: on its own device, one task at a time there; gives the worker's address."""
    from distributed import get_worker

    worker = get_worker()
    if not is_gpu:
        yield worker.address
        return
    import cupy

    with _locks[worker.address]:
        if devices is not None:
            cupy.cuda.Device(devices[int(worker.name)]).use()
        yield worker.address


# ── methods of engines, as tasks call them ──


def _evaluate(engine: Engine, n_points: int, dtype: str, params: np.ndarray) -> np.ndarray:
    out = np.empty((*params.shape[:2], n_points), dtype)
    engine.evaluate(params, out)
    return out


def _jacobian(engine: Any, n_points: int, dtype: str, params: np.ndarray) -> np.ndarray:
    out = np.empty((*params.shape[:2], n_points, params.shape[2]), dtype)
    engine.jacobian(params, out)
    return out


def _plain(name: str) -> Any:
    return lambda engine, n_points, dtype, *arguments: getattr(engine, name)(*arguments)


_METHODS: dict[str, Any] = {"evaluate": _evaluate, "jacobian": _jacobian} | {
    name: _plain(name) for name in ("loss_sums", "normal_equations", "loss_and_grad", "fit")
}
