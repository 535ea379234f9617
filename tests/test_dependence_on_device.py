"""What fits know beforehand, found on the device beside the host, and who is fitted with whom."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import exprkit as ek
from exprkit.backends import objective
from exprkit.backends.decisions import RUNNING
from exprkit.backends.device_programs.dependence import DependenceAnalysis
from exprkit.backends.device_programs.lowering import tokens_of
from exprkit.backends.gpu import layout
from exprkit.backends.gpu.device import fetched
from exprkit.backends.interpreter import batches
from exprkit.backends.interpreter.engine import Engine
from exprkit.backends.objective import Options
from exprkit.expressions import generate
from exprkit.operators import ops
from exprkit.programs.linearity import dependence

F4 = np.dtype("float32")


def known_of(pop, device):
    return DependenceAnalysis(device).known(pop, partial(tokens_of, device=device))


def assert_same(pop, device):
    known = known_of(pop, device)
    linear, differentiable = dependence(pop)
    np.testing.assert_array_equal(fetched(known.array("linear")), linear)
    expected = np.where(
        pop.n_params == 0, objective.NO_PARAMETERS, np.where(differentiable, RUNNING, objective.NO_DERIVATIVE)
    )
    np.testing.assert_array_equal(fetched(known.array("verdicts")), np.where(pop.valid, expected, objective.INVALID))
    np.testing.assert_array_equal(fetched(known.array("n_params")), pop.n_params)


def test_every_operator(device):
    texts = [f"{row.name}({', '.join(args)})" for row in ops.OPERATORS
             for args in (("p1", "p2"), ("x1", "p1"), ("p2", "x1"), ("p1 * x1", "p1"))
             for args in [args[: row.arity]]]  # fmt: skip
    assert_same(ek.parse([*texts, "oops(", "p64 + p65 * p66", "p63 * p62"], errors="mask"), device)


@given(seed=st.integers(0, 99), n=st.integers(0, 40), most=st.integers(1, 60), n_params=st.integers(0, 9))
@settings(max_examples=40)
def test_random_populations(device, seed, n, most, n_params):
    assert_same(generate.random(n, (1, most), n_vars=2, n_params=n_params, seed=seed), device)


def test_a_long_expression_goes_by_the_host(device):
    assert_same(ek.parse(["+".join(f"p{1 + k % 70} * x1" for k in range(1500)), "p1"]), device)


@pytest.mark.parametrize("rows", [True, False])
def test_every_expression_is_in_one_batch_with_enough_memory(device, rows):
    random = generate.random(300, (1, 40), n_vars=3, n_params=7, seed=5)
    pop = random + ek.parse(
        ["oops(", "x1", "+".join(f"p{k + 1} * exp(p1 * x{k % 3 + 1})" for k in range(40))], errors="mask"
    )
    X = np.ones((70, 3), np.float32)
    engine = Engine(pop, X, precision="ieee", dtype=F4, device=device)
    made = batches.Preparation(engine._launcher).batches(known_of(pop, device), rows)
    members = np.concatenate([fetched(batch.order.array()) for batch in made])
    np.testing.assert_array_equal(np.sort(members), np.flatnonzero(pop.valid))
    code = engine.programs.on_host()
    lengths = np.diff(np.append(code.first_instruction, len(code.instructions)))
    used = np.where(
        code.instructions[:, layout.ACTION] & layout.SPILL,
        (code.instructions[:, layout.ACTION] >> layout.SPILL_SHIFT & 255) + 1,
        0,
    )
    slots = np.maximum.reduceat(used, code.first_instruction)
    for batch in made:
        here = fetched(batch.order.array())
        assert (np.diff(lengths[here]) <= 0).all() and batch.sizes["i"] == lengths[here[0]]
        needs = {
            "n_params": pop.n_params,
            "instructions": lengths,
            "results": 2 * np.diff(code.first_step),
            "slots": slots,
        }
        most = {name: int(array[here].max()) for name, array in needs.items()}
        assert batch.arena == batches.arena_of(batch.shape, many=batch.many, **most)
        limits = [0, batches.SMALL_ARENA * batch.shape.warps, device.shared_per_block, 1 << 60]
        own = [
            batches.arena_of(batch.shape, many=batch.many, **{name: int(array[e]) for name, array in needs.items()})[
                "arena_bytes"
            ]
            for e in here
        ]
        assert sum(low < min(own) and max(own) <= high for low, high in itertools.pairwise(limits)) == 1


@pytest.mark.parametrize(
    "text, rare", [("p1 * x1 + exp(x1)", False), ("p1 * digamma(x1 + p1 * x1)", True), ("digamma(p1) * x1", True)]
)
def test_uncommon_operators_are_seen(device, text, rare):
    pop = ek.parse(["x1 + p1", text])
    engine = Engine(pop, np.ones((5, 1), np.float32), precision="ieee", dtype=F4, device=device)
    made = batches.Preparation(engine._launcher).batches(known_of(pop, device), True)
    found = {e: batch.rare for batch in made for e in fetched(batch.order.array()).tolist()}
    assert found == {0: False, 1: rare}, "an expression's own operators count, not its company's"


@pytest.mark.slow
@pytest.mark.parametrize("texts", [["p1 * exp(p2 * x1)", "p1 + p2 * x1"], ["0.1 * p1 * exp(p2 * x1)", "p1 + 0.3 * x1"]])
def test_what_float32_spoils_is_fitted_anew_beside_it(device, texts):
    pop, X = ek.parse([*texts, "p1 * x1", "exp(exp(p1 * x1 + 5))", "x1"] * 3), np.linspace(1, 2, 50)[:, None]
    y, starts = np.exp(np.exp(0.5 * X[:, 0])), np.full((2, len(pop), 2), [[[3.0, 40.0]], [[1.0, 1.0]]])
    single, double = (
        Engine(pop, X.astype(dtype), precision="ieee", dtype=dtype, device=device) for dtype in (F4, np.dtype("f8"))
    )
    options = Options(max_iter=30)
    alone = single.fit(starts, y.astype(F4), None, options)
    assert 0 < np.isin(alone.status, objective.SPOILED).sum() < len(pop)
    found = single.fit_again(starts, y.astype(F4), None, options, lambda: (double, y, None))

    def again(some, starts, options):
        return Engine(some, X, precision="ieee", dtype=np.dtype("f8"), device=device).fit(starts, y, None, options)

    wanted = objective.with_spoiled_anew(alone, pop, starts, options, again)
    np.testing.assert_array_equal(found.status, wanted.status)
    np.testing.assert_allclose(found.loss, wanted.loss, rtol=1e-9)
    np.testing.assert_allclose(found.params, wanted.params, rtol=1e-6)
