"""What fused multiplication and addition could bring to an interpreter.

    python tests/bench_contraction.py --out data/results
    python tests/bench_contraction.py --out data/results --backend cuda

The thesis left that open.  ``gpu_contraction.py`` measures it for compiled code; an interpreter would need an operation
of three operands for it.
Here are counted the instructions that one would save, and timed is what it could gain at most: every product that a
sum takes up is left out (``a * b + c`` becomes ``a + c``), since a fused operation costs at least what the sum does.
Both populations are timed in turns.  Writes ``contraction_cpu.csv`` or ``contraction_cuda.csv``.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import timing

import exprkit as ek
from exprkit.expressions import generate
from exprkit.operators import ops
from exprkit.programs.lower import lower
from exprkit.programs.program import SLOT, Program
from exprkit.regression.formulas.trees import Tree, expression_of, tree_of
from exprkit.study import workload
from exprkit.text.tokens import OPERATOR, VARIABLE

N, TIMED, POINTS, TURNS = 10_000, 2_000, 10_860, 25
F4 = np.dtype("float32")


def populations() -> dict[str, ek.Population]:
    """The workloads by what they are called."""
    trees = {"random trees": "thesis", "trees of + - * /": ["+", "-", "*", "/"], "trees of + - *": ["+", "-", "*"]}
    made = {name: generate.random(N, n_tokens=(10, 50), operators=operators, n_vars=10, n_params=2, seed=1)
            for name, operators in trees.items()}  # fmt: skip
    of_the_thesis = {"thesis's expressions": "esr", "all different": "exhaustive"}
    return {name: ek.parse(workload.expressions(source, N)) for name, source in of_the_thesis.items()} | made


def saved(program: Program) -> float:
    """The share of the instructions of a point that fused ones would save: products that one sum reads."""
    count = total = 0
    for first, last, prologue in zip(program.offsets, program.offsets[1:], program.n_prologue, strict=False):
        made: dict[int, bool] = {}  # by slot: whether a product that nothing has read yet lies there
        for i in range(int(first + prologue), int(last)):
            operands = program.a[i], program.b[i]
            read = [int(operand >> 2) for operand in operands if operand >= 0 and operand & 3 == SLOT]
            products = [made.pop(slot, False) for slot in read]
            count += program.code[i] in (ops.ADD, ops.SUB) and any(products)
            made[int(program.dst[i] >> 2)] = program.code[i] == ops.MUL
            total += 1
    return count / total


def without_products(pop: ek.Population) -> ek.Population:
    """Every product that a sum takes up left out, with the operand of the two that is a leaf."""
    return ek.Population.of([expression_of(_left_out(tree_of(expression))) for expression in pop])


def _left_out(node: Tree) -> Tree:
    kind, value, *operands = node
    if kind != OPERATOR:
        return node
    operands = list(map(_left_out, operands))
    node = kind, value, *operands
    for place, one in enumerate(operands if value in (ops.ADD, ops.SUB) else []):
        if one[0] == OPERATOR and one[1] == ops.MUL and _varies(one):
            leaves = [part for part in one[2:] if len(part) == 2]
            kept = [part for part in one[2:] if not leaves or part is not leaves[-1]]
            if leaves and _varies(kept[0]):
                return kind, value, *(kept[0] if i == place else other for i, other in enumerate(operands))
    return node


def _varies(node: Tree) -> bool:
    return bool(node[0] == VARIABLE) or any(map(_varies, node[2:]))


def seconds(call: Callable[[], Any]) -> float:
    """What a call takes of the processor's time, whatever else runs."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=timing.to_record)
    parser.add_argument("--backend", default="cpu", choices=["cpu", "cuda"])
    options = parser.parse_args()
    clock = timing.microseconds if options.backend == "cuda" else seconds
    table, random = timing.Table(width=44), np.random.default_rng(5)
    for name, pop in populations().items():
        table.report(f"{name}, instructions saved", 100 * saved(lower(pop, precision="fast", dtype=F4)), "%")
        X, y = random.uniform(0.5, 4, (POINTS, 10)), random.normal(size=POINTS)
        pop = pop[:: N // TIMED]
        both = [ek.Evaluator(one, X, "cpu", "fast", threads=1) for one in (pop, without_products(pop))]
        params = [random.uniform(-2, 2, (len(pop), ev.pop.max_params)).astype("float32") for ev in both]
        if options.backend == "cuda":
            import cupy

            X, y, params = cupy.asarray(X), cupy.asarray(y), [cupy.asarray(one) for one in params]
            both = [ek.Evaluator(ev.pop, X, "cuda", "fast") for ev in both]
        whole, left = (lower(ev.pop, precision="fast", dtype=F4) for ev in both)
        fewer = 1 - (len(left.code) - left.n_prologue.sum()) / (len(whole.code) - whole.n_prologue.sum())
        times: list[list[float]] = [[], []]
        for _ in range(TURNS + 1):
            for ev, some, own in zip(both, params, times, strict=True):
                own.append(clock(functools.partial(ev.loss, some, y)))
        ratio = min(times[1][1:]) / min(times[0][1:])
        note = f"{fewer:.1%} fewer instructions"
        table.report(f"{name}, {options.backend}, products left out", ratio, "times", note=note)
    if options.out:
        table.write(options.out / f"contraction_{options.backend}.csv")


if __name__ == "__main__":
    main()
