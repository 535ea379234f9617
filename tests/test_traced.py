"""Numba functions that are known as operations of the table, and those that are called for one number after another."""

from __future__ import annotations

import math
from dataclasses import replace
from math import hypot

import numba
import numpy as np
import pytest

import exprkit as ek
from exprkit.backends.cpu import kernels
from exprkit.operators import defined, ops
from exprkit.operators.traced import MOST_CALLS, trace_of

pytestmark = pytest.mark.usefixtures("functions")
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
    assert inner.traced == trace and len(trace.listing()) == len(trace.lines)
    random = np.random.default_rng(1)
    X = np.concatenate([random.normal(size=(600, 3)) * 2, random.permuted(np.column_stack([SPECIAL] * 3), axis=0)])
    names = ["x1", "x2", "x3"][:arity]
    forms = names, ["1.5", *names[1:]], [*names[:-1], "p1"], ["p1"] * arity
    pop, params = ek.parse([f"traced_{name}({', '.join(form)})" for form in forms]), np.full((4, 1), 0.75)
    with np.errstate(all="ignore"):
        for dtype, precision, rtol in ("float64", "ieee", 1e-12), ("float32", "ieee", 2e-7), ("float32", "fast", 1e-5):
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
    for now, result in ((row, 1.25), (replace(row, traced=other, simd=other.formula(False)), 2.25)):
        monkeypatch.setitem(ops.BY_CODE, row.code, now)
        made = kernels.Kernels("float64", "ieee", kernels.host())
        made.function(row.code, kernels.VV)(y.ctypes.data, a.ctypes.data, None, kernels.TILE // made.lanes)
        assert (y == result).all()
