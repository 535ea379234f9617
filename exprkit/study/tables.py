"""Tables of the recorded results, each a function: results in, a table of texts out, empty where nothing is measured.

``readme`` writes them between the marks of the pages in ``data/results``, ``comparison.ipynb`` shows those pages.

    >>> from exprkit.study import measured, tables
    >>> tables.block_sizes(measured.read_results("data/results")).columns[:3].tolist()
    ['', '64', '128']
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from exprkit.errors import brought_by
from exprkit.study import bench, figures, measured, plots
from exprkit.study.measured import ON_GPU, Results, of, with_code
from exprkit.study.plots import BENCHMARKS, PROTOCOLS, gigabytes, known, places, written
from exprkit.study.workload import SOURCES

with brought_by("notebooks"):
    import pandas as pd

GROWING = (  # study, column, words, whether cost may grow in proportion
    ("map", "n_exprs", "expressions, {:,} points", True),
    ("map", "n_points", "points, {:,} expressions", True),
    ("tokens", "tokens_each", "tokens per expression", True),
    ("vars", "n_vars", "variables", False),
    ("params", "params_each", "parameters per expression", False),
)
MANY = 10_000  # expressions from which interpreter and transpiler are compared
STEP_RESULTS = {"every": "matrix to the host", "last": "matrix", "loss": "errors"}
STAGES = {"parse_s": "read", "lower_s": "programs", "emit_s": "structures and PTX", "compile_s": "machine code"}
GENERATIONS = 54  # of the search that the thesis estimates
COPIED: dict[str, str] = PROTOCOLS | {"half": "matrix of every step, 16 bits", "fit": "fitted parameters"}
NOTHING = pd.DataFrame()
Cells = dict[str, str]  # heading: the text of a cell, with fields for columns of the row, as ``{step_s:s}``
SIZE = {"expressions x points": "{n_exprs:,} x {n_points:,}"}
WORK: Cells = {"copied to the host": "{copied}"} | SIZE
WHERE = {"": "`{where}`"}


class _Words(string.Formatter):
    """Fields of cells: a format ``s`` is of seconds, ``GB`` of bytes, ``x`` of a ratio."""

    def format_field(self, value: Any, format_spec: str) -> str:
        own = {"s": written, "GB": gigabytes, "x": _times}.get(format_spec)
        return own(value) if own else str(super().format_field(value, format_spec))


def table_of(rows: pd.DataFrame, cells: Cells) -> pd.DataFrame:
    """A line for each row; a cell with a field that is nan is empty, a column of such is left out."""
    if rows.empty:
        return NOTHING
    words, texts = _Words(), pd.DataFrame()
    if "results" in rows:
        rows = rows.assign(copied=rows["results"].map(COPIED))
    lines: list[Any] = rows.to_dict("records")
    for head, cell in cells.items():
        fields = [name for _, name, *_ in words.parse(cell) if name]
        texts[head] = pd.Series([words.vformat(cell, (), line) for line in lines]).mask(
            rows[fields].isna().any(axis=1).to_numpy(), ""
        )
    return texts.loc[:, texts.ne("").any()]


def _bold_least(values: pd.Series, write: Callable[[float], str] = written) -> pd.Series:
    """Numbers as texts, the least in bold, nothing for nan."""
    texts = values.map(lambda value: known(write, value))
    return texts.mask(values.eq(values.min()), "**" + texts + "**")


def _times(factor: float) -> str:
    """A ratio as a text: ``2.3 times``."""
    return f"{factor:,.0f} times" if factor >= 10 else f"{factor:.2g} times"


# ── samples of the thesis's benchmarks ───────────────────────────────────────────────


def own_medians(results: Results) -> pd.DataFrame:
    """Seconds of a sample: a row for each (protocol, benchmark), a column for each backend, one launch for all."""
    rows = measured.benchmarks(results)
    rows = with_code(rows[rows["dispatch"].eq("")], both=True)
    rows = rows.assign(benchmark=plots.benchmark_of(rows), repeated=rows["source"].eq(plots.ESR))
    keys = ["results", "benchmark", "where"]
    each = rows.groupby([*keys, "repeated"])["total_s"].median().reset_index().drop_duplicates(keys)
    table = each.pivot(index=keys[:2], columns="where", values="total_s")
    return table.sort_index(key=lambda level: places(level) if level.name == "results" else level)


def _beside_the_thesis(results: Results, medians: pd.DataFrame) -> pd.DataFrame:
    """``own_medians`` as texts, behind the thesis's, which copies the matrix of every step."""
    if medians.empty:
        return NOTHING
    theirs, (protocols, numbers) = measured.thesis_medians(results), zip(*medians.index, strict=True)
    front = pd.DataFrame(index=medians.index)
    front["benchmark"] = ["{}: {:,} x {:,}".format(number, *BENCHMARKS[number]) for number in numbers]
    front["copied to the host"] = [PROTOCOLS[name] for name in protocols]
    for head, who in (
        ("thesis, CPU", theirs["cpu_interpreter"]),
        ("thesis, best GPU", theirs.drop(columns="cpu_interpreter").min(axis=1)),
    ):
        front[head] = [written(who[number]) if name == "every" else "" for name, number in medians.index]
    return front.join(medians.apply(_bold_least, axis=1).rename(columns="`{}`".format))


def by_backend(results: Results) -> pd.DataFrame:
    """Seconds of a sample of the thesis's benchmarks on every backend, the least in bold."""
    return _beside_the_thesis(results, own_medians(results))


def headline(results: Results) -> pd.DataFrame:
    """``by_backend`` for those that ran all benchmarks, with new expressions in every sample."""
    medians = own_medians(results)
    new = ~medians.columns.str.endswith(plots.CODE["kept"])
    complete = new & medians.groupby(level="benchmark").count().gt(0).all()
    return _beside_the_thesis(results, medians.loc[:, complete].dropna(how="all"))


def samples(results: Results) -> pd.DataFrame:
    """Every configuration of the thesis's benchmarks: median, deviation, memory, and the thesis's times."""
    rows = measured.benchmarks(results)
    if rows.empty:
        return NOTHING
    rows = rows.assign(scaled_from=rows.get("scaled_from", np.nan))
    medians = pd.concat(
        [bench.medians(part).assign(scaled_from=steps) for steps, part in rows.groupby("scaled_from", dropna=False)],
        ignore_index=True,
    )
    theirs = measured.thesis_medians(results)
    medians = medians.assign(
        benchmark=plots.benchmark_of(medians), order=places(medians["results"]), source=medians["source"].map(SOURCES)
    )
    for name, who in (("cpu", theirs["cpu_interpreter"]), ("gpu", theirs.drop(columns="cpu_interpreter").min(axis=1))):
        medians[f"thesis_{name}"] = medians["benchmark"].map(who).where(medians["results"].eq("every"))
    medians["configuration"] = medians.apply(_configuration, axis=1)
    return table_of(medians.sort_values(["benchmark", "order", "source", "median_s"]), SAMPLES)


def _configuration(row: Any) -> str:
    scaled = "" if pd.isna(row["scaled_from"]) else f"({row['scaled_from']:.0f} steps, scaled)"
    way = " ".join(filter(None, (f"`{row['backend']}`", row["dispatch"], scaled, plots.CODE.get(row["code"]))))
    return f"{way}, {row['precision']}, {row['dtype']}"


SAMPLES: Cells = {
    "benchmark": "{benchmark}",
    "expressions x points": "{n_exprs:,} ({source}) x {n_points:,}",
    "copied to the host": "{copied}",
    "exprkit": "{configuration}",
    "on": "{device}",
    "median": "**{median_s:s}**",
    "standard deviation": "{sd_s:s}",
    "samples": "{samples}",
    "parsing": "{parse_s:s}",
    "threads busy": "{busy_threads:.1f}",
    "memory, host": "{host_bytes:GB}",
    "memory, device": "{device_bytes:GB}",
    "thesis, CPU": "{thesis_cpu:s}",
    "thesis, best GPU": "{thesis_gpu:s}",
}


def machines(results: Results) -> pd.DataFrame:
    """The machine and the versions of each file of results."""
    return measured.machines(results).drop(columns="warnings", errors="ignore").rename_axis("file").reset_index()


# ── CPU or GPU, and the way to the host ──────────────────────────────────────────────


def boundary(results: Results) -> pd.DataFrame:
    """The number of sizes that CPU and GPU win in each map of sizes, by protocol and number of steps."""
    lines = []
    for _, part in of(results, "map").groupby("file"):
        first = measured.maps_of(part)[0]  # as in a search, each generation new
        for (name, n_steps), seconds in measured.maps_by_protocol(first, figures.CROSSOVER_STEPS):
            gpus = [column for column in seconds if column.partition(",")[0] in ON_GPU]
            cpus = [column for column in seconds if column.startswith("cpu")]
            lead = (seconds[cpus].min(axis=1) / seconds[gpus].min(axis=1)).dropna() if cpus and gpus else NOTHING
            if len(lead) == 0:
                continue
            lost, best = lead.index[lead < 1], seconds.loc[lead.index[lead >= 1], gpus].idxmin(axis=1)
            lines.append(
                {
                    "copied to the host": PROTOCOLS[name],
                    "steps": f"{n_steps:,}",
                    f"won by {', '.join(f'`{cpu}`' for cpu in cpus)}": f"{len(lost)} of {len(lead)}",
                    "these sizes (expressions x points)": _sizes(lost),
                    **{f"won by `{gpu}`": str(int(best.eq(gpu).sum())) for gpu in gpus},
                    "the GPU's largest lead": f"{_times(lead.max())} at {_sizes([lead.idxmax()])}",
                }
            )
    return pd.DataFrame(lines).fillna("")


def _sizes(index: Iterable[tuple[int, int]]) -> str:
    return ", ".join(f"{n_exprs:,} x {n_points:,}" for n_exprs, n_points in index)


def own_data(results: Results) -> pd.DataFrame:
    """Times on Nikuradse's own data over those on synthetic data of the same shape; on a CPU of processor seconds."""
    rows = of(results, "nikuradse")
    seconds = rows["total_s"].where(rows["backend"].isin(ON_GPU), rows["cpu_s"])  # what else runs does not count
    rows = rows.assign(own=rows["dataset"].ne("rough_pipe"), seconds=seconds)
    keys = ["results", "n_exprs", "n_points", "source", "where", "code", "dispatch", "file", "own"]
    each = rows.groupby(keys)["seconds"].median().unstack().reindex(columns=[True, False])
    each = each.assign(ratio=each[True] / each[False]).dropna(subset="ratio")[["ratio"]].reset_index()
    return table_of(each, WORK | WHERE | {"own over synthetic data": "{ratio:.2f}"})


def link(results: Results) -> pd.DataFrame:
    """Steps whose matrices come to the host, on a GPU: bytes a step, seconds, rate, and share of the link's rate."""
    rows = pd.concat([measured.benchmarks(results), of(results, "results", results="half")])
    rows = rows[rows["results"].isin(bench.TO_HOST) & rows["backend"].isin(ON_GPU) & rows["dispatch"].eq("")]
    rows = with_code(rows[rows["source"].eq(plots.DIFFERENT)], both=False)
    if rows.empty:
        return NOTHING
    size = rows["dtype"].map(measured.ITEMSIZE).mask(rows["results"].eq("half"), 2)
    rows = rows.assign(size=rows["n_exprs"] * rows["n_points"] * size, roof=rows["link_bytes_per_s"])
    keys = ["n_exprs", "n_points", "where", "results", "size", "roof"]
    each = rows.groupby(keys, dropna=False)["step_s"].median().reset_index()
    rate = each["size"] / each["step_s"]
    each = each.assign(megabytes=each["size"] / 1e6, gigabytes_per_s=rate / 1e9, share=rate / each["roof"])
    return table_of(each, WORK | WHERE | LINK)


LINK: Cells = {
    "time per step": "**{step_s:s}**",
    "bytes per step": "{megabytes:,.0f} MB",
    "rate": "{gigabytes_per_s:.3g} GB/s",
    "of the link's rate": "{share:.0%}",
}


# ── interpreter or transpiler ────────────────────────────────────────────────────────


def pairs(results: Results) -> pd.DataFrame:
    """Seconds of a step on the device by interpreter and transpiler, and from which step on compiling pays."""
    rows = of(results, "benchmarks", "results", "map", dispatch="", options="")
    rows = rows[rows["n_exprs"].ge(MANY) & rows["backend"].isin(ON_GPU) & rows["results"].isin(STEP_RESULTS)]
    rows = rows.assign(
        kind=rows["code"].mask(rows["backend"].eq("cuda"), "cuda"),
        gives=rows["results"].map(STEP_RESULTS),
        once=rows["total_s"] - rows["steps_s"],
        alone=rows["device_s"].fillna(rows["kernel_s"]).fillna(rows["step_s"]),
    )
    keys = ["gives", "n_exprs", "n_points", "source", "file", "results", "dtype", "precision", "n_steps"]
    each = rows.groupby([*keys, "kind"])[["once", "step_s", "alone"]].median().unstack("kind")
    columns = pd.MultiIndex.from_product([("once", "step_s", "alone"), ("cuda", "anew", "kept")])
    once, step, alone = (each.reindex(columns=columns)[name] for name in ("once", "step_s", "alone"))
    gain = step["cuda"] - step["kept"].fillna(step["anew"])
    work = pd.DataFrame(
        {"interpreter": alone["cuda"], "transpiler": alone["kept"].fillna(alone["anew"])}
        | {"compiling": once["anew"] - once["cuda"]}
    )
    for code in plots.CODE:
        pays = 1 + ((once[code] - once["cuda"]) / gain).clip(lower=0)
        work[code] = pays.mask(gain.le(0) & once[code].notna(), np.inf).map(steps)
    work = work.dropna(subset=list(PAIR)).reset_index()
    work[list(PAIR)] = work[list(PAIR)].apply(_bold_least, axis=1)
    other = work["precision"].map(lambda name: "" if name == "fast" else f", {name}")
    return table_of(work.assign(gives=work["gives"] + other, source=work["source"].replace(SOURCES)), PAIRS)


def steps(count: float) -> str:
    """From which step on something pays, rounded up to two digits; nothing where that is not known."""
    if not np.isfinite(count):
        return "" if np.isnan(count) else "never"
    unit = 10 ** max(len(str(int(count))) - 2, 0)
    return f"{int(np.ceil(count / unit)) * unit:,}"


PAIR = ("interpreter", "transpiler")
PAIRS: Cells = {
    "result of a step": "{gives}",
    "expressions x points": "{n_exprs:,} ({source}) x {n_points:,}",
    "interpreter, device": "{interpreter}",
    "transpiler, device": "{transpiler}",
    "compiling adds": "{compiling:s}",
    "recovered after steps, compiled anew": "{anew}",
    "from cache": "{kept}",
}


# ── growth, blocks, launches ─────────────────────────────────────────────────────────


def growth(results: Results) -> pd.DataFrame:
    """A step of squared errors at the end of a range over that at its beginning, and the exponent of growth there."""
    lines: list[dict[str, str]] = []
    for study, column, words, proportional in GROWING:
        rows = with_code(of(results, study, results="loss"), both=False)
        if column in figures.AT and len(rows):
            other, size, _ = figures.AT[column]
            size = size if rows[other].eq(size).any() else rows[other].max()
            rows, words = rows[rows[other] == size], words.format(size)
        rows = measured_by_all(rows[rows["backend"] != "numpy"], column)
        if rows[column].nunique() >= 2:
            grown = {f"`{where}`": _grown(part, column, proportional) for where, part in rows.groupby("where")}
            lines.append({"more of": words, "from ... to": f"{rows[column].min():,} to {rows[column].max():,}"} | grown)
    return pd.DataFrame(lines).fillna("")


def measured_by_all(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """The rows at those values of a column at which every backend was measured."""
    common = rows.groupby(column)["where"].nunique() == rows["where"].nunique()
    return rows[rows[column].map(common).astype(bool)]


def _grown(rows: pd.DataFrame, column: str, proportional: bool) -> str:
    """``31 times, ^0.97``: over all of the range, and the exponent between its last two values."""
    step = rows["device_s"].fillna(rows["step_s"]).groupby(rows[column]).median()  # on the device alone, if measured
    text = _times(step.iloc[-1] / step.iloc[0])
    if len(step) > 2 and proportional:
        text += f", ^{np.log(step.iloc[-1] / step.iloc[-2]) / np.log(step.index[-1] / step.index[-2]):.2f}"
    return text


def once_and_step(results: Results) -> pd.DataFrame:
    """Seconds that a sample of losses takes once, and for each step, at the most steps that were measured."""
    rows = of(results, "steps_axis", results="loss")
    rows = with_code(rows[rows["backend"].ne("numpy") & rows["n_steps"].gt(1)], both=True)
    rows = rows[rows["n_steps"].eq(rows.groupby("where")["n_steps"].transform("max"))]
    keys = ["where", "n_exprs", "n_points", "tokens_each"]
    each = rows.assign(once=rows["total_s"] - rows["steps_s"]).groupby(keys)[["once", "step_s"]].median().reset_index()
    cells = {"tokens": "{tokens_each}", "once": "{once:s}", "each step": "{step_s:s}"}
    return table_of(each, WHERE | SIZE | cells)


def block_sizes(results: Results) -> pd.DataFrame:
    """Time over the least of each evaluator, by threads of a block: the thesis's samples, our steps."""
    relative = measured.relative_to_best(results)
    texts = relative.apply(lambda line: _bold_least(line, "{:.2f}".format), axis=1)
    return texts.rename(columns=str).rename_axis("", axis=0).reset_index()


def baseline(results: Results) -> pd.DataFrame:
    """Block and stack of a kernel as the thesis's, with a launch for each expression."""
    rows = of(results, "baseline")
    rows = rows.assign(seconds=measured.seconds_for(rows, plots.THESIS_STEPS))
    each = rows.groupby(["block_size", "options"])["seconds"].agg(["median", "std"]).reset_index()
    launches, stack = (
        f"{plots.THESIS_STEPS} launches of every expression",
        each["options"].astype(str).str.split("=").str[-1],
    )
    cells = {"block": "{block_size}", "stack": "{stack}", launches: "{median:s}", "standard deviation": "{std:s}"}
    return table_of(each.assign(stack=stack), cells)


def launches(results: Results) -> pd.DataFrame:
    """Samples with one launch per expression, scaled to 100 steps, beside one launch for all."""
    rows = measured.benchmarks(results)
    rows = with_code(rows.assign(benchmark=plots.benchmark_of(rows), apart=rows["dispatch"].ne("")), both=True)
    keys = ["benchmark", "results", "where", "source", "n_exprs", "n_points"]
    each = rows.groupby([*keys, "apart"])["total_s"].median().unstack().reindex(columns=[True, False])
    each = each.set_axis(["apart", "whole"], axis=1).dropna().reset_index()
    cells = {"a launch per expression": "{apart:s}", "one launch": "**{whole:s}**", "ratio": "{ratio:x}"}
    each = each.assign(ratio=each["apart"] / each["whole"])
    return table_of(each, {"benchmark": "{benchmark}"} | WORK | WHERE | cells)


def busy(results: Results) -> pd.DataFrame:
    """The share of a step in which the device works, and what a cold second-level cache costs."""
    rows = of(results, "benchmarks", "results", source=plots.DIFFERENT, dispatch="", precision="fast", options="")
    rows = with_code(rows[rows["device_s"].notna()], both=False)
    rows = rows.assign(gives=rows["results"].map(STEP_RESULTS))
    keys, seconds = ["gives", "n_exprs", "n_points", "where"], ["step_s", "device_s", "device_cold_s"]
    each = rows.groupby(keys)[seconds].median().reset_index()
    each["share"] = (each["device_s"] / each["step_s"]).clip(upper=1)
    return table_of(each, {"result of a step": "{gives}"} | SIZE | WHERE | BUSY)


BUSY: Cells = {
    "step of a sample": "{step_s:s}",
    "on the device alone": "{device_s:s}",
    "share": "{share:.0%}",
    "with a cold L2": "{device_cold_s:s}",
}


# ── stages, sizes, whole searches ────────────────────────────────────────────────────


def stages(results: Results) -> pd.DataFrame:
    """Seconds of reading, lowering, writing PTX and compiling, by number of expressions."""
    usual = {"source": plots.DIFFERENT, "dispatch": "", "dtype": "float32", "precision": "fast"}
    rows = with_code(of(results, *measured.OF_THE_THESIS, n_points=BENCHMARKS[2][1], **usual), both=True)
    each = rows.groupby(["n_exprs", "where"])[list(STAGES)].median().reset_index()
    cells = {words: f"{{{name}:s}}" for name, words in STAGES.items()}
    each = each.dropna(subset=list(STAGES), how="all")
    return table_of(each, {"expressions": "{n_exprs:,}"} | WHERE | cells)


def _every_run(results: Results, study: str) -> pd.DataFrame:
    """The samples of a study; a CPU's matrix of the last step is that of every step, and left out."""
    rows = with_code(of(results, study), both=True)
    return rows[rows["backend"].isin(ON_GPU) | rows["results"].ne("last")]


def search(results: Results) -> pd.DataFrame:
    """Seconds of as many samples, one after the other, as the thesis's search has generations."""
    rows = _every_run(results, "search").sort_values("results", key=places, kind="stable")
    keys = ["results", "where", "n_exprs", "n_points", "n_steps"]
    total = rows.groupby(keys, sort=False)["total_s"]
    seconds = total.apply(lambda each: each.iloc[:GENERATIONS].sum())
    each = seconds[total.size() >= GENERATIONS].rename("seconds").reset_index()
    each["count"] = each["n_exprs"] * each["n_points"] * each["n_steps"] * GENERATIONS
    each["per_second"] = each["count"] / each["seconds"]
    cells = {"evaluations": "{count:.2g}", f"{GENERATIONS} generations": "**{seconds:s}**"}
    cells |= {"evaluations per second": "{per_second:.2g}"}
    return table_of(each, {"copied to the host": "{copied}"} | WHERE | cells)


def sizes(results: Results, study: str) -> pd.DataFrame:
    """Time, work of the CPU and memory of every configuration of a study."""
    rows = _every_run(results, study)
    if rows.empty:
        return NOTHING
    rows = rows.assign(order=places(rows["results"])).sort_values(["n_exprs", "order", "n_points", "where"])
    names = rows.groupby(list(bench.CONFIGURATION), dropna=False, sort=False)["where"].first()
    each = bench.medians(rows.drop(columns="file")).assign(where=list(names))
    return table_of(each.assign(tokens=each["n_tokens"] / each["n_exprs"]), SIZES)


SIZES: Cells = {
    **WORK,
    "tokens": "{tokens:.0f}",
    **WHERE,
    "steps": "{n_steps:,}",
    "a sample": "**{median_s:s}**",
    "standard deviation": "{sd_s:s}",
    "a step": "{step_s:s}",
    "of it on the device": "{device_s:s}",
    "threads busy": "{busy_threads:.1f}",
    "memory, host": "{host_bytes:GB}",
    "memory, device": "{device_bytes:GB}",
}


# ── other measurements, of scripts ───────────────────────────────────────────────────


def contraction(results: Results) -> pd.DataFrame:
    """Instructions, and at most time, that fused multiplication and addition saves."""
    value, note = results.scripts["value"], results.scripts["note"]
    ratios = {
        "cpu without the products": "cpu, products left out",
        "cuda without the products": "cuda, products left out",
        "ptx": "fused beside apart",
    }
    lines = []
    for name, saved in value.filter(regex=", instructions saved$").items():
        name = str(name).rpartition(",")[0]
        errors = re.findall(r"error ([^,]*),", " ".join(str(note.get(f"{name}, {how}")) for how in ("apart", "fused")))
        lines.append(
            {"expressions": name, "instructions saved": f"{saved:.1f}%"}
            | {head: known("{:.2f}".format, value.get(f"{name}, {what}", np.nan)) for head, what in ratios.items()}
            | {"errors of ptx": " / ".join(errors)}
        )
    frame = pd.DataFrame(lines)
    return frame.loc[:, frame.ne("").any()]


def specialised(results: Results) -> pd.DataFrame:
    """Registers and times of kernels with and without powers."""
    value, note = results.scripts["value"], results.scripts["note"]
    lines = []
    for what, ratio in value.filter(regex=", without over with$").items():
        size, _, task = str(what).removesuffix(", without over with").rpartition(", ")
        kinds = ("with powers", "without")
        registers = [note[f"{size}, first losses {kind}"].partition(" ")[0] for kind in kinds]
        seconds = [written(1e-6 * value[f"{size}, {task} {kind}"]) for kind in kinds]
        lines.append((task, size, *registers, *seconds, f"{ratio:.2f}"))
    head = (
        "result of a step",
        "precision, points",
        "registers, all operators",
        "registers without powers",
        "time, all operators",
        "time without powers",
        "ratio",
    )
    return pd.DataFrame(lines, columns=head)


TABLES: dict[str, Callable[[Results], pd.DataFrame]] = {  # name between a page's marks
    "headline": headline, "samples": samples, "machines": machines, "by backend": by_backend, "boundary": boundary,
    "own data": own_data, "link": link, "pairs": pairs, "growth": growth, "once and step": once_and_step,
    "block sizes": block_sizes, "baseline": baseline, "launches": launches, "busy": busy, "stages": stages,
    "memory": lambda results: sizes(results, "memory"), "large": lambda results: sizes(results, "large"),
    "variants": lambda results: sizes(results, "variants"), "search": search, "contraction": contraction,
    "specialised": specialised,
}  # fmt: skip
