"""The lines of a file, found by slices over threads.

In: bytes.  Out: where each line begins and ends, and a 0 behind each of them, which ends a text.

    >>> import numpy as np
    >>> from exprkit.text.lines import separated
    >>> data = np.frombuffer(bytearray(b"x1 + 1\\r\\n\\nx2\\n"), np.uint8)
    >>> [array.tolist() for array in separated(data, 0)]
    [[0, 8, 9], [6, 8, 11]]

A line ends with a line feed, a carriage return, or both.  A 0 in the text becomes a 1, which is as wrong there.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from exprkit.runtime import slices
from exprkit.runtime.jit import compiled

FEED, RETURN = ord("\n"), ord("\r")


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
