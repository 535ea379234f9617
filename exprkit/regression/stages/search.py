"""``FormulaSearch``: the loop of a search, which runs stages and alone writes to the front.

In: ``Rows``, ``SearchSettings``, a ``Budget``; stages.  Out: a ``Front`` of what the stages have yielded.

    >>> import numpy as np
    >>> import exprkit as ek
    >>> from exprkit.regression.problem.rows import Rows
    >>> from exprkit.regression.stages.search_problem import SearchSettings
    >>> from exprkit.regression.stages.search import FormulaSearch
    >>> from exprkit.runtime.budget import Budget
    >>> X = np.random.default_rng(0).uniform(1, 2, (50, 1))
    >>> search = FormulaSearch(Rows(X, 3 * np.exp(X[:, 0])), SearchSettings(), Budget())
    >>> def stage(problem):
    ...     yield problem.refitted(ek.parse(["2.9 * exp(x1)"]))
    >>> search.run_stage(stage)
    >>> print(search.front.entries()[-1].expression, search.problem.is_exact)
    3 * exp(x1) True
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.regression.formulas.front import NATS_PER_NUMBER, NATS_PER_TOKEN, Front
from exprkit.regression.formulas.parameters import n_inexact
from exprkit.regression.formulas.values import values_of
from exprkit.regression.problem import effort
from exprkit.regression.problem.goal import Goal
from exprkit.regression.problem.rows import Rows
from exprkit.regression.rules.accident import CoincidenceTest
from exprkit.regression.shapes.turns import turn_too_fast
from exprkit.regression.stages import simplification
from exprkit.regression.stages.search_problem import FrontState, SearchProblem, SearchSettings, Signal, Simplified, Step
from exprkit.runtime.budget import Budget, Ended
from exprkit.text.tokens import VARIABLE

# Share of the variance left by a formula that turns faster than the rows tell; chosen, not measured.
MAX_TURNING_LOSS = 1e-9
PROVED_AT_ONCE = 16  # formulas whose shape is proved together; chosen, not measured
# nats, of two numbers and five tokens, as in x1 ^ p1 + p2: the simplest that single functions leave to other stages
SIMPLEST = 2 * (1 + NATS_PER_NUMBER) + 5 * NATS_PER_TOKEN
LEAST = 1e-300  # of |y|: 0 has no significant digits
Stage: TypeAlias = Callable[[SearchProblem], Iterator[Step]]


class FormulaSearch:
    """A front, and the problem that stages are given; ``show`` is called after every part of a stage.

    ``stage`` is the name of what is running, ``cut`` names the stages whose share of the time was over before their
    work was done.  ``resolution`` is that of y: the last decimal places, None where y was not rounded.
    """

    def __init__(
        self, rows: Rows, settings: SearchSettings, budget: Budget, show: Callable[[], None] = lambda: None
    ) -> None:
        self.front = Front(settings.maxsize, Goal(settings.loss, rows).floor, rows.total)
        self.state = FrontState(self.front)
        self.problem = SearchProblem(rows, settings, budget, self.state)
        self.stage, self._show = "begin", show
        self.cut: list[str] = []
        self._coincidence_test, self.resolution = CoincidenceTest(rows), rows.resolution
        _ = self.problem.device  # a backend that is missing is an error from the start

    def run_stage(self, stage: Stage) -> None:
        """Act on every step that the stage yields, before it goes on."""
        for step in stage(self.problem):
            if step is Signal.PART_DONE:
                self.check_end()
            elif step is Signal.CUT:
                self.cut.append(self.stage)
            elif step is Signal.NOISE:
                self.state.is_noisy = True
            elif isinstance(step, Simplified):
                self.front.mark_polished(step.entry)
            else:
                self.offer(step)

    def check_end(self) -> None:
        """Show the front; raise ``Ended`` where a limit is reached, a formula is exact, or the loss small enough."""
        settings, budget = self.problem.settings, self.problem.budget
        with budget.of_user():
            self._show()
        budget.check()
        if self.state.is_exact:
            self.state.is_exact = False
            self.run_stage(simplification.shorten_exact)
            raise Ended("a formula is exact")
        with budget.of_user():
            is_enough = any(settings.early_stop(entry.loss, entry.size) for entry in self.front.entries())
        if is_enough:
            raise Ended("the loss is as small as was asked for")

    def check_resolution(self, is_simple_left: bool) -> None:
        """Raise ``Ended`` where the digits of y leave so little to be gained that chance would give as much.

        The search compares all pairs of a pool of N functions with y: what it has not yet seen is one of N^2, so that
        it has to gain log N^2 nats, or is an accident (H. Jeffreys, Theory of Probability, 1939, on simple laws first).
        A formula of the front has to gain its own price alone, as ``growth`` asks for; where ``is_simple_left`` says
        that simple ones are still to come, one not simpler than those ends nothing.  None leaves less than the variance
        of rounding, a twelfth of the square of the last place of y.  A number alone ends nothing: eight rows of two
        digits can't gain what pairs ask for, however plain a curve is.
        """
        problem, resolution, rows = self.problem, self.resolution, self.problem.rows
        formulas = [entry.expression for entry in self.front.entries() if VARIABLE in entry.expression.kinds]
        if resolution is None or problem.settings.loss != "squares" or not problem.largest_pool or not formulas:
            return
        if np.ptp(np.log10(np.maximum(np.abs(rows.y), LEAST) / resolution)) <= 1:  # significant digits: shares of y
            rows = rows.with_weights(rows.w / resolution**2)
            formulas = dataclasses.replace(problem, rows=rows).refitted(formulas)
        losses, n = Goal("squares", rows).losses(values_of(formulas, rows.X)), problem.rows.total
        rounding = float(rows.w @ resolution**2) / 12 / rows.total
        for formula, gain in zip(formulas, n / 2 * np.log(np.maximum(losses / rounding, 1.0)), strict=True):
            k = n_inexact(formula) + 1  # and the variance; few rows: Hurvich and Tsai, as in ``estimator/equations``
            price = NATS_PER_TOKEN * formula.n_tokens + (1 + NATS_PER_NUMBER) * (k - 1)
            is_early = is_simple_left and price > SIMPLEST
            price += k * (k + 1) / (n - k - 1) if n > k + 1 else np.inf
            if not is_early and gain + price < 2 * np.log(problem.largest_pool):
                self.run_stage(simplification.polish)
                raise Ended("no better formula could be told from chance by the digits of y")

    def offer(self, formulas: Iterable[Expression], front: Front | None = None) -> None:
        """Let the front (or another one) take the formulas that it can use, by their loss at all rows."""
        problem, front = self.problem, front or self.front
        short = [formula for formula in formulas if formula.n_tokens <= 2 * problem.settings.maxsize]
        if not (candidates := problem.allowed(short)):
            return
        values = values_of(candidates, problem.rows.X)
        losses, exact = problem.goal.losses(values), problem.rows.is_exact(values)
        problem.archive.add(Population.of(candidates), losses)
        every = list(zip(candidates, losses.tolist(), exact.tolist(), strict=True))
        has_shape = problem.settings.shape is not None
        if has_shape:  # what is good leaves less to be proved
            every.sort(key=lambda one: one[1])
        for begin in range(0, len(every), PROVED_AT_ONCE):
            some = every[begin : begin + PROVED_AT_ONCE]
            if has_shape:
                problem.have_shape([one[0] for one in some if front.accepts(one[0], one[1], is_exact=True)])
            for formula, loss, is_exact in some:
                is_law = is_exact and self._coincidence_test.exceeds(formula)
                fits = front.accepts(formula, loss, is_law) and self._is_resolved(formula, loss)
                if fits and problem.have_shape([formula])[0]:
                    self.state.is_exact |= front.offer(formula, loss, is_law) and is_law

    def _is_resolved(self, formula: Expression, loss: float) -> bool:
        """Whether the rows are dense enough for the formula's fastest oscillation, or nothing of y is left anyway."""
        X = self.problem.rows.X
        return loss <= MAX_TURNING_LOSS * self.problem.mean_loss or not turn_too_fast([formula], X)[0]

    def tidy(self) -> None:
        """Take numbers out of the front's formulas that change no value by more than rounding."""
        for _ in range(effort.SIMPLIFICATION.rounds):
            sizes, shorter = simplification.without_idle_numbers(self.problem)
            if not shorter:
                return
            front = Front(self.front.maxsize, self.front.floor, self.front.rows)
            front.restore(entry for entry in self.front.entries() if entry.size not in sizes)
            self.offer(shorter, front)
            self.front.restore(front.entries())  # all at once: another thread may read the front meanwhile
