"""Least squares: single functions of a large pool, linear combinations of several, and all pairs of a small one.

In: a ``SearchProblem``.  Out: formulas of least squares, whose numbers are optimised again for the loss of y.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.operators import ops
from exprkit.regression.formulas import parameters as constants
from exprkit.regression.formulas.values import values_of
from exprkit.regression.on_device.regress import regressed
from exprkit.regression.pairs import links
from exprkit.regression.pairs.confirm import joined
from exprkit.regression.pairs.pool import is_power
from exprkit.regression.problem import effort
from exprkit.regression.problem.rows import Rows
from exprkit.regression.shapes import templates
from exprkit.regression.stages import simplification
from exprkit.regression.stages.search_problem import SearchProblem, Signal, Step
from exprkit.regression.sums import nearest
from exprkit.regression.sums.dependent import makes_products
from exprkit.regression.sums.formulas import Transform, sums, transforms
from exprkit.regression.sums.inside import Functions, terms_inside
from exprkit.regression.sums.quotients import quotients
from exprkit.regression.sums.regress import best_pairs
from exprkit.regression.sums.single import singles
from exprkit.runtime.budget import spend

MAX_MATCH = 255  # tokens of a function of a pool


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
    places = transforms(problem.unary, problem.divides, problem.settings.outermost)
    for formulas in singles(pool, problem.for_squares(rows), places):
        yield from _and_simpler(problem, problem.refitted(formulas))
        problem.budget.check()


def _and_simpler(problem: SearchProblem, formulas: list[Expression]) -> Iterator[Step]:
    """Formulas, then those that came to the front with a number less: the whole law may be there, with one too many."""
    yield formulas
    best = {entry.expression for entry in problem.front.entries()}
    yield [simpler for formula in formulas if formula in best for simpler in constants.simpler_numbers(formula)]


def match(problem: SearchProblem) -> Iterator[Step]:
    """Formulas u(c f h^b) and u(a + f + c h) of two functions of a large pool, u being an operator or nothing.

    Method: nearest neighbours of what y and every f require of h, at all rows at once (``sums/nearest``).
    Costs: 30,000 functions and half as many products, at 256 rows; 0.3 of the time at most.
    Pays: data/results/recovery.csv: with ``translate`` 103 and 98 of 119 noisy laws instead of 88 and 87.
    """
    limits, n_vars = effort.REGRESSIONS, problem.rows.X.shape[1]
    n = min(limits.match_functions * n_vars**2, limits.max_match_functions)
    if problem.largest_pool < n or len(problem.rows) < nearest.MIN_ROWS:
        return
    pool = problem.pool(problem.drawn(effort.POOLS.key_rows), n)
    pool.multiply(len(pool) + len(pool) // 2)
    rows = problem.for_squares(problem.drawn(limits.match_rows))
    functions = nearest.PoolSample.of(pool, rows)
    spend(functions.values.size * effort.WORK.single)
    is_over = problem.budget.part(limits.match_share)
    for transform, form in _matches(problem):
        if not (variance := problem.front.min_loss) > 0:
            return
        for pairs in form(functions, transform, rows, float(np.sqrt(variance))):
            spend(pairs.seconds)
            best = pairs.best_of_sizes(functions.sizes, _losses_to_beat(problem) / variance, limits.matches)
            formulas = [functions.formula(pairs, f, h, transform, rows) for f, h in best]
            yield from _and_simpler(problem, problem.refitted([formula for formula in formulas if formula is not None]))
            if is_over():
                yield Signal.CUT
                return
        yield Signal.PART_DONE


def _matches(problem: SearchProblem) -> list[tuple[Transform, Callable[..., Iterator[nearest.NearPairs]]]]:
    """Transformations with the forms behind them, the likeliest first; powers of products are products."""
    plain, *others = transforms(problem.unary, problem.divides, problem.settings.outermost)
    powers = [one for one in others if one.row is None or is_power(one.row)]
    inverse_powers = [one for one in powers if one.over and one.outer is not None]
    simple_powers = [one for one in powers if one not in inverse_powers]
    operators = [one for one in others if one not in powers and not one.over]
    order = (
        (nearest.products, [plain]),
        (nearest.totals, [plain, *simple_powers]),
        (nearest.products, operators),
        (nearest.totals, [*inverse_powers, *operators]),
    )
    return [(one, form) for form, group in order for one in group]


def _losses_to_beat(problem: SearchProblem) -> np.ndarray:
    """The least loss so far by size of a formula without its number, which is two tokens."""
    losses = np.full(2 * MAX_MATCH + 3, np.inf)
    for entry in problem.front.entries():
        size = min(entry.size, len(losses) - 1)
        losses[size] = min(losses[size], entry.loss)
    return np.asarray(np.minimum.accumulate(losses)[2:])


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


def divide(problem: SearchProblem) -> Iterator[Step]:
    """Quotients of sums of a few functions, and roots of quadratic equations, also in noise.

    Method: best-subset selection among functions f and products y f (``sums/quotients``).
    Costs: 70 terms at 128 rows, three and a number in a sum: 0.25 s, and, first in noise, 4 of SRBench's laws.
    Pays: laws of saturation and inhibition in noise of 1e-7 to 1e-2 (tests/test_noise.py).
    """
    yield from _quotients(problem, [Transform(None, False)])


def divide_within(problem: SearchProblem) -> Iterator[Step]:
    """The quotients of ``divide`` within powers, logarithms and exponentials; costs as much for each operator."""
    every = transforms(problem.unary, False)[1:]
    yield from _quotients(problem, [one for one in every if one.row is not None and makes_products(one.row)])


def _quotients(problem: SearchProblem, places: list[Transform]) -> Iterator[Step]:
    is_chosen = {ops.ADD, ops.MUL, ops.DIV} <= {row.code for row in problem.settings.operators}
    if not problem.largest_pool or not is_chosen or problem.is_on_host or len(problem.rows) < nearest.MIN_ROWS:
        return
    rows = problem.for_squares(problem.drawn(effort.REGRESSIONS.rows))
    pool = problem.pool(rows, problem.pool_limit(effort.REGRESSIONS.quotient_functions, rows))
    pool.multiply(2 * len(pool))
    near = values_of([problem.front.best.expression], rows.X)[0] if problem.is_noisy else None
    root = next((row for row in problem.unary if is_power(row) and row.numpy(np.float64(9.0)) == 3.0), None)
    for place in places:
        formulas = list(
            quotients(pool, rows, near, place, root if place.outer is None else None, problem.settings.maxsize)
        )
        for k in range(0, len(formulas), effort.GROWTH.fits_at_once):
            yield from _and_simpler(problem, problem.refitted(formulas[k : k + effort.GROWTH.fits_at_once]))
            problem.budget.check()
        yield Signal.PART_DONE


def regress_first(problem: SearchProblem) -> Iterator[Step]:
    """The formulas of ``regress`` of a few hundred simple functions.

    Method: as ``regress``.
    Costs: 400 functions (within an operator 150), all their pairs at 128 rows for each link.
    Pays: c x log(d x) in noise of 1e-7 and 1e-3, which the other stages do not find in 10 s (tests/test_noise.py).
    """
    yield from _regress(problem, effort.REGRESSIONS.first_pair_functions, 2)


def regress(problem: SearchProblem) -> Iterator[Step]:
    """Formulas outer(f * (a + b h)) of all pairs f, h of a small pool, then the simplified front.

    Method: linear regression of all pairs at once, whose sums are products of matrices (``sums/regress``).
    Costs: 3,000 functions (within an operator 1,000), all their pairs at 128 rows for each link; on a GPU 20,000.
    Pays: data/results/laws_noise.csv (44 and 45 of 60 laws with noise of 0.001 and 0.01).
    """
    limits = effort.REGRESSIONS
    yield from _regress(problem, limits.pair_functions if problem.device is None else limits.device_pair_functions, 4)
    yield from simplification.polish(problem)


def _regress(problem: SearchProblem, sizes: tuple[int, int], each: int) -> Iterator[Step]:
    """The pairs of pools of these sizes, the second within an operator; ``each``: pairs for a sum of sizes."""
    settings, rows = problem.settings, problem.drawn(effort.REGRESSIONS.rows)
    pools = [problem.pool(rows, problem.pool_limit(n, rows)) for n in sizes]
    on_device = functools.partial(regressed, problem.device) if problem.device else None
    rows = problem.for_squares(rows)
    for link in links.all_links(problem.unary, divides=problem.divides):
        pool = pools[link.outer is not None]
        pairs = best_pairs(pool, rows, link, each, regress=on_device)
        problem.budget.count(len(pool) if pairs else 0)
        formulas: list[Expression] = []
        for pair in pairs:
            if pair.size < settings.maxsize:
                formulas += joined(pool, link, pair.f, pair.h, rows.y)
        yield problem.refitted(formulas)
        problem.budget.check()
        yield Signal.PART_DONE


def inner_terms(problem: SearchProblem, rows: Rows) -> Functions | None:
    """Functions u(c h) of simple functions h, with a grid of numbers c, at rows of data; None for small pools."""
    if not problem.binary or problem.largest_pool < 100:
        return None
    n = min(effort.REGRESSIONS.functions_with_numbers, problem.largest_pool // 100)
    plain = problem.pool(rows, n, None, problem.binary, ())
    inner = templates.simplest(plain, n)
    return terms_inside(plain.values[inner], [plain.tree(i) for i in inner], problem.settings.operators)
