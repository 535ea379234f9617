"""NIST's nonlinear regression problems by exprkit, SciPy and lmfit: digits of what is certified, with defaults.

    python tests/bench_nist.py --csv data/results/nist.csv    # needs scipy, lmfit and ../shared/data/bench

The 27 problems of the Statistical Reference Datasets (StRD, NIST, public domain) from both published starts and, where
a program begins by itself, from none.  Digits are -log10(|value - certified| / |certified|), of a problem the least of
its parameters, at most the 11 that are printed; terms that may change places are in NIST's order, and signs that change
nothing are not compared.  Seconds are of a second call, with the standard errors.  SciPy and lmfit fit NumPy functions.
Fits in one call are all problems from both starts, by ``ek.fit_many``.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import time
import warnings

import numpy as np
import pandas as pd
import sympy
from bench_laws import ROOT
from timing import listed, to_record

import exprkit as ek

PRINTED = 11  # digits of NIST's certified values
TERMS = {  # numbers of parameters that may change places with those of another term
    "Lanczos": [(0, 1), (2, 3), (4, 5)], "MGH17": [(1, 3), (2, 4)], "Gauss": [(2, 3, 4), (5, 6, 7)],
    "ENSO": [(3, 4, 5), (6, 7, 8)],
}  # fmt: skip


def problems(folder):
    """Name, level, formula, X, y, starts, certified parameters, standard errors and sum of squares of each."""
    tables = dict(tuple(pd.read_csv(folder / "nist_strd_data.csv").groupby("name")))
    for row in pd.read_csv(folder / "nist_strd.csv").to_dict("records"):
        table = tables[row["name"]].drop(columns="name").dropna(axis=1)
        starts = [json.loads(row[name]) for name in ("start1", "start2")]
        certified = [np.array(json.loads(row[name])) for name in ("certified", "standard_errors")]
        y = table.pop("y").to_numpy(float)
        yield row, table.to_numpy(float), np.log(y) if row["log_y"] else y, starts, (*certified, row["rss"])


def orders(name, n):
    """The orders of parameters by which a formula stays the same."""
    terms = next((terms for family, terms in TERMS.items() if name.startswith(family)), [])
    for order in itertools.permutations(terms):
        places = np.arange(n)
        places[np.array(terms, int).ravel()] = np.array(order, int).ravel()
        yield places


def digits(value, certified):
    with np.errstate(all="ignore"):
        off = np.abs(np.abs(value) - np.abs(certified)) / np.abs(certified)
        return float(np.clip(np.nan_to_num(-np.log10(off), nan=0.0, posinf=PRINTED), 0, PRINTED).min())


def judged(name, found, certified):
    """The digits of parameters, standard errors and sum of squares, in the order of the parameters that fits best."""
    p, errors, rss = found
    best = max(orders(name, len(p)), key=lambda order: digits(p[order], certified[0]))
    pairs = (p[best], certified[0]), (errors[best], certified[1]), (rss, certified[2])
    return [round(digits(*pair), 2) for pair in pairs]


def programs(formula, X, y, backends):
    """Name, version and fit of every program: a start, or None, to parameters, standard errors and sum of squares."""
    import lmfit
    from scipy import optimize

    expression = ek.parse(formula)[0]
    names = [f"p{k + 1}" for k in range(ek.parse(formula).max_params)]
    variables = [f"x{k + 1}" for k in range(X.shape[1])]
    by_name = {symbol.name: symbol for symbol in expression.sympy().free_symbols}
    symbols = [by_name.get(name, sympy.Symbol(name)) for name in (*variables, *names)]
    values = sympy.lambdify(symbols, expression.sympy(), "numpy")

    def residuals(p):
        return values(*X.T, *p) - y

    def own(backend):
        def fit(start):
            found = ek.fit(formula, X, y, init=None if start is None else [start], dtype="float64", backend=backend)
            return found.params[0], found.standard_errors[0], found.loss[0]

        return fit

    def certified(start):
        init = None if start is None else [start]
        table = ek.fit(formula, X, y, init=init, dtype="float64", backend="cpu")[0].certify()
        values, errors = table["value"].astype(float).to_numpy(), table["error"][:-1].astype(float).to_numpy()
        return values[:-1], errors, values[-1]

    def curve_fit(start):
        if start is None:
            start = np.ones(len(names))  # SciPy's, where the function names its parameters
        p, covariance = optimize.curve_fit(lambda X, *p: values(*X, *p), X.T, y, start)
        return p, np.sqrt(np.diag(covariance)), np.sum(residuals(p) ** 2)

    def least_squares(start):
        found = optimize.least_squares(residuals, start)
        variance = 2 * found.cost / (len(y) - len(names))
        return found.x, np.sqrt(np.diag(np.linalg.inv(found.jac.T @ found.jac)) * variance), 2 * found.cost

    def by_lmfit(start):
        params = lmfit.create_params(**dict(zip(names, start, strict=True)))
        found = lmfit.minimize(lambda params: residuals([params[name].value for name in names]), params)
        errors = [found.params[name].stderr for name in names]
        return np.array([found.params[name].value for name in names]), np.array(errors, float), found.chisqr

    scipy, of_lmfit = (importlib.metadata.version(name) for name in ("scipy", "lmfit"))
    for backend in backends:
        yield f"exprkit, {backend}", ek.__version__, own(backend)
    yield "exprkit, certified", ek.__version__, certified
    yield "SciPy, curve_fit", scipy, curve_fit
    yield "SciPy, least_squares", scipy, least_squares
    yield "lmfit, minimize", of_lmfit, by_lmfit


def measured(folder, backends, only):
    for row, X, y, starts, certified in problems(folder):
        if only and row["name"] not in only:
            continue
        for (name, version, fit), (start, init) in itertools.product(
            list(programs(row["formula"], X, y, backends)), [("1", starts[0]), ("2", starts[1]), ("none", None)]
        ):
            if init is None and name in ("SciPy, least_squares", "lmfit, minimize"):
                continue
            try:
                found = fit(init)
                begin = time.perf_counter()
                found = fit(init)
                seconds = time.perf_counter() - begin
                of = judged(row["name"], found, certified)
            except (RuntimeError, ValueError, np.linalg.LinAlgError):  # it says that it found nothing
                of, seconds = [0.0, 0.0, 0.0], np.nan
            yield line(row, start, name, version, of, seconds)


def measured_together(folder, backends, only):
    """All problems from both starts in one call of each backend; seconds are a fit's share."""
    every = [
        (row, X, y, str(k), init, certified)
        for row, X, y, starts, certified in problems(folder)
        for k, init in enumerate(starts, 1)
        if not only or row["name"] in only
    ]
    for backend in backends:
        for _ in range(2):
            begin = time.perf_counter()
            found = ek.fit_many(
                [{"pop": row["formula"], "X": X, "y": y, "init": [init]} for row, X, y, _, init, _ in every],
                backend=backend,
            )
            ends = [(one.params[0], one.standard_errors[0], one.loss[0]) for one in found]
            seconds = (time.perf_counter() - begin) / len(every)
        for (row, _, _, start, _, certified), end in zip(every, ends, strict=True):
            of = judged(row["name"], end, certified)
            yield line(row, start, f"exprkit, {backend}, {len(every)} fits in one call", ek.__version__, of, seconds)


def line(row, start, program, version, of, seconds):
    return {
        "problem": row["name"], "level": row["level"], "start": start, "program": program, "version": version,
        "digits": of[0], "digits_of_errors": of[1], "digits_of_squares": of[2], "seconds": round(seconds, 5),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=ROOT.parent / "shared" / "data" / "bench", help="folder of nist_strd*.csv")
    parser.add_argument("--backends", nargs="+", default=["cpu", "numpy"], help="of exprkit")
    parser.add_argument("--only", nargs="*", help="names of problems")
    parser.add_argument("--together", action="store_true", help="the fits in one call alone")
    parser.add_argument("--csv", type=to_record)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    given = ROOT / arguments.data, arguments.backends, arguments.only
    ways = [measured_together] if arguments.together else [measured, measured_together]
    listed(itertools.chain.from_iterable(way(*given) for way in ways), arguments.csv, width=20)


if __name__ == "__main__":
    main()
