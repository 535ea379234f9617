"""Derivatives: symbolic, and by every backend, against differences, SymPy and each other."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

import exprkit as ek
from exprkit.backends import objective
from exprkit.backends.cpu import engine as cpu_engine
from exprkit.backends.cpu import kernels, reductions
from exprkit.backends.reference import engine as definition
from exprkit.backends.reference.levenberg_marquardt import losses_and_weights
from exprkit.errors import ArgumentError, BackendError, DataError, PopulationError
from exprkit.operators import ops
from exprkit.programs.linearity import dependence
from exprkit.programs.lower import lower_gradients

SMOOTH = [row for row in ops.OPERATORS if row.derivative]
POINTS = 40
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


def both(pop, X, dtype=F64, **options):
    """The engines of the definition and of the CPU."""
    X = np.ascontiguousarray(X, dtype)
    return [module.Engine(pop, X, precision="ieee", dtype=dtype, **options) for module in (definition, cpu_engine)]


def jacobian(engine, params):
    pop = engine.pop
    out = np.full((*params.shape[:2], engine.n_points, pop.max_params), -7.0, params.dtype)
    engine.jacobian(np.ascontiguousarray(params), out)
    return out


def with_parameters(row):
    """The operator with a parameter in every operand: ``name(x1 + p1, x2 * p2)``."""
    operands = ["x1 + p1", "x2 * p2"][: row.arity]
    return f"{row.name}({', '.join(operands)})"


def ordinary(row, random):
    """Points within the operator's domain, and parameters that stay within it."""
    low, high = np.array(row.domain[:2]).T
    span = high - low
    X = low + span * random.uniform(0.1, 0.9, (POINTS, 2))
    params = np.array([span[0] * 0.02, 1.01]).reshape(1, 1, 2)
    return X, params


# ── where a rule alone gives nan ──


STRONG = {  # text: (point, parameters, derivatives by them)
    "p1 * abs(x1) ^ p2": ([0, 1], [2, 1.5], [0, 0]),
    "powabs(x1, p1) / x2": ([0, 1], [2], [0]),
    "x1 ^ p1": ([0, 1], [2], [0]),
    "sqrt(x1 ^ p1)": ([0, 1], [2], [0]),
    "powabs(x1 - p1, p2)": ([1, 1], [1, 2.5], [0, 0]),
    "powabs(p1, p2)": ([1, 1], [0, 2.5], [0, 0]),
    "sqrt(p1 * x1)": ([0, 1], [2], [0]),
    "cbrt(p1 * x1)": ([0, 1], [2], [0]),
    "hypot(x1, p1 * x1)": ([0, 1], [2], [0]),
    "asin(x2 - p1 * x1)": ([0, 1], [2], [0]),
    "x1 * sqrt(p1)": ([0, 1], [0], [0]),
    "tanh(p1 / x1)": ([0, 1], [2], [0]),
    "exp(-(p1 / x1))": ([0, 1], [2], [0]),
    "1 / (1 + exp(1e3 * x2 + p1 * x1))": ([0, 1], [2], [0]),
    "atan2(p1, 1 / x1)": ([0, 1], [2], [0]),
    "atan2(p1, log(x1))": ([0, 1], [2], [0]),
    "min(acosh(p1), 3)": ([0, 1], [0.5], [0]),
    "min(p2, x2 * acosh(p1))": ([0, 1], [0.5, 2], [0, 1]),
    "max(log(x1 - p1), p2)": ([0, 1], [2, 3], [0, 1]),
    "max(p1, log(-x2))": ([0, 1], [2], [1]),
    "min(log(-x2), p1)": ([0, 1], [2], [1]),
    "min(p1, p1 * x2)": ([0, 1], [2], [1]),
    "cond(x1, log(p1))": ([0, 1], [-2], [0]),
    "mod(p1, p1)": ([0, 1], [3.3], [0]),
    "mod(p1 * x2, p2)": ([0, 1], [7.5, 2], [1, -3]),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("precision", ["ieee", "fast"])
def test_derivatives_are_finite_where_they_are_in_truth(fits, dtype, precision):
    for text, (point, params, wanted) in STRONG.items():
        ev = ek.Evaluator(ek.parse([text]), [point], fits, precision, dtype)
        if precision == "ieee":
            assert np.isfinite(ev.evaluate([params])).all(), text
        assert ev.jacobian([params])[0, 0] == pytest.approx(wanted, rel=1e-5, abs=1e-7), text


def one_sided(pop, X, params, j, step):
    """Differences by parameter j to the right and to the left, and the values."""
    ev, moved = ek.Evaluator(pop, X, "cpu", dtype="float64"), params.copy()
    moved[:, j] += step
    right, here = ev.evaluate(moved), ev.evaluate(params)
    moved[:, j] -= 2 * step
    return (right - here) / step, (here - ev.evaluate(moved)) / step, here


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_derivative_of_random_expressions_is_nan_where_differences_say_what_it_is(fits, dtype):
    """Of all operators, at points where some are 0, infinite or at the edge of their domain."""
    names = tuple(row.name for row in SMOOTH)
    X = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [-1, 2], [2, -1], [0.5, 0], [0, -3], [3, 3.0]])
    n = 400 if fits == "numpy" else 8000
    pop = ek.generate.random(n, (3, 12), names, n_vars=2, n_params=2, constant_range=None, seed=2)
    params = np.tile([1.3, 0.5], (n, 1))  # not whole: a whole one is where powers of negative numbers begin and end
    J = ek.Evaluator(pop, X, fits, dtype=dtype).jacobian(params)
    missing = 0
    with np.errstate(all="ignore"):
        for j in range(2):
            (right, left, here), (right_2, left_2, _) = (one_sided(pop, X, params, j, h) for h in (1e-5, 1e-4))
            few = 1e-3 * (1 + np.abs(right))
            known = (np.abs(right - left) < few) & (np.abs(right_2 - left_2) < 10 * few)
            known &= (np.abs(right_2 - right) < few) & (np.abs(right) < 1e6)
            known &= np.isfinite(here) & (pop.n_params > j)[:, None]
            bad = known & ~np.isfinite(J[:, :, j])
            missing += bad.sum()
            wrong = known & (np.abs(J[:, :, j] - right) > 10 * few) & (np.abs(right) < 1e3)
            assert wrong.sum() <= 2e-3 * known.sum(), [str(pop[int(i)]) for i in np.flatnonzero(wrong.any(1))[:9]]
    assert missing <= n / 4000, "where two sides that differ in slope meet, differences do not see it"


# ── symbolic ──


@pytest.mark.parametrize("row", SMOOTH, ids=lambda row: row.name)
def test_diff_is_the_table_s_rule(row):
    random = np.random.default_rng(row.code)
    names = ["x1", "x2"][: row.arity]
    pop = ek.parse([f"{row.name}({', '.join(names)})"], variables=2)
    X, _ = ordinary(row, random)
    y = ek.Evaluator(pop, X, "numpy", dtype="float64").evaluate()[0]
    for name, text in zip(names, row.derivative, strict=True):
        rule = ek.parse([text], variables=["a", "b", "y"])
        expected = ek.Evaluator(rule, np.column_stack([X, y]), "numpy", dtype="float64").evaluate()
        found = ek.Evaluator(pop.diff(name), X, "numpy", dtype="float64").evaluate()
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_diff_is_simplified():
    texts = ["p1 * x1^2 + exp(-x2)", "x2", "x1^3", "1 / x1", "p1 + p2", "x1 - x1 * 2", "-(-x1)", "2 * (3 * x1)"]
    assert ek.parse(texts).diff("x1").texts() == [
        "p1 * (2 * x1)", "0", "3 * x1 ^ 2", "-(1 / x1 / x1)", "0", "-1", "1", "6",
    ]  # fmt: skip
    assert ek.parse(texts).diff("p2").texts() == ["0", "0", "0", "0", "1", "0", "0", "0"]


def test_diff_knows_the_population_s_names():
    pop = ek.parse(["r * exp(k * r)"], variables=["r"], parameters=["k"])
    assert pop.diff("k").texts() == ["r * (exp(k * r) * r)"]
    with pytest.raises(ArgumentError, match=r"there is no variable or parameter 'kk': did you mean 'k'\?"):
        pop.diff("kk")
    with pytest.raises(ArgumentError, match=r"there are r, k$"):
        pop.diff("zzz")


def test_diff_of_too_many_tokens_shows_the_beginning_alone():
    with pytest.raises(PopulationError, match=r"^expression 0 .*…\): its derivative has more than") as caught:
        ek.parse("exp(" * 3000 + "x1" + ")" * 3000).diff("x1")
    assert len(str(caught.value)) < 300


def test_diff_says_what_has_no_derivative():
    pop = ek.parse(["x1 + 1", "digamma(x1)", "digamma(2) * x1", "bad bad"], errors="mask")
    with pytest.raises(PopulationError, match=r"expression 1 \(digamma\(x1\)\): there is no derivative of digamma"):
        pop.diff("x1")
    masked = pop.diff("x1", errors="mask")
    assert masked.valid.tolist() == [True, False, True, False]
    assert masked.errors[1] == "expression 1: there is no derivative of digamma"
    assert "bad" in masked.errors[3]
    with pytest.raises(ArgumentError, match="errors must be one of"):
        pop.diff("x1", errors="ignore")


def test_diff_masks_what_becomes_too_long():
    text = "x1"
    for _ in range(3000):
        text = f"sqr({text})"
    pop = ek.parse([text, "x1"])
    masked = pop.diff("x1", errors="mask")
    assert masked.valid.tolist() == [False, True] and "65,535 tokens" in masked.errors[0]


@pytest.mark.slow
@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_diff_of_random_expressions_agrees_with_sympy(seed):
    pop = ek.generate.random(3, n_tokens=(3, 9), operators="gp", n_vars=2, n_params=2, seed=seed)
    x1, x2, p1, p2 = sympy.symbols("x1 x2 p1 p2", real=True)
    point = dict(zip((x1, x2, p1, p2), (0.7, 1.3, 0.4, -0.8), strict=True))
    X, params = np.array([[0.7, 1.3]]), np.array([0.4, -0.8])
    for name in ("x1", "p2") if pop.max_params == 2 else ("x1",):
        derivative = pop.diff(name)
        found = ek.Evaluator(derivative, X, "numpy", dtype="float64").evaluate(
            np.broadcast_to(params[: derivative.max_params], (3, derivative.max_params))
        )[:, 0]
        for expression, value in zip(pop, found, strict=True):
            plain = expression.sympy().replace(sympy.Abs, lambda a: sympy.sqrt(a**2))
            plain = plain.subs({s: sympy.Symbol(s.name, real=True) for s in plain.free_symbols})
            expected = sympy.diff(plain, sympy.Symbol(name, real=True)).subs(point)
            if expected.is_number and abs(complex(expected.evalf())) < 1e12 and np.isfinite(value):
                assert value == pytest.approx(float(sympy.re(expected.evalf())), rel=1e-6, abs=1e-6)


# ── the lowered program ──


def test_program_shares_and_orders():
    program = lower_gradients(ek.parse(["p1 * exp(p2 * x1)"]))
    assert program.listing(0).splitlines() == [
        "t0 = mul u1, c0", "t0 = exp t0", "t1 = mul u0, t0", "t2 = strong_product c0, t1",
        "value = t1; by p1: t0; by p2: t2",
    ]  # fmt: skip
    assert program.n_value.tolist() == [3]


def test_many_parameters_take_reverse_mode():
    terms = " + ".join(f"p{j + 1} * x1" for j in range(12))
    program = lower_gradients(ek.parse([f"exp(sin({terms}))"]))
    assert len(program.code) < 60, "one sweep back, not twelve forth"


def test_linear_parameters_are_jointly_linear():
    pop = ek.parse(["p1 * x1 + p2", "p1 * p2", "p1 * exp(p2 * x1) + p3", "exp(p1)", "x1", "p2 * (x1 + p1)", "p1 - p1"])
    assert dependence(pop).linear.tolist() == [0b11, 0b01, 0b101, 0, 0, 0b01, 0b1]


def test_derivatives_by_linear_parameters_do_not_depend_on_any_of_them():
    pop = ek.generate.random(200, n_tokens=(3, 30), operators="gp", n_vars=2, n_params=4, seed=3)
    random = np.random.default_rng(0)
    X, params = random.uniform(0.5, 1.5, (5, 2)), random.uniform(0.5, 1.5, (1, len(pop), pop.max_params))
    linear = (dependence(pop).linear[:, None] >> np.arange(pop.max_params, dtype=np.uint64) & 1).astype(bool)
    engine = definition.Engine(pop, X, precision="ieee", dtype=F64)
    one, other = (jacobian(engine, np.where(linear, params * factor, params))[0] for factor in (1.0, 1.7))
    columns = np.broadcast_to(linear[:, None], one.shape)
    assert linear.sum() > 50
    np.testing.assert_allclose(other[columns], one[columns], rtol=1e-12)


def test_what_is_differentiable():
    texts = ["digamma(p1)", "digamma(x1) + p1", "p1", "digamma(floor(p1))", "digamma(cond(p1, x1))"]
    texts += ["digamma(cond(x1, p1))"]
    assert dependence(ek.parse(texts)).differentiable.tolist() == [False, True, True, True, True, False]


def test_a_population_keeps_its_dependence_and_copies_make_their_own():
    pop = ek.parse(["p1 * x1 + p2", "exp(p1)"])
    known = dependence(pop)
    assert dependence(pop) is known and dependence(pop[::-1]).linear.tolist() == known.linear[::-1].tolist()
    assert not pickle.loads(pickle.dumps(pop)).analyses


def test_what_has_no_slope_has_none_in_anything(fits):
    pop = ek.parse(["digamma(floor(p1)) + p2", "digamma(cond(p1 * x1, x1)) + p2", "sqrt(greater(p1, x1)) * p2"])
    J = ek.Evaluator(pop, [[2.0], [0.5]], fits, dtype="float64").jacobian(np.full((3, 2), 1.5))
    assert J[..., 0].tolist() == [[0, 0]] * 3 and J[..., 1].tolist() == [[1, 1], [1, 1], [0, 1]]


# ── numbers ──


@pytest.mark.parametrize("row", SMOOTH, ids=lambda row: row.name)
def test_every_operator_s_jacobian_agrees_with_central_differences(row):
    random = np.random.default_rng(row.code)
    X, params = ordinary(row, random)
    pop = ek.parse([with_parameters(row)], variables=2, parameters=2)
    engines = both(pop, X)
    for engine in engines:
        found = jacobian(engine, params)[0, 0]
        for j in range(pop.max_params):
            step = 1e-6 * max(abs(params[0, 0, j]), 0.1)
            values = []
            for sign in (1, -1):
                moved = params[..., : pop.max_params].copy()
                moved[0, 0, j] += sign * step
                out = np.empty((1, 1, POINTS))
                engines[0].evaluate(moved, out)
                values.append(out[0, 0])
            expected = (values[0] - values[1]) / (2 * step)
            size = max(np.abs(expected).max(), np.abs(values[0]).max() * 1e-3, 1e-3)
            assert found[:, j] == pytest.approx(expected, rel=1e-6, abs=2e-6 * size)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("n_points", [1, 15, 512, 1100])
def test_cpu_agrees_with_the_definition(dtype, n_points):
    random = np.random.default_rng(n_points)
    texts = [*ek.generate.exhaustive(5, "esr").texts()[::7], "p1 + p3 * x2", "x1", "2", "p2", "bad"]
    pop = ek.parse(texts, errors="mask")
    X = random.uniform(0.5, 2.0, (n_points, 2))
    params = random.uniform(0.5, 1.5, (2, len(pop), pop.max_params)).astype(dtype)
    plain, fast = both(pop, X, dtype)
    close = 3e-5 if dtype == F32 else 1e-11
    expected, found = jacobian(plain, params), jacobian(fast, params)
    assert np.array_equal(np.isnan(expected), np.isnan(found))
    sound = np.isfinite(expected)  # float32: a power of a difference may lose some digits more
    np.testing.assert_allclose(found[sound], expected[sound], rtol=close * (20 if dtype == F32 else 1), atol=close)
    assert np.median(np.abs(found[sound] - expected[sound]) / np.maximum(np.abs(expected[sound]), 1)) < close / 100
    y = random.uniform(0.5, 2.0, n_points).astype(dtype)
    weights = random.uniform(0.0, 2.0, n_points).astype(dtype)
    weights[::3] = 0
    for w in (None, weights):
        for method in ("normal_equations", "square", "absolute", "sum"):
            arguments = (params, y, w) if method == "normal_equations" else (params, y, w, method)
            name = method if method == "normal_equations" else "loss_and_grad"
            for a, b in zip(getattr(plain, name)(*arguments), getattr(fast, name)(*arguments), strict=True):
                sound = np.isfinite(a)
                size = close * np.median(np.abs(a[sound]))
                np.testing.assert_allclose(b[sound], a[sound], rtol=close * 20, atol=size)


def test_threads_give_the_same_bits():
    random = np.random.default_rng(0)
    pop = ek.generate.exhaustive(5, "esr")
    X, y = random.uniform(0.5, 2.0, (300, 2)).astype(F32), np.ones(300, F32)
    params = random.uniform(0.5, 1.5, (1, len(pop), pop.max_params)).astype(F32)
    one, three = (cpu_engine.Engine(pop, X, precision="ieee", dtype=F32, threads=n) for n in (1, 3))
    for a, b in zip(one.normal_equations(params, y, None), three.normal_equations(params, y, None), strict=True):
        assert np.array_equal(a, b, equal_nan=True)


def test_few_rows_of_many_tiles():
    random = np.random.default_rng(0)
    pop, X = ek.parse(["p1 * x1 + p2"]), random.uniform(0, 1, (40_000, 1))
    y = random.standard_normal(40_000)
    plain, fast = both(pop, X, threads=2)
    for a, b in zip(
        plain.normal_equations(np.ones((1, 1, 2)), y, None), fast.normal_equations(np.ones((1, 1, 2)), y, None),
        strict=True,
    ):  # fmt: skip
        assert b == pytest.approx(a, rel=1e-12)


def test_conventions_where_there_is_no_derivative(fits):
    names = ["abs(p1)", "sign(p1)", "floor(p1)", "round(p1)", "ceil(p1)", "relu(p1)", "greater(p1, 0)", "max(p1, 0)"]
    pop = ek.parse(names)
    found = ek.Evaluator(pop, [[1.0]], fits, dtype="float64").jacobian(np.zeros((8, 1)))
    assert found.ravel().tolist() == [0, 0, 0, 0, 0, 0, 0, 1]


def test_a_point_of_weight_0_does_not_count(fits):
    pop = ek.parse(["p1 / x1", "log(x1) * p1 + p2"])
    X, y = [[0.0], [1.0], [2.0]], [np.nan, 1.0, 3.0]
    ev = ek.Evaluator(pop, X, fits, dtype="float64")
    for method in (ev.normal_equations, ev.loss_and_grad):
        for array in method([[1.0], [1.0, 2.0]], y, weights=[0.0, 1.0, 0.5]):
            assert np.all(np.isfinite(array))


@pytest.mark.parametrize("kind", ["sse", "mse", "rmse", "mae", "sum", "r2", "logcosh(f - y)", "abs(f - y)^1.5"])
def test_derivatives_of_a_loss_that_is_no_number_are_none(fits, kind):
    pop = ek.parse(["log(x1) * p1", "p1 / x1 + p2", "p1 * x1"])
    at = [[2.0], [1.0, 1.0], [1.0]]
    ev = ek.Evaluator(pop, [[-1.0], [0.0], [1.0], [3.0]], fits, dtype="float64")
    loss, slope = ev.loss_and_grad(at, np.arange(4.0), kind)
    assert np.isfinite(loss).tolist() == np.isfinite(slope).all(axis=1).tolist() == [False, False, True]
    assert np.isnan(slope[:2]).all()
    jtj, jtr, _ = ev.normal_equations(at, np.ones(4))
    assert np.isnan(jtj[:2]).all() and np.isnan(jtr[:2]).all() and np.isfinite(jtj[2]).all()


def test_shapes_and_kinds(fits):
    pop = ek.parse(["p1 * x1", "x1 + p1 * p2"])
    X, y = np.linspace(1, 2, 5)[:, None], np.ones(5)
    ev = ek.Evaluator(pop, X, fits, dtype="float64")
    one, sets = np.ones((2, 2)), np.ones((3, 2, 2))
    assert ev.jacobian(one).shape == (2, 5, 2) and ev.jacobian(sets).shape == (3, 2, 5, 2)
    assert [a.shape for a in ev.normal_equations(one, y)] == [(2, 2, 2), (2, 2), (2,)]
    assert [a.shape for a in ev.normal_equations(sets, y)] == [(3, 2, 2, 2), (3, 2, 2), (3, 2)]
    out = np.empty((2, 5, 2))
    assert ev.jacobian(one, out=out) is out
    for kind in ("sse", "mse", "mae", "rmse"):
        loss, slope = ev.loss_and_grad(one, y, kind)
        assert loss == pytest.approx(ev.loss(one, y, kind))
        for j in range(2):
            above, below = one.copy(), one.copy()
            above[1, j], below[1, j] = 1 + 1e-6, 1 - 1e-6
            assert slope[1, j] == pytest.approx((ev.loss(above, y, kind) - ev.loss(below, y, kind))[1] / 2e-6, rel=1e-6)
    with pytest.raises(DataError, match="weights must be finite"):
        ev.normal_equations(one, y, [-1, 1, 1, 1, 1])
    with pytest.raises(DataError, match="y must have shape"):
        ev.loss_and_grad(one, y[:3])


def test_a_backend_without_derivatives_says_so(monkeypatch):
    ev = ek.Evaluator(ek.parse(["p1"]), [[1.0]], "numpy")
    monkeypatch.setattr(ev, "engine", object())
    with pytest.raises(BackendError, match="makes no derivatives"):
        ev.jacobian([[1.0]])


# ── the sums' machine code ──


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("level", ["avx512", "avx2", "baseline"])
def test_losses_and_equations_at_every_level(level, dtype):
    import ctypes

    try:
        functions = reductions.functions(kernels.kernels(dtype, "ieee", level))
    except BackendError as error:
        pytest.skip(str(error))
    random, address, n = np.random.default_rng(0), ctypes.c_void_p, 77
    real = ctypes.CFUNCTYPE(ctypes.c_double, *[address] * 6, ctypes.c_int64)
    nothing = ctypes.CFUNCTYPE(None, *[address] * 4, ctypes.c_int64)
    J = random.standard_normal((5, 512)).astype(dtype)
    f, y, w = random.uniform(0.1, 2, (3, 512)).astype(dtype)
    w[::7], f[::7], J[:, ::7] = 0, np.nan, np.inf
    q, v, delta = np.zeros(512, dtype), np.zeros(512, dtype), np.array([0.3])
    some = w[:n] > 0
    r = (f[:n].astype(float) - y[:n])[some]
    for kind in reductions.KINDS:
        loss = real(functions[f"loss_{kind}"])(*(a.ctypes.data for a in (f, y, w, q, v, delta)), n)
        L, Q = losses_and_weights(kind, 0.3, f[:n][some].astype(float), y[:n][some].astype(float))
        Q = Q * w[:n][some]
        assert loss == pytest.approx(w[:n][some].astype(float) @ L, rel=1e-5)
        if kind == objective.SUM:  # no least squares: the gradient alone, half of it
            assert v[:n][some] == pytest.approx(w[:n][some] / 2)
            continue
        for m in range(1, 6):
            sums, columns = np.zeros(m + m * (m + 1) // 2), np.array([column.ctypes.data for column in J])
            nothing(functions[f"equations_{m}"])(sums.ctypes.data, columns.ctypes.data, q.ctypes.data, v.ctypes.data, n)
            K = J[:m, :n][:, some].astype(float)
            expected = [*(K @ (Q * r)), *((K * Q) @ K.T)[np.triu_indices(m)]]
            assert sums == pytest.approx(np.array(expected), rel=1e-4, abs=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_derivatives_of_gamma_and_lgamma_against_mpmath(backend):
    import mpmath

    x = np.random.default_rng(0).uniform(0.2, 12, (40, 1))
    ev = ek.Evaluator(ek.parse(["gamma(p1 * x1)", "lgamma(p1 * x1)", "lgamma(x1 - p1)"]), x, backend, dtype="float64")
    J = ev.jacobian([[1.1], [1.1], [13.37]])[..., 0]
    for k, a in enumerate(x[:, 0]):
        z = mpmath.mpf(1.1 * a)
        slopes = a * mpmath.gamma(z) * mpmath.digamma(z), a * mpmath.digamma(z), -mpmath.digamma(mpmath.mpf(a - 13.37))
        np.testing.assert_allclose(J[:, k], [float(s) for s in slopes], rtol=1e-12, atol=1e-13)


def test_gamma_s_parameter_is_fitted():
    x = np.linspace(0.5, 4, 30)[:, None]
    found = ek.fit("p1 * lgamma(x1 + p2)", x, 2 * np.array([math.lgamma(a + 1.5) for a in x[:, 0]]), dtype="float64")
    assert found.params[0] == pytest.approx([2, 1.5], rel=1e-6)
