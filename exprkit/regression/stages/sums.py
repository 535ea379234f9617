"""Sums by least squares: single functions of a large pool, and several of them, also within an operator.

In: a ``FormulaSearch``.  Out: its front, with the formulas of least squares, fitted again in the terms of y.
"""

from __future__ import annotations

from exprkit.regression.formulas import parameters as constants
from exprkit.regression.pairs.pool import is_power
from exprkit.regression.problem import effort
from exprkit.regression.problem.sample import Sample
from exprkit.regression.shapes import templates
from exprkit.regression.stages.search import FormulaSearch
from exprkit.regression.sums.formulas import Around, arounds, sums
from exprkit.regression.sums.inside import InnerTerms, terms_inside
from exprkit.regression.sums.single import singles


def single(search: FormulaSearch) -> None:
    """Single functions of a large pool, also within an operator, fitted again."""
    if not search.most:
        return
    few = search.sample.subsample(min(effort.REGRESSIONS.rows, len(search.sample)), search.settings.seed)
    pool = search.pool(few, search.told_apart(effort.REGRESSIONS.single_functions, few))
    pool.multiply(2 * len(pool))
    for k, formulas in enumerate(singles(pool, search.for_squares(few), arounds(search.unary, search.divides))):
        found = search.refitted(formulas)
        search.offer(found)
        if k == 0:  # of what may well be all of a law: without its number, or with a simple one
            search.offer(other for one in found for other in constants.simpler_numbers(one))
        search.budget.check()


def sum(search: FormulaSearch) -> None:
    """Sums of a few functions, fitted again."""
    _sums(search, arounds(search.unary, search.divides)[:1])


def sum_within(search: FormulaSearch) -> None:
    """The same within an operator; what is as good as noise allows is polished first."""
    if search.is_noise_left:
        search.simpler.polish()
    _sums(search, arounds(search.unary, search.divides)[1:])


def sum_within_powers(search: FormulaSearch) -> None:
    """The same within a power."""
    places = arounds(search.unary, search.divides)
    _sums(search, [around for around in places if around.row is not None and is_power(around.row)])


def _sums(search: FormulaSearch, places: list[Around]) -> None:
    settings, threads, go_on = search.settings, search.settings.threads, search.budget.check
    if not search.most:
        return
    few = search.sample.subsample(min(effort.REGRESSIONS.rows, len(search.sample)), settings.seed)
    most = search.told_apart(effort.REGRESSIONS.sum_functions, few)
    pool = search.pool(few, most)
    pool.multiply(2 * most)
    inside = inner_terms(search, few)
    for around in places:
        found = sums(
            pool, search.for_squares(few), around, settings.maxsize, inside, settings.rules, threads, go_on
        )  # fmt: skip
        search.budget.count(len(pool))
        for k in range(0, len(found), effort.GROWTH.fits_at_once):
            search.offer(search.refitted(found[k : k + effort.GROWTH.fits_at_once]))
            search.budget.check()
        search.look()


def inner_terms(search: FormulaSearch, sample: Sample) -> InnerTerms | None:
    """Simple functions with a number before them, within an operator."""
    if not search.binary or search.most < 100:
        return None
    most = min(effort.REGRESSIONS.functions_with_numbers, search.most // 100)
    plain = search.pool(sample, most, None, search.binary, ())
    inner = templates.simplest(plain, most)
    return terms_inside(plain.values[inner], [plain.tree(i) for i in inner], search.settings.operators)
