"""Derivatives and fits on the GPU: ``fit.cu`` launched on an engine's programs and columns.

In: what an engine has on the device.  Out: Jacobians, normal equations, gradients, fits.  A block
takes one expression with one parameter set (of a fit: one start) from beginning to end, so a fit is
a launch or a few, whatever the number of its iterations.

    >>> from exprkit.backends.interpreter.derivatives import FitShape
    >>> FitShape(tangents=2, vectors=1, warps=1, lanes=32, itemsize=4).entry_bytes
    32

Expressions of 1, 2, 3 and 4 parameters have kernels of their own, with a tangent for each
parameter in registers; those of more go round in groups of 4, and J'J is made of rows of J in
the block's memory.  Within a launch the longest programs come first.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends import objective
from exprkit.backends.decisions import RUNNING
from exprkit.backends.gpu import layout, opcodes
from exprkit.backends.gpu.device import fetched
from exprkit.backends.gpu.launch import REAL, THREADS, Launch, Launcher
from exprkit.backends.gpu.layout import ACTION, OPCODE_SHIFT, SPILL, SPILL_SHIFT, VECTOR_BYTES
from exprkit.backends.interpreter import dual_opcodes
from exprkit.backends.objective import Fitted, Options
from exprkit.backends.precision import Precision
from exprkit.expressions.population import Population
from exprkit.programs.linearity import dependence

MOST_TANGENTS = 4
WORK_BYTES = 1 << 30  # of starts and results, and of arenas in global memory, at a time
SMALL_ARENA = 6 << 10  # bytes of shared memory per warp with which registers, not memory, limit the warps
FOLD_POINTS = 32  # of a thread, whose sums are made in the data's type: more lose digits, fewer are more float64
FLOAT32_TOL = 2.0**-22  # a loss of float32 values is no better than that
_LONG = 65_535  # instructions; which of two longer programs comes first does not matter

class FitShape(NamedTuple):
    """The variant of the kernel that is compiled and launched."""

    tangents: int
    vectors: int
    warps: int
    lanes: int
    itemsize: int

    @property
    def tile(self) -> int:
        """Points of a warp."""
        return self.vectors * self.lanes * VECTOR_BYTES // self.itemsize

    @property
    def entry_bytes(self) -> int:
        """Size of an Entry of tangents.cu."""
        return _aligned(8 + self.itemsize * (2 + self.tangents + self.tangents % 2))

    @property
    def result_bytes(self) -> int:
        """Size of a Result of equations.cu."""
        return -(-(6 * self.itemsize + 4) // 8) * 8


@dataclass(frozen=True, eq=False)
class FitBatch:
    """The expressions of one launch."""

    shape: FitShape
    many: bool  # J'J by way of rows
    order: np.ndarray  # int32, the longest first
    arena: dict[str, int]  # offsets in a block's memory, and its size as ``arena_bytes``
    max_instructions: int


def _aligned(size: int) -> int:
    return -(-size // VECTOR_BYTES) * VECTOR_BYTES


def arena_of(
    shape: FitShape, *, n_params: int, many: bool, instructions: int, results: int, slots: int
) -> dict[str, int]:
    """Where things are in a block's memory; equations.cu says what they are.

    Parameters
    ----------
    n_params, instructions, results, slots
        The most that an expression of the launch has: parameters, instructions, results of its
        prologue and values that are put aside at a time.
    many
        Whether J'J is made by way of rows.
    """
    n = n_params if many else shape.tangents
    triangle = n * (n + 1) // 2
    sums = 1 + n + triangle
    groups = -(-n // shape.tangents)
    offsets, end = {}, 0
    for name, size in (
        ("entries", groups * instructions * shape.entry_bytes),
        ("results", results * shape.result_bytes),
        ("sums", 0 if many else (shape.warps + 1) * sums * 8),
        ("state", ctypes.sizeof(layout.Progress) + 8 * (4 * n + 2 * sums + triangle)),
    ):
        offsets[name], end = end, end + _aligned(size)
    offsets["slots"] = end
    own = slots * (1 + shape.tangents) * shape.vectors * shape.lanes * VECTOR_BYTES
    row = shape.tile + VECTOR_BYTES // shape.itemsize
    for name, size in (
        ("actives", 4 * slots * shape.lanes),
        ("rows", (n + 1) * row * shape.itemsize if many else 0),
        ("products", 8 * sums if many else 0),
    ):
        offsets[name], own = own, own + _aligned(size)
    return {**offsets, "warp_bytes": own, "arena_bytes": end + shape.warps * own}


def shape_of(n_points: int, n_tangents: int, *, itemsize: int, lanes: int, fast: bool) -> FitShape:
    """The variant for so many points; nothing else decides, so that the bits depend on nothing else.

    Rounds of tiles cost their vectors and one more for decoding; few warps with many rounds leave latencies open,
    which weighs 2 % a round and warp.  A warp has four tiles or there are fewer warps.  Both are estimates.
    """
    most = {1: 3, 2: 3}.get(n_tangents, 2) if fast and itemsize == 4 and lanes > 1 else 1
    best = None
    for vectors in range(1, most + 1):
        for warps in (1, 2, 4, 8) if lanes > 1 else (1,):
            shape = FitShape(n_tangents, vectors, warps, lanes, itemsize)
            tiles = -(-n_points // shape.tile)
            if warps > max(1, tiles // 4):
                continue
            rounds = -(-tiles // warps)
            cost = rounds * warps * (vectors + 1.0) * (1 + 0.02 * rounds / warps)
            if best is None or cost < best[0]:
                best = cost, shape
    assert best is not None
    return best[1]


class Derivatives:
    """Jacobians, normal equations, gradients and fits of an engine's population and data.

    Parameters
    ----------
    pop : Population
    launcher : Launcher
        Of the engine: programs, columns and device.
    """

    def __init__(self, pop: Population, launcher: Launcher) -> None:
        self.pop, self.launcher, self.device = pop, launcher, launcher.device
        self.dtype, self.n_exprs, self.max_params = launcher.dtype, len(pop), int(pop.max_params)
        self.n_points = int(launcher.fields["n_points"])
        self._fast = launcher.settings.operators == "fast"
        self._text = dual_opcodes.source(launcher.settings.operators)
        self._batches: dict[bool, list[tuple[FitBatch, Any]]] = {}
        self._streams: list[Any] = []
        self._measure()
        asarray, (linear, differentiable) = self.device.xp.asarray, dependence(pop)
        self._verdicts = _verdicts(pop, differentiable)
        self._known = {"linear": asarray(linear), "verdicts": asarray(self._verdicts)}
        self._fields = {
            "n_params": asarray(np.ascontiguousarray(pop.n_params, np.int32)), "max_params": self.max_params,
        }  # fmt: skip

    def _measure(self) -> None:
        """How much of everything each expression needs, and whether any uses uncommon operators."""
        programs = self.launcher.programs.on_host()
        action = programs.instructions[:, ACTION]
        self._n_instructions = np.diff(np.append(programs.first_instruction, len(action)))
        self._n_steps = np.diff(programs.first_step)
        self._n_slots = np.zeros(self.n_exprs, np.int64)
        if programs.n_slots and self.n_exprs:
            used = np.where(action & SPILL, (action >> SPILL_SHIFT & 0xFF) + 1, 0)
            self._n_slots = np.maximum.reduceat(used, programs.first_instruction)
        codes, steps = _rare()
        self._rare = bool(codes[action >> OPCODE_SHIFT].any() or steps[programs.steps[:, 0]].any())

    # ── what the engine offers ───────────────────────────────────────────────────────

    def jacobian(self, params: Any, out: Any) -> None:
        """d f / d params into ``out`` (n_sets, n_exprs, n_points, max_params), on the host or the device."""
        xp = self.device.xp
        on_host = isinstance(out, np.ndarray) and xp is not np
        for one_set, place in zip(params, out, strict=True):
            J = xp.zeros(place.shape, self.dtype) if on_host else place
            J[...] = 0
            J[xp.asarray(~self.pop.valid)] = np.nan
            if self.n_points and self.max_params:
                starts = self._on_device(one_set[None])
                self._launch_all("JACOBIAN", starts, {}, False, jacobian=J)
            if on_host:
                place[...] = fetched(J)

    def normal_equations(self, params: Any, y: Any, weights: Any) -> tuple[Any, Any, Any]:
        """J'WJ, J'Wr and the sum of w r^2: float64 (n_sets, n_exprs, P, P), (n_sets, n_exprs, P), (n_sets, n_exprs)."""
        n_sets, xp = len(params), self.device.xp
        lead = n_sets, self.n_exprs
        jtj = xp.zeros((*lead, self.max_params, self.max_params), np.float64)
        jtr, sse = xp.zeros((*lead, self.max_params), np.float64), xp.zeros(lead, np.float64)
        self._mark_invalid(jtj, jtr, sse)
        if self.n_points:
            goal = self._goal(y, weights)
            self._launch_all("NORMAL", self._on_device(params), goal, True, jtj=jtj, jtr=jtr, loss=sse)
        return jtj, jtr, sse

    def loss_and_grad(self, params: Any, y: Any, weights: Any, kind: str) -> tuple[Any, Any]:
        """The sum of w (f - y)^2 or w |f - y| and its gradient: float64 (n_sets, n_exprs), (n_sets, n_exprs, P)."""
        lead, xp = (len(params), self.n_exprs), self.device.xp
        sums, gradient = xp.zeros(lead, np.float64), xp.zeros((*lead, self.max_params), np.float64)
        self._mark_invalid(gradient, sums)
        if self.n_points:
            goal = self._goal(y, weights)
            number = objective.SQUARES if kind == "square" else objective.ABSOLUTE
            self._launch_all("GRADIENT", self._on_device(params), goal, False, kind=number, jtr=gradient, loss=sums)
        return sums, gradient

    def fit(self, starts: Any, y: Any, weights: Any, options: Options) -> Fitted:
        """Fit all expressions from all starts (n_starts, n_exprs, max_params); each one's best."""
        if not self.n_points or (weights is not None and not bool((weights != 0).any())):
            return self._nothing_counts(starts)
        xp, n_starts = self.device.xp, len(starts)
        tol = max(options.tol, FLOAT32_TOL) if self.dtype.itemsize == 4 else options.tol
        terms = {
            **self._known, "tol": float(tol), "gtol": float(options.gtol), "delta": float(options.delta),
            "max_iter": int(options.max_iter), "lower": self._bounds(options.lower),
            "upper": self._bounds(options.upper), **self._goal(y, weights),
        }  # fmt: skip
        if not options.linear:
            terms["linear"] = None
        bytes_of_one = self.n_exprs * (16 * self.max_params + 32) + 1
        at_once = min(n_starts, max(1, WORK_BYTES // bytes_of_one))
        rows = at_once + (n_starts > at_once)  # the best so far stays in row 0
        results = {
            "params": xp.full((rows, self.n_exprs, self.max_params), np.nan),
            "loss": xp.full((rows, self.n_exprs), np.nan),
            "iterations": xp.zeros((rows, self.n_exprs), np.int32), "status": xp.zeros((rows, self.n_exprs), np.uint8),
            "evaluations": xp.zeros((rows, self.n_exprs), np.int32),
        }  # fmt: skip
        first_row = 0
        for first in range(0, n_starts, at_once):
            some = self._on_device(starts[first : first + at_once])
            places = {name: array[first_row : first_row + len(some)] for name, array in results.items()}
            self._launch_all("FIT", some, terms, True, kind=options.kind, **places)
            self._choose(first_row + len(some), results)
            first_row = 1
        return self._fitted(results)

    def _fitted(self, results: dict[str, Any]) -> Fitted:
        names = "params", "loss", "iterations", "status", "evaluations"
        params, loss, iterations, status, evaluations = (fetched(results[name][0]) for name in names)
        status[self._verdicts == objective.INVALID] = objective.INVALID
        return Fitted(params, loss, iterations, status, int(evaluations.sum()))

    def _nothing_counts(self, starts: Any) -> Fitted:
        params = np.array(fetched(starts[0]), np.float64)
        params[np.arange(self.max_params) >= self.pop.n_params[:, None]] = np.nan
        invalid = self._verdicts == objective.INVALID
        params[invalid] = np.nan
        loss = np.where(invalid, np.nan, 0.0)
        status = np.where(invalid, objective.INVALID, objective.NO_WEIGHT).astype(np.uint8)
        return Fitted(params, loss, np.zeros(self.n_exprs, np.int32), status, 0)

    # ── arrays ───────────────────────────────────────────────────────────────────────

    def _on_device(self, params: Any) -> Any:
        """Parameters as float64 on the device."""
        return self.device.xp.ascontiguousarray(self.device.xp.asarray(params, dtype=np.float64))

    def _bounds(self, values: Any) -> Any:
        return None if values is None else self._on_device(values)

    def _goal(self, y: Any, weights: Any) -> dict[str, Any]:
        """Target and weights on the device, padded with points that do not count."""
        padded = functools.partial(self.launcher.padded, length=self.launcher.pitch)
        return {"target": padded(y), "weights": None if weights is None else padded(weights)}

    def _mark_invalid(self, *arrays: Any) -> None:
        invalid = np.flatnonzero(~self.pop.valid)
        for array in arrays if len(invalid) else ():
            array[:, self.device.xp.asarray(invalid)] = np.nan

    # ── launches ─────────────────────────────────────────────────────────────────────

    def _launch_all(
        self, task: str, starts: Any, terms: dict[str, Any], rows: bool, kind: int = objective.SQUARES, **results: Any
    ) -> None:
        """Run ``task`` on every valid expression with every set of ``starts``; the rest are kernel arguments."""
        n_sets = len(starts)
        weighted, *bounds = (int(terms.get(name) is not None) for name in ("weights", "lower", "upper"))
        fields = {**terms, **results, "starts": starts, "n_sets": n_sets}
        launches = []
        for batch, order in self._batches_for(rows):
            shared, threads = batch.arena["arena_bytes"], batch.shape.warps * batch.shape.lanes
            n_items, arena, at_once = n_sets * len(batch.order), None, 1 << 30
            if shared > self.device.shared_per_block:
                at_once = max(1, min(n_items, WORK_BYTES // shared))
                arena, shared = self.device.xp.empty(at_once * shared, np.uint8), 0
            kernel = self._kernel(
                "fit", batch.shape, TASK=task, KIND=kind, WEIGHTED=weighted, MANY=int(batch.many),
                GLOBAL_ARENA=int(arena is not None), BOUNDED=max(bounds),
            )  # fmt: skip
            kernel.resident(threads, shared)
            launches.append([
                self._launch(
                    kernel, min(at_once, n_items - first), threads, shared, **fields, **batch.arena, order=order,
                    n_here=len(batch.order), max_instructions=batch.max_instructions, arena=arena, first_item=first,
                )
                for first in range(0, n_items, at_once)
            ])  # fmt: skip
        self._side_by_side(launches)

    def _choose(self, n_sets: int, results: dict[str, Any]) -> None:
        if n_sets > 1:
            kernel = self._kernel("choose", FitShape(1, 1, 1, self.device.lanes, self.dtype.itemsize))
            threads = THREADS if self.device.lanes > 1 else 1
            self._launch(kernel, -(-self.n_exprs // threads), threads, 0, n_sets=n_sets, **results)()

    def _kernel(self, name: str, shape: FitShape, **macros: Any) -> Any:
        """The kernel of fit.cu for these macros."""
        settings, prologues = self.launcher.settings, int(bool(len(self.launcher.programs.steps)))
        chosen = macros_of(shape, settings, PROLOGUES=prologues, RARE=int(self._rare), **macros)
        return self.device.kernel(name, settings, self._text, **chosen)

    def _side_by_side(self, launches: list[list[Launch]]) -> None:
        """Start them all, each row of launches on a stream of its own: what one leaves idle in the end others take."""
        if self.device.lanes == 1 or len(launches) == 1:
            for launch in (launch for row in launches for launch in row):
                launch()
            return
        here, ready = self.device.current_stream(), self.device.event()
        ready.record(here)
        while len(self._streams) < len(launches):
            self._streams.append(self.device.stream())
        for stream, row in zip(self._streams, launches, strict=False):
            done = self.device.event()
            with stream:
                stream.wait_event(ready)
                for launch in row:
                    launch()
                done.record(stream)
            here.wait_event(done)

    def _launch(self, kernel: Any, blocks: int, threads: int, shared: int, **fields: Any) -> Launch:
        fields = {**self._fields, **fields}
        return self.launcher.launch(kernel, (blocks, 1), threads, shared, kind=layout.FitArguments, **fields)

    # ── who is launched with whom ────────────────────────────────────────────────────

    def _batches_for(self, rows: bool) -> list[tuple[FitBatch, Any]]:
        """All launches; ``rows``: whether J'J of many parameters is made."""
        if rows not in self._batches:
            asarray = self.device.xp.asarray
            self._batches[rows] = [(batch, asarray(batch.order)) for batch in self._make_batches(rows)]
        return self._batches[rows]

    def _make_batches(self, rows: bool) -> Iterator[FitBatch]:
        n_params, valid = self.pop.n_params, self.pop.valid
        for n in range(1, MOST_TANGENTS + 2):
            here = n_params > MOST_TANGENTS if n > MOST_TANGENTS else n_params == n
            if n == 1:
                here = n_params <= 1
            many = rows and n > MOST_TANGENTS
            itemsize, lanes = self.dtype.itemsize, self.device.lanes
            shape = shape_of(self.n_points, min(n, MOST_TANGENTS), itemsize=itemsize, lanes=lanes, fast=self._fast)
            yield from self._by_size(np.flatnonzero(here & valid), shape, many)

    def _by_size(self, members: np.ndarray, shape: FitShape, many: bool) -> Iterator[FitBatch]:
        """Expressions that fit easily, those that fit into shared memory at all, and the rest: a launch each."""
        shortness = (_LONG - np.minimum(self._n_instructions[members], _LONG)).astype(np.uint16)  # quick to sort
        rest = members[np.argsort(shortness, kind="stable")].astype(np.int32)
        for limit in (SMALL_ARENA * shape.warps, self.device.shared_per_block, None):
            fits = np.full(len(rest), True)
            if limit is not None and len(rest) and self._arena(rest, shape, many, largest)["arena_bytes"] > limit:
                fits = self._arena(rest, shape, many, one_by_one)["arena_bytes"] <= limit
            if fits.any():
                some = rest[fits]
                longest = int(self._n_instructions[some].max())
                yield FitBatch(shape, many, some, self._arena(some, shape, many, largest), longest)
            rest = rest[~fits]

    def _arena(self, members: np.ndarray, shape: FitShape, many: bool, most: Any) -> dict[str, Any]:
        """``arena_of`` for what ``most`` makes of the members' needs."""
        return arena_of(
            shape, many=many, n_params=most(self.pop.n_params[members]),
            instructions=most(self._n_instructions[members]), results=most(2 * self._n_steps[members]),
            slots=most(self._n_slots[members]),
        )  # fmt: skip


@functools.cache
def _rare() -> tuple[np.ndarray, np.ndarray]:
    """By opcode, and by operator's code, bool: whether it is an uncommon one's."""
    rows = [row.code for row in opcodes.all_rows() if dual_opcodes.is_rare(row)]
    codes, steps = np.zeros(1 << 16, np.bool_), np.zeros(256, np.bool_)
    codes[opcodes.numbers()[rows].ravel()] = True
    codes[-1] = False  # where there is no such opcode
    steps[rows] = True
    return codes, steps


def _verdicts(pop: Population, differentiable: np.ndarray) -> np.ndarray:
    """RUNNING for what is to be fitted, else the status that is known before."""
    verdicts = np.full(len(pop), RUNNING, np.uint8)
    verdicts[~differentiable] = objective.NO_DERIVATIVE
    verdicts[pop.n_params == 0] = objective.NO_PARAMETERS
    verdicts[~pop.valid] = objective.INVALID
    return verdicts


def largest(needs: np.ndarray) -> int:
    """What is enough for all of them."""
    return int(needs.max())


def one_by_one(needs: np.ndarray) -> np.ndarray:
    """What is enough for each, in numbers that arithmetic does not overflow."""
    return needs.astype(np.int64)


def macros_of(shape: FitShape, settings: Precision, **chosen: Any) -> dict[str, Any]:
    """What the kernels' text expects to be defined: the shape's, the chosen and the usual values."""
    points = shape.vectors * VECTOR_BYTES // shape.itemsize
    return {
        "TASK": "NORMAL", "KIND": objective.SQUARES, "WEIGHTED": 0, "MANY": 0, "GLOBAL_ARENA": 0,
        "BOUNDED": 0,
        "REAL": REAL[shape.itemsize], "LANES": shape.lanes, "VECTORS": shape.vectors, "TANGENTS": shape.tangents,
        "BLOCK": shape.warps * shape.lanes, "ENTRY_BYTES": shape.entry_bytes, "RESULT_BYTES": shape.result_bytes,
        "FOLD": max(1, FOLD_POINTS // points), "MIN_BLOCKS": min_blocks(shape, settings.operators == "fast"), **chosen,
    }  # fmt: skip


def min_blocks(shape: FitShape, fast: bool) -> int:
    """Blocks that a multiprocessor has to hold: limits the registers of a thread."""
    if shape.lanes == 1:
        return 1
    threads = 512 if fast and shape.itemsize == 4 and shape.tangents < 3 else 384
    return max(1, threads // (shape.warps * shape.lanes))

