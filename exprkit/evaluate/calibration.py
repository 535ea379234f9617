"""The cost model's constants of this machine, measured: what ``python -m exprkit calibrate`` does.

In: nothing.  Out: ``Costs`` of every backend that can run here, which ``cost_model.keep`` keeps.

    >>> from exprkit.evaluate.calibration import rate
    >>> rate(work=1e9, seconds=0.5)
    2000000000.0

Each constant is the median of some samples of which it is the largest part.  On a device a sample is some calls that
are queued and then waited for: what their launches take is hidden behind what they do.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from exprkit.backends import cost_model, load, status
from exprkit.backends.cost_model import COSTS, OF_A_MODULE, Costs
from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions import generate
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population
from exprkit.runtime import machine

REPEATS = 5
QUEUED = 20  # calls of a sample on a device
SIZES = {False: (1_000, 10_860), True: (10_000, 36_200)}  # expressions and points, on a CPU and on a GPU
LEAST = 1e-7  # seconds: what is less can't be told from nothing
PRECISIONS = "ieee", "fast"


def calibrate() -> Iterator[tuple[str, Costs]]:
    """Measure every backend that can run here, one after the other; a few seconds each."""
    for name, published in COSTS.items():
        if status(name).available:
            yield name, costs_of(name, published)


def costs_of(name: str, published: Costs) -> Costs:
    """What a backend takes on this machine."""
    cores = 1 if published.on_device else machine.cores()
    n_exprs, n_points = SIZES[published.on_device]
    X = np.random.default_rng(0).uniform(0.5, 2.0, (n_points, 3))
    one, short = parse(["x1 + x2"]), parse(["x1 + x2", "x2 * x3"] * (n_exprs // 2))
    typical = _typical(n_exprs if name != "ptx" else OF_A_MODULE)
    start = _median(lambda: Evaluator(one, X[:64], name), 1)
    nodes = tuple(_nodes(name, typical, X, precision, "float32") / cores for precision in PRECISIONS)
    double = _nodes(name, typical, X, "ieee", "float64") / cores / nodes[0]
    making = _median(lambda: Evaluator(short, X[:64], name), 1)
    matrix = len(short) * n_points * 4
    return Costs(
        start=start, token=max(making - start, LEAST) / len(short.kinds), step=_loss_seconds(name, one, X[:64]),
        nodes=(nodes[0], nodes[1]), double=min(double, 1.0),
        bytes=rate(matrix, _values_seconds(name, short, X)) / cores,
        code=_code(name, X) if any(published.code) else (0.0, 0.0), on_device=published.on_device,
        link=_link(name, short, X, matrix) if published.on_device else published.link, own=True,
    )  # fmt: skip


def _typical(n_exprs: int) -> Population:
    """Expressions as searches make them: short ones of an exhaustive set and random trees, half of the tokens each."""
    every = generate.exhaustive(5, n_vars=3, n_params=0)
    few = np.resize(np.arange(len(every)), n_exprs * 5 // 6)
    return every[few] + generate.random(n_exprs // 6 + 1, (15, 35), n_vars=3, n_params=0, seed=_unused())


def rate(work: float, seconds: float) -> float:
    """Work a second."""
    return work / max(seconds, LEAST)


def _nodes(name: str, pop: Population, X: np.ndarray, precision: str, dtype: str) -> float:
    """Node evaluations a second of all cores."""
    return rate(len(pop.kinds) * len(X), _loss_seconds(name, pop, X, precision, dtype))


def _loss_seconds(name: str, pop: Population, X: np.ndarray, precision: str = "ieee", dtype: str = "float32") -> float:
    ev = Evaluator(pop, _there(name, X), name, precision, dtype)
    y = _there(name, X)[:, 0].copy()
    return _median(lambda: ev.loss(None, y), _queued(name))


def _values_seconds(name: str, pop: Population, X: np.ndarray) -> float:
    """Of a matrix that stays where it is made."""
    ev = Evaluator(pop, _there(name, X), name, "fast")
    out = ev.evaluate()
    return _median(lambda: ev.evaluate(out=out), _queued(name))


def _link(name: str, pop: Population, X: np.ndarray, matrix: int) -> float:
    """Bytes a second to page-locked host memory."""
    ev = Evaluator(pop, X, name, "fast")
    out = load(name).empty_on_host((len(pop), len(X)), ev.dtype)
    return rate(matrix, _median(lambda: ev.evaluate(out=out), 1))


def _code(name: str, X: np.ndarray) -> tuple[float, float]:
    """Core-seconds to compile a token of a structure that nobody has compiled before: (ieee, fast)."""
    seconds = []
    for precision in PRECISIONS:
        pop = generate.random(machine.cores() * OF_A_MODULE, (10, 30), "thesis", n_vars=3, n_params=0, seed=_unused())
        begin = time.perf_counter()
        Evaluator(pop, X[:64], name, precision, cache=False).loss(None, X[:64, 0])
        seconds.append((time.perf_counter() - begin) * machine.cores() / len(pop.kinds))
    return seconds[0], seconds[1]


def _there(name: str, X: np.ndarray) -> Any:
    """Data where the backend works."""
    empty = load(name).empty
    if empty is None:
        return X
    there = empty(X.shape, X.dtype)
    there.set(X)
    return there


def _unused() -> int:
    """A seed of populations that no cache knows."""
    return time.time_ns() % (1 << 32)


def _queued(name: str) -> int:
    """Calls of a sample."""
    return QUEUED if COSTS[name].on_device else 1


def _median(call: Callable[[], Any], calls: int) -> float:
    """Seconds of a call that has been made before, of so many that are queued; the last one is waited for."""
    times = []
    for _ in range(2):
        _waited(call())
    for _ in range(REPEATS):
        begin = time.perf_counter()
        for _ in range(calls - 1):
            call()
        _waited(call())
        times.append((time.perf_counter() - begin) / calls)
    return statistics.median(times)


def _waited(result: Any) -> None:
    if hasattr(result, "device") and hasattr(result, "get"):
        result[..., :1].get()


def calibrated(progress: Callable[..., Any]) -> dict[str, Costs]:
    """Measure all, keep it, and give it."""
    found = dict(progress(calibrate(), desc="calibrate", total=sum(status(name).available for name in COSTS)))
    cost_model.keep(found)
    return found
