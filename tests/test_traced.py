"""Numba functions that are known as operations of the table, and those that are called for one number after another."""

from __future__ import annotations

import math
from dataclasses import replace
from math import hypot

import numba
import numpy as np
import pytest

import exprkit as ek
from exprkit.backends.cpu import kernels, loss_kernels
from exprkit.evaluate import loss_text
from exprkit.operators import defined, ops, traced_vectors
from exprkit.operators.traced import MOST_CALLS, trace_of

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 1e-30, -1e-30, 1e30, -1e30, np.inf, -np.inf, 2.5, -2.5, 7.0])


@numba.njit
def half(a):
    return a / 2


def scaled(factor):
    return numba.njit(lambda a: factor * a)


def horner(a):
    y = 0.0
    for c in (1.0, -0.5, 0.25):
        y = y * a + c
    return y


def three_ways(a):
    if a < -1 or a > 2:
        return math.sqrt(abs(a))
    y = a if a != 0 else 0.5
    return min(y, 1.5) if y != 1 else -y


def often(a):
    y = a
    for _ in range(40):
        y = y * 0.5 + a * y * 0.01
    return y


TRACED = {
    "softplus": lambda a: np.log1p(np.exp(a)), "bump": lambda a: math.exp(-(a**2)) + half(a) * 3,
    "three_ways": three_ways, "horner": horner, "often": often,
    "limited": lambda a: np.minimum(np.maximum(a, -1.0), 2.0),
    "scaled": scaled(1.5).py_func,
    "powers": lambda a: a**4 - a**7 + 0.5 * a**3,
    "distance": lambda a, b: hypot(a, b) - a % 3.0, "larger": lambda a, b: a if a >= b else b, "two": lambda a, b: 2.0,
    "mixed": lambda a, b, c: a * (1 - c) + np.arctan2(b, c) * (a > b),
}  # fmt: skip
CALLED = {
    "whole": lambda a: float(int(a)), "floors": lambda a: a // 2, "until": lambda a: halvings(a),
    "table": lambda a: TABLE[int(a) % 3],
    "drawn": lambda a: a * np.random.random(),
}  # fmt: skip
TABLE = np.array([1.0, 2.0, 3.0])


@numba.njit
def halvings(a):
    n = 0
    while a > 1e-6:
        a, n = a / 2, n + 1
    return float(n)


@pytest.mark.parametrize("name", TRACED)
def test_values_are_the_functions_own(name):
    function = numba.njit(TRACED[name])
    arity = function.py_func.__code__.co_argcount
    ek.operator(f"traced_{name}({', '.join('abc'[:arity])})", numpy=function)
    row = defined.spelled(f"traced_{name}")
    inner = row if arity < 3 else ops.BY_CODE[int(row.values[-1])]
    trace = trace_of(function, arity)
    assert inner.traced == trace._replace(in_floats=inner.traced.in_floats)
    assert len(trace.listing()) == len(trace.lines)
    random = np.random.default_rng(1)
    X = np.concatenate([random.normal(size=(600, 3)) * 2, random.permuted(np.column_stack([SPECIAL] * 3), axis=0)])
    names = ["x1", "x2", "x3"][:arity]
    forms = names, ["1.5", *names[1:]], [*names[:-1], "p1"], ["p1"] * arity
    pop, params = ek.parse([f"traced_{name}({', '.join(form)})" for form in forms]), np.full((4, 1), 0.75)
    with np.errstate(all="ignore"):
        for dtype, precision, rtol in ("float64", "ieee", 1e-12), ("float32", "ieee", 2e-6), ("float32", "fast", 1e-5):
            data = X.astype(dtype)
            found = ek.Evaluator(pop, data, "cpu", dtype=dtype, precision=precision).evaluate(params)
            expected = ek.Evaluator(pop, data, "numpy", dtype="float64").evaluate(params).astype(dtype)
            some = slice(600 if precision == "fast" else None)  # float32 overflows on the way
            np.testing.assert_allclose(found[:, some], expected[:, some], rtol=rtol, atol=rtol, err_msg=precision)


@pytest.mark.parametrize("name", CALLED)
def test_what_can_t_be_traced_is_called(name):
    function = numba.njit(CALLED[name])
    assert trace_of(function, 1) is None or name == "drawn"
    if name != "drawn":  # which is refused, as no function at all
        ek.operator(f"called_{name}", numpy=function)
        X = np.random.default_rng(0).uniform(0, 9, (70, 1))
        found = ek.Evaluator(ek.parse(f"called_{name}(x1)"), X, "cpu", dtype="float64").evaluate()[0]
        assert defined.spelled(f"called_{name}").traced is None
        np.testing.assert_array_equal(found, [function(x) for x in X[:, 0]])


def test_a_trace_that_is_not_the_function_is_not_used():
    function = numba.njit(lambda a: np.exp(a))
    trace = trace_of(function, 1)
    assert trace.agrees(np.exp, [(-1.0, 1.0)])
    assert not trace.agrees(np.expm1, [(-1.0, 1.0)])
    assert not trace.agrees(lambda a: np.where(a < 1e200, np.exp(a), 0.0), [(-1.0, 1.0)])


HARD = {
    "decade": lambda a, b: np.floor(np.log10(abs(b))) + a, "sides": lambda a, b: a if np.exp(a) >= 1 else b,
    "distance": lambda a, b: np.sqrt(a * a + b * b), "ratio": lambda a, b: a * b / (abs(a) * abs(b) + 1e-30),
    "halves": lambda a, b: np.round(np.log2(abs(a))) * b, "remainder": lambda a, b: (a % 3.0) * np.sign(np.tanh(b)),
    "waves": lambda a, b: np.sin(a * 1.7) * np.exp(-abs(b)), "limits": lambda a, b: max(np.exp(a), 1.0) - min(b, 0.5),
}  # fmt: skip


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_at_hard_numbers_are_the_function_s(name, dtype):
    """Where signs change, at halves and whole numbers, and of every size; a trace that is in doubt is not used."""
    function = numba.njit(HARD[name])
    ek.operator(f"hard_{name}_{dtype}(a, b)", numpy=function)
    random = np.random.default_rng(0)
    sizes = 10.0 ** random.uniform(-35, 35, (2, 300)) * random.choice([-1, 1], (2, 300))
    special = np.array([*SPECIAL[np.isfinite(SPECIAL)], 0.5, -0.5, 1.5, 3.0, 10.0, 1000.0, 1e15, 1e-10])
    grid = np.array(np.meshgrid(special, special)).reshape(2, -1)
    a, b = np.concatenate([grid, sizes, sizes[::-1]], axis=1).astype(dtype).astype(np.float64)
    pop = ek.parse(f"hard_{name}_{dtype}(x1, x2)")
    found = ek.Evaluator(pop, np.column_stack([a, b]), "cpu", dtype=dtype).evaluate()[0].astype(np.float64)
    last_place, step = float(np.finfo(dtype).eps), 2.0**-18
    with np.errstate(all="ignore"):
        wanted = np.array([function(*one) for one in zip(a, b, strict=True)])
        moved = [np.array([function(*one) for one in zip(a * (1 + i * step), b * (1 + j * step), strict=True)])
                 for i, j in ((1, 0), (0, 1))]  # fmt: skip
        slopes = sum(np.nan_to_num(np.abs(one - wanted), nan=np.inf) / step for one in moved)
        allowed = 64 * (last_place * (np.abs(wanted) + slopes) + float(np.finfo(dtype).smallest_subnormal))
        assert (np.abs(found - wanted) <= allowed)[np.abs(wanted) < 1e38].all()


# ── float32 ──

IN_FLOATS = {
    "softplus": (lambda a: np.log1p(np.exp(a)), True), "gaussian": (lambda a: math.exp(-(a * a) / 2), True),
    "swish": (lambda a: a / (1 + np.exp(-a)), True), "huge": (lambda a: a * 1e300, False),
    "steps": (lambda a: a if a > 0.1 else 2.0 * a, True), "cancels": (lambda a: (np.exp(a) - 1) / a, False),
    "late": (lambda a: a if a * 1.7 > 0.1 else 2.0, False), "whole": (lambda a: np.floor(a) * 1.5, True),
    "rounds": (lambda a: np.floor(a * 1.1), False), "versed": (lambda a: 1 - math.cos(a), False),
    "two_logs": (lambda a, b: np.log1p(a * a) * np.exp(np.tanh(b) - np.exp(-a * a)), True),
    "log_of_1": (lambda a, b: np.log(a * a + 1) * b, False),
}  # fmt: skip


def own(name, function):
    arity = function.__code__.co_argcount
    ek.operator(f"in_floats_{name}({', '.join('abc'[:arity])})", numpy=numba.njit(function))
    return ek.parse([f"in_floats_{name}({', '.join(['x1', 'x2'][:arity])})"])


def computed(pop, X, precision="ieee"):
    data = np.asarray(X, np.float32).reshape(len(X), -1)
    return ek.Evaluator(pop, data, "cpu", dtype="float32", precision=precision).evaluate()[0]


@pytest.mark.parametrize("name", IN_FLOATS)
def test_float32_is_used_where_it_is_exact_enough(name):
    function, close = IN_FLOATS[name]
    pop = own(name, function)
    traced = defined.spelled(f"in_floats_{name}").traced
    assert (traced is not None and traced.in_floats) is close
    random = np.random.default_rng(2)
    X = np.concatenate([random.uniform(-10, 10, (700, 2)), random.normal(size=(700, 2)) * 0.01]).astype(np.float32)
    with np.errstate(all="ignore"):
        operands = X.T.astype(np.float64)[: function.__code__.co_argcount]
        exact = np.vectorize(function)(*operands)
        slopes = [np.abs(np.vectorize(function)(*[a * (1 + 1e-5 * (k == j)) for j, a in enumerate(operands)]) - exact)
                  for k in range(len(operands))]  # fmt: skip
        found = computed(pop, X)
        allowed = 2.0**-23 * (traced_vectors.UNITS if close else 1) * (np.abs(exact) + sum(slopes) / 1e-5 * close)
        inside = np.abs(exact) < 3e38
        assert (np.abs(found - exact)[inside] <= allowed[inside] + 1e-44).all()
        assert np.array_equal(found[~inside], exact[~inside].astype(np.float32))


def test_what_overflows_on_the_way_is_computed_in_float64():
    pop = own("softplus", IN_FLOATS["softplus"][0])
    hidden = own("hidden", lambda a: a / (1 + np.exp(-a)) + 1 / np.cosh(a))
    assert all(defined.spelled(f"in_floats_{name}").traced.in_floats for name in ("softplus", "hidden"))
    X = np.random.default_rng(0).uniform(-3, 3, 600)
    plain, plain_hidden = computed(pop, X), computed(hidden, X)
    far = np.arange(0, 600, 7)
    X[far] = np.linspace(89, 700, len(far))
    found, inside = computed(pop, X), np.delete(np.arange(600), far)
    assert np.array_equal(found[far], X[far].astype(np.float32))
    assert np.array_equal(found[inside], plain[inside])  # the neighbours' bits
    X[far] *= -1
    found = computed(hidden, X)
    np.testing.assert_array_equal(found[inside], plain_hidden[inside])
    exact = np.array([x / (1 + math.exp(-x)) + 1 / math.cosh(x) for x in X[far].astype(np.float32).astype(float)])
    np.testing.assert_allclose(found[far], exact, rtol=1e-6, atol=1e-44)
    assert np.isinf(computed(pop, X[:1] + np.inf)).all() and np.isnan(computed(pop, X[:1] * np.nan)).all()


@pytest.mark.slow
def test_a_comparison_means_of_float32_what_it_means_of_float64():
    numbers = [0.1, 0.3, 0.7, 1.1]
    X = np.array([[near] for c in numbers for near in (np.nextafter(np.float32(c), np.float32(k)) for k in (0, c, 9))])
    for k, function in enumerate((
        lambda a: sum([1.0 if a > c else 0.0 for c in (0.1, 0.3, 0.7, 1.1)]),
        lambda a: sum([1.0 if a >= c else 0.0 for c in (0.1, 0.3, 0.7, 1.1)]),
        lambda a: sum([1.0 if c > a else 0.0 for c in (0.1, 0.3, 0.7, 1.1)]),
        lambda a: sum([1.0 if c >= a else 0.0 for c in (0.1, 0.3, 0.7, 1.1)]),
    )):  # fmt: skip
        pop = own(f"compares_{k}", function)
        assert defined.spelled(f"in_floats_compares_{k}").traced.in_floats
        assert computed(pop, X).tolist() == [function(float(x)) for x in X[:, 0]]


def test_a_chain_of_long_operators_is_exact():
    chained = own("chained", lambda a, b: np.log1p(np.exp(np.sin(a) + b)) * np.cos(b) + np.exp(-np.tanh(a)))
    X = np.random.default_rng(0).uniform(-3, 3, (1300, 2))
    with np.errstate(all="ignore"):
        a, b = X.astype(np.float32).astype(np.float64).T
        exact = np.log1p(np.exp(np.sin(a) + b)) * np.cos(b) + np.exp(-np.tanh(a))
    for precision in ("ieee", "fast"):
        np.testing.assert_allclose(computed(chained, X, precision), exact, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_loss_that_names_one_is_machine_code(dtype):
    ek.operator("summed(a)", numpy=numba.njit(lambda a: np.log1p(np.exp(a))))
    ek.operator("summed_three(a, b, c)", numpy=numba.njit(lambda a, b, c: (a - b) * (a - b) * c))
    ek.operator("called_one(a)", numpy=numba.njit(lambda a: float(int(a))))
    X = np.random.default_rng(0).uniform(-3, 3, (1100, 2)).astype(dtype)
    X[5, 0] = 99
    pop, y = ek.parse(["x1 + x2", "x1 * x2 - p1"]), X[:, 1].astype(np.float64)
    ev, params = ek.Evaluator(pop, X, "cpu", dtype=dtype), np.full((2, 1), 0.5)
    definition = ek.Evaluator(pop, X, "numpy", dtype="float64")
    texts = {"summed(f - y)": True, "summed_three(f, y, 0.5) + summed(f)": True, "called_one(f - y)": False}
    for text, fused in texts.items():
        tokens = loss_text.parse_loss(text)
        assert loss_kernels.can_sum((tokens.kinds, tokens.values)) is fused
        wanted = definition.loss(params, y, text)
        np.testing.assert_allclose(ev.loss(params, y, text), wanted, rtol=1e-5 if dtype == "float32" else 1e-11)


def test_long_functions_have_no_trace():
    @numba.njit
    def conditions(a):
        y = 0.0
        for k in range(100):
            y += 1.0 if a > k else 0.5
        return y

    @numba.njit
    def long(a):
        y = a
        for k in range(1000):
            y = y * a + k
        return y

    assert MOST_CALLS < 100
    assert trace_of(conditions, 1) is None and trace_of(long, 1) is None


def test_machine_code_on_disk_is_of_the_same_function(monkeypatch):
    """Codes of operators are a process's: in another one the code may be another function's."""
    ek.operator("first_one", numpy=numba.njit(lambda a: a + 1.25))
    row = defined.spelled("first_one")
    other = trace_of(numba.njit(lambda a: a + 2.25), 1)
    a, y = np.zeros(kernels.TILE), np.empty(kernels.TILE)
    again = replace(row, traced=other, simd=traced_vectors.formula(other, fast=False))
    for now, result in ((row, 1.25), (again, 2.25)):
        monkeypatch.setitem(ops.BY_CODE, row.code, now)
        made = kernels.Kernels("float64", "ieee", kernels.host())
        made.function(row.code, kernels.VV)(y.ctypes.data, a.ctypes.data, None, kernels.TILE // made.lanes)
        assert (y == result).all()
