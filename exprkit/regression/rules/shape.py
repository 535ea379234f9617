"""Shapes that formulas must have: signs of slopes and curvatures, and limits of values, on a box of the variables.

In: what the user says of a formula.  Out: a ``ShapeConstraint``, which proves of formulas that they have it.

    >>> import exprkit as ek
    >>> from exprkit.regression.rules.shape import ShapeConstraint
    >>> shape = ShapeConstraint(low=(0.0,), high=(3.0,), slopes=((0, 1, 1),))  # of column 0, the first, not negative
    >>> shape.verdicts(list(ek.parse(["exp(x1) - x1 / 2", "sin(x1)", "x1 - 1 / x1"])))
    [1, -1, 0]

The sign of a derivative is that of its interval on the box, which is cut into halves until it tells
(``evaluate/ranges``).  Every formula of a shape, and all its parts, are finite numbers on the box; one with slopes has
no operator that jumps there.
Method: interval arithmetic for shape constraints (G. Kronberger, F. O. de Franca, B. Burlacu, C. Haider and
M. Kommenda, Evolutionary Computation 30, 2022), with bisection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from exprkit.errors import ArgumentError, brief, did_you_mean, flag
from exprkit.evaluate.ranges import box_of, interval_of, within
from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.operators.intervals import INF, JUMPS, NONE, UNDEFINED

MOST_BOXES = 100  # that a proof may take; chosen, not measured
UNLIMITED = (-INF, INF)


@dataclass(frozen=True)
class ShapeConstraint:
    """Limits of values, and signs of derivatives: (column, order, sign), on a box with ends by column."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    slopes: tuple[tuple[int, int, int], ...] = ()
    limits: tuple[float, float] = UNLIMITED

    def verdicts(self, formulas: Sequence[Expression]) -> list[int]:
        """Of each formula PROVED, BROKEN (there is a point) or OPEN: not proved."""
        pop = Population.of(list(formulas))
        parts, limits, trouble = [list(pop)], [self.limits], [NONE if self.slopes else JUMPS]
        for column, order, sign in self.slopes:
            if column >= pop.n_vars:  # in no formula
                continue
            slope = pop
            for left in reversed(range(order)):
                slope = slope.diff(f"x{column + 1}", errors="mask")
                parts.append(list(slope))
                limits.append(UNLIMITED if left else (0.0, INF) if sign > 0 else (-INF, 0.0))
                trouble.append(NONE if left else UNDEFINED)
        ends = np.array(self.low[: pop.n_vars]), np.array(self.high[: pop.n_vars])
        return [within(own, ends, limits, trouble, MOST_BOXES) for own in zip(*parts, strict=True)]


def shape_of(
    monotone: Any, convex: Any, positive: Any, y_bounds: Any, box: Any, names: Sequence[str], X: np.ndarray
) -> ShapeConstraint | None:
    """The shape that a user asks for, on the box of the data where ``box`` has no other; None without.

    Raises
    ------
    ArgumentError
    """
    slopes = [(names.index(name), order, sign) for order, given in enumerate((monotone, convex), 1)
              for name, sign in _signs(("monotone", "convex")[order - 1], given, names).items()]  # fmt: skip
    limits = UNLIMITED if y_bounds is None else interval_of("y_bounds", y_bounds, UNLIMITED)
    if flag("positive", positive):
        limits = max(limits[0], 0.0), limits[1]
        if limits[0] > limits[1]:
            raise ArgumentError("positive: y_bounds has no number that is not negative")
    of_data = np.column_stack([X.min(axis=0), X.max(axis=0)])
    low, high = of_data.T if box is None else box_of(box, list(names), of_data)
    if not slopes and limits == UNLIMITED:
        if box is not None:
            raise ArgumentError("box is where monotone, convex, positive and y_bounds hold: give one of them too")
        return None
    return ShapeConstraint(tuple(low.tolist()), tuple(high.tolist()), tuple(slopes), limits)


def _signs(what: str, given: Any, names: Sequence[str]) -> dict[str, int]:
    if given is not None and not isinstance(given, Mapping):
        raise ArgumentError(f'{what} must be a dictionary as {{"{names[0]}": +1}}, not {brief(given)}')
    for name, sign in (given or {}).items():
        if name not in names:
            raise ArgumentError(f"{what}: there is no column {brief(name)}{did_you_mean(str(name), names)}")
        if isinstance(sign, bool) or sign not in (1, -1):
            meant = ("rises", "falls") if what == "monotone" else ("is convex", "is concave")
            raise ArgumentError(f"{what}: {name} is +1 (y {meant[0]}) or -1 ({meant[1]}), not {brief(sign)}")
    return {name: int(sign) for name, sign in (given or {}).items()}
