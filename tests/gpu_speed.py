# ruff: noqa: B023, E501, E741  a script of measurements
"""Times the CUDA backend on the device at hand: ``python tests/gpu_speed.py [results.csv]``.

Prints a table, a line a measurement.  It compares no results with the definition: that is
``pytest -m gpu``, to be run on the same state of the code before.
"""

from __future__ import annotations

import csv
import sys
import time
import traceback
from pathlib import Path

import cupy
import numpy as np

import exprkit as ek
from exprkit import generate
from exprkit.backends import cuda

ROOT = Path(__file__).resolve().parent.parent
ROWS: list[dict[str, object]] = []
N = 9_880


def report(name, value, unit, target="", note=""):
    ROWS.append({"what": name, "value": value, "unit": unit, "target": target, "note": note})
    print(f"{name:66} {value:12.4g} {unit:14} {target:>12} {note}", flush=True)


def thesis(n=N):
    lines = (ROOT / "data" / "esr_sample.txt").read_text().split("\n")[:-1]
    return ek.parse((lines * (n // len(lines) + 1))[:n])


def uniform_points(n_points):
    X = np.random.default_rng(5).uniform(0.5, 4.0, (n_points, 2)).astype(np.float32)
    return X


def params_of(pop, n_sets=1, seed=3, dtype=np.float32):
    return np.random.default_rng(seed).uniform(-2, 2, (n_sets, len(pop), pop.max_params)).astype(dtype)


def engine(pop, X, precision="fast", **options):
    return cuda.Engine(pop, X, precision=precision, dtype=X.dtype, **options)


def microseconds(call, repeats=30):
    """Median time of one call on the device, by events; the device is kept busy until everything is queued."""
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        for _ in range(3):
            cupy.copyto(BUSY[0], BUSY[1])
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, stop) * 1e3)
    return float(np.median(times))


BUSY = cupy.zeros((2, 1 << 28), np.uint8)


# ── speed ────────────────────────────────────────────────────────────────────────────


def copy_rate():
    a = cupy.random.random(1 << 28, dtype=np.float32)
    b = cupy.empty_like(a)
    rate = 2 * a.nbytes / microseconds(lambda: cupy.copyto(b, a), 10) * 1e6
    report("copy on the device, read plus written", rate / 1e12, "TB/s")
    fill = b.nbytes / microseconds(lambda: b.fill(1.5), 10) * 1e6
    report("fill on the device", fill / 1e12, "TB/s")
    return rate


def thesis_speed(variants):
    pop = thesis()
    tokens = len(pop.kinds)
    print("tokens an expression", tokens / N, flush=True)
    for n_points in (362, 10_860, 108_600):
        X = uniform_points(n_points)
        P = cupy.asarray(params_of(pop))
        y = cupy.asarray(np.random.default_rng(1).normal(size=n_points).astype(np.float32))
        out = cupy.empty((1, N, n_points), np.float32)
        for precision, options in variants:
            e = engine(pop, cupy.asarray(X), precision, **options)
            name = f"{n_points} points {precision} {options}"
            values = microseconds(lambda e=e: e.evaluate(P, out))
            bare = microseconds(lambda e=e: e._values(0, N, out[0], None))
            report(f"predictions {name}", values, "us", "", f"interpret {bare:.1f} us, {out.nbytes / values / 1e6:.2f} TB/s")
            loss = microseconds(lambda e=e: e.loss_sums(P, y, None, "square"))
            target = y
            sums, chunks = cupy.empty(N), -(-n_points // 128)
            partials = cupy.empty((N, chunks), np.float32)
            launch = e._interpreter(0, N, (0, n_points), TASK="SQUARE", WEIGHTED=0, COUNTED=0)
            shape = e._shape(N)
            bare = microseconds(lambda l=launch, t=target, s=sums, p=partials, c=chunks: l(
                target=t, weights=None, partials=p, sums=s, n_chunks=c, first_chunk=0, nonfinite=None))
            report(f"fused error {name}", loss, "us", "",
                   f"interpret {bare:.1f} us, {tokens * n_points / loss / 1e6:.2f}e12 nodes/s, {shape.vectors} vectors")


def trees_speed(variants):
    for operators in ("gp", "thesis"):
        pop = generate.random(N, n_tokens=(10, 50), operators=operators, n_vars=10, n_params=2, seed=1)
        tokens, n_points = len(pop.kinds), 10_860
        X = np.random.default_rng(5).uniform(0.5, 4.0, (n_points, 10)).astype(np.float32)
        P, y = cupy.asarray(params_of(pop)), cupy.asarray(np.random.default_rng(1).normal(size=n_points).astype(np.float32))
        for precision, options in variants:
            e = engine(pop, cupy.asarray(X), precision, **options)
            loss = microseconds(lambda e=e: e.loss_sums(P, y, None, "square"), 10)
            report(f"trees {operators} of {tokens / N:.1f} tokens, fused error {precision} {options}", loss, "us", "5e12",
                   f"{tokens * n_points / loss / 1e6:.2f}e12 nodes/s, {e._launcher.n_columns} columns, "
                   f"{e.programs.n_slots} slots, {len(e.programs.words)} words, {e._shape(N)}")


def sets_speed():
    pop = thesis()
    X, n_sets = uniform_points(362), 100
    P = params_of(pop, n_sets)
    e = engine(pop, cupy.asarray(X))
    out = cupy.empty((n_sets, N, 362), np.float32)
    on_device = cupy.asarray(P)
    report("362 points, 100 sets in one call, a set", microseconds(lambda: e.evaluate(on_device, out), 10) / n_sets, "us", "5")
    one = cupy.empty((1, N, 362), np.float32)

    def steps():
        for s in range(n_sets):
            e.evaluate(P[s : s + 1], one)

    steps()
    cupy.cuda.runtime.deviceSynchronize()
    start = time.perf_counter()
    for _ in range(10):
        steps()
    cupy.cuda.runtime.deviceSynchronize()
    report("362 points, 100 steps from the host, a step", (time.perf_counter() - start) / 1000 * 1e6, "us", "25")


def end_to_end():
    """The thesis's protocol: parse, upload, 100 steps with parameters from the host, the last result in pinned memory."""
    import cupyx

    lines = (ROOT / "data" / "esr_sample.txt").read_text().split("\n")[:-1]
    for number, n_exprs, n_points in ((3, 10_000, 10_860), (2, 10_000, 362), (1, 250_000, 362)):
        texts = (lines * (n_exprs // len(lines) + 1))[:n_exprs]
        X = uniform_points(n_points)
        params = np.random.default_rng(1).uniform(-2, 2, (100, n_exprs, 2)).astype(np.float32)
        host = cupyx.empty_pinned((n_exprs, n_points), np.float32)
        device = cupy.empty((n_exprs, n_points), np.float32)
        for dispatch, n_steps in (("interpreter", 100), ("per-expression", 100 if n_exprs < 20_000 else 2)):
            times = []
            for _ in range(7 if dispatch == "interpreter" else 2):
                host.fill(7)
                cupy.cuda.runtime.deviceSynchronize()
                marks = [time.perf_counter()]
                pop = ek.parse(texts)
                marks.append(time.perf_counter())
                ev = ek.Evaluator(pop, X, "cuda", "fast", dispatch=dispatch)
                marks.append(time.perf_counter())
                for step in range(n_steps):
                    ev.evaluate(params[step], out=device)
                device.get(out=host)
                cupy.cuda.runtime.deviceSynchronize()
                marks.append(time.perf_counter())
                times.append(np.diff(marks) * 1e3)
            median = np.median(np.array(times)[1:], axis=0)
            note = "parse {:.1f}, prepare {:.1f}, {} steps and download {:.1f} ms".format(*median[:2], n_steps, median[2])
            report(f"benchmark {number} {dispatch}", float(median.sum()), "ms", {3: "60", 1: "400"}.get(number, ""), note)


def main():
    variants = [("fast", {}), ("ieee", {})]
    for step in (copy_rate,
                 lambda: thesis_speed(variants), lambda: trees_speed(variants), sets_speed,
                 end_to_end):
        start = time.perf_counter()
        try:
            step()
        except Exception:
            traceback.print_exc()
        print(f"-- {time.perf_counter() - start:.1f} s", flush=True)
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w", newline="") as file:
            writer = csv.DictWriter(file, list(ROWS[0]))
            writer.writeheader()
            writer.writerows(ROWS)


if __name__ == "__main__":
    main()
