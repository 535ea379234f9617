"""The PTX modules of a population: its structures, bundles and texts together.

In: a population.  Out: PTX, which the backend runs and ``compile_ptx`` assembles without a GPU.

    >>> import exprkit as ek
    >>> from exprkit.backends.transpiler.program import parts
    >>> from exprkit.backends.transpiler.structures import find_structures
    >>> from exprkit.programs.lower import lower
    >>> program = lower(ek.parse(["x1 + p1", "x2 * p1"]))
    >>> [len(part.bundles) for part in parts(program, find_structures(program), "values", 362, 4)]
    [1]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from exprkit.backends.cases.bundles import ROWS, SMALL, CodeShape, shape_of
from exprkit.backends.precision import Precision
from exprkit.backends.transpiler.bundles import BundleLimits, fuse, modules
from exprkit.backends.transpiler.emit import Emitter
from exprkit.backends.transpiler.structures import Structures
from exprkit.backends.transpiler.templates import VALUES, Kind
from exprkit.programs.program import Program

# Measured on an H200 where nothing else is said: data/results/h200_ptx.md
MOST_INSTRUCTIONS = 400  # of a bundle, for one point of a vector: shared columns against code that the cache holds
COLUMN_REGISTERS = 96  # of a bundle: shared columns against registers for results, of 255
IN_ORDER = True  # results: bundles of consecutive expressions, blocks in the order of what they write ("Predictions")
OF_A_MODULE = 120  # structures that are compiled at a time ("Compiling"); smaller modules are ready sooner, run slower
MOST_OF_A_MODULE = 1 << 15  # an entry's bundles are numbered with 16 bits


def module_size(n_structures: int) -> int:
    """How many structures are compiled at a time: fewer where all cores would not be busy otherwise."""
    return OF_A_MODULE // 2 if 4 * OF_A_MODULE <= n_structures < 16 * OF_A_MODULE else OF_A_MODULE


class Transpiled:
    """A population's structures in bundles and modules of one shape; texts are made when asked for.

    ``chosen``: the structures to compile, by default all; ``of_a_module``: how many at a time; ``in_order``: bundles of
    expressions that follow one another, whose blocks run in that order.
    """

    def __init__(
        self,
        program: Program,
        structures: Structures,
        shape: CodeShape,
        itemsize: int,
        chosen: np.ndarray | None = None,
        of_a_module: int | None = None,
        in_order: bool = False,
    ) -> None:
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
            task,
            self.itemsize,
            shape.points,
            shape.block,
            resident=shape.resident,
            indirect=self.structures.indirect,
            **(usual | how),
        )

    @property
    def sizes(self) -> dict[str, int]:
        """Symbols of the case discussion: instructions, expressions per structure, whether columns are indirect."""
        every = self.structures
        longest = int(np.diff(every.first)[self.bundles.order].max(initial=0))
        return {"i": longest, "g": len(every.of) // max(len(every), 1), "d": int(every.indirect)}

    def holds(self, expression: int) -> bool:
        """Whether the structure of an expression is among these."""
        return bool(np.isin(self.structures.of[expression], self.bundles.order))

    def modules(self, kind: Kind, settings: Precision) -> Iterator[bytes]:
        """The texts of all modules, one after the other."""
        return (self.module(i, kind, settings) for i in range(len(self)))

    def module(self, i: int, kind: Kind, settings: Precision) -> bytes:
        """The text of module ``i``."""
        if (kind, settings) not in self._emitters:
            n_columns = len(self.program.column_code)
            self._emitters[kind, settings] = Emitter(self.structures, self.bundles, kind, settings, n_columns)
        return self._emitters[kind, settings].module(self.ranges[i])

    def one(self, expression: int, kind: Kind, settings: Precision, comment: str) -> str:
        """A module with nothing but the structure of one expression, and a comment above it."""
        s = int(self.structures.of[expression])
        alone = fuse(self.structures, self.program, self._limits, np.array([s]))
        emitter = Emitter(self.structures, alone, kind, settings, len(self.program.column_code))
        columns = ", ".join(f"column {c} = {text}" for c, text in enumerate(self.program.columns()))
        return emitter.module(range(1), {s: f"{comment}    ({columns or 'no columns'})"}).decode()


def parts(
    program: Program,
    structures: Structures,
    task: str,
    n_points: int,
    itemsize: int,
    changed: Callable[[CodeShape], CodeShape] | None = None,
    of_a_module: int | None = None,
) -> list[Transpiled]:
    """All structures, the small ones and the others each in the shape for them.

    ``changed``: what to make of the usual shapes; ``of_a_module``: structures that are compiled at a time.
    """
    is_small = np.diff(structures.first) <= SMALL
    by_row = len(structures.of) >= ROWS * len(structures)
    shapes = [shape_of(task, n_points, itemsize, small, by_row, structures.indirect) for small in (True, False)]
    shapes = [changed(shape) for shape in shapes] if changed else shapes
    chosen = [np.flatnonzero(is_small), np.flatnonzero(~is_small)]
    if shapes[0] == shapes[1]:
        shapes, chosen = shapes[:1], [np.arange(len(structures))]
    return [
        Transpiled(program, structures, shape, itemsize, numbers, of_a_module, IN_ORDER and task == VALUES)
        for shape, numbers in zip(shapes, chosen, strict=True)
        if len(numbers)
    ]
