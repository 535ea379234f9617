"""``SearchResult``: the functions by description length, the Pareto front, and figures."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from exprkit.errors import ArgumentError, brief, brought_by, checks_methods, number_of, shortened, whole, whole_number
from exprkit.evaluate.evaluator import Evaluator
from exprkit.evaluate.loss_text import Composition
from exprkit.expressions.population import Population
from exprkit.fitting.fitted_expression import FittedExpression
from exprkit.fitting.plot import beside_data
from exprkit.runtime import codec, files
from exprkit.search.goal import LENGTH
from exprkit.search.patterns import holders

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SHOWN = 60  # characters of an expression in a title
COLUMNS = ("size", "loss", "parameters", "function", "total", "forms", "times")


@checks_methods
@dataclass(eq=False)
class SearchResult:
    """The best functions of a search, and those of its Pareto front, the least ``total`` first.

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
    ``rank``           "description_length"; or "loss": then ``total`` is the loss, ``parameters`` and
                       ``probability`` are nan, and no parameter was set to 0
    ``on_front``       bool (n,): no smaller function has a loss as low
    ``counts``         int64 (n_sizes, 4): size, trees of it (operands in both orders), functions among them,
                       functions that no smaller tree is
    ``link``           the text of the link; "f": none
    ``stopped``        why the search ended early, in words; "" if it is complete
    ``seconds``        elapsed time
    ``n_functions``    number of functions that were fitted; ``n_evaluations``: of normal equations computed
    =================  ==============================================================================

    ``found[i]`` is function i, link and all, with its numbers: a ``FittedExpression``.

    Examples
    --------
    >>> import exprkit as ek, numpy as np
    >>> x = np.linspace(0.5, 3, 30)
    >>> found = ek.exhaustive_search(x[:, None], 2 / x + 0.001 * np.sin(99 * x), max_nodes=3, progress=False)
    >>> found.equations[["text", "size", "forms"]].head(2)
              text  size  forms
        0  p1 / x1     3      1
        1  p1 - x1     3      1
    """

    pop: Population
    columns: Annotated[dict[str, np.ndarray], "number[n]"]
    params: Annotated[np.ndarray, "float[n, width]"]
    errors: Annotated[np.ndarray, "float[n, width]"]
    on_front: Annotated[np.ndarray, "bool[n]"]
    counts: Annotated[np.ndarray, "int[sizes, 4]"]
    link: str
    X: Annotated[np.ndarray, "float[points, vars]"]
    y: Annotated[np.ndarray, "float[points]"]
    seconds: float
    stopped: str
    loss_name: str
    rank: str
    n_functions: int
    n_evaluations: int

    def __len__(self) -> int:
        return len(self.pop)

    def __getitem__(self, i: int) -> FittedExpression:
        """Function ``i``, link and all, with its numbers: ``found[0].latex()``, ``found[0](X)``.

        Raises
        ------
        ArgumentError
            If there is no function of this number.
        """
        return FittedExpression(_FoundFunction(self, _number("function", i, len(self))))

    def __iter__(self) -> Iterator[FittedExpression]:
        return map(self.__getitem__, range(len(self)))

    @property
    def loss(self) -> np.ndarray:
        return self.columns["loss"]

    @property
    def total(self) -> np.ndarray:
        return self.columns["total"]

    @property
    def probability(self) -> np.ndarray:
        """exp(-total), as shares of what is kept; nan where the loss ranks."""
        if self.rank != LENGTH:
            return np.full(len(self), np.nan)
        if not len(self) or not np.isfinite(self.total[0]):
            return np.zeros(len(self))
        shares = np.exp(self.total.min() - self.total)
        return shares / shares.sum()

    def texts(self) -> list[str]:
        """The functions as text, in the order of ``pop``.

        >>> ek.exhaustive_search([[1.0], [2.0], [3.0]], [2.1, 3.9, 6.0], max_nodes=3, progress=False).texts()[:2]
        ['x1 + x1', 'x1 * p1']
        """
        return self.pop.texts()

    @property
    def equations(self) -> pd.DataFrame:
        """A row per function: size, loss, terms, total, probability, parameters and their errors, text, LaTeX."""
        with brought_by("notebooks"):
            import pandas as pd

        table: dict[str, Any] = {"text": self.texts(), **self.columns, "probability": self.probability}
        table["forms"] = self.columns["forms"].astype(np.int64)
        names = self.pop.parameter_names
        table |= {name: self.params[:, j] for j, name in enumerate(names)}
        table |= {f"{name}_error": self.errors[:, j] for j, name in enumerate(names)}
        table["front"] = self.on_front
        table["latex"] = [expression.latex() for expression in self.pop]
        return pd.DataFrame(table)

    def front(self) -> pd.DataFrame:
        """The rows of the Pareto front, the smallest function first; their numbers are those of ``equations``.

        >>> found = ek.exhaustive_search([[1.0], [2.0], [3.0]], [2.1, 3.9, 6.0], max_nodes=3, progress=False)
        >>> found.front()["text"].tolist()
        ['p1', 'x1 * p1']
        """
        return self.equations[self.on_front].sort_values("size")

    def explore(
        self, pattern: str | None = None, max_size: int | None = None, best: int | None = 50, anywhere: bool = True
    ) -> pd.DataFrame:
        """The rows of ``equations`` whose functions hold a ``pattern``, as ``SymbolicRegressor.explore`` says.

        They have ``max_size`` tokens at most and are the ``best`` first ones; without ``anywhere`` a function itself is
        to be the pattern, not a part of it.

        Examples
        --------
        >>> import exprkit as ek, numpy as np
        >>> x = np.linspace(0.5, 3, 30)
        >>> found = ek.exhaustive_search(x[:, None], 2 / x + 0.001 * np.sin(99 * x), max_nodes=3, progress=False)
        >>> found.explore("p1 / x1")["text"].tolist()
        ['p1 / x1']
        """
        return self.equations.iloc[holders(self.pop, pattern, best, max_size, anywhere)]

    def predict(self, X: Any, i: int = 0) -> np.ndarray:
        """Predictions of function ``i``, link and all, float64 (n_points,).

        Raises
        ------
        ArgumentError
            If there is no function of this number.
        DataError
            If ``X`` does not fit.

        Examples
        --------
        >>> found = ek.exhaustive_search([[1.0], [2.0], [3.0]], [2.1, 3.9, 6.0], max_nodes=3, progress=False)
        >>> found.predict([[4.0]]).round(2)
        array([8.])
        """
        number = _number("function", i, len(self))
        expression = Composition.under_link(self.pop[number : number + 1], self.link)
        params = np.nan_to_num(self.params[number : number + 1, : expression.max_params])
        return np.asarray(Evaluator(expression, X, "cpu", dtype="float64").evaluate(params)[0])

    # ── figures ──

    def plot_front(self) -> Figure:
        """The loss over the size: every function that is kept, and the front as a line.

        >>> found = ek.exhaustive_search([[1.0], [2.0], [3.0]], [2.1, 3.9, 6.0], max_nodes=3, progress=False)
        >>> figure = found.plot_front()  # figure.savefig("front.pdf")
        """
        with brought_by("notebooks"):
            import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
        size, loss = self.columns["size"], self.loss
        front = np.flatnonzero(self.on_front)
        front = front[np.argsort(size[front])]
        axes.plot(size, loss, ".", color="0.75", markersize=4, rasterized=True)
        axes.step(size[front], loss[front], "o-", where="post", markersize=5, label="Pareto front")
        if len(self):
            first = "shortest description" if self.rank == LENGTH else "least loss"
            label = f"{first}: {self._with_numbers(0)}".replace("$", r"\$")
            axes.plot(size[0], loss[0], "*", markersize=14, label=label)
            shown = np.append(loss[front], loss[0])
            low, high, least = shown.min(), shown.max(), 1.0 if self.rank == LENGTH else 0.0
            if self.rank != LENGTH and low > 0 < high:
                axes.semilogy()
                axes.set_ylim(low / 2, 2 * high)
            else:
                axes.set_ylim(low - 0.05 * (high - low) - least, high + 0.05 * (high - low) + least)
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.legend()
        named = f"loss, {self.loss_name}" if self.rank != LENGTH else "negative log-likelihood [nats]"
        axes.set(xlabel="nodes", ylabel=named)
        plt.close(figure)
        return figure

    def plot_best(self, n: int = 3, variable: int | None = None) -> Figure:
        """The data and the ``n`` best functions, the residuals beside: over a variable, by default the only one.

        Of several variables, the target over what each function predicts.

        >>> found = ek.exhaustive_search([[1.0], [2.0], [3.0]], [2.1, 3.9, 6.0], max_nodes=3, progress=False)
        >>> figure = found.plot_best(2)  # figure.savefig("best.pdf")
        """
        return self._plot(range(min(whole("n", n, 1), len(self))), variable)

    def _plot(self, functions: Iterable[int], variable: int | None = None) -> Figure:
        over = variable
        if over is not None or self.X.shape[1] == 1:
            over = _number("variable", over or 0, self.X.shape[1])
        curves = [(self._with_numbers(i), self.pop[i], functools.partial(self.predict, i=i)) for i in functions]
        return beside_data(curves, self.X, self.y, self.pop.variables, over)

    def _with_numbers(self, i: int) -> str:
        """Function ``i`` for a legend."""
        params = [float(f"{p:.3g}") for p in np.nan_to_num(self.params[i, : self.pop.n_params[i]])]
        return shortened(str(self.pop[i].with_numbers(params)), SHOWN).replace("`", "")

    # ── files ──

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write ``equations`` as a CSV file to ``path``.

        >>> found = ek.exhaustive_search([[1.0], [2.0], [3.0]], [2.1, 3.9, 6.0], max_nodes=3, progress=False)
        >>> found.to_csv("functions.csv")
        """
        files.write(Path(path), lambda beside: self.equations.to_csv(beside, index=False))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result to ``path`` as npz, without pickle; the file is complete or absent.

        >>> found = ek.exhaustive_search([[1.0], [2.0], [3.0]], [2.1, 3.9, 6.0], max_nodes=3, progress=False)
        >>> found.save("search.npz")
        """
        files.write_arrays(path, self.pop.to_arrays() | codec.to_arrays("found", self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SearchResult:
        """Read the file at ``path`` that ``save`` wrote; errors are those of ``exprkit.load``.

        >>> ek.exhaustive_search([[1.0], [2.0]], [2.0, 4.0], max_nodes=3, progress=False).save("search.npz")
        >>> ek.SearchResult.load("search.npz").texts()[0]
        'x1 + x1'
        """
        with files.opened(path, "result of a search") as arrays:
            return cls.restored(arrays)

    @classmethod
    def restored(cls, arrays: dict[str, np.ndarray]) -> SearchResult:
        """From the arrays of a file."""
        pop = Population.from_arrays(arrays)
        fields = codec.from_arrays("found", cls, arrays, n=len(pop))
        fields["columns"] = {name: fields["columns"][name] for name in COLUMNS}
        return cls(pop=pop, **fields)

    def __repr__(self) -> str:
        best = f", best {shortened(self.texts()[0], SHOWN)!r}" if len(self) else ""
        ended = f", {self.stopped}" if self.stopped else ""
        return f"<SearchResult: {number_of(self.n_functions, 'function')} fitted{best}, {self.seconds:.3g} s{ended}>"

    def _repr_html_(self) -> str:
        columns = ["text", "size", "total", "loss", "parameters", "function", "probability", "forms"]
        return f"<p>{escape(repr(self)[1:-1])}</p>{self.equations[columns].head(20).to_html()}"


class _FoundFunction:
    """One function as a ``FittedExpression`` looks at it: as the fit of one expression."""

    def __init__(self, result: SearchResult, i: int) -> None:
        part = slice(i, i + 1)
        self.goal, self._number, self.kind = result, i, result.loss_name
        self.pop = Composition.under_link(result.pop[part], result.link)
        self.params, self.standard_errors = np.nan_to_num(result.params[part]), result.errors[part]
        self.at_bound, self.loss = np.zeros(self.params.shape, bool), result.loss[part]
        self.reason = ["the best of its starts"]

    @property
    def r2(self) -> np.ndarray:
        y, residuals = self.goal.y, self.goal.y - self.predict(self.goal.X)
        with np.errstate(all="ignore"):
            return 1 - np.array([residuals @ residuals]) / np.sum((y - y.mean()) ** 2)

    def predict(self, X: Any, i: int = 0) -> np.ndarray:
        return self.goal.predict(X, self._number)

    def plot(self, i: int = 0) -> Figure:
        return self.goal._plot([self._number])


def _number(what: str, i: Any, n: int) -> int:
    """A number from 0 to n - 1, which may be counted from the end."""
    number = whole_number(i)
    if number is None or not -n <= number < n:
        raise ArgumentError(f"there is no {what} {brief(i)} among {n:,}")
    return number % n
