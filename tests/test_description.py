"""Description length, against cases computed by hand and lengths made with mpmath; fronts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from description_reference import Expression, told

import exprkit as ek
from exprkit.errors import ArgumentError
from exprkit.fitting.description_length import DescriptionLength, front

X = np.linspace(1.0, 2.0, 50)[:, None]
Y = 3 * X[:, 0] + 0.1 * np.random.default_rng(0).standard_normal(50)


def lengths(texts, X=X, y=Y, loss="gaussian", dtype="float64", **options):
    return ek.description_length(ek.fit(ek.parse(texts), X, y, loss=loss, dtype=dtype, **options))


def test_function_is_nodes_times_log_of_kinds_and_constants():
    pop = ek.parse(["x1", "x1 + x1", "p1 * x1 + p2", "2 * x1 + 0.5", "x1 + x2 * x1", "bad"], errors="mask")
    expected = [0.0, 3 * math.log(2), 5 * math.log(4), 5 * math.log(5) + 2 * math.log(2), 5 * math.log(4), math.nan]
    assert DescriptionLength.of_functions(pop) == pytest.approx(expected, nan_ok=True)


def test_one_parameter_by_hand():
    found = ek.fit(ek.parse(["p1 * x1"]), X, Y, loss="gaussian", weights=np.full(50, 100.0), dtype="float64")
    length = ek.description_length(found)
    theta, information = found.params[0, 0], 100 * np.sum(X**2)
    residuals = 50 * np.sum((theta * X[:, 0] - Y) ** 2) + 25 * math.log(2 * math.pi / 100)
    parameters = math.log(theta) + math.log(information) / 2 - math.log(3) / 2
    assert length.residuals[0] == pytest.approx(residuals)
    assert length.parameters[0] == pytest.approx(parameters)
    assert length.function[0] == pytest.approx(3 * math.log(3))
    assert length.total[0] == pytest.approx(residuals + parameters + 3 * math.log(3))


def test_as_a_table():
    found = ek.fit(["p1 * x1", "x1"], np.ones((5, 1)), np.arange(5.0), loss="gaussian")
    length = ek.description_length(found)
    table = length.to_pandas()
    assert list(table) == ["total", "residuals", "parameters", "function"]
    assert table["total"].tolist() == length.total.tolist()


def test_without_weights_the_variance_is_the_mean_square():
    found = ek.fit(ek.parse(["p1 * x1"]), X, Y, loss="gaussian", dtype="float64")
    variance = np.sum((found.params[0, 0] * X[:, 0] - Y) ** 2) / 50
    expected = math.log(found.params[0, 0]) + math.log(np.sum(X**2) / variance) / 2 - math.log(3) / 2
    assert ek.description_length(found).parameters[0] == pytest.approx(expected)


def test_a_parameter_below_its_precision_becomes_0():
    X2 = np.column_stack([X[:, 0], np.random.default_rng(1).standard_normal(50)])
    found = ek.fit(ek.parse(["p1 * x1 + p2 * x2", "p1 * x1"]), X2, Y, loss="gaussian", dtype="float64")
    length = ek.description_length(found)
    assert abs(found.params[0, 1]) > 0 and length.params[0, 1] == 0
    assert length.parameters[0] == pytest.approx(length.parameters[1], rel=0.05)
    assert length.residuals[0] == pytest.approx(length.residuals[1], abs=0.5)


def test_the_information_of_counts_is_the_observed_one():
    counts = np.random.default_rng(0).poisson(3 * X[:, 0]).astype(float)
    found = ek.fit(ek.parse(["p1 * x1"]), X, counts, loss="poisson", dtype="float64")
    expected = math.log(np.sum(counts)) / 2 - math.log(3) / 2  # I = sum y / p1^2
    assert ek.description_length(found).parameters[0] == pytest.approx(expected, rel=1e-9)


# ── against mpmath ──


def data(name):
    random = np.random.default_rng(3)
    X = random.uniform(0.2, 3, (10, 2)) if name == "positive" else random.standard_normal((10, 2))
    return X, X[:, 0] ** 2 + 0.3 * random.standard_normal(10), random.uniform(0.5, 2, 10)


SINGULAR = [
    "(x1 - x1) / p1", "sqr(x1 / p1) + p2", "sqr(x1) - inv(p1)", "p1 * p2 * x1", "p1 + p2", "powabs(x1, p1) * p2",
    "x1", "2.5", "p1 / p2", "p2 * x1", "sqr(p1 / p2) + x1", "x1 / (p1 + p2)", "p1 * exp(p2 * x1)", "sqr(x1) + p1 * 0",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("operators", ["esr", "thesis", "gp", "singular"])
@pytest.mark.parametrize("name", ["positive", "normal"])
@pytest.mark.parametrize("kind", ["gaussian", "weighted", "poisson"])
def test_lengths_are_those_of_mpmath(operators, name, kind):
    X, y, w = data(name)
    if operators == "singular":
        pop = ek.parse(SINGULAR, variables=2)
    else:
        pop = ek.generate.exhaustive(5, operators)
        pop = pop[np.random.default_rng(1).permutation(np.flatnonzero(pop.n_params > 0))[:25]]
    y = np.random.default_rng(5).poisson(1 + np.exp(X[:, 0])).astype(float) if kind == "poisson" else y
    w, loss = w if kind == "weighted" else None, "poisson" if kind == "poisson" else "gaussian"
    found = ek.fit(pop, X, y, weights=w, loss=loss, dtype="float64", init="normal", restarts=2)
    length, compared = ek.description_length(found), 0
    assert not np.isnan(length.total).any() and (length.total > -np.inf).all()
    for i in np.flatnonzero(np.isfinite(found.loss)).tolist():
        residuals, parameters, doubt = told(Expression(pop, i, X, y, w, loss), found.params[i, : pop.n_params[i]])
        if doubt > 1e-6:  # a number of steps of exactly 1 is rounded to either side
            expected = float(residuals), float(parameters)
            assert (length.residuals[i], length.parameters[i]) == pytest.approx(expected, rel=1e-4, abs=1e-3), pop[i]
            compared += 1
    assert compared >= (5 if operators == "singular" else 6)


# ── what can not be told ──


def test_what_can_not_be_told_is_never_the_shortest():
    random = np.random.default_rng(0)
    X, y = random.standard_normal((60, 1)), random.standard_normal(60)
    length = lengths(["sqr(x1)", "(x1 - x1) / p1", "sqr(x1) - inv(p1)", "p1", "sqr(x1 / p1) + p2"], X, y + X[:, 0] ** 2)
    assert length.total.tolist()[1:3] == [math.inf] * 2 and np.argmin(length.total) == 0
    assert (length.total[1:] > length.total[0]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_shortest_of_all_expressions_tells_the_data(dtype):
    points = ek.data.rough_pipe()
    pop = ek.generate.exhaustive(5)
    found = ek.fit(pop, points.X, points.y, loss="gaussian", dtype=dtype, restarts=2)
    length = ek.description_length(found)
    assert not np.isnan(length.total).any() and (length.total > -np.inf).all()
    assert (np.nan_to_num(length.parameters) >= 0).all()
    told = np.isfinite(length.residuals)
    assert (length.total[told] >= (length.residuals + length.function)[told]).all()
    assert np.isinf(length.total[~told]).all() and np.isnan(length.residuals[~told]).all()
    assert found.r2[np.argmin(length.total)] > 0.94


def test_a_parameter_that_is_not_there_costs_nothing_whatever_its_bounds():
    length = lengths(["p2 * x1", "p1 * x1"], bounds=(0.5, 9.0))
    assert length.total[0] == pytest.approx(length.total[1])


def test_a_small_parameter_that_can_not_be_0_leaves_no_length():
    X2 = np.column_stack([X[:, 0], np.random.default_rng(1).standard_normal(50)])
    assert lengths(["p1 * x1 + p2 * x2"], X2).params[0, 1] == 0
    assert np.isinf(lengths(["p1 * x1 + p2 * x2"], X2, bounds={"p2": (-1.0, -1e-9)}).total[0])
    assert np.isinf(lengths(["sqr(x1 - x1 + p1) + 3 * x1"], bounds=(1e-5, 1.0), init=[[1e-3]], max_iter=0).total[0])


def test_small_parameters_become_0_one_after_the_other_where_they_can_not_be_together():
    x = np.linspace(1.0, 2.0, 10)[:, None]
    as_given = {"weights": np.full(10, 0.5), "init": [[0.9, 1.1], [1.1, 0.0]], "max_iter": 0}
    length = lengths(["x1 / (p1 + p2)", "x1 / p1"], x, x[:, 0] / 2, **as_given)
    assert length.params[0].tolist() == [0.0, 1.1]
    assert length.total[0] - length.function[0] == pytest.approx(length.total[1] - length.function[1])


def test_a_parameter_at_a_bound_costs_what_a_constant_does():
    bound, constant = lengths(["p1 * x1 + p2"], bounds={"p1": (0.0, 2.0)}), lengths(["2 * x1 + p1"])
    assert bound.params[0, 0] == 2
    assert bound.parameters[0] == pytest.approx(constant.parameters[0] + math.log(2))
    zero, none = lengths(["p1 * x1 + p2"], bounds={"p1": (-1.0, 0.0)}), lengths(["p1"])
    assert zero.params[0, 0] == 0 and zero.parameters[0] == pytest.approx(none.parameters[0])


def test_where_the_likelihood_has_no_maximum_there_is_no_length():
    start = {"init": [[1.0]], "max_iter": 0, "weights": np.ones(50)}
    saddle = lengths(["sqr(p1) + 0 * x1"], X, np.full(50, 4.0), **start)  # falls on both sides, to -2 and 2
    assert np.isinf(saddle.total[0]) and np.isfinite(saddle.residuals[0])
    kink = lengths(["abs(p1 - 1) * x1"], X, Y, **start)
    assert np.isinf(kink.total[0])


def test_what_tells_the_data_exactly_has_a_finite_length():
    for dtype in ("float32", "float64"):
        length = lengths(["3 * x1", "x1 + 2 * x1", "p1 * x1", "p1 * x1 + p2", "sqr(x1)"], X, 3 * X[:, 0], dtype=dtype)
        assert np.isfinite(length.total).all() and np.argmin(length.total) == 0
        assert length.residuals[1] == pytest.approx(length.residuals[0], abs=1), "rounding is no better or worse"
    assert np.isfinite(lengths(["x1 - x1"], X, np.zeros(50)).total[0])
    x = np.linspace(0.5, 3, 40)
    curved = lengths(["abs(x1)^p1 * p2", "p1 / (x1 + p2)"], x[:, None], 2 / (x + 0.7), dtype="float64")
    assert np.isfinite(curved.total).all() and np.argmin(curved.total) == 1


def test_a_derivative_that_is_too_long_to_write_down_is_no_hindrance():
    text = "p1 * x1"
    for _ in range(60):
        text = f"sin({text})"
    pop = ek.parse([text])
    assert not pop.diff("p1").diff("p1", "mask").valid[0]
    x, y = X[:8], 0.2 + 0.01 * np.cos(9 * X[:8, 0])
    found = ek.fit(pop, x, y, loss="gaussian", dtype="float64")
    expected = told(Expression(pop, 0, x, y, None, "gaussian"), found.params[0])
    assert ek.description_length(found).parameters[0] == pytest.approx(float(expected[1]), abs=1e-4)


def test_columns_of_a_table_are_taken_by_name():
    pandas = pytest.importorskip("pandas")
    pop = ek.parse(["p1 * a + p2 * b"], variables=["a", "b"])
    X2 = np.column_stack([X[:, 0], np.sin(9 * X[:, 0])])
    frame = pandas.DataFrame({"b": X2[:, 1], "a": X2[:, 0]})
    for loss in ("gaussian", "poisson"):
        y = np.round(5 * Y)
        by_name, by_place = (ek.fit(pop, given, y, loss=loss, dtype="float64") for given in (frame, X2))
        totals = [ek.description_length(found).total[0] for found in (by_name, by_place)]
        assert totals[0] == totals[1] and np.isfinite(totals[0])
        assert by_name.covariance.tolist() == by_place.covariance.tolist()


def test_what_has_no_likelihood():
    with pytest.raises(ArgumentError, match="has no likelihood: use loss='gaussian' or 'poisson'"):
        ek.description_length(ek.fit(ek.parse(["p1 * x1"]), X, Y))
    with pytest.raises(ArgumentError, match=r"takes what ek\.fit gives"):
        ek.description_length([1, 2])
    pop = ek.parse(["p1 * x1", "bad", "log(-abs(p1) - 1)", "digamma(p1) * x1"], errors="mask")
    length = ek.description_length(ek.fit(pop, X, Y, loss="gaussian"))
    assert np.isfinite(length.total).tolist() == [True, False, False, False]
    assert np.isnan(length.residuals).tolist() == [False, True, True, False]
    assert np.isposinf(length.total[1:]).all()
    assert len(ek.description_length(ek.fit(ek.parse([]), X, Y, loss="gaussian")).total) == 0


# ── fronts ──


def test_a_front_has_no_two_that_differ_by_rounding():
    cost = np.array([5.0, 6, 7, 8, 9, 9, 3, 1])
    loss = np.array([-677.77734, -677.77736, -677.77737, -678.0, -679.001, -679.003, np.nan, np.inf])
    assert front(cost, loss, np.full(8, 0.01)).tolist() == [0, 3, 4], "of equally cheap ones the first"
    assert front(cost, loss, np.zeros(8)).tolist() == [0, 1, 2, 3, 5]
    assert front(np.empty(0), np.empty(0), np.empty(0)).tolist() == []


def test_many_small_gains_are_one_gain():
    loss = -0.004 * np.arange(10.0)
    assert front(np.arange(10.0), loss, np.full(10, 0.01)).tolist() == [0, 3, 6, 9]
