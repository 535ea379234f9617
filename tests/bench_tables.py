"""Data without a law: what a search predicts of rows it has not seen, in seconds of processor time, beside pyoperon.

    python tests/bench_tables.py --sets developed --csv FILE
    gcc -O2 -shared -fPIC -o processor_clock.so tests/processor_clock.c
    LD_PRELOAD=./processor_clock.so python tests/bench_tables.py --by pyoperon    # the same seconds

Tables are columns of R's and textbooks' data sets (``pip install --no-deps ISLP faraway``, and pandas), of which a
quarter of the rows is kept aside, and made-up functions, which are judged without noise at 2,000 rows of their own.
The search was developed with ``developed`` in view; ``held`` was drawn up at the same time, and only counted.
``--by ridge`` is a linear regression with as much shrinkage as cross-validation says, whatever its size.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import types
import warnings
from pathlib import Path

import bench_laws
import numpy as np
from scipy.integrate import solve_ivp
from timing import to_record

import exprkit as ek
from exprkit.regression.estimator import regressor
from exprkit.runtime import budget
from exprkit.study import records

JUDGED = 2_000  # rows


# ── tables ──


def of_package(name, path, y, drop=()):
    """Columns that are numbers, or one of two words; rows without gaps."""
    import pandas as pd

    where = importlib.util.find_spec(name)
    if where is None:
        return None
    table = pd.read_csv(Path(where.origin).parent / path, na_values="?")
    if "ShelveLoc" in table:
        table["ShelveLoc"] = table["ShelveLoc"].map({"Bad": 0, "Medium": 1, "Good": 2})
        table = table[[*(column for column in table if column != "ShelveLoc"), "ShelveLoc"]]
    for column in table.select_dtypes(exclude="number"):
        words = sorted(table[column].dropna().unique())
        if len(words) == 2:
            table[column] = (table[column] == words[1]).astype(float)
    table = table.drop(columns=list(drop)).select_dtypes("number").dropna()
    return table.drop(columns=y).to_numpy(float), table[y].to_numpy(float)


def split(table, seed):
    """Three quarters and a quarter of the rows."""
    X, y = table
    order, k = np.random.default_rng([seed, 77]).permutation(len(y)), len(y) // 4
    return X[order[k:]], y[order[k:]], X[order[:k]], y[order[:k]]


PACKAGES = {  # package, file, y, columns left out
    "boston": ("ISLP", "data/Boston.csv", "medv"),
    "carseats": ("ISLP", "data/Carseats.csv", "Sales"),
    "hitters": ("ISLP", "data/Hitters.csv", "Salary"),
    "fat": ("faraway", "datasets/fat/fat.csv.bz2", "brozek", ("siri", "density", "free")),
    "auto": ("ISLP", "data/Auto.csv", "mpg", ("name",)),
    "credit": ("ISLP", "data/Credit.csv", "Balance", ("ID",)),
    "college": ("ISLP", "data/College.csv", "Outstate"),
    "ozone": ("faraway", "datasets/ozone/ozone.csv.bz2", "O3"),
}  # fmt: skip


# ── functions ──


def uniform(random, n, d):
    return random.uniform(0, 1, (n, d))


def normal(random, n, d):
    return random.standard_normal((n, d))


def circuit(random, n, _):
    """Columns of Friedman's second and third."""
    ranges = (0, 100), (40 * np.pi, 560 * np.pi), (0, 1), (1, 11)
    return np.column_stack([random.uniform(*one, n) for one in ranges])


def in_a_row(random, n, d):
    """Each column has a correlation of 0.7 with the one before."""
    X = random.standard_normal((n, d))
    for k in range(1, d):
        X[:, k] = 0.7 * X[:, k - 1] + np.sqrt(1 - 0.7**2) * X[:, k]
    return X


def of_three(random, n, d):
    """Sums of three hidden columns, and of a little of their own."""
    weights = np.random.default_rng(4).standard_normal((3, d))
    return random.standard_normal((n, 3)) @ weights + 0.4 * random.standard_normal((n, d))


def prey_times(random, n, _):
    return random.uniform([0.5, 0.5, 0.5, 0], [1.5, 1.5, 1.5, 4], (n, 4))


def spring_times(random, n, _):
    return random.uniform([0.1, 0.2, 0.5, 0], [0.6, 2, 2, 5], (n, 4))


def friedman1(x):
    return 10 * np.sin(np.pi * x[0] * x[1]) + 20 * (x[2] - 0.5) ** 2 + 10 * x[3] + 5 * x[4]


def solved(slopes, first, t):
    """The first of two states at the time t of every row."""
    n = len(t)
    state = solve_ivp(lambda _, s: np.concatenate([t * one for one in slopes(*s.reshape(2, n))]), (0, 1),
                      np.concatenate(first), rtol=1e-7, atol=1e-9, t_eval=[1.0]).y  # fmt: skip
    return state[:n, 0]


def prey(x):
    """Lotka and Volterra's."""
    one = np.ones_like(x[0])
    return solved(lambda a, b: (a * (x[0] - x[1] * b), b * (0.7 * x[1] * a - x[2])), (one, 0.8 * one), x[3])


def spring(x):
    """Duffing's."""
    return solved(lambda a, v: (v, -x[0] * v - x[1] * a - a**3), (x[2], 0 * x[2]), x[3])


def impedance(x):
    return x[1] * x[2] - 1 / (x[1] * x[3])


FUNCTIONS = {  # number of the draw, rows, columns, how they are drawn, noise, its kind, function
    "f1_200": (5, 200, 15, uniform, 0.4, "normal", friedman1),
    "f2_120": (6, 120, 4, circuit, 0.3, "normal", lambda x: np.sqrt(x[0] ** 2 + impedance(x) ** 2)),
    "few_wide": (7, 60, 20, normal, 0.4, "normal", lambda x: 1.5 * x[0] - 2 * x[3] + x[7] ** 2 + x[11]),
    "heavy": (8, 300, 5, uniform, 0.15, "t2",
              lambda x: np.sin(5 * x[0]) + 2 * x[1] ** 2 + np.exp(x[2]) * x[3]),
    "steps": (9, 400, 5, uniform, 0.2, "normal",
              lambda x: np.floor(3 * x[0]) + 2 * np.abs(x[1] - 0.4) + (x[2] > x[3])),
    "prey": (10, 400, 4, prey_times, 0.02, "normal", prey),
    "products": (11, 300, 6, uniform, 0.3, "normal", lambda x: 3 * x[0] * x[1] * x[2] + x[3] / (0.3 + x[4])),
    "in_a_row": (12, 250, 12, in_a_row, 0.5, "normal",
                 lambda x: x[0] - 0.8 * x[3] + 0.5 * x[5] + 1.5 * np.tanh(x[8]) + 0.4 * x[10]),
    "f1_150": (25, 150, 10, uniform, 0.3, "normal", friedman1),
    "f3_200": (26, 200, 4, circuit, 0.3, "normal", lambda x: np.arctan(impedance(x) / x[0])),
    "wide_80": (27, 80, 25, normal, 0.3, "normal",
                lambda x: x[1] - 1.2 * x[5] + 1.5 * np.maximum(x[9], 0) + 0.8 * x[14] * x[2]),
    "outliers": (28, 300, 4, uniform, 0.15, "outliers",
                 lambda x: 2 * np.cos(4 * x[0] * x[1]) + x[2] + np.log(0.1 + x[3])),
    "saw": (29, 500, 4, uniform, 0.15, "normal",
            lambda x: np.mod(2 * x[0], 1) + 3 * np.maximum(x[1] - 0.6, 0) + np.minimum(x[2], x[3])),
    "spring": (30, 400, 4, spring_times, 0.02, "normal", spring),
    "ratios": (31, 400, 6, uniform, 0.2, "normal",
               lambda x: (x[0] + x[1]) / (0.5 + x[2]) + 2 * x[3] * np.sqrt(x[4]) * x[5]),
    "of_three": (32, 250, 10, of_three, 0.6, "normal",
                 lambda x: x[0] + 0.5 * x[2] * np.abs(x[4]) + x[6] - 0.3 * x[8] ** 2),
}  # fmt: skip

NOISE = {
    "normal": lambda random, n: random.standard_normal(n),
    "t2": lambda random, n: random.standard_t(2, n),
    "outliers": lambda random, n: random.standard_normal(n) * np.where(random.uniform(size=n) < 0.05, 10, 1),
}


def made(key, n, d, columns, noise, kind, function, seed):
    random = np.random.default_rng([seed, key])
    X = columns(random, n + JUDGED, d)
    y = function(X.T)
    return X[:n], y[:n] + noise * np.std(y) * NOISE[kind](random, n), X[n:], y[n:]


SETS = {
    "developed": ("boston", "carseats", "hitters", "fat", "f1_200", "f2_120", "few_wide", "heavy", "steps", "prey",
                  "products", "in_a_row"),
    "held": ("auto", "credit", "college", "ozone", "f1_150", "f3_200", "wide_80", "outliers", "saw", "spring",
             "ratios", "of_three"),
}  # fmt: skip


def data(name, seed):
    """Rows to search on, and rows to judge by; None where a package is not installed."""
    if name in FUNCTIONS:
        return made(*FUNCTIONS[name], seed)
    table = of_package(*PACKAGES[name])
    return table and split(table, seed)


# ── the runs ──


def by_ridge(X, y, *_):
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 25))).fit(X, y).predict, None, -1


SEARCHES = {"exprkit": bench_laws.by_exprkit, "pyoperon": bench_laws.by_pyoperon, "ridge": by_ridge}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--by", default="exprkit", choices=SEARCHES)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--csv", type=to_record)
    arguments = parser.parse_args()
    how = types.SimpleNamespace(seconds=arguments.seconds, threads=1, pool=None, backend="cpu")
    budget.time = regressor.time = types.SimpleNamespace(perf_counter=time.process_time)
    warnings.simplefilter("ignore")
    X = np.random.default_rng(0).uniform(1, 2, (30, 2))
    warm = ek.SymbolicRegressor(niterations=2, pool_size=300, population_size=50, random_state=0, n_jobs=1)
    warm.fit(X, X[:, 0] + np.random.default_rng(1).standard_normal(30))
    rows = []
    for seed in range(arguments.seeds):
        for name in (name for which in arguments.sets for name in SETS[which]):
            if (drawn := data(name, seed)) is None:
                print(f"{name} is left out: {PACKAGES[name][0]} is not installed")
                continue
            X, y, other_X, other_y = drawn
            begin = time.process_time()
            predict, formula, _ = SEARCHES[arguments.by](X, y, seed, how, None, bench_laws.MOST_NODES)
            seconds, r2 = time.process_time() - begin, 1 - np.mean((predict(other_X) - other_y) ** 2) / np.var(other_y)
            nodes = 0 if formula is None else bench_laws.nodes(formula)
            rows.append({"what": name, "by": arguments.by, "seed": seed, "value": round(float(r2), 4), "nodes": nodes,
                         "seconds": round(seconds, 1), "equation": str(formula or "")})  # fmt: skip
            print(*rows[-1].values(), sep=" | ", flush=True)
            if arguments.csv:
                records.write_rows(arguments.csv, rows)


if __name__ == "__main__":
    main()
