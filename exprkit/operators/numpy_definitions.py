"""Definitions of operators that NumPy lacks, on float64 arrays or, for ``elementwise``, on one number.

>>> import math
>>> from exprkit.operators.numpy_definitions import elementwise
>>> elementwise(math.erf, math.nan)([0.0, math.inf])
array([0., 1.])
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np


def elementwise(function: Callable[[float], float], at_pole: float) -> Callable[..., Any]:
    """A scalar function of the ``math`` module on arrays; its exceptions become values."""

    def of_number(a: float) -> float:
        if math.isnan(a):
            return math.nan
        try:
            return function(a)
        except ValueError:
            return at_pole
        except OverflowError:
            return math.inf

    ufunc = np.frompyfunc(of_number, 1, 1)

    def every(a: Any) -> Any:
        with np.errstate(all="ignore"):  # of the floating-point flags that the function leaves behind
            return np.asarray(ufunc(a), dtype=np.float64)

    return every


def gamma(a: float) -> float:
    if abs(a) < 2.0**-1024:  # 1 / a, which overflows
        return math.copysign(math.inf, a)
    return math.gamma(a)


def lgamma(a: float) -> float:
    """log |gamma(a)| by mpmath: math.lgamma loses digits where the result is near 0."""
    import mpmath

    if math.isinf(a):
        return math.inf
    if a <= 0 and a == math.floor(a):
        raise ValueError("a pole")
    with mpmath.workprec(120):
        return float(mpmath.loggamma(a) if a > 0 else mpmath.log(abs(mpmath.gamma(a))))


def digamma(a: float) -> float:
    """The derivative of lgamma by mpmath, which no double spoils where the result is near 0."""
    import mpmath

    if math.isinf(a):
        return a if a > 0 else math.nan
    if a == 0:
        return -math.copysign(math.inf, a)
    with mpmath.workprec(120):
        return float(mpmath.digamma(a))


def powabs(a: Any, b: Any) -> Any:
    return np.power(np.abs(a), b)


def fast_pow(a: Any, b: Any) -> Any:
    return np.where(np.less(a, 0), np.nan, np.power(np.abs(a), b))
