"""What a full ``visited_`` costs: formulas of random trees, kept, saved, read and looked through; a line each.

    python tests/bench_visited.py --formulas 10000000

The peak is that of the process, with the formulas that are dropped.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

import exprkit as ek
from exprkit.regression.formulas.archive import FormulaArchive, VisitedFormulas
from exprkit.search.patterns import holders

QUESTIONS = (  # pattern, max_size, best
    ("a * exp(-b * x1)", 20, 50), ("p1 / (p2 + x1)", 20, 50), ("sqrt(a) + log(b)", None, 50), (None, 20, 50),
    ("sin(x1)", None, 50), ("a * exp(-b * x1)", None, None), ("a / (b + x1) + c * x2", None, None),
)  # fmt: skip


def timed(what, function, *given):
    begun, busy = time.perf_counter(), time.process_time()
    result = function(*given)
    seconds, busy = time.perf_counter() - begun, time.process_time() - busy
    print(f"{what:55}{seconds:9.3f} s {busy:9.3f} s of processors", flush=True)
    return result


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # GB, of KiB within 2 %


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--formulas", type=int, default=1_000_000)
    n = options.parse_args().formulas
    archive, random = FormulaArchive(n), np.random.default_rng(0)

    def fill():
        for seed in range(100):
            pop = ek.generate.random(max(n // 8, 2), (5, 25), n_vars=3, n_params=0, seed=seed)
            archive.add(pop, random.exponential(size=len(pop)))
            if (formulas := archive.formulas()) and len(formulas) == n:
                return formulas
        raise SystemExit("too few forms")

    formulas = timed("made and kept", fill)
    pop = formulas.pop
    memory = pop.kinds.nbytes + pop.values.nbytes + pop.offsets.nbytes + formulas.loss.nbytes
    print(f"{len(pop):,} formulas of {pop.n_tokens.mean():.1f} tokens: {memory / 1e9:.2f} GB; peak {peak():.1f} GB")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "visited.npz")
        timed("written", lambda: np.savez(path, **formulas.to_arrays()))
        print(f"file {path.stat().st_size / 1e9:.2f} GB")
        with np.load(path) as arrays:
            formulas = timed("read", lambda: VisitedFormulas.from_arrays(dict(arrays)))
    holders(formulas.pop[:10], "x1")  # compiled before it is timed
    for pattern, max_size, best in QUESTIONS:
        question = f"{pattern}, max_size={max_size}, best={best}"
        rows = timed(question, holders, formulas.pop, pattern, best, max_size)
        print(f"{len(rows):55,} formulas")
    timed("their texts", formulas.pop[rows[:50]].texts)


if __name__ == "__main__":
    main()
