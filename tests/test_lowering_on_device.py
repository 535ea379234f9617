"""Bytecode that the device makes beside the host's: word by word, on a GPU that is not there (and on one that is)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import exprkit as ek
from exprkit.backends.device_programs import lowering
from exprkit.backends.device_programs.lowering import Lowering, tokens_of
from exprkit.backends.device_programs.translate import cuda_text
from exprkit.backends.gpu import device as gpu
from exprkit.backends.gpu.bytecode import accumulate
from exprkit.backends.gpu.layout import ACTION, ALONE, FROM_SLOT, IMMEDIATE, LOAD, LOAD_SHIFT, OPERAND, PLACES
from exprkit.backends.gpu.opcodes import numbers
from exprkit.backends.precision import precision
from exprkit.expressions import generate
from exprkit.operators import ops
from exprkit.programs.lower import lower
from exprkit.text.tokens import MAX_TOKENS

F4, F8 = np.dtype("float32"), np.dtype("float64")


def by_name(instructions, code, var):
    """Instructions with columns as 512 * variable + 2 * code + part, whatever their numbers."""
    names = np.zeros(1 << 16, np.int64)
    low = np.zeros(len(code), np.int64)
    low[1:] = (code[1:] == code[:-1]) & (var[1:] == var[:-1])
    names[: len(code)] = 512 * np.asarray(var, np.int64) + 2 * np.asarray(code, np.int64) + low
    action, places = instructions[:, ACTION].astype(np.int64), instructions[:, PLACES].astype(np.int64)
    modes = np.full(1 << 16, ALONE)
    for mode in range(numbers().shape[1]):
        modes[numbers()[:, mode][numbers()[:, mode] >= 0]] = mode
    in_column = ((modes[action >> 16] & IMMEDIATE) == 0) & (modes[action >> 16] != ALONE) & (action & FROM_SLOT == 0)
    loaded, operand = places >> LOAD_SHIFT, places & OPERAND
    return np.stack([
        action, np.where(action & LOAD, names[loaded], loaded), np.where(in_column, names[operand], operand)
    ])  # fmt: skip


def lowered(pop, device, name, dtype, positive):
    code, columns = Lowering(device, precision(name), dtype, positive)(tokens_of(pop, device))
    program = lower(pop, precision=name, positive=positive, dtype=dtype)
    return code.on_host(), [gpu.fetched(array) for array in columns], program, accumulate(program)


def assert_same(pop, device, name, dtype, positive):
    code, columns, program, expected = lowered(pop, device, name, dtype, positive)
    more = np.diff(code.first_step) - np.diff(expected.first_step)
    assert (more >= 0).all(), "the host has fewer numbers to compute, never more"
    if more.any():  # it computes equal ones once
        code, columns, program, expected = lowered(pop[more == 0], device, name, dtype, positive)
    assert np.array_equal(
        by_name(code.instructions, *columns[:2]),
        by_name(expected.instructions, program.column_code, program.column_var),
    )
    for array in ("first_instruction", "sources", "steps", "first_step", "cost"):
        assert np.array_equal(getattr(code, array), getattr(expected, array)), array
    assert np.array_equal(code.constants, expected.constants.astype(dtype), equal_nan=True)
    assert (code.n_slots, code.n_results, code.code) == (expected.n_slots, expected.n_results, expected.code)
    assert sorted(zip(*columns[:2], strict=True)) == sorted(zip(program.column_code, program.column_var, strict=True))


@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
@pytest.mark.parametrize("name", ["ieee", "fast"])
def test_every_operator_with_every_kind_of_operand(device, name, dtype):
    leaves = ("x1", "p1", "x1 + x2", "0.75", "2", "-1", "0.1")
    texts = []
    for row in ops.OPERATORS:
        one = [f"{row.name}({a})" for a in leaves] + [f"x2 - {row.name}(x1 * x2)"]
        texts += one if row.arity == 1 else [f"{row.name}({a}, {b})" for a in leaves for b in leaves]
    texts += ["p1 / 0 - p1 / -0.0", "3", "oops(", "x3", "1e300 * x1", "p3", "neg(neg(x1))", "x3 ^ 2.5 ^ p1"]
    assert_same(ek.parse(texts, errors="mask"), device, name, dtype, np.array([True, False, True]))


def test_equal_numbers_stay_apart(device):
    pop = ek.parse(["log(p1) * x1 + log(p1)"])
    code, _ = Lowering(device, precision("ieee"), F4, np.array([False]))(tokens_of(pop, device))
    assert len(code.on_host().steps) == 2 and len(accumulate(lower(pop)).steps) == 1


@given(
    seed=st.integers(0, 99), n=st.integers(0, 40), most=st.integers(1, 60), mask=st.integers(0, 15),
    name=st.sampled_from(["ieee", "fast"]), dtype=st.sampled_from([F4, F8]),
)  # fmt: skip
@settings(max_examples=60)
def test_random_populations(device, seed, n, most, mask, name, dtype):
    pop = generate.random(n, (1, most), n_vars=4, n_params=3, seed=seed)
    assert_same(pop, device, name, dtype, np.array([mask >> k & 1 for k in range(4)], bool))


@pytest.mark.slow
def test_deep_and_long_and_wide_ones(device):
    left, right = "x1" + " - x2 / p1" * 500, "x1" + " - (p1 * x1" * 200 + ")" * 200
    balanced = "x1"
    for _ in range(8):
        balanced = f"({balanced}) / ({balanced})"
    many = [f"log(x{i + 1}) + x{i + 1} ^ 1.5" for i in range(120)]
    assert_same(ek.parse([left, right, balanced, *many]), device, "ieee", F4, np.zeros(120, bool))
    for n in (255, 256, 300):  # of more than 255 the keys are too long for a draft
        wide = [f"log(x{n}) - x{n - 1} ^ 1.5", f"(x{n} + x1) / (x{n - 2} - log(x{n}))", f"x{n}"]
        assert_same(ek.parse(wide), device, "ieee", F4, np.zeros(n, bool))
    assert_same(generate.exhaustive(4, n_vars=2), device, "ieee", F8, np.zeros(2, bool))


def test_one_lowering_takes_one_population_after_the_other(device):
    lowering = Lowering(device, precision("ieee"), F8, np.zeros(3, bool))
    texts = (["x1 + log(x3)", "x2 / (x1 - x3 * (x1 - x2 / x3))"], ["x2"], ["p1 + 1", "exp(x2)", "bad("], [])
    for some in (*texts, *texts[::-1]):
        pop = ek.parse(some, errors="mask")
        code, columns = lowering(tokens_of(pop, device))
        program = lower(pop, dtype=F8)
        assert len(columns.code) == len(program.column_code) and code.n_slots == max(program.n_slots - 1, 0)
        assert np.array_equal(gpu.fetched(code.sources), accumulate(program).sources)


def test_words_that_there_is_more_of_than_was_supposed_are_brought_into_their_places_later(device, monkeypatch):
    pop = ek.parse(["x1 / log(p1 + 2.5) - x2 ^ 0.5", "oops(", "x2", "7 - p2 * x1"], errors="mask")
    for most in (0, 5, 1 << 21):
        monkeypatch.setattr(lowering, "MOST_SUPPOSED", most)
        assert_same(pop, device, "fast", F4, np.zeros(2, bool))


def test_what_can_not_be_translated_is_told_with_its_line():
    def comprehends(a):
        return [b for b in a]

    with pytest.raises(NotImplementedError, match=r"test_lowering_on_device.py:\d+: \[b for b in a\] in CUDA C"):
        cuda_text([comprehends], {})


def test_an_expression_longer_than_threads_have_memory_for_is_lowered_on_the_host(device):
    pop = ek.parse(["x1" + " + x1" * 2000, "x1"])
    assert MAX_TOKENS > pop.n_tokens.max() > 2048
    code, columns = Lowering(device, precision("ieee"), F8, np.zeros(1, bool)).of(pop)
    assert np.array_equal(code.instructions, accumulate(lower(pop)).instructions) and len(columns.code) == 1


def test_little_memory_is_worked_in_with_fewer_threads(device, monkeypatch):
    pop, released = generate.random(300, seed=1), []
    lowering = Lowering(device, precision("ieee"), F8, np.zeros(pop.n_vars, bool))
    expected = lowering(tokens_of(pop, device))[0].on_host()
    scarce = Lowering(device, precision("ieee"), F8, np.zeros(pop.n_vars, bool))
    room, most = scarce._room, 40 * 50 * 80  # bytes: of some blocks on the host, of a few threads on a GPU

    def little_room(name, n, dtype):
        if name == "scratch" and n > max(most, 80 * 104 * scarce._threads):
            raise device.out_of_memory(n, n, n) if device.xp is not np else device.out_of_memory
        return room(name, n, dtype)

    monkeypatch.setattr(scarce, "_room", little_room)
    monkeypatch.setattr(type(device), "release", lambda self: released.append(1), raising=False)
    code = scarce(tokens_of(pop, device))[0].on_host()
    assert released
    for name in ("instructions", "sources", "steps", "first_step", "cost"):
        assert np.array_equal(getattr(code, name), getattr(expected, name))


@pytest.mark.parametrize(("text", "same"), [("p1 * x1 ^ 2 + 0.5", True), ("p1 * x1 ^ 2.00000001", False)])
def test_what_one_type_has_made_serves_the_other_unless_rounding_tells(device, text, same):
    pop, positive = ek.parse([text, "exp(x1)", "p1"]), np.array([False])
    single, double = (Lowering(device, precision("fast"), dtype, positive).of(pop) for dtype in (F4, F8))
    assert (single[0].instructions is double[0].instructions) == same
    expected = accumulate(lower(pop, precision="fast", positive=positive, dtype=F8))
    code = double[0].on_host()
    assert np.array_equal(code.instructions[:, ACTION], expected.instructions[:, ACTION])
    assert np.array_equal(code.constants.astype(F8), expected.constants, equal_nan=True)
    again = Lowering(device, precision("fast"), F8, np.array([True])).of(pop)[0]
    assert again.instructions is not double[0].instructions  # of other data


@pytest.mark.parametrize("on_device", [False, True])
def test_constants_that_are_no_float32_are_told(device, on_device):
    texts = ["0.5 * x1", "0.1 * x1", "1e300", "1e-50 + p1", "nan * x1", "inf", "2"]
    pops = [ek.parse([text, "x1"]) for text in texts]
    made = [ek.DevicePopulation.of(pop, device) for pop in pops] if on_device else pops
    assert [pop.has_wide_constants for pop in made] == [False, True, True, True, True, False, False]
