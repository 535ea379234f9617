"""A population as a table: its losses on a data set, sorting, fits, the front, export.

In: a population and data.  Out: rows, the front of loss over size, files.  The population panel shows it.

    >>> import exprkit as ek
    >>> from exprkit.explorer.table import Table
    >>> table = Table(ek.parse(["p1 + x1", "x2", "p1 / x2"]), ek.data.rough_pipe())
    >>> table.order("tokens").tolist(), table.texts([1])
    ([1, 0, 2], ['x2'])
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import exprkit as ek
from exprkit.errors import DataError, brought_by
from exprkit.explorer import drawings
from exprkit.explorer.jobs import Progress
from exprkit.fitting.description_length import front
from exprkit.runtime import files

with brought_by("notebooks"):
    import pandas as pd

COLUMNS = ("loss", "tokens", "number", "parameters", "structure")
AT_ONCE = 5000  # expressions that are fitted between two looks at the stop button
DRAWN = 2000  # expressions beside the front
SHARE = 1e-6  # of a loss or the target that makes no difference


class Table:
    """The expressions of a population, with their losses on a data set; ``options`` are the ``Evaluator``'s.

    Attributes
    ----------
    params : float64 array, (n_exprs, max_params)
        1 where not ``fitted``.
    columns : DataFrame
        ``COLUMNS`` of each expression; ``loss`` is the root of the mean squared error, nan where the expression is nan
        at a point, or not valid.
    """

    def __init__(self, pop: ek.Population, points: ek.data.Dataset, **options: Any) -> None:
        if pop.n_vars > points.X.shape[1]:
            raise DataError(f"the expressions use {pop.n_vars} variables, {points.name} has {points.X.shape[1]}")
        self.pop, self.points, self._options = pop, points, options
        self.params, self.fitted = np.ones((len(pop), pop.max_params)), np.zeros(len(pop), bool)
        loss = np.asarray(ek.Evaluator(pop, points.X, **options).loss(self.params, points.y, kind="rmse"))
        columns = loss.astype(np.float64), pop.n_tokens, np.arange(len(pop)), pop.n_params, pop.structures()[1]
        self.columns = pd.DataFrame(dict(zip(COLUMNS, columns, strict=True)))

    @property
    def loss(self) -> np.ndarray:
        return self.columns["loss"].to_numpy()

    def order(self, by: str, descending: bool = False) -> np.ndarray:
        """Numbers of the expressions, sorted by one of ``COLUMNS``; nan comes last in either direction."""
        return self.columns[by].sort_values(ascending=not descending, kind="stable").index.to_numpy()

    def shortest(self) -> np.ndarray:
        """Mark the shortest expression of each loss, and those without a loss; bool (n_exprs,)."""
        ranked = self.columns.sort_values("loss", kind="stable")
        is_same = ranked["loss"].diff().to_numpy() <= self._rounding()[ranked.index]
        best = ranked.assign(group=np.cumsum(~is_same)).sort_values("tokens", kind="stable").drop_duplicates("group")
        return self.columns.index.isin(best.index)

    def texts(self, numbers: Sequence[int] | np.ndarray) -> list[str]:
        """These expressions; for one that is not valid, why."""
        texts = zip(numbers, self.pop[np.asarray(numbers, np.int64)].texts(), strict=True)
        return [text or f"(not valid) {_error(self.pop.errors.get(int(number), ''))}" for number, text in texts]

    def params_of(self, number: int) -> list[float] | None:
        """The fitted parameters of an expression."""
        return self.params[number, : self.pop.n_params[number]].tolist() if self.fitted[number] else None

    def _rounding(self) -> np.ndarray:
        """Differences of losses that are due to rounding, (n_exprs,)."""
        size = np.sqrt(np.mean(np.square(self.points.y, dtype=np.float64)))
        return SHARE * np.maximum(self.loss, size)

    # ── the front ──

    def front(self) -> np.ndarray:
        """Numbers of the expressions that no shorter or equally long one beats by more than rounding, by length."""
        return front(self.pop.n_tokens, self.loss, self._rounding())

    def front_page(self, selected: Sequence[int] = ()) -> str:
        """HTML of loss over tokens: all as dots, the front and the selected ones as marks with their texts."""
        finite = np.flatnonzero(np.isfinite(self.loss))
        marked = self.front(), np.array(selected, np.int64)
        sets = finite[:: -(-len(finite) // DRAWN) or 1], *marked
        cloud, line, points = ((self.pop.n_tokens[numbers], self.loss[numbers]) for numbers in sets)
        numbers = np.concatenate(marked)
        titles = [f"{number}: {text}" for number, text in zip(numbers, self.texts(numbers), strict=True)]
        return drawings.front_page(cloud, line, points, titles)

    # ── fitting and writing ──

    def fit(self, progress: Progress) -> None:
        """Fit every expression's parameters by least squares, ``AT_ONCE`` of them at a time.

        ``progress`` is called with (fitted, all) also while these are fitted, and may raise what ends that.
        """
        for first in range(0, len(self.pop), AT_ONCE):
            piece = slice(first, min(first + AT_ONCE, len(self.pop)))
            look = functools.partial(self._look, first, progress)
            result = ek.fit(self.pop[piece], self.points.X, self.points.y, progress=look, **self._options)
            self.params[piece, : result.params.shape[1]] = result.params
            self.columns.loc[piece.start : piece.stop - 1, "loss"] = np.sqrt(result.loss / len(self.points))
            self.fitted[piece] = self.pop.valid[piece]
            progress(piece.stop, len(self.pop))

    def _look(self, fitted: int, progress: Progress, done: int, total: int) -> None:
        if done < total:  # else the result is there, and is not given up
            progress(fitted, len(self.pop))

    def to_pandas(self) -> pd.DataFrame:
        """All rows, the fitted parameters in columns of their own."""
        frame = self.columns[["tokens", "structure", "parameters", "loss"]]
        frame.insert(0, "expression", self.pop.texts())
        has_value = self.fitted[:, None] & (np.arange(self.params.shape[1]) < self.pop.n_params[:, None])
        params = pd.DataFrame(np.where(has_value, self.params, np.nan)).rename(columns=lambda place: f"p{place + 1}")
        return frame.join(params)

    def to_csv(self, path: Path) -> Path:
        """Write all rows; the file is whole or not there."""
        return _write(path, self.to_pandas().to_csv(index_label="number"))

    def to_sympy(self, path: Path, progress: Progress) -> Path:
        """Write every expression as SymPy's text, one per line (blank where not valid).

        The text is ``sympy.srepr``'s, which keeps every bit of a constant; ``sympy.sympify`` reads it.
        """
        import sympy

        lines = []
        for number, expression in enumerate(self.pop):
            lines.append((sympy.srepr(expression.sympy()) if expression.valid else "") + "\n")
            progress(number + 1, len(self.pop))
        return _write(path, "".join(lines))


def _error(message: str) -> str:
    """The first line of a parse error, without the number of its text."""
    return message.partition(": ")[2].partition("\n")[0]


def _write(path: Path, text: str) -> Path:
    path = path.expanduser().resolve()
    if not path.parent.is_dir():
        raise DataError(f"there is no folder {path.parent}")
    return files.write_text(path, text)
