"""Expressions that are equal up to the order of operands, beside a slow and plain definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from postfix_text import random_population

import exprkit as ek
from exprkit.expressions import duplicates
from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.runtime import slices
from exprkit.text.tokens import CONSTANT, OPERATOR, VARIABLE

ADD, SUB, EXP = (ops.BY_NAME[name].code for name in ("add", "sub", "exp"))


def tree_of(expression):
    """Nested lists: token, then operands."""
    stack = []
    for token in zip(expression.kinds.tolist(), expression.values.tolist(), strict=True):
        n = ops.ARITY[token[1]] if token[0] == OPERATOR else 0
        operands = [stack.pop() for _ in range(n)][::-1]
        stack.append([token, *operands])
    return stack[0]


def commutes(token):
    return token[0] == OPERATOR and ops.BY_CODE[token[1]].commutative


def canonical(tree):
    """The definition: a text that is the same whichever operand of a commutative operator comes first."""
    token, *operands = tree
    texts = [canonical(operand) for operand in operands]
    return f"{token}({', '.join(sorted(texts) if commutes(token) else texts)})"


def shuffled(tree, random):
    token, *operands = tree
    operands = [shuffled(operand, random) for operand in operands]
    return [token, *(operands[::-1] if commutes(token) and random.random() < 0.5 else operands)]


def tokens_of(tree):
    token, *operands = tree
    return [*(inner for operand in operands for inner in tokens_of(operand)), token]


def population(expressions):
    """Of lists of tokens; an empty one is an expression that is not valid."""
    tokens = [token for expression in expressions for token in expression]
    kinds, values = ([token[k] for token in tokens] for k in (0, 1))
    return Population(kinds, np.array(values, np.uint64), np.cumsum([0, *map(len, expressions)]))


def expected(pop):
    found: dict[str, int] = {}
    texts = [canonical(tree_of(expression)) if expression.valid else "" for expression in pop]
    return [found.setdefault(text, i) for i, text in enumerate(texts)]


def check(pop):
    first = expected(pop)
    assert duplicates.first_equals(pop).tolist() == first
    representatives, inverse = pop.unique()
    assert representatives.dtype == inverse.dtype == np.int64
    assert representatives.tolist() == sorted(set(first)) and representatives[inverse].tolist() == first
    assert pop.duplicates().dtype == bool and pop.duplicates().tolist() == [k != i for i, k in enumerate(first)]
    assert not pop[~pop.duplicates()].duplicates().any()


def with_twins(pop, seed):
    """Its expressions, and each once more with operands shuffled, in any order."""
    random = np.random.default_rng(seed)
    trees = [tree_of(expression) for expression in pop]
    expressions = [tokens_of(tree) for tree in [*trees, *(shuffled(tree, random) for tree in trees)]]
    return population([expressions[k] for k in random.permutation(len(expressions))])


@pytest.mark.slow
@given(st.integers(0, 2**31), st.integers(1, 25))
def test_random_expressions_agree_with_the_definition(seed, most_tokens):
    few = [ops.BY_NAME[name] for name in ("add", "mul", "max", "sub", "neg")]
    rows = few if seed % 2 else ops.OPERATORS
    check(with_twins(random_population(40, seed, most_tokens, rows), seed))


@pytest.mark.parametrize("least", [1, 50, 1000])
def test_any_number_of_threads_finds_the_same(least, monkeypatch):
    pop = with_twins(random_population(1500, 1, 7), 1)
    first = expected(pop)
    monkeypatch.setattr(slices, "LEAST", least)
    for threads in (1, 2, 3, 16):
        assert duplicates.first_equals(pop, threads).tolist() == first


def test_what_is_equal_and_what_is_not():
    texts = ["x1 + x2", "x2 + x1", "x1 - x2", "x2 - x1", "(x1 + x2) + x3", "x3 + (x2 + x1)", "x1 + (x2 + x3)",
             "x1 + x1", "2 * x1", "max(x1, p1)", "max(p1, x1)", "max(x1, p2)", "x1 + 0", "x1 + -0.0", "0.0 + x1",
             "", " "]  # fmt: skip
    pop = ek.parse(texts, errors="mask")
    check(pop)
    assert duplicates.first_equals(pop).tolist() == [0, 0, 2, 3, 4, 4, 6, 7, 8, 9, 9, 11, 12, 13, 12, 15, 15]


def test_every_bit_of_a_constant_counts():
    nans = [0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000, 0, 1 << 63, 0x7FF8000000000000]
    check(population([[(CONSTANT, bits), (VARIABLE, 0), (OPERATOR, ADD)] for bits in nans]))


@pytest.mark.parametrize("texts", [[], [""], ["", "x1", "", "x1"]])
def test_few(texts):
    check(ek.parse(texts, errors="mask"))


def test_nothing_exhaustive_is_there_twice():
    assert not ek.generate.exhaustive(7, limit=50_000).duplicates().any()


def chain(leaves, code, left):
    """((a + b) + c) + … or … + (c + (b + a))."""
    tokens = [leaves[0]]
    for leaf in leaves[1:]:
        tokens = [*tokens, leaf, (OPERATOR, code)] if left else [leaf, *tokens, (OPERATOR, code)]
    return tokens


def balanced(depth, leaves):
    if depth == 0:
        return [next(leaves)]
    return [*balanced(depth - 1, leaves), *balanced(depth - 1, leaves), (OPERATOR, ADD)]


def test_long_chains_and_deep_trees():
    same, many = [(VARIABLE, 0)] * 512, [(VARIABLE, k % 7) for k in range(512)]
    other = [*many[:-1], (VARIABLE, 11)]
    kinds = [(same, ADD), (many, ADD), (same, SUB), (many, SUB), (other, ADD), (many[::-1], ADD)]
    expressions = [chain(leaves, code, left) for leaves, code in kinds for left in (True, False)]
    expressions += [[(VARIABLE, 0), *[(OPERATOR, EXP)] * 1023]] * 2
    trees = [iter([(VARIABLE, k >> 3 & 1) for k in order]) for order in (range(512), range(511, -1, -1), [0] * 512)]
    expressions += [balanced(9, leaves) for leaves in trees]
    first = duplicates.first_equals(population(expressions)).tolist()
    assert first == [0, 0, 2, 2, 4, 5, 6, 7, 8, 8, 10, 10, 12, 12, 14, 14, 16]


# ── hashes decide nothing ──


def test_expressions_of_one_hash_are_told_apart():
    pop = with_twins(random_population(60, 5, 9), 5)
    tokens = duplicates._Compared(pop.kinds, pop.values, pop.offsets, ops.ARITY, ops.COMMUTATIVE)
    longest = int(pop.n_tokens.max())
    trees = [duplicates.empty(duplicates._Tree, n=longest) for _ in "ab"]
    room = duplicates.empty(duplicates._Trees, n=longest, a=trees[0], b=trees[1])
    first = np.empty(len(pop), np.int64)
    hashes = np.full(len(pop), 7, np.uint64)
    duplicates._find_some(tokens, hashes, np.zeros((256, 2), np.uint64), room, 0, 64, first)
    assert first.tolist() == expected(pop)


def all_alike(tokens, stack, begin, hashes, sizes, shift):
    hashes[:], sizes[0] = 1, len(hashes)


def test_operands_of_one_hash_are_ordered_by_their_tokens(monkeypatch):
    names = "_find_some", "_equal", "_plant", "_order", "_operand", "_part_of"
    for name in names:
        monkeypatch.setattr(duplicates, name, getattr(duplicates, name).py_func)
    monkeypatch.setattr(duplicates, "_leaf_hash", lambda kind, value: np.uint64(1))
    monkeypatch.setattr(duplicates, "_operator_hash", lambda code, a, b, commutative: np.uint64(1))
    few = [ops.BY_NAME[name] for name in ("add", "mul", "sub", "neg")]
    monkeypatch.setattr(duplicates, "_hash_some", all_alike)
    pop = with_twins(random_population(40, 3, 15, few), 3)
    with np.errstate(over="ignore"):
        assert duplicates.first_equals(pop).tolist() == expected(pop)
