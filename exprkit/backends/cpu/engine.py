"""The CPU backend: many expressions, a tile of points at a time, on all cores.

In: a population and data.  Out: values, losses, derivatives, fits.  ``lower`` makes the programs,
``kernels`` the machine code of the operators.

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

Rows are shared out in chunks that threads take one after the other (``threads``); what a row gets
does not depend on its chunk, so neither do the bits of the result.  Sums of a loss are float64,
added up in the same order for any number of threads.
"""

from __future__ import annotations

import collections
import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import carray

from exprkit.backends import contract
from exprkit.backends.cpu import kernels
from exprkit.backends.cpu.threads import DONE, NUMBERS, PIECES, WORKING, Board, wait
from exprkit.backends.cpu.tiles import (
    FORMS,
    LINE,
    TILE,
    ZERO,
    aligned,
    begin,
    execute,
    line_address,
    machine_of,
    never_negative,
    shares,
    tiles_of,
)  # fmt: skip
from exprkit.expressions.population import Population
from exprkit.programs.lower import lower
from exprkit.programs.program import COLUMN, OUT, SLOT, UNIFORM, Program
from exprkit.runtime import machine
from exprkit.runtime.intrinsics import atomic_add, atomic_load, call, call_number, pointer, take
from exprkit.runtime.jit import compiled

if TYPE_CHECKING:
    from exprkit.backends.cpu.derivatives import Gradients
    from exprkit.backends.objective import Fitted, Options

BLOCK = 64  # rows that go through the data together
SPAN = 64  # tiles whose losses are summed before they join the row's sum; threads share out whole spans
PAST_BYTES = 24 << 20  # results larger than this, in rows of several tiles, are written past the caches
CHUNKS = 8  # a thread's share of the rows is cut into so many chunks, against unequal work
SMALL = 1 << 18  # work (instructions x points) that is worth another thread
PIECE = 1 << 28  # work between two looks for Ctrl-C: about a tenth of a second
_NO_SUMS = np.empty((0, 0))


def unavailable() -> str | None:
    """None: compiled for whatever processor this is."""
    return None


def describe() -> str:
    """What this backend runs on."""
    return f"{machine.cpu_model()}, {machine.cores()} threads"


class Engine(contract.Differentiable):
    """A population made ready for one data set."""

    def __init__(
        self, pop: Population, X: np.ndarray, *, precision: str, dtype: np.dtype, threads: int | None = None
    ) -> None:
        self.pop, self.X, self.n_points = pop, X, len(X)
        self.dtype = np.dtype(dtype)
        self.threads = threads or machine.cores()
        self.program = lower(pop, precision=precision, positive=never_negative(X), dtype=self.dtype)
        self._kernels = kernels.kernels(self.dtype.name, precision)
        self._tiles = tiles_of(X, self.program, self._kernels)
        self._machine = machine_of(self.program, self._tiles, self.n_points, self._kernels)
        self._can_write_past = False  # the kernels for it are made when first needed
        self._gradients: Gradients | None = None
        self._plans: dict[int, _SharedOut] = {}  # by the number of parameter sets
        self._scratch: collections.deque[_ThreadScratch] = collections.deque()
        self._boards: collections.deque[Board] = collections.deque()

    def evaluate(self, params: np.ndarray, out: np.ndarray) -> None:
        """Write every element of ``out``, (n_sets, n_exprs, n_points)."""
        past = out.nbytes > PAST_BYTES and len(self._tiles) > 1 and out.ctypes.data % self.dtype.itemsize == 0
        if past and not self._can_write_past:
            self._kernels.table(_last_requests(self._machine.words, self.program))
            self._can_write_past = True
        functions = self._kernels.result("copy_points"), self._kernels.result("fence")
        self._run(params, _Result(out.ctypes.data, kernels.PAST * past, *functions, 0, 0, 0, _NO_SUMS), out)

    def loss_sums(self, params: np.ndarray, y: np.ndarray, weights: np.ndarray | None, kind: str) -> np.ndarray:
        """Sum of weighted squared or absolute errors, float64 (n_sets, n_exprs)."""
        plan = self._plan(params.shape[0])
        sums = np.zeros((len(plan.tiles) - 1, params.shape[0] * params.shape[1]))
        w = 0 if weights is None else weights.ctypes.data
        loss = self._kernels.result(f"loss_{kind}")
        self._run(params, _Result(0, 0, 0, 0, loss, y.ctypes.data, w, sums), y, weights)
        total = sums[0]
        for more in sums[1:]:
            total = total + more
        total = total.reshape(params.shape[:2])
        total[:, ~self.pop.valid] = np.nan
        return total

    def jacobian(self, params: np.ndarray, out: np.ndarray) -> None:
        """Write the derivatives by the parameters into ``out``, (n_sets, n_exprs, n_points, max_params)."""
        self.gradients.jacobian(params, out)

    def normal_equations(
        self, params: np.ndarray, y: np.ndarray, weights: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """J'WJ, J'Wr and the sum of w r^2 with r = f - y, float64."""
        return self.gradients.normal_equations(params, y, weights)

    def loss_and_grad(
        self, params: np.ndarray, y: np.ndarray, weights: np.ndarray | None, kind: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """The sums of ``loss_sums`` and their gradients, (n_sets, n_exprs, max_params)."""
        return self.gradients.loss_and_grad(params, y, weights, kind)

    def fit(self, starts: np.ndarray, y: np.ndarray, weights: np.ndarray | None, options: Options) -> Fitted:
        """Levenberg-Marquardt for every expression, the best of its starts (``levenberg_marquardt``)."""
        from exprkit.backends.cpu.levenberg_marquardt import fit

        return fit(self.gradients, starts, y, weights, options)

    @property
    def gradients(self) -> Gradients:
        """What makes derivatives; prepared when first asked for."""
        if self._gradients is None:  # no cached_property: in Python 3.11 it has a lock, and forks would meet it held
            from exprkit.backends.cpu.derivatives import Gradients

            self._gradients = Gradients(
                self.pop, self.X, precision=self.program.precision, dtype=self.dtype, threads=self.threads
            )
        return self._gradients

    def _run(self, params: np.ndarray, result: _Result, *owners: np.ndarray | None) -> None:
        """Do the work of one call: this thread, and as many more as it is worth.

        ``owners`` hold the memory that ``result`` has addresses of, for as long as a thread may use it.
        """
        n_rows = params.shape[0] * params.shape[1]
        if n_rows == 0 or self.n_points == 0:
            return
        plan = self._plan(params.shape[0])
        params = np.ascontiguousarray(params)
        job = (params.ctypes.data, params.shape[2], n_rows, *plan.numbers)
        numbers = (*job, *result[:-1], result.sums.ctypes.data if result.out == 0 else 0)
        board, scratch = self._board(), self._own_scratch()

        def work() -> bool:
            return _drive(self._machine, board.address, scratch, plan.at_once)

        board.run(numbers, plan.pieces, plan.threads, work, (params, result, plan, owners))
        self._scratch.append(scratch)
        self._boards.append(board)

    def _board(self) -> Board:
        """Concurrent calls have a board each; a board's threads do not survive a fork."""
        while self._boards:
            with contextlib.suppress(IndexError):
                board = self._boards.pop()
                if board.process == os.getpid():
                    return board
        return Board(self._serve)

    def _serve(self, board: int, looks: int) -> None:
        scratch = self._own_scratch()
        _serve(self._machine, board, scratch, looks)
        self._scratch.append(scratch)

    def _own_scratch(self) -> _ThreadScratch:
        """Memory for one thread."""
        try:
            return self._scratch.pop()
        except IndexError:
            return _ThreadScratch.make(self.program, self.dtype)

    def _plan(self, n_sets: int) -> _SharedOut:
        """How a call with so many parameter sets is shared out."""
        if n_sets not in self._plans:
            n_rows, n_tiles = n_sets * len(self.pop), len(self._tiles)
            work = n_sets * (len(self.program.code) + len(self.pop)) * self.n_points
            threads = min(self.threads, 1 + work // SMALL)
            few = n_rows < 2 * CHUNKS * self.threads
            tiles = np.append(np.arange(0, max(n_tiles, 1), SPAN if few else max(n_tiles, 1)), n_tiles)
            rows = shares(self.program.offsets, n_sets, max(1 if threads == 1 else CHUNKS * threads, work // PIECE))
            at_once = max(1, (len(rows) - 1) * (len(tiles) - 1) * PIECE // max(work, 1))
            self._plans[n_sets] = _SharedOut.make(threads, at_once, rows.astype(np.int64), tiles.astype(np.int64))
        return self._plans[n_sets]


class _SharedOut(NamedTuple):
    """How a call is shared out; a piece is a chunk of rows on a range of tiles."""

    threads: int
    at_once: int  # pieces that make a PIECE of work
    rows: np.ndarray  # first row of each chunk, and the end
    tiles: np.ndarray  # first tile of each range of tiles, and the end
    pieces: int
    numbers: tuple[int, ...]  # of rows and tiles, for the board

    @classmethod
    def make(cls, threads: int, at_once: int, rows: np.ndarray, tiles: np.ndarray) -> _SharedOut:
        numbers = (rows.ctypes.data, len(rows), tiles.ctypes.data, len(tiles))
        return cls(threads, at_once, rows, tiles, (len(rows) - 1) * (len(tiles) - 1), numbers)


def _last_requests(words: np.ndarray, program: Program) -> list[tuple[int, int]]:
    """The kernels that write results past the caches."""
    last = np.append(program.offsets[1:] - 1, len(program.code))
    used = np.flatnonzero(np.bincount(words.reshape(-1, 4)[last, 0]))
    return [divmod(k + kernels.PAST, FORMS) for k in used.tolist()]


# ── the compiled loops ───────────────────────────────────────────────────────────────


class _EvaluationJob(NamedTuple):
    """A call's parameters, and how its work is shared out (see ``_SharedOut``)."""

    params: np.ndarray  # (n_rows, max_params)
    rows: np.ndarray
    tiles: np.ndarray


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


class _ThreadScratch(NamedTuple):
    """What one thread works in."""

    slots: np.ndarray
    uniforms: np.ndarray  # (BLOCK, n_uniforms)
    sums: np.ndarray  # of the span in work, for each row of the block
    base: np.ndarray  # where the byte offsets of words start, by kind

    @classmethod
    def make(cls, program: Program, dtype: np.dtype) -> _ThreadScratch:
        slots = aligned((program.n_slots + 2, TILE), dtype)  # two more: for a result, and to read past the end
        slots[:] = 1
        uniforms = np.full((BLOCK, max(program.n_uniforms, 1)), np.nan, dtype)
        base = np.zeros(4, np.int64)
        base[SLOT] = slots.ctypes.data
        return cls(slots, uniforms, np.zeros(BLOCK), base)


_part = compiled(forceinline=True)


@compiled
def _serve(machine, board, scratch, looks):
    """Take pieces of every call on the board, until there has been none for a while."""
    while wait(board, looks):
        atomic_add(board + 8 * WORKING, 1)
        _drive(machine, board, scratch, DONE)
        atomic_add(board + 8 * WORKING, -1)


@compiled
def _drive(machine, board, scratch, most):
    """Take up to ``most`` pieces of the call on the board; False: none is left."""
    k = take(board)
    if k >= atomic_load(board + 8 * PIECES):
        return False
    told = carray(pointer(board + 8 * NUMBERS), 15, np.int64)  # as Engine._run wrote them
    rows, tiles = carray(pointer(told[3]), told[4], np.int64), carray(pointer(told[5]), told[6], np.int64)
    job = _EvaluationJob(carray(pointer(told[0]), (told[2], told[1]), scratch.uniforms.dtype), rows, tiles)
    sums = carray(pointer(told[14]), (len(tiles) - 1, told[2]), np.float64)
    result = _Result(told[7], told[8], told[9], told[10], told[11], told[12], told[13], sums)
    return _pieces(machine, job, result, scratch, board, k, most)


@_part
def _pieces(machine, job, result, scratch, board, k, most):
    """Piece ``k`` and then as many more."""
    n_shares, n_ranges = len(job.rows) - 1, len(job.tiles) - 1
    more = True
    while more:
        share, of_tiles = k % n_shares, k // n_shares
        last = job.rows[share + 1]
        for row in range(job.rows[share], last, BLOCK):
            _block(machine, job, result, scratch, row, min(row + BLOCK, last), last, of_tiles)
        most -= 1
        if most == 0:
            break
        k = take(board)
        more = k < n_shares * n_ranges
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
        begin(machine, job, scratch, row, expr, row - first)
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
def _all_but_last(machine, scratch, expr, line, n_vectors):
    """Run the program of an expression on one tile up to its last instruction; says which that is."""
    scratch.base[UNIFORM] = line_address(machine, scratch, line)
    start, stop = machine.offsets[expr], machine.offsets[expr + 1]
    if start == stop:
        return len(machine.words) // 4 - 1
    for k in range(start + machine.n_prologue[expr], stop - 1):
        execute(machine, scratch, k, n_vectors, ZERO)
    return stop - 1


@_part
def _last(machine, scratch, k, first, y, n_vectors, past):
    """Run the last instruction on the tile's points from ``first`` on; its result goes to address ``y``."""
    base, at = scratch.base, first * machine.itemsize
    base[OUT] = y
    base[SLOT], base[COLUMN] = base[SLOT] + at, base[COLUMN] + at
    execute(machine, scratch, k, n_vectors, past)
    base[SLOT], base[COLUMN] = base[SLOT] - at, base[COLUMN] - at


@_part
def _spare_slot(machine, scratch):
    return scratch.base[SLOT] + (scratch.slots.shape[0] - 2) * scratch.slots.shape[1] * machine.itemsize


@_part
def _loss(machine, result, scratch, k, tile, n_points, n_vectors):
    y = _spare_slot(machine, scratch)
    _last(machine, scratch, k, ZERO, y, n_vectors, ZERO)
    at = tile * machine.step * machine.itemsize
    return call_number(result.loss, (y, result.y + at, result.w + at if result.w != 0 else 0, n_points))


@_part
def _write(machine, result, scratch, k, place, n_points, n_vectors, room):
    """Write a tile's results to ``place``, and no more than ``room`` points more."""
    if n_vectors * machine.lanes - n_points <= room:
        _last(machine, scratch, k, ZERO, place, n_vectors, ZERO)
    else:
        _write_part(machine, result, scratch, k, ZERO, place, n_points)


@_part
def _write_part(machine, result, scratch, k, first, place, n_points):
    """Write exactly the points first:first + n_points of the tile to ``place``."""
    y = _spare_slot(machine, scratch)
    _last(machine, scratch, k, first, y, (n_points + machine.lanes - 1) // machine.lanes, ZERO)
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
        _write_part(machine, result, scratch, k, ZERO, place, min(head, left))
    n_vectors = (end - head) // machine.lanes
    if n_vectors > 0:
        _last(machine, scratch, k, head, place + head * machine.itemsize, n_vectors, result.past)
    rest = head + max(n_vectors, 0) * machine.lanes
    if rest < end:
        _write_part(machine, result, scratch, k, rest, place + rest * machine.itemsize, end - rest)


BACKEND = contract.Backend(unavailable, describe, Engine, lowers=True)
