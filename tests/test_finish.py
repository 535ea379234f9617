"""Fits end at the minimum wherever columns lie, and say that they converged only there."""

from __future__ import annotations

import itertools
import pickle
from fractions import Fraction

import mpmath
import numpy as np
import pytest

import exprkit as ek
from exprkit.backends.objective import Options
from exprkit.errors import ArgumentError, DataError
from exprkit.fitting.finishing.factors import CountedPoints, Model
from exprkit.fitting.finishing.finish import finish

T = np.linspace(-1.0, 1.0, 40)
NOISE = 0.05 * np.random.default_rng(4).standard_normal(40)
LINE = 3 + 2 * T + NOISE


def fit(text, x, y, **options):
    return ek.fit(text, x.reshape(len(y), -1), y, **options)


def least(y, degree, w=1.0):
    """The least weighted sum of squares of a polynomial in T."""
    root = np.sqrt(np.broadcast_to(w, y.shape))
    Q, _ = np.linalg.qr(root[:, None] * np.stack([T**k for k in range(degree + 1)], 1))
    r = root * y - Q @ (Q.T @ (root * y))
    return r @ r


# ── columns far from 0 ──


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("far", [0.0, 1e2, 1e4, 3e5])
def test_a_line_far_from_0(fits, far, dtype):
    x = far + T * (max(far, 1.0) ** 0.5 if dtype == "float32" else 1.0)
    found = fit("p1 + p2 * x1", x, LINE, backend=fits, dtype=dtype)
    assert found.loss[0] == pytest.approx(least(LINE, 1), rel=1e-6) and found.converged[0]
    slope = np.polyfit(T, LINE, 1)[0] * T[0] / (x[0] - far)
    assert found.params[0, 1] == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("far", [1e6, 1e8, 1e9])
def test_a_line_very_far_from_0(fits, far):
    found = fit("p1 + p2 * x1", far + T, LINE, backend=fits, dtype="float64")
    own = (far + T) - far  # what is left of T
    slope, _ = np.polyfit(own, LINE, 1)
    assert found.converged[0] and found.params[0, 1] == pytest.approx(slope, rel=1e-5)
    assert found.loss[0] == pytest.approx(least(LINE, 1), rel=1e-4)
    r = LINE - np.polyval(np.polyfit(own, LINE, 1), own)
    error = np.sqrt(r @ r / 38 / np.sum((own - own.mean()) ** 2))
    assert found.standard_errors[0, 1] == pytest.approx(error, rel=1e-4)


@pytest.mark.parametrize(("degree", "far"), [(2, 1990.0), (3, 1990.0), (4, 400.0), (2, 3e4)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_polynomials_far_from_0(fits, degree, far, dtype):
    y = np.cos(3 * T) + NOISE
    x = far + 30 * np.round(T * 30) / 30
    text = " + ".join(["p1", *(f"p{k + 1} * x1^{k}" for k in range(1, degree + 1))])
    found = fit(text, x, y, backend=fits, dtype=dtype)
    u = (x - far) / 30
    r = np.polynomial.Polynomial.fit(u, y, degree)(u) - y
    assert found.converged[0] and found.loss[0] == pytest.approx(r @ r, rel=1e-3)
    assert np.isfinite(found.standard_errors).all()


@pytest.mark.parametrize("options", [
    {"weights": np.linspace(0.1, 3, 40)}, {"loss": "huber", "delta": 0.1}, {"loss": "gaussian"},
    {"loss": "(f - y)^2 * 2"}, {"bounds": {"p2": (0, 2.5)}}, {"restarts": 5}, {"prior": {"p2": (2.0, 10.0)}},
    {"method": "lbfgs"}, {"loss": "mae"}, {"link": "2 * f"}, {"precision": "fast"},
])  # fmt: skip
def test_whatever_is_fitted_does_not_depend_on_where_0_is(options):
    """Beside the fit of the same columns around 0."""
    near, away = (fit("p1 + p2 * x1", T + far, LINE, dtype="float64", backend="cpu", **options) for far in (0.0, 1e6))
    p = away.params[0]
    assert away.loss[0] == pytest.approx(near.loss[0], rel=1e-4)
    assert p[1] == pytest.approx(near.params[0, 1], rel=1e-3)
    assert p[0] + 1e6 * p[1] == pytest.approx(near.params[0, 0], rel=1e-3)


def test_counts_far_from_0():
    y = np.random.default_rng(2).poisson(20 + 8 * T).astype(float)
    near, away = (fit("p1 + p2 * x1", T + far, y, loss="poisson", dtype="float64", backend="cpu",
                         init=[[20.0 - 8 * far, 8.0]]) for far in (0.0, 1e6))  # fmt: skip
    assert away.loss[0] == pytest.approx(near.loss[0], rel=1e-8) and away.converged[0]
    assert away.params[0, 1] == pytest.approx(near.params[0, 1], rel=1e-4)


def test_a_period_in_julian_days():
    x = 2459000.5 + np.linspace(0, 20, 60)
    noise = 0.02 * np.random.default_rng(6).standard_normal(60)
    y = 12 + 0.3 * np.sin(2 * np.pi * (x - 2459001.8) / 3.7) + noise
    found = fit("p1 + p2 * sin(2 * pi * (x1 - p4) / p3)", x, y, init=[[12, 0.2, 3.69, 2459001.5]], backend="cpu")
    assert found.converged[0] and found.loss[0] < noise @ noise


@pytest.mark.slow
def test_the_estimator_and_the_search_fit_as_exactly():
    x, y = (1e6 + T)[:, None], LINE - 0.3 * T
    model = ek.ExpressionRegressor(["p1 + p2 * x1"], backend="cpu").fit(x, y)
    assert model.found_.loss[0] == pytest.approx(least(y, 1), rel=1e-6)
    found = ek.exhaustive_search(x, y, max_nodes=5, operators=["+", "*"], restarts=8, backend="cpu", progress=False)
    r = found.predict(x) - y
    assert r @ r == pytest.approx(least(y, 1), rel=1e-4) and found.errors[0, 0] < 0.03


# ── the word ──


def nist(name):
    """Problems of NIST's StRD (public domain): text, x, y, far start, certified parameters and errors."""
    if name == "MGH17":
        y = [0.844, 0.908, 0.932, 0.936, 0.925, 0.908, 0.881, 0.850, 0.818, 0.784, 0.751, 0.718, 0.685, 0.658, 0.628,
             0.603, 0.580, 0.558, 0.538, 0.522, 0.506, 0.490, 0.478, 0.467, 0.457, 0.448, 0.438, 0.431, 0.424, 0.420,
             0.414, 0.411, 0.406]  # fmt: skip
        return ("p1 + p2 * exp(-x1 * p4) + p3 * exp(-x1 * p5)", 10.0 * np.arange(33), y, [50, 150, -100, 1, 2],
                [0.37541005211, 1.9358469127, -1.4646871366, 0.01286753464, 0.022122699662],
                [0.0020723153551, 0.22031669222, 0.22175707739, 0.00044861358114, 0.00089471996575])  # fmt: skip
    if name == "MGH10":
        y = [34780, 28610, 23650, 19630, 16370, 13720, 11540, 9744, 8261, 7030, 6005, 5147, 4427, 3820, 3307, 2872]
        return ("p1 * exp(p2 / (x1 + p3))", 50 + 5.0 * np.arange(16), y, [2, 400000, 25000],
                [0.005609636471, 6181.3463463, 345.22363462],
                [0.00015687892471, 23.309021107, 0.78486103508])  # fmt: skip
    y = [109, 149, 149, 191, 213, 224]
    return ("p1 * (1 - exp(-p2 * x1))", np.array([1, 2, 3, 5, 7, 10.0]), y, [1, 1],
            [213.80940889, 0.54723748542], [12.354515176, 0.10455993237])  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MGH17", "MGH10", "BoxBOD"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_certified_numbers_from_far_starts(name, dtype):
    text, x, y, start, certified, errors = nist(name)
    found = fit(text, x, np.array(y, float), init=[start], backend="cpu", dtype=dtype)
    assert found.converged[0] and found.params[0] == pytest.approx(certified, rel=1e-6)
    assert found.standard_errors[0] == pytest.approx(errors, rel=1e-4)


def test_converged_is_said_of_minima_only():
    """A fit that is cut off, or whose parameters run away, has not converged."""
    x = np.linspace(1, 3, 30)
    cut = fit("p1 + p2 * exp(p3 * x1)", x, np.exp(-x), init=[[5.0, 3.0, 2.0]], max_iter=2, backend="cpu")
    assert not cut.converged[0]
    away = fit("p1 * x1 / (p2 + x1)", x, 2 * x, dtype="float64", backend="cpu")  # better the larger both are
    assert not away.converged[0] or away.loss[0] < 1e-18 * np.sum(x**2)


def test_expressions_that_end_early_do_not_disturb_the_others():
    """Those of few parameters are done long before: what is left is narrower."""
    x = np.linspace(0, 10, 60)
    y = 3 * np.exp(-x / 2) + 0.3 * np.exp(-x / 9) + 0.01 * np.sin(7 * x)
    texts = [*["p1 * x1"] * 5, "p1 * exp(-p2 * x1) + p3 * exp(-p4 * x1)", "2", "3", *["p1 + p1 * x1"] * 5]
    together = fit(ek.parse(texts), x, y, backend="cpu", dtype="float64")
    alone = fit(texts[5], x, y, backend="cpu", dtype="float64")
    assert together.loss[5] == pytest.approx(alone.loss[0], rel=1e-9) and together.converged[5]
    assert together.params[-1, 0] == pytest.approx(np.sum((1 + x) * y) / np.sum((1 + x) ** 2), rel=1e-9)


def test_large_populations_are_screened_unless_asked():
    x = 1e6 + T
    pop = ek.parse(["p1 + p2 * x1", "p1 * x1"])
    screened = fit(pop, x, LINE, backend="cpu", dtype="float64", accuracy="screen")
    final = fit(pop, x, LINE, backend="cpu", dtype="float64", accuracy="final")
    assert final.loss[0] == pytest.approx(least(LINE, 1), rel=1e-6) and final.loss[0] < screened.loss[0]
    with pytest.raises(ek.errors.ArgumentError, match="accuracy"):
        fit(pop, x, LINE, accuracy="best")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MGH17", "MGH10"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_stall_in_a_large_population_has_not_converged(name, dtype, tmp_path):
    """Beside expressions that are at their minimum, whatever is done with the result before it is asked."""
    text, x, y, start, certified, _ = nist(name)
    pop, width = ek.parse([text] * 60 + ["p1 + p2 * x1"] * 40), len(start)
    init = np.zeros((100, width))
    init[:60], init[:40] = start, certified
    found = fit(pop, x, np.array(y, float), init=init, backend="cpu", dtype=dtype, accuracy="screen", max_iter=2000)
    at_minimum = found.loss < 1.001 * np.repeat([found.loss[:60].min(), found.loss[60:].min()], [60, 40])
    assert not (found.converged & ~at_minimum).any() and found.converged[60:].all()
    assert found.converged[:40].all() or dtype == "float32"
    found.__dict__.pop("status")
    found.save(tmp_path / "fit.npz")
    for other in (found[40:], pickle.loads(pickle.dumps(found))[40:], ek.load(tmp_path / "fit.npz")[40:]):
        assert other.converged.tolist() == found.converged[40:].tolist() and other.reason == found.reason[40:]


@pytest.mark.parametrize("options", [
    {}, {"loss": "huber", "delta": 0.1}, {"loss": "gaussian"}, {"loss": "poisson"}, {"link": "2 * f"},
    {"dtype": "float32"}, {"bounds": (0.1, 2.5)}, {"weights": 1 + T**2},
])  # fmt: skip
def test_screened_fits_that_are_at_a_minimum_have_converged(options):
    """Those of bounds and of numbers that others can stand for among them."""
    texts = ["p1 + p2 * x1", "p1 * exp(p2 * x1)", "p1 + x1 / (p2 + x1)", "p1 * p2 + x1 * p3", "p1 * x1^p2"]
    found = fit(ek.parse(texts), T + 3, np.round(LINE + 4), **{"backend": "cpu", "dtype": "float64"} | options,
                accuracy="screen", init=np.array([1.0, 0.5, 0.5]) * np.ones((5, 1)))  # fmt: skip
    assert found.converged.all(), found.reason


@pytest.mark.parametrize("options", [{}, {"weights": 1 + T**2}, {"loss": "huber", "delta": 0.3}, {"loss": "gaussian"},
                                     {"bounds": {"p1": (0, 9)}}])  # fmt: skip
@pytest.mark.parametrize("text", [
    "p1 * exp(-p2 * x1)", "p1 / (1 + p2 * x1^2)", "p1 * exp(-(x1 - p2)^2 / p3^2)",
    "p1 * cos(p2 * x1) + p3",
])  # fmt: skip
def test_parameters_agree_to_ten_digits_from_starts_around_them(text, options):
    """Although residuals are so large that the last steps gain less than the loss's rounding."""
    x, pop = T + 2, ek.parse([text])
    true, noise = np.array([2.0, 0.8, 1.1])[: pop.max_params], 0.2 * np.random.default_rng(7).standard_normal(40)
    y = ek.Evaluator(pop, x[:, None], "numpy", dtype="float64").evaluate(true[None, :]).ravel() + noise
    ends = [fit(text, x, y, init=true * factor, dtype="float64", backend=backend, **options)
            for factor, backend in ((1.3, "cpu"), (0.8, "cpu"), (0.9, "numpy"))]  # fmt: skip
    for end in ends:
        assert end.converged[0] and end.params[0] == pytest.approx(ends[0].params[0], rel=1e-10)
        assert end.standard_errors[0] == pytest.approx(ends[0].standard_errors[0], rel=1e-8)


# ── losses of one's own ──


def cauchy(factor):
    return f"{factor!r} * log(1 + ((f - y) / 0.05)^2)"


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_quantile_line_is_the_best_of_the_lines_through_two_points(fits, share):
    """Which a loss with kinks is least at (R. Koenker, "Quantile Regression", 2005)."""
    i, j = np.triu_indices(len(T), 1)
    slope = (LINE[i] - LINE[j]) / (T[i] - T[j])
    r = LINE - (LINE[i] - slope * T[i])[:, None] - slope[:, None] * T
    found = fit("p1 + p2 * x1", T, LINE, loss=f"pinball(y - f, {share})", dtype="float64", backend=fits)
    assert found.converged[0]
    assert found.loss[0] == pytest.approx(np.maximum(share * r, (share - 1) * r).sum(axis=1).min(), rel=1e-6)


@pytest.mark.parametrize("accuracy", ["final", "screen"])
def test_the_factor_of_a_loss_does_not_count(accuracy):
    one, *others = (fit("p1 * exp(p2 * x1)", T, LINE, loss=cauchy(factor), accuracy=accuracy, dtype="float64",
                        backend="cpu") for factor in (1.0, 1e-6, 1e6))  # fmt: skip
    for other in others:
        assert other.converged[0] and one.converged[0]
        assert other.params[0] == pytest.approx(one.params[0], rel=1e-5)


@pytest.mark.parametrize("name", ["MGH17", "MGH10"])
@pytest.mark.parametrize(("unit", "accuracy"), [(1.0, "screen"), (100.0, "final")])
def test_a_stall_of_a_loss_of_ones_own_has_not_converged(name, unit, accuracy):
    text, x, y, start, certified, _ = nist(name)
    y, options = np.array(y, float), {"loss": f"logcosh((f - y) * {unit})", "dtype": "float64", "backend": "cpu"}
    least = fit(text, x, y, init=[certified], **options)
    for init in (start, 1.02 * np.array(certified)):
        found = fit(text, x, y, init=[init], accuracy=accuracy, **options)
        assert not found.converged[0] or found.loss[0] < 1.01 * least.loss[0], found.reason
    assert least.converged[0] or name == "MGH10"


def test_losses_of_ones_own_are_finished_as_squares_are(fits):
    options = {"loss": "logcosh(f - y)", "dtype": "float64", "backend": fits}
    near, away = (fit("p1 + p2 * x1", T + far, LINE, **options) for far in (0.0, 1e5))
    assert away.converged[0] and away.loss[0] == pytest.approx(near.loss[0], rel=1e-6)
    exact = fit("p1 * exp(-p2 * x1)", T, 3 * np.exp(-0.5 * T), **options)
    assert exact.params[0] == pytest.approx([3, 0.5], rel=1e-6)
    held = fit("p1 + p2 * x1", T, LINE, bounds={"p2": (0, 1.5)}, **options)
    assert held.converged[0] and held.params[0, 1] == 1.5
    far = fit("p1 * exp(-p2 * x1)", T, LINE, init=[[1.0, 1.0]], max_iter=1, accuracy="screen", **options)
    assert not far.converged[0]


@pytest.mark.filterwarnings("error")
def test_parameters_without_effect_are_no_trouble_to_losses_of_ones_own():
    texts = ["p1 * 0 + x1", "p1 + 0 * p2", "log(p1 - 1)", "floor(p1) + p2", "3", "p1 * exp(p2 * 1e6 * x1)", "x1^p1"]
    for accuracy in ("final", "screen"):
        found = fit(ek.parse(texts), T, LINE, loss="logcosh(f - y)", accuracy=accuracy, init="ones", dtype="float64",
                    backend="cpu")  # fmt: skip
        assert found.converged[:2].all() and not found.converged[[2, 4, 6]].any(), found.reason


def test_a_prior_of_a_loss_of_ones_own_is_one_more_measurement():
    """So narrow that it decides; with the parameters' plain names and with names of the user's own."""
    for text, name in (("p1 + p2 * x1", "p2"), (ek.parse("a + b * x1", parameters=("a", "b")), "b")):
        found = fit(text, T, LINE, loss="logcosh(f - y)", prior={name: (0.5, 1e-3)}, dtype="float64", backend="cpu")
        assert found.converged[0] and found.params[0, 1] == pytest.approx(0.5, abs=1e-3)


# ── the steps themselves ──


def test_rows_in_blocks_give_the_same_factors(monkeypatch):
    random = np.random.default_rng(1)
    x, y, w = random.uniform(1, 2, (5000, 1)), random.standard_normal(5000), random.uniform(0, 2, 5000)
    pop, p = ek.parse(["p1 * exp(p2 * x1)", "p1 + x1 * 0"]), np.array([[0.3, 0.2], [1.0, 0.0]])
    whole = Model(pop, CountedPoints(x, y, w), Options()).factors(p)
    monkeypatch.setattr("exprkit.fitting.finishing.factors.NUMBERS", 3 * 2 * 700)
    parts = Model(pop, CountedPoints(x, y, w), Options()).factors(p)
    J = ek.Evaluator(pop, x, "numpy", dtype="float64").jacobian(p)
    for found in (whole, parts):
        full = found.R * found.norm[:, None, :]
        gram = np.einsum("mki,mkj->mij", full, full)
        assert gram == pytest.approx(np.einsum("mpi,p,mpj->mij", J, w, J), rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("bounds", [(-5.0, 0.4), (0.2, 0.6)])
def test_steps_keep_bounds(bounds):
    optimize = pytest.importorskip("scipy.optimize")
    x = 50 + T
    A = np.stack([x**0, x, x**2], 1)
    y = A @ [1.0, 0.5, 0.3] + NOISE
    side = [np.full((1, 3), bound) for bound in bounds]
    found = finish(ek.parse(["p1 + p2 * x1 + p3 * x1^2"]), CountedPoints(x[:, None], y, np.ones(40)),
                   Options(max_iter=500, lower=side[0], upper=side[1]), np.full((1, 3), 0.3))  # fmt: skip
    peer = optimize.lsq_linear(A, y, bounds, method="bvls", tol=1e-14)
    assert found.loss[0] <= 2 * peer.cost * (1 + 1e-6) and found.is_minimum[0]


@pytest.mark.parametrize("text", ["p1 + p2 / p3", "p1 + 1 / (p2 + x1)"])
def test_a_minimum_at_infinity_is_said_after_few_steps(text):
    x, start = np.linspace(1, 3, 30)[:, None], np.ones((1, 3))
    y = x[:, 0] + 0.1 * np.sin(40 * x[:, 0])
    pop = ek.parse([text])
    found = finish(pop, CountedPoints(x, y, np.ones(30)), Options(), start[:, : pop.max_params])
    assert found.steps[0] < 50
    if text != "p1 + p2 / p3":  # redundant parameters are no minimum at infinity
        assert found.is_endless[0] and not found.is_minimum[0]
        result = ek.fit(text, x, y, dtype="float64", backend="cpu", init="ones")
        assert not result.converged[0] and ("no minimum" in result.reason[0] or "bound" in result.reason[0])


@pytest.mark.parametrize("text", ["p1 - sqr(p2) * x1", "p1 - cosh(p2 * x1)"])
def test_a_minimum_at_0_that_steps_come_near_to_slowly_is_one(text):
    x = np.linspace(1, 3, 30)[:, None]
    y = x[:, 0] + 0.1 * np.sin(40 * x[:, 0])
    found = ek.fit(text, x, y, dtype="float64", backend="cpu", init="ones")
    assert found.converged[0] and found.params[0, 1] == pytest.approx(0.0, abs=1e-3)
    assert found.loss[0] == pytest.approx(np.sum((y - y.mean()) ** 2), rel=1e-6)


# ── saddle points ──

SADDLES = {  # expression: start, the expression's values where it is best
    "sqr(p1) * x1^2": ([0.0], 3 * T**2),
    "cos(p1 * (x1 - 1000))": ([0.0], np.cos(1.3 * T)),
    "p1 * p2 * x1": ([0.0, 0.0], -2 * T),
    "p1^3 * x1": ([0.0], -2 * T),
    "p1 * x1 + cos(p2 * x1)": ([0.0, 0.0], T / 2 + np.cos(1.3 * T)),
    "p1 * exp(-4 * (x1 - p2)^2)": ([1.0, 0.0], np.exp(-4 * (T - 0.6) ** 2) + np.exp(-4 * (T + 0.6) ** 2)),
    "sin(8 * x1 + p1)": ([np.pi], np.sin(8 * T)),
    "exp(-(x1 - p1)^2) + exp(-(x1 + p1)^2)": ([0.0], np.exp(-((T - 0.9) ** 2)) + np.exp(-((T + 0.9) ** 2))),
}


@pytest.mark.parametrize("text", SADDLES)
def test_fits_do_not_end_at_saddle_points(fits, text):
    start, y = SADDLES[text]
    x = T + 1000 if "1000" in text else T
    found = fit(text, x, y, backend=fits, dtype="float64", init=start)
    peer = fit(text, x, y, backend=fits, dtype="float64", init=np.array(start) + 0.3)
    assert found.converged[0] and found.loss[0] <= peer.loss[0] + 1e-6 * abs(peer.loss[0]) + 1e-20
    assert np.any(found.params[0] != start)


@pytest.mark.parametrize("options", [{"loss": "mae"}, {"loss": "huber"}, {"loss": "gaussian"}, {"method": "lbfgs"},
                                     {"loss": "log(cosh(f - y))"}, {"bounds": {"p1": (0, 2)}}])  # fmt: skip
def test_no_loss_ends_at_a_saddle_point(options):
    y = np.cos(1.3 * T) + NOISE / 10
    found = fit("cos(p1 * x1)", T, y, dtype="float64", init=[0.0], **options)
    assert found.converged[0] and abs(found.params[0, 0]) == pytest.approx(1.3, abs=0.05)


def test_a_minimum_stays_where_it_is():
    found = fit("sqr(p1) * x1^2", T, -(T**2), dtype="float64", init=[0.0])
    assert found.converged[0] and found.params[0, 0] == 0


@pytest.mark.parametrize(
    "loss", ["log(cosh(f - y))", "1000 * log(1 + (f - y)^2)", "sqrt(1 + (f - y)^2) - 1", "(f - y)^4"]
)
def test_losses_of_ones_own_of_exact_data_have_converged(fits, loss):
    if fits == "numpy" and loss == "(f - y)^4":
        pytest.skip("its steps halve the distance: hundreds, which take the definition half a minute")
    found = fit("p1 * exp(p2 * x1)", T, 3 * np.exp(0.7 * T), loss=loss, backend=fits, dtype="float64")
    assert found.converged[0] and found.params[0] == pytest.approx([3, 0.7], rel=1e-9)


def test_numbers_whose_squares_overflow_are_fitted():
    years = np.arange(1950.0, 2021.0)
    y = 3 * (years / 1950) ** 80
    found = fit("p1 * x1^p2", years, y, dtype="float64", backend="cpu")
    assert found.converged[0] and found.params[0, 1] == pytest.approx(80, rel=1e-6)


# ── in more digits than a float64 has ──


def test_a_line_is_certified_in_40_digits():
    """Residuals of 1e-15 beside y, of which rounding leaves no digit of a sum of squares, beside exact fractions."""
    x, y = [1, 2, 3, 4], ["1.000000000000001", "1.999999999999998", "3.000000000000003", "4.000000000000007"]
    found = ek.fit("p1 + p2 * x1", [[a] for a in x], [float(b) for b in y], dtype="float64")
    exact = [Fraction(b) for b in y]
    slope = sum((a - Fraction(5, 2)) * b for a, b in zip(x, exact, strict=True)) / 5
    line = sum(exact) / 4 - slope * Fraction(5, 2), slope
    squares = sum((b - line[0] - line[1] * a) ** 2 for a, b in zip(x, exact, strict=True))
    table = found[0].certify(40)
    assert table.index.tolist() == ["p1", "p2", "sum of squares"]
    for text, right in zip(table["value"], [*line, squares], strict=True):
        assert abs(Fraction(text) / right - 1) < Fraction(1, 10**38)
    assert abs(Fraction(table["error"]["p2"]) ** 2 / (squares / 2 / 5) - 1) < Fraction(1, 10**38)
    assert table["digits"]["p2"] > 14 and table["digits"]["sum of squares"] < 4


def test_certified_minimum_of_a_weighted_decay():
    x = np.linspace(0, 3, 12)
    y, w = (3 * np.exp(-x) + 0.05 * np.cos(9 * x)).round(3), np.linspace(1, 2, 12).round(2)
    rough, fine = (
        fit("p1 * exp(-p2 * x1)", x, y, weights=w, init=[[2.0, 1.0]], accuracy=accuracy, dtype=dtype)[0].certify()
        for accuracy, dtype in (("screen", "float32"), ("final", "float64"))
    )
    assert fine["digits"].min() > 10 > rough["digits"].min()
    for name in ("value", "error"):  # of x that float32 has rounded
        assert rough[name][:2].astype(float).tolist() == pytest.approx(fine[name][:2].astype(float).tolist(), rel=1e-6)
    found = fit("p1 * exp(-p2 * x1)", x, y, weights=w)
    assert fine["error"][:2].astype(float).tolist() == pytest.approx(found.standard_errors[0].tolist(), rel=1e-9)


@pytest.mark.parametrize(
    "text, options, sentence",
    [
        ("p1 + p2", {}, "no minimum near"),
        ("p1 + p2 * x1", {"loss": "huber"}, "only least squares"),
        ("p1 + p2 * x1", {"bounds": (-1, 0)}, "at no bound"),
        ("x1", {}, "only finite parameters"),
    ],
)
def test_what_cannot_be_certified_is_said(text, options, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        fit(text, T, LINE, **options)[0].certify()


def test_a_parameter_that_is_0_is_certified():
    table = fit("p1 + p2 * x1", np.array([1.0, 2, 3]), np.array([2.0, 4, 6]))[0].certify()
    assert table["value"].astype(float).tolist() == pytest.approx([0, 2, 0], abs=1e-15)


def test_a_plateau_of_two_parameters_is_no_minimum():
    """NIST's Nelson with x times 1e30, from ones: neither p2 nor p3 alone makes the loss less."""
    sides = np.meshgrid(1e30 * 2.0 ** np.arange(7), [1.8e32, 2.25e32, 2.75e32])
    x1, x2 = (side.ravel() for side in sides)
    y = 2.6 - 5.6e-39 * x1 * np.exp(5.8e-32 * x2) + 0.01 * np.cos(np.arange(21))
    found = ek.fit("p1 - p2 * x1 * exp(-p3 * x2)", np.column_stack([x1, x2]), y, init="ones")
    assert not found.converged[0] and "no parameter but p1 matters there: try init or restarts" in found.reason[0]


def test_values_that_are_lost_in_rounding_are_no_minimum():
    y = 1 - 2 * T + 0.5 * T**2 + 0.01 * np.cos(9 * T)
    far = ek.fit("p1 + p2 * x1 + p3 * x1^2", 1e9 + T[:, None], y, dtype="float64")
    assert not far.converged[0] and far.reason[0].endswith("lost in rounding: take an offset off the columns")
    near = ek.fit("p1 + p2 * (x1 - 1e9) + p3 * (x1 - 1e9)^2", 1e9 + T[:, None], y, dtype="float64")
    plain = ek.fit("p1 + p2 * x1 + p3 * x1^2", T[:, None], y)
    assert near.converged[0] and np.allclose(near.params, plain.params, rtol=1e-4)  # x has seven digits there


# ── units and offsets ──

MODELS = {
    "line": (2, 1), "exponential_decay": (5, 0.7), "decay_to_offset": (5, 0.7, 1), "double_decay": (5, 3, 4, 0.4),
    "gaussian": (5, 2.5, 0.8), "lorentzian": (5, 2.5, 0.8), "logistic": (5, 1.5, 2.5), "michaelis_menten": (5, 1.5),
    "hill": (5, 2, 2.5), "sine": (2, 0.3, 0.4, 1), "damped_oscillation": (4, 0.4, 0.5, 0.3), "weibull": (5, 2, 1.5),
    "gompertz": (5, 1.2, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_the_same_in_other_units_and_beside_an_offset(name):
    model, x = getattr(ek.models, name), np.linspace(0.1, 5, 40)[:, None]
    y = model(x, np.array(MODELS[name], float))
    y += 0.03 * np.ptp(y) * np.random.default_rng(3).standard_normal(40)
    values = ek.fit(model, x, y).predict(x)
    for a, b in itertools.product((1e-30, 1, 1e30), repeat=2):
        found = ek.fit(model, a * x, b * y)
        assert found.converged[0], (a, b, found.reason)
        np.testing.assert_allclose(found.predict(a * x) / b, values, atol=1e-9 * np.ptp(y))
    has_constant = name in ("line", "decay_to_offset", "sine")
    text = model.call if has_constant else f"{model.call} + line(x1; 0, constant)"
    near, far = ek.fit(text, x, (y + 1e9) - 1e9), ek.fit(text, x, y + 1e9)
    assert far.converged[0] and "rounding leaves about" in far.reason[0], far.reason
    np.testing.assert_allclose(far.predict(x) - 1e9, near.predict(x), atol=1e-6)


@pytest.mark.parametrize("far", [1e9, 1e10, 1e11])
def test_a_decay_beside_a_large_constant_ends_at_its_minimum(far):
    """Where the loss is lost in rounding the slope tells which steps are good."""
    x, random = np.linspace(0, 5, 40), np.random.default_rng(3)
    y = far + 5 * np.exp(-0.7 * x) + 0.15 * random.standard_normal((10, 40))
    assert all(fit("decay_to_offset(x1; a, k, c)", x, own).converged[0] for own in y)


def test_a_column_far_from_0_is_fitted_or_named():
    x = 1e9 + np.arange(40) / 8
    found = fit("gaussian(x1; a, c, w)", x, 5 * np.exp(-((x - 1e9 - 2.5) ** 2)) + NOISE)
    assert found.converged[0] and found.params[0, 1] - 1e9 == pytest.approx(2.5, abs=0.02)
    found = fit("saturation(x1; a, k)", x, 5 * (1 - np.exp(1e9 - x)) + NOISE)
    assert not found.converged[0] and "subtract an offset from x1, far from 0 beside the range" in found.reason[0]


def test_numbers_whose_squares_are_no_float64_are_refused():
    for size in (1e200, 1e-200):
        with pytest.raises(DataError, match=f"y is .*{str(size)[-3:]} at most, whose square float64 does not"):
            fit("p1 + p2 * x1", T, size * LINE)
    found = fit("p1 * exp(-p2 * x1) + p3", 2e307 * T, LINE)
    assert not found.converged[0]


# ── what rounding leaves ──


def test_digits_that_rounding_leaves_are_told():
    x = np.round(3 + 6 * np.random.default_rng(0).random(15), 3)
    y = np.round(1 / x + 1e-3 * np.random.default_rng(1).standard_normal(15), 6)
    for degree in (2, 10):
        text = " + ".join(["p1", *(f"p{k + 1} * x1^{k}" for k in range(1, degree + 1))])
        found, other = (fit(text, x, y, dtype="float64", backend=backend) for backend in ("cpu", "numpy"))
        with mpmath.workdps(60):
            exact = mpmath.lu_solve([[mpmath.mpf(a) ** k for k in range(degree + 1)] for a in x.tolist()], y.tolist())
        exact = np.array([float(p) for p in exact])
        off = np.abs(found.params[0] - exact) / np.maximum(np.abs(exact), found.standard_errors[0])
        assert found.converged[0] and np.all(-np.log10(np.maximum(off, 1e-16)) > found.digits[0] - 0.5)
        np.testing.assert_allclose(other.digits, found.digits, atol=0.2)
        for one in (found, other):
            assert ("rounding leaves about" in one.reason[0]) == (degree == 10) == (one.digits[0].min() < 8)
    far = fit("p1 + p2 * x1", 1e9 + x, y, dtype="float64")
    assert "rounding leaves about 6 digits of p1 and p2" in far.reason[0]
    assert np.isnan(fit("p1 * p2 + p3 * x1", x, y, dtype="float64").digits[0]).tolist() == [True, True, False]
