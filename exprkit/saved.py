"""``load`` and ``read_json`` read what exprkit writes: populations, fits, exhaustive searches or fitted estimators."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from exprkit.expressions.population import Population
from exprkit.fitting import fit_file
from exprkit.fitting.fit_result import FitResult
from exprkit.runtime import files
from exprkit.search.search_result import SearchResult

if TYPE_CHECKING:
    from exprkit.classification.classifier import SymbolicClassifier
    from exprkit.dynamics.regressor import DynamicsRegressor
    from exprkit.regression.estimator.regressor import SymbolicRegressor
    from exprkit.targets.regressor import MultiTargetRegressor

    Estimator: TypeAlias = SymbolicRegressor | SymbolicClassifier | MultiTargetRegressor | DynamicsRegressor

# Of estimators that are made of searches: they need scikit-learn, and are imported when a file holds one.
MODULES = {
    "SymbolicClassifier": "exprkit.classification.classifier",
    "MultiTargetRegressor": "exprkit.targets.regressor",
    "DynamicsRegressor": "exprkit.dynamics.regressor",
}


def load(path: str | os.PathLike[str]) -> Population | FitResult | SearchResult | Estimator:
    """Read a file written by ``save`` of a population, a fit, an exhaustive search or a fitted estimator.

    Parameters
    ----------
    path : str or path
        An npz file; no pickles are read.

    Returns
    -------
    Population, FitResult, SearchResult or estimator
        The same kind of object that was saved.

    Raises
    ------
    NoSuchFileError
        If there is no such file.
    DamagedFileError
        If the file is damaged or is not one of exprkit's.
    FileError
        If it cannot be read.
    MissingError
        If it holds an estimator and scikit-learn is not installed.

    Examples
    --------
    >>> import exprkit as ek, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "population.npz"
    >>> ek.parse(["x1 + 1"]).save(path)
    >>> ek.load(path).texts()
    ['x1 + 1']
    """
    with files.opened(path, "file of exprkit's") as arrays:
        if "model.settings" in arrays:
            from exprkit.regression.estimator.regressor import SymbolicRegressor

            return SymbolicRegressor.restored(arrays)
        if "estimator.class" in arrays:
            name = str(arrays["estimator.class"])
            restored: Estimator = getattr(import_module(MODULES[name]), name).restored(arrays)
            return restored
        for part, Result in (("fit", FitResult), ("found", SearchResult)):
            if f"{part}.params" in arrays:
                return Result.restored(arrays)
        return Population.from_arrays(arrays)


def read_json(path: str | os.PathLike[str]) -> FitResult:
    """Read what ``FitResult.to_json`` wrote: parameters, errors and covariances, but no data.

    Parameters
    ----------
    path : str or path
        A file; or the text itself.

    Returns
    -------
    FitResult
        It predicts, and has standard errors; what needs the data of the fit is refused.

    Raises
    ------
    NoSuchFileError, DamagedFileError, FileError
        As ``load``.

    Examples
    --------
    >>> import exprkit as ek
    >>> text = ek.fit("p1 * x1", [[1.0], [2.0]], [2.0, 4.0]).to_json()
    >>> ek.read_json(text).predict([[5.0]]).round(3)
    array([[10.]])
    """
    return fit_file.from_json(path, FitResult)
