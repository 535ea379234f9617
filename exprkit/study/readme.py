"""The tables of the pages named README.md: operators from ``ops``, results and peers from ``data/results``.

In: a page and a folder of results.  Out: the page with fresh tables between its marks (``make readme``); a
test compares what stands there with what would be put.

    >>> from exprkit.study import readme
    >>> readme.operators().splitlines()[0]
    '| written | means | largest error, float32 / float64 | with `precision="fast"` |'
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from exprkit.errors import brought_by
from exprkit.operators import ops
from exprkit.study import markdown

PAGES = "README.md", "data/results/README.md", "exprkit/operators/README.md"
MARKS = "<!-- {}: made by `make readme` -->", "<!-- end of {} -->"


def refreshed(text: str, results_folder: str | Path) -> str:
    """The README's text with fresh tables between its marks."""
    for name, make in SECTIONS.items():
        begin, end = (mark.format(name) for mark in MARKS)
        if begin in text:
            text = _between(begin, end, make(results_folder), text)
    return text


def _between(begin: str, end: str, table: str, text: str) -> str:
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{table}\n{end}{after}"


# ── operators ────────────────────────────────────────────────────────────────────────


def operators() -> str:
    """A row an operator; errors in units of the last place."""
    head = ("written", "means", "largest error, float32 / float64", 'with `precision="fast"`')
    return markdown.table(head, map(_operator, ops.OPERATORS))


def _operator(row: ops.Operator) -> tuple[str, ...]:
    fast = "" if row.fast_ulp is None else _pair(row.fast_ulp)
    return _written(row), row.meaning.replace("|", r"\|"), _pair(row.ulp), fast


def _written(row: ops.Operator) -> str:
    operands = ", ".join(("a", "b")[: row.arity])
    symbols = [symbol for symbol in (row.infix, *row.aliases) if symbol and not symbol.isidentifier()]
    infix = [f"{symbol}a" if row.arity == 1 else f"a {symbol} b" for symbol in symbols]
    calls = [f"{name}({operands})" for name in (row.name, *row.aliases) if name.isidentifier()]
    return ", ".join(f"`{form}`" for form in (*infix, *calls))


def _pair(errors: tuple[float, float]) -> str:
    return " / ".join(f"{error:g}" for error in errors)


# ── results ──────────────────────────────────────────────────────────────────────────


NOT_MEASURED = "None of the thesis's benchmarks is measured yet: `make study`."


def headline(folder: str | Path) -> str:
    """The few numbers that matter most, and what stands beside them."""
    with brought_by("notebooks"):
        import pandas as pd

        from exprkit.study.plots import written

    table, theirs = _samples(folder)
    lines = []
    if table is not None:  # a search's expressions are all different, and new in every sample
        table = table[table["source"].eq("all different") & table["code"].ne("kept") & table["scaled_from"].isna()]
    for benchmark, rows in () if table is None else table.groupby("benchmark"):
        best, cpu = rows.loc[rows["median_s"].idxmin()], rows[rows["backend"] == "cpu"]
        both = [best, *([cpu.loc[cpu["median_s"].idxmin()]] if len(cpu) and best["backend"] != "cpu" else [])]
        ours = "; ".join(f"**{_seconds(row['median_s'])}** `{row['backend']}`, {row['device']}" for row in both)
        thesis = theirs[benchmark]
        cpu_and_gpu = thesis["cpu_interpreter"].min(), thesis.drop("cpu_interpreter").min()
        size = f"{best['n_exprs']:,} expressions x {best['n_points']:,}"
        what = f"benchmark {benchmark}: {size} points, parsed, prepared, 100 steps"
        lines.append((what, ours, "the thesis: {} on its CPU, {} on its GPU".format(*map(_seconds, cpu_and_gpu))))
    path = Path(folder) / "peers.csv"
    if path.exists():
        seconds = pd.read_csv(path).set_index(["workload", "n_points", "threads", "method"])["seconds"]
        for points, threads, peer in ((362, 1, "pyoperon"), (10_860, 1, "pyoperon"), (10_860, 2, "jax")):
            ours, peers = (seconds.get(("thesis", points, threads, method)) for method in ("ieee matrix", peer))
            if ours and peers:
                what = f"9,880 expressions x {points:,}, every result, CPU, {threads} thread{'s' * (threads > 1)}"
                lines.append((what, f"**{_seconds(ours)}**", f"{peer}: {_seconds(peers)} ({peers / ours:.1f}x)"))
    path = Path(folder) / "fit_peers.csv"
    if path.exists():
        fits = pd.read_csv(path).query("n_points == 362").set_index("method")
        ours, peer = fits.loc["exprkit"], fits.loc["pyoperon"]
        lines.append((
            "a fit from a random start x 362, one CPU thread", f"**{written(ours['us_per_fit'] * 1e-6)}**, "
            f"reaches the best known loss in {ours['reached'] / ours['expressions']:.0%}",
            f"pyoperon: {written(peer['us_per_fit'] * 1e-6)}, {peer['reached'] / peer['expressions']:.0%}",
        ))  # fmt: skip
    return markdown.table(("what", "exprkit", "beside it"), lines) if lines else NOT_MEASURED


def _samples(folder: str | Path) -> tuple[Any, Any]:
    """Medians of the thesis's benchmarks by configuration, fastest first, and the thesis's; None without any."""
    with brought_by("notebooks"):
        import pandas as pd

        from exprkit.study import bench, measured, plots, workload

    found = measured.read_results(folder)
    rows = measured.benchmarks(found)
    if rows.empty:
        return None, None
    theirs = found.thesis.groupby(["benchmark", "evaluator", "block_size"], dropna=False)["seconds"].median()
    if "scaled_from" not in rows:
        rows = rows.assign(scaled_from=float("nan"))
    table = pd.concat([bench.medians(some).assign(scaled_from=steps)
                       for steps, some in rows.groupby("scaled_from", dropna=False)], ignore_index=True)  # fmt: skip
    table["benchmark"] = plots.benchmark_of(table)
    table["source"] = table["source"].map(workload.SOURCES)
    return table.sort_values(["benchmark", "source", "median_s"]), theirs


def results(folder: str | Path) -> str:
    """Median seconds of a sample for each of the thesis's benchmarks, and the machines they are from."""
    ordered, theirs = _samples(folder)
    if ordered is None:
        return NOT_MEASURED
    ours = ("benchmark", "expressions x points", "exprkit", "on", "median", "quartiles", "of it parsing")
    head = (*ours, "thesis, CPU", "thesis, best GPU")
    lines = [_result(row, theirs) for _, row in ordered.iterrows()]
    return markdown.table(head, lines) + "\n\n" + "\n".join(_machines(folder))


def _result(row: Any, thesis: Any) -> tuple[str, ...]:
    import pandas as pd

    from exprkit.study import plots

    seconds = thesis[row["benchmark"]]
    way = f" {row['dispatch']}" if row["dispatch"] else ""
    way += "" if pd.isna(row["scaled_from"]) else f" ({row['scaled_from']:.0f} steps, scaled)"
    way += f" {plots.CODE[row['code']]}" if row["code"] else ""
    return (
        str(row["benchmark"]),
        f"{row['n_exprs']:,} ({row['source']}) x {row['n_points']:,}",
        f"`{row['backend']}`{way}, {row['precision']}, {row['dtype']}",
        row["device"],
        f"**{_seconds(row['median_s'])}**",
        f"{_seconds(row['q25_s'])} to {_seconds(row['q75_s'])}",
        _seconds(row["parse_s"]),
        _seconds(seconds["cpu_interpreter"].min()),
        _seconds(seconds.drop("cpu_interpreter").min()),
    )


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 0.1 else f"{value * 1e3:.3g} ms"


def _machines(folder: str | Path) -> list[str]:
    """A line for every machine and version that the results are from."""
    from exprkit.study import records

    lines = []
    for record in records.read_records(folder).values():
        for machine in record.get("machines", [record]):
            versions = ", ".join(f"{name} {machine['versions'][name]}" for name in ("python", "numpy", "numba"))
            gpu = machine.get("gpu")
            on = f"{gpu['name']}, driver {gpu['driver']}, beside " if gpu else ""
            lines.append(f"Measured on {on}{machine['cpu']}, {machine['cores']} threads ({versions}).")
        if clock := record.get("sm_mhz"):
            ends = dict.fromkeys(f"{clock[end]:,.0f}" for end in ("least", "most"))
            lines.append(
                f"The GPU's clock, asked for after each of {record['samples_on_gpu']:,} samples: {' to '.join(ends)}"
                f" MHz, held back by power or heat {record['throttled_samples']} times."
            )
    return list(dict.fromkeys(lines))


def conclusions(folder: str | Path) -> str:
    """The study's conclusions, as ``comparison.ipynb`` ends with them."""
    from exprkit.study import conclusions, figures

    return conclusions.page(figures.read_results(folder))


# ── peers ────────────────────────────────────────────────────────────────────────────


PEERS = ("pyoperon", "numpy", "numexpr", "jax", "cupy")
OURS = ("fast matrix", "fast sse", "ieee matrix", "ieee sse", "cuda matrix", "cuda sse", "ptx matrix", "ptx sse")


def peers(folder: str | Path) -> str:
    """What ``tests/bench_peers.py`` measured: every peer's time, ours over the fastest, operators against NumPy."""
    with brought_by("notebooks"):
        import pandas as pd

    paths = sorted(Path(folder).glob("peers*.csv"))
    if not paths:
        return "Nothing has been measured yet: `make peers`."
    tables = [pd.read_csv(path) for path in paths]
    whole = [table[table["method"].isin((*PEERS, *OURS)) & table["n_exprs"].gt(COPIES)] for table in tables]
    shown = [f"{_measured_on(table)}{_peers_table(table)}" for table in whole]
    beside_numpy = [_operators_beside_numpy(table) for table in tables if table["method"].eq("ieee").any()]
    return "\n\n".join([*shown, *beside_numpy])


def _measured_on(table: Any) -> str:
    """``On NVIDIA H200:``, where the file tells."""
    if "device" not in table:
        return ""
    names = dict.fromkeys(name.rpartition(", ")[0] or name for name in table["device"])  # without the threads
    return f"On {' and '.join(names)}:\n\n"


COPIES = 64  # of an operator, where one is measured at a time
_SIZE = ("workload", "n_exprs", "n_points", "threads")


def _peers_table(table: Any) -> str:
    there = table["method"].unique()
    theirs, ours = ([name for name in names if name in there] for names in (PEERS, OURS))
    head = ("expressions", "points", "threads", *theirs, *ours)
    return markdown.table(head, [
        _peer(key, group.set_index("method")["seconds"], theirs, ours)
        for key, group in table.groupby(list(_SIZE), sort=False)
    ])  # fmt: skip


def _peer(key: Any, seconds: Any, theirs: list[str], ours: list[str]) -> tuple[str, ...]:
    """Times; behind ours how many times faster than the fastest peer of the line."""
    workload, n_exprs, n_points, threads = key
    best = seconds[[name for name in theirs if name in seconds]].min()
    peers = (_seconds(seconds[name]) if name in seconds else "" for name in theirs)
    faster = {name: f" (**{best / seconds[name]:.1f}x**)" if best > 0 else "" for name in ours if name in seconds}
    own = (f"{_seconds(seconds[name])}{faster[name]}" if name in seconds else "" for name in ours)
    return f"{workload}, {n_exprs:,}", f"{n_points:,}", str(threads), *peers, *own


def _operators_beside_numpy(table: Any) -> str:
    ratio = table[table["method"] == "ieee"].set_index("workload")["ratio"]
    slower = [f"`{name}` {ratio[name]:.2f}x" for name in ratio.index[ratio < 1]]
    faster = ratio[ratio >= 1]
    least = f", the least {faster.min():.2f}x (`{faster.idxmin()}`)" if len(faster) else ""
    behind = f"; slower: {', '.join(slower)}" if slower else ""
    return (
        f"One operator at a time, ieee, one thread, beside NumPy's function (SciPy's where NumPy has none): "
        f"{len(ratio) - len(slower)} of {len(ratio)} are faster, the median {ratio.median():.1f}x{least}{behind}."
    )


# ── fits ─────────────────────────────────────────────────────────────────────────────


def fits(folder: str | Path) -> str:
    """What ``tests/gpu_fit_speed.py`` measured where there was an aim."""
    path = Path(folder) / "h200_fit.csv"
    if not path.exists():
        return "Nothing has been measured yet: `python tests/gpu_fit_speed.py --out data/results` on a GPU."
    rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    lines = [
        (_grouped(row["what"]), f"**{_in_unit(row['value'], row['unit'])}**", _in_unit(row["target"], row["unit"]))
        for row in rows if row["target"]
    ]  # fmt: skip
    return markdown.table(("on one H200", "measured", "aim"), lines)


def _grouped(text: str) -> str:
    """Long numbers in groups of three digits."""
    return re.sub(r"(?<![\d,.])\d{4,}", lambda found: f"{int(found[0]):,}", text)


def _in_unit(value: str, unit: str) -> str:
    return _seconds(float(value) * {"s": 1.0, "ms": 1e-3, "us": 1e-6}[unit])


def fit_peers(folder: str | Path) -> str:
    """What ``tests/bench_fit_peers.py`` measured: time of a fit, and how often each method found the best."""
    with brought_by("notebooks"):
        import pandas as pd

        from exprkit.study.plots import written

    path = Path(folder) / "fit_peers.csv"
    if not path.exists():
        return "Nothing has been measured yet: `python tests/bench_fit_peers.py --csv data/results/fit_peers.csv`."
    found = pd.read_csv(path)
    found = found.sort_values(["n_points", "us_per_fit"], kind="stable", na_position="last")
    head = ("points", "", "a fit takes", "reaches the best known loss")
    return markdown.table(head, [
        (
            f"{row.n_points:,}", row.method, "" if pd.isna(row.us_per_fit) else written(row.us_per_fit * 1e-6),
            f"{row.reached:,} of {row.expressions:,}" if row.expressions else
            f"{row.reached_of_sample:,} of {row.of_sample:,}",
        )
        for row in found.itertuples()
    ])  # fmt: skip


# ── what only a GPU shows ────────────────────────────────────────────────────────────


def accuracy(folder: str | Path) -> str:
    """The worst error of every unary operator on a GPU, as ``tests/gpu_accuracy.py`` found it."""
    paths = [Path(folder) / f"accuracy_{name}.csv" for name in ("ieee", "fast")]
    if not all(path.exists() for path in paths):
        return "Nothing has been measured yet: `python tests/gpu_accuracy.py data/results` on a GPU."
    ieee, fast = (list(csv.DictReader(path.read_text(encoding="utf-8").splitlines())) for path in paths)
    head = ("operator", "ieee, any input", "at", "ieee, over the domain", "fast, over the domain", "domain", "allowed")
    return markdown.table(head, (_accuracy(one, other) for one, other in zip(ieee, fast, strict=True)))


def _accuracy(ieee: dict[str, str], fast: dict[str, str]) -> tuple[str, ...]:
    domain = f"{float(ieee['from']):g} to {float(ieee['to']):g}"
    allowed = f"{ieee['allowed']} / {fast['allowed']}"
    return f"`{ieee['operator']}`", ieee["ulp"], ieee["at"], ieee["domain_ulp"], fast["unit_ulp"], domain, allowed


def interpreter(folder: str | Path) -> str:
    """What ``tests/gpu_speed.py`` measured on an H200."""
    path = Path(folder) / "h200_interpreter.csv"
    if not path.exists():
        return "Nothing has been measured yet: `python tests/gpu_speed.py` on a GPU."
    head = ("what", "measured", "target", "least possible", "")
    return markdown.table(head, map(_measured, csv.DictReader(path.read_text(encoding="utf-8").splitlines())))


def _measured(row: dict[str, str]) -> tuple[str, ...]:
    unit = row["unit"]
    target, least = (f"{row.get(name)} {unit}" if row.get(name) else "" for name in ("target", "least"))
    note = re.split(r", \w*Shape\(", row["note"])[0]
    return row["what"].replace(" {}", ""), f"**{float(row['value']):.4g}** {unit}", target, least, note


SECTIONS: dict[str, Callable[[str | Path], str]] = {  # name between the marks: what makes it from the results
    "headline": headline,
    "operators": lambda folder: operators(),
    "results": results,
    "conclusions": conclusions,
    "peers": peers,
    "fits": fits,
    "fit peers": fit_peers,
    "accuracy": accuracy,
    "interpreter": interpreter,
}
