"""The engine of the PTX backend: a population transpiled to machine code of its own, on an NVIDIA GPU.

In: a population and data.  Out: values and losses.

    >>> import exprkit as ek
    >>> status = ek.backends()["ptx"]
    >>> status.available or "pip install" in status.detail or "driver" in status.detail
    True

Structures are compiled, not expressions: constants and parameters are data, so new ones
compile nothing, and where there are many structures, those that differ in their columns alone
share code.  Code is made when an evaluation first needs it, module by module, each launched as
soon as it is compiled; from then on a step is one launch for the numbers and one replay of a
graph of all modules' launches.

Losses: a thread adds the errors of at most 128 points in float32, everything else is added in
float64, in an order that depends on the number of points and the options alone.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends import contract
from exprkit.backends.cases.bundles import MANY, CodeShape, shape_of, why
from exprkit.backends.gpu.device import fetched
from exprkit.backends.gpu.engine import DeviceEngine, backend, check_block, check_points
from exprkit.backends.gpu.launch import THREADS, Columns, Launch
from exprkit.backends.loss_tokens import Tokens
from exprkit.backends.precision import Precision
from exprkit.backends.transpiler.assembler import compile_modules, disassemble
from exprkit.backends.transpiler.cuda_graph import WORK_BYTES as WORK_ITEM
from exprkit.backends.transpiler.cuda_graph import Pass, window
from exprkit.backends.transpiler.loss_ptx import LossCode, loss_code
from exprkit.backends.transpiler.modules import ModuleCache, ModuleOptions
from exprkit.backends.transpiler.operator_ptx import bodies
from exprkit.backends.transpiler.program import Transpiled, parts
from exprkit.backends.transpiler.structures import to_compile
from exprkit.backends.transpiler.templates import CHUNK, LINE, SUM, VALUES, WARP, Kind
from exprkit.errors import DataError, number_of, whole
from exprkit.expressions.population import Population
from exprkit.programs.lower import lower

CODE_BYTES = 1 << 30  # of machine code on the device; the modules used longest ago go first
WORK_BYTES = 512 << 20  # numbers, partial sums and the table of work of one pass
FLOAT32_TERMS = 128  # that a thread adds in float32
MOST_VECTOR = 4  # points
MOST_ROWS = 16  # of a block that takes one after the other
BUSY_BLOCKS = 16  # of a multiprocessor in a launch, before they have more rows
VALUES_TURNS, SUM_TURNS = 2, 8  # of a block's loop over its tile, at the most; twice that from MANY points on
SPAN_TILES = 128  # tiles whose sums are added before they join the total
MOST_PASSES = 64  # that are kept ready; each holds a table of work on the device
MOST_ROW_BYTES = 1 << 31  # 32 bits hold the length of a row
How = tuple[str, int, bool, bool, LossCode | None]  # task, store, masked, weighted and loss of a ``Kind``


class PtxSum(NamedTuple):
    """A loss and what it compares with, on the device."""

    task: str
    target: Any  # of a text the columns that it reads, (n_chunks, n_columns, CHUNK)
    weights: Any
    code: LossCode | None = None  # of a text
    counted: bool = False  # the last column of a text says how much a point counts


class Engine(DeviceEngine, contract.Compiling):
    """A population made ready for one data set.

    Parameters
    ----------
    block_size : int, optional
        Threads of a block, a multiple of 32.
    points_per_thread : int, optional
        1, 2 or 4 (float64: 1 or 2): a thread's vector.
    structures_per_module, structures_per_bundle : int, optional
        How many structures are compiled at a time, and how many run in one loop.
    share_code : bool, optional
        Whether structures that differ in their columns alone share machine code: there is less to compile, and
        sums over very many points take longer.  By default where there are many structures and it at least halves
        them.
    cache : bool
        Keep machine code on disk, and take it from there.
    progress : bool
        Show how compiling goes on.
    code_bytes : int
        Machine code on the device at a time; more makes room for itself.

    Attributes
    ----------
    seconds : dict
        Wall seconds spent so far: "lower", "group", "emit", "compile" (waited for), "load".
    """

    counts = True  # evaluate can count nan and inf
    most_ready = MOST_PASSES

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
        structures_per_module: int | None = None,
        structures_per_bundle: int | None = None,
        share_code: bool | None = None,
        cache: bool = True,
        progress: bool = False,
        code_bytes: int = CODE_BYTES,
        device: Any = None,
        compiler: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(pop, X, precision, dtype, device)
        most = MOST_ROW_BYTES // self.dtype.itemsize
        if self.n_points > most:
            raise DataError(f"{self.n_points} points are more than {most}: take them in parts and add the sums")
        vectors = [v for v in (1, 2, 4) if v * self.dtype.itemsize <= 16]
        self._chosen = check_block(block_size, WARP), check_points(points_per_thread, vectors)
        self._of_a_bundle, self._of_a_module = (
            None if n is None else whole(f"structures_per_{what}", n, 1)
            for what, n in (("bundle", structures_per_bundle), ("module", structures_per_module))
        )
        self.seconds: dict[str, float] = {}
        compiler = compiler or functools.partial(compile_modules, workers=threads, cache=cache)
        self._options = ModuleOptions(compiler, code_bytes, self.seconds, progress)
        started = time.perf_counter()
        self.program = lower(pop, precision=self.settings.operators, positive=self._positive(X), dtype=self.dtype)
        self.seconds["lower"] = time.perf_counter() - started
        started = time.perf_counter()
        self.structures = to_compile(self.program, share_code)
        self.seconds["group"] = time.perf_counter() - started
        self._make_columns(X)
        self._parts: dict[str, list[tuple[Transpiled, Any]]] = {}
        self._codes: dict[tuple[int, Kind], ModuleCache] = {}
        self._adding: dict[tuple[Any, ...], Launch] = {}

    def _make_columns(self, X: Any) -> None:
        """Make the columns, chunk by chunk of points, and get ready to make numbers."""
        self._load(self.structures.numbers, Columns.of(self.program), self.device.xp.asarray(X))
        columns = self._launcher.columns()
        self._columns = self._by_chunk(columns[:, : self.n_points], self.device.xp)

    def _by_chunk(self, columns: Any, xp: Any) -> Any:
        """Columns as they lie on the device, (n_chunks, n_columns, CHUNK): zeros behind the last point."""
        padded = xp.zeros((len(columns), -(-self.n_points // CHUNK) * CHUNK), self.dtype)
        padded[:, : self.n_points] = columns
        by_chunk = padded.reshape(len(columns), padded.shape[1] // CHUNK, CHUNK).transpose(1, 0, 2)
        return self.device.xp.asarray(xp.ascontiguousarray(by_chunk))

    def parts(self, task: str) -> list[tuple[Transpiled, Any]]:
        """The structures in bundles and modules for a task, and each part's instances on the device."""
        if task not in self._parts:
            started = time.perf_counter()
            of_task = parts(
                self.program,
                self.structures,
                task,
                self.n_points,
                self.dtype.itemsize,
                self._changed,
                self._of_a_module,
            )
            self._parts[task] = [(part, self.device.xp.asarray(part.bundles.instances)) for part in of_task]
            self.seconds["group"] += time.perf_counter() - started
        return self._parts[task]

    def _changed(self, usual: CodeShape) -> CodeShape:
        block, points = self._chosen
        return usual.changed(points, block, self._of_a_bundle)

    # ── what was decided ─────────────────────────────────────────────────────────────

    def decisions(self) -> list[str]:
        """Structures, whether they share code, and how each task's are bundled."""
        alike = self.structures.indirect
        shared = "those that differ in their columns alone share code" if alike else "each has its own code"
        lines = [f"{number_of(len(self.structures), 'structure')} of {number_of(self.n_exprs, 'expression')}, {shared}"]
        asked = any(self._chosen) or self._of_a_bundle
        for task, words in ((VALUES, "values"), ("square", "losses")):
            for part, _ in self.parts(task) if self.n_exprs and self.n_points else ():
                lines.append(
                    f"{words}: {number_of(len(part.bundles), 'bundle')} in {number_of(len(part), 'module')}, "
                    f"{number_of(part.shape.points, 'point')} a thread, {part.shape.block} threads a block"
                    f"{', as asked' if asked else ''}"
                )
                path = [] if asked else why(task, {"N": self.n_points, **part.sizes})
                lines += [f"    {line}" for line in path]
        return lines

    # ── values ───────────────────────────────────────────────────────────────────────

    def evaluate(self, params: Any, out: Any, counts: Any = None) -> None:
        """Write every element of ``out``, (n_sets, n_exprs, n_points), on the host or the device.

        ``counts`` (n_sets, n_exprs, 2) int64 takes how many nan and inf each expression gave.
        """
        if out.size:
            if (isinstance(out, np.ndarray) and self.device.xp is not np) or out.dtype != self.dtype:
                self._by_parts(params, out)
            else:
                self._values(params, out)
        for k, is_one in enumerate((np.isnan, np.isinf) if counts is not None else ()):  # of CuPy's, they call its own
            counts[..., k] = fetched(is_one(out).sum(-1))

    def _values(self, params: Any, out: Any) -> None:
        width = _store_width(out, self.device) // self.dtype.itemsize
        for sets in self._passes(params, self._sets_at_once(len(params), VALUES)):
            self._run_values(out[sets], 0, self.n_points, width, self.n_points)

    def _run_values(self, out: Any, start: int, stop: int, width: int, n_points: int) -> None:
        """All sets whose numbers are there, at some points.

        ``out`` is (n_sets, n_exprs, points from ``start`` on), of which ``wanted`` may be written,
        ``width`` at a time.
        """
        of_a_row = out.shape[-1] * self.dtype.itemsize
        first = self.device.pointer(out) - start * self.dtype.itemsize
        for part, instances in self.parts(VALUES):
            store = min(width, part.shape.points)
            masked = n_points % part.shape.points != 0 and store < part.shape.points
            graph = self._pass(part, instances, (VALUES, store, masked, False, None), len(out), start, stop)
            graph.arguments.set(out=first, row_bytes=of_a_row, out_set_bytes=of_a_row * self.n_exprs)
            graph.launch()

    def _by_parts(self, params: Any, out: Any) -> None:
        """Into an array of the host's, or of 16 bits: some sets at a time, or some points of one set."""
        of_a_point = self.dtype.itemsize * self.n_exprs
        fit = max(self.device.free_bytes() // 2 // of_a_point, 1)  # points of one set
        length = -(-self.n_points // 4) * 4
        sets = max(1, fit // length)
        if fit < length:
            length = max(fit // CHUNK, 1) * CHUNK

        def smaller(sets: int, length: int) -> tuple[int, int]:
            return (sets // 2, length) if sets > 1 else (1, min(length, max(length // 2 // CHUNK, 1) * CHUNK))

        def needs(sets: int, length: int) -> tuple[str, int]:
            return f"{self.n_exprs} expressions on {length} points need", of_a_point * length

        self._shrinking(functools.partial(self._copy_parts, params, out), (sets, length), smaller, needs)

    def _copy_parts(self, params: Any, out: Any, sets: int, length: int) -> None:
        """``sets`` sets at a time, and of them ``length`` points at a time, a whole number of vectors."""
        stream, on_host = self.device.current_stream(), isinstance(out, np.ndarray) and self.device.xp is not np
        for part in self._passes(params, self._sets_at_once(len(params), VALUES, sets)):
            place = out[part]
            buffer = self.device.xp.empty((len(place), self.n_exprs, length), self.dtype)
            short = None if out.dtype == self.dtype else self.device.xp.empty(buffer.shape, np.uint16)
            for start in range(0, self.n_points, length):
                stop = min(start + length, self.n_points)
                self._run_values(buffer, start, stop, 4, length)
                rounded = buffer if short is None else self._rounded(buffer, short, out.dtype)
                computed = rounded.reshape(-1, length)[:, : stop - start]
                rows = place.reshape(-1, self.n_points)[:, start:stop]
                if on_host:
                    self.device.to_host(computed, rows, stream)
                else:
                    rows[...] = computed.view(rows.dtype)
        if on_host:
            stream.synchronize()

    # ── losses ───────────────────────────────────────────────────────────────────────

    def prepare(self, y: Any, weights: Any, kind: str) -> PtxSum:
        """Target and weights on the device."""
        return PtxSum(kind, self._padded(y), None if weights is None else self._padded(weights))

    def prepare_text(self, loss: Tokens, columns: np.ndarray, counted: bool) -> PtxSum | None:
        """A loss that is a text (``loss_ptx``); None where an operator in it has no PTX.

        Its columns lie chunk by chunk of points on the device; code of another such loss is let go.
        """
        fast = self.settings.operators == "fast"
        code = loss_code(loss, bodies(self.settings, self.dtype), len(columns), counted, fast)
        if code is None:
            return None
        if any(kind.loss not in (None, code) for _, kind in self._codes):
            self._forget()
            self._codes = {key: kernels for key, kernels in self._codes.items() if key[1].loss in (None, code)}
        with np.errstate(over="ignore"):
            return PtxSum(SUM, self._by_chunk(columns, np), None, code, counted)

    def sums(self, params: Any, prepared: PtxSum, counts: Any = None, out: Any = None) -> Any:
        """Sums of a prepared loss, float64 (n_sets, n_exprs)."""

        def add_up(sums: Any) -> None:
            for part in self._passes(params, self._sets_at_once(len(params), prepared.task)):
                self._add_up(sums[part], prepared)

        return self._sums(params, add_up)

    def _padded(self, values: Any) -> Any:
        """One number per point on the device, where a thread can load a whole vector; zeros behind the last one."""
        values = self.device.xp.asarray(values)
        if self.n_points % 4 == 0 and self.device.pointer(values) % 16 == 0:
            return values
        return self._launcher.padded(values, self.n_points + -self.n_points % 4)

    def _add_up(self, sums: Any, prepared: PtxSum) -> None:
        """The sums of all sets whose numbers are there, one span of points after the other."""
        task, target, weights, loss, counted = prepared
        weighted = counted or weights is not None
        span = SPAN_TILES * self._turn(task) * self._most_turns(task)
        for start in range(0, self.n_points, span):
            stop = min(start + span, self.n_points)
            n_tiles = self._n_tiles(task, start, stop)
            alone = self.n_points <= span and n_tiles == 1
            partials = sums if alone else self.device.xp.empty((sums.size, n_tiles), np.float64)
            for part, instances in self.parts(task):
                # where points have weights, those of 0 stand behind the last one
                masked = self.n_points % part.shape.points != 0 and not weighted
                how = task, 1, masked, weighted, loss
                graph = self._pass(part, instances, how, len(sums), start, stop)
                graph.arguments.set(out=partials, target=target, weights=weights)
                graph.launch()
            if not alone:
                self._add(partials, sums, start > 0)

    def _add(self, partials: Any, sums: Any, add: bool) -> None:
        """Add the tiles' sums of every row in float64."""
        key = partials.shape, add
        if key not in self._adding:
            kernel = self._launcher.support("add_segments", REAL="double")
            n_items, n_segments = partials.shape
            self._adding[key] = self._launcher.launch(
                kernel,
                (-(-n_items * self.device.lanes // THREADS), 1),
                THREADS,
                n_items=n_items,
                n_segments=n_segments,
                add_to_sums=int(add),
            )
        self._adding[key](partials=self.device.pointer(partials), sums=self.device.pointer(sums))

    # ── passes ───────────────────────────────────────────────────────────────────────

    def _shared_out(self, part: Transpiled, task: str, n_sets: int, start: int, stop: int) -> tuple[int, int]:
        """How many tiles share some points, and how many rows a block takes one after the other (0: one at once).

        Of sums, the tiles depend on nothing but the number of points and the options.
        """
        turn = part.shape.block * part.shape.points
        if task != VALUES:
            return self._n_tiles(task, start, stop), 0
        if not part.kind(task).by_row:
            return -(-(stop - start) // (turn * self._most_turns(task))), 0
        tiles = -(-(stop - start + LINE // self.dtype.itemsize) // turn)
        rows = int(part.bundles.n_batches.sum()) * n_sets * tiles // (BUSY_BLOCKS * self.device.multiprocessors)
        return tiles, min(max(rows, 1), MOST_ROWS)

    def _turn(self, task: str) -> int:
        """The fewest points that a block takes at a time, with any structure."""
        shapes = (self._changed(shape_of(task, self.n_points, self.dtype.itemsize, small)) for small in (True, False))
        return min(shape.block * shape.points for shape in shapes)

    def _most_turns(self, task: str) -> int:
        """The most turns of a block in one tile: they bound the numbers that are added in float32."""
        more = 1 if self.n_points < MANY else 2
        if task == VALUES:
            return more * VALUES_TURNS
        return min(more * SUM_TURNS, FLOAT32_TERMS // MOST_VECTOR)

    def _n_tiles(self, task: str, start: int, stop: int) -> int:
        """How many tiles of sums share some points."""
        return -(-(stop - start) // (self._turn(task) * self._most_turns(task)))

    def _sets_at_once(self, n_sets: int, task: str, most: int | None = None) -> int:
        """For how many parameter sets the memory of a pass is enough."""
        if n_sets <= 1:
            return 1
        of_a_set = self._launcher.bytes_of_a_set
        for part, _ in self.parts(task):
            tiles = self._shared_out(part, task, n_sets, 0, self.n_points)[0]
            tiles = tiles if task == VALUES else min(tiles, SPAN_TILES)
            n_batches = int(part.bundles.n_batches.sum())
            of_a_set += (8 * self.n_exprs * (task != VALUES) + WORK_ITEM * n_batches) * tiles
        return min(max(1, WORK_BYTES // of_a_set), most or n_sets)

    def _pass(self, part: Transpiled, instances: Any, how: How, n_sets: int, start: int, stop: int) -> Pass:
        """The launches of a part for a range of sets and points; the addresses of results are set afterwards."""
        key = id(part), how, n_sets, start, stop
        graph: Pass = self._prepared(key, lambda: self._new_pass(part, instances, how, n_sets, start, stop))
        graph.arguments.set(numbers=self._immediates.arrays["immediates"])
        return graph

    def _new_pass(self, part: Transpiled, instances: Any, how: How, n_sets: int, start: int, stop: int) -> Pass:
        task, store, masked, weighted, loss = how
        kind = part.kind(task, store=store, masked=masked, weighted=weighted, loss=loss)
        if (id(part), kind) not in self._codes:
            self._codes[id(part), kind] = ModuleCache(self.device, part, kind, self.settings, self._options)
        tiles, rows = self._shared_out(part, kind.task, n_sets, start, stop)
        points = window(start, stop, kind.block * kind.points, tiles)
        graph = Pass(self.device, self._codes[id(part), kind], n_sets, tiles, rows)
        itemsize = self.dtype.itemsize
        graph.arguments.set(
            columns=self._columns,
            chunk_bytes=self._columns.shape[1] * CHUNK * itemsize,
            instances=instances,
            numbers_set_bytes=2 * itemsize * self._launcher.n_instructions,
            n_exprs=self.n_exprs,
            **points,
        )
        return graph

    # ── what was made ────────────────────────────────────────────────────────────────

    def ptx(self, i: int) -> str:
        """The PTX of expression ``i``'s structure, as a module of its own."""
        part = next(part for part, _ in self.parts(VALUES) if part.holds(i))
        return part.one(i, part.kind(VALUES), self.settings, str(self.pop[i]))

    def sass(self, i: int) -> str:
        """The machine code of expression ``i``'s structure, disassembled; BackendError without a disassembler."""
        architecture = self.settings.architecture or self.device.architecture
        return disassemble(next(iter(compile_modules([self.ptx(i)], architecture, self.settings))).cubin)

    def kernels(self) -> list[dict[str, Any]]:
        """A line for each compiled kernel."""
        return [line for code in self._codes.values() for line in code.described()]


def _store_width(out: Any, device: Any) -> int:
    """How many bytes a thread may store at once: rows follow one another without a gap."""
    alignment = int(out.shape[-1]) * out.itemsize | device.pointer(out)
    return next(width for width in (16, 8, 4) if alignment % width == 0)


BACKEND = backend(Engine)
