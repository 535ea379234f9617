"""Reads texts to tokens: joins a batch into one byte array for the compiled parser.

In: a ``Batch``.  Out: kinds, values and offsets of the tokens, and what is wrong with which text.
``shunting_yard`` is the compiled code, ``parse_errors`` words what is wrong.

    >>> data = np.frombuffer(bytearray(b"x1 + 1\\r\\n\\nx2\\n"), np.uint8)
    >>> [array.tolist() for array in separated(data, 0)]
    [[0, 8, 9], [6, 8, 11]]

A line of a file ends with a line feed, a carriage return, or both.  A 0 in the text becomes a 1, which is as wrong
there.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from exprkit.runtime import machine, slices
from exprkit.runtime.jit import compiled
from exprkit.text.names import USUAL, Names

if TYPE_CHECKING:
    from exprkit.text.parse_errors import Fault

MARK = b"\xef\xbb\xbf"  # that a file of UTF-8 may begin with
FEED, RETURN = ord("\n"), ord("\r")
BYTES_OF_A_TOKEN = 2  # of text, at the least, mostly
BLOCK = 1 << 18  # bytes of text that are parsed at a time; what they become stays in the cache


@dataclass(slots=True)
class Batch:
    """What is to be parsed: the texts as bytes, each followed by a 0, and what is not text."""

    data: bytes | np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    lines: np.ndarray | None = None  # line in the file, counted from 1
    objects: dict[int, Any] = field(default_factory=dict)  # these have an empty text
    alone: bool = False  # the user gave one expression, not a list
    names: Names = USUAL

    def raw(self, index: int) -> bytes:
        return bytes(self.data[self.starts[index] : self.ends[index]])

    def fault(self, index: int, code: int = 0, place: int = 0, extent: int = 1, count: int = 0, **why: str) -> Fault:
        from exprkit.text.parse_errors import Fault

        line = None if self.lines is None else int(self.lines[index])
        raw = None if index in self.objects else self.raw(index)
        return Fault(self.names, raw, line, code, place, extent, count, **why)


class Lines(NamedTuple):
    """The lines of a file that are expressions: where they are in it, and their numbers."""

    starts: np.ndarray
    ends: np.ndarray
    lines: np.ndarray


def from_items(items: list[Any], alone: bool = False) -> Batch:
    objects = {}
    try:
        joined = "\0".join(items)
    except TypeError:  # not all of them are texts
        items = [item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else item for item in items]
        objects = {index: item for index, item in enumerate(items) if not isinstance(item, str)}
        items = ["" if index in objects else item for index, item in enumerate(items)]
        joined = "\0".join(items)
    if joined.count("\0") != len(items) - 1:  # a text holds the separator; \1 is as wrong there as \0
        joined = "\0".join([item.replace("\0", "\1") for item in items])
    try:
        data = joined.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        data = joined.encode("utf-8", "surrogatepass")
    batch = _separated(data + b"\0") if items else Batch(b"", *np.zeros((2, 0), np.int64))
    batch.objects, batch.alone = objects, alone
    return batch


def from_lines(data: bytes) -> Batch:
    """One expression per line; lines that are blank or begin with # do not count."""
    return from_bytes(np.frombuffer(data + b"\n", np.uint8).copy())


def from_bytes(data: np.ndarray) -> Batch:
    """The same, of uint8 (n_bytes,), which are written to; the last one ends a line."""
    from exprkit.text.shunting_yard import find_expressions, rules

    starts, ends = separated(data, len(MARK) if data[: len(MARK)].tobytes() == MARK else 0)
    is_one, table, cuts = np.empty(len(starts), np.bool_), rules(), slices.even(len(starts))
    counts = slices.each(lambda begin, end: find_expressions(data, starts, table, begin, end, is_one), cuts)
    before = dict(zip((begin for begin, _ in cuts), np.cumsum([0, *counts[:-1]]).tolist(), strict=True))
    lines = Lines(*(np.empty(sum(counts), np.int64) for _ in range(3)))
    slices.each(lambda begin, end: _keep(is_one, starts, ends, begin, end, lines, before[begin]), cuts)
    return Batch(data, lines.starts, lines.ends, lines.lines)


@compiled
def _keep(is_one, starts, ends, begin, end, lines, n):
    """Put starts, ends and numbers of the lines that are expressions behind ``n`` others."""
    for line in range(begin, end):
        if is_one[line]:
            lines.starts[n], lines.ends[n], lines.lines[n] = starts[line], ends[line], line + 1
            n += 1


def _separated(data: bytes) -> Batch:
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 0)
    starts = np.empty_like(ends)
    starts[0], starts[1:] = 0, ends[:-1] + 1
    return Batch(data, starts, ends)


def tokens_of(batch: Batch, threads: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[int, Fault]]:
    """(kinds, values, offsets, faults by index) of all texts, read by slices over threads."""
    n = len(batch.starts)
    cuts = [(0, n)]
    if len(batch.data) > slices.LEAST and n > 1:
        *cuts, (last, _) = slices.short(batch.starts, threads, most=slices.SHORT)  # all but the last text
        cuts.append((last, n))
    joint = _Joint(batch, cuts)
    parts = slices.each(joint.read, cuts, threads=threads or machine.cores())
    faults = {
        index: batch.fault(index, *error)
        for part, (begin, _) in zip(parts, cuts, strict=True)
        for index, error in zip((begin + part.bad).tolist(), part.errors.T.tolist(), strict=True)
        if index not in batch.objects
    }
    return *joint.arrays(), faults


class _Errors(NamedTuple):
    """What is wrong in consecutive texts."""

    bad: np.ndarray  # which texts have an error
    errors: np.ndarray  # int32 (4, n_bad): ``parse_block``


class _Joint:
    """The tokens of all texts: those of a slice are put there, still in the cache, when those before are counted.

    There is room for as many tokens as bytes, of which nothing is used but what is written; the rest is given back.
    """

    def __init__(self, batch: Batch, cuts: slices.Cuts) -> None:
        self._batch, n_bytes = batch, len(batch.data)
        self._kinds, self._values = np.empty(n_bytes, np.uint8), np.empty(n_bytes, np.uint64)
        self._offsets = np.zeros(cuts[-1][1] + 1, np.int64)
        self._numbers = {begin: k for k, (begin, _) in enumerate(cuts)}
        self._ends, self._failed = {-1: 0}, len(cuts)
        self._changed = threading.Condition()

    def read(self, begin: int, end: int) -> _Errors:
        """Read a slice and put its tokens behind those before."""
        k = self._numbers[begin]
        try:
            part = _tokens_of_slice(self._batch, begin, end)
            n_tokens = int(part.offsets[-1])
            own = slice(first := self._place(k, n_tokens), first + n_tokens)
            self._kinds[own], self._values[own] = part.kinds[:n_tokens], part.values[:n_tokens]
            np.add(part.offsets[1:], own.start, out=self._offsets[begin + 1 : end + 1])
        except BaseException:
            with self._changed:
                self._failed = min(self._failed, k)
                self._changed.notify_all()
            raise
        bad = np.flatnonzero(part.errors[0])
        return _Errors(bad, part.errors[:, bad])

    def _place(self, k: int, n_tokens: int) -> int:
        """Where the tokens of slice k begin, when the slices before are counted: slices are begun in order."""
        with self._changed:
            while k - 1 not in self._ends:
                if self._failed < k:
                    raise RuntimeError("texts before could not be read")  # which is told in place of this
                self._changed.wait()
            self._ends[k] = self._ends[k - 1] + n_tokens
            self._changed.notify_all()
            return self._ends[k - 1]

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Kinds, values and offsets of all; once."""
        for array in (self._kinds, self._values):
            array.resize(self._ends[len(self._numbers) - 1], refcheck=False)
        return self._kinds, self._values, self._offsets


class _Slice(NamedTuple):
    """What consecutive texts become."""

    kinds: np.ndarray
    values: np.ndarray
    offsets: np.ndarray  # int64 (n_texts + 1,)
    errors: np.ndarray  # int32 (4, n_texts): ``parse_block``


def _tokens_of_slice(batch: Batch, begin: int, end: int) -> _Slice:
    from exprkit.text import shunting_yard

    starts, ends, n = batch.starts[begin:end], batch.ends[begin:end], end - begin
    longest = min(int((ends - starts).max(initial=0)), shunting_yard.MAX_BYTES)
    work = shunting_yard.workspace(max(BLOCK, longest), longest)
    source = shunting_yard.Source(np.frombuffer(batch.data, np.uint8), starts, ends)
    names, rules = batch.names.table, shunting_yard.rules()
    offsets, errors = np.zeros(n + 1, np.int64), np.zeros((4, n), np.int32)
    likely = int(ends[-1] - starts[0]) // BYTES_OF_A_TOKEN if n else 0
    kinds, values = np.empty(likely, np.uint8), np.empty(likely, np.uint64)
    done = 0
    while done < n:
        first, before = done, offsets[done]
        done, n_tokens, n_slow = shunting_yard.parse_block(source, first, names, rules, work, offsets, errors)
        for token, start, stop, flags in work.slow[:n_slow].tolist():
            work.values[token] = _exactly(bytes(batch.data[start:stop]).decode(), flags)
        offsets[first + 1 : done + 1] += before  # they were this block's
        kinds, values = (
            _put(array, before, block[:n_tokens]) for array, block in ((kinds, work.kinds), (values, work.values))
        )
    return _Slice(kinds, values, offsets, errors)


def _put(array: np.ndarray, place: int, more: np.ndarray) -> np.ndarray:
    """The array with more numbers from a place on; a longer one if they do not fit."""
    end = place + len(more)
    if end > len(array):
        array = np.concatenate([array[:place], np.empty(max(place, len(more)), array.dtype)])
    array[place:end] = more
    return array


def _exactly(literal: str, flags: int) -> np.uint64:
    """Bits of a literal whose first 19 digits do not decide them (and of fractions of large numbers)."""
    from exprkit.text import shunting_yard
    from exprkit.text.decimals import nearest_float, nearest_single

    if flags & shunting_yard.SLOW_RATIONAL:
        above, below = literal.split("//")
        number = nearest_float(Fraction(int(above), int(below))) if int(below) else float("inf")
    elif flags & shunting_yard.SLOW_SINGLE:
        number = nearest_single(literal.replace("f", "e"))
    else:
        number = float(literal)
    return np.float64(-number if flags & shunting_yard.SLOW_NEGATIVE else number).view(np.uint64)


# ── the lines of a file ──────────────────────────────────────────────────────────────


def separated(data: np.ndarray, first: int, threads: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends of the lines from byte ``first`` on, int64 each; writes the 0s into ``data``."""
    cuts = slices.even(len(data), threads)
    counts = np.array(slices.each(lambda begin, end: _count(data, begin, end), cuts))
    if counts[:, 1].any():
        data[data == 0] = 1
    before = dict(zip((begin for begin, _ in cuts), np.cumsum([0, *counts[:-1, 0]]).tolist(), strict=True))
    n = int(counts[:, 0].sum())
    starts, ends = np.empty(n + 1, np.int64), np.empty(n, np.int64)
    starts[0] = first
    slices.each(lambda begin, end: _find(data, begin, end, starts, ends, before[begin]), cuts)
    slices.each(lambda begin, end: _end(data, ends, begin, end), slices.even(n, threads))
    return starts[:n], ends


@compiled
def _count(data, begin, end):
    """How many lines end here, and how many 0s there are."""
    lines, zeros = 0, 0
    for i in range(begin, end):
        if data[i] <= RETURN:
            lines += _ends_line(data, i)
            zeros += data[i] == 0
    return lines, zeros


@compiled
def _ends_line(data, i):
    """1 for the last byte of a line's end."""
    if data[i] == FEED:
        return 1
    return 1 if data[i] == RETURN and (i + 1 == len(data) or data[i + 1] != FEED) else 0


@compiled
def _find(data, begin, end, starts, ends, line):
    for i in range(begin, end):
        if data[i] <= RETURN and _ends_line(data, i):
            ends[line] = i - 1 if data[i] == FEED and i > 0 and data[i - 1] == RETURN else i
            starts[line + 1] = i + 1
            line += 1


@compiled
def _end(data, ends, begin, end):
    for line in range(begin, end):
        data[ends[line]] = 0
