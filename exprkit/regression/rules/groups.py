"""Nondimensionalisation: data in units made of some of the variables, and formulas converted back.

In: units of the variables and of y.  Out: ``UnitSystem``; columns without units; a formula of them as one of the data.

    >>> import exprkit as ek
    >>> from exprkit.regression.rules.groups import unit_systems
    >>> length, time, number = (1, 0), (0, 1), (0, 0)
    >>> by_x1 = unit_systems([length, length, number], length)[0]
    >>> by_x1.repeating, by_x1.remaining
    ((0,), (1, 2))
    >>> print(by_x1.restored(ek.parse("sqrt(1 + x1 ^ 2) * cos(x2)")[0]))
    sqrt(sqr(x1) + sqr(x2)) * cos(x3)
    >>> natural = unit_systems([(1, -1), time], time, [NaturalConstant(299792458.0, (1, -1))])[0]  # a speed, a time
    >>> print(natural.restored(ek.parse("sqrt(1 - x1 ^ 2)")[0]))
    sqrt(1 - 1.1126500560536185e-17 * sqr(x1)) * x2

A formula whose numbers have no units is the same in all systems of units, also in one where a few of the variables,
the repeating variables, are 1 (E. Buckingham, Physical Review 4, 345, 1914).  So it is found among functions of fewer
variables.  Back in its own units every summand gets the powers of them that make its unit that of the others.
Constants of nature may be among these variables, as numbers of the formula: the system of units where the speed of
light is 1, say.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.expressions.parser import parse
from exprkit.operators import ops
from exprkit.regression.formulas.numbers import CLOSE, simple_number
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.trees import Tree, expression_of, nodes, tree_of
from exprkit.regression.problem.sample import Sample
from exprkit.regression.rules.dimensions import ALIKE, FREE, POWER, SCALES, law_of
from exprkit.text.tokens import CONSTANT, OPERATOR, VARIABLE

MOST_VARIABLES = 12
DENOMINATORS = 12  # of powers
MOST_KNOWN, OF_THE_SAME = 3, 2  # constants of nature in a formula, and ways to complete the same ones
Powers = tuple[float, ...]  # of the repeating variables


class NaturalConstant(NamedTuple):
    """A constant of nature and its unit."""

    value: float
    unit: Sequence[Fraction | float]


class UnitSystem(NamedTuple):
    """What is taken for units; of the other variables and y the powers of it that are their units.

    ``chosen`` counts variables, and then ``known``, values of constants.
    """

    repeating: tuple[int, ...]
    remaining: tuple[int, ...]
    powers: tuple[Powers, ...]
    y_powers: Powers
    n_vars: int
    constants: tuple[float, ...] = ()

    def columns(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The other variables in these units, (n_rows, n_others), and the unit of y, (n_rows,)."""
        X = np.column_stack([X, np.tile(self.constants, (len(X), 1))])
        every = (*self.powers, self.y_powers)
        with np.errstate(all="ignore"):
            units = [np.prod(X[:, self.repeating] ** np.array(powers), axis=1) for powers in every]
            return X[:, self.remaining] / np.column_stack(units)[:, :-1], units[-1]

    def restored(self, formula: Expression) -> Expression:
        """A formula of the columns as one of the variables."""
        tree, powers = self._with_units(tree_of(formula))
        return simplified(expression_of(self._to(tree, powers, self.y_powers)))

    def _with_units(self, tree: Tree) -> tuple[Tree, Powers]:
        none = (0.0,) * len(self.repeating)
        if tree[0] == CONSTANT:
            return tree, none
        if tree[0] == VARIABLE:
            return (VARIABLE, self.remaining[tree[1]]), self.powers[tree[1]]
        code, (kind, p, q, *_) = tree[1], law_of(tree[1])
        trees, powers = zip(*map(self._with_units, tree[2:]), strict=True)
        if len(trees) == 3:  # of numbers without units it is one
            kind, p = FREE, 0.0
        if kind == POWER and trees[1][0] == CONSTANT:
            kind, p = SCALES, trees[1][1]
        if kind == SCALES:
            first, second = powers[0], powers[-1]
            return (OPERATOR, code, *trees), tuple(p * a + q * b for a, b in zip(first, second, strict=True))
        wanted = powers if kind == ALIKE else (none,)
        made = [((OPERATOR, code, *(self._to(one, have, to) for one, have in zip(trees, powers, strict=True))), to)
                for to in wanted]  # fmt: skip
        made = [(tree_of(simplified(expression_of(tree))), tuple(p * a for a in to)) for tree, to in made]
        return min(made, key=lambda one: nodes(self._to(one[0], one[1], self.y_powers)))

    def _to(self, tree: Tree, powers: Powers, wanted: Powers) -> Tree:
        """The tree times what makes its powers of the units those that are wanted."""
        number = 1.0
        for k, have, want in zip(self.repeating, powers, wanted, strict=True):
            if k >= self.n_vars:
                number *= self.constants[k - self.n_vars] ** (want - have)
            elif want != have:
                tree = (OPERATOR, ops.MUL, tree, (OPERATOR, ops.POW, (VARIABLE, k), (CONSTANT, want - have)))
        return tree if number == 1.0 else (OPERATOR, ops.MUL, (CONSTANT, number), tree)


def unit_systems(
    units: Sequence[Sequence[Fraction | float]], target: Sequence[Fraction | float],
    known: Sequence[NaturalConstant] = (),
) -> list[UnitSystem]:  # fmt: skip
    """Of variables of these units, those with the simplest powers first; none where y's unit can not be made.

    ``known`` may be among the measures, the fewest first, and of the same ones only the simplest two.
    """
    if len(units) > MOST_VARIABLES:
        return []
    found = sorted(_unit_systems(units, target, ()), key=_cost)
    for n in range(1, MOST_KNOWN + 1):
        more = (_unit_systems(units, target, some) for some in itertools.combinations(known, n)
                if _are_all_needed(units, target, some))  # fmt: skip
        found += sorted((one for some in more for one in sorted(some, key=_cost)[:OF_THE_SAME]), key=_cost)
    return sorted(found, key=lambda one: not one.remaining)  # those that leave no variable come last


def _unit_systems(
    units: Sequence[Sequence[Fraction | float]], target: Sequence[Fraction | float], known: Sequence[NaturalConstant]
) -> list[UnitSystem]:
    """All that these constants are among, if some variable is left; without constants also if none is."""
    n, of_y = len(units), np.array(target, np.float64)
    of = np.array([*units, *(one.unit for one in known)], np.float64)
    rank = int(np.linalg.matrix_rank(of)) - len(known)
    found = []
    most = n - 1 if known else n
    for some in itertools.combinations(range(n), rank) if 0 <= rank <= most and rank + len(known) else ():
        chosen, others = (*range(n, n + len(known)), *some), tuple(k for k in range(n) if k not in some)
        solved = [_powers(of[list(chosen)], wanted) for wanted in (*of[list(others)], of_y)]
        powers = tuple(one for one in solved if one is not None)
        if len(powers) == len(solved):
            found.append(UnitSystem(chosen, others, powers[:-1], powers[-1], n, tuple(one.value for one in known)))
    return found


def _are_all_needed(
    units: Sequence[Sequence[Fraction | float]], target: Sequence[Fraction | float], known: Sequence[NaturalConstant]
) -> bool:
    """Whether each constant's unit is made of those of the rest: else no power of it stands in any formula."""
    every = np.array([*units, target, *(one.unit for one in known)], np.float64)
    rank, first = np.linalg.matrix_rank(every), len(units) + 1
    return all(np.linalg.matrix_rank(np.delete(every, first + k, axis=0)) == rank for k in range(len(known)))


def _powers(of: np.ndarray, wanted: np.ndarray) -> Powers | None:
    """That make of some independent units this one."""
    if np.linalg.matrix_rank(of) < len(of):
        return None
    powers = np.linalg.lstsq(of.T, wanted, rcond=None)[0]
    if not np.allclose(powers @ of, wanted, atol=1e-9):
        return None
    return tuple(float(Fraction(one).limit_denominator(DENOMINATORS)) for one in powers.tolist())


def _cost(one: UnitSystem) -> float:
    every = np.array([*one.powers, one.y_powers])
    return float(np.abs(every).sum() + (every % 1 != 0).sum())


def monomials_in_unit_of_y(sample: Sample, every: Iterable[UnitSystem], most: int) -> list[Expression]:
    """Powers of variables that make y's unit, each product times the number that comes nearest to y."""
    found: list[Expression] = []
    for system in itertools.islice((one for one in every if not one.constants), most):
        unit = system.columns(sample.X)[1]
        with np.errstate(all="ignore"):
            share = float((sample.w * sample.y) @ unit / ((sample.w * unit) @ unit))
        if np.isfinite(share):
            found += [system.restored(one) for one in parse([repr(simple_number(share, CLOSE))])]
    return found
