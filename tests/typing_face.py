"""What a type checker says of the public names: mypy checks this file (``make lint``), nothing runs it."""

from typing import Any, assert_type

import numpy as np

import exprkit as ek

pop = ek.parse(["p1 * x1", "exp(x2)"])
assert_type(pop, ek.Population)
assert_type(pop[0], ek.Expression)
assert_type(pop[:1], ek.Population)
assert_type(pop.texts(), list[str])
assert_type(ek.Population.of([pop[0]]), ek.Population)
assert_type(ek.Population.concatenate([pop, pop]), ek.Population)

X, y = np.ones((3, 2)), np.ones(3)
assert_type(ek.range_of(pop, {"x1": (0, 1), "x2": (0, 1), "p1": 2}).low, np.ndarray)
assert_type(ek.Evaluator(pop, X), ek.Evaluator)
assert_type(ek.models.line.guess(X, y), dict[str, float])
assert_type(ek.FitProblem(X, y), ek.FitProblem)
assert_type(ek.FitProblem(X, y).fit(pop), ek.FitResult)
assert_type(ek.fit_many([{"pop": pop, "X": X, "y": y}]), list[ek.FitResult])
assert_type(ek.exhaustive_search(X, y, max_nodes=3), ek.SearchResult)

model = ek.SymbolicRegressor(niterations=1)
assert_type(model.fit(X, y), ek.SymbolicRegressor)
assert_type(
    ek.load("model.npz"),
    ek.Population
    | ek.FitResult
    | ek.SearchResult
    | ek.SymbolicRegressor
    | ek.SymbolicClassifier
    | ek.MultiTargetRegressor
    | ek.DynamicsRegressor,
)
assert_type(ek.generate.random(3, (1, 5)), ek.Population)
assert_type(model.latex(), str)
number: Any = ek.Evaluator(pop, X).evaluate([1.0])
