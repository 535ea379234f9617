"""Parts of the study on a GPU measured anew, in place of what was measured of them before.

    python tests/gpu_study.py --out OUT --parts losses half --minutes 1.6
    python tests/gpu_study.py --out OUT --parts short nikuradse --nikuradse data/nikuradse_1.csv

===========  ====================================================================================
losses       everything that sums errors by ``cuda``
half         benchmarks 3 and 1 with every step's matrix in 16 bits
short        the benchmarks by ``cuda`` and by ``ptx`` from the cache: 50 samples, or what 9 seconds hold
host         the same by the GPU's host's CPU
esr          the benchmarks with the thesis's 247 expressions repeated
nikuradse    benchmarks 2 and 3 by ``cuda`` on Nikuradse's own data (``--nikuradse FILE``, or downloaded)
===========  ====================================================================================

``OUT/h200.parquet`` and ``.json`` are the published ones with the new samples.  Short runs come first, none is started
after ``--minutes``, compiling included, and what was measured until then is written.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from exprkit.study import bench, records, sweep

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "notebooks" / "benchmark.ipynb"
BEGIN = perf_counter()
Run = dict[str, Any]


def is_benchmark(run: Run, *backends: str) -> bool:
    """Whether it is one of the thesis's benchmarks with expressions that are all different."""
    return run["study"] == "benchmarks" and "expressions" not in run and run["backends"][0] in backends


PARTS: dict[str, Callable[[Run], bool]] = {
    "losses": lambda run: run["backends"] == ["cuda"] and run.get("results") == "loss" and run["study"] != "memory",
    "half": lambda run: run.get("results") == "half",
    "short": lambda run: is_benchmark(run, "cuda", "ptx") and run.get("code") != "anew",
    "host": lambda run: is_benchmark(run, "cpu"),
    "esr": lambda run: run["study"] == "benchmarks" and run.get("expressions") == "esr",
}


def runs_of(parts: list[str]) -> list[Run]:
    """The runs of the published study that are in one of the parts."""
    study = sweep.configurations(ROOT / "data" / "studies" / "h200.yaml")
    return [run for run in study if any(PARTS[part](run) for part in parts)]


def nikuradse_runs(path: str) -> list[Run]:
    """Those of the study on Nikuradse's data that are by ``cuda``, shorter; the data are in a file."""
    study = sweep.configurations(ROOT / "data" / "studies" / "nikuradse.yaml")
    names = {"nikuradse": path}
    return [run | {"seconds": 5.0, "dataset": names.get(run["dataset"], run["dataset"])}
            for run in study if run["backends"] == ["cuda"]]  # fmt: skip


def measured(parts: str, runs: list[Run], out: Path, target: Path, minutes: float | None = None) -> None:
    """Measure the runs, and put their samples where older ones of theirs stood."""
    if not runs:
        return
    begin, runs = perf_counter(), sorted(runs, key=lambda run: run.get("seconds", 60.0))
    bench.compile_ahead(bench.DEFAULTS | run for run in runs if not sweep.unavailable(run))
    print(f"{target.name}: {len(runs)} runs, kernels compiled in {perf_counter() - begin:.0f} s", flush=True)
    left = None if minutes is None else minutes - (perf_counter() - BEGIN) / 60
    study = {"points": runs}
    outcomes = sweep.sweep(NOTEBOOK, study, out=out, plain=bench.run_and_save, minutes=left, progress=True)
    print(sweep.summary(outcomes))
    folders = [one.folder for one in outcomes if one.state == "done"]
    made_by = f"python tests/gpu_study.py --out OUT --parts {parts}"
    records.collect(folders, target, made_by, replace=bench.CONFIGURATION)
    samples = records.read(target.parent)
    new = samples[samples["run"].isin([folder.name for folder in folders]) & samples["file"].eq(target.stem)]
    shown = ["bench", "backend", "code", "results", "n_exprs", "n_points", "samples", "median_s", "step_s", "device_s",
             "device_cold_s"]  # fmt: skip
    print(bench.medians(new)[shown].to_string(float_format="{:.3g}".format))
    print(f"{perf_counter() - begin:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parts", nargs="+", choices=[*PARTS, "nikuradse"], default=["losses"])
    parser.add_argument("--minutes", type=float, help="no run is started after so long")
    parser.add_argument("--nikuradse", default="nikuradse", help="a CSV file of the data: r_k, log_Re, target")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for path in (ROOT / "data" / "results").glob("h200.*"):
        shutil.copy(path, options.out)
    runs = runs_of([part for part in options.parts if part in PARTS])
    if "nikuradse" in options.parts:
        runs += nikuradse_runs(options.nikuradse)
    measured(" ".join(options.parts), runs, options.out / "runs", options.out / "h200.parquet", options.minutes)


if __name__ == "__main__":
    main()
