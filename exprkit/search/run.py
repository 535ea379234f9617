"""The run of an exhaustive search: the pipeline enumerate | fit | describe, and the ranking at its end.

In: a ``SearchPlan``.  Out: a ``SearchResult``.

=========  ==========================  =====================================================================
step       thread                      what it does
=========  ==========================  =====================================================================
enumerate  its own, a size ahead       lists the functions that no smaller tree is (``distinct``)
fit        the caller's; with          fits chunks of them, from start after start (``best_fits``)
           ``devices=`` their own
describe   its own, a chunk behind     ranks the best of a chunk by length (``description_length``)
=========  ==========================  =====================================================================

So devices, which share the cores of their host, wait only for the largest size's functions and for the last
description.  Another thread compiles at the beginning what a GPU needs for fits of all sizes.  At the end the best
functions are fitted to the last digit; where parameters are less than their precision, those are set to 0 and the
others fitted again.  The result depends neither on the chunks nor on the threads.

Of a loss that is no likelihood nothing is described: the loss ranks (``goal``).
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from exprkit.backends.objective import Fitted
from exprkit.distributed import ahead
from exprkit.distributed.shared import SharedObject
from exprkit.errors import shortened
from exprkit.evaluate.inputs import CheckedData
from exprkit.expressions.population import Population
from exprkit.fitting.description_length import DescriptionLength, front
from exprkit.fitting.fit_problem import FitProblem
from exprkit.fitting.fit_result import FitResult
from exprkit.runtime import codec, files
from exprkit.runtime.budget import Budget
from exprkit.search.best_fits import BestFits, best_fits, finished_fits, shared_best_fits, start_sizes
from exprkit.search.distinct import Enumeration
from exprkit.search.goal import SearchGoal
from exprkit.search.grammar import Grammar
from exprkit.search.search_result import SearchResult
from exprkit.search.state_file import WHAT, StateFile
from exprkit.text.tokens import VARIABLE

LOG = logging.getLogger(__name__)
SHARED = 1000  # functions from which on the fits at the end are shared with other devices; chosen, not measured
DEVICE_CHUNKS = 2  # chunks that devices of this process fit at a time: one is prepared while the other is fitted
SAMPLE = 256  # random expressions that kernels are compiled for, beside those of every kind; chosen, not measured
DESCRIBED = 1 << 10  # functions that are described together; chosen, not measured
CONFIRM = 2  # further sets of points at which functions are compared; data/results/distinct_functions.md
LONGEST = 40  # characters of the best expression beside the bar


@dataclass(frozen=True, eq=False)
class SearchPlan:
    """Data, grammar and goal of a search, and the settings of ``exhaustive_search``."""

    data: CheckedData
    grammar: Grammar
    goal: SearchGoal
    restarts: int
    keep: int
    seed: int
    chunk: int
    shared: SharedObject | None  # the devices or workers that fit, if not this process alone

    def settings(self) -> dict[str, Any]:
        """All that decides the result beside the data, by name."""
        goal, grammar = self.goal, self.grammar
        return {
            **{name: repr(value) for name, value in goal.settings.items() if name not in ("loss", "threads")},
            "loss": goal.name,
            "fitted_as": goal.settings["loss"],
            "link": goal.link,
            "rank": goal.rank,
            "variables": self.data.variables,
            "operators": grammar.operators,
            "max_nodes": grammar.max_nodes,
            "n_params": grammar.n_params,
            "restarts": self.restarts,
            "keep": self.keep,
            "seed": self.seed,
        }


@dataclass
class SearchState:
    """The functions that have been fitted, in the order of the search, and the ranking of the best.

    ``total`` is of the functions ``best``: rows of the other arrays, the shortest description first.
    """

    functions: Annotated[np.ndarray, "int[n]"]  # their numbers
    forms: Annotated[np.ndarray, "int[n]"]  # the form that was fitted
    loss: Annotated[np.ndarray, "float[n]"]
    times: Annotated[np.ndarray, "int[n]"]  # how many groups of starts ended at the best loss
    params: Annotated[np.ndarray, "float[n, n_params]"]
    best: Annotated[np.ndarray, "int[m]"]
    total: Annotated[np.ndarray, "float[m]"]
    evaluations: Annotated[np.ndarray, "int[1]"]

    @classmethod
    def empty(cls, width: int) -> SearchState:
        floats, integers = np.empty(0), np.empty(0, np.int64)
        return cls(integers, integers, floats, integers, np.empty((0, width)), integers, floats, np.zeros(1, np.int64))


class FunctionChunk(NamedTuple):
    """Functions of a size, by number, and the form of each that is fitted."""

    size: int
    functions: np.ndarray
    forms: np.ndarray


class FittedChunk(NamedTuple):
    """A chunk with its fits; ``linked`` are its expressions under the link."""

    chunk: FunctionChunk
    pop: Population
    linked: Population
    fits: BestFits


class SearchBar:
    """The progress bar of a search, its ``budget``, and why it ``stopped``; a context.

    >>> from exprkit.search.run import SearchBar
    >>> with SearchBar(False, Budget()) as bar:
    ...     bar.advance(10, "x1", "3.0")
    """

    def __init__(self, show: bool, budget: Budget) -> None:
        self.budget, self.stopped = budget, ""
        self._bar: Any = None
        if show:
            from tqdm.auto import tqdm

            self._bar = tqdm(unit=" trees", unit_scale=True, dynamic_ncols=True)

    def size(self, size: str, trees: int) -> None:
        """Show the size that is fitted, as ``3 of 9``, and set the number of trees of all sizes."""
        if self._bar is not None:
            self._bar.total = trees
            self._bar.set_description(f"{size} nodes")

    def advance(self, trees: float, best: str, total: str) -> None:
        """Show the number of trees that are done, the best expression, and its loss or length."""
        if self._bar is not None:
            self._bar.update(trees - self._bar.n)
            self._bar.set_postfix_str(f"{total}: {shortened(best, LONGEST)}")

    def __enter__(self) -> SearchBar:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._bar is not None:
            self._bar.close()


class SearchRun:
    """A search under way: its plan, its state, and the steps of the pipeline."""

    def __init__(self, plan: SearchPlan) -> None:
        data, goal, operators = plan.data, plan.goal, [row.name for row in plan.grammar.operators]
        self.plan = plan
        self.problem = self.new_problem()
        self.enumeration = Enumeration(plan.grammar, goal.settings["threads"], CONFIRM)
        self.state = SearchState.empty(max(plan.grammar.n_params, 1))
        self._start_sizes = start_sizes(data.X, data.y, operators)
        self._chunk = plan.chunk * (plan.shared.n_devices if plan.shared else 1)
        self._size = self._n_resumed = 0  # the size that is being fitted; functions that the file had

    def new_problem(self) -> FitProblem:
        goal = self.plan.goal
        return FitProblem(goal.X, goal.y, weights=goal.weights, accuracy="screen", **goal.settings)

    def population(self, forms: np.ndarray) -> Population:
        return self.enumeration.population_of_forms(forms, self.plan.data.variables)

    def arrays(self) -> dict[str, np.ndarray]:
        """The state, as its file holds it."""
        return codec.to_arrays("state", self.state)

    @property
    def n_bytes(self) -> int:
        """The memory of functions and fits; fits are there twice while more are added."""
        return self.enumeration.n_bytes + 2 * sum(array.nbytes for array in self.arrays().values())

    # ── the beginning ──

    def resume(self, file: StateFile) -> None:
        """Take the state that the file has, which must be of the same data and settings."""
        data, goal = self.plan.data, self.plan.goal
        arrays = data.X, data.y, goal.X, goal.y, data.weights, goal.weights
        file.begin([np.empty(0) if array is None else array for array in arrays], self.plan.settings())
        if file.arrays is not None:
            with files.damage_errors(file.path, WHAT):
                self.state = SearchState(**codec.from_arrays("state", SearchState, file.arrays))
            self._n_resumed = len(self.state.functions)

    def prepare(self) -> None:
        """Begin to compile, and fit the variables alone, which raises errors of the data and settings."""
        compiling = ThreadPoolExecutor(1, "exprkit compile")
        self._compiled, _ = (ahead.submit(compiling, self.compile, at_the_end) for at_the_end in (False, True))
        compiling.shutdown(wait=False)
        n, variables = self.plan.data.X.shape[1], self.plan.data.variables
        leaves = Population(np.full(n, VARIABLE), np.arange(n), np.arange(n + 1), variables=variables)
        self._fit_goal = self.problem.fit(self.plan.goal.over(leaves), init="ones").goal

    def compile(self, at_the_end: bool) -> None:
        """Compile what a GPU needs for the fits, or for those at the end: with bounds, and standard errors."""
        if not (self.problem.on_gpu and self.plan.grammar.n_params):
            return
        expressions = self.plan.goal.over(self.plan.grammar.of_all_kinds(SAMPLE, self.plan.data.variables))
        problem = self.new_problem()  # the other one is fitting meanwhile
        if at_the_end:
            problem.make_ready(expressions, (-np.inf, np.inf), errors=True)
        else:
            problem.make_ready(expressions)

    # ── the pipeline ──

    def run(self, bar: SearchBar, file: StateFile) -> None:
        """Enumerate, fit and describe functions of all sizes, until an error, an interrupt or the budget ends it."""
        sizes = range(1, self.plan.grammar.max_nodes + 1)
        enumerate_size = functools.partial(self._enumerate, bar.budget)
        describe = functools.partial(self._describe, bar, file)
        with (
            closing(ahead.each(enumerate_size, sizes, 2, "exprkit enumerate", threads=1)) as new,
            closing(self._fits(self._chunks(new, bar), bar.budget.check)) as fitted,
            closing(ahead.each(describe, fitted, 2, "exprkit describe", threads=1, completes=True)) as described,
        ):
            for _ in described:
                pass

    def _enumerate(self, budget: Budget, size: int) -> FunctionChunk:
        """The new functions of a size and their shortest forms so far."""
        functions = self.enumeration.grow(lambda _: budget.check(self.n_bytes))
        return FunctionChunk(size, functions, self.enumeration.forms(functions))

    def _chunks(self, new: Iterator[FunctionChunk], bar: SearchBar) -> Iterator[FunctionChunk]:
        """The functions of each size in chunks that are fitted together, without those that the file had."""
        most, n_before = self.plan.grammar.max_nodes, 0
        for size, functions, forms in new:
            self._compiled.result()
            self._size = size
            LOG.info("%s nodes: %s new functions to fit", size, f"{len(functions):,}")
            bar.size(f"{size} of {most}", sum(map(self.plan.grammar.count, range(1, most + 1))))
            begin, n_before = max(self._n_resumed - n_before, 0), n_before + len(functions)
            for first in range(begin, len(functions), self._chunk):
                part = slice(first, first + self._chunk)
                bar.budget.check(self.n_bytes)
                yield FunctionChunk(size, functions[part], forms[part])

    def _fits(self, chunks: Iterator[FunctionChunk], check: Callable[[], Any]) -> Generator[FittedChunk, None, None]:
        """All chunks with their fits; devices of this process have the next chunk before the last slice of one ends."""
        shared, fit_chunk = self.plan.shared, functools.partial(self.fit_chunk, check)
        if shared is not None and shared.in_process:
            yield from ahead.each(fit_chunk, chunks, DEVICE_CHUNKS, "exprkit fits")
        else:
            yield from map(fit_chunk, chunks)

    def fit_chunk(self, check: Callable[[], Any], chunk: FunctionChunk) -> FittedChunk:
        pop = self.population(chunk.forms)
        linked = self.plan.goal.over(pop)
        return FittedChunk(chunk, pop, linked, self._best_fits(linked, chunk.functions, check))

    def _best_fits(
        self, pop: Population, functions: np.ndarray, check: Callable[[], Any] = lambda: None, alone: bool = False
    ) -> BestFits:
        """``alone``: without devices, which may still be busy with calls that were cancelled."""
        arguments = self.plan.restarts, self.plan.seed, self._start_sizes, check
        if self.plan.shared and not alone:
            return shared_best_fits(self.plan.shared, pop, functions, *arguments)._replace(goal=self._fit_goal)
        return best_fits(self.problem, pop, functions, *arguments)

    def _describe(self, bar: SearchBar, file: StateFile, fitted: FittedChunk) -> None:
        """Add a fitted chunk to the state, rank it, show it, and write the file if that is due."""
        state, fits, chunk = self.state, fitted.fits, fitted.chunk
        wide = np.full((len(chunk.functions), state.params.shape[1]), np.nan)
        wide[:, : fits.params.shape[1]] = fits.params
        self.state = dataclasses.replace(
            self._ranked(fitted),
            functions=np.concatenate([state.functions, chunk.functions]),
            forms=np.concatenate([state.forms, chunk.forms]),
            loss=np.concatenate([state.loss, fits.loss]),
            times=np.concatenate([state.times, fits.times]),
            params=np.concatenate([state.params, wide]),
            evaluations=state.evaluations + fits.evaluations,
        )
        self._show(chunk.size, bar)
        file.save(self.arrays)

    def _ranked(self, fitted: FittedChunk) -> SearchState:
        """The state with the ranking of its best functions and those of a chunk, which are added behind the others."""
        state, fits, function, first_row = (
            self.state,
            fitted.fits,
            DescriptionLength.of_functions(fitted.pop),
            len(self.state.loss),
        )
        if not self.plan.goal.describes:
            return self._merged(state, first_row + np.arange(len(fitted.pop)), fits.loss)
        least = np.where(np.isfinite(fits.loss), fits.loss + function, np.inf)  # a length is no less
        order = np.argsort(least, kind="stable")
        for first in range(0, len(order), DESCRIBED):
            rows = np.sort(order[first : first + DESCRIBED])
            worst = state.total[-1] if len(state.total) >= self.plan.keep else np.inf
            rows = rows[(least[rows] <= worst) & np.isfinite(least[rows])]
            if not len(rows):
                break
            length = DescriptionLength.of(_as_result(fitted.linked[rows], fits, rows))
            total = length.residuals + length.parameters + function[rows]
            state = self._merged(state, first_row + rows, np.where(np.isnan(total), np.inf, total))
        return state

    def _merged(self, state: SearchState, rows: np.ndarray, total: np.ndarray) -> SearchState:
        """The state with the best of its ranking and of these rows."""
        rows, totals = np.concatenate([state.best, rows]), np.concatenate([state.total, total])
        order = np.lexsort((rows, totals))
        order = order[np.isfinite(totals[order])][: self.plan.keep]
        return dataclasses.replace(state, best=rows[order], total=totals[order])

    def _show(self, size: int, bar: SearchBar) -> None:
        """Advance the bar: the trees of the smaller sizes, and the share of this size's."""
        state, (first, end) = self.state, self.enumeration.first_of_size[size : size + 2]
        smaller = sum(map(self.plan.grammar.count, range(1, size)))
        share = (state.functions[-1] + 1 - first) / max(end - first, 1)
        best = self.population(state.forms[state.best[:1]]).texts() if len(state.best) else [""]
        total, goal = state.total[0] if len(state.total) else np.nan, self.plan.goal
        text = f"{total:.2f} nats" if goal.describes else f"loss {goal.scale * total:.4g}"
        bar.advance(smaller + share * self.plan.grammar.count(size), best[0], text)

    # ── the end ──

    def result(self, bar: SearchBar) -> SearchResult:
        """The ranking and the front, with fits to the last digit."""
        state, goal = self.state, self.plan.goal
        on_front = self._front()
        rows = np.union1d(state.best, on_front)
        self._refit_shorter_forms(rows)
        pop = self.population(state.forms[rows])
        columns, params, errors = self._final_fits(pop, rows)
        columns["loss"] = goal.scale * columns["loss"] + goal.constant
        total = sum(columns.values()) if goal.describes else columns["loss"]
        columns["total"] = total = np.where(np.isfinite(total), total, np.inf)
        columns["size"], columns["times"] = pop.n_tokens, state.times[rows]
        columns["forms"] = self.enumeration.stands_for(state.functions[rows])
        order = np.lexsort((rows, pop.n_tokens, _groups(total, goal.tolerance(total))))
        return SearchResult(
            pop=pop[order],
            columns={name: column[order] for name, column in columns.items()},
            params=params[order],
            errors=errors[order],
            on_front=np.isin(rows, on_front)[order],
            link=goal.link,
            X=self.plan.data.X,
            y=self.plan.data.y,
            seconds=bar.budget.seconds,
            stopped=bar.stopped,
            loss_name=goal.name,
            rank=goal.rank,
            n_functions=len(state.functions),
            n_evaluations=int(state.evaluations[0]),
            counts=self._counts(),
        )

    def _front(self) -> np.ndarray:
        """The rows of the Pareto front: functions such that no smaller one has a loss as low."""
        loss = self.state.loss
        if not len(loss):
            return np.empty(0, np.int64)
        sizes = self.enumeration.sizes_of_forms(self.state.forms)
        finite = np.where(np.isfinite(loss), loss, np.inf)
        return front(sizes.astype(np.float64), finite, self.plan.goal.tolerance(finite))

    def _refit_shorter_forms(self, rows: np.ndarray) -> None:
        """Fit functions again of which a larger size has a form with so few symbols that it is shorter."""
        state = self.state
        forms = self.enumeration.forms(state.functions[rows])
        changed = np.flatnonzero(forms != state.forms[rows])
        if not len(changed):
            return
        rows, forms = rows[changed], forms[changed]
        pop = self.plan.goal.over(self.population(forms))
        fits = self._best_fits(pop, state.functions[rows], alone=len(pop) < SHARED)
        as_good = np.flatnonzero(fits.loss <= state.loss[rows] + self.plan.goal.tolerance(state.loss[rows]))
        rows = rows[as_good]
        state.forms[rows], state.loss[rows], state.params[rows] = forms[as_good], fits.loss[as_good], np.nan
        state.params[rows, : pop.max_params] = fits.params[as_good]

    def _final_fits(self, pop: Population, rows: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """Loss and description length by parts, parameters as they are described, and standard errors."""
        state, goal, function = self.state, self.plan.goal, DescriptionLength.of_functions(pop)
        starts = state.params[rows][:, : pop.max_params]
        fits = finished_fits(goal, goal.over(pop), starts, state.loss[rows], self.problem.on_gpu)
        errors = fits.standard_errors.copy()
        if not goal.describes:
            parts = {"loss": fits.loss, "parameters": np.full(len(pop), np.nan), "function": function}
            return parts, fits.params, errors
        length = DescriptionLength.of(fits)
        params, parameters, residuals = length.params.copy(), length.parameters.copy(), length.residuals.copy()
        self._refit_beside_zeros(fits, params, residuals, parameters, errors)
        return {"loss": residuals, "parameters": parameters, "function": function}, params, errors

    def _refit_beside_zeros(
        self, fits: FitResult, params: np.ndarray, residuals: np.ndarray, parameters: np.ndarray, errors: np.ndarray
    ) -> None:
        """Where parameters were set to 0, fit the others again, and take that where it is shorter; changes arrays."""
        is_zeroed = (params == 0) & (fits.params != 0)
        rows = np.flatnonzero(is_zeroed.any(axis=1))
        if not len(rows):
            return
        pop, goal = fits.pop[rows], self.plan.goal
        width = pop.max_params
        low = np.where(is_zeroed[rows], 0.0, -np.inf)[:, :width]
        high = np.where(is_zeroed[rows], 0.0, np.inf)[:, :width]
        starts = np.nan_to_num(params[rows][:, :width])
        problem = FitProblem(goal.X, goal.y, weights=goal.weights, bounds=(low, high), **goal.settings)
        again = problem.fit(pop, init=starts)
        length = DescriptionLength.of(again)
        is_worse = length.residuals + length.parameters > residuals[rows] + parameters[rows]
        better = np.isfinite(length.total) & ~is_worse
        rows = rows[better]
        residuals[rows], parameters[rows] = length.residuals[better], length.parameters[better]
        params[rows, :width] = length.params[better]
        errors[rows, :width] = again.standard_errors[better]

    def _counts(self) -> np.ndarray:
        """By size: trees, functions that have trees of that size, and those that have no smaller ones; (n_sizes, 4)."""
        part_of, n_of_size, first = self.enumeration.part_of, self.enumeration.n_of_size, self.enumeration.first_of_size
        counts = []
        for size in range(1, self._size + 1):
            new = np.arange(first[size], first[size + 1])
            counts.append((size, self.plan.grammar.count(size), n_of_size[size], int(np.sum(part_of[new] == new))))
        return np.array(counts, np.int64).reshape(len(counts), 4)


def _as_result(pop: Population, fits: BestFits, rows: np.ndarray) -> FitResult:
    """Rows of best fits as the result of one fit."""
    n, width = len(pop), pop.max_params
    assert fits.goal is not None
    status = np.zeros(n, np.uint8)
    fitted = Fitted(fits.params[rows][:, :width], fits.loss[rows], np.zeros(n, np.int32), status, 0)
    return FitResult(pop, *fitted, np.zeros(n), 0.0, fits.goal, None)


def _groups(total: np.ndarray, tolerance: np.ndarray) -> np.ndarray:
    """Numbers, the least of ``total`` first; one number for those within ``tolerance`` of the first of them."""
    groups, first, number = np.empty(len(total), np.int64), -np.inf, -1
    for i in np.argsort(total, kind="stable").tolist():
        if not total[i] <= first + tolerance[i]:
            first, number = total[i], number + 1
        groups[i] = number
    return groups
