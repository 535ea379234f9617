"""The transpiler's modules, run as they are written on a machine for PTX: no GPU needed, but NVRTC.

The whole engine runs: its modules' text on ``ptx_machine``, so that a wrong but valid instruction,
operand, address or barrier shows here; the small kernels of support.cu before and after, which
``test_interpreter_logic`` tests, are a few lines of NumPy.
"""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest
from fit_checks import data
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx_machine import Machine, Memory, PtxError, as_text

import exprkit as ek
from exprkit.backends.precision import Precision
from exprkit.backends.reference import engine as definition
from exprkit.backends.transpiler import assembler
from exprkit.backends.transpiler import engine as transpiler
from exprkit.backends.transpiler.templates import CHUNK
from exprkit.errors import BackendError
from exprkit.evaluate import inputs, loss_text
from exprkit.expressions import generate
from exprkit.operators import ops
from exprkit.runtime import calls
from exprkit.study.agreement import disagreement
from exprkit.study.thesis.baseline import Baseline

F4, F8 = np.dtype("float32"), np.dtype("float64")
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")


OF_PAIRS = {row.rewrite.split[1] for row in ops.OPERATORS if row.rewrite.split}


pytestmark = pytest.mark.usefixtures("ptx_compiler")


class PtxKernel:
    registers = local_bytes = launches = 0

    def __init__(self, machine, name):
        self.machine, self.name = machine, name

    def resident(self, threads, shared):
        return 2

    def prepare(self, blocks, threads, shared, given):
        assert blocks[1] == 1
        argument = np.frombuffer(bytes(given), np.uint64)
        return lambda: self.machine.launch(self.name, blocks[0], threads, argument, shared=shared)

    def call(self, blocks, threads, shared, given, stream=0):
        start = self.prepare(blocks, threads, shared, given)

        @ctypes.CFUNCTYPE(ctypes.c_int)
        def launch():
            PtxKernel.launches += 1
            start()
            return 0

        return calls.DriverCall(ctypes.cast(launch, ctypes.c_void_p).value, (), keep=launch)


def scalar(code, precision, a, a_low=0.0, b=0.0):
    """An operator's result, high and low part, in the type of ``a``."""
    row, wide = ops.BY_CODE[code], np.longdouble
    if row.code == ops.PAIR_OF:
        return a, b
    with np.errstate(all="ignore"):
        if row.width > 1:
            exact = np.log2(np.abs(wide(a)))
            high = exact.astype(a.dtype)
            return high, np.where(np.isfinite(exact), exact - high, 0).astype(a.dtype)
        if row.packed:
            y = row.numpy((np.float64(a), np.float64(a_low)), np.float64(b))
            return y.astype(a.dtype), a * 0
        if row.name in OF_PAIRS:
            y = np.exp2((wide(a) + wide(a_low)) * wide(b))
            return np.where((a == 0) | (b == 0), 1, y).astype(a.dtype), a * 0
        meaning = (row.numpy_fast if precision == "fast" else None) or row.numpy
        y = np.asarray(meaning(*(np.float64(x) for x in (a, b)[: row.arity])))
        return y.astype(a.dtype), y.astype(a.dtype) * 0


class SmallKernel:
    """A kernel of support.cu that comes before or after the modules."""

    def __init__(self, name, precision, dtype):
        self.run, self.precision, self.dtype = getattr(self, name), precision, dtype

    def prepare(self, blocks, threads, shared, args, overlaps=False):
        return lambda: self.run(args)

    def at(self, address, dtype, *shape):
        """The array at an address."""
        dtype = np.dtype(dtype)
        n_bytes = int(np.prod(shape)) * dtype.itemsize
        return np.frombuffer((ctypes.c_uint8 * n_bytes).from_address(address), dtype).reshape(shape)

    def make_columns(self, args):
        last = (args.n_points - 1) * args.stride_point
        points = np.minimum(np.arange(args.pitch), args.n_points - 1) * args.stride_point
        if args.n_points == 0 or args.n_columns == 0:
            return
        columns = self.at(args.columns, self.dtype, args.n_columns, args.pitch)
        addresses = args.column_code, args.column_var, args.column_low
        codes, variables, low = (self.at(address, np.int32, args.n_columns) for address in addresses)
        source = self.at(args.data, self.dtype, last + int(variables.max()) * args.stride_variable + 1)
        for c in range(args.n_columns):
            x = source[points + variables[c] * args.stride_variable]
            columns[c] = scalar(int(codes[c]), self.precision, x)[int(low[c])]

    def make_immediates(self, args):
        first_step = self.at(args.first_step, np.int32, args.n_exprs + 1)
        steps = self.at(args.steps, np.int32, max(int(first_step[-1]), 1), 4)
        first_instruction = [*self.at(args.first_instruction, np.int32, args.n_exprs), args.n_instructions]
        sources = self.at(args.sources, np.int32, max(args.n_instructions, 1))
        immediates = self.at(args.immediates, self.dtype, args.n_sets, max(args.n_instructions, 1), 2)
        zero = self.dtype.type(0)

        def find(source, e, k, results):
            index, kind = source >> 2, source & 3
            if kind == 1:
                return self.at(args.params, self.dtype, args.n_sets, args.n_exprs, args.max_params)[k, e, index], zero
            if kind == 2:
                return self.at(args.constants, self.dtype, index + 1)[index], zero
            return (results[index], results[index + 1]) if kind == 3 else (zero, zero)

        for k in range(args.n_sets):
            for e in range(args.n_exprs):
                results = self.at(args.results, self.dtype, args.n_sets, args.n_results)[k]
                for code, a, b, result in steps[first_step[e] : first_step[e + 1]]:
                    (high, low), (other, _) = find(a, e, k, results), find(b, e, k, results)
                    y = scalar(int(code), self.precision, high, low, other)
                    results[result >> 1 : (result >> 1) + 1 + (result & 1)] = y[: 1 + (result & 1)]
                for w in range(first_instruction[e], first_instruction[e + 1]):
                    if sources[w]:
                        immediates[k, w] = find(int(sources[w]), e, k, results)

    def add_segments(self, args):
        sums = self.at(args.sums, np.float64, args.n_items)
        added = self.at(args.partials, np.float64, args.n_items, args.n_segments).sum(axis=1)
        sums[...] = sums + added if args.add_to_sums else added

    def round_results(self, args):
        with np.errstate(over="ignore"):
            self.at(args.rounded, np.float16, args.n_items)[...] = self.at(args.out, self.dtype, args.n_items)


class PtxCard:
    """What ``exprkit.backends.gpu.device.CudaDevice`` is, in NumPy; its machine code is PTX text."""

    xp, lanes, architecture, multiprocessors = np, 32, "sm_90", 3
    shared_per_block = shared_per_multiprocessor = 1 << 16
    out_of_memory, free, current_stream = MemoryError, 1 << 30, int

    def free_bytes(self):
        return self.free

    def __init__(self, change=None):
        self.memory, self.change, self.texts = Memory(), change, []

    def kernel(self, name, settings, text=None, **chosen):
        return SmallKernel(name, settings.operators, F8 if chosen["REAL"] == "double" else F4)

    def pointer(self, array):
        return self.memory.adopt(array)

    def sent(self, arrays):
        return [np.asarray(array) for array in arrays]

    def sequence(self, some, table=None):
        return calls.Sequence(some, table=table)

    def side_stream(self, k):
        return k

    def side_by_side(self, rows):
        return calls.Sequence([])

    def load(self, code, names):
        text = code.decode()
        self.texts.append(text)
        machine = Machine(self.change(text) if self.change else text, self.memory)
        return [PtxKernel(machine, name) for name in names]


def engine(pop, X, precision="ieee", change=None, **options):
    """The backend's engine on a card that is not there."""
    card, options = PtxCard(change), {"block_size": 32, **options}
    return transpiler.Engine(pop, X, precision=precision, dtype=X.dtype, device=card, compiler=as_text, **options)


def parameters(pop, n_sets, dtype, seed=2):
    return np.random.default_rng(seed).uniform(-2, 2, (n_sets, len(pop), pop.max_params)).astype(dtype)


def values(made, pop, X, params):
    out = beginning_at(0, (len(params), len(pop), len(X)), X.dtype)
    made.evaluate(params, out)
    return out


def beginning_at(place, shape, dtype):
    """Results that begin so many bytes behind a line of 512: which threads write which of them depends on that."""
    n = int(np.prod(shape)) * dtype.itemsize
    memory = np.empty(n + 1024, np.uint8)
    begin = -memory.ctypes.data % 512 + place
    out = memory[begin : begin + n].view(dtype).reshape(shape)
    out[:] = 7
    return out


def assert_agrees(pop, X, params, out, precision="ieee"):
    for one_set, found in zip(params, out, strict=True):
        share = disagreement(pop, X, one_set, found, dtype=X.dtype, precision=precision)
        assert not share.any(), f"{pop[int(np.argmax(share))]} is off at {share.max():.0%} of the points"


@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
@pytest.mark.parametrize("precision", ["ieee", "fast"])
def test_every_operator_with_every_kind_of_operand(dtype, precision):
    leaves, texts = ("x1", "p1", "x1 + x2", "0.75"), []
    for row in ops.OPERATORS:
        if row.arity == 1:
            texts += [f"{row.name}({a})" for a in leaves] + [f"x2 - {row.name}(x1 * x2)"]
        else:
            texts += [f"{row.name}({a}, {b})" for a in leaves for b in ("x2", "p1", "x1 * x2", "1.5")]
    pop, random = ek.parse(texts), np.random.default_rng(3)
    X = random.uniform(0.1, 0.9, (20, 2)).astype(dtype)
    params = random.uniform(0.1, 0.9, (1, len(pop), 1)).astype(dtype)
    assert_agrees(pop, X, params, values(engine(pop, X, precision), pop, X, params), precision)


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "dtype"), [("ieee", F4), ("ieee", F8), ("fast", F4)], ids=str)
def test_random_populations(dtype, precision):
    @given(
        seed=st.integers(0, 10**6), n_vars=st.integers(1, 5), n_params=st.integers(0, 3), n_points=st.integers(1, 140),
        points=st.sampled_from([1, 2, 4]), n_sets=st.integers(1, 2), share_code=st.booleans(),
        bundle=st.sampled_from([1, None]), block=st.sampled_from([32, 96]),
    )  # fmt: skip
    @settings(max_examples=3)
    def check(seed, n_vars, n_params, n_points, points, n_sets, share_code, bundle, block):
        if points * dtype.itemsize > 16:
            points = 2
        pop = generate.random(12, n_tokens=(1, 25), n_vars=n_vars, n_params=n_params, operators="gp", seed=seed)
        X, params = data(n_points, n_vars, dtype, seed), parameters(pop, n_sets, dtype, seed)
        made = engine(
            pop, X, precision, points_per_thread=points, share_code=share_code, structures_per_bundle=bundle,
            block_size=block,
        )  # fmt: skip
        out = values(made, pop, X, params)
        assert_agrees(pop, X, params, out, precision)
        y, weights = X[:, 0].copy(), np.random.default_rng(seed).integers(0, 3, n_points).astype(dtype)
        with np.errstate(all="ignore"):
            errors = out.astype(np.float64) - y
        for kind, size in (("square", errors**2), ("absolute", np.abs(errors)), ("sum", errors)):
            for w in (None, weights):
                found = made.loss_sums(params, y, w, kind)
                with np.errstate(all="ignore"):
                    wanted = (size if w is None else np.where(w > 0, size * w, 0)).sum(-1)
                rtol = 1e-4 if dtype == F4 else 1e-12
                with np.errstate(all="ignore"):
                    off = rtol * np.abs(size * (1 if w is None else w)).sum(-1) if kind == "sum" else 0  # it may cancel
                close = np.isclose(found, wanted, rtol=rtol, atol=0, equal_nan=True) | (np.abs(found - wanted) <= off)
                # what overflows in float32 may be finite in float64, and inf and nan may take each other's place
                assert (close | (np.abs(wanted) > 1e37) | ~np.isfinite(wanted) | (off > 1e30)).all()

    check()


@pytest.fixture(scope="module")
def mixed(functions):
    """A function of three operands, and a formula that repeats its operand."""
    cuda = "T y = a * (T(1) - c); return y + b * c * c;"
    ek.operator("mixed", numpy=lambda a, b, c: a * (1 - c) + b * c * c, cuda=cuda)
    ek.operator("square_plus(a) = a * a + 1")


@pytest.mark.parametrize(("precision", "dtype"), [("ieee", F4), ("fast", F8)], ids=str)
def test_functions_of_three_operands(precision, dtype, mixed):
    leaves = "x1", "p1", "0.75", "x1 * x2 + p1"
    texts = [f"mixed({a}, {b}, {c})" for a in leaves for b in leaves for c in leaves][::3]
    texts += ["mixed(mixed(x1, p1, x2), mixed(x2, x1, p1), mixed(1, p1, mixed(x1, x1, 2))) - mixed(x1, p1, x2)"]
    shared = ["square_plus(mixed(x1 + x2, x1, square_plus(x2 * p1))) / mixed(p1, 2, x1)", "mixed(p1, 1, x2)"]
    X = data(35, 2, dtype)
    y, few = X[:, 0].copy(), 1e-5 if dtype == F4 else 1e-13
    for some, options in ((texts, {}), (texts, {"structures_per_bundle": 1, "share_code": True}), (shared, {})):
        pop = ek.parse(some).expanded()
        params, made = parameters(pop, 1, dtype), engine(pop, X, precision, points_per_thread=2, **options)
        exact = ek.Evaluator(pop, X, "numpy", dtype="float64").evaluate(params[0])
        size = np.abs(exact).max(axis=-1, keepdims=True)
        assert (np.abs(values(made, pop, X, params)[0] - exact) <= few * size).all()
        wanted = ((exact - y) ** 2).sum(axis=-1)
        np.testing.assert_allclose(made.loss_sums(params, y, None, "square")[0], wanted, rtol=1e-4)
    points = inputs.LossPoints(y.astype(F8), None, {})
    asked = loss_text.fused(loss_text.parse_loss("mixed(f, y, 0.5)^2"), points)
    found = made.sums(params, made.prepare_text(*asked))[0]
    np.testing.assert_allclose(found, ((exact / 2 + y / 4) ** 2).sum(axis=-1), rtol=1e-4)


# ── losses that are texts ──

OWN_LOSSES = [
    "huber(f - y, s) * w", "logcosh(f - y) + pinball(y - f, 0.9)", "((sqrt(abs(f)) - y) / s)^2 / 2", "(f - y)^4 - f^y",
    "lessequal(abs(f - y), 0.5)", "f * 2 + 1", "min(abs(f - y), inf) + sin(1e5 * f)",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
@pytest.mark.parametrize(("points", "n_points", "spans"), [(1, 33, 128), (2, 601, 1)])
def test_losses_that_are_texts_are_the_definition_s(dtype, points, n_points, spans, monkeypatch):
    """Of full vectors and the last one, which is not; an expression that is nan where nothing counts is none."""
    monkeypatch.setattr(transpiler, "SPAN_TILES", spans)
    pop = ek.parse(["p1 * x1 + x2", "log(x2 - 0.2) * p1", "3", "x1 +", "x1 * x2 - sin(p1)"], errors="mask")
    X, params = data(n_points, 2, dtype), parameters(pop, 2, dtype)
    y, s, w = (np.random.default_rng(k).uniform(0.5, 2, n_points) for k in range(3))
    w[::7] = 0
    X[::7, 1], X[1::7, 1] = 0.1, 0.5
    made = engine(pop, X, points_per_thread=points, structures_per_module=2)
    for text in OWN_LOSSES if n_points < 600 else OWN_LOSSES[:1]:
        loss = loss_text.parse_loss(text, ("s",))
        for weights in (None, w):
            definition = ek.Evaluator(pop, X, "numpy", dtype="float64")
            wanted = definition.loss(params, y, text, weights, columns={"s": s})
            asked = loss_text.fused(loss, inputs.LossPoints(y, weights, {"s": s}))
            found = made.sums(params, made.prepare_text(*asked))
            rtol = (3e-2 if "1e5" in text else 1e-4) if dtype == F4 else 1e-9
            np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol, err_msg=f"{text}, {weights is not None}")
    assert len({kind.loss for _, kind in made._codes}) == 1  # code of the others has been let go


def test_a_loss_without_ptx_goes_the_other_way():
    ek.operator("no_ptx", numpy=np.sinc)
    X = data(5, 1, F4)
    tokens = loss_text.parse_loss("no_ptx(f) + y")
    points = inputs.LossPoints(X[:, 0].astype(F8), None, {})
    asked = loss_text.fused(tokens, points)
    assert engine(ek.parse(["x1"]), X).prepare_text(*asked) is None


def test_shared_parts_change_no_bits():
    ek.operator("echo(a, b) = exp(-a * a) + sin(a) * a / (b - a * b)")
    pop = ek.parse(["echo(x1 + x2, p1)", "echo(x1 * p1, x2 - 3)", "echo(echo(x1 - x2, p1 + x1), x2)", "x1"]).expanded()
    X, params = data(70, 2, F4), parameters(pop, 2, F4)
    assert pop.shares
    out = [values(engine(one, X), one, X, params) for one in (pop, ek.Population(pop.kinds, pop.values, pop.offsets))]
    assert np.array_equal(*out, equal_nan=True)
    assert_agrees(pop, X, params, out[0])


@pytest.mark.slow
def test_bits_do_not_depend_on_how_the_work_is_shared_out():
    pop = generate.random(20, n_tokens=(1, 20), n_vars=3, n_params=2, operators="gp", seed=5)
    X = data(70, 3, F4)
    params = parameters(pop, 2, F4)
    seen, sums = set(), []
    for options in (
        {}, {"points_per_thread": 4}, {"points_per_thread": 2, "structures_per_module": 7},
        {"structures_per_bundle": 1}, {"block_size": 64}, {"share_code": True},
        {"share_code": True, "structures_per_bundle": 1, "points_per_thread": 4, "block_size": 64},
    ):  # fmt: skip
        made = engine(pop, X, **options)
        seen.add(values(made, pop, X, params).tobytes())
        sums.append(made.loss_sums(params, X[:, 0].copy(), None, "square"))
    assert len(seen) == 1
    assert all(np.allclose(one, sums[0], rtol=1e-5, equal_nan=True) for one in sums)


def test_many_points_take_several_tiles_and_turns():
    pop = ek.parse(["x1 * p1 + x2", "sqrt(x1)", "x2"])
    X, params = data(2_000, 2, F4), parameters(ek.parse(["p1"] * 3), 1, F4)
    made = engine(pop, X, points_per_thread=2)
    assert_agrees(pop, X, params, values(made, pop, X, params))
    wanted = np.empty((1, 3, 2_000), F4)
    definition.Engine(pop, X, precision="ieee", dtype=F4).evaluate(params, wanted)
    errors = wanted.astype(np.float64) - X[:, 1]
    assert made.loss_sums(params, X[:, 1].copy(), None, "square") == pytest.approx((errors**2).sum(-1), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
@pytest.mark.parametrize("n_points, points, block", [(290, 1, 32), (130, 2, 96), (601, 2, 128)])
def test_rows_begin_anywhere_in_memory(dtype, n_points, points, block, monkeypatch):
    """Blocks take several rows of a structure, which begin where 512 bytes of memory do, wherever the rows lie."""
    monkeypatch.setattr(transpiler, "BUSY_BLOCKS", 1)
    pop = ek.parse(["x1*x2 + p1*exp(x3)", "x3*x1 + p1*exp(x2)", "x1 + p1", "x2 - 3 * x4 / x1"] * 5)
    X, params = data(n_points, 4, dtype), parameters(pop, 2, dtype)
    wanted = None
    for share_code in (False, True):
        made = engine(
            pop, X, points_per_thread=points, block_size=block, structures_per_bundle=1, share_code=share_code
        )
        for first in range(3):
            memory = np.full(2 * len(pop) * n_points + 300, 7, dtype)
            out = memory[128 + first :][: 2 * len(pop) * n_points].reshape(2, len(pop), n_points)
            made.evaluate(params, out)
            assert (memory[: 128 + first] == 7).all() and (memory[128 + first + out.size :] == 7).all()
            wanted = out.copy() if wanted is None else wanted
            assert (out.view(f"u{dtype.itemsize}") == wanted.view(f"u{dtype.itemsize}")).all()
        assert all(kind.by_row for _, kind in made._codes)
        assert max(int(ready._table[:, 0].max()) & 255 for ready in made._ready.values()) > 1
    assert_agrees(pop, X, params, wanted)


# ── the test itself must be able to fail ─────────────────────────────────────────────

MUTATIONS = [
    (r"\badd\.rn", "sub.rn"), (r"\bsub\.rn", "add.rn"), (r"\bmul\.rn", "add.rn"),
    (r"(sub\.rn\S* \S+) (\S+), (\S+);", r"\1 \3, \2;"),
    (r"mul\.wide\.u32 (\S+) (\S+), (\d+)", r"mul.wide.u32 \1 \2, 1"),
    (r"mad\.wide\.u32 (\S+) (\S+), (\d+)", r"mad.wide.u32 \1 \2, 1"),
    (r"\+4\]", "+8]"), (r"\+8\]", "]"), (r"bfly\.b32 (\S+) (\S+) 8,", r"bfly.b32 \1 \2 4,"), (r"bar\.sync 0;", ""),
    (r"setp\.lt", "setp.ge"), (r"setp\.ge", "setp.lt"), (r"shr\.u32", "shl.b32"), (r"and\.b32", "or.b32"),
    (r", 31;", ", 15;"),
]  # fmt: skip


def changed(text, place, pattern, other):
    """The text with the match number ``place`` of a pattern replaced."""
    found = list(re.finditer(pattern, text))
    if place >= len(found):
        return text
    return text[: found[place].start()] + found[place].expand(other) + text[found[place].end() :]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"structures_per_bundle": 1, "share_code": True}], ids=["plain", "by row"])
def test_a_changed_instruction_of_a_module_is_noticed(options):
    pop = ek.parse(["x1 * p1 - x2 / 3", "x1 - p1 * (x2 + x1)", "sqrt(x1 * x2) + 0.5", "x2 - x1", "x3 * x3 + 1"])
    X = data(150, 3, F4)
    params, y = parameters(pop, 2, F4), X[:, 0].copy()

    def results(change=None):
        made = engine(pop, X, points_per_thread=2, block_size=64, change=change, **options)
        return values(made, pop, X, params).tobytes(), made.loss_sums(params, y, None, "square").tobytes(), made

    *wanted, made = results()
    random, tried, missed = np.random.default_rng(2), 0, []
    for pattern, other in MUTATIONS:
        places = max(len(re.findall(pattern, text)) for text in made.device.texts)
        for place in random.choice(places, min(places, 3), replace=False) if places else ():
            tried += 1
            try:
                found = results(lambda text, at=place, was=pattern, new=other: changed(text, at, was, new))[:2]
            except PtxError:
                continue
            if list(found) == wanted:
                missed.append(f"{pattern} {place}")
    assert tried > 20
    assert len(missed) <= 3, missed  # e.g. a barrier where nobody was late


# ── assembled ────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["ieee", "fast"])
def test_modules_assemble_everywhere(precision):
    try:
        assembler.version()
    except BackendError as error:
        pytest.skip(str(error))
    pop = generate.random(10, n_tokens=(1, 15), operators="thesis", n_vars=3, n_params=2, seed=1)
    for dtype in (F4, F8):
        X = data(40, 3, dtype)
        params, texts = parameters(pop, 1, dtype), []
        for options in {}, {"share_code": True, "structures_per_bundle": 1}:
            made = engine(pop, X, precision, points_per_thread=16 // dtype.itemsize, **options)
            values(made, pop, X, params)
            made.loss_sums(params, X[:, 0].copy(), None, "square")
            points = inputs.LossPoints(X[:, 0].astype(F8), None, {})
            own = made.prepare_text(*loss_text.fused(loss_text.parse_loss("logcosh(f - y)"), points))
            made.sums(params, own)
            texts += made.device.texts
        for architecture in ARCHITECTURES:
            chosen = Precision(precision)
            for linked in assembler.compile_modules(texts, architecture, chosen, workers=2):
                for used in assembler.usage(linked.report).values():
                    assert used.registers <= 168 and used.spill_stores == 0
        for linked in assembler.compile_modules(texts, "sm_90", Precision(precision, optimisation=0)):
            assert assembler.usage(linked.report)


@pytest.mark.parametrize("free", [1 << 30, 24 * CHUNK * 4])
def test_results_of_16_bits_come_by_parts(free):
    pop, X = ek.parse(["p1 * x1", "x1 * x2 + p1", "1e5 * x2"]), data(2 * CHUNK + 70, 2, F4)
    params = parameters(pop, 3, F4)
    made = engine(pop, X)
    made.device.free = free
    with np.errstate(over="ignore"):
        wanted = values(made, pop, X, params).astype(np.float16)
    out = np.empty((3, 3, len(X)), np.float16)
    made.evaluate(params, out)
    np.testing.assert_array_equal(out, wanted)
    assert np.isinf(wanted).any() and np.isfinite(wanted).any()


def test_how_code_is_laid_out_is_explained():
    pop = ek.parse(["p1 * x1", "x1 * p1", "x2 + p1", "sqrt(x1) * " * 12 + "x2"] * 2)
    few, more = (engine(pop, data(n, 2, F4), block_size=None).decisions() for n in (70, 2000))
    assert few[1] == "values: 1 bundle in 1 module, 1 point a thread, 128 threads a block"
    assert few[2:5] == ["    yes  N = 70 <= 1,999", "    yes  g = 2 <= 3", "    yes  d = 0 <= 0"]
    assert more.count("    no   i = 12 > 8, so more threads a block") == 2 == more.count("    yes  i = 1 <= 8")
    assert "as asked" in "".join(engine(pop, data(70, 2, F4)).decisions())


@pytest.mark.lab
@pytest.mark.parametrize(("every_step", "emitted"), [("", 4), ("all", 8), ("transpile", 8), ("compile", 8)])
def test_a_kernel_and_a_launch_per_expression(every_step, emitted):
    pop, X = ek.parse(["x1 + p1", "x2 * p1", "x1 - p1 * x2", "x1 + p2", "abs(x1)"]), data(70, 2, F4)
    card, params = PtxCard(), parameters(pop, 2, F4)
    chosen = {"precision": "ieee", "dtype": "float32", "block_size": 32, "streams": 3, "every_step": every_step}
    made = Baseline(pop, X, "ptx", device=card, compiler=as_text, **chosen)
    out, before = np.empty((5, 70), F4), PtxKernel.launches
    for one_set in params:
        assert made.evaluate(one_set, out) is out
        assert_agrees(pop, X, params=[one_set], out=[out])
    assert PtxKernel.launches - before == 2 * 5
    assert len(card.texts) == emitted and all(text.count(".visible .entry") == 1 for text in card.texts)
