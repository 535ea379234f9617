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
from collections.abc import Callable
from typing import Annotated, NamedTuple

import numpy as np

from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.operators.defined import table, table_of_rows
from exprkit.programs.linearity import dependence
from exprkit.runtime import slices
from exprkit.runtime.bags import zeros
from exprkit.runtime.hashes import GOLDEN, mixed
from exprkit.runtime.jit import compiled, inline
from exprkit.text.tokens import OPERATOR, PARAMETER

# of 16 data sets each of three decays, two powers, peaks and logistic curves 14, 16, 9 and 9 end at the least loss from
# there; by 2 it is 16, 14, 3 and 2, with all parameters at 1 it is 14, 11, 4 and 10
APART = 4.0
MAX_RANK = 10  # alike terms that start apart; further ones start as the last
MAX_TOKENS = 256  # of an expression, whose terms are compared in pairs: chosen, not measured
SUM = 1  # kind of sums and differences; of other operators whose operands may change places 2 + their code


def ones_apart(pop: Population) -> np.ndarray:
    """The start, float64 (1, n_exprs, max_params); a single number where no terms are alike.

    It is kept with the population, and not to be written to.
    """
    pop = pop.expanded()
    if "ones apart" not in pop.analyses:
        pop.analyses["ones apart"] = _ones_apart(pop)
    starts: np.ndarray = pop.analyses["ones apart"]
    return starts


def _ones_apart(pop: Population) -> np.ndarray:
    ones = np.broadcast_to(1.0, (1, len(pop), pop.max_params))
    if pop.max_params < 2:
        return ones
    has_alike = np.zeros(len(pop), np.bool_)
    _by_slices(_mark_alike, pop, pop.n_params, has_alike)
    chosen = np.flatnonzero(has_alike)  # few of most populations, and only these are asked what they are linear in
    if not len(chosen):
        return ones
    few = pop[chosen].expanded()
    ranks = np.zeros((len(few), pop.max_params), np.uint8)
    _by_slices(_rank_terms, few, dependence(few).linear, ranks)
    if not ranks.any():
        return ones
    starts = np.ones(ones.shape)
    starts[0, chosen] = APART**ranks
    starts.flags.writeable = False
    return starts


def _by_slices(loop: Callable[..., None], pop: Population, *arrays: np.ndarray) -> None:
    """Let threads run a compiled loop over slices of a population and of arrays with a row for each expression."""

    def run_slice(begin: int, end: int) -> None:
        tokens = _TermTokens(pop.kinds, pop.values, pop.offsets[begin : end + 1], ops.ARITY, _kinds_of_operators())
        loop(tokens, zeros(_TermTable, n=MAX_TOKENS), *(array[begin:end] for array in arrays))

    slices.each(run_slice, slices.cut(pop.offsets))


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
    """Subexpressions of an expression, by their last token."""

    hash: Annotated[np.ndarray, "uint64[n]"]
    terms: Annotated[np.ndarray, "uint64[n]"]  # the sum of the hashes of its terms, however they are written
    alike: Annotated[np.ndarray, "uint64[n]"]  # hashes of terms with parameters, in the order they are met
    first: Annotated[np.ndarray, "int64[n]"]  # the first token
    parent: Annotated[np.ndarray, "int64[n]"]  # the operator that it is an operand of, -1 if none
    has_parameter: Annotated[np.ndarray, "bool[n]"]  # any of its tokens is one
    stack: Annotated[np.ndarray, "int64[n]"]
    kind: Annotated[np.ndarray, "int64[n]"]


@compiled
def _mark_alike(tokens, work, n_params, has_alike):
    """Mark expressions in which two terms with parameters have the same hash, wherever they stand.

    One walk without what ``_describe_tokens`` writes down: most expressions have no such terms.
    """
    for i in range(len(n_params)):
        begin, end = tokens.offsets[i], tokens.offsets[i + 1]
        if n_params[i] < 2 or end - begin > MAX_TOKENS:
            continue
        depth, n_terms, bits = 0, 0, np.uint64(0)
        for t in range(begin, end):
            kind, has_parameter, terms = np.int64(0), tokens.kinds[t] == PARAMETER, np.uint64(0)
            if tokens.kinds[t] == OPERATOR:
                code = np.int64(tokens.values[t])
                depth -= tokens.arity[code]
                kind = tokens.commuting[code]
                for k in range(depth, depth + tokens.arity[code]):
                    has_parameter |= work.has_parameter[k]
                    if kind == 0:
                        terms = mixed(terms + work.hash[k])
                        continue
                    is_term = work.kind[k] != kind
                    terms += work.hash[k] if is_term else work.terms[k]
                    if is_term and work.has_parameter[k]:
                        term = work.hash[k] + np.uint64(kind)  # terms of sums are not compared with those of products
                        bit = np.uint64(1) << (term & np.uint64(63))
                        if bits & bit:
                            for other in range(n_terms):
                                has_alike[i] |= work.alike[other] == term
                        bits |= bit
                        work.alike[n_terms] = term
                        n_terms += 1
                work.hash[depth] = _of_operator(terms, kind, code)
            else:
                work.hash[depth] = _of_leaf(tokens, t)
            work.terms[depth], work.kind[depth], work.has_parameter[depth] = terms, kind, has_parameter
            depth += 1
            if has_alike[i]:
                break


@inline
def _of_operator(terms, kind, code):
    """The hash of an operator from that of its operands."""
    return mixed(terms ^ GOLDEN * np.uint64(kind if kind == SUM else code + 2))


@inline
def _of_leaf(tokens, t):
    """The hash of a variable, constant or parameter, all parameters being one."""
    value = np.uint64(0) if tokens.kinds[t] == PARAMETER else np.uint64(tokens.values[t])
    return mixed(value ^ GOLDEN * np.uint64(1000 + tokens.kinds[t]))


@compiled
def _rank_terms(tokens, work, linear, ranks):
    """By parameter how many terms like its own there are before."""
    for i in range(len(linear)):
        begin, n = tokens.offsets[i], tokens.offsets[i + 1] - tokens.offsets[i]
        _describe_tokens(tokens, work, begin, n)
        for t in range(n - 1, -1, -1):  # from the root on, so that sums of sums know the outermost
            up = work.parent[t]
            if up < 0 or not work.has_parameter[t] or work.kind[up] == 0 or work.kind[up] == work.kind[t]:
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
def _describe_tokens(tokens, work, begin, n):
    """Write the hash, terms, extent, parent and kind of every token of an expression into the table ``work``."""
    depth = 0
    for t in range(n):
        code = np.int64(0)
        work.first[t], work.parent[t], work.kind[t], work.has_parameter[t] = t, -1, 0, False
        if tokens.kinds[begin + t] == OPERATOR:
            code = np.int64(tokens.values[begin + t])
            depth -= tokens.arity[code]
            work.first[t], work.kind[t] = work.first[work.stack[depth]], tokens.commuting[code]
            h = np.uint64(0)
            for k in range(tokens.arity[code]):
                operand = work.stack[depth + k]
                work.parent[operand] = t
                work.has_parameter[t] |= work.has_parameter[operand]
                if work.kind[t] == 0:
                    h = mixed(h + work.hash[operand])
                else:
                    h += work.terms[operand] if work.kind[operand] == work.kind[t] else work.hash[operand]
            work.terms[t] = h
            work.hash[t] = _of_operator(h, work.kind[t], code)
        else:
            work.hash[t] = _of_leaf(tokens, begin + t)
            work.has_parameter[t] = tokens.kinds[begin + t] == PARAMETER
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
