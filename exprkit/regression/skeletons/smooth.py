"""Unknown functions of a template as polynomials: their values at the rows, before there are formulas.

In: a ``LawSkeleton`` and ``Rows``.  Out: values of every call and number at every row.

Generalised additive models estimate such functions in turns (T. Hastie and R. Tibshirani, Statistical Science 1, 1986);
here all are fitted together, with the numbers, by the method of K. Levenberg and D. Marquardt, so that they may stand
anywhere.  What the data leave open, as the constants of f(x1) + g(x2), is as small as it can be.
"""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

import numpy as np

from exprkit.regression.problem.effort import WORK
from exprkit.regression.problem.rows import Rows
from exprkit.regression.skeletons.skeleton import LawSkeleton
from exprkit.runtime.budget import check

# Chosen, not measured.
TERMS = 60  # polynomials of a function at most,
ROWS_A_TERM = 5  # and at least so many rows for each of all functions
DEGREE = 12  # of polynomials at most
RIDGE = 1e-9  # weight of the sum of squares of coefficients, times the degree to the fourth, beside that of errors
STEPS = 60  # of Levenberg and Marquardt, from each start
STARTS = 8  # the first is 1 for all functions and numbers
GOOD = 1e-3  # share of the variance left, with which no other start is tried
STILL = 1e-9  # relative change of the sum of squares, below which a fit ends
LEAST, MOST = 1e-12, 1e12  # damping

Bases = list[np.ndarray | None]  # of each unknown (n_rows, n_coefficients); None of what is known


class Smooth(NamedTuple):
    """Values of calls and numbers at the rows, (n_unknowns, n_rows), with the share of y's variance they leave."""

    unknowns: np.ndarray
    left: float


def smooth(skeleton: LawSkeleton, rows: Rows, held: np.ndarray | None = None, free: str | None = None) -> Smooth:
    """The unknowns as polynomials.

    Parameters
    ----------
    skeleton : LawSkeleton
    rows : Rows
        Behind the columns those of categories, where numbers go by them.
    held : float64 (n_unknowns, n_rows), optional
        Values of what is known by now, all but the calls of the function ``free``.
    free : str, optional
    """
    bases, blocks, scales = _designs(skeleton, rows, free)
    size = max(float(rows.w @ (rows.y - rows.w @ rows.y / rows.total) ** 2), np.finfo(float).tiny)
    random, best = np.random.default_rng(0), None
    for start in range(STARTS):
        coefficients = np.zeros(len(scales))
        coefficients[scales == 0] = (1.0, -1.0)[start % 2]
        coefficients += (start > 1) * random.standard_normal(len(scales)) / (1 + scales**2)
        values, loss = _fit(skeleton, rows, bases, blocks, scales, coefficients, held, size)
        if best is None or loss < best.left:
            best = Smooth(values, loss)
        if best.left < GOOD:
            break
    assert best is not None
    return best


@np.errstate(all="ignore")
def nats_explained(arguments: np.ndarray, y: np.ndarray, w: np.ndarray) -> float:
    """By how much a polynomial of arguments (n, n_arguments) describes y shorter than its mean does.

    As many terms as that is most for, each of which costs half the logarithm of n (G. Schwarz, Annals of Statistics 6,
    1978): large for rows that show much of a law above their noise.
    """
    good = np.isfinite(arguments).all(axis=1) & np.isfinite(y) & (w > 0) & np.isfinite(w)
    arguments, y, root = arguments[good], y[good], np.sqrt(w[good])
    n = len(y)
    if n < 2 * ROWS_A_TERM:
        return 0.0
    low, high = arguments.min(axis=0), arguments.max(axis=0)
    scaled = 2 * (arguments - low) / np.where(high > low, high - low, 1.0) - 1
    basis = _polynomials(scaled, _powers(arguments.shape[1], min(TERMS, n // ROWS_A_TERM)))
    explained = np.cumsum((np.linalg.qr(basis * root[:, None])[0].T @ (y * root)) ** 2)
    left = np.maximum(np.sum((y * root) ** 2) - explained, np.finfo(float).tiny)
    return float(np.max(n / 2 * np.log(left[0] / left) - np.arange(len(left)) / 2 * np.log(n)))


def _designs(skeleton: LawSkeleton, rows: Rows, free: str | None) -> tuple[Bases, list[slice], np.ndarray]:
    """For each unknown its matrix, (n_rows, n_coefficients), and place among all; the degrees of all coefficients."""
    functions = [free] if free else list(skeleton.functions)
    most = max(min(TERMS, len(rows) // (ROWS_A_TERM * len(functions))), 2)
    places, degrees, begin = dict[str, slice](), list[np.ndarray](), 0
    bases: Bases = [None] * (len(skeleton.calls) + len(skeleton.numbers))
    blocks = [slice(0, 0)] * len(bases)
    for name in functions:
        calls = skeleton.calls_of(name)
        arguments = [skeleton.arguments(k, rows.X) for k in calls]
        every = np.concatenate(arguments)
        low, high = every.min(axis=0), every.max(axis=0)
        powers = _powers(every.shape[1], most)
        places[name] = slice(begin, begin := begin + len(powers))
        degrees.append(powers.sum(axis=1))
        for k, own in zip(calls, arguments, strict=True):
            scaled = np.clip(2 * (own - low) / np.where(high > low, high - low, 1.0) - 1, -1, 1)
            bases[k], blocks[k] = _polynomials(scaled, powers), places[name]
    for k, by_group in enumerate(() if free else skeleton.numbers.values()):
        basis = rows.X[:, len(skeleton.columns) :] if by_group else np.ones((len(rows), 1))
        degrees.append(np.zeros(basis.shape[1], np.int64))
        bases[len(skeleton.calls) + k] = basis
        blocks[len(skeleton.calls) + k] = slice(begin, begin := begin + basis.shape[1])
    return bases, blocks, np.concatenate(degrees)


def _powers(n: int, most: int) -> np.ndarray:
    """The degrees of products of polynomials of n arguments, (n_terms, n), ``most`` of them, lowest first."""
    top = next(d for d in range(DEGREE + 1) if _terms(n, d + 1) > most or d == DEGREE)
    every = [powers for powers in itertools.product(range(max(top, 1) + 1), repeat=n) if sum(powers) <= max(top, 1)]
    return np.array(sorted(every, key=sum))


def _terms(n: int, degree: int) -> int:
    return functools.reduce(lambda total, k: total * (degree + k) // k, range(1, n + 1), 1)


def _polynomials(scaled: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """Products of Chebyshev polynomials of arguments between -1 and 1, (n_rows, n_terms)."""
    one = np.cos(np.arange(DEGREE + 1) * np.arccos(scaled)[..., None])  # (n_rows, n, degrees)
    return np.asarray(np.prod([one[:, k, powers[:, k]] for k in range(scaled.shape[1])], axis=0))


@np.errstate(all="ignore")
def _fit(
    skeleton: LawSkeleton,
    rows: Rows,
    bases: Bases,
    blocks: list[slice],
    degrees: np.ndarray,
    coefficients: np.ndarray,
    held: np.ndarray | None,
    size: float,
) -> tuple[np.ndarray, float]:
    """Values of the unknowns, and the share of y's variance that they leave, from a start."""
    penalty = RIDGE * (1.0 + degrees**4)

    def values_at(numbers: np.ndarray) -> np.ndarray:
        given = np.empty((len(bases), len(rows))) if held is None else held
        own = [given[k] if basis is None else basis @ numbers[blocks[k]] for k, basis in enumerate(bases)]
        return np.array(own)

    def at(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        unknowns = values_at(numbers)
        values, slopes = skeleton.values(rows.X, unknowns)
        loss = float(rows.w @ (values - rows.y) ** 2) / size + float(penalty @ numbers**2)
        return unknowns, values, slopes, loss if np.isfinite(loss) else np.inf

    unknowns, values, slopes, loss = at(coefficients)
    damping, root = 1e-3, np.sqrt(rows.w / size)
    for _ in range(STEPS):
        check(len(rows) * len(coefficients) ** 2 * WORK.value)
        jacobian = np.zeros((len(rows), len(coefficients)))
        for k, basis in enumerate(bases):
            if basis is not None:
                jacobian[:, blocks[k]] += (slopes[k] * root)[:, None] * basis
        if not np.isfinite(loss) or not np.isfinite(jacobian).all():
            break
        squares = jacobian.T @ jacobian + np.diag(penalty)
        gradient = jacobian.T @ (root * (values - rows.y)) + penalty * coefficients
        before = loss
        while damping < MOST:
            scale = np.diagonal(squares) + LEAST
            step = np.linalg.solve(squares + np.diag(damping * scale), gradient)
            new = at(coefficients - step)
            if new[-1] < loss:
                coefficients = coefficients - step
                unknowns, values, slopes, loss = new
                damping = max(damping / 10, LEAST)
                break
            damping *= 10
        if before - loss <= STILL * before:
            break
    return unknowns, float(rows.w @ (values - rows.y) ** 2) / size if np.isfinite(loss) else np.inf
