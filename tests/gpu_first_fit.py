"""How long the first fit on a GPU waits for the compiler, and whether kernels stayed what they were.

    python tests/gpu_first_fit.py --before before        # a folder that holds another version of ``exprkit``

Each version runs in processes of its own: once with an empty cache folder, for what a first fit compiles; then warm, in
turns, for the speed of fits by the operators that they use.  Prints seconds of the first fit and of its kernels, then
medians of warm fits and how many results differ in a bit from those of the other version.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
OPERATORS = {
    "all": None, "thesis": "thesis", "esr": "esr",
    "maths": ("add", "sub", "mul", "div", "exp", "log", "sin", "cos", "sqrt", "abs"),
    "pow, tanh, max": ("add", "sub", "mul", "div", "pow", "tanh", "max", "min"),
}  # fmt: skip
WORK = [  # operators, precision, type, points, expressions
    *((name, "fast", "float32", 362, 20_000) for name in OPERATORS),
    *((name, "ieee", "float32", 362, 20_000) for name in ("all", "esr", "maths")),
    ("esr", "fast", "float64", 362, 10_000), ("maths", "fast", "float64", 362, 10_000),
    ("maths", "fast", "float32", 10_860, 4_000), ("all", "ieee", "float32", 10_860, 4_000),
    ("all", "fast", "float32", 362, 500_000), ("thesis", "fast", "float32", 362, 500_000),
]  # fmt: skip


def population(name, n):
    from exprkit.expressions import generate

    chosen = {} if OPERATORS[name] is None else {"operators": OPERATORS[name]}
    return generate.random(n, n_vars=2, n_params=2, seed=3, **chosen)


def problem(precision, dtype, n_points):
    import exprkit as ek

    random = np.random.default_rng(5)
    X, y = random.uniform(0.5, 4.0, (n_points, 2)), random.normal(size=n_points)
    return ek.FitProblem(X, y, backend="cuda", precision=precision, dtype=dtype, max_iter=20)


def first(n):
    """The first fit of a process: the seconds it takes, and those of every kernel that it compiles."""
    import cupy

    from exprkit.backends.gpu import nvrtc

    pop, one = population("all", n), problem("fast", "float32", 362)
    made, build, lock = [], nvrtc.build, threading.Lock()

    def timed(architecture, settings, text, **chosen):
        begin = time.perf_counter()
        code = build(architecture, settings, text, **chosen)
        with lock:
            made.append((begin, time.perf_counter(), str(chosen.get("TASK", "")), chosen.get("REAL", "")))
        return code

    nvrtc.build = timed
    cupy.zeros(1)
    begin = time.perf_counter()
    one.fit(pop)
    seconds = time.perf_counter() - begin
    again = time.perf_counter()
    one.fit(population("all", n))
    again = time.perf_counter() - again
    fits = [(end - start) for start, end, task, _ in made if task in ("FIT", "NORMAL")]
    waited = max(end for _, end, *_ in made) - min(start for start, *_ in made)
    print(
        f"first fit of {n:,}: {seconds:.1f} s, the next {again:.2f} s; {len(made)} kernels compiled in {waited:.1f} s "
        f"from the first to the last, {len(fits)} of fits, together {sum(fits):.1f} s, the longest {max(fits):.1f} s",
        flush=True,
    )


def prepare(k):
    """Compile what a piece of work needs."""
    name, precision, dtype, n_points, n = WORK[k]
    problem(precision, dtype, n_points).fit(population(name, n))


def warm(out, repeats):
    """Medians of warm fits, and their results, into a file."""
    found = {}
    for k, (name, precision, dtype, n_points, n) in enumerate(WORK):
        one, pop, taken = problem(precision, dtype, n_points), population(name, n), []
        for _ in range(repeats + 2):
            begin = time.perf_counter()
            result = one.fit(pop)
            taken.append(time.perf_counter() - begin)
        found |= {f"ms {k}": statistics.median(taken[2:]) * 1e3, f"params {k}": result.params, f"loss {k}": result.loss}
    np.savez(out, **found)


def started(folder, cache, *arguments):
    env = {**os.environ, "PYTHONPATH": str(folder), "EXPRKIT_CACHE_DIR": str(cache)}
    command = [sys.executable, str(Path(__file__).resolve()), *map(str, arguments)]
    return subprocess.Popen(command, env=env, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(*arguments):
    return ended(started(*arguments))


def ended(process):
    out, err = process.communicate()
    if process.returncode:
        raise SystemExit(f"{process.args}: {out}\n{err}")
    return out.strip()


def differing(a, b):
    """How many rows differ in a bit, nan of any kind being the same."""
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return int((~same.reshape(len(a), -1).all(axis=1)).sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path)
    parser.add_argument("--first", type=int)
    parser.add_argument("--warm", type=Path)
    parser.add_argument("--prepare", type=int)
    parser.add_argument("--expressions", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only-first", action="store_true")
    parser.add_argument("--only-warm", action="store_true")
    asked = parser.parse_args()
    if asked.first:
        return first(asked.first)
    if asked.warm:
        return warm(asked.warm, asked.repeats)
    if asked.prepare is not None:
        return prepare(asked.prepare)
    versions = {"now": ROOT} | ({"before": asked.before.resolve()} if asked.before else {})
    with tempfile.TemporaryDirectory() as folder:
        caches = {name: Path(folder, name) for name in versions}
        for name, place in versions.items():
            caches[name].mkdir(mode=0o700)
            if not asked.only_warm:
                print(f"{name}: {run(place, caches[name], '--first', asked.expressions)}", flush=True)
        if asked.only_first:
            return None
        begin = time.perf_counter()
        ahead = [started(versions[name], caches[name], "--prepare", k) for k in range(len(WORK)) for name in versions]
        for process in ahead:
            ended(process)
        print(f"all kernels compiled, by {len(ahead)} processes: {time.perf_counter() - begin:.0f} s", flush=True)
        files = {name: [Path(folder, f"{name}{k}.npz") for k in range(2)] for name in versions}
        for k in range(2):
            for name, place in versions.items():
                begin = time.perf_counter()
                run(place, caches[name], "--warm", files[name][k], "--repeats", asked.repeats)
                print(f"{name}: warm run {k} took {time.perf_counter() - begin:.0f} s", flush=True)
        loaded = {name: [np.load(file) for file in some] for name, some in files.items()}
    head = f"{'operators':>16} {'precision':>9} {'type':>8} {'points':>7} | "
    print(head + " ".join(f"{name:>8}" for name in versions))
    for k, (name, precision, dtype, n_points, _) in enumerate(WORK):
        ms = {one: min(float(data[f"ms {k}"]) for data in some) for one, some in loaded.items()}
        line = f"{name:>16} {precision:>9} {dtype:>8} {n_points:>7,} | "
        line += " ".join(f"{one:8.2f}" for one in ms.values())
        if "before" in ms:
            a, b = (loaded[one][0] for one in ("now", "before"))
            other = [differing(a[f"{what} {k}"], b[f"{what} {k}"]) for what in ("params", "loss")]
            line += f" ms, {ms['now'] / ms['before'] - 1:+.1%}; other bits: params {other[0]}, loss {other[1]}"
        print(line)
    return None


if __name__ == "__main__":
    sys.exit(main())
