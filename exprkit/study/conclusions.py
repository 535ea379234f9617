"""The study's conclusions in words: the thesis's questions, its answers, ours, and why they differ.

Above ``figures``: every number is computed from the recorded results, what is not measured is said to be so, and
nothing is explained that is not measured.  The end of ``comparison.ipynb`` shows the page, the README quotes it.

    >>> from exprkit.study import conclusions, figures
    >>> text = conclusions.page(figures.read_results("data/results"))
    >>> text.count("**The thesis.**") == text.count("**Here.**") == len(conclusions.QUESTIONS)
    True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from exprkit.errors import brought_by, number_of
from exprkit.study import figures, measured, plots
from exprkit.study.markdown import table
from exprkit.study.measured import Results, of, with_code
from exprkit.study.plots import BENCHMARKS, written
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
NOT_YET = "Not measured yet"
MISSING = f"{NOT_YET}: {figures.MAKE_STUDY_GPU}."
NEVER = "never"
MANY = 10_000  # expressions from which a comparison of steps is told; and points
ALIKE = 1.25  # two times whose ratio is less are told to be alike
MAKES = {"last": "matrix", "every": "matrix", "loss": "errors"}


def page(results: Results) -> str:
    """All questions as Markdown."""
    parts = []
    for question, theirs, ours, why in QUESTIONS:
        here = ours(results)
        because = "" if here.startswith(NOT_YET) else why if isinstance(why, str) else why(results)
        parts += [f"**{question}**", f"**The thesis.** {theirs(results)}", f"**Here.** {here}"]
        parts += [f"**Why.** {because}"] if because else []
    return "\n\n".join(parts)


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


def _each(values: pd.Series, write: Callable[[Any], str] = written, behind: str = "") -> str:
    """``0.2 s, 14 ms and 31 ms on benchmarks 1, 2 and 3``."""
    *first, last = map(write, values.dropna())
    numbers = figures.listed(values.dropna().index)
    return f"{', '.join(first)} and {last}{behind} on {numbers}" if first else f"{last}{behind} on {numbers}"


def _steps(count: float) -> str:
    """From which step on something pays; nothing where that is not known."""
    if math.isnan(count):
        return ""
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
    cpus, gpus = _backend(found, "cpu"), _backend(found, *measured.ON_GPU)
    if not cpus and not gpus:
        return f"{NOT_YET}: {figures.MAKE_STUDY}, {figures.MAKE_STUDY_GPU}."
    head = ("seconds of a sample", "thesis, CPU", "thesis, best GPU", *(f"`{name}`" for name in (*cpus, *gpus)))
    rows = []
    for n, line in found[[*cpus, *gpus]].dropna(how="all").iterrows():
        theirs = thesis_median(results, n, "cpu_interpreter"), min(
            thesis_median(results, n, kind) for kind in ("gpu_interpreter", "gpu_transpiler")
        )  # fmt: skip
        cells = ["" if pd.isna(value) else f"**{written(value)}**" if value == line.min() else written(value)
                 for value in line]  # fmt: skip
        rows.append((f"benchmark {n}", *map(written, theirs), *cells))
    return "\n\n".join([_who_wins(results, found, cpus, gpus), table(head, rows), *_boundary(results)])


def _who_wins(results: Results, found: pd.DataFrame, cpus: list[str], gpus: list[str]) -> str:
    if not gpus:
        return f"On a GPU it is not measured yet: {figures.MAKE_STUDY_GPU}. On the CPU:"
    if not cpus:
        return f"On a CPU it is not measured yet: {figures.MAKE_STUDY}. On the GPU:"
    host, its_own = _host(results, found, cpus)
    ratio = (found[host] / found[gpus].min(axis=1)).dropna()
    if ratio.empty:
        return "CPU and GPU are not measured on the same benchmark yet:"
    wins = int((ratio > 1).sum())
    whose = "its own host" if its_own else "another machine"
    both = f"{wins} of {number_of(len(ratio), 'benchmark')} that both were measured on"
    every = "all of them" if wins == len(found) > 1 else both
    return f"The GPU wins on {every}: `{host}` of {whose} takes {_each(ratio, times, ' as long')}."


def _host(results: Results, found: pd.DataFrame, cpus: list[str]) -> tuple[str, bool]:
    """The fastest CPU of the host that the GPU is in; else of another one, and that it is another."""
    rows = of(results, "benchmarks", "benchmark")
    host = rows["file"].map({file: measured.host_of(file, results.records.get(file, {})) for file in set(rows["file"])})
    beside = rows.loc[rows["backend"].eq("cpu") & host.isin(host[rows["backend"].isin(measured.ON_GPU)]), "where"]
    own = [name for name in cpus if name in set(beside)]
    return str(found[own or cpus].rank(axis=1).mean().idxmin()), bool(own)


def _boundary(results: Results) -> list[str]:
    """Which sizes the CPU wins, for 1 to 1,000 steps, on the machine with both."""
    said = []
    for rows, cpus, gpus, leads in _leads(results):
        lines = []
        for n_steps, (lead, seconds) in leads.items():
            lost = lead[lead < 1]
            best = seconds.loc[lead.index[lead >= 1], gpus].idxmin(axis=1)
            lines.append((
                f"{n_steps:,}", f"{len(lost)} of {len(lead)}", _sizes(lost.index) or "none",
                *(str(int(best.eq(name).sum())) for name in gpus), f"{times(lead.max())} at {_sizes([lead.idxmax()])}",
            ))  # fmt: skip
        head = ("steps", "won by the CPU", "which (expressions x points)", *(f"won by `{name}`" for name in gpus),
                "the GPU's largest lead over the CPU")  # fmt: skip
        compiles = " (so the transpiler compiles)" if rows["code"].eq("anew").any() else ""
        names = " and ".join(f"`{name}`" for name in cpus)
        said.append(
            f"On {figures.sources(rows)}, each generation new{compiles}, squared errors, {names} against the GPU:"
            f"\n\n{table(head, lines)}"
        )
    return said


def _leads(results: Results) -> Iterator[tuple[pd.DataFrame, list[str], list[str], dict[int, Any]]]:
    """Of each file with CPU and GPU: its map, their names, and for numbers of steps the GPU's lead at every size."""
    rows = of(results, "map", results="loss")
    for _, some in rows.groupby("file") if len(rows) else ():
        first = measured.maps_of(some)[0]
        names = first["where"].unique()
        cpus, gpus = _backend(names, "cpu"), _backend(names, *measured.ON_GPU)
        if not cpus or not gpus:
            continue
        leads: dict[int, Any] = {}
        for n_steps in figures.CROSSOVER_STEPS:
            seconds = map_seconds(first, n_steps)
            lead = (seconds[cpus].min(axis=1) / seconds[gpus].min(axis=1)).dropna()
            leads |= {n_steps: (lead, seconds)} if len(lead) else {}
        if leads:
            yield first, cpus, gpus, leads


def gpu_why(results: Results) -> str:
    found = own_medians(results)
    cpus, gpus = _backend(found, "cpu"), _backend(found, *measured.ON_GPU)
    said = []
    if gpus:
        said.append("The thesis launches one kernel an expression, so that few points leave the GPU idle. Here a whole"
                    f" population is one launch{_left_to_the_cpu(results)}.")  # fmt: skip
    if cpus:
        best = found[cpus].min(axis=1).dropna()
        ratio = pd.Series({n: thesis_median(results, n, "cpu_interpreter") / best[n] for n in best.index})
        back = ", which moves the boundary back" if gpus and ratio.min() > 1 else ""
        said.append(f"The thesis's CPU interpreter takes {span(ratio, times)} as long as our best CPU{back}.")
    return " ".join([*said, "The machines differ: ratios within a machine say more than those between them."])


def _left_to_the_cpu(results: Results) -> str:
    """What decides, where the CPU is the faster at less work than the GPU."""
    work = [(n_exprs * n_points * n_steps, value < 1) for *_, leads in _leads(results)
            for n_steps, (lead, _) in leads.items() for (n_exprs, n_points), value in lead.items()]  # fmt: skip
    cpu, gpu = ([size for size, lost in work if lost == by_cpu] for by_cpu in (True, False))
    if not cpu or not gpu or np.median(cpu) >= np.median(gpu):
        return ""
    return (
        ", and what counts is how much there is to evaluate, expressions times points times steps: little of it is left"
        " to the CPU, which prepares and begins sooner"
    )


def map_seconds(rows: pd.DataFrame, n_steps: int) -> pd.DataFrame:
    """Seconds of so many steps: a row a size, a column a backend."""
    timed = rows.assign(seconds=measured.seconds_for(rows, n_steps))
    return timed.pivot_table("seconds", ["n_exprs", "n_points"], "where", "median")


# ── when does the transpiler beat the interpreter? ───────────────────────────────────


class Pair(NamedTuple):
    """Interpreter and transpiler on the same work; seconds, and steps from which the transpiler pays; nan: unknown."""

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
    keys = ["file", "results", "source", "dtype", "precision", "n_exprs", "n_points", "n_steps"]
    found = []
    for (_, _, source, _, precision, n_exprs, n_points, _), some in rows.groupby(keys, sort=False):
        cuda, anew, kept = (some[some["backend"].eq("cuda")], *(some[some["code"].eq(code)] for code in plots.CODE))
        steps = kept if len(kept) else anew
        if cuda.empty or steps.empty:
            continue
        once = cuda["once"].median()
        gain = cuda["step_s"].median() - steps["step_s"].median()
        pays = [math.nan if ptx.empty else math.inf if gain <= 0 else
                1 + max(0.0, (ptx["once"].median() - once) / gain) for ptx in (anew, kept)]  # fmt: skip
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
        return f"{NOT_YET}, both on the same {MANY:,} expressions or more: {figures.MAKE_STUDY_GPU}."
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
        known = [getattr(one, name) for one in found if not math.isnan(getattr(one, name))]
        pays = [steps for steps in known if math.isfinite(steps)]
        if pays:
            text += f" {words} by step {span(pays, _steps)}, in {len(pays)} of {len(known)} cases."
    head = ("a step makes", "expressions x points", "interpreter, device", "transpiler, device", "compiling adds",
            "pays from step, compiled anew", "from cache")  # fmt: skip
    rows = [
        (one.makes + ("" if one.precision == "fast" else f", {one.precision}"),
         f"{one.n_exprs:,} ({SOURCES.get(one.source, one.source)}) x {one.n_points:,}",
         *_faster(one.interpreter, one.transpiler), "" if math.isnan(one.compiling) else written(one.compiling),
         _steps(one.anew), _steps(one.kept))
        for one in found
    ]  # fmt: skip
    return f"{text}\n\n{table(head, rows)}"


def _faster(*seconds: float) -> tuple[str, ...]:
    return tuple(f"**{written(value)}**" if value == min(seconds) else written(value) for value in seconds)


def transpiler_why(results: Results) -> str:
    found = pairs(results)
    said = ["Compiling costs its time once for each new structure; a step gains what decoding costs the interpreter,"
            " which decodes a word once for many points of a thread."]  # fmt: skip
    many = [one for one in found if one.n_points >= MANY]
    matrix, errors = ([one.interpreter / one.transpiler for one in many if one.makes == makes]
                      for makes in ("matrix", "errors"))  # fmt: skip
    if matrix and 1 / ALIKE < min(matrix) <= max(matrix) < ALIKE:
        said.append("Steps that write every result of many points wait for memory either way.")
    if errors and min(errors) > 1:
        said.append("Where errors of many points are summed, compiled code is faster.")
    most = [one.compiling for one in found if (one.n_exprs, one.n_points) == BENCHMARKS[1] and one.makes == "matrix"
            and not math.isnan(one.compiling)]  # fmt: skip
    if most:
        said.append(f"Structures are compiled in batches and in parallel: on benchmark 1 that adds {written(most[0])}.")
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
    columns: dict[str, list[str]] = {}
    lines: list[tuple[str, str]] = []
    alone = ""
    for study, column, words, proportional in GROWING:
        rows = with_code(of(results, study, results="loss"), both=False)
        if rows.empty:
            continue
        if column in figures.AT:
            other, size, _ = figures.AT[column]
            size = size if rows[other].eq(size).any() else rows[other].max()
            rows, words = rows[rows[other] == size], words.format(size)
        rows = _measured_by_all(rows[rows["backend"] != "numpy"], column)
        if rows[column].nunique() < 2:
            continue
        alone = " (on a GPU: on the device alone)" if rows["device_s"].notna().any() else alone
        for where, some in rows.groupby("where"):
            cells = columns.setdefault(str(where), [""] * len(lines))
            cells += [""] * (len(lines) - len(cells)) + [_growth(some, column, proportional)]
        values = sorted(rows[column].unique())
        lines.append((words, f"{values[0]:,} to {values[-1]:,}"))
    whole = _steps_axis(results)
    if not lines and not whole:
        return f"{NOT_YET}: `make study` measures it, `notebooks/scaling.ipynb` in small."
    head = ("more of", "from ... to", *(f"`{where}`" for where in columns))
    rows_ = [(*line, *(cells[i] if i < len(cells) else "" for cells in columns.values()))
             for i, line in enumerate(lines)]  # fmt: skip
    text = (
        f"How many times as long a step of squared errors takes at the end of each range{alone}; behind it how it grows"
        f" there (^1: in proportion to the number).\n\n{table(head, rows_)}"
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
    rows = of(results, "steps_axis", results="loss")
    rows = rows[rows["backend"].ne("numpy") & rows["n_steps"].gt(1)] if len(rows) else rows
    if rows.empty:
        return ""
    said = []
    for where, some in with_code(rows, both=True).groupby("where"):
        most = some[some["n_steps"] == some["n_steps"].max()]
        once, step = (most["total_s"] - most["steps_s"]).median(), most["step_s"].median()
        said.append(f"`{where}` {written(once)} + {written(step)} a step")
    size = [figures.between(rows[name]) for name in ("n_exprs", "tokens_each", "n_points")]
    return (
        f"What is done once in a sample, and a step ({size[0]} expressions of {size[1]} tokens, {size[2]} points):"
        f" {'; '.join(said)}."
    )


def size_why(results: Results) -> str:
    studies = [of(results, study, results="loss") for study, *_ in GROWING]
    if not any(rows["backend"].isin(measured.ON_GPU).any() for rows in studies if len(rows)):
        return ""
    return (
        "Launches were the thesis's limit, so that its cost followed the number of expressions. Here cost follows the"
        " node evaluations once the device is full; below that, a GPU's step takes what a launch takes. Variables of a"
        " tile lie in shared memory, parameters are numbers in the program."
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
    if measured.blocks(results).empty:
        return MISSING
    found = measured.relative_to_best(results)
    ours = found[~found.index.str.startswith("thesis")]
    ours = ours[ours.count(axis=1) > 1]
    if ours.empty:
        return f"{NOT_YET} with more than one size: {figures.MAKE_STUDY_GPU}."
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
    apart, whole = measured.per_expression(results), of(results, "benchmarks", "benchmark", dispatch="")
    if apart.empty or whole.empty:
        return MISSING
    keys = ["where", "source", "benchmark"]
    apart, whole = (rows.assign(benchmark=plots.benchmark_of(rows)) for rows in (apart, whole))
    seconds = apart[apart["benchmark"] != plots.OTHER].groupby(keys)["total_s"].median()
    factor = (seconds / whole.groupby(keys)["total_s"].median()).dropna()
    if factor.empty:
        return MISSING
    found = pd.DataFrame({"seconds": seconds.loc[factor.index], "factor": factor}).reset_index()
    found = found.sort_values("source", key=lambda names: names.eq(plots.SOURCES[1]), kind="stable")
    said, few = [], figures.between(apart["scaled_from"].astype(int))
    for where, some in found.drop_duplicates(["where", "benchmark"]).groupby("where"):
        each = some.set_index("benchmark").sort_index()
        said.append(
            f"The same way on `{where}` takes {_each(each['seconds'])} ({few} steps, scaled); one launch for all gains"
            f" {_each(each['factor'], times)}, on the same device."
        )
    return f"{' '.join(said)} What the newer device and the language add to that was not separated."


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
         f"{min(one.device_s / one.step_s, 1):.0%}", "" if pd.isna(one.device_cold_s) else written(one.device_cold_s))
        for one in each.itertuples()
    ]  # fmt: skip
    share = (each["device_s"] / each["step_s"]).clip(upper=1)
    head = ("a step makes", "expressions x points", "", "a step of a sample", "on the device alone", "share",
            "with a cold L2")  # fmt: skip
    few, many = (share[each["n_points"].eq(BENCHMARKS[number][1])] for number in (2, 3))
    said = [f"with {BENCHMARKS[n][1]:,} points it works {span(some, '{:.0%}'.format)} of the time"
            for n, some in ((2, few), (3, many)) if len(some)]  # fmt: skip
    rest = "the rest is the host, which hands over each step's parameters and takes its errors."
    text = f"{'; '.join(said)}: {rest}" if said else rest
    return f"{text[0].upper()}{text[1:]}{_cold(each)}\n\n{table(head, lines)}"


def _cold(each: pd.DataFrame) -> str:
    """What an empty cache costs at most."""
    cold = (each["device_cold_s"] / each["device_s"] - 1).dropna()
    if cold.empty:
        return ""
    worst = each.loc[cold.idxmax()]
    size = f"{worst['makes']}, {worst['n_exprs']:,} x {worst['n_points']:,}"
    return f" A cold second-level cache costs at most {max(cold.max(), 0):.0%} ({size})."


Part = Callable[[Results], str]
QUESTIONS: tuple[tuple[str, Part, Part, str | Part], ...] = (  # the thesis, here, and why, where there is a here
    ("When is the GPU faster than the CPU?", gpu_theirs, gpu_ours, gpu_why),
    ("When does the transpiler beat the interpreter?", transpiler_theirs, transpiler_ours, transpiler_why),
    (
        "How does the cost depend on expressions, points, variables, parameters, tokens and steps?",
        size_theirs, size_ours, size_why,
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
