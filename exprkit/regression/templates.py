"""Templates: a number inside of an operator, which no lookup finds, by regressions over a grid of it.

In: a ``Pool``, the ``Sample``.  Out: formulas ``f * (a + b * u(c * h))`` and ``f / (a + b * u(c * h))`` of least error,
f and h being small functions and u an operator that is no power.

    >>> import numpy as np
    >>> from exprkit.expressions.arguments import rows
    >>> from exprkit.regression.pool import Pool
    >>> from exprkit.regression.sample import Sample
    >>> from exprkit.regression.templates import nested
    >>> X = np.random.default_rng(0).uniform(1, 2, (40, 2))
    >>> sample = Sample(X, X[:, 0] / (np.exp(0.7 * X[:, 0] / X[:, 1]) - 1))
    >>> pool = Pool(sample.X, rows(["*", "/", "exp"]), constants=[1.0])
    >>> pool.grow(3, most=100)
    >>> bool(sample.is_exact(nested(pool, sample, rows(["exp"])).values).any())
    True

For a given c the best a and b are a linear regression, which ``regress`` does for all pairs of f and ``u(c h)`` at
once; errors count as shares of y, since a law holds where y is small as well.  For the best ones c is then searched
for between its neighbours on the grid, a and b being regressed at all rows each time: Levenberg-Marquardt's normal
equations lose all digits where c h is small, and the regression does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.expression import Expression
from exprkit.expressions.parser import parse
from exprkit.operators import ops
from exprkit.regression.polish import Tree, expression_of, simplified, tree_of
from exprkit.regression.pool import Pool
from exprkit.regression.regress import regressed
from exprkit.regression.sample import Sample
from exprkit.text.tokens import CONSTANT, OPERATOR

ROWS = 48  # of the sample, for the regressions
STEP = 0.25  # of the grid's decades
GRID = 10.0 ** np.arange(-6, 1.01, STEP)  # of c times the usual size of h
OUTSIDE, INSIDE = 60, 120  # functions f and h
BEST, GIVEN = 300, 40  # formulas whose c is searched for, and that are handed over
HALVINGS = 60  # of the interval that c is in, by the golden section


class Nested(NamedTuple):
    """Formulas, the best first, and their values at all rows."""

    formulas: list[Expression]
    values: np.ndarray


def nested(
    pool: Pool, sample: Sample, unary: Sequence[ops.Operator], threads: int | None = None,
    go_on: Callable[[], None] = lambda: None, count: Callable[[int], None] = lambda n: None,
) -> Nested:  # fmt: skip
    """The best of all pairs of the first functions of a pool, which need not be made for this sample."""
    nothing = Nested([], np.empty((0, len(sample))))
    if not len(sample) or (sample.y == 0).any() or not unary:
        return nothing
    few = sample.few(min(ROWS, len(sample)), 0)
    trees = [pool.tree(i) for i in _same_but_for_a_factor(pool, INSIDE)]
    values = _values(trees, few.X, threads)
    inside, made = _inside(values, unary)
    with np.errstate(all="ignore"):
        f = values[: min(OUTSIDE, len(values))] / few.y
        columns = np.concatenate([f, 1 / f])
    go_on()
    if not len(inside):
        return nothing
    starts = np.append(np.flatnonzero(np.diff(made.group, prepend=-1)), len(inside))
    best = regressed(columns, inside, np.ones(len(few)), few.w / few.total, starts, threads, go_on)
    count(len(columns) * len(inside))
    order = np.argsort(best.error, axis=None, kind="stable")[:BEST]
    order = order[np.isfinite(best.error.ravel()[order])]
    every = _values(trees, sample.X, threads)
    found: list[tuple[float, Expression]] = []
    for place in order.tolist():
        go_on()
        row, group = divmod(place, best.error.shape[1])
        column = int(best.h[row, group])
        i, way = row % len(f), ops.DIV if row >= len(f) else ops.MUL
        u, j = made.row[column], int(made.tree[column])
        with np.errstate(all="ignore"):
            factor = sample.y / every[i] if way == ops.DIV else every[i] / sample.y
        c, a, b, error = _searched(factor, u, every[j], float(made.c[column]), np.sqrt(sample.w))
        if np.isfinite([a, b, c, error]).all():
            found.append((error, _formula(trees[i], way, u, c, trees[j], (a, b))))
    formulas = [formula for _, formula in sorted(found, key=lambda pair: pair[0])[:GIVEN]]
    if not formulas:
        return nothing
    return Nested(formulas, _values([tree_of(formula) for formula in formulas], sample.X, threads))


def _searched(f: np.ndarray, u: ops.Operator, h: np.ndarray, c: float, root: np.ndarray) -> tuple[float, ...]:
    """The c near the one of the grid, and a and b, of least error of 1 = f (a + b u(c h)); and the error."""
    c *= 10.0 ** _least(lambda at: _line(f, _shifted(u, c * 10.0**at, h), root)[2], STEP)
    inner = _shifted(u, c, h)
    a, b, error = _line(f, inner, root)
    with np.errstate(all="ignore"):
        return c, a - b * float(u.numpy(np.array([c * h[0]]))[0]), b, error


def _shifted(u: ops.Operator, c: float, h: np.ndarray) -> np.ndarray:
    """u(c h) without its first value."""
    with np.errstate(all="ignore"):
        values: np.ndarray = u.numpy(c * h)
        return values - values[0]


def _least(error: Callable[[float], float], width: float) -> float:
    """Where between -width and width an error is least, by the golden section."""
    golden = (np.sqrt(5) - 1) / 2
    low, high = -width, width
    tried: dict[float, float] = {}

    def at(x: float) -> float:
        if x not in tried:
            tried[x] = error(x)
        return tried[x]

    for _ in range(HALVINGS):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if at(left) < at(right):
            high = right
        else:
            low = left
    return min(tried, key=lambda x: tried[x])


class _InnerValues(NamedTuple):
    """Of every ``u(c h)``: which pair of u and h it belongs to, u, c and h."""

    group: np.ndarray
    row: list[ops.Operator]
    c: np.ndarray
    tree: np.ndarray


def _inside(values: np.ndarray, unary: Sequence[ops.Operator]) -> tuple[np.ndarray, _InnerValues]:
    """All ``u(c h)``, those that are finite and not constant."""
    blocks: list[np.ndarray] = []
    group, rows, cs, tree = [], [], [], []
    for number, row in enumerate(unary):
        signs = (1.0,) if _is_symmetric(row) else (1.0, -1.0)
        for j, h in enumerate(values):
            c = np.concatenate([sign * GRID for sign in signs]) / max(float(np.median(np.abs(h))), 1e-300)
            with np.errstate(all="ignore"):
                u = row.numpy(c[:, None] * h)
                fine = np.isfinite(u).all(axis=1) & (np.ptp(u, axis=1) > 1e-9 * np.abs(u).max(axis=1))
                shifted = u[fine] - u[fine][:, :1]
                blocks.append(shifted / np.abs(shifted).max(axis=1)[:, None])
            group += [number * len(values) + j] * int(fine.sum())
            rows += [row] * int(fine.sum())
            cs += c[fine].tolist()
            tree += [j] * int(fine.sum())
    return np.concatenate(blocks), _InnerValues(np.array(group), rows, np.array(cs), np.array(tree))


def _is_symmetric(row: ops.Operator) -> bool:
    """Whether the sign of the operand changes no more than that of the result."""
    a = np.array([0.3, 0.7, 0.9])
    with np.errstate(all="ignore"):
        return bool(np.array_equal(np.abs(row.numpy(a)), np.abs(row.numpy(-a))))


def _same_but_for_a_factor(pool: Pool, most: int) -> list[int]:
    """The first functions, without multiples of each other."""
    seen, kept = set(), []
    for i in range(len(pool)):
        values = pool.values[i]
        key = np.round(values / values[np.argmax(np.abs(values))], 9).tobytes()
        if key not in seen:
            seen.add(key)
            kept.append(i)
        if len(kept) == most:
            break
    return kept


def _values(trees: list[Tree], X: np.ndarray, threads: int | None) -> np.ndarray:
    pop = parse([expression_of(tree) for tree in trees])
    values: np.ndarray = Evaluator(pop, X, "cpu", dtype="float64", threads=threads).evaluate()
    return values


def _line(f: np.ndarray, u: np.ndarray, root: np.ndarray) -> tuple[float, float, float]:
    """The a and b of least error of 1 = f (a + b u), by orthogonal columns; and the error."""
    with np.errstate(all="ignore"):
        first, second = f * root, f * u * root
        length = np.sqrt(first @ first)
        first = first / length
        along = first @ second
        rest = second - along * first
        more = first @ rest
        rest = rest - more * first
        width = np.sqrt(rest @ rest)
        rest = rest / width
        b = (rest @ root) / width
        a = (first @ root - b * (along + more)) / length
        error = root - first * (first @ root) - rest * (rest @ root)
        square = float(error @ error)
    return float(a), float(b), square if np.isfinite(square) else np.inf


def _formula(f: Tree, way: int, u: ops.Operator, c: float, h: Tree, line: tuple[float, float]) -> Expression:
    inner: Tree = (OPERATOR, u.code, (OPERATOR, ops.MUL, (CONSTANT, c), h))
    scaled: Tree = (OPERATOR, ops.MUL, (CONSTANT, line[1]), inner)
    whole: Tree = (OPERATOR, ops.ADD, (CONSTANT, line[0]), scaled)
    return simplified(expression_of((OPERATOR, way, f, whole)))
