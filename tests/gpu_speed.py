# ruff: noqa: B023, E501, E741  a script of measurements
"""Times the CUDA backend on the device at hand: ``PYTHONPATH=. python tests/gpu_speed.py [results.csv]``.

Prints a table, a line a measurement, with the floor it is measured against: of predictions
the time to write them at the rate of a memset, of losses one instruction for each word and
point.  Only the two large shapes compare results; the rest is ``pytest -m gpu``, to be run before on the
same state of the code.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import cupy
import numpy as np
import timing

import exprkit as ek
from exprkit.backends.gpu import device as gpu_device
from exprkit.backends.gpu import nvrtc, opcodes
from exprkit.backends.interpreter import engine as interpreter
from exprkit.backends.precision import Precision
from exprkit.expressions import generate

ROOT = Path(__file__).resolve().parent.parent
TABLE = timing.Table()
report, microseconds = TABLE.report, timing.microseconds
N = 9_880


COPY = [4.2e12]
RATE = [4.5e12]  # bytes a second that a memset writes


def writing(n_bytes):
    """Microseconds that writing so much takes at least."""
    return n_bytes / RATE[0] * 1e6


def issuing(engine):
    """Microseconds for one instruction per word and point."""
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    lanes = properties["multiProcessorCount"] * 128 * 1980e6
    return len(engine.programs.instructions) * engine.n_points / lanes * 1e6


def thesis(n=N):
    lines = (ROOT / "data" / "esr_sample.txt").read_text().split("\n")[:-1]
    return ek.parse((lines * (n // len(lines) + 1))[:n])


def uniform_points(n_points):
    X = np.random.default_rng(5).uniform(0.5, 4.0, (n_points, 2)).astype(np.float32)
    return X


def params_of(pop, n_sets=1, seed=3, dtype=np.float32):
    return np.random.default_rng(seed).uniform(-2, 2, (n_sets, len(pop), pop.max_params)).astype(dtype)


def engine(pop, X, precision="fast", **options):
    return interpreter.Engine(pop, X, precision=precision, dtype=X.dtype, **options)


# ── speed ────────────────────────────────────────────────────────────────────────────


def copy_rate():
    a = cupy.random.random(1 << 28, dtype=np.float32)
    b = cupy.empty_like(a)
    rate = 2 * a.nbytes / microseconds(lambda: cupy.copyto(b, a), 10) * 1e6
    report("copy on the device, read plus written", rate / 1e12, "TB/s")
    COPY[0] = rate
    place, stream = b.data.ptr, cupy.cuda.get_current_stream
    RATE[0] = b.nbytes / microseconds(lambda: cupy.cuda.runtime.memsetAsync(place, 0, b.nbytes, stream().ptr), 10) * 1e6
    report("memset on the device", RATE[0] / 1e12, "TB/s")
    return rate


def thesis_speed(variants):
    pop = thesis()
    tokens = len(pop.kinds)
    print("tokens per expression", tokens / N, flush=True)
    for n_points in (362, 10_860, 108_600):
        X = uniform_points(n_points)
        P = cupy.asarray(params_of(pop))
        y = cupy.asarray(np.random.default_rng(1).normal(size=n_points).astype(np.float32))
        out = cupy.empty((1, N, n_points), np.float32)
        for precision, options in variants:
            e = engine(pop, cupy.asarray(X), precision, **options)
            name = f"{n_points} points {precision} {options}"
            values = microseconds(lambda e=e: e.evaluate(P, out))
            bare = microseconds(lambda e=e: e._values(slice(0, N), out[0], None))
            target = {
                (10_860, "fast"): "110",
                (108_600, "fast"): f"{writing(out.nbytes) * RATE[0] / COPY[0] / 0.95:.0f}",
            }
            report(
                f"predictions {name}",
                values,
                "us",
                target.get((n_points, precision), ""),
                f"interpret {bare:.1f} us, {out.nbytes / values / 1e6:.2f} TB/s",
                writing(out.nbytes),
            )
            loss = microseconds(lambda e=e: e.loss_sums(P, y, None, "square"))
            sums, chunks = cupy.empty(N), -(-n_points // 128)
            partials = cupy.empty((N, chunks), np.float32)
            macros, shape = {"TASK": "SQUARE", "WEIGHTED": 0, "COUNTED": 0}, e._shape(N)
            launch = e._interpreting(
                slice(0, N), (0, n_points), False, macros, partials=partials, n_segments=chunks, first_segment=0
            )
            at = {"target": y.data.ptr, "weights": 0, "sums": sums.data.ptr, "nonfinite": 0}
            bare = microseconds(lambda l=launch, at=at: l(**at))
            target = {(10_860, "fast"): "80", (108_600, "fast"): f"{tokens * n_points / 8e6:.0f}"}
            report(
                f"fused error {name}",
                loss,
                "us",
                target.get((n_points, precision), ""),
                f"interpret {bare:.1f} us, {tokens * n_points / loss / 1e6:.2f}e12 nodes/s, {shape.vectors} vectors",
                issuing(e),
            )


def trees_speed(variants):
    for operators in ("gp", "thesis"):
        pop = generate.random(N, n_tokens=(10, 50), operators=operators, n_vars=10, n_params=2, seed=1)
        tokens, n_points = len(pop.kinds), 10_860
        X = np.random.default_rng(5).uniform(0.5, 4.0, (n_points, 10)).astype(np.float32)
        P, y = (
            cupy.asarray(params_of(pop)),
            cupy.asarray(np.random.default_rng(1).normal(size=n_points).astype(np.float32)),
        )
        for precision, options in variants:
            e = engine(pop, cupy.asarray(X), precision, **options)
            loss = microseconds(lambda e=e: e.loss_sums(P, y, None, "square"), 10)
            report(
                f"trees {operators} of {tokens / N:.1f} tokens, fused error {precision} {options}",
                loss,
                "us",
                f"{tokens * n_points / 5e6:.0f}",
                f"{tokens * n_points / loss / 1e6:.2f}e12 nodes/s, {e._launcher.n_columns} columns, "
                f"{e.programs.n_slots} slots, {len(e.programs.instructions)} instructions, {e._shape(N)}",
                issuing(e),
            )
            if precision == "ieee" and not e.programs.code.heavy:
                e._powers = lambda programs: True
                e.using(None)
                whole = microseconds(lambda e=e: e.loss_sums(P, y, None, "square"), 10)
                report(f"the same with the code of all operators, {e.kernels()[0]['registers']} registers", whole, "us")


def sets_speed():
    pop = thesis()
    X, n_sets = uniform_points(362), 100
    P = params_of(pop, n_sets)
    e = engine(pop, cupy.asarray(X))
    out = cupy.empty((n_sets, N, 362), np.float32)
    on_device = cupy.asarray(P)
    report(
        "362 points, 100 sets in one call, a set",
        microseconds(lambda: e.evaluate(on_device, out), 10) / n_sets,
        "us",
        "5",
        "",
        writing(out.nbytes) / n_sets,
    )
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
    report(
        "362 points, 100 steps from the host, a step",
        (time.perf_counter() - start) / 1000 * 1e6,
        "us",
        "25",
        "",
        writing(one.nbytes),
    )


def to_the_host():
    """A step's matrix in page-locked memory, as it is and in 16 bits."""
    pop, X = thesis(), uniform_points(10_860)
    P = params_of(pop)[0]
    for backend in ("cuda", "ptx"):
        ev = ek.Evaluator(pop, X, backend, "fast")
        for dtype in ("float32", "float16"):
            ev.evaluate(P, dtype=dtype)
            out = ev.evaluate(P, dtype=dtype)  # page-locked from the second one on
            taken = microseconds(lambda: ev.evaluate(P, out=out), 10)
            report(
                f"10860 points, a matrix of {dtype} to the host, {backend}",
                taken / 1e3,
                "ms",
                "",
                f"{out.nbytes / taken / 1e3:.1f} GB/s",
                out.nbytes / 55e9 * 1e3,
            )


def many_points():
    """Many points; the results are compared with CuPy's."""
    pop = ek.parse(["x1 * p1 + 1", "sqrt(x1) - p1", "x1 ^ 2"])
    X = cupy.random.random((100_000_000, 1), dtype=np.float32)
    params = np.array([[2.0], [3.0], [0.0]], np.float32)
    ev = ek.Evaluator(pop, X, "cuda", "fast")
    out = cupy.empty((3, len(X)), np.float32)
    report(
        "3 expressions x 100,000,000 points",
        microseconds(lambda: ev.evaluate(params, out=out), 5),
        "us",
        "",
        "",
        writing(out.nbytes),
    )
    x = X[:, 0]
    for made, wanted in zip(out, (x * 2 + 1, cupy.sqrt(x) - 3, x * x), strict=True):
        assert bool(cupy.allclose(made, wanted, rtol=1e-5, atol=1e-5))
    step = ev.loss_of(x, "mse")
    loss = step(params).get()
    for made, wanted in zip(loss, (x + 1, cupy.sqrt(x) - 3 - x, x * x - x), strict=True):
        assert abs(made / float((wanted.astype(np.float64) ** 2).mean()) - 1) < 1e-5
    report("the same, mean squared error", microseconds(lambda: step(params), 5), "us")


def large_population():
    """Many expressions; equal ones must give equal bits."""
    lines = (ROOT / "data" / "esr_sample.txt").read_text().split("\n")[:-1]
    start = time.perf_counter()
    many = ek.parse((lines * (10_000_000 // len(lines) + 1))[:10_000_000])
    parsed = time.perf_counter()
    X = uniform_points(16)
    ev = ek.Evaluator(many, cupy.asarray(X), "cuda", "fast")
    prepared = time.perf_counter()
    params = np.tile(params_of(many[: len(lines)])[0], (10_000_000 // len(lines) + 1, 1))[:10_000_000]
    given, out = cupy.asarray(params), cupy.empty((10_000_000, 16), np.float32)
    report(
        "10,000,000 expressions x 16 points",
        microseconds(lambda: ev.evaluate(given, out=out), 5),
        "us",
        "",
        f"parse {parsed - start:.2f} s, prepare {prepared - parsed:.2f} s",
        writing(out.nbytes),
    )
    few = ek.Evaluator(many[: len(lines)], cupy.asarray(X), "cuda", "fast").evaluate(given[: len(lines)])
    whole = 10_000_000 // len(lines) * len(lines)
    same = out[:whole].reshape(-1, *few.shape).view(np.uint32) == few.view(np.uint32)
    assert bool(same.all())


# What an H200 launches here: (operators, task, VECTORS, BLOCK, WIDE, COLUMNS_SHARED); another device compiles as it goes.
KERNELS = [
    ("fast", "VALUES", 8, 640, 1, 1), ("fast", "VALUES", 3, 768, 0, 1), ("fast", "VALUES", 1, 768, 1, 1),
    ("fast", "VALUES", 8, 128, 1, 1), ("fast", "SQUARE", 8, 640, 0, 1), ("fast", "SQUARE", 8, 128, 0, 1),
    ("fast", "SQUARE", 3, 768, 0, 1), ("fast", "SQUARE", 4, 768, 0, 1), ("fast", "SQUARE", 4, 128, 0, 0),
    ("ieee", "VALUES", 4, 640, 1, 1), ("ieee", "VALUES", 3, 640, 0, 1), ("ieee", "SQUARE", 4, 640, 0, 1),
    ("ieee", "SQUARE", 3, 640, 0, 1), ("ieee", "SQUARE", 4, 128, 0, 0), ("fast",), ("ieee",),
]  # fmt: skip


def compile_kernel(architecture, operators, task=None, vectors=0, block=0, wide=0, columns_shared=0):
    """Put one kernel into the cache on disk."""
    chosen = {"REAL": "float", "LANES": 32, "SUPPORT": 1} if task is None else {
        "REAL": "float", "LANES": 32, "VECTORS": vectors, "BLOCK": block, "COLUMNS_SHARED": columns_shared,
        "WIDE": wide, "TASK": task, "COUNTED": 0,
        **({} if task == "VALUES" else {"WEIGHTED": 0}),
    }  # fmt: skip
    nvrtc.compiled(architecture, Precision(operators), opcodes.source(operators), **chosen)


def compile_ahead():
    with ProcessPoolExecutor(14, multiprocessing.get_context("spawn")) as pool:
        jobs = [pool.submit(compile_kernel, gpu_device.current().architecture, *kernel) for kernel in KERNELS]
        for job in jobs:
            job.result()


def main():
    variants = [("fast", {}), ("ieee", {})]
    for step in (
        compile_ahead,
        copy_rate,
        lambda: thesis_speed(variants),
        lambda: trees_speed(variants),
        sets_speed,
        to_the_host,
        many_points,
        large_population,
    ):
        start = time.perf_counter()
        try:
            step()
        except Exception:
            traceback.print_exc()
        print(f"-- {time.perf_counter() - start:.1f} s", flush=True)
    if len(sys.argv) > 1:
        TABLE.write(timing.to_record(sys.argv[1]))


if __name__ == "__main__":
    main()
