"""Fingerprints: two hashes of the function that an expression computes, equal for ``x1 / p1`` and ``p1 * x1``.

In: a population.  Out: its functions' hashes.  What counts as the same function is said in ``families``.

    >>> import exprkit as ek
    >>> from exprkit.search.fingerprints import fingerprints
    >>> keys = fingerprints(ek.parse(["p1 * x1", "x1 / p1", "x1 / (p1 + p2) - x1", "p1 + x1"]))
    >>> (keys[:, 0] == keys[0, 0]).tolist()
    [True, True, True, False]

A parameter that stands more than once in an expression is held at a value of its own number, and an operator without
rules is a function that is told apart by its name and operands: ``sin(x1)`` is not found to be ``-sin(-x1)``.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from exprkit.errors import ArgumentError
from exprkit.expressions.population import Population
from exprkit.operators import defined, ops
from exprkit.runtime import slices
from exprkit.runtime.hashes import mixed
from exprkit.runtime.jit import compiled
from exprkit.search import families
from exprkit.search.families import places
from exprkit.search.family_rules import apply, has_rule
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE


def fingerprints(pop: Population, threads: int | None = None, salt: int = 0, n_vars: int = 1) -> np.ndarray:
    """Fingerprints of expressions, which must be valid: uint64 (n_exprs, 2); 0 of those that are nowhere defined.

    What is equal by chance, or unequal by rounding, is not so at the points of another ``salt``.  ``n_vars``: variables
    that the points have, if the expressions have fewer.
    """
    if not pop.all_valid:
        raise ArgumentError("expressions that could not be read have no fingerprint: pop[pop.valid]")
    keys = np.zeros((len(pop), 2), np.uint64)
    numbers, points = pop.values.view(np.float64), places(max(pop.n_vars, n_vars), salt)
    tokens = _WalkedTokens(pop.kinds, pop.values, numbers, pop.offsets, defined.arity(), ops.COMMUTATIVE, points)
    walk = functools.partial(_walk, tokens, pop.longest, max(pop.max_params, 1), keys)
    slices.each(walk, slices.cut(pop.offsets, threads, least=1 << 10))
    return keys


class _WalkedTokens(NamedTuple):
    """Tokens of a population, the numbers among their values, facts of operators by code, and the points."""

    kinds: np.ndarray
    values: np.ndarray
    numbers: np.ndarray
    offsets: np.ndarray
    arity: np.ndarray
    commutative: np.ndarray
    places: np.ndarray


@compiled
def _walk(tokens, longest, max_params, keys, begin, end):
    room = families.SLOTS + 2 * longest // 3 + 3  # operands wait after the slots that operations need
    work = families.working_slots(room)
    own, times = np.zeros((room, 2), np.uint64), np.zeros(max_params, np.int64)
    for i in range(begin, end):
        times[:] = 0
        for t in range(tokens.offsets[i], tokens.offsets[i + 1]):
            if tokens.kinds[t] == PARAMETER:
                times[np.int64(tokens.values[t])] += 1
        top, fine = families.SLOTS, True
        for t in range(tokens.offsets[i], tokens.offsets[i + 1]):
            if tokens.kinds[t] != OPERATOR:
                _leaf(tokens, t, times, work)
            else:
                code = np.int64(tokens.values[t])
                top = top - tokens.arity[code]
                fine = _operator(work, code, tokens.arity[code], tokens.commutative[code], top, own)
                if not fine:
                    break
            families.keys_of(work, 0, own, top)
            families.copy(work, 0, work, top)
            top += 1
        if fine:
            keys[i, 0], keys[i, 1] = own[families.SLOTS, 0], own[families.SLOTS, 1]


@compiled
def _leaf(tokens, t, times, work):
    families.plain(work, 0)
    kind = tokens.kinds[t]
    free = kind == PARAMETER and times[np.int64(tokens.values[t])] == 1
    name = families.name_of(mixed(tokens.values[t] + np.uint64(0x9A7A)))
    for k in range(families.K):
        if kind == CONSTANT:
            work.rows[0, 0, k] = tokens.numbers[t]
        elif kind == VARIABLE:
            work.rows[0, 0, k] = tokens.places[np.int64(tokens.values[t]), k]
        elif free:
            work.rows[0, 0, k], work.rows[0, 1, k] = 0.0, 1.0
        else:
            work.rows[0, 0, k] = families.held_value(name, k // families.POINTS)
    work.heads[0, families.M] = work.heads[0, families.CONE] = free


@compiled
def _operator(work, code, arity, commutative, first, own):
    """Apply an operator to the operands from ``first`` on; False where that is undefined."""
    for side in range(arity):
        families.copy(work, first + side, work, side)
    keys = own[first : first + 3]
    ended = families.FINE - 1
    if has_rule(code):
        ended = apply(work, code, keys)
    if ended != families.FINE and ended != families.UNDEFINED:
        for side in range(arity):
            families.copy(work, first + side, work, side)
        families.stand_alone(work, code, arity, commutative, keys)
    return ended != families.UNDEFINED
