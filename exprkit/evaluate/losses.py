"""The named losses of ``Evaluator``, built from sums that every backend has.

In: a loss by name, or a text and the points it was asked for at.  Out: which sum, and what the loss is of it.

    >>> from exprkit.evaluate.losses import LOSSES
    >>> summed, finish = LOSSES["mse"]
    >>> summed, finish(6.0, 3.0)  # of the sum, and of the sum of weights
    ('square', 2.0)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.device_programs.population import on_host as on_host_population
from exprkit.backends.gpu.device import fetched_together
from exprkit.errors import DataError, one_of
from exprkit.evaluate import inputs, loss_text, tables
from exprkit.evaluate.loss_target import Asked, KnownArrays, LossTarget, RepeatedLoss
from exprkit.operators import ops

LOSSES: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    # name: (what is summed over the points, how the sum and the sum of weights make the loss)
    "sse": ("square", lambda sums, weight: sums),
    "mse": ("square", lambda sums, weight: sums / weight),
    "rmse": ("square", lambda sums, weight: np.sqrt(sums / weight)),
    "mae": ("absolute", lambda sums, weight: sums / weight),
    "sae": ("absolute", lambda sums, weight: sums),
    "sum": ("sum", lambda sums, weight: sums),
    "r2": ("square", lambda sums, spread: 1 - sums / spread),
    ops.LARGEST: ("largest", lambda largest, weight: largest),
    "correlation": ("correlation", lambda correlation, weight: correlation),
}
MEANS = ("mse", "mae")
OTHER_WORDS = {"squares": "sse", "l2": "sse", "l1": "sae", "R2": "r2"}  # what the same is called elsewhere
OWN = "an expression over f and y"
OWN_KINDS = {"square": "sse", "absolute": "sae", "sum": "sum"}  # what a loss of the user's own is added up by
SUMS = tuple(OWN_KINDS.values())  # losses that are a sum as it is
ELSEWHERE = np.ndarray, type(None)  # what a device does not write to


def summed(kind: Any) -> str:
    """What of a loss that has a name is added up; DataError for another one."""
    return LOSSES[one_of("kind", kind, tuple(LOSSES), DataError, other_words=OTHER_WORDS, besides=OWN)][0]


def largest(ev: Any, sets: Any, y: Any, w: Any) -> np.ndarray:
    """The largest absolute error where ``w`` is not 0, float64 (n_sets, n_exprs); of some expressions at a time."""
    found = np.zeros((len(sets), len(ev.pop)))
    for k, part, values in ev.in_parts(sets):
        errors = abs(values - y)
        errors = errors if w is None else errors[:, w != 0]
        if errors.shape[1]:
            found[k, part] = inputs.on_host(errors.max(-1))
    return found


def largest_and_slope(ev: Any, sets: Any, y: Any, w: Any) -> tuple[np.ndarray, np.ndarray]:
    """The largest error and its gradient: that of the error at the first point where it is so large."""
    found, everything = np.zeros((len(sets), len(ev.pop))), on_host_population(ev.pop)
    gradient = np.zeros((*found.shape, everything.max_params))
    if not (ev.n_points if w is None else bool((w != 0).any())):
        return found, gradient
    for k, part, values in ev.in_parts(sets):
        errors = values - y
        sizes = abs(errors)
        if w is not None:
            sizes[:, w == 0] = -1.0  # nan at such a point is not the largest either
        at, every = inputs.on_host(sizes.argmax(-1)), np.arange(len(sizes))
        found[k, part] = inputs.on_host(sizes[every, at])
        signs = np.sign(inputs.on_host(errors[every, at]).astype(np.float64))
        for some in range(0, len(at), FEW):
            own, numbers = slice(some, some + FEW), slice(part.start + some, min(part.start + some + FEW, len(ev.pop)))
            pop, (rows, place) = everything[numbers], np.unique(at[own], return_inverse=True)
            J = ev.with_population(pop, rows=rows).jacobian(sets[k][numbers, : pop.max_params])
            slopes = inputs.on_host(J)[np.arange(len(pop)), place]
            gradient[k, numbers, : pop.max_params] = slopes * signs[own, None]
    return found, gradient


class Centred(NamedTuple):
    """What y is to a correlation: all of it is about f - m, so that little is lost where f is near y."""

    m: Any  # y's mean at every point
    w: Any
    above: Any  # w (y - m) where that is positive, else 0
    below: Any  # the others' sizes: weights are never negative
    total: float  # of the weights
    rest: float  # of w (y - m): its rounding
    spread: np.float64
    hardly: float  # see ``HARDLY``

    @classmethod
    def of(cls, ev: Any, y: Any, w: Any) -> Centred:
        own, own_w = inputs.on_host(y).astype(np.float64), np.ones(ev.n_points)
        own_w = own_w if w is None else inputs.on_host(w).astype(np.float64)
        own = np.where(own_w > 0, own, 0.0)
        total = own_w.sum()
        mean = ev.dtype.type(own_w @ own / total)
        signed = (own_w * (own - mean)).astype(ev.dtype)
        vectors = (np.full(len(own), mean, ev.dtype), np.maximum(signed, 0), np.maximum(-signed, 0))
        m, above, below = (inputs.beside_data(vector, ev.X) for vector in vectors)
        return cls(m, w, above, below, total, signed.sum(dtype=np.float64), spread(y, w), HARDLY[ev.dtype.name])

    def sums(self, make: Callable[..., Any]) -> list[Any]:
        """What ``make(y, weights, kind)`` gives for sum w (f - m), sum w (f - m)^2 and sum w (y - m) (f - m)."""
        asked = (self.w, "sum"), (self.w, "square"), (self.above, "sum"), (self.below, "sum")
        first, second, above, below = (make(self.m, weights, kind) for weights, kind in asked)
        return [first, second, above - below]

    def correlation(self, first: Any, second: Any, both: Any) -> tuple[Any, Any, Any]:
        """It, and the variance of f and the root that it is a quotient by; nan where f hardly varies."""
        varies = second - first * first / self.total
        varies = np.where(varies > self.hardly * second, varies, np.nan)
        root = np.sqrt(varies * self.spread)
        return (both - first * (self.rest / self.total)) / root, varies, root


def correlation(ev: Any, sets: Any, y: Any, w: Any) -> Any:
    """Pearson's correlation, float64 (n_sets, n_exprs), of sums that every backend has."""
    with np.errstate(all="ignore"):
        centred = Centred.of(ev, y, w)
        there = centred.sums(lambda *of: ev.engine.loss_sums(sets, *of))
        sums = [inputs.on_host(one) for one in there]
        found = centred.correlation(*sums)[0]
        for k, which in _hardly_varying(found, sums):
            for part, _, _, own, _ in _around_own_means(ev, sets[k], which, y, w):
                found[k, part] = own
        found = np.clip(found, -1.0, 1.0)
        return found if isinstance(there[0], np.ndarray) else inputs.library_of(there[0]).asarray(found)


def correlation_and_slope(ev: Any, sets: Any, y: Any, w: Any) -> tuple[Any, Any]:
    """The correlation and its gradient, of the sums' gradients."""

    def make(*of: Any) -> np.ndarray:
        sums, gradient = ev.derivatives().loss_and_grad(sets, *of)
        return np.concatenate([inputs.on_host(sums)[..., None], inputs.on_host(gradient)], axis=-1)

    with np.errstate(all="ignore"):
        centred = Centred.of(ev, y, w)
        (first, d_first), (second, d_second), (both, d_both) = (
            (made[..., 0], made[..., 1:]) for made in centred.sums(make)
        )
        found, varies, root = (made[..., None] for made in centred.correlation(first, second, both))
        d_varies = d_second - 2.0 / centred.total * first[..., None] * d_first
        slope = (d_both - centred.rest / centred.total * d_first) / root - 0.5 * found / varies * d_varies
        found = found[..., 0]
        for k, which in _hardly_varying(found, (first, second, both)):
            for part, inner, rows, own, by_value in _around_own_means(ev, sets[k], which, y, w, 1 + ev.pop.max_params):
                J = inputs.on_host(inner.jacobian(sets[k][part, : inner.pop.max_params]))[:, rows].astype(np.float64)
                found[k, part] = own
                slope[k, part, : inner.pop.max_params] = np.einsum("in,inj->ij", by_value, J - J[:, :1])
        return np.clip(found, -1.0, 1.0), slope


def _hardly_varying(found: np.ndarray, sums: Sequence[np.ndarray]) -> Iterator[tuple[int, np.ndarray]]:
    """For each set of parameters the expressions whose sums are all rounding, though f is a number everywhere."""
    for k, some in enumerate(np.isnan(found) & np.isfinite(sums[0])):
        if some.any():
            yield k, np.flatnonzero(some)


def _around_own_means(
    ev: Any, params: Any, which: np.ndarray, y: Any, w: Any, width: int = 1
) -> Iterator[tuple[np.ndarray, Any, np.ndarray, np.ndarray, np.ndarray]]:
    """Correlations of values with their means taken out first, some expressions at a time; nan of constant values.

    ``width``: numbers at every point, of an expression.
    Gives these expressions, their evaluator, the rows that count, the correlations and their derivatives by values.
    """
    own_w = np.ones(ev.n_points) if w is None else inputs.on_host(w).astype(np.float64)
    rows = np.flatnonzero(own_w > 0)
    own_w, target = own_w[rows] / own_w[rows].sum(), inputs.on_host(y).astype(np.float64)[rows]
    target, everything = target - own_w @ target, on_host_population(ev.pop)
    deviation = np.sqrt(own_w @ target**2)
    at_once = max(1, AT_ONCE // (max(ev.n_points, 1) * width))
    for begin in range(0, len(which), at_once):
        part = which[begin : begin + at_once]
        inner = ev.with_population(everything[part])
        f = inputs.on_host(inner.evaluate(params[part, : inner.pop.max_params]))[:, rows].astype(np.float64)
        f -= f[:, :1]  # exact where they are close to each other
        f -= (f @ own_w)[:, None]
        scale = np.abs(f).max(axis=1, keepdims=True)
        f /= scale
        root = np.sqrt(f**2 @ own_w)[:, None]
        found = (f / root) @ (own_w * target) / deviation
        yield part, inner, rows, found, own_w * (target / deviation - found[:, None] * f / root) / (root * scale)


MEASURES: dict[str, Callable[..., Any]] = {"largest": largest, "correlation": correlation}  # that are no sum
WITH_SLOPES: dict[str, Callable[..., Any]] = {"largest": largest_and_slope, "correlation": correlation_and_slope}
NO_SUMS = tuple(kind for kind, (summed, _) in LOSSES.items() if summed in MEASURES)
# variance as a share of the mean square about y's mean, below which means are taken out first: of the digits of sums
# as many are lost as it has zeros
HARDLY = {"float32": 1e-3, "float64": 1e-6}
AT_ONCE = 1 << 22  # numbers of expressions that hardly vary
FEW = 64  # expressions whose derivatives are made at the points of their largest errors, all at all of these


def sums_of(ev: Any, sets: Any, y: Any, w: Any, summed: str, counts: np.ndarray | None, out: Any = None) -> Any:
    """What a loss is made of, float64 (n_sets, n_exprs); with ``counts`` how many nan and inf there were, too.

    ``out``: where an engine that ``stores_sums`` is to put them.
    """
    if out is not None:
        return ev.engine.loss_sums(sets, y, w, summed, counts, out)
    if summed in MEASURES:
        found = MEASURES[summed](ev, sets, y, w)
    elif counts is not None and ev.engine.counts_losses:
        return ev.engine.loss_sums(sets, y, w, summed, counts)
    else:
        found = ev.engine.loss_sums(sets, y, w, summed)
    if counts is not None:
        count(ev, sets, w, counts)
    return found


def sums_and_slopes(ev: Any, sets: Any, y: Any, w: Any, summed: str) -> tuple[Any, Any]:
    """What a loss is made of, and its gradient, float64 (n_sets, n_exprs, max_params)."""
    if summed in WITH_SLOPES:
        return WITH_SLOPES[summed](ev, sets, y, w)
    return ev.derivatives().loss_and_grad(sets, y, w, summed)


def count(ev: Any, sets: Any, w: Any, counts: np.ndarray) -> None:
    """How many nan and inf every expression gives where ``w`` is not 0, into ``counts`` (n_sets, n_exprs, 2)."""
    for k, part, values in ev.in_parts(sets):
        counted = values if w is None else values[:, w != 0]
        for kind, mask in enumerate((counted != counted, abs(counted) == np.inf)):
            counts[k, part, kind] = inputs.on_host(mask.sum(-1))


def is_own(kind: Any, columns: Any, link: Any) -> bool:
    """Whether a loss is one of the user's own."""
    return link is not None or columns is not None or loss_text.is_loss_text(kind, LOSSES)


def slope_of(kind: str, loss: Any, total: Any) -> Any:
    """The derivative of a loss by its sum; ``total``: the sum of weights, or of "r2" the ``spread``."""
    if kind == "rmse":
        return 0.5 / (loss * total)
    if kind == "r2":
        return -1.0 / total
    return 1.0 / total if kind in MEANS else 1.0


def finished(ev: Any, kind: str, sums: Any, y: Any, w: Any) -> tuple[Any, Any]:
    """What losses are of their sums, and of what these are a share: the sum of the weights, or y's spread."""
    if kind in SUMS:
        return sums, 1.0
    total = spread(y, w) if kind == "r2" else ev.total(w)
    with np.errstate(divide="ignore", invalid="ignore"):
        return LOSSES[kind][1](sums, total), total


def spread(y: Any, w: Any) -> np.float64:
    """The weighted sum of squares of y around its mean."""
    own = inputs.on_host(y).astype(np.float64)
    own_w = np.ones(len(own)) if w is None else inputs.on_host(w).astype(np.float64)
    own = np.where(own_w > 0, own, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.float64(np.sum(own_w * (own - np.sum(own_w * own) / np.sum(own_w)) ** 2))


Data = tuple[Any, Any, Any]  # y, weights and columns as the user gave them


def arrays_of(data: Data, adopt: Any) -> dict[str, Any] | None:
    """The arrays by their names, of the host's or adopted from a device; None where one is no array."""
    y, w, columns = data
    columns = {} if columns is None else columns
    if not hasattr(columns, "keys"):
        return None
    named = zip(loss_text.given_names(columns), (y, w, *(columns[name] for name in columns)), strict=True)
    arrays = {name: one if isinstance(one, np.ndarray) else adopt(one) for name, one in named if one is not None}
    return None if any(one is None for one in arrays.values()) else arrays


class Given(NamedTuple):
    """Arrays as the user gave them: to find with little work, on a device with one wait, that they are the same."""

    arrays: dict[str, Any]
    numbers: dict[str, np.ndarray]  # what they were, of the user's types, in memory of their own

    @classmethod
    def of(cls, data: Data, adopt: Any) -> Given | None:
        """None where one is no array."""
        arrays = arrays_of(data, adopt)
        if arrays is None:
            return None
        return cls(arrays, {name: one.copy() for name, one in _on_host(arrays).items()})

    def is_that(self, data: Data, adopt: Any, in_place: frozenset[str]) -> bool:
        """Whether all numbers are there again; those of the device's arrays ``in_place`` may have changed there."""
        arrays = arrays_of(data, adopt)
        if arrays is None or list(arrays) != list(self.arrays):
            return False
        apart = {name: one for name, one in arrays.items() if name not in in_place or isinstance(one, np.ndarray)}
        if any(arrays[name] is not self.arrays[name] for name in arrays if name not in apart):
            return False
        were = self.numbers
        return all(
            one.dtype == were[name].dtype and np.array_equal(one, were[name]) for name, one in _on_host(apart).items()
        )


def _on_host(arrays: dict[str, Any]) -> dict[str, np.ndarray]:
    """Arrays with those of the device brought to the host, together."""
    there = [name for name, one in arrays.items() if not isinstance(one, np.ndarray)]
    fetched = fetched_together([arrays[name] for name in there]) if there else []
    return arrays | dict(zip(there, fetched, strict=True))


class OwnLoss(NamedTuple):
    """A loss of the user's own at the points that it was asked for at.

    It is made in one of two ways: as it stands, where a backend can add it up, or of plain sums of other expressions.
    Arrays on a device that are read just there need not be looked at again.
    """

    asked: tuple[str, str | None]  # its text (or a kind's name), and the link's
    points: loss_text.LossPoints
    made: loss_text.Composition
    kind: str
    goal: LossTarget  # of the plain sums; on the device, if the data is
    inner: list[Any]  # the population that the last evaluator was made for, and that evaluator
    fused: loss_text.Fused | None
    given: Given | None  # what it was asked for with
    in_place: frozenset[str]  # arrays that the plain sums read where the user has them

    @classmethod
    def of(
        cls, ev: Any, last: OwnLoss | None, asked: tuple[str, str | None], data: Data, as_it_stands: bool = False
    ) -> OwnLoss:
        """Of this data; ``last`` if it is that one, ``as_it_stands`` or made of plain sums."""
        if last is not None and last.asked == asked and last.given is not None:
            in_place = last.fused.in_place if as_it_stands and last.fused else last.in_place
            if last.given.is_that(data, ev.adopt, in_place):
                return last
        y, weights, columns = data
        named = columns.items() if isinstance(columns, Mapping) else ()
        tables.check_order(ev.labels, y=y, weights=weights, **{f"column {name}": one for name, one in named})
        points = inputs.loss_points(y, weights, columns, ev.n_points, ev.adopt)
        if last is None or not last.is_for(*asked, points):
            on_host = isinstance(ev.X, np.ndarray)
            last = cls.make(*asked, points, ev.X.shape[1], ev.precision == "fast", on_host)
        elif last.fused is not None and last.given is not None and last._read_there():
            last = last._replace(fused=last.fused.anew())  # what an engine has of it may have changed there
        goal, in_place = goal_of(ev, last.made, y, weights)
        return last._replace(given=Given.of(data, ev.adopt), goal=goal, in_place=in_place)

    @classmethod
    def make(
        cls, kind: str, link: str | None, points: loss_text.LossPoints, n_columns: int, fast: bool, on_host: bool
    ) -> OwnLoss:
        """Without a target as an engine takes it; ``on_host``: no target is read on a device, where the user has it."""
        through, fused = loss_text.parse_link(link), None
        if loss_text.is_loss_text(kind, LOSSES):
            loss = loss_text.linked(loss_text.parse_loss(kind, points.columns), through)
            made = loss_text.compose(loss, points, n_columns)
            if made.formula is not None:
                is_sum = made.summed == "sum"
                roots = fast and on_host
                fused = loss_text.fused(loss, points, fast) if is_sum else loss_text.fused_known(made, loss, roots)
            named = OWN_KINDS[made.summed]
        else:
            named = one_of("kind", kind, tuple(LOSSES), DataError, other_words=OTHER_WORDS, besides=OWN)
            if points.columns:
                raise DataError(f"kind={kind!r} takes no columns; a loss of your own does, an expression over f and y")
            made = loss_text.unchanged(points, through, n_columns)
        nothing = LossTarget(None, None, None, None, None, None)
        return cls((kind, link), points, made, named, nothing, [None, None], fused, None, frozenset())

    def is_for(self, kind: str, link: str | None, points: loss_text.LossPoints) -> bool:
        """Whether it is this loss at these points."""
        return self.asked == (kind, link) and loss_text.same_points(self.points, points)

    def sums(self, ev: Any, params: Any, data: Data, out: Any = None) -> Any | None:
        """What a backend sums of a loss as it stands, if it can, where the expressions would have to be put into it.

        ``out`` takes them where it lies on the device of an engine that ``stores_sums``.
        """
        if not self.stands_alone(ev):
            return None
        assert self.fused is not None
        sets, lead = inputs.parameter_sets(params, ev.pop, ev.dtype, ev.adopt)
        shape = *lead, len(ev.pop)
        own: dict[str, Any] = {}
        place = None if out is None else inputs.result_array(out, shape, np.dtype(np.float64), ev.adopt)
        if self.given is not None and (there := self._read_there()):
            own["there"] = there
        stored = place is not None and ev.engine.stores_sums and not isinstance(place, np.ndarray)
        if stored:
            own["out"] = place
        sums = ev.engine.text_sums(sets, *self.fused.asked, **own)
        if sums is None:
            return None
        if place is None or stored:
            asked = self.asked_with(data, self.fused.in_place)
            again = None if asked is None else ev.engine.text_again(sets, self.fused.columns, **own)
            ev.again = repeated(ev, asked, self.kind, self.goal, again, params, sets, shape, stored)
        if place is None:
            return ev.as_given(sums.reshape(shape))
        return out if stored else inputs.written(out, place, sums.reshape(shape))

    def stands_alone(self, ev: Any) -> bool:
        """Whether the backend may be asked to add it up as it stands."""
        return self.fused is not None and hasattr(ev.engine, "text_sums")

    def _read_there(self) -> dict[int, Any]:
        """By column: the device's array that is read where the user has it."""
        assert self.fused is not None and self.given is not None
        names = [name if name in self.fused.in_place else None for name in self.fused.given]
        arrays = {k: self.given.arrays.get(name) for k, name in enumerate(names) if name is not None}
        return {k: array for k, array in arrays.items() if not isinstance(array, ELSEWHERE)}

    def asked_with(self, data: Data, in_place: frozenset[str]) -> Asked | None:
        """What to look for where it is asked for again; None where arrays have to be looked at anew.

        ``in_place``: arrays that are read where they lie, if that is the device.
        """
        y, weights, columns = data
        if self.given is None or not (columns is None or type(columns) is dict):
            return None
        there = {name: one for name, one in self.given.arrays.items() if not isinstance(one, np.ndarray)}
        own = {} if columns is None else columns
        named = zip(loss_text.given_names(own), (y, weights, *own.values()), strict=True)
        arrays = KnownArrays.of((one, name in in_place and there.get(name) is one) for name, one in named)
        return None if arrays is None else Asked(*self.asked, None if columns is None else tuple(columns), arrays)

    def evaluator(self, ev: Any) -> Any:
        """What evaluates ``ev``'s expressions as the loss has them."""
        if self.made.formula is None and not self.made.columns:
            return ev
        if self.inner[1] is None or self.inner[0] is not ev.pop:
            pop = self.made.of(on_host_population(ev.pop))
            if self.inner[1] is None:
                self.inner[1] = ev.with_population(pop, self.made.columns)
            else:
                self.inner[1].update(pop)
            self.inner[0] = ev.pop
        return self.inner[1]


def goal_of(ev: Any, made: loss_text.Composition, y: Any, weights: Any) -> tuple[LossTarget, frozenset[str]]:
    """The target and the weights of plain sums, and which of them lie on the device where the user has them."""

    def known(vector: np.ndarray, given: Any, keeps: bool) -> Any:
        there = keeps and not made.columns and not isinstance(ev.X, np.ndarray) and ev.adopt(given) is given
        return given if there else inputs.beside_data(vector, ev.X)

    w = None if np.all(made.weights == 1) else known(made.weights, weights, made.keeps_w)
    target, own_w = ev.target(known(made.target, y, made.keeps_y), w)
    pairs = ("y", target, y), (loss_text.WEIGHTS, own_w, weights)
    in_place = frozenset(name for name, taken, given in pairs if taken is given and not isinstance(given, ELSEWHERE))
    complete = not bool(np.isnan(target).any()) if isinstance(target, np.ndarray) else None
    return LossTarget(y, weights, None, target, own_w, complete), in_place


def repeated(
    ev: Any,
    asked: Asked | None,
    kind: str,
    goal: LossTarget,
    sums: Callable[..., Any] | None,
    params: Any,
    sets: Any,
    shape: tuple[int, ...],
    stored: bool,
) -> RepeatedLoss | None:
    """A loss that was just made, to be made again; None where nothing would be saved.

    ``params`` as they were given, ``sets`` as the engine takes them, ``sums`` what makes the sums anew.
    """
    if asked is None or sums is None or type(params) is not type(sets) or params.dtype != ev.dtype:
        return None

    def finish(found: Any) -> Any:
        if goal.is_complete is not None:
            ev.check_sums(found, goal)
        return ev.as_given(finished(ev, kind, found, goal.target, goal.w)[0])

    return RepeatedLoss(asked, sums, finish, (type(params), ev.dtype, params.shape), shape, stored)


def losses_at(
    ev: Any, goal: LossTarget, params: Any, kind: str, count_nonfinite: bool, out: Any, asked: Asked | None
) -> Any:
    """Losses that have a name, of checked points (``Evaluator.loss``).

    ``asked``: what is to be asked for so that the same sums are made again; None where that is not known.
    """
    what = summed(kind)
    sets, lead = inputs.parameter_sets(params, ev.pop, ev.dtype, ev.adopt)
    shape = (*lead, len(ev.pop))
    place = None if out is None else inputs.result_array(out, shape, np.dtype(np.float64), ev.adopt)
    counts = np.zeros((len(sets), len(ev.pop), 2), np.int64) if count_nonfinite else None
    stored = ev.engine.stores_sums and kind in SUMS and not isinstance(place, ELSEWHERE)
    sums = sums_of(ev, sets, goal.target, goal.w, what, counts, place if stored else None)
    if counts is None:
        ev.check_sums(sums, goal)
        if out is None or stored:
            on_its_own = asked is not None and kind not in NO_SUMS
            sums_again = ev.engine.again(sets, goal.target, goal.w, what, place) if on_its_own else None
            ev.again = repeated(ev, asked, kind, goal, sums_again, params, sets, shape, place is not None)
    if not stored:
        made = finished(ev, kind, sums, goal.target, goal.w)[0].reshape(shape)
        out = ev.as_given(made) if place is None else inputs.written(out, place, made)
    return out if counts is None else (out, counts.reshape(*shape, 2))


def own_losses(ev: Any, params: Any, asked: tuple[str, str | None], data: Data, count_nonfinite: bool, out: Any) -> Any:
    """The same of a loss of the user's own."""
    known = ev.own_loss(asked, data, not count_nonfinite)
    if not count_nonfinite and known.stands_alone(ev):
        if (sums := known.sums(ev, params, data, out)) is not None:
            ev.check_sums(sums, known.goal)
            return sums
        known = ev.own_loss(asked, data)
    inner = known.evaluator(ev)
    same = known.asked_with(data, known.in_place) if inner is ev else None
    found = losses_at(inner, known.goal, params, known.kind, count_nonfinite, out, same)
    if out is not None:
        return found
    return (ev.as_given(found[0]), found[1]) if count_nonfinite else ev.as_given(found)


def slopes_at(ev: Any, goal: LossTarget, params: Any, kind: str) -> tuple[Any, Any]:
    """Losses that have a name, of checked points, and their gradient (``Evaluator.loss_and_grad``)."""
    what = summed(kind)
    sets, lead = inputs.parameter_sets(params, ev.pop, ev.dtype, ev.adopt)
    sums, gradient = sums_and_slopes(ev, sets, goal.target, goal.w, what)
    ev.check_sums(sums, goal)
    loss, total = finished(ev, kind, sums, goal.target, goal.w)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope: Any = slope_of(kind, loss, total)
        gradient = gradient * (slope[..., None] if np.ndim(slope) else slope)
    gradient = nan_beside(loss, gradient)
    shape = (*lead, len(ev.pop))
    return loss.reshape(shape), gradient.reshape(*shape, gradient.shape[-1])


def nan_beside(losses: Any, derivatives: Any) -> Any:
    """Derivatives, (n_sets, n_exprs, ...), all nan of an expression whose loss is nan or inf.

    An engine leaves out points whose values are none, so that 0 may be what it has: as if the loss were least there.
    """
    with np.errstate(invalid="ignore"):
        nothing = 0.0 * losses
    return derivatives + nothing.reshape(*losses.shape, *[1] * (derivatives.ndim - losses.ndim))
