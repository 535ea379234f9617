"""Is the law that data were made from first among all functions?  ``PYTHONPATH=. python tests/bench_rediscovery.py``.

Twenty laws of up to nine nodes of the set "esr", with normal errors of 1 % of the values' standard deviation, at 100
points; every function of up to ``--max-nodes`` nodes is fitted to each and ranked by description length.  The law is
the function that has its form's best loss and its number of parameters.  Writes ``rediscovery.csv``: how many nats the
law is behind the first (0: it is the first).
"""

from __future__ import annotations

import argparse

import numpy as np
from timing import to_record

import exprkit as ek
from exprkit.study import records

POINTS, NOISE, SAME = 100, 0.01, 1e-3  # SAME: nats within which two fits are of the same function
LAWS = (  # form, its parameters
    ("p1 * x1 + p2", (1.7, -0.6)),
    ("p1 * powabs(x1, p2)", (2.3, -1.4)),
    ("p1 * powabs(p2, x1)", (4.1, 0.45)),
    ("p1 / (x1 + p2)", (3.2, 0.8)),
    ("p1 * sqr(x1) + p2", (0.7, 1.9)),
    ("p1 * x1 / (x1 + p2)", (5.0, 1.3)),
    ("p1 * powabs(x1, p2) + p3", (1.2, 1.6, -2.0)),
    ("p1 * powabs(p2, x1) + p3", (2.5, 0.4, 1.1)),
    ("p1 / (sqr(x1) + p2)", (2.0, 0.6)),
    ("p1 / (powabs(x1, p2) + p3)", (1.5, 2.6, 0.9)),
    ("p1 * x1 + p2 / x1", (0.8, 1.7)),
    ("p1 * sqr(x1) + p2 * x1", (-0.5, 2.2)),
    ("p1 * sqr(x1 / (x1 + p2))", (3.0, 0.9)),
    ("p1 * x1 * powabs(p2, x1)", (2.8, 0.35)),
    ("p1 * powabs(p2, sqr(x1))", (1.9, 0.55)),
    ("p1 * x1 * powabs(p2, sqr(x1))", (2.1, 0.7)),
    ("p1 / (powabs(p2, x1) + p3)", (4.0, 0.2, 0.3)),
    ("p1 * powabs(x1 + p2, p3)", (0.6, 1.4, 1.8)),
    ("p1 / x1 - p2 / sqr(x1)", (3.0, 0.7)),
    ("p1 * powabs(x1, p2) * powabs(p3, x1)", (1.6, 1.7, 0.3)),
)


def data(form, params, number):
    """X, (100, 1), and y with errors."""
    random = np.random.default_rng(number)
    X = np.sort(random.uniform(0.2, 4.0, (POINTS, 1)), axis=0)
    y = np.asarray(ek.Evaluator(ek.parse([form]), X, "cpu", dtype="float64").evaluate(np.array([params])))[0]
    return X, y + NOISE * y.std() * random.standard_normal(POINTS)


def looked_for(number, form, params, max_nodes, options):
    """A row: the law's place among all functions."""
    X, y = data(form, params, number)
    fitted = ek.fit([form], X, y, loss="gaussian", init=np.array([params]), dtype="float64")
    found = ek.exhaustive_search(X, y, max_nodes=max_nodes, progress=False, **options)
    table = found.equations
    loss = float(fitted.loss[0])
    n_params = table.filter(regex=r"^p\d+$").notna().sum(axis=1)
    same = ((table["loss"] - loss).abs() <= SAME) & (n_params == len(params))
    row = {"number": number, "law": form, "functions": found.n_functions}
    total = table["total"]
    if same.any():
        place = int(np.flatnonzero(same)[0])
        row |= {"place": place + 1, "nats_behind": round(float(total.iloc[place] - total.iloc[0]), 2)}
    else:
        row |= {"place": "", "nats_behind": ""}
    return row | {"first": table["text"].iloc[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--max-nodes", type=int, default=9)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--out", type=to_record)
    given = parser.parse_args()
    rows = []
    for number, (form, params) in enumerate(LAWS, 1):
        rows.append(looked_for(number, form, params, given.max_nodes, {"backend": given.backend}))
        print(*rows[-1].values(), sep="  ", flush=True)
        if given.out:
            records.write_rows(given.out / "rediscovery.csv", rows)
    behind = [row["nats_behind"] for row in rows]
    print(f"{behind.count(0.0)} first, {sum(at != '' and at <= 2 for at in behind)} of {len(rows)} within 2 nats")


if __name__ == "__main__":
    main()
