"""Three functions f, h1, h2 of a pool and three free numbers that make y: ``outer(f * (a + b * h1 + c * h2))``.

In: a ``DevicePool``, lists of its functions, y at its points, a ``Link``.  Out: formulas that are y but for rounding.

    >>> import numpy as np
    >>> from exprkit.regression.on_device.triples import make_together
    >>> x = np.array([1.0, 2, 3, 4, 5])
    >>> bool(make_together(3 + 0.5 * x - 2 * x**3, x, x**3)), bool(make_together(x**2, x, x**3))
    (True, False)

No lookup finds them, since h1 is anything; but for a given f all pairs of some ten thousand h are looked at one by one
(``triples.cu``), which a GPU does as fast as it multiplies.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from exprkit.backends.device_programs.operator_kernels import KernelFile
from exprkit.backends.gpu.device import fetched
from exprkit.expressions.expression import Expression
from exprkit.regression.formulas.numbers import CLOSE, simple_number
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.values import values_of
from exprkit.regression.on_device.join import DevicePartners
from exprkit.regression.on_device.pool import DevicePool
from exprkit.regression.pairs.confirm import MOSTLY, TRIED, line
from exprkit.regression.pairs.join import AGREES, ROUNDING
from exprkit.regression.pairs.links import OVER, TIMES, Link
from exprkit.regression.problem.rows import Rows
from exprkit.regression.sums.linear import coefficients
from exprkit.runtime.budget import check
from exprkit.runtime.jit import compiled

SMALL, MONOMIALS = (1_000, 15_000), (100, 50_000)  # functions f, and functions h
NEAR = 1e-9  # of what its terms are at most, within which a determinant counts as 0
AT_ONCE = 1 << 25  # pairs of f and h1 of a launch: an answer each
DIFFERENCES = 4  # points of a determinant


def formulas(pool: DevicePool, y: np.ndarray, rows: Rows, links: Iterable[Link]) -> Iterator[list[Expression]]:
    """Link by link what three of a pool's smallest functions make of y, or a small one and two monomials."""
    small = pool.xp.sort(DevicePartners(pool, looks_up=False).order)  # numbers rise with sizes
    lists = (SMALL[0], small[: SMALL[1]]), (MONOMIALS[0], pool.monomials[: MONOMIALS[1]])
    for link in links:
        if link.inner is None and (link.way == TIMES or (link.way == OVER and link.outer is None)):
            for n_f, h in lists:
                f = np.arange(min(n_f, len(pool)))
                yield confirmed(triples(pool, f, h, y, link), link, pool, rows)


def triples(pool: DevicePool, f: np.ndarray, h: Any, y: np.ndarray, link: Link) -> np.ndarray:
    """Numbers of functions f, h1, h2, int64 (n, 3), the smallest first; f, (n_f,), is on the host, h on the device."""
    v, xp = link.behind(y), pool.xp
    h = xp.ascontiguousarray(xp.asarray(h, np.int64))
    if v is None or len(h) < 2:
        return np.zeros((0, 3), np.int64)
    q = xp.asarray(np.ascontiguousarray(link.linear_part(v, fetched(pool.values[xp.asarray(f)]))))
    first = pool.values[h, :DIFFERENCES]
    differences = first[:, 1:] - first[:, :1]
    largest = abs(differences).max(axis=1)[:, None]
    differences = xp.ascontiguousarray(differences / xp.where(largest > 0, largest, 1.0))
    triples, step = [], max(1, AT_ONCE // len(h))
    for begin in range(0, len(f), step):
        check()
        part = q[begin : begin + step]
        partner = xp.empty(len(part) * len(h), np.int32)
        pool.kernels.launch(
            KERNELS,
            "find_triples",
            len(partner),
            values=pool.values,
            q=part,
            h=h,
            differences=differences,
            partner=partner,
            n_h=len(h),
            near=NEAR,
        )
        hits = xp.flatnonzero(partner >= 0)
        place, i, j = fetched(hits // len(h)), fetched(h[hits % len(h)]), fetched(h[partner[hits]])
        triples.append(np.stack([f[begin + place], i, j], axis=1))
    every = np.concatenate(triples)
    sizes = fetched(pool.sizes[xp.asarray(every)]).astype(np.int64).sum(axis=1)
    return every[np.argsort(sizes, kind="stable")]


def confirmed(triples: np.ndarray, link: Link, pool: DevicePool, rows: Rows) -> list[Expression]:
    """Formulas of the smallest triples that are exact at all rows."""
    v = link.behind(rows.y)
    if v is None or not len(triples):
        return []
    formulas: list[Expression] = []
    for triple in triples[:TRIED].tolist():
        f, *h = pool.expressions(triple)
        values = values_of([f, *h], rows.X)
        f_values, h_values = values[0], values[1:]
        target = link.linear_part(v, f_values)
        is_known = np.isfinite(target) & (target != 0)  # elsewhere f hides what is left
        for a, b, c in _numbers(target[is_known], *h_values[:, is_known]) if is_known.mean() >= MOSTLY else []:
            formulas.append(simplified(link.expression(f, line(a, b, h[0]) + c * h[1])))
    exact = np.flatnonzero(rows.is_exact(values_of(formulas, rows.X))) if formulas else ()
    return sorted((formulas[k] for k in exact), key=lambda formula: formula.n_tokens)


def _numbers(target: np.ndarray, g: np.ndarray, h: np.ndarray) -> list[tuple[float, ...]]:
    """Candidates for a, b and c: by least squares, without a, and as simple numbers."""
    columns = np.column_stack([np.ones(len(g)), g, h]) / np.abs(target)[:, None]
    if not np.isfinite(columns).all() or not columns.any(axis=0).all():
        return []
    together, alone = (coefficients(part, np.sign(target)) for part in (columns, columns[:, 1:]))
    numbers = [tuple(together.tolist()), (0.0, *alone.tolist())]
    return numbers + [
        tuple(simple_number(x, close) for x in group) for group in numbers for close in (CLOSE, 1e-8, 1e-6)
    ]


@compiled
def make_together(q, g, h):
    """Whether q is a + b g + c h at all points."""
    low, high = 0, 0
    for k in range(len(g)):
        low = k if g[k] < g[low] else low
        high = k if g[k] > g[high] else high
    slope, q_slope = (h[high] - h[low]) / (g[high] - g[low]), (q[high] - q[low]) / (g[high] - g[low])
    far, most = 0, 0.0
    for k in range(len(g)):
        left = abs(h[k] - h[low] - slope * (g[k] - g[low]))
        far, most = k if left > most else far, max(left, most)
    if not most > AGREES * abs(h[far]):
        return False
    c = (q[far] - q[low] - q_slope * (g[far] - g[low])) / (h[far] - h[low] - slope * (g[far] - g[low]))
    b = q_slope - c * slope
    a = q[low] - b * g[low] - c * h[low]
    for k in range(len(g)):
        bg, ch = b * g[k], c * h[k]
        if not abs(q[k] - (a + bg + ch)) <= AGREES * abs(q[k]) + ROUNDING * (abs(a) + abs(bg) + abs(ch)):
            return False
    return True


FIELDS = (
    ("const double *", "values", "(n_functions, POOL_POINTS)"),
    ("const double *", "q", "(n_f, POOL_POINTS) what h1 and h2 have to make"),
    ("const Long *", "h", "(n_h) functions"),
    ("const double *", "differences", "(n_h, 3) of their values at the first points from the first"),
    ("int *", "partner", "(n_f, n_h) number of h2 among the h, or -1"),
    ("double", "near", "within which a determinant counts as 0, as a share of its terms"),
    ("Long", "n n_h", "threads at work"),
)
KERNELS = KernelFile(Path(__file__).with_name("triples.cu"), FIELDS, (make_together,))
