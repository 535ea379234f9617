"""``FitProblem``: fits of one population after another to one data set.

In: X, y and a loss; populations.  Out: a ``FitResult`` of each.  The way of a population::

    FitProblem.fit     evaluator of the data, starts (``starts``), target
      _in_parts        Levenberg-Marquardt by the backend's ``Engine.fit``, or a gradient method (``first_order``)
      finished         the last steps on the Jacobian (``finishing``)
    _fit_own           a loss of the user's own: put into the expressions, which another FitProblem fits by a named loss
"""

from __future__ import annotations

import functools
import logging
import sys
import time
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends import NAMES, known, load, objective, status
from exprkit.backends.device_programs.population import DevicePopulation, on_host
from exprkit.backends.objective import KINDS, LIKELIHOODS, Fitted, Options
from exprkit.distributed.engine import SlicedEngine
from exprkit.distributed.workers import Workers
from exprkit.errors import (
    ArgumentError,
    BackendError,
    DataError,
    brief,
    checks_methods,
    number_of,
    one_of,
    whole,
    whole_number,
)
from exprkit.evaluate import inputs, tables
from exprkit.evaluate.compute import Compute
from exprkit.evaluate.evaluator import Evaluator
from exprkit.evaluate.loss_text import OwnGoal
from exprkit.evaluate.losses import NO_SUMS
from exprkit.evaluate.losses import spread as spread_of
from exprkit.evaluate.options import check_options
from exprkit.expressions.population import Population
from exprkit.fitting import first_order
from exprkit.fitting.finishing.factors import SMALL
from exprkit.fitting.finishing.finish import SMALL_ON_GPU, finished
from exprkit.fitting.fit_result import FitResult
from exprkit.fitting.likelihood import FitGoal, negative_log_likelihood, sums_of_squares
from exprkit.fitting.prior import Penalty, penalty
from exprkit.fitting.starts.given import Bounds, sides_of, starts_of
from exprkit.fitting.starts.seeing import StartMaker
from exprkit.runtime.progress import Progress, looked_at, parts, shown

LOG = logging.getLogger(__name__)
LOSSES = ("squares", "mae", "huber", "gaussian", "poisson")
SUM = "sum"  # of the expressions' own values, by a gradient method: what other losses become
OTHER_WORDS = {**dict.fromkeys(("sse", "mse", "rmse", "l2", "r2"), "squares"), "sae": "mae", "l1": "mae"}
# default of ``max_iter``; steep expressions lose a few powers of ten per step, 50 steps are enough for 97 of 100
MAX_ITER = {"lm": 200, **first_order.MAX_ITER}
METHODS = tuple(MAX_ITER)
ACCURACIES = ("auto", "screen", "final")
MOST_STEPS = 2**31 - 1  # that fit into 32 bits
MOST_RESTARTS = 1_000_000
ROUNDING = 32.0  # last places of y that the errors of an exact fit may be, so that two of them are the same
LARGEST = sys.float_info.max
SQUARED = 1e150  # the largest number of y, and its reciprocal the least, of which sums of squares are finite and not 0
NO_SQUARES = ("mae", "poisson", SUM)


@checks_methods
class FitProblem:
    """A data set and a loss, for fits of one population after another, as in a search.

    The data is prepared once, with the first population; each further population costs only its own preparation
    (``Evaluator.update``).

    Parameters
    ----------
    X, y
        As for ``fit``; no data may be missing.
    weights, method, loss, link, columns, prior, delta, max_iter, tol, accuracy, bounds
        As for ``fit``.
    backend, precision, dtype, threads, devices, client, **options
        As for ``fit``.

    Raises
    ------
    ArgumentError, DataError, BackendError
        If an argument, the data or the backend cannot be used.

    Examples
    --------
    >>> import exprkit as ek, numpy as np
    >>> x = np.linspace(0, 1, 20)[:, None]
    >>> problem = ek.FitProblem(x, 3 * x[:, 0] + 1)
    >>> [problem.fit(ek.parse(text)).loss.round(3).tolist() for text in ("p1 + p2 * x1", "p1 * exp(x1)")]
    [[0.0], [0.711]]
    """

    def __init__(
        self,
        X: Any,
        y: Any = None,
        *,
        weights: Any = None,
        method: str = "lm",
        loss: str = "squares",
        link: str | None = None,
        columns: Any = None,
        prior: Any = None,
        delta: float = 1.0,
        max_iter: int | None = None,
        tol: float = 1e-8,
        accuracy: str = "auto",
        bounds: Bounds = None,
        backend: str = "auto",
        precision: Any = "ieee",
        dtype: Any = "float32",
        threads: int | None = None,
        devices: Any = None,
        client: Any = None,
        **options: Any,
    ) -> None:
        self.target_name = tables.name_of_target(X, y)
        self._X, self._y = tables.target_of(X, y)
        columns = tables.vectors_of(self._X, columns)
        self._own, self._prior = OwnGoal.of(loss, link, columns, LOSSES, prior is not None), prior
        check_settings(method, "squares" if self._own else loss, delta, max_iter, tol)
        check_options(options, FitProblem)
        self._weights, self._bounds = tables.vector_of(self._X, weights), bounds
        self.method, self._loss, self._delta, self._tol = method, loss, float(delta), float(tol)
        self._steps = MAX_ITER[method] if max_iter is None else int(max_iter)
        workers = Workers.of(devices, client)
        backend = backend_of_fits(backend, workers) if method == "lm" else backend
        self._compute = Compute(backend, precision, dtype, threads, workers, options)
        self.threads = threads
        self._max_iter, self._accuracy = max_iter, one_of("accuracy", accuracy, ACCURACIES)
        self._inner: dict[Any, tuple[Penalty, FitProblem]] = {}  # as what a loss of one's own is fitted
        self._evaluators: dict[Any, Evaluator] = {}  # by type: float64's is for what float32 spoils
        self._targets: dict[np.dtype, _FitTarget] = {}

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU makes the fits."""
        return self.method == "lm" and known(self._compute.backend).empty is not None

    def fit(
        self, pop: Any, *, init: Any = None, restarts: int = 0, seed: int = 0, progress: Progress = False
    ) -> FitResult:
        """Fit all of ``pop``; ``init``, ``restarts``, ``seed``, ``progress`` and the result as for ``fit``.

        >>> problem = ek.FitProblem([[1.0], [2.0], [3.0]], [2.0, 4.0, 6.0])
        >>> problem.fit("p1 * x1").params.round(3)
        array([[2.]])
        """
        begin = time.perf_counter()
        ev, starts, target, goal = self.begun(pop, init, restarts, seed)
        is_final = self._is_final(ev.pop)
        if self._own:
            drawing = StartMaker(init is None, restarts, seed, self.threads)
            return self._fit_own(self._own, ev, starts, target, goal, begin, progress, drawing, is_final)
        options = self._options(target, goal.lower, goal.upper)
        fitted = self._in_parts(ev, starts, target, options, progress)
        if is_final:
            fitted = finished(fitted, ev, target.goal, options, inputs.on_host(starts), self._max_iter is not None)
        squares = options.kind == objective.SQUARES
        sse = fitted.loss if squares else inputs.on_host(sums_of_squares(ev, fitted.params, target.y, target.w))
        with np.errstate(all="ignore"):
            loss = _in_terms_of(goal, fitted.loss, target.total)
        r2, fitted = _r2(sse, target.spread, fitted.loss), fitted._replace(loss=loss)
        seconds = time.perf_counter() - begin
        return FitResult(on_host(ev.pop), *fitted, r2, seconds, goal, ev, self.method, is_screened=not is_final)

    def begun(
        self, pop: Any, init: Any = None, restarts: int = 0, seed: int = 0
    ) -> tuple[Evaluator, Any, _FitTarget, FitGoal]:
        """Where the fit of ``pop`` begins, by ``init``, ``restarts`` and ``seed``: evaluator, starts, target and goal.

        The starts of a loss of one's own do not see the data yet.
        """
        whole("restarts", restarts, 0, MOST_RESTARTS)
        whole("seed", seed, 0)
        pop = inputs.population(pop, self._X)
        is_final = self._is_final(pop)
        ev = self._evaluator(
            on_host(pop) if is_final else self._placed(pop), "float64" if is_final else self._compute.dtype
        )
        sides = sides_of(self._bounds, ev.pop)
        starts, target = starts_of(init, ev.pop, ev.adopt, restarts, seed), self._target(ev)
        if not self._own:
            drawing = StartMaker(init is None, restarts, seed, self.threads)
            starts = drawing.of(starts, ev.pop, ev.X, target.y, target.w, self._options(target, *sides))
        goal = target.goal._replace(lower=sides[0], upper=sides[1], target=self.target_name)
        return ev, starts, target, goal

    def fitted(self, pop: Population | DevicePopulation, init: Any, *, limits: Any = None, patience: int = 0) -> Fitted:
        """The fits of a population as arrays alone, which stay where they were made.

        Parameters
        ----------
        pop : Population or DevicePopulation
        init : array, (n_exprs, max_params)
            Where to begin; may lie on the device.
        limits : array, (n_exprs,), optional
            What is not worth more steps: a fit whose loss is above after ``patience`` steps ends there.
        patience : int
            At most ``max_iter``.

        Returns
        -------
        Fitted
            ``params`` (float64), ``loss`` (float64, in the terms of ``FitResult``), ``iterations`` and ``status``; of a
            ``DevicePopulation`` on the device, and nobody waits for them.  What float32 spoils is not fitted anew.

        Raises
        ------
        ArgumentError
            For another method than "lm", or a loss of one's own; for limits of a likelihood.
        """
        if self._own or self.method != "lm":
            raise ArgumentError("fitted() takes method='lm' and one of the losses that have names: use fit()")
        if limits is not None and self._loss in LIKELIHOODS:
            raise ArgumentError(f"fitted() takes no limits for loss={self._loss!r}")
        ev = self._evaluator(self._placed(pop), self._compute.dtype)
        target, bounds = self._target(ev), sides_of(self._bounds, ev.pop)
        starts = inputs.parameter_sets(init, ev.pop, np.dtype(np.float64), ev.adopt)[0]
        engine, options = ev.derivatives(), self._options(target, *bounds)
        if limits is not None:
            sums = limits / _in_terms_of(target.goal, 1.0, target.total)
            options = options._replace(limits=sums, patience=min(patience, options.max_iter))
        fit_here = engine.fit_there if isinstance(ev.pop, DevicePopulation) else engine.fit
        fits = fit_here(starts, target.y, target.w, options)
        return fits._replace(loss=_in_terms_of(target.goal, fits.loss, target.total))

    def _is_final(self, pop: Population | DevicePopulation) -> bool:
        """Whether fits of a population are to be finished."""
        if self._accuracy != "auto":
            return self._accuracy == "final"
        size = len(pop) * inputs.length(self._X) * (pop.max_params + 1)
        return size <= (SMALL_ON_GPU if self.on_gpu else SMALL)

    def make_ready(self, pop: Any, bounds: Bounds = None, errors: bool = False) -> None:
        """Compile what fits of such expressions ask of a GPU, side by side, before they are met one after the other.

        Parameters
        ----------
        pop : population
            Expressions of all kinds that are to come: numbers of parameters, and operators.
        bounds
            Of those fits.
        errors : bool
            Whether they are few, whose standard errors are asked for.
        """
        if not self.on_gpu or self._own:
            return
        ev = self._evaluator(on_host(inputs.population(pop, self._X)), self._compute.dtype)
        target = self._target(ev)
        options = self._options(target, *sides_of(self._bounds if bounds is None else bounds, ev.pop))
        engine = ev.derivatives()
        is_again = ev.dtype == np.float32 and engine.fits_again
        again = functools.partial(self._double, ev.pop) if is_again else None
        engine.make_ready(target.y, target.w, options, errors, again)

    def _placed(self, pop: Population | DevicePopulation) -> Population | DevicePopulation:
        """A population where it can be fitted: what a device does not do alone is done by way of the host."""
        if not isinstance(pop, DevicePopulation):
            return pop
        alone = self.method == "lm" and not self._own and self._compute.workers is None
        return pop if alone and load(self._compute.backend).takes_device_populations else on_host(pop)

    def _target(self, ev: Evaluator) -> _FitTarget:
        """The target for evaluators of this type, checked; copied the first time."""
        known = self._targets.get(ev.dtype)
        y, w = ev.target(self._y, self._weights, own=True) if known is None else known[:2]
        ev.check_complete(None if known else y, w)
        if known is None:
            known = self._targets[ev.dtype] = _FitTarget.of(ev, y, w, self._loss, self._delta, self._own is None)
        return known

    def _options(self, target: _FitTarget, lower: Any, upper: Any) -> Options:
        kind = KINDS[self._loss]
        nothing = (ROUNDING * np.finfo(target.y.dtype).eps) ** 2 * target.spread if kind == objective.SQUARES else 0.0
        return Options(kind, target.scale, self._steps, self._tol, self._tol, lower, upper, nothing=nothing)

    def losses(self, pop: Any, params: Any) -> np.ndarray:
        """The weighted sum of squared errors at given parameters; of absolute ones, or of values, if that is the loss.

        Parameters
        ----------
        pop : population
        params : array, (n_exprs, max_params) or (n_sets, n_exprs, max_params)

        Returns
        -------
        float64 array, (n_exprs,) or (n_sets, n_exprs)

        Examples
        --------
        >>> ek.FitProblem([[1.0], [2.0]], [2.0, 4.0]).losses("p1 * x1", [[3.0]])
        array([5.])
        """
        ev = self._evaluator(on_host(inputs.population(pop, self._X)), self._compute.dtype)
        target, w = ev.target(self._y, self._weights, own=True)
        kind = {"mae": "sae", SUM: SUM}.get(self._loss, "sse")
        return inputs.on_host(ev.loss(params, target, kind, weights=w))

    def _fit_own(
        self,
        own: OwnGoal,
        ev: Evaluator,
        starts: np.ndarray,
        target: _FitTarget,
        goal: FitGoal,
        begin: float,
        progress: Progress,
        drawing: StartMaker,
        is_final: bool,
    ) -> FitResult:
        """The fit of a loss of the user's own: of one that has a name, to expressions that are put into it."""
        if ev.dtype not in self._inner:
            self._inner[ev.dtype] = self._known_problem(ev, own)
        penalty, problem = self._inner[ev.dtype]
        base = penalty.base
        problem._accuracy = "final" if is_final else "screen"
        problem._bounds = None if goal.lower is None else (goal.lower, goal.upper)
        X = inputs.with_columns(ev.X, base.columns, ev.dtype)
        kind, delta = (base.kind, base.delta) if own.loss else (KINDS[own.named], self._delta)
        delta = objective.floor_of(base.target, base.weights) if kind == objective.ABSOLUTE else delta or 1.0
        options = Options(kind, delta, self._steps, self._tol, self._tol, goal.lower, goal.upper)
        starts = drawing.of(starts, base.of(ev.pop), X, base.target, base.weights, options, target.y)
        inner = problem.fit(penalty.of(ev.pop), init=starts, progress=progress)
        by_link = own.loss is None and own.link is not None
        loss, r2 = inner.loss - penalty.constant, inner.r2
        if inner.kind == "mae" and not by_link:
            loss = loss * float(np.sum(base.weights))
        if by_link and penalty.terms:
            r2 = ev.loss(np.nan_to_num(inner.params), self._y, "r2", self._weights, link=own.link_text)
        if by_link:
            r2 = np.where(np.isfinite(loss), r2, np.nan)
        else:
            r2 = _r2(sums_of_squares(ev, inner.params, target.y, target.w), target.spread, loss)
        goal, seconds = goal._replace(loss=own.words), time.perf_counter() - begin
        own_fit: dict[str, Any] = {"pop": ev.pop, "loss": loss, "r2": r2, "goal": goal, "seconds": seconds}
        return replace(inner, **own_fit, _evaluator=ev, _composed=inner)

    def _known_problem(self, ev: Evaluator, own: OwnGoal) -> tuple[Penalty, FitProblem]:
        """The penalty that expressions are put into, and the problem of a named loss that fits them then."""
        points = inputs.LossPoints.of(self._y, self._weights, own.columns, ev.n_points, ev.adopt)
        lm = self.method == "lm"
        combined = penalty(self._prior, ev.pop, own, points, ev.X.shape[1], lm)
        X, target, weights = combined.points(inputs.with_columns(ev.X, combined.base.columns, ev.dtype))
        loss = own.named if own.loss is None else combined.base.loss
        delta, method = combined.base.delta or 1.0, "lbfgs" if loss == "sum" and lm else self.method
        settings: dict[str, Any] = {
            "delta": delta if own.loss else self._delta,
            "max_iter": self._max_iter,
            "tol": self._tol,
        }
        settings |= replace(self._compute, dtype=ev.dtype).arguments
        w = None if np.all(weights == 1) else weights
        return combined, FitProblem(X, target, method=method, loss=loss, weights=w, **settings)

    def _in_parts(self, ev: Evaluator, starts: Any, target: _FitTarget, options: Options, progress: Progress) -> Fitted:
        """The fit of all, a part of the population after the other where progress is shown."""
        pop, fitted = ev.pop, []
        if isinstance(ev.engine, SlicedEngine) and self.method == "lm":
            with shown(progress, len(pop), "fitting") as done, looked_at(done), ev.engine.watched(done):
                return self._of_evaluator(ev, starts, target, options)
        if isinstance(pop, DevicePopulation):
            return self._of_evaluator(ev, starts, target, options)
        for part in parts(len(pop), progress, "fitting"):
            if ev.pop is not pop or part != slice(0, len(pop)):
                ev.update(pop[part])
            width = ev.pop.max_params
            own = starts[:, part, :width]
            if any(own.strides):  # else they are all one number
                own = np.ascontiguousarray(own)
            fitted.append(self._of_evaluator(ev, own, target, options.of(part, width)))
        if ev.pop is not pop:
            ev.update(pop)
        return objective.joined(fitted, pop.max_params)

    def _of_evaluator(self, ev: Evaluator, starts: Any, target: _FitTarget, options: Options) -> Fitted:
        if self.method != "lm":
            return first_order.minimise(ev, self.method, starts, target.y, target.w, options)
        engine = ev.derivatives()
        if ev.dtype == np.float32 and engine.fits_again:
            return engine.fit_again(starts, target.y, target.w, options, functools.partial(self._double, ev.pop))
        fitted = engine.fit(starts, target.y, target.w, options)
        if ev.dtype != np.float32:
            return fitted

        def fit(pop: Population, starts: np.ndarray, options: Options) -> Fitted:
            engine, y, w = self._double(pop)
            return engine.fit(starts, y, w, options)

        return objective.with_spoiled_anew(fitted, ev.pop, starts, options, fit)

    def _evaluator(self, pop: Population | DevicePopulation, dtype: Any) -> Evaluator:
        """The evaluator of a type, of this population now."""
        key = str(dtype)
        if key not in self._evaluators:
            self._evaluators[key] = Evaluator(pop, self._X, **replace(self._compute, dtype=dtype).arguments)
        elif self._evaluators[key].pop is not pop:
            self._evaluators[key].update(pop)
        return self._evaluators[key]

    def _double(self, pop: Population | DevicePopulation) -> tuple[Any, Any, Any]:
        """The engine of float64 of a population, its target and weights."""
        ev = self._evaluator(pop, "float64")
        return ev.engine, *self._target(ev)[:2]


class _FitTarget(NamedTuple):
    """The target of fits."""

    y: Any  # as engines take them
    w: Any
    scale: float  # of the loss
    total: float  # the sum of the weights
    goal: FitGoal  # the same on the host, without bounds
    spread: float  # the weighted sum of squares of y around its mean

    @classmethod
    def of(cls, ev: Evaluator, y: Any, w: Any, loss: str, delta: float, named: bool) -> _FitTarget:
        """Checked, if the loss is one of those that have names."""
        host = inputs.on_host
        goal = FitGoal(loss, delta, host(ev.X), host(y), None if w is None else host(w))
        if named:
            _check_target(y, w, loss)
        scale = objective.floor_of(goal.y, goal.w) if named and KINDS[loss] == objective.ABSOLUTE else delta
        total = float(len(y) if goal.w is None else goal.w.sum(dtype=np.float64))
        return cls(y, w, scale, total, goal, float(spread_of(goal.y, goal.w)))


# ── arguments ────────────────────────────────────────────────────────────────────────


def check_settings(method: str, loss: str, delta: float, max_iter: Any, tol: float) -> None:
    one_of("method", method, METHODS)
    if callable(loss):
        raise ArgumentError('loss must be a name or a text over f and y, as "((f - y) / s)^2 * w", not a function')
    if isinstance(loss, str) and loss in NO_SUMS:
        raise ArgumentError(f"loss={loss!r} is no sum over the points, as fits need; Evaluator.loss_and_grad has it")
    one_of("loss", loss, LOSSES if method == "lm" or loss != SUM else (SUM,), other_words=OTHER_WORDS)
    if method != "lm" and KINDS[loss] not in (objective.SQUARES, objective.ABSOLUTE, objective.SUM):
        able = "loss='squares', 'gaussian' or 'mae'"
        raise ArgumentError(f"method={method!r} takes {able}; for {loss!r} use method='lm'")
    if max_iter is not None:
        whole("max_iter", max_iter, 0, MOST_STEPS)
    if not 0 <= _size(tol) <= 1:
        raise ArgumentError(f"tol must be a number from 0 to 1, not {brief(tol)}")
    if not 0 < _size(delta) <= LARGEST:
        raise ArgumentError(f"delta must be a positive number, not {brief(delta)}")


def _size(number: Any) -> float:
    """A real number; nan for anything else."""
    if isinstance(number, float | np.floating):
        return float(number)
    return np.nan if (count := whole_number(number)) is None else count


def backend_of_fits(name: str, workers: Workers | None = None) -> str:
    """The backend of a fit: of "auto", the first that can run here and fits; of several devices, GPUs if they are."""
    if not isinstance(name, str) or name != "auto":
        return name
    if workers:
        return workers.best()
    for name in NAMES:
        if status(name).available and load(name).differentiates:
            LOG.info("fits on %r: the first backend that can run here and fits", name)
            return name
    raise BackendError("no backend can fit here")


def _check_target(y: Any, w: Any, loss: str) -> None:
    counts = True if w is None else inputs.on_host(w > 0)  # y and w need not lie on the same side
    if endless := int(np.sum(inputs.on_host(np.isinf(y)) & counts)):
        share = f"{endless:,} of {number_of(len(y), 'value')}"
        raise DataError(f"y is infinite in {share}: drop those rows, or give them weight 0")
    largest = float(np.nanmax(np.where(counts, np.abs(inputs.on_host(y)), 0), initial=0.0))
    if loss not in NO_SQUARES and largest and not 1 / SQUARED < largest < SQUARED:
        raise DataError(f"y is {largest:.3g} at most, whose square float64 does not hold: scale y")
    if loss == "poisson" and bool(np.any(inputs.on_host(y < 0) & counts)):
        raise DataError("loss='poisson' needs counts: y must not be negative")


# ── results ──────────────────────────────────────────────────────────────────────────


def _r2(sse: np.ndarray, spread: float, loss: np.ndarray) -> np.ndarray:
    """1 - sse / sum w (y - mean y)^2; nan where the loss is not finite."""
    with np.errstate(all="ignore"):
        r2 = sse / np.float64(spread)
        np.subtract(1.0, r2, out=r2)
    r2[~np.isfinite(loss)] = np.nan
    return r2


def _in_terms_of(goal: FitGoal, total_loss: Any, total: float) -> Any:
    """The objective as the loss that was asked for."""
    if goal.loss in LIKELIHOODS:
        return negative_log_likelihood(goal, total_loss)
    return total_loss / (total or 1.0) if goal.loss == "mae" else total_loss / 2 if goal.loss == "huber" else total_loss
