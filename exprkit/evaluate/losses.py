"""The named losses of ``Evaluator``, built from sums that every backend has.

In: a loss by name.  Out: which sum, and what the loss is of it.

    >>> from exprkit.evaluate.losses import LOSSES
    >>> summed, finish, _ = LOSSES["mse"]
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

LOSSES: dict[str, tuple[str, Callable[[Any, Any], Any], Callable[[Any, Any], Any] | None]] = {
    # name: (what is summed over the points, the loss by the sum and the sum of weights (of "r2" the spread of y),
    #        its derivative by the sum, by the loss and the latter, None: 1)
    "sse": ("square", lambda sums, weight: sums, None),
    "mse": ("square", lambda sums, weight: sums / weight, lambda loss, weight: 1.0 / weight),
    "rmse": ("square", lambda sums, weight: np.sqrt(sums / weight), lambda loss, weight: 0.5 / (loss * weight)),
    "mae": ("absolute", lambda sums, weight: sums / weight, lambda loss, weight: 1.0 / weight),
    "sae": ("absolute", lambda sums, weight: sums, None),
    "sum": ("sum", lambda sums, weight: sums, None),
    "r2": ("square", lambda sums, spread: 1 - sums / spread, lambda loss, spread: -1.0 / spread),
    ops.LARGEST: ("largest", lambda largest, weight: largest, None),
    "correlation": ("correlation", lambda correlation, weight: correlation, None),
}
OTHER_WORDS = {"squares": "sse", "l2": "sse", "l1": "sae", "R2": "r2"}  # what the same is called elsewhere
OWN = "an expression over f and y"
OWN_KINDS = {"square": "sse", "absolute": "sae", "sum": "sum"}  # what a loss of the user's own is added up by
SUMS = tuple(OWN_KINDS.values())  # losses that are a sum as it is


def summed(kind: Any) -> str:
    """The sum that a named loss is made of; DataError for another name."""
    return LOSSES[one_of("kind", kind, tuple(LOSSES), DataError, other_words=OTHER_WORDS, besides=OWN)][0]


def largest(ev: Any, sets: Any, y: Any, w: Any, slopes: bool = False) -> tuple[np.ndarray, Any]:
    """The largest absolute error where ``w`` is not 0, float64 (n_sets, n_exprs), of some expressions at a time.

    With ``slopes`` its gradient, too: that of the error at the first point where it is so large.
    """
    everything = on_host_population(ev.pop)
    sizes = np.zeros((len(sets), len(everything)))
    gradient = np.zeros((*sizes.shape, everything.max_params)) if slopes else None
    if not (ev.n_points if w is None else bool((w != 0).any())):
        return sizes, gradient
    for k, part, values in ev.in_parts(sets):
        errors = abs(values - y)
        if w is not None:
            errors[:, w == 0] = -1.0  # nan at such a point is not the largest either
        at, every = inputs.on_host(errors.argmax(-1)), np.arange(len(errors))
        sizes[k, part] = inputs.on_host(errors[every, at])
        if gradient is None:
            continue
        signs = np.sign(inputs.on_host((values - y)[every, at]).astype(np.float64))
        for some in range(0, len(at), FEW):
            own, numbers = slice(some, some + FEW), slice(part.start + some, min(part.start + some + FEW, len(ev.pop)))
            pop, (rows, place) = everything[numbers], np.unique(at[own], return_inverse=True)
            J = ev.with_population(pop, rows=rows).jacobian(sets[k][numbers, : pop.max_params])
            derivatives = inputs.on_host(J)[np.arange(len(pop)), place]
            gradient[k, numbers, : pop.max_params] = derivatives * signs[own, None]
    return sizes, gradient


class Centred(NamedTuple):
    """The target of a correlation, centred: all sums are of f - m, so that little is lost where f is near y."""

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
        """The sums of w (f - m), w (f - m)^2 and w (y - m) (f - m), by ``make(y, weights, kind)``."""
        asked = (self.w, "sum"), (self.w, "square"), (self.above, "sum"), (self.below, "sum")
        first, second, above, below = (make(self.m, weights, kind) for weights, kind in asked)
        return [first, second, above - below]

    def correlation(self, first: Any, second: Any, both: Any) -> tuple[Any, Any, Any]:
        """It, and the variance of f and the root that it is a quotient by; nan where f hardly varies."""
        varies = second - first * first / self.total
        varies = np.where(varies > self.hardly * second, varies, np.nan)
        root = np.sqrt(varies * self.spread)
        return (both - first * (self.rest / self.total)) / root, varies, root


def correlation(ev: Any, sets: Any, y: Any, w: Any, slopes: bool = False) -> tuple[np.ndarray, Any]:
    """Pearson's correlation, float64 (n_sets, n_exprs), of sums that every backend has.

    With ``slopes`` its gradient, too, of the sums' gradients.
    """

    def make(*of: Any) -> np.ndarray:
        if not slopes:
            return np.asarray(inputs.on_host(ev.engine.loss_sums(sets, *of))[..., None])
        sums, gradient = map(inputs.on_host, ev.derivatives().loss_and_grad(sets, *of))
        return np.concatenate([sums[..., None], gradient], axis=-1)

    with np.errstate(all="ignore"):
        centred, slope = Centred.of(ev, y, w), None
        (first, d_first), (second, d_second), (both, d_both) = (
            (sums[..., 0], sums[..., 1:]) for sums in centred.sums(make)
        )
        shares, varies, root = centred.correlation(first, second, both)
        if slopes:
            d_varies = d_second - 2.0 / centred.total * first[..., None] * d_first
            slope = (d_both - centred.rest / centred.total * d_first) / root[..., None]
            slope -= 0.5 * shares[..., None] / varies[..., None] * d_varies
        width = 1 + ev.pop.max_params if slopes else 1
        for k, which in _hardly_varying(shares, (first, second, both)):
            for part, inner, rows, own, by_value in _around_own_means(ev, sets[k], which, y, w, width):
                shares[k, part] = own
                if slope is not None:
                    J = inputs.on_host(inner.jacobian(sets[k][part, : inner.pop.max_params]))[:, rows]
                    J = J.astype(np.float64)
                    slope[k, part, : inner.pop.max_params] = np.einsum("in,inj->ij", by_value, J - J[:, :1])
        return np.clip(shares, -1.0, 1.0), slope


def _hardly_varying(correlations: np.ndarray, sums: Sequence[np.ndarray]) -> Iterator[tuple[int, np.ndarray]]:
    """For each set of parameters the expressions whose sums are all rounding, though f is a number everywhere."""
    for k, is_lost in enumerate(np.isnan(correlations) & np.isfinite(sums[0])):
        if is_lost.any():
            yield k, np.flatnonzero(is_lost)


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
        shares = (f / root) @ (own_w * target) / deviation
        yield part, inner, rows, shares, own_w * (target / deviation - shares[:, None] * f / root) / (root * scale)


MEASURES = {"largest": largest, "correlation": correlation}  # that are no sum
NO_SUMS = tuple(kind for kind, (summed, *_) in LOSSES.items() if summed in MEASURES)
# variance as a share of the mean square about y's mean, below which means are taken out first: of the digits of sums
# as many are lost as it has zeros
HARDLY = {"float32": 1e-3, "float64": 1e-6}
AT_ONCE = 1 << 22  # numbers of expressions that hardly vary
FEW = 64  # expressions whose derivatives are made at the points of their largest errors, all at all of these


def measured(ev: Any, sets: Any, y: Any, w: Any, measure: str) -> Any:
    """A measure that is no sum, float64 (n_sets, n_exprs), where the data lie."""
    values = MEASURES[measure](ev, sets, y, w)[0]
    return values if isinstance(ev.X, np.ndarray) else inputs.library_of(ev.X).asarray(values)


def sums_and_slopes(ev: Any, sets: Any, y: Any, w: Any, summed: str) -> tuple[Any, Any]:
    """The sum or measure of a loss, and its gradient, float64 (n_sets, n_exprs, max_params)."""
    if summed in MEASURES:
        return MEASURES[summed](ev, sets, y, w, slopes=True)
    return ev.derivatives().loss_and_grad(sets, y, w, summed)


def count(ev: Any, sets: Any, w: Any, counts: np.ndarray) -> None:
    """Count the nan and inf of every expression where ``w`` is not 0, into ``counts`` (n_sets, n_exprs, 2)."""
    for k, part, values in ev.in_parts(sets):
        counted = values if w is None else values[:, w != 0]
        for kind, mask in enumerate((counted != counted, abs(counted) == np.inf)):
            counts[k, part, kind] = inputs.on_host(mask.sum(-1))


def is_own(kind: Any, columns: Any, link: Any) -> bool:
    """Whether a loss is one of the user's own: a text, or through a link, or of columns."""
    return link is not None or columns is not None or loss_text.OwnGoal.is_text(kind, LOSSES)


def total_of(ev: Any, kind: str, y: Any, w: Any) -> Any:
    """The divisor of a loss: the sum of the weights, for "r2" the spread of y, else 1.

    The sum is kept on the device if weights and losses are there, so that nothing waits.
    """
    if kind == "r2":
        return spread(y, w)
    if LOSSES[kind][0] in MEASURES or kind in SUMS:
        return 1.0
    total = ev.n_points if w is None else w.sum(dtype=np.float64)
    is_there = not isinstance(ev.X, np.ndarray) and not isinstance(total, np.generic | int)
    return total if is_there else np.float64(inputs.on_host(total))


def finished(kind: str, sums: Any, total: Any) -> Any:
    """Losses by their sums; ``total``: ``total_of``."""
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
