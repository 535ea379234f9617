"""Monomials, and formulas with one term less, of which a search by slopes with noise may have one too many.

In: a formula.  Out: formulas.

    >>> import exprkit as ek
    >>> from exprkit.dynamics.terms import monomials, without_term
    >>> [str(term) for term in monomials(2, 2)]
    ['1', 'x1', 'x2', 'x1 * x1', 'x1 * x2', 'x2 * x2']
    >>> [str(formula) for formula in without_term(ek.parse("2 * (x1 - 3 * x2)"))]
    ['2 * x1', '-6 * x2']
"""

from __future__ import annotations

import functools
import itertools

from exprkit.expressions.expression import Expression
from exprkit.operators import ops
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.trees import Tree, expression_of, replacements, tree_of
from exprkit.text.tokens import CONSTANT, OPERATOR, VARIABLE


def monomials(n_columns: int, degree: int) -> list[Expression]:
    """All products of at most ``degree`` columns, 1 among them."""
    factors = (
        [(VARIABLE, k) for k in chosen]
        for n in range(degree + 1)
        for chosen in itertools.combinations_with_replacement(range(n_columns), n)
    )
    return [expression_of(functools.reduce(_times, trees) if trees else (CONSTANT, 1.0)) for trees in factors]


def without_term(formula: Expression) -> list[Expression]:
    """All formulas with one operand of a sum or difference left out."""
    return [simplified(expression_of(tree)) for tree in replacements(tree_of(formula), _operands)]


def _operands(tree: Tree) -> list[Tree]:
    if tree[1] == ops.ADD:
        return [tree[2], tree[3]]
    return [tree[2], _times((CONSTANT, -1.0), tree[3])] if tree[1] == ops.SUB else []


def _times(a: Tree, b: Tree) -> Tree:
    return (OPERATOR, ops.MUL, a, b)
