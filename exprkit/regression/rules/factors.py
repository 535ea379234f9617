"""Power factors: variables of which y is a power, ``y = x1 / x2^2 * F(x3, x4)``, by a regression of logarithms.

In: ``Rows``.  Out: unit systems with such variables as the repeating ones, so that formulas of the others remain.

    >>> import numpy as np
    >>> from exprkit.regression.rules.factors import power_factors
    >>> from exprkit.regression.problem.rows import Rows
    >>> X = np.random.default_rng(0).uniform(1, 9, (300, 4))
    >>> y = X[:, 0] / X[:, 1] ** 2 * np.log(1 + X[:, 2] * X[:, 3])
    >>> [(system.repeating, system.y_powers) for system in power_factors(Rows(X, y))][0]
    ((0, 1), (1.0, -2.0))

For every variable log |y| is regressed on its logarithm and on simple functions of the others.  Its power is the
coefficient, if that is a multiple of one half within its standard error, and if an F test finds no interaction:
products of its logarithm with functions of the others, and its square.  Noise in y widens the standard errors alone.
"""

from __future__ import annotations

import itertools

import numpy as np

from exprkit.regression.problem.rows import Rows
from exprkit.regression.rules.groups import UnitSystem

# Chosen, not measured, unless a source is given.
STEP = 0.5  # between powers
MAX_POWER = 4.0
MAX_SCORE = 3.0  # standard errors between a coefficient and its power
MAX_STANDARD_ERROR = 0.06  # of a power; a true factor had 0.043, a false one 0.044 (data/results/laws.md)
MAX_F = 4.0  # F statistic of the interactions
MAX_ROWS = 2_000  # of the data
MIN_ROWS = 60
MAX_RESIDUAL = 3.5  # robust standard deviations: where y is near 0, its logarithm says little
MAX_SYSTEMS = 3  # unit systems that are returned


def power_factors(rows: Rows) -> list[UnitSystem]:
    """Unit systems of all power factors, then without those of the largest F; each leaves a variable at least."""
    part = rows.subsample(min(MAX_ROWS, len(rows)), 0)
    is_nonzero = part.y != 0
    X, n = part.X[is_nonzero], part.X.shape[1]
    if len(X) < MIN_ROWS or n < 2:
        return []
    with np.errstate(all="ignore"):
        v, logs = np.log(np.abs(part.y[is_nonzero])), np.log(np.abs(X))
    functions = [_functions(X[:, k], logs[:, k]) for k in range(n)]
    factors = []
    for k in range(n):
        if np.isfinite(logs[:, k]).all() and np.ptp(logs[:, k]) > 0:
            power = _power(v, logs[:, k], functions, k, bool((X[:, k] > 0).all()))
            factors += [] if power is None else [(*power, k)]
    factors.sort()
    subsets = (factors[: len(factors) - n_less] for n_less in range(min(MAX_SYSTEMS, len(factors))))
    return [_unit_system({k: power for _, power, k in subset}, n) for subset in subsets if len(subset) < n]


def _unit_system(powers: dict[int, float], n: int) -> UnitSystem:
    """The unit system with these powers of y, by variable, in which all other variables are dimensionless."""
    repeating = tuple(sorted(powers))
    remaining = tuple(k for k in range(n) if k not in powers)
    dimensionless = (0.0,) * len(repeating)
    return UnitSystem(repeating, remaining, (dimensionless,) * len(remaining), tuple(powers[k] for k in repeating), n)


def _functions(x: np.ndarray, log: np.ndarray) -> list[np.ndarray]:
    """The regressors of one variable: its logarithm, itself and its square, centred, (n_rows,) each, if finite."""
    with np.errstate(all="ignore"):
        u = (x - x.mean()) / x.std()
        regressors = [log - log.mean(), u, u**2 - 1]
    return [column for column in regressors if np.isfinite(column).all() and column.any()]


def _power(
    v: np.ndarray, log: np.ndarray, functions: list[list[np.ndarray]], k: int, is_positive: bool
) -> tuple[float, float] | None:
    """The F statistic of interactions, and variable k's power; None where y is no power of it."""
    others = [columns for i, columns in enumerate(functions) if i != k and columns]
    regressors = [column for columns in others for column in columns]
    regressors += [a[0] * b[0] for a, b in itertools.combinations(others, 2)]
    centred = log - log.mean()
    plain = np.column_stack([centred, np.ones(len(v)), *regressors])
    interactions = np.column_stack([centred**2 - np.mean(centred**2), *(centred * columns[0] for columns in others)])
    rows = np.ones(len(v), bool)
    for _ in range(3):
        fit = np.linalg.lstsq(plain[rows], v[rows], rcond=None)[0]
        residuals = v - plain @ fit
        deviation = np.median(np.abs(residuals[rows] - np.median(residuals[rows]))) / 0.6745  # robust: MAD
        rows = np.abs(residuals - np.median(residuals[rows])) <= MAX_RESIDUAL * deviation
        if rows.sum() < 2 * (plain.shape[1] + interactions.shape[1]) + 10:
            return None
    fit = np.linalg.lstsq(plain[rows], v[rows], rcond=None)[0]
    freedom = rows.sum() - plain.shape[1] - interactions.shape[1]
    squares = float(np.sum((v[rows] - plain[rows] @ fit) ** 2))
    full = np.column_stack([plain, interactions])[rows]
    squares_full = float(np.sum((v[rows] - full @ np.linalg.lstsq(full, v[rows], rcond=None)[0]) ** 2))
    variance = squares_full / freedom
    inverse = np.linalg.pinv(plain[rows].T @ plain[rows])
    error = float(np.sqrt(variance * inverse[0, 0]))
    step = STEP if is_positive else 1.0
    power = float(np.round(fit[0] / step) * step)
    if error > MAX_STANDARD_ERROR or power == 0 or abs(power) > MAX_POWER:
        return None
    if abs(fit[0] - power) > max(MAX_SCORE * error, 1e-9):
        return None
    f_statistic = (squares - squares_full) / interactions.shape[1] / max(variance, 1e-300)
    return (f_statistic, power) if f_statistic < MAX_F or squares < 1e-18 * np.sum(v**2) else None
