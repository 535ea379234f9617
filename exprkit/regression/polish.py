"""Polish: formulas in their shortest form by exact rules, and numbers that are simple ones.

In: an ``Expression`` without parameters.  Out: one that has the same values, but for rounding.

    >>> import exprkit as ek
    >>> from exprkit.regression.polish import simplified, simple_number
    >>> print(simplified(ek.parse("3 * (x1 * 2) / (4 / x2) - (0 - x1) * 1")[0]))
    1.5 * x1 * x2 + x1
    >>> simple_number(0.33333333333342)
    0.3333333333333333

Products and sums are taken apart into their factors and terms, whose numbers are put together to one.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.operators import ops
from exprkit.text.tokens import CONSTANT, OPERATOR

CLOSE = 1e-10  # share of a number within which it is taken for a simple one
DENOMINATORS = 12
LARGEST_NUMERATOR = 100

Tree = tuple[Any, ...]  # (VARIABLE, i), (PARAMETER, i), (CONSTANT, number) or (OPERATOR, row, operand, ...)


def simple_number(number: float, close: float = CLOSE) -> float:
    """The simplest fraction, or fraction of pi, that a number is close to; else the number."""
    if not math.isfinite(number) or number == 0:
        return number
    for unit in (1.0, math.pi):
        for denominator in range(1, DENOMINATORS + 1):
            numerator = round(number / unit * denominator)
            simple = unit * numerator / denominator
            if 0 < abs(numerator) <= LARGEST_NUMERATOR and abs(simple - number) <= close * abs(number):
                return simple
    return number


def tree_of(expression: Expression) -> Tree:
    """As nested tuples."""
    stack: list[Tree] = []
    for kind, value in zip(expression.kinds.tolist(), expression.values, strict=True):
        if kind == OPERATOR:
            row = ops.BY_CODE[int(value)]
            operands = stack[len(stack) - row.arity :]
            del stack[len(stack) - row.arity :]
            stack.append((OPERATOR, row, *operands))
        else:
            stack.append((kind, float(value.view(np.float64)) if kind == CONSTANT else int(value)))
    return stack[0]


def expression_of(tree: Tree) -> Expression:
    """Back, over x1, x2, …"""
    kinds: list[int] = []
    values: list[np.uint64] = []
    _write(tree, kinds, values)
    return Expression(np.array(kinds, np.uint8), np.array(values, np.uint64))


def _write(tree: Tree, kinds: list[int], values: list[np.uint64]) -> None:
    if tree[0] == OPERATOR:
        for operand in tree[2:]:
            _write(operand, kinds, values)
        values.append(np.uint64(tree[1].code))
    else:
        values.append(np.float64(tree[1]).view(np.uint64) if tree[0] == CONSTANT else np.uint64(tree[1]))
    kinds.append(tree[0])


def same(a: Expression, b: Expression) -> bool:
    """Whether two formulas are the same tokens."""
    return np.array_equal(a.kinds, b.kinds) and np.array_equal(a.values, b.values)


def simplified(expression: Expression) -> Expression:
    """The shorter form, or the expression itself."""
    tree = tree_of(expression)
    for _ in range(3):
        shorter = _simple(tree)
        if shorter == tree:
            break
        tree = shorter
    found = expression_of(tree)
    return found if found.n_tokens <= expression.n_tokens else expression


def nodes(tree: Tree) -> int:
    """Its tokens."""
    return 1 + sum(nodes(operand) for operand in tree[2:]) if tree[0] == OPERATOR else 1


def _simple(tree: Tree) -> Tree:
    if tree[0] != OPERATOR:
        return tree
    row, operands = tree[1], [_simple(operand) for operand in tree[2:]]
    if all(operand[0] == CONSTANT for operand in operands):
        with np.errstate(all="ignore"):
            return CONSTANT, float(row.numpy(*(np.float64(operand[1]) for operand in operands)))
    tree = (OPERATOR, row, *operands)
    if row.code in (ops.MUL, ops.DIV):
        return _product(tree).tree()
    if row.code in (ops.ADD, ops.SUB, ops.NEG):
        return _sum(tree)
    return _evenly(row, operands[0]) if row.arity == 1 else tree


def _evenly(row: ops.Operator, inner: Tree) -> Tree:
    """Without a sign that the operator takes away."""
    if row.rewrite.inner.get(ops.BY_CODE[ops.NEG].name) == row.name and inner[:2] == (OPERATOR, ops.BY_CODE[ops.NEG]):
        inner = inner[2]
    return OPERATOR, row, inner


class _Factors(NamedTuple):
    number: float
    above: list[Tree]
    below: list[Tree]

    def times(self, other: _Factors) -> _Factors:
        return _Factors(self.number * other.number, self.above + other.above, self.below + other.below).reduced()

    def over(self, other: _Factors) -> _Factors:
        inverse = 1 / other.number if other.number else math.inf
        return _Factors(self.number * inverse, self.above + other.below, self.below + other.above).reduced()

    def reduced(self) -> _Factors:
        """Without factors that stand above and below."""
        above, below = list(self.above), list(self.below)
        for factor in self.above:
            if factor in below:
                above.remove(factor)
                below.remove(factor)
        return _Factors(self.number, above, below)

    def tree(self) -> Tree:
        number, above, below = self
        if number == 0 or not (above or below):
            return CONSTANT, number
        sign = number < 0 and abs(number) == 1
        lead: list[Tree] = [] if abs(number) == 1 and above else [(CONSTANT, abs(number) if sign else number)]
        tree = functools.reduce(_times, lead + above)
        if below:
            tree = (OPERATOR, ops.BY_CODE[ops.DIV], tree, functools.reduce(_times, below))
        return (OPERATOR, ops.BY_CODE[ops.NEG], tree) if sign else tree


def _times(a: Tree, b: Tree) -> Tree:
    return OPERATOR, ops.BY_CODE[ops.MUL], a, b


def _product(tree: Tree) -> _Factors:
    if tree[0] == CONSTANT:
        return _Factors(tree[1], [], [])
    code = tree[1].code if tree[0] == OPERATOR else None
    if code == ops.MUL:
        return _product(tree[2]).times(_product(tree[3]))
    if code == ops.DIV:
        return _product(tree[2]).over(_product(tree[3]))
    if code == ops.INV:
        return _Factors(1.0, [], []).over(_product(tree[2]))
    if code == ops.NEG:
        return _product(tree[2]).times(_Factors(-1.0, [], []))
    return _Factors(1.0, [tree], [])


def _terms(tree: Tree, sign: float) -> list[_Factors]:
    code = tree[1].code if tree[0] == OPERATOR else None
    if code in (ops.ADD, ops.SUB):
        second = sign if code == ops.ADD else -sign
        return _terms(tree[2], sign) + _terms(tree[3], second)
    if code == ops.NEG:
        return _terms(tree[2], -sign)
    factors = _product(tree)
    return [factors._replace(number=sign * factors.number)]


def _sum(tree: Tree) -> Tree:
    """Numbers together, like terms together, what is positive first."""
    number, terms = 0.0, []
    for term in _terms(tree, 1.0):
        if not (term.above or term.below):
            number += term.number
            continue
        for k, other in enumerate(terms):
            if (other.above, other.below) == (term.above, term.below):
                terms[k] = other._replace(number=other.number + term.number)
                break
        else:
            terms.append(term)
    if number or not terms:
        terms.append(_Factors(number, [], []))
    terms = [term for term in terms if term.number] or [_Factors(0.0, [], [])]
    terms.sort(key=lambda term: term.number < 0)
    tree = terms[0].tree()
    for term in terms[1:]:
        code = ops.SUB if term.number < 0 else ops.ADD
        tree = (OPERATOR, ops.BY_CODE[code], tree, term._replace(number=abs(term.number)).tree())
    return tree
