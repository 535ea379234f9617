"""Conversion between constants and parameters: a search varies constants, a fit varies parameters.

In: populations whose numbers are constants.  Out: the same with parameters, and their values; and the way back.

    >>> import exprkit as ek
    >>> from exprkit.regression.formulas.parameters import as_constants, as_parameters
    >>> pop, params = as_parameters(ek.parse(["2 * x1 + 3", "x1"]))
    >>> pop.texts(), params.tolist()
    (['p1 * x1 + p2', 'x1'], [[2.0, 3.0], [nan, nan]])
    >>> as_constants(pop, params).texts()
    ['2 * x1 + 3', 'x1']
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.regression.formulas.numbers import numbers_of, simple_fraction, simple_number
from exprkit.regression.formulas.simplify import simplified
from exprkit.text.tokens import CONSTANT, PARAMETER


def as_parameters(pop: Population, held: Callable[[float], bool] | None = None) -> tuple[Population, np.ndarray]:
    """Populations with a parameter for each constant, in order; and their values, (n_exprs, max_params), nan for none.

    Constants for which ``held`` is true stay constants.
    """
    constant = pop.kinds == CONSTANT
    if held is not None:
        constant[constant] = [not held(number) for number in pop.values[constant].view(np.float64).tolist()]
    owner = np.repeat(np.arange(len(pop)), pop.n_tokens)[constant]
    counts = np.bincount(owner, minlength=len(pop))
    place = np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]
    params = np.full((len(pop), int(counts.max(initial=0))), np.nan)
    params[owner, place] = pop.values[constant].view(np.float64)
    kinds, values = pop.kinds.copy(), pop.values.copy()
    kinds[constant], values[constant] = PARAMETER, place.astype(np.uint64)
    return Population(kinds, values, pop.offsets), params


def as_constants(pop: Population, params: np.ndarray) -> Population:
    """The population with constants for parameters, of the values ``params``, (n_exprs, max_params)."""
    parameter = pop.kinds == PARAMETER
    owner = np.repeat(np.arange(len(pop)), pop.n_tokens)[parameter]
    kinds, values = pop.kinds.copy(), pop.values.copy()
    values[parameter] = np.ascontiguousarray(params[owner, pop.values[parameter].astype(np.int64)]).view(np.uint64)
    kinds[parameter] = CONSTANT
    return Population(kinds, values, pop.offsets)


# ── simpler numbers ──


def simpler_numbers(formula: Expression) -> list[Expression]:
    """All formulas with one number changed to 0, 1, -1 or a simple number nearby, and with all numbers simple."""
    places = np.flatnonzero(formula.kinds == CONSTANT).tolist()
    numbers = dict(zip(places, numbers_of(formula), strict=True))
    changes: list[dict[int, float]] = []
    for place, number in numbers.items():
        nearby = [0.0, 1.0, -1.0, *(simple_number(number, close) for close in (1e-8, 1e-4, 1e-2, 5e-2))]
        changes += [{place: new} for new in dict.fromkeys(nearby) if new != number]
    for close in (1e-8, 1e-4, 1e-2):
        changes.append({place: simple_number(numbers[place], close) for place in places})
    formulas = [simplified(_with_numbers(formula, change)) for change in changes if change]
    return [other for other in dict.fromkeys(formulas) if other != formula]


def with_number_removed(formula: Expression) -> list[Expression]:
    """All shorter formulas with one number set to 0."""
    places = np.flatnonzero(formula.kinds == CONSTANT).tolist()
    formulas = [simplified(_with_numbers(formula, {place: 0.0})) for place in places]
    return [other for other in formulas if other.n_tokens < formula.n_tokens]


def is_simple(number: float) -> bool:
    """Whether a number is a fraction, a fraction of pi or a short decimal."""
    return simple_number(number, 1e-13) == number


def is_fraction(number: float) -> bool:
    """Whether a number is 0, a fraction or a fraction of pi."""
    return number == 0 or (math.isfinite(number) and simple_fraction(number, 1e-13) == number)


def n_inexact(formula: Expression) -> int:
    """The number of its constants that are no fractions, which data must determine."""
    return sum(not is_fraction(number) for number in numbers_of(formula))


def fixed_numbers(formula: Expression, held: Callable[[float], bool] | None = None) -> tuple[bool, ...]:
    """Whether each constant stays as it is in a fit (``held``), in order."""
    return tuple(held is not None and held(number) for number in numbers_of(formula))


def _with_numbers(formula: Expression, change: dict[int, float]) -> Expression:
    """The formula with other constants at some positions of its tokens."""
    values = formula.values.copy()
    for place, number in change.items():
        values[place] = np.float64(number).view(np.uint64)
    return Expression(formula.kinds, values, formula.variables)
