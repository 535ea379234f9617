"""Several targets: parts that formulas share, the choice among fronts, shapes as scikit-learn has them, bad input."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

import exprkit as ek
from exprkit.regression.formulas.front import Entry
from exprkit.targets import parts

QUICK = ek.SymbolicRegressor(
    unary_operators=["exp", "sqrt"], maxsize=9, niterations=0, timeout_in_seconds=1, deterministic=True, random_state=0
)
SMALL = ek.SymbolicRegressor(niterations=0, pool_size=0, maxsize=12, unary_operators=[], random_state=0)


def trees(*texts):
    return [parts.ordered(formula) for formula in ek.parse(list(texts))]


def test_parts_are_the_same_however_they_are_written():
    a, b, c = trees("x2 * x1 + x3", "2 * (x3 + x1 * x2)", "x1 * x2 * x3")
    assert parts.n_shared([a, b]) == 2 and parts.shared([a, b]) == [a] and parts.n_shared([a, b, c]) == 3
    one, other = trees("3 * exp(x1) / x2", "exp(x1) / x2 + 1")
    assert parts.nodes(parts.shared([one, other])[0]) == 4, "a factor stands outside"
    assert parts.shared(trees("exp(x1)", "exp(x2)")) == [] and parts.n_shared(trees("x1", "2 + 3")) == 0


@pytest.fixture(scope="module")
def rates():
    random = np.random.default_rng(1)
    table = pd.DataFrame(random.uniform(1, 3, (150, 3)), columns=["a", "b", "c"])
    ratio = table["a"] / (table["b"] + 1)
    Y = pd.DataFrame({"u": np.exp(ratio), "v": 3 * ratio + table["c"]})
    return table, Y, ek.MultiTargetRegressor(QUICK).fit(table, Y)


@pytest.mark.slow
def test_laws_with_a_part_in_common_are_found_and_shown(rates, tmp_path):
    table, Y, model = rates
    model.save(tmp_path / "model.npz")
    again = ek.load(tmp_path / "model.npz")
    assert np.array_equal(again.predict(table), model.predict(table)) and str(again) == str(model)
    assert model.predict(table) == pytest.approx(Y.to_numpy(), rel=1e-6) and model.score(table, Y) > 0.999999
    assert model.shared_ == ["a / (b + 1)"] and str(model).splitlines()[:2] == ["u1 = a / (b + 1)", "u = exp(u1)"]
    assert model.target_names_ == ["u", "v"] and len(model.sympy()) == len(model.latex(precision=3)) == 2
    assert [frame["selected"].tolist().index(True) for frame in model.equations_] == model.chosen_


@pytest.mark.slow
def test_names_of_columns_are_targets(rates):
    table, Y, _ = rates
    model = ek.MultiTargetRegressor(SMALL).fit(pd.concat([table, Y], axis=1), ["u", "v"])
    assert model.target_names_ == ["u", "v"] and model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert np.array_equal(model.predict(pd.concat([table, Y], axis=1)), model.predict(table))


@pytest.mark.slow
def test_of_formulas_as_good_those_that_share_parts_are_chosen(rates):
    table, Y, _ = rates
    noisy = Y + 0.1 * np.random.default_rng(2).standard_normal(Y.shape)
    model = ek.MultiTargetRegressor(SMALL).fit(table, noisy)
    for own, texts in zip(model.models_, (["exp(x1)", "x1 * x2"], ["x1 * x2 + x3"]), strict=True):
        front, n = own._front, len(texts)
        entries = [Entry(formula, 0.1, 5) for formula in ek.parse(texts)]
        exact, worse = np.zeros(n, bool), np.arange(n) * 1.0
        changed = {"entries": entries, "expected": worse, "lengths": worse, "exact": exact, "poles": exact}
        own._front = type(front)(**(vars(front) | changed))
    model._choose()
    assert model.chosen_ == [1, 0] and model.shared_ == ["a * b"]
    model.models_[0]._front.expected[:] = model.models_[0]._front.lengths[:] = [0.0, 3.0]
    model._choose()
    assert model.chosen_ == [0, 0], "a part saves less than 3 nats"


@pytest.mark.slow
def test_shapes_are_those_of_scikit_learn(rates):
    table, Y, _ = rates
    for y in (Y["u"], Y[["u"]], Y):
        model = ek.MultiTargetRegressor(SMALL).fit(table, y, np.ones(len(y)))
        assert model.predict(table).shape == y.shape


@pytest.mark.slow
@pytest.mark.usefixtures("few_stages")
def test_checks_of_scikit_learn_for_several_targets():
    for model, check in estimator_checks_generator(ek.MultiTargetRegressor(SMALL)):
        if re.search("multioutput|y_2d|weight_equivalence", check.func.__name__):
            check(model)


@pytest.mark.parametrize(
    "Y, sentence",
    [
        (np.array([[1.0, np.nan]] * 6), "y.*NaN"),
        (np.ones((5, 2)), "inconsistent numbers of samples"),
        (np.ones((6, 2, 2)), "y"),
        ([["a", "b"]] * 6, "y"),
    ],
)
def test_bad_targets_are_refused(Y, sentence):
    with pytest.raises(ValueError, match=sentence):
        ek.MultiTargetRegressor(SMALL).fit(np.arange(12.0).reshape(6, 2), Y)
    with pytest.raises(ValueError, match="search must be"):
        ek.MultiTargetRegressor("quick").fit([[1.0]], [1.0])


def test_one_target_is_what_the_other_estimator_is_for():
    with pytest.raises(ValueError, match="y has 2 columns: ek"):
        SMALL.fit(np.ones((6, 2)), np.ones((6, 2)))
