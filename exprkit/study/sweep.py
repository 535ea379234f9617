"""``sweep``: runs a notebook once per configuration of a study in YAML, through papermill.

In: a notebook and a study.  Out: a folder of results for each run, and what became of it.
From a shell: ``python -m exprkit sweep notebooks/benchmark.ipynb data/studies/cpu.yaml``.

    >>> from exprkit.study.sweep import configurations
    >>> configurations({"fixed": {"n_steps": 5}, "grid": {"n_points": [10, 20]}})
    [{'n_steps': 5, 'n_points': 10}, {'n_steps': 5, 'n_points': 20}]

A study is a block, or a list of blocks, of

======  ===========================================================================
fixed   parameters that are the same in every run of the block
points  a list of runs, each some parameters
grid    a list of values for each parameter: every combination, at every point
======  ===========================================================================

Every name and type is checked before the first run.  A run has a folder of its own, named by
a hash of its parameters and the notebook's code; it is finished when the notebook ended well
*and* left a result file there.  Finished runs are not run again, so that starting a study again
resumes it.  A run that asks for a backend which cannot run here is skipped, and the reason told.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import reprlib
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter, time
from typing import Any, NamedTuple

from exprkit.backends import NAMES, load, status
from exprkit.distributed.workers import Workers
from exprkit.errors import ArgumentError, brought_by, did_you_mean, number_of
from exprkit.runtime import files
from exprkit.runtime.progress import Progress, shown
from exprkit.study import notebook as notebooks
from exprkit.study import records
from exprkit.study.workload import backends_of

BLOCK = ("fixed", "points", "grid")
FINISHED = "finished.json"
SETTINGS = "parameters.json"
UNLUCKY = "Kernel died before replying"  # papermill's race for ports, seen when several start at once
STATES = ("done", "finished before", "skipped", "failed", "not started")
MOST = 10_000  # runs of a study
Study = str | Path | Mapping[str, Any] | Iterable[Mapping[str, Any]]


class Outcome(NamedTuple):
    """The end of a run."""

    parameters: dict[str, Any]
    state: str  # one of ``STATES``
    detail: str  # the reason, or the last error line
    folder: Path
    seconds: float = 0.0


class PlannedRun(NamedTuple):
    """One configuration to run."""

    notebook: Path
    parameters: dict[str, Any]
    folder: Path

    @property
    def report(self) -> Path:
        """The executed notebook."""
        return self.folder / self.notebook.name

    def ended(self, state: str, detail: str = "", seconds: float = 0.0) -> Outcome:
        return Outcome(self.parameters, state, detail, self.folder, seconds)


def sweep(
    notebook: str | Path,
    study: Study,
    *,
    out: str | Path = "results",
    workers: int = 1,
    plain: Callable[[dict[str, Any]], Any] | None = None,
    into: str | Path | None = None,
    only: str | None = None,
    minutes: float | None = None,
    progress: Progress = False,
    client: Any = None,
) -> list[Outcome]:
    """Run a notebook once for every configuration of a study.

    Parameters
    ----------
    notebook
        With a cell tagged ``parameters``.  If it has ``results_dir`` among them, a run must
        leave a parquet file there; if it has ``backends``, runs that name a backend which
        cannot run here are skipped.
    study
        A YAML file, or what it would hold.
    out
        Folder of the runs' folders.
    workers
        1: one run after the other.  More: so many CPU runs side by side, and beside them
        one GPU run on each device.  Runs side by side disturb each other's times.
    plain
        A function that is called with the parameters, in this process, instead of papermill:
        for machines without Jupyter.
    into
        A parquet file: the samples of all finished runs are put together in it.  Runs that it
        holds already, measured at the present commit, are finished, too.
    only
        Only the runs whose parameter ``study`` is that.
    minutes
        No run is started after so long; starting again does the rest.
    progress
        Show a bar of the runs; or a function that is called with (done, total).
    client
        A ``dask.distributed.Client`` or a scheduler's address: a run for each thread of its workers at a time, which
        have papermill, and see notebook and ``out`` under the same paths.

    Returns
    -------
    list of Outcome
        In the order of the study.

    Raises
    ------
    ArgumentError
        Before anything runs: for a study that cannot be read, a parameter that the notebook
        does not have, a value of the wrong type, two configurations that are the same, more than
        10,000 of them, a name of the study that would lead out of ``out``, and for ``into`` one of the published
        results while the checkout has uncommitted changes.
    BackendError
        Before anything runs: for a backend that does not exist.
    FileError
        If the system refuses to write, as where the disk is full; what is finished is kept.

    Examples
    --------
    >>> import exprkit as ek
    >>> study = {"fixed": {"n_exprs": 100, "n_steps": 2}, "grid": {"n_points": [362, 10860]}}
    >>> runs = ek.sweep("notebooks/benchmark.ipynb", study, "results/points")  # doctest: +SKIP
    >>> [run.state for run in runs]  # doctest: +SKIP
    ['done', 'done']
    """
    jobs = jobs_of(notebook, study, out, only)
    if workers < 1:
        raise ArgumentError(f"workers must be 1 or more, not {workers!r}")
    if plain is not None and workers != 1:
        raise ArgumentError("runs in this process go one after the other: workers must be 1")
    if client is not None and (plain is not None or workers != 1):
        raise ArgumentError("client= says who works: leave out workers= and plain=")
    if into is not None and records.is_published(into):
        records.refuse_changes()
    cluster = Workers.of(None, client)
    waiting, before = waiting_of(jobs, into)
    outcomes = {outcome.folder: outcome for outcome in before}
    end = math.inf if minutes is None else time() + 60 * minutes
    running = _run_all(waiting, workers, plain, end) if cluster is None else _run_on(cluster, waiting, end)
    try:
        with shown(progress, len(waiting), "sweep", " runs") as done:
            for outcome in running:
                outcomes[outcome.folder] = outcome
                done(1, f"{sum(each.state == 'failed' for each in outcomes.values())} failed")
    finally:  # what is measured is kept, also when the user stops it
        complete = [job.folder for job in jobs if finished(job.folder, into)]
        if into is not None and complete:
            records.collect(complete, into, _command(notebook, study, plain, only))
    return [outcomes[job.folder] for job in jobs]


def waiting_of(jobs: list[PlannedRun], into: str | Path | None) -> tuple[list[PlannedRun], list[Outcome]]:
    """The runs that are to be started, and what is known of the others."""
    waiting, others = [], []
    collected = records.runs_in(into) if into is not None else set()
    for job in jobs:
        if reason := unavailable(job.parameters):
            others.append(job.ended("skipped", reason))
        elif job.folder.name in collected or finished(job.folder, into):
            others.append(job.ended("finished before"))
        else:
            waiting.append(job)
    return waiting, others


def _command(notebook: str | Path, study: Any, plain: Any, only: str | None) -> str:
    """The command for the same runs."""
    if not isinstance(study, str | Path):
        return f"exprkit.sweep({str(notebook)!r}, ...)"
    options = " --plain" * (plain is not None) + (f" --only {only}" if only else "")
    return f"python -m exprkit sweep {notebook} {study}{options}"


def summary(outcomes: Iterable[Outcome]) -> str:
    """The number of each state, then a line for each reason to skip, and for each run that failed."""
    outcomes = list(outcomes)
    counts = Counter(outcome.state for outcome in outcomes)
    reasons = Counter(outcome.detail for outcome in outcomes if outcome.state == "skipped")
    lines = [", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])]
    lines += [f"skipped, {number_of(count, 'run')}: {reason}" for reason, count in reasons.items()]
    lines += [f"failed: {outcome.detail}" for outcome in outcomes if outcome.state == "failed"]
    if counts["not started"]:
        lines.append("the time was up: start the same command again for the rest")
    return "\n".join(lines)


def listing(jobs: list[PlannedRun], into: str | Path | None = None) -> str:
    """The runs, a line each with the parameters in which they differ; how many of them are to be started."""
    first = jobs[0].parameters
    shared = {name: value for name, value in first.items() if all(job.parameters[name] == value for job in jobs)}
    hidden, (waiting, others) = {*shared, "results_dir"}, waiting_of(jobs, into)
    own = ({name: value for name, value in job.parameters.items() if name not in hidden} for job in jobs)
    lines = [f"{job.folder.name} {json.dumps(each)}" for job, each in zip(jobs, own, strict=True)]
    count = f"{number_of(len(jobs), 'run')} in {jobs[0].folder.parent}, {len(waiting):,} of them to be started"
    return "\n".join(
        [f"all with {json.dumps(shared)}", *lines, count, *(summary(others).splitlines() if others else ())]
    )


# ── what to run ──────────────────────────────────────────────────────────────────────


def configurations(study: Study) -> list[dict[str, Any]]:
    """The parameters of every run of a study, those that it names."""
    content: Any = _read(study) if isinstance(study, str | Path) else study
    if not isinstance(content, Mapping) and (isinstance(content, str) or not isinstance(content, Iterable | None)):
        raise ArgumentError(f"a study is a block or a list of blocks, not {reprlib.repr(content)}")
    blocks = [content] if isinstance(content, Mapping) else list(content or ())
    if not blocks:
        raise ArgumentError("the study is empty")
    checked = [_checked_block(f"block {number} of the study", block) for number, block in enumerate(blocks, start=1)]
    count = sum(len(points) * math.prod(map(len, grid.values())) for _, points, grid in checked)
    if count > MOST:
        raise ArgumentError(f"the study has {count:,} runs, and {MOST:,} are the most: make its grid smaller")
    return [
        {**fixed, **point, **dict(zip(grid, values, strict=True))}
        for fixed, points, grid in checked
        for point in points
        for values in itertools.product(*grid.values())
    ]


def _read(path: str | Path) -> Any:
    with brought_by("notebooks"):
        import yaml

    try:
        with open(path, "rb") as file:  # so that YAML's errors name the file
            return yaml.safe_load(file)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ArgumentError(f"the study {str(path)!r} cannot be read: {error}") from None
    except RecursionError:
        raise ArgumentError(f"the study {str(path)!r} cannot be read: it is nested too deeply") from None


def _checked_block(where: str, block: Any) -> tuple[Any, Any, Any]:
    """Its fixed parameters, its points and its grid."""
    if not isinstance(block, Mapping):
        raise ArgumentError(f"{where} must hold some of {', '.join(BLOCK)}, not {reprlib.repr(block)}")
    for name in set(block) - set(BLOCK):
        hint = did_you_mean(str(name), BLOCK) or f"; there are {', '.join(BLOCK)}"
        raise ArgumentError(f"{where} has no {name!r}{hint}")
    fixed, points, grid = block.get("fixed", {}), block.get("points", [{}]), block.get("grid", {})
    if not isinstance(points, list) or not points:
        raise ArgumentError(f"{where}: points must be a list of runs, not {reprlib.repr(points)}")
    for part, mapping in (("fixed", fixed), *(("a run of points", point) for point in points), ("grid", grid)):
        if not isinstance(mapping, Mapping):
            value = reprlib.repr(mapping)
            raise ArgumentError(f"{where}: {part} must be parameters as in  n_points: 362, not {value}")
    for name, values in grid.items():
        if not isinstance(values, list) or not values:
            raise ArgumentError(f"{where}: grid needs a list of values for {name!r}, not {reprlib.repr(values)}")
    return fixed, points, grid


def jobs_of(notebook: str | Path, study: Study, out: str | Path, only: str | None = None) -> list[PlannedRun]:
    """All runs of a study, checked; ``sweep`` says what is raised."""
    notebook, out = Path(notebook), Path(out)
    code, declared, jobs = notebooks.code_of(notebook), notebooks.defaults(notebook), {}
    for configuration in configurations(study):
        parameters = notebooks.checked(declared, configuration)
        if only is not None and parameters.get("study") != only:
            continue
        unavailable(parameters)  # raises for a backend that there is not
        named = {name: value for name, value in parameters.items() if name != "results_dir"}
        name = records.checked_name(str(parameters["study"])) if "study" in parameters else notebook.stem
        folder = out / f"{name}-{records.key_of(code, named)}"
        if folder in jobs:
            raise ArgumentError(f"the study has this configuration twice: {configuration}")
        if "results_dir" in parameters:
            parameters["results_dir"] = str(folder.resolve())
        jobs[folder] = PlannedRun(notebook, parameters, folder)
    if not jobs:
        raise ArgumentError(f"the study has no configuration named {only!r}")
    return list(jobs.values())


def unavailable(parameters: dict[str, Any]) -> str:
    """Why a run's backends cannot run here; empty if they can.  Raises for a name that there is not."""
    names = parameters.get("backends", ())
    for name in set(names) - set(NAMES):
        load(name)
    return "; ".join(f"{name}: {status(name).detail}" for name in names if not status(name).available)


def _on_gpu(job: PlannedRun) -> bool:
    names = backends_of(job.parameters["backends"]) if "backends" in job.parameters else ()
    return any(load(name).empty is not None for name in names)


def finished(folder: Path, into: str | Path | None = None) -> bool:
    """True where a run ended well in that folder, at this commit if to be published, and its files are still there."""
    try:
        record = json.loads((folder / FINISHED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    old = into is not None and records.is_published(into) and record.get("commit") != records.provenance()["commit"]
    return not old and all((folder / name).exists() for name in record["results"])


# ── running ──────────────────────────────────────────────────────────────────────────


def _run_all(jobs: list[PlannedRun], workers: int, plain: Callable[..., Any] | None, end: float) -> Iterator[Outcome]:
    """Outcomes as they come; side by side, threads wait for papermill's processes."""
    if workers == 1:
        yield from (_run(job, end, plain) for job in jobs)
        return
    on_gpu = [job for job in jobs if _on_gpu(job)]
    devices: SimpleQueue[int] = SimpleQueue()
    for device in range(_device_count() if on_gpu else 0):
        devices.put(device)
    with ThreadPoolExecutor(workers) as on_host, ThreadPoolExecutor(max(1, devices.qsize())) as on_devices:
        runs = [
            on_devices.submit(_run_on_a_device, job, end, devices) if job in on_gpu else on_host.submit(_run, job, end)
            for job in jobs
        ]
        try:
            yield from (run.result() for run in as_completed(runs))
        finally:  # a user who stops it waits for what is running only
            for run in runs:
                run.cancel()


def _run_on(cluster: Workers, jobs: list[PlannedRun], end: float) -> Iterator[Outcome]:
    """Outcomes as they come from a cluster's workers; called off by a user who stops it."""
    from distributed import wait

    absolute = [job._replace(notebook=job.notebook.resolve(), folder=job.folder.resolve()) for job in jobs]
    runs = dict(zip(cluster.client.map(_run, absolute, end=end, pure=False), jobs, strict=True))
    try:
        while runs:
            cluster.look_after()
            with contextlib.suppress(TimeoutError), cluster.client.as_current():
                wait(list(runs), timeout=1, return_when="FIRST_COMPLETED")
            for run in [run for run in runs if run.done()]:
                job, error = runs.pop(run), run.exception()
                if error is not None:  # as where every worker that tried died
                    yield job.ended("failed", f"{type(error).__name__}: {error}")
                else:
                    yield run.result()._replace(folder=job.folder)
    finally:
        cluster.client.cancel(list(runs))


def _device_count() -> int:
    import cupy

    return int(cupy.cuda.runtime.getDeviceCount())


def _run_on_a_device(job: PlannedRun, end: float, devices: SimpleQueue[int]) -> Outcome:
    device = devices.get()
    try:
        return _run(job, end, None, device)
    finally:
        devices.put(device)


def _run(job: PlannedRun, end: float, plain: Callable[..., Any] | None = None, device: int | None = None) -> Outcome:
    """Run one configuration, unless the time is up, and note it as finished if it is."""
    begin = perf_counter()
    if time() > end:
        return job.ended("not started", "the time was up")
    files.folder(job.folder)
    for old in (*job.folder.glob(f"*{records.SAMPLES}"), job.folder / FINISHED):
        old.unlink(missing_ok=True)  # of an earlier run that did not end well
    records.write_json(job.folder / SETTINGS, job.parameters)
    error, report = _papermill(job, device) if plain is None else _call(job, plain)
    results = sorted(path.name for path in job.folder.glob(f"*{records.SAMPLES}"))
    if not error and "results_dir" in job.parameters and not results:
        error = "it ended well but left no result file"
    seconds = perf_counter() - begin
    if error:
        return job.ended("failed", f"{report}: {error}", seconds)
    records.write_json(job.folder / FINISHED, {"results": results, "seconds": seconds, **records.provenance()})
    return job.ended("done", seconds=seconds)


def _papermill(job: PlannedRun, device: int | None) -> tuple[str, Path]:
    """The last error line, empty if it ended well, and the executed notebook."""
    environment = os.environ | {"TQDM_MININTERVAL": "5"}
    if device is not None:
        environment["CUDA_VISIBLE_DEVICES"] = str(device)
    command = [sys.executable, "-m", "papermill", str(job.notebook), str(job.report), "--no-progress-bar"]
    command += ["-f", str(job.folder / SETTINGS)]
    for _ in range(2):
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode == 0:
            return "", job.report
        if UNLUCKY not in done.stderr:
            break
    return f"{_last_line(done.stderr) or 'no error was written'} (exit {done.returncode})", job.report


def _call(job: PlannedRun, plain: Callable[..., Any]) -> tuple[str, Path]:
    """Run a function in this process: the error line, empty if it ended well, and the file of its traceback."""
    report = job.folder / "error.txt"
    report.unlink(missing_ok=True)
    try:
        plain(job.parameters)
    except Exception as error:  # whatever a configuration raises, the others go on
        files.write_text(report, traceback.format_exc().encode("utf-8", "backslashreplace").decode("utf-8"))
        return f"{type(error).__name__}: {_last_line(str(error))}", report
    return "", report


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
