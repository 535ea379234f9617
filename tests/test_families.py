"""Functions are told apart by values: what is the same family is found, and nothing else is taken for it."""

from __future__ import annotations

import numpy as np
import pytest

import exprkit as ek
from exprkit.errors import ArgumentError
from exprkit.operators import ops
from exprkit.search.best_fits import best_fits
from exprkit.search.distinct import Enumeration
from exprkit.search.fingerprints import fingerprints
from exprkit.search.grammar import grammar

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


def test_neither_threads_nor_chunks_matter(core, monkeypatch):
    monkeypatch.setattr("exprkit.search.distinct.CHUNK", 777)
    other = enumerated(8, "core_maths", 1, 4, threads=1)
    every = np.arange(len(core))
    assert other.first_of_size == core.first_of_size and np.array_equal(other.part_of, core.part_of)
    assert other.population(every) == core.population(every)
    assert np.array_equal(other.stands_for(every), core.stands_for(every))


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
        ((0,), "max_nodes must be"), ((41,), "at most 40"), ((3, "nonsense"), "no set of operators"),
        ((3, "esr", 1, 7), "at most 6"), ((3, "esr", 0, 0), "neither"), ((3, "esr", 60), "more than 61 together"),
    ],
)  # fmt: skip
def test_a_grammar_that_is_none(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        grammar(*arguments)


# ── no false merges ──


def places(n_vars, n=24):
    random = np.random.default_rng(3)
    return random.uniform(0.3, 2.5, (n, n_vars)) * np.where(random.random((n, n_vars)) < 0.3, -1, 1)


@pytest.mark.parametrize(("operators", "n_vars", "size"), [("core_maths", 1, 7), ("esr", 2, 5)])
def test_functions_without_parameters_that_are_merged_have_the_same_values(operators, n_vars, size):
    pop = ek.generate.exhaustive(size, operators, n_vars=n_vars, n_params=0)
    _, first, inverse = np.unique(fingerprints(pop)[:, 0], return_index=True, return_inverse=True)
    X = places(n_vars)
    y = ek.Evaluator(pop, X, "cpu", dtype="float64").evaluate()
    representative = y[first[inverse]]
    fine = np.isfinite(y) & np.isfinite(representative) & (np.abs(y) < 1e9) & (representative != 0)
    assert np.allclose(y[fine], representative[fine], rtol=1e-7)
    assert fine.any(axis=1).mean() > 0.8 and len(first) < 0.8 * len(pop)


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
