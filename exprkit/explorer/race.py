"""A race of backends: the same expressions, points and steps, one backend after the other.

Part of the explorer; ``study.bench`` measures, this one is to be watched.

    >>> import exprkit as ek
    >>> from exprkit.explorer.race import race
    >>> laps = list(race(ek.parse(["x1 + p1"]), ek.data.rough_pipe().X, ["cpu", "numpy"], n_steps=3))
    >>> [(lap.backend, lap.step) for lap in laps]
    [('cpu', 1), ('cpu', 2), ('cpu', 3), ('numpy', 1), ('numpy', 2), ('numpy', 3)]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Event
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends import load
from exprkit.errors import ArgumentError
from exprkit.evaluate.evaluator import Evaluator
from exprkit.explorer import svg
from exprkit.expressions.population import Population

PARAMETER_SETS = 8  # made beforehand and taken in turn
PARAMETER_RANGE = (-2.0, 2.0)


class Lap(NamedTuple):
    """A step of one backend: its number from 1, its seconds, and those of making the evaluator."""

    backend: str
    step: int
    seconds: float
    prepare_s: float


def race(
    pop: Population,
    X: Any,
    backends: Sequence[str],
    n_steps: int = 100,
    *,
    precision: str = "ieee",
    dtype: str = "float32",
    seed: int = 0,
    stop: Event | None = None,
) -> Iterator[Lap]:
    """Let each backend evaluate everything ``n_steps`` times, with new parameters at each step.

    A backend evaluates once before its first lap, so that no lap holds the compiling of what is
    compiled once for all; its evaluator is made anew after that, and timed as ``prepare_s``.

    Parameters
    ----------
    pop : Population
    X : array, (n_points, n_vars)
    backends : sequence of str
    n_steps : int
    precision, dtype
        As for ``Evaluator``.
    seed : int
        Of the parameters, evenly from [-2, 2].
    stop : threading.Event, optional
        Ends the race after the lap that runs.

    Yields
    ------
    Lap

    Raises
    ------
    ArgumentError
        If there is nothing to race.
    BackendError
        If a backend can't run here; before the first lap.
    """
    if not backends or n_steps < 1 or not len(pop):
        raise ArgumentError("a race needs 1 or more expressions, backends and steps")
    for name in backends:
        load(name)
    random = np.random.Generator(np.random.PCG64(seed))
    sets = [random.uniform(*PARAMETER_RANGE, (len(pop), pop.max_params)) for _ in range(min(n_steps, PARAMETER_SETS))]
    out = np.zeros((len(pop), len(X)), dtype)
    for name in backends:
        Evaluator(pop, X, name, precision=precision, dtype=dtype).evaluate(sets[0], out=out)
        begin = perf_counter()
        ev = Evaluator(pop, X, name, precision=precision, dtype=dtype)
        prepare_s = perf_counter() - begin
        for step in range(n_steps):
            if stop is not None and stop.is_set():
                return
            begin = perf_counter()
            ev.evaluate(sets[step % len(sets)], out=out)
            yield Lap(name, step + 1, perf_counter() - begin, prepare_s)


class Standing(NamedTuple):
    """How far a backend has come: its steps, and the seconds they and the preparing took."""

    backend: str
    steps: int
    seconds: float
    prepare_s: float


def standings(laps: Sequence[Lap]) -> list[Standing]:
    """The state of a race, in the order of the start."""
    found: dict[str, Standing] = {}
    for lap in laps:
        before = found[lap.backend].seconds if lap.backend in found else 0.0
        found[lap.backend] = Standing(lap.backend, lap.step, before + lap.seconds, lap.prepare_s)
    return list(found.values())


def chart(laps: Sequence[Lap], node_evaluations: float) -> str:
    """A bar a backend, as long as its average step took; SVG.

    ``node_evaluations``: tokens x points of one step.
    """
    rows = [(now, now.seconds / now.steps) for now in standings(laps)]
    longest = max((mean for _, mean in rows), default=1.0)
    return svg.bars([
        (now.backend, mean / longest, f"{spoken(mean)} a step, {node_evaluations / mean:.2g} nodes/s")
        for now, mean in rows
    ])  # fmt: skip


def spoken(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
