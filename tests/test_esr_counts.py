"""ESR's published numbers of generated trees: every tree, and the ways in which ESR writes its sums anew.

Bartlett, Desmond and Ferreira (2022, arXiv 2211.11461) count, beside every tree of ``core_maths``, what their generator
makes of sums that have equal terms: ``inv(x + x)`` stands there as ``inv(2 * x)`` too, and ``(x + x) - a`` as
``2 * x - a``, as ``-1 * a + 2 * x`` and as ``2 * x - 1 * a``.  That rule is followed here, to count alone: an
enumeration needs none of these forms, which hold whole numbers that the grammar lacks and are functions that are there
already.
"""

from __future__ import annotations

import functools
import itertools

import pytest

# By nodes: trees, and published.  At 3 the rule gives 24 (with 0 and 2 * x); published are 22, the trees alone
PUBLISHED = {4: (62, 64), 5: (522, 598), 6: (2_202, 2_406), 7: (16_302, 19_860)}
BINARY, SUMS = "+*-/^", "+-"


@functools.cache
def trees(n_nodes):
    """All trees of ``core_maths``: a text, or a tuple of an operator and its operands."""
    if n_nodes == 1:
        return ["x", "a"]
    found = [("inv", of) for of in trees(n_nodes - 1)]
    for left in range(1, n_nodes - 1):
        pairs = itertools.product(BINARY, trees(left), trees(n_nodes - 1 - left))
        found += pairs
    return found


def numbered(tree, numbers):
    """The tree with its parameters told apart."""
    if isinstance(tree, str):
        return f"a{next(numbers)}" if tree == "a" else tree
    return tree[0], *(numbered(of, numbers) for of in tree[1:])


def factor(tree):
    """The whole number that a product begins or ends with, and what it multiplies; None where there is none."""
    if tree[0] == "*" and len(tree) == 3:
        for number, other in (tree[1:], tree[:0:-1]):
            if isinstance(number, str) and number.lstrip("-").isdigit():
                return int(number), other
    return None


def terms(tree, sign=1, negated=False):
    """The terms of a sum: the sign of each, and whether it has a negative factor of its own."""
    if tree[0] in SUMS:
        yield from terms(tree[1], sign)
        yield from terms(tree[2], -sign if tree[0] == "-" else sign)
    elif found := factor(tree):
        for _ in range(abs(found[0])):
            yield from terms(found[1], -sign if found[0] < 0 else sign, found[0] < 0)
    else:
        yield tree, sign, negated


def has_nothing(tree):
    """Whether a sum has 0 times something behind a sign."""
    return tree[0] in SUMS and (not [*terms(tree[2])] or has_nothing(tree[1]) or has_nothing(tree[2]))


def times(number, tree):
    return tree if number == 1 else ("*", str(number), tree)


def written_anew(tree):
    """The forms of a sum with equal terms: each kind of term comes first once, the others follow."""
    found = [*terms(tree)]
    kinds = list(dict.fromkeys(term for term, _, _ in found))
    if len(kinds) == len(found) and not has_nothing(tree):
        return
    total = {kind: sum(sign for term, sign, _ in found if term == kind) for kind in kinds}
    seen = {kind: [(sign, negated) for term, sign, negated in found if term == kind] for kind in kinds}
    for first in kinds:
        rest = []  # signs and what follows them
        for kind in kinds:
            if kind == first:
                continue
            (sign, negated), n = seen[kind][0], total[kind]
            if negated and len(seen[kind]) == 1:
                rest.append(("+" if sign > 0 else "-", kind if n == 1 else ("*", str(abs(n)), kind)))
            elif n and sign > 0:
                rest.append(("+", times(n, kind)))
            elif n:
                rest.append(("+" if n > 0 else "-", times(abs(n), kind)))
        yield joined(times(total[first], first) if total[first] else None, rest)


def joined(first, rest):
    """``first`` and the rest, the last of which is added before the others; without a first one it leads itself."""
    if first is None:
        if not rest:
            return "0"
        if all(sign == "-" for sign, _ in rest):
            return "*", "-1", joined(rest[-1][1], [("+", term) for _, term in rest[:-1]])
        lead = len(rest) - 1 if rest[-1][0] == "+" else [sign for sign, _ in rest].index("+")
        first, rest = rest[lead][1], [*rest[:lead], *rest[lead + 1 :]]
    for sign, term in reversed(rest):
        first = sign, first, term
    return first


def with_sum(tree, which):
    """The tree with its ``which``-th sum written anew, in every way; None where there are fewer sums."""
    at = [which]

    def walk(node, inside):
        if isinstance(node, str):
            return None
        is_sum = node[0] in SUMS
        if is_sum and not inside:
            if at[0] == 0:
                return [*written_anew(node)]
            at[0] -= 1
        for k, of in enumerate(node[1:], 1):
            if (forms := walk(of, is_sum)) is not None:
                return [(*node[:k], form, *node[k + 1 :]) for form in forms]
        return None

    return walk(tree, False)


def forms(tree):
    """The tree and all that comes of it, in ESR's order: until a round over all of them brings nothing new."""
    found, turns, before = [tree], [0], 0
    while len(found) != before:
        before = len(found)
        for k in range(before):
            new = with_sum(found[k], turns[k]) or []
            for form in new:
                if form not in found:
                    found.append(form)
                    turns.append(0)
            turns[k] += len(new) <= 1
    return found


@pytest.mark.parametrize("n_nodes", PUBLISHED)
def test_generated_trees_are_as_many_as_published(n_nodes):
    every = [numbered(tree, itertools.count()) for tree in trees(n_nodes)]
    assert (len(set(every)), sum(len(forms(tree)) for tree in every)) == PUBLISHED[n_nodes]
