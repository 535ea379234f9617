"""Misspelt keywords of public functions: what was meant, as for a misspelt operator."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import exprkit as ek
from exprkit.errors import ArgumentError

X = np.ones((3, 1))


CALLS = [
    (lambda: ek.parse("x1", variable=["a"]), "variables"),
    (lambda: ek.generate.random(3, n_token=3), "n_tokens"),
    (lambda: ek.generate.exhaustive(3, n_var=2), "n_vars"),
    (lambda: ek.generate.random(3, random_state=1), "seed"),
    (lambda: ek.exhaustive_search(X, X[:, 0], maxnodes=3), "max_nodes"),
    (lambda: ek.exhaustive_search(X, X[:, 0], n_jobs=2), "threads"),
    (lambda: ek.operator("never(a) = a", latx="x"), "latex"),
    (lambda: ek.fit("p1 * x1", X, X[:, 0], weight=X[:, 0]), "weights"),
    (lambda: ek.Evaluator("p1 * x1", X).loss([[1]], X[:, 0], column={}), "columns"),
    (lambda: ek.Evaluator("p1 * x1", X).loss_and_grad([[1]], X[:, 0], knd="mae"), "kind"),
    (lambda: ek.fit("p1 * x1", X, X[:, 0])[0].latex(digit=3), "digits"),
    (lambda: ek.fit("p1 * x1", X, X[:, 0]).latex_table(nn=3), "n"),
    (lambda: ek.ExpressionRegressor("p1 * x1", los="mae"), "loss"),
    (lambda: ek.explore("p1 * x1", backnd="cpu"), "backend"),
    (lambda: ek.cases(preciion="fast"), "precision"),
    (lambda: ek.compile_ptx("x1", blocksize=3), "block_size"),
    (lambda: ek.fit("p1 * x1", X, X[:, 0], sigma=X[:, 0]), r"weights = 1 / sigma\^2"),
    (lambda: ek.fit("p1 * x1", X, X[:, 0], p0=[1]), "init"),
    (lambda: ek.fit("p1 * x1", X, X[:, 0], maxfev=9), "max_iter"),
    (lambda: ek.FitProblem(X, X[:, 0], sigma=X[:, 0]), r"weights = 1 / sigma\^2"),
    (lambda: ek.parse("a", variable_names=["a"]), "variables"),
    (lambda: ek.SymbolicRegressor().fit(X, X[:, 0], weights=X[:, 0]), "sample_weight"),
    (lambda: ek.SymbolicRegressor().fit(X, X[:, 0], sigma=X[:, 0]), r"sample_weight = 1 / sigma\^2"),
    (lambda: ek.SymbolicRegressor().fit(X, X[:, 0], variable_names=["a"]), r"X = pandas.DataFrame\(X, columns=names\)"),
    (lambda: ek.SymbolicRegressor().predict(X, indx=2), "index"),
    (lambda: ek.ExpressionRegressor("p1 * x1").fit(X, X[:, 0], weights=X[:, 0]), "sample_weight"),
    (lambda: ek.Evaluator("p1 * x1", X).evaluate(param=[[1]]), "params"),
    (lambda: ek.parse("x1").save(file="a"), "path"),
    (lambda: ek.parse("x1")[0].to_numpy(parms=[]), "params"),
    (lambda: ek.fit("p1 * x1", X, X[:, 0])[0].latex(digts=3), "digits"),
]


@pytest.mark.slow
@pytest.mark.parametrize("call, meant", CALLS, ids=map(str, range(len(CALLS))))
def test_the_nearest_one_is_named(call, meant):
    with pytest.raises(ArgumentError, match=f"has no option '.*'; did you mean '{meant}'"):
        call()


def test_methods_stay_what_they_are():
    assert ek.Population.load.__self__ is ek.Population and ek.SymbolicRegressor().set_params(maxsize=7).maxsize == 7
    assert list(inspect.signature(ek.SymbolicRegressor.fit).parameters)[1:4] == ["X", "y", "sample_weight"]


def test_signatures_are_seen():
    assert next(iter(inspect.signature(ek.parse).parameters)) == "source"
    assert "max_memory" in inspect.signature(ek.exhaustive_search).parameters
