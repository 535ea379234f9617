"""The case discussion: the paper's own examples, what a tree promises, and that the backends choose by it."""

from __future__ import annotations

import csv
import itertools
import re
import subprocess
import sys

import numpy as np
import ptxas_cases
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

import exprkit as ek
from exprkit.backends.cases import bundles, fits, tuning
from exprkit.backends.cases import interpreter as launches
from exprkit.backends.cases.discussion import Node, Question, discuss, leaves_of, walk
from exprkit.backends.cases.inequality import Inequality, Quantity, number, symbol
from exprkit.backends.cases.tree import CARDS, box
from exprkit.backends.gpu.schedule import DeviceLimits, LaunchShape, Sizes, estimated
from exprkit.backends.interpreter import engine as interpreter
from exprkit.errors import ArgumentError, DataError
from exprkit.expressions import generate

F4 = np.dtype("float32")
KINDS = [(itemsize, fast, wide) for itemsize in (4, 8) for fast in (True, False) for wide in (True, False)]
SIZES = st.builds(
    Sizes, n_points=st.integers(1, 10**8), n_items=st.integers(1, 10**6), n_columns=st.integers(0, 1000),
    n_slots=st.integers(0, 16), bulky=st.integers(0, 1),
)  # fmt: skip


# ── the engine, on the paper's examples ──

MOST = {"s": 9, "B": 30, "B_0": 9, "B_1": 9, "R_B": 20, "Z_B": 200}
BOX = {name: np.random.default_rng(k).integers(1, most, 4000) for k, (name, most) in enumerate(MOST.items())}


def at_most(words, limit, of=lambda at: 0):
    return Inequality(Quantity(words, of), symbol(limit))


def systems(code, *questions):
    """Of each leaf: its code, and its system."""
    return [(leaf.code, [str(one) for one in leaf.system]) for leaf in leaves_of(discuss(code, questions, BOX))]


def height(tree):
    return 1 + max(height(tree.accept), height(tree.refuse)) if isinstance(tree, Node) else 0


def registers(needed, strategy="fewer"):
    """``needed`` registers of each code, which is the first of them; a strategy goes to the next one."""
    return Question(
        "registers", lambda code: at_most(str(needed[code]), "R_B", lambda at: needed[code]),
        lambda code: (strategy, code + 1) if code + 1 < len(needed) else None,
    )  # fmt: skip


def test_matrix_addition_has_a_case_of_14_registers_and_one_of_10():
    assert systems(0, registers([14, 10])) == [(0, ["14 <= R_B"]), (1, ["R_B < 14", "10 <= R_B"])]


def test_jacobi_has_three_cases():
    words = ["2*B*s + 2", "2*B + 2", "0"]
    bytes_of = [lambda at: 2 * at["B"] * at["s"] + 2, lambda at: 2 * at["B"] + 2, lambda at: 0]
    memory = Question(
        "memory", lambda code: at_most(words[code], "Z_B", bytes_of[code]),
        lambda code: (("granularity", "no cache")[code], code + 1),
    )  # fmt: skip
    assert systems(0, memory) == [
        (0, ["2*B*s + 2 <= Z_B"]), (1, ["Z_B < 2*B*s + 2", "2*B + 2 <= Z_B"]),
        (2, ["Z_B < 2*B*s + 2", "Z_B < 2*B + 2", "0 <= Z_B"]),
    ]  # fmt: skip
    assert height(discuss(0, [memory], BOX)) == 2


def test_transposition_has_five_systems():
    """A code: the memory that it takes (much, less, none), and whether common subexpressions are computed once."""
    words = ["B_0*B_1*s", "B_0*B_1", "0"]
    bytes_of = [lambda at: at["B_0"] * at["B_1"] * at["s"], lambda at: at["B_0"] * at["B_1"], lambda at: 0]

    def few(code):  # without a cache, common subexpressions are none
        return 8 if code[1] or code[0] == 2 else 10

    memory = Question(
        "memory", lambda code: at_most(words[code[0]], "Z_B", bytes_of[code[0]]),
        lambda code: ("less memory", (code[0] + 1, code[1])) if code[0] < 2 else None,
    )  # fmt: skip
    registers = Question(
        "registers", lambda code: at_most(str(few(code)), "R_B", lambda at: few(code)),
        lambda code: ("cse", (code[0], True)) if few(code) == 10 else None,
    )  # fmt: skip
    assert [code for code, _ in systems((0, False), memory, registers)] == [
        (0, False), (0, True), (1, False), (1, True), (2, False),
    ]  # fmt: skip


def test_a_branch_without_a_witness_is_not_there():
    never = Question("never", lambda code: at_most("1000", "Z_B", lambda at: 1000), lambda code: ("other", code + 1))
    code, steps = walk(0, [registers([30, 25, 5])], {"R_B": 6})
    assert code == 2 and [step.accepted for step in steps] == [False, False, True]
    assert [leaf.code for leaf in leaves_of(discuss(0, [registers([30, 25, 5])], BOX))] == [2]
    assert discuss(0, [never._replace(next=lambda code: None)], BOX) is None
    assert walk(0, [registers([30])], {"R_B": 6})[0] is None


# ── what a tree promises ──


@pytest.fixture(scope="module", params=KINDS, ids=str)
def fixed(request):
    itemsize, fast, wide = request.param
    return launches.VariantSet(itemsize, fast, wide)


def found(fixed, **known):
    task, precision = "values" if fixed.wide else "square", "fast" if fixed.fast else "ieee"
    return ek.cases(known or None, task, precision=precision, dtype=f"float{8 * fixed.itemsize}")


@pytest.mark.slow
def test_every_leaf_has_a_witness_and_no_two_share_it(fixed):
    tree = found(fixed)
    leaves = tree.leaves
    both = fixed.asks_for_powers
    assert 15 <= len(leaves) / (1 + both) <= 60
    for case in leaves:
        assert all(one.holds(case.witness) for one in case.constraints)
        code = walk(tree.subject.start, tree.subject.questions, case.witness)[0]
        assert tree.subject.shape(code) == case.shape
    assert sum(len(leaf.points) for leaf in leaves_of(tree.tree)) == len(box(tree.subject.symbols, {})["N"])


def walk_of(fixed, values):
    return walk(launches.START, launches.questions(fixed), values | {"p": 1})[0]


@pytest.mark.slow
@given(card=st.sampled_from(list(CARDS)), sizes=SIZES)
@settings(max_examples=60)
def test_the_plain_decision_is_the_path_through_the_tree(fixed, card, sizes):
    limits = CARDS[card].limits
    shape = launches.Decision(limits, fixed)(sizes)
    assert launches.code_shape(fixed, walk_of(fixed, launches.values_of(sizes, limits))) == shape
    assert shape.most_shared(sizes.n_columns, sizes.n_slots) <= limits.shared_per_block


@pytest.mark.slow
def test_a_leaf_can_not_be_improved_by_any_strategy(fixed):
    for case in found(fixed).leaves:
        sizes, limits = launches.sizes_of(case.witness), launches.machine_of(case.witness)
        of_case = fixed._replace(powers=case.witness.get("p") != 0)
        taken = launches.times(of_case, sizes, limits)
        here = estimated(case.shape, sizes, limits, of_case.light)
        usual = np.ravel(taken)[: -len(launches.LAST_BLOCKS)]  # the last ones are for what nothing else fits
        assert here <= usual.min() * (1 + 1e-12)
    least = LaunchShape(1, launches.LAST_BLOCKS[-1], False, 32, fixed.itemsize, fixed.wide)
    needed = [one.most_shared(9, 9) for one in launches.shapes(fixed)]
    assert least.most_shared(9, 9) == min(needed), "nothing lowers the memory of the last one"


@pytest.mark.slow
@given(n_slots=st.integers(0, 60), n_columns=st.integers(0, 10**6))
def test_the_last_leaf_always_fits(fixed, n_slots, n_columns):
    small = DeviceLimits(64 << 10, 64 << 10, 40)
    shape = launches.Decision(small, fixed)(Sizes(10**6, 1000, n_columns, n_slots))
    assert shape.most_shared(n_columns, n_slots) <= small.shared_per_block


def test_memory_is_the_polynomial_that_is_printed():
    c, slots = sympy.symbols("c s", integer=True, nonnegative=True)
    shape = LaunchShape(4, 256, True, 32, 4, True)
    assert sympy.expand(shape.most_shared(c, slots)) == sympy.expand(
        16 * 256 * 4 * slots + 240 * 8 * slots + 17 * 256 + 512 * 4 * c + 240 * c + 2 * 512 * 4 + 32 + 256 * 4
    ), "16BVs + (B/32) m' s + 17B + 512Vc + c m' + 512Vt + 32, and 4B to spare"


@pytest.mark.slow
def test_choosing_loads_no_sympy():
    code = (
        "import sys; from exprkit.backends.interpreter import engine, batches;"
        "from exprkit.backends.cases.interpreter import Decision, VariantSet;"
        "from exprkit.backends.cases.tree import CARDS; from exprkit.backends.gpu.schedule import Sizes;"
        "d = Decision(CARDS['sm_86'].limits, VariantSet(4, True)); d(Sizes(362, 9, 9, 1)); d.why(Sizes(362, 9, 9, 1));"
        "batches.shape_of(362, 2, itemsize=4, lanes=32, fast=True, rare=True); print('sympy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


# ── as a user sees it ──

POP = ["p1 * x1 ^ 2 + exp(-x2)", "sqrt(x1) / x2"]


def test_a_path_has_every_inequality_with_its_numbers():
    tree = ek.cases({"n_columns": 12, "n_slots": 1, "n_exprs": 9_880}, "square", precision="fast")
    here = tree.at(device="sm_86", n_points=10_860)
    lines = here.why().split("\n")
    assert lines[0].startswith("no   time of 8 vectors, columns shared = 598.4 > 403.3 = ")
    assert "memory of 4 vectors, columns shared, 768 threads = 93,984 <= 101,376 = Z_B" in lines[2]
    assert "80 registers of 768 threads = 61,440 <= 65,536 = R_M" in lines[2]
    assert lines[-1] == "=> 16 points a thread, 768 threads a block, columns in shared memory"
    assert here.case.shape == LaunchShape(4, 768, True, 32, 4) and here.case.strategies == ("fewer vectors",)
    padded = here.at(shared_per_block=49_152, n_slots="s")
    assert padded.free == ("s",) and 1 < len(padded.leaves) < 14
    assert str(padded) == padded.why() and "else, fewer vectors:" in str(padded)


def test_a_tree_is_text():
    tree = ek.cases({"n_columns": 12, "n_slots": 1, "n_exprs": 9_880}, "values", precision="fast").at(device="sm_90")
    assert re.search(r"if memory of 8 vectors, columns shared, 128 threads = \d+ <= Z_B and ", str(tree))
    assert "N <= 384 points of a tile" in str(tree)
    assert "->" in str(tree) and str(tree).count("-> ") == len(tree.leaves)
    open_slots = str(tree.at(n_slots="s"))
    assert "memory of 8 vectors, columns shared, 128 threads = 17344*s + " in open_slots


@pytest.mark.slow
def test_a_leaf_has_its_source_and_its_ptx():
    pytest.importorskip("cuda.core", reason="cuda-core compiles the kernels: pip install '.[cuda13]'")
    case = ek.cases(POP, precision="fast").at(device="sm_86", n_points=362).case
    assert f"#define BLOCK {case.shape.block}\n" in case.source and "interpret(" in case.source
    ptx = case.ptx("sm_86")
    assert ".target sm_86" in ptx and f".maxntid {case.shape.block}" in ptx
    row = ptxas_cases.measured(case, "sm_120", "fast")
    assert row["registers"] <= row["limit"] and row["needed"] <= row["limit"] and row["spilled"] == 0


def test_published_kernels_keep_to_their_limits(root):
    with (root / "data" / "results" / "cases_ptxas.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len({tuple(row[name] for name in ptxas_cases.FIELDS[:5]) for row in rows}) == len(rows) > 4_900
    for row in rows:
        registers, limit, spilled = (int(row[name]) for name in ("registers", "limit", "spilled"))
        has_16_warps = row["task"] == "fit" and " b512 " in row["variant"]  # with fewer registers than they need
        most = 630 if has_16_warps else 210 if row["task"] == "fit" else 40
        assert registers <= limit <= 255 and spilled <= most, row
        assert not row["needed"] or int(row["needed"]) <= limit or has_16_warps


def test_what_is_asked_wrongly_is_told():
    tree = ek.cases(POP)
    with pytest.raises(ArgumentError, match=r"N have no value: .at\(n_points=...\)"):
        tree.at(device="sm_86").case  # noqa: B018
    with pytest.raises(ArgumentError, match="there is no GPU architecture 'sm_87'"):
        tree.at(device="sm_87")
    with pytest.raises(ArgumentError, match="no argument 'points'"):
        tree.at(points=3)
    with pytest.raises(ArgumentError, match="n_points must be a whole number"):
        tree.at(n_points=-1)
    with pytest.raises(ArgumentError, match=r"no variant is left: .* > 1,000 = Z_B"):
        tree.at(device="sm_86", n_points=362, shared_per_block=1000).case  # noqa: B018
    with pytest.raises(ArgumentError, match="task"):
        ek.cases(POP, "squares")
    with pytest.raises(DataError, match="makes no fits"):
        ek.cases(POP, "fit", backend="ptx")
    with pytest.raises(ArgumentError, match="code is made of expressions"):
        ek.cases(task="values", backend="ptx").leaves[0].source  # noqa: B018


# ── the backends choose by it ──


@pytest.mark.slow
def test_all_leaves_give_the_same_bits(emulated):
    pop = ek.parse(["x1 * p1 + sqrt(x2)", "(x1 + x2) * (x1 - p1) / (x2 * x1 + 1)"])
    X = np.random.default_rng(0).uniform(0.5, 2, (37, 2)).astype(F4)
    params, y, bits = np.full((1, 2, 1), 1.5, F4), X[:, 0].copy(), set()
    leaves = {(case.shape.vectors, case.shape.columns_shared) for case in found(launches.VariantSet(4, True)).leaves}
    assert {(8, True), (1, True), (4, False), (1, False)} <= leaves
    engine, out = interpreter.Engine(pop, X, precision="fast", dtype=F4, device=emulated), np.empty((1, 2, 37), F4)
    for vectors, shared in ((8, True), (3, True), (4, False), (1, False)):
        engine.using(LaunchShape(vectors, 1, shared, 1, 4))
        engine.evaluate(params, out)
        bits.add(out.tobytes() + engine.loss_sums(params, y, None, "square").tobytes())
    assert len(bits) == 1


def test_the_engine_launches_what_the_tree_says_and_tells_the_path(emulated):
    X = np.ones((50, 2), F4)
    engine = interpreter.Engine(ek.parse(POP), X, precision="fast", dtype=F4, device=emulated)
    text = "\n".join(engine.decisions())
    assert "yes  memory of 8 vectors, columns shared, 1 threads" in text or "time of" in text
    assert text.count("    yes  ") >= 2


def test_operators_that_need_many_registers_are_left_out(emulated):
    texts = ["x1 * p1 + sqrt(x2)", "sin(x1 / x2 + p1)"]
    X = np.random.default_rng(0).uniform(0.5, 2, (37, 2)).astype(F4)
    found = []
    for more in ([], ["(x1 + x2) ^ (x1 * x2)"]):
        pop = ek.parse(texts + more)
        engine = interpreter.Engine(pop, X, precision="ieee", dtype=F4, device=emulated)
        out = np.empty((1, len(pop), 37), F4)
        engine.evaluate(np.full((1, len(pop), 1), 1.5, F4), out)
        found.append(out[0, :2].tobytes())
        asked = "    no   p = 1 > 0, so powers too" if more else "    yes  p = 0 <= 0"
        assert engine.decisions().count(asked) == 2
        known = ek.cases(pop, X=X).at("sm_90")
        assert known.known["p"] == len(more) and known.case.macros["POWERS"] == str(len(more))
    assert found[0] == found[1]


@pytest.mark.slow
def test_tuning_keeps_the_fastest_for_such_work(emulated, monkeypatch, tmp_path):
    monkeypatch.setenv("EXPRKIT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuning, "MOST_SLOWER", 1.5)  # few variants: each is compiled
    X = np.random.default_rng(0).uniform(0.5, 2, (50, 2)).astype(F4)
    params, y = np.ones((1, 2, 1), F4), X[:, 0].copy()
    engine, another = (
        interpreter.Engine(ek.parse(POP), X, precision="fast", dtype=F4, device=emulated) for _ in range(2)
    )
    before = engine.loss_sums(params, y, None, "square")
    found = engine.tune(params, y, None, "square", 0.01)
    assert found.chosen in found.seconds and len(found.seconds) > 1 and found.best in found.seconds
    assert 0 <= found.gain < 1 and f"{len(found.seconds)} variants timed" in str(found)
    assert engine._shape(2) == another._shape(2) == found.best
    assert engine.loss_sums(params, y, None, "square").tobytes() == before.tobytes()
    assert "the fastest that was measured here" in "".join(another.decisions())
    assert another._shape(3) == another._decision(False, True)(Sizes(50, 3, another._launcher.n_columns, 0))


def test_fits_tell_their_path(emulated):
    texts = ["x1 * p1", "p1 + sin(p2 * x2)", "p1 + p2 * x1", "x1", "p1 * x1 + p2 * x2 + p3 + p4 * x1 * x2 + p5 / x2"]
    engine = interpreter.Engine(ek.parse(texts), np.ones((50, 2), F4), precision="ieee", dtype=F4, device=emulated)
    lines = engine.decisions()
    fits = [line for line in lines if line.startswith("fits of")]
    shares = [line.split(": ")[1].split(",")[0] for line in fits]
    assert shares == ["1 expression", "2 expressions", "1 expression", "1 expression"]
    assert fits[0].startswith("fits of 2 parameters") and "2 tangents, all operators, " in fits[0]
    assert "all operators" not in "".join(fits[1:]), "one expression's operators are no other's"
    assert fits[3].startswith("fits of up to 5 parameters") and "J'J by rows" in fits[3]
    paths = lines[lines.index(fits[0]) + 1 :]
    assert paths[0] == "    no   u = 1 > 0, so uncommon operators" and "m = 2 > 1 = 1 tangent" in paths[1]
    plain = interpreter.Engine(ek.parse("x1 + x2"), np.ones((5, 2), F4), precision="ieee", dtype=F4, device=emulated)
    assert "fit" not in "".join(plain.decisions())


@given(
    n_points=st.integers(1, 10**7), n_params=st.integers(0, 8), fast=st.booleans(), itemsize=st.sampled_from([4, 8]),
    rare=st.booleans(),
)  # fmt: skip
@settings(max_examples=60)
def test_fits_are_launched_by_their_tree(n_points, n_params, fast, itemsize, rare):
    tree = ek.cases(task="fit", precision="fast" if fast else "ieee", dtype=f"float{8 * itemsize}")
    small = {"n_instructions": 9, "n_results": 0, "n_slots": 1, "uncommon_operators": int(rare)}
    here = tree.at("sm_86", n_points=n_points, n_params=n_params, **small)
    tangents = min(max(n_params, 1), 4)
    shape = fits.shape_of(n_points, tangents, itemsize=itemsize, lanes=32, fast=fast, rare=rare)
    assert here.case.shape == shape
    rivals = fits.fit_shapes(fits.FitVariants(itemsize, fast), tangents)
    again = fits.ONE_BY_ONE if rare else 0  # decoded for each vector but the first
    of = fits.OF_SHORT if fast and itemsize == 4 else fits.OF_LONG
    longest, costs = of.longest_rare if rare else of.longest, {}
    for one in rivals:
        needed, there = fits.registers_of(one, fast, rare), (1 << 16) // (32 * one.warps)
        if needed > there and (itemsize == 8 or not fast or tangents == 4 or there < 128):
            continue  # it would spill much
        resident = max((1 << 16) // (32 * one.warps * needed), 1) * one.warps
        of_a_round = one.vectors + fits.DECODING * (1 + again * (one.vectors - 1))
        rounds = -(-n_points // (one.tile * one.warps)) * (fits.SPILLING if needed > there else 1)
        costs[one] = (rounds * of_a_round + of.step) * (longest + fits.SHARE * one.warps / resident)
    assert costs[shape] == pytest.approx(min(costs.values()))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("precision", ["fast", "ieee"])
def test_a_block_makes_as_many_fits_as_there_are_registers_for(precision, dtype):
    small = {"n_instructions": 9, "n_results": 0, "n_slots": 1, "n_points": 100}
    tree, made = ek.cases(task="fit", precision=precision, dtype=dtype), set()
    for registers, rare, n_params in itertools.product((1 << 16, 1 << 15, 1 << 14), (0, 1), (1, 2, 3, 4)):
        here = tree.at("sm_90", uncommon_operators=rare, n_params=n_params, registers=registers, **small).case
        threads = int(here.macros["FITS"]) * int(here.macros["BLOCK"])
        needed = fits.registers_of(here.shape, precision == "fast", bool(rare))
        assert needed * threads <= registers or here.macros["FITS"] == "1"
        if registers == 1 << 16:
            plain = fits.fits_at_once(here.shape, False, True, precision == "fast", bool(rare))
            assert int(here.macros["FITS"]) == plain > 1
        made.add(int(here.macros["FITS"]))
    assert 1 in made and len(made) > 2


def test_where_an_arena_lies():
    known = {"n_params": 2, "n_slots": 1, "n_results": 0, "uncommon_operators": 1, "n_points": 10_860}
    tree = ek.cases(known, "fit", precision="fast")
    places = [tree.at("sm_90", n_instructions=n).case.words.split("arena in ")[1] for n in (9, 900, 9000)]
    assert places == ["little shared memory", "shared memory", "global memory"]


def test_the_transpiler_s_layouts_are_leaves():
    tree = ek.cases(task="values", backend="ptx")
    assert {case.shape for case in tree.leaves} >= {bundles.CodeShape(4, 128, 4, None), bundles.CodeShape(1, 128, 8, 4)}
    here = tree.at(n_points=10_860, n_instructions=5, exprs_per_structure=9, shared_code=0)
    assert here.case.shape == bundles.shape_of("values", 10_860, 4, True, True) == bundles.CodeShape(4, 256, 1, None)
    assert here.why().split("\n")[0] == "no   N = 10,860 > 1,999, so more points a thread"


def test_a_leaf_of_the_transpiler_has_the_population_s_code():
    case = ek.cases(POP * 9, "square", backend="ptx", precision="fast").at(n_points=10_860).case
    assert f".maxntid {case.shape.block}" in case.source and "// p" not in case.source
    assert case.ptx("sm_86").count(".visible .entry square(") == 1 and not case.macros


def test_numbers_and_symbols_are_quantities():
    assert str(Inequality(number(3), symbol("N"))) == "3 <= N"
    assert Inequality(number(3), symbol("N")).refused().with_numbers({"N": 2}) == "N = 2 < 3"


def test_operators_with_much_code_have_no_eight_vectors():
    """Their code for 8 vectors outgrows the instruction cache: it takes up to 31 % longer than that for 4 (H200)."""
    few = generate.random(3000, n_tokens=(9, 31), n_vars=3, n_params=2, seed=1, operators=("add", "mul", "div", "sin"))
    many = generate.random(3000, n_tokens=(9, 31), n_vars=3, n_params=2, seed=1, operators="gp")
    chosen = [ek.cases(pop, precision="fast").at("sm_90", n_points=40_000).case.shape.vectors for pop in (few, many)]
    assert chosen == [8, 4]
    assert ek.cases(many, precision="fast").known["b"] == 1
    assert "b" not in ek.cases(precision="ieee").free and "b" in ek.cases(precision="fast").free
