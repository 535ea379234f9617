"""The functions that are known, by number: their keys, and how many trees each stands for.

In: the keys of what some combinations make.  Out: the number of each one's function, old or new.

    >>> import numpy as np
    >>> from exprkit.runtime.bags import zeros
    >>> from exprkit.search.function_table import Made, look_up, no_functions
    >>> made, known, new = zeros(Made, n=3, s=0), no_functions(4), np.zeros(3, np.int64)
    >>> made.keys[:, 0], made.n_rows[:] = [7, 8, 7], 1
    >>> look_up(known, made, 0, new), made.functions.tolist()
    (2, [0, 1, 0])
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from exprkit.runtime.bags import zeros
from exprkit.runtime.jit import compiled

OTHERS = 2  # keys of a function beside its own


class Made(NamedTuple):
    """What some combinations are."""

    operands: Annotated[np.ndarray, "int64[n, 2]"]
    keys: Annotated[np.ndarray, "uint64[n, 2]"]
    wider: Annotated[np.ndarray, "uint64[n, 2]"]  # keys of the family with any factor; 0: it is not a positive one
    n_rows: Annotated[np.ndarray, "int64[n]"]  # 0: undefined
    trees: Annotated[np.ndarray, "float64[n]"]
    n_params: Annotated[np.ndarray, "int64[n]"]
    functions: Annotated[np.ndarray, "int64[n]"]
    heads: Annotated[np.ndarray, "int64[s, 15]"]  # where the operator has no rule: what it holds ...
    values: Annotated[np.ndarray, "float64[2, s, 32]"]  # ... its operands, then the result in the first


class Known(NamedTuple):
    """All functions found so far, by number; ``slots``: a table of numbers + 1 by the first key."""

    keys: Annotated[np.ndarray, "uint64[n, 2]"]
    wider: Annotated[np.ndarray, "uint64[n, 2]"]
    first_form: Annotated[np.ndarray, "int64[n]"]
    stands_for: Annotated[np.ndarray, "float64[n]"]  # trees
    trees: Annotated[np.ndarray, "float64[n]"]  # those of the size at work
    n_params: Annotated[np.ndarray, "int64[n]"]  # the fewest of a tree of the size at work
    slots: Annotated[np.ndarray, "int64[s]"]
    other_keys: Annotated[np.ndarray, "uint64[o, 2]"]  # of functions whose numbers are held: the same families
    other_of: Annotated[np.ndarray, "int64[o]"]
    other_slots: Annotated[np.ndarray, "int64[t]"]


def no_functions(room: int) -> Known:
    return zeros(Known, n=room, s=2 << room.bit_length(), o=OTHERS * room, t=OTHERS * 2 << room.bit_length())


def with_room(known: Known, n: int, n_others: int, room: int) -> Known:
    larger = no_functions(room)
    for name, old, new in zip(Known._fields, known, larger, strict=True):
        count = 0 if name.endswith("slots") else n_others if name.startswith("other") else n
        new[:count] = old[:count]
    _fill(larger.keys, larger.slots, 0, n)
    _fill(larger.other_keys, larger.other_slots, 0, n_others)
    return larger


@compiled
def add_others(known, n, first, others):
    """Note the other keys of new functions, where nobody has them; gives how many there are then."""
    mask = np.uint64(len(known.other_slots) - 1)
    for i in range(len(others)):
        for j in range(OTHERS):
            key, other = others[i, j, 0], others[i, j, 1]
            if key == 0:
                continue
            slot = _slot_of(known.other_keys, known.other_slots, key, other, mask)
            if known.other_slots[slot] == 0:
                known.other_keys[n, 0], known.other_keys[n, 1], known.other_of[n] = key, other, first + i
                known.other_slots[slot] = n + 1
                n += 1
    return n


@compiled
def look_up(known, made, n, new):
    """Number the combinations' functions; gives how many are new, and which, in ``new``."""
    found = 0
    for i in range(len(made.keys)):
        made.functions[i] = -1
        if made.n_rows[i] == 0:
            continue
        function = number_of(known, made.keys[i, 0], made.keys[i, 1])
        if function < 0:
            function = n + found
            for j in range(2):
                known.keys[function, j], known.wider[function, j] = made.keys[i, j], made.wider[i, j]
            _fill(known.keys, known.slots, function, function + 1)
            known.first_form[function], known.stands_for[function], known.trees[function] = -1, 0.0, 0.0
            new[found] = i
            found += 1
        made.functions[i] = function
        if known.trees[function] == 0.0 or made.n_params[i] < known.n_params[function]:
            known.n_params[function] = made.n_params[i]
        known.trees[function] += made.trees[i]
    return found


@compiled
def number_of(known, key, other):
    """The function that has this key, or whose other one it is; -1: none."""
    slot = _slot_of(known.keys, known.slots, key, other, np.uint64(len(known.slots) - 1))
    if known.slots[slot] > 0:
        return known.slots[slot] - 1
    slot = _slot_of(known.other_keys, known.other_slots, key, other, np.uint64(len(known.other_slots) - 1))
    return known.other_of[known.other_slots[slot] - 1] if known.other_slots[slot] > 0 else -1


@compiled
def _slot_of(keys, slots, key, other, mask):
    """Where a key stands in a table, or is to stand."""
    slot = key & mask
    while slots[slot] > 0:
        i = slots[slot] - 1
        if keys[i, 0] == key and keys[i, 1] == other:
            break
        slot = (slot + np.uint64(1)) & mask
    return slot


@compiled
def find(known, keys, numbers):
    for i in range(len(keys)):
        numbers[i] = number_of(known, keys[i, 0], keys[i, 1])


@compiled
def _fill(keys, slots, first, end):
    mask = np.uint64(len(slots) - 1)
    for i in range(first, end):
        slots[_slot_of(keys, slots, keys[i, 0], keys[i, 1], mask)] = i + 1


@compiled
def find_wider(known, first, part_of):
    """By function from ``first`` on the one that stands for it."""
    for i in range(len(part_of)):
        if known.wider[first + i, 0] != 0:
            function = number_of(known, known.wider[first + i, 0], known.wider[first + i, 1])
            if function >= 0:
                part_of[i] = function


@compiled
def hand_over(known, part_of):
    """What is part of another function hands its trees over to it."""
    for i in range(len(part_of)):
        whole = part_of[i]
        if whole != i and known.trees[i] > 0:
            if known.trees[whole] == 0.0:
                known.n_params[whole] = max(known.n_params[whole], known.n_params[i])
            known.trees[whole] += known.trees[i]
            known.trees[i] = 0.0
