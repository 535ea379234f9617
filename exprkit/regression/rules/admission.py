"""Admission: which combinations, trees and formulas the rules allow.

In: units of X and y, limits of operators.  Out: ``FormulaRules``.

    >>> import exprkit as ek
    >>> from exprkit.regression.rules.admission import FormulaRules
    >>> rules = FormulaRules(2, units=[(1, 0), (0, 1)], target=(1, -1))
    >>> rules.allow(ek.parse(["x1 / x2", "2 * x1 / x2", "x1 + x2", "x1 * sin(x2)", "x1 / x2 + 1"])).tolist()
    [True, True, False, False, False]

Of every tree there is a row of numbers, its *state*; an operator's follows from those of its operands:

======  ==========================================================================================
0       dimension (``dimensions``); nan: any that is wanted
1       size in tokens
2       the number that it is, nan if it is none
3       the variables in it, a bit for each
4 ...   for every operator that is counted: how many of them stand inside of each other
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
from exprkit.regression.rules.constraints import MOST_VARIABLES, Limit
from exprkit.regression.rules.dimensions import ALIKE, FREE, NEAR, POWER, SCALES, dimension, law_of, operand_dimension
from exprkit.regression.rules.groups import NaturalConstant, UnitSystem, unit_systems
from exprkit.runtime import bags
from exprkit.runtime.jit import compiled, inline
from exprkit.text.tokens import CONSTANT, OPERATOR, VARIABLE

DIMENSION, SIZE, NUMBER, VARIABLES, COUNTS = range(5)  # places of a state
ANY_SIZE = 1 << 30
CODES = 256
NEGATED = 256  # added to the code of a combination whose operand is negated first


class _RuleTable(NamedTuple):
    """By code of an operator, what ``dimensions`` and ``constraints`` say of it."""

    law: Annotated[np.ndarray, "int64[codes]"]
    p: Annotated[np.ndarray, "float64[codes]"]
    q: Annotated[np.ndarray, "float64[codes]"]
    r: Annotated[np.ndarray, "float64[codes]"]
    both: Annotated[np.ndarray, "float64[codes]"]
    arity: Annotated[np.ndarray, "int64[codes]"]
    most: Annotated[np.ndarray, "int64[codes, 3]"]  # tokens of an operand
    low: Annotated[np.ndarray, "float64[codes]"]  # of a last operand that has to be a number; nan: it need not
    high: Annotated[np.ndarray, "float64[codes]"]
    variables: Annotated[np.ndarray, "int64[codes]"]  # that may stand inside, by bits
    counted: Annotated[np.ndarray, "int64[counts]"]  # codes of the operators that are counted
    depth: Annotated[np.ndarray, "int64[codes, counts]"]  # of each of them inside of an operator, at most
    of: Annotated[np.ndarray, "float64[n_vars]"]  # dimensions of the variables
    of_number: Annotated[np.ndarray, "float64[1]"]  # of a number in a formula


class FormulaRules:
    """What may be made.

    Parameters
    ----------
    n_vars : int
    units : list of exponents, optional
        Of every variable; without them, and without ``target``, dimensions are not looked at.
    target : exponents, optional
        Of y.
    free_numbers : bool
        Whether the numbers of a formula have the units that make it right, or none.
    known : list of NaturalConstant
        Constants of nature that may be among the numbers then.
    limits : dict of Limit by code, optional
    """

    def __init__(
        self, n_vars: int, units: Sequence[Sequence[Fraction | float]] | None = None,
        target: Sequence[Fraction | float] | None = None, free_numbers: bool = False,
        limits: Mapping[int, Limit] | None = None, known: Sequence[NaturalConstant] = (),
    ) -> None:  # fmt: skip
        limits = limits or {}
        counted = sorted({code for limit in limits.values() for code, _ in limit.inside})
        self.have_units = units is not None
        self.free_numbers = free_numbers or not self.have_units
        self.target = dimension(target) if target is not None and self.have_units else np.nan
        self.unit_systems: list[UnitSystem] = []
        if units is not None and target is not None:
            self.unit_systems = unit_systems(units, target, known if free_numbers else ())
        of = bags.zeros(_RuleTable, codes=CODES, counts=len(counted), n_vars=n_vars)
        of.most[:], of.depth[:], of.variables[:], of.low[:] = ANY_SIZE, ANY_SIZE, -1, np.nan
        of.arity[:], of.counted[:] = defined.arity(), counted
        of.of[:] = np.nan if units is None else [dimension(unit) for unit in units]
        of.of_number[0] = np.nan if self.free_numbers else 0.0
        for code in range(CODES):
            if of.arity[code] and not defined.is_packed(code):
                of.law[code], of.p[code], of.q[code], of.r[code], of.both[code] = law_of(code)
        for code, limit in limits.items():
            _set(of, code, limit)
        self._of = of

    @property
    def width(self) -> int:
        """Numbers of a state."""
        return COUNTS + len(self._of.counted)

    def allow(self, pop: Population) -> np.ndarray:
        """Which formulas of a population may be made, and have the units of y."""
        fits = np.empty(len(pop), np.bool_)
        stack = np.empty((pop.longest + 2, self.width))
        tokens = _RuledTokens(pop.kinds, pop.values, pop.offsets)
        _allow(self._of, tokens, stack, np.array([self.target]), fits)
        return fits

    # ── combinations, as pools make them ──

    def leaves(self, n_vars: int, n_constants: int) -> np.ndarray:
        """States of the variables and of small numbers without units."""
        states = np.zeros((n_vars + n_constants, self.width))
        states[:, SIZE], states[:, NUMBER] = 1, np.nan
        states[:n_vars, DIMENSION] = self._of.of
        states[:n_vars, VARIABLES] = [_bit(k) for k in range(n_vars)]
        return states

    def combined(
        self, code: int, states: np.ndarray, a: np.ndarray, b: np.ndarray | None = None, c: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which combinations of an operator may be made, and their states."""
        out, fits = np.empty((len(a), self.width)), np.empty(len(a), np.bool_)
        operands = [np.ascontiguousarray(np.full(len(a), -1) if one is None else one, np.int64) for one in (a, b, c)]
        _combine_all(self._of, code, states, operands[0], operands[1], operands[2], out, fits)
        return fits, out

    def operand_dimension(self, outer: defined.Written | None) -> float | None:
        """The dimension that an operator makes that of y of; None where it can not."""
        return self.target if outer is None else operand_dimension(outer, self.target)


def have_same_dimension(a: np.ndarray | float, b: float) -> np.ndarray:
    """Which dimensions are the same, as far as they are known."""
    known = ~(np.isnan(a) | np.isnan(b))
    return ~known | (np.abs(np.where(known, a, 0.0) - b) < NEAR)


def _set(of: _RuleTable, code: int, limit: Limit) -> None:
    for place, size in enumerate(limit.sizes):
        of.most[code, place] = ANY_SIZE if size < 0 else size
    if limit.numbers is not None:
        of.low[code], of.high[code] = limit.numbers
    if limit.variables is not None:
        of.variables[code] = sum(_bit(k) for k in limit.variables)
    for other, most in limit.inside:
        of.depth[code, of.counted.tolist().index(other)] = most


def _bit(k: int) -> int:
    return 1 << k if k < MOST_VARIABLES else 0


class _RuledTokens(NamedTuple):
    """A population."""

    kinds: np.ndarray
    values: np.ndarray
    offsets: np.ndarray


@compiled
def _combine_all(of, code, states, a, b, c, out, fits):
    for k in range(len(a)):
        if code >= NEGATED:
            fits[k] = _combine(of, ops.NEG, states, (a[k], -1, -1), out, k)
            fits[k] = fits[k] and _combine(of, code - NEGATED, out, (k, -1, -1), out, k)
        else:
            fits[k] = _combine(of, code, states, (a[k], b[k], c[k]), out, k)


@compiled
def _allow(of, tokens, stack, target, fits):
    for i in range(len(fits)):
        fits[i] = _walk(of, tokens, tokens.offsets[i], tokens.offsets[i + 1], stack)
        found = stack[0, DIMENSION]
        fits[i] = fits[i] and not abs(found - target[0]) > NEAR


@compiled
def _walk(of, tokens, begin, end, stack):
    """Whether all of a tree may be made; its state lies at the bottom of the stack."""
    top = -1
    for t in range(begin, end):
        kind, value = tokens.kinds[t], tokens.values[t]
        if kind != OPERATOR:
            top += 1
            _leaf(of, kind, value, stack, top)
            continue
        code = np.int64(value)
        first = top - of.arity[code] + 1
        second = first + 1 if first < top else -1
        if not _combine(of, code, stack, (first, second, first + 2 if first + 1 < top else -1), stack, first):
            return False
        top = first
    return True


@inline
def _leaf(of, kind, value, stack, top):
    stack[top, :] = 0.0
    stack[top, SIZE], stack[top, NUMBER] = 1.0, np.nan
    if kind == VARIABLE:
        v = np.int64(value)
        stack[top, DIMENSION] = of.of[v]
        stack[top, VARIABLES] = float(np.int64(1) << v) if v < MOST_VARIABLES else 0.0
    else:
        stack[top, DIMENSION] = of.of_number[0]
        if kind == CONSTANT:
            bits = np.empty(1, np.uint64)
            bits[0] = value
            number = bits.view(np.float64)[0]
            stack[top, NUMBER] = number
            if number == 0.0:
                stack[top, DIMENSION] = np.nan


@compiled
def _combine(of, code, states, operands, out, k):
    """State k of ``out``: of an operator over up to three of the states; False where it may not be."""
    i, j, h = operands
    two = j >= 0
    three = h >= 0
    size = states[i, SIZE] + 1 + (states[j, SIZE] if two else 0.0) + (states[h, SIZE] if three else 0.0)
    inside = np.int64(states[i, VARIABLES]) | (np.int64(states[j, VARIABLES]) if two else np.int64(0))
    inside |= np.int64(states[h, VARIABLES]) if three else np.int64(0)
    fits = states[i, SIZE] <= of.most[code, 0] and (not two or states[j, SIZE] <= of.most[code, 1])
    fits = fits and (not three or states[h, SIZE] <= of.most[code, 2])
    fits = fits and inside & ~of.variables[code] == 0
    if two and of.low[code] == of.low[code]:
        number = states[j, NUMBER]
        fits = fits and of.low[code] <= number and number <= of.high[code]
    dimension_ = _dimension_of_three(of, code, states, operands) if three else _dimension(of, code, states, i, j)
    number = -states[i, NUMBER] if code == ops.NEG else np.nan
    for m in range(len(of.counted)):
        depth = max(states[i, COUNTS + m], states[j, COUNTS + m] if two else 0.0)
        depth = max(depth, states[h, COUNTS + m] if three else 0.0)
        fits = fits and depth <= of.depth[code, m]
        out[k, COUNTS + m] = depth + (1.0 if of.counted[m] == code else 0.0)
    out[k, DIMENSION], out[k, SIZE], out[k, NUMBER], out[k, VARIABLES] = dimension_, size, number, float(inside)
    return fits and dimension_ != np.inf


@inline
def _dimension(of, code, states, i, j):
    """Of the result; inf where the operands' do not go together."""
    a, law, p = states[i, DIMENSION], of.law[code], of.p[code]
    b = states[j, DIMENSION] if j >= 0 else 0.0
    if law == SCALES:
        return a * p + b * of.q[code] if of.q[code] != 0.0 else (a * p if p != 0.0 else 0.0)
    if law == ALIKE:
        if abs(a - b) > NEAR:
            return np.inf
        return p * (b if a != a else a) if p != 0.0 else 0.0
    if law == POWER and states[j, NUMBER] == states[j, NUMBER]:
        return a * states[j, NUMBER] if not abs(b) > NEAR else np.inf
    return np.inf if abs(a) > NEAR or abs(b) > NEAR else 0.0


@inline
def _dimension_of_three(of, code, states, operands):
    """Those that scale the result each on their own, and what the others have, which must be alike."""
    law, total, alike, free = of.law[code], 0.0, np.nan, False
    for k in range(3):
        one = states[operands[k], DIMENSION]
        power = of.p[code] if k == 0 else of.q[code] if k == 1 else of.r[code]
        if law == FREE:
            if abs(one) > NEAR:
                return np.inf
        elif power == power:
            total += power * one if power != 0.0 else 0.0
        elif one != one:
            free = True
        elif abs(alike - one) > NEAR:
            return np.inf
        else:
            alike = one
    if law == FREE or of.both[code] == 0.0 or (alike != alike and not free):
        return total
    return total + of.both[code] * alike
