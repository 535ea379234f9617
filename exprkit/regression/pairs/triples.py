"""Sums of three functions: one is subtracted from y, and the pair that makes the remainder is looked up.

In: a ``Pool``, its ``Partners``, y at its points.  Out: formulas ``outer(g + f * (a + b h))`` and
``f0 * inner(g + f * (a + b h))`` that are y but for rounding, also with ``/`` and ``-``.

Sizes of functions rise, and their numbers grow by a factor for every token: the numbers of the three in the pool,
multiplied, may be so large and no larger (a hyperbolic cross), which is all triples up to some size.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.operators import defined
from exprkit.operators.dimensions import operand_dimension
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.values import values_of
from exprkit.regression.pairs import links
from exprkit.regression.pairs.confirm import TRIED, confirmed
from exprkit.regression.pairs.join import Lookup, Pairs, Partners, may_have_partner, partner_of
from exprkit.regression.pairs.links import remainder
from exprkit.regression.pairs.pool import Pool
from exprkit.regression.pairs.ruled_pool import RuledPool
from exprkit.regression.problem.effort import WORK
from exprkit.regression.problem.rows import Rows
from exprkit.regression.rules.admission import have_same_dimension
from exprkit.runtime import slices
from exprkit.runtime.budget import check
from exprkit.runtime.jit import compiled

ROOM = 300_000  # product of three functions' numbers, at most (chosen, not measured)
WITHIN_OPERATOR = 0.3  # share of ROOM for what is within an operator,
BESIDE_FACTOR = 0.3  # beside a factor,
WITHIN_BESIDE_FACTOR = 0.1  # and both
MAX_G = 3_000  # functions g that are subtracted (chosen, not measured)
MAX_FACTORS = 60  # functions f0 (chosen, not measured)
SLICE = 1 << 18  # lookups that a thread does at a time
MAX_TRIPLES = 64  # triples of a slice
WITHIN_ROW = links.MINUS + 1  # one more way: y is an operator of the rest


class Removal(NamedTuple):
    """One step from y to a remainder: how it is undone, and the number of a function or an operator."""

    way: int
    what: Any

    def off(self, v: np.ndarray, f: np.ndarray) -> np.ndarray | None:
        """The remainder of v; ``f``: the function's values, of any kind where there is none."""
        return links.inverted(self.what, v) if self.way == WITHIN_ROW else remainder(self.way, v, f)

    def on(self, rest: Expression, f: Expression) -> Expression:
        """The expression of which ``off`` leaves ``rest``."""
        return links.around_of(self.what, rest) if self.way == WITHIN_ROW else links.beside(self.way, f, rest)


class _Base(NamedTuple):
    """Values that functions g are subtracted from: the steps from y to them, their dimension, their share of ROOM."""

    v: np.ndarray
    removals: tuple[Removal, ...]
    dimension: float
    share: float


class _Triple(NamedTuple):
    """The steps from y to a remainder, and the pair of functions that makes it."""

    size: int
    removals: tuple[Removal, ...]
    way: int
    f: int
    h: int


def formulas(
    pool: Pool,
    partners: Partners,
    y: np.ndarray,
    rows: Rows,
    unary: Sequence[defined.Written],
    dimension: float = np.nan,
) -> Iterator[list[Expression]]:
    """Exact formulas of three functions for a y of this dimension, a list for each operator or factor taken off it."""
    with np.errstate(all="ignore"):
        factors = np.ascontiguousarray(pool.values), 1 / pool.values
    for base in _bases(pool, y, unary, dimension):
        check(WORK.triples_check)
        triples = sorted(_triples(base, pool, partners.lookup, factors), key=lambda triple: triple.size)
        yield [formula for triple in triples[:TRIED] for formula in _formulas(triple, pool, rows)]


def _bases(pool: Pool, y: np.ndarray, unary: Sequence[defined.Written], dimension: float) -> list[_Base]:
    """y, y within operators, y without a factor, and that within operators; those with most room first."""
    invertible = [row for row in unary if links.inverse(row) is not None]
    whole = _Base(y, (), dimension, 1.0)
    undone = (links.INVERSE, *links.UNDONE) if np.isnan(dimension) else ()
    bases = [whole, *_within(whole, invertible, WITHIN_OPERATOR), *_within(whole, undone, WITHIN_OPERATOR)]
    dimensions, values = _dimensions(pool), pool.values[:MAX_FACTORS]
    for rank, k in enumerate(np.flatnonzero(np.ptp(values, axis=1) > 0).tolist()):
        for way, sign in ((links.TIMES, 1), (links.OVER, -1)):
            v = (removal := Removal(way, k)).off(y, values[k])
            if v is not None and np.isfinite(v).all():
                dimension_of_v = sign * (dimension - float(dimensions[k]))
                bases.append(_Base(v, (removal,), dimension_of_v, BESIDE_FACTOR / (rank + 1)))
                bases += _within(bases[-1], invertible, WITHIN_BESIDE_FACTOR / (rank + 1))
    return sorted(bases, key=lambda base: -base.share)


def _within(base: _Base, invertible: Sequence[defined.Written | links.Undone], share: float) -> Iterator[_Base]:
    for row in invertible:
        v = links.inverted(row, base.v)
        dimension = np.nan if isinstance(row, links.Undone) else operand_dimension(row, base.dimension)
        if v is not None and dimension is not None:
            yield _Base(v, (*base.removals, Removal(WITHIN_ROW, row)), dimension, share)


def _dimensions(pool: Pool) -> np.ndarray:
    return pool.dimensions if isinstance(pool, RuledPool) else np.full(len(pool), np.nan)


def _triples(base: _Base, pool: Pool, lookup: Lookup, factors: tuple[np.ndarray, np.ndarray]) -> list[_Triple]:
    """Triples of a base: every g is subtracted from and added to it, and a pair that makes the remainder looked up."""
    room = int(ROOM * base.share)
    g = np.flatnonzero(have_same_dimension(_dimensions(pool), base.dimension))[: min(MAX_G, room)]
    limits = np.minimum(room // np.arange(1, len(g) + 1), len(pool))
    is_visible = (np.abs(pool.values[g]) / links.HIDDEN <= np.abs(base.v)).all(axis=1)
    g, limits = g[is_visible], limits[is_visible]
    rests = np.concatenate([base.v - pool.values[g], base.v + pool.values[g]])
    g, limits, ways = np.tile(g, 2), np.tile(limits, 2), np.repeat([links.PLUS, links.MINUS], len(g))
    cuts = slices.cut_into(np.append(0, np.cumsum(limits)), max(1, int(limits.sum()) // SLICE))
    triples = []
    for way, remainders, f in ((links.TIMES, rests, factors[1]), (links.OVER, _inverse(rests), factors[0])):
        for k in range(0, len(cuts), 8):
            check(WORK.triples_check)
            look_up = functools.partial(_look_up_slice, _Rests(remainders, limits, f), lookup)
            for i, j, h in itertools.chain(*slices.each(look_up, cuts[k : k + 8])):
                removals = (*base.removals, Removal(int(ways[i]), int(g[i])))
                functions = [removal.what for removal in removals if removal.way != WITHIN_ROW] + [j, h]
                size = int(pool.sizes[functions].sum(dtype=np.int64))
                triples.append(_Triple(size, removals, way, j, h))
    return triples


def _inverse(values: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return 1 / values


def _formulas(triple: _Triple, pool: Pool, rows: Rows) -> list[Expression]:
    """Formulas of a triple that are exact at all rows."""
    parts = [pool.expression(0 if removal.way == WITHIN_ROW else removal.what) for removal in triple.removals]
    target = rows.y
    for removal, values in zip(triple.removals, values_of(parts, rows.X), strict=True):
        remainder = removal.off(target, values)
        if remainder is None or not np.isfinite(remainder).all():
            return []
        target = remainder
    pairs = Pairs(np.array([triple.f]), np.array([triple.h]))
    formulas = confirmed(pairs, links.Link(None, triple.way, None), pool, rows.with_y(target))
    for removal, part in zip(triple.removals[::-1], parts[::-1], strict=True):
        formulas = [removal.on(formula, part) for formula in formulas]
    return [simplified(formula) for formula in formulas]


class _Rests(NamedTuple):
    """Remainders by row; how many functions f are tried for each; factors by function and point."""

    rests: np.ndarray
    limits: np.ndarray
    factors: np.ndarray


def _look_up_slice(work: _Rests, lookup: Lookup, begin: int, end: int) -> list[tuple[int, ...]]:
    triples = np.empty((MAX_TRIPLES, 3), np.int64)
    n = int(_look_up(work, lookup, triples, begin, end))
    return [tuple(row) for row in triples[:n].tolist()]


@compiled
def _look_up(work, lookup, triples, begin, end):
    """Write numbers of remainders, functions f and functions h; return how many triples there are."""
    n_points = work.rests.shape[1]
    n, q, signature, room = 0, np.empty(n_points), np.empty(2), np.empty(1)
    for i in range(begin, end):
        for f in range(work.limits[i]):
            for k in range(4):
                q[k] = work.rests[i, k] * work.factors[f, k]
            if not may_have_partner(q, lookup, signature, room):
                continue
            for k in range(n_points):
                q[k] = work.rests[i, k] * work.factors[f, k]
            h = partner_of(q, lookup, signature)
            if h >= 0 and n < len(triples):
                triples[n, 0], triples[n, 1], triples[n, 2] = i, f, h
                n += 1
    return n
