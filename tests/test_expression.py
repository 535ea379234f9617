"""Expressions: written text and LaTeX, drawings, and building by hand."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.mathtext import MathTextParser
from postfix_text import AWKWARD, random_population, words

import exprkit as ek
from exprkit.errors import ParseError, PopulationError
from exprkit.expressions.expression import Expression, constant
from exprkit.operators import ops

applied = Expression.applied

x1, x2 = ek.variables(2)
(p1,) = ek.parameters(1)


# ── text ─────────────────────────────────────────────────────────────────────────────


def _trees() -> st.SearchStrategy[Expression]:
    leaves = (
        st.sampled_from(ek.variables(3) + ek.parameters(3))
        | st.sampled_from(AWKWARD).map(constant)
        | st.floats().map(constant)
    )
    rows = st.sampled_from(ops.OPERATORS)
    return st.recursive(
        leaves,
        lambda trees: st.builds(lambda row, a, b: applied(row, *(a, b)[: row.arity]), rows, trees, trees),
        max_leaves=25,
    )


@given(_trees())
def test_text_is_read_back(expression):
    assert ek.parse(str(expression))[0] == expression


def test_texts_of_many_are_read_back():
    pop = random_population(5_000, seed=1)
    texts = pop.texts()
    assert ek.parse(texts) == pop
    assert [str(pop[index]) for index in range(0, 5_000, 500)] == texts[::500]


def test_no_parentheses_could_be_left_out():
    """Without any one pair of grouping parentheses the text means something else, or nothing."""
    rows = [row for row in ops.OPERATORS if row.infix]
    pop = random_population(300, seed=2, most_tokens=9, rows=rows)
    removed = 0
    for expression, text in zip(pop, pop.texts(), strict=True):
        for place, character in enumerate(text):
            if character != "(" or text[max(0, place - 1) : place + 2] == "-(-":
                continue  # --x is read, but hard to read
            depth = end = 0
            for end in range(place, len(text)):
                depth += {"(": 1, ")": -1}.get(text[end], 0)
                if depth == 0:
                    break
            shorter = ek.parse([text[:place] + text[place + 1 : end] + text[end + 1 :]], errors="mask")
            assert not shorter.valid[0] or shorter[0] != expression, text
            removed += 1
    assert removed > 100


TEXTS = {
    "x1*(x2+2.0)^-(p1)": "x1 * (x2 + 2) ^ -p1",
    "(x1 + x2) + p1": "x1 + x2 + p1",
    "x1 + (x2 + p1)": "x1 + (x2 + p1)",
    "abs(x1) ^ (-(inv(x1)))": "abs(x1) ^ -inv(x1)",
    "(x1^x2)^2": "(x1 ^ x2) ^ 2",
    "-(-x1)": "-(-x1)",
    "-(2)": "-(2)",
    "(-2)**x1": "(-2) ^ x1",
    "1e300 + 1E-7 + 123456.0 + 1e16": "1e300 + 1e-7 + 123456 + 1e16",
    "-0.0 + -pi + -inf + nan": "-0.0 + -pi + -inf + nan",
    "max(x1, x2, 3)": "max(max(x1, x2), 3)",
    "ln(square(x1))": "log(sqr(x1))",
}


@pytest.mark.parametrize("text", TEXTS)
def test_text(text):
    assert str(ek.parse(text)[0]) == TEXTS[text]


@pytest.mark.slow
def test_long_and_deep_expressions_are_written():
    nested = "exp(" * 30_000 + "x1" + ")" * 30_000
    for text in ("x1" + "+x1" * 32_767, "-" * 65_534 + "x1", nested, "x1" + "^x1" * 30_000):
        expression = ek.parse(text)[0]
        assert ek.parse(str(expression))[0] == expression
        assert len(expression.latex()) > 65_000
        assert len(repr(expression)) < 250 and expression._repr_latex_() is None
        assert len(expression.listing()) > 65_000 and len(expression.tree().splitlines()) < 200


# ── LaTeX ────────────────────────────────────────────────────────────────────────────

LATEX = {
    "p1 * x1^2 + exp(-x2)": r"p_{1} \cdot x_{1}^{2} + e^{-x_{2}}",
    "x1 / (x2 + 1)": r"\frac{x_{1}}{x_{2} + 1}",
    "(x1 / x2)^2": r"\left(\frac{x_{1}}{x_{2}}\right)^{2}",
    "inv(x1) * sqrt(x2)": r"\frac{1}{x_{1}} \cdot \sqrt{x_{2}}",
    "exp(x1)^2": r"\left(e^{x_{1}}\right)^{2}",
    "sqr(x1 + 1)": r"\left(x_{1} + 1\right)^{2}",
    "x1 * -2": r"x_{1} \cdot \left(-2\right)",
    "-(x1 + x2)": r"-\left(x_{1} + x_{2}\right)",
    "(x1 + x2) * x1": r"\left(x_{1} + x_{2}\right) \cdot x_{1}",
    "2.5e300 ^ x1": r"\left(2.5 \cdot 10^{300}\right)^{x_{1}}",
    "1e-7 + pi - inf + nan": r"10^{-7} + \pi - \infty + \mathrm{nan}",
    "abs(x1 - x2) ^ p1": r"\left|x_{1} - x_{2}\right|^{p_{1}}",
    "atan2(x1, x2)": r"\operatorname{atan2}\left(x_{1}, x_{2}\right)",
    "floor(x1) + max(x1, 2)": r"\left\lfloor x_{1} \right\rfloor + \max\left(x_{1}, 2\right)",
}


@pytest.mark.parametrize("text", LATEX)
def test_latex(text):
    expression = ek.parse(text)[0]
    assert expression.latex() == LATEX[text]
    assert expression._repr_latex_() == f"${LATEX[text]}$"


def test_latex_of_names_is_harmless():
    pop = ek.parse("r_k * log_Re + λ + a + b2", variables=["r_k", "log_Re", "λ", "a", "b2"])
    assert pop[0].latex() == r"\mathrm{r\_k} \cdot \mathrm{log\_Re} + \lambda + a + b_{2}"
    pop = ek.parse("_ * Δt / ρ_0 - `Δp µ`", variables=["_", "Δt", "ρ_0", "Δp µ"])
    assert pop[0].latex() == r"\frac{\_ \cdot \mathrm{\Delta t}}{\rho_{0}} - {\text{}\Delta\text{p }\mu\text{}}"
    assert ek.parse("`a < b` ^ 2", variables=["a < b"])[0].latex() == r"{\text{a }< \text{ b}}^{2}"
    assert ek.parse("größe * µ", variables=["größe", "µ"])[0].latex() == r"\text{größe} \cdot \mu"  # the micro sign
    assert ek.parse("logical_and(x1, x2)")[0].latex() == r"\operatorname{logical\_and}\left(x_{1}, x_{2}\right)"


@pytest.mark.slow
def test_latex_is_read_by_another_reader():
    names = ("x_max", "Δp", "T (°C)", "50% x", "1st", "a^b", "a&b", "#n", "$cost$", "~x", r"\alpha", "{x}", "a{", "}",
             "a<b", "a>b", "C_{p}", "α_β", "é", "µ", "a/b", "...", "ϑ")  # fmt: skip
    formula = "2.5 * `{}` ^ -1.5 / (1 + sqrt(`{}`)) + sqr(`{}`) + log(`{}` / p1)"
    texts = [ek.parse(formula.replace("{}", name), variables=[name])[0].latex() for name in names]
    read = MathTextParser("path").parse
    for text in [*texts, *(expression.latex() for expression in random_population(100, 1, 14))]:
        read(f"${text}$")


def test_latex_is_balanced(op):
    operands = [x1 + x2, x1 - 2.5][: op.arity]
    for expression in (
        applied(op, *operands),
        applied(op, *operands) ** 2,
        -applied(op, *operands) * x1,
    ):
        text = expression.latex()
        assert text.count("{") == text.count("}") and text.count(r"\left") == text.count(r"\right")
        depth = 0
        for before, character in zip(" " + text, text, strict=False):
            depth += {"{": 1, "}": -1}.get(character, 0)
            assert depth >= 0
            assert not (before == "}" and character == "^" and text.endswith("}^{2}^{2}"))


# ── drawings ─────────────────────────────────────────────────────────────────────────


def test_tree():
    assert (p1 * x1**2 + ek.exp(-x2)).tree() == (
        "+\n├─ *\n│  ├─ p1\n│  └─ ^\n│     ├─ x1\n│     └─ 2\n└─ exp\n   └─ -\n      └─ x2"
    )
    assert (x1 + ek.exp(x2 * 2)).tree(1) == "+\n├─ x1\n└─ … 4 tokens"


def test_listing():
    r, k = ek.variables("r", "k")
    assert (r + 2.5 * k).listing() == "\n".join(
        [
            "┌──────────┬────────────────────┬──────────┬──────────┬──────────┐",
            "│ variable │ constant           │ variable │ operator │ operator │",
            "│ r        │ 2.5                │ k        │ *        │ +        │",
            "│ 0        │ 0x4004000000000000 │ 1        │ 3        │ 1        │",
            "└──────────┴────────────────────┴──────────┴──────────┴──────────┘",
        ]
    )
    wide = ek.parse("x1 + x2 * 2.5 / 3.5 - x1 + x2 * 2.5")[0].listing()
    assert wide.count("┌") == 2 and max(map(len, wide.splitlines())) <= 110


# ── building ─────────────────────────────────────────────────────────────────────────

BUILT = [
    (x1 + x2, "x1 + x2"), (x1 - 2, "x1 - 2"), (2 - x1, "2 - x1"), (x1 * 2.5, "x1 * 2.5"), (2.5 * x1, "2.5 * x1"),
    (x1 / x2, "x1 / x2"), (1 / x1, "1 / x1"), (x1**2, "x1 ^ 2"), (2**x1, "2 ^ x1"), (-x1, "-x1"), (+x1, "x1"),
    (x1 % 2, "mod(x1, 2)"), (7 % x1, "mod(7, x1)"), (abs(x1), "abs(x1)"), (round(x1), "round(x1)"),
    (math.floor(x1), "floor(x1)"), (math.ceil(x1), "ceil(x1)"), (np.exp(x1), "exp(x1)"),
    (np.float64(2) * x1, "2 * x1"), (x1 / np.float32(0.5), "x1 / 0.5"), (np.int64(3) - x1, "3 - x1"),
    (np.fmax(x1, 2), "max(x1, 2)"), (ek.exp(-x2), "exp(-x2)"), (ek.max(x1, 2, x2), "max(max(x1, 2), x2)"),
    (ek.pow(2, 3), "2 ^ 3"), (ek.ln(x1), "log(x1)"), (x1 * -2, "x1 * -2"), (x1 + math.nan, "x1 + nan"),
    (p1 * x1**2 + ek.exp(-x2), "p1 * x1 ^ 2 + exp(-x2)"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "text"), BUILT, ids=[text for _, text in BUILT])
def test_building(expression, text):
    assert str(expression) == text
    assert ek.parse(expression)[0] == expression


def test_every_function_of_the_table_builds(op):
    operands = (x1, x2)[: op.arity]
    assert getattr(ek, op.name)(*operands) == ek.parse(f"{op.name}({', '.join(map(str, operands))})")[0]
    assert getattr(ek, op.name).__doc__ == op.meaning


def test_building_refuses():
    with pytest.raises(TypeError):
        x1 + "x2"
    with pytest.raises(TypeError):
        x1 * True
    with pytest.raises(TypeError):
        np.spacing(x1)
    with pytest.raises(TypeError):
        np.arange(3) * x1
    with pytest.raises(TypeError, match=r"exp\(\) takes 1 argument, 2 given"):
        ek.exp(x1, x2)
    with pytest.raises(TypeError, match=r"max\(\) takes 2 or more arguments, 1 given"):
        ek.max(x1)
    with pytest.raises(TypeError, match=r"exp\(\) takes Expressions and numbers, not str"):
        ek.exp("x1")
    a, b = ek.variables("a", "b")
    c, _ = ek.variables("c", "d")
    with pytest.raises(PopulationError, match=r"different variables: \(a, b\) and \(c, d\); name them together"):
        a + c
    with pytest.raises(PopulationError, match=r"different variables: \(a, b\) and \(x1, …\)"):
        a + x1
    with pytest.raises(ParseError, match="'a' is among the variables too"):
        a + ek.parameters("a")[0]
    with pytest.raises(ParseError, match="comes twice"):
        ek.variables("a", "a")
    with pytest.raises(AttributeError):
        ek.no_such_function  # noqa: B018
    bad = ek.parse(["x1 +"], errors="mask")[0]
    with pytest.raises(PopulationError, match="could not be read"):
        bad + 1
    half = ek.parse("x1" + "+x1" * 20_000)[0]
    with pytest.raises(PopulationError, match="an expression of 80,003 tokens; the limit is 65,535"):
        half + half
    assert str(a + b * 2 + p1) == "a + b * 2 + p1"


def test_leaves():
    assert [str(e) for e in ek.variables(3)] == ["x1", "x2", "x3"]
    assert [str(e) for e in ek.parameters("slope", "offset")] == ["slope", "offset"]
    assert ek.variables(["a"])[0].variables == ("a",) and ek.variables("a") == ek.variables(["a"])
    assert ek.variables(0) == ()
    assert words(constant(-0.0)) == "-0.0"


def test_as_a_value():
    assert x1 + 2 == ek.parse("x1 + 2")[0] and hash(x1 + 2) == hash(ek.parse("x1 + 2")[0])
    assert x1 + 0.0 != x1 + -0.0 and x1 + math.nan == x1 + math.nan
    assert x1 != ek.variables("a")[0] and (x1 == 1) is False
    assert constant(2) == ek.parse("2", variables=["a"])[0]
    assert len({x1, x2, ek.variables(1)[0]}) == 2
    assert copy.deepcopy(x1 + 1) == x1 + 1 and pickle.loads(pickle.dumps(x1 + 1)) == x1 + 1
    with pytest.raises(ValueError, match="read-only"):
        x1.kinds[0] = 3
    e = p1 * x2
    assert (e.n_tokens, e.n_vars, e.n_params, e.valid) == (3, 2, 1, True)
    assert repr(e) == "<Expression: p1 * x2>"
