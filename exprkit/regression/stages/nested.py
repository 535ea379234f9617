"""Parameters inside operators: curve shapes with several of them, and templates with one, by very many fits.

In: a ``SearchProblem``.  Out: formulas with their parameters fitted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from exprkit.operators import defined, ops
from exprkit.regression.pairs import links
from exprkit.regression.pairs.pool import is_power
from exprkit.regression.problem import effort
from exprkit.regression.shapes import templates
from exprkit.regression.shapes.curves import curves
from exprkit.regression.shapes.factored import factored
from exprkit.regression.stages import simplification
from exprkit.regression.stages.search_problem import SearchProblem, Signal, Step
from exprkit.regression.sums.formulas import Transform
from exprkit.regression.sums.inside import is_logarithm


def curve(problem: SearchProblem) -> Iterator[Step]:
    """Growth, decay, peaks, oscillations and saturation: shapes with several parameters inside, the simplest first.

    Method: multistart nonlinear regression by Levenberg-Marquardt, rough for all shapes and to the end for the best
    (``shapes/curves``); starts drawn by what a parameter does, a rate or a place.
    Costs: an eighth of the time, and another 0.23 of it where a short formula explains 0.9 of the variance by then.
    Pays: data/results/laws_lists.csv, list "curves": 49 of 53; pyoperon and gplearn are in laws_curves_peers.csv.
    """
    if not problem.largest_pool or problem.settings.maxsize < effort.FEWER_VARIABLES.min_tokens:
        return

    settings = problem.settings
    shapes = curves(
        problem.for_squares(problem.generation_rows),
        settings.operators,
        settings.seed,
        effort.CURVES.shapes_per_function * problem.largest_pool,
    )
    candidates = map(problem.refitted, shapes)
    yield from problem.for_share(effort.CURVES.share, candidates)
    if problem.is_promising and not problem.is_exact:
        yield from problem.for_share(effort.CURVES.more_share, candidates)
    yield Signal.PART_DONE


def nest(problem: SearchProblem) -> Iterator[Step]:
    """Templates f * (a + b u(c h)) and f / (a + b u(c h)), then those of ``nest_in_factors``.

    Method: variable projection (G. H. Golub and V. Pereyra, SIAM Journal on Numerical Analysis 10, 1973): a and b by
    linear regression for every c of a grid, then c between its neighbours on the grid (``shapes/templates``).
    Errors count as shares of y first, then as they are.
    Costs: the pairs of 1,500 functions with every operator and number of the grid, at 256 rows.
    Pays: data/results/laws_empirical.csv, where Planck's law is such a template (5 of 5 runs).
    """
    for is_relative in (True, False) if problem.largest_pool else ():
        yield from nest_once(problem, is_relative)
    if problem.largest_pool:
        yield from nest_in_factors(problem)


def nest_more(problem: SearchProblem) -> Iterator[Step]:
    """The templates of ``nest`` within a logarithm or an exponential; costs as much for each of these operators.

    Pays: not measured alone; it runs last but one, in time that no other stage has used.
    """
    for outer in problem.unary if problem.largest_pool else []:
        inverse = links.inverse(outer)
        if is_logarithm(outer) or (inverse is not None and is_logarithm(inverse)):
            yield from nest_once(problem, outer=outer)


def nest_once(problem: SearchProblem, is_relative: bool = True, outer: defined.Written | None = None) -> Iterator[Step]:
    """The templates of ``nest`` for errors that count as shares of y or as they are, within an operator or none."""
    rows, settings = problem.for_squares(problem.shape_rows), problem.settings
    target = rows.y if outer is None else links.inverted(outer, rows.y)
    rules = settings.rules
    dimension = None if rules is None else rules.operand_dimension(outer)
    if target is None or (rules is not None and dimension is None):
        return
    few, binary = problem.generation_rows, problem.binary
    n = problem.pool_limit(effort.REGRESSIONS.template_functions, few)
    if not binary:
        return
    powers = [row for row in binary if row.code in (ops.MUL, ops.DIV)]
    powers += [row for row in problem.unary if is_power(row)]
    pools = [problem.pool(few, n)]
    pools += [problem.pool(few, n, None, operators, ()) for operators in (powers or binary, binary)]
    formulas = templates.nested(
        pools,
        rows.with_y(target),
        settings.operators,
        is_relative,
        np.nan if rules is None or rules.free_numbers or dimension is None else dimension,
    )
    transform = Transform(outer, False)
    is_fitted = is_relative and outer is None and settings.loss == "squares"
    yield formulas if is_fitted else problem.refitted([transform.expression(formula) for formula in formulas])
    yield from simplification.settle(problem)
    yield Signal.PART_DONE


def nest_in_factors(problem: SearchProblem) -> Iterator[Step]:
    """Factors with a parameter inside times a line: f u(c h) * (a + b g) and f u(c h) / (a + b g).

    Method: as ``nest``, all f u(c h) with all g at once (``shapes/factored``).
    Pays: data/results/laws_curves.csv, decay and saturation beside a line.
    """
    rows, settings = problem.for_squares(problem.shape_rows), problem.settings
    if not problem.binary:
        return
    few = problem.generation_rows
    n = problem.pool_limit(effort.REGRESSIONS.template_functions, few)
    pool, plain = problem.pool(few, n), problem.pool(few, n, None, problem.binary, ())
    formulas = factored((pool, plain), rows, settings.operators)
    yield formulas if settings.loss == "squares" else problem.refitted(formulas)
    yield from simplification.settle(problem)
    yield Signal.PART_DONE
