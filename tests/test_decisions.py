"""Levenberg-Marquardt's decisions: the reference and the compiled steps decide alike in every state.

A fit of one parameter is put into every combination of the conditions that the table of ``decisions`` names; each
takes in an evaluation (``advance``) and what it accepts, damps, proposes and ends with is compared.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from exprkit.backends import decisions, objective
from exprkit.backends.cpu import levenberg_marquardt as cpu_fits
from exprkit.backends.cpu import loop
from exprkit.backends.decisions import AT_LINEAR_STEP, AT_START, AT_STEP, ORDER, RUNNING
from exprkit.backends.levenberg_marquardt import advance, first_reason
from exprkit.backends.objective import Options
from exprkit.backends.reference import levenberg_marquardt as reference_fits

MAX_ITER, PATIENCE, LOSS, TOL, GTOL = 9, 8, 2.0, 1e-4, 1e-6
LOSSES = 0.5, LOSS * (1 - 1e-6), LOSS, LOSS * (1 + 1e-6), 7.0, 1e-200, np.inf, np.nan  # of the trial
SUMS = (3.0, 4.0), (0.0, 4.0), (1e-6, 4.0), (0.0, 0.0), (3.0, 0.0), (np.nan, 4.0), (3.0, np.inf), (3.0, 1e300)
GAINS = 1.5, 1e-5, 0.0, -1.0, np.nan  # that the model predicted
DAMPINGS = decisions.LEAST_DAMPING, 0.1, decisions.MOST_DAMPING, 2 * decisions.MOST_DAMPING
BOUNDS = (-np.inf, np.inf, np.inf), (0.7, np.inf, np.inf), (-np.inf, 0.7, np.inf), (-np.inf, np.inf, 1.0)  # and limit
STATES = [
    dict(zip(("phase", "new", "sums", "damping", "iterations", "linear", "bounds", "predicted"), state, strict=True))
    for phase, gains in ((AT_START, GAINS[:1]), (AT_LINEAR_STEP, GAINS[:1]), (AT_STEP, GAINS))
    for state in itertools.product(
        (phase,), LOSSES, SUMS, DAMPINGS, (MAX_ITER - 1, MAX_ITER), (False, True), BOUNDS, gains
    )
]
P, TRIAL, JTR, JTJ = 1.0, 0.7, 2.0, 3.0  # before; the sums of the trial are those of a state


def by_reference(state, differentiable=True):
    terms = reference_fits.Terms(
        Options(max_iter=MAX_ITER, tol=TOL, gtol=GTOL, patience=PATIENCE), *np.array(state["bounds"][:2])[:, None],
        np.array([state["linear"]]), differentiable, state["bounds"][2],
    )  # fmt: skip
    fit = reference_fits.LevenbergMarquardt(None, np.ones(1), np.ones(1), terms, np.array([P]))
    fit.trial, fit.phase, fit.damping = np.array([TRIAL]), state["phase"], state["damping"]
    fit.iterations, fit.predicted = state["iterations"], np.float64(state["predicted"])
    fit.now, fit.scale = reference_fits.Equations(LOSS, np.array([JTR]), np.array([[JTJ]])), np.array([JTJ])
    jtr, jtj = state["sums"]
    with np.errstate(all="ignore"):
        status = fit.advance(reference_fits.Equations(state["new"], np.array([jtr]), np.array([[jtj]])))
    return status, fit.phase, fit.iterations, fit.damping, fit.p[0], fit.now.loss, fit.trial[0]


def by_compiled(state, verdict=RUNNING):
    lower, upper, limit = np.array(state["bounds"])[:, None]
    terms = cpu_fits.FitTerms(
        1, lower, upper, True, np.uint64(state["linear"]), verdict, MAX_ITER, limit[0], PATIENCE, TOL, GTOL
    )
    memory = np.zeros(loop.state_size(1))
    fit = cpu_fits.state_of(memory, 1)
    fit.loss[0], fit.p[0], fit.trial[0], fit.jtr[0], fit.jtj[0, 0], fit.scale[0] = LOSS, P, TRIAL, JTR, JTJ, JTJ
    now = fit.progress[0]
    for name in ("phase", "damping", "iterations", "predicted"):
        now[name] = state[name]
    status = advance(fit, terms, np.array(state["sums"]), state["new"])
    return status, now["phase"], now["iterations"], now["damping"], fit.p[0], fit.loss[0], fit.trial[0]


def compare(states, found, wanted):
    """All that was decided; of a fit that ended the trial does not count."""
    assert len(found) == len(wanted) == len(states)
    for state, one, other in zip(states, found, wanted, strict=True):
        assert one[0] == other[0], state
        n = 7 if one[0] in (RUNNING, objective.XTOL) else 6
        np.testing.assert_allclose(one[1:n], other[1:n], rtol=1e-9, err_msg=str(state))


def test_the_states_meet_every_reason():
    reasons = {by_reference(state)[0] for state in STATES[::7]}
    assert reasons == {*ORDER, objective.NO_SLOPE, RUNNING} - {objective.NO_PARAMETERS, objective.NO_DERIVATIVE}


@pytest.mark.slow
def test_the_compiled_steps_decide_as_the_reference():
    compare(STATES, [by_compiled(state) for state in STATES], [by_reference(state) for state in STATES])


def test_what_is_not_to_be_fitted_ends_at_its_start():
    states = [state for state in STATES if state["phase"] == AT_START][::11]
    assert {by_reference(state, differentiable=False)[0] for state in states} == {objective.NO_DERIVATIVE}
    assert {by_compiled(state, objective.NO_DERIVATIVE)[0] for state in states} == {objective.NO_DERIVATIVE}


def test_the_first_reason_that_holds_counts():
    for holds in range(1 << 12):
        reasons = [reason for reason in ORDER if holds >> reason & 1]
        assert decisions.first_reason(holds) == first_reason(holds) == (reasons or [RUNNING])[0]
