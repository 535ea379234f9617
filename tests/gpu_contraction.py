"""What contraction would bring to ``ptx``: ``PYTHONPATH=. python tests/gpu_contraction.py --out data/results``.

The thesis left open what fused multiplication and addition gains.  Here ptxas may fuse them, because sums and products
say no rounding mode, and beside it may not, as everywhere in exprkit: times of losses by the device's clock, and
errors against float64.  Writes ``contraction.csv``.
"""

from __future__ import annotations

import argparse
import re

import cupy
import numpy as np
import timing
from gpu_ptx_speed import data, params_of, target, thesis, trees

import exprkit as ek
from exprkit.backends.transpiler import emit, operator_ptx

TABLE = timing.Table(width=60)
POINTS = 10_860


def fused(settings, dtype):
    """The operators with sums and products that may be contracted."""
    made = operator_ptx.bodies(settings, dtype)
    texts = {code: re.sub(r"\b(add|sub|mul)\.rn", r"\1", body.text) for code, body in made.of.items()}
    return made._replace(of={code: body._replace(text=texts[code]) for code, body in made.of.items()})


def error(found, exact):
    """Median and 99th percentile of the relative error of losses that are finite."""
    good = np.isfinite(found) & np.isfinite(exact) & (exact > 0)
    return np.quantile(np.abs(found[good] - exact[good]) / exact[good], [0.5, 0.99])


def compare(name, pop):
    """Losses of a population without and with contraction, side by side."""
    X, params, y = data(POINTS, max(pop.n_vars, 1)), params_of(pop)[0], target(POINTS)
    exact = ek.Evaluator(pop, X, "cuda", dtype="float64").loss(params, y.get().astype(float))
    X, params = cupy.asarray(X), cupy.asarray(params)
    found = {}
    for what, bodies in (("apart", operator_ptx.bodies), ("fused", fused)):
        emit.bodies = bodies
        ev = ek.Evaluator(pop, X, "ptx", precision="fast")
        found[what] = ev.loss_of(y), ev.loss(params, y).get().astype(float)
    emit.bodies = operator_ptx.bodies
    times = {what: [] for what in found}
    for _ in range(5):
        for what, (step, _) in found.items():
            times[what].append(timing.microseconds(lambda step=step: step(params)))
    for what, (_, losses) in found.items():
        middle, most = error(losses.ravel(), np.asarray(exact).ravel())
        TABLE.report(f"{name}, {what}", np.median(times[what]), "us", note=f"error {middle:.2g}, 99 % below {most:.2g}")
    TABLE.report(f"{name}, fused beside apart", np.median(times["fused"]) / np.median(times["apart"]), "times")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=timing.to_record)
    chosen = parser.parse_args()
    compare("thesis's expressions", thesis())
    compare("random trees", trees("thesis"))
    compare("trees of + - * /", trees(["+", "-", "*", "/"]))
    compare("trees of + - *", trees(["+", "-", "*"]))
    if chosen.out:
        TABLE.write(chosen.out / "contraction.csv")
