"""The thesis's benchmark: its protocol, its record, its files.

The last stage: drives ``parse`` and ``Evaluator`` as a user would and writes down how long
each phase took.  The notebook ``benchmark.ipynb`` only calls this module.

    >>> import exprkit as ek
    >>> samples = ek.bench.measure(ek.data.esr_sample(), ek.data.rough_pipe(), ["cpu"], n_steps=2, n_samples=3)
    >>> ek.bench.medians(samples)["samples"].tolist()
    [3]

One sample is what one generation of a search costs: the frontend once, the data once, then
``n_steps`` evaluations of all expressions, the parameters handed over anew each time.  Its
phases, which add up to the total:

=========  ============================================================================
parse      texts -> population
upload     the data to where the backend runs, and a fresh copy of each step's parameters
           (a GPU backend fetches those itself, with each step)
prepare    population and data -> evaluator: lowering, derived columns, perhaps compiling
first      the first step, with what is compiled or allocated only when it is needed
evaluate   the other steps, until the last one is complete
download   results to the host's memory (nothing to do for a backend that runs there)
=========  ============================================================================

``steps_s`` is all that the other steps take, parameters handed over and losses brought back,
``step_s`` one of them (the first where there is no other), ``kernel_s`` the same on the GPU's own
clock, from event to event; where steps are short, both wait for the host, which queues them.
``lower_s`` (lowering) and ``compile_s`` are what the engine says of itself; where it is silent,
lowering is timed once more by itself.  ``device`` and ``threads`` are what a sample's backend used.

After each sample, outside its total, two more steps are timed on the GPU's clock alone, queued
behind other work, their parameters on the device: ``device_s`` with the second-level cache (L2) as
a step leaves it, ``device_cold_s`` after all of it has been written over (as nvbench's cold
samples).  Steps of a sample, and every median that does not say otherwise, are of the first kind.

Which results are brought back is a choice: the matrix of the ``last`` step (as the thesis
did), that of ``every`` step, or only the ``loss`` of each expression at every step.

The first sample of each backend is ``cold``: kernels are loaded, and compiled unless they lie
in the cache on disk.  Its results are compared with the definition, and nothing else is timed
if they disagree.  It is kept and marked, and counts in no median.  The results go to memory
that was allocated, and touched, before: fresh memory for a large matrix costs more than
filling it.  From one warm sample to the next nothing is kept but what has been compiled for
all populations (the interpreter itself).  A backend that compiles expressions compiles them anew in
each (``code="anew"``), or takes their machine code from the cache, which was empty before the cold
sample (``code="kept"``).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from exprkit import data
from exprkit.backends import load
from exprkit.errors import ArgumentError, BackendError, brought_by, number_of
from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population
from exprkit.programs.lower import lower
from exprkit.runtime import machine
from exprkit.study import records
from exprkit.study.agreement import disagreement
from exprkit.study.sides import Gpu, Host, empty_cache, gpu_record, roofs, side_of
from exprkit.study.workload import dataset, expressions

with brought_by("notebooks"):
    import pandas as pd

__all__ = [
    "DEFAULTS", "PHASES", "dataset", "expressions", "measure", "medians", "record_of", "run", "run_and_save",
    "run_grid", "save", "unsteady",
]  # fmt: skip

PHASES = ("parse", "upload", "prepare", "first", "evaluate", "download")
PARTS = ("step", "kernel", "device", "device_cold", "lower", "compile")
RESULTS = ("last", "every", "loss")
CODE = ("anew", "kept")
COMPILING = ("emit", "compile", "load")  # what an engine may say of its constructor, besides "lower"
PARAMETER_RANGE = (-2.0, 2.0)
PARAMETER_SETS = 8  # so many are made beforehand and taken in turn
CHECKED_POINTS = 64  # of every expression that is compared with the definition
CHECKED_VALUES = 2e7  # of the checked expressions at all points, where losses are compared
ALLOWED = 1e-3  # share of the checked results that may differ by more than rounding explains ...
ALLOWED_OF_FEW = 1e-2  # ... of fewer than ENOUGH expressions, where one ill-conditioned one weighs more ...
ALLOWED_FAST = 5e-2  # ... and of a GPU's approximate functions, whose errors hold on their domains only
ENOUGH = 100
ALLOWED_LOSSES = 0.02  # share of the checked losses that may lie apart by more than one in 1,000
CONFIGURATION = (
    "bench", "backend", "dispatch", "code", "device", "results", "source", "dataset", "precision", "dtype", "threads",
    "block_size", "points_per_thread", "n_exprs", "n_tokens", "n_points", "n_vars", "n_params", "n_steps",
)  # fmt: skip

DEFAULTS = {  # of the parameters of benchmark.ipynb (a test compares)
    "study": "benchmark", "n_exprs": 10_000, "n_points": 362, "n_vars": 2, "n_tokens": 0, "n_params": 2,
    "n_steps": 100, "n_samples": 50, "seconds": 60.0, "results": "last", "backends": ["cpu"], "dispatch": "",
    "code": "anew", "block_size": 0, "points_per_thread": 0, "threads": 0, "precision": "fast", "dtype": "float32",
    "dataset": "rough_pipe", "expressions": "exhaustive", "n_checked": 200, "seed": 0, "results_dir": "results",
}  # fmt: skip


# ── measuring ────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Run:
    """What one configuration evaluates, and how."""

    texts: Sequence[str]
    points: data.Dataset
    parameters: list[np.ndarray]
    backend: str
    n_steps: int
    results: str
    options: dict[str, Any]  # of the evaluator
    side: Host | Gpu
    n_checked: int
    seed: int

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.options["dtype"])

    @property
    def X(self) -> np.ndarray:
        return self.points.X.astype(self.dtype)

    @property
    def y(self) -> np.ndarray:
        return self.points.y.astype(self.dtype)


def run(parameters: dict[str, Any], progress: Callable[..., Any] | None = None) -> pd.DataFrame:
    """Measure what parameters of ``benchmark.ipynb`` say; 0 and "" there mean: as the backend likes best."""
    unknown = set(parameters) - set(DEFAULTS)
    if unknown:
        raise ArgumentError(f"there is no parameter {', '.join(sorted(unknown))}; there are {', '.join(DEFAULTS)}")
    given: dict[str, Any] = {**DEFAULTS, **parameters}
    records.checked_name(given["study"])
    names = ("n_exprs", "n_points", "n_vars", "n_tokens", "n_params", "expressions", "dataset", "seed", "results_dir")
    n_exprs, n_points, n_vars, n_tokens, n_params, source, points, seed, _ = (given.pop(name) for name in names)
    texts = _texts(source, n_exprs, n_vars, n_tokens, n_params, seed)
    options = ("threads", "block_size", "points_per_thread", "dispatch")
    chosen: dict[str, Any] = {name: given.pop(name) or None for name in options}
    return measure(
        texts, dataset(points, n_points, n_vars=n_vars, seed=seed), given.pop("backends"), bench=given.pop("study"),
        source=source, seed=seed, progress=progress, **chosen, **given,
    )  # fmt: skip


@functools.lru_cache(maxsize=2)  # a study measures several backends on the same expressions
def _texts(source: str, n_exprs: int, n_vars: int, n_tokens: int, n_params: int, seed: int) -> list[str]:
    return expressions(source, n_exprs, n_vars=n_vars, n_tokens=n_tokens, n_params=n_params, seed=seed)


def run_grid(
    parameters: dict[str, Any], grid: dict[str, list[Any]], progress: Callable[..., Any] | None = None
) -> pd.DataFrame:
    """``run`` for every combination of some parameters' values, the others as given."""
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    shown = progress(points) if progress else points
    return pd.concat([run(parameters | point) for point in shown], ignore_index=True)


def run_and_save(parameters: dict[str, Any]) -> list[Path]:
    """``run`` and ``save``: what ``benchmark.ipynb`` does, without a notebook."""
    return save(run(parameters), parameters["results_dir"], parameters, made_by="exprkit.bench.run_and_save")


def measure(
    texts: Sequence[str] | Population,
    points: data.Dataset,
    backends: Sequence[str] = ("cpu",),
    *,
    n_steps: int = 100,
    n_samples: int = 50,
    seconds: float = 60.0,
    results: str = "last",
    precision: str = "ieee",
    dtype: str = "float32",
    threads: int | None = None,
    block_size: int | None = None,
    points_per_thread: int | None = None,
    dispatch: str | None = None,
    code: str = "anew",
    n_checked: int = 200,
    seed: int = 0,
    bench: str = "benchmark",
    source: str = "texts",
    progress: Callable[..., Any] | None = None,
) -> pd.DataFrame:
    """Time every backend on the same expressions, data and parameters.

    Parameters
    ----------
    texts
        The expressions, as texts or a population.
    points
        The data; the target is used where ``results`` is "loss".
    backends
        Names from ``exprkit.backends()``.
    n_steps, n_samples
        Evaluations in one sample, and warm samples of each backend.
    seconds
        Of each backend: no further sample is begun after so long.
    results
        "last": the matrix of the last step is brought to the host; "every": that of every
        step; "loss": no matrix is made, and every step gives the squared errors.
    precision, dtype, threads
        As for ``Evaluator``.
    block_size, points_per_thread
        Of a GPU's threads, for backends that have such; None: as the backend chooses.
    dispatch
        "per-expression": a launch for each expression, for backends that offer it.
    code
        Of a backend that compiles expressions: "anew" in every sample; "kept": warm samples find it in
        the cache.
    n_checked
        Expressions whose results are compared with the definition, at 64 points each.
    seed
        Of the parameters (evenly from [-2, 2]) and of what is checked.
    bench, source
        Names of the benchmark and of the expressions' source, copied to every row.
    progress
        ``tqdm.auto.tqdm`` or the like: called with ``total=``, then ``update()``.

    Returns
    -------
    pandas.DataFrame
        One row a sample: what was measured, and the seconds of every phase and in total.
        The first of each backend is cold, and has the number -1.

    Raises
    ------
    ArgumentError
        If there is nothing to measure, or no step, or no sample.
    BackendError
        If a backend is unknown, cannot run here, or disagrees with the definition.
    """
    texts = texts.texts() if isinstance(texts, Population) else texts
    _check_counts({
        "expressions": len(texts), "backends": len(backends), "n_steps": n_steps, "n_samples": n_samples,
        "n_checked": n_checked,
    })  # fmt: skip
    for name, value, allowed in (("results", results, RESULTS), ("code", code, CODE)):
        if value not in allowed:
            raise ArgumentError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
    sides = {name: side_of(name) for name in backends}
    pop = parse(texts)
    parameters = _parameters(pop, min(n_steps, PARAMETER_SETS), seed, dtype)
    general = {"precision": precision, "dtype": dtype, "threads": threads}
    chosen = {"block_size": block_size, "points_per_thread": points_per_thread, "dispatch": dispatch}
    facts = {
        "bench": bench, "results": results, "source": source, "dataset": points.name, "n_exprs": len(pop),
        "n_tokens": len(pop.kinds), "n_points": len(points), "n_vars": points.X.shape[1],
        "n_params": int(pop.n_params.sum()), "n_steps": n_steps, "precision": precision, "dtype": dtype,
        "threads": threads or machine.cores(),
    }  # fmt: skip
    bar = progress(total=len(backends) * (n_samples + 1)) if progress else None
    rows = []
    for name in backends:
        own = _options(name, chosen, code)
        facts |= {option: own.get(option) for option in chosen} | {"device": "", "code": code if "cache" in own else ""}
        one = _Run(texts, points, parameters, name, n_steps, results, general | own, sides[name], n_checked, seed)
        for sample, timed in enumerate(_samples(one, pop, n_samples, seconds), start=-1):
            rows.append({"backend": name, "sample": sample, "cold": sample < 0} | facts | timed)
            _advance(bar, name)
    if bar is not None:
        bar.close()
    return pd.DataFrame(rows).astype({"block_size": "Int64", "points_per_thread": "Int64"}).fillna({"dispatch": ""})


def _check_counts(counts: dict[str, int]) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ArgumentError(f"a benchmark needs 1 or more of {name}, not {count!r}")


def _options(backend: str, chosen: dict[str, Any], code: str) -> dict[str, Any]:
    """The chosen options that the backend has; and whether expressions once compiled are kept."""
    offered = load(backend).options
    if chosen["dispatch"] and "dispatch" not in offered:
        raise ArgumentError(f"backend {backend!r} has no dispatch={chosen['dispatch']!r}")
    own = {name: value for name, value in chosen.items() if name in offered and value is not None}
    return own | ({"cache": code == "kept"} if "cache" in offered else {})


def _samples(run: _Run, pop: Population, n_samples: int, seconds: float) -> Any:
    """The cold sample, whose results are checked, then the warm ones, until the time is up."""
    with empty_cache() if run.options.get("cache") else contextlib.nullcontext():
        yield from _samples_here(run, pop, n_samples, seconds)


def _samples_here(run: _Run, pop: Population, n_samples: int, seconds: float) -> Any:
    shape = (len(pop), len(run.points))
    kept = None if run.results == "loss" else run.side.room(shape, run.dtype, on_host=run.results == "every")
    place = None if kept is None else run.side.landing(kept)
    cold, result = _sample(run, kept, place)
    _check(run, pop, result)
    yield cold
    begin = perf_counter()
    for _ in range(n_samples):
        yield _sample(run, kept, place)[0]
        if perf_counter() - begin > seconds:
            return


def _sample(run: _Run, kept: Any, place: Any) -> tuple[dict[str, Any], np.ndarray]:
    """Seconds of each phase of one sample, and its last step's results on the host."""
    seconds = dict.fromkeys(PHASES, 0.0)
    side = run.side
    marks = [(side.event(), side.event()) for _ in range(run.n_steps)]  # making one takes as long as a launch
    last = after_first = 0.0

    def lap(phase: str) -> None:
        nonlocal last
        now = perf_counter()
        seconds[phase] += now - last
        last = now

    X_host, y_host = run.X, run.y
    side.wait()
    begin = last = perf_counter()
    pop = parse(run.texts)
    lap("parse")
    X = side.put(X_host)
    y = side.put(y_host) if run.results == "loss" else None
    lap("upload")
    evaluator = Evaluator(pop, X, run.backend, **run.options)
    lap("prepare")
    result: Any = None
    for step in range(run.n_steps):
        params = side.parameters(run.parameters[step % len(run.parameters)])
        lap("upload")
        side.mark(marks[step][0])
        result = evaluator.evaluate(params, out=kept) if y is None else evaluator.loss(params, y, "sse")
        side.mark(marks[step][1])
        if step in (0, run.n_steps - 1) or run.results != "last":
            side.wait()
        lap("evaluate" if step else "first")
        if run.results != "last":
            result = side.get(result)
            lap("download")
        if step == 0:
            after_first = last
    steps = last - after_first
    result = side.get(result, place)
    lap("download")
    total = perf_counter() - begin
    told = evaluator.engine.seconds
    others = marks[1:] or marks
    parts = {
        "steps_s": steps, "step_s": steps / (run.n_steps - 1) if run.n_steps > 1 else seconds["first"],
        "kernel_s": side.seconds(others) / len(others),
        "lower_s": told["lower"] if "lower" in told else _lowering(run, pop),
        "compile_s": sum(told[name] for name in COMPILING if name in told) if told else np.nan,
    }
    named = {f"{phase}_s": spent for phase, spent in seconds.items()}
    given = side.put(run.parameters[0]) if pop.max_params else None
    parts |= side.alone(
        (lambda: evaluator.evaluate(given, out=kept)) if y is None else lambda: evaluator.loss(given, y, "sse"),
        of_many=bool(run.options.get("dispatch")) or run.results == "every",
    )
    facts = side.used_by(evaluator) | side.state() | side.kernel_facts(evaluator)
    return named | {"total_s": total} | parts | facts, result


def _lowering(run: _Run, pop: Population) -> float:
    """Seconds of lowering alone, done once more, for a backend that lowers and does not tell."""
    if not load(run.backend).lowers:
        return np.nan
    begin = perf_counter()
    lower(pop, precision=run.options["precision"], dtype=run.dtype)
    return perf_counter() - begin


def _check(run: _Run, pop: Population, result: np.ndarray) -> None:
    """Compare some of the last step's results with the definition; raise if they disagree."""
    random = np.random.Generator(np.random.PCG64(run.seed))
    params = run.parameters[(run.n_steps - 1) % len(run.parameters)]
    most = run.n_checked if run.results != "loss" else max(1, min(run.n_checked, int(CHECKED_VALUES // len(run.X))))
    chosen = np.sort(random.permutation(len(pop))[:most])
    points = np.sort(random.permutation(len(run.points))[:CHECKED_POINTS])
    some, given = pop[chosen], params[chosen]
    if run.results == "loss":
        values = np.asarray(Evaluator(some, run.X, run.backend, **run.options).evaluate(given))
        _check_losses(run, result[chosen], values, chosen)
        values = values[:, points]
    else:
        values = result[np.ix_(chosen, points)]
    precision = run.options["precision"]
    approximate = precision == "fast" and isinstance(run.side, Gpu)
    apart = disagreement(
        some, run.points.X[points], given, values, dtype=run.dtype, precision=precision, approximate=approximate
    )
    allowed = ALLOWED_FAST if approximate else ALLOWED if len(some) >= ENOUGH else ALLOWED_OF_FEW
    if apart.mean() > allowed:
        worst = int(chosen[apart.argmax()])
        raise BackendError(
            f"backend {run.backend!r} disagrees with the definition in {apart.mean():.2%} of the results checked,"
            f" most in expression {worst}: {run.texts[worst]}; nothing was timed"
        )


def _check_losses(run: _Run, losses: np.ndarray, values: np.ndarray, chosen: np.ndarray) -> None:
    """Compare losses with the sums over the values themselves, where those are ordinary numbers."""
    with np.errstate(all="ignore"):
        expected = ((values.astype(np.float64) - run.y) ** 2).sum(axis=1)
        compared = np.isnan(expected) | (expected < np.finfo(run.dtype).max * 1e-2)
        apart = compared & ~np.isclose(losses, expected, rtol=1e-3, equal_nan=True)
    if apart.mean() > ALLOWED_LOSSES:
        worst = int(chosen[apart.argmax()])
        raise BackendError(
            f"backend {run.backend!r} gives losses that are not the sums of its own squared errors in"
            f" {apart.mean():.0%} of those checked, as in expression {worst}: {run.texts[worst]}; nothing was timed"
        )


def _parameters(pop: Population, n_sets: int, seed: int, dtype: str) -> list[np.ndarray]:
    """Parameter sets, (n_exprs, max_params) each."""
    random = np.random.Generator(np.random.PCG64(seed))
    return [random.uniform(*PARAMETER_RANGE, (len(pop), pop.max_params)).astype(dtype) for _ in range(n_sets)]


def _advance(bar: Any, name: str) -> None:
    if bar is not None:
        bar.set_description(name, refresh=False)
        bar.update()


def compile_ahead(runs: Iterable[dict[str, Any]]) -> None:
    """Compile, side by side, what many runs will need whatever their expressions.

    A variant of the GPU interpreter takes a second or more, and a study may need dozens;
    afterwards they lie in the cache on disk.  What cannot be compiled fails again, and is
    reported, in its own run.
    """
    options = ("backends", "block_size", "points_per_thread", "dispatch", "precision", "dtype", "results")
    wanted = {json.dumps([one[name] for name in options]): one for one in runs}
    with ThreadPoolExecutor(machine.cores()) as threads:
        for one in wanted.values():
            threads.submit(_compile_one, one)


def _compile_one(parameters: dict[str, Any]) -> None:
    few = {"n_exprs": 200, "n_steps": 1, "n_samples": 1, "seconds": 0.0, "n_checked": 1, "code": "anew"}
    run(parameters | few)


# ── what came out ────────────────────────────────────────────────────────────────────


def medians(samples: pd.DataFrame) -> pd.DataFrame:
    """One row a configuration: median, quartiles and least of the total, the medians of its phases and parts.

    Cold samples count in ``cold_s`` alone.  ``node_evals_per_s`` is tokens x points over the
    median of ``step_s``.
    """
    keys = [name for name in (*CONFIGURATION, "file") if name in samples]
    cold = samples["cold"] if "cold" in samples else pd.Series(False, samples.index)
    groups = samples[~cold].groupby(keys, sort=False, dropna=False)
    total = groups["total_s"]
    table = pd.DataFrame({
        "samples": total.size(), "median_s": total.median(), "q25_s": total.quantile(0.25),
        "q75_s": total.quantile(0.75), "least_s": total.quantile(0.0),
    })  # fmt: skip
    others = [f"{phase}_s" for phase in (*PHASES, *PARTS)] + ["sm_mhz"]
    table = table.join(groups[[name for name in others if name in samples]].median())
    if cold.any():
        first = samples[cold].groupby(keys, sort=False, dropna=False)["total_s"].median().rename("cold_s")
        table = table.join(first)
    table = table.reset_index()
    return table.assign(node_evals_per_s=table["n_tokens"] * table["n_points"] / table["step_s"])


def unsteady(samples: pd.DataFrame) -> list[str]:
    """What speaks against trusting the samples, one sentence each (the rules of pyperf, and of nvbench for clocks)."""
    found = []
    warm = samples[~samples["cold"]] if "cold" in samples else samples
    groups = warm.groupby([name for name in CONFIGURATION if name in warm], sort=False, dropna=False)
    for _, rows in groups:
        backend, total = _named(rows.iloc[0], len(groups)), rows["total_s"]
        mean = total.mean()
        spread = np.ptp(total)
        if len(total) < 5:
            found.append(f"{backend}: only {number_of(len(total), 'sample')}; take 5 or more")
        elif total.std() >= 0.1 * mean:
            found.append(f"{backend}: the standard deviation is {total.std() / mean:.0%} of the mean")
        if spread and max(total.max() - mean, mean - total.min()) >= 0.5 * mean:
            found.append(f"{backend}: a sample lies more than 50% off the mean")
        if total.min() < 1e-3:
            found.append(f"{backend}: a sample took less than 1 ms; take more steps")
        if "throttled" in rows and rows["throttled"].any():
            held = number_of(int(rows["throttled"].sum()), "sample")
            found.append(f"{backend}: power or heat held the clock back after {held}")
        if "sm_mhz" in rows and (slow := rows["sm_mhz"] < 0.75 * rows["sm_mhz"].max()).any():
            low = number_of(int(slow.sum()), "sample")
            found.append(f"{backend}: the clock was below three quarters of its highest after {low}")
    return found


def _named(row: pd.Series, n_configurations: int) -> str:
    return row["backend"] if n_configurations == 1 else f"{row['backend']}, {row['n_exprs']:,} x {row['n_points']:,}"


def record_of(samples: pd.DataFrame, parameters: dict[str, Any], made_by: str) -> dict[str, Any]:
    """The record of a run: what made it, on which machine under which roofs, and what speaks against trusting it."""
    record = {"made_by": made_by} | machine.record() | gpu_record()
    return record | {"roofs": roofs(), "parameters": parameters, "warnings": unsteady(samples)}


def save(
    samples: pd.DataFrame, folder: str | Path, parameters: dict[str, Any], *, figure: Any = None,
    made_by: str = "exprkit.bench",
) -> list[Path]:  # fmt: skip
    """Write the samples (parquet), the record of the run (JSON) and the figure (SVG and PNG).

    The files are named by the benchmark and a hash of the parameters and the code's
    commit, so that the same run again replaces its own files and no other's.  Each is
    complete or absent, whenever the process is killed.

    Parameters
    ----------
    samples, parameters
        Of the run.
    folder
        Made if it is not there.
    figure
        A figure of the samples, if there is one.
    made_by
        The notebook or command that measured, for the record.

    Returns
    -------
    list of Path
        The files, samples first.

    Raises
    ------
    ArgumentError
        If no file can be named by the benchmark's name.
    DataError
        If a file cannot be written.
    """
    name, folder = records.checked_name(samples["bench"].iloc[0]), records.folder_at(folder)
    record = record_of(samples, parameters, made_by)
    stem = folder / f"{name}-{records.key_of(parameters, record['commit'])}"
    written = [records.write_json(stem.with_suffix(".json"), record)]
    if figure is not None:
        from exprkit.study.plots import write_figure

        for suffix in (".svg", ".png"):
            written.append(records.write(stem.with_suffix(suffix), lambda path: write_figure(figure, path)))
    # last, for a run is done when its samples are there
    return [records.write_samples(stem.with_suffix(".parquet"), samples), *written]
