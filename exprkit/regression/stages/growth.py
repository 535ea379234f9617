"""Growth: formulas of the front with one function more, round after round, for data without a law.

In: a ``SearchProblem``.  Out: formulas that are larger and smaller than those of the front.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.regression.formulas import parameters as constants
from exprkit.regression.formulas.trees import nodes
from exprkit.regression.formulas.values import values_of
from exprkit.regression.problem import effort, noise
from exprkit.regression.problem.rows import Rows
from exprkit.regression.shapes.growth import Growing, dissimilar
from exprkit.regression.stages.search_problem import SearchProblem, Signal, Step
from exprkit.regression.stages.sums import inner_terms
from exprkit.regression.sums.formulas import terms_of
from exprkit.regression.sums.inside import Functions
from exprkit.text.tokens import CONSTANT


def grow_first(problem: SearchProblem) -> Iterator[Step]:
    """A few rounds of ``grow``, then a test of the residuals for noise, which puts off the stages for exact formulas.

    Method: Moran's I of the residuals' ranks among neighbouring rows (P. A. P. Moran, Biometrika 37, 1950;
    ``problem/noise``).  What varies faster than from row to row looks like noise, but is a large part of y: so a
    formula has to explain 0.7 of the variance.
    Costs: 0.06 of the time.
    Pays: data/results/laws.md, points 5 and 6; laws_noise.csv.
    """
    if not problem.is_without_law:
        return
    yield from _grow(problem, effort.GROWTH.first_rounds, problem.budget.part(effort.GROWTH.first_share))
    rows = problem.drawn(noise.MAX_ROWS)
    best = values_of([problem.front.best.expression], rows.X)[0]
    if problem.is_explained(effort.NOISE.max_unexplained) and noise.is_noise(rows, best):
        yield Signal.NOISE


def grow(problem: SearchProblem) -> Iterator[Step]:
    """Formulas of the front with one function more at any node, fitted; until no step is better.

    Method: forward stepwise selection to first order in the added function, judged by leave-one-out errors (PRESS;
    D. M. Allen, Technometrics 16, 1974; ``shapes/growth``).
    Costs: 0.3 of the time; half of it where no formula explains 0.99 of the variance, since no later stage will.
    Pays: data/results/tables_splits.csv, 18 of 24 not below pyoperon.
    """
    is_over, is_late = problem.budget.part(effort.GROWTH.share), problem.budget.part(effort.GROWTH.long_share)

    def is_enough() -> bool:
        return is_over() and problem.is_explained(effort.GROWTH.max_unexplained)

    if problem.is_without_law:
        yield from _grow(problem, effort.GROWTH.rounds, is_late, is_enough)


def _grow(
    problem: SearchProblem, n_rounds: int, is_over: Callable[[], bool], is_enough: Callable[[], bool] = lambda: False
) -> Iterator[Step]:
    """At most n rounds; they are cut where the share of the time is over, and end where ``is_enough`` says so."""
    functions = _functions_to_add(problem, problem.shape_rows)
    growing = Growing(problem.front, functions)
    rounds = growing.rounds(lambda: problem.for_squares(problem.shape_rows))
    for formulas in itertools.islice(rounds, n_rounds):
        for k in range(0, len(formulas), effort.GROWTH.fits_at_once):
            best = _best_fitted(problem, problem.allowed(formulas[k : k + effort.GROWTH.fits_at_once]))
            yield growing.better(best, problem.for_squares(problem.shape_rows))
            problem.budget.check()
        yield Signal.PART_DONE
        if is_over():
            yield Signal.CUT
            return
        if is_enough():
            return


def _best_fitted(problem: SearchProblem, formulas: list[Expression]) -> list[Expression]:
    """The formulas that may enter the front, fitted and simplified."""
    if not formulas:
        return []
    pop, starts = constants.as_parameters(Population.of(formulas))
    problem.budget.count(len(pop))
    fitted = constants.as_constants(pop, problem.fitted(pop, np.where(np.isnan(starts), 0.0, starts)))
    with np.errstate(all="ignore"):
        values = Evaluator(fitted, problem.rows.X, "cpu", dtype="float64").evaluate()
    losses = problem.goal.losses(values)
    problem.archive.add(fitted, losses)
    return problem.best_candidates(fitted, losses, effort.GROWTH.max_shortening)


def _functions_to_add(problem: SearchProblem, rows: Rows) -> Functions:
    """The number 1, simple functions of a pool, and terms u(c h), at rows of data."""
    pool = problem.pool(rows, effort.GROWTH.functions)
    terms = terms_of(pool, np.arange(len(pool)), effort.GROWTH.functions)
    inside = inner_terms(problem, rows)
    values: list[np.ndarray] = [np.ones((1, len(rows))), pool.values[terms]]
    trees: list[Any] = [(CONSTANT, 1.0), *map(pool.tree, terms.tolist())]
    if inside is not None:
        values.append(inside.values)
        trees += inside.trees
    return dissimilar(Functions(np.concatenate(values), trees, np.array([nodes(tree) for tree in trees])))
