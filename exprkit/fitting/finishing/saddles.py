"""Saddle points, where the gradient is 0 as at a minimum, although the loss is less beside them.

In: expressions, complete data, an objective, parameters.  Out: starts beside the parameters, from which steps to a
minimum come back to it, and lead away from a saddle point.

    >>> import exprkit as ek, numpy as np
    >>> x = np.linspace(-2, 2, 41)[:, None]
    >>> ek.fit("cos(p1 * x1)", x, np.cos(1.3 * x[:, 0]), init=[0.0]).params.round(6)
    array([[1.3]])

The starts lie around the parameters, with all four patterns of signs.  A parameter of 0 has no size of its own: it
moves by a share of numbers that are drawn by where it stands (``starts.candidates``).
"""

from __future__ import annotations

import numpy as np

from exprkit.backends.objective import Options
from exprkit.expressions.population import Population
from exprkit.fitting.finishing.factors import CountedPoints
from exprkit.fitting.starts.candidates import Sides, Skeleton, StartSample, draw

SIGNS = np.array([[1, 1], [-1, -1], [1, -1], [-1, 1]])  # of moves of the first, third, ... and second, ... parameters
SHARE = 0.03  # of parameters, by which they move: chosen, not measured
OF_DRAWN = 0.3  # ... and of what is drawn, where a parameter is 0
NO_SIZE = 1e-6  # share of a number that is drawn below which a parameter counts as 0


def beside(
    pop: Population, points: CountedPoints, options: Options, params: np.ndarray, linear: np.ndarray
) -> np.ndarray:
    """Starts beside ``params``, (n_exprs, max_params), of each expression: (len(SIGNS), n_exprs, max_params).

    ``linear``: bits of the parameters that an expression is linear in.
    """
    n, width = params.shape
    rng = np.random.Generator(np.random.PCG64([len(points.y), width]))
    moves = SIGNS[:, np.arange(width) % 2] * (0.5 + rng.random(width))
    starts = params + SHARE * moves[:, None] * np.abs(params)
    sample = StartSample(*points, points.y)
    for i in range(n):
        used = slice(0, int(pop.n_params[i]))
        p = params[i, used]
        if np.any(np.abs(p) < NO_SIZE) and (tree := Skeleton.of(pop, i, int(linear[i]))) is not None:
            drawn = np.abs(draw(tree, sample, Sides.of(options, i, len(p)), len(SIGNS), rng))
            is_zero = np.abs(p) < NO_SIZE * drawn
            starts[:, i, used] += np.where(is_zero, OF_DRAWN * moves[:, used] * drawn, 0.0)
    return starts
