"""The GPU interpreter's own text, compiled as C++ and run on the CPU: no GPU needed.

A wrong operand order, spill slot, number or share of the work shows here; what only a GPU
can show (lanes, shared memory, the hardware's functions) is in test_cuda.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from emulated_card import EmulatedCard, compiler
from hypothesis import given, settings
from hypothesis import strategies as st

import exprkit as ek
from exprkit import generate, ops
from exprkit.backends import cases, cuda
from exprkit.backends import numpy as definition
from exprkit.backends.accumulator import FROM_SLOT, SPILL, accumulate
from exprkit.backends.geometry import segments, shapes
from exprkit.lower import lower
from exprkit.study.agreement import disagreement

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler: install g++ to run the interpreter here")
F4, F8 = np.dtype("float32"), np.dtype("float64")


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    return EmulatedCard(tmp_path_factory.mktemp("kernels"))


def data(n_points, n_vars, dtype, seed=1):
    return np.random.default_rng(seed).uniform(0.2, 3.0, (n_points, n_vars)).astype(dtype)


def parameters(pop, n_sets, dtype, seed=2):
    return np.random.default_rng(seed).uniform(-2, 2, (n_sets, len(pop), pop.max_params)).astype(dtype)


def evaluated(pop, X, params, card, precision="ieee", **options):
    out = np.full((len(params), len(pop), len(X)), 7, X.dtype)
    cuda.Engine(pop, X, precision=precision, dtype=X.dtype, card=card, **options).evaluate(params, out)
    return out


def defined(pop, X, params, precision="ieee"):
    out = np.empty((len(params), len(pop), len(X)), X.dtype)
    definition.Engine(pop, X, precision=precision, dtype=X.dtype).evaluate(params, out)
    return out


def assert_agrees(pop, X, params, out, precision="ieee"):
    for one_set, values in zip(params, out, strict=True):
        share = disagreement(pop, X, one_set, values, dtype=X.dtype, precision=precision)
        assert not share.any(), f"{pop[int(np.argmax(share))]} is off at {share.max():.0%} of the points"


@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
@pytest.mark.parametrize("precision", ["ieee", "fast"])
def test_every_operator_with_every_kind_of_operand(card, dtype, precision):
    leaves = ("x1", "p1", "x1 + x2", "0.75")
    texts = []
    for row in ops.OPERATORS:
        if row.arity == 1:
            texts += [f"{row.name}({a})" for a in leaves] + [f"x2 - {row.name}(x1 * x2)"]
        else:
            texts += [f"{row.name}({a}, {b})" for a in leaves for b in ("x2", "p1", "x1 * x2", "1.5")]
    pop = ek.parse(texts)
    random = np.random.default_rng(3)
    X = random.uniform(0.1, 0.9, (40, 2)).astype(dtype)
    params = random.uniform(0.1, 0.9, (1, len(pop), 1)).astype(dtype)
    assert_agrees(pop, X, params, evaluated(pop, X, params, card, precision), precision)


@given(seed=st.integers(0, 10**6), n_vars=st.integers(1, 5), n_params=st.integers(0, 3))
@settings(max_examples=15)
def test_random_populations(card, seed, n_vars, n_params):
    pop = generate.random(60, n_tokens=(1, 70), n_vars=n_vars, n_params=n_params, seed=seed)
    X, params = data(9, n_vars, F8, seed), parameters(pop, 2, F8, seed)
    assert_agrees(pop, X, params, evaluated(pop, X, params, card))


def test_spilled_accumulators_come_back(card):
    def full(depth):
        return f"({full(depth - 1)} {'-*+/'[depth % 4]} {full(depth - 1)})" if depth else "sin(x1 + x2)"

    pop = ek.parse([full(6), "x1", full(3)])
    words = accumulate(lower(pop)).words
    assert (words[:, 0] & SPILL).any() and (words[:, 0] & FROM_SLOT).any()
    X = data(11, 2, F8)
    params = parameters(pop, 1, F8)
    assert_agrees(pop, X, params, evaluated(pop, X, params, card))


def test_a_long_program(card):
    pop = ek.parse(["x2", " - ".join(f"{i % 7 + 1} * x{i % 2 + 1} ^ {i % 3}" for i in range(8000)), "p1 / x1"])
    X = data(5, 2, F8)
    params = parameters(pop, 1, F8)
    np.testing.assert_allclose(evaluated(pop, X, params, card), defined(pop, X, params), rtol=1e-9)


@pytest.mark.parametrize("n_points", [0, 1, 3, 4, 5, 15, 16, 17, 33])
def test_points_around_the_edges_of_tiles(card, n_points):
    pop = generate.random(7, n_tokens=(1, 20), n_vars=2, n_params=1, seed=5)
    X, params = data(n_points, 2, F4), parameters(pop, 2, F4)
    out = evaluated(pop, X, params, card)
    assert out.shape == (2, 7, n_points)
    if n_points:
        assert_agrees(pop, X, params, out)


@pytest.mark.parametrize("n_exprs", [0, 1, 2, 5])
def test_few_expressions(card, n_exprs):
    pop = generate.random(8, n_tokens=(3, 9), n_vars=2, n_params=1, seed=6)[:n_exprs]
    X, params = data(21, 2, F4), parameters(pop, 1, F4)
    out = evaluated(pop, X, params, card)
    assert out.shape == (1, n_exprs, 21)
    if n_exprs:
        assert_agrees(pop, X, params, out)


def test_bits_do_not_depend_on_the_launch(card):
    pop = generate.random(30, n_tokens=(1, 40), n_vars=3, n_params=2, seed=7)
    X, params = data(50, 3, F4), parameters(pop, 3, F4)
    y = data(50, 1, F4)[:, 0]
    seen = set()
    for points in (4, 8, 12, 16, 32, None):
        engine = cuda.Engine(pop, X, precision="ieee", dtype=F4, card=card, points_per_thread=points)
        out = np.full((3, 30, 50), 7, F4)
        engine.evaluate(params, out)
        seen.add(out.tobytes() + engine.loss_sums(params, y, None, "square").tobytes())
    order = np.random.default_rng(0).permutation(30)
    shuffled = evaluated(pop[order], X, np.ascontiguousarray(params[:, order]), card)
    assert len(seen) == 1
    assert (shuffled.view(np.uint32) == out[:, order].view(np.uint32)).all()


@pytest.mark.parametrize("kind", ["square", "absolute"])
@pytest.mark.parametrize("reduction", ["shuffle", "shared", "atomic"])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses(card, kind, reduction, weighted):
    pop = ek.parse(["x1 * p1", "x1 - x2", "log(x1 - 1)", "1 / (x2 - 1)"])
    X = data(37, 2, F4)
    X[5], X[6, 0] = 1.0, 0.5
    params, y = parameters(pop, 2, F4), data(37, 1, F4)[:, 0]
    w = np.where(np.arange(37) % 3, np.float32(0.5), np.float32(0)) if weighted else None
    engine = cuda.Engine(pop, X, precision="ieee", dtype=F4, card=card, reduction=reduction)
    found = engine.loss_sums(params, y, w, kind)
    wanted = definition.Engine(pop, X, precision="ieee", dtype=F4).loss_sums(params, y, w, kind)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_losses_over_more_points_than_one_pass_takes(card, monkeypatch):
    pop = ek.parse(["x1 * p1", "x1 - 2"])
    X, params, y = data(200, 1, F4), parameters(ek.parse(["p1", "p1"]), 1, F4), data(200, 1, F4)[:, 0]
    engine = cuda.Engine(pop, X, precision="ieee", dtype=F4, card=card)
    at_once = engine.loss_sums(params, y, None, "square")
    monkeypatch.setattr(cuda, "WORK_BYTES", 64)  # chunks of items
    np.testing.assert_array_equal(engine.loss_sums(params, y, None, "square"), at_once)
    monkeypatch.setattr(cuda, "SPAN", 96)  # chunks of points
    np.testing.assert_allclose(engine.loss_sums(params, y, None, "square"), at_once, rtol=1e-6)


def test_parameter_sets_in_passes(card, monkeypatch):
    pop = generate.random(12, n_tokens=(3, 20), n_vars=2, n_params=3, seed=8)
    X, params = data(10, 2, F8), parameters(pop, 5, F8)
    monkeypatch.setattr(cuda, "WORK_BYTES", 1)
    assert_agrees(pop, X, params, evaluated(pop, X, params, card))


def test_unreadable_expressions_give_nan(card):
    pop = ek.parse(["x1", "x1 +", "p1"], errors="mask")
    X, params = data(6, 1, F4), parameters(pop, 1, F4)
    out = evaluated(pop, X, params, card)
    assert np.isnan(out[0, 1]).all() and not np.isnan(out[0, [0, 2]]).any()
    sums = cuda.Engine(pop, X, precision="ieee", dtype=F4, card=card).loss_sums(params, X[:, 0].copy(), None, "square")
    assert np.isnan(sums).tolist() == [[False, True, False]]


def test_nan_and_inf_are_counted(card):
    pop = ek.parse(["log(x1)", "1 / x1", "x1"])
    X = np.array([[-1.0], [0.0], [0.0], [2.0], [np.nan]], F4)
    out, counts = np.empty((1, 3, 5), F4), np.empty((1, 3, 2), np.int64)
    cuda.Engine(pop, X, precision="ieee", dtype=F4, card=card).evaluate(np.zeros((1, 3, 0), F4), out, counts)
    assert counts[0].tolist() == [[2, 2], [1, 2], [1, 0]]


def test_one_launch_per_expression_gives_the_same(card):
    pop = generate.random(20, n_tokens=(1, 40), n_vars=2, n_params=2, seed=9)
    X, params = data(13, 2, F8), parameters(pop, 2, F8)
    assert_agrees(pop, X, params, evaluated(pop, X, params, card, dispatch="per-expression"))


def test_many_variables_stay_in_global_memory(card):
    pop = generate.random(20, n_tokens=(20, 60), n_vars=900, n_params=1, seed=10)
    card_of_little_memory = EmulatedCard(card.folder / "little")
    card_of_little_memory.folder.mkdir()
    card_of_little_memory.shared_per_block = card_of_little_memory.shared_per_multiprocessor = 4096
    X, params = data(30, 900, F8), parameters(pop, 1, F8)
    engine = cuda.Engine(pop, X, precision="ieee", dtype=F8, card=card_of_little_memory)
    out = np.empty((1, 20, 30))
    engine.evaluate(params, out)
    assert not engine._shape(20).columns_shared
    assert_agrees(pop, X, params, out)


def test_awkward_powers_by_the_logarithm_of_the_base(card):
    numbers = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 1e-40, 3e38, np.inf, -np.inf, np.nan], F4)
    X = np.array([(a, b) for a in numbers for b in numbers])
    pop = ek.parse(["abs(x1) ^ x2", "abs(x1) ^ (x2 + 0)"])
    params = np.zeros((1, 2, 0), F4)
    np.testing.assert_allclose(evaluated(pop, X, params, card), defined(pop, X, params), rtol=3e-7)


# ── the parts that need no compiler ──────────────────────────────────────────────────


def test_every_operator_has_its_cases():
    numbers = cases.numbers()
    made = numbers[numbers >= 0]
    assert sorted(made) == list(range(len(made)))
    for row in ops.BY_CODE.values():
        assert bool(cases.forms(row)) == (row.width == 1), row.name
        assert row.cuda


@given(
    costs=st.lists(st.integers(1, 50), min_size=1, max_size=30), n_tiles=st.integers(1, 9), n_sets=st.integers(1, 3),
    blocks=st.integers(1, 12), warps=st.integers(1, 5), cut=st.floats(0, 1),
)  # fmt: skip
def test_segments_cover_every_tile_and_item_once(costs, n_tiles, n_sets, blocks, warps, cut):
    cost = np.concatenate([[0], np.cumsum(costs)])
    n_items = len(costs) * n_sets
    first = int(cut * (n_items - 1))
    plan = segments(cost, first, n_items, range(3, 3 + n_tiles), blocks=blocks, warps=warps)
    assert plan.first_segment[0] == 0 and plan.first_segment[-1] == len(plan.tile_of) == len(plan.cuts)
    assert (np.diff(plan.first_segment) >= 0).all()
    covered = [(int(t), i) for t, row in zip(plan.tile_of, plan.cuts, strict=True) for i in range(row[0], row[-1])]
    assert sorted(covered) == [(t, i) for t in range(3, 3 + n_tiles) for i in range(first, n_items)]
    assert (np.diff(plan.cuts) >= 0).all()


def test_shapes_fit_and_waste_little():
    device = {"multiprocessors": 132, "shared_per_block": 232448, "shared_per_multiprocessor": 233472, "lanes": 32}
    for n_points, n_columns in ((1, 3), (362, 12), (10_860, 12), (10_860, 100), (10**6, 1000)):
        best = shapes(n_points, 9880, n_columns, 3, itemsize=4, block=None, most_vectors=8, **device)[0]
        assert best.shared_bytes(n_columns, 3, 2, True) <= device["shared_per_block"]
        if n_points > 1000:
            assert -(-n_points // best.tile) * best.tile < 1.1 * n_points
    assert not best.columns_shared
