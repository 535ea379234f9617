"""Simplification of a search's front: formulas with fewer or simpler numbers, fitted again, as long as the loss allows.

In: a ``Discovery``.  Out: its front, on which simpler formulas have taken the place of others.

    >>> import numpy as np
    >>> import exprkit as ek
    >>> from exprkit.regression.stages.discovery import Discovery
    >>> from exprkit.regression.problem.sample import Sample
    >>> from exprkit.regression.stages.settings import SearchSettings
    >>> from exprkit.runtime.budget import Budget
    >>> X = np.random.default_rng(0).uniform(1, 2, (50, 1))
    >>> search = Discovery(Sample(X, 3 * np.exp(X[:, 0])), SearchSettings(), Budget())
    >>> search.offer(ek.parse(["2.9 * exp(1.02 * x1) + 0.003"]))
    >>> search.simpler.polish()
    >>> print(search.front.entries()[-1].expression)
    3 * exp(x1)

A formula is polished once: what has come of it then would be the same another time.  One with more numbers than half
the rows is left as it is: it is an interpolation, and there are very many of those.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.regression.formulas import parameters as constants
from exprkit.regression.formulas.front import Entry, Front
from exprkit.regression.formulas.simplify import as_quotient, completed, expanded, hoisted, rescaled
from exprkit.regression.formulas.values import values_of
from exprkit.regression.problem import effort
from exprkit.regression.problem.sample import Sample
from exprkit.regression.stages.settings import SearchSettings
from exprkit.runtime.budget import Budget, Ended


class FrontSearch(Protocol):
    """What is to be known of a ``Discovery``."""

    sample: Sample
    some: Sample
    settings: SearchSettings
    budget: Budget
    front: Front
    usual_loss: float
    is_exact: bool

    def offer(self, formulas: Iterable[Expression], front: Front | None = None) -> None: ...

    def refitted(
        self, formulas: Sequence[Expression], held: Callable[[float], bool] | None = None
    ) -> list[Expression]: ...

    def allowed(self, formulas: list[Expression]) -> list[Expression]: ...


class Simpler:
    """What makes the formulas of a search's front simpler."""

    def __init__(self, search: FrontSearch) -> None:
        self.search, self.front = search, search.front

    def polish(self) -> None:
        """Every formula without one of its numbers, or with a simple one; fitted, and so on with what that makes."""
        search = self.search
        search.offer(search.refitted([one.expression for one in self.front.entries() if self._is_open(one)]))
        done: set[Expression] = set()
        for _ in range(effort.SIMPLIFICATION.rounds):
            entries = self.front.entries()
            losses = np.array([entry.loss for entry in entries])
            limits = effort.SIMPLIFICATION.min_improvement * np.minimum.accumulate(losses)[:-1]
            better = losses < np.append(np.inf, limits)
            new = [one for one, is_better in zip(entries, better, strict=True) if is_better and self._is_open(one)]
            if not new:
                return
            for entry in new:
                for formula in (entry.expression, *rescaled(entry.expression)):
                    if formula not in done:
                        done.add(formula)
                        self._offer(formula, 64)
                self.front.mark_polished(entry)  # unless the search has ended meanwhile: ``finish`` begins with it then

    def _is_open(self, entry: Entry) -> bool:
        return not entry.is_polished and not self._is_interpolation(entry)

    def _is_interpolation(self, entry: Entry) -> bool:
        return 2 * constants.n_inexact(entry.expression) > len(self.search.sample)

    def _offer(self, formula: Expression, at_once: int) -> None:
        """The formula with one of its numbers simpler, fitted again, so many between two looks at the clock."""
        search, simpler = self.search, constants.simpler_numbers(formula)
        for k in range(0, len(simpler), at_once):
            search.budget.check()
            part = simpler[k : k + at_once]
            shorter = [other for other in part if other.n_tokens < formula.n_tokens]
            search.offer([*part, *search.refitted(shorter)])
            done = {(other, constants.fixed_numbers(other)) for other in shorter}
            for held in (constants.is_simple, constants.is_fraction):
                fits = [(other, constants.fixed_numbers(other, held)) for other in part]
                new = [fit for fit in fits if fit not in done and not all(fit[1])]
                done.update(new)
                search.offer(search.refitted([other for other, _ in new], held))

    def polish_best(self, most: int, longest: int) -> None:
        """The formula that takes the fewest nats, then what is the next one by then, so many of different sizes.

        Until one has more tokens than ``longest``.
        """
        done: set[int] = set()  # what comes of one may be no more than its numbers at another place
        for _ in range(most):
            left = [one for one in self.front.by_nats() if self._is_open(one) and one.size not in done]
            if self.search.is_exact or not left or left[0].size > longest:
                return
            for formula in (left[0].expression, *rescaled(left[0].expression)):
                self._offer(formula, 8)
            self.front.mark_polished(left[0])
            done.add(left[0].size)

    def finish(self) -> None:
        """The same until the time is over."""
        with contextlib.suppress(Ended):
            for _ in range(effort.SIMPLIFICATION.rounds):
                self.polish_best(effort.SIMPLIFICATION.best_formulas, self.front.maxsize)

    def settle(self) -> None:
        """The best formula, if it is nearly exact, with simple numbers: rounding may be all that is left."""
        search = self.search
        for _ in range(effort.SIMPLIFICATION.rounds if self.front.entries() else 0):
            best = self.front.entries()[-1]
            limit = effort.SIMPLIFICATION.max_exact_loss * search.usual_loss
            is_near = best.loss <= limit and not self._is_interpolation(best)
            if search.is_exact or not is_near:
                return
            search.budget.check()
            formulas = best.expression, *rescaled(best.expression)
            simpler = [other for formula in formulas for other in constants.simpler_numbers(formula)]
            search.offer([*simpler, *search.refitted(simpler), *search.refitted(simpler, held=constants.is_simple)])
            if self.front.entries()[-1] == best:
                return

    def exact(self) -> None:
        """Exact formulas without numbers that they can do without, as long as that makes them shorter."""
        self.search.is_exact = False
        for _ in range(effort.SIMPLIFICATION.rounds):
            before = self.front.entries()
            formulas = [entry.expression for entry in before[-3:]]
            for change in (constants.simpler_numbers, hoisted, rescaled, as_quotient, expanded, completed):
                self.search.offer([other for formula in formulas for other in change(formula)])
            if self.front.entries() == before:
                break

    def tidy(self) -> None:
        """The front without numbers that change no value by more than rounding."""
        search = self.search
        for _ in range(effort.SIMPLIFICATION.rounds):
            entries = self.front.entries()
            made = [(entry, other) for entry in entries
                    for other in search.allowed(constants.with_number_removed(entry.expression))]  # fmt: skip
            if not made:
                return
            pairs = [entry.expression for entry, _ in made], [other for _, other in made]
            before, after = (values_of(some, search.some.X, search.settings.threads) for some in pairs)
            with np.errstate(all="ignore"):
                equal = (np.abs(after - before) <= effort.SIMPLIFICATION.rounding * np.abs(before)).all(axis=1)
            needless = {made[k][0].size for k in np.flatnonzero(equal)}
            if not needless:
                return
            tidy = self.front.copy()
            tidy.restore(entry for entry in entries if entry.size not in needless)
            search.offer((made[k][1] for k in np.flatnonzero(equal)), tidy)
            self.front.restore(tidy.entries())  # all at once: who does not wait for the end looks at it
