"""A fitted expression beside the data it was fitted to.

In: a ``FittedExpression`` and a ``FitGoal``.  Out: a figure of matplotlib's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from exprkit.errors import brought_by, shortened
from exprkit.fitting.likelihood import FitGoal
from exprkit.text.tokens import VARIABLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVE = 300  # points
DATA, FIT = "0.55", "tab:blue"  # colours


def figure(one: Any, goal: FitGoal) -> Figure:
    """Left the data and the predictions, right the residuals, y - f; points of weight 0 are left out.

    Of one variable both stand over it; of several, y and the residuals over what is predicted.
    """
    with brought_by("notebooks"):
        from matplotlib.figure import Figure

    counted = np.ones(len(goal.y), bool) if goal.w is None else goal.w > 0
    y, f = goal.y[counted].astype(np.float64), one(goal.X[counted])
    used = sorted({int(i) for i in one.expression.values[one.expression.kinds == VARIABLE]})
    drawn = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = drawn.subplots(1, 2)
    if len(used) == 1:
        x, name = goal.X[counted, used[0]], _name(one, used[0])
        left.plot(x, y, ".", color=DATA, label="data")
        left.plot(*_curve(one, goal.X[counted], used[0]), color=FIT, label="fit")
    else:
        x, name = f, "predicted"
        ends = [np.nanmin([y, f]), np.nanmax([y, f])] if np.isfinite(f).any() else [0, 1]
        left.plot(f, y, ".", color=DATA, label="data")
        left.plot(ends, ends, color=FIT, label="y = predicted")
    left.set(xlabel=name, ylabel="y")
    left.legend()
    right.axhline(0, color=FIT)
    right.plot(x, y - f, ".", color=DATA)
    right.set(xlabel=name, ylabel="y - f")
    drawn.suptitle(_title(one))
    return drawn


def _curve(one: Any, X: np.ndarray, column: int) -> tuple[np.ndarray, np.ndarray]:
    """What is predicted over the range of a column."""
    x = np.linspace(X[:, column].min(), X[:, column].max(), CURVE) if len(X) else np.zeros(1)
    along = np.zeros((len(x), X.shape[1]))
    along[:, column] = x
    return x, one(along)


def _name(one: Any, index: int) -> str:
    return one.expression.variables[index] if one.expression.variables else f"x{index + 1}"


def _title(one: Any) -> str:
    return shortened(str(one.with_numbers(3)), 80).replace("$", r"\$")
