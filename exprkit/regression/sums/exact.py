"""Sums of a few simple functions that are y but for rounding or little noise, also within operators, in a moment.

In: a ``Pool``, the ``Rows`` at its rows, transformations.  Out: formulas ``u(c0 + c1 f1 + c2 f2 + ...)``.

Sums of many functions take seconds, because noise leaves much to choose from.  Whether a sum is exact, few functions
and rows tell at once; so all places where one may stand are tried before anything that takes long: first sums of the
pool's functions, then of monomials of more variables than those have.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.operators import defined, ops
from exprkit.regression.pairs.links import UNDONE
from exprkit.regression.pairs.pool import Pool, is_power
from exprkit.regression.problem.effort import WORK
from exprkit.regression.problem.rows import Rows
from exprkit.regression.rules.admission import FormulaRules
from exprkit.regression.sums.dependent import dependent, makes_products
from exprkit.regression.sums.formulas import Breadth, Transform, sums, transforms
from exprkit.regression.sums.monomials import monomials

NEARLY = 1e-8  # squared error as a share of v's: of y with four digits and more, whose sums are to be fitted
BREADTH = Breadth(5, 2_000, (60, 60), 8, WORK.sums_check)
MONOMIALS, OF_MONOMIALS = 4_000, BREADTH._replace(functions=0)


def exact_sums(
    pool: Pool, rows: Rows, operators: Sequence[defined.Written], most_size: int, rules: FormulaRules | None = None
) -> Iterator[list[Expression]]:
    """Exact formulas of at most so many tokens, one transformation after the other, of a pool of these rows."""
    unary = [row for row in operators if row.arity == 1]
    every = transforms(unary, any(row.code in (ops.DIV, ops.INV) for row in operators))
    places = [place for place in every if place.row is None or makes_products(place.row)]
    dependencies = functools.partial(dependent, pool, rows, operators)
    yield from dependencies(within=False)
    for place in places:
        yield sums(pool, rows, place, most_size, None, rules, BREADTH, NEARLY)
    if rules is None:  # which know no dimensions of these
        more = monomials(rows.X, operators, MONOMIALS)
        for place in sorted(places, key=_squares):
            if place.row is None or is_power(place.row):
                yield sums(pool, rows, place, most_size, more, None, OF_MONOMIALS, NEARLY)
        for undone in UNDONE:
            for terms, breadth in ((None, BREADTH), (more, OF_MONOMIALS)):
                yield sums(pool, rows, Transform(undone, False), most_size, terms, None, breadth, NEARLY)
    yield from dependencies(within=True)


def _squares(place: Transform) -> bool:
    """Whether the operator is a square, whose operand is seldom a sum of many variables."""
    return place.row is not None and bool(place.row.numpy(np.float64(3.0)) == 9.0)
