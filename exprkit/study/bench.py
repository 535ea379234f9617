"""``bench``: the thesis's benchmark protocol, its samples and result files.

In: expressions, data and settings.  Out: a table of samples, how long each phase took of what a user would do with
``parse`` and ``Evaluator``; and its files.  The notebook ``benchmark.ipynb`` only calls this module.

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
``lower_s`` (lowering), ``emit_s`` (structures and PTX) and ``compile_s`` (machine code) are what the
engine says of itself; where it is silent, lowering is timed once more by itself.  ``bytes_in`` and
``bytes_out`` are what the last step brings to a GPU and back, by so many ``transfers``: copies, and
kernels that reach into the host's memory.  ``device`` and
``threads`` are what a sample's backend used, ``cpu_s`` the CPU seconds of all threads in a sample.
``host_bytes`` and ``device_bytes`` are the most memory that the cold sample took, results included.

After each sample, outside its total, two more steps are timed on the GPU's clock alone, queued
behind other work, their parameters on the device: ``device_s`` with the second-level cache (L2) as
a step leaves it, ``device_cold_s`` after all of it has been written over (as nvbench's cold
samples); a matrix stays there.  Steps of a sample, and every median that does not say otherwise, are of the first kind.

Three protocols are told apart by what comes back: the matrix of ``every`` step (the thesis's, which calls
its evaluator so in its loop of repetitions), the matrix of the ``last`` step, or the ``loss`` of each
expression at every step, which is all that a search needs.  Beside them ``half``, the matrix of every step in 16 bits
(float16), and ``fit``: a step is a whole fit of every expression, up to 50 iterations, from the step's parameters.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np

from exprkit import data
from exprkit.backends import load
from exprkit.backends.objective import Options
from exprkit.errors import ArgumentError, BackendError, brought_by, number_of
from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population
from exprkit.programs.lower import lower
from exprkit.runtime import files, machine
from exprkit.runtime.progress import Progress, shown
from exprkit.study import records
from exprkit.study.agreement import disagreement
from exprkit.study.records import CONFIGURATION
from exprkit.study.thesis import baseline
from exprkit.study.timed_device import TRANSFERS, Gpu, Host, device_of, empty_cache, kernel_facts, link_rate
from exprkit.study.workload import backends_of, dataset, expressions

with brought_by("notebooks"):
    import pandas as pd

__all__ = [
    "CONFIGURATION", "DEFAULTS", "PHASES", "Settings", "backends_of", "dataset", "expressions", "measure", "medians",
    "run", "run_and_save", "run_grid", "save", "unsteady", "with_origin",
]  # fmt: skip

PHASES = ("parse", "upload", "prepare", "first", "evaluate", "download")
PARTS = ("step", "kernel", "device", "device_cold", "lower", "emit", "compile")
RESULTS = ("every", "last", "loss")  # the protocols
BESIDE = ("half", "fit")  # what else a step may give
SUMS = ("loss", "fit")  # of these no matrix is made
TO_HOST = ("every", "half")  # of these every step's matrix comes to the host
CODE = ("anew", "kept")
AHEAD_EXPRS, AHEAD_VALUES = 10_000, 1 << 28  # at most, of what is computed of a run to compile what it needs
ENGINE_OPTIONS = ("block_size", "points_per_thread")  # handed to those backends that have them
SEPARATE = "per-expression"  # one launch per expression, as in the thesis (baseline.py)
SAID = {"emit_s": ("group", "emit"), "compile_s": ("compile", "load")}  # what an engine may say, besides "lower"
MEMORY = ("host_bytes", "device_bytes")
OF_SETTINGS = ("results", "n_steps", "precision", "dtype")  # columns of the samples
PARAMETER_RANGE = (-2.0, 2.0)
PARAMETER_SETS = 8  # so many are made beforehand and taken in turn
CHECKED_POINTS = 64  # of every expression that is compared with the definition
CHECKED_VALUES = 2e7  # of the checked expressions at all points, where losses are compared
ALLOWED = 1e-3  # share of the checked results that may differ by more than rounding explains ...
ALLOWED_OF_FEW = 1e-2  # ... of fewer than ENOUGH expressions, where one ill-conditioned one weighs more ...
ALLOWED_FAST = 5e-2  # ... and of a GPU's approximate functions, whose errors hold on their domains only
ENOUGH = 100
ALLOWED_LOSSES = 0.02  # share of the checked losses that may lie apart by more than one in 1,000


@dataclass(frozen=True)
class Settings:
    """The parameters of ``benchmark.ipynb``, which says what each is; 0 and "" mean: as the backend likes best."""

    study: str = "benchmark"
    n_exprs: int = 10_000
    n_points: int = 362
    n_vars: int = 2
    n_tokens: int = 0
    n_params: int = 2
    n_steps: int = 100
    n_samples: int = 50
    seconds: float = 60.0
    results: str = "every"
    backends: Sequence[str] = field(default_factory=list)  # none: all that can run here
    dispatch: str = ""
    code: str = "anew"
    block_size: int = 0
    points_per_thread: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    threads: int = 0
    precision: str = "fast"
    dtype: str = "float32"
    dataset: str = "rough_pipe"
    expressions: str = "exhaustive"
    n_checked: int = 200
    seed: int = 0
    results_dir: str = "results"

    def check(self, n_exprs: int) -> None:
        """Raise ArgumentError for what cannot be measured."""
        counts = {name: getattr(self, name) for name in ("n_steps", "n_samples", "n_checked")}
        for name, count in ({"expressions": n_exprs} | counts).items():
            if count < 1:
                raise ArgumentError(f"a benchmark needs 1 or more of {name}, not {count!r}")
        for name, value, allowed in (("results", self.results, (*RESULTS, *BESIDE)), ("code", self.code, CODE)):
            if value not in allowed:
                raise ArgumentError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
        if self.dispatch and self.results not in ("every", "last"):
            raise ArgumentError(f"dispatch={self.dispatch!r} gives values: results must be every or last")
        for backend in self.backends if self.results == "fit" else ():
            if not load(backend).differentiates:
                raise ArgumentError(f"backend {backend!r} makes no fits; results='fit' is for another one")

    def options_of(self, backend: str) -> dict[str, Any]:
        """Options of a backend's evaluator; ``cache`` says whether compiled code is kept."""
        offered = self._offered(backend)
        for name in set(self.options) - {option for each in self.backends for option in self._offered(each)}:
            raise ArgumentError(f"none of the backends {', '.join(self.backends)} has an option {name!r}")
        own = {name: getattr(self, name) for name in ENGINE_OPTIONS if name in offered and getattr(self, name)}
        own |= {name: value for name, value in self.options.items() if name in offered}
        cache = {"cache": self.code == "kept"} if "cache" in offered else {}
        return {"precision": self.precision, "dtype": self.dtype, "threads": self.threads or None} | own | cache

    def _offered(self, backend: str) -> tuple[str, ...]:
        """The options of a backend, or of the baseline that runs in its place."""
        options = load(backend).options
        if not self.dispatch:
            return options
        if self.dispatch != SEPARATE or backend not in baseline.OPTIONS:
            having = " and ".join(baseline.OPTIONS)
            raise ArgumentError(f"backend {backend!r} has no dispatch={self.dispatch!r}: {having} have {SEPARATE!r}")
        return baseline.OPTIONS[backend]


DEFAULTS = asdict(Settings())
_texts = functools.lru_cache(maxsize=2)(expressions)  # a study measures several backends on the same expressions


# ── measuring ────────────────────────────────────────────────────────────────────────


def run(parameters: dict[str, Any], progress: Progress = False) -> pd.DataFrame:
    """Measure what parameters of ``benchmark.ipynb`` say."""
    unknown = set(parameters) - set(DEFAULTS)
    if unknown:
        raise ArgumentError(f"there is no parameter {', '.join(sorted(unknown))}; there are {', '.join(DEFAULTS)}")
    settings = Settings(**parameters)
    records.checked_name(settings.study)
    sizes = {name: getattr(settings, name) for name in ("n_vars", "n_tokens", "n_params", "seed")}
    texts = _texts(settings.expressions, settings.n_exprs, **sizes)
    points = dataset(settings.dataset, settings.n_points, n_vars=settings.n_vars, seed=settings.seed)
    return _measured(settings, texts, points, progress)


def run_grid(parameters: dict[str, Any], grid: dict[str, list[Any]], progress: Progress = False) -> pd.DataFrame:
    """``run`` for every combination of some parameters' values, the others as given."""
    points, tables = list(itertools.product(*grid.values())), []
    with shown(progress, len(points), parameters.get("study", "benchmark"), " runs") as done:
        for values in points:
            tables.append(run(parameters | dict(zip(grid, values, strict=True))))
            done(1)
    return pd.concat(tables, ignore_index=True)


def run_and_save(parameters: dict[str, Any]) -> list[Path]:
    """``run`` and ``save``: what ``benchmark.ipynb`` does, without a notebook."""
    return save(run(parameters), parameters["results_dir"], parameters, made_by="exprkit.bench.run_and_save")


def compile_ahead(runs: Iterable[dict[str, Any]]) -> None:
    """Compile, side by side, what many runs will need: the first step of each, of some of its expressions.

    A variant of the GPU interpreter takes a second or more, and a study may need dozens, by expressions and points;
    afterwards they lie in the cache on disk.  What cannot be compiled fails again, and is reported, in its own run.
    Runs with a launch per expression are left out: their streams and graphs are the device's, one run's at a time.
    """
    each = (run | {"backends": [name]} for run in runs if not run["dispatch"] for name in backends_of(run["backends"]))
    distinct = {json.dumps(least | {"study": "", "results_dir": ""}): least for least in map(_ahead_of, each)}
    with ThreadPoolExecutor(machine.cores()) as threads:
        for parameters in distinct.values():
            threads.submit(run, parameters)


def _ahead_of(parameters: dict[str, Any]) -> dict[str, Any]:
    """The least of a run that needs the same machine code: an interpreter's depends on its work, others' on options."""
    few = {"n_steps": 1, "n_samples": 1, "seconds": 0.0, "n_checked": 1, "code": "anew"}
    if parameters["backends"][0] == "cuda":
        most = min(AHEAD_EXPRS, max(1, AHEAD_VALUES // max(parameters["n_points"], 1)))
        return parameters | few | {"n_exprs": min(parameters["n_exprs"], most)}
    options = "backends", "dispatch", *ENGINE_OPTIONS, "options", "precision", "dtype", "results"
    return DEFAULTS | {name: parameters[name] for name in options} | few | {"n_exprs": 200}


def measure(
    texts: Sequence[str] | Population,
    points: data.Dataset,
    backends: Sequence[str] = ("cpu",),
    *,
    precision: str = "ieee",
    progress: Progress = False,
    **settings: Any,
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
    precision, **settings
        Of ``Settings``: ``n_steps``, ``n_samples``, ``seconds``, ``results``, ``dtype``, ``threads``, ...
        Those of expressions and data are of no account; ``expressions`` is what they are called.
    progress
        Show a bar of the samples; or a function that is called with (done, total).

    Returns
    -------
    pandas.DataFrame
        One row per sample: what was measured, and the seconds of every phase and in total.
        The first of each backend is cold, and has the number -1.

    Raises
    ------
    ArgumentError
        If there is nothing to measure, or no step, or no sample.
    BackendError
        If a backend is unknown, cannot run here, or disagrees with the definition.
    """
    if isinstance(texts, Population):  # without names of its own, for a sample reads it again
        texts = Population(texts.kinds, texts.values, texts.offsets).texts()
    chosen = {"expressions": "texts"} | settings
    return _measured(Settings(backends=backends, precision=precision, **chosen), texts, points, progress)


class _Measurement(NamedTuple):
    """The work of one backend, and its device."""

    settings: Settings
    backend: str
    texts: Sequence[str]
    points: data.Dataset  # of the evaluator's dtype
    parameters: list[np.ndarray]
    options: dict[str, Any]  # of the evaluator
    device: Host

    def evaluator(self, pop: Population, X: Any) -> Any:
        """An ``Evaluator``, or the baseline in its place."""
        if self.settings.dispatch:
            return baseline.Baseline(pop, X, self.backend, **self.options)
        return Evaluator(pop, X, self.backend, **self.options)


def _measured(settings: Settings, texts: Sequence[str], points: data.Dataset, progress: Progress) -> pd.DataFrame:
    settings = replace(settings, backends=backends_of(settings.backends))
    settings.check(len(texts))
    devices = {name: device_of(name) for name in settings.backends}
    pop, dtype = parse(texts), settings.dtype
    random = np.random.Generator(np.random.PCG64(settings.seed))
    parameters = [
        random.uniform(*PARAMETER_RANGE, (len(pop), pop.max_params)).astype(dtype)
        for _ in range(min(settings.n_steps, PARAMETER_SETS))
    ]
    n_tokens, n_params = len(pop.kinds), int(pop.n_params.sum())
    threads = settings.threads or (1 if settings.dispatch else machine.cores())
    facts = {"bench": settings.study, "source": settings.expressions, "dataset": points.name, "threads": threads}
    facts |= {"n_exprs": len(pop), "n_tokens": n_tokens, "n_points": len(points), "n_vars": points.X.shape[1]}
    facts |= {"n_params": n_params, **{name: getattr(settings, name) for name in OF_SETTINGS}}
    about = records.provenance() | {"versions": ", ".join(f"{name} {at}" for name, at in machine.versions().items())}
    points = replace(points, X=points.X.astype(dtype), y=points.y.astype(dtype))
    rows = []
    with shown(progress, len(settings.backends) * (settings.n_samples + 1), settings.study, " samples") as done:
        for name in settings.backends:
            options = settings.options_of(name)
            facts |= {option: options.get(option) for option in ENGINE_OPTIONS} | {"dispatch": settings.dispatch}
            chosen = ", ".join(f"{key}={value}" for key, value in settings.options.items() if key in options)
            facts |= {"device": "", "code": settings.code if "cache" in options else "", "options": chosen}
            work = _Measurement(settings, name, texts, points, parameters, options, devices[name])
            for sample, timed in enumerate(_samples(work, pop), start=-1):
                rows.append({"backend": name, "sample": sample, "cold": sample < 0} | facts | timed | about)
                done(1, name)
    return pd.DataFrame(rows).astype({"block_size": "Int64", "points_per_thread": "Int64"})


def _samples(work: _Measurement, pop: Population) -> Iterator[dict[str, Any]]:
    """The cold sample, whose results are checked, then the warm ones, until the time is up."""
    shape, comes_back = (len(pop), len(work.points)), work.settings.results
    with empty_cache() if work.options.get("cache") else contextlib.nullcontext():
        matrix, place = None, None
        work.device.forget_memory()
        if comes_back == "loss":
            matrix, place = work.device.room(shape[:1], np.dtype(np.float64), on_host=True)
        elif comes_back not in SUMS:
            dtype = np.dtype("float16" if comes_back == "half" else work.settings.dtype)
            matrix, place = work.device.room(shape, dtype, on_host=comes_back in TO_HOST)
        cold, result = _sample(work, matrix, place)
        memory = {name: cold[name] for name in MEMORY}
        _check(work, pop, result)
        yield cold
        begin = perf_counter()
        for _ in range(work.settings.n_samples):
            yield _sample(work, matrix, place)[0] | memory
            if perf_counter() - begin > work.settings.seconds:
                return


def _sample(work: _Measurement, matrix: Any, place: Any) -> tuple[dict[str, Any], Any]:
    """Seconds of each phase of one sample, and its last step's results on the host (a ``Fitted`` of a fit)."""
    seconds = dict.fromkeys(PHASES, 0.0)
    device, n_steps, comes_back = work.device, work.settings.n_steps, work.settings.results
    events = [(device.event(), device.event()) for _ in range(n_steps)]  # making one takes as long as a launch
    last = after_first = 0.0

    def lap(phase: str) -> None:
        nonlocal last
        now = perf_counter()
        seconds[phase] += now - last
        last = now

    device.wait()
    begin_cpu, begin = process_time(), perf_counter()
    last = begin
    pop = parse(work.texts)
    lap("parse")
    X = device.put(work.points.X)
    y = device.put(work.points.y) if comes_back in SUMS else None
    lap("upload")
    evaluator = work.evaluator(pop, X)
    lap("prepare")
    result, run = None, _step(comes_back, evaluator, y, matrix)
    for step in range(n_steps):
        params = device.parameters(work.parameters[step % len(work.parameters)])
        lap("upload")
        device.transfers()
        device.mark(events[step][0])
        result = run(params)
        device.mark(events[step][1])
        if step in (0, n_steps - 1) or comes_back != "last":
            device.wait()
        lap("evaluate" if step else "first")
        if comes_back in (*TO_HOST, "loss"):
            result = device.get(result)
            lap("download")
        if step == 0:
            after_first = last
    steps, transfers = last - after_first, device.transfers()
    result = result if comes_back == "fit" else device.get(result, place)
    lap("download")
    row = {f"{phase}_s": spent for phase, spent in seconds.items()} | {"total_s": perf_counter() - begin}
    row |= {"cpu_s": process_time() - begin_cpu} | device.memory()
    spent, others = evaluator.engine.seconds, events[1:] or events
    row |= {
        "steps_s": steps,
        "step_s": steps / (n_steps - 1) if n_steps > 1 else seconds["first"],
        "kernel_s": device.seconds(others) / len(others),
        "lower_s": spent["lower"] if "lower" in spent else _lowering(work, pop),
        **{name: sum(spent.get(stage, 0.0) for stage in phases) if spent else np.nan for name, phases in SAID.items()},
    }
    queued = not work.settings.dispatch and comes_back != "fit"  # else launches that no queue holds
    target = device.blank(matrix) if queued and comes_back in TO_HOST else matrix  # what is timed alone stays there
    row |= {"device_s": np.nan, "device_cold_s": np.nan}
    if queued and target is not None:
        on_device: Any = device.put(work.parameters[0]) if pop.max_params else None
        alone = _step(comes_back, evaluator, y, None if comes_back == "loss" else target)
        row |= device.alone(lambda: alone(on_device))
    return row | transfers | device.facts(evaluator) | kernel_facts(evaluator), result


def _step(comes_back: str, evaluator: Any, y: Any, matrix: Any) -> Callable[[Any], Any]:
    """A step, as a function of its parameters."""
    if comes_back == "loss":
        step = evaluator.loss_of(y, "sse")
        return lambda params: step(params, out=matrix)
    if comes_back == "fit":
        engine = evaluator.derivatives()
        return lambda params: engine.fit(np.asarray(params, np.float64)[None], y, None, Options())
    return lambda params: evaluator.evaluate(params, out=matrix)


def _lowering(work: _Measurement, pop: Population) -> float:
    """Seconds of lowering alone, done once more, for a backend that lowers and does not tell."""
    if not load(work.backend).lowers:
        return np.nan
    begin = perf_counter()
    lower(pop, precision=work.settings.precision, dtype=np.dtype(work.settings.dtype))
    return perf_counter() - begin


# ── right before fast ────────────────────────────────────────────────────────────────


def _check(work: _Measurement, pop: Population, result: Any) -> None:
    """Compare some of the last step's results with the definition; raise if they disagree."""
    settings, X = work.settings, work.points.X
    random = np.random.Generator(np.random.PCG64(settings.seed))
    params = work.parameters[(settings.n_steps - 1) % len(work.parameters)]
    indirect = settings.results in (*SUMS, "half")  # what is compared with values, and those with the definition
    if settings.results == "fit":
        params, result = np.nan_to_num(result.params).astype(settings.dtype), result.loss
    most = max(1, min(settings.n_checked, int(CHECKED_VALUES // len(X)))) if indirect else settings.n_checked
    which = np.sort(random.permutation(len(pop))[:most])
    points = np.sort(random.permutation(len(X))[:CHECKED_POINTS])
    checked, params = pop[which], params[which]
    values = np.asarray(work.evaluator(checked, X).evaluate(params)) if indirect else result[which]
    if settings.results in SUMS:
        _check_losses(work, result[which], values, which)
    elif indirect:
        _check_rounded(work, result[which], values, which)
    approximate = settings.precision == "fast" and isinstance(work.device, Gpu)
    types: Any = {"dtype": settings.dtype, "precision": settings.precision, "approximate": approximate}
    apart = disagreement(checked, X[points], params, values[:, points], **types)
    allowed = ALLOWED_FAST if approximate else ALLOWED if len(checked) >= ENOUGH else ALLOWED_OF_FEW
    _refuse_above(allowed, work, apart, which, "disagrees with the definition in {:.2%} of the results checked")


def _refuse_above(allowed: float, work: _Measurement, apart: np.ndarray, which: np.ndarray, words: str) -> None:
    """Raise BackendError if more than an allowed share of results lies apart, with the expression that does most."""
    if apart.mean() > allowed:
        worst = int(which[apart.argmax()])
        raise BackendError(
            f"backend {work.backend!r} {words.format(apart.mean())}, most in expression {worst}:"
            f" {work.texts[worst]}; nothing was timed"
        )


def _check_losses(work: _Measurement, losses: np.ndarray, values: np.ndarray, which: np.ndarray) -> None:
    """Compare losses with the sums over the values themselves, where those are ordinary numbers."""
    with np.errstate(all="ignore"):
        expected = ((values.astype(np.float64) - work.points.y) ** 2).sum(axis=1)
        compared = np.isnan(expected) | (expected < np.finfo(work.settings.dtype).max * 1e-2)
        apart = compared & ~np.isclose(losses, expected, rtol=1e-3, equal_nan=True)
    words = "gives losses that are not the sums of its own squared errors in {:.0%} of those checked"
    _refuse_above(ALLOWED_LOSSES, work, apart, which, words)


def _check_rounded(work: _Measurement, rounded: np.ndarray, values: np.ndarray, which: np.ndarray) -> None:
    """Compare a matrix in 16 bits with the values rounded by NumPy."""
    with np.errstate(all="ignore"):
        expected = values.astype(rounded.dtype)
    apart = (rounded != expected) & ~(np.isnan(rounded) & np.isnan(expected))
    words = f"rounds {{:.2%}} of the results checked otherwise than to the nearest {rounded.dtype}"
    _refuse_above(0.0, work, apart.mean(axis=1), which, words)


# ── what came out ────────────────────────────────────────────────────────────────────


def medians(samples: pd.DataFrame) -> pd.DataFrame:
    """One row a configuration: median, quartiles, deviation and least of the total, medians of its phases and parts.

    ``busy_threads`` are CPU seconds over wall seconds, ``host_bytes`` and ``device_bytes`` the most.  Cold samples
    count in ``cold_s`` alone.  ``node_evals_per_s`` is tokens x points over the median of ``step_s``.
    """
    samples, cold = samples.assign(busy_threads=samples["cpu_s"] / samples["total_s"]), samples["cold"]
    keys = [*CONFIGURATION, *(["file"] if "file" in samples else [])]
    groups = samples[~cold].groupby(keys, sort=False, dropna=False)
    total = groups["total_s"]
    numbers = {"samples": total.size(), "median_s": total.median(), "q25_s": total.quantile(0.25)}
    numbers |= {"q75_s": total.quantile(0.75), "sd_s": total.std(), "least_s": total.min()}
    others = [*(f"{part}_s" for part in (*PHASES, *PARTS)), "sm_mhz", "busy_threads", *MEMORY]
    others += [name for name in TRANSFERS if name in samples]  # older samples lack them
    table = pd.DataFrame(numbers).join(groups[others].median())
    if cold.any():
        table["cold_s"] = samples[cold].groupby(keys, sort=False, dropna=False)["total_s"].median()
    table = table.reset_index()
    return table.assign(node_evals_per_s=table["n_tokens"] * table["n_points"] / table["step_s"])


def unsteady(samples: pd.DataFrame) -> list[str]:
    """Warnings about the samples, a sentence each (the rules of pyperf, and of nvbench for clocks)."""
    sentences = []
    groups = samples[~samples["cold"]].groupby(list(CONFIGURATION), sort=False, dropna=False)
    for _, rows in groups:
        total, mean = rows["total_s"], rows["total_s"].mean()
        held, slow = int(rows["throttled"].sum()), int((rows["sm_mhz"] < 0.75 * rows["sm_mhz"].max()).sum())
        complaints = {
            f"only {number_of(len(total), 'sample')}; take 5 or more": len(total) < 5,
            f"the standard deviation is {total.std() / mean:.0%} of the mean": len(total) >= 5
            and total.std() >= 0.1 * mean,
            "a sample lies more than 50% off the mean": np.ptp(total) and (total - mean).abs().max() >= 0.5 * mean,
            "a sample took less than 1 ms; take more steps": total.min() < 1e-3,
            f"power or heat held the clock back after {number_of(held, 'sample')}": held,
            f"the clock was below three quarters of its highest after {number_of(slow, 'sample')}": slow,
        }
        backend, size = rows["backend"].iloc[0], "{:,} x {:,}".format(*rows[["n_exprs", "n_points"]].iloc[0])
        named = backend if len(groups) == 1 else f"{backend}, {size}"
        sentences += [f"{named}: {sentence}" for sentence, holds in complaints.items() if holds]
    return sentences


def with_origin(samples: pd.DataFrame, made_by: str) -> pd.DataFrame:
    """Samples with what made them, the day, and the rate of the way from the GPU to the host."""
    return samples.assign(made_by=made_by, day=f"{datetime.now(UTC):%Y-%m-%d}", link_bytes_per_s=link_rate())


def save(
    samples: pd.DataFrame,
    folder: str | Path,
    parameters: dict[str, Any],
    *,
    figure: Any = None,
    made_by: str = "exprkit.bench",
) -> list[Path]:
    """Write the samples, as ``with_origin`` gives them, to a parquet file, and the figure (SVG and PNG).

    The files are named by the benchmark and a hash of the parameters and the code's
    commit, so that the same run again replaces its own files and no other's.  Each is
    complete or absent, whenever the process is killed.  ``made_by`` is the notebook or command that measured.  Gives
    the files, samples first.

    Raises ArgumentError if no file can be named by the benchmark's name; FileError if one cannot be written.
    """
    name, folder = records.checked_name(samples["bench"].iloc[0]), files.folder(folder)
    stem = folder / f"{name}-{records.key_of(parameters, records.provenance()['commit'])}"
    written = []
    for suffix in () if figure is None else (".svg", ".png"):
        from exprkit.study.plots import write_figure

        written.append(files.write(stem.with_suffix(suffix), lambda path: write_figure(figure, path)))
    # last, for a run is done when its samples are there
    return [records.write_samples(stem.with_suffix(".parquet"), with_origin(samples, made_by)), *written]
