"""Compiled loops over the postfix arrays of a population: validation, selection, counts.

In: the arrays of a population.  Out: the first thing that is wrong, or arrays.  Nothing here knows
an operator, only arities.

    >>> import numpy as np
    >>> from exprkit.expressions import checks
    >>> offsets, tokens = np.array([0, 1, 3]), np.array([7, 8, 9])
    >>> checks.gather(tokens, offsets, np.array([1, 0]))
    array([8, 9, 7])
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exprkit.runtime import slices
from exprkit.runtime.jit import compiled
from exprkit.text.tokens import CONSTANT, MAX_TOKENS, OPERATOR, PARAMETER, VARIABLE

(
    FINE, OFFSETS, KIND, CODE, OPERANDS, LEFT_OVER, NO_TOKENS, INVALID_TOKENS, VARIABLE_INDEX, PARAMETER_INDEX,
    TOO_LONG,
) = range(11)  # fmt: skip
WORDS = (  # of the problems; {0}: the number of tokens, {1} and {2}: limits of variables and parameters
    "",
    "offsets must rise from 0 to the number of tokens, {0}",
    "a token is of no known kind",
    "no operator has this code",
    "an operator lacks operands",
    "operands are left over at the end",
    "it is valid but has no tokens",
    "it is not valid but has tokens",
    "a variable's index is not below {1}",
    "a parameter's index is not below {2}",
    f"it has more than {MAX_TOKENS:,} tokens",
)

# Beside how many operands it takes: what packs two, and who takes those as one; instead of that: no operator.  All are
# more than the operands of any expression, so that ``_check_all`` finds them without a question of its own.
PACKS, TAKES_PACKED, NO_OPERATOR = 1 << 20, 1 << 21, 1 << 22


class Unchecked(NamedTuple):
    """Expressions, and how large their numbers may be."""

    kinds: np.ndarray
    values: np.ndarray
    offsets: np.ndarray
    valid: np.ndarray
    n_params: np.ndarray  # is filled
    operands: np.ndarray  # int32, by code, 256 more for an operator: how many it takes, PACKS; or NO_OPERATOR
    limits: np.ndarray  # uint64, by kind: what a value must be below, though of a constant all bits are good
    max_tokens: int


def unchecked(
    kinds: np.ndarray,
    values: np.ndarray,
    offsets: np.ndarray,
    valid: np.ndarray,
    arity: np.ndarray,
    max_variable: int,
    max_parameter: int,
) -> Unchecked:
    """The argument of ``check``; ``arity`` may have PACKS and TAKES_PACKED in it."""
    operands, most = np.zeros(512, np.int32), np.zeros(256, np.uint64)
    operands[256:] = np.where(arity == 0, np.int32(NO_OPERATOR), arity)
    most[[CONSTANT, VARIABLE, PARAMETER, OPERATOR]] = (1 << 64) - 1, max_variable, max_parameter, len(arity)
    return Unchecked(kinds, values, offsets, valid, np.zeros(len(valid), np.int32), operands, most, MAX_TOKENS)


def check(pop: Unchecked) -> tuple[int, int, int, int]:
    """(problem, expression, token, n_vars): the first problem of a population, FINE or one of the numbers above.

    ``n_vars`` is the largest index of a variable + 1.  Fills ``n_params``.
    """
    if len(pop.offsets) == 0 or pop.offsets[0] != 0 or pop.offsets[-1] != len(pop.kinds):
        return OFFSETS, 0, 0, 0

    def check_slice(begin: int, end: int) -> tuple[int, int, int, int]:
        offsets, valid, n_params = pop.offsets[begin : end + 1], pop.valid[begin:end], pop.n_params[begin:end]
        problem, index, token, n_vars = _check_all(pop._replace(offsets=offsets, valid=valid, n_params=n_params))
        return problem, begin + index, token, n_vars

    problems = slices.each(check_slice, slices.cut(pop.offsets))
    problem, index, token, _ = next((candidate for candidate in problems if candidate[0] != FINE), problems[0])
    return problem, index, token, max(n_vars for *_, n_vars in problems)


@compiled
def _check_all(pop):
    """Look at every token without a branch, which in mixed populations would mostly be mispredicted.

    ``problem_of`` says what is wrong, and whether anything is: some constants only look like it, and so do packed
    operands.
    """
    kinds, values, offsets, operands, limits = pop.kinds, pop.values, pop.offsets, pop.operands, pop.limits
    n_vars, nothing, bit = np.uint64(0), np.uint64(0), np.uint64(1)
    for i in range(len(offsets) - 1):
        begin, end = offsets[i], offsets[i + 1]
        if begin < 0 or begin > end or end > len(kinds):
            return OFFSETS, i, 0, 0
        suspicious = end - begin > pop.max_tokens or pop.valid[i] != (end > begin)
        height, n_params = 0, nothing
        for t in range(begin, end):
            kind, value = np.uint64(kinds[np.uint64(t)]), values[np.uint64(t)]
            needed = operands[np.uint64(kind == OPERATOR) << np.uint64(8) | (value & np.uint64(0xFF))]
            suspicious |= (value >= limits[kind]) | (needed > height)
            height += 1 - needed
            n_vars = max(n_vars, value + bit if kind == VARIABLE else nothing)
            n_params = max(n_params, value + bit if kind == PARAMETER else nothing)
        if suspicious or height > 1:
            problem, token = problem_of(pop, begin, end, pop.valid[i])
            if problem != FINE:
                return problem, i, token, 0
        pop.n_params[i] = n_params
    return FINE, 0, 0, np.int64(n_vars)


@compiled
def problem_of(pop, begin, end, valid):
    """(the problem of an expression, its first bad token)."""
    if end - begin > pop.max_tokens:
        return TOO_LONG, end - begin - 1
    if valid != (end > begin):
        return NO_TOKENS if valid else INVALID_TOKENS, 0
    height = packed = 0
    for t in range(begin, end):
        kind, value, needed = np.int64(pop.kinds[t]), pop.values[t], 0
        if kind > OPERATOR:
            return KIND, t - begin
        if kind != CONSTANT and value >= pop.limits[kind]:
            return CODE if kind == OPERATOR else VARIABLE_INDEX if kind == VARIABLE else PARAMETER_INDEX, t - begin
        if kind == OPERATOR:
            needed = pop.operands[np.int64(value) + 256]
            packed += ((needed & PACKS) > 0) - ((needed & TAKES_PACKED) > 0)
            if needed == NO_OPERATOR or packed < 0 or ((needed & PACKS) > 0 and not _are_taken(pop, t + 1, end)):
                return CODE, t - begin
            needed &= 3
        if height < needed:
            return OPERANDS, t - begin
        height += 1 - needed
    return LEFT_OVER if height > 1 else FINE, end - begin - 1


@compiled
def _are_taken(pop, begin, end):
    """True if the operands packed just before token ``begin`` are taken as such, or if a token is bad."""
    above = 0  # operands that lie above them
    for t in range(begin, end):
        cell = 0
        if pop.kinds[t] == OPERATOR:
            if pop.values[t] >= pop.limits[OPERATOR]:
                return True
            cell = pop.operands[np.int64(pop.values[t]) + 256]
        needed = cell & 3
        if needed > above:
            return above == 1 and needed == 2 and (cell & TAKES_PACKED) > 0
        above += 1 - needed
    return False


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


def depths(kinds: np.ndarray, values: np.ndarray, offsets: np.ndarray, arity: np.ndarray) -> np.ndarray:
    """The depth of each expression, int64: operators above its deepest leaf; 0 without tokens."""
    depth_by_expression = np.zeros(len(offsets) - 1, np.int64)
    longest = int(np.diff(offsets).max(initial=0))
    _depths(kinds, values, offsets, arity, np.zeros(longest + 1, np.int64), depth_by_expression)
    return depth_by_expression


@compiled
def _depths(kinds, values, offsets, arity, stack, depth_by_expression):
    for i in range(len(depth_by_expression)):
        top = 0
        for t in range(offsets[i], offsets[i + 1]):
            depth = 0
            if kinds[t] == OPERATOR:
                for _ in range(arity[np.int64(values[t])]):
                    top -= 1
                    depth = max(depth, stack[top] + 1)
            stack[top] = depth
            top += 1
        depth_by_expression[i] = stack[0] if top else 0
