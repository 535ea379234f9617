"""The operator table's rewrite rules as compiled functions: ``x1 ^ 2`` becomes ``sqr x1``, ``neg neg x1`` becomes
``x1``.

In: the code of an operator and its operands among nodes; out: the code and operands that stand for it.
Lowering asks for every operator that it reads, differentiation for every one that it makes.

    >>> from exprkit.expressions.rewrite import table_rules
    >>> from exprkit.operators import ops
    >>> rules = table_rules("ieee")
    >>> first, end = rules.constant_start[ops.POW : ops.POW + 2]
    >>> [ops.BY_CODE[int(code)].name for code in rules.constant_code[first:end]]  # for certain exponents
    ['copy', 'sqr', 'cube', 'inv']
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exprkit.operators import ops
from exprkit.operators.defined import table_of_rows
from exprkit.runtime.jit import inline
from exprkit.text.tokens import CONSTANT, PARAMETER, VARIABLE

NONE = 255  # in a rule: does not apply

# What a node is.  Leaves keep their token's kind (CONSTANT, VARIABLE, PARAMETER).
UNIFORM_NODE = 4  # an operator of uniforms only
COLUMN_NODE = 5  # a unary operator of a variable
POINT_NODE = 6  # everything else: computed for every data point


class Rules(NamedTuple):
    """The cells of the table that rewriting and lowering read; NONE where a row has no such cell."""

    arity: np.ndarray
    width: np.ndarray
    fused: np.ndarray  # [op, inner] -> other
    positive_a: np.ndarray
    whole_b: np.ndarray
    first: np.ndarray
    rest: np.ndarray
    multiple: np.ndarray  # [first] -> the operator that is a multiple of what ``first`` gives ...
    factor: np.ndarray  # ... and how much of it
    constant_start: np.ndarray  # constant_b of a code: entries start[code]:start[code + 1]
    constant_value: np.ndarray
    constant_code: np.ndarray


@table_of_rows
def table_rules(precision: str | None) -> Rules:
    """The rules of a precision; None: rules that leave every operator as it is."""

    def code(name: str | None) -> int:
        return NONE if name is None else ops.BY_NAME[name].code

    def cells(default: int) -> np.ndarray:
        return np.full(256, default, np.uint8)

    width, positive_a, whole_b, first, rest = cells(1), cells(NONE), cells(NONE), cells(NONE), cells(NONE)
    multiple, factor = cells(NONE), np.zeros(256)
    fused = np.full((256, 256), NONE, np.uint8)
    start, value, other = np.zeros(257, np.int64), [], []
    for row in sorted(ops.BY_CODE.values(), key=lambda row: row.code) if precision else ():
        width[row.code] = row.width
        positive_a[row.code] = code(row.rewrite.positive_a)
        if precision == "fast":
            whole_b[row.code] = code(row.rewrite.whole_b)
        if row.rewrite.split:
            first[row.code], rest[row.code] = map(code, row.rewrite.split)
        if row.rewrite.multiple_of:
            part, number = row.rewrite.multiple_of
            multiple[code(part)], factor[code(part)] = row.code, number
        for inner, outcome in row.rewrite.inner.items():
            fused[row.code, code(inner)] = code(outcome)
        value += list(row.rewrite.constant_b)
        other += [code(name) for name in row.rewrite.constant_b.values()]
        start[row.code + 1 :] = len(value)
    return Rules(
        ops.ARITY.copy(),
        width,
        fused,
        positive_a,
        whole_b,
        first,
        rest,
        multiple,
        factor,
        start,
        np.array(value, np.float64),
        np.array(other, np.uint8),
    )


# ── rules, applied ───────────────────────────────────────────────────────────────────


@inline
def rewrite(code, a, b, rules, graph):
    """``code(a, b)`` by the rules: a special constant, a fused pair of operators, a base known positive."""
    code, b = _constant_rule(code, b, rules, graph)
    while rules.fused[code, graph.code[a]] != NONE:
        code, a = rules.fused[code, graph.code[a]], graph.a[a]
    if rules.positive_a[code] != NONE and _is_positive(a, graph):
        code = rules.positive_a[code]
    code, b = _constant_rule(code, b, rules, graph)
    if rules.whole_b[code] != NONE and graph.group[b] == CONSTANT:
        number = graph.numbers[graph.a[b]]
        if number == np.floor(number) and abs(number) < np.inf:
            code = rules.whole_b[code]
    return code, a, b


@inline
def _constant_rule(code, b, rules, graph):
    if b >= 0 and graph.group[b] == CONSTANT:
        number = graph.numbers[graph.a[b]]
        for k in range(rules.constant_start[code], rules.constant_start[code + 1]):
            if number == rules.constant_value[k]:
                return rules.constant_code[k], -1
    return code, b


@inline
def _is_positive(a, graph):
    """Known to be neither negative nor -0."""
    if graph.group[a] == VARIABLE:
        return graph.positive[graph.a[a]]
    return graph.group[a] == CONSTANT and (graph.values[graph.a[a]] >> np.uint64(63)) == 0


@inline
def is_uniform(a, graph):
    group = graph.group[a]
    return group in (CONSTANT, PARAMETER, UNIFORM_NODE)


@inline
def group_of(a, b, graph):
    if is_uniform(a, graph) and (b < 0 or is_uniform(b, graph)):
        return UNIFORM_NODE
    return COLUMN_NODE if b < 0 and graph.group[a] == VARIABLE else POINT_NODE
