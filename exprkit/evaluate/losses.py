"""What the losses of ``Evaluator`` are made of: sums that every backend has.

In: a loss by name, or a text and the points it was asked for at.  Out: which sum, and what the loss is of it.

    >>> from exprkit.evaluate.losses import LOSSES
    >>> summed, finish = LOSSES["mse"]
    >>> summed, finish(6.0, 3.0)  # of the sum, and of the sum of weights
    ('square', 2.0)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.device_programs.population import on_host as on_host_population
from exprkit.errors import DataError, one_of
from exprkit.evaluate import inputs, loss_text

LOSSES: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    # name: (what is summed over the points, how the sum and the sum of weights make the loss)
    "sse": ("square", lambda sums, weight: sums),
    "mse": ("square", lambda sums, weight: sums / weight),
    "rmse": ("square", lambda sums, weight: np.sqrt(sums / weight)),
    "mae": ("absolute", lambda sums, weight: sums / weight),
    "sae": ("absolute", lambda sums, weight: sums),
    "sum": ("sum", lambda sums, weight: sums),
    "r2": ("square", lambda sums, spread: 1 - sums / spread),
}
MEANS = ("mse", "mae")
OWN_KINDS = {"square": "sse", "absolute": "sae", "sum": "sum"}  # what a loss of the user's own is added up by


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


def spread(y: Any, w: Any) -> np.float64:
    """The weighted sum of squares of y around its mean."""
    own = inputs.on_host(y).astype(np.float64)
    own_w = np.ones(len(own)) if w is None else inputs.on_host(w).astype(np.float64)
    own = np.where(own_w > 0, own, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.float64(np.sum(own_w * (own - np.sum(own_w * own) / np.sum(own_w)) ** 2))


class OwnLoss(NamedTuple):
    """A loss of the user's own at the points that it was asked for at."""

    asked: tuple[str, str | None]  # its text (or a kind's name), and the link's
    points: loss_text.LossPoints
    made: loss_text.Composition
    kind: str
    target: Any  # on the device, if the data is
    weights: Any
    inner: list[Any]  # the population that the last evaluator was made for, and that evaluator

    @classmethod
    def make(cls, X: Any, kind: str, link: str | None, points: loss_text.LossPoints) -> OwnLoss:
        n_columns = X.shape[1]
        through = loss_text.parse_link(link)
        if loss_text.is_loss_text(kind, LOSSES):
            loss = loss_text.linked(loss_text.parse_loss(kind, points.columns), through)
            made = loss_text.compose(loss, points, n_columns)
            named = OWN_KINDS[made.summed]
        else:
            named = one_of("kind", kind, tuple(LOSSES), DataError)
            if points.columns:
                raise DataError(f"kind={kind!r} takes no columns; a loss of your own does, an expression over f and y")
            made = loss_text.unchanged(points, through, n_columns)
        weights = None if np.all(made.weights == 1) else inputs.beside_data(made.weights, X)
        return cls((kind, link), points, made, named, inputs.beside_data(made.target, X), weights, [None, None])

    def is_for(self, kind: str, link: str | None, points: loss_text.LossPoints) -> bool:
        """Whether it is this loss at these points."""
        return self.asked == (kind, link) and loss_text.same_points(self.points, points)

    def evaluator(self, ev: Any) -> Any:
        """What evaluates ``ev``'s expressions as the loss has them."""
        if self.made.formula is None and not self.made.columns:
            return ev
        if self.inner[1] is None or self.inner[0] is not ev.pop:
            pop = self.made.of(on_host_population(ev.pop))
            if self.inner[1] is None:
                self.inner[1] = ev.beside(pop, self.made.columns)
            else:
                self.inner[1].update(pop)
            self.inner[0] = ev.pop
        return self.inner[1]
