"""Products of powers that are all of the variables that y depends on: ``y = g(x1 * x3 / (x2 * x4))``.

In: a ``Sample``.  Out: ``UnitSystem`` that leave one variable, the product.

    >>> import numpy as np
    >>> from exprkit.regression.rules.products import inner_products
    >>> from exprkit.regression.problem.sample import Sample
    >>> X = np.random.default_rng(0).uniform(1, 5, (150, 3))
    >>> y = 1 / (np.exp(X[:, 0] * X[:, 2] / X[:, 1] ** 2) + 1)
    >>> [(one.repeating, one.remaining, one.powers) for one in inner_products(Sample(X, y))]
    [((1, 2), (0,), ((2.0, -1.0),))]

How, plainly: rows in the order of a product of powers have a y that hardly differs from that of the next row, if it is
the right one.  All products with simple exponents are tried at few rows; of the best the error is looked at that the
line through a row's two neighbours makes in y, which falls with the square of their distance.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from exprkit.regression.problem.sample import Sample
from exprkit.regression.rules.groups import UnitSystem

EXPONENTS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 4.0, -4.0, 1.5, -1.5)  # of a variable, simple ones first
MOST = 40_000  # products that are tried
ROWS, FEWEST, EVERY = 64, 24, 2_000  # that tell them apart; fewer tell nothing; more add little
BEST = 32  # that are looked at closer
OFF = 0.01  # error of a line through neighbours, as a share of what y varies by
ALIKE = 1.5  # times the least error is no more
CHUNK = 1 << 12


def inner_products(sample: Sample) -> list[UnitSystem]:
    """The simplest of those that y is smooth in; none where it is of no product of several variables."""
    few, every = sample.subsample(min(ROWS, len(sample)), 0), sample.subsample(min(EVERY, len(sample)), 0)
    varies = np.flatnonzero(np.ptp(sample.X, axis=0) > 0)
    if len(few) < FEWEST or len(varies) < 2 or (sample.X[:, varies] == 0).any() or not np.ptp(few.y):
        return []
    tried = _exponents(len(varies), bool((sample.X[:, varies] > 0).all()))
    if not len(tried):
        return []
    unlike = np.concatenate([_unlikeness(_product(few.X[:, varies], tried[k : k + CHUNK]), few.y)
                             for k in range(0, len(tried), CHUNK)])  # fmt: skip
    best = np.argsort(unlike, kind="stable")[:BEST]
    off = np.array([_off(u, every.y) for u in _product(every.X[:, varies], tried[best])])
    if off.min() > OFF * np.std(every.y):
        return []
    chosen = tried[best[off <= ALIKE * off.min()].min()]
    return [_unit_system(chosen, varies, sample.X.shape[1])] if np.count_nonzero(chosen) > 1 else []


def _exponents(n: int, are_positive: bool) -> np.ndarray:
    """All tuples of them up to a common factor, (n_products, n): the first that is not 0 is positive."""
    allowed = [e for e in EXPONENTS if are_positive or e % 1 == 0]
    while allowed and len(allowed) ** n > 2 * MOST:
        allowed = allowed[:-2]
    if len(allowed) < 3:
        return np.empty((0, n))
    every = np.array(list(itertools.product(allowed, repeat=n)))
    first = every[np.arange(len(every)), (every != 0).argmax(axis=1)]
    whole = np.where(every % 1 == 0, every, 2 * every).astype(np.int64)
    common = np.array([math.gcd(*row) for row in whole.tolist()])
    every = every[(first > 0) & ((common == 1) | (every % 1 != 0).any(axis=1)) & (np.count_nonzero(every, axis=1) > 0)]
    return every[np.argsort(np.abs(every).sum(axis=1), kind="stable")]


def _product(X: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """(n_products, n_rows)."""
    with np.errstate(all="ignore"):
        signs = np.prod(np.where((X < 0)[None] & (exponents % 2 == 1)[:, None], -1.0, 1.0), axis=2)
        return np.asarray(np.exp(exponents @ np.log(np.abs(X)).T) * signs)


def _unlikeness(u: np.ndarray, y: np.ndarray) -> np.ndarray:
    """How much y differs from row to row in the order of each u."""
    return np.asarray(np.abs(np.diff(y[np.argsort(u, axis=1, kind="stable")], axis=1)).sum(axis=1))


def _off(u: np.ndarray, y: np.ndarray) -> float:
    """What the line through a row's neighbours in u misses its y by, as a rule."""
    order = np.argsort(u, kind="stable")
    u, y = u[order], y[order]
    with np.errstate(all="ignore"):
        share = (u[1:-1] - u[:-2]) / (u[2:] - u[:-2])
        missed = np.abs(y[:-2] + share * (y[2:] - y[:-2]) - y[1:-1])
    return float(np.median(np.where(np.isfinite(missed), missed, np.inf)))


def _unit_system(exponents: np.ndarray, varies: np.ndarray, n: int) -> UnitSystem:
    """The first variable that counts, times what makes it the product."""
    used = np.flatnonzero(exponents)
    kept = used[np.argmin(np.abs(np.abs(exponents[used]) - 1))]
    others = [int(k) for k in used if k != kept]
    powers = tuple(float(-exponents[k] / exponents[kept]) for k in others)
    chosen = tuple(int(varies[k]) for k in others)
    return UnitSystem(chosen, (int(varies[kept]),), (powers,), (0.0,) * len(chosen), n)
