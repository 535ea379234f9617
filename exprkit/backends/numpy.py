"""The definition: what every expression means, in float64, by plain NumPy.

Slow and plain on purpose; every other backend is compared with this one.  Data,
constants and parameters are first rounded to the evaluator's dtype, as every backend
sees them; then each token is one NumPy call in float64, and the result is rounded once.

    >>> import exprkit as ek
    >>> ek.Evaluator(ek.parse(["x1 ^ 2"]), [[3.0]], backend="numpy").evaluate()
    array([[9.]], dtype=float32)
"""

from __future__ import annotations

import numpy as np

from exprkit import ops
from exprkit.population import CONSTANT, PARAMETER, VARIABLE, Population


def unavailable() -> str | None:
    """None: NumPy is always there."""
    return None


def describe() -> str:
    """What this backend runs on."""
    return f"the definition: NumPy {np.__version__}, float64, one thread"


class Engine:
    """Evaluates token by token (the protocol is in ``backends/__init__.py``)."""

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
        """Sum of weighted squared or absolute errors, float64 (n_sets, n_exprs)."""
        sums = np.empty(params.shape[:2])
        w = np.ones(self.n_points) if weights is None else weights.astype(np.float64)
        with np.errstate(all="ignore"):
            for place in np.ndindex(sums.shape):
                error = self._expression(place[1], params[place]) - y.astype(np.float64)
                size = error * error if kind == "square" else np.abs(error)
                sums[place] = np.sum(np.where(w == 0, 0.0, w * size))
        sums[:, ~self.pop.valid] = np.nan
        return sums

    def _expression(self, i: int, params: np.ndarray) -> np.ndarray:
        """Expression ``i`` at every point, (n_points,) float64."""
        pop, stack = self.pop, []
        for t in range(pop.offsets[i], pop.offsets[i + 1]):
            kind, value = pop.kinds[t], int(pop.values[t])
            if kind == CONSTANT:
                stack.append(np.full(self.n_points, self.constants[t]))
            elif kind == VARIABLE:
                stack.append(self.columns[value])
            elif kind == PARAMETER:
                stack.append(np.full(self.n_points, params[value], np.float64))
            else:
                row = ops.BY_CODE[value]
                operands = stack[-row.arity :]
                del stack[-row.arity :]
                stack.append(self._meaning(row, t)(*operands))
        return stack.pop() if stack else np.full(self.n_points, np.nan)

    def _meaning(self, row: ops.Operator, t: int) -> ops.Callable:
        """The function of the operator at token ``t``: a constant whole operand b is never fast."""
        whole = self.pop.kinds[t - 1] == CONSTANT and float(self.constants[t - 1]).is_integer()
        return row.fast if self.fast and row.fast is not None and not whole else row.numpy
