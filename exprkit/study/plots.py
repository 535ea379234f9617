"""The figures: samples of this machine beside the thesis's.

Reads what ``bench`` measures and what the thesis published; draws, and computes nothing.

    >>> from exprkit import data
    >>> from exprkit.study import plots
    >>> figure = plots.comparison(thesis=data.thesis_samples())
    >>> len(figure.axes)
    3

All figures again from the committed results: ``python -m exprkit.study.plots data/results figures``.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exprkit import data
from exprkit.errors import brought_by

with brought_by("notebooks"):
    import matplotlib
    import matplotlib.pyplot as plt
    import pandas as pd
    import seaborn as sns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["benchmark_of", "comparison", "read_results", "write_figure"]

# the thesis's benchmarks: number of expressions (1: "about 250,000"), points, source of the expressions
BENCHMARKS = {1: (250_000, 362, "exhaustive"), 2: (10_000, 362, "esr"), 3: (10_000, 10_860, "esr")}
THESIS_STEPS = 100
THESIS_BEST_BLOCK = {"gpu_interpreter": 128, "gpu_transpiler": 160}
OTHER = "other"


def comparison(samples: pd.DataFrame | None = None, thesis: pd.DataFrame | None = None) -> Figure:
    """Seconds of a sample, a panel for each of the thesis's benchmarks, one more for runs of other sizes.

    Parameters
    ----------
    samples
        From ``bench.measure``, of one run or several put together.
    thesis
        From ``data.thesis_samples``; at its best block size.

    Returns
    -------
    matplotlib.figure.Figure
    """
    parts = [part for part in (_thesis(thesis), _own(samples)) if len(part)]
    table = pd.concat(parts, ignore_index=True)
    panels = [panel for panel in (*BENCHMARKS, OTHER) if (table["panel"] == panel).any()]
    evaluators = list(dict.fromkeys(table["evaluator"]))
    colours = dict(zip(evaluators, sns.color_palette("colorblind", len(evaluators)), strict=True))
    figure, axes = plt.subplots(
        1, len(panels), figsize=(3.4 * len(panels), 4.2), sharey=True, layout="constrained", squeeze=False
    )
    for axis, panel in zip(axes[0], panels, strict=True):
        _panel(axis, table[table["panel"] == panel], colours)
        axis.set_title(_title(panel))
    axes[0][0].set_ylabel("seconds a sample")
    plt.close(figure)  # a notebook shows what a cell returns; once is enough
    return figure


def _thesis(samples: pd.DataFrame | None) -> pd.DataFrame:
    if samples is None:
        return pd.DataFrame()
    best = samples["evaluator"].map(THESIS_BEST_BLOCK)
    only = ~samples.groupby(["benchmark", "evaluator"])["block_size"].transform("nunique").gt(1)
    kept = samples[only | (samples["block_size"] == best)]
    names = "thesis\n" + kept["evaluator"].str.replace("_", "\n")
    return pd.DataFrame({"panel": kept["benchmark"].astype(object), "evaluator": names, "seconds": kept["seconds"]})


def _own(samples: pd.DataFrame | None) -> pd.DataFrame:
    if samples is None or samples.empty:
        return pd.DataFrame()
    panels = samples.apply(benchmark_of, axis=1).astype(object)
    names = "exprkit\n" + samples["backend"] + "\n" + samples["precision"]
    names = names.where(panels != OTHER, names + "\n" + samples.apply(_size, axis=1))
    return pd.DataFrame({"panel": panels, "evaluator": names, "seconds": samples["total_s"]})


def benchmark_of(row: pd.Series) -> int | str:
    """Which of the thesis's benchmarks a row repeats."""
    what = (row["n_exprs"], row["n_points"], row["source"])
    return next((n for n, known in BENCHMARKS.items() if what == known and row["n_steps"] == THESIS_STEPS), OTHER)


def _size(row: pd.Series) -> str:
    return f"{row['n_exprs']:,} x {row['n_points']:,}\n{row['source']}, {row['n_steps']} steps"


def _title(panel: Any) -> str:
    if panel == OTHER:
        return "other sizes"
    n_exprs, n_points, _ = BENCHMARKS[panel]
    return f"benchmark {panel}\n{n_exprs:,} x {n_points:,}"


def _panel(axis: Axes, table: pd.DataFrame, colours: dict[str, Any]) -> None:
    """Violins on a log axis, each with its median written above."""
    with warnings.catch_warnings():  # seaborn 0.13.2 is older than the libraries it calls
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        sns.violinplot(
            table, x="evaluator", y="seconds", hue="evaluator", palette=colours, legend=False, ax=axis,
            log_scale=(False, True), cut=0, inner="quart", density_norm="width", fill=False, linewidth=2,
        )  # fmt: skip
    for place, (_, seconds) in enumerate(table.groupby("evaluator", sort=False)["seconds"]):
        axis.annotate(
            _seconds(seconds.median()), (place, seconds.max()), xytext=(0, 4), textcoords="offset points", ha="center"
        )
    axis.set(xlabel="")
    axis.tick_params(axis="x", labelsize=8)
    axis.margins(y=0.1)
    axis.grid(axis="y", which="major", alpha=0.3)


def _seconds(value: float) -> str:
    return f"{value:,.0f} s" if value >= 1000 else f"{value:.3g} s"


def read_results(folder: str | Path) -> pd.DataFrame:
    """All samples that ``bench.save`` left in a folder."""
    paths = sorted(Path(folder).glob("*.parquet"))
    return pd.concat([pd.read_parquet(path) for path in paths], ignore_index=True) if paths else pd.DataFrame()


def write_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure, the same bytes for the same figure."""
    metadata = {"Date": None} if Path(path).suffix == ".svg" else None
    with matplotlib.rc_context({"svg.hashsalt": "exprkit"}):
        figure.savefig(path, metadata=metadata, dpi=150)


def main(results: str, figures: str) -> None:
    """Draw every figure of the README from the samples in ``results`` into ``figures``."""
    target = Path(figures) / "benchmark.svg"
    write_figure(comparison(read_results(results), data.thesis_samples()), target)
    print(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
