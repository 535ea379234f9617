"""The section of conclusions in the results: the thesis's questions, its answers, exprkit's numbers, and the
differences explained.

In: the recorded results.  Out: the page, as the end of ``comparison.ipynb`` shows it and ``make readme`` writes it.

    >>> from exprkit.study import conclusions, figures
    >>> text = conclusions.page(figures.read_results("data/results"))
    >>> text.count("**The thesis.**") == text.count("**Here.**") == len(conclusions.QUESTIONS)
    True

In ``conclusions.md`` a line is a sentence or a table.  ``{name}`` stands for a number of this module, ``{name:times}``
says how it is written (``WAYS``), ``{name:span times}`` that it is several, of which the least and the most are told,
``{name:each times}`` that it is one of each benchmark.  ``[name]`` at the head of a line is a condition.  A line of
which something is not known is left out, so that nothing is said of what is not measured; an answer of which nothing
is left is its last line, and has no reasons.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from exprkit.errors import brought_by, number_of
from exprkit.study import bench, figures, measured, plots
from exprkit.study.measured import ON_GPU, Results, of, with_code
from exprkit.study.plots import BENCHMARKS, PROTOCOLS, gigabytes, known, places, table, table_of, written
from exprkit.study.workload import SOURCES

with brought_by("notebooks"):
    import pandas as pd

PAGE = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
QUESTIONS = re.findall("^## (.*)$", PAGE, re.MULTILINE)
GROWING = (  # study, column, words, whether cost may grow in proportion
    ("map", "n_exprs", "expressions, {:,} points", True),
    ("map", "n_points", "points, {:,} expressions", True),
    ("tokens", "tokens_each", "tokens per expression", True),
    ("vars", "n_vars", "variables", False),
    ("params", "params_each", "parameters per expression", False),
)
MANY = 10_000  # expressions from which a comparison of steps is told; and points
ALIKE = 1.25  # two times whose ratio is less are told to be alike
MAKES = {"every": "matrix to the host", "last": "matrix", "loss": "errors"}
STAGES = {"parse_s": "read", "lower_s": "programs", "emit_s": "structures and PTX", "compile_s": "machine code"}
THESIS_STAGES: list[dict[str, str]] = [
    {"expressions": "250,000", "": "the thesis, 12 threads", "read": "88.5 ms"},
    {"expressions": "10,000", "": "the thesis, 12 threads", "structures and PTX": "0.05 s", "machine code": "3.2 s"},
]
GENERATIONS = 54  # of the search that the thesis reckons with
Numbers = dict[str, Any]


def page(results: Results) -> str:
    """All questions as Markdown."""
    numbers = {name: value for part in PARTS for name, value in part(results).items()}
    return "\n\n".join(_answer(question, numbers) for question in PAGE.split("## ")[1:])


def _answer(text: str, numbers: Numbers) -> str:
    question, theirs, ours, why = re.split(r"\*\*(?:The thesis|Here|Why)\.\*\*\n", text)
    *ours, otherwise = ours.strip().split("\n\n")
    theirs, here, why = (_paragraphs(part, numbers) for part in ([theirs], ours, [why]))
    parts = [f"**{question.strip()}**", f"**The thesis.** {theirs}", f"**Here.** {here or otherwise}"]
    return "\n\n".join(parts + [f"**Why.** {why}"] * bool(here and why and not here.startswith("Not measured yet")))


def _paragraphs(parts: list[str], numbers: Numbers) -> str:
    said = (" ".join(filter(None, (_line(line, numbers) for line in part.strip().splitlines()))) for part in parts)
    return "\n\n".join(filter(None, said))


def _line(line: str, numbers: Numbers) -> str:
    """A line with its numbers; nothing where one of them is not known."""
    condition, sentence = re.fullmatch(r"(?:\[(\w+)\] )?(.*)", line).groups()  # type: ignore[union-attr]
    fields = re.findall(r"\{(\w+)", sentence)
    if (condition and not numbers.get(condition)) or not all(_known(numbers.get(name)) for name in fields):
        return ""
    return re.sub(r"\{(\w+):?([^}]*)\}", lambda field: _written(numbers[field[1]], field[2]), sentence)


def _known(value: Any) -> bool:
    return len(value) > 0 if isinstance(value, list | pd.Series) else value is not None and value == value


def _written(value: Any, way: str) -> str:
    kind, _, rest = way.partition(" ")
    if kind == "span":
        return span(value, WAYS[rest])
    if kind == "each":
        name, _, behind = rest.partition(" ")
        return each(value, WAYS[name], f" {behind}".rstrip())
    return WAYS[way](value)


def times(factor: float) -> str:
    """A ratio in words."""
    return f"{factor:,.0f} times" if factor >= 10 else f"{factor:.2g} times"


def steps(count: float) -> str:
    """From which step on something pays, in two digits; nothing where that is not known."""
    if not math.isfinite(count):
        return "" if math.isnan(count) else "never"
    digits = max(len(str(int(count))) - 2, 0)
    return f"{math.ceil(count / 10**digits) * 10**digits:,}"


WAYS: dict[str, Callable[[Any], str]] = {"": str, "times": times, "time": written, "steps": steps}


def span(values: Iterable[float], write: Callable[[float], str]) -> str:
    """``1.2 to 2.3 times``: the least and the most, written once where they read the same."""
    low, high = (write(end) for end in np.quantile(list(values), [0, 1]))
    number, _, unit = low.partition(" ")
    return low if low == high else f"{number if unit and high.endswith(unit) else low} to {high}"


def each(values: pd.Series, write: Callable[[Any], str] = written, behind: str = "") -> str:
    """``0.2 s, 14 ms and 31 ms on benchmarks 1, 2 and 3``."""
    *first, last = map(write, values)
    return f"{', '.join(first)}{' and ' if first else ''}{last}{behind} on {figures.listed(values.index)}"


def _sizes(index: Iterable[tuple[int, int]]) -> str:
    return ", ".join(f"{exprs:,} x {points:,}" for exprs, points in index)


def _least_bold(values: Iterable[float], write: Callable[[float], str] = written) -> list[str]:
    """Cells of a table; of what is not known an empty one."""
    values = list(values)
    return [known(lambda one: f"**{write(one)}**" if one == np.nanmin(values) else write(one), value)
            for value in values]  # fmt: skip


# ── the thesis's ─────────────────────────────────────────────────────────────────────


def _thesis(results: Results) -> Numbers:
    theirs, blocks = measured.thesis_medians(results), measured.relative_to_best(results).T
    cpu, interpreter, transpiler = (theirs[name] for name in ("cpu_interpreter", "gpu_interpreter", "gpu_transpiler"))
    each = interpreter / pd.Series({number: size[0] for number, size in BENCHMARKS.items()})
    return {
        "cpu_lead_1": interpreter[1] / cpu[1], "cpu_lead_2": interpreter[2] / cpu[2],
        "interpreter_lead": cpu[3] / interpreter[3], "transpiler_lead": cpu[3] / transpiler[3],
        "transpiler_gain_2": interpreter[2] / transpiler[2], "transpiler_gain_3": interpreter[3] / transpiler[3],
        "transpiler_hours": f"{transpiler[1] / 3600:.0f}", "thesis_launches": interpreter[2],
        "per_expression_1": each[1], "per_expression_2": each[2], "points_cost": each[3] / each[2],
        "block_160": blocks.loc[160, "thesis gpu interpreter"], "block_192": blocks.loc[192, "thesis gpu interpreter"],
        "block_gain": f"{blocks.loc[128, 'thesis gpu transpiler'] - 1:.0%}",
    }  # fmt: skip


# ── when is the GPU faster than the CPU? ─────────────────────────────────────────────


def own_medians(results: Results, comes_back: str = "every") -> pd.DataFrame:
    """Seconds of a sample: a row a benchmark, a column a backend where it ran (one launch for all)."""
    rows = measured.benchmarks(results)
    rows = with_code(rows[rows["results"].eq(comes_back) & rows["dispatch"].eq("")], both=True)
    rows = rows.assign(benchmark=plots.benchmark_of(rows), of_esr=rows["source"].eq(plots.ESR))
    rows = rows.sort_values("of_esr", kind="stable")
    seconds = rows.groupby(["benchmark", "where", "source"], sort=False)["total_s"].median().reset_index()
    seconds = seconds.drop_duplicates(["benchmark", "where"])  # expressions all different, where there are such
    return seconds.pivot(index="benchmark", columns="where", values="total_s")


def _backend(columns: Iterable[str], *names: str) -> list[str]:
    return [column for column in columns if column.partition(",")[0] in names]


def _cpu_and_gpu(results: Results) -> Numbers:
    by_protocol = {name: own_medians(results, name) for name in PROTOCOLS}
    columns = sorted({column for ours in by_protocol.values() for column in ours})
    cpus, gpus = _backend(columns, "cpu"), _backend(columns, *ON_GPU)
    if not cpus and not gpus:
        return {}
    medians = measured.thesis_medians(results)
    on_cpu, on_gpu = medians["cpu_interpreter"], medians.drop(columns="cpu_interpreter").min(axis=1)
    names = [f"`{name}`" for name in (*cpus, *gpus)]
    head = ("copied to the host", "benchmark", "thesis, CPU", "thesis, best GPU", *names)
    rows = [
        (words, str(n), *(written(theirs[n]) if name == "every" else "" for theirs in (on_cpu, on_gpu)),
         *_least_bold(line))
        for name, words in PROTOCOLS.items()
        for n, line in by_protocol[name].reindex(columns=[*cpus, *gpus]).dropna(how="all").iterrows()
    ]  # fmt: skip
    leads = list(_leads(results))
    verdicts = {f"verdict_{name}": _verdict(results, ours) for name, ours in by_protocol.items()} if cpus else {}
    little = _cpu_wins_little_work(leads)
    numbers = {"gpu": gpus, "no_gpu": not gpus, "no_cpu": not cpus, "seconds_table": table(head, rows), **verdicts,
               "no_common_benchmark": cpus and gpus and not any(verdicts.values()), "link": _link(results),
               "boundary": "\n\n".join(_boundary(*one) for one in leads) or None,
               "cpu_wins_little_work": gpus and little, "gpu_wins_any_work": gpus and not little}  # fmt: skip
    ours = by_protocol["every"]
    lacking = [n for n in BENCHMARKS if n not in ours.reindex(columns=gpus).dropna(how="all").index]
    if gpus and lacking:
        numbers["lacking"] = figures.listed(lacking)
    if cpus and len(gain := (on_cpu / ours.reindex(columns=cpus).min(axis=1)).dropna()):
        back = ", which moves the boundary back" if gpus and gain.min() > 1 else ""
        numbers |= {"cpu_gain": gain, "moves_boundary": back}
    return numbers | {"nikuradse": _nikuradse(results)}


def verdicts(results: Results) -> str:
    """Who wins the benchmarks with each of the protocols, a sentence each; nothing where CPU and GPU share none."""
    said = {words: _verdict(results, own_medians(results, name)) for name, words in PROTOCOLS.items()}
    return " ".join(f"{words.capitalize()}: {verdict}." for words, verdict in said.items() if verdict)


def _verdict(results: Results, ours: pd.DataFrame) -> str | None:
    """Who wins which benchmarks, and by how much the host's CPU is behind the GPU; nothing if they share none."""
    cpus, gpus = _backend(ours, "cpu"), _backend(ours, *ON_GPU)
    if not cpus or not gpus:
        return None
    host, its_own = _host(results, ours, cpus)
    lead = (ours[host] / ours[gpus].min(axis=1)).dropna()
    if lead.empty:
        return None
    wins = int((lead > 1).sum())
    who = f"the GPU wins {wins} of {number_of(len(lead), 'benchmark')}" if wins else "the CPU wins"
    whose = "the GPU's own host" if its_own else "another machine"
    return f"{who}; `{host}` of {whose} takes {each(lead, times, ' as long')}"


def _link(results: Results) -> str | None:
    """How fast matrices of every step come to the host, and the share of what copying alone reaches."""
    rows = measured.benchmarks(results)
    rows = rows[rows["results"].eq("every") & rows["backend"].isin(ON_GPU) & rows["dispatch"].eq("")]
    if rows.empty:
        return None
    size = rows["n_exprs"] * rows["n_points"] * rows["dtype"].map(measured.ITEMSIZE)
    rows = rows.assign(rate=size / rows["step_s"], size=size)
    most = rows[rows["size"].eq(rows["size"].max())]
    roof = max(results.records.get(file, {}).get("roofs", {}).get("link_bytes_per_s", 0) for file in set(most["file"]))
    rate = most.groupby("where")["rate"].median()
    share = f", {rate.max() / roof:.0%} of the rate of a copy alone" if roof else ""
    return f"`{rate.idxmax()}` transfers {size.max() / 1e6:,.0f} MB per step at {rate.max() / 1e9:.3g} GB/s{share}"


def _nikuradse(results: Results) -> pd.Series:
    """Times of samples on Nikuradse's own data over those on the synthetic data beside; on a CPU processor seconds."""
    rows = of(results, "nikuradse")
    keys = ["file", "n_exprs", "n_points", "source", "results", "where", "code", "dispatch"]
    seconds = rows["total_s"].where(rows["backend"].isin(ON_GPU), rows["cpu_s"])  # what else runs does not count
    rows = rows.assign(own=rows["dataset"].ne("rough_pipe"), seconds=seconds)
    seconds = rows.groupby([*keys, "own"])["seconds"].median().unstack().reindex(columns=[True, False])
    return (seconds[True] / seconds[False]).dropna()


def _host(results: Results, ours: pd.DataFrame, cpus: list[str]) -> tuple[str, bool]:
    """The fastest CPU of the host that the GPU is in; else of another one, and that it is another."""
    rows = of(results, *measured.OF_THE_THESIS)
    host = rows["file"].map({file: measured.host_of(file, results.records.get(file, {})) for file in set(rows["file"])})
    beside = rows.loc[rows["backend"].eq("cpu") & host.isin(host[rows["backend"].isin(ON_GPU)]), "where"]
    own = [name for name in cpus if name in set(beside)]
    return str(ours[own or cpus].rank(axis=1).mean().idxmin()), bool(own)


def _leads(results: Results) -> Iterator[tuple[pd.DataFrame, list[str], list[str], pd.DataFrame]]:
    """Of each file with CPU and GPU: its map, their names, seconds and the GPU's lead by protocol, steps and size."""
    for _, some in of(results, "map").groupby("file"):
        first = measured.maps_of(some)[0]
        cpus, gpus = (_backend(first["where"].unique(), *names) for names in (("cpu",), ON_GPU))
        if not cpus or not gpus:
            continue
        seconds = pd.concat({
            (name, n): measured.map_seconds(first[first["results"].eq(name)], n).reindex(columns=[*cpus, *gpus])
            for name, n in itertools.product(PROTOCOLS, figures.CROSSOVER_STEPS)
        }, names=["results", "n_steps"])  # fmt: skip
        seconds = seconds.assign(lead=seconds[cpus].min(axis=1) / seconds[gpus].min(axis=1)).dropna(subset="lead")
        if len(seconds):
            yield first, cpus, gpus, seconds


def _boundary(rows: pd.DataFrame, cpus: list[str], gpus: list[str], seconds: pd.DataFrame) -> str:
    """Which sizes the CPU wins, for 1 to 1,000 steps, on the machine with both."""
    lines = []
    for (name, n_steps), some in seconds.groupby(level=[0, 1], sort=False):
        lead = some["lead"].droplevel([0, 1])
        lost, best = lead[lead < 1], some.loc[some["lead"] >= 1, gpus].idxmin(axis=1)
        lines.append((
            PROTOCOLS[name], f"{n_steps:,}", f"{len(lost)} of {len(lead)}", _sizes(lost.index) or "none",
            *(str(int(best.eq(gpu).sum())) for gpu in gpus), f"{times(lead.max())} at {_sizes([lead.idxmax()])}",
        ))  # fmt: skip
    head = ("copied to the host", "steps", "won by the CPU", "which (expressions x points)",
            *(f"won by `{name}`" for name in gpus), "the GPU's largest lead over the CPU")  # fmt: skip
    compiles = " (so the transpiler compiles)" if rows["code"].eq("anew").any() else ""
    return (
        f"On {figures.sources(rows)}, each generation new{compiles},"
        f" {' and '.join(f'`{name}`' for name in cpus)} against the GPU:\n\n{table(head, lines)}"
    )


def _cpu_wins_little_work(leads: list[tuple[Any, ...]]) -> bool:
    """Whether the CPU is the faster at less work than the GPU."""
    lead = pd.concat([seconds["lead"] for *_, seconds in leads]).reset_index() if leads else pd.DataFrame({"lead": []})
    lost, work = lead["lead"] < 1, lead.drop(columns="lead").drop(columns="results", errors="ignore").prod(axis=1)
    return bool(work[lost].median() < work[~lost].median())  # False where one of the two wins nothing


def _ways_to_the_host(results: Results) -> Numbers:
    """How near the link's rate matrices of 32 and of 16 bits come to the host."""
    rows = measured.ways_to_the_host(results)
    if rows.empty:
        return {}
    return {"link_table": table_of(rows, WAY_COLUMNS), "no_half": not rows["results"].eq("half").any()}


# ── when does the transpiler beat the interpreter? ───────────────────────────────────


def pairs(results: Results) -> pd.DataFrame:
    """All work of many expressions that interpreter and transpiler were both measured on.

    Columns ``makes``, ``interpreter``, ``transpiler`` (seconds of a step on the device), ``compiling`` (seconds),
    ``anew`` and ``kept``: from which step on the transpiler pays; nan where that is not known.
    """
    rows = of(results, "benchmarks", "results", "map", dispatch="", options="")
    rows = rows[rows["n_exprs"].ge(MANY) & rows["backend"].isin(ON_GPU) & rows["results"].isin(MAKES)]
    if rows.empty:
        return rows
    rows = rows.assign(kind=rows["code"].mask(rows["backend"].eq("cuda"), "cuda"),
                       makes=rows["results"].map(MAKES), once=rows["total_s"] - rows["steps_s"],
                       alone=rows["device_s"].fillna(rows["kernel_s"]).fillna(rows["step_s"]))  # fmt: skip
    keys = ["makes", "n_exprs", "n_points", "source", "file", "results", "dtype", "precision", "n_steps"]
    each = rows.groupby([*keys, "kind"])[["once", "step_s", "alone"]].median().unstack("kind")
    each = each.reindex(columns=itertools.product(("once", "step_s", "alone"), ("cuda", "anew", "kept")))
    once, step, alone = (each[name] for name in ("once", "step_s", "alone"))
    gain = step["cuda"] - step["kept"].fillna(step["anew"])
    pays = {code: (1 + ((once[code] - once["cuda"]) / gain).clip(lower=0)).mask(gain.le(0) & once[code].notna(), np.inf)
            for code in plots.CODE}  # fmt: skip
    work = pd.DataFrame({
        "interpreter": alone["cuda"], "transpiler": alone["kept"].fillna(alone["anew"]),
        "compiling": once["anew"] - once["cuda"], **pays,
    })  # fmt: skip
    return work.dropna(subset=["interpreter", "transpiler"]).reset_index()


def _transpiler(results: Results) -> Numbers:
    work = pairs(results)
    if work.empty:
        return {}
    ratio, many = work["interpreter"] / work["transpiler"], work["n_points"].ge(MANY)
    errors, matrix, brought = (work["makes"].eq(MAKES[name]) for name in ("loss", "last", "every"))
    kinds = (("where it only sums errors of 10,000 points or more", errors & many), ("of fewer points", errors & ~many),
             ("where it writes the matrix", matrix),
             ("where the matrix is copied to the host (copy included)", brought))  # fmt: skip
    said = [(words, span(ratio[which], times)) for words, which in kinds if which.any()]
    first, *rest = said
    numbers: Numbers = {"interpreter_over_transpiler": "; ".join([
        f"{first[0]}, the interpreter takes {first[1]} as long as the transpiler", *map(", ".join, rest),
    ])}  # fmt: skip
    for code in plots.CODE:
        pays_from = work[code].dropna()
        pays = pays_from[np.isfinite(pays_from)]
        numbers |= {f"{code}_pays": pays, f"{code}_pays_in": len(pays), f"{code}_cases": len(pays_from)}
    head = ("result of a step", "expressions x points", "interpreter, device", "transpiler, device", "compiling adds",
            "recovered after steps, compiled anew", "from cache")  # fmt: skip
    rows = [
        (one.makes + ("" if one.precision == "fast" else f", {one.precision}"),
         f"{one.n_exprs:,} ({SOURCES.get(one.source, one.source)}) x {one.n_points:,}",
         *_least_bold((one.interpreter, one.transpiler)), known(written, one.compiling),
         steps(one.anew), steps(one.kept))
        for one in work.itertuples()
    ]  # fmt: skip
    first_benchmark = matrix & work["n_exprs"].eq(BENCHMARKS[1][0]) & work["n_points"].eq(BENCHMARKS[1][1])
    return numbers | {
        "pairs_table": table(head, rows),
        "matrix_waits": (matrix & many).any() and ratio[matrix & many].between(1 / ALIKE, ALIKE, "neither").all(),
        "errors_gain": (errors & many).any() and ratio[errors & many].gt(1).all(),
        "compiling_benchmark_1": next(iter(work.loc[first_benchmark, "compiling"].dropna()), None),
    }


# ── how does the cost depend on what there is more of? ───────────────────────────────


def _growth(results: Results) -> Numbers:
    lines: list[dict[str, str]] = []
    on_device = on_gpu = False
    for study, column, words, proportional in GROWING:
        rows = with_code(of(results, study, results="loss"), both=False)
        if rows.empty:
            continue
        on_gpu |= rows["backend"].isin(ON_GPU).any()
        if column in figures.AT:
            other, size, _ = figures.AT[column]
            size = size if rows[other].eq(size).any() else rows[other].max()
            rows, words = rows[rows[other] == size], words.format(size)
        rows = measured_by_all(rows[rows["backend"] != "numpy"], column)
        if rows[column].nunique() < 2:
            continue
        on_device |= rows["device_s"].notna().any()
        lines.append({"more of": words, "from ... to": f"{rows[column].min():,} to {rows[column].max():,}"} | {
            f"`{where}`": _grown(some, column, proportional) for where, some in rows.groupby("where")
        })  # fmt: skip
    frame = pd.DataFrame(lines).fillna("")
    return _steps_axis(results) | {
        "gpu_growth": on_gpu,
        "growth_on_device": None if not lines else " (on a GPU: on the device alone)" if on_device else "",
        "growth_table": table(frame.columns, frame.to_numpy()) if lines else None,
    }  # fmt: skip


def measured_by_all(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """Of each backend the values that every one of them was measured at."""
    common = rows.groupby(column)["where"].nunique() == rows["where"].nunique()
    return rows[rows[column].map(common).astype(bool)]


def _grown(rows: pd.DataFrame, column: str, proportional: bool) -> str:
    """``31 times, ^0.97``: over all of the range, and the exponent between its last two values."""
    step = rows["device_s"].fillna(rows["step_s"]).groupby(rows[column]).median()  # on the device alone, if measured
    text = times(step.iloc[-1] / step.iloc[0])
    if len(step) > 2 and proportional:
        text += f", ^{np.log(step.iloc[-1] / step.iloc[-2]) / np.log(step.index[-1] / step.index[-2]):.2f}"
    return text


def _steps_axis(results: Results) -> Numbers:
    """What a sample costs once and for each step."""
    rows = of(results, "steps_axis", results="loss")
    rows = rows[rows["backend"].ne("numpy") & rows["n_steps"].gt(1)]
    if rows.empty:
        return {}
    said = []
    for where, some in with_code(rows, both=True).groupby("where"):
        most = some[some["n_steps"] == some["n_steps"].max()]
        once, step = (most["total_s"] - most["steps_s"]).median(), most["step_s"].median()
        said.append(f"`{where}` {written(once)} + {written(step)} per step")
    sizes = {f"once_{name}": figures.between(rows[name]) for name in ("n_exprs", "tokens_each", "n_points")}
    return {"once_and_step": "; ".join(said), **sizes}


# ── which block size, one launch for all, and is the GPU busy? ───────────────────────


def _blocks(results: Results) -> Numbers:
    if measured.blocks(results).empty:
        return {}
    relative = measured.relative_to_best(results)
    ours = relative[~relative.index.str.startswith("thesis") & (relative.count(axis=1) > 1)]
    if ours.empty:
        return {"one_block_size": True}
    head = ("threads per block", *(str(size) for size in relative.columns))
    rows = [(name, *_least_bold(line, "{:.2f}".format)) for name, line in relative.iterrows()]
    worst = [f"`{name.removeprefix('exprkit ')}` {share - 1:.0%}" for name, share in ours.max(axis=1).items()]
    return {"worst_block_size": "; ".join(worst), "blocks_table": table(head, rows)}


def _baseline(results: Results) -> Numbers:
    """The thesis's second and third optimisation step: what its text tells, and the same on a kernel of its kind."""
    relative = results.steps[results.steps["evaluator"] == "gpu_interpreter"]["relative"].to_numpy()
    rows = of(results, "baseline")
    rows = rows.assign(seconds=measured.seconds_for(rows, plots.THESIS_STEPS))
    each = rows.groupby(["block_size", "options"])["seconds"].agg(["median", "std"]).reset_index()
    head = ("block", "stack", f"{plots.THESIS_STEPS} launches of every expression", "standard deviation")
    lines = [(str(one.block_size), one.options.partition("=")[2], written(one.median), known(written, one.std))
             for one in each.itertuples(index=False)]  # fmt: skip
    own = {"baseline_table": table(head, lines)} if len(each) else {}
    return {"gain_block": f"{1 - relative[2] / relative[1]:.0%}", "gain_stack": f"{1 - relative[3] / relative[2]:.0%}",
            **own}  # fmt: skip


# ── what does a search take besides its steps, and what does the memory hold? ────────


def _stages(results: Results) -> Numbers:
    """Seconds of reading, lowering, writing PTX and compiling, by number of expressions."""
    usual = {"source": plots.DIFFERENT, "dispatch": "", "dtype": "float32", "precision": "fast"}
    rows = with_code(of(results, *measured.OF_THE_THESIS, n_points=BENCHMARKS[2][1], **usual), both=True)
    if rows.empty:
        return {}
    each = rows.groupby(["n_exprs", "where"])[list(STAGES)].median().reset_index()
    own = [{"expressions": f"{one.n_exprs:,}", "": f"`{one.where}`"}
           | {words: known(written, getattr(one, name)) for name, words in STAGES.items()} for one in each.itertuples()]
    cells = pd.DataFrame([*THESIS_STAGES, *own]).fillna("")
    cells = cells.loc[:, pd.DataFrame(own).ne("").any()]
    told = cells.drop(columns=["expressions", ""]).ne("").any(axis=1)
    return {"stages_table": table(cells.columns, cells[told].to_numpy())}


def _whole_search(results: Results) -> Numbers:
    """As many samples as a search has generations, one after the other."""
    rows = _each_once(results, "search")
    rows = rows.sort_values("results", key=places, kind="stable")
    keys = ["results", "where", "n_exprs", "n_points", "n_steps"]
    lines = []
    for (name, where, n_exprs, n_points, n_steps), some in rows.groupby(keys, sort=False):
        seconds = some["total_s"].iloc[:GENERATIONS].sum()
        evaluations = n_exprs * n_points * n_steps * GENERATIONS
        if len(some) >= GENERATIONS:
            lines.append((PROTOCOLS[name], f"`{where}`", _power(evaluations), f"**{written(seconds)}**",
                          _power(evaluations / seconds)))  # fmt: skip
    head = ("copied to the host", "", "evaluations", f"{GENERATIONS} generations, end to end", "evaluations per second")
    return {"search_table": table(head, lines) if lines else None}


def _each_once(results: Results, study: str) -> pd.DataFrame:
    """The samples of a study; a CPU's matrix of the last step is that of every step, and left out."""
    rows = with_code(of(results, study), both=True)
    return rows[rows["backend"].isin(ON_GPU) | rows["results"].ne("last")]


def _power(number: float) -> str:
    return f"{number:.2g}".replace("e+0", "e").replace("e+", "e")


BACK: dict[str, str] = PROTOCOLS | {"half": "matrix of every step, 16 bits", "fit": "fitted parameters"}
WORK_COLUMNS: dict[str, Callable[[Any], str]] = {
    "copied to the host": lambda one: BACK[one.results],
    "expressions x points": lambda one: f"{one.n_exprs:,} x {one.n_points:,}",
}
WAY_COLUMNS: dict[str, Callable[[Any], str]] = WORK_COLUMNS | {
    "": lambda one: f"`{one.where}`",
    "time per step": lambda one: f"**{written(one.step_s)}**",
    "bytes per step": lambda one: f"{one.size / 1e6:,.0f} MB",
    "rate": lambda one: f"{one.rate / 1e9:.3g} GB/s",
    "of the link's rate": lambda one: known("{:.0%}".format, one.share),
}
SIZES = {  # study: the name of its table
    "memory": "memory_table", "large": "large_table", "variants": "variants_table",
}  # fmt: skip
COLUMNS: dict[str, Callable[[Any], str]] = WORK_COLUMNS | {
    "tokens": lambda one: f"{one.n_tokens / one.n_exprs:.0f}",
    "": lambda one: f"`{one.where}`",
    "steps": lambda one: f"{one.n_steps:,}",
    "a sample": lambda one: f"**{written(one.median_s)}**",
    "standard deviation": lambda one: known(written, one.sd_s),
    "a step": lambda one: known(written, one.step_s),
    "of it on the device": lambda one: known(written, one.device_s),
    "threads busy": lambda one: known("{:.1f}".format, one.busy_threads),
    "memory, host": lambda one: gigabytes(one.host_bytes),
    "memory, device": lambda one: gigabytes(one.device_bytes),
}


def _sizes_measured(results: Results) -> Numbers:
    """A table for each study of ``SIZES``: time, work of the CPU and memory of every configuration."""
    return {name: _of_each(_each_once(results, study)) for study, name in SIZES.items()}


def _of_each(rows: pd.DataFrame) -> str | None:
    if rows.empty:
        return None
    rows = rows.assign(order=places(rows["results"])).sort_values(["n_exprs", "order", "n_points", "where"])
    names = rows.groupby(list(bench.CONFIGURATION), dropna=False, sort=False)["where"].first()
    return table_of(bench.medians(rows.drop(columns="file")).assign(where=list(names)), COLUMNS)


def _launches(results: Results) -> Numbers:
    rows = measured.benchmarks(results)
    rows = rows.assign(benchmark=plots.benchmark_of(rows))
    apart, whole = rows[rows["dispatch"].ne("")], rows[rows["dispatch"].eq("")]
    if apart.empty or whole.empty:
        return {}
    apart, whole = (with_code(some, both=True) for some in (apart, whole))
    keys = ["results", "where", "source", "benchmark"]
    seconds = apart.groupby(keys)["total_s"].median()
    frame = pd.DataFrame({"seconds": seconds, "factor": seconds / whole.groupby(keys)["total_s"].median()})
    frame = frame.dropna().reset_index()
    frame = frame.sort_values("source", key=lambda names: names.eq(plots.ESR), kind="stable")
    few, said = figures.between(apart["scaled_from"].dropna().astype(int)), []
    frame = frame.sort_values("results", key=places, kind="stable")
    for (name, where), some in frame.drop_duplicates(keys).groupby(["results", "where"], sort=False):
        some = some.drop_duplicates("benchmark").set_index("benchmark").sort_index()
        said.append(
            f"One launch per expression on `{where}` takes {each(some['seconds'])} ({PROTOCOLS[name]}; {few} steps,"
            f" scaled); one launch for all is {each(some['factor'], times, ' as fast')}, on the same device."
        )
    return {"per_expression": " ".join(said) or None}


def _busy(results: Results) -> Numbers:
    rows = of(results, "benchmarks", "results", source=plots.DIFFERENT, dispatch="", precision="fast", options="")
    rows = with_code(rows[rows["device_s"].notna()], both=False)
    if rows.empty:
        return {}
    keys, times_of = ["makes", "n_exprs", "n_points", "where"], ["step_s", "device_s", "device_cold_s"]
    each = rows.assign(makes=rows["results"].map(MAKES)).groupby(keys)[times_of].median().reset_index()
    share = (each["device_s"] / each["step_s"]).clip(upper=1)
    lines = [
        (one.makes, f"{one.n_exprs:,} x {one.n_points:,}", f"`{one.where}`", written(one.step_s), written(one.device_s),
         f"{busy:.0%}", known(written, one.device_cold_s))
        for one, busy in zip(each.itertuples(), share, strict=True)
    ]  # fmt: skip
    head = ("result of a step", "expressions x points", "", "step of a sample", "on the device alone", "share",
            "with a cold L2")  # fmt: skip
    said = [f"ith {n_points:,} points it works {span(some, '{:.0%}'.format)} of the time"
            for n_points in (BENCHMARKS[2][1], BENCHMARKS[3][1]) if len(some := share[each["n_points"] == n_points])]
    numbers: Numbers = {"busy": f"W{'; w'.join(said)}" if said else None, "busy_table": table(head, lines)}
    cold = (each["device_cold_s"] / each["device_s"] - 1).dropna()
    if len(cold):
        worst = each.loc[cold.idxmax()]
        size = f"{worst['makes']}, {worst['n_exprs']:,} x {worst['n_points']:,}"
        numbers |= {"cold_cost": f"{max(cold.max(), 0):.0%}", "cold_size": size}
    return numbers


# ── what do fused operations and kernels without powers bring? ───────────────────────


def _contraction(results: Results) -> Numbers:
    """What fused multiplication and addition saves in instructions, and in time at most."""
    found = results.scripts
    saved = found["value"].filter(regex=", instructions saved$")
    if saved.empty:
        return {}
    ways = {"cpu without the products": "cpu, products left out", "cuda without the products":
            "cuda, products left out", "ptx": "fused beside apart"}  # fmt: skip
    lines = []
    for name in (what.rpartition(",")[0] for what in saved.index):
        notes = [str(found["note"].get(f"{name}, {how}", "")) for how in ("apart", "fused")]
        errors = [re.match("error ([^,]*),", note) for note in notes]
        lines.append({"expressions": name, "instructions saved": f"{saved[f'{name}, instructions saved']:.1f}%"} | {
            head: known("{:.2f}".format, found["value"].get(f"{name}, {what}", np.nan)) for head, what in ways.items()
        } | {"errors of ptx": " / ".join(one[1] for one in errors if one)})  # fmt: skip
    frame = pd.DataFrame(lines)
    frame = frame.loc[:, frame.ne("").any()]
    return {"fused_saved": span(saved, lambda share: f"{share:.2g}%"), "fused_ptx": "ptx" in frame,
            "fused_bound": frame.columns.str.endswith("without the products").any(),
            "contraction_table": table(frame.columns, frame.to_numpy())}  # fmt: skip


def _specialised(results: Results) -> Numbers:
    """Times of kernels with and without powers, their registers, and what their first call takes."""
    found, kinds = results.scripts, ("with powers", "without")
    lines = []
    for what in found.index[found.index.str.endswith(", without over with")]:
        size, _, task = what.removesuffix(", without over with").rpartition(", ")
        times_of = [written(1e-6 * found["value"][f"{size}, {task} {how}"]) for how in kinds]
        registers = [found["note"][f"{size}, first losses {how}"].partition(" ")[0] for how in kinds]
        lines.append((task, size, *registers, *times_of, f"{found['value'][what]:.2f}"))
    if not lines:
        return {}
    head = ("result of a step", "precision, points", "registers, all operators", "without powers",
            "time, all operators", "without powers", "ratio")  # fmt: skip
    first = [found["value"][f"{lines[0][1]}, first losses {how}"] for how in kinds]  # later ones find some code there
    return {"specialised_table": table(head, lines), "first_with": first[0], "first_without": first[1]}


PARTS = (_thesis, _cpu_and_gpu, _ways_to_the_host, _transpiler, _growth, _blocks, _baseline, _launches, _busy, _stages,
         _whole_search, _sizes_measured, _contraction, _specialised)  # fmt: skip
