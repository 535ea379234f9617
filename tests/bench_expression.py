"""One expression on every backend that can run here: from its text to code, and a million points.

    PYTHONPATH=. python tests/bench_expression.py --csv CSV

A row a backend: medians of 20 samples, each of which reads, lowers and compiles the expression anew and evaluates it
100 times with new parameters.  ``step_s`` of those is on the host's clock, ``device_s`` on the GPU's alone; the values
stay on the device.  ``registers`` of a thread, and ``local_bytes``, its local memory beside them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from timing import listed, to_record

import exprkit as ek

TEXT = "p1 + p2 / x2"  # as README.md shows it
TIMES = ["parse_s", "lower_s", "emit_s", "compile_s", "step_s", "device_s"]


def measured(n_points: int) -> Iterator[dict[str, object]]:
    points = ek.data.rough_pipe().repeat_to(n_points)
    names = [name for name, status in ek.backends().items() if status.available and name != "numpy"]
    samples = ek.bench.measure([TEXT], points, names, precision="fast", n_samples=20, results="last", n_steps=100)
    columns = [*TIMES, "threads", "registers", "local_bytes"]
    for name, row in samples[~samples["cold"]].groupby("backend", sort=False)[columns].median().iterrows():
        yield {"expression": TEXT, "n_points": n_points, "backend": name, **row.to_dict()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=to_record, help="write the table to this file")
    listed(measured(1_000_000), parser.parse_args().csv)


if __name__ == "__main__":
    main()
