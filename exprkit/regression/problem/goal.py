"""The goal of a search: the loss by which its formulas are fitted and ranked.

In: a loss, by its name or as a text over f, y, w and columns, and the ``Rows`` of it.  Out: losses of values, fits,
and rows as least squares want them, which make proposals.

    >>> import numpy as np
    >>> from exprkit.regression.problem.goal import Goal, rows_for
    >>> rows = rows_for("(sqrt(f) - y)^2", [[1.0], [2.0]], [3.0, 4.0])
    >>> rows.y  # where the loss is least
    array([ 9., 16.])
    >>> Goal("(sqrt(f) - y)^2", rows).losses(np.array([[9.0, 25.0]]))
    array([0.5])

=============  ======================================================================================================
the loss is    what becomes of it
=============  ======================================================================================================
plain          squares, absolute errors or Huber's loss of f itself, each row with a weight of its own: fitted as such
poisson        counts, of which f is the mean: half the deviance; fitted on the host as ``ek.fit`` does
anything else  fitted by squares, with weights that the loss has near the best formula so far, and on from there as it
               stands, on the host
=============  ======================================================================================================

Pairs of functions and sums are proposed by least squares, with such weights: the loss's slope over the distance to
where it is least (A. E. Beaton, J. W. Tukey, Technometrics 16, 1974, for robust losses).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from exprkit.backends import objective
from exprkit.errors import ArgumentError, DataError, brief
from exprkit.evaluate.evaluator import Evaluator
from exprkit.evaluate.inputs import LossPoints
from exprkit.evaluate.loss_text import OwnGoal
from exprkit.expressions.population import Population
from exprkit.fitting.fit_problem import FitProblem
from exprkit.regression.problem.rows import FLOOR_ERROR, Rows, as_counts

# minus the logarithm of the likelihood of labels 0 and 1, of log-odds f - c, but for log 2; y between allows for errors
LOGISTIC = "logcosh(0.5 * (f - c)) + (0.5 - y) * (f - c)"
NAMED = ("squares", "mae", "huber", "poisson")
PLAIN = {objective.KINDS[name]: name for name in NAMED[:3]}  # which all backends fit
CHUNK = 1 << 21  # values of a loss text computed at a time: 16 MiB a column

# The minimiser of a loss text at every row; all were chosen, not measured.
OFFSETS = 10.0 ** np.arange(-6.0, 4.0)  # shares of |y| beside y at which the loss is compared with that at y
GRID = 10.0 ** np.arange(-20.0, 20.5, 0.5)  # |f| of the grid that is searched where y is no minimiser
BISECTIONS = 100  # more than the bits of a double
NEGLIGIBLE = 1e-9  # share of loss(0) - minimum by which a loss may be above its minimum
MAX_FALL = 1e-3  # share of a loss by which it may still fall at the end of the grid

# Fits of a loss that is not plain, after those of squares; chosen, not measured.
MIN_TOL = 1e-9  # relative change of the loss
MAX_STEPS = 40  # Levenberg-Marquardt steps
MIN_DISTANCE = 0.1  # of the median distance from the minimiser: nearer values are weighted as if they were there


class Goal:
    """A loss, by its name or text, at rows of data.

    ``plain``: whether it is squares, absolute errors or Huber's loss of f itself, which all backends fit; ``kind`` is
    that in ``objective``, for ``target``, ``weights`` and ``delta``.  ``total`` is the number of observations, by which
    the sum over the rows is divided.
    """

    def __init__(self, loss: str, rows: Rows) -> None:
        self.loss, self.rows = loss, rows
        self.target, self.weights, self.delta, self.total = rows.y, rows.w, 1.0, rows.total
        self._own: OwnGoal | None = None
        self.plain = loss in NAMED
        if self.plain:
            self.kind = objective.KINDS[loss]
            self.plain = self.kind != objective.POISSON
            return
        inputs = rows.loss_rows
        assert inputs is not None
        self._own = OwnGoal.of(loss, None, inputs.columns, NAMED)
        assert self._own is not None
        composed = self._own.composed(_points(rows), rows.X.shape[1], fitting=True)
        self.kind, self.plain = composed.kind, composed.formula is None and composed.kind != objective.SUM
        self._counts = np.ones(len(rows)) if self._own.text.names_weights else rows.w
        self.total = float(self._counts.sum())
        if self.plain:
            self.target, self.weights = composed.target, composed.weights
            self.delta = composed.delta if composed.kind == objective.HUBER else 1.0

    @property
    def floor(self) -> float:
        """The loss of rounding errors: smaller ones are as good as 0."""
        y = self.rows.y
        rounding = self.losses(y + np.array([[1.0], [-1.0]]) * self.rows.rounding(FLOOR_ERROR))
        least = 0.0 if self.rows.loss_rows is None else float(np.abs(self.rows.loss_rows.least).mean())
        return float(max(rounding[np.isfinite(rounding)].max(initial=0.0), 1e-15 * least))

    def losses(self, values: np.ndarray) -> np.ndarray:
        """Mean loss above its minimum, (n_exprs,), of values (n_exprs, n_rows); inf where it is no number."""
        row_losses, weights = self._row_losses(values)
        with np.errstate(all="ignore"):
            loss = row_losses @ weights / self.total
        return np.where(np.isfinite(loss), np.maximum(loss, 0.0), np.inf)

    def row_losses(self, values: np.ndarray) -> np.ndarray:
        """Loss of every row above its minimum, (n_exprs, n_rows), before ``row_weights``."""
        row_losses, weights = self._row_losses(values)
        return np.asarray(row_losses * (weights / self.row_weights))

    def _row_losses(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Losses of rows, (n_exprs, n_rows), and their weights, (n_rows,)."""
        if self.plain or self._own is None:
            with np.errstate(all="ignore"):
                share = 0.5 if self.kind in (objective.HUBER, objective.POISSON) else 1.0  # fits have twice these
                error = values - self.target
                return share * objective.loss_of(self.kind, error, values, self.target, self.delta, np), self.weights
        assert self.rows.loss_rows is not None
        return _text_values(self._own.text.population, values, self.rows) - self.rows.loss_rows.least, self._counts

    def slopes(self, values: np.ndarray) -> np.ndarray:
        """Derivative of every row's loss by f, (n_exprs, n_rows), before ``row_weights``."""
        if self._own is not None:
            return _text_values(self._own.text.population.diff("x1"), values, self.rows)
        error = values - self.rows.y
        if self.kind == objective.POISSON:
            with np.errstate(all="ignore"):
                return np.where(values > 0, error / values, np.nan)
        return {"squares": 2 * error, "mae": np.sign(error), "huber": np.clip(error, -1, 1)}[self.loss]

    @property
    def row_weights(self) -> np.ndarray:
        """Weight of every row's loss, (n_rows,)."""
        return self.rows.w if self._own is None else self._counts

    def as_squares(self, values: np.ndarray) -> Rows:
        """The rows with the weights of iteratively reweighted least squares near these values, (n_rows,).

        Weight = slope of the loss over the distance from its minimiser (Beaton and Tukey, Technometrics 16, 1974).
        """
        if self.loss == "squares":
            return self.rows
        y = self.rows.y
        with np.errstate(all="ignore"):
            distance = values - y
            finite = np.abs(distance[np.isfinite(distance)])
            median = float(np.median(finite)) if len(finite) else 0.0
            least = max(MIN_DISTANCE * median, 1e-9 * float(np.median(np.abs(y))))
            step = np.where(distance < 0, -1.0, 1.0) * np.maximum(np.abs(distance), least or 1.0)
            weights = self.row_weights * np.abs(self.slopes((y + step)[None])[0] / step)
        is_finite = np.isfinite(weights)
        if not weights[is_finite].any():
            return self.rows
        return self.rows.with_weights(np.where(is_finite, weights, 0.0) / weights[is_finite].max())

    def problem(self, scale: float = 1.0, **settings: Any) -> FitProblem:
        """The ``FitProblem`` of this loss, of y / ``scale`` if it is plain; settings as for ``FitProblem``."""
        rows, settings = self.rows, {"accuracy": "screen", **settings}
        if self.plain:
            return FitProblem(
                rows.X,
                self.target / scale,
                weights=self.weights,
                loss=PLAIN[self.kind],
                delta=self.delta / scale,
                **settings,
            )
        if self._own is None:
            return FitProblem(rows.X, rows.y, weights=rows.w, loss=self.loss, **settings)
        points = _points(rows)
        return FitProblem(rows.X, points.y, weights=points.w, loss=self.loss, columns=points.columns, **settings)

    def to_loss(self, scale: float) -> float:
        """The factor from losses of ``problem(scale).fitted`` to those of ``losses``, for a plain loss."""
        if self.kind == objective.ABSOLUTE:
            return scale * float(self.weights.sum()) / self.total
        return scale**2 / self.total

    def fitted(self, pop: Population, starts: np.ndarray, near: np.ndarray, **settings: Any) -> tuple[np.ndarray, ...]:
        """Fitted parameters, (n_exprs, max_params), and their losses, for a loss that is not plain.

        ``near``: values of the best formula so far, (n_rows,).  Parameters are nan where the loss is no number.
        """
        squares = self.as_squares(near)
        squared = FitProblem(squares.X, squares.y, weights=squares.w, accuracy="screen", **settings)
        least_squares = squared.fit(pop, init=starts).params
        inits = np.stack([starts, np.where(np.isfinite(least_squares), least_squares, starts)])
        values = Evaluator(pop, self.rows.X, "cpu", dtype="float64").evaluate(inits)
        better = np.argmin([self.losses(values_of_set) for values_of_set in values], axis=0)
        limits = {"tol": max(settings["tol"], MIN_TOL), "max_iter": min(settings["max_iter"], MAX_STEPS)}
        result = self.problem(**(settings | limits)).fit(pop, init=inits[better, np.arange(len(pop))])
        if self._own is None:
            values = Evaluator(pop, self.rows.X, "cpu", dtype="float64").evaluate(np.nan_to_num(result.params))
            return result.params, self.losses(values)
        assert self.rows.loss_rows is not None
        loss = (result.loss - self._counts @ self.rows.loss_rows.least) / self.total
        return result.params, np.maximum(loss, 0.0)


def rows_for(loss: str, X: Any, y: Any, weights: Any = None, columns: Mapping[str, Any] | None = None) -> Rows:
    """The rows of data for a loss; of a loss text, y is replaced by the minimiser of the loss at each row.

    Raises
    ------
    ArgumentError, ParseError
        For a text that is no loss, or has no minimum at some row; for columns that it does not name.
    """
    if loss in NAMED:
        if columns is not None:
            raise ArgumentError(f"elementwise_loss={loss!r} takes no columns; a loss of your own does, over f and y")
        if loss == "poisson" and bool((np.asarray(y) < 0).any()):
            raise DataError("elementwise_loss='poisson' needs counts: y must not be negative")
        return Rows(X, y, as_counts(weights))
    inputs = _checked({} if columns is None else columns, len(y))
    own = OwnGoal.of(loss, None, inputs, NAMED, what="elementwise_loss")
    assert own is not None
    names_weights = own.text.names_weights
    rows = Rows(X, y, weights if names_weights else as_counts(weights), inputs, merged=not names_weights)
    return rows.with_targets(*_minimisers(own, rows))


def _checked(columns: Any, n_rows: int) -> dict[str, np.ndarray]:
    """Columns as float64 arrays (n_rows,), or an error."""
    if not isinstance(columns, Mapping):
        raise ArgumentError(f"columns must be a dictionary of arrays by their names in the loss, not {brief(columns)}")
    arrays: dict[str, np.ndarray] = {}
    for name, column in columns.items():
        try:
            arrays[name] = np.asarray(column, np.float64)
        except (TypeError, ValueError):
            raise ArgumentError(f"columns: {name!r} must hold numbers, not {brief(column)}") from None
        if arrays[name].shape != (n_rows,) or not np.isfinite(arrays[name]).all():
            raise ArgumentError(f"columns: {name!r} must hold a finite number for each of {n_rows:,} rows")
    return arrays


def _points(rows: Rows) -> LossPoints:
    assert rows.loss_rows is not None
    return LossPoints(rows.loss_rows.y, rows.w, rows.loss_rows.columns)


# ── a loss as it stands ──


def _text_values(pop: Population, values: np.ndarray, rows: Rows) -> np.ndarray:
    """A loss expression at values of f, (n, n_rows), for every row of the data."""
    assert rows.loss_rows is not None
    columns, out = [rows.loss_rows.y, rows.w, *rows.loss_rows.columns.values()], np.empty(values.shape)
    n_chunk = max(CHUNK // max(len(rows), 1), 1)
    for k in range(0, len(values), n_chunk):
        part = values[k : k + n_chunk]
        X = np.column_stack([part.ravel(), *(np.tile(column, len(part)) for column in columns)])
        with np.errstate(all="ignore"):
            out[k : k + n_chunk] = Evaluator(pop, X, "cpu", dtype="float64").evaluate()[0].reshape(part.shape)
    return out


def _minimisers(own: OwnGoal, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Minimisers f of the loss and its minima, (n_rows,) each: y itself unless a value beside it is better."""
    f, pop = rows.y.copy(), own.text.population
    if own.named == LOGISTIC:
        assert rows.loss_rows is not None
        f = rows.loss_rows.columns["c"] + np.log(f / (1 - f))
        return f, _text_values(pop, f[None], rows)[0]
    least = _text_values(pop, f[None], rows)[0]
    size = np.where(f != 0, np.abs(f), float(np.sqrt(np.mean(f**2))) or 1.0)
    steps = np.concatenate([OFFSETS, -OFFSETS])[:, None]
    nearby = _text_values(pop, np.concatenate([f + steps * size, np.zeros((1, len(f)))]), rows)
    if (nearby == least).all():
        raise ArgumentError(f"elementwise_loss={brief(own.named)} does not depend on f, the value of the formula")
    with np.errstate(invalid="ignore"):
        elsewhere = np.flatnonzero(~(least <= np.fmin.reduce(nearby)))
    for k in range(0, len(elsewhere), CHUNK // len(GRID)):
        part = elsewhere[k : k + CHUNK // len(GRID)]
        f[part], least[part] = _grid_minimisers(own, pop, rows.at(part))
    return f, least


def _grid_minimisers(own: OwnGoal, pop: Population, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Minimisers and minima by a grid over all orders of magnitude, then bisection of the slope between grid points."""
    grid = np.concatenate([-GRID[::-1], [0.0], GRID])
    columns = np.arange(len(rows))
    losses = _text_values(pop, np.repeat(grid[:, None], len(rows), axis=1), rows)
    losses = np.where(np.isfinite(losses), losses, np.inf)
    order = np.lexsort((grid < 0, np.abs(grid)))  # of equal losses the smallest |f|, positive f first
    at = order[losses[order].argmin(axis=0)]
    least = losses[at, columns]
    _check_minima(own, rows, grid, losses, at)
    near = _nearest(grid, losses, at)
    low, high = grid[np.maximum(at - 1, 0)], grid[np.minimum(at + 1, len(grid) - 1)]
    low, high = np.where(near == at, low, grid[near]), np.where(near == at, high, grid[near])
    slope = pop.diff("x1")
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        rises = _text_values(slope, middle[None], rows)[0] > 0
        low, high = np.where(rises, low, middle), np.where(rises, middle, high)
    between = _text_values(pop, np.stack([low, high]), rows)
    better = between.argmin(axis=0)
    with np.errstate(invalid="ignore"):
        is_better = between[better, columns] <= least
    f = np.where(is_better, np.stack([low, high])[better, columns], grid[near])
    return f, np.where(is_better, between[better, columns], least)


def _nearest(grid: np.ndarray, losses: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Indices of minimisers; of a loss that approaches its minimum at infinity, the smallest |f| that is as good."""
    columns, at = np.arange(len(at)), at.copy()
    for i in np.flatnonzero(losses[[0, -1]].min(axis=0) <= losses[at, columns]).tolist():
        least, at_0 = losses[at[i], i], losses[len(GRID), i]
        is_minimal = losses[:, i] <= least + (NEGLIGIBLE * (at_0 - least) if np.isfinite(at_0) else 0.0)
        at[i] = np.argmin(np.where(is_minimal, np.abs(grid), np.inf))
    return at


def _check_minima(own: OwnGoal, rows: Rows, grid: np.ndarray, losses: np.ndarray, at: np.ndarray) -> None:
    """An error for a row whose loss is no number for any f, or has no minimum."""
    assert rows.loss_rows is not None
    name, columns, last = f"elementwise_loss={brief(own.named)}", np.arange(len(at)), len(grid) - 1
    least = losses[at, columns]
    if not np.isfinite(least).all():
        y = rows.loss_rows.y[int(np.argmax(~np.isfinite(least)))]
        raise ArgumentError(f"{name} is no number where y is {y:g}, whatever f is: leave such rows out")
    middle = len(GRID)
    ends = {0: (1, "-inf"), last: (last - 1, "inf"), middle - 1: (middle - 2, "0"), middle + 1: (middle + 2, "0")}
    size = float(np.median(np.abs(losses[np.isfinite(losses)])))
    for end, (before, where) in ends.items():
        with np.errstate(invalid="ignore"):
            fall = losses[before] - losses[end]
        falls = (at == end) & (fall > MAX_FALL * np.abs(losses[end])) & (fall > 1e-9 * min(size, 1.0))
        if falls.any():
            y = rows.loss_rows.y[int(np.argmax(falls))]
            raise ArgumentError(f"{name} has no least value where y is {y:g}: it falls on and on as f goes to {where}")
