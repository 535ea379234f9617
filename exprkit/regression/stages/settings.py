"""The settings of a search.

In: a user's arguments, checked.  Out: what the stages of ``discovery`` go by.

    >>> from exprkit.regression.stages.settings import SearchSettings
    >>> [row.name for row in SearchSettings().operators][:5]
    ['add', 'sub', 'mul', 'div', 'sqr']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from exprkit.expressions.expression import Expression
from exprkit.operators import defined, ops
from exprkit.regression.rules.admission import FormulaRules


@dataclass(frozen=True)
class SearchSettings:
    """What a search goes by; ``SymbolicRegressor`` explains what a user may say of it."""

    operators: tuple[defined.Written, ...] = field(default_factory=lambda: default_operators())
    niterations: int = 100
    population_size: int = 1000
    maxsize: int = 30
    loss: str = "squares"
    pool_size: int | None = None  # of functions of the largest pool; by default those of problem/effort.py
    crossover_probability: float = 0.4  # share of children that have two parents
    tournament_size: int = 10  # trees of which the best becomes a parent
    optimizer_iterations: int = 8  # Levenberg-Marquardt steps of a child at most; hopeless ones end earlier
    early_stop: Callable[[float, int], bool] = lambda loss, size: False
    guesses: Sequence[Expression] = ()
    seed: int = 0
    backend: str = "cpu"
    threads: int | None = None
    rules: FormulaRules | None = None
    outermost: tuple[defined.Written, ...] = ()  # operators that may stand around a whole formula only
    beside: tuple[int, ...] | None = None  # codes of others that formulas may be written with; None: of any


def default_operators() -> tuple[defined.Written, ...]:
    """Those that a search begins with, unless others are asked for."""
    return tuple(ops.BY_NAME[name] for name in ops.SETS["search"])
