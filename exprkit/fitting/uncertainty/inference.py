"""A fit as an ``xarray.DataTree`` in the shape of ArviZ's InferenceData.

In: a ``Minimum``.  Out: groups of draws of the parameters, of the rows' log-likelihoods and of new y, and of the data.

With the prior 1 / variance, and for parameters that enter linearly, the draws are those of the posterior: a chi-squared
variance where it is estimated, then normal parameters (A. Gelman et al., "Bayesian Data Analysis" (2013), section
14.2).  ArviZ (O. A. Martin et al., JOSS 8, 2023) reads the tree as it is, before its version 1 by
``InferenceData.from_datatree``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from exprkit.backends import objective
from exprkit.errors import ArgumentError, brought_by, one_of, whole
from exprkit.evaluate.evaluator import Evaluator
from exprkit.fitting.uncertainty.minimum import MOST_REFITS, Minimum
from exprkit.text.names import word_of
from exprkit.text.tokens import VARIABLE
from exprkit.version import __version__

METHODS = ("delta", "bootstrap")
SIGMA = "sigma"  # standard deviation of an error of weight 1

_log_gamma = np.vectorize(math.lgamma, otypes=[np.float64])


def tree(least: Minimum, one: Any, method: str, resample: str, n: int, seed: int) -> Any:
    """Groups posterior, log_likelihood and posterior_predictive (of likelihoods), observed_data and constant_data."""
    with brought_by("inference"):
        import xarray as xr

    one_of("method", method, METHODS)
    random, goal = np.random.default_rng(whole("seed", seed, 0)), one._result.goal
    is_estimated = np.isfinite(least.free)
    if method == "bootstrap":
        params = least.bootstrap(resample, n, seed)
        variance = np.full(len(params), least.variance)
    else:
        whole("n", n, 2, MOST_REFITS)
        share = least.free / random.chisquare(least.free, n) if is_estimated and least.free > 0 else np.ones(n)
        params, variance = _normal(least, one, random, share), least.variance * share
    draws = ("chain", "draw")
    posterior = {name: (draws, column[None]) for name, column in zip(one.names, params.T, strict=True)}
    if is_estimated:
        posterior[SIGMA] = (draws, np.sqrt(variance)[None])
    counted = np.ones(len(goal.y), bool) if goal.w is None else goal.w > 0
    y, rows = goal.y[counted].astype(np.float64), {"row": np.flatnonzero(counted)}
    data = {word_of(VARIABLE, k, one.expression.variables): ("row", X) for k, X in enumerate(goal.X[counted].T)}
    data |= {} if goal.w is None else {"weights": ("row", goal.w[counted])}
    groups = {"posterior": posterior, "observed_data": {goal.target: ("row", y)}, "constant_data": data}
    if least.result is one._result and least.options.kind in (objective.SQUARES, objective.POISSON):
        f = Evaluator(least.pop, least.points.X, "cpu", dtype="float64").evaluate(params[:, None])[:, 0]
        likely, drawn = _of_rows(least, f, variance, random)
        for group, values in (("log_likelihood", likely), ("posterior_predictive", drawn)):
            groups[group] = {goal.target: ((*draws, "row"), values[None])}
    about = {"inference_library": "exprkit", "inference_library_version": __version__, "formula": str(one.expression)}
    every = {name: xr.Dataset(group, None if name == "posterior" else rows, about) for name, group in groups.items()}
    return xr.DataTree.from_dict(every)


def _normal(least: Minimum, one: Any, random: np.random.Generator, share: np.ndarray) -> np.ndarray:
    """Normal parameters, (n, P), of the covariance times a share each; what is at a bound stays there."""
    C, held = least.covariance, one.at_bound
    if not np.isfinite(np.diagonal(C)[~held]).all():
        lost = [name for name, v, at in zip(one.names, np.diagonal(C), held, strict=True) if not (at or np.isfinite(v))]
        raise ArgumentError(f"no draws of {', '.join(lost)}, which have no standard error: identifiability() says why")
    C = np.where(held[:, None] | held, 0.0, C)
    drawn = random.multivariate_normal(np.zeros(len(C)), C, len(share), method="eigh")
    return np.asarray(least.params + np.sqrt(share)[:, None] * drawn)


def _of_rows(
    least: Minimum, f: np.ndarray, variance: np.ndarray, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Log-likelihoods and draws of y at every row, (n, n_points) each."""
    y, w = least.points.y, least.points.w
    with np.errstate(all="ignore"):
        if least.options.kind == objective.POISSON:
            likely = w * (np.where(y > 0, y * np.log(f), 0.0) - f - _log_gamma(y + 1))
            return likely, random.poisson(np.where(f > 0, f, 0.0)).astype(np.float64)
        v = variance[:, None] / w
        return -((y - f) ** 2) / v / 2 - np.log(2 * np.pi * v) / 2, f + np.sqrt(v) * random.standard_normal(f.shape)
