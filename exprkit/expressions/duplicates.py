"""Which expressions are equal up to the order of operands, as ``x1 + x2`` and ``x2 + x1`` are.

In: a population.  Out: for each expression the first one that it equals.

Two expressions are equal when their trees are, where a commutative operator's operands may be swapped; constants
are compared as bits, variables and parameters by index.  Nothing is computed: ``x1 + x1`` is not ``2 * x1``, and
``(x1 + x2) + x3`` not ``x1 + (x2 + x3)``.

How, plainly::

    hash every expression, in one walk over its tokens with a stack of its operands' hashes:
        a leaf's is that of its kind and value
        an operator's is that of its code and of both operands' hashes, or of their sum if it is commutative
    for each expression: look its hash up in a table; those of the same hash are compared exactly

The exact comparison, which mostly finds the same tokens at once, is one of canonical forms: the operands
of a commutative operator go by (hash, number of tokens, then token by token in canonical form).  So trees that
are equal have one canonical form, and hashes decide only how fast it is, never what is equal.

The table is made of parts, by the hash's first bits, and each part is one thread's.

    >>> import exprkit as ek
    >>> from exprkit.expressions.duplicates import first_equals
    >>> first_equals(ek.parse(["x1 + x2", "x1 - x2", "x2 + x1", "x2 - x1"])).tolist()
    [0, 1, 0, 3]
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np

from exprkit.operators import defined, ops
from exprkit.runtime import slices
from exprkit.runtime.bags import empty
from exprkit.runtime.hashes import mixed
from exprkit.runtime.jit import compiled, inline
from exprkit.text.tokens import OPERATOR, TokenArrays

SAME, LESS, MORE = 0, -1, 1
HASH, OWNER = range(2)  # of an entry of the table: 1 + the expression that was there first, 0: nobody


def first_equals(pop: TokenArrays, threads: int | None = None, alike: Sequence[int] = ()) -> np.ndarray:
    """By expression (int64) the first one that it equals, which may be itself.

    ``threads``: so many at the most, by default all that this process may use.  ``alike``: kinds of tokens of which all
    are the same; if there are any, operands stay where they are.
    """
    values, commutative = pop.values, ops.COMMUTATIVE
    if alike:
        values, commutative = np.where(np.isin(pop.kinds, alike), np.uint64(0), values), np.zeros(256, np.bool_)
    tokens = _Compared(pop.kinds, values, pop.offsets, defined.arity(), commutative)
    n, longest = len(pop.offsets) - 1, max(int(np.diff(pop.offsets).max(initial=1)), slices.APART)
    hashes, first = np.empty(n, np.uint64), np.empty(n, np.int64)
    cuts = slices.cut(pop.offsets, threads)
    bits = len(cuts).bit_length() - 1

    def hash_slice(begin: int, end: int) -> np.ndarray:
        sizes = np.zeros(max(1 << bits, slices.APART), np.int64)
        _hash_some(tokens, np.empty(longest, np.uint64), begin, hashes[begin:end], sizes, 64 - bits)
        return sizes

    sizes = np.sum(slices.each(hash_slice, cuts), axis=0)

    def find_part(part: int, _: int) -> None:
        table = np.zeros((1 << int(3 * sizes[part] // 2).bit_length(), 2), np.uint64)
        trees = empty(_Trees, n=longest, a=empty(_Tree, n=longest), b=empty(_Tree, n=longest))
        _find_some(tokens, hashes, table, trees, part, 64 - bits, first)

    slices.each(find_part, [(part, part + 1) for part in range(1 << bits)])
    return first


def unique(pop: TokenArrays, alike: Sequence[int] = ()) -> tuple[np.ndarray, np.ndarray]:
    """(representatives, inverse), as ``Population.unique`` and ``Population.structures`` give them."""
    first = first_equals(pop, alike=alike)
    representatives, inverse = np.empty_like(first), np.empty_like(first)
    n_found = _number(first, representatives, inverse)
    return representatives[:n_found].copy(), inverse


# ── the compiled part ────────────────────────────────────────────────────────────────


class _Compared(NamedTuple):
    """The tokens of all expressions, and what is known of operators by code."""

    kinds: np.ndarray
    values: np.ndarray
    offsets: np.ndarray
    arity: np.ndarray
    commutative: np.ndarray


class _Tree(NamedTuple):
    """An expression whose canonical form is known, by token: of what ends with it."""

    begin: Annotated[np.ndarray, "int64[8]"]  # [0]: the first token
    hash: Annotated[np.ndarray, "uint64[n]"]
    size: Annotated[np.ndarray, "int32[n]"]  # in tokens
    swapped: Annotated[np.ndarray, "bool[n]"]  # the second operand comes first


class _Trees(NamedTuple):
    """Room for a comparison."""

    a: _Tree
    b: _Tree
    stack: Annotated[np.ndarray, "int32[2, n]"]


@compiled
def _hash_some(tokens, stack, begin, hashes, sizes, shift):
    """The hashes of the expressions from ``begin`` on, and into ``sizes`` how many each part of the table gets."""
    kinds, values, arity, commutative = tokens.kinds, tokens.values, tokens.arity, tokens.commutative
    for i in range(len(hashes)):
        depth, h = 0, np.uint64(0)
        for t in range(tokens.offsets[begin + i], tokens.offsets[begin + i + 1]):
            kind, value = kinds[t], values[t]
            if kind != OPERATOR:
                h = _leaf_hash(kind, value)
            elif arity[value] == 2:
                depth -= 2
                h = _operator_hash(value, stack[depth], stack[depth + 1], commutative[value])
            elif arity[value] == 3:
                depth -= 3
                h = _hash_of_three(value, stack[depth], stack[depth + 1], stack[depth + 2])
            else:
                depth -= 1
                h = _operator_hash(value, stack[depth], np.uint64(0), False)
            stack[depth] = h
            depth += 1
        hashes[i] = h
        sizes[_part_of(h, shift)] += 1


@inline
def _leaf_hash(kind, value):
    return mixed(value ^ np.uint64(kind + 1) * np.uint64(0xD6E8FEB86659FD93))


@inline
def _operator_hash(code, a, b, commutative):
    """The hash of an operator from those of both operands, or of one and 0."""
    both = a + b if commutative else a + b * np.uint64(0xA0761D6478BD642F)
    return mixed(both ^ (code + np.uint64(1)) * np.uint64(0xE7037ED1A0B428DB))


@inline
def _hash_of_three(code, a, b, c):
    return _operator_hash(code, _operator_hash(code, a, b, False), c, False)


@inline
def _part_of(h, shift):
    return np.int64(h >> np.uint64(shift)) if shift < 64 else 0


@compiled
def _find_some(tokens, hashes, table, trees, part, shift, first):
    """Find the first equal of each expression of one part of the table."""
    mask = np.uint64(len(table) - 1)
    for i in range(len(hashes)):
        h = hashes[i]
        if _part_of(h, shift) != part:
            continue
        slot, first[i] = h & mask, i
        while table[slot, OWNER] > 0:
            owner = np.int64(table[slot, OWNER]) - 1
            if table[slot, HASH] == h and _equal(tokens, trees, i, owner):
                first[i] = owner
                break
            slot = (slot + np.uint64(1)) & mask
        if first[i] == i:
            table[slot, HASH], table[slot, OWNER] = h, np.uint64(i + 1)


@compiled
def _equal(tokens, trees, i, j):
    """True if two expressions are equal up to the order of operands."""
    begin, other = tokens.offsets[i], tokens.offsets[j]
    length = tokens.offsets[i + 1] - begin
    if tokens.offsets[j + 1] - other != length:
        return False
    for k in range(length):
        if tokens.kinds[begin + k] != tokens.kinds[other + k] or tokens.values[begin + k] != tokens.values[other + k]:
            _plant(tokens, trees.a, begin, length, trees.stack)
            _plant(tokens, trees.b, other, length, trees.stack)
            return _order(tokens, trees.a, length - 1, trees.b, length - 1, trees.stack) == SAME
    return True


@compiled
def _plant(tokens, tree, begin, length, stack):
    """Make the tree of an expression's tokens: which operands its canonical form swaps."""
    tree.begin[0] = begin
    for t in range(length):
        kind, value = tokens.kinds[begin + t], tokens.values[begin + t]
        tree.size[t], tree.swapped[t] = 1, False
        if kind != OPERATOR:
            tree.hash[t] = _leaf_hash(kind, value)
            continue
        b = t - 1
        tree.size[t] += tree.size[b]
        if tokens.arity[value] == 1:
            tree.hash[t] = _operator_hash(value, tree.hash[b], np.uint64(0), False)
            continue
        a = b - tree.size[b]
        tree.size[t] += tree.size[a]
        if tokens.arity[value] == 3:  # here they are its second and third operand
            first = a - tree.size[a]
            tree.size[t] += tree.size[first]
            tree.hash[t] = _hash_of_three(value, tree.hash[first], tree.hash[a], tree.hash[b])
            continue
        tree.hash[t] = _operator_hash(value, tree.hash[a], tree.hash[b], tokens.commutative[value])
        if tokens.commutative[value]:
            if tree.hash[a] != tree.hash[b]:
                tree.swapped[t] = tree.hash[a] > tree.hash[b]
            elif tree.size[a] != tree.size[b]:
                tree.swapped[t] = tree.size[a] > tree.size[b]
            else:
                tree.swapped[t] = _order(tokens, tree, a, tree, b, stack) == MORE


@compiled
def _order(tokens, x, a, y, b, stack):
    """How the canonical form of what ends with token ``a`` of tree ``x`` stands to that of ``b`` of ``y``.

    Both are read from the root on, token by token.
    """
    depth = 1
    stack[0, 0], stack[1, 0] = a, b
    while depth > 0:
        depth -= 1
        a, b = np.int64(stack[0, depth]), np.int64(stack[1, depth])
        at, other = x.begin[0] + a, y.begin[0] + b
        kind, value = tokens.kinds[at], tokens.values[at]
        if kind != tokens.kinds[other]:
            return LESS if kind < tokens.kinds[other] else MORE
        if value != tokens.values[other]:
            return LESS if value < tokens.values[other] else MORE
        if kind != OPERATOR:
            continue
        if tokens.arity[value] == 3:
            a, b = a - 1, b - 1
            for _ in range(3):
                stack[0, depth], stack[1, depth] = a, b
                a, b, depth = a - x.size[a], b - y.size[b], depth + 1
            continue
        if tokens.arity[value] == 2:
            stack[0, depth], stack[1, depth] = _operand(x, a, True), _operand(y, b, True)
            depth += 1
        stack[0, depth], stack[1, depth] = _operand(x, a, False), _operand(y, b, False)
        depth += 1
    return SAME


@inline
def _operand(tree, t, second):
    """The last token of an operand of the operator at ``t``; of one that has one operand, that."""
    last = t - 1
    return last - tree.size[last] if second == tree.swapped[t] and tree.size[t] > tree.size[last] + 1 else last


@compiled
def _number(first, representatives, inverse):
    """Number those that equal none before them; gives how many they are."""
    n = 0
    for i in range(len(first)):
        if first[i] == i:
            representatives[n], inverse[i] = i, n
            n += 1
        else:
            inverse[i] = inverse[first[i]]
    return n
