"""SymPy objects in and out: by bits and by name, never by text."""

from __future__ import annotations

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st
from postfix_text import random_population, words
from sympy import Rational, symbols
from sympy.codegen import cfunctions
from sympy.core import relational

import exprkit as ek
from exprkit.errors import ExprkitError, ParseError
from exprkit.expressions.expression import Expression, constant
from exprkit.operators import ops
from exprkit.text.tokens import CONSTANT

applied = Expression.applied

x1, x2, p1 = symbols("x1 x2 p1")

READ = [
    (x1, "x1"), (p1 * x1, "p1 * x1"), (x1 + x2 + p1, "p1 + x1 + x2"), (x1 - x2, "x1 - x2"), (x2 - x1, "x2 - x1"),
    (-x1 - x2, "-x1 - x2"), (x1 - 2, "x1 - 2"), (2 - x1, "2 - x1"), (-x1, "-x1"), (-2 * x1, "-(2 * x1)"),
    (x2 - 2 * x1, "x2 - 2 * x1"), (x1 / x2, "x1 / x2"), (1 / x1, "inv(x1)"), (-1 / x1, "-inv(x1)"),
    (x1 / 3, "x1 / 3"), (2 * x1 / 3, "2 * x1 / 3"), (x1**2, "x1 ^ 2"), (x1**-2, "inv(x1 ^ 2)"),
    (x1**x2, "x1 ^ x2"), (sympy.sqrt(x1), "sqrt(x1)"), (1 / sympy.sqrt(x1), "inv(sqrt(x1))"),
    (x1 * x2**-2 / p1, "x1 / (p1 * x2 ^ 2)"), (x1 ** Rational(1, 3), "x1 ^ 0.3333333333333333"),
    (sympy.exp(-x1), "exp(-x1)"), (sympy.log(x1), "log(x1)"), (sympy.log(x1, 10, evaluate=False), "log10(x1)"),
    (sympy.log(x1, 3, evaluate=False), "log(x1) / log(3)"), (sympy.Pow(sympy.E, x1, evaluate=False), "exp(x1)"),
    (sympy.real_root(x1, 3), "abs(x1) ^ 0.3333333333333333 * sign(x1)"), (sympy.real_root(x1, 4), "x1 ^ 0.25"),
    (sympy.Abs(x1).diff(x1), "sign(x1)"), (sympy.re(x1) * sympy.conjugate(x2) + sympy.im(x1), "x1 * x2"),
    (sympy.frac(x1), "x1 - floor(x1)"),
    (sympy.SingularityFunction(x1, 1, 2), "cond(greaterequal(x1, 1), (x1 - 1) ^ 2)"),
    (sympy.Max(x1, x2, p1), "max(max(p1, x1), x2)"), (sympy.Abs(x1), "abs(x1)"), (sympy.ceiling(x1), "ceil(x1)"),
    (sympy.Function("relu")(x1), "relu(x1)"), (sympy.Function("powabs")(x1, x2), "powabs(x1, x2)"),
    (sympy.pi * x1, "pi * x1"), (sympy.oo, "inf"), (-sympy.oo, "-inf"), (sympy.nan, "nan"),
    (sympy.E, "2.718281828459045"),
    (sympy.GoldenRatio, "1.618033988749895"), (sympy.Integer(7), "7"), (sympy.Float(0.1), "0.1"),
    (x1 > x2, "greater(x1, x2)"), (sympy.And(x1 > 0, x2 <= 1), None),
    (sympy.Eq(x1, x2), "logical_and(lessequal(x1, x2), greaterequal(x1, x2))"),
    (sympy.Ne(x1, 2), "lessequal(logical_and(lessequal(x1, 2), greaterequal(x1, 2)), 0)"),
    (x1 * sympy.UnevaluatedExpr(x2 + x2), "x1 * (2 * x2)"),
    (sympy.true, "1"), (sympy.false, "0"), (sympy.Not(sympy.And(x1 > 0, x2 > 0), evaluate=False), None),
    (sympy.ITE(x1 > 0, x2 > 0, x2 > 1), None),
    (sympy.Piecewise((1, x1 > 0), (0, True)), "greater(x1, 0)"),
    (sympy.Piecewise((x2, x1 > 0), (0, True)), "cond(greater(x1, 0), x2)"),
    (sympy.Piecewise((x1, x1 > 0), (x2, True)), "cond(greater(x1, 0), x1) + cond(lessequal(greater(x1, 0), 0), x2)"),
    (sympy.Piecewise((x1, x1 > 0)), "cond(greater(x1, 0), x1) + cond(lessequal(greater(x1, 0), 0), nan)"),
    (cfunctions.log1p(x1), "log1p(x1)"), (cfunctions.Cbrt(x1), "cbrt(x1)"),
]  # fmt: skip


@pytest.mark.parametrize(("obj", "text"), READ, ids=[str(obj) for obj, _ in READ])
def test_read(obj, text):
    expression = ek.parse(obj)[0]
    if text is not None:
        assert str(expression) == text
    assert ek.parse([obj, "x1"])[0] == expression


@pytest.mark.parametrize("name", ops.COMPOSED)
def test_names_of_two_operators_are_read(name):
    assert ek.parse(2 * getattr(sympy, name)(x1)) == ek.parse(f"2 * {name}(x1)")


@pytest.mark.parametrize("function", [sympy.sinc, sympy.Heaviside, sympy.factorial, lambda x: sympy.beta(2, x)])
def test_what_sympy_writes_with_other_functions_is_read(function):
    x = np.array([[0.0], [0.5], [2.0], [-1.5]])
    wanted = [complex(function(sympy.Rational(number)).evalf()).real for (number,) in x[1:].tolist()]
    found = ek.Evaluator(ek.parse(function(x1)), x, "numpy", dtype="float64").evaluate()[0]
    assert found[1:] == pytest.approx(np.array(wanted), rel=1e-12)
    if function is sympy.sinc:
        assert found[0] == 1


@pytest.mark.parametrize("row", ops.OPERATORS, ids=lambda row: row.name)
def test_every_operator_has_the_same_values_in_sympy_in_its_numpy_and_back(row):
    rng, symbols = np.random.default_rng(row.code), [x1, x2][: row.arity]
    at = [rng.uniform(low, high, 6) for low, high in row.domain[: row.arity]]
    if row.domain[0] == ops.ANY:  # halves, whole numbers, 0
        more = [0.5, -0.5, 1.5, 2.5, -2.5, 3, 0], [1, 2, 0.5, 2.5, 2, 3, 1]
        at = [np.append(one, further) for one, further in zip(at, more, strict=False)]
    with np.errstate(divide="ignore"):
        finite = np.isfinite(row.numpy(*at))
    at = [one[finite] for one in at]
    wanted = row.numpy(*at)
    obj = ek.parse(f"{row.name}({', '.join(map(str, symbols))})")[0].sympy()
    made = sympy.lambdify(symbols, obj, ["scipy", "numpy"] if "special." in row.python else "numpy")
    assert np.broadcast_to(made(*at), wanted.shape) == pytest.approx(wanted, rel=1e-12, abs=1e-14)
    numbers = [[sympy.Float(number) if number % 1 else sympy.Integer(int(number)) for number in one] for one in at]
    for point, number in zip(zip(*numbers, strict=True), wanted, strict=True):
        value = complex(obj.subs(dict(zip(symbols, point, strict=True))).evalf())
        assert value == pytest.approx(number, rel=1e-12, abs=1e-14)
    for read in (obj, obj.doit()):
        pop, X = ek.parse(read, variables=2), np.stack([at[0], at[-1]], 1)
        back = ek.Evaluator(pop, X, "numpy", dtype="float64").evaluate()[0]
        assert back == pytest.approx(wanted, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("text", ["relu(x1 - 1)", "max(x1 - 2, 1) + 1", "abs(x1 - 7)"])
def test_numbers_in_place_of_symbols_make_a_number(text):
    value = ek.parse(text)[0].sympy().subs(x1, 3)
    assert value == int(ek.Evaluator(ek.parse(text), [[3.0]], "numpy").evaluate().item())


def test_every_class_that_the_table_names_exists_and_is_read():
    places = (sympy, cfunctions, relational)
    for row in ops.OPERATORS:
        for name in row.sympy_class:
            if name in ("Add", "Mul", "Pow", "Piecewise"):
                continue
            found = next((getattr(place, name) for place in places if hasattr(place, name)), sympy.Function(name))
            operands = (x1 > 1, x2 > 1) if name in ("And", "Or") else (x1, x2)[: row.arity]
            assert ek.parse(found(*operands))[0].values[-1] == row.code


# ── constants ────────────────────────────────────────────────────────────────────────


@given(st.floats(allow_nan=False))
def test_floats_keep_their_bits(number):
    expected = number if number else 0.0  # SymPy has no -0
    assert ek.parse(sympy.Float(number)).values.view(np.float64)[0].tobytes() == np.float64(expected).tobytes()
    assert ek.parse(x1 + constant(number).sympy())[0].kinds.tolist().count(CONSTANT) == (number != 0 or 0)
    back = ek.parse(constant(number).sympy())[0]
    assert back == constant(expected)


@given(st.integers(-(2**80), 2**80), st.integers(1, 2**80))
def test_rationals_are_correctly_rounded(numerator, denominator):
    assert ek.parse(Rational(numerator, denominator)).values.view(np.float64)[0] == numerator / denominator


@given(st.integers(2**200, 2**201), st.integers(-1400, 900))
def test_long_floats_are_correctly_rounded(mantissa, exponent):
    number = sympy.Float((0, mantissa, exponent, 201), precision=201)
    expected = np.inf
    if exponent < 823:
        expected = mantissa * 2**exponent / 1 if exponent >= 0 else mantissa / 2**-exponent
    assert ek.parse(number).values.view(np.float64)[0] == expected


def test_huge_exponents_are_quick():
    huge = sympy.Float((0, 1, 10**9, 1), precision=53)
    assert ek.parse([huge, -huge, 1 / huge]).values.view(np.float64).tolist() == [np.inf, -np.inf, 0]


# ── round trips ──────────────────────────────────────────────────────────────────────


def _constants(expression: ek.Expression) -> list[int]:
    return sorted(expression.values[expression.kinds == CONSTANT].tolist())


@st.composite
def _trees(draw):
    unary = [row for row in ops.OPERATORS if row.arity == 1]
    own_class = [row for row in unary if type(row.sympy(sympy, x1)).__name__ in row.sympy_class]
    rows = [row for row in ops.OPERATORS if row.infix] + own_class
    leaves = st.sampled_from(ek.variables(3) + ek.parameters(2)) | (
        st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: x != 0 or str(x) == "0.0").map(constant)
    )
    return draw(st.recursive(
        leaves,
        lambda trees: st.builds(
            lambda row, a, b: applied(row, *(a, b)[: row.arity]), st.sampled_from(rows), trees, trees
        ),
        max_leaves=12,
    ))  # fmt: skip


@pytest.mark.slow
@given(_trees())
def test_round_trip_keeps_every_constant(expression):
    back = ek.parse(expression.sympy())[0]
    assert _constants(back) == _constants(expression)


@pytest.mark.parametrize("row", ops.OPERATORS, ids=lambda row: row.name)
def test_round_trip_means_the_same(row):
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.uniform(*row.domain[k if k < len(row.domain) else 0], 200) for k in (0, 1)])
    expression = getattr(ek, row.name)(*ek.variables(2)[: row.arity])
    back = ek.parse(expression.sympy())[0]
    want, got = ek.Evaluator(ek.parse([expression, back]), X, backend="numpy", dtype="float64").evaluate()
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)


def test_round_trip_of_the_sample(root):
    pop = ek.parse(root / "data" / "esr_sample.txt")
    back = ek.parse([expression.sympy() for expression in pop])
    X = np.random.default_rng(2).uniform(0.1, 3, (50, 2))
    params = np.full((len(pop), pop.max_params), 0.7)
    want, got = (ek.Evaluator(p, X, backend="numpy", dtype="float64").evaluate(params) for p in (pop, back))
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_random_trees_are_written_or_refused():
    # conditions inside conditions take SymPy seconds each
    rows = [row for row in ops.OPERATORS if not isinstance(row.sympy(sympy, *(x1, x2)[: row.arity]), sympy.Piecewise)]
    written = 0
    for expression in random_population(400, seed=4, most_tokens=12, rows=rows):
        try:
            obj = expression.sympy()
        except ExprkitError as error:
            assert "SymPy cannot hold" in str(error)
            continue
        written += 1
        assert isinstance(obj, sympy.Basic)
        ek.parse(obj)
    assert written > 300


def test_written_constants_and_names():
    a, b = ek.variables("r_k", "log_Re")
    obj = (a**2 * 0.1 - 3 / b).sympy()
    assert obj.free_symbols == set(symbols("r_k log_Re"))
    assert obj.atoms(sympy.Float) == {sympy.Float(0.1)} and sympy.Integer(2) in obj.atoms()
    assert ek.parse(obj, variables=["r_k", "log_Re"])[0] == a**2 * 0.1 - 3 / b
    assert str(sympy.diff(obj, "r_k")) == "0.2*r_k"


def test_deep_objects():
    expression = ek.parse("-" * 30_000 + "x1")[0]
    assert ek.parse(expression.sympy())[0] == expression
    deep = x1
    for _ in range(5_000):
        deep = sympy.sin(deep, evaluate=False)
    assert ek.parse(deep)[0].n_tokens == 5_001


# ── messages ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (sympy.Symbol("y"), "unknown symbol 'y'; name the variables by variables=[...]"),
        (sympy.Symbol("X1"), "unknown symbol 'X1'; did you mean 'x1'?"),
        (sympy.Symbol("exp"), "unknown symbol 'exp'; name the variables by variables=[...]"),
        (sympy.Symbol('__import__("os")'),
         "unknown symbol '__import__(\"os\")'; name the variables by variables=[...]"),
        (sympy.Symbol("x1\n\x1b[31m"), "unknown symbol 'x1 \ufffd[31m'; name the variables by variables=[...]"),
        (sympy.Function("tann")(x1), "the SymPy function 'tann' is not in exprkit's table; did you mean 'tan'?"),
        (sympy.Function("cot")(x1, x2), "the SymPy function 'cot' is not in exprkit's table; did you mean 'cos'?"),
        (sympy.Function("sqrtt")(x1), "the SymPy function 'sqrtt' is not in exprkit's table; did you mean 'sqrt'?"),
        (sympy.Function("exp")(x1, x2), "the SymPy function 'exp' has 2 arguments here, not 1"),
        (sympy.I * x1, "exprkit has real numbers only, and no ImaginaryUnit"),
        (sympy.zoo, "exprkit has real numbers only, and no ComplexInfinity"),
        (sympy.polygamma(2, x1), "the SymPy function 'polygamma' is not in exprkit's table; did you mean 'lgamma'?"),
        (sympy.Integral(x1, x1), "the SymPy class 'Integral' is not in exprkit's table"),
        (sympy.Tuple(x1, x2), "the SymPy class 'Tuple' is not in exprkit's table"),
    ],
)  # fmt: skip
def test_message(obj, message):
    with pytest.raises(ParseError) as caught:
        ek.parse(obj)
    assert str(caught.value) == message
    pop = ek.parse(["x1", obj], errors="mask")
    assert pop.errors[1] == f"expression 1: {message}" and pop.valid.tolist() == [True, False]


def test_shared_parts_count_as_often_as_they_stand():
    obj = x1
    for _ in range(40):
        obj = sympy.Add(obj, obj, evaluate=False)
    with pytest.raises(ParseError, match="the expression has too many tokens; the limit is 65,535"):
        ek.parse(obj)


def test_given_names():
    r, k = symbols("r_k log_Re")
    assert words(ek.parse(r * k, variables=["r_k", "log_Re"])[0]) in ("x1 x2 mul", "x2 x1 mul")
    with pytest.raises(ParseError, match="unknown symbol 'x1'"):
        ek.parse(x1, variables=["r_k", "log_Re"])
    assert ek.parse(["r_k", r + 1, x1], variables=["r_k"], errors="mask").valid.tolist() == [True, True, False]
