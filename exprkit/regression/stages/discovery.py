"""Discovery: runs the stages of a search in order until a law is found or a limit is reached.

In: a ``Sample``, operators, ``SearchSettings``.  Out: a ``Front``.

    >>> import numpy as np
    >>> from exprkit.regression.stages.discovery import Discovery
    >>> from exprkit.regression.problem.sample import Sample
    >>> from exprkit.regression.stages.settings import SearchSettings
    >>> from exprkit.runtime.budget import Budget
    >>> X = np.random.default_rng(0).uniform(1, 2, (50, 2))
    >>> found = Discovery(Sample(X, X[:, 0] / (3 + 5 * X[:, 1])), SearchSettings(), Budget())
    >>> found.run()
    'a formula is exact'
    >>> print(found.front.entries()[-1].expression)
    x1 / (5 * x2 + 3)

======================  ===============================================================================
stage                   what it does (``stages/``)
======================  ===============================================================================
``begin``               the mean, and what the user guesses
``join``                small pools: pairs of functions that make y exactly
``group``               with units: the same and the next stage in units that some of the variables make
``single``              functions of a large pool, by least squares: noise hides even the simplest law from exact stages
``grow_first``          a little of ``grow``; where rows nearby tell nothing of what is left of y, there is noise: the
                        stages for exact formulas come last then, and after every stage the best are polished
``product``             ``join``, ``sum_exactly``, ``join_three`` and ``curve`` of the one product of powers that y
                        depends on
``factor``              ``join``, ``join_three``, ``sum_exactly``, ``curve`` and a part of ``nest`` without variables of
                        which y is a power, whatever the others are
``join_three``          three functions that make y exactly; of very many, on a GPU
``sum_exactly``         sums of a few simple functions that make y exactly, their quotients, and roots of quadratic
                        equations; also within an operator
``curve``               shapes with several numbers inside, fitted from several starts
``grow``                what has been found with one function more, again and again, for data without a law; after
                        ``join_more`` on a GPU
``sum``                 sums of several functions of a large pool, by least squares
``nest``                numbers inside of operators, by very many fits at once
``join_more``           exact pairs of a large pool
``sum_within``          sums within an operator
``nest_more``           numbers inside of operators within a logarithm or an exponential
``regress``             all pairs of a small pool by least squares, for data with noise
``evolve``              generations from all of that
``polish``              every formula of the front without one of its numbers, or with a simpler one
======================  ===============================================================================

Where y is negative everywhere, stages that undo operators of it are those of -y (``MIRRORED``).

The search ends where a formula is y but for rounding, and no accident (``rules/accident``): there is nothing to be
gained by what is longer.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from exprkit.errors import ArgumentError, FileError, brought_by
from exprkit.fitting.fit import backend_of_fits
from exprkit.regression.formulas.front import Entry, Front
from exprkit.regression.generations.evolution import Evolution
from exprkit.regression.problem import effort
from exprkit.regression.problem.sample import Sample
from exprkit.regression.stages import exact, fewer_variables, generations, growth, nested, pairs, sums
from exprkit.regression.stages.begin import begin
from exprkit.regression.stages.search import FormulaSearch
from exprkit.regression.stages.settings import SearchSettings
from exprkit.runtime.budget import Budget, Ended

with brought_by("search"):
    from threadpoolctl import threadpool_limits

LOG = logging.getLogger(__name__)
Stage = Callable[[FormulaSearch], None]
MIRRORED = (  # stages that undo operators of y, which has to be positive for most of them
    exact.join, exact.join_three, exact.sum_exactly, exact.join_more, sums.single, sums.sum_within, nested.curve,
    nested.nest_more, pairs.regress,
)  # fmt: skip


class Halfway(NamedTuple):
    """A search between two steps: beside data and settings all that the rest of it depends on."""

    stages: int  # that are done
    generation: int  # so many are
    n_evals: int
    work: int
    is_noisy: bool
    front: list[Entry]
    evolution: dict[str, np.ndarray]  # its ``state``; empty before it has begun


class Discovery(FormulaSearch):
    """A search from its beginning to its end.

    Parameters
    ----------
    shown, kept
        Called with the search at every step; ``kept`` only where ``halfway`` says all of it.
    """

    def __init__(
        self, sample: Sample, settings: SearchSettings, budget: Budget, front: Front | None = None,
        shown: Callable[[Any], None] = lambda search: None,
        kept: Callable[[Discovery], None] = lambda search: None,
    ) -> None:  # fmt: skip
        super().__init__(sample, settings, budget, front, shown)
        self._kept = kept
        self._evolution: Evolution | None = None
        self._begun: Halfway | None = None
        self._done = 0  # stages
        self.failures: list[str] = []  # what was left out, as errors ended it

    @property
    def resolved(self) -> dict[str, Any]:
        """The settings, those that were left open as they are here; those of a GPU with its name."""
        given = {one.name: getattr(self.settings, one.name) for one in dataclasses.fields(self.settings)}
        backend = backend_of_fits("cpu" if self.is_on_host else self.settings.backend)
        device = "none" if self.device is None else self.device.name
        return given | {"backend": backend, "pool_size": self.most, "device": device}

    @property
    def spent(self) -> tuple[float, float, str]:
        """What has been used of what ends the search: time, functions, or its stages and generations."""
        stages = len(self._stages())
        steps = self._done + self.generation, stages + self.settings.niterations, "generations and stages"
        return self.budget.spent or steps

    def run(self) -> str:
        """Search; says why it ended.  An interrupt ends it as well, after which the front is there."""
        # products are small, and their bits are those of one thread; formulas may divide by 0 and overflow
        with threadpool_limits(1, "blas"), np.errstate(all="ignore"):
            return self._run()

    def _run(self) -> str:
        if self.device is not None:
            self.device.use()  # a thread of its own begins with the first one
        self.budget.keep_back(effort.SIMPLIFICATION.final_share)
        try:
            while self._done < len(stages := self._stages()):
                self._try(functools.partial(self._go_through, stages[self._done]))
                self._done += 1
                self._kept(self)
            self._try(self.evolve)
            self.look()
            why = f"{self.settings.niterations:,} iterations are done"
        except Ended as ended:
            why, is_over = str(ended), self.budget.is_over
            self.budget.keep_back(0.0)
            if is_over:
                self._try(self.simpler.finish)
        self._try(self.simpler.tidy)
        return why

    def _log(self) -> None:
        entries, n_evals = self.front.entries(), self.budget.n_evals
        best = (entries[-1].loss, entries[-1].expression) if entries else (np.inf, "no formula yet")
        LOG.info("step %s: %s formulas tried so far, least loss %.4g of %s", self.stage, f"{n_evals:,}", *best)

    @property
    def left_out(self) -> list[str]:
        """The steps that a limit has ended early, or left out."""
        after = [stage.__name__ for stage in (*self._stages(), Discovery.evolve)][self._done :]
        return list(dict.fromkeys([*self.cut, *(after if self.budget.is_spent else [])]))

    def _go_through(self, stage: Stage) -> None:
        self.stage = stage.__name__
        if stage in MIRRORED and self.is_negative:
            fewer_variables.mirrored(self, stage)
        else:
            stage(self)
        if self.is_noisy:
            limits = effort.SIMPLIFICATION
            self.simpler.polish_best(limits.best_formulas, limits.max_noisy_tokens)
        self._log()
        self.look()

    def _try(self, work: Callable[[], None]) -> None:
        """Work whose errors end it alone, once there are formulas; not those of files and of the user's functions."""
        try:
            work()
        except (Ended, FileError, ArgumentError):
            raise
        except Exception as error:
            if error is self.budget.raised or not self.front.entries():
                raise
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.failures.append(
                f"step {self.stage!r} of the search failed and was left out ({type(error).__name__}: {error}; "
                f"{Path(where.filename).name}, line {where.lineno}); the formulas of all other steps are kept"
            )

    def _stages(self) -> list[Stage]:
        """Those before ``evolve``, in order: what is exact comes last where there is noise."""
        stages: list[Stage] = [
            begin, exact.join, fewer_variables.group, sums.single, growth.grow_first, fewer_variables.product,
            fewer_variables.factor, exact.join_three, exact.sum_exactly, nested.curve, sums.sum, nested.nest,
            exact.join_more, sums.sum_within, nested.nest_more, pairs.regress,
        ]  # fmt: skip
        # a GPU has seconds' worth of pools that the host has not
        stages.insert(stages.index(sums.sum if self.device is None else sums.sum_within), growth.grow)
        put_off = (exact.join_three, exact.sum_exactly, exact.join_more) if self.is_noisy else ()
        return sorted(stages, key=lambda stage: stage in put_off)

    def evolve(self) -> None:
        """Generations, from what has been found; every one is kept, for more of them may follow another time."""
        self.stage = "evolve"
        evolution = generations.begun(self)
        if self._begun is not None and self._begun.evolution:
            evolution.resume(self._begun.evolution)
            self.budget.n_evals, self.budget.work = self._begun.n_evals, self._begun.work  # the pool has been counted
        self._evolution = evolution
        while self.generation < self.settings.niterations:
            generations.breed(self, evolution)
            self._log()
            self._kept(self)
        self.simpler.polish()

    def halfway(self) -> Halfway:
        """The search as it is, when ``kept`` is called."""
        evolution = {} if self._evolution is None else self._evolution.state()
        n_evals, work = self.budget.n_evals, self.budget.work
        return Halfway(self._done, self.generation, n_evals, work, self.is_noisy, self.front.entries(), evolution)

    def resume(self, halfway: Halfway) -> None:
        """Before ``run``: go on from there, to the same bits as if there had been no end."""
        self._begun, self._done, self.generation = halfway, halfway.stages, halfway.generation
        self.budget.n_evals, self.budget.work, self.is_noisy = halfway.n_evals, halfway.work, halfway.is_noisy
        self.front.restore(halfway.front)
