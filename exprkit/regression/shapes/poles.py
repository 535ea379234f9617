"""Poles: whether a formula is infinite, or no number, between rows of the data.

In: fitted formulas, the ``Rows``.  Out: for each whether it has a pole, or is undefined, between two rows.

    >>> import numpy as np
    >>> from exprkit.expressions.parser import parse
    >>> from exprkit.regression.shapes.poles import have_poles
    >>> from exprkit.regression.problem.rows import Rows
    >>> rows = Rows(np.linspace(1, 8, 9)[:, None], np.linspace(1, 8, 9))
    >>> texts = ["1e-6 / (x1 - 2.3)", "1e-6 / sqr(x1 - 2.3)", "sqrt(sqr(x1 - 2.5) - 0.01)", "sin(x1 - 2) / (x1 - 2)"]
    >>> have_poles(list(parse(texts)), rows).tolist()
    [True, True, True, False]

Formulas are looked at on lines between rows next to each other.  Where an operand comes to 0 there at which its
operator is infinite, as a denominator or the argument of a logarithm, the formula is looked at right beside that place:
the sine over its argument is no pole.  Where a variable itself comes to 0, as in x1 / x4 of a column with both signs,
that is a zero of the data: no pole either.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.operators import defined
from exprkit.regression.formulas.trees import Tree, expression_of, tree_of
from exprkit.regression.formulas.values import values_of
from exprkit.regression.problem.noise import nearest_neighbours
from exprkit.regression.problem.rows import Rows
from exprkit.regression.shapes.turns import operators_in
from exprkit.text.tokens import CONSTANT, OPERATOR, VARIABLE

ROWS = 500  # of the data at most
LINES = 1_000  # between neighbours at most
STEPS = 8  # of a line
ZOOMS = 40  # halvings of the step around the least operand
ZEROS = 64  # lines on which a zero of an operand is searched for, those where it is closest to 0
OFFSET = 1e-9  # from a zero to where the formula is evaluated beside it, as a share of a step
ZERO = 1e-6  # size of an operand that counts as 0, as a share of its median
AWKWARD = (-1.5, 0.5, 1.5)  # operands at which operators may be undefined: roots, logarithms, inverse functions
FAR_OFF = 1.0  # distance from the range of y, as a share of it


def have_poles(formulas: list[Expression], rows: Rows) -> np.ndarray:
    """Whether each formula has a pole or is undefined between two rows, bool (n,)."""
    if len(rows) < 2 or not rows.X.shape[1]:
        return np.zeros(len(formulas), bool)
    few = rows if len(rows) <= ROWS else rows.subsample(ROWS, 0)
    first, second = _neighbours(few.X)
    are_poles = ~np.isfinite(values_of(formulas, _between(first, second, np.linspace(0, 1, STEPS + 1)))).all(axis=1)
    are_poles &= [bool(_operands_with(tree_of(formula), AWKWARD, np.isnan)) for formula in formulas]
    for i in np.flatnonzero(~are_poles).tolist():
        operands = list(dict.fromkeys(map(expression_of, _operands_with(tree_of(formulas[i]), (0.0,), np.isinf))))
        are_poles[i] = any(_is_pole(formulas[i], operand, first, second, few.y) for operand in operands)
    return are_poles


def _neighbours(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and second rows of pairs of neighbours: the lines that are looked at."""
    if X.shape[1] == 1:
        row = np.unique(X, axis=0)
        return row[:-1], row[1:]
    near = nearest_neighbours(X)
    pairs = np.column_stack([np.repeat(np.arange(len(X)), near.shape[1]), near.ravel()])
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    if len(pairs) > LINES:
        pairs = pairs[np.linspace(0, len(pairs) - 1, LINES).astype(int)]
    return X[pairs[:, 0]], X[pairs[:, 1]]


def _between(first: np.ndarray, second: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Rows on lines from first to second at t, the share of the length: one for all lines, or (n_lines, n_steps)."""
    t = np.broadcast_to(t, (len(first), t.shape[-1]))[..., None]
    rows: np.ndarray = (first[:, None] + t * (second - first)[:, None]).reshape(-1, first.shape[1])
    return rows


def _operands_with(tree: Tree, values: tuple[float, ...], is_bad: Callable[[Any], Any]) -> list[Tree]:
    """Operands of a tree, monomials left out, whose operator has a bad result at one of these values."""
    matches = []
    for _, code, *operands in operators_in(tree):
        row = defined.known(code)
        usual = [np.float64(operand[1] if operand[0] == CONSTANT else 1.5) for operand in operands]
        for k, operand in enumerate(operands):
            if operand[0] == OPERATOR and not _is_monomial(operand):
                with np.errstate(all="ignore"):
                    results = [row.numpy(*usual[:k], np.float64(value), *usual[k + 1 :]) for value in values]
                matches += [operand] * bool(np.any(is_bad(results)))
    return matches


def _is_monomial(tree: Tree) -> bool:
    """Whether a tree has only variables, their products, quotients and powers."""
    if tree[0] != OPERATOR:
        return bool(tree[0] == VARIABLE)
    return _is_product(tree[1], len(tree) - 2) and all(map(_is_monomial, tree[2:]))


@functools.cache
def _is_product(code: int, n_operands: int) -> bool:
    """Whether doubling an operand multiplies an operator's result by the same number everywhere."""
    at, row = np.array([[0.3, 1.1, 7.9], [0.7, 2.3, 0.9], [1.3, 0.2, 3.1]])[:n_operands], defined.known(code)
    with np.errstate(all="ignore"):
        first = row.numpy(*at)
        shares = [row.numpy(*(at * (1 + (np.arange(n_operands) == k))[:, None])) / first for k in range(n_operands)]
        return all(np.allclose(share, share[0], rtol=1e-9, atol=0) for share in shares)


def _is_pole(formula: Expression, operand: Expression, first: np.ndarray, second: np.ndarray, y: np.ndarray) -> bool:
    """Whether the operand comes to 0 on a line, and the formula is far off there."""
    t = np.linspace(0, 1, STEPS + 1)
    size = np.abs(values_of([operand], _between(first, second, t))[0].reshape(len(first), -1))
    least = size.argmin(axis=1)
    lines = np.argsort(size.min(axis=1) / np.median(size, axis=1), kind="stable")[:ZEROS]
    first, second, middle, width = first[lines], second[lines], t[least[lines]], 1 / STEPS
    for _ in range(ZOOMS):
        steps = np.clip(middle[:, None] + width * np.linspace(-1, 1, 5), 0, 1)
        near = np.abs(values_of([operand], _between(first, second, steps))[0].reshape(len(first), -1))
        middle, width = np.take_along_axis(steps, near.argmin(axis=1)[:, None], axis=1)[:, 0], width / 2
    is_zero = near.min(axis=1) <= ZERO * np.median(size)
    beside = np.clip(middle[:, None] + OFFSET * np.array([-1, 1]) / STEPS, 0, 1)
    values, room = values_of([formula], _between(first, second, beside))[0].reshape(-1, 2), FAR_OFF * np.ptp(y)
    usual = (values >= y.min() - room) & (values <= y.max() + room)
    return bool((is_zero & ~usual.all(axis=1)).any())
