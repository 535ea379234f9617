"""A new population every generation, timed: ``PYTHONPATH=. python tests/gpu_generations.py --out data/results``.

Prints a table and writes it as ``h200_generations.csv`` (of another card by its name), a line a measurement.  Medians
of calls by the wall clock, each from an idle device to an idle device; results are compared with those of a new
evaluator, bit by bit, and with the CPU's.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import cupy
import numpy as np
import timing

import exprkit as ek
from exprkit.backends.device_programs.lowering import Lowering, tokens_of
from exprkit.backends.gpu.bytecode import accumulate
from exprkit.backends.gpu.engine import describe
from exprkit.backends.interpreter import engine as interpreter
from exprkit.expressions import generate
from exprkit.programs.lower import lower
from exprkit.runtime import machine
from exprkit.study import workload

TABLE = timing.Table(width=74)
MEMORY, HOST = 4.2e12, 50e9  # bytes a second: the device's memory copied; from page-locked host memory
RATE = 132 * 128 * 1.98e9  # instructions a second for one point each


def milliseconds(call, repeats=25):
    """Median time of a call and all that it starts."""
    times = []
    for _ in range(repeats + 3):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        call()
        cupy.cuda.Device().synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[3:]) * 1e3


def report(name, call, target="", least=None, repeats=25, note=""):
    TABLE.report(name, milliseconds(call, repeats), "ms", target, note, least)


def least(pop, n_points, on_host):
    """Milliseconds for bytes and instructions at the rates above."""
    n_bytes = 9 * len(pop.kinds) + 8 * len(pop) + 4 * len(pop) * (pop.max_params + 2)
    words = int((pop.kinds == 3).sum())
    return max(n_bytes / (HOST if on_host else MEMORY), words * n_points / RATE) * 1e3


def generations(name, pop, n_points, targets):
    rng = np.random.default_rng(0)
    X = rng.uniform(0.5, 2, (n_points, max(pop.n_vars, 2))).astype(np.float32)
    y, params = X[:, 0] * X[:, 1], rng.uniform(0.5, 2, (len(pop), pop.max_params)).astype(np.float32)
    X_there, y_there, params_there = map(cupy.asarray, (X, y, params))
    new = ek.Evaluator(pop, X_there, "cuda", "fast").loss(params_there, y_there).get()
    title = f"{name}, {len(pop):,} x {n_points:,}"

    there = ek.DevicePopulation.of(pop)
    arrays = there.kinds, there.values, there.offsets
    next_there, next_here = in_turn(there, ek.DevicePopulation(*arrays)), in_turn(pop, copied(pop))
    ev = ek.Evaluator(pop[:1], X_there, "cuda", "fast")
    step = ev.loss_of(y_there)

    def on_device():
        ev.update(ek.DevicePopulation(*arrays))
        return step(params_there)

    host = ek.Evaluator(pop[:1], X, "cuda", "fast")
    of_host = host.loss_of(y)

    def on_host():
        host.update(next_here())
        return of_host(params)

    assert np.array_equal(on_device().get(), new, equal_nan=True) and np.array_equal(on_host(), new, equal_nan=True)
    report(f"{title}: tokens on the device -> losses there", on_device, targets[0], least(pop, n_points, False))
    report("   of it checking: DevicePopulation", lambda: ek.DevicePopulation(*arrays))
    report("   update", lambda: ev.update(next_there()))
    report("   loss", lambda: step(params_there))
    report(f"{title}: tokens on the host -> losses there", on_host, targets[1], least(pop, n_points, True))
    report("   a new Evaluator", lambda: ek.Evaluator(next_here(), X_there, "cuda", "fast"), repeats=9)


def in_turn(*populations):
    """A function that gives one after the other: of the last one the device still knows all."""
    return partial(next, itertools.cycle(populations))


def copied(pop):
    return ek.Population(pop.kinds, pop.values, pop.offsets)


def fits(n_points, target):
    pop, (X, y) = generate.exhaustive(7, n_vars=2), pipe(n_points)
    some = np.flatnonzero(pop.n_params > 0)
    pop = pop[np.sort(np.random.default_rng(1).choice(some, 9_880, replace=False))]
    problem = ek.FitProblem(X, y, backend="cuda", precision="fast", max_iter=50)
    ours, theirs = problem.fit(pop), ek.fit(pop, X, y, backend="cuda", precision="fast", max_iter=50)
    assert np.array_equal(ours.params, theirs.params, equal_nan=True)
    new = in_turn(pop, pop[::-1])
    report(f"9,880 x {n_points:,}: FitProblem.fit of a new population", lambda: problem.fit(new()), target, repeats=15)
    call = lambda: ek.fit(new(), X, y, backend="cuda", precision="fast", max_iter=50)  # noqa: E731
    report(f"9,880 x {n_points:,}: fit, the whole call", call, target, repeats=9)


def pipe(n_points):
    points = ek.data.rough_pipe().repeat_to(n_points)
    return points.X.astype(np.float32), points.y.astype(np.float32)


def bytecode(pop, threads):
    return accumulate(lower(pop, precision="fast", dtype=np.float32, threads=threads), threads)


def many(n):
    """Ten million expressions."""
    pop = generate.exhaustive(10, n_vars=2, limit=n)
    device = interpreter.Engine(pop[:1], np.ones((1, 2), np.float32), precision="fast", dtype=np.float32).device
    settings = ek.Precision("fast")
    lowering = Lowering(device, settings, np.dtype(np.float32), np.zeros(2, bool))
    tokens = tokens_of(pop, device)
    arrays = [tokens.keep[name] for name in ("kinds", "values", "offsets")]
    size = f"{len(pop):,} ({len(pop.kinds) / len(pop):.1f} tokens)"
    moved = (9 * len(pop.kinds) + 8 * len(pop) + 32 * len(pop.kinds) / 2) / MEMORY * 1e3
    report(f"{size}: postfix -> bytecode on the device", lambda: lowering(tokens), "50", moved, repeats=5)
    report("   checked: DevicePopulation", lambda: ek.DevicePopulation(*arrays), repeats=5)
    for threads in (1, machine.cores()):
        call = partial(bytecode, pop, threads)
        report(f"   postfix -> bytecode on the host, threads: {threads}", call, "600", repeats=3)
    report("   checked on the host", pop.verify, repeats=3)
    report("   duplicates on the host", pop.duplicates, "500", repeats=3)


def steps(pop, n_points):
    """A loss asked for again: from the host, and queued on the device."""
    X, y = pipe(n_points)
    params = np.ones((len(pop), pop.max_params), np.float32)
    host = ek.Evaluator(pop, X, "cuda", "fast")
    there = [cupy.asarray(array) for array in (X, params, y)]
    ev, out = ek.Evaluator(pop, there[0], "cuda", "fast"), cupy.empty(len(pop))
    expected, of_host, step = host.loss(params, y), host.loss_of(y), ev.loss_of(there[2])

    def queued():
        for _ in range(100):
            step(there[1], out=out)

    for _ in range(3):
        assert np.array_equal(of_host(params), expected, equal_nan=True)
        assert np.array_equal(step(there[1]).get(), expected, equal_nan=True)
    report(f"{len(pop):,} x {n_points:,}: a loss again, from the host", lambda: of_host(params), "0.035", repeats=99)
    TABLE.report("   queued on the device", milliseconds(queued) / 100, "ms", "0.019")


def texts(n):
    """Lines of a file."""
    some = generate.exhaustive(10, n_vars=2, limit=500_000).texts()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.txt"
        path.write_text("\n".join(some * (n // len(some))) + "\n")
        report(
            f"{n:,} texts of a file ({path.stat().st_size / n:.1f} bytes) parsed",
            lambda: ek.parse(path),
            "300",
            repeats=3,
        )


def thesis():
    return ek.parse(workload.expressions("esr", 10_000))


def enumerated():
    generations("exhaustive", ek.parse(workload.expressions("exhaustive", 100_000)), 362, ("0.6", "1.5"))


PARTS = {
    "thesis": lambda: generations("thesis", thesis(), 362, ("0.1", "0.25")),
    "thesis-long": lambda: generations("thesis", thesis(), 10_860, ("0.2", "")),
    "exhaustive": enumerated,
    "trees": lambda: generations("trees", generate.random(10_000, seed=3), 362, ("", "")),
    "trees-long": lambda: generations("trees", generate.random(10_000, seed=3), 10_860, ("", "")),
    "fits": lambda: fits(362, "1.5"),
    "fits-long": lambda: fits(10_860, ""),
    "steps": lambda: steps(thesis(), 362),
    "many": lambda: many(10_000_000),
    "texts": lambda: texts(10_000_000),
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=timing.to_record)
    parser.add_argument("--only", nargs="*", choices=tuple(PARTS), default=tuple(PARTS))
    asked = parser.parse_args()
    for part in asked.only:
        PARTS[part]()
    if asked.out:
        card = describe().split()[1]  # NVIDIA H200 (...
        TABLE.write(asked.out / f"{card.lower()}_generations.csv")


if __name__ == "__main__":
    main()
