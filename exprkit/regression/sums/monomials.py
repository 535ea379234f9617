"""Functions of many variables: products of powers of variables, one of them also within an operator.

In: the data's columns, operators.  Out: values and trees of terms such as ``(x1 / (x2 * x3)) ^ 2`` and
``x1 * sin(x2)``, the simplest first.

    >>> import numpy as np
    >>> from exprkit.expressions.arguments import operators_of
    >>> from exprkit.regression.formulas.trees import expression_of
    >>> from exprkit.regression.formulas.simplify import simplified
    >>> from exprkit.regression.sums.monomials import monomials
    >>> X = np.random.default_rng(0).uniform(1, 2, (5, 3))
    >>> terms = monomials(X, operators_of(["*", "/", "sin"]), most=2_000)
    >>> len(terms.trees), *(str(simplified(expression_of(terms.trees[i]))) for i in (0, 100, 260))
    (496, 'x1', 'x1 * sin(x2)', 'sqr(x2 * sin(x3))')

A pool has them as well, but among very many other functions of their size: of five variables few of six tokens.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from exprkit.operators import defined, ops
from exprkit.regression.formulas.trees import Tree
from exprkit.regression.pairs.pool import is_power
from exprkit.regression.sums.inside import Functions
from exprkit.text.tokens import CONSTANT, OPERATOR, VARIABLE

FEW, MANY = 3, 4  # variables with exponents of their own, and of a power of a product or quotient
ALONE = (1.0, -1.0, 2.0, -2.0)  # exponents of a variable,
TOGETHER = (1.0, 0.5, 1.5, 2.0, 3.0)  # and of a product or quotient
BESIDE = 2  # variables beside one that is within an operator
LARGEST = 1e12  # ratio of a term's values: rounding would hide all but a few rows

Exponents = tuple[float, ...]  # of every variable


class _Monomial(NamedTuple):
    """A product of powers, times an operator of a variable, squared or not; None: no operator."""

    size: int  # in tokens, about
    exponents: Exponents
    row: defined.Written | None = None
    variable: int = -1
    power: int = 1

    def values(self, logarithms: np.ndarray, signs: np.ndarray, X: np.ndarray) -> np.ndarray:
        """(n_rows,); nan where a root has none.  Logarithms of the sizes of X, and signs of it."""
        exponents = np.array(self.exponents)
        odd = exponents % 2 == 1
        values = np.exp(logarithms @ exponents) * signs[:, odd].prod(axis=1)
        if (exponents % 1 != 0).any():  # of all variables alike
            values = np.where(signs[:, exponents != 0].prod(axis=1) > 0, values, np.nan)
        return values if self.row is None else values * self.row.numpy(X[:, self.variable]) ** self.power

    def tree(self) -> Tree:
        """As it is read, not as it is shortest."""
        used = [(i, exponent) for i, exponent in enumerate(self.exponents) if exponent]
        sizes = {abs(exponent) for _, exponent in used}
        together = sizes.pop() if len(used) > 1 and len(sizes) == 1 else 1.0
        parts = [(_raised((VARIABLE, i), abs(exponent) / together), exponent > 0) for i, exponent in used]
        above, below = ([part for part, is_above in parts if is_above is side] for side in (True, False))
        tree = functools.reduce(_times, above) if above else (CONSTANT, 1.0)
        if below:
            tree = (OPERATOR, ops.DIV, tree, functools.reduce(_times, below))
        tree = _raised(tree, together)
        if self.row is None:
            return tree
        within = _raised((OPERATOR, self.row.code, (VARIABLE, self.variable)), self.power)
        return _times(tree, within) if used else within


def monomials(X: np.ndarray, operators: Sequence[defined.Written], most: int) -> Functions:
    """At most so many terms, the simplest first; none without products, and without quotients those of whole powers."""
    n, nothing = X.shape[1], Functions(np.empty((0, len(X))), [], np.empty(0, np.int64))
    codes = {row.code for row in operators}
    if ops.MUL not in codes:
        return nothing
    plain = sorted(
        (_Monomial(size, exponents) for exponents, size in _sizes(n, most).items()), key=lambda term: term.size
    )
    if ops.DIV not in codes:
        plain = [term for term in plain if all(e >= 0 and e % 1 == 0 for e in term.exponents)]
    small = [term for term in plain if np.count_nonzero(term.exponents) <= BESIDE]
    unary = [row for row in operators if row.arity == 1 and not is_power(row)]
    terms = plain[:most]
    for i in range(n) if unary else ():
        others = (term for term in small if not term.exponents[i])
        beside = [_Monomial(-1, (0.0,) * n), *itertools.islice(others, most // (n * len(unary)))]
        for factor, row, power in itertools.product(beside, unary, (1, 2)):
            terms.append(_Monomial(factor.size + 2 + power, factor.exponents, row, i, power))
    terms = sorted(terms, key=lambda term: term.size)[:most]
    with np.errstate(all="ignore"):
        logarithms, signs = np.log(np.abs(X)), np.sign(X)
        values = np.array([term.values(logarithms, signs, X) for term in terms])
        size = np.abs(values)
        fine = np.isfinite(values).all(axis=1) & (size.max(axis=1) < LARGEST * np.median(size, axis=1))
    usable = np.flatnonzero(fine).tolist()
    return Functions(
        values[usable], [terms[k].tree() for k in usable], np.array([terms[k].size for k in usable], np.int64)
    )


def _sizes(n: int, most: int) -> dict[Exponents, int]:
    """Tokens of products of powers of n variables, about; of so few variables that they are not many times too many."""
    least_sizes: dict[Exponents, int] = {}

    def note(variables: Sequence[int], exponents: Sequence[float], size: int) -> None:
        where = dict(zip(variables, exponents, strict=True))
        key = tuple(where.get(i, 0.0) for i in range(n))
        least_sizes[key] = min(size, least_sizes.get(key, size))

    for count in range(1, min(n, MANY) + 1):
        if math.comb(n, count) * len(ALONE) ** count > 4 * most:
            break
        for variables in itertools.combinations(range(n), count):
            for exponents in itertools.product(ALONE, repeat=count) if count <= FEW else ():
                note(variables, exponents, 2 * count - 1 + sum(abs(exponent) > 1 for exponent in exponents))
            for signs, power in itertools.product(itertools.product((1, -1), repeat=count), TOGETHER):
                size = 2 * count + (power not in (0.5, 1.0, 2.0)) - (power == 1)
                note(variables, [sign * power for sign in signs], size)
    return least_sizes


def _raised(tree: Tree, power: float) -> Tree:
    return tree if power == 1 else (OPERATOR, ops.POW, tree, (CONSTANT, float(power)))


def _times(a: Tree, b: Tree) -> Tree:
    return OPERATOR, ops.MUL, a, b
