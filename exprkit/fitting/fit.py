"""Fits: the parameters of every expression of a population, at their best for one data set.

In: a population, X and y.  Out: a ``FitResult``.  Checks what the user hands over (data by way of ``Evaluator``),
makes the starts, lets the backend's ``Engine.fit`` run Levenberg-Marquardt for all expressions, or ``first_order`` a
gradient method, and puts the results into words and numbers.

    >>> import exprkit as ek, numpy as np
    >>> x = np.linspace(0, 1, 20)[:, None]
    >>> result = ek.fit(ek.parse(["p1 * exp(p2 * x1)", "p1 + p2 * x1"]), x, 3 * np.exp(-x[:, 0]))
    >>> result.params.round(2)
    array([[ 3.  , -1.  ],
           [ 2.84, -1.87]])
    >>> result.converged
    array([ True,  True])
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from exprkit.backends import NAMES, load, objective, status
from exprkit.backends.device_programs.population import DevicePopulation, on_host
from exprkit.backends.objective import Fitted, Options
from exprkit.errors import ArgumentError, BackendError, DataError, brief, brought_by, number_of, one_of, whole_number
from exprkit.evaluate import inputs
from exprkit.evaluate.evaluator import Evaluator
from exprkit.evaluate.loss_text import Composition, OwnGoal
from exprkit.evaluate.options import check_options
from exprkit.expressions.population import Population
from exprkit.fitting import first_order
from exprkit.fitting.likelihood import LIKELIHOODS, FitGoal, covariance, negative_log_likelihood, sums_of_squares
from exprkit.numbers import as_numbers

if TYPE_CHECKING:
    import pandas as pd

LOSSES = ("squares", "mae", "huber", "gaussian", "poisson")
KINDS = {
    "squares": objective.SQUARES, "gaussian": objective.SQUARES, "mae": objective.ABSOLUTE,
    "huber": objective.HUBER, "poisson": objective.POISSON, "sum": objective.SUM,
}  # fmt: skip
BY_KIND = {KINDS[loss]: loss for loss in ("squares", "mae", "huber", "sum")}  # as what a user's own loss is fitted
# default of ``max_iter``; steep expressions lose a few powers of ten per step, 50 steps are enough for 97 of 100
MAX_ITER = {"lm": 200, **first_order.MAX_ITER}
METHODS = tuple(MAX_ITER)
STARTS = ("ones", "normal")
MOST_STEPS = 2**31 - 1  # that fit into 32 bits
MOST_RESTARTS = 1_000_000
LARGEST = sys.float_info.max
FLOOR = 1e-6  # of abs r in the weights of "mae", as a share of the spread of y: far below what noise does to a median

Bounds = tuple[Any, Any] | Mapping[str, tuple[Any, Any]] | np.ndarray | None


@dataclass(eq=False)
class FitResult:
    """The result of a fit, expression by expression.

    ===================  ==========================================================================
    attribute            what it holds
    ===================  ==========================================================================
    ``params``           float64 (n_exprs, max_params); nan where an expression has fewer
    ``loss``             float64 (n_exprs,), in the terms of the loss that was asked for: the sum of
                         w r^2 ("squares"), the weighted mean of abs r ("mae"), the sum of w times
                         Huber's loss ("huber"), the negative log-likelihood ("gaussian", "poisson")
    ``iterations``       int32 (n_exprs,), of the best start
    ``status``           uint8 (n_exprs,), why it ended: a number of ``objective.REASONS``
    ``converged``        bool (n_exprs,)
    ``reason``           the same in words, a list, with the parameters that ended at a bound
    ``at_bound``         bool (n_exprs, max_params): the parameter ended at a finite bound of its own, so that
                         it says where the bound is and not what the data say
    ``r2``               float64 (n_exprs,): 1 - sum w r^2 / sum w (y - mean y)^2
    ``method``           "lm", "lbfgs" or "adam": of a loss of your own that is no square, no absolute value and not
                         Huber's, L-BFGS takes the place of Levenberg-Marquardt
    ``n_evaluations``    normal equations (or gradients) made, of all expressions and starts
    ``seconds``          the time it took
    ``covariance``       float64 (n_exprs, max_params, max_params) of the parameters, made when first
                         asked for; nan for those that the data do not determine or that are at a bound
                         (the others' are made with them held there), and for "mae"
    ``standard_errors``  float64 (n_exprs, max_params): roots of its diagonal
    ===================  ==========================================================================
    """

    pop: Population
    params: np.ndarray
    loss: np.ndarray
    iterations: np.ndarray
    status: np.ndarray
    r2: np.ndarray
    n_evaluations: int
    seconds: float
    at_bound: np.ndarray
    goal: FitGoal = field(repr=False)
    _evaluator: Evaluator | None = field(repr=False)
    method: str = "lm"
    _composed: FitResult | None = field(default=None, repr=False)  # of what a loss of the user's own was fitted as

    @property
    def kind(self) -> str:
        return self.goal.loss

    @property
    def converged(self) -> np.ndarray:
        return np.isin(self.status, objective.CONVERGED)

    @property
    def reason(self) -> list[str]:
        words = [objective.REASONS[status] for status in self.status.tolist()]
        for i in np.flatnonzero(self.at_bound.any(axis=1)).tolist():
            names = [name for name, there in zip(self._names, self.at_bound[i], strict=True) if there]
            head = objective.REASONS[objective.FTOL] if self.status[i] == objective.GTOL else words[i]
            words[i] = f"{head}; {' and '.join(names)} at {'its bound' if len(names) == 1 else 'their bounds'}"
        return words

    @property
    def _names(self) -> list[str]:
        width = self.params.shape[1]
        return list(self.pop.parameters or (f"p{j + 1}" for j in range(width)))[:width]

    @property
    def evaluator(self) -> Evaluator:
        """The evaluator of the fit; after pickling, or another fit of the same problem, a new one on the CPU."""
        if self._evaluator is None or self._evaluator.pop is not self.pop:
            self._evaluator = Evaluator(self.pop, self.goal.X, "cpu", dtype=self.goal.y.dtype)
        return self._evaluator

    @functools.cached_property
    def covariance(self) -> np.ndarray:
        if self._composed is not None:
            return self._composed.covariance
        return covariance(self.evaluator, self.params, self.goal, self.at_bound)

    @functools.cached_property
    def standard_errors(self) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))

    def best(self, n: int = 1) -> np.ndarray:
        """The numbers of the ``n`` expressions of least loss, the best first; those without a loss last."""
        number = whole_number(n)
        if number is None or number < 0:
            raise ArgumentError(f"n must be a whole number >= 0, not {brief(n)}")
        return np.argsort(np.where(np.isnan(self.loss), np.inf, self.loss), kind="stable")[:number]

    def to_pandas(self) -> pd.DataFrame:
        """A row per expression: its text, loss, R2, why it ended, parameters and their standard errors."""
        with brought_by("notebooks"):
            import pandas as pd

        names = self._names
        columns: dict[str, Any] = {
            "expression": self.pop.texts(), "loss": self.loss, "r2": self.r2, "iterations": self.iterations,
            "converged": self.converged, "reason": self.reason,
        }  # fmt: skip
        columns |= {name: self.params[:, j] for j, name in enumerate(names)}
        columns |= {f"{name}_error": self.standard_errors[:, j] for j, name in enumerate(names)}
        return pd.DataFrame(columns)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: the evaluator stays in its process."""
        return self.__dict__ | {"_evaluator": None}

    def __len__(self) -> int:
        return len(self.pop)

    def __repr__(self) -> str:
        least = np.nanmin(self.loss, initial=np.inf)
        loss = f"least {self.kind} {least:.6g}, " if np.isfinite(least) else ""
        return (
            f"<FitResult: {number_of(len(self), 'expression')}, {int(self.converged.sum()):,} converged, "
            f"{loss}{self.seconds:.3g} s>"
        )


def fit(
    pop: Population | DevicePopulation,
    X: Any,
    y: Any,
    *,
    weights: Any = None,
    init: Any = None,
    method: str = "lm",
    loss: str = "squares",
    link: str | None = None,
    columns: Any = None,
    delta: float = 1.0,
    max_iter: int | None = None,
    tol: float = 1e-8,
    restarts: int = 0,
    bounds: Bounds = None,
    seed: int = 0,
    backend: str = "auto",
    precision: Any = "ieee",
    dtype: Any = "float32",
    threads: int | None = None,
    **options: Any,
) -> FitResult:
    """Fit the parameters of every expression to ``y``.

    Parameters
    ----------
    pop : Population or DevicePopulation
        One that lies on a device is copied to the host.
    X : array, (n_points, n_vars)
        As for ``Evaluator``; complete, as ``y`` is, at the points that count and in the columns that are used.
    y : array, (n_points,)
        The target.
    weights : array, (n_points,), optional
        A weight >= 0 for every point; 1 / variance where known.  A point of weight 0 does not count,
        whatever an expression gives there.
    init : optional
        The start: "ones" (the default), "normal" (drawn from the standard normal distribution), parameters
        as for ``Evaluator.evaluate`` (also of several sets: so many starts), or a function of a
        ``numpy.random.Generator`` and a shape (n_exprs, max_params).
    method : {"lm", "lbfgs", "adam"}
        Levenberg-Marquardt, or a gradient method ("squares", "gaussian" and "mae" only).
    loss : {"squares", "mae", "huber", "gaussian", "poisson"} or a loss of your own
        Squared errors; absolute errors, by reweighting; Huber's loss (``delta``); the likelihood of
        normal errors, whose variance is 1 / ``weights`` or, without weights, the mean square; the
        likelihood of counts y >= 0, whose mean is the expression.  Or an expression over f, y, w and ``columns``,
        whose values are summed (``Evaluator.loss``): ``"((sqrt(f) - y) / s)^2 / 2"``.  What is a square, an
        absolute value or ``huber(…, d)`` of s * h(f) + t, times a factor, goes by Levenberg-Marquardt, anything else by
        L-BFGS; ``FitResult.method`` says which.
    link : str, optional
        What of an expression is compared with y: an operator's name as "sqrt", or an expression over f.
    columns : dict of arrays (n_points,), optional
        What a loss of your own names besides.
    delta : float
        Where Huber's loss turns from squares to absolute errors.
    max_iter : int, optional
        Default: 200 ("lm", "lbfgs"), 1000 ("adam").
    tol : float
        A fit has converged when neither loss nor parameters change by more than this share.
    restarts : int
        So many more starts, drawn from the standard normal distribution; the best counts.
    bounds : optional
        (low, high) for all parameters, each a number, None or an array (max_params,) or (n_exprs,
        max_params); or a dict of (low, high) by the parameters' names.  All methods keep them; of "lbfgs" and
        "adam" by projection (``first_order`` says whose).
    seed : int
        Of all that is drawn: the same seed gives the same starts.
    backend, precision, dtype, threads, **options
        As for ``Evaluator``.  float32 makes values in float32 and sums in float64; an expression whose
        loss overflows there at every start, whose derivatives all vanish, or one of whose derivatives is
        not finite where it ends, is fitted in float64 instead.

    Returns
    -------
    FitResult
        One expression's troubles (no parameters, nan, more parameters than points, ...) are its own:
        ``status`` and ``reason`` say how each one ended.

    Raises
    ------
    ArgumentError, DataError, BackendError
        Before any fit begins.

    References
    ----------
    J. J. More, "The Levenberg-Marquardt algorithm: implementation and theory", Numerical Analysis (1978);
    H. B. Nielsen, "Damping parameter in Marquardt's method", IMM-REP-1999-05.
    """
    check_options(options, fit)
    problem = FitProblem(
        X, y, weights=weights, method=method, loss=loss, link=link, columns=columns, delta=delta, max_iter=max_iter,
        tol=tol, bounds=bounds, backend=backend, precision=precision, dtype=dtype, threads=threads, **options,
    )  # fmt: skip
    return problem.fit(pop, init=init, restarts=restarts, seed=seed)


class FitProblem:
    """Data and a loss that one population after another is fitted to, as a search does.

    What belongs to the data is prepared once, with the first population; each further one costs its own
    preparation alone (``Evaluator.update``).

    Parameters
    ----------
    X, y, **settings
        As for ``fit``, without ``init``, ``restarts`` and ``seed``.

    Raises
    ------
    ArgumentError
        For settings that are none.

    Examples
    --------
    >>> import exprkit as ek, numpy as np
    >>> x = np.linspace(0, 1, 20)[:, None]
    >>> problem = ek.FitProblem(x, 3 * x[:, 0] + 1)
    >>> [problem.fit(ek.parse(text)).loss.round(3).tolist() for text in ("p1 + p2 * x1", "p1 * exp(x1)")]
    [[0.0], [0.711]]
    """

    def __init__(
        self, X: Any, y: Any, *, weights: Any = None, method: str = "lm", loss: str = "squares",
        link: str | None = None, columns: Any = None, delta: float = 1.0,
        max_iter: int | None = None, tol: float = 1e-8, bounds: Bounds = None, backend: str = "auto",
        precision: Any = "ieee", dtype: Any = "float32", threads: int | None = None, **options: Any,
    ) -> None:  # fmt: skip
        self._own = OwnGoal.of(loss, link, columns, LOSSES)
        _check(method, "squares" if self._own else loss, delta, max_iter, tol)
        check_options(options, FitProblem)
        self._X, self._y, self._weights, self._bounds = X, y, weights, bounds
        self._method, self._loss, self._delta, self._tol = method, loss, float(delta), float(tol)
        self._steps = MAX_ITER[method] if max_iter is None else int(max_iter)
        self._settings = _backend(backend) if method == "lm" else backend, precision, threads, options
        self._dtype = dtype
        self._max_iter = max_iter
        self._inner: tuple[Composition, FitProblem] | None = None  # as what a loss of the user's own is fitted
        self._evaluators: dict[Any, Evaluator] = {}  # by type: float64's is for what float32 spoils

    def fit(
        self, pop: Population | DevicePopulation, *, init: Any = None, restarts: int = 0, seed: int = 0
    ) -> FitResult:
        """Fit the parameters of every expression of a population; the arguments and the result are those of ``fit``."""
        begin = time.perf_counter()
        _check_counts(restarts, seed)
        ev = self._evaluator(on_host(inputs.population(pop)), self._dtype)
        lower, upper = _bounds(self._bounds, ev.pop)
        starts = _starts(init, ev.pop, restarts, seed)
        target, w = ev.target(self._y, self._weights, own=True)
        ev.check_complete(target, w)
        if self._own:
            return self._fit_own(ev, starts, (lower, upper), (target, w), begin)
        _check_target(target, w, self._loss)
        kind = KINDS[self._loss]
        scale = _floor(target, w) if kind == objective.ABSOLUTE else self._delta
        settings = Options(kind, scale, self._steps, self._tol, self._tol, lower, upper)
        if self._method != "lm":
            fitted = first_order.minimise(ev, self._method, starts, target, w, settings)
        else:
            fitted = ev.derivatives().fit(starts, target, w, settings)
            if ev.dtype == np.float32:
                fitted = self._in_float64(fitted, ev.pop, starts, settings)
        host = inputs.on_host
        goal = FitGoal(self._loss, self._delta, host(ev.X), host(target), host(w), lower, upper)
        return _result(ev, fitted, target, w, goal, begin, self._method)

    def _fit_own(
        self, ev: Evaluator, starts: np.ndarray, bounds: tuple[Any, Any], data: tuple[Any, Any], begin: float
    ) -> FitResult:
        """The fit of a loss of the user's own: of one that is known, to expressions that are put into it."""
        assert self._own is not None
        if self._inner is None:
            self._inner = self._known_problem(ev, self._own)
        made, problem = self._inner
        problem._bounds = None if bounds[0] is None else bounds
        found = problem.fit(made.of(ev.pop), init=starts)
        host, (target, w), total = inputs.on_host, data, float(np.sum(made.weights))
        goal = FitGoal(self._own.words, self._delta, host(ev.X), host(target), host(w), *bounds)
        by_link = self._own.loss is None
        loss = found.loss * total if found.kind == "mae" and not by_link else found.loss
        r2 = found.r2 if by_link else _r2(sums_of_squares(ev, found.params, target, w), goal)
        return replace(
            found, pop=ev.pop, loss=loss, r2=np.where(np.isfinite(loss), r2, np.nan), goal=goal, _evaluator=ev,
            seconds=time.perf_counter() - begin, _composed=found,
        )  # fmt: skip

    def _known_problem(self, ev: Evaluator, own: OwnGoal) -> tuple[Composition, FitProblem]:
        """What the expressions become, and the problem that they are fitted to then."""
        points = inputs.loss_points(self._y, self._weights, own.columns, ev.n_points, ev.adopt)
        made = own.composed(points, ev.X.shape[1], self._method == "lm")
        loss = own.named if own.loss is None else BY_KIND[made.kind]
        method = "lbfgs" if loss == "sum" and self._method == "lm" else self._method
        backend, precision, threads, options = self._settings
        problem = FitProblem(
            inputs.with_columns(ev.X, made.columns, ev.dtype), made.target, method=method, backend=backend,
            weights=None if np.all(made.weights == 1) else made.weights, delta=self._delta, max_iter=self._max_iter,
            tol=self._tol, precision=precision, dtype=self._dtype, threads=threads, **options,
        )  # fmt: skip
        problem._loss, problem._delta = loss, made.delta if own.loss else self._delta
        return made, problem

    def _evaluator(self, pop: Population, dtype: Any) -> Evaluator:
        """The evaluator of a type, of this population now."""
        key = str(dtype)
        if key not in self._evaluators:
            backend, precision, threads, options = self._settings
            self._evaluators[key] = Evaluator(pop, self._X, backend, precision, dtype, threads, **options)
        elif self._evaluators[key].pop is not pop:
            self._evaluators[key].update(pop)
        return self._evaluators[key]

    def _in_float64(self, fitted: Fitted, pop: Population, starts: np.ndarray, options: Options) -> Fitted:
        """Fit anew, in float64, what in float32 overflows at every start, or ends where slopes vanish or overflow."""
        again = np.flatnonzero(np.isin(fitted.status, (objective.NOT_FINITE, objective.FLAT, objective.NO_SLOPE)))
        if not len(again):
            return fitted
        ev = self._evaluator(pop[again], "float64")
        target, w = ev.target(self._y, self._weights)
        width = ev.pop.max_params
        lower, upper = (
            side if side is None else np.ascontiguousarray(side[again, :width])
            for side in (options.lower, options.upper)
        )
        options = options._replace(lower=lower, upper=upper)
        more = ev.derivatives().fit(np.ascontiguousarray(starts[:, again, :width]), target, w, options)
        better = ~(more.loss >= fitted.loss[again])
        again = again[better]
        fitted.params[again, :width] = more.params[better]
        for old, new in zip(fitted[1:4], more[1:4], strict=True):
            old[again] = new[better]
        return fitted._replace(evaluations=fitted.evaluations + more.evaluations)


# ── arguments ────────────────────────────────────────────────────────────────────────


def _check_counts(restarts: Any, seed: Any) -> None:
    _check_count("restarts", restarts, MOST_RESTARTS)
    _check_count("seed", seed)


def _check_count(name: str, value: Any, most: int | None = None) -> None:
    number = whole_number(value)
    if number is None or number < 0:
        raise ArgumentError(f"{name} must be a whole number >= 0, not {brief(value)}")
    if most is not None and number > most:
        raise ArgumentError(f"{name} must be at most {most:,}, not {brief(value)}")


def _check(method: str, loss: str, delta: float, max_iter: Any, tol: float) -> None:
    one_of("method", method, METHODS)
    one_of("loss", loss, LOSSES)
    if method != "lm" and KINDS[loss] not in (objective.SQUARES, objective.ABSOLUTE):
        able = "loss='squares', 'gaussian' or 'mae'"
        raise ArgumentError(f"method={method!r} takes {able}; for {loss!r} use method='lm'")
    if max_iter is not None:
        _check_count("max_iter", max_iter, MOST_STEPS)
    if not 0 <= _size(tol) <= 1:
        raise ArgumentError(f"tol must be a number from 0 to 1, not {brief(tol)}")
    if not 0 < _size(delta) <= LARGEST:
        raise ArgumentError(f"delta must be a positive number, not {brief(delta)}")


def _size(number: Any) -> float:
    """A real number; nan for anything else."""
    whole = whole_number(number)
    return float(number) if isinstance(number, float | np.floating) else np.nan if whole is None else whole


def _backend(name: str) -> str:
    """The backend of a fit: of "auto", the first that can run here and fits."""
    if not isinstance(name, str) or name != "auto":
        return name
    for name in NAMES:
        if status(name).available and load(name).differentiates:
            return name
    raise BackendError("no backend can fit here")


def _check_target(y: Any, w: Any, loss: str) -> None:
    counts = True if w is None else inputs.on_host(w > 0)  # y and w need not lie on the same side
    if endless := int(np.sum(inputs.on_host(np.isinf(y)) & counts)):
        share = f"{endless:,} of {number_of(len(y), 'value')}"
        raise DataError(f"y is infinite in {share}: drop those rows, or give them weight 0")
    if loss == "poisson" and bool(np.any(inputs.on_host(y < 0) & counts)):
        raise DataError("loss='poisson' needs counts: y must not be negative")


def _floor(y: np.ndarray, w: np.ndarray | None) -> float:
    """Errors smaller than this weigh as if they were as large ("mae"): a millionth of the spread of y."""
    counted = np.asarray(inputs.on_host(y if w is None else y[w > 0]), np.float64)
    counted = counted[np.isfinite(counted)]
    spread = float(np.mean(np.abs(counted - np.median(counted)))) if len(counted) else 0.0
    return FLOOR * (spread or float(np.max(np.abs(counted), initial=0.0)) or 1.0)


def _starts(init: Any, pop: Population, restarts: int, seed: int) -> np.ndarray:
    """Where to begin, float64 (n_starts, n_exprs, max_params)."""
    shape = (len(pop), pop.max_params)
    if init is None or (isinstance(init, str) and init == "ones"):
        first = np.ones((1, *shape))
    elif isinstance(init, str):
        one_of("init", init, STARTS)
        first = _random(seed, 0).standard_normal(shape)[None]
    elif callable(init):
        drawn = as_numbers("what init gives", init(_random(seed, 0), shape), gaps=False).astype(np.float64)
        if drawn.shape != shape:
            raise DataError(f"init must give an array of shape {shape}, not {drawn.shape}")
        first = drawn[None]
    else:
        first = inputs.parameter_sets(init, pop, np.dtype(np.float64))[0]
    n_more = int(restarts) if first[0].size else 0  # without a parameter all starts are the same
    inputs.check_memory("the starts", (len(first) + n_more, *shape), first.dtype, "take fewer restarts or expressions")
    starts = np.empty((len(first) + n_more, *shape))
    starts[: len(first)] = first
    for k in range(n_more):
        starts[len(first) + k] = _random(seed, 1 + k).standard_normal(shape)
    return starts


def _random(seed: int, stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([seed, stream]))


def _bounds(bounds: Bounds, pop: Population) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Lower and upper bounds, float64 (n_exprs, max_params) each, or None."""
    if bounds is None:
        return None, None
    shape = (len(pop), pop.max_params)
    if isinstance(bounds, Mapping):
        names = list(pop.parameters or (f"p{j + 1}" for j in range(pop.max_params)))
        sides = [np.full(pop.max_params, -np.inf), np.full(pop.max_params, np.inf)]
        for name, pair in bounds.items():
            if name not in names:
                raise ArgumentError(f"bounds: there is no parameter {name!r}; there are {', '.join(names) or 'none'}")
            for side, bound in zip(sides, _pair(pair), strict=True):
                if bound is not None:
                    side[names.index(name)] = _number(name, bound)
        low, high = sides
    else:
        low, high = _pair(bounds)
    sides = [as_numbers("bounds", default if bound is None else bound, gaps=False)
             for bound, default in ((low, -np.inf), (high, np.inf))]  # fmt: skip
    try:
        lower, upper = (np.array(np.broadcast_to(side.astype(np.float64), shape)) for side in sides)
    except ValueError:
        fitting = f"None, a number or an array of shape {shape[1:]} or {shape}"
        raise DataError(f"bounds must be (low, high), each {fitting}") from None
    bad = ~(lower <= upper)
    if np.any(bad):
        i, j = np.argwhere(bad)[0]
        raise DataError(f"bounds of p{j + 1} of expression {i}: {lower[i, j]} is not at most {upper[i, j]}")
    return lower, upper


def _number(name: str, bound: Any) -> float:
    if not hasattr(bound, "__float__") or np.ndim(bound):
        raise DataError(f"bounds of {name} must be (low, high), each None or a number, not {brief(bound)}")
    return float(as_numbers(f"bounds of {name}", bound, gaps=False))


def _pair(bounds: Any) -> tuple[Any, Any]:
    several = isinstance(bounds, list | tuple) or (isinstance(bounds, np.ndarray) and bounds.ndim > 0)
    if not several or len(bounds) != 2:
        raise DataError(f"bounds must be (low, high), not {brief(bounds)}")
    return bounds[0], bounds[1]


# ── results ──────────────────────────────────────────────────────────────────────────


def _result(
    ev: Evaluator, fitted: Fitted, y: Any, w: Any, goal: FitGoal, begin: float, method: str
) -> FitResult:
    """The result in words and numbers; ``y`` and ``w`` may lie on the device."""
    squares = KINDS[goal.loss] == objective.SQUARES
    sse = fitted.loss if squares else sums_of_squares(ev, fitted.params, y, w)
    sse = np.where(np.isfinite(fitted.loss), sse, np.nan)
    with np.errstate(all="ignore"):
        value = _in_terms_of(goal, fitted.loss, float(len(goal.y) if goal.w is None else goal.w.sum(dtype=np.float64)))
    at_bound = _at_bound(fitted.params, goal, ev.dtype)
    return FitResult(
        ev.pop, fitted.params, value, fitted.iterations, fitted.status, _r2(sse, goal), fitted.evaluations,
        time.perf_counter() - begin, at_bound, goal, ev, method,
    )  # fmt: skip


def _r2(sse: np.ndarray, goal: FitGoal) -> np.ndarray:
    """1 - sse / sum w (y - mean y)^2."""
    counted = np.ones(len(goal.y)) if goal.w is None else goal.w.astype(np.float64)
    some = counted > 0
    with np.errstate(all="ignore"):
        mean = np.sum(counted[some] * goal.y[some]) / counted.sum()
        return 1 - sse / np.sum(counted[some] * (goal.y[some] - mean) ** 2)


def _at_bound(params: np.ndarray, goal: FitGoal, dtype: np.dtype) -> np.ndarray:
    """Which parameters are equal to a finite bound of their own, as numbers of ``dtype``."""
    at_bound = np.zeros(params.shape, bool)
    with np.errstate(over="ignore"):
        for side in (side for side in (goal.lower, goal.upper) if side is not None):
            at_bound |= np.isfinite(side) & (params.astype(dtype) == side.astype(dtype))
    return at_bound


def _in_terms_of(goal: FitGoal, total_loss: np.ndarray, total: float) -> np.ndarray:
    """The objective as the loss that was asked for."""
    if goal.loss in LIKELIHOODS:
        return negative_log_likelihood(goal, total_loss)
    return total_loss / (total or 1.0) if goal.loss == "mae" else total_loss / 2 if goal.loss == "huber" else total_loss
