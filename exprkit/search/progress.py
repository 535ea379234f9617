"""How far a search is: a bar with the rate and the best so far, and when it has to stop.

>>> import time
>>> from exprkit.search.progress import Progress
>>> with Progress(False, time.perf_counter(), timeout=1e-9, most_bytes=None) as shown:
...     shown.check()
Traceback (most recent call last):
exprkit.search.progress.SearchStopped: timeout
"""

from __future__ import annotations

import math
import time
from typing import Any

MEMORY = "max_memory"
LONGEST = 40  # characters of the best expression


class SearchStopped(Exception):
    """A search has to end with what it has; says why."""


class Progress:
    """A search's bar and limits; a context."""

    def __init__(self, show: bool, begin: float, timeout: float | None, most_bytes: float | None) -> None:
        self._begin, self._most_bytes = begin, most_bytes
        self._end = math.inf if timeout is None else begin + float(timeout)
        self._bar: Any = None
        self.stopped = ""
        if show:
            from tqdm.auto import tqdm

            self._bar = tqdm(unit=" trees", unit_scale=True, dynamic_ncols=True)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._begin

    def check(self, n_bytes: float = 0) -> None:
        """Raise ``SearchStopped`` where a limit is reached."""
        if time.perf_counter() > self._end:
            raise SearchStopped("timeout")
        if self._most_bytes is not None and n_bytes > self._most_bytes:
            raise SearchStopped(MEMORY)

    def size(self, size: int, trees: int) -> None:
        """The trees up to this size are looked at now."""
        if self._bar is not None:
            self._bar.total = trees
            self._bar.set_description(f"{size} nodes")

    def advance(self, trees: float, best: str, total: str) -> None:
        """So many trees are done; what is best, and how good it is."""
        if self._bar is not None:
            self._bar.update(trees - self._bar.n)
            self._bar.set_postfix_str(f"{total}: {best if len(best) <= LONGEST else best[: LONGEST - 1] + '…'}")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._bar is not None:
            self._bar.close()
