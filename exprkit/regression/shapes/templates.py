"""Templates with one parameter inside an operator, found by linear regressions over a grid of its values.

In: a ``Pool``, the ``Sample``.  Out: formulas ``f * (a + b * u(c * h))`` and ``f / (a + b * u(c * h))`` of least error,
f and h being small functions and u an operator, or a root or logarithm of ``1 + c * h``.

    >>> import numpy as np
    >>> from exprkit.expressions.arguments import rows
    >>> from exprkit.regression.pairs.pool import Pool
    >>> from exprkit.regression.problem.sample import Sample
    >>> from exprkit.regression.shapes.templates import nested
    >>> X = np.random.default_rng(0).uniform(1, 2, (40, 2))
    >>> sample = Sample(X, X[:, 0] / (np.exp(0.7 * X[:, 0] / X[:, 1]) - 1))
    >>> pool = Pool(sample.X, rows(["*", "/", "exp"]), constants=[1.0])
    >>> pool.grow(3, most=100)
    >>> bool(sample.is_exact(nested([pool] * 3, sample, rows(["exp"])).values).any())
    True

For a given c the best a and b are a linear regression, which ``regress`` does for all pairs of f and ``u(c h)`` at
once; errors count as shares of y, since a law holds where y is small as well, or as they are, since noise is often the
same everywhere.  For the best ones c is then searched for between its neighbours on the grid, a and b being regressed
at all rows each time: Levenberg-Marquardt's normal equations lose all digits where c h is small, and the regression
does not.
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
from exprkit.regression.formulas.trees import Tree, expression_of, nodes, tree_of
from exprkit.regression.pairs.pool import Pool, without_multiples
from exprkit.regression.pairs.ruled_pool import RuledPool
from exprkit.regression.problem.sample import Sample
from exprkit.regression.rules.admission import have_same_dimension
from exprkit.regression.sums.inside import Inner, is_symmetric, with_a_number
from exprkit.regression.sums.regress import regressed
from exprkit.text.tokens import CONSTANT, OPERATOR

ROWS = 48  # of the sample, for the regressions
STEP = 0.25  # of the grid's decades
GRID = 10.0 ** np.arange(-6, 1.01, STEP)  # of c times the usual size of h
EDGE = np.append(10.0 ** np.arange(-3, -0.51, STEP), 1 - 10.0 ** np.arange(-STEP, -3.01, -STEP))  # of -c h beside 1
USUAL = 10.0 ** np.arange(-2, 1.01, STEP)  # the same where errors count as they are: less would be lost in noise
OUTSIDE, INSIDE = ((40, 30), 16), (120, 600)  # functions f (powers, any) and h: all f with the first h, some with more
BEST, OF_F, GIVEN = 100, 4, 40  # formulas whose c is searched for, those of an f, and those that are handed over
SHORT, OF_A_SIZE = 6, 8  # tokens of f and h; so many of every size, whose c may be far from the grid's
HALVINGS = 60  # of the interval that c is in, by the golden section,
NARROW, FLAT = 1e-3, 1e-10  # which ends earlier where errors in a narrow one are the same but for such a share


class Nested(NamedTuple):
    """Formulas, the best first, and their values at all rows."""

    formulas: list[Expression]
    values: np.ndarray


def nested(
    pools: Sequence[Pool], sample: Sample, operators: Sequence[defined.Written], threads: int | None = None,
    go_on: Callable[[], None] = lambda: None, count: Callable[[int], None] = lambda n: None, as_shares: bool = True,
    dimension: float = np.nan,
) -> Nested:  # fmt: skip
    """The best of all pairs of the first functions of some pools, which need not be made for this sample.

    Parameters
    ----------
    pools : three of them
        Of any functions, of products of powers (f), and of functions of variables alone (h).
    as_shares : bool
        Whether errors count as shares of y, or as they are.
    dimension : float
        Of y, where numbers have no units: f has it then, and h has none.
    """
    nothing = Nested([], np.empty((0, len(sample))))
    if not len(sample) or (sample.y == 0).any() or not (inner := with_a_number(operators)):
        return nothing
    few = sample.subsample(min(ROWS, len(sample)), 0)
    anything, powers, plain = pools
    inside = np.nan if np.isnan(dimension) else 0.0
    chosen = [*((pool, most, dimension) for pool, most in zip((powers, anything), OUTSIDE[0], strict=True)),
              (anything, INSIDE[0], inside), (plain, INSIDE[1], inside)]  # fmt: skip
    parts = [[pool.tree(i) for i in simplest(pool, most, unit)] for pool, most, unit in chosen]
    parts = [parts[0] + parts[1], *parts[2:]]
    trees = [tree for part in parts for tree in part]
    values, sizes = values_at(trees, few.X, threads), np.array([nodes(tree) for tree in trees])
    ends = np.cumsum([len(part) for part in parts])
    weight, every_weight = (part.w if as_shares else part.w * part.y**2 for part in (few, sample))
    work = _Regressing(few.y, weight / weight.sum(), GRID if as_shares else USUAL, threads, go_on, count)
    tried = [
        _tried(values[: min(most, ends[0])], values[begin:end], sizes, int(begin), inner, work)
        for most, begin, end in zip((sum(OUTSIDE[0]), OUTSIDE[1]), ends[:2], ends[1:], strict=True)
    ]
    best = sorted((one for some in tried for one in some), key=lambda one: one.error)
    if not best:
        return nothing
    every = values_at(trees, sample.X, threads)
    found: list[tuple[float, Expression]] = []
    for one in best:
        go_on()
        with np.errstate(all="ignore"):
            factor = sample.y / every[one.f] if one.way == ops.DIV else every[one.f] / sample.y
        c, a, b, error = _searched(factor, one.u, every[one.h], one.c, np.sqrt(every_weight))
        if np.isfinite([a, b, c, error]).all():
            found.append((error, _formula(trees[one.f], one.way, one.u, c, trees[one.h], (a, b))))
    formulas = [formula for _, formula in sorted(found, key=lambda pair: pair[0])[:GIVEN]]
    if not formulas:
        return nothing
    return Nested(formulas, values_at([tree_of(formula) for formula in formulas], sample.X, threads))


class _Regressing(NamedTuple):
    """What regressions are done with."""

    y: np.ndarray
    weight: np.ndarray
    grid: np.ndarray
    threads: int | None
    go_on: Callable[[], None]
    tried: Callable[[int], None]  # counts


class _Tried(NamedTuple):
    """``f * (a + b u(c h))``, or over it, by numbers of functions."""

    error: float
    f: int
    way: int
    u: Inner
    c: float
    h: int


def _tried(
    f: np.ndarray, h: np.ndarray, sizes: np.ndarray, first: int, unary: Sequence[Inner], work: _Regressing
) -> list[_Tried]:
    """The best of all pairs of f and h, whose numbers begin with ``first``, and of every size."""
    inside, made = _inside(h, unary, work)
    if not len(inside):
        return []
    with np.errstate(all="ignore"):
        columns = f / work.y
        columns = np.concatenate([columns, 1 / columns])
    starts = np.append(np.flatnonzero(np.diff(made.group, prepend=-1)), len(inside))
    best = regressed(columns, inside, np.ones(len(work.y)), work.weight, starts, work.threads, work.go_on)
    work.tried(len(columns) * len(inside))
    total = np.tile(sizes[: len(f)], 2)[:, None] + sizes[first + made.tree[starts[:-1]]]
    found = []
    for place in _chosen(best.error, total).tolist():
        row, group = divmod(place, len(starts) - 1)
        column = int(best.h[row, group])
        way = ops.DIV if row >= len(f) else ops.MUL
        found.append(_Tried(float(best.error[row, group]), row % len(f), way, made.row[column],
                            float(made.c[column]), first + int(made.tree[column])))  # fmt: skip
    return found


def _chosen(error: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Places of the least errors, so many of an f, and of the short ones of every size."""
    of_f = np.argsort(error, axis=1, kind="stable")[:, :OF_F]
    places = np.arange(len(error))[:, None] * error.shape[1] + of_f
    least = np.argsort(np.take_along_axis(error, of_f, axis=1), axis=None, kind="stable")[:BEST]
    error, sizes = error.ravel(), sizes.ravel()
    short = np.flatnonzero(sizes <= SHORT)
    short = short[np.lexsort((error[short], sizes[short]))]
    rank = np.arange(len(short)) - np.searchsorted(sizes[short], sizes[short])
    some = np.union1d(places.ravel()[least], short[rank < OF_A_SIZE])
    return np.asarray(some[np.isfinite(error[some])])


def _searched(f: np.ndarray, u: Inner, h: np.ndarray, c: float, root: np.ndarray) -> tuple[float, ...]:
    """The c near the one of the grid, and a and b, of least error of 1 = f (a + b u(c h)); and the error."""
    c *= 10.0 ** least_between(lambda at: line_of(f, shifted(u, c * 10.0**at, h), root)[2], STEP)
    inner = shifted(u, c, h)
    a, b, error = line_of(f, inner, root)
    with np.errstate(all="ignore"):
        return c, a - b * float(u.function(np.array([c * h[0]]))[0]), b, error


def shifted(u: Inner, c: float, h: np.ndarray) -> np.ndarray:
    """u(c h) without its first value."""
    with np.errstate(all="ignore"):
        values: np.ndarray = u.function(c * h)
        return values - values[0]


def least_between(error: Callable[[float], float], width: float) -> float:
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
        if high - low < NARROW and abs(at(left) - at(right)) <= FLAT * min(at(left), at(right)):
            break  # that of noise; the error of what is exact goes on falling
        if at(left) < at(right):
            high = right
        else:
            low = left
    return min(tried, key=lambda x: tried[x])


class _InnerValues(NamedTuple):
    """Of every ``u(c h)``: which pair of u and h it belongs to, u, c and h."""

    group: np.ndarray
    row: list[Inner]
    c: np.ndarray
    tree: np.ndarray


def _inside(values: np.ndarray, unary: Sequence[Inner], work: _Regressing) -> tuple[np.ndarray, _InnerValues]:
    """All ``u(c h)``, those that are finite and not constant."""
    blocks: list[np.ndarray] = []
    group, rows, cs, tree = [], [], [], []
    for number, row in enumerate(unary):
        work.go_on()
        signs = (1.0,) if is_symmetric(row.function) else (1.0, -1.0)
        for j, h in enumerate(values):
            c = np.concatenate([grid_of(row, sign * h, work.grid) * sign for sign in signs])
            with np.errstate(all="ignore"):
                u = row.function(c[:, None] * h)
                fine = np.isfinite(u).all(axis=1) & (np.ptp(u, axis=1) > 1e-9 * np.abs(u).max(axis=1))
                shifted = u[fine] - u[fine][:, :1]
                blocks.append(shifted / np.abs(shifted).max(axis=1)[:, None])
            group += [number * len(values) + j] * int(fine.sum())
            rows += [row] * int(fine.sum())
            cs += c[fine].tolist()
            tree += [j] * int(fine.sum())
    together = np.concatenate(blocks) if blocks else np.empty((0, values.shape[1]))
    return together, _InnerValues(np.array(group), rows, np.array(cs), np.array(tree))


def grid_of(u: Inner, h: np.ndarray, grid: np.ndarray, edge: np.ndarray = EDGE) -> np.ndarray:
    """The c for h; where ``1 + c h`` may become 0, up to there."""
    if u.beside_1 and h.min() < 0:
        return edge / -h.min()
    return grid / max(float(np.median(np.abs(h))), 1e-300)


def simplest(pool: Pool, most: int, dimension: float = np.nan) -> list[int]:
    """The first functions, without multiples of each other; of one dimension, if it is given."""
    usable = np.ones(len(pool), bool)
    if isinstance(pool, RuledPool):
        usable = have_same_dimension(pool.dimensions, dimension)
    return without_multiples(pool.values, np.flatnonzero(usable).tolist(), most)


def values_at(trees: list[Tree], X: np.ndarray, threads: int | None) -> np.ndarray:
    pop = Population.of([expression_of(tree) for tree in trees])
    values: np.ndarray = Evaluator(pop, X, "cpu", dtype="float64", threads=threads).evaluate()
    return values


def line_of(f: np.ndarray, u: np.ndarray, root: np.ndarray) -> tuple[float, float, float]:
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


def _formula(f: Tree, way: int, u: Inner, c: float, h: Tree, line: tuple[float, float]) -> Expression:
    inner = u.tree((OPERATOR, ops.MUL, (CONSTANT, c), h))
    scaled: Tree = (OPERATOR, ops.MUL, (CONSTANT, line[1]), inner)
    whole: Tree = (OPERATOR, ops.ADD, (CONSTANT, line[0]), scaled)
    return simplified(expression_of((OPERATOR, way, f, whole)))
