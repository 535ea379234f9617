"""Progress bar of an exhaustive search, with its rate and the best function so far.

>>> from exprkit.runtime.budget import Budget
>>> from exprkit.search.progress import SearchBar
>>> with SearchBar(False, Budget()) as shown:
...     shown.advance(10, "x1", "3.0")
"""

from __future__ import annotations

from typing import Any

from exprkit.errors import shortened
from exprkit.runtime.budget import Budget

LONGEST = 40  # characters of the best expression


class SearchBar:
    """A search's bar and ``budget``, and why it ``stopped``; a context."""

    def __init__(self, show: bool, budget: Budget) -> None:
        self.budget, self.stopped = budget, ""
        self._bar: Any = None
        if show:
            from tqdm.auto import tqdm

            self._bar = tqdm(unit=" trees", unit_scale=True, dynamic_ncols=True)

    def size(self, size: str, trees: int) -> None:
        """The trees of this size are looked at now, as ``3 of 9``; there are so many of all sizes."""
        if self._bar is not None:
            self._bar.total = trees
            self._bar.set_description(f"{size} nodes")

    def advance(self, trees: float, best: str, total: str) -> None:
        """So many trees are done; what is best, and how good it is."""
        if self._bar is not None:
            self._bar.update(trees - self._bar.n)
            self._bar.set_postfix_str(f"{total}: {shortened(best, LONGEST)}")

    def __enter__(self) -> SearchBar:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._bar is not None:
            self._bar.close()
