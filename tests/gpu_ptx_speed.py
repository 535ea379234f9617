# ruff: noqa: B023, E501  a script of measurements
"""Times the PTX backend beside the interpreter: ``python tests/gpu_ptx_speed.py --out data/results``.

Compares a sample of the results first, then prints a line a measurement and writes ``h200_ptx.csv``
into the folder.  Less than two minutes on 16 cores; ``--only check,thesis`` runs some parts.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
import traceback
from pathlib import Path

import cupy
import numpy as np
import timing

import exprkit as ek
from exprkit.backends.interpreter import engine as interpreter
from exprkit.backends.transpiler import assembler
from exprkit.backends.transpiler import engine as transpiler
from exprkit.backends.transpiler.structures import find_structures
from exprkit.expressions import generate

ROOT = Path(__file__).resolve().parent.parent
TABLE = timing.Table(width=72)
report, microseconds = TABLE.report, timing.microseconds
N = 9_880
POINTS = (362, 10_860, 108_600)
F4 = np.dtype("float32")


def lines():
    return (ROOT / "data" / "esr_sample.txt").read_text().split("\n")[:-1]


def thesis(n=N):
    return ek.parse((lines() * (n // len(lines()) + 1))[:n])


def trees(operators):
    return generate.random(N, n_tokens=(10, 50), operators=operators, n_vars=10, n_params=2, seed=1)


def data(n_points, n_vars=2):
    return np.random.default_rng(5).uniform(0.5, 4.0, (n_points, n_vars)).astype(F4)


def params_of(pop, n_sets=1):
    return np.random.default_rng(3).uniform(-2, 2, (n_sets, len(pop), pop.max_params)).astype(F4)


def target(n_points):
    return cupy.asarray(np.random.default_rng(1).normal(size=n_points).astype(F4))


def engine(module, pop, X, precision="fast", **options):
    return module.Engine(pop, X, precision=precision, dtype=F4, **options)


def wait():
    cupy.cuda.runtime.deviceSynchronize()


def host_microseconds(call, repeats=30):
    """Median time until a call returns, the device idle before it."""
    times = []
    for _ in range(repeats):
        wait()
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e6)
    wait()
    return float(np.median(times))


# ── results ──────────────────────────────────────────────────────────────────────────


def check():
    """Against the interpreter: the same bits in ieee, close in fast; a sample of all that is timed."""
    for name, pop, n_vars in (("thesis", thesis(494), 2), ("trees", trees("thesis")[:200], 10)):
        X, P, n_points = data(10_860, n_vars), params_of(pop), 10_860
        for precision in ("ieee", "fast") if name == "thesis" else ("fast",):
            out, wanted = (cupy.full((1, len(pop), n_points), 7, F4) for _ in range(2))
            made = engine(transpiler, pop, X, precision, structures_per_module=24)
            made.evaluate(P, out)
            plain = engine(interpreter, pop, X, precision)
            plain.evaluate(P, wanted)
            same = (out == wanted) | (cupy.isnan(out) & cupy.isnan(wanted))
            close = same | (cupy.abs(out - wanted) <= 2e-3 * cupy.abs(wanted))
            y = target(n_points)
            sums, others = made.loss_sums(P, y, None, "square"), plain.loss_sums(P, y, None, "square")
            finite = np.isfinite(others) & np.isfinite(sums)
            off = float(np.max(np.abs(sums[finite] - others[finite]) / np.abs(others[finite])))
            report(
                f"check {name} {precision}: equal to the interpreter",
                float(same.mean()),
                "of results",
                "1" if precision == "ieee" else "",
                f"close {float(close.mean()):.6f}, sums differ by {off:.2g} at most",
            )


# ── one step ─────────────────────────────────────────────────────────────────────────


def step(name, pop, n_points, backends=("ptx", "cuda"), precision="fast", matrix=True, **options):
    """One step of predictions and one of errors; all launches of a call count."""
    X, P, y = cupy.asarray(data(n_points, pop.n_vars)), cupy.asarray(params_of(pop)), target(n_points)
    found, firsts = {}, {}
    for backend in backends:
        given = {"cache": False, **options} if backend == "ptx" else {}
        made = engine({"ptx": transpiler, "cuda": interpreter}[backend], pop, X, precision, **given)
        start = time.perf_counter()
        if matrix:
            out = cupy.empty((1, len(pop), n_points), F4)
            made.evaluate(P, out)
            wait()
            first = time.perf_counter() - start
            us = microseconds(lambda: made.evaluate(P, out))
            host = host_microseconds(lambda: made.evaluate(P, out))
            note = f"{out.nbytes / us / 1e6:.2f} TB/s, host {host:.0f} us, first {first:.3f} s"
            report(f"{name} x {n_points} {precision} {backend} predictions {options or ''}", us, "us", "", note)
            del out
        start = time.perf_counter()
        made.loss_sums(P, y, None, "square")
        wait()
        first = time.perf_counter() - start
        us = microseconds(lambda: made.loss_sums(P, y, None, "square"))
        note = f"{len(pop.kinds) * n_points / us / 1e6:.2f}e12 nodes/s, first {first:.3f} s"
        if backend == "ptx":
            note += ", " + registers(made)
        report(f"{name} x {n_points} {precision} {backend} fused error {options or ''}", us, "us", "", note)
        found[backend], firsts[backend] = us, first
    if len(found) == 2:
        report(
            f"{name} x {n_points} {precision} fused error, interpreter / transpiler",
            found["cuda"] / found["ptx"],
            "times",
        )
        saved = (found["cuda"] - found["ptx"]) / 1e6
        steps = firsts["ptx"] / saved if saved > 0 else np.inf
        report(
            f"{name} x {n_points} {precision} fused error, the transpiler wins from",
            steps,
            "steps",
            "",
            f"{steps * n_points:.2g} steps x points; first {firsts['ptx']:.3f} s, a step saves {saved * 1e6:.0f} us",
        )


def registers(made):
    kernels = made.kernels()
    most = max(kernel["registers"] for kernel in kernels)
    return f"{len(made.structures)} structures, {len(kernels)} kernels, {most} registers, local {max(k['local_bytes'] for k in kernels)}"


def thesis_steps():
    for n_points in POINTS:
        step("thesis", thesis(), n_points)
    step("thesis", thesis(), 10_860, precision="ieee")


def compiling():
    """What a structure takes to compile, on all cores and on one; of those that share no code a part."""
    many, n_points = generate.exhaustive(9, limit=350_000), 362
    some = generate.exhaustive(6)
    for pop, threads, options in (
        (many, None, {}), (some, None, {}), (some, 1, {}), (some, None, {"share_code": False}), (some[:600], 1, {"share_code": False}),
    ):  # fmt: skip
        made = engine(transpiler, pop, data(n_points, pop.n_vars), cache=False, threads=threads, **options)
        made.evaluate(params_of(pop), cupy.empty((1, len(pop), n_points), F4))
        wait()
        different = len(find_structures(made.program))
        ms = made.seconds["compile"] / different * 1e3
        cores = "one core" if threads else "all cores"
        what = "" if options.get("share_code", True) else ", no code shared"
        report(
            f"compiling, a structure of {different}, {cores}{what}",
            ms,
            "ms",
            "" if what else "0.4" if threads else "0.03",
            f"{len(made.structures)} compiled in {made.seconds['compile']:.2f} s",
        )


def other_steps():
    distinct = generate.exhaustive(6)
    for n_points in (362, 10_860, 108_600):
        step("exhaustive", distinct, n_points)
    step("exhaustive", distinct, 108_600, ["ptx"], matrix=False, share_code=False)
    for operators in ("gp", "thesis"):
        step(f"trees {operators}", trees(operators), 10_860, matrix=False)


def many():
    """Benchmark 1 with about 250,000 different structures, cold."""
    pop, n_points = generate.exhaustive(9, limit=350_000), 362
    X, out = data(n_points, pop.n_vars), cupy.empty((1, len(pop), n_points), F4)
    P = params_of(pop)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    made = engine(transpiler, pop, X, cache=False)
    for _ in range(100):
        made.evaluate(P, out)
    wait()
    seconds = time.perf_counter() - start
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e6
    spent = ", ".join(f"{name} {value:.2f}" for name, value in made.seconds.items())
    code = sum(kernel["code_bytes"] for kernel in made.kernels()) / 1e6
    different = len(find_structures(made.program))
    report(
        f"{different} structures x {n_points}, 100 steps, cold",
        seconds,
        "s",
        "20",
        f"{len(made.structures)} compiled; {spent} s; host +{grown:.2f} GB, code {code:.0f} MB on the device",
    )
    start = time.perf_counter()
    for _ in range(10):
        made.evaluate(P, out)
    wait()
    report(f"{different} structures x {n_points}, a step", (time.perf_counter() - start) * 1e5, "us")
    wanted = cupy.empty_like(out)
    engine(interpreter, pop, X).evaluate(P, wanted)
    close = (
        (cupy.abs(out - wanted) <= 2e-3 * cupy.abs(wanted)) | (out == wanted) | (cupy.isnan(out) & cupy.isnan(wanted))
    )
    report("check of these: close to the interpreter", float(close.mean()), "of results")


PARTS = {
    "check": check, "thesis": thesis_steps, "compiling": compiling, "other": other_steps,
    "many": many,
}  # fmt: skip


def main():
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--out", type=timing.to_record, help="folder for h200_ptx.csv")
    given.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas: " + ", ".join(PARTS))
    chosen = given.parse_args()
    for name in chosen.only.split(","):
        start = time.perf_counter()
        try:
            PARTS[name]()
        except Exception:
            traceback.print_exc()
        print(f"-- {name} {time.perf_counter() - start:.1f} s", flush=True)
        if chosen.out:
            TABLE.write(chosen.out / "h200_ptx.csv")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        assembler.disk_cache.folder = lambda: Path(folder)  # a cache of its own: cold means cold
        main()
