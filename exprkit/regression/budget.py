"""What a search may take: time, evaluations and a loss that is good enough.

In: what the user allows.  Out: ``Ended``, raised by ``check`` where a limit is reached.

    >>> from exprkit.regression.budget import Ended, Budget
    >>> budget = Budget(max_evals=10)
    >>> budget.count(11)
    >>> try:
    ...     budget.check()
    ... except Ended as ended:
    ...     print(ended)
    11 functions were tried
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Ended(Exception):
    """A limit was reached: no error, but the end of the search; says which."""


class Budget:
    """What a search may take."""

    def __init__(
        self, seconds: float | None = None, max_evals: int | None = None, shown: Callable[[], None] = lambda: None
    ) -> None:
        self._begin, self._seconds, self._max_evals, self._shown = time.perf_counter(), seconds, max_evals, shown
        self.n_evals = 0

    @property
    def seconds(self) -> float:
        """Since the search began."""
        return time.perf_counter() - self._begin

    def count(self, n: int) -> None:
        """That n functions have been tried."""
        self.n_evals += n

    def check(self) -> None:
        """Go on, or raise ``Ended``."""
        self._shown()
        if self._max_evals is not None and self.n_evals >= self._max_evals:
            raise Ended(f"{self.n_evals:,} functions were tried")
        if self._seconds is not None and self.seconds >= self._seconds:
            raise Ended(f"{self._seconds:g} s are over")
