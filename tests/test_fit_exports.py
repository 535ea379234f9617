"""Fits as JSON and for ArviZ."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from scipy import stats

import exprkit as ek
from exprkit.errors import ArgumentError, DamagedFileError, NoSuchFileError

T = np.linspace(0, 4, 25)
Y = 5 * np.exp(-0.7 * T) + 0.1 * np.random.default_rng(0).standard_normal(25)
TABLE = {"time (s)": T, "y": Y}
FORMULAS = ["p1 * exp(-p2 * `time (s)`)", "p1 + p2 * `time (s)` + p3 - p3", "1 / `time (s)`"]


@pytest.fixture(scope="module")
def found():
    return ek.fit(FORMULAS, TABLE, "y", bounds={"p1": (0, 6)}, ties={"p3": "p1 / 2"})


# ── JSON ──


def test_json_comes_back(found, tmp_path):
    text = found.to_json(tmp_path / "fit.json", units={"time (s)": "s"})
    for again in (ek.read_json(text), ek.read_json(tmp_path / "fit.json")):
        assert again.pop.texts() == found.pop.texts() and again.reason == found.reason
        for name in ("params", "loss", "r2", "covariance", "standard_errors", "at_bound", "converged", "iterations"):
            np.testing.assert_array_equal(getattr(again, name)[:2], getattr(found, name)[:2], err_msg=name)
        np.testing.assert_array_equal(again.predict(TABLE), found.predict(TABLE))
        assert again[0].latex(errors=True) == found[0].latex(errors=True) and again[0].tied == found[0].tied
        for by in ("aic", "bic"):
            np.testing.assert_array_equal(again.score(by)[:2], found.score(by)[:2])
        assert again.units == {"time (s)": "s"} and again[:1].to_json(units={"y": "V"}).count('"unit": "') == 2
        with pytest.raises(ArgumentError, match="a fit has to hold its data for this"):
            again[0].bands(TABLE)
        with pytest.raises(ArgumentError, match="does not hold its data has no description_length"):
            again.rank("description_length")


def test_units_are_kept_by_files(found, tmp_path):
    known = ek.read_json(found.to_json(units={"time (s)": "s", "y": "µV/√Hz"}))
    found[:1].save(tmp_path / "fit.npz")
    assert ek.load(tmp_path / "fit.npz").units == {}
    one = found[:1]
    one.units = known.units
    one.save(tmp_path / "fit.npz")
    assert ek.load(tmp_path / "fit.npz").units == known.units


def test_json_is_what_its_schema_says(found, root):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((root / ".docs" / "_static" / "fit.schema.json").read_text())
    nothing = ek.fit(["p1 * x1", "log(p1 * x1)"], T[:, None], -Y, loss="mae", weights=Y > 1)
    for one in (found, nothing):
        record = json.loads(one.to_json(), parse_constant=pytest.fail)  # no NaN, no Infinity
        jsonschema.validate(record, schema)
    w = np.float64(Y > 1)
    assert record["data_sha256"] == hashlib.sha256(b"".join(a.astype("<f8").tobytes() for a in (T, -Y, w))).hexdigest()


def test_what_is_no_fit_in_json_is_told(found, tmp_path):
    text = found.to_json()
    for bad, message in (
        ("{", "is not a fit in JSON"), ("{}", "it has no 'format'"), (text.replace("fit, 1", "fit, 9"), "its format"),
        (text.replace("exp(", "expo("), "a formula cannot be read"),
        (text.replace('"params": [', '"params": [1,', 1), "shape"),
        (text.replace('"status": ', '"status": 9'), "status"),
    ):  # fmt: skip
        with pytest.raises(DamagedFileError, match=message):
            ek.read_json(bad)
    with pytest.raises(NoSuchFileError):
        ek.read_json(tmp_path / "none.json")
    with pytest.raises(ArgumentError, match=r"units must be texts by the names time \(s\), y"):
        found.to_json(units={"time": "s"})


def test_errors_of_a_loss_of_one_s_own_are_in_json_and_not_in_npz(tmp_path):
    own = ek.fit("p1 * exp(-p2 * x1)", T[:, None], Y, loss="(f - y)^2 / 2")
    own.save(tmp_path / "own.npz")
    again = ek.load(tmp_path / "own.npz")
    assert np.isnan(again.standard_errors).all() and np.isnan(again.robust_errors).all()
    np.testing.assert_array_equal(ek.read_json(own.to_json()).standard_errors, own.standard_errors)


# ── ArviZ ──


def test_draws_are_those_of_the_posterior():
    pytest.importorskip("xarray")
    line = ek.fit("p1 + p2 * x1", T[:, None], 1 + 2 * T + Y / 5, weights=np.where(T > 0, 1.0, 0.0))[0]
    tree = line.to_inference_data(n=40_000, seed=1)
    posterior = tree["posterior"]
    assert posterior["p1"].shape == (1, 40_000) and posterior["p1"].dims == ("chain", "draw")
    for name, p, error in zip(line.names, line.params, line.standard_errors, strict=True):
        away = (posterior[name].values[0] - p) / error
        assert stats.kstest(away, stats.t(22).cdf).statistic < 0.01  # of a linear model: Student's t
    assert np.corrcoef(posterior["p1"].values, posterior["p2"].values)[0, 1] == pytest.approx(
        line.correlation().loc["p1", "p2"], abs=0.01
    )
    likely = tree["log_likelihood"]["y"]
    assert likely.dims == ("chain", "draw", "row") and likely["row"].values.tolist() == list(range(1, 25))
    p1, p2, sigma = (float(posterior[name][0, 7]) for name in ("p1", "p2", "sigma"))
    expected = stats.norm.logpdf((1 + 2 * T + Y / 5)[1:], p1 + p2 * T[1:], sigma)
    np.testing.assert_allclose(likely.values[0, 7], expected)
    assert set(tree["constant_data"]) == {"x1", "weights"} and tree["observed_data"]["y"].shape == (24,)


def test_other_losses_have_what_they_can(found):
    pytest.importorskip("xarray")
    counts = ek.fit("p1 * exp(-p2 * x1)", T[:, None], np.round(9 * Y.clip(0)), loss="poisson")[0]
    tree = counts.to_inference_data(n=10)
    assert set(tree["posterior"]) == {"p1", "p2"}
    mean = float(tree["posterior"]["p1"][0, 3]) * np.exp(-float(tree["posterior"]["p2"][0, 3]) * T)
    likely = stats.poisson.logpmf(np.round(9 * Y.clip(0)), mean)
    np.testing.assert_allclose(tree["log_likelihood"]["y"].values[0, 3], likely)
    robust = ek.fit("p1 * exp(-p2 * x1)", T[:, None], Y, loss="huber")[0]
    assert set(robust.to_inference_data(n=10).children) == {"posterior", "observed_data", "constant_data"}
    drawn = found[0].to_inference_data("bootstrap", n=20, seed=4)["posterior"]
    np.testing.assert_array_equal(drawn["p1"].values[0], found[0]._minimum.bootstrap("residuals", 20, 4)[:, 0])
    with pytest.raises(ArgumentError, match="no draws of p1, p2, which have no standard error"):
        ek.fit("p1 * p2 * x1", T[:, None], Y)[0].to_inference_data()


def test_arviz_reads_them(found):
    az = pytest.importorskip("arviz")
    tree = found[0].to_inference_data(n=2000)
    data = az.InferenceData.from_datatree(tree) if hasattr(az, "InferenceData") else tree
    summary = az.summary(data, kind="stats", round_to=6)
    assert float(summary.loc["p1", "mean"]) == pytest.approx(found[0].params[0], abs=0.01)
    assert float(summary.loc["p1", "sd"]) == pytest.approx(found[0].standard_errors[0], rel=0.1)
    n, k = 25, 2  # of the leave-one-out estimate a least-squares fit is near AIC
    loo = az.loo(data)
    aic = ek.fit(FORMULAS[0], TABLE, "y", loss="gaussian").score("aic")[0]
    assert -2 * float(getattr(loo, "elpd_loo", getattr(loo, "elpd", np.nan))) == pytest.approx(
        aic, abs=4 * k * k / n + 4
    )
