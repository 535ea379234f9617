"""Gradients on the CPU: programs with several results, on the engine's tiles.

In: what an engine has.  Out: Jacobians, normal equations, gradients; made when they are first asked for.

    >>> import exprkit as ek
    >>> ek.Evaluator(ek.parse(["p1 ^ 2 * x1"]), [[3.0]], backend="cpu").jacobian([[2.0]])
    array([[[12.]]], dtype=float32)

What is computed, plainly::

    for row in rows:                              (one expression with one parameter set)
        put its parameters and constants into its uniforms, run its prologue
        for tile of about 500 points:
            run the instructions of its value
            add the tile's losses to the row's; write the residuals
            run the instructions of its derivatives
            add the products of derivatives and residuals to the row's sums

What a tile needs stays in the fastest cache; sums are float64.  Rows are independent, and the
sums of a row over a range of tiles are added up in the same order for any number of threads.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from exprkit.backends import objective
from exprkit.backends.cpu import kernels, reductions
from exprkit.backends.cpu.threads import together
from exprkit.backends.cpu.tiles import (
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
from exprkit.programs.lower import lower_gradients
from exprkit.programs.program import COLUMN, SLOT, UNIFORM, GradientProgram
from exprkit.runtime.intrinsics import call, call_number, take
from exprkit.runtime.jit import compiled

SPAN = 64  # tiles that are summed for themselves, where threads share the tiles of a few rows
CHUNKS = 8  # a thread's share of the rows is cut into so many chunks, against unequal work
SMALL = 1 << 18  # work (instructions x points) that is not worth a second thread
PIECE = 1 << 27  # work between two looks for Ctrl-C
SMALLEST = 1e-300  # floor of abs r in the gradient of its sum: none


class Gradients:
    """The values and derivatives of a population, made ready for one data set."""

    def __init__(
        self, pop: Population, X: np.ndarray, *, precision: str, dtype: np.dtype, threads: int
    ) -> None:
        self.pop, self.n_points, self.dtype, self.threads = pop, len(X), np.dtype(dtype), threads
        self.program = lower_gradients(pop, precision=precision, positive=never_negative(X), dtype=self.dtype)
        self.kernels = kernels.kernels(self.dtype.name, precision)
        self._tiles = tiles_of(X, self.program, self.kernels)
        self.machine = machine_of(self.program, self._tiles, self.n_points, self.kernels)
        self.functions = reductions.functions(self.kernels)
        step = np.array([TILE, TILE]) * self.dtype.itemsize  # of a slot and of a column
        operands = self.program.results
        self._results = ((operands >> 2).astype(np.int64) * step[operands & 3]) | (operands & 3)
        self._equations = np.array([0] + [
            self.functions[f"equations_{m}"] for m in range(1, reductions.COLUMNS + 1)
        ])  # fmt: skip
        self._scratch: collections.deque[Scratch] = collections.deque()

    def jacobian(self, params: np.ndarray, out: np.ndarray) -> None:
        """Write the derivatives into ``out``, (n_sets, n_exprs, n_points, max_params)."""
        rows = out.reshape(out.shape[0] * out.shape[1], *out.shape[2:])
        rows[...] = 0
        goal = self.goal(None, None, objective.SQUARES, 1.0)
        self.shared(params, lambda job, scratch, most: _drive_jacobian(self.machine, goal, job, scratch, rows, most))
        out[:, ~self.pop.valid] = np.nan

    def normal_equations(
        self, params: np.ndarray, y: np.ndarray, weights: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """J'WJ, J'Wr and the sum of w r^2."""
        n_sets, n_exprs, width = params.shape
        sums = self._sums(params, self.goal(y, weights, objective.SQUARES, 1.0), True)
        sums = sums.reshape(n_sets, n_exprs, sums.shape[1])
        jtj = np.zeros((n_sets, n_exprs, width, width))
        jtj[(..., *np.triu_indices(width))] = sums[..., 1 + width :]
        jtj[(..., *np.triu_indices(width)[::-1])] = sums[..., 1 + width :]
        return jtj, sums[..., 1 : 1 + width].copy(), sums[..., 0].copy()

    def loss_and_grad(
        self, params: np.ndarray, y: np.ndarray, weights: np.ndarray | None, kind: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sums of w r^2 or w abs r, and their gradients."""
        number = objective.SQUARES if kind == "square" else objective.ABSOLUTE
        sums = self._sums(params, self.goal(y, weights, number, SMALLEST), False)
        sums = sums.reshape(*params.shape[:2], sums.shape[1])
        return sums[..., 0].copy(), 2 * sums[..., 1:]

    def _sums(self, params: np.ndarray, goal: Goal, pairs: bool) -> np.ndarray:
        """For each row its loss, J'v and, with ``pairs``, the upper half of J'QJ, spread to the widest row's."""
        n_rows, width = params.shape[0] * params.shape[1], params.shape[2]
        n_tiles = len(self._tiles)
        few = n_rows < CHUNKS * self.threads
        tiles = np.append(np.arange(0, max(n_tiles, 1), SPAN if few else max(n_tiles, 1)), n_tiles).astype(np.int64)
        sums = np.zeros((len(tiles) - 1, n_rows, 1 + width + (width * (width + 1) // 2 if pairs else 0)))
        self.shared(
            params, lambda job, scratch, most: _drive_sums(self.machine, goal, job, scratch, sums, pairs, most), tiles
        )
        total = sums[0]
        for more in sums[1:]:
            total = total + more
        total.reshape(*params.shape[:2], total.shape[1])[:, ~self.pop.valid] = np.nan
        return total

    def goal(self, y: np.ndarray | None, weights: np.ndarray | None, kind: int, delta: float) -> Goal:
        """What the values of a row are worth; the caller keeps ``y`` and ``weights``."""
        functions = self.functions
        return Goal(
            self._results, self.program.first_result, self.program.n_value, functions[f"loss_{kind}"],
            self._equations, functions["product"], functions["slope"], self.kernels.result("copy_points"),
            0 if y is None else y.ctypes.data, 0 if weights is None else weights.ctypes.data,
            weights is not None or kind != objective.SQUARES, np.array([delta]), len(self._tiles),
        )  # fmt: skip

    def shared(
        self, params: np.ndarray, drive: Callable[[GradientJob, Scratch, int], bool], tiles: np.ndarray | None = None
    ) -> None:
        """Share the rows of ``params``, (n_sets, n_exprs, max_params), and the ranges of tiles among the threads."""
        n_sets, n_exprs, width = params.shape
        if n_sets * n_exprs == 0 or self.n_points == 0:
            return
        work = n_sets * (len(self.program.code) + 4 * n_exprs) * self.n_points
        threads = self.threads if work > SMALL else 1
        chunks = max(1 if threads == 1 else CHUNKS * threads, work // PIECE)
        rows = shares(self.program.offsets, n_sets, chunks).astype(np.int64)
        tiles = np.array([0, len(self._tiles)]) if tiles is None else tiles
        pieces = (len(rows) - 1) * (len(tiles) - 1)
        job = GradientJob(params.reshape(n_sets * n_exprs, width), rows, tiles, np.zeros(1, np.int64))

        def one(most: int) -> bool:
            scratch = self.scratch()
            more = drive(job, scratch, most)
            self._scratch.append(scratch)
            return bool(more)

        together(threads, max(1, pieces * PIECE // max(work, 1)), job.counter, one)

    def each_row(self, n_rows: int, at_once: int, drive: Callable[[GradientJob, Scratch, int], bool]) -> None:
        """Let all threads take rows one by one; ``at_once`` between two looks for Ctrl-C."""
        nothing = np.zeros(2, np.int64)
        job = GradientJob(np.empty((0, 0), self.dtype), nothing, nothing, np.zeros(1, np.int64))

        def some(most: int) -> bool:
            scratch = self.scratch()
            more = drive(job, scratch, most)
            self._scratch.append(scratch)
            return bool(more)

        work = n_rows * (len(self.program.code) // max(len(self.pop), 1) + 4) * self.n_points
        together(min(self.threads, n_rows) if work > SMALL else 1, at_once, job.counter, some)

    def scratch(self) -> Scratch:
        """Memory for one thread."""
        try:
            return self._scratch.pop()
        except IndexError:
            return Scratch.make(self.program, self.dtype)


# ── the compiled loops ───────────────────────────────────────────────────────────────


class Goal(NamedTuple):
    """Results of the programs, and what is done with them; plain numbers are addresses."""

    results: np.ndarray  # byte offset | kind of operand
    first_result: np.ndarray
    n_value: np.ndarray
    loss: int
    equations: np.ndarray  # by the number of derivatives
    product: int
    slope: int
    copy: int
    y: int
    w: int
    weighted: bool  # working weights are written
    delta: np.ndarray
    n_tiles: int


class GradientJob(NamedTuple):
    params: np.ndarray  # (n_rows, max_params)
    rows: np.ndarray  # chunk k is rows[k:k+2] ...
    tiles: np.ndarray  # ... over a range of tiles
    counter: np.ndarray  # the next piece of work that nobody has taken


class Scratch(NamedTuple):
    """What one thread works in."""

    slots: np.ndarray
    uniforms: np.ndarray
    base: np.ndarray  # where the byte offsets of words start, by kind
    columns: np.ndarray  # addresses of the derivatives
    q: np.ndarray  # working weights of a tile
    v: np.ndarray  # and its weighted residuals
    sums: np.ndarray  # J'v, then the upper half of J'QJ
    params: np.ndarray  # (1, max_params) of a trial
    block: np.ndarray  # (max_params, TILE)

    @classmethod
    def make(cls, program: GradientProgram, dtype: np.dtype) -> Scratch:
        width = max(int(program.n_params.max(initial=0)), 1)
        slots = aligned((program.n_slots + 2, TILE), dtype)
        slots[:] = 1
        base = np.zeros(4, np.int64)
        base[SLOT] = slots.ctypes.data
        return cls(
            slots, np.full((1, max(program.n_uniforms, 1)), np.nan, dtype), base, np.zeros(width, np.int64),
            aligned((TILE,), dtype), aligned((TILE,), dtype), np.zeros(width + width * (width + 1) // 2),
            np.zeros((1, width), dtype), aligned((width, TILE), dtype),
        )  # fmt: skip


_part = compiled(forceinline=True)


@compiled
def _drive_jacobian(machine, goal, job, scratch, out, most):
    """Take up to ``most`` chunks of rows; False: none is left."""
    n_exprs, n_shares = len(machine.n_params), len(job.rows) - 1
    while most > 0:
        share = take(job.counter.ctypes.data)
        if share >= n_shares:
            return False
        most -= 1
        for row in range(job.rows[share], job.rows[share + 1]):
            expr = row % n_exprs
            begin(machine, job, scratch, row, expr, ZERO)
            for tile in range(job.tiles[-1]):
                n_points, n_vectors = enter(machine, scratch, tile)
                value(machine, goal, scratch, expr, n_vectors)
                derivatives(machine, goal, scratch, expr, n_vectors)
                n_params, first = machine.n_params[expr], tile * machine.step
                for j in range(n_params):
                    to = scratch.block.ctypes.data + j * scratch.block.shape[1] * machine.itemsize
                    call(goal.copy, (to, scratch.columns[j], n_points))
                for k in range(n_points):
                    for j in range(n_params):
                        out[row, first + k, j] = scratch.block[j, k]
    return True


@compiled
def _drive_sums(machine, goal, job, scratch, sums, pairs, most):
    """Take up to ``most`` pieces of work; False: none is left."""
    n_exprs, n_shares, width = len(machine.n_params), len(job.rows) - 1, job.params.shape[1]
    while most > 0:
        k = take(job.counter.ctypes.data)
        share, of_tiles = k % n_shares, k // n_shares
        if of_tiles >= len(job.tiles) - 1:
            return False
        most -= 1
        for row in range(job.rows[share], job.rows[share + 1]):
            expr = row % n_exprs
            n_params = machine.n_params[expr]
            begin(machine, job, scratch, row, expr, ZERO)
            loss = equations(
                machine, goal, scratch, expr, job.tiles[of_tiles], job.tiles[of_tiles + 1], np.inf, pairs
            )
            sums[of_tiles, row, 0] = loss
            for j in range(n_params):
                sums[of_tiles, row, 1 + j] = scratch.sums[j]
            if pairs:
                at = n_params
                for j in range(n_params):
                    for m in range(j, n_params):
                        sums[of_tiles, row, 1 + width + j * width - j * (j - 1) // 2 + m - j] = scratch.sums[at]
                        at += 1
    return True


@_part
def enter(machine, scratch, tile):
    """Turn to a tile: how many points of it count, and how many vectors they take."""
    left = machine.n_points - tile * machine.step
    scratch.base[COLUMN] = machine.tiles + tile * machine.tile_step
    scratch.base[UNIFORM] = line_address(machine, scratch, ZERO)
    n_points = left if left <= scratch.slots.shape[1] else machine.step
    return n_points, (n_points + machine.lanes - 1) // machine.lanes


@_part
def value(machine, goal, scratch, expr, n_vectors):
    """Run the instructions of a value; gives its address."""
    start = machine.offsets[expr]
    for k in range(start + machine.n_prologue[expr], start + goal.n_value[expr]):
        execute(machine, scratch, k, n_vectors, ZERO)
    result = goal.results[goal.first_result[expr]]
    return scratch.base[result & 3] + (result & ~3)


@_part
def derivatives(machine, goal, scratch, expr, n_vectors):
    """Run the rest; the derivatives' addresses go into ``scratch.columns``."""
    start, first = machine.offsets[expr], goal.first_result[expr] + 1
    for k in range(start + goal.n_value[expr], machine.offsets[expr + 1]):
        execute(machine, scratch, k, n_vectors, ZERO)
    for j in range(machine.n_params[expr]):
        result = goal.results[first + j]
        scratch.columns[j] = scratch.base[result & 3] + (result & ~3)


@_part
def equations(machine, goal, scratch, expr, first, last, limit, pairs):
    """The loss of an expression over a range of tiles; J'v and J'QJ go into ``scratch.sums``.

    Stops as soon as the loss is above ``limit`` or nan.  The parameters are in place (``begin``).
    """
    loss, n_params = 0.0, np.int64(machine.n_params[expr])
    scratch.sums[:] = 0.0
    sums, columns = scratch.sums.ctypes.data, scratch.columns.ctypes.data
    v, q = scratch.v.ctypes.data, scratch.q.ctypes.data if goal.weighted else 0
    for tile in range(first, last):
        n_points, n_vectors = enter(machine, scratch, tile)
        f = value(machine, goal, scratch, expr, n_vectors)
        at = tile * machine.step * machine.itemsize
        w = goal.w + at if goal.w != 0 else 0
        loss += call_number(goal.loss, (f, goal.y + at, w, scratch.q.ctypes.data, v, goal.delta.ctypes.data, n_points))
        if not loss <= limit:
            return loss
        if n_params == 0:
            continue
        derivatives(machine, goal, scratch, expr, n_vectors)
        if pairs and n_params < len(goal.equations):
            call(goal.equations[n_params], (sums, columns, q, v, n_points))
            continue
        k = n_params
        for j in range(n_params):
            scratch.sums[j] += call_number(goal.slope, (scratch.columns[j], v, q, n_points))
            if pairs:
                for m in range(j, n_params):
                    a, b = scratch.columns[j], scratch.columns[m]
                    scratch.sums[k] += call_number(goal.product, (a, b, q, n_points))
                    k += 1
    return loss
