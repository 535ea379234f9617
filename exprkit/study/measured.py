"""Frames for figures and tables, computed from the recorded samples.

In: the files of ``records`` and the thesis's published samples.  Out: what ``figures`` draws and ``tables`` writes.

    >>> from exprkit.study import measured
    >>> results = measured.read_results("data/results")
    >>> set(results.thesis["benchmark"])
    {1, 2, 3}
"""

from __future__ import annotations

import re
from collections.abc import Iterable
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
ITEMSIZE = {"float32": 4, "float64": 8}
ENOUGH_STEPS = 10  # of a sample, for the time of a single one
EVERY = {  # what the thesis's optimisation steps have left at every step: in words
    "all": "all at every step",
    "transpile": "frontend and data once",
    "compile": "transpiled once",
    "": "compiled once",
}
AXES = (  # study, column, what there is more of, and at which number of what else
    ("map", "n_exprs", "expressions", ("n_points", 10_000, "points")),
    ("map", "n_points", "points", ("n_exprs", 1000, "expressions")),
    ("tokens", "tokens_each", "tokens per expression", None),
    ("vars", "n_vars", "variables", None),
    ("params", "params_each", "parameters per expression", None),
)
MAPS = [(name, n_steps) for name in plots.PROTOCOLS for n_steps in (1, 10, 100, 1000)]
WARNINGS = 3  # so many are shown of a file's
SEARCHES = "laws*.csv", "recovery.csv"  # files with a row for each search for a law
NOT_A_LIST = re.compile(r"^laws_?|_?(units|noise|h200|peers|[\d.]+$)| ")  # in the name of a file or list of laws
TRADE = r"\(R\)| Processor"  # what a device's name is as clear without
ON_GPU = {"cuda", "ptx"}
TEXTS, SIZES = bench.CONFIGURATION[:11], bench.CONFIGURATION[11:]
ABOUT = "commit", "cpu", "gpu", "driver", "versions", "made_by", "day"  # what a sample says of its origin
NUMBERS = [
    *(f"{part}_s" for part in (*bench.PHASES, *bench.PARTS, "steps", "total", "cpu")),
    *bench.MEMORY,
    *timed_device.KERNEL_FACTS,
    "most_warps",
    "sm_mhz",
    "link_bytes_per_s",
]
NO_SAMPLES = pd.DataFrame(  # with the columns that they would have
    dict.fromkeys([*TEXTS, *ABOUT], "") | dict.fromkeys([*SIZES, *NUMBERS], 0.0) | {"cold": False}, index=[0]
).iloc[:0]


class Results(NamedTuple):
    """Samples, for figures and tables."""

    samples: pd.DataFrame  # warm ones
    thesis: pd.DataFrame  # its samples
    steps: pd.DataFrame  # its optimisation steps


def read_results(folder: str | Path | None = None) -> Results:
    """Everything that is recorded in a folder; by default what was published with exprkit.

    Raises DataError if there is no such folder, or a file in it cannot be read.
    """
    folder = records.published_folder() if folder is None else Path(folder).expanduser()
    if not folder.is_dir():
        raise DataError(f"there is no folder of results {folder}")
    return results_of(records.read(folder, cold=True))


def results_of(samples: pd.DataFrame) -> Results:
    """Samples as read from files -> ``Results``: warm ones, with columns for names and sizes that figures group by."""
    samples = samples if len(samples) else NO_SAMPLES
    columns = {
        name: "" if name in ABOUT else np.nan
        for name in (*ABOUT, "link_bytes_per_s", *timed_device.TRANSFERS, "scaled_from")
    }
    samples = samples.assign(**{name: value for name, value in columns.items() if name not in samples})
    samples = samples.fillna(dict.fromkeys(ABOUT, ""))
    samples = _on_host(_warm(samples.assign(file=samples.get("file", OWN))))
    samples = samples[samples[["total_s", "step_s"]].notna().all(axis=1)]  # the others measured nothing
    where = samples["backend"] + ", " + samples["device"].map(short)
    for name, usual in (("precision", "fast"), ("dtype", "float32"), ("options", "")):  # as the thesis computes
        where += (", " + samples[name]).where(samples[name].ne(usual), "")
    each = {name: samples[f"n_{name}"] / samples["n_exprs"] for name in ("tokens", "params")}
    on_cpu = samples["backend"].eq("cpu")
    numbers = samples[on_cpu].groupby("file")["threads"].agg(number="nunique", most="max")
    most = {file: f"up to {row['most']:.0f} threads" for file, row in numbers.iterrows() if row["number"] > 1}
    words = [
        re.sub(r"\d+ threads?", most.get(file, r"\g<0>"), name)
        for file, name in zip(samples["file"], where, strict=True)
    ]
    samples = samples.assign(
        evaluator=plots.evaluator_of(samples),
        where=where,
        machine=pd.Series(words, samples.index, dtype=str).where(on_cpu, where),
        tokens_each=each["tokens"].round().astype(int),
        params_each=each["params"].round().astype(int),
    )
    return Results(samples, data.thesis_samples(), data.thesis_steps())


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
    """Distinct texts, joined, without the empty one."""
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


def origin(rows: pd.DataFrame) -> str:
    """Commits and machines of rows, in a sentence; nothing of none."""
    commits = _each(_short(rows["commit"]), ", ") or "not recorded"
    return f"Commit {commits}; {machine_of(rows)}." * bool(len(rows))


def samples_of(results: Results, /, *studies: str, **equal: Any) -> pd.DataFrame:
    """Rows of samples: those of the named studies whose columns equal the given values."""
    rows = results.samples["bench"].isin(studies)
    for name, value in equal.items():
        rows &= results.samples[name].eq(value)
    return results.samples[rows]


def benchmarks(results: Results) -> pd.DataFrame:
    """Our samples of the thesis's benchmarks, of all protocols."""
    rows = pd.concat([samples_of(results, *OF_THE_THESIS), scaled_to_all_steps(results)])
    return rows[plots.benchmark_of(rows) != plots.OTHER]


def scaled_to_all_steps(results: Results) -> pd.DataFrame:
    """Samples of fewer steps (a launch per expression, few threads), their times scaled to the thesis's 100 steps."""
    rows = samples_of(results, "launches", "threads", options="")
    rows = rows[(rows["dispatch"].ne("") | rows["bench"].eq("threads")) & rows["block_size"].isna()]
    rows = rows[rows["n_steps"].between(2, plots.THESIS_STEPS - 1)]
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


def on_best_threads(rows: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """The rows, a CPU's at the number of threads of least median for these columns, and named by its machine alone."""
    each = ["file", "backend", "precision", "dtype", *keys]
    medians = rows.groupby([*each, "threads"], dropna=False)["total_s"].transform("median")
    least = medians.groupby([rows[name] for name in each], dropna=False).transform("min")
    on_cpu = rows["backend"].eq("cpu")
    rows = rows[~on_cpu | medians.eq(least)]
    return rows.assign(where=rows["where"].mask(on_cpu, rows["machine"]))


def seconds_for(samples: pd.DataFrame, n_steps: int) -> pd.Series:
    """Seconds that each sample would take with ``n_steps`` steps: all but the first cost the same."""
    return samples["total_s"] - samples["steps_s"] + (n_steps - 1) * samples["step_s"]


def _option(rows: pd.DataFrame, name: str) -> pd.Series:
    """The value of an option of each row, a text; "" where it has none."""
    return rows["options"].str.extract(rf"\b{name}=(\w+)")[0].fillna("")


def thesis_steps(results: Results) -> pd.DataFrame:
    """Its optimisation steps, a launch for each expression, in its order: seconds of 100 steps, ours and relative."""
    rows = samples_of(results, "thesis_steps").assign(samples=1)
    rows = rows.assign(seconds=seconds_for(rows, plots.THESIS_STEPS), every=_option(rows, "every_step"))
    rows = rows.assign(stack=_option(rows, "stack"), order=rows["every"].map(list(EVERY).index))
    keys = ["backend", "order", "every", "stack", "block_size", "n_exprs", "n_points"]
    each = rows.groupby(keys)["seconds"].agg(samples="size", median="median", sd="std").reset_index()
    each = each.assign(from_large=-each["stack"].replace("", 0).astype(int), block=each["block_size"].replace(256, 0))
    each = each.sort_values(["backend", "order", "from_large", "block"], ignore_index=True)
    names = each["backend"].map({"cuda": "gpu_interpreter", "ptx": "gpu_transpiler"})
    relative = results.steps.set_index(["evaluator", "step"])["relative"]
    numbered = zip(names, each.groupby("backend").cumcount(), strict=True)
    words = each["every"].map(EVERY).mask(each["every"].eq("") & each["backend"].eq("cuda"), EVERY["transpile"])
    return each.assign(
        evaluator=names.str.removeprefix("gpu_"),
        change=words + (", stack of " + each["stack"]).where(each["stack"].ne(""), ""),
        relative=each["median"] / each.groupby("backend")["median"].transform("first"),
        theirs=[relative.get(number, np.nan) for number in numbered],
    )


def launch_samples(results: Results) -> pd.DataFrame:
    """Samples from the thesis's way to ours on benchmarks 2 and 3, with the ``order`` and the name of their ``way``."""
    rows = samples_of(results, "launches")
    apart, points = rows["dispatch"].ne(""), rows["points_per_thread"].astype(float)
    streams, graph = _option(rows, "streams").replace("", 1).astype(int), _option(rows, "graph").ne("")
    threads = rows["threads"].where(apart, 1).astype(int)
    way = pd.Series("one launch", rows.index).mask(apart, "a launch per expression")
    for number, words in ((streams, "streams"), (threads, "threads"), (points, "points per thread")):
        way += (", " + number.astype("Int64").astype(str) + f" {words}").where(number.gt(1), "")
    way += pd.Series(", one CUDA graph", rows.index).where(graph, "")
    way += pd.Series(", as exprkit chooses", rows.index).where(~apart & points.isna(), "")
    order = [apart.map({True: 0, False: 1}), graph.astype(int), threads, streams, points.fillna(np.inf)]
    numbers = {n_points: number for number, (n_exprs, n_points) in plots.BENCHMARKS.items() if n_exprs == 10_000}
    return rows.assign(
        way=way,
        order=list(zip(*order, strict=True)),
        benchmark=rows["n_points"].map(numbers),
        place=plots.protocol_ranks(rows["results"]),
    )


def thesis_medians(results: Results) -> pd.DataFrame:
    """Seconds of a sample of the thesis at the best block size: a row a benchmark, columns "CPU" and "best GPU"."""
    keys = ["benchmark", "evaluator", "block_size"]
    each = results.thesis.groupby(keys, dropna=False)["seconds"].median().groupby(level=[0, 1]).min().unstack()
    on_cpu = each.columns.str.startswith("cpu")
    return pd.DataFrame({"CPU": each.loc[:, on_cpu].min(axis=1), "best GPU": each.loc[:, ~on_cpu].min(axis=1)})


def map_rows(results: Results, code: str) -> pd.DataFrame:
    """Samples of the maps of sizes, a transpiler's with code compiled "anew" or "kept", a CPU's at its best threads."""
    rows = samples_of(results, "map")
    rows = rows[rows["code"].isin(("", code))]
    return on_best_threads(rows, "n_exprs", "n_points", "results")


def axes(results: Results) -> list[tuple[pd.DataFrame, str, str, bool]]:
    """Samples along each of the ``AXES``, their column, words for it, and whether it is a size of the whole work.

    ``alone`` are seconds of a step of losses, on the device alone, if that is measured.
    """
    parts = []
    for study, column, words, other in AXES:
        rows = with_code(samples_of(results, study, results="loss"), both=False)
        rows = on_best_threads(rows, "n_exprs", "n_points", column)
        rows = rows.assign(alone=rows["device_s"].fillna(rows["step_s"]))
        if other and len(rows):
            name, number, called = other
            number = number if rows[name].eq(number).any() else rows[name].max()
            rows, words = rows[rows[name].eq(number)], f"{words}, {number:,} {called}"
        parts.append((rows, column, words, bool(other)))
    return parts


def map_seconds(rows: pd.DataFrame, protocol: str, n_steps: int) -> pd.DataFrame:
    """Median seconds of ``n_steps`` steps: a row for each size, a column for each backend.

    What is done once, the first step included, is the same whether the matrix of every step or of the last comes back,
    and one median is of both.
    """
    keys = ["n_exprs", "n_points", "where"]
    alike = rows[rows["results"].eq("loss") == (protocol == "loss")]
    once = alike.assign(once=alike["total_s"] - alike["steps_s"]).groupby(keys)["once"].median()
    step = rows[rows["results"].eq(protocol)].groupby(keys)["step_s"].median()
    return (once + (n_steps - 1) * step).dropna().unstack("where")


def block_samples(results: Results) -> pd.DataFrame:
    """Our samples of benchmark 3 with a chosen block size."""
    rows = samples_of(results, "blocks", "thesis_steps")
    n_exprs, n_points = plots.BENCHMARKS[3]
    tuned = rows["options"].eq("") | rows["options"].eq("stack=10")
    return rows[tuned & rows["block_size"].notna() & rows["n_exprs"].eq(n_exprs) & rows["n_points"].eq(n_points)]


def relative_to_best(results: Results) -> pd.DataFrame:
    """Time over the shortest of each evaluator (rows), by block size (columns): the thesis's samples, our steps."""
    theirs = results.thesis[(results.thesis["benchmark"] == 3) & results.thesis["block_size"].notna()]
    seconds = theirs.groupby(["evaluator", "block_size"])["seconds"].median().reset_index()
    seconds["evaluator"] = "thesis " + seconds["evaluator"].str.replace("_", " ")
    ours = best_points(block_samples(results)).groupby(["evaluator", "block_size"])["step_s"].median()
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
    rows = samples_of(results, "blocks")
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


# ── every row, for the site's explorer and the notebook's ────────────────────────────


def timings(results: Results) -> pd.DataFrame:
    """Samples -> a row a configuration: benchmark, backend, card, protocol, sizes, medians in seconds, and the source.

    ``sample_s`` is all that a sample takes, ``step_s`` a step of it; file, commit and command are the source.
    """
    keys = [*bench.CONFIGURATION, "file"]
    sources = results.samples.groupby(keys, sort=False, dropna=False)[["commit", "made_by"]].agg(_each)
    table = bench.medians(results.samples).merge(sources.reset_index(), on=keys)
    number = plots.benchmark_of(table)
    return pd.DataFrame(
        {
            "benchmark": table["bench"].mask(number != plots.OTHER, "thesis " + number.astype(str)),
            "backend": table["backend"] + (", " + table["dispatch"]).where(table["dispatch"].ne(""), ""),
            "card": table["device"].str.replace(TRADE, "", regex=True),
            "protocol": table["results"].map(plots.PROTOCOLS | {"fit": "fits", "half": "16-bit matrix"}),
            "expressions": table["n_exprs"],
            "points": table["n_points"],
            "steps": table["n_steps"],
            "options": [_options(row) for row in table.itertuples()],
            "sample_s": table["median_s"],
            "step_s": table["step_s"],
            "samples": table["samples"],
            "file": table["file"] + records.SAMPLES,
            "commit": _short(table["commit"]),
            "command": table["made_by"],
        }
    )


def _options(row: Any) -> str:
    blocks = "" if pd.isna(row.block_size) else f"blocks of {row.block_size}"
    points = "" if pd.isna(row.points_per_thread) else f"{row.points_per_thread} points a thread"
    return _each((plots.CODE.get(row.code, ""), row.options, blocks, points), ", ")


def searches() -> pd.DataFrame:
    """Published files of laws -> a row a search: list, law, noise, units, card, seconds, found, formula, the source.

    ``found`` is whether the formula is the law (``data/results/laws.md``), ``limit_s`` the time that a search had.
    """
    folder = records.published_folder()
    names = {"what": "law", "by": "program", "equation": "formula", "recovered": "found", "limit": "limit_s"}
    commands, parts = commands_of(folder), []
    for path in sorted(path for pattern in SEARCHES for path in folder.glob(pattern)):
        rows = pd.read_csv(path, dtype={"what": str, "threads": str}).rename(columns=names)
        if "cpu_s" in rows:  # the time is counted in work, and the processor's is measured
            rows = rows.rename(columns={"seconds": "limit_s", "cpu_s": "seconds"}).assign(list="srbench")
        listed = rows.get("list", pd.Series(path.stem, rows.index))
        noise = listed.str.extract(r"noise ([\d.]+)")[0].astype(float).fillna(0.0)
        on_gpu = rows.get("backend", pd.Series("", rows.index)).isin(ON_GPU)
        rows = rows.assign(
            list=listed.str.replace(NOT_A_LIST, "", regex=True).replace({"": "laws", "held": "held_out"}),
            noise=rows.get("noise", noise),
            units=np.where(rows.get("units", listed.str.contains("units")), "yes", "no"),
            found=np.where(rows["found"].eq(1), "yes", "no"),
            program=rows.get("program", "exprkit"),
            card=rows["gpu"].where(on_gpu, rows["cpu"]).str.replace(TRADE, "", regex=True),
            file=path.name,
            commit=_short(rows["commit"]),
            command=commands[path.name],
        )
        parts.append(rows)
    columns = ["list", "law", "program", "noise", "units", "card", "seconds", "limit_s", "found", "nodes", "formula"]
    return pd.concat(parts, ignore_index=True).reindex(columns=[*columns, "file", "commit", "command"])


def commands_of(folder: str | Path) -> dict[str, str]:
    """The command that makes each file of a folder of results, as its ``sources.md`` says."""
    text = (Path(folder) / "sources.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`data/results/.*?) \|.*\| (.*) \|$", text, re.MULTILINE)
    patterns = [(pattern.rpartition("/")[2], how) for what, how in rows for pattern in re.findall(r"`(.+?)`", what)]
    return {path.name: how for pattern, how in reversed(patterns) for path in Path(folder).glob(pattern)}
