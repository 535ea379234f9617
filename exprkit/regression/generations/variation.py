"""Variation: tournament selection, crossover and mutation of trees on token arrays, on the host or on a device.

In: parents with their fitness, blocks (small trees for subtree mutation).  Out: ``BreedingSettings.n`` children.

A tree is a row of ``kinds`` and ``values``, postfix, and a length.  Its parents are the winners of two tournaments on
an island, sometimes on another one.  What child i becomes depends on the seed and i alone (a hash of both is its source
of random numbers), not on threads, and is the same on a device (``device_programs.loops``).

    >>> import numpy as np
    >>> from exprkit.regression.generations.variation import TreeRows, rows_of
    >>> import exprkit as ek
    >>> trees = rows_of(ek.parse(["x1 + 1", "x2"]), width=5)
    >>> trees.length.tolist(), trees.kinds.shape
    ([3, 1], (2, 5))
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from exprkit.expressions.population import Population
from exprkit.operators import defined
from exprkit.runtime.bags import empty
from exprkit.runtime.hashes import GOLDEN, mixed
from exprkit.runtime.jit import compiled, inline
from exprkit.text.tokens import CONSTANT, OPERATOR, VARIABLE

# crossover; mutations: of a subtree, of a token, of a number, insertion, hoist, exchange of operands
CROSSOVER, BLOCK, POINT, NUMBER, INSERT, HOIST, SWAP = range(7)
KINDS = 7
MAX_TRIES = 8  # variations until a child is short enough; then it is a copy of its mother
MIGRATION = 0.02  # share of the tournaments that are held on another island
TABLE_SIZE = 4096  # random numbers for leaves, and factors for numbers
EXTREME_SHARE = 0.05  # share of them that are of any size from 1e-35 to 1e35
_SEED, _ITEM, _BITS, _UNIT = np.uint64(0xD1342543DE82EF95), np.uint64(0x2545F4914F6CDD1D), np.uint64(11), 2.0**-53


class TreeRows(NamedTuple):
    """Trees as rows of token arrays, padded to one width."""

    kinds: Annotated[np.ndarray, "uint8[n, width]"]
    values: Annotated[np.ndarray, "uint64[n, width]"]
    length: Annotated[np.ndarray, "int64[n]"]


class Fitness(NamedTuple):
    """Fitness of trees, which are sorted by island, size and loss."""

    loss: Annotated[np.ndarray, "float64[n]"]  # inf: no tree
    scaling: Annotated[np.ndarray, "float64[n, 2]"]  # a and b of a + b * tree (linear scaling)
    island: Annotated[np.ndarray, "int64[n]"]
    island_start: np.ndarray  # int64, (islands + 1,): the row of an island's first tree; at last the number of trees
    loss_limit: np.ndarray  # float64, by island and size: the largest loss, inf where there are places left


class BreedingSettings(NamedTuple):
    """Operators and probabilities of variation, and tables of random numbers."""

    unary: np.ndarray  # codes of operators
    binary: np.ndarray
    ternary: np.ndarray
    arity: np.ndarray  # by code
    probability: np.ndarray  # cumulative, of the kinds of variation
    numbers: np.ndarray  # float64 as bits, for leaves
    factors: np.ndarray  # float64, by which a mutation multiplies a number
    n_vars: int
    width: int  # tokens of a tree at most
    tournament: int  # trees that take part in one
    islands: int
    n: int  # children


class RandomState(NamedTuple):
    """State of a random number generator for every child."""

    state: np.ndarray  # uint64, by child
    seed: np.uint64


def rows_of(pop: Population, width: int) -> TreeRows:
    """The expressions of up to ``width`` tokens as rows."""
    pop = pop[pop.n_tokens <= width]
    trees = empty(TreeRows, n=len(pop), width=width)
    trees.length[:] = pop.n_tokens
    inside = np.arange(width) < trees.length[:, None]
    trees.kinds[inside], trees.values[inside] = pop.kinds, pop.values
    return trees


def population_of(trees: TreeRows) -> Population:
    """The expressions of rows."""
    inside = np.arange(trees.kinds.shape[1]) < trees.length[:, None]
    return Population(trees.kinds[inside], trees.values[inside], np.concatenate([[0], np.cumsum(trees.length)]))


def empty_trees(xp: Any, n: int, width: int) -> TreeRows:
    """Rows for n trees."""
    return TreeRows(xp.empty((n, width), np.uint8), xp.empty((n, width), np.uint64), xp.zeros(n, np.int64))


def empty_fitness(xp: Any, n: int, islands: int, width: int) -> Fitness:
    """Fitness of n places without a tree."""
    return Fitness(
        xp.full(n, np.inf),
        xp.empty((n, 2), np.float64),
        xp.empty(n, np.int64),
        xp.zeros(islands + 1, np.int64),
        xp.full(islands * (width + 1), np.inf),
    )


def breeding_settings(
    operators: Sequence[defined.Written],
    n_vars: int,
    crossover: float,
    *,
    width: int,
    tournament: int = 10,
    islands: int = 1,
    n: int = 0,
) -> BreedingSettings:
    """``crossover`` is its probability; 0.3 of what is left for subtree mutation, the others have equal parts."""
    mutation = 1 - crossover
    probability = np.array([crossover, mutation * 0.3, *[mutation * 0.7 / (KINDS - 2)] * (KINDS - 2)])
    unary, binary, ternary = (
        np.array([row.code for row in operators if row.arity == arity], np.int64) for arity in (1, 2, 3)
    )
    numbers, factors = _tables()
    shares = np.cumsum(probability) / probability.sum()
    tables = defined.arity(), shares, numbers.view(np.uint64), factors
    return BreedingSettings(unary, binary, ternary, *tables, n_vars, width, tournament, islands, n)


@functools.cache
def _tables() -> tuple[np.ndarray, np.ndarray]:
    """Numbers for leaves, most of them from 0.001 to 1000, and factors, from 1 / 7 to 7; some are negative."""
    random = np.random.Generator(np.random.Philox(0))
    size = 2 * random.random((TABLE_SIZE, 3)).sum(axis=1) - 3
    extreme = np.arange(TABLE_SIZE) < EXTREME_SHARE * TABLE_SIZE
    size[extreme] = np.linspace(-35, 35, extreme.sum())
    numbers = np.where(np.arange(TABLE_SIZE) % 2, -1.0, 1.0) * 10.0**size
    factors = np.exp(2 * random.random((TABLE_SIZE, 2)).sum(axis=1) - 2)
    return numbers, np.where(random.random(TABLE_SIZE) < 0.1, -factors, factors)


@inline
def _uniform(random, i) -> float:
    """The next random number of child i, 0 to 1."""
    random.state[i] += GOLDEN
    return np.float64(mixed(random.state[i]) >> _BITS) * _UNIT


@inline
def _integer(random, i, n):
    """A random integer, 0 to n - 1."""
    return np.int64(_uniform(random, i) * n)


@compiled
def breed(trees, fitness, blocks, settings, random, children, begin, end):
    """Write children begin to end; where no parent has a finite loss, the blocks."""
    for i in range(begin, end):
        random.state[i] = random.seed * _SEED + np.uint64(i) * _ITEM
        _uniform(random, i)
        mother = _tournament(trees, fitness, settings, random, i)
        father = _tournament(trees, fitness, settings, random, i)
        if mother < 0:
            block = i % len(blocks.length)
            _copy_tokens(children, i, 0, blocks, block, 0, blocks.length[block])
            children.length[i] = blocks.length[block]
            continue
        is_short = False
        for _ in range(MAX_TRIES):
            if _vary(trees, mother, father, blocks, settings, random, children, i):
                is_short = True
                break
        if not is_short:
            _copy_tokens(children, i, 0, trees, mother, 0, trees.length[mother])
            children.length[i] = trees.length[mother]


@compiled
def _tournament(trees, fitness, settings, random, i):
    """The winner of a tournament: the tree of least loss up to a size, which is drawn too; -1: there are no trees."""
    island = i * settings.islands // settings.n
    if settings.islands > 1 and _uniform(random, i) < MIGRATION:
        island = _integer(random, i, settings.islands)
    start = fitness.island_start[island]
    count = fitness.island_start[island + 1] - start
    if count == 0:
        start = 0
        count = fitness.island_start[settings.islands]
        if count == 0:
            return -1
    max_size = 1 + _integer(random, i, settings.width)
    best = -1
    tree = -1
    for _ in range(settings.tournament):
        tree = start + _integer(random, i, count)
        if trees.length[tree] <= max_size and (best < 0 or fitness.loss[tree] < fitness.loss[best]):
            best = tree
    return best if best >= 0 else tree


@compiled
def _vary(trees, mother, father, blocks, settings, random, children, i):
    """Write child i by a kind of variation that is drawn; whether that applies and the child is short enough."""
    drawn = _uniform(random, i)
    kind = 0
    while kind < KINDS - 1 and drawn > settings.probability[kind]:
        kind += 1
    last = _integer(random, i, trees.length[mother])
    first = _subtree_start(trees, mother, last, settings.arity)
    if kind == CROSSOVER:
        other = _integer(random, i, trees.length[father])
        begin = _subtree_start(trees, father, other, settings.arity)
        return _replace_subtree(trees, mother, first, last, trees, father, begin, other, settings, children, i)
    if kind == BLOCK:
        block = _integer(random, i, len(blocks.length))
        end = blocks.length[block] - 1
        return _replace_subtree(trees, mother, first, last, blocks, block, 0, end, settings, children, i)
    if kind == INSERT:
        return _insert_operator(trees, mother, first, last, settings, random, children, i)
    if kind in (HOIST, SWAP):
        if trees.kinds[mother, last] != OPERATOR:
            return False
        if kind == SWAP:
            return _swap_operands(trees, mother, first, last, settings, children, i)
        end = last - 1
        if _uniform(random, i) >= 0.5:
            end = _subtree_start(trees, mother, last - 1, settings.arity) - 1
            if settings.arity[np.int64(trees.values[mother, last])] == 3 and _uniform(random, i) >= 0.5:
                end = _subtree_start(trees, mother, end, settings.arity) - 1
        if end < first:
            return False
        begin = _subtree_start(trees, mother, end, settings.arity)
        return _replace_subtree(trees, mother, first, last, trees, mother, begin, end, settings, children, i)
    _copy_tokens(children, i, 0, trees, mother, 0, trees.length[mother])
    children.length[i] = trees.length[mother]
    return _mutate_token(children, i, last, kind, settings, random)


@compiled
def _subtree_start(trees, row, last, arity):
    """The place of the first token of the subtree that ends at ``last``."""
    n_operands = 1
    at = last
    while True:
        if trees.kinds[row, at] == OPERATOR:
            n_operands += arity[np.int64(trees.values[row, at])]
        n_operands -= 1
        if n_operands == 0:
            return at
        at -= 1


@compiled
def _copy_tokens(children, i, to, trees, row, begin, end):
    """Copy tokens of a tree to place ``to`` of child i; returns the place behind them."""
    at = to
    for k in range(begin, end):
        children.kinds[i, at] = trees.kinds[row, k]
        children.values[i, at] = trees.values[row, k]
        at += 1
    return at


@compiled
def _replace_subtree(trees, row, first, last, others, other, begin, stop, settings, children, i):
    """Child i: a tree in which another subtree takes the place of first to last; whether it is short enough."""
    n = trees.length[row] - (last - first) + (stop - begin)
    if n > settings.width:
        return False
    at = _copy_tokens(children, i, 0, trees, row, 0, first)
    at = _copy_tokens(children, i, at, others, other, begin, stop + 1)
    _copy_tokens(children, i, at, trees, row, last + 1, trees.length[row])
    children.length[i] = n
    return True


@compiled
def _insert_operator(trees, row, first, last, settings, random, children, i):
    """Child i: a tree with an operator above the subtree, its other operands leaves; whether that is possible."""
    arity = 2
    if len(settings.unary) > 0 and _uniform(random, i) < 0.3:
        arity = 1
    elif len(settings.ternary) > 0 and (len(settings.binary) == 0 or _uniform(random, i) < 0.3):
        arity = 3
    n = trees.length[row] + arity
    if n > settings.width or (arity == 2 and len(settings.binary) == 0):
        return False
    at = _copy_tokens(children, i, 0, trees, row, 0, first)
    before = 0
    drawn = _uniform(random, i)
    if arity == 2 and drawn < 0.5:
        before = 1
    elif arity == 3:
        before = int(drawn * 3)
    for _ in range(before):
        at = _put_leaf(children, i, at, settings, random)
    at = _copy_tokens(children, i, at, trees, row, first, last + 1)
    for _ in range(before + 1, arity):
        at = _put_leaf(children, i, at, settings, random)
    _put_operator(children, i, at, arity, settings, random)
    _copy_tokens(children, i, at + 1, trees, row, last + 1, trees.length[row])
    children.length[i] = n
    return True


@compiled
def _swap_operands(trees, row, first, last, settings, children, i):
    """Child i: a tree with the operands of an operator exchanged; of three, the last one first."""
    if settings.arity[np.int64(trees.values[row, last])] < 2:
        return False
    middle = _subtree_start(trees, row, last - 1, settings.arity)
    at = _copy_tokens(children, i, 0, trees, row, 0, first)
    at = _copy_tokens(children, i, at, trees, row, middle, last)
    at = _copy_tokens(children, i, at, trees, row, first, middle)
    _copy_tokens(children, i, at, trees, row, last, trees.length[row])
    children.length[i] = trees.length[row]
    return True


@compiled
def _put_leaf(children, i, at, settings, random):
    """Write a variable or a number of any size to a place of child i; returns the next place."""
    if _uniform(random, i) < 0.7:
        children.kinds[i, at] = VARIABLE
        children.values[i, at] = np.uint64(_integer(random, i, settings.n_vars))
    else:
        children.kinds[i, at] = CONSTANT
        children.values[i, at] = settings.numbers[_integer(random, i, len(settings.numbers))]
    return at + 1


@compiled
def _put_operator(children, i, at, arity, settings, random):
    """Write an operator of so many operands to a place of child i; whether there is any."""
    codes = settings.unary
    if arity == 2:
        codes = settings.binary
    elif arity == 3:
        codes = settings.ternary
    if len(codes) == 0:
        return False
    children.kinds[i, at] = OPERATOR
    children.values[i, at] = np.uint64(codes[_integer(random, i, len(codes))])
    return True


@compiled
def _mutate_token(children, i, place, kind, settings, random):
    """Change a token of child i: a number by a factor, an operator or leaf into another; whether there is any."""
    at = place
    if kind == NUMBER:
        for _ in range(children.length[i]):
            if children.kinds[i, at] == CONSTANT:
                factor = settings.factors[_integer(random, i, len(settings.factors))]
                number = np.uint64(children.values[i, at]).view(np.float64) * factor
                children.values[i, at] = np.float64(number).view(np.uint64)
                return True
            at = at + 1 if at + 1 < children.length[i] else 0
        return False
    if children.kinds[i, at] != OPERATOR:
        _put_leaf(children, i, at, settings, random)
        return True
    return _put_operator(children, i, at, settings.arity[np.int64(children.values[i, at])], settings, random)
