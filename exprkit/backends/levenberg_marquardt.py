"""The steps of the Levenberg-Marquardt method for one fit: one source for the CPU and for CUDA kernels.

In: the state of a fit, what it has to keep to, and loss, J'r and J'J at the trial.  Out: the next trial, or why the
fit ends.  The CPU's loop compiles these functions; ``dual_opcodes`` translates them for ``fit.cu``.  What is accepted,
how the damping changes and why a fit ends is the table of ``decisions``; ``reference`` says the same in NumPy.

    >>> import exprkit as ek, numpy as np
    >>> from exprkit.backends.levenberg_marquardt import advance, begin
    >>> begin.py_func.__name__, advance.py_func.__name__
    ('begin', 'advance')

A fit has these arrays, of n parameters; matrices are symmetric, their lower triangle is used::

    progress  1: damping, the fall of the loss that the model predicts, phase, iterations, evaluations
    loss      1: at p
    p  trial  parameters: where the fit stands, and what is evaluated next
    step      from p to the trial
    scale     the decaying maximum of the diagonal of J'J
    jtr  jtj  J'r and J'J at p
    factor    of J'J + damping D = L D L': L times its pivots below the diagonal, on it their inverses, or 0 for what
              takes no part

and ``terms`` says what it has to keep to: n, lower, upper, bounded, linear (bits of the parameters that the expression
is linear in), verdict (RUNNING, or why nothing is to be fitted), tol, gtol, max_iter, limit, patience.

Bits: a GPU's ``inverse`` differs from 1 / a in the last place, and it rounds a trial to the type of the data; all else
is the same arithmetic, with the same fused products.  What stays in ``fit.cu`` is of the GPU: lanes, shared memory,
registers, and where a block's fits lie.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from exprkit.backends import decisions, objective
from exprkit.backends.decisions import AT_LINEAR_STEP, AT_START, AT_STEP, LEAST_DAMPING, RUNNING
from exprkit.runtime.intrinsics import fma
from exprkit.runtime.jit import compiled

MOST = float(np.finfo(np.float64).max)
ALL = np.uint64(2**64 - 1)  # a mask of all parameters, also of those that have no bit

inline = compiled(forceinline=True, error_model="numpy")  # division by 0 gives inf or nan, as in C
first_reason, final_reason, inverse = map(inline, (decisions.first_reason, decisions.final_reason, decisions.inverse))
damped, is_settled, is_enough = map(inline, (decisions.damped, decisions.is_settled, decisions.is_enough))


@inline
def begin(fit, terms, start, n_params):
    """Set a fit to its start, within the bounds; parameters beyond ``n_params`` are 0."""
    fit.progress[0].damping = decisions.FIRST_DAMPING
    fit.progress[0].iterations = fit.progress[0].evaluations = 0
    fit.progress[0].phase = AT_START
    for i in range(terms.n):
        fit.trial[i] = nearest(terms, start[i], i) if i < n_params else 0.0


@inline
def advance(fit, terms, sums, new):
    """Take in the loss ``new`` and the equations ``sums`` of the trial, find the next one; RUNNING, or why it ends."""
    fit.progress[0].evaluations += 1
    phase, loss, holds, status = fit.progress[0].phase, fit.loss[0], 0, RUNNING
    taken = phase == AT_START or new < loss
    if phase == AT_STEP:
        gain, predicted = loss - new, fit.progress[0].predicted
        taken = gain > 0.0 and is_finite(new)
        holds = is_settled(loss, gain, predicted, terms.tol) << objective.FTOL
        fit.progress[0].damping = damped(fit.progress[0].damping, gain, predicted)
    if taken:
        accept(fit, terms, sums, new, phase != AT_STEP)
    if phase != AT_STEP:
        status = first_reason((not is_finite(fit.loss[0])) << objective.NOT_FINITE)
        status = status if terms.verdict == RUNNING else terms.verdict
    fit.progress[0].phase = AT_STEP
    if status == RUNNING:
        by_linear = phase == AT_START and terms.linear != np.uint64(0)
        status = propose(fit, terms, by_linear, holds, taken or phase != AT_STEP)
    if terms.verdict == RUNNING and status != objective.NOT_FINITE:
        status = final_reason(status, all_finite(fit, terms))
    return status


@inline
def accept(fit, terms, sums, new, anew):
    """Make the trial the point where the fit stands; ``anew``: the scale forgets what it was before."""
    fit.loss[0] = new
    for i in range(terms.n):
        fit.p[i] = fit.trial[i]
    keep_equations(fit, terms, sums)
    for i in range(terms.n):
        diagonal = fit.jtj[i, i] if is_finite(fit.jtj[i, i]) else 0.0
        fit.scale[i] = diagonal if anew else max(decisions.SCALE_DECAY * fit.scale[i], diagonal)


@inline
def keep_equations(fit, terms, sums):
    """Copy J'r, and J'J column by column of its lower triangle."""
    k = terms.n
    for i in range(terms.n):
        fit.jtr[i] = sums[i]
        for j in range(i, terms.n):
            fit.jtj[j, i] = sums[k]
            k += 1


@inline
def propose(fit, terms, by_linear, holds, is_new):
    """Find the next trial; RUNNING, or why there is none.

    At first one of the linear parameters alone, if ``by_linear``, else of all.  ``holds``: bits of the reasons to
    end; ``is_new``: whether the slope was not yet looked at.  ``solve`` stands here once: in a warp lanes with other
    fits run its long code together.
    """
    while True:
        if not by_linear:
            if is_new:
                holds |= stationary(fit, terms)
            is_new = False
            status = first_reason(holds | last_step(fit, terms))
            if status != RUNNING:
                return status
            fit.progress[0].iterations += 1
        damping = LEAST_DAMPING if by_linear else fit.progress[0].damping
        solved = solve(fit, terms, damping, terms.linear if by_linear else ALL)
        if solved:
            make_trial(fit, terms)
        if by_linear and solved and moves(fit, terms):
            fit.progress[0].phase = AT_LINEAR_STEP
            return RUNNING
        if not by_linear and solved:
            return first_reason(is_still(fit, terms) << objective.XTOL)
        if not by_linear:
            fit.progress[0].damping *= decisions.DAMPING_INCREASE
        by_linear = False


@inline
def last_step(fit, terms):
    """The bits of the reasons why there may be no other step."""
    now = fit.progress[0].iterations
    enough = is_enough(now, terms.max_iter, fit.loss[0], terms.limit, terms.patience)
    stuck = not fit.progress[0].damping <= decisions.MOST_DAMPING
    return enough << objective.MAX_ITER | stuck << objective.STUCK


@inline
def stationary(fit, terms):
    """The bit of GTOL if the loss slopes along no parameter that can move, or that of FLAT if none is usable."""
    flat, usable = True, False
    for i in range(terms.n):
        most = terms.gtol * terms.gtol * fit.jtj[i, i] * fit.loss[0]
        if can_move(fit, terms, i) and not (fit.jtr[i] * fit.jtr[i] <= most and is_finite(most)):
            flat = False
    if not (flat or fit.loss[0] == 0.0):
        return 0
    for i in range(terms.n):
        usable |= is_usable(fit, i)
    return 1 << objective.GTOL if usable else 1 << objective.FLAT


@inline
def solve(fit, terms, damping, mask):
    """The damped step of the parameters that can move and that ``mask`` allows, 0 for others; False: no solution.

    Where the way meets a bound, that parameter stays there and the rest is solved anew for the others; the trial
    holds how far all have come.
    """
    onward, left = False, True
    while left:
        if not solve_once(fit, terms, damping, mask, onward):
            return False
        if not terms.bounded:
            return True
        share = 1.0
        for i in range(terms.n):
            if not onward:
                fit.trial[i] = 0.0
            reach = share_of_step(fit, terms, i)
            if reach < share:
                share = reach
        left = False
        for i in range(terms.n):
            if fit.factor[i, i] > 0.0:
                if share < 1.0 and share_of_step(fit, terms, i) <= share:
                    fit.trial[i] = (terms.upper[i] if fit.step[i] > 0.0 else terms.lower[i]) - fit.p[i]
                    fit.factor[i, i] = 0.0
                else:
                    fit.trial[i] = fma(share, fit.step[i], fit.trial[i])
                    left |= share < 1.0
        onward = True
    for i in range(terms.n):
        fit.step[i] = fit.trial[i]
    return True


@inline
def solve_once(fit, terms, damping, mask, onward):
    """Solve (J'J + damping D) step = -J'r by Cholesky's method without roots; False if that is not definite.

    ``onward``: what takes part is known, and the step begins where the trial stands beside p.
    """
    for i in range(terms.n):
        takes_part = fit.factor[i, i] > 0.0 if onward else can_move(fit, terms, i) and (mask == ALL or is_in(mask, i))
        share = decisions.LINEAR_DAMPING if is_in(terms.linear, i) else 1.0
        rest = -fit.jtr[i] if takes_part else 0.0
        pivot = fma(damping * share, fit.scale[i], fit.jtj[i, i])
        if onward and takes_part:
            rest -= slope_of_trial(fit, terms, i, pivot)
        for j in range(i):
            left = fit.jtj[i, j] if takes_part and fit.factor[j, j] > 0.0 else 0.0
            for k in range(j):
                left = fma(-fit.factor[i, k], fit.factor[j, k] * fit.factor[k, k], left)
            fit.factor[i, j] = left
            multiple = left * fit.factor[j, j]  # its square may overflow where this does not
            pivot = fma(-left, multiple, pivot)
            rest = fma(-multiple, fit.step[j], rest)
        fit.step[i] = rest
        fit.factor[i, i] = inverse(pivot) if takes_part else 0.0
        if takes_part and not (pivot > 0.0 and is_finite(fit.factor[i, i])):
            return False
    for i in range(terms.n - 1, -1, -1):
        rest = fit.step[i]
        for k in range(i + 1, terms.n):
            rest = fma(-fit.factor[k, i], fit.step[k], rest)
        fit.step[i] = fit.factor[i, i] * rest
        if not is_finite(fit.step[i]):
            return False
    return True


@inline
def slope_of_trial(fit, terms, i, pivot) -> float:
    """The trial's part of a parameter's J'r, as far as it stands beside p; ``pivot``: its damped diagonal."""
    slope = pivot * fit.trial[i] if fit.trial[i] != 0.0 else 0.0
    for j in range(terms.n):
        if j != i and fit.trial[j] != 0.0:
            slope = fma(fit.jtj[max(i, j), min(i, j)], fit.trial[j], slope)
    return slope


@inline
def share_of_step(fit, terms, i) -> float:
    """How much of its step a parameter can go from where the trial stands until it meets a bound; 1 or more: all."""
    step = fit.step[i]
    if not fit.factor[i, i] > 0.0 or step == 0.0:
        return 1.0
    return ((terms.upper[i] if step > 0.0 else terms.lower[i]) - fit.p[i] - fit.trial[i]) / step


@inline
def make_trial(fit, terms):
    """Make the trial, the step that really leads there, and the fall of the loss that the model predicts."""
    predicted = 0.0
    for i in range(terms.n):
        fit.trial[i] = after_step(terms, fit.p[i], fit.step[i], i)
        fit.step[i] = fit.trial[i] - fit.p[i]
        if fit.step[i] != 0.0:  # others may have derivatives that are not finite
            row = fit.jtr[i]
            for j in range(i):
                if fit.step[j] != 0.0:
                    row = fma(fit.jtj[i, j], fit.step[j], row)
            predicted = fma(-2.0 * fit.step[i], row + 0.5 * fit.jtj[i, i] * fit.step[i], predicted)
    fit.progress[0].predicted = predicted


@inline
def after_step(terms, p, step, i) -> float:
    """A parameter after a step, exactly at a bound that the step meets."""
    if terms.bounded and step >= terms.upper[i] - p:
        return terms.upper[i]
    if terms.bounded and step <= terms.lower[i] - p:
        return terms.lower[i]
    return nearest(terms, p + step, i)


@inline
def nearest(terms, p, i) -> float:
    """The number within the bounds of a parameter that is next to p; nan stays."""
    value = as_evaluated(p)
    value = terms.lower[i] if value < terms.lower[i] else value
    return terms.upper[i] if value > terms.upper[i] else value


@inline
def as_evaluated(p) -> float:
    """A parameter as it is evaluated: here float64; a GPU rounds it to the type of the data."""
    return p


@inline
def is_still(fit, terms):
    """Whether no parameter moves by more than its tolerance."""
    share, still = 0.0, True  # of the values that the parameters make: the largest, squared
    for i in range(terms.n):
        part = fit.p[i] * fit.p[i] * fit.jtj[i, i]
        if part > share and is_finite(part):
            share = part
    for i in range(terms.n):
        if fit.step[i] != 0.0:
            unit = np.sqrt(share / fit.jtj[i, i])
            if not abs(fit.step[i]) <= terms.tol * (abs(fit.p[i]) + terms.tol * unit):
                still = False
    return still


@inline
def moves(fit, terms):
    """Whether any parameter has a step."""
    anything = False
    for i in range(terms.n):
        anything |= fit.step[i] != 0.0
    return anything


@inline
def can_move(fit, terms, i):
    """Whether a parameter is usable, and not at a bound that the loss pushes against."""
    p, slope = fit.p[i], fit.jtr[i]
    held = (p <= terms.lower[i] and slope > 0.0) or (p >= terms.upper[i] and slope < 0.0)
    return is_usable(fit, i) and not held


@inline
def is_usable(fit, i):
    """Whether a parameter changes the values, and its derivatives are finite."""
    return fit.jtj[i, i] > 0.0 and is_finite(fit.jtj[i, i]) and is_finite(fit.jtr[i])


@inline
def all_finite(fit, terms):
    """Whether all derivatives are."""
    finite = True
    for i in range(terms.n):
        finite &= is_finite(fit.jtj[i, i]) and is_finite(fit.jtr[i])
    return finite


@inline
def is_in(mask, i):
    """Whether bit i is set."""
    return i < 64 and (mask >> np.uint64(i)) & np.uint64(1) != np.uint64(0)


@inline
def is_finite(a):
    """Whether a number is neither inf nor nan."""
    return abs(a) <= MOST
