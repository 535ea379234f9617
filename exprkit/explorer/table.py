"""A population as a table: what is known of every expression, sorted, paged, fitted, exported.

Part of the explorer; plain arrays and functions, which its population view shows.

    >>> import exprkit as ek
    >>> from exprkit.explorer.table import Table
    >>> table = Table(ek.parse(["p1 + x1", "x2", "p1 / x2"]), ek.data.rough_pipe())
    >>> table.page(table.order("tokens"), 0)[0].text
    'x2'
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import numpy as np

from exprkit.data import Dataset
from exprkit.errors import DataError
from exprkit.evaluate.evaluator import Evaluator
from exprkit.explorer import svg
from exprkit.expressions.population import Population
from exprkit.fitting.description_length import front
from exprkit.fitting.fit import fit

ROWS = 12  # of a page
COLUMNS = ("number", "tokens", "structure", "parameters", "loss")
AT_ONCE = 5000  # expressions that are fitted between two looks at the stop button
START = 1.0  # of every parameter, until it is fitted
SHARE = 1e-6  # of a loss or the target that makes no difference

Progress = Callable[[int, int], None]


class Row(NamedTuple):
    """What the table knows of an expression; ``params`` only after a fit."""

    number: int
    text: str
    tokens: int
    structure: int
    parameters: int
    loss: float
    params: tuple[float, ...] | None


class Table:
    """The expressions of a population, with their losses on a data set.

    Parameters
    ----------
    pop : Population
        Expressions that could not be read stay in the table, without a loss.
    points : Dataset
    **options
        Of the ``Evaluator``.

    Attributes
    ----------
    params : float64 array, (n_exprs, max_params)
        Padded; 1 until a fit.
    fitted : bool array, (n_exprs,)
    loss : float64 array, (n_exprs,)
        Root of the mean squared error; nan where an expression is nan at a point.
    """

    def __init__(self, pop: Population, points: Dataset, **options: Any) -> None:
        if pop.n_vars > points.X.shape[1]:
            raise DataError(f"the expressions use {pop.n_vars} variables, {points.name} has {points.X.shape[1]}")
        self.pop, self.points = pop, points
        self.params = np.full((len(pop), pop.max_params), START)
        self.fitted = np.zeros(len(pop), bool)
        self.loss = np.asarray(Evaluator(pop, points.X, **options).loss(self.params, points.y, kind="rmse"))
        self.structure = pop.structures()[1]

    def __len__(self) -> int:
        return len(self.pop)

    # ── rows ──

    def order(self, by: str, descending: bool = False) -> np.ndarray:
        """Numbers of the expressions, sorted by one of ``COLUMNS``; nan comes last in either direction."""
        keys = {
            "number": np.arange(len(self)), "tokens": self.pop.n_tokens, "structure": self.structure,
            "parameters": self.pop.n_params, "loss": self.loss,
        }[by].astype(np.float64)  # fmt: skip
        return np.argsort(-keys if descending else keys, kind="stable")

    def n_pages(self) -> int:
        return max(1, -(-len(self) // ROWS))

    def page(self, order: np.ndarray, page: int) -> list[Row]:
        """The rows of a page, counted from 0."""
        return self.rows(order[page * ROWS : (page + 1) * ROWS])

    def rows(self, numbers: np.ndarray) -> list[Row]:
        """The rows of these expressions."""
        texts = self.pop[np.asarray(numbers, np.int64)].texts()
        return [self._row(int(number), text) for number, text in zip(numbers, texts, strict=True)]

    def _row(self, number: int, text: str) -> Row:
        n_params = int(self.pop.n_params[number])
        own = tuple(self.params[number, :n_params].tolist()) if self.fitted[number] else None
        shown = text or f"(not valid) {self.pop.errors.get(number, '').partition(': ')[2].partition(chr(10))[0]}"
        return Row(number, shown, int(self.pop.n_tokens[number]), int(self.structure[number]), n_params,
                   float(self.loss[number]), own)  # fmt: skip

    # ── the front ──

    def front(self) -> np.ndarray:
        """Numbers of the expressions that no shorter or equally long one beats, shortest first.

        A loss that is less by a millionth of itself or of the target's size is not: values are rounded.
        """
        size = np.sqrt(np.mean(np.square(self.points.y, dtype=np.float64)))
        return front(self.pop.n_tokens, self.loss, SHARE * np.maximum(self.loss, size))

    def front_chart(self, chosen: int | None = None, drawn: int = 2000) -> str:
        """Loss over tokens: all as dots, the front as marks that say their text; SVG."""
        front = self.front()
        finite = np.flatnonzero(np.isfinite(self.loss))
        some = finite[:: -(-len(finite) // drawn) or 1]
        shown = np.concatenate([some, front])
        positive = bool((self.loss[shown] > 0).all())
        most = 10 * self.loss[front].max(initial=0.0)  # the bad ones would press the front flat
        chart = svg.Chart(
            svg.Axis(self.pop.n_tokens[shown], "tokens"),
            svg.Axis(np.minimum(self.loss[shown], most), "loss (rmse)", logarithmic=positive, margin=0.1),
            height=260,
        )
        chart.dots(self.pop.n_tokens[some], self.loss[some], svg.GREY, 3)
        chart.line(self.pop.n_tokens[front], self.loss[front], svg.BLUE, 1)
        self._marks(chart, front, svg.BLUE, 5)
        if chosen is not None:
            self._marks(chart, np.array([chosen]), svg.RED, 7)
        return chart.svg()

    def _marks(self, chart: svg.Chart, numbers: np.ndarray, colour: str, size: float) -> None:
        titles = [f"{row.number}: {row.text}\n{row.tokens} tokens, loss {row.loss:.4g}" for row in self.rows(numbers)]
        chart.marks(self.pop.n_tokens[numbers], self.loss[numbers], titles, colour, size)

    # ── fitting and writing ──

    def fit(self, stop: Event | None = None, progress: Progress | None = None, **options: Any) -> None:
        """Fit every expression's parameters, ``AT_ONCE`` of them at a time, until done or stopped.

        Parameters
        ----------
        stop : threading.Event, optional
        progress : function of (done, total), optional
        **options
            Of ``exprkit.fit``, beside its loss, which is squares.
        """
        for first in range(0, len(self), AT_ONCE):
            if stop is not None and stop.is_set():
                return
            some = slice(first, min(first + AT_ONCE, len(self)))
            found = fit(self.pop[some], self.points.X, self.points.y, **options)
            self.params[some, : found.params.shape[1]] = found.params
            self.loss[some] = np.sqrt(found.loss / len(self.points))
            self.fitted[some] = self.pop.valid[some]
            if progress is not None:
                progress(some.stop, len(self))

    def to_pandas(self) -> Any:
        """All rows as a DataFrame, the fitted parameters in columns of their own."""
        import pandas as pd

        texts = self.pop.texts()
        frame = pd.DataFrame({
            "expression": texts, "tokens": self.pop.n_tokens, "structure": self.structure,
            "parameters": self.pop.n_params, "loss": self.loss,
        })  # fmt: skip
        for place in range(self.params.shape[1]):
            known = self.fitted & (self.pop.n_params > place)
            frame[f"p{place + 1}"] = np.where(known, self.params[:, place], np.nan)
        return frame

    def to_csv(self, path: str | Path) -> Path:
        """Write all rows; the file is whole or not there."""
        return _written(Path(path), [self.to_pandas().to_csv(index_label="number")])

    def to_sympy(self, path: str | Path, stop: Event | None = None, progress: Progress | None = None) -> Path | None:
        """Write every expression as SymPy's text, one a line (blank where not valid); None if stopped.

        The text is ``sympy.srepr``'s, which keeps every bit of a constant; ``sympy.sympify`` reads it.
        """
        import sympy

        lines = []
        for number, expression in enumerate(self.pop):
            if number % 100 == 0 and stop is not None and stop.is_set():
                return None
            lines.append((sympy.srepr(expression.sympy()) if expression.valid else "") + "\n")
            if progress is not None and number % 100 == 99:
                progress(number + 1, len(self))
        return _written(Path(path), lines)


def _written(path: Path, parts: Iterable[str]) -> Path:
    """Write a text beside ``path``, then put it in place at one stroke."""
    path = path.expanduser()
    if not path.parent.is_dir():
        raise DataError(f"there is no folder {path.parent}")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=path.suffix)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # mkstemp's files are for their owner alone
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    return path.resolve()
