"""Starting points of fits, and bounds of parameters.

In: what the user gave.  Out: float64 arrays.

    >>> import exprkit as ek
    >>> from exprkit.fitting.starts.given import sides_of
    >>> sides_of((0, None), ek.parse(["p1 * x1", "p1 + p2"]))[0].tolist()
    [[0.0, 0.0], [0.0, 0.0]]
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from exprkit.backends.device_programs.population import DevicePopulation
from exprkit.errors import ArgumentError, DataError, brief, did_you_mean, one_of
from exprkit.evaluate import inputs
from exprkit.expressions.population import Population
from exprkit.fitting.starts.alike import ones_apart
from exprkit.numbers import as_numbers

STARTS = ("ones", "normal")
_PAIRS = "bounds={} must be (low, high) of all parameters; a pair for each has its name: {{'p1': (0, 1), 'p2': (0, 1)}}"
Bounds = tuple[Any, Any] | Mapping[str, tuple[Any, Any]] | np.ndarray | None


def place_of(name: Any, names: list[str], what: str) -> int:
    """The number of a parameter; ArgumentError of one that there is not, with ``what`` named it."""
    if name not in names:
        hint = did_you_mean(str(name), names)
        raise ArgumentError(f"{what}: there is no parameter {name!r}; there are {', '.join(names) or 'none'}{hint}")
    return names.index(name)


def starts_of(init: Any, pop: Any, adopt: inputs.Adopt, restarts: int, seed: int) -> Any:
    """The starts, float64 (n_starts, n_exprs, max_params); on the device if given there, or ones of its population."""
    shape = (len(pop), pop.max_params)
    ones = init is None or (isinstance(init, str) and init == "ones")
    if isinstance(pop, DevicePopulation) and ones and not restarts:
        return pop.device.xp.ones((1, *shape))
    if not ones and adopt(init) is not None:
        there = inputs.parameter_sets(init, pop, np.dtype(np.float64), adopt)[0]
        if not restarts:
            return there
        init = inputs.on_host(there)
    if ones:
        is_there = isinstance(pop, DevicePopulation)
        first = np.broadcast_to(1.0, (1, *shape)) if is_there else ones_apart(pop)  # often one number
        if not restarts:  # no memory that might be short
            return first
    elif isinstance(init, str):
        one_of("init", init, STARTS)
        first = _random(seed, 0).standard_normal(shape)[None]
    elif callable(init):
        drawn = as_numbers("what init gives", init(_random(seed, 0), shape), gaps=False).astype(np.float64)
        if drawn.shape != shape:
            raise DataError(f"init must give an array of shape {shape}, not {drawn.shape}")
        first = drawn[None]
    else:
        init = _by_name(init, pop) if isinstance(init, Mapping) else init
        try:
            first = inputs.parameter_sets(init, pop, np.dtype(np.float64))[0]
        except DataError as error:  # which calls them as they are called elsewhere
            raise DataError(str(error).replace("params", "init", 1)) from None
    n_more = int(restarts) if first[0].size else 0  # without a parameter all starts are the same
    inputs.check_memory("the starts", (len(first) + n_more, *shape), first.dtype, "take fewer restarts or expressions")
    starts = np.empty((len(first) + n_more, *shape))
    starts[: len(first)] = first
    for k in range(n_more):
        starts[len(first) + k] = _random(seed, 1 + k).standard_normal(shape)
    return starts


def _by_name(init: Mapping[str, Any], pop: Any) -> np.ndarray:
    """A start of all expressions by the parameters' names; 1 for the others."""
    names = pop.parameter_names
    start = np.ones((len(pop), len(names)))
    for name, value in init.items():
        start[:, place_of(name, names, "init")] = as_numbers(f"init of {name}", value, gaps=False)
    return start


def _random(seed: int, stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([seed, stream]))


def sides_of(bounds: Bounds, pop: Population) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Lower and upper bounds, float64 (n_exprs, max_params) each, or None."""
    if bounds is None:
        return None, None
    shape = (len(pop), pop.max_params)
    if isinstance(bounds, Mapping):
        names = pop.parameter_names
        sides = [np.full(len(names), -np.inf), np.full(len(names), np.inf)]
        for name, pair in bounds.items():
            place = place_of(name, names, "bounds")
            for side, bound in zip(sides, _pair(pair), strict=True):
                if bound is not None:
                    side[place] = _number(name, bound)
        low, high = (side[: pop.max_params] for side in sides)  # a name may be no expression's
    else:
        low, high = _pair(bounds)
        if all(isinstance(side, list | tuple) for side in (low, high)) and any(map(operator.eq, low, high)):
            raise DataError(_PAIRS.format(brief(bounds)))
    sides = [
        as_numbers("bounds", default if bound is None else bound, gaps=False)
        for bound, default in ((low, -np.inf), (high, np.inf))
    ]
    try:
        lower, upper = (np.array(np.broadcast_to(side.astype(np.float64), shape)) for side in sides)
    except ValueError:
        fitting = f"None, a number or an array of shape {shape[1:]} or {shape}"
        raise DataError(f"bounds must be (low, high), each {fitting}") from None
    bad = ~(lower <= upper)
    if np.any(bad):
        i, j = np.argwhere(bad)[0]
        what = f"{pop.parameter_names[j]} of expression {i}"
        raise DataError(f"bounds of {what}: {lower[i, j]} is not at most {upper[i, j]}")
    return lower, upper


def _number(name: str, bound: Any) -> float:
    if not hasattr(bound, "__float__") or np.ndim(bound):
        raise DataError(f"bounds of {name} must be (low, high), each None or a number, not {brief(bound)}")
    return float(as_numbers(f"bounds of {name}", bound, gaps=False))


def _pair(bounds: Any) -> tuple[Any, Any]:
    several = isinstance(bounds, list | tuple) or (isinstance(bounds, np.ndarray) and bounds.ndim > 0)
    if not several or len(bounds) != 2:
        raise DataError(_PAIRS.format(brief(bounds)) if several else f"bounds must be (low, high), not {brief(bounds)}")
    return bounds[0], bounds[1]
