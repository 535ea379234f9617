"""Which of the 60 laws a search on one GPU finds: several seeds, several laws at a time, beside peers on the same host.

    PYTHONPATH=. python tests/gpu_laws.py --out OUT --minutes 4.6
    PYTHONPATH=. python tests/gpu_laws.py --out OUT --minutes 8 --again-seeds 5 --cards 2 --processes 10
    PYTHONPATH=. python tests/gpu_laws.py --out OUT --gpu cpu --processes 1 --beside 1 --every 20 --seconds 3 --again 6

Processes share the card and the cores, two threads each, which makes none of them faster: what one search has a card
to itself for takes less time than is printed here.  With ``--cards`` they are spread over several, one search on one
card as before.  Meanwhile others search on two threads of the processor: peers and exprkit on every fourth law, then
exprkit on the rest.  What a search missed in the first ``--again-seeds`` seeds is searched for again in ``--again``
seconds.  Before a process is given a law it has made a small search, so that nothing is compiled within a
law's time; the first one does so alone, for kernels and loops are kept on disk, and peers, which need none of them,
have the cores until then.

What counts most comes first: the first seed, its missed laws again, then one seed after the other; nothing is begun
that could not end within the minutes.  ``laws.csv`` in the folder has a line for each search that has ended.  Pools
have room for as many functions as an equal share of the card's memory holds.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import os
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

import bench_laws
import numpy as np
from timing import to_record

import exprkit as ek
from exprkit.study import records

BEGIN = time.perf_counter()
THREADS = 2  # of a search
PATIENCE = 2.0  # seconds that a search may take beyond its limit: its sample, a kernel's end
LOADED = 12.0  # seconds that a process may take to load what the first one has compiled
SHARE = 0.85  # of a card's memory, for the pools of all processes
BYTES = 484  # of a pool's function: 24 at each of 16 points, and 100
AT_A_TIME = 0.5  # share of the processes that search again in more time, as long as there is anything else to do


def say(*parts):
    print(f"{time.perf_counter() - BEGIN:6.1f} s:", *parts, flush=True)


class Job(NamedTuple):
    """A search: by whom, where, for which law, and how long."""

    by: str
    backend: str
    law: int
    seed: int
    seconds: float


# ── in a process of its own ──


def on_card(number):
    """Let this process see one card alone; before it has asked for any."""
    os.environ["CUDA_VISIBLE_DEVICES"] = str(number)


def prepared(backend, processes, most_seconds):
    """Compile, or load, what searches run, all stages of them; how many functions pools have room for.

    ``processes``: how many share a card.
    """
    X, y = np.random.default_rng(4).uniform(0.5, 3, (400, 3)), np.random.default_rng(5).normal(size=400)
    settings = {"niterations": 1, "population_size": 100, "random_state": 0, "n_jobs": THREADS,
                "timeout_in_seconds": most_seconds}  # fmt: skip
    model = ek.SymbolicRegressor(**settings, pool_size=50_000, backend=backend).fit(X, y)
    model.fit(X, X[:, 0] * X[:, 1]).get_best()  # exact; and the table, which loads SymPy
    if backend not in ("cuda", "ptx"):
        return None
    import cupy

    return int(SHARE * cupy.cuda.runtime.memGetInfo()[1] / processes / BYTES)


def searched(job, task, pool, noise):
    """A row for the table."""
    arguments = argparse.Namespace(
        seconds=job.seconds, threads=THREADS, pool=pool, backend=job.backend, noise=noise, units=False
    )
    return bench_laws.measured(task, job.by, job.seed, arguments) | {"backend": job.backend}


# ── who gives the work out ──


class Group:
    """Processes of a kind, and what is left for them to do.

    Attributes
    ----------
    jobs, again : deques of Job
        In order; and those that are searched for again.
    """

    def __init__(self, name, n, jobs, arguments):
        spawn, cards = multiprocessing.get_context("spawn"), arguments.cards
        self.name, self.n, self.jobs, self.again = name, n, deque(jobs), deque()
        self.slots = [
            ProcessPoolExecutor(1, mp_context=spawn, initializer=on_card, initargs=(k % cards,)) for k in range(n)
        ]
        self.free = []  # slots that are ready for work
        self.pool, self._running_again = None, 0
        self._seconds_again, self._seeds_again = arguments.again, arguments.again_seeds

    def next(self, until):
        """The job that counts most among those that can end in time; None where there is none."""
        left = until - time.perf_counter() - PATIENCE
        may_again = self._running_again < max(1, AT_A_TIME * self.n) or not self._fitting(self.jobs, left)
        for waiting in (self.again, self.jobs) if may_again else (self.jobs,):
            if (job := self._fitting(waiting, left)) is not None:
                waiting.remove(job)
                self._running_again += waiting is self.again
                return job
        return None

    def _fitting(self, waiting, left):
        return next((job for job in waiting if job.seconds <= left), None)

    def ended(self, job, row):
        if job.seconds == self._seconds_again:
            self._running_again -= 1
        elif not row["found"] and job.by == "exprkit" and job.seed < self._seeds_again:
            self.again.append(job._replace(seconds=self._seconds_again))

    def stop(self):
        for slot in self.slots:
            for process in list((slot._processes or {}).values()):
                process.kill()
            slot.shutdown(wait=False, cancel_futures=True)


class Run:
    """All of it: groups of processes, rows of what has ended."""

    def __init__(self, arguments, tasks):
        self.tasks, self.arguments, self.rows = tasks, arguments, []
        some, every = range(0, len(tasks), arguments.peers_every), range(len(tasks))
        peers = [one for one in arguments.peers if importlib.util.find_spec(one)]
        for one in set(arguments.peers) - set(peers):
            say(f"{one} is not installed, and left out: pip install {one}")
        seconds, seeds = arguments.seconds, range(arguments.seeds)
        rest = [law for law in every if law not in some]
        on_gpu = [Job("exprkit", arguments.gpu, law, seed, seconds) for seed in seeds for law in every]
        by_peers = [Job(one, "cpu", law, 0, seconds) for law in some for one in peers]
        beside = [Job("exprkit", "cpu", law, 0, seconds) for law in (*some, *rest)]
        self.on_gpu = Group("gpu", arguments.processes, on_gpu, arguments)
        self.peers = Group("peers", max(1, arguments.cores // THREADS - 1), by_peers, arguments)
        self.beside = Group("cpu", arguments.beside, beside, arguments)
        self.groups = self.on_gpu, self.peers, self.beside
        self._sharing = -(-arguments.processes // arguments.cards)  # a card
        self._until = BEGIN + 60 * arguments.minutes
        self._file = Path(arguments.out) / "laws.csv"

    def work(self):
        """Give out work as long as any is left that can end in time."""
        first = self.on_gpu.slots[0].submit(prepared, self.arguments.gpu, self._sharing, None)
        waiting: dict[Future, tuple] = {first: (self.on_gpu, self.on_gpu.slots[0], None)}
        self.peers.free = list(self.peers.slots)
        compiled = False
        while True:
            for group in self.groups:
                while group.free and (group is not self.peers or self._cores_left(compiled, waiting)):
                    if (job := group.next(self._until)) is None:
                        break
                    slot = group.free.pop()
                    future = slot.submit(searched, job, self.tasks[job.law], group.pool, self.arguments.noise)
                    waiting[future] = group, slot, job
            left = self._until - time.perf_counter()
            if not waiting or left <= 0:
                return
            for future in wait(waiting, timeout=left, return_when=FIRST_COMPLETED).done:
                group, slot, job = waiting.pop(future)
                if job is None:
                    group.pool = future.result()
                    group.free.append(slot)
                    say(f"{group.name}: a process is ready" + (f", pools of {group.pool:,}" if group.pool else ""))
                    if not compiled:
                        compiled = True
                        waiting |= self._others()
                else:
                    if not isinstance(future.exception(), BrokenProcessPool):
                        group.free.append(slot)
                    self._note(group, job, future)

    def _others(self):
        """The processes beside the first one, which now find all of it compiled."""
        backends = {self.on_gpu: self.arguments.gpu, self.beside: "cpu"}
        return {slot.submit(prepared, backends[group], self._sharing, LOADED): (group, slot, None)
                for group in backends for slot in group.slots if slot is not self.on_gpu.slots[0]}  # fmt: skip

    def _cores_left(self, compiled, waiting):
        """Whether one more peer finds cores of its own."""
        running = sum(group is self.peers for group, _, _ in waiting.values())
        others = self.on_gpu.n + self.beside.n if compiled else 1
        return THREADS * (running + 1 + others) <= self.arguments.cores

    def _note(self, group, job, future):
        try:
            row = future.result()
        except Exception as error:  # of one search; the others go on
            say(f"{job}: {error!r}")
            return
        self.rows.append(row)
        group.ended(job, row)
        records.write_rows(self._file, self.rows)

    def report(self):
        """A line for each search of a kind, and which laws were missed."""
        kinds = dict.fromkeys((row["by"], row["backend"], row["limit"], row["seed"]) for row in self.rows)
        for kind in sorted(kinds):
            some = [row for row in self.rows if (row["by"], row["backend"], row["limit"], row["seed"]) == kind]
            say("{} {} {:g} s, seed {}:".format(*kind), _counted(some))
            missed = [row["what"] for row in some if not row["found"]]
            if kind[0] == "exprkit":
                say("   missed:", *missed)
        for by, backend in dict.fromkeys((row["by"], row["backend"]) for row in self.rows):
            some = [row for row in self.rows if (row["by"], row["backend"]) == (by, backend)]
            short = [row for row in some if row["limit"] == self.arguments.seconds]
            longer = {(row["what"], row["seed"]): row for row in some if row["limit"] != self.arguments.seconds}
            if short:
                say(f"{by} {backend}, {self.arguments.seconds:g} s, all seeds:", _counted(short))
            if longer:
                first = [longer.get((row["what"], row["seed"]), row) for row in short
                         if row["seed"] < self.arguments.again_seeds]  # fmt: skip
                say(f"{by} {backend}, {self.arguments.again:g} s, seeds 0 to {self.arguments.again_seeds - 1}:",
                    _counted(first))  # fmt: skip
        for group in self.groups:
            if left := len(group.jobs) + len(group.again):
                say(f"{group.name}: {left} searches were left when the time was over")


def _counted(rows):
    found, seconds = sum(row["found"] for row in rows), [row["seconds"] for row in rows]
    return (f"{found} of {len(rows)} found, {100 * found / len(rows):.1f} %; median {np.median(seconds):.2f} s, "
            f"mean {np.mean(seconds):.2f} s")  # fmt: skip


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=to_record, default=".", help="a folder; laws.csv there is written anew")
    parser.add_argument("--minutes", type=float, default=4.6)
    parser.add_argument("--seconds", type=float, default=10.0, help="of a search")
    parser.add_argument("--again", type=float, default=60.0, help="of what was missed in the first seeds")
    parser.add_argument("--again-seeds", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=5, help="that share the cards")
    parser.add_argument("--cards", type=int, default=1)
    parser.add_argument("--beside", type=int, default=2, help="processes that search on the processor")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--peers", nargs="*", default=["pyoperon", "gplearn"])
    parser.add_argument("--peers-every", type=int, default=4, help="every so many-th law, for peers")
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--every", type=int, default=1, help="only every so many-th law")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--laws", default=str(bench_laws.ROOT / "data" / "laws.csv"))
    parser.add_argument("--gpu", default="cuda", help="the backend of the processes that share the card")
    parser.set_defaults(sets=["laws"])
    return parser.parse_args()


def main():
    arguments = options()
    Path(arguments.out).mkdir(parents=True, exist_ok=True)
    (Path(arguments.out) / "laws.csv").unlink(missing_ok=True)
    run = Run(arguments, list(bench_laws.tasks(arguments)))
    say(f"{len(run.tasks)} laws; {arguments.processes} processes share the GPU ({arguments.gpu}), {arguments.beside} "
        f"search on the processor, {THREADS} threads each, {arguments.cores} cores")  # fmt: skip
    try:
        run.work()
    finally:
        run.report()
        for group in run.groups:
            group.stop()


if __name__ == "__main__":
    main()
