"""The archive of a search: every form of formula that it has evaluated, with the numbers of least loss.

In: populations with losses, as the search comes to them.  Out: the distinct formulas, best first, as a population.

    >>> import exprkit as ek
    >>> from exprkit.regression.formulas.archive import FormulaArchive
    >>> archive = FormulaArchive(most=2)
    >>> archive.add(ek.parse(["2 * x1", "x1 * 3", "sqrt(x1)", "x1 + x2"]), [4.0, 1.0, 9.0, 2.0])
    >>> formulas = archive.formulas()
    >>> formulas.pop.texts(), formulas.loss.tolist()
    (['x1 * 3', 'sqrt(x1)'], [1.0, 9.0])

Formulas of one form differ in their numbers, or in the order of operands.  Of more forms than ``most`` those stay that
have the least loss of their size.  New formulas are put aside until they are as many as those that are there, so that
each is sorted a few times at most.

==================  =======  ========================================================================
array of a file     dtype    what it holds
==================  =======  ========================================================================
``kinds``           uint8    as in ``population_file``, likewise ``variables`` and ``operators``
``tokens``          uint16   ``values`` of variables and operators; 0 of a number
``numbers``         float64  those of the numbers
``lengths``         uint16   tokens of each formula
``loss``            float64
==================  =======  ========================================================================
"""

from __future__ import annotations

from typing import Any

import numpy as np

from exprkit.expressions.population import Population
from exprkit.text.tokens import CONSTANT

MOST = 10_000_000  # formulas; 150 bytes each of 15 tokens
LEAST_NEW = 20_000  # formulas that are put aside before they are sorted


class VisitedFormulas:
    """The distinct formulas of a search, those of least loss first.

    Attributes
    ----------
    pop : Population
    loss : float64 array, (n_formulas,)
    """

    def __init__(self, pop: Population, loss: np.ndarray) -> None:
        self.pop, self.loss = pop, loss

    def __len__(self) -> int:
        return len(self.pop)

    def __repr__(self) -> str:
        return f"<VisitedFormulas: {len(self):,} formulas>"

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The arrays of a file."""
        arrays, is_number = self.pop.to_arrays(), self.pop.kinds == CONSTANT
        values, lengths = arrays.pop("values"), np.diff(arrays.pop("offsets"))
        return arrays | {
            "tokens": np.where(is_number, 0, values).astype(np.uint16),
            "numbers": values[is_number].view(np.float64),
            "lengths": lengths.astype(np.uint16),
            "loss": self.loss,
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> VisitedFormulas:
        """From the arrays of a file; ValueError, KeyError or PopulationError for others."""
        is_number, values = arrays["kinds"] == CONSTANT, arrays["tokens"].astype(np.uint64)
        values[is_number] = arrays["numbers"].astype(np.float64).view(np.uint64)
        offsets = np.append(0, np.cumsum(arrays["lengths"], dtype=np.int64))
        pop = Population.from_arrays({**arrays, "values": values, "offsets": offsets})
        if arrays["loss"].shape != (len(pop),) or arrays["loss"].dtype != np.float64:
            raise ValueError("losses that are not those of its formulas")
        return cls(pop, arrays["loss"])


class FormulaArchive:
    """What a search has evaluated, at most so many forms; 0: nothing is kept."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pop, self._loss = Population([], [], [0]), np.empty(0, np.float64)
        self._new: list[tuple[Population, np.ndarray]] = []
        self._n_new = 0

    def add(self, pop: Population, loss: Any) -> None:
        """Add formulas over x1, x2, … whose numbers are constants, where their losses are finite."""
        loss = np.asarray(loss, np.float64)
        if not self._most or not len(usable := np.flatnonzero(np.isfinite(loss))):
            return
        self._new.append((pop if len(usable) == len(pop) else pop[usable], loss[usable]))
        self._n_new += len(usable)
        if self._n_new >= max(LEAST_NEW, len(self._pop)):
            self._sort_in()

    def formulas(self, columns: tuple[str, ...] | None = None) -> VisitedFormulas:
        """All so far, with these names of their columns."""
        self._sort_in()
        pop = self._pop
        return VisitedFormulas(Population(pop.kinds, pop.values, pop.offsets, variables=columns), self._loss)

    def _sort_in(self) -> None:
        """The best of every form, old or new; of too many the best of every size."""
        pops, losses = zip((self._pop, self._loss), *self._new, strict=True)
        self._new, self._n_new = [], 0
        pop, loss = Population.concatenate(pops), np.concatenate(losses)
        best = np.argsort(loss, kind="stable")
        _, form = Population(pop.kinds, np.where(pop.kinds == CONSTANT, 0, pop.values), pop.offsets).unique()
        best = best[np.sort(np.unique(form[best], return_index=True)[1])]
        if len(best) > self._most:
            sizes = pop.n_tokens[best]
            order = np.argsort(sizes, kind="stable")
            rank = np.empty(len(best), np.int64)
            rank[order] = np.arange(len(best)) - np.searchsorted(sizes[order], sizes[order])
            best = best[np.sort(np.argsort(rank, kind="stable")[: self._most])]
        self._pop, self._loss = pop[best], loss[best]
