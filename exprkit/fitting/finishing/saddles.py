"""Saddle points, where the gradient is 0 as at a minimum, although the loss is less beside them.

In: expressions, complete data, an objective, parameters.  Out: whether the loss curves upwards there in every
direction, as at a minimum; if not, starts beside the parameters, from which steps come back to a minimum, and lead
away from a saddle point.

    >>> import exprkit as ek, numpy as np
    >>> x = np.linspace(-2, 2, 41)[:, None]
    >>> ek.fit("cos(p1 * x1)", x, np.cos(1.3 * x[:, 0]), init=[0.0]).params.round(6)
    array([[1.3]])

The starts lie around the parameters, with all four patterns of signs.  A parameter of 0 has no size of its own: it
moves by a share of numbers that are drawn by where it stands (``starts.candidates``).
"""

from __future__ import annotations

import functools

import numpy as np

from exprkit.backends.objective import Options, weight_of
from exprkit.evaluate.compute import Compute
from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.population import Population
from exprkit.fitting.finishing.factors import CountedPoints, parts_of, second_derivatives
from exprkit.fitting.starts.candidates import Sides, Skeleton, StartSample, draw

SIGNS = np.array([[1, 1], [-1, -1], [1, -1], [-1, 1]])  # of moves of the first, third, ... and second, ... parameters
SHARE = 0.03  # of parameters, by which they move: chosen, not measured
OF_DRAWN = 0.3  # ... and of what is drawn, where a parameter is 0
NO_SIZE = 1e-6  # share of a number that is drawn below which a parameter counts as 0
STEP = 1e-4  # share of a parameter over which the gradient's change is measured
STRICT = 1e-5  # least eigenvalue of a minimum's second derivatives, scaled to a diagonal of ones; their error is STEP^2


def curves_upwards(
    pop: Population, points: CountedPoints, options: Options, params: np.ndarray, compute: Compute
) -> np.ndarray:
    """Whether the second derivatives of the loss at ``params``, (n_exprs, P), are positive definite: bool (n_exprs,).

    By central differences of the gradient.  No where a parameter is 0 and changes no value, as it has no size then.
    """
    n, width = params.shape
    result = np.zeros(n, bool)
    for part in parts_of(n, 2 * width * len(points.y), width):
        few, p = pop[part], params[part]
        ev = Evaluator(few, points.X, **compute.arguments)
        with np.errstate(all="ignore"):
            norm = np.zeros(p.shape)
            norm[:, : few.max_params] = np.einsum("mnp,n->mp", ev.jacobian(p[:, : few.max_params]) ** 2, points.w)
            whole = np.where(norm > 0, np.sqrt(points.w @ points.y**2 / norm), 0.0)  # changes f by as much as y is
            h = STEP * np.where(np.abs(p) < NO_SIZE * whole, whole, np.abs(p))
            H = second_derivatives(functools.partial(_gradient, ev, points, options), p, h)
            unused = np.arange(width) >= few.n_params[:, None]
            H[unused[:, :, None] | unused[:, None, :]] = 0.0
            H[:, np.arange(width), np.arange(width)] += unused
            unit = np.sqrt(np.diagonal(H, axis1=1, axis2=2))
            H = (H + H.transpose(0, 2, 1)) / 2 / unit[:, :, None] / unit[:, None, :]
        known = np.isfinite(H).all(axis=(1, 2))
        result[part[known]] = np.linalg.eigvalsh(H[known]).min(axis=1, initial=1.0) > STRICT
    return result


def _gradient(ev: Evaluator, points: CountedPoints, options: Options, sets: np.ndarray) -> np.ndarray:
    """Half of the loss's gradient at ``sets`` of parameters, (n_sets, n_exprs, P)."""
    slopes, sets = np.zeros(sets.shape), sets[..., : ev.pop.max_params]
    f = ev.evaluate(sets)
    r = f - points.y
    q = weight_of(options.kind, r, f, options.delta, np)
    w = points.w * (r if q is None else q * r)
    slopes[..., : ev.pop.max_params] = np.einsum("smnp,smn->smp", ev.jacobian(sets), w)
    return slopes


def beside(
    pop: Population, points: CountedPoints, options: Options, params: np.ndarray, linear: np.ndarray
) -> np.ndarray:
    """Starts beside ``params``, (n_exprs, max_params), of each expression: (len(SIGNS), n_exprs, max_params).

    ``linear``: bits of the parameters that an expression is linear in.
    """
    width = params.shape[1]
    rng = np.random.Generator(np.random.PCG64([len(points.y), width]))
    moves = SIGNS[:, np.arange(width) % 2] * (0.5 + rng.random(width))
    with np.errstate(over="ignore"):
        starts = params + SHARE * moves[:, None] * np.abs(params)
    sample = StartSample(*points, points.y)
    is_used = np.arange(width) < pop.n_params[:, None]
    for i in np.flatnonzero(np.any(is_used & (np.abs(params) < NO_SIZE), axis=1)).tolist():
        used = slice(0, int(pop.n_params[i]))
        p = params[i, used]
        if (tree := Skeleton.of(pop, i, int(linear[i]))) is not None:
            drawn = np.abs(draw(tree, sample, Sides.of(options, i, len(p)), len(SIGNS), rng))
            is_zero = np.abs(p) < NO_SIZE * drawn
            starts[:, i, used] += np.where(is_zero, OF_DRAWN * moves[:, used] * drawn, 0.0)
    return starts
