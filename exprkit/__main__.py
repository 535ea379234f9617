"""The command line, ``python -m exprkit benchmark | lab | sweep | warm | calibrate | figures | readme``: parses
arguments, calls the package.

    >>> from exprkit.__main__ import main
    >>> main(["sweep", "no.ipynb", "no.yaml"])
    1

Results go to standard output, messages to standard error; the exit code is 0 if all went
well, 1 if something failed, 2 for a command that cannot be understood, 130 after Ctrl-C.
Without a command it shows its help, and the exit code is 2.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from exprkit.errors import ArgumentError, ExprkitError, brought_by

NO_COMMAND = 2
STOPPED = 130  # the shell's exit code after Ctrl-C
EXAMPLES = """examples:
  python -m exprkit sweep notebooks/benchmark.ipynb data/studies/cpu.yaml
  python -m exprkit sweep notebooks/benchmark.ipynb data/studies/h200.yaml --plain --into data/results/h200.parquet
  python -m exprkit figures
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; its exit code."""
    parser = _parser()
    options, others = parser.parse_known_args(arguments)
    if options.command is _lab:
        options.others = others
    elif others:
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    if options.command is None:
        parser.print_help(sys.stderr)
        return NO_COMMAND
    try:
        return options.command(options)
    except ExprkitError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; what is finished is kept", file=sys.stderr)
        return STOPPED


def _parser() -> argparse.ArgumentParser:
    from exprkit.version import __version__

    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m exprkit", description="exprkit's studies.", epilog=EXAMPLES, formatter_class=raw
    )
    parser.add_argument("--version", action="version", version=f"exprkit {__version__}")
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(metavar="COMMAND")

    benchmark = commands.add_parser("benchmark", help="measure every backend that can run on this machine")
    benchmark.set_defaults(command=_benchmark)
    benchmark.add_argument("--results", type=Path, default=Path("results"), help="folder of what is measured (results)")

    lab = commands.add_parser("lab", help="open the explorer in JupyterLab, which takes all that stands behind")
    lab.set_defaults(command=_lab)

    sweep = commands.add_parser(
        "sweep", help="run a notebook once for every configuration of a study", epilog=EXAMPLES, formatter_class=raw
    )
    sweep.set_defaults(command=_sweep)
    sweep.add_argument("notebook", type=Path)
    sweep.add_argument("study", type=Path, help="YAML: blocks of fixed, points, grid")
    sweep.add_argument("--out", type=Path, help="folder of the runs (results/NAME OF THE STUDY)")
    sweep.add_argument("--workers", type=int, default=1, help="so many CPU runs side by side (1)")
    sweep.add_argument("--client", help="run on the workers of the dask scheduler at this address")
    sweep.add_argument(
        "--plain",
        action="store_true",
        help="without papermill, in this process: saves starting a notebook for each run",
    )
    sweep.add_argument("--into", type=Path, help="put all samples together into this parquet file")
    sweep.add_argument("--only", help="only the runs with this value of the parameter 'study'")
    sweep.add_argument("--minutes", type=float, help="start no run after so long")
    sweep.add_argument("--check", action="store_true", help="check the study, list its runs, run nothing")
    sweep.add_argument("--json", action="store_true", help="the outcomes, or what is listed, as JSON")

    ahead = commands.add_parser("warm", help="compile what features use, and keep it on disk: for images and clusters")
    ahead.set_defaults(command=_warm)
    ahead.add_argument(
        "--for", dest="features", metavar="FEATURES", help="such as evaluate,fit,search,gpu (all that need no GPU)"
    )

    calibrate = commands.add_parser("calibrate", help="measure this machine for backend='auto', and keep that")
    calibrate.set_defaults(command=_calibrate)

    figures = commands.add_parser("figures", help="draw every figure again from the results")
    figures.set_defaults(command=_figures)
    figures.add_argument("--results", type=Path, default=Path("data/results"))
    figures.add_argument("--out", type=Path, default=Path("figures"))

    readme = commands.add_parser("readme", help="make the tables of README.md and data/results again")
    readme.set_defaults(command=_readme)
    readme.add_argument("--readme", type=Path, help="this page only")
    readme.add_argument("--results", type=Path, default=Path("data/results"))
    return parser


def _benchmark(options: argparse.Namespace) -> int:
    notebook, done = _notebook("benchmark"), options.results / "benchmark.ipynb"
    options.results.mkdir(parents=True, exist_ok=True)
    given = ["-p", "results_dir", str(options.results), "--no-progress-bar", "--log-output"]
    code = _run("papermill", str(notebook), str(done), *given)
    if code == 0:
        written = sorted(options.results.glob("benchmark-*.*"), key=lambda path: path.stat().st_mtime)[-3:]
        print(f"\nThe notebook with its table and figure: {done}\nResults and figure:", *written, sep="\n  ")
    return code


def _lab(options: argparse.Namespace) -> int:
    page = _notebook("explore")
    if getattr(os, "geteuid", lambda: 1)() == 0 and "--allow-root" not in options.others:
        raise ArgumentError("JupyterLab does not run as root, unless asked to: python -m exprkit lab --allow-root")
    start = ["--ServerApp.root_dir=.", f"--LabApp.default_url=/lab/tree/{page.as_posix()}"]
    return _run("jupyterlab", *start, *options.others)


def _notebook(name: str) -> Path:
    path = Path("notebooks") / f"{name}.ipynb"
    if not path.is_file():
        raise ArgumentError(f"there is no file {path} here: run this in the folder of exprkit's checkout")
    return path


def _run(module: str, *arguments: str) -> int:
    """The exit code of a module of the extra notebooks, run by this Python."""
    with brought_by("notebooks"):
        importlib.import_module(module)
    environment = {"TQDM_MININTERVAL": "5"} | os.environ  # seconds: a log gets no line for each step
    return subprocess.run([sys.executable, "-m", module, *arguments], env=environment).returncode


def _sweep(options: argparse.Namespace) -> int:
    from exprkit.study import sweep as sweeps

    out = options.out or Path("results") / options.study.stem
    if options.check:
        jobs = sweeps.jobs_of(options.notebook, options.study, out, options.only)
        listed = [{"folder": str(job.folder), "parameters": job.parameters} for job in jobs]
        print(json.dumps(listed, indent=1) if options.json else sweeps.listing(jobs, options.into))
        return 0
    plain = _plain(options.notebook) if options.plain else None
    if plain:
        from exprkit.study import bench

        waiting, _ = sweeps.waiting_of(sweeps.jobs_of(options.notebook, options.study, out, options.only), options.into)
        bench.compile_ahead(job.parameters for job in waiting)
    outcomes = sweeps.sweep(
        options.notebook,
        options.study,
        out=out,
        workers=options.workers,
        plain=plain,
        into=options.into,
        only=options.only,
        minutes=options.minutes,
        progress=True,
        client=options.client,
    )
    if options.json:
        print(json.dumps([{**outcome._asdict(), "folder": str(outcome.folder)} for outcome in outcomes], indent=1))
    else:
        print(sweeps.summary(outcomes))
        print(f"results: a folder for each run in {out}{f'; all samples in {options.into}' if options.into else ''}")
    return int(any(outcome.state == "failed" for outcome in outcomes))


def _plain(notebook: Path) -> Callable[[dict[str, Any]], Any]:
    """The function that does what a notebook does."""
    from exprkit.study import bench

    if notebook.stem != "benchmark":
        raise ArgumentError(f"--plain runs benchmark.ipynb only; {notebook} needs papermill")
    return bench.run_and_save


def _warm(options: argparse.Namespace) -> int:
    from exprkit import warm_up
    from exprkit.runtime import jit

    warm_up.warm(options.features.split(",") if options.features else None)
    print(
        f"what is compiled is kept in {jit.folder()}" if jit.folder() else "nothing is kept: EXPRKIT_CACHE_DIR is empty"
    )
    return 0


def _calibrate(options: argparse.Namespace) -> int:
    from tqdm.auto import tqdm

    from exprkit.evaluate import calibration

    for name, costs in calibration.calibrated(tqdm).items():
        print(f"{name}\n{costs}")
    return 0


def _figures(options: argparse.Namespace) -> int:
    from exprkit.study import figures

    if not options.results.is_dir():
        raise ArgumentError(f"there is no folder of results {options.results}: name it by --results")
    for path in figures.write_all(options.results, options.out):
        print(path)
    return 0


def _readme(options: argparse.Namespace) -> int:
    from exprkit.runtime import files
    from exprkit.study import readme

    for page in [options.readme] if options.readme else readme.pages():
        if not page.is_file():
            raise ArgumentError(f"there is no file {page}: name it by --readme")
        files.write_text(page, readme.refresh(page.read_text(encoding="utf-8"), options.results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
