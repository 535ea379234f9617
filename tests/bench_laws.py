"""Which of the 60 laws of data/laws.csv a search finds, and in which time.

    python tests/bench_laws.py --seconds 10 --seeds 1 --csv laws_found.csv

A law counts as found when the formula that is selected has a relative error below 1e-8 on 200 fresh points (with
noise: its median below 1e-8 + 3 noise / sqrt(rows)) and at most 1.2 times the nodes that the law is written with, where
``sqr(a)`` counts as ``a ^ 2`` does.  Noise is a share of the root mean square of y.  Nothing of the list is known to
the search.  The laws are derived from FastSRB (V. Martinek 2025, arXiv 2508.14481; MIT), whose ranges are those of
SRSD.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from pathlib import Path

import numpy as np

import exprkit as ek
from exprkit.operators import ops
from exprkit.text.tokens import OPERATOR

LAWS = Path(__file__).resolve().parent.parent / "data" / "laws.csv"
TRAIN, FRESH = 400, 200


def drawn(variable, n, random):
    low, high = variable["low"], variable["high"]
    if variable["spacing"] == "log":
        x = np.exp(random.uniform(np.log(low), np.log(high), n))
    elif variable["spacing"] == "uniform":
        x = random.uniform(low, high, n)
    else:
        x = random.integers(int(low), int(high) + 1, n).astype(float)
    return x * random.choice([-1, 1], n) if variable["both_signs"] else x


def sample(law, n, random):
    """Rows at which the law is a number that is not 0."""
    pop, variables = ek.parse([law["formula"]]), json.loads(law["variables"])
    X, y = np.empty((0, len(variables))), np.empty(0)
    for _ in range(200):
        more = np.column_stack([drawn(variable, 4 * n, random) for variable in variables])
        with np.errstate(all="ignore"):
            values = ek.Evaluator(pop, more, "numpy", dtype="float64").evaluate()[0]
        fine = np.isfinite(values) & (values != 0)
        X, y = np.concatenate([X, more[fine]]), np.concatenate([y, values[fine]])
        if len(y) >= n:
            break
    return X[:n], y[:n]


def nodes(formula):
    squares = (formula.kinds == OPERATOR) & np.isin(formula.values, [ops.BY_NAME["sqr"].code])
    return formula.n_tokens + int(squares.sum())


def is_found(model, law, X, y, noise):
    with np.errstate(all="ignore"):
        error = np.abs(model.predict(X) / y - 1)
    close = error.max() < 1e-8 if not noise else np.median(error) < 1e-8 + 3 * noise / np.sqrt(TRAIN)
    return bool(close and nodes(model._expression(None)) <= 1.2 * int(law["nodes"]))


def run(law, seed, arguments):
    random = np.random.default_rng([seed, 7])
    X, y = sample(law, TRAIN + FRESH, random)
    n = len(y) * TRAIN // (TRAIN + FRESH)
    target = y[:n] + arguments.noise * np.sqrt(np.mean(y[:n] ** 2)) * random.standard_normal(n)
    model = ek.SymbolicRegressor(
        timeout_in_seconds=arguments.seconds, niterations=1_000_000, random_state=seed, n_jobs=arguments.threads,
        pool_size=arguments.pool, backend=arguments.backend,
    )  # fmt: skip
    begin = time.perf_counter()
    model.fit(X[:n], target)
    seconds = time.perf_counter() - begin
    return {
        "law": law["law"], "difficulty": law["difficulty"], "seed": seed, "noise": arguments.noise,
        "found": is_found(model, law, X[n:], y[n:], arguments.noise), "seconds": round(seconds, 2),
        "tried": model.n_evals_, "nodes": law["nodes"], "equation": model.get_best().equation,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--pool", type=int, default=None, help="functions of the last pool, by default the search's")
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--every", type=int, default=1, help="only every so many-th law")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--laws", default=str(LAWS))
    parser.add_argument("--csv", default=None)
    arguments = parser.parse_args()
    ek.SymbolicRegressor(niterations=1, pool_size=100, random_state=0).fit([[1.0], [2.0], [4.0]], [1.0, 3.0, 5.5])
    rows = []
    with open(arguments.laws, encoding="utf-8") as file:
        laws = list(csv.DictReader(file))[arguments.first :: arguments.every]
    for seed in range(arguments.seeds):
        for law in laws:
            rows.append(run(law, seed, arguments))
            shown = [str(value) for name, value in rows[-1].items() if name not in ("found", "noise")]
            print("found" if rows[-1]["found"] else "     ", *shown, law["formula"], sep=" | ", flush=True)
    found, seconds = [row["found"] for row in rows], [row["seconds"] for row in rows]
    print(f"{sum(found)} of {len(found)} found; mean {np.mean(seconds):.2f} s, median {np.median(seconds):.2f} s")
    if arguments.csv:
        with open(arguments.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
