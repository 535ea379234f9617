"""Standard models: each found again in data of its own without a start; texts that call them; what is no model."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import exprkit as ek
from exprkit.errors import ArgumentError, DataError, ParseError

L, G = np.linspace, np.geomspace
DRAWS = {  # x, then for each parameter where it is drawn from: evenly, where both ends are positive in its logarithm
    "line": (L(0, 10, 40), (-5, 5), (-5, 5)),
    "parabola": (L(-3, 5, 40), (-2, 2), (-5, 5), (-5, 5)),
    "cubic": (L(-3, 3, 50), (-2, 2), (-2, 2), (-3, 3), (-3, 3)),
    "exponential_decay": (L(0, 50, 60), (1, 1e4), (0.03, 0.5)),
    "decay_to_offset": (L(0, 600, 80), (5, 80), (0.003, 0.05), (5, 40)),
    "double_decay": (L(0, 30, 150), (5, 20), (0.8, 2), (5, 20), (0.05, 0.2)),
    "stretched_exponential": (G(1e-3, 1e3, 80), (0.5, 5), (0.1, 10), (0.3, 0.9)),
    "growth": (L(0, 10, 40), (0.1, 10), (0.1, 0.8)),
    "saturation": (L(0, 40, 60), (0.1, 300), (0.05, 0.5)),
    "rise_and_decay": (L(0, 24, 80), (5, 100), (0.08, 0.2), (0.6, 2)),
    "gaussian": (L(400, 700, 120), (1, 1000), (450, 650), (8, 40)),
    "lorentzian": (L(1000, 1100, 120), (1, 1000), (1020, 1080), (2, 12)),
    "pseudo_voigt": (L(20, 40, 200), (10, 5000), (25, 35), (0.5, 2), (0.1, 0.9)),
    "lognormal": (L(0.5, 100, 120), (1, 100), (8, 40), (0.2, 0.6)),
    "skew_gaussian": (L(0, 20, 150), (1, 50), (5, 12), (0.8, 2.5), (0.8, 3)),
    "resonance": (L(20, 80, 120), (100, 1000), (35, 65), (2, 8)),
    "sine": (L(0, 2, 200), (0.5, 20), (1, 20), (-3, 3), (-5, 5)),
    "damped_oscillation": (L(0, 10, 300), (0.5, 20), (0.1, 0.5), (0.5, 4), (-3, 3)),
    "logistic": (L(1790, 1990, 60), (100, 500), (0.02, 0.08), (1850, 1930)),
    "gompertz": (L(0, 100, 60), (1, 1000), (0.05, 0.2), (15, 50)),
    "richards": (L(0, 100, 80), (5, 500), (0.08, 0.3), (20, 60), (0.3, 3)),
    "weibull": (L(0, 50, 60), (1, 100), (8, 25), (0.8, 4)),
    "hill": (G(0.01, 1000, 40), (1, 100), (0.5, 50), (0.7, 4)),
    "dose_response": (G(1e-9, 1e-4, 40), (1, 20), (50, 120), (1e-8, 1e-5), (0.7, 2)),
    "michaelis_menten": (L(0, 100, 40), (1, 200), (5, 60)),
    "haldane": (L(0, 200, 60), (5, 200), (5, 30), (40, 200)),
    "monod": (L(0, 20, 40), (0.3, 2), (0.5, 5), (0.05, 0.3)),
    "langmuir": (L(0, 50, 40), (1, 300), (0.02, 0.5)),
    "freundlich": (L(0.5, 80, 40), (0.5, 30), (1.3, 4)),
    "power_law": (G(1, 1000, 40), (0.01, 100), (-2, 2)),
    "power_law_offset": (L(1, 50, 60), (0.5, 5), (0.5, 2), (5, 50)),
    "pade_11": (L(0, 10, 40), (-5, 5), (1, 10), (0.1, 2)),
    "pade_22": (L(0, 10, 80), (1, 5), (-3, 3), (1, 5), (0.1, 0.5), (0.3, 2)),
    "arrhenius": (L(290, 420, 40), (1e8, 1e13), (4e4, 9e4)),
    "antoine": (L(10, 110, 40), (7, 8.5), (1300, 1800), (200, 240)),
    "steinhart_hart": (G(1e3, 1e5, 40), (1.0e-3, 1.4e-3), (2.2e-4, 2.6e-4), (0.8e-7, 1.2e-7)),
    "planck": (L(0.2, 20, 80), (0.1, 50), (0.3, 1.5)),
    "van_genuchten": (G(1, 15000, 60), (0.35, 0.5), (0.02, 0.1), (0.005, 0.1), (1.3, 2.5)),
    "butler_volmer": (L(-0.12, 0.12, 60), (1e-3, 1), (12, 26), (12, 26)),
    "diode": (L(0.05, 0.6, 60), (1e-9, 1e-6), (0.025, 0.05)),
    "morse": (L(0.6, 4, 80), (1, 10), (1, 3), (0.9, 1.6)),
}  # fmt: skip


def simulated(name: str, seed: int, noise: float = 0.01) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(X, y, parameters) of a draw; the noise as a share of the largest value."""
    x, *ranges = DRAWS[name]
    random = np.random.default_rng(seed)
    true = [
        low * (high / low) ** u if low > 0 else low + u * (high - low)
        for (low, high), u in zip(ranges, random.random(len(ranges)), strict=True)
    ]
    f = getattr(ek.models, name)(x[:, None], true)
    return x[:, None], f + noise * np.abs(f).max() * random.standard_normal(len(x)), np.array(true)


def fits_of(name: str, seed: int, noise: float = 0.01) -> tuple[ek.FitResult, ek.FitResult]:
    """The fits of a model to a draw without a start and from the truth."""
    X, y, true = simulated(name, seed, noise)
    model = getattr(ek.models, name)
    return ek.fit(model, X, y, backend="cpu"), ek.fit(model, X, y, init=true[None], backend="cpu")


def is_recovered(found: ek.FitResult, best: ek.FitResult) -> bool:
    """Whether a fit without a start ends where the one from the truth does."""
    return bool(found.converged[0] and found.loss[0] <= 1.001 * best.loss[0])


@pytest.mark.parametrize("name", ek.models.names())
def test_a_model_is_recovered_without_a_start(name):
    assert is_recovered(*fits_of(name, 0))


def test_every_model_says_what_it_is():
    assert len(ek.models.names()) >= 35 and set(ek.models.names()) < set(dir(ek.models))
    for name in ek.models.names():
        model = getattr(ek.models, name)
        assert model.name == name and model.field and name in repr(model)
        assert set(model.positive) <= set(model.parameters)
        assert model == ek.parse(model.formula, parameters=model.parameters)[0] == pickle.loads(pickle.dumps(model))
        assert ek.models.parse(model.call)[0] == model, "the call with a model's own names is the model"


def test_a_guess_is_near_the_fit_and_starts_it():
    X, y, true = simulated("gaussian", 1)
    start = ek.models.gaussian.guess(X[:, 0], y)
    assert list(start) == ["a", "c", "w"] and list(start.values()) == pytest.approx(true, rel=0.1)
    assert ek.fit(ek.models.gaussian, X, y, init=start).params[0] == pytest.approx(true, rel=0.05)
    with pytest.raises(DataError, match="a guess needs data"):
        ek.models.line.guess([], [])
    assert ek.models.line.guess({"t": [0, 1, 2, 3]}, [1, 3, 5, 7]) == pytest.approx({"k": 2, "m": 1})


def test_positive_parameters_are_kept_so_unless_bounds_say_otherwise():
    x = np.linspace(0, 5, 30)
    rising, bounds = np.exp(0.3 * x), {"k": (-1, 1)}
    assert ek.fit(ek.models.decay_to_offset, x[:, None], rising).params[0, 1] >= 0
    free = ek.fit(ek.models.decay_to_offset, x[:, None], rising, bounds=bounds)
    assert free.params[0] == pytest.approx([1, -0.3, 0], abs=1e-5)
    text = "decay_to_offset(t; a[cup], k[cup], c)"
    table = {
        "t": np.tile(x, 2),
        "cup": ["a"] * 30 + ["b"] * 30,
        "y": np.append(5 * np.exp(-0.3 * x), np.exp(-2 * x)) + 1,
    }
    found = ek.fit(text, table, "y")
    assert found[0].names == ["a[a]", "a[b]", "k[a]", "k[b]", "c"]
    assert found.params[0] == pytest.approx([5, 1, 0.3, 2, 1], rel=1e-4)
    assert found.goal.lower[0].tolist() == [-np.inf, -np.inf, 0, 0, -np.inf]


# ── in texts ──


@pytest.mark.parametrize(
    ("text", "formula", "parameters"),
    [
        ("gaussian(x1; a, c, w) + line(x1; k, m)", "a * exp(-((x1 - c) / w)^2 / 2) + (k * x1 + m)", "a c w k m"),
        ("line(log(x1); b, 0) * line(x2; b, -b^2)", "(b * log(x1) + 0) * (b * x2 + -b^2)", "b"),
        ("exp(line(x1; k, exp(m) * pi))", "exp(k * x1 + exp(m) * pi)", "k m"),
        ("line(line(x1; a, 1e-3); b, 2)", "b * (a * x1 + 1e-3) + 2", "a b"),
        ("p1 * line(x1; p2, x2) + p3", "p1 * (p2 * x1 + x2) + p3", "p1 p2 p3"),
    ],
)
def test_calls_stand_for_formulas(text, formula, parameters):
    pop = ek.models.parse(text, variables=["x1", "x2"])
    assert pop == ek.parse([formula], variables=2, parameters=parameters.split())


def test_names_of_columns_stay_what_they_are():
    t = np.linspace(0, 20, 80)
    table = {"t (min)": t, "y": 4 * np.exp(-0.5 * t) + 0.25 * t}
    found = ek.fit("exponential_decay(`t (min)`; a, k) + line(`t (min)`; b, 0)", table, "y")
    assert found[0].names == ["a", "k", "b"] and found.pop.variables == ("t (min)",)
    assert found.params[0] == pytest.approx([4, 0.5, 0.25], rel=1e-4)
    assert ek.fit(ek.models.line, {"k": t, "y": 2 * t + 1}, "y").params[0] == pytest.approx([2, 1], rel=1e-4)
    with pytest.raises(ParseError, match="parameters: 'k' is among the variables too"):
        ek.fit("line(k; k, m)", {"k": t, "y": t}, "y")


def test_models_beside_each_other():
    x = np.linspace(0, 10, 60)
    y = 3 / (1 + ((x - 4) / 0.5) ** 2)
    found = ek.fit([ek.models.gaussian, ek.models.lorentzian, ek.models.pseudo_voigt], x[:, None], y)
    assert found.pop.parameters == ("a", "c", "w", "eta") and found.rank("loss")[0].loss < 1e-12 < found.loss[0]
    other = ek.fit(["line(x1; k, m)", ek.models.gaussian, "p1 + x1"], x[:, None], y)
    assert [one.names for one in other] == [["p1", "p2"], ["p1", "p2", "p3"], ["p1"]]
    assert other.goal.lower[1, 2] == 0 and np.isneginf(other.goal.lower[0]).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gausian(x1; a, c, w)", "there is no model 'gausian'; did you mean 'gaussian'?"),
        ("exp(x1; a)", "there is no model 'exp'"),
        ("(x1; a)", "';' stands in the call of a model, as in line(x1; k, m)"),
        ("line(x1; a)", "'line' takes a variable and 2 parameters, line(x1; k, m); 1 given"),
        ("line(x1; a, b, c)", "'line' takes a variable and 2 parameters, line(x1; k, m); 3 given"),
        ("line(x1; , b)", "'line' takes a variable and 2 parameters, line(x1; k, m); 1 given"),
        ("line(; a, b)", "'line' takes a variable and 2 parameters, line(x1; k, m); the variable is missing"),
        ("line(x1; a, b; c)", "unexpected character ';'"),
        ("line(x1; a, b", "the ( of 'line(x1; a, b' is never closed"),
        ("line(x1; a=1, b)", "parameters of 'line' go by place, line(x1; k, m)"),
        ("line(x1, a, b)", "a model has its parameters behind a semicolon, line(x1; k, m); unknown function 'line'"),
        ("line(t; a, b)", "unknown name 't'"),
        ("line(x1; a, b) + c", "a parameter of no model is p1, p2, …; unknown name 'c'"),
        (["line(x1; a, b)", 3], "beside models there may be texts and models, not 3"),
    ],
)
def test_what_is_no_call(text, message):
    for read in (ek.models.parse, lambda text: ek.fit(text, [[1.0], [2.0]], [1.0, 2.0])):
        with pytest.raises(ParseError) as caught:
            read(text)
        assert message in str(caught.value)


def test_what_is_no_model():
    with pytest.raises(AttributeError, match="exprkit has no model 'gausian'; did you mean 'gaussian'"):
        _ = ek.models.gausian
    with pytest.raises(ArgumentError, match="parse has no option 'parameters'"):
        ek.models.parse("line(x1; a, b)", parameters=["a"])


# ── ties ──


T = np.linspace(0, 20, 200)
PEAKS = 5 * np.exp(-(((T - 6) / 0.8) ** 2) / 2) + 2 * np.exp(-(((T - 13) / 1.6) ** 2) / 2) + 1
PEAKS = PEAKS + 0.05 * np.random.default_rng(1).standard_normal(200)
TEXT = "gaussian(t; a, c, w) + gaussian(t; b, d, v) + line(t; k, m)"


def test_tied_parameters_are_those_of_the_text_with_errors_by_the_delta_method(tmp_path):
    table = {"t": T, "y": PEAKS}
    tied = ek.fit(TEXT, table, "y", ties={"v": "2 * w", "k": 0, "d": "c + b * v + 3.8"})
    written = ek.fit("gaussian(t; a, c, w) + gaussian(t; b, c + b * (2 * w) + 3.8, 2 * w) + line(t; 0, m)", table, "y")
    assert tied[0].names == written[0].names == ["a", "c", "w", "b", "m"]
    np.testing.assert_allclose(tied.params, written.params, rtol=1e-7)
    np.testing.assert_allclose(tied.standard_errors, written.standard_errors, rtol=1e-5)
    _, c, w, b, _ = tied.params[0]
    slopes = np.array([0, 1, 2 * b, 2 * w, 0])
    errors = [2 * tied.standard_errors[0, 2], 0, np.sqrt(slopes @ tied.covariance[0] @ slopes)]
    values = tied[0].tied
    assert [values[name][0] for name in "vkd"] == pytest.approx([2 * w, 0, c + b * 2 * w + 3.8])
    assert [values[name][1] for name in "vkd"] == pytest.approx(errors)
    tied.save(tmp_path / "fit.npz")
    assert ek.load(tmp_path / "fit.npz")[0].tied == values and written[0].tied == {}


def test_ties_go_with_categories_bounds_and_several_expressions():
    table = {"x": T, "s": ["a", "b"] * 100, "y": np.where(np.arange(200) % 2, 3.0, 2.0) * (T + 2) + 1}
    found = ek.fit("p1[s] * x + p2 + p3", table, "y", ties={"p2": "2 * p1", "p3": 1})
    assert found[0].names == ["p1[a]", "p1[b]"] and found.params[0] == pytest.approx([2, 3])
    assert {name: value for name, (value, _) in found[0].tied.items()} == pytest.approx(
        {"p2[a]": 4, "p2[b]": 6, "p3": 1}
    )
    several = ek.fit(["p1 * x + p2", "p1 * x", "p1 + p2 * x + p3"], table, "y", ties={"p3": "p2 / 2"})
    assert several.params.shape == (3, 2) and np.isnan(several[1].tied["p3"][0])
    assert several[2].tied["p3"][0] == pytest.approx(several.params[2, 1] / 2)
    gaps = ek.fit("p1 * x + p2 * x^2 + p3", table, "y", ties={"p2": 0.0}, bounds={"p3": (1, 3)}, init={"p1": 2})
    assert gaps[0].names == ["p1", "p3"] and gaps.at_bound[0].tolist() == [False, True]
    for ties in ({"p2": "p3 * 2", "p3": "p1 / 2"}, "p2 = p3 * 2\np3 = p1 / 2", ["p2 = p3 * 2", "p3 = p1 / 2"]):
        chain = ek.fit("p1 * x + p2 + p3", table, "y", ties=ties)[0]
    assert chain.tied["p2"][0] == pytest.approx(chain.params[0])


@pytest.mark.parametrize(
    ("ties", "message"),
    [
        ({"p9": 1}, "ties: there is no parameter 'p9'; there are p1, p2"),
        ({"p1": "2 * p2", "p2": "p1"}, "ties go round in a circle: p"),
        ({"p1": "p1"}, "ties go round in a circle: p1, p1"),
        ({"p1": "2 * x1"}, "ties of 'p1': unknown name 'x1'"),
        ({"p1": "p7"}, "ties of 'p1': 'p7': there are only 2 parameters"),
        ({"p1": "2 +"}, "ties of 'p1': expected a number"),
        ({"p1": None}, "ties of 'p1' must be an expression or a number, not None"),
        ({"p1": float("nan")}, "ties of 'p1' must be an expression or a number, not nan"),
        ("p1", "ties must be a dict by parameters' names, or texts as 'w2 = 2 * w1', not 'p1'"),
        (["p1 = 2", "p1 = 3"], "ties: 'p1' is tied twice"),
    ],
)
def test_what_is_no_tie(ties, message):
    with pytest.raises((ArgumentError, ParseError)) as caught:
        ek.fit("p1 * x1 + p2", T[:, None], PEAKS, ties=ties)
    assert message in str(caught.value)


def test_ties_over_categories_of_two_columns_are_refused():
    table = {"x": T, "s": ["a", "b"] * 100, "u": ["c"] * 100 + ["d"] * 100}
    with pytest.raises(ArgumentError, match="goes by 's' and by 'u': use one"):
        ek.fit("p1[s] * x + p2[u] + p3", table, PEAKS, ties={"p3": "p1 * p2"})
