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
from exprkit.runtime.bags import empty
from exprkit.runtime.hashes import mixed
from exprkit.runtime.intrinsics import atomic_add, take
from exprkit.runtime.jit import compiled
from exprkit.search.families import (
    CONE,
    FINE,
    MOST_ROWS,
    POINTS,
    SLOTS,
    UNDEFINED,
    K,
    M,
    copy,
    held_value,
    keys_of,
    name_of,
    places,
    plain,
    stand_alone,
    working_slots,
)
from exprkit.search.family_rules import apply, has_rule
from exprkit.search.forms import LEAF, Forms
from exprkit.search.function_table import LEAST, PIECE, Stored, keys_of_all, load, store, with_rows
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE


def fingerprints(pop: Population, threads: int | None = None, salt: int = 0) -> np.ndarray:
    """Of every expression's function.

    Parameters
    ----------
    pop : Population
        All valid.
    threads : int, optional
        By default all that this process may use.
    salt : int
        Of the points: what is equal by chance, or unequal by rounding, is not so at others.

    Returns
    -------
    uint64 array, (n_exprs, 2)
        Equal for expressions that are the same function, different for all others; 0 for those that are nowhere
        defined.

    Raises
    ------
    ArgumentError
        If an expression is not valid.
    """
    if not pop.all_valid:
        raise ArgumentError("expressions that could not be read have no fingerprint: pop[pop.valid]")
    keys = np.zeros((len(pop), 2), np.uint64)
    numbers, points = pop.values.view(np.float64), places(max(pop.n_vars, 1), salt)
    tokens = _WalkedTokens(pop.kinds, pop.values, numbers, pop.offsets, defined.arity(), _commutative(), points)
    walk = functools.partial(_walk, tokens, pop.longest, max(pop.max_params, 1), keys)
    slices.each(walk, slices.cut(pop.offsets, threads, least=1 << 10))
    return keys


@functools.cache
def _commutative() -> np.ndarray:
    """By code whether an operator is."""
    commutative = np.zeros(256, np.bool_)
    commutative[[row.code for row in ops.BY_CODE.values() if row.commutative]] = True
    return commutative


class FormFingerprints:
    """The fingerprints of forms, each made of its operands' families, which are kept: no tree is walked twice.

    Parameters
    ----------
    leaves : list of Stored
        The families of the first forms, at the points of each of some salts.
    threads : int, optional
    """

    def __init__(self, leaves: list[Stored], threads: int | None = None) -> None:
        self._n_salts, self._threads, self._n = len(leaves), threads, len(leaves[0].heads)
        self._numbers = np.arange(self._n)  # by form: which of the families is its own; -1: it has none yet
        self._n_rows = sum(len(some.rows) for some in leaves)
        self._stored = empty(Stored, n=self._n * len(leaves), r=self._n_rows)  # those of all salts beside each other
        for salt, some in enumerate(leaves):
            for into, array in zip(self._stored[:-1], some[:-1], strict=True):
                into[salt :: len(leaves)] = array
            begin = salt * len(some.rows)
            self._stored.starts[salt :: len(leaves)] += begin
            self._stored.rows[begin : begin + len(some.rows)] = some.rows

    @property
    def n_bytes(self) -> int:
        return self._numbers.nbytes + sum(array.nbytes for array in self._stored[:-1]) + 8 * K * self._n_rows

    def of(self, forms: Forms, wanted: np.ndarray, keep: bool) -> np.ndarray:
        """What ``fingerprints`` gives for some forms, (n, n_salts, 2); ``keep``: they are going to be operands."""
        self._numbers = np.concatenate([self._numbers, np.full(len(forms.size) - len(self._numbers), -1)])
        for operands in self._operands(forms, wanted):
            self._make(forms, operands, True)
        return self._make(forms, wanted, keep)

    def _operands(self, forms: Forms, wanted: np.ndarray) -> list[np.ndarray]:
        """The forms without families that some are made of, each after its own operands."""
        found = [wanted]
        while len(found[-1]):
            missing = np.zeros(len(forms.size), np.bool_)
            over = found[-1][forms.code[found[-1]] != LEAF]
            missing[forms.left[over]] = True
            for operands in (forms.right, forms.third):
                missing[operands[over[operands[over] >= 0]]] = True
            found.append(np.flatnonzero(missing & (self._numbers < 0)))
        return found[:0:-1]

    def _make(self, forms: Forms, chosen: np.ndarray, keep: bool) -> np.ndarray:
        """The fingerprints of forms whose operands have families, which are kept or not."""
        is_new = self._numbers[chosen] < 0
        new, counter, n_salts = chosen[is_new], np.array([self._n_rows]), self._n_salts
        keys = np.zeros((len(new) * n_salts, 2), np.uint64)
        first, n = self._n * n_salts, len(keys)
        if keep:
            self._stored = with_rows(self._stored, first, self._n_rows, first + n, self._n_rows + MOST_ROWS * n)
        job = _FormJob(new, self._numbers, n_salts, _commutative(), keys, first if keep else -1, counter.ctypes.data)
        slices.by_turns(functools.partial(_make_forms, forms, self._stored, job), n, self._threads, LEAST)
        every = self._stored.keys[:first].reshape(-1, n_salts, 2)[self._numbers[chosen]]
        every[is_new] = keys.reshape(-1, n_salts, 2)
        if keep:
            self._stored.keys[first : first + n] = keys
            self._numbers[new] = np.arange(self._n, self._n + len(new))
            self._n, self._n_rows = self._n + len(new), int(counter[0])
        return every


class _FormJob(NamedTuple):
    """Forms that fingerprints are wanted of, at the points of each salt."""

    chosen: np.ndarray
    numbers: np.ndarray  # by form: its family's
    n_salts: int
    commutative: np.ndarray
    keys: np.ndarray
    first: int  # where the first family belongs, or -1: none is kept
    counter: int  # where the number of all rows is


@compiled
def _make_forms(forms, stored, job, counter):
    work, own = working_slots(SLOTS + 3), np.zeros((SLOTS + 3, 2), np.uint64)
    piece = working_slots(PIECE)
    while True:
        begin = take(counter) * PIECE
        n = min(PIECE, len(job.keys) - begin)
        if n <= 0:
            return
        for i in range(n):
            if _made_of_operands(forms, stored, job, begin + i, work, own):
                copy(work, 0, piece, i)
            else:
                piece.heads[i, M] = -1
        keys_of_all(piece, n, job.keys, begin)
        if job.first < 0:
            continue
        n_rows = 0
        for i in range(n):
            n_rows += 1 + piece.heads[i, M]
        start = atomic_add(job.counter, n_rows)
        for i in range(n):
            stored.starts[job.first + begin + i] = -1
            if piece.heads[i, M] >= 0:
                store(piece, i, stored, job.first + begin + i, start)
                start += 1 + piece.heads[i, M]


@compiled
def _made_of_operands(forms, stored, job, i, work, own):
    """A form's family in slot 0; False where it is undefined."""
    form, salt = job.chosen[i // job.n_salts], i % job.n_salts
    code, arity = forms.code[form], 1 + (forms.right[form] >= 0) + (forms.third[form] >= 0)
    for side in range(arity):
        operand = forms.left[form] if side == 0 else forms.right[form] if side == 1 else forms.third[form]
        operand = job.numbers[operand] * job.n_salts + salt
        if stored.starts[operand] < 0:
            return False
        load(stored, operand, work, SLOTS + side)
        own[SLOTS + side, 0], own[SLOTS + side, 1] = stored.keys[operand, 0], stored.keys[operand, 1]
    return _operator(work, code, arity, job.commutative[code], SLOTS, own)


class _WalkedTokens(NamedTuple):
    kinds: np.ndarray
    values: np.ndarray
    numbers: np.ndarray
    offsets: np.ndarray
    arity: np.ndarray
    commutative: np.ndarray
    places: np.ndarray


@compiled
def _walk(tokens, longest, max_params, keys, begin, end):
    room = SLOTS + 2 * longest // 3 + 3  # operands wait after the slots that operations need
    work = working_slots(room)
    own, times = np.zeros((room, 2), np.uint64), np.zeros(max_params, np.int64)
    for i in range(begin, end):
        times[:] = 0
        for t in range(tokens.offsets[i], tokens.offsets[i + 1]):
            if tokens.kinds[t] == PARAMETER:
                times[np.int64(tokens.values[t])] += 1
        top, fine = SLOTS, True
        for t in range(tokens.offsets[i], tokens.offsets[i + 1]):
            if tokens.kinds[t] != OPERATOR:
                _leaf(tokens, t, times, work)
            else:
                code = np.int64(tokens.values[t])
                top = top - tokens.arity[code]
                fine = _operator(work, code, tokens.arity[code], tokens.commutative[code], top, own)
                if not fine:
                    break
            keys_of(work, 0, own, top)
            copy(work, 0, work, top)
            top += 1
        if fine:
            keys[i, 0], keys[i, 1] = own[SLOTS, 0], own[SLOTS, 1]


@compiled
def _leaf(tokens, t, times, work):
    plain(work, 0)
    kind = tokens.kinds[t]
    free = kind == PARAMETER and times[np.int64(tokens.values[t])] == 1
    name = name_of(mixed(tokens.values[t] + np.uint64(0x9A7A)))
    for k in range(K):
        if kind == CONSTANT:
            work.rows[0, 0, k] = tokens.numbers[t]
        elif kind == VARIABLE:
            work.rows[0, 0, k] = tokens.places[np.int64(tokens.values[t]), k]
        elif free:
            work.rows[0, 0, k], work.rows[0, 1, k] = 0.0, 1.0
        else:
            work.rows[0, 0, k] = held_value(name, k // POINTS)
    work.heads[0, M] = work.heads[0, CONE] = free


@compiled
def _operator(work, code, arity, commutative, first, own):
    """What an operator makes of the operands from ``first`` on; False where that is undefined."""
    for side in range(arity):
        copy(work, first + side, work, side)
    keys = own[first : first + 3]
    ended = FINE - 1
    if has_rule(code):
        ended = apply(work, code, keys)
    if ended != FINE and ended != UNDEFINED:
        for side in range(arity):
            copy(work, first + side, work, side)
        stand_alone(work, code, arity, commutative, keys)
    return ended != UNDEFINED
