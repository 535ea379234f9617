"""Least squares: single functions of a large pool, linear combinations of several, and all pairs of a small one.

In: a ``SearchProblem``.  Out: formulas of least squares, whose numbers are optimised again for the loss of y.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from exprkit.expressions.expression import Expression
from exprkit.regression.formulas import parameters as constants
from exprkit.regression.on_device.regress import regressed
from exprkit.regression.pairs import links
from exprkit.regression.pairs.confirm import joined
from exprkit.regression.pairs.pool import is_power
from exprkit.regression.problem import effort
from exprkit.regression.problem.rows import Rows
from exprkit.regression.shapes import templates
from exprkit.regression.stages import simplification
from exprkit.regression.stages.search_problem import SearchProblem, Signal, Step
from exprkit.regression.sums.formulas import Transform, sums, transforms
from exprkit.regression.sums.inside import Functions, terms_inside
from exprkit.regression.sums.regress import best_pairs
from exprkit.regression.sums.single import singles


def single(problem: SearchProblem) -> Iterator[Step]:
    """Formulas u(a + b f) and u(b f) of one function f of a large pool, u being an operator or nothing.

    Method: simple linear regression of the inverse of u at y on every f (``sums/single``).
    Costs: 10,000 functions and as many monomials, at 128 rows.
    Pays: noise hides even the simplest law from the exact stages; data/results/laws_noise.csv.
    """
    if not problem.largest_pool:
        return
    rows = problem.drawn(effort.REGRESSIONS.rows)
    pool = problem.pool(rows, problem.pool_limit(effort.REGRESSIONS.single_functions, rows))
    pool.multiply(2 * len(pool))
    places = transforms(problem.unary, problem.divides)
    for k, formulas in enumerate(singles(pool, problem.for_squares(rows), places)):
        refitted = problem.refitted(formulas)
        yield refitted
        if k == 0:  # without a transformation: the whole law may be there, with a number too many
            yield [simpler for formula in refitted for simpler in constants.simpler_numbers(formula)]
        problem.budget.check()


def sum(problem: SearchProblem) -> Iterator[Step]:
    """Linear combinations of a few functions of a pool.

    Method: orthogonal least squares (S. Chen, S. A. Billings and W. Luo, 1989), of many subsets at once
    (``sums/selection``).
    Costs: 3,000 functions and as many monomials, at 128 rows.
    Pays: not measured alone; data/results/tables_splits.csv has the search with it.
    """
    yield from _sums(problem, transforms(problem.unary, problem.divides)[:1])


def sum_within(problem: SearchProblem) -> Iterator[Step]:
    """The linear combinations of ``sum`` within an operator; costs as much for each operator.

    The front is simplified first where only noise is left of y.
    Pays: data/results/laws_textbook.csv, laws that are a root, a logarithm or an exponential of a sum.
    """
    if problem.is_noise_left:
        yield from simplification.polish(problem)
    yield from _sums(problem, transforms(problem.unary, problem.divides)[1:])


def sum_within_powers(problem: SearchProblem) -> Iterator[Step]:
    """The linear combinations of ``sum`` within a power, for data without units (``fewer_variables.group``)."""
    every = transforms(problem.unary, problem.divides)
    yield from _sums(problem, [one for one in every if one.row is not None and is_power(one.row)])


def _sums(problem: SearchProblem, places: list[Transform]) -> Iterator[Step]:
    settings, budget = problem.settings, problem.budget
    if not problem.largest_pool:
        return
    rows = problem.drawn(effort.REGRESSIONS.rows)
    n = problem.pool_limit(effort.REGRESSIONS.sum_functions, rows)
    pool = problem.pool(rows, n)
    pool.multiply(2 * n)
    inside = inner_terms(problem, rows)
    for transform in places:
        formulas = sums(pool, problem.for_squares(rows), transform, settings.maxsize, inside, settings.rules)
        budget.count(len(pool))
        for k in range(0, len(formulas), effort.GROWTH.fits_at_once):
            yield problem.refitted(formulas[k : k + effort.GROWTH.fits_at_once])
            budget.check()
        yield Signal.PART_DONE


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
        pairs = best_pairs(pool, rows, link, regress=on_device)
        problem.budget.count(len(pool) if pairs else 0)
        formulas: list[Expression] = []
        for pair in pairs:
            if pair.size < settings.maxsize:
                formulas += joined(pool, link, pair.f, pair.h, rows.y)
        yield problem.refitted(formulas)
        problem.budget.check()
        yield Signal.PART_DONE
    yield from simplification.polish(problem)


def inner_terms(problem: SearchProblem, rows: Rows) -> Functions | None:
    """Functions u(c h) of simple functions h, with a grid of numbers c, at rows of data; None for small pools."""
    if not problem.binary or problem.largest_pool < 100:
        return None
    n = min(effort.REGRESSIONS.functions_with_numbers, problem.largest_pool // 100)
    plain = problem.pool(rows, n, None, problem.binary, ())
    inner = templates.simplest(plain, n)
    return terms_inside(plain.values[inner], [plain.tree(i) for i in inner], problem.settings.operators)
