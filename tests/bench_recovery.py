"""How many of SRBench's laws a search recovers, in noise, and how often the law that is on the front is chosen.

    python tests/bench_recovery.py --noise 0 0.01 0.1 --csv data/results/recovery.csv    # data/laws_srbench.csv

A formula counts as recovered when its form with freed numbers fits rows without noise to 1e-6 of the root mean
square of y, and it has at most 1.5 times the tokens that the law is written with.  Each search has one thread and its
seconds as counted work (``deterministic=True``), so that the numbers do not depend on how many run at once; threads of
linear algebra only get in each other's way (``OMP_NUM_THREADS=1``).  Noise is a share of the root mean square of y.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import multiprocessing
import os
import time

import numpy as np
from bench_laws import ROOT
from bench_reduction import sampled, values
from timing import to_record
from tqdm import tqdm

import exprkit as ek
from exprkit.regression.formulas.parameters import as_constants, as_parameters
from exprkit.study import records

CLOSE = 1e-6  # of the root mean square of y, at rows without noise
LONGER = 1.5  # times the tokens of the law
JUDGED = 1_000  # rows


def is_recovered(formula, law, X, y):
    """Whether a formula's form fits rows without noise, and is not much longer than the law."""
    if formula.n_tokens > LONGER * ek.parse([law["formula"]])[0].n_tokens:
        return False
    pop, params = as_parameters(ek.Population.of([formula]))
    if pop.max_params:
        starts = np.where(np.isnan(params), 0.0, params)
        result = ek.fit(pop, X, y, init=starts, backend="cpu", dtype="float64", max_iter=200, tol=1e-15)
        formula = as_constants(pop, result.params)[0]
    values_there = ek.Evaluator(ek.Population.of([formula]), X, "numpy", dtype="float64").evaluate()[0]
    return bool(np.sqrt(np.mean((values_there - y) ** 2)) < CLOSE * np.sqrt(np.mean(y**2)))


def measured(task):
    law, noise, seed, arguments = task
    random = np.random.default_rng(seed)
    X = sampled(law, arguments.rows, random)
    y = values(law, X)
    model = ek.SymbolicRegressor(
        timeout_in_seconds=arguments.seconds, random_state=seed, deterministic=True, n_jobs=1, verbosity=0
    )
    begin = time.process_time()
    model.fit(X, y + noise * np.sqrt(np.mean(y**2)) * random.standard_normal(len(y)))
    cpu_s = time.process_time() - begin
    judged = [
        is_recovered(formula, law, X[:JUDGED], y[:JUDGED]) for formula in ek.parse(list(model.equations_["equation"]))
    ]
    chosen = int(np.flatnonzero(model.equations_["selected"])[0])
    return {
        "law": law["law"], "noise": noise, "seed": seed, "rows": arguments.rows, "seconds": arguments.seconds,
        "recovered": int(judged[chosen]), "on_front": int(any(judged)), "cpu_s": round(cpu_s, 2),
        "formula": model.equations_["equation"].iloc[chosen],
    }  # fmt: skip


def searches(sentence, measured, laws, noises, **numbers):
    """Arguments of a command line, and what ``measured((law, noise, seed, arguments))`` gives for all, in processes.

    ``laws``: the file; ``numbers``: options with their defaults.
    """
    parser = argparse.ArgumentParser(description=sentence)
    parser.add_argument("--laws", default=str(ROOT / "data" / laws))
    parser.add_argument("--noise", type=float, nargs="+", default=noises)
    for name, default in {"seeds": 1, "seconds": 10.0, "first": 0, "every": 1, **numbers}.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--csv", type=to_record)
    arguments = parser.parse_args()
    with open(arguments.laws, encoding="utf-8") as file:
        laws = list(csv.DictReader(file))[arguments.first :: arguments.every]
    tasks = [(*task, arguments) for task in itertools.product(laws, arguments.noise, range(arguments.seeds))]
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        rows = list(tqdm(pool.imap(measured, tasks), total=len(tasks), unit=" searches", mininterval=10))
    if arguments.csv:
        records.write_rows(arguments.csv, rows)
    return arguments, rows


def main():
    arguments, rows = searches(__doc__.splitlines()[0], measured, "laws_srbench.csv", [0.0, 0.01, 0.1], rows=3_000)
    for noise in arguments.noise:
        recovered, on_front = np.array([(row["recovered"], row["on_front"]) for row in rows if row["noise"] == noise]).T
        print(f"noise {noise}: {recovered.sum()} of {len(recovered)} recovered, {on_front.sum()} on the front")


if __name__ == "__main__":
    main()
