"""Tables of the recorded results, each a function: results in, a table of texts out, empty where nothing is measured.

``readme`` writes them between the marks of the pages in ``data/results``, ``comparison.ipynb`` shows those pages.  A
table's ``attrs["origin"]`` is a sentence on machines and commits that its samples are from.

    >>> from exprkit.study import measured, tables
    >>> tables.block_sizes(measured.read_results("data/results")).columns[:3].tolist()
    ['', '64', '128']
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from exprkit.errors import brought_by, duration
from exprkit.study import bench, measured, plots, records, timed_device
from exprkit.study.measured import ON_GPU, Results, samples_of, with_code
from exprkit.study.plots import BENCHMARKS, PROTOCOLS, gigabytes, protocol_ranks, text_or_blank
from exprkit.study.workload import SOURCES

with brought_by("notebooks"):
    import pandas as pd

STEP_RESULTS = {"every": "matrix to the host", "last": "matrix", "loss": "errors"}
STAGES = {"parse_s": "read", "lower_s": "programs", "emit_s": "structures and PTX", "compile_s": "machine code"}
GENERATIONS = 54  # of the search that the thesis estimates
COPIED: dict[str, str] = PROTOCOLS | {"half": "matrix of every step, 16 bits", "fit": "fitted parameters"}
ONE_STEP = "matrix"  # of one step, which is every step's and the last one's
HIDDEN = "hidden by the host"
NOTHING = pd.DataFrame()
Cells = dict[str, str]  # heading: the text of a cell, with fields for columns of the row, as ``{step_s:s}``
SIZE = {"expressions x points": "{n_exprs:,} x {n_points:,}"}
WORK: Cells = {"copied to the host": "{copied}"} | SIZE
WHERE = {"": "`{where}`"}


class _CellFormatter(string.Formatter):
    """Fields of cells: a format ``s`` is of seconds, ``GB`` of bytes, ``x`` of a ratio."""

    def format_field(self, value: Any, format_spec: str) -> str:
        own = {"s": duration, "GB": gigabytes, "x": _times}.get(format_spec)
        return own(value) if own else str(super().format_field(value, format_spec))


def table_of(rows: pd.DataFrame, cells: Cells, samples: pd.DataFrame) -> pd.DataFrame:
    """A table of texts, a line for each row; a cell with a field that is nan is empty, a column of such is left out."""
    if rows.empty:
        return NOTHING
    words, texts = _CellFormatter(), pd.DataFrame()
    if "results" in rows:
        rows = rows.assign(copied=rows["results"].map(COPIED))
    lines: list[Any] = rows.to_dict("records")
    for head, cell in cells.items():
        fields = [name for _, name, *_ in words.parse(cell) if name]
        texts[head] = pd.Series([words.vformat(cell, (), line) for line in lines]).mask(
            rows[fields].isna().any(axis=1).to_numpy(), ""
        )
    return _with_origin(samples, texts.loc[:, texts.ne("").any()])


def _with_origin(samples: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The table, its ``attrs["origin"]`` the machines and commits of its samples."""
    table.attrs["origin"] = measured.origin(samples)
    return table


def _bold_least(values: pd.Series, write: Callable[[float], str] = duration) -> pd.Series:
    """Numbers as texts, the least in bold, an empty text for nan."""
    texts = values.map(lambda value: text_or_blank(write, value))
    return texts.mask(values.eq(values.min()), "**" + texts + "**")


def _ratio(factor: float) -> str:
    """A ratio as a text: ``2.3``, ``1,234``."""
    return f"{factor:,.0f}" if factor >= 10 else f"{factor:.2g}"


def _times(factor: float) -> str:
    """The same in words: ``2.3 times``."""
    return f"{_ratio(factor)} times"


# ── samples of the thesis's benchmarks ───────────────────────────────────────────────


def _own_samples(results: Results) -> pd.DataFrame:
    """Our samples of the benchmarks, one launch for all, a CPU's at its best number of threads."""
    rows = measured.benchmarks(results)
    rows = with_code(rows[rows["dispatch"].eq("")], both=True)
    rows = rows.assign(benchmark=plots.benchmark_of(rows), repeated=rows["source"].eq(plots.ESR))
    return measured.on_best_threads(rows, "benchmark", "results", "repeated")


def own_medians(results: Results) -> pd.DataFrame:
    """Seconds of a sample: a row for each (protocol, benchmark), a column for each backend, one launch for all."""
    keys = ["results", "benchmark", "where"]
    each = _own_samples(results).groupby([*keys, "repeated"])["total_s"].median().reset_index().drop_duplicates(keys)
    table = each.pivot(index=keys[:2], columns="where", values="total_s")
    return table.sort_index(key=lambda level: protocol_ranks(level) if level.name == "results" else level)


def headline(results: Results) -> pd.DataFrame:
    """Seconds of a sample of the thesis's benchmarks on every backend that ran all of them, the least in bold."""
    medians = own_medians(results)
    complete = medians.groupby(level="benchmark").count().gt(0).all()
    medians = medians.loc[:, complete].dropna(how="all")
    if medians.empty:
        return NOTHING
    theirs, (protocols, numbers) = measured.thesis_medians(results), zip(*medians.index, strict=True)
    front = pd.DataFrame(index=medians.index)
    front["benchmark"] = ["{}: {:,} x {:,}".format(number, *BENCHMARKS[number]) for number in numbers]
    front["copied to the host"] = [PROTOCOLS[name] for name in protocols]
    for head in ("CPU", "best GPU"):  # the thesis copies the matrix of every step
        who = theirs[head]
        front[f"thesis, {head}"] = [duration(who[number]) if name == "every" else "" for name, number in medians.index]
    samples = _own_samples(results)
    shown = medians.apply(_bold_least, axis=1).rename(columns="`{}`".format)
    return _with_origin(samples[samples["where"].isin(medians.columns)], front.join(shown))


def samples(results: Results) -> pd.DataFrame:
    """Every configuration of the thesis's benchmarks: median, deviation, memory, and the thesis's times."""
    rows = measured.benchmarks(results)
    if rows.empty:
        return NOTHING
    medians = pd.concat(
        [bench.medians(part).assign(scaled_from=steps) for steps, part in rows.groupby("scaled_from", dropna=False)],
        ignore_index=True,
    )
    theirs = measured.thesis_medians(results)
    medians = medians.assign(
        benchmark=plots.benchmark_of(medians),
        order=protocol_ranks(medians["results"]),
        source=medians["source"].map(SOURCES),
    )
    for head in ("CPU", "best GPU"):
        medians[head] = medians["benchmark"].map(theirs[head]).where(medians["results"].eq("every"))
    medians["configuration"] = medians.apply(_configuration, axis=1)
    return table_of(medians.sort_values(["benchmark", "order", "source", "median_s"]), SAMPLES, rows)


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
    "thesis, CPU": "{CPU:s}",
    "thesis, best GPU": "{best GPU:s}",
}


def machines(results: Results) -> pd.DataFrame:
    """The machine and the versions of each file of results."""
    return measured.machines(results).drop(columns="warnings", errors="ignore").rename_axis("file").reset_index()


# ── CPU or GPU, and the way to the host ──────────────────────────────────────────────


def boundary(results: Results) -> pd.DataFrame:
    """The number of sizes that CPU and GPU win in each map of sizes, by protocol and number of steps."""
    lines = []
    rows = measured.map_rows(results, "anew")  # as in a search, each generation new
    for _, part in rows.groupby("file"):
        for name, n_steps in measured.MAPS:
            seconds = measured.map_seconds(part, name, n_steps)
            gpus = [column for column in seconds if column.partition(",")[0] in ON_GPU]
            cpus = [column for column in seconds if column.startswith("cpu")]
            lead = (seconds[cpus].min(axis=1) / seconds[gpus].min(axis=1)).dropna() if cpus and gpus else NOTHING
            if len(lead) == 0 or (name, n_steps) == ("last", 1):  # which is that of every step
                continue
            lost, best = lead.index[lead < 1], seconds.loc[lead.index[lead >= 1], gpus].idxmin(axis=1)
            lines.append(
                {
                    "copied to the host": ONE_STEP if n_steps == 1 and name == "every" else PROTOCOLS[name],
                    "steps": f"{n_steps:,}",
                    f"won by {', '.join(f'`{cpu}`' for cpu in cpus)}": f"{len(lost)} of {len(lead)}",
                    "these sizes (expressions x points)": _sizes(lost),
                    **{f"won by `{gpu}`": str(int(best.eq(gpu).sum())) for gpu in gpus},
                    "the GPU's largest lead": f"{_times(lead.max())} at {_sizes([lead.idxmax()])}",
                }
            )
    table = pd.DataFrame(lines).fillna("")
    return _with_origin(rows, table[sorted(table, key=lambda head: "lead" in head)])  # that last


def _sizes(index: Iterable[tuple[int, int]]) -> str:
    return ", ".join(f"{n_exprs:,} x {n_points:,}" for n_exprs, n_points in index)


def own_data(results: Results) -> pd.DataFrame:
    """Times on Nikuradse's own data over those on synthetic data of the same shape; on a CPU of processor seconds."""
    rows = samples_of(results, "nikuradse")
    seconds = rows["total_s"].where(rows["backend"].isin(ON_GPU), rows["cpu_s"])  # what else runs does not count
    rows = rows.assign(own=rows["dataset"].ne("rough_pipe"), seconds=seconds)
    keys = ["results", "n_exprs", "n_points", "source", "where", "code", "dispatch", "file", "commit", "own"]
    each = rows.groupby(keys)["seconds"].median().unstack().reindex(columns=[True, False])
    each = each.assign(ratio=each[True] / each[False]).dropna(subset="ratio")[["ratio"]].reset_index()
    return table_of(each, WORK | WHERE | {"own over synthetic data": "{ratio:.2f}"}, rows)


def link(results: Results) -> pd.DataFrame:
    """Steps whose matrices come to the host, on a GPU: copies, bytes, seconds, rate, and share of the link's rate."""
    rows = pd.concat([measured.benchmarks(results), samples_of(results, "results", results="half")])
    rows = rows[rows["results"].isin((*bench.TO_HOST, "loss")) & rows["backend"].isin(ON_GPU) & rows["dispatch"].eq("")]
    rows = with_code(rows[rows["source"].eq(plots.DIFFERENT)], both=False)
    if rows.empty:
        return NOTHING
    size = rows["dtype"].map(measured.ITEMSIZE).mask(rows["results"].eq("half"), 2)
    size = (size * rows["n_exprs"] * rows["n_points"]).where(rows["results"].ne("loss"))
    rows = rows.assign(size=size, order=protocol_ranks(rows["results"].replace("half", "every")))
    keys, numbers = (
        ["n_exprs", "n_points", "order", "where", "results"],
        ["step_s", "size", *timed_device.TRANSFERS, "link_bytes_per_s"],
    )
    each = rows.groupby(keys)[numbers].median().reset_index()
    rate = each["size"] / each["step_s"]
    each = each.assign(
        rate=rate / 1e9, share=rate / each["link_bytes_per_s"], **{n: each[n] / 1e6 for n in timed_device.TRANSFERS[:2]}
    )
    return table_of(each, WORK | WHERE | LINK, rows)


LINK: Cells = {
    "time per step": "**{step_s:s}**",
    "to the device": "{bytes_in:,.3g} MB",
    "to the host": "{bytes_out:,.3g} MB",
    "copies": "{transfers:.0f}",
    "rate of the matrix": "{rate:.3g} GB/s",
    "of the link's rate": "{share:.0%}",
}


# ── interpreter or transpiler ────────────────────────────────────────────────────────


def pair_rows(results: Results) -> pd.DataFrame:
    """A row for each piece of work that interpreter and transpiler were measured with in one file at one commit.

    ``device`` and ``host`` are seconds of a step on the device alone and in a sample, of the interpreter and (``_ptx``)
    of the transpiler; ``anew`` and ``kept`` what a sample of the transpiler takes once, more than the interpreter's.
    """
    rows = samples_of(results, "benchmarks", "results", "map", "large", dispatch="", options="")
    rows = rows[rows["backend"].isin(ON_GPU) & rows["n_steps"].ge(measured.ENOUGH_STEPS)]
    rows = rows[rows["results"].isin(("last", "loss"))]  # on the device, every step's matrix is the last one's
    rows = rows.assign(
        kind=rows["code"].mask(rows["backend"].eq("cuda"), "cuda"), once=rows["total_s"] - rows["steps_s"]
    )
    keys = ["results", "n_exprs", "n_points", "source", "file", "commit", "precision", "n_steps"]
    each = rows.groupby([*keys, "kind"])[["once", "step_s", "device_s"]].median().unstack("kind")
    columns = pd.MultiIndex.from_product([("once", "step_s", "device_s"), ("cuda", "anew", "kept")])
    once, host, device = (each.reindex(columns=columns)[name] for name in ("once", "step_s", "device_s"))
    table = pd.DataFrame(
        {"device": device["cuda"], "device_ptx": device["kept"].fillna(device["anew"])}
        | {"host": host["cuda"], "host_ptx": host["kept"].fillna(host["anew"])}
        | {code: once[code] - once["cuda"] for code in plots.CODE}
    )
    table = table.dropna(subset=["device", "device_ptx"]).reset_index()
    order = table["results"].map(list(STEP_RESULTS)[::-1].index)
    return table.assign(order=order).sort_values(["order", "n_points", "n_exprs"], ignore_index=True)


def pays_after(pairs: pd.DataFrame, code: str, clock: str) -> pd.Series:
    """From which step on the transpiler is ahead, by a ``clock`` ("device" or "host"); inf: never, nan: not known."""
    gain = pairs[clock] - pairs[f"{clock}_ptx"]
    return (1 + (pairs[code] / gain).clip(lower=0)).mask(gain.le(0) & pairs[code].notna(), np.inf)


def pairs(results: Results) -> pd.DataFrame:
    """Seconds of a step by interpreter and transpiler, on the device and in a sample; when compiling pays."""
    rows = pair_rows(results)
    for clock in ("device", "host"):
        for code in plots.CODE:
            after = pays_after(rows, code, clock).map(steps)
            hidden = after.eq("never") & rows["device_ptx"].lt(rows["device"])  # a step waits for the host either way
            rows[f"{clock}_{code}"] = after.mask(hidden, HIDDEN)
        both = [clock, f"{clock}_ptx"]
        rows[both] = rows[both].apply(_bold_least, axis=1)
    other = rows["precision"].map(lambda name: "" if name == "fast" else f", {name}")
    rows = rows.assign(gives=rows["results"].map(STEP_RESULTS) + other, source=rows["source"].replace(SOURCES))
    return table_of(rows, PAIRS, samples_of(results, "benchmarks", "results", "map", "large", backend="ptx"))


def steps(count: float) -> str:
    """From which step on something pays, rounded up to two digits; nothing where that is not known."""
    if not np.isfinite(count):
        return "" if np.isnan(count) else "never"
    unit = 10 ** max(len(str(int(count))) - 2, 0)
    return f"{int(np.ceil(count / unit)) * unit:,}"


PAIRS: Cells = {
    "result of a step": "{gives}",
    "expressions x points": "{n_exprs:,} ({source}) x {n_points:,}",
    "interpreter, device": "{device}",
    "transpiler, device": "{device_ptx}",
    "compiling adds": "{anew:s}",
    "device: pays after steps, compiled anew": "{device_anew}",
    "device: from cache": "{device_kept}",
    "interpreter, step": "{host}",
    "transpiler, step": "{host_ptx}",
    "host: pays after steps, compiled anew": "{host_anew}",
    "host: from cache": "{host_kept}",
}


# ── growth, blocks, launches ─────────────────────────────────────────────────────────


def growth(results: Results) -> pd.DataFrame:
    """A step of squared errors at the end of a range over that at its beginning, and the exponent of growth there."""
    lines, used = list[dict[str, str]](), []
    for rows, column, words, _ in measured.axes(results):
        rows = measured_by_all(rows[rows["backend"] != "numpy"], column)
        if rows[column].nunique() >= 2:
            used.append(rows)
            grown = {f"`{where}`": _grown(part, column) for where, part in rows.groupby("where")}
            lines.append({"more of": words, "from ... to": f"{rows[column].min():,} to {rows[column].max():,}"} | grown)
    return _with_origin(pd.concat(used), pd.DataFrame(lines).fillna("")) if used else NOTHING


def measured_by_all(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """The rows at those values of a column at which every backend was measured."""
    common = rows.groupby(column)["where"].nunique() == rows["where"].nunique()
    return rows[rows[column].map(common).astype(bool)]


def _grown(rows: pd.DataFrame, column: str) -> str:
    """``31 times, ^0.97``: over all of the range, and the exponent between its last two values."""
    step = rows.groupby(column)["alone"].median()
    text = _times(step.iloc[-1] / step.iloc[0])
    if len(step) > 2:
        text += f", ^{np.log(step.iloc[-1] / step.iloc[-2]) / np.log(step.index[-1] / step.index[-2]):.2f}"
    return text


def block_sizes(results: Results) -> pd.DataFrame:
    """Time over the least of each evaluator, by threads of a block: the thesis's samples, our steps."""
    relative = measured.relative_to_best(results)
    texts = relative.apply(lambda line: _bold_least(line, "{:.2f}".format), axis=1)
    return _with_origin(
        measured.block_samples(results), texts.rename(columns=str).rename_axis("", axis=0).reset_index()
    )


def thesis_steps(results: Results) -> pd.DataFrame:
    """The thesis's optimisation steps, a launch for each expression: ours in its order, and its own gains."""
    return table_of(measured.thesis_steps(results), THESIS_STEPS, samples_of(results, "thesis_steps"))


THESIS_STEPS: Cells = {
    "": "{evaluator}: {change}",
    "block": "{block_size}",
    "expressions x points": "{n_exprs:,} x {n_points:,}",
    "100 steps": "**{median:s}**",
    "standard deviation": "{sd:s}",
    "samples": "{samples}",
    "of the first": "{relative:.0%}",
    "in the thesis": "{theirs:.0%}",
}


def launches(results: Results) -> pd.DataFrame:
    """A step from the thesis's way to ours: launches for every expression, then one launch for all."""
    rows = measured.launch_samples(results)
    table = rows.pivot_table("step_s", ["order", "way"], ["benchmark", "place"], "median", sort=True)
    if table.empty:
        return NOTHING
    heads = [f"{number}: {list(BACK.values())[place]}" for number, place in table.columns]
    texts = table.apply(_bold_least).set_axis(heads, axis=1).droplevel("order")
    return _with_origin(rows, texts.rename_axis("a step, benchmark 2 and 3").reset_index())


BACK = {"every": "matrix to the host", "last": "matrix, left on the device", "loss": "losses"}


def busy(results: Results) -> pd.DataFrame:
    """The share of a step in which the device works, and what a cold second-level cache costs."""
    rows = samples_of(
        results, "benchmarks", "results", source=plots.DIFFERENT, dispatch="", precision="fast", options=""
    )
    rows = with_code(rows[rows["device_s"].notna()], both=False)
    rows = rows.assign(gives=rows["results"].map(STEP_RESULTS))
    keys, seconds = ["gives", "n_exprs", "n_points", "where"], ["step_s", "device_s", "device_cold_s"]
    each = rows.groupby(keys)[seconds].median().reset_index()
    each["share"] = (each["device_s"] / each["step_s"]).clip(upper=1)
    return table_of(each, {"result of a step": "{gives}"} | SIZE | WHERE | BUSY, rows)


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
    rows = with_code(samples_of(results, *measured.OF_THE_THESIS, n_points=BENCHMARKS[2][1], **usual), both=True)
    each = rows.groupby(["n_exprs", "where"])[list(STAGES)].median().reset_index()
    cells = {words: f"{{{name}:s}}" for name, words in STAGES.items()}
    each = each.dropna(subset=list(STAGES), how="all")
    return table_of(each, {"expressions": "{n_exprs:,}"} | WHERE | cells, rows)


def _every_run(results: Results, study: str) -> pd.DataFrame:
    """The samples of a study; a CPU's matrix of the last step is that of every step, and left out."""
    rows = with_code(samples_of(results, study), both=True)
    return rows[rows["backend"].isin(ON_GPU) | rows["results"].ne("last")]


def search(results: Results) -> pd.DataFrame:
    """Seconds of as many samples, one after the other, as the thesis's search has generations."""
    rows = _every_run(results, "search").sort_values("results", key=protocol_ranks, kind="stable")
    keys = ["results", "where", "n_exprs", "n_points", "n_steps"]
    total = rows.groupby(keys, sort=False)["total_s"]
    seconds = total.apply(lambda each: each.iloc[:GENERATIONS].sum())
    each = seconds[total.size() >= GENERATIONS].rename("seconds").reset_index()
    each["count"] = each["n_exprs"] * each["n_points"] * each["n_steps"] * GENERATIONS
    each["per_second"] = each["count"] / each["seconds"]
    cells = {"evaluations": "{count:.2g}", f"{GENERATIONS} generations": "**{seconds:s}**"}
    cells |= {"evaluations per second": "{per_second:.2g}"}
    return table_of(each, {"copied to the host": "{copied}"} | WHERE | cells, rows)


def memory(results: Results) -> pd.DataFrame:
    """Time and memory of what did not fit in the thesis's memory."""
    rows = _every_run(results, "memory")
    if rows.empty:
        return NOTHING
    rows = rows.assign(order=protocol_ranks(rows["results"])).sort_values(["n_exprs", "order", "n_points", "where"])
    names = rows.groupby(list(bench.CONFIGURATION), dropna=False, sort=False)["where"].first()
    each = bench.medians(rows.drop(columns="file")).assign(where=list(names))
    return table_of(each, MEMORY, rows)


MEMORY: Cells = {
    **WORK,
    **WHERE,
    "steps": "{n_steps:,}",
    "a sample": "**{median_s:s}**",
    "a step": "{step_s:s}",
    "of it on the device": "{device_s:s}",
    "memory, host": "{host_bytes:GB}",
    "memory, device": "{device_bytes:GB}",
}


# ── the thesis's questions ───────────────────────────────────────────────────────────


def _when_it_pays(results: Results) -> str:
    """How often the transpiler is faster, and how often compiling is made up for, by the device's times of losses."""
    rows = pair_rows(results)
    rows = rows[rows["results"].eq("loss")]
    if rows.empty:
        return ""
    ratio, after = rows["device"] / rows["device_ptx"], pays_after(rows, "anew", "device").dropna()
    soon = [f"{int(after.le(count).sum())} within {count:,} steps" for count in (100, 1000, 10_000)]
    return (
        f"losses: faster on the device in {int(ratio.gt(1).sum())} of {len(rows)} cases, {_times(ratio.max())} at most;"
        f" of {len(after)} that were compiled, compiling is made up for in {', '.join(soon)}"
    )


def _gpu_over_cpu(results: Results) -> str:
    """How many times as fast as the best CPU the best GPU backend is, of each protocol on the three benchmarks."""
    medians = own_medians(results)
    gpus = [name for name in medians if name.partition(",")[0] in ON_GPU]
    ratio = (medians.filter(regex="^cpu").min(axis=1) / medians[gpus].min(axis=1)).dropna()
    lines = [
        f"{PROTOCOLS[str(name)]}: {', '.join(map(_ratio, part))}"
        for name, part in ratio.groupby(level="results", sort=False)
        if len(part) == len(BENCHMARKS)
    ]
    return f"CPU's time over the GPU's, benchmarks 1, 2, 3: {'; '.join(lines)}" * bool(lines)


def _worst_block(results: Results) -> str:
    """By how much the worst block size is slower than the best, of each of our evaluators."""
    own = measured.relative_to_best(results).filter(regex="^exprkit (?!.*per-expression)", axis=0).max(axis=1)
    return "; ".join(f"{name}: {worst - 1:.0%} at most" for name, worst in own.items())


def _gain_of_one_launch(results: Results) -> str:
    """The best step with a launch for each expression over one launch for all, by benchmark."""
    rows = measured.launch_samples(results)
    each = rows.groupby(["benchmark", "results", "dispatch", "way"])["step_s"].median().groupby(level=[0, 1, 2]).min()
    table = each.unstack("dispatch").reindex(columns=["per-expression", ""]).dropna()
    lines = [
        f"{number}: {_times(line.iloc[0] / line.iloc[1])} ({BACK[back]})" for (number, back), line in table.iterrows()
    ]
    return f"over the best launches for each expression, benchmark {'; '.join(lines)}" * bool(lines)


def _cell(table: str, column: str, *texts: str) -> Callable[[Results], str]:
    """The text in the first column so called, in the first row that has all the texts, without asterisks; else ""."""

    def text(results: Results) -> str:
        frame = TABLES[table](results)
        head = next((name for name in frame if str(name).startswith(column)), None)
        lines = frame.astype(str).agg("|".join, axis=1) if head else pd.Series(dtype=str)
        with_all = np.logical_and.reduce([lines.str.contains(text, regex=False) for text in texts])
        return str(frame[head][with_all].iloc[0]).replace("*", "") if np.any(with_all) else ""

    return text


LOSSES, EVERY = ("errors", "`cuda"), ("10,000 x 10,860", "`cuda", "every step")  # rows of busy, of link
ANSWERS: dict[str, tuple[str, tuple[Callable[[Results], str], ...]]] = {  # page: the answer, its numbers
    "cpu_or_gpu": ("{}", (_gpu_over_cpu,)),
    "interpreter_or_transpiler": ("{}", (_when_it_pays,)),
    "launches": ("{}", (_gain_of_one_launch,)),
    "block_size": ("{}", (_worst_block,)),
    "stages": (
        "250,000: read in {}, lowered in {}, machine code in {}; 10,000: machine code in {}",
        (
            *(_cell("stages", part, "250,000", "compiling") for part in ("read", "programs", "machine code")),
            _cell("stages", "machine code", "10,000", "compiling"),
        ),
    ),
    "busy": (
        "losses of 10,000 x 362: {} of a step; x 10,860: {}; x 108,600: {}",
        tuple(_cell("busy", "share", f"10,000 x {points}|", *LOSSES) for points in ("362", "10,860", "108,600")),
    ),
    "link": (
        "{}, {} of the link's rate (benchmark 3); a step {}, in 16 bits {}",
        (
            *(_cell("link", column, *EVERY) for column in ("rate", "of the link's rate", "time")),
            _cell("link", "time", *EVERY, "16 bits"),
        ),
    ),
    "memory": (
        "10 steps and the last matrix {}, losses {}",
        tuple(_cell("memory", "a sample", f"{back}|250,000", "`cuda") for back in ("last step", "losses only")),
    ),
    "search": ("losses of 54 generations {}", (_cell("search", f"{GENERATIONS} generations", "losses", "`cuda"),)),
    "growth": (
        "100 times the expressions {}; 1,000 times the points {}",
        tuple(_cell("growth", "`cuda", f"{what},") for what in ("expressions", "points")),
    ),
}


def answers(results: Results) -> pd.DataFrame:
    """Ours to the thesis's questions, as far as they are measured; the questions are the pages' titles."""
    lines = []
    for page, (ours, parts) in ANSWERS.items():
        texts = [part(results) for part in parts]
        title = (records.published_folder() / "tables" / f"{page}.md").read_text(encoding="utf-8").partition("\n")[0]
        if all(texts):
            lines.append((f"[{title.removeprefix('# ')}](tables/{page}.md)", ours.format(*texts)))
    on_gpu = results.samples["file"].isin(results.samples["file"][results.samples["backend"].isin(ON_GPU)])
    return _with_origin(results.samples[on_gpu], pd.DataFrame(lines, columns=["question", "answer"]))


TABLES: dict[str, Callable[[Results], pd.DataFrame]] = {  # name between a page's marks
    "headline": headline, "samples": samples, "machines": machines, "boundary": boundary, "own data": own_data,
    "link": link, "pairs": pairs, "growth": growth, "block sizes": block_sizes, "thesis steps": thesis_steps,
    "launches": launches, "busy": busy, "stages": stages, "memory": memory, "search": search, "answers": answers,
}  # fmt: skip
