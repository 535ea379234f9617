"""Bands of predictions.

In: a ``Minimum`` and data points.  Out: a table of pandas.

By the delta method the variance of a prediction is J C J' with the derivatives J by the parameters and their
covariance C (G. A. F. Seber and C. J. Wild, "Nonlinear Regression" (1989), section 5.1); a new measurement scatters
about it by its own error as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from exprkit.backends import objective
from exprkit.errors import ArgumentError, brought_by, one_of
from exprkit.evaluate import tables
from exprkit.evaluate.evaluator import Evaluator
from exprkit.fitting.uncertainty.minimum import Minimum
from exprkit.numbers import as_numbers

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("mean", "observation")
METHODS = ("delta", "bootstrap")


def bands(
    least: Minimum,
    result: Any,
    X: Any,
    level: float,
    kind: str,
    method: str,
    weights: Any,
    resample: str,
    n: int,
    seed: int,
) -> pd.DataFrame:
    """A row per point of X: prediction, lower and upper end."""
    with brought_by("notebooks"):
        import pandas as pd

    one_of("kind", kind, KINDS)
    one_of("method", method, METHODS)
    reach = least.quantile(level)
    ev = Evaluator(result.pop, X, "cpu", dtype="float64")
    f = ev.evaluate(least.params[None])[0]
    own = _error_variance(least, result, X, len(f), weights) if kind == "observation" else np.zeros(len(f))
    if method == "delta":
        half = reach * np.sqrt(least.variances(ev.jacobian(least.params[None])[0]) + own)
        lower, upper = f - half, f + half
    else:
        drawn = least.bootstrap(resample, n, seed)
        values = ev.evaluate(drawn[:, None])[:, 0]
        values += np.random.default_rng([seed, 1]).standard_normal(values.shape) * np.sqrt(own)
        lower, upper = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return pd.DataFrame({"prediction": f, "lower": lower, "upper": upper})


def _error_variance(least: Minimum, result: Any, X: Any, n_points: int, weights: Any) -> np.ndarray:
    """Of a measurement at each point, (n_points,)."""
    if least.options.kind != objective.SQUARES or least.result is not result:
        raise ArgumentError(
            "kind='observation' is of normal errors: loss='squares' or 'gaussian', without prior= or x_error="
        )
    if result.goal.w is not None and weights is None:
        raise ArgumentError("the fit had weights: kind='observation' takes those of the new points as weights=")
    w = as_numbers("weights", 1.0 if weights is None else tables.vector_of(X, weights), gaps=False).astype(np.float64)
    if w.shape not in ((), (n_points,)) or not np.all(w > 0):
        raise ArgumentError(f"weights must be positive, a number or one for each of {n_points:,} points")
    return least.variance / np.broadcast_to(w, n_points)
