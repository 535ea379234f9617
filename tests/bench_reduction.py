"""How often the products of powers that a law depends on are read off its data exactly.

    python tests/bench_reduction.py --noise 0 0.01 0.1 --csv data/results/reductions.csv    # data/laws_srbench.csv

A law counts as reduced when ``ek.reduce`` gives as few groups as the law's own gradients have dimensions, and they and
the factor have exactly its powers: along every change of the variables that leaves the groups alone, log |y| changes by
the factor's.  Laws of which no product is a variable less count where nothing is reduced.  Noise is a share of the root
mean square of y.

data/laws_srbench.csv: the 119 laws of Feynman's in SRBench's ground truth, with its ranges, all uniform (EpistasisLab,
PMLB, metadata.yaml; MIT).
"""

from __future__ import annotations

import argparse
import csv
import json
import time

import numpy as np
from bench_laws import ROOT, drawn
from timing import to_record

import exprkit as ek
from exprkit.study import records

STEP = 1e-5  # of logarithms, for gradients by differences
CLOSE = 1e-3  # of gradients, to those that a reduction says


def values(law, X):
    with np.errstate(all="ignore"):
        return ek.Evaluator(ek.parse([law["formula"]]), X, "numpy", dtype="float64").evaluate()[0]


def sampled(law, n, random):
    return np.column_stack([drawn(variable, n, random) for variable in json.loads(law["variables"])])


def gradients(law, X):
    """Of log |y| by the logarithms of the variables, (n_rows, n_vars), by differences."""
    columns = []
    for j in range(X.shape[1]):
        factor = np.exp(STEP * (np.arange(X.shape[1]) == j))
        change = np.log(np.abs(values(law, X * factor))) - np.log(np.abs(values(law, X / factor)))
        columns.append(change / (2 * STEP))
    slopes = np.column_stack(columns)
    return slopes[np.isfinite(slopes).all(axis=1)]


def is_exact(reduction, slopes, n_groups):
    """Whether there are as many groups, and every change that leaves them alone changes y as the factor says."""
    system = reduction.system
    if len(reduction.groups) != n_groups:
        return False
    limit = CLOSE * max(1.0, np.abs(slopes).max())
    unused = set(range(slopes.shape[1])) - {*system.repeating, *system.remaining}
    errors = [np.abs(slopes[:, j]).max() for j in unused]
    for i, variable in enumerate(system.repeating):
        change = np.zeros(slopes.shape[1])
        change[variable] = 1
        change[list(system.remaining)] = [powers[i] for powers in system.powers]
        errors.append(np.abs(slopes @ change - system.y_powers[i]).max())
    return max(errors, default=0.0) < limit


def measured(law, noise, n_rows):
    random = np.random.default_rng(7)
    X = sampled(law, n_rows, random)
    y = values(law, X)
    slopes = gradients(law, X[:200])
    sizes = np.linalg.svd(slopes - slopes.mean(axis=0), compute_uv=False)
    n_groups = int((sizes > CLOSE * np.sqrt(len(slopes))).sum())
    begin = time.process_time()
    reduction = ek.reduce(X, y + noise * np.sqrt(np.mean(y**2)) * random.standard_normal(n_rows))
    return {
        "law": law["law"], "noise": noise, "rows": n_rows, "variables": X.shape[1], "groups": n_groups,
        "exact": int(is_exact(reduction, slopes, n_groups)), "cpu_s": round(time.process_time() - begin, 3),
        "reduction": str(reduction),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--laws", default=str(ROOT / "data" / "laws_srbench.csv"))
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.01, 0.1])
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--csv", type=to_record)
    arguments = parser.parse_args()
    with open(arguments.laws, encoding="utf-8") as file:
        laws = list(csv.DictReader(file))[arguments.first :: arguments.every]
    rows = []
    for noise in arguments.noise:
        of_noise = [measured(law, noise, arguments.rows) for law in laws if int(law["n_variables"]) > 1]
        rows += of_noise
        reducible = [row for row in of_noise if row["groups"] < row["variables"]]
        seconds = np.mean([row["cpu_s"] for row in of_noise])
        print(
            f"noise {noise}: {sum(row['exact'] for row in reducible)} of {len(reducible)} exact, {seconds:.2f} s each"
        )
    if arguments.csv:
        records.write_rows(arguments.csv, rows)


if __name__ == "__main__":
    main()
