"""Export of postfix tokens as a Python function that runs without exprkit, for NumPy, JAX or PyTorch.

    >>> import exprkit as ek
    >>> from exprkit.text.python_writer import NUMPY, function
    >>> print(function(ek.parse("p1 * exp(-x2)")[0], NUMPY, params=[2.5]))
    import numpy as np
    <BLANKLINE>
    <BLANKLINE>
    def f(X, params=(2.5,)):
        # p1 * exp(-x2)
        X = np.asarray(X, float)
        x2 = X[:, 1]
        (p1,) = np.asarray(params, float)
        with np.errstate(all="ignore"):
            return p1 * np.exp(-x2)
    <BLANKLINE>

What an operator is called is in its row, in the cells ``python`` and ``torch``: one call stands in the formula, for
what is longer (``1 / (1 + np.exp(-a))``) a function of the operator's name comes first, as for every formula of the
user's.  A formula becomes several
lines where it is long, so that no nesting is too deep for Python.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from exprkit.errors import OperandError, ParseError
from exprkit.operators import defined, ops
from exprkit.operators.defined import OPERAND
from exprkit.text.names import NUMBERED
from exprkit.text.printer import texts
from exprkit.text.tokens import CONSTANT, PARAMETER, VARIABLE, NamedTokens, Tokens, Words

LINE = 96  # characters of a formula, from which on it gets a line of its own
ATOM = 9  # holds together anywhere
INFIX = {row.infix for row in ops.OPERATORS if row.infix in tuple("+-*/")}  # mean the same in Python
OPERANDS = ("a", "b", "c")  # of a formula of the user's
CALL = re.compile(r"[\w.]+\(a(?:, b)?\)")
RESERVED = {"np", "jnp", "torch", "special", "f", "X", "params", "float", "len", *keyword.kwlist}


class ArrayLibrary(NamedTuple):
    """How a library of arrays is written."""

    name: str
    module: str
    imported: str
    special: str  # the import of its special functions, "" where they belong to the module
    data: str  # the line that makes an array of X
    params: str  # an array of the parameters
    number: str  # one {number} as a value of the library
    spread: str  # one {value} for all points
    quiet: bool  # whether it warns of what IEEE 754 defines, log(0) say


NUMPY = ArrayLibrary(
    "NumPy", "np", "import numpy as np", "from scipy import special", "X = np.asarray(X, float)",
    "np.asarray(params, float)", "np.float64({number})", "np.full(len(X), {value})", False,
)  # fmt: skip
JAX = ArrayLibrary(
    "JAX", "jnp", "import jax.numpy as jnp", "from jax.scipy import special", "X = jnp.asarray(X)",
    "jnp.asarray(params)", "jnp.asarray({number})", "jnp.full(len(X), {value})", True,
)  # fmt: skip
TORCH = ArrayLibrary(
    "PyTorch", "torch", "import torch", "", "", "torch.as_tensor(params, dtype=X.dtype, device=X.device)",
    "X.new_tensor({number})", "({value}).expand(len(X))", True,
)  # fmt: skip


class Term(NamedTuple):
    """A part of a formula."""

    text: str
    strength: int
    literal: bool = False  # a plain number, whose arithmetic would be Python's


class _FunctionText(NamedTuple):
    """A function's text while it is written."""

    library: ArrayLibrary
    lines: list[str]
    functions: dict[str, str]  # by name, those that the formula needs
    imports: list[str]


def function(expression: NamedTokens, library: ArrayLibrary, params: Sequence[float] | None = None) -> str:
    """The text of ``f(X, params)``; with ``params`` these are its default.

    Raises
    ------
    ParseError
        for an expression that could not be read.
    OperandError
        where the library has no such function.
    """
    if not len(expression.kinds):
        raise ParseError("an expression that could not be read cannot be exported")
    names = {kind: _names(expression, kind) for kind in (VARIABLE, PARAMETER)}
    formula = _FunctionText(library, [], {}, [library.imported])
    value = _value(_written(expression.kinds, expression.values, names, formula), library)
    value = value if VARIABLE in expression.kinds else library.spread.format(value=value)
    body = [*formula.lines, f"return {value}"]
    if not library.quiet:
        body = ['with np.errstate(all="ignore"):', *(f"    {line}" for line in body)]
    head = _signature(names[PARAMETER], params)
    before = [
        f"# {_harmless(texts(expression)[0])}",
        library.data if names[VARIABLE] else "",
        *_columns(names[VARIABLE], expression.variables),
        _unpacked(names[PARAMETER], library),
    ]
    lines = [head, *(f"    {line}" for line in (*filter(None, before), *body))]
    return "\n".join([*formula.imports, "", "", *formula.functions.values(), *lines, ""])


def _harmless(text: str) -> str:
    """On one line of a comment."""
    return "".join(character if character.isprintable() else "?" for character in text)


# ── names ────────────────────────────────────────────────────────────────────────────


def _names(expression: Tokens, kind: int) -> dict[int, str]:
    """The names of the used variables or parameters in the function, by index."""
    words: Words = expression.variables if kind == VARIABLE else expression.parameters
    used = sorted({int(index) for index in expression.values[expression.kinds == kind]})
    return {index: _name(words[index] if words else "", kind, index) for index in used}


def _name(word: str, kind: int, index: int) -> str:
    own = word.isidentifier() and word.isascii() and word not in RESERVED and defined.spelled(word) is None
    other = NUMBERED[PARAMETER if kind == VARIABLE else VARIABLE]
    if own and not re.fullmatch(rf"_.*|{NUMBERED[kind]}[0-9]+|{other}[0-9]+", word):
        return word
    return f"{NUMBERED[kind]}{index + 1}"


def _columns(names: dict[int, str], words: Words) -> list[str]:
    """A line for every column that is used."""
    return [
        f"{name} = X[:, {index}]" + (f"  # {_harmless(words[index])}" if words and words[index] != name else "")
        for index, name in names.items()
    ]


def _signature(parameters: dict[int, str], params: Sequence[float] | None) -> str:
    if not parameters:
        return "def f(X):"
    if params is None:
        return "def f(X, params):"
    numbers = ", ".join(_literal(float(params[index]), 'float("{}")') for index in range(max(parameters) + 1))
    return f"def f(X, params=({numbers}{',' if max(parameters) == 0 else ''})):"


def _unpacked(parameters: dict[int, str], library: ArrayLibrary) -> str:
    """The line that names the parameters."""
    if not parameters:
        return ""
    names = [parameters.get(index, "_") for index in range(max(parameters) + 1)]
    return f"{', '.join(names) if len(names) > 1 else f'({names[0]},)'} = {library.params}"


# ── the formula ──────────────────────────────────────────────────────────────────────


def _written(kinds: np.ndarray, values: np.ndarray, names: dict[int, dict[int, str]], formula: _FunctionText) -> Term:
    """The formula; long parts go to ``formula.lines``."""

    def leaf(kind: int, value: int) -> Term:
        if kind == CONSTANT:
            return _number(float(np.uint64(value).view(np.float64)), formula.library)
        return Term(OPERANDS[value] if kind == OPERAND else names[kind][value], ATOM)

    return defined.folded(kinds, values, leaf, lambda row, own: _shortened(_applied(row, own, formula), formula))


def _number(number: float, library: ArrayLibrary) -> Term:
    text = _literal(number, f"{library.module}.{{}}")
    return Term(text, NEGATION.precedence if text.startswith("-") else ATOM, literal=True)


NEGATION = next(row for row in ops.OPERATORS if row.arity == 1 and row.infix)


def _literal(number: float, special: str) -> str:
    if math.isfinite(number):
        return repr(number)
    return f"{'-' if number < 0 else ''}{special.format('nan' if math.isnan(number) else 'inf')}"


def _shortened(term: Term, formula: _FunctionText) -> Term:
    """The term, or a name for it if it is long."""
    if len(term.text) < LINE:
        return term
    name = f"_{len(formula.lines) + 1}"
    formula.lines.append(f"{name} = {term.text}")
    return Term(name, ATOM)


def _applied(row: defined.Written, operands: list[Term], formula: _FunctionText) -> Term:
    if isinstance(row, ops.Operator) and row.infix in INFIX:
        if all(operand.literal for operand in operands):
            operands = [Term(_value(operands[0], formula.library), ATOM), *operands[1:]]
        return infix(row, row.infix, operands)
    values = [_value(operand, formula.library) for operand in operands]
    name = _called(row, formula) if isinstance(row, ops.Operator) else _defined(row, formula)
    return Term(f"{name}({', '.join(values)})", ATOM)


def infix(row: ops.Operator, sign: str, operands: list[Term]) -> Term:
    """Arithmetic, written with this sign."""
    last = within(operands[-1], row.precedence + 1)
    text = f"{sign}{last}" if row.arity == 1 else f"{within(operands[0], row.precedence)} {sign} {last}"
    return Term(text, row.precedence)


def within(term: Term, least: int) -> str:
    """The term, in parentheses unless it holds together as tightly."""
    return term.text if term.strength >= least else f"({term.text})"


def _value(term: Term, library: ArrayLibrary) -> str:
    """The term as an argument: a number is one of the library's."""
    return library.number.format(number=term.text) if term.literal else term.text


def _called(row: ops.Operator, formula: _FunctionText) -> str:
    """The name of the function; one that is the library's own, or stands in ``formula.functions``."""
    text = _spelling(row, formula.library)
    if "special." in text and formula.library.special and formula.library.special not in formula.imports:
        formula.imports.append(formula.library.special)
    if CALL.fullmatch(text):
        return text.partition("(")[0]
    arguments = "a" if row.arity == 1 else "a, b"
    formula.functions.setdefault(row.name, f"def {row.name}({arguments}):\n    return {text}\n\n")
    return row.name


def _defined(row: defined.Definition, formula: _FunctionText) -> str:
    """The name of the function that is a formula of the user's; it stands in ``formula.functions``."""
    if row.function:
        lacking = f"{formula.library.name} has no function for {row.name!r}"
        raise OperandError(f"{lacking}, which is defined without a formula")
    name = row.name + "_" * (row.name in RESERVED)
    if name not in formula.functions:
        library = formula.library._replace(number=formula.library.number.replace("X.", "a."))  # X is not there
        inner = formula._replace(lines=[], library=library)
        value = _value(_written(row.kinds, row.values, {}, inner), library)
        body = "".join(f"    {line}\n" for line in (*inner.lines, f"return {value}"))
        formula.functions[name] = f"def {name}({', '.join(OPERANDS[: row.arity])}):\n{body}\n"
    return name


def _spelling(row: ops.Operator, library: ArrayLibrary) -> str:
    """The formula over ``a`` and ``b``."""
    is_torch = library.name == TORCH.name
    own = is_torch and row.torch != ""
    text = row.torch if own else row.python
    if not text:
        raise OperandError(f"{library.name} has no function for {row.name!r}")
    if is_torch and not own:
        text = re.sub(r"\bspecial\.", "torch.special.", text)
    return re.sub(r"\bnp\.", f"{library.module}.", text)
