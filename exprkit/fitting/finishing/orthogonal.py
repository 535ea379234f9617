"""Errors in X as well as in y: fits of least orthogonal distances (errors in variables).

In: an expression, data and the standard deviations of X.  Out: parameters at the least value of

    sum w (y - f(x; p))^2 + sum ((x - X) / s)^2

over p and a true x for every row.  A row's x meets no other row's: a step eliminates them, as it does with e = (x - X)
/ s, g = sqrt(w) s df/dx and c = 1 + damping where a row has the residual sqrt(w) (y - f) + g.e / c and the weight
c / (c + g.g).  n rows cost O(n P^2) (P. T. Boggs, R. H. Byrd and R. B. Schnabel, "A stable and efficient algorithm for
nonlinear orthogonal distance regression", SIAM J. Sci. Stat. Comput. 8, 1987).  The first step is that of effective
variances.  Many data sets are fitted side by side: the parameters are columns of rows that follow each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends import objective
from exprkit.errors import ArgumentError, DataError, did_you_mean
from exprkit.evaluate import inputs, tables
from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.population import Population
from exprkit.fitting.likelihood import negative_log_likelihood
from exprkit.numbers import as_numbers
from exprkit.operators import ops
from exprkit.text.names import word_of
from exprkit.text.tokens import OPERATOR, PARAMETER, VARIABLE

STEPS = 300
DAMPING = 1e-3  # of the first step
LESS = 0.1  # of it after a step as good as foreseen
HIDDEN = 1e-13  # share of the loss by which it may fall unseen, so that the steps' length decides
NEAR = 1e-12  # length of a step, as a share of the root of the loss, at which a fit ends
SHORTER = 0.5  # than the step before, or it was rounding
RANK = 1e-13  # share of the largest singular value that is rounding
EPS = float(np.finfo(np.float64).eps)


class Distances(NamedTuple):
    """Where fits of m data sets end."""

    params: np.ndarray  # (m, P)
    loss: np.ndarray  # (m,)
    X: np.ndarray  # (m, n, V): the true x
    y: np.ndarray  # (m, n): of the linear problem in p there, with its weights
    w: np.ndarray  # (m, n)
    status: np.ndarray  # uint8 (m,)
    steps: np.ndarray  # (m,)


def check(lacks_weights: bool, **is_asked: bool) -> None:
    """An error for arguments of a fit that errors in X do not go with."""
    if lacks_weights:
        raise ArgumentError("x_error= needs weights=, 1 / variance of y: errors of X are weighed against those of y")
    for name in (name for name, asked in is_asked.items() if asked):
        raise ArgumentError(
            f"x_error= is for least squares of complete data by 'lm' to the end: it does not go with this {name}="
        )


def deviations(X: Any, pop: Population, x_error: Any) -> np.ndarray:
    """The standard deviations of X, float64 (n_points, n_vars), as a user gives them.

    Raises ArgumentError, DataError for a column that there is not, and for what are no standard deviations.
    """
    shape = (inputs.length(X), *(np.shape(X)[1:] if not tables.is_table(X) else (pop.n_vars,)))
    names = [word_of(VARIABLE, i, pop.variables) for i in range(shape[1])]
    parts: dict[str, tuple[Any, Any]]
    if not isinstance(x_error, Mapping):
        if tables.is_table(X):
            raise ArgumentError(f"x_error= of a table must be a dict by columns, such as {{{names[0]!r}: 0.1}}")
        parts = {"x_error": (slice(None), x_error)}
    elif unknown := [name for name in x_error if name not in names]:
        hint = did_you_mean(str(unknown[0]), names)
        raise ArgumentError(f"x_error: no formula has a variable {unknown[0]!r}; there are {', '.join(names)}{hint}")
    else:
        parts = {f"x_error of {name}": (names.index(name), error) for name, error in x_error.items()}
    errors = np.zeros(shape)
    for what, (column, given) in parts.items():
        numbers = as_numbers(what, tables.vector_of(X, given, what)).astype(np.float64)
        place = errors[:, column]
        if numbers.ndim > place.ndim or numbers.shape not in ((), place.shape[1:], place.shape):
            able = f"a number, or of shape {' or '.join(str(one) for one in (place.shape[1:], place.shape) if one)}"
            raise DataError(f"{what} must be {able}, not of shape {numbers.shape}")
        if not np.all((numbers >= 0) & (numbers < np.inf)):
            bad = numbers[~((numbers >= 0) & (numbers < np.inf))][0]
            raise DataError(f"{what} holds {bad:g}: standard deviations are finite numbers of at least 0")
        errors[:, column] = numbers
    return errors


def fitted(found: Any, errors: np.ndarray) -> Any:
    """A ``FitResult`` of least orthogonal distances, from the parameters of one of squared errors."""
    goal, ended = found.goal._replace(x_error=errors), found.ended.copy()
    params, loss, steps = found.params.copy(), found.loss.copy(), found.iterations.copy()
    for i in np.flatnonzero(np.isfinite(found.loss)).tolist():
        one = found[[i]]
        least = of_goal(one.pop, one.goal._replace(x_error=errors), one.params, *sides(one))
        width = one.params.shape[1]
        params[i, :width], loss[i], steps[i] = least.params[0], least.loss[0], least.steps[0]
        ended[i] = least.status[0] if width else ended[i]
    loss = negative_log_likelihood(goal, loss) if goal.loss in objective.LIKELIHOODS else loss
    residuals = replace(found, params=params, _evaluator=None).residuals()
    w = np.ones(residuals.shape[1]) if goal.w is None else goal.w
    with np.errstate(all="ignore"):
        sse = np.sum(np.where(w > 0, w * residuals**2, 0.0), axis=1)
        r2 = 1 - (1 - found.r2) * sse / np.sum(np.where(w > 0, w * found.residuals() ** 2, 0.0), axis=1)
    arrays: dict[str, Any] = {"params": params, "loss": loss, "ended": ended, "iterations": steps, "r2": r2}
    return replace(found, **arrays, goal=goal, n_evaluations=found.n_evaluations + int(steps.sum()), _evaluator=None)


def linear(result: Any) -> Any:
    """A ``FitResult`` of one expression as one of squared errors at the true x: of the same slope and covariance."""
    p = result.params
    least = of_goal(result.pop, result.goal, p, p, p)
    goal = result.goal._replace(X=least.X[0], y=least.y[0], w=least.w[0], x_error=None)
    return replace(result, goal=goal, _evaluator=None)


def sides(result: Any) -> tuple[np.ndarray, np.ndarray]:
    """The bounds of one expression's parameters, (1, P) each."""
    lower, upper = result.goal.lower, result.goal.upper
    shape = result.params.shape
    return np.full(shape, -np.inf) if lower is None else lower, np.full(shape, np.inf) if upper is None else upper


def of_goal(pop: Population, goal: Any, params: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> Distances:
    """The fit of one expression to the data of a goal, from ``params`` (1, P); or as many as there are of these."""
    w = np.ones(len(goal.y)) if goal.w is None else goal.w.astype(np.float64)
    X, y, w = (np.broadcast_to(a, (len(params), *a.shape)) for a in (goal.X[:, : goal.x_error.shape[1]], goal.y, w))
    return fit(pop, X, y, w, goal.x_error, params, lower, upper)


def fit(
    pop: Population,
    X: np.ndarray,
    y: np.ndarray,
    w: np.ndarray,
    errors: np.ndarray,
    p: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
) -> Distances:
    """Fits of one expression to data sets X (m, n, V), y and w (m, n) with ``errors`` (n, V), from p (m, P)."""
    wrong = np.array([k for k in tables.used_columns(pop) if np.any(errors[:, k] > 0)], np.int64)
    curve, root, p = _with_shifts(pop, errors.shape[1], wrong), np.sqrt(w), np.clip(p, lower, upper)
    m, n = y.shape

    def at(p: np.ndarray, e: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Residuals (m, n), derivatives by p and by e of sqrt(w) f, loss (m,)."""
        x = X.astype(np.float64)
        x[..., wrong] += errors[:, wrong] * e
        rows = np.concatenate([x, np.broadcast_to(p[:, None], (m, n, p.shape[1]))], axis=2)
        ev = Evaluator(curve, rows.reshape(m * n, -1), "cpu", dtype="float64")
        none = np.zeros((1, p.shape[1] + len(wrong)))
        f, J = ev.evaluate(none)[0].reshape(m, n), ev.jacobian(none)[0].reshape(m, n, -1)
        r, J = (np.where(w > 0, root * (y - f), 0.0), np.where(w[..., None] > 0, root[..., None] * J, 0.0))
        return r, J[..., : p.shape[1]], J[..., p.shape[1] :] * errors[:, wrong], np.sum(r**2, 1) + np.sum(e**2, (1, 2))

    e = np.zeros((m, n, len(wrong)))
    with np.errstate(all="ignore"):
        r, J, g, loss = at(p, e)
        damping, grow, before, noise = np.full(m, DAMPING), np.full(m, 2.0), np.full(m, np.inf), EPS * _norm(root * y)
        done, is_minimum, steps = ~np.isfinite(loss), np.zeros(m, bool), np.zeros(m, np.int64)
        for _ in range(STEPS):
            if np.all(done):
                break
            c, slope = (1 + damping)[:, None], np.einsum("mnp,mn->mp", J, r)
            weight = c / (c + np.sum(g * g, axis=2))
            held = (p <= lower) & (slope <= 0) | (p >= upper) & (slope >= 0)
            A = np.where(held[:, None], 0.0, np.sqrt(weight)[..., None] * J)
            dp = _solved(A, np.sqrt(weight) * (r + np.sum(g * e, axis=2) / c), damping)
            dp = np.clip(p + dp, lower, upper) - p
            left = r - np.einsum("mnp,mp->mn", J, dp)
            slopes = g * left[..., None] - e
            de = (slopes - g * (np.sum(g * slopes, axis=2) / (c + np.sum(g * g, axis=2)))[..., None]) / c[..., None]
            foreseen = loss - np.sum((left - np.sum(g * de, 2)) ** 2, 1) - np.sum((e + de) ** 2, (1, 2))
            length = np.sqrt(np.sum(np.einsum("mnp,mp->mn", A, dp) ** 2, 1) + np.sum(de * de, (1, 2)))
            new_p, new_e = p + dp, e + de
            new_r, new_J, new_g, new_loss = at(new_p, new_e)
            gain = loss - new_loss
            hidden = foreseen <= HIDDEN * loss
            fine = np.isfinite(new_loss) & np.isfinite(new_J).all(axis=(1, 2)) & np.isfinite(new_g).all(axis=(1, 2))
            near = (length <= NEAR * np.sqrt(loss)) | (length <= noise) | hidden & ~(length < SHORTER * before)
            accepted = ~done & fine & ((gain > 0) | hidden & (length < before))
            steps += ~done
            is_minimum |= ~done & near & (damping < 1)
            done |= near
            ratio = np.where(hidden, 1.0, gain / foreseen)
            damping = np.where(accepted, damping * np.clip(1 - (2 * ratio - 1) ** 3, LESS, 2), damping * grow)
            grow, before = np.where(accepted, 2.0, 2 * grow), np.where(accepted, length, before)
            every = ((new_p, p), (new_loss, loss), (new_r, r), (new_J, J), (new_g, g), (new_e, e))
            p, loss, r, J, g, e = (np.where(accepted.reshape(-1, *[1] * (a.ndim - 1)), a, b) for a, b in every)
        x = X.astype(np.float64)
        x[..., wrong] += errors[:, wrong] * e
        # y of the tangent at the true x, and its variance there: 1 / w + (s df/dx)^2
        f, share = y - np.where(w > 0, r / root, 0.0), 1 + np.sum(g * g, axis=2)
    status = np.where(is_minimum, objective.FTOL, np.where(done, objective.STUCK, objective.MAX_ITER))
    status = np.where(np.isfinite(loss), status, objective.NOT_FINITE).astype(np.uint8)
    return Distances(p, loss, x, f + (y - f) * share, w / share, status, steps)


def _solved(A: np.ndarray, b: np.ndarray, damping: np.ndarray) -> np.ndarray:
    """The least squares of A p = b with columns of norm 1 and damping, (m, P)."""
    if not A.shape[2]:
        return np.zeros((len(A), 0))
    size = _norm(A)
    unit = np.where(size > 0, size, 1.0)
    fine = np.isfinite(A).all(axis=(1, 2))
    U, s, V = np.linalg.svd(np.where(fine[:, None, None], A / unit[:, None], 0.0), full_matrices=False)
    share = np.where(s > RANK * s[:, :1], s / (s * s + damping[:, None]), 0.0)
    return np.einsum("mkp,mk->mp", V, share * np.einsum("mnk,mn->mk", U, b)) / unit


def _norm(a: np.ndarray) -> np.ndarray:
    return np.sqrt(np.sum(a * a, axis=1))


def _with_shifts(pop: Population, n_vars: int, wrong: np.ndarray) -> Population:
    """The expression with parameters as columns behind the others; to these, and to those that are ``wrong``, a shift.

    The derivative by a shift at 0 is that by the parameter, or by x, of each row.
    """
    n_params = pop.max_params
    values, is_parameter = pop.values.astype(np.int64), pop.kinds == PARAMETER
    places = np.full(n_vars + 1, -1)
    places[wrong] = n_params + np.arange(len(wrong))
    shift = np.where(is_parameter, values, places[np.where(pop.kinds == VARIABLE, values, -1)])
    tokens = list[tuple[int, int]]()
    for kind, value, own in zip(pop.kinds.tolist(), pop.values.tolist(), shift.tolist(), strict=True):
        tokens.append((VARIABLE, n_vars + value) if kind == PARAMETER else (kind, value))
        tokens += [(PARAMETER, own), (OPERATOR, ops.ADD)] if own >= 0 else []
    kinds, codes = (np.array(column, dtype) for column, dtype in zip(zip(*tokens, strict=True), "BQ", strict=True))
    return Population(kinds, codes, np.array([0, len(kinds)]))
