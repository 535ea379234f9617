"""Pairs of functions by least squares, for data with noise.

In: a ``SearchProblem``.  Out: the best pairs, whose numbers are optimised again for the loss of y.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from exprkit.expressions.expression import Expression
from exprkit.regression.on_device.regress import regressed
from exprkit.regression.pairs import links
from exprkit.regression.pairs.confirm import joined
from exprkit.regression.problem import effort
from exprkit.regression.stages import simplification
from exprkit.regression.stages.search_problem import SearchProblem, Signal, Step
from exprkit.regression.sums.regress import best_pairs


def regress(problem: SearchProblem) -> Iterator[Step]:
    """Formulas outer(f * (a + b h)) of all pairs f, h of a small pool, then the simplified front.

    Method: linear regression of all pairs at once, whose sums are products of matrices (``sums/regress``).
    Costs: 3,000 functions (within an operator 1,000), all their pairs at 128 rows for each link; on a GPU 20,000.
    Pays: data/results/laws_noise.csv (44 and 45 of 60 laws with noise of 0.001 and 0.01).
    """
    settings, rows = problem.settings, problem.drawn(effort.REGRESSIONS.rows)
    sizes = effort.REGRESSIONS.pair_functions if problem.device is None else effort.REGRESSIONS.device_pair_functions
    pools = [problem.pool(rows, problem.pool_limit(n, rows)) for n in sizes]
    on_device = functools.partial(regressed, problem.device) if problem.device else None
    rows = problem.for_squares(rows)
    for link in links.all_links(problem.unary, divides=problem.divides):
        pool = pools[link.outer is not None]
        pairs = best_pairs(pool, rows, link, threads=settings.threads, go_on=problem.budget.check, regress=on_device)
        problem.budget.count(len(pool) if pairs else 0)
        formulas: list[Expression] = []
        for pair in pairs:
            if pair.size < settings.maxsize:
                formulas += joined(pool, link, pair.f, pair.h, rows.y)
        yield problem.refitted(formulas)
        problem.budget.check()
        yield Signal.PART_DONE
    yield from simplification.polish(problem)
