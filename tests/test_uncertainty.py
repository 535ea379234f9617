"""Intervals, bands and words about parameters: against formulas of books, fits one by one, and other programs."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy import stats

import exprkit as ek
from exprkit.errors import ArgumentError
from exprkit.fitting.uncertainty.minimum import Minimum

RANDOM = np.random.default_rng(0)
T = np.linspace(0, 4, 25)
Y = 5 * np.exp(-0.7 * T) + 0.1 * RANDOM.standard_normal(25)
LINE = 1 + 2 * T + 0.1 * RANDOM.standard_normal(25)
# treated cells of D. M. Bates and D. G. Watts, "Nonlinear Regression Analysis" (1988), table A1.3
PUROMYCIN = {
    "conc": [0.02, 0.02, 0.06, 0.06, 0.11, 0.11, 0.22, 0.22, 0.56, 0.56, 1.1, 1.1],
    "rate": [76.0, 47, 97, 107, 123, 139, 159, 152, 191, 201, 207, 200],
}


@pytest.fixture(scope="module")
def decay():
    pop = ek.parse("a * exp(-b * t) + c", variables=["t"], parameters=["a", "b", "c"])
    return ek.fit(pop, {"t": T, "y": Y}, "y", init=[[5, 1, 0]])[0]


@pytest.fixture(scope="module")
def line():
    return ek.fit("p1 + p2 * x1", T[:, None], LINE)[0]


# ── more than one formula ──

ALIKE = ["p1 + p2 * x1", "p1 * exp(p2 * x1)", "p1 + p2 * x1^2", "p1"]


def measured(seed):
    x = np.linspace(0, 1, 20)[:, None]
    y = np.exp(0.5 * x[:, 0]) + 0.08 * np.random.default_rng(seed).standard_normal(20)
    return ek.fit(ALIKE, x, y, init="ones", dtype="float64", loss="gaussian", backend="cpu")


@pytest.fixture(scope="module")
def several():
    return measured(3)


@pytest.mark.parametrize("by", ["bic", "aic", "description_length", "stacking"])
def test_weights_of_formulas_add_up_and_predictions_are_their_average(several, by):
    weights, X = several.model_weights(by), [[0.5], [3.0]]
    assert weights.sum() == pytest.approx(1) and weights.min() >= 0 and weights[3] < 0.01 < weights.max()
    together = several.average(X, by=by)["prediction"]  # by stacking a mean over bootstraps
    assert np.allclose(together, weights @ several.predict(X), rtol=0.1 if by == "stacking" else 1e-3)
    if by != "stacking":
        score = several.score(by)
        nats = (score[1] - score[0]) / (1 if by == "description_length" else 2)
        assert weights[0] / weights[1] == pytest.approx(np.exp(nats))


def test_weights_of_stacking_are_the_best_at_rows_left_out(several):
    x, y = several.goal.X, several.goal.y
    fold, left_out = np.random.default_rng(0).permutation(20) % 5, np.empty((20, 4))
    for k in range(5):
        part = ek.fit(ALIKE, x[fold != k], y[fold != k], init="ones", dtype="float64", backend="cpu")
        left_out[fold == k] = part.predict(x[fold == k]).T
    weights = several.model_weights("stacking", folds=5)
    tried = np.random.default_rng(1).dirichlet(np.ones(4), 500)
    losses = ((left_out @ tried.T - y[:, None]) ** 2).sum(axis=0)
    assert ((left_out @ weights - y) ** 2).sum() <= losses.min() * (1 + 1e-6)


def test_a_band_of_one_formula_alone_is_its_own_and_of_several_a_wider_one(several):
    X = [[0.5], [2.0]]
    assert np.allclose(several[[1]].average(X), several[1].bands(X), rtol=1e-9)
    both = several.average(X, kind="observation")
    assert (both["upper"] - both["lower"]).iloc[1] > np.ptp(several[1].bands(X, kind="observation").iloc[1, 1:])


def test_which_formulas_are_as_good_is_said_in_words(several):
    assert several.verdict().startswith("2 of 4 formulas are as good, by bic: p1 * exp(p2 * x1) (")
    assert several[[0, 3]].verdict().startswith("one of 2 formulas is the best, by bic: p1 + p2 * x1 (100 %); the next")
    with pytest.raises(ArgumentError, match="by must be"):
        several.model_weights("r2")
    with pytest.raises(ArgumentError, match="stacking is of squared errors"):
        ek.fit(ALIKE, several.goal.X, np.arange(20.0), loss="poisson").model_weights("stacking")


def test_a_formula_without_parameters_has_a_part_in_an_average():
    x = np.linspace(0, 1, 20)[:, None]
    y = np.exp(0.5 * x[:, 0]) + 0.08 * np.random.default_rng(3).standard_normal(20)
    found, new = ek.fit(["exp(x1 / 2)", "p1 + p2 * x1"], x, y, loss="gaussian"), [[0.5], [1.0]]
    weights, both = found.model_weights(), found.average(new)
    assert weights[0] > 0.2 and np.allclose(both["prediction"], weights @ found.predict(new))
    alone, measured_again = found[[0]].average(new), found[[0]].average(new, kind="observation")
    np.testing.assert_allclose(found[0].bands(new, kind="observation"), measured_again, rtol=1e-6)
    np.testing.assert_allclose(alone[["lower", "upper"]].T, [np.exp([0.25, 0.5])] * 2, rtol=1e-9)
    half = stats.t.ppf(0.975, 20) * np.sqrt(np.mean(found.residuals(0) ** 2))
    np.testing.assert_allclose(measured_again["upper"] - alone["prediction"], half, rtol=1e-6)


def test_predictions_have_bands_where_the_data_determine_them_though_not_the_parameters():
    x, new = np.linspace(0.1, 1, 20)[:, None], [[0.5], [2.0]]
    y = x[:, 0] / (0.5 + x[:, 0]) + 0.02 * np.random.default_rng(0).standard_normal(20)
    texts = ["p1 * x1 / (p2 + x1)", "p1 / (p2 / x1 + p3)", "p1 * p3 * x1 / (p2 + x1)"]
    two, *more = (fitted.bands(new, 0.9, "observation") for fitted in ek.fit(texts, x, y))
    for three in more:
        np.testing.assert_allclose(three, two, rtol=1e-6)
    bounded, fixed = (
        ek.fit(text, x, y, bounds=side)[0] for text, side in ((texts[0], (0.6, 5)), ("p1 * x1 / (0.6 + x1)", None))
    )
    np.testing.assert_allclose(bounded.bands(new, kind="observation"), fixed.bands(new, kind="observation"), rtol=1e-6)
    beyond = ek.fit(["p1 * x1", "p1 * x1 + p2 * max(x1 - 1, 0)"], x, y)
    assert np.isnan(beyond[1].bands(new)["upper"]).tolist() == [False, True]
    with pytest.raises(ArgumentError, match=r"p1 \* x1 \+ p2 \* max\(x1 - 1, 0\) has no band"):
        beyond.average(new)


def test_derivatives_without_end_are_told():
    x = np.array([[0.5], [1.0], [2.0]])
    fitted = ek.fit("sqrt(p1) * x1 + p2", x, 1 - 0.1 * x[:, 0], init=[0.0, 1.0])[0]
    with pytest.raises(ArgumentError, match=r"the derivatives of sqrt.* are not finite at 3 of 3 points"):
        fitted.bands(x)


# ── intervals ──


def test_an_interval_by_the_delta_method_is_student_s_t_times_the_error(decay):
    table = decay.intervals(0.9)
    assert list(table.index) == ["a", "b", "c"] and list(table) == ["value", "error", "lower", "upper"]
    reach = stats.t.ppf(0.95, 22) * decay.standard_errors
    np.testing.assert_allclose(table["upper"] - decay.params, reach)
    np.testing.assert_allclose(decay.params - table["lower"], reach)
    known = ek.fit("p1 + p2 * x1", T[:, None], LINE, weights=np.full(25, 100.0), loss="gaussian")[0].intervals()
    np.testing.assert_allclose(known["upper"] - known["value"], stats.norm.ppf(0.975) * known["error"])


def test_profiles_of_a_line_are_its_intervals(line):
    np.testing.assert_allclose(line.intervals(method="profile"), line.intervals(), rtol=1e-5)


def test_profiles_are_those_of_the_book():
    """As R's confint prints them for the same fit by nls; it takes the ends from a spline."""
    ends = ek.fit("p1 * conc / (p2 + conc)", PUROMYCIN, "rate")[0].intervals(method="profile")
    np.testing.assert_allclose(ends.loc["p1", ["lower", "upper"]], [197.30213, 229.29006], rtol=2e-4)
    np.testing.assert_allclose(ends.loc["p2", ["lower", "upper"]], [0.04692517, 0.08615995], rtol=2e-4)


@pytest.mark.parametrize("loss", ["squares", "gaussian", "poisson", "(f - y)^2", "f - y * log(f)"])
def test_at_the_ends_of_a_profile_the_loss_has_risen_by_the_quantile(loss):
    counts = np.random.default_rng(1).poisson(20 * np.exp(-0.7 * T) + 3).astype(float)
    few = {"p1": (0, None), "p2": (0, None)}
    found = ek.fit("p1 * exp(-p2 * x1) + 3", T[:, None], counts, loss=loss, init=[[20, 0.7]], dtype="float64")
    ends = found[0].intervals(method="profile")
    is_scaled = loss in ("squares", "gaussian", "(f - y)^2")
    for name in few:
        for side in ("lower", "upper"):
            at = ends.loc[name, side]
            fixed = ek.fit("p1 * exp(-p2 * x1) + 3", T[:, None], counts, loss="squares" if is_scaled else "poisson",
                           init=found.params, bounds={name: (at, at)}, dtype="float64").loss[0]  # fmt: skip
            sse = np.sum(found.residuals(0) ** 2)
            if is_scaled:
                assert (fixed - sse) / (sse / 23) == pytest.approx(stats.t.ppf(0.975, 23) ** 2, rel=1e-4)
            else:
                least = ek.fit("p1 * exp(-p2 * x1) + 3", T[:, None], counts, loss="poisson", init=found.params)
                assert 2 * (fixed - least.loss[0]) == pytest.approx(stats.chi2.ppf(0.95, 1), rel=1e-4)


def test_a_profile_ends_at_a_bound_or_nowhere():
    y = 1 + 0.3 * np.random.default_rng(0).standard_normal(25)
    flat = ek.fit("p1 * exp(-p2 * x1)", T[:, None], y, bounds={"p1": (0.95, 9)})[0].intervals(method="profile")
    assert flat.loc["p1", "lower"] == 0.95 < flat.loc["p1", "upper"] < 2
    open_end = ek.fit("p1 * exp(-p2^2 * x1)", T[:, None], y, init=[[1, 0.1]])[0]
    both = ek.fit("p1 * p2 + 0 * p1", T[:, None], y)[0].intervals(method="profile")
    assert np.isinf(both[["lower", "upper"]].to_numpy()).all()
    assert open_end.intervals(method="profile").loc["p2", "upper"] < 1


def test_a_profile_that_meets_a_better_fit_says_where():
    y = np.sin(3 * T) + 0.1 * np.random.default_rng(0).standard_normal(25)
    wrong = ek.fit("sin(p1 * x1)", T[:, None], y, init=[[6.0]])[0]
    with pytest.raises(ArgumentError, match=r"meets a better fit than this: fit again with init=\["):
        wrong.intervals(method="profile")


@pytest.mark.parametrize("resample", ["residuals", "pairs", "parametric"])
def test_a_bootstrap_agrees_with_the_errors_of_many_points(resample):
    x = np.linspace(0, 4, 200)
    y = 5 * np.exp(-0.7 * x) + 0.1 * np.random.default_rng(5).standard_normal(200)
    one = ek.fit("p1 * exp(-p2 * x1)", x[:, None], y)[0]
    table = one.intervals(method="bootstrap", resample=resample, n=1000, seed=3)
    np.testing.assert_allclose(table["error"], one.standard_errors, rtol=0.15)
    np.testing.assert_allclose(table[["lower", "upper"]], one.intervals()[["lower", "upper"]], rtol=0.01)
    again = one.intervals(method="bootstrap", resample=resample, n=1000, seed=3)
    assert table.equals(again) and not table.equals(one.intervals(method="bootstrap", resample=resample, n=1000))


@pytest.mark.parametrize("loss", ["squares", "poisson", "huber"])
def test_refits_are_those_of_single_fits(loss):
    w = np.linspace(0.5, 2, 25) if loss == "squares" else None
    found = ek.fit("p1 * exp(-p2 * x1)", T[:, None], np.abs(Y), loss=loss, weights=w, dtype="float64")
    least = Minimum.of(found)
    drawn = np.random.default_rng(2).multinomial(25, np.full(25, 0.04), 3).astype(float)
    fit = least._fit_columns if loss == "squares" else least._fit_one
    params = np.vstack([fit(drawn[k : k + 1], True) for k in range(3)])
    for counts, own in zip(drawn, params, strict=True):
        weights = counts * (1 if w is None else w)
        one = ek.fit("p1 * exp(-p2 * x1)", T[:, None], np.abs(Y), loss=loss, weights=weights, dtype="float64")
        np.testing.assert_allclose(own, one.params[0], rtol=1e-5)


def test_what_a_way_cannot_do_is_said(line):
    robust = ek.fit("p1 + p2 * x1", T[:, None], LINE, loss="huber")[0]
    exact = ek.fit("p1 + p2 * x1", T[:2, None], LINE[:2])[0]
    prior = ek.fit("p1 + p2 * x1", T[:, None], LINE, prior={"p1": (1, 0.1)})[0]
    for work, message in (
        (lambda: line.intervals(method="profil"), "did you mean 'profile'"),
        (lambda: line.intervals(1.5), "level must be a number between 0 and 1"),
        (lambda: line.intervals(method="bootstrap", n=1), "n must be"),
        (lambda: robust.intervals(method="profile"), "a profile needs a likelihood"),
        (lambda: robust.intervals(method="bootstrap"), "take resample='pairs'"),
        (lambda: exact.intervals(method="profile"), "as many parameters as points"),
        (lambda: exact.intervals(method="bootstrap"), "by residuals needs residuals: the fit is exact"),
        (lambda: prior.intervals(method="bootstrap"), "take resample='parametric'"),
        (lambda: ek.fit("x1", T[:, None], LINE)[0].intervals(), "there is no fitted parameter"),
        (lambda: line.contour("p1", "p3"), "two of the parameters p1, p2"),
        (lambda: line.contour("p1", "p2", levels=()), "levels must be numbers between 0 and 1"),
        (lambda: line.bands(T[:, None], kind="median"), "kind must be one of"),
        (lambda: robust.bands(T[:, None], kind="observation"), "normal errors"),
    ):
        with pytest.raises(ArgumentError, match=message):
            work()


def test_a_bootstrap_gives_no_errors_of_what_the_data_do_not_determine():
    one = ek.fit("p1 * exp(-p2 * x1 + p3)", T[:, None], Y)[0]
    table = one.intervals(method="bootstrap", n=50)
    assert table["error"].isna().tolist() == table["lower"].isna().tolist() == [True, False, True]
    robust = ek.fit("p1 + p2 * x1", T[:, None], LINE, loss="mae")[0]
    assert robust.intervals(method="bootstrap", resample="pairs", n=20).notna().all(axis=None)


def test_a_prior_is_part_of_a_profile():
    one = ek.fit("p1 + p2 * x1", T[:, None], LINE, prior={"p1": (1, 0.1)})[0]
    np.testing.assert_allclose(one.intervals(method="profile"), one.intervals(), rtol=1e-5)
    assert len(one.intervals(method="bootstrap", resample="parametric", n=20)) == 2


# ── two parameters ──


def test_correlations_are_those_of_the_covariance(decay):
    table, C = decay.correlation(), decay._result.covariance[0]
    assert list(table) == list(table.index) == ["a", "b", "c"]
    assert table.loc["b", "c"] == pytest.approx(C[1, 2] / np.sqrt(C[1, 1] * C[2, 2]))


def test_a_contour_of_a_line_is_an_ellipse(line):
    axes = line.contour("p1", "p2", levels=(0.95,), n=41).axes[0]
    (border,) = axes.collections[0].get_paths()
    away, C = border.vertices - line.params, line._result.covariance[0]
    distances = np.einsum("ni,ij,nj->n", away, np.linalg.inv(C), away)
    np.testing.assert_allclose(distances, 2 * stats.f.ppf(0.95, 2, 23), rtol=0.02)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("p1", "p2")


def test_a_region_of_parameters_that_depend_on_each_other_is_one_ridge():
    x = np.linspace(290, 340, 12)
    y = 2.5e11 * np.exp(-75e3 / (8.314462618 * x)) * (1 + 0.05 * np.random.default_rng(5).standard_normal(12))
    one = ek.fit("arrhenius(x1; a, e)", x[:, None], y, weights=1 / (0.05 * y) ** 2, loss="gaussian")[0]
    axes = one.contour("a", "e").axes[0]
    borders = [path for path in axes.collections[0].get_paths() if len(path.vertices)]
    (a, b) = one.intervals(0.683, method="profile")[["lower", "upper"]].to_numpy()
    for side, limits, ends in zip(borders[-1].vertices.T, (axes.get_xlim(), axes.get_ylim()), (a, b), strict=True):
        assert limits[0] < side.min() < ends[0] < ends[1] < side.max() < limits[1]
    assert [int(np.sum(path.codes == 1)) for path in borders] == [1, 1]


@pytest.mark.parametrize(("text", "words"), [
    ("p1 * p2 * exp(-p3 * x1)", ["p1 and p2 cannot be told apart: only p1 * p2"]),
    ("p1 * exp(-p2 * x1 + p3)", ["p1 and p3 cannot be told apart: fix 1 of them"]),
    ("p1 / p2^2 * exp(-p3 * x1)", ["p1 and p2 cannot be told apart: only p1 / p2^2"]),
    ("exp(p1 - 2 * p2 - p3 * x1)", ["p1 and p2 cannot be told apart: only p1 - 2 * p2"]),
    ("(p1 + p2 + p4) * exp(-p3 * x1)", ["p1, p2 and p4 cannot be told apart: fix 2 of them"]),
    ("p1 * exp(-p2 * x1) + 0 * p3", ["p3 changes no value at the data points: leave it out, or fix it"]),
    ("p1 * exp(-p2 * x1)", []),
])  # fmt: skip
def test_what_cannot_be_told_apart_is_named(text, words):
    assert ek.fit(text, T[:, None], Y)[0].identifiability() == words


def test_what_is_hard_to_tell_apart_is_named():
    x = 2000 + T
    (sentence,) = ek.fit("p1 + p2 * x1", x[:, None], LINE)[0].identifiability()
    assert sentence.startswith("p1 and p2 are hard to tell apart: their correlation is -1.0")


# ── bands ──


def test_bands_of_a_line_are_those_of_the_books(line):
    new = np.array([[0.0], [2.0], [9.0]])
    s2 = np.sum((LINE - line(T[:, None])) ** 2) / 23
    variance = s2 * (1 / 25 + (new[:, 0] - T.mean()) ** 2 / np.sum((T - T.mean()) ** 2))
    for kind, own in (("mean", 0.0), ("observation", s2)):
        table = line.bands(new, 0.9, kind)
        np.testing.assert_allclose(table["prediction"], line(new))
        np.testing.assert_allclose(table["upper"] - line(new), stats.t.ppf(0.95, 23) * np.sqrt(variance + own))


def test_bands_by_bootstrap_are_about_as_wide(decay):
    new = {"t": [0.5, 2.0, 3.5]}
    for kind in ("mean", "observation"):
        wide, other = (decay.bands(new, 0.8, kind, method, n=2000) for method in ("delta", "bootstrap"))
        ratio = (other["upper"] - other["lower"]) / (wide["upper"] - wide["lower"])
        assert np.abs(ratio - 1).max() < 0.15


def test_an_observation_of_a_weighted_fit_has_a_weight():
    table = {"t": T, "y": LINE, "w": 1 / (0.05 + 0.05 * T) ** 2}
    one = ek.fit("p1 + p2 * t", table, "y", weights="w", loss="gaussian")[0]
    with pytest.raises(ArgumentError, match="takes those of the new points as weights="):
        one.bands(table, kind="observation")
    mean, both = one.bands(table), one.bands(table, kind="observation", weights="w")
    squares = ((both["upper"] - both["prediction"]) ** 2 - (mean["upper"] - mean["prediction"]) ** 2) * table["w"]
    np.testing.assert_allclose(squares, stats.norm.ppf(0.975) ** 2)


# ── reports ──


def test_a_report_says_what_lmfit_s_does(decay):
    text = decay.report()
    statistics = dict(line.split(" = ") for line in text.splitlines() if line.startswith("    ") and " = " in line)
    statistics = {name.strip(): value for name, value in statistics.items()}
    sse = np.sum(decay._result.residuals(0) ** 2)
    assert float(statistics["squares"]) == pytest.approx(sse)
    assert float(statistics["reduced chi-square"]) == pytest.approx(sse / 22)
    assert statistics["# data points"] == "25" and statistics["# variables"] == "3"
    assert float(statistics["C(b, c)"]) == pytest.approx(decay.correlation().loc["b", "c"], abs=1e-4)
    value, error = re.search(r"a: (\S+) \+/- (\S+) \(", text).groups()
    assert (float(value), float(error)) == pytest.approx((decay.params[0], decay.standard_errors[0]))
    assert "[[Identifiability]]" not in text
    open_one = ek.fit("p1 * p2 * exp(-p3 * x1)", T[:, None], Y)[0].report()
    assert "only p1 * p2" in open_one and "p1: " in open_one and "(no standard error)" in open_one


def test_a_report_s_html_is_escaped_and_complete():
    table = {"<b>": T, "y": LINE}
    report = ek.fit("p1 + p2 * `<b>`", table, "y")[0].report(figure=True)
    page = report._repr_html_()
    assert "<b>" not in page and "&lt;b&gt;" in page and '<img src="data:image/png;base64,' in page


@pytest.mark.parametrize("text, y", [("p1 + p2 * x1", 2 * T), ("x1", LINE), ("p1 + x1 + p2", LINE[:1])])
def test_a_report_without_errors_shows_the_curve_and_what_is_left(text, y):
    report = ek.fit(text, T[: len(y), None], y)[0].report(figure=True)
    assert [len(axes.lines) for axes in report.figure.axes] == [2, 2] and "[[Fit Statistics]]" in report
    assert ("[[Variables]]" in report) == ("p1" in text)


def test_known_errors_have_a_chi_square_and_its_probability():
    weights = np.full(25, 100.0)
    one = ek.fit("p1 + p2 * x1", T[:, None], LINE, weights=weights, loss="gaussian")[0]
    chi = np.sum(100 * (LINE - one(T[:, None])) ** 2)
    wanted = f"chi-square         = {chi:.8g}, 23 degrees of freedom: p = {stats.chi2.sf(chi, 23):.3g}"
    assert wanted in one.report()


def test_tied_parameters_are_reported():
    one = ek.fit("p1 + p2 * x1", T[:, None], LINE, ties={"p2": "2 * p1"})[0]
    value, error = one.tied["p2"]
    assert f"p2 (tied): {value:.8g} +/- {error:.8g}" in one.report()


def test_diagnostics_are_those_of_the_books(line):
    fit, over, _, lever, cook, profile, pulls, pairs = line.diagnostics().axes[:8]
    np.testing.assert_allclose(pairs.images[0].get_array(), line.correlation())
    hat = 1 / 25 + (T - T.mean()) ** 2 / np.sum((T - T.mean()) ** 2)
    heights = [part[1, 1] for part in lever.collections[0].get_segments()]
    np.testing.assert_allclose(heights, hat)
    r, s2 = LINE - line(T[:, None]), np.sum((LINE - line(T[:, None])) ** 2) / 23
    np.testing.assert_allclose(over.lines[1].get_ydata(), r / np.sqrt(s2 * (1 - hat)))
    distances = [part[1, 1] for part in cook.collections[0].get_segments()]
    np.testing.assert_allclose(distances, r**2 * hat / (2 * s2 * (1 - hat) ** 2))
    np.testing.assert_allclose(pulls.lines[1].get_ydata(), np.sort(np.abs(r)) / np.sqrt(s2))  # of the intercept
    for curve in profile.lines[1:]:
        np.testing.assert_allclose(curve.get_ydata(), curve.get_xdata(), atol=1e-5)
    assert len(fit.collections) == 2 and fit.get_xlabel() == "x1"
    with pytest.raises(ArgumentError, match="diagnostics are of squared errors"):
        ek.fit("p1 + p2 * x1", T[:, None], LINE, loss="huber")[0].diagnostics()
