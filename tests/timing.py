"""What the scripts of measurements share: times by the device's clock, and a table of what was found.

``gpu_speed.py``, ``gpu_ptx_speed.py`` and ``gpu_fit_speed.py`` report and write with it, and so do
``bench_peers.py`` and ``bench_fit_peers.py``, which time calls on the host.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from exprkit.errors import ArgumentError
from exprkit.study import records

BUSY_BYTES, BUSY_COPIES = 1 << 28, 3  # copied before each call, about 0.3 ms of an H200


def to_record(path: str) -> Path:
    """The path of what is to be recorded, of a command line; refused at once while nothing may be."""
    try:
        records.refuse_changes()
    except ArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return Path(path)


class Table:
    """Lines ``what, value, unit, target, least, note``, printed as they come."""

    def __init__(self, width: int = 66) -> None:
        self.rows: list[dict[str, object]] = []
        self.width = width

    def report(
        self, name: str, value: float, unit: str, target: str = "", note: str = "", floor: float | None = None
    ) -> None:
        """A measurement; ``floor`` is the least that is possible."""
        least = "" if floor is None else f"{floor:.4g}"
        self.rows.append({"what": name, "value": f"{value:.5g}", "unit": unit, "target": target, "least": least,
                          "note": note})  # fmt: skip
        print(f"{name:{self.width}} {value:12.5g} {unit:12} {target:>10} {least:>8} {note}", flush=True)

    def write(self, path: Path) -> None:
        """All lines as CSV."""
        records.write_rows(path, self.rows)


@functools.cache
def _busy() -> Any:
    import cupy

    return cupy.zeros((2, BUSY_BYTES), "u1")


def microseconds(call: Callable[[], object], repeats: int = 20) -> float:
    """Median time of one call on the device, by events; the device is kept busy until everything is queued."""
    import cupy

    busy = _busy()
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        for _ in range(BUSY_COPIES):
            cupy.copyto(busy[0], busy[1])
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, stop) * 1e3)
    return statistics.median(times)


def listed(rows: Iterable[dict[str, object]], path: Path | None, width: int = 12) -> None:
    """Print rows as they come, the names of the first above; then write them as CSV, if there is a path."""
    found = []
    for row in rows:
        if not found:
            print("  ".join(f"{name:>{width}}" for name in row))
        cells = (f"{value:{width}.4g}" if isinstance(value, float) else f"{value:>{width}}" for value in row.values())
        print("  ".join(cells), flush=True)
        found.append(row)
    if path:
        records.write_rows(path, found)


def seconds_of(call: Callable[[], object], repeats: int = 1) -> float:
    """Seconds of one of so many calls in a row, on the host's clock."""
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats
