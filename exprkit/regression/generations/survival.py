"""Survival: fits children as expressions, and selects the next generation from parents and children.

In: children (``variation``).  Out: ``a + b * tree`` of each with its numbers as parameters; after the fit the children
with their numbers, and of every island and size the best, each once.

What goes on: trees are sorted by island, size and loss, of which only the leading digits count; those that are equal
then are one tree, whatever it looks like, of which the first stays; of each size so many go on.

    >>> from exprkit.regression.generations.survival import key_of
    >>> hex(key_of(3, 5, 0.25, 22)), key_of(0, 5, 1.0, 22) == key_of(0, 5, 1.0 + 1e-12, 22)
    ('0xc015fe800000000', True)
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from exprkit.operators.ops import ADD, MUL
from exprkit.regression.generations.variation import Standing, TreeRows
from exprkit.runtime.jit import compiled
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER

LARGEST = 1e100  # numbers beyond it are not kept
AROUND = 4  # tokens of a + b * tree beside the tree
ISLAND_SHIFT, SIZE_SHIFT, LOSS_SHIFT = 58, 46, 17  # of a key: what is sorted by; the loss has no sign
MOST_SIZE = (1 << ISLAND_SHIFT - SIZE_SHIFT) - 1
NOTHING = np.uint64(0xFFFFFFFFFFFFFFFF)  # the key of what does not go on
INFINITE = np.inf
_ISLANDS, _SIZES = np.uint64(ISLAND_SHIFT), np.uint64(SIZE_SHIFT)
_ALL_SIZES = np.uint64(MOST_SIZE)


class Wrapped(NamedTuple):
    """a + b * tree of every tree, whose numbers are parameters, and where to begin with them."""

    kinds: np.ndarray  # uint8, uint64 and int64, as of a population
    values: np.ndarray
    offsets: np.ndarray
    starts: np.ndarray  # float64 (n, 2 + Turns.most)
    limit: np.ndarray  # float64: of the loss, beyond which a tree will not go on


class Turns(NamedTuple):
    """Which numbers of a tree are fitted: so many in a row, of its first, second, … from one that changes with the
    generation on, round about."""

    most: int
    number: int  # of the generation


class FitOutcome(NamedTuple):
    """Of the fits; in terms of y."""

    params: np.ndarray  # float64 (n, max_params)
    loss: np.ndarray  # float64 (n,)
    line: np.ndarray  # float64 (n, 2)
    scale: float  # of a and b
    to_loss: float  # of the loss


class Ranking(NamedTuple):
    """Parents, then children, in order."""

    key: np.ndarray  # uint64 by row
    order: np.ndarray  # int64: rows by key
    ordered: np.ndarray  # the keys by it
    new: np.ndarray  # int64: 1 where a key is not the one before
    upto: np.ndarray  # int64: so many new ones up to there


class Groups(NamedTuple):
    """By island and size."""

    begin: np.ndarray  # int64: the first in order
    before: np.ndarray  # int64: new ones before it
    stay: np.ndarray  # int64: how many go on
    end: np.ndarray  # int64: up to where


class Places(NamedTuple):
    """How many go on."""

    n: int  # children
    places: int  # of an island and a size
    islands: int
    width: int
    rough: int  # bits of a loss that do not count


class Bests(NamedTuple):
    """Of every size the best of those that are new."""

    kinds: np.ndarray
    values: np.ndarray
    length: np.ndarray  # 0: there is none
    line: np.ndarray
    loss: np.ndarray


@compiled
def measure(made, wrapped, begin, end):
    """How long the expressions become; the sums of that are the offsets."""
    for i in range(begin, end):
        wrapped.offsets[i + 1] = made.length[i] + AROUND


@compiled
def wrap(made, known, wrapped, turns, limits, begin, end):
    """p1 + p2 * tree of trees, p3, p4, … the numbers whose turn it is; the others stay as they are."""
    for i in range(begin, end):
        wrapped.limit[i] = known.limit[i * limits.islands // limits.n * (limits.width + 1) + made.length[i]]
        at = wrapped.offsets[i]
        for k in range(2 + turns.most):
            wrapped.starts[i, k] = 1.0 if k == 1 else 0.0
        _put(wrapped, at, PARAMETER, 0)
        _put(wrapped, at + 1, PARAMETER, 1)
        at += 2
        count = _numbers(made, i)
        place = _first_place(turns, i, count)
        for k in range(made.length[i]):
            wrapped.kinds[at] = made.kinds[i, k]
            wrapped.values[at] = made.values[i, k]
            if made.kinds[i, k] == CONSTANT:
                if place < turns.most:
                    wrapped.starts[i, 2 + place] = np.uint64(made.values[i, k]).view(np.float64)
                    _put(wrapped, at, PARAMETER, 2 + place)
                place = place + 1 if place + 1 < count else 0
            at += 1
        _put(wrapped, at, OPERATOR, MUL)
        _put(wrapped, at + 1, OPERATOR, ADD)


@compiled
def _numbers(made, i):
    """How many numbers a tree has."""
    count = 0
    for k in range(made.length[i]):
        if made.kinds[i, k] == CONSTANT:
            count += 1
    return count


@compiled
def _first_place(turns, i, count):
    """Of a tree's first number the place among its numbers in this generation's turn."""
    return (i + turns.number) % count if count > turns.most else 0


@compiled
def _put(wrapped, at, kind, value):
    wrapped.kinds[at] = kind
    wrapped.values[at] = np.uint64(value)


@compiled
def unwrap(made, outcome, turns, begin, end):
    """Trees with the numbers that were fitted; what has no loss or too large numbers has inf."""
    for i in range(begin, end):
        fine = outcome.loss[i] >= 0.0 and outcome.loss[i] < INFINITE
        count = _numbers(made, i)
        place = _first_place(turns, i, count)
        for k in range(made.length[i]):
            if made.kinds[i, k] == CONSTANT:
                if place < turns.most:
                    number = np.float64(outcome.params[i, 2 + place])
                    if np.abs(number) < LARGEST:
                        made.values[i, k] = np.float64(number).view(np.uint64)
                    else:
                        fine = False
                place = place + 1 if place + 1 < count else 0
        for k in range(2):
            fine = fine and np.abs(outcome.params[i, k]) < LARGEST
            outcome.line[i, k] = outcome.params[i, k] * outcome.scale
        outcome.loss[i] = outcome.loss[i] * outcome.to_loss if fine else INFINITE


@compiled
def key_of(island, size, loss, rough) -> np.uint64:
    """What trees are sorted by: island, size, the leading digits of the loss."""
    bits = np.float64(np.abs(loss)).view(np.uint64) >> np.uint64(rough) << np.uint64(rough - LOSS_SHIFT)
    return np.uint64(island) << _ISLANDS | np.uint64(min(size, MOST_SIZE)) << _SIZES | bits


@compiled
def rate(trees, known, made, outcome, ranking, limits, begin, end):
    """The keys of parents, then children."""
    n_known = len(known.loss)
    for row in range(begin, end):
        if row < n_known:
            loss, size, island = known.loss[row], trees.length[row], known.island[row]
        else:
            i = row - n_known
            loss, size, island = outcome.loss[i], made.length[i], i * limits.islands // limits.n
        ranking.key[row] = key_of(island, size, loss, limits.rough) if loss < INFINITE else NOTHING


@compiled
def mark(ranking, next_known, begin, end):
    """Which of the sorted are not the same as those before them; and places without a tree."""
    for j in range(begin, end):
        if j < len(next_known.loss):
            next_known.loss[j] = INFINITE
        key = ranking.key[ranking.order[j]]
        ranking.ordered[j] = key
        before = ranking.key[ranking.order[j - 1]] if j > 0 else NOTHING
        ranking.new[j] = 1 if key != before and key != NOTHING else 0


@compiled
def delimit(ranking, groups, limits, begin, end):
    """Where islands and sizes begin in order, and how many of each go on."""
    for group in range(begin, end):
        first, behind = _first_of(ranking, limits, group), _first_of(ranking, limits, group + 1)
        before = ranking.upto[first - 1] if first > 0 else 0
        upto = ranking.upto[behind - 1] if behind > 0 else 0
        groups.begin[group], groups.before[group] = first, before
        groups.stay[group] = min(upto - before, limits.places)


@compiled
def _first_of(ranking, limits, group):
    """The first in order of an island and size."""
    island, size = group // (limits.width + 1), group % (limits.width + 1)
    edge = np.uint64(island) << _ISLANDS | np.uint64(size) << _SIZES
    low, high = 0, len(ranking.ordered)
    while low < high:
        middle = (low + high) >> 1
        if ranking.ordered[middle] < edge:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def settle(trees, known, made, outcome, ranking, groups, limits, next_trees, next_known, begin, end):
    """Those that go on, to their places."""
    n_known = len(known.loss)
    for j in range(begin, end):
        if ranking.new[j]:
            key = ranking.ordered[j]
            island = np.int64(key >> _ISLANDS)
            group = island * (limits.width + 1) + np.int64(key >> _SIZES & _ALL_SIZES)
            rank = ranking.upto[j] - 1 - groups.before[group]
            if rank < groups.stay[group]:
                place, row = groups.end[group] - groups.stay[group] + rank, ranking.order[j]
                next_known.island[place] = island
                if row < n_known:
                    next_known.loss[place] = known.loss[row]
                    _move(trees, known, row, next_trees, next_known, place)
                else:
                    next_known.loss[place] = outcome.loss[row - n_known]
                    _move(made, outcome, row - n_known, next_trees, next_known, place)


@compiled
def limit(groups, limits, known, begin, end):
    """Of every island and size the largest loss, and where islands begin."""
    for group in range(begin, end):
        last = groups.end[group]
        full = groups.stay[group] == limits.places
        known.limit[group] = known.loss[max(last, 1) - 1] if full else INFINITE
        if group % (limits.width + 1) == 0:
            known.first[group // (limits.width + 1)] = last - groups.stay[group]
        if group + 1 == len(groups.end):
            known.first[limits.islands] = last


@compiled
def _move(trees, found, row, others, known, place):
    """A tree and its line, from one row to another's."""
    others.length[place] = trees.length[row]
    for k in range(2):
        known.line[place, k] = found.line[row, k]
    for k in range(trees.length[row]):
        others.kinds[place, k] = trees.kinds[row, k]
        others.values[place, k] = trees.values[row, k]


@compiled
def show(made, outcome, ranking, groups, limits, shown, begin, end):
    """Of sizes begin to end the child of least loss that is now the best of its size on an island."""
    n_known = len(ranking.key) - limits.n
    for size in range(begin, end):
        best = -1
        for island in range(limits.islands):
            group = island * (limits.width + 1) + size
            if groups.stay[group] > 0:
                row = ranking.order[groups.begin[group]] - n_known
                if row >= 0 and (best < 0 or outcome.loss[row] < outcome.loss[best]):
                    best = row
        shown.length[size] = 0
        if best >= 0:
            _move(made, outcome, best, shown, shown, size)
            shown.loss[size] = outcome.loss[best]


def wrapped(side: Any, made: TreeRows, known: Standing, turns: Turns, limits: Places) -> Wrapped:
    """The expressions that are fitted."""
    xp, n = side.xp, len(made.length)
    offsets, nothing = xp.zeros(n + 1, np.int64), xp.empty(0, np.uint8)
    side.run(measure, n, made, Wrapped(nothing, nothing, offsets, nothing, nothing))
    offsets = xp.cumsum(offsets)
    n_tokens = int(offsets[-1])
    found = Wrapped(
        xp.empty(n_tokens, np.uint8), xp.empty(n_tokens, np.uint64), offsets,
        xp.empty((n, 2 + turns.most), np.float64), xp.empty(n, np.float64),
    )  # fmt: skip
    side.run(wrap, n, made, known, found, turns, limits)
    return found


def survivors(
    side: Any, trees: TreeRows, known: Standing, made: TreeRows, outcome: FitOutcome, limits: Places,
    room: tuple[TreeRows, Standing], shown: Bests,
) -> tuple[TreeRows, Standing]:  # fmt: skip
    """Those that breed next, in ``room``; ``shown`` gets the best of those that are new."""
    xp, rows, n_groups = side.xp, len(known.loss) + limits.n, limits.islands * (limits.width + 1)
    next_trees, next_known = room
    keys, nothing = xp.empty(rows, np.uint64), xp.empty(0, np.int64)
    ranking = Ranking(keys, nothing, xp.empty(rows, np.uint64), xp.empty(rows, np.int64), nothing)
    side.run(rate, rows, trees, known, made, outcome, ranking, limits)
    ranking = ranking._replace(order=side.order(keys))
    side.run(mark, rows, ranking, next_known)
    ranking = ranking._replace(upto=xp.cumsum(ranking.new))
    begin, before, stay = xp.empty((3, n_groups), np.int64)
    groups = Groups(begin, before, stay, nothing)
    side.run(delimit, n_groups, ranking, groups, limits)
    groups = groups._replace(end=xp.cumsum(groups.stay))
    side.run(settle, rows, trees, known, made, outcome, ranking, groups, limits, next_trees, next_known)
    side.run(limit, n_groups, groups, limits, next_known)
    side.run(show, limits.width + 1, made, outcome, ranking, groups, limits, shown)
    return next_trees, next_known
