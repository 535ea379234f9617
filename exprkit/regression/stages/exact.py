"""Exact formulas: two, three and more functions of a pool that make y but for rounding.

In: a ``SearchProblem``.  Out: formulas that are exact at a few rows, tested at all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.regression.formulas.values import values_of
from exprkit.regression.on_device import triples as device_triples
from exprkit.regression.on_device.join import DevicePartners
from exprkit.regression.on_device.pool import DevicePool, with_memory
from exprkit.regression.pairs import links, triples
from exprkit.regression.pairs.confirm import TRIED, confirmed
from exprkit.regression.pairs.join import LOOKUP, Partners
from exprkit.regression.pairs.pool import Pool
from exprkit.regression.problem import effort
from exprkit.regression.problem.rows import Rows
from exprkit.regression.stages.search_problem import SearchProblem, Signal, Step
from exprkit.regression.sums.exact import exact_sums
from exprkit.runtime.budget import spend


def join(problem: SearchProblem) -> Iterator[Step]:
    """Pairs f, h of a small pool with y = outer(f * inner(a + b h)) and its relatives, exact but for rounding.

    Method: meet in the middle (E. Horowitz and S. Sahni, Journal of the ACM 21, 1974), a join of the pool with itself
    on what y and f require of h: N lookups in place of N^2 pairs (``pairs/join``).  The pool holds the simplest
    functions; the search ends after the first pool that has a pair.
    Costs: pools of 1,000 and 30,000 functions, 0.3 us a function and link.
    Pays: data/results/laws_lists.csv, whose mean of 2.8 s for the 60 laws is that of a search that ends here or soon
    after; the stage was not left out alone in any run.
    """
    for n in sorted({min(n, problem.largest_pool) for n in problem.smaller_pools} - {0}):
        yield from _join(problem, n)


def join_more(problem: SearchProblem) -> Iterator[Step]:
    """The pairs of ``join`` in the largest pool, unless only noise is left of y.

    Costs: as ``join``, with 300,000 functions; on a GPU with 100 million.
    Pays: data/results/laws_h200.csv (pools of a GPU, 280 of 311 runs of 10 s); on a CPU laws_lists.csv, 54 of 60.
    """
    if problem.largest_pool > problem.smaller_pools[-1] and not problem.is_noise_left:
        yield from _join(problem, problem.largest_pool)


def _join(problem: SearchProblem, n: int) -> Iterator[Step]:
    n_points = min(effort.POOLS.key_rows, len(problem.rows))
    if n_points < effort.POOLS.min_rows:
        return
    points = problem.drawn(n_points)
    device = problem.device if n > effort.POOLS.host_sizes[-1] else None
    yield from with_memory(
        device, n, n_points, lambda size: _join_in(problem, points, problem.pool(points, size, device), size)
    )
    yield Signal.PART_DONE


def _join_in(problem: SearchProblem, points: Rows, pool: Pool, n: int) -> Iterator[Step]:
    """Exact pairs of a pool of n functions, after products enlarge it by half."""
    pool.multiply(n + n // 2)
    settings = problem.settings
    partners = DevicePartners(pool) if isinstance(pool, DevicePool) else Partners(pool)
    outermost = (*settings.outermost, *((links.INVERSE, *links.UNDONE) if n <= effort.POOLS.host_sizes[-1] else ()))
    for link, pairs in partners.each(points.y, links.all_links(problem.unary, outermost, problem.divides)):
        problem.budget.count(len(pool))
        spend(len(pool) * LOOKUP)
        yield confirmed(pairs, link, pool, problem.rows)[:TRIED]
        problem.budget.check()


def join_three(problem: SearchProblem) -> Iterator[Step]:
    """Three functions that make y exactly, the simplest links first.

    Method: 3SUM by hashing: a function is subtracted from y, and ``join`` looks up the pair that makes the remainder,
    in the order of a hyperbolic cross (``pairs/triples``).  On a GPU all triples of some ten thousand functions.
    Costs: a fifth of the time at most.
    Pays: not measured alone; data/results/laws_lists.csv has the search with it.
    """
    n_points = min(effort.POOLS.key_rows, len(problem.rows))
    if problem.largest_pool < effort.POOLS.host_sizes[0] or n_points < effort.POOLS.min_rows + 2:
        return
    points = problem.drawn(n_points)
    pool = problem.pool(points, min(effort.POOLS.host_sizes[-1], problem.largest_pool))
    pool.multiply(len(pool) + len(pool) // 2)
    partners, rules = Partners(pool), problem.settings.rules
    yield from problem.for_share(
        effort.EXACT.triples_share,
        triples.formulas(
            pool, partners, points.y, problem.rows, problem.unary, np.nan if rules is None else rules.target
        ),
    )
    if problem.device is not None and problem.largest_pool > effort.POOLS.host_sizes[-1] and not problem.is_exact:
        yield from _join_three_on_device(problem, points)


def _join_three_on_device(problem: SearchProblem, points: Rows) -> Iterator[Step]:
    """All triples of some ten thousand functions."""
    all_links = links.all_links(problem.unary, divides=problem.divides)

    def candidates(size: int) -> Iterator[Step]:
        pool: Any = problem.pool(points, size, problem.device)
        pool.multiply(2 * size)
        formulas = device_triples.formulas(pool, points.y, problem.rows, all_links)
        yield from problem.for_share(effort.EXACT.triples_share, formulas)

    n = min(effort.POOLS.device_sizes[0], problem.largest_pool)
    yield from with_memory(problem.device, n, len(points), candidates)


def sum_exactly(problem: SearchProblem) -> Iterator[Step]:
    """Sums of a few simple functions that make y, quotients of them, and roots of quadratic equations.

    What is y but for little noise (four digits) is fitted at all rows.

    Method: orthogonal least squares (S. Chen, S. A. Billings and W. Luo, International Journal of Control 50, 1989)
    until nothing is left, also within an operator; quotients by the linear dependence of functions and of products of y
    with functions (``sums/exact``, ``sums/dependent``).
    Costs: half a second on most data, a fifth of the time at most.
    Pays: data/results/laws.md, point 4: N3, N11, N18, N19, W22, B20, and the quotients B15, H30, H34, Q7, Q27.
    """
    rows = problem.drawn(effort.EXACT.sum_rows)
    if not problem.largest_pool or len(rows) < effort.EXACT.sum_rows:
        return
    settings, pool = problem.settings, problem.pool(rows, min(effort.EXACT.sum_functions, problem.largest_pool))
    pool.multiply_operators(2 * len(pool))
    sums = exact_sums(pool, rows, settings.operators, settings.maxsize, settings.rules)
    fitted = ([*formulas, *problem.refitted(_near(problem, formulas))] for formulas in sums)
    yield from problem.for_share(effort.EXACT.sums_share, fitted)
    yield Signal.PART_DONE


def _near(problem: SearchProblem, formulas: list[Expression]) -> list[Expression]:
    """The formulas that may be the law in little noise: none is exact, and they leave less than any so far."""
    if not formulas:
        return []
    values = values_of(formulas, problem.rows.X)
    losses, limit = problem.goal.losses(values), effort.EXACT.max_gain * problem.front.min_loss
    is_any_exact = problem.rows.is_exact(values).any()
    return [] if is_any_exact else [formulas[k] for k in np.flatnonzero(losses < limit)]
