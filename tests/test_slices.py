"""What threads share by slices is the same, bit by bit, as what one thread makes."""

from __future__ import annotations

import dataclasses
import itertools
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from postfix_text import random_population

import exprkit as ek
from exprkit.backends.gpu.bytecode import accumulate
from exprkit.errors import PopulationError
from exprkit.expressions import checks, generate
from exprkit.expressions.population import Population, known_arity
from exprkit.operators import ops
from exprkit.programs import lower as lowering
from exprkit.programs.linearity import dependence
from exprkit.programs.lower import lower, lower_gradients
from exprkit.runtime import machine, slices
from exprkit.runtime.intrinsics import take
from exprkit.text import reader
from exprkit.text.reader import from_items, tokens_of
from exprkit.text.tokens import CONSTANT, MAX_INDEX, OPERATOR, PARAMETER, VARIABLE

SMOOTH = [row for row in ops.OPERATORS if row.derivative]
LEAST = 64  # tokens of a slice in these tests


def test_work_takes_as_many_threads_as_it_is_limited_to():
    def thread(begin, end):
        time.sleep(0.005)  # long enough that others would take part
        return threading.get_ident()

    cuts, before = [(k, k + 1) for k in range(20)], machine.cores()
    with machine.limited(1):
        assert {*slices.each(thread, cuts)} == {threading.get_ident()}
        assert ek.Evaluator(ek.parse("x1"), [[1.0]], "cpu").engine.threads == 1
        with machine.limited(None):
            assert machine.cores() == 1, "None says nothing"
        with machine.limited(3):
            assert machine.cores() == 3 and len({*slices.each(thread, cuts)}) <= 3
    assert machine.cores() == before and machine.limit() == 0


# ── cuts ──


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 20), st.integers(1, 50))
def test_cuts_are_all_expressions_in_slices_of_about_equal_tokens(lengths, threads, least):
    offsets = np.cumsum([3, *lengths])
    cuts = slices.cut(offsets, threads, least)
    assert [begin for begin, _ in cuts] == [0, *(end for _, end in cuts[:-1])] and cuts[-1][1] == len(lengths)
    assert len(cuts) <= threads
    if len(cuts) > 1:
        share = (offsets[-1] - offsets[0]) / min(threads, len(lengths), (offsets[-1] - offsets[0]) // least)
        assert share >= least
        assert all(offsets[end] - offsets[begin] <= share + 41 for begin, end in cuts)


@given(st.lists(st.integers(-9, 99), min_size=1, max_size=20), st.integers(1, 5))
def test_offsets_that_do_not_rise_are_cut_in_order(middle, threads):
    cuts = slices.cut(np.array([0, *middle, 50]), threads, 1)
    assert [begin for begin, _ in cuts] == [0, *(end for _, end in cuts[:-1])] and cuts[-1][1] == len(middle) + 1
    assert all(begin < end for begin, end in cuts)


def test_a_small_population_is_one_slice(monkeypatch):
    monkeypatch.setattr(slices, "pool", None)
    cuts = slices.cut(np.arange(slices.LEAST), 16)
    assert cuts == [(0, slices.LEAST - 1)] and slices.each(lambda begin, end: end, cuts) == [slices.LEAST - 1]


def test_long_work_is_cut_so_short_that_python_has_its_turn():
    offsets = np.arange(0, 40 * slices.SHORT + 1, slices.SHORT // 4)
    cuts = slices.short(offsets)
    assert max(offsets[end] - offsets[begin] for begin, end in cuts) <= 1.3 * slices.SHORT
    counted = []
    slices.each(lambda begin, end: None, cuts, counted.append)
    assert sum(counted) == len(offsets) - 1 and slices.short(np.arange(100)) == [(0, 99)]


def test_work_is_stopped_by_an_interrupt_between_two_slices():
    done = []

    def work(begin, end):
        done.append(begin)
        if len(done) == 3:
            raise KeyboardInterrupt
        time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        slices.each(work, [(k, k + 1) for k in range(1000)])
    assert len(done) < 200


@pytest.mark.parametrize("threads", [1, 4])
def test_turns_are_taken_by_so_many_threads_and_each_once(threads):
    taken = [[] for _ in range(4)]
    left = iter(taken)

    def loop(counter):
        own = next(left)
        while (number := take(counter)) < 1000:
            own.append(number)

    slices.by_turns(loop, 1000, threads, least=10)
    assert sorted(itertools.chain(*taken)) == list(range(1000))
    assert len(list(left)) == 4 - threads


def test_few_turns_are_worth_one_thread():
    calls = []
    slices.by_turns(calls.append, 19, threads=4, least=10)
    assert len(calls) == 1


# ── threads ──

CUTS = [(k, k + 1) for k in range(8)]


def test_slices_are_worked_on_at_once_and_results_come_in_order():
    together = threading.Barrier(len(CUTS), timeout=60)

    def work(begin, end):
        together.wait()
        return begin, threading.get_ident()

    found = slices.each(work, CUTS)
    assert [begin for begin, _ in found] == list(range(8)) and len({thread for _, thread in found}) == 8
    assert threading.get_ident() in {thread for _, thread in found}


@pytest.mark.parametrize("bad", [{0}, {7}, {3, 5}, set(range(8))])
def test_the_first_slice_s_exception_surfaces_when_all_is_quiet(bad):
    working = []

    def work(begin, end):
        working.append(begin)
        try:
            if begin in bad:
                raise ValueError(f"slice {begin}")
            return begin
        finally:
            working.remove(begin)

    with pytest.raises(ValueError, match=f"slice {min(bad)}"):
        slices.each(work, CUTS)
    assert not working and slices.each(lambda begin, end: begin, CUTS) == list(range(8))


def test_without_further_threads_one_does_it_all(monkeypatch):
    def none():
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(slices, "pool", none)
    assert slices.each(lambda begin, end: begin, CUTS) == list(range(8))


# ── the same bits ──


def populations(rows=ops.OPERATORS):
    random = random_population(1200, 3, 12, rows)
    names = [row.name for row in rows if row.arity == 1]
    # columns in another order in every part, pairs among them; expressions that are not valid; one that is very long
    texts = [f"{names[k * k % len(names)]}(x{k % 3 + 1}) + x{k % 4 + 1} ^ 2.5" for k in range(600)]
    texts += ["", "x1"] * 300 + [" * ".join(f"(p{k % 9 + 1} + x{k % 4 + 1})" for k in range(400))]
    texts += [f"powabs(x{k % 2 + 1}, p1) * {k}.5" for k in range(300)]
    masked = ek.parse(texts, errors="mask")
    few = ek.parse([""] * 500 + ["x1 + 1"] * 300 + [""] * 500, errors="mask")
    return {"random": random, "adversarial": masked, "small": ek.generate.exhaustive(4), "few": few,
            "empty": ek.parse([])}  # fmt: skip


POPULATIONS, SMOOTH_POPULATIONS = populations(), populations(SMOOTH)


@pytest.fixture
def small_slices(monkeypatch):
    cut = slices.cut
    monkeypatch.setattr(slices, "cut", lambda offsets, threads=None, least=None: cut(offsets, threads, LEAST))


def assert_same(one, many):
    for field in dataclasses.fields(one):
        a, b = getattr(one, field.name), getattr(many, field.name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes(), field.name
        else:
            assert a == b, field.name


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("precision", ["ieee", "fast"])
@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize("make", [lower, lower_gradients])
def test_programs(make, name, precision, dtype, small_slices):
    pop = (POPULATIONS if make is lower else SMOOTH_POPULATIONS)[name]
    positive = np.arange(max(pop.n_vars, 1)) % 2 == 0
    options = {"precision": precision, "dtype": np.dtype(dtype), "positive": positive}
    one = make(pop, **options, threads=1)
    for threads in (2, 3, 16):
        assert_same(one, make(pop, **options, threads=threads))


@pytest.mark.parametrize("name", SMOOTH_POPULATIONS)
def test_programs_when_room_runs_out(name, small_slices, monkeypatch):
    pop = SMOOTH_POPULATIONS[name]
    one = lower_gradients(pop, threads=1)
    monkeypatch.setattr(lowering, "FIRST_ROOM", 0)
    for threads in (1, 5):
        assert_same(one, lower_gradients(pop, threads=threads))


@pytest.mark.parametrize("precision", ["ieee", "fast"])
@pytest.mark.parametrize("name", POPULATIONS)
def test_bytecode(name, precision, small_slices):
    program = lower(POPULATIONS[name], precision=precision, threads=1)
    one = accumulate(program, 1)
    for threads in (2, 3, 16):
        assert_same(one, accumulate(program, threads))


@pytest.mark.parametrize("name", POPULATIONS)
def test_linear_parameters(name, small_slices):
    one = dependence(POPULATIONS[name], 1)
    for threads in (2, 3, 16):
        again = dependence(POPULATIONS[name][:], threads)  # a copy: what a population has once been asked for it keeps
        assert again is not one and all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))


def test_what_fails_in_a_slice_is_told(small_slices, monkeypatch):
    def fail(tokens, *_):
        raise MemoryError(f"from token {tokens.offsets[0]}")

    monkeypatch.setattr(lowering, "_lower_some", fail)
    with pytest.raises(MemoryError, match="from token 0"):
        lower(POPULATIONS["random"], threads=4)


# ── checks ──


def first_problem(kinds, values, offsets, valid):
    """(problem, expression, token), the definition."""
    if offsets[0] != 0 or offsets[-1] != len(kinds):
        return checks.OFFSETS, 0, 0
    for i, (begin, end) in enumerate(itertools.pairwise(offsets)):
        if begin > end or end > len(kinds):
            return checks.OFFSETS, i, 0
        if valid[i] != (end > begin):
            return checks.NO_TOKENS if valid[i] else checks.INVALID_TOKENS, i, 0
        height = 0
        for t in range(end - begin):
            kind, value = int(kinds[begin + t]), int(values[begin + t])
            operands = int(known_arity(formulas=False)[value] & 3) if kind == OPERATOR and value < 256 else 0
            if kind > OPERATOR:
                return checks.KIND, i, t
            if kind == OPERATOR and (operands == 0 or operands > height):
                return checks.CODE if operands == 0 else checks.OPERANDS, i, t
            if kind in (VARIABLE, PARAMETER) and value >= MAX_INDEX:
                return checks.VARIABLE_INDEX if kind == VARIABLE else checks.PARAMETER_INDEX, i, t
            height += 1 - operands
        if height > 1:
            return checks.LEFT_OVER, i, int(end - begin - 1)
    return checks.FINE, 0, 0


VALUES = np.array([0, 1, 60, 200, 255, 256, MAX_INDEX, 1 << 40, (1 << 64) - 1], np.uint64)


def damaged(pop, random, n):
    """Copies of its arrays with so many places changed."""
    arrays = kinds, values, offsets, valid = [x.copy() for x in (pop.kinds, pop.values, pop.offsets, pop.valid)]
    for _ in range(n):
        t, i = random.integers(len(kinds)), random.integers(1, len(valid))
        which = random.integers(6)
        if which == 0:
            kinds[t] = random.integers(5)
        elif which == 1:
            values[t] = random.choice(VALUES)
        elif which == 2:
            offsets[i] += random.integers(-2, 3)
        elif which == 3:
            offsets[i] = random.choice([-5, 0, len(kinds), len(kinds) + 9])
        elif which == 4:
            valid[i] = not valid[i]
        else:
            kinds[t], values[t] = CONSTANT, (1 << 64) - 1  # a nan, and fine
    return arrays


@given(st.integers(0, 2**31), st.integers(0, 3))
def test_the_first_problem_is_the_same_for_any_slices(seed, n):
    random = np.random.default_rng(seed)
    arrays = damaged(SHORT, random, n)
    expected = first_problem(*arrays)
    for least in (slices.LEAST, 16):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(slices, "LEAST", least)
            patch.setattr(machine, "cores", lambda: 5)
            unchecked = checks.unchecked(*arrays, known_arity(formulas=False), MAX_INDEX, MAX_INDEX)
            *found, n_vars = checks.check(unchecked)
        assert tuple(found) == expected
        if expected[0] == checks.FINE:
            pop = Population(*arrays[:3])
            assert n_vars == max((int(v) + 1 for v in pop.values[pop.kinds == VARIABLE]), default=0)
            assert unchecked.n_params.tolist() == [
                max((int(v) + 1 for v in one.values[one.kinds == PARAMETER]), default=0) for one in pop
            ]


SHORT = random_population(60, 8, 6)


def test_a_bad_token_far_behind_is_marked(monkeypatch):
    monkeypatch.setattr(slices, "LEAST", 16)
    monkeypatch.setattr(machine, "cores", lambda: 4)
    kinds = SHORT.kinds.copy()
    kinds[SHORT.offsets[50]] = 7
    with pytest.raises(PopulationError, match="expression 50: a token is of no known kind"):
        Population(kinds, SHORT.values, SHORT.offsets)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_texts_are_read_by_slices(monkeypatch, threads):
    monkeypatch.setattr(slices, "LEAST", 40)
    texts = [str(one) for one in random_population(90, 7)] * 2
    for place, bad in ((0, "x1 + bad("), (77, ""), (150, "1.2345678901234567890123456e5 + x1"), (179, "(x2")):
        texts[place] = bad
    batch = reader.from_items(texts)
    expected = reader.from_items(texts)
    monkeypatch.setattr(machine, "cores", lambda: threads)
    kinds, values, offsets, faults = reader.tokens_of(batch, threads)
    monkeypatch.setattr(slices, "LEAST", 1 << 40)
    for ours, theirs in zip((kinds, values, offsets), reader.tokens_of(expected)[:3], strict=True):
        assert np.array_equal(ours, theirs)
    assert sorted(faults) == sorted(reader.tokens_of(expected)[3]) == [0, 77, 179]
    assert str(faults[179]) == str(reader.tokens_of(expected)[3][179])


def test_random_populations_are_the_same_by_slices(monkeypatch):
    whole = generate.random(300, seed=5)
    monkeypatch.setattr(slices, "LEAST", 50)
    monkeypatch.setattr(machine, "cores", lambda: 7)
    assert generate.random(300, seed=5) == whole


@pytest.mark.parametrize("spelled_out", [False, True])
def test_exhaustive_populations_are_the_same_by_slices(monkeypatch, spelled_out):
    whole = generate.exhaustive(5, n_vars=2, constants=(0.5,), spelled_out=spelled_out)
    monkeypatch.setattr(slices, "LEAST", 50)
    monkeypatch.setattr(machine, "cores", lambda: 7)
    assert generate.exhaustive(5, n_vars=2, constants=(0.5,), spelled_out=spelled_out) == whole


# ── texts ──


@pytest.fixture
def many_slices(monkeypatch):
    """Texts of many more slices than threads."""
    monkeypatch.setattr(slices, "LEAST", 500)
    monkeypatch.setattr(reader, "BLOCK", 1000)
    return from_items(generate.random(2000, (1, 20), n_vars=3, n_params=2, seed=4).texts())


def test_texts_are_put_one_slice_behind_the_other(many_slices):
    one, several = tokens_of(many_slices, 1), tokens_of(many_slices, 3)
    for found, wanted in zip(several[:3], one[:3], strict=True):
        assert found.flags.owndata
        np.testing.assert_array_equal(found, wanted)
    pop = ek.Population(*several[:3])
    assert len(pop) == 2000 and pop.texts()[::97] == [many_slices.raw(k).decode() for k in range(0, 2000, 97)]


@pytest.mark.parametrize("threads", [1, 4])
def test_a_slice_of_texts_that_fails_stops_those_behind_it(many_slices, threads, monkeypatch):
    read = reader._tokens_of_slice

    def failing(batch, begin, *arguments):
        if begin > 700:
            raise MemoryError(f"slice at {begin}")
        return read(batch, begin, *arguments)

    monkeypatch.setattr(reader, "_tokens_of_slice", failing)
    with pytest.raises(MemoryError, match="slice at"):
        tokens_of(many_slices, threads)
