"""Noise: when rows nearby tell nothing of what a formula leaves of y, and what a search does then."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import exprkit as ek
from exprkit.regression.estimator.equations import described
from exprkit.regression.formulas.front import Entry
from exprkit.regression.formulas.values import values_of
from exprkit.regression.problem.goal import Goal
from exprkit.regression.problem.noise import is_noise
from exprkit.regression.problem.rows import Rows
from exprkit.regression.stages import exact, growth, sums
from exprkit.regression.stages.discovery import Discovery, begin
from exprkit.regression.stages.search_problem import SearchSettings
from exprkit.runtime.budget import Budget, Ended

PLANETS = Path(__file__).parents[1] / "data" / "planets.csv"


def noisy(n=300, n_vars=3, noise=0.01, seed=0):
    """Of a law: its rows, and what it says at its rows."""
    random = np.random.default_rng(seed)
    X = random.uniform(0.5, 3, (n, n_vars))
    y = X[:, 0] * np.sin(X[:, 1]) + np.sqrt(X[:, 2])
    rows = Rows(X, y + noise * np.std(y) * random.standard_normal(n))
    a, b, c = rows.X.T[:3]
    return rows, a * np.sin(b) + np.sqrt(c)


@pytest.mark.slow
@given(seed=st.integers(0, 10_000), noise=st.sampled_from([1e-6, 1e-3, 0.05, 0.3]), n_vars=st.integers(3, 5))
def test_the_law_leaves_noise_and_another_formula_does_not(seed, noise, n_vars):
    rows, law = noisy(400, n_vars, noise, seed)
    assert is_noise(rows, law)
    assert not is_noise(rows, law + 2 * noise * np.std(law) * np.sin(3 * rows.X[:, 1]))
    assert not is_noise(rows, np.full(400, rows.y.mean()))


@given(seed=st.integers(0, 10_000))
def test_it_does_not_matter_how_columns_are_measured(seed):
    rows, law = noisy(200, seed=seed)
    other = Rows(np.exp(5 * rows.X), rows.y)
    assert np.array_equal(other.y, rows.y)
    for values in (law, law + 0.02 * rows.X[:, 0]):
        assert is_noise(rows, values) == is_noise(other, values)


def test_there_is_no_answer_where_rows_nearby_do_not_tell_of_y():
    few, law = noisy(20)
    assert not is_noise(few, law)
    wide, law = noisy(60, n_vars=30)  # no row is near to another one
    assert not is_noise(wide, law)
    rows, law = noisy()
    assert not is_noise(rows, np.where(np.arange(300) == 7, np.nan, law))
    random = np.random.default_rng(0)
    nothing = Rows(random.uniform(size=(200, 2)), random.standard_normal(200))
    assert not is_noise(nothing, np.zeros(200))
    assert not is_noise(Rows(np.ones((200, 1)), random.standard_normal(200)), np.zeros(200))


def test_a_law_without_noise_is_not_taken_for_noise():
    rows, law = noisy(noise=0)
    assert not is_noise(rows, law + 1e-9 * np.sin(3 * rows.X[:, 0]))


@pytest.mark.slow
@pytest.mark.parametrize("noise, exact_last", [(0.01, True), (0.0, False)])
def test_stages_for_exact_formulas_come_last_where_there_is_noise(noise, exact_last):
    random = np.random.default_rng(0)
    a, b, c, d, e = X = random.uniform(1, 5, (5, 300))
    y = a * (b + c * d * np.sin(e)) if noise else np.exp(np.sin(a * b / 6)) + np.sqrt(1 + c**2 + d**2 * np.cos(e) ** 2)
    rows = Rows(X.T, y + noise * np.std(y) * random.standard_normal(300))
    discovery = Discovery(rows, SearchSettings(), Budget())
    stages = [turn.stage for turn in discovery.turns]
    for stage in stages[: stages.index(growth.grow_first) + 1]:
        discovery.search.run_stage(stage)
    put_off = [sums.divide, exact.join_three, exact.sum_exactly, exact.join_more, sums.divide_within]
    later = [turn.stage for turn in discovery.turns]
    assert discovery.search.problem.is_noisy == exact_last and set(later) == set(stages)
    assert (later[-5:] == put_off) == exact_last
    if noise:
        assert discovery.search.front.min_loss < 1.05 * noise**2 * np.var(y)
        again = Discovery(rows, SearchSettings(), Budget())
        again.resume(discovery.checkpoint())
        assert again.turns == discovery.turns


@pytest.mark.parametrize("noise", [1e-7, 1e-3])
def test_laws_of_two_terms_are_among_all_pairs_of_few_functions(noise):
    x = np.linspace(1.7, 2.8, 144)
    random = np.random.default_rng(0)
    y = 0.032 * x * np.log(2.29 * x)
    rows = Rows(x[:, None], y + noise * np.std(y) * random.standard_normal(144))
    search = Discovery(rows, SearchSettings(), Budget()).search
    for stage in (begin, sums.regress_first):
        search.run_stage(stage)
    best = next(entry for entry in search.front.entries() if entry.loss < 1.1 * noise**2 * np.var(y))
    assert best.size == 8 and ek.parse([str(best.expression)])[0](x[:, None]) == pytest.approx(y, rel=noise)


QUOTIENTS = {
    "langmuir": "1.9 * x1 / (1 + 0.7 * x1 + 2.2 * x2)", "holling": "0.9 - 0.6 / (sqr(x1) + 0.5)",
    "inhibition": "1.3 * x1 / (0.4 + x1 + sqr(x1) / 2.7)", "weak acid": "(sqrt(sqr(x1) + 4 * x1 * x2) - x1) / 2",
}  # fmt: skip


def least_error(stage, law, y, X, near=()):
    """The least error of a law's values that a formula of one stage has, as a share of the error of y.

    ``near``: formulas that leave noise alone, as growth may have found them.
    """
    search = Discovery(Rows(X, y), SearchSettings(), Budget()).search
    search.offer(near)
    search.state.is_noisy = bool(near)
    formulas = [one for step in stage(search.problem) if isinstance(step, list) for one in step]
    with np.errstate(all="ignore"):
        errors = [np.mean((one(X) - law(X)) ** 2) for one in formulas if one.n_tokens <= 2 * law.n_tokens + 2]
    return np.nanmin(errors) / np.mean((y - law(X)) ** 2)


@pytest.mark.parametrize("name", QUOTIENTS)
@pytest.mark.parametrize("noise", [1e-7, 1e-3])
def test_quotients_of_sums_are_found_in_noise(name, noise):
    random, law = np.random.default_rng(3), ek.parse([QUOTIENTS[name]])[0]
    X = random.uniform(0.2, 3, (300, law.n_vars))
    y = law(X) + noise * np.std(law(X)) * random.standard_normal(300)
    assert least_error(sums.divide, law, y, X, [law] if noise > 1e-4 else ()) < 0.1


@pytest.mark.parametrize("error", ["noise", "digits"])
def test_sums_are_as_exact_as_y(error):
    """Three numbers, in noise of 1e-7 and in a table of five digits."""
    random, law = np.random.default_rng(0), ek.parse(["x1 * (1 - x1) - 0.08 * x1 / (0.8 + x1)"])[0]
    X = random.uniform(0.05, 2, (300, 1))
    y = law(X)
    given = y + 1e-7 * np.std(y) * random.standard_normal(300) if error == "noise" else np.array(rounded(y, 5))
    assert least_error(exact.sum_exactly, law, given, X) < 0.1


def test_fractions_are_no_numbers_that_were_fitted():
    """That 1 is taken off the exponential decides the value at the smallest x, of which no other row tells."""
    random = np.random.default_rng(1)
    x = np.append(1e-5, np.linspace(0.5, 20, 99))
    y = 3 * np.log(x) - np.log(np.expm1(0.7 * x)) + 2.5 + 0.1 * random.standard_normal(100)
    goal = Goal("squares", Rows(x[:, None], y))
    law = ek.parse(["3 * log(x1) - log(exp(0.7 * x1) - 1) + 2.5"])[0]
    loss = float(goal.losses(values_of([law], goal.rows.X))[0])
    front = described([Entry(law, loss, law.n_tokens)], goal, None, 0.0)
    assert front.expected[0] < 100 / 2 * np.log(loss) + 2 * 3 + 1.25 * law.n_tokens + 2


def rounded(values, digits):
    return [float(f"{value:.{digits}g}") for value in values]


def test_the_digits_of_y_tell_how_exact_it_is():
    x = np.random.default_rng(0).uniform(1, 500, 40)[:, None]
    rows = Rows(x, rounded(3 * np.sqrt(x[:, 0]), 3))
    assert (np.abs(3 * np.sqrt(rows.X[:, 0]) - rows.y) <= rows.resolution / 2 * (1 + 1e-9)).all()
    assert set(Rows(x, np.round(np.log(x[:, 0]), 2)).resolution) == {0.01}  # zeros at the end are digits
    assert Rows([[1.0]] * 3, [1.2512, 1.3125, 1000.0]).resolution[2] == 1000  # but for so many
    assert Rows(x, np.sqrt(x[:, 0])).resolution is None and Rows(x, np.rint(x[:, 0])).resolution is None


def test_a_search_of_few_rows_ends_where_their_digits_tell_no_more():
    distance, period = np.loadtxt(PLANETS, delimiter=",", skiprows=1, usecols=(1, 2)).T
    rows = Rows(distance[:, None], period)
    discovery = Discovery(rows, SearchSettings(), Budget())
    assert discovery.run() == "no better formula could be told from chance by the digits of y"
    formulas = [str(entry.expression) for entry in discovery.search.front.entries() if entry.size == 3]
    assert [formula.startswith("x1 ^ 1.499") for formula in formulas] == [True]
    assert discovery.problem.budget.n_evals < 5_000 and discovery.problem.budget.work < 1e6  # a second of a core


def test_only_the_simplest_formulas_end_a_search_before_other_simple_ones_were_tried():
    x = np.random.default_rng(0).uniform(0, 5, 15)[:, None]
    search = Discovery(Rows(x, np.round(8.3 * np.exp(-0.7 * x[:, 0]), 2)), SearchSettings(), Budget()).search
    search.offer(ek.parse(["exp(2.11689 - 0.70067 * x1)"]))
    search.check_resolution(is_simple_left=True)
    with pytest.raises(Ended, match="by the digits of y"):
        search.check_resolution(is_simple_left=False)


def test_a_number_alone_ends_no_search():
    x = np.array([0.3, 0.8, 1.3, 1.8, 2.3, 2.8, 3.3, 3.8])[:, None]
    search = Discovery(Rows(x, rounded(2.124 * np.tanh(1.495 * x[:, 0]), 2)), SearchSettings(), Budget()).search
    search.offer(ek.parse(["1.9875"]))
    search.check_resolution(is_simple_left=False)


LAW = "2.1e-6 * (exp(6824 * x1 / x2) - 1)"  # of a diode


@pytest.mark.parametrize(
    "formula, noise, ends",
    [
        (LAW, 0.0, True),
        ("2.1e-6 * exp(6824 * x1 / x2)", 0.0, False),  # large values are right, small ones wrong by many digits
        (LAW, 0.01, False),
        ("2.1e-6 * (exp(6824 * x1 / x2) - 1) + 0 * sin(x1 * x2) * cos(x1 / x2) * exp(x1)", 0.0, False),  # too long
    ],
)
def test_only_a_short_formula_right_to_the_digits_of_every_row_ends_a_search(formula, noise, ends):
    random = np.random.default_rng(1)
    X = np.column_stack([random.uniform(0.05, 0.6, 40), random.uniform(280, 350, 40)])
    y = ek.Evaluator(ek.parse([LAW]), X).evaluate()[0] * (1 + noise * random.standard_normal(40))
    search = Discovery(Rows(X, rounded(y, 3)), SearchSettings(), Budget()).search
    search.offer(ek.parse([formula]))
    if not ends:
        return search.check_resolution(is_simple_left=False)
    with pytest.raises(Ended, match="by the digits of y"):
        search.check_resolution(is_simple_left=False)
