"""Tables of a researcher's own: names of columns as variables, what is missing, what is no number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import exprkit as ek
from exprkit.errors import ArgumentError, DataError, ParseError
from exprkit.text.names import in_text

pd = pytest.importorskip("pandas")

TABLE = pd.DataFrame({
    "Temp (°C)": [1.0, 2, 3, 4], "gamma": [2, 1, 3, 1], "wet": [True, False, True, True], "site": list("abca"),
    "rate": [3.0, 5, 7, 9],
})  # fmt: skip


@pytest.mark.parametrize("table", [
    TABLE, TABLE.convert_dtypes(), {name: TABLE[name].tolist() for name in TABLE}, TABLE[TABLE.columns[::-1]],
], ids=["DataFrame", "nullable", "dict", "reversed"])  # fmt: skip
@pytest.mark.parametrize("target", ["rate", TABLE["rate"], TABLE["rate"].tolist()], ids=["name", "column", "list"])
def test_a_text_finds_its_columns(table, target):
    found = ek.fit(["p1 * `Temp (°C)` + p2", "p1 * `gamma` + wet"], table, target)
    assert found.params[0] == pytest.approx([2, 1]) and found.r2[0] == pytest.approx(1)
    assert found.predict(TABLE, 0) == pytest.approx(TABLE["rate"].to_numpy())
    assert found[0](TABLE) == pytest.approx(TABLE["rate"].to_numpy())


def test_names_of_data_are_read_and_written_back():
    pop = ek.parse(["`Temp (°C)`^2 / `gamma`", "gamma(wet)", "p1*rate"], data=TABLE)
    assert pop.texts() == ["`Temp (°C)` ^ 2 / `gamma`", "gamma(wet)", "p1 * rate"]
    assert ek.parse(pop.texts(), data=TABLE) == pop
    assert ek.parse([one.sympy() for one in pop], data=TABLE)[0] == pop[0]
    assert pop.diff("gamma").texts()[0].count("`gamma`") >= 1
    assert pop[0].latex() == r"\frac{\text{Temp (°C)}^{2}}{\mathrm{gamma}}"
    assert ek.parse("r_k", data=ek.data.rough_pipe()).variables == ("r_k", "log_Re")
    with pytest.raises(ParseError, match="data must be a table"):
        ek.parse("a", data=[[1.0]])
    with pytest.raises(ParseError, match="'p1' is also how one of the parameters"):
        ek.parse("1", data={"p1": [1]})


def test_columns_name_variables(tmp_path):
    pop = ek.parse("`Temp (°C)` + 1", variables=TABLE.columns[:1])
    pop.save(tmp_path / "pop.npz")
    assert ek.load(tmp_path / "pop.npz").texts() == ["`Temp (°C)` + 1"]
    assert ek.variables("Temp (°C)")[0] + 1 == pop[0]


NAMES = st.text(st.characters(exclude_characters="`", exclude_categories=["C", "Z"]), min_size=1, max_size=8)


@given(st.lists(NAMES, min_size=1, max_size=4, unique=True))
def test_any_name_stands_between_backquotes(names):
    try:
        pop = ek.parse([f"2 * `{name}` ^ 2" for name in names], data={name: [1.0] for name in names})
    except ParseError as error:
        assert "is a constant" in str(error) or "also how one" in str(error) or "unknown name" in str(error)
        return
    assert pop.texts() == [f"2 * {in_text(name)} ^ 2" for name in names] or pop.variables is None
    assert pop[0].latex() and pop[0].to_numpy()


def test_html_of_a_name_is_text():
    name = "<img src=x onerror=1>"
    pop = ek.parse(f"`{name}`", variables=[name])
    assert "<img" not in pop._repr_html_() and "<img" not in pop[0].latex()


def test_generated_populations_take_names():
    pop = ek.generate.exhaustive(3, variables=["Temp (°C)", "wet", "a"])
    plain = ek.generate.exhaustive(3, n_vars=3)
    assert pop == ek.Population(plain.kinds, plain.values, plain.offsets, variables=["Temp (°C)", "wet", "a"])
    assert ek.generate.random(5, variables=["a", "b"]).variables == ("a", "b")
    assert ek.generate.random(5, variables=["x1", "x2"]) == ek.generate.random(5, n_vars=2)
    with pytest.raises(ParseError, match="comes twice"):
        ek.generate.random(5, variables=["a", "a"])


# ── what is no number, and what is missing ──


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pd.Categorical(list("uvwx")), r"column 'b' of X holds categories \(u, v, w, …\), not quantities"),
        (list("uvwx"), "column 'b' of X must hold real numbers, not 'u'"),
        (pd.to_datetime(["2020"] * 4), "column 'b' of X must hold real numbers, not datetime64"),
        ([1.0, None, np.nan, 4], "column 'b' of X lacks 2 of 4 values"),
        (1.7e9 + np.arange(4), "column 'b' of X: 4 different numbers.* dtype=\"float64\""),
    ],
)
def test_a_column_that_will_not_do_is_named(column, message):
    table = pd.DataFrame({"a": [1.0, 2, 3, 4], "b": column})
    with pytest.raises(DataError, match=message):
        ek.fit("p1 * a + b", table, [1, 2, 3, 4])
    assert ek.fit("p1 * a", table, [1, 2, 3, 4]).params.tolist() == [[pytest.approx(1)]]
    pop = ek.parse(["p1 * a"], data=table)
    assert ek.Evaluator(pop, table).loss([[1.0]], [1, 2, 3, 4]).tolist() == [0]
    with pytest.raises(DataError, match="categories"):
        ek.data.from_table(pd.DataFrame({"a": pd.Categorical(["u", "v"]), "y": [1, 2]}))


@pytest.mark.parametrize("X", [
    {"a": [1, None, 3, 4, 5.0], "b": [1, 2, 3, 5, 7], "c": [None] * 5},
    pd.DataFrame({"a": [1, None, 3, 4, 5.0], "b": [1, 2, 3, 5, 7], "c": [None] * 5}),
], ids=["dict", "DataFrame"])  # fmt: skip
@pytest.mark.parametrize("loss", ["squares", "gaussian"])
def test_missing_values_are_left_out_on_request(X, loss):
    y, w = [2.0, 9, np.nan, 8, 10.5], [1.0, 1, 1, 2, 1]
    kept = [0, 3, 4]
    for weights in (None, w):
        found = ek.fit("p1 * a + p2 * b", X, y, weights=weights, missing="drop", loss=loss)
        own = {name: np.array(X[name], float)[kept] for name in "ab"}
        own_weights = None if weights is None else np.array(weights)[kept]
        alone = ek.fit("p1 * a + p2 * b", own, np.array(y)[kept], weights=own_weights, loss=loss)
        assert found.loss.tolist() == alone.loss.tolist() and len(found.goal.y) == 3
    array = np.column_stack([np.array(X[name], float) for name in "ab"])
    assert ek.fit("p1 * x1 + p2 * x2", array, y, missing="drop", loss=loss).goal.y.tolist() == [2, 8, 10.5]
    with pytest.raises(DataError, match="y lacks 1 of 5 values"):
        ek.fit("p1 * a", X, y)
    with pytest.raises(ArgumentError, match="missing must be one of"):
        ek.fit("p1 * a", X, y, missing="mask")


def test_a_target_that_is_not_there_is_told():
    with pytest.raises(DataError, match=r"X has no column 'raet'.*did you mean 'rate'"):
        ek.fit("p1", TABLE, "raet")
    with pytest.raises(DataError, match="y is missing"):
        ek.fit("p1", TABLE)
    with pytest.raises(DataError, match="X has no columns with names"):
        ek.fit("p1", [[1.0]], "rate")


def test_data_sets_are_data():
    points = ek.data.rough_pipe()
    found = ek.fit(["p1 * log_Re + p2", "p1 / r_k"], points)
    assert found.pop.variables == ("r_k", "log_Re")
    assert found.loss == pytest.approx(ek.fit(ek.parse(["p1 * x2 + p2", "p1 / x1"]), points.X, points.y).loss)
    assert ek.FitProblem(points).fit("p1 * r_k").loss[0] == ek.FitProblem(points.X, points.y).fit("p1 * x1").loss[0]
    by_place, by_name = (ek.Evaluator(text, points).evaluate() for text in ("x1 + x2", "r_k + log_Re"))
    assert by_place.tolist() == by_name.tolist()
    assert found.predict(points).shape == (2, 362)


def test_text_and_lists_are_populations():
    x = [[1.0], [2.0]]
    assert ek.Evaluator(["x1", ek.parse("2 * x1")[0]], x).evaluate().tolist() == [[1, 2], [2, 4]]
    assert len(ek.fit(("p1", "p1 * x1"), x, [1, 2])) == 2
    with pytest.raises(ParseError):
        ek.fit(["p1 * a", "("], x, [1, 2])
    with pytest.raises(DataError, match="must be a Population"):
        ek.fit(7, x, [1, 2])
