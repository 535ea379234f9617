"""Lowered programs: their meaning, their rules and their economy, whoever runs them."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import exprkit as ek
from exprkit.backends.gpu.bytecode import accumulate
from exprkit.backends.transpiler.program import parts
from exprkit.backends.transpiler.structures import to_compile
from exprkit.errors import BackendError
from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.programs.lower import lower
from exprkit.programs.program import COLUMN, OUT, SLOT, UNIFORM
from exprkit.study.agreement import disagreement
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE

POSITIVE = np.array([True, False])  # x1 has no negative value in `data`, x2 has
CONSTANTS = [0.0, -0.0, 0.5, 1.0, 2.0, 3.0, -1.0, -2.0, 4.0, 2.5, math.inf, math.nan]
FIRST = {row.rewrite.split[0] for row in ops.OPERATORS if row.rewrite.split}
REST = {row.rewrite.split[1]: row for row in ops.OPERATORS if row.rewrite.split}


def data(n_points=8):
    rng = np.random.default_rng(5)
    return np.stack([rng.uniform(0.2, 3, n_points), rng.uniform(-3, 3, n_points)], axis=1)


def constant(number):
    return (CONSTANT, int(np.float64(number).view(np.uint64)))


def population(expressions):
    """From lists of tokens (kind, value)."""
    kinds, values = zip(*(token for tokens in expressions for token in tokens), strict=True)
    return Population(kinds, np.array(values, np.uint64), np.cumsum([0, *map(len, expressions)]))


def columns_of(program, X):
    """What the instructions of all programs read of the data."""
    return [
        meaning(code, program.precision)(X[:, v])
        for code, v in zip(program.column_code, program.column_var, strict=True)
    ]


def execute(program, i, columns, params):
    """Program ``i`` in float64, an instruction per line: what its arrays mean, without any speed.

    Of a staged pair of operators the first one leaves its operand as it is, and the second
    one does all the work: so the result can be compared with the definition closely.
    """
    constants = program.constants[program.first_const[i] : program.first_const[i + 1]]
    uniforms = [*params[: program.n_params[i]], *constants]
    slots: dict[int, np.ndarray] = {}
    for k in range(program.offsets[i], program.offsets[i + 1]):
        places = {SLOT: slots, COLUMN: columns, UNIFORM: uniforms}
        operands = [places[x & 3][x >> 2] for x in (int(program.a[k]), int(program.b[k])) if x >= 0]
        y = meaning(program.code[k], program.precision)(*operands)
        dst = int(program.dst[k])
        if dst & 3 == UNIFORM:
            assert k < program.offsets[i] + program.n_prologue[i] and dst >> 2 == len(uniforms)
            uniforms += [y] * ops.BY_CODE[program.code[k]].width
        elif dst & 3 == SLOT:
            slots[dst >> 2] = y
        else:
            assert dst == OUT and k + 1 == program.offsets[i + 1]
            return y
    return np.nan


def meaning(code, precision):
    row = ops.BY_CODE[int(code)]
    if row.name in FIRST:
        return lambda a: a
    row = REST.get(row.name, row)
    return row.numpy_fast if precision == "fast" and row.numpy_fast else row.numpy


def verify(program):
    """Check that every instruction reads what was written before and the last one writes the result."""
    for i in range(len(program)):
        bad = first_bad(program, i)
        if bad is not None:
            lines = program.listing(i).split("\n")
            lines[bad - program.offsets[i]] += "    <-- not allowed here"
            raise AssertionError(f"program {i} is damaged:\n" + "\n".join(lines))


def first_bad(program, i):
    begin, end = program.offsets[i : i + 2].tolist()
    uniforms = int(program.n_params[i] + program.first_const[i + 1] - program.first_const[i])
    slots, n_columns = set(), len(program.column_code)
    for k in range(begin, end):
        code, a, b, dst = (int(array[k]) for array in (program.code, program.a, program.b, program.dst))
        in_prologue, last = k < begin + program.n_prologue[i], k + 1 == end
        readable = {SLOT: slots, COLUMN: range(0 if in_prologue else n_columns), UNIFORM: range(uniforms), OUT: ()}
        operands = [x for x in (a, b) if x >= 0]
        if len(operands) != ops.ARITY[code] or any(x >> 2 not in readable[x & 3] for x in operands):
            return k
        if in_prologue:
            if dst != (uniforms << 2) | UNIFORM or last:
                return k
            uniforms += ops.BY_CODE[code].width
            if uniforms > program.n_uniforms:
                return k
        elif last:
            if dst != OUT:
                return k
        elif dst & 3 != SLOT or not 0 <= dst >> 2 < program.n_slots:
            return k
        else:
            slots.add(dst >> 2)
    return None


def check_against_definition(pop, precision="ieee"):
    X, rng = data(), np.random.default_rng(1)
    params = rng.uniform(-2, 2, (len(pop), pop.max_params))
    program = lower(pop, precision=precision, positive=POSITIVE)
    verify(program)
    with np.errstate(all="ignore"):
        columns = columns_of(program, X)
        result = np.stack([np.broadcast_to(execute(program, i, columns, params[i]), len(X)) for i in range(len(pop))])
    bad = np.flatnonzero(disagreement(pop, X, params, result, dtype="float64", precision=precision))
    assert not len(bad), f"{pop[int(bad[0])]} became\n{program.listing(bad[0])}"
    return program


X1, X2, P1 = (VARIABLE, 0), (VARIABLE, 1), (PARAMETER, 0)
LEAVES = [X1, X2, P1, *map(constant, CONSTANTS)]


@pytest.mark.parametrize("precision", ["ieee", pytest.param("fast", marks=pytest.mark.slow)])
def test_every_operator_on_every_leaf_and_every_inner_operator(op, precision):
    leaves, unary = [[leaf] for leaf in LEAVES], [row for row in ops.OPERATORS if row.arity == 1]
    inner = [[leaf, (OPERATOR, row.code)] for row in unary for leaf in (X2, P1)]
    inner += [[X1, X2, (OPERATOR, row.code)] for row in ops.OPERATORS if row.arity == 2]
    inner += [[X1, X2, (OPERATOR, ops.BY_NAME["sub"].code), (OPERATOR, row.code)] for row in unary]
    pairs = [(a, []) for a in (*leaves, *inner)]
    if op.arity == 2:
        few = [[X1], [P1], *([constant(number)] for number in (2.0, 0.5, -1.0))]
        pairs = [(a, b) for a in leaves for b in leaves] + [(a, b) for a in inner for b in few]
    check_against_definition(population([[*a, *b, (OPERATOR, op.code)] for a, b in pairs]), precision)


def trees(operators, leaves):
    def extend(children):
        unary = [row.code for row in operators if row.arity == 1]
        binary = [row.code for row in operators if row.arity == 2]
        parts = st.tuples(children, children, st.sampled_from(binary)).map(lambda t: [*t[0], *t[1], (OPERATOR, t[2])])
        if unary:
            parts |= st.tuples(children, st.sampled_from(unary)).map(lambda t: [*t[0], (OPERATOR, t[1])])
        return parts

    return st.recursive(st.sampled_from(leaves).map(lambda leaf: [leaf]), extend, max_leaves=25)


@pytest.mark.slow
@given(st.lists(trees(ops.OPERATORS, LEAVES), min_size=1, max_size=8), st.sampled_from(["ieee", "fast"]))
@settings(max_examples=150)
def test_random_expressions_mean_what_the_definition_says(expressions, precision):
    check_against_definition(population(expressions), precision)


@given(trees([row for row in ops.OPERATORS if row.infix and row.arity == 2], [X1, X2]))
@settings(max_examples=200)
def test_slots_are_as_few_as_can_be(tokens):
    """As many as the tree's Strahler number says, and never more than the logarithm of its tokens."""
    program = lower(population([tokens]))
    stack = []  # slots that it takes to compute each operand on the stack
    slots = 0
    for kind, _ in tokens:
        if kind != OPERATOR:
            stack.append(0)
            continue
        light, heavy = sorted((stack.pop(), stack.pop()))
        slots = max(heavy, light + 1 if light else 0)  # without one for the result
        stack.append(max(slots, 1))
    assert program.n_slots == slots
    assert program.n_slots <= math.log2(len(tokens) + 1)


def test_one_instruction_for_each_operator_that_depends_on_the_point():
    pop = ek.parse(["(x1 + x2) * (x1 - p1 * 2) / x2"])
    program = lower(pop)
    assert len(program.code) - program.n_prologue[0] == 4
    assert program.n_prologue[0] == 1


@pytest.mark.parametrize(
    ("text", "n_prologue"),
    [
        ("log(p1) * x1 + log(p1)", 1),
        ("log(2 * p1) / (x1 - sqr(log(2 * p1)))", 3),
        ("2.5 ^ x2 - 2.5 ^ x1", 1),  # a number of two parts
        ("log(p1) * x1 + log(p2)", 2),
        ("(p1 + p2) * x1 + (p2 + p1)", 2),
        ("p1 / 0 * x1 + p1 / -0.0", 2),
        ("log(p1) * log(x1) + log(p1 + 1) * log(p1)", 4),
    ],
)
def test_equal_numbers_are_computed_once(text, n_prologue):
    pop = ek.parse([text])
    program = lower(pop)
    verify(program)
    assert program.n_prologue[0] == n_prologue
    wanted = ek.Evaluator(pop, data(), "numpy", dtype="float64").evaluate([[1.75, 0.5][: pop.max_params]])
    with np.errstate(divide="ignore", invalid="ignore"):
        np.testing.assert_allclose(
            execute(program, 0, list(columns_of(program, data())), [1.75, 0.5]), wanted[0], rtol=1e-14
        )


def listing(text, **options):
    return lower(ek.parse([text]), positive=POSITIVE[: ek.parse([text]).n_vars], **options).listing(0)


def test_listing():
    assert listing("sqrt(x1) * (x2 + p1 / 2)").split("\n") == [
        "u2 = div u0, u1          once per parameter set",
        "t0 = add c1, u2",
        "out = mul c0, t0",
    ]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("x1", ["out = copy c0"]),
        ("2.5", ["out = copy u0"]),
        ("abs(x2) ^ x1", ["out = exp2_product c1, c0"]),
        ("x1 ^ x2", ["out = exp2_product c1, c0"]),  # x1 is known to be positive
        ("x2 ^ x1", ["out = pow c0, c1"]),
        ("2 ^ x2", ["u1 = log2abs_hi_lo u0    once per parameter set", "out = exp2_product u1, c0"]),
        ("(x1 + x2) ^ 2", ["t0 = add c0, c1", "out = sqr t0"]),
        ("abs(x1 + x2) ^ 2", ["t0 = add c0, c1", "out = sqr t0"]),
        ("(x1 + x2) ^ 1", ["out = add c0, c1"]),
        ("abs(x1 + x2) ^ 0.5", ["t0 = add c0, c1", "out = sqrtabs t0"]),
        ("x1 - (x2 + p1 * x1)", ["t0 = mul u0, c0", "t0 = add c1, t0", "out = sub c0, t0"]),
    ],
)
def test_rules_of_the_table(text, lines):
    assert listing(text).split("\n") == lines


def test_a_whole_exponent_is_kept_apart_in_fast_arithmetic():
    assert listing("(x1 - x2) ^ 5", precision="fast").endswith("out = pow_whole t0, u0")
    assert listing("(x1 - x2) ^ 5").endswith("out = pow t0, u0")
    assert listing("(x1 - x2) ^ 5.5", precision="fast").endswith("out = pow t0, u0")
    assert listing("(x1 - x2) ^ 5.00000000001", precision="fast", dtype=np.float32).endswith("pow_whole t0, u0")


def test_the_heavier_side_is_computed_first():
    lines = listing("(x1 + x2) * ((x1 - x2) * (x2 - x1))").split("\n")
    assert [line.split()[2] for line in lines] == ["sub", "sub", "mul", "add", "mul"]


def test_a_program_does_not_depend_on_its_company():
    pop = ek.generate.random(300, n_vars=3, seed=2)
    together = lower(pop)
    for i in range(len(pop)):
        alone = lower(pop[i : i + 1])
        assert named(together, i) == named(alone, 0)


def named(program, i):
    """The listing with columns by their content."""
    text = program.listing(i)
    for c in range(len(program.column_code) - 1, -1, -1):
        text = text.replace(f"c{c}", program.columns()[c])
    return text


def test_invalid_expressions_have_no_instructions():
    program = lower(ek.parse(["x1 +", "x1", "?"], errors="mask"))
    assert np.diff(program.offsets).tolist() == [0, 1, 0]
    assert program.listing(0) == ""
    assert len(lower(ek.parse([]))) == 0


@pytest.mark.parametrize("shape", ["left", "right", "balanced"])
def test_the_longest_expressions(shape):
    n = 32_768
    plus, x = (OPERATOR, ops.BY_NAME["add"].code), (VARIABLE, 0)
    if shape == "left":
        tokens = [x, *[x, plus] * (n - 1)]
    elif shape == "right":
        tokens = [*[x] * n, *[plus] * (n - 1)]
    else:
        tokens = [x]
        while len(tokens) < 2 * n - 1:
            tokens = [*tokens, *tokens, plus]
    program = lower(population([tokens]))
    verify(program)
    assert len(program.code) == n - 1
    assert program.n_slots == (15 if shape == "balanced" else 1)


@pytest.mark.parametrize("array", ["a", "b", "dst", "code"])
def test_a_damaged_program_is_found_and_shown(array):
    program = lower(ek.parse(["x1", "(x1 + x2) * sqrt(x1 - p1 / 2) ^ x2"]))
    verify(program)
    found = 0
    for k in range(program.offsets[1], program.offsets[2]):
        for value in (-1, 3, 7 << 2, 99 << 2 | UNIFORM, 99 << 2 | COLUMN):
            damaged = dataclasses.replace(program, **{array: getattr(program, array).copy()})
            if array == "code":
                value = ops.BY_NAME["neg" if ops.ARITY[program.code[k]] == 2 else "add"].code
            if value == getattr(program, array)[k]:
                continue
            getattr(damaged, array)[k] = value
            with pytest.raises(AssertionError, match=r"program 1 is damaged:\n(.*\n)*.*<-- not allowed here"):
                verify(damaged)
            found += 1
    assert found >= 5


@pytest.mark.slow
def test_more_columns_than_a_word_can_name_are_refused():
    """The transpiler, whose columns are whole numbers of 32 bits, takes them."""
    n_vars = 65_535
    pop = ek.parse([f"{f}(x{i + 1})" for f in ("sin", "cos") for i in range(n_vars)])
    program = lower(pop, positive=np.zeros(n_vars, bool))
    with pytest.raises(BackendError, match=r"uses 131070 columns .* the GPU interpreter can name 65536: evaluate"):
        accumulate(program)
    found = to_compile(program)
    (transpiled,) = parts(program, found, "values", 1000, 4)
    assert np.array_equal(np.sort(found.columns), np.arange(2 * n_vars))
    assert np.array_equal(transpiled.bundles.instances[1::2, 0], found.columns[transpiled.bundles.instances[::2, 1]])
