"""A pool of those functions that the rules allow.

In: a few points, operators, ``FormulaRules``.  Out: a ``Pool`` with a state of every function.

    >>> import numpy as np
    >>> from exprkit.expressions.arguments import operators_of
    >>> from exprkit.regression.rules.admission import FormulaRules
    >>> from exprkit.regression.pairs.ruled_pool import RuledPool
    >>> points = np.random.default_rng(0).uniform(1, 2, (16, 3))
    >>> rules = FormulaRules(3, units=[(1, 0), (1, 0), (0, 1)], target=(1, 0))
    >>> pool = RuledPool(rules, points, operators_of(["+", "*"]), constants=[])
    >>> pool.grow(3, most=100)
    >>> [str(pool.expression(i)) for i in range(3, len(pool))]
    ['x1 + x1', 'x1 + x2', 'x2 + x2', 'x3 + x3', 'x1 * x1', 'x1 * x2', 'x1 * x3', 'x2 * x2', 'x2 * x3', 'x3 * x3']

Combinations are looked at before they are evaluated: a state costs less than values at all points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from exprkit.operators import defined
from exprkit.regression.pairs.pool import LEAF, Pool
from exprkit.regression.rules.admission import DIMENSION, FormulaRules


class RuledPool(Pool):
    """Distinct functions that the rules allow."""

    def __init__(self, rules: FormulaRules, points: np.ndarray, *arguments: Any, **settings: Any) -> None:
        self._rules, self._states = rules, np.empty((0, rules.width))
        super().__init__(points, *arguments, **settings)

    @property
    def states(self) -> np.ndarray:
        """The states of all functions, float64 (n_functions, rules.width)."""
        return self._states[: len(self)]

    @property
    def dimensions(self) -> np.ndarray:
        """The dimensions of all functions, (n_functions,)."""
        return self.states[:, DIMENSION]

    def _other(self, rows: Sequence[defined.Written]) -> Pool:
        return RuledPool(self._rules, self._points, rows, (), anywhere=False)

    def _allowed(self, code: int, operands: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        fits, _ = self._rules.combined(code, self._states, operands)
        return tuple(numbers[fits] for numbers in operands)

    def _keep(self, values: np.ndarray, origins: Any, most: int) -> np.ndarray:
        n_before = self._n
        numbers = super()._keep(values, origins, most)
        new = slice(n_before, self._n)
        if self._n > len(self._states):
            states = np.empty((len(self._arrays.values), self._rules.width))
            states[:n_before] = self._states[:n_before]
            self._states = states
        if origins.code == LEAF:
            self._states[new] = self._rules.leaves(self.n_vars, len(self._constants))[self.left[new]]
        else:
            arrays = self._arrays
            operands = [part[new] for part in (arrays.left, arrays.right, arrays.third)][: len(origins.operands)]
            _, self._states[new] = self._rules.combined(origins.code, self._states, operands)
        return numbers
