"""Searches, generators and breeding with operators of three operands: formulas, texts that define them, functions."""

from __future__ import annotations

import numpy as np
import pytest

import exprkit as ek
from exprkit.backends.device_programs.operator_kernels import OperatorKernels
from exprkit.backends.gpu.device import fetched
from exprkit.errors import ArgumentError
from exprkit.expressions.arguments import operators_of
from exprkit.operators.dimensions import law_of
from exprkit.regression.formulas.trees import expression_of, tree_of
from exprkit.regression.on_device.pool import DevicePool
from exprkit.regression.pairs.pool import Pool
from exprkit.regression.pairs.ruled_pool import RuledPool
from exprkit.regression.rules.admission import FormulaRules
from exprkit.search.distinct import Enumeration
from exprkit.search.grammar import grammar
from exprkit.text.tokens import OPERATOR

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-3, 3, (200, 2))
CHOICE = np.where(X[:, 0] * X[:, 1] > 0, 2 * X[:, 1], X[:, 0] ** 2)


@pytest.fixture(autouse=True, scope="module")
def operators(functions):
    """Some."""
    ek.operator("muladd(a, b, c) = a * b + c")
    ek.operator("within(a, low, high) = min(max(a, low), high)")
    ek.operator(
        "fork(a, b, c)", numpy=lambda a, b, c: np.where(a > 0, b, c), cuda="a > T(0) ? b : c",
        derivative=("0", "greater(a, 0)", "1 - greater(a, 0)"),
    )  # fmt: skip
    ek.operator("if_above(a, b, c) = cond(a, b) + cond(lessequal(a, 0), c)")
    ek.operator("host_only(a, b, c)", numpy=lambda a, b, c: np.hypot(a, b) - c)


def found(y, **chosen):
    chosen = {"timeout_in_seconds": 60, "random_state": 0, "early_stop_condition": 1e-15, "n_jobs": 1} | chosen
    return ek.SymbolicRegressor(**chosen).fit(X, y)


# ── generators ──


@pytest.mark.parametrize(
    ("names", "by_hand"),
    [
        (["muladd"], ["x1", "p1", "muladd(x1, x1, x1)", "muladd(x1, x1, p1)", "muladd(x1, p1, x1)",
                      "muladd(x1, p1, p2)", "muladd(p1, x1, x1)", "muladd(p1, x1, p2)", "muladd(p1, p2, x1)"]),
        (["sqr", "muladd"], None), (["+", "fork", "-"], None),
    ],
)  # fmt: skip
def test_every_expression_is_made_once_and_counted(names, by_hand):
    for n in range(1, 8):
        made = ek.generate.exhaustive(n, names, n_vars=1, n_params=2)
        texts = made.texts()
        assert len(set(texts)) == len(texts) == ek.generate.count_exhaustive(n, names, n_vars=1, n_params=2)
        assert made.longest <= n and all("x1" in text or "p1" in text for text in texts)
        assert n != 4 or by_hand is None or texts == by_hand
    assert ek.generate.exhaustive(7, names, 1, 2, limit=20).texts() == texts[:20]


def test_an_expression_may_have_as_many_parameters_as_leaves():
    texts = ek.generate.exhaustive(7, ["muladd"], n_vars=0, n_params=9).texts()
    assert texts[0] == "p1" and "muladd(p1, p2, muladd(p3, p4, p5))" in texts


def test_children_hold_them_and_lose_them():
    pop = ek.generate.random(300, n_tokens=(3, 20), operators=["+", "sin", "muladd"], n_vars=2, n_params=1, seed=0)
    only = ek.breed(pop, pop.n_tokens, n=2000, operators=["fork"], seed=1).texts()
    assert sum("fork(" in text for text in only) > 100
    without = ek.breed(ek.parse(["x1", "x2 + 1"]), [1.0, 1.0], n=3000, operators=["muladd", "+", "within"], seed=2)
    counts = [sum(name in text for text in without.texts()) for name in ("muladd(", "within(", "+")]
    assert min(counts) > 15
    hoisted = ek.breed(ek.parse(["muladd(x1, x2, sin(x3))"]), [1.0], n=3000, operators=["+"], crossover=0.0, seed=3)
    assert {"x1", "x2", "sin(x3)", "muladd(sin(x3), x1, x2)"} <= set(hoisted.texts())


# ── pools ──


@pytest.mark.slow
def test_a_pool_holds_them_and_a_device_the_same_ones(emulated):
    chosen = operators_of(["+", "*", "sin", "muladd", "fork"])
    points = X[:16]
    pools = Pool(points, chosen), DevicePool(points, chosen, OperatorKernels(emulated, tuple(chosen), 16))
    for pool in pools:
        pool.grow(30, 2_000)
        pool.multiply(2_500)
    host, there = pools
    texts = [str(host.expression(i)) for i in range(len(host))]
    assert sum("muladd(" in text for text in texts) > 50 and sum("fork(" in text for text in texts) > 50
    assert [str(there.expression(i)) for i in range(len(there))] == texts and host.tried == there.tried
    np.testing.assert_allclose(fetched(there.values)[: len(host)], host.values, rtol=1e-12)
    some = slice(0, len(host), 17)
    exact = ek.Evaluator(ek.parse(texts[some]), points, "numpy", dtype="float64").evaluate()
    np.testing.assert_allclose(host.values[some], exact, rtol=1e-12)
    assert host.sizes[: len(host)][some].tolist() == ek.parse(texts[some]).n_tokens.tolist()


def test_a_pool_leaves_out_what_magnifies_rounding():
    steeper = ek.operator("steeper(a, b, c) = sin(1e12 * a) * b + c").__name__
    pool = Pool(X[:16], operators_of([steeper]))
    pool.grow(4, 1000)
    assert len(pool) == pool.n_leaves


# ── units and limits ──


def test_the_units_of_their_operands():
    codes = {row.name: row.code for row in operators_of(["muladd", "within", "fork", "host_only"])}
    nan = np.nan
    laws = {name: tuple(law_of(code)) for name, code in codes.items()}
    np.testing.assert_equal(laws["within"], (1, (nan, nan, nan), 1.0))
    np.testing.assert_equal(laws["fork"], (1, (0.0, nan, nan), 1.0))
    np.testing.assert_equal(laws["host_only"], (1, (nan, nan, nan), 1.0))
    assert laws["muladd"][0] == 0
    texts = ["fork(x3, x1, x1)", "fork(x1, x1, x3)", "within(x1, x1, 2 * x1)", "within(x1, x3, x1)",
             "within(x1, 0, x1)", "fork(x3, 0, x1)", "muladd(x1, 1, x1)",
             "x1 * muladd(x3 / x3, 1, 2)", "fork(x1, 2, 3) * x1"]  # fmt: skip
    rules = FormulaRules(3, units=[(1, 0), (1, 0), (0, 1)], target=(1, 0))
    assert rules.allow(ek.parse(texts)).tolist() == [True, False, True, False, True, True, False, True, True]
    pool = RuledPool(rules, np.random.default_rng(1).normal(size=(16, 3)), operators_of(["fork", "*"]), constants=[])
    pool.grow(4, 200)
    texts = [str(pool.expression(i)) for i in range(len(pool))]
    assert any(text.startswith("fork(") for text in texts)
    units_alone = FormulaRules(3, units=[(1, 0), (1, 0), (0, 1)])
    assert units_alone.allow(ek.parse(texts)).all()


@pytest.mark.slow
def test_limits_of_three_operands():
    model = found(CHOICE, operators={3: ["fork"]}, constraints={"fork": (3, 1, -1)}, niterations=1,
                  nested_constraints={"fork": {"fork": 0}}, pool_size=50, population_size=100,
                  timeout_in_seconds=2)  # fmt: skip
    (fork,) = operators_of(["fork"])

    def check(tree, inside=False):
        _, code, *operands = tree if tree[0] == OPERATOR else (None, None)
        if code == fork.code:
            sizes = [expression_of(operand).n_tokens for operand in operands]
            assert not inside and sizes[0] <= 3 and sizes[1] <= 1, text
        for operand in operands:
            check(operand, inside or code == fork.code)

    for text in model.equations_["equation"]:
        check(tree_of(ek.parse(text)[0]))
    with pytest.raises(ArgumentError, match="'fork' has 3 operands, not 2"):
        found(CHOICE, operators={3: ["fork"]}, constraints={"fork": (1, 1)})


# ── searches ──


@pytest.mark.parametrize("name", ["fork", "if_over(a, b, c) = cond(a, b) + cond(lessequal(a, 0), c)"])
def test_a_law_that_holds_one_is_found(name, tmp_path):
    model = found(CHOICE, operators={3: [name], 1: ["sqr"]}, binary_operators=["+", "*"])
    best = model.equations_.iloc[-1]
    assert name.partition("(")[0] in best["equation"] and model.score(X, CHOICE) > 1 - 1e-9
    np.testing.assert_allclose(model.predict(X), CHOICE, rtol=1e-5, atol=1e-5)
    model.save(tmp_path / "model.npz")
    assert ek.load(tmp_path / "model.npz").equations_["equation"].tolist() == model.equations_["equation"].tolist()


def test_generations_alone_find_one():
    y = np.where(X[:, 0] > 0, X[:, 1], X[:, 0] * X[:, 1]) + 0.01 * RANDOM.standard_normal(200)
    model = found(y, operators={3: ["fork"], 2: ["*"], 1: []}, niterations=6, pool_size=0, population_size=200,
                  maxsize=12)  # fmt: skip
    assert model.score(X, y) > 0.99 and "fork(" in model.equations_.iloc[-1]["equation"]


def test_an_enumeration_holds_every_function_once():
    """Of no parameters: as many as there are different values."""
    for names in (["*", "fork"], ["within", "neg"]):
        found = Enumeration(grammar(5, names, n_vars=2, n_params=0), confirm=1)
        new = [found.population(found.grow()) for _ in range(5)]
        every = ek.generate.exhaustive(5, names, n_vars=2, n_params=0)
        points = np.random.default_rng(5).normal(size=(300, 2))
        values = ek.Evaluator(every, points, "numpy", dtype="float64").evaluate()
        rounded = {row.tobytes() for row in np.round(values / np.abs(values).max(axis=1, keepdims=True), 9) + 0.0}
        texts = [text for pop in new for text in pop.texts()]
        assert len(texts) == len(set(texts))
        own = ek.Evaluator(ek.parse(texts), points, "numpy", dtype="float64").evaluate()
        own = {row.tobytes() for row in np.round(own / np.abs(own).max(axis=1, keepdims=True), 9) + 0.0}
        assert own == rounded and len(own) <= len(texts) <= 1.3 * len(own)
        trees = [grammar(5, names, n_vars=2, n_params=0).count(size) for size in range(1, 6)]
        assert found.stands_for(np.arange(len(found))).sum() == sum(trees)


@pytest.mark.slow
def test_enumerated_forms_hold_their_parameters():
    found = Enumeration(grammar(7, ["fork", "+"], n_vars=1, n_params=3))
    for size in range(1, 8):
        pop = found.population(found.grow())
        assert (pop.n_tokens == size).all() and pop.max_params <= 3
        assert size != 4 or {"fork(x1, x1, p1)", "fork(p1, x1, p2)", "fork(x1, p1, p2)"} <= set(pop.texts())
        assert size != 4 or "fork(p1, p2, p3)" in pop.texts()


def test_islands_of_this_process_breed_them_and_a_client_is_refused():
    y = np.where(X[:, 0] > 0, X[:, 1], X[:, 0] * X[:, 1]) + 0.1 * RANDOM.standard_normal(200)
    model = found(y, operators={3: ["if_above"], 2: ["*"], 1: []}, niterations=4, pool_size=0, population_size=100,
                  maxsize=12, devices=2)  # fmt: skip
    assert "if_above(" in " ".join(model.equations_["equation"]) and "2 islands" in model.stopped_
    with pytest.raises(ArgumentError, match="'if_above' is an operator of this process"):
        found(y, operators={3: ["if_above"]}, client=object())
    ek.operator("tempered(a) = a^2 / (1 + a^2)")
    for chosen in ({"unary_operators": ["tempered"]}, {"elementwise_loss": "tempered(f - y)"}):
        with pytest.raises(ArgumentError, match=r"'tempered' is an operator of this process.*leave client= out"):
            found(y, **chosen, client=object())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fork", "if_above"])
def test_an_exhaustive_search_finds_a_law(name):
    y = np.where(X[:, 0] > 0, 2.5 * X[:, 1], X[:, 1] ** 2) + 1e-3 * RANDOM.standard_normal(200)
    search = ek.exhaustive_search(X, y, max_nodes=6, operators=["*", name], n_params=2, restarts=15, progress=False,
                                  backend="cpu")  # fmt: skip
    assert search.texts()[0] in (f"{name}(x1, p1, x2) * x2", f"x2 * {name}(x1, p1, x2)")
    assert search.params[0, 0] == pytest.approx(2.5, abs=1e-2)


@pytest.mark.slow
def test_a_search_on_a_device_finds_one(on_a_gpu):
    y = CHOICE + 0.02 * RANDOM.standard_normal(200)
    model = found(y, operators={3: ["fork"], 2: ["+", "*"], 1: []}, backend="cuda", niterations=2,
                  population_size=40, pool_size=3_000, timeout_in_seconds=200)  # fmt: skip
    assert model.score(X, y) > 0.98
    assert "fork(" in " ".join(model.equations_["equation"])


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"binary_operators": ["fork"]}, r"'fork' takes 3 operands; give it as operators={3: \['fork'\]}"),
        ({"operators": {3: ["+"]}}, r"operators\[3\]: 'add' takes 2 operands, which go into binary_operators"),
        ({"operators": {4: ["+"]}}, "operators have 1 to 3 operands, not 4"),
        ({"operators": ["fork"]}, "must be a dictionary by the number of operands"),
        ({"operators": {2: ["+"]}, "binary_operators": ["*"]}, r"operators\[2\] and binary_operators are the same"),
        ({"operators": {3: ["forc"]}}, r"operators\[3\]: .*did you mean 'fork'"),
        ({"operators": {3: ["host_only"]}, "backend": "cuda"}, "'host_only' has no CUDA text"),
    ],
)
def test_what_a_search_refuses(chosen, message):
    with pytest.raises(ArgumentError, match=message):
        found(X[:, 0], **chosen)
