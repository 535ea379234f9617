"""``ExpressionRegressor``: given expressions as a scikit-learn estimator."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from estimator_checks import failed_checks

pytest.importorskip("sklearn", reason="the search needs scikit-learn: pip install '.[search]'")

from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import exprkit as ek
from exprkit.errors import ArgumentError, ParseError

X = np.random.default_rng(0).uniform(1, 3, (60, 2))
Y = 2.5 * X[:, 0] ** 1.5 / X[:, 1]
TEXTS = ["p1 + p2 * x1", "p1 * x1^p2 / x2", "p1 * x1^p2 / x2^p3", "p1 * exp(p2 * x1)"]


@pytest.mark.slow
def test_every_check_of_scikit_learn_passes():
    assert failed_checks("ExpressionRegressor()") == []


def test_the_best_by_a_criterion_predicts():
    noisy = Y + 0.05 * np.random.default_rng(1).standard_normal(len(Y))
    model = ek.ExpressionRegressor(TEXTS).fit(X, noisy)
    assert str(model.found_.pop[0]) == str(ek.parse(TEXTS[1])[0]), "a number more gains less than it costs"
    assert model.score(X, Y) > 0.999
    np.testing.assert_array_equal(model.predict(X), model.get_best()(X))
    np.testing.assert_array_equal(model.predict(X, 1), model.found_.predict(X, 1))
    closest = ek.ExpressionRegressor(TEXTS, select="loss").fit(X, noisy)
    assert closest.found_.loss[0] <= model.found_.loss[0]


def test_columns_of_a_table_are_variables():
    table = pd.DataFrame(X, columns=["distance (AU)", "mass"])
    model = ek.ExpressionRegressor("p1 * `distance (AU)`^p2 / mass").fit(table, Y)
    np.testing.assert_allclose(model.found_.params[0], [2.5, 1.5])
    np.testing.assert_allclose(model.predict(table), Y)
    assert list(model.feature_names_in_) == list(table.columns)
    with pytest.raises(ParseError, match="did you mean 'mass'"):
        ek.ExpressionRegressor("p1 * mas").fit(table, Y)


def test_columns_of_a_table_have_numbers_as_well():
    table = pd.DataFrame(X, columns=["length (m)", "mass"])
    texts = "p1 * x1^p2 / x2", "p1 * `length (m)`^p2 / mass"
    numbered, named = (ek.ExpressionRegressor(text).fit(table, Y) for text in texts)
    assert numbered.predict(table).tobytes() == named.predict(table).tobytes()
    with pytest.raises(ParseError, match="unknown name 'x1'"):
        ek.ExpressionRegressor("p1 * x1 + mass").fit(table, Y)


def test_weights_expressions_and_populations_are_taken():
    weights = (np.arange(len(Y)) % 2).astype(float)
    spoiled = np.where(weights == 0, 1e3, Y)
    (x1, x2), (p1, p2) = ek.variables(2), ek.parameters(2)
    for given in (TEXTS[1], p1 * x1**p2 / x2, ek.parse(TEXTS[1]), ek.parse(TEXTS[1])[0].sympy()):
        model = ek.ExpressionRegressor(given).fit(X, spoiled, sample_weight=weights)
        np.testing.assert_allclose(model.predict(X), Y)


def test_it_works_in_a_pipeline_a_grid_and_a_cross_validation_and_can_be_kept():
    lists = [["p1 + p2 * x1"], ["p1 * x1^p2 / x2"]]
    grid = GridSearchCV(ek.ExpressionRegressor(), {"expressions": lists}, cv=2).fit(X, Y)
    assert grid.best_params_ == {"expressions": lists[1]}
    assert cross_val_score(ek.ExpressionRegressor(lists[1]), X, Y, cv=2).min() > 0.999
    line = make_pipeline(MinMaxScaler(), ek.ExpressionRegressor()).fit(X, 1 + X @ [2.0, 3.0])
    np.testing.assert_allclose(line.predict(X), 1 + X @ [2.0, 3.0])
    kept = pickle.loads(pickle.dumps(grid.best_estimator_))
    np.testing.assert_array_equal(kept.predict(X), grid.predict(X))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"select": "bci"}, "select must be one of"), ({"restarts": -1}, "restarts"),
        ({"expressions": "log(0 - x1) * p1"}, "no expression has a loss"),
        ({"expressions": []}, "expressions is empty"), ({"expressions": "p1 * x1 + inf"}, "no expression has a loss"),
        ({"expressions": 3}, "3 is neither a text nor a SymPy object"),
    ],
)  # fmt: skip
def test_what_cannot_be_fitted_is_named(wrong, message):
    with pytest.raises((ArgumentError, ParseError), match=message):
        ek.ExpressionRegressor(**wrong).fit(X, Y)
