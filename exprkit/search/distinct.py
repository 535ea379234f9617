"""All functions up to a size, each once: in its shortest form, with the number of forms that it stands for.

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
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Annotated, Any, NamedTuple

import numpy as np

from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.runtime import slices
from exprkit.runtime.bags import empty, zeros
from exprkit.runtime.jit import compiled
from exprkit.search import forms as forms_of
from exprkit.search.families import (
    CONE,
    FINE,
    FREE,
    KIND,
    LIN,
    LOG,
    POSITIVE,
    SCALE,
    SLOTS,
    UNDEFINED,
    WIDTH,
    Families,
    K,
    M,
    hold_all_of,
    keys_of,
    normalise,
    places,
    plain,
    stand_alone,
)
from exprkit.search.family_rules import FUNCTION_FORM, apply, bring, formed, has_rule
from exprkit.search.fingerprints import fingerprints
from exprkit.search.function_table import (
    OTHERS,
    Made,
    add_others,
    find,
    find_wider,
    hand_over,
    look_up,
    no_functions,
    with_room,
)
from exprkit.search.grammar import Block, Grammar
from exprkit.text.tokens import Words

CHUNK = 1 << 16  # combinations at a time
WORK = 64  # of a combination, in the tokens that ``slices`` counts by


class Stored(NamedTuple):
    """Families: their heads, and their rows one after the other."""

    heads: Annotated[np.ndarray, "int64[n, 15]"]
    starts: Annotated[np.ndarray, "int64[n]"]
    rows: Annotated[np.ndarray, "float64[r, 32]"]


class Members(NamedTuple):
    """The functions that have trees of one size: how many, and the fewest parameters of one."""

    functions: np.ndarray
    trees: np.ndarray
    n_params: np.ndarray


class Enumeration:
    """The functions of a grammar, found size by size.

    Parameters
    ----------
    grammar : Grammar
    threads : int, optional
        By default all that this process may use.  What is found does not depend on it.
    confirm : int
        Further sets of points at which new functions are compared.

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
        self._confirmed = [np.zeros((0, 2), np.uint64) for _ in range(confirm)]  # keys by function, at other points
        self.size, self.first_of_size, self.n_of_size = 0, [0, 0], [0]
        self.part_of = np.empty(0, np.int64)
        self._members = [Members(np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64))]
        self._stored = empty(Stored, n=1 << 10, r=1 << 11)
        self._n_rows = 0
        self._known = no_functions(1 << 12)
        self._n = self._n_others = 0
        self._forms = forms_of.no_forms(1 << 12)

    def __len__(self) -> int:
        return self._n

    def grow(self, check: Callable[[int], Any] = lambda n: None) -> np.ndarray:
        """Find the functions of the next size; gives the numbers of the new ones that stand for themselves.

        ``check`` is called with the number of functions after each chunk, and may raise an exception to stop.
        """
        size = self.size + 1
        self._known.trees[: self._n] = 0.0
        if size == 1:
            self._leaves()
        for block in self.grammar.blocks(size) if size > 1 else []:
            for operands in self._combinations(block):
                self._take(block, operands, size)
                check(self._n)
        self._finish(size)
        new = np.arange(self.first_of_size[size], self._n)
        return new[self.part_of[new] == new]

    def population(self, functions: Iterable[int] | np.ndarray, variables: Words = None) -> Population:
        """The shortest form of each of these functions."""
        return self.population_of_forms(self.forms(np.array(list(functions), np.int64)), variables)

    def forms(self, functions: np.ndarray) -> np.ndarray:
        """The number of the shortest form of each function, of the sizes done so far."""
        first = self._known.first_form[functions]
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
        find(self._known, fingerprints(pop, self.threads), numbers)
        return numbers

    def stands_for(self, functions: np.ndarray) -> np.ndarray:
        """How many trees of the sizes done each function stands for."""
        n = len(self.part_of)
        together = np.bincount(self.part_of, self._known.stands_for[:n], minlength=n)
        return together[functions]

    @property
    def bytes(self) -> int:
        """What is kept in memory."""
        return sum(array.nbytes for bag in (self._stored, self._known, self._forms) for array in bag)

    # ── the steps ──

    def _leaves(self) -> None:
        work, keys = zeros(Families, n=SLOTS), np.zeros((1, 2), np.uint64)
        variables = places(self.grammar.n_vars)
        for leaf in range(self.grammar.n_leaves):
            is_parameter = leaf == self.grammar.n_vars
            work.heads[0], work.rows[0] = 0, 0.0
            work.rows[0, int(is_parameter)] = 1.0 if is_parameter else variables[leaf]
            work.heads[0, M] = work.heads[0, CONE] = int(is_parameter)
            normalise(work, 0)
            keys_of(work, 0, keys, 0)
            made = zeros(Made, n=1, s=0)
            made.keys[0], made.n_rows[0], made.trees[0] = keys[0], 1 + is_parameter, 1.0
            made.n_params[0] = int(is_parameter)
            self._number(made)
            self._make_room()
            self._stored.heads[leaf], self._stored.starts[leaf] = work.heads[0], self._n_rows
            self._stored.rows[self._n_rows : self._n_rows + 1 + is_parameter] = work.rows[0, : 1 + is_parameter]
            self._n_rows += 1 + is_parameter
            row = np.array([1, forms_of.LEAF, leaf, -1])
            forms_of.add_form(self._forms, self._known.first_form, leaf, row, 1 << leaf, int(is_parameter))

    def _combinations(self, block: Block) -> Iterable[Made]:
        """The operands of a block, a chunk at a time."""
        one = Members(np.zeros(1, np.int64), np.ones(1), np.zeros(1, np.int64))
        left, right = self._members[block.left], self._members[block.right] if block.right else one
        total = len(left.functions) * len(right.functions)
        for begin in range(0, total, CHUNK):
            n = min(CHUNK, total - begin)
            made = zeros(Made, n=n, s=0)
            n = _list(
                left, right, _PairChoice(begin, n, block.half, block.operator.commutative, self.grammar.n_params), made
            )
            yield Made(*[array[:n] for array in made[:-2]], *made[-2:])  # type: ignore[call-arg]

    def _take(self, block: Block, made: Made, size: int) -> None:
        """What a chunk of combinations is: new functions are numbered and kept, trees counted, forms noted."""
        operator = block.operator
        made = self._evaluate(operator, made)
        before = self._n
        new = self._number(made)
        if size < self.grammar.max_nodes and self._n > before:
            self._keep(operator, made, new, before)
        symbol = self.grammar.symbol(operator)
        shape = forms_of.Combination(operator.code, symbol, block.left, block.right, self.grammar.n_params)
        done, first = 0, self._known.first_form
        while True:
            done = forms_of.add_forms(self._forms, first, shape, made.operands, made.functions, done)
            if done == len(made.functions):
                return
            self._forms = forms_of.more_room(self._forms)

    def _evaluate(self, operator: ops.Operator, made: Made) -> Made:
        """The keys of what an operator makes."""
        n = len(made.operands)
        if not has_rule(operator.code):
            made = made._replace(heads=np.zeros((n, WIDTH), np.int64), values=np.full((2, n, K), np.nan))
        call = _OperatorCall(operator.code, operator.arity, operator.commutative, has_rule(operator.code))
        cuts = slices.cut(np.arange(n + 1) * WORK, self.threads)
        if not call.ruled:
            slices.each(functools.partial(_operands_of, self._stored, made, call), cuts)
            with np.errstate(all="ignore"):
                made.values[0] = operator.numpy(*made.values[: operator.arity])
        nothing = empty(Stored, n=0, r=0)
        slices.each(functools.partial(_keys_of_some, self._stored, made, call, nothing, np.empty(0, np.int64)), cuts)
        return made

    def _number(self, made: Made) -> np.ndarray:
        """Look every combination up; gives those that are new, in their order."""
        if self._n + len(made.keys) > len(self._known.stands_for):
            self._known = with_room(self._known, self._n, self._n_others, 2 * (self._n + len(made.keys)))
        new = np.empty(len(made.keys), np.int64)
        found = look_up(self._known, made, self._n, new)
        self._n += int(found)
        return new[:found]

    def _make_room(self, n_rows: int = 8) -> None:
        stored = self._stored
        if self._n > len(stored.heads) or self._n_rows + n_rows > len(stored.rows):
            larger = empty(Stored, n=2 * max(self._n, 512), r=2 * (self._n_rows + n_rows))
            for old, new in zip(stored, larger, strict=True):
                new[: min(len(old), len(new))] = old[: min(len(old), len(new))]
            self._stored = larger

    def _keep(self, operator: ops.Operator, made: Made, new: np.ndarray, before: int) -> None:
        """Make the new functions once more and keep them."""
        ends = self._n_rows + np.cumsum(made.n_rows[new])
        self._make_room(int(ends[-1]) - self._n_rows)
        self._stored.starts[before : self._n] = np.concatenate([[self._n_rows], ends[:-1]])
        self._n_rows = int(ends[-1])
        call = _OperatorCall(operator.code, operator.arity, operator.commutative, has_rule(operator.code))
        cuts = slices.cut(np.arange(len(new) + 1) * WORK, self.threads)
        slices.each(functools.partial(_keys_of_some, self._stored, made, call, self._stored, new), cuts)
        others = np.zeros((len(new), OTHERS, 2), np.uint64)
        slices.each(functools.partial(_other_keys, self._stored, before, others), cuts)
        self._n_others = add_others(self._known, self._n_others, before, others)

    def _finish(self, size: int) -> None:
        known, n, first = self._known, self._n, self.first_of_size[size]
        part_of = np.arange(first, n)
        find_wider(known, first, part_of)
        self.part_of = np.concatenate([self.part_of, part_of])
        self._confirm(first)
        hand_over(known, self.part_of)
        there = np.flatnonzero(known.trees[:n] > 0)
        self._members.append(Members(there, known.trees[there].copy(), known.n_params[there].copy()))
        known.stands_for[there] += known.trees[there]
        self.n_of_size.append(len(there))
        self.first_of_size.append(n)
        self.size = size

    def _confirm(self, first: int) -> None:
        """Let functions from ``first`` on stand for those that other points show them to be."""
        new = np.arange(first, self._n)
        for salt, before in enumerate(self._confirmed, 1):
            keys = np.zeros((self._n, 2), np.uint64)
            keys[:first] = before
            whole = new[self.part_of[new] == new]
            keys[whole] = fingerprints(self.population(whole), self.threads, salt)
            _, earliest, inverse = np.unique(keys[:, 0], return_index=True, return_inverse=True)
            same = earliest[inverse[whole]]
            is_same = (keys[whole] == keys[same]).all(axis=1) & (keys[whole, 0] != 0)
            self.part_of[whole[is_same]] = self.part_of[same[is_same]]
            self._confirmed[salt - 1] = keys
        self.part_of = self.part_of[self.part_of]


# ── the compiled part ────────────────────────────────────────────────────────────────


class _PairChoice(NamedTuple):
    """Which pairs of two sizes' functions are wanted."""

    begin: int
    n: int
    half: bool
    commutative: bool
    most_params: int


class _OperatorCall(NamedTuple):
    """An operator, as the loops know it."""

    code: int
    arity: int
    commutative: bool
    ruled: bool


@compiled
def _list(left, right, choice, made):
    """Write pairs of functions, and how many trees each stands for; gives how many pairs."""
    width, n = len(right.functions), 0
    for t in range(choice.begin, choice.begin + choice.n):
        i, j = t // width, t % width
        n_params = left.n_params[i] + right.n_params[j]
        if (choice.half and j < i) or n_params > choice.most_params:
            continue
        made.operands[n, 0], made.operands[n, 1] = left.functions[i], right.functions[j]
        made.n_params[n] = n_params
        made.trees[n] = left.trees[i] * right.trees[j]
        if choice.commutative and not (choice.half and i == j):
            made.trees[n] *= 2.0
        n += 1
    return n


@compiled
def _load(stored, i, work, slot):
    """Copy a family that is kept into a slot."""
    start = stored.starts[i]
    for j in range(WIDTH):
        work.heads[slot, j] = stored.heads[i, j]
    for r in range(1 + work.heads[slot, M]):
        for k in range(K):
            work.rows[slot, r, k] = stored.rows[start + r, k]


@compiled
def _work():
    return Families(np.zeros((SLOTS, WIDTH), np.int64), np.zeros((SLOTS, 19, K)), np.zeros((19, K)))


@compiled
def _load_operands(stored, made, call, i, work, keys):
    for side in range(call.arity):
        _load(stored, made.operands[i, side], work, side)
        keys_of(work, side, keys, side)


@compiled
def _operands_of(stored, made, call, begin, end):
    """Of an operator without rules: its operands' values, every number held; nan where there is no way to hold them."""
    work, keys = _work(), np.zeros((2, 2), np.uint64)
    for i in range(begin, end):
        _load_operands(stored, made, call, i, work, keys)
        if call.arity == 1:
            fine = formed(work, 0, FUNCTION_FORM, 0) == FINE
        else:
            fine = bring(work, FUNCTION_FORM, FUNCTION_FORM, keys) and hold_all_of(work, 0, 1)
        made.heads[i, KIND] = 0 if fine else -1
        for j in range(1, WIDTH):
            made.heads[i, j] = work.heads[0, j]
        for side in range(call.arity):
            for k in range(K):
                made.values[side, i, k] = work.rows[side, 0, k]


@compiled
def _keys_of_some(stored, made, call, out, chosen, begin, end):
    """Make some combinations' families: their keys, or into ``out`` the ``chosen`` ones, whose numbers are known."""
    work, keys = _work(), np.zeros((2, 2), np.uint64)
    for t in range(begin, end):
        i = chosen[t] if len(chosen) > 0 else t
        _make(stored, made, call, i, work, keys)
        if len(chosen) > 0:
            function = made.functions[i]
            for j in range(WIDTH):
                out.heads[function, j] = work.heads[0, j]
            for r in range(made.n_rows[i]):
                for k in range(K):
                    out.rows[out.starts[function] + r, k] = work.rows[0, r, k]
            continue
        if made.n_rows[i] > 0:
            keys_of(work, 0, made.keys, i)
            _wider_key(work, made, i)


@compiled
def _make(stored, made, call, i, work, keys):
    """A combination's family in slot 0, and how many rows it has."""
    if call.ruled:
        _load_operands(stored, made, call, i, work, keys)
        ended = apply(work, call.code, keys)
    else:
        plain(work, 0)
        for j in range(1, WIDTH):
            work.heads[0, j] = made.heads[i, j]
        for k in range(K):
            work.rows[0, 0, k] = made.values[0, i, k]
        ended = normalise(work, 0)
        if made.heads[i, KIND] < 0:
            ended = FINE - 1
    if ended != FINE and ended != UNDEFINED:
        _load_operands(stored, made, call, i, work, keys)
        stand_alone(work, call.code, call.arity, call.commutative, keys)
    made.n_rows[i] = 0 if ended == UNDEFINED else 1 + work.heads[0, M]


@compiled
def _wider_key(work, made, i):
    """The key of the family with any factor, where this one has a positive one."""
    if work.heads[0, KIND] == LOG and work.heads[0, SCALE] == POSITIVE:
        work.heads[0, SCALE] = FREE
        if normalise(work, 0) == FINE:
            keys_of(work, 0, made.wider, i)


@compiled
def _other_keys(stored, first, others, begin, end):
    """The keys of new functions with their numbers held, as a function of them and in the other form."""
    work, keys = _work(), np.zeros((1, 2), np.uint64)
    for i in range(begin, end):
        _load(stored, first + i, work, 0)
        keys_of(work, 0, keys, 0)
        for j in range(OTHERS):
            _load(stored, first + i, work, 0)
            form = FUNCTION_FORM if j == 0 else LIN if work.heads[0, KIND] == LOG else LOG
            if formed(work, 0, form, 0) == FINE and normalise(work, 0) == FINE:
                keys_of(work, 0, others[i], j)
                if others[i, j, 0] == keys[0, 0]:
                    others[i, j, 0] = others[i, j, 1] = np.uint64(0)
