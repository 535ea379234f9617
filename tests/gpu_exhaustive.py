"""Exhaustive searches, timed: ``PYTHONPATH=. python tests/gpu_exhaustive.py --out data/results``.

On a GPU as it is, and on two cores with ``--backend cpu --threads 2 --max-nodes 8``.  Prints a table and writes it as
``exhaustive_cuda.csv`` (or ``exhaustive_cpu.csv``): seconds of each search and of its parts, and how many functions
reach the best loss that is known of them, which is the least of this search and of one of ten times the starts.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from timing import Table, to_record

import exprkit as ek
from exprkit.search.best_fits import best_fits, start_sizes
from exprkit.search.distinct import Enumeration
from exprkit.search.exhaustive_search import MAX_ITER, RESTARTS
from exprkit.search.grammar import grammar

TABLE = Table(width=58)
report = TABLE.report
NATS = 0.05  # by which a loss may be above the best and still be reached


def one_variable(n=32):
    """Points of one variable with a hundredth of noise, as many as the cosmic chronometers are."""
    random = np.random.default_rng(0)
    x = np.linspace(1.0, 3.0, n)
    return x[:, None], 70 * np.sqrt(0.3 * x**3 + 0.7) * (1 + 0.01 * random.standard_normal(n))


def mock_sets():
    """The rough pipe and three known laws with noise: (name, X, y)."""
    random = np.random.default_rng(1)
    pipe = ek.data.rough_pipe()
    yield "rough pipe", pipe.X, pipe.y
    for name, law, n_vars in (
        ("saturation", lambda X: 2.1 * X[:, 0] / (X[:, 0] + 0.7), 1),
        ("decay", lambda X: 1.3 * np.exp(-0.8 * X[:, 0]) + 0.2, 1),
        ("power of two", lambda X: 0.6 * X[:, 0] ** 1.7 / X[:, 1], 2),
    ):
        X = random.uniform(0.3, 4, (100, n_vars))
        y = law(X)
        yield name, X, y + 0.01 * y.std() * random.standard_normal(len(y))


def enumerate_all(max_nodes, operators, n_vars, n_params, threads, confirm=0):
    """The functions, the seconds, and how many trees they are."""
    begin = time.perf_counter()
    found = Enumeration(grammar(max_nodes, operators, n_vars, n_params), threads, confirm)
    new = np.concatenate([found.grow() for _ in range(max_nodes)])
    seconds = time.perf_counter() - begin
    return found, new, seconds, sum(found.grammar.count(size) for size in range(1, max_nodes + 1))


def counts(max_nodes, threads):
    """How many functions there are, and how quickly they are told apart."""
    enumerate_all(4, "core_maths", 1, 5, threads, 2)  # compiled
    for n_vars, size in ((1, max_nodes), (2, max_nodes - 2), (3, max_nodes - 3)):
        for confirm in (0, 2):
            found, new, seconds, trees = enumerate_all(size, "core_maths", n_vars, 5, threads, confirm)
            how = f"{n_vars} variables, to {size} nodes" + (", confirmed" if confirm else "")
            report(f"core_maths, {how}: distinct", seconds, "s", note=f"{trees:,} trees")
            report("  trees told apart", trees / seconds / 1e6, "million/s", "20" if threads is None else "2 a core")
            report("  memory", found.n_bytes / 1e6, "MB", note=f"{len(new):,} functions; by size {found.n_of_size[1:]}")


def searches(max_nodes, options):
    """Whole searches; the second call of each is timed."""
    pipe = ek.data.rough_pipe()
    X, y = one_variable()
    for name, data, size, operators, aim in (
        ("one variable, 32 points, core_maths", (X, y), max_nodes, "core_maths", "10 s to 10, 30 s to 8 on 2 cores"),
        ("one variable, 32 points, esr", (X, y), max_nodes, "esr", ""),
        ("two variables, 362 points, esr", (pipe.X, pipe.y), 7, "esr", "5 s on a GPU"),
    ):
        first, found = (
            ek.exhaustive_search(*data, operators=operators, max_nodes=size, progress=False, **options) for _ in "12"
        )
        note = f"{found.n_functions:,} functions; {found.texts()[0]}; the first call, compiling: {first.seconds:.1f} s"
        report(f"{name}, to {size} nodes", found.seconds, "s", aim, note)
        report("  normal equations", found.n_evaluations / 1e6, "million")


def fits(options):
    """The share of best known losses that is reached, over the distinct functions of up to 7 nodes."""
    settings = {"method": "lm", "loss": "gaussian", "max_iter": MAX_ITER, "dtype": "float64", **options}
    for name, X, y in mock_sets():
        found, new, _, _ = enumerate_all(7 if X.shape[1] == 1 else 6, "esr", X.shape[1], 4, options["threads"])
        pop, problem = found.population(new), ek.FitProblem(X, y, **settings)
        sizes = start_sizes(X, y, "esr")
        begin = time.perf_counter()
        usual = best_fits(problem, pop, new, RESTARTS, 0, sizes)
        seconds = time.perf_counter() - begin
        best = usual.loss.copy()
        for seed in range(1, 11):
            best = np.fmin(best, best_fits(problem, pop, new, RESTARTS, seed, sizes).loss)
        once = best_fits(problem, pop, new, 0, 0, sizes)
        with_params = np.isfinite(best) & (pop.n_params > 0)
        for what, loss in (("", usual.loss), (", one start", once.loss)):
            reached = np.mean(loss[with_params] <= best[with_params] + NATS)
            report(f"best known loss, {name}{what}", 100 * reached, "%", "" if what else "99",
                   f"{with_params.sum():,} functions; {seconds:.2f} s")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--max-nodes", type=int, default=10)
    parser.add_argument("--out", type=to_record)
    chosen = parser.parse_args()
    how = {"backend": chosen.backend, "threads": chosen.threads}
    counts(chosen.max_nodes, chosen.threads)
    searches(chosen.max_nodes, how)
    fits(how)
    if chosen.out:
        TABLE.write(chosen.out / f"exhaustive_{chosen.backend}.csv")
