"""Interval arithmetic: the values of an operator, of operands between two numbers.

In: a row of the table, and an ``Enclosure`` of each of its operands.  Out: the ``Enclosure`` of its values.

    >>> import numpy as np
    >>> from exprkit.operators import intervals, ops
    >>> a = intervals.Enclosure(np.array([-2.0]), np.array([1.0]), np.array([0]))
    >>> low, high, trouble = intervals.enclosure(ops.BY_NAME["abs"], a)
    >>> low.item(), high.item(), trouble.item()
    (0.0, 2.0, 0)

A row's cell ``interval`` says where the extremes are.

=====================  ============================================================================
``interval``           the least and the largest value are
=====================  ============================================================================
``"a"``, ``"a b"``     at ends of the operands: it is monotone in each, whatever the other one is
``"|a|"``, ``"a |b|"`` the same, of the absolute values of those between bars
a function below       where that function says
None                   unknown: any number
=====================  ============================================================================

Low and high enclose the values of real numbers and of float64 alike: both are rounded outwards by the largest error of
the row (R. E. Moore, Interval Analysis, 1966).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

Pair = tuple[np.ndarray, np.ndarray]

INF = np.inf
NONE, JUMPS, UNDEFINED = range(3)  # trouble: of a function that may jump, and that may be infinite or no number
EPS = float(np.finfo(np.float64).eps)  # a unit of the last place of 1
LEAST, MOST = float(np.nextafter(0.0, 1.0)), float(np.finfo(np.float64).max)  # positive numbers of float64
EXTREME = 1e100  # operands below 1 / EXTREME, or above it, may have a result that is rounded to 0
SLACK = 1e-12  # share of an angle by which it may miss a turning point, for rounding; chosen, not measured


class Enclosure(NamedTuple):
    """Intervals that hold values wherever they are numbers, (n,), and the worst that may happen on the way to them."""

    low: np.ndarray
    high: np.ndarray
    trouble: np.ndarray


def enclosure(row: Any, *operands: Enclosure) -> Enclosure:
    """The values of a row's operator."""
    inherited = operands[0].trouble if len(operands) == 1 else np.maximum(operands[0].trouble, operands[1].trouble)
    if row.interval is None:
        every = np.full(len(inherited), INF)
        return Enclosure(-every, every, np.full(len(inherited), UNDEFINED))
    rule = corners if isinstance(row.interval, str) else row.interval
    low, high, own = rule(row, *operands)
    low, high = np.where(low == low, low, -INF), np.where(high == high, high, INF)
    trouble = np.maximum(inherited, own)
    if row.jumps:
        trouble = np.maximum(trouble, np.where(low < high, JUMPS, NONE))
    return Enclosure(low, high, np.where((low >= -MOST) & (high <= MOST), trouble, UNDEFINED))


def image(interval: Any, natural: tuple[float, float], numpy: Callable[..., Any]) -> tuple[float, float]:
    """Numbers that all values of an operator lie between, by its values at the ends of where it is defined."""
    if not isinstance(interval, str):
        return -INF, INF
    ends = [(max(natural[0], 0.0), INF) if "|" in word else natural for word in interval.split()]
    with np.errstate(all="ignore"):
        values = np.array([numpy(*map(np.float64, corner)) for corner in itertools.product(*ends)], np.float64)
    low, high = float(np.fmin.reduce(values)), float(np.fmax.reduce(values))
    if not low.is_integer() and low > -INF:  # pi / 2, say, which is rounded
        low = float(np.nextafter(low, -INF))
    if not high.is_integer() and high < INF:
        high = float(np.nextafter(high, INF))
    return (low, high) if low == low else (-INF, INF)


# ── rules: (row, operands) to low, high and trouble ──


def corners(row: Any, *operands: Enclosure) -> tuple[np.ndarray, np.ndarray, Any]:
    """Values at the ends of the operands, those of a between the ends of ``natural``."""
    natural, own = row.natural, np.array(NONE)
    ends: list[Pair] = []
    forms = row.interval.split() if isinstance(row.interval, str) else "ab"
    for form, operand in zip(forms, operands, strict=False):
        low, high = operand.low, operand.high
        if natural != (-INF, INF) and not ends:
            own = np.where((low < natural[0]) | (high > natural[1]), UNDEFINED, NONE)
            low, high = np.clip(low, *natural), np.clip(high, *natural)
        ends.append(magnitude(low, high) if "|" in form else (low, high))
    values = [np.asarray(row.numpy(*corner), np.float64) for corner in itertools.product(*ends)]
    low, high, total = values[0], values[0], values[0]
    for value in values[1:]:
        low, high, total = np.fmin(low, value), np.fmax(high, value), total + value
    own = np.where(np.isnan(total), UNDEFINED, own)  # 0 / 0
    return *_rounded(row, low, high, ends), own


def magnitude(low: np.ndarray, high: np.ndarray) -> Pair:
    """Ends of the absolute values."""
    least = np.maximum(np.maximum(low, -high), 0.0)
    return least, np.maximum(-low, high)


def _rounded(row: Any, low: np.ndarray, high: np.ndarray, ends: Sequence[Pair]) -> Pair:
    """The ends rounded outwards by the row's error; a 0 only where something may have been rounded to it."""
    low, high = np.minimum(low, MOST), np.maximum(high, -MOST)
    error = max(row.ulp)
    if not error:
        return low, high
    inexact = False
    if not (low.all() and high.all()):
        sizes = [np.abs(end) for pair in ends for end in pair]
        risks = [((size > 0) & (size < 1 / EXTREME)) | ((size > EXTREME) & (size < INF)) for size in sizes]
        inexact = np.logical_or.reduce(risks) | (row.image[0] == 0)
    share = (error + 0.5) * EPS
    low = low - (share * np.abs(low) + LEAST * ((low != 0) | inexact))
    high = high + (share * np.abs(high) + LEAST * ((high != 0) | inexact))
    least, largest = row.image
    return (low if least == -INF else np.maximum(low, least)), (high if largest == INF else np.minimum(high, largest))


def quotient(row: Any, *operands: Enclosure) -> tuple[np.ndarray, np.ndarray, Any]:
    """Of an operator with a pole where its last operand is 0."""
    *others, b = operands
    b = b._replace(low=b.low + 0.0, high=np.where(b.high == 0, -0.0, b.high))  # 0 has the sign of the other numbers
    low, high, own = corners(row, *others, b)
    passes = (b.low < 0) & (b.high > 0)
    return np.where(passes, -INF, low), np.where(passes, INF, high), own


def power(row: Any, a: Enclosure, b: Enclosure) -> tuple[np.ndarray, np.ndarray, Any]:
    """Of a to the power b: of a negative a where b is one whole number alone."""
    fixed, negative = b.low == b.high, a.low < 0
    whole = fixed & (b.low == np.floor(b.low)) & (np.abs(b.low) < INF)
    odd = whole & (np.mod(b.low, 2) == 1)
    least, largest = magnitude(a.low, a.high)
    from_0 = np.maximum(a.low, 0.0), np.maximum(a.high, 0.0)
    of_low = np.where(odd, a.low + 0.0, np.where(whole, least, from_0[0]))
    of_high = np.where(odd, a.high + 0.0, np.where(whole, largest, from_0[1]))
    low, high, _ = corners(row, Enclosure(of_low, of_high, a.trouble), b)
    low = np.where((low == 0) & odd & negative, -LEAST, low)
    high = np.where(high == 0, LEAST, high)  # for what is rounded to 0
    passes = negative & ((odd & (b.low < 0) & (a.high >= 0)) | ~fixed)
    own = np.where(passes | (negative & ~whole), UNDEFINED, NONE)
    own = np.where((of_low == 0) & ~fixed & (b.low <= 0), UNDEFINED, own)  # 0^b is 0, 1 or inf
    return np.where(passes, -INF, low), np.where(passes, INF, high), own


def power_of_size(row: Any, a: Enclosure, b: Enclosure) -> tuple[np.ndarray, np.ndarray, Any]:
    """Of |a| to the power b."""
    return power(row, Enclosure(*magnitude(a.low, a.high), a.trouble), b)


def wave(peak: float) -> Callable[[Any, Enclosure], tuple[np.ndarray, np.ndarray, Any]]:
    """Of a sine that is 1 at ``peak``."""

    def rule(row: Any, a: Enclosure) -> tuple[np.ndarray, np.ndarray, Any]:
        low, high, _ = corners(row, a)
        low = np.where(_holds(a, peak + np.pi, 2 * np.pi), -1.0, np.maximum(low, -1.0))
        return low, np.where(_holds(a, peak, 2 * np.pi), 1.0, np.minimum(high, 1.0)), NONE

    return rule


def tangent(row: Any, a: Enclosure) -> tuple[np.ndarray, np.ndarray, Any]:
    """Of a function with poles at pi / 2 and every pi from there, that rises in between."""
    low, high, _ = corners(row, a)
    passes = _holds(a, np.pi / 2, np.pi)
    return np.where(passes, -INF, low), np.where(passes, INF, high), NONE


def _holds(a: Enclosure, point: float, period: float) -> np.ndarray:
    """Whether a may be the point, or periods from it."""
    slack = SLACK * np.maximum(np.maximum(-a.low, a.high), 1.0)
    first, last = np.ceil((a.low - slack - point) / period), np.floor((a.high + slack - point) / period)
    return np.asarray(~(first > last))  # of an infinite angle too


def angle(row: Any, a: Enclosure, b: Enclosure) -> tuple[np.ndarray, np.ndarray, Any]:
    """Of the angle of the point (b, a), which jumps where a is 0 and b is not positive."""
    low, high, _ = corners(row, a, b)
    jumps, most = (a.low <= 0) & (a.high >= 0) & (b.low <= 0), float(np.nextafter(np.pi, INF))
    return np.where(jumps, -most, low), np.where(jumps, most, high), np.where(jumps, JUMPS, NONE)


def remainder(row: Any, a: Enclosure, b: Enclosure) -> tuple[np.ndarray, np.ndarray, Any]:
    """Of a remainder with the sign of b."""
    undefined = ((b.low <= 0) & (b.high >= 0)) | ~(np.maximum(-a.low, a.high) <= MOST)
    return np.minimum(b.low, 0.0), np.maximum(b.high, 0.0), np.where(undefined, UNDEFINED, JUMPS)
