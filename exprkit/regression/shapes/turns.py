"""Turns: periodic operators of a formula whose frequency is above the Nyquist frequency of the rows.

In: fitted formulas, rows.  Out: for each whether it has such an operator, a sine of a column of large numbers say.

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

PERIODS = (math.pi, 2 * math.pi, 1.0, 2.0, 180.0, 360.0)  # of operators, the shortest of a kind first
MAX_UNRESOLVED = 0.5  # share of the argument's range that rows further apart than half a turn may cover (chosen)
MAX_ROWS = 10_000  # chosen, not measured


def turn_too_fast(formulas: list[Expression], X: np.ndarray) -> np.ndarray:
    """Whether each formula has a periodic operator that the rows do not resolve, bool (n,)."""
    parts = [_periodic(tree_of(formula)) for formula in formulas]
    arguments = list(dict.fromkeys(argument for part in parts for argument, _ in part))
    if not arguments:
        return np.zeros(len(formulas), bool)
    values = values_of([expression_of(argument) for argument in arguments], X[:MAX_ROWS])
    steps = [np.diff(np.unique(row[np.isfinite(row)])) for row in values]
    gaps = dict(zip(arguments, steps, strict=True))
    return np.array([any(_is_unresolved(gaps[argument], period) for argument, period in part) for part in parts])


def _is_unresolved(gaps: np.ndarray, period: float) -> bool:
    """Whether gaps of more than half a period cover most of the argument's range."""
    return bool(gaps[gaps > period / 2].sum() > MAX_UNRESOLVED * gaps.sum())


def _periodic(tree: Tree) -> list[tuple[Tree, float]]:
    """Arguments of a tree's periodic operators, and their periods."""
    return [
        (node[2], period)
        for node in operators_in(tree)
        if len(node) == 3 and node[2][0] != CONSTANT and (period := _period(node[1]))
    ]


def operators_in(tree: Tree) -> Iterator[Tree]:
    """Every operator of a tree with its operands, the innermost first."""
    if tree[0] == OPERATOR:
        for operand in tree[2:]:
            yield from operators_in(operand)
        yield tree


@functools.cache
def _period(code: int) -> float:
    """The period of a unary operator; 0 where it has none of ``PERIODS``."""
    row, at = defined.known(code), np.array([0.3, 1.1, 2.3, 4.7, 7.9])
    with np.errstate(all="ignore"):
        first = row.numpy(at)
        for period in PERIODS if np.isfinite(first).all() and np.ptp(first) > 1e-6 else ():
            if np.allclose(row.numpy(at + period), first, rtol=1e-9, atol=1e-9):
                return period
    return 0.0
