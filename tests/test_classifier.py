"""Formulas of log-odds: laws nobody tuned on, several classes, weights, scikit-learn's checks, bad labels."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.base import is_classifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import estimator_checks_generator

import exprkit as ek

QUICK = ek.SymbolicRegressor(
    unary_operators=["square"], maxsize=9, niterations=0, timeout_in_seconds=1, deterministic=True, random_state=0
)
SMALL = ek.SymbolicRegressor(niterations=0, pool_size=0, maxsize=12, unary_operators=[], random_state=0)
LAWS = {
    "sqr(x1) + sqr(x2)": (-2, lambda a, b, c: 4 * (2 - a**2 - b**2)),
    "x1 * x2": (0.5, lambda a, b, c: 3 * (a * b - 2.5)),
    "x1 / x3": (0.5, lambda a, b, c: 4 * (a / c - 1)),
}


def labelled(law, n=400, low=0.5, seed=0):
    """Rows, and labels drawn by a law of the log-odds."""
    random = np.random.default_rng(seed)
    X = random.uniform(low, 2, (n, 3))
    return X, random.uniform(size=n) < 1 / (1 + np.exp(-law(*X.T)))


@pytest.fixture(scope="module")
def circle():
    low, law = LAWS["sqr(x1) + sqr(x2)"]
    X, y = labelled(law, low=low)
    return X, y, ek.SymbolicClassifier(QUICK).fit(X, y)


@pytest.mark.slow
def test_a_circle_is_found_and_beats_a_plane(circle):
    X, y, model = circle
    low, law = LAWS["sqr(x1) + sqr(x2)"]
    others, labels = labelled(law, 3000, low, seed=1)
    best = np.mean((law(*others.T) > 0) == labels)
    assert model.score(others, labels) > best - 0.01 > LogisticRegression().fit(X, y).score(others, labels) + 0.2
    f, p = model.decision_function(others), model.predict_proba(others)
    assert np.corrcoef(f, law(*others.T))[0, 1] > 0.995 and p == pytest.approx(np.stack([1 - p[:, 1], p[:, 1]], axis=1))
    assert p[:, 1] == pytest.approx(1 / (1 + np.exp(-f))) and model.classes_.tolist() == [False, True]
    assert {str(name) for name in model.sympy().free_symbols} == {"x1", "x2"} and "x_{1}" in model.latex(precision=2)
    assert model.equations_["selected"].sum() == 1 and "log-odds of True against False" in str(model)
    assert is_classifier(model) and len(model.searches_) == 2


@pytest.mark.slow
def test_the_loss_is_the_logarithmic_one(circle):
    X, y, model = circle
    p = model.predict_proba(X)[np.arange(len(y)), y.astype(int)]
    assert model.models_[0].get_best()["loss"] == pytest.approx(-np.log(p).mean(), abs=0.03)
    errors = model.models_[0].parameter_table()
    n = len(errors)
    assert n and (np.abs(errors["value"]) > 3 * errors["error"]).all() and (errors["error"] > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("text, is_sharp", [("x1 * x2", True), ("x1 / x3", False)])
def test_products_and_ratios_are_found(text, is_sharp):
    low, law = LAWS[text]
    X, y = labelled(lambda *x: (100 if is_sharp else 1) * law(*x), low=low, seed=2)
    model = ek.SymbolicClassifier(QUICK).fit(X, y)
    assert any(text in formula or text[::-1] in formula for formula in model.equations_["equation"])
    others = labelled(law, 3000, low, seed=3)[0]
    assert np.mean(model.predict(others) == (law(*others.T) > 0)) > 0.96


@pytest.mark.slow
def test_three_classes_have_two_formulas(tmp_path):
    X, _ = labelled(LAWS["x1 * x2"][1], 500)
    random, product = np.random.default_rng(4), X[:, 0] * X[:, 1]
    f = np.stack([0 * product, 4 * (product - 1), 8 * (product - 2)], axis=1)
    y = np.array(["a", "b", "c"])[np.argmax(f + random.gumbel(size=f.shape), axis=1)]
    table = pd.DataFrame(X, columns=["u", "v", "w"]).assign(kind=y)
    model = ek.SymbolicClassifier(QUICK, rounds=1).fit(table, "kind")
    p = model.predict_proba(table)
    assert p.shape == (500, 3) and p.sum(axis=1) == pytest.approx(1)
    law = np.exp(f) / np.exp(f).sum(axis=1, keepdims=True)
    assert np.abs(p - law).mean() < 0.06 and model.score(table, "kind") > np.mean(law.max(axis=1)) - 0.05
    assert model.decision_function(table).shape == (500, 3) and len(model.equations_) == len(model.sympy()) == 2
    assert str(model).count("against a") == 2
    model.save(tmp_path / "model.npz")
    again = ek.load(tmp_path / "model.npz")
    assert np.array_equal(again.predict_proba(table), p) and str(again) == str(model)
    assert again.predict(table)[0] in "abc" and again.search.get_params() == QUICK.get_params()
    with pytest.raises(ValueError, match="of a SymbolicClassifier"):
        ek.MultiTargetRegressor.load(tmp_path / "model.npz")


@pytest.mark.slow
def test_whole_weights_count_rows_and_weights_move_the_boundary():
    X, y = labelled(LAWS["x1 * x2"][1], 80)
    w = np.where(y, 3.0, 1.0) * (np.arange(80) > 5)
    weighted = ek.SymbolicClassifier(SMALL, rounds=1).fit(X, y, w)
    repeated = ek.SymbolicClassifier(SMALL, rounds=1).fit(np.repeat(X, w.astype(int), 0), np.repeat(y, w.astype(int)))
    assert weighted.predict_proba(X) == pytest.approx(repeated.predict_proba(X), abs=1e-9)
    assert weighted.predict(X).mean() > ek.SymbolicClassifier(SMALL, rounds=1).fit(X, y).predict(X).mean()
    assert cross_val_score(weighted, X, y, cv=2).mean() > 0.7


@pytest.mark.slow
@pytest.mark.usefixtures("few_stages")
def test_checks_of_scikit_learn_that_regressors_do_not_have():
    every = estimator_checks_generator(ek.SymbolicClassifier(SMALL, rounds=1))
    checks = {check.func.__name__: (model, check) for model, check in every}  # once, of those for several types
    chosen = [name for name in checks if re.search("classifiers|weight_equivalence|proba", name)]
    assert len(chosen) >= 7
    for name in chosen:
        model, check = checks[name]
        check(model)


@pytest.mark.slow
def test_a_formula_without_a_value_gives_no_label(circle):
    X, _, model = circle
    with pytest.raises(ValueError, match="NaN"):
        model.predict([[np.nan, 0, 0]])
    broken = ek.SymbolicClassifier(SMALL, rounds=1).fit(X[:60], circle[1][:60])
    broken.models_ = [
        ek.SymbolicRegressor(guesses=["log(x1)"], max_evals=1, maxsize=2).fit(abs(X), np.log(abs(X[:, 0])))
    ]
    with pytest.raises(ValueError, match="no value at 1 row, the first of them row 1"):
        broken.predict([[1, 1, 1], [-1, 1, 1]])
    assert np.isnan(broken.predict_proba([[-1, 1, 1]])).all()


@pytest.mark.parametrize(
    "y, sentence",
    [
        (["a"] * 6, "labels of one class, a"),
        (["a", "b", None, "a", "b", "a"], "missing labels"),
        ([0, 1, np.nan, 0, 1, 1], "NaN"),
        (["a", 1, "b", 1, "a", "b"], "mixes labels"),
        ([0.1, 0.2, 0.35, 0.7, 1.1, 1.5], "continuous"),
        ([0, 1, 0], "inconsistent numbers of samples"),
    ],
)
def test_bad_labels_are_refused(y, sentence):
    with pytest.raises(ValueError, match=sentence):
        ek.SymbolicClassifier(SMALL).fit(np.arange(12.0).reshape(6, 2), np.array(y, object) if "a" in y else y)


@pytest.mark.parametrize(
    "settings", [{"rounds": 0}, {"search": "quick"}, {"search": ek.SymbolicRegressor(elementwise_loss="mae")}]
)
def test_bad_settings_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        ek.SymbolicClassifier(**settings).fit([[1.0], [2.0]], [0, 1])
