"""Tables of a researcher's own: names of columns as variables, what is missing, what is no number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import exprkit as ek
from exprkit.errors import ArgumentError, DataError, ParseError
from exprkit.regression.rules import units
from exprkit.text.names import in_text

pd = pytest.importorskip("pandas")

TABLE = pd.DataFrame({
    "Temp (°C)": [1.0, 2, 3, 4], "gamma": [2, 1, 3, 1], "wet": [True, False, True, True], "site": list("abca"),
    "rate": [3.0, 5, 7, 9],
})  # fmt: skip


@pytest.mark.slow
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
    data = {name: np.linspace(1, 2, 12)}
    fitted = ek.fit([f"p1 * `{name}`", "p1", "p1 / 0"], data, 3 * data[name])
    shown = fitted._repr_html_()
    assert "<img" not in shown and "&lt;img" in shown and shown.count("<tr") == 4
    assert shown.index("&lt;img") < shown.index("<td>p1</td>") < shown.index("<td>p1 / 0</td>"), "the best first"
    searched = ek.exhaustive_search(data, 3 * data[name], max_nodes=3, backend="cpu")
    assert "<img" not in searched._repr_html_() and "&lt;img" in searched._repr_html_()


def test_generated_populations_take_names():
    pop = ek.generate.exhaustive(3, variables=["Temp (°C)", "wet", "a"])
    plain = ek.generate.exhaustive(3, n_vars=3)
    assert pop == ek.Population(plain.kinds, plain.values, plain.offsets, variables=["Temp (°C)", "wet", "a"])
    assert ek.generate.random(5, variables=["a", "b"]).variables == ("a", "b")
    assert ek.generate.random(5, variables=["x1", "x2"]) == ek.generate.random(5, n_vars=2)
    with pytest.raises(ParseError, match="comes twice"):
        ek.generate.random(5, variables=["a", "a"])
    for generate in (ek.generate.random, ek.generate.exhaustive):
        with pytest.raises(ArgumentError, match="n_vars=5, but variables are 1: give one of the two"):
            generate(2, n_vars=5, variables=["a"])


# ── what columns are called, and what tables there are ──


LINE = np.arange(4.0)


def line(name, **others):
    """A table whose column of this name gives y = 2 a + 1."""
    return pd.DataFrame({name: LINE, **others, "y": 2 * LINE + 1})


@pytest.mark.parametrize("name", ["pi", "inf", "nan", "sin", "θ₁", "x2", " a ", "0"])
def test_a_name_of_something_else_is_a_column_between_backquotes(name):
    found = ek.fit(f"p1 * `{name}` + p2", line(name), "y", dtype="float64")
    assert found.params[0] == pytest.approx([2, 1])
    assert ek.parse(str(found[0]), data=line(name))[0](line(name)) == pytest.approx(2 * LINE + 1)


@pytest.mark.parametrize(("name", "text", "said"), [
    ("pi", "p1 * pi + p2", "'pi' is a number; what is called so as well is written `pi`"),
    ("p1", "p1 * p2 + p3", "'p1' is also how one of the parameters"),
    ("p1", "p1 * x1 + p2", "'p1' is also how one of the parameters"),
    ("\u03bc", "p1 * \u00b5", r"is there, of other characters: U\+00B5 is not U\+03BC"),
    ("θ₁", "p1 * θ₁", "between backquotes"),
    ("Temp", "p1 * `Temp (°C)`", r"unknown name .`Temp \(°C\)`.; variables are Temp"),
])  # fmt: skip
def test_a_column_is_not_taken_for_something_else(name, text, said):
    with pytest.raises(ParseError, match=said):
        ek.fit(text, line(name), "y")


def test_the_usual_names_are_the_same_when_they_are_given():
    plain, named = ek.parse("x1 + x2"), ek.Population([1, 1, 3], [0, 1, 1], [0, 3], variables=["x1", "x2"])
    one = ek.Expression(named.kinds, named.values, ("x1", "x2"))
    assert ek.parse([one, plain[0]]).n_vars == 2 and str(one * plain[0]) == "(x1 + x2) * (x1 + x2)"


def test_columns_that_no_text_can_name_may_stand_by():
    table = pd.concat([line("a", b=LINE).set_axis(["a", "two\nlines", "y"], axis=1), line("c", nan=1, d=1)], axis=1)
    table.columns = ["a", "two\nlines", "y", "c", "", "twice", "twice"]
    found = ek.fit("p1 * a + p2", table, "y")
    assert found.params[0] == pytest.approx([2, 1]) and found[0](table) == pytest.approx(2 * LINE + 1)
    with pytest.raises(DataError, match="2 columns called 'twice'"):
        ek.fit("p1 * twice", table, "y")


def test_arrays_with_fields_series_and_numbered_columns_are_tables():
    for X, y in ((line("a").to_records(), "y"), (line("a")["a"], line("a")["y"])):
        assert ek.fit("p1 * a + p2", X, y)[0](line("a")) == pytest.approx(2 * LINE + 1)
    assert ek.fit("p1 * `0` + p2", line("a").set_axis([0, 1], axis=1), 1).params[0] == pytest.approx([2, 1])
    assert ek.data.from_table(line("a").to_records(index=False), "y").variables == ("a",)
    with pytest.raises(DataError, match="expressions come first, then the data"):
        ek.fit(line("a"), "p1 * a", "y")


class Polarish:
    """As polars is: a table without ``iloc``, that gives columns by name and goes through them itself."""

    def __init__(self, columns):
        self._columns = columns
        self.columns = list(columns)

    def __getitem__(self, name):
        return self._columns[name]

    def __iter__(self):
        return iter(self._columns.values())

    def __len__(self):
        return 4

    def to_numpy(self):
        raise NotImplementedError


def test_other_libraries_tables():
    table = Polarish({"a": LINE, "site": ["u", "v", "u", "v"], "y": 2 * LINE + 1})
    found = ek.fit("p1[site] * a + p2", table, "y", weights="a")
    assert found[0](table) == pytest.approx(2 * LINE + 1)

    class Text:
        dtype = type("Categorical", (), {"categories": object()})()

        def __iter__(self):
            return iter("uuvw")

    with pytest.raises(DataError, match=r"holds categories \(u, v, w\), not quantities"):
        ek.fit("p1 * site", Polarish({"site": Text(), "y": LINE}), "y")


class Quantity:
    """As pint has it."""

    def __init__(self, magnitude):
        self.magnitude, self.units, self.dimensionality = np.asarray(magnitude), "metre", "[length]"

    shape = property(lambda self: self.magnitude.shape)
    __len__ = lambda self: len(self.magnitude)  # noqa: E731
    __str__ = lambda self: "m/s"  # noqa: E731


def test_numbers_with_units_and_lazy_tables_are_told():
    X, y = [[1.0], [2.0], [3.0]], [1.0, 2, 3]
    for call in (
        lambda: ek.fit("p1 * x1", Quantity(X), y),
        lambda: ek.fit("p1 * x1", X, Quantity(y)),
        lambda: ek.fit("p1 * x1", X, y, weights=Quantity(y)),
        lambda: ek.Evaluator("x1", Quantity(X)),
        lambda: ek.fit("p1 * a", {"a": Quantity(y)}, y),
        lambda: ek.SymbolicRegressor().fit(Quantity(X), y),
        lambda: ek.SymbolicRegressor().fit(X, Quantity(y)),
        lambda: ek.exhaustive_search(X, Quantity(y)),
    ):
        with pytest.raises(DataError, match=r"has the unit metre: give the numbers, as .to\(…\).magnitude"):
            call()
    assert units.exponents(Quantity(1)) == units.exponents("m/s")
    lazy = type("LazyFrame", (), {"collect": None, "collect_schema": None, "columns": ["a"]})()
    sets = type("Dataset", (), {"to_dataframe": None, "data_vars": {}})()
    for table, message in ((lazy, r"LazyFrame, .*give X.collect\(\)"), (sets, r"give X.to_dataframe\(\)")):
        for call in (lambda: ek.fit("p1 * a", table, "y"), lambda: ek.SymbolicRegressor().fit(table, y)):  # noqa: B023
            with pytest.raises(DataError, match=message):
                call()


@pytest.mark.slow
def test_columns_of_several_levels_are_named_by_all():
    table = pd.DataFrame({("a", "mean"): LINE, ("b", ""): 1.0, ("y", "sd"): 2 * LINE + 1})
    found = ek.fit("p1 * a_mean + p2 * b", table, "y_sd")
    assert found.params[0] == pytest.approx([2, 1]) and found.predict(table)[0] == pytest.approx(2 * LINE + 1)
    assert ek.parse("a_mean + b", data=table).variables == ("a_mean", "b", "y_sd")
    assert ek.data.from_table(table).variables == ("a_mean", "b")
    found = ek.SymbolicRegressor(niterations=0).fit(table.iloc[:, :2], 3 * LINE)
    assert found.feature_names_in_.tolist() == ["a_mean", "b"]


def test_rows_in_another_order_are_refused():
    table = line("a")
    other = table[::-1]
    with pytest.raises(DataError, match=r"in another order: give y.loc\[X.index\]"):
        ek.fit("p1 * a + p2", table[["a"]], other["y"])
    assert ek.fit("p1 * a + p2", other[["a"]], other["y"]).params[0] == pytest.approx([2, 1])
    assert ek.fit("p1 * a + p2", table[["a"]], table["y"].set_axis(range(9, 13))).r2[0] == pytest.approx(1)


def test_whatever_belongs_to_rows_in_another_order_is_refused():
    table = line("a", s=[1.0, 2, 1, 2])
    X, y, other = table[["a"]], table["y"], table[::-1]
    own = {"loss": "((f - y) / s)^2", "columns": {"s": other["s"]}}
    ev, fit = ek.Evaluator("a", X), lambda **options: ek.fit("p1 * a + p2", X, y, **options)
    search = lambda **options: ek.exhaustive_search(X, y, max_nodes=1, **options)  # noqa: E731
    for name, compute in {
        "weights": lambda: fit(weights=other["s"]), "column s": lambda: fit(**own),
        "y": lambda: ev.loss(None, other["y"]),
        "weights ": lambda: ev.loss(None, y, weights=other["s"]), " weights": lambda: search(weights=other["s"]),
        " y": lambda: ev.loss(None, other["y"], own["loss"], columns={"s": table["s"]}),
        " column s": lambda: ev.loss(None, y, own["loss"], columns=own["columns"]),
        "sigma": lambda: search(sigma=other["s"]),
        "  y": lambda: ek.SymbolicRegressor().fit(X, other["y"]),
        "sample_weight": lambda: ek.SymbolicRegressor().fit(X, y, sample_weight=other["s"]),
        " y ": lambda: ek.SymbolicRegressor(max_evals=10).fit(X, y).score(X, other["y"]),
        "y  ": lambda: ek.fit("p1 * a + p2", {"a": X["a"]}, other["y"]),
        "column b": lambda: ek.fit("p1 * a + p2 * b", {"a": X["a"], "b": other["s"]}, y),
    }.items():  # fmt: skip
        with pytest.raises(DataError, match=f"{name.strip()} has the labels of X's rows in another order: give "):
            compute()
    assert fit(weights=table["s"], loss="((f - y) / s)^2", columns={"s": table["s"]}).r2[0] == pytest.approx(1)
    assert ev.loss(None, y.to_numpy()[::-1], weights=table["s"])[0] > 0


def test_weights_columns_of_losses_and_starts_by_name():
    table = line("a", s=[1.0, 2, 1, 2], off=[1.0, 1, 0, 0])
    table.loc[2:, "y"] += 1
    by_name = ek.fit("p1 * a + p2", table, "y", weights="off")
    assert by_name.loss.tolist() == ek.fit("p1 * a + p2", table, "y", weights=table["off"]).loss.tolist()
    loss = "((f - y) / s)^2"
    wanted = ek.fit("p1 * a + p2", table, "y", loss=loss, columns={"s": table["s"]}).params.tolist()
    for columns in (["s"], {"s": "s"}):
        assert ek.fit("p1 * a + p2", table, "y", loss=loss, columns=columns).params.tolist() == wanted
    problem = ek.FitProblem(table, "y", weights="off", loss=loss, columns=["s"])
    assert problem.fit("p1 * a + p2").loss[0] == pytest.approx(0)
    start = ek.fit("p1^2 * a", table, "y", init={"p1": -3})
    assert start.params[0, 0] < 0
    with pytest.raises(ArgumentError, match="init: there is no parameter 'k'; there are p1"):
        ek.fit("p1 * a", table, "y", init={"k": 1})
    with pytest.raises(ParseError, match="unknown name 's'; variables are f, y, w; more by columns="):
        ek.fit("p1 * a", table, "y", loss=loss)


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
        ek.fit("p1 * a + b", table, [1, 2, 3, 4], accuracy="screen")
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


def test_masked_values_are_missing():
    y = np.ma.masked_greater([1.0, 2, 3, 99], 50)
    for X in ({"a": [1, 2, 3, 4]}, np.array([[1.0], [2], [3], [4]])):
        text = "p1 * a" if isinstance(X, dict) else "p1 * x1"
        assert ek.fit(text, X, y, missing="drop").params[0] == pytest.approx([1])
        with pytest.raises(DataError, match="y has masked values"):
            ek.fit(text, X, y)
    with pytest.raises(DataError, match="column 'a' of X lacks 1 of 4 values"):
        ek.fit("p1 * a", {"a": y}, [1, 2, 3, 4])
    table = {"a": [1, 2, 3, 4], "site": ["u", None, "u", "v"]}
    assert ek.fit("p1[site] * a", table, [1, 9, 3, 8], missing="drop").params[0] == pytest.approx([1, 2])


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
    for texts in (np.array(["p1", "p1 * x1"]), pd.Series(["p1", "p1 * x1"]), pd.Index(["p1", "p1 * x1"])):
        assert ek.fit(texts, x, [1, 2]).pop == ek.parse(["p1", "p1 * x1"])
    assert ek.fit(ek.parse("p1 * x1")[0].sympy(), x, [2, 4]).params[0] == pytest.approx([2])
    by_site = {"a": [1.0, 2, 1, 2], "site": list("uuvv"), "y": [2.0, 4, 3, 6]}
    assert ek.fit(pd.Series(["p1[site] * a"]), by_site, "y").params[0] == pytest.approx([2, 3])
    with pytest.raises(DataError, match="must be a Population, not ndarray"):
        ek.fit(np.ones(2), x, [1, 2])
    with pytest.raises(DataError, match="X is missing"):
        ek.Evaluator("x1", None)
    with pytest.raises(ParseError):
        ek.fit(["p1 * a", "("], x, [1, 2])
    with pytest.raises(DataError, match="must be a Population"):
        ek.fit(7, x, [1, 2])


def test_one_row_of_a_table_is_told_from_a_column():
    table = line("a", b=1.0)
    found = ek.fit("p1 * a + p2", table, "y")
    with pytest.raises(DataError, match=r"X is one row of a table: keep it a table, as table.iloc\[\[0\]\]"):
        found.predict(table.iloc[0])
    assert found.predict(table.iloc[[0]]).shape == (1, 1)
    assert ek.fit("p1 * x1 + p2", table["a"], table["y"]).r2[0] == pytest.approx(1)


def test_the_column_of_categories_is_named_where_it_is_not_there():
    table = line("a", site=["u", "v", "u", "v"])
    found = ek.fit("p1[site] * a + p2", table, "y")
    with pytest.raises(DataError, match="X has no column 'site=u', nor 'site', whose categories would make it"):
        found.predict(table[["a"]])
