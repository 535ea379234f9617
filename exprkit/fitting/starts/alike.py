"""Starts of terms that may change places: where all parameters begin at 1, such terms would stay the same.

In: a population.  Out: their start, 1 for most parameters.

    >>> import exprkit as ek
    >>> from exprkit.fitting.starts.alike import ones_apart
    >>> ones_apart(ek.parse(["p1 * exp(-p2 * x1) + p3 * exp(-p4 * x1)", "p1 + p2 * x1"])).tolist()
    [[[1.0, 1.0, 1.0, 4.0], [1.0, 1.0, 1.0, 1.0]]]

Terms are operands of the same sum, or of another operator whose operands may change places, with whatever depth it
is written.  They are compared by hashes in which all parameters are one.  In the k-th of those that are alike the
parameters begin at ``APART``^(k - 1), but for those that the expression is linear in, which are solved.
Expressions of more than ``MAX_TOKENS`` tokens start at 1.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

import numpy as np

from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.operators.defined import table, table_of_rows
from exprkit.programs.linearity import dependence
from exprkit.runtime import slices
from exprkit.runtime.bags import zeros
from exprkit.runtime.hashes import mixed
from exprkit.runtime.jit import compiled, inline
from exprkit.text.tokens import OPERATOR, PARAMETER

# of 16 data sets each of three decays, two powers, peaks and logistic curves 14, 16, 9 and 9 end at the least loss from
# there; by 2 it is 16, 14, 3 and 2, with all parameters at 1 it is 14, 11, 4 and 10
APART = 4.0
MAX_RANK = 10  # alike terms that start apart; further ones start as the last
MAX_TOKENS = 256  # of an expression, whose terms are compared in pairs: chosen, not measured
SUM = 1  # kind of sums and differences; of other operators whose operands may change places 2 + their code


def ones_apart(pop: Population) -> np.ndarray:
    """The start, float64 (1, n_exprs, max_params); a single number where no terms are alike."""
    ones = np.broadcast_to(1.0, (1, len(pop), pop.max_params))
    if pop.max_params < 2:
        return ones
    pop = pop.expanded()
    linear, ranks = dependence(pop).linear, np.zeros((len(pop), pop.max_params), np.uint8)

    def rank_slice(begin: int, end: int) -> None:
        scratch = zeros(_TermTable, n=MAX_TOKENS)
        tokens = _TermTokens(pop.kinds, pop.values, pop.offsets[begin : end + 1], ops.ARITY, _kinds_of_operators())
        _rank_terms(tokens, scratch, pop.n_params[begin:end], linear[begin:end], ranks[begin:end])

    slices.each(rank_slice, slices.cut(pop.offsets))
    return APART ** ranks[None] if ranks.any() else ones


@table_of_rows
def _kinds_of_operators() -> np.ndarray:
    """By code: ``SUM``, 2 + the code of another operator whose operands may change places, or 0."""
    kinds = np.zeros(256, np.int64)
    for row in table():
        if row.arity == 2 and row.width == 1 and not row.packed:
            is_sum = len(row.derivative) == 2 and all(re.fullmatch("-?1", text) for text in row.derivative)
            kinds[row.code] = SUM if is_sum else 2 + row.code if row.commutative else 0
    return kinds


class _TermTokens(NamedTuple):
    """Expressions, and what is known of operators by code."""

    kinds: np.ndarray
    values: np.ndarray
    offsets: np.ndarray
    arity: np.ndarray
    commuting: np.ndarray


class _TermTable(NamedTuple):
    """Of one expression, by token: what ends with it."""

    hash: Annotated[np.ndarray, "uint64[n]"]
    terms: Annotated[np.ndarray, "uint64[n]"]  # the sum of the hashes of its terms, however they are written
    first: Annotated[np.ndarray, "int64[n]"]  # the first token
    parent: Annotated[np.ndarray, "int64[n]"]  # the operator that it is an operand of, -1 if none
    is_curved: Annotated[np.ndarray, "bool[n]"]  # it has a parameter that the expression is not linear in
    stack: Annotated[np.ndarray, "int64[n]"]
    kind: Annotated[np.ndarray, "int64[n]"]


@compiled
def _rank_terms(tokens, work, n_params, linear, ranks):
    """By parameter how many terms like its own there are before."""
    for i in range(len(linear)):
        begin, n, m = tokens.offsets[i], tokens.offsets[i + 1] - tokens.offsets[i], np.int64(n_params[i])
        are_linear = m < 64 and linear[i] == (np.uint64(1) << np.uint64(m)) - np.uint64(1)
        if n > MAX_TOKENS or m < 2 or are_linear:
            continue
        _describe_tokens(tokens, work, begin, n, linear[i])
        for t in range(n - 1, -1, -1):  # from the root on, so that sums of sums know the outermost
            up = work.parent[t]
            if up < 0 or not work.is_curved[t] or work.kind[up] == 0 or work.kind[up] == work.kind[t]:
                continue
            rank = 0
            for other in range(t):
                if work.hash[other] != work.hash[t]:
                    continue
                above = work.parent[other]
                if above >= 0 and work.kind[above] == work.kind[up]:
                    rank += _outermost(work, above) == _outermost(work, up)
            if rank > 0:
                _rank_parameters(tokens, begin, work.first[t], t, linear[i], min(rank, MAX_RANK), ranks[i])


@compiled
def _describe_tokens(tokens, work, begin, n, linear):
    """Write the hash, terms, extent, parent and kind of every token of an expression into the table ``work``."""
    depth = 0
    for t in range(n):
        code = np.int64(0)
        work.first[t], work.parent[t], work.kind[t], work.is_curved[t] = t, -1, 0, False
        if tokens.kinds[begin + t] == OPERATOR:
            code = np.int64(tokens.values[begin + t])
            depth -= tokens.arity[code]
            work.first[t], work.kind[t] = work.first[work.stack[depth]], tokens.commuting[code]
            h = np.uint64(0)
            for k in range(tokens.arity[code]):
                operand = work.stack[depth + k]
                work.parent[operand] = t
                work.is_curved[t] |= work.is_curved[operand]
                if work.kind[t] == 0:
                    h = mixed(h + work.hash[operand])
                else:
                    h += work.terms[operand] if work.kind[operand] == work.kind[t] else work.hash[operand]
            work.terms[t] = h
            kind = work.kind[t] if work.kind[t] == SUM else code + 2
            work.hash[t] = mixed(h ^ mixed(np.uint64(kind)))
        else:
            is_parameter = tokens.kinds[begin + t] == PARAMETER
            value = np.uint64(0) if is_parameter else np.uint64(tokens.values[begin + t])
            work.hash[t] = mixed(value ^ mixed(np.uint64(1000 + tokens.kinds[begin + t])))
            work.is_curved[t] = is_parameter and not _is_linear(linear, np.int64(tokens.values[begin + t]))
        work.stack[depth] = t
        depth += 1


@compiled
def _outermost(work, t):
    """The outermost operator of a sum of sums."""
    while work.parent[t] >= 0 and work.kind[work.parent[t]] == work.kind[t]:
        t = work.parent[t]
    return t


@inline
def _is_linear(linear, j):
    """Whether bits of linear parameters have parameter j."""
    return j < 63 and linear >> np.uint64(j) & np.uint64(1) == 1


@compiled
def _rank_parameters(tokens, begin, first, last, linear, rank, ranks):
    """Give a term's rank to its parameters that are in no token before it and that the expression is not linear in."""
    for t in range(first, last + 1):
        if tokens.kinds[begin + t] == PARAMETER:
            j, is_new = np.int64(tokens.values[begin + t]), True
            for before in range(first):
                is_same = tokens.kinds[begin + before] == PARAMETER and np.int64(tokens.values[begin + before]) == j
                is_new = is_new and not is_same
            if is_new and not _is_linear(linear, j):
                ranks[j] = rank
