"""What the user hands over: tables and arrays, what is missing, what rounding spoils, whose memory it is."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

import exprkit as ek
from exprkit.backends import contract
from exprkit.backends.interpreter import engine as interpreter
from exprkit.backends.objective import Options
from exprkit.backends.reference import engine as definition
from exprkit.errors import ArgumentError, BackendError, DataError, ParseError, one_of
from exprkit.evaluate import evaluator, rounding
from exprkit.evaluate import inputs as user_inputs

F4, F8 = np.dtype("float32"), np.dtype("float64")
HERE = ("numpy", "cpu")
random = np.random.default_rng(0)


class Device(np.lib.mixins.NDArrayOperatorsMixin):
    """An array on a card that is not there: as CuPy's, NumPy's functions leave it there, and only ``get`` brings it."""

    device = "card"
    able = (np.sort, np.sum, np.any, np.may_share_memory)

    def __init__(self, array):
        self.array = np.asarray(array)

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        assert method == "__call__"
        if any(isinstance(one, np.ndarray) and one.ndim for one in inputs):
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        return Device(ufunc(*(one.array if isinstance(one, Device) else one for one in inputs), **kwargs))

    def __array_function__(self, function, kinds, args, kwargs):
        assert function in self.able, function
        found = function(*(one.array if isinstance(one, Device) else one for one in args), **kwargs)
        return found if isinstance(found, bool) else Device(found)

    def __getattr__(self, name):
        if name in ("shape", "ndim", "dtype", "size", "flags"):
            return getattr(self.array, name)
        if name in ("min", "max", "sum", "any", "all", "astype", "copy", "reshape"):
            return lambda *args, **kwargs: Device(getattr(self.array, name)(*args, **kwargs))
        raise AttributeError(name)

    def __getitem__(self, place):
        place = place if isinstance(place, tuple) else (place,)
        return Device(self.array[tuple(one.array if isinstance(one, Device) else one for one in place)])

    def __len__(self):
        return len(self.array)

    def __bool__(self):
        return bool(self.array)

    def __int__(self):
        return int(self.array)

    def __float__(self):
        return float(self.array)

    def item(self):
        return self.array.item()

    def get(self):
        return self.array.copy()


def adopt(values):
    return values if isinstance(values, Device) else None


class DeviceEngine(definition.Engine):
    """The definition, whose data, targets and losses are on the card."""

    def __init__(self, pop, X, **options):
        assert isinstance(X, Device)
        super().__init__(pop, X.get(), **options)

    def loss_sums(self, params, y, weights, kind):
        y, weights = (one.get() if isinstance(one, Device) else one for one in (y, weights))
        return Device(super().loss_sums(params, y, weights, kind))


@pytest.fixture
def on_card(monkeypatch):
    """Evaluators whose backend works on the card."""
    backend = contract.Backend(
        lambda: None, lambda: "a card", DeviceEngine, adopt=adopt,
        empty=lambda shape, dtype: Device(np.empty(shape, dtype)),
    )  # fmt: skip
    monkeypatch.setattr(evaluator, "load", lambda name: backend)
    return lambda pop, X, **options: ek.Evaluator(pop, Device(X), "card", **options)


# ── what rounding to float32 spoils ──────────────────────────────────────────────────

SECONDS = 1.7e9 + np.arange(86400.0)
SPOILT = {
    "seconds": (SECONDS[:200], "200 different numbers, from 1700000000 to 1700000199, become 3 in float32"),
    "a day": (SECONDS, "86,400 different numbers, .* become 676 in float32"),
    "before 1970": (-SECONDS[:200], "from -1700000199 to -1700000000, become 3"),
    "milliseconds as whole numbers": (1_700_000_000_000 + np.arange(500), "500 different numbers, .* become 1 in"),
    "minutes of a year as Julian days": (2460000.5 + np.arange(525_600) / 1440, "525,600 different numbers"),
    "identifiers": (2**24 + np.arange(10**5), "100,000 different numbers, .* become 50,001"),
    "tiny": (1e-50 * np.arange(1, 9), "all numbers, at most 8e-50, become 0 in float32: scale them"),
    "a tiny constant": (np.full(5, 1e-50), "all numbers, at most 1e-50, become 0"),
    "subnormal": (random.uniform(0, 1e-42, 1000), "1,000 different numbers, .*: scale them"),
    "huge": (np.array([1.0, -1e300, np.nan]), r"up to 1e\+300 are too large for float32, which ends at 3.4e\+38"),
}  # fmt: skip
FINE = {
    "temperatures": 290 + 5 * random.standard_normal(200), "many temperatures": random.uniform(285, 295, 10**6),
    "between 10 and 11": random.uniform(10, 11, 10**6), "between 0 and 1": random.random(10**6),
    "over 60 decades": 10 ** random.uniform(-30, 30, 10**5), "a constant": np.full(5, 290.123456789),
    "hours of a year": 1.7e9 + 3600 * np.arange(8760.0), "years": np.arange(1900, 2100), "flags": np.array([True]),
    "few large whole numbers": np.array([1e12, 3e13, 2e9]), "inf and nan": np.array([1.0, np.inf, -np.inf, np.nan]),
    "only nan": np.full(3, np.nan), "beside a tiny one": np.array([1e-50, 0.0, 1.0]), "the largest": np.array([3.4e38]),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILT)
@pytest.mark.parametrize("kind", [np.asarray, Device], ids=["host", "card"])
def test_a_column_that_float32_spoils_is_refused_by_name(name, kind):
    column, message = SPOILT[name]
    X = np.zeros((len(column), 3), column.dtype)
    X[:, 2] = column
    with pytest.raises(DataError, match=f'^column x3 of X: .*{message}.*, or use dtype="float64"'):
        user_inputs.data_matrix(kind(X), ek.parse("x3"), F4, adopt)
    with pytest.raises(DataError, match=r"^column 't' of X: "):
        user_inputs.data_matrix(kind(X), ek.parse("t", variables=["a", "b", "t"]), F4, adopt)
    user_inputs.data_matrix(kind(X), ek.parse("x2"), F4, adopt)  # who does not use it has no harm
    with pytest.raises(DataError, match=f"^y: .*{message}"):
        user_inputs.point_vector("y", kind(column), len(column), F4, adopt)


@pytest.mark.parametrize("name", FINE)
@pytest.mark.parametrize("kind", [np.asarray, Device], ids=["host", "card"])
def test_a_column_that_float32_does_no_harm_is_taken(name, kind):
    given = FINE[name]
    found = user_inputs.data_matrix(kind(given[:, None]), ek.parse("x1"), F4, adopt).values
    with np.errstate(over="ignore"):
        assert np.array_equal(user_inputs.on_host(found)[:, 0], given.astype(F4), equal_nan=True)
    assert len(user_inputs.point_vector("y", kind(given), len(given), F4, adopt)) == len(given)


def test_a_year_in_steps_of_ten_seconds_is_refused():
    assert (rounding.harm(1.7e9 + np.arange(0, 365 * 86400.0, 10), F4) or "").startswith("3,153,600 different numbers")


def test_float64_keeps_what_float32_spoils_and_merges_nothing_silently_either():
    for column, _ in SPOILT.values():
        user_inputs.data_matrix(column[:, None], ek.parse("x1"), F8)
    nanoseconds = 1_700_000_000_000_000_000 + np.arange(1000)
    with pytest.raises(DataError, match=r"1,000 different numbers, .* 5 in float64: subtract the least of them$"):
        user_inputs.data_matrix(nanoseconds[:, None], ek.parse("x1"), F8)


def test_time_stamps_are_refused_by_all_that_takes_data():
    t = SECONDS[:200]
    y, pop = np.sin((t - t[0]) / 20), ek.parse("p1 * sin((t - 1700000000) / p2)", variables=["t"])
    for given in (t[:, None], pd.DataFrame({"t": t}), {"t": t}):
        with pytest.raises(DataError, match=r"column 't' of X: 200 different numbers"):
            ek.fit(pop, given, y, init=[[1.0, 19.0]], accuracy="screen")
        assert ek.fit(pop, given, y, init=[[1.0, 19.0]]).r2[0] > 0.999999  # finished, so in float64
    with pytest.raises(DataError, match=r"^y: 200 different numbers"):
        ek.Evaluator("x1", y[:, None]).loss(None, t)


@pytest.mark.parametrize("kind", [np.asarray, Device], ids=["host", "card"])
def test_weights_that_vanish_or_overflow_in_float32_are_refused(kind):
    given = lambda *w: user_inputs.weights_vector(kind(np.array(w)), len(w), F4, adopt)  # noqa: E731
    assert user_inputs.on_host(given(0.0, 1e-30, 2.0)).tolist() == [0, np.float32(1e-30), 2]
    with pytest.raises(DataError, match=r"weights down to 1e-300 become 0 in float32: scale them, or use dtype="):
        given(0.0, 1e-300, 1.0)
    with pytest.raises(DataError, match=r"weights up to 1e\+300 are too large for float32"):
        given(1.0, 1e300)
    for wrong in ((np.nan, 1.0), (np.inf, 1.0), (-1.0, 1.0)):
        with pytest.raises(DataError, match=r"weights must be finite and not negative"):
            given(*wrong)


# ── what is missing ──────────────────────────────────────────────────────────────────


@pytest.fixture(params=HERE)
def here(request):
    return request.param


POP = ["p1 * a + p2", "p1 * exp(-a)"]
A = np.linspace(0.1, 2.0, 20)
TARGET = 3 * A + 1


def with_gaps(values, *places):
    values = np.array(values)
    values[list(places)] = np.nan
    return values


@pytest.mark.parametrize("method", ["lm", "lbfgs", "adam"])
def test_a_fit_says_which_column_lacks_how_many_values(here, method):
    pop = ek.parse(POP, variables=["a", "unused"])
    X = pd.DataFrame({"unused": np.full(20, np.nan), "a": with_gaps(A, 3, 4, 7)})
    fit = lambda X, y, **options: ek.fit(pop, X, y, method=method, backend=here, **options)  # noqa: E731
    with pytest.raises(DataError) as caught:
        fit(X, TARGET)
    assert str(caught.value) == (
        "column 'a' of X lacks 3 of 20 values: drop or fill those rows, or give them weight 0 "
        '(ek.fit(..., missing="drop") leaves them out)'
    )
    with pytest.raises(DataError, match=r"^y lacks 1 of 20 values: drop"):
        fit(X.assign(a=A), with_gaps(TARGET, 5))
    with pytest.raises(DataError, match=r"^y lacks 2 of 20 values: drop"):
        fit(X.assign(a=A), pd.array([None, 1, None, *range(17)], dtype="Int64"))
    weights = np.ones(20)
    weights[[3, 4, 5, 7]] = 0
    left_out = fit(X, with_gaps(TARGET, 5), weights=weights, max_iter=3000)
    assert left_out.params[0] == pytest.approx([3, 1], abs=1e-3)


def test_a_fit_refuses_infinite_targets_by_count(here):
    y = TARGET.copy()
    y[:2] = np.inf
    with pytest.raises(DataError, match=r"^y is infinite in 2 of 20 values: drop those rows, or give them weight 0$"):
        ek.fit("p1 * x1", A[:, None], y, backend=here)
    assert ek.fit("p1 * x1", A[:, None], y, weights=np.isfinite(y), backend=here).converged[0]


def test_losses_say_what_is_missing_and_values_are_nan_there(here):
    pop, params = ek.parse(["p1 * x1", "p1"]), [[2.0], [1.0]]
    ev = ek.Evaluator(pop, with_gaps(A, 0, 9)[:, None], here)
    assert np.flatnonzero(np.isnan(ev.evaluate(params)).any(axis=0)).tolist() == [0, 9]
    assert np.isnan(ev.jacobian(params)).any()
    w = (np.arange(20) % 9 > 0).astype(float)
    for call in (ev.loss, ev.loss_and_grad, ev.normal_equations):
        with pytest.raises(DataError, match=r"^column x1 of X lacks 2 of 20 values: drop or fill"):
            call(params, TARGET)
        with pytest.raises(DataError, match=r"^y lacks 1 of 20 values"):
            call(params, with_gaps(TARGET, 1), weights=w)
        for result in call(params, TARGET, weights=w):
            assert np.all(np.isfinite(result))
    assert np.isnan(ev.loss(params, TARGET, count_nonfinite=True)[0]).tolist() == [True, False]


def test_a_loss_that_is_nan_for_its_own_reasons_is_no_error(here):
    ev = ek.Evaluator(ek.parse(["log(x1 - 1)", "x1", "x1 +"], errors="mask"), A[:, None], here)
    assert np.isnan(ev.loss(None, TARGET)).tolist() == [True, False, True]


def test_nothing_is_looked_for_while_all_losses_are_numbers(here, monkeypatch):
    ev = ek.Evaluator("p1 * x1", A[:, None], here)
    monkeypatch.setattr(ev, "check_complete", lambda y, w: pytest.fail("looked"))
    ev.loss([[1.0]], TARGET)
    ev.loss_and_grad([[1.0]], TARGET)


def test_a_card_is_asked_once_for_each_target(on_card):
    ev = on_card("max(x1, 0) + 0 * x2", np.column_stack([A, with_gaps(A, 2)]))
    step = ev.loss_of(Device(TARGET))
    with pytest.raises(DataError, match=r"^column x2 of X lacks 1 of 20 values"):
        step(None)
    assert np.isnan(step(None).get()[0])  # known, and asked for again
    with pytest.raises(DataError, match=r"^column x2 of X lacks 1 of 20 values"):
        ev.loss(None, Device(TARGET))
    assert ev.loss(None, Device(TARGET), weights=Device(np.arange(20) != 2)).get()[0] > 0
    with pytest.raises(DataError, match=r"^y lacks 1 of 20 values"):
        on_card("x1", A[:, None]).loss(None, with_gaps(TARGET, 1))


# ── whose memory it is ───────────────────────────────────────────────────────────────


def all_of(ev, params, y):
    return [ev.evaluate(params), ev.jacobian(params), ev.loss(params, y), *ev.loss_and_grad(params, y)]


@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
@pytest.mark.parametrize("kind", [np.asarray, np.asfortranarray, pd.DataFrame, lambda X: {"x1": X[:, 0], "b": X[:, 1]}])
def test_an_evaluator_does_not_see_later_changes_of_the_data(here, dtype, kind):
    X, y, params = random.uniform(1, 2, (9, 2)).astype(dtype), np.ones(9, dtype), [[2.0], [3.0]]
    pop = ek.parse(["p1 * x1", "x2 ^ p1"])
    expected = all_of(ek.Evaluator(pop, X.copy(), here, dtype=dtype), params, y)
    for before in (False, True):  # derivatives are prepared when first asked for
        given = X.copy()
        ev = ek.Evaluator(pop, kind(given), here, dtype=dtype)
        if before:
            all_of(ev, params, y)
        given[:] = np.nan
        for found, wanted in zip(all_of(ev, params, y), expected, strict=True):
            assert np.array_equal(found, wanted)


@pytest.mark.parametrize("loss", ["squares", "gaussian", "poisson", "huber"])
def test_a_result_does_not_see_later_changes_of_the_data(here, loss):
    X, y, w = random.uniform(1, 2, (30, 1)), np.round(random.uniform(2, 9, 30)), random.uniform(1, 2, 30)
    results = []
    for spoil in (False, True):
        data, target, weights = X.copy(), y.copy(), w.copy()
        found = ek.fit("p1 * x1 + p2", data, target, weights=weights, loss=loss, backend=here, dtype=F8)
        if spoil:
            data[:], target[:], weights[:] = 0, 0, 0
        results.append([found.covariance, found.standard_errors])
        if loss in ("gaussian", "poisson"):
            results[-1].append(ek.description_length(found).total)
    for unspoilt, spoilt in zip(*results, strict=True):
        assert np.isfinite(unspoilt).all() and np.array_equal(unspoilt, spoilt)


def test_data_on_a_card_is_copied_there(on_card):
    X = random.uniform(1, 2, (9, 1))
    ev = on_card("x1", X, dtype=F8)
    X[:] = 0
    assert ev.X.array.min() >= 1


def test_data_is_copied_no_more_than_once(monkeypatch):
    X = random.uniform(1, 2, (1000, 3)).astype(F4)
    found = user_inputs.data_matrix(X, ek.parse("x1"), F4).values
    assert found.flags.owndata and not np.may_share_memory(found, X)
    monkeypatch.setattr(user_inputs, "as_numbers", lambda *args: X)  # what a list becomes is nobody else's
    assert user_inputs.data_matrix(X.tolist(), ek.parse("x1"), F4).values is X


def test_a_result_remembers_the_columns_that_it_was_fitted_to():
    table = pd.DataFrame({"name": list("abcd") * 5, "u": A[::-1], "a": A})
    pop = ek.parse("p1 + p2 * a", variables=["a"])
    found, plain = (ek.fit(pop, X, np.round(TARGET), loss="poisson", dtype=F8) for X in (table, A[:, None]))
    assert np.array_equal(found.covariance, plain.covariance) and np.isfinite(found.covariance).all()


def test_results_may_be_written_over_the_parameters(here):
    n = 40
    pop = ek.parse(["p1 + p2 * x1 + p3 + p4"] * n)
    X, params = random.uniform(1, 2, (4, 1)).astype(F4), random.uniform(1, 2, (n, 4)).astype(F4)
    ev = ek.Evaluator(pop, X, here)
    expected = ev.evaluate(params)
    shared = params.copy()
    assert ev.evaluate(shared, out=shared) is shared
    assert np.array_equal(shared, expected)
    room = np.zeros(n * 16 + 8, F4)
    slopes = ev.jacobian(params)
    given = room[8 : 8 + params.size].reshape(params.shape)
    given[:] = params
    assert np.array_equal(ev.jacobian(given, out=room[: n * 16].reshape(n, 4, 4)), slopes)
    over = X.reshape(1, 4)
    assert np.array_equal(ek.Evaluator("x1 * 2", X, here).evaluate(out=over), 2 * ev.X.T)


@pytest.mark.parametrize("spoil", ["read-only", "unaligned", "strided", "big-endian"])
def test_arrays_of_any_layout_are_taken(here, spoil):
    def odd(array):
        if spoil == "unaligned":
            memory = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
            memory[...] = array
            return memory
        if spoil == "strided":
            return np.repeat(array, 2, axis=-1)[..., ::2][..., ::-1][..., ::-1]
        array = array.astype(array.dtype.newbyteorder(">")) if spoil == "big-endian" else array.copy()
        array.flags.writeable = False
        return array

    pop, X, y = ek.parse(["p1 * x1", "x2 ^ p1"]), random.uniform(1, 2, (9, 2)).astype(F4), np.ones(9, F4)
    params = np.array([[2.0], [3.0]], F4)
    plain = all_of(ek.Evaluator(pop, X, here), params, y)
    for found, wanted in zip(all_of(ek.Evaluator(pop, odd(X), here), odd(params), odd(y)), plain, strict=True):
        assert np.array_equal(found, wanted)


# ── tables ───────────────────────────────────────────────────────────────────────────


def difference(table, pop="x1 - x2", **options):
    return ek.Evaluator(ek.parse(pop, **options), table, "numpy").evaluate()[0].tolist()


def test_a_table_s_columns_are_taken_by_name_where_all_that_are_used_have_it():
    assert difference(pd.DataFrame({"x2": [1.0, 2.0], "x1": [5, 7]})) == [4, 5]
    assert difference({"b": ["?", "?"], "x2": [1.0, 2.0], "x1": [5, 7]}) == [4, 5]
    assert difference({"x3": [1.0, 2.0], "x1": [5, 7]}, "x1 - x3") == [4, 5]
    assert difference(pd.DataFrame({"T": [1.0, 2.0], "c": [5, 7], "name": ["a", "b"]})) == [-4, -5]
    assert difference({"x1": [1.0, 2.0], "c": [5, 7]}) == [-4, -5]
    assert difference({"x2": [1.0], "T": [5], "c": [7]}, "T - c", variables=["c", "T"]) == [-2]
    assert difference(pd.DataFrame([[1.0, 5.0]])) == [-4]
    assert ek.Evaluator("p1", pd.DataFrame({"x1": [1.0, 2.0]})).evaluate([[3.0]]).tolist() == [[3, 3]]


@pytest.mark.parametrize(("table", "message"), [
    ({"T": [1.0], "x1": [2]}, "X has a column 'x1', but none is called 'x2': name all columns that are used, or none"),
    ({"T": [1.0, 2.0], "c": [2]}, r"the columns of X have different lengths: x1 \('T'\) 2, x2 \('c'\) 1"),
    ({"T": [1.0], "c": ["a"]}, r"column x2 \('c'\) of X must hold real numbers, not 'a': categories are"),
    (pd.DataFrame({"T": [1.0], "c": [b"a"]}), r"column x2 \('c'\) of X must hold real numbers, not b'a'"),
    (pd.DataFrame({"x1": [1.0], "x2": pd.to_datetime(["2020-01-01"])}), "x2 of X must hold real numbers, not date"),
    ({"T": [1.0], "c": [1j]}, r"column x2 \('c'\) of X must hold real numbers, not complex128"),
    ({"T": [1.0], "c": [[1.0]]}, r"column x2 \('c'\) of X must have one number per data point, not shape \(1, 1\)"),
    ({"T": 1.0, "c": 2.0}, "must have one number per data point, not shape"),
    (pd.DataFrame(np.ones((1, 3)), columns=["x2", "x1", "x2"]), "X has 2 columns called 'x2': names must differ"),
    ({"T": [1.0]}, "X has 1 column, but expression 0 .* needs 2"),
    ({}, "X has 0 columns, but expression 0 .* needs 2"),
])  # fmt: skip
def test_a_table_that_does_not_fit_says_which_column(table, message):
    with pytest.raises(DataError, match=message):
        difference(table)


@pytest.mark.parametrize("kind", ["Float64", "Int64", "boolean", "bool", "object", "float32", "int8", "category"])
def test_columns_of_every_numeric_kind_are_numbers(kind):
    table = pd.DataFrame({"x1": [0.5, 1.5, 2.5], "x2": pd.Series([1, 0, 1]).astype(kind)})
    assert difference(table) == [-0.5, 1.5, 1.5]


@pytest.mark.parametrize("kind", ["Float64", "Int64", "boolean", "object"])
def test_what_a_nullable_column_lacks_is_nan(kind):
    table = pd.DataFrame({"x1": [0.5, 1.5, 2.5], "x2": pd.Series([1, None, 1], dtype=kind)})
    assert np.array_equal(difference(table), [-0.5, np.nan, 1.5], equal_nan=True)
    with pytest.raises(DataError, match=r"^column x2 of X lacks 1 of 3 values"):
        ek.fit("p1 * x1 + x2", table, [1, 2, 3])
    with pytest.raises(DataError, match=r"^y lacks 1 of 3 values"):
        ek.fit("p1 * x1", table, table.x2)


@pytest.mark.parametrize("params", [
    [[None], [1.0, 2.0]], [["1"], ["1", "2"]], [b"a", b"bc"], ["1", "12"], [[1j], [1.0, 2.0]],
    [[np.datetime64("2020")], [1, 2]], [{1.0}, {1.0, 2.0}], np.array([[1, None], [1, 2]], object),
    np.array([["1", "2"]] * 2), [np.ma.masked_array([1.0], [True]), [1, 2]],
], ids=str)  # fmt: skip
def test_parameters_that_are_no_numbers_are_refused(params):
    with pytest.raises(DataError, match=r"params must"):
        ek.Evaluator(ek.parse(["p1", "p1 + p2"]), [[1.0]]).evaluate(params)


# ── nothing to do ────────────────────────────────────────────────────────────────────

EMPTY = {
    "none": [], "no parameter": ["x1", "2"], "unread": ["x1 +", "("], "some unread": ["x1 +", "p1 * x1 + p2"],
    "one parameter": ["p1"],
}  # fmt: skip


def shapes_of(pop, n_points, lead):
    exprs, n_params = (*lead, len(pop)), pop.max_params
    return {
        "evaluate": [(*exprs, n_points)], "jacobian": [(*exprs, n_points, n_params)], "loss": [exprs],
        "loss_and_grad": [exprs, (*exprs, n_params)],
        "normal_equations": [(*exprs, n_params, n_params), (*exprs, n_params), exprs],
    }  # fmt: skip


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("n_points", [0, 3])
def test_every_call_takes_empty_shapes(here, name, n_points):
    pop = ek.parse(EMPTY[name], errors="mask")
    X, y = np.ones((n_points, pop.n_vars)), np.ones(n_points)
    ev = ek.Evaluator(pop, X, here)
    for lead in ((), (0,), (2,)):
        params = np.ones((*lead, len(pop), pop.max_params))
        for call, shapes in shapes_of(pop, n_points, lead).items():
            found = getattr(ev, call)(params, *([y] if call[0] in "ln" else []))
            assert [one.shape for one in (found if isinstance(found, tuple) else [found])] == shapes, (call, lead)
    for method, weights in itertools.product(("lm", "lbfgs", "adam"), (None, np.zeros(n_points))):
        found = ek.fit(pop, X, y, method=method, weights=weights, backend=here, loss="gaussian", restarts=1, max_iter=2)
        assert found.params.shape == found.standard_errors.shape == (len(pop), pop.max_params)
        assert len(found.reason) == len(found.to_pandas()) == len(pop)
        if n_points == 0 or not len(pop) or weights is not None:
            assert ek.description_length(found).total.shape == (len(pop),)


@pytest.mark.parametrize("name", EMPTY)
def test_the_interpreter_takes_empty_shapes(emulated, name):
    pop = ek.parse(EMPTY[name], errors="mask")
    for n_points, n_sets in ((0, 0), (0, 2), (3, 0), (3, 2)):
        X, y, params = np.ones((n_points, pop.n_vars)), np.ones(n_points), np.ones((n_sets, len(pop), pop.max_params))
        engines = [interpreter.Engine(pop, X, precision="ieee", dtype=F8, device=emulated),
                   definition.Engine(pop, X, precision="ieee", dtype=F8)]  # fmt: skip
        results = []
        for engine in engines:
            values, J = np.empty((n_sets, len(pop), n_points)), np.empty((n_sets, len(pop), n_points, pop.max_params))
            engine.evaluate(params, values)
            engine.jacobian(params, J)
            fitted = engine.fit(params, y, None, Options()) if n_sets else None
            results.append([
                values, J, engine.loss_sums(params, y, None, "square"),
                *engine.loss_and_grad(params, y, None, "square"), *engine.normal_equations(params, y, None),
                *([fitted.status, fitted.params.shape] if fitted else []),
            ])  # fmt: skip
        for found, wanted in zip(*results, strict=True):
            np.testing.assert_allclose(found, wanted)


# ── names and kinds of arguments ─────────────────────────────────────────────────────


@pytest.mark.parametrize(("option", "meant"), [
    ("weight", "weights"), ("bound", "bounds"), ("restart", "restarts"), ("random_state", "seed"),
    ("n_jobs", "threads"),    ("block_sise", "block_size"), ("maxiter", "max_iter"), ("verbose", "progress"),
])  # fmt: skip
def test_a_misspelt_argument_of_a_fit_is_told_the_right_one(option, meant):
    hint = f"; did you mean '{meant}'?" if meant else ""
    with pytest.raises(ArgumentError) as caught:
        ek.fit("p1", [[1.0]], [1.0], **{option: 1})
    assert str(caught.value) == f"fit has no option {option!r}{hint}"


def test_a_misspelt_argument_of_an_evaluator_is_told_the_right_one():
    with pytest.raises(ArgumentError, match=r"^Evaluator has no option 'thread'; did you mean 'threads'"):
        ek.Evaluator("x1", [[1.0]], thread=1)
    with pytest.raises(ArgumentError, match=r"^backend 'cpu' has no option 'block_size': it has none"):
        ek.Evaluator("x1", [[1.0]], "cpu", block_size=32)
    with pytest.raises(BackendError, match=r"there is no backend 'gpu'; did you mean 'cuda'"):
        ek.Evaluator("x1", [[1.0]], "gpu")


def test_one_expression_or_text_is_a_population():
    (x1,) = ek.variables(1)
    for given in ("p1 * x1", ek.parse("p1 * x1")[0], ek.parse(["x2", "p1 * x1"])[1]):
        assert ek.Evaluator(given, [[2.0]]).evaluate([[3.0]]).tolist() == [[6]]
        assert ek.fit(given, [[2.0], [1.0]], [6.0, 3.0]).params[0] == pytest.approx(3)
    assert ek.Evaluator(2 * x1, {"x1": [1.0]}).evaluate().tolist() == [[2]]
    with pytest.raises(ParseError):
        ek.Evaluator("x1 +", [[1.0]])


@pytest.mark.parametrize("value", [np.array(["sse", "mse"]), ["sse"], {"a": 1}, None, 3, b"sse", np.array(1)], ids=str)
def test_a_choice_that_is_no_text_is_an_error_of_its_own(value):
    with pytest.raises(ArgumentError, match=r"kind must be one of 'sse', 'mse', not "):
        one_of("kind", value, ("sse", "mse"))
    with pytest.raises((ArgumentError, DataError, BackendError)):
        ek.Evaluator("x1", [[1.0]], backend=value)
    with pytest.raises(DataError, match=r"precision must be one of"):
        ek.Evaluator("x1", [[1.0]], precision=value)


def test_what_was_given_is_shown_in_short():
    with pytest.raises(ArgumentError) as caught:
        one_of("kind", "x" * 10_000, ("sse",))
    assert len(str(caught.value)) < 200
