"""Variants of the fitting kernel, and the choice between them.

In: what is fixed, the number of points, what an expression needs and whether its operators are common.
Out: a ``FitShape``; the same choice as a tree.

    >>> from exprkit.backends.cases.fits import shape_of
    >>> shape_of(10_860, 2, itemsize=4, lanes=32, fast=True, rare=False)[:3]
    (2, 3, 16)

=========  ================================================================================================
question   accepted where
=========  ================================================================================================
operators  an expression uses common ones alone: the code of the others is left out, and takes no registers
tangents   there is one for each parameter, up to four; of more parameters J'J is made by way of rows
shape      no shape that follows takes less
memory     a block's arena fits so often that registers limit the warps; or fits at all; or is in global memory
registers  there are as many as the threads of a block's fits need to spill next to none
=========  ================================================================================================

The shape depends on nothing but the points and the expression's own tangents and operators, so that the bits of a fit
depend on nothing else.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.cases.discussion import Question, described, walk
from exprkit.backends.cases.inequality import Constraint, Inequality, Quantity, Values, compared, number, symbol
from exprkit.backends.cases.tree import Discussion, KernelText
from exprkit.backends.gpu.layout import VECTOR_BYTES
from exprkit.backends.gpu.schedule import REGISTERS
from exprkit.backends.precision import Precision
from exprkit.errors import number_of

MOST_TANGENTS = 4
SMALL_ARENA = 6 << 10  # bytes of shared memory per warp with which registers, not memory, limit the warps
# Of ``fit_times``, in vectors or in times of an average fit; measured (data/results/cases_regret.md).
DECODING = 1.2  # an instruction, whatever the vectors
ONE_BY_ONE = 0.5  # share of uncommon operators' instructions that are decoded for each vector anew
SHARE, SHARE_OF_FEW = 25, 1  # fits that a multiprocessor makes
BLOCK_WARPS = 16, 12, 8, 0
WARPS = 1, 2, 4, 8, 12, 16  # of a fit; those of 3 or 6 leave parts of a multiprocessor without work
SPILLING = 1.2  # times: 16 warps of a fast kernel that needs 168 registers have 128, which keep all of them resident
WARP_THREADS = 32
SMALL, OWN, GLOBAL = range(3)  # where a block's arena is: in little shared memory, in much, in none
ARENAS = "little shared memory", "shared memory", "global memory"


class WaitedFor(NamedTuple):
    """Times that warps wait: all of a fit for its step, those of a multiprocessor for its longest fit."""

    step: float
    longest: float  # of common operators
    longest_rare: float  # of uncommon ones


OF_SHORT, OF_LONG = WaitedFor(5.0, 8.0, 25.0), WaitedFor(2.0, 4.0, 15.0)  # fast float32; ieee or float64


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
        size = 8 + self.itemsize * (2 + self.tangents + self.tangents % 2)
        return (size + VECTOR_BYTES - 1) // VECTOR_BYTES * VECTOR_BYTES

    @property
    def result_bytes(self) -> int:
        """Size of a Result of equations.cu."""
        return -(-(6 * self.itemsize + 4) // 8) * 8


class FitVariants(NamedTuple):
    """The properties that all variants of a tree share."""

    itemsize: int
    fast: bool
    lanes: int = 32
    few: bool = False  # fits of which there are few


class FitCode(NamedTuple):
    """A code of the discussion."""

    tangents: int = 1
    rare: bool = False  # with uncommon operators
    many: bool = False  # J'J by way of rows
    place: int = 0  # in ``fit_shapes``
    arena: int = SMALL
    block: int = 0  # in ``block_warps``


def registers_of(shape: FitShape, fast: bool, rare: bool) -> int:
    """Registers of a thread with which the kernel spills none, or a few bytes (data/results/cases_ptxas.csv).

    There is no limit between those: a quarter of a multiprocessor's registers is shared by 4, 3 or 2 warps.  Where
    both will do, times decide: with 128 fast fits of uncommon operators take 5 % longer, those of ieee up to 18 % less.
    """
    if shape.itemsize == 8:
        return 128 if shape.tangents == 1 and not rare else 168 if shape.tangents <= 2 else 255
    few = shape.tangents <= 3 and not rare if fast else shape.tangents <= 2
    return 128 if few else 168


def fits_of(shape: FitShape, many: bool, little: bool, warps: int) -> int:
    """The number of fits that a block of ``warps`` warps makes at a time, whose steps are taken by lanes of one warp.

    With four warps a fit that costs more than it saves.  ``little``: whether an arena is in little shared memory.
    """
    several = little and not many and shape.warps <= 2 and shape.lanes > 1
    return max(1, warps // shape.warps) if several else 1


@functools.lru_cache(maxsize=256)
def fits_at_once(shape: FitShape, many: bool, little: bool, fast: bool, rare: bool) -> int:
    """How many fits a block makes that has as many warps as there are registers for."""
    needed = registers_of(shape, fast, rare) * WARP_THREADS
    warps = next(warps for warps in block_warps(shape.tangents) if needed * warps <= REGISTERS)
    return fits_of(shape, many, little, warps)


def block_warps(tangents: int) -> tuple[int, ...]:
    """Warps of a block of several fits, the most first; 0: each fit has a block of its own."""
    return BLOCK_WARPS[0 if tangents <= 2 else 2 :]


def min_blocks(shape: FitShape, fast: bool, rare: bool, fits: int) -> int:
    """Blocks that a multiprocessor has to hold, so that a thread may have the registers that it needs."""
    threads = REGISTERS // registers_of(shape, fast, rare) // 128 * 128
    return max(1, threads // (fits * shape.warps * shape.lanes)) if shape.lanes > 1 else 1


@functools.lru_cache(maxsize=64)
def fit_shapes(fixed: FitVariants, tangents: int) -> list[FitShape]:
    """The variants of a number of tangents, in the order of the discussion.

    With three tangents or more a second vector costs more in registers and code than it saves.
    """
    lanes, itemsize = fixed.lanes, fixed.itemsize
    most = {1: 3, 2: 3}.get(tangents, 1) if fixed.fast and itemsize == 4 and lanes > 1 else 1
    pairs = itertools.product(range(1, most + 1), WARPS if lanes > 1 else (1,))
    return [FitShape(tangents, vectors, warps, lanes, itemsize) for vectors, warps in pairs]


def resident_warps(shape: FitShape, fast: bool, rare: bool) -> int:
    """Warps of a multiprocessor that have registers, in blocks of one fit each; 0 where code would spill much."""
    resident = REGISTERS // (registers_of(shape, fast, rare) * WARP_THREADS * shape.warps) * shape.warps
    return shape.warps if spills(shape, fast, rare) else resident


def spills(shape: FitShape, fast: bool, rare: bool) -> bool:
    """Whether a block's warps leave a thread too few registers, so that it spills, and are faster all the same.

    With four tangents, in ieee and in float64 it would spill up to a thousand bytes.
    """
    of_a_thread = REGISTERS // (WARP_THREADS * shape.warps)
    few = fast and shape.itemsize == 4 and shape.tangents <= 3
    return few and 128 <= of_a_thread < registers_of(shape, fast, rare)


def fit_times(fixed: FitVariants, tangents: int, n_points: Any, rare: bool) -> np.ndarray:
    """Estimated time of every variant, (variants, points): a product of two factors.

    An evaluation: rounds of tiles, each of which costs its vectors and the decoding, and the step after them.
    Uncommon operators gain less from several vectors: some are called for each vector, and where a derivative is nan a
    program runs once more, vector after vector.
    How many evaluations follow each other: those of the longest fit, and so many as a multiprocessor has fits for the
    warps that are resident at a time.  Fits with uncommon operators differ most: many end at once where a root or a
    logarithm has no value, and the longest are repeated for a nan.  Registers count here: a kernel of 168 has room for
    three blocks of four warps or one of twelve, but for one block of eight.

    How many fits there are is no argument, nor are the others' operators: the shape decides about bits.  ``few`` fits:
    those in float64 of what float32 spoiled.
    """
    listed = fit_shapes(fixed, tangents)
    vectors, warps = (np.array([getattr(one, name) for one in listed])[:, None] for name in ("vectors", "warps"))
    resident = np.array([resident_warps(one, fixed.fast, rare) or np.nan for one in listed])[:, None]
    spilling = np.array([SPILLING if spills(one, fixed.fast, rare) else 1.0 for one in listed])[:, None]
    tiles = -(-n_points // np.array([one.tile for one in listed])[:, None])
    of_a_round = vectors + DECODING * (1 + (ONE_BY_ONE * (vectors - 1) if rare else 0))
    of = OF_SHORT if fixed.fast and fixed.itemsize == 4 else OF_LONG
    of_an_evaluation = -(-tiles // warps) * of_a_round * spilling + of.step
    longest, share = of.longest_rare if rare else of.longest, SHARE_OF_FEW if fixed.few else SHARE
    waited = longest + share * warps / resident
    return np.nan_to_num(of_an_evaluation * waited, nan=np.inf)  # infinite where not even one has its registers


@functools.lru_cache(maxsize=256)
def shape_of(
    n_points: int, n_tangents: int, *, itemsize: int, lanes: int, fast: bool, rare: bool, few: bool = False
) -> FitShape:
    """The variant for a number of points, by the tree as a plain function; ``rare``: of uncommon operators."""
    fixed = FitVariants(itemsize, fast, lanes, few)
    return fit_shapes(fixed, n_tangents)[int(fit_times(fixed, n_tangents, n_points, rare)[:, 0].argmin())]


def fits_of_code(fixed: FitVariants, code: FitCode) -> int:
    """How many fits a block of a code makes."""
    shape = fit_shapes(fixed, code.tangents)[code.place]
    return fits_of(shape, code.many, code.arena == SMALL, block_warps(code.tangents)[code.block])


def needs_of(values: Values) -> dict[str, Any]:
    """An expression's needs of a block's memory, from the values of symbols."""
    return {"n_params": values["m"], "instructions": values["i"], "results": values["r"], "slots": values["s"]}


def questions(fixed: FitVariants, arena_of: Callable[..., dict[str, Any]]) -> tuple[Question, ...]:
    """The questions of a fit's variants, and the strategies; ``arena_of`` gives the bytes of a block's memory."""

    def operators(code: FitCode) -> Constraint | None:
        return None if code.rare else Inequality(symbol("u"), number(0))

    def tangents(code: FitCode) -> Constraint | None:
        held = number(code.tangents, number_of(code.tangents, "tangent"))
        return None if code.many else Inequality(symbol("m"), held)

    def shape(code: FitCode) -> Constraint | None:
        listed = fit_shapes(fixed, code.tangents)
        here, later = listed[code.place], listed[code.place + 1 :]
        if not later:
            return None

        def best(at: Values, first: int, stop: int | None) -> Any:
            least = fit_times(fixed, code.tangents, at["N"], code.rare)[first:stop].min(axis=0, initial=np.inf)
            return least if len(least) > 1 else least[0]

        return compared(
            f"time of {_words(here)}",
            lambda at: best(at, code.place, code.place + 1),
            "time of the best shape after it",
            lambda at: best(at, code.place + 1, None),
        )

    def memory(code: FitCode) -> Constraint | None:
        if code.arena == GLOBAL:
            return None
        here = fit_shapes(fixed, code.tangents)[code.place]

        def arena(at: Values) -> Any:
            return arena_of(here, many=code.many, **needs_of(at))["arena_bytes"]

        little = number(SMALL_ARENA * here.warps, f"{SMALL_ARENA * here.warps:,} bytes of {here.warps} warps")
        return Inequality(Quantity("memory of a block", arena), little if code.arena == SMALL else symbol("Z_B"))

    def registers(code: FitCode) -> Constraint | None:
        shape, fits = fit_shapes(fixed, code.tangents)[code.place], fits_of_code(fixed, code)
        needed, threads = registers_of(shape, fixed.fast, code.rare), fits * shape.warps * shape.lanes
        if fits == 1:
            return None
        return Inequality(number(needed * threads, f"{needed} registers of {threads} threads"), symbol("R_M"))

    def more_tangents(code: FitCode) -> tuple[str, FitCode]:
        if code.tangents < MOST_TANGENTS:
            return "one more tangent", code._replace(tangents=code.tangents + 1)
        return "rows of J", code._replace(many=True)

    def other_memory(code: FitCode) -> tuple[str, FitCode]:
        return ("fewer blocks", "global memory")[code.arena], code._replace(arena=code.arena + 1)

    def fewer_fits(code: FitCode) -> tuple[str, FitCode] | None:
        more = code.block + 1 < len(block_warps(code.tangents))
        return ("fewer fits a block", code._replace(block=code.block + 1)) if more else None

    return (
        Question("operators", operators, lambda code: ("uncommon operators", code._replace(rare=True))),
        Question("tangents", tangents, more_tangents),
        Question("shape", shape, lambda code: ("another shape", code._replace(place=code.place + 1))),
        Question("memory", memory, other_memory),
        Question("registers", registers, fewer_fits),
    )


def why(fixed: FitVariants, arena_of: Callable[..., dict[str, Any]], values: Values) -> list[str]:
    """The path through the tree, a line for each inequality with its numbers, and what is at its end."""
    code, steps = walk(FitCode(), questions(fixed, arena_of), values)
    return [*described(steps, values), _case(fixed, code)]


def _words(shape: FitShape) -> str:
    return f"{shape.tile // shape.lanes} points a thread, {shape.warps * shape.lanes} threads a fit"


def _case(fixed: FitVariants, code: FitCode) -> str:
    shape, rows = fit_shapes(fixed, code.tangents)[code.place], ", J'J by rows" if code.many else ""
    used = ", all operators" if code.rare else ""
    fits = fits_of_code(fixed, code)
    several = f", {fits} fits a block" if fits > 1 else ""
    return f"{number_of(code.tangents, 'tangent')}{rows}{used}, {_words(shape)}{several}, arena in {ARENAS[code.arena]}"


def subject(
    fixed: FitVariants,
    arena_of: Callable[..., dict[str, Any]],
    kernel: Callable[[FitShape, FitCode], KernelText],
    settings: Precision,
) -> Discussion:
    """The discussion of a fit; ``kernel``: the text of a shape with what else a code says."""

    def shape(code: FitCode) -> FitShape:
        return fit_shapes(fixed, code.tangents)[code.place]

    return Discussion(
        f"fit, {settings.operators}, {'float' if fixed.itemsize == 4 else 'double'}",
        FitCode(),
        questions(fixed, arena_of),
        ("Z_B", "R_M", "N", "m", "i", "r", "s", "u"),
        functools.partial(_case, fixed),
        lambda code: kernel(shape(code), code),
        shape,
        ("time: (rounds of tiles x a round + step) x (the longest fit + fits of a multiprocessor / those resident)",),
    )
