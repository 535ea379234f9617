"""Variants of the interpreter kernel for values and for losses, and the choice between them.

In: what is fixed (numbers, precision, what the user asks for), a device and sizes.  Out: a ``LaunchShape``; and the
same choice as questions and strategies, of which ``discussion`` makes a tree.  What a variant needs and takes stands in
``schedule``, once: it is called with numbers to choose, with arrays to find witnesses, with symbols to print.

    >>> from exprkit.backends.gpu.schedule import Sizes
    >>> from exprkit.backends.cases.interpreter import Decision, VariantSet
    >>> from exprkit.backends.cases.tree import CARDS
    >>> decide = Decision(CARDS["sm_90"].limits, VariantSet(itemsize=4, fast=True))
    >>> decide(Sizes(n_points=10_860, n_items=9_880, n_columns=12, n_slots=1))[:3]
    (8, 640, True)

=====================  ====================================================================================
question               accepted where
=====================  ====================================================================================
operators              (ieee, float32) none is used whose code needs many registers: powers
layout                 its smallest block fits into shared memory; three vectors: all points fit into one tile
                       (else four take less); its best block takes no longer than that of any layout that follows
block                  it fits into shared memory; there are as many registers as it needs to spill next to none; it
                       takes no longer than the best block that follows
=====================  ====================================================================================

=====================  ====================================================================================
strategy               what it makes of a variant
=====================  ====================================================================================
powers too             the code of those operators is there as well
fewer vectors          the next smaller number of points per thread, columns in shared memory
columns global         columns in global memory, with the most vectors again
fewer vectors again    the next smaller number of points per thread, columns in global memory
another block          the next smaller block
smallest blocks        one or two warps: what is left where nothing else fits
=====================  ====================================================================================
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.cases.discussion import Question, described, walk
from exprkit.backends.cases.inequality import (
    MACHINE,
    Constraint,
    Inequality,
    Quantity,
    Values,
    all_of,
    compared,
    number,
    symbol,
)
from exprkit.backends.cases.tree import Discussion, KernelText
from exprkit.backends.gpu import opcodes
from exprkit.backends.gpu.layout import VECTOR_BYTES
from exprkit.backends.gpu.schedule import BLOCKS, VECTORS, DeviceLimits, LaunchShape, Sizes, registers_needed, rounds
from exprkit.backends.precision import Precision
from exprkit.errors import ArgumentError

MOST_VECTORS = 4  # of columns in global memory, and of operators that are long: their code outgrows the caches
LAST_BLOCKS = (64, 32)  # where nothing else fits
NOTES = (
    "memory: bytes of a block with target and weights; time: rounds of tiles, longer where few warps are resident",
)


class VariantSet(NamedTuple):
    """The properties that all variants of a tree share."""

    itemsize: int
    fast: bool  # whether operators are short
    wide: bool = False  # results are stored a line at a time: values
    lanes: int = 32
    block: int | None = None  # that the user asks for
    vectors: int | None = None
    powers: bool = True  # with the operators that need many registers

    @property
    def light(self) -> bool:
        """Whether few registers are enough."""
        return self.fast or not self.powers

    @property
    def asks_for_powers(self) -> bool:
        """Whether there are variants with and without those operators: their code is long, of float32."""
        return self.itemsize == 4 and not self.fast

    @property
    def operator_symbols(self) -> str:
        """The symbols of what the operators in use ask for."""
        return "" if self.itemsize == 8 else "b" if self.fast else "p"


class LayoutCode(NamedTuple):
    """A code of the discussion: points per thread and where columns lie, which of the blocks, which operators."""

    place: int  # in ``layouts``
    block: int  # in the layout's blocks
    powers: bool = False  # with operators that need many registers


START = LayoutCode(0, 0)


class Layout(NamedTuple):
    """Vectors of a thread, where columns lie, and the blocks to try, the one first that wins where two are equal."""

    vectors: int
    columns_shared: bool
    blocks: tuple[int, ...]
    only_if_nothing_else: bool = False

    @property
    def words(self) -> str:
        """The layout as people read it."""
        return f"{self.vectors} vectors, columns {'shared' if self.columns_shared else 'global'}"


@functools.lru_cache(maxsize=64)
def layouts(fixed: VariantSet) -> tuple[Layout, ...]:
    """The layouts in the order in which the strategies reach them."""
    most = 8 if fixed.fast and fixed.itemsize == 4 else MOST_VECTORS
    vectors = [v for v in VECTORS[::-1] if v <= most] if fixed.vectors is None else [fixed.vectors]
    blocks = BLOCKS[::-1] if fixed.block is None else (fixed.block,)  # of as good ones, in large ones fewer are late
    shared = [Layout(v, True, blocks) for v in vectors]
    rest = [Layout(v, False, blocks) for v in vectors if v <= MOST_VECTORS or fixed.vectors is not None]
    last = [Layout(1, False, LAST_BLOCKS, True)] if fixed.block is None and fixed.vectors is None else []
    return (*shared, *rest, *last)


@functools.lru_cache(maxsize=64)
def shapes(fixed: VariantSet) -> list[LaunchShape]:
    """All variants, in the order of the discussion."""
    return [
        LaunchShape(layout.vectors, block, layout.columns_shared, fixed.lanes, fixed.itemsize, fixed.wide)
        for layout in layouts(fixed)
        for block in layout.blocks
    ]


@functools.lru_cache(maxsize=64)
def _together(fixed: VariantSet) -> tuple[LaunchShape, np.ndarray, np.ndarray]:
    """All variants as one whose fields are columns of numbers; registers of a block; the most points that they take."""
    vectors, block, columns_shared = np.transpose([one[:3] for one in shapes(fixed)])[:, :, None]
    together = LaunchShape(vectors, block, columns_shared, fixed.lanes, fixed.itemsize, fixed.wide)
    of_one_tile = (vectors == 3) & (fixed.vectors is None)
    most = np.where(of_one_tile, together.tile, np.iinfo(np.int64).max)
    return together, registers_needed(together, fixed.light) * block, most


def times(fixed: VariantSet, sizes: Sizes, limits: DeviceLimits) -> np.ndarray:
    """Estimated time of every variant, (variants, points): infinite where it can't run or is not meant to."""
    shape, registers, most_points = _together(fixed)
    shared, blocks = shape.most_shared(sizes.n_columns, sizes.n_slots), limits.registers // registers
    usable = (shared <= limits.shared_per_block) & (sizes.n_points <= most_points)
    if fixed.block is None:
        usable = usable & (blocks > 0)
    return np.where(usable, rounds(shape, sizes, limits, shared, blocks * shape.warps), np.inf)


class Decision(NamedTuple):
    """The tree as a plain decision for one device: what the backend asks for every population."""

    limits: DeviceLimits
    fixed: VariantSet

    def __call__(self, sizes: Sizes) -> LaunchShape:
        """The variant for work of these sizes; ArgumentError if what the user asked for leaves none."""
        listed, taken = shapes(self.fixed), times(self.fixed, sizes, self.limits)[:, 0]
        best = int(taken[: len(listed) - len(LAST_BLOCKS) * layouts(self.fixed)[-1].only_if_nothing_else].argmin())
        if taken[best] == np.inf:
            best = int((taken < np.inf).argmax())  # the larger of the last ones
            if taken[best] == np.inf:
                raise nothing_fits(self.fixed, sizes, self.limits)
        return listed[best]

    def why(self, sizes: Sizes) -> list[str]:
        """The way through the tree, a line for each inequality with its numbers."""
        values = values_of(sizes, self.limits) | {"p": int(self.fixed.powers)}
        return described(walk(START, questions(self.fixed), values)[1], values)


def nothing_fits(fixed: VariantSet, sizes: Sizes, limits: DeviceLimits) -> ArgumentError:
    """The error for options that leave no variant: the inequality, and the nearest options that satisfy it."""
    width = VECTOR_BYTES // fixed.itemsize

    def needed(threads: int, v: int) -> int:
        shape = LaunchShape(v, threads, False, fixed.lanes, fixed.itemsize, fixed.wide)
        return shape.most_shared(sizes.n_columns, sizes.n_slots)

    def fits(threads: int, v: int) -> bool:
        return needed(threads, v) <= limits.shared_per_block

    threads, v = fixed.block or BLOCKS[0], fixed.vectors or VECTORS[0]
    asked = {"block_size": fixed.block, "points_per_thread": fixed.vectors and width * fixed.vectors}
    smaller = [n for n in range(threads, 0, -fixed.lanes) if fits(n, v)]
    fewer = [n for n in VECTORS[::-1] if n <= v and fits(threads, n)]
    nearest = {
        "block_size": fixed.block and smaller[:1],
        "points_per_thread": fixed.vectors and [width * n for n in fewer[:1]],
    }
    words = " or ".join(f"{name}={found[0]}" for name, found in nearest.items() if found) or "neither option"
    options = ", ".join(f"{name}={value}" for name, value in asked.items() if value) or "the smallest variant"
    return ArgumentError(
        f"{options} needs {needed(threads, v) / 1024:.4g} KiB of shared memory a block for these expressions, and the "
        f"device has {limits.shared_per_block / 1024:.4g}: take {words} "
        f"({needed(threads, v):,} <= {limits.shared_per_block:,} = Z_B is refused)"
    )


# ── the same as questions ────────────────────────────────────────────────────────────


def sizes_of(values: Values) -> Sizes:
    """Sizes of symbols."""
    return Sizes(values["N"], values["E"], values["c"], values["s"], values.get("b", 0))


def machine_of(values: Values) -> DeviceLimits:
    """Limits of symbols."""
    return DeviceLimits(*(values[name] for name in MACHINE))


def values_of(sizes: Sizes, limits: DeviceLimits) -> dict[str, Any]:
    """Symbols of sizes and limits."""
    return dict(zip(("N", "E", "c", "s", "b", *MACHINE), (*sizes, *limits), strict=True))


def code_shape(fixed: VariantSet, code: LayoutCode) -> LaunchShape:
    """The variant that a code is."""
    layout = layouts(fixed)[code.place]
    return LaunchShape(
        layout.vectors, layout.blocks[code.block], layout.columns_shared, fixed.lanes, fixed.itemsize, fixed.wide
    )


class _Times:
    """Estimated times of all variants at some values, kept while the values are the same object's."""

    def __init__(self, fixed: VariantSet) -> None:
        self._fixed, self._values, self._found = fixed, None, np.empty(0)
        ends = np.cumsum([len(layout.blocks) for layout in layouts(fixed)])
        self._start = [0, *ends.tolist()]

    def best(self, values: Any, first: tuple[int, int], stop: tuple[int, int]) -> Any:
        """The least of the variants from one (layout, block) to another."""
        if values is not self._values:
            self._values, self._found = values, times(self._fixed, sizes_of(values), machine_of(values))
        start, end = (self._start[place] + block for place, block in (first, stop))
        least = self._found[start:end].min(axis=0, initial=np.inf)
        return least if len(least) > 1 else least[0]


@functools.lru_cache(maxsize=64)
def questions(fixed: VariantSet) -> tuple[Question, ...]:
    """The questions of variants (first, where that matters, whether powers are used), and the strategies."""
    listed, taken = layouts(fixed), {powers: _Times(fixed._replace(powers=powers)) for powers in (False, True)}
    competing = [place for place, layout in enumerate(listed) if not layout.only_if_nothing_else]

    def best(code: LayoutCode, first: tuple[int, int], stop: tuple[int, int]) -> Callable[[Values], Any]:
        times = taken[of_operators(fixed, code).powers]
        return lambda at: times.best(at, first, stop)

    def operators(code: LayoutCode) -> Constraint | None:
        return Inequality(symbol("p"), number(0)) if fixed.asks_for_powers and not code.powers else None

    def shared(code: LayoutCode, block: int) -> Quantity:
        shape = code_shape(fixed, LayoutCode(code.place, block))
        words = f"memory of {listed[code.place].words}, {shape.block} threads"
        return Quantity(words, lambda at: shape.most_shared(at["c"], at["s"]))

    def layout(code: LayoutCode) -> Constraint | None:
        layout, shape = listed[code.place], code_shape(fixed, code)
        fits = Inequality(shared(code, int(np.argmin(layout.blocks))), symbol("Z_B"))
        one_tile = shorter = None
        if shape.vectors == 3 and fixed.vectors is None:
            one_tile = Inequality(symbol("N"), number(shape.tile, f"{shape.tile} points of a tile"))
        later = [place for place in competing if place > code.place]
        if later and code.place in competing:
            own = best(code, (code.place, 0), (code.place, len(layout.blocks)))
            rest = best(code, (later[0], 0), (competing[-1], len(listed[competing[-1]].blocks)))
            shorter = compared(f"time of {layout.words}", own, "time of the best layout after it", rest)
        return all_of(fits, one_tile, shorter)

    def block(code: LayoutCode) -> Constraint | None:
        layout, shape = listed[code.place], code_shape(fixed, code)
        fits = registers = shorter = None
        if shape.block != min(layout.blocks):
            fits = Inequality(shared(code, code.block), symbol("Z_B"))
        if fixed.block is None and not layout.only_if_nothing_else:
            needed = registers_needed(shape, of_operators(fixed, code).light)
            words = f"{needed} registers of {shape.block} threads"
            registers = Inequality(number(needed * shape.block, words), symbol("R_M"))
        if later := () if layout.only_if_nothing_else else layout.blocks[code.block + 1 :]:
            own = best(code, code[:2], (code.place, code.block + 1))
            rest = best(code, (code.place, code.block + 1), (code.place, len(layout.blocks)))
            words = f"time of the best block after it ({', '.join(map(str, later))})"
            shorter = compared(f"time of {shape.block} threads", own, words, rest)
        return all_of(fits, registers, shorter)

    def next_layout(code: LayoutCode) -> tuple[str, LayoutCode] | None:
        place = code.place + 1
        if place == len(listed):
            return None
        here, there = listed[code.place].columns_shared, listed[place].columns_shared
        words = "fewer vectors" if there else "columns global" if here else "fewer vectors again"
        words = "smallest blocks" if listed[place].only_if_nothing_else else words
        return words, code._replace(place=place, block=0)

    def another_block(code: LayoutCode) -> tuple[str, LayoutCode] | None:
        more = code.block + 1 < len(listed[code.place].blocks)
        return ("another block", code._replace(block=code.block + 1)) if more else None

    return (
        Question("operators", operators, lambda code: ("powers too", code._replace(powers=True))),
        Question("layout", layout, next_layout),
        Question("block", block, another_block),
    )


def of_operators(fixed: VariantSet, code: LayoutCode) -> VariantSet:
    """The variants with a code's operators."""
    return fixed._replace(powers=code.powers or not fixed.asks_for_powers)


def subject(fixed: VariantSet, task: str, settings: Precision) -> Discussion:
    """The discussion of a task: ``values``, ``square``, ``absolute`` or ``sum``."""
    real = {4: "float", 8: "double"}[fixed.itemsize]

    def shape_at(code: LayoutCode) -> LaunchShape:
        return code_shape(of_operators(fixed, code), code)

    def text(code: LayoutCode) -> KernelText:
        shape = shape_at(code)
        chosen = {
            "TASK": task.upper(),
            "REAL": real,
            "LANES": shape.lanes,
            "VECTORS": shape.vectors,
            "BLOCK": shape.block,
            "COLUMNS_SHARED": int(shape.columns_shared),
            "WIDE": int(shape.wide),
            "POWERS": int(of_operators(fixed, code).powers),
        }
        return KernelText.of(opcodes.source(settings.operators), settings, chosen)

    def words(code: LayoutCode) -> str:
        shape = shape_at(code)
        where, used = "shared" if shape.columns_shared else "global", ", all operators" if code.powers else ""
        points = shape.tile // shape.lanes
        return f"{points} points a thread, {shape.block} threads a block, columns in {where} memory{used}"

    return Discussion(
        f"interpreter, {task}, {settings.operators}, {real}",
        START,
        questions(fixed),
        ("Z_B", "Z_M", "S", "R_M", "N", "E", "c", "s", *fixed.operator_symbols),
        words,
        text,
        shape_at,
        NOTES,
    )
