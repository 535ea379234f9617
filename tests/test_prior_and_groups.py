"""Penalties on parameters against least squares with further rows, and parameters by category against fits apart."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest

import exprkit as ek
from exprkit.errors import ArgumentError, DataError, ParseError

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(0.5, 3, (40, 1))
Y = 1.5 * X[:, 0] + 0.7 + 0.1 * RANDOM.normal(size=40)
W = RANDOM.uniform(0.5, 2, 40)
BOTH = {"p1": (2, 0.05), "p2": (0, 0.3)}
TERMS = "((p1 - 2) / 0.05)^2 + (p2 / 0.3)^2"


def ridge(weights, means=(2.0, 0.0), sds=(0.05, 0.3)):
    """(parameters, J'WJ) of the line with two measurements more."""
    J, y = np.column_stack([X[:, 0], np.ones(40)]), Y
    J, y = np.vstack([J, np.eye(2)]), np.append(y, means)
    w = np.append(weights, 1 / np.square(sds))
    A = (J.T * w) @ J
    return np.linalg.solve(A, J.T @ (w * y)), A


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize("prior", [BOTH, TERMS])
def test_a_penalty_is_as_good_as_further_measurements(backend, prior):
    found = ek.fit("p1 * x1 + p2", X, Y, prior=prior, backend=backend, dtype="float64")
    expected, _ = ridge(np.ones(40))
    np.testing.assert_allclose(found.params[0], expected, rtol=1e-7)
    p = found.params[0]
    sse = np.sum((Y - p[0] * X[:, 0] - p[1]) ** 2)
    assert found.loss[0] == pytest.approx(sse + ((p[0] - 2) / 0.05) ** 2 + (p[1] / 0.3) ** 2)
    assert found.r2[0] == pytest.approx(1 - sse / np.sum((Y - Y.mean()) ** 2))
    assert found.kind == "squares, prior" and found.method == "lm"


def test_of_a_likelihood_it_is_the_posterior_s_mode_and_spread():
    found = ek.fit("p1 * x1 + p2", X, Y, weights=100 * W, loss="gaussian", prior=BOTH, dtype="float64")
    expected, A = ridge(100 * W)
    np.testing.assert_allclose(found.params[0], expected, rtol=1e-7)
    np.testing.assert_allclose(found.covariance[0], np.linalg.inv(A), rtol=1e-6)
    p, plain = found.params[0], ek.fit("p1 * x1 + p2", X, Y, weights=100 * W, loss="gaussian", dtype="float64")
    assert (found.standard_errors < plain.standard_errors).all()
    r2 = 100 * W @ (Y - p[0] * X[:, 0] - p[1]) ** 2 / 2 + np.sum(np.log(2 * np.pi / (100 * W))) / 2
    log_prior = np.log(2 * np.pi * np.array([0.05, 0.3]) ** 2).sum() / 2
    penalty = ((p[0] - 2) / 0.05) ** 2 / 2 + (p[1] / 0.3) ** 2 / 2
    assert found.loss[0] == pytest.approx(r2 + penalty) and log_prior != 0
    text = "((p1 - 2) / 0.05)^2 / 2 + (p2 / 0.3)^2 / 2"
    same = ek.fit("p1 * x1 + p2", X, Y, weights=100 * W, loss="gaussian", prior=text, dtype="float64")
    np.testing.assert_allclose(same.params, found.params, rtol=1e-8)
    assert same.loss[0] == pytest.approx(found.loss[0])


def test_a_loss_of_one_s_own_with_squares_and_with_anything():
    half = ek.fit("p1 * x1 + p2", X, Y, loss="(f - y)^2 / 2", prior=BOTH, dtype="float64")
    np.testing.assert_allclose(half.params[0], ridge(np.ones(40))[0], rtol=1e-6)
    assert half.method == "lm"
    lasso = ek.fit("p1 * x1 + p2", X, Y, loss="(f - y)^2", prior="200 * logcosh(100 * p2) / 100", dtype="float64")
    assert lasso.method == "lbfgs" and abs(lasso.params[0, 1]) < 0.02
    p = lasso.params[0]
    expected = np.sum((Y - p[0] * X[:, 0] - p[1]) ** 2) + 2 * np.log(np.cosh(100 * p[1]))
    assert lasso.loss[0] == pytest.approx(expected, rel=1e-6)


def test_expressions_with_fewer_parameters_keep_theirs_and_their_order():
    texts = ["p1 * x1 + p2", "x1", "p1 + x1", "bad bad", "exp(p1 * x1)", "p1 * x1 + p2 + p3 * 0"]
    pop = ek.parse(texts, errors="mask")
    found = ek.fit(pop, X, Y, prior={"p2": (0, 0.3)}, dtype="float64")
    plain = ek.fit(pop, X, Y, dtype="float64")
    assert found.params.shape == plain.params.shape and np.array_equal(np.isnan(found.params), np.isnan(plain.params))
    np.testing.assert_allclose(found.params[[2, 4], 0], plain.params[[2, 4], 0], rtol=1e-6)
    np.testing.assert_allclose(found.loss[[1, 2, 4]], plain.loss[[1, 2, 4]], rtol=1e-9)
    assert found.params[0, 1] < plain.params[0, 1] and np.isnan(found.loss[3])
    again = pickle.loads(pickle.dumps(found))[[0, 2]]
    np.testing.assert_allclose(again.standard_errors[:, 0], found.standard_errors[[0, 2], 0], rtol=1e-6)


def test_named_parameters_weights_of_0_and_gaps():
    x, y, w = np.vstack([[[np.nan]], X]), np.append(np.nan, Y), np.append(0, np.ones(40))
    pop = ek.parse("slope * x1 + offset", parameters=["slope", "offset"])
    found = ek.fit(pop, x, y, weights=w, prior={"slope": (2, 0.05), "offset": (0, 0.3)}, dtype="float64")
    np.testing.assert_allclose(found.params[0], ridge(np.ones(40))[0], rtol=1e-7)


def test_a_link_and_a_prior():
    y = np.exp(Y)
    found = ek.fit("exp(p1 * x1 + p2)", X, Y, link="log", prior=BOTH, dtype="float64")
    np.testing.assert_allclose(found.params[0], ridge(np.ones(40))[0], rtol=1e-6)
    assert found.r2[0] == pytest.approx(ek.fit("p1 * x1 + p2", X, Y, prior=BOTH, dtype="float64").r2[0])
    assert len(y) == 40


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"prior": {"p3": (0, 1)}}, ArgumentError, "there is no parameter 'p3'; there are p1, p2"),
        ({"prior": {"p1": (0, 0)}}, ArgumentError, r"must be \(mean, standard deviation\)"),
        ({"prior": {"p1": 3}}, ArgumentError, r"must be \(mean, standard deviation\)"),
        ({"prior": 3}, ArgumentError, "must be a text over parameters"),
        ({"prior": "p1 + "}, ParseError, "prior: "),
        ({"prior": "p1^2 + x1"}, ParseError, "prior: "),
        ({"prior": "p1^2 + 3"}, ArgumentError, "depends on no parameter"),
        ({"prior": "(p1 - p9)^2"}, ArgumentError, "there is no parameter 'p9'; there are p1, p2"),
        ({"prior": "abs(p1)"}, ArgumentError, "each term must be a square"),
        ({"prior": BOTH, "loss": "mae"}, ArgumentError, "prior takes loss='squares' or 'gaussian'"),
        ({"prior": BOTH, "loss": "gaussian"}, ArgumentError, "needs weights"),
    ],
)
def test_what_is_no_prior(settings, error, message):
    with pytest.raises(error, match=message):
        ek.fit("p1 * x1 + p2", X, Y, **settings)


# ── groups ──

SITE = np.array(["north", "south", "east"])[np.arange(40) % 3]
SLOPES = {"north": 1.0, "south": 2.0, "east": -0.5}
TABLE = {"x1": X[:, 0], "site": SITE, "y": np.array([SLOPES[s] for s in SITE]) * X[:, 0] + 0.3}


@pytest.mark.parametrize("given", ["text", "groups", "frame", "named"])
def test_a_parameter_for_each_category(given):
    pandas = pytest.importorskip("pandas")
    if given == "text":
        found = ek.fit("p1[site] * x1 + p2", TABLE, "y", dtype="float64")
    elif given == "groups":
        found = ek.fit(ek.parse("p1 * x1 + p2"), TABLE, "y", groups={"p1": "site"}, dtype="float64")
    elif given == "frame":
        frame = pandas.DataFrame(TABLE).astype({"site": "category"})
        found = ek.fit(["p1[`site`] * x1 + p2"], frame, "y", dtype="float64")
    else:
        pop = ek.parse("slope * x1 + p2", parameters=["slope", "p2"])
        found = ek.fit(pop, TABLE, "y", groups={"slope": "site"}, dtype="float64")
    name = "slope" if given == "named" else "p1"
    assert found.pop.parameters == (f"{name}[east]", f"{name}[north]", f"{name}[south]", "p2")
    np.testing.assert_allclose(found.params[0], [-0.5, 1, 2, 0.3], rtol=1e-7)
    predicted = found.predict({"site": ["south", "east"], "x1": [1.0, 2.0]}, 0)
    np.testing.assert_allclose(predicted, [2.3, -0.7], rtol=1e-7)
    np.testing.assert_allclose(found[0]({"site": ["north"], "x1": [2.0]}), [2.3], rtol=1e-7)
    assert "p1[north]" in found.to_pandas().columns or given == "named"


def test_they_are_the_fits_apart(tmp_path):
    y = TABLE["y"] + 0.1 * np.random.default_rng(1).normal(size=40)
    found = ek.fit("p1[site] * x1^2 + p2[site]", {**TABLE, "y": y}, "y", dtype="float64")
    for k, site in enumerate(sorted(SLOPES)):
        here = site == SITE
        apart = ek.fit("p1 * x1^2 + p2", X[here], y[here], dtype="float64")
        np.testing.assert_allclose(found.params[0, [k, 3 + k]], apart.params[0], rtol=1e-6)
    found.save(tmp_path / "fit.npz")
    again = ek.load(tmp_path / "fit.npz")
    np.testing.assert_allclose(again.predict(TABLE), found.predict(TABLE))


def test_numbers_are_the_same_categories_whatever_their_type():
    table = {"k": np.tile([1.0, 2.0], 20), "y": np.tile([3.0, 5.0], 20)}
    found = ek.fit("p1[k] * 1", table, "y")
    assert found.pop.parameters == ("p1[1]", "p1[2]")
    assert found[0]({"k": [2, 1]}) == pytest.approx([5, 3])


def test_bounds_and_priors_hold_for_all_categories():
    found = ek.fit("p1[site] * x1 + p2", TABLE, "y", bounds={"p1": (0, 1.5)}, dtype="float64")
    assert (found.params[0, :3] >= 0).all() and (found.params[0, :3] <= 1.5).all()
    tight = ek.fit("p1[site] * x1 + p2", TABLE, "y", prior={"p1": (1, 1e-3)}, dtype="float64")
    np.testing.assert_allclose(tight.params[0, :3], 1, atol=1e-3)


def test_populations_without_names_take_columns_in_order():
    pop = ek.generate.exhaustive(3, n_vars=1, operators=("mul", "add"))
    table = {"length": X[:, 0], "site": SITE}
    found = ek.fit(pop, table, TABLE["y"] - 0.3, groups={"p1": "site"}, dtype="float64")
    best = found[int(found.best()[0])]
    assert found.pop.variables[:1] == ("length",) and best.loss < 1e-12


@pytest.mark.parametrize(
    ("pop", "table", "settings", "error", "message"),
    [
        ("p1[sight] * x1", TABLE, {}, DataError, "no column 'sight'"),
        ("p1[site] * x1 + p1", TABLE, {}, ArgumentError, "with a column and without"),
        (["p1[site] * x1", "p1[x1] + x1"], TABLE, {}, ArgumentError, "use two parameters"),
        ("p1 * x1", TABLE, {"groups": {"p2": "site"}}, ArgumentError, "there is no parameter 'p2'; there are p1"),
        ("p1[site] * x1", X, {}, ArgumentError, "takes a table X"),
        ("p1[site] * x1", {**TABLE, "site": [None, *SITE[1:]]}, {}, DataError, "lacks 1 of 40 categories"),
        ("p1[x1] * x1", {"x1": np.arange(200.0), "y": np.ones(200)}, {}, DataError, "a parameter can have 100"),
        ("p1[x1] * x1", TABLE, {}, DataError, "column 'x1' holds 40 different numbers at as many points"),
    ],
)
def test_what_is_no_group(pop, table, settings, error, message):
    with pytest.raises(error, match=message):
        ek.fit(pop, table, "y" if isinstance(table, dict) else Y, **settings)


def test_latex_of_groups_has_an_index_and_a_table_of_their_numbers():
    table = {**TABLE, "y": TABLE["y"] + 0.1 * np.random.default_rng(0).standard_normal(len(SITE))}
    found = ek.fit(["p1[site] * x1 + p2", "p1[site]^2 + p3[site]"], table, "y", dtype="float64")
    assert re.fullmatch(r"p_\{1,site\} \\cdot x_\{1\} [+-] [\d.]+", found[0].latex())
    assert found[1].latex() == "p_{1,site}^{2} + p_{3,site}"
    first, *tables = found.latex_table(errors=True).split("\n\n")
    assert r"\text" not in first and [table.count("$p_{") for table in tables] == [1, 2]
    rows = [line for line in tables[0].splitlines() if r"\pm" in line]
    names = found.pop.parameters
    for line, name in zip(rows, ("east", "north", "south"), strict=True):
        value, error = map(float, re.search(r"\$(-?[\d.]+) \\pm ([\d.]+)\$", line).groups())
        j = names.index(f"p1[{name}]")
        assert line.startswith(f"{name} & ") and value == pytest.approx(found.params[0, j], abs=error)
        assert error == pytest.approx(found.standard_errors[0, j], rel=0.1)


def test_a_category_that_the_fit_did_not_meet_is_refused():
    found = ek.fit("p1[site] * x1 + p2", TABLE, "y")
    with pytest.raises(DataError, match="category 'west'; the expressions know east, north, south"):
        found.predict({"x1": [1.0], "site": ["west"]})
