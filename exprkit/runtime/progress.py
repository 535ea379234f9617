"""Progress of long work: a bar, or calls of a user's function.

    >>> from exprkit.runtime.progress import parts
    >>> list(parts(5, lambda done, total: print(done, "of", total), "counting", first=4))
    4 of 5
    5 of 5
    [slice(0, 4, None), slice(4, 5, None)]

===============  =====================================================
``progress=``    what is shown
===============  =====================================================
False            nothing
True             a bar of tqdm's, in a notebook one of its widgets
a function       called with (done, total) every now and then
===============  =====================================================

The function ends the work by an exception, also in the middle of one long thing: compiled loops come back from it
after pieces of some 0.1 s, and who called them takes a ``look``.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from exprkit.errors import ArgumentError, brief, brought_by

FIRST = 256  # of many things that are done before a bar moves for the first time
SECONDS = 0.2  # between two moves of the bar
MANY = 1000  # things that are counted in thousands

Progress = bool | Callable[[int, int], Any]


@contextlib.contextmanager
def shown(progress: Progress, total: int, what: str, unit: str = " expressions") -> Iterator[Callable[..., None]]:
    """A function of how many more are done, and of a note for the bar, which any thread may call.

    Raises ArgumentError if ``progress`` is neither a flag nor a function; MissingError if tqdm is not installed.
    """
    if callable(progress):
        yield _counted(lambda done, note: progress(done, total))
    elif not isinstance(progress, bool | np.bool_):
        raise ArgumentError(f"progress must be True, False or a function of (done, total), not {brief(progress)}")
    elif not progress:
        yield lambda more, note="": None
    else:
        with brought_by("notebooks"):
            from tqdm.auto import tqdm
        with tqdm(total=total, desc=what, unit_scale=total >= MANY, unit=unit) as bar:

            def show(done: int, note: str) -> None:
                bar.set_postfix_str(note, refresh=False)
                bar.update(done - bar.n)

            yield _counted(show)


def _counted(show: Callable[[int, str], Any]) -> Callable[..., None]:
    lock, done, shows = threading.RLock(), 0, False

    def more(n: int, note: str = "") -> None:
        nonlocal done, shows
        with lock:
            done += n
            if shows:  # the function computes something itself
                return
            shows = True
            try:
                show(done, note)
            finally:
                shows = False

    return more


class _Looks(threading.local):
    """The functions that a ``look`` of this thread calls."""

    def __init__(self) -> None:
        self.looks: list[Callable[[], None]] = []


_watched = _Looks()


def look() -> None:
    """Show that work goes on; what shows it may end the work by an exception."""
    for seen in tuple(_watched.looks):
        seen()


@contextlib.contextmanager
def looked_at(done: Callable[..., None]) -> Iterator[None]:
    """Have what is done shown, in here, at a ``look`` every SECONDS."""
    last = time.perf_counter()

    def seen() -> None:
        nonlocal last
        if (now := time.perf_counter()) - last >= SECONDS:
            last = now
            done(0)

    _watched.looks.append(seen)
    try:
        yield
    finally:
        _watched.looks.remove(seen)


def parts(total: int, progress: Progress, what: str, first: int = FIRST) -> Iterator[slice]:
    """Parts of so many things that take some ``SECONDS`` each; all at once if nothing is shown."""
    with shown(progress, total, what) as done, looked_at(done):
        begin, size = 0, total if progress is False else first
        while begin < total or begin == 0 == total:
            since, part = time.perf_counter(), slice(begin, min(begin + size, total))
            yield part
            done(part.stop - begin)
            begin, took = part.stop, time.perf_counter() - since
            size = max(1, int(size * min(4.0, SECONDS / max(took, 1e-9))))
            if not total:
                return
