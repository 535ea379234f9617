"""Intervals of parameters, their correlations and the region of two of them.

In: a ``Minimum``.  Out: tables of pandas, a figure.

A profile is the least loss for every value of one parameter.  An interval of it holds the values whose deviance rises
by no more than the square of Student's t, or of the normal distribution's quantile: it is as wide on either side as
the data say, and does not change with the way that the formula is written (D. M. Bates and D. G. Watts, "Nonlinear
Regression Analysis and Its Applications" (1988), chapter 6; D. J. Venzon and S. H. Moolgavkar, "A method for
computing profile-likelihood-based confidence intervals", Applied Statistics 37, 1988).  All profiles are one
population: copies of the expression, each with a parameter fixed by its bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from exprkit.backends import objective
from exprkit.errors import ArgumentError, brought_by, did_you_mean, one_of, whole
from exprkit.fitting.uncertainty.minimum import Minimum, between_0_and_1
from exprkit.fitting.uncertainty.words import PART, lines_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

METHODS = ("delta", "profile", "bootstrap")
ROUNDS = 4  # of a search for the ends; all that do not end in 4 steps of 16-fold length are open
AHEAD = np.array([0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 16])  # of an interval by the delta method, where a round looks
WITHIN = np.arange(1, 9) / 9  # the same between two values that an end lies between
LOWER = 0.01  # by how much a deviance may fall beside a minimum
WITHOUT_ERROR = 0.1  # of a parameter's size, in the place of its standard error
NARROW = 1e-8  # square of the least width of a region's picture along the second parameter, as a share of its interval
MARGIN = 0.15  # of a region's width, beside it
REACH = 1.5  # of the delta method's interval that a region's picture shows


def intervals(
    least: Minimum, names: list[str], level: float, method: str, resample: str, n: int, seed: int
) -> pd.DataFrame:
    """A row per parameter: value, standard error, lower and upper end."""
    with brought_by("notebooks"):
        import pandas as pd

    one_of("method", method, METHODS)
    reach, error = least.quantile(level), np.sqrt(np.diagonal(least.covariance))
    if method == "profile":
        lower, upper = profiles(least, reach)
    elif method == "bootstrap":
        drawn = least.bootstrap(resample, n, seed)
        table = np.vstack([drawn.std(axis=0, ddof=1), np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)])
        is_open = np.any(np.abs(lines_of(least)) > PART, axis=1) & ~least.result.at_bound[0, : len(names)]
        error, lower, upper = np.where(is_open, np.nan, table)  # refits leave where it is what the data do not move
    else:
        lower, upper = least.params - reach * error, least.params + reach * error
    ends = {"value": least.params, "error": error, "lower": lower, "upper": upper}
    return pd.DataFrame(ends, index=names)


def profiles(least: Minimum, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """The ends, (P,) each, where the deviance has risen by ``reach``^2; a bound, or infinite, where it never does."""
    check_likelihood(least)
    width = len(least.params)
    j, direction, rows = np.tile(np.arange(width), 2), np.repeat([-1.0, 1.0], width), np.arange(2 * width)
    bound = np.concatenate(least.sides)
    step = direction * (reach * steps_of(least))[j]
    inside, outside = least.params[j], np.full(2 * width, np.inf)
    height, above, params = np.zeros(2 * width), np.full(2 * width, np.nan), np.tile(least.params, (2 * width, 1))
    for _ in range(ROUNDS):
        is_open = np.isinf(outside)
        ahead = np.where(
            is_open[:, None], step[:, None] * AHEAD, np.outer(np.where(is_open, 0, outside - inside), WITHIN)
        )
        values = direction[:, None] * np.minimum(
            direction[:, None] * (inside[:, None] + ahead), (direction * bound)[:, None]
        )
        rise, ends = deviances(least, [j], [values], params)
        root = np.sqrt(np.maximum(rise, 0))
        is_beyond = ~(root < reach)  # so is what is not finite
        first, is_found = np.argmax(is_beyond, axis=1), is_beyond.any(axis=1)
        outside = np.where(is_found, values[rows, first], outside)
        above = np.where(is_found, root[rows, first], above)
        last = np.where(is_found, first, len(AHEAD)) - 1
        moved = last >= 0
        inside, height = (np.where(moved, new[rows, last], old) for new, old in ((values, inside), (root, height)))
        params = np.where(moved[:, None], ends[rows, last], params)
        step = np.where(is_open & ~is_found, step * AHEAD[-1], step)
    with np.errstate(all="ignore"):
        share = np.nan_to_num((reach - height) / (above - height), nan=0.0)
        between = inside + (outside - inside) * share
    ends_at = np.where(np.isinf(outside), np.where(inside == bound, bound, direction * np.inf), between)
    return ends_at[:width], ends_at[width:]


def deviances(
    least: Minimum, fixed: Sequence[np.ndarray], values: Sequence[np.ndarray], params: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The rise of the deviance, (m, K), with parameters ``fixed`` (m,) each at ``values`` (m, K), and all parameters.

    From the least value, and from ``params``, (m, P), along the tangent of the profile of one parameter.

    Raises ArgumentError where it falls: the fit is at no minimum.
    """
    (m, n), width = values[0].shape, len(least.params)
    near, best = np.repeat(params, n, axis=0), np.tile(least.params, (m * n, 1))
    lower, upper = (np.tile(side, (m * n + 1, 1)) for side in least.sides)  # the last is free
    rows, C = np.arange(m * n), np.nan_to_num(least.covariance)
    if len(fixed) == 1:
        which = np.repeat(fixed[0], n)
        variances = C[which, which]
        slopes = C[which] / np.where(variances > 0, variances, 1.0)[:, None]
        near += slopes * (values[0].ravel() - near[rows, which])[:, None]
    for j, value in zip(fixed, values, strict=True):
        for side in (lower, upper, near, best):
            side[rows, np.repeat(j, n)] = value.ravel()
    starts = [np.clip(np.vstack([start, least.params]), lower, upper) for start in (near, best)]
    ends, height = least.refits((lower, upper), np.stack(starts))
    rise = height[:-1] - height[-1]
    if np.nanmin(rise, initial=0.0) < -LOWER:
        at = ", ".join(f"{number:.6g}" for number in ends[np.nanargmin(rise)])
        raise ArgumentError(f"a profile meets a better fit than this: fit again with init=[{at}]")
    return rise.reshape(m, n), ends[:-1].reshape(m, n, width)


def check_likelihood(least: Minimum) -> None:
    """An error for a loss that is no likelihood, and where nothing is known of the errors' size."""
    if least.options.kind in (objective.ABSOLUTE, objective.HUBER):
        loss = least.result.goal.loss
        raise ArgumentError(f"a profile needs a likelihood, not loss={loss!r}: method='bootstrap', resample='pairs'")
    if not least.variance > 0:
        raise ArgumentError("a profile needs residuals: the fit is exact, or has as many parameters as points")


def steps_of(least: Minimum) -> np.ndarray:
    """Standard errors, (P,); a share of the parameter where the data give none."""
    error = np.sqrt(np.diagonal(least.covariance))
    size = WITHOUT_ERROR * np.where(least.params == 0, 1.0, np.abs(least.params))
    return np.where(np.isfinite(error) & (error > 0), error, size)


def correlation(least: Minimum, names: list[str]) -> pd.DataFrame:
    """The parameters' correlations, P x P."""
    with brought_by("notebooks"):
        import pandas as pd

    C = least.covariance
    with np.errstate(invalid="ignore"):
        return pd.DataFrame(C / np.sqrt(np.outer(np.diagonal(C), np.diagonal(C))), names, names)


def region(least: Minimum, names: list[str], a: str, b: str, levels: Sequence[float], n: int) -> Figure:
    """The region of two parameters as a figure: contours of the least deviance for every pair of values.

    For each value of the first one the second's lie about the best one, as far as its error reaches while the first is
    fixed: the region of two that depend on each other is a narrow ridge.
    """
    with brought_by("notebooks"):
        import matplotlib.pyplot as plt

    for name in (a, b):
        if name not in names or a == b:
            hint = did_you_mean(name, names)
            raise ArgumentError(f"a region is of two of the parameters {', '.join(names)}, not {a!r} and {b!r}{hint}")
    check_likelihood(least)
    if not len(levels):
        raise ArgumentError("levels must be numbers between 0 and 1, as (0.683, 0.954): there is none")
    heights = sorted({rise_of_two(between_0_and_1("levels", level), least.free): level for level in levels}.items())
    pair = [names.index(a), names.index(b)]
    reach = REACH * np.sqrt(heights[-1][0]) * steps_of(least)
    i, j = pair
    lower, upper = (np.clip(least.params + side * reach, *least.sides)[i] for side in (-1, 1))
    first = np.linspace(lower, upper, whole("n", n, 3))
    _, ridge = deviances(least, [np.array([i])], [first[None]], least.params[None])
    middle = np.where(np.isfinite(ridge[0, :, j]), ridge[0, :, j], least.params[j])
    near = np.nan_to_num(correlation(least, names).to_numpy()[i, j])
    wide = reach[j] * np.sqrt(max(1 - near**2, NARROW)) * np.linspace(-1, 1, n)
    second = np.clip(middle + wide[:, None], *(side[j] for side in least.sides))
    along = np.broadcast_to(first, (n, n)), second
    rise, _ = deviances(least, [np.full(n, k) for k in pair], along, np.tile(least.params, (n, 1)))
    drawn, axes = plt.subplots(figsize=(5, 4.4), layout="constrained")
    plt.close(drawn)
    lines = axes.contour(*along, rise, [height for height, _ in heights], colors=["C0", "C1", "C2", "C3"])
    axes.clabel(lines, fmt={height: f"{100 * level:.3g} %" for height, level in heights})
    axes.plot(*least.params[pair], "+", color="0.3")
    for set_limits, side in zip((axes.set_xlim, axes.set_ylim), along, strict=True):
        within = side[rise <= heights[-1][0]]
        if len(within) and np.ptp(within) > 0:
            set_limits(within.min() - MARGIN * np.ptp(within), within.max() + MARGIN * np.ptp(within))
    axes.set_xlabel(a, parse_math=False)
    axes.set_ylabel(b, parse_math=False)
    return drawn


def rise_of_two(level: float, free: float) -> float:
    """The deviance at the border of the joint region of two parameters: 2 F, or chi squared, of 2 degrees of freedom.

    >>> print(f"{rise_of_two(0.95, np.inf):.3f} {rise_of_two(0.95, 10):.3f}")
    5.991 8.206
    """
    return -2 * np.log(1 - level) if np.isinf(free) else free * ((1 - level) ** (-2 / free) - 1)
