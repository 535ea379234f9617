"""How many of ODEBench's systems are recovered from one trajectory, in noise, and how many forecasts are right.

    python tests/bench_dynamics.py --noise 0 0.01 0.05 --csv FILE    # data/laws_odebench.csv

From 150 points of the first trajectory, t from 0 to 10, with noise as a share of each state's standard deviation.
A system is recovered when each right-hand side is, as in ``bench_recovery.py``, at the states of both trajectories;
``forecast`` is R2 of the second trajectory, simulated from its start.  Every search has one thread and counted work.
"""

from __future__ import annotations

import json
import time
import warnings

import numpy as np
from bench_recovery import is_recovered, searches
from scipy.integrate import solve_ivp

import exprkit as ek

TIMES = np.linspace(0, 10, 150)
ACCURATE = 1e-9


def path(law, start):
    """States (n_times, n_states) of a law from a start."""

    def slope(_, x):
        return ek.Evaluator(law, x[None], "numpy", dtype="float64").evaluate()[:, 0]

    return solve_ivp(slope, (0, TIMES[-1]), start, "LSODA", TIMES, rtol=ACCURATE, atol=ACCURATE).y.T


def measured(task):
    system, noise, seed, arguments = task
    warnings.simplefilter("ignore")
    formulas = json.loads(system["formulas"])
    law = ek.parse(formulas)
    first, second = (path(law, start) for start in json.loads(system["starts"]))
    random = np.random.default_rng(seed)
    x = first + noise * first.std(axis=0) * random.standard_normal(first.shape)
    search = ek.SymbolicRegressor(timeout_in_seconds=arguments.seconds, random_state=seed, deterministic=True, n_jobs=1)
    begin = time.process_time()
    model = ek.DynamicsRegressor(search).fit(x, TIMES[: len(x)])
    cpu_s = time.process_time() - begin
    states = np.concatenate([first, second])
    slopes = ek.Evaluator(law, states, "numpy", dtype="float64").evaluate()
    texts = list(model.equations_["equation"])
    right = [
        is_recovered(ek.parse(text, variables=model.feature_names_), {"formula": formula}, states, slope)
        for text, formula, slope in zip(texts, formulas, slopes, strict=True)
    ]
    on_fronts = [
        any(
            is_recovered(other, {"formula": formula}, states, slope)
            for other in ek.parse(list(front.equations_["equation"]), variables=model.feature_names_)
        )
        for front, formula, slope in zip(model.searches_, formulas, slopes, strict=True)
    ]
    forecast = model.simulate(second[0], TIMES[: len(second)])
    r2 = 1 - np.sum((forecast - second) ** 2) / np.sum((second - second.mean(axis=0)) ** 2)
    return {
        "law": system["law"],
        "noise": noise,
        "seed": seed,
        "seconds": arguments.seconds,
        "recovered": int(all(right)),
        "on_fronts": int(all(on_fronts)),
        "forecast": round(float(r2), 6),
        "cpu_s": round(cpu_s, 2),
        "formulas": "; ".join(model.equations(4)),
    }


def main():
    arguments, rows = searches(__doc__.splitlines()[0], measured, "laws_odebench.csv", [0.0, 0.01, 0.05])
    for noise in arguments.noise:
        told = [(row["recovered"], row["on_fronts"], row["forecast"] > 0.9) for row in rows if row["noise"] == noise]
        recovered, on_fronts, forecasts = np.sum(told, axis=0)
        print(
            f"noise {noise}: {recovered} of {len(told)} recovered, {on_fronts} on the fronts, "
            f"{forecasts} forecasts with R2 above 0.9"
        )


if __name__ == "__main__":
    main()
