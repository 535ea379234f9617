"""Quotients of sums, and roots of quadratic equations, that are y but for rounding: functions that depend linearly.

In: a ``Pool``, the ``Rows`` at its rows, operators.  Out: ``u(n / (1 - d))`` and ``p + sqrt(p^2 + q)``; n and
d, or p and q, are together sums of up to three functions with numbers, and a number.

How, plainly::

    columns: functions f of the pool, and v f, where v is what y has to be within u
    at five rows v (or v^2), 1 and three columns are five vectors of five numbers; they are dependent where the part of
    the third column that is left beside v and 1 lies in the plane of what is left of the other two

So for every pair of the first columns a cross product, and its product with all columns, which is a moment for very
many triples.  What is dependent at five rows is regressed at all of them.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.operators import defined, ops
from exprkit.regression.formulas.numbers import plain_numbers
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.trees import Tree, combination, expression_of
from exprkit.regression.pairs.links import inverse
from exprkit.regression.pairs.pool import Pool, is_power, without_multiples
from exprkit.regression.problem.effort import WORK
from exprkit.regression.problem.rows import Rows
from exprkit.regression.sums.formulas import Transform, transforms
from exprkit.regression.sums.inside import is_logarithm
from exprkit.regression.sums.linear import coefficients
from exprkit.runtime import slices
from exprkit.runtime.budget import check
from exprkit.runtime.jit import compiled
from exprkit.text.tokens import OPERATOR

OF_V, SUMMED, FIRST = 200, 250, 500  # functions f of which pairs are made: v f, f with one another, f with v f
EVERY = 1_000  # those that are the third one, and as many times v
ROWS = 5  # at which columns are compared
LEFT = 1e-6  # share of a column that has to be left beside others
IN_PLANE = 1e-9  # of a column of length 1, beside two others
NEGLIGIBLE = 1e-9  # share of the largest term that is none
EXACT = 1e-9  # error of the regression, as a share of v, at every row
MOST_FOUND, MOST_GIVEN, TOGETHER = 256, 64, 4_096  # triples of a slice; formulas; pairs between two looks at the clock

Term = tuple[float, Tree | None]  # a number times a function; None: 1


class _Projections(NamedTuple):
    """By axis and number what is left of columns beside v and 1, of length 1; and beside 1, by number and axis."""

    left: Annotated[np.ndarray, "float64[3, n]"]
    beside_1: Annotated[np.ndarray, "float64[n, 4]"]
    first: Annotated[np.ndarray, "int64[n_first]"]
    n_plain: int  # columns before those of v f


def dependent(
    pool: Pool, rows: Rows, operators: Sequence[defined.Written], within: bool = False
) -> Iterator[list[Expression]]:
    """Exact quotients of sums and roots of quadratic equations, or quotients within operators.

    Operators of products are added to the pool, which is of these rows.
    """
    if len(rows) <= ROWS + 3 or not {ops.ADD, ops.MUL, ops.DIV} <= {row.code for row in operators}:
        return
    unary = [row for row in operators if row.arity == 1]
    pool.operate(2 * len(pool))
    order = np.argsort(pool.costs(), kind="stable")
    order = order[np.ptp(pool.values[order], axis=1) > 0]
    beside = pool.values[:, 1:] - pool.values[:, :1]  # what differs by a number is one column beside 1
    constant = np.flatnonzero((pool.values == 1).all(axis=1))[:1]
    places = np.append(constant, without_multiples(beside, order.tolist(), EVERY)).astype(np.int64)
    root = next((row for row in unary if is_power(row) and row.numpy(np.float64(9.0)) == 3.0), None)
    for place in transforms(unary):
        if place.over or within is (place.outer is None):
            continue
        if place.row is not None and not makes_products(place.row):
            continue
        v = place.behind(rows.y)
        if v is None or not np.isfinite(v).all() or (v == 0).any():
            continue
        for power in (1, 2) if place.outer is None and root is not None else (1,):
            formulas = itertools.islice(_formulas(pool, places, v, power, place, root), MOST_GIVEN)
            yield sorted(formulas, key=lambda formula: formula.n_tokens)


def makes_products(row: defined.Written) -> bool:
    """Whether an operator is a power, a logarithm or an exponential."""
    return is_power(row) or is_logarithm(row) or is_logarithm(inverse(row) or row)


def _formulas(
    pool: Pool, places: np.ndarray, v: np.ndarray, power: int, place: Transform, root: defined.Written | None
) -> Iterator[Expression]:
    """The formulas of all dependent triples of columns beside 1 and this power of v."""
    f, target = pool.values[places], v**power
    with np.errstate(all="ignore"):
        values = np.concatenate([f, v * f]) / np.abs(target)
        length = np.abs(values).max(axis=1)
        values /= length[:, None]
    ones = 1 / np.abs(target)
    columns, number = _left(values[:, :ROWS], np.sign(target[:ROWS]), ones[:ROWS], len(f))
    seen = set()
    for triple in _dependent(columns):
        chosen = [int(number[k]) for k in triple]
        numbers = _regressed(values[chosen], np.sign(target), ones)
        if numbers is None:
            continue
        nonzero = tuple(sorted((k, a) for k, a in zip([*chosen, -1], numbers, strict=True) if a))
        if not nonzero or (key := tuple(k for k, _ in nonzero)) in seen:
            continue
        seen.add(key)
        terms: list[Term] = [
            (a, None) if k < 0 else (a / float(length[k]), pool.tree(int(places[k % len(f)]))) for k, a in nonzero
        ]
        above = [term for term, (k, _) in zip(terms, nonzero, strict=True) if k < len(f)]
        beside = [term for term, (k, _) in zip(terms, nonzero, strict=True) if k >= len(f)]
        for total in solved(above, beside, power, root):
            yield simplified(place.expression(plain_numbers(simplified(expression_of(total)))))


def _left(values: np.ndarray, v: np.ndarray, ones: np.ndarray, n: int) -> tuple[_Projections, np.ndarray]:
    """The usable columns, and their numbers; those of f and of v f take turns to be first."""
    v, ones = v / np.abs(v).max(), ones / np.abs(ones).max()  # whose squares are numbers
    beside_1 = np.linalg.svd((ones / np.linalg.norm(ones))[:, None])[0][:, 1:]
    both = np.column_stack([v / np.linalg.norm(v), ones / np.linalg.norm(ones)])
    beside = np.linalg.svd(both)[0][:, 2:]
    with np.errstate(all="ignore"):
        left, other = values @ beside, values @ beside_1
        length = np.linalg.norm(left, axis=1)
        usable = np.isfinite(values).all(axis=1) & (length > LEFT * np.linalg.norm(values, axis=1))
        left, other = left / length[:, None], other / np.linalg.norm(other, axis=1)[:, None]
    number = np.flatnonzero(usable)
    first = np.flatnonzero(np.where(number < n, number < FIRST, number - n < OF_V))
    columns = _Projections(
        np.ascontiguousarray(left[number].T), np.ascontiguousarray(other[number]), first, int((number < n).sum())
    )
    return columns, number


def _dependent(columns: _Projections) -> Iterator[tuple[int, ...]]:
    n = len(columns.first)
    pairs = n * (n - 1) // 2
    ends = np.append(0, np.cumsum(np.arange(n - 1, -1, -1)))
    cuts = slices.cut_into(ends, max(1, pairs // TOGETHER)) if n > 1 else []
    for k in range(0, len(cuts), 8):
        check(WORK.sums_check)
        for triples in slices.each(functools.partial(_look_slice, columns), cuts[k : k + 8]):
            yield from triples


def _look_slice(columns: _Projections, begin: int, end: int) -> list[tuple[int, ...]]:
    triples = np.empty((MOST_FOUND, 3), np.int64)
    n = int(_look(columns, triples, begin, end))
    return [tuple(row) for row in triples[:n].tolist()]


@compiled
def _look(columns, triples, begin, end):
    """Write dependent triples whose first column is from begin to end; return how many there are."""
    n, count, left = 0, columns.left.shape[1], columns.left
    near = np.empty(count, np.bool_)
    for i in range(begin, end):
        a = columns.first[i]
        for j in range(i + 1, len(columns.first)):
            b = columns.first[j]
            x = left[1, a] * left[2, b] - left[2, a] * left[1, b]
            y = left[2, a] * left[0, b] - left[0, a] * left[2, b]
            z = left[0, a] * left[1, b] - left[1, a] * left[0, b]
            length = np.sqrt(x * x + y * y + z * z)
            if length < LEFT:
                continue
            x, y, z = x / length, y / length, z / length
            hits, last, of_v = 0, count, np.int64(a >= columns.n_plain) + np.int64(b >= columns.n_plain)
            if of_v != 1:
                last = columns.n_plain
            if of_v == 0 and j >= SUMMED:
                continue
            for k in range(last):
                near[k] = abs(x * left[0, k] + y * left[1, k] + z * left[2, k]) < IN_PLANE
                hits += near[k]
            if hits > 2 - 2 * (of_v == 2):  # a and b are near themselves
                n = _note(columns, triples, near[:last], a, b, n)
    return n


@compiled
def _note(columns, triples, near, a, b, n):
    """Append a, b and each near column that does not depend on a, b and 1 alone; returns how many triples there are."""
    p, q, r = columns.beside_1[a], columns.beside_1[b], np.empty(4)
    along = 0.0
    for i in range(4):
        along += p[i] * q[i]
    square = 0.0
    for i in range(4):
        square += (q[i] - along * p[i]) ** 2
    for k in range(len(near)):
        if not near[k] or k in (a, b) or n == len(triples) or square < LEFT**2:
            continue
        first, second, rest = 0.0, 0.0, 0.0
        for i in range(4):
            r[i] = columns.beside_1[k, i]
            first += r[i] * p[i]
            second += r[i] * (q[i] - along * p[i])
        for i in range(4):
            rest += (r[i] - first * p[i] - second / square * (q[i] - along * p[i])) ** 2
        if rest > LEFT**2:
            triples[n, 0], triples[n, 1], triples[n, 2] = a, b, k
            n += 1
    return n


def _regressed(values: np.ndarray, v: np.ndarray, ones: np.ndarray) -> list[float] | None:
    """Coefficients of three columns and 1 that make v at all rows, negligible ones 0; None where they do not."""
    columns = np.concatenate([values, ones[None]]).T
    use = np.ones(4, bool)
    numbers = np.zeros(4)
    for _ in range(4):
        numbers[:] = 0.0
        numbers[use] = coefficients(columns[:, use], v)
        terms = np.abs(numbers * columns).max(axis=0)
        needed = use & (terms > NEGLIGIBLE * terms.max())
        if (needed == use).all():
            break
        use = needed
    with np.errstate(all="ignore"):
        exact = bool((np.abs(columns @ numbers - v) <= EXACT * np.maximum(1.0, 1e-3 * terms.max())).all())
    return numbers.tolist() if exact else None


def solved(above: Sequence[Term], beside: Sequence[Term], power: int, root: defined.Written | None) -> Iterator[Tree]:
    """v = above + v * beside, or the two v of v^2 = above + v * beside."""
    if not above:
        return
    n = combination(above)
    if power == 1:
        yield (OPERATOR, ops.DIV, n, combination([(1.0, None), *((-a, tree) for a, tree in beside)])) if beside else n
        return
    assert root is not None
    if not beside:
        yield (OPERATOR, root.code, n)
        return
    p = combination([(a / 2, tree) for a, tree in beside])
    under: Tree = (OPERATOR, root.code, (OPERATOR, ops.ADD, (OPERATOR, ops.MUL, p, p), n))
    yield OPERATOR, ops.ADD, p, under
    yield OPERATOR, ops.SUB, p, under
