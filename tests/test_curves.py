"""Curves: shapes with several numbers inside, found from data."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import exprkit as ek
from exprkit.expressions.arguments import operators_of
from exprkit.expressions.parser import parse
from exprkit.operators import ops
from exprkit.regression.formulas.values import values_of
from exprkit.regression.problem.rows import Rows
from exprkit.regression.shapes import curves as module
from exprkit.regression.shapes import templates
from exprkit.regression.shapes.curves import SHAPES, Family, Role, Shape, curves
from exprkit.regression.stages import fewer_variables, nested
from exprkit.regression.stages.search import FormulaSearch
from exprkit.regression.stages.search_problem import SearchSettings, default_operators
from exprkit.runtime import machine
from exprkit.runtime.budget import Budget, Ended
from exprkit.text.tokens import OPERATOR

RANDOM = np.random.default_rng(3)
X = RANDOM.uniform(0.2, 5, (120, 2))
LAWS = [
    "3.1 * exp(-0.7 * x1) + 1.4 * exp(-2.9 * x1)",
    "0.3 + 1.9 * x1^2.3 / (4.1 + x1^2.3)",
    "2.2 * exp(-(x1 - 2.4)^2 / 0.8) - 1.1",
    "exp(-0.4 * x1) * cos(3.3 * x1 + 0.2)",
    "x2 + (x1 - x2) * exp(-0.6 * x1)",
    "1 / (1 + exp((x1 - 1.9) / (0.3 * x2)))",
    "7.3 * exp(-5.2 / (x1 + 1.7))",
    "4.4 - 2.1 * tanh(1.3 * (x1 - 2.6))",
    "(2.6 * x1 - 3.1) / ((x1 - 2.2)^2 + 0.4) + 1.1",
    "0.08 + 3.5 / (1 + (0.9 * x1)^1.9)^0.47",
    "0.7 + 5.9 * exp(-3.3 * exp(-0.9 * x1))",
    "x1 / (x1 + 4.2 * exp(-3.1 / x2))",
]


def of(law):
    return values_of(parse([law]), X)[0]


def found(y, n_vars=1, **options):
    return [one for some in curves(Rows(X[:, :n_vars], y), default_operators(), 0, **options) for one in some]


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_laws_with_several_numbers_inside(law):
    rows = Rows(X[:, : 1 + ("x2" in law)], of(law))
    made = curves(rows, default_operators(), 0)
    least = min(np.abs(values_of(some, rows.X) - rows.y).max(axis=1).min() for some in made if some)
    assert least < 1e-7 * np.abs(rows.y).max()


def test_a_number_is_searched_for_no_longer_than_noise_lets_know():
    for noise, at, most in ((1.0, 1e-4, 35), (0.0, 1e-12, 200)):
        tried = []

        def error(x, noise=noise, tried=tried):
            tried.append(x)
            return noise + (x - 0.0731) ** 2 * (1 + x)

        assert templates.golden_section(error, 0.25) == pytest.approx(0.0731, abs=at) and len(tried) < most
    assert templates.golden_section(lambda x: np.inf if x < 0.1 else x, 0.25) == pytest.approx(0.1, abs=1e-9)


@pytest.mark.slow
def test_they_do_not_depend_on_threads():
    y = of(LAWS[3]) + 0.05 * np.random.default_rng(1).standard_normal(len(X))
    texts = []
    for threads in (1, 2):
        with machine.limited(threads):
            texts.append([str(one) for one in found(y)])
    assert texts[0] == texts[1]


def test_only_operators_that_are_given():
    few = operators_of(["+", "*", "tanh"])
    made = [one for some in curves(Rows(X[:, :1], of(LAWS[7])), few, 0) for one in some]
    codes = {int(code) for one in made for code in one.values[one.kinds == OPERATOR]}
    assert codes <= {row.code for row in few} | {ops.SUB, ops.NEG} and made  # a - b is a + -b, printed
    kinds = module._kinds(["x1", "x2"], X[:, :2].T, 2, few)
    assert not any(sign in shape.text for shapes in kinds for shape in shapes for sign in "/^")


def test_numbers_are_such_that_the_curve_is_no_line():
    """A sine of a very small rate is a line, or a parabola: it would be an exact formula of nothing."""
    roles = np.array([[[Role.LINEAR, 0], [Role.LINEAR, 0], [Role.FREQUENCY, 0], [Role.PHASE, 0]]] * 3)
    params = np.array([[1.0, 1e9, 1e-4, 0.1], [1.0, 2.0, 2.0, 0.1], [1.0, 2.0, 1e4, 0.1]])
    assert module._are_usual(params, roles, X[:, 0][None]).tolist() == [False, True, False]


def test_shapes_say_how_many_parameters_they_have():
    operators = [*default_operators(), *operators_of(["tanh"])]
    for shape in SHAPES:
        assert [role for role, _ in shape.at("(x1)", 0, "f").roles] == [*shape.roles]
    texts = {curve.text for curve in module._inner_functions("(x1)", 0, True, operators)}
    for shape in SHAPES:
        assert any(shape.at("(x1)", 0, row.name).text in texts for row in operators), shape.name
    with pytest.raises(ValueError, match="'flat' has 2 roles"):
        Shape("flat", "f(p1 * h)", (Role.RATE, Role.SHIFT)).at("(x1)", 0)


def test_a_row_more_is_a_shape_more(monkeypatch):
    """The inverse of the lognormal's bell: none of the other shapes has it."""
    bell = Shape("lognormal", "f(-p1 * log(h) ^ 2)", (Role.FACTOR,), Family.EXPONENTIAL)
    y, operators = of("3.1 * exp(-0.7 * log(x1) ^ 2) - 1.2"), operators_of(["+", "-", "*", "sqr", "exp", "log"])
    rows = Rows(X[:, :1], y)
    monkeypatch.setattr(module, "SHAPES", [bell])
    assert rows.is_exact(values_of(next(curves(rows, operators, 0)), rows.X)).any()


@pytest.mark.slow
def test_variables_that_say_nothing_are_left_out():
    x = np.column_stack([X[:, 0], np.ones(len(X))])
    assert not any("x2" in str(one) for some in curves(Rows(x, of(LAWS[0])), default_operators(), 0) for one in some)


def test_a_column_that_has_nothing_to_do_with_it_costs_little():
    """Shapes of variables alone come before those of pairs of them."""
    rows = Rows(X, of(LAWS[3]))
    some = [next(made) for made in [curves(rows, default_operators(), 0)] for _ in range(5)]
    assert any(rows.is_exact(values_of(list(one), rows.X)).any() for one in some if one)


def test_it_ends_where_a_limit_is_reached():
    budget, fronts = Budget(max_evals=1), []
    with budget.counting(), pytest.raises(Ended, match="functions were tried"):
        fronts.extend(curves(Rows(X[:, :1], of(LAWS[0])), default_operators(), 0))
    assert not fronts and budget.n_evals > 1


@pytest.mark.slow
def test_a_search_finds_a_curve():
    x = np.linspace(0, 8, 90)[:, None]
    y = 2.4 * np.exp(-0.31 * x[:, 0]) * np.cos(2.13 * x[:, 0] + 0.42)
    model = ek.SymbolicRegressor(random_state=0, niterations=0).fit(x, y)
    assert model.stopped_ == "a formula is exact" and model.get_best().complexity <= 16


def test_starts_lie_where_the_data_are():
    roles = np.array([[[Role.LOCATION, 0], [Role.SHIFT, 0], [-1, -1]]])
    starts = module._starts(roles, np.array([[100.0, 150.0, 200.0]]), 400, 0)
    assert starts.shape == (400, 1, 3) and (starts[..., 1] > -100).all()
    inside = (starts[..., 0] >= 100) & (starts[..., 0] <= 200)
    assert 0.3 < inside.mean() < 0.8


class CountedBudget(Budget):
    """A hundred looks at the clock are all the time."""

    def part(self, share):
        looks = itertools.count(1)
        return lambda: next(looks) >= round(100 * share)


@pytest.mark.parametrize("noise, n_kinds", [(0.1, 35), (3.0, 12)])
def test_more_curves_are_tried_where_some_explain_most_of_y(monkeypatch, noise, n_kinds):
    tried = []

    def kinds(*_):
        for k in range(100):
            tried.append(k)
            yield list(parse(["x1"]))

    monkeypatch.setattr(nested, "curves", kinds)
    y = X[:, 0] + noise * np.random.default_rng(0).standard_normal(len(X))
    FormulaSearch(Rows(X, y), SearchSettings(threads=1), CountedBudget()).run_stage(nested.curve)
    assert len(tried) == n_kinds


def test_searches_for_very_short_formulas_fit_no_curves():
    X = np.random.default_rng(0).uniform(1, 3, (80, 3))
    rows = Rows(X, X[:, 0] * np.exp(-X[:, 1]) + X[:, 2])
    search = FormulaSearch(rows, SearchSettings(maxsize=4), Budget())
    search.run_stage(nested.curve)
    search.run_stage(fewer_variables.factor)
    assert not search.problem.budget.n_evals and not search.front.entries()
