"""Where the microseconds of a step go on a GPU: ``PYTHONPATH=. python tests/gpu_steps.py``.

Prints for a loss, a new population and a fit of one: the time of each part of the call, in a loop, by the wall clock,
that of every kernel, by events before and after it (which keep launches from overlapping), and when the host called
the driver ("-": what is no kernel, as a copy or waiting).  ``--threads 32 64``: lowering with so many threads a block.
At last a table of whole calls; beside another package's, whose results must have the same bits::

    PYTHONPATH=before python tests/gpu_steps.py --threads --save before.json
    PYTHONPATH=. python tests/gpu_steps.py --threads --against before.json
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import hashlib
import itertools
import json
import statistics
import tempfile
import time
from pathlib import Path

import cupy
import numpy as np

import exprkit as ek
from exprkit.backends.device_programs import lowering
from exprkit.backends.gpu import device as gpu
from exprkit.backends.interpreter import derivatives, loss_step
from exprkit.evaluate import inputs
from exprkit.expressions import generate
from exprkit.fitting import fit_problem as fitting
from exprkit.runtime.calls import Sequence
from exprkit.study import workload

N, N_POINTS = 10_000, 362
EVENTS: list = []  # (kernel, before, after) while they are recorded
RECORDING = False
STAMPS: list | None = None  # (what, begin, end) of the host's calls of the driver while they are noted
TABLE: dict = {}  # median microseconds of whole calls, by name
DIGESTS: dict = {}  # of their results


def recorded(make_all):
    """``Sequence.__call__`` whose launches leave events."""

    def call(self):
        if STAMPS is not None:
            begin = time.perf_counter()
            make_all(self)
            what = [one.name or "-" for one in self.calls]
            return STAMPS.append((" ".join(what), begin, time.perf_counter()))
        if not RECORDING:
            return make_all(self)
        for one in self.calls:
            before, after = cupy.cuda.Event(), cupy.cuda.Event()
            alone = Sequence([one], self._stream, self._error)
            before.record()
            make_all(alone)
            after.record()
            if one.name:
                EVENTS.append((one.name, before, after))

    return call


Sequence.__call__ = recorded(Sequence.__call__)


def kernels(call, repeats=8):
    """Median microseconds of each kernel that a call launches."""
    global RECORDING
    times = collections.defaultdict(list)
    for _ in range(repeats):
        EVENTS.clear()
        RECORDING = True
        call()
        cupy.cuda.Device().synchronize()
        RECORDING = False
        total = collections.Counter()
        for name, before, after in EVENTS:
            total[name] += cupy.cuda.get_elapsed_time(before, after) * 1e3
        for name, one in total.items():
            times[name].append(one)
    print("    kernels: " + ", ".join(f"{name} {statistics.median(some):.1f}" for name, some in times.items()), "us")


def timeline(call, repeats=40):
    """When the host began and ended each run of calls of the driver, in median microseconds: gaps are Python's."""
    global STAMPS
    rows = []
    for _ in range(repeats):
        cupy.cuda.Device().synchronize()
        STAMPS, begin = [], time.perf_counter()
        call()
        end, stamps, STAMPS = time.perf_counter(), STAMPS, None
        stamps.append(("end", begin, end))
        rows.append([(what, (a - begin) * 1e6, (b - begin) * 1e6) for what, a, b in stamps])
    whats = [what for what, *_ in rows[-1]]
    rows = [row for row in rows if [what for what, *_ in row] == whats]
    for k, what in enumerate(whats):
        begin, end = (statistics.median(row[k][side] for row in rows) for side in (1, 2))
        print(f"      {begin:8.1f} to {end:8.1f} us: {what}")


def noted(name, *arrays):
    """Keep a digest of results."""
    DIGESTS[name] = hashlib.sha256(b"".join(np.ascontiguousarray(one).tobytes() for one in arrays)).hexdigest()


def report(name, call, repeats=500, wait=False):
    """Print what a call takes; ``wait``: until the device has done it.  Whole calls are not indented."""
    times = []
    for _ in range(repeats + 3):
        start = time.perf_counter()
        call()
        if wait:
            cupy.cuda.Device().synchronize()
        times.append(time.perf_counter() - start)
    cupy.cuda.Device().synchronize()
    if not name.startswith(" "):
        TABLE[name] = statistics.median(times[3:]) * 1e6
    print(f"{name:60s} median {statistics.median(times[3:]) * 1e6:9.2f} us, least {min(times) * 1e6:9.2f}", flush=True)


def data_of(pop):
    rng = np.random.default_rng(0)
    X = rng.uniform(0.5, 2, (N_POINTS, max(pop.n_vars, 2))).astype(np.float32)
    return X, X[:, 0] * X[:, 1], rng.uniform(0.5, 2, (len(pop), pop.max_params)).astype(np.float32)


def bare(array):
    """What CuPy takes for what steps are made of."""
    event, stream = cupy.cuda.Event(), cupy.cuda.get_current_stream()
    for name, call in {
        "empty": lambda: cupy.empty(1000, np.float32), "zeros": lambda: cupy.zeros(5, np.int64),
        "a view": lambda: array[:100], "reshape": lambda: array.reshape(1, -1), "its address": lambda: array.data.ptr,
        "a number put everywhere": lambda: array.fill(0), "the stream": cupy.cuda.get_current_stream,
        "page-locked memory": lambda: cupy.cuda.alloc_pinned_memory(64), "get of 8 numbers": lambda: array[:8].get(),
        "numbers of 8 numbers": lambda: gpu.current().numbers(array[:8]), "waiting for nothing": stream.synchronize,
        "event: record": event.record, "event: synchronize": event.synchronize,
    }.items():  # fmt: skip
        report(f"  {name}", call)


def losses(pop):
    X, y, params = data_of(pop)
    X_there, y_there, params_there, out = *map(cupy.asarray, (X, y, params)), cupy.empty(len(pop))
    host, there = (ek.Evaluator(pop, one, "cuda", "fast") for one in (X, X_there))
    usual = loss_step.MOST_WRITTEN
    of_host, queued = host.loss_of(y), there.loss_of(y_there)
    for loss_step.MOST_WRITTEN, way in ((0, "copied"), (usual, "written by the kernel")):
        host.engine._forget()
        for _ in range(2):
            assert np.array_equal(of_host(params), queued(params_there).get(), equal_nan=True)
        noted("losses", of_host(params))
        report(f"a loss again, from the host, sums {way} (aim 35)", lambda: of_host(params), 2000)
        report("  its calls alone", step_of(host.engine)._again, 2000)
    kernels(lambda: of_host(params))
    timeline(lambda: of_host(params))
    report("queued on the device (aim 19)", lambda: queued(params_there, out=out), 2000)
    report("  its calls alone", step_of(there.engine)._again, 2000)
    report("the same, waited for", lambda: queued(params_there, out=out), wait=True)
    kernels(lambda: queued(params_there, out=out))
    parts("host", host, params, y)
    parts("device", there, params_there, y_there)
    span = there.engine._spans(len(pop), {"TASK": "SQUARE", "WEIGHTED": 0, "COUNTED": 0})[0]
    report("  one start that overlaps", span.run.run.again)
    report("  one that does not", span.run.run.first)


def step_of(engine):
    """The loss that was asked for last."""
    return next(step for key, step in reversed(engine._ready.items()) if key[0] == "step")


def parts(name, ev, params, y):
    """Those of a loss that is asked for again."""
    sets = inputs.parameter_sets(params, ev.pop, ev.dtype, ev.adopt)[0]
    prepared = ev.engine.prepare(*ev.target(y), "square")
    report(f"  {name}: parameter_sets", lambda: inputs.parameter_sets(params, ev.pop, ev.dtype, ev.adopt))
    report(f"  {name}: the engine's sums", lambda: ev.engine.sums(sets, prepared))
    report(f"  {name}: immediates", lambda: ev.engine._immediates.make(sets))


def generations(name, pop, threads):
    X, y, params = data_of(pop)
    X, y, params, there = *map(cupy.asarray, (X, y, params)), ek.DevicePopulation.of(pop)
    arrays = there.kinds, there.values, there.offsets
    new = functools.partial(next, itertools.cycle([there, ek.DevicePopulation(*arrays)]))  # the last one is known
    usual, ev = lowering.THREADS, None
    for lowering.THREADS in (*threads, usual):
        ev = ek.Evaluator(pop, X, "cuda", "fast")
        report(f"{name}: update, {lowering.THREADS} threads", lambda ev=ev: ev.update(new()), 60, wait=True)
        kernels(lambda ev=ev: ev.update(new()))

    step = ev.loss_of(y)

    def whole():
        ev.update(ek.DevicePopulation(*arrays))
        step(params)

    here = itertools.cycle([pop, ek.Population(pop.kinds, pop.values, pop.offsets)])
    host = ek.Evaluator(pop, X.get(), "cuda", "fast")
    here_params, of_host = params.get(), host.loss_of(y.get())

    def on_host():
        host.update(next(here))
        of_host(here_params)

    ev.update(there)
    fresh = ek.Evaluator(pop, X, "cuda", "fast").loss(params, y).get()
    host.update(pop)
    for found in (step(params).get(), of_host(here_params)):
        np.testing.assert_array_equal(found, fresh)
    noted(f"{name}: losses", fresh)
    report(f"{name}: tokens on the host -> losses there (aim 250)", on_host, 200)
    report(f"{name}: checked, lowered, its losses (aim 100)", whole, 200, wait=True)
    report("  DevicePopulation", lambda: ek.DevicePopulation(*arrays), 200)
    made = ev.engine._lowering.of(there)
    report("  lowering", lambda: ev.engine._lowering.of(new()), 200)
    report("  taking programs", lambda: ev.engine._launcher.take(*made), 200)
    kernels(whole)
    timeline(whole)


@contextlib.contextmanager
def watched(*places):
    """What functions take, by name: each waits for the device before it begins and ends."""
    spent = collections.defaultdict(list)

    def timed(old, name, *rest, **others):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        try:
            return old(*rest, **others)
        finally:
            cupy.cuda.Device().synchronize()
            spent[name].append(time.perf_counter() - start)

    before = [(where, name, getattr(where, name)) for where, name in places]
    for where, name, old in before:
        setattr(where, name, functools.partialmethod(functools.partial(timed, old, name)) if isinstance(where, type)
                else functools.partial(timed, old, name))  # fmt: skip
    try:
        yield spent
    finally:
        for where, name, old in before:
            setattr(where, name, old)


def fits(repeats=12):
    pop, points = generate.exhaustive(7, n_vars=2), ek.data.rough_pipe()
    some = np.random.default_rng(1).choice(np.flatnonzero(pop.n_params > 0), 9_880, replace=False)
    turns = [one for _ in range(60) for one in (pop[np.sort(some)], pop[np.sort(some)[::-1]])]
    X, y = points.X.astype(np.float32), points.y.astype(np.float32)
    problem = ek.FitProblem(X, y, backend="cuda", precision="fast", max_iter=50)
    report("FitProblem.fit of a new population", lambda: problem.fit(turns.pop()), 20)
    last = turns.pop()
    found, alone = problem.fit(last), ek.FitProblem(X, y, backend="cuda", precision="fast", max_iter=50).fit(last)
    results = [getattr(found, name) for name in ("params", "loss", "status", "iterations")]
    for name, one in zip(("params", "loss", "status", "iterations"), results, strict=True):
        np.testing.assert_array_equal(one, getattr(alone, name))
    noted("fits", *results)
    print("    ended by", np.bincount(found.status).tolist(), "after at most", found.iterations.max(), "steps")
    places = [
        (ek.Evaluator, "update"), (derivatives, "batches_of"), (fitting, "starts_of"),
        (derivatives.FitResults, "on_host"),
        *((derivatives.Derivatives, name) for name in ("_launch_all", "_choose", "fit")),
    ]  # fmt: skip
    places = [(where, name) for where, name in places if hasattr(where, name)]
    with watched(*places) as spent:
        for _ in range(repeats):
            problem.fit(turns.pop())
    for name, times in spent.items():
        each = len(times) // repeats
        print(f"  {name:15s}" + ", ".join(f"{statistics.median(times[k::each]) * 1e6:.0f}" for k in range(each)), "us")
    kernels(lambda: problem.fit(turns.pop()), 5)
    timeline(lambda: problem.fit(turns.pop()), 20)


def on_the_cpu(thesis_100k):
    """A new population beside a loss, by number of threads."""
    points = ek.data.rough_pipe()
    X, y = points.X.astype(np.float32), points.y.astype(np.float32)
    params = np.ones((len(thesis_100k), thesis_100k.max_params), np.float32)
    turns = itertools.cycle([thesis_100k, ek.Population(thesis_100k.kinds, thesis_100k.values, thesis_100k.offsets)])
    for threads in (1, 2, None):
        ev = ek.Evaluator(thesis_100k, X, "cpu", "fast", threads=threads)
        report(f"CPU, {threads or 'all'} threads: update with 100,000", lambda ev=ev: ev.update(next(turns)), 30)
        noted(f"CPU, {threads} threads", ev.loss(params, y))
        step = ev.loss_of(y)
        report(f"CPU, {threads or 'all'} threads: loss of 100,000 x 362", lambda step=step: step(params), 30)


def texts(n):
    """A file of so many texts parsed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "texts.txt")
        some = "\n".join(workload.expressions("esr", min(n, 100_000))) + "\n"
        path.write_text(some * max(1, n // 100_000))
        pop = ek.parse(path)
        noted("texts", pop.kinds, pop.values, pop.offsets)
        report(f"{len(pop):,} texts parsed (aim of 10,000,000: 300,000)", lambda: ek.parse(path), 3)


def compare(path):
    """The table beside another's, and whether results have the same bits."""
    other = json.loads(Path(path).read_text()) if path else {"table": {}, "digests": {}}
    print(f"\n{'median us':60s} {'before':>10s} {'now':>10s}")
    for name, now in TABLE.items():
        print(f"{name:60s} {other['table'].get(name, float('nan')):10.1f} {now:10.1f}")
    for name in DIGESTS.keys() & other["digests"].keys():
        print(f"bits of {name}:", "the same" if DIGESTS[name] == other["digests"][name] else "DIFFERENT")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, nargs="*", default=[32, 64])
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--save")
    parser.add_argument("--against")
    given = parser.parse_args()
    threads = given.threads
    thesis = ek.parse(workload.expressions("esr", N))
    bare(cupy.zeros(1000))
    losses(thesis)
    generations("thesis", thesis, threads)
    generations("trees", generate.random(N, seed=3), threads)
    fits()
    on_the_cpu(ek.parse(workload.expressions("esr", 100_000)))
    texts(given.texts)
    if given.save:
        Path(given.save).write_text(json.dumps({"table": TABLE, "digests": DIGESTS}))
    compare(given.against)


if __name__ == "__main__":
    main()
