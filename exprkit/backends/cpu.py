"""The CPU backend: many expressions, a tile of points at a time, on all cores.

Last stage of the pipeline: ``lower`` makes the programs, ``simd`` the machine code of the
operators; here programs meet data.

    >>> import exprkit as ek
    >>> ek.Evaluator(ek.parse(["p1 * x1"]), [[1.0], [2.0]], backend="cpu").evaluate([[3.0]])
    array([[3., 6.]], dtype=float32)

What is computed, plainly::

    for block of 64 rows:                     (a row: one expression with one parameter set)
        for row in block:
            put its parameters and constants into its uniforms
            run its prologue (uniform -> uniform)
        for tile of about 500 points:
            for row in block:
                for instruction of its program:
                    call the operator's kernel on the tile
                the last one's result goes into the matrix, or into the sum of a loss

A kernel call costs as much as some 200 additions, so programs on a tile that stays in the
fastest cache run near the speed of the arithmetic itself.  The parts:

==========  ============================================================================
tiles       [tile][column][512]: the data; a point past the end repeats the last one;
            columns as the lowered programs want them (a variable or a unary operator of
            it); a tile's last 64 bytes are the next one's first
words       a program's instruction as four int32: which kernel, then for a, b and the
            result a byte offset whose two lowest bits say from where (``lower``'s kinds)
uniforms    one line of numbers for each row of a block
slots       temporaries: 512 points each
==========  ============================================================================

Rows are shared out in chunks that threads take one after the other; what a row gets does
not depend on its chunk, so neither do the bits of the result.  Sums of a loss are float64,
added up in the same order for any number of threads.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from exprkit import machine, ops
from exprkit.backends import simd
from exprkit.compiled import compiled
from exprkit.lower import COLUMN, OUT, SLOT, UNIFORM, Program, lower
from exprkit.native import borrowed, call, call_number, take
from exprkit.population import Population

TILE, FORMS = simd.TILE, 2 * simd.PAST
BLOCK = 64  # rows that go through the data together
LINE = 64  # bytes of a cache line; neighbouring tiles share so much
SPAN = 64  # tiles whose losses are summed before they join the row's sum; threads share out whole spans
PAST_BYTES = 24 << 20  # results larger than this, in rows of several tiles, are written past the caches
CHUNKS = 8  # a thread's share of the rows is cut into so many chunks, against unequal work
SMALL = 1 << 19  # work (instructions x points) that is not worth a second thread
PIECE = 1 << 28  # work between two looks for Ctrl-C: about a tenth of a second
DONE = 1 << 62  # more than there are pieces of work
_NO_SUMS = np.empty((0, 0))


def unavailable() -> str | None:
    """None: compiled for whatever processor this is."""
    return None


def describe() -> str:
    """What this backend runs on."""
    return f"{machine.cpu_model()}, {machine.cores()} threads"


class Engine:
    """A population made ready for one data set (the protocol is in ``backends/__init__.py``)."""

    def __init__(
        self, pop: Population, X: np.ndarray, *, precision: str, dtype: np.dtype, threads: int | None = None
    ) -> None:
        self.pop, self.n_points = pop, len(X)
        self.dtype = np.dtype(dtype)
        self.threads = threads or machine.cores()
        self.program = lower(pop, precision=precision, positive=_never_negative(X), dtype=self.dtype)
        self.kernels = simd.kernels(self.dtype.name, precision)
        words = _words(self.program, self.dtype.itemsize)
        table = self.kernels.table(_requests(words, self.program)).reshape(-1)
        self._tiles = _tiles(X, self.program, table, self.kernels.lanes)
        self._machine = _Machine(
            words.reshape(-1), table, self.program.offsets, self.program.n_prologue,
            _cast(self.program.constants, self.dtype), self.program.first_const, self.program.n_params,
            self._tiles.ctypes.data, self.n_points, self.kernels.lanes, self.dtype.itemsize,
            self._tiles.strides[0], _step(self.dtype),
        )  # fmt: skip
        self._can_write_past = False  # the kernels for it are made when first needed
        self._plans: dict[int, _Plan] = {}  # by the number of parameter sets
        self._scratch: collections.deque[_Scratch] = collections.deque()

    def evaluate(self, params: np.ndarray, out: np.ndarray) -> None:
        """Write every element of ``out``, (n_sets, n_exprs, n_points)."""
        past = out.nbytes > PAST_BYTES and len(self._tiles) > 1 and out.ctypes.data % self.dtype.itemsize == 0
        if past and not self._can_write_past:
            self.kernels.table(_last_requests(self._machine.words, self.program))
            self._can_write_past = True
        functions = self.kernels.result("copy_points"), self.kernels.result("fence")
        self._run(params, _Result(out.ctypes.data, simd.PAST * past, *functions, 0, 0, 0, _NO_SUMS), out)

    def loss_sums(self, params: np.ndarray, y: np.ndarray, weights: np.ndarray | None, kind: str) -> np.ndarray:
        """Sum of weighted squared or absolute errors, float64 (n_sets, n_exprs)."""
        plan = self._plan(params.shape[0])
        sums = np.zeros((len(plan.tiles) - 1, params.shape[0] * params.shape[1]))
        w = 0 if weights is None else weights.ctypes.data
        loss = self.kernels.result(f"loss_{kind}")
        self._run(params, _Result(0, 0, 0, 0, loss, y.ctypes.data, w, sums), y, weights)
        total = sums[0]
        for more in sums[1:]:
            total = total + more
        total = total.reshape(params.shape[:2])
        total[:, ~self.pop.valid] = np.nan
        return total

    def _run(self, params: np.ndarray, result: _Result, *owners: np.ndarray | None) -> None:
        """Do the work of one call: this thread, and as many more as it is worth.

        ``owners`` hold the memory that ``result`` has addresses of, for as long as a thread may use it.
        """
        if params.shape[0] * params.shape[1] == 0 or self.n_points == 0:
            return
        plan = self._plan(params.shape[0])
        counter = np.zeros(1, np.int64)
        n_rows = params.shape[0] * params.shape[1]
        job = _Job(params.reshape(n_rows, params.shape[2]), plan.rows, plan.tiles, counter)
        others: list[Future[bool]] = []
        try:
            with contextlib.suppress(RuntimeError):  # the system starts no more threads, or Python ends: do with fewer
                while len(others) < plan.threads - 1:
                    others.append(_pool(plan.threads - 1).submit(self._thread, job, result, DONE, owners))
            while self._thread(job, result, plan.at_once, owners):
                pass  # here Python sees that the user wants to stop
        finally:
            counter[0] = DONE
            for other in others:
                if not other.cancel():  # it has started
                    other.result()

    def _thread(self, job: _Job, result: _Result, most: int, owners: tuple[np.ndarray | None, ...]) -> bool:
        """Take up to ``most`` pieces of the work; False: none is left.  Concurrent calls have their own memory."""
        try:
            scratch = self._scratch.pop()
        except IndexError:
            scratch = _Scratch.make(self.program, self.dtype)
        more = _drive(self._machine, job, result, scratch, most)
        self._scratch.append(scratch)
        return bool(more)

    def _plan(self, n_sets: int) -> _Plan:
        """How a call with so many parameter sets is shared out."""
        if n_sets not in self._plans:
            n_rows, n_tiles = n_sets * len(self.pop), len(self._tiles)
            work = n_sets * (len(self.program.code) + len(self.pop)) * self.n_points
            threads = self.threads if work > SMALL else 1
            few = n_rows < 2 * CHUNKS * self.threads
            tiles = np.append(np.arange(0, max(n_tiles, 1), SPAN if few else max(n_tiles, 1)), n_tiles)
            rows = _shares(self.program.offsets, n_sets, max(1 if threads == 1 else CHUNKS * threads, work // PIECE))
            at_once = max(1, (len(rows) - 1) * (len(tiles) - 1) * PIECE // max(work, 1))
            self._plans[n_sets] = _Plan(threads, at_once, rows.astype(np.int64), tiles.astype(np.int64))
        return self._plans[n_sets]


class _Plan(NamedTuple):
    threads: int
    at_once: int  # pieces that make a PIECE of work
    rows: np.ndarray  # first row of each chunk, and the end
    tiles: np.ndarray  # first tile of each range of tiles, and the end


# ── preparation ──────────────────────────────────────────────────────────────────────


def _never_negative(X: np.ndarray) -> np.ndarray:
    """For each variable: it has no value below 0 and no -0."""
    return ~np.any(np.signbit(X) & ~np.isnan(X), axis=0)


def _cast(numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return numbers.astype(dtype)


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Memory that starts at a cache line."""
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def _words(program: Program, itemsize: int) -> np.ndarray:
    """The instructions as int32 (n + 1, 4); the last one is what an invalid expression runs."""
    step = np.array([TILE * itemsize, TILE * itemsize, itemsize, 0])  # by kind of operand
    n = len(program.code)
    words = np.zeros((n + 1, 4), np.int32)
    for k, operands in enumerate((program.a, program.b, program.dst), start=1):
        kind = operands & 3
        words[:n, k] = np.where(operands < 0, 0, (operands >> 2) * step[kind] | kind)
    uniform_a, uniform_b = ((x >= 0) & (x & 3 == UNIFORM) for x in (program.a, program.b))
    once = program.dst & 3 == UNIFORM
    form = np.where(once, simd.UU, uniform_a * simd.SV + uniform_b * simd.VS)
    words[:n, 0] = program.code.astype(np.int32) * FORMS + form
    words[n] = ops.COPY * FORMS + simd.SV, UNIFORM, 0, OUT
    return words


def _requests(words: np.ndarray, program: Program) -> list[tuple[int, int]]:
    """The kernels that the words and the columns need: (code, form)."""
    used = {divmod(k, FORMS) for k in np.flatnonzero(np.bincount(words[:, 0])).tolist()}
    return sorted(used | {(code, simd.VV) for code in program.column_code.tolist()})


def _last_requests(words: np.ndarray, program: Program) -> list[tuple[int, int]]:
    """The kernels that write results past the caches."""
    last = np.append(program.offsets[1:] - 1, len(program.code))
    used = np.flatnonzero(np.bincount(words.reshape(-1, 4)[last, 0]))
    return [divmod(k + simd.PAST, FORMS) for k in used.tolist()]


def _step(dtype: np.dtype) -> int:
    """Points from the start of one tile to the start of the next."""
    return TILE - LINE // dtype.itemsize


def _tiles(X: np.ndarray, program: Program, table: np.ndarray, lanes: int) -> np.ndarray:
    """The data as the programs want it, (n_tiles, n_columns, TILE)."""
    step, n_columns = _step(X.dtype), len(program.column_code)
    n_tiles = max(1, -(-(len(X) + step - TILE) // step)) if len(X) else 0
    room = _aligned((n_tiles * n_columns + 1, TILE), X.dtype)
    room[-1] = 1  # may be read, is never used
    tiles = room[:-1].reshape(n_tiles, n_columns, TILE)
    if n_tiles == 0:
        return tiles
    padded = _aligned((n_tiles * step + TILE,), X.dtype)
    for column, (code, var) in enumerate(zip(program.column_code.tolist(), program.column_var.tolist(), strict=True)):
        if column and (code, var) == (program.column_code[column - 1], program.column_var[column - 1]):
            continue  # the low part of a pair, made together with the high part
        padded[: len(X)], padded[len(X) :] = X[:, var], X[-1, var]
        y = tiles.ctypes.data + column * tiles.strides[1]
        kernel = table[code * FORMS + simd.VV]
        _derive(kernel, y, tiles.strides[0], padded.ctypes.data, step * X.itemsize, n_tiles, TILE // lanes)
    return tiles


@compiled
def _derive(kernel, y, y_step, a, a_step, n_tiles, n_vectors):
    for tile in range(n_tiles):
        call(kernel, (y + tile * y_step, a + tile * a_step, 0, n_vectors))


def _shares(offsets: np.ndarray, n_sets: int, n: int) -> np.ndarray:
    """First row of each of at most ``n`` chunks of about equal work, and the end."""
    n_exprs = len(offsets) - 1
    if n_exprs == 0:
        return np.zeros(1, np.int64)
    cost = offsets + np.arange(n_exprs + 1)  # an instruction is one unit of work, so is a row
    goals = np.arange(n) * int(cost[-1]) * n_sets // n
    rows = goals // cost[-1] * n_exprs + np.searchsorted(cost, goals % cost[-1])
    return np.unique(np.append(rows, n_sets * n_exprs))


@functools.cache
def _pool(n: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n, thread_name_prefix="exprkit")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork


# ── the compiled loops ───────────────────────────────────────────────────────────────


class _Machine(NamedTuple):
    """Programs and data; plain numbers are addresses, counts and bytes."""

    words: np.ndarray
    table: np.ndarray  # address of the kernel of operator * FORMS + form
    offsets: np.ndarray
    n_prologue: np.ndarray
    constants: np.ndarray
    first_const: np.ndarray
    n_params: np.ndarray
    tiles: int
    n_points: int
    lanes: int
    itemsize: int
    tile_step: int
    step: int  # points from tile to tile


class _Job(NamedTuple):
    """One call's parameters and how its work is shared out."""

    params: np.ndarray  # (n_rows, max_params)
    rows: np.ndarray  # chunk k is rows[k:k+2] ...
    tiles: np.ndarray  # ... over a range of tiles
    counter: np.ndarray  # the next piece of work that nobody has taken


class _Result(NamedTuple):
    """Where results go: a matrix (``out``), or sums of a loss against ``y`` (out = 0)."""

    out: int
    past: int  # what is added to a kernel's form to write past the caches, or 0
    copy: int  # functions
    fence: int
    loss: int
    y: int
    w: int
    sums: np.ndarray  # (ranges of tiles, n_rows)


class _Scratch(NamedTuple):
    """What one thread works in."""

    slots: np.ndarray
    uniforms: np.ndarray  # (BLOCK, n_uniforms)
    sums: np.ndarray  # of the span in work, for each row of the block
    base: np.ndarray  # where the byte offsets of words start, by kind

    @classmethod
    def make(cls, program: Program, dtype: np.dtype) -> _Scratch:
        slots = _aligned((program.n_slots + 2, TILE), dtype)  # two more: for a result, and to read past the end
        slots[:] = 1
        uniforms = np.full((BLOCK, max(program.n_uniforms, 1)), np.nan, dtype)
        base = np.zeros(4, np.int64)
        base[SLOT] = slots.ctypes.data
        return cls(slots, uniforms, np.zeros(BLOCK), base)


_part = compiled(forceinline=True)
_U1, _U2, _U3 = np.uint64(1), np.uint64(2), np.uint64(3)


@compiled
def _drive(machine, job, result, scratch, most):
    """Take up to ``most`` pieces of work; False: none is left."""
    machine, job, result, scratch = borrowed(machine), borrowed(job), borrowed(result), borrowed(scratch)
    n_shares, n_ranges = len(job.rows) - 1, len(job.tiles) - 1
    more = True
    while more and most > 0:
        k = take(job.counter.ctypes.data)
        more = k < n_shares * n_ranges
        if not more:
            break
        most -= 1
        share, of_tiles = k % n_shares, k // n_shares
        last = job.rows[share + 1]
        for row in range(job.rows[share], last, BLOCK):
            _block(machine, job, result, scratch, row, min(row + BLOCK, last), last, of_tiles)
    if result.past:
        call(result.fence, ())
    return more


@_part
def _block(machine, job, result, scratch, first, end, last, of_tiles):
    """Rows first:end of a chunk that ends at row ``last``, over one range of tiles."""
    n_exprs = len(machine.n_params)
    first_expr = first % n_exprs
    expr = first_expr
    for row in range(first, end):
        _begin(machine, job, scratch, row, expr, row - first)
        expr = 0 if expr + 1 == n_exprs else expr + 1
    scratch.sums[:] = 0.0
    n_tiles = job.tiles[-1]
    for tile in range(job.tiles[of_tiles], job.tiles[of_tiles + 1]):
        left = machine.n_points - tile * machine.step
        n_points = left if tile + 1 == n_tiles else machine.step
        n_vectors = n_computed = (n_points + machine.lanes - 1) // machine.lanes
        if result.past:  # some of the next tile's first points are written with this one's
            n_computed = (min(left, scratch.slots.shape[1]) + machine.lanes - 1) // machine.lanes
        scratch.base[COLUMN] = machine.tiles + tile * machine.tile_step
        expr = first_expr
        for row in range(first, end):
            k = _all_but_last(machine, scratch, expr, row - first, n_computed)
            place = result.out + (row * machine.n_points + tile * machine.step) * machine.itemsize
            if result.out == 0:
                scratch.sums[row - first] += _loss(machine, result, scratch, k, tile, n_points, n_vectors)
            elif result.past:
                _write_past(machine, result, scratch, k, place, tile, tile + 1 == n_tiles, left)
            else:
                # The last vector may reach past the row's end where rows are written later: not beyond
                # the chunk, nor where other tiles of the next rows are there already.
                room = (last - row - 1) * n_points if n_tiles == 1 else 0
                _write(machine, result, scratch, k, place, n_points, n_vectors, room)
            expr = 0 if expr + 1 == n_exprs else expr + 1
        if result.out == 0 and ((tile + 1) % SPAN == 0 or tile + 1 == job.tiles[of_tiles + 1]):
            for row in range(first, end):
                result.sums[of_tiles, row] += scratch.sums[row - first]
            scratch.sums[:] = 0.0


@_part
def _begin(machine, job, scratch, row, expr, line):
    """Fill a row's uniforms: parameters, constants, results of the prologue."""
    n_params, first = machine.n_params[expr], machine.first_const[expr]
    for k in range(n_params):
        scratch.uniforms[line, k] = job.params[row, k]
    for k in range(machine.first_const[expr + 1] - first):
        scratch.uniforms[line, n_params + k] = machine.constants[first + k]
    start = machine.offsets[expr]
    if start == machine.offsets[expr + 1]:
        scratch.uniforms[line, 0] = np.nan
    scratch.base[UNIFORM] = _line_address(machine, scratch, line)
    for k in range(start, start + machine.n_prologue[expr]):
        _execute(machine, scratch, k, 1)


@_part
def _all_but_last(machine, scratch, expr, line, n_vectors):
    """Run the program of an expression on one tile up to its last instruction; says which that is."""
    scratch.base[UNIFORM] = _line_address(machine, scratch, line)
    start, stop = machine.offsets[expr], machine.offsets[expr + 1]
    if start == stop:
        return len(machine.words) // 4 - 1
    for k in range(start + machine.n_prologue[expr], stop - 1):
        _execute(machine, scratch, k, n_vectors)
    return stop - 1


@_part
def _last(machine, scratch, k, first, y, n_vectors, past=0):
    """Run the last instruction on the tile's points from ``first`` on; its result goes to address ``y``."""
    base, at = scratch.base, first * machine.itemsize
    base[OUT] = y
    base[SLOT], base[COLUMN] = base[SLOT] + at, base[COLUMN] + at
    _execute(machine, scratch, k, n_vectors, past)
    base[SLOT], base[COLUMN] = base[SLOT] - at, base[COLUMN] - at


@_part
def _spare_slot(machine, scratch):
    return scratch.base[SLOT] + (scratch.slots.shape[0] - 2) * scratch.slots.shape[1] * machine.itemsize


@_part
def _loss(machine, result, scratch, k, tile, n_points, n_vectors):
    y = _spare_slot(machine, scratch)
    _last(machine, scratch, k, 0, y, n_vectors)
    at = tile * machine.step * machine.itemsize
    return call_number(result.loss, (y, result.y + at, result.w + at if result.w != 0 else 0, n_points))


@_part
def _write(machine, result, scratch, k, place, n_points, n_vectors, room):
    """Write a tile's results to ``place``, and no more than ``room`` points more."""
    if n_vectors * machine.lanes - n_points <= room:
        _last(machine, scratch, k, 0, place, n_vectors)
    else:
        _write_part(machine, result, scratch, k, 0, place, n_points)


@_part
def _write_part(machine, result, scratch, k, first, place, n_points):
    """Write exactly the points first:first + n_points of the tile to ``place``."""
    y = _spare_slot(machine, scratch)
    _last(machine, scratch, k, first, y, (n_points + machine.lanes - 1) // machine.lanes)
    call(result.copy, (place, y, n_points))


@_part
def _write_past(machine, result, scratch, k, place, tile, last_tile, left):
    """Write a tile's results past the caches, in whole cache lines.

    A row starts anywhere in a line, so what the tile's share of it holds begins at point
    ``head`` of the tile and ends as far into the next one.  ``left`` points of the row are
    left from the tile's first one on.
    """
    head = (-place % LINE) // machine.itemsize
    end = left if last_tile else head + machine.step
    if tile == 0 and head > 0:
        _write_part(machine, result, scratch, k, 0, place, min(head, left))
    n_vectors = (end - head) // machine.lanes
    if n_vectors > 0:
        _last(machine, scratch, k, head, place + head * machine.itemsize, n_vectors, result.past)
    rest = head + max(n_vectors, 0) * machine.lanes
    if rest < end:
        _write_part(machine, result, scratch, k, rest, place + rest * machine.itemsize, end - rest)


@_part
def _line_address(machine, scratch, line):
    return scratch.uniforms.ctypes.data + line * scratch.uniforms.shape[1] * machine.itemsize


@_part
def _execute(machine, scratch, k, n_vectors, past=0):
    words, base, at = machine.words, scratch.base, np.uint64(4 * k)  # unsigned: no look for indices from the end
    kernel, a, b, y = np.uint64(words[at] + past), words[at + _U1], words[at + _U2], words[at + _U3]
    a_at, b_at, y_at = base[a & 3] + (a & ~3), base[b & 3] + (b & ~3), base[y & 3] + (y & ~3)
    call(machine.table[kernel], (y_at, a_at, b_at, n_vectors))
