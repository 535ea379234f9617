"""What a first use costs: processes with an empty cache of machine code, and again with the full one.

    python tests/bench_first_use.py                        # the installed exprkit, all uses
    python tests/bench_first_use.py --for values,fit --loops 20
    python tests/bench_first_use.py --wheel dist/NAME.whl --csv FILE    # 15 minutes on two cores

A process does what its line names and everything that needs, from the start of Python; "fit" has the values and losses
before it.  ``compiled`` counts loops that Numba compiles, ``loaded`` those read from the cache or from what a wheel
brought.  ``--loops`` lists those that take longest to compile, each without the loops that it calls and compiles.
With a wheel (``make wheels``) of this checkout all is measured in a new environment: what pip takes to download and to
install it with the extra "search", and every use with the machine code that it brings ("wheel"), then without.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLANETS = ROOT / "data" / "planets.csv"
COLUMNS = "use", "cache", "wall_s", "processor_s", "compiled", "loaded", "compiling_s"
PACKAGES = "numba", "llvmlite", "numpy", "scipy", "scikit-learn", "pandas"


# ── in the measured process ──


def imports():
    import exprkit  # noqa: F401


def values():
    import numpy as np

    import exprkit as ek

    X = np.random.default_rng(0).uniform(1, 2, (200, 2))
    y = 2 * X[:, 0] + X[:, 1]
    pop = ek.parse(["p1 * x1 + x2", "exp(p1 * x1) + p2", "x1 ^ p1 * x2"])
    ev = ek.Evaluator(pop, X, "cpu")
    ev.evaluate(np.ones((3, 2)))
    ev.loss(np.ones((3, 2)), y)
    return pop, X, y


def fit():
    import exprkit as ek

    ek.fit(*values(), backend="cpu")


def law():
    import pandas as pd

    import exprkit as ek

    planets = pd.read_csv(PLANETS)
    ek.SymbolicRegressor(niterations=0, random_state=0).fit(planets[["distance (AU)"]], planets["period (years)"])


def exhaustive():
    import exprkit as ek

    ek.exhaustive_search(ek.data.rough_pipe(), max_nodes=6, backend="cpu", progress=False)


USES = {"import": imports, "values": values, "fit": fit, "law": law, "exhaustive": exhaustive}


def measured(use):
    """Do what a use names; processor seconds, loops that were read, seconds of compiling by loop."""
    if use != "import":
        from numba.core import event

        from exprkit.runtime.jit import LoopCache

        own, running, loaded = Counter(), [], []
        read = LoopCache.load_overload

        def load(cache, *arguments):
            result = read(cache, *arguments)
            loaded.extend([cache] if result is not None else [])
            return result

        class Compiling(event.Listener):
            def on_start(self, event):
                running.append([time.process_time(), 0.0])

            def on_end(self, event):
                begin, within = running.pop()
                took = time.process_time() - begin
                function = event.data["dispatcher"].py_func
                own[f"{function.__module__}.{function.__qualname__} {event.data['args']}"] += took - within
                if running:
                    running[-1][1] += took

        LoopCache.load_overload = load
        event.register("numba:compile", Compiling())
    else:
        own, loaded = {}, []
    USES[use]()
    return {"processor_s": time.process_time(), "loaded": len(loaded), "loops": own}


def about():
    """Where the package lies, and the versions of what it was measured with."""
    import exprkit

    versions = ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES)
    return {"folder": str(Path(exprkit.__file__).parent), "versions": f"Python {sys.version.split()[0]}, {versions}"}


# ── processes ──


def answer(python, use, folder):
    """What this script prints in a fresh process of an environment whose cache is a folder."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    if python != sys.executable:
        variables.pop("PYTHONPATH", None)
    command, environment = [python, __file__, "--measured", use], {**variables, "EXPRKIT_CACHE_DIR": folder}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def process(python, use, folder):
    """What a fresh process takes for a use, and the seconds of each loop that it compiled."""
    begin = time.perf_counter()
    result = answer(python, use, folder)
    wall_s, loops = time.perf_counter() - begin, result.pop("loops")
    seconds = {"wall_s": wall_s, "processor_s": result.pop("processor_s"), "compiling_s": sum(loops.values())}
    return {**result, "use": use, "compiled": len(loops), **{k: round(v, 2) for k, v in seconds.items()}}, loops


def installed(wheel, folder):
    """The Python of a new environment with a wheel in it, and what pip took to download and to install that."""
    from try_wheel import environment  # not in the measured process

    python, packages, rows = environment(folder / "user"), folder / "packages", []
    for use, given in (
        ("download", ["download", "-d", packages]),
        ("install", ["install", "--no-index", "--find-links", packages]),
    ):
        begin, before = time.perf_counter(), os.times()
        pip = [python, "-m", "pip", *given, "--quiet", "--no-cache-dir", "--disable-pip-version-check"]
        subprocess.run([*pip, f"{wheel}[search]"], check=True)
        wall_s, after = time.perf_counter() - begin, os.times()
        processor_s = sum(after[2:4]) - sum(before[2:4])
        rows.append({"use": use, "cache": "wheel", "wall_s": round(wall_s, 2), "processor_s": round(processor_s, 2)})
    return str(python), rows


def refuse_other_sources(wheel):
    """End where a wheel's files are not those of this checkout, whose commit the rows will name."""
    with zipfile.ZipFile(wheel) as names:
        for name in names.namelist():
            source = ROOT / name
            if name.startswith("exprkit/") and source.is_file() and source.read_bytes() != names.read(name):
                sys.exit(f"{wheel} has another {name} than this checkout: make wheels")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--for", dest="uses", default=",".join(USES), help=f"of {', '.join(USES)} (all)")
    parser.add_argument("--loops", type=int, default=0, help="list so many loops of each use")
    parser.add_argument("--wheel", type=Path, help="measured in an environment of its own")
    parser.add_argument("--csv", type=Path, help="from a committed checkout alone")
    parser.add_argument("--measured", choices=[*USES, "about"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measured:
        print(json.dumps(about() if options.measured == "about" else measured(options.measured)))
        return
    if unknown := set(options.uses.split(",")) - set(USES):
        parser.error(f"--for: {', '.join(sorted(unknown))} is none of {', '.join(USES)}")
    from exprkit.study import records  # not in the measured process

    if options.csv:
        records.refuse_changes()
    rows = []

    def add(row, loops):
        rows.append(row)
        print(" ".join(f"{row.get(column, ''):>11}" for column in COLUMNS), flush=True)
        for name, seconds in sorted(loops.items(), key=lambda item: -item[1])[: options.loops]:
            print(f"{seconds:10.2f} s  {name}"[:150])

    print(" ".join(f"{column:>11}" for column in COLUMNS), flush=True)
    with tempfile.TemporaryDirectory() as place:
        python, uses = sys.executable, options.uses.split(",")
        if options.wheel:
            refuse_other_sources(options.wheel)
            python, pip = installed(options.wheel.resolve(), Path(place))
            for row in pip:
                add(row, {})
        this = answer(python, "about", "")
        package = Path(this["folder"])
        compileall.compile_dir(package, quiet=1)  # as pip does
        for caches in (["wheel"] * bool(options.wheel), ["empty", "full"]):
            for use in uses * bool(caches):
                with tempfile.TemporaryDirectory() as folder:
                    for cache in caches:
                        row, loops = process(python, use, folder)
                        add({**row, "cache": cache}, loops)
            for archive in package.glob("runtime/shipped/*.zip") if options.wheel else ():
                archive.unlink()
    if options.csv:
        records.write_rows(options.csv, [{**row, "versions": this["versions"]} for row in rows])


if __name__ == "__main__":
    main()
