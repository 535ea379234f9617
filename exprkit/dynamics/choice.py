"""The choice among formulas of right-hand sides: those that describe measured states shortest.

In: formulas for each state, from searches by slopes.  Out: a ``System``, its numbers fitted by integration, without
terms that add nothing; of several trajectories, each of which the others have to forecast, that which does so.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from exprkit.dynamics import integration
from exprkit.dynamics.integration import INTERVALS, Segments
from exprkit.dynamics.terms import without_term
from exprkit.dynamics.trajectories import Trajectory
from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.regression.formulas.front import NATS_PER_NUMBER, NATS_PER_TOKEN
from exprkit.regression.formulas.parameters import as_parameters, with_number_removed
from exprkit.text.tokens import CONSTANT

# Chosen, not measured.
FINALISTS = 4  # systems that forecast trajectories
FOLDS = 3  # trajectories that are forecast
CLEAR = 20.0  # nats by which another system has to forecast better: errors along a trajectory depend on each other
TINY = np.finfo(float).tiny


class System(NamedTuple):
    """Right-hand sides, with what describes the states by them."""

    length: float  # nats
    formulas: Population
    sums: np.ndarray  # float64 (n_states,): squares, in units of the states' spreads
    starts: np.ndarray  # float64 (n_segments, n_states)

    def exchanged(self, k: int, formula: Expression) -> list[Expression]:
        """The formulas, with another one for state k."""
        return [formula if i == k else own for i, own in enumerate(self.formulas)]


_length = attrgetter("length")


def _nats(sums: np.ndarray, n: int) -> float:
    """Of errors of n states, by each state's sum of squares."""
    return float(np.sum(n / 2 * np.log(np.maximum(sums / n, integration.LEAST**2))))


@dataclass(frozen=True)
class SystemChoice:
    """What formulas are judged by."""

    runs: list[Trajectory]
    has_time: bool  # whether formulas may contain it, as the last column
    order: int = 1  # of the equations: the formulas of all states but the last are known where it is higher
    seen: dict[tuple[str, ...], System] = field(default_factory=dict)  # systems that were described, by their texts

    @functools.cached_property
    def segments(self) -> Segments:
        return Segments.of(self.runs, self.order, INTERVALS * self.order)

    @functools.cached_property
    def n_times(self) -> int:
        return sum(len(run.t) for run in self.runs)

    def best_of(self, fronts: list[list[Expression]]) -> System:
        """Of each front the formula with which all are described shortest, without terms that add nothing."""
        best = self.described([front[0] for front in fronts])
        for k, front in enumerate(fronts):
            best = min([best, *(self.described(best.exchanged(k, other)) for other in front[1:])], key=_length)
        return self.shorter(best)

    def described(self, chosen: list[Expression]) -> System:
        """These right-hand sides, with numbers fitted to the states."""
        if (key := tuple(map(str, chosen))) not in self.seen:
            fitted, sums, starts = integration.fitted(Population.of(chosen), self.segments, self.has_time)
            numbers = int(np.sum(fitted.kinds == CONSTANT))
            price = NATS_PER_TOKEN * len(fitted.kinds) + NATS_PER_NUMBER * numbers
            self.seen[key] = System(_nats(sums, self.n_times) + price, fitted, sums, starts)
        return self.seen[key]

    def forecasting(self, best: System) -> System:
        """Of the systems described shortest that which forecasts trajectories, each by the numbers of the others."""
        if len(self.runs) == 1 or np.isinf(best.length):
            return best
        forms = dict[tuple[str, ...], System]()
        for system in sorted([best, *self.seen.values()], key=_length):
            forms.setdefault(tuple(as_parameters(system.formulas)[0].texts()), system)
        finalists = [best, *(system for system in forms.values() if system.length > best.length)][:FINALISTS]
        nats = [self._nats_ahead(system) for system in finalists]
        k = int(np.argmin(nats))
        return finalists[k] if nats[k] < nats[0] - CLEAR else best

    def _nats_ahead(self, system: System) -> float:
        """Nats of the errors of whole trajectories, by numbers that are fitted to the others, from starts of theirs."""
        nats = 0.0
        for j in range(min(len(self.runs), FOLDS)):
            others = Segments.of([*self.runs[:j], *self.runs[j + 1 :]], self.order, INTERVALS * self.order)
            formulas, *_ = integration.fitted(system.formulas, others, self.has_time)
            n = len(self.runs[j].t)
            whole = Segments.of([self.runs[j]], self.order, n - 1)._replace(spread=others.spread)
            nats += _nats(integration.fitted(formulas, whole, self.has_time, are_known=True)[1], n)
        return nats

    def shorter(self, best: System) -> System:
        """The equations without the numbers and terms that add nothing."""
        for k in range(len(best.sums)):
            while shorter := [*with_number_removed(best.formulas[k]), *without_term(best.formulas[k])]:
                least = min((self.described(best.exchanged(k, other)) for other in dict.fromkeys(shorter)), key=_length)
                if least.length >= best.length:
                    break
                best = least
        return best
