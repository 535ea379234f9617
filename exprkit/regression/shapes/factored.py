"""Factors with a parameter inside, times a line: ``f * u(c * h) * (a + b * g)`` and ``f * u(c * h) / (a + b * g)``.

In: functions f, h and g, the ``Sample``, operators.  Out: formulas of least error, the best first.

    >>> import numpy as np
    >>> from exprkit.expressions.arguments import rows
    >>> from exprkit.regression.shapes.factored import factored
    >>> from exprkit.regression.pairs.pool import Pool, without_multiples
    >>> from exprkit.regression.problem.sample import Sample
    >>> X = np.random.default_rng(0).uniform(1, 2, (40, 2))
    >>> sample = Sample(X, np.exp(-0.7 * X[:, 0]) * (1.5 + 0.3 * X[:, 0] * X[:, 1]))
    >>> pool = Pool(sample.X, rows(["*", "/", "exp"]), constants=[1.0])
    >>> pool.grow(3, most=100)
    >>> print(factored([pool] * 2, sample, rows(["*", "exp"]))[0])
    exp(-0.7 * x1) * (0.3 * x1 * x2 + 1.5)

As in ``templates`` the number c is on a grid at first, all f u(c h) / y are regressed with all g at once, and c is
searched for between its neighbours on the grid for those that come out best.  Two numbers or more that stand inside
of different operators, or the same number twice, are in reach then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.operators import defined, ops
from exprkit.regression.formulas.numbers import plain_numbers
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.trees import Tree, expression_of
from exprkit.regression.pairs.pool import Pool, without_multiples
from exprkit.regression.problem.sample import Sample
from exprkit.regression.shapes.templates import EDGE, GRID, STEP, grid_of, least_between, line_of, simplest, values_at
from exprkit.regression.sums.inside import Inner, is_symmetric, with_a_number
from exprkit.regression.sums.regress import regressed
from exprkit.text.tokens import CONSTANT, OPERATOR

ROWS = 16  # of the sample, for the regressions
FACTORS, INSIDE, BESIDE = 8, 20, (120, 240)  # functions f, h and g, any and plain ones
NEAR_1 = np.append(GRID[: np.searchsorted(GRID, EDGE[0] / 1.1)], EDGE)  # of -c h beside 1
BEST, GIVEN = 60, 20  # formulas whose c is searched for, and those that are handed over

_Column = tuple[int, Inner, int, float]  # f, u, h and c of a factor f u(c h)


def factored(
    pools: Sequence[Pool], sample: Sample, operators: Sequence[defined.Written], threads: int | None = None,
    go_on: Callable[[], None] = lambda: None, count: Callable[[int], None] = lambda n: None,
) -> list[Expression]:  # fmt: skip
    """The best of the first functions of some pools.

    Parameters
    ----------
    pools : two of them
        Of any functions, and of functions of variables alone; they need not be made for this sample.
    """
    if not len(sample) or (sample.y == 0).any():
        return []
    cheap = without_multiples(pools[0].values, np.argsort(pools[0].costs(), kind="stable").tolist(), BESIDE[0])
    chosen = simplest(pools[0], FACTORS), simplest(pools[1], INSIDE), simplest(pools[1], BESIDE[1])
    trees = [[pools[k].tree(i) for i in some] for k, some in zip((0, 1, 1), chosen, strict=True)]
    trees[2] = [pools[0].tree(i) for i in cheap] + trees[2]
    few = sample.subsample(min(ROWS, len(sample)), 0)
    f, h, g = (values_at(some, few.X, threads) for some in trees)
    factors, columns = _factors(f / few.y, h, with_a_number(operators), go_on)
    if not columns:
        return []
    g = g - g[:, :1]
    with np.errstate(all="ignore"):
        both, g = np.concatenate([factors, 1 / factors]), g / np.abs(g).max(axis=1)[:, None]
    usable = np.flatnonzero(np.isfinite(g).all(axis=1))
    ones, weight, groups = np.ones(len(few)), few.w / few.w.sum(), np.array([0, len(usable)])
    best = regressed(both, g[usable], ones, weight, groups, threads, go_on)
    count(len(both) * len(usable))
    f, h, g = (values_at(some, sample.X, threads) for some in trees)
    found = []
    for k in _least_of_each(best.error[:, 0], columns):
        go_on()
        column, beside = columns[k % len(columns)], int(usable[best.h[k, 0]])
        of_g = trees[0], trees[1], trees[2][beside]
        error, made = _searched((f, h, g[beside]), sample, column, k >= len(columns), of_g)
        if made is not None:
            found.append((error, made))
    return [made for _, made in sorted(found, key=lambda one: one[0])[:GIVEN]]


def _factors(
    f: np.ndarray, h: np.ndarray, unary: Sequence[Inner], go_on: Callable[[], None]
) -> tuple[np.ndarray, list[_Column]]:  # fmt: skip
    """All f u(c h) of usual size, and what they are made of."""
    values: list[np.ndarray] = [np.empty((0, f.shape[1]))]
    columns: list[_Column] = []
    for u in unary:
        go_on()
        for j, row in enumerate(h):
            if np.ptp(row) == 0:
                continue
            signs = (1.0,) if is_symmetric(u.function) else (1.0, -1.0)
            c = np.concatenate([sign * grid_of(u, sign * row, GRID, NEAR_1) for sign in signs])
            with np.errstate(all="ignore"):
                made = u.function(c[:, None] * row)
                fine = np.isfinite(made).all(axis=1) & (made != 0).all(axis=1)
                made, c = made[fine], c[fine]
                values += [one * made for one in f]
            columns += [(i, u, j, at) for i in range(len(f)) for at in c.tolist()]
    return np.concatenate(values), columns


def _least_of_each(error: np.ndarray, columns: list[_Column]) -> list[int]:
    """Places of the least errors, one for each f, u and h, above and below."""
    seen, kept = set(), list[int]()
    for k in np.argsort(error, kind="stable").tolist():
        if len(kept) == BEST or not np.isfinite(error[k]):
            break
        i, u, j, _ = columns[k % len(columns)]
        if (key := (i, id(u), j, k >= len(columns))) not in seen:
            seen.add(key)
            kept.append(k)
    return kept


def _searched(
    values: tuple[np.ndarray, np.ndarray, np.ndarray], sample: Sample, column: _Column, over: bool,
    trees: tuple[Sequence[Tree], Sequence[Tree], Tree],
) -> tuple[float, Expression | None]:  # fmt: skip
    """The formula with the c near that of the grid of least error, and a and b; and the error."""
    i, u, j, c = column
    root, beside = np.sqrt(sample.w), values[2] - values[2][0]

    def line(c: float) -> tuple[float, float, float]:
        with np.errstate(all="ignore"):
            factor = values[0][i] * u.function(c * values[1][j]) / sample.y
            return line_of(1 / factor if over else factor, beside, root)

    c *= 10.0 ** least_between(lambda at: line(c * 10.0**at)[2], STEP)
    a, b, error = line(c)
    a -= b * float(values[2][0])
    if not np.isfinite([a, b, error]).all():
        return np.inf, None
    inner = u.tree((OPERATOR, ops.MUL, (CONSTANT, c), trees[1][j]))
    whole: Tree = (OPERATOR, ops.MUL, (CONSTANT, b), trees[2])
    whole = (OPERATOR, ops.ADD, (CONSTANT, a), whole)
    made: Tree = (OPERATOR, ops.MUL, trees[0][i], inner)
    made = (OPERATOR, ops.DIV if over else ops.MUL, made, whole)
    return error, plain_numbers(simplified(expression_of(made)))

