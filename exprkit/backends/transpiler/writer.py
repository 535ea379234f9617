"""The compiled PTX writer: writes bundles of structures byte by byte.

In: templates, cut into pieces, and bundles.  Out: bytes of PTX, of which ``emit`` makes modules.
The names in the text (``%n3``, ``%x1``) are explained in ``emit``, the lines in ``templates``.

    >>> from exprkit.backends.transpiler.writer import PLACES
    >>> PLACES["0"], PLACES["0+1"] != PLACES["1"]
    (0, True)
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exprkit.programs.program import COLUMN, SLOT, UNIFORM
from exprkit.runtime.jit import compiled

MOST_DIGITS = 22  # of a number, with the two characters before it
LINES = (
    "bundle", "instance", "more", "address", "number", "place", "zero_sum", "loop", "column", "result", "advance",
    "end", "own_sum", "to_sums",
)  # fmt: skip
(
    _BUNDLE, _INSTANCE, _MORE, _ADDRESS, _NUMBER, _PLACE, _ZERO_SUM, _LOOP, _COLUMN, _RESULT, _ADVANCE, _END,
    _OWN_SUM, _TO_SUMS,
) = range(256, 256 + len(LINES))  # fmt: skip
# of an operator: registers of its result and operands (and of what is two, of the second), a number of its own
_Y, _Y_LOW, _A, _LOW, _B, _N = range(16, 22)
PLACES = {"y": _Y, "y_low": _Y_LOW, "a": _A, "a_low": _LOW, "b": _B, "n": _N}  # what stands in braces in a template
PLACES |= {"0": 0, "1": 1, "2": 2} | {f"0+{k}": k << 2 for k in range(4)}  # of a line: its arguments, the first plus k
_PERCENT, _NUMBERS, _COLUMNS, _RESULTS = b"%nxv"


class Templates(NamedTuple):
    """All templates as segments: a piece of text, then something that the writer fills in."""

    text: np.ndarray  # all pieces, one after the other
    start: np.ndarray  # (n_segments + 1) of each piece
    place: np.ndarray  # (n_segments) one of PLACES, or -1: nothing
    first: np.ndarray  # segments of a template: of an operator by its code, of a line by its number


class Sources(NamedTuple):
    """Structures and bundles as ``Structures`` and ``Bundles`` have them."""

    first: np.ndarray
    code: np.ndarray
    a: np.ndarray
    b: np.ndarray
    n_numbers: np.ndarray
    n_columns: np.ndarray  # indirect ones
    order: np.ndarray
    first_structure: np.ndarray  # of bundles
    slots: np.ndarray
    takes_low: np.ndarray  # by code: its text reads the low part of operand a
    width: np.ndarray  # by code: how many results it has, one behind the other


class WriterState(NamedTuple):
    """The templates, the kind of code, and the state of writing."""

    text: np.ndarray
    start: np.ndarray
    place: np.ndarray
    first: np.ndarray
    points: int
    itemsize: int
    block: int
    is_values: bool
    column_step: int  # from one column to the next: bytes of a chunk, or 1 where columns are indirect
    remarks: np.ndarray  # what stands above the structures
    remark_at: np.ndarray
    out: np.ndarray
    used: np.ndarray  # by code
    computed: np.ndarray  # (n, 5) what bundles have computed: bundle, code, a, b, result; by open addressing
    results: np.ndarray  # instruction of the structure -> result of the bundle
    loaded: np.ndarray  # column -> the last bundle that has loaded it
    state: np.ndarray  # (N_STATE)


_AT, _LABEL, _N_RESULTS = range(3)  # of the state: bytes written, operators written, results of this bundle
MOST_RESULTS, MOST_NUMBERS, MOST_STRUCTURES, MOST_COLUMNS, N_STATE = range(3, 8)  # ... the most of any bundle


@compiled
def write_bundles(start, stop, sources, writing):
    """Bundles ``start`` to ``stop``; how many bytes that is."""
    w, s = writing, sources
    for bundle in range(start, stop):
        _bundle(w, s, bundle, start)
    return w.state[_AT]


@compiled
def _bundle(w, s, bundle, start):
    """A bundle: what each structure needs before the loop, the loop, and of sums where they go to."""
    first, last, here = s.first_structure[bundle], s.first_structure[bundle + 1], bundle - start
    instance_bytes = 8 * s.slots[bundle]
    _line(w, _BUNDLE, here)
    number = column = 0
    for i in range(first, last):
        _instance(w, s, s.order[i], (i - first) * instance_bytes, number, column)
        _line(w, _PLACE if w.is_values else _ZERO_SUM, i - first)
        number, column = number + s.n_numbers[s.order[i]], column + s.n_columns[s.order[i]]
    _line(w, _LOOP, here)
    w.state[_N_RESULTS] = number = column = 0
    for i in range(first, last):
        at = i - s.first_structure[start]
        for c in range(w.remark_at[at], w.remark_at[at + 1]):
            w.out[w.state[_AT]] = w.remarks[c]
            w.state[_AT] += 1
        result = _instructions(w, s, s.order[i], bundle, number, column)
        _line(w, _RESULT, w.points * result, i - first)
        number, column = number + s.n_numbers[s.order[i]], column + s.n_columns[s.order[i]]
    for c in range(column):
        _line(w, _ADVANCE, c)
    _line(w, _END, here, last - first, instance_bytes)
    if not w.is_values:
        for g in range(last - first):
            _line(w, _OWN_SUM, g, g * w.block * w.itemsize)
        _line(w, _TO_SUMS)
    w.state[MOST_RESULTS] = max(w.state[MOST_RESULTS], w.state[_N_RESULTS])
    w.state[MOST_NUMBERS] = max(w.state[MOST_NUMBERS], number)
    w.state[MOST_STRUCTURES] = max(w.state[MOST_STRUCTURES], last - first)
    w.state[MOST_COLUMNS] = max(w.state[MOST_COLUMNS], column)


@compiled
def _instance(w, s, structure, at, number, column):
    """Load an instance: where its columns are, and its numbers; ``number``, ``column``: its first in the bundle."""
    _line(w, _INSTANCE, at)
    for c in range(s.n_columns[structure]):  # the first two came with the instance, in registers 3 and 4
        if c % 4 == 2:
            _line(w, _MORE, at + 4 * (2 + c))
        _line(w, _ADDRESS, column + c, (c + 2) % 4 + 1)
    for j in range(s.n_numbers[structure]):
        _line(w, _NUMBER, 2 * (number + j), 2 * w.itemsize * j)
    for k in range(s.first[structure], s.first[structure + 1]):
        if s.takes_low[s.code[k]] and s.a[k] & 3 == UNIFORM:
            j = s.a[k] >> 2
            _line(w, _NUMBER, 2 * (number + j) + 1, 2 * w.itemsize * j + w.itemsize)


@compiled
def _instructions(w, s, structure, bundle, number, column):
    """A structure's instructions, but those that the bundle has computed before; the result of the last one."""
    begin, result = s.first[structure], np.int64(0)
    for k in range(begin, s.first[structure + 1]):
        code = np.int64(s.code[k])
        a, b = _operand(w, s.a[k], number, column), _operand(w, s.b[k], number, column)
        entry = _find(w.computed, bundle, code, a, b)
        if w.computed[entry, 0] != bundle:
            result = w.state[_N_RESULTS]
            w.state[_N_RESULTS] += s.width[code]
            w.computed[entry, 0], w.computed[entry, 1], w.computed[entry, 2] = bundle, code, a
            w.computed[entry, 3], w.computed[entry, 4] = b, result
            w.used[code] = True
            _load(w, a, bundle)
            if s.takes_low[code] and a & 3 == COLUMN:
                _load(w, a + 4, bundle)
            _load(w, b, bundle)
            for point in range(w.points):
                _operator(w, (code, result, a, b), point)
        result = w.computed[entry, 4]
        w.results[k - begin] = result
    return result


@compiled
def _operand(w, operand, number, column):
    """An operand of a structure as one of its bundle."""
    kind = operand & 3
    if kind == UNIFORM:
        return np.int64(operand) + (number << 2)
    if kind == COLUMN:
        return np.int64(operand) + (column << 2)
    if kind == SLOT:
        return w.results[operand >> 2] << 2 | SLOT
    return np.int64(operand)  # none


@compiled
def _find(computed, bundle, code, a, b):
    """The entry of (code, a, b) of this bundle, or where it would be; those of other bundles do not count."""
    mask = len(computed) - 1
    place = ((code * 0x9E3779B1 ^ a * 0x85EBCA6B ^ b * 0xC2B2AE35) >> 7) & mask
    while computed[place, 0] == bundle and not (
        computed[place, 1] == code and computed[place, 2] == a and computed[place, 3] == b
    ):
        place = (place + 1) & mask
    return place


@compiled
def _load(w, operand, bundle):
    column = operand >> 2
    if operand & 3 == COLUMN and w.loaded[column] != bundle:
        w.loaded[column] = bundle
        _line(w, _COLUMN, column * w.points, column * w.column_step)


@compiled
def _line(w, number, first=0, second=0, third=0):
    """A line of the table in ``templates``, with its arguments."""
    n, labelled = w.state[_AT], 0
    for segment in range(w.first[number], w.first[number + 1]):
        n = _piece(w, segment, n)
        place = w.place[segment]
        if place == _N:
            n, labelled = _digits(w, w.state[_LABEL], n), 1
        elif place >= 0:
            argument = first if place & 3 == 0 else second if place & 3 == 1 else third
            n = _digits(w, argument + (place >> 2), n)
    w.state[_AT] = n
    w.state[_LABEL] += labelled


@compiled
def _operator(w, instruction, point):
    """The instructions of an operator, (code, result, a, b), for one point of a vector."""
    code, result, a, b = instruction
    n = w.state[_AT]
    for segment in range(w.first[code], w.first[code + 1]):
        n = _piece(w, segment, n)
        place = w.place[segment]
        if place == _Y:
            n = _register(w, result << 2 | SLOT, 0, point, n)
        elif place == _Y_LOW:
            n = _register(w, result << 2 | SLOT, 1, point, n)
        elif place == _A:
            n = _register(w, a, 0, point, n)
        elif place == _LOW:
            n = _register(w, a, 1, point, n)
        elif place == _B:
            n = _register(w, b, 0, point, n)
        elif place == _N:
            n = _digits(w, w.state[_LABEL], n)
    w.state[_AT] = n
    w.state[_LABEL] += 1


@compiled
def _piece(w, segment, n):
    for at in range(w.start[segment], w.start[segment + 1]):
        w.out[n] = w.text[at]
        n += 1
    return n


@compiled
def _register(w, operand, low, point, n):
    """The register that holds an operand (of a pair, with ``low``, its low part or second) at a point of the vector."""
    index, kind = operand >> 2, operand & 3
    w.out[n] = _PERCENT
    if kind == UNIFORM:
        w.out[n + 1] = _NUMBERS
        return _digits(w, 2 * index + low, n + 2)
    w.out[n + 1] = _COLUMNS if kind == COLUMN else _RESULTS
    return _digits(w, (index + low) * w.points + point, n + 2)


@compiled
def _digits(w, number, n):
    end = n + 1
    rest = number // 10
    while rest > 0:
        rest //= 10
        end += 1
    for at in range(end - 1, n - 1, -1):
        w.out[at] = 48 + number % 10
        number //= 10
    return end
