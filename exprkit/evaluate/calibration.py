"""Calibration: measures the cost model's constants on this machine, for ``python -m exprkit calibrate``.

In: nothing.  Out: ``Costs`` of every backend that can run here, which ``cost_model.keep`` keeps.

    >>> from exprkit.evaluate.calibration import rate
    >>> rate(work=1e9, seconds=0.5)
    2000000000.0

Each constant is the median of some samples of which it is the largest part.  On a device a sample is some calls that
are queued and then waited for: what their launches take is hidden behind what they do.  All is measured in several
rounds, one after the other; a constant is the median of the rounds where half of them lie within ``STEADY`` of it,
and the published one where they do not (other work ran, or a clock changed).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends import cost_model, load, status
from exprkit.backends.cost_model import COSTS, OF_A_MODULE, Costs
from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions import generate
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population
from exprkit.runtime import machine

ROUNDS, REPEATS = 5, 3
STEADY = 0.15  # of the median: how far half of the rounds may lie apart
QUEUED = 20  # calls of a sample on a device
SIZES = {False: (1_000, 10_860), True: (10_000, 36_200)}  # expressions and points, on a CPU and on a GPU
LEAST = 1e-7  # seconds: what is less can't be told from nothing
PRECISIONS = "ieee", "fast"


class Calibrated(NamedTuple):
    """The measured constants of a backend, and their interquartile ranges over the rounds as shares of the median."""

    costs: Costs
    spread: dict[str, float]

    def __str__(self) -> str:
        lines = [
            f"  {name:8} {_written(getattr(self.costs, name)):>22}  spread {spread:4.0%}"
            + ("" if spread <= STEADY else "  not steady: the published one stays")
            for name, spread in self.spread.items()
        ]
        return "\n".join(lines)


def steady(rounds: list[Costs], published: Costs) -> Calibrated:
    """The median of each constant where half of the rounds lie near to it, else the published one."""
    constants: dict[str, Any] = {}
    spread: dict[str, float] = {}
    for name, value in asdict(published).items():
        if isinstance(value, bool) or not np.any(value) or (name == "link" and not published.on_device):
            continue
        samples = np.array([getattr(one, name) for one in rounds], np.float64).reshape(len(rounds), -1)
        middle, (low, high) = np.median(samples, 0), np.quantile(samples, (0.25, 0.75), axis=0)
        spread[name] = float(((high - low) / middle).max())
        if spread[name] <= STEADY:
            constants[name] = tuple(middle.tolist()) if isinstance(value, tuple) else float(middle[0])
    return Calibrated(replace(published, own=True, **constants), spread)


def _here(published: Costs) -> Costs:
    """Published constants scaled to the card at hand, as estimates scale them."""
    if not published.on_device:
        return published
    card = cost_model.device()
    speed, width = card.multiprocessors / cost_model.H200_MULTIPROCESSORS, card.bandwidth / cost_model.H200_BANDWIDTH
    ieee, fast = published.nodes
    return replace(published, nodes=(ieee * speed, fast * speed), bytes=published.bytes * width)


def _written(value: Any) -> str:
    return ", ".join(f"{one:.3g}" for one in (value if isinstance(value, tuple) else (value,)))


def costs_of(name: str, published: Costs) -> Costs:
    """Measure the constants of a backend on this machine."""
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
        start=start,
        token=max(making - start, LEAST) / len(short.kinds),
        step=_loss_seconds(name, one, X[:64]),
        nodes=(nodes[0], nodes[1]),
        double=min(double, 1.0),
        bytes=rate(matrix, _values_seconds(name, short, X)) / cores,
        code=_code(name, X) if any(published.code) else (0.0, 0.0),
        on_device=published.on_device,
        link=_link(name, short, X, matrix) if published.on_device else published.link,
        own=True,
    )


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
    step = ev.loss_of(_there(name, X)[:, 0])
    return _median(lambda: step(None), _queued(name))


def _values_seconds(name: str, pop: Population, X: np.ndarray) -> float:
    """Seconds to evaluate a matrix that stays where it is made."""
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


def calibrated(progress: Callable[..., Any]) -> dict[str, Calibrated]:
    """Measure every backend that can run here, some ten seconds each, keep what it takes, and give it by name."""
    names = [name for name in COSTS if status(name).available]
    results = {
        name: steady([costs_of(name, COSTS[name]) for _ in range(ROUNDS)], _here(COSTS[name]))
        for name in progress(names, desc="calibrate")
    }
    cost_model.keep({name: one.costs for name, one in results.items()})
    return results
