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
from exprkit.study.measured import Results, kernel_table, machines, read_results, results_of, samples_of, with_code
from exprkit.study.plots import BENCHMARKS, Drawing, colour_of, quiet
from exprkit.study.workload import SOURCES

with brought_by("notebooks"):
    import matplotlib.pyplot as plt
    import pandas as pd
    import seaborn as sns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Results", "drawings", "kernel_table", "machines", "read_results", "results_of", "write_all"]

NOTES = (
    f"Marks, in this order: {', '.join(plots.PROTOCOLS.values())} copied to the host (in the thesis the matrix of every"
    f" step). At the right samples over their median, from {plots.SPREAD[0]} to {plots.SPREAD[1]}; those of fewer than"
    f" {plots.FEW} as points. per-expression: one launch per expression, as in the thesis (fewer steps, scaled)."
    " compiling: each sample compiles every structure; from cache: it finds the machine code there."
)
THESIS = "The thesis: 50 samples, Intel i5-12500 (12 threads) and RTX 3060 Ti."
MAKE_STUDY = "`make study` measures it on this machine's CPU"
MAKE_STUDY_GPU = "`make study-gpu` measures it on a machine with an NVIDIA GPU"
TUNED = {"cuda": "The CUDA interpreter", "ptx": "The transpiler"}


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


def _drawing(name: str, figure: Figure, what: str, rows: pd.DataFrame, *more: str) -> Drawing:
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
    rows = measured.on_best_threads(rows.assign(panel=plots.benchmark_of(rows)), "panel", "results", "source")
    what = "Seconds of a sample (parsing, preparing, 100 parameter steps); a CPU at its best number of threads."
    lacks = [
        f"Ours on a {name} is not measured yet: {way}."
        for name, way, kinds in (("CPU", MAKE_STUDY, {"cpu"}), ("GPU", MAKE_STUDY_GPU, measured.ON_GPU))
        if not kinds & set(rows["backend"])
    ]
    return _drawing("benchmark", plots.comparison(rows, results.thesis), what, rows, NOTES, *lacks, THESIS)


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
    return _drawing(name, figure, f"Seconds of a sample of the {words}.", rows, NOTES, *lacks, THESIS)


def steps(results: Results) -> Drawing:
    """The thesis's optimisation steps, its gains and ours; then a step from its way to ours."""
    ours, ways = measured.thesis_steps(results), measured.launch_samples(results)
    ways = ways[ways["benchmark"].eq(3)]
    widths, width = ((2, 3, 1.6), 17) if len(ways) else ((1,), 6)
    figure, axes = plt.subplots(
        1, len(widths), figsize=(width, 4.6), layout="constrained", squeeze=False, width_ratios=widths
    )
    theirs, axis = results.steps, axes[0][0]
    colours = [colour_of(name.replace("_", " ")) for name in theirs["evaluator"]]
    names = theirs["evaluator"].str.removeprefix("gpu_")
    bars = axis.barh(range(len(theirs)), theirs["relative"], color=colours, height=0.7, alpha=0.6, label="the thesis")
    axis.bar_label(bars, theirs["relative"].map("{:.0%}".format), label_type="center")
    axis.set_yticks(range(len(theirs)), names + ": " + theirs["change"])
    axis.invert_yaxis()
    axis.grid(axis="x", alpha=0.3)
    axis.set(title="the thesis, benchmark 1", xlabel="time of a sample, first version = 1", xlim=(0, 1.25))
    if len(ours):
        lines = list(zip(names, theirs["step"], strict=True))
        own = ours.assign(step=ours.groupby("evaluator").cumcount())
        own = own[[pair in lines for pair in zip(own["evaluator"], own["step"], strict=True)]]
        at = [lines.index(pair) for pair in zip(own["evaluator"], own["step"], strict=True)]
        axis.plot(own["relative"], at, "kD", label="its steps on this card, exprkit's kernels of its kind")
        axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.4, -0.12), ncols=2, frameon=False)
    if len(ways):
        table = ways.sort_values("order")[["way", "results", "step_s"]].set_axis(
            ["evaluator", "results", "seconds"], axis=1
        )
        protocols = [name for name in plots.PROTOCOLS if table["results"].eq(name).any()]
        plots.spread(axes[0][1:], table, protocols)
        axes[0][1].set(title="exprkit, benchmark 3", xlabel="seconds of a step")
        axes[0][2].set_xlabel("sample over median")
        marks = [plt.Line2D([], [], linestyle="", color="0.4", marker=plots.MARKS[name]) for name in protocols]
        words = [plots.PROTOCOLS[name] for name in protocols]
        axes[0][1].legend(
            marks, words, fontsize=8, loc="upper center", bbox_to_anchor=(0.4, -0.12), ncols=3, frameon=False
        )
    what = (
        "Left: what each optimisation step of the thesis brings; bars are the gains that its text gives. Right: a step"
        " of benchmark 3 from its way to ours."
    )
    note = (
        "Streams, host threads and a graph launch the same kernel; then one launch evaluates all expressions, with an"
        " accumulator instead of a stack and columns of operators of one variable; copies are page-locked everywhere;"
        " none of these can be switched off, so that their shares are not shown."
        if len(ways)
        else f"Ours is not measured yet: {MAKE_STUDY_GPU}."
    )
    rows = pd.concat([samples_of(results, "thesis_steps"), ways])
    return _drawing("steps", figure, what, rows, note)


def block_sizes(results: Results) -> Drawing:
    """128, 160 and 192 as in the thesis, then the whole range."""
    rows = measured.block_samples(results)
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
    return _drawing("block_sizes", figure, what, rows, THESIS, *lacks)


# ── past the thesis ──────────────────────────────────────────────────────────────────


def tuning(results: Results) -> Drawing:
    """Heat maps over block size and points per thread."""
    rows = samples_of(results, "blocks", options="")
    rows = rows[rows["points_per_thread"].notna() & rows["block_size"].notna()]
    tuned = next((name for name in TUNED if rows["backend"].eq(name).any()), None)
    rows = rows[rows["backend"].eq(tuned)]
    if tuned is None:
        what = "The CUDA interpreter over block size and points a thread is not measured yet"
        return Drawing("tuning", None, f"{what}: `notebooks/tuning.ipynb` measures it on a machine with an NVIDIA GPU.")
    n_exprs, n_points = rows[["n_exprs", "n_points"]].value_counts().idxmax()  # times of one size, not of several
    rows = rows[rows["n_exprs"].eq(n_exprs) & rows["n_points"].eq(n_points)]
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
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
    what = (
        f"{TUNED[tuned]} on {n_exprs:,} expressions x {n_points:,} points over block size and points per thread;"
        f" occupancy: resident warps over {_between(rows['most_warps'].astype(int))}."
    )
    return _drawing("tuning", figure, what, rows)


def _with_registers(rows: pd.DataFrame, table: pd.DataFrame) -> Any:
    registers = rows.pivot_table("registers", "points_per_thread", "block_size", "median").reindex_like(table)
    pairs = zip(table.to_numpy().ravel(), registers.to_numpy().ravel(), strict=True)
    return np.array([f"{share:.0%}\n{count:.0f}" for share, count in pairs]).reshape(table.shape)


def scaling(results: Results) -> Drawing:
    """Cost against everything that a population can have more of."""
    used = measured.axes(results)
    if all(rows.empty for rows, *_ in used):
        what = "What more expressions, points, variables, parameters and tokens cost is not measured yet:"
        return Drawing("scaling", None, f"{what} `notebooks/scaling.ipynb` measures it, `make study` at full size.")
    figure, axes = plt.subplots(2, 3, figsize=(13, 7.5), layout="constrained")
    names = sorted({name for rows, *_ in used for name in rows["where"]})
    palette = {name: colour_of(name.partition(",")[0]) for name in names}
    legend: dict[str, Any] = {}
    absolute: list[Axes] = []  # panels of seconds
    relative: list[Axes] = []  # and of costs over that of the least
    for axis, (rows, column, title, is_size) in zip(axes.flat, used, strict=False):
        if rows.empty:
            axis.set_axis_off()
            continue
        least = rows[rows[column].eq(rows.groupby("where")[column].transform("min"))].groupby("where")["alone"].median()
        rows = rows.assign(cost=rows["alone"] / (1 if is_size else rows["where"].map(least)))
        (absolute if is_size else relative).append(axis)
        style: dict[str, Any] = {"hue": "where", "style": "where", "hue_order": names, "style_order": names}
        style |= {"palette": palette, "markers": True, "estimator": "median", "errorbar": ("pi", 50)}
        with quiet():
            sns.lineplot(rows, x=column, y="cost", ax=axis, **style)
        legend |= dict(zip(*axis.get_legend_handles_labels()[::-1], strict=True))
        axis.set(xlabel=title, ylabel="seconds per step" if is_size else "cost over that of the least")
        (axis.loglog if is_size else axis.semilogy)()
        axis.legend().remove()
        axis.grid(alpha=0.3)
    for alike in (absolute, relative):
        ends = np.array([axis.get_ylim() for axis in alike]).reshape(-1, 2)
        for axis in alike:
            axis.set_ylim(ends[:, 0].min(), ends[:, 1].max())
    for axis in relative:  # a decade at least, or noise would look like growth
        axis.set_ylim(min(axis.get_ylim()[0], 0.3), max(axis.get_ylim()[1], 3))
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.flat[-1].set_axis_off()
    figure.legend([legend[name] for name in names], names, loc="outside upper center", ncols=6)
    what = (
        "Cost of the steps that give every expression's squared error, against one size at a time; medians and"
        " quartiles; on a GPU the time of the device alone. Over variables, parameters, tokens: the cost over that of"
        " the least."
    )
    rows = pd.concat([rows for rows, *_ in used])
    return _drawing("scaling", figure, what, rows, f"{_sources(rows).capitalize()}.")


def crossover(results: Results) -> Drawing:
    """Speed of every backend over that of the CPU, by size, for searches of 1 to 1,000 steps."""
    rows = measured.on_best_threads(with_code(samples_of(results, "map"), both=True), "n_exprs", "n_points", "results")
    maps = [
        (name, part)
        for name in plots.PROTOCOLS
        for _, part in rows.groupby("file")
        if len(measured.map_seconds(part, name, 1).dropna(thresh=2))
    ]
    if not maps:
        what = "Which backend wins where is not measured yet: that takes the same sizes on two backends of one machine"
        return Drawing("crossover", None, f"{what}, as `notebooks/scaling.ipynb` measures them, or `make study`.")
    numbers = sorted({n_steps for _, n_steps in measured.MAPS})
    shared: Any = {"sharex": True, "sharey": "row", "figsize": (13, 0.9 + 2.4 * len(maps)), "layout": "constrained"}
    figure, axes = plt.subplots(len(maps), len(numbers), squeeze=False, **shared)
    legend: dict[str, Any] = {}
    for line, (name, part) in zip(axes, maps, strict=True):
        for axis, n_steps in zip(line, numbers, strict=True):
            base = _times_as_fast(axis, measured.map_seconds(part, name, n_steps))
            legend |= dict(zip(*axis.get_legend_handles_labels()[::-1], strict=True))
        line[0].set_ylabel(f"{plots.PROTOCOLS[name]}\ntimes as fast as {base}", fontsize=8)
    for axis, n_steps in zip(axes[0], numbers, strict=True):
        axis.set_title(f"{n_steps:,} step{'s' if n_steps > 1 else ''}", fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("expressions x points")
    figure.legend(legend.values(), legend.keys(), loc="outside upper center", ncols=4, frameon=False)
    rows = pd.concat([part for _, part in maps]).drop_duplicates()
    what = (
        "How many times as fast as the one named at the left (grey line) the others are: whole samples, with parsing,"
        " preparing and so many steps; medians, and the spread of sizes with as many evaluations; a line of panels for"
        " each of what comes back to the host (of one step, both matrices are the same work); a CPU at its best number"
        f" of threads; {_sources(rows)} of {_between(rows['tokens_each'])} tokens on average."
    )
    return _drawing("crossover", figure, what, rows)


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


ALL: tuple[Callable[[Results], Drawing], ...] = (
    benchmark, interpreter, transpiler, steps, block_sizes, tuning, scaling, crossover,
)  # fmt: skip
