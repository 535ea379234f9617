"""Values that are missing among the data.

In: data and a target.  Out: an error that says where they are and how many.

    >>> import exprkit as ek, numpy as np
    >>> from exprkit.evaluate.gaps import Gaps
    >>> gaps = Gaps(np.array([[1.0], [np.nan], [3.0]]), lambda i: f"x{i + 1}")
    >>> sorted(gaps.columns)
    [0]
    >>> gaps.check(np.zeros(3), None, ek.parse("x1"))
    Traceback (most recent call last):
    exprkit.errors.DataError: column x1 of X lacks 1 of 3 values: drop or fill those rows, or give them weight 0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from exprkit.errors import DataError, number_of
from exprkit.evaluate import inputs, tables
from exprkit.expressions.population import Population


class Gaps:
    """The columns of X, (n_points, n_columns), that are not complete, with the points where they are nan."""

    def __init__(self, X: Any, name: Callable[[int], str]) -> None:
        some = ((i, np.isnan(X[:, i])) for i in range(X.shape[1] if bool(np.isnan(X).any()) else 0))
        self.columns: dict[int, np.ndarray] = {i: inputs.on_host(gap) for i, gap in some if bool(gap.any())}
        self._name = name

    def check(self, y: Any, w: Any, pop: Population) -> None:
        """An error if ``y`` or a column that ``pop`` uses is nan at a point that counts."""
        gaps = [("y", inputs.on_host(missing))] if bool((missing := np.isnan(y)).any()) else []
        used = tables.used_columns(pop) if self.columns else ()
        gaps += [(f"column {self._name(i)} of X", self.columns[i]) for i in used if i in self.columns]
        for what, missing in gaps:
            n = int(np.sum(missing if w is None else missing & inputs.on_host(w > 0)))
            if n:
                lacks = f"{what} lacks {n:,} of {number_of(len(y), 'value')}"
                raise DataError(f"{lacks}: drop or fill those rows, or give them weight 0")
