"""Files of fitted regressors: the npz file of a population, with further arrays, without pickle.

In: a fitted ``SymbolicRegressor``.  Out: the arrays of a file; the attributes of one that predicts the same.

====================  ====================================================================================
array                 what it holds
====================  ====================================================================================
``model.settings``    JSON of ``get_params``; a function, or a source of random numbers, is null
``model.loss``        of every formula, and ``model.FIELD`` what a ``DescribedFront`` has
``model.ATTRIBUTE``   what ``fit`` says of the search
``visited.NAME``      of ``visited_`` (``formulas/archive``)
``model.features``    names of the table's columns; missing where there were none
``template.NAME``     of a ``TemplateFront``, where the search had ``template`` or ``groups``
====================  ====================================================================================
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.regression.estimator.equations import DescribedFront
from exprkit.regression.estimator.template import TemplateFront
from exprkit.regression.formulas.archive import FormulaArchive, VisitedFormulas
from exprkit.regression.formulas.front import Entry
from exprkit.runtime import codec

FITTED = {
    "n_evals_": int,
    "seconds_": float,
    "stopped_": str,
    "interrupted_": bool,
    "n_features_in_": int,
    "noise_": str,
    "n_rows_searched_": int,
    "_n_rows": int,
}


def arrays_of(model: Any, front: DescribedFront) -> dict[str, np.ndarray]:
    """What a file holds of a model: its formulas with the names that they have, and what is known of them."""
    pop = Population.of([entry.expression for entry in front.entries])
    by_category = model._template is not None and model._template.group is not None
    named = pop if by_category else Population(pop.kinds, pop.values, pop.offsets, variables=front.names)
    features = getattr(model, "feature_names_in_", None)
    arrays = {
        "settings": json.dumps(plain(model.get_params())),
        "features": None if features is None else np.array(features, np.str_),
        "names": np.array(front.names, np.str_) if by_category else None,  # p1[site] of each formula that has it
        "loss": [entry.loss for entry in front.entries],
        **{name: getattr(model, name) for name in FITTED},
    }
    known = codec.in_part("model", arrays) | codec.to_arrays("model", front)
    known |= codec.in_part("visited", model.visited_.to_arrays())
    if model._template is not None:
        known |= codec.in_part("template", model._template.to_arrays())
    return named.to_arrays() | known


def restored(arrays: dict[str, np.ndarray], Model: Any) -> tuple[Any, DescribedFront]:
    """A ``Model`` with what ``fit`` has left in it, and its front, from the arrays of a file."""
    pop, held = Population.from_arrays(arrays), codec.of_part("model", arrays)
    model = with_settings(Model, json.loads(str(held["settings"])))
    for name, kind in FITTED.items():
        setattr(model, name, kind(held[name]))
    if "features" in held:
        model.feature_names_in_ = held["features"].astype(object)
    of_template = codec.of_part("template", arrays)
    model._template = TemplateFront.from_arrays(of_template) if of_template else None
    n_more = len(model._template.numbers) if of_template else 0
    if not len(pop) or pop.max_params or pop.n_vars > model.n_features_in_ + n_more:
        raise ValueError("no formulas of its columns")
    if not (np.diff(pop.n_tokens) > 0).all():
        raise ValueError("formulas that are no front")
    columns = codec.from_arrays("model", DescribedFront, arrays, n=len(pop))
    visited = codec.of_part("visited", arrays)
    model.visited_ = VisitedFormulas.from_arrays(visited) if visited else FormulaArchive(0).formulas()
    formulas, loss = (Expression(formula.kinds, formula.values) for formula in pop), held["loss"].astype(float)
    if loss.shape != (len(pop),):
        raise ValueError("losses that are not those of its formulas")
    entries = list(map(Entry, formulas, loss.tolist(), pop.n_tokens.tolist()))
    names = tuple(held["names"].tolist()) if "names" in held else pop.variables
    return model, DescribedFront(entries, names, **columns)


def with_settings(Model: Any, settings: dict[str, Any]) -> Any:
    """A ``Model`` with those of the settings that it has."""
    known = Model().get_params(deep=False)
    return Model(**{name: value for name, value in settings.items() if name in known})


def plain(value: Any) -> Any:
    """A setting as JSON has it."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (Expression, Path)):
        return str(value)
    return value if isinstance(value, (bool, int, float, str, type(None))) else None
