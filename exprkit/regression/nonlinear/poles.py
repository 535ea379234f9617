"""Poles: whether a formula is infinite, or no number, between rows of the sample.

In: formulas with numbers, the ``Sample``.  Out: which of them have a pole, or a gap, within the range of the rows.

    >>> import numpy as np
    >>> from exprkit.expressions.parser import parse
    >>> from exprkit.regression.nonlinear.poles import have_poles
    >>> from exprkit.regression.sample import Sample
    >>> sample = Sample(np.linspace(1, 8, 9)[:, None], np.linspace(1, 8, 9))
    >>> texts = ["1e-6 / (x1 - 2.3)", "1e-6 / sqr(x1 - 2.3)", "sqrt(sqr(x1 - 2.5) - 0.01)", "sin(x1 - 2) / (x1 - 2)"]
    >>> have_poles(list(parse(texts)), sample).tolist()
    [True, True, True, False]

Formulas are looked at on lines between rows next to each other.  Where an operand comes to 0 there at which its
operator is infinite, as a denominator or the argument of a logarithm, the formula is looked at right beside that place:
the sine over its argument is no pole.
"""

from __future__ import annotations

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.operators import defined
from exprkit.regression.confirm import values_of
from exprkit.regression.nonlinear.noise import nearest
from exprkit.regression.polish import Tree, expression_of, tree_of
from exprkit.regression.sample import Sample
from exprkit.text.tokens import CONSTANT, OPERATOR, VARIABLE

ROWS = 500  # that are looked at
LINES = 1_000  # between rows
STEPS = 8  # of a line
ZOOMS = 40  # each to half of what is left of it
PLACES = 64  # at which an operand may come to 0, the nearest to it
BESIDE = 1e-9  # share of a step that is right beside such a place
ZERO = 1e-6  # share of an operand's usual size that is 0
FAR_OFF = 1.0  # of the range of y beside it


def have_poles(formulas: list[Expression], sample: Sample) -> np.ndarray:
    """Of every formula whether it has, (n,)."""
    if len(sample) < 2 or not sample.X.shape[1]:
        return np.zeros(len(formulas), bool)
    some = sample if len(sample) <= ROWS else sample.few(ROWS, 0)
    first, second = _neighbours(some.X)
    found = ~np.isfinite(values_of(formulas, _between(first, second, np.linspace(0, 1, STEPS + 1)))).all(axis=1)
    for i in np.flatnonzero(~found).tolist():
        operands = list(dict.fromkeys(map(expression_of, _dividing(tree_of(formulas[i])))))
        found[i] = any(_is_pole(formulas[i], operand, first, second, some.y) for operand in operands)
    return found


def _neighbours(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and others near to them."""
    if X.shape[1] == 1:
        row = np.unique(X, axis=0)
        return row[:-1], row[1:]
    near = nearest(X)
    pairs = np.column_stack([np.repeat(np.arange(len(X)), near.shape[1]), near.ravel()])
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    if len(pairs) > LINES:
        pairs = pairs[np.linspace(0, len(pairs) - 1, LINES).astype(int)]
    return X[pairs[:, 0]], X[pairs[:, 1]]


def _between(first: np.ndarray, second: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Rows on lines at shares of their length, which are the same for all or (lines, steps)."""
    t = np.broadcast_to(t, (len(first), t.shape[-1]))[..., None]
    rows: np.ndarray = (first[:, None] + t * (second - first)[:, None]).reshape(-1, first.shape[1])
    return rows


def _dividing(tree: Tree) -> list[Tree]:
    """Operands that make their operator infinite where they are 0."""
    if tree[0] != OPERATOR:
        return []
    row, operands = defined.known(tree[1]), tree[2:]
    usual = [np.float64(operand[1] if operand[0] == CONSTANT else 1.5) for operand in operands]
    found = [inner for operand in operands for inner in _dividing(operand)]
    for k, operand in enumerate(operands):
        if operand[0] in (OPERATOR, VARIABLE):
            with np.errstate(all="ignore"):
                at_0 = row.numpy(*usual[:k], np.float64(0.0), *usual[k + 1 :])
            found += [operand] * bool(np.isinf(at_0))
    return found


def _is_pole(
    formula: Expression, operand: Expression, first: np.ndarray, second: np.ndarray, y: np.ndarray
) -> bool:  # fmt: skip
    """Whether the operand comes to 0 on a line, and the formula is far off there."""
    t = np.linspace(0, 1, STEPS + 1)
    size = np.abs(values_of([operand], _between(first, second, t))[0].reshape(len(first), -1))
    least = size.argmin(axis=1)
    lines = np.argsort(size.min(axis=1) / np.median(size, axis=1), kind="stable")[:PLACES]
    first, second, middle, width = first[lines], second[lines], t[least[lines]], 1 / STEPS
    for _ in range(ZOOMS):
        steps = np.clip(middle[:, None] + width * np.linspace(-1, 1, 5), 0, 1)
        near = np.abs(values_of([operand], _between(first, second, steps))[0].reshape(len(first), -1))
        middle, width = np.take_along_axis(steps, near.argmin(axis=1)[:, None], axis=1)[:, 0], width / 2
    at_0 = near.min(axis=1) <= ZERO * np.median(size)
    beside = np.clip(middle[:, None] + BESIDE * np.array([-1, 1]) / STEPS, 0, 1)
    values, room = values_of([formula], _between(first, second, beside))[0].reshape(-1, 2), FAR_OFF * np.ptp(y)
    usual = (values >= y.min() - room) & (values <= y.max() + room)
    return bool((at_0 & ~usual.all(axis=1)).any())
