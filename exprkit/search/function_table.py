"""The table of known functions: their keys and families, and the number of trees that each stands for.

In: the keys of what some combinations make.  Out: the number of each one's function, old or new.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from exprkit.runtime.bags import larger, zeros
from exprkit.runtime.hashes import mixed
from exprkit.runtime.jit import compiled
from exprkit.search.families import HELD, MOST_ROWS, WIDTH, K, M, begun_hashes, keys_of, with_head, with_number

OTHERS = 2  # keys of a function beside its own
PIECE = 32  # families that a thread makes at a time
LEAST = 256  # families that are worth a thread


class Stored(NamedTuple):
    """Families: their heads and keys, and their rows one after the other."""

    heads: Annotated[np.ndarray, "int64[n, 15]"]
    keys: Annotated[np.ndarray, "uint64[n, 2]"]
    starts: Annotated[np.ndarray, "int64[n]"]  # of their rows; -1: nowhere defined
    rows: Annotated[np.ndarray, "float64[r, 32]"]


class TreeBatch(NamedTuple):
    """Trees of a chunk: an operator and operands each, and the functions that they are."""

    blocks: Annotated[np.ndarray, "int64[n]"]  # what makes them
    operands: Annotated[np.ndarray, "int64[n, 3]"]
    trees: Annotated[np.ndarray, "float64[n]"]
    n_params: Annotated[np.ndarray, "int64[n]"]
    n_rows: Annotated[np.ndarray, "int64[n]"]  # 0: undefined
    functions: Annotated[np.ndarray, "int64[n]"]  # -1: none that was known before
    keys: Annotated[np.ndarray, "uint64[n, 2]"]
    wider: Annotated[np.ndarray, "uint64[n, 2]"]  # of new ones with any factor; 0: theirs is not a positive one
    others: Annotated[np.ndarray, "uint64[n, 2, 2]"]  # of new ones with their numbers held; 0: none
    heads: Annotated[np.ndarray, "int64[s, 15]"]  # where the operator has no rule: what it holds ...
    values: Annotated[np.ndarray, "float64[3, s, 32]"]  # ... its operands, then the result in the first


class FunctionTable(NamedTuple):
    """All functions so far, by number; their keys, and ``slots``, a table of numbers of keys + 1 by the first word."""

    wider: Annotated[np.ndarray, "uint64[n, 2]"]
    first_form: Annotated[np.ndarray, "int64[n]"]
    stands_for: Annotated[np.ndarray, "float64[n]"]  # trees
    trees: Annotated[np.ndarray, "float64[n]"]  # those of the size at work
    n_params: Annotated[np.ndarray, "int64[n]"]  # the fewest of a tree of the size at work
    keys: Annotated[np.ndarray, "uint64[k, 2]"]  # of functions, and with their numbers held: the same families
    function: Annotated[np.ndarray, "int64[k]"]  # that has the key
    slots: Annotated[np.ndarray, "int32[s]"]


@compiled
def load(stored, i, f, a):
    """Copy a family that is kept into a slot."""
    start = stored.starts[i]
    for j in range(WIDTH):
        f.heads[a, j] = stored.heads[i, j]
    for r in range(1 + f.heads[a, M]):
        for k in range(K):
            f.rows[a, r, k] = stored.rows[start + r, k]


@compiled
def store(f, a, stored, i, start):
    """Keep a slot's family without its keys, its rows from ``start`` on."""
    stored.starts[i] = start
    for j in range(WIDTH):
        stored.heads[i, j] = f.heads[a, j]
    for r in range(1 + f.heads[a, M]):
        for k in range(K):
            stored.rows[start + r, k] = f.rows[a, r, k]


def with_rows(stored: Stored, n: int, n_rows: int, room: int, room_rows: int) -> Stored:
    """The first n families with room for more, if there is too little."""
    if room <= len(stored.heads) and room_rows <= len(stored.rows):
        return stored
    copy = larger(stored, n, n=max(room, 2 * n), r=max(room_rows, 2 * n_rows))
    copy.rows[:n_rows] = stored.rows[:n_rows]
    return copy


# ── keys of many ─────────────────────────────────────────────────────────────────────


@compiled
def keys_of_all(f, n, keys, i):
    """``keys_of`` slots 0 to n - 1, into the rows of ``keys`` from i on; of none where M is below 0."""
    four = np.zeros(4, np.int64)
    for m in range(MOST_ROWS):
        count = 0
        for a in range(n):
            if f.heads[a, M] == m:
                four[count] = a
                count += 1
            if count == 4:
                _keys_of_four(f, m, four, keys, i)
                count = 0
        for t in range(count):
            keys_of(f, four[t], keys, i + four[t])


@compiled
def _keys_of_four(f, m, four, keys, i):
    """The keys of families of m rows beside W each.  A hash waits for its last word: four take little longer."""
    a0, a1, a2, a3 = four[0], four[1], four[2], four[3]
    h0, o0 = begun_hashes(f, a0)
    h1, o1 = begun_hashes(f, a1)
    h2, o2 = begun_hashes(f, a2)
    h3, o3 = begun_hashes(f, a3)
    for j in range(HELD):
        h0, o0 = with_head(f, a0, j, h0, o0)
        h1, o1 = with_head(f, a1, j, h1, o1)
        h2, o2 = with_head(f, a2, j, h2, o2)
        h3, o3 = with_head(f, a3, j, h3, o3)
    for r in range(1 + m):
        for k in range(K):
            h0, o0 = with_number(f, a0, r, k, h0, o0)
            h1, o1 = with_number(f, a1, r, k, h1, o1)
            h2, o2 = with_number(f, a2, r, k, h2, o2)
            h3, o3 = with_number(f, a3, r, k, h3, o3)
    keys[i + a0, 0], keys[i + a1, 0], keys[i + a2, 0], keys[i + a3, 0] = h0, h1, h2, h3
    keys[i + a0, 1], keys[i + a1, 1], keys[i + a2, 1], keys[i + a3, 1] = mixed(o0), mixed(o1), mixed(o2), mixed(o3)


# ── the table ────────────────────────────────────────────────────────────────────────


def no_functions(room: int, room_keys: int) -> FunctionTable:
    return zeros(FunctionTable, n=room, k=room_keys, s=n_slots(room_keys))


def n_slots(room: int) -> int:
    """The size of a table that so many keys leave half empty."""
    return 2 << room.bit_length()


def with_room(table: FunctionTable, n: int, n_keys: int, room: int, room_keys: int) -> FunctionTable:
    """The table with room for more functions and keys, if there is too little."""
    if room <= len(table.trees) and room_keys <= len(table.function):
        return table
    larger = no_functions(max(room, 2 * n), max(room_keys, 2 * n_keys))
    for name, old, new in zip(FunctionTable._fields, table, larger, strict=True):
        count = {"keys": n_keys, "function": n_keys, "slots": 0}.get(name, n)
        new[:count] = old[:count]
    _fill(larger.keys, larger.slots, n_keys)
    return larger


@compiled
def look_up(table, batch, n, n_keys, new):
    """Number the functions of combinations that are new; returns how many there are, which, in ``new``, and how many
    keys there are then."""
    n_new = 0
    for i in range(len(batch.keys)):
        if batch.n_rows[i] == 0:
            continue
        function = batch.functions[i]
        if function < 0:
            function = number_of(table, batch.keys[i, 0], batch.keys[i, 1])
        if function < 0:
            function = n + n_new
            n_keys = _add(table, batch, i, function, n_keys)
            new[n_new] = i
            n_new += 1
        batch.functions[i] = function
        if table.trees[function] == 0.0 or batch.n_params[i] < table.n_params[function]:
            table.n_params[function] = batch.n_params[i]
        table.trees[function] += batch.trees[i]
    return n_new, n_keys


@compiled
def _add(table, batch, i, function, n_keys):
    """Note a new function, its key, and its other keys where nobody has them; returns how many keys there are then."""
    for j in range(2):
        table.wider[function, j] = batch.wider[i, j]
    table.first_form[function], table.stands_for[function], table.trees[function] = -1, 0.0, 0.0
    n_keys = _add_key(table, batch.keys[i, 0], batch.keys[i, 1], function, n_keys)
    for j in range(OTHERS):
        if batch.others[i, j, 0] != 0:
            n_keys = _add_key(table, batch.others[i, j, 0], batch.others[i, j, 1], function, n_keys)
    return n_keys


@compiled
def _add_key(table, key, other, function, n_keys):
    slot = _slot_of(table.keys, table.slots, key, other)
    if table.slots[slot] == 0:
        table.keys[n_keys, 0], table.keys[n_keys, 1], table.function[n_keys] = key, other, function
        n_keys += 1
        table.slots[slot] = n_keys
    return n_keys


@compiled
def number_of(table, key, other):
    """The function that has this key; -1: none."""
    slot = _slot_of(table.keys, table.slots, key, other)
    return table.function[table.slots[slot] - 1] if table.slots[slot] > 0 else -1


@compiled
def _slot_of(keys, slots, key, other):
    """Where a key stands in a table, or is to stand."""
    mask = np.uint64(len(slots) - 1)
    slot = key & mask
    while slots[slot] > 0:
        i = slots[slot] - 1
        if keys[i, 0] == key and keys[i, 1] == other:
            break
        slot = (slot + np.uint64(1)) & mask
    return slot


@compiled
def find(table, keys, numbers):
    for i in range(len(keys)):
        numbers[i] = number_of(table, keys[i, 0], keys[i, 1])


@compiled
def _fill(keys, slots, n):
    for i in range(n):
        slots[_slot_of(keys, slots, keys[i, 0], keys[i, 1])] = i + 1


@compiled
def find_wider(table, first, part_of):
    """By function from ``first`` on the one that stands for it."""
    for i in range(len(part_of)):
        if table.wider[first + i, 0] != 0:
            function = number_of(table, table.wider[first + i, 0], table.wider[first + i, 1])
            if function >= 0:
                part_of[i] = function


@compiled
def merge(keys, slots, functions, part_of):
    """Let functions, in their order, stand for the first that has the same key, of those in the table already too."""
    for i in functions:
        if keys[i, 0] == 0:
            continue
        slot = _slot_of(keys, slots, keys[i, 0], keys[i, 1])
        if slots[slot] > 0:
            part_of[i] = part_of[slots[slot] - 1]
        else:
            slots[slot] = i + 1


@compiled
def hand_over(table, part_of):
    """Count the trees of functions that are part of another one as that one's."""
    for i in range(len(part_of)):
        whole = part_of[i]
        if whole != i and table.trees[i] > 0:
            if table.trees[whole] == 0.0:
                table.n_params[whole] = max(table.n_params[whole], table.n_params[i])
            table.trees[whole] += table.trees[i]
            table.trees[i] = 0.0
