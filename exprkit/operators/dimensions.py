"""Dimensional analysis of operators: what each does to the units of its operands, determined from its values.

In: an operator; exponents of units.  Out: a ``Law``; a dimension as one number.

    >>> from exprkit.operators import defined, ops
    >>> from exprkit.operators.dimensions import dimension, law_of
    >>> law_of(ops.MUL).powers, law_of(ops.ADD).powers
    ((1.0, 1.0), (nan, nan))
    >>> dimension((1, 0, -2)) == dimension((1, 0, 0)) + dimension((0, 0, -2))
    True

If a metre were k times as long, ``a * b`` would grow as a and b do, and ``a + b`` if both grow alike: so an operator
is evaluated with operands that are multiplied by a few factors.  A dimension is the sum of its exponents, each times
the root of a prime of its own.  No two sums of different fractions are equal, so that products of units are sums of
numbers and equal units equal numbers; nan stands for a number that takes whatever unit is wanted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from exprkit.operators import defined

# Kinds of laws, by what the operands' units must be.
FREE = 0  # none: operands are dimensionless
SCALES = 1  # any, or the same of some of them: the result's unit is a product of powers of them
POWER = 2  # any, of the first; the second is a number, the exponent
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)
MAX_BASE_UNITS = len(_PRIMES)
NEAR = 1e-9  # distance of two dimensions that count as equal: rounding of their sums
_AT = np.array([0.13, 0.37, 0.52, 0.71, 0.83, 0.97])
_ORDERS = [0, 1, 2, 3, 4, 5], [3, 0, 5, 4, 1, 2], [1, 5, 3, 2, 0, 4]  # of each operand
_SIGNS = [1, 1, -1, -1, 1, -1], [1, -1, 1, -1, -1, 1], [-1, 1, 1, 1, -1, -1]
_FACTORS = (0.2, 0.7, 1.9)


class Law(NamedTuple):
    """The kind of an operator, and the powers of its operands' units in the unit of its result.

    Operands with the power nan must have one unit, which the result has to the power ``shared``.
    """

    kind: int
    powers: tuple[float, ...] = ()
    shared: float = 0.0


def dimension(exponents: Sequence[Fraction | float]) -> float:
    """A unit's exponents as one number."""
    return float(sum(float(power) * prime**0.5 for power, prime in zip(exponents, _PRIMES, strict=False)))


@functools.cache
def law_of(code: int) -> Law:
    """The law of an operator, by its code."""
    row = defined.known(code)
    operands = [_AT[order] for order in _ORDERS[: row.arity]]
    if row.arity == 3:  # numbers of either sign, where it is defined: one may choose between the others
        signed = [a * sign for a, sign in zip(operands, _SIGNS, strict=True)]
        with np.errstate(all="ignore"):
            is_defined = np.isfinite(row.numpy(*signed))
        operands = [a[is_defined] for a in signed] if is_defined.any() else operands

    def grows(which: Sequence[int]) -> float | None:
        return _grows(lambda k: row.numpy(*(k * a if n in which else a for n, a in enumerate(operands))))

    powers = [grows([n]) for n in range(row.arity)]
    alike = [n for n, power in enumerate(powers) if power is None]
    if row.arity == 2 and alike and all(_grows(functools.partial(_power, row, e)) == e for e in (0.5, 2.0, 3.0)):
        return Law(POWER)
    shared = grows(alike) if alike else 0.0
    if shared is None:
        return Law(FREE)
    return Law(SCALES, tuple(np.nan if power is None else power for power in powers), shared)


def _power(row: defined.Written, exponent: float, k: float) -> Any:
    return row.numpy(k * _AT, exponent)


def _grows(values: Callable[[float], Any]) -> float | None:
    """The power p with values(k) = k^p * values(1), for a function of a factor; None if there is none."""
    with np.errstate(all="ignore"):
        unscaled = values(1.0)
        if all(np.array_equal(values(k), unscaled) for k in _FACTORS):
            return 0.0
        powers = [np.log(values(k) / unscaled) / np.log(k) for k in _FACTORS]
    power = round(float(powers[0][0]) * 12) / 12 if np.isfinite(powers[0][0]) else np.nan
    return power if all(np.allclose(values, power, atol=1e-9, rtol=0) for values in powers) else None


def operand_dimension(row: defined.Written, dimension: float) -> float | None:
    """The dimension of an operand for which a unary operator's result has this one; None if there is none."""
    powers = law_of(row.code).powers
    if not any(powers):
        return 0.0 if np.isnan(dimension) or abs(dimension) < NEAR else None
    return dimension / powers[0]
