"""Random workers killed during a search: ``PYTHONPATH=. python tests/kill_workers.py --out data/results``.

Two worker processes, a random one of which is killed every few seconds during one exhaustive search until ``--kills``
are done, whether the other one is there or still starts.  Writes ``kills.md``: how many there were, and whether the
table is that of a search without workers, bit by bit.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
from distributed import Client, LocalCluster

import exprkit as ek


def search(max_nodes, **where):
    x = np.linspace(0.5, 3, 100)
    y = 2 / (x + 0.7) + 0.01 * np.random.default_rng(0).standard_normal(100)
    begin = time.monotonic()
    found = ek.exhaustive_search(x[:, None], y, max_nodes=max_nodes, progress=False, **where)
    arrays = [found.params, found.errors, *found.columns.values()]
    bits = [np.ascontiguousarray(array).tobytes() for array in arrays]
    return found, bits, time.monotonic() - begin


def kill(scheduler, kills, every, seed, alive, over):
    """Every so many seconds kill a random one of those that are there; writes down how many were."""
    random = np.random.default_rng(seed)
    while len(alive) < kills and not over.wait(every):
        if pids := sorted(worker.pid for worker in scheduler.workers.values()):
            os.kill(int(random.choice(pids)), signal.SIGKILL)
            alive.append(len(pids))
            print(f"kill {len(alive)}, {len(pids) - 1} left", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--every", type=float, default=6.0)
    parser.add_argument("--max-nodes", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    expected, bits, alone = search(args.max_nodes)
    alive, over = [], threading.Event()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=60) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        how = cluster.scheduler, args.kills, args.every, args.seed, alive, over
        killer = threading.Thread(target=kill, args=how)
        killer.start()
        try:
            found, others, seconds = search(args.max_nodes, client=client)
        finally:
            over.set()
            killer.join()
    same = found.texts() == expected.texts() and others == bits
    text = f"""# Killed workers

One exhaustive search of {expected.n_functions:,} functions with two worker processes of one thread each;
every {args.every:g} s a random one of them is killed (SIGKILL). Command:
`PYTHONPATH=. python tests/kill_workers.py --out data/results`.

| | |
|---|---|
| kills | {len(alive)} |
| of them when only one worker was running | {alive.count(1)} |
| seconds of the search with kills | {seconds:.0f} |
| seconds of the search without workers, two threads | {alone:.0f} |
| result table equal to that without workers, bit by bit | {"yes" if same else "no"} |
"""
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "kills.md").write_text(text, encoding="utf-8")
    print(text)
    if not same:
        raise SystemExit("results differ")


if __name__ == "__main__":
    main()
