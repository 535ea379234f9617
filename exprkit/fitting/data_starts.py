"""Starts of fits that see the data: where parameters may lie, judged by where they stand and by the columns beside them.

In: expressions and their data.  Out: a few starts of each, the best of many.

    >>> import exprkit as ek, numpy as np
    >>> x = np.linspace(400, 700, 61)[:, None]
    >>> y = 30 * np.exp(-(((x[:, 0] - 523) / 11) ** 2))
    >>> ek.fit("p1 * exp(-((x1 - p2) / p3)^2)", x, y, dtype="float64").params.round(3)
    array([[ 30., 523.,  11.]])

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
The candidates are compared on some rows, with the parameters that the expression is linear in solved (G. H. Golub,
V. Pereyra, SIAM J. Numer. Anal. 10, 1973), then the better ones among each other and crossed; fits on some more rows
from the best of them, and from others, leave the few that are given.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends import objective
from exprkit.backends.device_programs.population import DevicePopulation
from exprkit.backends.objective import Options
from exprkit.evaluate import inputs
from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.population import Population
from exprkit.fitting import first_order
from exprkit.operators import defined, ops
from exprkit.operators.defined import table_of_rows
from exprkit.programs.linearity import dependence
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE

MOST_EXPRESSIONS = 32  # of a population that gets such starts: they take some 20 ms each
MOST_SCATTERED = 1000  # of a population half of whose restarts are drawn by the data: they take some 2 ms each
MOST_TOKENS, MOST_PARAMS = 300, 24  # of such an expression
CANDIDATES = 1024  # drawn of each expression
CROSSED, ROUNDS, PARENTS = 512, 3, 48  # candidates made of the better ones, how often, and of how many
DRAWN_ON, COMPARED_ON, FITTED_ON, LOOKED_AT = 48, 192, 1024, 16384  # rows
FITTED = 16  # candidates that are fitted
FITTED_STEPS = 60  # of each of those fits
GIVEN = 3  # starts of each expression
FREQUENCIES = 4096  # of a periodogram, four of them to a turn over the column's width
PEAKS = 8  # of a periodogram, and of y over a column
POINTS = np.linspace(-3, 3, 7)  # where an operator is looked at
DECADES = (-1.3, 2.3)  # how many times its usual width an operand may be
APART = 1e-6  # share by which the losses of two fits differ that are not the same


class Sample(NamedTuple):
    """The rows of a fit that count, float64."""

    X: np.ndarray
    y: np.ndarray
    w: np.ndarray  # (n_rows,)

    def of(self, rows: np.ndarray) -> Sample:
        return Sample(self.X[rows], self.y[rows], self.w[rows])

    @classmethod
    def counted(cls, X: np.ndarray, y: np.ndarray, w: np.ndarray | None, looks: np.ndarray) -> tuple[Sample, np.ndarray]:
        """The rows of weight above 0, of very many some, and ``looks`` there."""
        rows = np.flatnonzero(np.isfinite(y) & np.isfinite(looks) & (True if w is None else w > 0))
        rows = rows[_some_rows(len(rows), LOOKED_AT, np.random.Generator(np.random.PCG64(len(rows))))]
        weights = np.ones(len(rows)) if w is None else np.asarray(w[rows], np.float64)
        return cls(np.asarray(X[rows], np.float64), y[rows], weights), looks[rows]


class Bounds(NamedTuple):
    """Of the parameters of one expression."""

    lower: np.ndarray
    upper: np.ndarray

    @classmethod
    def of(cls, options: Options, i: int, n: int) -> Bounds:
        lower = np.full(n, -np.inf) if options.lower is None else options.lower[i, :n]
        return cls(lower, np.full(n, np.inf) if options.upper is None else options.upper[i, :n])

    def within(self, p: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The same, where they are outside on the other side of 0, at the bound, or anywhere between two bounds."""
        out = (p < self.lower) | (p > self.upper)
        p = np.where(out, -p, p)
        both = np.isfinite(self.lower) & np.isfinite(self.upper)
        low, high = (np.where(both, side, 0.0) for side in self)
        between = low + rng.random(p.shape) * (high - low)
        out = ((p < self.lower) | (p > self.upper)) & both
        return np.clip(np.where(out, between, p), self.lower, self.upper)


class Drawing(NamedTuple):
    """How the starts of a fit are to be made."""

    looks: bool  # at the data: the user gave no start
    restarts: int
    seed: int
    threads: int | None

    def of(
        self, starts: Any, pop: Any, X: Any, y: Any, w: Any, options: Options, looks: Any = None
    ) -> Any:  # fmt: skip
        """The starts, with those that see the data: few of each expression, and for every second restart one.

        ``looks``: what peaks, turns and steps are looked for in, where y is the target of a loss that adds up values.
        """
        looking = self.looks and len(pop) <= MOST_EXPRESSIONS
        drawn = self.restarts // 2 if len(pop) <= MOST_SCATTERED else 0
        if isinstance(pop, DevicePopulation) or not (looking or drawn) or starts.shape[2] == 0:
            return starts
        y, looks = (None if one is None else np.asarray(inputs.on_host(one), np.float64) for one in (y, looks))
        looks = y if looks is None or options.kind != objective.SUM else looks
        sample, looks = Sample.counted(*(None if one is None else inputs.on_host(one) for one in (X, y, w)), looks)
        if drawn and (more := scattered(pop, sample, options, drawn, self.seed, looks)) is not None:
            starts = np.array(starts)
            starts[-drawn:] = np.where(np.isnan(more), starts[-drawn:], more)
        found = data_starts(pop, sample, options, self.threads, looks) if looking else None
        return starts if found is None else np.concatenate([starts[:1], found, starts[1:]])


def data_starts(
    pop: Population, sample: Sample, options: Options, threads: int | None, looks: np.ndarray
) -> np.ndarray | None:
    """The best starts of every expression, (GIVEN, n_exprs, max_params); None where there is none to be made."""
    if len(sample.y) < 3:
        return None
    solved = dependence(pop)
    rng = np.random.Generator(np.random.PCG64([len(sample.y), sample.X.shape[1]]))
    which, drawn = list[int](), list[np.ndarray]()
    for i in range(len(pop)):
        tree = _Tree.of(pop, i, int(solved.linear[i]))
        if tree is None or not solved.differentiable[i] or tree.linear.all():
            continue
        bounds = Bounds.of(options, i, tree.n_params)
        p = draw(tree, sample, looks, bounds, CANDIDATES, rng)
        p = _compared(pop[[i]], tree, p, sample, bounds, options.kind, threads, rng)
        if len(p):
            which.append(i)
            drawn.append(p)
    if not which:
        return None
    return _fitted(pop, which, drawn, sample, options, threads, rng)


def scattered(
    pop: Population, sample: Sample, options: Options, count: int, seed: int, looks: np.ndarray
) -> np.ndarray | None:
    """So many starts of every expression as they are drawn, (count, n_exprs, max_params); nan where there are none."""
    if len(sample.y) < 3:
        return None
    solved = dependence(pop)
    starts = np.full((count, len(pop), pop.max_params), np.nan)
    for i in range(len(pop)):
        tree = _Tree.of(pop, i, int(solved.linear[i]))
        if tree is not None and not tree.linear.all():
            rng = np.random.Generator(np.random.PCG64([seed, i]))
            bounds = Bounds.of(options, i, tree.n_params)
            starts[:, i, : tree.n_params] = draw(tree, sample, looks, bounds, count, rng)
    return starts


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
            row.code for row in defined.table() if row.arity == 1 and row.width == 1
            and np.allclose(row.numpy(POINTS), row.numpy(POINTS + 2 * np.pi), rtol=1e-9, atol=1e-9)
            and np.ptp(np.asarray(row.numpy(POINTS))) > 0
        )  # fmt: skip


@functools.cache
def _powers() -> frozenset[int]:
    other = ops.BY_CODE[ops.POW].rewrite.positive_a
    return frozenset({ops.POW} | ({ops.BY_NAME[other].code} if other else set()))


class _Tree(NamedTuple):
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
    def of(cls, pop: Population, i: int, linear: int) -> _Tree | None:
        one = pop[[i]].expanded()
        n, n_params = len(one.kinds), int(pop.n_params[i])
        if not pop.valid[i] or not 0 < n_params <= MOST_PARAMS or n > MOST_TOKENS:
            return None
        kinds, values = one.kinds, one.values.astype(np.int64)
        codes = values[kinds == OPERATOR].tolist()
        if any(row is None or row.packed or row.width != 1 for row in map(_row, codes)):
            return None
        parent, place, first, stack = np.full(n, -1), np.zeros(n, int), np.arange(n), list[int]()
        for t in range(n):
            if kinds[t] == OPERATOR:
                arity = _row(int(values[t])).arity
                operands, stack = stack[-arity:], stack[:-arity]
                parent[operands], place[operands], first[t] = t, range(arity), first[operands[0]]
            stack.append(t)
        values[kinds == CONSTANT] = 0
        return cls(
            kinds, one.values, parent, place, first, np.array([bool(linear >> j & 1) for j in range(n_params)])
        )

    def below(self, t: int) -> slice:
        return slice(int(self.first[t]), t + 1)

    def operands(self, t: int) -> list[int]:
        return np.flatnonzero(self.parent == t).tolist()

    def parameters(self, t: int) -> set[int]:
        part = self.below(t)
        return set(self.values[part][self.kinds[part] == PARAMETER].astype(int).tolist())

    def is_constant(self, t: int) -> bool:
        return bool(np.isin(self.kinds[self.below(t)], (CONSTANT, OPERATOR)).all())

    def value(self, t: int, columns: np.ndarray, params: Any) -> np.ndarray:
        """What hangs below t, where parameter j is ``params(j)``."""
        stack: list[Any] = []
        for k in range(int(self.first[t]), t + 1):
            value = int(self.values[k]) if self.kinds[k] != CONSTANT else 0
            if self.kinds[k] == OPERATOR:
                row = _row(value)
                operands, stack = stack[-row.arity :], stack[: -row.arity]
                stack.append(row.numpy(*operands))
            elif self.kinds[k] == VARIABLE:
                stack.append(columns[:, value][None])
            else:
                number = self.values[k : k + 1].view(np.float64)
                stack.append(params(value) if self.kinds[k] == PARAMETER else number[None])
        return np.asarray(stack[0], np.float64)

    def use(self, t: int) -> tuple[int, int, float]:
        """The operator that bends what t is, -1 if none does, which operand of it, and what numbers multiply t by."""
        factor = 1.0
        while (up := int(self.parent[t])) >= 0:
            code, place = int(self.values[up]), int(self.place[t])
            if (code, place) in _curved():
                return code, place, factor
            row, others = _row(code), [o for o in self.operands(up) if o != t]
            if all(self.is_constant(other) for other in others):
                known = [self.value(other, np.zeros((1, 1)), None) for other in others]
                at = [row.numpy(*known[:place], np.full((1, 1), number), *known[place:]) for number in (0.0, 1.0)]
                factor *= float((at[1] - at[0]).item()) or 1.0
            t = up
        return -1, 0, factor


def _row(code: int) -> Any:
    return defined.row(code)


# ── drawing candidates ───────────────────────────────────────────────────────────────


def draw(
    tree: _Tree, sample: Sample, looks: np.ndarray, bounds: Bounds, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Candidates for all parameters, float64 (count, n_params)."""
    with np.errstate(all="ignore"):
        p = _Draw(tree, sample, looks, count, rng).candidates()
        return bounds.within(np.where(np.isfinite(p), p, 1.0), rng)


class _Draw:
    """The candidates of one expression while they are made."""

    def __init__(self, tree: _Tree, sample: Sample, looks: np.ndarray, count: int, rng: np.random.Generator) -> None:
        self.tree, self.count, self.rng, self.sample, self.looks = tree, count, rng, sample, looks
        used = sorted(set(tree.values[tree.kinds == VARIABLE].astype(int).tolist()))
        self.telling = telling_rows(sample.X[:, used], looks)
        rows = _some_rows(len(looks), DRAWN_ON, rng)
        self.rows = np.concatenate([self.telling, rows])  # the telling ones first
        self.X = sample.X[self.rows]
        self.width_of_y = float(np.ptp(looks)) or 1.0
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
            self.settle(o, lambda other=other, k=k: self.targets(t, row, k, other))
            operands[k] = o, self.tree.value(o, self.X, self.given)
        return row.numpy(*(value for _, value in operands))

    def settle(self, t: int, targets: Callable[[], np.ndarray]) -> None:
        """Let what hangs below t have such values."""
        open_ones = [j for j in sorted(self.tree.parameters(t)) if np.isnan(self.p[:, j]).any()]
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
            sign = 1.0 if (k == 1 and slopes[1].startswith("-")) else -1.0
            if k == 0 and slopes[1].startswith("-"):
                sign = 1.0
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
        row = np.where(self.rng.random(count) < 0.6, self.rng.integers(n, size=count),
                       self.rng.integers(V.shape[1], size=count))  # fmt: skip
        return V[np.arange(count), row]

    def places(self, V: np.ndarray, code: int, place: int) -> np.ndarray:
        """Where a sum, or what is compared, may turn: values of V."""
        rng, count = self.rng, self.count
        low, high = np.nanmin(V, axis=1), np.nanmax(V, axis=1)
        width = high - low
        found, how = self.at_rows(V), rng.random(count)
        outside = np.where(rng.random(count) < 0.5, low - width * 10 ** rng.uniform(-2, 1, count),
                           high + width * 10 ** rng.uniform(-2, 1, count))  # fmt: skip
        found = np.where(how < 0.12, outside, found)
        if code in _periodic():
            return np.where(how > 0.4, rng.uniform(-np.pi, np.pi, count), found)
        positive = (how > 0.55) & (low >= 0) & ((code, place) != (-1, 0))
        found = np.where(positive, -np.abs(found), found)  # so that a sum stays as it is
        return np.where((how > 0.12) & (how < 0.2), -self.looks[rng.integers(len(self.looks), size=count)], found)

    def factors(self, S: np.ndarray, code: int, place: int, multiplied: float) -> np.ndarray:
        """What S may be multiplied by, before numbers ``multiply`` it and the operator bends it."""
        rng, count = self.rng, self.count
        if code in _periodic():
            found = self.turns(S) / multiplied
            return np.where(rng.random(count) < 0.2, self.rates(S) / multiplied, found)
        found, how = self.rates(S) / multiplied, rng.random(count)
        at = 1 / self.at_rows(S)
        found = np.where(how < 0.25, at, found)
        ratio = self.width_of_y / np.nanstd(S, axis=1) * 10 ** rng.uniform(-1, 1, count)
        return np.where(how > 0.9, ratio * rng.choice([1.0, -1.0], count), found)

    def rates(self, S: np.ndarray) -> np.ndarray:
        """Factors that make S as wide, or as large, as an operator's usual operands; three of four are positive."""
        rng, count = self.rng, self.count
        size = np.where(rng.random(count) < 0.7, np.nanmax(S, axis=1) - np.nanmin(S, axis=1),
                        np.nanmax(np.abs(S), axis=1))  # fmt: skip
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
        wide = 2 * np.pi * 10 ** rng.uniform(-1, 1.5, count) / (np.nanmax(S, axis=1) - np.nanmin(S, axis=1))
        moved = S - S[:, :1]
        column = self.column_like(moved[0]) if np.allclose(moved, moved[:1], rtol=1e-6, atol=0) else None
        peaks = np.zeros(0) if column is None else turns_of(column, self.looks)
        if not len(peaks):
            return wide
        chosen = peaks[np.minimum(rng.geometric(0.35, count) - 1, len(peaks) - 1)]
        chosen = chosen * rng.choice([1.0, 0.5, 2.0, 1 / 3], count, p=[0.64, 0.2, 0.08, 0.08])
        return np.where(rng.random(count) < 0.75, chosen, wide)

    def column_like(self, moved: np.ndarray) -> np.ndarray | None:
        """All rows of a column that differs between the rows here as ``moved`` does, from its factor."""
        for k in range(self.X.shape[1]):
            own = self.X[:, k] - self.X[0, k]
            far = int(np.argmax(np.abs(own)))
            if own[far] != 0 and np.allclose(own * (moved[far] / own[far]), moved, rtol=1e-6, atol=1e-9 * abs(moved[far])):
                return self.sample.X[:, k] * (moved[far] / own[far])
        return None


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
    reach = 10 ** 0.25 - 1
    for _ in range(6):
        best, off = nearest(best[:, None] * (1 + np.linspace(-reach, reach, 9)))
        reach /= 3.5
    return best


# ── what the data show ───────────────────────────────────────────────────────────────


def _some_rows(n: int, most: int, rng: np.random.Generator) -> np.ndarray:
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
            found = np.flatnonzero(tops)
            rows += order[found[np.argsort(-np.abs(smooth[found] - np.median(smooth)), kind="stable")][:PEAKS]].tolist()
    return np.array(rows)


def turns_of(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Angles per unit of x at the peaks of the periodogram of y, the highest first."""
    rows = _some_rows(len(x), FITTED_ON, np.random.Generator(np.random.PCG64(len(x))))
    x, y = x[rows], y[rows]
    width = float(np.ptp(x))
    if not (0 < width < np.inf):
        return np.zeros(0)
    t = (x - x.min()) / width
    line = np.stack([np.ones_like(t), t], 1)
    turns = np.arange(1, min(FREQUENCIES, 2 * len(np.unique(x))) + 1) / 4  # over the whole width, up to half the rows
    power = np.zeros(len(turns))
    for left in (y - y.mean(), y - line @ np.linalg.lstsq(line, y, rcond=None)[0]):
        angle = 2 * np.pi * turns[:, None] * t
        own = (np.cos(angle) @ left) ** 2 + (np.sin(angle) @ left) ** 2
        power = np.maximum(power, own / max(float(left @ left), np.finfo(float).tiny))
    inner = np.r_[True, power[1:] >= power[:-1]] & np.r_[power[:-1] >= power[1:], True]
    peaks = np.flatnonzero(inner)
    peaks = peaks[np.argsort(-power[peaks], kind="stable")][:PEAKS]
    return 2 * np.pi * turns[peaks] / width


# ── the better ones ──────────────────────────────────────────────────────────────────


def _compared(
    one: Population, tree: _Tree, p: np.ndarray, sample: Sample, bounds: Bounds, kind: int, threads: int | None,
    rng: np.random.Generator,
) -> np.ndarray:  # fmt: skip
    """The best candidates, and others that are worse."""
    sample = sample.of(_some_rows(len(sample.y), COMPARED_ON, rng))
    ev = Evaluator(one, sample.X, "cpu", dtype="float64", threads=threads)
    p, score = _solved(ev, tree, p, sample, kind)
    free = np.flatnonzero(~tree.linear)
    for _ in range(ROUNDS):
        order = np.argsort(score, kind="stable")
        p, score = p[order], score[order]
        n_parents = min(PARENTS, int(np.isfinite(score).sum()))
        if n_parents < 2:
            break
        pairs = (n_parents * rng.random((2, CROSSED)) ** 2).astype(int)
        new = np.where(rng.random((CROSSED, tree.n_params)) < 0.5, p[pairs[0]], p[pairs[1]])
        size = rng.choice([0.0, 0.02, 0.2, 0.6], CROSSED)[:, None]
        move = np.exp(size * rng.standard_normal((CROSSED, len(free))))
        shift = np.where(rng.random((CROSSED, len(free))) < 0.5, p[pairs[0]][:, free] - p[pairs[1]][:, free], 0.0)
        new[:, free] = new[:, free] * move + shift * rng.uniform(-0.5, 0.5, (CROSSED, 1))
        new, new_score = _solved(ev, tree, bounds.within(new, rng), sample, kind)
        p, score = np.concatenate([p, new]), np.concatenate([score, new_score])
    order = np.argsort(score, kind="stable")[: int(np.isfinite(score).sum())]
    if not len(order):
        return p[:0]
    apart, last = list[int](), -np.inf  # of equal ones the first
    for i in order.tolist():
        if score[i] > last * (1 + 1e-9) or last < 0:
            apart.append(i)
            last = score[i]
    best = np.array(apart)
    ranks = np.unique(np.minimum(np.r_[np.arange(FITTED // 2), np.geomspace(FITTED // 2, len(best), FITTED // 2).astype(int)],
                                 len(best) - 1))  # fmt: skip
    return bounds.within(p[best[ranks]], rng)


def _solved(ev: Evaluator, tree: _Tree, p: np.ndarray, sample: Sample, kind: int) -> tuple[np.ndarray, np.ndarray]:
    """The candidates with their linear parameters at the least squares, and what is left; inf where it is not finite."""
    y, w = sample.y, sample.w / max(float(sample.w.sum()), np.finfo(float).tiny)
    linear = np.flatnonzero(tree.linear) if kind != objective.SUM else np.zeros(0, int)
    with np.errstate(all="ignore"):
        if not len(linear):
            f = ev.evaluate(p[:, None])[:, 0]
            score = (f * w).sum(axis=1) if kind == objective.SUM else (w * (f - y) ** 2).sum(axis=1)
            return p, np.where(np.isfinite(score), score, np.inf)
        sets = np.repeat(p[None], 1 + len(linear), axis=0)
        sets[:, :, linear] = 0.0
        sets[1 + np.arange(len(linear)), :, linear] = 1.0
        f = ev.evaluate(sets.reshape(-1, 1, p.shape[1]))[:, 0].reshape(*sets.shape[:2], len(y))
        basis = np.sqrt(w) * (f[1:] - f[0]).transpose(1, 0, 2)  # (count, n_linear, n_rows)
        left = np.sqrt(w) * (y - f[0])
        fine = np.isfinite(basis).all(axis=(1, 2)) & np.isfinite(left).all(axis=1)
        basis[~fine], left[~fine] = 0.0, 0.0
        size = np.sqrt(np.einsum("cjn,cjn->cj", basis, basis))
        size[size == 0] = 1.0
        basis = basis / size[:, :, None]
        gram = np.einsum("cjn,ckn->cjk", basis, basis)
        toward = np.einsum("cjn,cn->cj", basis, left)
        solved = np.einsum("cjk,ck->cj", np.linalg.pinv(gram, rcond=1e-9, hermitian=True), toward)
        score = ((left - np.einsum("cj,cjn->cn", solved, basis)) ** 2).sum(axis=1)
        p = p.copy()
        p[:, linear] = solved / size
        return p, np.where(fine & np.isfinite(score) & np.isfinite(p).all(axis=1), score, np.inf)


def _fitted(
    pop: Population, which: list[int], drawn: list[np.ndarray], sample: Sample, options: Options, threads: int | None,
    rng: np.random.Generator,
) -> np.ndarray:  # fmt: skip
    """Where fits from the candidates end on some rows: the best that differ, (GIVEN, n_exprs, max_params)."""
    rows = _some_rows(len(sample.y), FITTED_ON, rng)
    some = sample.of(rows)
    copies = np.repeat(which, [len(p) for p in drawn])
    width = pop.max_params
    starts = np.concatenate([np.pad(p, ((0, 0), (0, width - p.shape[1])), constant_values=1.0) for p in drawn])
    ev = Evaluator(pop[copies], some.X, "cpu", dtype="float64", threads=threads)
    width_here = ev.pop.max_params
    short = options.of(copies, width_here)._replace(max_iter=min(FITTED_STEPS, options.max_iter), limits=None, patience=0)
    y, w = some.y, None if np.all(some.w == 1) else some.w
    begin = np.ascontiguousarray(starts[None, :, :width_here])
    if options.kind == objective.SUM:
        fitted = first_order.minimise(ev, "lbfgs", begin, y, w, short)
    else:
        fitted = ev.derivatives().fit(begin, y, w, short)
    given = np.full((GIVEN, len(pop), width), 1.0)
    for i in which:
        mine = np.flatnonzero((copies == i) & np.isfinite(fitted.loss))
        mine = mine[np.argsort(fitted.loss[mine], kind="stable")]
        chosen = list[int]()
        for k in mine.tolist():
            if not chosen or abs(fitted.loss[k] - fitted.loss[chosen[-1]]) > APART * abs(fitted.loss[k]):
                chosen.append(k)
        for rank, k in enumerate(chosen[:GIVEN]):
            given[rank, i, :width_here] = np.nan_to_num(fitted.params[k], nan=1.0)
    return given
