"""``ek.breed`` and depths: what a search of one's own is made of."""

from __future__ import annotations

import numpy as np
import pytest

import exprkit as ek
from exprkit.errors import ArgumentError, DataError

POP = ek.parse(["p1 * sin(a) + p2", "b - p1", "exp(a / b)", "a"], variables=["a", "b"])


def test_children_are_of_the_parents_variables_with_parameters_of_their_own():
    children = ek.breed(POP, [1.0, 2.0, 3.0, 4.0], 2000, operators=["+", "*", "sin"], seed=3)
    assert len(children) == 2000 and children.variables == ("a", "b") and children.longest <= 30
    counts = [text.count("p") - text.count("exp") for text in children.texts()]
    assert children.n_params.tolist() == counts  # none stands twice
    assert len(set(children.texts())) > 150


def test_the_better_have_more_children():
    constants = ek.parse([str(k) for k in range(50)])
    children = ek.breed(constants, np.arange(50.0), 4000, crossover=1.0, seed=1)
    values = children.values.view(np.float64)  # a leaf crossed with a leaf is a leaf
    assert len(children) == children.n_tokens.sum() and np.mean(values < 10) > 0.6


def test_seeds_and_threads():
    losses = np.array([4.0, 3.0, 2.0, 1.0])
    one = ek.breed(POP, losses, 5000, seed=5, threads=1).texts()
    assert ek.breed(POP, losses, 5000, seed=5, threads=2).texts() == one
    assert ek.breed(POP, losses, 5000, seed=6).texts() != one


def test_who_is_worth_nothing_has_no_children():
    children = ek.breed(POP, [np.nan, np.inf, np.nan, 1.0], 300, crossover=1.0)
    assert set(children.texts()) == {"a"}
    with pytest.raises(DataError, match="no expression has a finite loss and up to 2 tokens"):
        ek.breed(POP[:3], [1.0, 1.0, 1.0], max_tokens=2)


@pytest.mark.parametrize(
    "wrong, error, words",
    [
        ({"loss": [1.0]}, DataError, r"shape \(4,\)"),
        ({"crossover": 2}, ArgumentError, "from 0 to 1"),
        ({"tournament": 0}, ArgumentError, "whole number >= 1"),
        ({"mutation": 0.5}, ArgumentError, "has no option 'mutation'"),
        ({"n": -1}, ArgumentError, "whole number >= 0"),
    ],
)
def test_what_does_not_fit(wrong, error, words):
    with pytest.raises(error, match=words):
        ek.breed(POP, **{"loss": np.ones(4), **wrong})


def test_a_search_of_ten_lines_gets_better():
    rng = np.random.default_rng(0)
    X = rng.uniform(0.5, 2, (100, 2))
    y = X[:, 0] * X[:, 1] + np.sin(X[:, 0])
    pop, best = ek.generate.random(400, n_vars=2, n_params=0, seed=1), []
    for generation in range(8):
        losses = ek.Evaluator(pop, X, "cpu").loss(None, y, "rmse")
        best.append(np.nanmin(losses))
        pop = ek.breed(pop, losses, seed=generation)
    assert min(best) < 0.7 * best[0]


def test_depths():
    texts = ["x1", "exp(-x1)", "x1 + x2 * x3", "(x1 + x2) * sin(cos(tan(x1)))", "nothing("]
    assert ek.parse(texts, errors="mask").depths().tolist()[:4] == [0, 2, 2, 4]
    ek.operator("own_depth(a, b, c) = a * b + c")
    assert ek.parse("own_depth(x1, exp(x2), -(-x1))").depths().tolist() == [3]
