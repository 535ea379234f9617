"""The kernels of tangents.cu, equations.cu and fit.cu, compiled as C++ and run on the CPU: no GPU needed.

What only a GPU can show (lanes, barriers, shared memory) is in test_cuda_fit.py.
"""

from __future__ import annotations

import csv
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from emulated_device import EmulatedDevice
from fit_checks import COMMON, F4, F8, check_derivatives, check_fit, data, parameters
from nvrtc_reports import registers_and_spills, report_of

import exprkit as ek
from exprkit.backends import objective
from exprkit.backends.gpu import nvrtc, opcodes
from exprkit.backends.interpreter import batches, derivatives, dual_opcodes
from exprkit.backends.interpreter import engine as interpreter
from exprkit.backends.objective import Options
from exprkit.backends.reference import engine as definition
from exprkit.expressions import generate
from exprkit.operators import ops
from exprkit.programs.linearity import dependence
from exprkit.runtime import disk_cache


@pytest.fixture(scope="module")
def device(emulated):
    """The one that is not there alone."""
    return emulated


@pytest.fixture
def engine_of(device):
    engine = interpreter.Engine
    return lambda pop, X, precision="ieee": engine(pop, X, precision=precision, dtype=X.dtype, device=device)


@pytest.fixture
def little_device(device):
    """One whose blocks have next to no shared memory."""
    little = EmulatedDevice()
    little.shared_per_block = 200
    return little


# ── derivatives ──────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "weighted", "n_points"), [(F8, True, 61), (F4, False, 5)], ids=str)
def test_jacobian_normal_equations_and_gradient(engine_of, dtype, weighted, n_points):
    texts = [text for text in COMMON if "p2" in text and ("p3" not in text or "p5" in text)]
    check_derivatives(engine_of, dtype, "fast", n_points, texts, weighted=weighted)


@pytest.mark.parametrize("precision", ["ieee", "fast"])
def test_every_operator_with_every_kind_of_operand(engine_of, precision):
    texts = []
    for row in ops.OPERATORS:
        (low, high), (low_b, high_b) = (row.domain * 2)[:2]
        a = f"{(low + high) / 2} + {(high - low) / 4}"  # ... * something from -1 to 1
        b = f"{(low_b + high_b) / 2} + {(high_b - low_b) / 4}"
        if not row.derivative:
            continue
        if row.arity == 1:
            inner = f"{row.name}({a} * x1 * p1)"
            texts += [f"{inner} + p2", f"{row.name}({a} * p1) * x1 + p2", f"p2 * x2 - {inner}"]
            continue
        for left in (f"{a} * x1 * p1", f"{a} * p1", f"{a} * x1"):
            for right in (f"{b} * x2 * p2", f"{b} * p2", f"{b} * x2"):
                texts.append(f"{row.name}({left}, {right}) + 0 * p1 * p2")
    pop = ek.parse(texts)
    random = np.random.default_rng(3)
    X, params = random.uniform(-0.9, 0.9, (7, 2)), random.uniform(0.6, 1.0, (1, len(pop), 2))
    found = np.empty((1, len(pop), 7, 2))
    engine_of(pop, X, precision).jacobian(params, found)
    wanted = np.empty_like(found)
    definition.Engine(pop, X, precision="ieee", dtype=F8).jacobian(params, wanted)
    finite = np.isfinite(wanted)
    close = np.isclose(found, wanted, rtol=1e-9, atol=1e-9) | ~finite
    if precision == "fast":  # a negative base has no power there
        close |= np.isnan(found)
    wrong = np.flatnonzero(~close.all(axis=(0, 2, 3)))
    assert not len(wrong), [texts[i] for i in wrong[:5]]
    assert finite.mean() > 0.95 and np.isfinite(found).mean() > 0.8


def test_random_populations_with_slots_and_long_programs(engine_of):
    operators = ("add", "sub", "mul", "aq", "tanh")  # nothing that makes numbers huge or chaotic
    pop = generate.random(60, n_tokens=(1, 120), operators=operators, n_vars=3, n_params=6, seed=2)
    X, params, y = data(9, 3), parameters(pop, 2), data(9, 1, F8, 3)[:, 0].copy()
    found = engine_of(pop, X).normal_equations(params, y, None)
    wanted = definition.Engine(pop, X, precision="ieee", dtype=F8).normal_equations(params, y, None)
    size = np.sqrt(np.einsum("seii->sei", wanted[0]))[..., None]  # sums may cancel
    scales = size * size.swapaxes(-1, -2), size[..., 0] * np.sqrt(wanted[2])[..., None], wanted[2]
    for a, b, scale in zip(found, wanted, scales, strict=True):
        assert (np.abs(a - b) <= 1e-9 * scale + 1e-12).all()


def test_what_does_not_depend_on_a_parameter_has_no_part_in_its_derivative(engine_of):
    pop = ek.parse(["sqrt(x1 * p1) + p2", "abs(x1) ^ p1 * p2", "p2 * x2 + log(x1 * p1)"])
    X = np.array([[0.0, 1.0], [1.0, 2.0]])  # at x1 = 0 the derivatives by p1 are infinite or nan
    J = np.empty((1, 3, 2, 2))
    engine_of(pop, X).jacobian(np.ones((1, 3, 2)), J)
    assert J[0, 0, :, 1].tolist() == [1.0, 1.0] and J[0, 2, :, 1].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("precision", ["ieee", "fast"])
def test_what_has_no_slope_has_none_in_anything(engine_of, precision):
    flat = "floor(p1)", "floor(p1 * x1)", "cond(p1 * x1, x1)", "cond(p1, x1)", "greater(p1 * x1, x2)", "less(x2, p1)"
    pop, X = ek.parse([f"digamma({text}) + p2" for text in flat]), np.array([[2.0, 1.0], [1.5, 1.0]])
    J = np.empty((1, len(flat), 2, 2))
    engine_of(pop, X, precision).jacobian(np.full((1, len(flat), 2), 1.5), J)
    assert (J[..., 0] == 0).all() and (J[..., 1] == 1).all(), "digamma itself has no derivative in the table"


def test_sums_beyond_float32_are_made_in_float64(engine_of):
    pop, X = ek.parse(["p1 * x1 + p2"]), np.array([[1e25], [2e25]], F4)
    jtj, jtr, sse = engine_of(pop, X).normal_equations(np.ones((1, 1, 2), F4), np.zeros(2, F4), None)
    np.testing.assert_allclose([jtj[0, 0, 0, 0], jtr[0, 0, 0], sse[0, 0]], 5e50, rtol=1e-6)


# ── fits ─────────────────────────────────────────────────────────────────────────────


def test_fits_take_the_steps_of_the_definition(engine_of):
    texts = [text for text in COMMON if "/ (p1" not in text]  # that one runs away to ever larger parameters
    pop, found, wanted = check_fit(engine_of, F8, "ieee", texts, n_points=37, rtol=1e-4)
    same = found.iterations == wanted.iterations
    assert same.sum() >= len(pop) - 2, "but for roundings of ill-conditioned steps"
    np.testing.assert_allclose(found.loss[same], wanted.loss[same], rtol=1e-7, atol=1e-12)


def test_fits_in_float32(engine_of):
    texts = ["p1 + p2 * x1", "abs(x1) ^ p1", "abs(p1) ^ x1 + x2", "p1 * p2 + x1", "inv(p1) * x1 + sqr(p2)", "x1", "p1"]
    check_fit(engine_of, F4, "fast", texts, rtol=2e-5)


@pytest.mark.parametrize("kind", [objective.ABSOLUTE, objective.HUBER, objective.POISSON])
def test_other_losses(engine_of, kind):
    delta = {objective.ABSOLUTE: 1e-9, objective.HUBER: 0.3}.get(kind, 1.0)
    weights = np.where(np.arange(61) % 4, 2.0, 0.0)
    options = Options(kind=kind, delta=delta, max_iter=200)
    check_fit(engine_of, F8, "ieee", ["p1 + p2 * x1", "p1 * abs(x1) ^ p2 + x2"], options, weights=weights, rtol=1e-5)


def test_bounds_hold_and_the_rest_is_fitted(engine_of):
    pop = ek.parse(["p1 + p2 * x1", "p1 * abs(x1) ^ p2"])
    options = Options(lower=np.full((2, 2), 0.1), upper=np.full((2, 2), 0.9))
    _, found, _ = check_fit(engine_of, F8, "ieee", ["p1 + p2 * x1", "p1 * abs(x1) ^ p2"], options)
    assert (found.params >= 0.1).all() and (found.params <= 0.9).all() and len(pop) == 2


def test_restarts_in_parts_give_the_same(engine_of, monkeypatch):
    pop, X, y = ek.parse(["sqr(p1 + x1) * p2", "x1 / (p1 + x2)", "log(p1)"]), data(20), data(20, 1, F8, 3)[:, 0].copy()
    starts = np.random.default_rng(0).uniform(-2, 2, (5, 3, 2))
    starts[:, 2] = -1.0  # no loss at any start
    engine = engine_of(pop, X)
    whole = engine.fit(starts, y, None, Options())
    monkeypatch.setattr(derivatives, "WORK_BYTES", 2 * 3 * (16 * 2 + 32) + 2)
    parts = engine.fit(starts, y, None, Options())
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(a, b)
    each = [engine.fit(starts[k : k + 1], y, None, Options()) for k in range(5)]
    assert (np.fmin.reduce([one.loss[:2] for one in each]) == whole.loss[:2]).all()
    assert whole.status[2] == objective.NOT_FINITE and whole.params[2, 0] == -1.0 and np.isnan(whole.loss[2])
    assert whole.evaluations == sum(one.evaluations for one in each)


def test_how_fits_end(engine_of):
    pop = ek.parse(["p1 +", "x1 * 2", "digamma(p1) + x1", "p1 * x1", "p1 + x1"], errors="mask")
    X = data(12)
    fit = engine_of(pop, X).fit(np.ones((1, 5, 1)), X[:, 0] * 3, None, Options())
    wanted = [objective.INVALID, objective.NO_PARAMETERS, objective.NO_DERIVATIVE]
    assert fit.status[:3].tolist() == wanted and (fit.status[3:] <= objective.GTOL).all()
    assert fit.iterations[:3].tolist() == [0, 0, 0]
    assert np.isnan(fit.loss).tolist() == [True, False, False, False, False]
    assert np.isclose(fit.params[3, 0], 3.0) and np.isclose(fit.loss[1], (X[:, 0] ** 2).sum())
    none = engine_of(pop, X).fit(np.ones((1, 5, 1)), X[:, 0].copy(), np.zeros(12), Options())
    assert none.status.tolist() == [objective.INVALID] + [objective.NO_WEIGHT] * 4
    assert none.loss.tolist()[1:] == [0.0] * 4
    short = engine_of(pop, X).fit(np.ones((1, 5, 1)), X[:, 0] * 3, None, Options(max_iter=0, linear=False))
    assert short.status[3] == objective.MAX_ITER and short.params[3, 0] == 1.0


@pytest.mark.parametrize("text", ["p1 + p2 * x1", "p1 + p2 * x1 + p3 * x2 + p4 * sqr(x1) + p5 * inv(x2)"])
def test_blocks_that_need_more_than_shared_memory(engine_of, little_device, text):
    pop, X, y = ek.parse([text, text]), data(20), data(20, 1, F8, 3)[:, 0].copy()
    starts = np.random.default_rng(0).uniform(-2, 2, (3, 2, pop.max_params))
    wanted = engine_of(pop, X).fit(starts, y, None, Options())
    found = interpreter.Engine(pop, X, precision="ieee", dtype=F8, device=little_device).fit(starts, y, None, Options())
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_bits_do_not_depend_on_the_company(engine_of):
    pop = generate.exhaustive(4, n_vars=2)
    X, y = data(30, dtype=F4), data(30, 1, F4, 3)[:, 0].copy()
    starts = np.random.default_rng(0).uniform(-2, 2, (1, len(pop), pop.max_params))
    order = np.random.default_rng(1).permutation(len(pop))[:20]
    all_of_them = engine_of(pop, X, "fast").fit(starts, y, None, Options())
    some = engine_of(pop[order], X, "fast").fit(np.ascontiguousarray(starts[:, order]), y, None, Options())
    width = some.params.shape[1]
    assert some.params.tobytes() == np.ascontiguousarray(all_of_them.params[order][:, :width]).tobytes()
    assert some.loss.tobytes() == all_of_them.loss[order].tobytes()


# ── the parts that need no compiler ──────────────────────────────────────────────────


def test_derivatives_are_written_by_the_table_s_own_formulas():
    assert dual_opcodes.derivatives(ops.BY_NAME["div"], "fast") == (
        "quotient(T(1.0), b)", "strong_fast_quotient((-y), b)",
    )  # fmt: skip
    assert dual_opcodes.derivatives(ops.BY_NAME["cos"], "ieee") == ("-(sin(a))",)
    assert "nan" in dual_opcodes.derivatives(ops.BY_NAME["digamma"], "ieee")[0]
    whole = dual_opcodes.derivatives(ops.BY_NAME["pow_whole"], "fast")[0]
    assert "whole_power" in whole and "fast_pow" not in whole, "a negative base has whole powers"


@pytest.mark.parametrize("operators", ["ieee", "fast"])
def test_every_opcode_has_a_case(operators):
    text = dual_opcodes.source(operators)
    assert "//{" not in text
    called, others = ("int operator_of(", "// ── operators, and"), ("void run(", "struct Source")
    parts = "".join(text[text.index(begin) : text.index(end)] for begin, end in (called, others))
    numbers = [int(n) for n in re.findall(r"case (\d+):", parts)]
    table = opcodes.numbers()
    assert sorted(numbers) == sorted(table[table >= 0])


def test_which_parameters_are_linear():
    texts = ["p1 * x1 + p2", "p1 * p2 + p3", "p1 / p2", "p1 * x1 ^ p2 + p3 * p2", "x1", "floor(p1) + p2", "p1 - p2"]
    assert dependence(ek.parse(texts)).linear.tolist() == [0b11, 0b101, 0b1, 0b101, 0, 0b10, 0b11]
    many = " + ".join(f"p{i + 1} * x1 ^ {i}" for i in range(70))
    assert int(dependence(ek.parse([many])).linear[0]) == 2**63 - 1


@pytest.mark.parametrize("n_points", [1, 100, 362, 1000, 10_860, 10**6])
@pytest.mark.parametrize("tangents_", [1, 2, 3, 4])
@pytest.mark.parametrize("rare", [False, True])
def test_shapes_fit_the_points(n_points, tangents_, rare):
    shape = batches.shape_of(n_points, tangents_, itemsize=4, lanes=32, fast=True, rare=rare)
    tiles = -(-n_points // shape.tile)
    assert shape.warps < 2 * tiles and tiles * shape.tile < n_points + max(shape.tile, 0.2 * n_points)


def test_parts_of_an_arena_do_not_overlap():
    shape = batches.FitShape(4, 1, 2, 32, 4)
    arena = batches.arena_of(shape, n_params=7, many=True, instructions=9, results=3, slots=2)
    assert [arena[name] % 16 for name in arena] == [0] * len(arena)
    assert arena["entries"] == 0 and arena["results"] >= 2 * 9 * shape.entry_bytes
    assert arena["sums"] >= arena["results"] + 3 * shape.result_bytes and arena["state"] == arena["sums"]
    assert arena["slots"] >= arena["state"] + 32 + 8 * (28 + 2 * 36 + 28)
    assert arena["actives"] >= 2 * 5 * 32 * 16 and arena["rows"] >= arena["actives"] + 256
    assert arena["products"] >= arena["rows"] + 8 * (128 + 4) * 4 and arena["warp_bytes"] >= arena["products"] + 8 * 36
    assert arena["arena_bytes"] == arena["slots"] + 2 * arena["warp_bytes"]


def test_a_block_makes_so_many_fits_as_its_memory_holds():
    shape = batches.FitShape(2, 1, 1, 32, 4)
    common, rare = (batches.FitBatch(shape, False, rare, None, {"arena_bytes": 6 << 10}, {}) for rare in (False, True))
    assert [common.fits(kilobytes << 10, 64.0, True) for kilobytes in (227, 64, 48, 5)] == [16, 8, 8, 1]
    assert [rare.fits(kilobytes << 10, 64.0, True) for kilobytes in (227, 64, 48, 5)] == [12, 8, 8, 1]
    assert common.fits(227 << 10, 63.0, True) == 1  # too few fits for several a block
    wide = batches.FitBatch(shape._replace(warps=4), False, False, None, {"arena_bytes": 6 << 10}, {})
    large = batches.FitBatch(shape, False, False, None, {"arena_bytes": 7 << 10}, {})
    assert wide.fits(227 << 10, 1e3, True) == large.fits(227 << 10, 1e3, True) == 1


@pytest.mark.slow
def test_kernels_are_compiled_side_by_side_and_once(tmp_path, monkeypatch, capsys):
    pytest.importorskip("cuda.core", reason="cuda-core compiles the kernels: pip install '.[cuda13]'")
    monkeypatch.setenv("EXPRKIT_CACHE_DIR", str(tmp_path))
    ieee, text, seen, build = nvrtc.Precision("ieee"), dual_opcodes.choice(), [], nvrtc.build
    monkeypatch.setattr(nvrtc, "build", lambda *given, **chosen: seen.append(chosen) or build(*given, **chosen))
    several = [{"LANES": 32, "FRACTION": n} for n in (7, 10)]
    nvrtc.compile_together("sm_90", [nvrtc.KernelRequest(ieee, text, chosen) for chosen in several])
    assert "for sm_90, once: 100%" in (bar := capsys.readouterr().err) and "2/2 [" in bar and len(seen) == 2
    nvrtc.compile_together("sm_90", [nvrtc.KernelRequest(ieee, text, chosen) for chosen in (*several, several[0])])
    made = [nvrtc.compiled("sm_90", ieee, text, **chosen) for chosen in several]
    assert len(seen) == 2 and all(b"choose" in code for code in made) and not capsys.readouterr().err
    monkeypatch.setenv("EXPRKIT_CACHE_DIR", "")  # nothing is kept: what was compiled ahead is handed over all the same
    nvrtc.compile_together("sm_80", [nvrtc.KernelRequest(ieee, text, chosen) for chosen in several])
    assert len(nvrtc.compiled("sm_80", ieee, text, **several[0])) > 0 and len(seen) == 4


def test_a_kernel_that_another_process_compiles_is_waited_for(tmp_path, monkeypatch):
    pytest.importorskip("cuda.core", reason="cuda-core compiles the kernels: pip install '.[cuda13]'")
    monkeypatch.setenv("EXPRKIT_CACHE_DIR", str(tmp_path))
    key, begun = nvrtc._key("sm_90", nvrtc.Precision("ieee"), "text", {}), threading.Event()
    monkeypatch.setattr(nvrtc, "build", lambda *given, **chosen: pytest.fail("compiled a second time"))
    read = disk_cache.read
    monkeypatch.setattr(disk_cache, "read", lambda *given: (read(*given), begun.set())[0])
    with ThreadPoolExecutor(1) as other:  # a file that is opened twice is locked as between processes
        with disk_cache.alone(key):
            code = other.submit(nvrtc.compiled, "sm_90", nvrtc.Precision("ieee"), "text")
            assert begun.wait(20)
            disk_cache.write(key, b"cubin")
        assert code.result(20) == b"cubin"


def test_threads_that_want_the_same_kernels_say_so_once(tmp_path, monkeypatch, capsys):
    pytest.importorskip("cuda.core", reason="cuda-core compiles the kernels: pip install '.[cuda13]'")
    monkeypatch.setenv("EXPRKIT_CACHE_DIR", str(tmp_path))
    wanted = [nvrtc.KernelRequest(nvrtc.Precision("ieee"), dual_opcodes.choice(), {"LANES": 32, "FRACTION": 11})]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: nvrtc.compile_together("sm_90", wanted), range(4)))
    assert capsys.readouterr().err.count("\n") == 1


def test_a_first_fit_compiles_the_kernels_of_both_types_together(monkeypatch):
    seen, shape = [], batches.FitShape(1, 1, 1, 32, 4)
    device = EmulatedDevice()
    monkeypatch.setattr(device, "make_ready", lambda wanted: seen.append([one.chosen["REAL"] for one in wanted]))
    monkeypatch.setattr(derivatives, "_ready", set())
    how = "FIT", objective.SQUARES, 0, False, False, 0, True
    one, two = (
        derivatives.FitKernel(nvrtc.Precision("fast"), "", shape._replace(itemsize=size), 1, False, how)
        for size in (4, 8)
    )
    derivatives._make_ready(device, [one], lambda: [derivatives.FitLaunch(None, False, two)])
    derivatives._make_ready(device, [one], lambda: pytest.fail("nothing is missing"))
    derivatives._make_ready(device, [two], None)
    assert seen == [["float", "double"]]


@pytest.mark.slow
def test_registers_and_spills_of_the_kernels(root):
    pytest.importorskip("cuda.core", reason="cuda-core compiles the kernels: pip install '.[cuda13]'")

    with (root / "tests" / "fit_kernels.csv").open() as file:
        lines = list(csv.DictReader(file))
    with ThreadPoolExecutor(2) as pool:
        for line, (registers, spilled) in zip(lines, pool.map(built, lines), strict=True):
            # another release of NVRTC may need a few more
            allowed = int(line["registers"]) + 8, int(line["spilled"]) + 16
            assert registers <= allowed[0] and spilled <= allowed[1], (line, registers, spilled)


def built(line):
    """Registers and spilled bytes of a kernel."""
    from exprkit.backends.precision import precision

    itemsize = 4 if line["real"] == "float" else 8
    sizes = (int(line[name]) for name in batches.FitShape._fields[:3])
    shape, settings = batches.FitShape(*sizes, 32, itemsize), precision(line["operators"])
    many = int(line["many"])
    fits = batches.fits_at_once(shape, many=bool(many), little=True, fast=line["operators"] == "fast", rare=False)
    chosen = batches.macros_of(shape, settings, fits, TASK="FIT", MANY=many, PROLOGUES=0, RARE=0)
    text, architecture = dual_opcodes.source(line["operators"]), f"sm_{line['architecture']}"
    report = report_of(architecture, settings, text, **chosen)
    return registers_and_spills(report, "fit")
