"""Spread: whether noise grows in proportion to y, and the weights of rows by which it counts equally everywhere.

In: a ``Sample``.  Out: weights, 1 / (a^2 + f^2) of a simple f; None where noise does not grow, or there is none.

    >>> import numpy as np
    >>> from exprkit.regression.shapes.spread import proportional_weights
    >>> from exprkit.regression.problem.sample import Sample
    >>> random = np.random.default_rng(0)
    >>> x = np.exp(random.uniform(0, 7, 40))
    >>> y, noise = 3 / x**2, random.standard_normal(40)
    >>> [proportional_weights(Sample(x[:, None], v)) is None for v in (y * (1 + 0.1 * noise), y + 0.1 * noise, y)]
    [False, True, True]

f is a polynomial in the columns, or their logarithms, for the logarithm of y: power laws and exponentials are such, and
most of what varies over orders of magnitude is near to one.  Noise grows with f if the errors y - f do, by the
correlation of ranks (C. Spearman, American Journal of Psychology 15, 1904), while those of log(y) do not fall with it:
where noise is equal everywhere, they do.  What rows nearby tell of log(y) - log(f) is no noise but what f lacks.

Small values have noise beside that (D. M. Rocke and S. Lorenzato, "A two-component model for measurement error in
analytical chemistry", Technometrics 37, 1995): the variance is proportional to a^2 + f^2, with the a that is most
likely (R. J. Carroll and D. Ruppert, "Transformation and Weighting in Regression", 1988).
"""

from __future__ import annotations

import itertools

import numpy as np

from exprkit.regression.problem.noise import moran_z_score, nearest_neighbours, ranks
from exprkit.regression.problem.sample import Sample

FEWEST_ROWS, ROWS = 12, 1_000
MOST_COLUMNS = 8
WIDE = 10.0  # ratio of a column's largest value to its least from which on its logarithm counts
ROWS_OF_A_TERM = 3  # at least
GAINED = 4.0  # nats that more terms have to gain beyond one each
GROWS, FALLS, TOLD = 3.0, -2.0, 2.5  # standard deviations of what is so by accident
LEAST, MOST = 0.005, 1.0  # of the errors of log(y): less is as good as exact, more is no fit
FIRST_SLOPE = 0.5  # of the logarithms of errors over that of f: between equal and proportional noise
ROOM = 3.0  # times the least and largest y that f may be
CANDIDATES, ROUNDS = 40, 3  # for the constant part of noise, and times that f is fitted with it
LEAST_LEFT = 1e-3  # of a row's square beside its leverage


def proportional_weights(sample: Sample, asked: bool = False) -> np.ndarray | None:
    """One weight for every row, their mean 1; if ``asked`` for, 1 / f^2 whatever noise is like.

    None where y has two signs.
    """
    y, n_columns = np.abs(sample.y), sample.X.shape[1]
    one_sign = bool((sample.y > 0).all() or (sample.y < 0).all())
    if not one_sign or not (asked or (len(y) >= FEWEST_ROWS and 0 < n_columns <= MOST_COLUMNS)):
        return None
    some = sample if len(sample) <= ROWS else sample.subsample(ROWS, 0)
    as_logs = [bool(column.min() > 0 and column.max() > WIDE * column.min()) for column in some.X.T]
    columns, v = _columns(some.X, as_logs), np.log(np.abs(some.y))
    with np.errstate(all="ignore"):
        middle, size = columns.mean(axis=0), columns.std(axis=0)
    columns = (columns - middle) / np.where(size > 0, size, 1.0)
    terms = _best_terms(columns, v)
    values, constant_part = _values(columns, terms), 0.0
    numbers = np.linalg.lstsq(values, v, rcond=None)[0]
    if not asked:
        if not _grows(v - values @ numbers, values @ numbers, some):
            return None
        for _ in range(ROUNDS):  # f is fitted by the weights that it gives
            constant_part = _constant_part(np.abs(some.y), values, numbers, constant_part)
            root = _root_of_share(values @ numbers, constant_part)
            numbers = np.linalg.lstsq(values * root[:, None], v * root, rcond=None)[0]
    every = (_columns(sample.X, as_logs) - middle) / np.where(size > 0, size, 1.0)
    with np.errstate(all="ignore"):
        f = np.exp(_values(every, terms) @ numbers)
    f = np.clip(np.nan_to_num(f, posinf=np.inf), y.min() / ROOM, y.max() * ROOM)
    weights = 1 / (constant_part**2 + f**2)
    return np.asarray(weights / weights.mean())


def _root_of_share(log_f: np.ndarray, constant_part: float) -> np.ndarray:
    """By row the size of relative errors where they are proportional over what it is with the constant part."""
    f = np.exp(log_f)
    return np.asarray(f / np.hypot(constant_part, f))


def _constant_part(y: np.ndarray, values: np.ndarray, numbers: np.ndarray, before: float) -> float:
    """The a for which errors y - f with variances proportional to a^2 + f^2 are most likely.

    Rows that decide f have smaller errors than others: their squares are divided by one less their leverage.
    """
    f, root = np.exp(values @ numbers), _root_of_share(values @ numbers, before)
    leverage = (np.linalg.qr(values * root[:, None])[0] ** 2).sum(axis=1)
    squares = (y - f) ** 2 / np.maximum(1 - leverage, LEAST_LEFT)
    candidates = np.append(0.0, np.geomspace(f.min() / WIDE, f.max(), CANDIDATES))
    variances = candidates[:, None] ** 2 + f**2
    nats = len(f) / 2 * np.log((squares / variances).mean(axis=1)) + np.log(variances).sum(axis=1) / 2
    return float(candidates[np.argmin(nats)])


def _columns(X: np.ndarray, as_logs: list[bool]) -> np.ndarray:
    with np.errstate(all="ignore"):
        made = [np.log(x) if log else x for x, log in zip(X.T, as_logs, strict=True)]
        return np.array(made).reshape(X.shape[::-1]).T


def _values(columns: np.ndarray, terms: list[tuple[int, ...]]) -> np.ndarray:
    return np.column_stack([np.prod(columns[:, list(term)], axis=1) for term in terms])


def _best_terms(columns: np.ndarray, v: np.ndarray) -> list[tuple[int, ...]]:
    """Products of columns, of the first, second or third degree: more of them if that pays."""
    n, every = columns.shape
    best: list[tuple[int, ...]] = [()]
    least = np.inf
    for degree in (1, 2, 3):
        terms = [term for k in range(degree + 1) for term in itertools.combinations_with_replacement(range(every), k)]
        if degree > 1 and ROWS_OF_A_TERM * len(terms) > n:
            break
        made = _values(columns, terms)
        errors = v - made @ np.linalg.lstsq(made, v, rcond=None)[0]
        nats = n / 2 * np.log(max(float(errors @ errors), 1e-300)) + len(terms) + GAINED * degree
        if nats < least:
            best, least = terms, nats
    return best


def _grows(errors: np.ndarray, log_f: np.ndarray, sample: Sample) -> bool:
    """Whether errors of y grow with f, those of log(y) are as large everywhere, and they are noise."""
    size, n = float(np.sqrt(np.mean(errors**2))), len(errors)
    if not LEAST < size < MOST:
        return False
    with np.errstate(all="ignore"):
        of_y = np.abs(sample.y - np.sign(sample.y[0]) * np.exp(log_f))
        slope = np.polyfit(log_f, np.log(np.maximum(of_y, 1e-300)), 1)[0] if np.ptp(log_f) > 0 else 0.0
        grows, falls = (np.corrcoef(ranks(some), ranks(log_f))[0, 1] * np.sqrt(n - 1)
                        for some in (of_y, np.abs(errors)))  # fmt: skip
    is_noise = moran_z_score(errors, nearest_neighbours(sample.X)) < TOLD
    return bool(grows > GROWS and falls > FALLS and slope > FIRST_SLOPE and is_noise)
