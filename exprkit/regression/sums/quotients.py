"""Quotients of sums, and roots of quadratic equations: sums in which y itself stands, by least squares.

In: a ``Pool``, the ``Rows`` at its rows, values near y, a transformation.  Out: ``u(n / (1 - d))`` and
``p + sqrt(p^2 + q)``; n and d, or p and q, are together sums of a few functions with numbers, and a number.

Where ``v = n / (1 - d)``, v is the sum ``n + d v``, and where ``v = p + sqrt(p^2 + q)`` its square is ``2 p v + q``: so
terms are chosen among functions f and products v f by best-subset selection (``selection``), to be fitted as formulas
afterwards (E. C. Levy, "Complex-curve fitting", IRE Trans. Automatic Control 4, 1959).  Noise in the products would
lower their coefficients; where a formula is known that leaves noise alone, its values stand for v there, as
instruments do (T. Söderström, P. Stoica, "Instrumental variable methods for system identification", 1983).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.operators import defined, ops
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.trees import Tree, expression_of
from exprkit.regression.pairs.pool import Pool, without_multiples
from exprkit.regression.problem.rows import Rows
from exprkit.regression.sums.dependent import Term, solved
from exprkit.regression.sums.formulas import Transform, weighted, weighted_by_share
from exprkit.regression.sums.linear import coefficients
from exprkit.regression.sums.selection import Subset, selected

# Chosen, not measured.
PLAIN, BESIDE = 40, 30  # functions f that are terms, and that are terms as v f
OTHER = 1.0  # complexity by which functions that are no products of powers come later
TERMS, KEPT = 3, 400  # of a sum beside a number; sums of a size that further terms are added to: nearly all pairs
RETURNED = 12  # sums of a size: very many are near y where noise is small
FRACTION = 3  # tokens of a fraction line and of 1 less something
SMALL = 0.1  # of the usual size of v: smaller ones are as exact as that, whatever the noise
NEGLIGIBLE = 1e-9  # share of the largest term that is none


class _Addends(NamedTuple):
    """Functions f, then products v f, with their values by row, the trees of f (None: 1), and sizes in tokens."""

    values: np.ndarray
    trees: list[Tree | None]
    sizes: np.ndarray
    n_plain: int


def quotients(
    pool: Pool, rows: Rows, near: np.ndarray | None, place: Transform, root: defined.Written | None, most_size: int
) -> Iterator[Expression]:
    """Quotients within a transformation, and with ``root``, the square root, the roots of quadratic equations.

    ``near``: values for y in products, those of a formula that leaves noise alone; None: y itself, whose errors count
    as shares of it.
    """
    target = weighted_by_share(place, rows, SMALL) if near is None else weighted(place, rows)
    beside = place.behind(rows.y if near is None else near)
    if target is None or beside is None:
        return
    v, weight = target
    for power in (1, 2) if root is not None else (1,):
        terms, target_v = _terms(pool, beside, power), v**power
        with np.errstate(all="ignore"):
            of_power = weight / np.maximum(np.abs(v), np.median(np.abs(v))) ** (2 * power - 2)
            of_power = of_power / of_power.sum()
            size = float(np.abs(target_v).max()) or 1.0
        if not np.isfinite(of_power).all():
            continue
        select = functools.partial(selected, first=(PLAIN + BESIDE, 0), kept=KEPT, returned=RETURNED)
        subsets = select(terms.values, terms.sizes, target_v / size, of_power, TERMS, most_size - FRACTION)
        for subset in subsets:
            if max(subset.functions) >= terms.n_plain:  # else a sum alone
                for tree in _solutions(terms, subset, target_v, of_power, power, root):
                    yield simplified(place.expression(expression_of(tree)))


def _terms(pool: Pool, beside: np.ndarray, power: int) -> _Addends:
    """The simplest functions of a pool, and times ``beside``, to whose square that times 1 is a term as well."""
    places = _simplest(pool)
    values, sizes = pool.values[places], pool.sizes[places].astype(np.int64)
    trees: list[Tree | None] = [*map(pool.tree, places)]
    times, of_times, names = values[:BESIDE], sizes[:BESIDE], [*trees[:BESIDE]]
    if power == 2:
        times, of_times, names = np.vstack([np.ones_like(beside), times]), np.append(0, of_times), [None, *names]
    return _Addends(np.vstack([values, beside * times]), [*trees, *names], np.append(sizes, of_times), len(places))


def _simplest(pool: Pool) -> list[int]:
    """The simplest functions that are no sums, and no multiples of each other; products of powers come first."""
    costs, is_product = pool.costs(), np.arange(len(pool)) < pool.n_leaves
    for i in range(pool.n_leaves, len(pool)):
        is_power = pool.made_by[i] in pool.powers
        if is_power or pool.made_by[i] in (ops.MUL, ops.DIV):
            is_product[i] = is_product[pool.left[i]] and (is_power or is_product[pool.right[i]])
    costs[~is_product] += OTHER
    order = np.argsort(costs, kind="stable")
    order = order[(np.ptp(pool.values[order], axis=1) > 0) & ~np.isin(pool.made_by[order], [ops.ADD, ops.SUB])]
    return without_multiples(pool.values, order.tolist(), PLAIN)


def _solutions(
    terms: _Addends, subset: Subset, v: np.ndarray, weight: np.ndarray, power: int, root: defined.Written | None
) -> Iterator[Tree]:
    """The formulas of v whose power is a sum of these terms and a number, by least squares."""
    deviation = np.sqrt(weight)
    columns = np.column_stack([*terms.values[list(subset.functions)], np.ones(len(v))]) * deviation[:, None]
    numbers = coefficients(columns, v * deviation)
    if not np.isfinite(numbers).all():
        return
    size = np.abs(columns * numbers).max(axis=0)
    above: list[Term] = []
    beside: list[Term] = []
    for k, a, is_term in zip([*subset.functions, -1], numbers.tolist(), size > NEGLIGIBLE * size.max(), strict=True):
        if is_term:
            (beside if k >= terms.n_plain else above).append((a, terms.trees[k] if k >= 0 else None))
    yield from solved(above, beside, power, root)
