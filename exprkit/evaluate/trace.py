"""``Trace``: the value of every part of an expression at one data point.

In: an expression and a point.  Out: a ``Trace``, a line a part, innermost first.

    >>> import exprkit as ek
    >>> ev = ek.Evaluator(ek.parse(["exp(log(x1 - 2) / 3)"]), [[1.0]], backend="numpy")
    >>> print(ev.trace(0, 0))
    x1                     1
    2                      2
    x1 - 2                -1
    log(x1 - 2)          nan  <- the first nan
    3                      3
    log(x1 - 2) / 3      nan
    exp(log(x1 - 2) / 3) nan
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exprkit.errors import ArgumentError, shortened
from exprkit.expressions.population import Population
from exprkit.operators import defined
from exprkit.text.tokens import OPERATOR

MOST_TOKENS = 4_000  # of an expression: all parts together have up to half the square
MOST_LETTERS = 60  # of a part's text


class Trace(NamedTuple):
    """The parts of an expression with their values."""

    texts: list[str]
    values: np.ndarray  # (n_parts,) of the evaluator's dtype

    @property
    def first_nan(self) -> int | None:
        """The first part that is nan; None if none is."""
        missing = np.flatnonzero(np.isnan(self.values))
        return int(missing[0]) if len(missing) else None

    def __str__(self) -> str:
        shown = [shortened(text, MOST_LETTERS) for text in self.texts]
        numbers = [f"{value:.9g}" for value in self.values.tolist()]
        left, right = max(map(len, shown), default=0), max(map(len, numbers), default=0)
        marks = ["  <- the first nan" if k == self.first_nan else "" for k in range(len(shown))]
        lines = zip(shown, numbers, marks, strict=True)
        return "\n".join(f"{text:{left}} {number:>{right}}{mark}" for text, number, mark in lines)


def parts_of(pop: Population, i: int) -> Population:
    """All parts of expression ``i``, in the order in which they are evaluated; the last one is it itself."""
    begin, end = int(pop.offsets[i]), int(pop.offsets[i + 1])
    if end - begin > MOST_TOKENS:
        raise ArgumentError(f"expression {i} has {end - begin:,} tokens: those of up to {MOST_TOKENS:,} are traced")
    arity = defined.arity()
    starts: list[int] = []  # of the operands on the stack
    spans = []
    for t in range(begin, end):
        n = int(arity[int(pop.values[t])]) if pop.kinds[t] == OPERATOR else 0
        start = starts[len(starts) - n] if n else t
        del starts[len(starts) - n :]
        starts.append(start)
        spans.append((start, t + 1))
    tokens = np.concatenate([np.arange(*span) for span in spans]) if spans else np.empty(0, np.int64)
    offsets = np.cumsum([0, *(stop - start for start, stop in spans)]).astype(np.int64)
    names = {"variables": pop.variables, "parameters": pop.parameters}
    return Population(pop.kinds[tokens], pop.values[tokens], offsets, **names)
