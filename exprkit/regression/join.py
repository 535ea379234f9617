"""The join: pairs f, h of the pool with ``y = outer(f * inner(a + b h))`` for some numbers a and b, by one lookup each.

In: a ``Pool``, y at its points, ``Form``s.  Out: ``Pairs`` whose values agree at all points of the pool.

    >>> import numpy as np
    >>> from exprkit.expressions.arguments import rows
    >>> from exprkit.regression import links
    >>> from exprkit.regression.join import Partners
    >>> from exprkit.regression.pool import Pool
    >>> points = np.random.default_rng(0).uniform(1, 2, (16, 2))
    >>> pool = Pool(points, rows(["+", "*", "/"]), constants=[1.0])
    >>> pool.grow(3, most=1000)
    >>> y = points[:, 0] / (3 + 5 * points[:, 0] * points[:, 1])
    >>> pairs = Partners(pool).of(y, links.forms([])[1])
    >>> str(pool.expression(pairs.f[0])), str(pool.expression(pairs.h[0]))
    ('x1', 'x1 * x2')

How, plainly::

    for every h: s = (h2 - h0) / (h3 - h1), which is the same for all a + b h; sort by it
    for every f: what a + b h has to be (y / f, or what an inner operator makes that of), its s, a lookup,
                 and a comparison at the other points with those whose s is as good as the same

So N functions decide N^2 pairs in N lookups.  Each difference has an error of its own, which widens the lookup.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from exprkit.regression.links import Form
from exprkit.regression.pool import Pool
from exprkit.runtime import slices
from exprkit.runtime.jit import compiled

CHUNK = 1 << 14  # functions that a thread takes at a time
MOST_PAIRS = 64  # of one chunk, and
MOST_LOOKED_AT = 32  # of one f: more is a coincidence of rounding
NARROW, WIDE = 1e-11, 1e-6  # share of s within which a lookup takes two for the same: at least, at most
AGREES = 1e-9  # share of a value within which a pair has to make it
ROUNDING = 1e-13  # of a and b h


class Pairs(NamedTuple):
    """Numbers of functions of the pool, with the numbers that join them; the smallest pairs first."""

    f: np.ndarray
    h: np.ndarray


class Partners:
    """The functions of a pool in the order of what a lookup asks for."""

    def __init__(
        self, pool: Pool, threads: int | None = None, go_on: Callable[[], None] = lambda: None
    ) -> None:
        self._pool, self._threads, self._go_on = pool, threads, go_on
        n = len(pool)
        s, error = np.empty(n), np.empty(n)
        cuts = [(i, min(i + CHUNK, n)) for i in range(0, n, CHUNK)]
        slices.each(lambda i, j: _signatures(pool.values[i:j], s[i:j], error[i:j]), cuts)
        usable = np.flatnonzero(error < WIDE)
        order = usable[np.argsort(s[usable], kind="stable")]
        kept = np.zeros(len(order), np.bool_)
        _distinct(pool.values, order, s, pool.sizes, kept)
        self._order, self._s = order[kept], s[order[kept]]

    def __len__(self) -> int:
        return len(self._order)

    def of(self, y: np.ndarray, form: Form) -> Pairs:
        """The pairs that make y in this form."""
        v = form.behind(y)
        if v is None or not len(self):
            return Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64))
        cuts = [(i, min(i + CHUNK, len(self._pool))) for i in range(0, len(self._pool), CHUNK)]
        found = []
        for k in range(0, len(cuts), 8):
            self._go_on()
            found += slices.each(functools.partial(self._some, v, form), cuts[k : k + 8])
        f, h = np.concatenate(found, axis=1)
        sizes = self._pool.sizes
        order = np.argsort(sizes[f].astype(np.int64) + sizes[h], kind="stable")
        return Pairs(f[order], h[order])

    def _some(self, v: np.ndarray, form: Form, begin: int, end: int) -> np.ndarray:
        q = np.ascontiguousarray(form.linear_part(v, self._pool.values[begin:end]))
        pairs = np.empty((2, MOST_PAIRS), np.int64)
        lookup = _Lookup(self._order, self._s, self._pool.values)
        n = int(_look_up(q, lookup, pairs))
        pairs[0] += begin
        return pairs[:, :n]


class _Lookup(NamedTuple):
    order: np.ndarray
    s: np.ndarray
    values: np.ndarray


@compiled
def _signature(q):
    """(h2 - h0) / (h3 - h1), and the share of it that rounding may be."""
    above, below = q[2] - q[0], q[3] - q[1]
    if above == 0 or below == 0 or not abs(above) < np.inf or not abs(below) < np.inf:
        return 0.0, np.inf
    error = max(abs(q[2]), abs(q[0])) / abs(above) + max(abs(q[3]), abs(q[1])) / abs(below)
    return above / below, 4e-16 * error


@compiled
def _signatures(values, s, error):
    for i in range(len(values)):
        s[i], error[i] = _signature(values[i])


@compiled
def _distinct(values, order, s, sizes, kept):
    """Of neighbours that are the same but for a and b, the smallest."""
    last = -1
    for k in range(len(order)):
        near = last >= 0 and abs(s[order[k]] - s[order[last]]) <= AGREES * abs(s[order[k]])
        if near and _agree(values[order[k]], values[order[last]]):
            if sizes[order[k]] < sizes[order[last]]:
                order[last] = order[k]
            continue
        kept[k], last = True, k


@compiled
def _agree(q, h):
    """Whether q is a + b h at all points, and no multiple of 1 alone."""
    low, high = 0, 0
    for k in range(len(h)):
        low = k if h[k] < h[low] else low
        high = k if h[k] > h[high] else high
    b = (q[high] - q[low]) / (h[high] - h[low])
    near = low if abs(h[low]) < abs(h[high]) else high
    a = q[near] - b * h[near]
    for k in range(len(h)):
        bh = b * h[k]
        if not abs(q[k] - (a + bh)) <= AGREES * abs(q[k]) + ROUNDING * (abs(a) + abs(bh)):
            return False
    return True


@compiled
def _look_up(q, lookup, pairs):
    """Pairs of rows of q and functions; how many there are."""
    n = 0
    s, order, values = lookup.s, lookup.order, lookup.values
    for i in range(len(q)):
        wanted, error = _signature(q[i])
        if not error < WIDE:
            continue
        width = abs(wanted) * (2 * error + NARROW)
        k = np.searchsorted(s, wanted - width)
        looked_at = 0
        while k < len(s) and s[k] <= wanted + width and looked_at < MOST_LOOKED_AT and n < pairs.shape[1]:
            if _agree(q[i], values[order[k]]):
                pairs[0, n], pairs[1, n] = i, order[k]
                n += 1
                break
            k += 1
            looked_at += 1
    return n
