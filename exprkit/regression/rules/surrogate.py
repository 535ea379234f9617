"""Surrogate: a Gaussian process through noisy data, its gradients, and the evidence for its inputs.

In: inputs, values, the relative noise of each value.  Out: the mean's gradients, and the logarithm of the marginal
likelihood, by which sets of inputs are compared: those on which the values do not depend cost evidence, those that are
missing cost more.

The covariance is a line with a wide prior, a squared exponential with a length for every input, and noise
(C. E. Rasmussen, C. K. I. Williams, Gaussian Processes for Machine Learning, 2006, chapter 5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exprkit.errors import brought_by

with brought_by("search"):
    from scipy.linalg import cho_solve, cholesky, solve_triangular
    from scipy.optimize import minimize

# Chosen, not measured.
SLOPE = 3.0  # standard deviation of a line's slopes, per unit of an input
LEVEL = 3.0  # standard deviation of its offset
MIN_SPREAD = 1e-3  # standard deviation of values
MIN_NOISE = 1e-5  # standard deviation of values
MAX_STEPS = 60  # of L-BFGS
STARTS = (0.0, 0.03), (1.5, 0.3)  # logarithm of the lengths in standard deviations of an input, noise as share of v's
LOG_LENGTH = 1.5, 1.0  # mean and standard deviation of a length's logarithm; else noise is a function of short lengths
LENGTHS = 0.05, 100.0  # of the squared exponential, in standard deviations of an input
AMPLITUDES = 1e-4, 100.0  # of the squared exponential


@dataclass(frozen=True)
class Surrogate:
    """A Gaussian process given values v, (n,), at inputs u, (n, d)."""

    inputs: np.ndarray  # (n, d)
    lengths: np.ndarray  # (d,), in units of the inputs
    amplitude: float
    noise: float  # standard deviation of a value of relative noise 1
    weights: np.ndarray  # (n,), of the covariances with the inputs, for the mean
    evidence: float  # logarithm of the marginal likelihood

    def means(self, u: np.ndarray) -> np.ndarray:
        """The values that are expected at inputs u, (m, d), which are (m,)."""
        differences = u[:, None] / self.lengths - self.inputs / self.lengths
        squares = np.sum(differences**2, axis=2)
        smooth = self.amplitude**2 * np.exp(-0.5 * squares)
        return np.asarray((smooth + SLOPE**2 * u @ self.inputs.T + LEVEL**2) @ self.weights)

    def gradients(self) -> np.ndarray:
        """The gradients of the mean at the inputs, (n, d)."""
        u = self.inputs
        covariance = self.amplitude**2 * np.exp(-0.5 * _squares(u / self.lengths).sum(axis=0)) * self.weights
        pull = covariance @ u - covariance.sum(axis=1)[:, None] * u
        return np.asarray(SLOPE**2 * (self.weights @ u) + pull / self.lengths**2)


def surrogate_of(u: np.ndarray, v: np.ndarray, noise: np.ndarray) -> Surrogate:
    """The Gaussian process of greatest evidence for values v, (n,), of inputs u, (n, d).

    ``noise``: relative standard deviations, (n,), up to a common factor.
    """
    n, d = u.shape
    linear = SLOPE**2 * u @ u.T + LEVEL**2
    spread = u.std(axis=0)
    squares = _squares(u / spread)
    share = max(float(np.std(v)), MIN_SPREAD)

    def negative_evidence(theta: np.ndarray) -> tuple[float, np.ndarray]:
        scaled = np.exp(-2 * theta[:d])
        smooth = np.exp(2 * theta[d] - 0.5 * np.tensordot(scaled, squares, 1)) * (d > 0)
        variance = np.exp(2 * theta[d + 1]) * noise**2
        try:
            factor = cholesky(linear + smooth + np.diag(variance), lower=True)
        except np.linalg.LinAlgError:
            return 1e25, np.zeros_like(theta)
        weights = cho_solve((factor, True), v)
        inverse = solve_triangular(factor, np.eye(n), lower=True)
        slope = np.outer(weights, weights) - inverse.T @ inverse
        product = slope * smooth
        gradient: list[float] = [0.5 * scaled[k] * float(np.vdot(product, squares[k])) for k in range(d)]
        gradient += [float(product.sum()), float(np.diag(slope) @ variance)]
        value = -0.5 * v @ weights - np.log(np.diag(factor)).sum() - 0.5 * n * np.log(2 * np.pi)
        scores = (theta[:d] - LOG_LENGTH[0]) / LOG_LENGTH[1]
        gradient[:d] = gradient[:d] - scores / LOG_LENGTH[1]
        return 0.5 * float(scores @ scores) - float(value), -np.array(gradient)

    bounds = [np.log(LENGTHS)] * d + [np.log(AMPLITUDES) + np.log(share), (np.log(MIN_NOISE), np.log(share))]
    starts = [
        np.r_[np.full(d, length), np.log(share), np.log(max(level * share, 2 * MIN_NOISE))]
        for length, level in STARTS[: 1 + (d > 0)]
    ]
    ends = [
        minimize(negative_evidence, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": MAX_STEPS})
        for start in starts
    ]
    best = min(ends, key=lambda end: float(end.fun))
    theta = best.x
    smooth = np.exp(2 * theta[d] - 0.5 * np.tensordot(np.exp(-2 * theta[:d]), squares, 1)) * (d > 0)
    covariance = linear + smooth + np.diag(np.exp(2 * theta[d + 1]) * noise**2)
    weights = cho_solve((cholesky(covariance, lower=True), True), v)
    lengths, (amplitude, level) = np.exp(theta[:d]) * spread, np.exp(theta[d:])
    return Surrogate(u, lengths, float(amplitude), float(level), weights, -float(best.fun))


def _squares(u: np.ndarray) -> np.ndarray:
    """Squared differences of the rows, by input, (d, n, n)."""
    return np.asarray((u.T[:, :, None] - u.T[:, None, :]) ** 2)
