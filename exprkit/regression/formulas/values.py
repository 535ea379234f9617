"""Values of formulas without parameters at rows of data."""

from __future__ import annotations

import numpy as np

from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.regression.problem.effort import WORK
from exprkit.runtime.budget import spend


def values_of(expressions: list[Expression], X: np.ndarray) -> np.ndarray:
    """Values of formulas without parameters, float64 (n_exprs, n_rows)."""
    pop = Population.of(expressions)
    spend(WORK.values + WORK.value * len(pop.kinds) * len(X))
    with np.errstate(all="ignore"):
        values: np.ndarray = Evaluator(pop, X, "cpu", dtype="float64").evaluate()
    return values
