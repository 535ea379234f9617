"""Fits beside pyoperon's and SciPy's: losses reached and time, from the same starts, on this machine.

    python tests/bench_fit_peers.py                       # a table, some minutes
    python tests/bench_fit_peers.py --csv fit_peers.csv   # and the same as a file

Needs ``pip install pyoperon==0.6.2 scipy``.  The expressions are parametric ones of up to 7 nodes, as
exhaustive symbolic regression makes them, on the synthetic measurements of rough pipes.
Everybody starts from the same parameters and may take 50 iterations; pyoperon and exprkit
compute in float32 (exprkit fits in float64 what overflows), SciPy in float64.  What each one
found is judged alike: by the sum of squares of the definition, in float64, at its parameters.
The best known loss of an expression is the least that anybody found, exprkit with restarts
included.  ``reached`` counts the expressions whose loss is at most 1 + 1e-6 times that.

Times are of one thread, fits only, methods taking turns; the ratio is pyoperon's time over ours.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from bench_peers import Pyoperon, walk
from timing import listed, seconds_of, to_record

import exprkit as ek
from exprkit.backends.cpu import engine as cpu_engine
from exprkit.backends.objective import Options
from exprkit.expressions.population import Population
from exprkit.text.tokens import PARAMETER

WITHIN = 1e-6
MAX_ITER = 50
RESTARTS = 8


def parametric(n: int, seed: int = 0) -> Population:
    """So many of the expressions of up to 7 nodes that have parameters."""
    pop = ek.generate.exhaustive(7, "esr")
    pop = pop[np.flatnonzero(pop.n_params > 0)]
    return pop[np.sort(np.random.default_rng(seed).choice(len(pop), min(n, len(pop)), replace=False))]


class Operon(Pyoperon):
    """pyoperon's Levenberg-Marquardt, tree by tree (the only way it has)."""

    def __init__(self, pop: Population, start: np.ndarray, X: np.ndarray, y: np.ndarray) -> None:
        super().__init__(pop, start, np.column_stack([X, y]).astype(np.float32))
        po = self.po
        self.orders = [_order(pop, i) for i in range(len(pop))]
        self.problem, self.table, self.random = po.Problem(self.dataset), po.DispatchTable(), po.RandomGenerator(1)
        self.problem.TrainingRange, self.problem.Target = self.range, self.dataset.Variables[-1]
        self.problem.InputHashes = self.hashes[:-1]
        self.optimizer = po.LMOptimizer(self.table, self.problem, max_iter=MAX_ITER)
        self.fit_one = po.CoefficientOptimizer(self.optimizer)

    def fit(self) -> list[object]:
        return [self.fit_one(self.random, tree)[1] for tree in self.trees]

    def params(self, width: int) -> np.ndarray:
        found = np.zeros((len(self.trees), width))
        for i, summary in enumerate(self.fit()):
            numbers = list(summary.FinalParameters)
            assert len(numbers) == len(self.orders[i]), "pyoperon optimises other numbers than the parameters"
            found[i, self.orders[i]] = numbers
        return found


def _order(pop: Population, i: int) -> list[int]:
    """The parameters of expression i in the order of pyoperon's nodes, operands from right to left."""

    def leaf(kind: int, value: Any) -> list[int]:
        return [value] if kind == PARAMETER else []

    return walk(pop, i, leaf, lambda row, operands: [j for operand in reversed(operands) for j in operand])


def scipy_params(pop: Population, start: np.ndarray, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """What scipy.optimize.least_squares (method "lm", float64, exact derivatives) finds, and its seconds."""
    from scipy.optimize import least_squares

    found, seconds = start.copy(), 0.0
    for i in range(len(pop)):
        n = int(pop.n_params[i])
        ev = ek.Evaluator(pop[[i]], X, "cpu", dtype="float64", threads=1)

        def residuals(p: np.ndarray, ev: ek.Evaluator = ev) -> np.ndarray:
            return np.nan_to_num(ev.evaluate(p[None])[0] - y, nan=1e30, posinf=1e30, neginf=-1e30)

        def jacobian(p: np.ndarray, ev: ek.Evaluator = ev) -> np.ndarray:
            return np.nan_to_num(ev.jacobian(p[None])[0], nan=0.0, posinf=1e30, neginf=-1e30)

        if not np.all(np.isfinite(ev.evaluate(start[i : i + 1, :n]))):
            continue  # SciPy does not begin there
        begin = time.perf_counter()
        found[i, :n] = least_squares(residuals, start[i, :n], jacobian, method="lm", max_nfev=MAX_ITER).x
        seconds += time.perf_counter() - begin
    return found, seconds


def ours_params(pop: Population, X: np.ndarray, y: np.ndarray, starts: np.ndarray) -> np.ndarray:
    return ek.fit(pop, X, y, init=starts, max_iter=MAX_ITER, backend="cpu", threads=1).params


def true_losses(pop: Population, params: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """By the definition: the sum of squares in float64, inf where it is not finite."""
    ev = ek.Evaluator(pop, X, "numpy", dtype="float64")
    loss = ev.loss(np.nan_to_num(params, nan=0.0), y)
    return np.where(np.isfinite(loss), loss, np.inf)


def compare(n_points: int, n_exprs: int, n_timed: int, n_scipy: int, rounds: int) -> list[dict[str, object]]:
    data = ek.data.rough_pipe().repeat_to(n_points)
    X, y = np.ascontiguousarray(data.X, np.float32), np.ascontiguousarray(data.y, np.float32)
    X64, y64 = X.astype(np.float64), y.astype(np.float64)
    pop = parametric(n_exprs)
    starts = np.random.default_rng(1).standard_normal((1 + RESTARTS, len(pop), pop.max_params)).astype(np.float32)
    starts = starts.astype(np.float64)
    options = Options(max_iter=MAX_ITER)
    found = {
        "exprkit": ours_params(pop, X, y, starts[:1]),
        f"exprkit, {RESTARTS} restarts": ours_params(pop, X, y, starts),
        "pyoperon": Operon(pop, starts[0], X, y).params(pop.max_params),
    }
    sample = np.sort(np.random.default_rng(2).choice(len(pop), min(n_scipy, len(pop)), replace=False))
    of_scipy, scipy_seconds = scipy_params(pop[sample], starts[0, sample], X64, y64)
    losses = {name: true_losses(pop, params, X64, y64) for name, params in found.items()}
    losses_of_scipy = true_losses(pop[sample], of_scipy, X64, y64)
    best = np.min(list(losses.values()), axis=0)
    best[sample] = np.minimum(best[sample], losses_of_scipy)
    timed = np.arange(min(n_timed, len(pop)))
    peer = Operon(pop[timed], starts[0, timed], X, y)
    ours = cpu_engine.Engine(pop[timed], X, precision="ieee", dtype=X.dtype, threads=1)
    start = np.ascontiguousarray(starts[:1, timed])
    ours.fit(start, y, None, options)
    pairs = [(seconds_of(peer.fit), seconds_of(lambda: ours.fit(start, y, None, options))) for _ in range(rounds)]
    of_peer, of_ours = (statistics.median(column) / len(timed) for column in zip(*pairs, strict=True))
    seconds = {"pyoperon": of_peer, "exprkit": of_ours, f"exprkit, {RESTARTS} restarts": float("nan")}

    def reached(loss: np.ndarray, which: np.ndarray) -> int:
        return int(np.sum((loss <= best[which] * (1 + WITHIN)) & np.isfinite(best[which])))

    every = np.arange(len(pop))
    rows: list[dict[str, object]] = []
    for name, loss in losses.items():
        rows.append({
            "n_points": n_points, "method": name, "expressions": len(pop), "reached": reached(loss, every),
            "of_sample": len(sample), "reached_of_sample": reached(loss[sample], sample),
            "us_per_fit": seconds[name] * 1e6, "ratio": of_peer / seconds[name],
        })  # fmt: skip
    rows.append({
        "n_points": n_points, "method": "scipy", "expressions": 0, "reached": 0, "of_sample": len(sample),
        "reached_of_sample": reached(losses_of_scipy, sample), "us_per_fit": scipy_seconds / len(sample) * 1e6,
        "ratio": of_peer / (scipy_seconds / len(sample)),
    })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-exprs", type=int, default=9880)
    parser.add_argument("--timed", type=int, default=500, help="expressions of a timed sample")
    parser.add_argument("--scipy", type=int, default=9880, help="expressions that SciPy fits as well")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--points", type=int, nargs="*", default=[362, 10_860])
    parser.add_argument("--csv", type=to_record, help="write the table to this file")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    listed(_all(arguments), arguments.csv, width=18)


def _all(arguments: argparse.Namespace) -> Iterator[dict[str, object]]:
    for n_points in arguments.points:
        few = 1 if n_points < 1000 else 10
        yield from compare(
            n_points, arguments.n_exprs // few, arguments.timed // few, arguments.scipy // few, arguments.rounds
        )


if __name__ == "__main__":
    main()
