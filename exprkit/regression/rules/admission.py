"""Admissible combinations, trees and formulas under the rules of units and operators.

In: units of X and y, limits of operators.  Out: ``FormulaRules``.

    >>> import exprkit as ek
    >>> from exprkit.regression.rules.admission import FormulaRules
    >>> rules = FormulaRules(2, units=[(1, 0), (0, 1)], target=(1, -1))
    >>> rules.allow(ek.parse(["x1 / x2", "2 * x1 / x2", "x1 + x2", "x1 * sin(x2)", "x1 / x2 + 1"])).tolist()
    [True, True, False, False, False]

A row of numbers describes a tree, its *state*; the state of an operator follows from those of its operands:

======  ==========================================================================================
0       dimension (``dimensions``); nan: any
1       size in tokens
2       its value if it is a number, else nan
3       the variables in it, a bit each
4 ...   for every operator of nesting limits: its nesting depth in the tree
======  ==========================================================================================
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, NamedTuple

import numpy as np

from exprkit.expressions.population import Population
from exprkit.operators import defined, ops
from exprkit.operators.dimensions import NEAR, POWER, SCALES, dimension, law_of, operand_dimension
from exprkit.regression.rules.constraints import MAX_VARIABLES, Limit
from exprkit.regression.rules.groups import NaturalConstant, UnitSystem, unit_systems
from exprkit.runtime import bags
from exprkit.runtime.jit import compiled, inline
from exprkit.text.tokens import CONSTANT, OPERATOR, VARIABLE

DIMENSION, SIZE, NUMBER, VARIABLES, COUNTS = range(5)  # columns of a state
ANY_SIZE = 1 << 30  # tokens
N_CODES = 256
NEGATED = 256  # added to an operator's code: its operand is negated first


class _RuleTable(NamedTuple):
    """Laws and limits of operators, by code."""

    law: Annotated[np.ndarray, "int64[codes]"]
    powers: Annotated[np.ndarray, "float64[codes, 3]"]
    shared: Annotated[np.ndarray, "float64[codes]"]
    arity: Annotated[np.ndarray, "int64[codes]"]
    most: Annotated[np.ndarray, "int64[codes, 3]"]  # tokens of an operand at most
    low: Annotated[np.ndarray, "float64[codes]"]  # least value of a last operand, a number; nan: any operand
    high: Annotated[np.ndarray, "float64[codes]"]
    variables: Annotated[np.ndarray, "int64[codes]"]  # variables allowed in the operands, as bits
    counted: Annotated[np.ndarray, "int64[counts]"]  # codes of the operators of nesting limits
    depth: Annotated[np.ndarray, "int64[codes, counts]"]  # largest nesting depth of each of them in an operator
    dimensions: Annotated[np.ndarray, "float64[n_vars]"]  # dimensions of the variables
    number_dimension: Annotated[np.ndarray, "float64[1]"]  # of a number in a formula


class FormulaRules:
    """The rules of a search, from the exponents of the variables' units and y's (``target``), and limits by code.

    Without units dimensions are not checked.  ``free_numbers``: numbers of a formula may have any unit; then
    ``constants`` of nature may be among them.
    """

    def __init__(
        self,
        n_vars: int,
        units: Sequence[Sequence[Fraction | float]] | None = None,
        target: Sequence[Fraction | float] | None = None,
        free_numbers: bool = False,
        limits: Mapping[int, Limit] | None = None,
        constants: Sequence[NaturalConstant] = (),
    ) -> None:
        limits = limits or {}
        counted = sorted({code for limit in limits.values() for code, _ in limit.inside})
        self.have_units = units is not None
        self.free_numbers = free_numbers or not self.have_units
        self.target = dimension(target) if target is not None and self.have_units else np.nan
        self.unit_systems: list[UnitSystem] = []
        if units is not None and target is not None:
            self.unit_systems = unit_systems(units, target, constants if free_numbers else ())
        table = bags.zeros(_RuleTable, codes=N_CODES, counts=len(counted), n_vars=n_vars)
        table.most[:], table.depth[:], table.variables[:], table.low[:] = ANY_SIZE, ANY_SIZE, -1, np.nan
        table.arity[:], table.counted[:] = defined.arity(), counted
        table.dimensions[:] = np.nan if units is None else [dimension(unit) for unit in units]
        table.number_dimension[0] = np.nan if self.free_numbers else 0.0
        for code in range(N_CODES):
            if table.arity[code] and not defined.is_packed(code):
                law = law_of(code)
                table.law[code], table.powers[code, : len(law.powers)], table.shared[code] = law
        for code, limit in limits.items():
            _set(table, code, limit)
        self._table = table

    @property
    def width(self) -> int:
        """The length of a state."""
        return COUNTS + len(self._table.counted)

    def allow(self, pop: Population) -> np.ndarray:
        """A mask of the formulas of a population that are admissible and have the unit of y, bool (n_exprs,)."""
        fits = np.empty(len(pop), np.bool_)
        stack = np.empty((pop.longest + 2, self.width))
        _allow(self._table, pop.kinds, pop.values, pop.offsets, stack, self.target, fits)
        return fits

    # ── combinations, as pools make them ──

    def leaves(self, n_vars: int, n_constants: int) -> np.ndarray:
        """States of the variables and of dimensionless constants, (n_vars + n_constants, width)."""
        states = np.zeros((n_vars + n_constants, self.width))
        states[:, SIZE], states[:, NUMBER] = 1, np.nan
        states[:n_vars, DIMENSION] = self._table.dimensions
        states[:n_vars, VARIABLES] = [_bit(k) for k in range(n_vars)]
        return states

    def combined(self, code: int, states: np.ndarray, operands: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """A mask of admissible combinations, bool (n,), and their states, (n, width), of operands by index."""
        n = len(operands[0])
        out, fits, places = np.empty((n, self.width)), np.empty(n, np.bool_), np.zeros((3, n), np.int64)
        places[: len(operands)] = operands
        _combine_all(self._table, code, states, places, out, fits)
        return fits, out

    def operand_dimension(self, outer: defined.Written | None) -> float | None:
        """The dimension of an operand for which an operator's result has the unit of y; None if there is none."""
        return self.target if outer is None else operand_dimension(outer, self.target)


def have_same_dimension(a: np.ndarray | float, b: float) -> np.ndarray:
    """A mask of dimensions that are equal, or may be as one is nan."""
    is_fixed = ~(np.isnan(a) | np.isnan(b))
    return ~is_fixed | (np.abs(np.where(is_fixed, a, 0.0) - b) < NEAR)


def _set(table: _RuleTable, code: int, limit: Limit) -> None:
    for place, size in enumerate(limit.sizes):
        table.most[code, place] = ANY_SIZE if size < 0 else size
    if limit.numbers is not None:
        table.low[code], table.high[code] = limit.numbers
    if limit.variables is not None:
        table.variables[code] = sum(_bit(k) for k in limit.variables)
    for other, most in limit.inside:
        table.depth[code, table.counted.tolist().index(other)] = most


def _bit(k: int) -> int:
    """The bit of variable k in a state; 0 of those that no limit can name."""
    return 1 << k if k < MAX_VARIABLES else 0


@compiled
def _combine_all(table, code, states, places, out, fits):
    for k in range(len(fits)):
        operands = (places[0, k], places[1, k], places[2, k])
        if code >= NEGATED:
            fits[k] = _combine(table, ops.NEG, states, operands, out, k)
            fits[k] = fits[k] and _combine(table, code - NEGATED, out, (k, k, k), out, k)
        else:
            fits[k] = _combine(table, code, states, operands, out, k)


@compiled
def _allow(table, kinds, values, offsets, stack, target, fits):
    for i in range(len(fits)):
        fits[i] = _walk(table, kinds, values, offsets[i], offsets[i + 1], stack)
        fits[i] = fits[i] and not abs(stack[0, DIMENSION] - target) > NEAR


@compiled
def _walk(table, kinds, values, begin, end, stack):
    """Whether a tree is admissible; its state is left at the bottom of the stack."""
    top = -1
    for t in range(begin, end):
        kind, value = kinds[t], values[t]
        if kind != OPERATOR:
            top += 1
            _leaf(table, kind, value, stack, top)
            continue
        code = np.int64(value)
        first = top - table.arity[code] + 1
        if not _combine(table, code, stack, (first, first + 1, first + 2), stack, first):
            return False
        top = first
    return True


@inline
def _leaf(table, kind, value, stack, top):
    stack[top, :] = 0.0
    stack[top, SIZE], stack[top, NUMBER] = 1.0, np.nan
    if kind == VARIABLE:
        v = np.int64(value)
        stack[top, DIMENSION] = table.dimensions[v]
        stack[top, VARIABLES] = float(np.int64(1) << v) if v < MAX_VARIABLES else 0.0
    else:
        stack[top, DIMENSION] = table.number_dimension[0]
        if kind == CONSTANT:
            bits = np.empty(1, np.uint64)
            bits[0] = value
            number = bits.view(np.float64)[0]
            stack[top, NUMBER] = number
            if number == 0.0:
                stack[top, DIMENSION] = np.nan


@compiled
def _combine(table, code, states, operands, out, k):
    """Writes the state of an operator over up to three states as row k of ``out``; returns whether it is admissible."""
    arity, size, inside, fits = table.arity[code], 1.0, np.int64(0), True
    for n in range(arity):
        i = operands[n]
        size += states[i, SIZE]
        inside |= np.int64(states[i, VARIABLES])
        fits = fits and states[i, SIZE] <= table.most[code, n]
    fits = fits and inside & ~table.variables[code] == 0
    if table.low[code] == table.low[code]:
        exponent = states[operands[1], NUMBER]
        fits = fits and table.low[code] <= exponent and exponent <= table.high[code]
    dimension_ = _dimension(table, code, states, operands)
    number = -states[operands[0], NUMBER] if code == ops.NEG else np.nan
    for m in range(len(table.counted)):
        depth = 0.0
        for n in range(arity):
            depth = max(depth, states[operands[n], COUNTS + m])
        fits = fits and depth <= table.depth[code, m]
        out[k, COUNTS + m] = depth + (1.0 if table.counted[m] == code else 0.0)
    out[k, DIMENSION], out[k, SIZE], out[k, NUMBER], out[k, VARIABLES] = dimension_, size, number, float(inside)
    return fits and dimension_ != np.inf


@inline
def _dimension(table, code, states, operands):
    """The dimension of an operator's result; inf where those of its operands do not agree."""
    law, first = table.law[code], states[operands[0], DIMENSION]
    if law == POWER and states[operands[1], NUMBER] == states[operands[1], NUMBER]:
        return first * states[operands[1], NUMBER] if not abs(states[operands[1], DIMENSION]) > NEAR else np.inf
    total, alike, is_any = 0.0, np.nan, False
    for n in range(table.arity[code]):
        dimension_, power = states[operands[n], DIMENSION], table.powers[code, n]
        if law != SCALES:
            if abs(dimension_) > NEAR:
                return np.inf
        elif power == power:
            total += power * dimension_ if power != 0.0 else 0.0
        elif dimension_ != dimension_:
            is_any = True
        elif abs(alike - dimension_) > NEAR:
            return np.inf
        elif alike != alike:
            alike = dimension_
    if table.shared[code] == 0.0 or (alike != alike and not is_any):
        return total
    return total + table.shared[code] * alike
