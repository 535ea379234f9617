"""Pairs by least squares: all of a small pool, for data with noise.

In: a ``FormulaSearch``.  Out: its front, with the best pairs, fitted again in the terms of y and polished.
"""

from __future__ import annotations

import functools

from exprkit.expressions.expression import Expression
from exprkit.regression.on_device.regress import regressed
from exprkit.regression.pairs import links
from exprkit.regression.pairs.confirm import joined
from exprkit.regression.problem import effort
from exprkit.regression.stages.search import FormulaSearch
from exprkit.regression.sums.regress import best_pairs


def regress(search: FormulaSearch) -> None:
    """The best pairs by least squares; refitted in the terms of y and all rows."""
    settings = search.settings
    few = search.sample.subsample(min(effort.REGRESSIONS.rows, len(search.sample)), settings.seed)
    paired = effort.REGRESSIONS.pair_functions if search.device is None else effort.REGRESSIONS.device_pair_functions
    pools = [search.pool(few, search.told_apart(most, few)) for most in paired]
    how = functools.partial(regressed, search.device) if search.device else None
    few = search.for_squares(few)
    for form in links.forms(search.unary, divides=search.divides):
        pool = pools[form.outer is not None]
        pairs = best_pairs(pool, few, form, threads=settings.threads, go_on=search.budget.check, regress=how)
        search.budget.count(len(pool) if pairs else 0)
        made: list[Expression] = []
        for pair in pairs:
            if pair.size < settings.maxsize:
                made += joined(pool, form, pair.f, pair.h, few.y)
        search.offer(search.refitted(made))
        search.budget.check()
        search.look()
    search.simpler.polish()
