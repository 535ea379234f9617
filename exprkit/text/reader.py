"""Reads texts to tokens: joins a batch into one byte array for the compiled parser.

In: a ``Batch``.  Out: kinds, values and offsets of the tokens, and what is wrong with which text.
``shunting_yard`` is the compiled code, ``parse_errors`` words what is wrong.

    >>> batch = from_lines(bytearray(b"x1 + 1\\r\\n\\nx2\\n"))
    >>> [batch.raw(i) for i in range(2)], batch.lines.tolist()
    ([b'x1 + 1', b'x2'], [1, 3])
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from exprkit.runtime import machine, slices
from exprkit.text import shunting_yard
from exprkit.text.decimals import nearest_float, nearest_single
from exprkit.text.names import USUAL, Names

if TYPE_CHECKING:
    from exprkit.text.parse_errors import Fault

MARK = b"\xef\xbb\xbf"  # that a file of UTF-8 may begin with
BLOCK = 1 << 19  # bytes of text that are parsed at a time; what they become stays in the cache


@dataclass(slots=True)
class Batch:
    """Texts to be parsed, as bytes, each followed by a 0; and objects that are not text."""

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
        text = joined.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        text = joined.encode("utf-8", "surrogatepass")
    data = text + b"\0" if items else b""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 0)
    return Batch(data, np.append(0, ends + 1)[: len(ends)], ends, objects=objects, alone=alone)


def from_lines(data: bytearray) -> Batch:
    """One expression per line; lines that are blank or begin with # do not count.

    ``data``, which ends with a line feed, is written to.
    """
    text, rules = np.frombuffer(data, np.uint8), shunting_yard.rules()
    edges = {data.find(b"\n", begin) + 1 for begin, _ in slices.even(len(data))[1:]} - {len(data)}
    cuts = list(pairwise([len(MARK) if data.startswith(MARK) else 0, *sorted(edges), len(data)]))

    def find(begin: int, end: int) -> tuple[np.ndarray, int]:
        lines = np.empty((3, (end - begin) // 2 + 1), np.int64)  # what is not written takes no memory
        n, n_lines = shunting_yard.find_lines(text, begin, end, rules, lines)
        return lines[:, :n], n_lines

    parts, before = slices.each(find, cuts), 0
    for lines, n_lines in parts:
        lines[2] += before
        before += n_lines
    return Batch(text, *np.concatenate([lines for lines, _ in parts], axis=1))


def tokens_of(batch: Batch, threads: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[int, Fault]]:
    """(kinds, values, offsets, faults by index) of all texts, read by slices over threads.

    A slice's tokens are put behind those of the slice before, still in the cache, as soon as these are counted.
    """
    n, n_bytes = len(batch.starts), len(batch.data)
    cuts = slices.short(np.append(batch.starts, n_bytes), threads, most=BLOCK) if n else []
    # room for as many tokens as bytes; what is not written takes no memory, and is given back
    kinds, values = np.empty(n_bytes, np.uint8), np.empty(n_bytes, np.uint64)
    offsets, errors = np.zeros(n + 1, np.int64), np.zeros((4, n), np.int32)
    counts: dict[int, Future[int]] = {edge: Future() for edge in (0, *(end for _, end in cuts))}  # tokens before a text
    counts[0].set_result(0)

    def read(begin: int, end: int) -> None:
        try:
            work, n_tokens = _tokens_of_slice(batch, begin, end, offsets, errors)
            own = slice(first := counts[begin].result(), first + n_tokens)  # slices are begun in order
            counts[end].set_result(own.stop)
        except BaseException as error:
            if not counts[end].done():
                counts[end].set_exception(error)
            raise
        kinds[own], values[own] = work.kinds[:n_tokens], work.values[:n_tokens]
        offsets[begin + 1 : end + 1] += first

    slices.each(read, cuts, threads=threads or machine.cores())
    for array in (kinds, values):
        array.resize(counts[n].result(), refcheck=False)
    bad = [index for index in np.flatnonzero(errors[0]).tolist() if index not in batch.objects]
    return kinds, values, offsets, {index: batch.fault(index, *errors[:, index].tolist()) for index in bad}


def _tokens_of_slice(
    batch: Batch, begin: int, end: int, offsets: np.ndarray, errors: np.ndarray
) -> tuple[shunting_yard.Work, int]:
    """The tokens of some of the texts, and how many."""
    starts, ends = batch.starts, batch.ends
    longest = min(int((ends[begin:end] - starts[begin:end]).max()), shunting_yard.MAX_BYTES)
    work = shunting_yard.workspace(int(ends[end - 1] - starts[begin]), longest)
    source = shunting_yard.Source(np.frombuffer(batch.data, np.uint8), starts, ends)
    n_tokens, n_slow = shunting_yard.parse_slice(
        source, begin, end, batch.names.table, shunting_yard.rules(), work, offsets, errors
    )
    for token, start, stop, flags in work.slow[:n_slow].tolist():
        work.values[token] = _exactly(bytes(batch.data[start:stop]).decode(), flags)
    return work, n_tokens


def _exactly(literal: str, flags: int) -> np.uint64:
    """Bits of a literal whose first 19 digits do not decide them (and of fractions of large numbers)."""
    if flags & shunting_yard.SLOW_RATIONAL:
        above, below = literal.split("//")
        number = nearest_float(Fraction(int(above), int(below))) if int(below) else float("inf")
    elif flags & shunting_yard.SLOW_SINGLE:
        number = nearest_single(literal.replace("f", "e"))
    else:
        number = float(literal)
    return np.float64(-number if flags & shunting_yard.SLOW_NEGATIVE else number).view(np.uint64)
