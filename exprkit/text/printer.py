"""Populations as text and LaTeX: the tables from which ``notation`` writes formulas.

The text of an expression is the shortest that ``parse`` reads back to the same tokens.

    >>> import exprkit as ek
    >>> str(ek.parse("x1*(x2+2.0)^-(p1)")[0])
    'x1 * (x2 + 2) ^ -p1'
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from exprkit.operators import defined, ops
from exprkit.runtime.bags import empty
from exprkit.text import notation as infix
from exprkit.text.names import in_text, word_of
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE, NamedTokens

LETTERS = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ\u00b5"  # that LaTeX has commands for: the others look like Latin ones
GREEK = {
    letter: "\\" + (str.lower if letter.islower() else str.title)(unicodedata.name(letter).split()[-1])
    for letter in LETTERS
} | {"λ": r"\lambda", "Λ": r"\Lambda", "\u00b5": r"\mu"}  # Unicode leaves out the b; the last is the micro sign
WORD_LATEX = str.maketrans({"_": r"\_"} | {letter: f"{command} " for letter, command in GREEK.items()})
# characters that mean something in LaTeX's text (or in HTML: no < before a letter), or are not there
TEXT_LATEX = str.maketrans({character: "\\" + character for character in "#$%&_{}"} | {
    "\\": r"}\backslash\text{", "~": r"}\sim\text{", "^": r"}\hat{\ }\text{", "<": r"}< \text{", ">": r"}>\text{",
} | {letter: rf"}}{command}\text{{" for letter, command in GREEK.items()})  # fmt: skip
ATOM = 9  # holds together anywhere
POWER = max(row.precedence for row in ops.OPERATORS if row.infix)  # the tightest infix operator
FRACTION = POWER - 1  # is one block of its own, except under an exponent


def texts(pop: NamedTokens) -> list[str]:
    """All expressions as text; an empty one for those without tokens."""
    words = [list(map(in_text, of_kind)) for of_kind in _leaf_words(pop)]
    return _written(pop, [list(map(number_text, _numbers(pop))), *words], _tables(False, defined.count()))


def latex(
    pop: NamedTokens, written: Callable[[float], str] | None = None, parameters: list[str] | None = None
) -> list[str]:
    """All expressions as LaTeX, without dollar signs.

    ``written`` says how a finite number is written, ``parameters`` what stands for the parameters.
    """
    words = [list(map(word_latex, of_kind)) for of_kind in _leaf_words(pop)]
    words[1] = words[1] if parameters is None else parameters
    numbers = [_number_latex(number, written) for number in _numbers(pop)]
    return _written(pop, [numbers, *words], _tables(True, defined.count()))


def number_text(number: float) -> str:
    """The shortest text that is read back as this number."""
    if abs(number) == math.pi:
        return "pi" if number > 0 else "-pi"
    text = repr(number)
    if text == "-0.0":
        return text
    text = text.removesuffix(".0")
    return re.sub(r"e([+-])0*", lambda match: "e" + match[1].strip("+"), text)


def booktabs(columns: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in LaTeX (package booktabs) of cells in LaTeX."""
    first, *rest = (" & ".join(cells) + r" \\" for cells in (head, *rows))
    body = [r"\toprule", first, r"\midrule", *rest, r"\bottomrule"]
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", *body, r"\end{tabular}"])


# ── leaves ───────────────────────────────────────────────────────────────────────────


def _numbers(pop: NamedTokens) -> list[float]:
    return np.unique(pop.values[pop.kinds == CONSTANT]).view(np.float64).tolist()


def _leaf_words(pop: NamedTokens) -> Iterator[list[str]]:
    """The names of variables, and of parameters, up to the largest that is used."""
    for kind, words in ((VARIABLE, pop.variables), (PARAMETER, pop.parameters)):
        used = int(pop.values[pop.kinds == kind].max(initial=0)) + 1
        yield [word_of(kind, i, words) for i in range(used)]


def _number_latex(number: float, written: Callable[[float], str] | None) -> str:
    text = (written or number_text)(number)
    if not math.isfinite(number):
        return {"inf": r"\infty", "-inf": r"-\infty"}.get(text, r"\mathrm{nan}")
    mantissa, power, exponent = text.replace("pi", r"\pi").partition("e")
    if not power:
        return mantissa
    return rf"10^{{{exponent}}}" if mantissa == "1" else rf"{mantissa} \cdot 10^{{{exponent}}}"


def word_latex(word: str) -> str:
    """``x_{1}`` for x1, ``p_{1,site}`` for p1[site], upright words for the rest."""
    if grouped := re.fullmatch(r"(\w+)\[(.+)\]", word):
        base, plain = word_latex(grouped[1]), grouped[2].isascii() and grouped[2].isalnum()
        of = grouped[2] if plain else rf"\text{{{text_latex(grouped[2])}}}"
        return f"{base[:-1]},{of}}}" if "_{" in base else f"{base}_{{{of}}}"
    match = re.fullmatch(rf"([A-Za-z{LETTERS}])_?([0-9]+)", word)
    if match:
        return f"{GREEK.get(match[1], match[1])}_{{{match[2]}}}"
    text = word.translate(WORD_LATEX).strip()
    if word.isidentifier() and text.isascii():
        return text if len(word) == 1 else rf"\mathrm{{{text}}}"
    text = rf"\text{{{text_latex(word)}}}"
    return f"{{{text}}}" if r"\text{" in text[1:] else text  # as one, to be raised to a power


def text_latex(text: str) -> str:
    """A text in LaTeX outside of formulas."""
    return text.translate(TEXT_LATEX)


# ── notations ────────────────────────────────────────────────────────────────────────

Tables = tuple[list[str], np.ndarray, np.ndarray]  # pieces, need, strength
Parts = tuple[str, str, str, str]  # of an operator: before, twice between, after
Places = tuple[int, int, int]  # by place


def _strengths(prefix_on_the_right: int) -> np.ndarray:
    """Strengths of the leaves; a sign is as strong as a prefix operator."""
    strength = np.full((256, 3), ATOM, np.uint8)
    strength[[infix.NUMBER, infix.SCIENTIFIC], infix.PREFIX] = 0  # -(2) is not the number -2
    strength[infix.NEGATIVE] = _after_sign(prefix_on_the_right)
    return strength


def _after_sign(on_the_right: int) -> Places:
    """Strengths of something that begins with a sign, by place."""
    sign = max(row.precedence for row in ops.OPERATORS if row.infix and row.arity == 1)
    return sign, on_the_right, 0


@lru_cache(maxsize=2)
def _tables(is_latex: bool, n_defined: int) -> Tables:
    """The tables of a notation; anew when there are more operators."""
    pieces = [""] * infix.FIRST_LEAF
    pieces[infix.OPENING], pieces[infix.CLOSING] = (r"\left(", r"\right)") if is_latex else "()"
    need, strength = np.zeros((256, 3), np.uint8), _strengths(0 if is_latex else ATOM)
    if is_latex:
        strength[infix.SCIENTIFIC, : infix.PREFIX] = FRACTION
    for row in defined.all_rows():
        first = infix.PIECES_OF_OPERATOR * row.code
        parts, need[row.code], strength[row.code] = (_latex_row if is_latex else _text_row)(row)
        pieces[first : first + infix.PIECES_OF_OPERATOR] = parts
    return pieces, need, strength


def _text_row(row: defined.Written) -> tuple[Parts, Places, Places]:
    """(parts, need, strength) of an operator."""
    if row.infix is None:
        return _placed([f"{row.name}(", *[", "] * (row.arity - 1), ")"]), (0, 0, 0), (ATOM, ATOM, ATOM)
    if row.arity == 1:
        return (row.infix, "", "", ""), (row.precedence,) * 3, _after_sign(ATOM)
    need = row.precedence + row.right, row.precedence + (not row.right), 0
    return ("", f" {row.infix} ", "", ""), need, (row.precedence,) * 3


def _latex_row(row: defined.Written) -> tuple[Parts, Places, Places]:
    """The same; operands at the template's edges touch what stands around, so they may need delimiters."""
    parts = _placed(
        row.latex_parts if isinstance(row, defined.Definition) else row.latex.format(a="\0", b="\0").split("\0")
    )
    left, right = (row.precedence + row.right, row.precedence + (not row.right)) if row.infix else (ATOM, ATOM)
    at_end = parts[infix.AFTER] == ""
    need = left * (parts[0] == ""), right * (at_end and row.arity > 1), row.precedence * (at_end and row.arity == 1)
    return parts, need, _latex_strength(row)


def _placed(parts: Sequence[str]) -> Parts:
    """The texts before, between and after the operands, as four pieces."""
    before, *between, after = parts
    first, second = [*between, "", ""][:2]
    return before, first, second, after


def _latex_strength(row: defined.Written) -> Places:
    if row.infix and row.arity == 1:
        return _after_sign(0)
    strength = row.precedence if row.infix else ATOM
    if isinstance(row, defined.Definition):
        first, last = row.latex_parts[0], row.latex_parts[-1]
        strength = 0 if "" in (first, last) else ATOM if last.endswith(r"\right)") else FRACTION
    elif row.latex.startswith(r"\frac"):
        strength = FRACTION
    elif "^{{" in row.latex:
        strength = POWER
    return strength, strength, strength


def _written(pop: NamedTokens, leaves: list[list[str]], tables: Tables) -> list[str]:
    """All expressions in a notation; ``leaves`` are the texts of the numbers, variables and parameters."""
    pieces, need, strength = tables
    kinds, values, offsets = defined.unpacked(pop.kinds, pop.values, pop.offsets)
    encoded = [piece.encode() for piece in (*pieces, *leaves[0], *leaves[1], *leaves[2])]
    notation = infix.Notation(
        np.frombuffer(b"".join(encoded) or b" ", np.uint8),
        np.cumsum([0, *map(len, encoded)]),
        need,
        strength,
        _prefixes(),
        defined.arity(),
    )
    piece, form = _leaf_pieces(kinds, values, leaves[0], len(leaves[1]))
    longest = int(np.diff(offsets).max(initial=0))
    n_bytes = infix.longest(kinds, piece, notation.start) + len(offsets)
    writing = empty(infix.Writing, n_bytes=n_bytes, n=longest + 1, n_waiting=6 * longest + 8)
    n = infix.write(infix.Pieces(kinds, piece, form, offsets), notation, writing)
    return writing.out[:n].tobytes().decode().split("\0")[:-1]


def _prefixes() -> np.ndarray:
    """By code: whether the operator stands before its operand."""
    prefix = np.zeros(256, np.bool_)
    prefix[[row.code for row in ops.OPERATORS if row.infix is not None and row.arity == 1]] = True
    return prefix


def _leaf_pieces(
    kinds: np.ndarray, values: np.ndarray, numbers: list[str], n_variables: int
) -> tuple[np.ndarray, np.ndarray]:
    """(piece, form) of every token, as ``infix.write`` takes them."""
    piece = values.astype(np.int64)
    form = np.where(kinds == OPERATOR, values, infix.LEAF).astype(np.uint8)
    constant = kinds == CONSTANT
    index = np.unique(values[constant], return_inverse=True)[1]
    piece[constant] = infix.FIRST_LEAF + index
    form[constant] = np.array([_form(text) for text in numbers], np.uint8)[index]
    piece[kinds == VARIABLE] += infix.FIRST_LEAF + len(numbers)
    piece[kinds == PARAMETER] += infix.FIRST_LEAF + len(numbers) + n_variables
    return piece, form


def _form(number: str) -> int:
    if number.startswith("-"):
        return infix.NEGATIVE
    return infix.SCIENTIFIC if "10^" in number else infix.NUMBER
