"""Code layouts of the transpiler's kernels, and the choice between them.

In: the task, points, what structures are like.  Out: a ``CodeShape``; the same choice as a tree.

    >>> from exprkit.backends.cases.bundles import shape_of
    >>> shape_of("values", 108_600, 4).points, shape_of("square", 108_600, 4).points
    (4, 4)

=========  =====================================================================================
question   accepted where
=========  =====================================================================================
points     there are few: code for one point a thread is enough
length     structures are short: registers suffice for all points of a vector
rows       few expressions share a structure: bundles of structures share columns
columns    each structure has its own code, which names its columns
many       (results of short structures) there are not very many points
=========  =====================================================================================
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from exprkit.backends.cases.discussion import Question, described, walk
from exprkit.backends.cases.inequality import Inequality, Values, number, symbol
from exprkit.backends.cases.tree import Discussion

# Measured on an H200: data/results/h200_ptx.md
VALUES = "values"
VECTOR_BYTES = 16  # that a thread loads or stores at once, at the most
SMALL = 8  # instructions of a small structure: its registers still suffice for all points of a vector
FEW, MANY = 2_000, 50_000  # points from which code for more points per thread pays
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
            points or self.points, block or self.block, structures or self.structures, None if block else self.resident
        )


class BundleCode(NamedTuple):
    """A code of the discussion: what was refused so far."""

    few: bool = True
    small: bool = True
    by_row: bool = False
    indirect: bool = False
    many: bool = False


def laid_out(task: str, itemsize: int, code: BundleCode) -> CodeShape:
    """The shape that a code is."""
    wide = VECTOR_BYTES // itemsize
    most = 4 if code.indirect else 8
    if code.few:
        few_rows = task == VALUES and code.by_row and code.indirect
        return CodeShape(wide // 2, 128, 1, None) if few_rows else CodeShape(1, 128, most, 4)
    if task == VALUES and code.small:
        if code.by_row:
            return CodeShape(wide, 256, 1, None)
        return CodeShape(wide, 256, 2, None) if code.many else CodeShape(wide, 128, 4, None)
    if task != VALUES and not code.by_row:  # more code than the caches hold: registers matter more than shared columns
        most = 4
    return CodeShape(wide, 128, most, None) if code.small else CodeShape(1, 128 * wide, most, 2)


@functools.cache
def questions(task: str) -> tuple[Question, ...]:
    """The questions of the discussion of layouts, each with the layout that its answer leads to."""
    results = task == VALUES
    rows: tuple[tuple[str, Callable[[BundleCode], bool], str, int, str, dict[str, bool]], ...] = (
        # name, of which codes, a symbol and the most that it may be, and else what becomes of the code
        ("points", lambda code: code.few, "N", FEW - 1, "more points a thread", {"few": False}),
        ("length", lambda code: code.small and not code.few, "i", SMALL, "more threads a block", {"small": False}),
        ("rows", lambda code: not code.by_row and (results or not code.few), "g", ROWS - 1, "row by row",
         {"by_row": True}),
        ("columns", lambda code: not code.indirect, "d", 0, "columns as data", {"indirect": True}),
        ("many", lambda code: results and code.small and not (code.few or code.by_row or code.many), "N", MANY - 1,
         "fewer structures", {"many": True}),
    )  # fmt: skip

    def question(row: Any) -> Question:
        name, applies, left, right, words, change = row
        asked = Inequality(symbol(left), number(right))
        return Question(
            name, lambda code: asked if applies(code) else None, lambda code: (words, code._replace(**change))
        )

    return tuple(map(question, rows))


def shape_of(
    task: str, n_points: int, itemsize: int, small: bool = True, by_row: bool = False, indirect: bool = False
) -> CodeShape:
    """The launch shape of structures, by the path through the tree: ``small`` ones have at most SMALL instructions.

    ``by_row``: there are ROWS expressions or more per structure, and results are made row by row; ``indirect``: columns
    are, so that structures of a bundle share none.

    That of sums depends on nothing but the first arguments, except for how many structures a bundle has, so that the
    sum of an expression's errors has the same bits in every population (in fast precision nearly: the assembler makes
    2^-x of 1 / 2^x where nothing else in the bundle wants 2^x).
    """
    values = {"N": n_points, "i": SMALL + (not small), "g": ROWS if by_row else 1, "d": int(indirect)}
    return laid_out(task, itemsize, walk(BundleCode(), questions(task), values)[0])


def why(task: str, values: Values) -> list[str]:
    """The path through the tree for these points, instructions, expressions per structure: a line an inequality."""
    return described(walk(BundleCode(), questions(task), values)[1], values)


def subject(task: str, itemsize: int, text: Callable[[CodeShape], Any] | None = None) -> Discussion:
    """The discussion of a task; ``text``: the code of a population in a shape, where there is one."""

    def shape_at(code: BundleCode) -> CodeShape:
        return laid_out(task, itemsize, code)

    def words(code: BundleCode) -> str:
        shape = shape_at(code)
        saved = f", registers for {shape.resident} blocks" if shape.resident else ""
        return (
            f"{shape.points} points a thread, {shape.block} threads a block, up to {shape.structures} structures a "
            f"bundle{saved}"
        )

    return Discussion(
        f"transpiler, {task}, {'float' if itemsize == 4 else 'double'}",
        BundleCode(),
        questions(task),
        ("N", "i", "g", "d"),
        words,
        None if text is None else lambda code: text(shape_at(code)),
        shape_at,
    )
