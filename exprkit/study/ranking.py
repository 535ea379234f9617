"""Fitted expressions in order: by loss, by description length, and the front of both; with figures.

After ``fit`` and ``description_length``, for populations of one's own; ``ek.exhaustive_search`` ranks what it finds.

    >>> import exprkit as ek
    >>> from exprkit.study import ranking
    >>> data = ek.data.rough_pipe()
    >>> pop = ek.generate.exhaustive(3, "esr")
    >>> table = ranking.table(ek.fit(pop, data.X, data.y, loss="gaussian"))
    >>> len(table) == len(pop), table.expression[0]
    (True, 'powabs(x1, p1)')
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from exprkit.errors import brought_by
from exprkit.evaluate.evaluator import Evaluator
from exprkit.fitting import description_length

with brought_by("notebooks"):
    import matplotlib.pyplot as plt
    import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from exprkit.data import Dataset
    from exprkit.fitting.fit_result import FitResult

SHOWN = 60  # characters of an expression in a title
NATS = 0.01  # a likelihood ratio of one per cent says nothing; less is rounding, or where a fit stopped ...
SHARE = 1e-6  # ... as this is of a large likelihood, which is a sum over many points


def table(result: FitResult) -> pd.DataFrame:
    """One row per expression, the shortest description first; of those that differ by less than ``NATS`` the simplest.

    Columns ``index`` (in the population), ``expression``, ``nodes``, ``description_length`` and its
    parts ``residuals`` (the negative log-likelihood), ``parameters`` and ``function``, ``r2``.
    Expressions without a description length come last.
    """
    length = description_length.description_length(result)
    columns = {
        "index": np.arange(len(result)), "expression": result.pop.texts(), "nodes": result.pop.n_tokens,
        "description_length": length.total, "residuals": length.residuals, "parameters": length.parameters,
        "function": length.function, "r2": result.r2,
    }  # fmt: skip
    ranked = pd.DataFrame(columns).replace([np.inf, -np.inf], np.nan)
    in_nats = (ranked["description_length"] / NATS).round()
    order = ranked.assign(in_nats=in_nats).sort_values(["in_nats", "function", "nodes"], kind="stable").index
    return ranked.loc[order].reset_index(drop=True)


def front(ranked: pd.DataFrame) -> pd.DataFrame:
    """The Pareto front: expressions such that no simpler one (by ``function``) tells the data as well.

    As well is to ``NATS``, or ``SHARE`` of the number; expressions without a description length do not count.
    """
    described = ranked.dropna(subset=["description_length"])
    residuals = described["residuals"].to_numpy()
    tolerance = np.maximum(NATS, SHARE * np.abs(residuals))
    best = description_length.front(described["function"].to_numpy(), residuals, tolerance)
    return described.iloc[best].reset_index(drop=True)


def front_figure(ranked: pd.DataFrame) -> Figure:
    """All expressions by complexity and likelihood, the front as a line, the shortest description marked."""
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    described = ranked.dropna(subset=["residuals"])
    best_ones, shortest = front(ranked), ranked.iloc[0]
    axes.plot(described["function"], described["residuals"], ".", color="0.8", markersize=2, rasterized=True)
    axes.step(best_ones["function"], best_ones["residuals"], "o-", where="post", markersize=4, label="Pareto front")
    axes.plot(shortest["function"], shortest["residuals"], "*", markersize=14, label="shortest description")
    low, high = best_ones["residuals"].min(), best_ones["residuals"].max()
    axes.set(xlabel="complexity of the function: k log n and constants [nats]", ylabel="negative log-likelihood [nats]",
             ylim=(low - 0.05 * (high - low) - 1, high + 0.05 * (high - low) + 1))  # fmt: skip
    axes.legend()
    plt.close(figure)
    return figure


def best_figure(ranked: pd.DataFrame, result: FitResult, data: Dataset, n: int = 3) -> Figure:
    """The data and the ``n`` expressions of shortest description, over the last variable, the others as colours."""
    which = ranked["index"].to_numpy()[:n]
    pop = result.pop[which]
    params = np.nan_to_num(result.params[which][:, : pop.max_params])
    values = Evaluator(pop, data.X, "numpy", dtype="float64").evaluate(params)
    size = (4.5 * len(which), 4)
    figure, rows = plt.subplots(1, len(which), figsize=size, sharey=True, squeeze=False, layout="constrained")
    x, colour = data.X[:, -1], data.X[:, 0]
    order = np.argsort(x)
    for axes, y, text in zip(rows[0], values, pop.texts(), strict=True):
        axes.scatter(x, data.y, 8, np.log(np.abs(colour) + 1e-300), cmap="viridis", alpha=0.5, label="data")
        axes.plot(x[order], y[order], ".", color="black", markersize=2, label="fit")
        axes.set_title(text if len(text) <= SHOWN else text[: SHOWN - 1] + "…", fontsize=9)
        axes.set_xlabel(data.variables[-1])
    rows[0, 0].set_ylabel("target")
    rows[0, 0].legend(title=f"colour: {data.variables[0]}" if data.X.shape[1] > 1 else None)
    plt.close(figure)
    return figure
