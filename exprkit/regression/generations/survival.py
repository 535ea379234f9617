"""Survival: linear scaling and constant optimisation of children, then the selection of the next generation.

In: children (``variation``).  Out: ``a + b * tree`` of each with its numbers as parameters; after the fit the children
with their numbers, and of every island and size the best trees of parents and children.

Selection: trees are sorted by island, size and loss, of which only the leading digits count; of trees that are equal
then the first survives, so that a niche holds no copies; a niche, an island and size, has a capacity.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from exprkit.operators.ops import ADD, MUL
from exprkit.regression.generations.variation import Fitness, TreeRows
from exprkit.runtime.jit import compiled
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER

MAX_NUMBER = 1e100  # of a tree's numbers; a tree with a larger one has an infinite loss
SCALING_TOKENS = 4  # tokens of a + b * tree beside the tree
ISLAND_SHIFT, SIZE_SHIFT, LOSS_SHIFT = 58, 46, 17  # bits of a key, which has no sign of the loss
MAX_SIZE = (1 << ISLAND_SHIFT - SIZE_SHIFT) - 1
NO_TREE = np.uint64(0xFFFFFFFFFFFFFFFF)  # key
INFINITE = np.inf
_ISLANDS, _SIZES = np.uint64(ISLAND_SHIFT), np.uint64(SIZE_SHIFT)
_ALL_SIZES = np.uint64(MAX_SIZE)


class ScaledTrees(NamedTuple):
    """``a + b * tree`` of every tree with parameters, as the arrays of a population, and starts for the fit."""

    kinds: np.ndarray  # uint8, values uint64, offsets int64
    values: np.ndarray
    offsets: np.ndarray
    starts: np.ndarray  # float64 (n, 2 + ParameterSubset.size)
    loss_limit: np.ndarray  # float64 (n,): with a larger loss a tree will not survive


class ParameterSubset(NamedTuple):
    """The numbers of a tree that are parameters in a generation: ``size`` in a row, cyclically, from a moving first."""

    size: int
    generation: int


class FitOutcome(NamedTuple):
    """Parameters and losses of fits; ``read_fits`` brings them into units of y."""

    params: np.ndarray  # float64 (n, max_params)
    loss: np.ndarray  # float64 (n,)
    scaling: np.ndarray  # float64 (n, 2): a and b of a + b * tree
    scale: float  # factor of a and b
    to_loss: float  # factor of the loss


class Ranking(NamedTuple):
    """Rows of parents, then of children, sorted by key."""

    key: np.ndarray  # uint64 by row
    order: np.ndarray  # int64: the rows in the order of their keys
    sorted_key: np.ndarray  # uint64
    is_distinct: np.ndarray  # int64: 1 where a sorted key differs from the one before
    n_distinct: np.ndarray  # int64: its cumulative sum


class Groups(NamedTuple):
    """Niches: the trees of an island and a size."""

    begin: np.ndarray  # int64: the first place in the order
    distinct_before: np.ndarray  # int64: distinct keys before it
    n_survivors: np.ndarray  # int64
    end: np.ndarray  # int64: the cumulative sum of survivors


class SurvivalLimits(NamedTuple):
    """Numbers of trees that survive, and the tolerance of equal losses."""

    n: int  # children
    capacity: int  # trees of an island and a size
    islands: int
    width: int  # tokens of a tree at most
    ignored_bits: int  # of a loss, in the comparison of trees


class HallOfFame(NamedTuple):
    """The best child of every size, where it is the best of its size on its island."""

    kinds: np.ndarray
    values: np.ndarray
    length: np.ndarray  # 0: there is none
    scaling: np.ndarray
    loss: np.ndarray


@compiled
def write_scaled(children, fitness, scaled, subset, limits, begin, end):
    """Write p1 + p2 * tree, with p3, p4, … for the numbers of the subset, and starts and loss limits."""
    for i in range(begin, end):
        island = i * limits.islands // limits.n
        scaled.loss_limit[i] = fitness.loss_limit[island * (limits.width + 1) + children.length[i]]
        at = scaled.offsets[i]
        for k in range(2 + subset.size):
            scaled.starts[i, k] = 1.0 if k == 1 else 0.0
        _put_token(scaled, at, PARAMETER, 0)
        _put_token(scaled, at + 1, PARAMETER, 1)
        at += 2
        count = _count_numbers(children, i)
        place = _first_index(subset, i, count)
        for k in range(children.length[i]):
            scaled.kinds[at] = children.kinds[i, k]
            scaled.values[at] = children.values[i, k]
            if children.kinds[i, k] == CONSTANT:
                if place < subset.size:
                    scaled.starts[i, 2 + place] = np.uint64(children.values[i, k]).view(np.float64)
                    _put_token(scaled, at, PARAMETER, 2 + place)
                place = place + 1 if place + 1 < count else 0
            at += 1
        _put_token(scaled, at, OPERATOR, MUL)
        _put_token(scaled, at + 1, OPERATOR, ADD)


@compiled
def _count_numbers(children, i):
    """The number of constants of a tree."""
    count = 0
    for k in range(children.length[i]):
        if children.kinds[i, k] == CONSTANT:
            count += 1
    return count


@compiled
def _first_index(subset, i, count):
    """The index of a tree's first constant in the cyclic order of this generation: below ``size`` it is a parameter."""
    return (i + subset.generation) % count if count > subset.size else 0


@compiled
def _put_token(scaled, at, kind, value):
    scaled.kinds[at] = kind
    scaled.values[at] = np.uint64(value)


@compiled
def read_fits(children, outcome, subset, begin, end):
    """Write fitted numbers into the trees, and scaling and loss into the outcome (inf for too large numbers)."""
    for i in range(begin, end):
        is_valid = outcome.loss[i] >= 0.0 and outcome.loss[i] < INFINITE
        count = _count_numbers(children, i)
        place = _first_index(subset, i, count)
        for k in range(children.length[i]):
            if children.kinds[i, k] == CONSTANT:
                if place < subset.size:
                    number = np.float64(outcome.params[i, 2 + place])
                    if np.abs(number) < MAX_NUMBER:
                        children.values[i, k] = np.float64(number).view(np.uint64)
                    else:
                        is_valid = False
                place = place + 1 if place + 1 < count else 0
        for k in range(2):
            is_valid = is_valid and np.abs(outcome.params[i, k]) < MAX_NUMBER
            outcome.scaling[i, k] = outcome.params[i, k] * outcome.scale
        outcome.loss[i] = outcome.loss[i] * outcome.to_loss if is_valid else INFINITE


@compiled
def key_of(island, size, loss, ignored_bits) -> np.uint64:
    """The key that trees are sorted by: island, size, the leading digits of the loss."""
    bits = np.float64(np.abs(loss)).view(np.uint64) >> np.uint64(ignored_bits) << np.uint64(ignored_bits - LOSS_SHIFT)
    return np.uint64(island) << _ISLANDS | np.uint64(min(size, MAX_SIZE)) << _SIZES | bits


@compiled
def compute_keys(trees, fitness, children, outcome, ranking, limits, begin, end):
    """Write the keys of parents, then of children."""
    n_parents = len(fitness.loss)
    for row in range(begin, end):
        if row < n_parents:
            loss, size, island = fitness.loss[row], trees.length[row], fitness.island[row]
        else:
            i = row - n_parents
            loss, size, island = outcome.loss[i], children.length[i], i * limits.islands // limits.n
        ranking.key[row] = key_of(island, size, loss, limits.ignored_bits) if loss < INFINITE else NO_TREE


@compiled
def mark_distinct(ranking, next_fitness, begin, end):
    """Write sorted keys and which of them are distinct; clear the losses of the next generation."""
    for j in range(begin, end):
        if j < len(next_fitness.loss):
            next_fitness.loss[j] = INFINITE
        key = ranking.key[ranking.order[j]]
        ranking.sorted_key[j] = key
        before = ranking.key[ranking.order[j - 1]] if j > 0 else NO_TREE
        ranking.is_distinct[j] = 1 if key != before and key != NO_TREE else 0


@compiled
def count_survivors(ranking, groups, limits, begin, end):
    """Write where the islands and sizes begin in the order, and how many trees of each survive."""
    for group in range(begin, end):
        first, behind = _group_start(ranking, limits, group), _group_start(ranking, limits, group + 1)
        before = ranking.n_distinct[first - 1] if first > 0 else 0
        upto = ranking.n_distinct[behind - 1] if behind > 0 else 0
        groups.begin[group], groups.distinct_before[group] = first, before
        groups.n_survivors[group] = min(upto - before, limits.capacity)


@compiled
def _group_start(ranking, limits, group):
    """The first place in the order of an island and size, by bisection."""
    island, size = group // (limits.width + 1), group % (limits.width + 1)
    edge = np.uint64(island) << _ISLANDS | np.uint64(size) << _SIZES
    low, high = 0, len(ranking.sorted_key)
    while low < high:
        middle = (low + high) >> 1
        if ranking.sorted_key[middle] < edge:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def move_survivors(trees, fitness, children, outcome, ranking, groups, limits, next_trees, next_fitness, begin, end):
    """Copy the survivors to their places in the next generation."""
    n_parents = len(fitness.loss)
    for j in range(begin, end):
        if ranking.is_distinct[j]:
            key = ranking.sorted_key[j]
            island = np.int64(key >> _ISLANDS)
            group = island * (limits.width + 1) + np.int64(key >> _SIZES & _ALL_SIZES)
            rank = ranking.n_distinct[j] - 1 - groups.distinct_before[group]
            if rank < groups.n_survivors[group]:
                place, row = groups.end[group] - groups.n_survivors[group] + rank, ranking.order[j]
                next_fitness.island[place] = island
                if row < n_parents:
                    next_fitness.loss[place] = fitness.loss[row]
                    _copy_tree(trees, fitness, row, next_trees, next_fitness, place)
                else:
                    next_fitness.loss[place] = outcome.loss[row - n_parents]
                    _copy_tree(children, outcome, row - n_parents, next_trees, next_fitness, place)


@compiled
def set_loss_limits(groups, limits, fitness, begin, end):
    """Write the largest loss of every island and size that is full, and where islands begin."""
    for group in range(begin, end):
        last = groups.end[group]
        is_full = groups.n_survivors[group] == limits.capacity
        fitness.loss_limit[group] = fitness.loss[max(last, 1) - 1] if is_full else INFINITE
        if group % (limits.width + 1) == 0:
            fitness.island_start[group // (limits.width + 1)] = last - groups.n_survivors[group]
        if group + 1 == len(groups.end):
            fitness.island_start[limits.islands] = last


@compiled
def _copy_tree(trees, scalings, row, to_trees, to_scalings, place):
    """Copy a tree and its scaling from a row to a place."""
    to_trees.length[place] = trees.length[row]
    for k in range(2):
        to_scalings.scaling[place, k] = scalings.scaling[row, k]
    for k in range(trees.length[row]):
        to_trees.kinds[place, k] = trees.kinds[row, k]
        to_trees.values[place, k] = trees.values[row, k]


@compiled
def update_hall_of_fame(children, outcome, ranking, groups, limits, hall_of_fame, begin, end):
    """Write the best child of sizes begin to end, of those that are the best of their size on an island."""
    n_parents = len(ranking.key) - limits.n
    for size in range(begin, end):
        best = -1
        for island in range(limits.islands):
            group = island * (limits.width + 1) + size
            if groups.n_survivors[group] > 0:
                row = ranking.order[groups.begin[group]] - n_parents
                if row >= 0 and (best < 0 or outcome.loss[row] < outcome.loss[best]):
                    best = row
        hall_of_fame.length[size] = 0
        if best >= 0:
            _copy_tree(children, outcome, best, hall_of_fame, hall_of_fame, size)
            hall_of_fame.loss[size] = outcome.loss[best]


def scaled_trees(
    loops: Any, children: TreeRows, fitness: Fitness, subset: ParameterSubset, limits: SurvivalLimits
) -> ScaledTrees:
    """``a + b * tree`` of children, to be fitted."""
    xp, n = loops.xp, len(children.length)
    offsets = xp.zeros(n + 1, np.int64)
    offsets[1:] = xp.cumsum(children.length + SCALING_TOKENS)
    n_tokens = int(offsets[-1])
    scaled = ScaledTrees(
        xp.empty(n_tokens, np.uint8),
        xp.empty(n_tokens, np.uint64),
        offsets,
        xp.empty((n, 2 + subset.size), np.float64),
        xp.empty(n, np.float64),
    )
    loops.run(write_scaled, n, children, fitness, scaled, subset, limits)
    return scaled


def survivors(
    loops: Any,
    trees: TreeRows,
    fitness: Fitness,
    children: TreeRows,
    outcome: FitOutcome,
    limits: SurvivalLimits,
    buffers: tuple[TreeRows, Fitness],
    hall_of_fame: HallOfFame,
) -> tuple[TreeRows, Fitness]:
    """The next generation, written to ``buffers``; ``hall_of_fame`` gets the best children."""
    xp, rows, n_groups = loops.xp, len(fitness.loss) + limits.n, limits.islands * (limits.width + 1)
    next_trees, next_fitness = buffers
    keys, nothing = xp.empty(rows, np.uint64), xp.empty(0, np.int64)
    ranking = Ranking(keys, nothing, xp.empty(rows, np.uint64), xp.empty(rows, np.int64), nothing)
    loops.run(compute_keys, rows, trees, fitness, children, outcome, ranking, limits)
    ranking = ranking._replace(order=loops.order(keys))
    loops.run(mark_distinct, rows, ranking, next_fitness)
    ranking = ranking._replace(n_distinct=xp.cumsum(ranking.is_distinct))
    begin, before, n_survivors = xp.empty((3, n_groups), np.int64)
    groups = Groups(begin, before, n_survivors, nothing)
    loops.run(count_survivors, n_groups, ranking, groups, limits)
    groups = groups._replace(end=xp.cumsum(groups.n_survivors))
    loops.run(
        move_survivors, rows, trees, fitness, children, outcome, ranking, groups, limits, next_trees, next_fitness
    )
    loops.run(set_loss_limits, n_groups, groups, limits, next_fitness)
    loops.run(update_hall_of_fame, limits.width + 1, children, outcome, ranking, groups, limits, hall_of_fame)
    return next_trees, next_fitness
