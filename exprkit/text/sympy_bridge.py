"""Conversion of SymPy objects to postfix tokens and back, directly, with every number exact to the bit.

    >>> import exprkit as ek, sympy
    >>> x1, x2 = sympy.symbols("x1 x2")
    >>> ek.parse([sympy.sqrt(x1) - x2 / 3])[0]
    <Expression: sqrt(x1) - x2 / 3>

===========================  ==========================================================
SymPy                        is read as
===========================  ==========================================================
``Add``, ``Mul``             chains; terms with a factor -1 are subtracted, powers with a
                             negative whole or rational exponent are divided by
``Float``                    the nearest float64: exact for the usual 53 bits
``Integer``, ``Rational``    the nearest float64; as a factor, ``2/3`` is ``2 * … / 3``
``Piecewise``, ``a > b``     the table's conditions, 1 for true and 0 for false; ``Eq(a, b)`` as
                             ``a <= b`` and ``a >= b``
``sec``, ``acot``, …         two operators, of ``ops.COMPOSED``
``sinc``, ``Heaviside``, …   what SymPy writes for them with functions of the table
``re``, ``im``, …            what they are of real symbols: ``real_root(x, 3)`` is ``sign(x) * abs(x) ^ (1/3)``
other classes                the row of the table that names them, or the user's operator of that name
===========================  ==========================================================

Reading walks with a stack of its own, so depth is no matter; a symbol's name is looked
up and never evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import sympy

from exprkit.errors import ExprkitError, ParseError
from exprkit.operators import defined, ops
from exprkit.text.decimals import nearest_float
from exprkit.text.names import NUMBERED, Names
from exprkit.text.parse_errors import closest, quoted
from exprkit.text.tokens import CONSTANT, MAX_TOKENS, OPERATOR, PARAMETER, VARIABLE, Tokens

Token = tuple[int, int]
Item = Any  # a SymPy object that waits to be read, or a Token

BY_CLASS = {name: row for row in ops.OPERATORS for name in (row.name, *row.aliases, *row.sympy_class)}

REWRITTEN = {
    sympy.sinc: sympy.sin,
    sympy.Heaviside: sympy.Piecewise,
    sympy.factorial: sympy.gamma,
    sympy.beta: sympy.gamma,
    sympy.binomial: sympy.gamma,
    sympy.RisingFactorial: sympy.gamma,
    sympy.FallingFactorial: sympy.gamma,
    sympy.frac: sympy.floor,
    sympy.SingularityFunction: sympy.Piecewise,
}
COMPLEX = sympy.re, sympy.im, sympy.conjugate, sympy.arg, sympy.Derivative  # are something else of real symbols

WHOLE = 2**53  # whole numbers up to here are written as Integer


# ── reading ──────────────────────────────────────────────────────────────────────────


def read(obj: sympy.Basic, names: Names) -> tuple[np.ndarray, np.ndarray]:
    """(kinds, values) of a SymPy object.

    Raises ParseError for symbols, functions and numbers that exprkit does not know, and for too many tokens.
    """
    if _holds(obj, COMPLEX):
        obj = obj.xreplace({symbol: sympy.Symbol(symbol.name, real=True) for symbol in obj.free_symbols}).doit()
    tokens: list[Token] = []
    waiting: list[Item] = [obj]
    while waiting:
        item = waiting.pop()
        if isinstance(item, tuple):
            tokens.append(item)
        else:
            waiting.extend(reversed(_items(item, names)))
        if len(tokens) + len(waiting) > MAX_TOKENS:
            raise ParseError(f"the expression has too many tokens; the limit is {MAX_TOKENS:,}")
    kinds, values = zip(*tokens, strict=True)
    return np.array(kinds, np.uint8), np.array(values, np.uint64)


def _holds(obj: Any, classes: tuple[Any, ...]) -> bool:
    """True if an object contains one of these classes; shared parts are visited once."""
    waiting, seen = [obj], set[int]()
    while waiting:
        item = waiting.pop()
        if isinstance(item, classes):
            return True
        new = [part for part in item.args if id(part) not in seen]
        seen.update(map(id, new))
        waiting += new
    return False


def _items(obj: Any, names: Names) -> list[Item]:
    """The parts of an object in postfix order: tokens and smaller objects."""
    if isinstance(obj, sympy.Symbol):
        return [_symbol(obj.name, names)]
    if isinstance(obj, (sympy.Number, sympy.NumberSymbol)):
        return [_constant(_float(obj))]
    if isinstance(obj, sympy.Add):
        return _sum(obj)
    if isinstance(obj, sympy.Mul):
        negative, items = _product(obj)
        return [*items, _operator("__neg__")] if negative else items
    if isinstance(obj, sympy.Pow):
        return _power(obj)
    if isinstance(obj, sympy.Piecewise):
        return _cases([(pair.expr, pair.cond) for pair in obj.args])
    if isinstance(obj, sympy.ITE):
        return _cases([(obj.args[1], obj.args[0]), (obj.args[2], sympy.true)])
    if isinstance(obj, sympy.Not):
        return _negated(obj.args[0])
    if isinstance(obj, sympy.Eq):
        return [sympy.Le(*obj.args, evaluate=False), sympy.Ge(*obj.args, evaluate=False), _of_class("And")]
    if isinstance(obj, sympy.Ne):
        return _negated(sympy.Eq(*obj.args, evaluate=False))
    if isinstance(obj, sympy.UnevaluatedExpr):
        return [obj.args[0]]
    if type(obj) in REWRITTEN and (other := obj.rewrite(REWRITTEN[type(obj)])) != obj:
        return [other]
    if obj in (sympy.I, sympy.zoo):
        raise ParseError(f"exprkit has real numbers only, and no {type(obj).__name__}")
    if obj in (sympy.true, sympy.false):
        return [_constant(float(obj is sympy.true))]
    return _application(obj)


def _symbol(name: str, names: Names) -> Token:
    meaning = names.named(name)
    if meaning is None or meaning[0] not in (VARIABLE, PARAMETER):
        hint = closest(name, names.words(VARIABLE, PARAMETER))
        hint = hint or ("; name the variables by variables=[...]" if names.variables is None else "")
        raise ParseError(f"unknown symbol {quoted(name)}{hint}")
    return meaning


def _float(number: Any) -> float:
    """The float64 nearest to a SymPy number."""
    if number in (sympy.oo, -sympy.oo, sympy.nan):
        return float(number)
    if isinstance(number, sympy.Rational):
        return nearest_float(Fraction(int(number.p), int(number.q)))
    if isinstance(number, sympy.NumberSymbol):
        number = number.evalf(60)
    if not isinstance(number, sympy.Float):
        raise ParseError(f"{quoted(type(number).__name__)} is not a real number")
    negative, mantissa, exponent, bits = number._mpf_
    if exponent + bits > 1100:  # far outside; the exact fraction would be huge
        size = float("inf")
    elif exponent + bits < -1200:
        size = 0.0
    else:
        size = nearest_float(Fraction(int(mantissa)) * Fraction(2) ** exponent)
    return -size if negative else size


def _constant(number: float) -> Token:
    return CONSTANT, int(np.float64(number).view(np.uint64))


def _operator(method: str) -> Token:
    return OPERATOR, ops.BY_METHOD[method].code


def _of_class(name: str) -> Token:
    return OPERATOR, BY_CLASS[name].code


def _sum(obj: sympy.Add) -> list[Item]:
    """Terms from left to right; the first is one that need not be subtracted, if there is any."""
    terms = [_signed(term) for term in obj.args]
    first = next((index for index, (negative, _) in enumerate(terms) if not negative), 0)
    items: list[Item] = [obj.args[first]]
    for negative, rest in (*terms[:first], *terms[first + 1 :]):
        items += [*rest, _operator("__sub__" if negative else "__add__")]
    return items


def _signed(term: Any) -> tuple[bool, list[Item]]:
    """(whether it is subtracted, what is added or subtracted)."""
    if isinstance(term, sympy.Mul):
        return _product(term)
    if isinstance(term, sympy.Rational) and term.p < 0:
        return True, [_constant(_float(-term))]
    return False, [term]


def _product(obj: sympy.Mul) -> tuple[bool, list[Item]]:
    """(whether a factor -1 is left out, the items of the rest)."""
    negative = False
    above: list[list[Item]] = []
    below: list[list[Item]] = []
    for factor in obj.args:
        exponent = _negative_exponent(factor)
        if exponent is not None:
            below.append(_raised(factor.base, -exponent))
        elif isinstance(factor, sympy.Rational) and abs(factor.p) <= WHOLE and factor.q <= WHOLE:
            negative ^= bool(factor.p < 0)
            if abs(factor.p) != 1:
                above.append([_constant(float(abs(factor.p)))])
            if factor.q != 1:
                below.append([_constant(float(factor.q))])
            if abs(factor.p) == factor.q == 1 and not factor.p < 0:
                above.append([factor])  # a plain 1, which only an unevaluated product holds
        else:
            above.append([factor])
    if not below:
        return negative, _chain(above, "__mul__") if above else [_constant(1.0)]
    if not above:
        return negative, [*_chain(below, "__mul__"), _inverse()]
    return negative, [*_chain(above, "__mul__"), *_chain(below, "__mul__"), _operator("__truediv__")]


def _chain(parts: list[list[Item]], method: str) -> list[Item]:
    items = list(parts[0])
    for part in parts[1:]:
        items += [*part, _operator(method)]
    return items


def _negative_exponent(obj: Any) -> sympy.Rational | None:
    """The exponent of a power that is a divisor."""
    if isinstance(obj, sympy.Pow) and isinstance(obj.exp, sympy.Rational) and obj.exp.p < 0:
        return obj.exp
    return None


def _power(obj: sympy.Pow) -> list[Item]:
    exponent = _negative_exponent(obj)
    if exponent is not None:
        return [*_raised(obj.base, -exponent), _inverse()]
    return _raised(obj.base, obj.exp)


def _raised(base: Any, exponent: Any) -> list[Item]:
    """``base ** exponent``; the exponent 1, square roots and powers of e are no powers."""
    if exponent == 1:
        return [base]
    if isinstance(exponent, sympy.Rational) and (exponent.p, exponent.q) == (1, 2):
        return [base, _of_class("Sqrt")]
    if base is sympy.E:
        return [exponent, _of_class(sympy.exp.__name__)]
    return [base, exponent, _operator("__pow__")]


def _inverse() -> Token:
    """The operator that a power of -1 is lowered to."""
    return OPERATOR, ops.BY_NAME[ops.BY_METHOD["__pow__"].rewrite.constant_b[-1.0]].code


def _cases(cases: list[tuple[Any, Any]]) -> list[Item]:
    """A Piecewise as a sum of conditions: each value counts where its case is the first that holds."""
    choose = _of_class("Piecewise")
    (value, condition), rest = cases[0], cases[1:]
    if condition == sympy.true:
        return [value]
    zero = bool(rest) and rest[0][1] == sympy.true and rest[0][0] == 0
    if zero and value == 1:
        return [condition]
    chosen = [condition, value, choose]
    if zero:
        return chosen
    remaining = [sympy.Piecewise(*rest, evaluate=False)] if rest else [_constant(float("nan"))]
    return [*chosen, *_negated(condition), *remaining, choose, _operator("__add__")]


def _negated(condition: Any) -> list[Item]:
    return [condition, _constant(0.0), _of_class("LessThan")]


def _application(obj: Any) -> list[Item]:
    """A function of the table."""
    name = type(obj).__name__
    arguments = list(obj.args)
    row: defined.Written | None = BY_CLASS.get(name) or defined.spelled(name)
    if row is not None and row.arity == 1 and len(arguments) == 2 and f"{name}{arguments[1]}" in BY_CLASS:
        row = BY_CLASS[f"{name}{arguments.pop()}"]  # a logarithm to a base that the table has
    elif row is not None and isinstance(obj, sympy.log) and len(arguments) == 2:
        own = (OPERATOR, row.code)
        return [arguments[0], own, arguments[1], own, _operator("__truediv__")]
    elif row is None and arguments and f"{name}{arguments[0]}" in BY_CLASS:
        row = BY_CLASS[f"{name}{arguments.pop(0)}"]  # a function of an order that the table has
    if row is None and name in ops.COMPOSED and len(arguments) == 1:
        return [*arguments, *((OPERATOR, ops.BY_NAME[spelling].code) for spelling in ops.COMPOSED[name])]
    if row is None:
        kind = "function" if isinstance(obj, sympy.Function) else "class"
        known = [spelling for spelling in (*BY_CLASS, *defined.spellings()) if spelling.rstrip("0123456789") != name]
        hint = closest(name, known) if kind == "function" else ""
        raise ParseError(f"the SymPy {kind} {quoted(name)} is not in exprkit's table{hint}")
    if len(arguments) < row.arity or (len(arguments) > row.arity and not row.chain):
        raise ParseError(f"the SymPy function {quoted(name)} has {len(arguments)} arguments here, not {row.arity}")
    items = arguments[: row.arity]
    for extra in arguments[row.arity :]:
        items += [(OPERATOR, row.code), extra]
    return [*items, (OPERATOR, row.code)]


# ── writing ──────────────────────────────────────────────────────────────────────────


def write(expression: Tokens) -> sympy.Expr:
    """The SymPy object, as it stands: nothing is simplified, so no constant is touched.

    Whole constants are ``Integer``, others ``Float`` of 53 bits.  SymPy has no -0.  An operator of the user's own is a
    function of its name, which ``doit()`` writes out and ``diff`` differentiates by its formula.

    Raises ExprkitError where SymPy itself fails, as for the larger of inf and -inf.
    """
    names = {VARIABLE: expression.variables, PARAMETER: expression.parameters}
    with sympy.evaluate(False):
        return _object(expression.kinds, expression.values, lambda kind, index: _leaf(kind, index, names[kind]))


def _object(kinds: np.ndarray, values: np.ndarray, leaf: Callable[[int, int], Any]) -> Any:
    """The object of postfix tokens."""
    if not len(kinds):
        raise ParseError("an expression that could not be read has no SymPy object")

    def part(kind: int, value: int) -> Any:
        return _number(float(np.uint64(value).view(np.float64))) if kind == CONSTANT else leaf(kind, value)

    return defined.folded(kinds, values, part, _applied)


def _applied(row: defined.Written, operands: list[Any]) -> Any:
    if isinstance(row, defined.Definition):
        return _function(row)(*operands)
    if row.code == ops.SUB and isinstance(operands[1], sympy.Integer) and operands[1].p > 0:
        return sympy.Add(operands[0], -operands[1])  # a product of -1 would stay one where symbols become numbers
    try:
        return row.sympy(sympy, *operands)  # type: ignore[misc]
    except Exception as error:  # it compares nan and oo when it sorts, and folds conditions inside conditions
        raise ExprkitError(f"SymPy cannot hold {row.name} of these operands: {error}") from error


@cache
def _function(definition: defined.Definition) -> Any:
    """SymPy's function of a user's operator."""
    if definition.function:
        return sympy.Function(definition.name)

    def written_out(*operands: Any) -> Any:
        return _object(definition.kinds, definition.values, lambda kind, index: operands[index])

    def doit(self: Any, **hints: Any) -> Any:
        return written_out(*(operand.doit(**hints) for operand in self.args))

    def fdiff(self: Any, argindex: int = 1) -> Any:
        operands = [sympy.Dummy(name) for name in definition.operands]
        slope = written_out(*operands).diff(operands[argindex - 1])
        return slope.subs(dict(zip(operands, self.args, strict=True)), simultaneous=True)

    def evalf(self: Any, prec: int) -> Any:
        return doit(self)._eval_evalf(prec)

    members = {"nargs": definition.arity, "doit": doit, "fdiff": fdiff, "_eval_evalf": evalf}
    return type(definition.name, (sympy.Function,), members)


def _number(number: float) -> sympy.Number:
    if 0 <= number <= WHOLE and number == int(number):
        return sympy.Integer(int(number))
    return sympy.Float(number)


@cache
def _symbols(letter: str, index: int) -> sympy.Symbol:
    return sympy.Symbol(f"{letter}{index + 1}")


def _leaf(kind: int, index: int, names: tuple[str, ...] | None) -> sympy.Symbol:
    return _symbols(NUMBERED[kind], index) if names is None else sympy.Symbol(names[index])
