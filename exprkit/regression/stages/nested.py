"""Numbers inside of operators: shapes with several of them, and templates with one, by very many fits.

In: a ``FormulaSearch``.  Out: its front, with the formulas that the fits make.
"""

from __future__ import annotations

import numpy as np

from exprkit.operators import defined, ops
from exprkit.regression.pairs import links
from exprkit.regression.pairs.pool import is_power
from exprkit.regression.problem import effort
from exprkit.regression.shapes import templates
from exprkit.regression.shapes.curves import curves
from exprkit.regression.shapes.factored import factored
from exprkit.regression.stages.search import FormulaSearch
from exprkit.regression.sums.formulas import Around
from exprkit.regression.sums.inside import is_logarithm


def curve(search: FormulaSearch) -> None:
    """Shapes with several numbers inside, the simplest kinds first, in a part of the time.

    In the first third of it they explain most of y, if one of them is y: else the time is better spent elsewhere.
    """
    if not search.most or search.settings.maxsize < effort.FEWER_VARIABLES.min_tokens:
        return

    def fitting(n: int) -> None:
        search.budget.count(n)
        search.budget.spend(n * effort.WORK.shape)

    found = curves(
        search.for_squares(search.rows), search.settings.operators, search.settings.seed, search.settings.threads,
        search.budget.check, fitting, effort.CURVES.shapes_per_function * search.most,
    )  # fmt: skip
    refitted = map(search.refitted, found)
    search.offer_some(refitted, effort.CURVES.share)
    if search.is_promising and not search.is_exact:
        search.offer_some(refitted, effort.CURVES.more_share)
    search.look()


def nest(search: FormulaSearch) -> None:
    """Templates with a number inside of an operator; of functions that are no product of others."""
    for as_shares in (True, False) if search.most else ():
        _nest(search, as_shares, None)
    if search.most:
        nest_in_factors(search)


def nest_shares(search: FormulaSearch) -> None:
    """Templates of which y is a share."""
    _nest(search, True, None)


def nest_more(search: FormulaSearch) -> None:
    """The same within a logarithm, and within what undoes one."""
    for outer in search.unary if search.most else []:
        undoing = links.inverse(outer)
        if is_logarithm(outer) or (undoing is not None and is_logarithm(undoing)):
            _nest(search, True, outer)


def _nest(search: FormulaSearch, as_shares: bool, outer: defined.Written | None) -> None:
    some, settings = search.for_squares(search.some), search.settings
    v = some.y if outer is None else links.inverted(outer, some.y)
    rules = settings.rules
    dimension = None if rules is None else rules.operand_dimension(outer)
    if v is None or (rules is not None and dimension is None):
        return
    most = search.told_apart(effort.REGRESSIONS.template_functions, search.rows)
    binary = search.binary
    if not binary:
        return
    powers = [row for row in binary if row.code in (ops.MUL, ops.DIV)]
    powers += [row for row in search.unary if is_power(row)]
    pools = [search.pool(search.rows, most)]
    pools += [search.pool(search.rows, most, None, rows, ()) for rows in (powers or binary, binary)]
    found = templates.nested(
        pools, some.with_y(v), settings.operators, settings.threads, search.budget.check, search.budget.count,
        as_shares, np.nan if rules is None or rules.free_numbers or dimension is None else dimension,
    ).formulas  # fmt: skip
    around = Around(outer, False)
    is_best = as_shares and outer is None and settings.loss == "squares"
    search.offer(found if is_best else search.refitted([around.expression(one) for one in found]))
    search.simpler.settle()
    search.look()


def nest_in_factors(search: FormulaSearch) -> None:
    """A factor with a number inside, beside a line."""
    some, settings = search.for_squares(search.some), search.settings
    if not search.binary:
        return
    most = search.told_apart(effort.REGRESSIONS.template_functions, search.rows)
    pool, plain = search.pool(search.rows, most), search.pool(search.rows, most, None, search.binary, ())
    check, count = search.looking(effort.WORK.factors_check), search.budget.count
    found = factored((pool, plain), some, settings.operators, settings.threads, check, count)
    search.offer(found if settings.loss == "squares" else search.refitted(found))
    search.simpler.settle()
    search.look()
