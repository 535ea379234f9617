"""Bundles: several structures fused into one loop over the data points, so that they share loaded columns.

In: structures.  Out: which of them share a loop, and which loops a module.  A bundle is up to some dozen structures
whose code stands in one loop: a column is loaded once per point for all of them, and what two of
them compute alike is computed once.  A module is what is compiled at a time: some bundles.

    >>> import exprkit as ek
    >>> from exprkit.programs.lower import lower
    >>> from exprkit.backends.transpiler.bundles import BundleLimits, fuse
    >>> from exprkit.backends.transpiler.structures import find_structures
    >>> program = lower(ek.parse(["x1 + p1", "x2 * p1", "x1 - x2"]))
    >>> fuse(find_structures(program), program, BundleLimits(structures=2, columns=16, instructions=999)).first.tolist()
    [0, 2, 3]

An instance is a structure with the numbers of one expression.  A bundle's *batch* is an instance of each of its
structures; it has as many batches as the structure with the most expressions, and a structure that has fewer repeats
them: the same numbers are then written twice to the same place.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from exprkit.programs.program import COLUMN, Program
from exprkit.runtime.jit import compiled

if TYPE_CHECKING:
    from exprkit.backends.transpiler.structures import Structures


class BundleLimits(NamedTuple):
    """The most of a bundle; one structure alone may have more."""

    structures: int
    columns: int
    instructions: int


@dataclass(frozen=True, eq=False)
class Bundles:
    """Structures in the order of their bundles, and the expressions that each batch evaluates.

    ==================  ======  ==================  ============================================
    array               dtype   shape               what it holds
    ==================  ======  ==================  ============================================
    ``order``           int32   n_structures        structures, bundle by bundle
    ``first``           int32   n_bundles + 1       structures of bundle b: order[first[b]:...]
    ``n_batches``       int32   n_bundles           batches of each bundle
    ``first_instance``  int64   n_bundles           its batches in ``instances``, one after the other
    ``slots``           int64   n_bundles           pairs in ``instances`` of each instance
    ``instances``       uint32  (n_pairs, 2)        first number and expression of each, its columns
    ``cost``            int64   n_bundles           estimated work of a batch at one point
    ==================  ======  ==================  ============================================

    An instance is one pair in ``instances``; where columns are indirect, 2, 4, ...: behind the first one
    stand its columns.
    """

    order: np.ndarray
    first: np.ndarray
    n_batches: np.ndarray
    first_instance: np.ndarray
    slots: np.ndarray
    instances: np.ndarray
    cost: np.ndarray

    def __len__(self) -> int:
        return len(self.n_batches)


def fuse(
    structures: Structures,
    program: Program,
    limits: BundleLimits,
    chosen: np.ndarray | None = None,
    in_order: bool = False,
) -> Bundles:
    """Structures, by default all, in bundles.

    ``in_order``: a bundle has structures of expressions that follow one another, instead of those that are alike.
    """
    count = np.bincount(structures.of, minlength=len(structures))
    used = _used_columns(structures, len(program.column_code))
    size = np.diff(structures.first)
    by_result = [structures.example, structures.n_columns, -_size_class(count)]
    order = np.lexsort(by_result) if in_order else _similar(structures, used, count)
    if chosen is not None:
        order = order[np.isin(order, chosen)]
    first = _cut(order, count, size, used, structures.n_columns, limits)
    n_batches = _by_bundle(np.maximum, count[order], first)
    slots = _pairs(_by_bundle(np.maximum, structures.n_columns[order], first), structures.indirect)
    ends = np.cumsum(n_batches * np.diff(first) * slots)
    expressions = _Expressions(
        np.argsort(structures.of, kind="stable").astype(np.int32),
        np.concatenate([[0], np.cumsum(count)]),
        structures.numbers.first_instruction,
        structures.first_column,
        structures.n_columns,
        structures.columns,
    )
    instances = np.zeros((ends[-1] if len(ends) else 0, 2), np.uint32)
    _fill(instances, order, first, n_batches, slots, expressions)
    return Bundles(
        order.astype(np.int32),
        first.astype(np.int32),
        n_batches.astype(np.int32),
        np.concatenate([[0], ends])[:-1].astype(np.int64),
        slots,
        instances,
        _by_bundle(np.add, size[order], first),
    )


def _by_bundle(combine: np.ufunc, values: np.ndarray, first: np.ndarray) -> np.ndarray:
    return combine.reduceat(values, first[:-1]).astype(np.int64) if len(values) else np.zeros(0, np.int64)


def _pairs(n_columns: np.ndarray, indirect: bool) -> np.ndarray:
    """The pairs of an instance with ``n_columns`` columns: one, or as many as vectors of two hold them all."""
    return 2 * -(-(2 + n_columns) // 4) if indirect else np.ones_like(n_columns)


def _used_columns(structures: Structures, n_columns: int) -> np.ndarray:
    """Which columns each structure reads, bool (n_structures, n_columns); of a pair the high part.

    Where columns are indirect, none: no two structures share one.
    """
    if structures.indirect:
        return np.zeros((len(structures), 0), np.bool_)
    used = np.zeros((len(structures), max(n_columns, 1)), np.bool_)
    owner = np.repeat(np.arange(len(structures)), np.diff(structures.first))
    for operand in (structures.a, structures.b):
        column = operand & 3 == COLUMN
        used[owner[column], operand[column] >> 2] = True
    return used


def _similar(structures: Structures, used: np.ndarray, count: np.ndarray) -> np.ndarray:
    """An order in which neighbours have about as many expressions, the same columns and like beginnings."""
    bits = np.zeros(len(structures), np.uint64)
    for column in range(used.shape[1]):
        bits |= used[:, column].astype(np.uint64) << np.uint64(column % 64)
    start, stop = structures.first[:-1], structures.first[1:] - 1
    beginnings = [_packed(structures, np.minimum(start + 1, stop)), _packed(structures, start)]
    return np.lexsort([*beginnings, bits, structures.n_columns, -_size_class(count)])


def _size_class(count: np.ndarray) -> np.ndarray:
    """A number that is the same for counts that are about equal, within a quarter."""
    return np.floor(np.log(np.maximum(count, 1)) / np.log(1.25))


def _packed(structures: Structures, at: np.ndarray) -> np.ndarray:
    a, b = structures.a[at].astype(np.uint64), structures.b[at].astype(np.uint64)
    return structures.code[at].astype(np.uint64) << np.uint64(48) ^ a << np.uint64(24) ^ (b & np.uint64(0xFFFFFF))


def modules(n_structures: np.ndarray, most: int) -> list[range]:
    """Divide consecutive bundles of structures into modules of about ``most`` structures."""
    ends = np.cumsum(n_structures)
    if not len(ends):
        return []
    n = max(1, round(ends[-1] / most))
    edges = np.searchsorted(ends, np.arange(1, n) * ends[-1] / n, side="left") + 1
    edges = np.unique(np.concatenate([[0], edges, [len(ends)]]))
    return [range(int(a), int(b)) for a, b in itertools.pairwise(edges)]


# ── compiled ─────────────────────────────────────────────────────────────────────────


@compiled
def _cut(order, count, size, used, own, limits):
    """Where bundles begin, and the end.  ``own``: columns of a structure that it shares with no other.

    A structure joins the bundle before it while that stays within the limits, and while it has at least half as
    many expressions as the bundle's first one: it would repeat them more than twice otherwise.
    """
    first, has = np.zeros(len(order) + 1, np.int64), np.zeros(used.shape[1], np.bool_)
    n = n_columns = n_instr = 0
    for i in range(len(order)):
        s = order[i]
        new = own[s]
        for c in range(len(has)):
            new += used[s, c] and not has[c]
        if i > 0 and (
            i - first[n] >= limits.structures
            or n_columns + new > limits.columns
            or n_instr + size[s] > limits.instructions
            or 2 * count[s] < count[order[first[n]]]
        ):
            n += 1
            first[n] = i
            has[:] = False
            n_columns = n_instr = 0
        n_columns += own[s]
        for c in range(len(has)):
            n_columns += used[s, c] and not has[c]
            has[c] |= used[s, c]
        n_instr += size[s]
    n += len(order) > 0
    first[n] = len(order)
    return first[: n + 1]


class _Expressions(NamedTuple):
    by_structure: np.ndarray  # those of structure s: by_structure[offsets[s]:offsets[s + 1]]
    offsets: np.ndarray
    first_number: np.ndarray
    first_column: np.ndarray
    n_columns: np.ndarray  # of a structure
    columns: np.ndarray


@compiled
def _fill(instances, order, first, n_batches, slots, expressions):
    """Write all instances: bundle by bundle, batch by batch, structure by structure."""
    n = 0
    for b in range(len(n_batches)):
        for batch in range(n_batches[b]):
            for i in range(first[b], first[b + 1]):
                s = order[i]
                begin = expressions.offsets[s]
                e = expressions.by_structure[begin + batch % (expressions.offsets[s + 1] - begin)]
                instances[n, 0], instances[n, 1] = expressions.first_number[e], e
                for c in range(expressions.n_columns[s]):
                    column = expressions.columns[expressions.first_column[e] + c]
                    instances[n + 1 + c // 2, c % 2] = column
                n += slots[b]
