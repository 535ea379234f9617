"""``TemplateLaw``: a formula for each unknown function of a template, and numbers, shared or one for each category.

In: trees whose constants were found.  Out: the whole formula: as fits want it, and as it is shown.

    >>> import numpy as np
    >>> import exprkit as ek
    >>> from exprkit.regression.formulas.trees import expression_of, tree_of
    >>> from exprkit.regression.skeletons.law import TemplateLaw
    >>> from exprkit.regression.skeletons.skeleton import LawSkeleton
    >>> law = TemplateLaw.of([tree_of(ek.parse("exp(0.5 * x1)")[0])], [np.array([3.0])], float.is_integer)
    >>> print(expression_of(law.shown(LawSkeleton.of("a * f(2 * x1)", ["x1"]))))
    3 * exp(0.5 * (2 * x1))
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from exprkit.operators import ops
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.trees import Tree, expression_of, tree_of
from exprkit.regression.skeletons.skeleton import LawSkeleton
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE

INSTEAD = (0.0, 1.0, -1.0)  # of a number that is needless


class TemplateLaw(NamedTuple):
    """Trees over arguments, whose parameters are numbered over all of them; ``values`` are (1,) or (n_categories,).

    Constants of the trees are numbers that fits leave as they are.
    """

    functions: tuple[Tree, ...]
    numbers: tuple[Tree, ...]
    values: tuple[np.ndarray, ...]

    @classmethod
    def of(
        cls,
        functions: Sequence[Tree],
        numbers: Sequence[np.ndarray],
        held: Callable[[float], bool],
        n_categories: int = 1,
    ) -> TemplateLaw:
        """Of trees with constants, but for those that are held; each has a value for each of ``n_categories``."""
        values = [np.asarray(number, np.float64) for number in numbers]

        def free(leaf: Tree) -> Tree:
            if leaf[0] != CONSTANT or held(leaf[1]):
                return leaf
            values.append(np.full(n_categories, leaf[1]))
            return PARAMETER, len(values) - 1

        trees = tuple(with_leaves(tree, free) for tree in functions)
        return cls(trees, tuple((PARAMETER, k) for k in range(len(numbers))), tuple(values))

    def exchanged(self, k: int, tree: Tree, held: Callable[[float], bool], n_categories: int = 1) -> TemplateLaw:
        """With a tree with constants for function k, as ``of`` takes it."""
        new, n = TemplateLaw.of([tree], [], held, n_categories), len(self.values)
        moved = with_leaves(new.functions[0], lambda leaf: (PARAMETER, leaf[1] + n) if leaf[0] == PARAMETER else leaf)
        functions = (*self.functions[:k], moved, *self.functions[k + 1 :])
        return TemplateLaw(functions, self.numbers, (*self.values, *new.values)).renumbered()

    def with_values(self, flat: np.ndarray) -> TemplateLaw:
        """With other values, one after the other."""
        ends = np.cumsum([len(own) for own in self.values])
        own = np.split(np.asarray(flat)[: sum(map(len, self.values))], ends[:-1])
        return self._replace(values=tuple(own[: len(self.values)]))  # of no values NumPy makes one part

    def formula(self, skeleton: LawSkeleton, leaf: Callable[[Tree], Tree] = lambda leaf: leaf) -> Tree:
        """The whole formula, its parameters replaced by ``leaf``."""
        return with_leaves(skeleton.composed(self.functions, self.numbers), leaf)

    def without_shared(self, leaf: Tree) -> Tree:
        """A leaf, but a constant for a number that is the same for all categories."""
        is_shared = leaf[0] == PARAMETER and len(self.values[leaf[1]]) == 1
        return (CONSTANT, float(self.values[leaf[1]][0])) if is_shared else leaf

    def flat(self, skeleton: LawSkeleton) -> Tree:
        """As fits want it: for numbers that go by category the sum of indicators times parameters.

        The columns of indicators stand behind those of the skeleton.
        """
        begins = np.cumsum([0, *(len(own) for own in self.values)]).tolist()

        def spread(leaf: Tree) -> Tree:
            if leaf[0] != PARAMETER:
                return leaf
            begin, n = begins[leaf[1]], len(self.values[leaf[1]])
            if n == 1:
                return PARAMETER, begin
            columns = ((VARIABLE, len(skeleton.columns) + k) for k in range(n))
            terms = [(OPERATOR, ops.MUL, column, (PARAMETER, begin + k)) for k, column in enumerate(columns)]
            return functools.reduce(lambda a, b: (OPERATOR, ops.ADD, a, b), terms)

        return self.formula(skeleton, spread)

    def shown(self, skeleton: LawSkeleton, first: int = 0) -> Tree:
        """With constants; a number that goes by category is a variable, of those from ``first`` on, in their order."""
        return self.formula(skeleton, self.leaves(first))

    def leaves(self, first: int) -> Callable[[Tree], Tree]:
        """What ``shown`` has in the place of a leaf."""
        places = np.cumsum([0, *(len(own) > 1 for own in self.values)]).tolist()

        def leaf_of(leaf: Tree) -> Tree:
            if leaf[0] != PARAMETER:
                return leaf
            own = self.values[leaf[1]]
            return (CONSTANT, float(own[0])) if len(own) == 1 else (VARIABLE, first + places[leaf[1]])

        return leaf_of

    def in_order(self, skeleton: LawSkeleton) -> TemplateLaw:
        """With numbers in the order in which they stand in the whole formula."""
        return self.renumbered(skeleton.composed(self.functions, self.numbers))

    def at(self, codes: np.ndarray) -> list[np.ndarray]:
        """Values of each number at rows of these categories, or one for all."""
        return [own[codes] if len(own) > 1 else np.full(len(codes), own[0]) for own in self.values]

    def shorter(self) -> list[TemplateLaw]:
        """With 0, 1 or -1 in the place of a number."""
        laws = []
        for j, number in itertools.product(range(len(self.values)), INSTEAD):
            put = _put(j, number)
            changed = [with_leaves(tree, put) for tree in self.functions]
            functions = tuple(
                old if new == old else tree_of(simplified(expression_of(new)))
                for old, new in zip(self.functions, changed, strict=True)
            )
            laws.append(TemplateLaw(functions, tuple(with_leaves(tree, put) for tree in self.numbers), self.values))
        return [law.renumbered() for law in laws]

    def shared(self) -> list[TemplateLaw]:
        """With one of the numbers that go by category the same for all."""
        several = [j for j, own in enumerate(self.values) if len(own) > 1]
        medians = {j: np.array([np.median(self.values[j])]) for j in several}
        return [self._replace(values=(*self.values[:j], medians[j], *self.values[j + 1 :])) for j in several]

    def renumbered(self, first: Tree | None = None) -> TemplateLaw:
        """Without values that stand in no tree; the others in the order in which they stand in ``first``, and here."""
        kept: dict[int, int] = {}

        def renumber(leaf: Tree) -> Tree:
            return (PARAMETER, kept.setdefault(leaf[1], len(kept))) if leaf[0] == PARAMETER else leaf

        if first is not None:
            with_leaves(first, renumber)
        numbers = tuple(with_leaves(tree, renumber) for tree in self.numbers)
        functions = tuple(with_leaves(tree, renumber) for tree in self.functions)
        return TemplateLaw(functions, numbers, tuple(self.values[j] for j in kept))


def with_leaves(tree: Tree, leaf: Callable[[Tree], Tree]) -> Tree:
    """A tree with every leaf replaced."""
    if tree[0] != OPERATOR:
        return leaf(tree)
    return (*tree[:2], *(with_leaves(operand, leaf) for operand in tree[2:]))


def _put(j: int, number: float) -> Callable[[Tree], Tree]:
    return lambda leaf: (CONSTANT, number) if leaf == (PARAMETER, j) else leaf
