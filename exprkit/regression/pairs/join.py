"""The join: pairs f, h of the pool with ``y = outer(f * inner(a + b h))`` for some numbers a and b, by one lookup each.

In: a ``Pool``, y at its points, ``Link``s.  Out: ``Pairs`` whose values agree at all points of the pool.

How, plainly::

    for every h: s = (h2 - h0) / (h3 - h1), which is the same for all a + b h; sort by it
    for every f: what a + b h has to be (y / f, or what an inner operator makes that of), its s, a lookup,
                 and a comparison at the other points with those whose s is as good as the same

So N functions decide N^2 pairs in N lookups.  Each difference has an error of its own, which widens the lookup.
Nearly all lookups end at a table of marks, a bit for every s that there may be, before anything else is computed.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from exprkit.distributed import sharing
from exprkit.operators import defined
from exprkit.regression.pairs.links import Link
from exprkit.regression.pairs.pool import Pool
from exprkit.runtime import slices
from exprkit.runtime.hashes import GOLDEN
from exprkit.runtime.jit import compiled, inline

CHUNK = 1 << 14  # functions that a thread takes at a time
LOOKUP = 3e-7  # seconds of one
MOST_PAIRS = 64  # of one chunk, and
MOST_LOOKED_AT = 32  # of one f: more is a coincidence of rounding
NARROW, WIDE = 1e-11, 1e-6  # share of s within which a lookup takes two for the same: at least, at most
AGREES = 1e-9  # share of a value within which a pair has to make it
ROUNDING = 1e-13  # of a and b h
SIGNS = 4  # points of a signature
CELL = np.uint64(28)  # bits of an s that its mark leaves out: 6e-8 of it
MARKS = 32  # bits of the table of marks for every function


class Pairs(NamedTuple):
    """Numbers of functions of the pool, with the numbers that join them; the smallest pairs first."""

    f: np.ndarray
    h: np.ndarray


class Partners:
    """The functions of a pool in the order of what a lookup asks for."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        n = len(pool)
        s, error = np.empty(n), np.empty(n)
        slices.each(lambda i, j: _signatures(pool.values[i:j], s[i:j], error[i:j]), chunks(n))
        usable = np.flatnonzero(error < WIDE)
        order = usable[np.argsort(s[usable], kind="stable")]
        s = s[order]
        repeated, smallest = np.empty(len(order), np.bool_), np.empty(len(order), np.int64)
        _distinct(Lookup(order, s, pool.values, np.zeros(1, np.uint64)), pool.sizes, repeated, smallest)
        marks = np.zeros(1 << max(MARKS * len(order) // 64, 1).bit_length(), np.uint64)
        self.lookup = Lookup(smallest[~repeated], s[~repeated], pool.values, marks)
        _mark(self.lookup)

    def __len__(self) -> int:
        return len(self.lookup.order)

    def each(self, y: np.ndarray, links: Iterable[Link]) -> Iterator[tuple[Link, Pairs]]:
        """The pairs of all links, one after the other."""
        return ((link, self.of(y, link)) for link in links)

    def of(self, y: np.ndarray, link: Link) -> Pairs:
        """The pairs that make y by this link."""
        v = link.behind(y)
        if v is None or not len(self):
            return NO_PAIRS
        n, inner = len(self._pool), None if link.inner is None else link.inner.code
        pairs = sharing.each(_pairs, self.lookup, n, CHUNK, v, link.way, inner, seconds=n * LOOKUP)
        f, h = np.concatenate(pairs, axis=1)
        return smallest_first(f, h, self._pool.sizes[f], self._pool.sizes[h])


def _pairs(lookup: Lookup, v: np.ndarray, way: int, inner: int | None, begin: int, end: int) -> np.ndarray:
    """The pairs of functions f ``begin`` to ``end``; ``inner``: the code of the operator inside."""
    link = Link(None, way, None if inner is None else defined.known(inner))
    values, place = lookup.values[begin:end], np.empty(end - begin, np.int64)
    q = np.ascontiguousarray(link.linear_part(v[:SIGNS], values[:, :SIGNS]))
    place = place[: int(_possible(q, lookup, place))]
    q = np.ascontiguousarray(link.linear_part(v, values[place]))
    pairs = np.empty((2, MOST_PAIRS), np.int64)
    n = int(_look_up(q, lookup, pairs))
    pairs[0, :n] = begin + place[pairs[0, :n]]
    return pairs[:, :n]


NO_PAIRS = Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64))


def chunks(n: int) -> slices.Cuts:
    return [(i, min(i + CHUNK, n)) for i in range(0, n, CHUNK)]


def smallest_first(f: np.ndarray, h: np.ndarray, f_sizes: np.ndarray, h_sizes: np.ndarray) -> Pairs:
    """Pairs of functions of these sizes."""
    order = np.argsort(f_sizes.astype(np.int64) + h_sizes, kind="stable")
    return Pairs(f[order], h[order])


class Lookup(NamedTuple):
    """Functions in the order of their s, and marks of all s."""

    order: np.ndarray
    s: np.ndarray
    values: np.ndarray
    marks: np.ndarray  # bits by hash of a cell of s


@compiled
def _signatures(values, s, error):
    signature = np.empty(2)
    for i in range(len(values)):
        find_signature(values[i], signature)
        s[i], error[i] = signature[0], signature[1]


@inline
def find_signature(q, signature):
    """(h2 - h0) / (h3 - h1), and the share of it that rounding may be."""
    above, below = q[2] - q[0], q[3] - q[1]
    signature[0], signature[1] = 0.0, np.inf
    if above != 0.0 and below != 0.0 and abs(above) < np.inf and abs(below) < np.inf:
        error = max(abs(q[2]), abs(q[0])) / abs(above) + max(abs(q[3]), abs(q[1])) / abs(below)
        signature[0], signature[1] = above / below, 4e-16 * error


@compiled
def _distinct(lookup, sizes, repeated, smallest):
    """Mark the functions that repeat the one before but for a and b; note the smallest of each group."""
    n = len(lookup.order)
    for k in range(n):
        repeated[k] = is_repeated(lookup, k)
    for k in range(n):
        if not repeated[k]:
            smallest[k] = smallest_of(lookup.order, sizes, repeated, k)


@inline
def is_repeated(lookup, k):
    """Whether function k of the order is the one before but for a and b."""
    s, order = lookup.s, lookup.order
    if k == 0 or not abs(s[k] - s[k - 1]) <= AGREES * abs(s[k]):
        return False
    return agree(lookup.values[order[k]], lookup.values[order[k - 1]])


@inline
def smallest_of(order, sizes, repeated, k):
    """The smallest of function k of the order and those that repeat it."""
    best = order[k]
    k += 1
    while k < len(order) and repeated[k]:
        if sizes[order[k]] < sizes[best]:
            best = order[k]
        k += 1
    return best


@inline
def agree(q, h):
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
def _mark(lookup):
    room, marks = np.empty(1), lookup.marks
    for k in range(len(lookup.s)):
        h = cell_of(lookup.s[k], room) * GOLDEN >> np.uint64(32)
        marks[np.int64(h >> np.uint64(6)) & len(marks) - 1] |= np.uint64(1) << (h & np.uint64(63))


@inline
def cell_of(s, room):
    """The leading bits of a number; ``room`` for one."""
    room[0] = s
    return room.view(np.uint64)[0] >> CELL


@inline
def is_marked(lookup, cell):
    h = cell * GOLDEN >> np.uint64(32)
    return lookup.marks[np.int64(h >> np.uint64(6)) & len(lookup.marks) - 1] >> (h & np.uint64(63)) & np.uint64(1) != 0


@inline
def may_have_partner(q, lookup, signature, room):
    """Whether the table of marks has what q is looked up by; seldom where no function is."""
    find_signature(q, signature)
    if not signature[1] < WIDE:
        return False
    width = abs(signature[0]) * (2 * signature[1] + NARROW)
    low, high = cell_of(signature[0] - width, room), cell_of(signature[0] + width, room)
    least, most = min(low, high), max(low, high)
    return most - least > np.uint64(1) or is_marked(lookup, least) or is_marked(lookup, most)


@compiled
def _possible(q, lookup, place):
    """The rows of q that may have a partner; how many they are."""
    n, signature, room = 0, np.empty(2), np.empty(1)
    for i in range(len(q)):
        if may_have_partner(q[i], lookup, signature, room):
            place[n] = i
            n += 1
    return n


@compiled
def _look_up(q, lookup, pairs):
    """Pairs of rows of q and functions; how many there are."""
    n, signature = 0, np.empty(2)
    for i in range(len(q)):
        h = partner_of(q[i], lookup, signature)
        if h >= 0 and n < pairs.shape[1]:
            pairs[0, n], pairs[1, n] = i, h
            n += 1
    return n


@inline
def partner_of(q, lookup, signature):
    """The first function h with q = a + b h; -1 where there is none.  ``found``: room for two numbers."""
    find_signature(q, signature)
    s, order = lookup.s, lookup.order
    wanted, error = signature[0], signature[1]
    if not error < WIDE:
        return -1
    width = abs(wanted) * (2 * error + NARROW)
    k = first_from(s, wanted - width)
    last = min(k + MOST_LOOKED_AT, len(s))
    while k < last and s[k] <= wanted + width:
        if agree(q, lookup.values[order[k]]):
            return order[k]
        k += 1
    return -1


@inline
def first_from(s, least):
    """Where in rising numbers those begin that are not less."""
    low, high = 0, len(s)
    while low < high:
        middle = (low + high) >> 1
        if s[middle] < least:
            low = middle + 1
        else:
            high = middle
    return low
