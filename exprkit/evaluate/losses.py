"""The named losses of ``Evaluator``, built from sums that every backend has.

In: a loss by name.  Out: which sum, and what the loss is of it.

    >>> from exprkit.evaluate.losses import LOSSES
    >>> summed, finish = LOSSES["mse"]
    >>> summed, finish(6.0, 3.0)  # of the sum, and of the sum of weights
    ('square', 2.0)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.device_programs.population import on_host as on_host_population
from exprkit.errors import DataError, one_of
from exprkit.evaluate import inputs, loss_text
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


def measured(ev: Any, sets: Any, y: Any, w: Any, measure: str, counts: np.ndarray | None) -> Any:
    """A measure that is no sum, float64 (n_sets, n_exprs); with ``counts`` how many nan and inf there were, too."""
    found = MEASURES[measure](ev, sets, y, w)
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
    """The derivative of a loss by its sum; ``total``: ``total_of``."""
    if kind == "rmse":
        return 0.5 / (loss * total)
    if kind == "r2":
        return -1.0 / total
    return 1.0 / total if kind in MEANS else 1.0


def total_of(ev: Any, kind: str, y: Any, w: Any) -> Any:
    """What a loss is a share of: the sum of the weights, of "r2" y's spread; 1.0 of a loss that is none."""
    if kind == "r2":
        return spread(y, w)
    return ev.total(w) if LOSSES[kind][0] not in MEASURES and kind not in SUMS else 1.0


def finished(kind: str, sums: Any, total: Any) -> Any:
    """What losses are of their sums; ``total``: ``total_of``."""
    if kind in SUMS:
        return sums
    with np.errstate(divide="ignore", invalid="ignore"):
        return LOSSES[kind][1](sums, total)


def spread(y: Any, w: Any) -> np.float64:
    """The weighted sum of squares of y around its mean."""
    own = inputs.on_host(y).astype(np.float64)
    own_w = np.ones(len(own)) if w is None else inputs.on_host(w).astype(np.float64)
    own = np.where(own_w > 0, own, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.float64(np.sum(own_w * (own - np.sum(own_w * own) / np.sum(own_w)) ** 2))


def nan_beside(losses: Any, derivatives: Any) -> Any:
    """Derivatives, (n_sets, n_exprs, ...), all nan of an expression whose loss is nan or inf.

    An engine leaves out points whose values are none, so that 0 may be what it has: as if the loss were least there.
    """
    with np.errstate(invalid="ignore"):
        nothing = 0.0 * losses
    return derivatives + nothing.reshape(*losses.shape, *[1] * (derivatives.ndim - losses.ndim))
