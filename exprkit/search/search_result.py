"""What a search found: the functions in order of their description length, the front, and figures.

>>> import exprkit as ek, numpy as np
>>> x = np.linspace(0.5, 3, 30)
>>> found = ek.exhaustive_search(x[:, None], 2 / x + 0.001 * np.sin(99 * x), max_nodes=3, progress=False)
>>> found.equations[["text", "size", "forms"]].head(2)
          text  size  forms
    0  p1 / x1     3      1
    1  p1 - x1     3      1
"""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from exprkit.errors import ArgumentError, FileError, brief, brought_by, number_of, whole_number
from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.population import Population
from exprkit.runtime import files
from exprkit.search.links import read_link

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FORMAT = 1
SHOWN = 60  # characters of an expression in a title
COLUMNS = ("size", "loss", "parameters", "function", "total", "forms", "times")
ARRAYS = ("params", "errors", "on_front", "X", "y", "counts")
WORDS = ("link", "stopped", "loss_name")
NUMBERS = ("seconds", "n_functions", "n_evaluations")


@dataclass(eq=False)
class SearchResult:
    """The best functions of a search, and those of its Pareto front, the shortest description first.

    =================  ==============================================================================
    attribute          what it holds
    =================  ==============================================================================
    ``pop``            Population: the shortest form of each function, without the link
    ``params``         float64 (n, max_params); 0 for those that are less than their precision, nan
                       where there are fewer
    ``errors``         float64 (n, max_params): standard errors of the parameters
    ``columns``        dict of arrays (n,): ``size`` in nodes; ``loss``, the negative log-likelihood,
                       ``parameters`` and ``function``, and their sum ``total``, in nats; ``forms``, how many
                       trees the function stands for; ``times``, how often its best loss was found
    ``on_front``       bool (n,): no smaller function tells the data as well
    ``counts``         int64 (n_sizes, 4): size, trees of it (operands in both orders), functions among them,
                       functions that no smaller tree is
    ``link``           the text of the link; "f": none
    ``stopped``        why it ended early, in words; "" where it is whole
    ``seconds``        the time it took
    ``n_functions``    how many functions were fitted; ``n_evaluations``: normal equations made for that
    =================  ==============================================================================
    """

    pop: Population
    columns: dict[str, np.ndarray]
    params: np.ndarray
    errors: np.ndarray
    on_front: np.ndarray
    counts: np.ndarray
    link: str
    X: np.ndarray
    y: np.ndarray
    seconds: float
    stopped: str
    loss_name: str
    n_functions: int
    n_evaluations: int

    def __len__(self) -> int:
        return len(self.pop)

    @property
    def loss(self) -> np.ndarray:
        return self.columns["loss"]

    @property
    def total(self) -> np.ndarray:
        return self.columns["total"]

    @property
    def probability(self) -> np.ndarray:
        """exp(-total), as shares of what is kept."""
        if not len(self) or not np.isfinite(self.total[0]):
            return np.zeros(len(self))
        shares = np.exp(self.total.min() - self.total)
        return shares / shares.sum()

    def texts(self) -> list[str]:
        return self.pop.texts()

    @property
    def equations(self) -> pd.DataFrame:
        """A row per function: size, loss, terms, total, probability, parameters and their errors, text, LaTeX."""
        with brought_by("notebooks"):
            import pandas as pd

        table: dict[str, Any] = {"text": self.texts(), **self.columns, "probability": self.probability}
        table["forms"] = self.columns["forms"].astype(np.int64)
        names = list(self.pop.parameters or (f"p{j + 1}" for j in range(self.params.shape[1])))
        table |= {name: self.params[:, j] for j, name in enumerate(names)}
        table |= {f"{name}_error": self.errors[:, j] for j, name in enumerate(names)}
        table["front"] = self.on_front
        table["latex"] = [expression.latex() for expression in self.pop]
        return pd.DataFrame(table)

    def front(self) -> pd.DataFrame:
        """The rows of the Pareto front, the smallest function first; their numbers are those of ``equations``."""
        table = self.equations
        return table[self.on_front].sort_values("size")

    def predict(self, X: Any, i: int = 0) -> np.ndarray:
        """What function ``i`` gives, link and all, float64 (n_points,).

        Raises
        ------
        ArgumentError
            If there is no function of this number.
        DataError
            If ``X`` does not fit.
        """
        number = whole_number(i)
        if number is None or not -len(self) <= number < len(self):
            raise ArgumentError(f"there is no function {brief(i)} among {len(self):,}")
        number %= len(self)
        one = read_link(self.link).over(self.pop[number : number + 1])
        params = np.nan_to_num(self.params[number : number + 1, : one.max_params])
        return np.asarray(Evaluator(one, X, "cpu", dtype="float64").evaluate(params)[0])

    # ── figures ──

    def plot_front(self) -> Figure:
        """The negative log-likelihood over the size: every function that is kept, and the front as a line."""
        with brought_by("notebooks"):
            import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
        size, loss = self.columns["size"], self.loss
        front = np.flatnonzero(self.on_front)
        front = front[np.argsort(size[front])]
        axes.plot(size, loss, ".", color="0.75", markersize=4, rasterized=True)
        axes.step(size[front], loss[front], "o-", where="post", markersize=5, label="Pareto front")
        if len(self):
            axes.plot(size[0], loss[0], "*", markersize=14, label=f"shortest description: {_short(self.texts()[0])}")
            low, high = loss[front].min(initial=loss[0]), loss[front].max(initial=loss[0])
            axes.set_ylim(low - 0.05 * (high - low) - 1, high + 0.05 * (high - low) + 1)
            axes.legend()
        axes.set(xlabel="nodes", ylabel="negative log-likelihood [nats]")
        plt.close(figure)
        return figure

    def plot_best(self, n: int = 3, variable: int = 0) -> Figure:
        """The data and the ``n`` best functions over a variable, the residuals below."""
        with brought_by("notebooks"):
            import matplotlib.pyplot as plt

        n = min(n, len(self))
        figure, (above, below) = plt.subplots(
            2, 1, figsize=(7, 6), sharex=True, layout="constrained", height_ratios=(3, 1)
        )
        x = self.X[:, variable]
        order = np.argsort(x)
        mark = "-" if self.X.shape[1] == 1 else "."
        above.plot(x, self.y, ".", color="0.4", label="data")
        for i in range(n):
            fitted = self.predict(self.X, i)
            above.plot(x[order], fitted[order], mark, markersize=3, label=_short(self.texts()[i]))
            below.plot(x[order], (self.y - fitted)[order], ".", markersize=3)
        below.axhline(0, color="0.7", linewidth=1)
        below.set(xlabel=self.pop.variables[variable] if self.pop.variables else f"x{variable + 1}", ylabel="residual")
        above.set_ylabel("target")
        above.legend()
        plt.close(figure)
        return figure

    # ── files ──

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write ``equations`` as a table."""
        with files.told(path, "written"):
            files.write(Path(path), lambda beside: self.equations.to_csv(beside, index=False))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as npz: whole or not at all, and without pickle."""
        arrays = {name: getattr(self, name) for name in (*ARRAYS, *NUMBERS)}
        arrays |= {name: np.array(getattr(self, name), np.str_) for name in WORDS}
        arrays |= {f"column_{name}": self.columns[name] for name in COLUMNS}
        arrays |= {name: getattr(self.pop, name) for name in ("kinds", "values", "offsets")}
        if self.pop.variables is not None:
            arrays["variables"] = np.array(self.pop.variables, np.str_)

        def fill(beside: Path) -> None:
            with open(beside, "wb") as file:
                np.savez(file, allow_pickle=False, format=np.int64(FORMAT), **arrays)

        with files.told(path, "written"):
            files.write(Path(path), fill)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SearchResult:
        """Read what ``save`` wrote.

        Raises
        ------
        FileError
            For a file that is damaged or something else.
        """
        with files.told(path, "read"), open(path, "rb") as file:
            try:
                with np.load(file, allow_pickle=False) as held:
                    if int(held["format"]) != FORMAT:
                        raise ValueError(f"format {held['format']}")
                    names = tuple(map(str, held["variables"])) if "variables" in held.files else None
                    pop = Population(held["kinds"], held["values"], held["offsets"], variables=names)
                    fields: dict[str, Any] = {name: held[name] for name in ARRAYS}
                    fields |= {name: str(held[name]) for name in WORDS} | {name: held[name].item() for name in NUMBERS}
                    return cls(pop=pop, columns={name: held[f"column_{name}"] for name in COLUMNS}, **fields)
            except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
                raise FileError(f"{os.fspath(path)!r} is no result of a search, or is damaged: {error}") from error

    def __repr__(self) -> str:
        best = f", best {_short(self.texts()[0])!r}" if len(self) else ""
        ended = f", {self.stopped}" if self.stopped else ""
        return f"<SearchResult: {number_of(self.n_functions, 'function')} fitted{best}, {self.seconds:.3g} s{ended}>"

    def _repr_html_(self) -> str:
        columns = ["text", "size", "total", "loss", "parameters", "function", "probability", "forms"]
        return f"<p>{repr(self)[1:-1]}</p>{self.equations[columns].head(20).to_html()}"


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
