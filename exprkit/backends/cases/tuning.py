"""Measured choice of a kernel variant: times the leaves of the tree on a device, and keeps the fastest on disk.

In: a decision and a way to run each variant.  Out: times, and the variant that the backend then takes for such work.
All variants give the same bits, so a choice by the clock changes nothing but time.

    >>> from exprkit.backends.cases.tuning import Tuned
    >>> from exprkit.backends.gpu.schedule import LaunchShape
    >>> one, two = LaunchShape(8, 640, True, 32, 4), LaunchShape(4, 768, True, 32, 4)
    >>> print(Tuned(one, {one: 110e-6, two: 100e-6}))
    768 threads of 16 points, columns shared: 100 us, 9.1 % less than 110 us of the tree's choice; 2 variants timed
"""

from __future__ import annotations

import functools
import json
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.cases.interpreter import Decision, VariantSet, shapes, times
from exprkit.backends.gpu import nvrtc, opcodes
from exprkit.backends.gpu.schedule import LaunchShape, Sizes
from exprkit.backends.precision import Precision
from exprkit.runtime import disk_cache

FASTEST = ".cases"  # a kind of entries of the cache
MOST_SLOWER = 3.0  # variants whose estimated time is more than so many times the least are not timed
LEAST_RUNS, MOST_RUNS = 3, 25


class Tuned(NamedTuple):
    """Seconds of a call of each variant that was timed, and the variant that the tree says."""

    chosen: LaunchShape
    seconds: dict[LaunchShape, float]

    @property
    def best(self) -> LaunchShape:
        """The fastest."""
        return min(self.seconds, key=lambda shape: self.seconds[shape])

    @property
    def gain(self) -> float:
        """The share of the time of the tree's choice that the fastest saves."""
        return 1 - self.seconds[self.best] / self.seconds[self.chosen]

    def __str__(self) -> str:
        shape, now, before = self.best, self.seconds[self.best], self.seconds[self.chosen]
        said = f"{100 * self.gain:.1f} % less than {1e6 * before:.0f} us of" if self.gain else "which is"
        where = "shared" if shape.columns_shared else "global"
        return (
            f"{shape.block} threads of {shape.tile // shape.lanes} points, columns {where}: {1e6 * now:.0f} us, {said} "
            f"the tree's choice; {len(self.seconds)} variants timed"
        )


def timed(
    device: Any, decide: Decision, sizes: Sizes, using: Callable[[Any], None], run: Callable[[], None], seconds: float
) -> Tuned:
    """Time variants in turn, the likeliest first, for about ``seconds`` seconds besides compiling.

    ``decide``, ``sizes``: the tree and the work; ``using`` makes a variant the one that ``run`` launches.
    """
    taken = times(decide.fixed, sizes, decide.limits)[:, 0]
    order = [i for i in np.argsort(taken, kind="stable") if taken[i] <= MOST_SLOWER * taken.min()]
    chosen, listed = decide(sizes), shapes(decide.fixed)
    candidates = [chosen, *(listed[i] for i in order if listed[i] != chosen)]
    found: dict[LaunchShape, float] = {}
    spent = 0.0
    for shape in candidates:
        if spent > seconds and len(found) > 1:
            break
        using(shape)
        for _ in range(LEAST_RUNS):  # compiled, and recorded
            run()
        begin = _now(device)
        found[shape] = _median(device, run, seconds / len(candidates))
        spent += _now(device) - begin
    return Tuned(chosen, found)


def _now(device: Any) -> float:
    """The time when all that was started has ended."""
    if device.lanes > 1:
        device.current_stream().synchronize()
    return time.perf_counter()


def _median(device: Any, run: Callable[[], None], seconds: float) -> float:
    runs: list[float] = []
    while len(runs) < LEAST_RUNS or (len(runs) < MOST_RUNS and sum(runs) < seconds):
        begin = _now(device)
        run()
        runs.append(_now(device) - begin)
    return statistics.median(runs)


# ── on disk ──────────────────────────────────────────────────────────────────────────


def fastest(device: Any, settings: Precision, fixed: VariantSet, sizes: Sizes) -> LaunchShape | None:
    """The variant that was measured to be the fastest for this work on this device, or None."""
    everything = _all_fastest(_name(device, settings))
    found = everything.get(_work(fixed, sizes)) if everything else None
    return None if found is None else LaunchShape(*found)


def write(device: Any, settings: Precision, fixed: VariantSet, sizes: Sizes, shape: LaunchShape) -> None:
    """Keep the fastest, for this and all later processes."""
    name = _name(device, settings)
    _all_fastest.cache_clear()
    everything = _all_fastest(name) | {_work(fixed, sizes): list(shape)}
    disk_cache.write(name, json.dumps(everything).encode(), FASTEST)
    _all_fastest.cache_clear()


@functools.cache
def _all_fastest(name: str) -> dict[str, list[Any]]:
    """The fastest variants in the file of a name, by work."""
    data = disk_cache.read(name, FASTEST)
    return json.loads(data) if data else {}


@functools.cache
def _name(device: Any, settings: Precision) -> str:
    """A file's name: it holds for a card, a driver and the kernel's text."""
    card = getattr(device, "name", type(device).__name__), getattr(device, "driver", "")
    compiler = (nvrtc.compiler_version(),) if device.lanes > 1 else ()
    return disk_cache.key(*map(str, card), opcodes.source(settings.operators), repr(settings), *compiler)


def _work(fixed: VariantSet, sizes: Sizes) -> str:
    return json.dumps([*fixed, *sizes])
