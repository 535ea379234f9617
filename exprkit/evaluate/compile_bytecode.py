"""``exprkit.compile_bytecode``: a population's GPU bytecode and kernel source as text, without a GPU.

In: a population and the data.  Out: three-address programs, bytecode and the CUDA C of its cases.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from exprkit.backends.cpu.tiles import never_negative
from exprkit.backends.device_programs.population import on_host
from exprkit.backends.gpu import layout, opcodes
from exprkit.backends.gpu.bytecode import Bytecode, accumulate
from exprkit.backends.gpu.layout import ACTION, CONSTANT, END, FROM_SLOT, LOAD, PARAMETER, SPILL
from exprkit.evaluate import inputs
from exprkit.evaluate.options import check_has_texts
from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.programs.lower import lower
from exprkit.text.printer import number_text

CASE = re.compile(r"^ *((?:case \d+: ?)+)(.*)$", re.MULTILINE)


class CompiledBytecode:
    """A population as the ``"cuda"`` backend runs it.  Made by ``compile_bytecode``; all methods give text.

    Examples
    --------
    >>> import exprkit as ek
    >>> print(ek.compile_bytecode(ek.parse("p1 * x1")).program(0))
    out = mul u0, c0
    <BLANKLINE>
    c0: x1
    """

    def __init__(self, pop: Population, X: Any, precision: str, dtype: Any) -> None:
        self.pop, self._precision, self._dtype = pop, precision, dtype
        self._positive = None if X is None else never_negative(X)

    def program(self, i: int) -> str:
        """The three-address program of expression ``i``, and the columns that it reads."""
        lowered = self._lowered(i)
        columns = "\n".join(f"c{place}: {what}" for place, what in enumerate(lowered.columns()))
        return f"{lowered.listing(0)}\n\n{columns}"

    def listing(self, i: int) -> str:
        """The words of expression ``i``: their bits, the case they name, and what it does."""
        bytecode, meaning = accumulate(self._lowered(i)), _meanings()
        lines = ["word  action      places      case  the accumulator acc becomes"]
        pairs = zip(bytecode.instructions.tolist(), bytecode.sources.tolist(), strict=True)
        for word, ((action, places), source) in enumerate(pairs):
            what = _described(action, places, source, bytecode, meaning)
            lines.append(f"{word:4}  0x{action:08x}  0x{places:08x}  {action >> 16:4}  {what}")
        return "\n".join(lines)

    def cuda(self, i: int) -> str:
        """The CUDA C of the cases that expression ``i`` runs, each once, as it stands in the kernel."""
        used = set((accumulate(self._lowered(i)).instructions[:, ACTION] >> 16).tolist())
        cases = []
        for labels, code in CASE.findall(opcodes.source(self._precision)):
            numbers = {int(number) for number in re.findall(r"\d+", labels)}
            if numbers & used and "acc" in code:
                cases.append(f"{labels.strip()} {code.strip()}")
        return "\n".join(cases)

    def _lowered(self, i: int) -> Any:
        i = range(len(self.pop))[i]
        pop = self.pop[i : i + 1]
        positive = None if self._positive is None else self._positive[: pop.n_vars]
        return lower(pop, precision=self._precision, positive=positive, dtype=self._dtype)


def compile_bytecode(
    pop: Population, X: Any = None, *, precision: str = "ieee", dtype: Any = "float32"
) -> CompiledBytecode:
    """The GPU bytecode of a population as text, on any machine.

    Parameters
    ----------
    pop : Population
    X : array, (n_points, n_vars), optional
        The data: where a variable has no negative value, powers have a shorter program.
    precision : {"ieee", "fast"}
    dtype : {"float32", "float64"}

    Raises
    ------
    BackendError
        For an operator of your own without CUDA text.

    Examples
    --------
    >>> import exprkit as ek
    >>> bytecode = ek.compile_bytecode(ek.parse("x1 + x2 * p1"))
    >>> print(bytecode.listing(0))  # c0: the column x1
    word  action      places      case  the accumulator acc becomes
       0  ...  acc = c1; acc = acc * p1
       1  ...  acc = acc + c0, the result
    """
    pop = on_host(inputs.population(pop))
    check_has_texts(pop, "cuda")
    return CompiledBytecode(pop, X, precision, dtype)


def _meanings() -> dict[int, tuple[ops.Operator, int]]:
    """(operator, addressing mode) of every opcode."""
    numbers = opcodes.numbers()
    return {
        int(numbers[code, mode]): (ops.BY_CODE[int(code)], int(mode))
        for code, mode in zip(*np.nonzero(numbers >= 0), strict=True)
    }


def _described(
    action: int, places: int, source: int, bytecode: Bytecode, meaning: dict[int, tuple[ops.Operator, int]]
) -> str:
    row, mode = meaning[action >> 16]
    place = f"{'t' if action & FROM_SLOT else 'c'}{places & 0xFFFF}" + (f", t{(places & 0xFFFF) + 1}" * row.packed)
    number = _number(source, bytecode)
    operands = {
        layout.ALONE: ("acc", ""),
        layout.MEMORY: ("acc", place),
        layout.MEMORY_FIRST: (place, "acc"),
        layout.IMMEDIATE: ("acc", number) if row.arity == 2 else (number, ""),
        layout.IMMEDIATE_FIRST: (number, "acc"),
        layout.BOTH: (place, number),
    }[mode]
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


def _number(source: int, bytecode: Bytecode) -> str:
    """Where a word's number comes from."""
    kind, index = source & 3, source >> 2
    if kind == PARAMETER:
        return f"p{index + 1}"
    if kind == CONSTANT:
        return number_text(float(bytecode.constants[index]))
    return f"r{index}"  # of the prologue
