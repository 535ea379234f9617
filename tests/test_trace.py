"""Every part of an expression at one point."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import exprkit as ek
from exprkit.errors import ArgumentError, DataError
from exprkit.expressions import generate


@pytest.mark.slow
@given(seed=st.integers(0, 99), i=st.integers(0, 9), point=st.integers(0, 6))
@settings(max_examples=30)
def test_every_part_is_what_it_is_alone_and_the_last_is_the_whole(seed, i, point):
    pop = generate.random(10, (1, 25), n_vars=2, n_params=2, seed=seed)
    X = np.random.default_rng(seed).uniform(-2, 2, (7, 2))
    params = np.random.default_rng(seed + 1).uniform(-2, 2, (10, pop.max_params))
    ev = ek.Evaluator(pop, X, "numpy", dtype="float64")
    trace = ev.trace(i, point, params)
    assert len(trace.texts) == pop.n_tokens[i] and trace.texts[-1] == str(pop[i])
    np.testing.assert_array_equal(trace.values[-1], ev.evaluate(params)[i, point])
    for text, value in zip(trace.texts, trace.values, strict=True):
        part = ek.parse(text)
        alone = ek.Evaluator(part, X[point : point + 1], "numpy", dtype="float64")
        np.testing.assert_array_equal(alone.evaluate(params[i : i + 1, : part.max_params])[0, 0], value)
    missing = np.flatnonzero(np.isnan(trace.values))
    assert trace.first_nan == (missing[0] if len(missing) else None)
    assert str(trace).count("<- the first nan") == bool(len(missing))


def test_names_and_an_expression_that_could_not_be_read(backend):
    pop = ek.parse(["log(depth - p1)", "oops("], variables=["depth"], errors="mask")
    ev = ek.Evaluator(pop, np.ones((3, 1)), backend)
    trace = ev.trace(0, 2, [[2.0], []])
    assert trace.texts == ["depth", "p1", "depth - p1", "log(depth - p1)"] and trace.first_nan == 3
    assert ev.trace(1, 0, [[2.0], []]).texts == []


def test_what_is_not_there():
    ev = ek.Evaluator(ek.parse(["x1 + p1", "+".join(["x1"] * 3_000)]), np.ones((3, 1)))
    params = [[1.0], []]
    for i, point, what in (
        (2, 0, "no expression 2"),
        (0, 3, "no data point 3"),
        (0, -1, "point -1"),
        (1, 0, "5,999 tokens"),
    ):
        with pytest.raises(ArgumentError, match=what):
            ev.trace(i, point, params)
    with pytest.raises(DataError, match="one set"):
        ev.trace(0, 0, np.ones((2, 2, 1)))
    with pytest.raises(DataError, match="params are missing"):
        ev.trace(0, 0)
