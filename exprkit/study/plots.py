"""How figures are drawn: violins on a log axis, one colour per evaluator, the same bytes each time.

In: what ``bench`` measures and what the thesis published.  Out: axes, names, colours and numbers in words, of which
``figures`` composes the study's figures.

    >>> from exprkit import data
    >>> from exprkit.study import plots
    >>> figure = plots.comparison(thesis=data.thesis_samples())
    >>> len(figure.axes)
    3
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from exprkit.errors import brought_by

with brought_by("notebooks"):
    import matplotlib
    import matplotlib.pyplot as plt
    import pandas as pd
    import seaborn as sns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# the thesis's benchmarks: number of expressions (1: "about 250,000") and of points
BENCHMARKS = {1: (250_000, 362), 2: (10_000, 362), 3: (10_000, 10_860)}
SOURCES = ("exhaustive", "esr")  # of expressions like the thesis's; the first is shown where both are there
THESIS_STEPS = 100
THESIS_BEST_BLOCK = {"gpu_interpreter": 128, "gpu_transpiler": 160}
OTHER = "other"
CODE = {"anew": "compiling", "kept": "from cache"}  # what a sample of the transpiler does about machine code
REPEATED = "247 repeated"

# seaborn's colour-blind palette; the thesis's evaluators have the colour of what exprkit has in their place
_COLOURS = {"per-expression": 4, "cpu interpreter": 0, "gpu interpreter": 1, "gpu transpiler": 2,
            "cpu": 0, "cuda": 1, "ptx": 2, "numpy": 7}  # fmt: skip
_STYLE: Any = {"svg.hashsalt": "exprkit", "font.family": "DejaVu Sans", "pdf.fonttype": 42, "axes.unicode_minus": False}


class Drawing(NamedTuple):
    """A figure with the name of its files and what it shows, on what it was measured and by which command."""

    name: str
    figure: Figure
    caption: str


class Lacking(NamedTuple):
    """A figure that cannot be drawn: what is not measured for it, and what measures it."""

    name: str
    caption: str


# ── samples as the figures want them ─────────────────────────────────────────────────


def comparison(
    samples: pd.DataFrame | None = None, thesis: pd.DataFrame | None = None, stacked: bool = False
) -> Figure:
    """Seconds of a sample, a panel for each of the thesis's benchmarks, one more for runs of other sizes.

    Parameters
    ----------
    samples
        From ``bench.measure``, of one run or several put together.
    thesis
        From ``data.thesis_samples``; at its best block size.
    stacked
        The panels below each other, for many evaluators on a narrow page.

    Returns
    -------
    matplotlib.figure.Figure
    """
    parts = [part for part in (thesis_samples(thesis), own_samples(samples)) if len(part)]
    table = pd.concat(parts, ignore_index=True)
    titles: dict[Any, str] = {n: "benchmark {}\n{:,} x {:,}".format(n, *size) for n, size in BENCHMARKS.items()}
    titles[OTHER] = "other sizes"
    shown = [panel for panel in titles if (table["panel"] == panel).any()]
    counts = [max(table.loc[table["panel"] == panel, "evaluator"].nunique(), 2) for panel in shown]  # room for a title
    n_rows, n_columns = (len(shown), 1) if stacked else (1, len(shown))
    size = (1.0 + 0.95 * max(counts), 3.0 * n_rows) if stacked else (1.0 + 0.85 * sum(counts), 4.4)
    figure, axes = plt.subplots(n_rows, n_columns, figsize=size, sharey=True, layout="constrained", squeeze=False,
                                width_ratios=None if stacked else counts)  # fmt: skip
    for axis, panel in zip(axes.flat, shown, strict=True):
        violins(axis, table[table["panel"] == panel])
        axis.set_title(titles[panel].replace("\n", ", " if stacked else "\n"))
        axis.margins(y=0.2 if stacked else 0.1)  # for the medians above
    for axis in axes[:, 0]:
        axis.set_ylabel("seconds per sample")
    plt.close(figure)  # a notebook shows what a cell returns; once is enough
    return figure


def thesis_samples(samples: pd.DataFrame | None) -> pd.DataFrame:
    """The thesis's samples at each evaluator's best block size: columns panel, evaluator, seconds."""
    if samples is None:
        return pd.DataFrame()
    best = samples["evaluator"].map(THESIS_BEST_BLOCK)
    only = ~samples.groupby(["benchmark", "evaluator"])["block_size"].transform("nunique").gt(1)
    kept = samples[only | (samples["block_size"] == best)]
    names = "thesis\n" + kept["evaluator"].str.replace("_", "\n")
    return pd.DataFrame({"panel": kept["benchmark"].astype(object), "evaluator": names, "seconds": kept["seconds"]})


def own_samples(samples: pd.DataFrame | None) -> pd.DataFrame:
    """Our warm samples in the same form; expressions all different are shown where there are also repeated ones."""
    if samples is None or samples.empty:
        return pd.DataFrame()
    warm = samples[~samples["cold"]] if "cold" in samples else samples
    table = pd.DataFrame({
        "panel": benchmark_of(warm), "evaluator": evaluator_of(warm), "seconds": warm["total_s"],
        "source": warm["source"],
    })  # fmt: skip
    other = table["panel"] == OTHER
    odd = warm[other]
    exprs, points = (odd[name].map("{:,}".format).astype(str) for name in ("n_exprs", "n_points"))
    size = exprs + " x " + points + "\n" + odd["source"] + ", " + odd["n_steps"].astype(str) + " steps"
    table.loc[other, "evaluator"] += "\n" + size
    repeated = table["source"].eq(SOURCES[1]) & ~other
    table.loc[repeated, "evaluator"] += "\n" + REPEATED
    table = table[~beside_others(table, repeated)].drop(columns="source")
    return table.sort_values("evaluator", key=lambda names: names.str.replace("\nper-", "~"), kind="stable")


def beside_others(table: pd.DataFrame, repeated: pd.Series) -> pd.Series:
    """Which repeated expressions have a panel and evaluator that were also measured with different ones."""
    names = table["panel"].astype(str) + table["evaluator"].str.removesuffix("\n" + REPEATED)
    return repeated & names.isin(names[~repeated])


def benchmark_of(samples: pd.DataFrame) -> pd.Series:
    """Which of the thesis's benchmarks each row repeats."""
    numbers = pd.Series(OTHER, samples.index, dtype=object)
    like = samples["n_steps"].eq(THESIS_STEPS) & samples["source"].isin(SOURCES)
    if "results" in samples:
        like &= samples["results"].eq("last") & samples["block_size"].isna() & samples["points_per_thread"].isna()
    for number, (n_exprs, n_points) in BENCHMARKS.items():
        numbers[like & samples["n_exprs"].eq(n_exprs) & samples["n_points"].eq(n_points)] = number
    return numbers


def evaluator_of(samples: pd.DataFrame) -> pd.Series:
    """What each row is called in a figure: backend, how it launches, precision, where it ran."""
    nothing = pd.Series("", samples.index)
    dispatch, code, where = (samples.get(name, nothing).fillna("") for name in ("dispatch", "code", "device"))
    names = "exprkit\n" + samples["backend"]
    for part in (dispatch, code.map(CODE).fillna(""), samples["precision"], where.map(short)):
        names += ("\n" + part).where(part != "", "")
    return names


def short(device: str) -> str:
    """A device's name for an axis: ``2 threads``, ``H200``."""
    return device.rpartition(", ")[2].replace("NVIDIA ", "")


def colour_of(evaluator: str) -> Any:
    """The colour of an evaluator or backend by its name."""
    words = f" {evaluator} ".replace("\n", " ")
    return sns.color_palette("colorblind")[next((_COLOURS[name] for name in _COLOURS if f" {name} " in words), 9)]


# ── drawing ──────────────────────────────────────────────────────────────────────────


def violins(axis: Axes, table: pd.DataFrame) -> None:
    """Violins on a log axis, each with its median written above."""
    names = list(dict.fromkeys(table["evaluator"]))
    with quiet():
        sns.violinplot(
            table, x="evaluator", y="seconds", hue="evaluator", palette={name: colour_of(name) for name in names},
            legend=False, ax=axis, log_scale=(False, True), cut=0, inner="quart", density_norm="width",
            fill=False, linewidth=2,
        )  # fmt: skip
    for place, (_, seconds) in enumerate(table.groupby("evaluator", sort=False)["seconds"]):
        axis.annotate(
            written(seconds.median()), (place, seconds.max()), xytext=(0, 4), textcoords="offset points", ha="center"
        )
    axis.set(xlabel="")
    axis.tick_params(axis="x", labelsize=8)
    axis.margins(y=0.1)
    axis.grid(axis="y", which="major", alpha=0.3)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings of seaborn 0.13.2, which is older than the libraries it calls."""
    with warnings.catch_warnings():
        for kind in (DeprecationWarning, PendingDeprecationWarning):
            warnings.simplefilter("ignore", kind)
        yield


def written(seconds: float) -> str:
    """Seconds with three digits, in the unit that suits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= (0.1 if unit == "s" else 1e-4):
            value = seconds / size
            return f"{value:,.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown: a head and rows, each cell a text."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


def show(drawing: Drawing | Lacking) -> None:
    """A figure and its caption in a notebook; or what lacks."""
    from IPython.display import Markdown, display

    if isinstance(drawing, Drawing):
        display(drawing.figure)
    display(Markdown(drawing.caption))


def write_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure (SVG, PDF or PNG), the same bytes for the same figure."""
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {"Software": None}}
    with matplotlib.rc_context(_STYLE):
        figure.savefig(path, metadata=metadata.get(Path(path).suffix), dpi=120)
