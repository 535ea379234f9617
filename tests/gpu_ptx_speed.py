# ruff: noqa: B023, E501  a script of measurements
"""Times the PTX backend beside the interpreter: ``python tests/gpu_ptx_speed.py --out data/results``.

Compares a sample of the results first, then prints a line a measurement and writes ``h200_ptx.csv``
into the folder.  About a minute on 16 cores; ``--only check,thesis`` runs some parts.
"""

from __future__ import annotations

import argparse
import csv
import resource
import tempfile
import time
import traceback
from pathlib import Path

import cupy
import numpy as np

import exprkit as ek
from exprkit import generate
from exprkit.backends import cuda, ptx
from exprkit.transpiler import link, program

ROOT = Path(__file__).resolve().parent.parent
ROWS: list[dict[str, object]] = []
N = 9_880
POINTS = (362, 10_860, 108_600)
F4 = np.dtype("float32")


def report(name, value, unit, target="", note=""):
    ROWS.append({"what": name, "value": value, "unit": unit, "target": target, "note": note})
    print(f"{name:72} {value:12.5g} {unit:12} {target:>10} {note}", flush=True)


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


BUSY = cupy.zeros((2, 1 << 28), np.uint8)


def microseconds(call, repeats=20):
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
            made = engine(ptx, pop, X, precision, structures_per_module=24)
            made.evaluate(P, out)
            plain = engine(cuda, pop, X, precision)
            plain.evaluate(P, wanted)
            same = (out == wanted) | (cupy.isnan(out) & cupy.isnan(wanted))
            close = same | (cupy.abs(out - wanted) <= 2e-3 * cupy.abs(wanted))
            y = target(n_points)
            sums, others = made.loss_sums(P, y, None, "square"), plain.loss_sums(P, y, None, "square")
            finite = np.isfinite(others) & np.isfinite(sums)
            off = float(np.max(np.abs(sums[finite] - others[finite]) / np.abs(others[finite])))
            report(f"check {name} {precision}: equal to the interpreter", float(same.mean()), "of results",
                   "1" if precision == "ieee" else "", f"close {float(close.mean()):.6f}, sums differ by {off:.2g} at most")


STORE = """
extern "C" __global__ void store(float4 *out, long n)
{
    for (long i = blockIdx.x * long(blockDim.x) + threadIdx.x; i < n; i += long(gridDim.x) * blockDim.x)
        __stcs(out + i, make_float4(i, i, i, i));
}
"""


def copy_rate():
    a = cupy.random.random(1 << 28, dtype=np.float32)
    b = cupy.empty_like(a)
    report("copy on the device, read plus written", 2 * a.nbytes / microseconds(lambda: cupy.copyto(b, a), 8) / 1e6, "TB/s")
    zero = microseconds(lambda: cupy.cuda.runtime.memsetAsync(b.data.ptr, 0, b.nbytes, cupy.cuda.get_current_stream().ptr), 8)
    report("set to zero on the device", b.nbytes / zero / 1e6, "TB/s")
    store = cupy.RawKernel(STORE, "store")
    for threads, blocks in ((256, 1056), (256, 8448), (1024, 264)):
        us = microseconds(lambda: store((blocks,), (threads,), (b, np.int64(b.size // 4))), 8)
        report(f"stores alone, {blocks} blocks of {threads}", b.nbytes / us / 1e6, "TB/s")


# ── one step ─────────────────────────────────────────────────────────────────────────


def step(name, pop, n_points, backends=("ptx", "cuda"), precision="fast", matrix=True, **options):
    """One step of predictions and one of errors; all launches of a call count."""
    X, P, y = cupy.asarray(data(n_points, pop.n_vars)), cupy.asarray(params_of(pop)), target(n_points)
    found = {}
    for backend in backends:
        made = engine({"ptx": ptx, "cuda": cuda}[backend], pop, X, precision, **(options if backend == "ptx" else {}))
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
        found[backend] = us
    if len(found) == 2:
        report(f"{name} x {n_points} {precision} fused error, interpreter / transpiler", found["cuda"] / found["ptx"], "times")


def registers(made):
    kernels = made.kernels()
    most = max(kernel["registers"] for kernel in kernels)
    return f"{len(made.found)} structures, {len(kernels)} kernels, {most} registers, local {max(k['local_bytes'] for k in kernels)}"


def thesis_steps():
    for n_points in POINTS:
        step("thesis", thesis(), n_points)
    step("thesis", thesis(), 10_860, precision="ieee")


def layouts():
    """Other ways to lay out the code of predictions: constants of ``transpiler.program`` and ``backends.ptx``."""
    usual = program.IN_ORDER, program.OF_A_MODULE, ptx.VALUES_TURNS
    try:
        for in_order, of_a_module, turns, most in (
            (False, 120, 2, 4), (False, 1000, 2, 4), (True, 1000, 2, 4), (True, 1000, 4, 2), (True, 120, 2, 2),
        ):  # fmt: skip
            program.IN_ORDER, program.OF_A_MODULE, ptx.VALUES_TURNS = in_order, of_a_module, turns
            name = f"IN_ORDER {in_order}, OF_A_MODULE {of_a_module}, VALUES_TURNS {turns}, a bundle of {most}"
            for n_points in (108_600, 10_860):
                made = engine(ptx, thesis(), cupy.asarray(data(n_points)), structures_per_bundle=most)
                P, out = cupy.asarray(params_of(made.pop)), cupy.empty((1, N, n_points), F4)
                us = microseconds(lambda: made.evaluate(P, out), 10)
                report(f"predictions x {n_points}: {name}", us, "us", "", f"{out.nbytes / us / 1e6:.2f} TB/s")
    finally:
        program.IN_ORDER, program.OF_A_MODULE, ptx.VALUES_TURNS = usual


def other_steps():
    distinct = generate.exhaustive(6)
    step("exhaustive", distinct, 10_860, matrix=False)
    for operators in ("gp", "thesis"):
        step(f"trees {operators}", trees(operators), 10_860, matrix=False)


def per_expression():
    """The thesis's way: a kernel and a launch for each expression, compiled ahead."""
    pop = thesis()
    X, P, out = data(10_860), cupy.asarray(params_of(pop)), cupy.empty((1, N, 10_860), F4)
    made = engine(ptx, pop, X, dispatch="per-expression")
    made.evaluate(P, out)
    wait()
    start = time.perf_counter()
    for _ in range(3):
        made.evaluate(P, out)
    wait()
    report("thesis x 10860 fast ptx per-expression, a step", (time.perf_counter() - start) / 3 * 1e6, "us")


# ── end to end ───────────────────────────────────────────────────────────────────────


def run(texts, n_points, n_steps, backend, **options):
    """Seconds of parse, prepare, the first step, and the others with the download."""
    import cupyx

    X = data(n_points)
    host = cupyx.empty_pinned((len(texts), n_points), np.float32)
    device = cupy.empty((len(texts), n_points), np.float32)
    params = np.random.default_rng(1).uniform(-2, 2, (n_steps, len(texts), 2)).astype(F4)
    wait()
    marks = [time.perf_counter()]
    pop = ek.parse(texts)
    marks.append(time.perf_counter())
    ev = ek.Evaluator(pop, X, backend, "fast", **options)
    marks.append(time.perf_counter())
    ev.evaluate(params[0][:, : pop.max_params], out=device)
    wait()
    marks.append(time.perf_counter())
    for s in range(1, n_steps):
        ev.evaluate(params[s][:, : pop.max_params], out=device)
    device.get(out=host)
    wait()
    marks.append(time.perf_counter())
    return np.diff(marks)


def end_to_end():
    """The thesis's protocol: parse, prepare, 100 steps with parameters from the host, the last result downloaded."""
    ours, everything = lines(), {}
    texts = (ours * 41)[:10_000]
    different = [str(e) for e in generate.exhaustive(6)[:10_000]]
    for name, texts_of, n_points in (
        ("benchmark 3", texts, 10_860), ("benchmark 2", texts, 362),
        ("10,000 different", different, 10_860), ("10,000 different", different, 362),
    ):  # fmt: skip
        for what, options in (("cold", {"cache": False}), ("warm", {})):
            samples = []
            for k in range(4 if what == "warm" else 3):
                link.forget()  # what the process itself keeps
                samples.append(run(texts_of, n_points, 100, "ptx", **options))
                if what == "warm" and k == 0:
                    samples.pop()  # fills the cache on disk
            parts = np.median(samples, axis=0)
            everything[name, n_points, what] = parts
            note = "parse {:.1f}, prepare {:.1f}, first step {:.1f}, 99 steps and download {:.1f} ms".format(*parts * 1e3)
            report(f"{name} x {n_points}, {what}", parts.sum() * 1e3, "ms", "", note)
        plain = np.median([run(texts_of, n_points, 100, "cuda") for _ in range(4)][1:], axis=0)
        report(f"{name} x {n_points}, interpreter", plain.sum() * 1e3, "ms")
        cold = everything[name, n_points, "cold"]
        gain = (plain[3] - cold[3]) / 99
        steps = (cold[:3].sum() - plain[:3].sum()) / gain if gain > 0 else np.inf
        report(f"{name} x {n_points}: steps from which the transpiler wins, cold", float(steps), "steps", "",
               f"{steps * n_points:.3g} steps x points; a step {plain[3] / 99 * 1e6:.0f} and {cold[3] / 99 * 1e6:.0f} us")


def many():
    """Benchmark 1 with about 250,000 different structures, cold."""
    pop, n_points = generate.exhaustive(9, limit=350_000), 362
    X, out = data(n_points, pop.n_vars), cupy.empty((1, len(pop), n_points), F4)
    P = params_of(pop)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    made = engine(ptx, pop, X, cache=False)
    for _ in range(100):
        made.evaluate(P, out)
    wait()
    seconds = time.perf_counter() - start
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e6
    spent = ", ".join(f"{name} {value:.2f}" for name, value in made.seconds.items())
    code = sum(kernel["code_bytes"] for kernel in made.kernels()) / 1e6
    report(f"{len(made.found)} structures x {n_points}, 100 steps, cold", seconds, "s", "20",
           f"{spent} s; host +{grown:.2f} GB, code {code:.0f} MB on the device")
    start = time.perf_counter()
    for _ in range(10):
        made.evaluate(P, out)
    wait()
    report(f"{len(made.found)} structures x {n_points}, a step", (time.perf_counter() - start) * 1e5, "us")
    wanted = cupy.empty_like(out)
    engine(cuda, pop, X).evaluate(P, wanted)
    close = (cupy.abs(out - wanted) <= 2e-3 * cupy.abs(wanted)) | (out == wanted) | (cupy.isnan(out) & cupy.isnan(wanted))
    report("check of these: close to the interpreter", float(close.mean()), "of results")


PARTS = {
    "check": check, "copy": copy_rate, "thesis": thesis_steps, "layouts": layouts, "other": other_steps,
    "per-expression": per_expression, "end": end_to_end, "many": many,
}  # fmt: skip


def main():
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--out", type=Path, help="folder for h200_ptx.csv")
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
            write(chosen.out / "h200_ptx.csv")


def write(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]) if ROWS else ["what"])
        writer.writeheader()
        writer.writerows(ROWS)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        link.objects.folder = lambda: Path(folder)  # a cache of its own: cold means cold
        main()
