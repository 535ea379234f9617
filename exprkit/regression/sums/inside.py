"""Terms with a parameter inside: ``u(c h)``, ``u(1 + c h)`` and ``u(v(c h) + 1)`` over a grid of c.

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

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from exprkit.operators import defined, ops
from exprkit.regression.formulas.trees import Tree, nodes
from exprkit.regression.pairs.links import inverse
from exprkit.regression.pairs.pool import is_power
from exprkit.text.tokens import CONSTANT, OPERATOR

GRID = tuple(10.0 ** np.arange(-1.5, 1.01, 0.125))  # c times the usual size of h
SHIFTED = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # the same beside a 1
LARGEST = 1e12  # ratio of a term's values

Shape = tuple[Callable[[np.ndarray], np.ndarray], Callable[[Tree], Tree], Sequence[float]]


class Inner(NamedTuple):
    """What is made of c h: values, a tree, and whether a 1 stands beside it, so that -c h may not exceed that."""

    function: Callable[[np.ndarray], np.ndarray]
    tree: Callable[[Tree], Tree]
    beside_1: bool


class InnerTerms(NamedTuple):
    """Values by term and row, trees and sizes."""

    values: np.ndarray
    trees: list[Tree]
    sizes: np.ndarray


def terms_inside(h: np.ndarray, trees: Sequence[Tree], operators: Sequence[defined.Written]) -> InnerTerms:
    """Of all functions h with all operators; those that are finite."""
    values, term_trees = [], []
    for row, tree in zip(h, trees, strict=True):
        usual = float(np.median(np.abs(row))) or 1.0
        for function, shape, grid in _shapes(operators):
            signs = (1.0, -1.0) if not is_symmetric(function) else (1.0,)
            for c in (sign * float(f"{at / usual:.3g}") for at in grid for sign in signs):
                with np.errstate(all="ignore"):
                    column = function(c * row)
                size = np.abs(column)
                if np.isfinite(column).all() and size.max() < LARGEST * max(float(np.median(size)), 1e-300):
                    values.append(column)
                    term_trees.append(shape((OPERATOR, ops.MUL, (CONSTANT, c), tree)))
    sizes = np.array([nodes(tree) for tree in term_trees], np.int64)
    return InnerTerms(np.array(values).reshape(len(term_trees), h.shape[1]), term_trees, sizes)


def _shapes(operators: Sequence[defined.Written]) -> Iterator[Shape]:
    """Values and trees that are made of c h; those that c would only multiply or shift are left out."""
    unary = [row for row in operators if row.arity == 1]
    bounded = [row for row in unary if not is_power(row) and not is_logarithm(row)]
    for row in bounded:
        yield row.numpy, _within(row), GRID
    for row in (row for row in unary if is_logarithm(row)):
        for other in (other for other in bounded if inverse(row) is other):
            for shift in (1.0, -1.0):
                yield _log_of(row, other, shift), _log_tree(row, other, shift), GRID
        yield _shifted(row.numpy), _over_shift(_within(row)), SHIFTED
    if any(row.code == ops.DIV for row in operators):
        yield _shifted(np.reciprocal), _over_shift(_under_1), SHIFTED


def with_a_number(operators: Sequence[defined.Written]) -> list[Inner]:
    """Values and trees of ``u(c h)``, and of ``u(1 + c h)`` for logarithms, roots, inverse roots and inverses."""
    inner: list[Inner] = []
    divides = any(row.code == ops.DIV for row in operators)
    for row in (row for row in operators if row.arity == 1):
        if not is_power(row) and not is_logarithm(row):
            inner.append(Inner(row.numpy, _within(row), False))
        elif not is_symmetric(row.numpy):
            inner.append(Inner(_shifted(row.numpy), _over_shift(_within(row)), True))
        if is_power(row) and not is_symmetric(row.numpy) and divides:
            inner.append(Inner(_shifted(_inverted(row)), _over_shift(_over(row)), True))
    if divides:
        inner.append(Inner(_shifted(np.reciprocal), _over_shift(_under_1), True))
    return inner


def _under_1(inner: Tree) -> Tree:
    return OPERATOR, ops.DIV, (CONSTANT, 1.0), inner


def _inverted(row: defined.Written) -> Callable[[np.ndarray], np.ndarray]:
    return lambda inner: 1 / row.numpy(inner)


def _over(row: defined.Written) -> Callable[[Tree], Tree]:
    return lambda inner: (OPERATOR, ops.DIV, (CONSTANT, 1.0), (OPERATOR, row.code, inner))


def _within(row: defined.Written) -> Callable[[Tree], Tree]:
    return lambda inner: (OPERATOR, row.code, inner)


def _shifted(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda inner: function(1.0 + inner)


def _over_shift(shape: Callable[[Tree], Tree]) -> Callable[[Tree], Tree]:
    return lambda inner: shape((OPERATOR, ops.ADD, (CONSTANT, 1.0), inner))


def _log_of(row: defined.Written, other: defined.Written, shift: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda inner: row.numpy(other.numpy(inner) + shift)


def _log_tree(row: defined.Written, other: defined.Written, shift: float) -> Callable[[Tree], Tree]:
    return lambda inner: (OPERATOR, row.code, (OPERATOR, ops.ADD, (OPERATOR, other.code, inner), (CONSTANT, shift)))


def is_symmetric(function: Callable[[np.ndarray], np.ndarray]) -> bool:
    """Whether the sign of the operand changes no more than that of the result."""
    a = np.array([0.3, 0.7, 0.9])
    with np.errstate(all="ignore"):
        return bool(np.array_equal(np.abs(function(a)), np.abs(function(-a))))


def is_logarithm(row: defined.Written) -> bool:
    """Whether a factor of the operand is a summand of the result."""
    a = np.array([0.13, 0.2, 0.57, 1.0, 2.9, 7.0])
    with np.errstate(all="ignore"):
        risen = np.array([row.numpy(factor * a) - row.numpy(a) for factor in (1.5, 2.3)])
        return bool((np.ptp(risen, axis=1) <= 1e-12 * np.abs(risen[:, 0])).all() and risen.any())
