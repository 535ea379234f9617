"""Turns: whether a periodic operator in a formula turns faster than the rows can tell.

In: formulas with numbers, rows.  Out: which of them have such an operator, a sine of a column of large numbers say.

    >>> import numpy as np
    >>> from exprkit.expressions.parser import parse
    >>> from exprkit.regression.shapes.turns import turn_too_fast
    >>> X = np.linspace(0, 10, 21)[:, None]
    >>> turn_too_fast(list(parse(["x1", "sin(5 * x1)", "cos(7 * x1 + 1)", "cos(sin(x1) + 1)"])), X).tolist()
    [False, False, True, False]

Between two rows next to each other, in the order of the operator's argument, it may turn by half a turn; further, and a
slower one has the same values (H. Nyquist, Trans. AIEE 47, 1928).  Where most of its turns are between rows that are
further apart, it can follow any noise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.operators import defined
from exprkit.regression.formulas.trees import Tree, expression_of, tree_of
from exprkit.regression.formulas.values import values_of
from exprkit.text.tokens import CONSTANT, OPERATOR

PERIODS = (math.pi, 2 * math.pi, 1.0, 2.0, 180.0, 360.0)  # that operators may have, the shortest of a kind first
UNTOLD = 0.5  # share of the turns that may be between rows further apart than half a turn
ROWS = 10_000  # that are looked at


def turn_too_fast(formulas: list[Expression], X: np.ndarray) -> np.ndarray:
    """Of every formula whether a part of it does, (n,)."""
    parts = [_periodic(tree_of(formula)) for formula in formulas]
    arguments = list(dict.fromkeys(argument for part in parts for argument, _ in part))
    if not arguments:
        return np.zeros(len(formulas), bool)
    values = values_of([expression_of(argument) for argument in arguments], X[:ROWS])
    steps = [np.diff(np.unique(row[np.isfinite(row)])) for row in values]
    gaps = dict(zip(arguments, steps, strict=True))
    return np.array([any(_is_untold(gaps[argument], period) for argument, period in part) for part in parts])


def _is_untold(gaps: np.ndarray, period: float) -> bool:
    return bool(gaps[gaps > period / 2].sum() > UNTOLD * gaps.sum())


def _periodic(tree: Tree) -> list[tuple[Tree, float]]:
    """Arguments of periodic operators, and the periods."""
    return [(node[2], period) for node in operators_in(tree)
            if len(node) == 3 and node[2][0] != CONSTANT and (period := _period(node[1]))]  # fmt: skip


def operators_in(tree: Tree) -> Iterator[Tree]:
    """Every operator of a tree with its operands, the innermost first."""
    if tree[0] == OPERATOR:
        for operand in tree[2:]:
            yield from operators_in(operand)
        yield tree


@functools.cache
def _period(code: int) -> float:
    """Of an operator of one operand; 0 where it has none of ``PERIODS``."""
    row, at = defined.known(code), np.array([0.3, 1.1, 2.3, 4.7, 7.9])
    with np.errstate(all="ignore"):
        first = row.numpy(at)
        for period in PERIODS if np.isfinite(first).all() and np.ptp(first) > 1e-6 else ():
            if np.allclose(row.numpy(at + period), first, rtol=1e-9, atol=1e-9):
                return period
    return 0.0
