"""Fits on a GPU, timed and compared with SciPy's: ``PYTHONPATH=. python tests/gpu_fit_speed.py --out data/results``.

Prints a table and writes it as ``h200_fit.csv``, a line a measurement; ``h200_fit.md`` says how each is measured.
It compares losses with SciPy's; derivatives are checked by ``pytest -m gpu tests/test_cuda_fit.py``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
import traceback
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import timing
from timing import microseconds

import exprkit as ek
from exprkit.backends.gpu import opcodes
from exprkit.backends.interpreter import engine as interpreter
from exprkit.backends.objective import Options
from exprkit.backends.reference import engine as definition
from exprkit.expressions import generate
from exprkit.operators import ops

TABLE = timing.Table(width=58)
report = TABLE.report
N, SOME, STARTS = 9_880, 320, 10
OPTIONS = Options(max_iter=50)
F8 = np.dtype("float64")
SPECIAL = {"div": 1, "inv": 1, "exp2_product": 1, "powabs": 3}  # reciprocals, logarithms and powers of 2 in a fast word


def parametric(n=N, seed=1):
    """A sample of the expressions with parameters of the exhaustive set, as the thesis's data has them."""
    pop = generate.exhaustive(7, n_vars=2)
    some = np.flatnonzero(pop.n_params > 0)
    return pop[np.sort(np.random.default_rng(seed).choice(some, n, replace=False))]


def pipe(n_points, dtype=np.float32):
    points = ek.data.rough_pipe().repeat_to(n_points)
    return points.X.astype(dtype), points.y.astype(dtype)


def starts_of(pop, n_starts=1, seed=7):
    return np.random.default_rng(seed).uniform(-2, 2, (n_starts, len(pop), pop.max_params))


def engine(pop, X, precision="fast"):
    return interpreter.Engine(pop, X, precision=precision, dtype=X.dtype)


def fit_launches(of, starts, y):
    """A call that starts a fit's launches, and the arrays that they fill."""
    import cupy

    d, starts = of._derivatives, cupy.asarray(starts)
    given = d._terms(y, None, OPTIONS)
    shape = starts.shape[:2]
    made = {
        "params": cupy.empty(starts.shape), "loss": cupy.zeros(shape), "iterations": cupy.zeros(shape, np.int32),
        "evaluations": cupy.zeros(shape, np.int32), "status": cupy.zeros(shape, np.uint8),
    }  # fmt: skip
    return lambda: d._launch_all("FIT", starts, given, True, kind=OPTIONS.kind, **made), made


def floors(of, evaluations):
    """Microseconds that arithmetic and special functions need at least for so many evaluations of each expression."""
    import cupy

    programs, n = of.programs.on_host(), of.pop.n_params
    codes = opcodes.numbers()
    special = np.zeros(1 << 16)
    for name, count in SPECIAL.items():
        special[codes[ops.BY_NAME[name].code][codes[ops.BY_NAME[name].code] >= 0]] = count
    of_instruction = special[programs.instructions[:, 0] >> 16]
    instructions = np.diff(np.append(programs.first_instruction, len(of_instruction)))
    arithmetic = instructions * (1 + 2 * n) + 1 + 1 + n + n * (n + 1) // 2
    lanes = of.device.multiprocessors * cupy.cuda.Device().attributes["ClockRate"] * 1e3 / 1e6
    slow = np.add.reduceat(of_instruction, programs.first_instruction)
    points = float(of.n_points)
    return [float((evaluations * per).sum()) * points / lanes / rate for per, rate in ((arithmetic, 128), (slow, 16))]


def speed(precision="fast", dtype=np.float32, sizes=((362, "900"), (10_860, "12000"))):
    pop = parametric()
    for n_points, target in sizes:
        X, y = pipe(n_points, dtype)
        of = engine(pop, X, precision)
        begin = time.perf_counter()
        call, made = fit_launches(of, starts_of(pop), y)
        call()
        first = time.perf_counter() - begin
        micro = microseconds(call)
        evaluations, iterations = made["evaluations"].get()[0], made["iterations"].get()
        status = np.bincount(made["status"].get()[0], minlength=6)
        shapes = sorted({tuple(batch.shape[:3]) for batch in of._derivatives._batches_for(True)})
        least = ""
        if precision == "fast":
            least = "floors: arithmetic {:.0f}, special {:.0f} us; ".format(*floors(of, evaluations))
        report(
            f"fit {len(pop)} x {n_points}, {precision}, {np.dtype(dtype).name}", micro, "us", target,
            f"{least}{iterations.mean():.1f} iterations, "
            f"{evaluations.mean():.1f} evaluations each; ftol {status[0]}, xtol {status[1]}, gtol {status[2]}, "
            f"max_iter {status[3]}, stuck {status[4]}, not finite {status[5]}; tangents, vectors, warps {shapes}; "
            f"compiled and run first in {first:.1f} s",
        )  # fmt: skip


def whole_call():
    """What a user waits for: fit of a prepared engine, from host arrays to host arrays."""
    pop = parametric()
    for n_points in (362, 10_860):
        X, y = pipe(n_points)
        of = engine(pop, X)
        for n_starts in (1, STARTS):
            starts, times = starts_of(pop, n_starts), []
            for _ in range(6):
                begin = time.perf_counter()
                of.fit(starts, y, None, OPTIONS)
                times.append(time.perf_counter() - begin)
            report(f"whole call of fit, {n_starts} starts, {n_points} points", np.median(times[1:]) * 1e3, "ms")


def million():
    X, y = pipe(362)
    for turn in ("first", "second"):
        marks = [time.perf_counter()]
        pop = generate.exhaustive(9, n_vars=2, limit=1_000_000)
        marks.append(time.perf_counter())
        of = engine(pop, X)
        marks.append(time.perf_counter())
        starts = starts_of(pop)
        marks.append(time.perf_counter())
        fit = of.fit(starts, y, None, OPTIONS)
        marks.append(time.perf_counter())
        best = np.argsort(fit.loss, kind="stable")[:10]
        marks.append(time.perf_counter())
        parts = "enumerate {:.3f}, prepare {:.3f}, starts {:.3f}, fit {:.3f}, rank {:.3f} s".format(*np.diff(marks))
        share = (pop.n_params > 0).mean()
        note = f"{parts}; {share:.0%} have parameters; best: {pop[int(best[0])]}, sse {fit.loss[best[0]]:.5g}"
        report(f"1,000,000 x 362 enumerated, fitted, ranked ({turn} time)", marks[-1] - marks[0], "s", "2", note)
    report("of it the launches of the fit", microseconds(fit_launches(of, starts, y)[0], 3) / 1e3, "ms")


def other_tasks():
    import cupy

    pop, (X, y) = parametric(), pipe(10_860)
    d = engine(pop, cupy.asarray(X))._derivatives
    params, on_card = cupy.asarray(starts_of(pop)), cupy.asarray(y)
    normal = microseconds(lambda: d.normal_equations(params, on_card, None))
    report(f"normal equations, {len(pop)} x 10860", normal, "us")
    gradient = microseconds(lambda: d.loss_and_grad(params, on_card, None, "square"))
    report(f"loss and gradient, {len(pop)} x 10860", gradient, "us")


# ── quality ──────────────────────────────────────────────────────────────────────────


def some_of_them():
    pop = parametric()
    return pop[np.arange(0, N, N // SOME)[:SOME]]


def scipy_fits(job):
    """SciPy's losses for one share of the expressions from one start, and its seconds."""
    from scipy.optimize import least_squares

    share, start = job
    pop, (X, y) = some_of_them(), pipe(362)
    of = definition.Engine(pop, X.astype(F8), precision="ieee", dtype=F8)
    starts, found, begin = starts_of(pop, STARTS)[start], [], time.perf_counter()
    for i in range(share, len(pop), 16):
        n = int(pop.n_params[i])

        def residual(p, i=i):
            with np.errstate(all="ignore"):
                return of._expression(i, p) - y

        try:
            with np.errstate(all="ignore"):
                found.append(2 * least_squares(residual, starts[i, :n], method="lm", max_nfev=1000).cost)
        except ValueError:  # the residuals are not finite at the start
            found.append(np.nan)
    return found, time.perf_counter() - begin


def scipy_losses():
    """(STARTS, SOME), by 16 processes; to be called before this one uses the GPU."""
    jobs = [(share, start) for start in range(STARTS) for share in range(16)]
    losses, seconds = np.full((STARTS, SOME), np.nan), 0.0
    with ProcessPoolExecutor(16, mp_context=multiprocessing.get_context("fork")) as workers:
        for (share, start), (found, spent) in zip(jobs, workers.map(scipy_fits, jobs), strict=True):
            losses[start, share::16] = found
            seconds += spent
    report("one fit by SciPy on 362 points, on the average", seconds / losses.size * 1e3, "ms")
    return losses


def quality(scipy):
    pop, (X, y) = some_of_them(), pipe(362)
    starts, reference = starts_of(pop, STARTS), definition.Engine(pop, X.astype(F8), precision="ieee", dtype=F8)
    with np.errstate(all="ignore"):
        losses = {"SciPy, 1 start": scipy[0], f"SciPy, {STARTS} starts": np.fmin.reduce(scipy)}
    for name, precision, dtype in (("float32, fast", "fast", np.float32), ("float64, ieee", "ieee", np.float64)):
        of = engine(pop, X.astype(dtype), precision)
        for n_starts, most in ((1, 50), (1, 200), (STARTS, 50)):
            fit = of.fit(starts[:n_starts], y.astype(dtype), None, OPTIONS._replace(max_iter=most))
            loss = reference.loss_sums(np.nan_to_num(fit.params)[None], y.astype(F8), None, "square")[0]
            label = f"{name}, {n_starts} start{'s' * (n_starts > 1)}, {most} iterations"
            losses[label] = np.where(np.isnan(fit.loss), np.nan, loss)
    best = np.fmin.reduce(list(losses.values()))
    for name, loss in losses.items():
        with np.errstate(invalid="ignore"):
            near = [int((loss <= best * (1 + far) + 1e-12).sum()) for far in (1e-6, 1e-4)]
        report(f"within 1e-6 of the best loss: {name}", near[0], f"of {SOME}", "", f"within 1e-4: {near[1]}")


# ── all of it ────────────────────────────────────────────────────────────────────────


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=timing.to_record, help="folder for the results")
    chosen = parser.parse_args()
    scipy = scipy_losses()
    for step in (
        speed, whole_call, million, other_tasks, lambda: quality(scipy),
        lambda: speed("ieee", sizes=((362, ""),)), lambda: speed("ieee", np.float64, ((362, ""),)),
    ):  # fmt: skip
        begin = time.perf_counter()
        try:
            step()
        except Exception:
            traceback.print_exc()
        print(f"-- {time.perf_counter() - begin:.1f} s", flush=True)
    if chosen.out:
        TABLE.write(chosen.out / "h200_fit.csv")


if __name__ == "__main__":
    main()
