"""A cost model of many devices, compared with measurements on one, two and four.

In: the seconds of a work on one device, the bytes that it sends and gets back.  Out: seconds by the number of devices.

    >>> from exprkit.study.devices import ClusterWork, predicted
    >>> table = predicted(ClusterWork(seconds=10.0, sent=1e6, back=1e6), [1, 2, 1000])
    >>> table.speedup.round(1).tolist()[:2], bool(table.speedup.iloc[-1] < 1000)
    ([1.0, 2.0], True)

The client's link carries what is sent and what comes back, whatever the number of devices.  The work is cut into
``PARTS`` slices a device, whose times scatter by ``ClusterCosts.spread``; who is done takes the next one, and each
costs the scheduler ``ClusterCosts.task``.  A call lasts as long as the longest of the three.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from exprkit.data import Dataset
from exprkit.errors import brought_by
from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.population import Population
from exprkit.study import records
from exprkit.study.plots import Drawing

with brought_by("notebooks"):
    import matplotlib.pyplot as plt
    import pandas as pd

PARTS = 4  # slices a device
COSTS_FILE = "cluster_costs.csv"  # rows of measured costs
DEVICES = (1, 2, 4, 8, 64, 1000)


class ClusterWork(NamedTuple):
    """A work: its seconds on one device, and the bytes to and from all workers together."""

    seconds: float
    sent: float
    back: float


class ClusterCosts(NamedTuple):
    """Costs of a cluster."""

    link: float  # bytes a second
    latency: float  # seconds from a call to its first task, and from its last result to the caller
    task: float  # seconds of the scheduler for a slice
    spread: float  # standard deviation of a slice's time, as a share


def recorded_costs() -> ClusterCosts:
    """The medians of the published costs of clusters, which ``tests/gpu_devices.py`` measures.

    >>> 0 < recorded_costs().task < 0.1
    True
    """
    table = pd.read_csv(records.published_folder() / COSTS_FILE)
    return ClusterCosts(*(float(table[name].median()) for name in ClusterCosts._fields))


def predicted(work: ClusterWork, devices: Sequence[int] = DEVICES, costs: ClusterCosts | None = None) -> pd.DataFrame:
    """Seconds, what limits them and the speed-up, a row for each number of devices; by default with recorded costs."""
    costs = costs or recorded_costs()
    link = (work.sent + work.back) / costs.link
    last = [_last(work.seconds, n, costs.spread) for n in devices]
    limits = pd.DataFrame({"link": link, "scheduler": PARTS * np.array(devices) * costs.task, "work": last})
    seconds = costs.latency + limits.max(axis=1)
    speedup = (costs.latency + max(work.seconds, link)) / seconds
    columns = {"devices": devices, "seconds": seconds, "limit": limits.idxmax(axis=1), "speedup": speedup}
    return limits.assign(**columns)


def _last(seconds: float, n: int, spread: float) -> float:
    """When the last of n devices is done, each of which takes the next slice when it is free."""
    drawn = np.random.default_rng(0).lognormal(0.0, spread, PARTS * n)
    slices = (seconds / drawn.sum() * drawn).tolist()
    free = [0.0] * n
    for own in slices:
        heapq.heapreplace(free, free[0] + own)
    return max(free)


def measured(pop: Population, data: Dataset, devices: Sequence[int], repeats: int = 3) -> pd.DataFrame:
    """Seconds of the losses of a population, the least of ``repeats``, by the number of this host's devices."""
    rows: list[dict[str, float]] = []
    for n in devices:
        step = Evaluator(pop, data.X, devices=n).loss_of(data.y)
        times = []
        for _ in range(repeats + 1):
            begin = time.perf_counter()
            step(None)
            times.append(time.perf_counter() - begin)
        rows.append({"devices": n, "seconds": min(times[1:])})
    table = pd.DataFrame(rows, columns=["devices", "seconds"])
    return table.assign(speedup=table.seconds.iloc[:1].sum() / table.seconds, what="losses, here")


def drawing(here: pd.DataFrame, pop: Population) -> Drawing:
    """Speed-up over devices: the ideal, what was ``measured`` here, and the model, whose limits the caption names.

    The model is of that work and of two larger ones: an hour, of little and of much data.
    """
    works = {"an hour of fits": ClusterWork(3600.0, 1e8, 1e8)}
    works["an hour of fits, 1 TB of results"] = ClusterWork(3600.0, 1e8, 1e12)
    for row in here[here.devices == 1].itertuples():
        works[row.what] = ClusterWork(row.seconds, float(pop.kinds.nbytes + pop.values.nbytes), 8.0 * len(pop))
    figure, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
    axis.loglog([1, DEVICES[-1]], [1, DEVICES[-1]], color="0.6", linestyle="--", label="ideal")
    ends = []
    for what, table in ((what, predicted(work)) for what, work in works.items()):
        axis.plot(table.devices, table.speedup, label=f"model: {what}")
        end = table.iloc[-1]
        ends.append(f"{what}: {end.speedup:,.3g} times (limit: {end.limit})")
    for what, rows in here.groupby("what"):
        axis.plot(rows.devices, rows.speedup, "o", label=f"measured: {what}")
    axis.set(xlabel="devices", ylabel="times as quick as one")
    axis.legend(fontsize="small")
    plt.close(figure)  # a notebook shows what a cell returns
    return Drawing("devices", figure, f"What a model of costs says of {DEVICES[-1]:,} devices. {'; '.join(ends)}.")
