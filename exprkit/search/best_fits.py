"""Multi-start fits: further starts until two groups of them have ended at the best loss.

In: a ``FitProblem``, or one that workers share, expressions, and a name for each.  Out: the best parameters and losses.

    >>> import exprkit as ek, numpy as np
    >>> from exprkit.search.best_fits import best_fits
    >>> x = np.linspace(0.1, 2, 20)[:, None]
    >>> problem = ek.FitProblem(x, 3 * x[:, 0] ** -2.5, loss="gaussian", dtype="float64")
    >>> found = best_fits(problem, ek.parse(["p1 * x1 ^ p2"]), np.array([7]), restarts=10, seed=0)
    >>> found.params.round(3).tolist(), int(found.times[0]) >= 2
    ([[3.0, -2.5]], True)

The first start is 1 for all parameters; the others have both signs and sizes on a logarithmic scale, wider from start
to start and then anew, around 1 or around what small functions of the data are.  A loss found twice may be that of a
basin that is wider than the best one's, so there are ``LEAST_STARTS`` in any case.  Along a single parameter the
first starts are the deepest basins of very many values: ``1 / (p1 - x1)`` has one between any two points.  Each
number is a hash of the seed, the expression's name, the start and the parameter, so that it does not matter what an
expression is fitted beside, or when.  Linear parameters are solved for by the fit itself.

Starts are compared in groups of ``AT_ONCE``.  A GPU fits several groups in one call, and those that turn out not to be
needed are not looked at: it has room for them, and every call takes milliseconds of the host's.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.objective import LIKELIHOODS
from exprkit.distributed.shared import SharedObject
from exprkit.distributed.workers import Workers
from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.population import Population
from exprkit.fitting.fit_problem import FitProblem
from exprkit.fitting.fit_result import FitResult
from exprkit.fitting.likelihood import FitGoal
from exprkit.runtime import slices
from exprkit.runtime.hashes import GOLDEN, mixed
from exprkit.runtime.jit import compiled, inline
from exprkit.search.distinct import Enumeration
from exprkit.search.goal import SearchGoal
from exprkit.search.grammar import grammar

SAME = 0.02  # nats up to which two losses count as equal; chosen, not measured
SHARE = 1e-7  # of a likelihood's loss, the same; above rounding
SHARE_OF_OTHERS = 1e-4  # of a loss that is no likelihood, the same; chosen, not measured
EXACT = 1 - 1e-13  # R2 from which on residuals are rounding errors, whose likelihood says nothing
TWICE = 2  # groups of starts that end at the best loss before a fit ends
AT_ONCE = {"lm": 8, "lbfgs": 16}  # starts of a group; a gradient method takes all side by side; chosen, not measured
LEAST_STARTS = {"lm": 64, "lbfgs": 32}  # of every fit; chosen, not measured
RANDOM = 2048  # values at which the loss of a single parameter is computed, beside GRID; chosen, not measured
SCANNED_AT_ONCE = 1024  # expressions of which that is done together, for memory; chosen, not measured
FAR = 10.0 ** np.linspace(-30, 30, 601)  # parameters of any size
CLOSE = 10.0 ** np.linspace(-15, -0.05, 300)  # distances from 1, as of a power's base
GRID = np.concatenate([FAR, -FAR, 1 + CLOSE, 1 - CLOSE])
SPREADS = (0.5, 1.0, 3.0, 12.0)  # standard deviations of log(size) of starts around 1, in turn; chosen, not measured
NEAR = (0.01, 0.3, 0.05, 1.0)  # the same around a number of the data; chosen, not measured
LEAST_EXPRS = 16  # expressions that are worth a thread; chosen, not measured
SMALL = 4  # nodes of the functions whose values are ``start_sizes``; chosen, not measured
MOST_FUNCTIONS = 512  # of those; chosen, not measured
QUANTILES = (0, 0.1, 0.3, 0.5, 0.7, 0.9, 1)  # of their values; chosen, not measured
LARGEST = 1e30  # a start, within float32
# Of a worker's share, a CPU's and a GPU's: who is done first takes what is left, but a GPU wants many at a time
PARTS = 2, 1
LEAST = 512  # functions of a slice: fits of fewer take hardly less time
ONE = np.ones(1)


class BestFits(NamedTuple):
    """Parameters and loss of every expression from the best of its starts."""

    params: np.ndarray  # float64 (n_exprs, max_params), nan where there is none
    loss: np.ndarray  # float64 (n_exprs,), nan or inf where there is none
    times: np.ndarray  # how many groups of ``AT_ONCE`` starts ended there
    goal: FitGoal | None  # of the last fit
    evaluations: int


def best_fits(
    problem: FitProblem,
    pop: Population,
    names: np.ndarray,
    restarts: int,
    seed: int,
    sizes: np.ndarray = ONE,
    check: Callable[[], Any] = lambda: None,
) -> BestFits:
    """Fit every expression until two groups of starts found its best loss, at most from 1 + ``restarts`` starts.

    ``names``: of each expression, for its random numbers.  ``sizes``: numbers > 0 that starts lie around
    (``start_sizes``).  ``check`` is called after every group of starts, and may raise an exception.
    """
    n, best = len(pop), _no_fits(pop)
    active, evaluations, goal = np.arange(n), 0, None
    single = pop.n_params == 1 if restarts else np.zeros(n, bool)
    least = LEAST_STARTS[problem.method]
    n_starts = 1 + restarts if pop.max_params else 1
    for first, at_once, groups in _rounds(n_starts, AT_ONCE[problem.method], least if problem.on_gpu else 0):
        expressions = pop if groups == 1 and len(active) == n else pop[np.tile(active, groups)]
        starts = range(first, first + groups * at_once)
        init = _starts(names[active], expressions.max_params, starts, seed, sizes, problem.threads, groups)
        if first == 0 and single.any():
            _scan(problem, pop, names, init[:, :n], np.flatnonzero(single), seed, sizes)
        result = problem.fit(expressions, init=init if expressions.max_params else None)
        goal, evaluations = result.goal, evaluations + result.n_evaluations
        left = np.arange(len(active))
        for group in range(groups):
            which = active[left]
            _note(best, which, result, group * len(active) + left)
            end = first + (group + 1) * at_once
            left = left[((end < least) | (best.times[which] < TWICE)) & (pop.n_params[which] > 0)]
        active = active[left]
        if not len(active):
            break
        check()
    return best._replace(goal=goal, evaluations=evaluations)


def finished_fits(goal: SearchGoal, pop: Population, params: np.ndarray, loss: np.ndarray, on_gpu: bool) -> FitResult:
    """Fits to be shown, finished on the host, where the best of all starts ended."""
    settings = goal.settings | ({"backend": "cpu"} if on_gpu else {})
    init = np.nan_to_num(params, nan=0.0) if pop.max_params else None
    fits = FitProblem(goal.X, goal.y, weights=goal.weights, accuracy="final", **settings).fit(pop, init=init)
    is_lost = np.isfinite(loss) & ~np.isfinite(fits.loss)
    fits.params[is_lost], fits.loss[is_lost] = params[is_lost], loss[is_lost]
    return fits


def _rounds(n_starts: int, at_once: int, together: int) -> Iterator[tuple[int, int, int]]:
    """The calls that all starts take: the first start of each, the starts of a group, and how many groups.

    ``together``: starts that the first call fits; every later one fits as many as all before it.  0: a group a call.
    """
    first = 0
    while first < n_starts:
        size = min(at_once, n_starts - first)
        groups = max(1, min(max(first, together) if together else 0, n_starts - first) // size)
        yield first, size, groups
        first += groups * size


def _scan(
    problem: FitProblem,
    pop: Population,
    names: np.ndarray,
    init: np.ndarray,
    single: np.ndarray,
    seed: int,
    sizes: np.ndarray,
) -> None:
    """Set the starts of expressions of a single parameter, but for the first, to its deepest minima on a grid."""
    for first in range(0, len(single), SCANNED_AT_ONCE):
        rows = single[first : first + SCANNED_AT_ONCE]
        values = _values_to_scan(names[rows], seed, sizes, problem.threads)
        loss = problem.losses(pop[rows], values[:, :, None])
        init[1:, rows, 0] = _at_the_deepest(loss, values, init[1:, rows, 0].T.copy(), problem.threads).T


def _at_the_deepest(loss: np.ndarray, values: np.ndarray, usual: np.ndarray, threads: int | None = None) -> np.ndarray:
    """The values (n_exprs, n_best) at the bottoms of the deepest basins, then what is usual where there are fewer."""
    best = np.full_like(usual, np.inf)
    _each(lambda i, j: _deepest(loss[:, i:j], values[:, i:j], best[i:j], usual[i:j]), len(usual), threads)
    return usual


def start_sizes(X: np.ndarray, y: np.ndarray, operators: str | Sequence[str]) -> np.ndarray:
    """Numbers > 0 as parameters beside functions of the data may be: where a pole or a root would lie.

    Quantiles of the functions without parameters of at most 4 nodes, and a little beyond the largest and the least.
    """
    enumeration = Enumeration(grammar(SMALL, operators, X.shape[1], 0))
    functions = np.concatenate([enumeration.grow() for _ in range(SMALL)])[:MOST_FUNCTIONS]
    values = np.asarray(Evaluator(enumeration.population(functions), X, "cpu", dtype="float64").evaluate())
    numbers = [np.ones(1)]
    for column in (y, *values):
        sizes = np.abs(column[np.isfinite(column) & (column != 0)])
        if len(sizes):
            low, *inner, high = np.quantile(sizes, QUANTILES)
            numbers.append(np.array([low / 1.2, low / 1.01, low, *inner, high, 1.01 * high, 1.2 * high]))
    sizes = np.concatenate(numbers)
    return sizes[(sizes > 1 / LARGEST) & (sizes < LARGEST)]


def _note(best: BestFits, which: np.ndarray, result: Any, rows: np.ndarray) -> None:
    """Update the best fits of the expressions ``which`` by ``rows`` of a result, and count equal losses."""
    old, new = best.loss[which], result.loss[rows]
    with np.errstate(invalid="ignore"):
        likely = result.kind in LIKELIHOODS
        close = np.maximum(SAME, SHARE * np.abs(new)) if likely else SHARE_OF_OTHERS * np.abs(new)
        same = np.isfinite(new) & ((np.abs(new - old) <= close) | (result.r2[rows] > EXACT))
        better = np.isfinite(new) & ~(old <= new)
    best.times[which] = np.where(same, best.times[which] + 1, np.where(better, 1, best.times[which]))
    improved, rows = which[better], rows[better]
    best.loss[improved] = new[better]
    best.params[improved, : result.params.shape[1]] = result.params[rows]


# ── shared between workers ──


def shared_problem(
    workers: Workers, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None, settings: dict[str, Any]
) -> SharedObject:
    """A fit problem that workers have, each its own."""
    backend = settings.get("backend", "auto")
    settings = {**settings, "threads": settings.get("threads") or workers.cores(workers.on_gpu(backend))}
    return SharedObject(workers, _problem, (X, y, weights), settings, backend=backend)


def shared_best_fits(
    problem: SharedObject,
    pop: Population,
    names: np.ndarray,
    restarts: int,
    seed: int,
    sizes: np.ndarray,
    check: Callable[[], Any] = lambda: None,
) -> BestFits:
    """As ``best_fits``, bit by bit, but for the goal; ``check`` is called after every slice."""

    def arguments(begin: int, end: int) -> tuple[Any, ...]:
        return pop.part(begin, end), names[begin:end], restarts, seed, sizes

    best = _no_fits(pop)
    evaluations = 0
    for (begin, end), fits in problem.each(_best_fits, problem.cuts(pop, PARTS, LEAST), arguments, check):
        best.params[begin:end, : fits.params.shape[1]] = fits.params
        best.loss[begin:end], best.times[begin:end] = fits.loss, fits.times
        evaluations += fits.evaluations
    return best._replace(evaluations=evaluations)


def _problem(X: np.ndarray, y: np.ndarray, weights: np.ndarray | None, settings: dict[str, Any]) -> FitProblem:
    return FitProblem(X, y, weights=weights, accuracy="screen", **settings)


def _best_fits(problem: FitProblem, *arguments: Any) -> BestFits:
    """On a worker: the fits of a slice."""
    return best_fits(problem, *arguments)._replace(goal=None)


def _no_fits(pop: Population) -> BestFits:
    n = len(pop)
    return BestFits(np.full((n, pop.max_params), np.nan), np.full(n, np.nan), np.zeros(n, np.int64), None, 0)


# ── where fits begin ──


def _starts(
    names: np.ndarray,
    width: int,
    starts: range,
    seed: int,
    sizes: np.ndarray,
    threads: int | None = None,
    groups: int = 1,
) -> np.ndarray:
    """Starts of these numbers, float64 (n_starts, n_exprs, max_params).

    Of several groups (n_starts of a group, groups * n_exprs, max_params): of each group all expressions, in turn.
    """
    words, at_once = names.astype(np.uint64), len(starts) // groups
    starts_of_groups = np.empty((at_once, groups, len(names), width))

    def fill(begin: int, end: int) -> None:
        for k in range(groups):
            out = starts_of_groups[:, k, begin:end].transpose(1, 0, 2)
            _fill(words[begin:end], starts.start + k * at_once, _of_seed(seed), sizes, out)

    _each(fill, len(names), threads)
    return starts_of_groups.reshape(at_once, groups * len(names), width)


def _values_to_scan(names: np.ndarray, seed: int, sizes: np.ndarray, threads: int | None = None) -> np.ndarray:
    """In rising order, float64 (n, n_exprs), as parameter sets are."""
    words, values = names.astype(np.uint64), np.empty((RANDOM + len(GRID), len(names)))

    def fill(begin: int, end: int) -> None:
        part = np.empty((end - begin, len(values)))
        _fill(words[begin:end], 1, _of_seed(seed), sizes, part[:, :RANDOM, None])
        part[:, RANDOM:] = GRID
        part.sort(axis=1)
        values[:, begin:end] = part.T

    _each(fill, len(names), threads)
    return values


def _each(function: Callable[[int, int], None], n: int, threads: int | None) -> None:
    slices.each(function, slices.even(n, threads, LEAST_EXPRS))


def _of_seed(seed: int) -> np.uint64:
    return np.uint64(seed % 2**63 * int(GOLDEN) % 2**64)


@compiled
def _fill(names, first, of_seed, sizes, out):
    """A start's parameters (n_exprs, n_starts, max_params); start 0 is 1 for all."""
    n_exprs, n_starts, width = out.shape
    for i in range(n_exprs):
        for k in range(n_starts):
            start = first + k
            spread = NEAR[(start - 1) // 2 % len(NEAR)] if start % 2 == 0 else SPREADS[(start - 1) // 2 % len(SPREADS)]
            key = mixed(of_seed + np.uint64(start))
            for j in range(width):
                word = mixed((names[i] * np.uint64(0xD6E8FEB86659FD93) + np.uint64(j + 1)) ^ key)
                normal = math.sqrt(-2 * math.log(_unit(word))) * math.cos(2 * math.pi * _unit(mixed(word + GOLDEN)))
                around = sizes[np.int64(mixed(word ^ GOLDEN) % np.uint64(len(sizes)))] if start % 2 == 0 else 1.0
                value = min(around * math.exp(spread * normal), LARGEST)  # Box and Muller's normal numbers
                out[i, k, j] = 1.0 if start == 0 else value if word & np.uint64(1) else -value


@compiled
def _deepest(loss, values, best, bottoms):
    """Write values at the bottoms of the deepest basins into ``bottoms``, (n_exprs, n_best), others stay as they are.

    ``loss`` and ``values`` are (n, n_exprs); ``best``, the losses at the bottoms, is inf at first.
    """
    n, n_best = len(loss), bottoms.shape[1]
    for i in range(len(bottoms)):
        before = math.inf
        for k in range(n):
            value = loss[k, i] if math.isfinite(loss[k, i]) else math.inf
            after = loss[k + 1, i] if k + 1 < n and math.isfinite(loss[k + 1, i]) else math.inf
            if value <= before and value < after and value < best[i, n_best - 1]:
                rank = n_best - 1
                while rank > 0 and best[i, rank - 1] > value:
                    best[i, rank], bottoms[i, rank] = best[i, rank - 1], bottoms[i, rank - 1]
                    rank -= 1
                best[i, rank], bottoms[i, rank] = value, values[k, i]
            before = value


@inline
def _unit(h):
    """In (0, 1)."""
    return (np.float64(h >> np.uint64(11)) + 0.5) * 2.0**-53
