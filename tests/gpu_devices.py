"""One device against several of the same host: ``PYTHONPATH=. python tests/gpu_devices.py --out data/results``.

Prints a line a measurement and writes ``devices.csv`` and ``devices.md``: seconds by the wall clock, the median of
``--repeats`` with populations that are new each time, and whether all results are those of one device, bit by bit.
``--devices 1 2`` says how many; ``--backend cpu`` and ``--small`` try it without a GPU; ``--profile`` prints when every
slice of the last call began and ended, and what the first device's thread spent its time with.  Some three minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import pstats
import statistics
import tempfile
import time
import traceback
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pandas as pd

import exprkit as ek
from exprkit.distributed import tasks, workers
from exprkit.distributed.threads import thread_of
from exprkit.runtime import machine

FIELDS = ("params", "loss", "status", "iterations")
SECONDS = 190  # after which nothing more is begun
LEAST_SEARCH = 2.5  # seconds of a search
ROW_STEPS = 5  # of fits over rows, all of which cost the same


class Table:
    """Rows as they come, each printed at once."""

    def __init__(self) -> None:
        self.rows: list[dict] = []
        self.begin = time.perf_counter()

    def add(self, what, devices, seconds, same, **more):
        one = next((row["seconds"] for row in self.rows if row["what"] == what), seconds)
        row = {"what": what, "devices": devices, "seconds": seconds, "speedup": one / seconds, "same_bits": same}
        row |= more
        self.rows.append(row)
        print({name: f"{x:.4g}" if isinstance(x, float) else x for name, x in row.items()}, flush=True)

    def has_time(self, seconds: float = 0) -> bool:
        """Whether that much is left."""
        return time.perf_counter() - self.begin + seconds < SECONDS


def timed(run):
    begin = time.perf_counter()
    found = run()
    return time.perf_counter() - begin, found


def populations(n, repeats):
    """As many expressions, others each time, two variables, up to two parameters."""
    return [ek.generate.random(n, (3, 9), n_vars=2, n_params=2, seed=k) for k in range(repeats + 1)]


def bits(arrays):
    return [np.ascontiguousarray(array).tobytes() for array in arrays]


def repeated(table, what, counts, run_with, pops, repeats, profile):
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
        if profile and devices:
            profiled(lambda: run(pops[0]))  # noqa: B023


def profiled(run):
    """Milliseconds of every slice, by the devices' threads; functions of the first one's."""
    called, begin, slices, profiler = tasks._called, time.perf_counter(), [], cProfile.Profile()

    def watched(worker, setting, X, which, *rest):
        start = time.perf_counter()
        here = profiler if worker == "device 0" else contextlib.nullcontext()
        with here:
            found = called(worker, setting, X, which, *rest)
        slices.append((worker, which.begin, *(round(1e3 * (t - begin), 2) for t in (start, time.perf_counter()))))
        return found

    tasks._called = watched
    try:
        run()
    finally:
        tasks._called = called
    print(*slices, sep="\n")
    pstats.Stats(profiler).sort_stats("tottime").print_stats(12)


def fits(table, counts, args, pops):
    points = ek.data.rough_pipe()

    def run_with(devices):
        problem = ek.FitProblem(points.X, points.y, backend=args.backend, precision="fast", max_iter=50,
                                **({"devices": devices} if devices else {}))  # fmt: skip
        return lambda pop: [getattr(problem.fit(pop), name) for name in FIELDS]

    what = f"fits of {len(pops[0]):,} x {len(points.y):,}, new population"
    repeated(table, what, counts, run_with, pops, args.repeats, args.profile)


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
        repeated(table, what, counts, run_with, pops, args.repeats, args.profile)


def rows(table, counts, args, n_rows, n_exprs):
    """A tenth of the rows first, which tells how long all of them will take."""
    pop = ek.generate.random(n_exprs, (3, 9), n_vars=2, n_params=2, seed=9)
    how, of_a_row = {"backend": args.backend, "precision": "fast", "max_iter": ROW_STEPS}, 0.0
    with tempfile.TemporaryDirectory() as folder:
        for n in (n_rows // 10, n_rows):
            names = written(folder, n)
            first, what = None, f"fits of {n_exprs:,} over {n:,} rows of an npy file, {ROW_STEPS} steps at the most"
            for devices in counts:
                if not table.has_time(1.3 * of_a_row * n):
                    print(f"no time left for {what}, devices={devices}", flush=True)
                    return
                ek.fit(pop[:10], *names, devices=devices, **how)
                seconds, found = timed(lambda: ek.fit(pop, *names, devices=devices, **how))  # noqa: B023
                of_a_row = seconds / n
                found = bits(getattr(found, name) for name in FIELDS)
                first = first or found
                table.add(what, devices, seconds, found == first)


def written(folder, n_rows):
    """Files of X and y."""
    names = [f"{folder}/{name}.npy" for name in ("X", "y")]
    X = 0.5 + 2.5 * np.random.default_rng(0).random((n_rows, 2), "float32")
    np.save(names[0], X)
    np.save(names[1], 2 * X[:, 0] / (1.5 + X[:, 1]))
    return names


def search(table, counts, args, max_nodes):
    """The first search that takes so long that it is worth it."""
    x = np.linspace(0.5, 3, 362)
    y = 2 / (x + 0.7) + 0.01 * np.random.default_rng(0).standard_normal(362)
    how = {"backend": args.backend, "progress": False}
    seconds, first = 0.0, None
    while seconds < LEAST_SEARCH and max_nodes < 10:
        max_nodes += 1
        seconds, _ = timed(lambda: ek.exhaustive_search(x[:, None], y, max_nodes=max_nodes, **how))  # noqa: B023
    for devices in (None, *counts):
        where = {"devices": devices} if devices else {}
        ek.exhaustive_search(x[:, None], y, max_nodes=3, **how, **where)  # compiles
        seconds, found = timed(lambda: ek.exhaustive_search(x[:, None], y, max_nodes=max_nodes, **how, **where))  # noqa: B023
        columns = bits([found.params, *found.columns.values()])
        first = first or columns
        what = f"exhaustive search to {max_nodes} nodes, {found.n_functions:,} functions"
        table.add(what, devices, seconds, columns == first)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--devices", type=int, nargs="+", default=None)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    n_gpus = workers.count_of_gpus()
    counts = args.devices or [n for n in (1, 2, 4) if n <= max(n_gpus, 2)]
    table, share = Table(), 1000 if args.small else 1
    for devices in counts:
        seconds, _ = timed(lambda: started(devices))  # noqa: B023
        table.add(f"start of {devices} workers", devices, seconds, True)
    pops = populations(1_000_000 // share, args.repeats)
    parts = {
        "losses": lambda: losses(table, [None, *counts], args, pops),
        "fits": lambda: fits(table, [None, *counts], args, pops),
        "search": lambda: search(table, counts, args, 3 if args.small else 6),
        "rows": lambda: rows(table, counts, args, 100_000_000 // share, 10_000 // share),
    }
    failed = [name for name, part in parts.items() if table.has_time() and not worked(part)]
    frame = pd.DataFrame(table.rows)
    args.out.mkdir(parents=True, exist_ok=True)
    frame.to_csv(args.out / "devices.csv", index=False)
    about = machine.record()
    head = [
        "# One device and several of a host", "",
        f"{ek.backends()['cuda'].detail}; {about['cpu']}, {about['cores']} cores; {about['versions']}.", "",
        "Devices without a number: the call without `devices=`. Seconds by the wall clock, medians; speed-up against",
        "the first line of the same work. `PYTHONPATH=. python tests/gpu_devices.py --out data/results`", "",
    ]  # fmt: skip
    lines = ["| what | devices | seconds | speed-up | same bits |", "|---|---|---|---|---|"]
    lines += [f"| {r.what} | {'' if pd.isna(r.devices) else int(r.devices)} | {r.seconds:.3g} | {r.speedup:.2f} | "
              f"{'yes' if r.same_bits else 'NO'} |" for r in frame.itertuples()]  # fmt: skip
    (args.out / "devices.md").write_text("\n".join([*head, *lines, ""]), encoding="utf-8")
    if failed or not frame.same_bits.all():
        raise SystemExit(f"failed: {', '.join(failed)}" if failed else "results differ")


def started(devices):
    """All threads have answered."""
    told = SimpleQueue()
    for number in workers.workers_of(devices, None).devices:
        thread_of(number).do(lambda: told.put(1))
    return [told.get() for _ in range(devices)]


def worked(part):
    """Whether a part came to its end; what is wrong with it is printed, and the others are not lost."""
    try:
        part()
    except Exception:
        traceback.print_exc()
        return False
    return True


if __name__ == "__main__":
    main()
