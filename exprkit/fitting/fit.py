"""``fit``: the best parameters of every expression of a population for one data set.

In: expressions, X and y, as a user has them.  Out: a ``FitResult``.  Takes apart what concerns this data alone (targets
by name, categories, rows that lack values) for a ``FitProblem``; data larger than memory goes to ``row_fit``.
"""

from __future__ import annotations

from typing import Any

from exprkit.backends.device_programs.population import on_host
from exprkit.backends.objective import Options
from exprkit.distributed.files import is_source
from exprkit.distributed.workers import Workers
from exprkit.errors import ArgumentError, one_of
from exprkit.evaluate import tables
from exprkit.evaluate.compute import Compute
from exprkit.evaluate.options import check_options
from exprkit.fitting.finishing import orthogonal
from exprkit.fitting.fit_problem import ACCURACIES, MAX_ITER, FitProblem, backend_of_fits, check_settings
from exprkit.fitting.fit_result import FitResult
from exprkit.fitting.groups import Groups, bounds_of, in_texts, spread
from exprkit.fitting.models import library
from exprkit.fitting.models.ties import Ties, by_category, tie
from exprkit.fitting.row_fit import fit_rows, refuse
from exprkit.fitting.starts.given import Bounds
from exprkit.runtime.progress import Progress


def fit(
    pop: Any,
    X: Any,
    y: Any = None,
    *,
    weights: Any = None,
    x_error: Any = None,
    init: Any = None,
    method: str = "lm",
    loss: str = "squares",
    link: str | None = None,
    columns: Any = None,
    prior: Any = None,
    groups: Groups | None = None,
    ties: Ties | None = None,
    delta: float = 1.0,
    max_iter: int | None = None,
    tol: float = 1e-8,
    accuracy: str = "auto",
    restarts: int = 0,
    bounds: Bounds = None,
    seed: int = 0,
    backend: str = "auto",
    precision: Any = "ieee",
    dtype: Any = "float32",
    threads: int | None = None,
    missing: str = "raise",
    progress: Progress = False,
    devices: Any = None,
    client: Any = None,
    **options: Any,
) -> FitResult:
    """Fit the parameters of every expression to ``y``.

    Parameters
    ----------
    pop : Population or DevicePopulation
        Or a text, which may call ``models``, an Expression, or a list of them.  What is on a GPU is fitted there.
    X : array (n_points, n_vars), DataFrame, dict of columns, array with named fields, Dataset or path
        The data, as for ``Evaluator``; a file .csv, .tsv, .txt or .dat is a table, as ``data.from_table`` reads it.
        X and ``y`` must be complete at points whose weight is not 0 and in the columns that are used.  The path of an
        npy or Parquet file, a memory-mapped array or a dask array is read in pieces, which workers keep
        (``distributed.rows``): any number of rows, but only squared errors and one start.
    y : array, (n_points,), or str
        The target; for a table X the name of its column.  A Dataset has its own.
    weights : array, (n_points,), or str, optional
        A weight >= 0 for every point; 1 / variance where known.  Points of weight 0 are ignored, whatever an
        expression gives there.
    x_error : number, array or dict, optional
        Standard deviations of X, as ``weights`` = 1 / variance are of y, for fits of least orthogonal distances
        (``finishing.orthogonal``): a number, an array (n_vars,) or (n_points, n_vars); or, as of a table, a dict by
        columns of numbers, arrays or columns' names.  Columns without an error are exact.  The loss is
        sum w (y - f)^2 + sum ((x - X) / s)^2 at the true x, R2 that of y - f(X).
    init : optional
        The start of the fits.  By default ones (but terms that may change places start apart, ``starts.alike``), and of
        up to 32 expressions three more each, the best of many that are drawn by what the data show, always the same
        ones (``starts.seeing``).  "ones": these alone; "normal" (standard
        normal random numbers); numbers by the parameters' names; parameters as for ``Evaluator.evaluate`` (several
        sets are as many starts); or a function of a ``numpy.random.Generator`` and a shape (n_exprs, max_params).
    method : {"lm", "lbfgs", "adam"}
        Levenberg-Marquardt, or a gradient method ("squares", "gaussian" and "mae" only).
    loss : {"squares", "mae", "huber", "gaussian", "poisson"} or a loss of your own
        Squared errors; absolute errors, by reweighting; Huber's loss (with ``delta``); the likelihood of normal errors,
        whose variance is 1 / ``weights`` or, without weights, the mean square; the likelihood of counts y >= 0, whose
        mean is the expression.  Or an expression over f, y, w and ``columns``, summed over the points
        (``Evaluator.loss``): ``"((sqrt(f) - y) / s)^2 / 2"``; 0 log 0 is 0.  A square, an absolute value or
        ``huber(…, d)`` of s * h(f) + t, times a factor, is fitted by Levenberg-Marquardt, anything else by L-BFGS;
        ``FitResult.method`` says which.
    link : str, optional
        The transformation of an expression f that is compared with y: the name of an operator, such as "sqrt", or an
        expression over f.
    columns : dict of arrays (n_points,), optional
        The columns that a loss of your own names; for a table X also names of its columns, as a list or in the dict.
    prior : dict or str, optional
        Prior knowledge of parameters: (mean, standard deviation) by name, each used as one more measurement, which
        adds ((p - mean) / sd)^2 to "squares" and half of that to a likelihood or a loss of your own; or a penalty over
        the parameters, ``"((p1 - 2) / 0.5)^2 / 2 + 0.1 * log(p2)^2"``, added to the loss as it is.  It is part of the
        loss, the normal equations and the standard errors.  For "squares" and "gaussian" (with weights) its terms must
        be squares.
    groups : dict of str, optional
        Parameters with one value per category, {"p1": "site"}, by a column of the table X with at most 100 categories;
        in texts also ``"p1[site] * x1 + p2"``.  The result's expressions have the parameters ``p1[a]``, …, and predict
        from tables with that column.
    ties : dict, str or list of str, optional
        Parameters that others or numbers determine, {"w2": "2 * w1", "c": 0} or lines "w2 = 2 * w1": they are not
        fitted, and the result's expressions hold what they are tied to.  ``FittedExpression.tied`` has their values
        and standard errors.
    delta : float
        The error at which Huber's loss changes from squares to absolute errors.
    max_iter : int, optional
        Largest number of iterations; default: 200 ("lm", "lbfgs"), 1000 ("adam").
    tol : float
        A fit ends when the relative changes of loss and parameters are both at most this; what is finished goes on to
        steps of as many standard errors, or of 1e-7, and of few expressions until steps are no longer shorter.
    accuracy : {"auto", "screen", "final"}
        "final": fits are made in float64 whatever ``dtype`` is and finished on the host by orthogonal factors of the
        Jacobian, so that columns may lie far from 0 for their spread (``fitting.finishing``).  "screen": as the backend
        leaves them, for large populations.  "auto": "final" where that takes little time (some thousand expressions).
    restarts : int
        Number of further starts, drawn from the standard normal distribution; of up to 1000 expressions half of them
        by what the data show.  The best fit is returned; of those whose losses are the same (to a millionth, or to the
        last digits of y) the one with the smallest numbers.
    bounds : optional
        (low, high) for all parameters, each a number, None or an array (max_params,) or (n_exprs, max_params); or a
        dict of (low, high) by the parameters' names, {"p1": (0, 1)}.  "lbfgs" and "adam" keep them by projection
        (``first_order``).
    missing : {"raise", "drop"}
        For data points at which y or a used column is missing: an error, or leave them out.
    progress : bool or callable
        Show a progress bar; or a function that is called with (done, total).
    seed : int
        Seed of all random numbers: the same seed gives the same starts.
    backend, precision, dtype, threads, devices, client, **options
        As for ``Evaluator``.  float32 (of screened fits) computes values in float32 and sums in float64; an expression
        is fitted in float64 instead if its loss overflows at every start, if all its derivatives vanish, or if one of
        them is not finite at the end.

    Returns
    -------
    FitResult
        Problems of single expressions (no parameters, nan, more parameters than points, ...) are no errors:
        ``status`` and ``reason`` say how each fit ended.

    Raises
    ------
    ArgumentError, DataError, BackendError
        Before any fit begins.

    Examples
    --------
    >>> import exprkit as ek
    >>> found = ek.fit("p1 * exp(-p2 * t)", {"t": [0, 1, 2, 3], "y": [4, 2, 1, 0.5]}, "y")
    >>> found.params.round(3).tolist()
    [[4.0, 0.693]]

    References
    ----------
    J. J. More, "The Levenberg-Marquardt algorithm: implementation and theory", Numerical Analysis (1978);
    H. B. Nielsen, "Damping parameter in Marquardt's method", IMM-REP-1999-05.
    """
    check_options(options, fit)
    if is_source(X):
        check_settings(method, loss, delta, max_iter, tol)
        asked = {"method": method != "lm", "loss": loss != "squares", "link": link is not None, "groups": bool(groups)}
        asked |= {"columns": columns is not None, "prior": prior is not None, "restarts": bool(restarts)}
        asked |= {"x_error": x_error is not None}
        is_final = one_of("accuracy", accuracy, ACCURACIES) == "final"
        refuse(**asked, missing=missing != "raise", accuracy=is_final)
        workers = Workers.of(devices, client) or Workers.of(1, None)
        compute = Compute(backend_of_fits(backend, workers), precision, dtype, threads, workers, options)
        ends = Options(
            max_iter=MAX_ITER[method] if max_iter is None else int(max_iter), tol=float(tol), gtol=float(tol)
        )
        return fit_rows(pop, X, y, weights, init, bounds, seed, ends, compute, progress)
    target_name = tables.name_of_target(X, y)
    X, y = tables.target_of(X, y)
    weights = tables.vector_of(X, weights)
    pop, grouped = in_texts(pop, groups)
    pop, positive = library.read(pop, X)
    if one_of("missing", missing, ("raise", "drop")) == "drop":
        if columns is not None:
            raise ArgumentError("missing='drop' leaves rows of X, y and weights out, and columns= would keep them")
        X, y, weights = tables.complete(X, y, weights, on_host(pop), grouped.values())
    pop, lines = tie(on_host(pop), ties) if ties else (pop, None)
    if grouped:
        pop = spread(on_host(pop), X, grouped)
        lines = lines and by_category(lines, pop, grouped)
        bounds, prior = (bounds_of(one, pop, grouped) for one in (bounds, prior))
    bounds = library.bounds_of(bounds, pop, positive)
    goal: dict[str, Any] = {"loss": loss, "delta": delta, "link": link, "columns": columns, "prior": prior}
    limits: dict[str, Any] = {"method": method, "max_iter": max_iter, "tol": tol, "accuracy": accuracy}
    where: dict[str, Any] = {"backend": backend, "precision": precision, "dtype": dtype, "threads": threads}
    where |= {"devices": devices, "client": client, **options}
    errors = None
    if x_error is not None:
        asked = {"method": method != "lm", "loss": loss not in ("squares", "gaussian"), "link": link is not None}
        asked |= {"prior": prior is not None, "missing": missing == "drop", "accuracy": accuracy == "screen"}
        orthogonal.check(weights is None, **asked)
        limits["accuracy"], pop = "final", on_host(pop)
        errors = orthogonal.deviations(X, pop, x_error)
    problem = FitProblem(X, y, weights=weights, bounds=bounds, **goal, **limits, **where)
    problem.target_name = target_name
    found = problem.fit(pop, init=init, restarts=restarts, seed=seed, progress=progress)
    found = found if errors is None else orthogonal.fitted(found, errors)
    found.ties = lines
    return found
