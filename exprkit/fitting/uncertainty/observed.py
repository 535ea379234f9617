"""Covariances of losses that are added up as they stand, by their curvature, and those that assume no likelihood.

In: a fit's evaluator, parameters and goal.  Out: the observed information, the inverse of which is a covariance where
the loss is a negative log-likelihood; and robust covariances.

    >>> import exprkit as ek, numpy as np
    >>> x, k = np.arange(1.0, 6)[:, None], np.array([2.0, 5, 6, 7, 12])
    >>> own, named = (ek.fit("p1 * x1", x, k, loss=loss, dtype="float64") for loss in ("f - y * log(f)", "poisson"))
    >>> np.round([own.standard_errors[0, 0], named.standard_errors[0, 0]], 4)
    array([0.3771, 0.3771])
"""

from __future__ import annotations

import functools

import numpy as np

from exprkit.backends.objective import KINDS
from exprkit.evaluate.evaluator import Evaluator
from exprkit.evaluate.prepared_loss import PreparedLoss
from exprkit.fitting.finishing.factors import second_derivatives
from exprkit.fitting.likelihood import SINGULAR, FitGoal, information, inverted, parts_of, points_of

ROUNDS = 3  # of the length of a difference: a tenth of the parameter, then of what it makes of the loss
SHARE = 1e-2  # of a standard error that a difference reaches
AGREE = 1e-2  # share by which one half as long may differ; else there is a kink near, or no curvature


def observed_information(ev: Evaluator, params: np.ndarray, goal: FitGoal) -> tuple[np.ndarray, np.ndarray]:
    """Second derivatives of a sum's loss, (n_exprs, P, P), nan where there are none; and the spread of its gradient.

    By differences of the exact gradient, each extrapolated from two lengths, in float64 on the CPU.
    """
    points, shape = points_of(ev.pop, goal), (*params.shape, params.shape[1])
    H, B = np.full(shape, np.nan), np.full(shape, np.nan)
    for part, p, ev64 in parts_of(ev.pop, points, params, max(params.shape[1], 1), ev.threads):
        n, J = p.shape[1], ev64.jacobian(p)
        gradient = functools.partial(_gradient, ev64.loss_of(np.zeros(len(points.y)), "sum", points.w))
        with np.errstate(all="ignore"):
            B[part, :n, :n] = np.einsum("epi,p,epj->eij", J, points.w**2, J)
            length = 0.1 * np.where(p == 0, 1.0, np.abs(p))
            for _ in range(ROUNDS):
                long, short = (second_derivatives(gradient, p, share * length) for share in (SHARE, SHARE / 2))
                curve = np.diagonal(short, axis1=1, axis2=2)
                length = np.where(curve > 0, 1 / np.sqrt(curve), length)
            size = np.sqrt(np.abs(curve[:, :, None] * curve[:, None, :]))
            second = np.where(np.abs(long - short) <= AGREE * size, (4 * short - long) / 3, np.nan)
        H[part, :n, :n] = (second + second.transpose(0, 2, 1)) / 2
    return H, B


def _gradient(step: PreparedLoss, p: np.ndarray) -> np.ndarray:
    return np.asarray(step.with_gradient(p)[1])


def curvature_covariance(ev: Evaluator, params: np.ndarray, goal: FitGoal, held: np.ndarray) -> np.ndarray:
    """The inverse of the observed information, (n_exprs, P, P)."""
    H = observed_information(ev, params, goal)[0]
    return inverted(ev.pop, H, held, SINGULAR["float64"], len(goal.y), None)


def robust_covariance(ev: Evaluator, params: np.ndarray, goal: FitGoal, held: np.ndarray) -> np.ndarray:
    """H^-1 B H^-1 with the loss's curvature H and the spread B of its gradient from point to point.

    Right for many points whatever their errors' distribution and however it varies (P. J. Huber, 5th Berkeley
    Symposium, 1967; H. White, Econometrica 50, 1982); nan for absolute errors.
    """
    if goal.loss == "mae" or goal.loss not in KINDS:
        return np.full((*params.shape, params.shape[1]), np.nan)
    H, B = (observed_information if goal.loss == "sum" else spread_of_slopes)(ev, params, goal)
    return inverted(ev.pop, H, held, SINGULAR["float64"], len(goal.y), None, B)


def spread_of_slopes(ev: Evaluator, params: np.ndarray, goal: FitGoal) -> tuple[np.ndarray, np.ndarray]:
    """J'QJ and J'(QR)^2 J of a loss that has a name; of squares Q holds the weights."""
    squares = goal.loss in ("squares", "gaussian")  # which are Huber's loss with all errors small
    return information(ev, params, goal._replace(loss="huber", delta=np.inf) if squares else goal)
