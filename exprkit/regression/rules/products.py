"""Inner products: y as a function of one product of powers of the variables, ``y = g(x1 * x3 / (x2 * x4))``.

In: ``Rows``.  Out: the unit system in which one variable remains, the product; none if y is no such function.

    >>> import numpy as np
    >>> from exprkit.regression.rules.products import inner_products
    >>> from exprkit.regression.problem.rows import Rows
    >>> X = np.random.default_rng(0).uniform(1, 5, (150, 3))
    >>> y = 1 / (np.exp(X[:, 0] * X[:, 2] / X[:, 1] ** 2) + 1)
    >>> [(system.repeating, system.remaining, system.powers) for system in inner_products(Rows(X, y))]
    [((1, 2), (0,), ((2.0, -1.0),))]

If rows are sorted by the right product, y hardly differs between neighbouring rows.  All products with simple exponents
are compared at few rows by the total variation of y; the best at more rows by the error of linear interpolation between
a row's two neighbours, which falls with the square of their distance.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from exprkit.regression.problem.rows import Rows
from exprkit.regression.rules.groups import UnitSystem

EXPONENTS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 4.0, -4.0, 1.5, -1.5)  # of a variable, simple ones first
# All chosen, not measured.
MAX_PRODUCTS = 40_000  # products that are compared
MAX_ROWS = 64  # rows at which all of them are
MIN_ROWS = 24
MAX_ROWS_OF_BEST = 2_000  # rows at which the best are compared again
N_BEST = 32  # products that are compared again
MAX_ERROR = 0.01  # of interpolation, in standard deviations of y
MAX_ERROR_RATIO = 1.5  # times the least error, up to which the simplest product is taken
CHUNK = 1 << 12  # products at a time


def inner_products(rows: Rows) -> list[UnitSystem]:
    """The unit system of the simplest product of two or more variables in which y is smooth, or an empty list."""
    part = rows.subsample(min(MAX_ROWS, len(rows)), 0)
    larger = rows.subsample(min(MAX_ROWS_OF_BEST, len(rows)), 0)
    varying = np.flatnonzero(np.ptp(rows.X, axis=0) > 0)
    if len(part) < MIN_ROWS or len(varying) < 2 or (rows.X[:, varying] == 0).any() or not np.ptp(part.y):
        return []
    candidates = _exponents(len(varying), bool((rows.X[:, varying] > 0).all()))
    if not len(candidates):
        return []
    chunks = (candidates[k : k + CHUNK] for k in range(0, len(candidates), CHUNK))
    variation = np.concatenate([_total_variation(_products(part.X[:, varying], chunk), part.y) for chunk in chunks])
    best = np.argsort(variation, kind="stable")[:N_BEST]
    products = _products(larger.X[:, varying], candidates[best])
    errors = np.array([_interpolation_error(u, larger.y) for u in products])
    if errors.min() > MAX_ERROR * np.std(larger.y):
        return []
    exponents = candidates[best[errors <= MAX_ERROR_RATIO * errors.min()].min()]
    return [_unit_system(exponents, varying, rows.X.shape[1])] if np.count_nonzero(exponents) > 1 else []


def _exponents(n: int, are_positive: bool) -> np.ndarray:
    """All exponents of n variables up to a common factor, the simplest first, (n_products, n)."""
    allowed = [e for e in EXPONENTS if are_positive or e % 1 == 0]
    while allowed and len(allowed) ** n > 2 * MAX_PRODUCTS:
        allowed = allowed[:-2]
    if len(allowed) < 3:
        return np.empty((0, n))
    rows = np.array(list(itertools.product(allowed, repeat=n)))
    first = rows[np.arange(len(rows)), (rows != 0).argmax(axis=1)]
    whole = np.where(rows % 1 == 0, rows, 2 * rows).astype(np.int64)
    divisor = np.array([math.gcd(*row) for row in whole.tolist()])
    rows = rows[(first > 0) & ((divisor == 1) | (rows % 1 != 0).any(axis=1)) & (np.count_nonzero(rows, axis=1) > 0)]
    return rows[np.argsort(np.abs(rows).sum(axis=1), kind="stable")]


def _products(X: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """Values of products of powers, (n_products, n_rows)."""
    with np.errstate(all="ignore"):
        signs = np.prod(np.where((X < 0)[None] & (exponents % 2 == 1)[:, None], -1.0, 1.0), axis=2)
        return np.asarray(np.exp(exponents @ np.log(np.abs(X)).T) * signs)


def _total_variation(u: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The total variation of y in the order of each u, (n_products,)."""
    return np.asarray(np.abs(np.diff(y[np.argsort(u, axis=1, kind="stable")], axis=1)).sum(axis=1))


def _interpolation_error(u: np.ndarray, y: np.ndarray) -> float:
    """The median error in y of linear interpolation between a row's neighbours in u."""
    order = np.argsort(u, kind="stable")
    u, y = u[order], y[order]
    with np.errstate(all="ignore"):
        share = (u[1:-1] - u[:-2]) / (u[2:] - u[:-2])
        errors = np.abs(y[:-2] + share * (y[2:] - y[:-2]) - y[1:-1])
    return float(np.median(np.where(np.isfinite(errors), errors, np.inf)))


def _unit_system(exponents: np.ndarray, varying: np.ndarray, n: int) -> UnitSystem:
    """The unit system in which a variable, of exponent 1 or nearly, is the product to a power; y is dimensionless."""
    factors = np.flatnonzero(exponents)
    remaining = factors[np.argmin(np.abs(np.abs(exponents[factors]) - 1))]
    others = [int(k) for k in factors if k != remaining]
    powers = tuple(float(-exponents[k] / exponents[remaining]) for k in others)
    repeating = tuple(int(varying[k]) for k in others)
    return UnitSystem(repeating, (int(varying[remaining]),), (powers,), (0.0,) * len(repeating), n)
