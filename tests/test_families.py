"""Functions are told apart by values: what is the same family is found, and nothing else is taken for it."""

from __future__ import annotations

import functools

import mpmath as mp
import numpy as np
import pytest
from description_reference import REGULAR

import exprkit as ek
from exprkit.errors import ArgumentError
from exprkit.operators import ops
from exprkit.search.best_fits import best_fits
from exprkit.search.distinct import Enumeration
from exprkit.search.fingerprints import fingerprints
from exprkit.search.grammar import grammar
from exprkit.text.tokens import VARIABLE

# Bartlett, Desmond and Ferreira's table, by complexity
PUBLISHED_DISTINCT = [2, 2, 13, 24, 131, 335, 1787, 5458, 28464, 98018]


def enumerated(max_nodes, *arguments, **options):
    found = Enumeration(grammar(max_nodes, *arguments), **options)
    for _ in range(max_nodes):
        found.grow()
    return found


@pytest.fixture(scope="module")
def core():
    return enumerated(8, "core_maths", 1, 4)


# ── what is one family ──

SAME = [
    ("p1 * x1", "x1 / p1", "p1 * x1 + x1", "p1 * x1 - p2 * x1", "-(p1 * x1)"),
    ("p1 + x1", "x1 - p1", "p1 - p2 + x1", "x1 / x1 + p1 + x1"),
    ("p1 + p2 * x1", "p1 * (x1 + p2)", "(x1 + p1) / p2", "p1 + x1 + p2 * x1"),
    ("p1 + p2 * x1 + p3 * sqr(x1)", "(p1 + p2 * x1) * x1 + p3", "p1 * (sqr(x1) + p2) + p3 * x1"),
    ("powabs(x1, p1) * p2", "p2 / powabs(x1, p1)", "powabs(sqr(x1), p1) / p2", "powabs(x1 + x1, p1) * p2"),
    ("powabs(p1, x1)", "powabs(p1, x1 + x1)", "powabs(powabs(p1, x1), p2)", "exp(p1 * x1)"),
    ("p1 / (x1 + p2)", "inv(p1 * x1 + p2)", "p1 * inv(x1 / p3 + p2)"),
    ("x1 / (x1 + p1)", "inv(x1 / x1 + p1 / x1)", "inv(x1 / x1 - inv(x1) / p1)"),
    ("inv(inv(x1))", "x1", "sqr(x1) / x1", "x1 + x2 - x2", "cube(x1) / sqr(x1)"),
    ("powabs(x1, p1) + powabs(x1, p2)", "powabs(x1, p1) + powabs(inv(x1), p2)"),
    ("sqr(x1 + p1)", "sqr(p1 - x1)", "inv(sqr(inv(x1 + p1)))"),
    ("exp(x1 + x2)", "exp(x1) * exp(x2)"),
    ("sqr(x1) + sqr(x2) + 2 * x1 * x2", "sqr(x1 + x2)", "(x2 + x1) * (x1 + x2)"),
    ("sin(x1 + x2) * p1", "p1 * sin(x2 + x1)"),
]

DIFFERENT = [
    ("x1", "abs(x1)", "sqrt(sqr(x1)) * p1", "sqrt(x1) * sqrt(x1)", "x1 + 1e-6"),
    ("p1 + x1", "p1 - x1", "p1 * x1", "p1 + p2 * x1", "x1", "p1"),
    ("sqr(x1 + p1)", "(x1 + p1) * (x1 + p2)", "sqr(x1) + p1", "p1 * sqr(x1 + p2)"),
    ("inv(x1 + p1)", "inv(p1 - x1)", "p1 / (x1 + p2)"),
    ("powabs(x1, p1)", "p2 * powabs(x1, p1)", "powabs(x1 * p2, p1)", "x1 * powabs(x1, p1)"),
    ("sqr(p1) * x1", "p1 * x1"),  # of one sign
    ("p1 * x1 + p1", "p1 * x1 + p2"),  # a parameter that stands twice
    ("sin(p1 * x1)", "p1 * sin(x1)", "sin(p1 + x1)", "sin(x1)"),
    ("powabs(x1, p1) + powabs(x1, p2)", "powabs(x1, p1) + powabs(x1, p1)", "powabs(x1, p1) * p2"),
]


@pytest.mark.parametrize("texts", SAME, ids=lambda texts: texts[0])
def test_one_function_has_one_fingerprint(texts):
    keys = fingerprints(ek.parse(list(texts)))
    assert (keys == keys[0]).all() and (keys[0] > 0).all()


@pytest.mark.parametrize("texts", DIFFERENT, ids=lambda texts: texts[0])
def test_different_functions_have_different_fingerprints(texts):
    keys = fingerprints(ek.parse(list(texts)))
    assert len(set(keys[:, 0].tolist())) == len(set(keys[:, 1].tolist())) == len(texts)


def test_fingerprints_do_not_depend_on_what_stands_beside(core):
    pop = core.population(np.arange(300))
    keys = fingerprints(pop, threads=1)
    assert np.array_equal(keys, fingerprints(pop, threads=2))
    assert np.array_equal(keys[::-7], fingerprints(pop[np.arange(299, -1, -7)]))


def test_what_is_nowhere_defined_has_no_fingerprint():
    assert not fingerprints(ek.parse(["1 / (x1 - x1)", "logabs(x1 - x1)", "p1 / (x1 - x1)"])).any()


def test_expressions_that_could_not_be_read_have_no_fingerprint():
    with pytest.raises(ArgumentError, match=r"pop\[pop.valid\]"):
        fingerprints(ek.parse(["x1", "x1 +"], errors="mask"))


def test_every_operator_can_be_searched_with(op):
    found = enumerated(3, (op.name,), 1, 1)
    texts = found.population(np.arange(len(found))).texts()
    assert "x1" in texts and len(set(texts)) == len(texts)


# ── the enumeration ──


def test_distinct_functions_are_no_more_than_published(core):
    assert core.n_of_size[1:4] == [2, 2, 13]
    for size, published in enumerate(PUBLISHED_DISTINCT[:8], 1):
        assert 0.55 * published < core.n_of_size[size] <= published, size


def test_every_tree_is_counted(core):
    counted = core.stands_for(np.unique(core.part_of)).sum()
    trees = sum(core.grammar.count(size) for size in range(1, 9))
    assert trees == 2 + 2 + 22 + 62 + 522 + 2202 + 16302 + 84422
    assert 0.98 * trees < counted < trees  # but for those that are nowhere defined, or of five parameters


@pytest.mark.parametrize("operators", ["core_maths", "esr"])
@pytest.mark.parametrize("n_vars", [1, 2])
def test_the_functions_of_a_population_are_among_those_found(operators, n_vars):
    size = 5 if n_vars == 1 else 4
    found = enumerated(size, operators, n_vars, 3)
    pop = ek.generate.exhaustive(size, operators, n_vars=n_vars, n_params=3)
    numbers = found.find(pop[(fingerprints(pop) > 0).all(axis=1)])
    assert (numbers >= 0).mean() > 0.85  # those with a factor of one sign are not enumerated where any is possible
    assert set(np.unique(found.part_of)) <= set(np.unique(found.part_of[numbers[numbers >= 0]]))


def test_forms_are_the_function_and_the_smallest(core):
    new = np.arange(core.first_of_size[6], core.first_of_size[7])
    pop = core.population(new)
    assert np.array_equal(core.find(pop), new)
    assert (pop.n_tokens >= 6).all() and (pop.n_params <= 4).all()


def test_a_longer_form_of_fewer_symbols_may_be_the_shorter_one():
    found = enumerated(5, ("add", "mul", "sqr"), 1, 0)
    assert found.population(found.find(ek.parse("sqr(x1) * x1"))).texts() in (["sqr(x1) * x1"], ["x1 * x1 * x1"])
    two = found.population(found.find(ek.parse("sqr(sqr(x1))")))
    assert two.texts() == ["sqr(sqr(x1))"]


def assert_same(found, other):
    every = np.arange(len(found))
    assert other.first_of_size == found.first_of_size and np.array_equal(other.part_of, found.part_of)
    assert other.population(every) == found.population(every)
    assert np.array_equal(other.stands_for(every), found.stands_for(every))


@pytest.mark.parametrize(("threads", "chunk"), [(1, 777), (5, 1 << 16), (3, 5000)])
def test_neither_threads_nor_chunks_matter(core, monkeypatch, threads, chunk):
    monkeypatch.setattr("exprkit.search.distinct.CHUNK", chunk)
    assert_same(core, enumerated(8, "core_maths", 1, 4, threads=threads))


@pytest.mark.slow
def test_neither_threads_nor_chunks_matter_to_operators_without_rules(monkeypatch):
    mixed = 7, ("add", "sin", "mul", "pow", "exp"), 1, 3
    found = enumerated(*mixed, confirm=2)
    monkeypatch.setattr("exprkit.search.distinct.CHUNK", 777)
    assert_same(found, enumerated(*mixed, threads=4, confirm=2))


def test_parameters_are_limited():
    found = enumerated(7, "core_maths", 1, 1)
    assert found.population(np.arange(len(found))).max_params == 1
    assert enumerated(4, "core_maths", 2, 0).population(np.arange(20)).max_params == 0


def test_no_variable_at_all():
    found = enumerated(3, ("add", "exp"), 0, 1)
    assert found.population(np.unique(found.part_of)).texts()[0] == "p1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "max_nodes must be"), ((41,), "from 1 to 40"), ((3, "nonsense"), "no set of operators"),
        ((3, "esr", 1, 7), "from 0 to 6"), ((3, "esr", 0, 0), "neither"), ((3, "esr", 60), "more than 61 together"),
    ],
)  # fmt: skip
def test_a_grammar_that_is_none(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        grammar(*arguments)


# ── no false merges ──


def places(n_vars, n=24):
    random = np.random.default_rng(3)
    return random.uniform(0.3, 2.5, (n, n_vars)) * np.where(random.random((n, n_vars)) < 0.3, -1, 1)


PAIRS = 200_000  # of each of five
OF_ABS = ("add", "sub", "mul", "sqrtabs", "logabs", "exp", "abs", "inv")
OF_ROOTS = ("add", "sub", "mul", "div", "sqrt", "log", "exp", "sqr", "cube")


def merged_pairs(pop, keys, n):
    """Numbers of ``n`` random pairs of expressions of one key."""
    random = np.random.default_rng(0)
    _, group, sizes = np.unique(keys[:, 0], return_inverse=True, return_counts=True)
    order, starts = np.argsort(group, kind="stable"), np.cumsum(sizes) - sizes
    first = random.choice(np.flatnonzero((sizes[group] > 1) & (keys[:, 0] > 0)), n)
    own = group[first]
    return first, order[starts[own] + (random.random(n) * sizes[own]).astype(np.int64)]


def to_200_digits(pop, i, x):
    """What an expression is at a point; None where that is undefined, or an exponential too large to be computed."""
    stack = []
    for t in range(pop.offsets[i], pop.offsets[i + 1]):
        if pop.kinds[t] == VARIABLE:
            stack.append(mp.mpf(float(x[pop.values[t]])))
            continue
        row = ops.BY_CODE[int(pop.values[t])]
        operands = stack[-row.arity :]
        if row.name in ("exp", "powabs") and abs(operands[-1]) > 1e15:
            return None
        try:
            y = REGULAR[row.name](*operands)
        except (ValueError, ZeroDivisionError):
            return None
        if not mp.isfinite(y):
            return None
        # what rounding leaves of a difference, or of the logarithm of 1, is 0
        size = sum(map(abs, operands)) if row.name in ("add", "sub") else 1 if row.name in ("log", "logabs") else 0
        stack[-row.arity :] = [y if abs(y) > 1e-150 * size else mp.mpf(0)]
    return stack[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operators", "n_vars", "size"),
    [("core_maths", 1, 8), ("esr", 2, 6), (OF_ABS, 1, 6), (OF_ABS, 2, 5), (OF_ROOTS, 1, 6)],
)
def test_no_two_of_a_million_merged_pairs_differ(operators, n_vars, size):
    """At points near 0 and far out, of both signs; where rounding makes them differ, 200 digits decide."""
    pop = ek.generate.exhaustive(size, operators, n_vars=n_vars, n_params=0)
    pairs = merged_pairs(pop, fingerprints(pop), PAIRS)
    random = np.random.default_rng(1)
    X = np.exp(random.uniform(np.log(0.02), np.log(20), (32, n_vars))) * random.choice([-1, 1], (32, n_vars))
    values = ek.Evaluator(pop, X, "cpu", dtype="float64").evaluate()
    a, b = values[pairs[0]], values[pairs[1]]
    with np.errstate(all="ignore"):
        apart = np.isfinite(a) & np.isfinite(b) & ~(np.abs(a - b) <= 1e-6 * (np.abs(a) + np.abs(b)))
    which, at = np.nonzero(apart & (np.cumsum(apart, axis=1) <= 2))
    cases = np.unique(np.stack([pairs[0][which], pairs[1][which], at]), axis=1).T.tolist()
    with mp.workdps(200):
        exact = functools.cache(lambda i, k: to_200_digits(pop, i, X[k]))
        told = [(exact(i, k), exact(j, k)) for i, j, k in cases]
        known = [(case, *pair) for case, pair in zip(cases, told, strict=True) if None not in pair]
        wrong = [case for case, u, v in known if not abs(u - v) <= 1e-50 * (abs(u) + abs(v)) + 1e-100]
    assert not [(pop[case[:2]].texts(), X[case[2]].tolist()) for case in wrong]
    assert len(known) > 0.9 * len(told) and len(cases) > 20
    assert len(np.unique(np.stack(pairs), axis=1).T) > 10_000


@pytest.mark.parametrize(("operators", "n_vars", "size"), [("core_maths", 1, 7), ("esr", 2, 5)])
def test_families_are_equal_at_other_points_too(operators, n_vars, size):
    """What is merged by chance at the points of one salt is not at those of another."""
    pop = ek.generate.exhaustive(size, operators, n_vars=n_vars, n_params=3)
    first, second = merged_pairs(pop, fingerprints(pop), PAIRS)
    left = np.flatnonzero(first != second)
    for salt in range(1, 7):
        keys = fingerprints(pop, salt=salt)
        left = left[(keys[first[left]] != keys[second[left]]).any(axis=1)]
    assert not {tuple(pop[[i, j]].texts()) for i, j in zip(first[left].tolist(), second[left].tolist(), strict=True)}


def test_what_rounding_tells_apart_is_confirmed_to_be_one():
    plain, confirmed = enumerated(8, "core_maths", 1, 4), enumerated(8, "core_maths", 1, 4, confirm=2)
    pop = confirmed.population(np.unique(confirmed.part_of))
    for salt in range(3):
        assert len(np.unique(fingerprints(pop, salt=salt)[:, 0])) == len(pop)
    fewer = np.unique(plain.part_of).size - np.unique(confirmed.part_of).size
    assert 0 < fewer < 0.01 * plain.n_of_size[8]
    assert confirmed.stands_for(np.unique(confirmed.part_of)).sum() == plain.stands_for(np.unique(plain.part_of)).sum()
    assert np.array_equal(confirmed.part_of[confirmed.part_of], confirmed.part_of)


@pytest.mark.slow
def test_a_function_tells_data_as_well_as_every_tree_that_it_stands_for():
    """Were two families taken for one, a tree would fit some data better than the form that stands for it."""
    found = enumerated(6, "core_maths", 1, 3)
    pop = ek.generate.exhaustive(6, "core_maths", n_vars=1, n_params=3)
    numbers = found.find(pop)
    pop, numbers = pop[numbers >= 0], found.part_of[numbers[numbers >= 0]]
    X = places(1)
    y = 1 / (1.5 + X[:, 0]) + X[:, 0] ** 2 - 1
    problem = ek.FitProblem(X, y, loss="gaussian", dtype="float64", max_iter=60)
    sizes, chosen = np.abs(np.append(X[:, 0], y)), np.unique(numbers)
    loss = np.full(len(found), np.nan)
    loss[chosen] = best_fits(problem, found.population(chosen), chosen, 100, 2, sizes).loss
    fitted = best_fits(problem, pop, np.arange(len(pop)), 31, 1, sizes)
    # huge numbers make much of rounding errors and underflows: (inv(inv(x1)) - x1) * p1, powabs(powabs(x1, p1), p2)
    with np.errstate(divide="ignore"):
        sizes_found = np.nan_to_num(np.abs(np.log(np.abs(fitted.params))), nan=0.0).max(axis=1)
    trees = np.where(sizes_found < np.log(100), fitted.loss, np.inf)
    worse = np.unique(numbers[loss[numbers] > trees + 0.05])
    for seed in range(100):  # those whose best loss is hard to find
        loss[worse] = np.fmin(loss[worse], best_fits(problem, found.population(worse), worse, 31, seed, sizes).loss)
    left = np.flatnonzero(loss[numbers] > trees + 0.05)
    pairs = set(zip(pop[left].texts(), found.population(numbers[left]).texts(), strict=True))
    assert not {(tree, form) for tree, form in pairs if tree != form}
    assert np.isfinite(trees).mean() > 0.8


def test_symbols_of_a_grammar_are_counted_once():
    basis = grammar(3, ("+", "add", "mul"), 2, 1)
    assert [basis.symbol(row) for row in basis.operators] == [3, 4]
    assert [row.code for row in basis.operators] == [ops.ADD, ops.MUL]
