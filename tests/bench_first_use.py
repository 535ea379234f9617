"""What a first use costs: processes with an empty cache of machine code, and again with the full one.

    python tests/bench_first_use.py                        # the installed exprkit, all uses
    python tests/bench_first_use.py --for values,fit --loops 20 --csv FILE

A process does what its line names and everything that needs, from the start of Python; "fit" has the values and losses
before it.  ``compiled`` counts loops that Numba compiles, ``loaded`` those read from the cache or from what a wheel
brought.  ``--loops`` lists those that take longest to compile, each without the loops that it calls and compiles.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

PLANETS = Path(__file__).parents[1] / "data" / "planets.csv"
COLUMNS = "use", "cache", "wall_s", "processor_s", "compiled", "loaded", "compiling_s"


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


# ── processes ──


def process(use, folder):
    """Seconds and loops of a fresh process whose cache is a folder."""
    begin = time.perf_counter()
    command = [sys.executable, __file__, "--measured", use]
    environment = {**os.environ, "EXPRKIT_CACHE_DIR": folder}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    loops = result.pop("loops")
    return {
        "use": use,
        "wall_s": round(time.perf_counter() - begin, 2),
        "processor_s": round(result["processor_s"], 2),
        "compiled": len(loops),
        "loaded": result["loaded"],
        "compiling_s": round(sum(loops.values()), 2),
    }, loops


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--for", dest="uses", default=",".join(USES), help=f"of {', '.join(USES)} (all)")
    parser.add_argument("--loops", type=int, default=0, help="list so many loops of each use")
    parser.add_argument("--csv", type=Path, help="from a committed checkout alone")
    parser.add_argument("--measured", choices=USES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measured:
        print(json.dumps(measured(options.measured)))
        return
    if unknown := set(options.uses.split(",")) - set(USES):
        parser.error(f"--for: {', '.join(sorted(unknown))} is none of {', '.join(USES)}")
    from exprkit.study import records  # not in the measured process

    if options.csv:
        records.refuse_changes()
    rows = []
    print(" ".join(f"{column:>11}" for column in COLUMNS), flush=True)
    for use in options.uses.split(","):
        with tempfile.TemporaryDirectory() as folder:
            for cache in ("empty", "full"):
                row, loops = process(use, folder)
                rows.append({**row, "cache": cache})
                print(" ".join(f"{rows[-1][column]:>11}" for column in COLUMNS), flush=True)
                for name, seconds in sorted(loops.items(), key=lambda item: -item[1])[: options.loops]:
                    print(f"{seconds:10.2f} s  {name}"[:150])
    if options.csv:
        records.write_rows(options.csv, rows)


if __name__ == "__main__":
    main()
