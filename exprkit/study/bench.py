"""The thesis's benchmark: its protocol, its record, its files.

The last stage: drives ``parse`` and ``Evaluator`` as a user would and writes down how long
each phase took.  The notebook ``benchmark.ipynb`` only calls this module.

    >>> import exprkit as ek
    >>> from exprkit import data
    >>> from exprkit.study import bench
    >>> samples = bench.measure(data.esr_sample(), data.rough_pipe(), ["cpu"], n_steps=2, n_samples=3)
    >>> len(samples)
    3

One sample is what one generation of a search costs: the frontend once, the data once, then
``n_steps`` evaluations of all expressions, the parameters handed over anew each time and the
results brought back each time.  Its phases:

=========  ============================================================================
parse      texts -> population
upload     data, and the parameters of each step, to where the backend runs, in its type
prepare    population and data -> evaluator: lowering, compiling, derived columns
evaluate   the steps themselves
download   results to the host's memory (nothing to do for a backend that runs there)
=========  ============================================================================

The results go to memory that was allocated, and touched, before: fresh memory for a large
matrix costs more than filling it.  Nothing is kept from one sample to the next but what has
been compiled for all populations (the interpreter itself).
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from exprkit import data, generate, machine
from exprkit.backends import load
from exprkit.errors import ArgumentError, BackendError, brought_by
from exprkit.evaluate import Evaluator
from exprkit.population import Population
from exprkit.study.agreement import disagreement
from exprkit.text.parser import parse

with brought_by("notebooks"):
    import pandas as pd

__all__ = ["PHASES", "dataset", "expressions", "measure", "medians", "save", "unsteady"]

PHASES = ("parse", "upload", "prepare", "evaluate", "download")
PARAMETER_RANGE = (-2.0, 2.0)
PARAMETER_SETS = 8  # so many are made beforehand and taken in turn
CHECKED = (200, 64)  # expressions and points whose results are compared with the definition
ALLOWED = 1e-3  # share of the checked results that may differ by more than rounding explains


# ── what to measure on ───────────────────────────────────────────────────────────────


def expressions(source: str, n: int, *, n_vars: int = 2, seed: int = 0) -> list[str]:
    """``n`` expressions as texts.

    Parameters
    ----------
    source
        "esr": the thesis's own, over and over; "exhaustive": as many as needed of all
        expressions up to a size, evenly spread; "random": of 10 to 50 tokens; else the
        path of a text file with an expression a line, which is repeated or cut.
    n
        How many.
    n_vars
        Number of variables ("exhaustive" and "random").
    seed
        Of "random".

    Raises
    ------
    ArgumentError
        If ``source`` is none of these, or ``n`` less than 1.
    ParseError
        For a file with a line that is no expression.
    """
    if n < 1:
        raise ArgumentError(f"n_exprs must be 1 or more, not {n!r}")
    if source == "esr":
        return _cycle(data.esr_sample(), n)
    if source == "random":
        return generate.random(n, n_vars=n_vars, seed=seed).texts()
    if source == "exhaustive":
        nodes = next(size for size in range(1, 50) if generate.count_exhaustive(size, n_vars=n_vars) >= n)
        everything = generate.exhaustive(nodes, n_vars=n_vars, spelled_out=True)
        return everything[np.arange(n) * len(everything) // n].texts()
    if Path(source).is_file():
        parse(Path(source))  # an error names the line of the file
        lines = map(str.strip, Path(source).read_text(encoding="utf-8").splitlines())
        return _cycle([line for line in lines if line and not line.startswith("#")], n)  # as parse reads a file
    raise ArgumentError(f"expressions={source!r} is neither esr, exhaustive or random nor a file")


def dataset(name: str, n_points: int, *, n_vars: int = 2, seed: int = 0) -> data.Dataset:
    """A data set by name ("rough_pipe", "nikuradse", "uniform"), its points repeated or cut to ``n_points``.

    Raises
    ------
    ArgumentError
        If there is none of that name, or it has another number of variables.
    """
    if name == "uniform":
        return data.uniform(n_points, n_vars, seed)
    if name not in ("rough_pipe", "nikuradse"):
        raise ArgumentError(f"there is no dataset {name!r}; there are rough_pipe, nikuradse, uniform")
    found = data.nikuradse() if name == "nikuradse" else data.rough_pipe(seed=seed)
    if n_vars != found.X.shape[1]:
        raise ArgumentError(f"{name} has {found.X.shape[1]} variables, not {n_vars}; dataset='uniform' has any number")
    return found.repeat_to(n_points)


def _cycle(texts: list[str], n: int) -> list[str]:
    if not texts:
        raise ArgumentError("there are no expressions")
    return [texts[i % len(texts)] for i in range(n)]


# ── measuring ────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Run:
    """What one configuration evaluates, and how."""

    texts: Sequence[str]
    X: np.ndarray
    parameters: list[np.ndarray]
    backend: str
    n_steps: int
    options: dict[str, Any]  # of the evaluator

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.options["dtype"])


def measure(
    texts: Sequence[str],
    points: data.Dataset,
    backends: Sequence[str] = ("cpu",),
    *,
    n_steps: int = 100,
    n_samples: int = 50,
    precision: str = "ieee",
    dtype: str = "float32",
    threads: int | None = None,
    block_size: int | None = None,
    seed: int = 0,
    bench: str = "benchmark",
    source: str = "texts",
    progress: Callable[..., Any] | None = None,
) -> pd.DataFrame:
    """Time every backend on the same expressions, data and parameters.

    Before anything is timed, each backend evaluates everything once, and a sample of its
    results is compared with the definition.

    Parameters
    ----------
    texts
        The expressions.
    points
        The data; the target is not used.
    backends
        Names from ``exprkit.backends()``.
    n_steps, n_samples
        Evaluations in one sample, and samples of each backend.
    precision, dtype, threads
        As for ``Evaluator``.
    block_size
        Threads of a GPU block, for backends that have such.
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

    Raises
    ------
    ArgumentError
        If there is nothing to measure, or no step, or no sample.
    BackendError
        If a backend is unknown, cannot run here, or disagrees with the definition.
    """
    _check_counts({"expressions": len(texts), "backends": len(backends), "n_steps": n_steps, "n_samples": n_samples})
    for name in backends:
        load(name)
    pop = parse(texts)
    parameters = _parameters(pop, min(n_steps, PARAMETER_SETS), seed)
    options = {"precision": precision, "dtype": dtype, "threads": threads}
    facts = {
        "bench": bench, "source": source, "dataset": points.name, "n_exprs": len(pop), "n_tokens": len(pop.kinds),
        "n_points": len(points), "n_vars": points.X.shape[1], "n_params": int(pop.n_params.sum()), "n_steps": n_steps,
        "precision": precision, "dtype": dtype, "threads": threads or machine.cores(),
    }  # fmt: skip
    bar = progress(total=len(backends) * (n_samples + 1)) if progress else None
    rows = []
    for name in backends:
        blocks = _block_option(name, block_size)
        run = _Run(texts, points.X, parameters, name, n_steps, options | blocks)
        out = _checked(run, pop, seed)
        _advance(bar, name)
        for sample in range(n_samples):
            rows.append({"backend": name, "block_size": None, "sample": sample} | blocks | facts | _sample(run, out))
            _advance(bar, name)
    if bar is not None:
        bar.close()
    return pd.DataFrame(rows).astype({"block_size": "Int64"})


def _check_counts(counts: dict[str, int]) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ArgumentError(f"a benchmark needs 1 or more of {name}, not {count!r}")


def _sample(run: _Run, out: np.ndarray) -> dict[str, float]:
    """Seconds of each phase, and in total, of one sample."""
    seconds = dict.fromkeys(PHASES, 0.0)
    begin = last = perf_counter()

    def lap(phase: str) -> None:
        nonlocal last
        now = perf_counter()
        seconds[phase] += now - last
        last = now

    pop = parse(run.texts)
    lap("parse")
    X = _upload(run.X, run.dtype)
    lap("upload")
    evaluator = Evaluator(pop, X, run.backend, **run.options)
    lap("prepare")
    for step in range(run.n_steps):
        params = _upload(run.parameters[step % len(run.parameters)], run.dtype)
        lap("upload")
        result = evaluator.evaluate(params, out=out)
        lap("evaluate")
        _download(result)
        lap("download")
    return {f"{phase}_s": spent for phase, spent in seconds.items()} | {"total_s": perf_counter() - begin}


def _upload(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A fresh copy in the backend's type: all there is to do for a backend on the host."""
    return np.array(array, dtype=dtype, order="C")


def _download(result: Any) -> np.ndarray:
    return np.asarray(result)


def _checked(run: _Run, pop: Population, seed: int) -> np.ndarray:
    """Evaluate once, which also warms up; compare with the definition; return the memory of the results."""
    out = np.zeros((len(pop), len(run.X)), run.dtype)
    result = Evaluator(pop, run.X, run.backend, **run.options).evaluate(run.parameters[0], out=out)
    random = np.random.Generator(np.random.PCG64(seed))
    chosen = np.sort(random.permutation(len(pop))[: CHECKED[0]])
    points = np.sort(random.permutation(len(run.X))[: CHECKED[1]])
    apart = disagreement(
        pop[chosen], run.X[points], run.parameters[0][chosen], _download(result)[np.ix_(chosen, points)],
        dtype=run.dtype, precision=run.options["precision"],
    )  # fmt: skip
    if apart.mean() > ALLOWED:
        worst = int(chosen[apart.argmax()])
        raise BackendError(
            f"backend {run.backend!r} disagrees with the definition in {apart.mean():.2%} of the results checked,"
            f" most in expression {worst}: {run.texts[worst]}; nothing was timed"
        )
    return out


def _parameters(pop: Population, n_sets: int, seed: int) -> list[np.ndarray]:
    """Parameter sets, (n_exprs, max_params) each."""
    random = np.random.Generator(np.random.PCG64(seed))
    return [random.uniform(*PARAMETER_RANGE, (len(pop), pop.max_params)) for _ in range(n_sets)]


def _block_option(backend: str, block_size: int | None) -> dict[str, int]:
    """``block_size`` as an option of the evaluator, where the backend has such a thing."""
    has_blocks = "block_size" in inspect.signature(load(backend).Engine).parameters
    return {"block_size": block_size} if has_blocks and block_size is not None else {}


def _advance(bar: Any, name: str) -> None:
    if bar is not None:
        bar.set_description(name, refresh=False)
        bar.update()


# ── what came out ────────────────────────────────────────────────────────────────────


def medians(samples: pd.DataFrame) -> pd.DataFrame:
    """One row a configuration: median, quartiles and least of the total, and the medians of its phases.

    ``node_evals_per_s`` is tokens x points x steps over the median of ``evaluate_s``.
    """
    keys = ["bench", "source", "dataset", "backend", "precision", "dtype", "threads"]
    keys += ["n_exprs", "n_tokens", "n_points", "n_steps"]
    groups = samples.groupby(keys, sort=False)
    total = groups["total_s"]
    table = pd.DataFrame({
        "samples": total.size(), "median_s": total.median(), "q25_s": total.quantile(0.25),
        "q75_s": total.quantile(0.75), "least_s": total.quantile(0.0),
    })  # fmt: skip
    table = table.join(groups[[f"{phase}_s" for phase in PHASES]].median()).reset_index()
    work = table["n_tokens"] * table["n_points"] * table["n_steps"]
    return table.assign(node_evals_per_s=work / table["evaluate_s"])


def unsteady(samples: pd.DataFrame) -> list[str]:
    """What speaks against trusting the samples, one sentence each (the rules of pyperf)."""
    found = []
    for backend, total in samples.groupby("backend", sort=False)["total_s"]:
        mean = total.mean()
        spread = np.ptp(total)
        if len(total) < 5:
            found.append(f"{backend}: only {len(total)} samples; take 5 or more")
        elif total.std() >= 0.1 * mean:
            found.append(f"{backend}: the standard deviation is {total.std() / mean:.0%} of the mean")
        if spread and max(total.max() - mean, mean - total.min()) >= 0.5 * mean:
            found.append(f"{backend}: a sample lies more than 50% off the mean")
        if total.min() < 1e-3:
            found.append(f"{backend}: a sample took less than 1 ms; take more steps")
    return found


def save(samples: pd.DataFrame, folder: str | Path, parameters: dict[str, Any], *, figure: Any = None) -> list[Path]:
    """Write the samples (parquet), the record of the run (JSON) and the figure (SVG and PNG).

    The files are named by the benchmark and a hash of the parameters and the code's
    commit, so that the same run again replaces its own files and no other's.  Each is
    complete or absent, whenever the process is killed.

    Returns
    -------
    list of Path
        The files, samples first.
    """
    folder = Path(folder).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    record = machine.record() | {"parameters": parameters, "warnings": unsteady(samples)}
    key = hashlib.sha256(json.dumps([parameters, record["commit"]], sort_keys=True).encode()).hexdigest()[:8]
    stem = folder / f"{samples['bench'].iloc[0]}-{key}"
    written = [_write(stem.with_suffix(".json"), lambda path: path.write_text(json.dumps(record, indent=2) + "\n"))]
    if figure is not None:
        from exprkit.study.plots import write_figure

        for suffix in (".svg", ".png"):
            written.append(_write(stem.with_suffix(suffix), lambda path: write_figure(figure, path)))
    # last, for a run is done when its samples are there
    return [_write(stem.with_suffix(".parquet"), lambda path: samples.to_parquet(path, index=False)), *written]


def _write(path: Path, write: Callable[[Path], Any]) -> Path:
    """Let ``write`` fill a file beside ``path``, then put it in place at one stroke."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=path.suffix)
    os.close(handle)
    beside = Path(name)
    try:
        write(beside)
        with open(beside, "rb+") as file:
            os.fsync(file.fileno())
        os.chmod(beside, 0o644)  # mkstemp's files are for their owner alone
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    return path
