"""``FitResult``: parameters, losses and errors of every fitted expression, and what can be made of them.

``fit`` makes it.  A number selects one expression with its numbers, everything else a part of the result.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from html import escape
from typing import TYPE_CHECKING, Annotated, Any, overload

import numpy as np

from exprkit.backends import objective
from exprkit.backends.objective import Options
from exprkit.errors import brought_by, checks_keywords, checks_methods, number_of, whole, whole_number
from exprkit.evaluate.evaluator import Evaluator
from exprkit.evaluate.inputs import column_name, infinite_columns
from exprkit.evaluate.tables import used_columns
from exprkit.expressions.population import Population
from exprkit.fitting import fit_file, ranking
from exprkit.fitting.finishing.factors import SMALL, rounding
from exprkit.fitting.finishing.orthogonal import linear
from exprkit.fitting.finishing.stationarity import FALLING, REASONS, is_stationary
from exprkit.fitting.fitted_expression import FittedExpression
from exprkit.fitting.likelihood import FitGoal, covariance, points_of
from exprkit.fitting.plot import beside_data
from exprkit.fitting.uncertainty import average
from exprkit.fitting.uncertainty.observed import curvature_covariance, robust_covariance
from exprkit.programs.linearity import dependence
from exprkit.text.printer import booktabs

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

EXPLAINED = 1e-3  # share of the spread of y below which a fit explains nothing
IDLE = 1e-9  # share of y by which a parameter that does not matter changes the values at the most
MOST_IDLE = 1 << 18  # values of expressions that are looked at, which takes some 0.2 s (two cores)
OTHER = np.outer([1, -1], 10.0 ** np.arange(-40, 40, 0.5)).ravel()  # what such a parameter might be instead
PAIRS = np.stack([side.ravel() for side in np.meshgrid(OTHER[::2], OTHER[::2])], axis=1)  # or two of them
MOST_PAIRS = 1 << 10  # rows of expressions for which pairs of three of them are tried, which takes some 0.3 s
LOST = "its terms are so much larger than y varies that their sum is lost in rounding: take an offset off the columns"
FAR = 1e3  # ranges of a column that its numbers may be from 0: a sentence names those beyond where a fit fails
FEW_DIGITS, MOST_DIGITS = 8, 16  # of a parameter, below which it is said how many rounding leaves; of a float64
SHOWN = 10  # rows of a table


@checks_methods
@dataclass(eq=False)
class FitResult:
    """The result of a fit, expression by expression.

    ===================  ==========================================================================
    attribute            what it holds
    ===================  ==========================================================================
    ``params``           float64 (n_exprs, max_params); nan where an expression has fewer
    ``loss``             float64 (n_exprs,), in terms of the loss that was given: the sum of
                         w r^2 ("squares"), the weighted mean of abs r ("mae"), the sum of w times
                         Huber's loss ("huber"), the negative log-likelihood ("gaussian", "poisson")
    ``iterations``       int32 (n_exprs,): iterations from the best start
    ``status``           uint8 (n_exprs,): why the fit ended, a number of ``objective.REASONS``
    ``converged``        bool (n_exprs,): the parameters are at a minimum, by a step that is short in units of the
                         standard errors; of screened fits (``accuracy``), rows that are read in pieces and losses
                         of your own that L-BFGS minimises up to a tenth of one, and of screened ones tested when it,
                         or why a fit ended, is first asked for
    ``reason``           the same in words, a list, with the parameters that ended at a bound, and the columns of X
                         that are infinite where the loss is not finite
    ``at_bound``         bool (n_exprs, max_params): the parameter ended at one of its finite bounds, so that its
                         value is that of the bound and not determined by the data
    ``r2``               float64 (n_exprs,): 1 - sum w r^2 / sum w (y - mean y)^2
    ``digits``           float64 (n_exprs, max_params): about how many digits of a parameter rounding leaves
    ``method``           "lm", "lbfgs" or "adam": a loss of your own other than a square, an absolute value or
                         Huber's is fitted by L-BFGS instead of Levenberg-Marquardt
    ``n_evaluations``    number of normal equations (or gradients) computed, over all expressions and starts
    ``seconds``          elapsed time
    ``covariance``       float64 (n_exprs, max_params, max_params) of the parameters, computed on first
                         use; nan for those that the data do not determine or that are at a bound
                         (the others' are computed with those fixed), for "mae" and its like (a density at 0 would be
                         needed), and where a loss of your own has a kink or no least value.  It is that of the
                         likelihood that the loss stands for: normal errors of one variance or, with weights, of
                         variances in proportion to 1 / weight ("squares"; of ``(log(f) - log(y))^2``: of log y);
                         a loss of your own that L-BFGS minimises counts as a negative log-likelihood as it stands,
                         so that its factor matters
    ``standard_errors``  float64 (n_exprs, max_params): roots of its diagonal; an interval of 95 % reaches as far as
                         Student's t, ``scipy.stats.t.ppf(0.975, n_points - n_params)``, times that: 1.96 for many
                         points, 3.2 for five points and two parameters
    ``robust_errors``    the same by a sandwich, without an assumption about the errors' distribution
    ``index``            int64 (n_exprs,): the expression's number in the population that was fitted
    ``ties``             str: a line ``name = expression`` for each tied parameter, or None
    ``columns``          further columns of its tables by name, (n_exprs,) each: what ``rank`` and ``fold`` found
    ``units``            dict of str: of columns and y, by name, as files keep it; empty after a fit
    ===================  ==========================================================================

    ``found[i]`` is a ``FittedExpression``; ``found[2:5]``, ``found[found.r2 > 0.9]`` and ``found[[3, 1]]`` are
    FitResults of these expressions.

    Examples
    --------
    >>> import exprkit as ek, numpy as np
    >>> x = np.linspace(0, 1, 20)[:, None]
    >>> found = ek.fit(ek.parse(["p1 * exp(p2 * x1)", "p1 + p2 * x1", "p2 * x1 + p1"]), x, 3 * np.exp(-x[:, 0]))
    >>> print(found.rank("bic")[0].latex(digits=3))
    3.00 \\cdot e^{-1.00 \\cdot x_{1}}
    >>> found.predict([[0.0], [2.0]], 0).round(3)
    array([3.   , 0.406])
    >>> len(found.fold())
    2
    """

    pop: Population
    params: Annotated[np.ndarray, "float[n, width]"]
    loss: Annotated[np.ndarray, "float[n]"]
    iterations: Annotated[np.ndarray, "int[n]"]
    ended: Annotated[np.ndarray, "int[n]"] = field(repr=False)  # uint8 (n_exprs,): ``status`` as the backend left it
    n_evaluations: int
    r2: Annotated[np.ndarray, "float[n]"]
    seconds: float
    goal: FitGoal = field(repr=False)
    _evaluator: Evaluator | None = field(repr=False)
    method: str = "lm"
    _composed: FitResult | None = field(default=None, repr=False)  # of what a loss of the user's own was fitted as
    index: Annotated[np.ndarray, "int[n]"] = None  # type: ignore[assignment]
    columns: Annotated[dict[str, np.ndarray], "number[n]"] = field(default_factory=dict)
    ties: str | None = None  # a line ``name = expression`` for each tied parameter
    units: dict[str, str] = field(default_factory=dict)  # of columns and y by name
    is_screened: bool = False  # nobody has looked whether the parameters are at a minimum

    def __post_init__(self) -> None:
        self.index = np.arange(len(self.pop)) if self.index is None else self.index

    @property
    def kind(self) -> str:
        return self.goal.loss

    @functools.cached_property
    def at_bound(self) -> np.ndarray:
        at_bound, dtype = np.zeros(self.params.shape, bool), self.goal.y.dtype
        with np.errstate(over="ignore"):
            for side in (side for side in (self.goal.lower, self.goal.upper) if side is not None):
                at_bound |= np.isfinite(side) & (self.params.astype(dtype) == side.astype(dtype))
        return at_bound

    @functools.cached_property
    def status(self) -> np.ndarray:
        if self._composed is not None:
            return self._composed.status
        status = self.ended.copy()
        settled = np.flatnonzero(np.isin(status, objective.CONVERGED) if self.is_screened else [])
        if len(settled):
            goal, sides = self.goal, (self.goal.lower, self.goal.upper)
            kind = objective.KINDS[goal.loss]
            delta = objective.floor_of(goal.y, goal.w) if kind == objective.ABSOLUTE else goal.delta
            few, options = self.pop[settled], Options(kind, delta, lower=sides[0], upper=sides[1])
            params = self.params[settled, : few.max_params]
            is_short = is_stationary(
                few, points_of(few, goal), options.of(settled, few.max_params), params, np.finfo(goal.y.dtype).eps
            )
            status[settled[~is_short]] = FALLING
        return status

    @functools.cached_property
    def converged(self) -> np.ndarray:
        if self._composed is not None:
            return self._composed.converged
        converged = np.isin(self.status, objective.CONVERGED)
        bent = np.bitwise_count(dependence(self.pop).linear) < self.pop.n_params
        far = bent & np.any(np.nan_to_num(self.params) != 0, axis=1) & (self.loss != 0)
        return converged & ~(far & (self.status == objective.FLAT)) & ~np.isin(np.arange(len(self)), self._idle[1])

    @property
    def reason(self) -> list[str]:
        words = [REASONS[status] for status in self.status.tolist()]
        lost = np.flatnonzero(self.status == objective.NOT_FINITE).tolist()
        infinite = infinite_columns(self.goal.X, self.goal.w, self.pop) if lost else {}
        for i in lost if infinite else ():
            words[i] = "; ".join([words[i], *(infinite[k] for k in used_columns(self.pop[[i]]) if k in infinite)])
        for i, sentence in self._idle[0].items():
            words[i] += f"; {sentence}"
        for i in np.flatnonzero(~self.converged & (self.pop.n_params > 0) if len(self._far) else []).tolist():
            far = [name for k, name in self._far.items() if k in used_columns(self.pop[[i]])]
            if far and not words[i].endswith(LOST):
                words[i] += f"; subtract an offset from {' and '.join(far)}, far from 0 beside the range"
        ended = self.converged | (self.status == objective.STUCK)
        for i in np.flatnonzero(ended & np.any(self.digits < FEW_DIGITS, axis=1)).tolist():
            names = [name for name, n in zip(self._names, self.digits[i], strict=True) if n < FEW_DIGITS]
            own = " and ".join(names if len(names) < 4 else [", ".join(names[:2]), f"{len(names) - 2} more"])
            words[i] += f"; rounding leaves about {number_of(int(np.nanmin(self.digits[i])), 'digit')} of {own}"
        for i in np.flatnonzero(self.at_bound.any(axis=1)).tolist():
            names = [name for name, there in zip(self._names, self.at_bound[i], strict=True) if there]
            head = REASONS[objective.FTOL] if self.status[i] == objective.GTOL else words[i]
            words[i] = f"{head}; {' and '.join(names)} at {'its bound' if len(names) == 1 else 'their bounds'}"
        return words

    @functools.cached_property
    def digits(self) -> np.ndarray:
        """About how many digits rounding leaves of each parameter, float64 (n_exprs, max_params), from 0 to 16.

        Of a parameter that is smaller than its standard error, those of that; nan of screened fits and of losses that
        have no such estimate.
        """
        inner, digits = self._composed or self, np.full(self.params.shape, np.nan)
        goal, kind = inner.goal, objective.KINDS.get(inner.goal.loss, objective.SUM)
        known = kind not in (objective.SUM, objective.ABSOLUTE) and goal.x_error is None
        if not known or self.is_screened or not 0 < self.params.size * len(goal.y) <= SMALL:
            return digits
        points, options = points_of(inner.pop, goal), Options(kind, goal.delta)
        moved = rounding(inner.pop, points, options, self.params, inner.evaluator.threads)
        with np.errstate(all="ignore"):
            digits = np.log10(np.fmax(np.abs(self.params), self.standard_errors) / moved)
        digits[self.at_bound] = MOST_DIGITS
        return np.clip(digits, 0, MOST_DIGITS)

    @functools.cached_property
    def _idle(self) -> tuple[dict[int, str], list[int]]:
        """What is said of fits no better than a constant, and which of them end at no minimum.

        Some parameters may change no value; it is no minimum where another size of one of them, or of two, makes the
        loss less.  Or values that are as large as terms of the formula are lost in rounding.
        """
        enough = (self.pop.n_params > 1) & (self.pop.n_params < len(self.goal.y))
        ended = np.isin(self.status, objective.CONVERGED)
        flat = np.flatnonzero(ended & (self.r2 < EXPLAINED) & enough)[: max(1, MOST_IDLE // max(1, len(self.goal.y)))]
        if self._composed is not None or self.kind not in ("squares", "gaussian") or not len(flat):
            return {}, []
        y, w = self.goal.y.astype(np.float64), self.goal.w
        ev = Evaluator(self.pop[flat], self.goal.X, "cpu", dtype="float64")
        p = self.params[flat, : ev.pop.max_params]
        with np.errstate(all="ignore"):
            moves = np.sqrt(np.diagonal(ev.normal_equations(p, y, w)[0], axis1=1, axis2=2)) * np.maximum(1, np.abs(p))
            idle = moves < IDLE * np.sqrt(np.sum((y if w is None else w * y) ** 2))
            least = (1 - IDLE) * ev.loss(p, y, "sse", weights=w)
            lower = np.zeros(len(flat), bool)
            for j in np.flatnonzero(idle.any(axis=0)).tolist():
                sets = np.repeat(p[None], len(OTHER), axis=0)
                sets[:, :, j] = OTHER[:, None]
                lower[idle[:, j] & np.any(ev.loss(sets, y, "sse", weights=w) < least, axis=0)] = True
            for row in np.flatnonzero(~lower & (np.sum(idle, axis=1) > 1))[: MOST_PAIRS // (1 + len(y))].tolist():
                one = Evaluator(ev.pop[[row]], self.goal.X, "cpu", dtype="float64")
                for pair in itertools.combinations(np.flatnonzero(idle[row, : one.pop.max_params])[:3].tolist(), 2):
                    sets = np.repeat(p[None, [row], : one.pop.max_params], len(PAIRS), axis=0)
                    sets[:, 0, pair] = PAIRS
                    lower[row] |= np.any(one.loss(sets, y, "sse", weights=w) < least[row])
            rounding = np.finfo(np.float64).eps * np.nanmax(moves, axis=1)
            lost = rounding > EXPLAINED * np.sqrt(np.sum((y - y.mean()) ** 2 if w is None else w * (y - y.mean()) ** 2))
        names, sentences = np.array(self._names), dict[int, str]()
        for i, row, is_lost in zip(flat.tolist(), idle, lost.tolist(), strict=True):
            own = row[: self.pop.n_params[i]]
            if own.any() and not own.all():
                moving = " and ".join(names[: len(own)][~own])
                sentences[i] = (
                    f"no better than a constant, no parameter but {moving} matters there: try init or restarts"
                )
            if is_lost:
                sentences[i] = LOST
        return sentences, flat[lower | lost].tolist()

    @functools.cached_property
    def _far(self) -> dict[int, str]:
        """Names of the columns that lie far from 0 for their range, by number."""
        low, high = (
            side(self.goal.X, axis=0, initial=np.nan).astype(np.float64) for side in (np.fmin.reduce, np.fmax.reduce)
        )
        far = np.flatnonzero((high > low) & (np.fmax(np.abs(low), np.abs(high)) > FAR * (high - low)))
        return {k: column_name(self.pop, k) for k in far.tolist()}

    @property
    def _names(self) -> list[str]:
        return self.pop.parameter_names[: self.params.shape[1]]

    @property
    def evaluator(self) -> Evaluator:
        """The evaluator of the fit; after pickling, or another fit of the same problem, a new one on the CPU."""
        if self._evaluator is None or self._evaluator.pop is not self.pop:
            self._evaluator = Evaluator(self.pop, self.goal.X, "cpu", dtype=self.goal.y.dtype)
        return self._evaluator

    @functools.cached_property
    def covariance(self) -> np.ndarray:
        if self._composed is not None:
            return self._composed.covariance
        if self.goal.x_error is not None:
            return self._at_true_x("covariance")
        make = curvature_covariance if self.goal.loss == "sum" else covariance
        return make(self.evaluator, self.params, self.goal, self.at_bound)

    @functools.cached_property
    def standard_errors(self) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))

    @functools.cached_property
    def robust_errors(self) -> np.ndarray:
        """Standard errors that assume no distribution of the errors: right for many points, however these vary.

        The roots of the diagonal of H^-1 B H^-1, a sandwich of the loss's curvature and its gradient's spread from
        point to point; nan for "mae".
        """
        if self._composed is not None:
            return self._composed.robust_errors
        if self.goal.x_error is not None:
            return self._at_true_x("robust_errors")
        matrices = robust_covariance(self.evaluator, self.params, self.goal, self.at_bound)
        with np.errstate(invalid="ignore"):
            return np.sqrt(np.diagonal(matrices, axis1=1, axis2=2))

    def _at_true_x(self, name: str) -> np.ndarray:
        """An attribute of what is fitted with errors in X, expression by expression."""
        parts, width = [getattr(linear(self[[i]]), name)[0] for i in range(len(self))], self.params.shape[1]
        return np.stack([np.pad(part, (0, width - len(part)), constant_values=np.nan) for part in parts])

    def best(self, n: int = 1, by: str = "loss") -> np.ndarray:
        """The numbers of the ``n`` best expressions ``by`` what ``rank`` takes; those without a loss last.

        >>> ek.fit(["p1 + x1", "p1 * x1"], [[1.0], [2.0], [3.0]], [2.0, 4.0, 6.0]).best(2)
        array([1, 0])
        """
        return np.argsort(ranking.sortable(self.score(by), by), kind="stable")[: whole("n", n, 0)]

    def to_pandas(self) -> pd.DataFrame:
        """A row per expression: its text, loss, R2, why it ended, parameters and their standard errors.

        >>> found = ek.fit(["p1 + x1", "p1 * x1"], [[1.0], [2.0], [3.0]], [2.1, 3.9, 6.0])
        >>> found.to_pandas()[["expression", "loss", "p1"]].round(3)
          expression   loss     p1
        0    p1 + x1  1.820  2.000
        1    p1 * x1  0.019  1.993
        """
        with brought_by("notebooks"):
            import pandas as pd

        names = self._names
        columns: dict[str, Any] = {"expression": self.pop.texts()}
        columns |= {name: getattr(self, name) for name in ("loss", "r2", "iterations", "converged", "reason")}
        columns |= {name: self.params[:, j] for j, name in enumerate(names)}
        columns |= {f"{name}_error": self.standard_errors[:, j] for j, name in enumerate(names)}
        return pd.DataFrame(columns | self.columns, index=self.index)

    # ── parts ──

    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> FittedExpression: ...
    @overload
    def __getitem__(self, index: slice | np.ndarray | list[int] | list[bool]) -> FitResult: ...
    def __getitem__(self, index: Any) -> FittedExpression | FitResult:
        """A FittedExpression for a number; a FitResult for a slice, an array of numbers or a mask."""
        number = whole_number(index)
        if number is None:
            return self._take(self.pop[index], self.pop.order_of(index))
        pop = self.pop[[number]]
        return FittedExpression(self._take(pop, np.array([number % len(self)])))

    def __iter__(self) -> Iterator[FittedExpression]:
        return (self[i] for i in range(len(self)))

    def _take(self, pop: Population, order: np.ndarray) -> FitResult:
        """Some of the expressions, in that order."""
        width = pop.max_params
        lower, upper = (None if side is None else side[order, :width] for side in (self.goal.lower, self.goal.upper))
        arrays = {one.name: getattr(self, one.name) for one in fields(self)}
        arrays = {name: value[order] for name, value in arrays.items() if isinstance(value, np.ndarray)}
        part = replace(
            self,
            **arrays | {"params": arrays["params"][:, :width], "pop": pop},
            goal=self.goal._replace(lower=lower, upper=upper),
            columns={name: column[order] for name, column in self.columns.items()},
            _composed=None if self._composed is None else self._composed[order],
            _evaluator=None,
        )
        if "covariance" in self.__dict__:
            part.__dict__["covariance"] = self.covariance[order, :width, :width]
        if "status" in self.__dict__:
            part.__dict__["status"] = self.status[order]
        return part

    # ── predictions ──

    def predict(self, X: Any, i: Any = None) -> np.ndarray:
        """Predictions of the fitted expressions for new data, in float64 on the CPU.

        Parameters
        ----------
        X : array (n_points, n_vars), DataFrame, dict of columns or Dataset
            As for ``fit``.
        i : int, slice, list or mask, optional
            Of these expressions; by default of all.

        Returns
        -------
        float64 array, (n_exprs, n_points); (n_points,) where ``i`` is a number

        Raises
        ------
        DataError
            If ``X`` does not fit.

        Examples
        --------
        >>> ek.fit(["p1 + x1", "p1 * x1"], [[1.0], [2.0], [3.0]], [2.0, 4.0, 6.0]).predict([[4.0]]).round(3)
        array([[6.],
               [8.]])
        """
        number = whole_number(i)
        part = self if i is None else self[[number] if number is not None else i]
        values = Evaluator(part.pop, X, "cpu", dtype="float64").evaluate(part.params)
        return np.asarray(values if number is None else values[0])

    def residuals(self, i: Any = None) -> np.ndarray:
        """y - f at the points of the fit, ``i`` as for ``predict``: float64 (n_exprs, n_points) or (n_points,).

        >>> ek.fit("p1 + x1", [[1.0], [2.0], [3.0]], [2.0, 4.0, 6.0]).residuals(0).round(3)
        array([-1.,  0.,  1.])
        """
        return self.goal.y.astype(np.float64) - self.predict(self.goal.X, i)

    # ── the best of many ──

    def score(self, by: str = "loss") -> np.ndarray:
        """The criterion ``by`` which ``rank`` sorts, (n_exprs,): less is better, except "r2"; nan or inf if none.

        >>> ek.fit(["p1 + x1", "p1 * x1"], [[1.0], [2.0], [3.0]], [2.1, 3.9, 6.0]).score("bic").round(1)
        array([ 9.2, -4.4])
        """
        return ranking.score(self, by)

    def rank(self, by: str = "loss") -> FitResult:
        """The same expressions, the best first; of those that are as good the simplest.

        Parameters
        ----------
        by : {"loss", "r2", "aic", "bic", "description_length", "nodes"}
            Akaike's and Schwarz's criteria take squared errors for normal ones of one variance.  The result has it as
            a column.

        Raises
        ------
        ArgumentError
            Where the fit's loss has no likelihood, which the last but one three need.

        Examples
        --------
        >>> ek.fit(["p1 + x1", "p1 * x1"], [[1.0], [2.0], [3.0]], [2.1, 3.9, 6.0]).rank("bic").pop.texts()
        ['p1 * x1', 'p1 + x1']
        """
        score = self.score(by)
        order = np.lexsort((self.pop.n_tokens, ranking.sortable(score, by)))
        ranked = self[order]
        if by not in ("loss", "r2"):
            ranked.columns[by] = score[order]
        return ranked

    def fold(self, tolerance: float = ranking.TOLERANCE) -> FitResult:
        """One expression of all that predict the same, the simplest; their number is the column "alike".

        Parameters
        ----------
        tolerance : float
            So much of the spread of y (its standard deviation) may two predictions differ by, at every data point
            that is looked at.

        Examples
        --------
        >>> ek.fit(["p1 * x1", "x1 / p1", "x1 + p1"], [[1.0], [2.0], [3.0]], [2.1, 3.9, 6.0]).fold().pop.texts()
        ['p1 * x1', 'x1 + p1']
        """
        first, inverse = ranking.alike(self, tolerance)
        kept = np.unique(first[inverse])
        folded = self[kept]
        counts = self.columns.get("alike", np.ones(len(self), np.int64))
        folded.columns["alike"] = np.bincount(first[inverse], counts, len(self))[kept].astype(np.int64)
        return folded

    # ── more than one ──

    def model_weights(self, by: str = "bic", *, folds: int = 10, seed: int = 0) -> np.ndarray:
        """Weights of the expressions, which add up to 1: float64 (n_exprs,).

        Parameters
        ----------
        by : {"bic", "aic", "description_length", "stacking"}
            The odds of each by a criterion, as ``rank`` takes; or the weights whose sum of predictions is best at rows
            that were left out.  ``fold`` first: a function that is there twice counts twice.
        folds, seed : int
            Of stacking: parts of the rows, each of which is left out once, and how they are drawn.

        Raises
        ------
        ArgumentError
            Where the fit's loss has no likelihood; for stacking, where it is no square.

        Examples
        --------
        >>> found = ek.fit(["p1 + x1", "p1 * x1"], [[1.0], [2.0], [3.0]], [2.1, 3.9, 6.0], loss="gaussian")
        >>> found.model_weights().round(3)
        array([0.001, 0.999])
        """
        return average.weights_of(self, by, folds, seed)

    def verdict(self, by: str = "bic") -> str:
        """A sentence: which expressions are as good as the best: ``model_weights(by)`` of 37 % of its or more.

        >>> ek.fit(["p1 + x1", "p1 * x1"], [[1.0], [2.0], [3.0]], [2.1, 3.9, 6.0], loss="gaussian").verdict()
        'one of 2 formulas is the best, by bic: p1 * x1 (100 %); the next has 0.11 %'
        """
        return average.verdict(self, by)

    def average(
        self,
        X: Any,
        level: float = 0.95,
        kind: str = "mean",
        *,
        by: str = "bic",
        weights: Any = None,
        folds: int = 10,
        seed: int = 0,
    ) -> pd.DataFrame:
        """What the expressions predict together: a table with the columns prediction, lower and upper.

        Parameters
        ----------
        X, level, kind, weights
            As for ``FittedExpression.bands``.
        by, folds, seed
            As for ``model_weights``; the weights of stacking are a mean over bootstraps, as they are estimates.

        Examples
        --------
        >>> import exprkit as ek
        >>> found = ek.fit(["p1 + p2 * x1", "p1 * exp(p2 * x1)"], [[0], [1], [2], [3], [4]], [1, 1.6, 1.9, 2.7, 3.2])
        >>> found.average([[2.0], [8.0]]).round(1)
           prediction  lower  upper
        0         2.1    1.8    2.2
        1         6.2    4.7   11.3
        """
        of_each = average.weights_of(self, by, folds, seed, average.BOOTSTRAPS)
        return average.average(self, X, of_each, level, kind, weights)

    # ── looking at it, keeping it ──

    @checks_keywords
    def latex_table(self, n: int = SHOWN, digits: int | None = None, errors: bool = False) -> str:
        r"""The first ``n`` expressions with their numbers as a LaTeX table (of the package booktabs).

        ``digits`` and ``errors`` as for ``FittedExpression.latex``.  Below it stand, for every expression with grouped
        parameters, the numbers of each category as a table.

        >>> print(ek.fit("p1 * x1", [[1.0], [2.0], [3.0]], [2.1, 3.9, 6.0]).latex_table(digits=3).splitlines()[4])
        $1.99 \cdot x_{1}$ & 0.01929 & 0.9975 \\
        """
        whole("n", n, 1)
        columns = {self.kind: self.loss, "$R^2$": self.r2, **self.columns}
        rows = [
            [
                f"${one.latex(digits, errors)}$" if one.expression.n_tokens else "(unreadable)",
                *(f"{column[i]:.4g}" for column in columns.values()),
            ]
            for i, one in enumerate(self[:n])
        ]
        head = ["expression", *(name.replace("_", " ") for name in columns)]
        of_groups = [table for one in self[:n] for table in one.group_tables(digits, errors)]
        return "\n\n".join([booktabs("l" + "r" * len(columns), head, rows), *of_groups])

    def plot(self, i: int = 0) -> Figure:
        """Expression ``i`` beside the data: its predictions and the residuals, y - f, at the points of the fit.

        Of one variable both stand over it; of several, y and the residuals over what is predicted.

        >>> figure = ek.fit("p1 * x1", [[1.0], [2.0], [3.0]], [2.1, 3.9, 6.0]).plot()  # figure.savefig("fit.pdf")
        """
        one, counted = self[i], np.ones(len(self.goal.y), bool) if self.goal.w is None else self.goal.w > 0
        label = str(one.with_numbers(digits=3))
        X, y = self.goal.X[counted], self.goal.y[counted].astype(np.float64)
        return beside_data([(label, one.expression, one)], X, y, self.pop.variables, target=self.goal.target)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to ``path`` as npz, with the data of the fit: whole or not at all, and without pickle.

        ``ek.load`` reads it, ``Population.load`` its expressions.

        >>> ek.fit("p1 * x1", [[1.0], [2.0], [3.0]], [2.1, 3.9, 6.0]).save("fit.npz")
        """
        fit_file.save(self, path)

    def to_json(self, path: Any = None, units: Mapping[str, str] | None = None) -> str:
        """A text of JSON that other languages read, and ``ek.read_json``; written to ``path`` as well, if there is one.

        Parameters
        ----------
        path : str or path, optional
        units : dict of str, optional
            Of columns and y, by name, for other readers; ``read_json`` gives them back as ``units``.

        Examples
        --------
        >>> ek.fit("p1 * t", {"t": [1.0, 2.0], "y": [2.0, 4.0]}, "y").to_json(units={"t": "s"})[2:28]
        ' "format": "exprkit fit, 1'
        """
        return fit_file.to_json(self, path, units)

    @classmethod
    def restored(cls, arrays: dict[str, np.ndarray]) -> FitResult:
        """From the arrays of a file."""
        return cls(**fit_file.fields(arrays, cls), _evaluator=None)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: the evaluator stays in its process."""
        return self.__dict__ | {"_evaluator": None}

    def __len__(self) -> int:
        return len(self.pop)

    def __repr__(self) -> str:
        least = np.nanmin(self.loss, initial=np.inf)
        loss = f"least {self.kind} {least:.6g}, " if np.isfinite(least) else ""
        is_known = not self.is_screened or "status" in self.__dict__
        ended = f"{int(self.converged.sum()):,} converged, " if is_known else ""
        return f"<FitResult: {number_of(len(self), 'expression')}, {ended}{loss}{self.seconds:.3g} s>"

    def _repr_html_(self) -> str:
        table = self[self.best(SHOWN)].to_pandas().to_html(float_format="{:.6g}".format, na_rep="")
        return f"<p>{escape(repr(self)[1:-1])}</p>{table}"
