"""Two workers of one thread beside one worker of two: ``PYTHONPATH=. python tests/bench_devices.py``.

Losses of 10,000 of the thesis's expressions at 10,860 points with 10 parameter sets, on the CPU, in turns: seconds a
call, and whether all give the same bits.  Needs dask.distributed.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np

import exprkit as ek

LINES = (Path(__file__).resolve().parent.parent / "data" / "esr_sample.txt").read_text().split("\n")[:-1]
ROUNDS = 12  # the first one counts as warm-up


def main():
    from dask.distributed import Client, LocalCluster

    pop = ek.parse((LINES * 41)[:10_000])
    random = np.random.default_rng(0)
    X = random.uniform(0.5, 3, (10_860, 2)).astype("float32")
    params = random.uniform(0.5, 2, (10, len(pop), pop.max_params)).astype("float32")
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as apart, Client(apart) as two,
        LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0") as together, Client(together) as one,
    ):  # fmt: skip
        how = {
            "two workers of one thread": {"client": two, "threads": 1},
            "one worker of two threads": {"client": one, "threads": 2},
            "two devices of this process": {"devices": 2},
            "without workers, two threads": {"threads": 2},
        }
        evs = {name: ek.Evaluator(pop, X, "cpu", precision="fast", **options) for name, options in how.items()}
        seconds, bits = {name: [] for name in evs}, {}
        for _ in range(ROUNDS):
            for name, ev in evs.items():
                begin = time.perf_counter()
                bits[name] = np.asarray(ev.loss(params, X[:, 0])).tobytes()
                seconds[name].append(time.perf_counter() - begin)
    for name, taken in seconds.items():
        print(f"{name:30} median {statistics.median(taken[1:]):.3f} s, least {min(taken[1:]):.3f} s")
    print("same bits:", len(set(bits.values())) == 1)


if __name__ == "__main__":
    main()
