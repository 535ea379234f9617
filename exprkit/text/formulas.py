"""Expansion of user-defined operators: replaces them by their formulas, token by token.

In: postfix tokens and ``Formulas`` by operator's code.  Out: tokens in which each such operator is its formula,
with copies of its operands for their names.  What a formula names twice is there twice.

    >>> import exprkit as ek
    >>> _ = ek.operator("half_sum(a, b) = (a + b) / 2")
    >>> ek.parse("half_sum(x1, x2 * x3)").expanded().texts()
    ['(x1 + x2 * x3) / 2']
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from exprkit.operators import defined
from exprkit.operators.defined import OPERAND
from exprkit.runtime import slices
from exprkit.runtime.bags import empty
from exprkit.runtime.jit import compiled
from exprkit.text.tokens import MAX_TOKENS, OPERATOR, NewTokens

LAST = 255  # code of a formula that is nobody's operator: what ``applied`` puts behind expressions

Formula = tuple[np.ndarray, np.ndarray]  # kinds and values of its tokens, OPERAND for an operand


class Formulas(NamedTuple):
    """The formulas by code, one behind the other."""

    kinds: np.ndarray
    values: np.ndarray
    start: np.ndarray  # int64 (257,): of a code start[code]:start[code + 1], nothing for those that stay
    arity: np.ndarray  # uint8 (256,)


class Expanded(NamedTuple):
    """Tokens with formulas in the place of operators."""

    kinds: np.ndarray
    values: np.ndarray
    offsets: np.ndarray
    too_long: int  # the first expression that would have too many tokens (all are left as they were); else -1
    shares: bool  # an operand of more than one token is there more than once


def user_formulas(last: Formula | None = None) -> Formulas:
    """The formulas of the user's operators, and ``last``, of a single operand, for the code LAST."""
    by_code = {definition.code: (definition.kinds, definition.values) for definition in defined.definitions()}
    arity = defined.arity()
    if last is not None:
        by_code[LAST], arity[LAST] = last, 1
    start = np.zeros(257, np.int64)
    for code, (kinds, _) in by_code.items():
        start[code + 1] = len(kinds)
    parts = [by_code[code] for code in sorted(by_code)] or [(np.empty(0, np.uint8), np.empty(0, np.uint64))]
    kinds, values = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Formulas(kinds, values, np.cumsum(start), arity)


def expanded(kinds: np.ndarray, values: np.ndarray, offsets: np.ndarray, formulas: Formulas) -> Expanded:
    """Tokens with formulas for operators."""
    n_exprs, longest = len(offsets) - 1, int(np.diff(offsets).max(initial=0))
    lengths, cuts = np.zeros(n_exprs + 1, np.int64), slices.cut(offsets)

    def measure(begin: int, end: int) -> bool:
        stack, short = np.empty(longest + 1, np.int64), _WrittenShort(kinds, values, offsets[begin : end + 1])
        return bool(_measure(short, formulas, stack, lengths[begin + 1 : end + 1]))

    shares = any(slices.each(measure, cuts))
    if lengths.max(initial=0) > MAX_TOKENS:
        return Expanded(kinds, values, offsets, int(np.argmax(lengths > MAX_TOKENS)) - 1, shares)
    own = np.cumsum(lengths)
    tokens = empty(NewTokens, n=own[-1])
    most = int(lengths.max(initial=0))

    def write(begin: int, end: int) -> None:
        room = empty(_OpenOperands, n=most + 1, depth=longest + 1)
        _write(_WrittenShort(kinds, values, offsets[begin : end + 1]), formulas, room, tokens, own[begin : end + 1])

    slices.each(write, cuts)
    return Expanded(tokens.kinds, tokens.values, own, -1, shares)


def applied(kinds: np.ndarray, values: np.ndarray, offsets: np.ndarray, formula: Formula) -> Expanded:
    """A formula applied to every expression that has tokens, as ``expanded`` gives it."""
    full = np.diff(offsets) > 0
    ends = offsets[1:][full]
    longer = offsets + np.concatenate([[0], np.cumsum(full)])
    kinds, values = np.insert(kinds, ends, OPERATOR), np.insert(values, ends, np.uint64(LAST))
    return expanded(kinds, values, longer, user_formulas(formula))


# ── the compiled part ────────────────────────────────────────────────────────────────


class _WrittenShort(NamedTuple):
    """Expressions as they came, with the user's operators."""

    kinds: np.ndarray
    values: np.ndarray
    offsets: np.ndarray


class _OpenOperands(NamedTuple):
    """For one expression: where its open operands begin in what is written, and copies of an operator's operands."""

    starts: Annotated[np.ndarray, "int64[depth]"]
    kinds: Annotated[np.ndarray, "uint8[n]"]
    values: Annotated[np.ndarray, "uint64[n]"]


@compiled
def _measure(tokens, formulas, stack, lengths):
    """How many tokens every expression becomes; one more than MAX_TOKENS stands for all that is too many.

    Gives whether an operand of more than one token is there more than once.
    """
    kinds, values, offsets = tokens.kinds, tokens.values, tokens.offsets
    shares = False
    for i in range(len(lengths)):
        depth = 0
        for t in range(offsets[i], offsets[i + 1]):
            size = 1
            if kinds[t] == OPERATOR:
                code = np.int64(values[t])
                begin, end = formulas.start[code], formulas.start[code + 1]
                depth -= formulas.arity[code]
                size = 0 if end > begin else 1
                for k in range(formulas.arity[code] if end == begin else 0):
                    size += stack[depth + k]
                for s in range(begin, end):
                    if formulas.kinds[s] != OPERAND:
                        size += 1
                        continue
                    operand = np.int64(formulas.values[s])
                    size += stack[depth + operand]
                    for before in range(begin, s if stack[depth + operand] > 1 else begin):
                        known = formulas.kinds[before] == OPERAND and np.int64(formulas.values[before]) == operand
                        shares = shares or known
            stack[depth] = min(size, MAX_TOKENS + 1)
            depth += 1
        lengths[i] = stack[0] if depth > 0 else 0
    return shares


@compiled
def _write(tokens, formulas, room, out, offsets):
    """Write the tokens of every expression from its place in ``offsets`` on."""
    kinds, values, starts = tokens.kinds, tokens.values, room.starts
    for i in range(len(offsets) - 1):
        n, depth = offsets[i], 0
        for t in range(tokens.offsets[i], tokens.offsets[i + 1]):
            begin = end = np.int64(0)
            first = n
            if kinds[t] == OPERATOR:
                code = np.int64(values[t])
                begin, end = formulas.start[code], formulas.start[code + 1]
                depth -= formulas.arity[code]
                first = starts[depth]
            if end > begin:
                starts[depth + formulas.arity[code]] = n
                n = _write_formula(formulas, begin, end, room, out, depth)
            else:
                out.kinds[n], out.values[n] = kinds[t], values[t]
                n += 1
            starts[depth] = first
            depth += 1


@compiled
def _write_formula(formulas, begin, end, room, out, depth):
    """Write a formula in the place of its operands, which are the last that were written; gives its end.

    Every operand is named at least once, so that nothing becomes shorter and there is room.
    """
    n_operands = np.int64(0)
    for s in range(begin, end):
        if formulas.kinds[s] == OPERAND:
            n_operands = max(n_operands, np.int64(formulas.values[s]) + 1)
    first = at = room.starts[depth]
    for t in range(first, room.starts[depth + n_operands]):
        room.kinds[t - first], room.values[t - first] = out.kinds[t], out.values[t]
    for s in range(begin, end):
        if formulas.kinds[s] != OPERAND:
            out.kinds[at], out.values[at] = formulas.kinds[s], formulas.values[s]
            at += 1
            continue
        k = np.int64(formulas.values[s])
        for t in range(room.starts[depth + k], room.starts[depth + k + 1]):
            out.kinds[at], out.values[at] = room.kinds[t - first], room.values[t - first]
            at += 1
    return at
