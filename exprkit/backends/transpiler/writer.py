"""The compiled writer of PTX: bundles of structures, byte by byte.

In: templates, cut into pieces, and bundles.  Out: bytes of PTX, of which ``emit`` makes modules.

    >>> from exprkit.backends.transpiler import templates, writer
    >>> writer.CHUNK == templates.CHUNK
    True
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exprkit.programs.lower import COLUMN, SLOT, UNIFORM
from exprkit.runtime.jit import compiled

CHUNK = 32  # points of a column that stand side by side, as in ``templates``
MOST_ARGUMENTS = 6
MOST_DIGITS = 22  # of a number, with the two characters before it
LINES = (
    "bundle", "instance", "more", "address", "number", "place", "zero_sum", "loop", "column", "result", "advance",
    "end", "own_sum", "to_sums",
)  # fmt: skip
(
    _BUNDLE, _INSTANCE, _MORE, _ADDRESS, _NUMBER, _PLACE, _ZERO_SUM, _LOOP, _COLUMN, _RESULT, _ADVANCE, _END,
    _OWN_SUM, _TO_SUMS,
) = range(256, 256 + len(LINES))  # fmt: skip
_Y, _A, _LOW, _B, _N = range(MOST_ARGUMENTS, MOST_ARGUMENTS + 5)  # what an operator's segments hold
WHAT = {"y": _Y, "a": _A, "a_low": _LOW, "b": _B, "n": _N} | {str(i): i for i in range(MOST_ARGUMENTS)}


_PERCENT, _NUMBERS, _COLUMNS, _RESULTS = b"%nxv"


class Templates(NamedTuple):
    """All templates as segments: a piece of text, then something that the writer fills in."""

    text: np.ndarray  # all pieces, one after the other
    start: np.ndarray  # (n_segments + 1) of each piece
    what: np.ndarray  # (n_segments) an argument, a part of an operator, or -1: nothing
    first: np.ndarray  # segments of a template: of an operator by its code, of a line by its number


class Sources(NamedTuple):
    first: np.ndarray
    code: np.ndarray
    a: np.ndarray
    b: np.ndarray
    n_numbers: np.ndarray
    n_columns: np.ndarray  # that are given
    order: np.ndarray
    first_structure: np.ndarray  # of bundles
    slots: np.ndarray
    takes_low: np.ndarray  # by code: its text reads the low part of operand a


class ComputedTable(NamedTuple):
    """What a bundle has computed: (code, a, b) -> result, by open addressing."""

    code: np.ndarray
    a: np.ndarray
    b: np.ndarray
    result: np.ndarray
    bundle: np.ndarray  # entries of other bundles do not count


@compiled
def write_bundles(start, stop, sources, templates, shape, n_columns, remarks, out, counts, used, table, made):
    """Bundles ``start`` to ``stop``; gives the length.

    ``counts`` takes the most results, numbers, structures and given columns of a bundle.
    """
    points, itemsize, block, is_values, given = shape
    loaded = np.full(n_columns + 1, -1, np.int64)
    to_column = 1 if given else CHUNK * itemsize
    n = label = 0
    for bundle in range(start, stop):
        here = bundle - start
        first, last = sources.first_structure[bundle], sources.first_structure[bundle + 1]
        n = _line(_BUNDLE, (here, 0, 0, 0, 0, 0), templates, out, n)
        of_an_instance = 8 * sources.slots[bundle]
        n_numbers = n_given = 0
        for i in range(first, last):
            s, g = sources.order[i], i - first
            n = _line(_INSTANCE, (g * of_an_instance, 0, 0, 0, 0, 0), templates, out, n)
            for c in range(sources.n_columns[s]):  # the first two came with the instance, in registers 3 and 4
                if c % 4 == 2:
                    n = _line(_MORE, (g * of_an_instance + 4 * (2 + c), 0, 0, 0, 0, 0), templates, out, n)
                n = _line(_ADDRESS, (n_given + c, (c + 2) % 4 + 1, 0, 0, 0, 0), templates, out, n)
            n_given += sources.n_columns[s]
            for j in range(sources.n_numbers[s]):
                n = _line(_NUMBER, (2 * (n_numbers + j), 2 * itemsize * j, 0, 0, 0, 0), templates, out, n)
            for k in range(sources.first[s], sources.first[s + 1]):
                if sources.takes_low[sources.code[k]] and sources.a[k] & 3 == UNIFORM:
                    j = sources.a[k] >> 2
                    n = _line(
                        _NUMBER, (2 * (n_numbers + j) + 1, 2 * itemsize * j + itemsize, 0, 0, 0, 0), templates, out, n
                    )
            n_numbers += sources.n_numbers[s]
            n = _line(_PLACE if is_values else _ZERO_SUM, (g, 0, 0, 0, 0, 0), templates, out, n)
        n = _line(_LOOP, (here, 0, 0, 0, 0, 0), templates, out, n)
        n_results = n_numbers = n_given = 0
        for i in range(first, last):
            s = sources.order[i]
            at = i - sources.first_structure[start]
            for c in range(remarks[1][at], remarks[1][at + 1]):
                out[n] = remarks[0][c]
                n += 1
            begin = sources.first[s]
            for k in range(begin, sources.first[s + 1]):
                code = np.int64(sources.code[k])
                a = _operand(sources.a[k], n_numbers, n_given, made)
                b = _operand(sources.b[k], n_numbers, n_given, made)
                place = _find(table, code, a, b, bundle)
                if table.bundle[place] == bundle:
                    made[k - begin] = table.result[place]
                    continue
                table.code[place], table.a[place], table.b[place] = code, a, b
                table.result[place], table.bundle[place] = n_results, bundle
                made[k - begin] = n_results
                used[code] = True
                n = _load(a, bundle, loaded, points, to_column, templates, out, n)
                if sources.takes_low[code] and a & 3 == COLUMN:
                    n = _load(a + 4, bundle, loaded, points, to_column, templates, out, n)
                n = _load(b, bundle, loaded, points, to_column, templates, out, n)
                for point in range(points):
                    n = _operator(code, n_results, a, b, point, points, label, templates, out, n)
                    label += 1
                n_results += 1
            v, g = points * made[sources.first[s + 1] - 1 - begin], i - first
            arguments = (v, g, 0, 0, 0, 0)
            if points == 2:
                arguments = (v, v + 1, g, 0, 0, 0)
            elif points == 4:
                arguments = (v, v + 1, v + 2, v + 3, g, 0)
            n = _line(_RESULT, arguments, templates, out, n)
            n_numbers += sources.n_numbers[s]
            n_given += sources.n_columns[s]
        for c in range(n_given):
            n = _line(_ADVANCE, (c, 0, 0, 0, 0, 0), templates, out, n)
        n = _line(_END, (here, last - first, of_an_instance, 0, 0, 0), templates, out, n)
        if not is_values:
            for g in range(last - first):
                n = _line(_OWN_SUM, (g, g * block * itemsize, 0, 0, 0, 0), templates, out, n)
            n = _line(_TO_SUMS, (0, 0, 0, 0, 0, 0), templates, out, n)
        counts[0], counts[1] = max(counts[0], n_results), max(counts[1], n_numbers)
        counts[2], counts[3] = max(counts[2], last - first), max(counts[3], n_given)
    return n


@compiled
def _operand(operand, n_numbers, n_given, made):
    """An operand of a structure as one of its bundle."""
    if operand >= 0 and operand & 3 == UNIFORM:
        return np.int64(operand) + (n_numbers << 2)
    if operand >= 0 and operand & 3 == COLUMN:
        return np.int64(operand) + (n_given << 2)
    if operand >= 0 and operand & 3 == SLOT:
        return made[operand >> 2] << 2 | SLOT
    return np.int64(operand)


@compiled
def _find(table, code, a, b, bundle):
    """The entry of (code, a, b) of this bundle, or where it would be."""
    mask = len(table.code) - 1
    place = ((code * 0x9E3779B1 ^ a * 0x85EBCA6B ^ b * 0xC2B2AE35) >> 7) & mask
    while table.bundle[place] == bundle and not (
        table.code[place] == code and table.a[place] == a and table.b[place] == b
    ):
        place = (place + 1) & mask
    return place


@compiled
def _load(operand, bundle, loaded, points, to_column, templates, out, n):
    """Load a column where it is first used."""
    if operand < 0 or operand & 3 != COLUMN or loaded[operand >> 2] == bundle:
        return n
    column = operand >> 2
    loaded[column] = bundle
    x, at = column * points, column * to_column
    arguments = (x, at, 0, 0, 0, 0)
    if points == 2:
        arguments = (x, x + 1, at, 0, 0, 0)
    elif points == 4:
        arguments = (x, x + 1, x + 2, x + 3, at, 0)
    return _line(_COLUMN, arguments, templates, out, n)


@compiled
def _line(number, arguments, templates, out, n):
    """A line of the table in ``templates``."""
    for segment in range(templates.first[number], templates.first[number + 1]):
        for at in range(templates.start[segment], templates.start[segment + 1]):
            out[n] = templates.text[at]
            n += 1
        if templates.what[segment] >= 0:
            n = _digits(arguments[templates.what[segment]], out, n)
    return n


@compiled
def _operator(code, result, a, b, point, points, label, templates, out, n):
    """The instructions of an operator for one point of a vector."""
    for segment in range(templates.first[code], templates.first[code + 1]):
        for at in range(templates.start[segment], templates.start[segment + 1]):
            out[n] = templates.text[at]
            n += 1
        what = templates.what[segment]
        if what == _Y:
            n = _register(result << 2 | SLOT, 0, point, points, out, n)
        elif what == _A:
            n = _register(a, 0, point, points, out, n)
        elif what == _LOW:
            n = _register(a, 1, point, points, out, n)
        elif what == _B:
            n = _register(b, 0, point, points, out, n)
        elif what == _N:
            n = _digits(label, out, n)
    return n


@compiled
def _register(operand, low, point, points, out, n):
    """The register that holds an operand (of a pair, with ``low``, its low part) at a point of the vector."""
    index, kind = operand >> 2, operand & 3
    out[n] = _PERCENT
    if kind == UNIFORM:
        out[n + 1] = _NUMBERS
        return _digits(2 * index + low, out, n + 2)
    out[n + 1] = _COLUMNS if kind == COLUMN else _RESULTS
    return _digits((index + low) * points + point, out, n + 2)


@compiled
def _digits(number, out, n):
    """A whole number >= 0 in decimal."""
    end = n + 1
    rest = number // 10
    while rest > 0:
        rest //= 10
        end += 1
    for at in range(end - 1, n - 1, -1):
        out[at] = 48 + number % 10
        number //= 10
    return end
