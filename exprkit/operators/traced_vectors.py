"""Vector code of traced functions, in float32 where that is close enough.

In: a ``TracedFunction``.  Out: a formula as ``simd_formulas`` has it.

    >>> import numba, numpy as np
    >>> from exprkit.operators.traced import trace_of
    >>> from exprkit.operators.traced_vectors import is_close_in_floats
    >>> softplus = trace_of(numba.njit(lambda a: np.log1p(np.exp(a))), 1)
    >>> is_close_in_floats(softplus, lambda a: np.log1p(np.exp(a)), [(-10.0, 10.0)])
    True
    >>> hidden = trace_of(numba.njit(lambda a: (np.exp(a) - 1) / a), 1)
    >>> is_close_in_floats(hidden, lambda a: np.expm1(a) / a, [(-10.0, 10.0)])
    False

What is computed of float32 with precision="ieee", plainly:

    1. Everything in float64, as Numba does, unless on the numbers of ``is_close_in_floats`` float32 gives the result
       to UNITS of the last place, of operands that are off by as many, and what jumps is asked of exact numbers only.
    2. Else in float32, and a number again in float64 where the result, or what it does not show, is inf or nan.

A result that is computed again is no matter of its neighbours: they keep theirs.

A loss over such a function of float32, in times of the same formula as text, ieee, AVX-512, one thread; calls took
turns, in several runs on a machine with other work, which are 0.05 apart::

                          log1p(exp(a))   a / (1 + exp(-a))   1 / (1 + a a)   sin(a) exp(-|a|)
    all in float64              2.9              1.8                1.4              1.7
    float32                     1.22             0.80               0.80             0.75    may overflow unseen
    all results looked at       1.25             1.05               0.85             0.90    in every line
    the same, where hidden      1.24             0.88               0.80             0.79
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from exprkit.operators import ops
from exprkit.operators.simd_values import Vec, unless_finite, where
from exprkit.operators.traced import CHOICE, Line, TracedFunction, defined_values

UNITS = 16  # of the last place of float32
TRIED = 256  # numbers of each operand, as many near 0, as many of every size
NEAR_0, ALL = (-6, 1), (-38, 38)  # powers of 10
LAST_PLACE, LARGEST = 2.0**-23, 3e38
STEP = 2.0**-18  # relative, to see how a result changes with an operand
SAMPLES = (0.0, 1.0, -1.0, 0.5, 3.0, 1e30, -1e30, math.inf, -math.inf, math.nan)
GRID, BESIDE, USUAL = np.arange(-2.0, 2.25, 0.25), 1e-12, 10.0  # where jumps are looked for; no poles


def formula(trace: TracedFunction, fast: bool) -> Callable[..., Vec]:
    """The trace as a formula on vectors; of three operands the first two may be a pair."""

    def on_vectors(*given: Any) -> Vec:
        operands = [*given[0], *given[1:]] if isinstance(given[0], tuple) else list(given)
        if operands[0].double or fast:
            return _run(trace, operands, fast)[-1]
        if not trace.in_floats:
            return _in_float64(trace, operands)
        *values, y = _run(trace._replace(lines=_for_floats(trace.lines)), operands, fast)
        hidden = [values[place] for place in sorted(_hidden(trace))]
        if not hidden and not isinstance(trace.result, int):
            return y
        return unless_finite(y, hidden, lambda: _in_float64(trace, operands))

    return on_vectors


def _run(trace: TracedFunction, operands: Sequence[Vec], fast: bool) -> list[Vec]:
    """Write the code of all lines; what they come to, and behind that the result."""

    def number(value: float) -> Vec:
        return operands[0].like(value)

    def applied(row: ops.Operator, given: list[Vec]) -> Vec:
        return ((row.simd_fast if fast else None) or row.simd)(*given)

    return trace.run(operands, number, applied, lambda condition, a, b: where(condition != 0.0, a, b))


def _in_float64(trace: TracedFunction, operands: Sequence[Vec]) -> Vec:
    return _run(trace, [a.widen() for a in operands], fast=False)[-1].narrow()


# ── what float32 can do ──────────────────────────────────────────────────────────────


def is_close_in_floats(
    trace: TracedFunction, definition: Callable[..., np.ndarray], domain: Sequence[tuple[float, float]]
) -> bool:
    """Whether a computation in float32 is as good as the one in float64."""
    numbers = [operand for line in trace.lines for operand in line.operands if isinstance(operand, float)]
    if any(LARGEST < abs(operand) < math.inf for operand in numbers):
        return False
    exact = _exact(trace)
    for line in trace.lines:
        condition = line.operands[0] if line.code == CHOICE else None
        inexact = [place for place in line.places if place not in exact]
        if condition in inexact or (line.code != CHOICE and inexact and _jumps(line.code)):
            return False
    random = np.random.default_rng(0)
    operands = [_tried(random, low, high) for low, high in domain[: trace.arity]]
    with np.errstate(all="ignore"):
        y, known = defined_values(definition, operands)
        size = np.abs(y)
        for k, a in enumerate(operands):
            ends = [
                defined_values(definition, [*operands[:k], a * (1 + step), *operands[k + 1 :]])[0]
                for step in (STEP, -STEP)
            ]
            size = size + np.abs(ends[0] - ends[1]) / (2 * STEP)
        computed, sure = _computed_in_floats(trace, operands, random)
        off = np.abs(computed - y)
    counts = sure & known & np.isfinite(y) & (np.abs(y) < LARGEST)
    return bool(np.any(counts) and np.all(off[counts] <= UNITS * (LAST_PLACE * size[counts] + 2.0**-149)))


def _tried(random: np.random.Generator, low: float, high: float) -> np.ndarray:
    """Numbers that float32 has: of an interval evenly and near 0, and of every size."""
    evenly = random.uniform(low, high, TRIED)
    sizes, wide = (10.0 ** random.uniform(*ends, TRIED) * random.choice([-1, 1], TRIED) for ends in (NEAR_0, ALL))
    near = sizes[(sizes > low) & (sizes < high)]
    numbers = np.concatenate([np.resize(np.concatenate([evenly, near]), 2 * TRIED), wide])
    return random.permuted(numbers).astype(np.float32).astype(np.float64)


def _computed_in_floats(
    trace: TracedFunction, operands: list[np.ndarray], random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Results with errors as large as the table has them, and where all that is looked at was finite."""
    n_tried = len(operands[0])

    def rounded(a: Any) -> np.ndarray:
        return np.asarray(a, np.float32).astype(np.float64)

    def applied(row: ops.Operator, given: list[Any]) -> np.ndarray:
        error = max(row.ulp[0] - 0.5, 0) * LAST_PLACE
        return rounded(row.numpy(*given) * (1 + error * random.uniform(-1, 1, n_tried)))

    in_floats = trace._replace(lines=_for_floats(trace.lines))
    *values, y = in_floats.run(operands, rounded, applied, lambda c, a, b: np.where(np.not_equal(c, 0), a, b))
    y = np.broadcast_to(y, n_tried)
    is_finite = np.isfinite([y, *(values[place] for place in _hidden(trace))])
    return y, np.asarray(is_finite.all(axis=0))


def _for_floats(lines: Sequence[Line]) -> tuple[Line, ...]:
    """Lines whose comparisons with a number mean of float32 what they mean of float64."""
    return tuple(_compared(line) if line.code in COMPARISONS else line for line in lines)


COMPARISONS = (ops.GREATER, ops.LESS, ops.GREATEREQUAL, ops.LESSEQUAL)


def _compared(line: Line) -> Line:
    operands = list(line.operands)
    for k, number in enumerate(operands):
        if isinstance(number, float) and math.isfinite(number) and abs(number) < LARGEST:
            below = (line.code in (ops.GREATER, ops.LESSEQUAL)) == (k == 1)  # the largest float32 that is not larger
            nearest = np.float32(number)
            if float(nearest) > number if below else float(nearest) < number:
                nearest = np.nextafter(nearest, np.float32(-math.inf if below else math.inf))
            operands[k] = float(nearest)
    return line._replace(operands=tuple(operands))


def _exact(trace: TracedFunction) -> set[int]:
    """Places of what float32 holds as float64 does: operands, and what rounds nothing of them."""
    exact = set(range(trace.arity))
    for place, line in enumerate(trace.lines, trace.arity):
        numbers = [number for number in line.operands if isinstance(number, float)]
        held = line.code in COMPARISONS or all(
            math.isnan(number) or float(np.float32(number)) == number for number in numbers
        )
        if held and exact.issuperset(line.places) and (line.code == CHOICE or ops.BY_CODE[line.code].ulp[0] == 0):
            exact.add(place)
    return exact


def _hidden(trace: TracedFunction) -> frozenset[int]:
    """Places of what may be inf or nan while the result, and all else that is looked at, is finite."""
    exact, hidden = _exact(trace), set()
    shown = {trace.result}
    for place in range(trace.arity + len(trace.lines) - 1, trace.arity - 1, -1):
        if place not in shown and place not in exact:
            hidden.add(place)
        line = trace.lines[place - trace.arity]
        if line.code != CHOICE:
            shown |= {
                operand for k, operand in enumerate(line.operands) if isinstance(operand, int) and _shows(line.code, k)
            }
    return frozenset(hidden)


@functools.cache
def _shows(code: int, k: int) -> bool:
    """Whether an operator's result is inf or nan where operand k is."""
    row = ops.BY_CODE[code]
    bad = np.array([math.inf, -math.inf, math.nan])
    with np.errstate(all="ignore"):
        for other in SAMPLES if row.arity == 2 else (0.0,):
            operands = [bad, np.full(3, other)][: row.arity]
            if np.isfinite(row.numpy(*(operands[::-1] if k else operands))).any():
                return False
    return True


@functools.cache
def _jumps(code: int) -> bool:
    """Whether an operator's result jumps somewhere, as that of rounding does."""
    row = ops.BY_CODE[code]
    grid = [a.ravel() for a in np.meshgrid(*[GRID] * row.arity)]
    with np.errstate(all="ignore"):
        for k in range(row.arity):
            ends = [row.numpy(*grid[:k], grid[k] + step, *grid[k + 1 :]) for step in (BESIDE, -BESIDE)]
            usual = (np.abs(ends[0]) < USUAL) & (np.abs(ends[1]) < USUAL)
            if np.any(np.abs(ends[0] - ends[1])[usual] > 0.2):
                return True
    return False
