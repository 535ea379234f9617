"""Which laws of physics a search finds, in which time, and beside its peers.

    python tests/bench_laws.py --seconds 10 --seeds 1 --csv data/results/laws.csv    # the 60 laws of data/laws.csv
    python tests/bench_laws.py --noise 0.01 --every 3                              # every third of them, with noise
    python tests/bench_laws.py --units                                             # with the units of all variables
    python tests/bench_laws.py --laws data/laws_unseen.csv --peers pyoperon gplearn  # peers in the same seconds
    python tests/bench_laws.py --sets empirical tables                             # Planck, Rydberg; data without a law

A law counts as found when the formula that is selected has a relative error below 1e-8 on 200 fresh points (with
noise: its median below 1e-8 + 3 noise / sqrt(rows)) and at most 1.2 times the nodes that the law is written with, where
``sqr(a)`` counts as ``a ^ 2`` does, and ``sqr(sqr(a))`` as ``a ^ 4``.  Noise is a share of the root mean square of y.
Nothing of the lists is known to the search; with units, numbers have those that make a formula right, and the search
tries the constants of nature that ``rules/units.py`` lists.

=============  ====================================================================================================
``laws``       data/laws.csv: derived from FastSRB (V. Martinek 2025, arXiv 2508.14481; MIT), whose ranges are SRSD's;
               data/laws_unseen.csv: 44 others, written down before they were searched for;
               data/laws_held_out.csv: 40 others: the search was mended by failures on the first, third, ... of them,
               and the second, fourth, ... (``--first 1 --every 2``) are only counted;
               data/laws_curves.csv: 53 curves of biology, chemistry and engineering: ``shapes/curves.py`` was made
               for C1 to C30; C31 to C53 were written down before they were searched for (``--first 30``);
               data/laws_feynman.csv: the 62 of Feynman's that the 60 are not, likewise; failures were looked at;
               data/laws_textbook.csv: 40 laws (G) and 30 curves (N), written down before they were searched for;
               data/laws_srbench.csv: the 119 of Feynman's in SRBench, with its ranges (``bench_reduction.py``);
               data/laws_other_fields.csv: 40 laws of other fields and of well-known benchmarks, likewise; failures on
               the first, third, ... were looked at, the second, fourth, ... (``--first 1 --every 2``) are only counted
``empirical``  Planck's and Rydberg's laws as in EmpiricalBench (M. Cranmer 2023, arXiv 2305.01582): the logarithm of
               what is measured, with 10 % and 1 % noise; found: as the law exact once its numbers, but for fractions,
               are fitted to values without noise, with no more of them than the law has, and of its size
``tables``     Friedman's 1 to 3, diabetes, wine (its kind, as a number), a pendulum with friction, splines, and
               Nikuradse's pipe (``--nikuradse FILE``, or downloaded): R2 of a quarter of the rows that was kept aside,
               of a formula of at most 50 nodes
=============  ====================================================================================================

Peers (``pip install pyoperon gplearn``) get the same rows, seconds and threads, and are judged alike, but for
pyoperon, which computes in float32 and may have errors of 1e-5, and whose scale and offset, 4 nodes, do not count;
gplearn knows no limit of time and is asked for one generation after another. ``--cpu`` counts seconds of processor
time, for machines that do other things as well; it wants ``--threads 1`` and no peers.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import time
import types
import warnings
from pathlib import Path

import numpy as np
from scipy.integrate import solve_ivp
from scipy.interpolate import CubicSpline
from timing import to_record

import exprkit as ek
from exprkit.operators import ops
from exprkit.regression.estimator import regressor
from exprkit.regression.formulas.parameters import as_parameters, is_fraction
from exprkit.regression.formulas.simplify import simplified
from exprkit.runtime import budget
from exprkit.study import records
from exprkit.text.tokens import OPERATOR

ROOT = Path(__file__).resolve().parent.parent
TRAIN, FRESH = 400, 200
MOST_NODES = 50  # of a formula for a table
BASE = "m", "s", "kg", "K", "V"  # what units are exponents of


# ── data ──


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


def unit_text(exponents):
    """As a user writes it."""
    return "*".join(f"{name}^{power}" for name, power in zip(BASE, exponents, strict=True) if power) or "1"


def planck(n, random):
    """Frequency and temperature; logarithm of the spectral radiance."""
    X = np.exp(random.uniform(np.log([1e9, 100]), np.log([1e16, 6000]), (3 * n, 2)))
    u = 6.62607015e-34 * X[:, 0] / (1.380649e-23 * X[:, 1])
    X, u = X[u < 600][:n], u[u < 600][:n]
    return X, np.log(2 * 6.62607015e-34 / 2.99792458e8**2 * X[:, 0] ** 3 / np.expm1(u))


def rydberg(n, random):
    """Two quantum numbers; logarithm of the wavelength."""
    pairs = np.array([(a, b) for a in range(1, 8) for b in range(a + 1, 8)], float)
    X = pairs[random.integers(0, len(pairs), n)]
    return X, -np.log(1.0973731568e7 * (1 / X[:, 0] ** 2 - 1 / X[:, 1] ** 2))


EMPIRICAL = {"planck": (planck, 100, 0.1, 24, 2), "rydberg": (rydberg, 50, 0.01, 21, 1)}  # rows, noise, nodes, numbers


def pendulum(random, n=500):
    """First angle, friction and time; the angle then, by the differential equation, with 1 % noise."""
    X = random.uniform([0.3, 0.05, 0.0], [3.0, 0.5, 10.0], (n, 3))

    def slopes(_, state):  # of all pendulums at once: each one's time goes from 0 to 1
        angle, speed = state.reshape(2, n)
        return np.concatenate([X[:, 2] * speed, -X[:, 2] * (np.sin(angle) + X[:, 1] * speed)])

    first = np.concatenate([X[:, 0], np.zeros(n)])
    y = solve_ivp(slopes, (0.0, 1.0), first, rtol=1e-8, atol=1e-10, t_eval=[1.0]).y[:n, 0]
    return X, y + 0.01 * np.std(y) * random.standard_normal(n)


def splines(random, n=500):
    """Four variables; two splines and the product of two others, with 10 % noise."""
    knots = np.random.default_rng(5).standard_normal((4, 6))
    X = random.uniform(size=(n, 4))
    a, b, c, d = (CubicSpline(np.linspace(0, 1, 6), knots[k])(X[:, k]) for k in range(4))
    y = a + b + c * d
    return X, y + 0.1 * np.std(y) * random.standard_normal(n)


def tables(nikuradse, random_state=0):
    """By name X and y of data whose law nobody knows, or that is none."""
    from sklearn import datasets

    found = {f"friedman{k}": getattr(datasets, f"make_friedman{k}")(
                 n_samples=500, noise=noise, random_state=random_state)
             for k, noise in ((1, 1.0), (2, 50.0), (3, 0.1))}  # fmt: skip
    found["diabetes"] = datasets.load_diabetes(return_X_y=True)
    found["wine"] = datasets.load_wine(return_X_y=True)
    for made in (pendulum, splines):
        found[made.__name__] = made(np.random.default_rng([random_state, 11]))
    try:
        points = np.genfromtxt(nikuradse, delimiter=",", skip_header=1) if nikuradse else None
        pipe = ek.data.nikuradse() if points is None else None
        found["nikuradse"] = (pipe.X, pipe.y) if points is None else (points[:, :-1], points[:, -1])
    except (OSError, ImportError, ek.errors.DataError) as error:
        print(f"nikuradse is left out: {error}")
    return found


# ── who searches ──


def by_exprkit(X, y, seed, arguments, units=None, most=30):
    """What predicts, its formula as an Expression, and how many candidates were tried."""
    model = ek.SymbolicRegressor(
        timeout_in_seconds=arguments.seconds, niterations=1_000_000, random_state=seed, n_jobs=arguments.threads,
        pool_size=arguments.pool, dimensionless_constants_only=False, maxsize=most, backend=arguments.backend,
    )  # fmt: skip
    model.fit(X, y, **(units or {}))
    return model.predict, ek.parse([model.get_best().equation])[0], model.n_evals_


def by_pyoperon(X, y, seed, arguments, units=None, most=30):
    from pyoperon.sklearn import SymbolicRegressor

    model = SymbolicRegressor(
        allowed_symbols="add,sub,mul,div,square,sqrt,exp,log,sin,cos,tanh,constant,variable", max_length=most,
        optimizer_iterations=8, max_time=max(round(arguments.seconds), 1), generations=10**9, max_evaluations=10**12,
        n_threads=arguments.threads or 0, random_state=seed + 1,
    )  # fmt: skip
    model.fit(X, y)
    text = model.get_model_string(model.model_, precision=17).replace("square", "sqr")
    names = [f"X{k + 1}" for k in range(X.shape[1])]
    tried = getattr(model, "stats_", {}).get("evaluation_count", -1)
    return model.predict, simplified(ek.parse([text], variables=names)[0]), tried


def by_gplearn(X, y, seed, arguments, units=None, most=30):
    from gplearn.functions import make_function
    from gplearn.genetic import SymbolicRegressor

    more = [make_function(function=function, name=function.__name__, arity=1) for function in (tanh, exp, sqr)]
    model = SymbolicRegressor(
        function_set=("add", "sub", "mul", "div", "sqrt", "log", "sin", "cos", *more), generations=1,
        warm_start=True, random_state=seed, n_jobs=arguments.threads or -1,
    )  # fmt: skip
    begin = time.perf_counter()
    while time.perf_counter() - begin < arguments.seconds:
        model.fit(X, y)
        model.set_params(generations=model.generations + 1)
    text = str(model._program)
    for name in sorted((f"X{k}" for k in range(X.shape[1])), reverse=True):  # X10 before X1
        text = text.replace(name, f"x{int(name[1:]) + 1}")
    return model.predict, ek.parse([text])[0], model.population_size * (model.generations - 1)


def tanh(x):
    return np.tanh(x)


def exp(x):
    return np.exp(np.clip(x, -100, 100))  # gplearn wants functions that are defined everywhere


def sqr(x):
    return np.square(x)


SEARCHES = {"exprkit": by_exprkit, "pyoperon": by_pyoperon, "gplearn": by_gplearn}


# ── what counts ──


def nodes(formula):
    """Tokens, with ``^`` for squares of squares."""
    square, found, before = ops.BY_NAME["sqr"].code, formula.n_tokens, False
    for kind, value in zip(formula.kinds.tolist(), formula.values.tolist(), strict=True):
        is_square = kind == OPERATOR and value == square
        found += (is_square and not before) - (is_square and before)
        before = is_square
    return found


def relative_error(predict, X, y):
    with np.errstate(all="ignore"):
        return np.nan_to_num(np.abs(predict(X) / y - 1), nan=np.inf)


def of_law(law, seed, search, arguments):
    random = np.random.default_rng([seed, 7])
    X, y = sample(law, TRAIN + FRESH, random)
    n = len(y) * TRAIN // (TRAIN + FRESH)
    target = y[:n] + arguments.noise * np.sqrt(np.mean(y[:n] ** 2)) * random.standard_normal(n)
    units = {"X_units": [unit_text(variable["units"]) for variable in json.loads(law["variables"])],
             "y_units": unit_text(json.loads(law["target_units"]))}  # fmt: skip
    predict, formula, tried = search(X[:n], target, seed, arguments, units if arguments.units else None)
    error = relative_error(predict, X[n:], y[n:])
    exact, spare = (1e-5, 4) if search is by_pyoperon else (1e-8, 0)  # float32; its scale and offset
    limit = exact + 3 * arguments.noise / np.sqrt(TRAIN)
    close = (np.median(error) if arguments.noise else error.max()) < limit
    return close and nodes(formula) - spare <= 1.2 * int(law["nodes"]), "", tried, formula


def of_empirical(name, seed, search, arguments):
    make, n, noise, most, numbers = EMPIRICAL[name]
    random = np.random.default_rng([seed, 7])
    X, y = make(n, random)
    predict, formula, tried = search(X, y + np.log1p(noise * random.standard_normal(len(y))), seed, arguments)
    X, y = make(FRESH, random)
    error = float(np.abs(predict(X) - y).max())
    pop, params = as_parameters(ek.parse([formula]), held=is_fraction)
    exact = ek.fit(pop, X, y, init=params if pop.max_params else None, dtype="float64", backend="cpu", tol=1e-15)
    is_law = np.abs(exact.predict(X)[0] - y).max() < 1e-6 and pop.max_params <= numbers
    return bool(is_law and nodes(formula) <= 1.2 * most), error, tried, formula


def of_table(data, seed, search, arguments):
    X, y = data
    order = np.random.default_rng([seed, 7]).permutation(len(y))
    train, test = order[len(y) // 4 :], order[: len(y) // 4]
    predict, formula, tried = search(X[train], y[train], seed, arguments, None, MOST_NODES)
    r2 = 1 - np.mean((predict(X[test]) - y[test]) ** 2) / np.var(y[test])
    return nodes(formula) <= MOST_NODES, float(r2), tried, formula


def tasks(arguments):
    """Name, difficulty, nodes and what is to be called."""
    if "laws" in arguments.sets:
        with open(arguments.laws, encoding="utf-8") as file:
            for law in list(csv.DictReader(file))[arguments.first :: arguments.every]:
                yield law["law"], law["difficulty"], law["nodes"], of_law, law
    if "empirical" in arguments.sets:
        for name in EMPIRICAL:
            yield name, "empirical", EMPIRICAL[name][3], of_empirical, name
    if "tables" in arguments.sets:
        for name, data in tables(arguments.nikuradse, getattr(arguments, "random_state", 0)).items():
            yield name, "table", MOST_NODES, of_table, data


def measured(task, who, seed, arguments):
    name, difficulty, most, call, what = task
    begin = budget.time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, value, tried, formula = call(what, seed, SEARCHES[who], arguments)
    return {
        "what": name, "difficulty": difficulty, "by": who, "seed": seed, "noise": arguments.noise,
        "units": int(arguments.units), "threads": arguments.threads or "all", "limit": arguments.seconds,
        "found": int(found), "value": value, "seconds": round(budget.time.perf_counter() - begin, 2), "tried": tried,
        "nodes": nodes(formula), "nodes_written": most, "equation": str(formula),
    }  # fmt: skip


def report(rows):
    for who in dict.fromkeys(row["by"] for row in rows):
        for table in (False, True):
            some = [row for row in rows if row["by"] == who and (row["difficulty"] == "table") == table]
            if not some:
                continue
            seconds, size = np.mean([row["seconds"] for row in some]), np.mean([row["nodes"] for row in some])
            what = f"mean R2 {np.mean([row['value'] for row in some]):.3f}" if table else (
                f"{sum(row['found'] for row in some)} of {len(some)} found")  # fmt: skip
            print(f"{who}: {what}; mean {seconds:.2f} s, {size:.1f} nodes")


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--pool", type=int, default=None, help="functions of the last pool, by default the search's")
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--units", action="store_true")
    parser.add_argument("--cpu", action="store_true", help="seconds of processor time")
    parser.add_argument("--sets", nargs="+", default=["laws"], choices=["laws", "empirical", "tables"])
    parser.add_argument("--peers", nargs="*", default=[], choices=["pyoperon", "gplearn"])
    parser.add_argument("--every", type=int, default=1, help="only every so many-th law")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--laws", default=str(ROOT / "data" / "laws.csv"))
    parser.add_argument("--nikuradse", default=None, help="a CSV file, target last")
    parser.add_argument("--csv", type=to_record)
    return parser.parse_args()


def main():
    arguments = options()
    if arguments.cpu:
        budget.time = regressor.time = types.SimpleNamespace(perf_counter=time.process_time)
    who = ["exprkit"]
    for peer in arguments.peers:
        if importlib.util.find_spec(peer) is None:
            print(f"{peer} is not installed, and left out: pip install {peer}")
        else:
            who.append(peer)
    warm = ek.SymbolicRegressor(niterations=2, pool_size=300, population_size=50, random_state=0)
    X = np.random.default_rng(0).uniform(1, 2, (30, 2))
    warm.fit(X, X[:, 0] + np.random.default_rng(1).standard_normal(30))
    warm.fit(X, X[:, 0], X_units=["m", "s"])
    rows = []
    for seed in range(arguments.seeds):
        for task in tasks(arguments):
            for one in who:
                rows.append(row := measured(task, one, seed, arguments))
                value = f"{row['value']:.4f}" if row["value"] != "" else ("found" if row["found"] else "")
                shown = (row[name] for name in ("by", "what", "seed", "seconds", "tried", "nodes", "equation"))
                print(f"{value:7}", *shown, sep=" | ", flush=True)
                if arguments.csv:  # also what there is of a run that is ended
                    records.write_rows(arguments.csv, rows)
    report(rows)


if __name__ == "__main__":
    main()
