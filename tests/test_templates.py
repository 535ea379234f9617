"""Templates and constants by group: laws with unknown functions in known parts, and refusals."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pandas as pd
import pytest

import exprkit as ek
from exprkit.errors import ExprkitError
from exprkit.regression.estimator.numbers import covariances
from exprkit.regression.formulas.trees import expression_of, tree_of
from exprkit.regression.problem.goal import Goal
from exprkit.regression.problem.rows import Rows
from exprkit.regression.skeletons.law import TemplateLaw
from exprkit.regression.skeletons.skeleton import LawSkeleton
from exprkit.regression.skeletons.smooth import smooth

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(0.5, 3, (120, 3))
x1, x2, x3 = X.T
NAMES = ["x1", "x2", "x3"]
LAWS = {
    "f(x1) + g(x2)": np.exp(-x1) + x2**2,
    "f(x1) * g(x2)": np.sqrt(x1) * np.cos(x2),
    "exp(f(x1, x2)) / x3": np.exp(-x1 / x2) / x3,
    "9.81 * exp(-k * x1) * f(x2)": 9.81 * np.exp(-0.6 * x1) * np.log(x2 + 1),
    "f(x1) - f(x3)": np.sqrt(x1) - np.sqrt(x3),
}


def search(seconds=2.0, **settings):
    quick = {"niterations": 0, "maxsize": 9, "pool_size": 2_000, "random_state": 0, "deterministic": True, "n_jobs": 1}
    return ek.SymbolicRegressor(timeout_in_seconds=seconds, **{**quick, **settings})


@pytest.mark.slow
@pytest.mark.parametrize("template", LAWS)
def test_functions_of_a_template_are_found(template):
    y = LAWS[template]
    model = search(template=template).fit(X, y)
    assert np.sqrt(np.mean((model.predict(X) - y) ** 2)) < 1e-6 * y.std(), str(model)
    assert set(model.functions_) == {"f", "g"} & set(template)


@pytest.mark.slow
def test_functions_are_found_in_noise_and_numbers_have_errors(tmp_path):
    y = 2 * np.exp(-0.6 * x1) * x2**2
    noisy = y + 0.01 * y.std() * np.random.default_rng(1).standard_normal(120)
    model = search(template="exp(-k * x1) * f(x2)", noise="constant").fit(X, noisy)
    assert np.sqrt(np.mean((model.predict(X) - y) ** 2)) < 0.005 * y.std(), str(model)
    table = model.parameter_table()
    assert table["value"].iloc[0] == pytest.approx(0.6, abs=5 * table["error"].iloc[0])
    assert pickle.loads(pickle.dumps(model)).functions_ == model.functions_
    model.save(tmp_path / "model.npz")
    again = ek.load(tmp_path / "model.npz")
    assert again.functions_ == model.functions_ and again.equations_.equals(model.equations_)


@pytest.mark.slow
@pytest.mark.parametrize(
    "template, y",
    [
        ("f(x1) + g(x2) + h(x3)", np.exp(-x1) + np.sqrt(x2) + np.log(x3 + 1)),
        ("f(x1) / (g(x2) + h(x3))", (x1 + 1) / (np.exp(x2) + x3**2)),
    ],
)
def test_three_functions_are_found_at_once_in_little_time_for_each(template, y):
    model = search(6.0, template=template, pool_size=None).fit(X, y)
    assert np.sqrt(np.mean((model.predict(X) - y) ** 2)) < 1e-6 * y.std(), str(model)


@pytest.mark.slow
def test_functions_keep_to_constraints():
    y = np.exp(-x1) * np.sin(x2 + x1)
    limits = {"constraints": {"exp": {"variables": ["x2"]}, "sin": 1}, "nested_constraints": {"cos": {"cos": 0}}}
    model = search(template="f(x1) * g(x2, x1)", **limits).fit(X, y)
    for f, g in (model._template.functions(i).values() for i in range(len(model.equations_))):
        assert "exp(" not in str(f) and not re.search(r"sin\(\W*[^)]*[ (]", str(g)), (f, g)
    with pytest.raises(ExprkitError, match="no variable 'u'"):
        search(template="f(x1)", constraints={"exp": {"variables": ["u"]}}).fit(X, y)


def test_numbers_of_1_beside_known_ones_have_covariances():
    rows = Rows(X, x1 + 1)
    pop = ek.parse("p1 * x1 + p2 * x1 + 1 + p3 * x2")
    matrices = covariances(Goal("squares", rows), pop, np.array([[1.0, 0.3, 0.0]]))
    assert matrices.shape == (1, 3, 3) and not matrices[0, 0].any() and matrices[0, 1, 1] >= 0


def test_numbers_and_columns_may_have_any_names():
    texts = {"p1[site] * f(t) + p2": ["t"], "f(x1) * p1": ["x1", "p2"], "`a b` * f(`a b`) + a": ["a b"]}
    skeletons = [LawSkeleton.of(text, columns, "site") for text, columns in texts.items()]
    assert [skeleton.numbers for skeleton in skeletons] == [{"p1": True, "p2": False}, {"p1": False}, {"a": False}]
    assert [str(skeleton.formula) for skeleton in skeletons] == ["x3 * x2 + x4", "x3 * x4", "x1 * x2 + x3"]


@pytest.mark.parametrize("template", LAWS)
def test_polynomials_come_near_to_what_is_unknown(template):
    y = LAWS[template]
    skeleton = LawSkeleton.of(template, NAMES)
    rows = Rows(X, y)
    values = smooth(skeleton, rows)
    assert values.left < 1e-4
    assert skeleton.values(rows.X, values.unknowns)[0] == pytest.approx(rows.y, abs=0.1 * y.std())


def test_a_law_is_written_out_and_by_category():
    skeleton = LawSkeleton.of("a * f(2 * x1) + 3 * f(x2)", NAMES)
    law = TemplateLaw.of([tree_of(ek.parse("2 * exp(0.5 * x1)")[0])], [np.array([4.0, 5.0])], float.is_integer)
    assert str(expression_of(law.shown(skeleton, 3))) == "x4 * (2 * exp(0.5 * (2 * x1))) + 3 * (2 * exp(0.5 * x2))"
    spread = "(x4 * p1 + x5 * p2) * (2 * exp(p3 * (2 * x1))) + 3 * (2 * exp(p3 * x2))"
    assert str(expression_of(law.flat(skeleton))) == spread
    assert [len(values) for other in law.shared() for values in other.values] == [1, 1]
    without = [str(expression_of(other.functions[0])) for other in law.shorter() if len(other.values) == 1]
    assert {"2", "2 * exp(x1)"} <= set(without)


@pytest.mark.parametrize(
    "template, sentence",
    [
        (3, "must be a text"),
        ("x1 * x2", "no unknown function.*ek.fit fits its numbers"),
        ("exp(x1)", "names of operators are no unknown functions"),
        ("f(x1) + f(x1, x2)", "f has 1 argument and 2 arguments"),
        ("f(x9)", "f is of 'x9', which is no column"),
        ("f(x1) + x9", "no column 'x9'"),
        ("f(g(x1))", "g stands inside of f"),
        ("f()", "f lacks an argument"),
        ("f(x1", "not closed"),
        ("f(x1) + f", "as a function and as a number"),
        ("f(x1) + sin", "sin is an operator"),
        ("f(x1) * a[site]", "needs groups='site'"),
        ("f(x1) +", "found the end of the text"),
    ],
)
def test_bad_templates_are_refused(template, sentence):
    with pytest.raises(ExprkitError, match=sentence):
        search(template=template).fit(X, x1)


@pytest.mark.parametrize(
    "settings, sentence",
    [
        ({"template": "f(x1)", "positive": True}, "positive is of searches without template="),
        ({"template": "f(x1)", "guesses": ["x1"]}, "guesses is of searches without template="),
        ({"groups": "x1", "warm_start": True}, "warm_start is of searches without groups="),
        ({"groups": ["x1"]}, "the name of a column"),
        ({"groups": "x1"}, "X must be a table"),
    ],
)
def test_settings_that_templates_do_not_have_are_refused(settings, sentence):
    with pytest.raises(ExprkitError, match=sentence):
        search(**settings).fit(X, x1)


def decay(noise=0.0):
    """Three decays to one level."""
    rates = {"a": 0.5, "b": 0.8, "c": 1.2}
    table = pd.DataFrame({"site": np.repeat(list(rates), 30), "t": np.tile(np.linspace(0, 3, 30), 3)})
    return table, 3 * np.exp(-table.site.map(rates) * table.t) + noise * np.random.default_rng(0).standard_normal(90)


@pytest.mark.slow
def test_numbers_go_by_group_where_the_data_say_so(tmp_path):
    table, y = decay()
    model = search(groups="site").fit(table, y)
    assert model.predict(table) == pytest.approx(y, abs=1e-6), str(model)
    numbers = model.group_numbers()
    assert numbers.shape == (3, 1) and np.abs(numbers.to_numpy()[:, 0]) == pytest.approx([0.5, 0.8, 1.2], rel=1e-6)
    assert "[site]" in model.get_best().equation and "`" not in model.get_best().equation
    model.save(tmp_path / "model.npz")
    again = ek.load(tmp_path / "model.npz")
    assert np.array_equal(again.predict(table), model.predict(table)) and str(again) == str(model)
    assert again.group_numbers().equals(numbers)
    with pytest.raises(ExprkitError, match="category 'd'"):
        model.predict(pd.DataFrame({"site": ["d"], "t": [1.0]}))
    with pytest.raises(ExprkitError, match="go by 'site'"):
        model.to_numpy()


@pytest.mark.slow
def test_a_template_says_which_numbers_go_by_group():
    table, _ = decay()
    offsets = table.site.map({"a": 1.0, "b": -2.0, "c": 5.0})
    y = np.sqrt(table.t + 1) + offsets
    model = search(template="f(t) + m[site]", groups="site").fit(table, y)
    assert model.predict(table) == pytest.approx(y, abs=1e-6), str(model)
    assert list(model.group_numbers().columns) == ["m[site]"]
    assert np.diff(model.group_numbers()["m[site]"].to_numpy()) == pytest.approx([-3.0, 7.0])
