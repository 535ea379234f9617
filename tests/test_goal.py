"""Losses of a user's own: what a search fits and ranks by, and where they are least."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import exprkit as ek
from exprkit.errors import ArgumentError, ParseError
from exprkit.regression.problem.goal import NAMED, Goal, rows_for
from exprkit.regression.problem.rows import Rows
from exprkit.search.state_file import digest

Y = np.array([0.5, 1.0, 3.0, 7.0, 20.0])
X = np.arange(5.0)[:, None]
QUICK = {"niterations": 3, "population_size": 40, "pool_size": 300, "maxsize": 9, "random_state": 0}


def searched(loss, X, y, weights=None, columns=None, **settings):
    return ek.SymbolicRegressor(**(QUICK | settings), elementwise_loss=loss).fit(X, y, weights, columns=columns)


# ── where a loss is least, and what it is near there ──


@pytest.mark.parametrize(
    ("loss", "least_at", "plain"),
    [
        ("huber(f - y, 0.5)", Y, True),
        ("((f - y) / y)^2", Y, True),
        ("abs(2 * (f - y))", Y, True),
        ("pinball(y - f, 0.9)", Y, False),
        ("1 - exp(-((f - y) / 0.1)^2)", Y, False),
        ("f - y * log(f)", Y, False),
        ("exp(f) - y * f", np.log(Y), False),
        ("(sqrt(f) - y)^2", Y**2, False),
        ("abs(log(f) - y)", np.exp(Y), False),
        ("(f^2 - y)^2", np.sqrt(Y), False),
        ("(f - y - s)^2", Y + 0.1, True),
    ],
)
def test_rows_aim_at_where_the_loss_is_least(loss, least_at, plain):
    rows = rows_for(loss, X, Y, columns={"s": np.full(5, 0.1)} if "s)" in loss else None)
    goal = Goal(loss, rows)
    assert (goal.target if plain else rows.y) == pytest.approx(least_at, rel=1e-9) and goal.plain is plain
    beside = np.array([[1.0], [1.01], [0.99], [1.7], [0.3]]) * least_at
    losses = goal.losses(beside)
    assert losses[0] <= 1e-12 and (losses[1:] > losses[0]).all()


def test_a_loss_that_is_least_nowhere_aims_at_where_it_no_longer_counts():
    rows = rows_for("exp(f) - y * f", X, np.array([0.0, 1.0, 0.0, 2.0, 5.0]))
    assert np.abs(rows.y).max() < 50 and np.exp(rows.y[0]) < 1e-9


@pytest.mark.parametrize(
    ("loss", "y", "message"),
    [
        ("f - y", Y, "has no least value where y is 0.5: it falls on and on as f goes to -inf"),
        ("f - y * log(f)", -Y, "has no least value where y is -0.5: it falls on and on as f goes to 0"),
        ("((f - y) / y)^2", Y - 1, "is no number where y is 0, whatever f is: leave such rows out"),
        ("(y - 3)^2 + 0 * f", Y, "does not depend on f, the value of the formula"),
        ("(y - 3)^2", Y, "does not depend on f"),
        ("(f - z)^2", Y, "unknown name 'z'; variables are f, y, w"),
        ("(f - y", Y, "never closed"),
        ("loss(f, y) = (f - y)^2", Y, 'write what is taken of f and y alone, as "(f - y)^2"'),
        ("HuberLoss(1.0)", Y, "did you mean 'huber'?"),
        (lambda f, y: f - y, Y, "'poisson', 'gaussian' or a text over f, y and w as"),
    ],
)
def test_a_loss_that_makes_no_sense_is_told_before_anything_begins(loss, y, message):
    with pytest.raises((ArgumentError, ParseError), match=re.escape(message)):
        searched(loss, X, y)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([1.0], "columns must be a dictionary of arrays"),
        ({"s": [1.0]}, "columns: 's' must hold a finite number for each of 5 rows"),
        ({"s": ["a"] * 5}, "columns: 's' must hold numbers"),
        ({"f": Y}, "columns:"),
    ],
)
def test_columns_that_are_none_are_told(columns, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        searched("abs(f - y) / s", X, Y, columns=columns)
    with pytest.raises(ArgumentError, match="elementwise_loss='mae' takes no columns"):
        searched("mae", X, Y, columns={"s": Y})


def test_a_loss_that_only_the_host_has_says_so():
    with pytest.raises(ArgumentError, match=r"is fitted on the CPU alone.*backend='auto' or 'cpu', not 'cuda'"):
        searched("logcosh(f - y)", X, Y, backend="cuda")


WEIGHTS = {  # of least squares, in the place of the loss, near formulas that are nearly right
    "squares": np.ones(5),
    "((f - y) / y)^2": Y**-2.0,
    "f - y * log(f)": 1 / Y,
    "exp(f) - y * f": Y,
    "(log(f) - log(y))^2": Y**-2.0,
}


@pytest.mark.parametrize("loss", WEIGHTS)
def test_least_squares_take_the_weights_that_the_loss_has(loss):
    rows = rows_for(loss, X, Y)
    weights = Goal(loss, rows).as_squares(rows.y * (1 + 1e-5)).w
    assert weights / weights[0] == pytest.approx(WEIGHTS[loss] / WEIGHTS[loss][0], rel=1e-2)


def test_outliers_hardly_count_in_least_squares_of_a_robust_loss():
    for loss in ("mae", "huber", "huber(f - y, 0.01)", "log(1 + ((f - y) / 0.1)^2)"):
        rows = rows_for(loss, X, Y)
        weights = Goal(loss, rows).as_squares(rows.y + np.array([0.01, -0.01, 0.01, 100.0, -0.01])).w
        assert weights[3] < 0.02 * weights[[0, 1, 2, 4]].min()


POSITIVE = st.lists(st.floats(0.1, 50), min_size=2, max_size=8)


@given(POSITIVE, POSITIVE, st.sampled_from(["squares", "mae", "huber(f - y, 0.5)", "logcosh(f - y)", "(f / y - 1)^2"]))
def test_losses_are_means_of_what_evaluators_add_up(values, y, loss):
    n = min(len(values), len(y))
    f, y, w = np.array(values[:n])[:, None], np.array(y[:n]), np.arange(1.0, n + 1)
    rows = rows_for(loss, f, y, w)
    found = Goal(loss, rows).losses(rows.X.T)[0]
    named = {"squares": "sse", "mae": "sae"}.get(loss, loss)
    wanted = ek.Evaluator(ek.parse(["x1"]), f, dtype="float64").loss(None, y, named, w)[0] / w.sum()
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_a_sample_is_the_same_after_it_was_sent():
    loss, columns = "abs(f - y) / s", {"s": np.arange(1.0, 6.0)}
    rows = rows_for(loss, X, Y, columns=columns)
    again = Rows.of_arrays(*rows.arrays, list(columns), rows.coarseness)
    values = np.stack([Y + 1, 2 * Y])
    assert np.array_equal(Goal(loss, again).losses(values), Goal(loss, rows).losses(values))
    other = rows_for(loss, X, Y, columns={"s": 2 * columns["s"]})
    assert digest(again.arrays).tobytes() == digest(rows.arrays).tobytes() != digest(other.arrays).tobytes()


# ── searches ──


def drawn(n=150, seed=0):
    random = np.random.default_rng(seed)
    return random.uniform(0.5, 3, (n, 2)), random


@pytest.mark.slow
@pytest.mark.usefixtures("few_stages")
def test_a_robust_loss_finds_what_outliers_hide_from_squares():
    X, random = drawn()
    law = 2 * X[:, 0] / X[:, 1]
    y = law + 0.01 * random.standard_normal(len(X))
    y[::7] += random.uniform(20, 200, len(y[::7]))
    settings = {"niterations": 0, "unary_operators": [], "pool_size": 100}
    for loss in ("mae", "huber(f - y, 0.05)"):
        assert np.median(np.abs(searched(loss, X, y, **settings).predict(X) - law)) < 0.01
    assert np.median(np.abs(searched("squares", X, y, **settings).predict(X) - law)) > 1


def test_a_relative_loss_looks_at_small_values_as_well():
    X, random = drawn()
    X[:, 0] = 10 ** random.uniform(-3, 3, len(X))
    law = 3 * X[:, 0] + X[:, 1] ** 2
    y = law * np.exp(0.02 * random.standard_normal(len(X)))
    settings = {"pool_size": 1_000, "niterations": 0, "binary_operators": ["+", "*"], "unary_operators": ["square"]}
    model = searched("((f - y) / y)^2", X, y, **settings)
    assert np.abs(model.predict(X) / law - 1).max() < 0.05
    assert np.abs(searched("squares", X, y, **settings).predict(X) / law - 1).max() > 0.5
    assert model.get_best().loss == pytest.approx(np.mean((model.predict(X) / y - 1) ** 2))


@pytest.mark.slow
@pytest.mark.usefixtures("few_stages")
def test_counts_are_fitted_by_their_deviance():
    X, random = drawn(400)
    law = 40 * X[:, 0] ** 2 / np.exp(X[:, 1])
    y = random.poisson(law).astype(float)
    model = searched("f - y * log(f)", X, y, niterations=0, unary_operators=["exp", "square"], pool_size=100)
    assert np.abs(model.predict(X) / law - 1).max() < 0.15 and (model.predict(X) > 0).all()
    fitted = model.predict(X)
    log = np.where(y > 0, y * np.log(np.where(y > 0, y, 1) / fitted), 0)
    assert model.get_best().loss == pytest.approx(np.mean(log - (y - fitted)), rel=1e-6), "half the deviance"


@pytest.mark.slow
def test_evolution_alone_fits_by_the_loss():
    X, _ = drawn(80)
    y = 1.7 * X[:, 0] * X[:, 1] + 0.4
    y[::5] += 30
    settings = {"pool_size": 0, "population_size": 100, "niterations": 4, "unary_operators": []}
    model = searched("log(1 + (f - y)^2)", X, y, binary_operators=["+", "*"], **settings)
    assert np.median(np.abs(model.predict(X) - y)) < 0.02


@pytest.mark.slow
@pytest.mark.usefixtures("few_stages")
def test_weights_count_rows_whether_the_loss_names_them_or_not():
    X, random = drawn(40)
    y = X[:, 0] + random.standard_normal(40)
    w = random.integers(0, 3, 40)
    again = random.permutation(np.repeat(np.arange(40), w))
    settings = {"niterations": 0, "pool_size": 30, "unary_operators": []}
    found = [searched(loss, X, y, w, **settings) for loss in ("logcosh(f - y)", "w * logcosh(f - y)")]
    repeated = searched("logcosh(f - y)", X[again], y[again], **settings)
    for model in (found[1], repeated):
        assert model.predict(X, index=-1) == pytest.approx(found[0].predict(X, index=-1), rel=1e-3)


@pytest.mark.slow
def test_a_link_and_columns_are_taken_whatever_the_table_is():
    X, _ = drawn(60)
    table = pd.DataFrame(X, columns=["log Re (–)", "r_k"])
    y = np.log(3 * X[:, 0] / X[:, 1])
    model = searched("((log(f) - y) / s)^2", table, y, columns={"s": 1 + X[:, 1]}, niterations=0)
    assert model.get_best().equation == "3 * `log Re (–)` / r_k" and model.stopped_ == "a formula is exact"


def test_names_of_losses_are_those_of_fits():
    assert set(NAMED) < {"squares", "mae", "huber", "gaussian", "poisson"}


# ── losses that have names in fits alone ──


@pytest.mark.slow
def test_counts_are_searched_by_their_likelihood():
    x = np.random.default_rng(23).uniform(1, 4, (60, 1))
    y = np.random.default_rng(0).poisson(4 * x[:, 0] + 1)
    settings = {"niterations": 0, "pool_size": 100, "maxsize": 7, "random_state": 0, "max_evals": 20_000}
    model = ek.SymbolicRegressor(**settings, elementwise_loss="poisson", guesses=["4 * x1"]).fit(x, y)
    row = model.equations_.set_index("complexity").loc[3]
    slope = y.sum() / x.sum()  # in closed form
    assert row["equation"] == f"{row['parameters'][0]!r} * x1" and row["parameters"] == pytest.approx([slope], rel=1e-6)
    assert row["parameter_errors"] == pytest.approx([np.sqrt(slope / x.sum())], rel=1e-4)
    log = np.where(y > 0, y * np.log(np.maximum(y, 1) / (slope * x[:, 0])), 0.0)
    assert row["loss"] == pytest.approx(np.mean(log - y + slope * x[:, 0]), rel=1e-6)
    alike = [ek.SymbolicRegressor(**settings, elementwise_loss=loss).fit(x, y) for loss in ("gaussian", "squares")]
    assert alike[0].equations_["equation"].tolist() == alike[1].equations_["equation"].tolist()
    with pytest.raises(ek.errors.DataError, match="must not be negative"):
        ek.SymbolicRegressor(**settings, elementwise_loss="poisson").fit(x, y - 5)
