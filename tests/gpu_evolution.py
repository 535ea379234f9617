"""Generations that never leave the GPU, checked and timed: ``python tests/gpu_evolution.py --out data/results``.

Prints a table and writes it as ``h200_evolution.csv`` (of another card by its name).  Run it in the root of the
repository with ``PYTHONPATH=.``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import contextmanager

import cupy
import numpy as np
import timing
from test_generations import hashed_fits, tokens

import exprkit as ek
from exprkit.backends.gpu import device as gpu
from exprkit.backends.gpu.engine import describe
from exprkit.backends.interpreter import engine as interpreter
from exprkit.backends.interpreter.derivatives import Derivatives
from exprkit.expressions import generate
from exprkit.expressions.arguments import operators_of
from exprkit.fitting.fit_problem import FitProblem
from exprkit.regression.generations import evolution as evolutions
from exprkit.regression.generations import survival
from exprkit.regression.generations.evolution import Evolution
from exprkit.regression.problem.goal import Goal
from exprkit.regression.problem.rows import Rows

TABLE = timing.Table(width=74)
AIMS = {10_000: "5", 100_000: "30", 1_000_000: "300"}
WARM = 12  # generations before the first that counts: trees have grown


def waited(call):
    """Seconds of a call and all that it starts."""
    cupy.cuda.Device().synchronize()
    start = time.perf_counter()
    call()
    cupy.cuda.Device().synchronize()
    return time.perf_counter() - start


def milliseconds(call, repeats=15):
    return statistics.median(waited(call) for _ in range(repeats + 3)) * 1e3


@contextmanager
def timed(found, places):
    """Seconds of these methods, each with a wait before and behind it, added up by name; outermost calls only."""
    depth, kept = [0], [(owner, name, getattr(owner, name)) for owner, name, _ in places]

    def wrapper(function, label):
        def run(*arguments, **named):
            if depth[0]:
                return function(*arguments, **named)
            depth[0] += 1
            cupy.cuda.Device().synchronize()
            start = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                cupy.cuda.Device().synchronize()
                found.setdefault(label, []).append(time.perf_counter() - start)
                depth[0] -= 1

        return run

    for (owner, name, function), (_, _, label) in zip(kept, places, strict=True):
        setattr(owner, name, wrapper(function, label))
    try:
        yield
    finally:
        for owner, name, function in kept:
            setattr(owner, name, function)


PARTS = [
    (Evolution, "_offspring", "variation"),
    (survival, "scaled_trees", "expressions of the trees"),
    (evolutions, "DevicePopulation", "checked"),
    (interpreter.Engine, "update", "lowering"),
    (Derivatives, "__init__", "preparation: what is known beforehand"),
    (Derivatives, "_batches_for", "preparation: who is fitted with whom"),
    (Derivatives, "_fit_some", "fits"),
    (survival, "survivors", "selection"),
    (Evolution, "_best_children", "the best to the host"),
]


def sample_of(n_points=1000):
    X = np.random.default_rng(0).uniform(0.5, 3, (n_points, 3))
    return Rows(X, X[:, 0] * np.sin(2.3 * X[:, 1]) / (1.7 + X[:, 2] ** 2) + 0.1 * X[:, 0])


def evolution_of(n, **settings):
    blocks = generate.random(400, n_tokens=(1, 7), operators="search", n_vars=3, n_params=0, seed=2)
    settings = {"population_size": n, "width": 30, "seed": 1, "backend": "cuda"} | settings
    return Evolution(sample_of(), operators_of("search"), blocks, **settings)


def check_trees():
    """The same trees on both sides."""
    kept, FitProblem.fitted = FitProblem.fitted, hashed_fits
    try:
        sides = [evolution_of(3_000, backend=backend, dtype="float64") for backend in ("cpu", "cuda")]
        for _ in range(8):
            host, device = (one.generation() for one in sides)
            assert host.formulas == device.formulas and np.array_equal(host.loss, device.loss)
            for ours, theirs in zip(*(tokens(*one._parents) for one in sides), strict=True):
                assert np.array_equal(ours, theirs)
    finally:
        FitProblem.fitted = kept
    TABLE.report("generations of 3,000 trees equal token by token on host and device", 8, "")


def check_losses():
    """Losses are those of the formulas, and fall; the same twice."""
    one, same, rows, least = evolution_of(5_000), evolution_of(5_000), sample_of(), np.inf
    for _ in range(15):
        made, again = one.generation(), same.generation()
        assert made.formulas == again.formulas and np.array_equal(made.loss, again.loss)
        if len(made.loss):
            values = ek.Evaluator(made.formulas, rows.X, "cpu", dtype="float64").evaluate()
            floor = 1e-10 * rows.y.var()
            np.testing.assert_allclose(made.loss + floor, Goal("squares", rows).losses(values) + floor, rtol=0.02)
            least = min(least, made.loss.min())
    TABLE.report("least loss after 15 generations of 5,000, a share of y's variance", least / rows.y.var(), "")


def check_memory():
    """No memory is lost from generation to generation."""
    one, pool = evolution_of(20_000), cupy.get_default_memory_pool()
    used = []
    for number in range(60):
        one.generation()
        if number in (29, 59):
            used.append(pool.used_bytes())
    TABLE.report("memory in use after 60 generations of 20,000, share of that after 30", used[1] / used[0], "")
    assert used[1] < 1.2 * used[0]


def generations(n):
    one = evolution_of(n)
    for _ in range(WARM):
        one.generation()
    repeats = 15 if n < 1_000_000 else 5
    times = [waited(one.generation) * 1e3 for _ in range(repeats)]
    trees, known = one._parents
    length = gpu.fetched(trees.length)[np.isfinite(gpu.fetched(known.loss))].mean()
    note = f"{length:.1f} tokens a tree that breeds"
    TABLE.report(f"a generation of {n:,} trees", statistics.median(times), "ms", AIMS.get(n, ""), note)
    found = {}
    with timed(found, PARTS):
        for _ in range(repeats):
            one.generation()
    for _, _, label in PARTS:
        if label in found:
            TABLE.report(f"   {label}", 1e3 * sum(found[label]) / repeats, "ms")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=timing.to_record)
    parser.add_argument("--largest", type=int, default=1_000_000, help="trees of the largest generation")
    given = parser.parse_args()
    check_trees()
    check_losses()
    check_memory()
    for n in AIMS:
        if n <= given.largest:
            generations(n)
    if given.out:
        card = next(name for name in ("H200", "H100", describe()) if name in describe())
        TABLE.write(given.out / f"{card.lower().replace(' ', '_')}_evolution.csv")


if __name__ == "__main__":
    main()
