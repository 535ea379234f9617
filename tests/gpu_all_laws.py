"""All lists of laws, noise, units and tables at once, side by side in processes of one thread each, on one machine.

    PYTHONPATH=.:tests python tests/gpu_all_laws.py --out OUT --seconds-in-all 275 --nikuradse FILE
    PYTHONPATH=.:tests python tests/gpu_all_laws.py --out OUT --processes 2 --thin 20 --seconds 3   # a trial

Needs no GPU, but many cores that nothing else runs on: times are elapsed ones.  Seeds of rows, of noise and of what is
kept aside of a table begin with ``--seed``: what was published before is of seeds 0 to 4.  One process compiles the
loops of a search; meanwhile the others let pyoperon have its turn, which needs none.  What counts most comes first,
and nothing is begun that could not end in time.

===============  ======================================================================================================
file             what is in it
===============  ======================================================================================================
``tables``       data without a known law, three draws of rows each, and pyoperon on the same
``noise``        the 60 laws with noise 0.01 and 0.001 of the target's root mean square; pyoperon on every fourth
``empirical``    Planck's and Rydberg's laws, five draws, twice the seconds
``units``        the 60 laws, and those held out, with the units of all variables
``textbook``, ``held_out``, ``curves``, ``laws``  the laws of the file ``data/laws_*.csv``, without noise
===============  ======================================================================================================
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import bench_laws
import numpy as np
from timing import to_record

import exprkit as ek
from exprkit.study import records

PATIENCE = 2.5  # seconds that a search may take beyond its limit
LOADED = 6.0  # seconds that a process may take to load what the first one has compiled
DRAWS = 3  # of a table's rows
LISTS = "textbook", "held_out", "curves"


class Job(NamedTuple):
    """A search: for which file, by whom, what for."""

    file: str
    by: str
    task: tuple
    seed: int
    arguments: argparse.Namespace


# ── in a process of its own ──

ready: dict[str, Any] = {}  # of this process: the event that says that all is compiled, the end, what has been loaded


def begin(compiled, until):
    ready.update(compiled=compiled, until=until, loaded=False)


def load(most_seconds=None):
    """Compile, or load, the loops of all stages."""
    random = np.random.default_rng(4)
    X, y = random.uniform(0.5, 3, (40, 2)), random.normal(size=40)
    model = ek.SymbolicRegressor(
        niterations=1, population_size=50, pool_size=300, n_jobs=1, random_state=0, maxsize=12,
        unary_operators=["log", "exp", "sqr"], timeout_in_seconds=most_seconds,
    )  # fmt: skip
    model.fit(X, y)
    model.fit(X, X[:, 0] * X[:, 1], X_units=["m", "s"], y_units="m*s").get_best()
    ready["loaded"] = True


def compile_first():
    try:
        load()
    finally:
        ready["compiled"].set()


def searched(job):
    """A row, or None where it could not have ended in time."""
    if job.by == "exprkit" and not ready["loaded"]:
        ready["compiled"].wait()
        load(LOADED)
    if time.time() + job.arguments.seconds + PATIENCE > ready["until"]:
        return None
    return bench_laws.measured(job.task, job.by, job.seed, job.arguments)


# ── what is to be done ──


def tasks_of(arguments, sets, **other):
    """Tasks of ``bench_laws`` with some of its options."""
    options = {"seconds": arguments.seconds, "threads": 1, "pool": None, "backend": "cpu", "noise": 0.0,
               "units": False, "first": 0, "every": arguments.thin, "laws": str(bench_laws.ROOT / "data/laws.csv"),
               "nikuradse": arguments.nikuradse, "sets": [sets]} | other  # fmt: skip
    space = argparse.Namespace(**options)
    return list(bench_laws.tasks(space)), space


def jobs(arguments):
    """In the order of how much they count; those of peers first, which nothing has to be compiled for."""
    seed, found = arguments.seed, []
    for draw in range(seed, seed + DRAWS):
        tasks, space = tasks_of(arguments, "tables", random_state=draw)
        for task in tasks[:: arguments.thin]:
            found += [Job("tables", by, task, draw, space) for by in ("exprkit", "pyoperon")]
    for noise in (0.01, 0.001):
        tasks, space = tasks_of(arguments, "laws", noise=noise)
        found += [Job("noise", "exprkit", task, seed, space) for task in tasks]
        found += [Job("noise", "pyoperon", task, seed, space) for task in tasks[::4]]
    tasks, space = tasks_of(arguments, "empirical", seconds=2 * arguments.seconds)
    found += [Job("empirical", "exprkit", task, draw, space) for draw in range(seed, seed + 5) for task in tasks]
    held_out = str(bench_laws.ROOT / "data/laws_held_out.csv")
    for other in ({}, {"laws": held_out}):
        tasks, space = tasks_of(arguments, "laws", units=True, **other)
        found += [Job("units", "exprkit", task, seed, space) for task in tasks]
    for name in ("laws", *LISTS):
        path = bench_laws.ROOT / "data" / (name if name == "laws" else f"laws_{name}")
        tasks, space = tasks_of(arguments, "laws", laws=f"{path}.csv")
        found += [Job(name, "exprkit", task, seed, space) for task in tasks]
    if arguments.peers and importlib.util.find_spec("pyoperon") is None:
        raise SystemExit("pyoperon is missing: pip install pyoperon, or --no-peers")
    if not arguments.peers:
        found = [job for job in found if job.by == "exprkit"]
    return sorted(found, key=lambda job: job.by == "exprkit")


class Tables:
    """A CSV file for each kind, written as searches end."""

    def __init__(self, folder):
        self.folder, self.rows = Path(folder), {}

    def add(self, name, row):
        rows = self.rows.setdefault(name, [])
        rows.append(row)
        records.write_rows(self.folder / f"{name}.csv", rows)

    def report(self):
        for name, rows in self.rows.items():
            for kind in sorted({(row["by"], row["noise"], row["units"]) for row in rows}):
                some = [row for row in rows if (row["by"], row["noise"], row["units"]) == kind]
                print("{} | {}, noise {:g}, units {}:".format(name, *kind), _counted(some))
                missed = [row["what"] for row in some if not row["found"]]
                if kind[0] == "exprkit" and name != "tables" and missed:
                    print("   missed:", *missed)
        for what in dict.fromkeys(row["what"] for row in self.rows.get("tables", ())):
            print(f"R2 of {what}:", *(_r2(self.rows["tables"], what, by) for by in ("exprkit", "pyoperon")), sep="  ")


def _counted(rows):
    seconds = [row["seconds"] for row in rows]
    return (f"{sum(row['found'] for row in rows)} of {len(rows)}; median {np.median(seconds):.2f} s, "
            f"mean {np.mean(seconds):.2f} s, most {max(seconds):.2f} s")  # fmt: skip


def _r2(rows, what, by):
    some = sorted((row["seed"], row["value"], row["nodes"]) for row in rows if (row["what"], row["by"]) == (what, by))
    return f"{by}: " + ", ".join(f"{value:.4f} ({nodes})" for _, value, nodes in some)


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=to_record, required=True, help="a folder for the CSV files")
    parser.add_argument("--processes", type=int, default=max(1, len(os.sched_getaffinity(0)) - 2))
    parser.add_argument("--seconds-in-all", type=float, default=275.0)
    parser.add_argument("--seconds", type=float, default=10.0, help="of a search")
    parser.add_argument("--seed", type=int, default=101)
    parser.add_argument("--thin", type=int, default=1, help="only every so many-th law or table")
    parser.add_argument("--nikuradse", default=None, help="a CSV file, target last")
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    return parser.parse_args()


def main():
    start, arguments = time.time(), options()
    until, context = start + arguments.seconds_in_all, multiprocessing.get_context("spawn")
    tables, left, compiled = Tables(arguments.out), 0, context.Event()
    pool = ProcessPoolExecutor(arguments.processes, context, begin, (compiled, until))
    first = pool.submit(compile_first)
    first.add_done_callback(lambda _: print(f"compiled after {time.time() - start:.1f} s", flush=True))
    waiting = {pool.submit(searched, job): job for job in jobs(arguments)}
    print(f"{len(waiting)} searches in {arguments.processes} processes of one thread", flush=True)
    try:
        for future in as_completed(waiting, timeout=until - time.time()):
            if future.exception() is not None:
                print(f"{waiting[future].by} {waiting[future].task[0]}: {future.exception()!r}", flush=True)
            elif future.result() is None:
                left += 1
            else:
                tables.add(waiting[future].file, future.result())
    except TimeoutError:
        left += sum(not future.done() for future in waiting)
    processes = list((pool._processes or {}).values())
    print(f"{time.time() - start:.1f} s; {left} searches were left when the time was over")
    tables.report()
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.kill()
    if first.done():
        first.result()  # raises where the loops could not be compiled


if __name__ == "__main__":
    main()
