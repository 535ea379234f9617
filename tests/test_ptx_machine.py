"""The machine that the tests run PTX on: it is right about instructions, and refuses what it does not know."""

from __future__ import annotations

import doctest
import math

import numpy as np
import ptx_machine
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptx_machine import Machine, PtxError, fma, operator_kernels

from exprkit.backends.gpu import device
from exprkit.backends.precision import Precision
from exprkit.backends.transpiler import assembler, operator_ptx
from exprkit.errors import BackendError
from exprkit.operators import ops

HEAD = ".version 6.4\n.target sm_75\n.address_size 64\n"
F4, F8, U4, U8, I4 = (np.dtype(x) for x in ("f4", "f8", "u4", "u8", "i4"))


def kernel(body, in_type="f32", out_type=None):
    """A kernel that makes %y of %a, %b and %c, which lie side by side."""
    out_type = out_type or in_type
    size, step = int(in_type[1:]) // 8, int(out_type[1:]) // 8
    loads = "".join(f"ld.global.{in_type} %{x}, [%at+{k * size}];\n" for k, x in enumerate("abc"))
    return (
        HEAD + ".entry k(.param .u64 in, .param .u64 out)\n{\n"
        f".reg .b64 %at, %to; .reg .b32 %t, %u; .reg .pred %p, %q; .reg .{in_type} %a, %b, %c; .reg .{out_type} %y;\n"
        f"ld.param.u64 %at, [in]; ld.param.u64 %to, [out]; mov.u32 %t, %tid.x;\n"
        f"mad.wide.u32 %at, %t, {3 * size}, %at; mad.wide.u32 %to, %t, {step}, %to;\n"
        f"{loads}{body}\nst.global.{out_type} [%to], %y;\nret;\n}}\n"
    )


def run(body, operands, in_type="f32", out_type=None):
    """The kernel's results for rows of (a, b, c)."""
    types = {"f32": F4, "f64": F8, "u32": U4, "b32": U4, "s32": I4, "u64": U8, "b64": U8, "s64": np.dtype("i8")}
    rows = np.array([(*row, 0, 0)[:3] for row in operands], types[in_type])
    machine = Machine(kernel(body, in_type, out_type))
    given, made = machine.put(rows), machine.put(np.zeros(len(rows), types[out_type or in_type]))
    machine.launch("k", 1, len(rows), given, made)
    return machine.get(made, types[out_type or in_type], len(rows)).tolist()


NAN, INF = math.nan, math.inf
TINY = float(np.float32(1e-40))


@pytest.mark.parametrize(
    "body, operands, wanted",
    [
        ("add.rn.f32 %y, %a, %b;", [(1, 2**-24), (1, 3 * 2**-25)], [1, 1 + 2**-23]),
        ("add.rz.f32 %y, %a, %b;", [(1, 3 * 2**-25), (-1, -(2**-24))], [1, -1]),
        ("sub.rn.ftz.f32 %y, %a, %b;", [(TINY, 0), (3, 1)], [0, 2]),
        ("fma.rm.f32 %y, %a, %b, %c;", [(1, 1, 2**-30), (1, 1, -(2**-30))], [1, 1 - 2**-24]),
        ("fma.rn.f32 %y, %a, %b, %c;", [(1 + 2**-12, 1 + 2**-12, -1)], [2**-11 + 2**-24]),
        ("min.f32 %y, %a, %b;", [(NAN, 1), (0.0, -0.0), (2, 1)], [1, -0.0, 1]),
        ("max.f32 %y, %a, %b;", [(1, NAN), (-0.0, 0.0)], [1, 0.0]),
        ("copysign.f32 %y, %a, %b;", [(-1, 3), (1, -3)], [-3, 3]),
        ("abs.f32 %y, %a;", [(-2,), (-INF,)], [2, INF]),
        ("div.approx.f32 %y, %a, %b;", [(1, 2), (1, 2.0**127)], [0.5, 0]),
        ("div.full.f32 %y, %a, %b;", [(1, 2.0**127)], [2.0**-127]),
        ("rcp.approx.ftz.f32 %y, %a;", [(2.0**-128,), (4,)], [INF, 0.25]),
        ("ex2.approx.f32 %y, %a;", [(3,), (-INF,)], [8, 0]),
        ("cvt.rni.f32.f32 %y, %a;", [(2.5,), (-0.2,)], [2, -0.0]),
        ("cvt.rmi.f32.f32 %y, %a;", [(-2.5,)], [-3]),
        ("cvt.rpi.f32.f32 %y, %a;", [(2.1,)], [3]),
        ("cvt.sat.f32.f32 %y, %a;", [(NAN,), (2,), (-1,)], [0, 1, 0]),
        ("setp.lt.f32 %p, %a, %b; selp.f32 %y, %a, %b, %p;", [(1, 2), (NAN, 2)], [1, 2]),
        ("setp.geu.f32 %p, %a, %b; selp.f32 %y, %a, %b, %p;", [(1, 2), (NAN, 2)], [2, NAN]),
        ("setp.gt.f32 %p, %a, %b; setp.lt.and.f32 %q, %a, 0f40400000, %p; selp.f32 %y, %a, %b, %q;", [(2, 1), (4, 1)],
         [2, 1]),
        ("mov.b32 %t, %a; xor.b32 %t, %t, 0x80000000; mov.b32 %y, %t;", [(1,)], [-1]),
        ("setp.gt.f32 %p, %a, 0f00000000; mov.f32 %y, %b; @!%p mov.f32 %y, %c;", [(1, 2, 3), (-1, 2, 3)], [2, 3]),
        ("mov.f32 %y, %a; again: add.rn.f32 %y, %y, %y; setp.lt.f32 %p, %y, %b; @%p bra again;", [(1, 5), (1, 1)],
         [8, 2]),
        ("bra end; mov.f32 %y, %a; end: mov.f32 %y, %b;", [(1, 2)], [2]),
        ("mov.u32 %t, 1; choice: .branchtargets one, two; brx.idx %t, choice; one: mov.f32 %y, %a; bra end; "
         "two: mov.f32 %y, %b; end: add.rn.f32 %y, %y, 0f00000000;", [(1, 2)], [2]),
    ],
)  # fmt: skip
def test_float32(body, operands, wanted):
    found = run(body, operands)
    assert np.array_equal(found, wanted, equal_nan=True) and list(np.signbit(found)) == list(np.signbit(wanted))


@pytest.mark.parametrize(
    "body, kind, out, operands, wanted",
    [
        ("fma.rn.f64 %y, %a, %b, %c;", "f64", "f64", [(1 + 2**-30, 1 + 2**-30, -1)], [2**-29 + 2**-60]),
        ("rcp.approx.ftz.f64 %y, %a;", "f64", "f64", [(4.0,)], [0.25]),
        ("cvt.rn.f32.f64 %y, %a;", "f64", "f32", [(1 + 2**-25,)], [1]),
        ("cvt.rzi.s32.f64 %y, %a;", "f64", "s32", [(-2.9,), (1e20,), (NAN,)], [-2, 2**31 - 1, -(2**31)]),
        ("cvt.rni.s32.f32 %y, %a;", "f32", "s32", [(2.5,), (-1e20,), (NAN,)], [2, -(2**31), 0]),
        ("cvt.rn.f32.s32 %y, %a;", "s32", "f32", [(2**24 + 1,)], [2**24]),
        ("mul.hi.u32 %y, %a, %b;", "u32", "u32", [(2**31, 6)], [3]),
        ("mul.lo.u32 %y, %a, %b;", "u32", "u32", [(2**31, 3)], [2**31]),
        ("mul.wide.s32 %y, %a, %b;", "s32", "s64", [(-3, 2**30)], [-3 * 2**30]),
        ("mad.lo.s32 %y, %a, %b, %c;", "s32", "s32", [(-3, 5, 1)], [-14]),
        ("add.cc.u32 %y, %a, %b; addc.u32 %y, %c, 0;", "u32", "u32", [(2**31, 2**31, 7), (1, 2, 7)], [8, 7]),
        ("sub.cc.u32 %y, %a, %b; subc.u32 %y, %c, 0;", "u32", "u32", [(1, 2, 7), (2, 1, 7)], [6, 7]),
        ("mad.lo.cc.u32 %y, %a, %b, %a; madc.hi.u32 %y, %a, %b, %c;", "u32", "u32", [(2**31, 3, 4)], [6]),
        ("shl.b32 %y, %a, %b;", "b32", "b32", [(3, 31), (3, 32)], [2**31, 0]),
        ("shr.s32 %y, %a, 40;", "s32", "s32", [(-5,)], [-1]),
        ("shr.u32 %y, %a, %b;", "u32", "u32", [(2**31, 31), (2**31, 99)], [1, 0]),
        ("shf.l.wrap.b32 %y, %a, %b, %c;", "b32", "b32", [(2**31, 1, 1), (0, 5, 32)], [3, 5]),
        ("bfi.b32 %y, %a, %b, 4, 8;", "b32", "b32", [(0xFFF, 0)], [0xFF0]),
        ("clz.b32 %y, %a;", "b32", "u32", [(1,), (0,)], [31, 32]),
        ("popc.b32 %y, %a;", "b32", "u32", [(0xF0F,)], [8]),
        ("lop3.b32 %y, %a, %b, %c, 0x96;", "b32", "b32", [(12, 10, 1)], [12 ^ 10 ^ 1]),
        ("mov.b64 {%t, %u}, %a; mov.b64 %y, {%u, %t};", "b64", "b64", [(1,)], [2**32]),
        ("setp.lt.s32 %p, %a, %b; selp.s32 %y, 1, 0, %p;", "s32", "s32", [(-1, 1)], [1]),
        ("setp.lo.u32 %p, %a, %b; selp.u32 %y, 1, 0, %p;", "u32", "u32", [(2**32 - 1, 1)], [0]),
        ("shfl.sync.bfly.b32 %y, %a, 1, 31, -1;", "b32", "b32", [(1,), (2,)], [2, 1]),
    ],
)
def test_other_types(body, kind, out, operands, wanted):
    assert run(body, operands, kind, out) == wanted


@pytest.mark.parametrize(
    "body, message",
    [
        ("foo.f32 %y, %a;", "unknown instruction: foo.f32"),
        ("add.rx.f32 %y, %a, %b;", "unknown modifier rx"),
        ("add.rn.f32 %y, %a, %z;", "unknown name %z"),
        ("add.rn.f32 %y, %a, %at;", "is not 32 bits wide"),
        ("add.rn.f32 %y, %y, %a;", "%y is read before it is written"),
        ("add.rn.f32 %p, %a, %a;", "a predicate and a number"),
        ("ld.global.f32 %y, [%at+2];", "not a multiple of 4"),
        ("ld.global.f32 %y, [%at+100000];", "outside of its memory"),
        ("bra nowhere;", "unknown label"),
        ("setp.lt.b32 %p, %t, %t;", "unknown comparison lt"),
        ("cvt.f32.s32 %y, %t;", "rounding missing"),
        ("mov.f32 %y, %a; again: bra again;", "does not end"),
        ("shfl.sync.down.b32 %u, %t, 1, 31, -1;", "a lane that takes no part"),
    ],
)
def test_what_no_kernel_may_do_is_an_error(body, message, monkeypatch):
    monkeypatch.setattr(ptx_machine, "MOST_STEPS", 1000)
    with pytest.raises(PtxError, match=message):
        run(body, [(1, 2), (1, 2), (3, 4)])


def test_threads_share_memory_and_wait_for_each_other():
    text = (
        HEAD
        + """.entry reverse(.param .u64 at) {
        .shared .align 4 .b8 place[256]; .reg .b64 %at; .reg .b32 %t, %n, %s, %o; .reg .f32 %x; .reg .pred %p;
        ld.param.u64 %at, [at]; mov.u32 %t, %tid.x; mov.u32 %n, %ntid.x; mad.wide.u32 %at, %t, 4, %at;
        ld.global.f32 %x, [%at]; mov.u32 %s, place; mad.lo.u32 %o, %t, 4, %s;
        setp.eq.u32 %p, %t, 0; @%p bra late; st.shared.f32 [%o], %x; bra.uni wait;
        late: add.rn.f32 %x, %x, %x; st.shared.f32 [%o], %x;
        wait: bar.sync 0; sub.u32 %n, %n, %t; sub.u32 %n, %n, 1; mad.lo.u32 %o, %n, 4, %s;
        ld.shared.f32 %x, [%o]; st.global.f32 [%at], %x; ret; }"""
    )
    machine = Machine(text)
    place = machine.put(np.arange(1, 41, dtype=np.float32))
    machine.launch("reverse", 1, 40, place)
    assert machine.get(place, np.float32, 40).tolist() == [*range(40, 1, -1), 2]


def test_additions_to_one_place_add_up():
    text = (
        HEAD
        + """.entry count(.param .u64 at) { .reg .b64 %at; .reg .f64 %x;
        ld.param.u64 %at, [at]; mov.f64 %x, 0d3FF0000000000000; red.global.add.f64 [%at], %x; ret; }"""
    )
    machine = Machine(text)
    place = machine.put(np.zeros(1))
    machine.launch("count", 3, 5, place)
    assert machine.get(place, np.float64, 1) == 15


@given(*[st.floats(width=32)] * 3)
def test_fma_rounds_once(a, b, c):
    with np.errstate(all="ignore"):
        found = float(fma(*(np.float32(x) for x in (a, b, c))))
    if all(map(math.isfinite, (a, b, c))):
        from fractions import Fraction

        exact = Fraction(a) * Fraction(b) + Fraction(c)
        neighbours = [np.nextafter(np.float32(found), np.float32(way)) for way in (-INF, INF)]
        if math.isfinite(found) and np.isfinite(neighbours).all():
            off = abs(Fraction(found) - exact)
            assert all(off <= abs(Fraction(float(x)) - exact) for x in neighbours)


def test_its_example_runs():
    assert doctest.testmod(ptx_machine).failed == 0


# ── on a GPU ─────────────────────────────────────────────────────────────────────────


@pytest.mark.gpu
@pytest.mark.parametrize("precision, dtype", [(p, d) for p in ("ieee", "fast") for d in ("float32", "float64")])
def test_a_gpu_computes_the_same(precision, dtype):
    import cupy
    from test_ptx_bodies import ALONE, approximate, inputs

    try:
        text = operator_kernels(operator_ptx.bodies(Precision(precision), dtype, 1 << 30))
    except BackendError as error:
        pytest.skip(str(error))
    machine, module = Machine(text), cupy.cuda.function.Module()
    (linked,) = assembler.compile_modules([text], device.current().architecture, Precision(precision))
    module.load(linked.cubin)
    exact, far = [], []
    for row in ALONE:
        a, b = (x[:512] for x in inputs(row, dtype, wide=not approximate(row, precision, dtype)))
        given, made = cupy.asarray(np.stack([a, b, a])), cupy.zeros((2, len(a)), dtype)
        module.get_function(f"k{row.code}")((1,), (len(a),), (given, made))
        here = machine.put(np.stack([a, b, a])), machine.put(np.zeros((2, len(a)), dtype))
        machine.launch(f"k{row.code}", 1, len(a), *here)
        y, wanted = made.get()[0], machine.get(here[1], dtype, len(a))
        same = (y == wanted) | (np.isnan(y) & np.isnan(wanted))
        exact += [row.name] if same.all() else []
        with np.errstate(all="ignore"):
            error = np.abs(y.astype(float) - wanted) / np.maximum(np.abs(wanted), 1e-2)
        if not same.all() and (error[~same] < 1e-3).mean() < 0.9:  # what the hardware approximates
            far.append(f"{row.name}: {error[~same].max()}")
    assert not far
    assert precision == "fast" or len(exact) > len(ops.OPERATORS) / 3, exact


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["ieee", "fast"])
def test_levels_of_optimisation_make_the_same_bits(precision):
    import cupy
    from test_ptx_bodies import ALONE, inputs

    text = operator_kernels(operator_ptx.bodies(Precision(precision), "float32"))
    found = {}
    for level in (0, 3):
        settings, module = Precision(precision, optimisation=level), cupy.cuda.function.Module()
        architecture = device.current().architecture
        module.load(next(iter(assembler.compile_modules([text], architecture, settings))).cubin)
        for row in ALONE:
            a, b = (cupy.asarray(x[:512]) for x in inputs(row, "float32"))
            made = cupy.zeros((2, len(a)), np.float32)
            module.get_function(f"k{row.code}")((1,), (len(a),), (cupy.stack([a, b, a]), made))
            y = made.get()[0]
            found.setdefault(row.name, set()).add(np.where(np.isnan(y), np.float32(np.nan), y).tobytes())
    assert [name for name, bits in found.items() if len(bits) > 1] == []
