"""Formulas of fewer variables: in units that some of them make, times powers that y has of them, or of one product.

In: a ``FormulaSearch``.  Out: its front, with what other stages find of the variables that are left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from exprkit.regression.formulas.simplify import negated
from exprkit.regression.formulas.values import values_of
from exprkit.regression.problem import effort
from exprkit.regression.problem.sample import Sample
from exprkit.regression.rules.factors import power_factors
from exprkit.regression.rules.groups import UnitSystem
from exprkit.regression.rules.products import inner_products
from exprkit.regression.stages import exact, nested, sums
from exprkit.regression.stages.search import FormulaSearch
from exprkit.runtime.budget import Ended


def group(search: FormulaSearch) -> None:
    """Formulas of fewer variables, the others being units, in a part of the time: one stage after the other."""
    settings, limits = search.settings, effort.FEWER_VARIABLES
    is_over = search.part(limits.units_share)
    every = [] if settings.rules is None else settings.rules.unit_systems[: limits.max_unit_systems]
    first, few = every[: limits.fitted_unit_systems], limits.fitted_functions
    for stage, some, most in (
        (exact.join, every, None), (exact.join_three, first, None), (nested.nest_shares, first, few),
        (sums.sum_within_powers, first, few), (exact.join_three, every[limits.fitted_unit_systems :], None),
    ):  # fmt: skip
        for system in some:
            if is_over():
                return
            _in_units(search, system, stage, most)
            search.look()


def factor(search: FormulaSearch) -> None:
    """Formulas of fewer variables, times powers of the others that y has whatever they are."""
    if not search.most or search.settings.maxsize < effort.FEWER_VARIABLES.min_tokens:
        return
    is_over = search.part(effort.FEWER_VARIABLES.factors_share)
    stages = [] if search.is_noisy else [exact.join, exact.sum_exactly, exact.join_three]
    known = [system for system in power_factors(search.sample) if not is_contradicted(search, system)]
    for k, system in enumerate(known):
        for stage in [*stages, nested.curve, nested.nest_in_factors] if k == 0 else stages:
            if is_over():
                return
            _in_units(search, system, stage, None)
            search.look()


def product(search: FormulaSearch) -> None:
    """Formulas of the one product of powers that y depends on, if it does."""
    if not search.most or search.settings.maxsize < effort.FEWER_VARIABLES.min_tokens or search.is_noisy:
        return
    is_over = search.part(effort.FEWER_VARIABLES.product_share)
    for system in inner_products(search.sample):
        for stage in (exact.join, exact.sum_exactly, exact.join_three, nested.curve):
            if is_over():
                return
            _in_units(search, system, stage, None)
            search.look()


def is_contradicted(search: FormulaSearch, system: UnitSystem) -> bool:
    """Whether the best formula so far is no such power, by more than its errors.

    It is asked at rows that have the chosen columns of other rows.
    """
    if not (best := search.front.entries()):
        return False
    few = search.sample.subsample(min(effort.FEWER_VARIABLES.check_rows, len(search.sample)), search.settings.seed)
    other, chosen = few.X.copy(), list(system.repeating)
    other[:, chosen] = np.roll(few.X[:, chosen], len(few) // 2, axis=0)
    values, changed = (values_of([best[-1].expression], X, search.settings.threads)[0] for X in (few.X, other))
    with np.errstate(all="ignore"):
        difference = changed * system.columns(few.X)[1] / system.columns(other)[1] - values
    known = np.isfinite(difference) & np.isfinite(values)
    if not known.any():
        return False
    off, error = np.median(difference[known] ** 2), np.median((few.y - values)[known] ** 2)
    limits = effort.FEWER_VARIABLES
    return bool(off > limits.max_error_ratio * max(error, limits.min_error * np.var(few.y)))


def _in_units(
    search: FormulaSearch, system: UnitSystem, stage: Callable[[FormulaSearch], None], most: int | None
) -> None:
    """A stage with data in units that variables and constants of nature make, and pools of some size."""
    X, unit = system.columns(search.sample.X)
    y = search.sample.y / unit
    is_negative = bool((y < 0).all())
    y = -y if is_negative else y
    if not X.shape[1] or not np.isfinite(np.column_stack([X, y])).all():
        return
    size = search.settings.pool_size if most is None else min(most, search.most)
    here = replace(search.settings, rules=None, guesses=(), loss="squares", backend="cpu", pool_size=size)
    # errors count as shares of a unit: a law holds where y is small as well
    inner = FormulaSearch(Sample(X, y, search.sample.w), here, search.budget)
    with contextlib.suppress(Ended):
        stage(inner)
    found = (system.restored(entry.expression) for entry in inner.front.entries())
    search.offer(map(negated, found) if is_negative else found)


def mirrored(search: FormulaSearch, stage: Callable[[FormulaSearch], None]) -> None:
    """A stage with -y in the place of a y that is negative everywhere: roots, logarithms and powers undo only that."""
    inner = FormulaSearch(search.sample.with_y(-search.sample.y), replace(search.settings, guesses=()), search.budget)
    inner.is_noisy = search.is_noisy
    with contextlib.suppress(Ended):
        stage(inner)
    search.cut += [search.stage] * bool(inner.cut)
    search.offer(negated(entry.expression) for entry in inner.front.entries())
