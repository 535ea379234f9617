"""Parts of formulas: the operators with what they are of, and those that several formulas have.

In: formulas as trees.  Out: their parts, and the formulas written by names of the parts that they share.

    >>> import exprkit as ek
    >>> from exprkit.targets.parts import ordered, parts_of
    >>> product, sum = (ordered(one) for one in ek.parse(["x2 * x1", "exp(x1 * x2) + 2"]))
    >>> len(parts_of(product) & parts_of(sum))
    1
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from exprkit.expressions.expression import Expression
from exprkit.operators import defined, ops
from exprkit.regression.formulas.trees import Tree, nodes, tree_of
from exprkit.text.tokens import CONSTANT, OPERATOR


def ordered(formula: Expression) -> Tree:
    """The tree of a formula, operands in an order that does not depend on how it was written, numbers last."""
    return _ordered(tree_of(formula))


def _ordered(tree: Tree) -> Tree:
    if tree[0] != OPERATOR:
        return tree
    code, row = tree[1], defined.known(tree[1])
    if not row.commutative:
        first, *others = map(_ordered, tree[2:])
        if code == ops.DIV and first[:2] == (OPERATOR, ops.MUL) and first[3][0] == CONSTANT:  # a number stands outside
            return OPERATOR, ops.MUL, (OPERATOR, code, first[2], *others), first[3]
        return OPERATOR, code, first, *others
    operands = _chained(tree, code) if getattr(row, "chain", False) else list(tree[2:])
    first, *others = sorted(map(_ordered, operands), key=lambda one: (one[0] == CONSTANT, repr(one)))
    for other in others:
        first = (OPERATOR, code, first, other)
    return first


def _chained(tree: Tree, code: int) -> list[Tree]:
    """The operands of a, b and c, say, of a + b + c."""
    if tree[:2] != (OPERATOR, code):
        return [tree]
    return [one for operand in tree[2:] for one in _chained(operand, code)]


def parts_of(tree: Tree) -> set[Tree]:
    """The distinct parts that begin with an operator, and hold a variable."""
    if tree[0] != OPERATOR:
        return set()
    return {tree}.union(*map(parts_of, tree[2:])) if _has_variable(tree) else set()


def _has_variable(tree: Tree) -> bool:
    return any(map(_has_variable, tree[2:])) if tree[0] == OPERATOR else tree[0] != CONSTANT


def n_shared(trees: Sequence[Tree]) -> int:
    """How many operators formulas need less when a part that several have is written once."""
    parts = [parts_of(tree) for tree in trees]
    return sum(map(len, parts)) - len(set().union(*parts))


def shared(trees: Sequence[Tree]) -> list[Tree]:
    """The parts of several formulas that are in no larger part of as many, the largest first."""
    of = Counter(part for tree in trees for part in parts_of(tree))
    common = sorted((part for part, n in of.items() if n > 1), key=lambda part: (-nodes(part), repr(part)))
    return [part for part in common if not any(part in parts_of(o) - {o} and of[o] == of[part] for o in common)]


def named(tree: Tree, names: Mapping[Tree, Tree]) -> Tree:
    """A tree with leaves in place of parts."""
    if tree in names:
        return names[tree]
    return (*tree[:2], *(named(one, names) for one in tree[2:])) if tree[0] == OPERATOR else tree
