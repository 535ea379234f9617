"""Generated populations: complete, without duplicates, in a stable order, the same everywhere."""

from __future__ import annotations

import hashlib
from itertools import product

import numpy as np
import pytest

from exprkit.errors import ArgumentError, ExprkitError
from exprkit.expressions import generate
from exprkit.operators import ops
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE


def trees(pop):
    """Every expression as nested tuples; an independent, slow reading of the postfix form."""
    for i in range(len(pop)):
        stack = []
        for t in range(pop.offsets[i], pop.offsets[i + 1]):
            kind, value = int(pop.kinds[t]), pop.values[t]
            if kind != OPERATOR:
                leaf = float(value.view(np.float64)) if kind == CONSTANT else int(value)
                stack.append((kind, leaf))
                continue
            arity = int(ops.ARITY[int(value)])
            operands = stack[len(stack) - arity :]
            del stack[len(stack) - arity :]
            assert len(operands) == arity
            stack.append((int(value), *operands))
        assert len(stack) == 1
        yield stack[0]


def is_leaf(tree):
    return len(tree) == 2 and not isinstance(tree[1], tuple)


def canonical(tree):
    """Parameters without numbers, operands of commutative operators in one order."""
    if is_leaf(tree):
        return (PARAMETER,) if tree[0] == PARAMETER else tree
    operands = [canonical(operand) for operand in tree[1:]]
    if ops.BY_CODE[tree[0]].commutative:
        operands.sort(key=repr)
    return (-tree[0], *operands)


def brute_force(max_nodes, names, n_vars, n_params):
    """All trees of exactly each size, made naively and put in canonical form: the set that is wanted."""
    of_size = {1: {(VARIABLE, i) for i in range(n_vars)} | ({(PARAMETER,)} if n_params else set())}
    for size in range(2, max_nodes + 1):
        made = set()
        for row in (ops.BY_NAME[name] for name in names):
            splits = [(size - 1,)] if row.arity == 1 else [(k, size - 1 - k) for k in range(1, size - 1)]
            for split in splits:
                for operands in product(*(of_size[k] for k in split)):
                    ordered = sorted(operands, key=repr) if row.commutative else operands
                    made.add((-row.code, *ordered))
        of_size[size] = made
    return {tree for made in of_size.values() for tree in made if str(tree).count(f"({PARAMETER},)") <= n_params}


@pytest.mark.parametrize(
    ("max_nodes", "names", "n_vars", "n_params"),
    [
        (5, ("add", "sub", "inv"), 2, 2),
        (7, ("mul", "pow"), 1, 1),
        (6, ("add", "max", "neg", "hypot"), 1, 3),
        (4, ("sin",), 3, 0),
        (1, (), 2, 1),
    ],
)
def test_exhaustive_is_what_brute_force_finds(max_nodes, names, n_vars, n_params):
    pop = generate.exhaustive(max_nodes, names, n_vars, n_params)
    found = [canonical(tree) for tree in trees(pop)]
    assert len(set(found)) == len(found)
    assert set(found) == brute_force(max_nodes, names, n_vars, n_params)
    assert generate.count_exhaustive(max_nodes, names, n_vars, n_params) == len(found)


def test_exhaustive_order_is_pinned():
    assert generate.exhaustive(3, ("add", "sub", "inv"), 2, 1).texts() == [
        "x1", "x2", "p1",
        "inv(x1)", "inv(x2)", "inv(p1)",
        "x1 + x1", "x1 + x2", "x1 + p1", "x2 + x2", "x2 + p1",
        "x1 - x1", "x1 - x2", "x1 - p1", "x2 - x1", "x2 - x2", "x2 - p1", "p1 - x1", "p1 - x2",
        "inv(inv(x1))", "inv(inv(x2))", "inv(inv(p1))",
    ]  # fmt: skip


def test_parameters_are_numbered_in_order_of_appearance():
    pop = generate.exhaustive(5, ("sub",), 1, 3)
    for i in range(len(pop)):
        tokens = slice(pop.offsets[i], pop.offsets[i + 1])
        numbers = pop.values[tokens][pop.kinds[tokens] == PARAMETER]
        assert numbers.tolist() == list(range(len(numbers)))
    assert pop.n_params.max() == 3


def test_spelled_out_writes_two_operators_for_one():
    short, long = (generate.exhaustive(5, ("powabs", "inv"), 2, 2, spelled_out=out) for out in (False, True))
    assert len(short) == len(long)
    assert "powabs(x1, x2)" in short.texts() and "abs(x1) ^ x2" in long.texts()
    assert "inv(x1)" in long.texts()
    n_powers = int((short.values[short.kinds == OPERATOR] == ops.BY_NAME["powabs"].code).sum())
    assert len(long.kinds) == len(short.kinds) + n_powers


def test_the_thesis_s_expressions_are_among_the_exhaustive_ones():
    texts = set(generate.exhaustive(5, "esr", spelled_out=True).texts())
    for text in ("abs(x1) ^ x2 + p1", "inv(inv(x1) - x1)", "abs(x1 * p1) ^ p2", "abs(abs(x1) ^ p1) ^ p2"):
        assert text in texts


def test_constants_are_leaves():
    pop = generate.exhaustive(3, ("mul",), 1, 0, constants=(2.0, 0.5))
    assert pop.texts()[:3] == ["x1", "2", "0.5"]
    assert len(pop) == 3 + 6


def test_limit_gives_the_beginning():
    pop, whole = generate.exhaustive(6, limit=3000), generate.exhaustive(6)
    assert len(pop) == 3000
    assert pop == whole[:3000]
    assert len(generate.exhaustive(5, limit=0)) == 0


def test_too_many_expressions_raise_before_memory_is_taken():
    with pytest.raises(ArgumentError, match=r"up to 13 nodes there are 16,[\d,]{11} expressions.* GB; .*limit="):
        generate.exhaustive(13)


def test_random_is_pinned():
    pop = generate.random(1000, seed=7)
    tokens = pop.kinds.tobytes() + pop.values.astype("<u8").tobytes() + pop.offsets.astype("<i8").tobytes()
    assert hashlib.sha256(tokens).hexdigest()[:16] == "b58a14ae00513f3b"


def test_random_keeps_what_it_promises():
    pop = generate.random(5000, (10, 50), n_vars=4, n_params=3, constant_range=(-1, 2), seed=1)
    n_tokens = np.diff(pop.offsets)
    assert n_tokens.min() == 10 and n_tokens.max() == 50
    assert set(np.bincount(n_tokens, minlength=51)[10:] > 60) == {True}  # evenly: 122 each
    assert sum(1 for _ in trees(pop)) == len(pop)  # all are well-formed
    assert pop.n_vars == 4
    assert pop.values[pop.kinds == VARIABLE].max() == 3
    assert np.median(pop.n_params) == 3 and pop.n_params.max() == 3
    constants = pop.values[pop.kinds == CONSTANT].view(np.float64)
    assert constants.min() >= -1 and constants.max() <= 2 and len(np.unique(constants)) > 500
    used = {ops.BY_CODE[int(code)].name for code in np.unique(pop.values[pop.kinds == OPERATOR])}
    assert used == set(ops.SETS["gp"])


def test_random_begins_alike_whatever_the_number():
    assert generate.random(50, seed=3) == generate.random(500, seed=3)[:50]
    assert generate.random(50, seed=3) != generate.random(50, seed=4)


@pytest.mark.parametrize(("names", "sizes"), [(("add", "mul"), {3, 5, 7}), (("sin",), {2, 3, 4, 5, 6, 7})])
def test_random_sizes_follow_the_arities(names, sizes):
    pop = generate.random(2000, (2, 7), names, n_vars=1)
    assert set(np.diff(pop.offsets).tolist()) == sizes
    assert sum(1 for _ in trees(pop)) == len(pop)


def test_random_without_constants_or_parameters():
    pop = generate.random(300, n_params=0, constant_range=None)
    assert set(np.unique(pop.kinds).tolist()) == {VARIABLE, OPERATOR}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: generate.exhaustive(3, ("ad",)), "there is no operator 'ad'; did you mean 'add'?"),
        (lambda: generate.random(3, operators="thesys"), "no set of operators 'thesys'; did you mean 'thesis'?"),
        (lambda: generate.exhaustive(0), "max_nodes must be a whole number from 1 to 1,000, not 0"),
        (lambda: generate.exhaustive(2.0), "max_nodes must be a whole number from 1 to 1,000, not 2.0"),
        (lambda: generate.random(-1), "n must be a whole number from 0 to"),
        (lambda: generate.random(5, (4, 4), ("add",)), "no expression of these operators has so many tokens"),
        (lambda: generate.random(5, (9, 3)), "no expression of these operators"),
        (lambda: generate.random(5, constant_range=(0.0001, 0.0002)), "holds no multiple of 0.001"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ArgumentError) as caught:
        call()
    assert message in str(caught.value)
    assert isinstance(caught.value, ExprkitError)


def test_symbols_name_operators():
    assert generate.exhaustive(3, ("+", "-")) == generate.exhaustive(3, ("add", "sub"))
