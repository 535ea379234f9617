"""Bundles: structures that run in one loop over the data points, so that they share its columns.

In: structures.  Out: which of them share a loop, and which loops a module.  A bundle is up to some dozen structures
whose code stands in one loop: a column is loaded once a point for all of them, and what two of
them compute alike is computed once.  A module is what is compiled at a time: some bundles.

    >>> import exprkit as ek
    >>> from exprkit.programs.lower import lower
    >>> from exprkit.backends.transpiler.bundles import bundles
    >>> from exprkit.backends.transpiler.structures import structures
    >>> program = lower(ek.parse(["x1 + p1", "x2 * p1", "x1 - x2"]))
    >>> bundles(structures(program), program, most=2, columns=16, instructions=999).first.tolist()
    [0, 2, 3]

A bundle's *row* is one expression for each of its structures; it has as many rows as the
structure with the most expressions, and a structure that has fewer repeats them: the same
numbers are then written twice to the same place.  Where columns are given (see ``structures``),
structures of a bundle share nothing but the loop.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from exprkit.backends.transpiler.loops import cut, fill_instances
from exprkit.backends.transpiler.structures import Structures, columns_of
from exprkit.programs.lower import Program


@dataclass(frozen=True, eq=False)
class Bundles:
    """Structures in the order of their bundles, and the expressions that each row evaluates.

    ==================  ======  ==================  ============================================
    array               dtype   shape               what it holds
    ==================  ======  ==================  ============================================
    ``order``           int32   n_structures        structures, bundle by bundle
    ``first``           int32   n_bundles + 1       structures of bundle b: order[first[b]:...]
    ``rows``            int32   n_bundles           rows of each bundle
    ``first_instance``  int64   n_bundles           its rows in ``instances``, one after the other
    ``slots``           int64   n_bundles           pairs in ``instances`` of each structure
    ``instances``       uint32  (n_pairs, 2)        first number and expression of each, its columns
    ``cost``            int64   n_bundles           estimated work of a row at one point
    ==================  ======  ==================  ============================================

    An expression is one pair in ``instances``; where columns are given, 2, 4, ...: behind the first one
    stand its columns.
    """

    order: np.ndarray
    first: np.ndarray
    rows: np.ndarray
    first_instance: np.ndarray
    slots: np.ndarray
    instances: np.ndarray
    cost: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)


def bundles(
    found: Structures, program: Program, chosen: np.ndarray | None = None, *, most: int, columns: int,
    instructions: int, in_order: bool = False,
) -> Bundles:  # fmt: skip
    """Group structures into bundles.

    Parameters
    ----------
    found : Structures
    program : Program
        What they were found in.
    chosen : int array, optional
        Which structures; by default all.
    most, columns, instructions
        The most structures, columns and instructions of a bundle (one structure alone may have more).
    in_order : bool
        Structures of expressions that follow one another, instead of those that are alike.
    """
    count = np.bincount(found.of, minlength=len(found))
    n_columns = len(program.column_code)
    used = columns_of(found, n_columns)
    size = np.diff(found.first)
    by_result = [found.example, found.n_columns, -_size_class(count)]
    order = np.lexsort(by_result) if in_order else _similar(found, used, count)
    if chosen is not None:
        order = order[np.isin(order, chosen)]
    first = cut(order, count, size, used, found.n_columns.astype(np.int64), most, columns, instructions)
    starts = first[:-1]
    none = np.zeros(0, np.int64)
    rows = np.maximum.reduceat(count[order], starts) if len(order) else none
    slots = pairs(np.maximum.reduceat(found.n_columns[order], starts)) if found.given and len(order) else rows * 0 + 1
    first_instance = np.concatenate([[0], np.cumsum(rows * np.diff(first) * slots)])[:-1].astype(np.int64)
    by_structure = np.argsort(found.of, kind="stable").astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(count)])
    instances = fill_instances(
        order, first, rows, count, slots, offsets, by_structure, found.numbers.first_word, found.first_column,
        found.columns, found.n_columns,
    )  # fmt: skip
    cost = np.add.reduceat(size[order], starts) if len(order) else none
    return Bundles(
        order.astype(np.int32), first.astype(np.int32), rows.astype(np.int32), first_instance, slots, instances, cost
    )


def pairs(n_columns: np.ndarray) -> np.ndarray:
    """How many pairs an expression takes with so many columns: read as vectors of two."""
    return 2 * -(-(2 + n_columns.astype(np.int64)) // 4)


def _similar(found: Structures, used: np.ndarray, count: np.ndarray) -> np.ndarray:
    """An order in which neighbours have about as many expressions, the same columns and like beginnings."""
    bits = np.zeros(len(found), np.uint64)
    for column in range(used.shape[1]):
        bits |= used[:, column].astype(np.uint64) << np.uint64(column % 64)
    start, stop = found.first[:-1], found.first[1:] - 1
    second = np.minimum(start + 1, stop)
    keys = [packed(found, second), packed(found, start), bits, found.n_columns, -_size_class(count)]
    return np.lexsort(keys)


def _size_class(count: np.ndarray) -> np.ndarray:
    """The same number for counts that are about equal, within a quarter."""
    return np.floor(np.log(np.maximum(count, 1)) / np.log(1.25))


def packed(found: Structures, at: np.ndarray) -> np.ndarray:
    """One instruction of each structure as a number."""
    a, b = found.a[at].astype(np.uint64), found.b[at].astype(np.uint64)
    return found.code[at].astype(np.uint64) << np.uint64(48) ^ a << np.uint64(24) ^ (b & np.uint64(0xFFFFFF))


def modules(n_structures: np.ndarray, most: int) -> list[range]:
    """Consecutive bundles to modules of about ``most`` structures.

    Parameters
    ----------
    n_structures : (n_bundles)
        Structures of each bundle.
    """
    ends = np.cumsum(n_structures)
    if not len(ends):
        return []
    n = max(1, round(ends[-1] / most))
    edges = np.searchsorted(ends, np.arange(1, n) * ends[-1] / n, side="left") + 1
    edges = np.unique(np.concatenate([[0], edges, [len(ends)]]))
    return [range(int(a), int(b)) for a, b in itertools.pairwise(edges)]
