"""Consistency of polynomial inequalities: proofs that a system of them has no solution.

In: inequalities, and symbols whose values are known.  Out: True where a contradiction was proved.  All symbols are
whole numbers, none below 0.  No cylindrical decomposition is needed here: a contradiction of case discussions
is nearly always one of these three.

========================  ==========================================================================================
false by itself           ``3 <= 2``, or ``polynomial <= 0`` where all coefficients are positive
two contradict            the sum of two differences that are at most 0 has coefficients above 0 alone: ``a <= Z < a``
an empty interval         those that are linear in one symbol and hold no other leave no value of it
========================  ==========================================================================================

    >>> from sympy import Symbol
    >>> from exprkit.backends.cases.consistency import contradictory
    >>> from exprkit.backends.cases.inequality import Inequality, expression, symbol
    >>> B, s = Symbol("B", integer=True, positive=True), Symbol("s", integer=True, positive=True)
    >>> fits = Inequality(expression(2 * s * B), symbol("Z_B"))
    >>> contradictory([fits, fits.refused()]), contradictory([fits])
    (True, False)
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from exprkit.backends.cases.inequality import Constraint, Inequality, formula, of_symbols

if TYPE_CHECKING:
    import sympy

Difference = tuple["sympy.Expr", bool]  # what is at most 0, or strictly below it


def contradictory(system: Sequence[Constraint], known: Mapping[str, Any] | None = None) -> bool:
    """Whether it is proved that no values satisfy the system; False: they may, or no proof was found.

    Parameters
    ----------
    system : sequence of constraints
        Those that are no polynomials in the symbols say nothing, nor does that one of several does not hold.
    known : mapping, optional
        Symbols whose values are given.
    """
    given = tuple((known or {}).items())
    found = [_difference(part, given) for one in system for part in _parts(one)]
    differences = [one for one in found if one is not None]
    if any(_never(one) for one in differences):
        return True
    if any(_never((a + b, one or two)) for (a, one), (b, two) in itertools.combinations(differences, 2)):
        return True
    return _leaves_no_interval(differences)


def _parts(one: Constraint) -> tuple[Inequality, ...]:
    """The inequalities that hold where a constraint does."""
    if isinstance(one, Inequality):
        return (one,)
    return () if one.negated else one.parts


@functools.lru_cache(maxsize=4096)
def _difference(inequality: Inequality, known: tuple[tuple[str, Any], ...]) -> Difference | None:
    """Left minus right, expanded; None where that is no polynomial."""
    import sympy

    value = sympy.expand((formula(inequality.left) - formula(inequality.right)).subs(of_symbols(dict(known))))
    return (value, inequality.strict) if value.is_polynomial(*value.free_symbols) else None


def _never(one: Difference) -> bool:
    """Whether a polynomial can't be at most 0 (or below it) where no symbol is: by the signs of its coefficients.

    Whole numbers above 0 are written as 1 and what is more, so that ``s B - B`` is seen not to be below 0.
    """
    import sympy

    value, strict = one
    counts = [x for x in value.free_symbols if x.is_integer and x.is_positive]
    value = sympy.expand(value.subs({x: 1 + sympy.Symbol(f"{x}'", nonnegative=True) for x in counts}))
    if not value.free_symbols:
        return bool(value >= 0 if strict else value > 0)
    terms = value.as_ordered_terms()
    positive = all(term.is_nonnegative for term in terms)
    return positive and (strict or any(bool(term.is_positive) for term in terms))


def _leaves_no_interval(differences: Sequence[Difference]) -> bool:
    """Whether the inequalities in one symbol alone leave no whole number of it."""
    import sympy

    lower: dict[Any, Any] = {}
    upper: dict[Any, Any] = {}
    for value, strict in differences:
        if len(value.free_symbols) != 1:
            continue
        (x,) = value.free_symbols
        if sympy.degree(value, x) != 1:
            continue
        slope = value.coeff(x)
        end = -value.coeff(x, 0) / slope
        if slope > 0:
            last = sympy.ceiling(end) - 1 if strict else sympy.floor(end)
            upper[x] = min(upper.get(x, last), last)
        else:
            first = sympy.floor(end) + 1 if strict else sympy.ceiling(end)
            lower[x] = max(lower.get(x, first), first)
    return any(max(lower.get(x, 0), 0 if x.is_nonnegative else lower.get(x, 0)) > upper[x] for x in upper)
