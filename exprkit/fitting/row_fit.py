"""Fits to data larger than memory: npy and Parquet files and dask arrays, read in pieces of rows by workers.

In: what ``fit`` was given.  Out: a ``FitResult`` whose goal holds no data; its covariances, and
whether it converged, come from the last normal equations.

    >>> import exprkit as ek, numpy as np, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/X.npy", np.arange(8.0)[:, None]); np.save(f"{folder}/y.npy", 2 * np.arange(8.0))
    >>> ek.fit("p1 * x1", f"{folder}/X.npy", f"{folder}/y.npy", devices=1).params
    array([[2.]])
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from exprkit.backends import known
from exprkit.backends.contract import no_device
from exprkit.backends.device_programs.population import on_host
from exprkit.backends.objective import CONVERGED, Options, with_spoiled_anew
from exprkit.backends.precision import precision as precision_of
from exprkit.distributed.files import columns_of, source_of
from exprkit.distributed.rows import RowEngine
from exprkit.errors import ArgumentError, DataError
from exprkit.evaluate import inputs, tables
from exprkit.evaluate.compute import Compute
from exprkit.evaluate.options import compiler_of
from exprkit.fitting.finishing.factors import factors_of
from exprkit.fitting.finishing.stationarity import FALLING, is_short
from exprkit.fitting.fit_result import FitResult
from exprkit.fitting.likelihood import SINGULAR, FitGoal, inverted
from exprkit.fitting.starts.given import Bounds, sides_of, starts_of
from exprkit.runtime.progress import Progress, shown


def fit_rows(
    pop: Any,
    X: Any,
    y: Any,
    weights: Any,
    init: Any,
    bounds: Bounds,
    seed: int,
    ends: Options,
    compute: Compute,
    progress: Progress,
) -> FitResult:
    """Fit every expression from one start; the arguments are those of ``fit``, ``ends`` has when a fit ends."""
    begin = time.perf_counter()
    pop = on_host(inputs.population(pop, columns_of(X, y, weights)))
    lower, upper = sides_of(bounds, pop)
    options, starts = ends._replace(lower=lower, upper=upper), starts_of(init, pop, no_device, 0, seed)
    if len(starts) != 1:
        raise ArgumentError("rows that are read in pieces are fitted to from one start: restarts=0, one set of init")
    used = tables.used_columns(pop)
    names = pop.variables or columns_of(X, y, weights)
    read = None if names is None else tuple(name if k in used else "" for k, name in enumerate(names))
    source = source_of(X, y, weights, read)
    if source.X.shape[1] < pop.n_vars:
        raise DataError(f"X has {source.X.shape[1]} columns, and the population uses {pop.n_vars}")
    assert compute.workers is not None
    compute.workers.check(compute.backend)
    backend, precision = known(compute.backend), precision_of(compute.precision)
    compiler = compiler_of(compute.backend, backend, precision, compute.options)
    settings = {"backend": compute.backend, "precision": compiler, "threads": compute.threads, **compute.options}
    engine, double = (
        RowEngine(source, compute.workers, dtype=dtype, **settings)
        for dtype in (inputs.dtype_of(compute.dtype), np.dtype(np.float64))
    )
    try:
        totals = engine.totals(used)
        with shown(progress, len(pop), "fitting") as done:
            plain = pop.expanded()
            fitted = engine.fit(plain, starts[0], options, done)
            if engine.dtype != double.dtype:
                fitted = with_spoiled_anew(
                    fitted, plain, starts, options, lambda some, own, options: double.fit(some, own[0], options)
                )
            sums = double.normal_equations(plain, fitted.params)
    finally:
        for one in (engine, double):
            one.forget()
    goal = FitGoal("squares", 1.0, np.empty((0, source.X.shape[1])), np.empty(0, engine.dtype), None, lower, upper)
    sse, spread = np.where(np.isfinite(fitted.loss), fitted.loss, np.nan), totals.wyy - totals.wy**2 / totals.w
    size, eps = float(np.sqrt(totals.wyy)), float(np.finfo(engine.dtype).eps)
    with np.errstate(all="ignore"):
        factors, p = factors_of(*sums, size), np.nan_to_num(fitted.params, nan=0.0)
        is_at_minimum = is_short(factors, p, options, source.n_rows, eps)
        fitted.status[np.isin(fitted.status, CONVERGED) & (pop.n_params > 0) & ~is_at_minimum] = FALLING
        result = FitResult(pop, *fitted, 1 - sse / spread, time.perf_counter() - begin, goal, None)
        result.__dict__["covariance"] = inverted(pop, sums[0], result.at_bound, SINGULAR["float32"], source.n_rows, sse)
    return result


def refuse(**is_asked: bool) -> None:
    """An error for the first argument that is asked for and that a fit to rows read in pieces does not have."""
    for name in (name for name, asked in is_asked.items() if asked):
        raise ArgumentError(f"rows that are read in pieces are fitted to by squares from one start, without {name}=")
