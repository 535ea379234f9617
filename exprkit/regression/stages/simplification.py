"""Simplification: formulas of the front with fewer or simpler numbers, fitted again, as long as the loss allows.

In: a ``SearchProblem``.  Out: simpler formulas, for the front to choose among.

A formula is simplified once: another time the result would be the same.  One with more numbers than half the rows is
left as it is: it is an interpolation, and there are very many of those.  The method is backward elimination: a number
goes, or becomes a simple one, if the front takes what the others make of it after constant optimisation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.regression.formulas import parameters as constants
from exprkit.regression.formulas.front import Entry
from exprkit.regression.formulas.simplify import as_quotient, completed, expanded, hoisted, rescaled
from exprkit.regression.formulas.values import values_of
from exprkit.regression.problem import effort
from exprkit.regression.stages.search_problem import SearchProblem, Simplified, Step
from exprkit.runtime.budget import Ended


def polish(problem: SearchProblem) -> Iterator[Step]:
    """Every formula of the front without one of its numbers, or with a simple one, fitted; then what comes of those.

    Costs: two fits for every number of every formula, up to twelve rounds.
    Pays: data/results/laws_noise.csv: the law is the simplest of formulas that noise makes equally good.
    """
    front = problem.front
    yield problem.refitted([entry.expression for entry in front.entries() if _is_open(problem, entry)])
    visited: set[Expression] = set()
    for _ in range(effort.SIMPLIFICATION.rounds):
        entries = front.entries()
        losses = np.array([entry.loss for entry in entries])
        limits = effort.SIMPLIFICATION.min_improvement * np.minimum.accumulate(losses)[:-1]
        better = losses < np.append(np.inf, limits)
        entries = [
            entry for entry, is_better in zip(entries, better, strict=True) if is_better and _is_open(problem, entry)
        ]
        if not entries:
            return
        for entry in entries:
            for formula in (entry.expression, *rescaled(entry.expression)):
                if formula not in visited:
                    visited.add(formula)
                    yield from _with_simpler_numbers(problem, formula, 64)
            yield Simplified(entry)  # not reached where the search ends meanwhile: ``finish`` begins with it then


def polish_best(problem: SearchProblem, n: int, max_size: int) -> Iterator[Step]:
    """``polish`` for the best formula by nats, then for the next best by then; up to n, all of different sizes.

    It ends where the best one has more than ``max_size`` tokens.
    """
    sizes: set[int] = set()  # one formula a size: the next is often the same with its numbers at other places
    for _ in range(n):
        entries = [entry for entry in problem.front.by_nats() if _is_open(problem, entry) and entry.size not in sizes]
        if problem.is_exact or not entries or entries[0].size > max_size:
            return
        best = entries[0]
        for formula in (best.expression, *rescaled(best.expression)):
            yield from _with_simpler_numbers(problem, formula, 8)
        yield Simplified(best)
        sizes.add(best.size)


def finish(problem: SearchProblem) -> Iterator[Step]:
    """``polish_best`` in the time that is kept back for the end of a search."""
    with contextlib.suppress(Ended):
        for _ in range(effort.SIMPLIFICATION.rounds):
            yield from polish_best(problem, effort.SIMPLIFICATION.best_formulas, problem.front.maxsize)


def settle(problem: SearchProblem) -> Iterator[Step]:
    """The best formula, if it is nearly exact, with simple numbers: the remainder may be rounding of its numbers."""
    front = problem.front
    for _ in range(effort.SIMPLIFICATION.rounds if front.entries() else 0):
        best = front.best
        limit = effort.SIMPLIFICATION.max_exact_loss * problem.zero_loss
        is_near = best.loss <= limit and not _is_interpolation(problem, best)
        if problem.is_exact or not is_near:
            return
        problem.budget.check()
        formulas = best.expression, *rescaled(best.expression)
        simpler = [variant for formula in formulas for variant in constants.simpler_numbers(formula)]
        yield [*simpler, *problem.refitted(simpler), *problem.refitted(simpler, held=constants.is_simple)]
        if front.best == best:
            return


def shorten_exact(problem: SearchProblem) -> Iterator[Step]:
    """Equivalent forms of the three longest formulas, of which one is exact, as long as the front takes any."""
    for _ in range(effort.SIMPLIFICATION.rounds):
        before = problem.front.entries()
        formulas = [entry.expression for entry in before[-3:]]
        for change in (constants.simpler_numbers, hoisted, rescaled, as_quotient, expanded, completed):
            yield [variant for formula in formulas for variant in change(formula)]
        if problem.front.entries() == before:
            break


def without_idle_numbers(problem: SearchProblem) -> tuple[set[int], list[Expression]]:
    """Formulas of the front without a number that changes no value by more than rounding.

    Returns
    -------
    set of int, list of Expression
        The sizes of the entries that have such a number, and these without it.
    """
    pairs = [
        (entry, shorter)
        for entry in problem.front.entries()
        for shorter in problem.allowed(constants.with_number_removed(entry.expression))
    ]
    if not pairs:
        return set(), []
    X = problem.shape_rows.X
    before = values_of([entry.expression for entry, _ in pairs], X)
    after = values_of([shorter for _, shorter in pairs], X)
    with np.errstate(all="ignore"):
        equal = (np.abs(after - before) <= effort.SIMPLIFICATION.rounding * np.abs(before)).all(axis=1)
    idle = [pairs[k] for k in np.flatnonzero(equal)]
    return {entry.size for entry, _ in idle}, [shorter for _, shorter in idle]


def _is_open(problem: SearchProblem, entry: Entry) -> bool:
    return not entry.is_polished and not _is_interpolation(problem, entry)


def _is_interpolation(problem: SearchProblem, entry: Entry) -> bool:
    return 2 * constants.n_inexact(entry.expression) > len(problem.rows)


def _with_simpler_numbers(problem: SearchProblem, formula: Expression, batch: int) -> Iterator[Step]:
    """The formula with one of its numbers simpler, the others fitted; a batch between two checks of the limits."""
    simpler = constants.simpler_numbers(formula)
    for k in range(0, len(simpler), batch):
        problem.budget.check()
        variants = simpler[k : k + batch]
        shorter = [variant for variant in variants if variant.n_tokens < formula.n_tokens]
        yield [*variants, *problem.refitted(shorter)]
        fits = {(variant, constants.fixed_numbers(variant)) for variant in shorter}
        for held in (constants.is_simple, constants.is_fraction):
            new = [
                fit
                for variant in variants
                if (fit := (variant, constants.fixed_numbers(variant, held))) not in fits and not all(fit[1])
            ]
            fits.update(new)
            yield problem.refitted([variant for variant, _ in new], held)
