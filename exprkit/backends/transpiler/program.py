"""The modules of a population: structures, bundles and texts together.

In: a population.  Out: PTX, which the backend runs and ``compile_ptx`` assembles without a GPU.

    >>> from exprkit.backends.transpiler.program import shape_of
    >>> shape_of("values", 108_600, 4).points, shape_of("square", 108_600, 4).points
    (4, 4)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.precision import Precision
from exprkit.backends.transpiler.bundles import BundleLimits, fuse, modules
from exprkit.backends.transpiler.emit import Emitter, Module
from exprkit.backends.transpiler.structures import Structures
from exprkit.backends.transpiler.templates import VALUES, Kind
from exprkit.programs.program import Program

# Measured on an H200 where nothing else is said: data/results/h200_ptx.md
VECTOR_BYTES = 16  # that a thread loads or stores at once, at the most
SMALL = 8  # instructions of a small structure: its registers still suffice for all points of a vector
MOST_INSTRUCTIONS = 400  # of a bundle, for one point of a vector: shared columns against code that the cache holds
COLUMN_REGISTERS = 96  # of a bundle: shared columns against registers for results, of 255
IN_ORDER = True  # results: bundles of consecutive expressions, blocks in the order of what they write ("Predictions")
FEW, MANY = 2_000, 50_000  # points from which code for more points per thread pays
OF_A_MODULE = 120  # structures that are compiled at a time ("Compiling"); smaller modules are ready sooner, run slower
MOST_OF_A_MODULE = 1 << 15  # an entry's bundles are numbered with 16 bits
ROWS = 4  # expressions per structure, on average, from which results are made row by row ("Predictions")


class CodeShape(NamedTuple):
    """How code is laid out.

    More points per thread need fewer instructions for loads, stores and the loop, and take longer to
    compile; more structures per bundle share more columns and need more registers.  Long code wants
    many threads that run it together, out of one cache.
    """

    points: int  # of a thread's vector
    block: int  # threads
    structures: int  # of a bundle, at the most
    resident: int | None  # blocks of a multiprocessor, for which registers are saved

    def changed(self, points: int | None = None, block: int | None = None, structures: int | None = None) -> CodeShape:
        """The shape with what the user wants; registers are saved for blocks of the usual size only."""
        return CodeShape(
            points or self.points, block or self.block, structures or self.structures,
            None if block else self.resident,
        )  # fmt: skip


def shape_of(
    task: str, n_points: int, itemsize: int, small: bool = True, by_row: bool = False, indirect: bool = False
) -> CodeShape:
    """The usual shape for structures of at most ``SMALL`` instructions, or for others.

    That of sums depends on nothing but the first arguments, except for how many structures a bundle has, so that
    the sum of an expression's errors has the same bits in every population (in fast precision nearly: the
    assembler makes 2^-x of 1 / 2^x where nothing else in the bundle wants 2^x).

    Parameters
    ----------
    task, n_points, itemsize
    small : bool
        At most ``SMALL`` instructions.
    by_row : bool
        There are ``ROWS`` expressions or more per structure: results are made row by row.
    indirect : bool
        Columns are indirect: structures of a bundle share none.
    """
    wide = VECTOR_BYTES // itemsize
    most = 4 if indirect else 8
    if n_points < FEW:
        few_rows = task == VALUES and by_row and indirect
        return CodeShape(wide // 2, 128, 1, None) if few_rows else CodeShape(1, 128, most, 4)
    if task == VALUES and small:
        if by_row:
            return CodeShape(wide, 256, 1, None)
        return CodeShape(wide, 128, 4, None) if n_points < MANY else CodeShape(wide, 256, 2, None)
    if task != VALUES and not by_row:  # more code than the caches hold: registers matter more than shared columns
        most = 4
    return CodeShape(wide, 128, most, None) if small else CodeShape(1, 128 * wide, most, 2)


def module_size(n_structures: int) -> int:
    """How many structures are compiled at a time: fewer where all cores would not be busy otherwise."""
    return OF_A_MODULE // 2 if 4 * OF_A_MODULE <= n_structures < 16 * OF_A_MODULE else OF_A_MODULE


class Transpiled:
    """A population's structures in bundles and modules; texts are made when asked for.

    Parameters
    ----------
    program : Program
        The lowered population.
    structures : Structures
    shape : CodeShape
    itemsize : int
        Of a number.
    chosen : int array, optional
        The structures to compile; by default all.
    of_a_module : int, optional
        Structures that are compiled at a time.
    in_order : bool
        Bundles of expressions that follow one another; their blocks run in that order.
    """

    def __init__(
        self, program: Program, structures: Structures, shape: CodeShape, itemsize: int,
        chosen: np.ndarray | None = None, of_a_module: int | None = None, in_order: bool = False,
    ) -> None:  # fmt: skip
        self.program, self.structures, self.shape, self.in_order = program, structures, shape, in_order
        columns = max(COLUMN_REGISTERS * 4 // (shape.points * itemsize), 1)
        self._limits = BundleLimits(shape.structures, columns, MOST_INSTRUCTIONS)
        self.bundles = fuse(structures, program, self._limits, chosen, in_order)
        size = min(of_a_module or module_size(len(self.bundles.order)), MOST_OF_A_MODULE)
        self.ranges = modules(np.diff(self.bundles.first), size)
        self.itemsize = itemsize
        self._emitters: dict[tuple[Kind, Precision], Emitter] = {}

    def __len__(self) -> int:
        return len(self.ranges)

    def kind(self, task: str, **how: Any) -> Kind:
        """Code of this shape; ``how``: fields of ``Kind`` that differ from the usual ones."""
        shape, is_values = self.shape, task == VALUES
        usual = {"store": shape.points if is_values else 1, "by_row": is_values and shape.structures == 1}
        return Kind(
            task, self.itemsize, shape.points, shape.block, resident=shape.resident,
            indirect=self.structures.indirect, **(usual | how),
        )  # fmt: skip

    def holds(self, expression: int) -> bool:
        """Whether the structure of an expression is among these."""
        return bool(np.isin(self.structures.of[expression], self.bundles.order))

    def modules(self, kind: Kind, settings: Precision, *, separate: bool = False) -> Iterator[Module]:
        """All modules, one after the other; ``separate``: with an entry for every bundle."""
        for i in range(len(self)):
            yield self.module(i, kind, settings, separate=separate)

    def module(self, i: int, kind: Kind, settings: Precision, *, separate: bool = False) -> Module:
        """Module ``i``."""
        if (kind, settings) not in self._emitters:
            n_columns = len(self.program.column_code)
            self._emitters[kind, settings] = Emitter(self.structures, self.bundles, kind, settings, n_columns)
        emitter = self._emitters[kind, settings]
        return (emitter.separate if separate else emitter.module)(self.ranges[i])

    def one(self, expression: int, kind: Kind, settings: Precision, comment: str) -> Module:
        """A module with nothing but the structure of one expression, and a comment above it."""
        s = int(self.structures.of[expression])
        alone = fuse(self.structures, self.program, self._limits, np.array([s]))
        emitter = Emitter(self.structures, alone, kind, settings, len(self.program.column_code))
        columns = ", ".join(f"column {c} = {text}" for c, text in enumerate(self.program.columns()))
        return emitter.module(range(1), {s: f"{comment}    ({columns or 'no columns'})"})


def parts(
    program: Program, structures: Structures, task: str, n_points: int, itemsize: int,
    changed: Callable[[CodeShape], CodeShape] | None = None, of_a_module: int | None = None,
) -> list[Transpiled]:  # fmt: skip
    """All structures, the small ones and the others each in the shape for them.

    Parameters
    ----------
    program, structures
        The lowered population and its structures.
    task, n_points, itemsize
        What the shapes depend on.
    changed : callable, optional
        What to make of the usual shapes.
    of_a_module : int, optional
        Structures that are compiled at a time.
    """
    is_small = np.diff(structures.first) <= SMALL
    by_row = len(structures.of) >= ROWS * len(structures)
    shapes = [shape_of(task, n_points, itemsize, small, by_row, structures.indirect) for small in (True, False)]
    shapes = [changed(shape) for shape in shapes] if changed else shapes
    chosen = [np.flatnonzero(is_small), np.flatnonzero(~is_small)]
    if shapes[0] == shapes[1]:
        shapes, chosen = shapes[:1], [np.arange(len(structures))]
    return [
        Transpiled(program, structures, shape, itemsize, some, of_a_module, IN_ORDER and task == VALUES)
        for shape, some in zip(shapes, chosen, strict=True) if len(some)
    ]  # fmt: skip
