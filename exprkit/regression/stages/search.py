"""``FormulaSearch``: data, settings and front of a search, and what its stages have in common.

In: a ``Sample``, ``SearchSettings``, a ``Budget``.  Out: a ``Front`` that takes what stages offer.

    >>> import numpy as np
    >>> import exprkit as ek
    >>> from exprkit.regression.problem.sample import Sample
    >>> from exprkit.regression.stages.settings import SearchSettings
    >>> from exprkit.regression.stages.search import FormulaSearch
    >>> from exprkit.runtime.budget import Budget
    >>> X = np.random.default_rng(0).uniform(1, 2, (50, 1))
    >>> search = FormulaSearch(Sample(X, 3 * np.exp(X[:, 0])), SearchSettings(), Budget())
    >>> search.offer(search.refitted(ek.parse(["2.9 * exp(x1)"])))
    >>> print(search.front.entries()[-1].expression, search.is_exact)
    3 * exp(x1) True
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.fitting.fit import FitProblem
from exprkit.operators import defined, ops
from exprkit.regression.formulas import parameters as constants
from exprkit.regression.formulas.front import Front
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.values import values_of
from exprkit.regression.on_device.pool import DevicePool
from exprkit.regression.on_device.programs import Programs, device_of
from exprkit.regression.pairs.pool import Pool
from exprkit.regression.pairs.ruled_pool import RuledPool
from exprkit.regression.problem import effort
from exprkit.regression.problem.goal import Goal
from exprkit.regression.problem.sample import Sample
from exprkit.regression.rules.accident import CoincidenceTest
from exprkit.regression.rules.spelling import ChosenOperators
from exprkit.regression.shapes.growth import Functions
from exprkit.regression.shapes.turns import turn_too_fast
from exprkit.regression.stages.settings import SearchSettings
from exprkit.regression.stages.simplification import Simpler
from exprkit.runtime.budget import Budget, Ended


class FormulaSearch:
    """What a stage works with.

    Attributes
    ----------
    sample, rows, some, many : Sample
        All rows; those of the fits of generations; those for numbers inside of operators; and those at which formulas
        of the front are fitted.
    goal, goal_of_many : Goal
        At all rows, and at ``many``.
    front : Front
    simpler : Simpler
        What makes its formulas simpler.
    is_exact : whether one of them is y but for rounding, and no accident
    is_noisy : whether rows nearby say nothing of what is left of y: then no formula is exact
    functions_to_add : that formulas grow by, once they have been made
    stage : what is being done, in words
    cut : stages that ended before all was done, as their share of the time was over
    generation : how many are done
    unary, binary : the operators of one and of two operands
    spelling : how formulas are written with chosen operators alone; None: with any
    device : where large pools lie; None: on the host
    most, pool_sizes : functions of the largest pool, and of those before it

    Parameters
    ----------
    shown : called with the search at every look
    """

    def __init__(
        self, sample: Sample, settings: SearchSettings, budget: Budget, front: Front | None = None,
        shown: Callable[[Any], None] = lambda search: None,
    ) -> None:  # fmt: skip
        self.sample, self.settings, self.budget, self._shown = sample, settings, budget, shown
        self.goal, self.coincidence = Goal(settings.loss, sample), CoincidenceTest(sample)
        self.front = front or Front(settings.maxsize, self.goal.floor)
        self.front.rows = sample.total
        self.stage, self.generation, self.is_exact, self.is_noisy = "begin", 0, False, False
        self.device = None if self.is_on_host else device_of(settings.backend)
        self.pool_sizes = effort.POOLS.host_sizes + effort.POOLS.device_sizes * (self.device is not None)
        last = effort.POOLS.host_max if self.device is None else effort.POOLS.device_max
        self.most = last if settings.pool_size is None else settings.pool_size
        self.unary, self.binary = ([row for row in settings.operators if row.arity == n] for n in (1, 2))
        self.spelling = _spelling(settings)
        self.rows, self.some, self.many = (
            sample if len(sample) <= n else sample.subsample(n, settings.seed)
            for n in (effort.ROWS.generations, effort.ROWS.templates, effort.ROWS.front)
        )
        self.goal_of_many = Goal(settings.loss, self.many)
        self.usual_loss = float(self.goal.losses(np.zeros((1, len(sample))))[0])
        self._problem: FitProblem | None = None
        self.cut: list[str] = []  # stages
        self.functions_to_add: Functions | None = None
        self.simpler = Simpler(self)

    @property
    def is_on_host(self) -> bool:
        """Whether it has to be, as rules and losses other than the usual ones are looked at there."""
        return self.settings.rules is not None or not self.goal.plain

    @property
    def is_negative(self) -> bool:
        """Whether y is, at every row, by a loss that is the same for y and -y."""
        return self.goal.plain and bool((self.sample.y < 0).all())

    @property
    def divides(self) -> bool:
        """Whether anything may stand below a fraction line."""
        return self.spelling is None or self.spelling.divides

    # ── the work ──

    def part(self, share: float) -> Callable[[], bool]:
        """Whether work for such a share of the time has been done since now, which cuts the stage."""
        is_over = self.budget.part(share)

        def is_cut() -> bool:
            if over := is_over():
                self.cut.append(self.stage)
            return over

        return is_cut

    def looking(self, seconds: float) -> Callable[[], None]:
        """A look at the limits, before work that counts so much."""

        def look() -> None:
            self.budget.spend(seconds)
            self.budget.check()

        return look

    # ── pools ──

    def told_apart(self, most: int, sample: Sample) -> int:
        """So many functions to choose from at most by fits to some rows: few rows fit one of very many by accident."""
        return min(most, self.most, len(sample) ** 2)

    def pool(
        self, sample: Sample, most: int, device: Any = None, operators: Sequence[defined.Written] = (),
        constants: Sequence[float] = (1.0, 2.0),
    ) -> Pool:  # fmt: skip
        """So many distinct functions at some rows, the simplest ones."""
        rows, check, rules = tuple(operators) or self.settings.operators, self.budget.check, self.settings.rules
        pool: Pool
        if device is not None:
            pool = DevicePool(sample.X, rows, Programs(device, rows, len(sample)), go_on=check)
        else:
            make = Pool if rules is None else functools.partial(RuledPool, rules)
            pool = make(sample.X, rows, constants, threads=self.settings.threads, go_on=check)
        pool.grow(self.settings.maxsize, most)
        self.budget.count(pool.tried)
        self.budget.spend(pool.tried * len(sample) * effort.WORK.combination)
        return pool

    # ── the front ──

    def offer(self, formulas: Iterable[Expression], front: Front | None = None) -> None:
        """To the front, by their loss at all rows."""
        listed = self.allowed([formula for formula in formulas if formula.n_tokens <= 2 * self.settings.maxsize])
        listed = self._promising(listed)
        if not listed:
            return
        values = values_of(listed, self.sample.X, self.settings.threads)
        losses, exact = self.goal.losses(values), self.sample.is_exact(values)
        for formula, loss, is_exact in zip(listed, losses.tolist(), exact.tolist(), strict=True):
            is_law = is_exact and self.coincidence.exceeds(formula)
            into = front or self.front
            if into.accepts(formula, loss, is_law) and self._is_slow(formula, loss):
                self.is_exact |= into.offer(formula, loss, is_law) and is_law

    def _is_slow(self, formula: Expression, loss: float) -> bool:
        """Whether it turns no faster than the rows can tell, or leaves nothing of y."""
        limit = effort.OFFERS.max_turning_loss * self._loss_of_mean
        return loss <= limit or not turn_too_fast([formula], self.sample.X)[0]

    def offer_some(self, found: Iterable[list[Expression]], share: float = effort.EXACT.triples_share) -> None:
        """Until one is exact, or for a share of the time."""
        is_over = self.part(share)
        for formulas in found:
            self.offer(formulas)
            if self.is_exact or is_over():
                break

    def allowed(self, formulas: list[Expression]) -> list[Expression]:
        """Those that can be written with the chosen operators, as they are then, and keep to the rules."""
        if self.spelling is not None:
            formulas = [spelled for one in formulas if (spelled := self.spelling.spell(one)) is not None]
        if not formulas or self.settings.rules is None:
            return formulas
        fits = self.settings.rules.allow(Population.of(formulas)).tolist()
        return [formula for formula, fit in zip(formulas, fits, strict=True) if fit]

    def spelled(self, formula: Expression) -> Expression:
        """With the chosen operators, if there is a way."""
        return formula if self.spelling is None else self.spelling.spell(formula) or formula

    def _promising(self, formulas: list[Expression]) -> list[Expression]:
        """Those that are no worse than the front at some rows, where there are very many."""
        entries = self.front.entries()
        if self.many is self.sample or not formulas or not entries:
            return formulas
        values = values_of([*formulas, *(entry.expression for entry in entries)], self.many.X, self.settings.threads)
        losses = np.split(self.goal_of_many.losses(values), [len(formulas)])
        limits = effort.OFFERS.max_sample_ratio * np.minimum.accumulate(losses[1])
        least = np.append(np.inf, np.maximum(limits, self.front.floor))
        place = np.searchsorted([entry.size for entry in entries], [one.n_tokens for one in formulas], side="right")
        return [one for one, bad in zip(formulas, losses[0] > least[place], strict=True) if not bad]

    def best_of(self, pop: Population, loss: np.ndarray, shorter: int = 0) -> list[Expression]:
        """What may enter the front, in its shortest form, which may have so many tokens less."""
        entries = self.front.entries()
        sizes, limits = np.array([e.size for e in entries]), np.array([e.loss for e in entries])
        place = np.searchsorted(sizes, pop.n_tokens - shorter, side="right") - 1
        promising = np.flatnonzero(loss < np.where(place >= 0, limits[place], np.inf))
        best = promising[np.argsort(loss[promising], kind="stable")[:effort.GENERATIONS.max_offered]]
        return [simplified(pop[int(i)]) for i in best]

    def look(self) -> None:
        """Show what is there, and end if it is good enough."""
        with self.budget.of_user():
            self._shown(self)
        self.budget.check()
        if self.is_exact:
            self.simpler.exact()
            raise Ended("a formula is exact")
        with self.budget.of_user():
            is_enough = any(self.settings.early_stop(entry.loss, entry.size) for entry in self.front.entries())
        if is_enough:
            raise Ended("the loss is as small as was asked for")

    @property
    def is_without_law(self) -> bool:
        """Whether no formula is nearly y, so that one may grow to it."""
        return bool(self.most) and self.front.min_loss > effort.NOISE.min_loss * self.usual_loss

    @property
    def is_noise_left(self) -> bool:
        """Whether formulas nearly as long as may be are no better than shorter ones, which are good already."""
        front, good = self.front, effort.NOISE.max_loss * self._loss_of_mean
        before = [entry.loss for entry in front.entries() if entry.size <= front.maxsize - effort.NOISE.max_lead]
        least = front.min_loss
        return bool(before) and front.floor < least < good and min(before) < effort.NOISE.max_gain * least

    @property
    def is_promising(self) -> bool:
        """Whether a short formula explains most of y, so that one like it may be y: what has grown long is none."""
        short = [entry.loss for entry in self.front.entries() if entry.size <= effort.CURVES.max_tokens]
        return min(short, default=np.inf) <= effort.CURVES.max_unexplained * self._loss_of_mean

    def is_explained(self, but_for: float) -> bool:
        """Whether a formula explains all of y but for a share of its variance."""
        return self.front.min_loss <= but_for * self._loss_of_mean

    @functools.cached_property
    def _loss_of_mean(self) -> float:
        mean = float(self.sample.w @ self.sample.y / self.sample.total)
        return float(self.goal.losses(np.full((1, len(self.sample)), mean))[0])

    # ── fits ──

    def refitted(
        self, formulas: Sequence[Expression], held: Callable[[float], bool] | None = None
    ) -> list[Expression]:
        """With the numbers of least loss, begun at those that they have; those that are held stay."""
        if not formulas:
            return []
        pop, params = constants.as_parameters(Population.of(list(formulas)), held)
        if not pop.max_params:
            return list(formulas)
        self.budget.count(len(pop))
        found = self.fitted(pop, np.where(np.isnan(params), 0.0, params))
        found = np.where(np.isfinite(found), found, np.where(np.isnan(params), 0.0, params))
        return [simplified(formula) for formula in constants.as_constants(pop, found)]

    def fitted(self, pop: Population, starts: np.ndarray) -> np.ndarray:
        """The parameters of least loss that are found from there."""
        goal = self.goal_of_many
        self.budget.spend(len(pop) * (effort.WORK.fit + effort.WORK.fit_row * len(self.many)))
        settings: dict[str, Any] = {
            "max_iter": 100, "tol": 1e-15, "backend": "cpu", "dtype": "float64", "threads": self.settings.threads,
        }  # fmt: skip
        if not goal.plain:
            return goal.fitted(pop, starts, self._best_values(goal.sample), **settings)[0]
        if self._problem is None:
            self._problem = goal.problem(**settings)
        return self._problem.fit(pop, init=starts).params

    def for_squares(self, sample: Sample) -> Sample:
        """Rows whose least squares are as near to the loss as the best formula so far lets know."""
        if self.settings.loss == "squares":
            return sample
        return Goal(self.settings.loss, sample).as_squares(self._best_values(sample))

    def _best_values(self, sample: Sample) -> np.ndarray:
        """Of the formula of least loss so far."""
        entries = self.front.entries()
        if not entries:
            return np.full(len(sample), float(sample.w @ sample.y / sample.total))
        values: np.ndarray = values_of([entries[-1].expression], sample.X, self.settings.threads)[0]
        return values


def _spelling(settings: SearchSettings) -> ChosenOperators | None:
    """What formulas may be written with; a minus may stand before one where one may be between two."""
    if settings.beside is None:
        return None
    codes = {row.code for row in (*settings.operators, *settings.outermost)}.union(settings.beside)
    return ChosenOperators(codes | {ops.NEG} if ops.SUB in codes else codes)
