"""The GPU interpreter's own text, compiled as C++ and run on the CPU: no GPU needed.

A wrong operand order, spill slot, number or share of the work shows here; what only a GPU
can show (lanes, shared memory, the hardware's functions) is in test_cuda.py.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from emulated_device import EmulatedDevice
from fit_checks import data
from hypothesis import given, settings
from hypothesis import strategies as st

import exprkit as ek
from exprkit.backends.cases.interpreter import Decision, VariantSet
from exprkit.backends.cases.tree import CARDS
from exprkit.backends.gpu import launch, layout, opcodes
from exprkit.backends.gpu.bytecode import Bytecode, accumulate
from exprkit.backends.gpu.layout import ACTION, FROM_SLOT, SPILL
from exprkit.backends.gpu.schedule import VECTORS, Chunking, Sizes, plan
from exprkit.backends.interpreter import engine as interpreter
from exprkit.backends.precision import precision
from exprkit.backends.reference import engine as definition
from exprkit.errors import ArgumentError
from exprkit.expressions import generate
from exprkit.operators import ops
from exprkit.programs.lower import lower
from exprkit.study.agreement import disagreement

F4, F8 = np.dtype("float32"), np.dtype("float64")


@pytest.fixture(scope="module")
def device(emulated):
    """The one that is not there alone."""
    return emulated


def parameters(pop, n_sets, dtype, seed=2):
    return np.random.default_rng(seed).uniform(-2, 2, (n_sets, len(pop), pop.max_params)).astype(dtype)


def evaluated(pop, X, params, device, precision="ieee", **options):
    out = np.full((len(params), len(pop), len(X)), 7, X.dtype)
    interpreter.Engine(pop, X, precision=precision, dtype=X.dtype, device=device, **options).evaluate(params, out)
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
def test_every_operator_with_every_kind_of_operand(device, dtype, precision):
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
    assert_agrees(pop, X, params, evaluated(pop, X, params, device, precision), precision)


@given(seed=st.integers(0, 10**6), n_vars=st.integers(1, 5), n_params=st.integers(0, 3))
@settings(max_examples=15)
def test_random_populations(device, seed, n_vars, n_params):
    pop = generate.random(60, n_tokens=(1, 70), n_vars=n_vars, n_params=n_params, seed=seed)
    X, params = data(9, n_vars, F8, seed), parameters(pop, 2, F8, seed)
    assert_agrees(pop, X, params, evaluated(pop, X, params, device))


def test_spilled_accumulators_come_back(device):
    def full(depth):
        return f"({full(depth - 1)} {'-*+/'[depth % 4]} {full(depth - 1)})" if depth else "sin(x1 + x2)"

    pop = ek.parse([full(6), "x1", full(3)])
    action = accumulate(lower(pop)).instructions[:, ACTION]
    assert (action & SPILL).any() and (action & FROM_SLOT).any()
    X = data(11, 2, F8)
    params = parameters(pop, 1, F8)
    assert_agrees(pop, X, params, evaluated(pop, X, params, device))


def test_a_long_program(device):
    pop = ek.parse(["x2", " - ".join(f"{i % 7 + 1} * x{i % 2 + 1} ^ {i % 3}" for i in range(8000)), "p1 / x1"])
    X = data(5, 2, F8)
    params = parameters(pop, 1, F8)
    np.testing.assert_allclose(evaluated(pop, X, params, device), defined(pop, X, params), rtol=1e-9)


@pytest.mark.parametrize("n_points", [0, 1, 3, 4, 5, 15, 16, 17, 33])
def test_points_around_the_edges_of_tiles(device, n_points):
    pop = generate.random(7, n_tokens=(1, 20), n_vars=2, n_params=1, seed=5)
    X, params = data(n_points, 2, F4), parameters(pop, 2, F4)
    out = evaluated(pop, X, params, device)
    assert out.shape == (2, 7, n_points)
    if n_points:
        assert_agrees(pop, X, params, out)


@pytest.mark.parametrize("n_exprs", [0, 1, 2, 5])
def test_few_expressions(device, n_exprs):
    pop = generate.random(8, n_tokens=(3, 9), n_vars=2, n_params=1, seed=6)[:n_exprs]
    X, params = data(21, 2, F4), parameters(pop, 1, F4)
    out = evaluated(pop, X, params, device)
    assert out.shape == (1, n_exprs, 21)
    if n_exprs:
        assert_agrees(pop, X, params, out)


def test_bits_do_not_depend_on_the_launch(device):
    pop = generate.random(30, n_tokens=(1, 40), n_vars=3, n_params=2, seed=7)
    X, params = data(50, 3, F4), parameters(pop, 3, F4)
    y = data(50, 1, F4)[:, 0]
    seen = set()
    for points in (4, 8, 12, 16, 32, None):
        engine = interpreter.Engine(pop, X, precision="ieee", dtype=F4, device=device, points_per_thread=points)
        out = np.full((3, 30, 50), 7, F4)
        engine.evaluate(params, out)
        seen.add(out.tobytes() + engine.loss_sums(params, y, None, "square").tobytes())
    order = np.random.default_rng(0).permutation(30)
    shuffled = evaluated(pop[order], X, np.ascontiguousarray(params[:, order]), device)
    assert len(seen) == 1
    assert (shuffled.view(np.uint32) == out[:, order].view(np.uint32)).all()


@pytest.mark.parametrize("kind", ["square", "absolute", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses(device, kind, weighted):
    pop = ek.parse(["x1 * p1", "x1 - x2", "log(x1 - 1)", "1 / (x2 - 1)"])
    X = data(37, 2, F4)
    X[5], X[6, 0] = 1.0, 0.5
    params, y = parameters(pop, 2, F4), data(37, 1, F4)[:, 0]
    w = np.where(np.arange(37) % 3, np.float32(0.5), np.float32(0)) if weighted else None
    engine = interpreter.Engine(pop, X, precision="ieee", dtype=F4, device=device)
    found = engine.loss_sums(params, y, w, kind)
    wanted = definition.Engine(pop, X, precision="ieee", dtype=F4).loss_sums(params, y, w, kind)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_losses_over_more_points_than_one_pass_takes(device, monkeypatch):
    pop = ek.parse(["x1 * p1", "x1 - 2"])
    X, params, y = data(200, 1, F4), parameters(ek.parse(["p1", "p1"]), 1, F4), data(200, 1, F4)[:, 0]
    engine = interpreter.Engine(pop, X, precision="ieee", dtype=F4, device=device)
    at_once = engine.loss_sums(params, y, None, "square")
    monkeypatch.setattr(interpreter, "WORK_BYTES", 64)  # chunks of items
    np.testing.assert_array_equal(engine.loss_sums(params, y, None, "square"), at_once)
    monkeypatch.setattr(interpreter, "SPAN", 96)  # chunks of points
    np.testing.assert_allclose(engine.loss_sums(params, y, None, "square"), at_once, rtol=1e-6)


def test_parameter_sets_in_passes(device, monkeypatch):
    pop = generate.random(12, n_tokens=(3, 20), n_vars=2, n_params=3, seed=8)
    X, params = data(10, 2, F8), parameters(pop, 5, F8)
    monkeypatch.setattr(interpreter, "WORK_BYTES", 1)
    assert_agrees(pop, X, params, evaluated(pop, X, params, device))


def test_unreadable_expressions_give_nan(device):
    pop = ek.parse(["x1", "x1 +", "p1"], errors="mask")
    X, params = data(6, 1, F4), parameters(pop, 1, F4)
    out = evaluated(pop, X, params, device)
    assert np.isnan(out[0, 1]).all() and not np.isnan(out[0, [0, 2]]).any()
    engine = interpreter.Engine(pop, X, precision="ieee", dtype=F4, device=device)
    sums = engine.loss_sums(params, X[:, 0].copy(), None, "square")
    assert np.isnan(sums).tolist() == [[False, True, False]]


def test_nan_and_inf_are_counted(device):
    pop = ek.parse(["log(x1)", "1 / x1", "x1"])
    X = np.array([[-1.0], [0.0], [0.0], [2.0], [np.nan]], F4)
    out, counts = np.empty((1, 3, 5), F4), np.empty((1, 3, 2), np.int64)
    interpreter.Engine(pop, X, precision="ieee", dtype=F4, device=device).evaluate(np.zeros((1, 3, 0), F4), out, counts)
    assert counts[0].tolist() == [[2, 2], [1, 2], [1, 0]]


def test_many_variables_stay_in_global_memory(device):
    pop = generate.random(20, n_tokens=(20, 60), n_vars=900, n_params=1, seed=10)
    device_of_little_memory = EmulatedDevice()
    device_of_little_memory.shared_per_block = device_of_little_memory.shared_per_multiprocessor = 4096
    X, params = data(30, 900, F8), parameters(pop, 1, F8)
    engine = interpreter.Engine(pop, X, precision="ieee", dtype=F8, device=device_of_little_memory)
    out = np.empty((1, 20, 30))
    engine.evaluate(params, out)
    assert not engine._shape(20).columns_shared
    assert_agrees(pop, X, params, out)


def test_awkward_powers_by_the_logarithm_of_the_base(device):
    numbers = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 1e-40, 3e38, np.inf, -np.inf, np.nan], F4)
    X = np.array([(a, b) for a in numbers for b in numbers])
    pop = ek.parse(["abs(x1) ^ x2", "abs(x1) ^ (x2 + 0)"])
    params = np.zeros((1, 2, 0), F4)
    np.testing.assert_allclose(evaluated(pop, X, params, device), defined(pop, X, params), rtol=3e-7)


def test_formulas_for_usual_operands_leave_the_others_to_the_whole_ones(device):
    numbers = np.array([0, -0.0, 1, -1, 2, -2, 1.5, 1e-40, 2e-38, 1e-21, 3e38, np.inf, -np.inf, np.nan, -np.nan], F4)
    X = np.array([(a, b) for a in numbers for b in numbers])
    pop = ek.parse([
        "x1 / x2", "(x1 + 0) / x2", "x2 / (x1 + 0)", "p1 / (x1 + 0)", "1 / x1", "x1 ^ x2", "(x1 + 0) ^ (x2 + 0)",
        "p1 ^ (x2 + 0)", "(x1 + 0) ^ p1", "abs(x1 + 0) ^ (x2 + 0)", "abs(x1) ^ p1",
    ])  # fmt: skip
    for p in (0.75, 0.0, np.nan):
        params = np.full((1, len(pop), 1), p, F4)
        out, wanted = evaluated(pop, X, params, device), defined(pop, X, params)
        np.testing.assert_allclose(out, wanted, rtol=5e-7, atol=1e-45)
    shuffled = np.random.default_rng(0).permutation(len(X))  # neighbours change no bits
    assert (evaluated(pop, X[shuffled], params, device) == out[..., shuffled])[~np.isnan(out[..., shuffled])].all()


@pytest.mark.parametrize("weighted", [False, True])
def test_losses_count_nan_and_inf(device, weighted):
    pop = ek.parse(["log(x1)", "1 / x1", "x1"])
    X, y = np.array([[-1.0], [0.0], [0.0], [2.0], [np.nan]], F4), np.ones(5, F4)
    w = np.array([0, 1, 0, 1, 1], F4) if weighted else None
    counts = np.empty((2, 3, 2), np.int64)
    engine = interpreter.Engine(pop, X, precision="ieee", dtype=F4, device=device)
    params = np.zeros((2, 3, 0), F4)
    engine.sums(params, engine.prepare(y, w, "square"), counts)
    assert counts[1].tolist() == ([[1, 1], [1, 1], [1, 0]] if weighted else [[2, 2], [1, 2], [1, 0]])


def test_errors_that_float32_cannot_square_give_inf(device):
    pop, X, y = ek.parse(["x1"]), np.array([[3e19], [1.0]], F4), np.zeros(2, F4)
    engine = interpreter.Engine(pop, X, precision="ieee", dtype=F4, device=device)
    params = np.zeros((1, 1, 0), F4)
    assert engine.loss_sums(params, y, None, "square").item() == np.inf
    assert engine.loss_sums(params, y, None, "absolute").item() == pytest.approx(3e19)
    tame = np.array([[1e19], [1.0]], F4)
    engine = interpreter.Engine(pop, tame, precision="ieee", dtype=F4, device=device)
    assert engine.loss_sums(params, y, None, "square").item() == pytest.approx(1e38)


# ── a device whose memory runs out ───────────────────────────────────────────────────


class OutOfMemory(MemoryError):
    """As CuPy has one of its own."""


class ScarceMemory:
    """NumPy as a device's arrays, whose allocations fail from number ``first`` on, ``often`` times."""

    def __init__(self):
        self.made, self.first, self.often = 0, 0, 0

    def __getattr__(self, name):
        return getattr(np, name)

    def _allocate(self):
        self.made += 1
        if self.first <= self.made < self.first + self.often:
            raise OutOfMemory(f"allocation {self.made}")

    def empty(self, *arguments):
        self._allocate()
        return np.empty(*arguments)

    def empty_like(self, array):
        self._allocate()
        return np.empty_like(array)

    def zeros(self, *arguments):
        self._allocate()
        return np.zeros(*arguments)

    def asarray(self, *arguments):
        self._allocate()
        return np.asarray(*arguments)


class _Mark:
    """An event or a stream where everything has been done at once."""

    def __getattr__(self, name):
        return lambda *_: None


class ScarceDevice(EmulatedDevice):
    out_of_memory = OutOfMemory

    def __init__(self, kernels):
        self._kernels, self.xp, self.released = kernels, ScarceMemory(), 0

    def event(self):
        return _Mark()

    stream = current_stream = event

    def to_host(self, source, place, stream):
        place[...] = source

    def free_bytes(self):
        return 123_000_000

    def release(self):
        self.released += 1


def all_results(device, pop, X, params):
    engine = interpreter.Engine(pop, X, precision="ieee", dtype=F4, device=device)
    out, counts = np.full((len(params), len(pop), len(X)), 7, F4), np.empty((len(params), len(pop), 2), np.int64)
    engine.evaluate(params, out, counts)
    engine._by_parts = engine._values_on_device
    there, again = np.full_like(out, 7), np.empty_like(counts)
    engine.evaluate(params, there, again)
    assert there.tobytes() == out.tobytes() and again.tobytes() == counts.tobytes()
    y = np.ascontiguousarray(X[:, 0])
    sums, *others = (engine.loss_sums(params, y, None, "square") for _ in range(3))
    assert all(other.tobytes() == sums.tobytes() for other in others)
    return out.tobytes() + counts.tobytes() + sums.tobytes()


@pytest.mark.parametrize("often", [1, 2, 10**9])
def test_memory_that_runs_out_at_any_allocation(device, often, monkeypatch):
    monkeypatch.setattr(interpreter, "BUFFER_BYTES", 40 * 4 * 3)  # three rows at a time
    pop = generate.random(6, n_tokens=(3, 20), n_vars=2, n_params=2, seed=12)
    X, params = data(40, 2, F4), parameters(pop, 4, F4)
    scarce = ScarceDevice(device._kernels)
    wanted = all_results(scarce, pop, X, params)
    n_allocations, refused, went_on = scarce.xp.made, 0, 0
    for k in range(1, n_allocations + 1):
        scarce.xp.made, scarce.xp.first, scarce.xp.often = 0, k, often
        try:
            assert all_results(scarce, pop, X, params) == wanted
            went_on += 1
        except MemoryError as error:
            assert not isinstance(error, OutOfMemory), k
            assert "0.123 GB are free" in str(error) and "take fewer points" in str(error)
            refused += 1
    assert refused and (went_on > n_allocations // 3 if often == 1 else went_on + refused == n_allocations)
    scarce.xp.often = 0
    assert all_results(scarce, pop, X, params) == wanted


# ── the parts that need no compiler ──────────────────────────────────────────────────


def test_every_operator_has_its_opcodes():
    numbers = opcodes.numbers()
    made = numbers[numbers >= 0]
    assert sorted(made) == list(range(len(made)))
    for row in ops.IN_VALUES.values():
        assert bool(opcodes.modes(row)) == (row.width == 1), row.name
        assert row.cuda


@given(
    costs=st.lists(st.integers(1, 50), min_size=1, max_size=150), n_tiles=st.integers(1, 9), n_sets=st.integers(1, 3),
    blocks=st.integers(1, 12), warps=st.integers(1, 5), cut=st.floats(0, 1),
    chunking=st.sampled_from([Chunking(1), Chunking(0, 1), Chunking(0, 4), Chunking(0.8, 2)]),
)  # fmt: skip
def test_work_items_cover_every_tile_and_item_once(device, costs, n_tiles, n_sets, blocks, warps, cut, chunking):
    cost = np.concatenate([[0], np.cumsum(costs)])
    n_exprs, n_instructions = len(costs), 2 * len(costs) + 1
    n_items = n_exprs * n_sets
    first, first_instruction = int(cut * (n_items - 1)), 2 * np.arange(n_exprs, dtype=np.int32)
    shares = plan(n_items - first, n_tiles, blocks=blocks, warps=warps, chunking=chunking)
    nothing = np.zeros((0, 4), np.int32)
    programs = Bytecode(
        np.zeros((n_instructions, 2), np.uint32), first_instruction, nothing, nothing, nothing, np.zeros(0), cost, 0, 0
    )
    settings, columns = precision("ieee"), launch.Columns(*nothing.T[:3])
    launcher = launch.Launcher(device, settings, F8, np.zeros((0, 1)))
    launcher.take(programs, columns)
    cut, chunks = launcher.cutting(shares, slice(first, n_items), 0)
    cut()
    assert shares.n_work_items == n_tiles * len(chunks) and 1 <= shares.blocks <= blocks
    assert (np.diff((chunks[..., 1] > 0).astype(int), axis=1) <= 0).all()  # a warp stops at an empty chunk
    done = []
    for item, n_here, instruction, n_of_chunk in chunks[chunks[..., 1] > 0].tolist():
        own = first + item + np.arange(n_here)
        at = (own[0], own[-1] + 1) // np.int64(n_exprs) * n_instructions
        at += first_instruction[own[0] % n_exprs], first_instruction[(own[-1] + 1) % n_exprs]
        assert (instruction, instruction + n_of_chunk) == tuple(at)
        done += own.tolist()
    assert sorted(done) == list(range(first, n_items))


@pytest.mark.parametrize("n_points", [16, 20, 36, 37, 38, 41])
@pytest.mark.parametrize("points", [4, 8, 32])
def test_rows_that_begin_anywhere_in_a_line_of_memory(device, n_points, points):
    pop = ek.parse(["x1 + p1", "x2 * x2 - x1 / (x1 + x2)", "sqrt(x2) * (x1 + 1) - (x1 - x2) * (x2 + 3)"])
    X, params = data(n_points, 2, F4), parameters(pop, 2, F4)
    engine = interpreter.Engine(pop, X, precision="ieee", dtype=F4, device=device, points_per_thread=points)
    memory = np.empty(6 * n_points + 64, F4)
    results = set()
    for offset in range(0, 33):
        memory[:] = 7
        out = memory[offset : offset + 6 * n_points].reshape(2, 3, n_points)
        engine.evaluate(params, out)
        results.add(out.tobytes())
        assert (memory[:offset] == 7).all() and (memory[offset + 6 * n_points :] == 7).all()
    assert len(results) == 1
    assert_agrees(pop, X, params, out)


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("itemsize", [4, 8])
@given(
    block=st.integers(1, 32), vectors=st.sampled_from(VECTORS), n_columns=st.integers(0, 60), n_slots=st.integers(0, 8)
)  # fmt: skip
@settings(max_examples=25)
def test_options_that_fit_no_variant_name_the_nearest_that_do(card, itemsize, block, vectors, n_columns, n_slots):
    sizes, width, limits = Sizes(10_860, 100, n_columns, n_slots), 16 // itemsize, CARDS[card].limits

    def chosen(block, vectors):
        return Decision(limits, VariantSet(itemsize, True, block=block, vectors=vectors))(sizes)

    try:
        shape = chosen(32 * block, vectors)
    except ArgumentError as error:
        text = str(error)
    else:
        assert (shape.block, shape.vectors) == (32 * block, vectors)
        return
    assert f"block_size={32 * block}, points_per_thread={width * vectors} needs" in text
    assert f"the device has {limits.shared_per_block >> 10}: take " in text
    assert re.search(rf"\([\d,]+ <= {limits.shared_per_block:,} = Z_B is refused\)", text)
    remedies = dict(re.findall(r"(block_size|points_per_thread)=(\d+)", text.split(": take ")[1]))
    assert remedies or "neither option" in text
    for name, value in remedies.items():
        block_then = int(value) if name == "block_size" else 32 * block
        vectors_then = int(value) // width if name == "points_per_thread" else vectors
        assert chosen(block_then, vectors_then)


def test_options_that_fit_nothing_are_told_before_any_work(device, monkeypatch):
    monkeypatch.setattr(type(device), "shared_per_block", 300)
    X, F = data(30, 2, F4), {"precision": "ieee", "dtype": F4, "device": device}
    with pytest.raises(ArgumentError, match=r"points_per_thread=32 needs .* KiB .* take points_per_thread=16"):
        interpreter.Engine(ek.parse(["x1 + x2"]), X, points_per_thread=32, **F)
    engine = interpreter.Engine(ek.parse(["x1 + x2"]), X, points_per_thread=4, **F)
    before = engine.loss_sums(np.empty((1, 1, 0), F4), X[:, 0].copy(), None, "square")
    half = "((x1 + x2) * (x1 - x2) + (x1 * x1 - x2) * (x1 + x2 * x1))"
    deep = ek.parse([f"{half} * ({half} - x1)"] * 9)
    monkeypatch.setattr(type(device), "shared_per_block", 100)
    with pytest.raises(ArgumentError, match="points_per_thread=4 needs"):
        engine.update(deep)
    monkeypatch.setattr(type(device), "shared_per_block", 300)
    assert engine.loss_sums(np.empty((1, 1, 0), F4), X[:, 0].copy(), None, "square") == before


@pytest.mark.parametrize("arguments", [layout.Arguments, layout.FitArguments])
def test_kernel_arguments_have_no_other_names(arguments):
    with pytest.raises(AttributeError, match="n_point"):
        launch.fill(arguments(), {"n_point": 1}, device=None)


@pytest.mark.parametrize(("name", "dtype", "dropped"), [("float16", F4, 13), ("float16", F8, 42), ("bfloat16", F4, 16)])
def test_results_are_rounded_to_16_bits(device, name, dtype, dropped):
    short = np.float16
    if name == "bfloat16":
        short = pytest.importorskip("ml_dtypes", reason="pip install ml_dtypes").bfloat16
    random, width = np.random.default_rng(4), 8 * dtype.itemsize
    near = np.arange(0, 1 << 16, 7, np.uint16).view(short).astype(dtype)  # some that there are, and what lies about
    near = near[~np.isnan(near)]
    shifts = random.integers(-(1 << (width - 18)), 1 << (width - 18), len(near))
    beside = (near.view(f"i{dtype.itemsize}") + shifts).view(dtype)
    ties = (near.view(f"i{dtype.itemsize}") + (1 << (dropped - 1))).view(dtype)
    X = np.concatenate([near, beside, ties, (random.standard_normal(999) * 1e5).astype(dtype)])
    X = np.append(X[~np.isnan(X)], dtype.type(np.nan))[:, None]
    pop = ek.parse(["x1", "-x1"])
    values, out = evaluated(pop, X, np.empty((1, 2, 0), dtype), device), np.empty((1, 2, len(X)), short)
    interpreter.Engine(pop, X, precision="ieee", dtype=dtype, device=device).evaluate(np.empty((1, 2, 0), dtype), out)
    with np.errstate(all="ignore"):
        wanted = values.astype(short)
        nan = np.isnan(wanted)
        assert (np.isnan(out) == nan).all()
    assert (out.view(np.uint16) == wanted.view(np.uint16))[~nan].all()
