"""exprkit: evaluate, differentiate and fit whole populations of mathematical expressions.

    >>> import exprkit as ek
    >>> pop = ek.parse(["p1 * x1^2 + exp(-x2)", "sqrt(x1) / x2"])
    >>> ek.Evaluator(pop, [[1.0, 2.0], [4.0, 0.5]]).evaluate(params=[[3.0], []]).shape
    (2, 2)

The way of the data, a folder a stage:
``operators -> text -> expressions -> programs -> backends -> evaluate -> fitting``; ``runtime`` keeps compiled
code, ``study`` and ``explorer`` stand on top.  Names are looked up when first used, so that importing
exprkit costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from exprkit.backends import backends  # at once: later the name would stand for the package of that name

if TYPE_CHECKING:
    from exprkit import data
    from exprkit.backends.precision import Precision
    from exprkit.evaluate.compile_ptx import compile_ptx
    from exprkit.evaluate.evaluator import Evaluator
    from exprkit.explorer.view import explore
    from exprkit.expressions import generate
    from exprkit.expressions.expression import Expression, parameters, variables
    from exprkit.expressions.parser import parse
    from exprkit.expressions.population import Population
    from exprkit.fitting.description_length import description_length
    from exprkit.fitting.fit import FitResult, fit
    from exprkit.operators import ops
    from exprkit.study import bench
    from exprkit.study.sweep import sweep

__version__ = "0.1.0"

__all__ = [
    "Evaluator",
    "Expression",
    "FitResult",
    "Population",
    "Precision",
    "backends",
    "bench",
    "compile_ptx",
    "data",
    "description_length",
    "explore",
    "fit",
    "generate",
    "ops",
    "parameters",
    "parse",
    "sweep",
    "variables",
]

_HOME = {
    "Evaluator": "evaluate.evaluator",
    "Expression": "expressions.expression",
    "FitResult": "fitting.fit",
    "Population": "expressions.population",
    "Precision": "backends.precision",
    "description_length": "fitting.description_length",
    "explore": "explorer.view",
    "fit": "fitting.fit",
    "compile_ptx": "evaluate.compile_ptx",
    "parameters": "expressions.expression",
    "parse": "expressions.parser",
    "sweep": "study.sweep",
    "variables": "expressions.expression",
}
_SUBMODULES = {"bench": "study.bench", "data": "data", "generate": "expressions.generate", "ops": "operators.ops"}


def __getattr__(name: str) -> Any:
    """The public names, then the table's functions on Expressions: ``exprkit.exp(x1)``."""
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{_SUBMODULES[name]}")
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    if not name.startswith("_"):
        from exprkit.operators import ops

        if name in ops.BY_SPELLING:
            return importlib.import_module(f"{__name__}.expressions.expression").function(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    from exprkit.operators import ops

    return sorted({*__all__, *ops.BY_SPELLING})
