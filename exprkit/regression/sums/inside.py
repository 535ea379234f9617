"""Functions with a parameter inside: ``u(c h)``, ``u(1 + c h)`` and ``u(v(c h) + 1)`` over a grid of c.

In: functions h with their values, operators.  Out: values and trees of terms, to be chosen from; a fit of all numbers
follows.

    >>> import numpy as np
    >>> from exprkit.expressions.arguments import operators_of
    >>> from exprkit.regression.formulas.trees import expression_of
    >>> from exprkit.regression.sums.inside import terms_inside
    >>> from exprkit.text.tokens import VARIABLE
    >>> terms = terms_inside(np.array([[1.0, 2.0, 3.0]]), [(VARIABLE, 0)], operators_of(["exp", "/"]))
    >>> print(expression_of(terms.trees[0]), "|", expression_of(terms.trees[-1]))
    exp(0.0158 * x1) | 1 / (1 + -5 * x1)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from exprkit.operators import defined, ops
from exprkit.regression.formulas.trees import Tree, nodes, replaced_variables, value_of
from exprkit.regression.pairs.links import inverse
from exprkit.regression.pairs.pool import is_power, is_symmetric
from exprkit.text.tokens import CONSTANT, OPERATOR, VARIABLE

GRID = tuple(10.0 ** np.arange(-1.5, 1.01, 0.125))  # c times the usual size of h
SHIFTED = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # the same beside a 1
LARGEST = 1e12  # ratio of a term's values

H: Tree = (VARIABLE, 0)  # c h, in the tree of an inner function
ONE_PLUS_H: Tree = (OPERATOR, ops.ADD, (CONSTANT, 1.0), H)


class Inner(NamedTuple):
    """An inner function, as a tree of c h; and whether a 1 stands beside c h, so that -c h may not exceed that."""

    template: Tree
    beside_1: bool

    def function(self, x: np.ndarray) -> np.ndarray:
        """Values of the function, x being values of c h."""
        return np.asarray(value_of(self.template, x))

    def tree(self, operand: Tree) -> Tree:
        """The function of an operand c h."""
        return replaced_variables(self.template, [operand])

    @property
    def signs(self) -> tuple[float, ...]:
        """The signs of c that make different functions."""
        return (1.0,) if is_symmetric(self.function) else (1.0, -1.0)


class Functions(NamedTuple):
    """Functions to choose from: values by function and row, trees, sizes in tokens."""

    values: np.ndarray
    trees: list[Tree]
    sizes: np.ndarray


def terms_inside(h: np.ndarray, trees: Sequence[Tree], operators: Sequence[defined.Written]) -> Functions:
    """The terms of all functions h with all operators; those that are finite."""
    values, term_trees = [], []
    for row, tree in zip(h, trees, strict=True):
        usual = float(np.median(np.abs(row))) or 1.0
        for inner, grid in _inner_functions(operators):
            for c in (sign * float(f"{at / usual:.3g}") for at in grid for sign in inner.signs):
                with np.errstate(all="ignore"):
                    column = inner.function(c * row)
                size = np.abs(column)
                if np.isfinite(column).all() and size.max() < LARGEST * max(float(np.median(size)), 1e-300):
                    values.append(column)
                    term_trees.append(inner.tree((OPERATOR, ops.MUL, (CONSTANT, c), tree)))
    sizes = np.array([nodes(tree) for tree in term_trees], np.int64)
    return Functions(np.array(values).reshape(len(term_trees), h.shape[1]), term_trees, sizes)


def _inner_functions(operators: Sequence[defined.Written]) -> Iterator[tuple[Inner, Sequence[float]]]:
    """Inner functions with their grids of c; those that c would only multiply or shift are left out."""
    unary = [row for row in operators if row.arity == 1]
    bounded = [row for row in unary if not is_power(row) and not is_logarithm(row)]
    for row in bounded:
        yield Inner((OPERATOR, row.code, H), False), GRID
    for row in filter(is_logarithm, unary):
        for other in (other for other in bounded if inverse(row) is other):
            for shift in (1.0, -1.0):
                shifted = OPERATOR, ops.ADD, (OPERATOR, other.code, H), (CONSTANT, shift)
                yield Inner((OPERATOR, row.code, shifted), False), GRID
        yield Inner((OPERATOR, row.code, ONE_PLUS_H), True), SHIFTED
    if any(row.code == ops.DIV for row in operators):
        yield Inner(_reciprocal(ONE_PLUS_H), True), SHIFTED


def with_a_number(operators: Sequence[defined.Written]) -> list[Inner]:
    """The inner functions ``u(c h)``, and ``u(1 + c h)`` for logarithms, roots, inverse roots and inverses."""
    inner: list[Inner] = []
    divides = any(row.code == ops.DIV for row in operators)
    for row in (row for row in operators if row.arity == 1):
        beside_1 = OPERATOR, row.code, ONE_PLUS_H
        if not is_power(row) and not is_logarithm(row):
            inner.append(Inner((OPERATOR, row.code, H), False))
        elif not is_symmetric(row.numpy):
            inner.append(Inner(beside_1, True))
        if is_power(row) and not is_symmetric(row.numpy) and divides:
            inner.append(Inner(_reciprocal(beside_1), True))
    return [*inner, Inner(_reciprocal(ONE_PLUS_H), True)] if divides else inner


def _reciprocal(tree: Tree) -> Tree:
    return OPERATOR, ops.DIV, (CONSTANT, 1.0), tree


def is_logarithm(row: defined.Written) -> bool:
    """Whether a factor of the operand is a summand of the result."""
    a = np.array([0.13, 0.2, 0.57, 1.0, 2.9, 7.0])
    with np.errstate(all="ignore"):
        risen = np.array([row.numpy(factor * a) - row.numpy(a) for factor in (1.5, 2.3)])
        return bool((np.ptp(risen, axis=1) <= 1e-12 * np.abs(risen[:, 0])).all() and risen.any())
