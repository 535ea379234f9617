"""Genetic programming as the last stage: populations bred from simple functions and from the front.

In: a ``SearchProblem``.  Out: the new best formulas of every generation.
"""

from __future__ import annotations

from collections.abc import Iterator

from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.regression.generations.evolution import Evolution
from exprkit.regression.problem import effort
from exprkit.regression.stages.search_problem import SearchProblem, Step
from exprkit.runtime.budget import spend


def first_generation(problem: SearchProblem) -> Evolution:
    """An ``Evolution`` whose first generation, of small functions, has been fitted."""
    settings, pool = problem.settings, problem.pool(problem.generation_rows, effort.GROWTH.functions)
    evolution = Evolution(
        problem.generation_rows,
        list(settings.operators),
        Population.of([pool.expression(i) for i in range(len(pool))]),
        population_size=settings.population_size,
        width=settings.maxsize,
        seed=settings.seed,
        loss=settings.loss,
        backend=settings.backend,
        threads=settings.threads,
        rules=settings.rules,
    )
    evolution.generation()
    return evolution


def breed(problem: SearchProblem, evolution: Evolution, number: int) -> Iterator[Step]:
    """The best formulas of the next generation; every tenth one the front joins the population first.

    Method: genetic programming (J. R. Koza, Genetic Programming, 1992) with tournaments, islands and migration, linear
    scaling of every tree (M. Keijzer, EuroGP 2003), and constant optimisation by Levenberg-Marquardt
    (``generations/evolution``).
    Costs: a thousand trees with eight steps each; all of the time that the other stages leave.
    Pays: data/results/h200_evolution.csv and h100_evolution.csv.
    """
    if number % effort.GENERATIONS.polish_period == 0:
        evolution.immigrate(Population.of([entry.expression for entry in problem.front.entries()]))
    generation = evolution.generation()
    problem.budget.count(generation.tried)
    work, tokens = effort.WORK, problem.settings.maxsize / 2 * len(problem.generation_rows)
    spend(work.fits + generation.tried * (work.fit + tokens * work.fit_value))
    yield problem.best_candidates(generation.formulas, generation.loss)
    if problem.spelling is not None and not {ops.ADD, ops.MUL} <= problem.spelling.codes:
        trees = (Expression(f.kinds[2:-2], f.values[2:-2], f.variables) for f in generation.formulas)  # of a + b * tree
        yield problem.refitted(list(trees))
