"""The study's figures, each from the recorded results: the thesis's own, and those that go past it.

Reads the files of ``records`` and the thesis's published samples; ``plots`` draws.
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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from exprkit import data
from exprkit.errors import brought_by
from exprkit.study import bench, plots, records
from exprkit.study.plots import Drawing, colour_of, quiet, short, written

with brought_by("notebooks"):
    import matplotlib.pyplot as plt
    import pandas as pd
    import seaborn as sns
    from matplotlib.colors import ListedColormap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Results", "drawings", "kernel_table", "medians", "read_results", "results_of", "write_all"]

SWEEP = "python -m exprkit sweep notebooks/benchmark.ipynb data/studies/{file}.yaml"
THESIS = "The thesis: 50 samples, Intel i5-12500 (12 threads) and RTX 3060 Ti."
NEEDS_GPU = "Ours on a GPU is not measured yet."
CROSSOVER_STEPS = (1, 10, 100, 1000)
WARPS_OF_A_MULTIPROCESSOR = 64
LANES = 128  # arithmetic units of a multiprocessor
AXES = (  # study, column, what the axis is called
    ("map", "n_exprs", "expressions"),
    ("map", "n_points", "points"),
    ("vars", "n_vars", "variables"),
    ("params", "params_each", "parameters an expression"),
    ("tokens", "tokens_each", "tokens an expression"),
    ("steps_axis", "n_steps", "steps a sample"),
)
AT = {"n_exprs": ("n_points", 10_000, "points"), "n_points": ("n_exprs", 1000, "expressions")}  # the others' size


class Results(NamedTuple):
    """What the figures are made from: ``samples`` (warm ones), the thesis's samples and steps, and the records."""

    samples: pd.DataFrame
    thesis: pd.DataFrame
    steps: pd.DataFrame
    records: dict[str, dict[str, Any]]


def read_results(folder: str | Path | None = None) -> Results:
    """Everything that is recorded in a folder; by default what was published with exprkit."""
    folder = records.recorded() if folder is None else folder
    return results_of(records.read(folder), records.read_records(folder))


def results_of(samples: pd.DataFrame, known: dict[str, dict[str, Any]] | None = None) -> Results:
    """Samples with what each figure wants to know of every one."""
    if len(samples):
        samples = samples[~samples["cold"]].reset_index(drop=True) if "cold" in samples else samples
        where = samples["backend"] + ", " + samples["device"].map(short)
        each = {name: samples[f"n_{name}"] / samples["n_exprs"] for name in ("tokens", "params")}
        samples = samples.assign(
            evaluator=plots.evaluator_of(samples), where=where,
            tokens_each=each["tokens"].round().astype(int), params_each=each["params"].round().astype(int),
            file=samples.get("file", "own"),
        )  # fmt: skip
    return Results(samples, data.thesis_samples(), data.thesis_steps(), known or {})


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


def medians(results: Results) -> pd.DataFrame:
    """Median and quartiles of every evaluator on every benchmark, the thesis's and ours, in seconds."""
    parts = [plots.thesis_samples(results.thesis), plots.own_samples(results.samples)]
    table = pd.concat([part for part in parts if len(part)], ignore_index=True)
    table = table[table["panel"] != plots.OTHER]
    table["evaluator"] = table["evaluator"].str.replace("\n", " ")
    seconds = table.groupby(["panel", "evaluator"], sort=False)["seconds"]
    found = pd.DataFrame({
        "samples": seconds.size(), "median": seconds.median(), "q25": seconds.quantile(0.25),
        "q75": seconds.quantile(0.75),
    })  # fmt: skip
    return found.reset_index().rename(columns={"panel": "benchmark"}).sort_values(["benchmark", "median"])


def of(results: Results, *studies: str, **equal: Any) -> pd.DataFrame:
    """The samples of some studies whose columns have these values."""
    samples = results.samples
    if samples.empty:
        return samples
    rows = samples["bench"].isin(studies)
    for name, value in equal.items():
        rows &= samples[name].eq(value)
    return samples[rows]


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
    rows = _benchmarks(results)
    figure = plots.comparison(rows, results.thesis)
    what = "Seconds of a sample (parsing, preparing, 100 parameter steps): the thesis's evaluators and ours."
    return Drawing("benchmark", figure, caption(what, rows, THESIS))


def interpreter(results: Results) -> Drawing:
    """GPU interpreters, the thesis's and ours."""
    return _one_kind(results, "interpreter", "gpu_interpreter", "cuda", "GPU interpreter")


def transpiler(results: Results) -> Drawing:
    """Transpilers, the thesis's and ours."""
    return _one_kind(results, "transpiler", "gpu_transpiler", "ptx", "transpiler")


def _one_kind(results: Results, name: str, theirs: str, ours: str, words: str) -> Drawing:
    rows = _benchmarks(results)
    rows = rows[rows["backend"] == ours] if len(rows) else rows
    figure = plots.comparison(rows, results.thesis[results.thesis["evaluator"] == theirs])
    what = f"Seconds of a sample: the thesis's {words}, and ours."
    return Drawing(name, figure, caption(what, rows, THESIS, *([] if len(rows) else [NEEDS_GPU])))


def _benchmarks(results: Results) -> pd.DataFrame:
    rows = of(results, "benchmarks", "benchmark")
    return rows[plots.benchmark_of(rows) != plots.OTHER] if len(rows) else rows


def steps(results: Results) -> Drawing:
    """Each optimisation step before and after."""
    rows = of(results, "steps")
    figure, axes = plt.subplots(1, 2 if len(rows) else 1, figsize=(11 if len(rows) else 6, 3.6), layout="constrained",
                                squeeze=False)  # fmt: skip
    theirs = results.steps.assign(name=results.steps["evaluator"].str.removeprefix("gpu_"))
    _steps_panel(axes[0][0], [
        (f"{row.name_}: {row.change}", row.relative, f"{row.relative:.0%}", colour_of(row.evaluator.replace("_", " ")))
        for row in theirs.rename(columns={"name": "name_"}).itertuples()
    ])  # fmt: skip
    axes[0][0].set(title="the thesis, benchmark 1", xlabel="time of a sample, first version = 1", xlim=(0, 1.25))
    if len(rows):
        _steps_panel(axes[0][1], [
            (name, seconds, written(seconds), colour_of(f"cuda {name}")) for name, seconds in own_steps(rows)
        ])  # fmt: skip
        axes[0][1].set(title="exprkit, benchmark 3", xlabel="seconds of a sample")
        axes[0][1].semilogx()
        axes[0][1].margins(x=0.4)
    plt.close(figure)
    what = "What each optimisation step brings, before above after. The thesis's are the gains that its text gives."
    note = "Ours: 100 steps; with everything anew at each step, and with a launch an expression, 1 and 10 steps scaled."
    return Drawing("steps", figure, caption(what, rows, note if len(rows) else NEEDS_GPU))


def own_steps(rows: pd.DataFrame) -> list[tuple[str, float]]:
    """From the thesis's way to ours: what it is, and the seconds of a sample of 100 steps."""
    found = []
    variants = rows.groupby(["dispatch", "n_steps", "points_per_thread", "block_size", "precision"], dropna=False)
    for (dispatch, n_steps, points, block, precision), one in variants:
        seconds = seconds_for(one, plots.THESIS_STEPS).median()
        if n_steps == 1:
            name, seconds = "everything anew at every step", one["total_s"].median() * plots.THESIS_STEPS
        elif dispatch:
            name = dispatch
        elif not pd.isna(points):
            name = f"one launch, {points} points a thread, block {block}"
        else:
            name = "as exprkit chooses" + ("" if precision == "fast" else f", {precision}")
        found.append((name, seconds))
    return sorted(found, key=lambda one: -one[1])


def seconds_for(samples: pd.DataFrame, n_steps: int) -> pd.Series:
    """What each sample would have taken with another number of steps: all but the first cost the same."""
    return samples["total_s"] - samples["evaluate_s"] + (n_steps - 1) * samples["step_s"]


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
        best = best_points(rows)
        with quiet():
            sns.lineplot(
                best, x="block_size", y="step_s", hue="evaluator", style="evaluator", markers=True, dashes=False,
                estimator="median", errorbar=("pi", 50), ax=axes[0][1],
                palette={name: colour_of(name) for name in best["evaluator"].unique()},
            )  # fmt: skip
        axes[0][1].set(title="exprkit, benchmark 3", xlabel="threads a block", ylabel="seconds a step")
        axes[0][1].loglog()
        axes[0][1].minorticks_off()
        sizes = sorted(best["block_size"].unique())
        axes[0][1].set_xticks(sizes, [str(size) for size in sizes], rotation=60, fontsize=8)
        axes[0][1].legend(title=None, fontsize=8)
        axes[0][1].grid(alpha=0.3)
    plt.close(figure)
    what = "Block sizes on benchmark 3: the thesis's samples, and one step of ours (the best points a thread)."
    return Drawing("block_sizes", figure, caption(what, rows, THESIS, *([] if len(rows) else [NEEDS_GPU])))


def best_points(rows: pd.DataFrame) -> pd.DataFrame:
    """Of each evaluator and block size the samples with the best number of points a thread."""
    rows = rows.assign(evaluator=rows["evaluator"].str.replace("\n", " "), points=rows["points_per_thread"].fillna(0))
    keys = ["evaluator", "block_size"]
    each = rows.groupby([*keys, "points"], as_index=False)["step_s"].median()
    best = each.loc[each.groupby(keys)["step_s"].idxmin(), [*keys, "points"]]
    return rows.merge(best, on=[*keys, "points"]).astype({"block_size": int})


# ── past the thesis ──────────────────────────────────────────────────────────────────


def phases(results: Results) -> Drawing | None:
    """Where the time of a sample goes."""
    rows = _benchmarks(results)
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
    for name, colour in zip(names, sns.color_palette("colorblind"), strict=False):
        share = (table[name] / table[names].sum(axis=1)).to_numpy()
        axis.barh(labels, share, left=left, color=colour, label=name.removesuffix("_s"), height=0.75)
        left += share
    for place, total in enumerate(table["total_s"]):
        axis.annotate(written(total), (1.01, place), va="center", annotation_clip=False)
    axis.set(xlabel="share of a sample; its length at the right", xlim=(0, 1.12))
    axis.invert_yaxis()
    axis.legend(ncols=len(names), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    plt.close(figure)
    return Drawing("phases", figure, caption("Phases of a sample on benchmarks 1, 2 and 3 (medians).", rows))


def tuning(results: Results) -> Drawing | None:
    """Heat maps over block size and points a thread, and the threads that find no point."""
    rows = of(results, "blocks", backend="cuda")
    rows = rows[rows["points_per_thread"].notna()] if len(rows) else rows
    if rows.empty:
        return None
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained", width_ratios=(1, 1, 0.9))
    rows = rows.assign(
        ms=1e3 * rows["step_s"], warps=rows["resident_blocks"] * rows["block_used"] / 32 / WARPS_OF_A_MULTIPROCESSOR
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


def kernel_table(results: Results) -> pd.DataFrame:
    """Of every block size and number of points a thread: step time, registers, spills, shared memory, occupancy."""
    rows = of(results, "blocks")
    rows = rows[rows["points_per_thread"].notna() & rows["registers"].notna()] if len(rows) else rows
    if rows.empty:
        return pd.DataFrame()
    rows = rows.assign(occupancy=rows["resident_blocks"] * rows["block_used"] / 32 / WARPS_OF_A_MULTIPROCESSOR)
    shown = ["step_s", "registers", "local_bytes", "shared_bytes", "resident_blocks", "occupancy"]
    return rows.groupby(["where", "block_size", "points_per_thread"])[shown].median().reset_index()


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
    figure, axes = plt.subplots(2, 3, figsize=(13, 7), layout="constrained")
    palette = {name: colour_of(name.partition(",")[0]) for name in results.samples["where"].unique()}
    for axis, (rows, column, title) in zip(axes.flat, used, strict=True):
        if rows.empty:
            axis.set_axis_off()
            continue
        other = AT.get(column)
        if other:
            at = other[1] if rows[other[0]].eq(other[1]).any() else rows[other[0]].max()
            rows, title = rows[rows[other[0]] == at], f"{title}, {at:,} {other[2]}"
        size, label = (1, "seconds a step") if other else (rows["n_exprs"] * rows["n_points"] / 1e9, "ns an evaluation")
        step = rows["total_s"] / rows["n_steps"] if column == "n_steps" else rows["step_s"]
        with quiet():
            sns.lineplot(
                rows.assign(cost=step / size), x=column, y="cost", hue="where", style="where", markers=True,
                dashes=False, palette=palette, estimator="median", errorbar=("pi", 50), ax=axis,
            )  # fmt: skip
        axis.set(xlabel=title, ylabel=f"{label}, all included" if column == "n_steps" else label)
        axis.semilogy()
        if column.startswith("n_") and column != "n_vars":
            axis.semilogx()
        axis.legend(title=None, fontsize=7)
        axis.grid(alpha=0.3)
    plt.close(figure)
    rows = pd.concat([rows for rows, *_ in used])
    what = (
        "Cost of the steps that give every expression's squared error, against one size at a time; random trees of 10"
        " to 50 tokens above, of 21 tokens, 5 variables and 2 parameters below where these do not vary; medians and"
        " quartiles. An evaluation is one expression at one point. Last panel: whole samples, with parsing."
    )
    return Drawing("scaling", figure, caption(what, rows))


def crossover(results: Results) -> Drawing | None:
    """Which backend wins where, for searches of 1 to 1,000 steps."""
    rows = of(results, "map")
    files = [file for file, some in rows.groupby("file") if some["where"].nunique() > 1] if len(rows) else []
    if not files:
        return None
    figure, axes = plt.subplots(len(files), len(CROSSOVER_STEPS), figsize=(14, 3.4 * len(files)), layout="constrained",
                                squeeze=False)  # fmt: skip
    for line, file in zip(axes, files, strict=True):
        some = rows[rows["file"] == file]
        for axis, n_steps in zip(line, CROSSOVER_STEPS, strict=True):
            _winners(axis, winners(some, n_steps))
            axis.set_title(f"{n_steps:,} step{'s' if n_steps > 1 else ''}", fontsize=10)
        line[0].set_ylabel("expressions")
    plt.close(figure)
    what = (
        "The backend with the shortest sample at each size, and how many times longer the next one takes: parsing,"
        " preparing and so many steps of squared errors; random trees of 10 to 50 tokens."
    )
    return Drawing("crossover", figure, caption(what, rows[rows["file"].isin(files)]))


def winners(rows: pd.DataFrame, n_steps: int) -> pd.DataFrame:
    """For each size the fastest backend for so many steps, and by how much.

    Returns
    -------
    pandas.DataFrame
        Columns n_exprs, n_points, where (the fastest), seconds, factor (of the next one).
    """
    timed = rows.assign(seconds=seconds_for(rows, n_steps))
    each = timed.groupby(["n_exprs", "n_points", "where"], as_index=False)["seconds"].median()
    each = each.sort_values("seconds")
    groups = each.groupby(["n_exprs", "n_points"])
    best = groups.first()
    best["factor"] = groups["seconds"].nth(1).set_axis(groups.nth(1).set_index(["n_exprs", "n_points"]).index)
    best["factor"] /= best["seconds"]
    return best.dropna(subset="factor").reset_index()  # where there are two to compare


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
    axis.tick_params(labelsize=8)


def roofline(results: Results) -> Drawing | None:
    """Node evaluations a second over node evaluations a byte, under what the machine can do."""
    rows = of(results, "benchmarks", "results", "map", "tokens")
    if len(rows):
        rows = rows[rows["n_points"].ge(10_000) & rows["backend"].ne("numpy") & rows["dispatch"].eq("")]
    if rows.empty:
        return None
    table = kernels(rows)
    files = list(dict.fromkeys(table["file"]))
    figure, axes = plt.subplots(1, len(files), figsize=(6.5 * len(files), 4.6), layout="constrained", squeeze=False)
    for axis, file in zip(axes[0], files, strict=True):
        some = table[table["file"] == file]
        with quiet():
            sns.scatterplot(
                some, x="nodes_per_byte", y="nodes_per_s", hue="where", style="results", s=60, ax=axis,
                style_order=bench.RESULTS,
                palette={name: colour_of(name.partition(",")[0]) for name in some["where"].unique()},
            )  # fmt: skip
        for name, bytes_per_s, nodes_per_s in roofs_of(results.records.get(file, {})):
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
        "Roofline: medians of each configuration with 10,000 points or more. Roofs: the measured rate of copying, and"
        " on a GPU one instruction a node on every arithmetic unit at the highest clock."
    )
    return Drawing("roofline", figure, caption(what, rows))


def kernels(rows: pd.DataFrame) -> pd.DataFrame:
    """Rate and intensity of the steps of each configuration; on a GPU by its own clock."""
    timed = rows.assign(seconds=rows["kernel_s"].fillna(rows["step_s"]))
    keys = ["file", "where", "results", "dtype", "n_exprs", "n_points", "n_vars", "n_tokens", "dispatch", "source"]
    table = timed.groupby(keys, as_index=False, dropna=False)["seconds"].median()
    nodes = table["n_tokens"] * table["n_points"]
    size = table["dtype"].map({"float32": 4, "float64": 8})
    matrix = table["results"].ne("loss") * table["n_exprs"] * table["n_points"] * size
    moved = matrix + table["n_points"] * (table["n_vars"] + 1) * size + 8 * table["n_tokens"]
    return table.assign(nodes_per_s=nodes / table["seconds"], nodes_per_byte=nodes / moved)


def roofs_of(record: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Name, bytes a second and node evaluations a second of the roofs of a record."""
    found, roofs = [], record.get("roofs", {})
    if "host_bytes_per_s" in roofs and "gpu_bytes_per_s" not in roofs:
        found.append(("host memory", roofs["host_bytes_per_s"], np.inf))
    if "gpu_bytes_per_s" in roofs:
        gpu = next(machine["gpu"] for machine in record["machines"] if "gpu" in machine)
        clock = 1e6 * (gpu["most_sm_mhz"] or np.inf)
        found.append((gpu["name"], roofs["gpu_bytes_per_s"], gpu["multiprocessors"] * LANES * clock))
    return found


ALL: tuple[Callable[[Results], Drawing | None], ...] = (
    benchmark, interpreter, transpiler, steps, block_sizes, phases, tuning, scaling, crossover, roofline,
)  # fmt: skip
