"""Factors with one parameter inside, times a line: ``f * u(c * h) * (a + b * g)`` and ``f * u(c * h) / (a + b * g)``.

In: functions f, h and g, the ``Rows``, operators.  Out: formulas of least error, the best first.

As in ``templates`` c is on a grid at first, all f u(c h) / y are regressed with all g at once, and c is refined by a
golden section search for those of least error.  So formulas of two operators with parameters inside, or with the same
parameter twice, are in reach.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.operators import defined, ops
from exprkit.regression.formulas.numbers import plain_numbers
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.trees import Tree, combination, expression_of
from exprkit.regression.pairs.pool import Pool, without_multiples
from exprkit.regression.problem.effort import WORK
from exprkit.regression.problem.rows import Rows
from exprkit.regression.shapes.templates import (
    EDGE_GRID,
    SHARE_GRID,
    STEP,
    fit_line,
    golden_section,
    grid_of,
    simplest,
    values_at,
)
from exprkit.regression.sums.inside import Inner, with_a_number
from exprkit.regression.sums.regress import regressed
from exprkit.runtime.budget import check, count, spend
from exprkit.text.tokens import CONSTANT, OPERATOR

# all chosen, not measured
ROWS = 16  # of the data, for the grid search
MAX_F = 8
MAX_H = 20
ANY_G = 120  # functions g of any kind, those of least cost
PLAIN_G = 240  # functions g of variables alone
NEAR_EDGE = np.append(SHARE_GRID[: np.searchsorted(SHARE_GRID, EDGE_GRID[0] / 1.1)], EDGE_GRID)  # of -c h below 1
REFINED = 60  # formulas whose c is refined
MAX_FORMULAS = 20

_Column = tuple[int, Inner, int, float]  # f, u, h and c of a factor f u(c h)


def factored(pools: Sequence[Pool], rows: Rows, operators: Sequence[defined.Written]) -> list[Expression]:
    """The formulas of least error over the first functions f, h and g of two pools, the best first.

    The pools have any functions, and functions of variables alone, at these rows or others.
    """
    if not len(rows) or (rows.y == 0).any():
        return []
    cheapest = without_multiples(pools[0].values, np.argsort(pools[0].costs(), kind="stable").tolist(), ANY_G)
    chosen = simplest(pools[0], MAX_F), simplest(pools[1], MAX_H), simplest(pools[1], PLAIN_G)
    trees = [[pools[k].tree(i) for i in group] for k, group in zip((0, 1, 1), chosen, strict=True)]
    trees[2] = [pools[0].tree(i) for i in cheapest] + trees[2]
    few = rows.subsample(min(ROWS, len(rows)), 0)
    f, h, g = (values_at(group, few.X) for group in trees)
    factors, columns = _factors(f / few.y, h, with_a_number(operators))
    if not columns:
        return []
    g = g - g[:, :1]
    with np.errstate(all="ignore"):
        factors_and_inverses, g = np.concatenate([factors, 1 / factors]), g / np.abs(g).max(axis=1)[:, None]
    usable = np.flatnonzero(np.isfinite(g).all(axis=1))
    ones, weight, groups = np.ones(len(few)), few.w / few.w.sum(), np.array([0, len(usable)])
    best = regressed(factors_and_inverses, g[usable], ones, weight, groups)
    count(len(factors_and_inverses) * len(usable))
    f, h, g = (values_at(group, rows.X) for group in trees)
    fitted = []
    for k in _best_of_each(best.error[:, 0], columns):
        check()
        column, index = columns[k % len(columns)], int(usable[best.h[k, 0]])
        of_g = trees[0], trees[1], trees[2][index]
        error, formula = _refine((f, h, g[index]), rows, column, k >= len(columns), of_g)
        if formula is not None:
            fitted.append((error, formula))
    return [formula for _, formula in sorted(fitted, key=lambda pair: pair[0])[:MAX_FORMULAS]]


def _factors(f: np.ndarray, h: np.ndarray, unary: Sequence[Inner]) -> tuple[np.ndarray, list[_Column]]:
    """All f u(c h) that are finite and nowhere 0, and what each is made of."""
    values: list[np.ndarray] = [np.empty((0, f.shape[1]))]
    columns: list[_Column] = []
    for u in unary:
        check()
        for j, row in enumerate(h):
            if np.ptp(row) == 0:
                continue
            c = np.concatenate([sign * grid_of(u, sign * row, SHARE_GRID, NEAR_EDGE) for sign in u.signs])
            with np.errstate(all="ignore"):
                inner = u.function(c[:, None] * row)
                is_usable = np.isfinite(inner).all(axis=1) & (inner != 0).all(axis=1)
                inner, c = inner[is_usable], c[is_usable]
                values += [f_values * inner for f_values in f]
            columns += [(i, u, j, number) for i in range(len(f)) for number in c.tolist()]
    return np.concatenate(values), columns


def _best_of_each(error: np.ndarray, columns: list[_Column]) -> list[int]:
    """Indices of the least errors, at most one for each f, u and h, as factor and as divisor."""
    seen, best = set(), list[int]()
    for k in np.argsort(error, kind="stable").tolist():
        if len(best) == REFINED or not np.isfinite(error[k]):
            break
        i, u, j, _ = columns[k % len(columns)]
        if (key := (i, id(u), j, k >= len(columns))) not in seen:
            seen.add(key)
            best.append(k)
    return best


def _refine(
    values: tuple[np.ndarray, np.ndarray, np.ndarray],
    rows: Rows,
    column: _Column,
    over: bool,
    trees: tuple[Sequence[Tree], Sequence[Tree], Tree],
) -> tuple[float, Expression | None]:
    """The least squared error over c near that of the grid, a and b, and the formula."""
    i, u, j, c = column
    root, centred = np.sqrt(rows.w), values[2] - values[2][0]
    spend(WORK.refinement + len(rows) * WORK.refinement_row)

    def line(c: float) -> tuple[float, float, float]:
        with np.errstate(all="ignore"):
            factor = values[0][i] * u.function(c * values[1][j]) / rows.y
            return fit_line(1 / factor if over else factor, centred, root)

    c *= 10.0 ** golden_section(lambda at: line(c * 10.0**at)[2], STEP)
    a, b, error = line(c)
    a -= b * float(values[2][0])
    if not np.isfinite([a, b, error]).all():
        return np.inf, None
    inner = u.tree((OPERATOR, ops.MUL, (CONSTANT, c), trees[1][j]))
    factor: Tree = (OPERATOR, ops.MUL, trees[0][i], inner)
    product = OPERATOR, ops.DIV if over else ops.MUL, factor, combination([(a, None), (b, trees[2])])
    return error, plain_numbers(simplified(expression_of(product)))
