"""Searches with operators of the user's own: formulas, texts that define them, functions without a formula."""

from __future__ import annotations

import numpy as np
import pytest

import exprkit as ek
from exprkit.backends.device_programs.operator_kernels import OperatorKernels
from exprkit.backends.gpu.device import fetched
from exprkit.errors import ArgumentError
from exprkit.expressions.arguments import operators_of
from exprkit.regression.on_device.pool import DevicePool
from exprkit.regression.pairs.pool import Pool

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-3, 3, (200, 2))
POSITIVE = np.abs(X) + 0.2


def swish(a):
    return a / (1 + np.exp(-a))


@pytest.fixture(autouse=True, scope="module")
def operators(functions):
    """Some."""
    ek.operator("swish(a) = a / (1 + exp(-a))")
    ek.operator("hill(a, b) = a^b / (1 + a^b)")
    ek.operator("three(a, b, c) = a * b + c")
    ek.operator(
        "steep",
        numpy=lambda a: a / (1 + np.exp(-3 * a)),
        derivative=lambda a: (swish(3 * a + 1e-6) - swish(3 * a - 1e-6)) / 6e-6,
    )
    ek.operator("of_steep(a) = steep(a) + 1")
    ek.operator("soft", numpy=lambda a: np.log1p(np.exp(a)), cuda="log1p(exp(a))", derivative="1 / (1 + exp(-a))")


def found(y, X=X, units=None, **chosen):
    chosen = {"timeout_in_seconds": 60, "random_state": 0, "early_stop_condition": 1e-15, "n_jobs": 1} | chosen
    return ek.SymbolicRegressor(**chosen).fit(X, y, **(units or {}))


LAWS = {
    "a sum": ({"unary_operators": ["swish"]}, swish(X[:, 0]) * X[:, 1] + 1, X),
    "inside": ({"unary_operators": ["swish"]}, 2.5 * swish(1.7 * X[:, 0]) + X[:, 1], X),
    "a text": ({"unary_operators": ["lorentz(x) = 1 / (1 + x^2)"]}, 1 / (1 + (X[:, 0] * X[:, 1]) ** 2) + 0.5, X),
    "one of the table's": ({"unary_operators": ["inv(x) = 1/x"]}, 3 / (X[:, 0] + 4) + X[:, 1], X),
    "no formula": ({"unary_operators": ["steep"]}, 2 * X[:, 1] * X[:, 0] / (1 + np.exp(-3 * X[:, 0])), X),
    "two operands": (
        {"binary_operators": ["+", "*", "hill"], "unary_operators": []},
        POSITIVE[:, 0] ** POSITIVE[:, 1] / (1 + POSITIVE[:, 0] ** POSITIVE[:, 1]) * 3 + POSITIVE[:, 1], POSITIVE,
    ),
}  # fmt: skip
NAMED = {"a sum": "swish(", "inside": "swish(", "a text": "lorentz(", "no formula": "steep(", "two operands": "hill("}


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_a_law_that_holds_one_is_found(law, tmp_path):
    chosen, y, points = LAWS[law]
    model = found(y, points, **chosen)
    best = model.equations_.iloc[-1]
    assert model.score(points, y) > 1 - 1e-9
    assert NAMED.get(law, "") in best["equation"]
    np.testing.assert_allclose(model.predict(points), y, rtol=1e-5, atol=1e-5)
    model.save(tmp_path / "model.npz")
    assert ek.load(tmp_path / "model.npz").equations_["equation"].tolist() == model.equations_["equation"].tolist()


@pytest.mark.slow
def test_generations_breed_and_fit_them():
    """Without the lookups, which need a pool."""
    y = swish(swish(X[:, 0]) + X[:, 1])
    model = found(
        y, unary_operators=["swish"], binary_operators=["+"], niterations=12, pool_size=20, population_size=200,
        timeout_in_seconds=120,
    )  # fmt: skip
    assert model.score(X, y) > 0.9
    assert "swish(" in model.equations_.iloc[-1]["equation"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["swish", "steep"])
def test_every_function_up_to_a_size(name):
    y = 2 * X[:, 0] / (1 + np.exp(-{"swish": 1, "steep": 3}[name] * X[:, 0])) + 0.01 * RANDOM.standard_normal(200)
    search = ek.exhaustive_search(X, y, max_nodes=4, operators=["*", name], progress=False)
    assert f"{name}(x1)" in search.equations["text"][0]
    trees = ek.generate.exhaustive(3, ["*", name], n_vars=1, n_params=1)
    assert f"{name}({name}(x1))" in trees.texts()


@pytest.mark.slow
def test_rules_hold_for_them():
    y = swish(X[:, 0]) * X[:, 1] + 1
    model = found(y, unary_operators=["swish"], constraints={"swish": 1}, nested_constraints={"swish": {"swish": 0}})
    assert model.score(X, y) > 1 - 1e-9
    with_units = found(y, unary_operators=["swish"], units={"X_units": ["m", ""], "y_units": ""}, timeout_in_seconds=3)
    assert not any("swish(x1)" in text for text in with_units.equations_["equation"])


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"unary_operators": ["hill"]}, "unary_operators: 'hill' takes 2 operands"),
        ({"binary_operators": ["three"]}, "binary_operators: 'three' takes 3 operands"),
        ({"unary_operators": ["swis"]}, "did you mean 'swish'"),
        ({"unary_operators": ["sin(x) = x"]}, "exprkit has an operator of this name"),
        ({"unary_operators": ["steep"], "backend": "cuda"}, "'steep' has no CUDA text"),
        ({"unary_operators": ["of_steep"], "backend": "cuda"}, "'steep', which 'of_steep' uses, has no CUDA text"),
    ],
)
def test_what_a_search_refuses(chosen, message):
    with pytest.raises(ArgumentError, match=message):
        found(X[:, 0], **chosen)


@pytest.mark.parametrize("name", ["swish", "soft", "hill"])
def test_a_pool_on_a_device_holds_their_values(name, emulated):
    points = np.abs(X[:16]) + 0.2
    operators = operators_of(["+", "*", name])
    pools = Pool(points, operators), DevicePool(points, operators, OperatorKernels(emulated, tuple(operators), 16))
    for pool in pools:
        pool.grow(30, 2_000)
    host, there = pools
    texts = [str(host.expression(i)) for i in range(300)]
    assert any(f"{name}(" in text for text in texts)
    assert [str(there.expression(i)) for i in range(300)] == texts
    np.testing.assert_allclose(fetched(there.values)[:300], host.values[:300], rtol=1e-13)


@pytest.mark.slow
def test_a_search_on_a_device_breeds_and_finds_them(on_a_gpu):
    y = 2 * swish(X[:, 0] * X[:, 1]) + 1 + 0.05 * RANDOM.standard_normal(200)
    model = found(y, unary_operators=["swish"], binary_operators=["+", "*"], backend="cuda", niterations=1,
                  population_size=30, timeout_in_seconds=200, maxsize=12)  # fmt: skip
    assert model.score(X, y) > 0.98
    assert "swish(" in " ".join(model.equations_["equation"])


@pytest.mark.slow
def test_every_function_up_to_a_size_on_a_device(on_a_gpu):
    y = 2 * np.log1p(np.exp(X[:, 0])) + 0.01 * RANDOM.standard_normal(200)
    search = ek.exhaustive_search(X, y, max_nodes=4, operators=["*", "soft"], progress=False, backend="cuda")
    assert "soft(x1)" in search.equations["text"][0]
