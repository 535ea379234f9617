"""Compiled printing of postfix tokens as formulas; text and LaTeX are two tables.

A formula is written from pieces: an operator's ``before``, ``between`` (two) and ``after``
around its operands, a leaf's own text, and delimiters where an operand is weaker than
its place demands.

=============  ========================================================================
place          where an operand stands: LEFT or RIGHT of an operator, or behind a PREFIX
need           of an operator: the least strength of an operand at each place
form           OPERATOR code of an operator, or the form of a leaf (below)
strength       of a form: how tightly it holds together at each place
=============  ========================================================================

``printer`` makes the tables.

    >>> from exprkit.text.notation import LEAF, NEGATIVE
    >>> LEAF, NEGATIVE
    (252, 255)
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from exprkit.runtime.jit import compiled
from exprkit.text.tokens import OPERATOR

LEFT, RIGHT, PREFIX = range(3)
LEAF, NUMBER, SCIENTIFIC, NEGATIVE = 252, 253, 254, 255  # forms of leaves; smaller ones are operator codes
PIECES_OF_OPERATOR = 4  # before, twice between, after
AFTER = PIECES_OF_OPERATOR - 1
OPENING, CLOSING = 256 * PIECES_OF_OPERATOR, 256 * PIECES_OF_OPERATOR + 1
FIRST_LEAF = CLOSING + 1


class Notation(NamedTuple):
    """The pieces and how they go together."""

    text: np.ndarray  # uint8: all pieces, one after the other
    start: np.ndarray  # int64: piece i is text[start[i]:start[i + 1]]
    need: np.ndarray  # uint8 (256, 3), by operator code and place
    strength: np.ndarray  # uint8 (256, 3), by form and place
    prefix: np.ndarray  # bool (256,), by operator code: its operand stands behind it
    arity: np.ndarray  # uint8 (256,)


class Pieces(NamedTuple):
    """The tokens of a population and what is written for each."""

    kinds: np.ndarray
    pieces: np.ndarray  # int64: an operator's code, or the piece of a leaf
    forms: np.ndarray  # uint8
    offsets: np.ndarray


class Writing(NamedTuple):
    """Room to write in."""

    out: Annotated[np.ndarray, "uint8[n_bytes]"]
    size: Annotated[np.ndarray, "int64[n]"]  # tokens of an operand
    stack: Annotated[np.ndarray, "int64[n_waiting]"]  # six times as many


@compiled
def longest(kinds, pieces, start):
    """An upper bound for the bytes that ``write`` needs, separators excepted."""
    total = 2 * (start[OPENING + 2] - start[OPENING]) * len(kinds)
    for t in range(len(kinds)):
        if kinds[t] == OPERATOR:
            first = PIECES_OF_OPERATOR * pieces[t]
            total += start[first + PIECES_OF_OPERATOR] - start[first]
        else:
            total += start[pieces[t] + 1] - start[pieces[t]]
    return total


@compiled
def _copy(out, n, piece, text, start):
    for k in range(start[piece], start[piece + 1]):
        out[n] = text[k]
        n += 1
    return n


@compiled
def write(tokens, notation, writing):
    """Write all expressions, each followed by a 0 byte; the number of bytes.

    In: Pieces, a Notation, Writing.  An operator puts off its last piece, its last operand, the piece before that
    and so on down to its first operand, on a stack; what is taken from there is written, or puts off in turn.
    """
    kinds, pieces, forms, offsets = tokens.kinds, tokens.pieces, tokens.forms, tokens.offsets
    text, start, need, strength = notation.text, notation.start, notation.need, notation.strength
    arity, prefix, out, size, stack = notation.arity, notation.prefix, writing.out, writing.size, writing.stack
    n = 0
    for i in range(len(offsets) - 1):
        begin, end = offsets[i], offsets[i + 1]
        for t in range(begin, end):
            size[t - begin] = 1
            if kinds[t] == OPERATOR:
                for _ in range(arity[pieces[t]]):
                    size[t - begin] += size[t - begin - size[t - begin]]
        top = 0
        if end > begin:
            stack[0], top = end - 1, 1
        while top > 0:
            top -= 1
            t = stack[top]
            if t < 0:  # a piece, put off
                n = _copy(out, n, -1 - t, text, start)
                continue
            if kinds[t] != OPERATOR:
                n = _copy(out, n, pieces[t], text, start)
                continue
            code = pieces[t]
            piece = PIECES_OF_OPERATOR * code
            n = _copy(out, n, piece, text, start)
            stack[top] = -1 - (piece + AFTER)
            top += 1
            last = t - 1
            for k in range(arity[code] - 1, 0, -1):
                delimited = strength[forms[last], RIGHT] < need[code, RIGHT]
                top = _push(stack, top, last, delimited)
                stack[top] = -1 - (piece + k)
                top += 1
                last -= size[last - begin]
            place = PREFIX if prefix[code] else LEFT
            delimited = strength[forms[last], place] < need[code, place]
            top = _push(stack, top, last, delimited)
        out[n] = 0
        n += 1
    return n


@compiled
def _push(stack, top, t, delimited):
    """Put off an operand, with its delimiters (last in, first out)."""
    if delimited:
        stack[top] = -1 - CLOSING
        top += 1
    stack[top] = t
    top += 1
    if delimited:
        stack[top] = -1 - OPENING
        top += 1
    return top
