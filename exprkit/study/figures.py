"""The study's figures, from recorded results: those of the thesis, and further ones.

In: what ``measured`` makes of the recorded samples.  Out: figures with captions, as ``python -m exprkit figures``
writes them all:

    >>> from exprkit.study import figures
    >>> figures.benchmark(figures.read_results("data/results")).name
    'benchmark'

A figure whose measurements are missing is None, and its caption says what measures them; one that lacks a part says
so in its caption.  Titles and captions tell what is in the samples, and they name what made them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from exprkit.errors import brought_by
from exprkit.runtime import files
from exprkit.study import bench, case_figures, measured, plots
from exprkit.study.measured import Results, kernel_table, machines, medians, of, read_results, results_of, with_code
from exprkit.study.plots import BENCHMARKS, Drawing, colour_of, quiet, written
from exprkit.study.workload import SOURCES

with brought_by("notebooks"):
    import matplotlib.pyplot as plt
    import pandas as pd
    import seaborn as sns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Results", "drawings", "kernel_table", "machines", "medians", "read_results", "results_of", "write_all"]

NOTES = (
    f"Marks, in this order: {', '.join(plots.PROTOCOLS.values())} copied to the host (in the thesis the matrix of every"
    f" step). At the right samples over their median, from {plots.SPREAD[0]} to {plots.SPREAD[1]}; those of fewer than"
    f" {plots.FEW} as points. per-expression: one launch per expression, as in the thesis, of 10 steps scaled to 100."
    " compiling: each sample compiles every structure; from cache: it finds the machine code there."
)
THESIS = "The thesis: 50 samples, Intel i5-12500 (12 threads) and RTX 3060 Ti."
MAKE_STUDY = "`make study` measures it on this machine's CPU"
MAKE_STUDY_GPU = "`make study-gpu` measures it on a machine with an NVIDIA GPU"
ROOFLINE = (
    "Roofline: medians of each configuration with 10,000 points or more, of steps that write the matrix or sum errors;"
    " on a GPU one step on the device alone. Roofs: the measured rate of copying, and on a GPU one instruction per node"
    " on every arithmetic unit at the highest clock; of a CPU's arithmetic no roof is known."
)
TUNED = {"cuda": "The CUDA interpreter", "ptx": "The transpiler"}
CROSSOVER_STEPS = (1, 10, 100, 1000)
AXES = (  # study, column, what the axis is called
    ("map", "n_exprs", "expressions"),
    ("map", "n_points", "points"),
    ("vars", "n_vars", "variables"),
    ("params", "params_each", "parameters an expression"),
    ("tokens", "tokens_each", "tokens per expression"),
    ("steps_axis", "n_steps", "steps a sample"),
)
RELATIVE = "tokens_each", "n_vars", "params_each"  # over these the cost is over that of the least
AT = {"n_exprs": ("n_points", 10_000, "points"), "n_points": ("n_exprs", 1000, "expressions")}  # the others' size


def drawings(results: Results) -> list[Drawing]:
    """Every figure that the results are enough for."""
    return [drawing for drawing in (draw(results) for draw in ALL) if drawing.figure]


def everything(results: Results) -> list[Drawing]:
    """Every figure: those of the results, and those that are arithmetic."""
    return [*drawings(results), case_figures.regions()]


def write_all(results: str | Path, out: str | Path) -> list[Path]:
    """Draw every figure as SVG and PNG, and a page with all of them and their captions; the files."""
    out = files.folder(out)
    figures, paths = everything(read_results(results)), []
    for drawing in figures:
        assert drawing.figure is not None
        for suffix in (".svg", ".png"):
            write = functools.partial(plots.write_figure, drawing.figure)
            paths.append(files.write(out / f"{drawing.name}{suffix}", write))
    page = "\n\n".join(f"![{drawing.name}]({drawing.name}.png)\n\n{drawing.caption}" for drawing in figures)
    return [*paths, files.write_text(out / "README.md", f"# Figures\n\n{page}\n")]


def _drawing(name: str, figure: Figure, results: Results, what: str, rows: pd.DataFrame, *more: str) -> Drawing:
    """A figure with its caption: what is drawn, the machines, and what made its samples."""
    plt.close(figure)  # a notebook shows what a cell returns; once is enough
    sentences = [what, *more]
    if len(rows):
        counts = rows.groupby([*bench.CONFIGURATION, "file"], dropna=False).size()
        devices = "; ".join(dict.fromkeys(rows["device"]))
        kinds = ", ".join([*dict.fromkeys(rows["dtype"]), *dict.fromkeys(rows["precision"])])
        number = "1 sample" if counts.max() == 1 else f"{_between(counts)} samples"
        origin = measured.provenance(rows)
        sentences.append(f"Measured on {devices}; {number} each; {kinds}; {origin}.")
    return Drawing(name, figure, " ".join(sentences))


def _between(values: Iterable[Any]) -> str:
    """``5``, or ``5 to 41``: the least and the most."""
    return " to ".join(dict.fromkeys(f"{end:,}" for end in (min(values), max(values))))


def _sources(rows: pd.DataFrame) -> str:
    """The kinds of expressions that were measured."""
    return " and ".join(SOURCES.get(source, source) for source in dict.fromkeys(rows["source"]))


def _listed(numbers: Iterable[int]) -> str:
    """``benchmark 2``, ``benchmarks 1, 2 and 3``."""
    *first, last = map(str, numbers)
    return f"benchmarks {', '.join(first)} and {last}" if first else f"benchmark {last}"


# ── the thesis's figures ─────────────────────────────────────────────────────────────


def benchmark(results: Results) -> Drawing:
    """All evaluators together."""
    rows = measured.benchmarks(results)
    what = "Seconds of a sample (parsing, preparing, 100 parameter steps)."
    lacks = [
        f"Ours on a {name} is not measured yet: {way}."
        for name, way, kinds in (("CPU", MAKE_STUDY, {"cpu"}), ("GPU", MAKE_STUDY_GPU, measured.ON_GPU))
        if not kinds & set(rows["backend"])
    ]
    return _drawing("benchmark", plots.comparison(rows, results.thesis), results, what, rows, NOTES, *lacks, THESIS)


def interpreter(results: Results) -> Drawing:
    """GPU interpreters, the thesis's and ours."""
    return _one_kind(results, "interpreter", "gpu_interpreter", "cuda", "GPU interpreter")


def transpiler(results: Results) -> Drawing:
    """Transpilers, the thesis's and ours."""
    return _one_kind(results, "transpiler", "gpu_transpiler", "ptx", "transpiler")


def _one_kind(results: Results, name: str, theirs: str, ours: str, words: str) -> Drawing:
    rows = measured.benchmarks(results)
    rows = rows[rows["backend"] == ours]
    figure = plots.comparison(rows, results.thesis[results.thesis["evaluator"] == theirs])
    lacking = [number for number in BENCHMARKS if number not in set(plots.benchmark_of(rows))]
    lacks = [f"Ours on {_listed(lacking)} is not measured yet: {MAKE_STUDY_GPU}."] if lacking else []
    return _drawing(name, figure, results, f"Seconds of a sample of the {words}.", rows, NOTES, *lacks, THESIS)


def steps(results: Results) -> Drawing:
    """Each optimisation step before and after."""
    n_exprs, n_points = BENCHMARKS[3]
    rows = of(results, "steps", "baseline", n_exprs=n_exprs, n_points=n_points)
    rows = rows[rows["backend"].isin(measured.ON_GPU)]
    if len(rows):
        ptx = of(results, "benchmarks", backend="ptx", source=plots.DIFFERENT, n_exprs=n_exprs, n_points=n_points)
        rows = pd.concat([rows, ptx])
    n, size = (2, (14, 5)) if len(rows) else (1, (6, 3.9))
    figure, axes = plt.subplots(1, n, figsize=size, layout="constrained", squeeze=False)
    theirs, axis = results.steps, axes[0][0]
    colours = [colour_of(name.replace("_", " ")) for name in theirs["evaluator"]]
    bars = axis.barh(range(len(theirs)), theirs["relative"], color=colours, height=0.7)
    axis.bar_label(bars, theirs["relative"].map("{:.0%}".format), padding=3)
    axis.set_yticks(range(len(theirs)), theirs["evaluator"].str.removeprefix("gpu_") + ": " + theirs["change"])
    axis.invert_yaxis()
    axis.grid(axis="x", alpha=0.3)
    axis.set(title="the thesis, benchmark 1", xlabel="time of a sample, first version = 1", xlim=(0, 1.25))
    if len(rows):
        (names, seconds), axis = zip(*measured.own_steps(rows), strict=True), axes[0][1]
        for place, (name, value) in enumerate(zip(names, seconds, strict=True)):  # a bar has no length on a log axis
            colour = colour_of(f"{'ptx' if name.startswith('transpiler') else 'cuda'} {name}")
            axis.plot(value, place, "o", color=colour, markersize=8)
            axis.annotate(written(value), (value, place), (8, 0), textcoords="offset points", va="center")
        axis.set_yticks(range(len(names)), names)
        axis.invert_yaxis()
        axis.semilogx()
        axis.set(title="exprkit, benchmark 3", xlabel="seconds of a sample", xlim=(min(seconds) / 2, max(seconds) * 10))
        axis.grid(alpha=0.3)
    what = "What each optimisation step brings, before above after. The thesis's are the gains that its text gives."
    note = (
        "Ours: seconds of 100 steps, where 1 or 10 were measured, scaled; the matrix of every step is copied to the"
        " host where nothing else is said."
        if len(rows)
        else f"Ours is not measured yet: {MAKE_STUDY_GPU}."
    )
    return _drawing("steps", figure, results, what, rows, note)


def block_sizes(results: Results) -> Drawing:
    """128, 160 and 192 as in the thesis, then the whole range."""
    rows = measured.blocks(results)
    theirs = results.thesis[(results.thesis["benchmark"] == 3) & results.thesis["block_size"].notna()]
    widths, size = ((2, 1, 3), (14, 4)) if len(rows) else ((2, 1), (8, 4))
    figure, axes = plt.subplots(1, len(widths), figsize=size, layout="constrained", width_ratios=widths)
    theirs = theirs.sort_values(["evaluator", "block_size", "sample"])
    names = "thesis " + theirs["evaluator"].str.replace("_", " ") + " " + theirs["block_size"].astype(str)
    plots.spread(axes[:2], pd.DataFrame({"evaluator": names, "results": "every", "seconds": theirs["seconds"]}))
    axes[0].set(title="the thesis, benchmark 3", xlabel="seconds per sample", xlim=(20, 120))
    axes[0].set_xticks([20, 40, 60, 80, 100, 120], minor=False)
    axes[0].xaxis.set_major_formatter("{x:.0f}")
    axes[0].minorticks_off()
    over = theirs["seconds"] / theirs.groupby(["evaluator", "block_size"])["seconds"].transform("median")
    axes[1].set(xlabel="sample over median", xlim=(over.min() - 0.05, over.max() + 0.05))
    if len(rows):
        table = measured.relative_to_best(results)
        axis = axes[2]
        sizes = list(table.columns)
        for (name, times), marker in zip(table.iterrows(), "osD^vP", strict=False):
            style = {"linestyle": ":", "markerfacecolor": "white"} if str(name).startswith("thesis") else {}
            times = times.dropna()
            places = [sizes.index(size) for size in times.index]
            axis.plot(places, times, marker=marker, label=name, color=colour_of(str(name)), **style)
        axis.set_xticks(range(len(sizes)), [str(size) for size in sizes])
        axis.set(title="relative to the best size of each", xlabel="threads per block", ylabel="times the shortest")
        axis.set_ylim(0.9, None)
        axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, frameon=False)
        axis.grid(alpha=0.3)
    what = (
        "Block sizes on benchmark 3: the thesis's samples; at the right those and one step of ours (at the best number"
        " of points per thread) over the shortest of each."
    )
    lacks = [] if len(rows) else [f"Ours is not measured yet: {MAKE_STUDY_GPU}."]
    return _drawing("block_sizes", figure, results, what, rows, THESIS, *lacks)


# ── past the thesis ──────────────────────────────────────────────────────────────────


def phases(results: Results) -> Drawing:
    """Where the time of a sample goes."""
    rows = measured.benchmarks(results)
    if rows.empty:
        return Drawing("phases", None, f"Where the time of a sample goes is not measured yet: {MAKE_STUDY}.")
    rows = rows.assign(panel=plots.benchmark_of(rows))
    rows = rows[~plots.beside_others(rows, rows["source"].eq(plots.ESR))]
    order = plots.places(rows["results"])
    rows = rows[order.groupby([rows["panel"], rows["evaluator"]]).rank("dense").eq(1)]
    names = [f"{phase}_s" for phase in bench.PHASES]
    table = rows.groupby(["panel", "results", "evaluator"], sort=False)[[*names, "total_s"]].median().reset_index()
    table = table.sort_values(["panel", "total_s"], kind="stable")
    labels = table["panel"].astype(str) + ": " + table["evaluator"].str.removeprefix("exprkit ")
    if table["results"].nunique() > 1:
        labels += ", " + table["results"].map(plots.PROTOCOLS)
    figure, axis = plt.subplots(figsize=(10, 0.9 + 0.36 * len(table)), layout="constrained")
    left = np.zeros(len(table))
    for name, colour in zip(names, sns.color_palette("viridis", len(names)), strict=True):  # in grey from dark to light
        share = (table[name] / table[names].sum(axis=1)).to_numpy()
        axis.barh(labels, share, left=left, color=colour, label=name.removesuffix("_s"), height=0.75, edgecolor="white")
        left += share
    for place, total in enumerate(table["total_s"]):
        axis.annotate(written(total), (1.01, place), va="center", annotation_clip=False)
    axis.set(xlabel="share of a sample; its length at the right", xlim=(0, 1), ylim=(-0.6, len(table) - 0.4))
    axis.invert_yaxis()
    figure.legend(ncols=len(names), loc="outside upper center", frameon=False)
    what = (
        f"Phases of a sample on {_listed(sorted(set(rows['panel'])))} (medians), each with the first of these that is"
        f" measured: {', '.join(plots.PROTOCOLS.values())}."
    )
    return _drawing("phases", figure, results, what, rows)


def tuning(results: Results) -> Drawing:
    """Heat maps over block size and points per thread, and the threads that find no point."""
    rows = of(results, "blocks", options="")
    rows = rows[rows["points_per_thread"].notna() & rows["block_size"].notna()]
    tuned = next((name for name in TUNED if rows["backend"].eq(name).any()), None)
    rows = rows[rows["backend"].eq(tuned)]
    if tuned is None:
        what = "The CUDA interpreter over block size and points a thread is not measured yet"
        return Drawing("tuning", None, f"{what}: `notebooks/tuning.ipynb` measures it on a machine with an NVIDIA GPU.")
    n_exprs, n_points = rows[["n_exprs", "n_points"]].value_counts().idxmax()  # times of one size, not of several
    rows = rows[rows["n_exprs"].eq(n_exprs) & rows["n_points"].eq(n_points)]
    figure, axes = plt.subplots(1, 3, figsize=(16, 4.6), layout="constrained", width_ratios=(1.1, 1.1, 0.9))
    rows = rows.assign(ms=1e3 * rows["step_s"], warps=measured.occupancy(rows))
    titles = {"ms": "milliseconds a step", "warps": "occupancy and registers per thread"}
    for axis, (column, title) in zip(axes, titles.items(), strict=False):
        table = rows.pivot_table(column, "points_per_thread", "block_size", "median")
        if table.empty:
            axis.set_axis_off()
            continue
        labels, form = (True, ".3f") if column == "ms" else (_with_registers(rows, table), "")
        colours = "cividis_r" if column == "ms" else "cividis"
        scale = {"label": "ms, short is bright" if column == "ms" else "occupancy, high is bright"}
        sns.heatmap(table, annot=labels, fmt=form, cmap=colours, ax=axis, cbar_kws=scale, annot_kws={"fontsize": 8})
        axis.set(title=title, xlabel="threads per block", ylabel="points per thread")
    _excess_panel(axes[2])
    what = (
        f"{TUNED[tuned]} on {n_exprs:,} expressions x {n_points:,} points over block size and points per thread;"
        f" occupancy: resident warps over {_between(rows['most_warps'].astype(int))}."
    )
    return _drawing("tuning", figure, results, what, rows, "Right: idle threads, by arithmetic.")


def _with_registers(rows: pd.DataFrame, table: pd.DataFrame) -> Any:
    registers = rows.pivot_table("registers", "points_per_thread", "block_size", "median").reindex_like(table)
    pairs = zip(table.to_numpy().ravel(), registers.to_numpy().ravel(), strict=True)
    return np.array([f"{share:.0%}\n{count:.0f}" for share, count in pairs]).reshape(table.shape)


def excess(n_points: int, at_once: int) -> float:
    """Share of the places for points that stay empty where ``at_once`` points are worked on together."""
    return 1 - n_points / (-(-n_points // at_once) * at_once)


def _excess_panel(axis: Axes) -> None:
    """Thesis: a point per thread, whole blocks. Ours: tiles of a warp, whatever the block."""
    lines = [("thesis, block of {}", block, block) for block in (128, 160, 192, 256)]
    lines += [("ours, {} points per thread", points, 32 * points) for points in (4, 8, 16, 32)]
    names = [name.format(number) for name, number, _ in lines]
    for shift, (n_points, colour) in enumerate(zip((362, 10_860), sns.color_palette("colorblind")[:2], strict=True)):
        shares = [excess(n_points, at_once) for *_, at_once in lines]
        places = np.arange(len(lines)) + 0.38 * (shift - 0.5)
        drawn = axis.barh(places, shares, height=0.36, color=colour, label=f"{n_points:,} points")
        axis.bar_label(drawn, [f"{share:.1%}" for share in shares], padding=2, fontsize=8)
    axis.set_yticks(np.arange(len(lines)), names)
    axis.invert_yaxis()
    axis.margins(x=0.2)
    axis.set(title="excess threads", xlabel="share of idle places")
    axis.legend(fontsize=8)


def scaling(results: Results) -> Drawing:
    """Cost against everything that a population can have more of."""
    used = [(of(results, study, results="loss"), column, title) for study, column, title in AXES]
    if all(rows.empty for rows, *_ in used):
        what = "What more expressions, points, variables, parameters, tokens and steps cost is not measured yet:"
        return Drawing("scaling", None, f"{what} `notebooks/scaling.ipynb` measures it, `make study` at full size.")
    figure, axes = plt.subplots(2, 3, figsize=(13, 7.5), layout="constrained")
    used = [(with_code(rows, both=column == "n_steps"), column, title) for rows, column, title in used]
    suffix = f", {plots.CODE['kept']}"  # which all other panels show
    used = [(rows.assign(where=rows["where"].str.removesuffix(suffix)), *rest) for rows, *rest in used]
    names = sorted({name for rows, *_ in used for name in rows["where"]})
    palette = {name: colour_of(name.partition(",")[0]) for name in names}
    legend: dict[str, Any] = {}
    growing: list[Axes] = []  # panels of costs over that of the least
    for axis, (rows, column, title) in zip(axes.flat, used, strict=True):
        if rows.empty:
            axis.set_axis_off()
            continue
        other = AT.get(column)
        if other:
            at = other[1] if rows[other[0]].eq(other[1]).any() else rows[other[0]].max()
            rows, title = rows[rows[other[0]] == at], f"{title}, {at:,} {other[2]}"
        evaluations = rows["n_exprs"] * rows["n_points"] / 1e9
        size, label = (1, "seconds per step") if other else (evaluations, "ns per evaluation, all included")
        alone = rows["device_s"].fillna(rows["step_s"])
        rows = rows.assign(cost=(rows["total_s"] / rows["n_steps"] if column == "n_steps" else alone) / size)
        if column in RELATIVE:
            rows["cost"] /= _of_the_least(rows, column)
            label, growing = "cost over that of the least", [*growing, axis]
        style: dict[str, Any] = {"hue": "where", "style": "where", "hue_order": names, "style_order": names}
        style |= {"palette": palette, "markers": True, "estimator": "median", "errorbar": ("pi", 50)}
        with quiet():
            sns.lineplot(rows, x=column, y="cost", ax=axis, **style)
        legend |= dict(zip(*axis.get_legend_handles_labels()[::-1], strict=True))
        axis.set(xlabel=title, ylabel=label)
        axis.semilogy()
        if column.startswith("n_") and column != "n_vars":
            axis.semilogx()
        axis.legend().remove()
        axis.grid(alpha=0.3)
    for alike in ([axis for axis in axes.flat[:2] if axis.axison], growing):
        ends = np.array([axis.get_ylim() for axis in alike]).reshape(-1, 2)
        for axis in alike:
            axis.set_ylim(ends[:, 0].min(), ends[:, 1].max())
    for axis in growing:  # a decade at least, or noise would look like growth
        axis.set_ylim(min(axis.get_ylim()[0], 0.3), max(axis.get_ylim()[1], 3))
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    figure.legend([legend[name] for name in names], names, loc="outside upper center", ncols=6)
    what = (
        "Cost of the steps that give every expression's squared error, against one size at a time; medians and"
        " quartiles; on a GPU the time of the device alone. An evaluation is one expression at one point. Over"
        " variables, parameters, tokens: the cost over that of the least. Last panel: whole samples, with parsing."
    )
    rows = pd.concat([rows for rows, *_ in used])
    return _drawing("scaling", figure, results, what, rows, f"{_sources(rows).capitalize()}.")


def _of_the_least(rows: pd.DataFrame, column: str) -> pd.Series:
    """The cost at the least value of a column, on the backend of each row."""
    least = rows[rows[column].eq(rows.groupby("where")[column].transform("min"))]
    return rows["where"].map(least.groupby("where")["cost"].median())


def crossover(results: Results) -> Drawing:
    """Speed of every backend over that of the CPU, by size, for searches of 1 to 1,000 steps."""
    rows = with_code(of(results, "map"), both=True)
    groups = rows.assign(order=plots.places(rows["results"])).groupby(["order", "file"])
    maps = [part for _, part in groups if len(measured.map_seconds(part, 1).dropna(thresh=2))]
    if not maps:
        what = "Which backend wins where is not measured yet: that takes the same sizes on two backends of one machine"
        return Drawing("crossover", None, f"{what}, as `notebooks/scaling.ipynb` measures them, or `make study`.")
    n, size = len(CROSSOVER_STEPS), (13, 0.9 + 2.4 * len(maps))
    shared: Any = {"sharex": True, "sharey": "row"}
    figure, axes = plt.subplots(len(maps), n, figsize=size, layout="constrained", squeeze=False, **shared)
    legend: dict[str, Any] = {}
    for line, part in zip(axes, maps, strict=True):
        for axis, n_steps in zip(line, CROSSOVER_STEPS, strict=True):
            base = _times_as_fast(axis, measured.map_seconds(part, n_steps))
            legend |= dict(zip(*axis.get_legend_handles_labels()[::-1], strict=True))
        line[0].set_ylabel(f"{plots.PROTOCOLS[part['results'].iloc[0]]}\ntimes as fast as {base}", fontsize=8)
    for axis, n_steps in zip(axes[0], CROSSOVER_STEPS, strict=True):
        axis.set_title(f"{n_steps:,} step{'s' if n_steps > 1 else ''}", fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("expressions x points")
    figure.legend(legend.values(), legend.keys(), loc="outside upper center", ncols=4, frameon=False)
    rows = rows[rows["file"].isin([part["file"].iloc[0] for part in maps])]
    what = (
        "How many times as fast as the one named at the left (grey line) the others are: whole samples, with parsing,"
        " preparing and so many steps; medians, and the spread of sizes with as many evaluations; a line of panels for"
        f" each of what comes back to the host; {_sources(rows)} of {_between(rows['tokens_each'])} tokens on average."
    )
    return _drawing("crossover", figure, results, what, rows)


def _times_as_fast(axis: Axes, seconds: pd.DataFrame) -> str:
    """Lines of the backends over the number of evaluations, beside the first of them; which that is."""
    base, *others = sorted(seconds.columns, key=lambda name: (not name.startswith("cpu"), name))
    exprs, points = (seconds.index.get_level_values(name) for name in ("n_exprs", "n_points"))
    axis.axhline(1, color="0.4", linewidth=1)
    for name in others:
        ratio = (seconds[base] / seconds[name]).groupby(np.asarray(exprs * points)).agg(["median", "min", "max"])
        ratio, colour = ratio.dropna(), colour_of(name.partition(",")[0])
        style = ("--", "s") if name.endswith(plots.CODE["anew"]) else ("-", "o")
        axis.plot(ratio.index, ratio["median"], style[0], marker=style[1], markersize=4, color=colour, label=name)
        axis.fill_between(ratio.index, ratio["min"], ratio["max"], color=colour, alpha=0.15, linewidth=0)
    axis.loglog()
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.grid(alpha=0.3)
    return str(base)


def roofline(results: Results) -> Drawing:
    """Node evaluations a second over node evaluations a byte, under what the machine can do."""
    rows = of(results, "benchmarks", "results", "map", "tokens")
    if len(rows):
        rows = rows[rows["n_points"].ge(10_000) & rows["backend"].ne("numpy") & rows["dispatch"].eq("")]
        rows = rows[rows["results"].ne("every")]  # which is bound by the way to the host
        rows = with_code(rows, both=False)
    if rows.empty:
        what = "A roofline is not drawn: no step of 10,000 points or more is measured"
        return Drawing("roofline", None, f"{what}, as `notebooks/scaling.ipynb` and `make study` measure them.")
    rows = rows[rows.groupby("file")["host_bytes_per_s"].transform("count").gt(0)]
    if rows.empty:
        what = "A roofline is not drawn: no sample tells how fast the machine copies"
        return Drawing("roofline", None, f"{what}; those that are measured anew do.")
    panels = [part for _, part in rows.groupby(["file", rows["backend"].isin(measured.ON_GPU)], sort=False)]
    figure, axes = plt.subplots(1, len(panels), figsize=(5.2 * len(panels), 4.6), layout="constrained", squeeze=False)
    for axis, part in zip(axes[0], panels, strict=True):
        _roofline(axis, measured.kernels(part), measured.roofs_of(part))
        axis.set_title(measured.machine_of(part), fontsize=10)
    return _drawing("roofline", figure, results, ROOFLINE, rows)


def _roofline(axis: Axes, table: pd.DataFrame, roofs: list[tuple[str, float, float]]) -> None:
    palette = {name: colour_of(name.partition(",")[0]) for name in table["where"].unique()}
    columns = {"x": "nodes_per_byte", "y": "nodes_per_s", "hue": "where", "style": "where"}
    with quiet():
        sns.scatterplot(table, **columns, s=60, ax=axis, palette=palette)
    least, most = table["nodes_per_s"].min(), table["nodes_per_s"].max()
    for name, bytes_per_s, nodes_per_s in roofs:
        knee = min(nodes_per_s, 20 * most) / bytes_per_s  # a slope without an end leaves the picture there
        places = [knee, *table["nodes_per_byte"]]
        reach = np.geomspace(min(places), max(places), 200)
        roof = np.minimum(bytes_per_s * reach, nodes_per_s)
        axis.plot(reach, roof, "--", color="0.3", linewidth=1.2, label=f"roof, {name}")
    axis.loglog()
    axis.set(xlabel="node evaluations a byte moved at least", ylabel="node evaluations a second")
    axis.set_ylim(least / 3, 30 * most)
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3)


ALL: tuple[Callable[[Results], Drawing], ...] = (
    benchmark, interpreter, transpiler, steps, block_sizes, phases, tuning, scaling, crossover, roofline,
)  # fmt: skip
