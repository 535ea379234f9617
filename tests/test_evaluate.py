"""The evaluator: shapes, kinds of arrays, losses and the texts of its errors, on every backend that can run here."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest

import exprkit as ek
from exprkit.errors import BackendError, DataError, ExprkitError
from exprkit.evaluate import evaluator

TEXTS = ["x1 + 2.5", "p1 * x2 ^ 2", "p1 * x1 + p2", "sqrt(x1)"]
PARAMS = [[], [3.0], [2.0, -1.0], []]
RAGGED = [np.array(vector) for vector in PARAMS]


@pytest.fixture
def pop():
    return ek.parse(TEXTS)


@pytest.fixture
def X():
    return np.random.default_rng(0).uniform(0.5, 4.0, (7, 2))


def expected(X, params=PARAMS):
    x1, x2 = X.astype(np.float32).astype(np.float64).T
    return np.array([x1 + 2.5, params[1][0] * x2**2, params[2][0] * x1 + params[2][1], np.sqrt(x1)])


def test_results_are_expressions_by_points(pop, X, backend):
    result = ek.Evaluator(pop, X, backend=backend).evaluate(PARAMS)
    assert result.shape == (4, 7) and result.dtype == np.float32
    np.testing.assert_allclose(result, expected(X), rtol=1e-6)


def test_float64(pop, X, backend):
    result = ek.Evaluator(pop, X, backend=backend, dtype=np.float64).evaluate(PARAMS)
    x1, x2 = X.T
    np.testing.assert_allclose(result, [x1 + 2.5, 3 * x2**2, 2 * x1 - 1, np.sqrt(x1)], rtol=1e-15)


def test_parameters_come_in_three_forms(pop, X, backend):
    ev = ek.Evaluator(pop, X, backend=backend)
    by_vectors = ev.evaluate(PARAMS)
    padded = np.full((4, 2), np.nan)
    padded[1, 0], padded[2] = 3.0, (2.0, -1.0)
    assert np.array_equal(ev.evaluate(RAGGED), by_vectors)
    assert np.array_equal(ev.evaluate(padded), by_vectors)
    assert np.array_equal(ev.evaluate(padded.tolist()), by_vectors)
    sets = np.stack([padded, padded * 2])
    result = ev.evaluate(sets)
    assert result.shape == (2, 4, 7)
    assert np.array_equal(result[0], by_vectors)
    np.testing.assert_allclose(result[1], expected(X, [[], [6.0], [4.0, -2.0], []]), rtol=1e-6)
    assert np.array_equal(ev.evaluate([PARAMS, PARAMS])[1], by_vectors)


def test_a_vector_of_too_many_parameters_is_an_error(X):
    ev = ek.Evaluator(ek.parse(["p1 * x1", "x2"]), X)
    with pytest.raises(DataError, match=r"params\[0\] has length 3, but expression 0 \(p1 \* x1\) has 1 parameter"):
        ev.evaluate([[1, 2, 3], [1, 2, 3]])


def test_one_expression_takes_a_plain_vector(X, backend):
    ev = ek.Evaluator(ek.parse(["p1 + p2 * x1"]), X, backend=backend)
    assert np.array_equal(ev.evaluate([1.0, 2.0]), ev.evaluate([[1.0, 2.0]]))
    assert np.array_equal(ev.evaluate(np.array([1.0, 2.0])), ev.evaluate([[1.0, 2.0]]))


def test_out_is_filled_and_returned(pop, X, backend):
    ev = ek.Evaluator(pop, X, backend=backend)
    out = np.full((4, 7), -1, np.float32)
    assert ev.evaluate(PARAMS, out=out) is out
    assert np.array_equal(out, ev.evaluate(PARAMS))


def test_losses_go_into_memory_of_the_callers(pop, X, backend):
    ev = ek.Evaluator(pop, X, backend)
    y = np.linspace(0, 1, len(X))
    for params, kind in ((PARAMS, "sse"), (np.ones((3, len(pop), pop.max_params)), "rmse")):
        expected = ev.loss(params, y, kind)
        out = np.zeros(expected.shape)
        assert ev.loss(params, y, kind, out=out) is out
        np.testing.assert_array_equal(out, expected)
        loss, counts = ev.loss(params, y, kind, count_nonfinite=True, out=out)
        assert loss is out and counts.shape == (*out.shape, 2)
    for wrong in (np.zeros(len(pop) + 1), np.zeros(len(pop), np.float32), [0.0] * len(pop)):
        with pytest.raises(DataError, match="out must"):
            ev.loss(PARAMS, y, out=wrong)


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.0, 0.5, 1.0, 3.0, 1.0]])
def test_losses_are_those_of_the_matrix(pop, X, backend, weights):
    ev = ek.Evaluator(pop, X, backend=backend, dtype="float64")
    y = np.linspace(0, 3, 7)
    error = ev.evaluate(PARAMS) - y
    w = np.ones(7) if weights is None else np.array(weights)
    means = (w * error**2).sum(axis=1) / w.sum()
    wanted = {
        "sse": (w * error**2).sum(axis=1),
        "mse": means,
        "rmse": np.sqrt(means),
        "mae": (w * abs(error)).sum(axis=1) / w.sum(),
    }
    for kind, value in wanted.items():
        result = ev.loss(PARAMS, y, kind=kind, weights=weights)
        assert result.shape == (4,) and result.dtype == np.float64
        np.testing.assert_allclose(result, value, rtol=1e-12)
    assert ev.loss([PARAMS] * 3, y).shape == (3, 4)


OWN = "logcosh((f - y) / s) * w"
KINDS = ("sse", "mse", "rmse", "mae", "sae", "sum", "r2", "max", "correlation", "(sqrt(abs(f)) - y)^2", OWN)


def arguments_of(kind, n):
    """y, weights and columns of a loss, of numbers that no two calls share."""
    y, w, s = np.random.default_rng(1).uniform(0.5, 2, (3, n))
    return y, w, {"s": s} if kind == OWN else None


def same(arrays, others):
    for one, other in zip(arrays, others, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("devices", [None, 2])
def test_a_prepared_loss_is_the_loss_and_its_gradient(pop, X, backend, kind, devices):
    if devices and backend not in ("cpu", "numpy"):
        pytest.skip("of this host's cores")
    gradients = backend != "ptx"  # it makes none
    ev = ek.Evaluator(pop, X, backend, dtype="float64", devices=devices)
    y, w, columns = arguments_of(kind, len(X))
    step = ev.loss_of(y, kind, w, columns=columns)
    sets = np.ones((3, 4, 2)) * [[[1.0]], [[2.0]], [[0.5]]]
    for params in (PARAMS, sets, sets[1], sets):
        wanted = ev.loss(params, y, kind, w, columns=columns)
        np.testing.assert_array_equal(step(params), wanted)
        out = np.zeros(wanted.shape)
        assert step(params, out=out) is out
        np.testing.assert_array_equal(out, wanted)
        counted = ev.loss(params, y, kind, w, True, columns=columns)
        same(step(params, count_nonfinite=True), counted)
        if gradients:
            same(step.with_gradient(params), ev.loss_and_grad(params, y, kind, w, columns=columns))


@pytest.mark.parametrize("kind", ["rmse", "correlation", OWN])
def test_a_prepared_loss_follows_its_evaluator_and_not_its_arrays(pop, X, backend, kind):
    ev = ek.Evaluator(pop, X, backend, dtype="float64")
    y, w, columns = arguments_of(kind, len(X))
    kept = y.copy(), kind, w.copy(), False, None
    own = {"columns": None if columns is None else {"s": columns["s"].copy()}}
    step = ev.loss_of(y, kind, w, columns=columns)
    for array in (y, w, *(columns or {}).values()):
        array[:] = 7.0
    for new, params in ((pop, PARAMS), (pop[::-1], PARAMS[::-1]), (ek.parse(["x2 * p1"]), [[2.0]]), (pop, PARAMS)):
        ev.update(new)
        fresh = ek.Evaluator(new, X, backend, dtype="float64")
        np.testing.assert_array_equal(step(params), fresh.loss(params, *kept, **own))
        if backend != "ptx":
            same(step.with_gradient(params), fresh.loss_and_grad(params, *kept[:3], **own))


def test_a_prepared_loss_is_that_of_the_backend_of_losses(pop, X, monkeypatch):
    ev = ek.Evaluator(pop, X, "cpu", dtype="float64")
    ev._choices = {"values": ev._as_asked(), "losses": ev._as_asked()._replace(name="numpy")}
    step = ev.loss_of(X[:, 0])
    for new in (pop, pop[:2], pop):
        ev.update(new)
        np.testing.assert_allclose(
            step(PARAMS[: len(new)]), ek.Evaluator(new, X, "numpy", dtype="float64").loss(PARAMS[: len(new)], X[:, 0])
        )
        assert ev._other.backend == "numpy" and ev._other.pop is new


def test_what_is_wrong_is_said_when_a_loss_is_prepared(pop, X, backend):
    ev = ek.Evaluator(pop, X, backend)
    for message, how in {
        r"y must have shape \(7,\)": {"y": np.ones(6)},
        "weights must be finite and not negative": {"y": X[:, 0], "weights": -X[:, 0]},
        "kind": {"y": X[:, 0], "kind": "squared"},
        r"y lacks 1 of 7 values": {"y": np.where(np.arange(7) == 3, np.nan, 1.0), "kind": "logcosh(f - y)"},
    }.items():
        with pytest.raises(DataError, match=message):
            ev.loss_of(**how)
    step = ev.loss_of(np.where(np.arange(7) == 3, np.nan, 1.0))
    for _ in range(2):
        with pytest.raises(DataError, match="y lacks 1 of 7 values"):
            step(PARAMS)
    with pytest.raises(DataError, match="params must be a list of 4 vectors"):
        ev.loss_of(X[:, 0])([[1.0]])
    with pytest.raises(DataError, match="out must have shape"):
        ev.loss_of(X[:, 0])(PARAMS, out=np.zeros(3))


def test_a_point_of_weight_zero_does_not_count_even_if_nan(backend):
    ev = ek.Evaluator(ek.parse(["log(x1)"]), [[1.0], [-1.0], [1.0]], backend=backend)
    assert np.isnan(ev.loss(None, [1, 1, 1]))[0]
    assert ev.loss(None, [1, 1, 1], weights=[1, 0, 1])[0] == 2


def test_nan_column_spoils_only_those_who_read_it(backend):
    X = np.array([[1.0, np.nan], [2.0, np.nan]])
    result = ek.Evaluator(ek.parse(["x1", "x2", "x1 + x2", "p1"]), X, backend=backend).evaluate([[], [], [], [5.0]])
    assert np.array_equal(result, np.array([[1, 2], [np.nan] * 2, [np.nan] * 2, [5, 5]], np.float32), equal_nan=True)


def test_bad_expressions_give_nan(backend):
    pop = ek.parse(["x1", "x1 +", "x1 * 2"], errors="mask")
    ev = ek.Evaluator(pop, [[3.0]], backend=backend)
    assert np.array_equal(ev.evaluate(), np.array([[3], [np.nan], [6]], np.float32), equal_nan=True)
    assert np.array_equal(ev.loss(None, [3.0]), [0, np.nan, 9], equal_nan=True)


@pytest.mark.parametrize("n_exprs, n_points", [(0, 3), (2, 0), (0, 0)])
def test_nothing_to_do(backend, n_exprs, n_points):
    ev = ek.Evaluator(ek.parse(["x1"] * n_exprs), np.zeros((n_points, 1)), backend=backend)
    assert ev.evaluate().shape == (n_exprs, n_points)
    assert np.array_equal(ev.loss(None, np.zeros(n_points)), np.zeros(n_exprs))
    assert ev.evaluate(np.zeros((2, n_exprs, 0))).shape == (2, n_exprs, n_points)


def test_frames_are_read_by_name(backend):
    frame = pd.DataFrame({"other": ["a", "b"], "log_Re": [3.0, 4.0], "r_k": [15.0, 30.0]})
    pop = ek.parse(["r_k - log_Re"], variables=["r_k", "log_Re"])
    assert np.array_equal(ek.Evaluator(pop, frame, backend=backend).evaluate(), [[12, 26]])
    with pytest.raises(DataError, match="X has no column 'r_k'; its columns are log_Re"):
        ek.Evaluator(pop, frame[["log_Re"]], backend=backend)


class Foreign:
    """An array of another library, as far as DLPack shows it."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def from_dlpack(array):
    return Foreign(array)


def test_results_are_the_kind_of_array_that_X_was(backend):
    ev = ek.Evaluator(ek.parse(["x1"]), Foreign(np.ones((3, 1))), backend=backend)
    result = ev.evaluate()
    assert isinstance(result, Foreign) and np.array_equal(result.array, np.ones((1, 3)))
    assert isinstance(ev.loss(None, np.ones(3)), Foreign)


def test_whole_numbers_and_flags_are_numbers(backend):
    assert ek.Evaluator(ek.parse(["x1 + x2"]), np.array([[1, True]]), backend=backend).evaluate()[0, 0] == 2


def test_fast_powers_of_negative_bases(backend):
    pop = ek.parse(["x1 ^ 2", "x1 ^ 5", "x1 ^ -3", "x1 ^ 0.5", "x1 ^ x2", "abs(x1) ^ x2"])
    X = [[-2.0, 3.0]]
    ieee = ek.Evaluator(pop, X, backend=backend).evaluate()[:, 0]
    fast = ek.Evaluator(pop, X, backend=backend, precision="fast").evaluate()[:, 0]
    np.testing.assert_allclose(ieee, [4, -32, -0.125, np.nan, -8, 8], rtol=1e-6)
    np.testing.assert_allclose(fast, [4, -32, -0.125, np.nan, np.nan, 8], rtol=1e-6)


WRONG = {
    "X must have shape (n_points, n_vars), not (7,); one variable is X.reshape(-1, 1)": lambda pop, X: ek.Evaluator(
        pop, X[:, 0]
    ),
    "X has 1 column, but expression 1 (p1 * x2 ^ 2) needs 2": lambda pop, X: ek.Evaluator(pop, X[:, :1]),
    "X has 7 columns, but the population's variables are a, b; X is (n_points, n_vars): did you mean X.T?": (
        lambda pop, X: ek.Evaluator(ek.parse(["a + b"], variables=["a", "b"]), X.T)
    ),
    "X must hold real numbers, not complex128": lambda pop, X: ek.Evaluator(pop, X * 1j),
    "X must be an array of numbers; its rows have different lengths": lambda pop, X: ek.Evaluator(pop, [[1], [1, 2]]),
    "the first argument must be a Population, not set: use exprkit.parse(...)": lambda pop, X: ek.Evaluator({"x1"}, X),
    "precision must be one of 'ieee', 'fast', not 'exact'": lambda pop, X: ek.Evaluator(pop, X, precision="exact"),
    "dtype must be one of 'float32', 'float64', not 'float16'; did you mean 'float64'?": lambda pop, X: ek.Evaluator(
        pop, X, dtype=np.float16
    ),
    "threads must be a whole number from 1 to 4,096, not 0": lambda pop, X: ek.Evaluator(pop, X, threads=0),
    "threads must be a whole number from 1 to 4,096, not 1000000000": lambda pop, X: ek.Evaluator(
        pop, X, threads=10**9
    ),
    "dtype must be one of 'float32', 'float64', not 'None'": lambda pop, X: ek.Evaluator(pop, X, dtype=None),
    "X has masked values: fill them with numbers, or leave those points out "
    '(ek.fit(..., missing="drop") leaves them out)': lambda pop, X: ek.Evaluator(pop, np.ma.masked_array(X, X > 0)),
    "params has 0 values per expression, but expression 1 (p1 * x2 ^ 2) has 1 parameter": (
        lambda pop, X: ek.Evaluator(pop, X).evaluate([np.zeros((4, 2)), np.zeros((4, 0))])
    ),
    "params must be a list of 4 vectors, one per expression; its length is None": (
        lambda pop, X: ek.Evaluator(pop, X).evaluate([PARAMS, None])
    ),
    "params holds a number too large for float64": (lambda pop, X: ek.Evaluator(pop, X).evaluate([[10**400]] * 4)),
    "params are missing: expression 1 (p1 * x2 ^ 2) has 1 parameter": lambda pop, X: ek.Evaluator(pop, X).evaluate(),
    "params must be a list of 4 vectors, one per expression; its length is 3": (
        lambda pop, X: ek.Evaluator(pop, X).evaluate(PARAMS[:3])
    ),
    "params[1] has length 2, but expression 1 (p1 * x2 ^ 2) has 1 parameter": (
        lambda pop, X: ek.Evaluator(pop, X).evaluate([[], [1.0, 2.0], [1.0, 2.0], []])
    ),
    "params has 1 value per expression, but expression 2 (p1 * x1 + p2) has 2 parameters": (
        lambda pop, X: ek.Evaluator(pop, X).evaluate(np.zeros((4, 1)))
    ),
    "params must be a list of 4 vectors, or have shape (4, 2) or (n_sets, 4, 2), not (3, 2)": (
        lambda pop, X: ek.Evaluator(pop, X).evaluate(np.zeros((3, 2)))
    ),
    "out must have shape (4, 7) and dtype float32, not (4, 7) and float64": lambda pop, X: ek.Evaluator(
        pop, X
    ).evaluate(PARAMS, out=np.zeros((4, 7))),
    "out must be C-contiguous and writeable": lambda pop, X: ek.Evaluator(pop, X).evaluate(
        PARAMS, out=np.zeros((7, 4), np.float32).T
    ),
    "y must have shape (7,), one value per data point, not (6,)": lambda pop, X: ek.Evaluator(pop, X).loss(
        PARAMS, np.zeros(6)
    ),
    "weights must be finite and not negative": lambda pop, X: ek.Evaluator(pop, X).loss(
        PARAMS, np.zeros(7), weights=-np.ones(7)
    ),
    "kind must be one of 'sse', 'mse', 'rmse', 'mae', 'sae', 'sum', 'r2', 'max', 'correlation' or an "
    "expression over f and y, not 'mes'; did you mean 'mse'?": lambda pop, X: ek.Evaluator(pop, X).loss(
        PARAMS, np.zeros(7), kind="mes"
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_errors_say_what_fits(pop, X, message):
    with pytest.raises(DataError) as caught:
        WRONG[message](pop, X)
    assert str(caught.value) == message


def test_unknown_backend(pop, X):
    with pytest.raises(BackendError, match="there is no backend 'cpuu'; did you mean 'cpu'"):
        ek.Evaluator(pop, X, backend="cpuu")
    assert issubclass(BackendError, ExprkitError)
    for name in ("CPU", None, 3):
        with pytest.raises(BackendError, match="there is no backend"):
            ek.Evaluator(pop, X, backend=name)


def test_sets_of_parameters_may_be_padded_differently(pop, X, backend):
    ev = ek.Evaluator(pop, X, backend=backend)
    wide = np.array([[9.0, 9, 9], [3, 9, 9], [2, -1, 9], [9, 9, 9]])
    for one_set in ev.evaluate([PARAMS, wide]):
        np.testing.assert_allclose(one_set, expected(X), rtol=1e-6)


def test_an_evaluator_is_not_sent_to_other_processes(pop, X):
    with pytest.raises(TypeError, match="an Evaluator cannot be pickled"):
        copy.copy(ek.Evaluator(pop, X))


def test_a_result_that_cannot_fit_says_so(X):
    pop = ek.parse(["x1"] * 1000)
    ev = ek.Evaluator(pop, np.zeros((10_000_000, 1), np.float32), backend="numpy")
    with pytest.raises(MemoryError, match=r"the result \(1000, 1000, 10000000\) needs 40000.0 GB"):
        ev.evaluate(np.zeros((1000, 1000, 0)))


HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)  # all that there are
MIDDLES = np.convolve(np.unique(HALVES[np.isfinite(HALVES)]), [0.5, 0.5], "valid")  # as near to one as to another


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_of_16_bits_are_numpy_s_rounding(backend, dtype):
    near = [toward(MIDDLES.astype(dtype)) for toward in (lambda x: x, lambda x: np.nextafter(x, 0), lambda x: 1.5 * x)]
    with np.errstate(all="ignore"):
        ends = np.array([65519.99, 65520, 1e9, 1e-9, 2**-25], dtype)
        X = np.concatenate([HALVES.astype(dtype), *near, ends])[:, None]
        ev = ek.Evaluator(ek.parse(["x1", "-x1", "p1 * x1"]), X, backend, dtype=dtype)
        params = np.array([[[1.0]] * 3, [[3.0]] * 3])
        wanted = ev.evaluate(params).astype(np.float16)
    found, counts = ev.evaluate(params, count_nonfinite=True, dtype="float16")
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, wanted)
    assert (np.signbit(found) == np.signbit(wanted))[~np.isnan(wanted)].all()
    np.testing.assert_array_equal(counts[..., 0], np.isnan(wanted).sum(-1))
    np.testing.assert_array_equal(counts[..., 1], np.isinf(wanted).sum(-1))
    out = np.empty((3, len(X)), np.float16)
    assert ev.evaluate(params[1], out=out) is out
    np.testing.assert_array_equal(out, wanted[1])


def test_results_of_bfloat16(backend):
    bfloat16 = pytest.importorskip("ml_dtypes", reason="pip install ml_dtypes").bfloat16
    high = np.arange(0, 1 << 16, 3, np.uint32) << 16
    X = np.concatenate([high + low for low in (0, 1, 0x4000, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]).view(np.float32)
    X = np.append(X[~np.isnan(X)], np.float32(np.nan))[:, None]
    ev = ek.Evaluator(ek.parse("x1"), X, backend)
    with np.errstate(all="ignore"):
        wanted = ev.evaluate().astype(bfloat16)
    found = ev.evaluate(dtype="bfloat16")
    assert found.dtype == bfloat16
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))


def test_results_of_other_types_are_refused():
    ev = ek.Evaluator(ek.parse("x1"), np.ones((3, 1)), "cpu", dtype="float64")
    with pytest.raises(DataError, match=r"float64 .*, float16 or bfloat16, not 'float32'"):
        ev.evaluate(dtype="float32")
    with pytest.raises(DataError, match="made of float32"):
        ev.evaluate(dtype="bfloat16")
    with pytest.raises(DataError, match="dtype float16, not"):
        ev.evaluate(dtype="float16", out=np.empty((1, 3)))


def test_explain_names_the_backend(pop, X, backend):
    assert ek.Evaluator(pop, X, backend=backend).explain().startswith(f"{backend}: ")


@pytest.mark.parametrize("weighted", [False, True])
def test_losses_count_nan_and_inf_at_the_points_that_count(backend, weighted, monkeypatch):
    monkeypatch.setattr(evaluator, "COUNTED_BYTES", 50)  # two expressions at a time
    pop = ek.parse(["log(x1)", "1 / x1", "x1 * p1", "p1 + p2 + x1"])
    X = np.array([[-1.0], [0.0], [0.0], [2.0], [np.nan]], np.float32)
    weights = [0, 1, 0, 1, 1] if weighted else None
    y, params = np.ones(5), [[[], [], [1.0], [1.0, 2.0]], [[], [], [np.inf], [0.0, 0.0]]]
    ev = ek.Evaluator(pop, X, backend=backend)
    loss, counts = ev.loss(params, y, "mse", weights, count_nonfinite=True)
    complete = np.where(np.isnan(X[:, 0]), 0.0, 1.0 if weights is None else weights)  # else it is an error
    np.testing.assert_array_equal(
        ev.loss(params, y, "mse", complete, count_nonfinite=True)[0], ev.loss(params, y, "mse", complete)
    )
    assert counts.dtype == np.int64 and counts.shape == (2, 4, 2)
    chosen = [1, 3, 4] if weighted else slice(None)
    for means, found, one_set in zip(loss, counts, params, strict=True):
        values = ev.evaluate(one_set)[:, chosen]
        np.testing.assert_allclose(means, np.mean((values - 1.0) ** 2, axis=1), rtol=1e-6)
        np.testing.assert_array_equal(found, np.stack([np.isnan(values).sum(1), np.isinf(values).sum(1)], axis=1))
    assert ev.loss(params[0], y, count_nonfinite=True)[1].shape == (4, 2)


def test_a_backend_without_variants_is_not_tuned():
    with pytest.raises(BackendError, match="backend 'cpu' has no variants to tune; backend='cuda' has"):
        ek.Evaluator(ek.parse(["x1 + p1"]), [[1.0], [2.0]], "cpu").tune()
