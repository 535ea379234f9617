"""The study's conclusions in words: the thesis's questions, its answers, ours, and why they differ.

Above ``figures``: every number is computed from the recorded results, and what is not measured
is said to be so.  The end of ``comparison.ipynb`` shows the page, the README quotes it.

    >>> from exprkit.study import conclusions, figures
    >>> text = conclusions.page(figures.read_results("data/results"))
    >>> text.count("**The thesis.**") == text.count("**Here.**") == len(conclusions.QUESTIONS)
    True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from exprkit.errors import brought_by
from exprkit.study import figures, measured, plots
from exprkit.study.markdown import table
from exprkit.study.measured import Results, of, with_code
from exprkit.study.plots import BENCHMARKS, short, written
from exprkit.study.workload import SOURCES

with brought_by("notebooks"):
    import pandas as pd

__all__ = ["QUESTIONS", "page"]

GROWING = (  # study, column, words, whether cost may grow in proportion
    ("map", "n_exprs", "expressions, {:,} points", True),
    ("map", "n_points", "points, {:,} expressions", True),
    ("tokens", "tokens_each", "tokens an expression", True),
    ("vars", "n_vars", "variables", False),
    ("params", "params_each", "parameters an expression", False),
)
MISSING = "Not measured yet on a GPU."
NEVER = "never"
MANY = 10_000  # expressions from which a comparison of steps is told; and points
MAKES = {"last": "matrix", "every": "matrix", "loss": "errors"}


def page(results: Results) -> str:
    """All questions as Markdown."""
    return "\n\n".join(
        f"**{question}**\n\n**The thesis.** {theirs(results)}\n\n**Here.** {ours(results)}\n\n**Why.** {why}"
        for question, theirs, ours, why in QUESTIONS
    )


# ── numbers ──────────────────────────────────────────────────────────────────────────


def thesis_median(results: Results, benchmark: int, evaluator: str, block: int | None = None) -> float:
    """Seconds of a sample of the thesis, at the best block size unless one is given."""
    rows = results.thesis[(results.thesis["benchmark"] == benchmark) & (results.thesis["evaluator"] == evaluator)]
    if block is not None:
        rows = rows[rows["block_size"] == block]
    return float(rows.groupby("block_size", dropna=False)["seconds"].median().min())


def own_medians(results: Results, column: str = "total_s") -> pd.DataFrame:
    """A row a benchmark, a column a backend where it ran (one launch for all): medians."""
    rows = of(results, "benchmarks", "benchmark", dispatch="")
    if rows.empty:
        return pd.DataFrame()
    rows = with_code(rows, both=True)
    rows = rows.assign(benchmark=plots.benchmark_of(rows), of_esr=rows["source"].eq(plots.SOURCES[1]))
    rows = rows[rows["benchmark"] != plots.OTHER].sort_values("of_esr", kind="stable")
    each = rows.groupby(["benchmark", "where", "source"], sort=False)[column].median().reset_index()
    each = each.drop_duplicates(["benchmark", "where"])  # expressions all different, where there are such
    return each.pivot(index="benchmark", columns="where", values=column)


def _backend(columns: Iterable[str], *names: str) -> list[str]:
    return [column for column in columns if column.partition(",")[0] in names]


def times(factor: float) -> str:
    """A ratio in words."""
    return f"{factor:,.0f} times" if factor >= 10 else f"{factor:.2g} times"


def span(values: Iterable[float], write: Callable[[float], str]) -> str:
    """``1.2 to 2.3 times``: the least and the most, written once where they read the same."""
    low, high = (write(end(list(values))) for end in (min, max)) if not isinstance(values, pd.Series) else (
        write(values.min()), write(values.max())
    )  # fmt: skip
    if low == high:
        return low
    number, _, unit = low.partition(" ")
    return f"{number} to {high}" if high.endswith(unit) and unit else f"{low} to {high}"


def _each(values: pd.Series, write: Callable[[Any], str] = written) -> str:
    """``0.2 s, 14 ms and 31 ms on benchmarks 1, 2 and 3``."""
    values = values.dropna()
    numbers, texts = [str(n) for n in values.index], [write(value) for value in values]
    if len(numbers) == 1:
        return f"{texts[0]} on benchmark {numbers[0]}"
    return f"{', '.join(texts[:-1])} and {texts[-1]} on benchmarks {', '.join(numbers[:-1])} and {numbers[-1]}"


def _steps(count: float) -> str:
    """From which step on something pays."""
    if not math.isfinite(count):
        return NEVER
    digits = max(len(str(int(count))) - 2, 0)  # two of them tell enough
    return f"{math.ceil(count / 10**digits) * 10**digits:,}"


def _sizes(index: Iterable[tuple[int, int]]) -> str:
    return ", ".join(f"{exprs:,} x {points:,}" for exprs, points in index)


# ── when is the GPU faster than the CPU? ─────────────────────────────────────────────


def gpu_theirs(results: Results) -> str:
    few = [thesis_median(results, n, "gpu_interpreter") / thesis_median(results, n, "cpu_interpreter") for n in (1, 2)]
    cpu = thesis_median(results, 3, "cpu_interpreter")
    kinds = ("gpu_interpreter", "gpu_transpiler")
    many = [cpu / thesis_median(results, 3, kind) for kind in kinds]
    return (
        f"With {BENCHMARKS[1][1]} points the CPU wins, {times(few[0])} and {times(few[1])}, however many expressions"
        f" there are; with {BENCHMARKS[3][1]:,} the GPU wins, {times(many[0])} (interpreter) and {times(many[1])}"
        " (transpiler)."
    )


def gpu_ours(results: Results) -> str:
    found = own_medians(results)
    if found.empty:
        return "Not measured yet."
    cpus, gpus = _backend(found, "cpu"), _backend(found, "cuda", "ptx")
    head = ("seconds of a sample", "thesis, CPU", "thesis, best GPU", *(f"`{name}`" for name in (*cpus, *gpus)))
    rows = []
    for n, line in found[[*cpus, *gpus]].iterrows():
        theirs = thesis_median(results, n, "cpu_interpreter"), min(
            thesis_median(results, n, kind) for kind in ("gpu_interpreter", "gpu_transpiler")
        )  # fmt: skip
        cells = ["" if pd.isna(value) else f"**{written(value)}**" if value == line.min() else written(value)
                 for value in line]  # fmt: skip
        rows.append((f"benchmark {n}", *map(written, theirs), *cells))
    shown = table(head, rows)
    if not gpus:
        return f"{MISSING} On the CPU:\n\n{shown}"
    if not cpus:
        return f"Beside no CPU yet:\n\n{shown}"
    host, its_own = _host(results, cpus)
    ratio = (found[host] / found[gpus].min(axis=1)).dropna()
    wins = ratio[ratio > 1]
    said = (
        "The GPU wins on all of them" if len(wins) == len(ratio) > 1 else
        f"The GPU wins on {len(wins)} of {len(ratio)} benchmarks"
    )  # fmt: skip
    said += f", against `{host}` of {'its own host' if its_own else 'another machine'} by {_each(ratio, times)}."
    return "\n\n".join([f"{said}\n\n{shown}", *_boundary(results)])


def _host(results: Results, cpus: list[str]) -> tuple[str, bool]:
    """The CPU that the GPU was measured beside; else another one, and that it is another."""
    rows = of(results, "benchmarks")
    files = rows.loc[rows["backend"].eq("cuda"), "file"].unique()
    beside = rows.loc[rows["backend"].eq("cpu") & rows["file"].isin(files), "where"].unique()
    own = [name for name in cpus if name in beside]
    return (own or cpus)[-1], bool(own)


def _boundary(results: Results) -> list[str]:
    """Which sizes the CPU wins, for 1 to 1,000 steps, on the machine with both."""
    rows = of(results, "map")
    said = []
    for _, some in rows.groupby("file") if len(rows) else ():
        names = some["where"].unique()
        cpus, gpus = _backend(names, "cpu"), _backend(names, "cuda", "ptx")
        if not cpus or not gpus:
            continue
        lines = []
        for n_steps in figures.CROSSOVER_STEPS:
            seconds = map_seconds(measured.maps_of(some)[0], n_steps)
            lead = (seconds[cpus].min(axis=1) / seconds[gpus].min(axis=1)).dropna()
            if lead.empty:
                continue
            lost = lead[lead < 1]
            best = seconds.loc[lead.index[lead >= 1], gpus].idxmin(axis=1)
            lines.append((
                f"{n_steps:,}", f"{len(lost)} of {len(lead)}", _sizes(lost.index) or "none",
                *(str(int(best.eq(name).sum())) for name in gpus), f"{times(lead.max())} at {_sizes([lead.idxmax()])}",
            ))  # fmt: skip
        head = ("steps", "won by the CPU", "which (expressions x points)", *(f"won by `{name}`" for name in gpus),
                "the GPU's largest lead over the CPU")  # fmt: skip
        said.append(
            f"On random trees, each generation new (so the transpiler compiles), squared errors, `{cpus[0]}` against"
            f" the GPU:\n\n{table(head, lines)}"
        )
    return said


def map_seconds(rows: pd.DataFrame, n_steps: int) -> pd.DataFrame:
    """Seconds of so many steps: a row a size, a column a backend."""
    timed = rows.assign(seconds=measured.seconds_for(rows, n_steps))
    return timed.pivot_table("seconds", ["n_exprs", "n_points"], "where", "median")


# ── when does the transpiler beat the interpreter? ───────────────────────────────────


class Pair(NamedTuple):
    """Interpreter and transpiler on the same work; seconds, and steps from which the transpiler pays."""

    makes: str
    source: str
    precision: str
    n_exprs: int
    n_points: int
    interpreter: float  # a step on the device
    transpiler: float
    compiling: float
    anew: float
    kept: float


def pairs(results: Results) -> list[Pair]:
    """All work of many expressions that both were measured on."""
    rows = of(results, "benchmarks", "results", "map", dispatch="")
    if rows.empty:
        return []
    rows = rows[rows["n_exprs"].ge(MANY) & rows["backend"].isin(("cuda", "ptx"))]
    rows = rows.assign(makes=rows["results"].map(MAKES), once=rows["total_s"] - rows["steps_s"],
                       alone=rows["device_s"].fillna(rows["kernel_s"]).fillna(rows["step_s"]))  # fmt: skip
    keys = ["file", "results", "source", "precision", "n_exprs", "n_points", "n_steps"]
    found = []
    for (_, _, source, precision, n_exprs, n_points, _), some in rows.groupby(keys, sort=False):
        cuda, anew, kept = (some[some["backend"].eq("cuda")], *(some[some["code"].eq(code)] for code in plots.CODE))
        steps = kept if len(kept) else anew
        if cuda.empty or steps.empty:
            continue
        once = cuda["once"].median()
        gain = cuda["step_s"].median() - steps["step_s"].median()
        pays = [math.inf if gain <= 0 or ptx.empty else 1 + max(0.0, (ptx["once"].median() - once) / gain)
                for ptx in (anew, kept)]  # fmt: skip
        compiling = anew["once"].median() - once if len(anew) else math.nan
        found.append(Pair(some["makes"].iloc[0], source, precision, int(n_exprs), int(n_points), cuda["alone"].median(),
                          steps["alone"].median(), compiling, *pays))  # fmt: skip
    return sorted(found, key=lambda one: (one.makes, one.n_exprs, one.n_points, one.source))


def transpiler_theirs(results: Results) -> str:
    faster = [
        thesis_median(results, n, "gpu_interpreter") / thesis_median(results, n, "gpu_transpiler") for n in (2, 3)
    ]
    return (
        f"On benchmarks 2 and 3 it is {times(faster[0])} and {times(faster[1])} as fast; on benchmark 1 it did not"
        f" finish ({thesis_median(results, 1, 'gpu_transpiler') / 3600:.0f} hours a sample): it is for few expressions."
    )


def transpiler_ours(results: Results) -> str:
    found = pairs(results)
    if not found:
        return MISSING
    kinds = (
        ("where it only sums errors of 10,000 points or more", "errors", MANY, math.inf),
        ("of fewer points", "errors", 0, MANY),
        ("where it writes the matrix", "matrix", 0, math.inf),
    )
    said: list[str] = []
    for words, makes, low, high in kinds:
        some = [one for one in found if one.makes == makes and low <= one.n_points < high]
        ratios = [one.interpreter / one.transpiler for one in some]
        if ratios:
            rest = "" if said else " as long as the transpiler"
            said.append(f"{words}, {'' if said else 'the interpreter takes '}{span(ratios, times)}{rest}")
    text = f"A step on the device: {'; '.join(said)}."
    for name, words in (("anew", "Compiling new structures has paid off"), ("kept", "Loading code from the cache has")):
        pays = [getattr(one, name) for one in found if math.isfinite(getattr(one, name))]
        if pays:
            text += f" {words} by step {span(pays, _steps)}, in {len(pays)} of {len(found)} cases."
    head = ("a step makes", "expressions x points", "interpreter, device", "transpiler, device", "compiling adds",
            "pays from step, compiled anew", "from cache")  # fmt: skip
    rows = [
        (one.makes + ("" if one.precision == "fast" else f", {one.precision}"),
         f"{one.n_exprs:,} ({SOURCES[one.source]}) x {one.n_points:,}",
         *_faster(one.interpreter, one.transpiler), "" if math.isnan(one.compiling) else written(one.compiling),
         _steps(one.anew), _steps(one.kept))
        for one in found
    ]  # fmt: skip
    return f"{text}\n\n{table(head, rows)}"


def _faster(*seconds: float) -> tuple[str, ...]:
    return tuple(f"**{written(value)}**" if value == min(seconds) else written(value) for value in seconds)


# ── how does the cost depend on what there is more of? ───────────────────────────────


def size_theirs(results: Results) -> str:
    per = {n: thesis_median(results, n, "gpu_interpreter") / BENCHMARKS[n][0] for n in (1, 2, 3)}
    return (
        f"The interpreter takes {written(per[1])} an expression on benchmark 1 and {written(per[2])} on benchmark 2:"
        f" more expressions gain nothing. 30 times the points cost only {times(per[3] / per[2])} as much. The number"
        " of variables and parameters was left for later."
    )


def size_ours(results: Results) -> str:
    columns: dict[str, list[str]] = {}
    lines: list[tuple[str, str]] = []
    for study, column, words, proportional in GROWING:
        rows = with_code(of(results, study), both=False)
        if rows.empty:
            continue
        if column in figures.AT:
            other, size, _ = figures.AT[column]
            size = size if rows[other].eq(size).any() else rows[other].max()
            rows, words = rows[rows[other] == size], words.format(size)
        rows = _measured_by_all(rows[rows["backend"] != "numpy"], column)
        if rows.empty:
            continue
        for where, some in rows.groupby("where"):
            cells = columns.setdefault(str(where), [""] * len(lines))
            cells += [""] * (len(lines) - len(cells)) + [_growth(some, column, proportional)]
        values = sorted(rows[column].unique())
        lines.append((words, f"{values[0]:,} to {values[-1]:,}"))
    whole = _steps_axis(results)
    if not lines and not whole:
        return "Not measured yet."
    head = ("more of", "from ... to", *(f"`{where}`" for where in columns))
    rows_ = [(*line, *(cells[i] if i < len(cells) else "" for cells in columns.values()))
             for i, line in enumerate(lines)]  # fmt: skip
    text = (
        "How many times as long a step of squared errors takes at the end of each range (on a GPU: on the device"
        f" alone); behind it how it grows there (^1: in proportion to the number).\n\n{table(head, rows_)}"
    ) if lines else ""
    return "\n\n".join(part for part in (text, whole) if part)


def _measured_by_all(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """Of each backend the values that every one of them was measured at."""
    by = rows.groupby("where")[column].unique()
    common = set.intersection(*map(set, by)) if len(by) else set()
    return rows[rows[column].isin(common)]


def _growth(rows: pd.DataFrame, column: str, proportional: bool) -> str:
    """``31 times, ^0.97``: over all of the range, and the exponent between its last two values."""
    step = rows["device_s"].fillna(rows["step_s"]).groupby(rows[column]).median()
    if len(step) < 2:
        return ""
    text = times(step.iloc[-1] / step.iloc[0])
    if len(step) > 2 and proportional:
        text += f", ^{np.log(step.iloc[-1] / step.iloc[-2]) / np.log(step.index[-1] / step.index[-2]):.2f}"
    return text


def _steps_axis(results: Results) -> str:
    """What a sample costs once and for each step."""
    rows = of(results, "steps_axis")
    if rows.empty or rows["backend"].eq("numpy").all():
        return ""
    said = []
    for where, some in with_code(rows[rows["backend"] != "numpy"], both=True).groupby("where"):
        most = some[some["n_steps"] == some["n_steps"].max()]
        once, step = (most["total_s"] - most["steps_s"]).median(), most["step_s"].median()
        said.append(f"`{where}` {written(once)} + {written(step)} a step")
    size = rows.iloc[0]
    return (
        f"Steps cost the same each, besides what is done once ({size['n_exprs']:,} expressions of"
        f" {size['tokens_each']} tokens, {size['n_points']:,} points): {'; '.join(said)}."
    )


# ── which block size? ────────────────────────────────────────────────────────────────


def block_theirs(results: Results) -> str:
    best = thesis_median(results, 3, "gpu_interpreter", 128)
    worse = [thesis_median(results, 3, "gpu_interpreter", block) / best for block in (160, 192)]
    gain = thesis_median(results, 3, "gpu_transpiler", 128) / thesis_median(results, 3, "gpu_transpiler", 160)
    return (
        f"128 for the interpreter: on benchmark 3, 160 takes {times(worse[0])} and 192 {times(worse[1])} as long,"
        f" although the profiler preferred 160. For the transpiler 160, {gain - 1:.0%} better than 128."
    )


def block_ours(results: Results) -> str:
    if of(results, "blocks", "launches").empty:
        return MISSING
    found = measured.relative_to_best(results)
    ours = found[~found.index.str.startswith("thesis")]
    worst = ours.max(axis=1)
    said = "; ".join(f"`{name.removeprefix('exprkit ')}` {share - 1:.0%}" for name, share in worst.items())
    head = ("threads a block", *(str(size) for size in found.columns))
    rows = [
        (f"{name}", *("" if pd.isna(value) else f"**{value:.2f}**" if value == 1 else f"{value:.2f}" for value in line))
        for name, line in found.iterrows()
    ]  # fmt: skip
    return f"With the worst size a step takes longer than with the best by: {said}.\n\n{table(head, rows)}"


# ── what is the thesis's own way worth? ──────────────────────────────────────────────


def launches_theirs(results: Results) -> str:
    return (
        f"Each expression is a launch; {BENCHMARKS[2][0]:,} of them, 100 times, take"
        f" {written(thesis_median(results, 2, 'gpu_interpreter'))} on benchmark 2: launching is the limit."
    )


def launches_ours(results: Results) -> str:
    rows = measured.per_expression(results)
    found = own_medians(results)
    if rows.empty or found.empty or not _backend(found, "cuda"):
        return MISSING
    rows = rows.assign(benchmark=plots.benchmark_of(rows))
    theirs = rows[rows["benchmark"] != plots.OTHER].groupby("benchmark")["total_s"].median()
    factor = (theirs / found[_backend(found, "cuda")[0]]).dropna()
    if factor.empty:
        return MISSING
    device = short(rows["device"].iloc[0])
    return (
        f"The same way on the {device} takes {_each(theirs[factor.index])} (10 steps, scaled); one launch for all"
        f" gains {_each(factor, times)}, on the same device. What the newer device and the language add to that"
        " was not separated."
    )


# ── is the GPU kept busy? ────────────────────────────────────────────────────────────


def busy_theirs(results: Results) -> str:
    return (
        "On benchmark 2 the transpiler keeps the CPU at 100 % and the GPU swings between 0 and 100 %; on benchmark 3"
        " the GPU is at 60 to 70 % (transpiler) and 100 % (interpreter)."
    )


def busy_ours(results: Results) -> str:
    rows = of(results, "benchmarks", "results", source=plots.SOURCES[0], dispatch="", precision="fast")
    rows = rows[rows["device_s"].notna()] if len(rows) else rows
    if rows.empty:
        return MISSING
    rows = with_code(rows, both=False)
    rows = rows.assign(makes=rows["results"].map(MAKES))
    keys = ["makes", "n_exprs", "n_points", "where"]
    each = rows.groupby(keys)[["step_s", "device_s", "device_cold_s"]].median().reset_index()
    lines = [
        (one.makes, f"{one.n_exprs:,} x {one.n_points:,}", f"`{one.where}`", written(one.step_s), written(one.device_s),
         f"{min(one.device_s / one.step_s, 1):.0%}", written(one.device_cold_s))
        for one in each.itertuples()
    ]  # fmt: skip
    share = (each["device_s"] / each["step_s"]).clip(upper=1)
    cold = each["device_cold_s"] / each["device_s"] - 1
    worst = each.loc[cold.idxmax()]
    head = ("a step makes", "expressions x points", "", "a step of a sample", "on the device alone", "share",
            "with a cold L2")  # fmt: skip
    few, many = (share[each["n_points"].eq(number)] for number in (BENCHMARKS[2][1], BENCHMARKS[3][1]))
    said = [f"with {BENCHMARKS[n][1]:,} points it works {span(some, '{:.0%}'.format)} of the time"
            for n, some in ((2, few), (3, many)) if len(some)]  # fmt: skip
    return (
        f"{'; '.join(said)[:1].upper()}{'; '.join(said)[1:]}: the rest is the host, which hands over each step's"
        f" parameters and takes its errors. A cold second-level cache costs at most {cold.max():.0%}"
        f" ({worst['makes']}, {worst['n_exprs']:,} x {worst['n_points']:,}).\n\n{table(head, lines)}"
    )


Part = Callable[[Results], str]
QUESTIONS: tuple[tuple[str, Part, Part, str], ...] = (
    (
        "When is the GPU faster than the CPU?", gpu_theirs, gpu_ours,
        "The thesis launches one kernel an expression, so that few points leave the GPU idle. Here a whole population"
        " is one launch, and what counts is how much there is to evaluate, expressions times points times steps: little"
        " of it is left to the CPU, which prepares and begins sooner. Our CPU backend is far faster than the thesis's,"
        " too, which moves the boundary back. The machines differ: ratios within a machine say more than those between"
        " them.",
    ),
    (
        "When does the transpiler beat the interpreter?", transpiler_theirs, transpiler_ours,
        "Compiling costs its time once for each new structure; a step gains what decoding costs the interpreter, which"
        " decodes a word once for many points of a thread. Steps that write every result wait for memory either way;"
        " where errors are summed, compiled code is faster. Structures are compiled in batches and in parallel:"
        " benchmark 1 takes seconds, not hours.",
    ),
    (
        "How does the cost depend on expressions, points, variables, parameters, tokens and steps?",
        size_theirs, size_ours,
        "Launches were the thesis's limit, so that its cost followed the number of expressions. Here cost follows the"
        " node evaluations once the device is full; below that, a GPU's step takes what a launch takes. Variables of a"
        " tile lie in shared memory, parameters are numbers in the program.",
    ),
    (
        "Which block size?", block_theirs, block_ours,
        "In the thesis a block is what one small launch is cut into. Here blocks stay on the device and work through"
        " a list, so that their size matters through registers and shared memory alone.",
    ),
    (
        "What is one launch for all worth?", launches_theirs, launches_ours,
        "Both ways were timed on the same device with the same expressions, so this is the cleanest comparison here.",
    ),
    (
        "Is the GPU kept busy?", busy_theirs, busy_ours,
        "The share is the time of a step on the device alone over that of a step in a sample, parameters sent from the"
        " host each time. Programs and data of so few points fit into the cache, but are read once a step and little"
        " beside what is computed and written.",
    ),
)  # fmt: skip
