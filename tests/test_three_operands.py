"""Functions of three operands on GPUs: values, losses, derivatives, fits, on a GPU that is not there (and on one)."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_device import EmulatedDevice
from fit_checks import F4, F8, check_derivatives, check_fit, data, parameters
from test_lowering_on_device import assert_same

import exprkit as ek
from exprkit.backends import load
from exprkit.backends.device_programs.lowering import Lowering
from exprkit.backends.device_programs.operator_kernels import OperatorKernels
from exprkit.backends.gpu import opcodes
from exprkit.backends.gpu.bytecode import MAX_SLOTS, accumulate
from exprkit.backends.gpu.device import fetched
from exprkit.backends.interpreter import derivatives, dual_opcodes
from exprkit.backends.interpreter.engine import Engine
from exprkit.backends.objective import Options
from exprkit.backends.precision import precision
from exprkit.backends.reference import engine as definition
from exprkit.errors import BackendError, PopulationError
from exprkit.evaluate import inputs, loss_text, options
from exprkit.expressions.arguments import operators_of
from exprkit.operators import defined, ops
from exprkit.programs.lower import lower
from exprkit.regression.on_device.pool import DevicePool
from exprkit.regression.pairs.pool import Pool
from exprkit.text import tokens


@pytest.fixture(autouse=True, scope="module")
def operators(functions):
    """Some: one with a derivative that is another, one that is flat in its first operand, one without derivatives."""
    ek.operator("blend", numpy=lambda a, b, c: a * (1 - c) + b * np.sin(c), cuda="a * (T(1) - c) + b * sin(c)",
                derivative=("1 - c", "sin(c)", "b * cos(c) - a"))  # fmt: skip
    ek.operator("wave(a, b, c)", numpy=lambda a, b, c: a * (c - c * c / 2) - b * np.cos(c),
                cuda="const T d = c - c * c / T(2); return a * d - b * cos(c);",
                derivative=("c - c * c / 2", "-cos(c)", "blend(a, b, c)"))  # fmt: skip
    ek.operator("picked(a, b, c)", numpy=lambda a, b, c: np.where(a > 1, b, c),
                cuda="if (a > T(1)) return b; return c;",
                derivative=("0", "1 - lessequal(a, 1)", "lessequal(a, 1)"))  # fmt: skip
    ek.operator("bound", numpy=lambda a, b, c: np.maximum(np.minimum(a, b), c), cuda="fmax(fmin(a, b), c)")
    ek.operator("kept(a, b) = bound(a, b, 0.7) * 2")
    ek.operator("repeated(a) = a * a + 1 / a")


def written(name, some):
    """Texts with the operator of this name in the place of braces."""
    return [text.replace("{", f"{name}(").replace("}", ")") for text in some]


LEAVES = "x1", "p1", "0.75", "x1 * x2 + p1", "sin(x2)", "exp(p2)"
EVERY_KIND = [f"{{{a}, {b}, {c}}}" for a in LEAVES for b in LEAVES for c in LEAVES]
NESTED = [
    "{{x1, p1, x2}, {x2, x1, p2}, {1, p1, {x1, x1, 2}}} - {x1, p1, x2}",
    "x2 / (x1 + {x1 * x2, {p1, p2, x1}, {x2, 0.5, x1} * {p1, 0.5, p2}})",
    "{x1 - x2, x1 - x2, x1 - x2} * ({{p1, 2, p2}, x1, {p2, p1, 3}} + p1 * p2)",
    " + ".join(f"{{x1, p1 * {k}, {{x2, p2 * {k}, x1 * {k}}}}}" for k in range(1, 8)),
]
SHARED = [
    "repeated(x1 + {x1 + x2, {p1, 2, x1}, {p1, 2, p2}})", "repeated({p1, p2, 3})",
    "repeated({x1, x2, p1}) - {p1, p2, repeated({p2, p1, x2})}",
    "repeated(repeated({x2 * p1, x1 * p2, x2 * p1}) + {p1, p2, p1}) * {p1, p2, x1}",
]  # fmt: skip


def engine_on(device, pop, X, precision_="ieee", **options_):
    engine = Engine(pop.expanded(), X, precision=precision(precision_), dtype=X.dtype, device=device, **options_)
    assert engine.programs.n_exprs == len(pop)
    return engine


def evaluated(device, pop, X, params, precision_="ieee", **options_):
    out = np.full((len(params), len(pop), len(X)), 7, X.dtype)
    engine_on(device, pop, X, precision_, **options_).evaluate(params, out)
    return out


def meaning(pop, X, params):
    out = np.empty((len(params), len(pop), len(X)))
    definition.Engine(pop.expanded(), X.astype(F8), precision="ieee", dtype=F8).evaluate(params.astype(F8), out)
    return out


def assert_close(found, wanted, dtype):
    rtol = 1e-11 if dtype == F8 else 2e-4
    off = np.abs(found - wanted) <= rtol * np.abs(wanted).max(axis=-1, keepdims=True)
    assert off.all(), np.argwhere(~off)[:5]


# ── values ──


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
@pytest.mark.parametrize("name", ["ieee", "fast"])
def test_values_are_the_definition_s(device, name, dtype):
    pop = ek.parse(written("blend", EVERY_KIND + NESTED) + written("picked", EVERY_KIND[::7] + NESTED))
    X, params = data(61, 2, dtype), parameters(pop, 2, dtype)
    assert_close(evaluated(device, pop, X, params, name), meaning(pop, X, params), dtype)


@pytest.mark.slow
@pytest.mark.parametrize("points", [4, 12, 32])
def test_parts_that_formulas_repeat_are_computed_once(device, points):
    pop = ek.parse(written("blend", SHARED) + written("wave", SHARED))
    assert lower(pop).shared
    X, params = data(37, 2, F4), parameters(pop, 2, F4)
    assert_close(evaluated(device, pop, X, params, points_per_thread=points), meaning(pop, X, params), F4)


@pytest.mark.slow
def test_columns_may_lie_in_global_memory(device):
    pop = ek.parse([f"blend(x{k + 1}, x{k + 2}, p1) * wave(p1, x{k + 2}, x{k + 1})" for k in range(900)])
    little = EmulatedDevice()
    little.shared_per_block = little.shared_per_multiprocessor = 4096
    X, params = data(9, 901, F8), parameters(pop, 1, F8)
    if device.xp is np:
        device = little
        assert not engine_on(device, pop, X)._shape(len(pop)).columns_shared
    assert_close(evaluated(device, pop, X, params), meaning(pop, X, params), F8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["blend(f, y, 0.5)^2", "abs(f - y) * wave(w, s, blend(f, 1, w))", "picked(f, y, f * s)"]
)
def test_losses_hold_them(device, text):
    pop = ek.parse(["p1 * x1 + p2", "blend(x1, p1, x2 * p2)", "3"])
    X, params, y = data(50, 2, F4), parameters(pop, 2, F4), data(50, 1, F8, 3)[:, 0].copy()
    s, w = data(50, 2, F8, 4).T.copy()
    points = inputs.LossPoints(y, w if "w" in text else None, {"s": s} if "s" in text else {})
    asked = loss_text.fused(loss_text.parse_loss(text, tuple(points.columns)), points)
    made = engine_on(device, pop, X)
    found = fetched(made.sums(params, made.prepare_text(*asked)))
    reference = ek.Evaluator(pop, X, "numpy", dtype="float64")
    wanted = reference.loss(params, y, text, points.w, columns=points.columns)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


# ── derivatives and fits ──


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), [("ieee", F8), ("fast", F4), ("fast", F8)], ids=str)
def test_derivatives_are_the_definition_s(device, name, dtype):
    every = [f"{text} + 0 * p1 * p2" for text in EVERY_KIND]
    for of, texts in ("blend", every[:: 1 if name == "ieee" else 5]), ("blend", NESTED), ("wave", every[::9]):
        some, weighted = written(of, texts), dtype == F8
        check_derivatives(lambda pop, X, how: engine_on(device, pop, X, how), dtype, name, 21, some, weighted=weighted)


@pytest.mark.slow
def test_derivatives_by_many_parameters(device):
    text = " + ".join(f"{{x1 * p{k + 1}, p{k + 2}, {{p{k + 3}, x2, p{k}}}}}" for k in range(1, 5))
    check_derivatives(lambda pop, X, how: engine_on(device, pop, X, how), F8, "ieee", 21, written("blend", [text]))


@pytest.mark.slow
def test_what_is_flat_in_an_operand_has_no_derivative_by_it(device):
    """Not even where the slope of what stands there is infinite; and 0 times such a slope is 0."""
    slopes = {
        "picked(sqrt(x1 * p1), p2, x2)": [[0, 0], [0, 1]],
        "picked(x2, sqrt(x1 * p1), p2 * x1)": [[0, 0], [1, 0]],
        "picked(x1, sqrt(x1 * p1), p2 * x2)": [[0, 2], [1, 0]],
        "picked(sqrt(p1 - p1), p2, p1) * x2": [[2, 0], [2, 0]],
        "blend(p1, log(x1), 0 * x1)": [[1, 0], [1, 0]],
    }
    pop, X, J = ek.parse(list(slopes)), np.array([[0.0, 2.0], [4.0, 2.0]]), np.full((1, 5, 2, 2), 7.0)
    engine_on(device, pop, X).jacobian(np.ones((1, 5, 2)), J)
    assert J[0].tolist() == list(slopes.values())


@pytest.mark.slow
def test_fits_end_where_the_definition_s_do(device):
    texts = ["blend(x1, p1, x2 * p2)", "p1 + blend(p2, x1, 0.3) * x2", "blend(p1, p2, 0.5) * x1 + p1",
             "wave(p1, x1, x2) + p2 * blend(x1, 2, x2)"]  # fmt: skip
    check_fit(lambda pop, X, how: engine_on(device, pop, X, how), F8, "ieee", texts)


@pytest.mark.slow
def test_fits_find_their_way_in_little_memory(emulated):
    pop, X = ek.parse(written("blend", NESTED[:2])), data(20)
    y, starts = meaning(pop, X, np.full((1, 2, 2), 0.7))[0, 0], parameters(pop, 3)
    little = EmulatedDevice()
    little.shared_per_block = 300
    fits = [engine_on(device, pop, X).fit(starts, y, None, Options()) for device in (emulated, little)]
    for one, other in zip(*fits, strict=True):
        np.testing.assert_array_equal(one, other)
    assert fits[0].loss[0] < 1e-12


@pytest.mark.slow
def test_without_derivatives_nothing_is_fitted(device):
    pop, X = ek.parse(["bound(x1, p1, x2)", "p1 * bound(x1, 1, x2)"]), data(20)
    fitted = engine_on(device, pop, X).fit(np.ones((1, 2, 1)), X[:, 0].copy(), None, Options())
    assert fitted.status[0] == derivatives.objective.NO_DERIVATIVE and fitted.status[1] <= derivatives.objective.GTOL


# ── programs ──


@pytest.mark.parametrize("name", ["ieee", "fast"])
def test_host_and_device_make_the_same_bytecode(device, name):
    texts = [*written("blend", EVERY_KIND + NESTED), "x1 ^ p1 * blend(abs(x1) ^ p1, x2 ^ 2, 3)", "blend(1, 2, 3)"]
    assert_same(ek.parse(texts).expanded(), device, name, F4, np.array([True, False]))
    names = "add", "div", "powabs", "log", "blend", "wave", "picked"
    pop = ek.generate.random(200, n_tokens=(1, 60), operators=names, n_vars=3, n_params=2, seed=4).expanded()
    assert_same(pop, device, name, F8, np.array([True, False, True]))
    assert opcodes.numbers()[ops.PAIR_OF].max() == -1  # what packs has no code of its own


def test_random_ones_have_the_definition_s_values(device):
    names = "add", "sub", "mul", "sin", "tanh", "blend", "wave"
    pop = ek.generate.random(80, n_tokens=(1, 60), operators=names, n_vars=3, n_params=2, seed=5)
    X, params = data(9, 3, F8), parameters(pop, 2, F8)
    found, wanted = evaluated(device, pop, X, params), meaning(pop, X, params)
    np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-9)  # rounding grows through nested sines


def nested(depth, place):
    text = "x1"
    for _ in range(depth):
        operands = ["x2", "p1", "x1"]
        operands[place] = text
        text = f"blend({', '.join(operands)})"
    return text


@pytest.mark.slow
def test_deep_ones_need_slots_in_the_last_operand_alone(device):
    depths = [accumulate(lower(ek.parse(nested(40, place)))).n_slots for place in range(3)]
    assert depths == [2, 41, 80]
    pop = ek.parse([nested(12, place) for place in range(3)])
    X, params = data(5, 2, F8) / 4, parameters(pop, 1, F8) / 2
    np.testing.assert_allclose(evaluated(device, pop, X, params), meaning(pop, X, params), rtol=1e-9)
    deepest = ek.parse(nested(MAX_SLOTS // 2 + 1, 2)).expanded()
    with pytest.raises(BackendError, match="nested so deep that 258 values have to be put aside"):
        accumulate(lower(deepest))
    with pytest.raises(BackendError, match="nested so deep that 258 values have to be put aside"):
        Lowering(device, precision("ieee"), F8, np.zeros(2, bool)).of(deepest)


def test_what_is_of_numbers_alone_is_computed_once():
    program = lower(ek.parse(["x1 * blend(p1, exp(2), p2 + 1)"]))
    assert program.n_prologue.tolist() == [4] and len(program.code) == 5
    program = lower(ek.parse(["blend(p1, 2, x1)"]))
    assert program.n_prologue.tolist() == [0]
    assert program.listing(0) == "t0 = copy u0\nt0 = pair_of t0, u1\nout = blend t0, c0"


def test_programs_can_be_looked_at():
    lines = ek.compile_bytecode(ek.parse("blend(x1, p1, x2 + 1)")).listing(0).split("\n")
    assert [line.split("  ")[-1] for line in lines[1:]] == [
        "acc = c0; acc = acc", "t0 = acc; acc = p1", "t1 = acc; acc = c1; acc = acc + 1",
        "acc = blend(t0, t1, acc), the result",
    ]  # fmt: skip
    assert "go_round_pair(acc" in ek.compile_bytecode(ek.parse("blend(x1, p1, x2)")).cuda(0)


# ── populations of a device ──


@pytest.mark.slow
def test_a_device_population_holds_them(device):
    pop = ek.parse(written("blend", EVERY_KIND[::9] + NESTED)).expanded()
    there = ek.DevicePopulation.of(pop, device)
    assert there.to_host() == pop and there.user_operators() == pop.user_operators()
    X, params = data(13, 2, F4), parameters(pop, 1, F4)
    engine = engine_on(device, ek.parse("x1"), X)
    assert engine.update(there)
    y = X[:, 0].copy()
    sums = ((meaning(pop, X, params) - y) ** 2).sum(axis=-1)
    np.testing.assert_allclose(fetched(engine.loss_sums(params, y, None, "square")), sums, rtol=1e-4)


V, P, F = tokens.VARIABLE, "pair_of", "blend"


@pytest.mark.parametrize("some", [
    [V, V, P], [V, V, F], [V, V, P, V, "add"], [V, V, V, P, F], [V, V, P, V, F, F], [V, V, P, "neg", V, F],
    [V, V, P, V, V, P, F], [V, V, P, V, V, P, V, F], [V, V, P, V, "neg", V, "add", V, F], [V, V, P, V, V, "add", F],
    [V, V, P, V, V, P, V, F, F], [V, V, P, V, F, V, P, V, "neg", F], [V, V, P, V, 300, F], [P], [V, V, P, V, V, F],
])  # fmt: skip
def test_what_is_packed_is_checked_on_host_and_device(device, some):
    codes = {P: ops.PAIR_OF, F: int(defined.spelled("blend").values[-1])}
    names = [codes.get(one) or (one if isinstance(one, int) else defined.spelled(one).code) for one in some]
    kinds = np.array([V if one == V else tokens.OPERATOR for one in some], np.uint8)
    values = np.array([0 if one == V else name for one, name in zip(some, names, strict=True)], np.uint64)
    arrays = kinds, values, np.array([0, len(some)])
    found = []
    for make in (lambda: ek.Population(*arrays), lambda: on_device(device, arrays)):
        try:
            make()
            found.append(None)
        except PopulationError as error:
            found.append(str(error))
    text = " ".join(map(str, some))
    fine = text in {" ".join(map(str, one)) for one in ([V, V, P, V, V, "add", F], [V, V, P, V, V, P, V, F, F],
                                                        [V, V, P, V, F, V, P, V, "neg", F])}  # fmt: skip
    assert found[0] == found[1] and (found[0] is None) == fine


def on_device(device, arrays):
    return ek.DevicePopulation(*map(device.xp.asarray, arrays), device=device)


def test_many_pairs_in_one_expression_are_checked(device):
    pop = ek.parse([nested(300, 2), nested(300, 0)]).expanded()
    assert ek.DevicePopulation.of(pop, device).to_host() == pop


# ── backends, and searches ──


@pytest.mark.slow
def test_formulas_of_searches_hold_them(device):
    operators, X = operators_of(["+", "*", "kept"]), data(16, 3)
    pools = Pool(X, operators), DevicePool(X, operators, OperatorKernels(device, tuple(operators), len(X)))
    for pool in pools:
        pool.grow(30, 2_000)
    assert len(pools[0]) == len(pools[1]) == 2_000 and "kept(" in str(pools[1].expression(1_999))
    assert np.array_equal(fetched(pools[1].values)[:2_000], pools[0].values[:2_000])


def test_gpu_backends_take_them_with_cuda_text(monkeypatch):
    gpu = options.load("cpu")._replace(takes_settings=True)
    monkeypatch.setattr(options, "load", lambda name: gpu)
    options.check_runs(ek.parse("kept(blend(x1, 1, 2), x1)"), "cuda", gpu)
    options.check_slopes(ek.parse("wave(x1, 1, 2)"), "cuda")


def test_kernels_hold_its_text():
    assert "INLINE T user_blend(T a, T b, T c) { return a * (T(1) - c) + b * sin(c); }" in opcodes.source("fast")
    assert "#define OF_THREE" in (text := dual_opcodes.source("ieee")) and "return user_blend(a, b, c); })" in text
    for row in (row for row in defined.functions() if row.packed):
        assert opcodes.refusal(row) == ""


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["cuda", "ptx"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["ieee", "fast"])
def test_gpus_compute_and_fit_them(backend, dtype, name):
    texts = [*written("blend", EVERY_KIND + NESTED), *written("wave", NESTED)]
    if dtype == "float64":  # in float32 a number on the other side of 1, or of a pole, makes all the difference
        texts += written("blend", SHARED) + written("picked", EVERY_KIND)
    pop, X = ek.parse(texts), data(3000, 2)
    params, y = parameters(pop, 2), X[:, 0].copy()
    ev = ek.Evaluator(pop, X, backend, dtype=dtype, precision=name)
    exact = ek.Evaluator(pop, X, "numpy", dtype="float64")
    assert_close(fetched(ev.evaluate(params)), exact.evaluate(params), np.dtype(dtype))
    rtol = 1e-9 if dtype == "float64" else 1e-3
    for kind in ("sse", "sae", "blend(f, y, 0.5)^2"):
        np.testing.assert_allclose(fetched(ev.loss(params, y, kind)), exact.loss(params, y, kind), rtol=rtol)
    if not load(backend).differentiates:
        return
    found, wanted = fetched(ev.jacobian(params[0])), exact.jacobian(params[0])
    size = np.abs(wanted).max(axis=1, keepdims=True)
    np.testing.assert_allclose(found, wanted, rtol=10 * rtol, atol=rtol * size.max())
    y = X[:, 0] * (1 - 0.7 * X[:, 1]) + 2 * np.sin(0.7 * X[:, 1])
    fitted = ek.fit("blend(x1, p1, x2 * p2)", X, y, backend=backend, dtype=dtype, precision=name, restarts=4)
    assert fitted.params[0] == pytest.approx([2, 0.7], rel=1e-3)
