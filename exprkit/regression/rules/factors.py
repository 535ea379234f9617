"""Variables of which y is a power, whatever the others are: ``y = x1 / x2^2 * F(x3, x4)``, by a test of independence.

In: a ``Sample``.  Out: ``UnitSystem`` that take such variables for units, so that formulas of the others are left.

    >>> import numpy as np
    >>> from exprkit.regression.rules.factors import power_factors
    >>> from exprkit.regression.problem.sample import Sample
    >>> X = np.random.default_rng(0).uniform(1, 9, (300, 4))
    >>> y = X[:, 0] / X[:, 1] ** 2 * np.log(1 + X[:, 2] * X[:, 3])
    >>> [(one.repeating, one.y_powers) for one in power_factors(Sample(X, y))][0]
    ((0, 1), (1.0, -2.0))

How, plainly, for every variable: log |y| is regressed on its logarithm, and on simple functions of the others.  Its
power is the coefficient, if that is a multiple of one half but for its error, and if products of its logarithm with
functions of the others, and its square, explain no more than accident does.  Noise in y widens the errors alone.
"""

from __future__ import annotations

import itertools

import numpy as np

from exprkit.regression.problem.sample import Sample
from exprkit.regression.rules.groups import UnitSystem

STEP, LARGEST = 0.5, 4.0  # of powers
ERRORS, UNSURE = 3.0, 0.06  # standard errors that a power may be off; the largest one
EXPLAINED = 4.0  # times what accident explains per function
ROWS, FEWEST = 2_000, 60  # of the sample
OUTLYING = 3.5  # times the usual residual: where y is near 0, its logarithm says little
GIVEN = 3  # sets of variables


def power_factors(sample: Sample) -> list[UnitSystem]:
    """All such variables first, then without those that are least sure; none where all that is left is a number."""
    few = sample.subsample(min(ROWS, len(sample)), 0)
    fine = few.y != 0
    X, n = few.X[fine], few.X.shape[1]
    if len(X) < FEWEST or n < 2:
        return []
    with np.errstate(all="ignore"):
        v, logs = np.log(np.abs(few.y[fine])), np.log(np.abs(X))
    known = [k for k in range(n) if np.isfinite(logs[:, k]).all() and np.ptp(logs[:, k]) > 0]
    of = [_functions(X[:, k], logs[:, k]) for k in range(n)]
    found = [(*one, k) for k in known if (one := _power(v, logs[:, k], of, k, bool((X[:, k] > 0).all()))) is not None]
    found.sort()
    sets = (found[: len(found) - less] for less in range(min(GIVEN, len(found))))
    return [_unit_system({k: power for _, power, k in some}, n) for some in sets if len(some) < n]


def _unit_system(powers: dict[int, float], n: int) -> UnitSystem:
    chosen = tuple(sorted(powers))
    others = tuple(k for k in range(n) if k not in powers)
    none = (0.0,) * len(chosen)
    return UnitSystem(chosen, others, (none,) * len(others), tuple(powers[k] for k in chosen), n)


def _functions(x: np.ndarray, log: np.ndarray) -> list[np.ndarray]:
    """Of one variable: its logarithm, the variable and its square, with mean 0 and of size 1."""
    with np.errstate(all="ignore"):
        u = (x - x.mean()) / x.std()
        made = [log - log.mean(), u, u**2 - 1]
    return [one for one in made if np.isfinite(one).all() and one.any()]


def _power(
    v: np.ndarray, log: np.ndarray, of: list[list[np.ndarray]], k: int, is_positive: bool
) -> tuple[float, float] | None:  # fmt: skip
    """How much more than accident speaks against it, and the power; None where it is none."""
    others = [some for i, some in enumerate(of) if i != k and some]
    beside = [one for some in others for one in some]
    beside += [a[0] * b[0] for a, b in itertools.combinations(others, 2)]
    own = log - log.mean()
    plain = np.column_stack([own, np.ones(len(v)), *beside])
    more = np.column_stack([own**2 - np.mean(own**2), *(own * some[0] for some in others)])
    rows = np.ones(len(v), bool)
    for _ in range(3):
        fit = np.linalg.lstsq(plain[rows], v[rows], rcond=None)[0]
        rest = v - plain @ fit
        usual = np.median(np.abs(rest[rows] - np.median(rest[rows]))) / 0.6745
        rows = np.abs(rest - np.median(rest[rows])) <= OUTLYING * usual
        if rows.sum() < 2 * (plain.shape[1] + more.shape[1]) + 10:
            return None
    fit = np.linalg.lstsq(plain[rows], v[rows], rcond=None)[0]
    left = rows.sum() - plain.shape[1] - more.shape[1]
    squares = float(np.sum((v[rows] - plain[rows] @ fit) ** 2))
    both = np.column_stack([plain, more])[rows]
    square = float(np.sum((v[rows] - both @ np.linalg.lstsq(both, v[rows], rcond=None)[0]) ** 2))
    variance = square / left
    inverse = np.linalg.pinv(plain[rows].T @ plain[rows])
    error = float(np.sqrt(variance * inverse[0, 0]))
    step = STEP if is_positive else 1.0
    power = float(np.round(fit[0] / step) * step)
    if error > UNSURE or power == 0 or abs(power) > LARGEST or abs(fit[0] - power) > max(ERRORS * error, 1e-9):
        return None
    against = (squares - square) / more.shape[1] / max(variance, 1e-300)
    return (against, power) if against < EXPLAINED or squares < 1e-18 * np.sum(v**2) else None
