"""The evaluator: a population on one data set, whatever backend runs it.

Checks and converts what the user hands over, then calls the backend's ``Engine``.
``parse -> Evaluator (lower, prepare) -> evaluate | loss``.

    >>> import exprkit as ek, numpy as np
    >>> ev = ek.Evaluator(ek.parse(["x1 + p1", "x1 * x2"]), np.ones((3, 2)))
    >>> ev.evaluate(params=[[2.0], []])
    array([[3., 3., 3.],
           [1., 1., 1.]], dtype=float32)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from exprkit import arrays
from exprkit.backends import load, status
from exprkit.errors import DataError
from exprkit.population import Population

LOSSES = {  # name: (what is summed over the points, how the sum and the sum of weights make the loss)
    "sse": ("square", lambda sums, weight: sums),
    "mse": ("square", lambda sums, weight: sums / weight),
    "rmse": ("square", lambda sums, weight: np.sqrt(sums / weight)),
    "mae": ("absolute", lambda sums, weight: sums / weight),
}
PRECISIONS = ("ieee", "fast")
DTYPES = ("float32", "float64")


class Evaluator:
    """A population made ready for one data set.

    Parameters
    ----------
    pop : Population
        The expressions, from ``parse``.
    X : array, (n_points, n_vars)
        The data, one column a variable: NumPy, pandas, nested lists, or any array with
        ``__dlpack__`` (PyTorch, JAX, ...).  Converted to ``dtype`` and prepared once.
    backend : str
        ``"auto"`` (the fastest that can run here) or a name from ``backends()``.
    precision : {"ieee", "fast"}
        ``"ieee"``: every operator to the tolerance of its row in ``ops``, special values
        included.  ``"fast"``: cheaper powers, with nan for a negative base unless the
        exponent is a constant whole number.
    dtype : {"float32", "float64"}
        Type of the data, the parameters, the arithmetic and the results.
    threads : int, optional
        CPU threads; by default all that this process may use.

    Raises
    ------
    DataError
        If ``X`` does not fit the population.
    BackendError
        If the backend can't run here; says why and what mends it.
    """

    def __init__(
        self,
        pop: Population,
        X: Any,
        backend: str = "auto",
        precision: str = "ieee",
        dtype: Any = "float32",
        threads: int | None = None,
    ) -> None:
        if not isinstance(pop, Population):
            raise DataError(f"the first argument must be a Population, not {type(pop).__name__}: use exprkit.parse(...)")
        self.pop = pop
        self.precision = _one_of("precision", precision, PRECISIONS)
        self.dtype = np.dtype(_one_of("dtype", arrays.dtype_name(dtype), DTYPES))
        self.threads = _check_threads(threads)
        data, self._give_back = arrays.data_matrix(X, pop, self.dtype)
        self.n_points = len(data)
        module = load(backend)
        self.backend = module.__name__.rpartition(".")[2]
        self._engine = module.Engine(pop, data, precision=precision, dtype=self.dtype, threads=self.threads)

    def evaluate(self, params: Any = None, out: np.ndarray | None = None) -> Any:
        """Every expression at every data point.

        Parameters
        ----------
        params : optional
            A list of vectors, one an expression, each as long as the expression has
            parameters; or an array (n_exprs, max_params), padded with anything; or
            (n_sets, n_exprs, max_params) for many parameter sets at once.
        out : ndarray, optional
            C-contiguous array of the evaluator's dtype and the result's shape.  Reuse it:
            fresh memory for a large result costs more than filling it.

        Returns
        -------
        array of dtype, (n_exprs, n_points) or (n_sets, n_exprs, n_points)
            ``out`` itself if given, else the kind of array that ``X`` was.  nan for
            expressions that are not ``pop.valid``.

        Raises
        ------
        DataError
            If ``params`` or ``out`` does not fit; nothing is computed then.
        """
        sets, lead = arrays.parameter_sets(params, self.pop, self.dtype)
        shape = (*lead, len(self.pop), self.n_points)
        result = arrays.result_array(out, shape, self.dtype)
        self._engine.evaluate(sets, result.reshape(len(sets), len(self.pop), self.n_points))
        return result if out is not None else self._give_back(result)

    def loss(self, params: Any, y: Any, kind: str = "sse", weights: Any = None) -> Any:
        """The error of every expression against ``y``, without making the matrix.

        Parameters
        ----------
        params
            As for ``evaluate``; None where no expression has parameters.
        y : array, (n_points,)
            The target.
        kind : {"sse", "mse", "mae", "rmse"}
            Sum or mean of squared errors, mean absolute error, root of the mean square.
        weights : array, (n_points,), optional
            A weight >= 0 for every point; means are weighted means.  A point of weight 0
            does not count, whatever an expression gives there.

        Returns
        -------
        float64 array, (n_exprs,) or (n_sets, n_exprs)
            nan where an expression is nan at a point that counts.

        Raises
        ------
        DataError
            If ``params``, ``y`` or ``weights`` does not fit.
        """
        summed, finish = LOSSES[_one_of("kind", kind, tuple(LOSSES))]
        sets, lead = arrays.parameter_sets(params, self.pop, self.dtype)
        target = arrays.point_vector("y", y, self.n_points, self.dtype)
        w = None if weights is None else arrays.point_vector("weights", weights, self.n_points, self.dtype)
        if w is not None and not np.all((w >= 0) & np.isfinite(w)):
            raise DataError("weights must be finite and not negative")
        sums = self._engine.loss_sums(sets, target, w, summed)
        total = self.n_points if w is None else float(np.sum(w, dtype=np.float64))
        with np.errstate(divide="ignore", invalid="ignore"):
            return self._give_back(finish(sums, np.float64(total)).reshape(*lead, len(self.pop)))

    def explain(self) -> str:
        """Which backend runs and on what, in one line."""
        return f"{self.backend}: {status(self.backend).detail}; precision {self.precision}, {self.dtype}"

    def __repr__(self) -> str:
        return (
            f"Evaluator({len(self.pop)} expressions x {self.n_points} points, backend={self.backend!r}, "
            f"precision={self.precision!r}, dtype={self.dtype.name!r})"
        )


def _one_of(what: str, value: Any, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise DataError(f"{what} must be one of {', '.join(map(repr, choices))}, not {value!r}")
    return value


def _check_threads(threads: Any) -> int | None:
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise DataError(f"threads must be a whole number of 1 or more, not {threads!r}")
    return threads
