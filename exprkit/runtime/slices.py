"""Cuts a population into slices of about equal numbers of tokens, for threads.

In: where the tokens of each expression begin, and a function of a slice.  Out: what it gave for each slice.

    >>> import numpy as np
    >>> from exprkit.runtime import slices
    >>> cuts = slices.cut(np.array([0, 3, 4, 7, 12]), threads=2, least=1)
    >>> cuts
    [(0, 3), (3, 4)]
    >>> slices.each(lambda begin, end: end - begin, cuts)
    [3, 1]

A compiled loop runs without Python's lock, so threads run at once where the function is little more than
one.  What is computed must not depend on the cuts: a slice's results go to places that are known, or are joined in
the slices' order.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import itertools
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

import numpy as np

from exprkit.runtime import machine
from exprkit.runtime.progress import look

LEAST = 1 << 15  # tokens of a slice: some 0.1 ms of the quickest loop, beside 0.05 ms to wake a thread
MOST_THREADS = 256
MOST_ASKED = 4096  # threads that a user may ask for
SHORT = 1 << 20  # tokens of a slice after which Python is to have its turn: 0.03 s of most loops, 0.5 s of the slowest
FEW = 64  # slices that may have a thread each, however few cores there are
APART = 1 << 10  # numbers of an array that a thread writes all the time, so that no other thread writes beside them

Cuts = list[tuple[int, int]]  # begin and end of every slice, in expressions
Result = TypeVar("Result")


def cut(offsets: np.ndarray, threads: int | None = None, least: int | None = None) -> Cuts:
    """Slices for so many threads, by default all that this process may use, of ``least`` tokens or more each.

    Tokens of expression i are ``offsets[i]:offsets[i + 1]``; where these do not rise, slices are in order all the same.
    """
    n, total = len(offsets) - 1, int(offsets[-1]) - int(offsets[0])
    threads = min(threads or machine.cores(), MOST_THREADS)
    return cut_into(offsets, min(threads, total // (LEAST if least is None else least), n))


def cut_into(offsets: np.ndarray, n_slices: int) -> Cuts:
    """So many slices of about the same share of ``offsets``, which may be anything that adds up; fewer if few fit."""
    n, total = len(offsets) - 1, int(offsets[-1]) - int(offsets[0])
    if n_slices < 2:
        return [(0, n)]
    wanted = int(offsets[0]) + total * np.arange(1, n_slices) // n_slices
    ends = [0, *np.maximum.accumulate(np.searchsorted(offsets[:-1], wanted)).tolist(), n]
    return [(begin, end) for begin, end in itertools.pairwise(ends) if begin < end]


def short(offsets: np.ndarray, threads: int | None = None, least: int = LEAST, most: int = SHORT) -> Cuts:
    """Slices as ``cut`` makes them, or of ``most`` tokens: Python, which has its turn after each, sees Ctrl-C."""
    n_slices = min((int(offsets[-1]) - int(offsets[0])) // max(most, least), len(offsets) - 1)
    return cut_into(offsets, n_slices) if n_slices > (threads or machine.cores()) else cut(offsets, threads, least)


def even(n: int, threads: int | None = None, least: int | None = None) -> Cuts:
    """Slices of n things of the same size; ``least``: of a slice, by default ``LEAST``."""
    n_slices = n // (LEAST if least is None else least)
    if n_slices < 2:  # to ask for the cores takes longer than much that is done with few
        return [(0, n)]
    n_slices = max(1, min(threads or machine.cores(), MOST_THREADS, n_slices))
    edges = [n * k // n_slices for k in range(n_slices + 1)]
    return list(itertools.pairwise(edges))


def each(
    function: Callable[[int, int], Result],
    cuts: Cuts,
    done: Callable[[int], Any] | None = None,
    threads: int | None = None,
) -> list[Result]:
    """``function(begin, end)`` of every slice, shared by so many threads at the most; this one takes part.

    ``done`` is called, by any thread, with the number of expressions of every slice that is finished.

    Where some fail, the exception of the first of them is raised, when no slice is worked on any more.
    """
    done = done or (lambda n: None)
    if len(cuts) == 1:
        result = function(*cuts[0])
        done(cuts[0][1] - cuts[0][0])
        return [result]
    left = deque(enumerate(cuts))
    results: dict[int, Result] = {}
    errors: dict[int, BaseException] = {}

    def work() -> None:
        while left:
            try:
                k, (begin, end) = left.popleft()
            except IndexError:  # another thread was quicker
                return
            try:
                results[k] = function(begin, end)
                done(end - begin)
                look()
            except BaseException as error:
                errors[k] = error
                left.clear()

    helpers = []
    try:
        with contextlib.suppress(RuntimeError):  # no more threads can be started, or Python ends: do with fewer
            for _ in cuts[1 : threads or machine.limit() or max(machine.cores(), FEW)]:
                helpers.append(pool().submit(contextvars.copy_context().run, work))
        work()
    finally:
        left.clear()
        wait([helper for helper in helpers if not helper.cancel()])
    if errors:
        raise errors[min(errors)]
    return [results[k] for k in range(len(cuts))]


def by_turns(loop: Callable[[int], Any], n: int, threads: int | None = None, least: int | None = None) -> None:
    """Let threads, ``least`` things or more for each, share n things: each calls ``loop(counter)`` once.

    The loop does the piece whose number it gets from ``intrinsics.take(counter)``, then the next, until none is left:
    no thread waits for another that has the slower things, and few calls go through Python.
    """
    counter = np.zeros(16, np.int64)[8:]  # in a cache line that nothing else is in
    each(lambda _, __: loop(counter.ctypes.data), even(n, threads, least))


@functools.cache
def pool() -> ThreadPoolExecutor:
    """The threads of this process, which are started as they are needed."""
    return ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="exprkit")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)  # threads do not survive a fork
