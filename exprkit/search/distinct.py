"""Enumeration of all distinct functions up to a size: the shortest form of each, with its number of forms.

In: a ``Grammar``.  Out: size by size the functions that no smaller tree is, as a ``Population``.

    >>> from exprkit.search.distinct import Enumeration
    >>> from exprkit.search.grammar import grammar
    >>> found = Enumeration(grammar(3, "core_maths"))
    >>> [len(found.grow()) for size in (1, 2, 3)]
    [2, 1, 11]
    >>> found.population(range(3, 6)).texts()
    ['x1 + x1', 'x1 + p1', 'x1 - x1']

A function is a family in the sense of ``families``: all functions that an expression is for some values of its
parameters.  As the family of a tree depends on those of its operands alone, the trees of a size are made of the
*functions* of smaller sizes, not of their trees: 5 million trees of one variable up to 10 nodes are some hundred
thousand combinations.  How many trees each stands for is the product of its operands' numbers.

A family with a factor that is positive (``powabs(p1 * x1, p2)``) is part of that with any factor
(``p1 * powabs(x1, p2)``); where the latter is there in as few nodes, it stands for both.

Of one function rounding may make two.  With ``confirm`` new functions are looked at once more, at so many further
sets of points: what has the key of another at one of them stands for that from then on.

What is nowhere defined (``1 / (x1 - x1)``) is no function, and neither is what is made of it.

What a size takes, plainly::

    list the operands of all operators, CHUNK at a time
        threads:     make each combination's family, and look its keys up among the functions known before
        one thread:  number those that are new, in the order of the list; keep their families; note the forms
    threads:     make the new functions' fingerprints at further points
    one thread:  merge those that have one fingerprint
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from exprkit.expressions.population import Population
from exprkit.operators import defined
from exprkit.runtime import slices
from exprkit.runtime.bags import empty, zeros
from exprkit.runtime.intrinsics import atomic_add, take
from exprkit.runtime.jit import compiled, inline
from exprkit.search import forms as forms_of
from exprkit.search.families import (
    CONE,
    FINE,
    FREE,
    HELD,
    KIND,
    LIN,
    LOG,
    MOST_ROWS,
    POSITIVE,
    SCALE,
    SLOTS,
    UNDEFINED,
    WIDTH,
    K,
    M,
    copy,
    hold_all_of,
    keys_of,
    normalise,
    places,
    plain,
    stand_alone,
    working_slots,
)
from exprkit.search.family_rules import FUNCTION_FORM, apply, bring, formed, has_rule
from exprkit.search.fingerprints import fingerprints
from exprkit.search.forms import Blocks
from exprkit.search.function_table import (
    LEAST,
    OTHERS,
    PIECE,
    Stored,
    TreeBatch,
    find,
    find_wider,
    hand_over,
    keys_of_all,
    load,
    look_up,
    merge,
    n_slots,
    no_functions,
    number_of,
    store,
    with_room,
    with_rows,
)
from exprkit.search.grammar import Grammar
from exprkit.text.tokens import Words

CHUNK = 1 << 16  # combinations at a time


class Members(NamedTuple):
    """The functions that have trees of one size: how many, and the fewest parameters of one."""

    functions: np.ndarray
    trees: np.ndarray
    n_params: np.ndarray


class Enumeration:
    """The functions of a grammar, found size by size.

    ``confirm``: further sets of points at which new functions are compared.

    Attributes
    ----------
    size : int
        the largest that is done
    first_of_size : list of int
        functions numbered ``first_of_size[n]`` to ``first_of_size[n + 1]`` have their smallest tree at n nodes
    n_of_size : list of int
        how many functions have trees of n nodes, whether or not they have smaller ones
    part_of : int64 array
        by function the one that stands for it; itself, one with any factor, or one that it is all but for rounding
    """

    def __init__(self, grammar: Grammar, threads: int | None = None, confirm: int = 0) -> None:
        self.grammar, self.threads = grammar, threads
        self.size, self.first_of_size, self.n_of_size = 0, [0, 0], [0]
        self.part_of = np.empty(0, np.int64)
        self._members = [Members(np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64))]
        self._stored, self._n_rows = empty(Stored, n=0, r=0), 0
        self._table = no_functions(1 << 10, 1 << 10)
        self._n = self._n_keys = 0
        self._forms = forms_of.no_forms(1 << 10)
        # by salt: keys of functions that stand for themselves, (n, 2), 0 of others; and a table of their numbers
        self._confirmed = [(np.zeros((0, 2), np.uint64), np.zeros(0, np.int32)) for _ in range(confirm)]

    def __len__(self) -> int:
        return self._n

    def grow(self, check: Callable[[int], Any] = lambda n: None) -> np.ndarray:
        """Find the functions of the next size; gives the numbers of the new ones that stand for themselves.

        ``check`` is called with the number of functions after each chunk, and may raise an exception to stop.
        """
        size = self.size + 1
        self._table.trees[: self._n] = 0.0
        if size == 1:
            self._add_leaves()
            check(self._n)
        for batch, blocks in self._combinations(size) if size > 1 else ():
            self._add_batch(batch, blocks, size)
            check(self._n)
        self._finish(size)
        new = np.arange(self.first_of_size[size], self._n)
        return new[self.part_of[new] == new]

    def population(self, functions: Iterable[int] | np.ndarray, variables: Words = None) -> Population:
        """The shortest form of each of these functions."""
        return self.population_of_forms(self.forms(np.array(list(functions), np.int64)), variables)

    def forms(self, functions: np.ndarray) -> np.ndarray:
        """The number of the shortest form of each function, of the sizes done so far."""
        first = self._table.first_form[functions]
        best = np.empty_like(first)
        forms_of.best_forms(self._forms, first, best)
        return best

    def population_of_forms(self, forms: np.ndarray, variables: Words = None) -> Population:
        tokens, offsets = forms_of.tokens_of(self._forms, forms, self.grammar.n_vars)
        return Population._adopt(*tokens, offsets, variables)

    def sizes_of_forms(self, forms: np.ndarray) -> np.ndarray:
        return self._forms.size[forms]

    def find(self, pop: Population) -> np.ndarray:
        """The number of each expression's function; -1: it is none of those found."""
        numbers = np.empty(len(pop), np.int64)
        find(self._table, fingerprints(pop, self.threads), numbers)
        return numbers

    def stands_for(self, functions: np.ndarray) -> np.ndarray:
        """The number of trees of the sizes done that each function stands for."""
        n = len(self.part_of)
        together = np.bincount(self.part_of, self._table.stands_for[:n], minlength=n)
        return together[functions]

    @property
    def n_bytes(self) -> int:
        """Bytes of the functions in memory."""
        stored = sum(array.nbytes for array in self._stored[:-1]) + 8 * K * self._n_rows
        return stored + sum(array.nbytes for bag in (self._table, self._forms, *self._confirmed) for array in bag)

    # ── the steps ──

    def _add_leaves(self) -> None:
        self._stored = leaves = _leaves(self.grammar)
        self._n_rows = len(leaves.rows)
        batch = zeros(TreeBatch, n=self.grammar.n_leaves, s=0)
        batch.keys[:], batch.functions[:], batch.trees[:] = leaves.keys, -1, 1.0
        batch.n_rows[:], batch.n_params[:] = 1 + leaves.heads[:, M], leaves.heads[:, M]
        self._number(batch)
        for leaf, n_params in enumerate(batch.n_params.tolist()):
            forms_of.add_leaf(self._forms, self._table.first_form, leaf, n_params)

    def _combinations(self, size: int) -> Iterator[tuple[TreeBatch, Blocks]]:
        """The operands of all trees of a size, a chunk at a time."""
        one = Members(np.zeros(1, np.int64), np.ones(1), np.zeros(1, np.int64))
        blocks, members = self.grammar.blocks(size), self._members
        operands = [
            [members[size] if size else one for size in (block.left, block.right, block.third)] for block in blocks
        ]
        room = min(CHUNK, sum(math.prod(len(part.functions) for part in parts) for parts in operands))
        ruled = all(has_rule(block.operator.code) for block in blocks)
        every = zeros(Blocks, b=len(blocks), most_params=self.grammar.n_params)
        for b, block in enumerate(blocks):
            every.code[b], every.symbol[b] = block.operator.code, self.grammar.symbol(block.operator)
            every.commutative[b] = block.operator.commutative
            every.left_size[b], every.right_size[b], every.third_size[b] = block.left, block.right, block.third
        batch, n = empty(TreeBatch, n=room, s=0 if ruled else room), 0
        for number, (block, (left, right, third)) in enumerate(zip(blocks, operands, strict=True)):
            begin = 0
            while begin >= 0:
                choice = _PairChoice(begin, number, block.half, block.operator.commutative, self.grammar.n_params)
                n, begin = _list(left, right, third, choice, batch, n)
                if n == room > 0:
                    yield batch, every
                    n = 0
        if n:
            yield _first(batch, n), every

    def _add_batch(self, batch: TreeBatch, blocks: Blocks, size: int) -> None:
        """Number and keep the new functions of a chunk of trees, count the trees, note the forms."""
        keep = size < self.grammar.max_nodes
        if len(batch.heads):
            for block in range(int(batch.blocks[0]), int(batch.blocks[-1]) + 1):
                if not has_rule(blocks.code[block]):
                    self._evaluate(batch, blocks, block)
        scratch = empty(Stored, n=len(batch.keys) if keep else 0, r=MOST_ROWS * len(batch.keys) if keep else 0)
        counter = np.zeros(1, np.int64)
        job = _Job(keep, counter.ctypes.data)
        loop = functools.partial(_make_all, self._stored, self._table, blocks, batch, scratch, job)
        slices.by_turns(loop, len(batch.keys), self.threads, LEAST)
        before, new = self._n, self._number(batch)
        if keep:
            self._keep(batch, scratch, new, before)
        done, first = 0, self._table.first_form
        while True:
            done = forms_of.add_forms(self._forms, first, blocks, batch, done)
            if done == len(batch.functions):
                return
            self._forms = forms_of.more_room(self._forms)

    def _evaluate(self, batch: TreeBatch, blocks: Blocks, block: int) -> None:
        """Apply an operator without rules to its operands' values."""
        begin, end = np.searchsorted(batch.blocks, [block, block + 1]).tolist()
        operator = defined.known(int(blocks.code[block]))

        def some(first: int, last: int) -> None:
            _operands_of(self._stored, blocks, batch, begin + first, begin + last)
            values = batch.values[:, begin + first : begin + last]
            with np.errstate(all="ignore"):
                values[0] = operator.numpy(*values[: operator.arity])

        slices.each(some, slices.even(end - begin, self.threads, LEAST))

    def _number(self, batch: TreeBatch) -> np.ndarray:
        """Look every combination up; gives those that are new, in their order."""
        room = int(np.count_nonzero((batch.functions < 0) & (batch.n_rows > 0)))
        most_keys = self._n_keys + (1 + OTHERS) * room
        self._table = with_room(self._table, self._n, self._n_keys, self._n + room, most_keys)
        new = np.empty(room, np.int64)
        n_new, self._n_keys = look_up(self._table, batch, self._n, self._n_keys, new)
        self._n += n_new
        return new[:n_new]

    def _keep(self, batch: TreeBatch, scratch: Stored, new: np.ndarray, before: int) -> None:
        """Keep the families of the new functions."""
        ends = self._n_rows + np.cumsum(batch.n_rows[new])
        n_rows = int(ends[-1]) if len(new) else self._n_rows
        self._stored = with_rows(self._stored, before, self._n_rows, self._n, n_rows)
        self._stored.starts[before : self._n] = ends - batch.n_rows[new]
        self._n_rows = n_rows
        _keep_some(self._stored, before, scratch, new, batch.keys)

    def _finish(self, size: int) -> None:
        table, n, first = self._table, self._n, self.first_of_size[size]
        part_of = np.arange(first, n)
        find_wider(table, first, part_of)
        self.part_of = np.concatenate([self.part_of, part_of])
        self._confirm(first)
        hand_over(table, self.part_of)
        there = np.flatnonzero(table.trees[:n] > 0)
        self._members.append(Members(there, table.trees[there].copy(), table.n_params[there].copy()))
        table.stands_for[there] += table.trees[there]
        self.n_of_size.append(len(there))
        self.first_of_size.append(n)
        self.size = size

    def _confirm(self, first: int) -> None:
        """Let functions from ``first`` on stand for those that other points show them to be."""
        for salt, (old, slots) in enumerate(self._confirmed, start=1):
            new = first + np.flatnonzero(self.part_of[first:] == np.arange(first, self._n))
            keys = np.zeros((self._n, 2), np.uint64)
            pop = self.population_of_forms(self.forms(new))
            keys[: len(old)], keys[new] = old, fingerprints(pop, self.threads, salt, self.grammar.n_vars)
            if 2 * len(keys) > len(slots):
                slots, new = np.zeros(n_slots(len(keys)), np.int32), np.arange(len(keys))
            merge(keys, slots, new, self.part_of)
            self._confirmed[salt - 1] = keys, slots
        self.part_of = self.part_of[self.part_of]


# ── the compiled part ────────────────────────────────────────────────────────────────


class _PairChoice(NamedTuple):
    """A choice of the pairs (triples) of functions of two (three) sizes."""

    begin: int
    block: int
    half: bool
    commutative: bool
    most_params: int


class _Job(NamedTuple):
    """Settings of ``_make_all``."""

    keep: bool  # new families are wanted, with their other keys
    counter: int  # where the number of rows written so far is


def _first(batch: TreeBatch, n: int) -> TreeBatch:
    s = min(n, len(batch.heads))
    return TreeBatch(*[array[:n] for array in batch[:-2]], batch.heads[:s], batch.values[:, :s])  # type: ignore[call-arg]


def _leaves(grammar: Grammar) -> Stored:
    """The families of variables and a parameter."""
    n_vars, n = grammar.n_vars, grammar.n_leaves
    leaves = zeros(Stored, n=n, r=n_vars + 2 * (n - n_vars))
    leaves.rows[:n_vars] = places(n_vars)
    leaves.starts[:] = np.arange(n)
    leaves.rows[n_vars + 1 :] = 1.0  # of a parameter: 0 + c 1
    leaves.heads[n_vars:, [M, CONE]] = 1
    work = working_slots(1)
    for leaf in range(n):
        load(leaves, leaf, work, 0)
        keys_of(work, 0, leaves.keys, leaf)
    return leaves


@compiled
def _list(left, right, third, choice, batch, n):
    """Write pairs of two sizes' functions, or triples, behind ``n`` others; gives how many there are then, and the next
    one or -1."""
    width, depth = len(right.functions), len(third.functions)
    if width * depth == 0:
        return n, -1
    t = choice.begin % depth
    j = choice.begin // depth % width
    for i in range(choice.begin // depth // width, len(left.functions)):
        if choice.half and j < i:
            j = i
        while j < width:
            both = left.n_params[i] + right.n_params[j]
            while t < depth:
                n_params = both + third.n_params[t]
                if n_params <= choice.most_params:
                    if n == len(batch.keys):
                        return n, (i * width + j) * depth + t
                    batch.blocks[n] = choice.block
                    batch.operands[n, 0], batch.operands[n, 1] = left.functions[i], right.functions[j]
                    batch.operands[n, 2] = third.functions[t]
                    batch.n_params[n] = n_params
                    batch.trees[n] = left.trees[i] * right.trees[j] * third.trees[t]
                    if choice.commutative and not (choice.half and i == j):
                        batch.trees[n] *= 2.0
                    n += 1
                t += 1
            t = 0
            j += 1
        j = 0
    return n, -1


@compiled
def _load_operands(stored, arity, batch, i, work, keys):
    for side in range(arity):
        operand = batch.operands[i, side]
        load(stored, operand, work, side)
        keys[side, 0], keys[side, 1] = stored.keys[operand, 0], stored.keys[operand, 1]


@compiled
def _operands_of(stored, blocks, batch, begin, end):
    """Operands' values of operators without rules, every number held; a head of -1 where that can not be."""
    work, keys = working_slots(SLOTS), np.zeros((3, 2), np.uint64)
    for i in range(begin, end):
        arity = 1 + (blocks.right_size[batch.blocks[i]] > 0) + (blocks.third_size[batch.blocks[i]] > 0)
        _load_operands(stored, arity, batch, i, work, keys)
        if arity == 1:
            fine = formed(work, 0, FUNCTION_FORM, 0) == FINE
        elif arity == 3:
            fine = _are_fixed(work)
        else:
            fine = bring(work, FUNCTION_FORM, FUNCTION_FORM, keys) and hold_all_of(work, 0, 1)
        batch.heads[i, KIND] = 0 if fine else -1
        for j in range(1, WIDTH):
            batch.heads[i, j] = work.heads[0, j]
        for side in range(arity):
            for k in range(K):
                batch.values[side, i, k] = work.rows[side, 0, k]


@inline
def _are_fixed(f):
    """Whether slots 0 to 2 are functions without numbers that are free or held."""
    for side in range(3):
        if f.heads[side, KIND] != LIN or f.heads[side, M] != 0 or f.heads[side, HELD] != 0:
            return False
    return True


@compiled
def _make_all(stored, table, blocks, batch, scratch, job, counter):
    """Make combinations' families: their keys and, where no function has these, what else there is to know of one."""
    work, keys, piece = working_slots(SLOTS), np.zeros((3, 2), np.uint64), working_slots(PIECE)
    while True:
        begin = take(counter) * PIECE
        n = min(PIECE, len(batch.keys) - begin)
        if n <= 0:
            return
        for i in range(n):
            _make(stored, blocks, batch, begin + i, work, keys)
            copy(work, 0, piece, i)
            if batch.n_rows[begin + i] == 0:
                piece.heads[i, M] = -1
        keys_of_all(piece, n, batch.keys, begin)
        n_rows = _look_up(table, batch, begin, n)
        start = atomic_add(job.counter, n_rows) if job.keep else 0
        for i in range(begin, begin + n):
            if batch.n_rows[i] > 0 and batch.functions[i] < 0:
                _write_keys(batch, i, piece, i - begin, job.keep, work)
                if job.keep:
                    store(piece, i - begin, scratch, i, start)
                    start += batch.n_rows[i]


@inline
def _look_up(table, batch, begin, n):
    """The functions of some combinations, as far as they are known; gives how many rows the others have."""
    n_rows = 0
    for i in range(begin, begin + n):
        batch.functions[i] = -1
        if batch.n_rows[i] > 0:
            batch.functions[i] = number_of(table, batch.keys[i, 0], batch.keys[i, 1])
        if batch.functions[i] < 0:
            n_rows += batch.n_rows[i]
    return n_rows


@inline
def _write_keys(batch, i, piece, a, keep, work):
    """Further keys of a new function, whose family is in slot a of its piece."""
    for j in range(OTHERS):
        batch.others[i, j, 0] = np.uint64(0)
    if keep:
        _other_keys(piece, a, batch, i, work)
    copy(piece, a, work, 0)
    _wider_key(work, batch, i)


@compiled
def _make(stored, blocks, batch, i, work, keys):
    """A combination's family in slot 0, and how many rows it has."""
    b = batch.blocks[i]
    code, arity = blocks.code[b], 1 + (blocks.right_size[b] > 0) + (blocks.third_size[b] > 0)
    if has_rule(code):
        _load_operands(stored, arity, batch, i, work, keys)
        ended = apply(work, code, keys)
    else:
        plain(work, 0)
        for j in range(1, WIDTH):
            work.heads[0, j] = batch.heads[i, j]
        for k in range(K):
            work.rows[0, 0, k] = batch.values[0, i, k]
        ended = normalise(work, 0)
        if batch.heads[i, KIND] < 0:
            ended = FINE - 1
    if ended != FINE and ended != UNDEFINED:
        _load_operands(stored, arity, batch, i, work, keys)
        stand_alone(work, code, arity, blocks.commutative[b], keys)
    batch.n_rows[i] = 0 if ended == UNDEFINED else 1 + work.heads[0, M]


@compiled
def _wider_key(work, batch, i):
    """The key of the family with any factor, where this one has a positive one."""
    batch.wider[i, 0] = batch.wider[i, 1] = np.uint64(0)
    if work.heads[0, KIND] == LOG and work.heads[0, SCALE] == POSITIVE:
        work.heads[0, SCALE] = FREE
        if normalise(work, 0) == FINE:
            keys_of(work, 0, batch.wider, i)


@compiled
def _other_keys(piece, a, batch, i, work):
    """The keys of a family with its numbers held, as a function of them and in the other form."""
    for j in range(OTHERS):
        copy(piece, a, work, 0)
        form = FUNCTION_FORM if j == 0 else LIN if work.heads[0, KIND] == LOG else LOG
        if formed(work, 0, form, 0) == FINE and normalise(work, 0) == FINE:
            keys_of(work, 0, batch.others[i], j)
            if batch.others[i, j, 0] == batch.keys[i, 0]:
                batch.others[i, j, 0] = batch.others[i, j, 1] = np.uint64(0)


@compiled
def _keep_some(stored, first, scratch, new, keys):
    """Copy the new functions' families, whose rows' places are known."""
    for t in range(len(new)):
        i, start = new[t], scratch.starts[new[t]]
        for j in range(2):
            stored.keys[first + t, j] = keys[i, j]
        for j in range(WIDTH):
            stored.heads[first + t, j] = scratch.heads[i, j]
        for r in range(1 + scratch.heads[i, M]):
            for k in range(K):
                stored.rows[stored.starts[first + t] + r, k] = scratch.rows[start + r, k]
