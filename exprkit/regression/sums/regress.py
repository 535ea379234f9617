"""Least squares on all pairs of a small pool, for noisy data, where exact lookups fail.

In: a ``Pool``, the ``Rows`` at its rows, a link without an inner operator.  Out: for every size the pairs f, h of
the least squared error of ``outer(f * (a + b h))``.

The sums that the regression of v on f and f h needs are, for all pairs at once, products of matrices: of f^2 and h,
f^2 and h^2, f v and h.  A loop of our own adds them up, in the order of the rows whatever the threads.  Errors of v
weigh as those of y that they are.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple

import numpy as np

from exprkit.distributed import sharing
from exprkit.regression.pairs.links import OVER, PLUS, Link
from exprkit.regression.pairs.pool import Pool
from exprkit.regression.problem.rows import Rows
from exprkit.regression.sums.linear import weights_behind
from exprkit.runtime.bags import empty
from exprkit.runtime.budget import spend
from exprkit.runtime.jit import compiled

ROWS = 64  # functions f that a thread takes at a time, at most
PAIR = 1.5e-9  # s, of a pair at a row, on one core of an AMD EPYC (2026-11)
AT_ONCE = 1 << 21  # pairs that a thread takes at a time, if there are not very many h
ACROSS = 512  # functions h at a time, whose sums stay in the first cache
SINGULAR = 1e-10  # a determinant as a share of its terms that counts as 0


class Pair(NamedTuple):
    """Numbers of two functions of the pool, the squared error as a share of that of v's mean, and the size."""

    f: int
    h: int
    error: float
    size: int


def best_pairs(
    pool: Pool, rows: Rows, link: Link, each: int = 4, regress: Callable[..., Best] | None = None
) -> list[Pair]:
    """For every sum of sizes the best pairs, the smallest first; ``regress``: in the place of ``regressed``."""
    v = link.behind(rows.y)
    if v is None or link.inner is not None or link.way == PLUS:
        return []
    weight = rows.w / rows.w.sum() if link.outer is None else weights_behind(link.outer.numpy, v, rows.w)
    if weight is None:
        return []
    with np.errstate(all="ignore"):
        f = 1 / pool.values if link.way == OVER else pool.values
        f = f / np.abs(f).max(axis=1)[:, None]
        h = pool.values / np.abs(pool.values).max(axis=1)[:, None]
        v = v / np.sqrt(weight @ v**2)
    sizes = pool.sizes[: len(pool)].astype(np.int64)
    kinds, starts = np.unique(sizes, return_index=True)
    best = (regress or regressed)(f, h, v, weight, np.append(starts, len(sizes)))
    return _smallest(best, sizes, kinds, each)


def regressed(f: np.ndarray, h: np.ndarray, v: np.ndarray, weight: np.ndarray, starts: np.ndarray) -> Best:
    """The best h of each group for every f, of values (n_f, n_rows) and (n_h, n_rows).

    v has a weighted square of 1; ``starts`` says where each group of the h begins, and their number.
    """
    pairs = _Regressed(f, np.ascontiguousarray(h.T), v, weight, starts)
    step = max(1, min(ROWS, AT_ONCE // max(len(h), 1), -(-len(f) // 2)))
    seconds = len(f) * h.size * PAIR
    spend(seconds)
    parts = sharing.each(_regressions, pairs, len(f), step, seconds=seconds)
    return Best(*map(np.concatenate, zip(*parts, strict=True))) if parts else empty(Best, n=0, n_groups=len(starts) - 1)


def _regressions(pairs: _Regressed, begin: int, end: int) -> Best:
    best = empty(Best, n=end - begin, n_groups=len(pairs.starts) - 1)
    _regress(pairs, best, begin, end)
    return best


def _smallest(best: Best, sizes: np.ndarray, kinds: np.ndarray, each: int) -> list[Pair]:
    """At most ``each`` pairs of every sum of sizes."""
    f = np.repeat(np.arange(len(sizes)), len(kinds))
    h, error = best.h.ravel(), best.error.ravel()
    total = sizes[f] + np.tile(kinds, len(sizes))
    order = np.lexsort((f, error, total))
    order = order[np.isfinite(error[order])]
    rank = np.arange(len(order)) - np.searchsorted(total[order], total[order])
    return [Pair(int(f[k]), int(h[k]), float(error[k]), int(total[k])) for k in order[rank < each]]


class _Regressed(NamedTuple):
    """f by function and row, h by row and function, v and the weights by row; where each size begins among the h."""

    f: np.ndarray
    h: np.ndarray
    v: np.ndarray
    weight: np.ndarray
    starts: np.ndarray


class Best(NamedTuple):
    """By f and group of h: the squared error as a share of v's, and which h it is."""

    error: Annotated[np.ndarray, "float64[n, n_groups]"]
    h: Annotated[np.ndarray, "int64[n, n_groups]"]


@compiled
def _regress(pairs, best, begin, end):
    """The best h of every size, for some f."""
    n_rows, n_h = pairs.h.shape
    sums = np.empty((3, ACROSS))
    for i in range(begin, end):
        for k in range(best.error.shape[1]):
            best.error[i - begin, k], best.h[i - begin, k] = np.inf, 0
        ff, fv = 0.0, 0.0
        for row in range(n_rows):
            ff += pairs.f[i, row] ** 2 * pairs.weight[row]
            fv += pairs.f[i, row] * pairs.v[row] * pairs.weight[row]
        if not 0 < ff < np.inf:
            continue
        for first in range(0, n_h, ACROSS):
            n = min(ACROSS, n_h - first)
            _sum(pairs, i, first, n, sums)
            _compare(pairs, best, i - begin, first, n, sums, (ff, fv))


@compiled
def _sum(pairs, i, first, n, sums):
    """Sums of f^2 h, f^2 h^2 and f v h over the rows."""
    h = pairs.h
    for j in range(n):
        sums[0, j] = 0.0
        sums[1, j] = 0.0
        sums[2, j] = 0.0
    for row in range(len(h)):
        f = pairs.f[i, row]
        ff, fv = f * f * pairs.weight[row], f * pairs.v[row] * pairs.weight[row]
        for j in range(n):
            value = h[row, first + j]
            product = ff * value
            sums[0, j] += product
            sums[1, j] += product * value
            sums[2, j] += fv * value


@compiled
def _compare(pairs, best, i, first, n, sums, of_f):
    """Note a pair's squared error, as a share of v's square, where it is the least of its size."""
    ff, fv = of_f
    size = 0
    for j in range(n):
        while pairs.starts[size + 1] <= first + j:
            size += 1
        determinant = ff * sums[1, j] - sums[0, j] ** 2
        if determinant > SINGULAR * ff * sums[1, j]:
            explained = fv * fv * sums[1, j] - 2 * fv * sums[2, j] * sums[0, j] + sums[2, j] ** 2 * ff
            error = max(1 - explained / determinant, 0.0)
            if error < best.error[i, size]:
                best.error[i, size], best.h[i, size] = error, first + j
