"""The CUDA backend: a whole population in one launch of an interpreter on an NVIDIA GPU.

In: a population and data.  Out: values, losses, derivatives, fits.  ``bytecode`` makes the words that
the kernel reads, ``opcodes`` and ``nvrtc`` the kernel.  What it computes stands in ``interpreter.cu``.

    >>> import exprkit as ek
    >>> status = ek.backends()["cuda"]
    >>> status.available or "pip install" in status.detail or "driver" in status.detail
    True

One evaluation is at most two launches: ``make_numbers`` (parameters, constants and prologues
become the numbers of the words; it reads the parameters straight from page-locked host
memory) and ``interpret``.  A loss has a third, ``add_chunks``: float32 sums go over 128
points at the most, the rest is added in float64 in an order that depends on the number of
points alone, so that the bits are the same for any launch geometry.

Results for the host are made in chunks: while one is copied, the next is computed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from exprkit.backends import contract
from exprkit.backends.gpu import device as cards
from exprkit.backends.gpu.bytecode import Accumulated, accumulate
from exprkit.backends.gpu.launch import Launch, Launcher, UniformNumbers, too_large
from exprkit.backends.gpu.schedule import VECTOR_BYTES, VECTORS, Deal, LaunchShape, plan, shapes
from exprkit.backends.interpreter.derivatives import Derivatives
from exprkit.backends.objective import Fitted, Options
from exprkit.backends.precision import Precision
from exprkit.backends.precision import precision as settings_of
from exprkit.errors import ArgumentError, one_of
from exprkit.expressions.population import Population
from exprkit.programs.lower import lower

OPTIONS = ("block_size", "points_per_thread", "reduction", "dispatch")
REDUCTIONS = ("shuffle", "shared", "atomic")
DISPATCHES = ("interpreter", "per-expression")
BASELINE_BLOCK = 128  # of the per-expression kernel, as the thesis found best
CHUNK_BYTES = 64 << 20  # of a result on its way to the host
MOST_LAUNCHES = 256  # that are kept ready; each holds a few arrays on the device
VALUES_DEAL = {True: Deal(0, 1), False: Deal(0, 8)}  # how items are shared out, by whether operators are fast
LOSSES_DEAL = {True: Deal(0.8, 2), False: Deal(0.5, 4)}
COST_OF_RESULT = (8, 40)  # of a sum and of stored values, beside the operators' (bytecode.py)
WORK_BYTES = 512 << 20  # numbers and partial sums of one pass
SPAN = 3072 * 5461  # points whose partial sums are added before they join the total; whole tiles of any size


def unavailable() -> str | None:
    """Why this backend can't run here and what mends it; None if it can."""
    return cards.missing()


def describe() -> str:
    """What this backend runs on."""
    device = cards.current()
    return f"{device.name} ({device.architecture}, {device.multiprocessors} multiprocessors)"


def adopt(values: Any) -> Any | None:
    """A device array of any library as a CuPy array on the same memory; None for anything else."""
    if isinstance(values, np.ndarray | list | tuple) or not _on_device(values):
        return None
    import cupy

    values = values.detach() if hasattr(values, "detach") else values
    return values if isinstance(values, cupy.ndarray) else cupy.from_dlpack(values)


def _on_device(values: Any) -> bool:
    if hasattr(values, "__cuda_array_interface__") and not hasattr(values, "__dlpack_device__"):
        return True
    return hasattr(values, "__dlpack_device__") and values.__dlpack_device__()[0] == 2  # kDLCUDA


def empty(shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Fresh device memory."""
    import cupy

    return cupy.empty(shape, dtype)


class Engine(contract.Differentiable):
    """A population made ready for one data set.

    Parameters
    ----------
    block_size : int, optional
        Threads of a block, a multiple of 32.
    points_per_thread : int, optional
        4, 8, 12, 16, 24 or 32 (float32); half of that (float64).
    reduction : {"shuffle", "shared", "atomic"}
        How a loss is summed over the lanes of a warp; with atomic additions the bits may
        differ from run to run.
    dispatch : {"interpreter", "per-expression"}
        One launch for all, or (a baseline) one launch for each expression.
    """

    def __init__(
        self,
        pop: Population,
        X: Any,
        *,
        precision: str | Precision,
        dtype: np.dtype,
        threads: int | None = None,
        block_size: int | None = None,
        points_per_thread: int | None = None,
        reduction: str = "shuffle",
        dispatch: str = "interpreter",
        card: Any = None,
    ) -> None:
        self.counts = self.counts_losses = dispatch == "interpreter"  # nan and inf, on the way
        self.card = card or cards.current()
        self.settings = settings_of(precision)
        self.dtype, self.pop = np.dtype(dtype), pop
        self.n_exprs, self.n_points = len(pop), len(X)
        self._invalid = np.flatnonzero(~pop.valid)
        self.host_results = isinstance(X, np.ndarray)
        self.reduction = one_of("reduction", reduction, REDUCTIONS)
        self.block_size = _check_block(block_size, self.card.lanes)
        self.vectors = _check_points(points_per_thread, self.dtype.itemsize)
        try:
            self.programs, columns = _programs(pop, X, self.settings, self.dtype, self.card.xp)
            self._launcher = Launcher(self.card, self.settings, self.dtype, self.programs, columns, X)
        except self.card.out_of_memory as error:
            size = X.size * self.dtype.itemsize / 1e9
            raise too_large(f"the data ({size:.3g} GB), its columns and the programs", self.card) from error
        self._numbers = UniformNumbers(self._launcher)
        self._baseline = None
        if one_of("dispatch", dispatch, DISPATCHES) != "interpreter":
            from exprkit.backends.interpreter.per_expression import Baseline

            self._baseline = Baseline(pop, self._launcher, block_size or BASELINE_BLOCK)
        self._launches: dict[tuple[Any, ...], Launch] = {}
        self._shapes: dict[tuple[int, bool, bool], LaunchShape] = {}
        self._launched: dict[Any, dict[str, Any]] = {}

    # ── values ───────────────────────────────────────────────────────────────────────

    def evaluate(self, params: Any, out: Any, counts: Any = None) -> None:
        """Write every element of ``out``, (n_sets, n_exprs, n_points), on the host or the device.

        ``counts`` (n_sets, n_exprs, 2) int64 takes how many nan and inf each expression gave.
        """
        try:
            self._evaluate(params, out, counts)
        except self.card.out_of_memory as error:
            raise too_large("the counts and the numbers of all expressions", self.card) from error

    def _evaluate(self, params: Any, out: Any, counts: Any) -> None:
        found = None if counts is None else self.card.xp.zeros(counts.shape, np.uint64)
        if self._baseline:
            self._baseline.evaluate(params, out)
        elif out.size:
            n_items = len(params) * self.n_exprs
            for first, stop in self._passes(params):
                place = out if stop - first == n_items else out.reshape(-1, self.n_points)[first:stop]
                count = None if found is None else found.reshape(-1, 2)[first:stop]
                if isinstance(out, np.ndarray) and self.card.xp is not np:
                    self._to_host(place.reshape(-1, self.n_points), count)
                else:
                    self._on_device(stop - first, place, count)
        if found is not None:
            counts[...] = self._result(found.astype(np.int64), counts)

    def _passes(self, params: Any) -> Iterator[tuple[int, int]]:
        """Set the numbers for as many parameter sets as fit; gives the items (over all sets) that can run now."""
        n_sets = len(params)
        at_once = max(1, WORK_BYTES // (self._launcher.bytes_of_a_set + 1))
        first = 0
        while first < n_sets:
            some = params[first : first + at_once]
            try:
                is_new = self._numbers.make(some)
            except self.card.out_of_memory:
                if len(some) == 1:
                    raise
                at_once, is_new, some = len(some) // 2, True, some[:0]
            if is_new:
                self._launches.clear()  # they point to the old arrays
            if len(some) == 0:
                self.card.release()
                continue
            yield first * self.n_exprs, (first + len(some)) * self.n_exprs
            first += len(some)

    def _on_device(self, n_items: int, out: Any, count: Any) -> None:
        """All items of this pass into a device array."""

        def run(rows: int) -> None:
            if rows == n_items:
                return self._values(0, rows, out, count)
            if count is not None:
                count[...] = 0
            every = out.reshape(-1, self.n_points)
            for first in range(0, n_items, rows):
                some = slice(first, min(first + rows, n_items))
                self._values(some.start, some.stop, every[some], None if count is None else count[some])

        self._shrinking(n_items, run, self.n_points * self.dtype.itemsize)

    def _values(self, first: int, stop: int, out: Any, count: Any) -> None:
        """Items ``first`` to ``stop`` of this pass into a device array."""
        place = self.card.pointer(out)
        wide = (self.n_points * self.dtype.itemsize | place) % VECTOR_BYTES == 0  # every row begins at 16 bytes
        macros = {"TASK": "VALUES", "COUNTED": int(count is not None)}
        self._interpreter(first, stop, (0, self.n_points), wide, **macros)(out=place, nonfinite=count)

    def _to_host(self, out: np.ndarray, count: Any) -> None:
        """All items of this pass into a host array, by way of two buffers on the device."""
        rows = max(1, min(len(out), CHUNK_BYTES // (self.n_points * self.dtype.itemsize)))
        self._shrinking(rows, lambda rows: self._copy_chunks(out, count, rows), self.n_points * self.dtype.itemsize)

    def _copy_chunks(self, out: np.ndarray, count: Any, rows: int) -> None:
        """One chunk is copied while the next is computed."""
        if count is not None:
            count[...] = 0
        stream = self.card.stream()
        n_chunks = -(-len(out) // rows)
        buffers = [self.card.xp.empty((rows, self.n_points), self.dtype) for _ in range(min(n_chunks, 2))]
        free = [self.card.event() for _ in buffers]
        for i in range(n_chunks):
            chunk = slice(i * rows, min((i + 1) * rows, len(out)))
            turn = i % len(buffers)
            buffer = buffers[turn][: chunk.stop - chunk.start]
            self.card.current_stream().wait_event(free[turn])
            self._values(chunk.start, chunk.stop, buffer, None if count is None else count[chunk])
            made = self.card.event()
            made.record()
            stream.wait_event(made)
            self.card.to_host(buffer, out[chunk], stream)
            free[turn].record(stream)
        stream.synchronize()

    def _shrinking(self, size: int, run: Callable[[int], None], bytes_of_one: int) -> None:
        """``run(size)``, with half the size as often as memory runs out."""
        while True:
            try:
                return run(size)
            except self.card.out_of_memory:
                self._launches.clear()
            self.card.release()  # not before the failed run's arrays are gone
            if size == 1:
                raise MemoryError(
                    f"one expression on {self.n_points} points needs {bytes_of_one / 1e9:.3g} GB on the device besides "
                    f"the data, and {self.card.free_bytes() / 1e9:.3g} GB are free: take fewer points at a time"
                )
            size //= 2

    # ── losses ───────────────────────────────────────────────────────────────────────

    def loss_sums(self, params: Any, y: Any, weights: Any, kind: str, counts: Any = None) -> Any:
        """Sum of weighted squared or absolute errors, float64 (n_sets, n_exprs); on the device if the data is.

        ``counts`` (n_sets, n_exprs, 2) int64 takes how many nan and inf there were at points of weight > 0.
        """
        try:
            return self._loss_sums(params, y, weights, kind, counts)
        except self.card.out_of_memory as error:
            raise too_large("the targets, the sums and the numbers of all expressions", self.card) from error

    def _loss_sums(self, params: Any, y: Any, weights: Any, kind: str, counts: Any) -> Any:
        xp = self.card.xp
        sums = (xp.empty if self.n_points else xp.zeros)(params.shape[:2], np.float64)
        found = None if counts is None else xp.zeros(counts.shape, np.uint64)
        if self.n_points and sums.size:
            target, w = xp.asarray(y), None if weights is None else xp.asarray(weights)
            for first, stop in self._passes(params):
                place = sums.reshape(-1)[first:stop]
                count = None if found is None else found.reshape(-1, 2)[first:stop]
                self._sums(place, target, w, kind.upper(), count)
        if found is not None:
            counts[...] = self._result(found.astype(np.int64), counts)
        if len(self._invalid):
            sums[:, xp.asarray(self._invalid)] = np.nan
        return self._result(sums, None)

    def _sums(self, sums: Any, target: Any, weights: Any, task: str, count: Any) -> None:
        """Add up all items of this pass."""
        itemsize = self.dtype.itemsize
        span_chunks = -(-min(self.n_points, SPAN) // self._shape(len(sums)).chunk)
        at_once = max(1, min(len(sums), WORK_BYTES // (span_chunks * itemsize)))
        self._shrinking(
            at_once,
            lambda at_once: self._sum_spans(sums, target, weights, task, count, at_once),
            span_chunks * itemsize,
        )

    def _sum_spans(self, sums: Any, target: Any, weights: Any, task: str, count: Any, at_once: int) -> None:
        """``at_once`` items at a time, and of those one span of points after the other."""
        if count is not None:
            count[...] = 0
        if self.reduction == "atomic":
            sums[...] = 0
        macros = {"TASK": task, "WEIGHTED": int(weights is not None), "COUNTED": int(count is not None)}
        for first in range(0, len(sums), at_once):
            items = slice(first, min(first + at_once, len(sums)))
            for start in range(0, self.n_points, SPAN):
                self._sum_span(items, start, target, weights, sums, count, macros)

    def _sum_span(
        self, items: slice, start: int, target: Any, weights: Any, sums: Any, count: Any, macros: dict[str, Any]
    ) -> None:
        points = (start, min(start + SPAN, self.n_points))
        launch, n_items = self._interpreter(items.start, items.stop, points, False, **macros), items.stop - items.start
        chunk = self._shape(n_items).chunk
        n_chunks = -(-(points[1] - start) // chunk)
        partials = None if self.reduction == "atomic" else self.card.xp.empty((n_items, n_chunks), self.dtype)
        launch(
            target=target, weights=weights, partials=partials, sums=sums[items], n_chunks=n_chunks,
            first_chunk=start // chunk, nonfinite=None if count is None else count[items],
        )  # fmt: skip
        if partials is not None:
            self._adding(n_items, n_chunks, start > 0)(partials=partials, sums=sums[items])

    def _adding(self, n_items: int, n_chunks: int, add: bool) -> Launch:
        key = n_items, n_chunks, add
        if key not in self._launches:
            self._launches[key] = self._launcher.adding_chunks(n_items, n_chunks, add)
        return self._launches[key]

    def _result(self, device: Any, like: Any) -> Any:
        """A device array as the caller wants it."""
        on_host = self.host_results if like is None else isinstance(like, np.ndarray)
        return device.get() if on_host and hasattr(device, "get") else device

    # ── derivatives and fits ─────────────────────────────────────────────────────────

    @functools.cached_property
    def _derivatives(self) -> Derivatives:
        return Derivatives(self.pop, self._launcher)

    def jacobian(self, params: Any, out: Any) -> None:
        """d f / d params into ``out``, (n_sets, n_exprs, n_points, max_params)."""
        self._derivatives.jacobian(params, out)

    def normal_equations(self, params: Any, y: Any, weights: Any) -> tuple[Any, ...]:
        """J'WJ, J'Wr and the weighted sum of squares."""
        return tuple(self._result(one, None) for one in self._derivatives.normal_equations(params, y, weights))

    def loss_and_grad(self, params: Any, y: Any, weights: Any, kind: str) -> tuple[Any, ...]:
        """The sum of a loss and its gradient."""
        return tuple(self._result(one, None) for one in self._derivatives.loss_and_grad(params, y, weights, kind))

    def fit(self, starts: Any, y: Any, weights: Any, options: Options) -> Fitted:
        """Each expression's best fit from (n_starts, n_exprs, max_params) starts."""
        return self._derivatives.fit(starts, y, weights, options)

    # ── launches ─────────────────────────────────────────────────────────────────────

    def kernels(self) -> list[dict[str, Any]]:
        """What was launched so far: registers, spills, memory and resident blocks of every variant, the last first."""
        return list(self._launched.values())[::-1]

    def _interpreter(self, first: int, stop: int, points: tuple[int, int], wide: bool, **macros: Any) -> Launch:
        """The launch of the interpreter on items ``first`` to ``stop`` of this pass, for these macros."""
        key = first, stop, points, wide, *macros.values()
        if key not in self._launches:
            if len(self._launches) >= MOST_LAUNCHES:
                del self._launches[next(iter(self._launches))]
            self._launches[key] = self._prepared(first, stop, points, wide, macros)
        return self._launches[key]

    def _prepared(
        self, first: int, stop: int, points: tuple[int, int], wide: bool, macros: dict[str, Any]
    ) -> Launch:
        values = macros["TASK"] == "VALUES"
        shape, launcher, xp = self._shape(stop - first, wide, values), self._launcher, self.card.xp
        kernel = launcher.interpreter(shape, REDUCTION=self.reduction.upper(), **macros)
        n_targets = 0 if values else 1 + macros["WEIGHTED"]
        shared = shape.shared_bytes(launcher.n_columns, self.programs.n_slots, n_targets, self.reduction == "shared")
        tiles = shape.tiles(*points)
        n_tiles = len(tiles)
        resident = self.card.multiprocessors * kernel.resident(shape.block, shared)
        blocks = min(resident, -(-n_tiles * (stop - first) // shape.warps))
        self._launched[kernel] = {
            "task": macros["TASK"], "registers": kernel.registers, "local_bytes": kernel.local_bytes,
            "shared_bytes": shared, "block_size": shape.block, "resident_blocks": resident // self.card.multiprocessors,
            "points_per_thread": shape.tile // shape.lanes,
        }  # fmt: skip
        cost = self.programs.cost + COST_OF_RESULT[values] * np.arange(self.n_exprs + 1)
        found = plan(
            cost, self.programs.first_word, len(self.programs.words), first, stop, n_tiles,
            blocks=blocks, warps=shape.warps, deal=self._deal(values, n_tiles),
        )  # fmt: skip
        return launcher.launch(
            kernel, (found.blocks, 1), shape.block, shared, True, first_tile=tiles.start, n_tiles=n_tiles,
            n_units=found.n_units, n_runs=found.runs.shape[1], runs=xp.asarray(found.runs.view(np.int32)),
            **self._numbers.arrays,
        )  # fmt: skip

    def _deal(self, values: bool, n_tiles: int) -> Deal:
        """How the warps of a block share out their work."""
        if n_tiles == 1:
            return Deal(1)  # a warp's rows follow one another
        is_fast = self.settings.operators == "fast" and self.dtype.itemsize == 4
        return (VALUES_DEAL if values else LOSSES_DEAL)[is_fast]

    def _shape(self, n_items: int, wide: bool = False, values: bool = False) -> LaunchShape:
        """The best variant for so many items."""
        if (n_items, wide, values) not in self._shapes:
            device = self.card
            self._shapes[n_items, wide, values] = shapes(
                self.n_points, n_items, self._launcher.n_columns, self.programs.n_slots, itemsize=self.dtype.itemsize,
                lanes=device.lanes, block=self.block_size, multiprocessors=device.multiprocessors,
                shared_per_block=device.shared_per_block, shared_per_multiprocessor=device.shared_per_multiprocessor,
                vectors=self.vectors, wide=wide, fast=self.settings.operators == "fast",
            )[0]  # fmt: skip
        return self._shapes[n_items, wide, values]


def _programs(pop: Population, X: Any, settings: Precision, dtype: np.dtype, xp: Any) -> tuple[Accumulated, Any]:
    """The population's accumulator programs, and the columns they read (code and variable of each)."""
    device = np if isinstance(X, np.ndarray) else xp
    # one column at a time: CuPy reduces a whole array on all multiprocessors, but an axis on few
    columns = [device.ascontiguousarray(X[:, v]) for v in range(X.shape[1] if len(X) else 0)]
    negative = [bool((device.signbit(x) & ~device.isnan(x)).view(np.uint8).max()) for x in columns]
    positive = ~np.array(negative or [False] * X.shape[1], bool)
    program = lower(pop, precision=settings.operators, positive=positive, dtype=dtype)
    return accumulate(program), (program.column_code, program.column_var)


def _check_block(size: int | None, lanes: int) -> int | None:
    if size is None:
        return None if lanes > 1 else 1
    if not isinstance(size, int) or size < lanes or size % lanes or size > 1024:
        raise ArgumentError(f"block_size must be a multiple of {lanes} up to 1024, not {size!r}")
    return size


def _check_points(points: int | None, itemsize: int) -> int | None:
    """Points a thread as 16-byte vectors."""
    if points is None:
        return None
    width = 16 // itemsize
    if points not in (choices := [width * v for v in VECTORS]):
        raise ArgumentError(f"points_per_thread must be one of {', '.join(map(str, choices))}, not {points!r}")
    return points // width


BACKEND = contract.Backend(
    unavailable, describe, Engine, options=OPTIONS, takes_settings=True, lowers=True, adopt=adopt, empty=empty
)
