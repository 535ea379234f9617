"""Sums of monomials by the weak form: integrals against test functions, by which noise is not differentiated.

In: trajectories.  Out: formulas of the highest derivatives.

For a function phi that is 0 at both ends of an interval, the integral of phi f(x) there is, for x' = f(x), that of
-phi' x, and for x'' = f(x) that of phi'' x: a linear regression for the numbers of a sum, whose left side needs no
derivative of x (D. A. Messenger and D. M. Bortz, Multiscale Modeling & Simulation 19, 2021).
"""

from __future__ import annotations

import itertools
import math
from operator import itemgetter

import numpy as np
from numpy.polynomial import Polynomial

from exprkit.dynamics.terms import monomials
from exprkit.dynamics.trajectories import Trajectory
from exprkit.expressions.expression import Expression
from exprkit.regression.formulas.front import NATS_PER_NUMBER, NATS_PER_TOKEN
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.trees import combination, expression_of, tree_of
from exprkit.regression.formulas.values import values_of

# Chosen, not measured.
DEGREE = 3  # of the monomials
POWER = 6  # of 1 - s^2, which is the test function for s from -1 to 1
WIDTHS = (12, 6, 24)  # intervals between measurements, of half a test function; numbers are those of the first
MOST_SUMS = 60_000  # that are compared: of four states sums of four monomials
MOST_TERMS = 5
KEPT = 4  # sums of a state
RIDGE = 1e-12  # of correlations: monomials that are the same along the trajectories do no harm


def weak_sums(runs: list[Trajectory], order: int, has_time: bool) -> list[list[Expression]]:
    """For each state the sums of monomials that describe its derivative of this order shortest."""
    columns = [np.concatenate([run.smooth, run.u, *([run.t[:, None]] * has_time)], axis=1) for run in runs]
    terms, d = monomials(columns[0].shape[1], DEGREE), runs[0].x.shape[1] // order
    values = [values_of(terms, own).T for own in columns]
    by_width: list[tuple[int, np.ndarray, np.ndarray]] = []
    for width in WIDTHS:
        long = [(run, own) for run, own in zip(runs, values, strict=True) if len(run.t) > 2 * width]
        parts = [_integrals(run, own, order, width) for run, own in long]
        if parts:
            by_width.append((width, np.concatenate([left for left, _ in parts]), np.concatenate([r for _, r in parts])))
    return [_shortest([(width, left, right[:, k]) for width, left, right in by_width], terms) for k in range(d)]


def _integrals(run: Trajectory, values: np.ndarray, order: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Integrals of the test functions times terms, (n, n_terms), and of their derivatives times states, (n, n_states).

    The functions begin at each measurement that is far enough from the end.
    """
    phi = Polynomial([1, 0, -1]) ** POWER
    begins = np.arange(len(run.t) - 2 * width)[:, None]
    at = begins + np.arange(2 * width + 1)
    t = run.t[at]
    half = (t[:, -1:] - t[:, :1]) / 2
    s, steps = (t - t[:, :1]) / half - 1, np.gradient(t, axis=1)
    left = np.einsum("ij,ijk->ik", phi(s) * steps, values[at])
    slope = (-1) ** order * phi.deriv(order)(s) / half**order * steps
    return left, np.einsum("ij,ijk->ik", slope, run.x[at][..., : run.x.shape[1] // order])


def _shortest(by_width: list[tuple[int, np.ndarray, np.ndarray]], terms: list[Expression]) -> list[Expression]:
    """The sums that describe the integrals of all widths shortest, with numbers of the first.

    Integrals of functions that overlap tell less: as many as there are halves of a width in the rows.
    """
    tokens = np.array([term.n_tokens for term in terms])
    regressions = []
    for width, left, right in by_width:
        size = np.linalg.norm(left, axis=0)
        size[~(size > 0)] = 1.0
        scaled, share = left / size, len(right) / width / len(by_width)
        regressions.append((share, size, scaled.T @ scaled, scaled.T @ right, float(right @ right)))
    choices: list[tuple[float, np.ndarray, np.ndarray]] = []
    for k in range(1, min(MOST_TERMS, len(terms)) + 1 if by_width else 1):
        if math.comb(len(terms), k) > MOST_SUMS:
            break
        sets = np.array(list(itertools.combinations(range(len(terms)), k)))
        nats = NATS_PER_TOKEN * (tokens[sets].sum(axis=1) + 3 * k - 1) + NATS_PER_NUMBER * k
        every = []
        for share, size, gram, target, square in regressions:
            own = np.linalg.solve(gram[sets[:, :, None], sets[:, None, :]] + RIDGE * np.eye(k), target[sets][..., None])
            loss = np.maximum(square - np.sum(own[..., 0] * target[sets], axis=1), RIDGE * square)
            nats = nats + share * np.log(loss)
            every.append(own[..., 0] / size[sets])
        best = np.argsort(nats, kind="stable")[:KEPT]
        choices += zip(nats[best].tolist(), sets[best], every[0][best], strict=True)
    sums = []
    for _, own_terms, numbers in sorted(choices, key=itemgetter(0))[:KEPT]:
        pairs = zip(numbers.tolist(), (tree_of(terms[k]) for k in own_terms), strict=True)
        sums.append(simplified(expression_of(combination(pairs))))
    return sums
