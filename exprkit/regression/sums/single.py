"""Single functions of a large pool, by least squares: ``u(a + b f)`` and ``u(b f)``.

In: a ``Pool``, the ``Rows`` at its rows, transformations.  Out: formulas of less error than all shorter ones.

A law that is one product may be longer than all terms that sums are made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.regression.formulas.numbers import plain_numbers
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.trees import combination, expression_of
from exprkit.regression.pairs.pool import Pool
from exprkit.regression.problem.effort import WORK
from exprkit.regression.problem.rows import Rows
from exprkit.regression.sums.formulas import Transform, weighted
from exprkit.regression.sums.linear import coefficients
from exprkit.runtime.budget import spend

MIN_DECREASE = 0.98  # of an error: at least by so much, or a longer formula is none of the best


def singles(pool: Pool, rows: Rows, places: Sequence[Transform]) -> Iterator[list[Expression]]:
    """The Pareto front of the formulas of each transformation, the smallest first."""
    f = pool.values / np.abs(pool.values).max(axis=1)[:, None]
    squares, sizes = f**2, pool.sizes[: len(pool)]
    for transform in places:
        target = weighted(transform, rows)
        if target is None:
            continue
        v, weight = target
        v = v / np.abs(v).max()
        spend(f.size * WORK.single)
        mean, whole = float(weight @ v), float(weight @ v**2)
        products, means, length = f @ (weight * v), f @ weight, squares @ weight
        with np.errstate(all="ignore"):
            errors_of_slope = whole - products**2 / length
            errors_of_line = whole - mean**2 - (products - mean * means) ** 2 / (length - means**2)
        formulas = [
            _formula(pool, k, target, transform, constant)
            for constant, errors in enumerate((errors_of_slope, errors_of_line))
            for k in _pareto_front(errors, sizes)
        ]
        yield sorted((formula for formula in formulas if formula is not None), key=lambda formula: formula.n_tokens)


def _pareto_front(errors: np.ndarray, sizes: np.ndarray) -> list[int]:
    """Indices of the errors that are less than all of smaller sizes."""
    errors = np.where(np.isfinite(errors), errors, np.inf)
    order = np.lexsort((errors, sizes))
    smaller = np.minimum.accumulate(np.append(np.inf, errors[order][:-1]))
    front: list[int] = order[errors[order] < MIN_DECREASE * smaller].tolist()
    return front


def _formula(
    pool: Pool, k: int, target: tuple[np.ndarray, np.ndarray], transform: Transform, constant: int
) -> Expression | None:
    v, root = target[0], np.sqrt(target[1])
    columns = np.column_stack([pool.values[k], np.ones(len(v))])[:, : 1 + constant] * root[:, None]
    numbers = coefficients(columns, v * root)
    if not np.isfinite(numbers).all() or not numbers.all():
        return None
    line = combination(zip(numbers.tolist(), (pool.tree(k), None), strict=False))
    return plain_numbers(simplified(transform.expression(expression_of(line))))
