"""Spread: weights for noise that grows in proportion to y (heteroscedasticity).

In: ``Rows``.  Out: weights 1 / (a^2 + f^2) with a simple estimate f of y; None where noise does not grow with y.

    >>> import numpy as np
    >>> from exprkit.regression.shapes.spread import proportional_weights
    >>> from exprkit.regression.problem.rows import Rows
    >>> random = np.random.default_rng(0)
    >>> x = np.exp(random.uniform(0, 7, 40))
    >>> y, noise = 3 / x**2, random.standard_normal(40)
    >>> [proportional_weights(Rows(x[:, None], v)) is None for v in (y * (1 + 0.1 * noise), y + 0.1 * noise, y)]
    [False, True, True]

log(f) is a polynomial in the columns, or their logarithms, fitted to log(y): power laws and exponentials are such, and
most of what varies over orders of magnitude is near to one.  Noise grows with f if the errors y - f do, by the
correlation of ranks (C. Spearman, American Journal of Psychology 15, 1904), while those of log(y) do not fall with it:
where noise is equal everywhere, they do.  Errors of log(y) that are correlated between neighbours (Moran's I) are no
noise but what f lacks.

Small values have noise beside that (D. M. Rocke and S. Lorenzato, "A two-component model for measurement error in
analytical chemistry", Technometrics 37, 1995): the variance is proportional to a^2 + f^2, with the a that is most
likely (R. J. Carroll and D. Ruppert, "Transformation and Weighting in Regression", 1988).
"""

from __future__ import annotations

import itertools

import numpy as np

from exprkit.regression.problem.noise import moran_z_score, nearest_neighbours, ranks
from exprkit.regression.problem.rows import Rows

# all chosen, not measured
MIN_ROWS = 12
MAX_ROWS = 1_000  # by which f is fitted
MAX_COLUMNS = 8
WIDE_RANGE = 10.0  # ratio of a column's largest value to its least from which on its logarithm is taken
ROWS_PER_TERM = 3  # at least
MIN_GAIN = 4.0  # nats that a higher degree of the polynomial has to gain beyond one for each term
GROWS = 3.0  # standard deviations of the rank correlation of absolute errors with f: at least
FALLS = -2.0  # the same of relative errors: not below
CORRELATED = 2.5  # standard deviations of Moran's I above which errors are no noise
MIN_ERROR = 0.005  # root mean square of the errors of log(y): below it the fit is as good as exact
MAX_ERROR = 1.0  # above it there is no fit
MIN_SLOPE = 0.5  # of log |error| over log f: halfway between constant and proportional noise
MARGIN = 3.0  # factor by which f may leave the range of y
CANDIDATES = 40  # values of the constant part a
ROUNDS = 3  # of fitting f with the weights that it gives
MIN_WEIGHT = 1e-3  # of 1 less a row's leverage


def proportional_weights(rows: Rows, always: bool = False) -> np.ndarray | None:
    """Weights of rows by which proportional noise counts equally, (n_rows,), their mean 1; None where noise is not so.

    ``always``: 1 / f^2 whatever the noise is like.  None where y has two signs.
    """
    y, n_columns = np.abs(rows.y), rows.X.shape[1]
    one_sign = bool((rows.y > 0).all() or (rows.y < 0).all())
    if not one_sign or not (always or (len(y) >= MIN_ROWS and 0 < n_columns <= MAX_COLUMNS)):
        return None
    few = rows if len(rows) <= MAX_ROWS else rows.subsample(MAX_ROWS, 0)
    as_logs = [bool(column.min() > 0 and column.max() > WIDE_RANGE * column.min()) for column in few.X.T]
    columns, v = _columns(few.X, as_logs), np.log(np.abs(few.y))
    with np.errstate(all="ignore"):
        middle, size = columns.mean(axis=0), columns.std(axis=0)
    columns = (columns - middle) / np.where(size > 0, size, 1.0)
    terms = _best_terms(columns, v)
    values, constant_part = _term_values(columns, terms), 0.0
    numbers = np.linalg.lstsq(values, v, rcond=None)[0]
    if not always:
        if not _grows(v - values @ numbers, values @ numbers, few):
            return None
        for _ in range(ROUNDS):  # f is fitted by the weights that it gives
            constant_part = _constant_part(np.abs(few.y), values, numbers, constant_part)
            root = _roots_of_weights(values @ numbers, constant_part)
            numbers = np.linalg.lstsq(values * root[:, None], v * root, rcond=None)[0]
    columns_of_all = (_columns(rows.X, as_logs) - middle) / np.where(size > 0, size, 1.0)
    with np.errstate(all="ignore"):
        f = np.exp(_term_values(columns_of_all, terms) @ numbers)
    f = np.clip(np.nan_to_num(f, posinf=np.inf), y.min() / MARGIN, y.max() * MARGIN)
    weights = 1 / (constant_part**2 + f**2)
    return np.asarray(weights / weights.mean())


def _roots_of_weights(log_f: np.ndarray, constant_part: float) -> np.ndarray:
    """Roots of the weights of relative errors, (n_rows,): near 1 where the proportional part of the noise prevails."""
    f = np.exp(log_f)
    return np.asarray(f / np.hypot(constant_part, f))


def _constant_part(y: np.ndarray, values: np.ndarray, numbers: np.ndarray, before: float) -> float:
    """The a for which errors y - f with variances proportional to a^2 + f^2 are most likely.

    Rows that decide f have smaller errors than others: their squares are divided by one less their leverage.
    """
    f, root = np.exp(values @ numbers), _roots_of_weights(values @ numbers, before)
    leverage = (np.linalg.qr(values * root[:, None])[0] ** 2).sum(axis=1)
    squares = (y - f) ** 2 / np.maximum(1 - leverage, MIN_WEIGHT)
    candidates = np.append(0.0, np.geomspace(f.min() / WIDE_RANGE, f.max(), CANDIDATES))
    variances = candidates[:, None] ** 2 + f**2
    nats = len(f) / 2 * np.log((squares / variances).mean(axis=1)) + np.log(variances).sum(axis=1) / 2
    return float(candidates[np.argmin(nats)])


def _columns(X: np.ndarray, as_logs: list[bool]) -> np.ndarray:
    with np.errstate(all="ignore"):
        transformed = [np.log(x) if log else x for x, log in zip(X.T, as_logs, strict=True)]
        return np.array(transformed).reshape(X.shape[::-1]).T


def _term_values(columns: np.ndarray, terms: list[tuple[int, ...]]) -> np.ndarray:
    return np.column_stack([np.prod(columns[:, list(term)], axis=1) for term in terms])


def _best_terms(columns: np.ndarray, v: np.ndarray) -> list[tuple[int, ...]]:
    """Terms of the polynomial of degree 1, 2 or 3 in the columns that describes v in the fewest nats."""
    n, n_columns = columns.shape
    best: list[tuple[int, ...]] = [()]
    least = np.inf
    for degree in (1, 2, 3):
        powers = (itertools.combinations_with_replacement(range(n_columns), k) for k in range(degree + 1))
        terms = list(itertools.chain.from_iterable(powers))
        if degree > 1 and ROWS_PER_TERM * len(terms) > n:
            break
        values = _term_values(columns, terms)
        errors = v - values @ np.linalg.lstsq(values, v, rcond=None)[0]
        nats = n / 2 * np.log(max(float(errors @ errors), 1e-300)) + len(terms) + MIN_GAIN * degree
        if nats < least:
            best, least = terms, nats
    return best


def _grows(errors: np.ndarray, log_f: np.ndarray, rows: Rows) -> bool:
    """Whether absolute errors grow with f, relative ones do not fall with it, and they are noise."""
    size, n = float(np.sqrt(np.mean(errors**2))), len(errors)
    if not MIN_ERROR < size < MAX_ERROR:
        return False
    with np.errstate(all="ignore"):
        of_y = np.abs(rows.y - np.sign(rows.y[0]) * np.exp(log_f))
        slope = np.polyfit(log_f, np.log(np.maximum(of_y, 1e-300)), 1)[0] if np.ptp(log_f) > 0 else 0.0
        of_absolute, of_relative = (
            np.corrcoef(ranks(sizes), ranks(log_f))[0, 1] * np.sqrt(n - 1) for sizes in (of_y, np.abs(errors))
        )
    is_noise = moran_z_score(errors, nearest_neighbours(rows.X)) < CORRELATED
    return bool(of_absolute > GROWS and of_relative > FALLS and slope > MIN_SLOPE and is_noise)
