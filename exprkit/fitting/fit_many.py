"""``fit_many``: fits of many data sets, each with formulas of its own, side by side.

In: the arguments of ``fit``, problem by problem.  Out: a ``FitResult`` of each.

Data sets stand beside each other as columns of one table, whose rows are as many as the longest has.  A formula f of
one that has the columns x, y and w becomes sqrt(w) (f(x) - y), of which the least squares are those of f; where a data
set has no more rows w is 0.  All formulas are one population then, and its fit is one call of the backend.  What that
does not bring to a minimum, and what asks for more than squares, is fitted by itself.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.device_programs.population import on_host
from exprkit.backends.objective import CONVERGED, Options
from exprkit.distributed.files import is_source
from exprkit.errors import ArgumentError, DataError, ParseError, brief, checks_keywords, one_of
from exprkit.evaluate import inputs, tables
from exprkit.evaluate.losses import spread
from exprkit.expressions.population import Population
from exprkit.fitting.finishing.factors import SMALL, CountedPoints, triangles
from exprkit.fitting.fit import fit
from exprkit.fitting.fit_problem import ACCURACIES, FitProblem
from exprkit.fitting.fit_result import FitResult
from exprkit.fitting.groups import in_texts
from exprkit.fitting.likelihood import FACTORS, FitGoal, inverted, points_of
from exprkit.fitting.models import library
from exprkit.operators import ops
from exprkit.runtime.progress import Progress, shown
from exprkit.text.tokens import OPERATOR, VARIABLE

STARTING = {"init", "restarts", "seed"}  # arguments beside data and bounds of what is not fitted by itself
MOST = 1 << 23  # numbers of Jacobians of one call: 64 MiB
FULL = 0.5  # share of them that belongs to rows which a data set has, in calls of more than ...
FEW = 1 << 20
MOST_ALONE = 100  # fits at no minimum, up to which they are made again by themselves: some tens of ms each


@checks_keywords
def fit_many(
    problems: Iterable[Mapping[str, Any]],
    *,
    max_iter: int | None = None,
    tol: float = 1e-8,
    accuracy: str = "auto",
    backend: str = "auto",
    threads: int | None = None,
    progress: Progress = False,
) -> list[FitResult]:
    """Fit many data sets, each with formulas of its own, all at once.

    Parameters
    ----------
    problems : iterable of dict
        Arguments of ``fit`` by name, for each data set: ``pop``, ``X`` and, unless X has it, ``y``; of least squares
        also ``weights``, ``init``, ``bounds``, ``restarts`` and ``seed``.  A problem with any other, such as ``loss``,
        is fitted by itself.
    max_iter, tol, accuracy, backend, threads, progress
        As for ``fit``, of all problems; all are fitted in float64.

    Returns
    -------
    list of FitResult
        What ``fit`` gives for each, in their order; ``seconds`` is each one's share of the time.

    Raises
    ------
    ExprkitError
        As of ``fit``, with the number of the problem, from 0; before any fit begins.

    Examples
    --------
    >>> import exprkit as ek, numpy as np
    >>> t = np.linspace(0, 4, 20)
    >>> tables = [{"t": t[:n], "y": n * np.exp(-k * t[:n])} for n, k in [(10, 0.7), (20, 0.4)]]
    >>> found = ek.fit_many({"pop": "p1 * exp(-p2 * t)", "X": table, "y": "y"} for table in tables)
    >>> [one.params.round(6).tolist() for one in found]
    [[[10.0, 0.7]], [[20.0, 0.4]]]
    """
    one_of("accuracy", accuracy, ACCURACIES)
    problems, begin = list(problems), time.perf_counter()
    settings: dict[str, Any] = {"max_iter": max_iter, "tol": tol, "backend": backend, "threads": threads}
    parts, found = dict[int, _Neighbour](), dict[int, FitResult]()

    def alone(k: int) -> FitResult:
        with _numbered(k):
            return fit(**{"dtype": "float64", "accuracy": accuracy, **settings, **problems[k]})

    with shown(progress, len(problems), "fitting", " data sets") as done:
        for k, problem in enumerate(problems):
            with _numbered(k):
                part = _Neighbour.of(problem, threads)
            if part is not None:
                parts[k] = part
        for k in set(range(len(problems))).difference(parts):
            found[k] = alone(k)
            done(1)
        is_final = accuracy == "final" or (accuracy == "auto" and sum(part.size for part in parts.values()) <= SMALL)
        for few in _calls(parts):
            found |= zip(few, _fitted([parts[k] for k in few], is_final, settings), strict=True)
            done(len(few))
    left = [k for k in parts if is_final and not np.isin(found[k].ended, CONVERGED).all()]
    for k in left if len(left) <= MOST_ALONE else ():
        again = alone(k)
        found[k] = again if again.converged.sum() >= found[k].converged.sum() else found[k]
    share = (time.perf_counter() - begin) / max(len(problems), 1)
    return [replace(found[k], seconds=share) for k in range(len(problems))]


@contextlib.contextmanager
def _numbered(k: int) -> Iterator[None]:
    """The errors of a problem with its number."""
    try:
        yield
    except (ArgumentError, DataError, ParseError) as error:
        raise type(error)(f"problem {k}: {error}") from None


class _Neighbour(NamedTuple):
    """A problem that can be fitted beside others."""

    pop: Population
    starts: np.ndarray  # (n_starts, n_exprs, max_params)
    goal: FitGoal  # in float64
    points: CountedPoints

    @classmethod
    def of(cls, problem: Mapping[str, Any], threads: int | None) -> _Neighbour | None:
        """None of what has to be fitted by itself."""
        if not isinstance(problem, Mapping) or not {"pop", "X"} <= problem.keys():
            needed = "a problem must be a dict of arguments of fit, pop and X among them"
            raise ArgumentError(f"{needed}, not {brief(list(problem) if isinstance(problem, Mapping) else problem)}")
        own = dict(problem)
        pop, X, y = own.pop("pop"), own.pop("X"), own.pop("y", None)
        (pop, grouped), bounds, weights = in_texts(pop, None), own.pop("bounds", None), own.pop("weights", None)
        if not own.keys() <= STARTING or is_source(X) or grouped:
            return None
        name, (X, y) = tables.name_of_target(X, y), tables.target_of(X, y)
        pop, positive = library.read(pop, X)
        pop = on_host(inputs.population(pop, X))
        weights, bounds = tables.vector_of(X, weights), library.bounds_of(bounds, pop, positive)
        settings: dict[str, Any] = {"backend": "numpy", "dtype": "float64", "accuracy": "final", "threads": threads}
        alone = FitProblem(X, y, weights=weights, bounds=bounds, **settings)
        alone.target_name = name
        _, starts, _, goal = alone.begun(pop, **own)
        points = points_of(pop, goal)
        return cls(pop, starts, goal, points) if pop.valid.all() and pop.max_params and len(points.y) else None

    @property
    def numbers(self) -> int:
        """How many a Jacobian has by row."""
        return len(self.pop) * (self.pop.max_params + 1)

    @property
    def size(self) -> int:
        return self.numbers * len(self.points.y)


def _calls(parts: dict[int, _Neighbour]) -> Iterator[list[int]]:
    """The numbers of the problems that are fitted by one call: of about as many rows."""
    few, numbers, full = list[int](), 0, 0
    for k in sorted(parts, key=lambda k: len(parts[k].points.y)):
        numbers, full = numbers + parts[k].numbers, full + parts[k].size
        if few and numbers * len(parts[k].points.y) > min(MOST, max(FEW, full / FULL)):
            yield few
            few, numbers, full = [], parts[k].numbers, parts[k].size
        few.append(k)
    if few:
        yield few


def _fitted(parts: list[_Neighbour], is_final: bool, settings: dict[str, Any]) -> Iterator[FitResult]:
    """Fits of problems whose formulas are one population, and whose data are columns of one table."""
    n_rows, width = max(len(part.points.y) for part in parts), max(part.pop.max_params for part in parts)
    owner = np.repeat(np.arange(len(parts)), [len(part.pop) for part in parts])
    pop, columns = _side_by_side([part.pop for part in parts], [part.points.X.shape[1] for part in parts])
    X, counts = np.empty((n_rows, columns)), np.array([len(part.points.y) for part in parts])
    first = 0
    for part, n in zip(parts, counts.tolist(), strict=True):
        table = np.column_stack([part.points.X, part.points.y, np.sqrt(part.points.w)])
        last = first + table.shape[1]
        X[:n, first:last], X[n:, first:last], X[n:, last - 1] = table, table[0], 0.0
        first = last
    n_starts = max(len(part.starts) for part in parts)
    starts, lower, upper = (np.full((n, len(pop), width), v) for n, v in ((n_starts, 1.0), (1, -np.inf), (1, np.inf)))
    for k, part in enumerate(parts):
        n, rows = part.pop.max_params, owner == k
        starts[:, rows, :n] = part.starts[np.minimum(np.arange(n_starts), len(part.starts) - 1)]
        if part.goal.lower is not None:
            lower[0, rows, :n], upper[0, rows, :n] = part.goal.lower, part.goal.upper
    bounds = None if all(part.goal.lower is None for part in parts) else (lower[0], upper[0])
    accuracy: Any = {"accuracy": "final" if is_final else "screen", "dtype": "float64"}
    every = FitProblem(X, np.zeros(n_rows), bounds=bounds, **settings, **accuracy).fit(pop, init=starts)
    covariances = None
    if is_final:
        points = CountedPoints(X, np.zeros(n_rows), np.ones(n_rows))
        R = triangles(pop, points, Options(), every.params, settings["threads"])
        covariances = inverted(pop, R, every.at_bound, FACTORS, counts[owner], every.loss, factored=True)
    for k, part in enumerate(parts):
        rows, n, y = owner == k, part.pop.max_params, part.points.y
        with np.errstate(all="ignore"):
            r2 = 1 - every.loss[rows] / spread(y, part.points.w)
        ends = every.params[rows, :n], every.loss[rows], every.iterations[rows], every.ended[rows]
        steps = int(every.iterations[rows].sum())
        result = FitResult(part.pop, *ends, steps, r2, 0.0, part.goal, None, is_screened=not is_final)
        if covariances is not None:
            result.__dict__["covariance"] = covariances[rows, :n, :n]
        yield result


def _side_by_side(pops: list[Population], n_columns: list[int]) -> tuple[Population, int]:
    """The population of w (f - y) of every formula, and how many columns that has: of each X, y and w."""
    kinds, values, lengths, first = list[Any](), list[Any](), list[int](), 0
    for pop, n in zip(pops, n_columns, strict=True):
        moved = np.where(pop.kinds == VARIABLE, pop.values + np.uint64(first), pop.values)
        for begin, end in itertools.pairwise(pop.offsets.tolist()):
            kinds += [[VARIABLE], pop.kinds[begin:end], [VARIABLE, OPERATOR, OPERATOR]]
            values += [[first + n + 1], moved[begin:end], [first + n, ops.SUB, ops.MUL]]
            lengths.append(end - begin + 4)
        first += n + 2
    tokens = np.concatenate(kinds).astype(np.uint8), np.concatenate(values).astype(np.uint64)
    return Population(*tokens, np.concatenate([[0], np.cumsum(lengths)])), first
