"""Postfix tokens as words, and random populations, for the tests of the frontend."""

from __future__ import annotations

import numpy as np

import exprkit as ek
from exprkit.operators import ops
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE

AWKWARD = [0.0, -0.0, 1.0, -1.0, 2.0, -2.5, 0.1, 1 / 3, np.pi, -np.pi, 1e300, -1e300, 1e-300, 5e-324]
AWKWARD += [np.inf, -np.inf, np.nan]


def words(expression: ek.Expression) -> str:
    """``x1 2.5 add`` for x1 + 2.5."""
    letters, numbers = {VARIABLE: "x", PARAMETER: "p"}, expression.values.view(np.float64).tolist()
    return " ".join(
        f"{letters[kind]}{value + 1}"
        if kind in letters
        else repr(number)
        if kind == CONSTANT
        else ops.BY_CODE[value].name
        for kind, value, number in zip(expression.kinds.tolist(), expression.values.tolist(), numbers, strict=True)
    )


def random_population(n: int, seed: int, most_tokens: int = 30, rows=ops.OPERATORS) -> ek.Population:
    """Random trees over the table, with awkward constants."""
    rng = np.random.default_rng(seed)
    kinds: list[int] = []
    values: list[int] = []
    offsets = [0]
    bits = np.array(AWKWARD).view(np.uint64).tolist()
    for _ in range(n):
        height, length = 0, int(rng.integers(1, most_tokens + 1))
        while length > 0 or height > 1:
            length -= 1
            possible = [row for row in rows if row.arity <= height]
            if possible and (length <= 0 or rng.random() < 0.55):
                if length <= 0:
                    possible = [row for row in possible if row.arity == 2] or possible
                row = possible[rng.integers(len(possible))]
                kinds.append(OPERATOR)
                values.append(row.code)
                height += 1 - row.arity
            else:
                kind = int(rng.integers(3))
                kinds.append(kind)
                values.append(bits[rng.integers(len(bits))] if kind == CONSTANT else int(rng.integers(4)))
                height += 1
        offsets.append(len(kinds))
    return ek.Population(np.array(kinds, np.uint8), np.array(values, np.uint64), offsets)
