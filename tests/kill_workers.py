"""Random workers killed during a search: ``PYTHONPATH=. python tests/kill_workers.py --out data/results``.

Two worker processes, one of which is killed every few seconds, while exhaustive searches run one after the other until
``--kills`` are done.  Writes ``kills.md``: whether every table is that of a search without workers, bit by bit.
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
    found = ek.exhaustive_search(x[:, None], y, max_nodes=max_nodes, progress=False, **where)
    arrays = [found.params, found.errors, *found.columns.values()]
    return found, [np.ascontiguousarray(array).tobytes() for array in arrays]


def kill(client, kills, every, times, over):
    """Look every so many seconds and kill a random worker, so often or until it is over.

    Only while both have been there for a while: a nanny starts no other worker where one dies before it is ready.
    """
    random, known = np.random.default_rng(0), set()
    while len(times) < kills and not over.wait(every):
        pids = set(client.run(os.getpid, on_error="ignore").values())
        if len(pids) == 2 and pids == known:
            os.kill(int(random.choice(sorted(pids))), signal.SIGKILL)
            times.append(time.monotonic())
        if len(pids) < 2 and len(known) < 2:  # its nanny has given up
            client.cluster.scale(len(client.cluster.worker_spec) + 1)
        known = pids


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--every", type=float, default=3.0)
    parser.add_argument("--max-nodes", type=int, default=7)
    args = parser.parse_args()
    expected, bits = search(args.max_nodes)
    times, over, same = [], threading.Event(), []
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=60) as cluster:
        client = Client(cluster, set_as_default=False)
        killer = threading.Thread(target=kill, args=(client, args.kills, args.every, times, over))
        killer.start()
        begin = time.monotonic()
        while len(times) < args.kills:
            same.append(search(args.max_nodes, client=client)[1] == bits)
            print(f"{time.monotonic() - begin:.0f} s, {len(times)} kills, tables the same: {same}", flush=True)
        seconds = time.monotonic() - begin
        over.set()
        killer.join()
        client.close()
    text = f"""# Killed workers

`PYTHONPATH=. python tests/kill_workers.py --out data/results`: two worker processes of one thread, {len(times)} kills
(SIGKILL) of a random one, {seconds / len(times):.1f} s apart on average, during {len(same)} exhaustive searches of
{expected.n_functions:,} functions, {seconds:.0f} s together. Tables that are those of a search without workers, bit by
bit: {sum(same)} of {len(same)}.
"""
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "kills.md").write_text(text, encoding="utf-8")
    print(text)
    if not all(same):
        raise SystemExit("results differ")


if __name__ == "__main__":
    main()
