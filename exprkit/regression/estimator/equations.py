"""Equations: the formulas of a front as tables, text and figures, and which of them is selected.

In: the entries of a ``Front``.  Out: a DataFrame, LaTeX, Python, a figure.

    >>> import exprkit as ek
    >>> from exprkit.regression.estimator.equations import latex
    >>> latex(ek.parse("2.718281828 * sqrt(x1)")[0], precision=3)
    '2.72 \\\\cdot \\\\sqrt{x_{1}}'
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from exprkit.backends import objective
from exprkit.errors import brought_by, whole
from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.expression import Expression
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population
from exprkit.fitting.description_length import function_length
from exprkit.regression.confirm import values_of
from exprkit.regression.constants import as_constants, as_parameters
from exprkit.regression.front import Entry
from exprkit.regression.goal import Goal
from exprkit.regression.polish import simplified

if TYPE_CHECKING:
    import pandas as pd

NATS_OF_A_NUMBER = 0.5  # times log n: of a parameter whose precision could not be found
LEAST_DRAWN = 1e-300  # a loss of 0 has no logarithm


class _Evidence(NamedTuple):
    """What the data say of formulas and of their numbers, by formula."""

    nats: np.ndarray  # (n,)
    information: np.ndarray  # (n, max_params)
    errors: np.ndarray  # of the numbers, the same shape


def described(entries: Sequence[Entry], goal: Goal) -> tuple[list[float], list[list[float]], list[list[float]]]:
    """Description lengths in nats, numbers, and their standard errors, of every formula.

    A number costs its size in steps of its precision, which the information about it alone says (Bartlett, Desmond and
    Ferreira); a simple one its digits.
    """
    pop, params = as_parameters(parse([entry.expression for entry in entries]))
    of_squares = goal.plain and goal.kind == objective.SQUARES
    with np.errstate(all="ignore"):
        found = (_of_squares if of_squares else _of_loss)(entries, pop, np.where(np.isnan(params), 0.0, params), goal)
        nats = np.log(np.abs(params)) + np.log(found.information) / 2 - np.log(3) / 2
    numbers = np.where(np.isnan(params), 0.0, _number_lengths(params, nats, goal.total)).sum(axis=1)
    lengths = found.nats + function_length(pop) + numbers
    rows = [(params[i, :k].tolist(), found.errors[i, :k].tolist()) for i, k in enumerate(pop.n_params.tolist())]
    return lengths.tolist(), [row[0] for row in rows], [row[1] for row in rows]


def _of_squares(entries: Sequence[Entry], pop: Population, params: np.ndarray, goal: Goal) -> _Evidence:
    """Normal errors, whose variance is the formula's own mean square.

    Few rows are fitted better than they are known: C. M. Hurvich and C.-L. Tsai (1989) say by how much.
    """
    variance = np.maximum([entry.loss for entry in entries], max(goal.floor, 1e-300))
    squares = _squares(pop, params, goal, goal.weights)
    information = np.diagonal(squares, axis1=1, axis2=2) / variance[:, None]
    errors = [_errors(part[:n, :n], part[:n, :n] * v, params.shape[1])
              for part, v, n in zip(squares, variance, pop.n_params.tolist(), strict=True)]  # fmt: skip
    k = pop.n_params + 1.0  # numbers, and the variance; of few rows each takes more off the loss than it says
    few_rows = k * (k + 1) / np.maximum(goal.total - k - 1, 1)
    nats = goal.total / 2 * np.log(variance) + few_rows
    return _Evidence(nats, information, np.reshape(errors, params.shape))


def _of_loss(entries: Sequence[Entry], pop: Population, params: np.ndarray, goal: Goal) -> _Evidence:
    """Any loss as a likelihood but for a factor, the dispersion, which is the most accurate formula's.

    R. W. M. Wedderburn, Biometrika 61 (1974), "Quasi-likelihood functions".  Rows that are far off count as in
    K. L. Lange, R. J. A. Little, J. M. G. Taylor, JASA 84 (1989), by the logarithm, so that no formula is chosen for
    an outlier; errors by P. J. Huber's sandwich (1967), the curvature by differences as wide as errors are.
    """
    values = values_of([entry.expression for entry in entries], goal.sample.X)
    distance, size = np.abs(values - goal.sample.y), float(np.median(np.abs(goal.sample.y))) or 1.0
    step = np.maximum(np.median(distance, axis=1) / 2, 1e-9 * size)[:, None]
    slopes = goal.row_weights * goal.slopes(values) ** 2
    curves = goal.row_weights * (goal.slopes(values + step) - goal.slopes(values - step)) / (2 * step)
    slopes, curves = (np.where(np.isfinite(part), np.maximum(part, 0.0), 0.0) for part in (slopes, curves))
    rows, n = len(goal.sample), int(pop.n_params[-1])
    dispersion = slopes[-1].sum() / curves[-1].sum() * rows / max(rows - n, 1)
    dispersion = max(dispersion if np.isfinite(dispersion) else 0.0, goal.floor, 1e-300)
    nats = np.log1p(goal.row_losses(values) / dispersion) @ goal.row_weights
    information, errors = np.full(params.shape, np.nan), np.full(params.shape, np.nan)
    for i, k in enumerate(pop.n_params.tolist()):
        part, own = pop[i : i + 1], params[i : i + 1, :k]
        bread, meat = (_squares(part, own, goal, weights[i])[0] for weights in (curves, slopes))
        information[i, :k], errors[i] = np.diagonal(bread) / dispersion, _errors(bread, meat, params.shape[1])
    return _Evidence(nats, information, errors)


def _squares(pop: Population, params: np.ndarray, goal: Goal, weights: np.ndarray) -> np.ndarray:
    """Sums of products of the derivatives by the numbers, (n, max_params, max_params)."""
    if not pop.max_params:
        return np.empty((len(pop), 0, 0))
    squares: np.ndarray = Evaluator(pop, goal.sample.X, "cpu", dtype="float64").normal_equations(
        params, goal.sample.y, weights
    )[0]
    return squares


def _errors(bread: np.ndarray, meat: np.ndarray, width: int) -> np.ndarray:
    """Roots of the covariances' diagonal, nan where the data do not determine a number and beyond the last."""
    errors = np.full(width, np.nan)
    scale = np.sqrt(np.diagonal(bread))
    with contextlib.suppress(np.linalg.LinAlgError):
        inverse = np.linalg.inv(bread / np.outer(scale, scale))
        covariance = inverse @ (meat / np.outer(scale, scale)) @ inverse
        errors[: len(bread)] = np.sqrt(np.diagonal(covariance)) / scale
    return errors


def _number_lengths(params: np.ndarray, nats: np.ndarray, n: float) -> np.ndarray:
    known = np.where(np.isfinite(nats), np.maximum(nats, np.log(2)), NATS_OF_A_NUMBER * np.log(max(n, 2)))
    with np.errstate(all="ignore"):
        return np.where(_is_simple(params), np.abs(np.log(np.abs(params))) + np.log(2), known)


def _is_simple(params: np.ndarray) -> np.ndarray:
    """Which numbers are written as they are: small whole ones and halves."""
    with np.errstate(invalid="ignore"):
        return (params == np.round(2 * params) / 2) & (np.abs(params) <= 100) & (params != 0)


def selected(
    entries: Sequence[Entry], lengths: Sequence[float], how: str, parsimony: float, exact: Sequence[bool], floor: float
) -> int:
    """The number of the formula that ``model_selection`` means."""
    sizes = np.array([entry.size for entry in entries])
    total = np.asarray(lengths) + parsimony * sizes
    if how == "best" and any(exact):
        shortest = list(exact).index(True)
        others = total.min(initial=np.inf, where=~np.asarray(exact))
        if total[shortest] <= others:  # else it has about as many numbers as there are rows
            return shortest
    if how == "accuracy":
        return int(np.argmin([entry.loss for entry in entries]))
    if how == "score":
        return int(np.argmax(scores(entries, floor) - parsimony))
    return int(np.argmin(total))


def scores(entries: Sequence[Entry], floor: float) -> np.ndarray:
    """By how much the logarithm of the loss falls for every token more."""
    losses = np.log(np.maximum([entry.loss for entry in entries], max(floor, 1e-300)))
    sizes = np.array([entry.size for entry in entries])
    found = np.zeros(len(entries))
    found[1:] = -np.diff(losses) / np.diff(sizes)
    return found


def table(
    entries: Sequence[Entry], named: Sequence[Expression], lengths: Sequence[float],
    numbers: Sequence[list[float]], errors: Sequence[list[float]],
) -> pd.DataFrame:  # fmt: skip
    """A row per formula."""
    with brought_by("search"):
        import pandas as pd

    return pd.DataFrame({
        "complexity": [entry.size for entry in entries],
        "loss": [entry.loss for entry in entries],
        "score": scores(entries, 0.0),
        "equation": [str(formula) for formula in named],
        "description_length": list(lengths),
        "sympy_format": [formula.sympy() for formula in named],
        "latex": [latex(formula, 4) for formula in named],
        "parameters": list(numbers),
        "parameter_errors": list(errors),
    })  # fmt: skip


def latex(formula: Expression, precision: int) -> str:
    """LaTeX with numbers of so many digits."""
    return rounded(formula, precision).latex()


def rounded(formula: Expression, precision: int) -> Expression:
    """The formula with numbers of so many digits, without those that are 1 then.

    Raises
    ------
    ArgumentError
        For a precision that is no whole number from 1 on.
    """
    whole("precision", precision, 1)
    pop, params = as_parameters(parse([formula]))
    numbers = np.array([[float(f"{number:.{precision}g}") for number in row] for row in params])
    short = as_constants(pop, numbers)[0]
    if (shorter := simplified(short)).n_tokens < short.n_tokens:
        short = shorter
    return Expression(short.kinds, short.values, formula.variables)


def latex_table(entries: Sequence[Entry], named: Sequence[Expression], precision: int) -> str:
    """Of booktabs."""
    rows = [
        f"$y = {latex(formula, precision)}$ & ${entry.size}$ & ${_scientific(entry.loss)}$ \\\\"
        for entry, formula in zip(entries, named, strict=True)
    ]
    head = [r"\begin{tabular}{lcc}", r"\toprule", r"Equation & Complexity & Loss \\", r"\midrule"]
    return "\n".join([*head, *rows, r"\bottomrule", r"\end{tabular}"])


def _scientific(number: float) -> str:
    mantissa, _, exponent = f"{number:.3g}".partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa


def python_text(formula: Expression, library: str) -> str:
    """A function of X and its numbers for a library of arrays: "to_numpy", "jax" or "torch", as of ``Expression``."""
    pop, params = as_parameters(parse([formula]))
    free = Expression(pop[0].kinds, pop[0].values, formula.variables)
    text: str = getattr(free, library)(params[0].tolist())
    return text


def plot_front(entries: Sequence[Entry], chosen: int, ax: Any = None) -> Any:
    """Loss over size, the chosen formula marked."""
    with brought_by("notebooks"):
        import matplotlib.pyplot as plt

    if ax is None:
        ax = plt.subplots(figsize=(5, 3.2), layout="constrained")[1]
    draw_front(ax, [entry.size for entry in entries], [entry.loss for entry in entries])
    ax.plot(entries[chosen].size, max(entries[chosen].loss, LEAST_DRAWN), "o", ms=9, mfc="none", mec="C3")
    return ax


def draw_front(ax: Any, sizes: Sequence[int], losses: Sequence[float]) -> None:
    """Loss over size on Matplotlib's axes."""
    drawn = [max(loss, LEAST_DRAWN) for loss in losses]
    ax.step(sizes, drawn, where="post", color="0.6", lw=1)
    ax.plot(sizes, drawn, "o", ms=4)
    ax.semilogy()
    ax.set(xlabel="complexity / tokens", ylabel="loss")
