"""Trajectories: measured states at times, smoothed, with their derivatives.

In: what a user measured, one trajectory or a list.  Out: a ``Trajectory`` for each.

    >>> import numpy as np
    >>> from exprkit.dynamics.trajectories import trajectories
    >>> t = np.linspace(0, 3, 31)
    >>> (one,), names = trajectories(np.sin(t)[:, None], t)
    >>> bool(np.abs(one.slope[:, 0] - np.cos(t)).max() < 1e-4), names
    (True, ['x1'])
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from exprkit.errors import ArgumentError, DataError, brief, brought_by, listed
from exprkit.numbers import as_numbers

FEWEST = 12  # times of a trajectory: every other one still makes a spline of degree 5
DOT = "_dot"  # behind a name, of its derivative
ENDS = 3  # times at either end of a trajectory, where a spline's slope is known least


class Trajectory(NamedTuple):
    """One run of a system."""

    t: np.ndarray  # float64 (n_times,), increasing
    x: np.ndarray  # float64 (n_times, n_states), as measured; derivatives that are states as well: smoothed
    u: np.ndarray  # float64 (n_times, n_inputs), known
    smooth: np.ndarray  # float64 (n_times, n_states)
    slope: np.ndarray  # float64 (n_times, n_states): its derivative, or that which was measured
    error: np.ndarray  # float64 (n_states,): the standard error of slopes that were not


def trajectories(
    x: Any, t: Any, x_dot: Any = None, u: Any = None, feature_names: Sequence[str] | None = None, order: int = 1
) -> tuple[list[Trajectory], list[str]]:
    """Trajectories from arrays or lists of arrays, as ``DynamicsRegressor.fit`` takes them, and the states' names.

    For equations of a higher order the derivatives below it are states as well, behind those that were measured.
    """
    if order > 1 and x_dot is not None:
        raise ArgumentError(f"x_dot is for order=1, not {order}: where derivatives were measured too, they are states")
    runs = list(x) if isinstance(x, (list, tuple)) and len(x) and np.ndim(x[0]) == 2 else [x]
    n, given = len(runs), getattr(runs[0], "columns", ()) if feature_names is None else listed(feature_names)
    if given is None:
        raise ArgumentError(f"feature_names must be a list of names, not {brief(feature_names)}")
    states = [_matrix("x", run) for run in runs]
    width = states[0].shape[1]
    names = [str(name) for name in given] or [f"x{k + 1}" for k in range(width)]
    times = [_times(one, len(run)) for one, run in zip(_per_run("t", t, n), states, strict=True)]
    inputs = (
        [_matrix("u", one) for one in _per_run("u", u, n)] if u is not None else [np.empty((len(t), 0)) for t in times]
    )
    slopes = [_matrix("x_dot", one) for one in _per_run("x_dot", x_dot, n)] if x_dot is not None else [None] * n
    if len({run.shape[1] for run in states}) > 1 or len({run.shape[1] for run in inputs}) > 1:
        raise DataError("every trajectory must have the same states, and the same inputs")
    if len(names) != width + inputs[0].shape[1]:
        if len(names) != width:
            raise ArgumentError(
                f"feature_names has {len(names)} names, the states and inputs are {width + inputs[0].shape[1]}"
            )
        names += [f"u{k + 1}" for k in range(inputs[0].shape[1])]
    made = []
    for run, time, known, slope in zip(states, times, inputs, slopes, strict=True):
        for what, other in ("u", known), ("x_dot", slope):
            if other is not None and len(other) != len(run):
                raise DataError(f"{what} has {len(other)} rows, its trajectory {len(run)}")
        if slope is not None and slope.shape != run.shape:
            raise DataError(f"x_dot must be of shape {run.shape}, not {slope.shape}")
        smooth, derivative, error = smoothed(time, run, order)
        if slope is not None:
            derivative, error = slope, np.zeros(width)
        made.append(Trajectory(time, np.hstack([run, smooth[:, width:]]), known, smooth, derivative, error))
    if twice := [name for name in names if names.count(name) > 1]:
        raise ArgumentError(f"feature_names: {twice[0]!r} comes twice; names must differ")
    dotted = [f"{name}{DOT * k}" for k in range(1, order) for name in names[:width]]
    return made, [*names[:width], *dotted, *names[width:]]


def smoothed(t: np.ndarray, x: np.ndarray, order: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """States without their noise and their derivatives, (n_times, n_states) each, and these' errors, (n_states,).

    Of x the derivatives below ``order`` are states as well, behind x.
    By cubic smoothing splines, of which generalised cross-validation says how smooth (P. Craven and G. Wahba,
    Numerische Mathematik 31, 1979); where one of degree 5 through every other point is nearer to those between than
    that one is, there is no noise, and it goes through all points.  Errors are half of what splines of the even and of
    the odd points differ by.
    """
    with brought_by("search"):
        from scipy.interpolate import make_interp_spline, make_smoothing_spline

    (n, d), span = x.shape, t[-1] - t[0]
    paths, error = np.empty((order + 1, n, d)), np.empty((order, d))
    s = (t - t[0]) / span
    for k, column in enumerate(x.T):
        size = float(np.std(column)) or 1.0
        values = (column - column.mean()) / size
        spline_of = make_smoothing_spline
        between = values[1:-1:2] - make_interp_spline(s[::2], values[::2], k=5)(s[1:-1:2])
        if np.std(between) < np.std(spline_of(s, values)(s) - values):
            spline_of = functools.partial(make_interp_spline, k=5)
        spline, even, odd = spline_of(s, values), spline_of(s[::2], values[::2]), spline_of(s[1::2], values[1::2])
        paths[0, :, k] = column.mean() + size * spline(s)
        for j in range(1, order + 1):
            paths[j, :, k] = size / span**j * spline.derivative(j)(s)
            both = (half.derivative(j)(s[ENDS:-ENDS]) for half in (even, odd))
            error[j - 1, k] = size / span**j * np.std(np.subtract(*both)) / 2
    return np.hstack(list(paths[:-1])), np.hstack(list(paths[1:])), error.ravel()


def _matrix(what: str, values: Any) -> np.ndarray:
    array = as_numbers(what, values, gaps=False).astype(np.float64)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or not array.shape[1]:
        raise DataError(f"{what} must be of shape (n_times, n_states), or a list of such, not {array.shape}")
    if not np.isfinite(array).all():
        raise DataError(
            f"{what} has {int(np.sum(~np.isfinite(array)))} numbers that are missing or infinite: leave their rows out"
        )
    return array


def _times(t: Any, n: int) -> np.ndarray:
    """Times of n rows: as they are given, or by the step between two of them."""
    if np.ndim(t) == 0 and t is not None:
        t = as_numbers("t", t, gaps=False).astype(np.float64) * np.arange(n)
    if np.shape(t) != (n,):
        raise DataError(f"t must be a time step or of shape ({n},), not {np.shape(t) if np.ndim(t) else brief(t)}")
    if n < FEWEST:
        raise DataError(f"a trajectory needs at least {FEWEST} times, not {n}")
    return times_of(t)


def times_of(t: Any) -> np.ndarray:
    """Times as float64 (n_times,); raises DataError for those that do not increase."""
    times: np.ndarray = as_numbers("t", t, gaps=False).astype(np.float64)
    if times.ndim != 1 or not len(times):
        raise DataError(f"t must be of shape (n_times,), not {times.shape}")
    if not (np.isfinite(times).all() and (np.diff(times) > 0).all()):
        raise DataError("t must be finite and increase within each trajectory")
    return times


def _per_run(what: str, values: Any, n: int) -> list[Any]:
    """What belongs to each of n trajectories: a list of as many, or the same for all."""
    if isinstance(values, (list, tuple)) and (n > 1 or (len(values) and np.ndim(values[0]) > (what != "t"))):
        if len(values) != n:
            raise DataError(f"{what} is a list of {len(values)}, of {n} trajectories")
        return list(values)
    if n > 1 and what != "t":
        raise DataError(f"{what} must be a list of {n}, as x is")
    return [values] * n
