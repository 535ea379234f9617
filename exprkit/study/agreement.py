"""Comparison of a backend's results with the reference, within the bounds of rounding.

Beside the pipeline: ``bench`` asks before it times anything.

    >>> import exprkit as ek, numpy as np
    >>> from exprkit.study.agreement import disagreement
    >>> pop, X = ek.parse(["x1 * x2"]), np.ones((3, 2))
    >>> disagreement(pop, X, None, ek.Evaluator(pop, X).evaluate(), dtype="float32")
    array([0.])

How far two correct results may lie apart depends on the expression: ``x2 - abs(x2) ^ x2``
near x2 = 1 keeps no correct digit.  So the definition is evaluated several times more, the
result of every operator changed at random by as much as its row tolerates (Monte Carlo
arithmetic; Parker, 1997), and eight times what those runs spread over is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from exprkit.backends.reference import engine as definition
from exprkit.expressions.population import Population
from exprkit.operators import ops

RUNS = 6
SLACK = 8.0  # times the spread of so few runs


def disagreement(
    pop: Population,
    X: np.ndarray,
    params: np.ndarray | None,
    result: np.ndarray,
    *,
    dtype: Any,
    precision: str = "ieee",
    approximate: bool = False,
) -> np.ndarray:
    """The share of each expression's results that lies further from the definition than rounding explains.

    ``result``, (n_exprs, n_points), is what a backend made of the expressions, the data (n_points, n_vars) and the
    parameters (n_exprs, max_params) in this type and precision; ``approximate``: perhaps by a GPU's approximate
    functions (``cuda.fast_ulp`` of their rows).  Values are left out where the definition, or anything on the way to
    it, leaves the range of ``dtype``'s normal numbers.  Gives float64 (n_exprs,); 0 where nothing can be compared.
    """
    data = X.astype(dtype)
    parameters = np.zeros((len(pop), 0)) if params is None else np.asarray(params).astype(dtype)
    exact, compared = _Watched(pop, data, precision, dtype, None, approximate).run(parameters)
    spread = np.zeros_like(exact)
    random = np.random.Generator(np.random.PCG64(0))
    with np.errstate(all="ignore"):
        for _ in range(RUNS):
            changed, in_range = _Watched(pop, data, precision, dtype, random, approximate).run(parameters)
            compared &= in_range & (np.isfinite(changed) == np.isfinite(exact))
            spread = np.fmax(spread, np.abs(changed - exact))
        allowed = SLACK * spread + 2 * np.finfo(dtype).eps * np.abs(exact)
        agrees = np.abs(result - exact) <= allowed
    agrees |= (result == exact) | (np.isnan(result) & np.isnan(exact))
    return (compared & ~agrees).sum(axis=1) / np.maximum(compared.sum(axis=1), 1)


class _Watched(definition.Engine):
    """The definition, which notes where it leaves the range of a type and can change its results at random."""

    def __init__(
        self,
        pop: Population,
        X: np.ndarray,
        precision: str,
        dtype: Any,
        random: np.random.Generator | None,
        approximate: bool,
    ) -> None:
        super().__init__(pop, X, precision=precision, dtype=np.dtype(dtype))
        self.limits = np.finfo(dtype)
        self.tolerances = "fast_ulp" if precision == "fast" else "ulp"
        self.random, self.approximate = random, approximate and np.dtype(dtype).itemsize == 4
        self.in_range = np.ones((len(pop), self.n_points), bool)
        self.current = 0

    def run(self, params: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Results in float64, and where they and all that led to them are in range; both (n_exprs, n_points)."""
        out = np.empty((1, len(self.pop), self.n_points))
        self.evaluate(params[None], out)
        return out[0], self.in_range

    def _expression(self, i: int, params: np.ndarray) -> np.ndarray:
        self.current = i
        return super()._expression(i, params)

    def _meaning(self, row: ops.Operator, t: int) -> Callable[..., Any]:
        function = super()._meaning(row, t)
        return lambda *operands: self._watch(row, function(*operands))

    def _watch(self, row: ops.Operator, value: np.ndarray) -> np.ndarray:
        size = np.abs(value)
        out = np.isfinite(size) & ((size > self.limits.max) | ((size < self.limits.tiny) & (size > 0)))
        self.in_range[self.current] &= ~out
        if self.random is None:
            return value
        ulp = (getattr(row, self.tolerances) or row.ulp)[self.limits.dtype.itemsize == 8]
        error = ulp * value
        if self.approximate and row.cuda.fast_ulp is not None:
            error = np.maximum(ulp * size, row.cuda.fast_ulp * np.maximum(size, 1))
        change = self.limits.eps * error * self.random.uniform(-1, 1, value.shape)
        return np.where(np.isfinite(value), value + change, value)  # inf stays inf, not inf - inf
