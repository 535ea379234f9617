"""CUDA C of losses given as text: a function that adds the loss at one point to a sum.

In: a loss's tokens over f and columns.  Out: the function's text, which ``opcodes.source`` puts into the interpreter's
kernel; None where an operator has no CUDA text.

    >>> import numpy as np
    >>> from exprkit.backends.gpu import loss_code
    >>> f_minus_y = np.array([1, 1, 3], np.uint8), np.array([0, 1, 2], np.uint64)  # f y -
    >>> print(loss_code.function(f_minus_y, "ieee"))
    constexpr int AT_ONCE = VECTORS;
    template <bool FIRST> INLINE T add_text_loss(T total, T f, const T (&read)[TARGETS])
    {
        const T v1 = [](T a, T b) -> T { return a - b; }(f, read[0]);
        if (FIRST || WEIGHTED) return WEIGHTED ? fma(read[TARGETS - 1], v1, total) : v1;
        const T v3 = [](T a, T b) -> T { return a + b; }(total, v1);
        return v3;
    }

With operators "fast" a product, and a logarithm as one, is added to something in one step, which rounds once.

Every operator is the table's formula, and a user's that is a formula is written out: nothing of the user's own text
comes into a kernel but what ``exprkit.operator`` was given as ``cuda=``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from exprkit.backends.gpu import opcodes
from exprkit.backends.loss_tokens import Sums, Tokens, power_of, rows_in, written
from exprkit.operators import defined, ops
from exprkit.text.tokens import VARIABLE

ROOTS = ops.SQRT, ops.SQRTABS  # whose code is short, though the interpreter has it once
WHOLE, ONE = "VECTORS", "1"  # that are worked on at once: of a loss of short operators, and of one with long code


def function(tokens: Tokens, operators: str) -> str | None:
    """The function's text, by the table's formulas of a precision; of tokens, variable 0 is f and k column k - 1."""
    if any(not row.cuda.formula or opcodes.refusal(row) for row in rows_in(tokens)):
        return None
    kinds, values = tokens
    n_columns = int(values[kinds == VARIABLE].max(initial=0))
    lines: list[str] = []

    def line(text: str) -> str:
        lines.append(f"const T v{len(lines) + 1} = {text};")
        return f"v{len(lines)}"

    used: list[ops.Operator] = []
    not_negative: set[str] = set()  # or nan: of others a power may be what no root is

    def applied_once(row: ops.Operator, operands: list[str]) -> str:
        used.append(row)
        value = line(call(row, operators, operands))
        if row.code in (ops.ABS, ops.SQR, ops.SQRTABS, ops.EXP):
            not_negative.add(value)
        return value

    def fma(a: str, b: str, c: str) -> str:
        return line(f"fma({a}, {b}, {c})")

    sums = Sums(applied_once, fma, lambda a: f"-{a}", str, number(math.log(2)))
    applied = sums.applied if operators == "fast" else applied_once

    def power(row: ops.Operator, base: str, exponent: float) -> str | None:
        is_whole = exponent.is_integer()
        has_root = row.code == ops.POWABS or base in not_negative
        if is_whole if operators == "fast" else not (is_whole or has_root):  # "fast" has an operator for whole ones
            return None
        return power_of(applied(ops.BY_CODE[ops.ABS], [base]) if row.code == ops.POWABS else base, exponent, applied, 2)

    def known(definition: defined.Definition, operands: list[str]) -> str | None:
        text = ops.LOSS_CUDA.get(definition.text) if operators != "fast" else None
        return text and line(f"[](T a) -> T {{ return {text}; }}({operands[0]})")

    names = ["f", *(f"read[{k}]" for k in range(n_columns))]
    result = written(tokens, names, number, applied, whole_powers=operators == "fast", known=known, power=power)
    lines.append(f"if (FIRST || WEIGHTED) return WEIGHTED ? fma(read[TARGETS - 1], {result}, total) : {result};")
    total = sums.added("total", result)
    is_short = all(row.code in ROOTS or not opcodes.is_long(row, operators) for row in used)
    at_once = WHOLE if is_short else ONE
    body = "\n".join(f"    {line}" for line in (*lines, f"return {total};"))
    head = "template <bool FIRST> INLINE T add_text_loss(T total, T f, const T (&read)[TARGETS])"
    return f"constexpr int AT_ONCE = {at_once};\n{head}\n{{\n{body}\n}}"


def call(row: ops.Operator, operators: str, operands: Sequence[str]) -> str:
    """CUDA C of an operator with operands; its fast path, where it has one that holds for all of them."""
    parameters, formula = ", ".join(f"T {x}" for x in row.letters), opcodes.formula(row, operators)
    short = row.cuda.fast_path
    if opcodes.is_long(row, operators) and short and "in_range" not in short:
        formula = short
    return f"[]({parameters}) -> T {{ return {formula}; }}({', '.join(operands)})"


def number(value: float) -> str:
    """CUDA C of a number, with all of its bits."""
    named = repr(value) if np.isfinite(value) else f"__longlong_as_double({np.float64(value).view(np.int64)}LL)"
    return f"T({named})"
