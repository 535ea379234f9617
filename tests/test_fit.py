"""Fits: what they reach, and that each expression's troubles stay its own."""

from __future__ import annotations

import pickle

import mpmath as mp
import numpy as np
import pytest
import sympy

import exprkit as ek
from exprkit.backends import load, objective
from exprkit.backends.cpu import engine as cpu_engine
from exprkit.backends.objective import REASONS, Options
from exprkit.backends.reference import engine as definition
from exprkit.errors import ArgumentError, DataError

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
X = np.linspace(0.1, 3.0, 60)[:, None]
NOISE = 0.05 * np.random.default_rng(0).standard_normal(60)
Y = 2 * X[:, 0] / (0.5 + X[:, 0]) + NOISE


def fit(texts, y=Y, **options):
    return ek.fit(ek.parse(texts, errors="mask"), X, y, **({"dtype": "float64"} | options))


# ── what is found ──


def test_known_parameters_are_found(fits):
    found = fit(["p1 * x1 / (p2 + x1)", "p1 + p2 * exp(p3 * x1)"], 2 * X[:, 0] / (0.5 + X[:, 0]), backend=fits)
    assert found.params[0, :2] == pytest.approx([2, 0.5], rel=1e-6)
    assert found.converged[0] and found.loss[0] < 1e-15 < found.loss[1]


def test_a_linear_fit_takes_no_iteration(fits):
    found = fit(["p1 + p2 * x1 + p3 * x1^2", "p1 * sin(x1)"], backend=fits)
    A = np.column_stack([np.ones(60), X[:, 0], X[:, 0] ** 2])
    assert found.params[0] == pytest.approx(np.linalg.lstsq(A, Y)[0], rel=1e-6)
    assert found.iterations.tolist() == [0, 0] and found.converged.all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_size_of_a_parameter_does_not_matter(fits, dtype):
    """A parameter of 1e-25 is found as exactly as one of 1, beside others and alone, from any start."""
    X = np.linspace(1.0, 3.0, 50)[:, None] * [[10.0, 1.0]]
    pop = ek.parse(["p1 * x1^8", "p1 * x1^16", "p1 / x1^16", "p1 * x1^16 + p2", "p1 * x1^8 / (p2 + x2)"])
    truth = np.array([[2e-9, 0], [3e-25, 0], [4e18, 0], [3e-23, 2], [5e-9, 0.7]])
    values = ek.Evaluator(pop, X, "numpy", dtype="float64").evaluate(truth)
    for i, y in enumerate(values):
        n = pop.n_params[i]
        for start in (1.0, 1e-8, -30.0):
            found = ek.fit(pop[[i]], X, y, backend=fits, dtype=dtype, init=[[start, 1.0][:n]])
            assert found.r2[0] > 1 - 1e-6 and found.converged[0], (str(pop[i]), start, found.reason)
            assert found.params[0] == pytest.approx(truth[i, :n], rel=1e-3)


def test_covariance_is_that_of_linear_regression(fits):
    found = fit(["p1 + p2 * x1"], backend=fits)
    A = np.column_stack([np.ones(60), X[:, 0]])
    expected = np.linalg.inv(A.T @ A) * found.loss[0] / 58
    assert found.covariance[0] == pytest.approx(expected, rel=1e-5)
    assert found.standard_errors[0] == pytest.approx(np.sqrt(np.diag(expected)), rel=1e-5)
    assert found.r2[0] == pytest.approx(1 - found.loss[0] / np.sum((Y - Y.mean()) ** 2))


@pytest.mark.parametrize("kind", [objective.SQUARES, objective.ABSOLUTE, objective.HUBER, objective.POISSON])
@pytest.mark.parametrize("weighted", [False, True])
def test_cpu_takes_the_steps_of_the_definition(kind, weighted):
    pop = ek.parse([
        "p1 * exp(p2 * x1)", "p1 * x1 + p2", "abs(x1 - p1)^p2", "p1 * x1 / (p2 + x1)", "p3^x1", "sin(p1 * x1)^2",
        "sqrt(p1 - x1)", "log(p1) * p2", "2", "digamma(p1)",
    ])  # fmt: skip
    random = np.random.default_rng(3)
    X = random.uniform(0.1, 3, (700, 1))
    y = np.abs(2 * X[:, 0] / (0.5 + X[:, 0]) + 0.1 * random.standard_normal(700))
    w = np.where(np.arange(700) % 5 == 0, 0.0, random.uniform(0, 2, 700)) if weighted else None
    starts = random.uniform(0.3, 1.3, (2, len(pop), pop.max_params))
    plain, fast = (
        module.Engine(pop, X, precision="ieee", dtype=F64).fit(starts, y, w, Options(kind, 0.1, max_iter=60))
        for module in (definition, cpu_engine)
    )
    assert fast.loss == pytest.approx(plain.loss, rel=1e-7, nan_ok=True)
    assert fast.status.tolist() == plain.status.tolist()
    assert np.abs(fast.iterations - plain.iterations).max() <= 2
    assert fast.evaluations == pytest.approx(plain.evaluations, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("tol", [1e-8, 1e-4, 1e-2])
@pytest.mark.parametrize("bounded", [False, True])
def test_cpu_ends_for_the_reasons_of_the_definition(tol, bounded):
    pop = ek.generate.exhaustive(5, n_vars=1)
    pop = pop[np.flatnonzero(pop.n_params > 0)][::5]
    random = np.random.default_rng(3)
    X = random.uniform(0.1, 3, (24, 1))
    X[0] = 0
    y = 2 * X[:, 0] / (0.5 + X[:, 0]) + 0.1 * random.standard_normal(24)
    starts = random.uniform(-1, 1.5, (1, len(pop), pop.max_params))
    lower, upper = (np.full(starts.shape[1:], side) if bounded else None for side in (-0.4, 1.1))
    for max_iter in (0, 2, 9, 60):
        options = Options(max_iter=max_iter, tol=tol, lower=lower, upper=upper)
        plain, fast = (
            module.Engine(pop, X, precision="ieee", dtype=F64).fit(starts, y, None, options)
            for module in (definition, cpu_engine)
        )
        same = (fast.status == plain.status) & (fast.iterations == plain.iterations)
        assert same.mean() > 0.95, "a rounding of an ill-conditioned step decides now and then"
        assert fast.loss[same] == pytest.approx(plain.loss[same], rel=1e-3, abs=1e-12, nan_ok=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # SciPy's, of losses that overflow
def test_as_good_as_scipy():
    optimize = pytest.importorskip("scipy.optimize")
    pop = ek.generate.exhaustive(5, "esr")
    pop = pop[np.flatnonzero(pop.n_params > 0)][::9]
    data = ek.data.rough_pipe()
    starts = np.random.default_rng(0).standard_normal((len(pop), pop.max_params))
    ours = ek.fit(pop, data.X, data.y, init=starts, backend="cpu", dtype="float64").loss
    better = worse = 0
    for i in range(len(pop)):
        n, ev = int(pop.n_params[i]), ek.Evaluator(pop[[i]], data.X, "cpu", dtype="float64")
        try:
            peer = 2 * optimize.least_squares(
                lambda p, ev=ev: ev.evaluate(p[None])[0] - data.y, starts[i, :n],
                lambda p, ev=ev: ev.jacobian(p[None])[0], method="lm", max_nfev=50,
            ).cost  # fmt: skip
        except ValueError:  # not finite at the start, or on the way
            continue
        better += not peer <= ours[i] * (1 + 1e-6)
        worse += not ours[i] <= peer * (1 + 1e-6)
    assert worse <= better + 2 and better + worse < len(pop) / 3


def test_restarts_find_at_least_as_much():
    pop = ek.generate.exhaustive(5, "esr")
    pop = pop[np.flatnonzero(pop.n_params > 0)][::5]
    data = ek.data.rough_pipe()
    options = {"seed": 3, "backend": "cpu", "accuracy": "screen"}
    one, more = (ek.fit(pop, data.X, data.y, restarts=n, **options) for n in (0, 4))
    same = 1 + 2 * objective.SAME
    assert np.all(np.nan_to_num(more.loss, nan=np.inf) <= same * np.nan_to_num(one.loss, nan=np.inf))
    assert np.sum(more.loss < one.loss * 0.99) > 5
    again = ek.fit(pop, data.X, data.y, restarts=4, threads=1, **options)
    assert np.array_equal(again.params, more.params, equal_nan=True)
    part = ek.fit(pop[:40], data.X, data.y, restarts=4, **options)
    assert np.array_equal(part.params, more.params[:40, : part.params.shape[1]], equal_nan=True)


def test_float32_falls_back_on_float64_where_it_overflows():
    pop = ek.parse(["exp(p1 * x1)", "p1 * x1"])
    found = ek.fit(pop, np.ones((3, 1)), np.ones(3), init=[[95.0], [1.0]], backend="cpu", max_iter=150)
    assert found.params[:, 0] == pytest.approx([0, 1], abs=1e-6) and found.converged.all()


def test_float32_falls_back_on_float64_where_derivatives_vanish_or_overflow():
    data = ek.data.rough_pipe()
    texts = ["exp(p1 * -105) * 1e38 * 1e5 + x2", "inv(p1 * 1e-25) * 1e-25 + x2", "p1 * 0 + x1"]
    pop, start = ek.parse(texts), np.ones((3, 1))
    X = np.ascontiguousarray(data.X, F32)
    y = X[:, 1] + 3
    single = cpu_engine.Engine(pop, X, precision="ieee", dtype=F32).fit(start[None], y, None, Options())
    assert single.status.tolist() == [objective.FLAT, objective.NO_SLOPE, objective.FLAT]
    assert single.params[:, 0].tolist() == [1.0] * 3
    found = ek.fit(pop, X, y, init=start, backend="cpu", accuracy="screen")
    assert found.converged.all() and (found.loss[:2] < 1e-9 * single.loss[:2]).all()
    assert found.reason[2] == "no parameter changes the values" and found.loss[2] == single.loss[2]


# ── bounds ──


def boxes(random, n, n_params):
    """Bounds that hold for some parameters, on one side or both."""
    lower = random.uniform(-4, 3, (n, n_params))
    upper = lower + random.uniform(0.01, 4, (n, n_params))
    lower[random.random(lower.shape) < 0.2], upper[random.random(upper.shape) < 0.2] = -np.inf, np.inf
    return lower, upper


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bounded_polynomials_end_where_scipy_says(fits, degree, dtype):
    lsq_linear = pytest.importorskip("scipy.optimize").lsq_linear
    random, n = np.random.default_rng(degree), 40 if fits == "numpy" else 400
    x = np.linspace(-0.5, 1, 14)
    powers = x[:, None] ** np.arange(degree + 1)
    y = powers @ random.normal(0, 3, degree + 1) + random.normal(0, 0.1, len(x))
    lower, upper = boxes(random, n, degree + 1)
    pop = ek.parse([" + ".join(f"p{k + 1} * x1^{k}" for k in range(degree + 1))] * n)
    found = ek.fit(pop, x[:, None], y, bounds=(lower, upper), backend=fits, dtype=dtype)
    wanted = np.array([
        2 * lsq_linear(powers, y, bounds=box, tol=1e-13).cost for box in zip(lower, upper, strict=True)
    ])  # fmt: skip
    assert (found.params >= lower).all() and (found.params <= upper).all() and found.converged.all()
    assert (found.loss <= wanted * (1 + (1e-7 if dtype == "float64" else 1e-4)) + 1e-9).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # SciPy's, of losses that overflow
def test_scipy_finds_nothing_better_from_where_a_bounded_fit_converged():
    least_squares = pytest.importorskip("scipy.optimize").least_squares
    random = np.random.default_rng(7)
    pop = ek.parse(ek.data.esr_sample())
    pop = pop[np.flatnonzero(pop.n_params > 0)]
    X = random.uniform(0.2, 3, (60, 2))
    y = 2 * X[:, 0] ** 1.3 / (1 + X[:, 1]) + random.normal(0, 0.05, 60)
    better = n = 0
    for box in ((0, 2), (-0.5, 1.2), (0.5, 5), (-3, -0.2)):
        found = ek.fit(pop, X, y, bounds=box, backend="cpu", dtype="float64")
        for i in np.flatnonzero(found.converged & np.isfinite(found.loss)).tolist():
            params = found.params[i, : pop.n_params[i]]
            if np.abs(params).min() < 1e-9:
                continue  # beside a cusp at 0
            ev = ek.Evaluator(pop[[i]], X, "cpu", dtype="float64", threads=1)
            peer = least_squares(
                lambda p, ev=ev: np.nan_to_num(ev.evaluate([p])[0] - y, nan=1e9),
                np.clip(params, box[0] + 1e-9, box[1] - 1e-9),
                lambda p, ev=ev: np.nan_to_num(ev.jacobian([p])[0]), bounds=box, max_nfev=60,
            )  # fmt: skip
            n += 1
            better += 2 * peer.cost < found.loss[i] * 0.99 - 1e-12
    assert n > 400 and better <= 4, "of a saddle they may go different ways"


@pytest.mark.parametrize("method", ["lm", "lbfgs"])
def test_the_joint_step_does_not_stop_at_the_first_bound(fits, method):
    x = np.linspace(0, 1, 11)[:, None]
    found = ek.fit(
        ek.parse("p1 * x1 + p2"), x, 2 - 3 * x[:, 0], bounds=(0, 2), dtype="float64", backend=fits, method=method,
    )  # fmt: skip
    assert found.params[0] == pytest.approx([0, 0.5], abs=1e-5) and found.loss[0] == pytest.approx(9.9)


# ── derivatives that are not finite ──


@pytest.mark.parametrize("text", ["p1 * abs(x1)^p2", "p1 * powabs(x1, p2)", "p1 * x1^p2", "sqrt(abs(p1) * x1^p2 * p1)"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_data_may_begin_at_0(fits, text, dtype):
    x = np.linspace(0, 4, 41)[:, None]
    y = ek.Evaluator(ek.parse(text), x, dtype="float64").evaluate([[3, 1.5]])[0]
    found = ek.fit(ek.parse(text), x, y, backend=fits, dtype=dtype)
    assert found.params[0] == pytest.approx([3, 1.5], rel=1e-4) and found.converged[0]
    assert np.isfinite(found.standard_errors).all()


@pytest.mark.parametrize("method", ["lm", "lbfgs", "adam"])
def test_what_ends_beside_a_derivative_that_is_not_finite_has_not_converged(fits, method):
    X = np.array([[0.0], [1.0], [2.0]])
    found = ek.fit(ek.parse(["sqrt(x1 - p1) + p2", "p2 + p1"]), X, [0.5, 1, 2.0], init=np.zeros((2, 2)), backend=fits,
                   method=method)  # fmt: skip
    assert not found.converged[0] and np.isfinite(found.loss[0])
    if method == "lm":
        assert found.reason[0] == "a derivative is not finite, so that its parameter could not follow"
        assert found.params[0, 0] == 0 and found.params[0, 1] != 0 and found.converged[1]


# ── losses ──


@pytest.mark.parametrize(("method", "loss"), [("lm", "mae"), ("lm", "huber"), ("lbfgs", "mae"), ("lm", "squares")])
def test_robust_losses_resist_an_outlier(method, loss):
    y = 1 + 2 * X[:, 0]
    y[7] += 1000
    found = fit(["p1 + p2 * x1"], y, method=method, loss=loss, delta=0.01, max_iter=500)
    error = np.abs(found.params[0] - [1, 2]).max()
    assert error > 1 if loss == "squares" else error < 0.01


def test_huber_lies_between():
    squares, huge, small = (fit(["p1 + p2 * x1"], loss=loss, delta=delta) for loss, delta in (
        ("squares", 1.0), ("huber", 1e6), ("huber", 1e-7)))  # fmt: skip
    assert huge.loss == pytest.approx(squares.loss / 2) and huge.params == pytest.approx(squares.params)
    mae = fit(["p1 + p2 * x1"], loss="mae", max_iter=500)
    assert small.loss / 1e-7 / 60 == pytest.approx(mae.loss, rel=1e-3)


def test_gaussian_likelihood():
    found, plain = fit(["p1 + p2 * x1"], loss="gaussian"), fit(["p1 + p2 * x1"])
    variance = plain.loss[0] / 60
    assert found.loss[0] == pytest.approx(30 * (np.log(2 * np.pi * variance) + 1))
    known = fit(["p1 + p2 * x1"], loss="gaussian", weights=np.full(60, 4.0))
    assert known.loss[0] == pytest.approx(2 * plain.loss[0] + 30 * np.log(2 * np.pi / 4))
    A = np.column_stack([np.ones(60), X[:, 0]])
    assert known.covariance[0] == pytest.approx(np.linalg.inv(4 * A.T @ A), rel=1e-6)


def test_poisson_likelihood(fits):
    counts = np.random.default_rng(1).poisson(np.exp(0.5 + 0.8 * X[:, 0])).astype(float)
    found = fit(["exp(p1 + p2 * x1)"], counts, loss="poisson", backend=fits)
    f = np.exp(found.params[0, 0] + found.params[0, 1] * X[:, 0])
    slope = np.array([np.sum(f - counts), np.sum((f - counts) * X[:, 0])])
    assert np.abs(slope).max() < 1e-3 * counts.sum(), "the score equations"
    from math import lgamma

    expected = np.sum(f - counts * np.log(f)) + sum(lgamma(c + 1) for c in counts)
    assert found.loss[0] == pytest.approx(expected)
    A = np.column_stack([np.ones(60), X[:, 0]])
    assert found.covariance[0] == pytest.approx(np.linalg.inv((A.T * f) @ A), rel=1e-4)
    with pytest.raises(DataError, match="counts"):
        fit(["p1"], -counts - 1, loss="poisson")


@pytest.mark.parametrize("method", ["lbfgs", "adam"])
def test_gradient_methods_reach_what_lm_does(method):
    texts = ["p1 * x1 / (p2 + x1)", "p1 + p2 * x1", "x1", "digamma(p1)", "bad"]
    lm, other = fit(texts), fit(texts, method=method)
    assert other.loss == pytest.approx(lm.loss, rel=1e-4, nan_ok=True)
    assert other.status[2:].tolist() == lm.status[2:].tolist()


# ── weights, bounds, starts ──


def test_weights(fits):
    w = np.where(X[:, 0] < 1.5, 2.0, 0.0)
    y = np.where(w > 0, Y, np.nan)
    found = fit(["p1 + p2 * x1"], y, weights=w, backend=fits)
    some = w > 0
    A = np.column_stack([np.ones(some.sum()), X[some, 0]])
    assert found.params[0] == pytest.approx(np.linalg.lstsq(A, Y[some])[0], rel=1e-6)
    nothing = fit(["p1 + p2 * x1"], weights=np.zeros(60), backend=fits)
    assert nothing.reason == ["no data point counts"] and nothing.loss[0] == 0


@pytest.mark.parametrize(
    "bounds", [(0.0, 0.9), (None, 0.9), {"p1": (None, 0.9), "p2": (0, 0.9)}, (0.0, np.full(2, 0.9))]
)
def test_bounds_hold(fits, bounds):
    found = fit(["p1 * x1 / (p2 + x1)", "p1 + p2 * x1"], bounds=bounds, init="ones", backend=fits)
    assert np.all(found.params <= 0.9) and found.params[0, 0] == 0.9
    free = np.linspace(0.0, 0.9, 400)  # the best on a grid with p1 at its bound
    losses = [np.sum((0.9 * X[:, 0] / (p + X[:, 0]) - Y) ** 2) for p in free]
    assert found.loss[0] <= min(losses) * (1 + 1e-4)


@pytest.mark.parametrize("method", ["lbfgs", "adam"])
@pytest.mark.parametrize("bounds", [(0.0, 0.9), (None, 0.9), (-50, 50), (0.9, 0.9), ([1.5, 0.1], [9.0, 0.2])], ids=str)
def test_gradient_methods_keep_bounds(method, bounds):
    texts = ["p1 * x1 / (p2 + x1)", "p1 + p2 * x1", "p1 * x1 + p2 * x1^2", "x1 + 0 * p1"]
    lm, found = (fit(texts, bounds=bounds, method=name, max_iter=3000) for name in ("lm", method))  # some start outside
    low, high = -np.inf if bounds[0] is None else np.array(bounds[0]), np.array(bounds[1])
    assert np.all((found.params >= low) & (found.params <= high) | np.isnan(found.params))
    assert found.loss == pytest.approx(lm.loss, rel=1e-4)
    if bounds == (-50, 50):
        assert np.array_equal(found.params, fit(texts, method=method, max_iter=3000).params, equal_nan=True)


def test_a_parameter_leaves_a_bound_that_it_starts_at():
    found = fit(["p1 + p2 * x1"], bounds=(0.0, 3.0), init=[[0.0, 3.0]], method="lbfgs")
    assert found.loss == pytest.approx(fit(["p1 + p2 * x1"]).loss, rel=1e-6)


def test_starts():
    pop = ek.parse(["sin(p1 * x1)"])
    y = np.sin(7 * X[:, 0])
    assert ek.fit(pop, X, y, init=[[6.9]], dtype="float64").params[0, 0] == pytest.approx(7)
    sets = np.array([[[1.0]], [[6.8]]])
    assert ek.fit(pop, X, y, init=sets, dtype="float64").params[0, 0] == pytest.approx(7)
    drawn = ek.fit(pop, X, y, init=lambda random, shape: random.uniform(6.5, 7.5, shape), dtype="float64")
    assert drawn.params[0, 0] == pytest.approx(7)
    normal = [ek.fit(pop, X, y, init="normal", seed=seed).params for seed in (1, 1, 2)]
    assert np.array_equal(normal[0], normal[1]) and not np.array_equal(normal[0], normal[2])


WAYS = [("lm", "cpu"), ("lm", "numpy"), ("lbfgs", "cpu"), ("adam", "cpu")]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("method", "engine"), WAYS)
def test_a_parameter_at_its_bound_is_said_to_be_there(method, engine, dtype):
    texts, options = ["p1 * x1 + p2", "p1 * x1"], {"method": method, "backend": engine, "dtype": dtype}
    low, free = (fit(texts, bounds=bounds, max_iter=2000, **options) for bounds in ({"p1": (0.1, 0.3)}, None))
    assert low.at_bound.tolist() == [[True, False], [True, False]] and not free.at_bound.any()
    assert all(reason.endswith("; p1 at its bound") for reason in low.reason)
    assert not any("gradient is 0" in reason for reason in low.reason)
    both = fit(texts[:1], bounds=((0.1, 0.2), (0.3, 0.25)), **options)
    assert both.reason[0].endswith("; p1 and p2 at their bounds")
    errors = low.standard_errors
    assert errors[0, 1] == pytest.approx(np.sqrt(low.loss[0] / 59 / 60), rel=1e-5), "p1 is a constant to p2"
    assert np.isnan(errors[0, 0]) and np.isnan(errors[1]).all()
    assert np.isnan(low.covariance[0, 0]).all() and np.isnan(low.covariance[0, :, 0]).all()
    copy = pickle.loads(pickle.dumps(low))
    assert copy.at_bound.tolist() == low.at_bound.tolist() and copy.reason == low.reason


def test_bounds_that_do_not_hold_a_parameter_change_nothing():
    wide, free = (fit(["p1 * x1 / (p2 + x1)"], bounds=bounds) for bounds in ((-50, 50), None))
    assert not wide.at_bound.any() and wide.reason == free.reason
    assert wide.covariance.tolist() == free.covariance.tolist()


def test_bounds_of_a_parameter_that_no_expression_has_bind_nothing():
    pop = ek.parse("k * r", variables=["r"], parameters=["k", "c"])
    found, free = (ek.fit(pop, X, Y, bounds=bounds) for bounds in ({"c": (2, 3)}, None))
    assert found.params.tolist() == free.params.tolist() and not found.at_bound.any()


def test_a_table_gives_no_error_for_a_parameter_at_its_bound():
    found = ek.fit(ek.parse("r * k + c", variables=["r"], parameters=["k", "c"]), X, Y, bounds={"k": (2, 3)})
    row = found.to_pandas().iloc[0]
    assert row.k == 2 and np.isnan(row.k_error) and row.c_error > 0
    assert row.reason == "the loss no longer falls; k at its bound"


# ── how sure the parameters are ──


def exact_errors(text, params, free):
    """Standard errors by SymPy's derivatives and an inverse of 40 digits."""
    pop = ek.parse([text])
    symbols = sympy.symbols(f"x1 p1:{len(params) + 1}")
    formula = pop[0].sympy().subs({s: sympy.Symbol(str(s)) for s in pop[0].sympy().free_symbols})
    with mp.workdps(40):
        values = [sympy.lambdify(symbols, part, "mpmath") for part in (formula, *(
            sympy.diff(formula, symbols[1 + j]) for j in free
        ))]  # fmt: skip
        rows = [[value(mp.mpf(x), *map(mp.mpf, params)) for value in values] for x in X[:, 0]]
        variance = sum((row[0] - y) ** 2 for row, y in zip(rows, Y, strict=True)) / (60 - len(free))
        J = mp.matrix([row[1:] for row in rows])
        inverse = (J.T * J) ** -1
        return [float(mp.sqrt(inverse[k, k] * variance)) for k in range(len(free))]


DETERMINED = {  # 1: by the data; 0: not; x: not, but the others are what they are beside it
    "p1 * x1 / (p2 + x1)": "11", "p1 * exp(p2 * x1)": "11", "powabs(x1, p1) * p2": "11", "p1 + p2": "00",
    "p1 * x1^6 + p2 * x1^7 + p3 * x1^8 + p4 * x1^9": "1111", "1e8 * p1 + 1e-8 * p2 * x1": "11",
    "p1 + p2 + p3 * x1": "x01", "p1 * p2 * x1 + p3": "x01", "p1 * p2 * x1": "00", "p1 * exp(p2 + p3 * x1)": "x01",
    "p1^2 * x1 + p2 * p3": "1x0", "p1 * x1 + p2 * 0 + p3": "101", "p2 * x1": "01",
    "(p1 + p2 * x1) / (p3 + p4 * x1)": "0000",
}  # fmt: skip


@pytest.mark.parametrize("text", DETERMINED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_errors_are_given_where_the_data_determine_a_parameter(text, dtype):
    found, signs = fit([text], dtype=dtype), DETERMINED[text]
    known = np.array([sign == "1" for sign in signs])
    assert np.isfinite(found.standard_errors[0]).tolist() == known.tolist()
    assert np.isfinite(found.covariance[0]).tolist() == np.outer(known, known).tolist()
    if known.any():
        free = [j for j, sign in enumerate(signs) if sign != "0"]
        expected = exact_errors(text, found.params[0].tolist(), free)
        expected = [error for j, error in zip(free, expected, strict=True) if known[j]]
        assert found.standard_errors[0, known] == pytest.approx(expected, rel=1e-3 if dtype == "float32" else 1e-6)


# ── troubles of one expression ──


def test_each_one_ends_for_its_own_reason(fits):
    texts = ["2", "p1 * x1", "bad bad", "log(-abs(p1) - 1)", "p1 + p2", "p1 * 0", "digamma(p1)", "exp(exp(p1 * 1000))"]
    found = fit(texts, backend=fits, init="ones")
    assert [REASONS[status] for status in found.status] == found.reason
    reasons = found.reason
    assert reasons[0] == "no parameters to fit" and np.isfinite(found.loss[0])
    assert found.converged[[1, 4, 5]].all()
    assert reasons[2] == "the expression could not be read" and np.isnan(found.loss[2])
    assert reasons[3] == reasons[7] == "the loss is not finite at any start"
    assert reasons[6] == "a parameter is inside an operator that has no derivative"
    assert np.isnan(found.params[1, 1]) and np.isnan(found.params[0]).all()
    assert np.isnan(found.covariance[4]).all(), "p1 and p2 are not determined, their sum is"
    alone = fit([texts[1]], backend=fits)
    assert found.loss[1] == pytest.approx(alone.loss[0], rel=1e-12)


def test_more_parameters_than_points(fits):
    found = ek.fit(ek.parse(["p1 + p2 * x1 + p3 * x1^2"]), [[1.0], [2.0]], [3.0, 5.0], dtype="float64", backend=fits)
    assert found.loss[0] < 1e-12 and np.isnan(found.covariance).all()


def test_constant_columns_nan_and_no_points(fits):
    pop = ek.parse(["p1 + p2 * x1"])
    constant = ek.fit(pop, np.ones((9, 1)), np.arange(9.0), dtype="float64", backend=fits)
    assert constant.loss[0] == pytest.approx(60)
    for data, y in ((np.full((9, 1), np.nan), np.arange(9.0)), (np.ones((9, 1)), np.full(9, np.nan))):
        engine = load(fits).engine(pop, data, precision="ieee", dtype=F64)
        assert engine.fit(np.ones((1, 1, 2)), y, None, Options()).status[0] == objective.NOT_FINITE
    assert ek.fit(pop, np.empty((0, 1)), [], backend=fits).status[0] == objective.NO_WEIGHT
    assert len(ek.fit(ek.parse([]), np.ones((9, 1)), np.ones(9), backend=fits)) == 0


def test_non_finite_trials_are_rejected_steps(fits):
    found = fit(["p1 * log(p2 + x1)"], 3 * np.log(0.01 + X[:, 0]), init=[[1.0, 5.0]], backend=fits)
    assert found.params[0] == pytest.approx([3, 0.01], rel=1e-4)


def test_many_parameters():
    terms = " + ".join(f"p{j + 1} * cos({j} * x1)" for j in range(9))
    found = fit([terms])
    A = np.cos(np.arange(9) * X)
    assert found.loss[0] == pytest.approx(np.sum((A @ np.linalg.lstsq(A, Y)[0] - Y) ** 2), rel=1e-8)


# ── the result, and arguments ──


def test_result_as_a_table():
    pop = ek.parse(["r + k * r", "k^r"], variables=["r"], parameters=["k"])
    found = ek.fit(pop, X, Y)
    table = found.to_pandas()
    assert list(table) == ["expression", "loss", "r2", "iterations", "converged", "reason", "k", "k_error"]
    assert table.expression.tolist() == pop.texts() and len(found) == 2
    assert found.best(1)[0] == np.argmin(found.loss)
    copy = pickle.loads(pickle.dumps(found))
    assert np.allclose(copy.covariance, found.covariance)
    assert "2 expressions" in repr(found)


@pytest.mark.parametrize(("options", "message"), [
    ({"method": "newton"}, "method must be one of 'lm', 'lbfgs', 'adam'"),
    ({"loss": "rmse"}, "loss must be one of"),
    ({"restarts": -1}, "restarts must be a whole number from 0 to 1,000,000, not -1"),
    ({"max_iter": 2.5}, "max_iter must be a whole number"),
    ({"tol": -1}, "tol must be a number"),
    ({"delta": 0}, "delta must be a positive number"),
    ({"bounds": (2, 1)}, "bounds of p1 of expression 0: 2.0 is not at most 1.0"),
    ({"bounds": 3}, r"bounds must be \(low, high\), not 3"),
    ({"bounds": {"q": (0, 1)}}, "bounds: there is no parameter 'q'; there are p1"),
    ({"bounds": {"p1": ("a", 2)}}, r"bounds of p1 must be \(low, high\), each None or a number, not .a."),
    ({"init": "zeros"}, "init must be one of 'ones', 'normal'"),
    ({"init": np.ones((3, 1))}, "init must be"),
    ({"weights": [-1.0] * 60}, "weights must be finite and not negative"),
    ({"method": "adam", "loss": "poisson"}, "use method='lm'"),
    ({"y": Y[:3]}, "y must have shape"),
    ({"block": 3}, "has no option 'block'"),
])  # fmt: skip
def test_bad_arguments(options, message):
    with pytest.raises((ArgumentError, DataError), match=message):
        fit(["p1 * x1"], **options)


# ── one problem, one population after the other ──────────────────────────────────────


@pytest.mark.parametrize("settings", [
    {}, {"loss": "huber", "delta": 0.1, "bounds": (-1, 2)}, {"method": "lbfgs"}, {"dtype": "float64"},
])  # fmt: skip
def test_a_problem_fits_every_population_as_fit_does(settings):
    x = np.linspace(0.1, 2, 40)[:, None]
    y = 1.5 * np.exp(-0.7 * x[:, 0])
    problem = ek.FitProblem(x, y, backend="cpu", **settings)
    texts = (["p1 * exp(p2 * x1)", "p1"], ["p1 + p2 * x1 + p3 * x1^2"], ["x1", "bad(", "p1 * exp(exp(p2 * x1))"])
    results = [problem.fit(ek.parse(some, errors="mask"), restarts=1) for some in texts]
    for some, ours in zip(texts, results, strict=True):
        theirs = ek.fit(ek.parse(some, errors="mask"), x, y, backend="cpu", restarts=1, **settings)
        for name in ("params", "loss", "status", "iterations", "r2"):
            assert np.array_equal(getattr(ours, name), getattr(theirs, name), equal_nan=True), name
    again = ek.fit(results[0].pop, x, y, backend="cpu", restarts=1, **settings)
    assert np.allclose(results[0].covariance, again.covariance, rtol=1e-3, equal_nan=True)


def test_a_problem_tells_what_is_wrong_and_goes_on():
    x = np.linspace(0.1, 2, 9)[:, None]
    with pytest.raises(ArgumentError, match="method must be one of"):
        ek.FitProblem(x, x[:, 0], method="newton")
    with pytest.raises(ArgumentError, match="FitProblem has no option 'restart'"):
        ek.FitProblem(x, x[:, 0], restart=3)
    problem = ek.FitProblem(x, 2 * x[:, 0], backend="cpu")
    first = problem.fit(ek.parse("p1 * x1"))
    with pytest.raises(DataError, match="needs 2"):
        problem.fit(ek.parse("p1 * x2"))
    with pytest.raises(ArgumentError, match="restarts must be a whole number"):
        problem.fit(ek.parse("p1 * x1"), restarts=-1)
    assert problem.fit(ek.parse("p1 * x1")).params == first.params


def test_starts_are_called_init_where_they_are_wrong():
    pop, X = ek.parse(["p1 * x1 + p2", "p1 * x1"]), np.ones((5, 1))
    for init, message in (
        ([[1, 2], [1], [2]], "^init must be a list of 2 vectors, one per expression; its length is 3"),
        (np.ones((3, 2)), "^init must be a list of 2 vectors"),
        ([[1, 2, 3], [1]], r"^init\[0\] has length 3"), ([[1], [1]], "^init has 1 value per expression"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=message):
            ek.fit(pop, X, X[:, 0], init=init)


def test_the_best_by_a_criterion():
    x = np.linspace(0.5, 3, 40)[:, None]
    y = 2 * x[:, 0] + 0.1 * np.random.default_rng(0).standard_normal(40)
    found = ek.fit(["p1", "p1 * x1", "p1 * x1 + p2 * x1^2 + p3"], x, y)
    assert found.best()[0] == 2 and found.best(by="bic")[0] == 1
    assert found.best(3, by="loss").tolist() == [2, 1, 0]


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_a_parameter_that_no_longer_changes_anything_ends_a_fit(backend):
    """Its derivatives become 0 on the way: what it moves by counts for nothing, and is divided by nothing."""
    x = np.linspace(1, 2, 20)[:, None]
    options = {"backend": backend, "dtype": "float64", "init": [[1.0, 1.0, -0.5, -np.inf]]}
    found = ek.fit("p1 + p2 * exp(p3 * exp(p4 * x1))", x, np.zeros(20), **options)
    assert found.loss[0] < 1e-20


def test_a_start_of_huge_values_is_left(fits):
    """Squares of what J'J holds there are beyond float64."""
    data, text = ek.data.rough_pipe(), "p1 / (exp(sin(p2) * (logabs(x1) - exp(x2))) * p3)"
    options = {"dtype": "float64", "init": "ones", "accuracy": "screen", "max_iter": 20}
    result = ek.fit(text, data.X, data.y, backend=fits, **options)
    assert result.loss[0] < 1e3
