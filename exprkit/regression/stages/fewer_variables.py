"""Reduction of variables: dimensionless groups, products of powers, differences, power factors, and the sign of y.

In: a ``SearchProblem``; stages.  Out: what the stages yield for the reduced problem, converted back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.expressions.parser import parse
from exprkit.regression.formulas.simplify import negated
from exprkit.regression.formulas.values import values_of
from exprkit.regression.problem import effort
from exprkit.regression.problem.rows import Rows
from exprkit.regression.rules.factors import power_factors
from exprkit.regression.rules.groups import UnitSystem, monomials_in_unit_of_y
from exprkit.regression.rules.scalings import scaling
from exprkit.regression.rules.translations import Translations, translations
from exprkit.regression.stages import exact, growth, nested, sums
from exprkit.regression.stages.search import FormulaSearch, Stage
from exprkit.regression.stages.search_problem import SearchProblem, Signal, Step
from exprkit.runtime.budget import Ended, spend


def group(problem: SearchProblem) -> Iterator[Step]:
    """Formulas of dimensionless groups, by the stages for exact formulas, templates and sums within powers.

    Method: the Pi theorem (E. Buckingham, Physical Review 4, 1914): some variables serve as units of the others
    (``rules/groups``).
    Costs: 0.6 of the time at most; data without units skip it.
    Pays: data/results/laws_lists.csv, list "units": 57 of 60 laws in 2.4 s; the stage was not left out alone.
    """
    settings, limits = problem.settings, effort.FEWER_VARIABLES
    is_over = problem.budget.part(limits.units_share)
    n_fitted, small = limits.fitted_unit_systems, limits.fitted_functions
    systems = [] if settings.rules is None else settings.rules.unit_systems[: limits.max_unit_systems]
    parts = (
        (exact.join, systems, None),
        (exact.join_three, systems[:n_fitted], None),
        (nested.nest_once, systems[:n_fitted], small),
        (sums.sum_within_powers, systems[:n_fitted], small),
        (exact.join_three, systems[n_fitted:], None),
    )
    yield from _each(problem, is_over, ((system, stage, n) for stage, chosen, n in parts for system in chosen))


def reduce(problem: SearchProblem) -> Iterator[Step]:
    """Formulas x^b F(groups) of products of powers of the variables, F by the stages for curves, sums and exact ones.

    Method: Buckingham's theorem without units: the groups span the gradients of log |y| by the logarithms of the
    variables, which are those of a Gaussian process (``rules/scalings``).
    Costs: half a second for the groups, of 12 variables at most; 0.35 of the time at most.
    Pays: 30 laws of Feynman's, 10 s: with noise of 0.01 19 instead of 11, of 0.1 16 instead of 12; all 119 with it:
    data/results/recovery.csv.
    """
    if not problem.largest_pool or problem.settings.maxsize < effort.FEWER_VARIABLES.min_tokens:
        return
    spend(effort.WORK.reduction)
    reduction = scaling(problem.rows)
    if reduction is None:
        return
    system, is_noisy = reduction.system, problem.is_noisy or reduction.noise > effort.FEWER_VARIABLES.min_noise
    if not system.remaining:
        yield monomials_in_unit_of_y(problem.rows, [system], 1)
        return
    if (inner := _in_units(problem, system, None, is_noisy)) is None:
        return
    stages: list[Stage] = [sums.single, sums.match]
    stages += [nested.curve, growth.grow_first, sums.sum, sums.regress]
    if not is_noisy:
        stages = [exact.join, exact.sum_exactly, exact.join_three, *stages]
    yield from _until(problem, inner, stages, effort.FEWER_VARIABLES.reduction_share)


def translate(problem: SearchProblem) -> Iterator[Step]:
    """Formulas F(x1 - x2, x3 + x4, others), F by the stages for exact formulas, curves, sums and products of powers.

    Method: directions in which the gradients of a Gaussian process vanish (``rules/translations``).
    Costs: half a second for the pairs, of 12 variables at most; 0.25 of the time at most.
    Pays: data/results/recovery.csv, as ``sums.match`` says; not measured alone.
    """
    if not problem.largest_pool or problem.settings.maxsize < effort.FEWER_VARIABLES.min_tokens:
        return
    spend(effort.WORK.reduction)
    pairs = translations(problem.rows)
    if pairs is None or (inner := _in_units(problem, pairs, None, problem.is_noisy)) is None:
        return
    stages: list[Stage] = [sums.single, sums.match, reduce, growth.grow_first, nested.curve]
    if not problem.is_noisy:
        stages = [exact.join, exact.sum_exactly, *stages]
    yield from _until(problem, inner, stages, effort.FEWER_VARIABLES.translations_share)


def _until(problem: SearchProblem, inner: _SearchInUnits, stages: list[Stage], share: float) -> Iterator[Step]:
    """Formulas of stages, until a share of the time is over."""
    is_over = problem.budget.part(share)
    for stage in stages:
        if is_over():
            yield Signal.CUT
            return
        yield inner.formulas(stage)
        yield Signal.PART_DONE


def factor(problem: SearchProblem) -> Iterator[Step]:
    """Formulas F(others) times powers of some variables, F by the stages for exact formulas, curves and factors.

    Method: separation of variables by a test of independence, of log |y| on the logarithms (``rules/factors``).
    Costs: 0.35 of the time at most.
    Pays: data/results/laws.md, point 4: B13, W4; point 7: what contradicts a factor.
    """
    if not problem.largest_pool or problem.settings.maxsize < effort.FEWER_VARIABLES.min_tokens:
        return
    is_over = problem.budget.part(effort.FEWER_VARIABLES.factors_share)
    stages = [] if problem.is_noisy else [exact.join, exact.sum_exactly, exact.join_three]
    factors = [system for system in power_factors(problem.rows) if not is_contradicted(problem, system)]
    in_first = [*stages, nested.curve, nested.nest_in_factors]
    parts = ((system, stage, None) for system in factors for stage in (in_first if system is factors[0] else stages))
    yield from _each(problem, is_over, parts)


def _each(
    problem: SearchProblem, is_over: Callable[[], bool], parts: Iterable[tuple[UnitSystem, Stage, int | None]]
) -> Iterator[Step]:
    """Formulas of stages in unit systems, with a largest pool each, until the share of the time is over."""
    for system, stage, pool_size in parts:
        if is_over():
            yield Signal.CUT
            return
        if (inner := _in_units(problem, system, pool_size)) is not None:
            yield inner.formulas(stage)
        yield Signal.PART_DONE


def is_contradicted(problem: SearchProblem, system: UnitSystem) -> bool:
    """Whether the best formula is no such power factor, by more than its own error.

    The formula is evaluated at rows that have the chosen columns of other rows.
    """
    if not problem.front.entries():
        return False
    rows = problem.drawn(effort.FEWER_VARIABLES.check_rows)
    exchanged, chosen = rows.X.copy(), list(system.repeating)
    exchanged[:, chosen] = np.roll(rows.X[:, chosen], len(rows) // 2, axis=0)
    values, changed = (values_of([problem.front.best.expression], X)[0] for X in (rows.X, exchanged))
    with np.errstate(all="ignore"):
        difference = changed * system.columns(rows.X)[1] / system.columns(exchanged)[1] - values
    finite = np.isfinite(difference) & np.isfinite(values)
    if not finite.any():
        return False
    off, error = np.median(difference[finite] ** 2), np.median((rows.y - values)[finite] ** 2)
    limits = effort.FEWER_VARIABLES
    return bool(off > limits.max_error_ratio * max(error, limits.min_error * np.var(rows.y)))


def mirrored(problem: SearchProblem, stage: Stage) -> Iterator[Step]:
    """Formulas of a stage for -y, negated: roots, logarithms and powers have no inverse at a negative y."""
    settings = replace(problem.settings, guesses=(), shape=None)
    inner = FormulaSearch(problem.rows.with_y(-problem.rows.y), settings, problem.budget)
    inner.state.is_noisy = problem.is_noisy
    with contextlib.suppress(Ended):
        inner.run_stage(stage)
    if inner.cut:
        yield Signal.CUT
    yield [negated(entry.expression) for entry in inner.front.entries()]


class _SearchInUnits(NamedTuple):
    """The search for formulas of the columns of a unit system, of y or -y in its unit."""

    search: FormulaSearch
    system: UnitSystem | Translations
    is_negative: bool

    def formulas(self, stage: Stage) -> list[Expression]:
        """The front after a stage, as formulas of the variables."""
        with contextlib.suppress(Ended):
            self.search.run_stage(stage)
        formulas = [self.system.restored(entry.expression) for entry in self.search.front.entries()]
        return [negated(formula) for formula in formulas] if self.is_negative else formulas


def _in_units(
    problem: SearchProblem, system: UnitSystem | Translations, pool_size: int | None, is_noisy: bool = False
) -> _SearchInUnits | None:
    """A search on data in units of variables and constants of nature; None where these are not finite.

    ``pool_size``: the largest pool; None: that of the search.  Where y is noisy, its errors count as they are; else
    as shares of a unit: a law holds where y is small as well.
    """
    X, unit = system.columns(problem.rows.X)
    y = problem.rows.y / unit
    is_negative = bool((y < 0).all())
    y = -y if is_negative else y
    if not X.shape[1] or not np.isfinite(np.column_stack([X, y])).all():
        return None
    size = problem.settings.pool_size if pool_size is None else min(pool_size, problem.largest_pool)
    plain = replace(problem.settings, rules=None, shape=None, guesses=())
    settings = replace(plain, loss="squares", backend="cpu", pool_size=size)
    weights = problem.rows.w * (unit**2 / np.mean(unit**2) if is_noisy else 1.0)
    inner = FormulaSearch(Rows(X, y, weights), settings, problem.budget)
    inner.state.is_noisy = is_noisy
    inner.offer(parse([repr(float(np.average(y, weights=weights)))]))
    return _SearchInUnits(inner, system, is_negative)
