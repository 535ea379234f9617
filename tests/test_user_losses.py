"""Losses of a user's own: what they are, their gradients, what they are fitted as, and what they share."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from emulated_device import EmulatedDevice

import exprkit as ek
from exprkit.backends import load
from exprkit.backends.cpu import kernels
from exprkit.backends.gpu.bytecode import accumulate
from exprkit.backends.interpreter.engine import Engine
from exprkit.errors import ArgumentError, BackendError, DataError, ParseError
from exprkit.evaluate.inputs import LossPoints
from exprkit.evaluate.loss_text import compose, parse_loss
from exprkit.programs.lower import lower

RANDOM = np.random.default_rng(0)
N = 403
X = RANDOM.uniform(0.1, 2, (N, 2))
Y, S = RANDOM.uniform(0.5, 2, N), RANDOM.uniform(0.5, 2, N)
WEIGHTS = np.where(np.arange(N) % 7, RANDOM.uniform(0, 1, N), 0)
TEXTS = ["p1 * x1 + p2", "exp(p1 * x1)", "x1^2 * p1 + sqrt(x2)", "x1 + x2"]
PARAMS = RANDOM.uniform(0.5, 1.5, (len(TEXTS), 2))


def huber(r, d):
    return np.where(np.abs(r) <= d, r * r / 2, d * (np.abs(r) - d / 2))


LOSSES = {  # text: (what a point adds without its weight, which sum it is, whether it is smooth)
    "(f - y)^2": (lambda f: (f - Y) ** 2, "square", True),
    "(y - f) * (y - f) * w / 2": (lambda f: (f - Y) ** 2 / 2, "square", True),
    "((sqrt(f) - y) / s)^2 / 2": (lambda f: ((np.sqrt(f) - Y) / S) ** 2 / 2, "square", True),
    "w * sqr(y / s - f / s)": (lambda f: ((f - Y) / S) ** 2, "square", True),
    "(3 - 2 * (f + y) / s)^2": (lambda f: (3 - 2 * (f + Y) / S) ** 2, "square", True),
    "(f / y - 1)^2": (lambda f: (f / Y - 1) ** 2, "square", True),
    "(f * f - y * f)^2": (lambda f: (f * f - Y * f) ** 2, "square", True),
    "abs(2 * (y - log(f))) / s": (lambda f: np.abs(2 * (Y - np.log(f))) / S, "absolute", False),
    "-(f - y)^2": (lambda f: -((f - Y) ** 2), "sum", True),
    "huber(f - y, 0.5) * w": (lambda f: huber(f - Y, 0.5), "sum", True),
    "huber(f - y, s) / s": (lambda f: huber(f - Y, S) / S, "sum", True),
    "pinball(y - f, 0.9)": (lambda f: np.maximum(0.9 * (Y - f), 0.1 * (f - Y)), "sum", False),
    "logcosh(f - y)": (lambda f: np.log(np.cosh(f - Y)), "sum", True),
    "log(cosh((f - y) / s)) / s": (lambda f: np.log(np.cosh((f - Y) / S)) / S, "sum", True),
    "f - y * log(f)": (lambda f: f - Y * np.log(f), "sum", True),
    "lessequal(abs(f - y), 0.1)": (lambda f: np.abs(f - Y) <= 0.1, "sum", False),
    "(f - y)^4": (lambda f: (f - Y) ** 4, "sum", True),
}


@pytest.fixture
def pop():
    return ek.parse(TEXTS)


def columns_of(text):
    return {"s": S} if "s)" in text or "/ s" in text else None


@pytest.mark.parametrize("text", LOSSES)
def test_losses_and_gradients(backend, pop, text):
    point, _, smooth = LOSSES[text]
    columns = columns_of(text)
    for dtype, rtol in (("float64", 1e-10), ("float32", 1e-4)):
        ev = ek.Evaluator(pop, X, backend, dtype=dtype)
        terms = point(ev.evaluate(PARAMS).astype(np.float64))
        for weights, w in ((None, 1.0), (WEIGHTS, WEIGHTS)):
            near = {"rtol": rtol, "atol": rtol * np.abs(terms * w).sum(-1).max()}
            found = ev.loss(PARAMS, Y, text, weights, columns=columns)
            np.testing.assert_allclose(found, (terms * w).sum(-1), **near)
            if not load(backend).differentiates:
                continue
            value, slope = ev.loss_and_grad(PARAMS, Y, text, weights, columns=columns)
            np.testing.assert_allclose(value, found, **near)
            if dtype == "float64" and smooth:
                np.testing.assert_allclose(slope, differences(ev, text, weights, columns), rtol=1e-6, atol=1e-4)


def differences(ev, text, weights, columns, h=1e-5):
    slope = np.zeros(PARAMS.shape)
    for j in range(PARAMS.shape[1]):
        step = np.zeros(PARAMS.shape)
        step[:, j] = h
        above, below = (ev.loss(p, Y, text, weights, columns=columns) for p in (PARAMS + step, PARAMS - step))
        slope[:, j] = (above - below) / (2 * h)
    return slope


@pytest.mark.parametrize("text", LOSSES)
def test_what_a_loss_is_recognised_as(text):
    points = LossPoints(Y, None, {"s": S})
    made = compose(parse_loss(text, ("s",)), points, 2)
    assert made.summed == LOSSES[text][1]
    if text.startswith(("(f - y)^2", "(y - f)", "w * sqr", "(f / y")):
        assert made.formula is None and not made.columns


@pytest.mark.parametrize("features", ["", "avx2", "baseline"])
def test_logcosh_of_any_size(features, monkeypatch):
    monkeypatch.setenv("EXPRKIT_CPU_FEATURES", features)
    try:
        close = 1e-6 if kernels.host(features or None).avx512 else 2e-5
    except BackendError as missing:
        pytest.skip(str(missing))
    sizes = np.concatenate([np.geomspace(1e-5, 20, 400), [1e4, 1e18, 1e30]])
    ev = ek.Evaluator(ek.parse([f"{size:.9g}" for size in sizes]), np.zeros((1, 1)), "cpu")
    for text in ("logcosh(f - y)", "log(cosh(y - f))"):
        found = ev.loss(None, np.zeros(1), text)
        z = sizes.astype(np.longdouble)
        exact = np.where(z < 1e-2, z**2 / 2 - z**4 / 12, z + np.log1p(np.exp(-2 * z)) - np.log(np.longdouble(2)))
        np.testing.assert_allclose(found, exact.astype(float), rtol=close)
    assert np.isnan(ek.Evaluator(ek.parse("log(-1)"), np.zeros((1, 1)), "cpu").loss(None, [0.0], "logcosh(f - y)"))


ROUNDED = ("((sqrt(f) - y) / s)^2 / 2", "abs(sqrt(f) - y) / s", "(sqrt(f) - y)^2", "log(1 + ((f - y) / s)^2)", "log(f)",
           "2 + log(f)")  # fmt: skip


@pytest.mark.parametrize("features", [None, "avx2"])
@pytest.mark.parametrize("text", ROUNDED)
@pytest.mark.parametrize("weighted", [None, 0.0, 0.5])
@pytest.mark.parametrize("size", [1e-18, 1.0, 1e6, 1e8])
def test_roots_and_logarithms_of_fast_losses(text, weighted, size, features, monkeypatch):
    """A product in the place of logarithms, a reciprocal in that of a root, one weight of all that has no f."""
    if features:
        monkeypatch.setenv("EXPRKIT_CPU_FEATURES", features)
    random = np.random.default_rng(3)
    X = (random.uniform(0.5, 2, (777, 2)) * size).astype(np.float32)
    y, s = np.sqrt(X[:, 0]) * random.uniform(0.9, 1.1, 777), random.uniform(0.5, 2, 777)
    weights = None if weighted is None else np.where(np.arange(777) % 3, 1.5, weighted)
    pop = ["x1", "x1 * x2", "x1 - x1", "x2 - x1", "-x1", "1 / (x1 - x1)"]
    columns = {"s": s} if "s)" in text or "/ s" in text else None
    of = {"weights": weights, "columns": columns}
    fast = ek.Evaluator(pop, X, "cpu", "fast").loss(None, y.astype(np.float32), text, **of)
    exact = ek.Evaluator(pop, X, "numpy").loss(None, y.astype(np.float32), text, **of)
    assert fast == pytest.approx(exact, rel=1e-5, abs=1e-30, nan_ok=True)


AWKWARD = np.array([0, 0, -3, -2, 1e-40, 1e-20, 1e15, -1e15, 1e25, np.inf, 1e-42], np.float32)


EXTREME = "log(f - y)", "log(1 + f^2)", "log(f)", "(f - y)^4", "abs(f)^1.5", "sqrt(f)", "abs(f) * 1e30"
COLUMNS_AND_NAN = [f"x{k}" for k in range(1, 5)] + [f"x{k} * (x{k} / x{k})" for k in range(1, 5)]  # 0 / 0, inf / inf


@pytest.mark.parametrize("features", [None, "avx2"])
@pytest.mark.parametrize("precision", ["ieee", "fast"])
@pytest.mark.parametrize("text", EXTREME)
def test_losses_of_awkward_numbers_at_all_places_of_a_tile(text, precision, features, monkeypatch):
    """What overflows or has no logarithm, alone, in twos at places that are worked on together, and everywhere."""
    if features is not None:
        monkeypatch.setenv(kernels.LEVEL, features)
    random = np.random.default_rng(5)
    for n in (17, 131):
        rows = random.uniform(0.5, 2, (4, n)).astype(np.float32)
        y = np.full(n, 0.25, np.float32)
        for number in AWKWARD:
            some = rows.copy()
            some[1, -1], some[2, :: max(n // 4, 1)], some[3] = number, number, number
            data = np.ascontiguousarray(some.T)
            made = ek.Evaluator(ek.parse(COLUMNS_AND_NAN), data, "cpu", precision=precision)
            definition = ek.Evaluator(made.pop, data, "numpy", dtype="float64")
            found, expected = made.loss(None, y, text), definition.loss(None, y, text)
            size = np.nan_to_num(definition.loss(None, y, f"abs({text})"), posinf=0.0)  # terms may cancel
            with np.errstate(over="ignore"):
                close = np.isclose(found, expected, rtol=2e-6, atol=1e-6 * (n + size), equal_nan=True)
            assert close.all(), (n, number, found, expected)


def test_the_squared_loss_written_out_is_the_squared_loss(backend, pop):
    ev = ek.Evaluator(pop, X, backend)
    assert np.array_equal(ev.loss(PARAMS, Y, "(f - y)^2", WEIGHTS), ev.loss(PARAMS, Y, "sse", WEIGHTS))


def test_points_of_weight_0_do_not_count(backend):
    x, y, w = np.array([[1.0], [-1.0], [4.0]]), np.array([1.0, 0.0, 1.0]), np.array([1.0, 0.0, 1.0])
    ev = ek.Evaluator(ek.parse("sqrt(x1)"), x, backend, dtype="float64")
    for text in ("abs(f - y)", "huber(f - y, 0.5) * w", "(f - y)^3", "(w + 1) * f * w", "(f - y)^2 * (w + 1)"):
        expected = {"abs(f - y)": 1, "huber(f - y, 0.5) * w": 0.375, "(f - y)^3": 1, "(w + 1) * f * w": 6}.get(text, 2)
        assert ev.loss(None, y, text, w)[0] == pytest.approx(expected)


def test_the_next_population_and_other_numbers(backend, pop):
    ev = ek.Evaluator(pop, X, backend, dtype="float64")
    text = "huber(f - y, 0.5)"
    first = ev.loss(PARAMS, Y, text)
    ev.update(pop[::-1])
    np.testing.assert_allclose(ev.loss(PARAMS[::-1], Y, text), first[::-1], rtol=1e-12)
    ev.update(pop)
    y = Y.copy()
    assert np.array_equal(ev.loss(PARAMS, y, text), first)
    y += 1  # the same array with other numbers
    assert not np.array_equal(ev.loss(PARAMS, y, text), first)
    two = ev.loss(np.stack([PARAMS, PARAMS * 2]), Y, text)
    assert np.array_equal(two[0], first) and two.shape == (2, len(pop))
    loss, counts = ev.loss(PARAMS, Y, text, count_nonfinite=True)
    assert np.array_equal(loss, first) and not counts.any()


def test_named_losses_and_links(backend, pop):
    ev = ek.Evaluator(pop, X, backend, dtype="float64")
    F = ev.evaluate(PARAMS)
    np.testing.assert_allclose(ev.loss(PARAMS, Y, "sum", WEIGHTS), (WEIGHTS * (F - Y)).sum(-1), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ev.loss(PARAMS, Y, "sae"), np.abs(F - Y).sum(-1))
    mean = np.average(Y, weights=WEIGHTS)
    r2 = 1 - (WEIGHTS * (F - Y) ** 2).sum(-1) / (WEIGHTS * (Y - mean) ** 2).sum()
    np.testing.assert_allclose(ev.loss(PARAMS, Y, "r2", WEIGHTS), r2)
    if load(backend).differentiates:
        slope = ev.loss_and_grad(PARAMS, Y, "r2")[1]
        assert np.allclose(slope * -np.sum((Y - Y.mean()) ** 2), ev.loss_and_grad(PARAMS, Y, "sse")[1])
    for link, function in (("sqrt", np.sqrt), ("log(1 + f)", np.log1p)):
        np.testing.assert_allclose(ev.loss(PARAMS, Y, "mse", link=link), ((function(F) - Y) ** 2).mean(-1))
        np.testing.assert_allclose(ev.loss(PARAMS, Y, "(f - y)^2", link=link), ((function(F) - Y) ** 2).sum(-1))


@pytest.mark.parametrize("text", ["((sqrt(f) - y) / s)^2 / 2", "abs(2 * (y - log(f))) / s", "logcosh(f - y)"])
def test_columns_that_no_expression_uses_change_nothing(backend, pop, text):
    losses = [
        ek.Evaluator(pop, data, backend, dtype="float64").loss(PARAMS, Y, text, WEIGHTS, columns=columns_of(text))
        for data in (X, np.column_stack([X, X, S]))
    ]
    np.testing.assert_allclose(*losses, rtol=1e-13)


@pytest.mark.parametrize(
    ("text", "more", "error", "message"),
    [
        ("f +", {}, ParseError, "loss: expected a number"),
        ("y * 2", {}, ArgumentError, "does not depend on f"),
        ("hubr(f - y, 1)", {}, ParseError, "did you mean 'huber'"),
        ("(f - z)^2", {}, ParseError, "unknown name 'z'"),
        ("(f - p1)^2", {}, ParseError, "unknown name 'p1'"),
        ("rmsd", {}, DataError, "kind must be one of"),
        ("sse", {"columns": {"s": S}}, DataError, "takes no columns"),
        ("f / s", {"columns": {"s": S[:3]}}, DataError, "columns['s'] must have shape"),
        ("f / s", {"columns": {"s": np.where(S > 1, np.nan, S)}}, DataError, "columns['s'] lacks"),
        ("f / y", {"columns": {"y": S}}, ArgumentError, "'y' comes twice"),
        ("f / s", {"columns": S}, DataError, "columns must be a dict"),
        ("sse", {"link": "sqrtt"}, ParseError, "link: unknown"),
        ("sse", {"link": "f * y"}, ArgumentError, "may depend on f alone"),
        ("sse", {"link": 3}, ArgumentError, "link must be"),
        ("+".join(["f"] * 200), {}, ArgumentError, "the limit is 200"),
    ],
)
def test_bad_losses(pop, text, more, error, message):
    with pytest.raises(error) as raised:
        ek.Evaluator(pop, X, "numpy").loss(PARAMS, Y, text, **more)
    assert message in str(raised.value)


# ── fits ──


@pytest.fixture(scope="module", params=["numpy", "cpu"])
def fitted(request):
    """Fits in float64 of three expressions, by options."""
    y = 2 * X[:, 0] + 1 + 0.05 * RANDOM.normal(size=N)
    pop = ek.parse(["p1 * x1 + p2", "p1 * exp(p2 * x1)", "x2"])
    return lambda **options: ek.fit(pop, X, options.pop("y", y), backend=request.param, dtype="float64", **options)


def same(a, b, loss=1.0):
    np.testing.assert_allclose(a.params, b.params, rtol=1e-5)
    np.testing.assert_allclose(a.loss * loss, b.loss, rtol=1e-9)
    assert a.method == b.method


def test_squares_are_fitted_as_squares(fitted):
    own, known = fitted(loss="(f - y)^2", weights=WEIGHTS), fitted(weights=WEIGHTS)
    assert np.array_equal(own.params, known.params, equal_nan=True)
    same(known, own)
    np.testing.assert_allclose(own.r2, known.r2)
    np.testing.assert_allclose(own.standard_errors, known.standard_errors)
    same(fitted(loss="((f - y) / s)^2 / 2", columns={"s": S}), fitted(weights=1 / S**2), 2)
    assert own.kind == "(f - y)^2" and own.pop.texts() == known.pop.texts()


@pytest.mark.slow
def test_huber_and_absolute_losses_are_fitted_as_such(fitted):
    same(fitted(loss="huber(f - y, 0.05) * w", weights=WEIGHTS), fitted(loss="huber", delta=0.05, weights=WEIGHTS))
    same(fitted(loss="huber(2 * f - 2 * y, 0.1)"), fitted(loss="huber", delta=0.05), 0.25)
    same(fitted(loss="abs(f - y)"), fitted(loss="mae"), 1 / N)
    other = fitted(loss="huber(f - y, s)", columns={"s": S})
    assert other.method == "lbfgs"


def test_links(fitted):
    y = np.sqrt(2 * X[:, 0] + 1)
    link, text = fitted(y=y, link="sqrt"), fitted(y=y, loss="(sqrt(f) - y)^2")
    same(link, text)
    np.testing.assert_allclose(link.params[0], [2, 1], rtol=1e-4)
    assert link.r2[0] > 0.999999 and link.kind == "squares, link sqrt(f)"
    with pytest.raises(ArgumentError, match="has no likelihood"):
        ek.description_length(fitted(y=y, link="sqrt", loss="gaussian"))


def test_other_losses_go_by_gradients(fitted):
    own, known = fitted(loss="f - y * log(f)", bounds=(0.01, None)), fitted(loss="poisson")
    assert own.method == "lbfgs" and known.method == "lm" and own.converged[:2].all()
    np.testing.assert_allclose(own.params, known.params, rtol=1e-4)
    assert np.isfinite(own.standard_errors[:2]).all()
    assert fitted(loss="logcosh(f - y)", method="adam").method == "adam"


def test_a_fit_of_ones_own_is_pickled(fitted):
    found = fitted(loss="((sqrt(f) - y) / s)^2", columns={"s": S})
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_allclose(again.standard_errors, found.standard_errors)
    assert again.pop == found.pop and np.array_equal(again.loss, found.loss)


def test_one_problem_for_many_populations():
    y = 2 * X[:, 0] + 1 + S
    problem = ek.FitProblem(X, y, loss="logcosh(f - y)", backend="cpu")
    losses = []
    for text in ("p1 * x1 + p2", "p1 * x1 + p2 * x2 + p3"):
        found = problem.fit(ek.parse(text))
        assert found.converged[0] and found.method == "lbfgs"
        again = ek.Evaluator(ek.parse(text), X, "cpu").loss(found.params, y, "logcosh(f - y)")
        np.testing.assert_allclose(found.loss, again, rtol=1e-5)
        losses.append(found.loss[0])
    assert losses[1] < losses[0] < ek.Evaluator(ek.parse("x1"), X, "cpu").loss(None, y, "logcosh(f - y)")[0]


# ── what is shared ──

SHARING = ("twice_over", "mixture", "add", "mul", "powabs", "log", "sub")


@pytest.fixture(autouse=True, scope="module")
def own_operators(functions):
    ek.operator("twice_over(a) = exp(-a * a) + sin(a) * a")
    ek.operator("mixture(a, b, c) = a * b + c * (a - b) / (c + a)")


@pytest.fixture(scope="module")
def sharing(own_operators):
    """A population whose operators name operands more than once, and the same as if it had been read so."""
    pop = ek.generate.random(300, operators=SHARING, n_tokens=(3, 20), n_vars=2, n_params=2)
    long = pop.expanded()
    return long, ek.Population(long.kinds, long.values, long.offsets)


def test_shared_parts_are_computed_once(sharing):
    shared, plain = sharing
    assert shared.shares and not plain.shares
    once, again = (lower(pop) for pop in sharing)
    assert once.shared and len(once.code) < len(again.code) / 2
    assert lower(ek.parse("twice_over(x1)")).shared is False  # a leaf costs nothing


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_shared_parts_change_no_bits(sharing, dtype):
    params = np.random.default_rng(1).normal(size=(300, 2))
    values = [ek.Evaluator(pop, X, "cpu", dtype=dtype).evaluate(params) for pop in sharing]
    assert np.array_equal(*values, equal_nan=True)


def test_an_accumulator_runs_shared_parts(sharing, device):
    params, few = np.random.default_rng(1).normal(size=(1, 300, 2)), np.ascontiguousarray(X[:70])
    engines = [Engine(pop, few, precision=ek.Precision("ieee"), dtype=np.dtype("float64"), device=device)
               for pop in sharing]  # fmt: skip
    out = [device.xp.zeros((1, 300, 70)) for _ in engines]
    for engine, values in zip(engines, out, strict=True):
        engine.evaluate(params, values)
    assert bool((np.equal(*out) | (np.isnan(out[0]) & np.isnan(out[1]))).all())
    if isinstance(device, EmulatedDevice):
        gradients = [engine.loss_and_grad(params, few[:, 0].copy(), None, "sum")[1] for engine in engines]
        np.testing.assert_allclose(*gradients, rtol=1e-9)


def test_what_needs_too_many_slots_is_a_tree(monkeypatch):
    text = "x1"
    for _ in range(5):
        text = f"twice_over({text} + 1)"
    pop = ek.parse(text)
    shared = lower(pop)
    assert shared.shared and accumulate(shared).n_slots == shared.n_slots <= 4
    monkeypatch.setattr(lower.__module__ + ".MOST_SLOTS", 1)
    tree = lower(pop)
    assert not tree.shared and len(tree.code) > 5 * len(shared.code)
