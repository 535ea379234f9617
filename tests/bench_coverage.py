"""How often intervals of 95 % hold the parameter: by the delta method and by profiles, in simulated data.

    python tests/bench_coverage.py --csv data/results/coverage.csv
    python tests/bench_coverage.py --choices 100 --csv data/results/coverage_choices.csv
    python tests/bench_coverage.py --search 120 --csv data/results/coverage_search.csv

Twenty formulas, three numbers of points along x1, normal errors of 5 % of the curve's range; fits begin at the truth.
All data sets of a formula are one population: f - e, with the errors e as a column, is fitted to the curve as f is to
curve + e.  A profile's interval holds the truth where fixing a parameter at it raises the deviance by no more than
Student's t squared.

With ``--choices``: how often bands of 95 % hold the curve exp(x1 / 2) at seven points from 0 to 1.5, in so many data
sets of 20 points from 0 to 1, where the formula was chosen among several by the same data.

With ``--search``: how often bands of 95 % hold the curve at seven points, the last beyond the data by a quarter of
their span, in so many data sets of 40 points, where ``SymbolicRegressor`` found the formula in the same data.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os

import numpy as np
from scipy import stats
from timing import listed, to_record

import exprkit as ek
from exprkit.errors import ArgumentError
from exprkit.regression.formulas.parameters import as_parameters

LEVEL = 0.95
NOISE = 0.05  # of the range of the curve: standard deviation of an error
POINTS = (10, 25, 100)
MODELS = {  # formula, parameters, range of x1
    "line": ("p1 + p2 * x1", (1, 2), (0, 5)),
    "parabola": ("p1 + p2 * x1 + p3 * x1^2", (1, -2, 0.5), (0, 5)),
    "exponential decay": ("p1 * exp(-p2 * x1)", (5, 0.7), (0, 5)),
    "decay to a constant": ("p1 * exp(-p2 * x1) + p3", (5, 0.7, 1), (0, 5)),
    "two decays": ("p1 * exp(-p2 * x1) + p3 * exp(-p4 * x1)", (5, 3, 4, 0.4), (0, 5)),
    "exponential growth": ("p1 * exp(p2 * x1)", (0.5, 0.6), (0, 5)),
    "saturation": ("p1 * (1 - exp(-p2 * x1))", (5, 0.7), (0, 5)),
    "Michaelis-Menten": ("p1 * x1 / (p2 + x1)", (5, 1.5), (0.1, 6)),
    "Hill": ("p1 * x1^p3 / (p2^p3 + x1^p3)", (5, 2, 2.5), (0.2, 6)),
    "power law": ("p1 * x1^p2", (2, 1.7), (0.2, 5)),
    "power law and constant": ("p1 + p2 * x1^p3", (1, 2, 0.6), (0.2, 5)),
    "logistic": ("p1 / (1 + exp(-p2 * (x1 - p3)))", (5, 1.5, 2.5), (0, 5)),
    "Gompertz": ("p1 * exp(-p2 * exp(-p3 * x1))", (5, 4, 1.2), (0, 5)),
    "Gaussian peak": ("p1 * exp(-((x1 - p2) / p3)^2 / 2)", (5, 2.5, 0.8), (0, 5)),
    "Lorentzian peak": ("p1 / (1 + ((x1 - p2) / p3)^2)", (5, 2.5, 0.8), (0, 5)),
    "sine": ("p1 * sin(p2 * x1 + p3)", (2, 1.8, 0.4), (0, 5)),
    "damped oscillation": ("p1 * exp(-p2 * x1) * cos(p3 * x1)", (4, 0.4, 2.5), (0, 5)),
    "logarithm": ("p1 + p2 * log(x1 + p3)", (1, 2, 0.5), (0, 5)),
    "rational": ("(p1 + p2 * x1) / (1 + p3 * x1)", (1, 2, 0.5), (0, 5)),
    "Arrhenius": ("p1 * exp(-p2 / x1)", (8, 2), (0.5, 4)),
}  # fmt: skip


def covered(text, truth, x, n_sets, seed):
    """How many intervals of each parameter hold the truth, by delta and by profile, and the sets that were fitted."""
    truth = np.array(truth, float)
    curve = ek.parse(text)[0](x[:, None], truth)
    errors = NOISE * np.ptp(curve) * np.random.default_rng(seed).standard_normal((len(x), n_sets))
    X = np.column_stack([x, errors])
    pop = ek.parse([f"{text} - x{k + 2}" for k in range(n_sets)])
    settings = {"init": np.tile(truth, (n_sets, 1)), "dtype": "float64", "tol": 1e-12, "accuracy": "screen"}
    free = ek.fit(pop, X, curve, **settings)
    degrees = len(x) - len(truth)
    reach = stats.t.ppf((1 + LEVEL) / 2, degrees)
    with np.errstate(invalid="ignore"):
        by_delta = np.abs(free.params - truth) <= reach * free.standard_errors
    by_profile = np.zeros_like(by_delta)
    for j, value in enumerate(truth):
        side = np.full(len(truth), np.inf)
        side[j] = value
        fixed = ek.fit(pop, X, curve, bounds=(np.where(np.isinf(side), -np.inf, side), side), **settings)
        by_profile[:, j] = fixed.loss - free.loss <= reach**2 * free.loss / degrees
    good = np.isfinite(free.loss)
    return by_delta[good], by_profile[good]


NEW = np.linspace(0, 1.5, 7)[:, None]
REFITS = 200  # of a bootstrap that repeats the choice
SETTINGS = {"loss": "gaussian", "dtype": "float64", "backend": "cpu", "threads": 1}
ALIKE = ["p1 + p2 * x1", "p1 * exp(p2 * x1)", "p1 + p2 * x1^2", "p1"]


def chosen(pop, x, y, **settings):
    """The number of the formula that has the least BIC, and the fit of all."""
    found = ek.fit(pop, x, y, **SETTINGS, **settings)
    return int(np.nanargmin(np.where(np.isfinite(found.score("bic")), found.score("bic"), np.nan))), found


def ends(band):
    return band["lower"].to_numpy(), band["upper"].to_numpy()


def own_ends(fitted, new):
    """Ends of a formula's own band; nan where it or its derivatives are not finite at the data it was fitted to."""
    try:
        return ends(fitted.bands(new, LEVEL))
    except ArgumentError:
        return np.full((2, len(new)), np.nan)


def bands_of(pop, x, y, seed):
    """Lower and upper ends of bands at ``NEW``, by the way to them."""
    best, found = chosen(pop, x, y)
    yield "the best", ends(found[[best]].average(NEW, LEVEL))
    yield "average by bic", ends(found.fold().average(NEW, LEVEL))
    if len(pop) <= len(ALIKE):
        yield "average by stacking", ends(found.average(NEW, LEVEL, by="stacking"))
    random = np.random.default_rng([seed, 1])
    half = np.isin(np.arange(len(y)), random.permutation(len(y))[::2])
    best, _ = chosen(pop, x[half], y[half])
    other = ek.fit(pop[[best]], x[~half], y[~half], **SETTINGS)
    yield "the best of one half, fitted to the other", ends(other.average(NEW, LEVEL))
    drawn = np.empty((REFITS, len(NEW)))
    for k in range(REFITS):
        rows = random.integers(0, len(y), len(y))
        best, refit = chosen(pop, x[rows], y[rows], init=np.nan_to_num(found.params), accuracy="screen")
        drawn[k] = refit.predict(NEW, best)
    yield "bootstrap that repeats the choice", np.nanquantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)


def choices(n_sets):
    every = ek.generate.exhaustive(6, ["+", "*", "exp"], variables=1)
    x, truth = np.linspace(0, 1, 20)[:, None], np.exp(NEW[:, 0] / 2)
    for pop in (ek.parse(ALIKE), every):
        holds = {}
        for seed in range(n_sets):
            y = np.exp(x[:, 0] / 2) + 0.08 * np.random.default_rng(seed).standard_normal(len(x))
            for way, (lower, upper) in bands_of(pop, x, y, seed):
                holds.setdefault(way, []).append((lower <= truth) & (truth <= upper))
        for way, held in holds.items():
            share = 100 * np.mean(held, axis=0)
            yield {
                "formulas": len(pop), "method": way, "points": len(x), "data_sets": n_sets,
                "coverage": round(share.mean(), 1), "least": round(share.min(), 1), "most": round(share.max(), 1),
            }  # fmt: skip


SEARCHED = ("exponential decay", "Michaelis-Menten", "parabola")
SEARCH = {"max_evals": 5_000_000, "unary_operators": ["exp"], "maxsize": 13, "deterministic": True, "n_jobs": 1}


def formulas_of(x, y, seed):
    """The formulas of a search's front with parameters for their numbers, these, and the number of the chosen one."""
    table = ek.SymbolicRegressor(**SEARCH, random_state=seed).fit(x, y).equations_
    pop, numbers = as_parameters(ek.parse(table["equation"].tolist()))
    return pop, numbers, int(np.argmax(table["selected"]))


def bands_after_search(case):
    """Whether bands hold the curve at seven points, by the way to them, in a data set of a law."""
    name, seed = case
    text, truth, (low, high) = MODELS[name]
    x = np.linspace(low, high, 40)[:, None]
    new = np.linspace(low, high + (high - low) / 4, 7)[:, None]
    law, random = ek.parse(text)[0], np.random.default_rng([seed, SEARCHED.index(name)])
    exact, curve = law(x, truth), law(new, truth)
    y = exact + NOISE * np.ptp(exact) * random.standard_normal(len(x))
    pop, numbers, best = formulas_of(x, y, seed)
    found = ek.fit(pop, x, y, init=np.nan_to_num(numbers), **SETTINGS)
    each = [own_ends(fitted, new) for fitted in found]
    has_band = [i for i, (lower, _) in enumerate(each) if np.isfinite(lower).all()]
    bands = {"the chosen one": each[best], "average by bic": ends(found[has_band].average(new, LEVEL))}
    half = np.isin(np.arange(len(y)), random.permutation(len(y))[::2])
    own, start, best = formulas_of(x[half], y[half], seed)
    own, start = own[[best]], start[[best]]
    other = ek.fit(own, x[~half], y[~half], init=np.nan_to_num(start[:, : own.max_params]), **SETTINGS)
    bands["chosen by one half, fitted to the other"] = own_ends(other[0], new)
    drawn = np.empty((REFITS, len(new)))
    for k in range(REFITS):
        rows = random.integers(0, len(y), len(y))
        best, refit = chosen(pop, x[rows], y[rows], init=np.nan_to_num(found.params), accuracy="screen")
        drawn[k] = refit.predict(new, best)
    tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    bands["bootstrap that chooses in the front again"] = np.nanquantile(drawn, tails, axis=0)
    return name, {way: (lower <= curve) & (curve <= upper) for way, (lower, upper) in bands.items()}


def searches(n_sets, processes):
    cases = list(itertools.product(SEARCHED, range(n_sets)))
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        results = pool.map(bands_after_search, cases, chunksize=1)
    for name, way in itertools.product(SEARCHED, results[0][1]):
        share = 100 * np.mean([holds[way] for law, holds in results if law == name], axis=0)
        yield {
            "model": name, "method": way, "points": 40, "data_sets": n_sets,
            "coverage": round(share.mean(), 1), "least": round(share.min(), 1), "most": round(share.max(), 1),
        }  # fmt: skip


def measured(n_sets, only):
    for number, (name, (text, truth, span)) in enumerate(MODELS.items()):
        for n_points in POINTS if not only or name in only else ():
            both = covered(text, truth, np.linspace(*span, n_points), n_sets, [number, n_points])
            for method, holds in zip(("delta", "profile"), both, strict=True):
                share = 100 * holds.mean(axis=0)
                yield {
                    "model": name, "formula": text, "points": n_points, "method": method, "data_sets": len(holds),
                    "coverage": round(share.mean(), 2), "least": round(share.min(), 2), "most": round(share.max(), 2),
                }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=4000, help="simulated data sets of a formula")
    parser.add_argument("--only", nargs="*", help="names of formulas")
    parser.add_argument("--choices", type=int, help="data sets in which a formula is chosen; nothing else is measured")
    parser.add_argument("--search", type=int, help="data sets of a law that are searched; nothing else is measured")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="that search")
    parser.add_argument("--csv", type=to_record)
    arguments = parser.parse_args()
    if arguments.search:
        return listed(searches(arguments.search, arguments.processes), arguments.csv, width=24)
    rows = choices(arguments.choices) if arguments.choices else measured(arguments.sets, arguments.only)
    listed(rows, arguments.csv, width=24)


if __name__ == "__main__":
    main()
