"""Nondimensionalisation (pi theorem): data in units made of some of the variables, and formulas converted back.

In: units of the variables and of y.  Out: each ``UnitSystem``; dimensionless columns; formulas of them as ones of X.

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
from exprkit.operators.dimensions import POWER, SCALES, law_of
from exprkit.regression.formulas.numbers import CLOSE, simple_number
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.trees import Tree, expression_of, nodes, tree_of
from exprkit.regression.problem.rows import Rows
from exprkit.text.tokens import CONSTANT, OPERATOR, VARIABLE

# All chosen, not measured.
MAX_VARIABLES = 12  # of data; sets of repeating variables grow exponentially with it
MAX_DENOMINATOR = 12  # of powers
MAX_CONSTANTS = 3  # constants of nature in a formula
MAX_SYSTEMS = 2  # unit systems with the same constants of nature
Powers = tuple[float, ...]  # of the repeating variables


class NaturalConstant(NamedTuple):
    """A constant of nature and its unit."""

    value: float
    unit: Sequence[Fraction | float]


class UnitSystem(NamedTuple):
    """Repeating variables, whose values are taken for 1, and the units of all others as powers of them."""

    repeating: tuple[int, ...]  # indices of variables; from ``n_vars`` on, of ``constants``
    remaining: tuple[int, ...]  # indices of the other variables
    powers: tuple[Powers, ...]  # of the units of the remaining variables
    y_powers: Powers  # of the unit of y
    n_vars: int
    constants: tuple[float, ...] = ()  # values of constants of nature

    def columns(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The remaining variables in these units, (n_rows, n_remaining), and the unit of y, (n_rows,)."""
        X = np.column_stack([X, np.tile(self.constants, (len(X), 1))])
        powers_of_units = (*self.powers, self.y_powers)
        with np.errstate(all="ignore"):
            units = [np.prod(X[:, self.repeating] ** np.array(powers), axis=1) for powers in powers_of_units]
            return X[:, self.remaining] / np.column_stack(units)[:, :-1], units[-1]

    def restored(self, formula: Expression) -> Expression:
        """A formula of the dimensionless columns as one of the variables."""
        tree, powers = self._with_units(tree_of(formula))
        return simplified(expression_of(self._converted(tree, powers, self.y_powers)))

    def _with_units(self, tree: Tree) -> tuple[Tree, Powers]:
        """A tree of the variables that is proportional to this one of the columns, and the powers of its unit."""
        dimensionless = (0.0,) * len(self.repeating)
        if tree[0] == CONSTANT:
            return tree, dimensionless
        if tree[0] == VARIABLE:
            return (VARIABLE, self.remaining[tree[1]]), self.powers[tree[1]]
        code, (kind, scaling, shared) = tree[1], law_of(tree[1])
        trees, powers = zip(*map(self._with_units, tree[2:]), strict=True)
        if kind == POWER and trees[1][0] == CONSTANT:
            kind, scaling = SCALES, (trees[1][1], 0.0)
        is_alike = bool(np.isnan(scaling).any())
        if kind == SCALES and not is_alike and len(trees) < 3:
            unit = tuple(
                sum(p * a for p, a in zip(scaling, column, strict=True)) for column in zip(*powers, strict=True)
            )
            return (OPERATOR, code, *trees), unit
        candidates = []
        for target in powers if is_alike and len(trees) < 3 else (dimensionless,):  # which three operands are made
            operands = [self._converted(tree, powers_of, target) for tree, powers_of in zip(trees, powers, strict=True)]
            shortest = tree_of(simplified(expression_of((OPERATOR, code, *operands))))
            candidates.append((shortest, tuple(shared * a for a in target)))
        return min(candidates, key=lambda formula: nodes(self._converted(formula[0], formula[1], self.y_powers)))

    def _converted(self, tree: Tree, powers: Powers, target: Powers) -> Tree:
        """The tree times powers of the repeating variables, from a unit with these powers to one with the target's."""
        number = 1.0
        for k, power, target_power in zip(self.repeating, powers, target, strict=True):
            change = target_power - power
            if k >= self.n_vars:
                number *= self.constants[k - self.n_vars] ** change
            elif change != 0:
                tree = (OPERATOR, ops.MUL, tree, (OPERATOR, ops.POW, (VARIABLE, k), (CONSTANT, change)))
        return tree if number == 1.0 else (OPERATOR, ops.MUL, (CONSTANT, number), tree)


def unit_systems(
    units: Sequence[Sequence[Fraction | float]],
    target: Sequence[Fraction | float],
    constants: Sequence[NaturalConstant] = (),
) -> list[UnitSystem]:
    """Unit systems of variables with these units, those of the simplest powers first; none where y's is no product.

    ``constants`` may be among the repeating variables, the fewest first, in at most ``MAX_SYSTEMS`` systems each.
    """
    if len(units) > MAX_VARIABLES:
        return []
    systems = sorted(_unit_systems(units, target, ()), key=cost_of)
    for n in range(1, MAX_CONSTANTS + 1):
        with_n: list[UnitSystem] = []
        for subset in itertools.combinations(constants, n):
            if _are_all_needed(units, target, subset):
                with_n += sorted(_unit_systems(units, target, subset), key=cost_of)[:MAX_SYSTEMS]
        systems += sorted(with_n, key=cost_of)
    return sorted(systems, key=lambda system: not system.remaining)  # systems without remaining variables come last


def _unit_systems(
    units: Sequence[Sequence[Fraction | float]],
    target: Sequence[Fraction | float],
    constants: Sequence[NaturalConstant],
) -> list[UnitSystem]:
    """All unit systems with just these constants; with constants some variable must remain."""
    n, n_constants, y_unit = len(units), len(constants), np.array(target, np.float64)
    matrix = np.array([*units, *(constant.unit for constant in constants)], np.float64)
    rank = int(np.linalg.matrix_rank(matrix)) - n_constants
    systems = []
    max_rank = n - 1 if constants else n
    for subset in itertools.combinations(range(n), rank) if 0 <= rank <= max_rank and rank + n_constants else ():
        repeating = (*range(n, n + n_constants), *subset)
        remaining = tuple(k for k in range(n) if k not in subset)
        solutions = [_powers(matrix[list(repeating)], unit) for unit in (*matrix[list(remaining)], y_unit)]
        powers = tuple(solution for solution in solutions if solution is not None)
        if len(powers) == len(solutions):
            values = tuple(constant.value for constant in constants)
            systems.append(UnitSystem(repeating, remaining, powers[:-1], powers[-1], n, values))
    return systems


def _are_all_needed(
    units: Sequence[Sequence[Fraction | float]],
    target: Sequence[Fraction | float],
    constants: Sequence[NaturalConstant],
) -> bool:
    """Whether each constant's unit is a product of the other units: else no formula has a power of it."""
    matrix = np.array([*units, target, *(constant.unit for constant in constants)], np.float64)
    rank, first = np.linalg.matrix_rank(matrix), len(units) + 1
    return all(np.linalg.matrix_rank(np.delete(matrix, first + k, axis=0)) == rank for k in range(len(constants)))


def _powers(units: np.ndarray, target: np.ndarray) -> Powers | None:
    """The powers of these units whose product is the target; None if the units are dependent or no product is."""
    if np.linalg.matrix_rank(units) < len(units):
        return None
    powers = np.linalg.lstsq(units.T, target, rcond=None)[0]
    if not np.allclose(powers @ units, target, atol=1e-9):
        return None
    return tuple(float(Fraction(power).limit_denominator(MAX_DENOMINATOR)) for power in powers.tolist())


def cost_of(system: UnitSystem) -> float:
    """The sum of all powers, and 1 for each that is no whole number."""
    powers = np.array([*system.powers, system.y_powers])
    return float(np.abs(powers).sum() + (powers % 1 != 0).sum())


def monomials_in_unit_of_y(rows: Rows, systems: Iterable[UnitSystem], most: int) -> list[Expression]:
    """At most ``most`` products of powers of variables with y's unit, times their coefficients of least squares."""
    formulas: list[Expression] = []
    for system in itertools.islice((system for system in systems if not system.constants), most):
        unit = system.columns(rows.X)[1]
        with np.errstate(all="ignore"):
            coefficient = float((rows.w * rows.y) @ unit / ((rows.w * unit) @ unit))
        if np.isfinite(coefficient):
            formulas += [system.restored(number) for number in parse([repr(simple_number(coefficient, CLOSE))])]
    return formulas
