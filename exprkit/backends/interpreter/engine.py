"""The CUDA backend: a whole population in one launch of an interpreter on an NVIDIA GPU.

In: a population and data.  Out: values, losses, derivatives, fits.  ``bytecode`` makes what the kernel reads,
``opcodes`` and ``nvrtc`` the kernel.  What it computes stands in ``interpreter.cu``.

    >>> import exprkit as ek
    >>> status = ek.backends()["cuda"]
    >>> status.available or "pip install" in status.detail or "driver" in status.detail
    True

One evaluation is at most two launches: ``make_immediates`` (of parameters, constants and prologues; it reads the
parameters straight from page-locked host memory) and ``interpret``.  A loss of more points than a tile has a third,
``add_segments``: float32 sums go over 128 points at the most, the rest is added in float64 in an order that depends on
the number of points alone, so that the bits are the same for any launch geometry.

Results for the host are made in parts: while one is copied, the next is computed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from exprkit.backends import contract
from exprkit.backends.cases import tuning
from exprkit.backends.cases.interpreter import Decision, VariantSet
from exprkit.backends.device_memory import LockedRoom, Recent
from exprkit.backends.device_programs import dependence, lowering
from exprkit.backends.device_programs.lowering import Lowering
from exprkit.backends.device_programs.population import DevicePopulation
from exprkit.backends.gpu import loss_code, nvrtc, opcodes
from exprkit.backends.gpu.device import MOST_LOCKED, fetched
from exprkit.backends.gpu.device_bytecode import Programs
from exprkit.backends.gpu.engine import DeviceEngine, Needing, backend, check_block, check_points, hand_over
from exprkit.backends.gpu.launch import REAL, Columns, ScheduledLaunch, address, plan_on
from exprkit.backends.gpu.layout import VECTOR_BYTES
from exprkit.backends.gpu.schedule import BLOCKS, VECTORS, Chunking, DeviceLimits, LaunchShape, Sizes
from exprkit.backends.interpreter import batches, dual_opcodes
from exprkit.backends.interpreter.derivatives import CHOICE, Again, Derivatives
from exprkit.backends.interpreter.loss_step import KeptStep, LossStep, PreparedSums, SpanSums
from exprkit.backends.objective import Fitted, Options
from exprkit.backends.precision import Precision
from exprkit.errors import number_of
from exprkit.expressions.population import Population
from exprkit.operators import defined
from exprkit.operators.defined import table_of_rows

BUFFER_BYTES = 64 << 20  # of a result on its way to the host
MOST_KEPT = 64 << 20  # bytes of partial sums whose memory stays
WORK_BYTES = 512 << 20  # immediates and partial sums of one pass
SPAN = 3072 * 5461  # points whose partial sums are added before they join the total; whole tiles of any size

# By whether operators are fast: data/results/h200_interpreter.md, "What limits the predictions" and "Short rows"
VALUES_CHUNKING = {True: Chunking(0, 1), False: Chunking(0, 8)}
LOSSES_CHUNKING = {True: Chunking(0.8, 2), False: Chunking(0.5, 4)}
COST_OF_RESULT = (8, 40)  # of a sum and of stored values, beside the operators' (bytecode.py): an estimate


class Engine(DeviceEngine, contract.Differentiable, contract.Tunable):
    """A population made ready for one data set.

    Parameters
    ----------
    block_size : int, optional
        Threads of a block, a multiple of 32.
    points_per_thread : int, optional
        4, 8, 12, 16, 24 or 32 (float32); half of that (float64).
    """

    def __init__(
        self,
        pop: Population | DevicePopulation,
        X: Any,
        *,
        precision: str | Precision,
        dtype: np.dtype,
        threads: int | None = None,
        block_size: int | None = None,
        points_per_thread: int | None = None,
        device: Any = None,
    ) -> None:
        super().__init__(pop, X, precision, dtype, device)
        self.counts = self.counts_losses = True  # nan and inf, on the way
        self.stores_sums = True
        self.block_size = check_block(block_size, self.device.lanes) or (1 if self.device.lanes == 1 else None)
        width = VECTOR_BYTES // self.dtype.itemsize
        points = check_points(points_per_thread, [width * v for v in VECTORS])
        self.vectors = points and points // width
        self._asks_for_powers = self._variants(False, True).asks_for_powers
        size = X.size * self.dtype.itemsize / 1e9
        with Needing(self.device, f"the data ({size:.3g} GB), its columns and the programs"):
            self._shapes = Recent(self.most_ready)
            self._needing_sums = Needing(self.device, "the targets, the sums and the numbers of all expressions")
            self._forced: LaunchShape | None = None
            self._partials = self.device.xp.empty(0, self.dtype)
            self._segment = self.device.lanes * VECTOR_BYTES // self.dtype.itemsize  # points of a partial sum
            self._n_segments = -(-min(self.n_points, SPAN) // self._segment)  # of an item
            self._locked_params = LockedRoom(self.device)
            _make_ready(self.device, self.settings, self.dtype.itemsize)
            self._lowering = Lowering(self.device, self.settings, self.dtype, self._positive(X))
            self.programs, columns = self._lowering.of(pop)
            self._check_options(self.programs, columns)
            self._load(self.programs, columns, self.device.xp.asarray(X))
        self._launched: dict[Any, dict[str, Any]] = {}
        self._known_derivatives: Derivatives | None = None

    def update(self, pop: Population | DevicePopulation) -> bool:
        """Take another population; what belongs to the data stays, and launches are kept."""
        now, sizes = self._known_derivatives, self._sizes_of_steps()
        fits = self._fits_to_come.of(pop) if now and now.is_first else None
        with Needing(self.device, "the programs"):
            programs, columns = self._lowering.of(pop, fits)
            self._check_options(programs, columns)
            self._launcher.take(programs, columns)
        self.programs = programs
        self._take(pop)
        self._known_derivatives = None
        if len(self._invalid) or self._sizes_of_steps() != sizes:
            self._next_epoch()
        return True

    def _sizes_of_steps(self) -> tuple[Any, ...]:
        """Where these are the same, launches that are kept serve another population."""
        launcher, programs = self._launcher, self.programs
        return self.n_exprs, self.pop.max_params, launcher.n_columns, programs.n_slots, programs.code

    # ── values ───────────────────────────────────────────────────────────────────────

    def evaluate(self, params: Any, out: Any, counts: Any = None) -> None:
        """Write every element of ``out``, (n_sets, n_exprs, n_points), on the host or the device.

        ``counts`` (n_sets, n_exprs, 2) int64 takes how many nan and inf each expression gave.
        """
        with Needing(self.device, "the counts and the numbers of all expressions"):
            counted = None if counts is None else self.device.xp.zeros(counts.shape, np.uint64)
            if out.size:
                for sets in self._passes(params, self._sets_at_once()):
                    place = out if sets.stop - sets.start == len(params) else out[sets]  # views of CuPy take time
                    self._evaluate(place, None if counted is None else counted[sets].reshape(-1, 2))
            hand_over(counted, counts)

    def _sets_at_once(self) -> int:
        return max(1, WORK_BYTES // (self._launcher.bytes_of_a_set + 1))

    def _evaluate(self, out: Any, count: Any) -> None:
        if self._is_apart(out) or out.dtype != self.dtype:
            self._by_parts(out.reshape(-1, self.n_points), count)
        else:
            self._values_on_device(out, count)

    def _values_on_device(self, out: Any, count: Any) -> None:
        """All items of this pass into a device array, some at a time if memory runs out."""
        n_items = out.size // self.n_points

        def run(at_once: int) -> None:
            if at_once == n_items:
                return self._values(slice(0, n_items), out, count)
            if count is not None:
                count[...] = 0
            rows = out.reshape(-1, self.n_points)
            for first in range(0, n_items, at_once):
                items = slice(first, min(first + at_once, n_items))
                self._values(items, rows[items], count)

        self._shrink_rows(run, n_items, self.n_points * self.dtype.itemsize)

    def _values(self, items: slice, rows: Any, count: Any) -> None:
        wide = (self.n_points * self.dtype.itemsize | self.device.pointer(rows)) % VECTOR_BYTES == 0  # all rows
        macros = {"TASK": "VALUES", "COUNTED": int(count is not None)}
        sizes = self.n_exprs, self._launcher.n_columns, self.programs.n_slots, self.programs.code
        key = items.start, items.stop, wide, *sizes, *macros.values()
        launch = self._prepared(key, lambda: self._interpreting(items, (0, self.n_points), wide, macros))
        counted = address(None if count is None else count[items], self.device)
        launch(out=self.device.pointer(rows), nonfinite=counted)

    def _by_parts(self, rows: Any, count: Any) -> None:
        """All items of this pass into a host array, or one of 16 bits, by way of buffers on the device."""
        of_a_row = self.n_points * self.dtype.itemsize
        at_once = max(1, min(len(rows), BUFFER_BYTES // of_a_row))
        self._shrink_rows(lambda at_once: self._copy_parts(rows, count, at_once), at_once, of_a_row)

    def _copy_parts(self, rows: Any, count: Any, at_once: int) -> None:
        """One part is copied to the host while the next is computed."""
        if count is not None:
            count[...] = 0
        on_host, rounds, device = self._is_apart(rows), rows.dtype != self.dtype, self.device
        parts = [slice(first, min(first + at_once, len(rows))) for first in range(0, len(rows), at_once)]
        size, n_buffers = (at_once, self.n_points), min(len(parts), 2 if on_host else 1)
        buffers = [device.xp.empty(size, self.dtype) for _ in range(n_buffers)]
        short = [device.xp.empty(size, np.uint16) for _ in buffers] if on_host and rounds else []
        free = [device.event() for _ in buffers] if on_host else []
        stream: Any = device.stream() if on_host else None
        main: Any = device.current_stream() if on_host else None
        for i, part in enumerate(parts):
            turn = i % n_buffers
            buffer = buffers[turn][: part.stop - part.start]
            if on_host:
                main.wait_event(free[turn])
            self._values(part, buffer, count)
            if rounds:
                place = short[turn][: len(buffer)] if on_host else rows[part]
                buffer = self._rounded(buffer, place, rows.dtype)
            if on_host:
                computed = device.event()
                computed.record()
                stream.wait_event(computed)
                device.to_host(buffer, rows[part], stream)
                free[turn].record(stream)
        if on_host:
            stream.synchronize()

    def _is_apart(self, array: Any) -> bool:
        """Whether an array lies on the host, and not on the device."""
        return isinstance(array, np.ndarray) and self.device.xp is not np

    # ── losses ───────────────────────────────────────────────────────────────────────

    def prepare(self, y: Any, weights: Any, kind: str) -> PreparedSums:
        """Target and weights on the device, and how the kernel adds up."""
        with self._needing_sums:
            there = self.device.xp.asarray
            goal = {"target": there(y), "weights": None if weights is None else there(weights)}
            return PreparedSums(self.device, {"TASK": kind.upper(), "WEIGHTED": int(weights is not None)}, goal)

    def prepare_text(self, loss: loss_code.Tokens, columns: np.ndarray, counted: bool) -> PreparedSums | None:
        """A loss that is a text, made ready; None where it can't be made in the kernel."""
        with self._needing_sums:
            return PreparedSums.of_text(self.device, self.settings, self.dtype, loss, columns, counted)

    def sums(self, params: Any, prepared: PreparedSums, counts: Any = None, out: Any = None) -> Any | None:
        """Sums of a prepared loss, float64 (n_sets, n_exprs); None for a text that reads more than a block's memory.

        ``counts`` (n_sets, n_exprs, 2) int64 takes how many nan and inf there were at points of weight > 0, ``out`` on
        the device or the host the sums.
        """
        if prepared.kept is not None and counts is None:
            sums = prepared.kept(params, prepared.at, out)
            if sums is not None:
                return sums
        if n_columns := prepared.macros.get("TARGETS"):
            needed = self._smallest.shared_bytes(self._launcher.n_columns, self.programs.n_slots, n_columns)
            if needed > self.device.shared_per_block:
                return None
        with self._needing_sums:
            return self._added(params, prepared, counts, out)

    @property
    def _smallest(self) -> LaunchShape:
        """The variant that needs the least of a block's shared memory."""
        return LaunchShape(1, BLOCKS[0] if self.device.lanes > 1 else 1, False, self.device.lanes, self.dtype.itemsize)

    def _added(self, params: Any, prepared: PreparedSums, counts: Any, out: Any) -> Any:
        at, macros = prepared.at, prepared.macros
        key = () if counts is not None else self._key_of_step(params, macros, out)
        if key in self._ready and (known := self._sums_of_step(key, params, prepared, out)) is not None:
            return known
        counted = None if counts is None else self.device.xp.zeros(counts.shape, np.uint64)
        macros = {**macros, "COUNTED": int(counts is not None)}

        def add_up(sums: Any) -> None:
            for sets in self._passes(params, self._sets_at_once()):
                count = None if counted is None else counted[sets].reshape(-1, 2)
                place = sums if sets.stop - sets.start == len(params) else sums[sets]  # views of CuPy take time
                self._add_up(place, at, macros, count)

        once = self.n_points <= SPAN and len(params) <= self._sets_at_once()
        is_direct = once and (out is None or not self._is_apart(out))
        sums = self._sums(params, add_up, out if is_direct else None)
        if not is_direct and out is not None:
            out[...] = (fetched(sums) if self._is_apart(out) else sums).reshape(out.shape)
        hand_over(counted, counts)
        if once and key and sums.size and self.n_points:
            self._keep_step(key, params.shape, macros)
        return sums

    def _key_of_step(self, params: Any, macros: dict[str, Any], out: Any) -> tuple[Any, ...]:
        """The key of a loss that is one call when it is asked for again."""
        to_host = self._is_apart(out) if out is not None else self.host_results and self.device.xp is not np
        return "step", to_host, params.shape, *self._sizes_of_steps()[2:], *macros.values()

    def _keep_step(self, key: tuple[Any, ...], shape: tuple[int, ...], macros: dict[str, Any]) -> None:
        """Keep what makes a loss again, if one launch of the interpreter did, whose memory is kept."""
        spans, to_host = self._ready.get(self._key_of_spans(shape[0] * shape[1], macros), ()), key[1]
        if len(spans) == 1 and not (to_host and 8 * shape[0] * shape[1] > MOST_LOCKED):
            rooms = (self._locked_params, self._locked) if to_host else None
            step = LossStep(self._immediates, spans[0].run, spans[0].add, shape, rooms)
            self._prepared(key, lambda: step)

    def _sums_of_step(self, key: tuple[Any, ...], params: Any, prepared: PreparedSums, out: Any) -> Any | None:
        """The sums of a loss that was asked for before; None where its launches are no longer good."""
        step: LossStep = self._ready[key]
        if not step.is_ready():
            self._forget()
            return None
        kept = KeptStep(step, params, out, self._epoch)
        sums = kept(params, prepared.at, out)
        if sums is None or len(self._invalid):
            return sums if sums is None else self._marked(sums.reshape(params.shape[:2]))
        prepared.kept = kept
        return sums

    def _add_up(self, sums: Any, goal: dict[str, int | float], macros: dict[str, Any], count: Any) -> None:
        if count is not None:
            count[...] = 0
        for span in self._spans(sums.size, macros):
            span(goal, address(sums, self.device), address(count, self.device))

    def _spans(self, n_items: int, macros: dict[str, Any]) -> list[SpanSums]:
        """Launches that add up all items of a pass; kept, unless the partial sums are large."""
        key = self._key_of_spans(n_items, macros)
        if key in self._ready:
            return self._ready[key]
        spans: list[SpanSums] = []
        bytes_of_one = self._n_segments * self.dtype.itemsize

        def make(at_once: int) -> None:
            rows = [slice(first, min(first + at_once, n_items)) for first in range(0, n_items, at_once)]
            n_partials = max(self._n_partials(items, macros) for items in rows)
            partials, starts = self._room_for(n_partials) if n_partials else None, range(0, self.n_points, SPAN)
            spans[:] = [self._span(items, start, macros, partials) for items in rows for start in starts]
            if n_partials * self.dtype.itemsize <= MOST_KEPT:
                self._prepared(key, lambda: spans)

        self._shrink_rows(make, max(1, min(n_items, WORK_BYTES // bytes_of_one)), bytes_of_one)
        return spans

    def _key_of_spans(self, n_items: int, macros: dict[str, Any]) -> tuple[Any, ...]:
        return "spans", n_items, *self._sizes_of_steps()[2:], *macros.values()

    def _span(self, items: slice, start: int, macros: dict[str, Any], partials: Any) -> SpanSums:
        """Launches that add up points from ``start`` on, SPAN at the most, of some items."""
        points = (start, min(start + SPAN, self.n_points))
        n_items, n_segments = items.stop - items.start, -(-(points[1] - start) // self._segment)
        partials = partials if self._n_partials(items, macros) else None
        fixed = {"partials": partials, "n_segments": n_segments, "first_segment": start // self._segment}
        own = {"ONE_TILE": int(partials is None)}
        run = self._interpreting(items, points, False, {**macros, **own}, **fixed)
        add = None if partials is None else self._launcher.adding_segments(n_items, partials, n_segments, start > 0)
        return SpanSums(run, add, items.start)

    def _n_partials(self, items: slice, macros: dict[str, Any]) -> int:
        """How many sums are parts of some items' ones; none where a tile has all points."""
        tiles = self._shape_of(items.stop - items.start, False, macros)[0].tiles(0, self.n_points)
        is_whole = len(tiles) == 1 and self.n_points <= SPAN
        return 0 if is_whole else (items.stop - items.start) * self._n_segments

    def _room_for(self, n: int) -> Any:
        """Memory for ``n`` partial sums, which is kept unless it is large."""
        if n * self.dtype.itemsize > MOST_KEPT:
            return self.device.xp.empty(n, self.dtype)
        if self._partials.size < n:
            self._partials = self.device.xp.empty(1 << (n - 1).bit_length(), self.dtype)  # launches hold it
        return self._partials

    # ── derivatives and fits ─────────────────────────────────────────────────────────

    @property
    def _derivatives(self) -> Derivatives:
        return self._derivatives_like(None)

    def _derivatives_like(self, other: Derivatives | None) -> Derivatives:
        """Derivatives and fits of this engine, made when first asked for, with what ``other`` knows."""
        if self._known_derivatives is None:
            known = self._launcher, self._lowering.tokens, self._fits_to_come
            self._known_derivatives = Derivatives(self.pop, *known, other)
        return self._known_derivatives

    @functools.cached_property
    def _fits_to_come(self) -> batches.Preparation:
        return batches.Preparation(self._launcher)

    def jacobian(self, params: Any, out: Any) -> None:
        """d f / d params into ``out``, (n_sets, n_exprs, n_points, max_params)."""
        self._derivatives.jacobian(params, out)

    def normal_equations(self, params: Any, y: Any, weights: Any) -> tuple[Any, ...]:
        """J'WJ, J'Wr and the weighted sum of squares."""
        return tuple(map(self._result, self._derivatives.normal_equations(params, y, weights)))

    def loss_and_grad(self, params: Any, y: Any, weights: Any, kind: str) -> tuple[Any, ...]:
        """The sum of a loss and its gradient."""
        return tuple(map(self._result, self._derivatives.loss_and_grad(params, y, weights, kind)))

    fits_again = True

    def fit(self, starts: Any, y: Any, weights: Any, options: Options) -> Fitted:
        """Each expression's best fit from (n_starts, n_exprs, max_params) starts."""
        return self._derivatives.fit(starts, y, weights, options).on_host(self._locked)

    def fit_there(self, starts: Any, y: Any, weights: Any, options: Options) -> Fitted:
        """``fit``, as arrays on the device."""
        return self._derivatives.fit(starts, y, weights, options).on_device()

    def make_ready(self, y: Any, weights: Any, options: Options, errors: bool = False, again: Any = None) -> None:
        """Compile side by side what fits of such expressions ask for, with ``again`` those of float64 too."""
        if self.pop.max_params and self.n_points:
            self._derivatives.make_ready(y, weights, options, errors, self._in_float64(again) if again else None)

    def fit_again(
        self, starts: Any, y: Any, weights: Any, options: Options, again: Callable[[], tuple[Any, Any, Any]]
    ) -> Fitted:
        """Fits, and those that come out SPOILED made anew by an engine of float64, made ready meanwhile."""
        return self._derivatives.fit(starts, y, weights, options, self._in_float64(again)).on_host(self._locked)

    def _in_float64(self, again: Callable[[], tuple[Any, Any, Any]]) -> Callable[[], Again]:
        """A function that gives that engine's derivatives, which take over what these know."""
        own = self._derivatives

        def in_float64() -> Again:
            other, *points = again()
            return Again(other._derivatives_like(own), *points)

        return in_float64

    # ── what was decided ─────────────────────────────────────────────────────────────

    def decisions(self) -> list[str]:
        """The variants of the interpreter that run, and what else there was."""
        if not self.n_exprs or not self.n_points:
            return []
        launcher = self._launcher
        sizes = self._sizes(self.programs, self.n_exprs, launcher.n_columns)
        lines = [
            f"{number_of(sizes.n_columns, 'column')} (variables and functions of one), "
            f"up to {number_of(sizes.n_slots, 'value')} put aside"
        ]
        for task, wide in (("values", True), ("losses", False)):
            shape, decide = self._shape(self.n_exprs, wide), self._decision(wide, self._powers(self.programs))
            where = "shared" if shape.columns_shared else "global"
            asked = " as asked" if self.block_size or self.vectors else ""
            lines.append(
                f"{task}: {shape.tile // shape.lanes} points a thread, {shape.block} threads a block, columns in "
                f"{where} memory ({shape.most_shared(sizes.n_columns, sizes.n_slots) / 1024:.3g} of "
                f"{self.device.shared_per_block / 1024:.3g} KiB a block){asked}"
            )
            lines += [f"    {line}" for line in self._path(decide, sizes)]
        return [*lines, *self._fits()]

    def _fits(self) -> list[str]:
        """The variants of the kernel that fits; none where nothing can be fitted."""
        lacking = defined.without_cuda_slopes(self.pop.user_operators()) if isinstance(self.pop, Population) else []
        return [] if lacking or not self.pop.max_params else self._derivatives.decisions()

    def _path(self, decide: Decision, sizes: Sizes) -> list[str]:
        """Why this variant: the way through the tree, or that it was measured."""
        measured = tuning.fastest(self.device, self.settings, decide.fixed, sizes) is not None
        return ["the fastest that was measured here (tune)"] if measured else decide.why(sizes)

    # ── launches ─────────────────────────────────────────────────────────────────────

    def kernels(self) -> list[dict[str, Any]]:
        """Registers, spills, memory and resident blocks of every variant that was launched, the last first."""
        return list(self._launched.values())[::-1]

    def _interpreting(
        self, items: slice, points: tuple[int, int], wide: bool, macros: dict[str, Any], **fixed: Any
    ) -> ScheduledLaunch:
        values, n_items, launcher = macros["TASK"] == "VALUES", items.stop - items.start, self._launcher
        shape, shared = self._shape_of(n_items, wide, macros)
        kernel = launcher.interpreter(shape, POWERS=int(self._powers(self.programs)), **macros)
        tiles = shape.tiles(*points)
        resident = kernel.resident(shape.block, shared)
        self._launched[kernel] = {
            "task": macros["TASK"],
            "registers": kernel.registers,
            "local_bytes": kernel.local_bytes,
            "shared_bytes": shared,
            "block_size": shape.block,
            "resident_blocks": resident,
            "points_per_thread": shape.tile // shape.lanes,
        }
        blocks = min(self.device.multiprocessors * resident, -(-len(tiles) * n_items // shape.warps))
        chunking = self._chunking(values, len(tiles))
        shares = plan_on(self.device, n_items, len(tiles), blocks, shape.warps, chunking)
        cut, chunks = launcher.cutting(shares, items, COST_OF_RESULT[values])
        run = launcher.launch(
            kernel,
            (shares.blocks, 1),
            shape.block,
            shared,
            overlaps=True,
            first_tile=tiles.start,
            n_tiles=len(tiles),
            n_work_items=shares.n_work_items,
            n_chunks=shares.rank.shape[1],
            chunks=chunks,
            **self._immediates.arrays,
            **fixed,
        )
        return ScheduledLaunch(cut, run)

    def _shape_of(self, n_items: int, wide: bool, macros: dict[str, Any]) -> tuple[LaunchShape, int]:
        """The variant for a task and a number of items, and the shared memory of its blocks."""
        n_targets = macros.get("TARGETS", 0 if macros["TASK"] == "VALUES" else 1 + macros.get("WEIGHTED", 0))
        sizes = self._launcher.n_columns, self.programs.n_slots, n_targets
        shape = self._shape(n_items, wide)
        if shape.shared_bytes(*sizes) > self.device.shared_per_block:  # for a loss that reads many columns
            shape = self._smallest
        return shape, shape.shared_bytes(*sizes)

    def _chunking(self, values: bool, n_tiles: int) -> Chunking:
        if n_tiles == 1:
            return Chunking(1)  # a warp's rows follow one another
        is_fast = self.settings.operators == "fast" and self.dtype.itemsize == 4
        return (VALUES_CHUNKING if values else LOSSES_CHUNKING)[is_fast]

    def _shape(self, n_items: int, wide: bool = False) -> LaunchShape:
        return self._shape_for(self.programs, n_items, self._launcher.n_columns, wide)

    def _shape_for(self, programs: Programs, n_items: int, n_columns: int, wide: bool) -> LaunchShape:
        key = self._sizes(programs, n_items, n_columns), wide, self._powers(programs)
        shape: LaunchShape = self._shapes.made(key, lambda: self._chosen(*key))
        return shape

    def _chosen(self, sizes: Sizes, wide: bool, powers: bool) -> LaunchShape:
        """The variant that is forced, or was the fastest for such work on this device (``tune``), or the tree's."""
        if self._forced is not None:
            return self._forced._replace(wide=wide)
        decide = self._decision(wide, powers)
        return tuning.fastest(self.device, self.settings, decide.fixed, sizes) or decide(sizes)

    def using(self, shape: LaunchShape | None) -> None:
        """Launch this variant from now on, None: the tree's again."""
        self._forced = shape
        self._shapes.clear()
        self._forget()

    def tune(self, params: Any, y: Any, weights: Any, kind: str, seconds: float) -> tuning.Tuned:
        """Time the variants that can run here for this work, and keep the best; ``kind`` "values": of results."""
        wide, xp = kind == "values", self.device.xp
        sizes = self._sizes(self.programs, self.n_exprs * len(params), self._launcher.n_columns)
        if wide:
            out = xp.empty((len(params), self.n_exprs, self.n_points), self.dtype)
            wide = (self.n_points * self.dtype.itemsize | self.device.pointer(out)) % VECTOR_BYTES == 0

        goal = None if kind == "values" else self.prepare(y, weights, kind)

        def run() -> None:
            self.evaluate(params, out) if goal is None else self.sums(params, goal)

        decide = self._decision(wide, self._powers(self.programs))
        try:
            found = tuning.timed(self.device, decide, sizes, self.using, run, seconds)
        finally:
            self.using(None)
        tuning.write(self.device, self.settings, decide.fixed, sizes, found.best)
        self.using(None)
        return found

    def _sizes(self, programs: Programs, n_items: int, n_columns: int) -> Sizes:
        bulky = programs.code.bulky and self.dtype.itemsize == 4  # of float64 it is not known
        return Sizes(self.n_points, n_items, n_columns, programs.n_slots, int(bulky))

    def _powers(self, programs: Programs) -> bool:
        """Whether the kernel has the code of the operators that need many registers."""
        return programs.code.heavy or not self._asks_for_powers

    def _decision(self, wide: bool, powers: bool) -> Decision:
        return Decision(DeviceLimits.of(self.device), self._variants(wide, powers))

    def _variants(self, wide: bool, powers: bool) -> VariantSet:
        """Variants of these numbers and operators, and of the user's options."""
        fast = self.settings.operators == "fast"
        return VariantSet(self.dtype.itemsize, fast, wide, self.device.lanes, self.block_size, self.vectors, powers)

    def _check_options(self, programs: Programs, columns: Columns) -> None:
        """An error, before any work, if the options asked for leave no variant for these programs."""
        if self.block_size or self.vectors:
            self._shape_for(programs, programs.n_exprs, len(columns.code), True)


BACKEND = backend(Engine, device_populations=True)


@table_of_rows
def _make_ready(device: Any, settings: Precision, itemsize: int) -> None:
    """Compile the kernels that all populations need, of fits in float64, too: many short ones, side by side."""
    common: dict[str, Any] = {"LANES": device.lanes}
    texts = dependence.source(), batches.measure_source(), dual_opcodes.choice()
    wanted = [nvrtc.KernelRequest(CHOICE, text, common) for text in texts]
    for size in {itemsize, 8}:
        macros = {"REAL": REAL[size], **common}
        wanted.append(nvrtc.KernelRequest(lowering.COMPILED_AS, lowering.source(), macros))
        wanted.append(nvrtc.KernelRequest(settings, opcodes.source(settings.operators), {**macros, "SUPPORT": 1}))
    device.make_ready(wanted)
