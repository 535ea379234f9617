"""Spelling: formulas with the operators that a user has chosen, and no others.

In: a formula as simplification writes it, with the fewest tokens, and codes of operators.  Out: the same function in
terms of those operators; None where there is no such way.

    >>> import exprkit as ek
    >>> from exprkit.expressions.arguments import operators_of
    >>> from exprkit.regression.rules.spelling import ChosenOperators
    >>> spelling = ChosenOperators(row.code for row in operators_of(["+", "*", "exp"]))
    >>> texts = "x1 - 3 * x2", "sqr(x1) / 4", "x1 / exp(2 * x2)", "x1 / x2", "sqrt(x1)"
    >>> [str(spelling.spell(formula) or "none") for formula in ek.parse(texts)]
    ['x1 + -3 * x2', '0.25 * (x1 * x1)', 'x1 * exp(-2 * x2)', 'none', 'none']

Numbers may be negative whatever is chosen, so that a difference is a sum.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable

from exprkit.expressions.expression import Expression
from exprkit.operators import defined, ops
from exprkit.regression.formulas.numbers import CACHE_SIZE
from exprkit.regression.formulas.simplify import EXP, LOG, exponent_of
from exprkit.regression.formulas.trees import Tree, expression_of, nodes, tree_of
from exprkit.text.tokens import CONSTANT, OPERATOR

MAX_FACTORS = 9  # of a power written as a product, and terms of a multiple written as a sum; chosen, not measured
NEAR = 1e-8  # distance of two exponents that count as equal
_MINUS_1: Tree = (CONSTANT, -1.0)


def _folded(two: Callable[[Tree | None, Tree | None], Tree | None], a: Tree, n: int) -> Tree | None:
    """A tree combined with itself n times by a binary operator: a * a * a."""
    tree: Tree | None = a
    for _ in range(n - 1):
        tree = two(tree, a)
    return tree


class ChosenOperators:
    """The operators that formulas may be written with, by their codes."""

    def __init__(self, codes: Iterable[int]) -> None:
        self.codes = frozenset(codes)
        unary = [row for code in sorted(self.codes) if (row := defined.known(code)).arity == 1]
        exponents = [(exponent_of(row), row.code) for row in unary]
        self._powers = [(e, code) for e, code in exponents if e is not None and e != 1]
        self._spelled = functools.lru_cache(maxsize=CACHE_SIZE)(self._spell)

    @property
    def divides(self) -> bool:
        """Whether anything can stand below a fraction line."""
        return not self.codes.isdisjoint((ops.DIV, ops.INV, ops.POW))

    def spell(self, formula: Expression) -> Expression | None:
        """The formula written with these operators alone; None if there is no way."""
        if {int(code) for code in formula.values[formula.kinds == OPERATOR]} <= self.codes:
            return formula
        tree = self._spelled(tree_of(formula))
        return None if tree is None else expression_of(tree)

    def _spell(self, tree: Tree) -> Tree | None:
        if tree[0] != OPERATOR:
            return tree
        code, operands = tree[1], [spelled for operand in tree[2:] if (spelled := self._spelled(operand)) is not None]
        if len(operands) < len(tree) - 2:
            return None
        if code in self.codes:
            as_it_is: Tree = (OPERATOR, code, *operands)
            flipped = [self._flipped(operand) for operand in operands] if code in (ops.MUL, ops.DIV) else [None]
            return as_it_is if None in flipped else min(as_it_is, (OPERATOR, code, *flipped), key=nodes)
        if code in (ops.ADD, ops.SUB):
            return (self._sum if code == ops.ADD else self._difference)(*operands)
        if code == ops.MUL:
            return self._product(*operands)
        if code == ops.DIV:
            return self._quotient(*operands)
        if code == ops.NEG:
            return self._negative(operands[0])
        if code == ops.POW:
            return self._power(operands[0], operands[1][1]) if operands[1][0] == CONSTANT else None
        exponent = exponent_of(defined.known(code)) if len(operands) == 1 else None
        return None if exponent is None or exponent == 1 else self._power(operands[0], exponent)

    # ── each of operands that are spelled; None where there is no way ──

    def _sum(self, a: Tree | None, b: Tree | None) -> Tree | None:
        if a is None or b is None:
            return None
        if ops.ADD in self.codes:
            return OPERATOR, ops.ADD, a, b
        for first, second in ((a, b), (b, a)):
            if ops.SUB in self.codes and (other := self._negative(second)) is not None:
                return OPERATOR, ops.SUB, first, other
        return None

    def _difference(self, a: Tree, b: Tree) -> Tree | None:
        if ops.SUB in self.codes:
            return OPERATOR, ops.SUB, a, b
        return self._sum(a, self._negative(b))

    def _negative(self, a: Tree) -> Tree | None:
        """The tree times -1: with the sign of a number in it changed, negated, times -1 or subtracted from 0."""
        if (flipped := self._flipped(a)) is not None:
            return flipped
        if ops.NEG in self.codes:
            return OPERATOR, ops.NEG, a
        if ops.MUL in self.codes:
            return OPERATOR, ops.MUL, _MINUS_1, a
        if ops.SUB in self.codes:
            return OPERATOR, ops.SUB, (CONSTANT, 0.0), a
        return (OPERATOR, ops.DIV, a, _MINUS_1) if ops.DIV in self.codes else None

    def _flipped(self, a: Tree) -> Tree | None:
        """The tree times -1 without more nodes, by the sign of a number or the order of a difference."""
        if a[0] == CONSTANT:
            return CONSTANT, -a[1]
        if a[0] != OPERATOR:
            return None
        if a[1] == ops.SUB:
            return OPERATOR, ops.SUB, a[3], a[2]
        if a[1] == ops.MUL and _MINUS_1 in a[2:]:
            return a[3] if a[2] == _MINUS_1 else a[2]
        places = {ops.MUL: (2, 3), ops.DIV: (2, 3)}.get(a[1], ())
        changed = ((k, self._flipped(a[k])) for k in places if a[k][:2] != (OPERATOR, ops.SUB))
        k, other = next(((k, other) for k, other in changed if other is not None), (0, None))
        if other is None and a[1] == ops.ADD:
            both = [self._flipped(operand) for operand in a[2:]]
            return None if None in both else (OPERATOR, ops.ADD, *both)
        return None if other is None else (*a[:k], other, *a[k + 1 :])

    def _product(self, a: Tree | None, b: Tree | None) -> Tree | None:
        if a is None or b is None:
            return None
        if ops.MUL in self.codes:
            return OPERATOR, ops.MUL, a, b
        a, b = (b, a) if b[0] == CONSTANT else (a, b)
        if a == (CONSTANT, 1.0):
            return b
        if a == _MINUS_1:
            return self._negative(b)
        if ops.DIV in self.codes:
            below = self._inverse(a)
            return None if below is None else (OPERATOR, ops.DIV, b, below)
        if a == b:
            return self._power(a, 2.0)
        if a[0] == CONSTANT and a[1] in range(2, MAX_FACTORS + 1):
            return _folded(self._sum, b, int(a[1]))
        return None

    def _quotient(self, a: Tree, b: Tree) -> Tree | None:
        below = self._inverse(b)
        if a == (CONSTANT, 1.0):
            return below
        return self._product(below, a) if b[0] == CONSTANT else self._product(a, below)

    def _inverse(self, b: Tree) -> Tree | None:
        if b[0] == CONSTANT:
            return (CONSTANT, 1 / b[1]) if b[1] else None
        if ops.DIV in self.codes or ops.INV in self.codes:
            inner = self._spelled(b)
            over: Tree = (ops.DIV, (CONSTANT, 1.0)) if ops.DIV in self.codes else (ops.INV,)
            return None if inner is None else (OPERATOR, *over, inner)
        return self._power(b, -1.0)

    def _power(self, a: Tree, exponent: float) -> Tree | None:
        """A power, in the shortest way with these operators."""
        if exponent == 1:
            return self._spelled(a)
        if a[0] == OPERATOR and a[1] == EXP.code:
            inner = self._spelled(a[2])
            scaled = None if inner is None else self._times(exponent, inner)
            return None if scaled is None else self._spelled((OPERATOR, EXP.code, scaled))
        if a[0] == OPERATOR and a[1] == ops.POW and a[3][0] == CONSTANT:
            return self._power(a[2], exponent * a[3][1])
        if a[0] == OPERATOR and a[1] in (ops.MUL, ops.DIV) and exponent == -1 and not self._is_power(-1.0):
            return self._product(self._power(a[2], -1.0), self._power(a[3], -1.0 if a[1] == ops.MUL else 1.0))
        inner = self._spelled(a)
        ways = [] if inner is None else [way for way in self._powers_of(inner, exponent) if way is not None]
        return min(ways, key=nodes, default=None)

    def _is_power(self, exponent: float) -> bool:
        return ops.POW in self.codes or any(abs(e - exponent) < NEAR for e, _ in self._powers)

    def _times(self, number: float, a: Tree) -> Tree | None:
        if number == -1:
            return self._negative(a)
        if a[0] == OPERATOR and a[1] == ops.MUL and a[2][0] == CONSTANT:
            return OPERATOR, ops.MUL, (CONSTANT, number * a[2][1]), a[3]
        return self._product((CONSTANT, number), a)

    def _powers_of(self, a: Tree, exponent: float) -> Iterable[Tree | None]:
        if ops.POW in self.codes:
            yield OPERATOR, ops.POW, a, (CONSTANT, exponent)
        if exponent < 0 and (ops.DIV in self.codes or ops.INV in self.codes):
            below = self._power(a, -exponent)
            yield None if below is None else self._inverse(below)
        for (e, code), (f, other) in itertools.product(self._powers, [(1.0, None), *self._powers]):
            if abs(e * f - exponent) < NEAR:
                inner: Tree = a if other is None else (OPERATOR, other, a)
                yield OPERATOR, code, inner
        if {ops.MUL, ops.DIV} & self.codes and 1 < exponent <= MAX_FACTORS:
            if exponent in range(2, MAX_FACTORS + 1):
                yield _folded(self._product, a, int(exponent))
            for e, code in self._powers:
                if 0 < e < exponent:
                    rest = self._power(a, round(exponent - e, 9))
                    yield self._product(rest, (OPERATOR, code, a))
        if {EXP.code, LOG.code} <= self.codes:
            inside = self._times(exponent, (OPERATOR, LOG.code, a))
            yield None if inside is None else (OPERATOR, EXP.code, inside)
