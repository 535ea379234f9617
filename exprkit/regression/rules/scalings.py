"""Scalings: the products of powers of the variables on which data depend, ``y = x1 * F(x4 * x5 / (x2 * x3))``.

In: ``Rows``.  Out: unit systems, in which the products are what remains, with their evidence.

    >>> import numpy as np
    >>> from exprkit.regression.rules.scalings import scaling
    >>> from exprkit.regression.problem.rows import Rows
    >>> random = np.random.default_rng(0)
    >>> X = random.uniform(1, 3, (300, 4))
    >>> y = X[:, 0] * np.tanh(X[:, 1] * X[:, 2] / X[:, 3]) * (1 + 0.01 * random.standard_normal(300))
    >>> system = scaling(Rows(X, y)).system
    >>> system.repeating, system.remaining, system.powers, system.y_powers
    ((0, 2, 3), (1,), ((0.0, -1.0, 1.0),), (1.0, 0.0, 0.0))

Buckingham's theorem without units: where y is x^b times a function of the groups exp(W log x), all gradients of log |y|
by log x are b plus combinations of the rows of W.  So as many singular values of the centred gradients are large as
there are groups, and the right singular vectors span W (active subspaces: P. G. Constantine, 2015).  Gradients are
those of a ``surrogate``.  The basis is brought to reduced row echelon form, refined by least squares of polynomials of
the groups at all rows, and rounded to simple fractions.  A reduction counts if the evidence for a Gaussian process of
the groups alone is no less than for one of all variables.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev

from exprkit.errors import brought_by
from exprkit.regression.problem.rows import Rows
from exprkit.regression.rules.groups import MAX_DENOMINATOR, MAX_VARIABLES, UnitSystem, cost_of
from exprkit.regression.rules.surrogate import surrogate_of

with brought_by("search"):
    from scipy.optimize import least_squares

# Chosen, not measured.
MAX_SURROGATE_ROWS = 200  # rows of the Gaussian processes, whose cost grows with the third power
MAX_PILOT_ROWS = 80  # rows of the first one, which tells the noise
MAX_ROWS = 2_000  # rows of the polynomials
MIN_ROWS = 40
MAX_GROUPS = 3
DEGREES = (0, 9, 5, 3)  # of the polynomials, by the number of groups
MAX_POWER = 6.0
DENOMINATORS = (1, 2, 3, 4)  # of powers
MAX_NOISE = 0.2  # standard deviation of log |y| of rows that are looked at
NOISE_POWERS = 1.0, 0.0  # of 1 / y, in the noise of log |y|: errors are as large everywhere, or in proportion to y
MIN_SHARE = 0.5  # of the root mean square of y, above which rows are looked at first
MIN_EVIDENCE = -3.0  # difference of logarithms, below which groups miss something
ODD_PRICE = 3.0  # of a power that is no multiple of a half, in logarithms of evidence
MAX_MISFIT = 1.5  # residuals of polynomials, times the noise, above which they are the polynomials' own
MAX_SCORE = 6.0  # standard deviations of the residuals' square that simple powers may cost
FRACTION_PRICE = 0.1  # share of it that a denominator larger by 1 may cost, where there is no noise
SINGULAR = 1e-9  # determinant
EXACT = 1e-18  # share of the square of log |y| that is rounding


class Scaling(NamedTuple):
    """Groups of variables that explain data as well as all variables do."""

    system: UnitSystem
    evidence: float  # logarithm of the ratio of evidence, of the groups to the variables
    noise: float  # standard deviation that the groups leave of y, as share of its root mean square


def scaling(rows: Rows) -> Scaling | None:
    """The reduction of data to the fewest groups.

    None where all variables are needed, where more than ``MAX_VARIABLES`` vary, and for fewer than ``MIN_ROWS`` rows.
    """
    part = rows.subsample(min(MAX_ROWS, len(rows)), 0)
    varying = np.flatnonzero(np.ptp(part.X, axis=0) > 0) if len(part) else np.empty(0, np.int64)
    # rows with the signs that most of them have: a scaling of variables changes none
    signs = np.sign(np.column_stack([part.X, part.y]))
    patterns, pattern, counts = np.unique(signs, axis=0, return_inverse=True, return_counts=True)
    counts[(patterns == 0).any(axis=1)] = 0
    part = part.at(np.flatnonzero(pattern == np.argmax(counts)))
    if not 2 <= len(varying) <= MAX_VARIABLES or counts.max(initial=0) < MIN_ROWS:
        return None
    y = np.abs(part.y) / np.sqrt(np.mean(part.y**2))
    chosen = np.flatnonzero(y > MIN_SHARE)
    if len(chosen) < MIN_ROWS:
        return None
    u = np.log(np.abs(part.X[:, varying]))
    u -= u.mean(axis=0)
    v, few = np.log(y), chosen[:MAX_PILOT_ROWS]
    level = v[few].mean()
    pilots = {power: surrogate_of(u[few], v[few] - level, y[few] ** -power) for power in NOISE_POWERS}
    power = max(pilots, key=lambda power: pilots[power].evidence)
    full = pilots[power]
    for _ in range(2):
        mean = full.means(u) + level
        noise = np.exp(-power * mean)
        v = np.log(y) + (noise * full.noise) ** 2 / 2  # the mean of log(1 + e) is -s^2 / 2
        chosen = np.flatnonzero(noise * full.noise < MAX_NOISE)
        if len(chosen) < MIN_ROWS:
            return None
        few = chosen[:MAX_SURROGATE_ROWS]
        level = v[few].mean()
        full = surrogate_of(u[few], v[few] - level, noise[few])
    data = _Logarithms(u[chosen], v[chosen] - level, noise[chosen])
    gradients, weights, few = full.gradients(), 1 / noise[few], np.arange(len(few))
    centred = gradients - np.average(gradients, axis=0, weights=weights**2)
    axes = np.linalg.svd(centred * weights[:, None], full_matrices=False)[2]
    best = None
    for k in range(min(MAX_GROUPS, len(varying) - 1) + 1):
        basis, pivots = _echelon(axes[:k])
        powers = data.rounded(basis, pivots, full.noise)
        if powers is None:
            continue
        groups, front = powers
        target = data.v - data.u @ front
        reduced = surrogate_of((data.u @ groups.T)[few], target[few], data.noise[few])
        n_odd = np.count_nonzero(np.append(groups, front) * 2 % 1)
        evidence = float(reduced.evidence - full.evidence - ODD_PRICE * n_odd)
        if evidence > max(MIN_EVIDENCE, best.evidence if best else -np.inf):
            system = _unit_system(groups, front, varying, rows.X.shape[1])
            best = Scaling(system, evidence, reduced.noise)
        if best and not n_odd:
            break
    return best


def _echelon(axes: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """The reduced row echelon form of a basis, (k, d), and its pivots, where the entries are largest."""
    pivots: list[int] = []
    basis, free = axes.copy(), np.ones(axes.shape[1], bool)
    for i in range(len(basis)):
        row, column = divmod(int(np.argmax(np.where(free, np.abs(basis[i:]), -1.0))), len(free))
        basis[[i, i + row]] = basis[[i + row, i]]
        basis[i] /= basis[i, column]
        above = np.where(np.arange(len(basis)) == i, 0.0, basis[:, column])
        basis -= np.outer(above, basis[i])
        basis[:, column] = np.arange(len(basis)) == i
        free[column] = False
        pivots.append(column)
    return basis, pivots


def _unit_system(groups: np.ndarray, front: np.ndarray, varying: np.ndarray, n: int) -> UnitSystem:
    """The unit system of simplest powers with these groups, (k, d) powers of the varying ones of n variables."""
    systems = []
    for pivots in map(list, itertools.combinations(range(len(varying)), len(groups))):
        if abs(np.linalg.det(groups[:, pivots])) > SINGULAR:
            basis = _simple(np.linalg.solve(groups[:, pivots], groups))
            before = _simple(front - front[pivots] @ basis)
            others = [j for j in range(len(varying)) if j not in pivots and (basis[:, j].any() or before[j])]
            units = tuple(map(tuple, (0.0 - basis[:, others]).tolist()))
            repeating, remaining = tuple(varying[others].tolist()), tuple(varying[pivots].tolist())
            systems.append(UnitSystem(repeating, remaining, units, tuple(before[others].tolist()), n))
    return min(systems, key=cost_of)


def _simple(powers: np.ndarray) -> np.ndarray:
    """Powers as the nearest fractions of small denominators."""
    fractions = [float(Fraction(power).limit_denominator(MAX_DENOMINATOR)) for power in powers.ravel().tolist()]
    return np.array(fractions).reshape(powers.shape)


class _Logarithms(NamedTuple):
    """Logarithms of variables, (n, d), and of y, (n,), and the noise of these, (n,), up to a common factor."""

    u: np.ndarray
    v: np.ndarray
    noise: np.ndarray

    def rounded(self, groups: np.ndarray, pivots: list[int], level: float) -> tuple[np.ndarray, np.ndarray] | None:
        """The groups, (k, d), and the powers of y, (d,), as simple fractions that explain v as well; None without any.

        Least squares begin at ``groups``, in echelon form with these pivots.  ``level``: the noise of v.
        """
        free = [j for j in range(self.u.shape[1]) if j not in pivots]
        shape = len(groups), len(free)

        def residuals(powers: np.ndarray, front: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
            z = self.u[:, pivots] + self.u[:, free] @ powers.T
            line, target = self.u[:, free] / self.noise[:, None], self.v / self.noise
            design = _polynomials(z) / self.noise[:, None]
            if front is None:
                design = np.column_stack([line, design])
            else:
                target = target - line @ front
            solution = np.linalg.lstsq(design, target, rcond=None)[0]
            return target - design @ solution, solution[: len(free)]

        powers = groups[:, free]
        if powers.size:
            end = least_squares(lambda t: residuals(t.reshape(shape))[0], powers.ravel(), max_nfev=8)
            powers = end.x.reshape(shape)
        errors, slopes = residuals(powers)
        least, n = float(errors @ errors), len(errors)
        n_powers, limit = powers.size + len(slopes), np.inf
        if least < n * (MAX_MISFIT * level) ** 2:  # else the polynomials' own error is more than noise
            limit = least * (1 + (n_powers + MAX_SCORE * np.sqrt(2.0 * n_powers)) / n)
            limit += EXACT * float(np.sum((self.v / self.noise) ** 2))
        candidates = []
        for q in DENOMINATORS:
            simple = np.round(powers * q) / q
            if np.abs(simple).max(initial=0.0) > MAX_POWER:
                continue
            slopes = residuals(simple)[1]
            for p in DENOMINATORS:
                front = np.round(slopes * p) / p
                error = float(np.sum(residuals(simple, front)[0] ** 2))
                if error <= limit:
                    price = max(p, q), p + q
                    cost = price if np.isfinite(limit) else (error * (1 + FRACTION_PRICE * (p + q - 2)), 0)
                    candidates.append((cost, simple, front))
        if not candidates:
            return None
        _, simple, front = min(candidates, key=lambda candidate: candidate[0])
        exact, before = np.zeros((len(groups), self.u.shape[1])), np.zeros(self.u.shape[1])
        exact[range(len(groups)), pivots] = 1.0
        exact[:, free], before[free] = simple, front
        return exact + 0.0, before + 0.0


def _polynomials(z: np.ndarray) -> np.ndarray:
    """Products of Chebyshev polynomials of the columns, (n, k), up to a degree, and the number 1, (n, n_terms)."""
    columns = [np.ones(len(z))]
    if z.shape[1]:
        degree, low, high = DEGREES[min(z.shape[1], MAX_GROUPS)], z.min(axis=0), z.max(axis=0)
        values = [chebyshev.chebvander(column, degree) for column in ((2 * z - low - high) / (high - low)).T]
        for degrees in itertools.product(range(degree + 1), repeat=z.shape[1]):
            if 0 < sum(degrees) <= degree:
                columns.append(np.prod([values[i][:, m] for i, m in enumerate(degrees)], axis=0))
    return np.column_stack(columns)
