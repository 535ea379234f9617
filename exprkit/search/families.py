"""Families of functions, compared by values: ``p1 * x1``, ``x1 / p1`` and ``p1 + p1 * x1 - p1`` are one family.

In: families and an operator.  Out: the family that the operator makes, in a normal form that is the same for all
expressions of one family as far as the rules below see it.

A family is all functions that an expression is for some parameters.  Every parameter stands once in an expression, so
the family of ``op(f, g)`` depends on the families of f and g alone.  It is kept as one of two forms, where W and the
U are functions at ``K`` places, and c are numbers that are free:

====  ===========================================================  =====================================
kind  what the family is                                           examples
====  ===========================================================  =====================================
LIN   W + c1 U1 + ... + cm Um                                      ``x1``, ``p1 + x1``, ``p1 + p2 * x1``
LOG   sign * exp(W + c1 U1 + ... + cm Um), times a scale           ``powabs(x1, p1)``, ``powabs(p1, x1)``
====  ===========================================================  =====================================

The scale of a LOG is NONE, POSITIVE (any number > 0) or FREE (any number).  The U are brought into reduced row
echelon form and W is reduced by them; logarithms under a scale are taken up to a constant.  So families of one form
are equal exactly where all their values are.  Families are equal up to their limits (``p1 * (p2 + x1)`` tends to
every straight line) and to where a function is undefined at single points.

Rules, each an identity of sets:

- sums of LIN are LIN of the united U; a function times a LIN multiplies W and every U;
- a LIN without W times any LIN multiplies by a free number, which makes W one of the U;
- products, quotients and powers by numbers of LOG add and scale logarithms; a LIN of one U and no W is a LOG;
- ``powabs(f, g)`` is exp(g * log|f|), the exponential of a product of LIN;
- log|f| of a LOG is a LIN; of exp the other way round.

Where no rule applies a free number c is *held*: it gets a value that was drawn by a hash of what it multiplies, one for
each draw, and the family counts as a function of it.  Equal functions of held numbers that were drawn at random are
equal for all values of them, as are identities between polynomials (Schwartz and Zippel's lemma), and stand for the
same family as long as no number is held twice in one family.  Where it would be it is drawn anew under another name;
where both operands hold it already, the result is a new *atom*: a function of its own, of random values, named by its
operator and operands.  Atoms and held numbers are never found equal by more than they are, so that two families
may be missed to be the same, but not taken for the same.

Values lie at ``DRAWS`` times ``POINTS`` places: each draw has points and held numbers of its own, of both signs.
Functions made of ``abs`` may be equal in one region and differ in another, so there are points near 0 and far out.
Rounding can make two keys of one function, as of some in a thousand; the keys at other places (``salt``) tell.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from exprkit.runtime.hashes import GOLDEN, mixed
from exprkit.runtime.jit import compiled, inline

DRAWS, POINTS = 4, 8
K = DRAWS * POINTS
MOST_HELD = 8  # numbers and atoms in one family
ROWS = 2 * MOST_HELD + 3  # of a family while it is made: W, the U of both operands, 1
WIDTH = 7 + MOST_HELD  # numbers that describe a family

LIN, LOG = 0, 1
NONE, POSITIVE, FREE = range(3)
KIND, M, SCALE, CONE, SIGNS, HELD, FIRST_HELD = range(7)  # of a head; CONE: W is 0; SIGNS: a bit for each place
FINE, OPAQUE, UNDEFINED = range(3)  # how an operation ended

ROUNDING = 1e-11  # share of what was added up below which a difference is 0
SOLID = 1e-6  # share of a row's largest number that a pivot has at least
CUT_BITS = np.uint64(22)  # last bits of a float64 that do not count: 30 remain
LEAST_FINITE = K // 4
SEED = 20221121  # of the places
FAR = ((0.1, 0.4), (1.9, 4.0), (0.1, 0.4), (1.9, 4.0))  # sizes of the variables, by draw, at ...
FAR_ONES = [3, 5, 7]  # ... these of its points
MOST_ROWS = POINTS - 2  # of a family in normal form
SLOTS = 8  # of a bag that operations work in; ``family_rules`` says what the first six are for
CONE_SLOT, REST_SLOT = 6, 7  # of ``_hold_all``

divides = compiled(error_model="numpy")  # decorator: a loop in which a number over 0 is inf, not an error


class Families(NamedTuple):
    """Some families, a slot each."""

    heads: Annotated[np.ndarray, "int64[n, 15]"]
    rows: Annotated[np.ndarray, "float64[n, 19, 32]"]  # W, then the U
    sizes: Annotated[np.ndarray, "float64[19, 32]"]  # for ``_reduce``: what was added up for each number
    own: Annotated[np.ndarray, "uint64[2, 2]"]  # keys of what a rule makes of its operands first


def places(n_vars: int, salt: int = 0) -> np.ndarray:
    """Where the variables are, (n_vars, K): points where all are positive, all negative and of both signs, near 0 and
    far out.

    Each ``salt`` has points of its own, and held numbers, which are named by values at them.
    """
    random = np.random.default_rng(SEED + salt)
    sizes = random.uniform(0.4, 1.9, (n_vars, DRAWS, POINTS))
    signs = np.ones((n_vars, POINTS))
    for draw, (low, high) in enumerate(FAR):
        sizes[:, draw, FAR_ONES] = np.exp(random.uniform(np.log(low), np.log(high), (n_vars, len(FAR_ONES))))
    signs[:, 4:6] = -1.0
    signs[1::2, 6] = signs[::2, 7] = -1.0
    return (sizes * signs[:, None, :]).reshape(n_vars, K)


# ── hashes ───────────────────────────────────────────────────────────────────────────


@inline
def joined(h, word):
    return mixed((h ^ word) * GOLDEN + np.uint64(0x632BE59BD9B4E019))


@inline
def unit(h):
    """A number in [0, 1) of a hash."""
    return np.float64(h >> np.uint64(11)) * 2.0**-53


@inline
def rounded(a):
    """A number's first 30 binary digits as bits; one value for all that is not finite, one for both zeros."""
    if not np.isfinite(a):
        return np.uint64(0x7FF << 52)
    if a == 0.0:
        return np.uint64(0)
    return (np.float64(a).view(np.uint64) + (np.uint64(1) << (CUT_BITS - np.uint64(1)))) >> CUT_BITS


@compiled
def rows_hash(f, a, first, end, seed):
    """A hash of some rows of a family."""
    h, rows = seed, f.rows
    for r in range(first, end):
        for k in range(K):
            h = joined(h, rounded(rows[a, r, k]))
    return h


@inline
def begun_hashes(f, a):
    """Two hashes of what a family holds."""
    names = np.uint64(0)
    for j in range(f.heads[a, HELD]):
        names += mixed(np.uint64(f.heads[a, FIRST_HELD + j]))
    return mixed(names), mixed(names ^ np.uint64(0xE7037ED1A0B428DB))


@inline
def with_head(f, a, j, h, other):
    word = np.uint64(f.heads[a, j])
    return joined(h, word), joined(other, word * np.uint64(0xA0761D6478BD642F))


@inline
def with_number(f, a, r, k, h, other):
    word = rounded(f.rows[a, r, k])
    other = (other ^ word) * np.uint64(0xD6E8FEB86659FD93)
    return joined(h, word), other ^ other >> np.uint64(29)


@compiled
def keys_of(f, a, keys, i):
    """Two independent hashes of a family in normal form, into a row of ``keys``."""
    h, other = begun_hashes(f, a)
    for j in range(HELD):
        h, other = with_head(f, a, j, h, other)
    for r in range(1 + f.heads[a, M]):
        for k in range(K):
            h, other = with_number(f, a, r, k, h, other)
    keys[i, 0], keys[i, 1] = h, mixed(other)


@inline
def held_value(name, draw):
    """The value of a held number in a draw: of both signs, neither small nor large."""
    h = mixed(np.uint64(name) + np.uint64(draw // 2 + 1) * np.uint64(0xA0761D6478BD642F))
    size = 0.4 + 1.4 * unit(joined(h, np.uint64(draw)))
    return size if (h & np.uint64(1)) == np.uint64(draw % 2) else -size


@inline
def name_of(h):
    """A hash as the name of a held number or an atom."""
    return np.int64(h >> np.uint64(2))


# ── normal forms ─────────────────────────────────────────────────────────────────────


@inline
def total(a, b):
    """a + b; 0 where only rounding is left."""
    c = a + b
    return 0.0 if abs(c) <= ROUNDING * abs(a) and abs(a) < np.inf else c


@compiled
def copy(f, a, g, b):
    """Make slot b of ``g`` what slot a of ``f`` is."""
    for j in range(WIDTH):
        g.heads[b, j] = f.heads[a, j]
    for r in range(1 + f.heads[a, M]):
        for k in range(K):
            g.rows[b, r, k] = f.rows[a, r, k]


@compiled
def working_slots(n):
    """A bag of n slots."""
    return Families(
        np.zeros((n, WIDTH), np.int64), np.zeros((n, ROWS, K)), np.zeros((ROWS, K)), np.zeros((2, 2), np.uint64)
    )


@compiled
def plain(f, a):
    """An empty LIN without held numbers; its rows are not written."""
    for j in range(WIDTH):
        f.heads[a, j] = 0


@compiled
def normalise(f, a):
    """Bring a family into its normal form; says how that ended."""
    count = _spread_undefined(f, a)
    if count == 0:
        return UNDEFINED
    if count < LEAST_FINITE:
        return OPAQUE
    if f.heads[a, KIND] == LOG:
        return _normalise_log(f, a)
    return _reduce(f, a)


@compiled
def _spread_undefined(f, a):
    """Where one row is not finite the family is undefined: all rows are nan; gives where it is not."""
    count, rows = 0, f.rows
    for k in range(K):
        fine = True
        for r in range(1 + f.heads[a, M]):
            fine = fine and np.isfinite(rows[a, r, k])
        count += fine
        if not fine:
            f.heads[a, SIGNS] &= ~(1 << k)
            for r in range(1 + f.heads[a, M]):
                rows[a, r, k] = np.nan
    return count


@compiled
def _reduce(f, a):
    """The U in reduced row echelon form, fewer where they depend on each other, and W without their parts."""
    heads, rows, sizes = f.heads, f.rows, f.sizes
    m, rank = heads[a, M], 0
    for r in range(m + 1):
        for k in range(K):
            sizes[r, k] = abs(rows[a, r, k])
    for column in range(POINTS):
        if rank < m and _pivots(f, a, rank, column):
            rank += 1
    for r in range(rank + 1, m + 1):
        for k in range(K):
            if abs(rows[a, r, k]) > 0.0:
                return OPAQUE
    if rank > POINTS - 3:
        return OPAQUE
    heads[a, M] = rank
    zero = True
    for k in range(K):
        zero = zero and not abs(rows[a, 0, k]) > 0.0
    heads[a, CONE] = zero and rank > 0
    return FINE


@divides
def _pivots(f, a, rank, column):
    """Take this column's points as the pivots of the next U, in all draws; says whether it could be."""
    rows, sizes, m, bests = f.rows, f.sizes, f.heads[a, M], 0
    for draw in range(DRAWS):
        best = _pivot_row(f, a, rank, draw, draw * POINTS + column)
        if best == 0:
            return False
        bests |= best << 8 * draw
    for draw in range(DRAWS):
        k, first, best = draw * POINTS + column, draw * POINTS, bests >> 8 * draw & 255
        pivot = rows[a, best, k]
        for i in range(first, first + POINTS):
            rows[a, best, i], rows[a, rank + 1, i] = rows[a, rank + 1, i], rows[a, best, i] / pivot
            sizes[best, i], sizes[rank + 1, i] = sizes[rank + 1, i], sizes[best, i] / abs(pivot)
        for r in range(m + 1):
            factor = rows[a, r, k]
            if r == rank + 1 or factor == 0.0:
                continue
            for i in range(first, first + POINTS):
                rows[a, r, i] -= factor * rows[a, rank + 1, i]
                sizes[r, i] += abs(factor) * sizes[rank + 1, i]
                if abs(rows[a, r, i]) <= ROUNDING * sizes[r, i]:
                    rows[a, r, i] = 0.0
            rows[a, r, k] = 0.0
    return True


@compiled
def _pivot_row(f, a, rank, draw, k):
    """The row with the largest number there, by its row's size; 0 where none is solid."""
    rows, best, most = f.rows, 0, SOLID
    for r in range(rank + 1, f.heads[a, M] + 1):
        own = abs(rows[a, r, k])
        if not own > SOLID * f.sizes[r, k]:
            continue
        largest = 0.0
        for i in range(draw * POINTS, (draw + 1) * POINTS):
            largest = max(largest, abs(rows[a, r, i])) if rows[a, r, i] == rows[a, r, i] else largest
        if largest > 0.0 and own > most * largest:
            best, most = r, own / largest
    return best


@compiled
def _normalise_log(f, a):
    heads = f.heads
    if heads[a, SCALE] == NONE and heads[a, M] > 0:
        if _reduce(f, a) != FINE:
            return OPAQUE
        if _spans_one(f, a):
            heads[a, SCALE] = POSITIVE
    if heads[a, SCALE] != NONE and not _without_constants(f, a):
        return OPAQUE
    if _reduce(f, a) != FINE:
        return OPAQUE
    heads[a, CONE] = 0
    if heads[a, M] == 0 and heads[a, SCALE] != POSITIVE:
        _as_numbers(f, a)
    return FINE


@compiled
def _spans_one(f, a):
    """Whether a constant is a sum of the U: the sum of all of them, as each is 1 at its pivot."""
    m = f.heads[a, M]
    for k in range(K):
        rest, size = 1.0, 1.0
        for r in range(1, m + 1):
            rest -= f.rows[a, r, k]
            size += abs(f.rows[a, r, k])
        if abs(rest) > ROUNDING * size:
            return False
    return m > 0


@compiled
def _without_constants(f, a):
    """Logarithms less what they are at the first point where they are finite; a free scale's sign is + there."""
    rows, column = f.rows, first_column(f, a)
    if column < 0:
        return False
    signs = f.heads[a, SIGNS]
    for draw in range(DRAWS):
        there = draw * POINTS + column
        flip = f.heads[a, SCALE] == FREE and signs >> there & 1
        for r in range(f.heads[a, M] + 1):
            constant = rows[a, r, there]
            for k in range(draw * POINTS, (draw + 1) * POINTS):
                size = abs(constant) + abs(rows[a, r, k])
                rows[a, r, k] -= constant
                if abs(rows[a, r, k]) <= ROUNDING * size:
                    rows[a, r, k] = 0.0
        for k in range(draw * POINTS, (draw + 1) * POINTS):
            if flip and np.isfinite(rows[a, 0, k]):
                f.heads[a, SIGNS] ^= 1 << k
    return True


@compiled
def first_column(f, a):
    """The first point that is finite in all draws, or -1."""
    for column in range(POINTS):
        fine = True
        for draw in range(DRAWS):
            fine = fine and np.isfinite(f.rows[a, 0, draw * POINTS + column])
        if fine:
            return column
    return -1


@compiled
def _as_numbers(f, a):
    """A LOG of no U as the LIN that it is: a function, or the multiples of one."""
    heads, rows = f.heads, f.rows
    multiples = heads[a, SCALE] == FREE
    for k in range(K):
        number = np.exp(rows[a, 0, k])
        rows[a, 1 if multiples else 0, k] = -number if heads[a, SIGNS] >> k & 1 else number
        if multiples:
            rows[a, 0, k] = 0.0 if np.isfinite(number) else np.nan
    heads[a, KIND], heads[a, SCALE], heads[a, SIGNS] = LIN, NONE, 0
    heads[a, M] = heads[a, CONE] = 1 if multiples else 0
    if multiples:
        _reduce(f, a)


# ── other forms ──────────────────────────────────────────────────────────────────────


@compiled
def stand_alone(f, code, arity, commutative, keys):
    """An operator applied to slots 0 (1, 2), of these keys, as an atom in slot 0: a function like no other."""
    h, other = keys[0, 0], keys[1, 0] if arity >= 2 else np.uint64(0)
    if commutative and other < h:
        h, other = other, h
    h = joined(joined(np.uint64(code), h), other)
    if arity == 3:
        h = joined(h, keys[2, 0])
    fixed = True
    for side in range(arity):
        fixed = fixed and f.heads[side, KIND] == LIN and f.heads[side, M] == 0 and f.heads[side, HELD] == 0
    plain(f, 0)
    if not fixed:
        f.heads[0, HELD], f.heads[0, FIRST_HELD] = 1, name_of(h)
    for k in range(K):
        word = mixed(h + np.uint64(k + 1) * np.uint64(0xD6E8FEB86659FD93))
        size = 0.4 + 1.4 * unit(word)
        f.rows[0, 0, k] = size if word & np.uint64(1) else -size


@compiled
def hold(f, a, name):
    """Note that a family holds a number of this name; False where it does so already or there is no room."""
    n = f.heads[a, HELD]
    if n == MOST_HELD:
        return False
    for j in range(n):
        if f.heads[a, FIRST_HELD + j] == name:
            return False
    f.heads[a, FIRST_HELD + n] = name
    f.heads[a, HELD] = n + 1
    return True


@compiled
def hold_number(f, a, h):
    """Hold a number more, named by a hash; gives its name, another where that is held already, or -1: no room."""
    if f.heads[a, HELD] == MOST_HELD:
        return -1
    while not hold(f, a, name_of(h)):
        h = mixed(h + np.uint64(1))
    return name_of(h)


@compiled
def _add_held(f, a, h):
    """W becomes W + c1 U1 + ..., each c a held number that the hash names; False where there is no room for one."""
    m, f.heads[a, M] = f.heads[a, M], 0
    for r in range(1, m + 1):
        name = hold_number(f, a, joined(h, np.uint64(r)))
        if name < 0:
            return False
        for k in range(K):
            f.rows[a, 0, k] += held_value(name, k // POINTS) * f.rows[a, r, k]
    return True


@compiled
def hold_all_of(f, a, b):
    """Note that family a holds what b does; False where one is in both."""
    missing = 0
    for j in range(f.heads[b, HELD]):
        missing += not hold(f, a, f.heads[b, FIRST_HELD + j])
    return missing == 0


@compiled
def as_log(f, a, salt):
    """A LIN as a LOG, with numbers held where that takes it."""
    heads, rows = f.heads, f.rows
    if heads[a, KIND] == LOG:
        return FINE
    multiples = heads[a, CONE] == 1
    if multiples:  # c (U1 + c2 U2 + ...): the first U is what the others are held beside
        _first_as_whole(f, a)
    if not (_hold_beside(f, a, salt) if multiples else _hold_all(f, a, salt)):
        return OPAQUE
    heads[a, KIND], heads[a, CONE], heads[a, SCALE], heads[a, SIGNS] = LOG, 0, FREE if multiples else NONE, 0
    for k in range(K):
        if rows[a, 0, k] < 0.0:
            heads[a, SIGNS] |= 1 << k
        logarithm = np.log(abs(rows[a, 0, k]))
        rows[a, 0, k] = 0.0 if abs(logarithm) < ROUNDING else logarithm
    return FINE


@divides
def _hold_all(f, a, salt):
    """Each c of W + c1 U1 + ... a held number: those of c0 W + c1 U1 + ..., divided by what c0 comes to."""
    heads, rows, m = f.heads, f.rows, f.heads[a, M]
    if m == 0:
        return True
    copy(f, a, f, CONE_SLOT)
    for r in range(m, -1, -1):
        for k in range(K):
            rows[CONE_SLOT, r + 1, k] = rows[CONE_SLOT, r, k]
    heads[CONE_SLOT, M] = m + 1
    if _reduce(f, CONE_SLOT) != FINE or heads[CONE_SLOT, M] != m + 1:
        return False
    _first_as_whole(f, CONE_SLOT)
    if not _hold_beside(f, CONE_SLOT, salt):
        return False
    copy(f, a, f, REST_SLOT)
    for k in range(K):
        rows[REST_SLOT, 0, k] = rows[CONE_SLOT, 0, k]
    if _reduce(f, REST_SLOT) != FINE:
        return False
    for draw in range(DRAWS):
        best = draw * POINTS
        for k in range(draw * POINTS, (draw + 1) * POINTS):
            if not abs(rows[a, 0, k]) <= abs(rows[a, 0, best]):
                best = k if np.isfinite(rows[a, 0, k]) else best
        scale = rows[a, 0, best] / rows[REST_SLOT, 0, best]
        for k in range(draw * POINTS, (draw + 1) * POINTS):
            rows[a, 0, k] = scale * rows[CONE_SLOT, 0, k]
    for j in range(HELD, WIDTH):
        heads[a, j] = heads[CONE_SLOT, j]
    heads[a, M] = 0
    return True


@compiled
def _first_as_whole(f, a):
    """The first U of a LIN without W becomes its W."""
    rows = f.rows
    for r in range(f.heads[a, M]):
        for k in range(K):
            rows[a, r, k] = rows[a, r + 1, k]
    f.heads[a, M] -= 1


@divides
def _hold_beside(f, a, salt):
    """W (1 + v1 U1 / W + ...): each c a held number, in a unit in which it does not matter what the family is
    multiplied by."""
    rows, m = f.rows, f.heads[a, M]
    if m == 0:
        return True
    there = _where_none_is_zero(f, a)
    if there < 0:
        return False
    h = mixed(np.uint64(salt) + np.uint64(1))
    for r in range(1, m + 1):
        for draw in range(DRAWS):
            beside = 1.0 / _size_of_quotient(f, a, r, draw, there)
            for k in range(draw * POINTS, (draw + 1) * POINTS):
                rows[a, r, k] *= beside
                h = joined(h, rounded(rows[a, r, k] / rows[a, 0, k]))
    return _add_held(f, a, h)


@divides
def _size_of_quotient(f, a, r, draw, there):
    """The geometric mean of abs(U / W) in a draw, with the sign that U / W has at a point."""
    logarithms, n = 0.0, 0
    for k in range(draw * POINTS, (draw + 1) * POINTS):
        quotient = abs(f.rows[a, r, k] / f.rows[a, 0, k])
        if 0.0 < quotient < np.inf:
            logarithms += np.log(quotient)
            n += 1
    at = draw * POINTS + there
    size = np.exp(logarithms / n)
    return size if (f.rows[a, r, at] < 0) == (f.rows[a, 0, at] < 0) else -size


@compiled
def _where_none_is_zero(f, a):
    """The first point where all rows are finite and not 0, in all draws; -1: there is none."""
    for column in range(POINTS):
        fine = True
        for draw in range(DRAWS):
            for r in range(f.heads[a, M] + 1):
                fine = fine and abs(f.rows[a, r, draw * POINTS + column]) > 1e-9
        if fine:
            return column
    return -1


@divides
def _largest_as_one(f, a):
    """Every U by its largest size in each draw, so that no exponential of it is huge."""
    rows = f.rows
    for r in range(1, f.heads[a, M] + 1):
        for draw in range(DRAWS):
            largest = 0.0
            for k in range(draw * POINTS, (draw + 1) * POINTS):
                largest = max(largest, abs(rows[a, r, k])) if np.isfinite(rows[a, r, k]) else largest
            for k in range(draw * POINTS, (draw + 1) * POINTS):
                rows[a, r, k] /= largest


@compiled
def as_lin(f, a, salt):
    """A LOG as a LIN, with numbers held where that takes it."""
    heads, rows = f.heads, f.rows
    if heads[a, KIND] == LIN:
        return FINE
    m = heads[a, M]
    _largest_as_one(f, a)
    h = rows_hash(f, a, 1, m + 1, mixed(np.uint64(salt) + np.uint64(0x5D1)))
    if not _add_held(f, a, h):
        return OPAQUE
    if heads[a, SCALE] == POSITIVE:
        name = hold_number(f, a, rows_hash(f, a, 0, 1, mixed(np.uint64(salt) + np.uint64(0x5CA1E))))
        if name < 0:
            return OPAQUE
        for k in range(K):
            rows[a, 0, k] += held_value(name, k // POINTS)
        heads[a, SCALE] = NONE
    _as_numbers(f, a)
    return FINE


@compiled
def as_function(f, a, salt):
    """Every number held: a LIN without U."""
    heads = f.heads
    if as_lin(f, a, salt) != FINE:
        return OPAQUE
    if heads[a, M] == 0:
        return FINE
    if heads[a, CONE] == 0:
        return FINE if _hold_all(f, a, salt) else OPAQUE
    h = rows_hash(f, a, 1, heads[a, M] + 1, mixed(np.uint64(salt) + np.uint64(0xC0E)))
    heads[a, CONE] = 0
    return FINE if _add_held(f, a, h) else OPAQUE
