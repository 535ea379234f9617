# ruff: noqa: B023, E501, E741  a script of measurements
"""Checks and times the CUDA backend on the device at hand: ``python tests/gpu_check.py [results.csv]``.

Prints a table; each line is a measurement beside the floor it stands against.
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
from exprkit import generate, ops
from exprkit.backends import card, cuda
from exprkit.backends import numpy as definition
from exprkit.study.agreement import disagreement

ROOT = Path(__file__).resolve().parent.parent
ROWS: list[dict[str, object]] = []
N = 9_880


def report(name, value, unit, target="", note=""):
    ROWS.append({"what": name, "value": value, "unit": unit, "target": target, "note": note})
    print(f"{name:66} {value:12.4g} {unit:14} {target:>12} {note}", flush=True)


def thesis(n=N):
    lines = (ROOT / "data" / "esr_sample.txt").read_text().split("\n")[:-1]
    return ek.parse((lines * (n // len(lines) + 1))[:n])


def rough_pipe(n_points):
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


# ── correctness ──────────────────────────────────────────────────────────────────────


def operators_agree():
    random = np.random.default_rng(0)
    for dtype in ("float32", "float64"):
        for precision in ("ieee", "fast"):
            bad = []
            for row in ops.OPERATORS:
                if row.arity == 1:
                    texts = [f"{row.name}(x1)", f"{row.name}(x1 + 0)"]
                else:
                    texts = [f"{row.name}({a}, {b})" for a in ("x1", "x1 + 0", "p1") for b in ("x2", "x2 + 0", "p1")]
                pop = ek.parse(texts)
                X = np.column_stack([random.uniform(*row.domain[k % row.arity], 1000) for k in (0, 1)]).astype(dtype)
                P = random.uniform(*row.domain[0], (1, len(pop), pop.max_params)).astype(dtype)
                out = np.full((1, len(pop), 1000), 7, dtype)
                engine(pop, X, precision).evaluate(P, out)
                wanted = np.empty((1, len(pop), 1000))
                definition.Engine(pop, X, precision=precision, dtype=np.dtype(dtype)).evaluate(P, wanted)
                with np.errstate(all="ignore"):
                    scale = np.spacing(np.abs(wanted).astype(dtype)) if precision == "ieee" else np.spacing(
                        np.maximum(np.abs(wanted), 1).astype(dtype))
                    error = np.abs(out - wanted) / scale
                    finite = np.isfinite(wanted) & np.isfinite(scale) & (np.abs(wanted) > 1e-37)
                worst = float(np.max(error[finite], initial=0))
                strange = int((np.isnan(out) != np.isnan(wanted))[:].sum())
                allowed = (row.cuda_fast_ulp or row.ulp[0]) if precision == "fast" else row.ulp[dtype == "float64"]
                if dtype == "float64":
                    allowed = row.ulp[1] + 4
                if worst > allowed + 0.5 or strange:
                    bad.append(f"{row.name}:{worst:.3g}/{allowed}({strange} nan)")
            print(f"operators {dtype} {precision}: {len(bad)} outside tolerance {' '.join(bad)}", flush=True)


def populations_agree():
    pop = ek.parse((ROOT / "data" / "esr_sample.txt").read_text().split("\n")[:-1])
    trees = generate.random(300, n_tokens=(1, 80), n_vars=5, n_params=3, seed=4)
    for name, p in (("thesis", pop), ("trees", trees)):
        for dtype in (np.float32, np.float64):
            X = np.random.default_rng(1).uniform(0.2, 3, (203, 5)).astype(dtype)
            P = params_of(p, dtype=dtype)
            for precision in ("ieee", "fast"):
                out = np.full((1, len(p), 203), 7, dtype)
                engine(p, X, precision).evaluate(P, out)
                share = disagreement(p, X, P[0], out[0], dtype=dtype, precision=precision)
                worst = int(np.argmax(share))
                print(f"population {name} {np.dtype(dtype)} {precision}: {(share > 0.01).sum()} of {len(p)} disagree; "
                      f"worst {share[worst]:.2f} {str(p[worst])[:60]}", flush=True)


def same_bits():
    pop, trees = thesis(997), generate.random(500, n_tokens=(5, 60), n_vars=6, seed=9)
    for p in (pop, trees):
        for n_points in (1, 127, 129, 362, 513, 4001):
            X = np.random.default_rng(2).uniform(0.2, 3, (n_points, 6)).astype(np.float32)
            P, y = params_of(p, 2), np.random.default_rng(3).normal(size=n_points).astype(np.float32)
            seen, losses, differ = None, None, []
            for block, points, reduction in ((128, None, "shuffle"), (64, 4, "shuffle"), (256, 8, "shared"),
                                             (512, 12, "shuffle"), (32, 16, "shared")):
                e = engine(p, X, "ieee", block_size=block, points_per_thread=points, reduction=reduction)
                out = np.full((2, len(p), n_points), 7, np.float32)
                e.evaluate(P, out)
                loss = e.loss_sums(P, y, None, "square")
                if seen is None:
                    seen, losses = out.view(np.uint32), loss.view(np.uint64)
                if (seen != out.view(np.uint32)).any() or (losses != loss.view(np.uint64)).any():
                    differ.append((block, points, reduction, int((seen != out.view(np.uint32)).sum()),
                                   int((losses != loss.view(np.uint64)).sum())))
            with np.errstate(all="ignore"):
                wanted = np.sum((seen.view(np.float32).astype(np.float64) - y) ** 2, axis=-1)
                far = np.abs(losses.view(np.float64) - wanted) > 1e-5 * np.abs(wanted)
                far &= wanted < 1e30
            if differ or far.any():
                print(f"same bits: {n_points} points: {differ} loss off: {int(far.sum())}", flush=True)
    print("same bits: done", flush=True)


def other_ways():
    p = thesis(997)
    X = rough_pipe(4001)
    P, y = params_of(p, 1), np.random.default_rng(3).normal(size=4001).astype(np.float32)
    wanted = np.empty((1, 997, 4001), np.float32)
    plain = engine(p, X)
    plain.evaluate(P, wanted)
    on_device = cupy.empty_like(cupy.asarray(wanted))
    engine(p, cupy.asarray(X)).evaluate(cupy.asarray(P), on_device)
    print("device arrays equal:", bool((on_device.get().view(np.uint32) == wanted.view(np.uint32)).all()))
    cuda.CHUNK_BYTES = 100_000
    out = np.full_like(wanted, 7)
    plain.evaluate(P, out)
    cuda.CHUNK_BYTES = 64 << 20
    print("small chunks equal:", bool((out.view(np.uint32) == wanted.view(np.uint32)).all()))
    base = np.full_like(wanted, 7)
    engine(p, X, dispatch="per-expression").evaluate(P, base)
    print("per-expression close:", float(np.isclose(base, wanted, rtol=1e-3, atol=1e-3, equal_nan=True).mean()))
    counts = np.zeros((1, 997, 2), np.int64)
    plain.evaluate(P, out, counts)
    right = np.stack([np.isnan(out).sum(-1), np.isinf(out).sum(-1)], axis=-1)
    print("counts equal:", bool((counts == right).all()), counts.sum(axis=(0, 1)))
    w = (np.random.default_rng(0).random(4001) > 0.5).astype(np.float32)
    weighted = plain.loss_sums(P, y, w, "square")
    with np.errstate(all="ignore"):
        right = np.sum(np.where(w == 0, 0, w * (wanted.astype(np.float64) - y) ** 2), axis=-1)
        off = (np.abs(weighted - right) > 1e-5 * right) & (right < 1e30)
        print("weighted loss off:", int(off.sum()), "atomic off:", int((np.abs(
            engine(p, X, reduction="atomic").loss_sums(P, y, w, "square") - right) > 1e-5 * right)[right < 1e30].sum()))
    wide = generate.random(200, n_tokens=(5, 60), n_vars=1000, seed=9)
    Xw = np.random.default_rng(2).uniform(0.2, 3, (700, 1000)).astype(np.float32)
    Pw, ow = params_of(wide), np.empty((1, 200, 700), np.float32)
    e = engine(wide, Xw, "ieee")
    e.evaluate(Pw, ow)
    print("1000 variables disagree:", int((disagreement(wide, Xw, Pw[0], ow[0], dtype=np.float32) > 0.01).sum()),
          e._shape(200))
    long = ek.parse(["+".join(f"x{i % 3 + 1} * {i}.5" for i in range(9000)), "x1", "-".join(["sin(x2)"] * 9000)])
    Xl = np.random.default_rng(2).uniform(0.2, 3, (300, 3)).astype(np.float32)
    ol = np.empty((1, 3, 300), np.float32)
    engine(long, Xl, "ieee").evaluate(np.zeros((1, 3, 0), np.float32), ol)
    rl = np.empty_like(ol)
    definition.Engine(long, Xl, precision="ieee", dtype=np.dtype("f4")).evaluate(np.zeros((1, 3, 0), np.float32), rl)
    print("long programs: largest relative error", float(np.max(np.abs(ol - rl) / np.abs(rl))))


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
        X = rough_pipe(n_points)
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
    X, n_sets = rough_pipe(362), 100
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
        X = rough_pipe(n_points)
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


def kernels():
    device = card.current()
    print(device.name, device.architecture, device.multiprocessors, cupy.cuda.runtime.driverGetVersion(), cupy.__version__)
    from exprkit.precision import Precision

    for task in ("VALUES", "SQUARE"):
        for precision in ("fast", "ieee"):
            for real, vectors in (("float", 4), ("float", 3), ("float", 2), ("double", 4)):
                k = device.kernel("interpret", Precision(precision), REAL=real, VECTORS=vectors, TASK=task, BLOCK=128,
                                  REDUCTION="SHUFFLE", WEIGHTED=0, COUNTED=0, COLUMNS_SHARED=1)
                print(task, precision, real, vectors, "registers", k.registers, "local bytes", k.local_bytes,
                      "resident blocks of 128", k.resident(128, 16384), flush=True)


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
