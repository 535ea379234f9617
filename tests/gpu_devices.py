"""One device against several of the same host: ``PYTHONPATH=. python tests/gpu_devices.py --out data/results``.

Writes ``devices.csv`` and ``devices.md``, a line a measurement: seconds by the wall clock, the median of ``--repeats``
with populations that are new each time, and whether all results are those of one device, bit by bit.
``--devices 1 2`` says how many; ``--backend cpu`` and ``--small`` try it without a GPU.  Needs dask.distributed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

import exprkit as ek
from exprkit.distributed import workers
from exprkit.runtime import machine

FIELDS = ("params", "loss", "status", "iterations")
SECONDS = 220  # after which nothing more is begun


class Table:
    """Rows as they come."""

    def __init__(self) -> None:
        self.rows: list[dict] = []
        self.begin = time.perf_counter()

    def add(self, what, devices, seconds, same, **more):
        one = next((row["seconds"] for row in self.rows if row["what"] == what and row["devices"] == 1), seconds)
        row = {"what": what, "devices": devices, "seconds": seconds, "speedup": one / seconds, "same_bits": same}
        row |= more
        self.rows.append(row)
        print({name: f"{x:.4g}" if isinstance(x, float) else x for name, x in row.items()}, flush=True)

    @property
    def has_time(self) -> bool:
        return time.perf_counter() - self.begin < SECONDS


def timed(run):
    begin = time.perf_counter()
    found = run()
    return time.perf_counter() - begin, found


def populations(n, repeats):
    """As many expressions, others each time, two variables, up to two parameters."""
    return [ek.generate.random(n, (3, 9), n_vars=2, n_params=2, seed=k) for k in range(repeats + 1)]


def bits(arrays):
    return [np.ascontiguousarray(array).tobytes() for array in arrays]


def repeated(table, what, counts, run_with, pops, repeats):
    """``run_with(devices)`` gives a function of a population; the first population warms up."""
    first = None
    for devices in counts:
        run = run_with(devices)
        warm, _ = timed(lambda: run(pops[0]))  # noqa: B023  it is called at once
        times, found = [], []
        for pop in pops[1 : repeats + 1]:
            seconds, result = timed(lambda: run(pop))  # noqa: B023
            times.append(seconds)
            found += bits(result)
        first = found if first is None else first
        table.add(what, devices, statistics.median(times), found == first, warm_up=warm, least=min(times))


def fits(table, counts, args, pops):
    points = ek.data.rough_pipe()

    def run_with(devices):
        problem = ek.FitProblem(points.X, points.y, backend=args.backend, precision="fast", max_iter=50,
                                **({"devices": devices} if devices else {}))  # fmt: skip
        return lambda pop: [getattr(problem.fit(pop), name) for name in FIELDS]

    what = f"fits of {len(pops[0]):,} x {len(points.y):,}, new population"
    repeated(table, what, counts, run_with, pops, args.repeats)


def losses(table, counts, args, pops):
    points = ek.data.rough_pipe()
    X, y = np.tile(points.X, (30, 1)), np.tile(points.y, 30)
    random = np.random.default_rng(0)
    params = {id(pop): random.normal(size=(len(pop), pop.max_params)).astype("float32") for pop in pops}
    for n_sets in (1, 10):

        def run_with(devices):
            where = {"devices": devices} if devices else {}
            ev = ek.Evaluator(pops[0], X, args.backend, "fast", **where)

            def run(pop):
                ev.update(pop)
                sets = np.repeat(params[id(pop)][None], n_sets, axis=0) if n_sets > 1 else params[id(pop)]  # noqa: B023
                return [ev.loss(sets, y)]

            return run

        what = f"losses of {len(pops[0]):,} x {len(y):,}, new population, {n_sets} parameter sets"
        repeated(table, what, counts, run_with, pops, args.repeats)


def rows(table, counts, args, n_rows, n_exprs):
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        names = [f"{folder}/{name}.npy" for name in ("X", "y")]
        X = rng.uniform(0.5, 3, (n_rows, 2)).astype("float32")
        np.save(names[0], X)
        np.save(names[1], (2 * X[:, 0] / (1.5 + X[:, 1])).astype("float32"))
        del X
        pop, first = ek.generate.random(n_exprs, (3, 9), n_vars=2, n_params=2, seed=9), None
        for devices in (n for n in counts if n):
            how = {"backend": args.backend, "precision": "fast", "max_iter": 10, "devices": devices}
            ek.fit(pop[:10], *names, **how)
            seconds, found = timed(lambda: ek.fit(pop, *names, **how))  # noqa: B023
            first = first or bits(getattr(found, name) for name in FIELDS)
            same = bits(getattr(found, name) for name in FIELDS) == first
            table.add(f"fits of {n_exprs:,} over {n_rows:,} rows of an npy file", devices, seconds, same)


def search(table, counts, args, max_nodes):
    x = np.linspace(0.5, 3, 362)
    y = 2 / (x + 0.7) + 0.01 * np.random.default_rng(0).standard_normal(362)
    first = None
    for devices in (n for n in counts if n):
        seconds, found = timed(lambda: ek.exhaustive_search(
            x[:, None], y, max_nodes=max_nodes, backend=args.backend, progress=False, devices=devices))  # noqa: B023  # fmt: skip
        columns = bits([found.params, *found.columns.values()])
        first = first or columns
        table.add(f"exhaustive search, {found.n_functions:,} functions", devices, seconds, columns == first)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--devices", type=int, nargs="+", default=None)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    n_gpus = workers.count_of_gpus()
    counts = args.devices or [n for n in (1, 2, 4) if n <= max(n_gpus, 2)]
    table, share = Table(), 1000 if args.small else 1
    for devices in counts:
        seconds, _ = timed(lambda: workers.workers_of(devices, None))  # noqa: B023
        table.add("start of the workers", devices, seconds, True)
    pops = populations(1_000_000 // share, args.repeats)
    fits(table, [None, *counts], args, pops)
    losses(table, [None, *counts], args, pops)
    if table.has_time:
        rows(table, counts, args, 100_000_000 // share, 10_000 // share)
    if table.has_time:
        search(table, counts, args, 6 if args.small else 8)
    frame = pd.DataFrame(table.rows)
    args.out.mkdir(parents=True, exist_ok=True)
    frame.to_csv(args.out / "devices.csv", index=False)
    about = machine.record()
    head = [
        "# One device and several of a host", "",
        f"{ek.backends()['cuda'].detail}; {about['cpu']}, {about['cores']} cores; {about['versions']}.", "",
        "Devices without a number: the call without `devices=`. Seconds by the wall clock, medians; `speedup` against",
        "one device through dask. `PYTHONPATH=. python tests/gpu_devices.py --out data/results`", "",
    ]  # fmt: skip
    lines = ["| what | devices | seconds | speed-up | same bits |", "|---|---|---|---|---|"]
    lines += [f"| {r.what} | {'' if pd.isna(r.devices) else int(r.devices)} | {r.seconds:.3g} | {r.speedup:.2f} | "
              f"{'yes' if r.same_bits else 'NO'} |" for r in frame.itertuples()]  # fmt: skip
    (args.out / "devices.md").write_text("\n".join([*head, *lines, ""]), encoding="utf-8")
    if not frame.same_bits.all():
        raise SystemExit("results differ")


if __name__ == "__main__":
    main()
