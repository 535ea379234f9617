"""The study's conclusions in words: the thesis's questions, its answers, ours, and why they differ.

Above ``figures``: every number is computed from the recorded results, and what is not measured
is said to be so.  The end of ``comparison.ipynb`` shows the page, the README quotes it.

    >>> from exprkit.study import conclusions, figures
    >>> text = conclusions.page(figures.read_results("data/results"))
    >>> text.count("**The thesis.**") == text.count("**Here.**") == len(conclusions.QUESTIONS)
    True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from exprkit.errors import brought_by
from exprkit.study import figures, plots
from exprkit.study.figures import Results, of
from exprkit.study.plots import BENCHMARKS, short, written

with brought_by("notebooks"):
    import pandas as pd

__all__ = ["QUESTIONS", "page"]

GROWING = (  # study, column, words
    ("map", "n_exprs", "expressions"),
    ("vars", "n_vars", "variables"),
    ("params", "params_each", "parameters an expression"),
    ("tokens", "tokens_each", "tokens an expression"),
)
MISSING = "Not measured yet on a GPU."


def page(results: Results) -> str:
    """All questions as Markdown."""
    return "\n\n".join(
        f"**{question}**\n\n- **The thesis.** {theirs(results)}\n- **Here.** {ours(results)}\n- **Why.** {why}"
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
    """A row a benchmark, a column a backend (one launch for all): medians on the fastest machine for each."""
    rows = of(results, "benchmarks", "benchmark", dispatch="")
    if rows.empty:
        return pd.DataFrame()
    rows = rows.assign(benchmark=plots.benchmark_of(rows), of_esr=rows["source"].eq(plots.SOURCES[1]))
    rows = rows[rows["benchmark"] != plots.OTHER].sort_values("of_esr", kind="stable")
    keys = ["benchmark", "where", "source"]
    each = rows.groupby(keys, sort=False)[column].median().reset_index()
    each = each.drop_duplicates(["benchmark", "where"])  # expressions all different, where there are such
    return each.pivot(index="benchmark", columns="where", values=column)


def _backend(table: pd.DataFrame, name: str) -> list[str]:
    return [column for column in table.columns if column.partition(",")[0] == name]


def times(factor: float) -> str:
    """A ratio in words."""
    return f"{factor:,.0f} times" if factor >= 10 else f"{factor:.2g} times"


def _each(values: pd.Series, write: Callable[[Any], str] = written) -> str:
    """``0.2 s, 14 ms and 31 ms on benchmarks 1, 2 and 3``."""
    values = values.dropna()
    numbers, texts = [str(n) for n in values.index], [write(value) for value in values]
    if len(numbers) == 1:
        return f"{texts[0]} on benchmark {numbers[0]}"
    return f"{', '.join(texts[:-1])} and {texts[-1]} on benchmarks {', '.join(numbers[:-1])} and {numbers[-1]}"


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
    table = own_medians(results)
    if table.empty:
        return "Not measured yet."
    said = []
    for name in [*_backend(table, "cuda"), *_backend(table, "cpu")]:
        said.append(f"A sample takes `{name}` {_each(table[name])}.")
    gpus, cpus = _backend(table, "cuda"), _backend(table, "cpu")
    if not gpus:
        return " ".join([*said, MISSING])
    for cpu in cpus:
        said.append(f"The GPU's advantage over `{cpu}` is {_each(table[cpu] / table[gpus[0]], times)}.")
    return " ".join([*said, *_boundary(results)])


def _boundary(results: Results) -> list[str]:
    """From how many points on a GPU wins, for each number of expressions on the machine with both."""
    rows = of(results, "map")
    said = []
    for _, some in rows.groupby("file") if len(rows) else ():
        if not some["backend"].eq("cuda").any():
            continue
        table = figures.winners(some, plots.THESIS_STEPS)
        on_gpu = table[~table["where"].str.startswith("cpu")]
        first = on_gpu.groupby("n_exprs")["n_points"].min()
        places = "; ".join(f"{points:,} points for {exprs:,} expressions" for exprs, points in first.items())
        cpu = next((name for name in some["where"].unique() if name.startswith("cpu")), "the CPU")
        said.append(
            f"Against `{cpu}` on random trees, {plots.THESIS_STEPS} steps, the GPU wins at {len(on_gpu)} of"
            f" {len(table)} sizes, first at {places}."
        )
    return said


# ── when does the transpiler beat the interpreter? ───────────────────────────────────


def transpiler_theirs(results: Results) -> str:
    faster = [
        thesis_median(results, n, "gpu_interpreter") / thesis_median(results, n, "gpu_transpiler") for n in (2, 3)
    ]
    return (
        f"On benchmarks 2 and 3 it is {times(faster[0])} and {times(faster[1])} as fast; on benchmark 1 it did not"
        f" finish ({thesis_median(results, 1, 'gpu_transpiler') / 3600:.0f} hours a sample): it is for few expressions."
    )


def transpiler_ours(results: Results) -> str:
    whole, prepare, first, step = (own_medians(results, f"{name}_s") for name in ("total", "prepare", "first", "step"))
    if whole.empty or not _backend(whole, "ptx") or not _backend(whole, "cuda"):
        return MISSING
    ptx, cuda = _backend(whole, "ptx")[0], _backend(whole, "cuda")[0]
    said = [f"A sample of the transpiler takes {_each(whole[ptx])}; of the interpreter {_each(whole[cuda])}."]
    once = prepare + first
    said.append(f"Of the transpiler's, preparing and the first step, compiling included, take {_each(once[ptx])}.")
    for n in whole.index[whole[[ptx, cuda]].notna().all(axis=1)]:
        gain = step.loc[n, cuda] - step.loc[n, ptx]
        cost = once.loc[n, ptx] - once.loc[n, cuda]
        if gain <= 0:
            said.append(f"On benchmark {n} its steps are no shorter than the interpreter's.")
        else:
            said.append(f"On benchmark {n} it pays from {max(1, int(np.ceil(cost / gain))):,} steps on.")
    return " ".join(said)


# ── how does the cost depend on what there is more of? ───────────────────────────────


def size_theirs(results: Results) -> str:
    per = {n: thesis_median(results, n, "gpu_interpreter") / BENCHMARKS[n][0] for n in (1, 2, 3)}
    return (
        f"The interpreter takes {written(per[1])} an expression on benchmark 1 and {written(per[2])} on benchmark 2:"
        f" more expressions gain nothing. 30 times the points cost only {times(per[3] / per[2])} as much. The number"
        " of variables and parameters was left for later."
    )


def size_ours(results: Results) -> str:
    said = []
    for where in results.samples["where"].unique() if len(results.samples) else ():
        parts = [
            _growth(of(results, study, where=where), column, words)
            for study, column, words in GROWING
        ]
        parts = [part for part in parts if part]
        if parts:
            said.append(f"`{where}`: {'; '.join(parts)}.")
    return " ".join(["A step costs:", *said]) if said else "Not measured yet."


def _growth(rows: pd.DataFrame, column: str, words: str) -> str:
    """How much longer a step takes at the largest value than at the smallest."""
    if column == "n_exprs" and len(rows):
        rows = rows[rows["n_points"] == 10_000]
    if rows.empty:
        return ""
    step = rows.groupby(column)["step_s"].median()
    if len(step) < 2:
        return ""
    return f"{times(step.iloc[-1] / step.iloc[0])} as much for {step.index[-1]:,} as for {step.index[0]:,} {words}"


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
    rows = of(results, "blocks", "launches")
    if rows.empty:
        return MISSING
    best = figures.best_points(rows)
    said = []
    for evaluator, some in best.groupby("evaluator", sort=False):
        step = some.groupby("block_size")["step_s"].median()
        said.append(
            f"`{evaluator.removeprefix('exprkit ')}`: best {step.idxmin()}, worst {step.idxmax()},"
            f" {times(step.max() / step.min())} as long."
        )
    return " ".join(said)


# ── what is the thesis's own way worth? ──────────────────────────────────────────────


def launches_theirs(results: Results) -> str:
    return (
        f"Each expression is a launch; {BENCHMARKS[2][0]:,} of them, 100 times, take"
        f" {written(thesis_median(results, 2, 'gpu_interpreter'))} on benchmark 2: launching is the limit."
    )


def launches_ours(results: Results) -> str:
    rows = of(results, "benchmarks", dispatch="per-expression")
    table = own_medians(results)
    if rows.empty or table.empty or not _backend(table, "cuda"):
        return MISSING
    rows = rows.assign(benchmark=plots.benchmark_of(rows))
    theirs = rows.groupby("benchmark")["total_s"].median()
    factor = (theirs / table[_backend(table, "cuda")[0]]).dropna()
    device = short(rows["device"].iloc[0])
    return (
        f"The same way on the {device} takes {_each(theirs)}; one launch for all gains {_each(factor, times)},"
        " on the same device. What the newer device and the language add to that was not separated."
    )


Part = Callable[[Results], str]
QUESTIONS: tuple[tuple[str, Part, Part, str], ...] = (
    (
        "When is the GPU faster than the CPU?", gpu_theirs, gpu_ours,
        "The thesis launches one kernel an expression, so that few points leave the GPU idle. Here a whole population"
        " is one launch, and the work of a launch is expressions times points: the number of points alone decides"
        " nothing any more. Our CPU backend is also far faster than the thesis's, which moves the boundary back. The"
        " machines differ: ratios within a machine say more than those between them.",
    ),
    (
        "When does the transpiler beat the interpreter?", transpiler_theirs, transpiler_ours,
        "Compiling costs its time once for each new structure, and a step gains what decoding costs the interpreter,"
        " which decodes a word once for many points of a thread. Steps that write every result wait for memory either"
        " way; where they only sum errors, compiled code is faster: from how many steps on that pays stands in"
        " `data/results/h200_ptx.md`. Structures are compiled in batches and in parallel: benchmark 1 takes seconds,"
        " not hours.",
    ),
    (
        "How does the cost depend on expressions, points, variables, parameters and tokens?", size_theirs, size_ours,
        "Launches were the thesis's limit, so that its cost followed the number of expressions. Here cost follows the"
        " node evaluations once the device is full. Variables of a tile lie in shared memory, parameters are numbers"
        " in the program.",
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
)  # fmt: skip
