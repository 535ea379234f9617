"""Export of postfix tokens to C, MATLAB, Julia and Excel.

    >>> import exprkit as ek
    >>> from exprkit.text.code_writer import code
    >>> print(code(ek.parse("2.5 * exp(-x2) + logistic(x1)")[0], "c"))
    #include <math.h>
    <BLANKLINE>
    static double logistic_(double a) { return 1 / (1 + exp(-a)); }
    <BLANKLINE>
    // 2.5 * exp(-x2) + logistic(x1)
    double f(const double x[]) {
        return 2.5 * exp(-x[1]) + logistic_(x[0]);
    }
    <BLANKLINE>
    >>> code(ek.parse("2.5 * exp(-x2) + logistic(x1)")[0], "excel")
    '=2.5 * EXP(-B2) + (1 / (1 + EXP(-A2)))'

How an operator is written stands in ``ops.ELSEWHERE``: a function's name, or a text for which a function comes first
(in Excel, a text in the formula).  Columns are called by their numbers; their names stand in comments, without what
could end one.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

from exprkit.errors import OperandError, ParseError, one_of
from exprkit.operators import defined, ops
from exprkit.text import formulas
from exprkit.text.printer import texts
from exprkit.text.python_writer import ATOM, INFIX, NEGATION, Term, infix, within
from exprkit.text.tokens import CONSTANT, VARIABLE, NamedTokens

HARMLESS = re.compile(r"[^\w ,:.+\-*/^()\[\]<>=|]")  # all else is replaced in comments: no line or comment ends there
MOST_CHARACTERS = 8192  # of a formula in Excel


class Language(NamedTuple):
    """How a language is written."""

    place: int  # in the rows of ``ops.ELSEWHERE``
    variable: str  # the {n}th of them, from 0 or 1
    first: int
    infinite: str
    nan: str
    signs: dict[str, str]  # of arithmetic, where they differ
    function: str  # {name}, {operands} and {text}; "" where a formula has none
    whole: str  # {comments}, {functions} and {value}


LANGUAGES = {
    "c": Language(0, "x[{n}]", 0, "INFINITY", "NAN", {}, "static double {name}({operands}) {{ return {text}; }}\n\n",
        "#include <math.h>\n\n{functions}{comments}double f(const double x[]) {{\n    return {value};\n}}\n"),
    "matlab": Language(1, "X(:, {n})", 1, "Inf", "NaN", {"*": ".*", "/": "./"},
        "\nfunction y = {name}({operands})\n    y = {text};\nend\n",
        "{comments}function y = f(X)\n    y = {value};\nend\n{functions}"),
    "julia": Language(2, "x[{n}]", 1, "Inf", "NaN", {}, "{name}({operands}) = {text}\n\n",
        "{functions}{comments}f(x) = {value}\n"),
    "excel": Language(3, "{n}2", 0, "", "", {}, "", "={value}"),
}  # fmt: skip
COMMENT = {"c": "//", "matlab": "%", "julia": "#"}


def code(expression: NamedTokens, language: str) -> str:
    """The text of a function f of a data point (MATLAB: of the data), or a formula for a sheet, of numbers alone.

    Raises
    ------
    ParseError
        for an expression that could not be read.
    OperandError
        where the language has no such function or number.
    """
    one = LANGUAGES[one_of("language", language, LANGUAGES)]
    if not len(expression.kinds):
        raise ParseError("an expression that could not be read cannot be exported")
    functions: dict[str, str] = {}

    def leaf(kind: int, value: int) -> Term:
        if kind == VARIABLE:
            n = _letters(value) if language == "excel" else value + one.first
            return Term(one.variable.format(n=n), ATOM)
        if kind != CONSTANT:
            raise OperandError("a parameter has no number yet: with_numbers(params) gives it one")
        return _number(float(np.uint64(value).view(np.float64)), one, language)

    def operation(row: defined.Written, own: list[Term]) -> Term:
        if isinstance(row, ops.Operator) and row.infix in INFIX:
            return infix(row, one.signs.get(row.infix, row.infix), own)
        return _call(row, own, one, language, functions)

    offsets = np.array([0, len(expression.kinds)])
    plain = formulas.expanded(expression.kinds, expression.values, offsets, formulas.user_formulas())
    value = defined.folded(plain.kinds, plain.values, leaf, operation).text
    if language == "excel" and len(value) >= MOST_CHARACTERS:
        raise OperandError(f"a formula of Excel's has at most {MOST_CHARACTERS:,} characters, and this {len(value):,}")
    if language == "matlab" and VARIABLE not in expression.kinds:
        value += " + zeros(size(X, 1), 1)"
    return one.whole.format(
        value=value, functions="".join(functions.values()), comments=_comments(expression, language)
    )


def _comments(expression: NamedTokens, language: str) -> str:
    """A line with the formula, and one for each column with a name."""
    if language not in COMMENT:
        return ""
    one, lines = LANGUAGES[language], texts(expression)
    used = np.unique(expression.values[expression.kinds == VARIABLE]).tolist()
    names = expression.variables or ()
    lines += [f"{one.variable.format(n=k + one.first)} is {names[k]}" for k in used if names]
    return "".join(f"{COMMENT[language]} {HARMLESS.sub('_', line)}\n" for line in lines)


def _letters(column: int) -> str:
    """
    >>> _letters(0), _letters(25), _letters(26)
    ('A', 'Z', 'AA')
    """
    return (_letters(column // 26 - 1) if column >= 26 else "") + chr(ord("A") + column % 26)


def _number(number: float, one: Language, language: str) -> Term:
    if math.isfinite(number):
        text = repr(number)
    elif one.nan:
        text = one.nan if math.isnan(number) else one.infinite if number > 0 else f"-{one.infinite}"
    else:
        raise OperandError(f"{language} has no number {number}")
    return Term(text, NEGATION.precedence if text.startswith("-") else ATOM)


def _call(row: defined.Written, own: list[Term], one: Language, language: str, functions: dict[str, str]) -> Term:
    """A call of the language's function, of one that stands in ``functions`` then, or a formula's text."""
    text = ops.ELSEWHERE.get(row.name, (None,) * len(LANGUAGES))[one.place]
    if text is None:
        raise OperandError(f"{language} has no function for {row.name!r}")
    operands = ", ".join("ab"[: row.arity])
    if re.fullmatch(r"[\w.]+", text):
        return Term(f"{text}({', '.join(term.text for term in own)})", ATOM)
    if one.function:
        typed = f"double {operands.replace(' ', ' double ')}" if language == "c" else operands
        functions[row.name] = one.function.format(name=f"{row.name}_", operands=typed, text=text)
        return Term(f"{row.name}_({', '.join(term.text for term in own)})", ATOM)
    by_name = {letter: within(term, ATOM) for letter, term in zip("ab", own, strict=False)}
    written = re.sub(r"\b[ab]\b", lambda match: by_name[match[0]], text)
    return Term(written, ATOM if re.fullmatch(r"[A-Z]+\([^()]*\)", text) else 0)
