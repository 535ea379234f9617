"""The CUDA backend on a GPU (marker ``gpu``), and what of it can be checked without one."""

from __future__ import annotations

import csv
import functools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvrtc_reports import registers_and_spills, report_of

import exprkit as ek
from exprkit.backends.device_programs import lowering
from exprkit.backends.gpu import device, nvrtc, opcodes
from exprkit.backends.interpreter import batches
from exprkit.backends.interpreter import engine as interpreter
from exprkit.backends.precision import Precision
from exprkit.errors import ArgumentError, BackendError, DataError
from exprkit.expressions import generate
from exprkit.operators import ops
from exprkit.study.agreement import disagreement
from exprkit.study.thesis import baseline

on_gpu = pytest.mark.gpu
TILES = (0, 1, 127, 128, 129, 362, 383, 385, 511, 512, 513, 1023, 1025, 2049)  # and a point more or less


def data(n_points, n_vars, dtype="float32", seed=1):
    return np.random.default_rng(seed).uniform(0.2, 3.0, (n_points, n_vars)).astype(dtype)


def parameters(pop, lead=(), dtype="float32", seed=2):
    return np.random.default_rng(seed).uniform(-2, 2, (*lead, len(pop), pop.max_params)).astype(dtype)


def bits(array):
    return array.view(np.uint32 if array.dtype == np.float32 else np.uint64)


def thesis(root, n=997):
    lines = (root / "data" / "esr_sample.txt").read_text().split("\n")[:-1]
    return ek.parse((lines * (n // len(lines) + 1))[:n])


# ── without a GPU ────────────────────────────────────────────────────────────────────


def test_importing_exprkit_imports_no_cupy():
    code = "import sys, exprkit; exprkit.Evaluator; sys.exit('cupy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_is_missing_is_said_with_what_mends_it(monkeypatch):
    monkeypatch.setattr(device, "_installed", lambda module: module != "cupy")
    monkeypatch.setattr(device, "_device", functools.cache(device.CudaDevice))  # none is in use yet
    assert device.missing() == (
        "CuPy is not installed: pip install '.[cuda13]' in exprkit's folder ('.[cuda12]' for a CUDA 12 driver)"
    )
    with pytest.raises(BackendError, match=r"backend 'cuda' can't run here: CuPy is not installed: pip install"):
        ek.Evaluator(ek.parse(["x1"]), [[1.0]], backend="cuda")


def test_options_are_checked():
    with pytest.raises(ArgumentError, match="backend 'cpu' has no option 'block_size': it has none"):
        ek.Evaluator(ek.parse(["x1"]), [[1.0]], backend="cpu", block_size=128)
    with pytest.raises(ArgumentError, match="takes precision by name only"):
        ek.Evaluator(ek.parse(["x1"]), [[1.0]], backend="cpu", precision=Precision("fast", flush_subnormals=False))
    with pytest.raises(DataError, match="precision must be one of 'ieee', 'fast', not 'exact'"):
        Precision("exact")


KERNELS = [  # what the default launches use, on every architecture; the rest differs in little
    ("fast", {"VECTORS": 8, "BLOCK": 640}),
    ("fast", {"VECTORS": 8, "BLOCK": 640, "TASK": "SQUARE", "WIDE": 0}),
    ("ieee", {"VECTORS": 4, "BLOCK": 640, "TASK": "SQUARE", "WIDE": 0}),
]
MORE_KERNELS = {  # of one architecture
    90: [
        ("fast", {"VECTORS": 8, "BLOCK": 640, "WIDE": 0}),
        ("fast", {"VECTORS": 3, "BLOCK": 768, "WIDE": 0}),
        ("fast", {"VECTORS": 4, "BLOCK": 768, "TASK": "SQUARE", "WIDE": 0}),
        ("fast", {"VECTORS": 4, "BLOCK": 128, "TASK": "SQUARE", "WIDE": 0, "COLUMNS_SHARED": 0}),
        ("ieee", {"VECTORS": 4, "BLOCK": 640}),
        ("ieee", {"VECTORS": 4, "BLOCK": 128, "TASK": "SQUARE", "WIDE": 0, "COLUMNS_SHARED": 0}),
        ("ieee", {"VECTORS": 4, "BLOCK": 128, "REAL": "double"}),
        ("ieee", {"VECTORS": 4, "BLOCK": 768, "TASK": "SQUARE", "WIDE": 0, "POWERS": 0}),
        ("ieee", {"VECTORS": 4, "BLOCK": 640, "COLUMNS_SHARED": 0, "POWERS": 0}),
    ]
}
ARCHITECTURES = (75, 80, 90, 100, 120)  # 86 and 89 are compiled as 80 is


def _resources(architecture, operators, macros):
    """A row of kernels.csv."""
    report = report_of(f"sm_{architecture}", Precision(operators), opcodes.source(operators), **macros)
    registers, spilled = registers_and_spills(report, "interpret")
    every = {**nvrtc.MACROS, **macros}
    names = "REAL", "TASK", "VECTORS", "BLOCK", "WIDE", "COLUMNS_SHARED", "POWERS"
    chosen = {name.lower(): str(every[name]) for name in names}
    found = {"registers": registers, "spilled": spilled}
    return {"architecture": str(architecture), "operators": operators, **chosen, **found}


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_compile_for_every_architecture_within_their_registers(root, architecture):
    pytest.importorskip("cuda.core", reason="cuda-core is not installed: pip install '.[test]'")
    from cuda.core import Program  # noqa: F401  imported here once: two threads must not do it at a time

    with (root / "tests" / "kernels.csv").open() as file:
        pinned = [row for row in csv.DictReader(file) if row["architecture"] == str(architecture)]
    kernels = [*KERNELS, *MORE_KERNELS.get(architecture, [])]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda kernel: _resources(architecture, *kernel), kernels))
    assert len(found) == len(pinned)
    for now, then in zip(found, pinned, strict=True):
        registers, spilled = (int(then.pop(name)) for name in ("registers", "spilled"))
        assert then.items() <= now.items()
        # another release of NVRTC may need a few registers more
        assert now["registers"] <= registers + 8 and now["spilled"] <= spilled + 16, now


@pytest.mark.parametrize("settings", [Precision(optimisation=0), Precision(max_registers=128)])
def test_blocks_of_1024_threads_have_the_registers_whatever_the_settings(settings):
    pytest.importorskip("cuda.core", reason="cuda-core is not installed: pip install '.[test]'")
    real = {"REAL": "float", "LANES": 32}
    report = report_of("sm_90", settings, baseline.source("ieee"), SUPPORT=1, STACK=8, BLOCK=1024, **real)
    assert registers_and_spills(report, "per_expression")[0] <= 65_536 // 1024
    report = report_of("sm_90", lowering.COMPILED_AS, lowering.source(), **real)
    assert registers_and_spills(report, "number_words")[0] <= 65_536 // 1024
    report = report_of("sm_90", settings, batches.measure_source(), LANES=32)
    assert registers_and_spills(report, "put_in_order")[0] <= 65_536 // 1024


# ── on a GPU ─────────────────────────────────────────────────────────────────────────


@on_gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("precision", ["ieee", "fast"])
def test_random_populations_agree(dtype, precision):
    @given(
        seed=st.integers(0, 10**6), n_vars=st.integers(1, 6), n_params=st.integers(0, 3), n_points=st.integers(1, 600)
    )  # fmt: skip
    @settings(max_examples=10)
    def check(seed, n_vars, n_params, n_points):
        pop = generate.random(100, n_tokens=(1, 60), operators="thesis", n_vars=n_vars, n_params=n_params, seed=seed)
        X, params = data(n_points, n_vars, dtype, seed), parameters(pop, (), dtype, seed)
        out = ek.Evaluator(pop, X, "cuda", precision, dtype).evaluate(params)
        off = disagreement(pop, X, params, out, dtype=dtype, precision=precision)
        # approximations of functions may err more than the definition's tolerances
        assert (off > 0.01).sum() <= (2 if precision == "ieee" or dtype == "float64" else 20)

    check()


@on_gpu
@pytest.mark.parametrize("row", ops.OPERATORS, ids=lambda row: row.name)
def test_fast_functions_stay_within_their_published_error(row):
    X = np.column_stack([np.random.default_rng(row.code).uniform(*row.domain[k % row.arity], 20_000) for k in (0, 1)])
    X = X.astype(np.float32)
    pop = ek.parse([f"{row.name}(x1 + 0)" if row.arity == 1 else f"{row.name}(x1 + 0, x2)"])
    y = ek.Evaluator(pop, X, "cuda", "fast").evaluate().astype(np.float64)
    wanted = ek.Evaluator(pop, X.astype(np.float64), "numpy", "ieee", "float64").evaluate()
    error = np.abs(y - wanted) / np.spacing(np.maximum(np.abs(wanted), 1).astype(np.float32))
    assert np.max(error) <= (row.cuda.fast_ulp or row.ulp[0]) + 0.5


@on_gpu
@pytest.mark.parametrize("n_points", TILES)
def test_tile_edges_and_bits_that_do_not_depend_on_the_launch(root, n_points):
    pop = generate.random(131, n_tokens=(1, 50), n_vars=3, n_params=2, seed=3)
    X, params, y = data(n_points, 3), parameters(pop, (2,)), data(n_points, 1)[:, 0]
    wanted = ek.Evaluator(pop, X, "cpu").evaluate(params)
    seen = set()
    for block, points in ((None, None), (32, 4), (64, 8), (256, 12), (512, 16), (128, 32)):
        ev = ek.Evaluator(pop, X, "cuda", block_size=block, points_per_thread=points)
        out = np.full_like(wanted, 7)
        ev.evaluate(params, out=out)
        seen.add(out.tobytes() + ev.loss(params, y).tobytes())
    assert len(seen) == 1
    assert np.isclose(out, wanted, rtol=1e-3, atol=1e-3, equal_nan=True).mean() > 0.97 if n_points else True


@on_gpu
@pytest.mark.parametrize("n_exprs", [0, 1, 7, 8, 9])
def test_few_expressions(n_exprs):
    pop = generate.random(9, n_tokens=(1, 30), n_vars=2, n_params=1, seed=4)[:n_exprs]
    X, params = data(1000, 2), parameters(pop)
    out = ek.Evaluator(pop, X, "cuda").evaluate(params)
    assert out.shape == (n_exprs, 1000)
    if n_exprs:
        assert disagreement(pop, X, params, out, dtype="float32").max() < 0.01


@on_gpu
def test_order_and_company_do_not_change_bits():
    pop = generate.random(500, n_tokens=(1, 50), n_vars=3, n_params=2, seed=5)
    X, params = data(700, 3), parameters(pop)
    out = ek.Evaluator(pop, X, "cuda").evaluate(params)
    order = np.random.default_rng(0).permutation(500)
    assert (bits(ek.Evaluator(pop[order], X, "cuda").evaluate(params[order])) == bits(out)[order]).all()
    assert (bits(ek.Evaluator(pop[:3], X, "cuda").evaluate(params[:3])) == bits(out)[:3]).all()


@on_gpu
def test_evaluators_of_one_kernel_do_not_take_each_other_s_shared_memory():
    """What the second needs is less than what the first needs, and the kernel is the same."""
    X, y = data(3001, 9), np.zeros(3001, np.float32)
    wide = ek.parse([" + ".join(f"log(abs(x{i}) + 1)^p1" for i in range(1, 10))] * 500)
    narrow = ek.parse(["x1 + p1"] * 500)
    for block in (512, 768):
        first = ek.Evaluator(wide, X, "cuda", block_size=block, points_per_thread=8)
        wanted = first.loss(np.ones((500, 1)), y)
        second = ek.Evaluator(narrow, X, "cuda", block_size=block, points_per_thread=8)
        second.loss(np.ones((500, 1)), y)
        assert (bits(first.loss(np.full((500, 1), 1.0), y)) == bits(wanted)).all()


@on_gpu
def test_memory_that_runs_out_makes_the_chunks_smaller(root, monkeypatch):
    import cupy

    pop = thesis(root)
    X, params = data(3001, 2), parameters(pop)
    ev = ek.Evaluator(pop, X, "cuda")
    wanted = ev.evaluate(params)
    monkeypatch.setattr(interpreter, "BUFFER_BYTES", 50_000)
    assert (bits(ev.evaluate(params)) == bits(wanted)).all()
    monkeypatch.setattr(interpreter, "BUFFER_BYTES", 64 << 20)
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    try:
        for spare in (8 << 20, 3 << 20, 1 << 20):
            pool.set_limit(size=pool.used_bytes() + spare)
            assert (bits(ev.evaluate(params)) == bits(wanted)).all()
    finally:
        pool.set_limit(size=0)
    assert (bits(ev.evaluate(params)) == bits(wanted)).all()


@on_gpu
def test_memory_that_runs_out_at_any_allocation(root):
    import cupy

    pop = thesis(root, 97)
    X, params = data(301, 2), parameters(pop, (3,))
    pool, made, fails = cupy.cuda.MemoryPool(), [0], [0]

    def allocate(n_bytes):
        made[0] += 1
        if made[0] == fails[0]:
            raise cupy.cuda.memory.OutOfMemoryError(n_bytes, 0)
        return pool.malloc(n_bytes)

    def all_results():
        ev = ek.Evaluator(pop, X, "cuda")
        out, counts = ev.evaluate(params, count_nonfinite=True)
        return out.tobytes() + counts.tobytes() + ev.loss(params, X[:, 0]).tobytes()

    went_on = refused = 0
    with cupy.cuda.using_allocator(allocate):
        wanted, n_allocations = all_results(), made[0]
        for fails[0] in range(1, n_allocations + 1):
            made[0] = 0
            try:
                assert all_results() == wanted
                went_on += 1
            except MemoryError as error:
                assert "GB are free: take fewer" in str(error)
                refused += 1
    assert went_on > n_allocations // 4 and refused


@on_gpu
def test_rows_that_begin_anywhere_in_a_line_of_memory(root):
    import cupy

    pop = thesis(root, 247)
    for n_points in (1020, 1021, 2050):
        X, params = data(n_points, 2), parameters(pop)
        ev = ek.Evaluator(pop, cupy.asarray(X), "cuda", "fast")
        wanted = bits(ev.evaluate(params).get())
        memory = cupy.empty(len(pop) * n_points + 64, np.float32)
        for offset in (1, 2, 4, 8, 12, 20, 28, 31):
            memory.fill(7)
            out = memory[offset : offset + len(pop) * n_points].reshape(len(pop), n_points)
            ev.evaluate(params, out=out)
            assert (bits(out.get()) == wanted).all()
            assert bool((memory[:offset] == 7).all()) and bool((memory[offset + out.size :] == 7).all())


@on_gpu
def test_device_arrays_go_in_and_out_without_a_copy(root):
    import cupy

    pop = thesis(root)
    X, params, y = data(1000, 2), parameters(pop), data(1000, 1)[:, 0]
    host = ek.Evaluator(pop, X, "cuda")
    ev = ek.Evaluator(pop, cupy.asarray(X), "cuda")
    out = cupy.empty((len(pop), 1000), np.float32)
    ev.evaluate(cupy.asarray(params), out=out)
    pool = cupy.get_default_memory_pool()
    before = pool.total_bytes()
    assert ev.evaluate(cupy.asarray(params), out=out) is out
    assert pool.total_bytes() == before
    assert (bits(out.get()) == bits(host.evaluate(params))).all()
    loss = ev.loss(cupy.asarray(params), cupy.asarray(y))
    assert isinstance(loss, cupy.ndarray)
    assert (loss.get() == host.loss(params, y)).all()
    assert isinstance(ev.evaluate(params), cupy.ndarray)


@on_gpu
@pytest.mark.parametrize("library", ["torch", "jax"])
def test_arrays_of_other_libraries(library):
    module = pytest.importorskip(library)
    pop = ek.parse(["x1 * x2 + p1"])
    X = data(100, 2)
    if library == "torch":
        given, kind = module.from_numpy(X).cuda(), module.Tensor
    else:
        given, kind = module.device_put(X, module.devices("gpu")[0]), module.Array
    out = ek.Evaluator(pop, given, "cuda").evaluate([[2.0]])
    assert isinstance(out, kind)
    values = np.asarray(out.cpu() if library == "torch" else out)[0]
    np.testing.assert_allclose(values, X[:, 0] * X[:, 1] + 2, rtol=1e-6)


@on_gpu
def test_counting_losses_and_the_baseline(root):
    pop = thesis(root, 247)
    X, params, y = data(500, 2) - 1, parameters(pop), data(500, 1)[:, 0]
    ev = ek.Evaluator(pop, X, "cuda")
    out, counts = ev.evaluate(params, count_nonfinite=True)
    assert (counts == np.stack([np.isnan(out).sum(-1), np.isinf(out).sum(-1)], axis=-1)).all()
    weights = (np.arange(500) % 3).astype(np.float32)
    for kind in ("sse", "mse", "rmse", "mae"):
        wanted = ek.Evaluator(pop, X, "cpu").loss(params, y, kind, weights)
        tame = ~(wanted > 1e15)
        np.testing.assert_allclose(ev.loss(params, y, kind, weights)[tame], wanted[tame], rtol=1e-3)
    base = baseline.Baseline(pop, X).evaluate(params, np.empty_like(out))
    assert np.isclose(base, out, rtol=1e-3, atol=1e-3, equal_nan=True).mean() > 0.99


@on_gpu
def test_settings_of_the_compiler():
    pop, X = ek.parse(["x1 / x2", "x1 * x2"]), np.array([[1e-30, 1e-10], [1.0, 3.0]], np.float32)
    for chosen in (
        Precision("ieee", max_registers=128, line_info=True), Precision("ieee", optimisation=1),
        Precision("fast", flush_subnormals=False), Precision("ieee", contract=True, approximate_division=True),
    ):  # fmt: skip
        out = ek.Evaluator(pop, X, "cuda", chosen).evaluate()
        np.testing.assert_allclose(out, [[1e-20, 1 / 3], [0 if chosen.flush_subnormals else 1e-40, 3]], rtol=1e-5)


@on_gpu
@pytest.mark.parametrize("option", [{"block_size": 33}, {"points_per_thread": 5}])
def test_wrong_options(option):
    with pytest.raises(ArgumentError, match="must be"):
        ek.Evaluator(ek.parse(["x1"]), [[1.0]], "cuda", **option)
