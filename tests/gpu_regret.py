"""How much longer the case discussion's choice takes than its best leaf.

    PYTHONPATH=. python tests/gpu_regret.py --out data/results               # of another card: --name cases_regret_h100
    PYTHONPATH=. python tests/gpu_regret.py --out data/results --work more --name cases_regret_more
    PYTHONPATH=. python tests/gpu_regret.py --out data/results --work unseen --name cases_regret_unseen

Times all leaves on the GPU at hand for (362, 10,860, 108,600 points) x (the thesis's expressions, trees of 10 to 50
tokens, 50 columns) x (values, losses, fits) and for fits of half a million trees; and for smaller cards as far as
their limits can be had here: only the leaves that fit into their shared memory, with that padded until as many blocks
are resident as there (all of these cards have as many registers as this one).  All kernels are compiled by all cores
before anything is timed; the tree's choice and the fastest leaf are timed once more, in turns.  ``--work more``: other
expressions and numbers of points; ``unseen``: those with which no constant of the discussion was chosen.  Writes
``cases_regret.csv``, a line for each leaf; prints mean and most of the regrets of the tree's choice, which
``data/results/cases_regret.md`` quotes, beside the aims of 5 % and 15 %.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from timing import microseconds, to_record

import exprkit as ek
from exprkit.backends.cases import fits
from exprkit.backends.cases import interpreter as launches
from exprkit.backends.cases.tree import CARDS
from exprkit.backends.gpu.schedule import RESERVED, DeviceLimits, LaunchShape, Sizes, resident_blocks
from exprkit.backends.interpreter import batches
from exprkit.backends.interpreter import engine as interpreter
from exprkit.backends.objective import Options
from exprkit.expressions import generate
from exprkit.runtime import machine
from exprkit.study import records

ROOT = Path(__file__).resolve().parent.parent
N, POINTS = 9_880, (362, 10_860, 108_600)
SIMPLE = ("add", "sub", "mul")  # no functions of a column
ELEMENTARY = (*SIMPLE, "div", "exp", "log", "sin", "cos", "sqrt")
OTHERS = {  # name, operators, tokens, variables, parameters; numbers of points
    "more": (
        [
            ("elementary", ELEMENTARY, (5, 25), 4, 4),
            ("gp", "gp", (3, 40), 3, 3),
            ("polynomials", SIMPLE, (7, 31), 5, 4),
        ],
        (100, 1_000, 3_000, 40_000),
    ),
    "unseen": (
        [
            ("search", "search", (5, 35), 6, 1),
            ("core_maths", "core_maths", (3, 21), 2, 2),
            ("waves", ("add", "sub", "mul", "sin", "cos", "tanh", "abs"), (9, 41), 2, 4),
        ],
        (50, 600, 5_000, 25_000, 200_000),
    ),
}
IMITATED = "sm_75", "sm_86"
FEW_POINTS = 1_000  # up to which N are fitted, with more SOME_FITS
SOME_FITS, MANY_FITS = 2_000, 500_000
MOST_SLOWER = 4.0  # estimated: what is slower is no rival, and not timed


# ── what is timed ──


def populations():
    """Expressions by name, and how many variables they have."""
    lines = (ROOT / "data" / "esr_sample.txt").read_text().split("\n")[:-1]
    yield "thesis", ek.parse((lines * (N // len(lines) + 1))[:N]), 2
    yield "trees", generate.random(N, n_tokens=(10, 50), operators="thesis", n_vars=10, n_params=2, seed=1), 10
    yield "columns", generate.random(N, n_tokens=(5, 15), operators=SIMPLE, n_vars=50, n_params=2, seed=2), 50


def other_populations(kinds):
    """Expressions by name, and how many variables they have.

    All have as many parameters: then all fits of common or of uncommon operators have the same shape.
    """
    for name, operators, n_tokens, n_vars, n_params in kinds:
        asked = {"n_tokens": n_tokens, "n_vars": n_vars, "n_params": n_params, "operators": operators}
        pop = generate.random(20 * N, seed=11, **asked)
        yield name, pop[np.flatnonzero(pop.n_params == n_params)[:N]], n_vars


def data(n_points, n_vars):
    random = np.random.default_rng(5)
    return random.uniform(0.5, 4.0, (n_points, n_vars)).astype(np.float32), random.normal(size=n_points).astype("f4")


def is_wide(n_points):
    return n_points * 4 % 16 == 0


def named(shape):
    where = "" if shape.columns_shared else " global"
    return f"{shape.vectors}x{shape.block}{where}"


class PaddedShape(LaunchShape):
    """A variant that takes as much shared memory as leaves room for so many blocks on this card."""

    least = 0

    def shared_bytes(self, *sizes):
        return max(super().shared_bytes(*sizes), self.least)


def padded(shape, sizes, here, there):
    """The variant with as many resident blocks here as it has ``there``."""
    shared = shape.most_shared(sizes.n_columns, sizes.n_slots)
    by_registers = max(resident_blocks(shape, True), 1)
    blocks = max(min(there.shared_per_multiprocessor // (shared + RESERVED), by_registers), 1)
    made = type("Padded", (PaddedShape,), {"least": 0})(*shape)
    most = min(here.shared_per_multiprocessor // blocks - RESERVED, here.shared_per_block)
    if here.shared_per_multiprocessor // (shared + RESERVED) > blocks:
        type(made).least = most // 16 * 16
    return made


# ── kernels, compiled by all cores before anything is timed ──


def compile_kernel(architecture, task, shape):
    from exprkit.backends.gpu import nvrtc, opcodes
    from exprkit.backends.precision import precision

    nvrtc.compiled(
        architecture, precision("fast"), opcodes.source("fast"), REAL="float", LANES=32, VECTORS=shape.vectors,
        BLOCK=shape.block, COLUMNS_SHARED=int(shape.columns_shared), WIDE=int(shape.wide),
        TASK=task, COUNTED=0, **({"WEIGHTED": 0} if task != "VALUES" else {}),
    )  # fmt: skip


def compile_fit(architecture, shape, rare, prologues, at_once):
    from exprkit.backends.gpu import nvrtc
    from exprkit.backends.interpreter import dual_opcodes
    from exprkit.backends.precision import precision

    settings = precision("fast")
    chosen = batches.macros_of(shape, settings, at_once, TASK="FIT", RARE=rare, PROLOGUES=prologues)
    nvrtc.compiled(architecture, settings, dual_opcodes.source("fast"), **chosen)


def compile_ahead(architecture, points, tasks, listed_tangents):
    """All kernels that will be timed, into the cache on disk; the longest first."""
    jobs = []
    for tangents, rare in itertools.product(listed_tangents if "fits" in tasks else (), (1, 0)):
        for one in usable_fits(tangents, points):
            at_once = {1, fits.fits_at_once(one, many=False, little=True, fast=True, rare=bool(rare))}
            jobs += [(compile_fit, architecture, one, rare, *rest) for rest in itertools.product((0, 1), at_once)]
    kinds = (("VALUES", True), ("VALUES", False), ("SQUARE", False))
    for task, wide in kinds if "launches" in tasks else ():
        listed = launches.shapes(launches.VariantSet(4, True, wide))
        jobs += [(compile_kernel, architecture, task, one) for one in listed]
    with ProcessPoolExecutor(machine.cores(), multiprocessing.get_context("spawn")) as pool:
        for job in [pool.submit(*job) for job in jobs]:
            job.result()
    return len(jobs)


def usable_fits(tangents, points):
    """The variants of fits that are timed for any number of points."""
    fixed, found = fits.FitVariants(4, True), []
    kinds = itertools.product(points, (False, True))
    estimates = [fits.fit_times(fixed, tangents, n_points, rare)[:, 0] for n_points, rare in kinds]
    for place, one in enumerate(fits.fit_shapes(fixed, tangents)):
        if any(of[place] < MOST_SLOWER * of.min() for of in estimates):
            found.append(one)
    return found


# ── values and losses ──


def rows_of_launches(name, pop, n_vars, n_points, repeats):
    """A row for each leaf, of values and of losses, here and as on smaller cards."""
    import cupy

    X, y = (cupy.asarray(array) for array in data(n_points, n_vars))
    params = cupy.asarray(np.random.default_rng(3).uniform(-2, 2, (1, len(pop), pop.max_params)).astype(np.float32))
    out = cupy.empty((1, len(pop), n_points), np.float32)
    engine = interpreter.Engine(pop, X, precision="fast", dtype=np.float32)
    sizes = Sizes(n_points, len(pop), engine._launcher.n_columns, engine.programs.n_slots)
    here = DeviceLimits.of(engine.device)
    calls = {
        "values": lambda: engine.evaluate(params, out), "losses": lambda: engine.loss_sums(params, y, None, "square")
    }  # fmt: skip
    for card, (task, call) in itertools.product((None, *IMITATED), calls.items()):
        if card and n_points <= POINTS[0]:
            continue
        limits = here if card is None else CARDS[card].limits._replace(multiprocessors=here.multiprocessors)
        fixed = launches.VariantSet(4, True, task == "values" and is_wide(n_points))
        estimates, chosen = launches.times(fixed, sizes, limits)[:, 0], launches.Decision(limits, fixed)(sizes)
        for shape, estimate in zip(launches.shapes(fixed), estimates, strict=True):
            if estimate > MOST_SLOWER * estimates.min() and shape != chosen:
                continue
            engine.using(shape if card is None else padded(shape, sizes, here, limits))
            yield {
                "imitates": card or "", "task": task, "expressions": name, "n_points": n_points,
                "variant": named(shape), "us": microseconds(call, repeats), "estimate": float(estimate),
                "is_tree": int(shape == chosen),
            }  # fmt: skip


# ── fits ──


def rows_of_fits(name, pop, n_vars, n_points, repeats, most=None):
    """A row for each shape that all fits may have, and one for the tree's, where that is not one of them."""
    import cupy

    some = pop[np.flatnonzero(pop.n_params > 0)[: most or (N if n_points <= FEW_POINTS else SOME_FITS)]]
    X, y = data(n_points, n_vars)
    starts = np.random.default_rng(7).uniform(-2, 2, (1, len(some), some.max_params))
    engine = interpreter.Engine(some, cupy.asarray(X), precision="fast", dtype=np.float32)
    options, chooser, target = Options(max_iter=10), batches.shape_of, cupy.asarray(y)
    fixed = fits.FitVariants(4, True)
    tangents = min(some.max_params, fits.MOST_TANGENTS)
    pairs = [(one.vectors, one.warps) for one in fits.fit_shapes(fixed, tangents)]
    estimated = np.array([fits.fit_times(fixed, tangents, n_points, rare)[:, 0] for rare in (False, True)])
    rivals = (estimated < MOST_SLOWER * estimated.min(axis=1, keepdims=True)).any(axis=0)
    usable = [pair for pair, is_rival in zip(pairs, rivals, strict=True) if is_rival]
    chosen = {batch.shape[1:3] for batch in engine._derivatives._batches_for(True)}
    tree = chosen.pop() if len(chosen) == 1 else None  # None: of each number of tangents its own

    def use(pair):
        def shape_of(n_points, n_tangents, **given):
            listed = {(one.vectors, one.warps): one for one in fits.fit_shapes(fixed, n_tangents)}
            usual = chooser(n_points, n_tangents, **given)
            return usual if pair is None else listed.get(pair, usual)

        batches.shape_of = shape_of
        batches.groups_of.cache_clear()
        for kept in ("_derivatives", "_fits_to_come"):
            engine.__dict__.pop(kept, None)
        engine.fit(cupy.asarray(starts), target, None, options)
        made = {batch.shape[1:3] for batch in engine._derivatives._batches_for(True)}
        if pair is not None and made != {pair}:
            print(f"{name} x {n_points}: {pair} is no variant of all numbers of tangents: {sorted(made)} were timed")

    taken = {pair: [] for pair in dict.fromkeys((*usable, tree))}
    try:
        for turn in range(2):
            fastest = min(taken, key=lambda pair: statistics.median(taken[pair])) if turn else None
            for pair in (fastest, tree) * 2 if turn else taken:  # at last in turns: what was the least by chance is not
                use(pair)
                if turn == 0:
                    engine.fit(cupy.asarray(starts), target, None, options)
                taken[pair] += [timed_fit(engine, starts, target, options) for _ in range(repeats)]
    finally:
        batches.shape_of = chooser
        batches.groups_of.cache_clear()
    for pair, found in taken.items():
        yield {
            "imitates": "", "task": "fits", "expressions": name, "n_points": n_points,
            "variant": "tree" if pair is None else f"{pair[0]}x{pair[1]} warps", "us": statistics.median(found),
            "estimate": "", "is_tree": int(pair == tree),
        }  # fmt: skip


def timed_fit(engine, starts, target, options):
    import cupy

    given = cupy.asarray(starts)
    cupy.cuda.Device().synchronize()
    begin = time.perf_counter()
    engine.fit(given, target, None, options)
    cupy.cuda.Device().synchronize()
    return (time.perf_counter() - begin) * 1e6


MADE_BY = {"launches": rows_of_launches, "fits": rows_of_fits}


# ── what was found ──


def regrets(rows):
    """For each card and task: by how much the tree's choice takes longer than the best leaf, of each piece of work."""
    found = {}
    keys = "imitates", "task", "expressions", "n_points"
    for (card, task, *_), group in itertools.groupby(rows, lambda row: tuple(row[key] for key in keys)):
        leaves = list(group)
        chosen = next(row["us"] for row in leaves if row["is_tree"])
        found.setdefault((card or "this card", task), []).append(chosen / min(row["us"] for row in leaves) - 1)
    return found


def summary(found):
    """Mean and most of the regrets by card and task, as a table."""
    lines = ["| limits of | task | work | regret | at most |", "|---|---|---|---|---|"]
    for (card, task), values in (found | {("all", "all"): [*itertools.chain(*found.values())]}).items():
        lines.append(f"| {card} | {task} | {len(values)} | {statistics.mean(values):.1%} | {max(values):.1%} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=to_record)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tasks", nargs="+", choices=MADE_BY, default=tuple(MADE_BY))
    parser.add_argument("--work", choices=("usual", *OTHERS), default="usual", help="expressions and numbers of points")
    parser.add_argument("--name", default="cases_regret", help="of the files that are written")
    asked = parser.parse_args()
    from exprkit.backends.gpu import device as gpu

    begin, rows = time.perf_counter(), []
    listed, points = OTHERS.get(asked.work, ([], POINTS))
    kinds = other_populations(listed) if listed else populations()
    tangents = {kind[-1] for kind in listed} or {1, 2}
    n_kernels = compile_ahead(gpu.current().architecture, points, asked.tasks, tangents)
    print(f"{n_kernels} kernels compiled after {time.perf_counter() - begin:.0f} s", flush=True)
    for (name, pop, n_vars), n_points in itertools.product(kinds, points):
        for task in asked.tasks:
            rows += list(MADE_BY[task](name, pop, n_vars, n_points, asked.repeats))
        write(asked.out, asked.name, rows)
        print(f"{name} {n_points}: {len(rows)} rows after {time.perf_counter() - begin:.0f} s", flush=True)
    if "fits" in asked.tasks and not listed:
        many = generate.random(MANY_FITS, n_tokens=(10, 50), operators="thesis", n_vars=10, n_params=2, seed=4)
        rows += list(rows_of_fits("many trees", many, 10, POINTS[0], asked.repeats, MANY_FITS))
    write(asked.out, asked.name, rows)
    print(summary(regrets(rows)))


def write(folder, file_name, rows):
    """What was found so far."""
    if folder:
        records.write_rows(folder / f"{file_name}.csv", [{**row, "us": f"{row['us']:.5g}"} for row in rows])


if __name__ == "__main__":
    sys.exit(main())
