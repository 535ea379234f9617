"""The search's pools on a GPU: checked beside the CPU's, and timed.

    PYTHONPATH=. python tests/gpu_pools.py
    PYTHONPATH=. python tests/gpu_pools.py --only limits

First the same pools and pairs as on the CPU (an error ends it), then seconds of pool and join by size, then how far a
search goes beyond its time, before and after its kernels are compiled, and where it looks at the clock too seldom.
Which laws are found with them: ``gpu_laws.py``.
"""

from __future__ import annotations

import argparse
import threading
import time
import traceback

import cupy
import numpy as np

import exprkit as ek
from exprkit.backends.device_programs.operator_kernels import OperatorKernels
from exprkit.backends.gpu import device as gpu
from exprkit.expressions.arguments import operators_of
from exprkit.regression.formulas.values import values_of
from exprkit.regression.on_device import triples
from exprkit.regression.on_device.join import DevicePartners
from exprkit.regression.on_device.pool import DevicePool, with_memory
from exprkit.regression.on_device.regress import regressed
from exprkit.regression.pairs import links
from exprkit.regression.pairs.join import Partners
from exprkit.regression.pairs.pool import Pool
from exprkit.regression.problem.rows import Rows
from exprkit.regression.sums import regress
from exprkit.runtime.budget import Budget

BEGIN = time.perf_counter()
POINTS = np.random.default_rng(0).uniform(0.5, 3, (16, 3))
EXACT = operators_of(["+", "-", "*", "/", "square", "sqrt"])  # whose results are the same bits everywhere
SEARCH = operators_of("search")
PARTS = "checks", "sizes", "limits"
REPEATED = 2_000_000  # functions of the largest pool that is made twice
LAW = "x1 * (1 - 0.3 * cos(x2 * x3) / x1)"


def say(*parts):
    print(f"{time.perf_counter() - BEGIN:6.1f} s:", *parts, flush=True)


def device_pool(operators, most, X=POINTS):
    pool = DevicePool(X, operators, OperatorKernels(gpu.current(), tuple(operators), len(X)))
    pool.grow(30, most)
    pool.multiply(most + most // 2)
    return pool


def same(operators, most):
    """The CPU's pool and pairs; what rounds differently may make a few functions others."""
    host, there = Pool(POINTS, operators), device_pool(operators, most)
    host.grow(30, most)
    host.multiply(most + most // 2)
    n = len(host)
    assert len(there) == n, (len(there), n)
    made = [np.column_stack([gpu.fetched(getattr(pool, name))[:n] for name in ("made_by", "left", "right")])
            for pool in (host, there)]  # fmt: skip
    differ = np.flatnonzero((made[0] != made[1]).any(axis=1))
    say(f"{n:,} functions of {[row.name for row in operators]}: the first that differs:", *differ[:1])
    some = np.random.default_rng(1).integers(0, n, 200).tolist()
    values = values_of(there.expressions(some), POINTS)
    np.testing.assert_allclose(gpu.fetched(there.values[cupy.asarray(some)]), values, rtol=1e-9)
    y = values_of(list(ek.parse([LAW])), POINTS)[0]
    here, partners, found = Partners(host), DevicePartners(there), [0, 0]
    for link in links.all_links([row for row in operators if row.arity == 1]):
        pairs = here.of(y, link), partners.of(y, link)
        texts = [[str(pool.expression(int(i))) for one in two for i in one[:1]]
                 for two, pool in zip(pairs, (host, there), strict=True)]  # fmt: skip
        assert texts[0] == texts[1] or len(differ), (link.text, texts)
        found = [number + len(two.f) for number, two in zip(found, pairs, strict=True)]
    say(f"   partners {len(here):,} and {len(partners):,}; pairs of all links {found[0]:,} and {found[1]:,}")
    return len(differ)


def regressions():
    random = np.random.default_rng(2)
    f, h = random.normal(size=(3_000, 128)), random.normal(size=(9_000, 128))
    v, weight = random.normal(size=128), np.ones(128)
    v /= np.sqrt(weight @ v**2)
    starts = np.array([0, 1_000, 9_000])
    host, there = regress.regressed(f, h, v, weight, starts), regressed(gpu.current(), f, h, v, weight, starts)
    np.testing.assert_allclose(there.error, host.error, rtol=1e-9)
    say(f"regressions of all pairs: {(there.h != host.h).sum()} of {host.h.size} best h are others")
    begin = time.perf_counter()
    regressed(gpu.current(), np.tile(f, (7, 1)), np.tile(h, (3, 1)), v, weight, np.array([0, 1_000, 27_000]))
    say(f"   21,000 x 27,000 pairs at 128 rows: {time.perf_counter() - begin:.3f} s")


def threes(most):
    """Three functions f, h1, h2: as many as a search looks at."""
    law = "sqrt(3.3 * x1 + 0.21 * x1 * x2 / x3 + 0.73 * x1 * x3)"
    X = np.random.default_rng(3).uniform(0.5, 3, (120, 3))
    rows = Rows(X, values_of(list(ek.parse([law])), X)[0])
    few, every = rows.subsample(16, 0), links.all_links([row for row in SEARCH if row.arity == 1])
    begin = time.perf_counter()
    pool = DevicePool(few.X, SEARCH, OperatorKernels(gpu.current(), tuple(SEARCH), 16))
    pool.grow(30, most)
    pool.multiply(2 * most)
    say(f"three of {len(pool):,} functions: pool {time.perf_counter() - begin:.3f} s")
    for found in triples.formulas(pool, few.y, rows, every):
        say(f"   {time.perf_counter() - begin:.3f} s:", *map(str, found[:1]))


def seconds(most):
    """Of a pool and its join with all links; of small ones the second of two, and what memory was taken."""
    y = values_of(list(ek.parse(["sin(x1) * x2 + sqrt(x3 + 0.123 * x1 * x1)"])), POINTS)[0]  # no pair makes it

    def work(room):
        cupy.get_default_memory_pool().free_all_blocks()
        for turn in ("first", "second")[: 1 + (room <= REPEATED)]:
            marks = [time.perf_counter()]

            def mark(marks=marks):
                cupy.cuda.Device().synchronize()
                marks.append(time.perf_counter())

            pool = DevicePool(POINTS, SEARCH, OperatorKernels(gpu.current(), tuple(SEARCH), 16))
            pool.grow(30, room)
            mark()
            pool.multiply(room + room // 2)
            mark()
            partners = DevicePartners(pool)
            mark()
            every = links.all_links([row for row in SEARCH if row.arity == 1])
            n = sum(len(partners.of(y, link).f) for link in every)
            mark()
            names = "grow", "multiply", "sort", f"{len(every)} links"
            steps = ", ".join(f"{name} {s:.3f} s" for name, s in zip(names, np.diff(marks), strict=True))
            say(f"{room:,}, {turn}: {len(pool):,} functions of up to {pool.largest} tokens, {pool.tried:,} tried; "
                f"{steps}; {n} pairs; memory {cupy.get_default_memory_pool().total_bytes() / 1e9:.1f} GB")  # fmt: skip
            del pool, partners

    list(with_memory(gpu.current(), most, 16, lambda room: [work(room)]))


def limits(backend):
    """Seconds of searches that find nothing, and the longest between two looks at their budget."""
    X, y = np.random.default_rng(4).uniform(1e8, 3e9, (400, 6)), np.random.default_rng(5).normal(size=400)
    check, last, gaps = Budget.check, [0.0, ""], []

    def timed(self, *given):
        where = " < ".join(f"{frame.name}:{frame.lineno}" for frame in traceback.extract_stack(limit=6)[-2::-1])
        gaps.append((time.perf_counter() - last[0], last[1], where))
        try:
            return check(self, *given)
        finally:
            last[:] = time.perf_counter(), where

    Budget.check = timed
    try:
        for seconds in (8.0, 8.0, 12.0):
            last[0], begin = time.perf_counter(), time.perf_counter()
            gaps.clear()
            settings = {"niterations": 10**6, "random_state": 0, "backend": backend}
            model = ek.SymbolicRegressor(timeout_in_seconds=seconds, **settings).fit(X, y)
            say(f"limit {seconds:g} s: {time.perf_counter() - begin:.3f} s, {model.n_evals_:,} tried")
            for gap, after, before in sorted(gaps, reverse=True)[:5]:
                say(f"   {gap:.3f} s between {after} and {before}")
            for thread in threading.enumerate():
                if thread.name == "exprkit-search":
                    thread.join()
            say(f"   all of it had ended after {time.perf_counter() - begin:.3f} s")
    finally:
        Budget.check = check


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--sizes", type=float, nargs="*", default=[1e6, 2e7, 1e8])
    parser.add_argument("--three", type=int, default=1_000_000, help="functions of the pool for three")
    parser.add_argument("--check", type=int, default=200_000, help="functions of the pools that the CPU makes as well")
    parser.add_argument("--backend", default="cuda")
    arguments = parser.parse_args()
    if "checks" in arguments.only:
        assert same(EXACT, arguments.check) == 0
        same(SEARCH, arguments.check)
        regressions()
        threes(arguments.three)
    for most in arguments.sizes if "sizes" in arguments.only else ():
        seconds(int(most))
    if "limits" in arguments.only:
        limits(arguments.backend)


if __name__ == "__main__":
    main()
