"""Fits with the rows divided over workers: each sums its own pieces, with one reduction per step of the fits.

In: a ``RowSource`` of rows and a population.  Out: fits, and sums over all rows.

    >>> import numpy as np, tempfile, exprkit as ek
    >>> path = f"{tempfile.mkdtemp()}/X.npy"
    >>> np.save(path, np.linspace(0, 1, 1000)[:, None])
    >>> X = np.load(path, mmap_mode="r")
    >>> np.save(path.replace("X", "y"), 3 * X[:, 0] - 1)
    >>> ek.fit("p1 * x1 + p2", path, path.replace("X", "y"), devices=2).params.round(3)
    array([[ 3., -1.]])

A piece has ``PIECE`` rows, whoever reads it; pieces that follow each other make a group, whose sums are added piece
after piece where they are made, and the groups' sums are added here in their order.  Pieces and groups depend on the
data alone, so the bits are the same for any number of workers.  For P parameters an expression's sums of a group are
8 (P^2 + P + 1) bytes, its new parameters 8 P: all that travels in a step.  A worker keeps the pieces that it has read
as long as its memory has room for as many again, and reads the rest once more.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends import load
from exprkit.backends.contract import Engine
from exprkit.backends.objective import Fitted, Options
from exprkit.distributed import tasks
from exprkit.distributed.collect import Cut, collect
from exprkit.distributed.engine import KeptArrays
from exprkit.distributed.files import RowSource
from exprkit.distributed.steps import Steps
from exprkit.distributed.threads import device_here
from exprkit.distributed.workers import Workers, new_name
from exprkit.errors import DataError, number_of
from exprkit.expressions.population import Population
from exprkit.runtime import machine

PIECE = 1 << 22  # rows that are read together; chosen, not measured
GROUPS = 64  # groups of pieces, at most; chosen, not measured
FEWER = 0.5  # share of the expressions whose fits go on, at which those are made a population of their own


class Totals(NamedTuple):
    """Sums over all rows of w, w y and w y^2, for a mean and a variance."""

    w: float
    wy: float
    wyy: float


class RowEngine:
    """Sums over the rows of a source, by workers whose engines have these settings."""

    def __init__(
        self,
        source: RowSource,
        workers: Workers,
        *,
        backend: str,
        precision: Any,
        dtype: np.dtype,
        threads: int | None = None,
        **options: Any,
    ) -> None:
        self.source, self.workers, self.dtype = source, workers, np.dtype(dtype)
        self.n_pieces, self._on_gpu = max(1, -(-source.n_rows // PIECE)), workers.on_gpu(backend)
        threads = threads or workers.cores(self._on_gpu)
        own = tuple(sorted(options.items()))
        self._setting = tasks.EngineSetting(new_name(), backend, precision, self.dtype.name, threads, own)
        self._source = KeptArrays(workers, "source").take(source)

    def totals(self, columns: list[int]) -> Totals:
        """The sums of w, w y and w y^2 over all rows.

        Raises DataError if y, a weight or one of the columns is missing or infinite at a row.
        """
        groups = self._groups(_totals, None, columns)
        for group in groups:
            for what, n in group[1].items():
                if n:
                    raise DataError(
                        f"{what} lacks {n:,} of {number_of(self.source.n_rows, 'value')}, or they are "
                        "infinite: leave those rows out"
                    )
        return Totals(*(sum(group[0][k] for group in groups) for k in range(3)))

    def fit(
        self, pop: Population, start: np.ndarray, options: Options, done: Callable[[int], Any] = lambda n: None
    ) -> Fitted:
        """Every expression's fit by squares."""
        steps, width = Steps(pop, start, options), pop.max_params
        running = steps.running
        rows, tokens = running, self._tokens(pop, running)
        while len(running):
            if len(running) <= FEWER * len(rows):
                rows, tokens = running, self._tokens(pop, running)
            n_params = int(pop.n_params[rows].max(initial=0))
            params = np.ascontiguousarray(steps.trial[rows, :n_params])
            jtj, jtr, sse = self._equations(tokens, params)
            places = np.searchsorted(rows, running)
            steps.take(running, _wide(jtj, width)[places], _wide(jtr, width)[places], sse[places])
            done(len(running) - len(steps.running))
            running = steps.running
        return steps.fitted()

    def normal_equations(self, pop: Population, params: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """J'WJ, J'Wr and the sum of w r^2 with r = f - y over all rows, where a nan of ``params`` is no parameter."""
        return self._equations(self._tokens(pop, np.arange(len(pop))), np.nan_to_num(params))

    def _equations(self, tokens: KeptArrays, params: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        jtj, jtr, sse = _added(self._groups(_normal_equations, tokens, params))
        return jtj, jtr, sse

    def forget(self) -> None:
        """Let the workers give up the pieces that they keep."""
        self.workers.everywhere(_forget, self._setting.data)

    def _tokens(self, pop: Population, which: np.ndarray) -> KeptArrays:
        part = pop if len(which) == len(pop) else pop[which]
        tasks.refuse_functions(part, self.workers)
        part.shares = pop.shares
        return KeptArrays(self.workers, "tokens").take(tasks.slice_of(part, 0, len(part), not self.workers.devices))

    def _groups(self, task: Callable[..., Any], tokens: KeptArrays | None, argument: Any) -> list[Any]:
        """The results of the groups of pieces, in order."""
        n_groups = min(self.n_pieces, GROUPS)
        edges = [self.n_pieces * k // n_groups for k in range(n_groups + 1)]
        groups = [(a, b) for a, b in itertools.pairwise(edges) if a < b]
        population, name = new_name() if tokens is None else tokens.name, task.__name__.strip("_")

        def on_worker(cut: Cut, place: str | None) -> tuple[Any, ...]:
            arrays = None if tokens is None else tokens.at(place)
            return task, self._setting, self._source.at(place), PIECE, cut, population, arrays, argument

        return [result for _, result in collect(self.workers, name, groups, on_worker, on_device=self._on_gpu)]


def _wide(array: np.ndarray, width: int) -> np.ndarray:
    """Numbers by parameter, with zeros for those that none of these expressions has."""
    return np.pad(array, [(0, 0)] + [(0, width - n) for n in array.shape[1:]])


def _added(parts: list[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    """The sums of some parts, one after the other; infinite ones of both signs are nan together, as within a piece."""
    total = [array.copy() for array in parts[0]]
    with np.errstate(over="ignore", invalid="ignore"):
        for part in parts[1:]:
            for whole, array in zip(total, part, strict=True):
                whole += array
    return tuple(total)


# ── on a worker ──


class _Piece(NamedTuple):
    """Rows that a worker has read, and the engine of the population that used them last."""

    X: np.ndarray
    y: np.ndarray
    w: np.ndarray | None
    engine: Engine
    population: str


_read: dict[str, OrderedDict[tuple[str, int], _Piece]] = defaultdict(OrderedDict)  # by worker, then data and piece


def _normal_equations(
    setting: tasks.EngineSetting, source: RowSource, piece: int, group: Cut, name: str, tokens: Any, params: np.ndarray
) -> Any:
    """The sums of the pieces of a group, one after the other."""
    pop, sets = tasks.population_of(tokens), np.asarray(params, setting.dtype)[None]

    def added_up(worker: str) -> tuple[np.ndarray, ...] | None:
        total: tuple[np.ndarray, ...] | None = None
        for k in range(*group):
            ready = _ready(worker, setting, source, (k * piece, min((k + 1) * piece, source.n_rows)), name, pop)
            engine: Any = ready.engine
            sums = tuple(array[0] for array in engine.normal_equations(sets, ready.y, ready.w))
            total = sums if total is None else _added([total, sums])
        return total

    with tasks.on_device(load(setting.backend).empty is not None) as worker:
        return tasks.twice(lambda: added_up(worker), tasks.of_device(_read, worker))


def _ready(
    worker: str, setting: tasks.EngineSetting, source: RowSource, rows: Cut, name: str, pop: Population
) -> _Piece:
    """A piece with the engine of this population; read, unless it has been kept."""
    pieces, key = _read[worker], (setting.data, rows[0])
    piece = pieces.pop(key, None)
    if piece is None:
        X, y, w = source.read(*rows)
        X, y = np.ascontiguousarray(X, setting.dtype), np.ascontiguousarray(y, setting.dtype)
        w = None if w is None else np.ascontiguousarray(w, setting.dtype)
        piece = _Piece(X, y, w, setting.engine(pop, X), name)
    elif piece.population != name:
        engine = piece.engine if piece.engine.update(pop) else setting.engine(pop, piece.X)
        piece = piece._replace(engine=engine, population=name)
    pieces[key] = piece
    _let_go(pieces)
    return piece


def _forget(data: str) -> None:
    """The pieces of some data, of a device's thread or of all workers of a process."""
    place = device_here()
    for pieces in list(_read.values()) if place is None else [_read[str(place)]]:
        for key in [key for key in list(pieces) if key[0] == data]:
            pieces.pop(key, None)


def _let_go(pieces: OrderedDict[tuple[str, int], _Piece]) -> None:
    """Forget the pieces used least of late, where all together take more than what is free besides."""
    free = machine.available_memory()
    n_bytes = sum(map(_bytes_of, list(pieces.values())))
    while free is not None and len(pieces) > 1 and n_bytes > free:
        with contextlib.suppress(KeyError):  # another thread of the device needed memory
            _, oldest = pieces.popitem(last=False)
            n_bytes -= _bytes_of(oldest)


def _bytes_of(piece: _Piece) -> int:
    return piece.X.nbytes + piece.y.nbytes + piece.engine.held_bytes()


def _totals(
    setting: tasks.EngineSetting, source: RowSource, piece: int, group: Cut, name: str, tokens: None, columns: list[int]
) -> tuple[np.ndarray, dict[str, int]]:
    """Sums of w, w y and w y^2 of the pieces of a group, and how many numbers are missing in what."""
    sums, missing = np.zeros(3), dict.fromkeys(["y", "weights", *(f"column {i + 1} of X" for i in columns)], 0)
    for k in range(*group):
        X, y, w = source.read(k * piece, min((k + 1) * piece, source.n_rows))
        y = np.asarray(y, np.float64)
        w = np.ones(len(y)) if w is None else np.asarray(w, np.float64)
        missing["y"] += int(np.sum(~np.isfinite(y)))
        missing["weights"] += int(np.sum(~(np.isfinite(w) & (w >= 0))))
        for i in columns:
            with np.errstate(over="ignore"):
                missing[f"column {i + 1} of X"] += int(np.sum(~np.isfinite(X[:, i].astype(setting.dtype))))
        sums += [w.sum(), (w * y).sum(), (w * y * y).sum()]
    return sums, missing
