"""Differential equations from trajectories: numbers fitted by integration, the choice of formulas, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import exprkit as ek
from exprkit.dynamics import integration
from exprkit.dynamics.choice import SystemChoice
from exprkit.dynamics.integration import Segments
from exprkit.dynamics.trajectories import trajectories
from exprkit.dynamics.weak_form import weak_sums
from exprkit.expressions.population import Population

QUICK = ek.SymbolicRegressor(
    unary_operators=[], maxsize=11, niterations=0, timeout_in_seconds=2, deterministic=True, random_state=0
)
GROWTH = ["x1 * (1.1 - 0.4 * x2)", "0.1 * x1 * x2 - 0.4 * x2"]


def rates(t, x):
    return [x[0] * (1.1 - 0.4 * x[1]), 0.1 * x[0] * x[1] - 0.4 * x[1]]


def path(f, start, t):
    return solve_ivp(f, (t[0], t[-1]), start, "LSODA", t, rtol=1e-10, atol=1e-10).y.T


def predators(noise=0.0, seed=0):
    """Two trajectories of different lengths, the second with irregular times."""
    random = np.random.default_rng(seed)
    times = np.linspace(0, 12, 80), np.sort(random.uniform(0, 8, 50))
    states = [path(rates, start, t) for start, t in zip(([10, 5], [3, 1]), times, strict=True)]
    return [x + noise * x.std(axis=0) * random.standard_normal(x.shape) for x in states], list(times)


@pytest.mark.parametrize("noise, most", [(0.0, 1e-5), (0.02, 0.03)])
def test_numbers_are_fitted_to_measured_states(noise, most):
    runs, _ = trajectories(*predators(noise))
    rough = ek.parse(["x1 * (1 - 0.5 * x2)", "0.12 * x1 * x2 - 0.5 * x2"])
    fitted, sums, _ = integration.fitted(rough, Segments.of(runs), has_time=False)
    right = ek.parse(GROWTH)
    for pop in (fitted, right):
        pop.numbers = pop.values[pop.kinds == ek.parse("2").kinds[0]].view(np.float64)
    assert fitted.numbers == pytest.approx(right.numbers, rel=most)
    assert np.sqrt(sums / 130).max() == pytest.approx(noise, rel=0.3, abs=1e-5)


def test_a_law_is_found_in_noise_and_forecasts(tmp_path):
    states, times = predators(0.01)
    model = ek.DynamicsRegressor(QUICK).fit(states, times, feature_names=["prey", "predator"])
    later = np.linspace(0, 20, 60)
    assert model.simulate([6, 2], later) == pytest.approx(path(rates, [6, 2], later), rel=0.1, abs=0.2)
    assert model.equations_.index.tolist() == ["prey", "predator"] and (model.equations_["r2"] > 0.999).all()
    assert model.equations_["complexity"].max() <= 9 and "prey" in model.equations()[1]
    assert model.predict([[10, 5]])[0] == pytest.approx(rates(0, [10, 5]), rel=0.05)
    assert model.score(states, times) > 0.95
    model.save(tmp_path / "model.npz")
    again = ek.DynamicsRegressor.load(tmp_path / "model.npz")
    assert again.equations(17) == model.equations(17) and again.equations_.equals(model.equations_)
    assert np.array_equal(again.simulate([6, 2], later), model.simulate([6, 2], later))


def test_what_adds_nothing_is_left_out():
    (states, _), (times, _) = predators()
    runs, _ = trajectories(states[:40], times[:40])
    cluttered = ["x1 * (1.1 - 0.4 * x2 + 1e-7 * x1)"], ["x2", GROWTH[1]]
    formulas = SystemChoice(runs, False).best_of([list(ek.parse(front)) for front in cluttered]).formulas
    slopes = ek.Evaluator(formulas, [[2.0, 3.0]], dtype="float64").evaluate()[:, 0]
    assert slopes == pytest.approx(rates(0, [2, 3]), rel=1e-5) and formulas.n_tokens.tolist() == [7, 9]


def test_a_number_and_a_term_that_add_nothing_are_left_out_in_noise():
    choice = SystemChoice(trajectories(*predators(0.01))[0], False)
    cluttered = choice.described(list(ek.parse(["x1 * (1.1 - 0.4 * x2)", "(0.1 * x1 - 0.4) * (x2 + 0.001 * x1)"])))
    assert choice.shorter(cluttered).formulas.n_tokens.tolist() == [7, 7]


def test_slopes_are_nearer_beside_equations_that_are_nearly_right():
    states, times = predators(0.02)
    runs, _ = trajectories(states, times)
    rough = list(ek.parse(["x1 - 0.4 * x1 * x2", "0.1 * x1 * x2 - 0.3 * x2"]))
    best = SystemChoice(runs, False).described(rough)
    nearer = ek.DynamicsRegressor()._nearer(runs, best.formulas)
    law = ek.parse(GROWTH)

    def error(run):
        true = ek.Evaluator(law, run.smooth, "numpy", dtype="float64").evaluate()
        return np.std(run.slope - true.T)

    assert all(error(after) < 0.5 * error(before) for before, after in zip(runs, nearer, strict=True))


@pytest.mark.parametrize(
    "formulas, conserved",
    [
        (["x1 * (1.1 - 0.4 * x2)", "0.1 * x1 * x2 - 0.4 * x2"], ["x1 + 4 * x2 - 4 * log(x1) - 11 * log(x2)"]),
        (["-0.3 * x1 * x2", "0.3 * x1 * x2 - 0.5 * x2", "0.5 * x2"], ["x3 + 1.67 * log(x1)", "x1 + x2 + x3"]),
        (["-0.5 * x2 * x3", "x1 * x3", "-0.3 * x1 * x2"], ["sqr(x1) + 0.5 * sqr(x2)", "sqr(x1) - 1.67 * sqr(x3)"]),
        (["x2", "-4 * x1 - 0.1 * x2"], []),
    ],
)
def test_what_equations_conserve(formulas, conserved):
    model = ek.DynamicsRegressor()
    model._states = np.random.default_rng(0).uniform(0.5, 4, (40, len(formulas)))
    model._formulas, model.feature_names_ = ek.parse(formulas), [f"x{k + 1}" for k in range(len(formulas))]
    assert model.invariants() == conserved
    model.feature_names_ = [*model.feature_names_, "u"]
    with pytest.raises(ValueError, match="inputs or the time"):
        model.invariants()


def test_inputs_and_the_time_stand_in_formulas():
    t = np.linspace(0, 6, 60)
    u = np.sin(2 * t)
    x = path(lambda now, x: 3 * np.interp(now, t, u) - 0.5 * x, [1.0], t)
    model = ek.DynamicsRegressor(QUICK).fit(x, t, u=u, feature_names=["x", "force"])
    assert model.predict([2.0], [1.0]) == pytest.approx(np.array([[2.0]]), abs=0.05)
    assert model.simulate([1.0], t, u) == pytest.approx(x, abs=0.02)
    model = ek.DynamicsRegressor(QUICK, time=True).fit(path(lambda now, x: 2 * now - x, [1.0], t), t)
    assert model.feature_names_ == ["x1", "t"] and model.predict([1.0], t=2.0) == pytest.approx(3, abs=0.05)


def swing(t, x):
    return [x[1], -2 * np.sin(x[0]) - 0.2 * x[1]]


@pytest.mark.slow
def test_a_pendulum_is_found_from_angles_alone(capsys, tmp_path):
    t = np.linspace(0, 15, 150)
    angles = path(swing, [2.5, 0], t)[:, 0]
    noisy = angles + 0.01 * angles.std() * np.random.default_rng(0).standard_normal(150)
    search = ek.SymbolicRegressor(**{**QUICK.get_params(), "unary_operators": ["sin"], "maxsize": 9})
    model = ek.DynamicsRegressor(search, order=2).fit(noisy, t, feature_names=["angle"])
    model.print(1)
    assert capsys.readouterr().out.startswith("(angle)'' = ") and model.feature_names_ == ["angle", "angle_dot"]
    assert model.predict([[1.0, 0.5]]) == pytest.approx(np.array([[swing(0, [1.0, 0.5])[1]]]), rel=0.05)
    later = path(swing, [0, 2.2], t)
    assert model.simulate([0, 2.2], t) == pytest.approx(later, abs=0.15) and len(model.equations_) == 1
    assert model.score(angles, t) > 0.99 and model.invariants() == []
    model.save(tmp_path / "model.npz")
    assert np.array_equal(ek.load(tmp_path / "model.npz").simulate([0, 2.2], t), model.simulate([0, 2.2], t))
    with pytest.raises(ValueError, match="x0 must have 2 finite numbers, one for each state and each derivative"):
        model.simulate([1.0], t)
    with pytest.raises(ValueError, match="x_dot is for order=1"):
        model.fit(angles, t, x_dot=angles)


@pytest.mark.slow
def test_a_driven_oscillator_is_found():
    t = np.linspace(0, 30, 200)
    x = path(lambda now, x: [x[1], 0.8 * np.cos(1.7 * now) - x[0] - 0.3 * x[1]], [1, 0], t)
    model = ek.DynamicsRegressor(QUICK, order=2).fit(x[:, 0], t, u=np.cos(1.7 * t))
    assert model.simulate([1, 0], t, u=lambda now: np.cos(1.7 * now)) == pytest.approx(x, abs=0.02)
    assert model.feature_names_ == ["x1", "x1_dot", "u1"]


def test_sums_of_monomials_come_from_integrals():
    runs, _ = trajectories(*predators(0.05))
    law, states = ek.parse(GROWTH), np.concatenate([run.smooth for run in runs])
    slopes = ek.Evaluator(law, states, "numpy", dtype="float64").evaluate()
    for formulas, slope in zip(weak_sums(runs, 1, False), slopes, strict=True):
        values = ek.Evaluator(Population.of(formulas), states, "numpy", dtype="float64").evaluate()
        assert np.std(values - slope, axis=1).min() < 0.1 * np.std(slope)
    t = np.linspace(0, 10, 120)
    run, _ = trajectories(path(lambda now, x: x * (1 - x), [0.1], t), t)  # fewer monomials than a sum may have
    assert any(one([[0.3]]) == pytest.approx([0.21], rel=1e-2) for one in weak_sums(run, 1, False)[0])
    run, _ = trajectories(path(lambda now, x: [x[1], -x[0] - 0.3 * x[1]], [1, 0], t)[:, 0], t, order=2)
    (formulas,) = weak_sums(run, 2, False)
    assert any(one([[1.0, 2.0]]) == pytest.approx([-1.6], rel=1e-3) for one in formulas)


def test_of_several_trajectories_each_is_forecast():
    states, times = predators(0.01)
    choice = SystemChoice(trajectories(states, times)[0], False)
    right = choice.described(list(ek.parse(GROWTH)))
    wrong = choice.described(list(ek.parse([GROWTH[0], "0.1 * x1 - 0.4"])))._replace(length=right.length - 1)
    assert choice.forecasting(wrong) is right and choice.forecasting(right) is right


def test_states_that_become_infinite_are_nan():
    model = ek.DynamicsRegressor()
    model.feature_names_, model._formulas = ["x1"], ek.parse(["x1 * x1"])
    states = model.simulate([1.0], [0, 0.5, 2.0])
    assert states[1, 0] == pytest.approx(2.0, rel=1e-6) and not np.isfinite(states[2, 0])


def test_functions_of_the_users_own_stand_in_right_hand_sides():
    own = ek.parse(["digamma(x1) + 2"])
    f = integration.RightHandSides(own, has_time=False)
    x = np.linspace(1, 2, 1000)[:, None]
    assert f(x, np.empty((1000, 0)), np.zeros(1000), np.full((1000, 1), 2.0))[:, 0] == pytest.approx(
        ek.Evaluator(own, x, dtype="float64").evaluate()[0]
    )


T = np.arange(14.0)


@pytest.mark.parametrize(
    "x, t, more, sentence",
    [
        (np.ones((14, 1)), np.arange(13.0), {}, "a time step or of shape"),
        (np.ones((14, 1)), T[::-1], {}, "increase"),
        (np.ones((11, 1)), 0.1, {}, "at least 12 times"),
        (np.where(T == 3, np.nan, T), 0.1, {}, "missing or infinite"),
        ([np.ones((14, 1)), np.ones((14, 2))], 0.1, {}, "the same states"),
        ([np.ones((14, 1))] * 2, [T] * 3, {}, "a list of 3, of 2"),
        (T, 0.1, {"feature_names": ["a", "b"]}, "2 names"),
        (T, 0.1, {"u": np.ones(7)}, "u has 7 rows"),
        (T, 0.1, {"x_dot": np.ones((14, 2))}, "x_dot must be"),
        (["a"] * 14, 0.1, {}, "number"),
        ([], [], {}, "at least 12 times"),
        (T, 0.1, {"feature_names": "a"}, "a list of names"),
        (np.ones((14, 2)), 0.1, {"feature_names": ["a", "a"]}, "comes twice"),
    ],
)
def test_bad_data_are_refused(x, t, more, sentence):
    with pytest.raises(ValueError, match=sentence):
        ek.DynamicsRegressor(QUICK).fit(x, t, **more)


@pytest.mark.parametrize(
    "settings", [{"candidates": 0}, {"time": 2}, {"search": "quick"}, {"order": 3}, {"serach": None}]
)
def test_bad_settings_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        ek.DynamicsRegressor(**settings).fit(T, 0.1)
