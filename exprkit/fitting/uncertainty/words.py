"""Which parameters the data determine, in words.

In: a ``Minimum``.  Out: a sentence for each group of parameters that cannot be told apart.

Where the derivatives by some parameters depend on each other, the values stay the same along a line (or more) in the
parameters: the null space of the Jacobian with columns of equal norm.  Two parameters whose line is the same, in
shares of the parameters or in the parameters themselves, everywhere else as well are named with what is determined of
them: ``p1 * p3`` or ``p1 + p3``.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from exprkit.evaluate.evaluator import Evaluator
from exprkit.fitting.uncertainty.minimum import NOTHING, Minimum, scaled

PART = 1e-6  # of a line's direction, below which a parameter has none
LARGEST = 6  # whole number in a product of powers, or a sum of multiples
ELSEWHERE = 3  # other parameters at which a line has to be the same
NEAR = 0.99  # correlation from which on two parameters are hard to tell apart


def identifiability(least: Minimum, names: list[str]) -> list[str]:
    """Sentences; none where all parameters are determined, and told apart easily."""
    sentences, held = list[str](), least.result.at_bound[0, : len(names)]
    lines = lines_of(least)
    lines = lines[:, [k for k in range(lines.shape[1]) if not np.any(held & (np.abs(lines[:, k]) > 1 - PART))]]
    together = np.abs(lines @ lines.T) > PART
    waiting = [j for j in range(len(names)) if together[j, j]]
    while waiting:
        group = _connected(together, waiting[0])
        waiting = [j for j in waiting if j not in group]
        own = [names[j] for j in group]
        n_lines = round(float(np.trace((lines @ lines.T)[np.ix_(group, group)])))
        if len(group) == 1:
            sentences.append(f"{own[0]} changes no value at the data points: leave it out, or fix it")
        else:
            only = _combination(least, group, own) if len(group) == 2 else ""
            rest = f"only {only}" if only else f"fix {n_lines} of them"
            sentences.append(f"{' and '.join([', '.join(own[:-1]), own[-1]])} cannot be told apart: {rest}")
    C = least.covariance
    with np.errstate(invalid="ignore"):
        near = C / np.sqrt(np.outer(np.diagonal(C), np.diagonal(C)))
    for i, j in np.argwhere(np.triu(np.abs(near) > NEAR, 1)).tolist():
        sentences.append(f"{names[i]} and {names[j]} are hard to tell apart: their correlation is {near[i, j]:.4f}")
    return sentences


def lines_of(least: Minimum) -> np.ndarray:
    """The null space of the Jacobian with scaled columns, (P, n_lines)."""
    J = scaled(np.nan_to_num(least.jacobian * np.sqrt(least.points.w)[:, None]))
    _, sizes, V = np.linalg.svd(np.vstack([J, np.zeros((J.shape[1], J.shape[1]))]), full_matrices=False)
    return V[sizes <= NOTHING * sizes[:1]].T


def _connected(together: np.ndarray, first: int) -> list[int]:
    group = np.zeros(len(together), bool)
    group[first] = True
    for _ in together:
        group |= together[group].any(axis=0)
    return np.flatnonzero(group).tolist()


def _combination(least: Minimum, group: list[int], names: list[str]) -> str:
    """What is determined of two parameters, as a text; "" if it is no product of powers and no sum of multiples."""
    random, p = np.random.default_rng(0), least.params
    sets = p * random.uniform(0.7, 1.3, (ELSEWHERE, len(p)))
    slopes = Evaluator(least.pop, least.points.X, "cpu", dtype="float64").jacobian(sets[:, None])[:, 0][..., group]
    for size, form in ((sets[:, group], _product), (np.ones((ELSEWHERE, 2)), _sum)):
        # along a line slope_1 d1 + slope_2 d2 = 0: the slopes' ratio is that of the exponents, or factors
        ratios = [_ratio(slope * own) for slope, own in zip(slopes, size, strict=True)]
        ratio = Fraction(ratios[0]).limit_denominator(LARGEST)
        if 0 < abs(ratio.numerator) <= LARGEST and np.allclose(ratios, float(ratio), rtol=PART):
            return form(names, ratio)
    return ""


def _ratio(slopes: np.ndarray) -> float:
    """Of the derivatives by two parameters, the second to the first."""
    ratio = slopes[:, 0] @ slopes[:, 1] / (slopes[:, 0] @ slopes[:, 0])
    return float(ratio) if np.isfinite(ratio) else 0.0


def _product(names: list[str], ratio: Fraction) -> str:
    """
    >>> _product(["a", "b"], Fraction(1)), _product(["a", "b"], Fraction(-2, 3))
    ('a * b', 'a^3 / b^2')
    """
    powers = [f"{name}^{k}".removesuffix("^1") for name, k in zip(names, _sizes(ratio), strict=True)]
    return f" {'*' if ratio > 0 else '/'} ".join(powers)


def _sum(names: list[str], ratio: Fraction) -> str:
    """
    >>> _sum(["a", "b"], Fraction(-1)), _sum(["a", "b"], Fraction(3, 2))
    ('a - b', '2 * a + 3 * b')
    """
    terms = [f"{k} * {name}".removeprefix("1 * ") for name, k in zip(names, _sizes(ratio), strict=True)]
    return f" {'+' if ratio > 0 else '-'} ".join(terms)


def _sizes(ratio: Fraction) -> tuple[int, int]:
    return ratio.denominator, abs(ratio.numerator)
