"""Pairs of functions in noise by nearest neighbours, and differences that stand for two variables."""

import numpy as np
import pytest

import exprkit as ek
from exprkit.expressions.arguments import operators_of
from exprkit.regression.pairs.pool import Pool
from exprkit.regression.problem.rows import Rows
from exprkit.regression.rules.translations import Translations, translations
from exprkit.regression.stages.search_problem import default_operators
from exprkit.regression.sums import nearest
from exprkit.regression.sums.formulas import Transform, transforms

NOISE = 0.01  # share of the root mean square of y


def noisy_rows(formula, n_vars, seed=0, n=400):
    random = np.random.default_rng(seed)
    X = random.uniform(1, 4, (n, n_vars))
    y = ek.Evaluator(ek.parse([formula]), X, "numpy", dtype="float64").evaluate()[0]
    size = NOISE * np.sqrt(np.mean(y**2))
    return Rows(X, y + size * random.standard_normal(n)), float(size)


def best(form, formula, transform, n_vars=2):
    """The formula of least error at all rows, and its error in standard deviations of the noise."""
    rows, size = noisy_rows(formula, n_vars)
    pool = Pool(rows.X[:16], default_operators())
    pool.grow(20, 3_000)
    functions = nearest.PoolSample.of(pool, rows)
    limits = np.full(100, np.inf)
    formulas = [
        functions.formula(pairs, f, h, transform, rows)
        for pairs in form(functions, transform, rows, size)
        for f, h in pairs.best_of_sizes(functions.sizes, limits, 4)
    ]
    pop = ek.Population.of([formula for formula in formulas if formula is not None])
    errors = ek.Evaluator(pop, rows.X, "numpy", dtype="float64").evaluate() - rows.y
    return pop, np.sqrt(np.mean(errors**2, axis=1)) / size


@pytest.mark.parametrize(
    ("formula", "operator", "form"),
    [
        ("3.7 * (x1 + x2) / (x1^2 + x2)", None, nearest.products),
        ("2 * exp(-x1) * sqrt(x1 + x2)", None, nearest.products),
        ("asin(0.9 * sin(x1) / x2)", "asin", nearest.products),
        ("0.3 + x1 * x2 - 2.5 * cos(x1 + x2)", None, nearest.totals),
        ("sqrt(x1^2 + 3.1 * sin(x2)^2)", "sqrt", nearest.totals),
    ],
)
def test_the_law_is_among_the_best_pairs(formula, operator, form):
    outer = operators_of([operator])[0] if operator else None
    pop, errors = best(form, formula, Transform(outer, False))
    assert errors.min() < 1.1, pop[int(np.argmin(errors))]
    law = ek.Evaluator(ek.parse([formula]), X := np.random.default_rng(1).uniform(1, 4, (200, 2)), "numpy").evaluate()
    there = ek.Evaluator(pop, X, "numpy", dtype="float64").evaluate()
    assert np.sqrt(np.mean((there - law) ** 2, axis=1)).min() < NOISE * np.sqrt(np.mean(law**2))


def test_values_of_a_pool_are_those_of_its_expressions():
    X = np.random.default_rng(0).uniform(1, 2, (50, 2))
    pool = Pool(X[:16], default_operators())
    pool.grow(7, 2_000)
    pool.multiply(2_500)
    of_expressions = ek.Evaluator(ek.Population.of(pool.expressions(range(len(pool)))), X, "numpy", dtype="float64")
    np.testing.assert_allclose(pool.values_at(X), of_expressions.evaluate(), rtol=1e-9, atol=1e-9)


def test_rows_that_noise_takes_out_of_reach_weigh_nothing():
    y = np.linspace(-0.02, 2.0, 200)
    sine, logarithm = (Transform(operators_of([name])[0], False) for name in ("asin", "sqrt"))
    for transform, low, high in ((sine, -np.pi / 2, np.pi / 2), (logarithm, 0.0, np.inf)):
        known = transform.known(y)[1]
        assert (known == ((y >= low) & (y <= high))).all()


def test_an_angle_is_found_by_single_functions():
    assert operators_of(["asin"])[0] in [one.outer for one in transforms((), True, operators_of(["asin", "acos"]))]


@pytest.mark.parametrize(
    ("formula", "n_vars", "pairs"),
    [
        ("x1 * cos(x2 - x3)", 3, ((1, 2, -1.0),)),
        ("exp(-((x1 - x2) / x3)^2)", 3, ((0, 1, -1.0),)),
        ("sqrt((x1 - x2)^2 + (x3 + x4)^2)", 4, ((0, 1, -1.0), (2, 3, 1.0))),
        ("x1 * x2 / (1 + x3^2)", 3, None),
    ],
)
def test_differences_that_stand_for_two_variables(formula, n_vars, pairs):
    rows, _ = noisy_rows(formula, n_vars)
    found = translations(rows)
    assert (None if found is None else tuple(sorted(found.pairs))) == pairs


def test_formulas_of_differences_are_formulas_of_the_variables():
    pairs = Translations(((0, 2, -1.0),), 3)
    columns, unit = pairs.columns(np.array([[5.0, 7.0, 2.0]]))
    assert columns.tolist() == [[3.0, 7.0]] and unit.tolist() == [1.0]
    assert str(pairs.restored(ek.parse(["x1 * x2"])[0])) in ("(x1 - x3) * x2", "x2 * (x1 - x3)")
