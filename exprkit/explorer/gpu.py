"""What the GPU interpreter reads and runs for an expression, as text; no GPU is needed for it.

Part of the explorer, above ``backends.accumulator`` (the words) and ``backends.cases`` (the code).

    >>> import exprkit as ek
    >>> from exprkit.explorer import gpu
    >>> print(gpu.words(ek.parse("x1 + x2 * p1")))  # c0: the column x1
    word  action      places      case  the accumulator acc becomes
       0  ...  acc = c1; acc = acc * p1
       1  ...  acc = acc + c0, the result
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from exprkit.backends.gpu import opcodes
from exprkit.backends.gpu.bytecode import CONSTANT, END, FROM_SLOT, LOAD, PARAMETER, SPILL, Accumulated, accumulate
from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.programs.lower import lower
from exprkit.programs.program import Program
from exprkit.text.printer import number_text

CASE = re.compile(r"^ *((?:case \d+: ?)+)(.*)$", re.MULTILINE)


def program(
    pop: Population, X: Any = None, precision: str = "ieee", dtype: DTypeLike = "float32"
) -> tuple[Program, Accumulated]:
    """The three-address and the accumulator programs, as the CUDA backend makes them.

    Parameters
    ----------
    pop : Population
    X : array, (n_points, n_vars), optional
        The data: where a variable has no negative value, powers have a shorter program.
    precision : {"ieee", "fast"}
    dtype : {"float32", "float64"}
    """
    positive = None if X is None else ~(np.signbit(X) & ~np.isnan(X)).any(axis=0)[: pop.n_vars]
    lowered = lower(pop, precision=precision, positive=positive, dtype=dtype)
    return lowered, accumulate(lowered)


def words(pop: Population, index: int = 0, X: Any = None, precision: str = "ieee", dtype: DTypeLike = "float32") -> str:
    """The words of one expression: their bits, the case they name, and what it does."""
    made = program(pop[index : index + 1], X, precision, dtype)[1]
    meaning = _meanings()
    lines = ["word  action      places      case  the accumulator acc becomes"]
    for word, ((action, places), source) in enumerate(zip(made.words.tolist(), made.sources.tolist(), strict=True)):
        what = _described(action, places, source, made, meaning)
        lines.append(f"{word:4}  0x{action:08x}  0x{places:08x}  {action >> 16:4}  {what}")
    return "\n".join(lines)


def cuda(pop: Population, index: int = 0, X: Any = None, precision: str = "ieee", dtype: DTypeLike = "float32") -> str:
    """The CUDA C of the cases that one expression runs, each once, as it stands in the kernel."""
    made = program(pop[index : index + 1], X, precision, dtype)[1]
    used = set((made.words[:, 0] >> 16).tolist())
    found = []
    for labels, code in CASE.findall(opcodes.source(precision)):
        numbers = {int(number) for number in re.findall(r"\d+", labels)}
        if numbers & used and "acc" in code:
            found.append(f"{labels.strip()} {code.strip()}")
    return "\n".join(found)


def _meanings() -> dict[int, tuple[ops.Operator, int]]:
    """(operator, form) of every case."""
    numbers = opcodes.numbers()
    return {int(numbers[code, form]): (ops.BY_CODE[int(code)], int(form))
            for code, form in zip(*np.nonzero(numbers >= 0), strict=True)}  # fmt: skip


def _described(
    action: int, places: int, source: int, made: Accumulated, meaning: dict[int, tuple[ops.Operator, int]]
) -> str:
    row, form = meaning[action >> 16]
    place = f"{'t' if action & FROM_SLOT else 'c'}{places & 0xFFFF}"
    number = _number(source, made)
    operands = {
        opcodes.ALONE: ("acc", ""), opcodes.MEMORY: ("acc", place), opcodes.MEMORY_FIRST: (place, "acc"),
        opcodes.NUMBER: ("acc", number) if row.arity == 2 else (number, ""), opcodes.NUMBER_FIRST: (number, "acc"),
        opcodes.BOTH: (place, number),
    }[form]  # fmt: skip
    steps = [f"t{action >> 8 & 0xFF} = acc"] if action & SPILL else []
    steps += [f"acc = c{places >> 16}"] if action & LOAD else []
    steps.append(f"acc = {_applied(row, *operands)}")
    return "; ".join(steps) + (", the result" if action & END else "")


def _applied(row: ops.Operator, a: str, b: str) -> str:
    if row.code == ops.COPY:
        return a
    if row.infix and row.arity == 2:
        return f"{a} {row.infix} {b}"
    return f"{row.name}({a}{', ' + b if b else ''})"


def _number(source: int, made: Accumulated) -> str:
    """Where a word's number comes from."""
    kind, index = source & 3, source >> 2
    if kind == PARAMETER:
        return f"p{index + 1}"
    if kind == CONSTANT:
        return number_text(float(made.constants[index]))
    return f"r{index}"  # of the prologue
