"""``exhaustive_search``: enumerates all functions up to a size, fits and ranks them.

In: X and y.  Out: a ``SearchResult``.

How, plainly::

    for each size:
        find the functions that no smaller tree is        (``distinct``)
        for each chunk of them:
            fit from start after start                     (``best_fits``)
            describe those that can still be among the best (``description_length``)
    the best ones, where parameters are less than their precision: set those to 0, fit the rest again

Threads work beside the one that fits: one finds the functions of the next size, one describes the chunk before.  So
devices, which share the cores of their host, wait only for the largest size's functions and for the last description.
A third compiles what a GPU needs for fits of all sizes at the beginning, side by side.

Of a loss that is no likelihood nothing is described: the loss ranks (``goal``).  What is found depends neither on the
chunks nor on the threads.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from exprkit.distributed import ahead
from exprkit.distributed.workers import workers_of
from exprkit.errors import ArgumentError, DataError, brief, checks_keywords, one_of, whole
from exprkit.evaluate import inputs, tables
from exprkit.expressions.arguments import Operators
from exprkit.expressions.population import Population
from exprkit.fitting.description_length import front, function_length, length_of
from exprkit.fitting.fit import FitProblem, FitResult, fit
from exprkit.fitting.likelihood import FitGoal
from exprkit.runtime import files, machine
from exprkit.runtime.budget import Budget, Ended
from exprkit.search.best_fits import BestFits, best_fits, finished_fits, start_sizes
from exprkit.search.distinct import Enumeration
from exprkit.search.goal import SearchGoal
from exprkit.search.grammar import Grammar, grammar
from exprkit.search.progress import SearchBar
from exprkit.search.search_result import SearchResult
from exprkit.search.shared_fits import SharedFits
from exprkit.search.state_file import WHAT, StateFile
from exprkit.text.tokens import VARIABLE

LOG = logging.getLogger(__name__)
FEW = 1000  # functions that are fitted anew at the end without other devices
AHEAD = 2  # chunks that devices of this process fit at a time
CHUNK = 1 << 13  # functions that are fitted at a time
SAMPLE = 256  # random expressions, beside those of every number of parameters with every operator
DESCRIBED = 1 << 10  # functions that are described at a time
MAX_ITER = 100
RESTARTS = 511
CONFIRM = 2  # sets of points at which functions are compared once more


@checks_keywords
def exhaustive_search(
    X: Any,
    y: Any = None,
    *,
    operators: Operators = "esr",
    max_nodes: int = 7,
    n_params: int = 4,
    weights: Any = None,
    sigma: Any = None,
    loss: str = "gaussian",
    link: str | None = None,
    columns: Any = None,
    delta: float = 1.0,
    rank: str | None = None,
    restarts: int = RESTARTS,
    keep: int = 1000,
    seed: int = 0,
    backend: str = "auto",
    precision: Any = "ieee",
    dtype: Any = "float64",
    threads: int | None = None,
    chunk: int = CHUNK,
    timeout: float | None = None,
    max_memory: float | None = None,
    file: Any = None,
    progress: bool = True,
    devices: Any = None,
    client: Any = None,
    missing: str = "raise",
) -> SearchResult:
    """Fit every function of at most ``max_nodes`` nodes to ``y``, and rank them.

    Parameters
    ----------
    X : array (n_points, n_vars), DataFrame, dict of columns or Dataset
        The data, one column per variable; the column names of a table are the names of the variables.
    y : array, (n_points,), or str
        The target; for a table X the name of its column.  A Dataset has its own.
    operators : str or list of str
        The name of a set in ``ek.ops.SETS`` ("esr", "core_maths", ...), or a list of operators, those of
        ``ek.operator`` too.
    max_nodes : int
        Largest number of nodes of an expression.
    n_params : int
        Largest number of parameters in one expression, at most 6.
    weights, sigma : array, (n_points,), optional
        1 / variance of every point, or its standard deviation; not both.  Without either, the variance is unknown and
        the same for all points.
    loss, columns, delta
        As for ``ek.fit``: the likelihood of normal errors ("gaussian") or of counts ("poisson"), "squares", "mae",
        "huber" (``delta``), or an expression over f, y, w and ``columns`` that is summed over the points, as
        ``"huber(f - y, 0.5)"``.
    link : str, optional
        The transformation of an expression f that is compared with the data, such as "sqrt(f)".  It adds no nodes.
    rank : {"description_length", "loss"}, optional
        The ranking criterion.  Default: description length for the likelihoods "gaussian" and "poisson"; for all other
        losses the loss alone, which is smallest for the largest functions (``front`` shows the gain of each further
        node).  A text with ``rank="description_length"`` is the negative log-likelihood of a point, in nats.
    restarts : int
        Largest number of further starts per fit; a fit ends when two groups of starts have found the best loss
        (``best_fits``).
    keep : int
        Number of best functions in the result, in addition to those of the Pareto front.
    seed : int
        Seed of the random starts.
    backend, precision, dtype, threads
        As for ``ek.fit``; float64 by default.
    chunk : int
        Number of functions that are fitted at a time.
    timeout : float, optional
        Seconds after which the search ends with what it has found; compiling loops, once on a machine, is not counted.
    max_memory : float, optional
        Bytes of functions and of what is known of their fits at which the search ends with what it has found;
        default: half of the free memory.
    file : path, optional
        A file for the state of the search, written now and then and at the end; if it exists, the search continues.
    progress : bool
        Show a progress bar with the rate and the best function so far.
    devices, client
        As for ``ek.fit``: functions are fitted on several devices, ``chunk`` on each; what is found stays the same.
        They are told apart here, while those of the size before are fitted.
    missing : {"raise", "drop"}
        What becomes of data points at which y or a column is missing: an error, or they are left out.

    Returns
    -------
    SearchResult
        Also after Ctrl-C, ``timeout`` and ``max_memory``: ``stopped`` says so.

    Raises
    ------
    ArgumentError, DataError, BackendError, FileError
        Before the search begins; also where there are so many trees that comparing them alone would take more than a
        day, and neither ``timeout`` nor ``max_memory`` ends the search before.

    References
    ----------
    D. J. Bartlett, H. Desmond, P. G. Ferreira, "Exhaustive Symbolic Regression", IEEE Transactions on Evolutionary
    Computation 28 (2024).

    Examples
    --------
    >>> import exprkit as ek, numpy as np
    >>> x = np.linspace(0.5, 3, 30)
    >>> found = ek.exhaustive_search(x[:, None], 2 / x + 0.001 * np.sin(99 * x), max_nodes=3, progress=False)
    >>> found.texts()[0], int(found.loss.argmin())
    ('p1 / x1', 0)
    """
    numbers = {"restarts": (restarts, 0), "keep": (keep, 1), "seed": (seed, 0), "chunk": (chunk, 1)}
    _check_numbers(numbers, {"timeout": timeout, "max_memory": max_memory})
    budget = Budget(timeout, most_bytes=_most_bytes(max_memory))
    X, y = tables.target_of(X, y)
    if one_of("missing", missing, ("raise", "drop")) == "drop":
        if columns is not None:
            raise ArgumentError("missing='drop' leaves rows of X, y and weights out, and columns= would keep them")
        X, y, weights, sigma = _complete(X, y, weights, sigma)
    data = _data(X, y, weights, sigma)
    basis = grammar(max_nodes, operators, data.X.shape[1], n_params)
    if timeout is None and max_memory is None:
        basis.refuse_endless(threads or machine.cores())
    goal = SearchGoal.of(
        data.X, data.y, data.weights, loss=loss, link=link, columns=columns, rank=rank, delta=delta, max_iter=MAX_ITER,
        backend=backend, precision=precision, dtype=dtype, threads=threads,
    )  # fmt: skip
    workers = workers_of(devices, client)
    shared = SharedFits(workers, goal.X, goal.y, goal.weights, goal.settings) if workers else None
    search = _Search(data, basis, goal, int(restarts), int(keep), int(seed), int(chunk), shared)
    search.compile_ahead()
    search.fit(_first_expressions(data))  # complains about data and settings before anything begins
    shown, kept = SearchBar(bool(progress), budget), StateFile(file)
    search.resume(kept)
    with shown:
        try:
            search.run(shown, kept)
        except (Ended, KeyboardInterrupt) as error:
            shown.stopped = str(error) or "it was interrupted"
        kept.keep(search.arrays, now=True)
        return search.result(shown)


@dataclass(frozen=True)
class _SearchData:
    X: np.ndarray  # float64 (n_points, n_vars)
    y: np.ndarray
    weights: np.ndarray | None
    variables: tuple[str, ...] | None


def _most_bytes(max_memory: float | None) -> float | None:
    """What a search may take; by default half of what is free."""
    free = machine.available_memory() if max_memory is None else None
    return max_memory if free is None else free / 2


def _check_numbers(numbers: dict[str, tuple[Any, int]], others: dict[str, Any]) -> None:
    for name, (value, least) in numbers.items():
        whole(name, value, least)
    for name, value in others.items():
        if value is not None and (isinstance(value, bool) or not hasattr(value, "__float__") or not float(value) > 0):
            raise ArgumentError(f"{name} must be a number > 0 or None, not {brief(value)}")


def _complete(X: Any, y: Any, weights: Any, sigma: Any) -> tuple[Any, Any, Any, Any]:
    """The same without the data points at which y or a column is missing."""
    names = tuple(tables.names_in(X)) if tables.is_table(X) else None
    n = len(names) if names is not None else np.asarray(X).shape[-1]
    every = Population(np.full(n, VARIABLE, np.uint8), np.arange(n, dtype=np.uint64), np.arange(n + 1), variables=names)
    deviations = sigma if sigma is None or np.isscalar(sigma) else tables.complete(X, y, sigma, every)[2]
    return *tables.complete(X, y, weights, every), deviations


def _data(X: Any, y: Any, weights: Any, sigma: Any) -> _SearchData:
    """The data as arrays, checked as far as the fits do not."""
    tables.check_order(tables.labels_of(X), weights=weights, sigma=sigma)
    names = tuple(tables.names_in(X)) if tables.is_table(X) else None
    empty = Population([], [], [0], variables=names)
    data = inputs.data_matrix(X, empty, np.dtype(np.float64))
    for what in data.unusable.values():  # a search uses all columns
        raise DataError(what)
    columns = np.asarray(inputs.on_host(data.values), np.float64)
    if 0 in columns.shape:
        raise DataError(f"X has no {'points' if len(columns) == 0 else 'columns'}: its shape is {columns.shape}")
    target = _vector("y", y, len(columns))
    if sigma is not None:
        if weights is not None:
            raise ArgumentError("weights are 1 / sigma^2: give only one of them")
        deviations = _vector("sigma", np.full(len(columns), sigma) if np.isscalar(sigma) else sigma, len(columns))
        if not (np.isfinite(deviations) & (deviations > 0)).all():
            raise ArgumentError("sigma must be > 0 at every point")
        weights = 1 / deviations**2
    weights = inputs.on_host(inputs.weights_vector(weights, len(columns), np.dtype(np.float64)))
    if weights is not None and not (weights > 0).any():
        raise DataError("all weights are 0: there are no points to fit")
    inputs.refuse_infinite(columns, weights, empty)
    inputs.refuse_sizes(target if weights is None else target[weights > 0])
    return _SearchData(columns, target, weights, names)


def _vector(name: str, values: Any, n_points: int) -> np.ndarray:
    return np.asarray(inputs.on_host(inputs.point_vector(name, values, n_points, np.dtype(np.float64))))


def _first_expressions(data: _SearchData) -> Population:
    """What uses every variable, one after the other."""
    n = data.X.shape[1]
    return Population(np.full(n, VARIABLE), np.arange(n), np.arange(n + 1), variables=data.variables)


@dataclass
class SearchState:
    """What is known after so many functions; arrays by place in the order of the search.

    ``total`` is of those ``kept``: places, the shortest description first.
    """

    functions: np.ndarray  # their numbers
    forms: np.ndarray  # the form that was fitted
    loss: np.ndarray
    times: np.ndarray  # how often the best loss was found
    params: np.ndarray  # (n, n_params)
    kept: np.ndarray
    total: np.ndarray
    evaluations: np.ndarray  # (1,)

    @classmethod
    def empty(cls, width: int) -> SearchState:
        none, whole = np.empty(0), np.empty(0, np.int64)
        return cls(whole, whole, none, whole, np.empty((0, width)), whole, none, np.zeros(1, np.int64))


STATE = dataclasses.fields(SearchState)


class _Chunk(NamedTuple):
    """Some functions of a size, fitted."""

    size: int
    functions: np.ndarray
    forms: np.ndarray
    pop: Population
    linked: Population
    fitted: BestFits


class _Search:
    """One search: its data, its settings, and what it knows so far."""

    def __init__(
        self, data: _SearchData, basis: Grammar, goal: SearchGoal, restarts: int, keep: int, seed: int, chunk: int,
        shared: SharedFits | None,
    ) -> None:  # fmt: skip
        self._data, self._basis, self._goal = data, basis, goal
        self._restarts, self._n_kept, self._seed, self._shared = restarts, keep, seed, shared
        self._chunk = chunk * shared.devices() if shared else chunk
        self._problem = self._new_problem()
        self._found = Enumeration(basis, goal.settings["threads"], CONFIRM)
        self._sizes = start_sizes(data.X, data.y, [row.name for row in basis.operators])
        self.state = SearchState.empty(max(basis.n_params, 1))
        self.size = self._n_resumed = 0  # whose functions are being fitted; functions that a file's state had

    def _new_problem(self) -> FitProblem:
        return FitProblem(
            self._goal.X, self._goal.y, weights=self._goal.weights, accuracy="screen", **self._goal.settings
        )  # fmt: skip

    def fit(self, pop: Population) -> FitResult:
        return self._problem.fit(self._goal.over(pop), init="ones")

    def resume(self, kept: StateFile) -> None:
        """Go on from what is there, of the same data and settings."""
        data, basis, goal = self._data, self._basis, self._goal
        arrays = data.X, data.y, goal.X, goal.y, data.weights, goal.weights
        kept.begin([np.empty(0) if array is None else array for array in arrays], {
            **{name: repr(value) for name, value in goal.settings.items() if name not in ("loss", "threads")},
            "loss": goal.name, "fitted_as": goal.settings["loss"], "link": goal.link, "rank": goal.rank,
            "variables": data.variables, "operators": basis.operators, "max_nodes": basis.max_nodes,
            "n_params": basis.n_params, "restarts": self._restarts, "keep": self._n_kept, "seed": self._seed,
        })  # fmt: skip
        if kept.arrays is not None:
            with files.damage_errors(kept.path, WHAT):
                self.state = SearchState(**{field.name: kept.arrays[field.name] for field in STATE})
            self._n_resumed = len(self.state.functions)

    @property
    def bytes(self) -> int:
        """What is kept in memory: functions, and their fits, which are there twice while more come in."""
        return self._found.bytes + 2 * sum(array.nbytes for array in self.arrays().values())

    def arrays(self) -> dict[str, np.ndarray]:
        """The state, as a file keeps it."""
        return {field.name: getattr(self.state, field.name) for field in STATE}

    def run(self, shown: SearchBar, kept: StateFile) -> None:
        ended = threading.Event()

        def check(_: int) -> None:
            if ended.is_set():
                raise Ended("the search has ended")
            shown.budget.check(self.bytes)

        taken = None
        enumerating, describing = (ThreadPoolExecutor(1, f"exprkit {what}") for what in ("enumerate", "describe"))
        with enumerating, describing:
            try:
                with contextlib.closing(self._fitted(self._chunks(enumerating, check, shown), shown)) as fitted:
                    for chunk in fitted:
                        if taken is not None:
                            taken.result()
                        taken = ahead.submit(describing, self._take, chunk, shown, kept)
            finally:
                ended.set()
                if taken is not None:
                    taken.result()

    def _chunks(
        self, enumerating: ThreadPoolExecutor, check: Callable[[int], Any], shown: SearchBar
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:  # fmt: skip
        """What is to be fitted at a time: a size, functions and forms."""
        done, most = 0, self._basis.max_nodes
        for size, functions, forms in self._enumerated(enumerating, check):
            self._ready.result()
            self.size = size
            LOG.info("%s nodes: %s new functions to fit", size, f"{len(functions):,}")
            shown.size(f"{size} of {most}", sum(map(self._basis.count, range(1, most + 1))))
            begin, done = max(self._n_resumed - done, 0), done + len(functions)
            for first in range(begin, len(functions), self._chunk):
                some = slice(first, first + self._chunk)
                shown.budget.check(self.bytes)
                yield size, functions[some], forms[some]

    def _fitted(
        self, chunks: Iterator[tuple[int, np.ndarray, np.ndarray]], shown: SearchBar
    ) -> Generator[_Chunk, None, None]:
        """All chunks with their fits; devices of this process have the next one before the last slice of one ends."""
        on_devices = self._shared is not None and bool(self._shared.workers.devices)
        fit_chunk = functools.partial(self._fit_chunk, shown.budget.check)
        if on_devices and self._fit_goal:  # which threads want
            yield from ahead.each(fit_chunk, chunks, AHEAD, "exprkit fits")
        else:
            yield from map(fit_chunk, chunks)

    def compile_ahead(self) -> None:
        """Begin to compile what the search will need."""
        compiling = ThreadPoolExecutor(1, "exprkit compile")
        self._ready, _ = (ahead.submit(compiling, self._make_ready, for_the_end) for for_the_end in (False, True))
        compiling.shutdown(wait=False)

    def _make_ready(self, for_the_end: bool) -> None:
        """Compile what a GPU needs for the fits of all sizes, while the first functions are found; or for the end."""
        if not (self._problem.on_gpu and self._basis.n_params):
            return
        kinds = self._basis.of_all_kinds(SAMPLE, self._data.variables)
        linked, problem = self._goal.over(kinds), self._new_problem()  # the other one is fitting meanwhile
        if for_the_end:
            problem.make_ready(linked, (-np.inf, np.inf), errors=True)
        else:
            problem.make_ready(linked)

    def _enumerated(
        self, enumerating: ThreadPoolExecutor, check: Callable[[int], Any]
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:  # fmt: skip
        """Every size's new functions and their shortest forms so far; those of the next size are found meanwhile."""

        def grow() -> tuple[np.ndarray, np.ndarray]:
            new = self._found.grow(check)
            return new, self._found.forms(new)

        most, growing = self._basis.max_nodes, ahead.submit(enumerating, grow)
        for size in range(1, most + 1):
            found = growing.result()
            if size < most:
                growing = ahead.submit(enumerating, grow)
            yield size, *found

    def _show(self, size: int, shown: SearchBar) -> None:
        """How far it is: the trees of the smaller sizes, and a share of this one's."""
        state, (first, end) = self.state, self._found.first_of_size[size : size + 2]
        smaller = sum(map(self._basis.count, range(1, size)))
        share = (state.functions[-1] + 1 - first) / max(end - first, 1)
        best = self._population(state.forms[state.kept[:1]]).texts() if len(state.kept) else [""]
        total = state.total[0] if len(state.total) else np.nan
        told = f"{total:.2f} nats" if self._goal.describes else f"loss {self._goal.scale * total:.4g}"
        shown.advance(smaller + share * self._basis.count(size), best[0], told)

    # ── a chunk ──

    def _population(self, forms: np.ndarray) -> Population:
        return self._found.population_of_forms(forms, self._data.variables)

    def _fit_chunk(self, check: Callable[[], Any], some: tuple[int, np.ndarray, np.ndarray]) -> _Chunk:
        size, functions, forms = some
        pop = self._population(forms)
        linked = self._goal.over(pop)
        return _Chunk(size, functions, forms, pop, linked, self._best_fits(linked, functions, check))

    def _take(self, chunk: _Chunk, shown: SearchBar, kept: StateFile) -> None:
        """Describe the promising ones of a chunk, and add all to the state."""
        state, fitted, n = self.state, chunk.fitted, len(self.state.functions)
        wide = np.full((len(chunk.functions), state.params.shape[1]), np.nan)
        wide[:, : fitted.params.shape[1]] = fitted.params
        described = self._described(chunk.pop, chunk.linked, fitted, n)
        self.state = dataclasses.replace(
            described, functions=np.concatenate([state.functions, chunk.functions]),
            forms=np.concatenate([state.forms, chunk.forms]), loss=np.concatenate([state.loss, fitted.loss]),
            times=np.concatenate([state.times, fitted.times]), params=np.concatenate([state.params, wide]),
            evaluations=state.evaluations + fitted.evaluations,
        )  # fmt: skip
        self._show(chunk.size, shown)
        kept.keep(self.arrays)

    def _best_fits(
        self, pop: Population, functions: np.ndarray, check: Callable[[], Any] = lambda: None, alone: bool = False
    ) -> BestFits:  # fmt: skip
        """``alone``: not on devices that may still be busy with what was called off."""
        some = self._restarts, self._seed, self._sizes, check
        if self._shared and not alone:
            return self._shared.best_fits(pop, functions, *some)._replace(goal=self._fit_goal)
        return best_fits(self._problem, pop, functions, *some)

    def _described(self, pop: Population, linked: Population, fitted: BestFits, place: int) -> SearchState:
        """The state with those of a chunk that are among the best."""
        state, function = self.state, function_length(pop)
        if not self._goal.describes:
            return self._merged(state, place + np.arange(len(pop)), fitted.loss)
        least = np.where(np.isfinite(fitted.loss), fitted.loss + function, np.inf)
        order = np.argsort(least, kind="stable")
        for first in range(0, len(order), DESCRIBED):
            some = np.sort(order[first : first + DESCRIBED])
            worst = state.total[-1] if len(state.total) >= self._n_kept else np.inf
            some = some[(least[some] <= worst) & np.isfinite(least[some])]
            if not len(some):
                break
            length = length_of(_as_result(linked[some], fitted, some))
            total = length.residuals + length.parameters + function[some]
            state = self._merged(state, place + some, np.where(np.isnan(total), np.inf, total))
        return state

    def _merged(self, state: SearchState, places: np.ndarray, total: np.ndarray) -> SearchState:
        """The state with the shortest of what it keeps and of these."""
        kept, totals = np.concatenate([state.kept, places]), np.concatenate([state.total, total])
        order = np.lexsort((kept, totals))
        order = order[np.isfinite(totals[order])][: self._n_kept]
        return dataclasses.replace(state, kept=kept[order], total=totals[order])

    # ── the end ──

    def result(self, shown: SearchBar) -> SearchResult:
        """The best ones and the front, as they are at the end."""
        state, found, goal = self.state, self._found, self._goal
        on_front = self._front()
        places = np.union1d(state.kept, on_front)
        self._shorten(places)
        pop = self._population(state.forms[places])
        columns, params, errors = self._written(pop, places)
        columns["loss"] = goal.scale * columns["loss"] + goal.constant
        total = sum(columns.values()) if goal.describes else columns["loss"]
        columns["total"] = total = np.where(np.isfinite(total), total, np.inf)
        columns["size"], columns["times"] = pop.n_tokens, state.times[places]
        columns["forms"] = found.stands_for(state.functions[places])
        order = np.lexsort((places, pop.n_tokens, _groups(total, goal.tolerance(total))))
        return SearchResult(
            pop=pop[order], columns={name: column[order] for name, column in columns.items()}, params=params[order],
            errors=errors[order], on_front=np.isin(places, on_front)[order], link=goal.link, X=self._data.X,
            y=self._data.y, seconds=shown.budget.seconds, stopped=shown.stopped, loss_name=goal.name, rank=goal.rank,
            n_functions=len(state.functions), n_evaluations=int(state.evaluations[0]), counts=self._counts(),
        )  # fmt: skip

    def _written(self, pop: Population, places: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """Loss and length of some functions, by parts; their parameters as they are written, and standard errors."""
        state, linked, function = self.state, self._goal.over(pop), function_length(pop)
        params = state.params[places][:, : pop.max_params]
        every = finished_fits(self._goal, linked, params, state.loss[places], self._problem.on_gpu)
        params, errors = every.params, every.standard_errors.copy()
        if not self._goal.describes:
            parts = {"loss": every.loss, "parameters": np.full(len(pop), np.nan), "function": function}
            return parts, params, errors
        length = length_of(every)
        written, parameters, residuals = length.params.copy(), length.parameters.copy(), length.residuals.copy()
        self._fit_the_rest(linked, every, written, residuals, parameters, errors)
        return {"loss": residuals, "parameters": parameters, "function": function}, written, errors

    def _shorten(self, places: np.ndarray) -> None:
        """Fit anew where a larger form, found later, has so few symbols that it is the shorter one."""
        state = self.state
        forms = self._found.forms(state.functions[places])
        changed = np.flatnonzero(forms != state.forms[places])
        if not len(changed):
            return
        where = places[changed]
        pop = self._goal.over(self._population(forms[changed]))
        fitted = self._best_fits(pop, state.functions[where], alone=len(pop) < FEW)
        as_good = np.flatnonzero(fitted.loss <= state.loss[where] + self._goal.tolerance(state.loss[where]))
        state.forms[where[as_good]], state.loss[where[as_good]] = forms[changed][as_good], fitted.loss[as_good]
        state.params[where[as_good]] = np.nan
        state.params[where[as_good], : pop.max_params] = fitted.params[as_good]

    def _counts(self) -> np.ndarray:
        """By size: trees, functions that have trees of that size, and those that have no smaller ones; (n_sizes, 4)."""
        found = self._found
        part_of = found.part_of
        rows = []
        for size in range(1, self.size + 1):
            new = np.arange(found.first_of_size[size], found.first_of_size[size + 1])
            rows.append((size, self._basis.count(size), found.n_of_size[size], int(np.sum(part_of[new] == new))))
        return np.array(rows, np.int64).reshape(len(rows), 4)

    @functools.cached_property
    def _fit_goal(self) -> FitGoal:
        return self.fit(_first_expressions(self._data)).goal

    def _front(self) -> np.ndarray:
        """Places of the functions such that no smaller one tells the data as well."""
        loss = self.state.loss
        if not len(loss):
            return np.empty(0, np.int64)
        sizes = self._found.sizes_of_forms(self.state.forms)
        finite = np.where(np.isfinite(loss), loss, np.inf)
        return front(sizes.astype(np.float64), finite, self._goal.tolerance(finite))

    def _fit_the_rest(
        self, linked: Population, every: FitResult, written: np.ndarray, residuals: np.ndarray, parameters: np.ndarray,
        errors: np.ndarray,
    ) -> None:  # fmt: skip
        """Where parameters were set to 0, fit the others again, and keep what is shorter."""
        zeroed = (written == 0) & (every.params != 0)
        rows = np.flatnonzero(zeroed.any(axis=1))
        if not len(rows):
            return
        some = linked[rows]
        low = np.where(zeroed[rows], 0.0, -np.inf)[:, : some.max_params]
        high = np.where(zeroed[rows], 0.0, np.inf)[:, : some.max_params]
        start = np.nan_to_num(written[rows][:, : some.max_params])
        goal = self._goal
        again = fit(some, goal.X, goal.y, weights=goal.weights, init=start, bounds=(low, high),
                    **goal.settings)  # fmt: skip
        length = length_of(again)
        better = np.isfinite(length.total) & ~(
            length.residuals + length.parameters > residuals[rows] + parameters[rows]
        )
        done = rows[better]
        residuals[done], parameters[done] = length.residuals[better], length.parameters[better]
        written[done, : some.max_params] = length.params[better]
        errors[done, : some.max_params] = again.standard_errors[better]


def _as_result(pop: Population, fitted: BestFits, which: np.ndarray) -> FitResult:
    """Best fits as the result of one fit."""
    n, width = len(pop), pop.max_params
    assert fitted.goal is not None
    return FitResult(
        pop, fitted.params[which][:, :width], fitted.loss[which], np.zeros(n, np.int32), np.zeros(n, np.uint8),
        np.zeros(n), 0, 0.0, fitted.at_bound[which][:, :width], fitted.goal, None,
    )  # fmt: skip


def _groups(total: np.ndarray, tolerance: np.ndarray) -> np.ndarray:
    """Numbers, the least of ``total`` first; one number for those within ``tolerance`` of the first of them."""
    groups, first, number = np.empty(len(total), np.int64), -np.inf, -1
    for i in np.argsort(total, kind="stable").tolist():
        if not total[i] <= first + tolerance[i]:
            first, number = total[i], number + 1
        groups[i] = number
    return groups
