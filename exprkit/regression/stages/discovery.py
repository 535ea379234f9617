"""``Discovery``: runs the stages of a search in order until a law is found or a limit is reached.

In: ``Rows``, operators, ``SearchSettings``.  Out: a ``Front``.

The table ``ORDER`` has the stages; each one's docstring says what it finds, how, what it costs, and which results show
that it pays.  Generations (``evolve``) follow until the limit.  The front is simplified at last.

The search ends where a formula is y but for rounding, and no accident (``rules/accident``): what is longer can gain
nothing.  It ends as well where the digits of y leave so little that chance would give as much (``check_resolution``).
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from exprkit.errors import ArgumentError, FileError, brought_by
from exprkit.expressions.expression import Expression
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population
from exprkit.fitting.fit_problem import backend_of_fits
from exprkit.operators import ops
from exprkit.regression.formulas.front import Entry
from exprkit.regression.generations.evolution import Evolution
from exprkit.regression.problem import effort
from exprkit.regression.problem.rows import Rows
from exprkit.regression.rules.groups import monomials_in_unit_of_y
from exprkit.regression.stages import exact, fewer_variables, growth, nested, simplification, sums
from exprkit.regression.stages.search import FormulaSearch, Stage
from exprkit.regression.stages.search_problem import SearchProblem, SearchSettings, Step
from exprkit.runtime import machine
from exprkit.runtime.budget import Budget, Ended, spend

with brought_by("search"):
    from threadpoolctl import threadpool_limits

FEW_ROWS = 40  # below which other stages that approximate do nothing: ``sums/nearest``, ``rules/scalings``
LOG = logging.getLogger(__name__)


def begin(problem: SearchProblem) -> Iterator[Step]:
    """The mean of y, and the user's guesses as they are and after constant optimisation.

    Where no number has the unit of y: 0, and the products of variables and constants of nature that have it.

    Raises
    ------
    ArgumentError
        For a guess that the chosen operators cannot write.
    """
    rows, settings = problem.rows, problem.settings
    for guess in settings.guesses:
        if problem.spelling is not None and problem.spelling.spell(guess) is None:
            raise ArgumentError(
                f"guesses: {str(guess)!r} has an operator that was not chosen; add it to binary_operators or "
                "unary_operators, or leave these out"
            )
    mean = float(rows.w @ rows.y / rows.total)
    yield [*problem.refitted([*parse([repr(mean)]), *settings.guesses]), *settings.guesses]
    if not problem.front.entries():
        system = settings.rules.unit_systems if settings.rules else []
        yield [*parse(["0"]), *monomials_in_unit_of_y(rows, system, effort.FEWER_VARIABLES.max_unit_systems)]


def first_generation(problem: SearchProblem) -> Evolution:
    """An ``Evolution`` whose first generation, of small functions, has been fitted."""
    settings, pool = problem.settings, problem.pool(problem.generation_rows, effort.GROWTH.functions)
    evolution = Evolution(
        problem.generation_rows,
        list(settings.operators),
        Population.of([pool.expression(i) for i in range(len(pool))]),
        population_size=settings.population_size,
        width=settings.maxsize,
        seed=settings.seed,
        loss=settings.loss,
        backend=settings.backend,
        rules=settings.rules,
        archive=problem.archive,
    )
    evolution.generation()
    return evolution


def breed(problem: SearchProblem, evolution: Evolution, number: int) -> Iterator[Step]:
    """The best formulas of the next generation; every tenth one the front joins the population first.

    Method: genetic programming (J. R. Koza, Genetic Programming, 1992) with tournaments, islands and migration, linear
    scaling of every tree (M. Keijzer, EuroGP 2003), and constant optimisation by Levenberg-Marquardt
    (``generations/evolution``).
    Costs: a thousand trees with eight steps each; all of the time that the other stages leave.
    Pays: data/results/h200_evolution.csv and h100_evolution.csv.
    """
    if number % effort.GENERATIONS.polish_period == 0:
        evolution.immigrate(Population.of([entry.expression for entry in problem.front.entries()]))
    generation = evolution.generation()
    problem.budget.count(generation.tried)
    work, tokens = effort.WORK, problem.settings.maxsize / 2 * len(problem.generation_rows)
    spend(work.fits + generation.tried * (work.fit + tokens * work.fit_value))
    yield problem.best_candidates(generation.formulas, generation.loss)
    if problem.spelling is not None and not {ops.ADD, ops.MUL} <= problem.spelling.codes:
        trees = (Expression(f.kinds[2:-2], f.values[2:-2], f.variables) for f in generation.formulas)  # of a + b * tree
        yield problem.refitted(list(trees))


class Turn(NamedTuple):
    """A stage's place in the order."""

    stage: Stage
    pools: str = ""  # "host" or "device": only where large pools lie there
    inverts: bool = False  # it inverts operators at y, so that -y is searched for where y is negative everywhere
    is_exact: bool = False  # noise leaves it little to find: it comes last then
    is_simple: bool = False  # it has the simplest approximations: it comes first for few y that were rounded


ORDER = (
    Turn(begin),
    Turn(exact.join, inverts=True),
    Turn(fewer_variables.group),
    Turn(sums.single, inverts=True, is_simple=True),
    Turn(sums.regress_first, inverts=True),
    Turn(growth.grow_first),
    Turn(sums.divide, is_exact=True),
    Turn(fewer_variables.translate),
    Turn(fewer_variables.reduce),
    Turn(sums.match),
    Turn(fewer_variables.factor),
    Turn(exact.join_three, inverts=True, is_exact=True),
    Turn(exact.sum_exactly, inverts=True, is_exact=True),
    Turn(nested.curve, inverts=True, is_simple=True),
    Turn(growth.grow, pools="host"),
    Turn(sums.sum, is_simple=True),
    Turn(nested.nest),
    Turn(exact.join_more, inverts=True, is_exact=True),
    Turn(growth.grow, pools="device"),  # after the pools that a GPU searches in seconds
    Turn(sums.divide_within, inverts=True, is_exact=True),
    Turn(sums.sum_within, inverts=True),
    Turn(nested.nest_more, inverts=True),
    Turn(sums.regress, inverts=True),
)


class CheckpointState(NamedTuple):
    """All that the rest of a search depends on, beside its data and settings, between two steps."""

    seed: int
    stages: int  # done
    generation: int  # number of generations that are done
    n_evals: int
    work: int
    is_noisy: bool
    front: Population
    loss: Annotated[np.ndarray, "float[n]"]  # of the front's formulas
    is_polished: Annotated[np.ndarray, "bool[n]"]
    is_exact: Annotated[np.ndarray, "bool[n]"]
    evolution: dict[str, np.ndarray]  # ``Evolution.state``; empty before the first generation


class Discovery:
    """A search from its beginning to its end.

    ``show`` is called after every part of a stage, ``save`` with the discovery after every stage and generation, when
    ``checkpoint`` holds all of its state.  ``generation`` counts those that are done; ``failures`` are messages on
    stages that an error ended.
    """

    def __init__(
        self,
        rows: Rows,
        settings: SearchSettings,
        budget: Budget,
        show: Callable[[], None] = lambda: None,
        save: Callable[[Discovery], None] = lambda discovery: None,
    ) -> None:
        self.search = FormulaSearch(rows, settings, budget, show)
        self.problem = self.search.problem
        self.generation, self._save = 0, save
        self._evolution: Evolution | None = None
        self._resumed: CheckpointState | None = None
        self._n_done = 0  # stages
        self._is_cut = False  # by a limit, of which something may be left that was kept back
        self.failures: list[str] = []

    @property
    def resolved(self) -> dict[str, Any]:
        """The settings by name, with the values that defaults have on this machine; of a GPU its name."""
        problem = self.problem
        settings = {field.name: getattr(problem.settings, field.name) for field in dataclasses.fields(problem.settings)}
        backend = backend_of_fits("cpu" if problem.is_on_host else problem.settings.backend)
        device = "none" if problem.device is None else problem.device.name
        return settings | {"backend": backend, "pool_size": problem.largest_pool, "device": device}

    @property
    def spent(self) -> tuple[float, float, str]:
        """Use, limit and unit of what ends the search: time, functions or steps."""
        done, total = self._n_done + self.generation, len(self.turns) + self.problem.settings.niterations
        return self.problem.budget.spent or (done, total, "generations and stages")

    @property
    def turns(self) -> list[Turn]:
        """The stages before ``evolve`` in order; those for exact formulas last where there is noise."""
        pools = "host" if self.problem.device is None else "device"
        turns = [turn for turn in ORDER if turn.pools in ("", pools)]
        if self.search.resolution is not None and len(self.problem.rows) < FEW_ROWS:
            turns[1:] = sorted(turns[1:], key=lambda turn: not turn.is_simple)
        late = [turn for turn in turns if self.problem.is_noisy and turn.is_exact]
        return [turn for turn in turns if turn not in late] + late

    @property
    def left_out(self) -> list[str]:
        """The names of stages that a limit has ended early, or left out."""
        after = [*(turn.stage.__name__ for turn in self.turns), "evolve"][self._n_done :]
        is_cut = self._is_cut or self.problem.budget.is_spent
        return list(dict.fromkeys([*self.search.cut, *(after if is_cut else [])]))

    def run(self) -> str:
        """Search; returns why the search ended.  After an interrupt the front has what was found by then."""
        # products are small, and their bits are those of one thread; formulas may divide by 0 and overflow
        budget, threads = self.problem.budget, self.problem.settings.threads
        with threadpool_limits(1, "blas"), np.errstate(all="ignore"), machine.limited(threads), budget.counting():
            return self._run()

    def _run(self) -> str:
        budget, settings = self.problem.budget, self.problem.settings
        if self.problem.device is not None:
            self.problem.device.use()  # a thread of its own begins with the first one
        budget.keep_back(effort.SIMPLIFICATION.final_share)
        try:
            while self._n_done < len(turns := self.turns):
                self._attempt(functools.partial(self.take, turns[self._n_done]))
                self._n_done += 1
                self._save(self)
            self._attempt(self.evolve)
            self.search.check_end()
            reason = f"{settings.niterations:,} iterations are done"
        except Ended as ended:
            reason, is_over, self._is_cut = str(ended), budget.is_over, budget.is_spent
            budget.keep_back(0.0)
            if is_over:
                self._attempt(lambda: self.search.run_stage(simplification.finish))
        self._attempt(self.search.tidy)
        return reason

    def take(self, turn: Turn) -> None:
        """Run a stage, then simplify the best formulas where there is noise, and end the search if it is time."""
        self.search.stage = turn.stage.__name__
        if turn.inverts and self.problem.is_negative:
            self.search.run_stage(functools.partial(fewer_variables.mirrored, stage=turn.stage))
        else:
            self.search.run_stage(turn.stage)
        if self.problem.is_noisy:
            limits = effort.SIMPLIFICATION
            self.search.run_stage(
                functools.partial(simplification.polish_best, n=limits.best_formulas, max_size=limits.max_noisy_tokens)
            )
        self._log()
        self.search.check_end()
        self.search.check_resolution(any(turn.is_simple for turn in self.turns[self._n_done + 1 :]))

    def evolve(self) -> None:
        """Generations until the limit; ``checkpoint`` holds each, for a later search may add more of them."""
        self.search.stage = "evolve"
        problem, evolution = self.problem, first_generation(self.problem)
        if self._resumed is not None and self._resumed.evolution:
            evolution.resume(self._resumed.evolution)
            problem.budget.n_evals, problem.budget.work = self._resumed.n_evals, self._resumed.work
        self._evolution = evolution
        while self.generation < problem.settings.niterations:
            number = self.generation
            self.search.run_stage(functools.partial(breed, evolution=evolution, number=number))
            self.search.stage, self.generation = f"generation {number + 1}", number + 1
            self.search.check_end()
            if number % effort.GENERATIONS.polish_period == effort.GENERATIONS.polish_period - 1:
                self.search.run_stage(simplification.polish)
            self._log()
            self._save(self)
        self.search.run_stage(simplification.polish)

    def checkpoint(self) -> CheckpointState:
        """The state of the search, when ``save`` is called."""
        problem, entries = self.problem, self.search.front.entries()
        return CheckpointState(
            problem.settings.seed,
            self._n_done,
            self.generation,
            problem.budget.n_evals,
            problem.budget.work,
            problem.is_noisy,
            Population.of([entry.expression for entry in entries]),
            np.array([entry.loss for entry in entries], np.float64),
            np.array([entry.is_polished for entry in entries], bool),
            np.array([entry.is_exact for entry in entries], bool),
            {} if self._evolution is None else self._evolution.state(),
        )

    def resume(self, checkpoint: CheckpointState) -> None:
        """Before ``run``: continue from a checkpoint, to the same bits as without the interruption."""
        budget = self.problem.budget
        self._resumed, self._n_done, self.generation = checkpoint, checkpoint.stages, checkpoint.generation
        budget.n_evals, budget.work = checkpoint.n_evals, checkpoint.work
        self.search.state.is_noisy = checkpoint.is_noisy
        columns = (array.tolist() for array in (checkpoint.loss, checkpoint.is_polished, checkpoint.is_exact))
        front = zip(checkpoint.front, *columns, strict=True)
        self.search.front.restore(Entry(formula, loss, formula.n_tokens, *marks) for formula, loss, *marks in front)

    def _attempt(self, work: Callable[[], None]) -> None:
        """Do work; its errors end it alone once there are formulas, not those of files and of a user's functions."""
        try:
            work()
        except (Ended, FileError, ArgumentError):
            raise
        except Exception as error:
            if error is self.problem.budget.raised or not self.search.front.entries():
                raise
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.failures.append(
                f"step {self.search.stage!r} of the search failed and was left out ({type(error).__name__}: {error}; "
                f"{Path(where.filename).name}, line {where.lineno}); the formulas of all other steps are kept"
            )

    def _log(self) -> None:
        entries, n_evals = self.search.front.entries(), self.problem.budget.n_evals
        best = self.search.front.best[1::-1] if entries else (np.inf, "no formula yet")
        LOG.info("step %s: %s formulas tried so far, least loss %.4g of %s", self.search.stage, f"{n_evals:,}", *best)
