"""Reference implementation of evaluation: the value of every expression, in plain NumPy and float64.

Slow and plain on purpose; every other backend is compared with this one.  Data,
constants and parameters are first rounded to the evaluator's dtype, as every backend
sees them; then each token is one NumPy call in float64, and the result is rounded once.

    >>> import exprkit as ek
    >>> ek.Evaluator(ek.parse(["x1 ^ 2"]), [[3.0]], backend="numpy").evaluate()
    array([[9.]], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from exprkit.backends import contract
from exprkit.backends.objective import Fitted, Options
from exprkit.backends.reference.derivatives import value_and_derivatives
from exprkit.backends.reference.levenberg_marquardt import fit_all
from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.text.tokens import CONSTANT

Function = Callable[[np.ndarray], np.ndarray]

# of an error, by kind of sum, and its derivative
SIZES: dict[str, Function] = {"square": np.square, "absolute": np.abs, "sum": np.positive}
SLOPES: dict[str, Function] = {"square": lambda r: 2 * r, "absolute": np.sign, "sum": np.ones_like}


def unavailable() -> str | None:
    """None: NumPy is always there."""
    return None


def describe() -> str:
    """What this backend runs on."""
    return f"the definition: NumPy {np.__version__}, float64, one thread"


class Engine(contract.Differentiable):
    """Evaluates token by token."""

    def __init__(
        self, pop: Population, X: np.ndarray, *, precision: str, dtype: np.dtype, threads: int | None = None
    ) -> None:
        self.pop = pop
        self.n_points = len(X)
        self.columns = X.T.astype(np.float64)
        self.fast = precision == "fast"
        with np.errstate(all="ignore"):
            self.constants = pop.values.view(np.float64).astype(dtype).astype(np.float64)

    def evaluate(self, params: np.ndarray, out: np.ndarray) -> None:
        """Write every element of ``out``, (n_sets, n_exprs, n_points)."""
        with np.errstate(all="ignore"):
            for place in np.ndindex(out.shape[:2]):
                out[place] = self._expression(place[1], params[place])

    def loss_sums(self, params: np.ndarray, y: np.ndarray, weights: np.ndarray | None, kind: str) -> np.ndarray:
        """Sum of weighted squared, absolute or plain errors, float64 (n_sets, n_exprs)."""
        sums = np.empty(params.shape[:2])
        w = np.ones(self.n_points) if weights is None else weights.astype(np.float64)
        with np.errstate(all="ignore"):
            for place in np.ndindex(sums.shape):
                error = self._expression(place[1], params[place]) - y.astype(np.float64)
                size = SIZES[kind](error)
                sums[place] = np.sum(np.where(w == 0, 0.0, w * size))
        sums[:, ~self.pop.valid] = np.nan
        return sums

    def jacobian(self, params: np.ndarray, out: np.ndarray) -> None:
        """Write the derivatives by the parameters into ``out``, (n_sets, n_exprs, n_points, max_params)."""
        out[...] = 0
        with np.errstate(all="ignore"):
            for place in np.ndindex(out.shape[:2]):
                out[place][:, : self.pop.n_params[place[1]]] = self._derivatives(place[1], params[place])[1]
        out[:, ~self.pop.valid] = np.nan

    def normal_equations(
        self, params: np.ndarray, y: np.ndarray, weights: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """J'WJ, J'Wr and the sum of w r^2 with r = f - y, float64."""
        n_sets, n_exprs, width = params.shape
        jtj, jtr, sse = np.zeros((n_sets, n_exprs, width, width)), np.zeros(params.shape), np.zeros((n_sets, n_exprs))
        w = np.ones(self.n_points) if weights is None else weights.astype(np.float64)
        with np.errstate(all="ignore"):
            for place in np.ndindex(n_sets, n_exprs):
                f, J = self._derivatives(place[1], params[place])
                n, has_weight = J.shape[1], w > 0
                J, r, v = J[has_weight], f[has_weight] - y[has_weight].astype(np.float64), w[has_weight]
                jtj[place][:n, :n], jtr[place][:n], sse[place] = (J.T * v) @ J, J.T @ (v * r), v @ (r * r)
        for result in (jtj, jtr, sse):
            result[:, ~self.pop.valid] = np.nan
        return jtj, jtr, sse

    def loss_and_grad(
        self, params: np.ndarray, y: np.ndarray, weights: np.ndarray | None, kind: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """The sums of ``loss_sums`` and their gradients, (n_sets, n_exprs, max_params)."""
        sums, gradient = np.zeros(params.shape[:2]), np.zeros(params.shape)
        w = np.ones(self.n_points) if weights is None else weights.astype(np.float64)
        with np.errstate(all="ignore"):
            for place in np.ndindex(sums.shape):
                f, J = self._derivatives(place[1], params[place])
                has_weight = w > 0
                r = f[has_weight] - y[has_weight].astype(np.float64)
                size, slope = SIZES[kind](r), SLOPES[kind](r)
                sums[place], gradient[place][: J.shape[1]] = (
                    w[has_weight] @ size,
                    (w[has_weight] * slope) @ J[has_weight],
                )
        sums[:, ~self.pop.valid], gradient[:, ~self.pop.valid] = np.nan, np.nan
        return sums, gradient

    def fit(self, starts: np.ndarray, y: np.ndarray, weights: np.ndarray | None, options: Options) -> Fitted:
        """Levenberg-Marquardt for every expression, the best of its starts (``levenberg_marquardt``)."""
        w = np.ones(self.n_points) if weights is None else weights.astype(np.float64)
        return fit_all(self.pop, self._derivatives, starts, y.astype(np.float64), w, options)

    def _derivatives(self, i: int, params: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Expression ``i``, (n_points,), and its derivatives, (n_points, n_params)."""
        return value_and_derivatives(self.pop, i, self.columns, self.constants, params, self._meaning)

    def _expression(self, i: int, params: np.ndarray) -> np.ndarray:
        """Expression ``i`` at every point, (n_points,) float64."""
        columns, constants = self.columns, self.constants
        return value_and_derivatives(self.pop, i, columns, constants, params, self._meaning, n_params=0)[0]

    def _meaning(self, row: ops.Operator, t: int) -> ops.Callable:
        """The function of the operator at token ``t``: a constant whole operand b is never fast."""
        whole = self.pop.kinds[t - 1] == CONSTANT and float(self.constants[t - 1]).is_integer()
        return row.numpy_fast if self.fast and row.numpy_fast is not None and not whole else row.numpy


BACKEND = contract.Backend(unavailable, describe, Engine)
