"""Generations: populations that are bred from the front and from simple functions.

In: a ``FormulaSearch``.  Out: its front, with what every generation finds.
"""

from __future__ import annotations

from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.regression.generations.evolution import Evolution
from exprkit.regression.problem import effort
from exprkit.regression.stages.search import FormulaSearch


def begun(search: FormulaSearch) -> Evolution:
    """Before the first generation."""
    settings, pool = search.settings, search.pool(search.rows, effort.GROWTH.functions)
    evolution = Evolution(
        search.rows, list(settings.operators), Population.of([pool.expression(i) for i in range(len(pool))]),
        population_size=settings.population_size, width=settings.maxsize, seed=settings.seed,
        crossover=settings.crossover_probability, tournament=settings.tournament_size,
        steps=settings.optimizer_iterations, loss=settings.loss, backend=settings.backend, threads=settings.threads,
        rules=settings.rules,
    )  # fmt: skip
    evolution.generation()  # the blocks', which take over the numbers that are fitted
    return evolution


def breed(search: FormulaSearch, evolution: Evolution) -> None:
    """The next generation; every now and then the front takes part, and is polished."""
    number = search.generation
    if number % effort.GENERATIONS.polish_period == 0:
        evolution.seed(Population.of([entry.expression for entry in search.front.entries()]))
    made = evolution.generation()
    search.budget.count(made.tried)
    search.offer(search.best_of(made.formulas, made.loss))
    if search.spelling is not None and not {ops.ADD, ops.MUL} <= search.spelling.codes:
        search.offer(search.refitted([_within(formula) for formula in made.formulas]))
    search.stage, search.generation = f"generation {number + 1}", number + 1
    search.look()
    if number % effort.GENERATIONS.polish_period == effort.GENERATIONS.polish_period - 1:
        search.simpler.polish()


def _within(line: Expression) -> Expression:
    """The tree of ``a + b * tree``."""
    return Expression(line.kinds[2:-2], line.values[2:-2], line.variables)
