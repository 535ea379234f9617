"""The operators' PTX, run on a machine of its own: no GPU needed, but NVRTC (and nvJitLink to assemble it)."""

from __future__ import annotations

import csv
import itertools
import math
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hard_inputs import defined, tolerance
from ptx_machine import Machine, PtxError, filled, operator_kernels

from exprkit.backends.precision import Precision
from exprkit.backends.transpiler import assembler, operator_ptx
from exprkit.errors import BackendError
from exprkit.operators import ops

AWKWARD = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 7.0, -2.5, 1 / 3, 0.75, 1.5, 1e-8, -1e-8, 1e5, -1e20,
    16777216.0, math.inf, -math.inf, math.nan,
]  # fmt: skip
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
CHOICES = list(itertools.product(("ieee", "fast"), ("float32", "float64")))
PAIR, OF_PAIR = (ops.BY_NAME[name] for name in ops.BY_NAME["powabs"].rewrite.split)
WHOLE = (ops.BY_NAME["pow_whole"],)  # defined for whole b only
ABSOLUTE = ("lgamma", "digamma")  # an absolute error is promised where they cross 0
FAR = ("aq",)  # b * b overflows beyond 1e154
FORMS = {"pasted": 1 << 30, "called": 0}  # instructions of the longest body that is pasted
ALONE = [row for row in ops.IN_VALUES.values() if row not in (PAIR, OF_PAIR)]


pytestmark = pytest.mark.usefixtures("ptx_compiler")


@pytest.fixture(scope="module")
def machines():
    """The kernels of all operators in every precision, type and form."""
    made = {}

    def machine(precision, dtype, form="pasted"):
        key = precision, dtype, form
        if key not in made:
            made[key] = Machine(operator_kernels(operator_ptx.bodies(Precision(precision), dtype, FORMS[form])))
        return made[key]

    return machine


def run(machine, row, a, b, a_low=None):
    """What an operator's kernel makes of vectors: y, or y and y_low."""
    given = machine.put(np.stack([a, b, np.zeros_like(a) if a_low is None else a_low]))
    made = machine.put(np.full((2, len(a)), 7, a.dtype))
    machine.launch(f"k{row.code}", 1, len(a), given, made)
    y = machine.get(made, a.dtype, 2 * len(a)).reshape(2, -1)
    return y if row.width > 1 else y[0]


def inputs(row, dtype, n=120, wide=True):
    """Pairs of operands: from the row's domain and, if wide, of every size, and all pairs of awkward numbers."""
    random = np.random.default_rng(row.code)
    columns: list[np.ndarray] = []
    for low, high in (row.domain * 2)[:2]:
        parts = [random.uniform(low, high, n)]
        if wide:
            limit = 120 if dtype == "float32" else 1000
            parts += [np.exp2(random.uniform(-limit, limit, n // 2)) * random.choice([-1, 1], n // 2)]
            parts += [np.exp2(random.uniform(-12, 8, n)) * random.choice([-1, 1], n)]
        columns.append(np.concatenate(parts).astype(dtype))
    if wide:
        random.shuffle(columns[1])
        pairs = np.array(list(itertools.product(AWKWARD, AWKWARD if row.arity == 2 else [1.0])), dtype)
        columns = [np.concatenate([column, pairs[:, k]]) for k, column in enumerate(columns)]
    return columns


def wrong(y, wanted, ulp, absolute=False):
    """Where results are further off than that many units in the last place, or nan or infinite at a wrong place."""
    limits = np.finfo(y.dtype)
    with np.errstate(all="ignore"):
        rounded = wanted.astype(y.dtype)
        least = y.dtype.type(1 if absolute else limits.tiny)
        unit = np.spacing(np.maximum(np.abs(rounded), least)).astype(np.float64)
        error = np.abs(y.astype(np.float64) - wanted) / unit
        same = (y == rounded) | (np.isnan(y) & np.isnan(rounded))
        edge = np.abs(wanted) > limits.max * (1 - 1e-5)  # may or may not be rounded to inf
        gone = (np.abs(wanted) < 2 * limits.tiny) & (np.abs(y) <= 4 * limits.tiny)  # subnormals may be flushed
        close = np.isfinite(y) & (error <= ulp + 0.5) | edge & (np.isinf(y) | (error <= ulp + 0.5))
    return ~(same | close | gone)


def approximate(row, precision, dtype):
    return precision == "fast" and dtype == "float32" and row.cuda.fast_ulp is not None


# ── what they compute ────────────────────────────────────────────────────────────────


def compared(row, machine, precision, dtype):
    """An operator's operands, what its kernel makes of them, what it should, and where that is wrong."""
    fast = approximate(row, precision, dtype)
    a, b = inputs(row, dtype, wide=not fast)
    if row in WHOLE:
        b = np.rint(b)
    if row.name in FAR:
        b = np.where(np.abs(b.astype(np.float64)) < 1e150, b, b.dtype.type(1))
    y, wanted = run(machine, row, a, b), defined(row, precision, a, b)
    if not fast:
        return a, b, y, wanted, wrong(y, wanted, tolerance(row, precision, dtype), row.name in ABSOLUTE)
    unit = np.spacing(np.maximum(np.abs(wanted), 1).astype(np.float32))
    return a, b, y, wanted, ~(np.abs(y - wanted) / unit <= row.cuda.fast_ulp + 0.5)


@pytest.mark.parametrize("form", ["pasted", "called"])
@pytest.mark.parametrize("precision, dtype", CHOICES)
def test_every_operator_agrees_with_its_definition(machines, precision, dtype, form):
    bad = []
    for row in ALONE:
        a, b, y, wanted, off = compared(row, machines(precision, dtype, form), precision, dtype)
        if off.any():
            at = int(np.argmax(off))
            example = f"of {a[at]!r}, {b[at]!r}: {y[at]!r}, not {wanted[at]!r}"
            bad.append(f"{row.name}: {off.sum()} of {len(a)}, e.g. {example}")
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("precision, dtype", CHOICES)
def test_a_power_in_two_steps_agrees_with_its_definition(machines, precision, dtype):
    machine, power = machines(precision, dtype), ops.BY_NAME["powabs"]
    fast = approximate(power, precision, dtype)
    a, b = inputs(power, dtype, wide=not fast)
    high, low = run(machine, PAIR, a, b)
    y, wanted = run(machine, OF_PAIR, high, b, low), defined(power, precision, a, b)
    if fast:
        unit = np.spacing(np.maximum(np.abs(wanted), 1).astype(np.float32))
        assert (np.abs(y - wanted) / unit <= power.cuda.fast_ulp).all()
        return
    if precision == "fast":
        ordinary = np.isfinite(a) & np.isfinite(b) & (a != 0)
        y, wanted = y[ordinary], wanted[ordinary]
    assert not wrong(y, wanted, tolerance(power, precision, dtype)).any()


def test_forms_of_an_operator_make_the_same_bits(machines):
    for row in (row for row in ops.IN_VALUES.values() if row is not OF_PAIR):
        a, b = inputs(row, "float32")
        pasted, called = (run(machines("ieee", "float32", form), row, a, b) for form in ("pasted", "called"))
        assert np.array_equal(pasted, called, equal_nan=True), row.name


@pytest.mark.slow
@pytest.mark.parametrize("precision, dtype", CHOICES)
def test_the_result_may_take_the_place_of_an_operand(machines, precision, dtype):
    chosen = operator_ptx.bodies(Precision(precision), dtype, FORMS["pasted"])
    for place in "ab":
        text = operator_kernels(chosen, names={"y": f"%{place}"})
        machine = Machine(text)
        for row in (row for row in ALONE if row.arity == 2 or place == "a"):
            a, b = inputs(row, dtype, n=20)
            assert np.array_equal(
                run(machine, row, a, b), run(machines(precision, dtype), row, a, b), equal_nan=True
            ), row.name


# ── the test itself must be able to fail ─────────────────────────────────────────────

MUTATIONS = [
    (r"\badd\.rn", "sub.rn"), (r"\bsub\.rn", "add.rn"), (r"\bmul\.rn", "add.rn"), (r"\bneg\.", "abs."),
    (r"setp\.lt", "setp.ge"), (r"setp\.gt", "setp.le"), (r"setp\.eq", "setp.ne"),
    (r"\bmin\.", "max."), (r"\bmax\.", "min."), (r"cvt\.rmi", "cvt.rpi"), (r"cvt\.rpi", "cvt.rmi"),
    (r"\bex2\.", "lg2."), (r"\blg2\.", "ex2."), (r"\bsin\.", "cos."), (r"\bcos\.", "sin."),
    (r"shl\.b32", "shr.u32"), (r"and\.pred", "or.pred"), (r"or\.pred", "and.pred"),
    (r"((?:div|sub)\S+ \S+) (\S+), (\S+);", r"\1 \3, \2;"), (r"(selp\S+ \S+) (\S+), (\S+),", r"\1 \3, \2,"),
]  # fmt: skip


SAME = {"sign: setp.eq", "sin: mul.rn", "cos: mul.rn"}  # a zero's sign; whole turns more, of no matter to an exact sine
HEAD = ".visible .entry k"


def mutants(text):
    """Every place of a module where an instruction can be changed: the kernel's operator, the place, what to write."""
    for pattern, other in MUTATIONS:
        for found in re.finditer(pattern, text):
            head = text.rfind(HEAD, 0, found.start())
            if head >= 0:
                yield int(re.match(r"\d+", text[head + len(HEAD) :])[0]), found, other


@pytest.mark.slow
@pytest.mark.parametrize("precision, dtype", [("fast", "float32"), ("ieee", "float64")])
def test_a_changed_instruction_is_noticed(precision, dtype):
    chosen = operator_ptx.bodies(Precision(precision), dtype, FORMS["pasted"])
    text = operator_kernels(chosen)
    every = [mutant for mutant in mutants(text) if ops.BY_CODE[mutant[0]] not in (PAIR, OF_PAIR)]
    picked = set(np.random.default_rng(1).choice(len(every), 60, replace=False))
    short = {code for code, body in chosen.of.items() if body.instructions <= 8}
    missed, missed_in_short, head = [], [], text[: text.index(HEAD)]
    for k, (code, found, other) in enumerate(every):
        if k not in picked and code not in short:
            continue
        start, end = text.rfind(HEAD, 0, found.start()), text.find(HEAD, found.start())
        changed = text[start : found.start()] + found.expand(other) + text[found.end() : end if end > 0 else None]
        try:
            off = compared(ops.BY_CODE[code], Machine(head + changed), precision, dtype)[-1].any()
        except PtxError:
            off = True
        if not off:
            (missed_in_short if code in short else missed).append(f"{ops.BY_CODE[code].name}: {found[0]}")
    assert set(missed_in_short) <= SAME, missed_in_short
    assert len(missed) <= 0.2 * len(picked), missed  # the last digits of a correction, and the edges of a choice


# ── the text ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "settings",
    [Precision(*choice) for choice in itertools.product(("ieee", "fast"), *[(False, True)] * 3)],
    ids=lambda s: f"{s.operators}{s.approximate_division:d}{s.approximate_root:d}{s.flush_subnormals:d}",
)
def test_the_table_s_cells_are_what_the_compiler_makes_of_the_formulas(settings):
    for double in (False, True) if settings == Precision(settings.operators) else (False,):
        functions, _ = operator_ptx._parse(operator_ptx.compiled(settings, double))
        cells = [(row, cell) for row in ops.IN_VALUES.values() if (cell := operator_ptx._cell(row, settings, double))]
        assert len(cells) >= 15
        for row, cell in cells:
            pasted = operator_ptx._pasted(functions[f"op_{row.name}"], row, double, ()).text
            as_compiled = re.sub(r"mov\.b(\d\d)", r"mov.f\1", pasted.strip())
            assert cell == as_compiled, row.name


@pytest.mark.parametrize("precision, dtype", CHOICES)
def test_templates_use_no_names_of_their_own_that_an_emitter_could_have(precision, dtype):
    forms = (operator_ptx.MOST_PASTED, *FORMS.values())
    every = [operator_ptx.bodies(Precision(precision), dtype, most) for most in forms]
    chosen = every[0]
    for body in (body for one in every for body in one.of.values()):
        text = filled(body.text, {"y": "", "y_low": "", "a": "", "a_low": "", "b": "", "n": 1})
        assert "%" not in text and "ret;" not in text
        assert "{y}" in body.text and all(name in chosen.parts for name in body.parts)
        assert not set(re.findall(r"L\{n\}_\w+(?=;)", body.text)) - set(re.findall(r"L\{n\}_\w+(?=:)", body.text))
    assert set(chosen.of) == set(ops.IN_VALUES)


def test_settings_show_in_the_text():
    def text(dtype="float32", **chosen):
        bodies = operator_ptx.bodies(Precision(**chosen), dtype, FORMS["pasted"])
        return "".join(body.text for body in bodies.of.values())

    assert ".ftz.f32" not in re.sub(r"(ex2|rcp|rsqrt|div)\.approx\.ftz", "", text())  # CUDA's own functions use these
    assert "add.rn.ftz.f32" in text(flush_subnormals=True)
    assert "div.full.f32" in text(approximate_division=True) and "sqrt.approx.f32" in text(approximate_root=True)
    assert text(contract=True).count("fma.rn") > text().count("fma.rn")
    assert text("float64", operators="ieee", flush_subnormals=True, approximate_division=True) == text("float64")


def test_bodies_are_the_same_text_from_the_disk_and_from_the_compiler(tmp_path, monkeypatch):
    seen = set()
    for folder in ("", str(tmp_path), str(tmp_path)):
        monkeypatch.setenv("EXPRKIT_CACHE_DIR", folder)
        operator_ptx._bodies.cache_clear()
        forms = (operator_ptx.bodies(Precision("fast"), "float32", most) for most in FORMS.values())
        seen.add("".join(map(operator_kernels, forms)))
    assert len(seen) == 1 and len(list(tmp_path.iterdir())) == 1


def test_without_the_compiler_there_is_one_line_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    operator_ptx._bodies.cache_clear()
    with pytest.raises(BackendError, match="PTX needs cuda-bindings: pip install cuda-core") as raised:
        operator_ptx.bodies(Precision(), "float32")
    assert "\n" not in str(raised.value)


# ── assembled ────────────────────────────────────────────────────────────────────────


def resources(precision, dtype, level=3):
    """Registers and spills of all operators' kernels, by architecture."""
    text = operator_kernels(operator_ptx.bodies(Precision(precision), dtype, FORMS["pasted"]))
    found = {}
    for architecture in ARCHITECTURES:
        settings = Precision(optimisation=level)
        (linked,) = assembler.compile_modules([text], architecture, settings, workers=1)
        used = assembler.usage(linked.report)
        assert set(used) == {f"k{code}" for code in ops.IN_VALUES}
        found[architecture] = max(x.registers for x in used.values()), sum(x.spill_stores for x in used.values())
    return found


def test_every_operator_assembles_everywhere_with_the_registers_pinned(root):
    with (root / "tests" / "ptx_kernels.csv").open() as file:
        pinned = {(r["operators"], r["dtype"], r["architecture"]): r for r in csv.DictReader(file)}
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda choice: resources(*choice), CHOICES))
    assert len(pinned) == len(CHOICES) * len(ARCHITECTURES)
    for choice, by_architecture in zip(CHOICES, found, strict=True):
        for architecture, (registers, spilled) in by_architecture.items():
            row = pinned[*choice, architecture]  # another release may need a few registers more
            assert registers <= int(row["registers"]) + 8 and spilled <= int(row["spilled"]) + 16, (row, registers)


def test_every_operator_assembles_without_optimisation():
    for choice in CHOICES:
        text = operator_kernels(operator_ptx.bodies(Precision(choice[0]), choice[1]))
        (linked,) = assembler.compile_modules([text], "sm_90", Precision(optimisation=0))
        assert len(assembler.usage(linked.report)) == len(ops.IN_VALUES)


def test_the_lowest_version_and_target_are_enough():
    bodies = operator_ptx.bodies(Precision(), "float64")
    text = operator_kernels(bodies, version=operator_ptx.VERSION, target=operator_ptx.TARGET)
    assert next(iter(assembler.compile_modules([text], operator_ptx.TARGET, Precision()))).cubin
