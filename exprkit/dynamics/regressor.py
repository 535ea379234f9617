"""``DynamicsRegressor``: differential equations x' = f(x, u, t), or of second order, from trajectories.

In: states at times.  Out: an equation for each state, which can be printed, integrated and compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from exprkit.dynamics import integration
from exprkit.dynamics.choice import TINY, System, SystemChoice
from exprkit.dynamics.integration import RightHandSides
from exprkit.dynamics.invariants import invariants
from exprkit.dynamics.trajectories import ENDS, Trajectory, smoothed, times_of, trajectories
from exprkit.dynamics.weak_form import weak_sums
from exprkit.errors import ArgumentError, DataError, brought_by, checks_methods, flag, number_of, whole
from exprkit.expressions.expression import Expression
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population
from exprkit.numbers import as_numbers
from exprkit.regression.estimator.equations import rounded
from exprkit.regression.estimator.regressor import SymbolicRegressor, search_of
from exprkit.regression.estimator.searches_file import SavedSearches
from exprkit.regression.formulas.front import NATS_PER_NUMBER, NATS_PER_TOKEN
from exprkit.text.tokens import CONSTANT

with brought_by("search"):
    from sklearn.base import clone
    from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    import pandas as pd

SECONDS = 10.0  # of counted work, of a search for one equation
TIME = "t"  # the name of the time in formulas
ROUNDS = 2  # of searches: from the second on of slopes near those of the equations so far
EXACT = 10.0  # times ``integration.LEAST``, to which exact equations lead along the states
FAR = 1e12  # times the start, where a simulated state stays: a pole in time takes steps without end
ACCURATE = 1e-9  # relative tolerance of ``simulate``


@checks_methods
class DynamicsRegressor(SavedSearches):
    """Search for differential equations x' = f(x, u, t), or x'' = f(x, x', u, t), by formulas of any form.

    Derivatives come from smoothing splines; a ``SymbolicRegressor`` searches for each; then the best formulas of each
    front, and sums of monomials by the weak form, are integrated, with their numbers fitted to the states as they were
    measured, and the equations are those that describe the trajectories shortest.  Of several trajectories each has to
    be forecast by equations fitted to the others.  Where equations are not exact, all is done once more, with splines
    of what their integrals leave of the states alone.  Names are those of pysindy.

    Parameters
    ----------
    search : SymbolicRegressor, optional
        What searches for each equation; by default one of 10 s of counted work (``deterministic``).
    candidates : int
        How many formulas of each front are integrated.
    time : bool
        Whether formulas may contain the time, as t.
    order : int
        2: of the second derivatives of what was measured, by formulas of x and of x', ``x1_dot``, which is not.

    Attributes
    ----------
    searches_ : list of SymbolicRegressor
        The last searches, one for each state, with all their formulas.
    equations_ : DataFrame
        A row for each measured state: the right-hand side ("equation"), its "complexity" in tokens, and "r2", the share
        of the states' variance that integrated pieces of trajectories explain.
    feature_names_ : list of str
        The names of states, of order 2 of their derivatives, of inputs and, with ``time``, the time.

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

    KEPT: ClassVar = {"_formulas": Population, "feature_names_": list, "_r2": list, "_states": np.ndarray}
    SEARCHES: ClassVar = ("searches_",)

    def __init__(
        self, search: SymbolicRegressor | None = None, *, candidates: int = 5, time: bool = False, order: int = 1
    ) -> None:
        self.search = search
        self.candidates = candidates
        self.time = time
        self.order = order

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
        search, order = search_of(self.search, SECONDS), whole("order", self.order, 1, 2)
        runs, names = trajectories(x, t, x_dot, u, feature_names, order)
        if has_time and TIME in names:
            raise ArgumentError(f"with time=True {TIME} is the time, and can be no state's or input's name")
        self.feature_names_ = [*names, TIME] if has_time else names
        n_states, cut = runs[0].x.shape[1], 0 if x_dot is not None else ENDS
        sums = {"+", "*"} <= set(search.binary_operators or ["+", "*"])
        choice, d = SystemChoice(runs, has_time, order), n_states // order
        searched = range(n_states - d, n_states)  # of the others the derivatives are states
        fronts = [[] if k in searched else list(parse([f"x{k + d + 1}"])) for k in range(n_states)]
        best: System | None = None
        for _ in range(ROUNDS):
            if best is not None:
                runs, fronts = self._nearer(runs, best.formulas), [[formula] for formula in best.formulas]
            X, slopes = (
                np.concatenate(parts) for parts in zip(*(_rows(run, has_time, cut) for run in runs), strict=True)
            )
            table = dict(zip(self.feature_names_, X.T, strict=True))
            errors = np.mean([run.error for run in runs], axis=0)
            self.searches_ = [clone(search).fit(table, slopes[:, k]) for k in searched]
            weak = weak_sums(runs, order, has_time) if sums else [[]] * d
            for k, model, more in zip(searched, self.searches_, weak, strict=True):
                fronts[k] += self._candidates(model, float(errors[k]), choice.n_times, n_candidates)
                fronts[k] += [formula for formula in more if formula.n_tokens <= search.maxsize]
            best = choice.best_of(fronts)
            if x_dot is not None or not EXACT * integration.LEAST < np.sqrt(best.sums.max() / choice.n_times) < np.inf:
                break
        assert best is not None
        best = choice.forecasting(best)
        pop = best.formulas
        self._formulas = Population(pop.kinds, pop.values, pop.offsets, variables=self.feature_names_)
        self._states = np.concatenate([run.x for run in runs])
        spread = np.sum(((self._states - self._states.mean(axis=0)) / choice.segments.spread) ** 2, axis=0)
        self._r2 = 1 - best.sums / np.maximum(spread, TINY)
        return self

    def _candidates(self, model: SymbolicRegressor, error: float, n_times: int, n: int) -> list[Expression]:
        """The selected formula of a search, and beside it those described shortest and those of the steepest steps.

        ``error``: the standard error of the slopes that were searched, below which no formula is better than another.
        """
        table = model.equations_
        named = parse(list(table["equation"]), variables=self.feature_names_)
        formulas = list(Population(named.kinds, named.values, named.offsets))
        numbers = [int(np.sum(formula.kinds == CONSTANT)) for formula in formulas]
        loss = np.maximum(table["loss"] + error**2, TINY)
        length = n_times / 2 * np.log(loss) + NATS_PER_TOKEN * named.n_tokens + NATS_PER_NUMBER * np.array(numbers)
        orders = np.argsort(length, kind="stable"), np.argsort(-table["score"], kind="stable")
        order = [*np.flatnonzero(table["selected"]), *np.stack(orders, axis=1).ravel()]
        return [formulas[k] for k in list(dict.fromkeys(order))[:n]]

    def _nearer(self, runs: list[Trajectory], formulas: Population) -> list[Trajectory]:
        """The trajectories as integrals of equations and a remainder, which alone is smoothed.

        The remainder is smaller and smoother than the states, and so is the error of its slopes.
        """
        with brought_by("search"):
            from scipy.interpolate import make_interp_spline

        f, nearer, order, d = RightHandSides(formulas, self.time), [], self.order, len(formulas) // self.order
        for run in runs:
            slope = f(run.smooth, run.u, run.t, np.broadcast_to(f.numbers, (len(run.t), len(f.numbers))))[:, -d:]
            if np.isfinite(slope).all():
                spline = make_interp_spline(run.t, slope, k=5)
                integrals = [spline.antiderivative(n)(run.t) for n in range(order, -1, -1)]
                rest, more, error = smoothed(run.t, run.x[:, :d] - integrals[0], order)
                smooth, slope = np.hstack(integrals[:-1]) + rest, np.hstack(integrals[1:]) + more
                run = run._replace(x=np.hstack([run.x[:, :d], smooth[:, d:]]), smooth=smooth, slope=slope, error=error)
            nearer.append(run)
        return nearer

    # ── what was learnt ──

    @property
    def equations_(self) -> pd.DataFrame:
        with brought_by("search"):
            import pandas as pd

        check_is_fitted(self, "_formulas")
        pop = self._searched
        table = {"equation": pop.texts(), "complexity": pop.n_tokens, "r2": self._r2[: len(pop)]}
        return pd.DataFrame(table, index=self.feature_names_[: len(pop)])

    @property
    def _searched(self) -> Population:
        """The formulas that were searched for: not x' where that is a state."""
        return self._formulas[len(self._formulas) - len(self._formulas) // self.order :]

    def equations(self, precision: int = 3) -> list[str]:
        """The right-hand sides as texts, numbers with ``precision`` digits."""
        check_is_fitted(self, "_formulas")
        return [str(rounded(formula, whole("precision", precision, 1, 17))) for formula in self._searched]

    def print(self, precision: int = 3) -> None:
        """Print the equations, a line for each state, numbers with ``precision`` digits."""
        texts, dashes = self.equations(precision), "'" * self.order
        for name, text in zip(self.feature_names_, texts, strict=False):
            print(f"({name}){dashes} = {text}")

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
        conserved = invariants(RightHandSides(self._formulas, self.time), self._states)
        named = (Expression(formula.kinds, formula.values, tuple(self.feature_names_)) for formula in conserved)
        return [str(rounded(formula, whole("precision", precision, 1, 17))) for formula in named]

    def predict(self, x: Any, u: Any = None, t: Any = 0.0) -> np.ndarray:
        """Derivatives, float64 (n_times, n_states), at states ``x`` with inputs ``u`` and times ``t``.

        With ``order=2`` the second ones, at x and x', (n_times, 2 n_states).
        """
        check_is_fitted(self, "_formulas")
        f = RightHandSides(self._formulas, self.time)
        x, n = np.atleast_1d(as_numbers("x", x, gaps=False).astype(np.float64)), len(self._formulas)
        if x.shape[-1] != n and n > 1:
            raise DataError(f"x must be of shape (n_times, {n}), not {x.shape}")
        x = x.reshape(-1, n)
        known = self._inputs(u, len(x))
        times = np.broadcast_to(np.asarray(t, np.float64), len(x))
        return f(x, known, times, np.broadcast_to(f.numbers, (len(x), len(f.numbers))))[:, -len(self._searched) :]

    def simulate(self, x0: Any, t: Any, u: Any = None) -> np.ndarray:
        """States, float64 (n_times, n_states), from ``x0`` on, at increasing times ``t``.

        ``u`` as for ``fit``, or a function of the time.  With ``order=2`` states, and ``x0``, are x and x'.
        They are nan from where one is beyond 1e12 times the largest of ``x0`` and 1, as on their way to infinity.
        """
        with brought_by("search"):
            from scipy.integrate import solve_ivp

        check_is_fitted(self, "_formulas")
        start = as_numbers("x0", x0, gaps=False).astype(np.float64).ravel()
        times = times_of(t)
        if len(start) != len(self._formulas) or not np.isfinite(start).all():
            what = "state" if self.order == 1 else "state and each derivative"
            raise DataError(f"x0 must have {number_of(len(self._formulas), 'finite number')}, one for each {what}")
        inputs_at = u
        if not callable(u):
            known = self._inputs(u, len(times))

            def inputs_at(now: float) -> np.ndarray:
                return np.array([np.interp(now, times, column) for column in known.T])

        f, limit = RightHandSides(self._formulas, self.time), FAR * max(1.0, float(np.max(np.abs(start))))

        def slope(now: float, state: np.ndarray) -> np.ndarray:
            if not np.max(np.abs(state)) < limit:  # it stays there
                return np.zeros(len(state))
            return f(state[None], self._inputs(inputs_at(now), 1), np.array([now]), f.numbers[None])[0]

        path = np.full((len(times), len(start)), np.nan)
        if len(times) == 1:
            return start[None]
        with np.errstate(all="ignore"):
            solved = solve_ivp(slope, (times[0], times[-1]), start, "LSODA", times, rtol=ACCURATE, atol=ACCURATE)
        is_near = np.logical_and.accumulate(np.max(np.abs(solved.y), axis=0) < limit)
        path[: solved.y.shape[1]][is_near] = solved.y.T[is_near]
        return path

    def _inputs(self, u: Any, n: int) -> np.ndarray:
        """Inputs of n points, (n, n_inputs)."""
        shape = n, len(self.feature_names_) - len(self._formulas) - self.time
        known = np.empty((n, 0)) if u is None else as_numbers("u", u, gaps=False).astype(np.float64)
        if known.size != shape[0] * shape[1]:
            raise DataError(f"u must be of shape {shape}, not {known.shape}")
        return known.reshape(shape)

    def score(self, x: Any, t: Any, x_dot: Any = None, u: Any = None) -> float:
        """R2 of the derivatives, all states together; ``x``, ``t``, ``x_dot`` and ``u`` are as for ``fit``."""
        check_is_fitted(self, "_formulas")
        runs, _ = trajectories(x, t, x_dot, u, order=self.order)
        slopes = np.concatenate([run.slope for run in runs])[:, -len(self._searched) :]
        fitted = np.concatenate([self.predict(run.smooth, run.u, run.t) for run in runs])
        spread = np.sum((slopes - slopes.mean(axis=0)) ** 2)
        return float(1 - np.sum((slopes - fitted) ** 2) / spread)


def _rows(run: Trajectory, has_time: bool, cut: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns for a search and derivatives, without the ends of a trajectory."""
    inner = slice(cut, len(run.t) - cut)
    time = [run.t[inner, None]] if has_time else []
    return np.concatenate([run.smooth[inner], run.u[inner], *time], axis=1), run.slope[inner]
