"""Shapes of formulas: what is proved holds everywhere, what breaks them is never on a front, and errors say why."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

import exprkit as ek
from exprkit.errors import ArgumentError
from exprkit.regression.rules.shape import ShapeConstraint

RISES, FALLS, CONVEX = (0, 1, 1), (0, 1, -1), (0, 2, 1)
QUICK = {"niterations": 0, "pool_size": 300, "maxsize": 15, "random_state": 0, "n_jobs": 1}


def verdicts(texts, slopes, limits=(-np.inf, np.inf), low=0.0, high=2.0):
    return ShapeConstraint((low, -1.0), (high, 1.0), slopes, limits).verdicts(list(ek.parse(texts)))


def test_slopes_and_curvatures_are_proved():
    texts = ["x1^2", "x1^3 - x1", "exp(x1) - x1 / 2", "sqrt(x1 + 1) * (2 + x2)", "3", "x1 / (1 + x1)", "x2"]
    assert verdicts(texts, (RISES,)) == [1, -1, 1, 1, 1, 1, 1]
    assert verdicts(texts, (FALLS,)) == [-1, -1, -1, -1, 1, -1, 1]
    assert verdicts(texts, (CONVEX,)) == [1, 1, 1, -1, 1, -1, 1]


def test_limits_hold_on_the_whole_box():
    assert verdicts(["x1^2 - x1 + 0.3", "x1^2 - x1 + 0.2", "x2 + 0.9", "abs(x2)"], (), (0.0, np.inf)) == [1, -1, -1, 1]


def test_a_formula_that_jumps_or_is_infinite_is_not_proved_by_its_slope():
    """The slope of -floor(x1) is 0, and that of atan(1 / x1) never positive."""
    broken = ["-floor(x1)", "-sign(x1 - 1)", "atan(1 / (1 - x1))", "1 / (1 - x1)", "mod(x1, 1)", "tan(x1)"]
    assert max(verdicts(broken, (RISES,))) < 1
    assert max(verdicts(["-abs(x1 - 1)", "min(x1, 1)"], (CONVEX,))) < 1  # the slope jumps
    assert verdicts(["floor(x1)", "log(x1)", "gamma(x1)"], (), (-np.inf, np.inf)) == [1, 0, 0]


def wavy(n=60):
    x = np.linspace(0, 6, n)
    return x[:, None], 2 * x + 1.5 * np.sin(2 * x)


def rises(model, X):
    grid = np.linspace(X.min(), X.max(), 2_000)[:, None]
    return [bool((np.diff(model.predict(grid, i)) >= -1e-12).all()) for i in range(len(model.equations_))]


@pytest.mark.slow
def test_no_formula_of_a_front_breaks_what_was_asked_for():
    X, y = wavy()
    free = ek.SymbolicRegressor(**QUICK).fit(X, y)
    bound = ek.SymbolicRegressor(**QUICK, monotone={"x1": +1}).fit(X, y)
    assert not all(rises(free, X)) and all(rises(bound, X))
    assert free.refused_ == {"broken": 0, "not proved": 0} and bound.refused_["broken"] > 0
    assert "refused for their shape" in str(bound) and "refused" not in str(free)
    assert bound.score(X, y) > 0.9


def test_positive_formulas_stay_positive_on_the_box_that_is_given():
    X = np.linspace(1, 3, 30)[:, None]
    y = X[:, 0] - 0.5
    free = ek.SymbolicRegressor(**QUICK).fit(X, y)
    assert free.predict([[0.0]])[0] < 0
    bound = ek.SymbolicRegressor(**QUICK, positive=True, box={"x1": (0, 3)}).fit(X, y)
    grid = np.linspace(0, 3, 500)[:, None]
    assert all((bound.predict(grid, i) >= 0).all() for i in range(len(bound.equations_)))
    assert clone(bound).get_params()["box"] == {"x1": (0, 3)}


@pytest.mark.parametrize(("given", "message"), [
    ({"monotone": {"x3": 1}}, "monotone: there is no column 'x3'"),
    ({"monotone": {"y": 1}}, "monotone: there is no column 'y'"),
    ({"monotone": {"x1": 2}}, "monotone: x1 is +1 (y rises) or -1 (falls), not 2"),
    ({"convex": {"x1": True}}, "convex: x1 is +1 (y is convex) or -1 (is concave), not True"),
    ({"monotone": ["x1"]}, "monotone must be a dictionary as {\"x1\": +1}, not ['x1']"),
    ({"positive": 1}, "positive must be True or False, not 1"),
    ({"positive": True, "box": {"x1": (2, 1)}}, "box: x1 is empty: 2 is not below 1"),
    ({"positive": True, "box": {"z": (0, 1)}}, "box: there is no 'z'"),
    ({"box": {"x1": (0, 1)}}, "box is where monotone, convex, positive and y_bounds hold: give one of them too"),
    ({"y_bounds": (3, 2)}, "y_bounds is empty: 3 is not below 2"),
    ({"y_bounds": (100, 200)}, "no formula has the shape that monotone, convex, positive and y_bounds say"),
])  # fmt: skip
def test_bad_shapes_are_one_sentence(given, message):
    X = [[0.0, 1.0], [1.0, 0.0], [2.0, 5.0]]
    with pytest.raises(ArgumentError) as error:
        ek.SymbolicRegressor(**{**QUICK, "pool_size": 0}, **given).fit(X, [1.0, 2.0, 4.0])
    assert str(error.value).startswith(message)
