"""The transpiler: its text (golden files in ``ptx/``), how it groups, and on a GPU (marker ``gpu``) what it computes.

``make_golden()`` writes the golden files anew: ``python tests/test_ptx.py``.
"""

from __future__ import annotations

import re
import weakref
from pathlib import Path

import numpy as np
import pytest
from ptx_machine import as_text

import exprkit as ek
from exprkit.backends.cases import bundles
from exprkit.backends.cases.bundles import CodeShape, shape_of
from exprkit.backends.interpreter import engine as interpreter
from exprkit.backends.precision import Precision
from exprkit.backends.transpiler import engine as transpiler
from exprkit.backends.transpiler import program
from exprkit.backends.transpiler.bundles import BundleLimits, fuse, modules
from exprkit.backends.transpiler.program import Transpiled, parts
from exprkit.backends.transpiler.structures import MOST_COLUMNS, find_structures, to_compile
from exprkit.backends.transpiler.templates import ABSOLUTE, SQUARE, SUM, VALUES
from exprkit.errors import ArgumentError, BackendError, DataError
from exprkit.expressions import generate
from exprkit.operators import ops
from exprkit.programs.lower import lower
from exprkit.programs.program import COLUMN

GOLDEN = Path(__file__).with_name("ptx")
F4, F8 = np.dtype("float32"), np.dtype("float64")


AWKWARD = [0.0, -0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 1e-3, 1e-38, 88.0, 1e5, 3e38, np.inf, np.nan, np.pi / 2, 16777217.0]
AWKWARD += [-a for a in AWKWARD[2:-3]]


needs_bodies = pytest.mark.usefixtures("ptx_compiler")


def lowered(texts, precision="fast", dtype=F4):
    return lower(ek.parse(texts), precision=precision, dtype=dtype)


def found_in(texts, **options):
    return find_structures(lowered(texts, **options))


# ── structures and bundles ──


def test_numbers_are_not_part_of_a_structure():
    found = found_in(["x1 + p1", "x1 + 2", "p1 + x1", "x1 + p2 * p1", "x1 - p1", "x2 + p1"])
    assert found.of.tolist() == [0, 0, 0, 0, 1, 2]
    assert found.n_numbers.tolist() == [1, 1, 1]


def test_a_number_that_is_used_twice_is_one():
    found = found_in(["(x1 + p1) * (x2 - p1)", "(x1 + p1) * (x2 - p2)"])
    assert found.of.tolist() == [0, 1] and found.n_numbers.tolist() == [1, 2]


def test_an_expression_that_could_not_be_read_has_a_structure():
    pop = ek.parse(["x1", "x1 +", "x1"], errors="mask")
    found = find_structures(lower(pop))
    assert found.of.tolist() == [0, 1, 0] and np.isnan(found.numbers.constants[found.numbers.sources[0] >> 2])


def test_every_expression_is_in_one_batch_and_long_bundles_are_cut():
    pop = generate.random(500, n_tokens=(1, 9), n_vars=3, n_params=2, seed=4)
    lowered_pop = lower(pop)
    found = find_structures(lowered_pop)
    grouped = fuse(found, lowered_pop, BundleLimits(structures=6, columns=5, instructions=20))
    assert sorted(set(grouped.instances[:, 1].tolist())) == list(range(500))
    assert sorted(grouped.order.tolist()) == list(range(len(found)))
    sizes = np.diff(found.first)
    for b in range(len(grouped)):
        chosen = grouped.order[grouped.first[b] : grouped.first[b + 1]]
        assert len(chosen) == 1 or (len(chosen) <= 6 and sizes[chosen].sum() <= 20)
    for b, first in enumerate(grouped.first_instance):
        of_structure = grouped.order[grouped.first[b] : grouped.first[b + 1]]
        stop = first + grouped.n_batches[b] * len(of_structure)
        batches = grouped.instances[first:stop, 1].reshape(-1, len(of_structure))
        assert (found.of[batches] == of_structure).all()


def test_modules_are_consecutive_and_of_about_the_same_size():
    counts = np.array([16] * 31 + [3])
    ranges = modules(counts, 120)
    assert [i for chosen in ranges for i in chosen] == list(range(32))
    assert max(sum(counts[i] for i in chosen) for chosen in ranges) <= 150


def test_all_shapes_of_a_task_take_as_many_points_at_a_time():
    for task in (SQUARE, ABSOLUTE, SUM):
        for n_points in (1, 362, 1_999, 2_000, 10_860, 1_000_000):
            for itemsize in (4, 8):
                turns = {(s := shape_of(task, n_points, itemsize, small)).points * s.block for small in (True, False)}
                assert len(turns) == 1


def instructions_of(found, e):
    """The code of an expression's structure, with its own columns in place of indirect ones."""
    s = found.of[e]
    rows = []
    for k in range(found.first[s], found.first[s + 1]):
        operands = [int(found.a[k]), int(found.b[k])]
        if found.indirect:
            own = found.columns[found.first_column[e] :]
            operands = [int(own[x >> 2]) << 2 | COLUMN if x >= 0 and x & 3 == COLUMN else x for x in operands]
        rows.append((int(found.code[k]), *operands))
    return rows


@pytest.mark.parametrize("precision", ["ieee", "fast"])
def test_indirect_columns_make_fewer_structures_that_mean_the_same(precision):
    pop = generate.exhaustive(5)
    program = lower(pop, precision=precision, dtype=F4, positive=np.ones(2, bool))
    plain, fewer = find_structures(program), find_structures(program, indirect=True)
    assert 3 * len(fewer) < len(plain) and fewer.indirect and not plain.indirect
    np.testing.assert_array_equal(plain.numbers.sources, fewer.numbers.sources)
    for e in range(0, len(pop), 7):
        assert instructions_of(fewer, e) == instructions_of(plain, e), str(pop[e])


def test_a_pair_of_columns_is_two():
    program = lower(ek.parse(["x1 ^ p1 + x2", "x2 ^ p1 + x1"]), precision="fast", dtype=F4, positive=np.ones(2, bool))
    found = find_structures(program, indirect=True)
    assert found.of.tolist() == [0, 0] and found.n_columns.tolist() == [3]
    names = [program.columns()[c] for c in found.columns]
    assert names[0] == names[1] != names[3] == names[4] and {names[2], names[5]} == {"x1", "x2"}
    assert found.columns[1] == found.columns[0] + 1 and found.columns[4] == found.columns[3] + 1


def test_sources_of_numbers_reach_one_further():
    """``make_numbers`` reads the first number of an expression before it knows that there is one."""
    for texts in (["x1 + x2"], ["x1 + p1", "x1 - x2"], []):
        numbers = found_in(texts).numbers
        assert len(numbers.sources) == len(numbers.instructions) + 1 and numbers.sources[-1] == 0


def test_columns_are_indirect_where_that_makes_far_fewer_structures():
    many = lower(generate.exhaustive(6), precision="fast", dtype=F4)
    assert to_compile(many).indirect and not to_compile(many, indirect=False).indirect
    few = lowered(["x1 + x2", "x2 * x3", "x1 * x3"])
    assert not to_compile(few).indirect and len(to_compile(few, indirect=True)) == 2
    trees = lower(generate.random(1_200, n_tokens=(20, 30), operators="gp", n_vars=5, seed=1), dtype=F4)
    assert not to_compile(trees).indirect  # nearly all of them differ in more than their columns
    wide = lowered([" + ".join(f"x{i}" for i in range(1, MOST_COLUMNS + 2))])
    assert not to_compile(wide, indirect=True).indirect


def test_results_are_made_row_by_row_where_structures_have_many_expressions():
    def shapes(texts, n_points, indirect=False):
        program = lowered(texts)
        made = parts(program, find_structures(program, indirect), VALUES, n_points, 4)
        return [(part.kind(VALUES).by_row, part.shape.points, part.shape.structures) for part in made]

    alike = [f"x1 * {k} + x2" for k in range(8)]
    assert shapes(alike, 10_860) == [(True, 4, 1)] and shapes(alike[:3], 10_860) == [(False, 4, 4)]
    long = " + ".join(f"x1 * {k} + x2" for k in range(8))
    assert shapes([long] * 8, 10_860) == [(False, 1, 8)] and shapes(alike, 362) == [(False, 1, 8)]
    assert shapes(["x1 + x2", "x2 + x3", "x1 + x4", "x4 + x2"], 362, indirect=True) == [(True, 2, 1)]


def test_modules_are_smaller_where_cores_would_be_idle():
    assert [program.module_size(n) for n in (1, 479, 480, 1_919, 1_920, 10**6)] == [120, 120, 60, 60, 120, 120]


def test_large_structures_stand_apart():
    program = lowered(["x1 + x2", "x1 * x2", "+".join(f"sin(x{i} * x{i + 1})" for i in range(1, 9))])
    made = parts(program, find_structures(program), SQUARE, 100_000, 4)
    assert [part.bundles.order.tolist() for part in made] == [[0, 1], [2]]
    assert [part.shape.points for part in made] == [4, 1]


# ── the text ──

CASES = {  # file: (expressions, task, shape, precision, dtype, other fields of the kind)
    "values_by_row": (
        ["x1 + p1 * x2", "x1"],
        VALUES,
        CodeShape(4, 128, 1, None),
        "fast",
        F4,
        {"store": 2, "masked": True},
    ),
    "values_indirect": (["x1 * p1 - x2", "x2 * p1 - x1"], VALUES, CodeShape(2, 128, 1, None), "fast", F4, {"store": 2}),
    "square_indirect": (["x1 ^ p1 + x2", "x2 / x1"], SQUARE, CodeShape(1, 64, 8, 2), "fast", F4, {}),
    "values_fast": (["x1 + p1 * x2", "x2 / (x1 + x2)"], VALUES, CodeShape(4, 128, 8, None), "fast", F4, {"store": 4}),
    "values_masked": (["x1 * x2"], VALUES, CodeShape(4, 32, 8, None), "fast", F4, {"store": 2, "masked": True}),
    "values_two_bundles": (["x1 + x2", "p1"], VALUES, CodeShape(1, 128, 1, 4), "ieee", F4, {}),
    "values_float64": (["sqrt(x1) - x2"], VALUES, CodeShape(2, 128, 8, None), "ieee", F8, {"store": 2}),
    "square": (["x1 + p1", "x1 - p1"], SQUARE, CodeShape(1, 64, 8, 2), "fast", F4, {}),
    "absolute_weighted": (["x1 - x2 * 3"], ABSOLUTE, CodeShape(2, 32, 8, None), "ieee", F4, {"weighted": True}),
}


def text_of(case):
    texts, task, shape, precision, dtype, how = CASES[case]
    pop = ek.parse(texts)
    program = lower(pop, precision=precision, dtype=dtype)
    made = Transpiled(program, find_structures(program, indirect="indirect" in case), shape, dtype.itemsize)
    return made.module(0, made.kind(task, **how), Precision(precision)).decode()


def make_golden():
    GOLDEN.mkdir(exist_ok=True)
    for case in CASES:
        GOLDEN.joinpath(f"{case}.ptx").write_text(text_of(case))


@needs_bodies
@pytest.mark.parametrize("case", CASES)
def test_the_text_is_as_it_was(case):
    assert text_of(case) == GOLDEN.joinpath(f"{case}.ptx").read_text(), "look at the change; make_golden() accepts it"


@needs_bodies
def test_what_is_computed_alike_is_computed_once():
    program = lowered(["exp(x1 * x2) + exp(x1 * x2)", "exp(x1 * x2) - p1"])
    made = Transpiled(program, find_structures(program), CodeShape(1, 128, 8, None), 4)
    text = made.module(0, made.kind(VALUES), Precision("fast")).decode()
    assert len(re.findall(r"ex2\.approx", text)) == 1 and len(re.findall(r"mul\.rn\.ftz\.f32 %v", text)) == 1
    assert len(re.findall(r"ld\.global\.nc\.f32 %x", text)) == 2


@needs_bodies
def test_a_column_is_loaded_once_a_vector_for_a_bundle():
    program = lowered(["x1 + x2", "x1 * x2 + 1", "x1 - x2", "x2 - x1"])
    made = Transpiled(program, find_structures(program), CodeShape(4, 128, 8, None), 4)
    text = made.module(0, made.kind(VALUES, store=4), Precision("fast")).decode()
    assert text.count("[%columns+") == 2


@needs_bodies
def test_every_sum_and_product_is_rounded_by_itself():
    pop = generate.random(60, n_tokens=(5, 25), n_vars=3, n_params=2, seed=2)
    program = lower(pop, dtype=F4)
    made = Transpiled(program, find_structures(program), CodeShape(1, 128, 8, None), 4)
    for task in (VALUES, SQUARE):
        for module in made.modules(made.kind(task), Precision()):
            entry = module.decode().partition(".entry")[2]
            assert not re.search(r"\b(add|sub|mul)\.(ftz\.)?f(32|64)\b", entry)


@needs_bodies
@pytest.mark.parametrize("name", ["x_1", "a */ ret; //", "line\nbreak", "<img onerror>", "\u00e9\u2028"])
def test_names_in_comments_stay_in_their_line(name):
    program = lowered(["x1 + x2"])
    made = Transpiled(program, find_structures(program), CodeShape(1, 128, 8, None), 4)
    text = made.one(0, made.kind(VALUES), Precision("fast"), name)
    plain = made.one(0, made.kind(VALUES), Precision("fast"), "")
    assert [line for line in text.splitlines() if not line.strip().startswith("//")] == [
        line for line in plain.splitlines() if not line.strip().startswith("//")
    ]
    assert text.isascii() and len(text.split("\n")) == len(plain.split("\n"))


# ── compiling without a GPU ──


def can_assemble():
    try:
        return not ek.compile_ptx(ek.parse("x1"), cache=False).spills.any()
    except BackendError:
        return False


needs_assembler = pytest.mark.skipif(not can_assemble(), reason="no NVRTC or nvJitLink: pip install '.[cuda13]'")


@needs_assembler
@pytest.mark.parametrize("task", [VALUES, SQUARE, ABSOLUTE, SUM])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_thesis_like_code_needs_few_registers_and_spills_none(task, dtype):
    pop = generate.exhaustive(4)
    made = ek.compile_ptx(pop, "sm_90", precision="fast", dtype=dtype, task=task)
    assert made.n_structures < len(pop) and len(made.cubins) == len(made.modules) == len(made.registers)
    most = {(VALUES, "float32"): 64, (SQUARE, "float32"): 96}.get((task, dtype), 128)
    assert made.registers.max() <= most and not made.spills.any(), made.registers


@needs_assembler
def test_ptx_of_one_expression_holds_it_in_a_comment():
    pop = ek.parse(["x1 + p1", "sin(x2) / x1"])
    text = ek.compile_ptx(pop).ptx(1)
    assert "// sin(x2) / x1" in text and "add.rn" not in text and "div.rn.f32" in text
    assert "sin(x2)" in text.partition("(column")[2]


@pytest.mark.parametrize(
    "options, said",
    [({"task": "squares"}, "task must be one of"), ({"points_per_thread": 3}, "points_per_thread"),
     ({"points_per_thread": 4, "dtype": "float64"}, "points_per_thread"), ({"block_size": 100}, "block_size"),
     ({"block_size": "a"}, "block_size")],
)  # fmt: skip
def test_wrong_choices_are_named(options, said):
    with pytest.raises(ArgumentError, match=said):
        ek.compile_ptx(ek.parse("x1"), **options)


def test_what_is_no_population_or_type_is_refused():
    with pytest.raises(DataError, match="must be a Population, not int"):
        ek.compile_ptx(3)
    with pytest.raises(DataError, match="dtype must be one of 'float32', 'float64', not 'int32'"):
        ek.compile_ptx(ek.parse("x1"), dtype="int32")


def test_other_backends_have_no_ptx():
    ev = ek.Evaluator(ek.parse("x1"), np.ones((2, 1)), backend="cpu")
    with pytest.raises(BackendError, match="backend='ptx' does"):
        ev.ptx(0)
    with pytest.raises(ArgumentError, match="numbered 0 to 0"):
        ev.sass(1)


# ── the engine, on a card that does nothing ──


class NoCard:
    """Keeps account of the modules that are loaded."""

    xp = np
    lanes, multiprocessors, architecture = 32, 1, "sm_90"
    out_of_memory = MemoryError

    def __init__(self):
        self.alive: weakref.WeakSet[NoKernel] = weakref.WeakSet()
        self.most_alive = self.starts = 0

    def pointer(self, array):
        return array.ctypes.data

    def sent(self, arrays):
        return [np.asarray(array) for array in arrays]

    def kernel(self, name, settings, **macros):
        return NoKernel(self)

    def current_stream(self):
        return self

    def synchronize(self):
        pass

    def load(self, code, names):
        made = [NoKernel(self) for _ in names]
        self.alive.update(made)
        self.most_alive = max(self.most_alive, len(self.alive))
        return made


class NoKernel:
    def __init__(self, card):
        self.card = card

    def prepare(self, blocks, threads, shared, job, overlaps=False):
        def start(kernel=self):
            kernel.card.starts += 1

        return start


def idle_engine(pop, X, card, **options):
    return transpiler.Engine(pop, X, precision="fast", dtype=F4, device=card, compiler=as_text, **options)


@needs_bodies
def test_code_on_the_device_is_bounded():
    pop = generate.exhaustive(4)
    X, params = np.ones((5, 2), F4), np.zeros((1, len(pop), pop.max_params), F4)
    out = np.zeros((1, len(pop), 5), F4)
    free, tight = NoCard(), NoCard()
    engines = [
        idle_engine(pop, X, free, structures_per_module=8),
        idle_engine(pop, X, tight, structures_per_module=8, code_bytes=1 << 15),
    ]
    for made in engines:
        for _ in range(3):
            made.evaluate(params, out)
    n_modules = len(engines[0].parts(VALUES)[0][0])
    assert free.most_alive == n_modules > 20 and tight.most_alive < n_modules / 2
    assert free.starts == tight.starts


@needs_bodies
@pytest.mark.parametrize("texts, n_points", [([], 3), (["x1 + p1"], 0), (["p1"], 2), (["x1 +"], 2)])
def test_next_to_nothing(texts, n_points):
    pop = ek.parse(texts, errors="mask")
    X = np.ones((n_points, max(pop.n_vars, 1)), F4)
    made = idle_engine(pop, X, NoCard())
    params = np.zeros((2, len(pop), pop.max_params), F4)
    made.evaluate(params, np.zeros((2, len(pop), n_points), F4))
    sums = made.loss_sums(params, np.ones(n_points, F4), None, SQUARE)
    assert sums.shape == (2, len(pop)) and np.isnan(sums[:, ~pop.valid]).all()
    assert n_points or (sums[:, pop.valid] == 0).all()


@needs_bodies
@pytest.mark.parametrize("options", [{}, {"points_per_thread": 4}, {"block_size": 64}], ids=str)
def test_small_and_large_structures_are_summed_together(options, monkeypatch):
    """Their code has different shapes, and their tiles the same sums."""
    import test_ptx_modules

    texts = ["x1 + p1", "x1*x2 - " + " - ".join(f"(x1 + {k}) * (x2 - {k})" for k in range(1, 6))]
    monkeypatch.setattr(bundles, "FEW", 100)
    monkeypatch.setattr(
        bundles, "questions", bundles.questions.__wrapped__
    )  # those that are kept have the usual number
    monkeypatch.setattr(transpiler, "SUM_TURNS", 2)
    n_points = 1_050
    random = np.random.default_rng(3)
    X, y = random.uniform(0.5, 2.0, (n_points, 2)).astype(F4), random.uniform(-1, 1, n_points).astype(F4)
    params = np.full((1, 2, 1), 0.5, F4)
    made = transpiler.Engine(
        ek.parse(texts), X, precision="fast", dtype=F4, device=test_ptx_modules.PtxCard(),
        compiler=test_ptx_modules.as_text, **options,
    )  # fmt: skip
    a, b = X.astype(np.float64).T
    values = np.array([a + 0.5, a * b - sum((a + k) * (b - k) for k in range(1, 6))])
    assert len(made.parts(SQUARE)) == 2
    np.testing.assert_allclose(made.loss_sums(params, y, None, SQUARE)[0], ((values - y) ** 2).sum(1), rtol=1e-5)
    wanted = (np.abs(values - y) * y * y).sum(1)
    np.testing.assert_allclose(made.loss_sums(params, y, y * y, ABSOLUTE)[0], wanted, rtol=1e-5)


@pytest.mark.parametrize(
    "options, said",
    [({"block_size": 33}, "block_size must be a multiple of 32"), ({"points_per_thread": 3}, "points_per_thread"),
     ({"structures_per_module": 0}, "structures_per_module"),
     ({"structures_per_bundle": 1.5}, "structures_per_bundle")],
)  # fmt: skip
def test_wrong_options_are_named(options, said):
    with pytest.raises(ArgumentError, match=said):
        idle_engine(ek.parse("x1"), np.ones((2, 1), F4), NoCard(), **options)


# ── on a GPU ──


def everything(n_points, dtype, n_sets=2, n=60):
    pop = generate.random(n, n_tokens=(1, 30), operators="thesis", n_vars=3, n_params=2, seed=n_points)
    random = np.random.default_rng(n_points)
    X = random.uniform(-2.0, 2.0, (n_points, 3)).astype(dtype)
    params = random.uniform(-2.0, 2.0, (n_sets, len(pop), pop.max_params)).astype(dtype)
    return pop, X, params


def values(engine, params, n_points, dtype):
    out = np.full((len(params), params.shape[1], n_points), 7, dtype)
    engine.evaluate(params, out)
    return out


def same_bits(a, b):
    whole = np.uint32 if a.dtype == F4 else np.uint64
    return (a.view(whole) == b.view(whole)) | (np.isnan(a) & np.isnan(b))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
@pytest.mark.parametrize("n_points", [1, 130, 2_001])
def test_bits_are_the_interpreters(n_points, dtype):
    pop, X, params = everything(n_points, dtype)
    wanted = values(interpreter.Engine(pop, X, precision="ieee", dtype=dtype), params, n_points, dtype)
    made = transpiler.Engine(pop, X, precision="ieee", dtype=dtype, structures_per_module=8)
    for _ in range(2):  # launched one by one, then as a graph
        assert same_bits(values(made, params, n_points, dtype), wanted).all()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
@pytest.mark.parametrize("precision", ["ieee", "fast"])
def test_every_operator_has_the_interpreters_bits(precision, dtype):
    rows = [row for row in ops.OPERATORS]
    operands = ["x1 + x3", "x2 + x3"]  # of a column alone the interpreter's kernel would make a column
    pop = ek.parse([f"{row.name}({', '.join(operands[: row.arity])})" for row in rows])
    with np.errstate(all="ignore"):
        pairs = np.array([(a, b, -0.0) for a in AWKWARD for b in AWKWARD]).astype(dtype)
    X = np.concatenate([pairs, np.random.default_rng(1).uniform(-3, 3, (500, 3)).astype(dtype)])
    params = np.zeros((1, len(pop), 0), dtype)
    wanted = values(interpreter.Engine(pop, X, precision=precision, dtype=dtype), params, len(X), dtype)
    made = transpiler.Engine(pop, X, precision=precision, dtype=dtype, points_per_thread=1, structures_per_module=4)
    same = same_bits(values(made, params, len(X), dtype), wanted)[0].all(axis=1)
    assert same.all(), [row.name for row, agrees in zip(rows, same, strict=True) if not agrees]


@pytest.mark.gpu
def test_results_do_not_depend_on_how_code_is_laid_out():
    n_points = 2_001
    pop, X, params = everything(n_points, F4, n=40)
    wanted = values(transpiler.Engine(pop, X, precision="fast", dtype=F4), params, n_points, F4)
    for options in (
        {"points_per_thread": 1, "block_size": 96}, {"points_per_thread": 4},
        {"structures_per_bundle": 2, "structures_per_module": 4, "code_bytes": 1 << 16}, {"share_code": True},
        {"structures_per_bundle": 1}, {"structures_per_bundle": 1, "share_code": True, "points_per_thread": 1},
    ):  # fmt: skip
        made = transpiler.Engine(pop, X, precision="fast", dtype=F4, **options)
        for _ in range(2):
            assert same_bits(values(made, params, n_points, F4), wanted).all(), options


@pytest.mark.gpu
@pytest.mark.parametrize("n_points", [130, 20_001])
def test_sums_do_not_depend_on_the_population(n_points):
    pop, X, params = everything(n_points, F4)
    y, w = X[:, 0].copy(), np.abs(X[:, 1])
    whole = transpiler.Engine(pop, X, precision="fast", dtype=F4)
    some = [3, 17, 29, 41]
    alone = transpiler.Engine(ek.parse([str(pop[i]) for i in some]), X, precision="fast", dtype=F4)
    for kind in (SQUARE, ABSOLUTE, SUM):
        for weights in (None, w):
            sums = whole.loss_sums(params, y, weights, kind)
            assert same_bits(sums, whole.loss_sums(params, y, weights, kind)).all()
            assert same_bits(alone.loss_sums(params[:, some], y, weights, kind), sums[:, some]).all()
            error = values(whole, params, n_points, F4).astype(np.float64) - y
            error = {SQUARE: error**2, ABSOLUTE: np.abs(error), SUM: error}[kind]
            counted = (1.0 if weights is None else w) * error
            wanted = np.where(True if weights is None else w > 0, counted, 0).sum(-1)
            most = np.abs(np.where(np.isfinite(counted), counted, 0)).sum(-1).max() if kind == SUM else 0
            np.testing.assert_allclose(sums, wanted, rtol=2e-5, atol=2e-5 * most)


@pytest.mark.gpu
@pytest.mark.parametrize("n_points", [1, 361, 2_001, 60_001])
@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
def test_rows_begin_anywhere(dtype, n_points):
    """Results row by row, however a row lies in memory, and nothing written beside them."""
    import cupy

    alike = ["x1 * p1 + x2", "x2 * p1 + x3", "x1 - x2 * exp(x3)", "x3 - x1 * exp(x2)", "sqrt(x1 * x2)"]
    pop = ek.parse(alike * 9)
    random = np.random.default_rng(n_points)
    X = random.uniform(0.5, 2.0, (n_points, 3)).astype(dtype)
    params = random.uniform(-2.0, 2.0, (2, len(pop), 1)).astype(dtype)
    wanted = values(interpreter.Engine(pop, X, precision="ieee", dtype=dtype), params, n_points, dtype)
    for shared in (False, True):
        made = transpiler.Engine(pop, cupy.asarray(X), precision="ieee", dtype=dtype, share_code=shared)
        assert made.parts(VALUES)[0][0].kind(VALUES).by_row == (shared or n_points > 2_000)
        for first in range(0, 5):
            memory = cupy.full(wanted.size + 2 * 64, 7, dtype)
            out = memory[60 + first :][: wanted.size].reshape(wanted.shape)
            made.evaluate(cupy.asarray(params), out)
            assert same_bits(out.get(), wanted).all()
            assert (memory[: 60 + first] == 7).all() and (memory[60 + first + wanted.size :] == 7).all()


@pytest.mark.gpu
def test_shared_code_sums_the_same_bits():
    pop = generate.exhaustive(5)
    for n_points in (130, 20_001):
        random = np.random.default_rng(1)
        X, y = random.uniform(0.5, 2.0, (n_points, 2)).astype(F4), random.uniform(-1.0, 1.0, n_points).astype(F4)
        params = random.uniform(-2.0, 2.0, (1, len(pop), pop.max_params)).astype(F4)
        # not in fast precision: the assembler makes 2^-x of 1 / 2^x where nothing else in the bundle wants 2^x
        sums = [
            transpiler.Engine(pop, X, precision="ieee", dtype=F4, share_code=shared).loss_sums(params, y, None, SQUARE)
            for shared in (False, True)
        ]
        assert same_bits(*sums).all()


@pytest.mark.gpu
def test_optimisation_and_compiler_do_not_change_bits():
    n_points = 200
    pop, X, params = everything(n_points, F4, n=24)
    wanted = values(transpiler.Engine(pop, X, precision="ieee", dtype=F4), params, n_points, F4)
    plain = transpiler.Engine(pop, X, precision=Precision("ieee", optimisation=0), dtype=F4)
    assert same_bits(values(plain, params, n_points, F4), wanted).all()


@pytest.mark.gpu
def test_results_in_device_memory():
    import cupy

    pop, X, params = everything(362, F4, n_sets=1)
    ev = ek.Evaluator(pop, cupy.asarray(X), backend="ptx", precision="fast")
    out = cupy.full((len(pop), 362), 7, F4)
    assert ev.evaluate(cupy.asarray(params[0]), out=out) is out
    host = ek.Evaluator(pop, X, backend="ptx", precision="fast").evaluate(params[0])
    assert same_bits(out.get(), host).all()


if __name__ == "__main__":
    make_golden()
