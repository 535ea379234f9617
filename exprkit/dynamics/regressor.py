"""``DynamicsRegressor``: differential equations x' = f(x, u, t) from trajectories.

In: states at times.  Out: an equation for each state, which can be printed, integrated and compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from exprkit.dynamics import integration
from exprkit.dynamics.integration import RightHandSides, Segments
from exprkit.dynamics.invariants import invariants
from exprkit.dynamics.terms import monomials, with_terms, without_term
from exprkit.dynamics.trajectories import ENDS, Trajectory, smoothed, trajectories
from exprkit.errors import ArgumentError, DataError, brought_by, checks_methods, flag, number_of, whole
from exprkit.expressions.expression import Expression
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population
from exprkit.regression.estimator.equations import rounded
from exprkit.regression.estimator.regressor import SymbolicRegressor
from exprkit.regression.formulas.parameters import with_number_removed
from exprkit.regression.shapes.growth import NATS_PER_NUMBER, NATS_PER_TOKEN
from exprkit.text.tokens import CONSTANT

with brought_by("search"):
    from sklearn.base import BaseEstimator, clone
    from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    import pandas as pd

SECONDS = 10.0  # of counted work, of a search for one equation
TIME = "t"  # the name of the time in formulas
DEGREE = 3  # of the monomials that may be added
MOST_ADDED = 5  # terms
TRIED = 2  # terms of each equation that are fitted, of those that lower the sum of squares most by the derivatives
TINY = np.finfo(float).tiny
ROUNDS = 2  # of searches: from the second on of slopes near those of the equations so far
EXACT = 10.0  # times ``integration.LEAST``, to which exact equations lead along the states
FAR = 1e12  # times the start, where a simulated state stays: a pole in time takes steps without end
ACCURATE = 1e-9  # relative tolerance of ``simulate``


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


@checks_methods
class DynamicsRegressor(BaseEstimator):
    """Search for differential equations x' = f(x, u, t), by formulas of any form.

    Derivatives come from smoothing splines; a ``SymbolicRegressor`` searches for each; then the best formulas of each
    front are integrated, with their numbers fitted to the states as they were measured, and the equations are those
    that describe the trajectories shortest.  Where these are not exact, all is done once more, with splines of what
    the equations' integrals leave of the states alone.  Names are those of pysindy.

    Parameters
    ----------
    search : SymbolicRegressor, optional
        What searches for each equation; by default one of 10 s of counted work (``deterministic``).
    candidates : int
        How many formulas of each front are integrated.
    time : bool
        Whether formulas may contain the time, as t.

    Attributes
    ----------
    searches_ : list of SymbolicRegressor
        The last searches, one for each state, with all their formulas.
    equations_ : DataFrame
        A row for each state: the right-hand side ("equation"), its "complexity" in tokens, and "r2", the share of the
        measured states' variance that integrated pieces of trajectories explain.
    feature_names_ : list of str
        The names of states, inputs and, with ``time``, the time.

    Examples
    --------
    >>> import exprkit as ek, numpy as np
    >>> t = np.linspace(0, 4, 60)
    >>> x = 10 / (1 + 9 * np.exp(-1.5 * t))
    >>> search = ek.SymbolicRegressor(niterations=0, maxsize=9, unary_operators=[], random_state=0)
    >>> model = ek.DynamicsRegressor(search).fit(x, t, feature_names=["n"])
    >>> round(model.score(x, t), 3), model.predict([[5.0]]).round(1)  # model.print() shows the equations
    (1.0, array([[3.8]]))
    >>> bool(np.abs(model.simulate([1.0], t)[:, 0] - x).max() < 0.1)
    True
    """

    def __init__(self, search: SymbolicRegressor | None = None, *, candidates: int = 5, time: bool = False) -> None:
        self.search = search
        self.candidates = candidates
        self.time = time

    def fit(
        self, x: Any, t: Any, x_dot: Any = None, u: Any = None, feature_names: Sequence[str] | None = None
    ) -> DynamicsRegressor:
        """Search for the equations of one trajectory or of several.

        Parameters
        ----------
        x : array or table, (n_times, n_states), or list of these
            States as measured; a list holds several trajectories of the same system, of any lengths.
        t : float, array (n_times,), or list of arrays
            The time between measurements, or the times, which may be irregular.
        x_dot : as x, optional
            Derivatives, where they were measured.
        u : array (n_times, n_inputs), or list of these, optional
            Inputs that are known, linear between the times.
        feature_names : list of str, optional
            Names of the states, and of the inputs; by default a table's columns, or x1, x2, …, u1, u2, …

        Raises
        ------
        DataError
            For shapes that do not fit, missing numbers, times that do not increase, or fewer than 12 of them.
        ArgumentError
            For a parameter or names that can't be.
        """
        n_candidates, has_time = whole("candidates", self.candidates, 1), flag("time", self.time)
        if not isinstance(self.search, SymbolicRegressor | None):
            raise ArgumentError("search must be a SymbolicRegressor")
        runs, names = trajectories(x, t, x_dot, u, feature_names)
        if has_time and TIME in names:
            raise ArgumentError(f"with time=True {TIME} is the time, and can be no state's or input's name")
        self.feature_names_ = [*names, TIME] if has_time else names
        n_states, cut = runs[0].x.shape[1], 0 if x_dot is not None else ENDS
        search = self.search or SymbolicRegressor(timeout_in_seconds=SECONDS, random_state=0, deterministic=True)
        self._segments, self._n = Segments.of(runs), sum(len(run.t) for run in runs)
        fronts: list[list[Expression]] = [[] for _ in range(n_states)]
        for _ in range(ROUNDS):
            X, slopes = (
                np.concatenate(parts) for parts in zip(*(_rows(run, has_time, cut) for run in runs), strict=True)
            )
            table = dict(zip(self.feature_names_, X.T, strict=True))
            errors = np.mean([run.error for run in runs], axis=0)
            self.searches_ = [clone(search).fit(table, slopes[:, k]) for k in range(n_states)]
            for front, model, error in zip(fronts, self.searches_, errors, strict=True):
                front += self._candidates(model, float(error), n_candidates)
            best = self._choose(fronts)
            if x_dot is not None or not EXACT * integration.LEAST < np.sqrt(best.sums.max() / self._n) < np.inf:
                break
            runs, fronts = self._nearer(runs, best), [[formula] for formula in best.formulas]
        return self

    def _candidates(self, model: SymbolicRegressor, error: float, n: int) -> list[Expression]:
        """The selected formula of a search, and beside it those described shortest and those of the steepest steps.

        ``error``: the standard error of the slopes that were searched, below which no formula is better than another.
        """
        table = model.equations_
        named = parse(list(table["equation"]), variables=self.feature_names_)
        formulas = list(Population(named.kinds, named.values, named.offsets))
        numbers = [int(np.sum(formula.kinds == CONSTANT)) for formula in formulas]
        loss = np.maximum(table["loss"] + error**2, TINY)
        length = self._n / 2 * np.log(loss) + NATS_PER_TOKEN * named.n_tokens + NATS_PER_NUMBER * np.array(numbers)
        orders = np.argsort(length, kind="stable"), np.argsort(-table["score"], kind="stable")
        order = [*np.flatnonzero(table["selected"]), *np.stack(orders, axis=1).ravel()]
        return [formulas[k] for k in list(dict.fromkeys(order))[:n]]

    def _nearer(self, runs: list[Trajectory], best: System) -> list[Trajectory]:
        """The trajectories as integrals of the best equations and a remainder, which alone is smoothed.

        The remainder is smaller and smoother than the states, and so is the error of its slopes.
        """
        with brought_by("search"):
            from scipy.interpolate import make_interp_spline

        f, nearer = RightHandSides(best.formulas, self.time), []
        for run in runs:
            slope = f(run.smooth, run.u, run.t, np.broadcast_to(f.numbers, (len(run.t), len(f.numbers))))
            if np.isfinite(slope).all():
                integral = make_interp_spline(run.t, slope, k=5).antiderivative()(run.t)
                rest, more, error = smoothed(run.t, run.x - integral)
                run = run._replace(smooth=integral + rest, slope=slope + more, error=error)
            nearer.append(run)
        return nearer

    def _choose(self, fronts: list[list[Expression]]) -> System:
        """Take of each front the formula with which all are described shortest; add terms, and leave some out."""
        best = self._integrated([front[0] for front in fronts])
        for k, front in enumerate(fronts):
            best = min([best, *(self._integrated(best.exchanged(k, other)) for other in front[1:])], key=_length)
        best = self._shorter(self._longer(best))
        pop, known = best.formulas, self._segments.known
        self._formulas = Population(pop.kinds, pop.values, pop.offsets, variables=self.feature_names_)
        spread = [np.sum((x - x.mean()) ** 2) for x in (self._segments.x[known] / self._segments.spread).T]
        self._r2 = 1 - best.sums / np.maximum(spread, TINY)
        return best

    def _longer(self, best: System) -> System:
        """The equations with monomials added, as long as one makes the description shorter (forward selection)."""
        search = self.search or SymbolicRegressor()
        if np.isinf(best.length) or not {"+", "*"} <= set(search.binary_operators or ["+", "*"]):
            return best
        known = self._segments.known
        t = self._segments.t[..., None] if self.time else np.empty((*known.shape, 0))
        columns = np.concatenate([self._segments.x, self._segments.u, t], axis=2)[known]
        terms = monomials(columns.shape[1], DEGREE)
        largest = np.array([np.abs(term(columns)).max() for term in terms])
        for _ in range(MOST_ADDED):
            longer = [
                best.exchanged(k, other)
                for k in range(len(best.sums))
                for other in self._with_term(best, k, terms, largest)
                if other.n_tokens <= search.maxsize
            ]
            nearest = min(map(self._integrated, longer), key=_length, default=best)
            if nearest.length >= best.length:
                break
            best = nearest
        return best

    def _with_term(self, best: System, k: int, terms: list[Expression], largest: np.ndarray) -> list[Expression]:
        """The formula of state k with each of the terms that lower the sum of squares most."""
        segments, formula = self._segments._replace(starts=best.starts), best.formulas[k]
        sizes = segments.spread[k] / np.ptp(segments.t, axis=1).max() / np.maximum(largest, TINY)
        first = int(np.sum(np.concatenate([f.kinds for f in list(best.formulas)[: k + 1]]) == CONSTANT))
        every = Population.of(best.exchanged(k, with_terms(formula, terms, [0.0] * len(terms))))
        gain, numbers = integration.gains(every, segments, self.time, slice(first, first + len(terms)), sizes)
        order = [j for j in np.argsort(-gain, kind="stable")[:TRIED] if gain[j] > 0]
        return [with_terms(formula, [terms[j]], [float(numbers[j])]) for j in order]

    def _shorter(self, best: System) -> System:
        """The equations without the numbers and terms that add nothing."""
        for k in range(len(best.sums)):
            while shorter := [*with_number_removed(best.formulas[k]), *without_term(best.formulas[k])]:
                least = min(
                    (self._integrated(best.exchanged(k, other)) for other in dict.fromkeys(shorter)), key=_length
                )
                if least.length >= best.length:
                    break
                best = least
        return best

    def _integrated(self, chosen: list[Expression]) -> System:
        """These right-hand sides, with numbers fitted to the states."""
        fitted, sums, starts = integration.fitted(Population.of(chosen), self._segments, self.time)
        errors = self._n / 2 * np.log(np.maximum(sums / self._n, integration.LEAST**2))
        numbers = int(np.sum(fitted.kinds == CONSTANT))
        length = float(np.sum(errors)) + NATS_PER_TOKEN * len(fitted.kinds) + NATS_PER_NUMBER * numbers
        return System(length, fitted, sums, starts)

    # ── what was learnt ──

    @property
    def equations_(self) -> pd.DataFrame:
        with brought_by("search"):
            import pandas as pd

        check_is_fitted(self, "_formulas")
        table = {"equation": self._formulas.texts(), "complexity": self._formulas.n_tokens, "r2": self._r2}
        return pd.DataFrame(table, index=self.feature_names_[: len(self._formulas)])

    def equations(self, precision: int = 3) -> list[str]:
        """The right-hand sides as texts, numbers with ``precision`` digits."""
        check_is_fitted(self, "_formulas")
        return [str(rounded(formula, whole("precision", precision, 1, 17))) for formula in self._formulas]

    def print(self, precision: int = 3) -> None:
        """Print the equations, a line for each state, numbers with ``precision`` digits."""
        for name, text in zip(self.feature_names_, self.equations(precision), strict=False):
            print(f"({name})' = {text}")

    def invariants(self, precision: int = 3) -> list[str]:
        """What the equations conserve: sums of at most four powers and functions of the states.

        Parameters
        ----------
        precision : int
            Digits of numbers.

        Returns
        -------
        list of str
            Quantities that do not depend on each other, those of fewest terms first, which the equations as they are
            conserve.

        Raises
        ------
        ArgumentError
            For equations with inputs or the time.
        """
        check_is_fitted(self, "_formulas")
        if len(self.feature_names_) > len(self._formulas):
            raise ArgumentError("equations with inputs or the time conserve nothing that is a function of the states")
        states = self._segments.x[self._segments.known]
        conserved = invariants(RightHandSides(self._formulas, self.time), states)
        named = (Expression(formula.kinds, formula.values, tuple(self.feature_names_)) for formula in conserved)
        return [str(rounded(formula, whole("precision", precision, 1, 17))) for formula in named]

    def predict(self, x: Any, u: Any = None, t: Any = 0.0) -> np.ndarray:
        """Derivatives, float64 (n_times, n_states), at states ``x`` with inputs ``u`` and times ``t``."""
        check_is_fitted(self, "_formulas")
        f = RightHandSides(self._formulas, self.time)
        x = np.asarray(x, np.float64).reshape(-1, len(self._formulas))
        known = self._inputs(u, len(x))
        times = np.broadcast_to(np.asarray(t, np.float64), len(x))
        return f(x, known, times, np.broadcast_to(f.numbers, (len(x), len(f.numbers))))

    def simulate(self, x0: Any, t: Any, u: Any = None) -> np.ndarray:
        """States, float64 (n_times, n_states), from ``x0`` on, at increasing times ``t``; ``u`` as for ``fit``.

        States are nan from where one is beyond 1e12 times the largest of ``x0`` and 1, as on their way to infinity.
        """
        with brought_by("search"):
            from scipy.integrate import solve_ivp

        check_is_fitted(self, "_formulas")
        times, start = np.asarray(t, np.float64), np.asarray(x0, np.float64).ravel()
        if len(start) != len(self._formulas):
            raise DataError(f"x0 must have {number_of(len(self._formulas), 'number')}, one for each state")
        known = self._inputs(u, len(times))

        f, limit = RightHandSides(self._formulas, self.time), FAR * max(1.0, float(np.max(np.abs(start))))

        def slope(now: float, state: np.ndarray) -> np.ndarray:
            if not np.max(np.abs(state)) < limit:  # it stays there
                return np.zeros(len(state))
            inputs = np.array([[np.interp(now, times, column) for column in known.T]])
            return f(state[None], inputs, np.array([now]), f.numbers[None])[0]

        path = np.full((len(times), len(start)), np.nan)
        with np.errstate(all="ignore"):
            solved = solve_ivp(slope, (times[0], times[-1]), start, "LSODA", times, rtol=ACCURATE, atol=ACCURATE)
        is_near = np.logical_and.accumulate(np.max(np.abs(solved.y), axis=0) < limit)
        path[: solved.y.shape[1]][is_near] = solved.y.T[is_near]
        return path

    def _inputs(self, u: Any, n: int) -> np.ndarray:
        """Inputs of n points, (n, n_inputs)."""
        shape = n, len(self.feature_names_) - len(self._formulas) - self.time
        known = np.empty((n, 0)) if u is None else np.asarray(u, np.float64)
        if known.size != shape[0] * shape[1]:
            raise DataError(f"u must be of shape {shape}, not {known.shape}")
        return known.reshape(shape)

    def score(self, x: Any, t: Any, x_dot: Any = None, u: Any = None) -> float:
        """R2 of the derivatives, all states together; ``x``, ``t``, ``x_dot`` and ``u`` are as for ``fit``."""
        runs, _ = trajectories(x, t, x_dot, u)
        slopes = np.concatenate([run.slope for run in runs])
        fitted = np.concatenate([self.predict(run.smooth, run.u, run.t) for run in runs])
        spread = np.sum((slopes - slopes.mean(axis=0)) ** 2)
        return float(1 - np.sum((slopes - fitted) ** 2) / spread)


def _rows(run: Trajectory, has_time: bool, cut: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns for a search and derivatives, without the ends of a trajectory."""
    inner = slice(cut, len(run.t) - cut)
    time = [run.t[inner, None]] if has_time else []
    return np.concatenate([run.smooth[inner], run.u[inner], *time], axis=1), run.slope[inner]
