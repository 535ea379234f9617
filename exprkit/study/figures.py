"""The study's figures, each from the recorded results: the thesis's own, and those that go past it.

Draws what ``measured`` makes of the recorded samples, by means of ``plots``.
All of them, as ``python -m exprkit figures`` does:

    >>> from exprkit.study import figures
    >>> drawings = figures.drawings(figures.read_results("data/results"))
    >>> drawings[0].name
    'benchmark'

A figure whose measurements are missing is left out, and one that lacks a part says so.

=============  ================================================================================
benchmark      CPU, interpreter and transpiler together, benchmarks 1, 2 and 3
interpreter    the thesis's GPU interpreter and ours, the same benchmarks
transpiler     the thesis's transpiler and ours
steps          each optimisation step before and after
block_sizes    128, 160 and 192 as in the thesis, then the whole range
phases         where the time of a sample goes
tuning         block size x points a thread; occupancy; excess threads
scaling        cost against expressions, points, variables, parameters, tokens, steps
crossover      which backend wins where
roofline       each kernel under the machine's roofs
=============  ================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from exprkit.errors import brought_by
from exprkit.study import bench, measured, plots, records
from exprkit.study.measured import Results, kernel_table, machines, medians, of, read_results, results_of, with_code
from exprkit.study.plots import Drawing, colour_of, quiet, short, written

with brought_by("notebooks"):
    import matplotlib.pyplot as plt
    import pandas as pd
    import seaborn as sns
    from matplotlib.colors import ListedColormap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Results", "drawings", "kernel_table", "machines", "medians", "read_results", "results_of", "write_all"]

SWEEP = "python -m exprkit sweep notebooks/benchmark.ipynb data/studies/{file}.yaml"
THESIS = "The thesis: 50 samples, Intel i5-12500 (12 threads) and RTX 3060 Ti."
NEEDS_GPU = "Ours on a GPU is not measured yet."
CROSSOVER_STEPS = (1, 10, 100, 1000)
AXES = (  # study, column, what the axis is called
    ("map", "n_exprs", "expressions"),
    ("map", "n_points", "points"),
    ("vars", "n_vars", "variables"),
    ("params", "params_each", "parameters an expression"),
    ("tokens", "tokens_each", "tokens an expression"),
    ("steps_axis", "n_steps", "steps a sample"),
)
AT = {"n_exprs": ("n_points", 10_000, "points"), "n_points": ("n_exprs", 1000, "expressions")}  # the others' size


def drawings(results: Results) -> list[Drawing]:
    """Every figure that the results are enough for."""
    made = (draw(results) for draw in ALL)
    return [drawing for drawing in made if drawing is not None]


def write_all(results: str | Path, out: str | Path) -> list[Path]:
    """Draw every figure as SVG and PNG, and a page with all of them and their captions; the files."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    made, paths = drawings(read_results(results)), []
    for drawing in made:
        for suffix in (".svg", ".png"):
            paths.append(out / f"{drawing.name}{suffix}")
            plots.write_figure(drawing.figure, paths[-1])
    page = "\n\n".join(f"![{one.name}]({one.name}.png)\n\n{one.caption}" for one in made)
    text = f"# Figures\n\n{page}\n"
    return [*paths, records.write(out / "README.md", lambda path: path.write_text(text, encoding="utf-8"))]


def caption(what: str, rows: pd.DataFrame, *more: str) -> str:
    """What is shown; on what it was measured; by which command."""
    if rows.empty:
        return " ".join([what, *more])
    counts = rows.groupby([*bench.CONFIGURATION, "file"], dropna=False).size()
    devices = "; ".join(dict.fromkeys(rows["device"]))
    kinds = ", ".join(dict.fromkeys(rows["dtype"])) + ", " + ", ".join(dict.fromkeys(rows["precision"]))
    number = f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
    only = f" --only {rows['bench'].iloc[0]}" if rows["bench"].nunique() == 1 else ""
    files = [file for file in dict.fromkeys(rows["file"]) if file != "own"]
    commands = " and ".join(f"`{SWEEP.format(file=file)}{only}`" for file in files) or "this notebook"
    return " ".join([what, *more, f"Measured on {devices}; {number} samples each; {kinds}; by {commands}."])


# ── the thesis's figures ─────────────────────────────────────────────────────────────


def benchmark(results: Results) -> Drawing:
    """All evaluators together."""
    rows = measured.benchmarks(results)
    figure = plots.comparison(rows, results.thesis, stacked=len(rows) > 0)
    what = "Seconds of a sample (parsing, preparing, 100 parameter steps): the thesis's evaluators and ours."
    return Drawing("benchmark", figure, caption(what, rows, *_notes(rows), THESIS))


def interpreter(results: Results) -> Drawing:
    """GPU interpreters, the thesis's and ours."""
    return _one_kind(results, "interpreter", "gpu_interpreter", "cuda", "GPU interpreter")


def transpiler(results: Results) -> Drawing:
    """Transpilers, the thesis's and ours."""
    return _one_kind(results, "transpiler", "gpu_transpiler", "ptx", "transpiler")


def _one_kind(results: Results, name: str, theirs: str, ours: str, words: str) -> Drawing:
    rows = measured.benchmarks(results)
    rows = rows[rows["backend"] == ours] if len(rows) else rows
    figure = plots.comparison(rows, results.thesis[results.thesis["evaluator"] == theirs])
    what = f"Seconds of a sample: the thesis's {words}, and ours."
    return Drawing(name, figure, caption(what, rows, *_notes(rows), THESIS, *([] if len(rows) else [NEEDS_GPU])))


def _notes(rows: pd.DataFrame) -> list[str]:
    """What some of the evaluators' names mean."""
    found = []
    if len(rows) and rows["dispatch"].ne("").any():
        found.append("per-expression: one launch an expression, as the thesis does; measured with 10 steps and scaled.")
    if len(rows) and rows["code"].eq("kept").any():
        found.append("compiling: each sample compiles every structure; from cache: it finds the machine code there.")
    return found


def steps(results: Results) -> Drawing:
    """Each optimisation step before and after."""
    rows = of(results, "steps")
    if len(rows):
        whole = of(results, "benchmarks", backend="ptx", n_exprs=10_000, n_points=10_860, source=plots.SOURCES[0])
        rows = pd.concat([rows, whole])
    figure, axes = plt.subplots(1, 2 if len(rows) else 1, figsize=(12 if len(rows) else 6, 3.9), layout="constrained",
                                squeeze=False)  # fmt: skip
    theirs = results.steps.assign(name=results.steps["evaluator"].str.removeprefix("gpu_"))
    _steps_panel(axes[0][0], [
        (f"{row.name_}: {row.change}", row.relative, f"{row.relative:.0%}", colour_of(row.evaluator.replace("_", " ")))
        for row in theirs.rename(columns={"name": "name_"}).itertuples()
    ])  # fmt: skip
    axes[0][0].set(title="the thesis, benchmark 1", xlabel="time of a sample, first version = 1", xlim=(0, 1.25))
    if len(rows):
        ours = measured.own_steps(rows)
        names, seconds = [name for name, _ in ours], [seconds for _, seconds in ours]
        for place, (name, value) in enumerate(ours):  # points, for a bar's length means nothing on a log axis
            colour = colour_of(f"{'ptx' if name.startswith('transpiler') else 'cuda'} {name}")
            axes[0][1].plot(value, place, "o", color=colour, markersize=8)
            axes[0][1].annotate(written(value), (value, place), (8, 0), textcoords="offset points", va="center")
        axes[0][1].set_yticks(range(len(names)), names)
        axes[0][1].invert_yaxis()
        axes[0][1].semilogx()
        axes[0][1].set(title="exprkit, benchmark 3", xlabel="seconds of a sample",
                       xlim=(min(seconds) / 2, max(seconds) * 10))  # fmt: skip
        axes[0][1].grid(alpha=0.3)
    plt.close(figure)
    what = "What each optimisation step brings, before above after. The thesis's are the gains that its text gives."
    note = "Ours: 100 steps; with everything anew at each step, and with a launch an expression, 1 and 10 steps scaled."
    return Drawing("steps", figure, caption(what, rows, note if len(rows) else NEEDS_GPU))


def _steps_panel(axis: Axes, bars: Iterable[tuple[str, float, str, Any]]) -> None:
    names, sizes, texts, colours = zip(*bars, strict=True)
    places = np.arange(len(names))
    drawn = axis.barh(places, sizes, color=colours, height=0.7)
    axis.bar_label(drawn, texts, padding=3)
    axis.set_yticks(places, names)
    axis.invert_yaxis()
    axis.grid(axis="x", alpha=0.3)


def block_sizes(results: Results) -> Drawing:
    """128, 160 and 192 as in the thesis, then the whole range."""
    rows = of(results, "blocks", "launches")
    theirs = results.thesis[(results.thesis["benchmark"] == 3) & results.thesis["block_size"].notna()]
    figure, axes = plt.subplots(1, 2 if len(rows) else 1, figsize=(11 if len(rows) else 6, 4), layout="constrained",
                                squeeze=False)  # fmt: skip
    theirs = theirs.sort_values(["evaluator", "block_size", "sample"])
    names = "thesis\n" + theirs["evaluator"].str.replace("_", " ") + "\n" + theirs["block_size"].astype(str)
    plots.violins(axes[0][0], pd.DataFrame({"evaluator": names, "seconds": theirs["seconds"]}))
    axes[0][0].set(title="the thesis, benchmark 3", ylabel="seconds a sample")
    if len(rows):
        table = measured.relative_to_best(results)
        axis = axes[0][1]
        sizes = list(table.columns)
        for (name, times), marker in zip(table.iterrows(), "osD^vP", strict=False):
            thesis = str(name).startswith("thesis")
            there = times.dropna()
            axis.plot([sizes.index(size) for size in there.index], there, marker=marker, label=name,
                      color=colour_of(str(name)), linestyle=":" if thesis else "-",
                      markerfacecolor="white" if thesis else None)  # fmt: skip
        axis.set_xticks(range(len(sizes)), [str(size) for size in sizes])
        axis.set(title="relative to the best size of each", xlabel="threads a block",
                 ylabel="times the shortest", ylim=(0.9, None))  # fmt: skip
        axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, frameon=False)
        axis.grid(alpha=0.3)
    plt.close(figure)
    what = (
        "Block sizes on benchmark 3: the thesis's samples; at the right the thesis's samples and one step of ours (at"
        " the best number of points a thread) over the shortest of each."
    )
    return Drawing("block_sizes", figure, caption(what, rows, THESIS, *([] if len(rows) else [NEEDS_GPU])))


# ── past the thesis ──────────────────────────────────────────────────────────────────


def phases(results: Results) -> Drawing | None:
    """Where the time of a sample goes."""
    rows = measured.benchmarks(results)
    if rows.empty:
        return None
    rows = rows.assign(panel=plots.benchmark_of(rows))
    rows = rows[~plots.beside_others(rows, rows["source"].eq(plots.SOURCES[1]))]
    names = [f"{phase}_s" for phase in bench.PHASES]
    table = rows.groupby(["panel", "evaluator"], sort=False)[[*names, "total_s"]].median().reset_index()
    table = table.sort_values(["panel", "total_s"], kind="stable")
    names_of = table["evaluator"].str.replace("\n", " ").str.removeprefix("exprkit ")
    labels = table["panel"].astype(str) + ": " + names_of
    figure, axis = plt.subplots(figsize=(9, 0.9 + 0.36 * len(table)), layout="constrained")
    left = np.zeros(len(table))
    for name, colour in zip(names, sns.color_palette("viridis", len(names)), strict=True):  # in grey from dark to light
        share = (table[name] / table[names].sum(axis=1)).to_numpy()
        axis.barh(labels, share, left=left, color=colour, label=name.removesuffix("_s"), height=0.75, edgecolor="white")
        left += share
    for place, total in enumerate(table["total_s"]):
        axis.annotate(written(total), (1.01, place), va="center", annotation_clip=False)
    axis.set(xlabel="share of a sample; its length at the right", xlim=(0, 1.12))
    axis.invert_yaxis()
    axis.legend(ncols=len(names), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    plt.close(figure)
    what = "Phases of a sample on benchmarks 1, 2 and 3 (medians)."
    return Drawing("phases", figure, caption(what, rows, *_notes(rows)))


def tuning(results: Results) -> Drawing | None:
    """Heat maps over block size and points a thread, and the threads that find no point."""
    rows = of(results, "blocks", backend="cuda")
    rows = rows[rows["points_per_thread"].notna()] if len(rows) else rows
    if rows.empty:
        return None
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained", width_ratios=(1, 1, 0.9))
    rows = rows.assign(
        ms=1e3 * rows["step_s"],
        warps=rows["resident_blocks"] * rows["block_used"] / 32 / measured.WARPS_OF_A_MULTIPROCESSOR,
    )
    for axis, column, title, text in (
        (axes[0], "ms", "milliseconds a step", ".3f"), (axes[1], "warps", "occupancy and registers a thread", ""),
    ):  # fmt: skip
        table = rows.pivot_table(column, "points_per_thread", "block_size", "median")
        if table.empty:
            axis.set_axis_off()
            continue
        labels: Any = True if text else _with_registers(rows, table)
        sns.heatmap(table, annot=labels, fmt=text, cmap="cividis" + ("_r" if text else ""), ax=axis, cbar=False,
                    annot_kws={"fontsize": 8})  # fmt: skip
        axis.set(title=title, xlabel="threads a block", ylabel="points a thread")
    _excess_panel(axes[2])
    plt.close(figure)
    what = "The CUDA interpreter on benchmark 3 over block size and points a thread; occupancy: resident warps over 64."
    return Drawing("tuning", figure, caption(what, rows, "Right: idle threads, by arithmetic."))


def _with_registers(rows: pd.DataFrame, table: pd.DataFrame) -> Any:
    registers = rows.pivot_table("registers", "points_per_thread", "block_size", "median").reindex_like(table)
    pairs = zip(table.to_numpy().ravel(), registers.to_numpy().ravel(), strict=True)
    return np.array([f"{share:.0%}\n{count:.0f}" for share, count in pairs]).reshape(table.shape)


def excess(n_points: int, at_once: int) -> float:
    """Share of the places for points that stay empty where ``at_once`` points are worked on together."""
    return 1 - n_points / (-(-n_points // at_once) * at_once)


def _excess_panel(axis: Axes) -> None:
    """Thesis: a point a thread, whole blocks. Ours: tiles of a warp, whatever the block."""
    lines = [("thesis, block of {}", block, block) for block in (128, 160, 192, 256)]
    lines += [("ours, {} points a thread", points, 32 * points) for points in (4, 8, 16, 32)]
    names = [name.format(number) for name, number, _ in lines]
    for shift, (n_points, colour) in enumerate(zip((362, 10_860), sns.color_palette("colorblind")[:2], strict=True)):
        shares = [excess(n_points, at_once) for *_, at_once in lines]
        drawn = axis.barh(np.arange(len(lines)) + 0.38 * (shift - 0.5), shares, height=0.36, color=colour,
                          label=f"{n_points:,} points")  # fmt: skip
        axis.bar_label(drawn, [f"{share:.1%}" for share in shares], padding=2, fontsize=8)
    axis.set_yticks(np.arange(len(lines)), names)
    axis.invert_yaxis()
    axis.margins(x=0.2)
    axis.set(title="excess threads", xlabel="share of idle places")
    axis.legend(fontsize=8)


def scaling(results: Results) -> Drawing | None:
    """Cost against everything that a population can have more of."""
    used = [(of(results, study), column, title) for study, column, title in AXES]
    if all(rows.empty for rows, *_ in used):
        return None
    figure, axes = plt.subplots(2, 3, figsize=(13, 7.5), layout="constrained")
    used = [(with_code(rows, both=column == "n_steps"), column, title) for rows, column, title in used]
    kept = f", {plots.CODE['kept']}"  # which all other panels show
    used = [(rows.assign(where=rows["where"].str.removesuffix(kept)), *rest) if len(rows) else (rows, *rest)
            for rows, *rest in used]  # fmt: skip
    names = sorted({name for rows, *_ in used if len(rows) for name in rows["where"]})
    palette = {name: colour_of(name.partition(",")[0]) for name in names}
    legend: dict[str, Any] = {}
    for axis, (rows, column, title) in zip(axes.flat, used, strict=True):
        if rows.empty:
            axis.set_axis_off()
            continue
        other = AT.get(column)
        if other:
            at = other[1] if rows[other[0]].eq(other[1]).any() else rows[other[0]].max()
            rows, title = rows[rows[other[0]] == at], f"{title}, {at:,} {other[2]}"
        size, label = (1, "seconds a step") if other else (rows["n_exprs"] * rows["n_points"] / 1e9, "ns an evaluation")
        alone = rows["device_s"].fillna(rows["step_s"])
        step = rows["total_s"] / rows["n_steps"] if column == "n_steps" else alone
        with quiet():
            sns.lineplot(
                rows.assign(cost=step / size), x=column, y="cost", hue="where", style="where", markers=True,
                hue_order=names, style_order=names, palette=palette, estimator="median", errorbar=("pi", 50), ax=axis,
            )  # fmt: skip
        legend |= dict(zip(*axis.get_legend_handles_labels()[::-1], strict=True))
        axis.set(xlabel=title, ylabel=f"{label}, all included" if column == "n_steps" else label)
        axis.semilogy()
        low, high = axis.get_ylim()
        wider = max(np.sqrt(10 * low / high), 1)  # a decade at least, or noise would look like growth
        axis.set_ylim(low / wider, high * wider)
        if column.startswith("n_") and column != "n_vars":
            axis.semilogx()
        axis.legend().remove()
        axis.grid(alpha=0.3)
    figure.legend([legend[name] for name in names], names, loc="outside upper center", ncols=6)
    plt.close(figure)
    rows = pd.concat([rows for rows, *_ in used])
    what = (
        "Cost of the steps that give every expression's squared error, against one size at a time; random trees of 10"
        " to 50 tokens in the first two panels, of 21 tokens, 5 variables and 2 parameters where these do not vary in"
        " the others; on a GPU the time of the device alone; medians and quartiles. An evaluation is one expression at"
        " one point. Last panel: whole samples, with parsing."
    )
    return Drawing("scaling", figure, caption(what, rows))


def crossover(results: Results) -> Drawing | None:
    """Which backend wins where, for searches of 1 to 1,000 steps."""
    rows = of(results, "map")
    files = [file for file, some in rows.groupby("file") if some["where"].nunique() > 1] if len(rows) else []
    if not files:
        return None
    maps = [(file, some) for file in files for some in measured.maps_of(rows[rows["file"] == file])]
    figure, axes = plt.subplots(len(maps), len(CROSSOVER_STEPS), figsize=(14, 3.3 * len(maps)), layout="constrained",
                                squeeze=False)  # fmt: skip
    for line, (_, some) in zip(axes, maps, strict=True):
        for axis, n_steps in zip(line, CROSSOVER_STEPS, strict=True):
            _winners(axis, measured.winners(some, n_steps))
            axis.set_title(f"{n_steps:,} step{'s' if n_steps > 1 else ''}", fontsize=10)
        compiling = f"\nptx {plots.CODE[some['code'].max()]}" if some["code"].ne("").any() else ""
        line[0].set_ylabel(f"{', '.join(dict.fromkeys(some['device'].map(short)))}{compiling}\nexpressions")
    plt.close(figure)
    what = (
        "The backend with the shortest sample at each size, and how many times longer the next one takes: parsing,"
        " preparing and so many steps of squared errors; random trees of 10 to 50 tokens."
    )
    return Drawing("crossover", figure, caption(what, rows[rows["file"].isin(files)]))


def _winners(axis: Axes, table: pd.DataFrame) -> None:
    names = sorted(table["where"].unique())
    codes = table.assign(code=table["where"].map(names.index)).pivot(index="n_exprs", columns="n_points", values="code")
    words = table["where"].str.partition(",")[0] + table["factor"].map("\n{:.3g}x".format)
    labels = table.assign(words=words).pivot(index="n_exprs", columns="n_points", values="words").fillna("")
    sns.heatmap(
        codes, annot=labels, fmt="", cmap=ListedColormap([colour_of(name.partition(",")[0]) for name in names]),
        vmin=-0.5, vmax=len(names) - 0.5, cbar=False, linewidths=1, ax=axis, annot_kws={"fontsize": 8},
        xticklabels=[f"{n:,}" for n in codes.columns], yticklabels=[f"{n:,}" for n in codes.index],
    )  # fmt: skip
    axis.invert_yaxis()
    axis.set(xlabel="points", ylabel="")
    axis.tick_params(labelsize=8, rotation=0)


def roofline(results: Results) -> Drawing | None:
    """Node evaluations a second over node evaluations a byte, under what the machine can do."""
    rows = of(results, "benchmarks", "results", "map", "tokens")
    if len(rows):
        rows = rows[rows["n_points"].ge(10_000) & rows["backend"].ne("numpy") & rows["dispatch"].eq("")]
        rows = rows[rows["results"].ne("every")]  # which is bound by the way to the host
        rows = with_code(rows, both=False)
    if rows.empty:
        return None
    table = measured.kernels(rows)
    files = list(dict.fromkeys(table["file"]))
    figure, axes = plt.subplots(1, len(files), figsize=(6.5 * len(files), 4.6), layout="constrained", squeeze=False)
    for axis, file in zip(axes[0], files, strict=True):
        some = table[table["file"] == file]
        with quiet():
            sns.scatterplot(
                some, x="nodes_per_byte", y="nodes_per_s", hue="where", style="where", s=60, ax=axis,
                palette={name: colour_of(name.partition(",")[0]) for name in some["where"].unique()},
            )  # fmt: skip
        for name, bytes_per_s, nodes_per_s in measured.roofs_of(results.records.get(file, {})):
            reach = np.geomspace(some["nodes_per_byte"].min() / 3, some["nodes_per_byte"].max() * 3)
            axis.plot(reach, np.minimum(bytes_per_s * reach, nodes_per_s), "--", linewidth=1, label=f"roof, {name}")
        axis.loglog()
        axis.set(xlabel="node evaluations a byte moved at least",
                 ylabel="node evaluations a second", title=file,
                 ylim=(some["nodes_per_s"].min() / 3, some["nodes_per_s"].max() * 20))  # fmt: skip
        axis.legend(fontsize=7)
        axis.grid(alpha=0.3)
    plt.close(figure)
    what = (
        "Roofline: medians of each configuration with 10,000 points or more; at the left steps that write the matrix,"
        " at the right those that sum errors; on a GPU one step on the device alone. Roofs: the measured rate of"
        " copying, and on a GPU one instruction a node on every arithmetic unit at the highest clock."
    )
    return Drawing("roofline", figure, caption(what, rows))


ALL: tuple[Callable[[Results], Drawing | None], ...] = (
    benchmark, interpreter, transpiler, steps, block_sizes, phases, tuning, scaling, crossover, roofline,
)  # fmt: skip
