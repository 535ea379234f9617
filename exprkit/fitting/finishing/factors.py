"""Orthogonal factors of Jacobians: R of J = QR, so that J'J = R'R, but with J's own condition and not its square.

In: expressions, complete data, an objective, parameters.  Out: objectives and ``JacobianFactors``.

    >>> import exprkit as ek, numpy as np
    >>> from exprkit.backends.objective import Options
    >>> from exprkit.fitting.finishing.factors import Model, CountedPoints
    >>> points = CountedPoints(np.arange(3.0)[:, None], np.zeros(3), np.ones(3))
    >>> Model(ek.parse(["p1 * x1"]), points, Options()).factors(np.ones((1, 1))).norm.round(3)
    array([[2.236]])

With q the working weight of a point (``backends.objective``), J and r are those of sqrt(w q) f, so that J'r is half of
the objective's gradient, whichever it is.

Of a loss that is the sum of values J holds the points' own gradients and r is 1, so that the step is that of E. K.
Berndt, B. H. Hall, R. E. Hall, J. A. Hausman (Annals of Economic and Social Measurement 3, 1974), and the part of r in
J's columns that of the score test (C. R. Rao, 1948): whatever the loss's unit, it is the step in standard errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends import objective
from exprkit.backends.objective import Options
from exprkit.evaluate.compute import Compute
from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.population import Population
from exprkit.runtime.progress import look

NUMBERS = 1 << 21  # of a Jacobian in use at a time: 16 MiB, about what stays in cache
SMALL = 1 << 23  # numbers of Jacobians that are factored without being asked
BLOCK = 256  # rows that are brought to triangular form at a time
ON_HOST = Compute("cpu", dtype="float64")
# shares of the largest eigenvalue of J'J, of columns of norm 1: what is rounding, and what it counts as, so that the
# gradient's own rounding is far less than a standard error
LOST, LEAST = 1e-14, 1e-18
ROUNDS = 6, 2  # that find how far a loss's gradient changes by its spread: first, and after a step
LARGEST = 1e300  # a derivative that counts as finite: a column's norm is, too
NEAR = 1e-3  # standard errors within which a kink of the loss is where the parameters are
SHORTEST = 1e-11  # share of a parameter that a curvature is measured over at least, so that it is not rounding
LAST_PLACES = 10 * float(np.finfo(np.float64).eps)  # share of a parameter that its difference is at least


class CountedPoints(NamedTuple):
    """Data in float64; those of weight 0 are left out."""

    X: np.ndarray
    y: np.ndarray
    w: np.ndarray


class JacobianFactors(NamedTuple):
    """R of [J r] for every expression: J'J = R'R and J'r = R'q."""

    R: np.ndarray  # (m, P, P), of columns that are divided by ``norm``
    q: np.ndarray  # (m, P)
    rest: np.ndarray  # (m,): the norm of r outside of J's columns
    norm: np.ndarray  # (m, P): of J's columns; 0 where one can not be reckoned with
    size: np.ndarray  # (m,): the norm of f
    finite: np.ndarray  # bool (m,): all derivatives are


class Model:
    """Objective and factors of expressions, block of rows by block of rows."""

    def __init__(self, pop: Population, points: CountedPoints, options: Options, compute: Compute = ON_HOST) -> None:
        rows = max(BLOCK, NUMBERS // ((pop.max_params + 1) * len(pop)))
        self.kind, self.delta, self.width = options.kind, options.delta, pop.max_params
        self.blocks = []
        self.at, self.values = np.zeros(0), list[np.ndarray]()  # the last parameters of ``loss``, and f there by block
        for first in range(0, len(points.y), rows):
            X, y, w = (column[first : first + rows] for column in points)
            ev = Evaluator(pop, np.ascontiguousarray(X), **compute.arguments)
            self.blocks.append((ev, y, w))
        self.is_plain = options.kind == objective.SQUARES and bool(np.all(points.w == 1))
        self.lengths: np.ndarray | None = None  # standard errors of a sum of values, each by itself, about

    def loss(self, p: np.ndarray) -> np.ndarray:
        """The objective of every expression; nan where it is not finite."""
        look()
        total = np.zeros(len(p))
        self.at, self.values = p, [ev.evaluate(p[:, : self.width]) for ev, _, _ in self.blocks]
        for f, (_, y, w) in zip(self.values, self.blocks, strict=True):
            total += objective.loss_of(self.kind, f - y, f, y, self.delta, np) @ w
        return np.where(np.isfinite(total), total, np.nan)

    def factors(self, p: np.ndarray) -> JacobianFactors:
        """Orthogonal factors at ``p``; where that is the array whose ``loss`` was the last, f is known."""
        m, P = p.shape
        tops = []
        size, total = np.zeros((m, P + 1)), np.zeros(m)
        known = self.values if self.at is p else [None] * len(self.blocks)
        for f, (ev, y, w) in zip(known, self.blocks, strict=True):
            f = ev.evaluate(p[:, : self.width]) if f is None else f
            r = f - y
            A = np.zeros((m, len(y), P + 1))
            A[:, :, : self.width] = ev.jacobian(p[:, : self.width])
            A[:, :, P] = r
            q = objective.weight_of(self.kind, r, f, self.delta, np)
            root = w if self.kind == objective.SUM else np.sqrt(w) if q is None else np.sqrt(w * q)
            if not self.is_plain:
                still = A == 0
                A *= root[..., None]
                A[still] = 0  # what is infinitely sure of no change
            if self.kind == objective.SUM:
                A[:, :, P] = 1.0
            total += np.sum((f * root) ** 2, axis=1)
            tops.append(A)
            np.maximum(size, np.abs(A).max(axis=1), out=size)
        usable = (size < LARGEST) & (size > 0)
        scale = np.where(usable, size, 1.0)
        done = []
        for A in tops:
            A /= scale[:, None, :]
            A.transpose(0, 2, 1)[~usable] = 0
            done.append(_triangles(A))
        R = _triangle(np.concatenate(done, axis=1)) if len(done) > 1 else _triangle(done[0])
        length = np.linalg.norm(R[:, :, :P], axis=1)
        safe = np.where(length > 0, length, 1.0)
        result = JacobianFactors(
            R[:, :P, :P] / safe[:, None, :],
            R[:, :P, P] * scale[:, P, None],
            np.abs(R[:, P, P]) * scale[:, P],
            length * scale[:, :P],
            np.sqrt(total),
            np.asarray((size < LARGEST).all(axis=1)),
        )
        return self._scaled(p, result) if self.kind == objective.SUM else result

    def _scaled(self, p: np.ndarray, now: JacobianFactors) -> JacobianFactors:
        """Factors of a sum of values with the curvature that its gradient has over a standard error.

        At kinks of the loss q is the shortest that there is near by, which belongs to the steepest descent.
        """
        h, spread = self.lengths, now.norm
        rounds = ROUNDS[h is not None]
        h = 0.1 * np.where(p == 0, 1.0, np.abs(p)) if h is None else h
        for _ in range(rounds):
            curve = np.abs(np.diagonal(self._changes(p, h), axis1=0, axis2=2)) / h
            change = np.where(np.isnan(curve), 0.0, np.where(curve > 0, spread / (curve * h), np.inf))
            h = np.maximum(np.clip(change, 0.1, 10.0) * h, SHORTEST * np.abs(p))
        self.lengths = h
        U, s, V = np.linalg.svd(now.R)
        small = NEAR * np.where(p == 0, h, np.minimum(h, 0.1 * np.abs(p)))
        small = np.maximum(small, LAST_PLACES * np.abs(p))
        jumps = 2 * self._changes(p, small / 2) - self._changes(p, small)  # 0 but for kinks and rounding
        jumps /= np.where(spread > 0, spread, np.inf)
        jumps = np.einsum("mij,kmj->mik", V, np.nan_to_num(jumps, posinf=0.0, neginf=0.0))
        jumps = U @ (jumps / np.where(s > LAST_PLACES * s[:, :1], s, np.inf)[:, :, None])
        shares = np.clip(np.linalg.pinv(jumps) @ now.q[:, :, None], -1.0, 1.0)
        q = now.q - (jumps @ shares)[:, :, 0]
        counts = (spread > 0) | ~np.any(spread > 0, axis=1, keepdims=True)
        bent = np.where(spread > 0, curve / spread**2, np.inf)
        curvature = np.nanmedian(np.where(counts, bent, np.nan), axis=1)
        unit = np.where((curvature > 0) & (curvature < np.inf), np.sqrt(2 * curvature), 1.0)
        return now._replace(
            q=q / unit[:, None], rest=now.rest / unit, norm=now.norm * unit[:, None] / 2, size=np.zeros(len(p))
        )

    def _changes(self, p: np.ndarray, h: np.ndarray) -> np.ndarray:
        """Half of the change of the gradient of a sum from ``h`` below to ``h`` above, by parameter: (P, m, P)."""
        return gradient_changes(self._gradient, p, h) / 2

    def _gradient(self, sets: np.ndarray) -> np.ndarray:
        total = np.zeros(sets.shape)
        for ev, y, w in self.blocks:
            total[..., : self.width] += ev.loss_and_grad(sets[..., : self.width], y, "sum", w)[1]
        return total


def gradient_changes(
    gradient: Callable[[np.ndarray], np.ndarray], p: np.ndarray, h: np.ndarray, which: Any = slice(None)
) -> np.ndarray:
    """Changes of a gradient from ``h`` below to ``h`` above each parameter, (P, m, ...), of ``p`` and ``h`` (m, P).

    ``gradient`` takes sets of parameters, (n_sets, m, P); ``which``: parameters, by default all.
    """
    look()
    steps = np.eye(p.shape[1])[which, None, :] * h
    slopes = gradient(np.concatenate([p - steps, p + steps]))
    return slopes[len(steps) :] - slopes[: len(steps)]


def second_derivatives(gradient: Callable[[np.ndarray], np.ndarray], p: np.ndarray, h: np.ndarray) -> np.ndarray:
    """Second derivatives of a loss, (m, P, P), by its gradient ``h`` below and above ``p``, (m, P)."""
    return np.moveaxis(gradient_changes(gradient, p, h) / ((p + h) - (p - h)).T[:, :, None], 0, 2)


def factors_of(jtj: np.ndarray, jtr: np.ndarray, sse: np.ndarray, size: float) -> JacobianFactors:
    """Factors by normal equations of float64: J'J (m, P, P), J'r (m, P), r'r (m,), and about the norm of f.

    Directions that are lost in J'J's rounding count as those in which next to nothing changes.
    """
    usable = np.isfinite(jtr) & np.isfinite(jtj).all(axis=2)
    norm = np.where(usable, np.sqrt(np.diagonal(jtj, axis1=1, axis2=2)), 0.0)
    unit = np.where(norm > 0, norm, np.inf)
    values, V = np.linalg.eigh(
        np.where(usable[:, :, None] & usable[:, None, :], jtj, 0.0) / unit[:, :, None] / unit[:, None, :]
    )
    most = values.max(axis=1, keepdims=True, initial=0.0)
    most = np.where(most > 0, most, 1.0)
    roots = np.sqrt(np.where(values > LOST * most, values, LEAST * most))
    q = np.einsum("mji,mj->mi", V, np.where(usable, jtr, 0.0) / unit) / roots
    rest = np.sqrt(np.maximum(sse - np.sum(q * q, axis=1), 0.0))
    R = roots[:, :, None] * V.transpose(0, 2, 1)
    return JacobianFactors(R, q, rest, norm, np.full(len(q), size), np.asarray(usable.all(axis=1)))


def triangles(
    pop: Population, points: CountedPoints, options: Options, params: np.ndarray, threads: int | None
) -> np.ndarray:
    """R of every expression at ``params``, (n_exprs, max_params, max_params)."""
    n, width = params.shape
    R = np.zeros((n, width, width))
    if not len(points.y):
        return R
    for part in parts_of(n, len(points.y), width):
        few = pop[part]
        P = few.max_params
        with np.errstate(all="ignore"):
            p = np.nan_to_num(params[part, :P], nan=0.0)
            now = Model(few, points, options, replace(ON_HOST, threads=threads)).factors(p)
            R[part, :P, :P] = now.R * now.norm[:, None, :]
            R[part[~now.finite]] = np.nan
    return R


def rounding(
    pop: Population, points: CountedPoints, options: Options, params: np.ndarray, threads: int | None
) -> np.ndarray:
    """About how far rounding moves each parameter of a minimum, (n_exprs, max_params); nan where nothing holds it.

    Values f are rounded as their largest terms p df/dp are, and so are the derivatives, by which residuals that no
    parameter explains count (A. Bjorck, "Numerical Methods for Least Squares Problems", 1996, section 1.4).
    """
    moved, eps = np.full(params.shape, np.nan), float(np.finfo(np.float64).eps)
    for part in parts_of(len(params) if len(points.y) else 0, len(points.y), params.shape[1]):
        few = pop[part]
        P = few.max_params
        with np.errstate(all="ignore"):
            p = np.nan_to_num(params[part, :P], nan=0.0)
            now = Model(few, points, options, replace(ON_HOST, threads=threads)).factors(p)
            _, s, V = np.linalg.svd(now.R)
            V, lost = V.transpose(0, 2, 1), (s <= LOST * s[:, :1])[:, None, :]
            inverse = np.where(lost, 0.0, V / s[:, None, :])
            loose = np.any(lost & (np.abs(V) > NEAR), axis=2) | (now.norm == 0)
            size = np.maximum(np.abs(p * now.norm).max(axis=1, initial=0.0), now.size)
            of_slopes = np.abs(inverse @ inverse.transpose(0, 2, 1)).sum(axis=2) * now.rest[:, None]
            by = size[:, None] * np.linalg.norm(inverse, axis=2) + of_slopes
            moved[part, :P] = np.where(loose, np.nan, eps * by / now.norm)
    return moved


def parts_of(n_exprs: int, n_points: int, width: int) -> list[np.ndarray]:
    """The numbers of expressions whose Jacobians are made at a time."""
    at_once = max(1, NUMBERS // max(n_points * (width + 1), 1))
    return [np.arange(first, min(first + at_once, n_exprs)) for first in range(0, n_exprs, at_once)]


def _triangles(A: np.ndarray) -> np.ndarray:
    """R factors of blocks of rows, one below the other: (m, n, P) to (m, fewer, P)."""
    m, n, P = A.shape
    while n > 2 * BLOCK and BLOCK > 2 * P:
        whole = n // BLOCK * BLOCK
        R = np.asarray(np.linalg.qr(A[:, :whole].reshape(m, -1, BLOCK, P), mode="r")).reshape(m, -1, P)
        A = np.concatenate([R, A[:, whole:]], axis=1)
        n = A.shape[1]
    return A


def _triangle(A: np.ndarray) -> np.ndarray:
    """The R factor, (m, P, P)."""
    m, n, P = A.shape
    if n < P:
        A = np.concatenate([A, np.zeros((m, P - n, P))], axis=1)
    return np.asarray(np.linalg.qr(_triangles(A), mode="r"))
