"""Templates with one parameter inside an operator: a grid search over it, the others by linear regression.

In: a ``Pool``, the ``Rows``.  Out: formulas ``f * (a + b * u(c * h))`` and ``f / (a + b * u(c * h))`` of least error,
f and h being small functions and u an operator, or a root or logarithm of ``1 + c * h``.

For a given c the best a and b are a linear regression, which ``regress`` does for all pairs of f and ``u(c h)`` at
once; errors count as shares of y, since a law holds where y is small as well, or as they are, since noise is often the
same everywhere.  Of the best templates c is refined by a golden section search (J. Kiefer, 1953) between its neighbours
on the grid, a and b being regressed at all rows each time (variable projection; G. H. Golub and V. Pereyra, 1973):
Levenberg-Marquardt's normal equations lose all digits where c h is small, and the regression does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.operators import defined, ops
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.trees import Tree, combination, expression_of, nodes
from exprkit.regression.pairs.pool import Pool, without_multiples
from exprkit.regression.pairs.ruled_pool import RuledPool
from exprkit.regression.problem.effort import WORK
from exprkit.regression.problem.rows import Rows
from exprkit.regression.rules.admission import have_same_dimension
from exprkit.regression.sums.inside import Inner, with_a_number
from exprkit.regression.sums.regress import regressed
from exprkit.runtime.budget import check, count, spend
from exprkit.text.tokens import CONSTANT, OPERATOR

# all chosen, not measured
ROWS = 48  # of the data, for the grid search
STEP = 0.25  # of the grid, in decades
SHARE_GRID = 10.0 ** np.arange(-6, 1.01, STEP)  # of c times the median of |h|, where errors count as shares of y
ABSOLUTE_GRID = 10.0 ** np.arange(-2, 1.01, STEP)  # the same where they count as they are: less is lost in noise
EDGE_GRID = np.append(10.0 ** np.arange(-3, -0.51, STEP), 1 - 10.0 ** np.arange(-STEP, -3.01, -STEP))  # of -c h below 1
MONOMIALS_F = 40  # functions f that are products of powers
ANY_F = 30  # functions f of any kind
ANY_H = 120  # functions h of any kind, each with all f
PLAIN_H = 600  # functions h of variables alone, each with the first ``F_OF_PLAIN_H`` f
F_OF_PLAIN_H = 16
REFINED = 100  # templates whose c is refined: those of least error,
REFINED_PER_F = 4  # of them with the same f,
REFINED_PER_SIZE = 8  # and of every size up to ``SHORT_SIZE``
SHORT_SIZE = 6  # tokens of f and h
MAX_FORMULAS = 40
MAX_STEPS = 60  # of the golden section search
MIN_WIDTH = 1e-3  # of its interval in decades, below which it may end before
MIN_CHANGE = 1e-10  # of the error across it, as a share: less is noise


def nested(
    pools: Sequence[Pool],
    rows: Rows,
    operators: Sequence[defined.Written],
    as_shares: bool = True,
    dimension: float = np.nan,
) -> list[Expression]:
    """The templates of least error over all pairs of the first functions of these pools, the best first.

    The pools have any functions, products of powers (f), and functions of variables alone (h), at these rows or others.
    ``as_shares``: errors count as shares of y, or as they are.  ``dimension``: of y, where numbers have no units: f has
    it then, and h has none.
    """
    if not len(rows) or (rows.y == 0).any() or not (inner := with_a_number(operators)):
        return []
    few = rows.subsample(min(ROWS, len(rows)), 0)
    anything, powers, plain = pools
    inner_dimension = np.nan if np.isnan(dimension) else 0.0
    groups = [
        *((pool, most, dimension) for pool, most in zip((powers, anything), (MONOMIALS_F, ANY_F), strict=True)),
        (anything, ANY_H, inner_dimension),
        (plain, PLAIN_H, inner_dimension),
    ]
    parts = [[pool.tree(i) for i in simplest(pool, most, unit)] for pool, most, unit in groups]
    parts = [parts[0] + parts[1], *parts[2:]]
    trees = [tree for part in parts for tree in part]
    values, sizes = values_at(trees, few.X), np.array([nodes(tree) for tree in trees])
    ends = np.cumsum([len(part) for part in parts])
    weight, full_weight = (part.w if as_shares else part.w * part.y**2 for part in (few, rows))
    grid = SHARE_GRID if as_shares else ABSOLUTE_GRID
    search = _GridSearch(few.y, weight / weight.sum(), grid)
    templates = [
        _grid_search(values[: min(most, ends[0])], values[begin:end], sizes, int(begin), inner, search)
        for most, begin, end in zip((MONOMIALS_F + ANY_F, F_OF_PLAIN_H), ends[:2], ends[1:], strict=True)
    ]
    best = sorted((template for group in templates for template in group), key=lambda template: template.error)
    if not best:
        return []
    full_values = values_at(trees, rows.X)
    fitted: list[tuple[float, Expression]] = []
    for template in best:
        check()
        with np.errstate(all="ignore"):
            f = full_values[template.f]
            factor = rows.y / f if template.way == ops.DIV else f / rows.y
        c, a, b, error = _refine(factor, template.u, full_values[template.h], template.c, np.sqrt(full_weight))
        if np.isfinite([a, b, c, error]).all():
            fitted.append((error, _formula(trees[template.f], template.way, template.u, c, trees[template.h], (a, b))))
    return [formula for _, formula in sorted(fitted, key=lambda pair: pair[0])[:MAX_FORMULAS]]


class _GridSearch(NamedTuple):
    """The target, weights and grid of all regressions of a grid search."""

    y: np.ndarray
    weight: np.ndarray
    grid: np.ndarray


class _Template(NamedTuple):
    """``f * (a + b u(c h))``, or ``f / (a + b u(c h))``; f and h are numbers of functions."""

    error: float
    f: int
    way: int
    u: Inner
    c: float
    h: int


def _grid_search(
    f: np.ndarray, h: np.ndarray, sizes: np.ndarray, first: int, inner: Sequence[Inner], search: _GridSearch
) -> list[_Template]:
    """The templates of least error over all f, h and c, and of every size; ``first``: the number of the first h."""
    columns_u, pairs, c = _inner_columns(h, inner, search)
    if not len(columns_u):
        return []
    with np.errstate(all="ignore"):
        columns = f / search.y
        columns = np.concatenate([columns, 1 / columns])
    starts = np.append(np.flatnonzero(np.diff(pairs, prepend=-1)), len(columns_u))
    best = regressed(columns, columns_u, np.ones(len(search.y)), search.weight, starts)
    count(len(columns) * len(columns_u))
    total_size = np.tile(sizes[: len(f)], 2)[:, None] + sizes[first + pairs[starts[:-1]] % len(h)]
    templates = []
    for index in _best_of_grid(best.error, total_size).tolist():
        row, group = divmod(index, len(starts) - 1)
        column = int(best.h[row, group])
        way = ops.DIV if row >= len(f) else ops.MUL
        k, j = divmod(int(pairs[column]), len(h))
        error = float(best.error[row, group])
        templates.append(_Template(error, row % len(f), way, inner[k], float(c[column]), first + j))
    return templates


def _best_of_grid(error: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Indices of the templates to be refined in a matrix of errors and sizes by f and (u, h)."""
    best_of_f = np.argsort(error, axis=1, kind="stable")[:, :REFINED_PER_F]
    indices = np.arange(len(error))[:, None] * error.shape[1] + best_of_f
    least = np.argsort(np.take_along_axis(error, best_of_f, axis=1), axis=None, kind="stable")[:REFINED]
    error, sizes = error.ravel(), sizes.ravel()
    short = np.flatnonzero(sizes <= SHORT_SIZE)
    short = short[np.lexsort((error[short], sizes[short]))]
    rank = np.arange(len(short)) - np.searchsorted(sizes[short], sizes[short])
    chosen = np.union1d(indices.ravel()[least], short[rank < REFINED_PER_SIZE])
    return np.asarray(chosen[np.isfinite(error[chosen])])


def _refine(f: np.ndarray, u: Inner, h: np.ndarray, c: float, root: np.ndarray) -> tuple[float, ...]:
    """c near a value of the grid, a and b of least squared error of 1 = f (a + b u(c h)), and the error."""
    spend(WORK.refinement + len(f) * WORK.refinement_row)
    c *= 10.0 ** golden_section(lambda at: fit_line(f, shifted(u, c * 10.0**at, h), root)[2], STEP)
    inner = shifted(u, c, h)
    a, b, error = fit_line(f, inner, root)
    with np.errstate(all="ignore"):
        return c, a - b * float(u.function(np.array([c * h[0]]))[0]), b, error


def shifted(u: Inner, c: float, h: np.ndarray) -> np.ndarray:
    """u(c h) less its value at the first row."""
    with np.errstate(all="ignore"):
        values: np.ndarray = u.function(c * h)
        return values - values[0]


def golden_section(error: Callable[[float], float], width: float) -> float:
    """The x between -width and width of least error, by golden section search."""
    golden = (np.sqrt(5) - 1) / 2
    low, high = -width, width
    errors: dict[float, float] = {}

    def at(x: float) -> float:
        if x not in errors:
            errors[x] = error(x)
        return errors[x]

    for _ in range(MAX_STEPS):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if high - low < MIN_WIDTH and abs(at(left) - at(right)) <= MIN_CHANGE * min(at(left), at(right)):
            break  # that of noise; the error of what is exact goes on falling
        if at(left) < at(right):
            high = right
        else:
            low = left
    return min(errors, key=lambda x: errors[x])


def _inner_columns(
    values: np.ndarray, unary: Sequence[Inner], search: _GridSearch
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All columns ``u(c h)`` that are finite and vary, less their first values, of largest size 1.

    And by column the number of its pair of u and h (u times the number of all h, plus h), and c.
    """
    columns, pairs, numbers = [np.empty((0, values.shape[1]))], [np.empty(0, np.int64)], [np.empty(0)]
    for k, u in enumerate(unary):
        check()
        signs = u.signs
        for j, h in enumerate(values):
            c = np.concatenate([grid_of(u, sign * h, search.grid) * sign for sign in signs])
            spend(len(c) * len(h) * WORK.inner_value)
            with np.errstate(all="ignore"):
                column = u.function(c[:, None] * h)
                usable = np.isfinite(column).all(axis=1) & (np.ptp(column, axis=1) > 1e-9 * np.abs(column).max(axis=1))
                centred = column[usable] - column[usable][:, :1]
                columns.append(centred / np.abs(centred).max(axis=1)[:, None])
            pairs.append(np.full(len(centred), k * len(values) + j))
            numbers.append(c[usable])
    return np.concatenate(columns), np.concatenate(pairs), np.concatenate(numbers)


def grid_of(u: Inner, h: np.ndarray, grid: np.ndarray, edge: np.ndarray = EDGE_GRID) -> np.ndarray:
    """The grid of c for an h; where ``1 + c h`` becomes 0 for a large c, up to that c."""
    if u.beside_1 and h.min() < 0:
        return edge / -h.min()
    return grid / max(float(np.median(np.abs(h))), 1e-300)


def simplest(pool: Pool, most: int, dimension: float = np.nan) -> list[int]:
    """Numbers of a pool's first functions without multiples of each other; of one dimension, if it is given."""
    usable = np.ones(len(pool), bool)
    if isinstance(pool, RuledPool):
        usable = have_same_dimension(pool.dimensions, dimension)
    return without_multiples(pool.values, np.flatnonzero(usable).tolist(), most)


def values_at(trees: list[Tree], X: np.ndarray) -> np.ndarray:
    """Values of trees at rows, float64 (n_trees, n_rows)."""
    pop = Population.of([expression_of(tree) for tree in trees])
    values: np.ndarray = Evaluator(pop, X, "cpu", dtype="float64").evaluate()
    return values


def fit_line(f: np.ndarray, u: np.ndarray, root: np.ndarray) -> tuple[float, float, float]:
    """a and b of least squared error of 1 = f (a + b u), by Gram-Schmidt (twice), and the error."""
    with np.errstate(all="ignore"):
        first, second = f * root, f * u * root
        length = np.sqrt(first @ first)
        first = first / length
        projection = first @ second
        orthogonal = second - projection * first
        correction = first @ orthogonal
        orthogonal = orthogonal - correction * first
        width = np.sqrt(orthogonal @ orthogonal)
        orthogonal = orthogonal / width
        b = (orthogonal @ root) / width
        a = (first @ root - b * (projection + correction)) / length
        error = root - first * (first @ root) - orthogonal * (orthogonal @ root)
        square = float(error @ error)
    return float(a), float(b), square if np.isfinite(square) else np.inf


def _formula(f: Tree, way: int, u: Inner, c: float, h: Tree, line: tuple[float, float]) -> Expression:
    inner = u.tree((OPERATOR, ops.MUL, (CONSTANT, c), h))
    return simplified(expression_of((OPERATOR, way, f, combination([(line[0], None), (line[1], inner)]))))
