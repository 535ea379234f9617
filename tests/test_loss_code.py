"""Losses given as text in the GPU interpreter's kernel: their CUDA C, and their sums on a GPU that is not there."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest
from nvrtc_reports import report_of

import exprkit as ek
from exprkit.backends.gpu import loss_code, opcodes
from exprkit.backends.interpreter.engine import Engine
from exprkit.backends.precision import precision
from exprkit.evaluate import inputs, loss_text
from exprkit.operators import defined

RANDOM = np.random.default_rng(0)
N = 403
X = RANDOM.uniform(0.1, 2, (N, 2))
Y, S = RANDOM.uniform(0.5, 2, N), RANDOM.uniform(0.5, 2, N)
W = np.where(np.arange(N) % 7, RANDOM.uniform(0.1, 1, N), 0)
LOSSES = [
    "huber(f - y, 0.5) * w", "huber(f - y, s)", "pinball(y - f, 0.9)", "logcosh(f - y)", "lessequal(abs(f - y), 0.1)",
    "((sqrt(abs(f)) - y) / s)^2 / 2", "(f - y)^2 + abs(f)^1.5 / s", "falls_off((f - y) / s) + w", "(f - y)^4",
    "(f - y)^2 * 3 - f^3", "cond(f - y, s) * exp(-f)", "min(abs(f - y), inf) + y^f", "f * 2 + 1", "y / (f + 2)",
    "abs(f - y)^1.3 + abs(f)^2.5",
]  # fmt: skip
KINDS = {"first": "true", "next": "false"}  # by template arguments


@pytest.fixture(autouse=True, scope="module")
def own_operator(functions):
    ek.operator("falls_off(a) = 1 / (1 + a * a)")


def tokens_of(text, w=W, s=S):
    """The loss as a backend is asked for it: tokens, columns, whether the last is a weight."""
    points = inputs.LossPoints(Y, w, {"s": s})
    return loss_text.fused(loss_text.parse_loss(text, ("s",)), points)


@pytest.mark.parametrize("operators", ["ieee", "fast"])
def test_their_functions_are_what_the_definition_says(emulated, operators):
    texts = []
    for i, text in enumerate(LOSSES):
        tokens, columns, _ = tokens_of(text)
        own = loss_code.function(tokens, operators).replace("TARGETS", str(len(columns)))
        for name in ("AT_ONCE", "text_loss"):
            own = own.replace(name, f"{name}_{i}")
        for name, how in KINDS.items():
            own += f'\nextern "C" float {name}_{i}(float f, const float (&read)[{len(columns)}])'
            own += f" {{ return add_text_loss_{i}<{how}>(0, f, read); }}"
        texts.append(own)
    source = "\n".join([opcodes.joined(opcodes.HEAD), *texts])
    library = emulated.library(source, precision(operators), {"REAL": "float", "LANES": 1})
    for i, text in enumerate(LOSSES):
        columns = tokens_of(text)[1]
        read = np.ascontiguousarray(columns.T, np.float32)
        found = []
        for call in (getattr(library, f"{name}_{i}") for name in KINDS):
            call.restype, call.argtypes = ctypes.c_float, [ctypes.c_float, ctypes.c_void_p]
            found.append([call(f, row.ctypes.data) for f, row in zip(X[:, 0] - 1, read, strict=True)])
        variables = re.sub(r"\bf\b", "x1", text)
        for k, name in enumerate("yws"):
            variables = re.sub(rf"\b{name}\b", f"x{k + 2}", variables)
        data = np.column_stack([X[:, 0] - 1, Y, W, S])
        expected = ek.Evaluator(ek.parse(variables).expanded(), data, "numpy", dtype="float64").evaluate()[0]
        weights = W if text.endswith(") * w") else 1  # a factor of the whole, which is the points' weight
        np.testing.assert_allclose(found * weights, [expected] * 2, rtol=2e-4, atol=2e-6, err_msg=text)


@pytest.mark.parametrize("weights", [None, W], ids=["plain", "weighted"])
def test_their_sums_are_the_definition_s(device, weights):
    """On tiles that are full and the last, which is not; of an expression that is nan where nothing counts, too."""
    text, dtype = "huber(f - y, s) + logcosh(f)", np.dtype(np.float32)
    pop = ek.parse(["p1 * x1 + p2", "x1 + x2", "exp(p1 * x1)", "log(x2 - 0.2) * p1", "3", "x1 +"], errors="mask")
    few = X.copy()
    if weights is not None:
        few[weights == 0, 1] = 0.1  # where the logarithm has none
        few[weights > 0, 1] += 0.2
    data, params = few.astype(dtype), RANDOM.uniform(0.5, 1.5, (2, len(pop), 2)).astype(dtype)
    engine = Engine(pop, data, precision=precision("ieee"), dtype=dtype, device=device)
    asked = tokens_of(text, weights)
    definition = ek.Evaluator(pop, few, "numpy", dtype="float64")
    expected = definition.loss(params, Y, text, weights, columns={"s": S})
    prepared = engine.prepare_text(*asked)
    for _ in range(3):  # the launches are recorded at the second
        np.testing.assert_allclose(on_host(engine.sums(params, prepared)), expected, rtol=1e-5)
    moved = engine.prepare_text(*tokens_of(text, weights, 2 * S))
    expected = definition.loss(params, Y, text, weights, columns={"s": 2 * S})
    np.testing.assert_allclose(on_host(engine.sums(params, moved)), expected, rtol=1e-5)
    assert engine.kernels()[0]["task"] == "TEXT"


def on_host(array):
    return array.get() if hasattr(array, "get") else array


def test_what_the_kernel_can_t_do_goes_the_other_way(device):
    pop, data = ek.parse(["x1"]), X.astype(np.float32)
    engine = Engine(pop, data, precision=precision("ieee"), dtype=data.dtype, device=device)
    ek.operator("without_text", numpy=np.sinc)
    assert engine.prepare_text(*tokens_of("without_text(f) + y")) is None
    many = np.ones((10**5, N))  # numbers of a point, far more than a block's memory holds
    wide = engine.prepare_text(tokens_of("f + y")[0], many, False)
    assert engine.sums(np.empty((1, 1, 0), np.float32), wide) is None


@pytest.mark.parametrize("text", ["y / f + abs(f - y)^1.3", "sqrt(f) * y", "(y - f)^1.5"])
def test_points_do_not_change_their_neighbours_sums(device, text):
    """Of points beside one that is no usual operand: 0, inf, nan, the smallest numbers."""
    edge = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 1e-39, -1.0, 3e38, 1e-30]
    dtype, n = np.dtype(np.float32), 4 * len(edge)
    f, y = np.ones(n), RANDOM.uniform(2, 3, n)
    f[::4] = edge
    engine = Engine(ek.parse(["x1"]), f[:, None].astype(dtype), precision=precision("ieee"), dtype=dtype, device=device)
    loss = loss_text.parse_loss(text)

    def total(which):
        fused = loss_text.fused(loss, inputs.LossPoints(y, which.astype(float), {}))
        return on_host(engine.sums(np.empty((1, 1, 0), dtype), engine.prepare_text(*fused)))[0, 0]

    alone = total(np.arange(n) % 4 > 0)
    for k in range(0, n, 4):
        which = np.arange(n) % 4 > 0
        which[k] = True
        point = ek.Evaluator(ek.parse("x1"), f[k : k + 1, None], "numpy", dtype="float64")
        own = point.loss(None, y[k : k + 1], text, count_nonfinite=True)[0][0]
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(total(which), alone + dtype.type(own), rtol=1e-5, err_msg=str(f[k]))


def test_long_code_stands_in_a_kernel_once():
    assert "AT_ONCE = VECTORS" in loss_code.function(tokens_of("huber(f - y, 1)")[0], "ieee")
    assert "AT_ONCE = VECTORS" in loss_code.function(tokens_of("logcosh(f - y) + sqrt(f)")[0], "ieee")
    assert "AT_ONCE = 1" in loss_code.function(tokens_of("log(f - y)")[0], "ieee")
    assert "AT_ONCE = VECTORS" in loss_code.function(tokens_of("logcosh(f - y)")[0], "fast")


def test_a_kernel_of_a_loss_compiles_without_spills():
    pytest.importorskip("cuda.core")
    tokens, columns, counted = tokens_of("((sqrt(abs(f)) - y) / s)^2 / 2")
    text = opcodes.source("fast", loss_code.function(tokens, "fast"))
    chosen = {"TASK": "TEXT", "TARGETS": len(columns), "WEIGHTED": int(counted), "VECTORS": 8}
    report = report_of("sm_90", precision("fast"), text, **chosen)
    assert "Used" in report and "0 bytes spill stores" in report and not re.search(r"[1-9]\d* bytes spill", report)


# ── operators with CUDA text ──


def test_opcodes_stay_when_operators_come_in():
    before = opcodes.numbers().copy()
    ek.operator("comes_later", numpy=np.sinc, cuda="a / 2")
    after = opcodes.numbers()
    new = defined.functions()[-1].code
    assert (before[new] == -1).all() and after[new].max() == after.max()
    np.testing.assert_array_equal(np.delete(before, new, axis=0), np.delete(after, new, axis=0))


def test_text_that_does_not_compile_stays_out_of_every_kernel(monkeypatch):
    pytest.importorskip("cuda.core")
    from exprkit.errors import BackendError
    from exprkit.evaluate import options

    gpu = options.load("cpu")._replace(takes_settings=True)
    monkeypatch.setattr(options, "load", lambda name: gpu)
    ek.operator("broken", numpy=np.sinc, cuda="sin(a) / unheard_of(a)")
    ek.operator("on_broken", numpy=np.sinc, cuda="a", derivative="broken(a)")
    text = opcodes.source("ieee")
    assert "user_broken" not in text and "INLINE T user_on_broken(T a) { return a; }" in text
    said = r"no operator 'broken': of its CUDA text NVRTC says: identifier \"unheard_of\" is undefined"
    with pytest.raises(BackendError, match=said):
        options.check_runs(ek.parse("broken(x1)"), "cuda", gpu)
    options.check_runs(ek.parse("on_broken(x1)"), "cuda", gpu)
    with pytest.raises(BackendError, match=said):
        options.check_slopes(ek.parse("on_broken(x1)"), "cuda")


# ── a loss asked for again ──


@pytest.mark.slow
def test_data_changed_in_place_is_noticed():
    ev, y, w, s = ek.Evaluator(ek.parse("x1"), X, "cpu", dtype="float64"), Y.copy(), W.copy(), S.copy()
    for array in (None, y, w, s):
        if array is not None:
            array *= 2
        found = ev.loss(None, y, "logcosh((f - y) / s) * w", w, columns={"s": s})
        assert found == pytest.approx(w @ np.log(np.cosh((X[:, 0] - y) / s)))
    assert ev.loss(None, list(y), "logcosh((f - y) / s) * w", w, columns={"s": s}) == found
