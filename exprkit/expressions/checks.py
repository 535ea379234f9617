"""Compiled loops over the postfix arrays of a population: check, select, compare.

In: the arrays of a population.  Out: the first thing that is wrong, or arrays.  Nothing here knows
an operator, only arities.

    >>> import numpy as np
    >>> from exprkit.expressions import checks
    >>> offsets, tokens = np.array([0, 1, 3]), np.array([7, 8, 9])
    >>> checks.gather(tokens, offsets, np.array([1, 0]))
    array([8, 9, 7])
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exprkit.runtime.jit import compiled, inline
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE

(
    FINE, OFFSETS, KIND, CODE, OPERANDS, LEFT_OVER, NO_TOKENS, INVALID_TOKENS, VARIABLE_INDEX, PARAMETER_INDEX,
    TOO_LONG,
) = range(11)  # fmt: skip


class CheckedTokens(NamedTuple):
    """Tokens that have not been checked."""

    kinds: np.ndarray
    values: np.ndarray
    arity: np.ndarray  # of the operators that a population may hold, by code; 0 for others


@inline
def problem_of(tokens, begin, end, valid, limits):
    """(problem, token, variables, parameters) of the expression that is tokens ``begin`` to ``end``.

    problem is FINE or one of the numbers above, of this token of the expression; then the largest index of a
    variable and of a parameter, + 1.  ``limits``: the most tokens, variables and parameters that there may be.
    """
    most_tokens, most_variables, most_parameters = limits
    n_vars = n_params = height = 0
    if end - begin > most_tokens:
        return TOO_LONG, end - begin - 1, 0, 0
    if valid != (end > begin):
        return (NO_TOKENS if valid else INVALID_TOKENS), 0, 0, 0
    for t in range(begin, end):
        kind, value = tokens.kinds[t], tokens.values[t]
        if kind == OPERATOR:
            operands = tokens.arity[value] if value < np.uint64(256) else 0
            if operands == 0:
                return CODE, t - begin, 0, 0
            if height < operands:
                return OPERANDS, t - begin, 0, 0
            height += 1 - operands
            continue
        height += 1
        if kind == VARIABLE:
            if value >= np.uint64(most_variables):
                return VARIABLE_INDEX, t - begin, 0, 0
            n_vars = max(n_vars, int(value) + 1)
        elif kind == PARAMETER:
            if value >= np.uint64(most_parameters):
                return PARAMETER_INDEX, t - begin, 0, 0
            n_params = max(n_params, int(value) + 1)
        elif kind != CONSTANT:
            return KIND, t - begin, 0, 0
    if height > 1:
        return LEFT_OVER, end - begin - 1, 0, 0
    return FINE, 0, n_vars, n_params


@compiled
def check(tokens, offsets, valid, limits, n_params):
    """First problem of a population, and what a walk over its tokens finds on the way.

    Returns
    -------
    (problem, expression, token, n_vars)
        as ``problem_of`` has them.  Fills ``n_params`` (int32, one per expression).
    """
    n_vars, n_tokens = 0, len(tokens.kinds)
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != n_tokens:
        return OFFSETS, 0, 0, n_vars
    for i in range(len(offsets) - 1):
        begin, end = offsets[i], offsets[i + 1]
        if begin > end or end > n_tokens:
            return OFFSETS, i, 0, n_vars
        problem, token, variables, n_params[i] = problem_of(tokens, begin, end, valid[i], limits)
        if problem != FINE:
            return problem, i, token, n_vars
        n_vars = max(n_vars, variables)
    return FINE, 0, 0, n_vars


@compiled
def gather(tokens, offsets, order):
    """The tokens of the expressions in ``order``, one after the other."""
    total = 0
    for i in order:
        total += offsets[i + 1] - offsets[i]
    out = np.empty(total, tokens.dtype)
    n = 0
    for i in order:
        for t in range(offsets[i], offsets[i + 1]):
            out[n] = tokens[t]
            n += 1
    return out


@compiled
def _hash(kinds, values, begin, end):
    """64-bit hash of a structure: every token but the values of constants."""
    h = np.uint64(0xCBF29CE484222325)
    for t in range(begin, end):
        word = np.uint64(kinds[t]) if kinds[t] == CONSTANT else values[t] << np.uint64(2) | np.uint64(kinds[t])
        h = (h ^ word) * np.uint64(0x9E3779B97F4A7C15)
        h ^= h >> np.uint64(29)
    return h


@compiled
def _same(kinds, values, a, b, length):
    for t in range(length):
        if kinds[a + t] != kinds[b + t]:
            return False
        if kinds[a + t] != CONSTANT and values[a + t] != values[b + t]:
            return False
    return True


@compiled
def structures(kinds, values, offsets, slots):
    """(representatives, inverse): the first expression of each structure, and each one's structure.

    ``slots`` is an int64 array of -1, a power of two long and longer than there are expressions.
    """
    n = len(offsets) - 1
    mask = np.uint64(len(slots) - 1)
    representatives, hashes = np.empty(n, np.int64), np.empty(n, np.uint64)
    inverse = np.empty(n, np.int64)
    found = 0
    for i in range(n):
        begin, length = offsets[i], offsets[i + 1] - offsets[i]
        h = _hash(kinds, values, begin, begin + length)
        slot = h & mask
        while slots[slot] >= 0:
            other = slots[slot]
            start = offsets[representatives[other]]
            if (
                hashes[other] == h
                and offsets[representatives[other] + 1] - start == length
                and _same(kinds, values, begin, start, length)
            ):
                break
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] < 0:
            slots[slot] = found
            representatives[found], hashes[found] = i, h
            found += 1
        inverse[i] = slots[slot]
    return representatives[:found].copy(), inverse


@compiled
def function_lengths(kinds, values, numbers, offsets, length):
    """k log n + the sizes of log |c| of every expression that has tokens, into ``length`` (``description_length``)."""
    for i in range(len(offsets) - 1):
        begin, end = offsets[i], offsets[i + 1]
        if begin == end:
            continue
        kinds_seen, constants = 0, 0.0
        for t in range(begin, end):
            new = True
            for s in range(begin, t):
                same = kinds[s] == kinds[t] and (kinds[t] == PARAMETER or values[s] == values[t])
                if same:
                    new = False
                    break
            kinds_seen += new
            if kinds[t] == CONSTANT and numbers[t] != 0 and np.isfinite(numbers[t]):
                constants += np.abs(np.log(np.abs(numbers[t])))
        length[i] = (end - begin) * np.log(kinds_seen) + constants
