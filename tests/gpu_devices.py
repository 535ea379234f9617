"""One device against several of the same host: ``PYTHONPATH=. python tests/gpu_devices.py --out data/results``.

Prints a line a measurement and writes ``devices.csv`` and ``devices.md``: seconds by the wall clock of the call alone,
the median and the least of ``--repeats`` with populations that are new each time, and whether all results are those of
one device, bit by bit.  Kernels are compiled first, by a process for each part at the same time.  ``--devices 1 2``
says how many, ``--only losses fits`` what, in that order; ``--backend cpu --small --only losses fits search rows``
tries it without a GPU.  Some 100 s on a machine that has compiled nothing yet, and 60 s more for ``rows``; the tables
are written after each part.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from queue import SimpleQueue

import numpy as np
import pandas as pd
from timing import to_record

import exprkit as ek
from exprkit.backends.device_programs.operator_kernels import OperatorKernels
from exprkit.backends.gpu import device as gpu
from exprkit.distributed import collect, workers
from exprkit.distributed import rows as row_sums
from exprkit.distributed.sharing import shared_by
from exprkit.distributed.threads import places_of, thread_of
from exprkit.expressions.arguments import operators_of
from exprkit.regression.on_device.join import DevicePartners
from exprkit.regression.on_device.pool import DevicePool
from exprkit.regression.pairs import links
from exprkit.runtime import machine
from exprkit.study import devices as several
from exprkit.study import records

TRIALS = 200  # tasks that a cluster's costs are measured with
SENT = 32 << 20  # bytes
FIELDS = ("params", "loss", "status", "iterations")
ROW_STEPS = 5  # of fits over rows, all of which cost the same
COMPILED_APART = ("losses", "fits 1", "fits 2", "search", "rows", "join")
JOINED = "sin(x1) * x2 + sqrt(x3 + 0.123 * x1 * x1)"  # which no pair makes


class Table:
    """Rows as they come, each printed at once."""

    def __init__(self, seconds) -> None:
        self.rows: list[dict] = []
        self.begin, self.seconds = time.perf_counter(), seconds

    def add(self, what, devices, seconds, same, **more):
        one = next((row["seconds"] for row in self.rows if row["what"] == what), seconds)
        row = {"what": what, "devices": devices, "seconds": seconds, "speedup": one / seconds, "same_bits": same}
        row |= more
        self.rows.append(row)
        print(f"{self.passed():5.0f} s", {k: f"{x:.4g}" if isinstance(x, float) else x for k, x in row.items()},
              flush=True)  # fmt: skip

    def passed(self):
        return time.perf_counter() - self.begin

    def has_time(self, seconds: float = 0) -> bool:
        """Whether that much is left."""
        return self.passed() + seconds < self.seconds


def timed(run):
    begin = time.perf_counter()
    found = run()
    return time.perf_counter() - begin, found


def populations(n, repeats):
    """As many expressions, others each time, two variables, up to two parameters."""
    return [ek.generate.random(n, (3, 9), n_vars=2, n_params=2, seed=k) for k in range(repeats + 1)]


def bits(arrays):
    return [np.ascontiguousarray(array).tobytes() for array in arrays]


def on(devices):
    """As arguments; None: without ``devices=``."""
    return {"devices": devices} if devices else {}


def repeated(table, what, counts, run_with, results_of, pops, args):
    """``run_with(devices)`` gives a function of a population; the first population warms up, twice."""
    first = None
    for devices in counts:
        run = run_with(devices)
        warm, _ = timed(lambda: run(pops[0]))  # noqa: B023  it is called at once
        run(pops[-1])
        times, found = [], []
        for pop in pops[1:]:
            seconds, result = timed(lambda: run(pop))  # noqa: B023
            times.append(seconds)
            found += bits(results_of(result))
        first = found if first is None else first
        table.add(what, devices, statistics.median(times), found == first, warm_up=warm, least=min(times))


def fits(table, counts, args, pops):
    points = ek.data.rough_pipe()

    def run_with(devices):
        problem = ek.FitProblem(points.X, points.y, backend=args.backend, precision="fast", max_iter=50, **on(devices))
        return problem.fit

    def results_of(found):
        return [getattr(found, name) for name in FIELDS]

    what = f"fits of {len(pops[0]):,} x {len(points.y):,}, new population"
    repeated(table, what, counts, run_with, results_of, pops, args)


def losses(table, counts, args, pops, all_sets=(10, 1)):
    """Of many parameter sets the kernels take longest, of one the way of the tokens to the device does, too."""
    points = ek.data.rough_pipe()
    X, y = np.tile(points.X, (30, 1)), np.tile(points.y, 30)
    random = np.random.default_rng(0)
    params = {id(pop): random.random((max(all_sets), len(pop), pop.max_params), "float32") for pop in pops}
    for n_sets in all_sets:

        def run_with(devices):
            ev = ek.Evaluator(pops[0], X, args.backend, "fast", **on(devices))
            step = ev.loss_of(y)

            def run(pop):
                ev.update(pop)
                return step(params[id(pop)][:n_sets])  # noqa: B023

            return run

        what = f"losses of {len(pops[0]):,} x {len(y):,}, new population, {n_sets} parameter sets"
        repeated(table, what, counts, run_with, lambda found: [found], pops, args)


def rows(table, counts, args, sizes, n_exprs):
    """Fewer rows first, which tell how long more of them will take."""
    pop = ek.generate.random(n_exprs, (3, 9), n_vars=2, n_params=2, seed=9)
    how, of_a_row = {"backend": args.backend, "precision": "fast", "max_iter": ROW_STEPS}, 0.0
    for n in sizes:
        first, what = None, f"fits of {n_exprs:,} over {n:,} rows of an npy file, {ROW_STEPS} steps at the most"
        with tempfile.TemporaryDirectory() as folder:
            names = written(folder, n)
            for devices in counts:
                if not table.has_time(1.3 * of_a_row * n):
                    print(f"no time left for {what}, devices={devices}", flush=True)
                    return
                added = Added()
                with added:
                    seconds, found = timed(lambda: ek.fit(pop, *names, devices=devices, **how))  # noqa: B023
                of_a_row = seconds / n
                found = bits(getattr(found, name) for name in FIELDS)
                first = first or found
                table.add(what, devices, seconds, found == first, steps=added.calls, reduction_s=added.seconds,
                          reduction_bytes=added.bytes)  # fmt: skip


class Added:
    """How long the groups' sums took to add up, which is what an all-reduce would be for."""

    def __enter__(self):
        self._added, self.calls, self.seconds, self.bytes = row_sums._added, 0, 0.0, 0
        row_sums._added = self._watched

    def __exit__(self, *_):
        row_sums._added = self._added

    def _watched(self, parts):
        seconds, found = timed(lambda: self._added(parts))
        if len(parts) > 2:  # groups; two: pieces, in the devices' threads
            self.calls, self.seconds = self.calls + 1, self.seconds + seconds
            self.bytes += sum(array.nbytes for part in parts for array in part)
        return found


def written(folder, n_rows):
    """Files of X and y."""
    names = [f"{folder}/{name}.npy" for name in ("X", "y")]
    X = 0.5 + 2.5 * np.random.default_rng(0).random((n_rows, 2), "float32")
    np.save(names[0], X)
    np.save(names[1], 2 * X[:, 0] / (1.5 + X[:, 1]))
    return names


def search(table, counts, args, max_nodes):
    """Every function of one variable, operators of core maths."""
    x = np.linspace(0.5, 3, 362)
    y = 2 / (x + 0.7) + 0.01 * np.random.default_rng(0).standard_normal(362)
    how = {"backend": args.backend, "progress": False, "operators": "core_maths"}
    first = None

    def run(nodes, devices):
        return ek.exhaustive_search(x[:, None], y, max_nodes=nodes, **how, **on(devices))

    for devices in counts:
        for nodes in [max(max_nodes - 1, 3)] * (1 if first else 2):  # which loads all kernels
            run(nodes, devices)
        seconds, found = timed(lambda: run(max_nodes, devices))  # noqa: B023
        columns = bits([found.params, *found.columns.values()])
        first = first or columns
        what = f"exhaustive search to {max_nodes} nodes, {found.n_functions:,} functions"
        table.add(what, devices, seconds, columns == first)


def costs(table, out):
    """Of workers of dask, processes of this host: what the model of larger clusters is made with."""
    from distributed import Client, LocalCluster

    n, load = min(4, machine.cores()), os.getloadavg()[0]
    seconds, cluster = timed(lambda: LocalCluster(n_workers=n, threads_per_worker=1, dashboard_address=None))
    with cluster, Client(cluster) as client:
        more, _ = timed(lambda: workers.Workers.of(None, client))
        table.add(f"start of {n} worker processes of dask", n, seconds + more, True)
        found = measured_costs(client)
    print("costs of a cluster:", found, flush=True)
    out.mkdir(parents=True, exist_ok=True)
    where = {"machine": machine.cpu_model(), "cores": machine.cores(), "workers": n, "load": load}
    records.write_rows(out / several.COSTS_FILE, [{**where, **found._asdict()}])


def measured_costs(client):
    """Costs of the workers of a dask client: the least of a few trials, by the same functions as any work.

    The link is what a task's argument goes by, to the scheduler and from there to a worker, and with workers of the
    same host no network.
    """
    group = workers.Workers((), client)

    def seconds(n, *task):
        begin = time.perf_counter()
        collect.collect(group, "trial", [(k, k + 1) for k in range(n)], lambda cut, place: task)
        return time.perf_counter() - begin

    seconds(8, _nothing)
    latency = min(seconds(1, _nothing) for _ in range(5))
    many = min(seconds(TRIALS, _nothing) for _ in range(3))
    sent = np.random.default_rng(0).random(SENT // 8)
    link = SENT / max(min(seconds(1, _nothing, sent) for _ in range(3)) - latency, 1e-9)
    tasks = collect.collect(group, "trial", [(k, k + 1) for k in range(64)], lambda cut, place: (_worked,))
    taken = [spent for _, spent in tasks]
    return several.ClusterCosts(link, latency, (many - latency) / TRIALS, float(np.std(taken) / np.mean(taken)))


def _nothing(*_):
    """A task that costs what every task costs."""


def _worked():
    """Seconds of what always is the same work."""
    begin = time.perf_counter()
    for _ in range(40):
        np.sort(np.arange(100_000) * 7919 % 104_729)
    return time.perf_counter() - begin


def join(table, counts, args, most):
    """Pairs of a pool's functions by all links: with the sort, and with the copies to other devices."""
    operators, X = operators_of("search"), np.random.default_rng(0).uniform(0.5, 3, (16, 3))
    y = ek.Evaluator(ek.parse([JOINED]), X, "cpu", dtype="float64").evaluate()[0]
    pool = DevicePool(X, operators, OperatorKernels(gpu.current(), tuple(operators), len(X)))
    seconds, _ = timed(lambda: (pool.grow(30, most), pool.multiply(most + most // 2)))
    print(f"{len(pool):,} functions made in {seconds:.3f} s", flush=True)
    every, first = links.all_links([row for row in operators if row.arity == 1]), None
    for devices in counts:
        with shared_by(workers.Workers.of(devices, None)):
            for _ in range(2):  # the first one takes memory
                seconds, pairs = timed(lambda: [found for _, found in DevicePartners(pool).each(y, every)])
        found = bits(array for some in pairs for array in some)
        first = first or found
        table.add(f"join of {len(pool):,} functions, {len(every)} links", devices, seconds, found == first)


# ── kernels, compiled before anything is timed ──


def compile_part(part, args, share):
    """What a part needs, on one device."""
    quiet, n = Table(args.seconds), 1_000_000 // share
    args.repeats = 1
    if part == "losses":
        losses(quiet, [None], args, populations(n, 1))
    elif part.startswith("fits"):
        few = part == "fits 1"
        fits(quiet, [None], args, [pop[(pop.n_params < 2) == few] for pop in populations(n, 1)])
    elif part == "search":
        search(quiet, [None], args, 4 if args.small else max(args.nodes))
    elif part == "join":
        join(quiet, [None], args, 100_000)
    elif part == "rows":
        rows(quiet, [1], args, [2 * row_sums.PIECE // share], 10_000 // share)


def compile_all(args):
    """Each part by a process of its own; what one of them says is shown if it fails."""
    parts = [part for part in COMPILED_APART if part.split()[0] in args.only]
    shared = [sys.executable, __file__, "--out", str(args.out), "--backend", args.backend]
    shared += ["--nodes", *map(str, args.nodes), *["--small"] * args.small]
    begin = time.perf_counter()
    running = {part: subprocess.Popen([*shared, "--compile", part], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      text=True) for part in parts}  # fmt: skip
    for part, process in running.items():
        said, _ = process.communicate()
        print(f"{part}: compiled after {time.perf_counter() - begin:.0f} s", flush=True)
        if process.returncode:
            print(said, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=to_record, required=True)
    parser.add_argument("--devices", type=int, nargs="+", default=None)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=230, help="after which nothing more is begun")
    parser.add_argument("--only", nargs="+", default=["losses", "fits", "search", "join", "costs", "rows"],
                        choices=["losses", "fits", "search", "join", "costs", "rows"])  # fmt: skip
    parser.add_argument("--nodes", type=int, nargs="+", default=[10], help="of the searches")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--compile", choices=COMPILED_APART, help="only this part's kernels; the script calls itself")
    args = parser.parse_args()
    share = 1000 if args.small else 1
    if args.compile:
        compile_part(args.compile, args, share)
        return
    table, n_gpus = Table(args.seconds), workers.count_of_gpus()
    counts = args.devices or [n for n in (1, 2, 4) if n <= max(n_gpus, 2)]
    compile_all(args)
    for devices in counts:
        seconds, _ = timed(lambda: started(devices, n_gpus > 0))  # noqa: B023
        table.add(f"start of {devices} workers", devices, seconds, True)
    pops = populations(1_000_000 // share, args.repeats)
    parts = {
        "losses": lambda: losses(table, [None, *counts], args, pops),
        "fits": lambda: fits(table, [None, *counts], args, pops),
        "search": lambda: [search(table, [None, *counts], args, 4 if args.small else n) for n in args.nodes],
        "join": lambda: join(table, [None, *counts], args, 30_000_000),
        "rows": lambda: rows(table, counts, args, [10_000_000 // share, 100_000_000 // share], 10_000 // share),
        "costs": lambda: costs(table, args.out),
    }
    failed = []
    for name in args.only:
        if table.has_time():
            failed += [] if worked(parts[name]) else [name]
            write(table, args.out)
        else:
            print(f"no time left for {name}", flush=True)
    if failed or not all(row["same_bits"] for row in table.rows):
        raise SystemExit(f"failed: {', '.join(failed)}" if failed else "results differ")


def write(table, out):
    """What has been measured so far."""
    frame = pd.DataFrame(table.rows)
    out.mkdir(parents=True, exist_ok=True)
    records.write_rows(out / "devices.csv", frame)
    head = [
        "# One device and several of a host", "",
        f"{ek.backends()['cuda'].detail}; {machine.cpu_model()}, {machine.cores()} cores; {machine.versions()}.", "",
        "Devices without a number: the call without `devices=`. Seconds by the wall clock, medians; speed-up against",
        "the first line of the same work. `PYTHONPATH=. python tests/gpu_devices.py --out data/results`", "",
    ]  # fmt: skip
    lines = ["| what | devices | seconds | speed-up | same bits |", "|---|---|---|---|---|"]
    lines += [f"| {r.what} | {'' if pd.isna(r.devices) else int(r.devices)} | {r.seconds:.3g} | {r.speedup:.2f} | "
              f"{'yes' if r.same_bits else 'NO'} |" for r in frame.itertuples()]  # fmt: skip
    (out / "devices.md").write_text("\n".join([*head, *lines, ""]), encoding="utf-8")


def started(devices, are_gpus):
    """All threads have answered."""
    told, places = SimpleQueue(), places_of(workers.Workers.of(devices, None).devices, are_gpus)
    for place in places:
        thread_of(*place).do(lambda: told.put(1))
    return [told.get() for _ in places]


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
