"""Parses the definition of a user's operator: ``swish(a) = a / (1 + exp(-a))`` becomes a ``Definition``.

In: the text, as ``exprkit.operator`` takes it, or what a file or a pickle has saved.  Out: a definition that every
text, population and generator of this process knows from then on.

    >>> from exprkit.text.define import define
    >>> define("hill(a, b) = a^b / (1 + a^b)").arity
    2
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from exprkit.errors import ArgumentError, DataError, ParseError, brief, listed
from exprkit.numbers import as_numbers
from exprkit.operators import defined, ops
from exprkit.operators.defined import MOST_OPERANDS, OPERAND, Definition
from exprkit.text import formulas
from exprkit.text.names import CONSTANTS, Names
from exprkit.text.parse_errors import Faults
from exprkit.text.reader import from_items, tokens_of
from exprkit.text.tokens import MAX_TOKENS, OPERATOR, PARAMETER, VARIABLE

TAKEN = ("a", "b", "y", "f", "w")
HEAD = re.compile(r"\s*([^\W\d]\w*)\s*\(([^()]*)\)\s*")
FORM = "write it as 'name(a, b) = formula'"


def define(text: Any, domain: Any = None, latex: str = "") -> Definition:
    """Define an operator; the arguments and errors are those of ``exprkit.operator``."""
    name, operands, formula = _parts(text)
    check_name(name)
    try:
        names = Names(variables=list(operands), parameters=0)
    except ParseError as error:
        raise ArgumentError(f"operator {name!r}: its operands are no names: {error}") from None
    kinds, values, uses = _tokens(name, formula, names)
    for index, operand in enumerate(operands):
        if not np.any((kinds == OPERAND) & (values == index)):
            raise ArgumentError(f"operator {name!r}: its formula does not use the operand {operand!r}")
    intervals, parts = intervals_of(name, domain, len(operands)), latex_parts(name, latex, operands)
    return defined.add(
        Definition(
            name=name,
            operands=operands,
            formula=formula,
            kinds=kinds,
            values=values,
            uses=uses,
            domain=intervals,
            latex=latex,
            latex_parts=parts,
        )
    )


def of_table(text: str) -> ops.Operator | None:
    """The table's operator that a definition names and means, as in ``inv(x) = 1 / x``."""
    name, operands, formula = _parts(text)
    row = ops.BY_SPELLING.get(name)
    if row is None or row.arity != len(operands):
        return None
    kinds, values = formula_tokens(formula, Names(list(operands), 0))
    kinds[kinds == VARIABLE] = OPERAND
    expansion = formulas.expanded(kinds, values, np.array([0, len(kinds)]), formulas.user_formulas())
    at = [np.linspace(low, high, 101) * (1 + 0.01 * k) for k, (low, high) in enumerate(row.domain[: row.arity])]
    with np.errstate(all="ignore"):
        same = np.allclose(
            defined.evaluated(expansion.kinds, expansion.values, at),
            row.numpy(*at),
            rtol=1e-9,
            atol=1e-300,
            equal_nan=True,
        )
    return row if same else None


def formula_tokens(text: str, names: Names) -> tuple[np.ndarray, np.ndarray]:
    """(kinds, values) of one text.

    Raises ParseError with the text and a caret under what is wrong.
    """
    batch = from_items([text], alone=True)
    batch.names = names
    kinds, values, _, faults = tokens_of(batch)
    if faults:
        raise Faults(faults).error(1, alone=True)
    return kinds, values


def restored(kinds: np.ndarray, values: np.ndarray, saved: Iterable[defined.Saved]) -> np.ndarray:
    """The values of tokens from a file or another process, with the codes that their operators have here.

    Raises ArgumentError where an operator has another meaning here.
    """
    own = np.arange(256, dtype=np.uint64)
    for code, text, latex, domain in saved:
        own[code] = (_formula(text, latex, domain) if "=" in text else _function(text)).code
    operators = kinds == OPERATOR
    if np.array_equal(own, np.arange(256)) or np.any(values[operators] > 255):  # the latter is complained of later
        return values
    values = values.copy()
    values[operators] = own[values[operators]]
    return values


def _formula(text: str, latex: str, domain: Any) -> defined.Written:
    """The operator with a formula that a file or another process names."""
    name = text.partition("(")[0]
    known = defined.spelled(name)
    try:
        return define(text, domain, latex)
    except ArgumentError:
        if not isinstance(known, Definition):
            raise
        raise ArgumentError(
            f"operator {name!r} is {known.text!r} here and {text!r} where this was saved: define it here under another "
            "name, in a new process"
        ) from None


def _function(text: str) -> defined.Written:
    """The operator without a formula that a file or another process names, as in ``airy(a)``."""
    name = text.partition("(")[0]
    row = defined.spelled(name)
    if isinstance(row, Definition) and row.function and defined.head(row) != text:
        row = defined.row(int(row.values[-1]))
    function = isinstance(row, ops.Operator) or (isinstance(row, Definition) and row.function)
    if row is None or not function or defined.head(row) != text:
        raise ArgumentError(
            f"operator {name!r} is a function, which no file holds: first exprkit.operator({text!r}, numpy=…)"
        )
    return row


# ── the parts of a definition ────────────────────────────────────────────────────────


def _parts(text: Any) -> tuple[str, tuple[str, ...], str]:
    """Name, operands and formula."""
    if not isinstance(text, str):
        raise ArgumentError(f"an operator is a text, {FORM}; not {brief(text)}")
    head, equals, formula = text.partition("=")
    match = HEAD.fullmatch(head)
    if not equals or match is None:
        raise ArgumentError(f"{brief(text)} does not define an operator: {FORM}")
    operands = tuple(word.strip() for word in match[2].split(","))
    if not 1 <= len(operands) <= MOST_OPERANDS or not all(operands):
        raise ArgumentError(f"operator {match[1]!r}: it needs 1 to {MOST_OPERANDS} operands, as in 'name(a, b) = …'")
    return match[1], operands, formula.strip()


def check_name(name: str) -> None:
    """An error for what cannot be a new operator's name."""
    if name in ops.BY_SPELLING or name in ops.BY_NAME:
        raise ArgumentError(f"operator {name!r}: exprkit has an operator of this name; choose another one")
    if not name.isidentifier():
        raise ArgumentError(f"operator {name!r}: its name must be letters, digits and underscores")
    if name in TAKEN:
        words = ", ".join(TAKEN)
        raise ArgumentError(f"operator {name!r}: losses and derivatives are written over {words}; choose another name")
    if name in CONSTANTS or any(Names.numbered(name, kind) for kind in (VARIABLE, PARAMETER)):
        raise ArgumentError(f"operator {name!r}: this is how a number, variable or parameter is written")


def _tokens(name: str, formula: str, names: Names) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """The formula's tokens, with the formulas of other operators of the user's written out, and their names."""
    if defined.spelled(name) is None and re.search(rf"\b{name}\s*\(", formula):
        raise ArgumentError(f"operator {name!r}: it cannot be made of itself")
    try:
        kinds, values = formula_tokens(formula, names)
    except ParseError as error:
        raise ParseError(f"operator {name!r}: {error}") from None
    codes = defined.codes_in(kinds, values, OPERATOR)
    uses = tuple(row.name for code in codes if (row := defined.row(code)) is not None)
    if name in uses:
        raise ArgumentError(f"operator {name!r}: it cannot be made of itself")
    kinds[kinds == VARIABLE] = OPERAND
    written_out = formulas.expanded(kinds, values, np.array([0, len(kinds)]), formulas.user_formulas())
    if written_out.too_long >= 0:
        raise ArgumentError(f"operator {name!r}: written out its formula has more than {MAX_TOKENS:,} tokens")
    return written_out.kinds, written_out.values, uses


def intervals_of(name: str, domain: Any, arity: int) -> tuple[ops.Interval, ...]:
    """An interval for each operand."""
    if domain is None:
        return (ops.ANY,) * arity
    try:
        pairs = as_numbers("domain", listed(domain) or domain, gaps=False).astype(np.float64)
    except DataError:
        pairs = np.empty(0)
    pairs = pairs[None] if pairs.shape == (2,) else pairs
    if pairs.shape != (arity, 2) or not np.all(pairs[:, 0] < pairs[:, 1]):
        shown = brief(domain)
        raise ArgumentError(f"operator {name!r}: domain must be (low, high) for each of its operands, not {shown}")
    return tuple((float(low), float(high)) for low, high in pairs)


def latex_parts(name: str, latex: str, operands: tuple[str, ...]) -> tuple[str, ...]:
    r"""The parts before, between and after the operands of ``\frac{{a}}{{b}}``; its operands are in braces."""
    if not isinstance(latex, str):
        raise ArgumentError(f"operator {name!r}: latex must be a text, not {brief(latex)}")
    if not any(f"{{{operand}}}" in latex for operand in operands):
        word = name.replace("_", r"\_")
        function = latex or rf"\operatorname{{{word}}}"
        return rf"{function}\left(", *[", "] * (len(operands) - 1), r"\right)"
    pieces = re.split(r"\{(" + "|".join(operands) + r")\}", latex)
    if tuple(pieces[1::2]) != operands:
        raise ArgumentError(f"operator {name!r}: latex must hold every operand once and in order, as {{{operands[0]}}}")
    return tuple(pieces[::2])
