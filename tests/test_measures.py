"""Losses that are no sums, and losses of a user's own in one pass, against the matrix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import exprkit as ek
from exprkit.backends import contract
from exprkit.backends.cpu import kernels as cpu_kernels
from exprkit.backends.cpu import loss_kernels
from exprkit.backends.cpu.engine import Engine
from exprkit.errors import ArgumentError, DataError
from exprkit.evaluate import evaluator, loss_text

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(0.1, 3, (1300, 2))
Y = X[:, 0] + RANDOM.normal(size=1300)
W = np.where(RANDOM.random(1300) < 0.1, 0, RANDOM.uniform(0.5, 2, 1300))
S = RANDOM.uniform(0.5, 2, 1300)
TEXTS = ["p1 * x1", "x1 * x2 + p1", "p1", "log(x1 - p1)", "exp(x2)", "-x1", "1000 + x1"]
PARAMS = np.full((len(TEXTS), 1), 1.2)


@pytest.fixture(scope="module")
def pop():
    return ek.parse(TEXTS)


def matrix(pop, dtype="float64"):
    return ek.Evaluator(pop, X, "numpy", dtype=dtype).evaluate(PARAMS).astype(np.float64)


@pytest.mark.parametrize("weights", [None, W], ids=["plain", "weighted"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_largest_error(backend, pop, weights, dtype):
    ev = ek.Evaluator(pop, X, backend, dtype=dtype)
    counts = np.ones(1300, bool) if weights is None else weights > 0
    expected = np.abs(matrix(pop) - Y)[:, counts].max(axis=1)
    rtol = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(ev.loss(PARAMS, Y, "max", weights), expected, rtol=rtol)
    sets = ev.loss(np.stack([PARAMS, 2 * PARAMS]), Y, "max", weights)
    assert sets.shape == (2, len(pop)) and sets[0, 0] != sets[1, 0]


@pytest.mark.parametrize("weights", [None, W], ids=["plain", "weighted"])
def test_the_correlation(backend, pop, weights):
    ev = ek.Evaluator(pop, X, backend, dtype="float64")
    w = np.ones(1300) if weights is None else weights
    expected = [np.cov(f, Y, aweights=w) for f in matrix(pop)]
    found = ev.loss(PARAMS, Y, "correlation", weights)
    for i, c in enumerate(expected):
        if i in (2, 3):
            assert np.isnan(found[i])
        else:
            assert found[i] == pytest.approx(c[0, 1] / np.sqrt(c[0, 0] * c[1, 1]), abs=1e-9)
    single = ek.Evaluator(pop, X, backend, dtype="float32").loss(PARAMS, Y, "correlation", weights)
    close = np.isnan(single) | (np.abs(single - found) < 1e-4)
    assert close.all() and np.isnan(single[2])


@pytest.mark.parametrize("weights", [None, W], ids=["plain", "weighted"])
@pytest.mark.parametrize(
    ("text", "value", "link", "same_as"),
    [
        ("x1 * sqr(sqr(p1))", 0.02, "exp(-abs(f))", "p1 - x1"), ("x1 * sqr(sqr(p1))", 1e-60, None, "x1 + p1"),
        ("1e6 + p1 * x1 + x2", 1.5, None, "p1 * x1 + x2"), ("3e7 - p1 * x1", 1e-3, None, "p1 - x1"),
    ],
)  # fmt: skip
def test_the_correlation_of_what_hardly_varies(backend, text, value, link, same_as, weights):
    """It was nan, or off by what sums of squares lose."""
    given, same = (ek.Evaluator(ek.parse(one), X, backend, dtype="float64") for one in (text, same_as))
    wanted = same.loss([[value]], Y, "correlation", weights)
    np.testing.assert_allclose(given.loss([[value]], Y, "correlation", weights, link=link), wanted, atol=1e-7)
    if "x2" in text and backend != "ptx":
        wanted = same.loss_and_grad([[value]], Y, "correlation", weights)
        found = given.loss_and_grad([[value]], Y, "correlation", weights)
        np.testing.assert_allclose(np.ravel(found[0]), wanted[0], atol=1e-7)
        np.testing.assert_allclose(found[1], wanted[1], rtol=1e-7)


def test_the_correlation_of_two_points_is_1(backend):
    pop, rows = ek.parse(["1e4 + p1 * x1", "x1 + p1", "p1"]), slice(0, 2)
    for dtype in ("float32", "float64"):
        ev = ek.Evaluator(pop, X[rows], backend, dtype=dtype)
        np.testing.assert_allclose(ev.loss([[3.0]] * 3, -X[rows, 0], "correlation"), [-1, -1, np.nan], rtol=1e-5)


def test_they_are_made_a_part_at_a_time(monkeypatch, pop):
    monkeypatch.setattr(evaluator, "COUNTED_BYTES", 1)
    ev = ek.Evaluator(pop, X, "cpu", dtype="float64")
    np.testing.assert_array_equal(ev.loss(PARAMS, Y, "max"), np.abs(matrix(pop) - Y).max(axis=1))
    loss, counts = ev.loss(PARAMS, Y, "max", count_nonfinite=True)
    assert counts[3, 0] == np.isnan(matrix(pop)[3]).sum() and np.isnan(loss[3])


CURVED = ek.parse(["p1 * x1 ^ p2", "x1 * sin(p1 * x2)", "x2", "p2 + log(x1 + p1)", "p1 * x1 + p2"])
AT = np.tile([1.1, 0.7], (len(CURVED), 1))


@pytest.mark.parametrize("weights", [None, W], ids=["plain", "weighted"])
@pytest.mark.parametrize("kind", ["max", "correlation"])
def test_gradients_of_what_is_no_sum(backend, kind, weights):
    """Against differences of the definition's losses; the loss beside it is ``loss``'s."""
    if backend == "ptx":
        pytest.skip("ptx makes no derivatives")
    ev, definition = (ek.Evaluator(CURVED, X, name, dtype="float64") for name in (backend, "numpy"))
    loss, gradient = ev.loss_and_grad(np.stack([AT, AT * 1.1]), Y, kind, weights)
    np.testing.assert_allclose(loss[0], ev.loss(AT, Y, kind, weights), rtol=1e-12)
    for set_number, params in enumerate((AT, AT * 1.1)):
        for j in range(2):
            step = 1e-6 * np.eye(2)[j]
            up, down = (definition.loss(params + sign * step, Y, kind, weights) for sign in (1, -1))
            expected = np.where(CURVED.n_params > j, (up - down) / 2e-6, 0)
            np.testing.assert_allclose(gradient[set_number, :, j], expected, atol=2e-7, err_msg=f"p{j + 1}")


@pytest.mark.slow
def test_gradients_in_float32_and_of_many():
    pop = ek.generate.random(300, n_vars=2, n_params=2, seed=5)
    params = np.random.default_rng(1).uniform(0.5, 2, (300, pop.max_params))
    single, double = (ek.Evaluator(pop, X, "cpu", dtype=dtype) for dtype in ("float32", "float64"))
    for kind in ("max", "correlation"):
        (a, da), (b, db) = (ev.loss_and_grad(params, Y, kind) for ev in (single, double))
        close = np.isclose(a, b, rtol=1e-4) & np.isfinite(da).all(axis=1) & np.isfinite(db).all(axis=1)
        assert close.sum() > 100
        off = np.abs(da[close] - db[close]) / (np.abs(db[close]).max(axis=1, keepdims=True) + 1e-3)
        assert np.median(off) < 1e-6 and np.quantile(off, 0.8) < 1e-3


def test_the_largest_error_s_gradient_where_points_tie_or_do_not_count():
    x, y = np.array([[1.0], [2.0], [-2.0], [5.0]]), np.array([0.0, 0.0, 0.0, np.nan])
    ev = ek.Evaluator(ek.parse(["p1 * x1", "1 / (x1 - 1)"]), x, "cpu", dtype="float64")
    loss, gradient = ev.loss_and_grad([[3.0], []], y, "max", [1, 1, 1, 0])
    np.testing.assert_array_equal(loss, [6, np.inf])
    assert gradient[0, 0] == 2, "the first of the two"
    nothing = ev.loss_and_grad([[3.0], []], np.zeros(4), "max", np.zeros(4))
    np.testing.assert_array_equal(np.concatenate([nothing[0], nothing[1].ravel()]), 0)
    links = ek.Evaluator(ek.parse("p1 * x1"), np.abs(x), "cpu", dtype="float64")
    loss, gradient = links.loss_and_grad([[4.0]], np.zeros(4), "max", link="sqrt")
    assert (loss[0], gradient[0, 0]) == pytest.approx((20**0.5, 20**0.5 / 8))


def test_what_they_do_not_have(pop):
    ev = ek.Evaluator(pop, X, "cpu")
    for kind in ("max", "correlation"):
        with pytest.raises(ArgumentError, match="is no sum over the points"):
            ek.fit(pop, X, Y, loss=kind)
    with pytest.raises(DataError, match="y lacks 1 of 1,300"):
        ev.loss(PARAMS, np.where(np.arange(1300) == 5, np.nan, Y), "max")


# ── losses that are texts, in one pass ──

LOSSES = [
    "huber(f - y, 0.5) * w", "huber(f - y, s)", "pinball(y - f, 0.9)", "logcosh(f - y)", "lessequal(abs(f - y), 0.1)",
    "((sqrt(abs(f)) - y) / s)^2 / 2", "(f - y)^2 + abs(f)^1.5 / s", "inverse_of_own((f - y) / s) + w", "f + 0 * y",
    "(f - y)^4", "cond(f - y, s) * exp(-f)", "f * 2 + 1",
]  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def own_operator(functions):
    ek.operator("inverse_of_own(a) = 1 / (1 + a * a)")


@pytest.mark.parametrize("text", LOSSES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("weights", [None, W], ids=["plain", "weighted"])
def test_they_are_the_expressions_with_the_loss_around_them(monkeypatch, pop, text, dtype, weights):
    columns = {"s": S}
    one = ek.Evaluator(pop, X, "cpu", dtype=dtype).loss(PARAMS, Y, text, weights, columns=columns)
    two = ek.Evaluator(pop, X, "cpu", dtype=dtype, threads=1).loss(PARAMS, Y, text, weights, columns=columns)
    assert np.array_equal(one, two, equal_nan=True)
    monkeypatch.setattr(Engine, "prepare_text", contract.Engine.prepare_text)
    around = ek.Evaluator(pop, X, "cpu", dtype=dtype).loss(PARAMS, Y, text, weights, columns=columns)
    np.testing.assert_allclose(one, around, rtol=2e-5 if dtype == "float32" else 1e-12)


@settings(max_examples=10)
@given(st.integers(1, 1100), st.sampled_from(["logcosh(f - y)", "huber(f - y, s)", "pinball(y - f, 0.3) * w"]))
def test_any_number_of_points(n, text):
    pop = ek.parse(["x1 * x2", "x1", "3"])
    ev, same = (ek.Evaluator(pop, X[:n], name, dtype="float32") for name in ("cpu", "numpy"))
    arguments = (None, Y[:n], text, W[:n] if "w" in text else None)
    expected = same.loss(*arguments, columns={"s": S[:n]})
    np.testing.assert_allclose(ev.loss(*arguments, columns={"s": S[:n]}), expected, rtol=2e-5)


def test_sums_that_overflow_or_vanish_in_float32_do_not():
    pop = ek.parse(["x1 * 3e18", "x1 * 1e-22"])
    ev = ek.Evaluator(pop, X, "cpu")
    for text in ("(f - y)^2 + 0 * abs(f)", "(f - y)^2 + 0 * f"):
        found = ev.loss(None, 0 * Y, text)
        assert found[0] > 1e38 and np.isfinite(found[0]) and found[1] > 0
    assert ev.loss(None, 0 * Y, "logcosh(f - y)")[0] == pytest.approx(3e18 * X[:, 0].sum(), rel=1e-5)


def test_what_has_no_formula_goes_the_other_way(monkeypatch):
    kinds, values = loss_text.parse_loss("huber(f - y, 1)").kinds, loss_text.parse_loss("huber(f - y, 1)").values
    assert loss_kernels.can_sum((kinds, values))
    monkeypatch.setattr(loss_kernels, "can_sum", lambda tokens: False)
    pop = ek.parse("x1")
    a = ek.Evaluator(pop, X, "cpu", dtype="float64").loss(None, Y, "logcosh(f - y)")
    assert a == pytest.approx(np.log(np.cosh(X[:, 0] - Y)).sum())


def test_another_loss_and_other_columns_follow():
    ev = ek.Evaluator(ek.parse("x1"), X, "cpu", dtype="float64")
    for s in (S, 2 * S):
        found = ev.loss(None, Y, "logcosh((f - y) / s)", columns={"s": s})
        assert found == pytest.approx(np.log(np.cosh((X[:, 0] - Y) / s)).sum())
    ev.update(ek.parse("x2"))
    found = ev.loss(None, Y, "logcosh((f - y) / s)", columns={"s": S})
    assert found == pytest.approx(np.log(np.cosh((X[:, 1] - Y) / S)).sum())


def test_logcosh_of_errors_of_any_size():
    """In float32 to six digits, without registers for larger tables to five."""
    errors = np.concatenate([np.linspace(0, 9, 181), 10.0 ** np.arange(-6, 17), [np.inf]])
    errors = np.concatenate([errors, -errors]).astype(np.float32)
    pop = ek.parse([f"x{i + 1}" for i in range(len(errors))])
    found = ek.Evaluator(pop, errors[None], "cpu").loss(None, [0.0], "logcosh(f - y)")
    exact = errors.astype(np.float64)
    exact = np.where(np.abs(exact) < 1e-3, exact**2 / 2, np.logaddexp(exact, -exact) - np.log(2))
    close = 1e-6 if cpu_kernels.kernels("float32", "ieee").target.avx512 else 2e-5
    np.testing.assert_allclose(found, exact, rtol=close)
