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
from exprkit.regression.rules.constraints import MAX_VARIABLES, Limit
from exprkit.regression.rules.dimensions import ALIKE, FREE, NEAR, POWER, SCALES, dimension, law_of, operand_dimension
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
    p: Annotated[np.ndarray, "float64[codes]"]
    q: Annotated[np.ndarray, "float64[codes]"]
    r: Annotated[np.ndarray, "float64[codes]"]
    both: Annotated[np.ndarray, "float64[codes]"]
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
    """The rules of a search, from units and limits.

    Parameters
    ----------
    n_vars : int
    units : list of exponents, optional
        Of every variable; without them dimensions are not checked.
    target : exponents, optional
        Of y.
    free_numbers : bool
        Whether numbers of a formula may have any unit, or none.
    constants : list of NaturalConstant
        Constants of nature that may be among the numbers, if those may have units.
    limits : dict of Limit by code, optional
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
                table.law[code], table.p[code], table.q[code], table.r[code], table.both[code] = law_of(code)
        for code, limit in limits.items():
            _set(table, code, limit)
        self._table = table

    @property
    def width(self) -> int:
        """The length of a state."""
        return COUNTS + len(self._table.counted)

    def allow(self, pop: Population) -> np.ndarray:
        """Which formulas of a population are admissible and have the unit of y, bool (n_exprs,)."""
        fits = np.empty(len(pop), np.bool_)
        stack = np.empty((pop.longest + 2, self.width))
        tokens = _RuledTokens(pop.kinds, pop.values, pop.offsets)
        _allow(self._table, tokens, stack, np.array([self.target]), fits)
        return fits

    # ── combinations, as pools make them ──

    def leaves(self, n_vars: int, n_constants: int) -> np.ndarray:
        """States of the variables and of dimensionless constants, (n_vars + n_constants, width)."""
        states = np.zeros((n_vars + n_constants, self.width))
        states[:, SIZE], states[:, NUMBER] = 1, np.nan
        states[:n_vars, DIMENSION] = self._table.dimensions
        states[:n_vars, VARIABLES] = [_bit(k) for k in range(n_vars)]
        return states

    def combined(
        self, code: int, states: np.ndarray, a: np.ndarray, b: np.ndarray | None = None, c: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which combinations are admissible, bool (n,), and their states, (n, width), of operands by index."""
        out, fits = np.empty((len(a), self.width)), np.empty(len(a), np.bool_)
        operands = [np.ascontiguousarray(np.full(len(a), -1) if rows is None else rows, np.int64) for rows in (a, b, c)]
        _combine_all(self._table, code, states, operands[0], operands[1], operands[2], out, fits)
        return fits, out

    def operand_dimension(self, outer: defined.Written | None) -> float | None:
        """The dimension of an operand for which an operator's result has the unit of y; None if there is none."""
        return self.target if outer is None else operand_dimension(outer, self.target)


def have_same_dimension(a: np.ndarray | float, b: float) -> np.ndarray:
    """Which dimensions are equal, or may be as one is nan."""
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


class _RuledTokens(NamedTuple):
    """Tokens of a population, for compiled loops."""

    kinds: np.ndarray
    values: np.ndarray
    offsets: np.ndarray


@compiled
def _combine_all(table, code, states, a, b, c, out, fits):
    for k in range(len(a)):
        if code >= NEGATED:
            fits[k] = _combine(table, ops.NEG, states, (a[k], -1, -1), out, k)
            fits[k] = fits[k] and _combine(table, code - NEGATED, out, (k, -1, -1), out, k)
        else:
            fits[k] = _combine(table, code, states, (a[k], b[k], c[k]), out, k)


@compiled
def _allow(table, tokens, stack, target, fits):
    for i in range(len(fits)):
        fits[i] = _walk(table, tokens, tokens.offsets[i], tokens.offsets[i + 1], stack)
        fits[i] = fits[i] and not abs(stack[0, DIMENSION] - target[0]) > NEAR


@compiled
def _walk(table, tokens, begin, end, stack):
    """Whether a tree is admissible; its state is left at the bottom of the stack."""
    top = -1
    for t in range(begin, end):
        kind, value = tokens.kinds[t], tokens.values[t]
        if kind != OPERATOR:
            top += 1
            _leaf(table, kind, value, stack, top)
            continue
        code = np.int64(value)
        first = top - table.arity[code] + 1
        second = first + 1 if first < top else -1
        if not _combine(table, code, stack, (first, second, first + 2 if first + 1 < top else -1), stack, first):
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
    i, j, h = operands
    two = j >= 0
    three = h >= 0
    size = states[i, SIZE] + 1 + (states[j, SIZE] if two else 0.0) + (states[h, SIZE] if three else 0.0)
    inside = np.int64(states[i, VARIABLES]) | (np.int64(states[j, VARIABLES]) if two else np.int64(0))
    inside |= np.int64(states[h, VARIABLES]) if three else np.int64(0)
    fits = states[i, SIZE] <= table.most[code, 0] and (not two or states[j, SIZE] <= table.most[code, 1])
    fits = fits and (not three or states[h, SIZE] <= table.most[code, 2])
    fits = fits and inside & ~table.variables[code] == 0
    if two and table.low[code] == table.low[code]:
        number = states[j, NUMBER]
        fits = fits and table.low[code] <= number and number <= table.high[code]
    dimension_ = _dimension_of_three(table, code, states, operands) if three else _dimension(table, code, states, i, j)
    number = -states[i, NUMBER] if code == ops.NEG else np.nan
    for m in range(len(table.counted)):
        depth = max(states[i, COUNTS + m], states[j, COUNTS + m] if two else 0.0)
        depth = max(depth, states[h, COUNTS + m] if three else 0.0)
        fits = fits and depth <= table.depth[code, m]
        out[k, COUNTS + m] = depth + (1.0 if table.counted[m] == code else 0.0)
    out[k, DIMENSION], out[k, SIZE], out[k, NUMBER], out[k, VARIABLES] = dimension_, size, number, float(inside)
    return fits and dimension_ != np.inf


@inline
def _dimension(table, code, states, i, j):
    """The dimension of a result of one or two operands; inf if theirs do not agree."""
    a, law, p = states[i, DIMENSION], table.law[code], table.p[code]
    b = states[j, DIMENSION] if j >= 0 else 0.0
    if law == SCALES:
        return a * p + b * table.q[code] if table.q[code] != 0.0 else (a * p if p != 0.0 else 0.0)
    if law == ALIKE:
        if abs(a - b) > NEAR:
            return np.inf
        return p * (b if a != a else a) if p != 0.0 else 0.0
    if law == POWER and states[j, NUMBER] == states[j, NUMBER]:
        return a * states[j, NUMBER] if not abs(b) > NEAR else np.inf
    return np.inf if abs(a) > NEAR or abs(b) > NEAR else 0.0


@inline
def _dimension_of_three(table, code, states, operands):
    """The dimension of a result of three operands; inf if theirs do not agree."""
    law, total, alike, free = table.law[code], 0.0, np.nan, False
    for k in range(3):
        dimension_ = states[operands[k], DIMENSION]
        power = table.p[code] if k == 0 else table.q[code] if k == 1 else table.r[code]
        if law == FREE:
            if abs(dimension_) > NEAR:
                return np.inf
        elif power == power:
            total += power * dimension_ if power != 0.0 else 0.0
        elif dimension_ != dimension_:
            free = True
        elif abs(alike - dimension_) > NEAR:
            return np.inf
        else:
            alike = dimension_
    if law == FREE or table.both[code] == 0.0 or (alike != alike and not free):
        return total
    return total + table.both[code] * alike
