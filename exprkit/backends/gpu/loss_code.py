"""CUDA C of losses that are texts: a function of an expression's value and of what the loss reads at a point.

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
from exprkit.operators import defined, ops
from exprkit.text.tokens import CONSTANT, OPERATOR, VARIABLE

Tokens = tuple[np.ndarray, np.ndarray]
Part = tuple[str, float | None]  # the name of a value, and which number it is
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
    used = _rows(tokens)
    if any(not row.cuda.formula or opcodes.refusal(row) for row in used):
        return None
    kinds, values = tokens
    n_columns = int(values[kinds == VARIABLE].max(initial=0))
    lines: list[str] = []
    result, _ = _value(tokens, [("f", None), *((f"read[{k}]", None) for k in range(n_columns))], operators, lines)
    at_once = ONE if any(opcodes.is_long(row, operators) for row in used) else WHOLE
    body = "\n".join(f"    {line}" for line in (*lines, f"return {result};"))
    head = "INLINE T text_loss(T f, const T (&read)[TARGETS])"
    return f"constexpr int AT_ONCE = {at_once};\n{head}\n{{\n{body}\n}}"


def _rows(tokens: Tokens) -> list[ops.Operator]:
    """The table's operators in a loss and in the user's formulas that it names."""
    found: list[ops.Operator] = []
    for code in np.unique(tokens[1][tokens[0] == OPERATOR]).tolist():
        row = defined.row(code)
        if isinstance(row, defined.Definition):
            found += _rows((row.kinds, row.values))
        elif row is not None:
            found.append(row)
    return found


def _value(
    tokens: Tokens, numbers: Sequence[Part], operators: str, lines: list[str], operands: Sequence[Part] = ()
) -> Part:
    """What the tokens are of these numbers, computed in ``lines``; ``operands`` are a user's operator's."""
    stack: list[Part] = []
    for kind, value in zip(tokens[0].tolist(), tokens[1].tolist(), strict=True):
        if kind == CONSTANT:
            stack.append(_number(float(np.uint64(value).view(np.float64))))
        elif kind == OPERATOR:
            row = defined.row(value)
            assert row is not None
            own = stack[len(stack) - row.arity :]
            del stack[len(stack) - row.arity :]
            stack.append(_applied(row, own, operators, lines))
        else:
            stack.append((numbers if kind == VARIABLE else operands)[value])
    return stack[0]


def _number(number: float) -> Part:
    named = repr(number) if np.isfinite(number) else f"__longlong_as_double({np.float64(number).view(np.int64)}LL)"
    return f"T({named})", number


def _applied(row: defined.Written, operands: list[Part], operators: str, lines: list[str]) -> Part:
    if isinstance(row, defined.Definition):
        return _value((row.kinds, row.values), (), operators, lines, operands)
    row, names = _simpler(row, operands, operators), [name for name, _ in operands]
    parameters = ", ".join(f"T {x}" for x in "ab"[: row.arity])
    name = f"v{len(lines) + 1}"
    formula = opcodes.formula(row, operators)
    lines.append(f"const T {name} = []({parameters}) -> T {{ return {formula}; }}({', '.join(names[: row.arity])});")
    return name, None


def _simpler(row: ops.Operator, operands: list[Part], operators: str) -> ops.Operator:
    """The operator by the table's rules for a second operand that is a number."""
    number = operands[-1][1] if row.arity == 2 else None
    if number is None:
        return row
    simpler = row.rewrite.constant_b.get(number)
    if simpler is None and operators == "fast" and number.is_integer():
        simpler = row.rewrite.whole_b
    return row if simpler is None else ops.BY_NAME[simpler]
