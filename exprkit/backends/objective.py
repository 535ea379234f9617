"""The objective of a fit: the losses that it can minimise, and the words for the reasons why it ended.

In: ``Options``, which ``fit`` makes for a backend's ``Engine.fit``.  Out: what it ``Fitted``.

    >>> from exprkit.backends import objective
    >>> objective.REASONS[objective.FTOL]
    'the loss no longer falls'

With f an expression's value at a point, y the target, w the point's weight and r = f - y, a
kind of objective is a loss L and a working weight q, such that

- the loss is the sum of w L,
- its gradient 2 * the sum of w q r J,
- the Gauss-Newton matrix the sum of w q J J',

where J holds the derivatives of f by the parameters.  With them as the normal equations one
Levenberg-Marquardt loop serves every kind.

========  =============================================  ==============================
kind      L                                              q
========  =============================================  ==============================
SQUARES   r^2                                            1
ABSOLUTE  abs r                                          1 / (2 max(abs r, delta))
HUBER     r^2; beyond delta: 2 delta abs r - delta^2     1; beyond delta: delta / abs r
POISSON   2 (y log(y / f) - (y - f)); where y is 0, 2 f  1 / f; 0 where f is 0
SUM       r                                              none: its gradient is that of the sum
========  =============================================  ==============================

SUM is what a loss of the user's own is added up by: each expression is put in its text beforehand, and y is 0.
POISSON is nan for f < 0 and inf for f = 0 < y.
A point of weight 0 does not count, whatever f, y and J are there.  ``loss_of`` and ``weight_of`` are the table for
NumPy's arrays and for the vectors of the CPU backend's kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from exprkit.expressions.population import Population

SQUARES, ABSOLUTE, HUBER, POISSON, SUM = range(5)
KINDS = {
    "squares": SQUARES,
    "gaussian": SQUARES,
    "mae": ABSOLUTE,
    "huber": HUBER,
    "poisson": POISSON,
    "sum": SUM,
}  # by what a fit's loss is called
LIKELIHOODS = ("gaussian", "poisson")

FLOOR = 1e-6  # of abs r in the weights of "mae", as a share of the spread of y: far below what noise does to a median

(
    FTOL, XTOL, GTOL, MAX_ITER, STUCK, NOT_FINITE, NO_PARAMETERS, NO_WEIGHT, INVALID, NO_DERIVATIVE, FLAT, NO_SLOPE,
) = range(12)  # fmt: skip
# of starts: share by which losses differ that are the same, as fits with the default tol end; and by how much the
# sizes of their parameters (the sum of log(1 + abs p), and a little for a minus sign) differ where one is smaller; what
# did not converge counts as larger than any
SAME, SMALLER, MINUS, UNSETTLED = 1e-6, 0.01, 0.02, 1e6
CONVERGED = (FTOL, XTOL, GTOL, FLAT)
SPOILED = (NOT_FINITE, FLAT, NO_SLOPE)  # how fits of float32 end that may end otherwise in float64
REASONS = {
    FTOL: "the loss no longer falls",
    XTOL: "the parameters no longer change",
    GTOL: "the gradient is 0",
    MAX_ITER: "max_iter was reached",
    STUCK: "no step lowers the loss",
    NOT_FINITE: "the loss is not finite at any start",
    NO_PARAMETERS: "no parameters to fit",
    NO_WEIGHT: "no data point counts",
    INVALID: "the expression could not be read",
    NO_DERIVATIVE: "a parameter is inside an operator that has no derivative",
    FLAT: "no parameter changes the values",
    NO_SLOPE: "a derivative is not finite, so that its parameter could not follow",
}


def loss_of(kind: int, r: Any, f: Any, y: Any, delta: Any, library: Any) -> Any:
    """L; ``library`` has ``where`` and ``log`` for such numbers."""
    if kind == ABSOLUTE:
        return abs(r)
    if kind == SUM:
        return r
    if kind == HUBER:
        size = abs(r)
        return library.where(size <= delta, r * r, delta * (size + size - delta))
    if kind == POISSON:
        log = library.where(y > 0.0, y * library.log(y / f), 0.0)
        return library.where(f >= 0.0, 2.0 * (log - (y - f)), math.nan)
    return r * r


def weight_of(kind: int, r: Any, f: Any, delta: Any, library: Any) -> Any:
    """q; None where it is 1 everywhere, or there is none."""
    if kind in (SQUARES, SUM):
        return None
    if kind == POISSON:
        return library.where(f == 0.0, 0.0, 1.0 / f)
    size = abs(r)
    if kind == ABSOLUTE:
        return 0.5 / library.where(size < delta, delta, size)
    return library.where(size <= delta, 1.0, delta / size)


class Options(NamedTuple):
    """The objective of a fit, and when to end."""

    kind: int = SQUARES
    delta: float = 1.0  # of ABSOLUTE (a small floor) and HUBER
    max_iter: int = 50
    tol: float = 1e-8
    gtol: float = 1e-8
    lower: np.ndarray | None = None  # float64 (n_exprs, max_params), -inf where there is no bound
    upper: np.ndarray | None = None
    linear: bool = True  # solve the linear parameters exactly before the first step, and hardly damp them later
    limits: Any = None  # float64 (n_exprs,): whose loss is above that after ``patience`` steps goes no further
    patience: int = 0
    nothing: float = 0.0  # how much less a loss is no better, whatever it is: what rounding makes of an exact fit

    def of(self, which: Any, width: int) -> Options:
        """The options for a part of the expressions, which have at most ``width`` parameters."""
        lower, upper = (
            side if side is None else np.ascontiguousarray(side[which, :width]) for side in (self.lower, self.upper)
        )
        limits = None if self.limits is None else np.ascontiguousarray(self.limits[which])
        return self._replace(lower=lower, upper=upper, limits=limits)


class Fitted(NamedTuple):
    """Each expression's best fit; of ``fit_there`` the arrays lie where they were made."""

    params: np.ndarray  # float64 (n_exprs, max_params), nan where an expression has fewer
    loss: np.ndarray  # float64 (n_exprs,): the objective
    iterations: np.ndarray  # int32 (n_exprs,)
    status: np.ndarray  # uint8 (n_exprs,)
    evaluations: Any  # normal equations made: how many, of ``fit_there`` an array of addends


def best_starts(loss: np.ndarray, params: np.ndarray, status: np.ndarray, nothing: float) -> np.ndarray:
    """Index of each expression's start of least finite loss; of those that end alike the smallest numbers.

    ``loss`` and ``status`` are (n_starts, n_exprs), ``params`` (..., max_params) with nan where there is none.  Those
    that converged go before those that did not.
    """
    finite, every = np.where(np.isfinite(loss), loss, np.inf), np.arange(loss.shape[1])
    best = np.argmin(finite, axis=0)
    if len(loss) == 1:
        return best
    least = finite[best, every]
    with np.errstate(all="ignore"):
        most = least + SAME * np.abs(least) + nothing
        size = np.nansum(np.log1p(np.abs(params)) + MINUS * (params < 0), axis=2)
        size += UNSETTLED * ~np.isin(status, CONVERGED)
        for k in range(len(loss)):
            better = (finite[k] <= most) & (size[k] < size[best, every] - SMALLER)
            best[better] = k
    return best


def with_spoiled_anew(
    fitted: Fitted,
    pop: Population,
    starts: np.ndarray,
    options: Options,
    fit: Callable[[Population, np.ndarray, Options], Fitted],
) -> Fitted:
    """Fits of float32, those that are SPOILED made anew by ``fit``, which does it in float64; the better one counts."""
    again = np.flatnonzero(np.isin(fitted.status, SPOILED))
    if not len(again):
        return fitted
    some = pop[again]
    width = some.max_params
    more = fit(some, np.ascontiguousarray(starts[:, again, :width]), options.of(again, width))
    better = ~(more.loss >= fitted.loss[again])
    again = again[better]
    fitted.params[again, :width] = more.params[better]
    for name in ("loss", "iterations", "status"):
        getattr(fitted, name)[again] = getattr(more, name)[better]
    return fitted._replace(evaluations=fitted.evaluations + more.evaluations)


def joined(parts: list[Fitted], width: int) -> Fitted:
    """Fits of the parts of a population, in order, as those of all of it, with ``width`` parameters at the most."""
    if len(parts) == 1:
        return parts[0]
    params = [
        np.pad(part.params, ((0, 0), (0, width - part.params.shape[1])), constant_values=np.nan) for part in parts
    ]
    return Fitted(
        np.concatenate(params),
        np.concatenate([part.loss for part in parts]),
        np.concatenate([part.iterations for part in parts]),
        np.concatenate([part.status for part in parts]),
        sum(part.evaluations for part in parts),
    )


def floor_of(y: np.ndarray, w: np.ndarray | None) -> float:
    """Errors smaller than this weigh as if they were as large ("mae"): a millionth of the spread of y."""
    counted = np.asarray(y if w is None else y[w > 0], np.float64)
    counted = counted[np.isfinite(counted)]
    spread = float(np.mean(np.abs(counted - np.median(counted)))) if len(counted) else 0.0
    return FLOOR * (spread or float(np.max(np.abs(counted), initial=0.0)) or 1.0)
