"""What ``SymbolicRegressor.fit`` takes for X, y and weights, and what it refuses by name."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pandas as pd
import pyarrow
import pytest
import scipy.sparse
from sklearn.exceptions import DataConversionWarning

import exprkit as ek
from exprkit.errors import ArgumentError, DataError
from exprkit.regression.problem.rows import Rows

SMALL = {"niterations": 2, "pool_size": 30, "population_size": 40, "maxsize": 12, "random_state": 0}


def small(**settings):
    return ek.SymbolicRegressor(**(SMALL | settings))


@pytest.mark.slow
@pytest.mark.parametrize("which", ["X", "y", "sample_weight"])
@pytest.mark.usefixtures("few_stages")
def test_masked_values_are_no_numbers(which):
    """scikit-learn takes what lies under a mask for a number like all others."""
    X = np.linspace(1, 2, 20)[:, None]
    data = {"X": X, "y": X[:, 0] ** 2, "sample_weight": np.ones(20)}
    data[which] = np.ma.masked_greater(data[which], 10)  # none is masked: fine
    small().fit(**data)
    data[which] = np.ma.array(data[which], mask=np.arange(data[which].size).reshape(data[which].shape) == 3)
    with pytest.raises(DataError, match=f"{which} has masked values: leave those rows out"):
        small().fit(**data)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["x", "y"] * 10, "column 'b' must hold real numbers, not 'x': categories are for groups= of exprkit.fit"),
        (pd.Categorical(["x", "y"] * 10), "column 'b' holds categories (x, y), not quantities"),
        (pd.date_range("2020", periods=20), "column 'b' must hold real numbers, not datetime64[us]: take the time"),
        ([1.0] * 19 + [np.nan], "column 'b' contains NaN, it lacks 1 of 20 values"),
        ([np.inf, -np.inf] + [1.0] * 18, "X: column 'b' is infinite in 2 of 20 values: leave those rows out"),
        ([1j] * 20, "column 'b' must hold real numbers, not complex128"),
    ],
)
def test_a_column_that_is_no_use_is_named(column, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        small().fit(pd.DataFrame({"a": np.arange(20.0), "b": column}), np.arange(20.0))


@pytest.mark.slow
@pytest.mark.usefixtures("few_stages")
def test_columns_of_objects_are_taken_if_they_are_numbers_and_names_stand_once():
    X = pd.DataFrame({"a": np.arange(20.0), "b": [True, False] * 10, "c": np.array([1, 2] * 10, object)})
    assert small().fit(X, 2 * X["a"]).get_best().equation == "2 * a"
    with pytest.raises(DataError, match="2 columns are called 'a'"):
        small().fit(X.set_axis(["a", "b", "a"], axis=1), X["a"])


@pytest.mark.parametrize("y", [["1.5", "2"], np.array(["a", "b"]), np.array([1.0, "b"], object)], ids=str)
def test_a_target_of_texts_is_refused(y):
    with pytest.raises(DataError, match=r"y must hold real numbers, not .*: (pandas.to_numeric converts|categories)"):
        ek.SymbolicRegressor().fit([[1.0], [2.0]], y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (pd.date_range("2020", periods=20), "y must hold real numbers, not datetime64"),
        (pd.Categorical(["a", "b"] * 10), "y holds categories (a, b), not quantities"),
        ([None, *range(19)], "y contains NaN, it lacks 1 of 20 values: leave those rows out"),
        (np.append(np.inf, np.arange(19.0)), "y is infinite in 1 of 20 values: leave those rows out"),
        ("speed", "y is the text 'speed': give the numbers, table['speed'] without it in X"),
    ],
    ids=["dates", "categories", "a gap", "infinite", "a name"],
)
def test_a_target_that_is_no_quantity_is_refused(y, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        small().fit(np.arange(20.0)[:, None], y)


def test_columns_of_a_file_are_named_as_y_and_weights(tmp_path):
    table = pd.DataFrame({"a": np.arange(1.0, 21), "w": [1.0, 2] * 10})
    table["speed (m/s)"], path = 3 * table["a"], str(tmp_path / "table.csv")
    table.to_csv(path, index=False)
    model = small().fit(path, "speed (m/s)", "w")
    assert model.get_best().equation == "3 * a" and list(model.feature_names_in_) == ["a"]
    given = ek.ExpressionRegressor("p1 * a").fit(path, "speed (m/s)", "w")
    for one in (model, given):
        assert one.score(path, "speed (m/s)", "w") == pytest.approx(1.0)
        assert one.predict(table.drop(columns="w")) == pytest.approx(3 * table["a"])
    assert given.found_.plot().axes[0].get_ylabel() == "speed (m/s)"
    with pytest.raises(DataError, match="no column 'sped'"):
        small().fit(path, "sped")


@pytest.mark.parametrize(
    "made",
    [dict, lambda table: table["a"], lambda table: table.to_records(index=False), pyarrow.table],
    ids=["dict", "Series", "records", "arrow"],
)
def test_a_table_of_any_kind_has_names(made):
    table = pd.DataFrame({"a": np.arange(1.0, 21)})
    found = small().fit(made(table), (3 * table[["a"]]).to_numpy()[:, 0])
    assert found.get_best().equation == "3 * a" and found.predict(made(table)) == pytest.approx(3 * table["a"])


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ({"a": [1.0, 2.0], "b": [3.0]}, "the columns of X have different lengths: a 2, b 1"),
        ("table.csv", "table.csv could not be read: No such file or directory"),
        (None, "X must be an array (n_rows, n_vars) or a table, not None"),
        (iter([[1.0, 2.0]]), "X must be an array (n_rows, n_vars) or a table, not <list_iterator"),
        ([[1.0, 2.0], [3.0]], "X must be an array of numbers; its rows have different lengths"),
        ([[1.0, np.nan], [3.0, 4.0]], "X: column x2 contains NaN, it lacks 1 of 2 values: leave those rows out"),
        (np.array([[1.0, np.inf], [3.0, -np.inf]]), "X: column x2 is infinite in 2 of 2 values: leave those rows out"),
    ],
    ids=["ragged", "text", "None", "iterator", "ragged rows", "a gap", "infinite"],
)
def test_what_is_no_table_is_refused(X, message):
    with pytest.raises(DataError, match=re.escape(message)):
        small().fit(X, [1.0, 2.0])


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.usefixtures("few_stages")
def test_very_few_rows_have_a_formula(n):
    X = np.array([[0.7, 2.0], [1.5, 1.0], [2.2, 3.0], [2.9, 0.5]])[:n]
    model = small().fit(X, 2 * X[:, 0] + X[:, 1] ** 2)
    assert ">>>>" in str(model) and np.isfinite(model.predict(X)).all()


def test_a_seed_that_is_none_is_refused():
    with pytest.raises(ArgumentError, match="random_state must be None, a whole number >= 0 or a RandomState"):
        small(random_state="a").fit([[1.0], [2.0]], [1.0, 2.0])


def test_a_dict_of_single_numbers_is_a_row():
    table = pd.DataFrame({"a": np.arange(1.0, 21), "b": 3.0})
    assert small().fit(table, 3 * table["a"]).predict({"a": 4, "b": 3.0}) == pytest.approx(12.0)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (["1"] * 20, "sample_weight must hold real numbers, not '1': pandas.to_numeric converts text"),
        (pd.date_range("2020", periods=20), "sample_weight must hold real numbers, not datetime64"),
        ({"w": np.ones(20)}, "sample_weight must hold real numbers, not {'w'"),
        ("w", "sample_weight is the text 'w': give the numbers, table['w'] without it in X"),
    ],
    ids=["texts", "dates", "dict", "name"],
)
def test_weights_that_are_no_numbers_are_refused(weights, message):
    X, y = np.arange(20.0)[:, None], np.arange(20.0)
    with pytest.raises(DataError, match=re.escape(message)):
        small().fit(X, y, weights)
    with pytest.raises(DataError, match=re.escape(message)):
        small(guesses=["x1"], pool_size=0, niterations=0).fit(X, y).score(X, y, weights)


@pytest.mark.parametrize("as_table", [True, False], ids=["table", "array"])
def test_whole_numbers_that_become_one_are_refused(as_table):
    rows, large = np.arange(60), 2**53 + np.arange(60)
    X = pd.DataFrame({"id": large}) if as_table else large[:, None]
    name = "'id'" if as_table else "x1"
    with pytest.raises(DataError, match=f"X: column {name}: 60 different numbers, .* in float64: subtract the least"):
        small().fit(X, rows)
    with pytest.raises(DataError, match="y: 60 different numbers"):
        small().fit(rows[:, None], pd.Series(large) if as_table else large)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_target_of_few_digits_is_exact_within_them(dtype):
    X = np.random.default_rng(0).uniform(1, 2, (60, 2)).astype(dtype)
    y = X[:, 0] / X[:, 1] ** 2
    model = small(pool_size=300).fit(X, y)
    assert model.get_best().equation == "x1 / sqr(x2)" and model.stopped_ == "a formula is exact"
    rows, place = Rows(X, y), np.finfo(dtype).eps
    assert not rows.is_exact(rows.y * (1 + place)), "all digits of float64"
    for few in (rows.with_precision_of(y.dtype), rows.with_precision_of(y.dtype).with_y(rows.y)):
        assert few.is_exact(rows.y * (1 + place)) and not few.is_exact(rows.y * (1 + 20 * place))


def test_a_single_number_is_no_target():
    X = np.arange(20.0)[:, None]
    model = small(guesses=["x1"], pool_size=0, niterations=0).fit(X, X[:, 0])
    for method in (small().fit, model.score):
        for y in (None, 3.0):
            with pytest.raises(ValueError, match="y should be a 1d array, a number for every row of X, not"):
                method(X, y)


def test_a_target_may_be_a_table_of_one_column():
    table = pd.DataFrame({"a": np.arange(1.0, 21), "y": 3 * np.arange(1.0, 21)})
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        assert small().fit(table[["a"]], table[["y"]]).score(table[["a"]], table[["y"]]) == 1


@pytest.mark.parametrize("share", [1 / 60, 1e-300, 1e300])
def test_weights_that_count_no_rows_do_not_say_how_much_is_known(share):
    """Those that add up to 1, say: nothing but a constant would be selected."""
    random = np.random.default_rng(0)
    X, weights = random.uniform(1, 2, (60, 1)), random.uniform(0.5, 1.5, 60)
    y = 1 / X[:, 0] + 0.01 * random.standard_normal(60)
    quick = small(guesses=["1 / x1"], max_evals=100)
    some, other = (quick.fit(X, y, weights * factor).get_best() for factor in (1, share))
    assert some.equation == other.equation and some.loss == pytest.approx(other.loss) and some.complexity > 1


def test_names_that_become_one_are_told_apart():
    X = pd.DataFrame(np.random.default_rng(0).uniform(1, 2, (20, 3)), columns=["sin", "sin_", "a\n"])
    assert small(guesses=["sin_ / (`sin` + a_)"], niterations=0).fit(X, X["sin_"] / X["sin"]).predict(X).shape == (20,)


def test_an_argument_of_fit_is_sent_there():
    with pytest.raises(ArgumentError, match=r"has no parameter 'X_units'; fit\(X, y, …\) does"):
        small(X_units=["kg"])


@pytest.mark.parametrize("sort", ["csr_array", "dok_array"])
def test_sparse_data_are_refused(sort):
    with pytest.raises(TypeError, match="dense data is required"):
        small().fit(getattr(scipy.sparse, sort)(np.eye(20)), np.arange(20.0))


def test_zeros_and_large_numbers_make_no_warnings():
    """What is divided by columns that are 0 somewhere is no formula there, and nothing that a user has to know of."""
    random = np.random.default_rng(0)
    X = random.uniform(0, 3, (60, 3))
    X[::7, 0], X[3, 1] = 0, 0
    y = X[:, 0] + X[:, 1] * X[:, 2] + 0.1 * random.standard_normal(60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small(maxsize=9, max_evals=20_000).fit(X, y, X_units=["m", "s", "m/s"], y_units="m")
