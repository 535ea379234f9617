"""Files of estimators that are made of searches: the arrays of each search, and what the estimator itself knows.

In: a fitted ``SavedSearches``.  Out: an npz file, without pickle; an estimator that predicts the same.

======================  ======================================================
array                   what it holds
======================  ======================================================
``estimator.class``     its name
``estimator.settings``  JSON of its parameters, those of its search among them
``estimator.NAME``      of ``KEPT``; a population's are ``estimator.NAME.NAME``
``NAME.I.NAME``         of the search I of ``SEARCHES``
======================  ======================================================
"""

from __future__ import annotations

import itertools
import json
import os
from typing import Any, ClassVar

import numpy as np

from exprkit.errors import ArgumentError, brought_by, did_you_mean
from exprkit.expressions.population import Population
from exprkit.regression.estimator import model_file
from exprkit.regression.estimator.regressor import SymbolicRegressor
from exprkit.runtime import codec, files

with brought_by("search"):
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import check_is_fitted


class SavedSearches(BaseEstimator):
    """An estimator that is made of searches, which a file can hold."""

    KEPT: ClassVar[dict[str, Any]]  # attributes that fits leave, and of what kind
    SEARCHES: ClassVar[tuple[str, ...]]  # those that are lists of searches

    def __new__(cls, *_: Any, **settings: Any) -> Any:
        """Say what was meant by a parameter that is none, as ``SymbolicRegressor`` does."""
        for name in settings:
            if name not in (known := cls._get_param_names()):
                hint = did_you_mean(name, known) or f"; it has {', '.join(known)}"
                raise ArgumentError(f"{cls.__name__} has no parameter {name!r}{hint}")
        return super().__new__(cls)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to ``path`` as npz, without pickle; complete or absent.  ``exprkit.load`` reads it.

        >>> X = np.arange(1.0, 9.0)[:, None]
        >>> search = ek.SymbolicRegressor(niterations=0, pool_size=0)
        >>> ek.MultiTargetRegressor(search).fit(X, 3 * X).save("model.npz")
        """
        check_is_fitted(self, self.SEARCHES[0])
        settings = self.get_params(deep=False)
        search = None if settings["search"] is None else model_file.plain(settings["search"].get_params())
        features = getattr(self, "feature_names_in_", None)
        own: dict[str, Any] = {
            "class": type(self).__name__,
            "settings": json.dumps({**model_file.plain(settings), "search": search}),
            "features": None if features is None else np.array(features, np.str_),
        }
        for name in self.KEPT:
            value = getattr(self, name)
            is_population = isinstance(value, Population)
            own |= codec.in_part(name, value.to_arrays()) if is_population else {name: _array(value)}
        arrays = codec.in_part("estimator", own)
        for name in self.SEARCHES:
            for i, model in enumerate(getattr(self, name)):
                arrays |= codec.in_part(f"{name}.{i}", model_file.arrays_of(model, model._front))
        files.write_arrays(path, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Any:
        """Read the file at ``path`` that ``save`` wrote; errors are those of ``exprkit.load``.

        >>> X, search = np.arange(1.0, 9.0)[:, None], ek.SymbolicRegressor(niterations=0, pool_size=0)
        >>> ek.MultiTargetRegressor(search).fit(X, 3 * X).save("model.npz")
        >>> ek.MultiTargetRegressor.load("model.npz").predict([[5.0]])
        array([[15.]])
        """
        with files.opened(path, "model") as arrays:
            return cls.restored(arrays)

    @classmethod
    def restored(cls, arrays: dict[str, np.ndarray]) -> Any:
        """From the arrays of a file."""
        held = codec.of_part("estimator", arrays)
        if str(held["class"]) != cls.__name__:
            raise ArgumentError(f"the file is of a {held['class']}: read it by that, or by exprkit.load")
        settings = json.loads(str(held["settings"]))
        if settings["search"] is not None:
            settings["search"] = model_file.with_settings(SymbolicRegressor, settings["search"])
        model = model_file.with_settings(cls, settings)
        for name, kind in cls.KEPT.items():
            if kind is Population:
                setattr(model, name, Population.from_arrays(codec.of_part(name, held)))
            else:
                setattr(model, name, held[name] if kind is np.ndarray else kind(held[name].tolist()))
        if "features" in held:
            model.feature_names_in_ = held["features"].astype(object)
        for name in cls.SEARCHES:
            parts = itertools.takewhile(bool, (codec.of_part(f"{name}.{i}", arrays) for i in itertools.count()))
            setattr(model, name, [SymbolicRegressor.restored(part) for part in parts])
        return model


def _array(value: Any) -> np.ndarray:
    return np.array(value.tolist() if isinstance(value, np.ndarray) else value)
