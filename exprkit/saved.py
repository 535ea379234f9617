"""Files of exprkit's, whatever they hold: populations, fits, exhaustive searches, fitted regressors.

>>> import exprkit as ek, tempfile, pathlib
>>> path = pathlib.Path(tempfile.mkdtemp()) / "population.npz"
>>> ek.parse(["x1 + 1"]).save(path)
>>> ek.load(path).texts()
['x1 + 1']
"""

from __future__ import annotations

import os
import zipfile
from typing import TYPE_CHECKING

from exprkit.fitting import fit_result
from exprkit.search.search_result import SearchResult

if TYPE_CHECKING:
    from exprkit.expressions.population import Population
    from exprkit.fitting.fit_result import FitResult
    from exprkit.regression.estimator.regressor import SymbolicRegressor


def load(path: str | os.PathLike[str]) -> Population | FitResult | SearchResult | SymbolicRegressor:
    """Read what ``save`` of a population, a fit, a search's result or a fitted regressor wrote.

    Raises
    ------
    PopulationError
        for a file that is damaged or something else.
    FileError
        for one that cannot be read.
    MissingError
        for a regressor, where scikit-learn is not installed.
    """
    held = _arrays(path)
    if "model.format.npy" in held:
        from exprkit.regression.estimator.regressor import SymbolicRegressor

        return SymbolicRegressor.load(path)
    return SearchResult.load(path) if "on_front.npy" in held else fit_result.load(path)


def _arrays(path: str | os.PathLike[str]) -> set[str]:
    """Names of what the file holds; none where it is no such file, of which the reader tells."""
    try:
        with zipfile.ZipFile(path) as archive:
            return set(archive.namelist())
    except (OSError, ValueError, TypeError, AttributeError, zipfile.BadZipFile):
        return set()
