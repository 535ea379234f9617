"""Exact formulas: two, three and more functions of a pool make y but for rounding.

In: a ``FormulaSearch``.  Out: its front, with what is exact at a few rows and holds at all of them.

    >>> import numpy as np
    >>> from exprkit.regression.problem.sample import Sample
    >>> from exprkit.regression.stages.settings import SearchSettings
    >>> from exprkit.regression.stages import exact
    >>> from exprkit.regression.stages.search import FormulaSearch
    >>> from exprkit.runtime.budget import Budget, Ended
    >>> X = np.random.default_rng(0).uniform(1, 2, (50, 2))
    >>> search = FormulaSearch(Sample(X, X[:, 0] / (3 + 5 * X[:, 1])), SearchSettings(), Budget())
    >>> try:
    ...     exact.join(search)
    ... except Ended as ended:
    ...     print(ended, search.front.entries()[-1].expression, sep=": ")
    a formula is exact: x1 / (5 * x2 + 3)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from exprkit.regression.on_device import triples as device_triples
from exprkit.regression.on_device.join import DevicePartners
from exprkit.regression.on_device.pool import DevicePool
from exprkit.regression.on_device.programs import with_memory
from exprkit.regression.pairs import links, triples
from exprkit.regression.pairs.confirm import TRIED, confirmed
from exprkit.regression.pairs.join import LOOKUP, Partners
from exprkit.regression.pairs.pool import Pool
from exprkit.regression.problem import effort
from exprkit.regression.problem.sample import Sample
from exprkit.regression.stages.search import FormulaSearch
from exprkit.regression.sums.exact import exact_sums


def join(search: FormulaSearch) -> None:
    """Exact pairs of small pools; the first that has some is the last."""
    for most in sorted({min(most, search.most) for most in search.pool_sizes} - {0}):
        _join(search, most)


def join_more(search: FormulaSearch) -> None:
    """Exact pairs of the whole pool, unless what has been found says that there is noise."""
    if search.most > search.pool_sizes[-1] and not search.is_noise_left:
        _join(search, search.most)


def _join(search: FormulaSearch, most: int) -> None:
    n_points = min(effort.POOLS.key_rows, len(search.sample))
    if n_points < effort.POOLS.min_rows:
        return
    few = search.sample.subsample(n_points, search.settings.seed)
    device = search.device if most > effort.POOLS.host_sizes[-1] else None
    with_memory(device, most, n_points, lambda room: _join_in(search, few, search.pool(few, room, device), room))
    search.look()


def _join_in(search: FormulaSearch, few: Sample, pool: Pool, most: int) -> None:
    """Exact pairs of a pool, which grows to half as many functions more."""
    pool.multiply(most + most // 2)
    check, settings = search.budget.check, search.settings
    partners = DevicePartners(pool, check) if isinstance(pool, DevicePool) else Partners(pool, settings.threads, check)
    outermost = (*settings.outermost, *(links.UNDONE if most <= effort.POOLS.host_sizes[-1] else ()))
    for form, pairs in partners.each(few.y, links.forms(search.unary, outermost, search.divides)):
        search.budget.count(len(pool))
        search.budget.spend(len(pool) * LOOKUP)
        search.offer(confirmed(pairs, form, pool, search.sample)[:TRIED])
        search.budget.check()


def join_three(search: FormulaSearch) -> None:
    """Three functions that make y exactly, the simplest forms first, in a part of the time."""
    n_points = min(effort.POOLS.key_rows, len(search.sample))
    if search.most < effort.POOLS.host_sizes[0] or n_points < effort.POOLS.min_rows + 2:
        return
    few, check = search.sample.subsample(n_points, search.settings.seed), search.budget.check
    (pool := search.pool(few, min(effort.POOLS.host_sizes[-1], search.most))).multiply(len(pool) + len(pool) // 2)
    partners, rules = Partners(pool, search.settings.threads, check), search.settings.rules
    search.offer_some(triples.formulas(
        pool, partners, few.y, search.sample, search.unary, np.nan if rules is None else rules.target,
        search.looking(effort.WORK.triples_check),
    ))  # fmt: skip
    if search.device is not None and search.most > effort.POOLS.host_sizes[-1] and not search.is_exact:
        _join_three_on_device(search, few)


def _join_three_on_device(search: FormulaSearch, few: Sample) -> None:
    """All of some ten thousand."""
    forms = links.forms(search.unary, divides=search.divides)

    def work(room: int) -> None:
        pool: Any = search.pool(few, room, search.device)
        pool.multiply(2 * room)
        search.offer_some(device_triples.formulas(pool, few.y, search.sample, forms, search.budget.check))

    with_memory(search.device, min(effort.POOLS.device_sizes[0], search.most), len(few), work)


def sum_exactly(search: FormulaSearch) -> None:
    """Sums of a few simple functions that make y exactly, also within an operator, in a part of the time."""
    few = search.sample.subsample(min(effort.EXACT.sum_rows, len(search.sample)), search.settings.seed)
    if not search.most or len(few) < effort.EXACT.sum_rows:
        return
    settings, pool = search.settings, search.pool(few, min(effort.EXACT.sum_functions, search.most))
    pool.multiply_operators(2 * len(pool))
    search.offer_some(exact_sums(
        pool, few, settings.operators, settings.maxsize, settings.rules, settings.threads,
        search.looking(effort.WORK.sums_check),
    ), effort.EXACT.sums_share)  # fmt: skip
    search.look()
