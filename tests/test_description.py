"""Description length, against cases computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

import exprkit as ek
from exprkit.description import function_length
from exprkit.errors import ArgumentError

X = np.linspace(1.0, 2.0, 50)[:, None]
Y = 3 * X[:, 0] + 0.1 * np.random.default_rng(0).standard_normal(50)


def test_function_is_nodes_times_log_of_kinds_and_constants():
    pop = ek.parse(["x1", "x1 + x1", "p1 * x1 + p2", "2 * x1 + 0.5", "x1 + x2 * x1", "bad"], errors="mask")
    expected = [0.0, 3 * math.log(2), 5 * math.log(4), 5 * math.log(5) + 2 * math.log(2), 5 * math.log(4), math.nan]
    assert function_length(pop) == pytest.approx(expected, nan_ok=True)


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


def test_poisson_counts():
    counts = np.random.default_rng(0).poisson(3 * X[:, 0]).astype(float)
    found = ek.fit(ek.parse(["p1 * x1"]), X, counts, loss="poisson", dtype="float64")
    theta = found.params[0, 0]
    information = np.sum(X[:, 0] ** 2 / (theta * X[:, 0]))
    expected = math.log(theta) + math.log(information) / 2 - math.log(3) / 2
    assert ek.description_length(found).parameters[0] == pytest.approx(expected, rel=1e-5)


def test_what_has_no_likelihood():
    with pytest.raises(ArgumentError, match="has no likelihood: use loss='gaussian' or 'poisson'"):
        ek.description_length(ek.fit(ek.parse(["p1 * x1"]), X, Y))
    with pytest.raises(ArgumentError, match=r"takes what ek\.fit gives"):
        ek.description_length([1, 2])
    pop = ek.parse(["p1 * x1", "bad"], errors="mask")
    length = ek.description_length(ek.fit(pop, X, Y, loss="gaussian"))
    assert np.isfinite(length.total[0]) and np.isnan(length.total[1])
