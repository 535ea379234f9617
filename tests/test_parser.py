"""The parser: its grammar, its numbers, its messages, its limits, and that nothing breaks it."""

# ruff: noqa: E501  (a pinned message stands on one line)

from __future__ import annotations

import ast
import decimal
import io
import re
import sys
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from postfix_text import words
from scipy import special

import exprkit as ek
from exprkit import errors
from exprkit.errors import ArgumentError, ExprkitError, ParseError
from exprkit.operators import ops
from exprkit.text import decimals, parse_errors, shunting_yard

# ── grammar ──────────────────────────────────────────────────────────────────────────

GRAMMAR = {
    "x1": "x1",
    "p12": "p12",
    " ( x1 ) ": "x1",
    "x1+x2": "x1 x2 add",
    "x1 - x2 - x3": "x1 x2 sub x3 sub",
    "x1 - (x2 - x3)": "x1 x2 x3 sub sub",
    "x1 / x2 * x3": "x1 x2 div x3 mul",
    "x1 + x2 * x3 ^ x4": "x1 x2 x3 x4 pow mul add",
    "x1 ^ x2 ^ x3": "x1 x2 x3 pow pow",
    "x1 ** x2 ** x3": "x1 x2 x3 pow pow",
    "(x1 ^ x2) ^ x3": "x1 x2 pow x3 pow",
    "-x1^2": "x1 2.0 pow neg",
    "-2^x1": "2.0 x1 pow neg",
    "-2 ** x1": "2.0 x1 pow neg",
    "(-2)^x1": "-2.0 x1 pow",
    "2^-x1^2": "2.0 x1 2.0 pow neg pow",
    "2^-1": "2.0 -1.0 pow",
    "x1 ^ -x2 * x3": "x1 x2 neg pow x3 mul",
    "-x1 * x2": "x1 neg x2 mul",
    "-x1 + x2": "x1 neg x2 add",
    "x1 * -2 + x2": "x1 -2.0 mul x2 add",
    "x1 - -2": "x1 -2.0 sub",
    "x1 - -x2": "x1 x2 neg sub",
    "-(2)": "2.0 neg",
    "--2": "-2.0 neg",
    "- - -x1": "x1 neg neg neg",
    "+x1 + +2": "x1 2.0 add",
    "-+2": "2.0 neg",
    "+-2": "-2.0",
    "-0": "-0.0",
    "1//0": "inf",
    "-1//0": "-inf",
    "0//3": "0.0",
    "1 // 4": "0.25",
    "x1 * 1//0": "x1 inf mul",
    "x1 / 1//2": "x1 0.5 div",
    "x1 ^ (1//2)": "x1 0.5 pow",
    "(1//2) ^ x1": "0.5 x1 pow",
    "1//2 + -1//2": "0.5 -0.5 add",
    "inf + Inf - Inf32": "inf inf add inf sub",
    "-inf": "-inf",
    "nan * NaN": "nan nan mul",
    "-nan": "nan",
    "pi + π - -pi": "3.141592653589793 3.141592653589793 add -3.141592653589793 sub",
    "1. + .5 + 1.e1 + 1E-3 + 1e+3": "1.0 0.5 add 10.0 add 0.001 add 1000.0 add",
    "1f0 + 1.1f0 + 1.5f-3": f"1.0 1.100000023841858 add {float(np.float32('1.5e-3'))!r} add",
    "exp(-x1)": "x1 neg exp",
    "exp (x1)": "x1 exp",
    "max(x1, 2)": "x1 2.0 max",
    "max(x1, x2, x3, x4)": "x1 x2 max x3 max x4 max",
    "min(x1, max(x2, x3, 1), 4)": "x1 x2 x3 max 1.0 max min 4.0 min",
    "add(x1, x2, x3)": "x1 x2 add x3 add",
    "sub(x1, neg(x2))": "x1 x2 neg sub",
    "pow(x1, 2)": "x1 2.0 pow",
    "pow(-2, 2) ^ 2": "-2.0 2.0 pow 2.0 pow",
    "arctan(ln(square(x1)))": "x1 sqr log atan",
    "x1\n\t+ x2\r\n": "x1 x2 add",
    "2^sec(x1)^-cot(x2) * -csc(3)": "2.0 x1 cos inv x2 tan inv neg pow pow 3.0 sin inv neg mul",
    "max(acot(sech(x1)), x2, x3)": "x1 cosh inv inv atan x2 max x3 max",
}


@pytest.mark.parametrize("text", GRAMMAR)
def test_grammar(text):
    assert words(ek.parse(text)[0]) == GRAMMAR[text]


def test_every_spelling_of_the_table_is_a_function():
    for spelling, row in ops.BY_SPELLING.items():
        expression = ek.parse(f"{spelling}({', '.join(['x1', 'x2'][: row.arity])})")[0]
        assert expression.values[-1] == row.code
    for row in ops.OPERATORS:
        if row.infix:
            text = f"x1 {row.infix} x2" if row.arity == 2 else f"{row.infix}x1"
            assert ek.parse(text)[0].values[-1] == row.code


@pytest.mark.parametrize("name", ops.COMPOSED)
def test_names_of_two_operators_mean_what_mpmath_has(name):
    x = np.array([[1.3], [2.5], [0.3], [-1.7]])
    y = ek.Evaluator(ek.parse(f"{name}(x1)"), x, "numpy", dtype="float64").evaluate()
    for (number,), found in zip(x.tolist(), y[0].tolist(), strict=True):
        wanted = getattr(mpmath, name)(number)
        assert np.isnan(found) if isinstance(wanted, mpmath.mpc) else found == pytest.approx(float(wanted), rel=1e-12)


def test_a_name_of_two_operators_is_free_for_others():
    assert ek.parse("60 * sec", variables=["sec"]).texts() == ["60 * sec"]
    assert ek.parse("cot + sec(x1)", parameters=["cot"]).texts() == ["cot + inv(cos(x1))"]


def _by_python(text: str, x: dict[str, np.ndarray]) -> np.ndarray:
    """What Julia means by a line of the sample, through Python's own grammar."""
    text = re.sub(r"\b1//0\b", "inf", text).replace("^", "**")
    binary = {ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.divide, ast.Pow: np.power}
    functions = {"abs": np.abs, "inv": lambda a: 1 / a, "sqr": lambda a: a * a}

    def value(node):
        if isinstance(node, ast.Constant):
            return np.float64(node.value)
        if isinstance(node, ast.Name):
            return np.float64(np.inf) if node.id == "inf" else x[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand)
        if isinstance(node, ast.BinOp):
            return binary[type(node.op)](value(node.left), value(node.right))
        assert isinstance(node, ast.Call)
        return functions[node.func.id](*map(value, node.args))

    with np.errstate(all="ignore"):
        return np.broadcast_to(value(ast.parse(text, mode="eval").body), x["x1"].shape)


def test_every_line_of_the_sample_means_what_julia_means(root):
    lines = (root / "data" / "esr_sample.txt").read_text().split("\n")[:-1]
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.normal(size=(50, 2)), [[0.0, 1.0], [-0.0, 2.0], [1.0, 0.0], [-1.0, -2.0]]])
    pop = ek.parse(root / "data" / "esr_sample.txt")
    params = np.tile([0.7, -1.3], (len(pop), 1))
    got = ek.Evaluator(pop, X, backend="numpy", dtype="float64").evaluate(params[:, : pop.max_params])
    names = {"x1": X[:, 0], "x2": X[:, 1], "p1": np.full(len(X), 0.7), "p2": np.full(len(X), -1.3)}
    assert len(lines) == len(pop) == 247
    for line, row in zip(lines, got, strict=True):
        np.testing.assert_array_equal(row, _by_python(line, names), err_msg=line)


# ── numbers ──────────────────────────────────────────────────────────────────────────


def _bits(texts):
    return ek.parse(texts).values


def test_numbers_are_correctly_rounded():
    rng = np.random.default_rng(2)
    texts = [
        f"{rng.integers(0, 10**k)}.{rng.integers(0, 10**9)}e{rng.integers(-40, 40)}"
        for k in range(1, 19)
        for _ in range(500)
    ]
    texts += [f"{rng.integers(10**17, 10**18)}e{e}" for e in range(-345, 312) for _ in range(5)]
    texts += [repr(x) for x in rng.integers(0, 0x7FF0 << 48, 20_000).view(np.float64).tolist()]
    texts += ["2.2250738585072011e-308", "4.9e-324", "2.4e-324", "2.5e-324", "1.7976931348623158e308", "1.7976931348623159e308", "1e400", "1e-400", "0e999999999999", "1e99999999999", "000.000"]  # fmt: skip
    np.testing.assert_array_equal(_bits(texts), np.array([float(text) for text in texts]).view(np.uint64))


@given(st.integers(0, 2**53 - 1), st.integers(-30, 30), st.integers(-2, 2), st.booleans())
def test_halfway_cases_and_long_digits(mantissa, exponent, nudge, cut):
    """The exact middle of two float64, and its neighbours in the last of many digits."""
    middle = Fraction(2 * (mantissa | 1 << 52) + 1) * Fraction(2) ** exponent
    digits = f"{middle.numerator * 10**60 // middle.denominator + nudge}e-60"
    text = digits[: len(digits) - 5 - 10 * cut] + digits[len(digits) - 4 :] if cut else digits
    assert ek.parse(text).values.view(np.float64)[0] == float(text)


def test_float32_literals_are_rounded_once():
    rng = np.random.default_rng(3)
    singles = rng.integers(0, 0x7F800000, 3000).astype(np.uint32).view(np.float32)
    texts = [f"{text}f{power or 0}" for text, _, power in (str(single).partition("e") for single in singles)]
    np.testing.assert_array_equal(_bits(texts).view(np.float64), singles.astype(np.float64))
    # a hair above the middle of 1 and the next float32: float64 would round it to the middle, then to even
    assert ek.parse("1.00000005960464477540f0").values.view(np.float64)[0] == float(
        np.nextafter(np.float32(1), np.float32(2))
    )
    edges = ["3.5e38", "1f-60", "3.5f38", "3.4028235677973367f38", "3.4028235677973366f38"]
    largest = float(np.finfo(np.float32).max)
    assert _bits(edges).view(np.float64).tolist() == [3.5e38, 0, np.inf, np.inf, largest]


def single(number: Fraction) -> float:
    """The float32 nearest to a positive number, ties to even, by whole numbers."""
    exponent = max(number.numerator.bit_length() - number.denominator.bit_length() - 24, -149)
    while number / Fraction(2) ** exponent >= 1 << 24:
        exponent += 1
    if exponent > 104:
        return float("inf")
    rounded = round(number / Fraction(2) ** exponent) * Fraction(2) ** exponent  # to even
    return float(rounded) if rounded < 1 << 128 else float("inf")


@st.composite
def literals(draw):
    """Literals in all forms; many of them near the middle of two float32 or at the ends of their range."""
    if draw(st.booleans()):
        digits = draw(st.integers(0, 10 ** draw(st.integers(0, 60))))
        exponent = draw(st.integers(-400, 400) | st.integers(-60, 60))
    else:
        below = draw(st.integers(0, 0x7F7FFFFF))
        low = Fraction(float(np.uint32(below).view(np.float32)))
        high = Fraction(float(np.uint32(below + 1).view(np.float32))) if below < 0x7F7FFFFF else Fraction(2) ** 128
        digits = (low + high) / 2 * 10**160 // 1 + draw(st.sampled_from([-(10**140), -1, 0, 1, 10**130]))
        exponent = -160
    digits = str(max(digits, 0))
    point = draw(st.integers(0, len(digits)))
    text = f"{draw(st.sampled_from(['', '0', '000']))}{digits[:point]}.{digits[point:]}"
    exponent += len(digits) - point
    return text if text[0] != "." or len(text) > 1 else "0.", exponent


@pytest.mark.slow
@settings(max_examples=500)
@given(literals(), st.sampled_from("fffeE"))
def test_every_literal_is_rounded_once(literal, letter):
    text, exponent = literal
    number = Fraction(text) * Fraction(10) ** exponent
    expected = single(number) if letter == "f" else float(f"{text}e{exponent}")
    assert ek.parse(f"{text}{letter}{exponent}").values.view(np.float64).tolist() == [expected]


HUGE = [f"{digits}{letter}{sign}{exponent}" for digits in ("1.2345678901234567890123", ".00012345678901234567890123",
    "99999999999999999999999999", "1" * 900, "0." + "0" * 900 + "9" * 30) for letter in "eEf" for sign in ("", "+", "-")
    for exponent in ("999999", "99999", "9999999999", "9" * 60)]  # fmt: skip


def test_literals_far_outside_take_no_time():
    texts = [text for text in HUGE for _ in range(60)]
    values = _bits(texts).view(np.float64)
    assert len(texts) > 10_000
    assert values.tolist() == [0.0 if "-" in text else np.inf for text in texts]
    together = ek.parse(" + ".join(HUGE)).values.view(np.float64)
    assert np.isin(values[::60], together).all()


@pytest.mark.parametrize("text", ["1" * 10**6, "0." + "0" * 10**6 + "1", "1e" + "9" * 10**6, "1//" + "7" * 10**6])
def test_a_million_digits_are_refused_at_once(text):
    with pytest.raises(ParseError, match=r"the number has too many digits; the limit is 1,000"):
        ek.parse(text)


def test_exact_values_are_small_numbers(monkeypatch):
    """Only in the middle of two float32 is the exact value of a literal looked at."""
    seen = []

    class Counting(decimal.Decimal):
        def __new__(cls, value):
            seen.append(value)
            return super().__new__(cls, value)

    monkeypatch.setattr(decimals, "Decimal", Counting)
    assert decimals.nearest_single("1.00000005960464477540") > 1
    assert decimals.nearest_single("1.2345678901234567890123e999999") == np.inf
    assert decimals.nearest_single("1.2345678901234567890123e-999999") == 0
    assert decimals.nearest_single("1.2345678901234567890123") == np.float32(1.2345679)
    assert seen == ["1.00000005960464477540"]


def test_fractions_are_correctly_rounded():
    rng = np.random.default_rng(4)
    pairs = [(int(rng.integers(0, 10**k)), int(rng.integers(1, 10**k))) for k in range(1, 19) for _ in range(100)]
    pairs += [(10**30 + 1, 3), (3, 10**30 + 1), (10**400, 1), (1, 10**400), (10**400, 10**399)]
    texts = [f"{a}//{b}" for a, b in pairs]
    expected = [float("inf") if a == 10**400 and b == 1 else float(Fraction(a, b)) for a, b in pairs]
    assert _bits(texts).view(np.float64).tolist() == expected
    assert ek.parse(f"-{10**30}//3").values.view(np.float64)[0] == -float(Fraction(10**30, 3))


# ── messages ─────────────────────────────────────────────────────────────────────────

MESSAGES = {
    "": "the text is empty",
    " \t": "the text is empty",
    "x1 +": "expected a number, a name or '(', found the end of the text\n    x1 +\n        ^",
    "x1 * / x2": "expected a number, a name or '(', found '/'\n    x1 * / x2\n         ^",
    "x1 ***x2": "expected a number, a name or '(', found '*'\n    x1 ***x2\n         ^",
    "2x1": "expected an operator, found 'x1'; to multiply, write 2 * x1\n    2x1\n     ^^",
    "x1 x2": "expected an operator, found 'x2'; to multiply, write x1 * x2\n    x1 x2\n       ^^",
    "x1 3.5": "expected an operator, found '3.5'; to multiply, write x1 * 3.5\n    x1 3.5\n       ^^^",
    "(x1)(x2)": "expected an operator, found '('; to multiply, write (…) * (…)\n    (x1)(x2)\n        ^",
    "x1(x2)": "'x1' is not a function; to multiply, write x1 * (…)\n    x1(x2)\n      ^",
    "x1 + sqrtt(x2)": "unknown function 'sqrtt'; did you mean 'sqrt'?\n    x1 + sqrtt(x2)\n         ^^^^^",
    "EXP(x1)": "unknown function 'EXP'; did you mean 'exp'?\n    EXP(x1)\n    ^^^",
    "1 + sec(x1, 2)": "'sec' takes 1 argument, 2 given\n    1 + sec(x1, 2)\n        ^^^",
    "sec()": "'sec' takes 1 argument, none given\n    sec()\n        ^",
    "sec x1": "'sec' is a function: write sec(…)\n    sec x1\n    ^^^",
    "sinc(x1)": "unknown function 'sinc': sinc(a) is written cond(abs(a), sin(pi * a) / (pi * a)) + lessequal(abs(a), 0)\n"
                "    sinc(x1)\n    ^^^^",
    "not x1": "unknown name 'not': not(a) is written lessequal(a, 0)\n    not x1\n    ^^^",
    "x1 and x2": "'and' is no operator: and(a, b) is written logical_and(a, b)\n    x1 and x2\n       ^^^",
    "mult(x1, x2)": "unknown function 'mult'; did you mean 'mul'?\n    mult(x1, x2)\n    ^^^^",
    "grad(x1)": "unknown function 'grad'; exprkit.operator defines functions of your own\n    grad(x1)\n    ^^^^",
    "0 < x1 < 1": "a comparison of a comparison, which is 0 or 1: write (a < b) * (b < c) for a < b < c\n"
                  "    0 < x1 < 1\n           ^",
    "x1 == x2": "unexpected character '=='; write (a <= b) * (a >= b)\n    x1 == x2\n       ^",
    "y = p1 * x1": "an expression has no '=': leave out 'y ='\n    y = p1 * x1\n    ^",
    "f(x1)": "unknown function 'f'; exprkit.operator defines functions of your own\n    f(x1)\n    ^",
    "1 + np.linalg.sin(x1)": "unknown name 'np'; functions stand without a module: write sin(…)\n    1 + np.linalg.sin(x1)\n        ^^",
    "X1": "unknown name 'X1'; did you mean 'x1'?\n    X1\n    ^^",
    "foo": "unknown name 'foo'; variables are x1, x2, …; parameters are p1, p2, …; for other names say variables=[...] or data=table\n    foo\n    ^^^",
    "infinty": "unknown name 'infinty'; did you mean 'inf'?\n    infinty\n    ^^^^^^^",
    "x0 + 1": "'x0': variables are counted from 1\n    x0 + 1\n    ^^",
    "p0": "'p0': parameters are counted from 1\n    p0\n    ^^",
    "exp + 1": "'exp' is a function: write exp(…)\n    exp + 1\n    ^^^",
    "exp()": "'exp' takes 1 argument, none given\n    exp()\n        ^",
    "()": "nothing between the parentheses\n    ()\n     ^",
    "max(x1)": "'max' takes 2 or more arguments, 1 given\n    max(x1)\n    ^^^",
    "1 + pow(x1, 2, 3)": "'pow' takes 2 arguments, 3 given\n    1 + pow(x1, 2, 3)\n        ^^^",
    "max(x1,, x2)": "expected a number, a name or '(', found ','\n    max(x1,, x2)\n           ^",
    "(x1 + 2": "this '(' is never closed\n    (x1 + 2\n    ^",
    "1 + exp(x1": "the '(' of 'exp' is never closed\n    1 + exp(x1\n        ^^^",
    "x1)": "this ')' closes nothing\n    x1)\n      ^",
    "1,5": "a comma outside of a function's arguments (decimals are written with a point: 1.5)\n    1,5\n     ^",
    "x1//2": "'//' makes a fraction of two whole numbers, like 1//3; to divide, write /\n    x1//2\n      ^^",
    "1//x1": "'//' makes a fraction of two whole numbers, like 1//3; to divide, write /\n    1//x1\n    ^^^",
    "1.5//2": "'//' makes a fraction of two whole numbers, like 1//3; to divide, write /\n    1.5//2\n       ^^",
    "1//2//3": "'//' makes a fraction of two whole numbers, like 1//3; to divide, write /\n    1//2//3\n    ^^^^",
    "x1^1//2": "a fraction next to a power can be read in two ways; put parentheses around the one that is meant first\n"
               "    x1^1//2\n       ^^^^",
    "x1^-1//2": "a fraction next to a power can be read in two ways; put parentheses around the one that is meant first\n"
                "    x1^-1//2\n        ^^^^",
    "1//2^x1": "a fraction next to a power can be read in two ways; put parentheses around the one that is meant first\n"
               "    1//2^x1\n    ^^^^",
    "0//0": "0//0 has no value; write nan if that is meant\n    0//0\n    ^^^^",
    "1e": "the exponent of '1e' has no digits\n    1e\n     ^",
    "2.5e+": "the exponent of '2.5e' has no digits\n    2.5e+\n       ^",
    "1.2.3": "expected an operator, found '.3'\n    1.2.3\n       ^^",
    "x1 .* x2": "unexpected '.'; elementwise operators need no dot here\n    x1 .* x2\n       ^",
    "x1 $ 2": "unexpected character '$'\n    x1 $ 2\n       ^",
    "x1 = 2": "an expression has no '=': leave out 'x1 ='\n    x1 = 2\n       ^",
    "x1 + 2 => 1": "unexpected character '='\n    x1 + 2 => 1\n           ^",
    "x1 × x2": "unexpected character '×'; write *\n    x1 × x2\n       ^",
    "x1 − 1": "unexpected character '−'; write -\n    x1 − 1\n       ^",
    "x1²": "unexpected character '²'; write ^2\n    x1²\n      ^",
    "x65536": "'x65536': variables go up to x65535\n    x65536\n    ^^^^^^",
    "p99999999999": "'p99999999999': parameters go up to p65535\n    p99999999999\n    ^^^^^^^^^^^^",
    "x1.__class__": "unexpected '.'; elementwise operators need no dot here\n    x1.__class__\n      ^",
    "__import__('os')": "unknown function '__import__'; exprkit.operator defines functions of your own\n    __import__('os')\n"
        "    ^^^^^^^^^^",
    "lambda: 0": "unknown name 'lambda'; variables are x1, x2, …; parameters are p1, p2, …; for other names say variables=[...] or data=table\n    lambda: 0\n    ^^^^^^",
    "x1 + <b>": "expected a number, a name or '(', found '<'\n    x1 + <b>\n         ^",
    "äöü + 1": "unknown name 'äöü'; variables are x1, x2, …; parameters are p1, p2, …; for other names say variables=[...] or data=table\n    äöü + 1\n    ^^^",
    "日本 + $": "unknown name '日本'; variables are x1, x2, …; parameters are p1, p2, …; for other names say variables=[...] or data=table\n    日本 + $\n    ^^^^",
    "pi * äx + π": "unknown name 'äx'; variables are x1, x2, …; parameters are p1, p2, …; for other names say variables=[...] or data=table\n    pi * äx + π\n         ^^",
    "\tx1\n+ * 2": "expected a number, a name or '(', found '*'\n     x1 + * 2\n          ^",
    "x1 \0 x2": "unexpected character '\ufffd'\n    x1 \ufffd x2\n       ^",
    "x1 \x1b[31m": "unexpected character '\ufffd'\n    x1 \ufffd[31m\n       ^",
}  # fmt: skip


@pytest.mark.parametrize("text", MESSAGES)
def test_message(text):
    with pytest.raises(ParseError) as caught:
        ek.parse(text)
    assert str(caught.value) == MESSAGES[text]


def test_every_error_has_a_message_that_is_pinned():
    limits = {
        shunting_yard.TOO_MANY_BYTES,
        shunting_yard.TOO_MANY_TOKENS,
        shunting_yard.TOO_DEEP,
        shunting_yard.TOO_MANY_DIGITS,
    }
    pop = ek.parse(list(MESSAGES), errors="mask")
    seen = {fault.code for fault in pop._faults.values()}
    assert set(parse_errors.REASONS) == seen | limits


def test_a_long_text_is_shown_around_the_place():
    text = "x1 + " * 100 + "$ + x2" + " * x2" * 100
    with pytest.raises(ParseError) as caught:
        ek.parse(text)
    _, line, carets = str(caught.value).split("\n")
    assert line.startswith("    … ") and line.endswith(" …") and len(line) < 90
    assert line[carets.index("^")] == "$"


def test_a_batch_names_the_first_bad_ones():
    texts = ["x1"] * 20
    for index in range(3, 17, 2):
        texts[index] = f"x1 + * {index}"
    with pytest.raises(ParseError) as caught:
        ek.parse(texts)
    one = "expected a number, a name or '(', found '*'\n    x1 + * {0}\n         ^"
    shown = "\n\n".join(f"expression {index}: {one.format(index)}" for index in (3, 5, 7, 9, 11))
    assert str(caught.value) == (
        f'7 of 20 expressions could not be read (numbered from 0)\n\n{shown}\n\n… and 2 more; errors="mask" keeps the good ones'
    )
    assert caught.value.indices == (3, 5, 7, 9, 11, 13, 15)


def test_mask_keeps_the_good_ones():
    pop = ek.parse(["x1", "x1 +", None, "p1 * x1", 3.5, "y"], errors="mask")
    assert pop.valid.tolist() == [True, False, False, True, False, False]
    assert pop.texts() == ["x1", "", "", "p1 * x1", "", ""]
    assert list(pop.errors) == [1, 2, 4, 5]
    assert pop.errors[1].startswith("expression 1: expected a number")
    assert pop.errors[2] == "expression 2: None is neither a text nor a SymPy object nor an Expression"
    assert (
        pop.errors[4]
        == "expression 4: 3.5 is neither a text nor a SymPy object nor an Expression; write it as a text, '3.5'"
    )
    of_numpy, flag = ek.parse([np.float64(2.5), True], errors="mask").errors.values()
    assert of_numpy.endswith("write it as a text, '2.5'")
    assert flag.endswith("True is neither a text nor a SymPy object nor an Expression")
    assert not pop[1].valid and str(pop[1]) == "" and repr(pop[1]) == "<Expression: not valid>"
    part = pop[[5, 0, 1]]
    assert list(part.errors) == [0, 2] and part.errors[0].startswith("expression 0: unknown name 'y'")
    both = pop + pop
    assert list(both.errors) == [1, 2, 4, 5, 7, 8, 10, 11]


# ── names ────────────────────────────────────────────────────────────────────────────


def test_given_names():
    pop = ek.parse(["r_k + log_Re * λ", "p1 * r_k"], variables=["r_k", "log_Re", "λ"])
    assert [words(expression) for expression in pop] == ["x1 x2 x3 mul add", "p1 x1 mul"]
    assert pop.variables == ("r_k", "log_Re", "λ") and pop.parameters is None and pop.n_vars == 3
    assert pop.texts() == ["r_k + log_Re * λ", "p1 * r_k"]
    named = ek.parse("a * p1 + b", variables=["p1"], parameters=["a", "b"])
    assert words(named[0]) == "p1 x1 mul p2 add"
    assert ek.parse("x2 + x1", variables=["x1", "x2"]).variables is None
    assert words(ek.parse("x2 + x1", variables=["x2", "x1"])[0]) == "x1 x2 add"


@pytest.mark.parametrize(
    ("given_names", "text", "message"),
    [
        ({"variables": ["a"]}, "x1", "unknown name 'x1'; variables are a; parameters are p1, p2, …\n    x1\n    ^^"),
        ({"variables": ["alpha"]}, "alhpa", "unknown name 'alhpa'; did you mean 'alpha'?\n    alhpa\n    ^^^^^"),
        ({"variables": 2}, "x3", "'x3': there are only 2 variables\n    x3\n    ^^"),
        ({"variables": 1, "parameters": 0}, "p1", "unknown name 'p1'; variables are x1; there are no parameters\n    p1\n    ^^"),
        ({"parameters": 0}, "q", "unknown name 'q'; variables are x1, x2, …; there are no parameters; for other names say variables=[...] or data=table\n    q\n    ^"),
        ({"parameters": ["pi"]}, "1", "parameters: 'pi' is a constant; give it another name"),
        ({"variables": ["a", "a"]}, "1", "variables: 'a' comes twice; names must differ"),
        ({"variables": ["a"], "parameters": ["a"]}, "1", "parameters: 'a' is among the variables too; names must differ"),
        ({"variables": ["a`b"]}, "1", "variables: 'a`b' is not a name: a text on one line, without backquotes"),
        ({"variables": ["a\nb"]}, "1", "variables: 'a\\nb' is not a name: a text on one line, without backquotes"),
        ({"variables": [" "]}, "1", "variables: ' ' is not a name: a text on one line, without backquotes"),
        ({"variables": ["a b"]}, "`a c`", "unknown name '`a c`'; did you mean '`a b`'?\n    `a c`\n    ^^^^^"),
        ({"variables": ["a b"]}, "2 * `a b", "this ` is never closed\n    2 * `a b\n        ^^^^"),
        ({"data": {"t (s)": [1], "t": [2], "S (mM)": [3]}}, "p1*t (s)",
         "such a name stands between backquotes: write `t (s)`\n    p1*t (s)\n       ^^^^^"),
        ({"data": {"t (s)": [1], "S (mM)": [3]}}, "2 + S (mM) * p1",
         "such a name stands between backquotes: write `S (mM)`\n    2 + S (mM) * p1\n        ^^^^^^"),
        ({"data": {"a": [1]}, "variables": ["a"]}, "a", "variables are named by data= or by variables=, not by both"),
        ({"variables": "ab"}, "1", "variables: give a list of names, ['ab'], or how many x1, x2, … there are"),
        ({"variables": 2.5}, "1", "variables: give a list of names or how many x1, x2, … there are"),
        ({"parameters": True}, "1", "parameters: give a list of names or how many p1, p2, … there are"),
        ({"variables": -1}, "1", "variables: -1 is not a count between 0 and 65,535"),
        ({"variables": ["p1"]}, "1",
         "variables: 'p1' is also how one of the parameters is written; name the parameters, too: "
         "exprkit.parse(…, parameters=[…])"),
    ],
)  # fmt: skip
def test_message_about_names(given_names, text, message):
    with pytest.raises(ParseError) as caught:
        ek.parse(text, **given_names)
    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["gamma", "floor", "sec", "max", "greater", "clip"])
def test_a_column_called_like_a_function_is_meant_where_no_parenthesis_follows(name):
    calls = f"{name}({name}, 2)" if name in ("max", "greater") else f"{name} ({name})" if name != "clip" else "1"
    for names in ({"data": {name: [1.0], "x": [2.0]}}, {"variables": [name, "x"]}, {"parameters": [name, "x"]}):
        pop = ek.parse([f"{name} * x / ({name} - 1)", f"x + {name}", calls, f"-{name}^{name}"], **names)
        leaf = "p" if "parameters" in names else "x"
        usual = ek.parse(
            [
                f"{leaf}1 * {leaf}2 / ({leaf}1 - 1)",
                f"{leaf}2 + {leaf}1",
                calls.replace("clip", "").replace(f" ({name})", f"({leaf}1)").replace(f"({name}, ", f"({leaf}1, "),
                f"-{leaf}1^{leaf}1",
            ]
        )
        assert [words(one) for one in pop] == [words(one) for one in usual]
        assert ek.parse(pop.texts(), **names) == pop


@pytest.mark.parametrize(
    ("sign", "name"), [(">", "greater"), ("<", "less"), (">=", "greaterequal"), ("<=", "lessequal")]
)
def test_comparisons_are_0_or_1_and_bind_loosest(sign, name):
    texts = [f"(x1 {sign} 0.5) * x2 - 1", f"x1+1{sign}-x2^2*3", f"max(x1 {sign}x2, p1)", f"1 - (-x1{sign} -2)"]
    calls = [
        f"{name}(x1, 0.5) * x2 - 1",
        f"{name}(x1 + 1, -x2^2*3)",
        f"max({name}(x1, x2), p1)",
        f"1 - {name}(-x1, -2)",
    ]
    assert ek.parse(texts) == ek.parse(calls)
    X = np.array([[0.5, 3.0], [1.0, 3.0], [0.0, 3.0], [np.nan, 3.0]])
    compare = {">": np.greater, "<": np.less, ">=": np.greater_equal, "<=": np.less_equal}[sign]
    got = ek.Evaluator(ek.parse(texts[0]), X, "numpy", dtype="float64").evaluate()[0]
    assert got.tolist() == (compare(X[:, 0], 0.5) * X[:, 1] - 1).tolist()
    assert ek.generate.exhaustive(3, operators=[sign], n_vars=1, n_params=0).texts()[-1].startswith(name)


OTHERS = {  # what the names mean elsewhere
    "sinc": np.sinc, "exp10": lambda a: 10.0**a, "silu": lambda a: a * special.expit(a), "step": lambda a: np.heaviside(a, 0),
    "factorial": lambda a: special.gamma(a + 1), "heaviside": lambda a: np.heaviside(a, 0), "logit": special.logit,
    "softplus": lambda a: np.logaddexp(0, a), "trunc": np.trunc, "softsign": lambda a: a / (1 + np.abs(a)),
    "rad2deg": np.rad2deg, "degrees": np.degrees, "deg2rad": np.deg2rad, "radians": np.radians, "clip": np.clip,
    "not": lambda a: 1.0 - (a > 0), "and": lambda a, b: (a > 0) & (b > 0), "or": lambda a, b: (a > 0) | (b > 0),
    "where": lambda a, b, c: np.where(a > 0, b, c), "fmod": np.fmod, "logaddexp": np.logaddexp,
    "if": lambda a, b, c: np.where(a > 0, b, c), "ifelse": lambda a, b, c: np.where(a > 0, b, c),
}  # fmt: skip
WIDE = np.array(
    [0, -0.5, 0.5, 1, -1, 2.5, 1e-300, -1e-300, 1e-9, 0.999999999, 7, -7, 36, -36, 170, 800, -800, 1e5, -1e5, 1e12]
)


@pytest.mark.parametrize("name", ops.INSTEAD)
def test_what_is_written_for_a_name_that_others_know_is_right_far_out_too(name):
    head, formula = parse_errors.instead(name)
    names = head.removeprefix(f"{name}(").removesuffix(")").split(", ")
    X = np.stack([one.ravel() for one in np.meshgrid(*[WIDE + 0.25 * k for k in range(len(names))])], axis=1)
    X = X[X[:, 1] < X[:, 2]] if name == "clip" else X
    with np.errstate(all="ignore"):
        wanted = OTHERS[name](*X.T).astype(float)
    got = ek.Evaluator(ek.parse(formula, variables=names), X, "numpy", dtype="float64").evaluate()[0]
    assert got == pytest.approx(wanted, rel=1e-12, abs=1e-300, nan_ok=True)
    assert ek.operator(f"of_{name}{head.removeprefix(name)} = {formula}")


@pytest.mark.parametrize(("name", "row"), ops.OTHER_NAMES.items())
def test_other_names_of_operators_lead_to_them(name, row):
    assert f"; did you mean {row!r}?" in _message(f"{name}(x1)")
    with pytest.raises(ExprkitError, match=f"did you mean {row!r}"):
        ek.generate.random(1, operators=[name], n_vars=1)


# ── sources ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", [b"x1 + 1", bytearray(b"x1 + 1"), np.array("x1 + 1"), np.str_("x1 + 1")], ids=type)
def test_one_text_of_any_kind(text):
    assert ek.parse(text).texts() == ["x1 + 1"]


FILE = "# made by hand\nx1 + 1\r\n\n  \n  # indented\nx2 ** 2\nx1 +* 3\n"


def test_files(tmp_path):
    path = tmp_path / "expressions.txt"
    path.write_bytes(b"\xef\xbb\xbf" + FILE.encode())
    good = ek.parse(path, errors="mask")
    assert good.texts() == ["x1 + 1", "x2 ^ 2", ""]
    assert (
        good.errors[2] == "expression 2 (line 7): expected a number, a name or '(', found '*'\n    x1 +* 3\n        ^"
    )
    with open(path, encoding="utf-8-sig") as file:
        assert ek.parse(file, errors="mask") == good
    with open(path, "rb") as file:
        assert ek.parse(file, errors="mask") == good
    assert ek.parse(io.StringIO("x1\nx2"), errors="mask").texts() == ["x1", "x2"]
    assert len(ek.parse(io.BytesIO(b""))) == 0
    assert ek.parse(io.BytesIO(b"x1\rx2\r")).texts() == ["x1", "x2"]
    assert ek.parse(io.BytesIO(b"x1\0\nx2"), errors="mask").valid.tolist() == [False, True]
    with pytest.raises(FileNotFoundError):
        ek.parse(tmp_path / "missing.txt")


def test_sources():
    x1, x2 = ek.variables(2)
    assert len(ek.parse([])) == 0
    assert ek.parse(()).n_vars == 0
    assert ek.parse(text for text in ("x1", "x2")).texts() == ["x1", "x2"]
    assert ek.parse(np.array(["x1", "x2"])).texts() == ["x1", "x2"]
    assert ek.parse(["x1", b"x2 + 1", x1 * x2, "3"]).texts() == ["x1", "x2 + 1", "x1 * x2", "3"]
    assert ek.parse(x1).texts() == ["x1"] and ek.parse(b"x1").texts() == ["x1"]
    assert ek.parse(["x1\0", "x\0\0", "x2"], errors="mask").valid.tolist() == [False, False, True]
    for source in (5, None, {"x1"}, {"x1": 1}):
        with pytest.raises(ParseError, match="cannot parse a"):
            ek.parse(source)
    with pytest.raises(ValueError, match="errors must be one of 'raise', 'mask', not "):
        ek.parse("x1", errors="ignore")


def test_named_expressions_among_texts():
    r, _ = ek.variables("r", "s")
    assert ek.parse([r, "r * s"]).variables == ("r", "s")
    bad = ek.parse(["x1", r], variables=2, errors="mask")
    assert bad.errors[1] == (
        "expression 1: expressions with different variables: (x1, …) and (r, s); name them together, in one call"
    )


@pytest.mark.slow
def test_a_misspelt_name_is_compared_with_few_of_many(monkeypatch):
    names, compared = [f"variable_number_{i}" for i in range(12_000)], []
    close = errors.difflib.get_close_matches
    monkeypatch.setattr(
        errors.difflib, "get_close_matches", lambda word, names, n: compared.append(len(names)) or close(word, names, n)
    )
    for word, meant in (("variable_numbr_1", 1), ("varable_number_11237", 11237), ("variable_number_7_", 7)):
        with pytest.raises(ParseError, match=f"did you mean 'variable_number_{meant}'"):
            ek.parse(word, variables=names)
    with pytest.raises(ArgumentError, match="did you mean 'variable_number_30'"):
        ek.parse("variable_number_1", variables=names).diff("variable_numbr_30")
    with pytest.raises(ArgumentError, match=r"'unlike': there are (variable_number_\d, ){8}…$"):
        ek.parse("variable_number_1", variables=names).diff("unlike")
    assert max(compared) == errors.MOST_CANDIDATES


def test_names_of_populations_of_the_past_are_forgotten():
    from exprkit.expressions.expression import checked_names

    for i in range(100):
        ek.parse(f"v{i} + x", variables=[f"v{i}", "x"])
    assert checked_names.cache_info().currsize <= 16


@pytest.mark.parametrize("value", [np.array(["raise", "mask"]), ["raise"], None, 1, "x" * 1000])
def test_a_choice_of_any_kind_is_answered_by_an_error_of_ours(value):
    calls = [lambda: ek.parse("x1", errors=value), lambda: ek.parse("x1").diff("x1", errors=value),
             lambda: ek.Evaluator(ek.parse("x1"), [[1.0]], backend="numpy", precision=value),
             lambda: ek.Evaluator(ek.parse("x1"), [[1.0]], backend="numpy").loss(None, [1.0], kind=value)]  # fmt: skip
    for call in calls:
        with pytest.raises(ExprkitError, match="must be one of") as caught:
            call()
        assert len(str(caught.value)) < 190
    with pytest.raises(ArgumentError, match="there is no variable or parameter"):
        ek.parse("x1").diff(value)


def test_blocks_and_long_batches_agree_with_single_texts():
    texts = [f"x{i % 7 + 1} * {i} + exp(p{i % 3 + 1})" for i in range(40_000)]
    pop = ek.parse(texts)
    assert pop.offsets[-1] == 40_000 * 6
    for index in (0, 1, 12_345, 39_999):
        assert pop[index] == ek.parse(texts[index])[0]


# ── limits ───────────────────────────────────────────────────────────────────────────


def _message(text: str) -> str:
    with pytest.raises(ParseError) as caught:
        ek.parse(text)
    return str(caught.value).split("\n")[0]


@pytest.mark.slow
def test_limits():
    deep = "(" * 100_000 + "x1" + ")" * 100_000
    assert ek.parse(deep).texts() == ["x1"]
    assert ek.parse("(" * 1_000_000 + "x1" + ")" * 1_000_000).texts() == ["x1"]
    assert (
        _message("(" * 1_000_001 + "x1" + ")" * 1_000_001) == "parentheses are nested too deep; the limit is 1,000,000"
    )
    assert _message("(" * 1_000_000) == "expected a number, a name or '(', found the end of the text"
    assert len(ek.parse("x1" + "+x1" * 32_767)[0].kinds) == 65_535
    assert _message("x1" + "+x1" * 32_768) == "the expression has too many tokens; the limit is 65,535"
    assert len(ek.parse("-" * 65_534 + "x1")[0].kinds) == 65_535
    assert _message("-" * 65_535 + "x1") == "the expression has too many tokens; the limit is 65,535"
    assert len(ek.parse("exp(" * 65_534 + "x1" + ")" * 65_534)[0].kinds) == 65_535
    assert _message("exp(" * 65_535 + "x1" + ")" * 65_535) == "the expression has too many tokens; the limit is 65,535"
    assert len(ek.parse("x1" + "^x1" * 32_767)[0].kinds) == 65_535
    assert _message("x1" + " " * 16_777_216) == "the text has too many bytes; the limit is 16,777,216"
    assert ek.parse("x1" + " " * 16_777_214).texts() == ["x1"]
    assert ek.parse("1" * 1_000).values.view(np.float64)[0] == np.inf
    assert ek.parse("0." + "1" * 998).values.view(np.float64)[0] == 1 / 9
    assert _message("1" * 1_001) == "the number has too many digits; the limit is 1,000"
    assert ek.parse("x65535").n_vars == 65_535


# ── nothing breaks it ────────────────────────────────────────────────────────────────

_heard: list[str] | None = None


def _hook(event: str, _: object) -> None:
    if _heard is not None and event in ("compile", "exec"):
        _heard.append(event)


@pytest.mark.slow
def test_fuzz(root):
    """Random bytes and mutated expressions: only exprkit's error, every message renders, nothing is evaluated."""
    global _heard
    rng = np.random.default_rng(5)
    lines = (root / "data" / "esr_sample.txt").read_bytes().split(b"\n")[:-1] + [text.encode() for text in GRAMMAR]
    alphabet = [b"+", b"-", b"*", b"/", b"^", b"**", b"//", b"(", b")", b",", b".", b"e", b"x1", b"p2", b"exp(", b"max(", b"acot(",
                b"1", b"0", b"1e9", b"f0", b" ", b"\0", b"\xff", b"\xc3\xa4", b"\xe2\x82", b"__import__('os')", b"\n", b"nan"]  # fmt: skip
    texts = [rng.bytes(int(n)) for n in rng.integers(0, 40, 6_000)]
    texts += [b"".join(alphabet[k] for k in rng.integers(0, len(alphabet), n)) for n in rng.integers(1, 12, 9_000)]
    for pick in rng.integers(0, len(lines), 15_000):
        text = lines[pick]
        for _ in range(int(rng.integers(1, 4))):
            place, kind = int(rng.integers(0, len(text) + 1)), rng.integers(3)
            piece = alphabet[rng.integers(len(alphabet))] if kind else b""
            text = text[:place] + piece + text[place + (kind != 1) :]
        texts.append(text)
    ek.parse(texts[:500], errors="mask")  # compiled and imported before anybody listens
    sys.addaudithook(_hook)
    _heard = []
    try:
        pop = ek.parse(texts, errors="mask")
        strings = ek.parse([text.decode("utf-8", "surrogateescape") for text in texts], errors="mask")
        messages = [str(pop.errors[index]) for index in pop.errors]
    finally:
        heard, _heard = _heard, None
    assert heard == []
    assert len(texts) == 30_000 and 1_500 < pop.valid.sum() < 18_000
    assert len(messages) == (~pop.valid).sum()
    for message in messages:
        assert message.startswith("expression ") and all(line.isprintable() for line in message.split("\n"))
    assert max(map(len, messages)) < 1000
    assert strings == pop
    good = pop[pop.valid]
    assert ek.parse(good.texts()) == good


@pytest.mark.slow
@given(st.text(max_size=60))
def test_any_text(text):
    try:
        ek.parse(text)
    except ParseError as error:
        assert str(error).encode()
    assert ek.parse([text, "x1"], errors="mask").valid[1]


@given(st.binary(max_size=60))
def test_any_bytes(data):
    for source in (data, io.BytesIO(data)):
        try:
            ek.parse(source)
        except ExprkitError as error:
            assert isinstance(error, ParseError) and str(error)


def test_a_dot_that_python_has_in_names_is_told_of():
    with pytest.raises(ParseError, match=r"unknown name: '·' may be part of one; write \* instead of it"):
        ek.parse("x1·x2 + 3")
