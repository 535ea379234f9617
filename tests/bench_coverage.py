"""How often intervals of 95 % hold the parameter: by the delta method and by profiles, in simulated data.

    python tests/bench_coverage.py --csv data/results/coverage.csv

Twenty formulas, three numbers of points along x1, normal errors of 5 % of the curve's range; fits begin at the truth.
All data sets of a formula are one population: f - e, with the errors e as a column, is fitted to the curve as f is to
curve + e.  A profile's interval holds the truth where fixing a parameter at it raises the deviance by no more than
Student's t squared.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy import stats
from timing import listed, to_record

import exprkit as ek

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
    parser.add_argument("--csv", type=to_record)
    arguments = parser.parse_args()
    listed(measured(arguments.sets, arguments.only), arguments.csv, width=24)


if __name__ == "__main__":
    main()
