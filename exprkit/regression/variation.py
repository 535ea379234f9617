"""Variation: new trees from old ones, as token arrays, a loop over children.

In: trees, blocks (small trees to put in), the numbers of the parents.  Out: as many children.

A tree is a row of ``kinds`` and ``values``, postfix, and a length.  What child i becomes depends on the seed and i
alone (a hash of both is its source of random numbers), not on threads.

    >>> import numpy as np
    >>> from exprkit.regression.variation import TreeRows, rows_of
    >>> import exprkit as ek
    >>> trees = rows_of(ek.parse(["x1 + 1", "x2"]), width=5)
    >>> trees.length.tolist(), trees.kinds.shape
    ([3, 1], (2, 5))
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np

from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.runtime import slices
from exprkit.runtime.bags import empty
from exprkit.runtime.hashes import next_word
from exprkit.runtime.jit import compiled, inline
from exprkit.text.tokens import CONSTANT, OPERATOR, VARIABLE

CROSSOVER, BLOCK, POINT, NUMBER, INSERT, HOIST, SWAP = range(7)
KINDS = 7
TRIES = 8  # to make a child that is not too long
LEAST = 64  # children of a slice


class TreeRows(NamedTuple):
    """TreeRows of equal room."""

    kinds: Annotated[np.ndarray, "uint8[n, width]"]
    values: Annotated[np.ndarray, "uint64[n, width]"]
    length: Annotated[np.ndarray, "int64[n]"]


class Means(NamedTuple):
    """What children are made with."""

    unary: np.ndarray  # codes
    binary: np.ndarray
    arity: np.ndarray  # by code
    share: np.ndarray  # of the kinds of variation, summed up; the last is 1
    n_vars: int


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


def joined(parts: list[TreeRows]) -> TreeRows:
    """One after the other."""
    return TreeRows(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def taken(trees: TreeRows, order: np.ndarray) -> TreeRows:
    """Some of them."""
    return TreeRows(*(np.ascontiguousarray(array[order]) for array in trees))


def means(operators: Sequence[ops.Operator], n_vars: int, crossover: float) -> Means:
    """Shares: ``crossover``, the rest evenly among the others, half of it for blocks."""
    rest = 1 - crossover
    share = np.array([crossover, rest * 0.3, *[rest * 0.7 / (KINDS - 2)] * (KINDS - 2)])
    unary, binary = (np.array([row.code for row in operators if row.arity == n], np.int64) for n in (1, 2))
    return Means(unary, binary, ops.ARITY, np.cumsum(share) / share.sum(), n_vars)


def children(
    trees: TreeRows, parents: np.ndarray, blocks: TreeRows, how: Means, seed: int, threads: int | None = None
) -> TreeRows:
    """A child of each pair of parents.

    Parameters
    ----------
    parents : int64 array, (n, 2)
        The second gives a part only where the two are crossed.
    """
    n, width = len(parents), trees.kinds.shape[1]
    made = empty(TreeRows, n=n, width=width)
    some = functools.partial(_children, trees, parents, blocks, how, np.uint64(seed), made)
    slices.each(some, slices.cut(np.arange(n + 1), threads, least=LEAST))
    return made


@inline
def _next(state):
    """The next random number, 0 to 1."""
    return np.float64(next_word(state) >> np.uint64(11)) * 2.0**-53


@inline
def _below(state, n):
    return np.int64(_next(state) * n)


@compiled
def _children(trees, parents, blocks, how, seed, made, begin, end):
    state = np.empty(1, np.uint64)
    for i in range(begin, end):
        state[0] = seed * np.uint64(0xD1342543DE82EF95) + np.uint64(i) * np.uint64(0x2545F4914F6CDD1D)
        _next(state)
        for _ in range(TRIES):
            if _child(trees, parents[i, 0], parents[i, 1], blocks, how, state, made, i):
                break
        else:
            _copy(made, i, 0, trees, parents[i, 0], 0, trees.length[parents[i, 0]])
            made.length[i] = trees.length[parents[i, 0]]


@compiled
def _child(trees, mother, father, blocks, how, state, made, i):
    """Whether child i has become a tree that is not too long."""
    drawn = _next(state)
    kind = 0
    while kind < KINDS - 1 and drawn > how.share[kind]:
        kind += 1
    last = _below(state, trees.length[mother])
    first = _first(trees, mother, last, how.arity)
    if kind == CROSSOVER:
        other = _below(state, trees.length[father])
        begin = _first(trees, father, other, how.arity)
        return _replaced(trees, mother, first, last, trees, father, begin, other, made, i)
    if kind == BLOCK:
        block = _below(state, len(blocks.length))
        return _replaced(trees, mother, first, last, blocks, block, 0, blocks.length[block] - 1, made, i)
    if kind == INSERT:
        return _inserted(trees, mother, first, last, how, state, made, i)
    if kind in (HOIST, SWAP):
        if trees.kinds[mother, last] != OPERATOR:
            return False
        if kind == HOIST:
            end = last - 1 if _next(state) < 0.5 else _first(trees, mother, last - 1, how.arity) - 1
            if end < first:
                return False
            begin = _first(trees, mother, end, how.arity)
            return _replaced(trees, mother, first, last, trees, mother, begin, end, made, i)
        return _swapped(trees, mother, first, last, how, made, i)
    _copy(made, i, 0, trees, mother, 0, trees.length[mother])
    made.length[i] = trees.length[mother]
    return _changed(made, i, last, kind, how, state)


@compiled
def _first(trees, row, last, arity):
    """Where the subtree that ends at ``last`` begins."""
    wanted = 1
    while True:
        if trees.kinds[row, last] == OPERATOR:
            wanted += arity[np.int64(trees.values[row, last])]
        wanted -= 1
        if wanted == 0:
            return last
        last -= 1


@compiled
def _copy(made, i, at, trees, row, begin, end):
    """Tokens from one tree to another; where they end there."""
    for k in range(begin, end):
        made.kinds[i, at] = trees.kinds[row, k]
        made.values[i, at] = trees.values[row, k]
        at += 1
    return at


@compiled
def _replaced(trees, row, first, last, others, other, begin, stop, made, i):
    """A tree with a subtree in another's place."""
    n = trees.length[row] - (last - first) + (stop - begin)
    if n > made.kinds.shape[1]:
        return False
    at = _copy(made, i, 0, trees, row, 0, first)
    at = _copy(made, i, at, others, other, begin, stop + 1)
    _copy(made, i, at, trees, row, last + 1, trees.length[row])
    made.length[i] = n
    return True


@compiled
def _inserted(trees, row, first, last, how, state, made, i):
    """An operator above a subtree, its other operand a leaf."""
    unary = len(how.unary) > 0 and _next(state) < 0.3
    n = trees.length[row] + (1 if unary else 2)
    if n > made.kinds.shape[1] or (not unary and len(how.binary) == 0):
        return False
    at = _copy(made, i, 0, trees, row, 0, first)
    before = _next(state) < 0.5
    if not unary and before:
        at = _leaf(made, i, at, how, state)
    at = _copy(made, i, at, trees, row, first, last + 1)
    if not unary and not before:
        at = _leaf(made, i, at, how, state)
    codes = how.unary if unary else how.binary
    made.kinds[i, at] = OPERATOR
    made.values[i, at] = np.uint64(codes[_below(state, len(codes))])
    _copy(made, i, at + 1, trees, row, last + 1, trees.length[row])
    made.length[i] = n
    return True


@compiled
def _swapped(trees, row, first, last, how, made, i):
    """The operands of an operator the other way round."""
    if how.arity[np.int64(trees.values[row, last])] != 2:
        return False
    middle = _first(trees, row, last - 1, how.arity)
    at = _copy(made, i, 0, trees, row, 0, first)
    at = _copy(made, i, at, trees, row, middle, last)
    at = _copy(made, i, at, trees, row, first, middle)
    _copy(made, i, at, trees, row, last, trees.length[row])
    made.length[i] = trees.length[row]
    return True


@compiled
def _leaf(made, i, at, how, state):
    """A variable, or a number of any size."""
    if _next(state) < 0.7:
        made.kinds[i, at] = VARIABLE
        made.values[i, at] = np.uint64(_below(state, how.n_vars))
    else:
        number = np.empty(1)
        sign = -1.0 if _next(state) < 0.5 else 1.0
        number[0] = sign * 10.0 ** (2 * (_next(state) + _next(state) + _next(state)) - 3)
        made.kinds[i, at] = CONSTANT
        made.values[i, at] = number.view(np.uint64)[0]
    return at + 1


@compiled
def _changed(made, i, at, kind, how, state):
    """A token changed in place: a number by a factor, anything into another of its kind."""
    if kind == NUMBER:
        for _ in range(made.length[i]):
            if made.kinds[i, at] == CONSTANT:
                number = made.values[i : i + 1, at].copy().view(np.float64)
                number[0] *= (-1.0 if _next(state) < 0.1 else 1.0) * np.exp(2 * (_next(state) + _next(state) - 1))
                made.values[i, at] = number.view(np.uint64)[0]
                return True
            at = at + 1 if at + 1 < made.length[i] else 0
        return False
    if made.kinds[i, at] != OPERATOR:
        _leaf(made, i, at, how, state)
        return True
    codes = how.unary if how.arity[np.int64(made.values[i, at])] == 1 else how.binary
    if len(codes) == 0:
        return False
    made.values[i, at] = np.uint64(codes[_below(state, len(codes))])
    return True
