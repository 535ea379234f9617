"""The thesis's kernel, one launch per expression, on a GPU that is not there."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from counting_device import CALLS, CountingDevice
from emulated_device import compiler

import exprkit as ek
from exprkit.backends.gpu import device
from exprkit.errors import ArgumentError
from exprkit.expressions import generate
from exprkit.study import bench
from exprkit.study.thesis.baseline import Baseline

pytestmark = pytest.mark.lab
needs_compiler = pytest.mark.skipif(compiler() is None, reason="kernels need a C++ compiler")


def inputs(n_points, n_vars, pop):
    random = np.random.default_rng(1)
    return random.uniform(0.2, 3.0, (n_points, n_vars)), random.uniform(-2, 2, (len(pop), pop.max_params))


CHOSEN = [{}, {"stack": 25, "block_size": 121}, {"streams": 3}, {"streams": 4, "threads": 3}, {"every_step": "all"}]


@pytest.mark.parametrize("chosen", CHOSEN)
def test_a_launch_per_expression_gives_the_values_at_every_step(emulated, chosen):
    pop = generate.random(20, n_tokens=(1, 40), n_vars=2, n_params=2, seed=9)
    X, params = inputs(13, 2, pop)
    options = {"precision": "ieee", "dtype": "float64"}
    made, reference = Baseline(pop, X, device=emulated, **options, **chosen), ek.Evaluator(pop, X, "numpy", **options)
    for numbers in (params, params + 1, params):
        for out in (np.empty((20, 13)), np.empty((20, 13))):
            np.testing.assert_allclose(made.evaluate(numbers, out), reference.evaluate(numbers), rtol=1e-9)


@needs_compiler
def test_a_step_copies_the_parameters_once_and_the_matrix_once_into_the_same_memory(monkeypatch):
    counting = CountingDevice()
    monkeypatch.setitem(sys.modules, "cupy", counting.xp)
    pop = ek.parse(["x1 * p1", "x1 + x2"])
    X, params = inputs(13, 2, pop)
    made, out = Baseline(pop, X, precision="ieee", dtype="float64", device=counting), np.empty((2, 13))
    there, counted = counting.xp.empty(out.shape, np.float64), []
    for place in (out, out, there, there):
        CALLS.clear()
        device.transfers()
        made.evaluate(params, place)
        counted.append({name: n for name, n in CALLS.items() if name not in ("view", "elements set", "event")})
    copied = {"empty": 1, "copy to the device": 1}  # the parameters
    assert counted[1] == copied | {"copy to the host": 1, "waiting": 1} and counted[3] == copied
    assert device.transfers() == {"bytes_in": params.nbytes, "bytes_out": 0, "transfers": 1}
    np.testing.assert_allclose(out, [X[:, 0] * params[0, 0], X.sum(axis=1)])
    np.testing.assert_allclose(there.array, out)


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
        ({"streams": 129}, "streams must be a whole number from 1 to 128, not 129"),
        ({"every_step": "compile"}, "every_step must be one of"),
        ({"graph": True, "threads": 2}, "a graph is launched by one thread"),
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
    assert set(table["threads"]) == {1} and (table["lower_s"] > 0).all()
    with pytest.raises(ArgumentError, match="'cpu' has no dispatch='per-expression': cuda and ptx have"):
        bench.measure(["x1"], ek.data.uniform(9, 2, 0), ["cpu"], **chosen)
    with pytest.raises(ArgumentError, match="results must be every or last"):
        bench.measure(["x1"], ek.data.uniform(9, 2, 0), ["cuda"], **chosen, results="loss")


class HostOfOneThread(bench.Host):
    def facts(self, evaluator):
        return {"device": "none", "sm_mhz": np.nan, "throttled": False, "most_warps": np.nan}


ON_A_GPU = [
    ("cuda", {}), ("cuda", {"streams": 16, "threads": 4, "block_size": 121, "stack": 25}),
    ("cuda", {"streams": 5, "graph": True}), ("cuda", {"every_step": "all"}),
    ("ptx", {}), ("ptx", {"streams": 16, "threads": 4, "block_size": 160}), ("ptx", {"streams": 5, "graph": True}),
    ("ptx", {"every_step": "all"}), ("ptx", {"every_step": "transpile"}), ("ptx", {"every_step": "compile"}),
]  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize(("backend", "chosen"), ON_A_GPU)
def test_on_a_gpu_it_gives_the_values_at_every_step(backend, chosen):
    import cupy

    pop = generate.random(60, n_tokens=(1, 20), n_vars=2, n_params=2, seed=9)
    X, params = inputs(1000, 2, pop)
    options = {"precision": "ieee", "dtype": "float64"}
    made, reference = Baseline(pop, X, backend, **options, **chosen), ek.Evaluator(pop, X, "numpy", **options)
    locked, there = device.empty_on_host((60, 1000), np.float64), cupy.empty((60, 1000))
    for numbers, out in zip((params, params + 1, params, params - 1), (locked, locked, there, there), strict=True):
        found = device.fetched(made.evaluate(numbers, out))
        wrong = ~np.isclose(found, reference.evaluate(numbers), rtol=1e-6, equal_nan=True)
        assert wrong.mean() < 1e-3
