"""What a search does next goes by the work that it has counted: not by the clock, nor by where it was killed."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data

import exprkit as ek
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.values import values_of
from exprkit.regression.pairs.pool import Pool
from exprkit.regression.problem.rows import Rows
from exprkit.regression.shapes import templates
from exprkit.regression.shapes.factored import factored
from exprkit.regression.stages.discovery import Discovery
from exprkit.regression.stages.search import FormulaSearch
from exprkit.regression.stages.search_problem import SearchSettings
from exprkit.regression.sums.formulas import Transform
from exprkit.regression.sums.regress import regressed
from exprkit.regression.sums.selection import selected
from exprkit.regression.sums.single import singles
from exprkit.runtime.budget import Budget

RANDOM = np.random.default_rng(3)
X = RANDOM.uniform(0.5, 3, (30, 2))
Y = np.sin(1.3 * X[:, 0]) / (0.7 + X[:, 1] ** 1.7) + 0.02 * RANDOM.standard_normal(30)
SMALL = {"pool_size": 100, "niterations": 2, "population_size": 40, "maxsize": 11, "threads": 1}


def searched(budget, checkpoint=None, save=lambda search: None):
    discovery = Discovery(Rows(X, Y), SearchSettings(**SMALL), budget, save=save)
    if checkpoint is not None:
        discovery.resume(checkpoint)
    discovery.run()
    return discovery


def bits(discovery):
    """All that a search has found, and what it counted."""
    entries = [(*map(bytes, (e.expression.kinds, e.expression.values)), e.loss, e.is_polished)
               for e in discovery.search.front.entries()]  # fmt: skip
    budget = discovery.search.problem.budget
    return entries, budget.n_evals, budget.work


@pytest.mark.slow
def test_a_slow_clock_changes_nothing_that_is_over_in_time(monkeypatch):
    found = []
    for step in (0.0, 0.37):
        clock = itertools.count()
        monkeypatch.setattr(Budget, "seconds", property(lambda self: min(step * next(clock), 4.0)))  # noqa: B023
        found.append(bits(searched(Budget(seconds=5.0))))
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("limits", [{"seconds": 500.0}, {"max_evals": 20_000}])
def test_a_search_that_was_killed_counts_on_from_where_it_was(limits):
    steps = []
    whole = searched(Budget(**limits), save=lambda search: steps.append(copy.deepcopy(search.checkpoint())))
    for checkpoint in (steps[5], steps[-1]):
        assert bits(searched(Budget(**limits), checkpoint)) == bits(whole)


FORMULA = ek.parse("sin(1.5 * x1) / (x2 + 0.5)")[0]
WEIGHT = np.full(len(Y), 1 / len(Y))


def functions(n):
    pool = Pool(X, SearchSettings().operators, [1.0])
    pool.grow(5, n)
    return pool


WORK = {
    "simplification": lambda n: [simplified(FORMULA) for _ in range(n)],
    "values": lambda n: [values_of([FORMULA], X) for _ in range(n)],
    "fits": lambda n: FormulaSearch(Rows(X, Y), SearchSettings(threads=1), Budget()).problem.refitted([FORMULA] * n),
    "pairs": lambda n: regressed(functions(n).values, functions(n).values, Y, WEIGHT, np.array([0, n])),
    "sums": lambda n: selected(functions(n).values, functions(n).sizes[:n], Y, WEIGHT, 2, 20),
    "single functions": lambda n: list(singles(functions(n), Rows(X, Y), [Transform(None, False)])),
    "templates": lambda n: templates.nested([functions(n)] * 3, Rows(X, Y), SearchSettings().operators),
    "factors": lambda n: factored([functions(n)] * 2, Rows(X, Y), SearchSettings().operators),
}


@pytest.mark.parametrize("kind", WORK)
def test_twice_as_much_of_everything_is_more_work_and_the_same_every_time(kind):
    def counted(n):
        budget = Budget()
        with budget.counting():
            WORK[kind](n)
        return budget.work

    assert counted(8) == counted(8) > counted(4) > 0


def test_a_share_of_the_time_is_counted_in_work():
    budget = Budget(seconds=10.0)
    is_over = budget.part(0.3)
    budget.spend(2.9)
    assert not is_over()
    budget.spend(0.2)
    assert is_over() and budget.work == 3_100_000 and budget.seconds < 1


@pytest.mark.slow
def test_a_limit_says_what_it_has_cut():
    model = ek.SymbolicRegressor(max_evals=300, pool_size=60, n_jobs=1, random_state=0).fit(X, Y)
    assert model.cut_[-1] == "evolve" and "regress" in model.cut_ and "begin" not in model.cut_
    done = ek.SymbolicRegressor(niterations=0, pool_size=20, maxsize=5, n_jobs=1, random_state=0).fit(X, Y)
    assert done.cut_ == [] and done.stopped_ == "0 iterations are done"


@pytest.mark.slow
def test_a_limit_of_work_ends_at_the_same_place_whatever_the_clock_and_the_threads(monkeypatch):
    settings = {"timeout_in_seconds": 1.5, "deterministic": True, "maxsize": 9, "random_state": 0}
    models = []
    for threads, hours in ((1, 0.0), (3, 100.0)):
        monkeypatch.setattr(Budget, "seconds", property(lambda self: 3600 * hours))  # noqa: B023
        models.append(ek.SymbolicRegressor(**settings, n_jobs=threads).fit(X, Y))
    assert [model.stopped_ for model in models] == ["1.5 s of work are counted"] * 2
    assert list(models[0].equations_.equation) == list(models[1].equations_.equation)
    assert models[0].cut_ == models[1].cut_ and models[0].cut_[-1] == "evolve"


@pytest.mark.slow
def test_equal_sample_weights_give_equal_formulas_in_a_limit_of_work():
    model = ek.SymbolicRegressor(timeout_in_seconds=0.7, deterministic=True, n_jobs=1)
    check_sample_weight_equivalence_on_dense_data("SymbolicRegressor", model)


def test_steps_whose_share_is_over_are_told():
    discovery = Discovery(Rows(X, Y), SearchSettings(**SMALL), Budget(seconds=100.0))
    search = discovery.search
    search.stage = "curve"

    def candidates():
        for _ in range(5):
            assert discovery.left_out == []
            search.problem.budget.spend(6.0)
            yield []

    search.run_stage(lambda problem: problem.for_share(0.1, candidates()))
    assert discovery.left_out == ["curve"] and search.problem.budget.work == 12_000_000


@pytest.mark.slow
def test_rows_of_weight_2_are_rows_that_are_there_twice_within_a_budget_of_work():
    weights = RANDOM.integers(1, 4, len(Y))
    twice = np.repeat(X, weights, axis=0), np.repeat(Y, weights)
    settings = {
        "max_evals": 30_000,
        "pool_size": 60,
        "population_size": 40,
        "maxsize": 9,
        "random_state": 0,
        "n_jobs": 1,
    }
    weighted = ek.SymbolicRegressor(**settings).fit(X, Y, sample_weight=weights)
    repeated = ek.SymbolicRegressor(**settings, timeout_in_seconds=10_000).fit(*twice)
    assert list(weighted.equations_.equation) == list(repeated.equations_.equation)
