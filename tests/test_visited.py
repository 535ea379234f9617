"""Formulas that a search has evaluated: which are kept, which hold a pattern, and that keeping them changes nothing."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import exprkit as ek
from exprkit.errors import ArgumentError, ParseError
from exprkit.regression.formulas.archive import FormulaArchive
from exprkit.search.patterns import holders

QUICK = {"niterations": 2, "population_size": 60, "pool_size": 0, "maxsize": 9, "random_state": 0}


def data():
    random = np.random.default_rng(0)
    X = random.uniform(1, 3, (40, 2))
    return X, 3 * np.exp(-0.5 * X[:, 0]) + 0.1 * random.standard_normal(40)


@pytest.fixture(scope="module")
def model():
    return ek.SymbolicRegressor(**QUICK).fit(*data())


FORMULAS = {
    "decay": "2 + 3 * exp(-0.5 * x1)", "growth": "exp(x1 * 4) * x2", "own rate": "5 - exp(-x2 * x1) * 3",
    "negative": "-(exp(2 * x1) * 7)", "root": "x1 * sqrt(x2 + x1)", "difference": "2 - x2", "power": "x1 ^ 2 - x2",
    "twice": "x1 * x2 + x1 * x2", "square": "sqr(x1) + 1", "inverse": "inv(x1)", "seven": "7 * x1",
}  # fmt: skip
HOLDERS = {
    "a * exp(-b * x1)": "decay growth own_rate negative",
    "p1 * exp(-p2 * x1)": "decay negative",
    "c - a * exp(-b * x1)": "decay own_rate",
    "x1 + x2": "root",
    "a - x2": "difference power",
    "a + a": "twice",
    "x1 ^ 2 + a": "square power",
    "1 / x1": "inverse",
    "7.0000001 * a": "negative seven",
    "x1 * a": "decay growth own_rate negative root twice seven",
    "sqrt(x1)": "",
}


def test_a_pattern_is_held_in_any_order_of_operands_with_anything_for_its_names():
    pop = ek.parse(list(FORMULAS.values()))
    for pattern, names in HOLDERS.items():
        chosen = {list(FORMULAS)[i] for i in holders(pop, pattern)}
        assert chosen == {name.replace("_", " ") for name in names.split()}, pattern


def test_a_formula_may_have_to_be_the_pattern_itself_and_short():
    pop = ek.parse(["sqrt(x1) + 1", "sqrt(x1)", "sqrt(x1 * x2 / 3)", "sqrt(2 * x1)"])
    assert holders(pop, "sqrt(a)").tolist() == [0, 1, 2, 3]
    assert holders(pop, "sqrt(a)", anywhere=False).tolist() == [1, 2, 3]
    assert holders(pop, "sqrt(a)", max_size=4).tolist() == [0, 1, 3]
    assert holders(pop, "sqrt(a)", best=2).tolist() == [0, 1]
    assert holders(pop, None, max_size=2).tolist() == [1]


def test_names_of_columns_stand_for_themselves():
    pop = ek.parse(["`mass (kg)` * v", "v * 3"], variables=["mass (kg)", "v"])
    assert holders(pop, "`mass (kg)` * v").tolist() == [0]
    assert holders(pop, "m * v").tolist() == [0, 1]


def test_a_pattern_that_cannot_be_read_is_said_in_words(model):
    for pattern, error, words in (
        ("a * sqrtt(x1)", ParseError, "sqrtt"),
        ("a * x3", ParseError, "x3"),
        ("", ParseError, "empty"),
        (3, ArgumentError, "pattern must be a text"),
        (" + ".join("abcdefghijklmnopq"), ArgumentError, "too many sums"),
    ):
        with pytest.raises(error, match=words):
            model.explore(pattern)
    for settings in ({"best": 0}, {"max_size": "9"}, {"anywhere": 1}):
        with pytest.raises(ArgumentError, match=next(iter(settings))):
            model.explore("a", **settings)


def test_an_archive_has_the_best_of_each_form_and_of_too_many_those_of_each_size():
    archive = FormulaArchive(most=3)
    archive.add(ek.parse(["2 * x1", "x1", "x2"]), [4.0, 9.0, np.nan])
    archive.add(ek.parse(["x1 * 3", "x2 * x1", "x1 / x2", "sqrt(x1)"]), [1.0, 2.0, 3.0, 5.0])
    kept = archive.formulas()
    assert kept.pop.texts() == ["x1 * 3", "sqrt(x1)", "x1"]
    assert kept.loss.tolist() == [1.0, 5.0, 9.0]


def test_kept_formulas_are_distinct_and_have_their_losses():
    X, y = data()
    model = ek.SymbolicRegressor(**QUICK | {"niterations": 0}, noise="constant").fit(X, y)
    visited = model.visited_
    assert len(visited) > len(model.equations_)
    assert (np.diff(visited.loss) >= 0).all()
    assert len(visited.pop.structures()[0]) == len(visited)
    losses = ek.Evaluator(visited.pop, X, "cpu", dtype="float64").loss(None, y, "mse")
    assert visited.loss == pytest.approx(losses, rel=1e-5)


def test_keeping_formulas_changes_no_formula_of_a_search(model):
    without = ek.SymbolicRegressor(**QUICK, keep_visited=0).fit(*data())
    assert without.equations_["equation"].tolist() == model.equations_["equation"].tolist()
    assert without.n_evals_ == model.n_evals_
    with pytest.raises(ArgumentError, match="keep_visited"):
        without.explore()


def test_a_search_explores_all_that_it_bred(model):
    table = model.explore("exp(a)", max_size=8, best=5)
    assert list(table.columns) == ["complexity", "loss", "equation"]
    assert 0 < len(table) <= 5
    assert table["equation"].str.contains("exp").all()
    assert table["complexity"].max() <= 8
    assert table["loss"].is_monotonic_increasing
    assert len(model.explore(best=10_000)) == len(model.visited_) > 100


def test_kept_formulas_are_in_files_and_pickles(model, tmp_path):
    path = tmp_path / "model.npz"
    model.save(path)
    table = model.explore("a * x1")
    for other in (ek.load(path), pickle.loads(pickle.dumps(model))):
        assert other.explore("a * x1").equals(table)
        assert len(other.visited_) == len(model.visited_)


def test_the_number_of_formulas_is_checked():
    for number in (-1, 20_000_000, 1.5):
        with pytest.raises(ArgumentError, match="keep_visited must be a whole number from 0 to 10,000,000"):
            ek.SymbolicRegressor(keep_visited=number).fit(*data())
