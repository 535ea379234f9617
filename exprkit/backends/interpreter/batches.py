"""Batches of fits: groups expressions into launches of ``fit.cu``, the longest first.

In: programs on the device.  Out: batches, whose expressions are found and put in order there (batches.cu).

    >>> from exprkit.backends.interpreter.batches import FitShape, arena_of
    >>> shape = FitShape(tangents=2, vectors=1, warps=1, lanes=32, itemsize=4)
    >>> shape.entry_bytes, arena_of(shape, n_params=2, many=False, instructions=4, results=0, slots=1)["arena_bytes"]
    (32, 2128)

Expressions of 1, 2, 3 and 4 parameters have kernels of their own, with a tangent for each parameter in registers;
those of more go round in groups of 4, and J'J is made of rows of J in the block's memory.  Those with uncommon
operators are apart: the others' kernels need fewer registers.  Of each of these groups, those that fit easily into a
block's memory, those that fit into it at all, and the rest are a launch each.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends import objective
from exprkit.backends.cases.fits import (
    GLOBAL,
    MOST_TANGENTS,
    SMALL_ARENA,
    FitCode,
    FitShape,
    FitVariants,
    fits_at_once,
    fits_of_code,
    min_blocks,
    needs_of,
    shape_of,
    why,
)
from exprkit.backends.cases.fits import subject as subject_of
from exprkit.backends.cases.tree import Discussion, KernelText
from exprkit.backends.device_memory import Recent
from exprkit.backends.device_programs.dependence import DependenceAnalysis, FitFacts
from exprkit.backends.device_programs.lowering import DeviceTokens
from exprkit.backends.device_programs.translate import arrays_text, cuda_text
from exprkit.backends.gpu import layout, opcodes
from exprkit.backends.gpu.launch import REAL, THREADS, Launcher, address, fill, put
from exprkit.backends.gpu.schedule import REGISTERS
from exprkit.backends.interpreter import dual_opcodes
from exprkit.backends.precision import Precision, precision
from exprkit.operators.defined import table_of_rows
from exprkit.runtime.calls import Sequence

WAVES = 4  # blocks of several fits that a multiprocessor makes one after the other: with fewer, a block makes one
MOST_COUNTED = 1 << 16  # expressions that one block puts in order
FOLD_POINTS = 32  # of a thread, whose sums are made in the data's type: more lose digits, fewer are more float64


class BatchMembers:
    """The expressions of a batch, the longest first: part of an array on the device."""

    __slots__ = ("_all", "_first", "_n", "address")

    def __init__(self, device: Any, order: Any, first: int, n: int) -> None:
        self._all, self._first, self._n = order, first, n
        self.address = device.pointer(order) + 4 * first

    def __len__(self) -> int:
        return self._n

    def array(self) -> Any:
        """int32 (n,)"""
        return self._all[self._first : self._first + self._n]


@dataclass(frozen=True, eq=False)
class FitBatch:
    """The expressions of one launch."""

    shape: FitShape
    many: bool  # J'J by way of rows
    rare: bool  # with uncommon operators
    order: BatchMembers
    arena: dict[str, int]  # offsets in a block's memory, and its size as ``arena_bytes``
    sizes: dict[str, int]  # the most of an expression, by the case discussion's symbols

    def fits(self, limit: int, shares: float, fast: bool) -> int:
        """The number of fits that a block with ``limit`` bytes of shared memory makes at a time.

        Of few numbers, for each is a kernel.  ``shares``: of all fits that are launched side by side, a
        multiprocessor's; where there are few, those of a block would wait for the longest of it.
        """
        own = self.arena["arena_bytes"]
        wanted = fits_at_once(self.shape, self.many, own <= SMALL_ARENA * self.shape.warps, fast, self.rare)
        if shares < WAVES * wanted or limit // own < 2:
            return 1
        return wanted if wanted * own <= limit else 1 << (limit // own).bit_length() - 1

    def why(self, n_points: int, limit: int, fast: bool) -> list[str]:
        """The path through the case discussion, for a block's memory of ``limit``; at last what is launched."""
        fixed = FitVariants(self.shape.itemsize, fast, self.shape.lanes)
        return why(fixed, arena_of, {"N": n_points, "Z_B": limit, "R_M": REGISTERS, "u": int(self.rare), **self.sizes})


class ArenaShape(NamedTuple):
    """Sizes of the parts of a block's memory, as ``arena_ends`` reads them on host and device."""

    tangents: int
    warps: int
    many: int
    entry_bytes: int
    result_bytes: int
    progress_bytes: int
    slot_bytes: int  # of a warp
    active_bytes: int
    row_bytes: int

    @classmethod
    def of(cls, shape: FitShape, many: bool) -> ArenaShape:
        slot = (1 + shape.tangents) * shape.vectors * shape.lanes * layout.VECTOR_BYTES
        row = (shape.tile + layout.VECTOR_BYTES // shape.itemsize) * shape.itemsize
        progress = ctypes.sizeof(layout.Progress)
        return cls(
            shape.tangents,
            shape.warps,
            int(many),
            shape.entry_bytes,
            shape.result_bytes,
            progress,
            slot,
            4 * shape.lanes,
            row,
        )


def aligned(size: int) -> int:
    """A size as a multiple of a vector's."""
    return (size + layout.VECTOR_BYTES - 1) // layout.VECTOR_BYTES * layout.VECTOR_BYTES


def arena_ends(shape, n_params, instructions, results, slots):
    """Where the parts of a block's memory end: entries, results, sums, state; a warp's slots, actives, rows, products.

    Without types, because it is translated as well.
    """
    n = n_params if shape.many else shape.tangents
    triangle = n * (n + 1) // 2
    sums = 1 + n + triangle
    groups = (n + shape.tangents - 1) // shape.tangents
    entries = aligned(groups * instructions * shape.entry_bytes)
    of_results = entries + aligned(results * shape.result_bytes)
    of_sums = of_results + (0 if shape.many else aligned((shape.warps + 1) * sums * 8))
    state = of_sums + aligned(shape.progress_bytes + 8 * (4 * n + 2 * sums + triangle))
    own = aligned(slots * shape.slot_bytes)
    actives = own + aligned(slots * shape.active_bytes)
    rows = actives + (aligned((n + 1) * shape.row_bytes) if shape.many else 0)
    products = rows + (aligned(8 * sums) if shape.many else 0)
    return entries, of_results, of_sums, state, own, actives, rows, products


def arena_of(
    shape: FitShape, *, n_params: int, many: bool, instructions: int, results: int, slots: int
) -> dict[str, int]:
    """Where things are in a block's memory; equations.cu says what they are.

    Parameters, instructions, results of a prologue and values put aside: the most of an expression of the launch;
    ``many``: J'J is made by way of rows.
    """
    ends = arena_ends(ArenaShape.of(shape, many), n_params, instructions, results, slots)
    offsets = dict(zip(("entries", "results", "sums", "state", "slots"), (0, *ends[:4]), strict=True))
    offsets |= dict(zip(("actives", "rows", "products"), ends[4:7], strict=True))
    return {**offsets, "warp_bytes": ends[7], "arena_bytes": ends[3] + shape.warps * ends[7]}


class Group(NamedTuple):
    """Expressions of as many parameters, with uncommon operators or without: how they are launched."""

    shape: FitShape
    many: bool
    rare: bool


@functools.lru_cache(maxsize=64)
def groups_of(n_points: int, itemsize: int, lanes: int, fast: bool, rows: bool, few: bool = False) -> list[Group]:
    """The groups, those with uncommon operators first: the longest fits begin first.

    ``rows``: whether J'J of many parameters is made.
    """
    sizes: dict[str, Any] = {"itemsize": itemsize, "lanes": lanes, "fast": fast, "few": few}
    return [
        Group(shape_of(n_points, min(n, MOST_TANGENTS), rare=rare, **sizes), rows and n > MOST_TANGENTS, rare)
        for rare in (True, False)
        for n in range(1, layout.PARAMETER_GROUPS + 1)
    ]


def group_of(n_params: int, rare: bool) -> int:
    return min(max(n_params, 1), layout.PARAMETER_GROUPS) - 1 + (0 if rare else layout.PARAMETER_GROUPS)


class Batcher:
    """Division of one population after another into launches of fits; asks the device once for each.

    ``rows``: J'J of many parameters is made; ``few``: most fits end at once.
    """

    def __init__(self, launcher: Launcher, rows: bool, few: bool = False) -> None:
        device, xp = launcher.device, launcher.device.xp
        fast = launcher.settings.operators == "fast"
        self._device, self._sizes = device, (THREADS, 1024) if device.lanes > 1 else (1, 1)
        self._groups = groups_of(launcher.n_points, launcher.dtype.itemsize, device.lanes, fast, rows, few)
        self._told = device.locked((layout.N_GROUPS, layout.N_SIZES, layout.NEEDS), np.int64)
        self._needs, (rare_opcodes, rare_steps) = xp.zeros(self._told.shape, np.int64), _rare(device)
        self._arguments, self._kernels = layout.MeasureArguments(), _kernels(device)
        self._keep = arenas = _arenas(device, tuple(self._groups))
        self._order: Any = None
        self._key: Any = None
        self._starts = Recent()
        fill(
            self._arguments,
            {
                "rare_opcodes": rare_opcodes,
                "rare_steps": rare_steps,
                "arenas": arenas,
                "needs": self._needs,
                "told": self._told,
                "small_arena": SMALL_ARENA,
                "shared_per_block": device.shared_per_block,
            },
            device,
        )

    def of(self, n_exprs: int, known: FitFacts, programs: dict[str, int], **given: int) -> Sequence:
        """The calls that start it for programs at these addresses; ``given``: their number of instructions."""
        xp, is_small = self._device.xp, n_exprs <= MOST_COUNTED
        self._key = xp.empty(n_exprs, np.uint32)
        self._order = xp.empty(n_exprs, np.int32) if is_small else None
        others = {name: programs[name] for name in ("instructions", "first_instruction", "first_step", "steps")}
        put(
            self._arguments,
            {
                "summary": 0,
                **others,
                "n_params": known.addresses["n_params"],
                "verdicts": known.addresses["verdicts"],
                "key": self._device.pointer(self._key),
                "order": address(self._order, self._device),
                "n_exprs": n_exprs,
                **given,
            },
        )
        threads, of_order = self._sizes
        blocks, (measure, put_in_order) = -(-max(n_exprs, 1) // threads), self._kernels

        def make() -> Sequence:
            start = measure.prepare((blocks, 1), threads, 0, self._arguments)
            return start.then(put_in_order.prepare((1, 1), of_order, 0, self._arguments))

        start: Sequence = self._starts.made(blocks, make)
        return start

    def found(self) -> list[FitBatch]:
        """The launches, of what the device has told."""
        key, order = self._key, self._order
        self._key = self._order = None
        if order is None:
            order = self._device.xp.argsort(key).astype(np.int32)
        batches, first = [], 0
        for group, sizes in zip(self._groups, self._told.tolist(), strict=True):
            for most in sizes:
                if most[layout.MEMBERS]:
                    members = BatchMembers(self._device, order, first, most[layout.MEMBERS])
                    batches.append(_batch(group, members, _sizes(most)))
                    first += most[layout.MEMBERS]
        return batches


class Preparation:
    """Facts and launches of the fits of one population after another, with the kernels' memory.

    Where one population has been fitted, the next one's fits are prepared together with its programs
    (``Lowering.of``), so that nobody waits a second time.
    """

    def __init__(self, launcher: Launcher) -> None:
        self._launcher, self.dependence = launcher, DependenceAnalysis(launcher.device)
        self._batchers: dict[tuple[bool, bool], Batcher] = {}
        self._both = Recent()
        self._pop: Any = None  # of which the next two are
        self._begun: FitFacts | None = None
        self._ahead: tuple[FitFacts, list[FitBatch]] | None = None

    def of(self, pop: Any) -> Preparation:
        """This preparation, for a population whose programs are made next."""
        self._pop, self._begun, self._ahead = pop, None, None
        return self

    def begun(self, tokens: DeviceTokens, addresses: dict[str, int], summary: Any, most_words: int) -> Sequence | None:
        """The calls that start it for programs of at most ``most_words`` words; None for too many expressions."""
        if not 0 < tokens.n_exprs <= MOST_COUNTED:
            return None
        device = self._launcher.device
        try:
            known, walk = self.dependence.of(tokens)
            where = device.pointer(summary)
            count = self._batcher(True).of(tokens.n_exprs, known, addresses, summary=where, most_words=most_words)
        except device.out_of_memory:
            return None
        self._begun, both = known, self._both.made((walk, count), lambda: walk.then(count))
        return both

    def meanwhile(self) -> None:
        """Look at the tokens for what fits ask next: a population keeps the answers."""
        for name in ("all_valid", "max_params", "has_wide_constants"):
            getattr(self._pop, name)

    def ended(self) -> None:
        """Take what the device has told."""
        assert self._begun is not None
        self._ahead = self._begun, self._batcher(True).found()

    def take(self, pop: Any) -> tuple[FitFacts, list[FitBatch]] | None:
        """Facts and batches of a population from the time when its programs were made; once."""
        found = self._ahead if self._pop is pop else None
        self._pop = self._begun = self._ahead = None
        return found

    def batches(self, known: FitFacts, rows: bool, few: bool = False) -> list[FitBatch]:
        """Batches of the launcher's programs."""
        batcher, launcher = self._batcher(rows, few), self._launcher
        start = batcher.of(launcher.n_exprs, known, launcher.fields, n_instructions=launcher.n_instructions)
        start.then(launcher.device.waiting())()
        return batcher.found()

    def _batcher(self, rows: bool, few: bool = False) -> Batcher:
        if (rows, few) not in self._batchers:
            self._batchers[rows, few] = Batcher(self._launcher, rows, few)
        return self._batchers[rows, few]


def batches_like(launcher: Launcher, others: list[FitBatch], rows: bool, few: bool) -> list[FitBatch] | None:
    """The launches of the same programs in another type, which asks nobody; None where memory may make them others."""
    fast, batches = launcher.settings.operators == "fast", []
    groups = groups_of(launcher.n_points, launcher.dtype.itemsize, launcher.device.lanes, fast, rows, few)
    for other in others:
        group = groups[group_of(other.sizes["m"], other.rare)]
        batch = _batch(group, other.order, other.sizes)
        if batch.arena["arena_bytes"] > SMALL_ARENA * group.shape.warps:
            return None
        batches.append(batch)
    return batches


def _batch(group: Group, members: Any, sizes: dict[str, int]) -> FitBatch:
    return FitBatch(*group, members, _arena(group, tuple(sizes.items())), sizes)


@functools.lru_cache(maxsize=1024)
def _arena(group: Group, sizes: tuple[tuple[str, int], ...]) -> dict[str, int]:
    """Where things are in a block's memory: the next population's sizes are mostly the last one's."""
    return arena_of(group.shape, many=group.many, **needs_of(dict(sizes)))


def _sizes(most: list[int]) -> dict[str, int]:
    """The most that an expression of a batch has, by the case discussion's symbols."""
    return {
        "m": most[layout.NEED_PARAMS],
        "i": most[layout.NEED_INSTRUCTIONS],
        "r": most[layout.NEED_RESULTS],
        "s": most[layout.NEED_SLOTS],
    }


@functools.lru_cache(maxsize=64)
def _arenas(device: Any, groups: tuple[Group, ...]) -> Any:
    return device.xp.asarray(np.array([ArenaShape.of(group.shape, group.many) for group in groups], np.int64))


@functools.cache
def _kernels(device: Any) -> list[Any]:
    """The kernels that say who is fitted with whom, and put expressions in order."""
    names = "measure", "put_in_order"
    return [device.kernel(name, precision("ieee"), measure_source(), LANES=device.lanes) for name in names]


@functools.cache
def measure_source() -> str:
    texts = "gpu/common.cu", "interpreter/batches.cu"
    return opcodes.joined(texts, {"arrays": arrays_text(), "translated": cuda_text([arena_ends], {})})


@table_of_rows
def _rare(device: Any) -> tuple[Any, Any]:
    """By opcode, and by operator's code, bool on the device: whether it is an uncommon one's."""
    rows = [row.code for row in opcodes.all_rows() if dual_opcodes.is_rare(row)]
    codes, steps = np.zeros(1 << 16, np.bool_), np.zeros(256, np.bool_)
    codes[opcodes.numbers()[rows].ravel()] = True
    codes[-1] = False  # where there is no such opcode
    steps[rows] = True
    return device.xp.asarray(codes), device.xp.asarray(steps)


def macros_of(shape: FitShape, settings: Precision, fits: int = 1, **chosen: Any) -> dict[str, Any]:
    """The macros of the kernels' text: those of the shape with ``fits`` fits a block, the chosen and the usual ones."""
    points = shape.vectors * layout.VECTOR_BYTES // shape.itemsize
    return {
        "TASK": "NORMAL",
        "KIND": objective.SQUARES,
        "WEIGHTED": 0,
        "MANY": 0,
        "GLOBAL_ARENA": 0,
        "BOUNDED": 0,
        "REAL": REAL[shape.itemsize],
        "LANES": shape.lanes,
        "VECTORS": shape.vectors,
        "TANGENTS": shape.tangents,
        "BLOCK": shape.warps * shape.lanes,
        "ENTRY_BYTES": shape.entry_bytes,
        "RESULT_BYTES": shape.result_bytes,
        "FOLD": max(1, FOLD_POINTS // points),
        "FITS": fits,
        "MIN_BLOCKS": min_blocks(shape, settings.operators == "fast", bool(chosen.get("RARE")), fits),
        **chosen,
    }


def subject(settings: Precision, itemsize: int) -> Discussion:
    """The case discussion of a fit."""
    text, fast = dual_opcodes.source(settings.operators), settings.operators == "fast"

    def kernel(shape: FitShape, code: FitCode) -> KernelText:
        where = {"MANY": int(code.many), "GLOBAL_ARENA": int(code.arena == GLOBAL), "RARE": int(code.rare)}
        fits = fits_of_code(FitVariants(itemsize, fast), code)
        return KernelText.of(text, settings, macros_of(shape, settings, fits, TASK="FIT", PROLOGUES=1, **where))

    return subject_of(FitVariants(itemsize, fast), arena_of, kernel, settings)
