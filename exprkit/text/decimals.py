"""Correctly rounded conversion of decimal digits to float64, compiled, for the parser's literals.

``nearest(digits, exponent)`` is the float64 nearest to ``digits * 10**exponent``, ties
to even.  Small numbers are one exact product or quotient (Clinger, 1990); the rest is
a product with a 128-bit power of five, which is always enough for a 64-bit mantissa
(Lemire, "Number parsing at a gigabyte per second", 2021; Mushtak and Lemire, "Fast
number parsing without fallback", 2023).

    >>> from exprkit.text import decimals
    >>> import numpy as np
    >>> float(np.uint64(decimals.nearest(25, -1)).view(np.float64))
    2.5
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np

from exprkit.runtime.jit import compiled

SMALLEST_POWER, LARGEST_POWER = -342, 308  # 10**q beyond these gives 0 or inf for any 64-bit mantissa
INFINITY_BITS = np.uint64(0x7FF0000000000000)
SIGN_BIT = np.uint64(1 << 63)


def _powers_of_five() -> np.ndarray:
    """The top 128 bits of ``5**q`` as (high, low), shape (651, 2); reciprocals are rounded up."""
    words = []
    for q in range(SMALLEST_POWER, LARGEST_POWER + 1):
        if q < 0:
            size = (5**-q - 1).bit_length()
            top = (1 << (2 * size + 128)) // 5**-q + 1 if q < -27 else (1 << (size + 127)) // 5**-q + 1
        else:
            top = 5**q << 128
        top >>= top.bit_length() - 128
        words.append((top >> 64, top & 0xFFFFFFFFFFFFFFFF))
    return np.array(words, np.uint64)


POWERS_OF_FIVE = _powers_of_five()
EXACT_POWERS = np.array([10.0**q for q in range(23)])  # each of them a float64 without rounding


@compiled(inline="always")
def _product(a, b):
    """(high, low) words of the 128-bit product of two uint64."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = a & mask, a >> half, b & mask, b >> half
    low, cross, other = a0 * b0, a1 * b0, a0 * b1
    middle = (low >> half) + (cross & mask) + (other & mask)
    return a1 * b1 + (cross >> half) + (other >> half) + (middle >> half), a * b


@compiled
def _leading_zeros(word):
    n = 0
    for width in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(64 - width) == 0:
            n += width
            word <<= np.uint64(width)
    return n


@compiled
def _by_wide_product(digits, exponent):
    """``nearest`` for any mantissa and exponent."""
    shift = _leading_zeros(digits)
    w = digits << np.uint64(shift)
    row = exponent - SMALLEST_POWER
    high, low = _product(w, POWERS_OF_FIVE[row, 0])
    if high & np.uint64(0x1FF) == np.uint64(0x1FF):  # the low word might still carry into the bits that count
        correction, _ = _product(w, POWERS_OF_FIVE[row, 1])
        low += correction
        if correction > low:
            high += np.uint64(1)
    top = np.int64(high >> np.uint64(63))
    drop = np.uint64(top + 9)
    mantissa = high >> drop  # 54 bits: one more than is kept
    power = ((217706 * exponent) >> 16) + 63 + top - shift + 1023
    unit = np.uint64(1)
    if power <= 0:  # below the normal range
        if power <= -63:
            return np.uint64(0)
        mantissa >>= np.uint64(1 - power)
        mantissa += mantissa & unit
        return mantissa >> unit  # a carry into bit 52 is the smallest normal number
    halfway = low <= unit and -4 <= exponent <= 23 and mantissa & np.uint64(3) == unit
    if halfway and mantissa << drop == high:
        mantissa -= unit  # a tie goes to the even neighbour
    mantissa += mantissa & unit
    mantissa >>= unit
    if mantissa >> np.uint64(53):
        mantissa = np.uint64(1 << 52)
        power += 1
    if power >= 2047:
        return INFINITY_BITS
    return (mantissa & np.uint64((1 << 52) - 1)) | (np.uint64(power) << np.uint64(52))


@compiled
def nearest(digits, exponent):
    """Bits (uint64) of the float64 nearest to ``digits * 10**exponent``, a uint64 and an int."""
    if digits <= np.uint64(1 << 53) and -22 <= exponent <= 22:
        number = np.float64(digits)
        number = number / EXACT_POWERS[-exponent] if exponent < 0 else number * EXACT_POWERS[exponent]
        return np.float64(number).view(np.uint64)
    if digits == 0 or exponent < SMALLEST_POWER:
        return np.uint64(0)
    if exponent > LARGEST_POWER:
        return INFINITY_BITS
    return _by_wide_product(np.uint64(digits), exponent)


def nearest_float(number: Fraction) -> float:
    """The float64 nearest to a fraction."""
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def nearest_single(literal: str) -> float:
    """The float32 nearest to a decimal literal without a sign, ties to even.

    The nearest float64 has it already, unless it lies in the middle of two float32: then it matters on which side
    of the middle the literal is.  Only there is the literal's exact value wanted, which is no huge number.
    """
    near = float(literal)
    with np.errstate(over="ignore"):
        single = np.float32(near)
    other = np.nextafter(single, np.float32(np.inf if near > float(single) else 0))
    middle = (_as_if_finite(single) + _as_if_finite(other)) / 2
    if near == middle != float(single) and (exact := Decimal(literal)) != near:
        single = max(single, other) if exact > near else min(single, other)
    return float(single)


def _as_if_finite(single: np.float32) -> float:
    """inf is what the next power of two is rounded to."""
    return 2.0**128 if np.isinf(single) else float(single)
