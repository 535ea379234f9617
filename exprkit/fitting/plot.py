"""Plots of fitted expressions against their data.

In: expressions with what they give, and data.  Out: a figure of matplotlib's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from exprkit.errors import brought_by, shortened
from exprkit.text.names import word_of
from exprkit.text.tokens import VARIABLE, Tokens, Words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVE = 300  # points
DATA = "0.55"  # colour
LONGEST = 100  # characters of an expression in the legend, which is as wide as the figure
THINNER = 0.8  # points that a line is thinner than the one below it


def beside_data(
    curves: Sequence[tuple[str, Tokens, Callable[[np.ndarray], np.ndarray]]],
    X: np.ndarray,
    y: np.ndarray,
    variables: Words,
    over: int | None = None,
    target: str = "y",
) -> Figure:
    """Left the data and the predictions, right the residuals, y - f; above, what is what.

    What is drawn later is thinner, so that equal functions are all seen.  Over a column of X, by default the only one
    that is used, as lines where an expression uses no other; without one, y and the residuals over what is predicted.

    Parameters
    ----------
    curves : of each its label, its expression, and what that gives at data points
    """
    with brought_by("notebooks"):
        import matplotlib.pyplot as plt

    used = [set(expression.values[expression.kinds == VARIABLE].tolist()) for _, expression, _ in curves]
    if over is None and len(only := set().union(*used)) == 1:
        (over,) = only
    name = word_of(VARIABLE, over or 0, variables)
    drawn, (left, right) = plt.subplots(1, 2, figsize=(9, 3.7 + 0.2 * len(curves)), layout="constrained")
    plt.close(drawn)
    right.axhline(0, color=DATA)
    if over is None:
        left.axline((float(y.mean()) if len(y) else 0.0,) * 2, slope=1, color=DATA, label="y = predicted")
    else:
        left.plot(X[:, over], y, ".", color=DATA, label="data")
    for k, (text, _, values) in enumerate(curves):
        f, colour = values(X), f"C{k}"
        x, drawn_y, mark = (f, y, ".") if over is None else (X[:, over], f, ".")
        size = (len(curves) - k) * THINNER
        style = {"color": colour, "markersize": 4 + 2 * size, "linewidth": 1.5 + size}
        right.plot(x, y - f, ".", **style)
        if over is not None and used[k] <= {over}:
            (x, drawn_y), mark = _along(values, X, over), "-"
        label = shortened(text, LONGEST).replace("`", "").replace("$", r"\$")
        left.plot(x, drawn_y, mark, label=label, **style)
    for axes, what in ((left, target), (right, f"{target} - f")):
        axes.set_xlabel("predicted" if over is None else name, parse_math=False)
        axes.set_ylabel(what, parse_math=False)
    drawn.legend(loc="outside upper left", fontsize="small", frameon=False)
    return drawn


def _along(values: Callable[[np.ndarray], np.ndarray], X: np.ndarray, column: int) -> tuple[np.ndarray, np.ndarray]:
    """Predictions over the range of a column."""
    x = np.linspace(X[:, column].min(), X[:, column].max(), CURVE) if len(X) else np.zeros(1)
    along = np.zeros((len(x), X.shape[1]))
    along[:, column] = x
    return x, values(along)
