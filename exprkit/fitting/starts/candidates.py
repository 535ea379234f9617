"""Candidates for an expression's parameters, drawn by where each stands and by the columns beside it.

In: an expression and data.  Out: numbers for its parameters, many of each.

    >>> import exprkit as ek, numpy as np
    >>> from exprkit.fitting.starts.candidates import turns_of
    >>> x = np.linspace(0, 10, 200)
    >>> turns_of(x, np.sin(5 * np.pi * x))[0].round(3)  # 2.5 turns per unit
    np.float64(15.708)

An expression is walked from its leaves to its root for many candidates at once.  Where a part that holds parameters
alone meets numbers that are known, its value is drawn so that the operator changes what it is given; the numbers of its
result are known from there on:

=================================  ============================================================================
the part                           is drawn
=================================  ============================================================================
is added or compared               so that the sum is 0, or twice as much, at a row: one where y peaks, is least,
                                   steepest or half, any other, or outside of them; as an angle within a period
is a factor, or divides            so that the product is as wide, or as large, as an operator's usual operands:
                                   over four decades; is 1 at such a row; is as wide as y; or, inside a periodic
                                   operator, so that it turns as often as y does (a periodogram: N. R. Lomb,
                                   Astrophys. Space Sci. 39, 1976)
is a power, or the base of one     among small numbers, or so that its logarithm is as wide
=================================  ============================================================================

What an operator is comes from its row in the table: its derivatives, and whether it repeats itself after 2 pi.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.objective import Options
from exprkit.expressions.population import Population
from exprkit.operators import defined, ops
from exprkit.operators.defined import table_of_rows
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE

MOST_TOKENS, MOST_PARAMS = 300, 24  # of an expression whose parameters are drawn
MOST_ROWS = 16384  # that are looked at
DRAWN_ON, TURNED_ON = 48, 1024  # of them that parameters are drawn by, and that a periodogram is made of
FREQUENCIES = 4096  # of a periodogram, four of them to a turn over the column's width
BLOCK = 64  # of them, whose sums are made by one product of matrices
WAVES = 80  # halves of a turn over the width of either of two columns
EVEN = 0.01  # share by which the steps of an even column differ
PEAKS = 8  # of a periodogram, and of y over a column
TREND = 3  # degree of the polynomial beside which y turns, at the most
POINTS = np.linspace(-3, 3, 7)  # where an operator is looked at
DECADES = (-1.3, 2.3)  # how many times its usual width an operand may be


class StartSample(NamedTuple):
    """The rows of a fit that count, float64."""

    X: np.ndarray
    y: np.ndarray
    w: np.ndarray  # (n_rows,)
    looks: np.ndarray  # (n_rows,): what peaks, turns and steps are looked for in

    @classmethod
    def counted(cls, X: np.ndarray, y: np.ndarray, w: np.ndarray | None, looks: np.ndarray) -> StartSample:
        """The rows of weight above 0; of more than ``MOST_ROWS`` a random part."""
        rows = np.flatnonzero(np.isfinite(y) & np.isfinite(looks) & (True if w is None else w > 0))
        rows = rows[some_rows(len(rows), MOST_ROWS, np.random.Generator(np.random.PCG64(len(rows))))]
        weights = np.ones(len(rows)) if w is None else np.asarray(w[rows], np.float64)
        return cls(np.asarray(X[rows], np.float64), y[rows], weights, looks[rows])

    def of(self, rows: np.ndarray) -> StartSample:
        return StartSample(*(column[rows] for column in self))

    @property
    def random(self) -> np.random.Generator:
        """A generator that the data determine."""
        return np.random.Generator(np.random.PCG64([len(self.y), self.X.shape[1]]))


class Sides(NamedTuple):
    """Lower and upper bounds of one expression's parameters."""

    lower: np.ndarray
    upper: np.ndarray

    @classmethod
    def of(cls, options: Options, i: int, n: int) -> Sides:
        lower = np.full(n, -np.inf) if options.lower is None else options.lower[i, :n]
        return cls(lower, np.full(n, np.inf) if options.upper is None else options.upper[i, :n])

    def within(self, p: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Parameters within the bounds: outside ones on the other side of 0, at the bound, or anywhere between two."""
        out = (p < self.lower) | (p > self.upper)
        p = np.where(out, -p, p)
        both = np.isfinite(self.lower) & np.isfinite(self.upper)
        low, high = (np.where(both, side, 0.0) for side in self)
        between = low + rng.random(p.shape) * (high - low)
        out = ((p < self.lower) | (p > self.upper)) & both
        return np.clip(np.where(out, between, p), self.lower, self.upper)


# ── what operators are ───────────────────────────────────────────────────────────────


@table_of_rows
def _curved() -> frozenset[tuple[int, int]]:
    """(operator's code, operand) of every operand that the result is not linear in."""
    curved = set()
    for row in defined.table():
        texts = row.derivative or ("a b y",) * row.arity
        for k, text in enumerate(texts[: row.arity]):
            if text == "0" or set(re.findall(r"\b[aby]\b", text)) & {"ab"[k], "y"}:
                curved.add((row.code, k))
    return frozenset(curved)


@table_of_rows
def _periodic() -> frozenset[int]:
    """The codes of operators that repeat themselves after 2 pi."""
    with np.errstate(all="ignore"):
        return frozenset(
            row.code
            for row in defined.table()
            if row.arity == 1
            and row.width == 1
            and np.allclose(row.numpy(POINTS), row.numpy(POINTS + 2 * np.pi), rtol=1e-9, atol=1e-9)
            and np.ptp(np.asarray(row.numpy(POINTS))) > 0
        )


@functools.cache
def _powers() -> frozenset[int]:
    other = ops.BY_CODE[ops.POW].rewrite.positive_a
    return frozenset({ops.POW} | ({ops.BY_NAME[other].code} if other else set()))


class Skeleton(NamedTuple):
    """An expression's tokens, and how they hang together."""

    kinds: np.ndarray
    values: np.ndarray
    parent: np.ndarray  # of each token its operator, -1 of the root
    place: np.ndarray  # which operand of it
    first: np.ndarray  # the first token of what hangs below
    linear: np.ndarray  # bool (n_params,): the parameters that are solved

    @property
    def n_params(self) -> int:
        return len(self.linear)

    @classmethod
    def of(cls, pop: Population, i: int, linear: int) -> Skeleton | None:
        one = pop[[i]].expanded()
        n, n_params = len(one.kinds), int(pop.n_params[i])
        if not pop.valid[i] or not 0 < n_params <= MOST_PARAMS or n > MOST_TOKENS:
            return None
        kinds, values = one.kinds, one.values
        rows = map(_row, values[kinds == OPERATOR].tolist())
        if any(row is None or row.packed or row.width != 1 for row in rows):
            return None
        parent, place, first, stack = np.full(n, -1), np.zeros(n, int), np.arange(n), list[int]()
        for t in range(n):
            if kinds[t] == OPERATOR:
                arity = _row(int(values[t])).arity
                operands, stack = stack[-arity:], stack[:-arity]
                parent[operands], place[operands], first[t] = t, range(arity), first[operands[0]]
            stack.append(t)
        return cls(kinds, values, parent, place, first, np.array([bool(linear >> j & 1) for j in range(n_params)]))

    def below(self, t: int) -> slice:
        return slice(int(self.first[t]), t + 1)

    def terms(self) -> tuple[np.ndarray, np.ndarray]:
        """By parameter the term, of sums that the expression is linear in, and a number of all terms of its form."""
        n = len(self.kinds)
        terms, is_outer, own = np.full(n, n - 1), np.ones(n, bool), np.zeros(self.n_params, int)
        for t in range(n - 2, -1, -1):
            up, place = int(self.parent[t]), int(self.place[t])
            code = int(self.values[up])
            is_term = is_outer[up] and re.fullmatch(r"-?\d+", _row(code).derivative[place])
            terms[t], is_outer[t] = t if is_term else terms[up], is_outer[up] and (code, place) not in _curved()
        is_parameter = self.kinds == PARAMETER
        own[self.values[is_parameter].astype(int)] = terms[is_parameter]
        plain = np.where(is_parameter, 0, self.values)
        forms = [(self.kinds[self.below(t)].tobytes(), plain[self.below(t)].tobytes()) for t in own.tolist()]
        return own, np.array([forms.index(form) for form in forms])

    def leaves(self, t: int, kind: int) -> list[int]:
        """The numbers of the variables, or parameters, that hang below t."""
        part = self.below(t)
        return sorted(set(self.values[part][self.kinds[part] == kind].astype(int).tolist()))

    def value(self, t: int, columns: np.ndarray, params: Any) -> np.ndarray:
        """The value of the subexpression below t, where parameter j is ``params(j)``."""
        stack: list[Any] = []
        for kind, value in zip(self.kinds[self.below(t)].tolist(), self.values[self.below(t)], strict=True):
            if kind == OPERATOR:
                row = _row(int(value))
                operands, stack = stack[-row.arity :], stack[: -row.arity]
                stack.append(row.numpy(*operands))
            elif kind == CONSTANT:
                stack.append(value.view(np.float64).reshape(1, 1))
            else:
                stack.append(columns[:, int(value)][None] if kind == VARIABLE else params(int(value)))
        return np.asarray(stack[0], np.float64)

    def use(self, t: int) -> tuple[int, int, float]:
        """The operator that bends what t is, -1 if none does, which operand of it, and what numbers multiply t by."""
        factor = 1.0
        while (up := int(self.parent[t])) >= 0:
            code, place = int(self.values[up]), int(self.place[t])
            if (code, place) in _curved():
                return code, place, factor
            row, others = _row(code), [o for o in np.flatnonzero(self.parent == up).tolist() if o != t]
            if re.fullmatch(r"-?\d+", row.derivative[place]):  # a sum, whatever else is in it
                factor *= float(row.derivative[place])
            elif all(np.isin(self.kinds[self.below(other)], (CONSTANT, OPERATOR)).all() for other in others):
                known = [self.value(other, np.zeros((1, 1)), None) for other in others]
                at = [row.numpy(*known[:place], np.full((1, 1), number), *known[place:]) for number in (0.0, 1.0)]
                factor *= float((at[1] - at[0]).item()) or 1.0
            t = up
        return -1, 0, factor


def _row(code: int) -> Any:
    return defined.row(code)


# ── drawing candidates ───────────────────────────────────────────────────────────────


def draw(tree: Skeleton, sample: StartSample, bounds: Sides, count: int, rng: np.random.Generator) -> np.ndarray:
    """Candidates for all parameters, float64 (count, n_params)."""
    with np.errstate(all="ignore"):
        p = _CandidateDraw(tree, sample, count, rng).candidates()
        return bounds.within(np.where(np.isfinite(p), p, 1.0), rng)


class _CandidateDraw:
    """The candidates of one expression while they are made."""

    def __init__(self, tree: Skeleton, sample: StartSample, count: int, rng: np.random.Generator) -> None:
        self.tree, self.count, self.rng, self.sample, self.looks = tree, count, rng, sample, sample.looks
        self.telling = telling_rows(sample.X[:, tree.leaves(len(tree.kinds) - 1, VARIABLE)], self.looks)
        rows = some_rows(len(self.looks), DRAWN_ON, rng)
        self.rows = np.concatenate([self.telling, rows])  # the telling ones first
        self.X = sample.X[self.rows]
        self.width_of_y = float(np.ptp(self.looks)) or 1.0
        self.waves, self.is_wave = self.drawn_waves(), rng.random(count) < 0.5
        self.p = np.full((count, tree.n_params), np.nan)
        self.p[:, tree.linear] = 1.0

    def candidates(self) -> np.ndarray:
        tree, stack = self.tree, list[tuple[int, Any]]()
        for t in range(len(tree.kinds)):
            if tree.kinds[t] == OPERATOR:
                row = _row(int(tree.values[t]))
                operands, stack = stack[-row.arity :], stack[: -row.arity]
                stack.append((t, self.combined(t, row, operands)))
            elif tree.kinds[t] == PARAMETER and np.isnan(self.p[:, int(tree.values[t])]).any():
                stack.append((t, None))
            else:
                stack.append((t, tree.value(t, self.X, self.given)))
        left = np.isnan(self.p)
        self.p[left] = self.any_size(left.shape)[left]
        return self.p

    def drawn_waves(self) -> dict[int, np.ndarray]:
        """Angles per unit of two columns, inside periodic operators, by which y turns, (count,) each."""
        tree, inside = self.tree, set[int]()
        for t in np.flatnonzero(tree.kinds == OPERATOR).tolist():
            if int(tree.values[t]) in _periodic():
                inside.update(tree.leaves(t, VARIABLE))
        pair = sorted(inside)
        waves = waves_of(self.sample.X[:, pair], self.looks) if len(pair) == 2 else np.zeros((0, 2))
        if not len(waves):
            return {}
        drawn = waves[np.minimum(self.rng.geometric(0.5, self.count) - 1, len(waves) - 1)]
        return dict(zip(pair, drawn.T, strict=True))

    def given(self, j: int) -> np.ndarray:
        return self.p[:, j : j + 1]

    def any_size(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.rng.choice([1.0, 1.0, 1.0, -1.0], shape) * 10 ** (0.5 * self.rng.standard_normal(shape))

    def combined(self, t: int, row: Any, operands: list[tuple[int, Any]]) -> Any:
        """The operator's values; None while what is not known has not met a column."""
        for k, (o, value) in enumerate(operands):
            if value is not None:
                continue
            if not any(np.ndim(other) == 2 and other.shape[1] > 1 for _, other in operands if other is not None):
                return None
            other = operands[1 - k][1]
            self.settle(o, functools.partial(self.targets, t, row, k, other))
            operands[k] = o, self.tree.value(o, self.X, self.given)
        return row.numpy(*(value for _, value in operands))

    def settle(self, t: int, targets: Callable[[], np.ndarray]) -> None:
        """Let what hangs below t have such values."""
        open_ones = [j for j in self.tree.leaves(t, PARAMETER) if np.isnan(self.p[:, j]).any()]
        if not open_ones:
            return
        for j in open_ones[:-1]:
            self.p[:, j] = self.any_size((self.count,))
        wanted, last = targets(), open_ones[-1]
        if self.tree.kinds[t] == PARAMETER:
            self.p[:, last] = wanted
            return

        def value(numbers: np.ndarray) -> np.ndarray:  # of a number a candidate, or several
            return self.tree.value(t, self.X[:1], lambda j: numbers if j == last else self.p[:, j : j + 1])

        self.p[:, last] = _inverse(value, wanted[:, None])

    def targets(self, t: int, row: Any, k: int, other: np.ndarray) -> np.ndarray:
        """Values of operand k that is not known, beside the values of the other one, (count,)."""
        code, V = row.code, np.broadcast_to(other, (self.count, other.shape[1]))
        slopes = row.derivative
        is_shift = all(not re.search(r"\b[aby]\b", slope) for slope in slopes)
        if code in _powers():
            return self.powers(V) if k == 1 else np.exp(self.rates(V))
        if is_shift:
            sign = 1.0 if slopes[1].startswith("-") else -1.0
            return sign * self.places(V, *self.tree.use(t)[:2])
        if (code, k) not in _curved():  # times what multiplies it
            S = row.numpy(*((np.ones_like(V), V) if k == 0 else (V, np.ones_like(V))))
            S = S - row.numpy(*((np.zeros_like(V), V) if k == 0 else (V, np.zeros_like(V))))
            return self.factors(S, *self.tree.use(t))
        if code == ops.DIV:
            return 1 / self.factors(V, *self.tree.use(t))
        return self.places(V, code, k)

    def at_rows(self, V: np.ndarray) -> np.ndarray:
        """The value at a row of every candidate: every second one tells something."""
        n, count = len(self.telling), self.count
        row = np.where(
            self.rng.random(count) < 0.6, self.rng.integers(n, size=count), self.rng.integers(V.shape[1], size=count)
        )
        return V[np.arange(count), row]

    def places(self, V: np.ndarray, code: int, place: int) -> np.ndarray:
        """Values of V at which a sum may be 0, or a comparison turn."""
        rng, count = self.rng, self.count
        low, high = np.fmin.reduce(V, axis=1), np.fmax.reduce(V, axis=1)
        width = high - low
        values, how = self.at_rows(V), rng.random(count)
        outside = np.where(
            rng.random(count) < 0.5,
            low - width * 10 ** rng.uniform(-2, 1, count),
            high + width * 10 ** rng.uniform(-2, 1, count),
        )
        values = np.where(how < 0.12, outside, values)
        if code in _periodic():
            return np.where(how > 0.4, rng.uniform(-np.pi, np.pi, count), values)
        positive = (how > 0.55) & (low >= 0) & ((code, place) != (-1, 0))
        values = np.where(positive, -np.abs(values), values)  # so that a sum stays as it is
        return np.where((how > 0.12) & (how < 0.2), -self.looks[rng.integers(len(self.looks), size=count)], values)

    def factors(self, S: np.ndarray, code: int, place: int, multiplied: float) -> np.ndarray:
        """Factors of S, which is also ``multiplied`` by a number before the operator is applied."""
        rng, count = self.rng, self.count
        if code in _periodic():
            values = self.turns(S) / multiplied
            spared = self.is_wave & bool(self.waves)
            return np.where(~spared & (rng.random(count) < 0.2), self.rates(S) / multiplied, values)
        values, how = self.rates(S) / multiplied, rng.random(count)
        at = 1 / self.at_rows(S)
        values = np.where(how < 0.25, at, values)
        ratio = self.width_of_y / _width(S) * 10 ** rng.uniform(-1, 1, count)
        return np.where(how > 0.9, ratio * rng.choice([1.0, -1.0], count), values)

    def rates(self, S: np.ndarray) -> np.ndarray:
        """Factors that make S as wide, or as large, as an operator's usual operands; three of four are positive."""
        rng, count = self.rng, self.count
        size = np.where(rng.random(count) < 0.7, _width(S), np.fmax.reduce(np.abs(S), axis=1))
        return rng.choice([1.0, 1.0, 1.0, -1.0], count) * 10 ** rng.uniform(*DECADES, count) / size

    def powers(self, V: np.ndarray) -> np.ndarray:
        """Exponents of V."""
        rng, count = self.rng, self.count
        small = rng.choice([-2, -1, -0.5, 0.5, 1, 1.5, 2, 3, 4], count) + 0.2 * rng.standard_normal(count)
        logs = np.log(np.abs(V))
        wide = self.rates(np.where(np.isfinite(logs), logs, np.nan))
        return np.where(rng.random(count) < 0.75, small, wide)

    def turns(self, S: np.ndarray) -> np.ndarray:
        """Angles per unit of S that y turns by, or half, twice, a third as many."""
        rng, count = self.rng, self.count
        wide = 2 * np.pi * 10 ** rng.uniform(-1, 1.5, count) / _width(S)
        moved = S - S[:, :1]
        like = self.column_like(moved[0]) if np.allclose(moved, moved[:1], rtol=1e-6, atol=0) else None
        if like is None:
            return wide
        k, factor = like
        peaks = turns_of(self.sample.X[:, k] * factor, self.looks)
        if not len(peaks):
            return wide
        chosen = peaks[np.minimum(rng.geometric(0.35, count) - 1, len(peaks) - 1)]
        chosen = chosen * rng.choice([1.0, 0.5, 2.0, 1 / 3], count, p=[0.64, 0.2, 0.08, 0.08])
        angles = np.where(rng.random(count) < 0.75, chosen, wide)
        return np.where(self.is_wave, self.waves[k] / factor, angles) if k in self.waves else angles

    def column_like(self, moved: np.ndarray) -> tuple[int, float] | None:
        """The column, and its factor, that differs between the rows here as ``moved`` does."""
        for k in range(self.X.shape[1]):
            own = self.X[:, k] - self.X[0, k]
            far = int(np.argmax(np.abs(own)))
            factor = moved[far] / own[far] if own[far] else 0.0
            if factor and np.allclose(own * factor, moved, rtol=1e-6, atol=1e-9 * abs(moved[far])):
                return k, factor
        return None


def _width(S: np.ndarray) -> np.ndarray:
    """From the least to the largest number of every row, of those that are numbers."""
    return np.asarray(np.fmax.reduce(S, axis=1) - np.fmin.reduce(S, axis=1))


def _inverse(value: Callable[[np.ndarray], np.ndarray], wanted: np.ndarray) -> np.ndarray:
    """Numbers whose values are nearest to what is wanted, (count,), or to that with the other sign."""
    sizes = 10.0 ** np.linspace(-15, 15, 121)
    grid = np.concatenate([sizes, -sizes])[None]
    rows = np.arange(len(wanted))

    def nearest(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        off = np.abs(np.broadcast_to(value(numbers), (len(wanted), numbers.shape[1])) - wanted)
        off[~np.isfinite(off)] = np.inf
        best = off.argmin(axis=1)
        return np.broadcast_to(numbers, off.shape)[rows, best], off[rows, best]

    best, off = nearest(grid)
    other = off > 0.5 * np.abs(wanted[:, 0])
    if other.any():
        wanted = np.where(other[:, None], -wanted, wanted)
        best, off = nearest(grid)
    reach = 10**0.25 - 1
    for _ in range(6):
        best, off = nearest(best[:, None] * (1 + np.linspace(-reach, reach, 9)))
        reach /= 3.5
    return best


# ── what the data show ───────────────────────────────────────────────────────────────


def some_rows(n: int, most: int, rng: np.random.Generator) -> np.ndarray:
    """All rows or so many of them, in their order."""
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))


def telling_rows(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Rows where y is largest, least, steepest, half, or peaks, over each column."""
    rows = [int(np.argmax(y)), int(np.argmin(y)), int(np.argmax(np.abs(y - np.median(y))))]
    for column in X.T if X.shape[1] <= PEAKS else ():
        order = np.argsort(column, kind="stable")
        window = max(1, len(y) // 25)
        smooth = np.convolve(np.pad(y[order], window, mode="edge"), np.ones(2 * window + 1) / (2 * window + 1), "valid")
        step = np.diff(smooth)
        half = (smooth.max() + smooth.min()) / 2
        crossed = np.flatnonzero((smooth[:-1] - half) * (smooth[1:] - half) <= 0)
        rows += order[[int(np.argmax(step)), int(np.argmin(step)), *crossed[:: max(1, len(crossed) // 3)]]].tolist()
        around = np.lib.stride_tricks.sliding_window_view(np.pad(smooth, 2 * window, mode="edge"), 4 * window + 1)
        for tops in (smooth >= around.max(axis=1), smooth <= around.min(axis=1)):
            peaks = np.flatnonzero(tops)
            rows += order[peaks[np.argsort(-np.abs(smooth[peaks] - np.median(smooth)), kind="stable")][:PEAKS]].tolist()
    return np.array(rows)


def turns_of(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Angles per unit of x at the peaks of the periodogram of y, the highest first."""
    rows = some_rows(len(x), TURNED_ON, np.random.Generator(np.random.PCG64(len(x))))
    x, y = x[rows], y[rows]
    width = float(np.ptp(x))
    if not (0 < width < np.inf):
        return np.zeros(0)
    t = (x - x.min()) / width
    trends = (2 * t[:, None] - 1) ** np.arange(TREND + 1)
    steps = np.diff(np.unique(x))
    is_even = np.ptp(steps) < EVEN * steps.mean()  # faster ones are the same as slower ones then
    turns = np.arange(1, min(FREQUENCIES, 2 * len(steps) + 2 if is_even else FREQUENCIES) + 1) / 4  # over the width
    power = np.zeros(len(turns))
    coarse, fine = (
        np.exp(0.5j * np.pi * np.arange(0, FREQUENCIES + 1, step)[: 1 + last // step, None] * t)
        for step, last in ((BLOCK, len(turns)), (1, BLOCK - 1))
    )
    for degree in (0, 1, TREND):
        trend = trends[:, : degree + 1]
        left = y - trend @ np.linalg.lstsq(trend, y, rcond=None)[0]
        own = (np.abs((coarse * left) @ fine.T) ** 2).ravel()[1 : len(turns) + 1]
        power = np.maximum(power, own / max(float(left @ left), np.finfo(float).tiny))
    inner = np.r_[True, power[1:] >= power[:-1]] & np.r_[power[:-1] >= power[1:], True]
    peaks = np.flatnonzero(inner)
    peaks = peaks[np.argsort(-power[peaks], kind="stable")][:PEAKS]
    return 2 * np.pi * turns[peaks] / width


def waves_of(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Frequencies along two columns at once, (n, 2): the second may turn against the first."""
    rows = some_rows(len(y), TURNED_ON, np.random.Generator(np.random.PCG64(len(y))))
    width = np.ptp(X[rows], axis=0)
    if not (np.isfinite(width) & (width > 0)).all():
        return np.zeros((0, 2))
    t, left = (X[rows] - X[rows].min(axis=0)) / width, y[rows] - y[rows].mean()
    turns = np.arange(WAVES + 1) / 2, np.arange(-WAVES, WAVES + 1) / 2
    first, second = (np.exp(2j * np.pi * turns[k][:, None] * t[:, k]) for k in range(2))
    power, peaks = np.abs((first * left) @ second.T), list[list[float]]()
    for _ in range(PEAKS):
        a, b = np.unravel_index(int(power.argmax()), power.shape)
        peaks.append([turns[0][a], turns[1][b]])
        power[max(a - 2, 0) : a + 3, max(b - 2, 0) : b + 3] = 0.0
    return 2 * np.pi * np.array(peaks) / width
