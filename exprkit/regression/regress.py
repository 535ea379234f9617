"""All pairs of a small pool by least squares: what the join's lookups can not decide where there is noise.

In: a ``Pool``, the ``Sample`` at its rows, a form without an inner operator.  Out: for every size the pairs f, h of
the least squared error of ``outer(f * (a + b h))``.

    >>> import numpy as np
    >>> from exprkit.expressions.arguments import rows
    >>> from exprkit.regression import links
    >>> from exprkit.regression.pool import Pool
    >>> from exprkit.regression.regress import best_pairs
    >>> from exprkit.regression.sample import Sample
    >>> random = np.random.default_rng(0)
    >>> X = random.uniform(1, 2, (100, 2))
    >>> sample = Sample(X, X[:, 0] * (2 + 3 * X[:, 1]) * (1 + 0.01 * random.standard_normal(100)))
    >>> pool = Pool(sample.X, rows(["+", "*", "/"]), constants=[1.0])
    >>> pool.grow(3, most=1000)
    >>> best = best_pairs(pool, sample, links.forms([])[0], each=1)
    >>> sorted(str(pool.expression(i)) for i in (best[0].f, best[0].h))
    ['x1', 'x2']

The sums that the regression of v on f and f h needs are, for all pairs at once, products of matrices: of f^2 and h,
f^2 and h^2, f v and h.  Errors of v weigh as those of y that they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from exprkit.regression.links import OVER, PLUS, Form
from exprkit.regression.pool import Pool
from exprkit.regression.sample import Sample

ROWS = 256  # functions f at a time
SINGULAR = 1e-10  # a determinant as a share of its terms that counts as 0


class Pair(NamedTuple):
    """Numbers of two functions of the pool, the squared error as a share of that of v's mean, and the size."""

    f: int
    h: int
    error: float
    size: int


def best_pairs(
    pool: Pool, sample: Sample, form: Form, each: int = 4, go_on: Callable[[], None] = lambda: None
) -> list[Pair]:
    """For every sum of sizes the best pairs, the smallest first."""
    v = form.behind(sample.y)
    if v is None or form.inner is not None or form.way == PLUS:
        return []
    weight = _weight(form, sample, v)
    if weight is None:
        return []
    with np.errstate(all="ignore"):
        f = 1 / pool.values if form.way == OVER else pool.values
    h = pool.values / np.abs(pool.values).max(axis=1)[:, None]
    usable = np.isfinite(f).all(axis=1)
    f = np.where(usable[:, None], f, 1.0)
    f = f / np.abs(f).max(axis=1)[:, None]
    sizes = pool.sizes[: len(pool)].astype(np.int64)
    columns = {int(size): np.flatnonzero(sizes == size) for size in np.unique(sizes)}
    found: dict[int, list[Pair]] = {}
    for begin in range(0, len(f), ROWS):
        go_on()
        rows = np.arange(begin, min(begin + ROWS, len(f)))
        errors = _errors(f[rows], h, v, weight)
        errors[~usable[rows]] = np.inf
        for size, column in columns.items():
            part = errors[:, column]
            best = np.argmin(part, axis=1)
            for row, k in enumerate(best.tolist()):
                total = int(sizes[rows[row]]) + size
                pair = Pair(int(rows[row]), int(column[k]), float(part[row, k]), total)
                _enter(found.setdefault(total, []), pair, each)
    return [pair for size in sorted(found) for pair in found[size]]


def _enter(best: list[Pair], pair: Pair, each: int) -> None:
    if np.isfinite(pair.error) and (len(best) < each or pair.error < best[-1].error):
        best.append(pair)
        best.sort(key=lambda other: other.error)
        del best[each:]


def _weight(form: Form, sample: Sample, v: np.ndarray) -> np.ndarray | None:
    """Of squared errors of v, so that they are those of y; also where v is divided by."""
    slope = np.ones(len(v))
    if form.outer is not None:
        step = 1e-6 * np.maximum(np.abs(v), 1e-300)
        with np.errstate(all="ignore"):
            slope = (form.outer.numpy(v + step) - form.outer.numpy(v - step)) / (2 * step)
    weight = sample.w * slope**2
    return weight / weight.sum() if np.isfinite(weight).all() and weight.sum() > 0 else None


def _errors(f: np.ndarray, h: np.ndarray, v: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The squared errors of all pairs, (n_f, n_h), as a share of v's own."""
    total = float(weight @ v**2) or 1.0
    ff = f * f * weight
    f_v = f * (v * weight)
    s11, t1 = ff.sum(axis=1)[:, None], f_v.sum(axis=1)[:, None]
    s12, s22, t2 = ff @ h.T, ff @ (h * h).T, f_v @ h.T
    with np.errstate(all="ignore"):
        determinant = s11 * s22 - s12 * s12
        explained = (t1 * t1 * s22 - 2 * t1 * t2 * s12 + t2 * t2 * s11) / determinant
    explained[~(determinant > SINGULAR * s11 * s22)] = -np.inf
    errors: np.ndarray = 1 - explained / total
    return np.where(np.isnan(errors), np.inf, np.maximum(errors, 0))
