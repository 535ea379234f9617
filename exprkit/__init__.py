"""exprkit: evaluate, differentiate and fit large populations of small mathematical expressions, and search for
formulas.

    >>> import exprkit as ek
    >>> pop = ek.parse(["p1 * x1^2 + exp(-x2)", "sqrt(x1) / x2"])
    >>> ek.Evaluator(pop, [[1.0, 2.0], [4.0, 0.5]]).evaluate(params=[[3.0], []]).shape
    (2, 2)

The pipeline has one folder per stage:
``operators -> text -> expressions -> programs -> backends -> evaluate -> fitting``, then the searches ``search`` and
``regression``; ``runtime`` supports compiled code, ``study`` and ``explorer`` use all of it.  Names are imported on
first use, so that ``import exprkit`` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from exprkit import expressions
from exprkit.backends import backends as backends  # at once: later the name would stand for the package
from exprkit.version import __version__ as __version__

if TYPE_CHECKING:  # the same names for type checkers, which look nothing up
    from exprkit import data as data
    from exprkit.backends.device_programs.population import DevicePopulation as DevicePopulation
    from exprkit.backends.precision import Precision as Precision
    from exprkit.classification.classifier import SymbolicClassifier as SymbolicClassifier
    from exprkit.dynamics.regressor import DynamicsRegressor as DynamicsRegressor
    from exprkit.evaluate.case_discussion import cases as cases
    from exprkit.evaluate.compiled import Compiled as Compiled
    from exprkit.evaluate.compiled import compile_bytecode as compile_bytecode
    from exprkit.evaluate.compiled import compile_ptx as compile_ptx
    from exprkit.evaluate.evaluator import Evaluator as Evaluator
    from exprkit.evaluate.ranges import range_of as range_of
    from exprkit.explorer.explore import explore as explore
    from exprkit.expressions import generate as generate
    from exprkit.expressions.expression import Expression as Expression
    from exprkit.expressions.expression import operator as operator
    from exprkit.expressions.expression import parameters as parameters
    from exprkit.expressions.expression import variables as variables
    from exprkit.expressions.parser import parse as parse
    from exprkit.expressions.population import Population as Population
    from exprkit.fitting.description_length import description_length as description_length
    from exprkit.fitting.fit import fit as fit
    from exprkit.fitting.fit_many import fit_many as fit_many
    from exprkit.fitting.fit_problem import FitProblem as FitProblem
    from exprkit.fitting.fit_result import FitResult as FitResult
    from exprkit.fitting.fitted_expression import FittedExpression as FittedExpression
    from exprkit.fitting.models import library as models  # noqa: F401 - the name is public
    from exprkit.operators import ops as ops
    from exprkit.regression.estimator.expression_regressor import ExpressionRegressor as ExpressionRegressor
    from exprkit.regression.estimator.reduction import Reduction as Reduction
    from exprkit.regression.estimator.reduction import reduce as reduce
    from exprkit.regression.estimator.regressor import SymbolicRegressor as SymbolicRegressor
    from exprkit.regression.generations.breeding import breed as breed
    from exprkit.saved import load as load
    from exprkit.saved import read_json as read_json
    from exprkit.search.exhaustive_search import exhaustive_search as exhaustive_search
    from exprkit.search.search_result import SearchResult as SearchResult
    from exprkit.study import bench as bench
    from exprkit.study.sweep import sweep as sweep
    from exprkit.targets.regressor import MultiTargetRegressor as MultiTargetRegressor

_NAMES = {  # by module
    "backends.device_programs.population": "DevicePopulation",
    "backends.precision": "Precision",
    "classification.classifier": "SymbolicClassifier",
    "targets.regressor": "MultiTargetRegressor",
    "dynamics.regressor": "DynamicsRegressor",
    "evaluate.case_discussion": "cases",
    "evaluate.compiled": "Compiled compile_bytecode compile_ptx",
    "evaluate.evaluator": "Evaluator",
    "evaluate.ranges": "range_of",
    "explorer.explore": "explore",
    "expressions.expression": "Expression operator parameters variables",
    "expressions.parser": "parse",
    "expressions.population": "Population",
    "fitting.description_length": "description_length",
    "fitting.fit": "fit",
    "fitting.fit_many": "fit_many",
    "fitting.fit_problem": "FitProblem",
    "fitting.fit_result": "FitResult",
    "fitting.fitted_expression": "FittedExpression",
    "regression.estimator.expression_regressor": "ExpressionRegressor",
    "regression.estimator.reduction": "Reduction reduce",
    "regression.estimator.regressor": "SymbolicRegressor",
    "regression.generations.breeding": "breed",
    "saved": "load read_json",
    "search.exhaustive_search": "exhaustive_search",
    "search.search_result": "SearchResult",
    "study.sweep": "sweep",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}
_SUBMODULES = {"bench": "study.bench", "data": "data", "generate": "expressions.generate",
               "models": "fitting.models.library", "ops": "operators.ops"}  # fmt: skip
__all__ = sorted(["backends", *_HOME, *_SUBMODULES])


def __getattr__(name: str) -> Any:
    """The public names, then the table's functions on Expressions: ``exprkit.exp(x1)``."""
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{_SUBMODULES[name]}")
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    if not name.startswith("_"):
        from exprkit.operators import defined

        if defined.spelled(name):
            return importlib.import_module(f"{__name__}.expressions.expression").function(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


expressions.evaluator = lambda *given, **named: __getattr__("Evaluator")(*given, **named)


def __dir__() -> list[str]:
    from exprkit.operators import defined

    return sorted({*__all__, *defined.spellings()})


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext exprkit``: Tab completes operators and columns inside strings."""
    importlib.import_module(f"{__name__}.explorer.completion").add(shell)
