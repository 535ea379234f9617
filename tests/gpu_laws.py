"""Which of the 60 laws a search on a GPU finds: several seeds, several searches at a time on each card.

    PYTHONPATH=. python tests/gpu_laws.py --out OUT --minutes 4.6 --again-seeds 5 --cards 2 --processes 10
    PYTHONPATH=. python tests/gpu_laws.py --out OUT --backend cpu --processes 1 --every 20 --seconds 3 --again 6

Processes share the cards and the cores, two threads each, which makes none of them faster: what one search has a card
to itself for takes less time than is printed here.  Before a process is given a law it has made a small search, so
that nothing is compiled within a law's time; the first one does so alone, for kernels and loops are kept on disk.
After all seeds, what was missed in the first ``--again-seeds`` of them is searched for again in ``--again`` seconds.
Nothing is begun that could not end within the minutes.  ``laws.csv`` in the folder has a line for each search.
Other estimators, and exprkit on the processor: ``bench_laws.py``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait

import bench_laws
import numpy as np
from timing import to_record

import exprkit as ek
from exprkit.study import records

THREADS = 2  # of a search
PATIENCE = 2.0  # seconds that a search may take beyond its limit: its sample, a kernel's end
LOADED = 12.0  # seconds that a process may take to load what the first one has compiled
SHARE = 0.85  # of a card's memory, for the pools of all processes
BYTES = 484  # of a pool's function: 24 at each of 16 points, and 100


def prepare(arguments, started, compiled):
    """In a process of its own: choose a card, then compile, or load, what searches run, all stages of them."""
    with started.get_lock():
        number = started.value
        started.value += 1
    os.environ["CUDA_VISIBLE_DEVICES"] = str(number % arguments.cards)
    if number:
        compiled.wait()
    X, y = np.random.default_rng(4).uniform(0.5, 3, (400, 3)), np.random.default_rng(5).normal(size=400)
    model = ek.SymbolicRegressor(niterations=1, population_size=100, random_state=0, n_jobs=THREADS,
                                 pool_size=50_000, backend=arguments.backend,
                                 timeout_in_seconds=LOADED if number else None).fit(X, y)  # fmt: skip
    model.fit(X, X[:, 0] * X[:, 1]).get_best()  # exact; and the table, which loads SymPy
    compiled.set()
    print(f"process {number + 1} is ready, {arguments.until - time.time():.0f} s are left", flush=True)


def room(arguments):
    """How many functions pools have room for: as many as an equal share of the card's memory holds."""
    if arguments.backend == "cpu":
        return None
    import cupy

    return int(SHARE * cupy.cuda.runtime.memGetInfo()[1] * arguments.cards / arguments.processes / BYTES)


def search(task, seed, seconds, arguments):
    """A row for the table; None where no time is left."""
    if time.time() + seconds + PATIENCE > arguments.until:
        return None
    own = argparse.Namespace(**vars(arguments) | {"seconds": seconds, "pool": room(arguments)})
    return bench_laws.measured(task, "exprkit", seed, own) | {"backend": arguments.backend}


def search_all(workers, tasks, arguments, rows):
    """Fill rows until all is done or the time is over."""
    jobs = [(task, seed, arguments.seconds) for seed in range(arguments.seeds) for task in tasks]
    waiting = {workers.submit(search, *job, arguments): job for job in jobs}
    while waiting and (left := arguments.until - time.time()) > 0:
        for future in wait(waiting, timeout=left, return_when=FIRST_COMPLETED).done:
            task, seed, seconds = waiting.pop(future)
            if error := future.exception():  # of one search; the others go on
                print(f"{task[0]}, seed {seed}: {error!r}", flush=True)
            elif row := future.result():
                rows.append(row)
                records.write_rows(arguments.out / "laws.csv", rows)
                if not row["found"] and seconds < arguments.again and seed < arguments.again_seeds:
                    job = task, seed, arguments.again
                    waiting[workers.submit(search, *job, arguments)] = job


def report(rows, arguments):
    """A line for each seed, and which laws were missed."""
    for limit in (arguments.seconds, arguments.again):
        for seed in range(arguments.seeds):
            some = [row for row in rows if (row["limit"], row["seed"]) == (limit, seed)]
            if some:
                seconds = [row["seconds"] for row in some]
                print(f"seed {seed}, {limit:g} s: {sum(row['found'] for row in some)} of {len(some)} found; "
                      f"median {np.median(seconds):.2f} s, mean {np.mean(seconds):.2f} s; missed:",
                      *[row["what"] for row in some if not row["found"]])  # fmt: skip


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=to_record, required=True, help="a folder; laws.csv there is written anew")
    parser.add_argument("--minutes", type=float, default=4.6)
    parser.add_argument("--seconds", type=float, default=10.0, help="of a search")
    parser.add_argument("--again", type=float, default=60.0, help="seconds for what was missed in the first seeds")
    parser.add_argument("--again-seeds", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=5, help="that share the cards")
    parser.add_argument("--cards", type=int, default=1)
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--every", type=int, default=1, help="only every so many-th law")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--laws", default=str(bench_laws.ROOT / "data" / "laws.csv"))
    parser.add_argument("--backend", default="cuda")
    parser.set_defaults(sets=["laws"], threads=THREADS, units=False)
    return parser.parse_args()


def main():
    arguments = options()
    arguments.until = time.time() + 60 * arguments.minutes
    arguments.out.mkdir(parents=True, exist_ok=True)
    tasks, rows, spawn = list(bench_laws.tasks(arguments)), [], multiprocessing.get_context("spawn")
    shared = arguments, spawn.Value("i", 0), spawn.Event()
    workers = ProcessPoolExecutor(arguments.processes, mp_context=spawn, initializer=prepare, initargs=shared)
    try:
        search_all(workers, tasks, arguments, rows)
    finally:
        report(rows, arguments)
        workers.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():  # what is still searching when the time is over
            process.kill()


if __name__ == "__main__":
    main()
