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
from exprkit.errors import ArgumentError, DataError
from exprkit.population import Population
from exprkit.precision import Precision
from exprkit.precision import precision as precision_of

LOSSES = {  # name: (what is summed over the points, how the sum and the sum of weights make the loss)
    "sse": ("square", lambda sums, weight: sums),
    "mse": ("square", lambda sums, weight: sums / weight),
    "rmse": ("square", lambda sums, weight: np.sqrt(sums / weight)),
    "mae": ("absolute", lambda sums, weight: sums / weight),
}
DTYPES = ("float32", "float64")
MOST_THREADS = 4096


class Evaluator:
    """A population made ready for one data set.

    Parameters
    ----------
    pop : Population
        The expressions, from ``parse``.
    X : array, (n_points, n_vars)
        The data, one column a variable: NumPy, pandas, nested lists, or any array with
        ``__dlpack__`` (PyTorch, JAX, ...).  Converted to ``dtype`` and prepared once; the
        GPU backends take arrays that lie on the device as they are.
    backend : str
        ``"auto"`` (the fastest that can run here) or a name from ``backends()``.
    precision : {"ieee", "fast"} or Precision
        ``"ieee"``: every operator to the tolerance of its row in ``ops``, special values
        included.  ``"fast"``: cheaper powers, with nan for a negative base unless the
        exponent is a constant whole number; on a GPU, approximate functions as well.  A
        ``Precision`` chooses each setting of a GPU's compiler.
    dtype : {"float32", "float64"}
        Type of the data, the parameters, the arithmetic and the results.
    threads : int, optional
        CPU threads; by default all that this process may use.
    **options
        What the backend offers besides: see its ``Engine`` (``exprkit.backends.cuda`` has
        ``block_size``, ``points_per_thread``, ``reduction`` and ``dispatch``).

    Raises
    ------
    DataError
        If ``X`` does not fit the population.
    BackendError
        If the backend can't run here; says why and what mends it.
    ArgumentError
        If the backend has no such option.
    """

    def __init__(
        self,
        pop: Population,
        X: Any,
        backend: str = "auto",
        precision: str | Precision = "ieee",
        dtype: Any = "float32",
        threads: int | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(pop, Population):
            kind = type(pop).__name__
            raise DataError(f"the first argument must be a Population, not {kind}: use exprkit.parse(...)")
        self.pop = pop
        settings = precision_of(precision)
        self.precision = settings.operators
        self.dtype = np.dtype(_one_of("dtype", arrays.dtype_name(dtype), DTYPES))
        self.threads = _check_threads(threads)
        module = load(backend)
        self.backend = module.__name__.rpartition(".")[2]
        _check_options(self.backend, options, getattr(module, "OPTIONS", ()))
        self._adopt = getattr(module, "adopt", arrays.no_device)
        data, self._give_back = arrays.data_matrix(X, pop, self.dtype, self._adopt)
        self._fresh = None if isinstance(data, np.ndarray) else module.empty
        self.n_points = len(data)
        self._engine = module.Engine(
            pop, data, precision=_for_backend(settings, module), dtype=self.dtype, threads=self.threads, **options
        )

    def evaluate(self, params: Any = None, out: Any = None, count_nonfinite: bool = False) -> Any:
        """Every expression at every data point.

        Parameters
        ----------
        params : optional
            A list of vectors, one an expression, each as long as the expression has
            parameters; or an array (n_exprs, max_params), padded with anything; or
            (n_sets, n_exprs, max_params) for many parameter sets at once.
        out : array, optional
            C-contiguous array of the evaluator's dtype and the result's shape, in the host's
            memory or on the backend's device.  Reuse it: fresh memory for a large result
            costs more than filling it.
        count_nonfinite : bool
            Also give how many nan and how many inf each expression made.

        Returns
        -------
        array of dtype, (n_exprs, n_points) or (n_sets, n_exprs, n_points)
            ``out`` itself if given, else the kind of array that ``X`` was.  nan for
            expressions that are not ``pop.valid``.
        int64 array, (n_exprs, 2) or (n_sets, n_exprs, 2)
            Only with ``count_nonfinite``, behind the first: how many nan and inf.

        Raises
        ------
        DataError
            If ``params`` or ``out`` does not fit; nothing is computed then.
        """
        sets, lead = arrays.parameter_sets(params, self.pop, self.dtype, self._adopt)
        shape = (*lead, len(self.pop), self.n_points)
        array = arrays.result_array(out, shape, self.dtype, self._adopt, self._fresh)
        values = array.reshape(len(sets), len(self.pop), self.n_points)
        result = out if out is not None else self._give_back(array)
        if not count_nonfinite:
            self._engine.evaluate(sets, values)
            return result
        counts = np.zeros((len(sets), len(self.pop), 2), np.int64)
        if getattr(self._engine, "counts", False):
            self._engine.evaluate(sets, values, counts)
        else:
            self._engine.evaluate(sets, values)
            counts[..., 0], counts[..., 1] = np.isnan(values).sum(-1), np.isinf(values).sum(-1)
        return result, counts.reshape(*lead, len(self.pop), 2)

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
        sets, lead = arrays.parameter_sets(params, self.pop, self.dtype, self._adopt)
        target = arrays.point_vector("y", y, self.n_points, self.dtype, self._adopt)
        w = None if weights is None else arrays.point_vector("weights", weights, self.n_points, self.dtype, self._adopt)
        if w is not None and not np.all((w >= 0) & np.isfinite(w)):
            raise DataError("weights must be finite and not negative")
        sums = self._engine.loss_sums(sets, target, w, summed)
        total = self.n_points if w is None else float(np.sum(w, dtype=np.float64))
        with np.errstate(divide="ignore", invalid="ignore"):
            return self._give_back(finish(sums, np.float64(total)).reshape(*lead, len(self.pop)))

    def explain(self) -> str:
        """Which backend runs and on what, in one line."""
        return f"{self.backend}: {status(self.backend).detail}; precision {self.precision}, {self.dtype}"

    def __reduce__(self) -> Any:
        raise TypeError("an Evaluator stays in its process: hand the Population and the data over, and make it there")

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
    whole = isinstance(threads, (int, np.integer)) and not isinstance(threads, bool)
    if threads is not None and not (whole and 1 <= threads <= MOST_THREADS):
        raise DataError(f"threads must be a whole number from 1 to {MOST_THREADS:,}, not {threads!r}")
    return None if threads is None else int(threads)


def _check_options(backend: str, options: dict[str, Any], offered: tuple[str, ...]) -> None:
    for name in options:
        if name not in offered:
            what = f"its options are {', '.join(offered)}" if offered else "it has none"
            raise ArgumentError(f"backend {backend!r} has no option {name!r}: {what}")


def _for_backend(settings: Precision, module: Any) -> Any:
    """The settings for a backend that compiles for a GPU, the name for others."""
    if getattr(module, "TAKES_SETTINGS", False):
        return settings
    if settings != Precision(settings.operators):
        raise ArgumentError(f"{module.__name__.rpartition('.')[2]!r} takes precision by name only: 'ieee' or 'fast'")
    return settings.operators
