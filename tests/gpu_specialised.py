"""What kernels gain that leave out operators: ``PYTHONPATH=. python tests/gpu_specialised.py --out data/results``.

Losses and values of trees of + - * / by the interpreter's kernels without powers, as they are chosen, and by those with
all operators.  Bits are compared; both are timed in turns by the device's clock, and the first call of each, which is
mostly compiling, with an empty cache.  Writes ``specialised.csv``.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time

import cupy
import numpy as np
import timing

from exprkit.backends.interpreter import engine as interpreter
from exprkit.expressions import generate

TABLE = timing.Table(width=56)
N, TURNS = 9_880, 5
F4 = np.dtype("float32")


class AllOperators(interpreter.Engine):
    """With kernels that have the code of all operators."""

    def _powers(self, programs):
        return True


ENGINES = {"with powers": AllOperators, "without": interpreter.Engine}


def compare(n_points, precision):
    """Both engines on the same trees and data."""
    pop = generate.random(N, n_tokens=(10, 50), operators=["+", "-", "*", "/"], n_vars=10, n_params=2, seed=1)
    random = np.random.default_rng(5)
    X, y = (cupy.asarray(random.uniform(0.5, 4, shape).astype(F4)) for shape in ((n_points, 10), n_points))
    params = cupy.asarray(random.uniform(-2, 2, (1, N, pop.max_params)).astype(F4))
    out = cupy.empty((1, N, n_points), F4)
    steps, found = {}, {}
    for name, engine in ENGINES.items():
        e = engine(pop, X, precision=precision, dtype=F4)
        losses = lambda e=e: e.loss_sums(params, y, None, "square")  # noqa: E731
        values = lambda e=e: e.evaluate(params, out)  # noqa: E731
        with tempfile.TemporaryDirectory() as folder:
            os.environ["EXPRKIT_CACHE_DIR"] = folder
            begin = time.perf_counter()
            sums = cupy.asarray(losses()).get()
            first = time.perf_counter() - begin
        values()
        found[name] = sums, out.get()
        steps[name] = {"losses": losses, "values": values}
        kernel = e.kernels()[-1]
        note = f"{kernel['registers']} registers, {kernel['block_size']} threads, {kernel['points_per_thread']} points"
        TABLE.report(f"{precision}, {n_points:,} points, first losses {name}", first, "s", note=note)
    same = all(a.tobytes() == b.tobytes() for a, b in zip(*found.values(), strict=True))
    TABLE.report(f"{precision}, {n_points:,} points, same bits", float(same), "")
    for task in ("losses", "values"):
        times = {name: [] for name in steps}
        for _ in range(TURNS):
            for name, calls in steps.items():
                times[name].append(timing.microseconds(calls[task]))
        middle = {name: np.median(some) for name, some in times.items()}
        for name, microseconds in middle.items():
            TABLE.report(f"{precision}, {n_points:,} points, {task} {name}", microseconds, "us")
        ratio = middle["without"] / middle["with powers"]
        TABLE.report(f"{precision}, {n_points:,} points, {task}, without over with", ratio, "times")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=timing.to_record)
    chosen = parser.parse_args()
    for precision in ("ieee", "fast"):
        for n_points in (362, 10_860):
            compare(n_points, precision)
    if chosen.out:
        TABLE.write(chosen.out / "specialised.csv")
