"""Formulas as trees of nested tuples, and back.

In: an ``Expression``.  Out: its tree; and back: the expression of a tree, and the number of its nodes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from exprkit.errors import brought_by
from exprkit.expressions.expression import Expression
from exprkit.operators import defined, ops
from exprkit.text.tokens import CONSTANT, OPERATOR, VARIABLE

with brought_by("search"):
    from scipy import special

Tree = tuple[Any, ...]  # (VARIABLE, i), (PARAMETER, i), (CONSTANT, number) or (OPERATOR, code, operand, ...)


def tree_of(expression: Expression) -> Tree:
    """An expression as nested tuples."""

    def leaf(kind: int, value: int) -> Tree:
        return kind, float(np.uint64(value).view(np.float64)) if kind == CONSTANT else value

    return defined.folded(expression.kinds, expression.values, leaf, lambda row, own: (OPERATOR, row.code, *own))


def expression_of(tree: Tree) -> Expression:
    """A tree as an expression of x1, x2, …"""
    kinds: list[int] = []
    values: list[np.uint64] = []
    _write(tree, kinds, values)
    return Expression(np.array(kinds, np.uint8), np.array(values, np.uint64))


def _write(tree: Tree, kinds: list[int], values: list[np.uint64]) -> None:
    if tree[0] == OPERATOR:
        for operand in tree[2:]:
            _write(operand, kinds, values)
        values.append(np.uint64(tree[1]))
    else:
        values.append(np.float64(tree[1]).view(np.uint64) if tree[0] == CONSTANT else np.uint64(tree[1]))
    kinds.append(tree[0])


def nodes(tree: Tree) -> int:
    """The number of nodes of a tree."""
    if tree[0] != OPERATOR:
        return 1
    n = 1
    for operand in tree[2:]:
        n += nodes(operand) if operand[0] == OPERATOR else 1
    return n


def function_of(row: defined.Written) -> Callable[..., np.ndarray]:
    """The function of an operator on float64 arrays; SciPy's, some ulp off, where there is one.

    ``row.numpy`` then asks mpmath or ``math`` for every number: 120 s of a small search with ``digamma``.
    """
    return _scipy_function(getattr(row, "python", "")) or row.numpy


@functools.cache
def _scipy_function(code: str) -> Callable[..., np.ndarray] | None:
    name = re.fullmatch(r"special\.(\w+)\(a\)", code)
    return getattr(special, name[1]) if name else None


def value_of(tree: Tree, x: np.ndarray) -> Any:
    """Values of a tree whose variables are all x."""
    if tree[0] == OPERATOR:
        return function_of(defined.known(tree[1]))(*(value_of(operand, x) for operand in tree[2:]))
    return tree[1] if tree[0] == CONSTANT else x


def replaced_variables(tree: Tree, others: Sequence[Tree]) -> Tree:
    """A tree with another tree in the place of each of its variables."""
    if tree[0] == OPERATOR:
        return (*tree[:2], *(replaced_variables(operand, others) for operand in tree[2:]))
    return others[tree[1]] if tree[0] == VARIABLE else tree


def combination(terms: Iterable[tuple[float, Tree | None]]) -> Tree:
    """The tree of a linear combination, in order; a function None is 1."""
    trees = [(CONSTANT, a) if tree is None else (OPERATOR, ops.MUL, (CONSTANT, a), tree) for a, tree in terms]
    return functools.reduce(lambda a, b: (OPERATOR, ops.ADD, a, b), trees)


def replacements(tree: Tree, changes: Callable[[Tree], Iterable[Tree]]) -> list[Tree]:
    """All trees in which one operator with its operands is replaced by one of its ``changes``, the root's first."""
    if tree[0] != OPERATOR:
        return []
    trees = list(changes(tree))
    for k in range(2, len(tree)):
        trees += [(*tree[:k], other, *tree[k + 1 :]) for other in replacements(tree[k], changes)]
    return trees
