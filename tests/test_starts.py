"""Starts of fits that see the data, starts that end the same, losses at 0, and errors of losses of one's own."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import exprkit as ek
from exprkit.backends import load, objective
from exprkit.errors import DataError
from exprkit.fitting.starts.alike import ones_apart
from exprkit.fitting.starts.candidates import Skeleton, StartSample
from exprkit.fitting.starts.units import Units

YEARS = np.arange(1790, 1950, 10.0)
MODELS = {  # text, x, the parameters that make y
    "a peak far from 0": ("p1 * exp(-((x1 - p2) / p3)^2)", np.linspace(400, 700, 90), [30, 523, 11]),
    "growth of years": ("p1 / (1 + exp(-p2 * (x1 - p3)))", YEARS, [190, 0.0315, 1913]),
    "a frequency": ("p1 * sin(2 * pi * p2 * x1 + p3)", np.linspace(0, 0.05, 400), [0.7, 440, 1]),
    "a period": ("p1 * sin(2 * pi * x1 / p2 + p3) + p4", np.linspace(0, 1000, 80), [3, 314, 1, 10]),
    "damped": ("p1 * exp(-x1 / p2) * cos(p3 * x1 + p4)", np.linspace(0, 30, 200), [2, 11, 4.1, 0.5]),
    "resonance": ("p1 / sqrt((p2^2 - x1^2)^2 + (p3 * x1)^2)", np.linspace(20, 80, 100), [500, 47, 3]),
    "activation": ("p1 * exp(-p2 / x1)", np.linspace(280, 420, 30), [3e8, 6200]),
    "concentrations": ("p1 + (p2 - p1) / (1 + (x1 / p3)^p4)", np.geomspace(1e-9, 1e-4, 30), [2, 98, 3e-7, 1.1]),
    "two decays": ("p1 * exp(-x1 / p2) + p3 * exp(-x1 / p4)", np.linspace(0, 3000, 150), [10, 60, 6, 700]),
    "two peaks": ("p1 * exp(-((x1 - p2) / p3)^2) + p4 * exp(-((x1 - p5) / p6)^2)", np.linspace(100, 200, 150),
                  [5, 130, 4, 3, 165, 7]),
    "a trend and a wave": ("p1 + p2 * x1 + p3 * x1^2 + p4 * sin(p5 * x1 + p6)", np.linspace(0, 5, 80),
                           [34, -32, 8, 0.4, 9, 1]),
    "growth and a wave": ("p1 * exp(p2 * x1) + p3 * sin(p4 * x1)", np.linspace(0, 5, 80), [2, 0.7, 2.5, 9]),
    "a peak on a decay": ("p1 * exp(-p2 * x1) + p3 / (1 + ((x1 - p4) / p5)^2)", np.linspace(1, 250, 199),
                          [119, 0.0043, 52, 143, 7]),
    "two steps": ("p1 / (1 + exp(-p2 * (x1 - p3))) + p4 / (1 + exp(-p5 * (x1 - p6)))", np.linspace(1, 100, 149),
                  [3, 0.73, 25, 2, 0.59, 61]),
    "a bend": ("p1 + p2 * x1 + p3 * max(x1 - p4, 0)", np.linspace(0, 100, 80), [3, 0.2, 0.9, 62]),
}  # fmt: skip


def noisy(name: str) -> tuple[str, np.ndarray, np.ndarray, np.ndarray]:
    text, x, true = MODELS[name]
    f = ek.Evaluator(ek.parse(text), x[:, None], "numpy", dtype="float64").evaluate(np.array([true]))[0]
    return text, x[:, None], f + 0.02 * f.std() * np.random.default_rng(0).standard_normal(len(f)), np.array([true])


@pytest.mark.parametrize("text", [
    "p1 * sin(p2 * x1 - p3 * x2 + p4)", "p1 * sin(p2 * x1) * cos(p3 * x2) + p4",
    "p1 + p4 * sin(2 * pi * (x1 / p2 + x2 / p3))",
])  # fmt: skip
def test_waves_of_two_columns_and_uneven_steps(text):
    random = np.random.default_rng(2)
    x, true = random.uniform(0, 10, (300, 2)), np.array([[2.0, 1.3, 2.9, 1.0]])
    f = ek.Evaluator(ek.parse(text), x, "numpy", dtype="float64").evaluate(true)[0]
    y = f + 0.02 * f.std() * random.standard_normal(len(f))
    best = ek.fit(text, x, y, init=true, backend="cpu", dtype="float64")
    assert ek.fit(text, x, y, backend="cpu", dtype="float64").loss[0] <= 1.001 * best.loss[0]


def test_an_expression_has_the_same_starts_beside_others():
    text, x, y, _ = noisy("two peaks")
    both = [text], ["p1 * sin(p2 * x1)", text]
    alone, beside = (ek.fit(texts, x, y, backend="cpu", dtype="float64") for texts in both)
    assert np.array_equal(alone.params[0], beside.params[1])


@pytest.mark.parametrize("x", [np.full(20, np.inf), np.ones(20), np.zeros(20), np.arange(20.0) * 1e300])
def test_columns_that_tell_nothing_make_neither_warnings_nor_errors(x):
    texts = ["p1 * sin(p2 * x1) + log(p3 * x1)", "p1^p2 * x1", "x1^p1 + p2 / (x1 - p3)", "p1^x1",
             "atan2(p1, x1) + mod(x1, p2)"]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ek.fit(texts, x[:, None], np.arange(20.0), backend="cpu", dtype="float64")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", MODELS)
def test_fits_without_a_start_end_as_those_from_the_truth(name, dtype):
    text, x, y, true = noisy(name)
    best = ek.fit(text, x, y, init=true, backend="cpu", dtype="float64")
    found = ek.fit(text, x, y, backend="cpu", dtype=dtype)
    assert found.loss[0] <= 1.001 * best.loss[0]
    assert np.array_equal(found.params, ek.fit(text, x, y, backend="cpu", dtype=dtype, threads=1).params)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize("name", ["two decays", "two peaks", "a period"])
def test_all_backends_have_the_same_starts(name, backend):
    text, x, y, true = noisy(name)
    best = ek.fit(text, x, y, init=true, backend="cpu", dtype="float64")
    assert ek.fit(text, x, y, backend=backend, dtype="float64").loss[0] <= (1 + 1e-6) * best.loss[0]


@pytest.mark.parametrize("name", ["a peak far from 0", "concentrations", "resonance", "growth and a wave"])
def test_data_of_any_size_give_the_same_law(name):
    text, x, y, _ = noisy(name)
    best = ek.fit(text, x, y, backend="cpu", dtype="float64")
    for of_x, of_y in [(1e30, 1e-30), (1e-30, 1e30)]:
        found = ek.fit(text, of_x * x, of_y * y, backend="cpu", dtype="float64")
        assert found.converged[0] and found.loss[0] / of_y**2 == pytest.approx(best.loss[0], rel=1e-9), (of_x, of_y)


def test_units_are_those_of_dimensional_analysis():
    x = np.array([[4.0, 0.5], [2.0, 0.25]])
    pop = ek.parse(["p1 * exp(-x1 / p2) + p3 * x2^2", "p1 * (x1 / x2)^p2 + sin(p3 * x2)", "p1 + sin(2 * x1)"])
    rows = StartSample(x, np.array([32.0, 1.0]), np.ones(2), np.array([32.0, 1.0]))
    units = [Units.of(Skeleton.of(pop, i, 0), rows, objective.SQUARES) for i in range(3)]
    assert np.allclose(units[0].of_params(np.ones(3)), [32, 4, 128])
    assert np.allclose(units[1].exponents, [2, -1, 0])  # a wave of height 1 leaves y its unit
    assert np.allclose(units[1].of_params(np.array([1.0, 3.0, 1.0])), [2.0**-9, 1, 2])
    assert not units[2].exponents.any()


def test_no_plateau_is_a_minimum():
    x = np.linspace(0.1, 10, 30)[:, None]
    for text in ("p1 * (1 - exp(-p2 * x1))", "exp(-p1 * x1) / (p2 + x1)"):
        found = ek.fit(text, 1e30 * x, 1 - np.exp(-x[:, 0]), init="ones", backend="cpu", dtype="float64")
        assert not found.converged[0] and ("matters" in found.reason[0] or "changes" in found.reason[0]), text


def test_a_term_of_a_sum_that_stands_for_two_is_split():
    x = np.linspace(1, 250, 125)  # as NIST's Gauss3: a fit of a broad peak less a narrow one ends nearby
    y = 99 * np.exp(-0.011 * x) + 101 * np.exp(-(((x - 112) / 23) ** 2)) + 74 * np.exp(-(((x - 148) / 20) ** 2))
    text = "p1 * exp(-p2 * x1) + p3 * exp(-(x1 - p4)^2 / p5^2) + p6 * exp(-(x1 - p7)^2 / p8^2)"
    y += 0.5 * np.random.default_rng(1).standard_normal(len(x))
    assert ek.fit(text, x[:, None], y, backend="cpu", dtype="float64").loss[0] < 0.55**2 * len(x)


def test_ones_that_are_asked_for_are_the_only_start():
    text, x, y, _ = noisy("a peak far from 0")
    found = ek.fit(text, x, y, init="ones", backend="cpu", dtype="float64")
    assert found.r2[0] < 0.01
    assert np.array_equal(found.params, ek.fit(text, x, y, init=np.ones((1, 3)), backend="cpu", dtype="float64").params)
    many = ek.fit([text] * 40, x, y, backend="cpu", dtype="float64")
    assert np.array_equal(many.params, np.repeat(found.params, 40, axis=0)), "a population has the plain start"


@pytest.mark.parametrize("init", [None, "ones"])
@pytest.mark.parametrize(("text", "true"), [
    ("p1 * exp(-p2 * x1) + p3 * exp(-p4 * x1) + p5 * exp(-p6 * x1)", [4, 0.2, 2, 1, 3, 5]),
    ("p1 * exp(-p2 * x1) - p3 * exp(-p4 * x1)", [4, 0.3, 3, 2]),
    ("p1 * x1^p2 + (p3 + p4 * x1^p5)", [3, 0.3, 1, 2, 1.6]),
    ("p1 * exp(-((x1 - p2) / p3)^2) + p4 * exp(-((x1 - p5) / p6)^2)", [3, 1.5, 1, 2, 5, 1.2]),
])  # fmt: skip
def test_terms_that_may_change_places_do_not_stay_the_same_in_a_large_population(text, true, init):
    x = np.linspace(0.05, 9, 120)[:, None]
    y = ek.Evaluator(ek.parse(text), x, "numpy", dtype="float64").evaluate(np.array([true], float))[0]
    y = y + 0.002 * np.random.default_rng(0).standard_normal(len(x))
    best = ek.fit(text, x, y, init=[true], backend="cpu", dtype="float64").loss[0]
    found = ek.fit([text] * 40, x, y, init=init, accuracy="screen", backend="cpu", dtype="float64")
    assert found.loss[0] < 1.01 * best and found.loss[0] == found.loss[39]


def test_terms_of_very_long_expressions_are_not_compared():
    """Pairs of 10,000 equal terms, each as deep in a sum of sums as there are others, would take hours."""
    text = " + ".join(["p1 * x1", *["exp(p2 * x1)"] * 10_000])
    assert (ones_apart(ek.parse([text, "exp(p1 * x1) + exp(p2 * x1)"]))[0] == [[1, 1], [1, 4]]).all()


def test_only_terms_that_may_change_places_start_apart():
    texts = ["p1 * x1 + p2 * x1", "exp(p1 * x1) * x2 + exp(p2 * x1)", "exp(p1 * x1) + exp(p1 * x1)", "p1 + x1^p2"]
    assert (ones_apart(ek.parse(texts)) == 1).all()
    starts = ones_apart(ek.parse(["x1^p1 + (x1^p2 - p3 * x1^p4)", "max(exp(p2 * x1), exp(p1 * x1))", *texts]))
    assert starts[0, :2, :2].tolist() == [[1, 4], [4, 1]] and (starts[0, 2:] == 1).all()


def test_restarts_see_the_data_too():
    text, x, y, _ = noisy("a peak far from 0")
    found = ek.fit([text] * 40, x, y, restarts=40, backend="cpu", dtype="float64")
    assert np.mean(found.r2 > 0.99) > 0.5
    assert ek.fit(text, x, y, init="ones", restarts=200, backend="cpu", dtype="float64").r2[0] > 0.99


def test_bounds_weights_and_losses_hold_for_such_starts():
    text, x, y, _ = noisy("a peak far from 0")
    y[7] = 1e6  # weighs nothing
    weights = np.where(np.arange(len(y)) == 7, 0.0, 1.0)
    for loss in ("squares", "huber", "mae", "logcosh(f - y)", "(sqrt(abs(f)) - sqrt(abs(y)))^2"):
        found = ek.fit(text, x, y, loss=loss, weights=weights, bounds=(0.5, 600), backend="cpu", dtype="float64")
        assert abs(found.params[0, 1] - 523) < 2, loss
        assert (found.params[0] >= 0.5).all() and (found.params[0] <= 600).all()


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_of_starts_that_end_the_same_the_smallest_numbers_count(backend, noise):
    t = np.arange(0, 10, 0.1)
    y = 1.2 * np.sin(3.13 * t + 0.2) + noise * np.random.default_rng(0).standard_normal(len(t))
    true = np.array([1.2, 3.13, 0.2])
    turns = 2 * np.pi * np.array([[0, 10, 0], [0, -20, 2], [0, 0, 3], [0, 0, 0], [0, 30, 0]])  # the same at all t
    for starts in (true + turns, np.array([-true, true])):
        found = ek.fit("p1 * sin(p2 * x1 + p3)", t[:, None], y, init=starts[:, None], backend=backend, dtype="float64")
        assert found.params[0] == pytest.approx(true, rel=0.05)


def test_the_best_of_starts_by_its_table():
    loss = np.array([[1, np.nan, 1e-30, 5, -2], [1 + 1e-9, 3, 2e-30, 4, -2], [0.9999, np.inf, 3e-30, 9, 7]])
    params = np.array([[[9.0], [1], [2], [1], [1]], [[1], [2], [1], [9], [-1]], [[50], [1], [0.1], [1], [0]]])
    status = np.full(loss.shape, objective.FTOL)
    assert objective.best_starts(loss, params, status, 1e-28).tolist() == [2, 1, 2, 1, 0]
    assert objective.best_starts(loss, params, status, 0.0).tolist() == [2, 1, 0, 1, 0]
    status[2, 2] = objective.MAX_ITER
    assert objective.best_starts(loss, params, status, 1e-28)[2] == 1


def test_a_fit_that_ends_at_a_constant_says_what_does_not_matter():
    text, x, y, _ = noisy("a peak far from 0")
    found = ek.fit(text + " + p4", x, y, init="ones", backend="cpu", dtype="float64")
    assert "no parameter but p4 matters" in found.reason[0]
    assert "matters" not in ek.fit(text + " + p4", x, y, backend="cpu", dtype="float64").reason[0]


# ── bounds ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "bounds", [[(0, 1), (0, 1)], [(0, 1), (0, 5)], ((0, 1), (2, 3), (0, 9)), [[0, None], [0, None]]]
)
def test_a_pair_for_each_parameter_is_given_by_name(bounds):
    x = np.linspace(0, 1, 9)[:, None]
    with pytest.raises(DataError, match=r"has its name: \{'p1': \(0, 1\)"):
        ek.fit("p1 + p2 * x1", x, x[:, 0], bounds=bounds)
    found = ek.fit("p1 + p2 * x1", x, 1 + 2 * x[:, 0], bounds=([0, 0.5], [1, 1.5]), dtype="float64")
    assert found.at_bound[0].tolist() == [True, True] and found.pop.parameter_names == ["p1", "p2"]


# ── counts of 0 ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize(("text", "x", "k", "right"), [
    ("p1 * x1", [0, 1, 2, 4, 8], [0, 3, 4, 9, 19], 35 / 15),
    ("p1 * relu(x1 - 2)", range(7), [0, 0, 0, 2, 3, 6, 8], 1.9),
    ("p1 * sqr(x1)", [0, 0, 1, 2, 3], [0, 0, 3, 7, 17], 27 / 14),
])  # fmt: skip
def test_a_mean_of_0_is_right_at_a_count_of_0(backend, dtype, text, x, k, right):
    x, k = np.array(x, float), np.array(k, float)
    found = ek.fit(text, x[:, None], k, loss="poisson", backend=backend, dtype=dtype)
    assert found.params[0, 0] == pytest.approx(right, rel=1e-6)
    shape = x if text == "p1 * x1" else np.maximum(x - 2, 0) if "relu" in text else x**2
    error = np.sqrt(right / shape.sum())
    assert found.standard_errors[0, 0] == pytest.approx(error, rel=1e-5)
    assert np.isfinite(found.loss[0]) and np.isfinite(found.score("description_length")[0])
    counted = shape > 0  # those points say the same without the others
    alone = ek.fit(text, x[counted, None], k[counted], loss="poisson", backend=backend, dtype=dtype)
    assert found.loss[0] == pytest.approx(alone.loss[0], rel=1e-6)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_a_mean_of_0_is_impossible_at_a_count_of_1(backend):
    found = ek.fit("p1 * x1", [[0.0], [1.0]], [1.0, 2.0], loss="poisson", backend=backend)
    assert "not finite" in found.reason[0]


SHARES = {  # of a loss: expression, the parameter that is right
    "f - y * log(f)": ("p1 * x1", 1.9),
    "2 * (y * log(y / f) - (y - f))": ("p1 * x1", 1.9),
    "y * (log2(y) - log2(f)) * log(2) - y + f": ("p1 * x1", 1.9),
    "-(y * log(f) + (1 - y) * log(1 - f))": ("p1 * x1", 0.1),
    "-(y * n * log(f) + n * (1 - y) * log(1 - f))": ("p1 * x1", 0.1),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("loss", SHARES)
def test_0_log_0_is_0_in_losses_of_ones_own(backend, loss, dtype):
    text, right = SHARES[loss]
    x = np.array([0.0, 1, 2, 3, 4])
    y = right * x
    columns = {"n": np.full(5, 12.0)} if "n *" in loss else None
    ev = ek.Evaluator(ek.parse(text), x[:, None], backend, dtype=dtype)
    at = [ev.loss(np.array([[p]]), y, loss, columns=columns)[0] for p in (right - 0.01, right, right + 0.01)]
    assert np.isfinite(at).all() and at[1] < min(at[0], at[2]) + 1e-6
    assert np.isnan(ev.loss(np.array([[-right]]), y, loss, columns=columns)[0])  # the logarithm of what is below 0
    if load(backend).differentiates:
        found = ek.fit(text, x[:, None], y, loss=loss, columns=columns, backend=backend, dtype=dtype, init=[right / 2])
        assert found.converged[0] and found.params[0, 0] == pytest.approx(right, rel=1e-4)


def test_a_search_for_counts_keeps_what_is_0_at_0():
    x, k = np.array([0.0, 1, 2, 4, 8, 9]), np.array([0.0, 3, 4, 9, 19, 20])
    found = ek.exhaustive_search(x[:, None], k, loss="poisson", max_nodes=3, restarts=2)
    assert "x1 * p1" in found.texts()


# ── errors of losses of one's own ────────────────────────────────────────────────────


def test_errors_of_a_likelihood_of_ones_own_are_those_of_the_same_by_name():
    x = np.linspace(0, 3, 60)
    k = np.random.default_rng(0).poisson(np.exp(0.5 + 0.8 * x)).astype(float)
    own, named = (ek.fit("exp(p1 + p2 * x1)", x[:, None], k, loss=loss, dtype="float64", tol=1e-12)
                  for loss in ("f - y * log(f)", "poisson"))  # fmt: skip
    assert own.method == "lbfgs" and own.covariance[0] == pytest.approx(named.covariance[0], rel=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_errors_of_a_logistic_regression(dtype):
    z = np.linspace(-3, 3, 200)
    b = (np.random.default_rng(13).random(200) < 1 / (1 + np.exp(0.4 - 1.5 * z))).astype(float)
    loss = "-(y * log(f) + (1 - y) * log(1 - f))"
    found = ek.fit("logistic(p1 + p2 * x1)", z[:, None], b, loss=loss, dtype=dtype)
    m = 1 / (1 + np.exp(-found.params[0, 0] - found.params[0, 1] * z))
    a = np.stack([np.ones(200), z], 1)
    right = np.sqrt(np.diag(np.linalg.inv(a.T @ (a * (m * (1 - m))[:, None]))))
    assert found.standard_errors[0] == pytest.approx(right, rel=1e-3)


def test_errors_of_one_that_has_a_kink_or_no_least_value_are_nan():
    x = np.linspace(0, 1, 9)
    y = 1 + x + 0.1 * np.sin(40 * x)
    kink = ek.fit("p1 + p2 * x1", x[:, None], y, loss="pinball(f - y, 0.5) + 0", dtype="float64")
    assert np.isnan(kink.standard_errors).all()
    twice = ek.fit("p1 + p2 + 0 * x1", x[:, None], y, loss="logcosh(f - y)", dtype="float64")
    assert np.isnan(twice.standard_errors).all()


def test_robust_errors_are_whites():
    rng = np.random.default_rng(0)
    x = np.linspace(0, 3, 300)
    y = 2 + x + 0.3 * x * rng.standard_normal(300)
    found = ek.fit("p1 + p2 * x1", x[:, None], y, dtype="float64")
    a, r = np.stack([np.ones(300), x], 1), y - found.params[0, 0] - found.params[0, 1] * x
    inverse = np.linalg.inv(a.T @ a)
    right = np.sqrt(np.diag(inverse @ (a.T @ (a * r[:, None] ** 2)) @ inverse))
    assert found.robust_errors[0] == pytest.approx(right, rel=1e-6)
    own = ek.fit("p1 + p2 * x1", x[:, None], y, loss="logcosh((f - y) * 0.001) * 2e6", dtype="float64", tol=1e-14)
    assert own.method == "lbfgs" and own.robust_errors[0] == pytest.approx(right, rel=1e-3)
