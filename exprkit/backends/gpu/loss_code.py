"""CUDA C of losses given as text: a function of the expression's value and the loss's columns at one point.

In: a loss's tokens over f and columns.  Out: the function's text, which ``opcodes.source`` puts into the interpreter's
kernel; None where an operator has no CUDA text.

    >>> import numpy as np
    >>> from exprkit.backends.gpu import loss_code
    >>> f_minus_y = np.array([1, 1, 3], np.uint8), np.array([0, 1, 2], np.uint64)  # f y -
    >>> print(loss_code.function(f_minus_y, "ieee"))
    constexpr int AT_ONCE = VECTORS;
    INLINE T text_loss(T f, const T (&read)[TARGETS])
    {
        const T v1 = [](T a, T b) -> T { return a - b; }(f, read[0]);
        return v1;
    }

Every operator is the table's formula, and a user's that is a formula is written out: nothing of the user's own text
comes into a kernel but what ``exprkit.operator`` was given as ``cuda=``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from exprkit.backends.gpu import opcodes
from exprkit.backends.loss_tokens import Tokens, power_of, rows_in, written
from exprkit.operators import ops
from exprkit.text.tokens import VARIABLE

WHOLE, ONE = "VECTORS", "1"  # that are worked on at once: of a loss of short operators, and of one with long code


def function(tokens: Tokens, operators: str) -> str | None:
    """The function's text.

    Parameters
    ----------
    tokens : (kinds, values)
        Variable 0 is f, variable k column k - 1.
    operators : {"ieee", "fast"}
        Which of the table's formulas to use.
    """
    used = rows_in(tokens)
    if any(not row.cuda.formula or opcodes.refusal(row) for row in used):
        return None
    kinds, values = tokens
    n_columns = int(values[kinds == VARIABLE].max(initial=0))
    lines: list[str] = []

    def applied(row: ops.Operator, operands: list[str]) -> str:
        name = f"v{len(lines) + 1}"
        lines.append(f"const T {name} = {call(row, operators, operands)};")
        return name

    def power(row: ops.Operator, base: str, exponent: float) -> str | None:
        if operators != "fast" or exponent.is_integer():
            return None
        return power_of(applied(ops.BY_CODE[ops.ABS], [base]) if row.code == ops.POWABS else base, exponent, applied, 2)

    names = ["f", *(f"read[{k}]" for k in range(n_columns))]
    result = written(tokens, names, number, applied, whole_powers=operators == "fast", power=power)
    at_once = ONE if any(opcodes.is_long(row, operators) for row in used) else WHOLE
    body = "\n".join(f"    {line}" for line in (*lines, f"return {result};"))
    head = "INLINE T text_loss(T f, const T (&read)[TARGETS])"
    return f"constexpr int AT_ONCE = {at_once};\n{head}\n{{\n{body}\n}}"


def call(row: ops.Operator, operators: str, operands: Sequence[str]) -> str:
    """CUDA C of an operator with operands."""
    parameters = ", ".join(f"T {x}" for x in row.letters)
    return f"[]({parameters}) -> T {{ return {opcodes.formula(row, operators)}; }}({', '.join(operands)})"


def number(value: float) -> str:
    """CUDA C of a number, with all of its bits."""
    named = repr(value) if np.isfinite(value) else f"__longlong_as_double({np.float64(value).view(np.int64)}LL)"
    return f"T({named})"
