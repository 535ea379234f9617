"""The goal of a search: the loss by which its formulas are fitted and ranked.

In: a loss, by its name or as a text over f, y, w and columns, and the ``Sample`` of it.  Out: losses of values, fits,
and rows as least squares want them, which make proposals.

    >>> import numpy as np
    >>> from exprkit.regression.problem.goal import Goal, sample_for
    >>> sample = sample_for("(sqrt(f) - y)^2", [[1.0], [2.0]], [3.0, 4.0])
    >>> sample.y  # where the loss is least
    array([ 9., 16.])
    >>> Goal("(sqrt(f) - y)^2", sample).losses(np.array([[9.0, 25.0]]))
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
from exprkit.evaluate.loss_text import LossPoints, LossText, W, compose, parse_loss
from exprkit.expressions.population import Population
from exprkit.fitting.fit import BY_KIND, KINDS, FitProblem
from exprkit.regression.problem.sample import EXACT_SHARE, Sample, as_counts

NAMED = ("squares", "mae", "huber", "poisson")
AT_ONCE = 1 << 21  # values whose losses are made at a time
NEAR = 10.0 ** np.arange(-6.0, 4.0)  # shares of y's size beside y at which a loss has to be larger than there
GRID = 10.0 ** np.arange(-20.0, 20.5, 0.5)  # sizes of f among which its least value is looked for elsewhere
HALVINGS = 100  # of an interval, to the last bit
NEGLIGIBLE = 1e-9  # share of what a loss is at 0 over its least that counts as 0
FALLS = 1e-3  # share of a loss by which it may still fall where the grid ends
OWN_TOL, OWN_STEPS = 1e-9, 40  # of fits of a loss that is not plain, after those of squares
CLOSE = 0.1  # of the median distance to the least loss: what is nearer has the weight of what is there


class Goal:
    """A loss at the rows of a sample.

    Attributes
    ----------
    sample : Sample
    kind : int
        Of ``objective``: what ``target``, ``weights`` and ``delta`` belong to if it is ``plain``.
    total : float
        What the sum over the rows is divided by.
    """

    def __init__(self, loss: str, sample: Sample) -> None:
        self.loss, self.sample = loss, sample
        self.target, self.weights, self.delta, self.total = sample.y, sample.w, 1.0, sample.total
        self._text: LossText | None = None
        self.plain = loss in NAMED
        if self.plain:
            self.kind = KINDS[loss]
            self.plain = self.kind != objective.POISSON
            return
        given = sample.given
        assert given is not None
        self._text = parse_loss(loss, given.columns)
        made = compose(self._text, _points(sample), sample.X.shape[1], fitting=True)
        self.kind, self.plain = made.kind, made.formula is None and made.kind != objective.SUM
        self._counts = np.ones(len(sample)) if self._text.names(W) else sample.w
        self.total = float(self._counts.sum())
        if self.plain:
            self.target, self.weights = made.target, made.weights
            self.delta = made.delta if made.kind == objective.HUBER else 1.0

    @property
    def floor(self) -> float:
        """A loss that is as good as 0."""
        y = self.sample.y
        rounding = self.losses(y + np.array([[1.0], [-1.0]]) * self.sample.rounding(EXACT_SHARE))
        least = 0.0 if self.sample.given is None else float(np.abs(self.sample.given.least).mean())
        return float(max(rounding[np.isfinite(rounding)].max(initial=0.0), 1e-15 * least))

    def losses(self, values: np.ndarray) -> np.ndarray:
        """The mean of the loss over the least that it can be, of rows of values; inf where it is no number."""
        each, weights = self._each(values)
        with np.errstate(all="ignore"):
            loss = each @ weights / self.total
        return np.where(np.isfinite(loss), np.maximum(loss, 0.0), np.inf)

    def row_losses(self, values: np.ndarray) -> np.ndarray:
        """The loss of every row over its least, (n_exprs, n_rows), without ``row_weights``."""
        each, weights = self._each(values)
        return np.asarray(each * (weights / self.row_weights))

    def _each(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Losses of rows, and what they are multiplied by."""
        if self.plain or self._text is None:
            with np.errstate(all="ignore"):
                share = 0.5 if self.kind in (objective.HUBER, objective.POISSON) else 1.0  # fits have twice these
                error = values - self.target
                return share * objective.loss_of(self.kind, error, values, self.target, self.delta, np), self.weights
        assert self.sample.given is not None
        return _text_values(_tokens(self._text), values, self.sample) - self.sample.given.least, self._counts

    def slopes(self, values: np.ndarray) -> np.ndarray:
        """The derivative of every row's loss by f, (n_exprs, n_rows), without ``row_weights``."""
        if self._text is not None:
            return _text_values(_tokens(self._text).diff("x1"), values, self.sample)
        error = values - self.sample.y
        if self.kind == objective.POISSON:
            with np.errstate(all="ignore"):
                return np.where(values > 0, error / values, np.nan)
        return {"squares": 2 * error, "mae": np.sign(error), "huber": np.clip(error, -1, 1)}[self.loss]

    @property
    def row_weights(self) -> np.ndarray:
        """How often the loss of every row counts."""
        return self.sample.w if self._text is None else self._counts

    def as_squares(self, values: np.ndarray) -> Sample:
        """The rows with the weights of which least squares are this loss near formulas of these values, (n_rows,)."""
        if self.loss == "squares":
            return self.sample
        y = self.sample.y
        with np.errstate(all="ignore"):
            distance = values - y
            usual = np.abs(distance[np.isfinite(distance)])
            least = max(CLOSE * float(np.median(usual)) if len(usual) else 0.0, 1e-9 * float(np.median(np.abs(y))))
            step = np.where(distance < 0, -1.0, 1.0) * np.maximum(np.abs(distance), least or 1.0)
            weights = self.row_weights * np.abs(self.slopes((y + step)[None])[0] / step)
        known = np.isfinite(weights)
        if not weights[known].any():
            return self.sample
        return self.sample.with_weights(np.where(known, weights, 0.0) / weights[known].max())

    def problem(self, scale: float = 1.0, **settings: Any) -> FitProblem:
        """What fits formulas of y / ``scale`` by it, if it is plain; settings as for ``FitProblem``."""
        sample, settings = self.sample, {"accuracy": "screen", **settings}
        if self.plain:
            return FitProblem(sample.X, self.target / scale, weights=self.weights, loss=BY_KIND[self.kind],
                              delta=self.delta / scale, **settings)  # fmt: skip
        if self._text is None:
            return FitProblem(sample.X, sample.y, weights=sample.w, loss=self.loss, **settings)
        points = _points(sample)
        return FitProblem(sample.X, points.y, weights=points.w, loss=self.loss, columns=points.columns, **settings)

    def to_loss(self, scale: float) -> float:
        """What a loss of ``problem(scale).fitted``, if it is plain, is multiplied by to be one of ``losses``."""
        if self.kind == objective.ABSOLUTE:
            return scale * float(self.weights.sum()) / self.total
        return scale**2 / self.total

    def fitted(self, pop: Population, starts: np.ndarray, near: np.ndarray, **settings: Any) -> tuple[np.ndarray, ...]:
        """Parameters (nan where there is no loss) and losses of a loss that is not plain.

        Parameters
        ----------
        pop : Population
        starts : float64 array, (n_exprs, max_params)
        near : float64 array, (n_rows,)
            Values of the best formula so far.
        """
        squares = self.as_squares(near)
        squared = FitProblem(squares.X, squares.y, weights=squares.w, accuracy="screen", **settings)
        first = squared.fit(pop, init=starts).params
        both = np.stack([starts, np.where(np.isfinite(first), first, starts)])
        values = Evaluator(pop, self.sample.X, "cpu", dtype="float64", threads=settings.get("threads")).evaluate(both)
        better = np.argmin([self.losses(some) for some in values], axis=0)
        more = settings | {"tol": max(settings["tol"], OWN_TOL), "max_iter": min(settings["max_iter"], OWN_STEPS)}
        found = self.problem(**more).fit(pop, init=both[better, np.arange(len(pop))])
        if self._text is None:
            values = Evaluator(pop, self.sample.X, "cpu", dtype="float64").evaluate(np.nan_to_num(found.params))
            return found.params, self.losses(values)
        assert self.sample.given is not None
        loss = (found.loss - self._counts @ self.sample.given.least) / self.total
        return found.params, np.maximum(loss, 0.0)


def sample_for(loss: str, X: Any, y: Any, weights: Any = None, columns: Mapping[str, Any] | None = None) -> Sample:
    """The sample of a loss: its y is what formulas have to be for the least loss, row by row.

    Raises
    ------
    ArgumentError, ParseError
        For a text that is no loss, or has no least value at some row; for columns that nobody names.
    """
    if loss in NAMED:
        if columns is not None:
            raise ArgumentError(f"elementwise_loss={loss!r} takes no columns; a loss of your own does, over f and y")
        if loss == "poisson" and bool((np.asarray(y) < 0).any()):
            raise DataError("elementwise_loss='poisson' needs counts: y must not be negative")
        return Sample(X, y, as_counts(weights))
    beside = _checked({} if columns is None else columns, len(y))
    text = parse_loss(loss, beside, "elementwise_loss")
    named = text.names(W)
    sample = Sample(X, y, weights if named else as_counts(weights), beside, merged=not named)
    return sample.with_targets(*_least(text, sample))


def _checked(columns: Any, n_rows: int) -> dict[str, np.ndarray]:
    """Columns as numbers, one for each row."""
    if not isinstance(columns, Mapping):
        raise ArgumentError(f"columns must be a dictionary of arrays by their names in the loss, not {brief(columns)}")
    found: dict[str, np.ndarray] = {}
    for name, column in columns.items():
        try:
            found[name] = np.asarray(column, np.float64)
        except (TypeError, ValueError):
            raise ArgumentError(f"columns: {name!r} must hold numbers, not {brief(column)}") from None
        if found[name].shape != (n_rows,) or not np.isfinite(found[name]).all():
            raise ArgumentError(f"columns: {name!r} must hold a finite number for each of {n_rows:,} rows")
    return found


def _points(sample: Sample) -> LossPoints:
    assert sample.given is not None
    return LossPoints(sample.given.y, sample.w, sample.given.columns)


# ── a loss as it stands ──


def _tokens(text: LossText) -> Population:
    """As an expression over x1 (f), x2 (y), x3 (w) and columns."""
    return Population(text.kinds, text.values, [0, len(text.kinds)]).expanded()


def _text_values(pop: Population, values: np.ndarray, sample: Sample) -> np.ndarray:
    """The expression at rows of values in the place of f."""
    assert sample.given is not None
    columns, out = [sample.given.y, sample.w, *sample.given.columns.values()], np.empty(values.shape)
    at_once = max(AT_ONCE // max(len(sample), 1), 1)
    for k in range(0, len(values), at_once):
        part = values[k : k + at_once]
        X = np.column_stack([part.ravel(), *(np.tile(column, len(part)) for column in columns)])
        with np.errstate(all="ignore"):
            out[k : k + at_once] = Evaluator(pop, X, "cpu", dtype="float64").evaluate()[0].reshape(part.shape)
    return out


def _least(text: LossText, sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """Of every row the f of least loss, and that loss."""
    f, pop = sample.y.copy(), _tokens(text)
    least = _text_values(pop, f[None], sample)[0]
    size = np.where(f != 0, np.abs(f), float(np.sqrt(np.mean(f**2))) or 1.0)
    steps = np.concatenate([NEAR, -NEAR])[:, None]
    others = _text_values(pop, np.concatenate([f + steps * size, np.zeros((1, len(f)))]), sample)
    if (others == least).all():
        raise ArgumentError(f"elementwise_loss={brief(text.text)} does not depend on f, the value of the formula")
    with np.errstate(invalid="ignore"):
        elsewhere = np.flatnonzero(~(least <= np.fmin.reduce(others)))
    for k in range(0, len(elsewhere), AT_ONCE // len(GRID)):
        part = elsewhere[k : k + AT_ONCE // len(GRID)]
        f[part], least[part] = _searched(text, pop, sample.at(part))
    return f, least


def _searched(text: LossText, pop: Population, sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """The same, looked for among numbers of all sizes, and between two of them by the slope."""
    grid = np.concatenate([-GRID[::-1], [0.0], GRID])
    rows = np.arange(len(sample))
    losses = _text_values(pop, np.repeat(grid[:, None], len(sample), axis=1), sample)
    losses = np.where(np.isfinite(losses), losses, np.inf)
    order = np.lexsort((grid < 0, np.abs(grid)))  # of those that are as good the smallest, positive ones first
    at = order[losses[order].argmin(axis=0)]
    least = losses[at, rows]
    _refuse(text, sample, grid, losses, at)
    near = _nearest(grid, losses, at)
    low, high = grid[np.maximum(at - 1, 0)], grid[np.minimum(at + 1, len(grid) - 1)]
    low, high = np.where(near == at, low, grid[near]), np.where(near == at, high, grid[near])
    slope = pop.diff("x1")
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        rises = _text_values(slope, middle[None], sample)[0] > 0
        low, high = np.where(rises, low, middle), np.where(rises, middle, high)
    between = _text_values(pop, np.stack([low, high]), sample)
    better = between.argmin(axis=0)
    with np.errstate(invalid="ignore"):
        found = between[better, rows] <= least
    f = np.where(found, np.stack([low, high])[better, rows], grid[near])
    return f, np.where(found, between[better, rows], least)


def _nearest(grid: np.ndarray, losses: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Of a loss that comes ever nearer to its least value, where it is as good as there."""
    rows, at = np.arange(len(at)), at.copy()
    for i in np.flatnonzero(losses[[0, -1]].min(axis=0) <= losses[at, rows]).tolist():
        least, usual = losses[at[i], i], losses[len(GRID), i]
        good = losses[:, i] <= least + (NEGLIGIBLE * (usual - least) if np.isfinite(usual) else 0.0)
        at[i] = np.argmin(np.where(good, np.abs(grid), np.inf))
    return at


def _refuse(text: LossText, sample: Sample, grid: np.ndarray, losses: np.ndarray, at: np.ndarray) -> None:
    """An error for a row whose loss is no number, or falls on and on."""
    assert sample.given is not None
    name, rows, most = f"elementwise_loss={brief(text.text)}", np.arange(len(at)), len(grid) - 1
    least = losses[at, rows]
    if not np.isfinite(least).all():
        y = sample.given.y[int(np.argmax(~np.isfinite(least)))]
        raise ArgumentError(f"{name} is no number where y is {y:g}, whatever f is: leave such rows out")
    middle = len(GRID)
    ends = {0: (1, "-inf"), most: (most - 1, "inf"), middle - 1: (middle - 2, "0"), middle + 1: (middle + 2, "0")}
    size = float(np.median(np.abs(losses[np.isfinite(losses)])))
    for end, (before, where) in ends.items():
        with np.errstate(invalid="ignore"):
            fall = losses[before] - losses[end]
        falls = (at == end) & (fall > FALLS * np.abs(losses[end])) & (fall > 1e-9 * min(size, 1.0))
        if falls.any():
            y = sample.given.y[int(np.argmax(falls))]
            raise ArgumentError(f"{name} has no least value where y is {y:g}: it falls on and on as f goes to {where}")
