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
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from exprkit.data import Dataset
from exprkit.distributed.collect import collect
from exprkit.distributed.workers import Workers
from exprkit.errors import brought_by
from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.population import Population
from exprkit.study import records
from exprkit.study.plots import Drawing

with brought_by("notebooks"):
    import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTS = 4  # slices a device
TRIALS, SENT = 200, 32 << 20  # tasks and bytes that a cluster's costs are measured with
COSTS_FILE = "cluster_costs.csv"  # rows of measured costs
DEVICES = (1, 2, 4, 8, 64, 1000)


class ClusterWork(NamedTuple):
    """What is to be done."""

    seconds: float  # on one device
    sent: float  # bytes, to all workers together
    back: float


class ClusterCosts(NamedTuple):
    """What a cluster costs; where it was not measured, a link of 10 Gbit/s and dask's 200 us to 1 ms a task."""

    link: float = 1.1e9  # bytes a second
    latency: float = 0.01  # seconds from a call to its first task, and from its last result to the caller
    task: float = 1e-3  # seconds of the scheduler for a slice
    spread: float = 0.1  # standard deviation of a slice's time, as a share


def measured_costs(client: Any) -> ClusterCosts:
    """What the workers of a dask client cost: the least of a few, through the same hands as any work.

    The link is what a task's argument goes by, to the scheduler and from there to a worker, and with workers of the
    same host no network.
    """
    workers = Workers((), client)

    def seconds(n: int, *task: Any) -> float:
        begin = time.perf_counter()
        collect(workers, "trial", [(k, k + 1) for k in range(n)], lambda cut, place: task)
        return time.perf_counter() - begin

    seconds(8, _nothing)
    latency = min(seconds(1, _nothing) for _ in range(5))
    many = min(seconds(TRIALS, _nothing) for _ in range(3))
    sent = np.random.default_rng(0).random(SENT // 8)
    link = SENT / max(min(seconds(1, _nothing, sent) for _ in range(3)) - latency, 1e-9)
    tasks = collect(workers, "trial", [(k, k + 1) for k in range(64)], lambda cut, place: (_worked,))
    taken = [spent for _, spent in tasks]
    return ClusterCosts(link, latency, (many - latency) / TRIALS, float(np.std(taken) / np.mean(taken)))


def recorded_costs(folder: str | None = None) -> ClusterCosts:
    """The medians of what was measured of clusters (``measured_costs``) and recorded in a folder; by default what is
    published.

    >>> 0 < recorded_costs().task < 0.1
    True
    """
    table = pd.read_csv((records.recorded() if folder is None else Path(folder)) / COSTS_FILE)
    return ClusterCosts(*(float(table[name].median()) for name in ClusterCosts._fields))


def _nothing(*_: Any) -> None:
    """A task that costs what every task costs."""


def _worked() -> float:
    """Seconds of what always is the same work."""
    begin = time.perf_counter()
    for _ in range(40):
        np.sort(np.arange(100_000) * 7919 % 104_729)
    return time.perf_counter() - begin


def predicted(work: ClusterWork, devices: Sequence[int] = DEVICES, costs: ClusterCosts | None = None) -> pd.DataFrame:
    """Seconds and what limits them, a row for each number of devices."""
    costs = costs or ClusterCosts()
    rows = []
    for n in devices:
        limits = {
            "link": (work.sent + work.back) / costs.link,
            "scheduler": PARTS * n * costs.task,
            "work": _last(work.seconds, n, costs.spread),
        }
        seconds = costs.latency + max(limits.values())
        rows.append({"devices": n, "seconds": seconds, "limit": max(limits, key=lambda name: limits[name]), **limits})
    alone = costs.latency + max(work.seconds, (work.sent + work.back) / costs.link)
    return pd.DataFrame(rows).assign(speedup=lambda table: alone / table.seconds)


def _last(seconds: float, n: int, spread: float) -> float:
    """When the last of n devices is done, each of which takes the next slice when it is free."""
    drawn = np.random.default_rng(0).lognormal(0.0, spread, PARTS * n)
    slices = (seconds / drawn.sum() * drawn).tolist()
    free = [0.0] * n
    for own in slices:
        heapq.heapreplace(free, free[0] + own)
    return max(free)


def measured(pop: Population, data: Dataset, devices: Sequence[int], repeats: int = 3) -> pd.DataFrame:
    """Seconds of the losses of a population, the least of some, a row for each number of this host's devices."""
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


def works(here: pd.DataFrame, pop: Population) -> dict[str, ClusterWork]:
    """What was measured here on one device, and two larger works: an hour, of little and of much data."""
    by_name = {"an hour of fits": ClusterWork(3600.0, 1e8, 1e8)}
    by_name["an hour of fits, 1 TB of results"] = ClusterWork(3600.0, 1e8, 1e12)
    first = here[here.devices == 1]
    if len(first):
        sent = float(pop.kinds.nbytes + pop.values.nbytes)
        by_name["losses, here"] = ClusterWork(float(first.seconds.iloc[0]), sent, 8.0 * len(pop))
    return by_name


def drawing(here: pd.DataFrame, pop: Population, costs: ClusterCosts | None = None) -> Drawing:
    """Speed-up over devices beside the ideal, and what limits 1,000 of them in the caption."""
    tables = {what: predicted(work, costs=costs) for what, work in works(here, pop).items()}
    ends = {what: table.iloc[-1] for what, table in tables.items()}
    last = [f"{what}: {end.speedup:,.3g} times (limit: {end.limit})" for what, end in ends.items()]
    caption = f"What a model of costs says of {DEVICES[-1]:,} devices. {'; '.join(last)}."
    return Drawing("devices", figure(tables, here), caption)


def figure(model: dict[str, pd.DataFrame], measured: pd.DataFrame | None = None) -> Figure:
    """Speed-up over devices beside the ideal: the model's lines, and points (devices, speedup, what) measured."""
    with brought_by("notebooks"):
        from matplotlib.figure import Figure

    drawn = Figure(figsize=(7, 4.5), layout="constrained")
    ax = drawn.subplots()
    most = max(table.devices.max() for table in model.values())
    ax.loglog([1, most], [1, most], color="0.6", linestyle="--", label="ideal")
    for what, table in model.items():
        ax.plot(table.devices, table.speedup, label=f"model: {what}")
    for what, rows in [] if measured is None else measured.groupby("what"):
        ax.plot(rows.devices, rows.speedup, "o", label=f"measured: {what}")
    ax.set(xlabel="devices", ylabel="times as quick as one")
    ax.legend(fontsize="small")
    return drawn
