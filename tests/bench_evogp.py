"""A new population beside EvoGP, in one process on the same trees: from tokens on the GPU to losses.

    PYTHONPATH=.:EVOGP/src python tests/bench_evogp.py --evogp "0.1.0, commit 6706e47" --csv CSV

Needs a GPU, CuPy, PyTorch and EvoGP (https://github.com/EMI-Group/evogp; GPL 3, nothing of it is here), built in its
folder by ``TORCH_CUDA_ARCH_LIST=9.0 python setup.py build_ext --inplace``.  Both give mean squared errors in float32
by the device's approximate functions.  exprkit checks and lowers tokens in each call, EvoGP evaluates its matrices of
nodes as they are.  The programs take turns; a call begins and ends with an idle device.  As in ``timeit``, Python's
garbage collector waits: its passes over PyTorch's many objects would be a third of a call.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Iterator
from typing import Any

import cupy
import evogp.tree
import numpy as np
import torch
from bench_peers import medians, walk
from evogp.tree.utils import Func, NType
from timing import listed, to_record

import exprkit as ek
from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.text.tokens import CONSTANT, VARIABLE

MOST_DIFFERENT = (
    0.05  # share of the losses that may differ by more than 1 %: powers of powers, quotients of differences
)
CODES = {row.code: getattr(Func, row.name.upper()) for row in ops.OPERATORS if hasattr(Func, row.name.upper())}


def forest(pop: Population, params: np.ndarray) -> list[np.ndarray]:
    """Values, types and sizes of EvoGP's nodes (n_exprs, length), in prefix order; parameters as constants."""

    def leaf(kind: int, value: Any, i: int) -> list[tuple[float, int, int]]:
        if kind == VARIABLE:
            return [(value, NType.VAR, 1)]
        return [(value if kind == CONSTANT else params[i, value], NType.CONST, 1)]

    def operation(row: ops.Operator, operands: list[list[tuple[float, int, int]]]) -> list[tuple[float, int, int]]:
        nodes = [node for operand in operands for node in operand]
        return [(CODES[row.code], NType.UFUNC if row.arity == 1 else NType.BFUNC, 1 + len(nodes)), *nodes]

    trees = [walk(pop, i, lambda kind, value, i=i: leaf(kind, value, i), operation) for i in range(len(pop))]
    cells = np.zeros((len(trees), max(map(len, trees)), 3), np.float32)
    for row, tree in zip(cells, trees, strict=True):
        row[: len(tree)] = tree
    return [cells[..., 0].copy(), cells[..., 1].astype(np.int16), cells[..., 2].astype(np.int16)]


def known(pop: Population) -> Population:
    """Those expressions that EvoGP has all operators of."""
    return pop[[i for i, e in enumerate(pop) if {*e.values[e.kinds == 3].tolist()} <= {*CODES}]]


def measured(
    name: str, some: Population, n_exprs: int, n_points: int, programs: dict[str, str], rounds: int
) -> Iterator[dict[str, object]]:
    """A row for each of ``programs``, names of methods with versions: ``some`` expressions, repeated to ``n_exprs``."""
    params = np.random.default_rng(0).uniform(0.5, 2, (len(some), some.max_params)).astype(np.float32)
    which = np.arange(n_exprs) % len(some)
    points = ek.data.rough_pipe().repeat_to(n_points)
    X, y = points.X.astype(np.float32), points.y.astype(np.float32)

    there = ek.DevicePopulation.of(some[which])
    tokens, numbers = (there.kinds, there.values, there.offsets), cupy.asarray(params[which])
    ev = ek.Evaluator(some[:1], cupy.asarray(X), "cuda", "fast")
    step = ev.loss_of(cupy.asarray(y), "mse")
    nodes = [torch.as_tensor(array[which]).cuda() for array in forest(some, params)]
    inputs, labels = torch.as_tensor(X).cuda(), torch.as_tensor(y[:, None]).cuda()

    def ours() -> Any:
        ev.update(ek.DevicePopulation(*tokens))
        losses = step(numbers)
        cupy.cuda.Device().synchronize()
        return losses

    def theirs() -> Any:
        losses = evogp.tree.Forest(X.shape[1], 1, *nodes).SR_fitness(inputs, labels)
        torch.cuda.synchronize()
        return losses

    a, b = ours().get(), theirs().cpu().numpy()
    differ = ~np.isclose(a, b, rtol=1e-2, atol=1e-6, equal_nan=True) & ~(~np.isfinite(a) & ~np.isfinite(b))
    for i in np.flatnonzero(differ)[:5]:
        print(f"# {some[which[i]]}: {a[i]:.6g} here, {b[i]:.6g} there", file=sys.stderr)
    if differ.mean() > MOST_DIFFERENT:
        raise SystemExit(f"{name} x {n_points}: {differ.mean():.1%} of the losses differ; nothing was timed")
    print(f"# {name} x {n_points}: {1 - differ.mean():.3%} of the losses agree to 1 %", file=sys.stderr)
    seconds = medians({"exprkit": ours, "evogp": theirs}, rounds)
    for method, value in seconds.items():
        yield {
            "workload": name, "n_exprs": n_exprs, "n_points": n_points, "tokens": round(len(some.kinds) / len(some), 1),
            "method": method, "program": programs[method], "seconds": value, "ratio": seconds["evogp"] / value,
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="samples of each program")
    parser.add_argument("--csv", type=to_record, help="write the table to this file")
    parser.add_argument("--evogp", required=True, help="its version and commit")
    arguments = parser.parse_args()
    programs = {"exprkit": f"exprkit {ek.__version__}", "evogp": f"EvoGP {arguments.evogp}"}
    some = {
        "thesis": known(ek.parse(ek.data.esr_sample())),  # all but those with sqr
        "trees": ek.generate.random(10_000, (10, 50), ["+", "-", "*", "/", "abs"], n_vars=2, n_params=0, seed=1),
    }
    sizes = [("thesis", 10_000, 362), ("thesis", 10_000, 10_860), ("thesis", 100_000, 362)]
    sizes += [("trees", 10_000, 362), ("trees", 10_000, 10_860)]
    gc.disable()
    parts = (measured(name, some[name], *size, programs, arguments.rounds) for name, *size in sizes)
    listed((row for part in parts for row in part), arguments.csv)


if __name__ == "__main__":
    main()
