"""Confirmation of the join's pairs: their numbers by least squares on all rows, and the shortest formula.

In: ``Pairs`` of a link, the ``Rows``.  Out: formulas that are y but for rounding at every row.
"""

from __future__ import annotations

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.regression.formulas.numbers import CLOSE, simple_number
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.values import values_of
from exprkit.regression.pairs.join import Pairs
from exprkit.regression.pairs.links import OVER, TIMES, Link, pair_numbers
from exprkit.regression.pairs.pool import Pool
from exprkit.regression.problem.rows import Rows

TRIED = 16  # pairs of a link, the smallest (chosen, not measured)
MOSTLY = 0.8  # share of the rows at which a + b h has to be known (chosen, not measured)


def confirmed(pairs: Pairs, link: Link, pool: Pool, rows: Rows) -> list[Expression]:
    """Formulas of these pairs that are exact at all rows, the shortest first."""
    f, h = pairs.f[:TRIED].tolist(), pairs.h[:TRIED].tolist()
    v = link.behind(rows.y)
    if not f or v is None:
        return []
    functions = sorted({*f, *h})
    index = {function: k for k, function in enumerate(functions)}
    expressions = pool.expressions(functions)
    values = values_of(expressions, rows.X)
    formulas: list[Expression] = []
    for i, j in zip(f, h, strict=True):
        f_values, h_values = values[index[i]], values[index[j]]
        target = link.linear_part(v, f_values)
        is_known = np.isfinite(target) & np.isfinite(h_values)  # elsewhere f hides what is left
        if is_known.mean() < MOSTLY:
            continue
        whole = None if link.way in (TIMES, OVER) and str(expressions[index[i]]) == "1" else expressions[index[i]]
        for a, b in _numbers(target[is_known], h_values[is_known]):
            formulas.append(simplified(link.expression(whole, line(a, b, expressions[index[j]]))))
    if not formulas:
        return []
    exact = rows.is_exact(values_of(formulas, rows.X))
    return sorted((formulas[k] for k in np.flatnonzero(exact)), key=lambda formula: formula.n_tokens)


def line(a: float, b: float, h: Expression) -> Expression:
    """The expression a + b h."""
    return b * h if a == 0 else a + b * h


def joined(pool: Pool, link: Link, f: int, h: int, y: np.ndarray) -> list[Expression]:
    """Formulas of a pair of functions: a and b by linear regression, and the same with a = 0."""
    numbers = pair_numbers(pool.values[f], pool.values[h], link, y)
    if numbers is None:
        return []
    f_of, h_of, (a, b) = pool.expression(f), pool.expression(h), numbers
    return [simplified(link.expression(f_of, line(constant, b, h_of))) for constant in (a, 0.0)]


def _numbers(target: np.ndarray, h: np.ndarray) -> list[tuple[float, float]]:
    """Candidates for a and b by linear regression: b alone, both, and rounded to simple numbers."""
    with np.errstate(all="ignore"):
        weight = np.where(target != 0, 1 / np.abs(target), 0.0)
        scale = 1 / np.abs(h * weight).max()
        columns = np.column_stack([weight / weight.max(), h * weight * scale])
    if not np.isfinite(columns).all():
        return []
    target = target * weight
    slope = float(columns[:, 1] @ target / (columns[:, 1] @ columns[:, 1])) * scale
    (a, b), *_ = np.linalg.lstsq(columns, target, rcond=None)
    a, b = float(a / weight.max()), float(b * scale)
    tolerances = (CLOSE, 1e-8, 1e-6)  # the data determine a number that hardly counts less well than y
    pairs = [(0.0, simple_number(slope)), (0.0, slope)]
    pairs += [(simple_number(a, c), simple_number(b, CLOSE)) for c in tolerances]
    pairs += [*((simple_number(a, c), b) for c in tolerances), *((a, simple_number(b, c)) for c in tolerances), (a, b)]
    return [pair for pair in dict.fromkeys(pairs) if all(map(np.isfinite, pair)) and pair[1] != 0]
