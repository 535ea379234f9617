"""Variation (crossover and mutation) on token arrays, a loop over children, on the host or on a device.

In: trees that breed, blocks (small trees to put in).  Out: as many children as are wanted.

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

CROSSOVER, BLOCK, POINT, NUMBER, INSERT, HOIST, SWAP = range(7)
KINDS = 7
TRIES = 8  # to make a child that is not too long
MIGRATION = 0.02  # share of the tournaments that are held on another island
TABLE = 4096  # numbers that are drawn from
FAR = 0.05  # share of them that are of any size from 1e-35 to 1e35
_SEED, _ITEM, _BITS, _UNIT = np.uint64(0xD1342543DE82EF95), np.uint64(0x2545F4914F6CDD1D), np.uint64(11), 2.0**-53


class TreeRows(NamedTuple):
    """Trees of equal room."""

    kinds: Annotated[np.ndarray, "uint8[n, width]"]
    values: Annotated[np.ndarray, "uint64[n, width]"]
    length: Annotated[np.ndarray, "int64[n]"]


class Standing(NamedTuple):
    """What is known of trees that breed: those of an island follow one another, and in it those of a size, the best
    first."""

    loss: Annotated[np.ndarray, "float64[n]"]  # inf: no tree
    line: Annotated[np.ndarray, "float64[n, 2]"]  # a and b of a + b * tree
    island: Annotated[np.ndarray, "int64[n]"]
    first: np.ndarray  # int64, by island: its first tree; then how many there are
    limit: np.ndarray  # float64, by island and size: the largest loss, inf where more trees have room


class Means(NamedTuple):
    """What children are made with."""

    unary: np.ndarray  # codes
    binary: np.ndarray
    ternary: np.ndarray
    arity: np.ndarray  # by code
    share: np.ndarray  # of the kinds of variation, summed up; the last is 1
    numbers: np.ndarray  # bits of the numbers that leaves are drawn from
    factors: np.ndarray  # what numbers are changed by
    n_vars: int
    width: int  # the most tokens
    tournament: int
    islands: int
    n: int  # children


class Draws(NamedTuple):
    """A source of random numbers for every child."""

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
    """Back."""
    inside = np.arange(trees.kinds.shape[1]) < trees.length[:, None]
    return Population(trees.kinds[inside], trees.values[inside], np.concatenate([[0], np.cumsum(trees.length)]))


def tree_rows(xp: Any, n: int, width: int) -> TreeRows:
    """Room for trees."""
    return TreeRows(xp.empty((n, width), np.uint8), xp.empty((n, width), np.uint64), xp.zeros(n, np.int64))


def standing(xp: Any, n: int, islands: int, width: int) -> Standing:
    """Of no tree."""
    return Standing(
        xp.full(n, np.inf), xp.empty((n, 2), np.float64), xp.empty(n, np.int64), xp.zeros(islands + 1, np.int64),
        xp.full(islands * (width + 1), np.inf),
    )  # fmt: skip


def means(
    operators: Sequence[defined.Written], n_vars: int, crossover: float, *, width: int, tournament: int = 10,
    islands: int = 1, n: int = 0,
) -> Means:  # fmt: skip
    """Shares: ``crossover``, the rest evenly among the others, half of it for blocks."""
    rest = 1 - crossover
    share = np.array([crossover, rest * 0.3, *[rest * 0.7 / (KINDS - 2)] * (KINDS - 2)])
    unary, binary, ternary = (
        np.array([row.code for row in operators if row.arity == arity], np.int64) for arity in (1, 2, 3)
    )
    numbers, factors = _tables()
    return Means(
        unary, binary, ternary, defined.arity(), np.cumsum(share) / share.sum(), numbers.view(np.uint64), factors,
        n_vars, width, tournament, islands, n,
    )  # fmt: skip


@functools.cache
def _tables() -> tuple[np.ndarray, np.ndarray]:
    """Numbers for leaves, most of them from 0.001 to 1000, and factors, from 1 / 7 to 7; some are negative."""
    random = np.random.Generator(np.random.Philox(0))
    size = 2 * random.random((TABLE, 3)).sum(axis=1) - 3
    far = np.arange(TABLE) < FAR * TABLE
    size[far] = np.linspace(-35, 35, far.sum())
    numbers = np.where(np.arange(TABLE) % 2, -1.0, 1.0) * 10.0**size
    factors = np.exp(2 * random.random((TABLE, 2)).sum(axis=1) - 2)
    return numbers, np.where(random.random(TABLE) < 0.1, -factors, factors)


@inline
def _next(draws, i) -> float:
    """The next random number of child i, 0 to 1."""
    draws.state[i] += GOLDEN
    return np.float64(mixed(draws.state[i]) >> _BITS) * _UNIT


@inline
def _below(draws, i, n):
    return np.int64(_next(draws, i) * n)


@compiled
def breed(trees, known, blocks, how, draws, made, begin, end):
    """Children begin to end; where no tree is good for anything, the blocks again."""
    for i in range(begin, end):
        draws.state[i] = draws.seed * _SEED + np.uint64(i) * _ITEM
        _next(draws, i)
        mother = _winner(trees, known, how, draws, i)
        father = _winner(trees, known, how, draws, i)
        if mother < 0:
            block = i % len(blocks.length)
            _copy(made, i, 0, blocks, block, 0, blocks.length[block])
            made.length[i] = blocks.length[block]
            continue
        done = False
        for _ in range(TRIES):
            if _child(trees, mother, father, blocks, how, draws, made, i):
                done = True
                break
        if not done:
            _copy(made, i, 0, trees, mother, 0, trees.length[mother])
            made.length[i] = trees.length[mother]


@compiled
def _winner(trees, known, how, draws, i):
    """Of a tournament the tree of least loss among those that are small enough; -1: there are no trees."""
    island = i * how.islands // how.n
    if how.islands > 1 and _next(draws, i) < MIGRATION:
        island = _below(draws, i, how.islands)
    start = known.first[island]
    count = known.first[island + 1] - start
    if count == 0:
        start = 0
        count = known.first[how.islands]
        if count == 0:
            return -1
    most = 1 + _below(draws, i, how.width)
    best = -1
    one = -1
    for _ in range(how.tournament):
        one = start + _below(draws, i, count)
        if trees.length[one] <= most and (best < 0 or known.loss[one] < known.loss[best]):
            best = one
    return best if best >= 0 else one


@compiled
def _child(trees, mother, father, blocks, how, draws, made, i):
    """Whether child i has become a tree that is not too long."""
    drawn = _next(draws, i)
    kind = 0
    while kind < KINDS - 1 and drawn > how.share[kind]:
        kind += 1
    last = _below(draws, i, trees.length[mother])
    first = _first(trees, mother, last, how.arity)
    if kind == CROSSOVER:
        other = _below(draws, i, trees.length[father])
        begin = _first(trees, father, other, how.arity)
        return _replaced(trees, mother, first, last, trees, father, begin, other, how, made, i)
    if kind == BLOCK:
        block = _below(draws, i, len(blocks.length))
        return _replaced(trees, mother, first, last, blocks, block, 0, blocks.length[block] - 1, how, made, i)
    if kind == INSERT:
        return _inserted(trees, mother, first, last, how, draws, made, i)
    if kind in (HOIST, SWAP):
        if trees.kinds[mother, last] != OPERATOR:
            return False
        if kind == SWAP:
            return _swapped(trees, mother, first, last, how, made, i)
        end = last - 1
        if _next(draws, i) >= 0.5:
            end = _first(trees, mother, last - 1, how.arity) - 1
            if how.arity[np.int64(trees.values[mother, last])] == 3 and _next(draws, i) >= 0.5:
                end = _first(trees, mother, end, how.arity) - 1
        if end < first:
            return False
        begin = _first(trees, mother, end, how.arity)
        return _replaced(trees, mother, first, last, trees, mother, begin, end, how, made, i)
    _copy(made, i, 0, trees, mother, 0, trees.length[mother])
    made.length[i] = trees.length[mother]
    return _changed(made, i, last, kind, how, draws)


@compiled
def _first(trees, row, last, arity):
    """Where the subtree that ends at ``last`` begins."""
    wanted = 1
    at = last
    while True:
        if trees.kinds[row, at] == OPERATOR:
            wanted += arity[np.int64(trees.values[row, at])]
        wanted -= 1
        if wanted == 0:
            return at
        at -= 1


@compiled
def _copy(made, i, to, trees, row, begin, end):
    """Tokens from one tree to another; where they end there."""
    at = to
    for k in range(begin, end):
        made.kinds[i, at] = trees.kinds[row, k]
        made.values[i, at] = trees.values[row, k]
        at += 1
    return at


@compiled
def _replaced(trees, row, first, last, others, other, begin, stop, how, made, i):
    """A tree with a subtree in another's place."""
    n = trees.length[row] - (last - first) + (stop - begin)
    if n > how.width:
        return False
    at = _copy(made, i, 0, trees, row, 0, first)
    at = _copy(made, i, at, others, other, begin, stop + 1)
    _copy(made, i, at, trees, row, last + 1, trees.length[row])
    made.length[i] = n
    return True


@compiled
def _inserted(trees, row, first, last, how, draws, made, i):
    """An operator above a subtree, its other operands leaves."""
    arity = 2
    if len(how.unary) > 0 and _next(draws, i) < 0.3:
        arity = 1
    elif len(how.ternary) > 0 and (len(how.binary) == 0 or _next(draws, i) < 0.3):
        arity = 3
    n = trees.length[row] + arity
    if n > how.width or (arity == 2 and len(how.binary) == 0):
        return False
    at = _copy(made, i, 0, trees, row, 0, first)
    before = 0
    drawn = _next(draws, i)
    if arity == 2 and drawn < 0.5:
        before = 1
    elif arity == 3:
        before = int(drawn * 3)
    for _ in range(before):
        at = _leaf(made, i, at, how, draws)
    at = _copy(made, i, at, trees, row, first, last + 1)
    for _ in range(before + 1, arity):
        at = _leaf(made, i, at, how, draws)
    made.kinds[i, at] = OPERATOR
    if arity == 1:
        made.values[i, at] = np.uint64(how.unary[_below(draws, i, len(how.unary))])
    elif arity == 2:
        made.values[i, at] = np.uint64(how.binary[_below(draws, i, len(how.binary))])
    else:
        made.values[i, at] = np.uint64(how.ternary[_below(draws, i, len(how.ternary))])
    _copy(made, i, at + 1, trees, row, last + 1, trees.length[row])
    made.length[i] = n
    return True


@compiled
def _swapped(trees, row, first, last, how, made, i):
    """The operands of an operator the other way round; of three, the last one first."""
    if how.arity[np.int64(trees.values[row, last])] < 2:
        return False
    middle = _first(trees, row, last - 1, how.arity)
    at = _copy(made, i, 0, trees, row, 0, first)
    at = _copy(made, i, at, trees, row, middle, last)
    at = _copy(made, i, at, trees, row, first, middle)
    _copy(made, i, at, trees, row, last, trees.length[row])
    made.length[i] = trees.length[row]
    return True


@compiled
def _leaf(made, i, at, how, draws):
    """A variable, or a number of any size; where the next token goes."""
    if _next(draws, i) < 0.7:
        made.kinds[i, at] = VARIABLE
        made.values[i, at] = np.uint64(_below(draws, i, how.n_vars))
    else:
        made.kinds[i, at] = CONSTANT
        made.values[i, at] = how.numbers[_below(draws, i, len(how.numbers))]
    return at + 1


@compiled
def _changed(made, i, place, kind, how, draws):
    """A token changed in place: a number by a factor, anything into another of its kind."""
    at = place
    if kind == NUMBER:
        for _ in range(made.length[i]):
            if made.kinds[i, at] == CONSTANT:
                factor = how.factors[_below(draws, i, len(how.factors))]
                number = np.uint64(made.values[i, at]).view(np.float64) * factor
                made.values[i, at] = np.float64(number).view(np.uint64)
                return True
            at = at + 1 if at + 1 < made.length[i] else 0
        return False
    if made.kinds[i, at] != OPERATOR:
        _leaf(made, i, at, how, draws)
        return True
    arity = how.arity[np.int64(made.values[i, at])]
    if arity == 2:
        if len(how.binary) == 0:
            return False
        made.values[i, at] = np.uint64(how.binary[_below(draws, i, len(how.binary))])
        return True
    if arity == 3:
        if len(how.ternary) == 0:
            return False
        made.values[i, at] = np.uint64(how.ternary[_below(draws, i, len(how.ternary))])
        return True
    if len(how.unary) == 0:
        return False
    made.values[i, at] = np.uint64(how.unary[_below(draws, i, len(how.unary))])
    return True
