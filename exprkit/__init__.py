"""exprkit: evaluate, differentiate and fit whole populations of mathematical expressions.

    >>> import exprkit as ek
    >>> pop = ek.parse(["p1 * x1^2 + exp(-x2)", "sqrt(x1) / x2"])
    >>> ek.Evaluator(pop, [[1.0, 2.0], [4.0, 0.5]]).evaluate(params=[[3.0], []]).shape
    (2, 2)

The way of the data, one module a stage:
``text.parser -> population -> lower -> backends`` behind ``Evaluator``; ``ops`` is the table
of operators that all of them read.  Names are looked up when first used, so that importing
exprkit costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from exprkit.backends import backends  # at once: later the name would stand for the package of that name

if TYPE_CHECKING:
    from exprkit import data, generate, ops
    from exprkit.description import description_length
    from exprkit.evaluate import Evaluator
    from exprkit.explorer.view import explore
    from exprkit.expression import Expression, parameters, variables
    from exprkit.fits import FitResult, fit
    from exprkit.population import Population
    from exprkit.precision import Precision
    from exprkit.study import bench
    from exprkit.study.sweep import sweep
    from exprkit.text.parser import parse
    from exprkit.transpiler.compiled import compile_ptx

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
    "Evaluator": "evaluate",
    "Expression": "expression",
    "FitResult": "fits",
    "Population": "population",
    "Precision": "precision",
    "description_length": "description",
    "explore": "explorer.view",
    "fit": "fits",
    "compile_ptx": "transpiler.compiled",
    "parameters": "expression",
    "parse": "text.parser",
    "sweep": "study.sweep",
    "variables": "expression",
}
_SUBMODULES = {"bench": "study.bench", "data": "data", "generate": "generate", "ops": "ops"}


def __getattr__(name: str) -> Any:
    """The public names, then the table's functions on Expressions: ``exprkit.exp(x1)``."""
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{_SUBMODULES[name]}")
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    if not name.startswith("_"):
        from exprkit import ops

        if name in ops.BY_SPELLING:
            return importlib.import_module(f"{__name__}.expression").function(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    from exprkit import ops

    return sorted({*__all__, *ops.BY_SPELLING})
