"""Frames for figures and tables, computed from the recorded samples.

In: the files of ``records`` and the thesis's published samples.  Out: what ``figures`` draws and ``tables`` writes.

    >>> from exprkit.study import measured
    >>> results = measured.read_results("data/results")
    >>> set(results.thesis["benchmark"])
    {1, 2, 3}
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from exprkit import data
from exprkit.errors import DataError, brought_by
from exprkit.study import bench, plots, records, timed_device
from exprkit.study.plots import short

with brought_by("notebooks"):
    import pandas as pd

OWN = "own"  # in a file's place, for samples that a notebook has just taken
OF_THE_THESIS = "benchmarks", "benchmark", "results"  # studies that repeat the thesis's
BACK = {"last": "last matrix only", "loss": "losses only"}  # beside the matrix of every step
ITEMSIZE = {"float32": 4, "float64": 8}
SCRIPTS = "contraction.csv", "contraction_cpu.csv", "contraction_cuda.csv", "specialised.csv"
WARNINGS = 3  # so many are shown of a file's
ON_GPU = {"cuda", "ptx"}
TEXTS, SIZES = bench.CONFIGURATION[:11], bench.CONFIGURATION[11:]
ABOUT = "commit", "cpu", "gpu", "driver", "versions", "made_by", "day"  # what a sample says of its origin
NUMBERS = [
    *(f"{part}_s" for part in (*bench.PHASES, *bench.PARTS, "steps", "total", "cpu")),
    *bench.MEMORY,
    *timed_device.KERNEL_FACTS,
    "most_warps",
    "sm_mhz",
    *timed_device.ROOFS,
]
NO_SAMPLES = pd.DataFrame(  # with the columns that they would have
    dict.fromkeys([*TEXTS, *ABOUT], "") | dict.fromkeys([*SIZES, *NUMBERS], 0.0) | {"cold": False}, index=[0]
).iloc[:0]


class Results(NamedTuple):
    """Samples, for figures and tables."""

    samples: pd.DataFrame  # warm ones
    thesis: pd.DataFrame  # its samples
    steps: pd.DataFrame  # its optimisation steps
    scripts: pd.DataFrame  # values and notes of other measurements (the files of ``SCRIPTS``), by what was measured


def read_results(folder: str | Path | None = None) -> Results:
    """Everything that is recorded in a folder; by default what was published with exprkit.

    Raises DataError if there is no such folder, or a file in it cannot be read.
    """
    folder = records.recorded() if folder is None else Path(folder).expanduser()
    if not folder.is_dir():
        raise DataError(f"there is no folder of results {folder}")
    tables = [pd.read_csv(folder / name) for name in SCRIPTS if (folder / name).exists()]
    return results_of(records.read(folder, cold=True), tables)


def results_of(samples: pd.DataFrame, tables: Sequence[pd.DataFrame] = ()) -> Results:
    """Samples with what each figure wants to know of every one; and tables of scripts."""
    samples = samples if len(samples) else NO_SAMPLES
    absent = {name: "" if name in ABOUT else np.nan for name in (*ABOUT, *timed_device.ROOFS) if name not in samples}
    samples = samples.assign(**absent).fillna(dict.fromkeys(ABOUT, ""))
    samples = _on_host(_warm(samples.assign(file=samples.get("file", OWN))))
    samples = samples[samples[["total_s", "step_s"]].notna().all(axis=1)]  # the others measured nothing
    where = samples["backend"] + ", " + samples["device"].map(short)
    for name, usual in (("precision", "fast"), ("dtype", "float32"), ("options", "")):  # as the thesis computes
        where += (", " + samples[name]).where(samples[name].ne(usual), "")
    each = {name: samples[f"n_{name}"] / samples["n_exprs"] for name in ("tokens", "params")}
    samples = samples.assign(
        evaluator=plots.evaluator_of(samples),
        where=where,
        tokens_each=each["tokens"].round().astype(int),
        params_each=each["params"].round().astype(int),
    )
    scripts = pd.concat([pd.DataFrame(columns=["what", "value", "note"]), *tables]).drop_duplicates("what", keep="last")
    return Results(samples, data.thesis_samples(), data.thesis_steps(), scripts.set_index("what"))


def _on_host(samples: pd.DataFrame) -> pd.DataFrame:
    """Samples, those of a host's backend both as of every step's matrix and as of the last step's.

    Both lie where they are wanted as soon as they are made, so that one measurement stands for the two.
    """
    rows = samples[~samples["backend"].isin(ON_GPU) & samples["results"].isin(("every", "last"))]
    keys = [name for name in (*bench.CONFIGURATION, "file") if name != "results"]
    both = rows.groupby(keys, dropna=False)["results"].transform("nunique").eq(2)
    twins = rows[~both].assign(results=rows["results"].map({"every": "last", "last": "every"}))
    return pd.concat([samples, twins]).sort_values("file", kind="stable", ignore_index=True)


def _warm(samples: pd.DataFrame) -> pd.DataFrame:
    """The warm samples; where none compiled what later ones took from the cache, the cold one that did so."""
    keys = samples[[*bench.CONFIGURATION, "file"]].assign(code="anew")
    keys = pd.Series([str(row) for row in keys.itertuples(index=False, name=None)], samples.index)
    measured = keys[samples["code"].eq("anew") & ~samples["cold"]]
    compiled = samples["cold"] & samples["code"].eq("kept") & ~keys.isin(measured)
    samples = samples.assign(code=samples["code"].mask(compiled, "anew"), cold=samples["cold"] & ~compiled)
    return samples[~samples["cold"]].reset_index(drop=True)


def machines(results: Results) -> pd.DataFrame:
    """The machine, the GPU's clock and the warnings of each file of results."""
    lines = {}
    for name, rows in results.samples.groupby("file"):
        sentences, clock = bench.unsteady(rows), rows["sm_mhz"].dropna()
        held = int(rows.loc[clock.index, "throttled"].astype(bool).sum())
        more = [f"and {len(sentences) - WARNINGS} more"] if len(sentences) > WARNINGS else []
        cards = rows["gpu"].str.cat(rows["driver"], ", driver ").where(rows["gpu"].ne(""), "")
        lines[name] = {
            "commit": _each(_short(rows["commit"])),
            "CPU": _each(rows["cpu"]),
            "GPU": _each(cards),
            "versions": _each(rows["versions"]),
            "GPU clock": f"{clock.min():.0f} to {clock.max():.0f} MHz" if len(clock) else "",
            "held back": f"{held} of {len(clock)} samples" if len(clock) else "",
            "warnings": "; ".join([*sentences[:WARNINGS], *more]) or "none",
        }
    return pd.DataFrame.from_dict(lines, orient="index")


def _each(texts: Iterable[str], between: str = "; ") -> str:
    """Each text once, but the empty one."""
    return between.join(filter(None, dict.fromkeys(texts)))


def _short(commits: pd.Series) -> pd.Series:
    """Seven digits of each commit, with the ``+`` of a changed one."""
    return commits.str.replace(r"^(\w{7})\w*", r"\1", regex=True)


def machine_of(rows: pd.DataFrame) -> str:
    """The machine that rows are from: its GPU, if it has one, and its CPU."""
    return _each([*rows["gpu"], *rows["cpu"]], ", ")


def provenance(rows: pd.DataFrame) -> str:
    """By which commands rows were measured, at which commits and on which days, as they say."""
    days = sorted(filter(None, rows.get("day", ())))
    commits = "commit " + _short(rows["commit"])[rows["commit"].ne("")]
    facts = [*dict.fromkeys(commits), *([" to ".join(dict.fromkeys((days[0], days[-1])))] if days else [])]
    own = "file" in rows and rows["file"].eq(OWN).any()
    commands = _each((f"`{command}`" * bool(command) for command in rows.get("made_by", ())), " and ")
    by = "this notebook" if own else commands or "a command that is not recorded"
    return f"by {by} ({', '.join(facts)})" if facts else f"by {by}"


def of(results: Results, /, *studies: str, **equal: Any) -> pd.DataFrame:
    """The samples of some studies whose columns have these values."""
    rows = results.samples["bench"].isin(studies)
    for name, value in equal.items():
        rows &= results.samples[name].eq(value)
    return results.samples[rows]


def medians(results: Results) -> pd.DataFrame:
    """Median, quartiles and deviation of every evaluator, protocol and benchmark, the thesis's and ours, in seconds."""
    parts = [plots.thesis_samples(results.thesis), plots.own_samples(benchmarks(results))]
    table = pd.concat([part for part in parts if len(part)], ignore_index=True)
    table = table[table["panel"] != plots.OTHER].assign(results=table["results"].map(plots.PROTOCOLS))
    seconds = table.groupby(["panel", "results", "evaluator"], sort=False)["seconds"]
    spread = {f"q{share:.0%}"[:-1]: seconds.quantile(share) for share in (0.25, 0.75)} | {"sd": seconds.std()}
    table = pd.DataFrame({"samples": seconds.size(), "median": seconds.median(), **spread}).reset_index()
    table["results"] = pd.Categorical(table["results"], list(plots.PROTOCOLS.values()))
    return table.rename(columns={"panel": "benchmark"}).sort_values(["benchmark", "results", "median"])


def benchmarks(results: Results) -> pd.DataFrame:
    """Our samples of the thesis's benchmarks, of all protocols."""
    rows = pd.concat([of(results, *OF_THE_THESIS), per_expression(results)])
    return rows[plots.benchmark_of(rows) != plots.OTHER]


def per_expression(results: Results) -> pd.DataFrame:
    """Samples of ``scaled_from`` steps with a launch per expression, as they would have been with the thesis's 100."""
    rows = of(results, "launches", "steps", "benchmarks")
    own = rows["dispatch"].ne("") & rows["block_size"].isna() & rows["options"].eq("")
    rows = rows[own & rows["n_steps"].between(2, plots.THESIS_STEPS - 1)]
    more = (plots.THESIS_STEPS - 1) / (rows["n_steps"] - 1)
    each = more.where(rows["results"].ne("last"), 1)  # the last step's matrix is brought back once
    return rows.assign(
        total_s=seconds_for(rows, plots.THESIS_STEPS),
        n_steps=plots.THESIS_STEPS,
        scaled_from=rows["n_steps"],
        evaluate_s=rows["evaluate_s"] * more,
        download_s=rows["download_s"] * each,
        steps_s=rows["steps_s"] * more,
        cpu_s=rows["cpu_s"] * seconds_for(rows, plots.THESIS_STEPS) / rows["total_s"],
    )


def seconds_for(samples: pd.DataFrame, n_steps: int) -> pd.Series:
    """Seconds of each sample with another number of steps: all but the first cost the same."""
    return samples["total_s"] - samples["steps_s"] + (n_steps - 1) * samples["step_s"]


def own_steps(rows: pd.DataFrame) -> list[tuple[str, float]]:
    """From the thesis's way to ours: what it is, and the seconds of a sample of 100 steps."""
    steps = []
    keys = ["backend", "code", "dispatch", "options", "n_steps", "points_per_thread", "block_size", "precision"]
    for values, part in rows.groupby([*keys, "results"], dropna=False):
        backend, code, dispatch, options, n_steps, points, block, precision, comes_back = values
        seconds = seconds_for(part, plots.THESIS_STEPS).median()
        if n_steps == 1:
            name, seconds = "everything anew at every step", part["total_s"].median() * plots.THESIS_STEPS
        elif dispatch:
            name = ", ".join([dispatch, *([f"block {block}"] if not pd.isna(block) else []), *filter(None, [options])])
        elif backend == "ptx":
            name = "compiled once" if code == "anew" else "machine code from the cache"
        elif not pd.isna(points):
            name = f"one launch, {points} points per thread, block {block}"
        else:
            name = "as exprkit chooses" + ("" if precision == "fast" else f", {precision}")
        name += "" if comes_back == "every" else f", {BACK[comes_back]}"
        steps.append((backend == "ptx", ("transpiler: " if backend == "ptx" else "interpreter: ") + name, seconds))
    return [(name, seconds) for _, name, seconds in sorted(steps, key=lambda part: (part[0], -part[2]))]


def thesis_medians(results: Results) -> pd.DataFrame:
    """Seconds of a sample of the thesis at the best block size: a row a benchmark, a column an evaluator."""
    keys = ["benchmark", "evaluator", "block_size"]
    return results.thesis.groupby(keys, dropna=False)["seconds"].median().groupby(level=[0, 1]).min().unstack()


def map_seconds(rows: pd.DataFrame, n_steps: int) -> pd.DataFrame:
    """Seconds of so many steps: a row a size, a column a backend."""
    timed = rows.assign(seconds=seconds_for(rows, n_steps))
    return timed.pivot_table("seconds", ["n_exprs", "n_points"], "where", "median")


def blocks(results: Results) -> pd.DataFrame:
    """Our samples of benchmark 3 with a chosen block size."""
    rows = of(results, "blocks", "launches", options="")
    n_exprs, n_points = plots.BENCHMARKS[3]
    return rows[rows["block_size"].notna() & rows["n_exprs"].eq(n_exprs) & rows["n_points"].eq(n_points)]


def relative_to_best(results: Results) -> pd.DataFrame:
    """Time over the shortest of each evaluator (rows), by block size (columns): the thesis's samples, our steps."""
    theirs = results.thesis[(results.thesis["benchmark"] == 3) & results.thesis["block_size"].notna()]
    seconds = theirs.groupby(["evaluator", "block_size"])["seconds"].median().reset_index()
    seconds["evaluator"] = "thesis " + seconds["evaluator"].str.replace("_", " ")
    ours = best_points(blocks(results)).groupby(["evaluator", "block_size"])["step_s"].median()
    seconds = pd.concat([seconds, ours.rename("seconds").reset_index()], ignore_index=True)
    table = seconds.astype({"block_size": int}).pivot(index="evaluator", columns="block_size", values="seconds")
    return table.div(table.min(axis=1), axis=0)


def best_points(rows: pd.DataFrame) -> pd.DataFrame:
    """The samples with the best number of points per thread of each evaluator and block size."""
    rows = rows[rows["code"].ne("anew") | ~rows["code"].eq("kept").any()]
    rows = rows.assign(points=rows["points_per_thread"].fillna(0))
    keys = ["evaluator", "block_size"]
    each = rows.groupby([*keys, "points"], as_index=False)["step_s"].median()
    best = each.loc[each.groupby(keys)["step_s"].idxmin(), [*keys, "points"]]
    return rows.merge(best, on=[*keys, "points"]).astype({"block_size": int})


def kernel_table(results: Results) -> pd.DataFrame:
    """Step time, registers, spills, shared memory and occupancy by block size and points per thread."""
    rows = of(results, "blocks")
    rows = rows[rows["points_per_thread"].notna() & rows["registers"].notna()]
    if rows.empty:
        return pd.DataFrame()
    rows = rows.assign(occupancy=occupancy(rows))
    columns = ["step_s", "registers", "local_bytes", "shared_bytes", "resident_blocks", "occupancy"]
    return rows.groupby(["where", "options", "block_size", "points_per_thread"])[columns].median().reset_index()


def occupancy(rows: pd.DataFrame) -> pd.Series:
    """Resident warps over the most that a multiprocessor of the card holds."""
    return rows["resident_blocks"] * rows["block_used"] / 32 / rows["most_warps"]


def with_code(rows: pd.DataFrame, both: bool) -> pd.DataFrame:
    """Rows whose machine code is kept; or both kinds, told apart by their names."""
    if not both:
        return rows[rows["code"].ne("anew") | ~rows["code"].eq("kept").any()]
    return rows.assign(where=rows["where"] + (", " + rows["code"].map(plots.CODE)).fillna(""))


def maps_of(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """The samples with code compiled anew, then those with code from the cache; all together where none is compiled."""
    codes = [code for code in bench.CODE if rows["code"].eq(code).any()]
    return [rows[rows["code"].isin(("", code))] for code in codes] or [rows]


def maps_by_protocol(rows: pd.DataFrame, steps: Iterable[int]) -> Iterator[tuple[tuple[str, int], pd.DataFrame]]:
    """(protocol, number of steps) and ``map_seconds`` for each of them that was measured."""
    for name, n_steps in itertools.product(plots.PROTOCOLS, steps):
        part = rows[rows["results"].eq(name)]
        if len(part):
            yield (name, n_steps), map_seconds(part, n_steps)


def kernels(rows: pd.DataFrame) -> pd.DataFrame:
    """Rate and intensity of the steps of each configuration; on a GPU by its own clock."""
    timed = rows.assign(seconds=rows["device_s"].fillna(rows["kernel_s"]).fillna(rows["step_s"]))
    sizes = ["n_exprs", "n_points", "n_vars", "n_tokens"]
    keys = ["file", "where", "results", "precision", "dtype", "dispatch", "source", *sizes]
    table = timed.groupby(keys, as_index=False, dropna=False)["seconds"].median()
    nodes = table["n_tokens"] * table["n_points"]
    size = table["dtype"].map(ITEMSIZE)
    matrix = table["results"].ne("loss") * table["n_exprs"] * table["n_points"] * size
    moved = matrix + table["n_points"] * (table["n_vars"] + 1) * size + 8 * table["n_tokens"]
    return table.assign(nodes_per_s=nodes / table["seconds"], nodes_per_byte=nodes / moved)


def roofs_of(rows: pd.DataFrame) -> list[tuple[str, float, float]]:
    """Name, bytes per second and node evaluations a second of the roofs that the backends of samples work under."""
    roofs, on_gpu = rows[list(timed_device.ROOFS)].max(), rows["backend"].isin(ON_GPU)
    lines = [] if on_gpu.all() else [("host memory", roofs["host_bytes_per_s"], np.inf)]
    if on_gpu.any():
        lines.append((rows["gpu"].max(), roofs["gpu_bytes_per_s"], np.nan_to_num(roofs["gpu_nodes_per_s"], nan=np.inf)))
    return [line for line in lines if not np.isnan(line[1])]
