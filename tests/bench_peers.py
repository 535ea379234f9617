"""Speed of the CPU backend beside pyoperon and NumPy, on this machine.

    python tests/bench_peers.py                    # a table, about two minutes
    python tests/bench_peers.py --csv peers.csv    # and the same as a file

Needs ``pip install pyoperon==0.6.2``.  Every result of a peer is compared with ours before
it is timed.  All methods run in turns, one sample each, and medians are shown; both sides
use the same number of threads.  A ratio is the peer's time over ours: above 1 we are faster.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

import exprkit as ek
from exprkit import ops
from exprkit.backends import cpu
from exprkit.population import CONSTANT, OPERATOR, VARIABLE, Population

SAMPLE_SECONDS = 0.05  # a sample repeats a short call for so long
F32 = np.dtype(np.float32)


# ── pyoperon ─────────────────────────────────────────────────────────────────────────


class Pyoperon:
    """A population as pyoperon's trees, node by node (its parser can't read all of it)."""

    def __init__(self, pop: Population, params: np.ndarray, X: np.ndarray) -> None:
        import pyoperon

        self.po = pyoperon
        self.X = np.asfortranarray(X)  # kept: the data set holds no reference
        self.dataset = pyoperon.Dataset(self.X)
        self.hashes = [variable.Hash for variable in self.dataset.Variables]
        self.range = pyoperon.Range(0, len(X))
        self.types = {row.code: self._type(row) for row in ops.OPERATORS}
        self.trees = [self._tree(pop, i, params[i]) for i in range(len(pop))]

    def evaluate(self, out: np.ndarray, threads: int) -> None:
        self.po.EvaluateTrees(self.trees, self.dataset, self.range, out, threads)

    def _type(self, row: ops.Operator) -> tuple[object, int]:
        """The node type and arity that mean the operator: by one of its names, or unary - and / ."""
        for name in (row.name, *row.aliases, "sub" if row.infix == "-" else "", "div" if row.name == "inv" else ""):
            if hasattr(self.po.NodeType, name.capitalize() or "-"):
                return getattr(self.po.NodeType, name.capitalize()), row.arity
        return None, row.arity

    def _tree(self, pop: Population, i: int, params: np.ndarray) -> object:
        stack: list[list[object]] = []
        for t in range(pop.offsets[i], pop.offsets[i + 1]):
            kind, value = pop.kinds[t], int(pop.values[t])
            if kind == OPERATOR:
                node_type, arity = self.types[value]
                node = self.po.Node(node_type)
                node.Arity = arity
                operands, stack = stack[-arity:], stack[:-arity]
                stack.append([*(n for operand in reversed(operands) for n in operand), node])
            elif kind == VARIABLE:
                node = self.po.Node(self.po.NodeType.Variable, self.hashes[value])
                node.Value = 1.0
                stack.append([node])
            else:
                number = pop.values[t : t + 1].view(np.float64)[0] if kind == CONSTANT else params[value]
                node = self.po.Node(self.po.NodeType.Constant)
                node.Value = float(number)
                stack.append([node])
        return self.po.Tree(stack[0]).UpdateNodes()


# ── measuring ────────────────────────────────────────────────────────────────────────


def medians(methods: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds a call of each method takes, the methods in turns."""
    repeats = {name: _repeats(method) for name, method in methods.items()}
    times: dict[str, list[float]] = {name: [] for name in methods}
    for _ in range(rounds):
        for name, method in methods.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                method()
            times[name].append((time.perf_counter() - start) / repeats[name])
    return {name: statistics.median(samples) for name, samples in times.items()}


def _repeats(method: Callable[[], object]) -> int:
    method()
    start = time.perf_counter()
    method()
    return max(1, round(SAMPLE_SECONDS / (time.perf_counter() - start)))


def _disagreement(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Share of the values that differ by more than 1 in 1,000 (cancellation makes a few do so honestly)."""
    with np.errstate(all="ignore"):
        return 1.0 - np.isclose(ours, theirs, rtol=1e-3, atol=1e-3, equal_nan=True).mean()


# ── what is measured ─────────────────────────────────────────────────────────────────


def thesis(n_exprs: int, n_points: int) -> tuple[Population, np.ndarray, np.ndarray]:
    """The thesis's expressions over and over, every one with its own parameters."""
    texts = ek.data.esr_sample()
    pop = ek.parse([texts[i % len(texts)] for i in range(n_exprs)])
    return pop, *_numbers(pop, ek.data.rough_pipe().repeat_to(n_points).X)


def arithmetic(n_exprs: int, n_points: int) -> tuple[Population, np.ndarray, np.ndarray]:
    """Trees of 20 to 50 tokens with + - * only."""
    names = [row.name for row in ops.OPERATORS if row.infix and row.arity == 2 and row.precedence <= 2][:3]
    pop = ek.generate.random(n_exprs, n_tokens=(20, 50), operators=names, n_vars=2, seed=1)
    return pop, *_numbers(pop, ek.data.uniform(n_points, 2).X)


def _numbers(pop: Population, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Parameters and data as float32."""
    rng = np.random.default_rng(0)
    params = rng.uniform(-2, 2, (len(pop), max(pop.max_params, 1)))
    return params.astype(F32), np.ascontiguousarray(X, F32)


def against_pyoperon(
    name: str, workload: tuple[Population, np.ndarray, np.ndarray], threads: int, rounds: int
) -> Iterator[dict[str, object]]:
    pop, params, X = workload
    peer, theirs = Pyoperon(pop, params, X), np.zeros((len(pop), len(X)), F32)
    y = np.ones(len(X), F32)
    out, sets = np.zeros((1, len(pop), len(X)), F32), params[None]
    methods: dict[str, Callable[[], object]] = {"pyoperon": lambda: peer.evaluate(theirs, threads)}
    methods["pyoperon"]()
    for precision in ("fast", "ieee"):
        engine = cpu.Engine(pop, X, precision=precision, dtype=F32, threads=threads)
        methods[f"{precision} matrix"] = lambda engine=engine: engine.evaluate(sets, out)
        methods[f"{precision} sse"] = lambda engine=engine: engine.loss_sums(sets, y, None, "square")
        methods[f"{precision} matrix"]()
        wrong = _disagreement(out[0], theirs)
        if wrong > 0.01:
            print(f"{name}: {wrong:.1%} of pyoperon's values differ from precision={precision!r}", file=sys.stderr)
    seconds = medians(methods, rounds)
    for method, time_taken in seconds.items():
        yield {
            "workload": name, "n_exprs": len(pop), "n_points": len(X), "threads": threads, "method": method,
            "seconds": time_taken, "ratio": seconds["pyoperon"] / time_taken,
            "gnodes": len(pop.kinds) * len(X) / time_taken / 1e9,
        }  # fmt: skip


COPIES = 64


def against_numpy(n_points: int, rounds: int) -> Iterator[dict[str, object]]:
    """Every operator on one thread: op(x1 + p1) or op(x1 + p1, x2) for 64 values of p1.

    NumPy (SciPy where NumPy has no such function) works a row at a time with ``out=``,
    as a careful user would write it.
    """
    rng = np.random.default_rng(0)
    for row in ops.OPERATORS:
        domain = [row.domain[k % len(row.domain)] for k in (0, 1)]
        X = np.stack([rng.uniform(*interval, n_points) for interval in domain], axis=1).astype(F32)
        params = np.linspace(0, 1e-3, COPIES).astype(F32).reshape(1, COPIES, 1)
        out, theirs = np.zeros((1, COPIES, n_points), F32), np.zeros((COPIES, n_points), F32)
        between = np.zeros(n_points, F32)
        pop = ek.parse([f"{row.name}(x1 + p1{', x2' if row.arity == 2 else ''})"] * COPIES)
        methods = {"numpy": _numpy_loop(row, X, params, between, theirs)}
        for precision in ("fast", "ieee"):
            engine = cpu.Engine(pop, X[:, : row.arity].copy(), precision=precision, dtype=F32, threads=1)
            methods[precision] = lambda engine=engine, p=params, y=out: engine.evaluate(p, y)
            methods[precision]()
            methods["numpy"]()
            wrong = _disagreement(out[0], theirs)
            if wrong > 0.01:
                print(f"{row.name}: {wrong:.1%} of NumPy's values differ from precision={precision!r}", file=sys.stderr)
        seconds = medians(methods, rounds)
        for method, time_taken in seconds.items():
            yield {
                "workload": row.name, "n_exprs": COPIES, "n_points": n_points, "threads": 1, "method": method,
                "seconds": time_taken, "ratio": seconds["numpy"] / time_taken,
                "gnodes": len(pop.kinds) * n_points / time_taken / 1e9,
            }  # fmt: skip


def _numpy_loop(
    row: ops.Operator, X: np.ndarray, params: np.ndarray, between: np.ndarray, out: np.ndarray
) -> Callable[[], object]:
    from scipy import special

    columns, function = np.ascontiguousarray(X.T), row.numpy
    if not isinstance(function, np.ufunc):
        names = [name for name in (row.name, *row.aliases) if hasattr(special, name)]
        function = getattr(special, names[0]) if names else function
    rest = [columns[1]] if row.arity == 2 else []

    def loop() -> None:
        with np.errstate(all="ignore"):
            for p, y in zip(params[0, :, 0], out, strict=True):
                np.add(columns[0], p, out=between)
                if isinstance(function, np.ufunc):
                    function(between, *rest, out=y)
                else:
                    y[:] = function(between, *rest)

    return loop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="samples of each method")
    parser.add_argument("--n-exprs", type=int, default=9880)
    parser.add_argument("--csv", help="write the table to this file")
    parser.add_argument("--only", choices=["thesis", "arithmetic", "operators"])
    arguments = parser.parse_args()
    rows: list[dict[str, object]] = []
    for row in _all(arguments):
        if not rows:
            print("  ".join(f"{name:>12}" for name in row))
        cells = (f"{value:12.4g}" if isinstance(value, float) else f"{value:>12}" for value in row.values())
        print("  ".join(cells), flush=True)
        rows.append(row)
    if arguments.csv:
        with open(arguments.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)


def _all(arguments: argparse.Namespace) -> Iterator[dict[str, object]]:
    for name, workload, sizes in (("thesis", thesis, (362, 10_860)), ("arithmetic", arithmetic, (362, 10_860))):
        if arguments.only in (None, name):
            for n_points in sizes:
                n_exprs = arguments.n_exprs if workload is thesis else arguments.n_exprs // 10
                made = workload(n_exprs, n_points)
                for threads in (1, 2):
                    yield from against_pyoperon(name, made, threads, arguments.rounds)
    if arguments.only in (None, "operators"):
        yield from against_numpy(10_860, arguments.rounds)


if __name__ == "__main__":
    main()
