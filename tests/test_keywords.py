"""Misspelt keywords of public functions: what was meant, as for a misspelt operator."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import exprkit as ek
from exprkit.errors import ArgumentError

X = np.ones((3, 1))


@pytest.mark.parametrize(
    "call, meant",
    [
        (lambda: ek.parse("x1", variable=["a"]), "variables"),
        (lambda: ek.generate.random(3, n_token=3), "n_tokens"),
        (lambda: ek.generate.exhaustive(3, n_var=2), "n_vars"),
        (lambda: ek.generate.random(3, random_state=1), "seed"),
        (lambda: ek.exhaustive_search(X, X[:, 0], maxnodes=3), "max_nodes"),
        (lambda: ek.exhaustive_search(X, X[:, 0], n_jobs=2), "threads"),
        (lambda: ek.operator("never(a) = a", latx="x"), "latex"),
        (lambda: ek.fit("p1 * x1", X, X[:, 0], weight=X[:, 0]), "weights"),
    ],
)
def test_the_nearest_one_is_named(call, meant):
    with pytest.raises(ArgumentError, match=f"has no option '.*'; did you mean '{meant}'"):
        call()


def test_signatures_are_seen():
    assert next(iter(inspect.signature(ek.parse).parameters)) == "source"
    assert "max_memory" in inspect.signature(ek.exhaustive_search).parameters
