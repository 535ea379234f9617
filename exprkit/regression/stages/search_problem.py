"""``SearchProblem``, of which a stage is a function: rows, loss, operators, rules, a budget, and the front to be read.

In: ``Rows``, ``SearchSettings``, a ``Budget``, the ``FrontState``.  Out: pools, fits and questions to the front.

A stage is a function of a ``SearchProblem`` that yields ``Step``s; only ``FormulaSearch.run_stage`` acts on them.

==========================  =======================================================================================
a stage yields              and the search
==========================  =======================================================================================
a list of formulas          offers them to the front
``Signal.PART_DONE``        shows the front, and ends where a formula is exact or good enough
``Signal.CUT``              notes that the stage's share of the time was over before its work was done
``Signal.NOISE``            runs the stages for exact formulas last
``Simplified(entry)``       marks a formula of the front whose simpler forms have all been offered
==========================  =======================================================================================
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from exprkit.backends.device_programs.operator_kernels import OperatorKernels, device_of
from exprkit.evaluate.ranges import PROVED
from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.fitting.fit_problem import FitProblem
from exprkit.operators import defined, ops
from exprkit.regression.formulas import parameters as constants
from exprkit.regression.formulas.archive import FormulaArchive
from exprkit.regression.formulas.front import Entry, FrontView
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.values import values_of
from exprkit.regression.on_device.pool import DevicePool
from exprkit.regression.pairs.pool import Pool
from exprkit.regression.pairs.ruled_pool import RuledPool
from exprkit.regression.problem import effort
from exprkit.regression.problem.goal import Goal
from exprkit.regression.problem.rows import Rows
from exprkit.regression.rules.admission import FormulaRules
from exprkit.regression.rules.shape import ShapeConstraint
from exprkit.regression.rules.spelling import ChosenOperators
from exprkit.runtime.budget import Budget, spend

# Fits of formulas; chosen, not measured.
FITS: dict[str, Any] = {"max_iter": 100, "tol": 1e-15, "backend": "cpu", "dtype": "float64"}


def default_operators() -> tuple[defined.Written, ...]:
    """The operators of a search by default."""
    return tuple(ops.BY_NAME[name] for name in ops.SETS["search"])


@dataclass(frozen=True)
class SearchSettings:
    """The settings of a search, as ``SymbolicRegressor`` explains them, checked."""

    operators: tuple[defined.Written, ...] = field(default_factory=default_operators)
    niterations: int = 100
    population_size: int = 1000
    maxsize: int = 30
    loss: str = "squares"
    pool_size: int | None = None  # of functions of the largest pool; by default those of problem/effort.py
    early_stop: Callable[[float, int], bool] = lambda loss, size: False
    guesses: Sequence[Expression] = ()
    seed: int = 0
    backend: str = "cpu"
    threads: int | None = None
    rules: FormulaRules | None = None
    shape: ShapeConstraint | None = None
    outermost: tuple[defined.Written, ...] = ()  # operators that may stand around a whole formula only
    beside: tuple[int, ...] | None = None  # codes of others that formulas may be written with; None: of any


class Signal(enum.Enum):
    """A request of a stage to the search; the table above says what comes of it."""

    PART_DONE = enum.auto()
    CUT = enum.auto()
    NOISE = enum.auto()


class Simplified(NamedTuple):
    """A formula of the front whose simpler forms have all been offered."""

    entry: Entry


Step: TypeAlias = list[Expression] | Signal | Simplified


@dataclass
class FrontState:
    """The state of a search that changes while stages run; ``FormulaSearch`` alone writes it."""

    front: FrontView
    is_exact: bool = False  # a formula is y but for rounding, and no accident
    is_noisy: bool = False  # residuals of neighbouring rows are independent: no formula is exact
    archive: FormulaArchive = field(default_factory=lambda: FormulaArchive(0))  # what has been evaluated; 0: nothing


@dataclass(frozen=True)
class SearchProblem:
    """The data, loss, operators, rules and budget of a search, and its front to be read.

    ``generation_rows`` and ``shape_rows`` are subsamples for the fits of generations, and for numbers inside operators;
    ``zero_loss`` and ``mean_loss`` are losses of the formula 0, and of the mean of y.  ``spelling`` writes formulas
    with the chosen operators alone (None: any may be used), ``device`` is the GPU of large pools (None: the host).
    """

    rows: Rows
    settings: SearchSettings
    budget: Budget
    _state: FrontState

    # ── the search so far ──

    @property
    def front(self) -> FrontView:
        return self._state.front

    @property
    def archive(self) -> FormulaArchive:
        return self._state.archive

    @property
    def is_exact(self) -> bool:
        return self._state.is_exact

    @property
    def is_noisy(self) -> bool:
        return self._state.is_noisy

    @property
    def is_without_law(self) -> bool:
        """Whether the loss of every formula is far above rounding, so that approximations are worth growing."""
        return bool(self.largest_pool) and self.front.min_loss > effort.NOISE.min_loss * self.zero_loss

    @property
    def is_noise_left(self) -> bool:
        """Whether the longest formulas are hardly better than shorter ones, whose loss is small already."""
        front, good = self.front, effort.NOISE.max_loss * self.mean_loss
        shorter = [entry.loss for entry in front.entries() if entry.size <= front.maxsize - effort.NOISE.max_lead]
        least = front.min_loss
        return bool(shorter) and front.floor < least < good and min(shorter) < effort.NOISE.max_gain * least

    @property
    def is_promising(self) -> bool:
        """Whether a short formula explains most of y, so that a law of a similar shape is likely."""
        short = [entry.loss for entry in self.front.entries() if entry.size <= effort.CURVES.max_tokens]
        return min(short, default=np.inf) <= effort.CURVES.max_unexplained * self.mean_loss

    def is_explained(self, but_for: float) -> bool:
        """Whether the best formula leaves at most this share of the variance of y."""
        return self.front.min_loss <= but_for * self.mean_loss

    # ── the data ──

    @functools.cached_property
    def goal(self) -> Goal:
        return Goal(self.settings.loss, self.rows)

    @functools.cached_property
    def generation_rows(self) -> Rows:
        return self.rows.at_most(effort.ROWS.generations, self.settings.seed)

    @functools.cached_property
    def shape_rows(self) -> Rows:
        return self.rows.at_most(effort.ROWS.templates, self.settings.seed)

    def drawn(self, n: int) -> Rows:
        """At most n of the rows in random order, the same ones every time."""
        return self.rows.subsample(min(n, len(self.rows)), self.settings.seed)

    @functools.cached_property
    def zero_loss(self) -> float:
        return float(self.goal.losses(np.zeros((1, len(self.rows))))[0])

    @functools.cached_property
    def mean_loss(self) -> float:
        mean = float(self.rows.w @ self.rows.y / self.rows.total)
        return float(self.goal.losses(np.full((1, len(self.rows)), mean))[0])

    @property
    def is_on_host(self) -> bool:
        """Whether the search has to run on the host: rules, and losses without a name, are evaluated there."""
        return self.settings.rules is not None or not self.goal.plain

    @property
    def is_negative(self) -> bool:
        """Whether y is negative at every row, by a loss that is the same for y and -y."""
        return self.goal.plain and bool((self.rows.y < 0).all())

    # ── operators ──

    @functools.cached_property
    def unary(self) -> list[defined.Written]:
        return [row for row in self.settings.operators if row.arity == 1]

    @functools.cached_property
    def binary(self) -> list[defined.Written]:
        return [row for row in self.settings.operators if row.arity == 2]

    @functools.cached_property
    def spelling(self) -> ChosenOperators | None:
        settings = self.settings
        if settings.beside is None:
            return None
        codes = {row.code for row in (*settings.operators, *settings.outermost)}.union(settings.beside)
        return ChosenOperators(codes | {ops.NEG} if ops.SUB in codes else codes)  # a - b allows -a

    @property
    def divides(self) -> bool:
        """Whether any expression may be a denominator."""
        return self.spelling is None or self.spelling.divides

    def allowed(self, formulas: list[Expression]) -> list[Expression]:
        """The formulas that keep to the rules, written with the chosen operators; the others are dropped."""
        if self.spelling is not None:
            formulas = [spelled for formula in formulas if (spelled := self.spelling.spell(formula)) is not None]
        if not formulas or self.settings.rules is None:
            return formulas
        fits = self.settings.rules.allow(Population.of(formulas)).tolist()
        return [formula for formula, fit in zip(formulas, fits, strict=True) if fit]

    def have_shape(self, formulas: Sequence[Expression]) -> list[bool]:
        """Whether each formula is proved to have the shape that was asked for; each is proved once."""
        if self.settings.shape is None:
            return [True] * len(formulas)
        if new := [formula for formula in dict.fromkeys(formulas) if formula not in self.verdicts]:
            self.verdicts.update(zip(new, self.settings.shape.verdicts(new), strict=True))
        return [self.verdicts[formula] == PROVED for formula in formulas]

    @functools.cached_property
    def verdicts(self) -> dict[Expression, int]:
        """The verdicts on formulas so far, of ``evaluate.ranges``."""
        return {}

    # ── pools ──

    @functools.cached_property
    def device(self) -> Any:
        return None if self.is_on_host else device_of(self.settings.backend)

    @property
    def smaller_pools(self) -> tuple[int, ...]:
        return effort.POOLS.host_sizes + effort.POOLS.device_sizes * (self.device is not None)

    @property
    def largest_pool(self) -> int:
        if self.settings.pool_size is not None:
            return self.settings.pool_size
        return effort.POOLS.host_max if self.device is None else effort.POOLS.device_max

    def pool_limit(self, n: int, rows: Rows) -> int:
        """At most n functions: of more than the square of the rows one fits them by accident."""
        return min(n, self.largest_pool, len(rows) ** 2)

    def pool(
        self,
        rows: Rows,
        n: int,
        device: Any = None,
        operators: Sequence[defined.Written] = (),
        constants: Sequence[float] = (1.0, 2.0),
    ) -> Pool:
        """The n simplest functions that differ at rows of data."""
        chosen, rules = tuple(operators) or self.settings.operators, self.settings.rules
        pool: Pool
        if device is not None:
            pool = DevicePool(rows.X, chosen, OperatorKernels(device, chosen, len(rows)))
        else:
            make = Pool if rules is None else functools.partial(RuledPool, rules)
            pool = make(rows.X, chosen, constants)
        pool.grow(self.settings.maxsize, n)
        self.budget.count(pool.tried)
        spend(pool.tried * len(rows) * effort.WORK.combination)
        return pool

    # ── the budget ──

    def for_share(self, share: float, candidates: Iterable[list[Expression]]) -> Iterator[Step]:
        """Candidates until a formula is exact, or for a share of the time."""
        is_over = self.budget.part(share)
        for formulas in candidates:
            yield formulas
            if self.is_exact:
                return
            if is_over():
                yield Signal.CUT
                return

    # ── fits ──

    def refitted(
        self, formulas: Sequence[Expression], held: Callable[[float], bool] | None = None, directly: bool = False
    ) -> list[Expression]:
        """Formulas after constant optimisation that starts at their numbers; numbers for which ``held`` is true stay.

        ``directly``: any loss is minimised as it stands, without least squares first.
        """
        if not formulas:
            return []
        pop, params = constants.as_parameters(Population.of(list(formulas)), held)
        if not pop.max_params:
            return list(formulas)
        self.budget.count(len(pop))
        starts = np.where(np.isnan(params), 0.0, params)
        params = self._fit_problem.fit(pop, init=starts).params if directly else self.fitted(pop, starts)
        params = np.where(np.isfinite(params), params, starts)
        return [simplified(formula) for formula in constants.as_constants(pop, params)]

    def fitted(self, pop: Population, starts: np.ndarray) -> np.ndarray:
        """Parameters of a local minimum of the loss, (n_exprs, n_params), by Levenberg-Marquardt from the starts."""
        work = effort.WORK
        spend(work.fits + len(pop) * work.fit + len(pop.kinds) * len(self.rows) * work.fit_value)
        if not self.goal.plain:
            return self.goal.fitted(pop, starts, self._best_values(self.rows), **FITS)[0]
        return self._fit_problem.fit(pop, init=starts).params

    @functools.cached_property
    def _fit_problem(self) -> FitProblem:
        return self.goal.problem(**FITS)

    def for_squares(self, rows: Rows) -> Rows:
        """The rows with weights that make least squares approximate the loss near the best formula."""
        if self.settings.loss == "squares":
            return rows
        return Goal(self.settings.loss, rows).as_squares(self._best_values(rows))

    def _best_values(self, rows: Rows) -> np.ndarray:
        """Values of the formula of least loss so far; the mean of y before there is one."""
        if not self.front.entries():
            return np.full(len(rows), float(rows.w @ rows.y / rows.total))
        values: np.ndarray = values_of([self.front.best.expression], rows.X)[0]
        return values

    def best_candidates(self, pop: Population, loss: np.ndarray, shorter: int = 0) -> list[Expression]:
        """The expressions of least loss that the front may take, simplified.

        ``shorter``: by how many tokens the simplification may shorten them.
        """
        entries = self.front.entries()
        sizes, limits = np.array([e.size for e in entries]), np.minimum.accumulate([e.loss for e in entries])
        place = np.searchsorted(sizes, pop.n_tokens - shorter, side="right") - 1
        promising = np.flatnonzero(loss < np.where(place >= 0, limits[place], np.inf))
        best = promising[np.argsort(loss[promising], kind="stable")[: effort.GENERATIONS.max_offered]]
        return [simplified(pop[int(i)]) for i in best]
