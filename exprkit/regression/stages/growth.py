"""Growth: what has been found with one function more, again and again, for data without a law.

In: a ``FormulaSearch``.  Out: its front, with formulas that have grown.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.regression.formulas import parameters as constants
from exprkit.regression.formulas.trees import nodes
from exprkit.regression.formulas.values import values_of
from exprkit.regression.problem import effort, noise
from exprkit.regression.problem.sample import Sample
from exprkit.regression.shapes.growth import Functions, Growing, dissimilar
from exprkit.regression.stages.search import FormulaSearch
from exprkit.regression.stages.sums import inner_terms
from exprkit.regression.sums.formulas import terms_of
from exprkit.text.tokens import CONSTANT


def grow_first(search: FormulaSearch) -> None:
    """A little of ``grow``, which tells whether there is noise: then exact stages have nothing to find.

    What varies faster than from row to row looks like noise, but is a large part of y.
    """
    if not search.is_without_law:
        return
    search.functions_to_add = _functions_to_add(search, search.some)
    _grow(search, effort.GROWTH.first_rounds, search.part(effort.GROWTH.first_share))
    few = search.sample.subsample(min(noise.MAX_ROWS, len(search.sample)), search.settings.seed)
    best = values_of([search.front.entries()[-1].expression], few.X, search.settings.threads)[0]
    search.is_noisy = search.is_explained(effort.NOISE.max_unexplained) and noise.is_noise(few, best)


def grow(search: FormulaSearch) -> None:
    """Formulas of the front with one function more at any node, fitted, in a part of the time.

    The part is larger where no formula is nearly y: there is no law then that a later stage would find.
    """
    is_over, is_late = search.budget.part(effort.GROWTH.share), search.part(effort.GROWTH.long_share)
    if search.is_without_law:
        limit = effort.GROWTH.max_unexplained
        _grow(search, effort.GROWTH.rounds, lambda: is_late() or (is_over() and search.is_explained(limit)))


def _grow(search: FormulaSearch, most: int, is_over: Callable[[], bool]) -> None:
    """So many rounds at most."""
    functions = search.functions_to_add or _functions_to_add(search, search.some)
    growing = Growing(search.front, functions)
    look = search.looking(effort.WORK.growth_round + effort.WORK.growth_row * len(search.some))
    rounds = growing.rounds(lambda: search.for_squares(search.some), look)
    for made in itertools.islice(rounds, most):
        for k in range(0, len(made), effort.GROWTH.fits_at_once):
            best = _best_fitted(search, search.allowed(made[k : k + effort.GROWTH.fits_at_once]))
            search.offer(growing.better(best, search.for_squares(search.some), search.settings.threads))
            search.budget.check()
        search.look()
        if is_over():
            return


def _best_fitted(search: FormulaSearch, formulas: list[Expression]) -> list[Expression]:
    """Those that may enter the front once they are fitted, in their shortest form."""
    if not formulas:
        return []
    pop, starts = constants.as_parameters(Population.of(formulas))
    search.budget.count(len(pop))
    found = constants.as_constants(pop, search.fitted(pop, np.where(np.isnan(starts), 0.0, starts)))
    with np.errstate(all="ignore"):
        values = Evaluator(found, search.many.X, "cpu", dtype="float64", threads=search.settings.threads).evaluate()
    return search.best_of(found, search.goal_of_many.losses(values), effort.GROWTH.max_shortening)


def _functions_to_add(search: FormulaSearch, sample: Sample) -> Functions:
    """The number 1, simple functions of a pool, and such with a number inside.

    They count as nothing: a search that goes on from a file makes them again.
    """
    before = search.budget.n_evals, search.budget.work
    pool = search.pool(sample, effort.GROWTH.functions)
    terms = terms_of(pool, np.arange(len(pool)), effort.GROWTH.functions)
    inside = inner_terms(search, sample)
    search.budget.n_evals, search.budget.work = before
    values: list[np.ndarray] = [np.ones((1, len(sample))), pool.values[terms]]
    trees: list[Any] = [(CONSTANT, 1.0), *map(pool.tree, terms.tolist())]
    if inside is not None:
        values.append(inside.values)
        trees += inside.trees
    return dissimilar(Functions(np.concatenate(values), trees, np.array([nodes(tree) for tree in trees])))
