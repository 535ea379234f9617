"""Errors in both variables: against published numbers, and scipy.odr."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import exprkit as ek
from exprkit.errors import ArgumentError, DataError

# K. Pearson's data with D. York's weights, "Least-squares fitting of a straight line", Canad. J. Phys. 44 (1966)
PEARSON = {
    "t": [0.0, 0.9, 1.8, 2.6, 3.3, 4.4, 5.2, 6.1, 6.5, 7.4],
    "v": [5.9, 5.4, 4.4, 4.6, 3.5, 3.7, 2.8, 2.8, 2.4, 1.5],
    "s": 1 / np.sqrt([1000.0, 1000, 500, 800, 200, 80, 60, 20, 1.8, 1]),
    "w": [1.0, 1.8, 4, 8, 20, 20, 70, 70, 100, 500],
}
YORK = [5.47991022403, -0.48053340745]  # intercept and slope, and the least sum: solutions of York's equation
LEAST = 11.8663531941


@pytest.fixture(scope="module")
def york():
    return ek.fit("p1 + p2 * t", PEARSON, "v", weights="w", x_error={"t": "s"})


def test_a_line_is_york_s(york):
    np.testing.assert_allclose(york.params[0], YORK, rtol=1e-10)
    assert york.loss[0] == pytest.approx(LEAST, rel=1e-11) and york.converged[0]


MODELS = [  # text, the same of NumPy, parameters, ends of x, errors of its columns
    ("p1 * exp(-p2 * x1)", lambda b, x: b[0] * np.exp(-b[1] * x[0]), [5, 0.7], (0.2, 5), [0.1]),
    ("p1 * x1 / (p2 + x1)", lambda b, x: b[0] * x[0] / (b[1] + x[0]), [5, 1.5], (0.2, 5), [0.15]),
    ("p1 * sin(p2 * x1) + p3", lambda b, x: b[0] * np.sin(b[1] * x[0]) + b[2], [2, 1.5, 0.3], (0.2, 5), [0.1]),
    ("p1 * x1^p2 * x2^p3", lambda b, x: b[0] * x[0] ** b[1] * x[1] ** b[2], [1.5, 1.2, -0.7], (1, 4), [0.1, 0.05]),
    ("p1 + p2 * x1 * x2", lambda b, x: b[0] + b[1] * x[0] * x[1], [1.5, 1.2], (1, 4), [0.1, 0]),
]


@pytest.mark.parametrize(("text", "f", "truth", "ends", "errors"), MODELS, ids=[row[0] for row in MODELS])
def test_parameters_and_errors_are_those_of_scipy(text, f, truth, ends, errors):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        odr = pytest.importorskip("scipy.odr")
    random = np.random.default_rng(1)
    x = random.uniform(*ends, (60, len(errors)))
    X = x + errors * random.standard_normal(x.shape)
    y, sy = f(truth, x.T) + 0.1 * random.standard_normal(60), np.full(60, 0.1)
    found = ek.fit(text, X, y, weights=1 / sy**2, x_error=errors, init=[truth])
    free = [int(error > 0) for error in errors]
    s = np.where(np.array(errors) > 0, errors, 1.0)[:, None] * np.ones((1, 60))
    fixed = np.array(free)[:, None] * np.ones((1, 60), int)
    known = odr.ODR(
        odr.RealData(X.T, y, s, sy, fix=fixed),
        odr.Model(lambda b, x: f(b, np.atleast_2d(x))),
        truth,
        sstol=1e-15,
        partol=1e-15,
        maxit=900,
    )
    known.set_job(fit_type=0, deriv=1)  # by central differences
    known = known.run()
    np.testing.assert_allclose(found.params[0], known.beta, rtol=1e-6)
    np.testing.assert_allclose(found.standard_errors[0], known.sd_beta, rtol=1e-5)
    assert found.loss[0] <= known.sum_square * (1 + 1e-12) and found.converged[0]


def test_units_change_nothing():
    random = np.random.default_rng(0)
    x = np.linspace(0.2, 5, 40)
    X, y = x + 0.1 * random.standard_normal(40), 5 * x / (1.5 + x) + 0.1 * random.standard_normal(40)
    one, other = (
        ek.fit(
            "p1 * x1 / (p2 + x1)",
            a * X[:, None],
            b * y,
            weights=np.full(40, 100 / b**2),
            x_error=0.1 * a,
            dtype="float64",
        )
        for a, b in ((1, 1), (1e30, 1e-30))
    )
    np.testing.assert_allclose(other.params / [1e-30, 1e30], one.params, rtol=1e-13)
    np.testing.assert_allclose(other.standard_errors / [1e-30, 1e30], one.standard_errors, rtol=1e-12)


def test_many_formulas_and_files_keep_the_errors(york, tmp_path):
    both = ek.fit(["p1 + p2 * t", "p1"], PEARSON, "v", weights="w", x_error={"t": "s"}, bounds={"p1": (6, None)})
    assert both.at_bound.tolist() == [[True, False], [True, False]] and both.loss[0] > LEAST
    york.save(tmp_path / "york.npz")
    again = ek.load(tmp_path / "york.npz")
    np.testing.assert_allclose(again.standard_errors, york.standard_errors, rtol=1e-9)
    exact = ek.fit("p1 + p2 * t", PEARSON, "v", weights="w", x_error={"t": 0.0})
    np.testing.assert_allclose(exact.params, ek.fit("p1 + p2 * t", PEARSON, "v", weights="w").params, rtol=1e-9)


def test_intervals_hold_what_is_known_of_the_errors(york):
    known = ek.fit("p1 + p2 * t", PEARSON, "v", weights="w", x_error={"t": "s"}, loss="gaussian")[0]
    np.testing.assert_allclose(york.standard_errors[0] / known.standard_errors, np.sqrt(LEAST / 8), rtol=1e-9)
    profile, drawn = (york[0].intervals(method=way, resample="parametric") for way in ("profile", "bootstrap"))
    for table in (profile, drawn):
        np.testing.assert_allclose(table["upper"] - table["lower"], york[0].intervals().diff(axis=1)["upper"], rtol=0.2)
    low = profile.loc["p2", "lower"]
    fixed = ek.fit("p1 + p2 * t", PEARSON, "v", weights="w", x_error={"t": "s"}, bounds={"p2": (low, low)})
    assert (fixed.loss[0] - LEAST) / (LEAST / 8) == pytest.approx(york[0]._minimum.quantile(0.95) ** 2, rel=1e-4)


@pytest.mark.parametrize(("given", "kind", "message"), [
    ({"x_error": {"t": -0.1}}, DataError, r"x_error of t holds -0.1: standard deviations are finite numbers"),
    ({"x_error": {"t": [np.nan] * 10}}, DataError, "x_error of t holds nan"),
    ({"x_error": {"t": [0.1] * 9}}, DataError, r"x_error of t must be a number, or of shape \(10,\), not of shape"),
    ({"x_error": {"time": 0.1}}, ArgumentError, "no formula has a variable 'time'; there are t"),
    ({"x_error": 0.1}, ArgumentError, "x_error= of a table must be a dict by columns"),
    ({"weights": None}, ArgumentError, "x_error= needs weights=, 1 / variance of y"),
    ({"loss": "mae"}, ArgumentError, "it does not go with this loss="),
    ({"missing": "drop"}, ArgumentError, "it does not go with this missing="),
])  # fmt: skip
def test_what_cannot_be_is_said_in_a_sentence(given, kind, message):
    with pytest.raises(kind, match=message):
        ek.fit("p1 + p2 * t", PEARSON, "v", **{"weights": "w", "x_error": {"t": "s"}} | given)


def test_what_a_fit_with_errors_in_x_has_not_is_said(york):
    for work, message in (
        (lambda: york[0].intervals(method="bootstrap"), "take resample='parametric' or 'pairs'"),
        (lambda: york[0].bands(PEARSON, kind="observation"), "without prior= or x_error="),
        (lambda: york.model_weights("stacking"), "without prior= or x_error="),
    ):
        with pytest.raises(ArgumentError, match=message):
            work()
