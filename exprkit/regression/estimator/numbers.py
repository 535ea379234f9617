"""Numbers of a front: those of least loss at all rows, with their covariance; one that says nothing is taken out.

In: the front of a search, whose numbers may be rounded to simple ones.  Out: its formulas with the numbers of least
loss, and the errors of these as ``ek.fit`` has them.

A search prefers simple numbers within the noise.  They are what it tells forms apart by, and a description may be
written with them, but what is shown and predicts has the least loss of its form.  Simple numbers stay where they are
as good: in exact formulas, and where the loss falls by no more than a share ``AS_GOOD``.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.fitting.likelihood import FREE_OF
from exprkit.regression.formulas import parameters as constants
from exprkit.regression.formulas.front import Entry
from exprkit.regression.formulas.simplify import simplified, with_signs_inside
from exprkit.regression.formulas.values import values_of
from exprkit.regression.problem.goal import Goal
from exprkit.regression.stages.search_problem import SearchProblem
from exprkit.text.tokens import CONSTANT, PARAMETER

AS_GOOD = 1e-8  # share of a loss that simple numbers may cost
ALIKE = 1e-6  # share of a loss by which a longer formula has to be better, or both are one
NO_WORSE = 1e-9  # share of a loss that taking a number out may cost
SINGULAR = 3e-7  # singular value of scaled derivatives over the largest below which numbers are not told apart
FEWER_ROWS = 2_000  # that tell which numbers are
ROUNDS = 3  # of taking numbers out
INSTEAD = (0.0, 1.0, -1.0)  # of a number that says nothing


@np.errstate(all="ignore")
def finished(problem: SearchProblem) -> tuple[list[Entry], list[Entry]]:
    """The front, every formula with the numbers of least loss; and with the simple ones that the search gave it."""
    entries, goal = problem.front.entries(), problem.goal
    fitted = iter(_least(problem, [entry.expression for entry in entries if not entry.is_exact]))
    formulas = [entry.expression if entry.is_exact else _needed(problem, next(fitted)) for entry in entries]
    formulas = [(problem.allowed([with_signs_inside(formula)]) or [formula])[0] for formula in formulas]
    have_shape = zip(formulas, entries, problem.have_shape(formulas), strict=True)
    formulas = [formula if fits else entry.expression for formula, entry, fits in have_shape]
    losses = goal.losses(values_of(formulas, problem.rows.X)).tolist()
    pairs = [
        (before._replace(expression=formula, loss=loss, size=formula.n_tokens, is_polished=True), before)
        for formula, loss, before in zip(formulas, losses, entries, strict=True)
    ]
    front: list[tuple[Entry, Entry]] = []
    for _, same_size in itertools.groupby(sorted(pairs, key=lambda pair: pair[0].size), lambda pair: pair[0].size):
        smaller = [other for other, _ in front]
        good = [pair for pair in same_size if problem.front.is_needed(pair[0], smaller, ALIKE)]
        front += sorted(good, key=lambda pair: (problem.front.nats(pair[0]), pair[0].loss))[:1]
    return [entry for entry, _ in front], [before for _, before in front]


def _least(problem: SearchProblem, formulas: list[Expression]) -> list[Expression]:
    """Formulas with the numbers of least loss; with simple ones where these are as good."""
    if not formulas:
        return []
    free, held = _fitted(problem, formulas, None), _fitted(problem, formulas, constants.is_fraction)
    every = [*formulas, *held, *free]
    losses = problem.goal.losses(values_of(every, problem.rows.X))
    allowed = set(problem.allowed(every))
    losses = np.where([formula in allowed for formula in every], losses, np.inf).reshape(3, -1)
    best = []
    for k, formula in enumerate(formulas):
        three = formula, held[k], free[k]
        most = losses[:, k].min() * (1 + AS_GOOD)
        good = [i for i in range(3) if losses[i, k] <= most]
        fewest = min(good, key=lambda i: (constants.n_inexact(three[i]), losses[i, k]), default=0)
        best.append(three[fewest])
    return best


def _fitted(problem: SearchProblem, formulas: list[Expression], held: Any) -> list[Expression]:
    """Formulas fitted at all rows, begun at their numbers, but for those that are held; by the chosen operators."""
    fitted, spelling = problem.refitted(formulas, held, directly=True), problem.spelling
    return fitted if spelling is None else [spelling.spell(formula) or formula for formula in fitted]


# ── numbers that say nothing ──


def _needed(problem: SearchProblem, formula: Expression) -> Expression:
    """The formula without numbers that others can stand for, as a in a * (b * f + c); or with 1 for such a one."""
    rows = problem.rows
    for _ in range(ROUNDS):
        pop, params = constants.as_parameters(Population.of([formula]))
        if not 0 < params.size < len(rows):
            return formula
        places = np.flatnonzero(undetermined(pop, params, rows.at_most(FEWER_ROWS, 0).X))
        variants = [
            constants.as_constants(pop, np.where(np.arange(params.size) == j, value, params))[0]
            for j in places
            for value in INSTEAD
        ]
        variants = [other for variant in variants if (other := simplified(variant)).n_tokens <= formula.n_tokens]
        shorter = [variant for variant in variants if variant.n_tokens < formula.n_tokens]
        as_long = [variant for variant in variants if variant.n_tokens == formula.n_tokens]
        fitted = problem.allowed([*_fitted(problem, shorter, None), *_fitted(problem, as_long, _is_unit)])
        both = values_of([formula, *fitted], rows.X)
        losses = problem.goal.losses(both)
        most = max(losses[0] * (1 + NO_WORSE), problem.front.floor)
        good = [k for k in range(len(fitted)) if losses[k + 1] <= most]
        if not good:
            return formula
        before = formula.n_tokens
        formula = fitted[min(good, key=lambda k: (fitted[k].n_tokens, losses[k + 1]))]
        if formula.n_tokens == before:  # one of its numbers is 1 now, which the others are in units of
            return formula
    return formula


def _is_unit(number: float) -> bool:
    return abs(number) == 1


def undetermined(pop: Population, params: np.ndarray, X: np.ndarray) -> np.ndarray:
    """A mask of the numbers of a formula, (n,), fewer than rows, that could change without a change of values."""
    slopes = Evaluator(pop, X, "cpu", dtype="float64").jacobian(params)[0]
    size = np.abs(slopes).max(axis=0, initial=0.0)
    if not np.isfinite(slopes).all():
        return np.zeros(len(size), bool)
    scaled = slopes / np.where(size > 0, size, 1.0)
    scaled /= np.where(size > 0, np.linalg.norm(scaled, axis=0), 1.0)
    _, singular, directions = np.linalg.svd(scaled, full_matrices=False)
    open_ones = directions[singular <= SINGULAR * singular.max(initial=0.0)]
    return np.asarray(np.linalg.norm(open_ones, axis=0) > FREE_OF)


# ── covariances ──


def _held(formula: Expression, params: np.ndarray, units: np.ndarray) -> Population:
    """A formula with constants in the place of those of its parameters that are units."""
    is_free = formula.kinds == PARAMETER
    number = np.where(is_free, formula.values, 0).astype(np.int64)
    is_unit, place = is_free & units[number], (np.cumsum(~units) - 1)[number].astype(np.uint64)
    values = np.where(is_unit, params[number].view(np.uint64), np.where(is_free, place, formula.values))
    return Population.of([Expression(np.where(is_unit, CONSTANT, formula.kinds), values)])


def covariances(goal: Goal, pop: Population, params: np.ndarray) -> np.ndarray:
    """Covariances of every formula's numbers, (n, most, most), as ``ek.fit`` has them for the same rows and loss.

    nan where there are as many numbers as rows, where a loss has none, and beyond the last number; 0 for a 1 that the
    others are in units of.
    """
    if not pop.max_params:
        return np.empty((len(pop), 0, 0))
    every = Goal(goal.loss, goal.rows.unmerged())
    problem = every.problem(backend="cpu", dtype="float64", max_iter=1)
    matrices = problem.fit(pop, init=params).covariance.copy()
    for i, n in enumerate(pop.n_params.tolist()):
        units = np.abs(params[i, :n]) == 1
        if units.any() and np.isnan(np.diagonal(matrices[i])[:n]).any():
            matrices[i, :n, :n] = 0.0
            free = np.flatnonzero(~units)
            others = _held(pop[i], params[i, :n], units)
            matrices[i][np.ix_(free, free)] = problem.fit(others, init=params[i : i + 1, free]).covariance[0]
    return np.where((pop.n_params < len(every.rows))[:, None, None], matrices, np.nan)
