"""What a search may take: time, evaluations and memory.

In: what the user allows.  Out: ``Ended``, raised by ``check`` where a limit is reached.

    >>> from exprkit.runtime.budget import Budget, Ended
    >>> budget = Budget(max_evals=10)
    >>> budget.count(11)
    >>> try:
    ...     budget.check()
    ... except Ended as ended:
    ...     print(ended)
    11 functions were tried
    >>> Budget(seconds=60).part(0.5)(), Budget(seconds=60).part(0.0)(), Budget().part(0.0)()
    (False, True, False)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable


class Ended(Exception):
    """A limit was reached: no error, but the end of the search; says which."""


class Budget:
    """What a search may take; ``begin``: when it began, of ``time.perf_counter``, if not now."""

    def __init__(
        self, seconds: float | None = None, max_evals: int | None = None, shown: Callable[[], None] = lambda: None,
        most_bytes: float | None = None, begin: float | None = None,
    ) -> None:  # fmt: skip
        self._begin = time.perf_counter() if begin is None else begin
        self._seconds, self._max_evals, self._shown = seconds, max_evals, shown
        self._most_bytes, self.n_evals = most_bytes, 0

    @property
    def seconds(self) -> float:
        """Since the search began."""
        return time.perf_counter() - self._begin

    def part(self, share: float) -> Callable[[], bool]:
        """Whether such a share of the time has gone by since now; never where time has no limit."""
        end = math.inf if self._seconds is None else self.seconds + share * self._seconds
        return lambda: self.seconds >= end

    def count(self, n: int) -> None:
        """That n functions have been tried."""
        self.n_evals += n

    def check(self, n_bytes: float = 0) -> None:
        """Go on, or raise ``Ended``."""
        self._shown()
        if self._max_evals is not None and self.n_evals >= self._max_evals:
            raise Ended(f"{self.n_evals:,} functions were tried")
        if self._seconds is not None and self.seconds >= self._seconds:
            raise Ended(f"{self._seconds:g} s are over")
        if self._most_bytes is not None and n_bytes > self._most_bytes:
            raise Ended(f"{self._most_bytes / 1e6:.3g} MB are taken")
