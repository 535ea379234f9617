"""The numbers of formulas as parameters, and back: what a search varies as constants and a fit as parameters.

In: populations whose numbers are constants.  Out: the same with parameters, and their values; and the way back.

    >>> import exprkit as ek
    >>> from exprkit.regression.constants import as_constants, as_parameters
    >>> pop, params = as_parameters(ek.parse(["2 * x1 + 3", "x1"]))
    >>> pop.texts(), params.tolist()
    (['p1 * x1 + p2', 'x1'], [[2.0, 3.0], [nan, nan]])
    >>> as_constants(pop, params).texts()
    ['2 * x1 + 3', 'x1']
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from exprkit.expressions.population import Population
from exprkit.text.tokens import CONSTANT, PARAMETER


def as_parameters(pop: Population, held: Callable[[float], bool] | None = None) -> tuple[Population, np.ndarray]:
    """Every constant a parameter of its own, numbered as they come; and their values, nan where there are fewer.

    Constants that are ``held`` stay.
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
    """Every parameter the number that it has."""
    parameter = pop.kinds == PARAMETER
    owner = np.repeat(np.arange(len(pop)), pop.n_tokens)[parameter]
    kinds, values = pop.kinds.copy(), pop.values.copy()
    values[parameter] = np.ascontiguousarray(params[owner, pop.values[parameter].astype(np.int64)]).view(np.uint64)
    kinds[parameter] = CONSTANT
    return Population(kinds, values, pop.offsets)
