"""Plot style: medians on a log axis with spreads, one colour per evaluator, reproducible to the byte.

In: what ``bench`` measures and what the thesis published.  Out: axes, names, colours and numbers in words, of which
``figures`` composes the study's figures.

    >>> from exprkit import data
    >>> from exprkit.study import plots
    >>> figure = plots.comparison(thesis=data.thesis_samples())
    >>> len(figure.axes)
    6
"""

from __future__ import annotations

import contextlib
import functools
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from exprkit.errors import brought_by, duration

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
DIFFERENT, ESR = "exhaustive", "esr"  # expressions like the thesis's; the first are shown where both are there
THESIS_STEPS = 100
THESIS_BEST_BLOCK = {"gpu_interpreter": 128, "gpu_transpiler": 160}
OTHER = "other"
PROTOCOLS = {  # what comes back: what it is called, the thesis's own first; and its mark in figures
    "every": "matrix of every step",
    "last": "matrix of the last step",
    "loss": "losses only",
}
BRIEF = {"every": "every step", "last": "last", "loss": "losses"}  # as headings
MARKS = dict(zip(PROTOCOLS, "o^s", strict=True))
CODE = {"anew": "compiling", "kept": "from cache"}  # what a sample of the transpiler does about machine code
SPREAD = 0.6, 1.4  # of samples over their median, as far as it is shown
FEW = 10  # samples that are shown as points; a violin's shape would be made up
REPEATED = "247 repeated"

# seaborn's colour-blind palette; the thesis's evaluators have the colour of what exprkit has in their place
_COLOURS = {
    "per-expression": 4,
    "per expression": 4,
    "one launch": 1,
    "cpu interpreter": 0,
    "gpu interpreter": 1,
    "gpu transpiler": 2,
}
_COLOURS |= {"cpu": 0, "cuda": 1, "ptx": 2, "numpy": 7}
_STYLE: Any = {"svg.hashsalt": "exprkit", "font.family": "DejaVu Sans", "pdf.fonttype": 42, "axes.unicode_minus": False}


class Drawing(NamedTuple):
    """A figure with the name of its files and what it shows, on what it was measured and by which command.

    Without a figure the caption says what is not measured, and what measures it.
    """

    name: str
    figure: Figure | None
    caption: str


# ── samples as the figures want them ─────────────────────────────────────────────────


def comparison(samples: pd.DataFrame | None = None, thesis: pd.DataFrame | None = None) -> Figure:
    """Seconds of a sample, a row of panels for each of the thesis's benchmarks, one more for runs of other sizes.

    At the left the medians, a mark for each protocol; at the right how far the samples lie apart.  ``samples`` are of
    ``bench.measure``, of one run or several, and ``thesis`` of ``data.thesis_samples``, at its best block size.
    """
    parts = [part for part in (thesis_samples(thesis), own_samples(samples)) if len(part)]
    table = pd.concat(parts, ignore_index=True)
    titles: dict[Any, str] = {n: "benchmark {}, {:,} x {:,}".format(n, *size) for n, size in BENCHMARKS.items()}
    titles[OTHER] = "other sizes"
    panels = [panel for panel in titles if (table["panel"] == panel).any()]
    counts = [table.loc[table["panel"] == panel, "evaluator"].nunique() for panel in panels]
    figure, axes = plt.subplots(
        len(panels),
        2,
        figsize=(11, 1 + sum(0.7 + 0.3 * count for count in counts)),
        layout="constrained",
        squeeze=False,
        sharex="col",
        height_ratios=[count + 1 for count in counts],
        width_ratios=(3, 1),
    )
    marked = [name for name in PROTOCOLS if table["results"].eq(name).any()]
    order = protocol_ranks(table["results"])
    first = table[order.eq(order.groupby([table["panel"], table["evaluator"]]).transform("min"))]
    medians = first.groupby(["panel", "evaluator"])["seconds"].median()
    for pair, panel in zip(axes, panels, strict=True):
        part = table[table["panel"] == panel]
        spread(pair, part.sort_values("evaluator", key=lambda names: -names.map(medians[panel]), kind="stable"), marked)
        pair[0].set_title(titles[panel], loc="left")
    axes[-1][0].set_xlabel("seconds per sample")
    axes[-1][1].set_xlabel("sample over median")
    mark = functools.partial(plt.Line2D, [], [], linestyle="", color="0.4")
    handles = [mark(marker=MARKS[name], label=PROTOCOLS[name]) for name in marked]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False)
    plt.close(figure)  # a notebook shows what a cell returns; once is enough
    return figure


def thesis_samples(samples: pd.DataFrame | None) -> pd.DataFrame:
    """The thesis's samples at each evaluator's best block size: columns panel, evaluator, results, seconds."""
    if samples is None:
        return pd.DataFrame()
    best = samples["evaluator"].map(THESIS_BEST_BLOCK)
    only = ~samples.groupby(["benchmark", "evaluator"])["block_size"].transform("nunique").gt(1)
    rows = samples[only | (samples["block_size"] == best)]
    names = "thesis " + rows["evaluator"].str.replace("_", " ")
    columns = {"panel": rows["benchmark"].astype(object), "evaluator": names, "results": "every"}
    return pd.DataFrame(columns | {"seconds": rows["seconds"]})


def own_samples(samples: pd.DataFrame | None) -> pd.DataFrame:
    """Our warm samples in the same columns; of expressions all different, where repeated ones were measured as well."""
    if samples is None or samples.empty:
        return pd.DataFrame()
    warm = samples[~samples["cold"]]
    table = warm[["results", "source"]].assign(
        panel=benchmark_of(warm), evaluator=evaluator_of(warm), seconds=warm["total_s"]
    )
    other = table["panel"] == OTHER
    odd = warm[other]
    exprs, points = (odd[name].map("{:,}".format).astype(str) for name in ("n_exprs", "n_points"))
    size = exprs + " x " + points + " " + odd["source"] + ", " + odd["n_steps"].astype(str) + " steps"
    table.loc[other, "evaluator"] += " " + size
    repeated = table["source"].eq(ESR) & ~other
    table.loc[repeated, "evaluator"] += " " + REPEATED
    table = table[~beside_others(table, repeated)].drop(columns="source")
    return table.sort_values("evaluator", key=lambda names: names.str.replace(" per-", "~"), kind="stable")


def beside_others(table: pd.DataFrame, repeated: pd.Series) -> pd.Series:
    """A mask of the rows of repeated expressions whose panel and evaluator were also measured with different ones."""
    names = table["panel"].astype(str) + table["evaluator"].str.removesuffix(" " + REPEATED)
    return repeated & names.isin(names[~repeated])


def benchmark_of(samples: pd.DataFrame) -> pd.Series:
    """The number of the thesis's benchmark that each row repeats, whatever comes back; else ``OTHER``."""
    numbers = pd.Series(OTHER, samples.index, dtype=object)
    like = samples["n_steps"].eq(THESIS_STEPS) & samples["source"].isin((DIFFERENT, ESR))
    like &= samples["results"].isin(PROTOCOLS) & samples["options"].eq("")
    like &= samples["block_size"].isna() & samples["points_per_thread"].isna()
    for number, (n_exprs, n_points) in BENCHMARKS.items():
        numbers[like & samples["n_exprs"].eq(n_exprs) & samples["n_points"].eq(n_points)] = number
    return numbers


def evaluator_of(samples: pd.DataFrame) -> pd.Series:
    """The name of each row in a figure: backend, launch, options, code, precision, device."""
    names = "exprkit " + samples["backend"]
    code, where = samples["code"].map(CODE).fillna(""), samples["device"].map(short)
    for part in (samples["dispatch"], samples["options"], code, samples["precision"], where):
        names += (" " + part).where(part != "", "")
    return names


def short(device: str) -> str:
    """A device's name for an axis: ``2 threads``, ``H200``."""
    return device.rpartition(", ")[2].replace("NVIDIA ", "")


def colour_of(evaluator: str) -> Any:
    """The colour of an evaluator or backend by its name."""
    words = f" {evaluator} ".replace(",", " ")
    return sns.color_palette("colorblind")[next((_COLOURS[name] for name in _COLOURS if f" {name} " in words), 9)]


# ── drawing ──────────────────────────────────────────────────────────────────────────


def spread(axes: Sequence[Axes], table: pd.DataFrame, protocols: Sequence[str] = ("every",)) -> None:
    """A line for each evaluator: medians on a log axis, written at its end; and violins of samples over their median.

    Violins are of the first protocol that an evaluator was measured with; few samples are points.
    """
    axis, beside = axes
    names = list(dict.fromkeys(table["evaluator"]))
    medians = table.groupby(["evaluator", "results"])["seconds"].median().unstack().reindex(columns=protocols)
    for place, name in enumerate(names):
        seconds_by_protocol = medians.loc[name]
        for protocol, seconds in seconds_by_protocol.items():
            axis.plot(seconds, place, MARKS[str(protocol)], color=colour_of(name), markersize=6)
        label = " / ".join("-" if seconds != seconds else duration(seconds) for seconds in seconds_by_protocol)
        axis.annotate(label, (1.01, place), xycoords=axis.get_yaxis_transform(), va="center", fontsize=8)
    if len(protocols) > 1:
        axis.annotate(" / ".join(BRIEF[name] for name in protocols), (1.01, 1.01), xycoords="axes fraction", fontsize=8)
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.semilogx()
    axis.grid(axis="both", which="major", alpha=0.3)
    first = table["evaluator"].map(medians.notna().idxmax(axis=1))
    samples = table[table["results"].eq(first)]
    each = samples.groupby("evaluator")["seconds"]
    samples = samples.assign(over=samples["seconds"] / each.transform("median"), few=each.transform("size").lt(FEW))
    palette = {name: colour_of(name) for name in names}
    drawn: dict[str, Any] = {"x": "over", "y": "evaluator", "hue": "evaluator", "order": names, "palette": palette}
    drawn |= {"legend": False, "ax": beside}
    with quiet():
        if not samples["few"].all():
            sns.violinplot(samples[~samples["few"]], **drawn, cut=0, inner="quart", density_norm="width", linewidth=1)
        if samples["few"].any():
            sns.stripplot(samples[samples["few"]], **drawn, jitter=False, size=5, alpha=0.5)  # jitter is random
    beside.set(ylabel="", yticks=[], xlabel="")
    beside.set_ylim(len(names) - 0.5, -0.5)
    beside.set_xlim(*SPREAD)
    beside.grid(axis="x", alpha=0.3)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings of seaborn 0.13.2, which is older than the libraries it calls."""
    with warnings.catch_warnings():
        for kind in (DeprecationWarning, PendingDeprecationWarning):
            warnings.simplefilter("ignore", kind)
        yield


def text_or_blank(write: Callable[[float], str], value: float) -> str:
    """A number as the text that ``write`` makes of it; an empty text for nan."""
    return "" if pd.isna(value) else write(value)


def gigabytes(count: float) -> str:
    """A number of bytes as a text in GB; an empty text for nan."""
    return text_or_blank("{:.3g} GB".format, count / 1e9)


def protocol_ranks(protocols: pd.Series) -> pd.Series:
    """The rank of each protocol, by which tables are sorted: every step, last step, losses, fits."""
    return protocols.map([*PROTOCOLS, "fit"].index)


def show(drawing: Drawing) -> None:
    """A figure and its caption in a notebook; or what lacks."""
    from IPython.display import Markdown, display

    if drawing.figure is not None:
        display(drawing.figure)
    display(Markdown(drawing.caption))


def write_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure (SVG, PDF or PNG), the same bytes for the same figure."""
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {"Software": None}}
    with matplotlib.rc_context(_STYLE):
        figure.savefig(path, metadata=metadata.get(Path(path).suffix), dpi=120)
    if Path(path).suffix == ".svg":  # Matplotlib names a clipping box by a hash of its floats, whose last bits vary
        text = Path(path).read_text(encoding="utf-8")
        for i, name in enumerate(dict.fromkeys(re.findall(r"url\(#(p[0-9a-f]{10})\)", text))):
            text = text.replace(name, f"clip_{i}")
        Path(path).write_text(text, encoding="utf-8")
