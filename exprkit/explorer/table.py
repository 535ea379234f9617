"""A population as a table: computed columns per expression, sorting, paging, fits, export.

In: a population and data.  Out: rows, the front of loss over size, files.  The population panel shows it.

    >>> import exprkit as ek
    >>> from exprkit.explorer.table import Table
    >>> table = Table(ek.parse(["p1 + x1", "x2", "p1 / x2"]), ek.data.rough_pipe())
    >>> table.rows(table.order("tokens"))[0].text
    'x2'
"""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import numpy as np

import exprkit as ek
from exprkit.errors import DataError, brought_by
from exprkit.explorer import drawings
from exprkit.explorer.jobs import Progress, Stopped
from exprkit.explorer.pages import picture_page
from exprkit.fitting.description_length import front
from exprkit.runtime import files

COLUMNS = ("loss", "tokens", "number", "parameters", "structure")
AT_ONCE = 5000  # expressions that are fitted between two looks at the stop button
DRAWN = 2000  # expressions beside the front
START = 1.0  # of every parameter, until it is fitted
SHARE = 1e-6  # of a loss or the target that makes no difference


class Row(NamedTuple):
    """What the table knows of an expression; ``params`` only after a fit."""

    number: int
    text: str
    tokens: int
    structure: int
    parameters: int
    loss: float
    params: list[float] | None


class Table:
    """The expressions of a population, with their losses on a data set; ``options`` are the ``Evaluator``'s.

    Expressions that could not be read stay, without a loss.  ``params`` (n_exprs, max_params) are 1 until ``fitted``;
    ``loss`` is the root of the mean squared error, nan where an expression is nan at a point.
    """

    def __init__(self, pop: ek.Population, points: ek.data.Dataset, **options: Any) -> None:
        if pop.n_vars > points.X.shape[1]:
            raise DataError(f"the expressions use {pop.n_vars} variables, {points.name} has {points.X.shape[1]}")
        self.pop, self.points, self._options = pop, points, options
        self.params = np.full((len(pop), pop.max_params), START)
        self.fitted = np.zeros(len(pop), bool)
        self.loss = np.asarray(ek.Evaluator(pop, points.X, **options).loss(self.params, points.y, kind="rmse"))
        self.structure = pop.structures()[1]

    def __len__(self) -> int:
        return len(self.pop)

    def order(self, by: str, descending: bool = False) -> np.ndarray:
        """Numbers of the expressions, sorted by one of ``COLUMNS``; nan comes last in either direction."""
        columns = self.loss, self.pop.n_tokens, np.arange(len(self)), self.pop.n_params, self.structure
        keys = columns[COLUMNS.index(by)].astype(np.float64)
        return np.argsort(-keys if descending else keys, kind="stable")

    def rows(self, numbers: np.ndarray) -> list[Row]:
        """The rows of these expressions."""
        texts = self.pop[np.asarray(numbers, np.int64)].texts()
        return [self._row(int(number), text) for number, text in zip(numbers, texts, strict=True)]

    def _row(self, number: int, text: str) -> Row:
        n_params = int(self.pop.n_params[number])
        params = self.params[number, :n_params].tolist() if self.fitted[number] else None
        text = text or f"(not valid) {self.pop.errors.get(number, '').partition(': ')[2].partition(chr(10))[0]}"
        return Row(
            number,
            text,
            int(self.pop.n_tokens[number]),
            int(self.structure[number]),
            n_params,
            float(self.loss[number]),
            params,
        )

    def shortest(self) -> np.ndarray:
        """Whether an expression is the shortest of those of its loss, bool (n_exprs,); what has no loss stays."""
        ranked = np.argsort(self.loss, kind="stable")
        groups = np.empty(len(self), np.int64)
        groups[ranked] = np.cumsum(~(np.diff(self.loss[ranked], prepend=-np.inf) <= self._rounding()[ranked]))
        best, chosen = np.lexsort((self.pop.n_tokens, groups)), np.zeros(len(self), bool)
        chosen[best[np.unique(groups[best], return_index=True)[1]]] = True
        return chosen

    def _rounding(self) -> np.ndarray:
        """What makes no difference to a loss, (n_exprs,)."""
        size = np.sqrt(np.mean(np.square(self.points.y, dtype=np.float64)))
        return SHARE * np.maximum(self.loss, size)

    # ── the front ──

    def front(self) -> np.ndarray:
        """Numbers of the expressions that no shorter or equally long one beats, shortest first.

        A loss that is less by a millionth of itself or of the target's size is not: values are rounded.
        """
        return front(self.pop.n_tokens, self.loss, self._rounding())

    def front_page(self, chosen: int | None = None) -> str:
        """HTML of loss over tokens: all as dots, the front and the chosen one as marks that say their text."""
        finite = np.flatnonzero(np.isfinite(self.loss))
        marked = self.front(), np.array([] if chosen is None else [chosen], np.int64)
        shown = finite[:: -(-len(finite) // DRAWN) or 1], *marked
        png, places = drawings.front(*((self.pop.n_tokens[numbers], self.loss[numbers]) for numbers in shown))
        rows = self.rows(np.concatenate(marked))
        titles = [f"{row.number}: {row.text}\n{row.tokens} tokens, loss {row.loss:.4g}" for row in rows]
        return picture_page(png, places.tolist(), titles, alt=drawings.FRONT)

    # ── fitting and writing ──

    def fit(self, stop: Event, progress: Progress) -> None:
        """Fit every expression's parameters by least squares, ``AT_ONCE`` of them at a time, until done or stopped."""

        def shown(done: int, total: int) -> None:
            if stop.is_set() and done < total:
                raise Stopped

        for first in range(0, len(self), AT_ONCE):
            if stop.is_set():
                return
            piece = slice(first, min(first + AT_ONCE, len(self)))
            try:
                result = ek.fit(self.pop[piece], self.points.X, self.points.y, progress=shown, **self._options)
            except Stopped:
                return
            self.params[piece, : result.params.shape[1]] = result.params
            self.loss[piece] = np.sqrt(result.loss / len(self.points))
            self.fitted[piece] = self.pop.valid[piece]
            progress(piece.stop, len(self))

    def to_pandas(self) -> Any:
        """All rows as a DataFrame, the fitted parameters in columns of their own."""
        with brought_by("notebooks"):
            import pandas as pd

        frame = pd.DataFrame(
            {
                "expression": self.pop.texts(),
                "tokens": self.pop.n_tokens,
                "structure": self.structure,
                "parameters": self.pop.n_params,
                "loss": self.loss,
            }
        )
        for place in range(self.params.shape[1]):
            has_value = self.fitted & (self.pop.n_params > place)
            frame[f"p{place + 1}"] = np.where(has_value, self.params[:, place], np.nan)
        return frame

    def to_csv(self, path: Path) -> Path:
        """Write all rows; the file is whole or not there."""
        return _written(path, self.to_pandas().to_csv(index_label="number"))

    def to_sympy(self, path: Path, stop: Event, progress: Progress) -> Path | None:
        """Write every expression as SymPy's text, one per line (blank where not valid); None if stopped.

        The text is ``sympy.srepr``'s, which keeps every bit of a constant; ``sympy.sympify`` reads it.
        """
        import sympy

        lines = []
        for number, expression in enumerate(self.pop):
            if stop.is_set():
                return None
            lines.append((sympy.srepr(expression.sympy()) if expression.valid else "") + "\n")
            progress(number + 1, len(self))
        return _written(path, "".join(lines))


def _written(path: Path, text: str) -> Path:
    path = path.expanduser().resolve()
    if not path.parent.is_dir():
        raise DataError(f"there is no folder {path.parent}")
    return files.write_text(path, text)
