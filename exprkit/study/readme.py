"""Generated tables of the README.md pages: operators from ``ops``, results and peers from ``data/results``.

In: a page and a folder of results.  Out: the page with fresh tables between its marks (``make readme``); a
test compares what stands there with what would be put.

    >>> from exprkit.study import readme
    >>> readme.operators().splitlines()[0]
    '| written | means | largest error, float32 / float64 | with `precision="fast"` |'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from exprkit.errors import brought_by
from exprkit.operators import ops
from exprkit.study import bench, conclusions, measured, plots, records, workload
from exprkit.study.plots import gigabytes, known, table, written

with brought_by("notebooks"):
    import pandas as pd

PAGES = "README.md", "data/results/README.md", "exprkit/operators/README.md"
MARKS = "<!-- {}: made by `make readme` -->", "<!-- end of {} -->"


def refreshed(text: str, results_folder: str | Path) -> str:
    """A page's text with fresh tables between its marks."""
    for name, make in SECTIONS.items():
        begin, end = (mark.format(name) for mark in MARKS)
        before, separator, rest = text.partition(begin)
        if separator:
            text = f"{before}{begin}\n{make(Path(results_folder))}\n{end}{rest.partition(end)[2]}"
    return text


def _read(path: Path, **kinds: Any) -> pd.DataFrame | None:
    """A file of measurements, if there is one."""
    return pd.read_csv(path, **kinds) if path.exists() else None


# ── operators ────────────────────────────────────────────────────────────────────────


def operators(folder: str | Path = "") -> str:
    """A row per operator; errors in units of the last place."""
    head = ("written", "means", "largest error, float32 / float64", 'with `precision="fast"`')
    rows = [(_forms(row), row.meaning.replace("|", r"\|"), _pair(row.ulp), _pair(row.fast_ulp))
            for row in ops.OPERATORS]  # fmt: skip
    two = ", ".join(f"`{name}(a)` as `{outer}({inner}(a))`" for name, (inner, outer) in ops.COMPOSED.items())
    return f"{table(head, rows)}\n\nRead as two operators: {two}."


def _forms(row: ops.Operator) -> str:
    """All ways to write an operator."""
    operands = ", ".join(("a", "b")[: row.arity])
    symbols = [symbol for symbol in (row.infix, *row.aliases) if symbol and not symbol.isidentifier()]
    infix = [f"{symbol}a" if row.arity == 1 else f"a {symbol} b" for symbol in symbols]
    calls = [f"{name}({operands})" for name in (row.name, *row.aliases) if name.isidentifier()]
    return ", ".join(f"`{form}`" for form in (*infix, *calls))


def _pair(errors: tuple[float, float] | None) -> str:
    return " / ".join(f"{error:g}" for error in errors or ())


# ── results ──────────────────────────────────────────────────────────────────────────


NOT_MEASURED = "None of the thesis's benchmarks is measured yet: `make study`."


# Seconds for 10,000 trees on an H200 by points, of a run that is not repeated here; its trees live on the GPU
EVOGP = {362: 0.15e-3, 10_860: 2.1e-3}


def headline(folder: Path) -> str:
    """The thesis's benchmarks by what comes back, and who wins them; then the few other numbers that matter most."""
    parts = _protocols(_samples(folder)), conclusions.verdicts(measured.read_results(folder)), _beside_others(folder)
    return "\n\n".join(filter(None, parts))


def _protocols(medians: pd.DataFrame) -> str:
    """A line for each benchmark and protocol: the thesis, the CPU of every machine, the GPU; the least in bold."""
    if medians.empty:
        return NOT_MEASURED
    alone = medians["scaled_from"].isna() & medians["dispatch"].eq("") & medians["dtype"].eq("float32")
    new = medians["source"].eq("all different") & medians["code"].ne("kept")  # as a search's expressions are
    medians = medians[alone & new & medians["precision"].eq("fast")]
    cpus, gpus = (medians[medians["backend"].isin(names)] for names in ({"cpu"}, measured.ON_GPU))
    most = cpus.loc[cpus.groupby("file")["threads"].idxmax()].sort_values("threads")
    beside = {one.file: f"`cpu`, {plots.short(one.device)}" + ", the GPU's host" * (one.file in set(gpus["file"]))
              for one in most.itertuples()}  # fmt: skip
    devices = [plots.short(device) for device in dict.fromkeys(gpus["device"])]
    lines = []
    for (number, name), rows in medians.groupby(["benchmark", "results"], sort=False):
        theirs = map(written, rows[["thesis_cpu", "thesis_gpu"]].iloc[0]) if name == "every" else ("", "")
        own = rows[rows["device"].isin(most["device"])]
        cells = {beside[one.file]: (one.median_s, "") for one in own.itertuples() if one.backend == "cpu"}
        on_gpu = rows[rows["backend"].isin(measured.ON_GPU)].sort_values("median_s", ascending=False)
        cells |= {plots.short(one.device): (one.median_s, f" `{one.backend}`") for one in on_gpu.itertuples()}
        all_told = len(cells) == len(beside) + len(devices)
        least = min(seconds for seconds, _ in cells.values()) if all_told else None
        said = {column: f"{'**' * (value == least)}{written(value)}{'**' * (value == least)}{behind}"
                for column, (value, behind) in cells.items()}  # fmt: skip
        size = "{:,} x {:,}".format(*rows[["n_exprs", "n_points"]].iloc[0])
        columns = [*beside.values(), *devices]
        lines.append((f"{number}: {size}", plots.PROTOCOLS[name], *theirs, *(said.get(one, "") for one in columns)))
    head = ("benchmark", "copied to the host", "the thesis, CPU", "the thesis, best GPU", *beside.values(), *devices)
    return table(head, lines)


def _beside_others(folder: Path) -> str:
    """Beside peers: values and losses on a CPU, new populations on a GPU, fits."""
    lines = []
    if (rows := _read(folder / "peers.csv")) is not None:
        seconds = rows.set_index(["workload", "n_points", "threads", "method"])["seconds"]
        for points, threads, peer in ((362, 1, "pyoperon"), (10_860, 1, "pyoperon"), (10_860, 2, "jax")):
            own, its = (seconds.get(("thesis", points, threads, method)) for method in ("ieee matrix", peer))
            if own and its:
                what = f"9,880 expressions x {points:,}, every result, CPU, {threads} thread{'s' * (threads > 1)}"
                lines.append((what, f"**{written(own)}**", f"{peer}: {written(its)} ({its / own:.1f}x)"))
    if (rows := _read(folder / "h200_generations.csv")) is not None:
        milliseconds = rows.set_index("what")["value"]
        for points, its in EVOGP.items():
            own = milliseconds[f"thesis, 10,000 x {points:,}: tokens on the device -> losses there"] * 1e-3
            what = f"a new population of 10,000 x {points:,}, from tokens on the GPU to losses"
            lines.append((what, f"**{written(own)}** `cuda`, NVIDIA H200", f"EvoGP, in a separate run: {written(its)}"))
    if (rows := _read(folder / "fit_peers.csv")) is not None:
        fits = rows.query("n_points == 362").set_index("method")
        (own, reached), (its, its_reached) = (
            (written(fit["us_per_fit"] * 1e-6), f"{fit['reached'] / fit['expressions']:.0%}")
            for fit in (fits.loc["exprkit"], fits.loc["pyoperon"])
        )
        what = "one fit to 362 points from a random start, one CPU thread"
        lines.append((what, f"**{own}**, reaches the best known loss in {reached}", f"pyoperon: {its}, {its_reached}"))
    return table(("what", "exprkit", "compared with"), lines) if lines else ""


def _samples(folder: Path) -> pd.DataFrame:
    """Medians of the thesis's benchmarks by configuration, its protocol first, then the fastest, and the thesis's."""
    recorded = measured.read_results(folder)
    rows = measured.benchmarks(recorded)
    if rows.empty:
        return rows
    rows = rows.assign(scaled_from=rows["scaled_from"] if "scaled_from" in rows else float("nan"))
    medians = pd.concat([bench.medians(some).assign(scaled_from=steps)
                         for steps, some in rows.groupby("scaled_from", dropna=False)], ignore_index=True)  # fmt: skip
    medians["benchmark"] = plots.benchmark_of(medians)
    medians["source"] = medians["source"].map(workload.SOURCES)
    theirs = measured.thesis_medians(recorded)
    cpu, gpu = theirs["cpu_interpreter"], theirs.drop(columns="cpu_interpreter").min(axis=1)
    medians = medians.assign(thesis_cpu=medians["benchmark"].map(cpu), thesis_gpu=medians["benchmark"].map(gpu))
    medians = medians.assign(order=plots.places(medians["results"]))
    return medians.sort_values(["benchmark", "order", "source", "median_s"])


def results(folder: str | Path) -> str:
    """Median seconds of a sample for each of the thesis's benchmarks, and the machines they are from."""
    medians = _samples(Path(folder))
    if medians.empty:
        return NOT_MEASURED
    machines = "\n".join(dict.fromkeys(_machines(Path(folder))))
    return f"{plots.table_of(medians, RESULT)}\n\n{machines}"


def _way(row: Any) -> str:
    """What was measured of exprkit."""
    scaled = "" if pd.isna(row.scaled_from) else f"({row.scaled_from:.0f} steps, scaled)"
    way = " ".join(filter(None, (f"`{row.backend}`", row.dispatch, scaled, plots.CODE.get(row.code))))
    return f"{way}, {row.precision}, {row.dtype}"


RESULT: dict[str, Callable[[Any], str]] = {  # a column and what stands there, of the medians of a configuration
    "benchmark": lambda row: str(row.benchmark),
    "expressions x points": lambda row: f"{row.n_exprs:,} ({row.source}) x {row.n_points:,}",
    "copied to the host": lambda row: plots.PROTOCOLS[row.results],
    "exprkit": _way,
    "on": lambda row: row.device,
    "median": lambda row: f"**{written(row.median_s)}**",
    "standard deviation": lambda row: known(written, row.sd_s),
    "samples": lambda row: str(row.samples),
    "parsing": lambda row: written(row.parse_s),
    "threads busy": lambda row: known("{:.1f}".format, row.busy_threads),
    "memory, host": lambda row: gigabytes(row.host_bytes),
    "memory, device": lambda row: gigabytes(row.device_bytes),
    "thesis, CPU": lambda row: written(row.thesis_cpu) * (row.results == "every"),
    "thesis, best GPU": lambda row: written(row.thesis_gpu) * (row.results == "every"),
}


def _machines(folder: Path) -> Iterator[str]:
    """A line for every machine and version that the results are from."""
    for record in records.read_records(folder).values():
        for machine in record.get("machines", [record]):
            versions = ", ".join(f"{name} {machine['versions'][name]}" for name in ("python", "numpy", "numba"))
            gpu = machine.get("gpu")
            on = f"{gpu['name']}, driver {gpu['driver']}, beside " if gpu else ""
            yield f"Measured on {on}{machine['cpu']}, {machine['cores']} threads ({versions})."
        if clock := record.get("sm_mhz"):
            ends = " to ".join(dict.fromkeys(f"{clock[end]:,.0f}" for end in ("least", "most")))
            yield (
                f"The GPU's clock, asked for after each of {record['samples_on_gpu']:,} samples: {ends}"
                f" MHz, held back by power or heat {record['throttled_samples']} times."
            )


# ── peers ────────────────────────────────────────────────────────────────────────────


PEERS = ("pyoperon", "numpy", "numexpr", "jax", "cupy")
OURS = ("fast matrix", "fast sse", "ieee matrix", "ieee sse", "cuda matrix", "cuda sse", "ptx matrix", "ptx sse")
COPIES = 64  # of an operator, where one is measured at a time


def peers(folder: str | Path) -> str:
    """What ``tests/bench_peers.py`` measured: every peer's time, ours over the fastest, operators against NumPy."""
    files = [pd.read_csv(path) for path in sorted(Path(folder).glob("peers*.csv"))]
    whole = [rows[rows["method"].isin((*PEERS, *OURS)) & rows["n_exprs"].gt(COPIES)] for rows in files]
    alone = [rows[rows["method"] == "ieee"].set_index("workload")["ratio"] for rows in files]
    parts = [*map(_peers_table, whole), *(_operators_beside_numpy(ratio) for ratio in alone if len(ratio))]
    return "\n\n".join(parts) or "Nothing has been measured yet: `make peers`."


def _peers_table(rows: pd.DataFrame) -> str:
    """Times; behind ours how many times faster than the fastest peer of the line."""
    theirs, ours = ([name for name in names if rows["method"].eq(name).any()] for names in (PEERS, OURS))
    lines = []
    for key, some in rows.groupby(["workload", "n_exprs", "n_points", "threads"], sort=False):
        seconds = some.set_index("method")["seconds"]
        best = seconds[seconds.index.isin(theirs)].min()
        cells = seconds.map(written)
        cells += [f" (**{best / value:.1f}x**)" if name in ours and best > 0 else "" for name, value in seconds.items()]
        size = (f"{key[0]}, {key[1]:,}", f"{key[2]:,}", str(key[3]))
        lines.append((*size, *(cells.get(name, "") for name in (*theirs, *ours))))
    devices = rows.get("device", ())  # where the file tells; without the threads
    names = " and ".join(dict.fromkeys(name.rpartition(", ")[0] or name for name in devices))
    return f"On {names}:\n\n" * bool(names) + table(("expressions", "points", "threads", *theirs, *ours), lines)


def _operators_beside_numpy(ratio: pd.Series) -> str:
    slower, faster = ratio[ratio < 1], ratio[ratio >= 1]
    least = f", the least {faster.min():.2f}x (`{faster.idxmin()}`)" if len(faster) else ""
    behind = "; slower: " + ", ".join(f"`{name}` {value:.2f}x" for name, value in slower.items()) if len(slower) else ""
    return (
        f"One operator at a time, ieee, one thread, compared with NumPy's function (SciPy's where NumPy has none): "
        f"{len(faster)} of {len(ratio)} are faster, the median {ratio.median():.1f}x{least}{behind}."
    )


# ── fits ─────────────────────────────────────────────────────────────────────────────


UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


def fits(folder: str | Path) -> str:
    """What ``tests/gpu_fit_speed.py`` measured where there was an aim."""
    rows = _read(Path(folder) / "h200_fit.csv")
    if rows is None:
        return "Nothing has been measured yet: `python tests/gpu_fit_speed.py --out data/results` on a GPU."
    rows = rows.dropna(subset="target")
    unit = rows["unit"].map(UNITS)
    value, target = (rows[name].astype(float).mul(unit).map(written) for name in ("value", "target"))
    what = rows["what"].str.replace(r"(?<![\d,.])\d{4,}", lambda digits: f"{int(digits[0]):,}", regex=True)
    return table(("on one H200", "measured", "aim"), zip(what, "**" + value + "**", target, strict=True))


def fit_peers(folder: str | Path) -> str:
    """What ``tests/bench_fit_peers.py`` measured: time of a fit, and how often each method found the best."""
    rows = _read(Path(folder) / "fit_peers.csv")
    if rows is None:
        return "Nothing has been measured yet: `python tests/bench_fit_peers.py --csv data/results/fit_peers.csv`."
    rows = rows.sort_values(["n_points", "us_per_fit"], kind="stable", na_position="last")
    return table(("points", "", "a fit takes", "reaches the best known loss"), [
        (f"{row.n_points:,}", row.method, "" if pd.isna(row.us_per_fit) else written(row.us_per_fit * 1e-6),
         f"{row.reached:,} of {row.expressions:,}" if row.expressions else
         f"{row.reached_of_sample:,} of {row.of_sample:,}") for row in rows.itertuples()
    ])  # fmt: skip


# ── what only a GPU shows ────────────────────────────────────────────────────────────


def accuracy(folder: str | Path) -> str:
    """The worst error of every unary operator on a GPU, as ``tests/gpu_accuracy.py`` found it."""
    ieee, fast = (_read(Path(folder) / f"accuracy_{name}.csv", dtype=str) for name in ("ieee", "fast"))
    if ieee is None or fast is None:
        return "Nothing has been measured yet: `python tests/gpu_accuracy.py data/results` on a GPU."
    head = ("operator", "ieee, any input", "at", "ieee, over the domain", "fast, over the domain", "domain", "allowed")
    return table(head, [
        (f"`{one['operator']}`", one["ulp"], one["at"], one["domain_ulp"], other["unit_ulp"],
         f"{float(one['from']):g} to {float(one['to']):g}", f"{one['allowed']} / {other['allowed']}")
        for one, other in zip(ieee.to_dict("records"), fast.to_dict("records"), strict=True)
    ])  # fmt: skip


def interpreter(folder: str | Path) -> str:
    """What ``tests/gpu_speed.py`` measured on an H200."""
    return _measurements(Path(folder) / "h200_interpreter.csv", "tests/gpu_speed.py")


def cases(folder: str | Path) -> str:
    """What the assembler says of the leaves of the case discussions: a row for each task, precision and type."""
    rows = _read(Path(folder) / "cases_ptxas.csv")
    if rows is None:
        return NOT_MEASURED
    keys = ["task", "precision", "dtype"]
    head = (*keys, "kernels", "most registers", "above their limit", "that spill", "bytes spilled, at most")
    lines = [
        (*key, f"{len(some):,}", some["registers"].max(), int((some["registers"] > some["limit"]).sum()),
         int((some["spilled"] > 0).sum()), some["spilled"].max())
        for key, some in rows.groupby(keys, sort=False)
    ]  # fmt: skip
    spilling, most = rows[rows["spilled"] > 0], rows["spilled"].max()
    return (
        f"{len(rows):,} kernels for {rows['architecture'].nunique()} architectures, a sample; {len(spilling):,} "
        f"spill, {most} bytes at most.\n\n{table(head, [tuple(map(str, line)) for line in lines])}"
    )


def generations(folder: str | Path) -> str:
    """What ``tests/gpu_generations.py`` measured on an H200."""
    return _measurements(Path(folder) / "h200_generations.csv", "tests/gpu_generations.py --out data/results")


def _measurements(path: Path, script: str) -> str:
    """A script's lines as a table."""
    rows = _read(path, dtype=str)
    if rows is None:
        return f"Nothing has been measured yet: `python {script}` on a GPU."
    head = ("what", "measured", "target", "least possible", "")
    return table(head, map(_measured, rows.fillna("").to_dict("records")))


def _measured(row: dict[str, str]) -> tuple[str, ...]:
    unit = row["unit"]
    target, least = (f"{row.get(name)} {unit}" if row.get(name) else "" for name in ("target", "least"))
    note = re.split(r", \w*Shape\(", row["note"])[0]
    return row["what"].replace(" {}", ""), f"**{float(row['value']):.4g}** {unit}", target, least, note


SECTIONS: dict[str, Callable[[Path], str]] = {  # name between the marks: what makes it from the results
    "headline": headline,
    "operators": operators,
    "results": results,
    "conclusions": lambda folder: conclusions.page(measured.read_results(folder)),
    "peers": peers,
    "fits": fits,
    "fit peers": fit_peers,
    "accuracy": accuracy,
    "interpreter": interpreter,
    "generations": generations,
    "cases": cases,
}
