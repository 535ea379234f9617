"""More than one formula: weights of the expressions of a fit, and bands of what they predict together.

In: a ``FitResult``.  Out: weights that add up to 1, a sentence, a table of pandas.

    >>> import exprkit as ek, numpy as np
    >>> x = np.linspace(0, 1, 40)[:, None]
    >>> y = 1 + x[:, 0] + 0.1 * np.random.default_rng(0).standard_normal(40)
    >>> ek.fit(["p1 + p2 * x1", "p1 * exp(p2 * x1)", "p1"], x, y).model_weights("aic").round(3)
    array([0.206, 0.794, 0.   ])

By a criterion of information a weight is exp(-difference / 2), of a description length in nats exp(-difference): the
odds of one formula against another (K. P. Burnham and D. R. Anderson, "Model Selection and Multimodel Inference"
(2002), section 2.9).  Stacking has the weights whose sum of predictions is best at rows that were left out (D. H.
Wolpert, Neural Networks 5, 1992; L. Breiman, Machine Learning 24, 1996).  What the expressions predict together is
distributed as the mixture of what each predicts: a band holds what they disagree about as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from exprkit.errors import ArgumentError, brought_by, one_of, whole
from exprkit.evaluate.evaluator import Evaluator
from exprkit.fitting.uncertainty.minimum import Minimum
from exprkit.fitting.uncertainty.predictions import bands

if TYPE_CHECKING:
    import pandas as pd

HALVES = {"aic": 0.5, "bic": 0.5, "description_length": 1.0}  # nats per unit of a criterion
BY = (*HALVES, "stacking")
LEAST = 1e-4  # weight below which a formula is left out of a band
AS_GOOD = 0.37  # share of the largest weight: exp(-1), a difference of 2 in a criterion of information
SUM = 1e4  # times y's size, by which the weights of stacking add up to 1
HALVINGS = 60  # of the interval in which the end of a band lies
BOOTSTRAPS = 100  # of the weights of stacking, for a band
ONE_SIGMA = 0.6826894921370859  # level of a band of one standard error, of normal errors
MOST_FREE = 1e9  # degrees of freedom, which are as good as infinitely many


def weights_of(result: Any, by: str, folds: int, seed: int, n: int = 0) -> np.ndarray:
    """Weights of the expressions, float64 (n_exprs,), that add up to 1; of stacking the mean of ``n`` bootstraps."""
    one_of("by", by, BY)
    if by == "stacking":
        return _stacked(result, folds, seed, n)
    score = result.score(by)
    fine = np.isfinite(score)
    if not fine.any():
        raise ArgumentError(f"no expression has a finite {by}: there is nothing to weigh")
    nats = HALVES[by] * np.where(fine, score - np.min(score[fine]), np.inf)
    odds = np.exp(-nats)
    return np.asarray(odds / odds.sum())


def _stacked(result: Any, folds: int, seed: int, n: int) -> np.ndarray:
    """Weights by predictions of rows that were left out, each ``folds``-th of them in turn.

    The mean over ``n`` draws of the rows' shares, of a Bayesian bootstrap, where bands are to know that the weights
    themselves are estimates (D. B. Rubin, Annals of Statistics 9, 1981; Y. Yao et al., Bayesian Analysis 13, 2018).
    """
    if result.kind not in ("squares", "gaussian") or any(
        one is not None for one in (result._composed, result.goal.x_error)
    ):
        raise ArgumentError("stacking is of squared errors: loss='squares' or 'gaussian', without prior= or x_error=")
    with brought_by("search"):
        from scipy.optimize import nnls

    goal = result.goal
    rows = np.flatnonzero(np.ones(len(goal.y)) if goal.w is None else goal.w > 0)
    whole("folds", folds, 2, len(rows))
    random = np.random.default_rng(whole("seed", seed, 0))
    fold = random.permutation(len(rows)) % folds
    X, y = goal.X[rows], goal.y[rows].astype(np.float64)
    left_out = np.full((len(rows), len(result)), np.nan)
    for i in range(len(result)):
        one = result[[i]]
        ev = Evaluator(one.pop, X, "cpu", dtype="float64")
        least = Minimum.of(one) if one.pop.max_params and np.isfinite(one.loss[0]) else None
        for k in range(folds):
            p = one.params if least is None else least.without(fold == k)
            left_out[fold == k, i] = ev.evaluate(p)[0, fold == k]
    fine = np.isfinite(left_out).all(axis=0)
    if not fine.any():
        raise ArgumentError("no expression predicts all rows that were left out: there is nothing to weigh")
    root = np.ones(len(y)) if goal.w is None else np.sqrt(goal.w[rows].astype(np.float64))
    size, weights = SUM * np.linalg.norm(root * y), np.zeros(len(result))
    for share in np.sqrt(random.dirichlet(np.ones(len(y)), n) * len(y)) if n else np.ones((1, len(y))):
        A = np.concatenate([(share * root)[:, None] * left_out[:, fine], np.full((1, fine.sum()), size)])
        own = nnls(A, np.append(share * root * y, size))[0]
        weights[fine] += own / own.sum()
    return np.asarray(weights / weights.sum())


def verdict(result: Any, by: str) -> str:
    """A sentence: which expressions are as good as the best one."""
    one_of("by", by, tuple(HALVES))
    weights = weights_of(result, by, 2, 0)
    order = np.argsort(-weights, kind="stable")
    good = order[weights[order] >= AS_GOOD * weights[order[0]]].tolist()
    each = ", ".join(f"{result.pop[i]} ({100 * weights[i]:.0f} %)" for i in good)
    if len(good) > 1:
        return f"{len(good)} of {len(result)} formulas are as good, by {by}: {each}"
    rest = f"; the next has {100 * weights[order[1]]:.2g} %" if len(order) > 1 else ""
    return f"one of {len(result)} formulas is the best, by {by}: {each}{rest}"


def average(result: Any, X: Any, weights: np.ndarray, level: float, kind: str, of_points: Any) -> pd.DataFrame:
    """A row per point of X: the weighted prediction, and the lower and upper end of the mixture's band."""
    with brought_by("notebooks"):
        import pandas as pd
    with brought_by("search"):
        from scipy.special import stdtr

    used = np.flatnonzero(weights >= LEAST)
    share = weights[used] / weights[used].sum()
    f, error, free, reach = [], [], [], 0.0
    for i in used.tolist():
        least = Minimum.of(result[[i]])
        table = bands(least, least.result, X, ONE_SIGMA, kind, "delta", of_points, "residuals", 2, 0)
        f.append(table["prediction"].to_numpy())
        error.append((table["upper"] - table["lower"]).to_numpy() / (2 * least.quantile(ONE_SIGMA)))
        free.append(min(least.free, MOST_FREE))
        reach = max(reach, least.quantile(level))
    values = np.array(f)
    if open_ones := [str(result.pop[i]) for i, own in zip(used.tolist(), error, strict=True) if np.isnan(own).any()]:
        raise ArgumentError(
            f"{open_ones[0]} has no band, as the data do not determine what it predicts: leave it out"
            + (f", and {', '.join(open_ones[1:])}" if open_ones[1:] else "")
        )
    errors = np.maximum(error, np.spacing(np.abs(values)))  # a formula without parameters has none
    tail, ends = (1 - level) / 2, []
    for below in (tail, 1 - tail):
        low, high = (np.min(values - 10 * reach * errors, axis=0), np.max(values + 10 * reach * errors, axis=0))
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            with np.errstate(all="ignore"):
                mass = share @ stdtr(np.array(free)[:, None], (middle - values) / errors)
            low, high = np.where(mass < below, middle, low), np.where(mass < below, high, middle)
        ends.append((low + high) / 2)
    return pd.DataFrame({"prediction": share @ values, "lower": ends[0], "upper": ends[1]})
