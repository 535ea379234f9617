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
from typing import TYPE_CHECKING, Any

import numpy as np

from exprkit.errors import brought_by
from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.expression import Expression
from exprkit.expressions.parser import parse
from exprkit.fitting.description_length import function_length
from exprkit.regression.constants import as_constants, as_parameters
from exprkit.regression.front import Entry
from exprkit.regression.sample import Sample

if TYPE_CHECKING:
    import pandas as pd

NATS_OF_A_NUMBER = 0.5  # times log n: of a parameter whose precision could not be found
LEAST_DRAWN = 1e-300  # a loss of 0 has no logarithm


def described(entries: Sequence[Entry], sample: Sample) -> tuple[list[float], list[list[float]], list[list[float]]]:
    """Description lengths in nats, numbers, and their standard errors, of every formula.

    Normal errors, whose variance is the formula's own mean square.  A number costs its size in steps of its
    precision, which the information about it alone says (Bartlett, Desmond and Ferreira); a simple one its digits.
    Few rows are fitted better than they are known: C. M. Hurvich and C.-L. Tsai (1989) say by how much.
    """
    pop, params = as_parameters(parse([entry.expression for entry in entries]))
    variance = np.maximum([entry.loss for entry in entries], max(sample.floor, 1e-300))
    k = pop.n_params + 1.0  # numbers, and the variance; of few rows each takes more off the loss than it says
    few_rows = k * (k + 1) / np.maximum(sample.total - k - 1, 1)
    lengths = sample.total / 2 * np.log(variance) + function_length(pop) + few_rows
    errors = np.full(params.shape, np.nan)
    if pop.max_params:
        start = np.where(np.isnan(params), 0.0, params)
        ev = Evaluator(pop, sample.X, "cpu", dtype="float64")
        with np.errstate(all="ignore"):
            squares, _, _ = ev.normal_equations(start, sample.y, sample.w)
            information = np.diagonal(squares, axis1=1, axis2=2) / variance[:, None]
            nats = np.log(np.abs(params)) + np.log(information) / 2 - np.log(3) / 2
        lengths = lengths + np.where(np.isnan(params), 0.0, _number_lengths(params, nats, sample.total)).sum(axis=1)
        errors = _standard_errors(squares, variance, pop.n_params)
    rows = [(params[i, :k].tolist(), errors[i, :k].tolist()) for i, k in enumerate(pop.n_params.tolist())]
    return lengths.tolist(), [row[0] for row in rows], [row[1] for row in rows]


def _number_lengths(params: np.ndarray, nats: np.ndarray, n: float) -> np.ndarray:
    known = np.where(np.isfinite(nats), np.maximum(nats, np.log(2)), NATS_OF_A_NUMBER * np.log(max(n, 2)))
    with np.errstate(all="ignore"):
        return np.where(_is_simple(params), np.abs(np.log(np.abs(params))) + np.log(2), known)


def _standard_errors(squares: np.ndarray, variance: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Roots of the covariances' diagonals, nan where the data do not determine a number."""
    errors = np.full(squares.shape[:2], np.nan)
    for i, count in enumerate(counts.tolist()):
        part = squares[i, :count, :count]
        scale = np.sqrt(np.diagonal(part))
        with np.errstate(all="ignore"), contextlib.suppress(np.linalg.LinAlgError):
            inverse = np.linalg.inv(part / np.outer(scale, scale))
            errors[i, :count] = np.sqrt(np.diagonal(inverse) * variance[i]) / scale
    return errors


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
    """The formula with numbers of so many digits."""
    pop, params = as_parameters(parse([formula]))
    numbers = np.array([[float(f"{number:.{precision}g}") for number in row] for row in params])
    short = as_constants(pop, numbers)[0]
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
