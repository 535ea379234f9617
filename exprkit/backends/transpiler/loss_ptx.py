"""PTX of losses given as text, which takes the place of f - y behind each expression's instructions.

In: a loss's tokens over f and columns.  Out: a template, which ``templates`` puts into the kernels of sums; None where
an operator has no PTX.

    >>> import numpy as np
    >>> from exprkit.backends.transpiler import loss_ptx
    >>> from exprkit.backends.transpiler.operator_ptx import Bodies, Body
    >>> f_minus_y = np.array([1, 1, 3], np.uint8), np.array([0, 1, 2], np.uint64)  # f y -
    >>> bodies = Bodies({2: Body("sub.rn.f32 {y}, {a}, {b};", 1)}, {}, "f32")
    >>> print(loss_ptx.loss_code(f_minus_y, bodies, 1, False, fast=False).text)
    sub.rn.f32 %l0, <f>, <0>;
    mov.b32 %e, %l0;
    <BLANKLINE>

Every operator is what it is within expressions, so that a loss has the bits of an expression with the loss around it;
but with operators "fast" a product, and a logarithm as one, is added to something in one step.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

from exprkit.backends.loss_tokens import Sums, Tokens, rows_in, written
from exprkit.backends.transpiler.operator_ptx import Bodies
from exprkit.operators import ops


class LossCode(NamedTuple):
    """A loss at one point, in PTX."""

    text: str  # reads <f> and <0>, <1>, ..., columns; writes %e; {n} is a number of its own each time it is written
    codes: tuple[int, ...]  # the operators in it
    n_columns: int  # that it reads, without weights
    n_registers: int  # %l
    factors: tuple[str, str] | None = None  # of what is written, where it may be added to a sum in one step


def loss_code(tokens: Tokens, bodies: Bodies, n_columns: int, counted: bool, fast: bool) -> LossCode | None:
    """The loss of tokens as a template, variable 0 being f and variable k column k - 1 of ``n_columns``.

    The last column says how much a point counts if it is ``counted``.  ``fast``: powers by whole numbers are an
    operator of their own, and products are added in one step.
    """
    codes: list[int] = []
    lines: list[str] = []
    if any(row.code not in bodies.of for row in rows_in(tokens)):
        return None

    def register(text: str) -> str:
        lines.append(text.replace("{y}", f"%l{len(lines)}"))
        return f"%l{len(lines) - 1}"

    def number(value: float) -> str:
        real = np.float32 if bodies.real == "f32" else np.float64
        with np.errstate(over="ignore"):
            bits = real(value).tobytes()[::-1].hex().upper()
        return register(f"\tmov.{bodies.real} {{y}}, 0{'f' if bodies.real == 'f32' else 'd'}{bits};\n")

    def applied_once(row: ops.Operator, operands: list[str]) -> str:
        codes.append(row.code)
        places = {**dict(zip(row.letters, operands, strict=True)), "n": f"{{n}}_{len(lines)}"}
        return register(re.sub(r"\{(a_low|[abn])\}", lambda place: places[place[1]], bodies.of[row.code].text))

    def fma(a: str, b: str, c: str) -> str:
        return register(f"\tfma.rn.{bodies.real} {{y}}, {a}, {b}, {c};\n")

    def negative(a: str) -> str:
        return register(f"\tneg.{bodies.real} {{y}}, {a};\n")

    sums = Sums(applied_once, fma, negative, str, number(math.log(2)) if fast else None)
    applied = sums.applied if fast else applied_once
    n_read = n_columns - counted
    result = written(tokens, ["<f>", *(f"<{k}>" for k in range(n_read))], number, applied, whole_powers=fast)
    text = "".join(lines) + f"\tmov.b{bodies.real[1:]} %e, {result};\n"
    return LossCode(text, tuple(codes), n_read, len(lines), sums.factors(result))
