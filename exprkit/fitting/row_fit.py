"""Fits to rows that are read in pieces by workers: npy and Parquet files, dask arrays.

In: what ``fit`` was given.  Out: a ``FitResult`` whose goal holds no data; its covariances come from the last normal
equations.

    >>> import exprkit as ek, numpy as np, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/X.npy", np.arange(8.0)[:, None]); np.save(f"{folder}/y.npy", 2 * np.arange(8.0))
    >>> ek.fit("p1 * x1", f"{folder}/X.npy", f"{folder}/y.npy", devices=1).params
    array([[2.]])
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from exprkit.backends import known
from exprkit.backends.objective import Options
from exprkit.backends.precision import precision as precision_of
from exprkit.distributed.files import source_of
from exprkit.distributed.rows import RowEngine
from exprkit.distributed.workers import Workers
from exprkit.errors import ArgumentError, DataError
from exprkit.evaluate import inputs, tables
from exprkit.evaluate.options import check_offered, for_backend
from exprkit.expressions.population import Population
from exprkit.fitting.fit_result import FitResult
from exprkit.fitting.likelihood import SINGULAR, FitGoal, at_bound, inverses
from exprkit.runtime.progress import Progress, shown


def fit_rows(
    pop: Population, X: Any, y: Any, weights: Any, starts: np.ndarray, options: Options, *,
    workers: Workers, backend: str, precision: Any, dtype: Any, threads: int | None, progress: Progress,
    **further: Any,
) -> FitResult:  # fmt: skip
    """Fit every expression from one start; the arguments are those of ``fit``, checked where they need no data."""
    begin = time.perf_counter()
    if len(starts) != 1:
        raise ArgumentError("rows that are read in pieces are fitted to from one start: restarts=0, one set of init")
    source = source_of(X, y, weights, pop.variables)
    if source.X.shape[1] < pop.n_vars:
        raise DataError(f"X has {source.X.shape[1]} columns, and the population uses {pop.n_vars}")
    workers.check(backend)
    settings = precision_of(precision)
    check_offered(backend, further, known(backend).options)
    engine = RowEngine(
        source, workers, backend=backend, precision=for_backend(settings, backend, known(backend).takes_settings),
        dtype=np.dtype(inputs.dtype_name(dtype)), threads=threads, **further,
    )  # fmt: skip
    used = tables.used_columns(pop)
    totals = engine.totals(list(used))
    with shown(progress, len(pop), "fitting") as done:
        fitted, jtj = engine.fit(pop.expanded(), starts[0], options, done)
    sse = np.where(np.isfinite(fitted.loss), fitted.loss, np.nan)
    goal = FitGoal("squares", 1.0, np.empty((0, source.X.shape[1])), np.empty(0), None, options.lower, options.upper)
    spread = totals.wyy - totals.wy**2 / totals.w
    with np.errstate(all="ignore"):
        found = FitResult(
            pop, fitted.params, sse, fitted.iterations, fitted.status, 1 - sse / spread, fitted.evaluations,
            time.perf_counter() - begin, at_bound(fitted.params, goal, engine.dtype), goal, None,
        )  # fmt: skip
        found.__dict__["covariance"] = _covariance(jtj, sse, pop, found.at_bound, source.n_rows)
    return found


def _covariance(jtj: np.ndarray, sse: np.ndarray, pop: Population, held: np.ndarray, n_rows: int) -> np.ndarray:
    """(J'WJ)^-1 times the residual variance; nan where the data do not determine a parameter, or it is ``held``."""
    covariance, fixed = np.full(jtj.shape, np.nan), held[:, :, None] | held[:, None, :]
    jtj = np.where(fixed, 0.0, jtj)
    for n in np.unique(pop.n_params[pop.valid & (pop.n_params > 0)]).tolist():
        which = np.flatnonzero((pop.n_params == n) & pop.valid)
        inverse, lost, rank = inverses(jtj[which, :n, :n], SINGULAR["float32"])
        inverse *= np.where(n_rows > rank, sse[which] / np.maximum(n_rows - rank, 1), np.nan)[:, None, None]
        covariance[which, :n, :n] = np.where(lost[:, :, None] | lost[:, None, :], np.nan, inverse)
    return covariance


def refuse(names: Iterable[str]) -> None:
    """An error for arguments that a fit to rows read in pieces does not have."""
    for name in names:
        raise ArgumentError(f"rows that are read in pieces are fitted to by squares from one start, without {name}=")
