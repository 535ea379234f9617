"""Checks of what a column of numbers loses when it is rounded to the evaluator's dtype.

In: a column.  Out: None, or in words what would be lost and what mends it.

    >>> import numpy as np
    >>> from exprkit.evaluate.rounding import harm
    >>> harm(1.7e9 + np.arange(200.0), np.dtype("float32"))
    '200 different numbers, from 1700000000 to 1700000199, become 3 in float32: subtract ... dtype="float64"'
    >>> harm(np.linspace(285, 295, 200), np.dtype("float32")) is None
    True

Rounding alone does no harm: of a million random numbers between 0 and 1 some become equal in float32, and nobody can
tell.  It does where different numbers become equal and the rounding is no longer small beside the range of the column
(time stamps), or the numbers are whole (identifiers), and where numbers leave the range of the type.  Arrays of a
device stay there: what is called here they have as well.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any, NamedTuple

import numpy as np

from exprkit.errors import DataError, brief

COARSE = 1e-5  # of a column's range: rounding errors below it do no harm; temperatures in kelvin have a tenth of that
SHORT = "float16", "bfloat16"  # types of results that take half the bytes
LOST = 0.01  # share of the different numbers that may become equal to others


class Limits(NamedTuple):
    """The limits of a floating-point type."""

    overflow: float  # numbers from here on are rounded to inf
    underflow: float  # numbers up to here are rounded to 0
    error: float  # of rounding, at most, as a share of the number
    whole_to: float  # up to here all whole numbers are there


def harm(values: Any, dtype: np.dtype) -> str | None:
    """A message that says how rounding (n,) numbers to ``dtype`` spoils them and what mends it; None if it does not."""
    if not loses_digits(values.dtype, dtype) or not values.size:
        return None
    low, high = _range(values)
    largest, limits = max(-low, high), limits_of(dtype)
    if largest < limits.overflow:
        if max(largest * limits.error, limits.underflow) <= COARSE * (high - low) and largest <= limits.whole_to:
            return None
        return _merged(values, dtype, low, high, largest, limits)
    most = np.finfo(dtype).max
    end = f"{dtype}, which ends at {most:.3g}"
    return f"numbers up to {largest:.6g} are too large for {end}: scale them{_double(dtype)}"


def _merged(values: Any, dtype: np.dtype, low: Any, high: Any, largest: Any, limits: Limits) -> str | None:
    """Whether different numbers become equal, where the first look left it open."""
    if 0 < largest <= limits.underflow:
        return f"all numbers, at most {largest:.6g}, become 0 in {dtype}: scale them{_double(dtype)}"
    error = largest * limits.error
    if max(error, limits.underflow) <= COARSE * (high - low) and not _are_whole(values):
        return None
    before, after = _different(values, dtype)
    if before - after <= LOST * before:
        return None
    remedy = "subtract the least of them" if error > limits.underflow else "scale them"
    return (
        f"{before:,} different numbers, from {low:.12g} to {high:.12g}, become {after:,} in {dtype}: "
        f"{remedy}{_double(dtype)}"
    )


@functools.cache
def limits_of(dtype: np.dtype) -> Limits:
    """The limits of a type."""
    info = np.finfo(dtype)
    error = float(info.eps) / 2
    return Limits(float(info.max) * (1 + error / 2), float(info.smallest_subnormal) / 2, error, 2.0 ** (info.nmant + 1))


@functools.cache
def loses_digits(source: np.dtype, dtype: np.dtype) -> bool:
    """Whether a type of real numbers has some that the other one rounds."""
    digits = 8 * source.itemsize if source.kind in "iu" else np.finfo(source).nmant + 1 if source.kind == "f" else 1
    return bool(digits > np.finfo(dtype).nmant + 1)


def _double(dtype: np.dtype) -> str:
    return ', or use dtype="float64"' if dtype.itemsize == 4 else ""


def _range(values: Any) -> tuple[Any, Any]:
    """The least and the largest of the finite numbers; 0 and 0 if there is none."""
    low, high = values.min().item(), values.max().item()
    if -np.inf < low and high < np.inf:
        return low, high
    finite = values[np.isfinite(values)]
    return _range(finite) if finite.size else (0.0, 0.0)


def _are_whole(values: Any) -> bool:
    return values.dtype.kind in "iu" or not bool(((values != np.floor(values)) & np.isfinite(values)).any())


def _different(values: Any, dtype: np.dtype) -> tuple[int, int]:
    """The numbers of different finite values before and after rounding, which keeps their order."""
    ordered = np.sort(values if values.dtype.kind in "iu" else values[np.isfinite(values)])
    rounded = ordered.astype(dtype)
    return 1 + int((ordered[1:] != ordered[:-1]).sum()), 1 + int((rounded[1:] != rounded[:-1]).sum())


def of_results(asked: Any, out: Any, own: np.dtype, on_device: bool) -> np.dtype:
    """The type of results: as asked for, or as that of ``out``, or the evaluator's ``own``.

    Raises DataError if it is neither the evaluator's nor of 16 bits.
    """
    given = getattr(out, "dtype", None)
    if asked is None and (given is None or given is own):
        return own  # names take longer than a small step
    name = str(given).rpartition(".")[2] if asked is None else _name(asked)
    if name not in SHORT:
        if asked is not None and name != own.name:
            raise DataError(f"results are {own.name} (Evaluator(dtype=...)), {' or '.join(SHORT)}, not {brief(asked)}")
        return own
    if name == "float16":
        return np.dtype(np.float16)
    there = on_device if out is None else not isinstance(out, np.ndarray)
    if own != np.float32 or there:
        raise DataError("bfloat16 results are made of float32, in the host's memory; float16 of all and everywhere")
    try:
        return np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    except ImportError:
        raise DataError("bfloat16 is a type of the package ml_dtypes: pip install ml_dtypes") from None


def evaluate(engine: Any, sets: Any, values: Any, own: np.dtype) -> None:
    """Evaluate into ``values``; 16 bits that the engine does not make are rounded by NumPy, one set at a time."""
    if values.dtype == own or engine.rounds:
        return engine.evaluate(sets, values)
    wide = np.empty_like(values[:1], own)  # on a device, where the values are
    for one_set, place in zip(sets, values, strict=True):
        engine.evaluate(one_set[None], wide)
        with np.errstate(all="ignore"):
            place[...] = wide[0]


def _name(dtype: Any) -> str:
    try:
        return dtype if dtype in SHORT else np.dtype(dtype).name
    except TypeError:
        return brief(dtype)
