"""Ranges of expressions on a box, and proofs that values lie within limits, by interval arithmetic and bisection.

In: a population, and the least and largest number of every variable and parameter.  Out: intervals, or verdicts.

    >>> import exprkit as ek
    >>> ek.range_of(["x1 - x1 ^ 2", "log(x1)"], {"x1": (0, 1)}).high.round(2).tolist()
    [0.25, 0.0]

A box is cut into halves where the interval of all of it is too wide (branch and bound: R. E. Moore, Methods and
Applications of Interval Analysis, 1979): ``x1 - x1`` is an interval, not 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.device_programs.population import on_host
from exprkit.errors import ArgumentError, brief, did_you_mean, listed, whole
from exprkit.evaluate import inputs
from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.operators import defined
from exprkit.operators.intervals import INF, NONE, UNDEFINED, Enclosure, enclosure
from exprkit.text.names import word_of
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE

BROKEN, OPEN, PROVED = -1, 0, 1  # verdicts
MOST_BOXES = 1 << 20  # of an expression that a user may ask for
MOST_HALVINGS = 30  # of a box, one after the other; chosen, not measured
TINY = 1e-300  # width of an interval that is not cut
POINTS = 32  # of a box, where a formula is looked at first; chosen, not measured
CHUNK = 8192  # boxes that are evaluated at once, so that they stay in cache; chosen, not measured


class Ranges(NamedTuple):
    """Intervals of the values of expressions: float64 ``low`` and ``high``, and bool ``finite``, each (n_exprs,)."""

    low: np.ndarray
    high: np.ndarray
    finite: np.ndarray


class Boxes(NamedTuple):
    """Boxes, each of an expression of a population: the ends are (variables and parameters, n_boxes)."""

    which: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def middles(self) -> np.ndarray:
        return self.low + (self.high - self.low) / 2

    def halves(self, widths: np.ndarray) -> Boxes:
        """Both halves of every box, cut where it is widest in ``widths`` of its expression."""
        if not self.low.size:
            return self
        share = (self.high - self.low) * widths[self.which].T
        cut, every = np.argmax(share, axis=0), np.arange(len(self.which))
        low, high = self.low.copy(), self.high.copy()
        low[cut, every] = high[cut, every] = self.middles[cut, every]
        return Boxes(np.tile(self.which, 2), np.hstack([self.low, low]), np.hstack([high, self.high]))

    def take(self, mask: np.ndarray) -> Boxes:
        return Boxes(self.which[mask], self.low[:, mask], self.high[:, mask])


def range_of(expressions: Any, box: Mapping[str, Any], boxes: int = 256) -> Ranges:
    """Intervals that the values of expressions lie in, wherever variables and parameters are within a box.

    Parameters
    ----------
    expressions : Population, Expression, str or list of them
    box : dict
        By the name of each variable and parameter its least and largest value, as ``{"x1": (0, 10), "p1": 2}``; a
        number stands for both.
    boxes : int
        Number of parts that the box may be cut into for an expression: more make intervals narrower.

    Returns
    -------
    Ranges
        A named tuple of ``low`` and ``high``, float64 (n_exprs,), rounded outwards: no value is beyond them.
        ``finite``, bool (n_exprs,): whether an expression and all its parts are proved to be finite numbers on the box.
        Where it is False there may be points without a value, and low and high are those of the others.

    Raises
    ------
    ArgumentError
        For a box without an interval of every variable and parameter, or with others.

    Examples
    --------
    >>> import exprkit as ek
    >>> ranges = ek.range_of(["exp(-x1) * x2", "1 / (x1 - x2)", "sqrt(x1 - 1)"], {"x1": (0, 2), "x2": (1, 3)})
    >>> ranges.low.round(3).tolist(), ranges.high.round(3).tolist(), ranges.finite.tolist()
    ([0.135, -inf, 0.0], [3.0, inf, 1.0], [True, False, False])
    """
    most, pop = whole("boxes", boxes, 1, MOST_BOXES), on_host(inputs.population(expressions)).expanded()
    names = [*words(pop.variables, pop.n_vars, VARIABLE), *words(pop.parameters, pop.max_params, PARAMETER)]
    n, (left, scales) = len(pop), _begin(pop, *box_of(box, names))
    low, high, finite, counts = np.full(n, INF), np.full(n, -INF), np.ones(n, bool), np.ones(n, np.int64)
    for round_ in range(MOST_HALVINGS):
        of_boxes, of_points = _evaluated(pop, left)
        np.minimum.at(low, left.which, of_points.high)  # there is a value of at most that
        np.maximum.at(high, left.which, of_points.low)
        wide = (of_boxes.low < low[left.which]) | (of_boxes.high > high[left.which])
        wide |= of_boxes.trouble == UNDEFINED
        counts += np.bincount(left.which[wide], minlength=n)
        cut = wide & (counts <= most)[left.which] & scales[left.which].any(axis=1) & (round_ < MOST_HALVINGS - 1)
        settled = wide & ~cut
        np.minimum.at(low, left.which[settled], of_boxes.low[settled])
        np.maximum.at(high, left.which[settled], of_boxes.high[settled])
        finite[left.which[settled & (of_boxes.trouble == UNDEFINED)]] = False
        left = left.take(cut).halves(scales)
        if not len(left.which):
            break
    return Ranges(low, high, finite)


def within(
    parts: Sequence[Expression],
    ends: tuple[np.ndarray, np.ndarray],
    limits: Sequence[tuple[float, float]],
    trouble: Sequence[int],
    most: int,
) -> int:
    """Whether the values of a formula's parts lie within limits on a box: PROVED, BROKEN somewhere, or OPEN.

    ``ends`` of variables, (n_vars,) each; ``limits`` of each part, and the ``trouble`` that may be; ``most`` boxes.
    Parts are formulas that have much in common, as a function and its derivatives: that is evaluated once.
    """
    roots, nodes = _numbered(parts)
    left = Boxes(np.zeros(1, np.int64), ends[0][:, None], ends[1][:, None])
    width = ends[1] - ends[0]
    used = np.isin(np.arange(len(width)), [node[1] for node in nodes if node[0] == VARIABLE]) & (width > TINY)
    scales = np.where(used, 1 / np.maximum(width, TINY), 0.0)[None]
    count, points = 1, left.low + width[:, None] * np.random.default_rng(0).random((len(width), POINTS))
    points = np.minimum(points, left.high)
    for _ in range(MOST_HALVINGS):
        n = len(left.which)
        with np.errstate(all="ignore"):
            values = _values(nodes, np.hstack([left.low, points]), np.hstack([left.high, points]))
        wide, is_open = np.zeros(n, bool), False
        for root, (least, largest), allowed in zip(roots, limits, trouble, strict=True):
            low, high, own = values[root]
            if (high[n:] < least).any() or (low[n:] > largest).any():
                return BROKEN
            inside = (low >= least) & (high <= largest) & (own <= allowed)
            is_open |= not inside[n:].all()  # nor is a box around such a point
            wide |= ~inside[:n]
        count += int(wide.sum())
        if not wide.any() or is_open or count > most:
            return OPEN if is_open or wide.any() else PROVED
        left = left.take(wide).halves(scales).halves(scales)  # in larger steps: a step takes as long for more boxes
        points = left.middles
    return OPEN


def _numbered(parts: Sequence[Expression]) -> tuple[list[int], list[tuple[int, ...]]]:
    """The distinct nodes of parts, operands first: (kind, value, numbers of the operands); the number of each part."""
    nodes: dict[tuple[int, ...], int] = {}
    roots = []
    for part in parts:
        stack: list[int] = []
        for kind, value in zip(part.kinds.tolist(), part.values.tolist(), strict=True):
            begin = len(stack) - (defined.known(value).arity if kind == OPERATOR else 0)
            node = (kind, value, *stack[begin:])
            stack[begin:] = [nodes.setdefault(node, len(nodes))]
        roots += stack
    return roots, list(nodes)


def _values(nodes: list[tuple[int, ...]], low: np.ndarray, high: np.ndarray) -> list[Enclosure]:
    """The values of nodes in boxes, whose ends are (n_vars, n_boxes)."""
    values: list[Enclosure] = []
    known, none = np.zeros(low.shape[1]), np.full(low.shape[1], NONE)
    for kind, value, *operands in nodes:
        if kind == OPERATOR:
            values.append(enclosure(defined.known(value), *(values[k] for k in operands)))
        elif kind == VARIABLE:
            values.append(Enclosure(low[value], high[value], none))
        else:
            ends = _constant(np.array([value], np.uint64))
            values.append(Enclosure(ends.low + known, ends.high + known, ends.trouble + none))
    return values


def words(names: Any, n: int, kind: int) -> list[str]:
    """Names of variables or parameters."""
    return [word_of(kind, k, names) for k in range(len(names) if names else n)]


def box_of(box: Any, names: list[str], default: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the intervals of names, float64; those without one have the ``default``, (n, 2)."""
    if not isinstance(box, Mapping):
        raise ArgumentError(f'box must be a dictionary as {{"{(*names, "x1")[0]}": (0, 1)}}, not {brief(box)}')
    for name in box:
        if name not in names:
            raise ArgumentError(f"box: there is no {brief(name)}{did_you_mean(str(name), names)}")
    if default is None and (missing := [name for name in names if name not in box]):
        raise ArgumentError(f"box needs the least and the largest value of {', '.join(missing)} too")
    ends = np.full((len(names), 2), 0.0) if default is None else default.copy()
    for name, given in box.items():
        ends[names.index(name)] = interval_of(f"box: {name}", given)
    if not np.isfinite(ends).all():
        raise ArgumentError("box: the intervals must be finite")
    return ends[:, 0], ends[:, 1]


def interval_of(what: str, given: Any, ends: tuple[float | None, float | None] = (None, None)) -> tuple[float, float]:
    """(low, high), low <= high, of a pair or of one number; None is read as ``ends`` have it."""
    pair = listed(given) or (given, given)
    pair = tuple(end if value is None else value for value, end in zip(pair, ends, strict=False)) + pair[2:]
    try:
        low, high = map(float, pair)
    except (TypeError, ValueError):
        raise ArgumentError(f"{what} must be (low, high), not {brief(given)}") from None
    if not low <= high:
        raise ArgumentError(f"{what} is empty: {low:g} is not below {high:g}")
    return low, high


# ── evaluation ──


def _begin(pop: Population, low: np.ndarray, high: np.ndarray) -> tuple[Boxes, np.ndarray]:
    """A box for each expression; 1 / its width in what the expression uses and 0 elsewhere, (n_exprs, n)."""
    n, width = len(pop), high - low
    boxes = Boxes(np.arange(n), np.repeat(low[:, None], n, axis=1), np.repeat(high[:, None], n, axis=1))
    owner, used = np.repeat(np.arange(n), pop.n_tokens), np.zeros((n, len(low)))
    for kind, start in ((VARIABLE, 0), (PARAMETER, pop.n_vars)):
        of_kind = pop.kinds == kind
        used[owner[of_kind], start + pop.values[of_kind].astype(np.int64)] = 1.0
    return boxes, used * np.where(width > TINY, 1 / np.maximum(width, TINY), 0.0)


def _evaluated(pop: Population, boxes: Boxes) -> tuple[Enclosure, Enclosure]:
    """The values in boxes, and at their middles."""
    n, middles = len(boxes.which), boxes.middles
    both = Boxes(*(np.concatenate(pair, axis=-1) for pair in zip(boxes, (boxes.which, middles, middles), strict=True)))
    chunks = [slice(begin, begin + CHUNK) for begin in range(0, max(2 * n, 1), CHUNK)]
    with np.errstate(all="ignore"):
        parts = [_enclosures(pop, both.which[part], both.low[:, part], both.high[:, part]) for part in chunks]
    low, high, trouble = map(np.concatenate, zip(*parts, strict=True))
    return Enclosure(low[:n], high[:n], trouble[:n]), Enclosure(low[n:], high[n:], trouble[n:])


def _enclosures(pop: Population, which: np.ndarray, low: np.ndarray, high: np.ndarray) -> Enclosure:
    """The values of expressions in boxes, token by token: one operation for all that have the same operator there."""
    begin, n_tokens, n = pop.offsets[which], pop.n_tokens[which], len(which)
    longest = int(n_tokens.max(initial=0))
    room = longest // 2 + 2, n
    stack = Enclosure(np.full(room, -INF), np.full(room, INF), np.full(room, UNDEFINED))
    top = np.full(n, -1)
    for t in range(longest):
        active = np.flatnonzero(n_tokens > t)
        kinds, values = pop.kinds[begin[active] + t], pop.values[begin[active] + t]
        keys = np.where(kinds == OPERATOR, values.astype(np.int64), -1 - kinds.astype(np.int64))
        for key in np.unique(keys).tolist():
            here = keys == key
            items = active[here]
            if key < 0:
                top[items] += 1
                place, result = top[items], _leaf(pop, -1 - key, values[here], items, low, high)
            else:
                row = defined.known(key)
                place = top[items] = top[items] - (row.arity - 1)
                operands = (Enclosure(*(array[place + k, items] for array in stack)) for k in range(row.arity))
                result = enclosure(row, *operands)
            for array, end in zip(stack, result, strict=True):
                array[place, items] = end
    return Enclosure(*(array[0] for array in stack))


def _leaf(
    pop: Population, kind: int, values: np.ndarray, items: np.ndarray, low: np.ndarray, high: np.ndarray
) -> Enclosure:
    if kind != CONSTANT:
        place = values.astype(np.int64) + (pop.n_vars if kind == PARAMETER else 0)
        return Enclosure(low[place, items], high[place, items], np.full(len(items), NONE))
    return _constant(values)


def _constant(values: np.ndarray) -> Enclosure:
    """Numbers, by their bits."""
    numbers = values.view(np.float64)
    is_nan = np.isnan(numbers)
    trouble = np.where(np.isfinite(numbers), NONE, UNDEFINED)
    return Enclosure(np.where(is_nan, -INF, numbers), np.where(is_nan, INF, numbers), trouble)
