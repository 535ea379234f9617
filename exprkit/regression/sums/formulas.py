"""Linear combinations as formulas: which functions are terms, and which operators surround the sum.

In: a ``Pool``, the ``Rows`` at its rows, operators.  Out: formulas ``u(c1 f1 + c2 f2 + ...)`` and
``u(1 / (c1 f1 + ...))`` of least error, of every size.

A sum among the functions is no term of its own: its terms are.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.operators import defined, ops
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.trees import Tree, combination, expression_of
from exprkit.regression.pairs.links import Undone, around_of, inverse, operands
from exprkit.regression.pairs.pool import Pool, is_power, without_multiples
from exprkit.regression.pairs.ruled_pool import RuledPool
from exprkit.regression.problem.rows import Rows
from exprkit.regression.rules.admission import FormulaRules, have_same_dimension
from exprkit.regression.sums.inside import Functions
from exprkit.regression.sums.linear import coefficients, weights_behind
from exprkit.regression.sums.selection import SUBSETS_PER_SIZE, Subset, selected


class Breadth(NamedTuple):
    """Limits of a selection: terms of a sum, functions to choose from, first ones, subsets of a size that go on."""

    terms: int
    functions: int
    first: tuple[int, int]
    kept: int = SUBSETS_PER_SIZE
    seconds: float = 0.0  # of work that a block of subsets counts as, beside its terms


ALONE = Breadth(5, 2_500, (400, 200))
WITHIN = Breadth(5, 1_500, (100, 100))  # an operator
MOSTLY_KNOWN = 0.9  # share of the rows at which a target is known (chosen, not measured)
NEARLY_0 = 1e-3  # share of what a value usually is


class Transform(NamedTuple):
    """The transformation of a sum to y: an operator or none, of the sum or its reciprocal."""

    outer: defined.Written | Undone | None
    over: bool

    @property
    def row(self) -> defined.Written | None:
        """The operator, if it is one."""
        return None if isinstance(self.outer, Undone) else self.outer

    def behind(self, y: np.ndarray) -> np.ndarray | None:
        """The values of the sum that give y, or None where there are none."""
        v, known = self.known(y)
        return v if known.all() else None

    def known(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The values of the sum that give y, and where there are any, both (n,)."""
        v, known = (y, np.isfinite(y)) if self.outer is None else operands(self.outer, y)
        with np.errstate(all="ignore"):
            v = 1 / v if self.over else v
        return v, known & np.isfinite(v)

    def value(self, v: np.ndarray) -> np.ndarray:
        """y of a sum with the values v."""
        v = 1 / v if self.over else v
        return v if self.outer is None else self.outer.numpy(v)

    def expression(self, total: Expression) -> Expression:
        whole = 1.0 / total if self.over else total
        return whole if self.outer is None else around_of(self.outer, whole)

    def dimension(self, rules: FormulaRules) -> float | None:
        """The dimension of the sum, None where no sum is allowed."""
        dimension = rules.operand_dimension(self.row)
        return dimension if dimension is None or not self.over else -dimension


def transforms(
    unary: Sequence[defined.Written], divides: bool = True, outermost: Sequence[defined.Written] = ()
) -> list[Transform]:
    """All transformations with these operators: none first, then powers, last operators that are ``outermost`` only."""
    invertible = [row for row in unary if inverse(row) is not None]
    powers, other = [row for row in invertible if is_power(row)], [row for row in invertible if not is_power(row)]
    places = [Transform(row, over) for row in (None, *powers, *other) for over in (False, True)[: 1 + divides]]
    return places + [Transform(row, False) for row in outermost if inverse(row) is not None]


def sums(
    pool: Pool,
    rows: Rows,
    transform: Transform,
    most_size: int,
    inside: Functions | None = None,
    rules: FormulaRules | None = None,
    breadth: Breadth | None = None,
    most_error: float = np.inf,
) -> list[Expression]:
    """The linear combinations of least squared error of every size as formulas, the smallest first.

    ``inside``: more terms, with a number inside, for sums without a transformation.  ``most_error``: a squared error,
    as a share of that of what the sum has to be; all rows tell as much then, whatever the error would be in terms of y:
    a few rows may hold nearly all of that, and too few tell which functions they are.
    """
    target = weighted(transform, rows) if np.isinf(most_error) else weighted_by_share(transform, rows)
    if target is None:
        return []
    v, weight = target
    usable = np.arange(len(pool))
    constant = breadth is not None or (transform.outer is None and not transform.over)
    if rules is not None and rules.have_units and not rules.free_numbers and isinstance(pool, RuledPool):
        dimension = transform.dimension(rules)
        if dimension is None:
            return []
        usable = np.flatnonzero(have_same_dimension(pool.dimensions, dimension))
        constant = constant and abs(dimension) < 1e-9
    breadth = breadth or (ALONE if transform == Transform(None, False) else WITHIN)
    terms = terms_of(pool, usable, breadth.functions)
    values, sizes = pool.values[terms], pool.sizes[terms].astype(np.int64)
    inner_terms = inside if inside is not None and constant else Functions(values[:0], [], sizes[:0])
    values, sizes = np.concatenate([values, inner_terms.values]), np.concatenate([sizes, inner_terms.sizes])
    scale = float(np.abs(v).max()) or 1.0
    select = functools.partial(
        selected,
        values,
        sizes,
        v / scale,
        weight,
        breadth.terms,
        first=breadth.first,
        kept=breadth.kept,
        seconds=breadth.seconds,
    )
    max_sum_size = most_size - transform.over * 2 - (transform.outer is not None)
    subsets = select(most_size=max_sum_size - 2 * constant, constant=constant)
    chosen = [subset for subset in subsets if subset.error <= most_error]
    functions = {k for subset in chosen for k in subset.functions}
    trees = {k: pool.tree(int(terms[k])) if k < len(terms) else inner_terms.trees[k - len(terms)] for k in functions}
    formulas = (_formula(subset, values, trees, v, weight, transform, constant) for subset in chosen)
    return sorted((formula for formula in formulas if formula is not None), key=lambda formula: formula.n_tokens)


def weighted(transform: Transform, rows: Rows) -> tuple[np.ndarray, np.ndarray] | None:
    """The target of a sum, and weights by which its squared errors are those of y; None where there is no target.

    Noise may take y to where no sum gives it: such rows weigh nothing, up to 1 - ``MOSTLY_KNOWN`` of all.
    """
    v, known = transform.known(rows.y)
    if not known.any() or known.mean() < MOSTLY_KNOWN:
        return None
    v = np.where(known, v, np.median(v[known]))
    weight = weights_behind(transform.value, v, np.where(known, rows.w, 0.0))
    return None if weight is None else (v, weight)


def weighted_by_share(
    transform: Transform, rows: Rows, nearly_0: float = NEARLY_0
) -> tuple[np.ndarray, np.ndarray] | None:
    """Target and weights of a sum whose errors count as shares of the target, but where that is nearly 0.

    ``nearly_0``: a share of what the size of the target usually is.
    """
    with np.errstate(all="ignore"):
        v = transform.behind(rows.y)
        if v is None or not np.isfinite(v).all() or not v.any():
            return None
        weight = 1 / np.maximum(np.abs(v), nearly_0 * np.median(np.abs(v))) ** 2
        weight = weight / weight.sum()
    return (v, weight) if np.isfinite(weight).all() else None


def terms_of(pool: Pool, usable: np.ndarray, most: int) -> np.ndarray:
    """Numbers of the first usable functions that are no sums and no multiples of each other, the smallest first."""
    order = usable[np.argsort(pool.sizes[usable], kind="stable")]
    terms = order[~np.isin(pool.made_by[order], [ops.ADD, ops.SUB])]
    return np.array(without_multiples(pool.values, terms.tolist(), most), np.int64)


def _formula(
    subset: Subset,
    values: np.ndarray,
    trees: dict[int, Tree],
    v: np.ndarray,
    weight: np.ndarray,
    transform: Transform,
    with_number: bool,
) -> Expression | None:
    """The formula of a subset with coefficients by least squares, and a constant if ``with_number``."""
    root = np.sqrt(weight)
    columns = values[list(subset.functions)].T * root[:, None]
    columns = np.column_stack([columns, root]) if with_number else columns
    numbers = coefficients(columns, v * root)
    if not np.isfinite(numbers).all() or not numbers.any():
        return None
    functions = [*(trees[k] for k in subset.functions), *[None] * with_number]
    terms = [(a, tree) for a, tree in zip(numbers.tolist(), functions, strict=True) if a]
    return simplified(transform.expression(expression_of(combination(terms))))
