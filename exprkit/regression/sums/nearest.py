"""Pairs of functions whose product or sum is nearest to y, in noise that hides exact ones from a lookup.

In: a ``Pool``, the ``Rows``, a ``Transform`` of y.  Out: pairs f, h, those of least error of every size, as formulas.

Where ``v = c f h^b`` the logarithm of h is, but for a constant, that of v less that of f, over b; where
``v = a + f + c h`` the direction of h is that of v - f.  So for every f the best h is the nearest neighbour of a point,
and N functions decide N^2 pairs in N queries of a k-d tree (J. L. Bentley, Communications of the ACM 18, 1975).  Points
are the functions in the directions in which they differ most, over all rows, each weighted by its error: principal
components by a random projection (N. Halko, P. G. Martinsson, J. A. Tropp, SIAM Review 53, 2011).  In these the noise
is averaged over the rows, so that few functions are near by chance.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from exprkit.errors import brought_by
from exprkit.expressions.expression import Expression
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.pairs.confirm import line
from exprkit.regression.pairs.pool import LARGEST, Pool
from exprkit.regression.problem.rows import Rows
from exprkit.regression.sums.formulas import Transform
from exprkit.regression.sums.linear import slopes_of

with brought_by("search"):
    from scipy.spatial import cKDTree

# Chosen, not measured, unless a source is given.
POWERS = 1.0, -1.0, 0.5, -0.5  # of h in a product
N_DIRECTIONS = 8  # coordinates of a point
OVERSAMPLED = 8  # further directions of the random projection
N_SAMPLE = 1_500  # functions by which directions are chosen
REACH = 1.5  # times the length that errors have on average in so many directions, within which neighbours lie
SIZES = 4.0, 16.0, 64.0, 256.0, np.inf  # of v - f, times the reach, that are looked up at once
SLACK = 0.3  # share by which a neighbour may be further than the nearest
MAX_PAIRS = 2_048  # of each form, the nearest, that are compared at all rows
MAX_SHARE = 0.2  # error of log |v| of the rows that are looked at
MIN_SHARE = 1e-7  # error of v, as a share of the largest
MAX_RATIO = 1.1  # of squared errors, to the least of all smaller pairs
MIN_KNOWN = 0.4  # share of the rows at which v is known
MIN_ROWS = 40
MAX_LOG = 35.0  # of the size of a function's values: squares of larger ones are infinite in float32
PRODUCT, TOTAL = 1e-6, 3e-6  # s, of a query for a product, a sum: 0.8 and 3 on an Intel Xeon (2026-11)


class PoolSample(NamedTuple):
    """Functions of a pool that are finite and not 0 at all rows, with their values there and logarithms of these."""

    pool: Pool
    numbers: np.ndarray  # in the pool, (n,)
    sizes: np.ndarray  # in tokens, (n,)
    values: np.ndarray  # float32 (n, n_rows)
    logs: np.ndarray  # float32 (n, n_rows)

    @classmethod
    def of(cls, pool: Pool, rows: Rows) -> PoolSample:
        values = pool.values_at(rows.X, np.float32)
        with np.errstate(all="ignore"):
            logs = np.log(np.abs(values))
        usable = np.flatnonzero((np.abs(logs) < MAX_LOG).all(axis=1))
        return cls(pool, usable, pool.sizes[usable].astype(np.int64), values[usable], logs[usable])

    def formula(self, pairs: NearPairs, f: int, h: int, transform: Transform, rows: Rows) -> Expression | None:
        """A pair as a formula of y, with its numbers by least squares; None where these are not finite."""
        v, known = transform.known(rows.y)
        f_of, h_of = (self.pool.expression(int(self.numbers[k])) for k in (f, h))
        f_values, h_values = self.values[f].astype(np.float64), self.values[h].astype(np.float64)
        if not pairs.power:
            columns = np.column_stack([np.ones(len(v)), h_values])[known]
            a, c = np.linalg.lstsq(columns, (v - pairs.sign * f_values)[known], rcond=None)[0].tolist()
            return simplified(transform.expression(pairs.sign * f_of + line(a, c, h_of)))
        if abs(pairs.power) < 1:
            if h_values.min() < 0 < h_values.max():
                return None
            h_of = (h_of if h_values.min() > 0 else -h_of) ** 0.5
        number = float(np.median((v / (f_values * np.abs(h_values) ** pairs.power))[known]))
        if abs(pairs.power) == 1:
            number *= float(np.sign(h_values[0]))
        body = f_of * h_of if pairs.power > 0 else f_of / h_of
        return simplified(transform.expression(number * body)) if np.isfinite(number) and number else None


class NoisyTarget(NamedTuple):
    """What a formula has to be behind a transformation: values v, (n,), at some rows, and their standard errors."""

    rows: np.ndarray  # indices
    v: np.ndarray
    error: np.ndarray


class NearPairs(NamedTuple):
    """Numbers of functions, (n,) each, of pairs c f h^power, or a + sign f + c h (power 0), and their mean squares.

    ``seconds``: what the queries that gave them count as.
    """

    f: np.ndarray
    h: np.ndarray
    power: float
    sign: float
    error: np.ndarray  # of v, as a share of the squares of its errors
    seconds: float

    def best_of_sizes(self, sizes: np.ndarray, limits: np.ndarray, most: int) -> list[tuple[int, int]]:
        """At most ``most`` pairs of every size, those of least error, the smallest first.

        ``sizes``: of the functions; ``limits``: errors of pairs by size, from which on they are not wanted.
        """
        total = sizes[self.f] + sizes[self.h]
        order = np.lexsort((self.error, total))  # by size, of one size by error
        error, limit = self.error[order], limits[total[order]]
        least_before = np.minimum.accumulate(np.append(np.inf, error))[:-1]
        order = order[(error < MAX_RATIO * least_before) & (error < limit)]
        rank = np.arange(len(order)) - np.searchsorted(total[order], total[order])
        return [(int(self.f[k]), int(self.h[k])) for k in order[rank < most]]


def target_of(transform: Transform, rows: Rows, deviation: float) -> NoisyTarget | None:
    """v behind a transformation at the rows where it is known; None where too few are.

    ``deviation``: the standard deviation of y's errors, of a row of mean weight.
    """
    v, is_known = transform.known(rows.y)
    with np.errstate(all="ignore"):
        error = deviation / np.abs(slopes_of(transform.value, v)) * np.sqrt(rows.w.mean() / rows.w)
    known = np.flatnonzero(is_known & np.isfinite(error))
    if len(known) < max(MIN_ROWS, MIN_KNOWN * len(rows)):
        return None
    size = float(np.abs(v[known]).max())
    if not 1 / LARGEST < size < LARGEST:
        return None
    return NoisyTarget(known, v[known], np.maximum(error[known], MIN_SHARE * size))


def products(functions: PoolSample, transform: Transform, rows: Rows, deviation: float) -> Iterator[NearPairs]:
    """Pairs with v = c f h^power, for each power; ``deviation``: the standard deviation of y's errors."""
    if (target := target_of(transform, rows, deviation)) is None:
        return
    with np.errstate(all="ignore"):
        share = np.maximum(target.error / np.abs(target.v), MIN_SHARE)
    small = np.flatnonzero(share < MAX_SHARE)
    if len(small) < MIN_ROWS:
        return
    share = share[small]
    v = np.log(np.abs(target.v[small])) + share**2 / 2  # the mean of log(1 + e) is -e^2 / 2
    logs, weight = _columns(functions.logs, target.rows[small]), 1 / share
    points, at = _coordinates(logs, v, weight)
    tree, reach = cKDTree(points), REACH * np.sqrt(N_DIRECTIONS)
    for power in POWERS:
        distance, h = tree.query((at - points) / power, eps=SLACK, distance_upper_bound=reach / abs(power))
        f = _nearest(distance)
        rest = _less_constant((v - logs[f] - power * logs[h[f]]) * weight, weight)
        yield NearPairs(f, h[f], power, 1.0, np.square(rest).mean(axis=1), len(logs) * PRODUCT)


def totals(functions: PoolSample, transform: Transform, rows: Rows, deviation: float) -> Iterator[NearPairs]:
    """Pairs with v = a + sign f + c h, for each sign; ``deviation``: the standard deviation of y's errors."""
    if (target := target_of(transform, rows, deviation)) is None:
        return
    values, weight = _columns(functions.values, target.rows), 1 / target.error
    points, at = _coordinates(values, target.v, weight)
    length = np.linalg.norm(points, axis=1)[:, None]
    units = points / np.maximum(length, 1e-300)
    tree, reach = cKDTree(np.concatenate([units, -units])), REACH * np.sqrt(N_DIRECTIONS)
    for sign in (1.0, -1.0):
        rest = at - sign * points
        size = np.linalg.norm(rest, axis=1)
        distance, h = np.full(len(rest), np.inf), np.zeros(len(rest), np.int64)
        for nearest, furthest in itertools.pairwise(SIZES):  # the angle to look in is the reach over the size
            group = np.flatnonzero((size >= nearest * reach) & (size < furthest * reach))
            turn, h[group] = tree.query(rest[group] / size[group, None], eps=SLACK, distance_upper_bound=1 / nearest)
            distance[group] = np.where(turn * size[group] < reach, turn * size[group], np.inf)
        f = _nearest(distance)
        h = h[f] % len(units)
        error = _errors_of_sums(values, target.v, weight, f, h, sign)
        yield NearPairs(f, h, 0.0, sign, error, len(values) * TOTAL)


def _errors_of_sums(
    values: np.ndarray, v: np.ndarray, weight: np.ndarray, f: np.ndarray, h: np.ndarray, sign: float
) -> np.ndarray:
    """Mean squares of v - sign f - a - c h, with a and c by linear regression, over those of the errors."""
    rest, column = (_less_constant(part * weight, weight) for part in (v - sign * values[f], values[h]))
    products, squares = np.einsum("ij,ij->i", rest, column), np.einsum("ij,ij->i", column, column)
    with np.errstate(all="ignore"):
        return np.asarray(np.square(rest - (products / squares)[:, None] * column).mean(axis=1))


def _less_constant(rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Weighted values, (n, n_rows), without what a constant, which is ``weight`` among them, explains of each row."""
    along = weight / np.sqrt(weight @ weight)
    return np.asarray(rows - np.outer(rows @ along, along))


def _columns(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Values, (n_functions, n_rows), at some rows: as they are where these are all, a large array."""
    return values if len(rows) == values.shape[1] else values[:, rows]


def _coordinates(values: np.ndarray, v: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points of functions, (n_functions, N_DIRECTIONS), and that of v, whatever constant is added to each."""
    random = np.random.Generator(np.random.Philox(0))
    sample = values[random.choice(len(values), min(N_SAMPLE, len(values)), replace=False)]
    sample = _less_constant(sample * weight, weight)
    length = np.linalg.norm(sample, axis=1)[:, None]
    sample = sample[length[:, 0] > 0] / length[length > 0][:, None]
    mixed = sample.T @ random.standard_normal((len(sample), N_DIRECTIONS + OVERSAMPLED)).astype(sample.dtype)
    axes = np.linalg.svd(sample.T @ (sample @ mixed), full_matrices=False)[0][:, :N_DIRECTIONS]
    axes = _less_constant(axes.T, weight).T * weight[:, None]
    size = np.abs(axes).max()
    return np.asarray(values @ (axes / size).astype(values.dtype), np.float64) * size, v @ axes


def _nearest(distance: np.ndarray) -> np.ndarray:
    """The queries that have a neighbour, at most ``MAX_PAIRS``, those of the nearest."""
    hits = np.flatnonzero(np.isfinite(distance))
    return hits[np.argsort(distance[hits], kind="stable")[:MAX_PAIRS]]
