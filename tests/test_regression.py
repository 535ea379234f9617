"""The search for formulas: laws are found, limits hold, and the estimator is one of scikit-learn's."""

from __future__ import annotations

import itertools
import os
import pickle
import re
import signal
import threading
import time
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from estimator_checks import failed_checks
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import exprkit as ek
from exprkit.errors import ArgumentError
from exprkit.expressions.arguments import operators_of
from exprkit.operators import ops
from exprkit.regression.estimator.equations import described, selected
from exprkit.regression.formulas import numbers, simplify
from exprkit.regression.formulas.front import Entry
from exprkit.regression.formulas.parameters import as_constants, as_parameters
from exprkit.regression.pairs import links, triples
from exprkit.regression.pairs.join import Partners
from exprkit.regression.pairs.pool import Pool
from exprkit.regression.problem.goal import Goal
from exprkit.regression.problem.rows import Rows
from exprkit.regression.rules.factors import power_factors
from exprkit.regression.rules.groups import UnitSystem
from exprkit.regression.stages import exact, simplification
from exprkit.regression.stages.discovery import Discovery
from exprkit.regression.stages.fewer_variables import factor, is_contradicted
from exprkit.regression.stages.search import FormulaSearch
from exprkit.regression.stages.search_problem import SearchSettings
from exprkit.regression.sums import selection
from exprkit.runtime import machine, slices
from exprkit.runtime.budget import Budget, Ended

QUICK = {
    "niterations": 2, "population_size": 30, "pool_size": 300, "maxsize": 12, "random_state": 0,
    "unary_operators": ["sin", "sqrt"],
}  # fmt: skip


def drawn(n=120, n_vars=3, seed=0, low=0.5, high=3.0):
    return np.random.default_rng(seed).uniform(low, high, (n, n_vars))


def values(texts, X):
    with np.errstate(all="ignore"):
        return ek.Evaluator(ek.parse(texts), X, "numpy", dtype="float64").evaluate()


def search(X, y, **settings):
    return ek.SymbolicRegressor(**({"random_state": 0, "pool_size": 20_000, "niterations": 20} | settings)).fit(X, y)


# ── threads ──


def test_one_job_is_one_thread(monkeypatch):
    """Pools, lookups and regressions ask for no other thread."""
    X = drawn(40)
    y = values(["x1 + 3 * x2 * x3 - 0.5 * sqr(x3) + sin(x1)"], X)[0]
    few = Rows(X, y).subsample(16, 0)
    monkeypatch.setattr(slices, "pool", lambda: pytest.fail("a thread was asked for"))
    with machine.limited(1):
        pool = Pool(few.X, operators_of("search"))
        pool.grow(30, 40_000)
        partners = Partners(pool)
        unary = [row for row in operators_of("search") if row.arity == 1]
        partners.of(few.y, links.all_links(unary)[0])
        next(triples.formulas(pool, partners, few.y, Rows(X, y), unary))
        chosen = selection.selected(pool.values[:900], pool.sizes[:900], few.y, np.full(16, 1 / 16), 3, 20)
    assert chosen


# ── laws ──

LAWS = {
    "3.7e-24 * x1 * x2 / sqr(x3)": 9,
    "x1 / sqrt(1 - 0.04 * sqr(x2))": 9,
    "x1 * exp(-1.3 * x2 / x3)": 10,
    "2.5 * x1 * (1 - cos(x2 * x3))": 10,
    "x1 + x2 + 2 * sqrt(x1 * x2) * cos(x3)": 15,
    "x1 / (exp(0.7 * x1 / x2) - 1)": 10,
    "x1 * tanh(0.3 * x2 * x3) * x2": 10,
    "5 * sqr(x1 * x2) / sqr(1 - sqr(x3 / 4))": 17,
    "sqrt(sqr(x1) + 3 * sqr(x2))": 9,
    "x1 ^ 5 / x2 ^ 3": 9,
    "x1 + (x2 - x1) * exp(-x3 * x2)": 12,
    "x3 * sqrt(sqr(x1) + sqr(x2) + sqr(x3 * cos(x1)))": 16,
    "exp(4.2 - 3.1 / (x1 + 1.7))": 8,
    "sqrt(3.3 + 1.7 * x1 * x2) - x2": 10,
    "x2 * exp(-0.3 * x1) * (1 + 0.7 * x2 * x3)": 14,
    "atan(x1 / (x2 + 2 * x3))": 8,
}


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_a_law_is_found_at_fresh_points(law):
    X, fresh = drawn(), drawn(seed=1)
    model = search(X, values([law], X)[0], pool_size=100_000)
    assert model.stopped_ == "a formula is exact"
    assert model.get_best().complexity <= LAWS[law]
    assert model.predict(fresh) == pytest.approx(values([law], fresh)[0], rel=1e-9)


@pytest.mark.slow
def test_a_law_is_found_in_noise():
    X, fresh = drawn(200, 2), drawn(n_vars=2, seed=1)
    law = "2 * x1 / (1 + x2)"
    noise = np.random.default_rng(5).standard_normal(200)
    y = values([law], X)[0]
    model = search(X, y + 0.01 * np.sqrt(np.mean(y**2)) * noise, **QUICK)
    assert model.predict(fresh) == pytest.approx(values([law], fresh)[0], rel=0.01)
    assert model.get_best().complexity <= 9


@pytest.mark.parametrize("way", [links.TIMES, links.OVER, links.PLUS, links.MINUS, triples.WITHIN_ROW])
def test_what_is_taken_off_is_put_back(way):
    X = drawn()
    y, f = values(["exp(x1 * x2)", "x3 / x1"], X)
    step = triples.Removal(way, ops.BY_NAME["exp"] if way == triples.WITHIN_ROW else 0)
    whole = step.on(*ek.parse(["x4", "x3 / x1"]))
    assert values([whole], np.column_stack([X, step.off(y, f)]))[0] == pytest.approx(y, rel=1e-12)


@pytest.mark.slow
def test_evolution_alone_finds_what_it_is_for():
    X = drawn()
    y = values(["x1 * x2 + 0.5 * x3"], X)[0]
    model = search(X, y, pool_size=0, niterations=60, population_size=300, unary_operators=[])
    assert model.score(X, y) > 0.999999


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-80, 1e80])
def test_data_of_any_size_are_taken(scale):
    X = drawn() * scale
    model = search(X, 3 * X[:, 0] * 2 / X[:, 1], pool_size=2_000, niterations=1)
    assert model.get_best().equation == "6 * x1 / x2"


def test_columns_of_any_size_warn_of_nothing(recwarn):
    X = drawn(40, 2)
    search(X * 1e300, X[:, 0] ** 1.5, timeout_in_seconds=1, niterations=0, pool_size=2_000)
    assert not recwarn.list


def test_a_constant_and_a_single_row():
    X = drawn()
    assert search(X, np.full(len(X), 2.5)).get_best().equation == "2.5"
    assert search(X[:1], [4.0], **QUICK).predict(X)[:2].tolist() == [4.0, 4.0]


@pytest.mark.slow
def test_names_of_columns_are_those_of_the_variables():
    X = pd.DataFrame(drawn(), columns=["r_k", "log Re", "u"])
    model = search(X, X["r_k"] / X["log Re"], **QUICK)
    assert model.get_best().equation == "r_k / `log Re`"
    assert str(model.sympy()) == "r_k/log Re"
    assert search(X.set_axis(["a", "sin", "c"], axis=1), X["r_k"], **QUICK).get_best().equation == "a"


@pytest.mark.slow
def test_operators_are_those_that_were_asked_for():
    X = drawn()
    model = search(X, np.sin(X[:, 0]) * X[:, 1], **QUICK | {"binary_operators": ["+", "*"], "unary_operators": []})
    used = {int(code) for entry in model._front.entries
            for code in entry.expression.values[entry.expression.kinds == ek.ops.OPERATORS[0].arity + 1]}  # fmt: skip
    allowed = {row.code for row in ops.OPERATORS if row.infix}  # also what shortens: 1 - x, x^3
    assert used <= allowed | {ops.BY_NAME["sqr"].code, ops.BY_NAME["sqrt"].code}
    angle = search(X, np.arctan(X[:, 0] / X[:, 1]), **QUICK | {"unary_operators": ["exp"]})
    assert "atan" not in angle.get_best().equation


# ── the same, whatever ──


@pytest.mark.slow
def test_the_same_formulas_are_found_whatever_the_threads():
    X = drawn(40, 2)
    y = values(["x1 * sin(x2) + 0.3 * x1"], X)[0] + 0.05 * np.random.default_rng(3).standard_normal(40)
    settings = QUICK | {"pool_size": 60}
    first = search(X, y, **settings, n_jobs=1).equations_["equation"].tolist()
    assert search(X, y, **settings, n_jobs=3).equations_["equation"].tolist() == first


@pytest.mark.slow
@pytest.mark.usefixtures("few_stages")
def test_other_seeds_give_other_formulas():
    X, y = drawn(80), np.random.default_rng(3).standard_normal(80)
    settings = QUICK | {"niterations": 4, "pool_size": 0}
    first, other = (search(X, y, **settings | {"random_state": k}).equations_["equation"] for k in (0, 1))
    assert first.tolist() != other.tolist()


@pytest.mark.slow
@pytest.mark.usefixtures("few_stages")
def test_weights_count_rows_and_their_order_does_not_matter():
    X = drawn(40)
    y = X[:, 0] + np.random.default_rng(0).standard_normal(40)
    w = np.random.default_rng(1).integers(0, 3, 40)
    weighted = ek.SymbolicRegressor(**QUICK).fit(X, y, sample_weight=w)
    again = np.random.default_rng(2).permutation(np.repeat(np.arange(40), w))
    repeated = ek.SymbolicRegressor(**QUICK).fit(X[again], y[again])
    assert weighted.equations_["equation"].tolist() == repeated.equations_["equation"].tolist()


@pytest.mark.slow
@pytest.mark.usefixtures("few_stages")
def test_a_model_survives_pickling_and_a_warm_start_keeps_what_it_had():
    X = drawn(60)
    y = X[:, 0] * X[:, 1] + np.random.default_rng(0).standard_normal(60)
    model = ek.SymbolicRegressor(**QUICK, warm_start=True).fit(X, y)
    same = pickle.loads(pickle.dumps(model))
    assert np.array_equal(same.predict(X), model.predict(X))
    assert same.equations_["equation"].tolist() == model.equations_["equation"].tolist()
    before = model.equations_["loss"].min()
    assert model.set_params(random_state=1).fit(X, y).equations_["loss"].min() <= before


# ── limits ──


def noisy(n=400, n_vars=5):
    X = drawn(n, n_vars)
    return X, np.random.default_rng(9).standard_normal(n)


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "n"), [(0.3, 400), (1.0, 50_000)])
def test_a_timeout_holds(limit, n, busy):
    ek.SymbolicRegressor(**QUICK).fit(*noisy())  # its loops are compiled
    begin = time.perf_counter()
    model = ek.SymbolicRegressor(timeout_in_seconds=limit, niterations=10**6).fit(*noisy(n))
    assert time.perf_counter() - begin < limit + 2 * busy()
    assert model.stopped_ == f"{limit:g} s are over" and len(model.equations_) >= 1


@pytest.mark.slow
def test_an_interrupt_ends_a_search_with_what_it_has(busy):
    model = ek.SymbolicRegressor(niterations=10**6)
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    begin = time.perf_counter()
    model.fit(*noisy())
    assert time.perf_counter() - begin < 1 + 3 * busy()
    assert model.interrupted_ and model.stopped_ == "it was interrupted" and len(model.equations_) >= 1


def test_evaluations_are_counted_and_limited():
    model = ek.SymbolicRegressor(max_evals=5_000, random_state=0).fit(*noisy())
    assert model.stopped_.endswith("functions were tried") and 5_000 <= model.n_evals_ < 500_000


def test_a_loss_that_is_small_enough_ends_the_search():
    X, y = drawn(), drawn()[:, 0] + 0.1 * np.random.default_rng(0).standard_normal(120)
    assert search(X, y, **QUICK, early_stop_condition=0.5).stopped_ == "the loss is as small as was asked for"
    assert search(X, y, **QUICK, early_stop_condition=lambda loss, size: size > 2).stopped_.startswith("the loss")


def test_guesses_are_begun_with():
    X = drawn()
    y = values(["0.5 * sin(1.7 * x1) + x2 ^ 1.3"], X)[0]
    settings = QUICK | {"pool_size": 0, "niterations": 0, "maxsize": 20}
    assert search(X, y, guesses=["sin(1.5 * x1) + x2 ^ 1"], **settings).score(X, y) < 0.995
    assert search(X, y, guesses=["0.4 * sin(1.5 * x1) + x2 ^ 1.1"], **settings).score(X, y) > 1 - 1e-9


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"niterations": -1}, "niterations must be a whole number >= 0, not -1"),
        ({"elementwise_loss": "square"}, "elementwise_loss must be one of 'squares', 'mae', 'huber', 'poisson'"),
        ({"unary_operators": ["+"]}, "unary_operators: 'add' takes 2 operands"),
        ({"unary_operators": ["sine"]}, "did you mean 'sin'"),
        ({"timeout_in_seconds": 0}, "timeout_in_seconds must be None or a positive number, not 0"),
        ({"early_stop_condition": "now"}, "early_stop_condition must be a number or a function of (loss, complexity)"),
        ({"model_selection": "bes"}, "model_selection must be one of"),
    ],
)
def test_a_wrong_setting_is_named(wrong, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        ek.SymbolicRegressor(**wrong).fit(drawn(20), np.arange(20.0))


# ── as an estimator ──

SMALL = 'niterations=1, random_state=0, population_size=20, pool_size=30, maxsize=5, unary_operators=["square"]'


@pytest.mark.slow
def test_every_check_of_scikit_learn_passes():
    assert failed_checks(f"SymbolicRegressor({SMALL})") == []


@pytest.mark.slow
@pytest.mark.usefixtures("few_stages")
def test_it_works_in_a_pipeline_a_grid_and_a_cross_validation():
    X = drawn(60)
    y = 2 * X[:, 0] + X[:, 1]
    small = ek.SymbolicRegressor(**QUICK)
    assert make_pipeline(MinMaxScaler(), small).fit(X, y).score(X, y) > 0.99
    steps = make_pipeline(MinMaxScaler((1, 2)), small)
    grid = GridSearchCV(steps, {"symbolicregressor__maxsize": [1, 9]}, cv=2, n_jobs=2).fit(X, y)
    assert grid.best_params_ == {"symbolicregressor__maxsize": 9} and grid.score(X, y) > 0.99
    assert cross_val_score(small, X, y, cv=2, n_jobs=2).min() > 0.99


def test_what_is_shown_says_the_same():
    X = drawn()
    model = search(X, 1.5 * X[:, 0] / np.sqrt(X[:, 1]), **QUICK)
    table = model.equations_
    assert list(table.columns[:4]) == ["complexity", "loss", "score", "equation"]
    assert table["complexity"].is_monotonic_increasing and table["loss"].is_monotonic_decreasing
    space: dict = {}
    exec(model.to_numpy(), space)
    assert space["f"](X) == pytest.approx(model.predict(X))
    assert model.predict(X, index=0) == pytest.approx(values([table["equation"][0]], X)[0])
    assert model.latex_table().count(r"\\") == len(table) + 1
    assert r"\sqrt{x_{2}}" in model.latex() and "equation" in model._repr_html_()
    axes = model.plot_front()
    assert len(axes.lines[1].get_xdata()) == len(table)
    with pytest.raises(ArgumentError, match=r"index must be a whole number from -\d+ to \d+, not"):
        model.latex(99)


@pytest.mark.slow
@pytest.mark.usefixtures("few_stages")
def test_accuracy_is_the_least_loss():
    X, y = noisy(60, 2)
    model = ek.SymbolicRegressor(**QUICK).fit(X, y)
    losses = model.equations_["loss"]
    assert model.set_params(model_selection="accuracy").get_best().loss == losses.min()
    assert model.set_params(model_selection="mdl").get_best().complexity <= 3  # nothing but noise


# ── its parts ──

TREES = ek.generate.random(400, n_tokens=(1, 25), operators="search", n_vars=3, n_params=0, seed=4)


def test_shorter_formulas_have_the_same_values():
    X = drawn(30)
    shorter = [simplify.simplified(formula) for formula in TREES]
    before, after = values(list(TREES), X), values(shorter, X)
    assert all(a.n_tokens <= b.n_tokens for a, b in zip(shorter, TREES, strict=True))
    for a, b, text in zip(before, after, TREES.texts(), strict=True):
        with np.errstate(all="ignore"):
            there = np.isfinite(a) & np.isfinite(b) & (np.abs(a) < 1e12)
        assert b[there] == pytest.approx(a[there], rel=1e-6, abs=1e-6), text
    assert sum(formula.n_tokens for formula in shorter) < 0.95 * TREES.n_tokens.sum()


@given(st.floats(-50, 50), st.integers(1, 12))
def test_a_simple_number_is_close(number, denominator):
    assert numbers.simple_number(number) == pytest.approx(number, rel=1e-9)
    assert numbers.simple_number(5 / denominator * (1 + 1e-13)) == 5 / denominator


def test_numbers_that_change_no_value_go():
    X = drawn()
    found = Discovery(Rows(X, X[:, 0] + np.sin(X[:, 1])), SearchSettings(), Budget(max_evals=1))
    found.search.offer(ek.parse(["x1 - 2.2e-268", "x1 + 0.3 * x2 + 1e-90 * exp(x3)"]))
    assert found.run() == "1 functions were tried"
    assert [str(entry.expression) for entry in found.search.front.entries()][-2:] == ["x1", "x1 + 0.3 * x2"]


def test_numbers_go_to_parameters_and_back():
    assert as_constants(*as_parameters(TREES)) == ek.Population(TREES.kinds, TREES.values, TREES.offsets)


def test_a_pool_holds_each_function_once_with_its_values():
    X = drawn(16, 2)
    pool = Pool(X, operators_of("search"))
    pool.grow(5, 3_000)
    n = len(pool)
    pool.multiply(4_000)
    assert n < len(pool) <= 4_000
    made = [pool.expression(i) for i in range(len(pool))]
    assert [formula.n_tokens for formula in made] == pool.sizes[: len(pool)].tolist()
    assert values(made, X) == pytest.approx(pool.values, rel=1e-12)
    signed = pool.values * np.where(pool.values[:, :1] < 0, -1, 1)
    assert len(np.unique(np.round(signed / np.abs(signed).max(axis=1)[:, None], 9), axis=0)) > 0.7 * len(pool)
    assert len({row.tobytes() for row in signed}) == len(pool)


def test_monomials_are_all_that_products_and_quotients_make_each_at_its_smallest_size():
    pool = Pool(drawn(16, 2), operators_of(["*", "/", "sqr", "sqrt"]), (), anywhere=False)
    pool.grow(9, 100_000)
    powers = {1: [1], 2: [2, Fraction(1, 2)], 3: [4, Fraction(1, 4)]}
    made = {size: {one for p in powers.get(size, ()) for one in ((p, 0), (0, p))} for size in range(1, 10)}
    seen = {(0, 0)}
    for size in range(1, 10):
        for a in range(1, size - 1):
            for (p, q), (r, s) in itertools.product(made[a], made[size - 1 - a]):
                made[size] |= {(p + r, q + s), (p - r, q - s)}
        made[size] -= seen
        seen |= made[size]
    assert [int((pool.sizes[: len(pool)] == size).sum()) for size in made] == [len(some) for some in made.values()]


@pytest.mark.parametrize("n_vars", [1, 2, 3])
def test_products_of_monomials_are_few_tries_for_each_that_is_kept(n_vars):
    pool = Pool(drawn(16, n_vars), operators_of("search"))
    pool.grow(30, 5_000)
    tried, n = pool.tried, len(pool)
    pool.multiply(10_000)
    assert len(pool) == 10_000 and pool.tried - tried < 25 * (len(pool) - n)


def test_a_pair_is_found_where_its_summand_hides_most_of_small_values():
    X = np.random.default_rng(0).uniform(0.5, 3.0, (40, 2))
    u = np.exp(np.random.default_rng(1).uniform(-7, 2, 40))
    rows = Rows(np.column_stack([X, u]), np.expm1(u))
    search = FormulaSearch(rows, SearchSettings(), Budget())
    with pytest.raises(Ended):
        search.run_stage(exact.join)
    assert str(search.front.entries()[-1].expression) == "exp(x3) - 1"


@pytest.mark.parametrize("link", links.all_links(operators_of("search")), ids=lambda link: link.text)
def test_a_link_is_taken_apart_as_it_is_put_together(link):
    X = drawn(20, 2, low=0.2, high=0.6) * [0.1, 1.0]
    f, h = ek.parse(["x1", "x2"])
    whole = link.expression(f, 0.1 + 0.4 * h)
    y = values([whole], X)[0]
    v = link.behind(y)
    assert v is not None
    assert link.linear_part(v, X[:, 0]) == pytest.approx(0.1 + 0.4 * X[:, 1])


def test_a_sample_does_not_depend_on_how_rows_are_given():
    X, y = drawn(30, 2), np.arange(30.0)
    order = np.random.default_rng(0).permutation(60) % 30
    once, twice = Rows(X, y, np.full(30, 2.0)), Rows(X[order], y[order])
    assert np.array_equal(once.X, twice.X) and np.array_equal(once.w, twice.w)
    assert np.array_equal(once.subsample(7, 3).X, twice.subsample(7, 3).X)


@pytest.mark.parametrize(("large", "scale"), [(0.0, 1.0), (1e9, 1e-3), (1e12, 1.0), (0.0, 1e-90)])
def test_a_large_constant_in_y_does_not_make_a_wrong_formula_exact(large, scale):
    X = drawn(60, 2)
    law = X[:, 0] ** 1.5 + X[:, 1]
    rows = Rows(X, large + scale * law, np.ones(60))
    line = np.polynomial.Polynomial.fit(X[:, 0], rows.y - large, 1)(X[:, 0])
    rounded = rows.y * (1 + np.finfo(float).eps)
    assert rows.is_exact(np.array([rows.y, rounded, large + line])).tolist() == [True, True, False]
    losses = Goal("squares", rows).losses(np.array([rounded, large + line]))
    assert losses[0] <= Goal("squares", rows).floor < losses[1]
    same = Rows(X, np.full(60, large + scale), np.ones(60))
    assert same.is_exact(np.full((1, 60), same.y.mean())).all()


SHORTEST = {
    "exp(0.3 * log(x2 / x3)) * x1": "(x2 / x3) ^ 0.3 * x1",
    "exp(2 * log(x1) + x2)": "exp(x2) * sqr(x1)",
    "exp(x1) * exp(x2) / exp(x3)": "exp(x1 + x2 - x3)",
    "sqr(x1 - x2) / sqr(x1 + x2)": "sqr((x1 - x2) / (x1 + x2))",
    "sqrt(x1) * sqrt(x2) / sqrt(x3)": "sqrt(x1 * x2 / x3)",
    "sqr(x1 * x2) * x3 / x1": "x3 * x1 * sqr(x2)",
    "5 / (2.5 - x1 / (x1 + 1))": "3.3333333333333335 - 2.2222222222222228 / (x1 + 1.6666666666666667)",
    "x1 + x1 * (x2 / x3 + 1) / (343 / x3 - 1)": "x1 * (x2 + 343) / (343 - x3)",
    "1 / (1 / x1 + 1 / x2)": "x1 * x2 / (x2 + x1)",
    "x1 / (x1 + x2) + x2 / (x1 + x2)": "1",
    "x1 ^ 0.3 * x2 ^ 0.3 * x3 ^ -0.3": "(x2 * x1 / x3) ^ 0.3",
    "sqr(x1 - 1) ^ 0.19 / sqr(x2 + 1) ^ 0.19": "sqr((x1 - 1) / (x2 + 1)) ^ 0.19",
    "0.5 * (log(4 * x1) - log(x2)) - 0.6931471805599453": "0.5 * log(x1 / x2)",
    "1 - log(x1) - log(x2)": "1 - log(x1 * x2)",
}


@pytest.mark.parametrize("text", SHORTEST)
def test_powers_and_quotients_are_brought_together(text):
    (short,) = simplify.as_quotient(ek.parse(text)[0])
    assert str(short) == SHORTEST[text]
    assert values([short], drawn(20, 3))[0] == pytest.approx(values([text], drawn(20, 3))[0], rel=1e-12)


def test_squares_are_multiplied_out_where_that_is_shorter():
    before = ek.parse("sqr(0.5 * (sqrt(x1 + x2) - sqrt(x1 - x2))) + x3")[0]
    (short,) = simplify.expanded(before)
    assert str(short) == "0.5 * x1 + x3 - 0.5 * sqrt(sqr(x1) - sqr(x2))"
    X = drawn(20, 3)
    X[:, 0] += 3
    assert values([short], X)[0] == pytest.approx(values([before], X)[0], rel=1e-12)


@pytest.mark.parametrize("text, short", [
    ("x1 + sqr(x2) + 2 * x2 + 1", "sqr(x2 + 1) + x1"), ("exp(4 * sqr(x1) - 12 * x1 * x2 + 9 * sqr(x2))",
                                                       "exp(4 * sqr(x1 - 1.5 * x2))"),
    ("sqrt(0.25 * sqr(x1 + x2) + sqr(x3) - x1 * x2)", "sqrt(0.25 * sqr(x1 - x2) + sqr(x3))"),
    ("sqr(x1 / x2) + 2 * x1 + sqr(x2)", "sqr(x1 / x2 + x2)"),
    ("exp(3.75 * x1 - 0.75 * sqr(x1) - 4)", "exp(0.6875 - 0.75 * sqr(x1 - 2.5))"),
    ("exp(2 * sqr(x1 + 1) - 4 * sqr(x1 - 1))", "exp(16 - 2 * sqr(x1 - 3))"),
    ("sqr(sqr(x1)) + 2 * sqr(x1)", "sqr(sqr(x1) + 1) - 1"),
])  # fmt: skip
def test_terms_become_the_square_of_a_sum(text, short):
    assert str(min(simplify.completed(ek.parse([text])[0]), key=lambda one: one.n_tokens)) == short


def test_terms_that_are_no_square_stay():
    assert simplify.completed(ek.parse(["sqr(x1) + 2.001 * x1 * x2 + sqr(x2)"])[0]) == []
    assert simplify.completed(ek.parse(["x1 * x2 + sqr(x1) - sqr(x2)"])[0]) == []


def test_quotients_of_sums_have_the_values_that_they_had():
    random = ek.generate.random(300, n_tokens=(5, 15), operators=["+", "-", "*", "/"], n_vars=3, n_params=0, seed=7)
    X, before = drawn(30, 3), [random[i] for i in range(len(random))]
    after = [simplify.as_quotient(formula)[0] for formula in before]
    with np.errstate(all="ignore"):
        ours, theirs = values(after, X), values(before, X)
    known = np.isfinite(theirs) & (np.abs(theirs) < 1e6)
    ours, theirs = ours[known], theirs[known]
    assert known.mean() > 0.5
    assert (np.abs(ours - theirs) <= 1e-9 * np.abs(theirs) + 1e-12).mean() > 0.99  # the rest is rounding
    assert all(a.n_tokens <= b.n_tokens for a, b in zip(after, before, strict=True))
    assert sum(a.n_tokens < simplify.simplified(b).n_tokens for a, b in zip(after, before, strict=True)) > 5


def test_variables_of_which_y_is_a_power_are_recognised():
    X, random = drawn(300, 4), np.random.default_rng(3)
    rest = 1 / np.sqrt(X[:, 2] ** 2 + X[:, 3])
    for noise in (0.0, 0.02):
        y = X[:, 0] / X[:, 1] ** 2 * rest * (1 + noise * random.standard_normal(300))
        first = power_factors(Rows(X, y))[0]
        assert (first.repeating, first.y_powers) == ((0, 1), (1.0, -2.0))
        inner, unit = first.columns(X)
        assert np.array_equal(inner, X[:, 2:]) and np.allclose(unit, X[:, 0] / X[:, 1] ** 2)
    for other in (X[:, 0] / (X[:, 0] + X[:, 1]), X[:, 0] * X[:, 1] + X[:, 2], np.exp(X[:, 0] * X[:, 3])):
        assert power_factors(Rows(X, other)) == []


def test_a_power_that_noise_leaves_open_is_none():
    """A multiple of one half is near any number that is known no better."""
    random = np.random.default_rng(1)
    for _ in range(5):
        X = random.uniform(1, 3, (150, 6))
        y = (4 + 3 * X[:, 0] + X[:, 1]) * np.exp(0.3 * random.standard_normal(150))
        assert power_factors(Rows(X, y)) == []


def test_what_a_good_formula_contradicts_is_no_power():
    """As the first angle of a pendulum, of which the later one is nearly a multiple, unless it is large."""
    X = drawn(300, 2)
    bent, straight = X[:, 0] * np.cos(0.3 * X[:, 0] * X[:, 1]), X[:, 0] * np.cos(0.8 * X[:, 1])
    texts = "1.02 * x1 * cos(0.31 * x1 * x2)", "1.02 * x1 * cos(0.81 * x2)"
    linear = UnitSystem((0,), (1,), ((0.0,),), (1.0,), 2)
    for y, text, is_none in ((bent, texts[0], True), (straight, texts[1], False), (straight, "1.3", False)):
        search = FormulaSearch(Rows(X, y), SearchSettings(), Budget())
        search.offer(ek.parse([text]))
        assert is_contradicted(search.problem, linear) == is_none


@pytest.mark.parametrize("stage, law", [
    (factor, lambda x: 3 * x[1] / x[0] / np.sqrt(x[2] ** 2 + 0.7 * x[3] * x[4] + 2.3)),
    (exact.sum_exactly, lambda x: np.exp(3 - 0.7 / x[0] - 2.6 * np.log(x[1]) + 0.3 * x[2])),
])  # fmt: skip
def test_sums_within_operators_are_found_at_once(stage, law):
    X = drawn(300, 5)
    search = FormulaSearch(Rows(X, law(X.T)), SearchSettings(pool_size=3_000), Budget())
    with pytest.raises(Ended, match="a formula is exact"):
        search.run_stage(stage)


@pytest.mark.slow
def test_numbers_of_a_noisy_law_become_simple_in_the_end():
    random = np.random.default_rng(0)
    X = random.uniform(0.5, 5, (200, 2))
    law = 3 * np.log(X[:, 0]) - np.log(np.exp(0.7 * X[:, 1]) - 1) + 2.345
    search = FormulaSearch(Rows(X, law + 0.05 * random.standard_normal(200)), SearchSettings(), Budget(60))
    search.offer(ek.parse(["3.01 * log(x1) + 2.34 - 0.94 * log(exp(0.738 * x2) - 1.05)"]))
    search.run_stage(simplification.finish)
    best = search.front.by_nats()[0].expression
    first = r"(3 \* log\(x1\) \+ 2\.3\d+|3 \* \(log\(x1\) \+ 0\.7\d+\))"  # as good and as short as each other
    assert re.fullmatch(first + r" - log\(exp\(0\.\d+ \* x2\) - 1\)", str(best))


def test_what_fits_as_many_numbers_as_rows_is_no_law_and_ends_no_search():
    X, y = np.array([[1.0], [2.0], [3.5], [4.0]]), np.array([1.234, -0.77, 2.5391, 0.4447])
    few, through = Rows(X, y), np.polynomial.Polynomial.fit(X[:, 0], y, 3).convert().coef
    text = "{} + x1 * ({} + x1 * ({} + x1 * {}))".format(*through.tolist())
    search = FormulaSearch(few, SearchSettings(), Budget())
    search.offer(ek.parse([text]))
    assert search.front.min_loss < 1e-20 and not search.problem.is_exact
    search = FormulaSearch(Rows(X, 3 * X[:, 0] ** 2), SearchSettings(), Budget())
    search.offer(ek.parse(["3 * sqr(x1)"]))
    assert search.problem.is_exact


STEPS = [
    "tanh(4e22 * exp(30000 * (sin(7.1 * x1) + x2 * x3 - 1.234)))", "exp(-1.1e9 * exp(-51790 * (x1 - 0.43)))",
    "sqr(tanh(1e9 * max(x4 + x1 * (x2 - 0.73) - 0.218, 0)))", "tanh(exp(83187.4519 * x2 + 512030.3 * (x5 - 0.4417)))",
]  # fmt: skip


@pytest.mark.parametrize("text", STEPS)
@pytest.mark.parametrize("n_rows", [14, 28])
def test_what_fits_labels_by_as_many_bits_as_rows_tell_is_no_law(text, n_rows):
    """Labels 0 and 1 tell a bit a row, whatever a step through them holds; numbers of y tell their digits."""
    X = np.random.default_rng(n_rows).uniform(0, 1, (n_rows, 5))
    for y, formula in ((np.rint(values([text], X)[0]), text), (np.exp(X[:, 0]), "exp(x1)")):
        search = FormulaSearch(Rows(X, y), SearchSettings(), Budget())
        search.offer(ek.parse([formula]))
        assert search.problem.rows.is_exact(values([formula], search.problem.rows.X))
        assert search.problem.is_exact == (formula != text)


@pytest.mark.parametrize("how", ["best", "mdl"])
def test_what_is_exact_by_accident_is_not_selected(how):
    X = np.random.default_rng(0).uniform(0, 1, (28, 5))
    for n_rows, text, chosen in ((28, STEPS[0], 0), (28, STEPS[3], 0), (28, "greater(x1 + x2, 1)", 1)):
        rows = Rows(X[:n_rows], np.rint(values([text], X[:n_rows])[0]))
        goal, formulas = Goal("squares", rows), list(ek.parse([repr(float(rows.y.mean())), text]))
        losses = goal.losses(values([str(one) for one in formulas], rows.X))
        entries = [Entry(one, loss, one.n_tokens) for one, loss in zip(formulas, losses.tolist(), strict=True)]
        assert selected(described(entries, goal, None, goal.floor), how, 0.0) == chosen, text


def test_labels_of_many_rows_and_whole_numbers_of_few_tell_a_law():
    X = np.random.default_rng(0).integers(0, 100, (200, 5)).astype(float)
    for n_rows, text in ((200, "greater(x1, x2)"), (200, "greater(x1 * x2, 1234)"), (8, "x1 * x2 + 3"), (5, "x1 / x3"),
                         (20, "5")):  # fmt: skip
        search = FormulaSearch(Rows(X[:n_rows], values([text], X[:n_rows])[0]), SearchSettings(), Budget())
        search.offer(ek.parse([text]))
        assert search.problem.is_exact, text


def test_a_formula_is_polished_once_and_an_interpolation_never(monkeypatch):
    random = np.random.default_rng(0)
    X = random.uniform(1, 3, (40, 1))
    search = FormulaSearch(Rows(X, 2.3 * X[:, 0] + 0.1 * random.standard_normal(40)), SearchSettings(), Budget())
    search.offer(ek.parse(["2.31 * x1 + 0.017"]))
    search.run_stage(simplification.polish)
    entries = search.front.entries()
    assert any(entry.is_polished for entry in entries)
    monkeypatch.setattr(simplification, "_with_simpler_numbers", lambda *_: pytest.fail("polished again"))
    search.run_stage(simplification.polish)
    assert [entry.size for entry in search.front.entries()] == [entry.size for entry in entries]
    losses = [[entry.loss for entry in front] for front in (search.front.entries(), entries)]
    np.testing.assert_allclose(*losses, rtol=1e-9)
    few = FormulaSearch(Rows(X[:4], X[:4, 0] + random.standard_normal(4)), SearchSettings(), Budget())
    few.offer(ek.parse(["1.03 * x1 ^ 0.97 + 0.0123"]))
    few.run_stage(simplification.polish)
    assert not any(entry.is_polished for entry in few.front.entries())
