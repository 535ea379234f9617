"""The README's tables: operators from ``ops``, results and peers from ``data/results``.

Beside the pipeline: ``python -m exprkit.study.readme README.md data/results`` (``make readme``) puts
fresh tables between the file's marks; a test compares what stands there with what would be put.

    >>> from exprkit.study import readme
    >>> readme.operators().splitlines()[0]
    '| written | means | largest error, float32 / float64 | with `precision="fast"` |'
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from exprkit import ops
from exprkit.errors import brought_by

OPERATORS = "<!-- operators: made by `make readme` -->", "<!-- end of operators -->"
RESULTS = "<!-- results: made by `make readme` -->", "<!-- end of results -->"
PEERS = "<!-- peers: made by `make readme` -->", "<!-- end of peers -->"


def refreshed(text: str, results_folder: str | Path) -> str:
    """The README's text with fresh tables between its marks."""
    for marks, table in ((OPERATORS, operators()), (RESULTS, results(results_folder)), (PEERS, peers(results_folder))):
        text = _between(*marks, table, text)
    return text


def _between(begin: str, end: str, table: str, text: str) -> str:
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{table}\n{end}{after}"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


# ── operators ────────────────────────────────────────────────────────────────────────


def operators() -> str:
    """A row an operator; errors in units of the last place."""
    head = ("written", "means", "largest error, float32 / float64", 'with `precision="fast"`')
    return _table(head, map(_operator, ops.OPERATORS))


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


def results(folder: str | Path) -> str:
    """Median seconds of a sample for each of the thesis's benchmarks, and the machines they are from."""
    from exprkit import data
    from exprkit.study import bench, plots

    if not list(Path(folder).glob("*.parquet")):
        return "Nothing has been measured yet: `make results`."
    thesis = data.thesis_samples().groupby(["benchmark", "evaluator", "block_size"], dropna=False)["seconds"].median()
    table = bench.medians(plots.read_results(folder))
    table["benchmark"] = table.apply(plots.benchmark_of, axis=1)
    ours = ("benchmark", "expressions x points", "exprkit", "median", "quartiles", "of it parsing")
    head = (*ours, "thesis, CPU", "thesis, best GPU")
    ordered = table.sort_values(["benchmark", "backend", "precision"], key=lambda column: column.astype(str))
    rows = [_result(row, thesis) for _, row in ordered.iterrows()]
    return _table(head, rows) + "\n\n" + "\n".join(_machines(folder))


def _result(row: Any, thesis: Any) -> tuple[str, ...]:
    theirs = ("", "")
    if isinstance(row["benchmark"], int):
        seconds = thesis[row["benchmark"]]
        theirs = (_seconds(seconds["cpu_interpreter"].min()), _seconds(seconds.drop("cpu_interpreter").min()))
    return (
        str(row["benchmark"]),
        f"{row['n_exprs']:,} x {row['n_points']:,}",
        f"`{row['backend']}`, {row['precision']}, {row['dtype']}, {row['threads']} threads",
        _seconds(row["median_s"]),
        f"{_seconds(row['q25_s'])} to {_seconds(row['q75_s'])}",
        _seconds(row["parse_s"]),
        *theirs,
    )


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 0.1 else f"{value * 1e3:.3g} ms"


def _machines(folder: str | Path) -> list[str]:
    """A line for every machine and version that the results are from."""
    lines = []
    for path in sorted(Path(folder).glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        versions = ", ".join(f"{name} {record['versions'][name]}" for name in ("python", "numpy", "numba"))
        lines.append(f"Measured on {record['cpu']}, {record['cores']} threads ({versions}).")
    return list(dict.fromkeys(lines))


# ── peers ────────────────────────────────────────────────────────────────────────────


def peers(folder: str | Path) -> str:
    """What ``tests/bench_peers.py`` measured: times of pyoperon over ours, and operators against NumPy."""
    with brought_by("notebooks"):
        import pandas as pd

    path = Path(folder) / "peers.csv"
    if not path.exists():
        return "Nothing has been measured yet: `make peers`."
    table = pd.read_csv(path)
    methods = ("fast matrix", "fast sse", "ieee matrix", "ieee sse")
    head = ("expressions", "points", "threads", "pyoperon", *methods)
    trees = table[table["method"].isin(("pyoperon", *methods))]
    rows = [_peer(key, group.set_index("method"), methods) for key, group in trees.groupby(list(_SIZE), sort=False)]
    return _table(head, rows) + "\n\n" + _operators_beside_numpy(table)


_SIZE = ("workload", "n_exprs", "n_points", "threads")


def _peer(key: Any, group: Any, methods: tuple[str, ...]) -> tuple[str, ...]:
    workload, n_exprs, n_points, threads = key
    ours = (f"{_seconds(group['seconds'][m])} (**{group['ratio'][m]:.1f}x**)" for m in methods)
    return f"{workload}, {n_exprs:,}", f"{n_points:,}", str(threads), _seconds(group["seconds"]["pyoperon"]), *ours


def _operators_beside_numpy(table: Any) -> str:
    ratio = table[table["method"] == "ieee"].set_index("workload")["ratio"]
    slower = [f"`{name}` {ratio[name]:.2f}x" for name in ratio.index[ratio < 1]]
    least = f"the least {ratio[ratio >= 1].min():.2f}x (`{ratio[ratio >= 1].idxmin()}`)"
    behind = f"; slower: {', '.join(slower)}" if slower else ""
    return (
        f"One operator at a time, ieee, one thread, beside NumPy's function (SciPy's where NumPy has none): "
        f"{len(ratio) - len(slower)} of {len(ratio)} are faster, the median {ratio.median():.1f}x, {least}{behind}."
    )


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(refreshed(path.read_text(encoding="utf-8"), sys.argv[2]), encoding="utf-8")
