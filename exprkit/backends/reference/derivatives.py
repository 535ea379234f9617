"""Reference implementation of derivatives and of a fit's steps, in plain NumPy and float64.

Forward mode: beside the value of every token
goes its derivative by each parameter, an array or None where it is 0; the rules are the
table's ``derivative`` cells, applied to what the user wrote.  What a cell says is 0 is None.
In rules and in the chain rule 0 times anything is 0 (the table's ``strong``).

    >>> import exprkit as ek
    >>> ek.Evaluator(ek.parse(["p1 ^ 2 * x1"]), [[3.0]], backend="numpy").jacobian([[2.0]])
    array([[[12.]]], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from exprkit.expressions.dag import rule_texts
from exprkit.operators import ops
from exprkit.operators.defined import table_of_rows
from exprkit.programs.linearity import no_slope
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE, TokenArrays

Tangent = list[np.ndarray | None]
Meaning = Callable[[ops.Operator, int], Callable[..., np.ndarray]]


def value_and_derivatives(
    pop: TokenArrays,
    i: int,
    columns: np.ndarray,
    constants: np.ndarray,
    params: np.ndarray,
    meaning: Meaning,
    n_params: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Expression ``i`` at every point: (n_points,), and its derivatives, (n_points, n_params).

    ``meaning(row, t)`` is the function of the operator at token t; ``n_params``: by the first parameters alone.
    """
    n_points, n_params = columns.shape[1], int(pop.n_params[i]) if n_params is None else n_params
    stack: list[tuple[np.ndarray, Tangent]] = []
    for t in range(pop.offsets[i], pop.offsets[i + 1]):
        kind, token = pop.kinds[t], int(pop.values[t])
        if kind == OPERATOR:
            row = ops.BY_CODE[token]
            operands = stack[-row.arity :]
            del stack[-row.arity :]
            y = meaning(row, t)(*(value for value, _ in operands))
            stack.append((y, _chained(row, operands, y, n_params)))
            continue
        tangent: Tangent = [None] * n_params
        if kind == PARAMETER and token < n_params:
            tangent[token] = np.ones(n_points)
        number = {CONSTANT: lambda t=t: constants[t], PARAMETER: lambda k=token: params[k]}
        stack.append((columns[token] if kind == VARIABLE else np.full(n_points, number[kind](), np.float64), tangent))
    if not stack:
        return np.full(n_points, np.nan), np.full((n_points, n_params), np.nan)
    y, tangent = stack.pop()
    return y, np.stack([np.zeros(n_points) if d is None else d for d in tangent] or [y], axis=1)[:, :n_params]


def _chained(row: ops.Operator, operands: list[tuple[np.ndarray, Tangent]], y: np.ndarray, n_params: int) -> Tangent:
    """The chain rule for one operator."""
    if row.code == ops.PAIR_OF:
        return [_packed(slope, other, len(y[0])) for slope, other in zip(operands[0][1], operands[1][1], strict=True)]
    if row.packed:
        (pair, slopes), last = operands
        operands = [(pair[k], [None if d is None else d[k] for d in slopes]) for k in range(2)] + [last]
    sums: Tangent = [None] * n_params
    values = [value for value, _ in operands]
    for k, (_, tangent) in enumerate(operands):
        active = [j for j in range(n_params) if tangent[j] is not None]
        if not active or (row.code, k) in no_slope():
            continue
        rule = _rules().get((row.code, k))
        factor = np.full(len(y), np.nan) if rule is None else rule(values, y)
        for j in active:
            part = _strong(ops.BY_CODE[ops.MUL]).numpy(factor, tangent[j])
            sums[j] = part if sums[j] is None else sums[j] + part
    return sums


def _packed(slope: np.ndarray | None, other: np.ndarray | None, n_points: int) -> np.ndarray | None:
    """The derivative of two operands side by side."""
    if slope is None and other is None:
        return None
    return np.stack([np.zeros(n_points) if d is None else d for d in (slope, other)])


@table_of_rows
def _rules() -> dict[tuple[int, int], Callable[[list[np.ndarray], np.ndarray], np.ndarray]]:
    """(operator's code, operand) -> the function of its derivative, over the operands' values and y."""
    places, rules = rule_texts()

    def rule(i: int) -> Callable[[list[np.ndarray], np.ndarray], np.ndarray]:
        def evaluated(operands: list[np.ndarray], y: np.ndarray) -> np.ndarray:
            columns = np.stack([operands[0], operands[min(1, len(operands) - 1)], y, operands[-1]])
            constants = rules.values.view(np.float64)
            none = np.empty(0)
            return value_and_derivatives(rules, i, columns, constants, none, lambda row, _: _strong(row).numpy)[0]

        return evaluated

    return {place: rule(i) for i, place in enumerate(places)}


def _strong(row: ops.Operator) -> ops.Operator:
    """The row that replaces this one in a derivative."""
    return ops.BY_NAME[row.rewrite.in_derivative] if row.rewrite.in_derivative else row
