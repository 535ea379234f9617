"""The thesis's kernel, one launch per expression, on a GPU that is not there."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import exprkit as ek
from exprkit.backends.gpu import device
from exprkit.errors import ArgumentError
from exprkit.expressions import generate
from exprkit.study import bench
from exprkit.study.thesis.baseline import Baseline

pytestmark = pytest.mark.lab


def inputs(n_points, n_vars, pop):
    random = np.random.default_rng(1)
    return random.uniform(0.2, 3.0, (n_points, n_vars)), random.uniform(-2, 2, (len(pop), pop.max_params))


@pytest.mark.parametrize("chosen", [{}, {"stack": 25, "block_size": 121}])
def test_a_launch_per_expression_gives_the_values(emulated, chosen):
    pop = generate.random(20, n_tokens=(1, 40), n_vars=2, n_params=2, seed=9)
    X, params = inputs(13, 2, pop)
    options = {"precision": "ieee", "dtype": "float64"}
    values = Baseline(pop, X, device=emulated, **options, **chosen).evaluate(params, np.empty((20, 13)))
    wanted = ek.Evaluator(pop, X, "numpy", **options).evaluate(params)
    np.testing.assert_allclose(values, wanted, rtol=1e-9)


def test_operators_of_three_operands_and_expressions_that_cannot_be_read(emulated, functions):
    ek.operator("blend", numpy=lambda a, b, c: a * (1 - c) + b * c, cuda="a * (T(1) - c) + b * c")
    pop = ek.parse(["blend(x1, p1, x2)", "blend(blend(x1, 2, x2), x2, p1) - 1", "x1 +", "x1"], errors="mask").expanded()
    X, params = inputs(5, 2, pop)
    options = {"precision": "ieee", "dtype": "float64"}
    values = Baseline(pop, X, device=emulated, **options).evaluate(params, np.empty((4, 5)))
    np.testing.assert_allclose(values, ek.Evaluator(pop, X, "numpy", **options).evaluate(params), rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stack": 2}, "for these expressions stack must be a whole number >= 3"),
        ({"block_size": 1025}, "per expression must be 1 to 1024, not 1025"),
    ],
)
def test_a_stack_or_block_that_cannot_be_is_named(emulated, options, message):
    with pytest.raises(ArgumentError, match=message):
        Baseline(ek.parse(["x1 + x2 * x1"]), np.ones((3, 2)), device=emulated, **options)


def test_bench_times_it_on_cuda_alone(emulated, monkeypatch):
    monkeypatch.setattr(bench, "device_of", lambda name: HostOfOneThread())
    monkeypatch.setattr(device, "current", lambda: emulated)
    monkeypatch.setattr(bench, "load", lambda name: SimpleNamespace(options=(), lowers=False))
    chosen = {"n_steps": 2, "n_samples": 1, "n_checked": 2, "precision": "ieee", "dispatch": "per-expression"}
    table = bench.measure(["x1 * x2", "x1 + p1"], ek.data.uniform(9, 2, 0), ["cuda"], **chosen, options={"stack": 4})
    assert set(table["dispatch"]) == {"per-expression"} and set(table["options"]) == {"stack=4"}
    with pytest.raises(ArgumentError, match="'cpu' has no dispatch='per-expression': only cuda has"):
        bench.measure(["x1"], ek.data.uniform(9, 2, 0), ["cpu"], **chosen)
    with pytest.raises(ArgumentError, match="results must be every or last"):
        bench.measure(["x1"], ek.data.uniform(9, 2, 0), ["cuda"], **chosen, results="loss")


class HostOfOneThread(bench.Host):
    def facts(self, evaluator):
        return {"device": "none", "sm_mhz": np.nan, "throttled": False, "most_warps": np.nan}
