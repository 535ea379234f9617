"""Decisions of the Levenberg-Marquardt method after each evaluation: accept or reject, damping, and why to stop.

In: numbers of a fit.  Out: decisions, the same on every backend: the reference calls these functions, and they are
part of the steps (``levenberg_marquardt``) that are compiled for the CPU and translated for the GPU.

    >>> from exprkit.backends import objective
    >>> from exprkit.backends.decisions import first_reason
    >>> first_reason(1 << objective.FTOL | 1 << objective.GTOL) == objective.GTOL
    True

An evaluation is that of the start, of the step that solves the linear parameters, or of a damped step::

    accept it    the start; a step if the loss fell
    damp         after a damped step: times ``damped``'s factor if it was accepted, else DAMPING_INCREASE
    stop         for the first reason in ORDER that holds

=============  ===========================================================  ===================================
reason         holds if                                                     asked
=============  ===========================================================  ===================================
NO_PARAMETERS  there is nothing to fit                                      at the start
NO_DERIVATIVE  a parameter is inside an operator that has no derivative     at the start
NOT_FINITE     the loss is not finite                                       at the start
FLAT           no parameter is usable                                       where a step was accepted
GTOL           the loss slopes along none that can move                     where a step was accepted
FTOL           it ``is_settled``                                            after a damped step
MAX_ITER       ``is_enough``: so many steps were tried                      before a step
STUCK          the damping is above MOST_DAMPING                            before a step
XTOL           no parameter moves by more than tol (abs p + tol * unit)     before a step is evaluated
NO_SLOPE       a derivative is not finite: instead of FLAT, GTOL, FTOL      at the end
               and XTOL
=============  ===========================================================  ===================================

The unit of a parameter is how far it has to move to change the values as much as that parameter makes of them that
makes the most: ``max(abs p_m sqrt(J'J_mm)) / sqrt(J'J_jj)``.  So a parameter of 1e-22 is as good as one of 1, and one
whose best value is 0 ends as well.

FLAT and GTOL of the start are asked only after the step that solves the linear parameters, if there is one.
A step whose equations have no solution counts as one that was tried: times DAMPING_INCREASE, and the next one.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from exprkit.backends import objective
from exprkit.expressions.population import Population

ORDER = (
    objective.NO_PARAMETERS,
    objective.NO_DERIVATIVE,
    objective.NOT_FINITE,
    objective.FLAT,
    objective.GTOL,
    objective.FTOL,
    objective.MAX_ITER,
    objective.STUCK,
    objective.XTOL,
)
RUNNING = 255  # no reason holds
AT_START, AT_LINEAR_STEP, AT_STEP = range(3)  # what is evaluated

# data/results/fit_steps.md: what others reach
FIRST_DAMPING, LEAST_DAMPING, MOST_DAMPING = 0.1, 1e-8, 1e16
DAMPING_INCREASE = 4.0  # factor of the damping after a rejected step
DAMPING_DECREASE = 0.1  # the least factor after an accepted one
SCALE_DECAY = 0.1  # per step, of the running maximum of diag(J'J), which scales the damping
LINEAR_DAMPING = 1e-4  # factor of the damping of parameters that the expression is linear in


def verdicts(pop: Population, differentiable: np.ndarray) -> np.ndarray:
    """RUNNING for each expression that can be fitted, or why it can't."""
    why = np.full(len(pop), RUNNING, np.uint8)
    why[~differentiable] = objective.NO_DERIVATIVE
    why[pop.n_params == 0] = objective.NO_PARAMETERS
    why[~pop.valid] = objective.INVALID
    return why


def first_reason(holds: int) -> int:
    """The first in ``ORDER`` of the reasons whose bit is set in ``holds``, or RUNNING."""
    for reason in ORDER:
        if holds >> reason & 1:
            return reason
    return RUNNING


def damped(damping: float, gain: float, predicted: float) -> float:
    """The damping after a step that took ``gain`` off the loss, where the model predicted so much.

    After a step that helped it is lowered, the more the better the model predicted it (Nielsen).
    """
    factor = DAMPING_INCREASE
    if gain > 0.0 and predicted > 0.0:
        way = 2.0 * gain * inverse(predicted) - 1.0
        factor = 1.0 - way * way * way
        if not factor > DAMPING_DECREASE:
            factor = DAMPING_DECREASE
    after = damping * factor
    return after if after > LEAST_DAMPING else LEAST_DAMPING


@register_jitable(error_model="numpy")
def inverse(a: float) -> float:
    """1 / a."""
    return 1.0 / a


def is_settled(loss: float, gain: float, predicted: float, tol: float) -> bool:
    """The loss fell by a share of at most ``tol``, and the model promised no more either."""
    return not gain > tol * loss and predicted >= 0.0 and predicted <= tol * loss


def is_enough(steps: int, max_iter: int, loss: float, limit: float, patience: int) -> bool:
    """Whether enough steps were tried: ``max_iter``, or ``patience`` where the loss is above its limit."""
    return steps >= max_iter or (steps >= patience and loss > limit)


def final_reason(reason: int, finite: bool) -> int:
    """The reason, unless it is one of success and the derivatives are not all finite."""
    return objective.NO_SLOPE if reason in objective.CONVERGED and not finite else reason
