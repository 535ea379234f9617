"""The compiled loops over structures: finding equal ones, cutting them into bundles.

``structures`` and ``bundles`` say what they are for.

    >>> import numpy as np
    >>> from exprkit.backends.transpiler import loops
    >>> n = np.ones(3, int)
    >>> loops.cut(np.arange(3), n, n, np.ones((3, 1), bool), n - 1, 2, 9, 9).tolist()
    [0, 2, 3]
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exprkit.backends.gpu.bytecode import CONSTANT, source
from exprkit.operators import ops
from exprkit.programs.lower import COLUMN, SLOT, UNIFORM
from exprkit.runtime.jit import compiled

_COPY = ops.COPY


class PointPrograms(NamedTuple):
    code: np.ndarray
    a: np.ndarray
    b: np.ndarray
    dst: np.ndarray
    offsets: np.ndarray
    n_prologue: np.ndarray
    first_const: np.ndarray
    n_params: np.ndarray
    commutative: np.ndarray
    width: np.ndarray
    takes_low: np.ndarray


class Made(NamedTuple):
    of: np.ndarray
    first: np.ndarray
    code: np.ndarray
    a: np.ndarray
    b: np.ndarray
    n_numbers: np.ndarray
    example: np.ndarray
    first_number: np.ndarray  # by expression
    sources: np.ndarray
    steps: np.ndarray
    first_step: np.ndarray
    first_column: np.ndarray  # by expression
    columns: np.ndarray
    n_columns: np.ndarray  # by structure


@compiled
def find_all(lowered, made, given, number_of, made_by, table):
    """Write every expression behind the structures found so far, and keep it if it is a new one."""
    n = s = w = q = n_results = 0
    no_constant = lowered.first_const[-1]  # behind the last one stands nan
    for e in range(len(lowered.offsets) - 1):
        start, stop = lowered.offsets[e], lowered.offsets[e + 1]
        point, first_result = start + lowered.n_prologue[e], n_results
        for k in range(start, point):
            pair = 1 if lowered.width[lowered.code[k]] == 2 else 0
            made.steps[s, 0] = lowered.code[k]
            made.steps[s, 1] = source(lowered.a[k], e, lowered, first_result)
            made.steps[s, 2] = source(lowered.b[k], e, lowered, first_result)
            made.steps[s, 3] = n_results << 1 | pair
            s, n_results = s + 1, n_results + 1 + pair
        made.first_step[e + 1] = s
        made.first_number[e] = w
        made.first_column[e] = q
        at, numbers, columns = made.first[n], 0, 0
        if start == stop:  # an expression that could not be read
            made.code[at], made.a[at], made.b[at] = _COPY, UNIFORM, -1
            made.sources[w] = no_constant << 2 | CONSTANT
            at, numbers = at + 1, 1
        for k in range(point, stop):
            code, a, b = lowered.code[k], lowered.a[k], lowered.b[k]
            for turn in range(2):
                operand = a if turn == 0 else b
                if operand >= 0 and operand & 3 == UNIFORM:
                    if number_of[operand >> 2] < 0:
                        number_of[operand >> 2] = numbers
                        made.sources[w + numbers] = source(operand, e, lowered, first_result)
                        numbers += 1
                    operand = number_of[operand >> 2] << 2 | UNIFORM
                elif operand >= 0 and operand & 3 == SLOT:
                    operand = made_by[operand >> 2] << 2 | SLOT
                elif given and operand >= 0 and operand & 3 == COLUMN:
                    column, operand = operand >> 2, columns << 2 | COLUMN
                    for low in range(2 if turn == 0 and lowered.takes_low[code] else 1):
                        made.columns[q + columns] = column + low
                        columns += 1
                if turn == 0:
                    a = operand
                else:
                    b = operand
            if lowered.dst[k] & 3 == SLOT:
                made_by[lowered.dst[k] >> 2] = k - point
            if lowered.commutative[code] and a & 3 > b & 3:
                a, b = b, a
            made.code[at], made.a[at], made.b[at] = code, a, b
            at += 1
        for k in range(point, stop):  # leave the scratch as it was
            if lowered.a[k] & 3 == UNIFORM and lowered.a[k] >= 0:
                number_of[lowered.a[k] >> 2] = -1
            if lowered.b[k] & 3 == UNIFORM and lowered.b[k] >= 0:
                number_of[lowered.b[k] >> 2] = -1
        w += numbers
        q += columns
        found = _look_up(made, n, at, table)
        made.of[e] = found
        if found == n:
            made.first[n + 1], made.n_numbers[n], made.example[n] = at, numbers, e
            made.n_columns[n] = columns
            n += 1
    return n, w, q, n_results


@compiled
def _look_up(made, n, stop, table):
    """The structure that equals the one from ``first[n]`` to ``stop``; n itself if there is none."""
    start = made.first[n]
    length, mask = stop - start, np.uint64(len(table) - 1)
    h = np.uint64(0xCBF29CE484222325)
    for k in range(start, stop):
        for part in (np.int64(made.code[k]), np.int64(made.a[k]), np.int64(made.b[k])):
            h = (h ^ np.uint64(part & 0xFFFFFFFF)) * np.uint64(0x9E3779B97F4A7C15)
            h ^= h >> np.uint64(29)
    place = h & mask
    while table[place] >= 0:
        s = table[place]
        if made.first[s + 1] - made.first[s] == length:
            k = 0
            other = made.first[s]
            while (
                k < length
                and made.code[start + k] == made.code[other + k]
                and made.a[start + k] == made.a[other + k]
                and made.b[start + k] == made.b[other + k]
            ):
                k += 1
            if k == length:
                return s
        place = (place + np.uint64(1)) & mask
    table[place] = n
    return n


# ── bundles ──────────────────────────────────────────────────────────────────────────


@compiled
def cut(order, count, size, used, own, most, columns, instructions):
    """Where bundles begin, and the end.  ``own``: columns of a structure that it shares with no other."""
    first = np.zeros(len(order) + 1, np.int64)
    n_columns = used.shape[1]
    has = np.zeros(n_columns, np.bool_)
    n = n_has = n_instr = 0
    for i in range(len(order)):
        s = order[i]
        new = own[s]
        for c in range(n_columns):
            new += used[s, c] and not has[c]
        fits = (
            i - first[n] < most
            and n_has + new <= columns
            and n_instr + size[s] <= instructions
            and 2 * count[s] >= count[order[first[n]]]
        )
        if i > 0 and not fits:
            n += 1
            first[n] = i
            has[:] = False
            n_has = n_instr = 0
        n_has += own[s]
        for c in range(n_columns):
            n_has += used[s, c] and not has[c]
            has[c] |= used[s, c]
        n_instr += size[s]
    if len(order) > 0:
        n += 1
    first[n] = len(order)
    return first[: n + 1]


@compiled
def fill_instances(order, first, rows, count, slots, offsets, by_structure, first_number, first_column, columns, given):
    n = 0
    for b in range(len(rows)):
        n += rows[b] * (first[b + 1] - first[b]) * slots[b]
    instances = np.zeros((n, 2), np.uint32)
    n = 0
    for b in range(len(rows)):
        for row in range(rows[b]):
            for i in range(first[b], first[b + 1]):
                s = order[i]
                e = by_structure[offsets[s] + row % count[s]]
                instances[n, 0], instances[n, 1] = first_number[e], e
                for c in range(given[s]):
                    instances[n + 1 + c // 2, c % 2] = columns[first_column[e] + c]
                n += slots[b]
    return instances
