"""Operators without a formula: a NumPy function, CUDA text, derivatives; on every backend, fitted, saved by name."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numba
import numpy as np
import pytest

import exprkit as ek
from exprkit.backends import cost_model, load
from exprkit.backends.gpu import opcodes
from exprkit.backends.interpreter import dual_opcodes
from exprkit.backends.interpreter.engine import Engine
from exprkit.errors import ArgumentError, BackendError, OperandError, ParseError, PopulationError
from exprkit.evaluate import options
from exprkit.operators import defined

X = np.random.default_rng(0).uniform(0.1, 3, (700, 2))


@numba.njit
def softplus(a):
    return np.log1p(np.exp(a))


@numba.njit
def blend(a, b, c):
    return a * (1 - c) + b * np.sin(c)


@numba.vectorize
def power_mean(a, b):
    return np.sqrt((a * a + b * b) / 2)


@pytest.fixture(autouse=True, scope="module")
def operators(functions):
    """Some."""
    ek.operator("softplus", numpy=softplus, cuda="log1p(exp(a))", derivative="1 / (1 + exp(-a))")
    ek.operator("power_mean", numpy=power_mean, cuda="const T y = a * a + b * b; return sqrt(y / 2);",
                derivative=("a / (2 * y)", "b / (2 * y)"))  # fmt: skip
    ek.operator("plain(a)", numpy=lambda a: np.log1p(np.exp(a)), derivative=lambda a: 1 / (1 + np.exp(-a)))
    ek.operator("blend", numpy=blend, derivative=("1 - c", "sin(c)", "b * cos(c) - a"))
    ek.operator(
        "blend_plain(a, b, c)",
        numpy=lambda a, b, c: a * (1 - c) + b * np.sin(c),
        derivative=(lambda a, b, c: 1 - c, lambda a, b, c: np.sin(c), lambda a, b, c: b * np.cos(c) - a),
    )
    ek.operator("steps", numpy=lambda a: np.floor(2 * a))
    ek.operator("by_steps(a) = steps(a) + 1")


MEANING = {
    "p1 * softplus(p2 * x1)": "p1 * log(1 + exp(p2 * x1))",
    "plain(x1 * p1) + plain(2)": "log(1 + exp(x1 * p1)) + log(1 + exp(2))",
    "power_mean(x1, p1) / power_mean(2, x2)": "sqrt((x1^2 + p1^2) / 2) / sqrt((4 + x2^2) / 2)",
    "softplus(x1) * p1": "log(1 + exp(x1)) * p1",
    "softplus(p1) * x1": "log(1 + exp(p1)) * x1",
    "power_mean(x1 * p1, x2 * p1)": "sqrt((x1^2 + x2^2) / 2) * p1",
}
PARAMS = np.full((len(MEANING), 2), 1.3)


@pytest.fixture
def pop():
    return ek.parse(list(MEANING))


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_losses_and_derivatives_are_those_of_the_meaning(pop, backend, dtype):
    own = ek.Evaluator(pop, X, backend, dtype=dtype)
    same = ek.Evaluator(ek.parse(list(MEANING.values())), X, "numpy", dtype="float64")
    rtol = 1e-12 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(own.evaluate(PARAMS), same.evaluate(PARAMS), rtol=rtol)
    np.testing.assert_allclose(own.jacobian(PARAMS), same.jacobian(PARAMS), rtol=10 * rtol, atol=rtol)
    np.testing.assert_allclose(own.loss(PARAMS, X[:, 1]), same.loss(PARAMS, X[:, 1]), rtol=rtol)


def test_threads_and_forms_give_the_same_bits(pop):
    one, two = (ek.Evaluator(pop, X, "cpu", threads=threads).evaluate(PARAMS) for threads in (1, 2))
    assert np.array_equal(one, two)
    out = np.empty((len(pop), len(X)), np.float32)
    assert np.array_equal(ek.Evaluator(pop, X[:1], "cpu").evaluate(PARAMS)[:, 0], one[:, 0])
    assert np.array_equal(ek.Evaluator(pop, X, "cpu").evaluate(PARAMS, out=out), one)


@pytest.mark.parametrize("name", ["softplus", "plain"])
def test_a_parameter_inside_is_fitted(name):
    found = ek.fit(f"p1 * {name}(p2 * x1)", X, 2 * np.log1p(np.exp(0.7 * X[:, 0])), dtype="float64")
    assert found.params[0] == pytest.approx([2, 0.7], rel=1e-6)


def test_without_a_derivative_it_says_so():
    found = ek.fit("steps(x1 * p1)", X, X[:, 0])
    assert "no derivative" in found.reason[0]
    with pytest.raises(PopulationError, match="there is no derivative of steps"):
        ek.parse("steps(x1)").diff("x1")
    assert ek.parse("plain(x1)").diff("x1").texts() == ["dplain_da(x1)"]


@pytest.mark.parametrize("text", ["steps(x1 * p1)", "by_steps(x1)", "three(x1, p1, x2)"])
def test_without_cuda_nothing_is_compiled_for_a_gpu(text):
    ek.operator("three", numpy=lambda a, b, c: a + b + c)
    for compiled in (ek.compile_ptx, ek.compile_bytecode):
        with pytest.raises(BackendError, match=r"has no operator '(steps|three)': it is defined without CUDA text"):
            compiled(text)


def test_formulas_may_use_it():
    y = ek.Evaluator(ek.parse("by_steps(x1)"), X, "cpu", dtype="float64").evaluate()[0]
    assert np.array_equal(y, np.floor(2 * X[:, 0]) + 1)
    assert [row[1] for row in ek.parse("by_steps(x1)").definitions()] == ["steps(a)", "by_steps(a) = steps(a) + 1"]


def test_printed_and_generated(pop):
    assert ek.parse(pop.texts()) == pop
    assert pop[4].latex() == r"\operatorname{softplus}\left(p_{1}\right) \cdot x_{1}"
    assert "power_mean" in " ".join(ek.generate.random(50, operators=("add", "power_mean"), n_vars=2).texts())
    assert ek.parse([pop[3].sympy()]).texts() == ["softplus(x1) * p1"]
    with pytest.raises(OperandError, match="NumPy has no function for 'softplus'"):
        pop[3].to_numpy([1.0])


# ── kept by name ──


@pytest.mark.slow
def test_saved_by_name_and_missed_by_name(pop, tmp_path):
    assert pickle.loads(pickle.dumps(pop)) == pop
    pop.save(tmp_path / "pop.npz")
    assert ek.load(tmp_path / "pop.npz") == pop
    assert b"log1p" not in (tmp_path / "pop.npz").read_bytes()
    code = f"import exprkit as ek; ek.load({str(tmp_path / 'pop.npz')!r})"
    error = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert "operator 'softplus' is a function, which no file holds: first exprkit.operator('softplus(a)'" in error


def test_a_new_one_of_the_same_name_leaves_older_populations():
    ek.operator("changing", numpy=lambda a: a + 1, cuda="a + 1 +")
    before = ek.parse("changing(x1)")
    ek.operator("changing", numpy=lambda a: a + 2, cuda="a + 2")
    assert "a + 1 +" not in opcodes.source("ieee") and "{ return a + 2; }" in opcodes.source("ieee")
    after = ek.parse("changing(x1)")
    values = [ek.Evaluator(pop, [[1.0]], "cpu").evaluate()[0, 0] for pop in (before, after)]
    assert values == [2, 3] and before.texts() == after.texts()


# ── of three operands ──

BLENDED = [
    "{x1, p1, x2}", "p1 * {2, x1 * p2, x2 + p1}", "{p1, p2, x1}", "{p1, p2, p1 + 1} + x1", "{x1, x1, x1}",
    "exp(x2) * {x1 * x2, sin(x2), p1 / x1}", "{1, 2, 3}",
    "{{x1, p1, x2}, {x2, x1, p2}, {1, p1, {x1, x1, 2}}} - {x1, p1, x2}",
    " + ".join(f"{{x1, p1 * {k}, {{x2, p2 * {k}, x1 * {k}}}}}" for k in range(1, 8)),
]  # fmt: skip


def blended(name=None):
    """The texts with the operator of this name, or written out, in the place of braces."""
    if name:
        return [text.replace("{", f"{name}(").replace("}", ")") for text in BLENDED]
    ek.operator("blend_text(a, b, c) = a * (1 - c) + b * sin(c)")
    return ek.parse(blended("blend_text")).expanded().texts()


@pytest.mark.parametrize("name", ["blend", "blend_plain"])
@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_three_operands_are_those_of_the_meaning(name, backend, dtype):
    own, same = ek.parse(blended(name)), ek.parse(blended())
    params = np.tile([1.3, 1.5], (len(own), 1))
    rtol, exact = (1e-11 if dtype == "float64" else 1e-4), ek.Evaluator(same, X, "numpy", dtype="float64")
    for precision in ("ieee", "fast") if backend == "cpu" else ("ieee",):
        ev = ek.Evaluator(own, X, backend, dtype=dtype, precision=precision, threads=2)
        values, slopes = exact.evaluate(params), exact.jacobian(params)
        np.testing.assert_allclose(ev.evaluate(params), values, rtol=rtol, atol=rtol * np.abs(values).max())
        np.testing.assert_allclose(ev.jacobian(params), slopes, rtol=rtol, atol=rtol * np.abs(slopes).max())
        np.testing.assert_allclose(ev.loss(params, X[:, 0]), exact.loss(params, X[:, 0]), rtol=10 * rtol)
        text = f"{name}(f, y, 0.5)^2"
        np.testing.assert_allclose(
            ev.loss(params, X[:, 0], text), exact.loss(params, X[:, 0], "(f / 2 + y * sin(0.5))^2"), rtol=10 * rtol
        )


@pytest.mark.parametrize("name", ["blend", "blend_plain"])
def test_three_operands_are_differentiated_and_fitted(name):
    own, same = (ek.parse(texts).diff("x1") for texts in (blended(name), blended()))
    params = np.full((len(own), 2), 1.3)
    evaluated = [ek.Evaluator(pop, X, "cpu", dtype="float64").evaluate(params) for pop in (own, same)]
    np.testing.assert_allclose(*evaluated, rtol=1e-9, atol=1e-12)
    assert "pair_of" not in " ".join(own.texts())
    y = X[:, 0] * (1 - 0.7 * X[:, 1]) + 2 * np.sin(0.7 * X[:, 1])
    found = ek.fit(f"{name}(x1, p1, x2 * p2)", X, y, dtype="float64", restarts=4)
    assert found.params[0] == pytest.approx([2, 0.7], rel=1e-6)


def test_three_operands_are_printed_kept_and_generated(tmp_path):
    pop = ek.parse(blended("blend"))
    assert ek.parse(pop.texts()) == pop == pickle.loads(pickle.dumps(pop))
    assert pop.expanded().texts() == pop.texts() and pop.expanded()[[1, 0]].texts() == pop[[1, 0]].texts()
    assert str(pop.expanded()[0]) == "blend(x1, p1, x2)"
    assert pickle.loads(pickle.dumps(pop.expanded())).texts() == pop.texts()
    assert pop[0].latex() == r"\operatorname{blend}\left(x_{1}, p_{1}, x_{2}\right)"
    assert ek.parse([pop[0].sympy().doit()]).texts() == ["blend(x1, p1, x2)"]
    pop.save(tmp_path / "pop.npz")
    assert ek.load(tmp_path / "pop.npz") == pop
    assert "blend" in " ".join(ek.generate.random(50, operators=("add", "blend"), n_vars=2).texts())
    with pytest.raises(OperandError, match="NumPy has no function for 'blend'"):
        pop[0].to_numpy([1.0])
    ek.operator("of_blend(a, b) = blend(a, b, a) + 1")
    pops = ek.parse("of_blend(x1, x2)"), ek.parse("blend(x1, x2, x1) + 1")
    assert np.array_equal(*(ek.Evaluator(pop, X, "cpu").evaluate() for pop in pops))


def test_a_new_one_of_three_leaves_older_populations():
    ek.operator("of_three", numpy=lambda a, b, c: a)
    before = ek.parse("of_three(x1, x2, 2)")
    ek.operator("of_three", numpy=lambda a, b, c: b)
    pops = before, ek.parse("of_three(x1, x2, 2)")
    assert [ek.Evaluator(pop, [[1.0, 5.0]], "cpu").evaluate()[0, 0] for pop in pops] == [1, 5]
    assert pops[0].texts() == pops[1].texts() == ["of_three(x1, x2, 2)"]


def test_three_operands_without_derivatives_are_not_fitted():
    ek.operator("three_steps", numpy=lambda a, b, c: np.floor(a + b + c))
    assert "no derivative" in ek.fit("three_steps(x1, p1, 2)", X, X[:, 0]).reason[0]


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_derivatives_against_complex_steps(backend):
    """Of the functions themselves, which NumPy takes complex numbers in."""
    meaning = {
        "p1 * plain(p2 * x1)": lambda p, x: p[0] * np.log1p(np.exp(p[1] * x[0])),
        "softplus(p1 * x1) / p2": lambda p, x: np.log1p(np.exp(p[0] * x[0])) / p[1],
        "power_mean(p1 * x1, p2)": lambda p, x: np.sqrt(((p[0] * x[0]) ** 2 + p[1] ** 2) / 2),
        "blend(x1, p1, p2 * x2)": lambda p, x: x[0] * (1 - p[1] * x[1]) + p[0] * np.sin(p[1] * x[1]),
        "blend_plain(p1, x1 * p2, x2)": lambda p, x: p[0] * (1 - x[1]) + x[0] * p[1] * np.sin(x[1]),
    }
    params = np.array([0.7, 1.2])
    J = ek.Evaluator(ek.parse(list(meaning)), X, backend, dtype="float64").jacobian([params] * len(meaning))
    for slopes, function in zip(J, meaning.values(), strict=True):
        for j in range(2):
            step = params.astype(complex)
            step[j] += 1e-20j
            np.testing.assert_allclose(slopes[:, j], function(step, X.T).imag / 1e-20, rtol=1e-12, atol=1e-15)


# ── errors ──


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("bad", {"numpy": 3}, "numpy must be a function"),
        ("bad", {"numpy": lambda a: a[:1]}, r"its function makes \(1,\) of arrays of shape \(9,\)"),
        ("bad", {"numpy": lambda a: 1 / 0}, "raised ZeroDivisionError"),
        ("bad", {"numpy": lambda a: np.sqrt(a + 0j)}, "its function makes complex128"),
        ("y", {"numpy": np.sinc}, "losses and derivatives are written over"),
        ("bad", {"numpy": np.cumsum}, "a number alone another result"),
        ("bad", {"numpy": lambda a, b, c, d: a}, "one to three operands"),
        ("bad(a, b)", {"numpy": lambda a, b: a, "derivative": ("c", "0")}, "unknown name 'c'"),
        ("blend(a, b)", {"numpy": lambda a, b: a}, r"is 'blend\(a, b, c\)' already"),
        ("blend(a) = a + 1", {}, r"is 'blend\(a, b, c\)' already"),
        ("bad(u)", {"numpy": np.sinc}, "does not name an operator"),
        ("sin", {"numpy": np.sin}, "has an operator of this name"),
        ("p1", {"numpy": np.sin}, "a number, variable or parameter"),
        ("bad", {"numpy": np.sinc, "derivative": ("1", "2")}, "for each of 1 operands"),
        ("bad", {"numpy": np.sinc, "cuda": 3}, "cuda must be CUDA C"),
        ("bad(a) = a", {"cuda": "a"}, "give it by numpy="),
        ("by_steps", {"numpy": np.sinc}, "is a formula already"),
    ],
)
def test_what_is_refused(text, arguments, message):
    before = defined.count()
    with pytest.raises((ArgumentError, ParseError), match=message):
        ek.operator(text, **arguments)
    assert defined.count() == before


def test_what_a_function_raises_reaches_the_caller():
    def late(a):
        if len(a) > 100:
            raise ValueError("too many")
        return a

    ek.operator("late", numpy=late)
    for threads in (1, 2):
        with pytest.raises(ArgumentError, match="operator 'late': its function raised ValueError: too many"):
            ek.Evaluator(ek.parse(["late(x1 * 2)"] * 50), X, "cpu", threads=threads).evaluate()


def test_gpu_backends_refuse_what_has_no_cuda_text(monkeypatch):
    gpu = options.load("cpu")._replace(takes_settings=True)
    monkeypatch.setattr(options, "load", lambda name: gpu)
    with pytest.raises(BackendError, match="backend 'cuda' has no operator 'plain': it is defined without CUDA text"):
        options.check_runs(ek.parse("plain(x1)"), "cuda", gpu)
    with pytest.raises(BackendError, match="backend 'cuda' has no operator 'blend': it is defined without CUDA text"):
        options.check_runs(ek.parse("blend(x1, 1, 2)"), "cuda", gpu)
    options.check_runs(ek.parse("softplus(x1)"), "cuda", gpu)
    ek.operator("half", numpy=lambda a: a / 2, cuda="a / 2", derivative=lambda a: a * 0 + 0.5)
    options.check_runs(ek.parse("half(x1)"), "cuda", gpu)
    with pytest.raises(BackendError, match="operator 'dhalf_da', which stands in one, is defined without CUDA text"):
        options.check_slopes(ek.parse("half(x1)"), "cuda")


def test_auto_leaves_them_out_and_says_why(monkeypatch):
    monkeypatch.setattr(cost_model, "status", lambda name: cost_model.Status(True, "here"))
    monkeypatch.setattr(cost_model, "device", cost_model.Device)
    pop = ek.parse(["plain(x1)"] * 1000)
    work = cost_model.work_of(pop, 10**7, dtype="float32", fast=False, n_steps=10, threads=1, on_device=False)
    choice = cost_model.choose(work, pop=pop)
    assert choice.name == "cpu" and "operator 'plain' is defined without CUDA text" in choice.table()
    assert cost_model.choose(work, pop=ek.parse(["softplus(x1)"] * 1000)).name != "cpu"


# ── the GPU's texts ──


def test_kernels_hold_the_cuda_text():
    for text in (opcodes.source("ieee"), dual_opcodes.source("ieee")):
        assert "INLINE T user_softplus(T a) { return log1p(exp(a)); }" in text and "user_plain" not in text


@pytest.mark.slow
def test_the_gpu_s_kernels_compute_it(device):
    pop = ek.parse([text for text in MEANING if "plain" not in text])
    engine = Engine(pop, X, precision=ek.Precision("ieee"), dtype=np.dtype(np.float64), device=device)
    params, out = PARAMS[None, : len(pop)].copy(), device.xp.zeros((1, len(pop), len(X)))
    engine.evaluate(params, out)
    values = np.asarray(out.get() if hasattr(out, "get") else out)[0]
    ev = ek.Evaluator(pop, X, "numpy", dtype="float64")
    np.testing.assert_allclose(values, ev.evaluate(params[0]), rtol=1e-12)
    J = device.xp.zeros((1, len(pop), len(X), 2))
    engine.jacobian(params, J)
    slopes = np.asarray(J.get() if hasattr(J, "get") else J)[0]
    np.testing.assert_allclose(slopes, ev.jacobian(params[0]), rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_a_population_of_a_device_holds_it(device):
    pop = ek.parse([text for text in MEANING if "plain" not in text])
    engine = Engine(pop, X, precision=ek.Precision("ieee"), dtype=np.dtype(np.float64), device=device)
    expected = engine.loss_sums(PARAMS[None, : len(pop)], X[:, 0].copy(), None, "square")
    there = ek.DevicePopulation.of(pop, device)
    assert there.user_operators() == pop.expanded().user_operators() and engine.update(there)
    np.testing.assert_array_equal(engine.loss_sums(PARAMS[None, : len(pop)], X[:, 0].copy(), None, "square"), expected)
    plain = ek.DevicePopulation.of(ek.parse("plain(x1)"), device)
    with pytest.raises(BackendError, match="backend 'cuda' has no operator 'plain': it is defined without CUDA text"):
        options.check_runs(plain, "cuda", load("cpu")._replace(takes_settings=True, takes_device_populations=True))
    ek.operator("written(a) = a + softplus(a)")
    written = ek.parse("written(x1)")
    with pytest.raises(PopulationError, match="an operator defined by a formula"):
        ek.DevicePopulation(*map(device.xp.asarray, (written.kinds, written.values, written.offsets)), device=device)
    assert ek.DevicePopulation.of(written, device).to_host().texts() == ["x1 + softplus(x1)"]


@pytest.mark.slow
def test_one_defined_after_a_fit_has_slopes(device):
    """What a device keeps of the table is made anew."""

    def slopes(pop):
        engine = Engine(pop, X, precision=ek.Precision("ieee"), dtype=np.dtype(np.float64), device=device)
        J = device.xp.zeros((1, len(pop), len(X), pop.max_params))
        engine.jacobian(np.full((1, len(pop), pop.max_params), 0.7), J)
        return np.asarray(J.get() if hasattr(J, "get") else J)[0]

    slopes(ek.parse(["p1 * x1"]))
    ek.operator("twice", numpy=lambda a: 2 * a, cuda="a + a", derivative="2 + 0 * a")
    np.testing.assert_array_equal(slopes(ek.parse(["twice(p1 * x1)"]))[0, :, 0], 2 * X[:, 0])
