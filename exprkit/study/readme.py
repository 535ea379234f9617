"""Generated tables of pages in Markdown: operators from ``ops``, results and peers from ``data/results``.

In: a page and a folder of results.  Out: the page with fresh tables between its marks (``make readme``); a
test compares what stands there with what would be put.

    >>> from exprkit.study import readme
    >>> readme.operators().splitlines()[0]
    '| written | means | largest error, float32 / float64 | with `precision="fast"` |'
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from exprkit.errors import brought_by, duration, number_of
from exprkit.operators import ops
from exprkit.study import measured, records
from exprkit.study.plots import text_or_blank
from exprkit.study.tables import TABLES

with brought_by("notebooks"):
    import pandas as pd

BEGIN, END = "<!-- {}: made by `make readme` -->", "<!-- end of {} -->"
MARKED = re.compile(r"<!-- ([\w ]+): made by `make readme` -->\n.*?<!-- end of \1 -->", re.DOTALL)
STUDIES = "`make study` measures it on this machine's CPU, `make study-gpu` on a machine with an NVIDIA GPU"


def refresh(text: str, results_folder: str | Path) -> str:
    """A page's text with fresh tables between its marks."""
    folder = Path(results_folder)
    results = functools.cache(lambda: measured.read_results(folder))

    def section(mark: re.Match[str]) -> str:
        name = mark[1]
        content = markdown(TABLES[name](results()), STUDIES) if name in TABLES else OTHERS[name](folder)
        return f"{BEGIN.format(name)}\n{content}\n{END.format(name)}"

    return MARKED.sub(section, text)


def pages(root: str | Path = ".") -> list[Path]:
    """The pages of a checkout that have such tables."""
    root = Path(root)
    named = (root / folder / "README.md" for folder in ("", "exprkit/operators", "data/results"))
    return [*named, *sorted((root / "data" / "results" / "tables").glob("*.md"))]


def of_the_thesis(folder: str | Path = "") -> list[str]:
    """The pages on the thesis's questions, their tables of a folder of results; by default of what is published."""
    published = records.published_folder()
    texts = (path.read_text(encoding="utf-8") for path in sorted((published / "tables").glob("*.md")))
    return [refresh(text, folder or published) for text in texts if "**The thesis.**" in text]


def markdown(table: pd.DataFrame, measured_by: str) -> str:
    """A table of texts in Markdown, and where its numbers are from; without lines what measures it."""
    if table.empty:
        return f"Not measured yet: {measured_by}."
    origin = table.attrs.get("origin", "")
    lines = [tuple(table.columns), ("---",) * len(table.columns), *table.itertuples(index=False, name=None)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{origin}" * bool(origin)


def _read(path: Path, **kinds: Any) -> pd.DataFrame:
    """A file of measurements; an empty table if there is none."""
    return pd.read_csv(path, **kinds) if path.exists() else pd.DataFrame()


def _table(head: Iterable[str], lines: Iterable[Iterable[Any]], script: str) -> str:
    frame = pd.DataFrame([tuple(map(str, line)) for line in lines], columns=list(head))
    return markdown(frame, f"`python {script}` measures it")


# ── operators ────────────────────────────────────────────────────────────────────────


def operators(folder: str | Path = "") -> str:
    """A row per operator; errors in units of the last place."""
    head = ("written", "means", "largest error, float32 / float64", 'with `precision="fast"`')
    rows = [
        (_forms(row), row.meaning.replace("|", r"\|"), _pair(row.ulp), _pair(row.fast_ulp)) for row in ops.OPERATORS
    ]
    two = ", ".join(f"`{name}(a)` as `{outer}({inner}(a))`" for name, (inner, outer) in ops.COMPOSED.items())
    return f"{_table(head, rows, '')}\n\nRead as two operators: {two}."


def _forms(row: ops.Operator) -> str:
    """All ways to write an operator."""
    operands = ", ".join(("a", "b")[: row.arity])
    symbols = [symbol for symbol in (row.infix, *row.aliases) if symbol and not symbol.isidentifier()]
    infix = [f"{symbol}a" if row.arity == 1 else f"a {symbol} b" for symbol in symbols]
    calls = [f"{name}({operands})" for name in (row.name, *row.aliases) if name.isidentifier()]
    return ", ".join(f"`{form}`" for form in (*infix, *calls))


def _pair(errors: tuple[float, float] | None) -> str:
    return " / ".join(f"{error:g}" for error in errors or ())


# ── beside other programs ────────────────────────────────────────────────────────────


PEERS = ("pyoperon", "numpy", "numexpr", "jax", "cupy")
OURS = ("fast matrix", "fast sse", "ieee matrix", "ieee sse", "cuda matrix", "cuda sse", "ptx matrix", "ptx sse")
COPIES = 64  # of an operator, where one is measured at a time
PEERS_SCRIPT = "tests/bench_peers.py --csv data/results/peers.csv"


def beside_others(folder: Path) -> str:
    """Beside peers: values on a CPU, new populations on a GPU, fits."""
    lines = []
    if len(rows := _peers(folder / "peers.csv")):
        for points, threads in ((362, 1), (10_860, 1), (10_860, 2)):
            part = rows.query("workload == 'thesis' and n_points == @points and threads == @threads")
            part = part.set_index("method")
            best = part.loc[part.index.isin(PEERS), "seconds"].idxmin()
            what = f"9,880 expressions x {points:,}, every result, CPU, {number_of(threads, 'thread')}"
            lines.append(_beside(what, part.loc["ieee matrix"], part.loc[best]))
    if len(rows := _read(folder / "evogp.csv")):
        for (name, n, points), pair in rows.groupby(["workload", "n_exprs", "n_points"], sort=False):
            own, its = (pair.set_index("method").loc[method] for method in ("exprkit", "evogp"))
            size = f"{n:,} x {points:,} ({name}, {own['tokens']:.0f} tokens)"
            lines.append(_beside(f"a new population of {size}, from tokens on the GPU to losses", own, its))
    if len(rows := _read(folder / "fit_peers.csv")):
        fits = rows.query("n_points == 362").set_index("method")
        own, its = fits.loc["exprkit"], fits.loc["pyoperon"]
        seconds, its_seconds = (duration(fit["us_per_fit"] * 1e-6) for fit in (own, its))
        reached, its_reached = (f"{fit['reached'] / fit['expressions']:.0%}" for fit in (own, its))
        what = "one fit to 362 points from a random start, one CPU thread"
        beside = f"pyoperon: {its_seconds}, {its_reached}"
        lines.append((what, f"**{seconds}**, reaches the best known loss in {reached}", beside))
    return _table(("what", "exprkit", "compared with"), lines, PEERS_SCRIPT)


def _peers(path: Path) -> pd.DataFrame:
    """A file of peers; where it does not tell their versions, their names alone."""
    rows = _read(path)
    return rows.assign(program=rows.get("program", rows.get("method")))


def _beside(what: str, own: pd.Series, its: pd.Series) -> tuple[str, str, str]:
    ratio = f"{its['seconds'] / own['seconds']:.1f}x"
    return what, f"**{duration(own['seconds'])}**", f"{its['program']}: {duration(its['seconds'])} ({ratio})"


def peers(folder: Path) -> str:
    """Every program's time by expressions and points; behind ours how many times faster than the fastest other one."""
    rows = [_peers(path) for path in sorted(folder.glob("peers*.csv"))]
    return "\n\n".join(map(_peers_table, rows)) or _table((), (), PEERS_SCRIPT)


def _peers_table(rows: pd.DataFrame) -> str:
    rows = rows[rows["method"].isin((*PEERS, *OURS)) & rows["n_exprs"].gt(COPIES)]
    theirs, ours = ([name for name in names if rows["method"].eq(name).any()] for names in (PEERS, OURS))
    lines = []
    for key, part in rows.groupby(["workload", "n_exprs", "n_points", "threads"], sort=False):
        seconds = part.set_index("method")["seconds"]
        best = seconds[seconds.index.isin(theirs)].min()
        cells = seconds.map(duration)
        cells += [f" (**{best / value:.1f}x**)" if name in ours and best > 0 else "" for name, value in seconds.items()]
        size = (f"{key[0]}, {key[1]:,}", f"{key[2]:,}", str(key[3]))
        lines.append((*size, *(cells.get(name, "") for name in (*theirs, *ours))))
    devices = rows.get("device", ())  # where the file tells; without the threads
    names = " and ".join(dict.fromkeys(name.rpartition(", ")[0] or name for name in devices))
    programs = rows.drop_duplicates("method").set_index("method")["program"]
    head = ("expressions", "points", "threads", *programs[theirs], *ours)
    return f"On {names}:\n\n" * bool(names) + _table(head, lines, PEERS_SCRIPT)


def operators_beside_numpy(folder: Path) -> str:
    """Times of NumPy's functions over ours: how many operators are faster, and which are slower."""
    rows = _read(folder / "peers.csv")
    ratio = rows[rows["method"] == "ieee"].set_index("workload")["ratio"] if len(rows) else pd.Series(dtype=float)
    slower = ", ".join(f"`{name}` {value:.2f}x" for name, value in ratio[ratio < 1].items())
    line = (len(ratio), (ratio >= 1).sum(), f"{ratio.median():.1f}x", slower)
    head = ("operators", "faster than NumPy's function", "median", "slower ones")
    return _table(head, [line] if len(ratio) else [], PEERS_SCRIPT)


def fit_peers(folder: Path) -> str:
    """Time of a fit on one thread, and how often each method reached the best known loss."""
    rows = _read(folder / "fit_peers.csv")
    if len(rows):
        rows = rows.sort_values(["n_points", "us_per_fit"], kind="stable", na_position="last")
    lines = []
    for row in rows.itertuples():
        reached = (row.reached, row.expressions) if row.expressions else (row.reached_of_sample, row.of_sample)
        reached_words = "{:,} of {:,}".format(*reached)
        lines.append((f"{row.n_points:,}", row.method, text_or_blank(duration, row.us_per_fit * 1e-6), reached_words))
    head = ("points", "", "a fit takes", "reaches the best known loss")
    return _table(head, lines, "tests/bench_fit_peers.py --csv data/results/fit_peers.csv")


CERTIFIED = {"digits": 8, "digits_of_errors": 6, "digits_of_squares": 9}  # digits that count as reached


def nist(folder: Path) -> str:
    """NIST's problems by program and start: how many reach the digits, and those of each problem's parameters."""
    rows, script = _read(folder / "nist.csv"), "tests/bench_nist.py --csv data/results/nist.csv"
    counts, digits = [], dict[str, dict[str, str]]()
    for (name, version), own in rows.groupby(["program", "version"], sort=False) if len(rows) else ():
        reached = (own[list(CERTIFIED)] >= pd.Series(CERTIFIED)).groupby(own["start"]).sum().astype(str).T
        cells = (", ".join(reached.get(start, ())) for start in ("1", "2", "none"))
        counts.append((f"{name} ({version})", *cells, duration(own["seconds"].median())))
        for problem, part in own.groupby("problem", sort=False):
            digits.setdefault(str(problem), {})[name] = " / ".join(f"{number:.1f}" for number in part["digits"])
    first = _table(("", "first start", "second start", "no start", "a fit takes"), counts, script)
    names = [name for name in rows["program"].unique() if "in one call" not in name] if len(rows) else []
    lines = [(problem, *(cells.get(name, "") for name in names)) for problem, cells in digits.items()]
    second = f"\n\nDigits of the parameters, by start:\n\n{_table(('', *names), lines, script)}"
    return first + second * bool(lines)


def coverage(folder: Path, name: str, row: str, head: str, options: str = "") -> str:
    """How many per cent of simulated intervals hold what they are of: the mean, and the least."""
    heads, ways = dict[str, None](), dict[str, dict[str, str]]()
    for one in _read(folder / name).to_dict("records"):
        heads[column := head.format(**one)] = None
        ways.setdefault(one[row], {})[column] = f"{one['coverage']:.1f} ({one['least']:.1f})"
    lines = [(way, *(cells.get(column, "") for column in heads)) for way, cells in ways.items()]
    return _table(("", *heads), lines, f"tests/bench_coverage.py {options}--csv data/results/{name}")


FIRST_USES = {
    "download": "download it and what it requires, by pip",
    "install": "install that",
    "import": "`import exprkit`",
    "values": "values and losses of three expressions",
    "fit": "the same and their fit",
    "law": "README's first law, Kepler's",
    "exhaustive": "exhaustive search to 6 nodes",
}
CACHES = {"empty": "nothing kept", "wheel": "with a wheel's machine code", "full": "all kept"}


def first_use(folder: Path) -> str:
    """Processor and wall seconds of a process from its start to its first result, by what machine code is there."""
    rows, lines, origin = _read(folder / "first_use.csv"), [], ""
    for use, part in rows.groupby("use", sort=False) if len(rows) else ():
        seconds = part.set_index("cache")
        cells = {name: "{processor_s:.2f} s ({wall_s:.2f} s)".format(**row) for name, row in seconds.iterrows()}
        lines.append((FIRST_USES[str(use)], *(cells.get(name, "") for name in CACHES)))
        origin = "\n\nCommit {commit}; {cpu}; {versions}.".format(**part.iloc[0])
    return _table(("", *CACHES.values()), lines, "tests/bench_first_use.py --wheel WHEEL --csv CSV") + origin


# ── what scripts measured on a GPU ───────────────────────────────────────────────────


def accuracy(folder: Path) -> str:
    """The worst error of every unary operator on a GPU."""
    ieee, fast = (_read(folder / f"accuracy_{name}.csv", dtype=str).to_dict("records") for name in ("ieee", "fast"))
    head = ("operator", "ieee, any input", "at", "ieee, over the domain", "fast, over the domain", "domain", "allowed")
    lines = []
    for exact, approximate in zip(ieee, fast, strict=False):
        errors = exact["ulp"], exact["at"], exact["domain_ulp"], approximate["unit_ulp"]
        domain = f"{float(exact['from']):g} to {float(exact['to']):g}"
        allowed = f"{exact['allowed']} / {approximate['allowed']}"
        lines.append((f"`{exact['operator']}`", *errors, domain, allowed))
    return _table(head, lines, "tests/gpu_accuracy.py data/results")


def expression(folder: Path) -> str:
    """What each backend takes for one expression: to read and compile it, and for a million points."""
    lines = []
    for row in _read(folder / "expression.csv").itertuples():
        on_gpu = row.registers > 0
        device = row.gpu if on_gpu else f"{row.cpu}, {number_of(int(row.threads), 'thread')}"
        times = (row.parse_s + row.lower_s, row.emit_s + row.compile_s, row.step_s, row.device_s)
        kernel = f"{row.registers:.0f}, {row.local_bytes:.0f} bytes" * on_gpu
        lines.append((f"`{row.backend}`", device, *(text_or_blank(duration, time) for time in times), kernel))
    head = ("", "on", "read, lowered", "compiled", "1,000,000 points", "of it the GPU", "registers, local memory")
    return _table(head, lines, "tests/bench_expression.py --csv CSV")


def cases(folder: Path) -> str:
    """The assembler's registers and spills of the case discussions' kernels, by task, precision and type."""
    rows, keys = _read(folder / "cases_ptxas.csv"), ["task", "precision", "dtype"]
    lines = []
    for key, part in rows.groupby(keys, sort=False) if len(rows) else ():
        above, spilled = part["registers"] > part["limit"], part["spilled"]
        lines.append((*key, len(part), part["registers"].max(), above.sum(), (spilled > 0).sum(), spilled.max()))
    head = (*keys, "kernels", "most registers", "above their limit", "that spill", "bytes spilled, at most")
    return _table(head, lines, "tests/ptxas_cases.py")


def measurements(folder: Path, name: str, script: str, only: str | None = None) -> str:
    """The lines of a script's file ``name``; only those with something in the column ``only``."""
    rows = _read(folder / name, dtype=str).reindex(columns=["what", "value", "unit", "target", "least", "note"])
    rows = rows.dropna(subset=[only] if only else []).fillna("")
    lines = []
    for row in rows.itertuples():
        sizes = (f"{size} {row.unit}" * bool(size) for size in (row.target, row.least))
        note = "" if only else re.split(r", \w*Shape\(", row.note)[0]
        lines.append((row.what.replace(" {}", ""), f"**{float(row.value):.4g}** {row.unit}", *sizes, note))
    return _table(("what", "measured", "target", "least possible", ""), lines, script)


OTHERS: dict[str, Callable[[Path], str]] = {  # name between the marks: the table of a folder of results
    "beside others": beside_others,
    "one expression": expression,
    "operators": operators,
    "operators beside numpy": operators_beside_numpy,
    "peers": peers,
    "fits": lambda folder: measurements(folder, "h200_fit.csv", "tests/gpu_fit_speed.py --out data/results", "target"),
    "fit peers": fit_peers,
    "nist": nist,
    "first use": first_use,
    "coverage": lambda at: coverage(at, "coverage.csv", "model", "{method}, {points} points"),
    "coverage of choices": lambda at: coverage(at, "coverage_choices.csv", "method", "of {formulas}", "--choices 100 "),
    "coverage after a search": lambda at: coverage(at, "coverage_search.csv", "method", "{model}", "--search 120 "),
    "accuracy": accuracy,
    "interpreter": lambda folder: measurements(folder, "h200_interpreter.csv", "tests/gpu_speed.py"),
    "generations": lambda folder: "\n\n".join(
        f"On an {card}:\n\n"
        + measurements(folder, f"{card.lower()}_generations.csv", "tests/gpu_generations.py --out DIR")
        for card in ("H200", "H100")
    ),
    "cases": cases,
}
