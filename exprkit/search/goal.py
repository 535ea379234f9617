"""The goal of an exhaustive search: the loss and link that it fits with, and the criterion that it ranks by.

In: data, a loss, a link.  Out: a ``SearchGoal``: what is made of each expression, and what that is fitted to by which
loss.

    >>> import exprkit as ek, numpy as np
    >>> from exprkit.search.goal import SearchGoal
    >>> X, y = np.ones((2, 1)), np.array([1.0, 3.0])
    >>> goal = SearchGoal.of(X, y, loss="((f - y) / s)^2 / 2", link="sqrt", columns={"s": [1.0, 2.0]})
    >>> goal.over(ek.parse(["x1 + p1"])).texts(), goal.rank, goal.settings["loss"]
    (['sqrt(x1 + p1)'], 'loss', 'squares')

What the search ranks by:

======================  ===============================================================================
``rank``                what ``total`` is
======================  ===============================================================================
"description_length"    negative log-likelihood + parameters + function, in nats
                        (``fitting.description_length``).  Of "gaussian" and "poisson"; of a text where that is
                        asked for: it is the negative log-likelihood of a point then, up to a constant
"loss"                  the loss alone.  Of all others by default: they have no unit that the length of an
                        expression could be weighed against, so what is larger is first; ``front`` shows what
                        each size gains
======================  ===============================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from exprkit.backends import objective
from exprkit.errors import ArgumentError, one_of
from exprkit.evaluate.inputs import LossPoints
from exprkit.evaluate.loss_text import Composition, OwnGoal
from exprkit.expressions.population import Population

FORMULA = "f"  # in a link or a loss
LENGTH, LOSS = RANKS = "description_length", "loss"
NATS = 0.01  # what tells the data better by less than this does not tell them better
SHARE, ROUNDING = 1e-4, 1e-15  # of a loss that is no likelihood: this share of it, and of what losses usually are


@dataclass(frozen=True, eq=False)
class SearchGoal:
    """The loss and link of a search, the data, and the ranking.

    ``composition`` puts a link or a loss around the expressions (None: they stay as they are).  They are fitted to
    ``y`` at ``X`` with ``weights``, by the ``settings`` of a ``FitProblem``.  The loss that was asked for is ``scale``
    times that of the fits plus ``constant``.
    """

    name: str
    link: str
    rank: str
    composition: Composition | None
    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None
    settings: dict[str, Any]
    scale: float = 1.0
    constant: float = 0.0

    @classmethod
    def of(
        cls,
        X: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray | None = None,
        *,
        loss: Any = "gaussian",
        link: Any = None,
        columns: Any = None,
        rank: str | None = None,
        **settings: Any,
    ) -> SearchGoal:
        """The goal of a search; raises ArgumentError, DataError or ParseError."""
        link = None if isinstance(link, str) and link.strip() in ("", FORMULA) else link
        parsed = OwnGoal.of(loss, link, columns, objective.KINDS)
        rank = rank or (LENGTH if loss in objective.LIKELIHOODS else LOSS)
        one_of("rank", rank, RANKS)
        text = FORMULA if parsed is None else parsed.link_text
        common = loss, text, rank
        if rank == LENGTH and loss in objective.KINDS and loss not in objective.LIKELIHOODS:
            raise ArgumentError(
                f"loss={loss!r} is no likelihood: rank='loss', or write it as one, as loss='((f - y) / 0.1)^2 / 2'"
            )
        if parsed is None:
            return cls(*common, None, X, y, weights, {"loss": loss, "method": "lm", **settings})
        points = LossPoints.of(y, weights, columns, len(y))
        composition = parsed.composed(points, X.shape[1], fitting=True)
        if parsed.loss is None:
            return cls(*common, composition, X, y, weights, {"loss": loss, "method": "lm", **settings})
        if rank == LENGTH and composition.kind == objective.ABSOLUTE:
            raise ArgumentError(
                f"loss={loss!r} has no second derivative where it is least, by which parameters are written down: "
                "rank='loss', or a smooth one, as logcosh"
            )
        return cls._of_text(common, parsed, points, composition, X, settings)

    @classmethod
    def _of_text(
        cls,
        common: tuple[str, str, str],
        parsed: OwnGoal,
        points: LossPoints,
        composition: Composition,
        X: np.ndarray,
        settings: dict[str, Any],
    ) -> SearchGoal:
        """The goal of a loss of the user's own: a loss that it is recognised as, or a sum."""
        ranked = common[-1] == LENGTH
        scale, constant, kind = 1.0, 0.0, composition.loss
        weights: np.ndarray = composition.weights
        if ranked and composition.kind == objective.SQUARES:
            kind, weights = "gaussian", 2 * weights
            constant = -float(np.sum(np.log(2 * np.pi / weights[weights > 0]))) / 2
        elif ranked and composition.kind != objective.SUM:
            composition = parsed.composed_as_sum(points, X.shape[1])
            kind, weights = "sum", composition.weights
        elif composition.kind == objective.ABSOLUTE:
            scale = float(np.sum(weights))
        method = "lbfgs" if kind == "sum" else "lm"
        fit_settings = {**settings, "loss": kind, "method": method, "delta": composition.delta or 1.0}
        wide = np.column_stack([X, *composition.columns])
        return cls(*common, composition, wide, composition.target, weights, fit_settings, scale, constant)

    @property
    def describes(self) -> bool:
        """Whether description lengths are ranked."""
        return self.rank == LENGTH

    def over(self, pop: Population) -> Population:
        """The expressions as they are fitted: under the link, or inside a loss of the user's own."""
        return pop if self.composition is None else self.composition.of(pop)

    def tolerance(self, loss: np.ndarray) -> np.ndarray:
        """The difference up to which a loss counts as equal to each of these."""
        if self.describes:
            return np.full(len(loss), NATS)
        finite = np.abs(loss[np.isfinite(loss)])
        return SHARE * np.abs(loss) + ROUNDING * (np.median(finite) if len(finite) else 0.0)
