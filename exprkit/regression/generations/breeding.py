"""``exprkit.breed``: selection, crossover and mutation of a population, for a search of one's own.

In: expressions and the loss of each.  Out: a population of children.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from exprkit.backends.device_programs.loops import loops_of
from exprkit.errors import ArgumentError, DataError, brief, checks_keywords, whole
from exprkit.expressions.arguments import operators_of
from exprkit.expressions.population import Population
from exprkit.regression.generations import variation
from exprkit.runtime.hashes import mixed
from exprkit.text.tokens import PARAMETER

MAX_TOKENS = 1000


@checks_keywords
def breed(
    pop: Population, loss: Any, n: int | None = None, *, operators: Any = "gp", crossover: float = 0.4,
    tournament: int = 5, max_tokens: int = 30, seed: int = 0, threads: int | None = None
) -> Population:  # fmt: skip
    """Children of a population: tournament selection, crossover and mutation, a generation of genetic programming.

    Parents are the winners of tournaments.  A child is its mother with a subtree of its father's, or of any other, in
    the place of one of its own (crossover); or with a token changed, a number changed, an operator put in or taken out,
    or operands the other way round (mutation).

    Parameters
    ----------
    pop : Population
    loss : array, (n_exprs,)
        The smaller, the better; an expression with nan or inf has no children.
    n : int, optional
        Number of children; by default as many as there are parents.
    operators : str or list of str
        Those that mutations put in: the name of a set in ``ek.ops.SETS``, or a list.
    crossover : float
        The probability of crossover, 0 to 1; a child without it is a mutation of one parent.
    tournament : int
        Expressions that take part in a tournament, of which the best becomes a parent.
    max_tokens : int
        The most tokens of a child; longer parents have no children.
    seed : int
        The same seed gives the same children, for any number of threads.

    Returns
    -------
    Population
        Of the same variables.  Every parameter of a child is one of its own, numbered as they come.

    Raises
    ------
    ArgumentError, DataError
        For arguments that do not fit, and where there are no parents.

    Examples
    --------
    >>> import exprkit as ek
    >>> pop = ek.generate.random(200, n_vars=2, n_params=2, seed=0)
    >>> children = ek.breed(pop, pop.n_tokens, seed=1)  # the shorter, the better
    >>> len(children), children.longest <= 30
    (200, True)
    """
    losses = np.asarray(loss, np.float64)
    if losses.shape != (len(pop),):
        raise DataError(f"loss must have shape ({len(pop)},), one value per expression, not {losses.shape}")
    if not 0 <= crossover <= 1:
        raise ArgumentError(f"crossover must be from 0 to 1, not {brief(crossover)}")
    width, n_children = whole("max_tokens", max_tokens, 1, MAX_TOKENS), whole("n", len(pop) if n is None else n, 0)
    good = np.flatnonzero(np.isfinite(losses) & pop.valid & (pop.n_tokens <= width))
    if not len(good):
        raise DataError(f"no expression has a finite loss and up to {width} tokens: there are no parents")
    parents = pop[good]
    trees, fitness = variation.rows_of(parents, width), variation.empty_fitness(np, len(good), 1, width)
    fitness.loss[:], fitness.island_start[:] = losses[good], [0, len(good)]
    settings = variation.breeding_settings(
        operators_of(operators),
        max(len(pop.variables or ()), pop.n_vars, 1),
        float(crossover),
        width=width,
        tournament=whole("tournament", tournament, 1),
        n=n_children,
    )
    children = variation.empty_trees(np, n_children, width)
    number = np.uint64(mixed(np.uint64(whole("seed", seed, 0) % (1 << 64))))
    random = variation.RandomState(np.empty(n_children, np.uint64), number)
    loops_of("cpu", threads).run(variation.breed, n_children, trees, fitness, trees, settings, random, children)
    return _renumbered(variation.population_of(children), pop.variables)


def _renumbered(pop: Population, variables: tuple[str, ...] | None) -> Population:
    """The population with parameters numbered as they come in each expression."""
    parameter = pop.kinds == PARAMETER
    before = np.cumsum(parameter) - parameter
    values = pop.values.copy()
    values[parameter] = (before - np.repeat(before[pop.offsets[:-1]], pop.n_tokens))[parameter]
    return Population(pop.kinds, values, pop.offsets, variables=variables)
