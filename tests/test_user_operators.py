"""Operators of a user's own: read, printed, generated, saved, and on every backend what their text written out is."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

import exprkit as ek
from exprkit.backends.interpreter.engine import Engine
from exprkit.errors import ArgumentError, ParseError, PopulationError
from exprkit.evaluate import evaluator as evaluator_module
from exprkit.expressions.expression import Expression, constant
from exprkit.operators import defined, ops
from exprkit.runtime import files

FORMULAS = {
    "swish": "swish(a) = a / (1 + exp(-a))",
    "hill": "hill(a, b) = a^b / (1 + a^b)",
    "clip": "clip(a, low, high) = max(min(a, high), low)",
    "fma": "fma(a, b, c) = a * b + c",
    "either": "either(a, b, c) = cond(a, b) + cond(lessequal(a, 0), c)",
    "hard": "hard(u) = swish(hill(u, 2)) + u",
}
MEANING = {
    "swish": lambda a: a / (1 + np.exp(-a)),
    "hill": lambda a, b: a**b / (1 + a**b),
    "clip": lambda a, low, high: np.fmax(np.fmin(a, high), low),
    "fma": lambda a, b, c: a * b + c,
    "either": lambda a, b, c: np.where(a > 0, b, 0) + np.where(a <= 0, c, 0),
    "hard": lambda a: MEANING["swish"](MEANING["hill"](a, 2)) + a,
}
X = np.random.default_rng(0).uniform(0.1, 3, (50, 3))
TEXTS = [
    "p1 * swish(x1 + p2)", "hill(x1, p1) ^ 2 - x2", "clip(x1 * p1, -x2, swish(x2))", "swish(swish(swish(p1 * x1)))",
    "fma(fma(x1, x2, p1), x2 + 1, -3)", "either(x1 - 1, p1 * x2, x3)", "hard(hard(x1)) * p1", "x1", "hill(2, 3)",
]  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def own_operators(functions):
    for text in FORMULAS.values():
        ek.operator(text)


@pytest.fixture(scope="module")
def pop(own_operators):
    return ek.parse(TEXTS)


def some_params(pop, seed=1):
    return np.random.default_rng(seed).uniform(0.5, 2, (len(pop), pop.max_params))


# ── text ──


def _trees():
    rows = st.deferred(lambda: st.sampled_from([*ops.OPERATORS, *map(defined.spelled, FORMULAS)]))
    leaves = st.sampled_from(ek.variables(3) + ek.parameters(3)) | st.floats().map(constant)
    return st.recursive(
        leaves,
        lambda trees: st.builds(lambda row, a, b, c: applied(row, *(a, b, c)[: row.arity]), rows, trees, trees, trees),
        max_leaves=25,
    )


@given(_trees())
def test_text_is_read_back(expression):
    assert ek.parse(str(expression))[0] == expression
    assert pickle.loads(pickle.dumps(expression)) == expression


@pytest.mark.slow
@given(_trees())
def test_written_out_there_is_nothing_left_of_them(expression):
    pop = ek.parse([expression])
    expanded = pop.expanded()
    assert not expanded.definitions()
    assert expanded.expanded() is expanded
    assert expanded.n_params[0] == pop.n_params[0]
    for name in FORMULAS:
        assert f"{name}(" not in expanded.texts()[0]


def test_what_is_printed():
    assert str(ek.clip(ek.variables(1)[0], 0, ek.swish(2.0))) == "clip(x1, 0, swish(2))"
    assert ek.parse("hill(x1, 2) + 1")[0].latex() == r"\operatorname{hill}\left(x_{1}, 2\right) + 1"
    ek.operator("share(a, b) = a / (a + b)", latex=r"\frac{{a}}{{b}_{+}}")
    assert ek.parse("share(x1 + 1, x2) ^ 2")[0].latex() == r"\left(\frac{x_{1} + 1}{x_{2}_{+}}\right)^{2}"
    ek.operator("joined(a, b, c) = a * b * c", latex=r"{a} \star {b} \star {c}")
    assert ek.parse("2 * joined(x1 + 1, x2, 3)")[0].latex() == (
        r"2 \cdot \left(\left(x_{1} + 1\right) \star x_{2} \star 3\right)"
    )
    assert ek.parse("fma(x1, 2, p1)")[0].tree().splitlines() == ["fma", "├─ x1", "├─ 2", "└─ p1"]


def test_errors_name_the_operator():
    with pytest.raises(ParseError, match=r"'clip' takes 3 arguments, 2 given"):
        ek.parse("clip(x1, 2)")
    with pytest.raises(ParseError, match=r"'fma' is a function: write fma\(…, …, …\)"):
        ek.parse("fma + 1")
    with pytest.raises(ParseError, match="did you mean 'swish'"):
        ek.parse("swis(x1)")
    assert ek.parse("swish(swish)", variables=["swish"]).texts() == ["swish(swish)"]


@pytest.mark.slow
def test_operators_called_like_operands_and_columns_spoil_nothing():
    code = """if True:
        import exprkit as ek, numpy as np
        x = np.linspace(0.5, 2, 9)
        for name in ("c", "x", "p", "g", "k", "n", "np", "special", "torch", "jax", "i", "T", "y1"):
            ek.operator(f"{name}(t) = t^2")
        table = {"c": x, "np": 2 * x}
        found = ek.fit("p1 * c(c) + p2 * np", table, 3 * x**2 + x)
        assert np.allclose(found.params[0], [3, 0.5], atol=1e-3), found.params
        assert ek.fit("p1 * x1", x[:, None], 2 * x, loss="huber(y - f, 0.1) * w", weights=x).converged.all()
        exec(ek.parse("np(x1) + sin(special(x1)) + erf(x1)")[0].to_numpy(), space := {})
        assert space["f"](x[:, None]).shape == (9,)
        fma = ek.operator("fma3(a, b, c) = a * b + c")
        assert ek.parse("fma3(x1, p1, c(p2))").diff("p2").valid.all()
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("swish(a) = a", ArgumentError, "is 'swish(a) = a / (1 + exp(-a))' already"),
        ("g(a) = g(a) + 1", ArgumentError, "made of itself"),
        ("swish(a) = swish(a)", ArgumentError, "made of itself"),
        ("sin(a) = a", ArgumentError, "has an operator of this name"),
        ("arctan(a) = a", ArgumentError, "has an operator of this name"),
        ("pi(a) = a", ArgumentError, "a number, variable or parameter"),
        ("y(a) = a + 1", ArgumentError, "losses and derivatives are written over"),
        ("f(a) = a + 1", ArgumentError, "choose another name"),
        ("p2(a) = a", ArgumentError, "a number, variable or parameter"),
        ("g(a, b) = a", ArgumentError, "does not use the operand 'b'"),
        ("g(a) = a + z", ParseError, "operator 'g': unknown name 'z'"),
        ("g(a) = a + p1", ParseError, "unknown name 'p1'"),
        ("g(a) = gauss(a)", ParseError, "unknown function 'gauss'"),
        ("g(a) = (a", ParseError, "never closed"),
        ("g(a) =", ParseError, "the text is empty"),
        ("f a = a", ArgumentError, "write it as 'name(a, b) = formula'"),
        ("g(a)", ArgumentError, "write it as"),
        ("g(a, b, c, d) = a + b + c + d", ArgumentError, "1 to 3 operands"),
        ("f() = 1", ArgumentError, "1 to 3 operands"),
        ("g(a, a) = a", ArgumentError, "comes twice"),
        (3, ArgumentError, "not 3"),
    ],
)
def test_what_is_no_definition(text, error, message):
    before = defined.count()
    with pytest.raises(error) as raised:
        ek.operator(text)
    assert message in str(raised.value)
    assert defined.count() == before


@pytest.mark.parametrize("text", TEXTS)
def test_fitted_expressions_are_printed_and_run_elsewhere(text):
    x = X[:20]
    one = ek.fit(text, x, x[:, 0] ** 2, dtype="float64", max_iter=3)[0]
    assert repr(one).startswith("<FittedExpression: ") and one.latex() and one.sympy() is not None
    assert ek.parse(str(one))[0](x) == pytest.approx(one(x), rel=1e-12)
    space: dict = {}
    exec(one.to_numpy(), space)
    assert space["f"](x) == pytest.approx(one(x), rel=1e-9)
    compile(one.torch() + one.jax(), "written", "exec")
    assert "X" not in one.torch().partition("def f(")[0] + one.jax().partition("def f(")[0]


@pytest.mark.parametrize("library", ["jax", "torch"])
def test_other_libraries_run_the_text(library):
    module = pytest.importorskip("jax.numpy" if library == "jax" else "torch")
    for text in TEXTS[:-2]:
        one, params = ek.parse(text)[0], [1.5, 0.5]
        space: dict = {}
        exec(getattr(one, library)(params), space)
        found = space["f"](module.asarray(X))
        assert np.asarray(found) == pytest.approx(one(X, params[: one.n_params]), rel=1e-4)


def test_the_python_text_has_a_function_for_each_formula():
    assert (
        ek.parse("hill(x1, 2) + swish(x2)")[0].to_numpy()
        == """\
import numpy as np


def hill(a, b):
    return np.power(a, b) / (1.0 + np.power(a, b))


def swish(a):
    return a / (1.0 + np.exp(-a))


def f(X):
    # hill(x1, 2) + swish(x2)
    X = np.asarray(X, float)
    x1 = X[:, 0]
    x2 = X[:, 1]
    with np.errstate(all="ignore"):
        return hill(x1, np.float64(2.0)) + swish(x2)
"""
    )


def test_generators_take_what_operator_gave():
    by_name = ek.generate.random(20, operators=["hill", "sin", "+"], n_vars=2)
    assert ek.generate.random(20, operators=[ek.hill, np.sin, "+"], n_vars=2) == by_name


def test_bad_domain_and_latex():
    for domain in ((0, 1), "a > 0", 3):
        with pytest.raises(ArgumentError, match=r"domain must be \(low, high\) for each of its operands, not "):
            ek.operator("g(a, b) = a + b", domain=domain)
    with pytest.raises(ArgumentError, match="every operand once and in order"):
        ek.operator("g(a, b) = a + b", latex="{b} of {a}")


def test_the_same_again_is_fine():
    assert ek.operator("swish(z) = z / (1 + exp(-z))").__name__ == "swish"
    assert defined.spelled("swish").operands == ("a",)


# ── values and derivatives ──


@pytest.mark.parametrize("name", FORMULAS)
def test_values_are_the_formulas(name):
    arity = defined.spelled(name).arity
    text = f"{name}({', '.join(f'x{k + 1}' for k in range(arity))})"
    y = ek.Evaluator(ek.parse(text), X, "numpy", dtype="float64").evaluate()[0]
    np.testing.assert_allclose(y, MEANING[name](*X.T[:arity]), rtol=1e-14)


def test_every_backend_gives_what_the_text_written_out_gives(backend, pop):
    params, y = some_params(pop), X[:, 2]
    for dtype in ("float32", "float64"):
        short, long = (ek.Evaluator(p, X, backend, dtype=dtype) for p in (pop, ek.parse(pop.expanded().texts())))
        assert np.array_equal(short.evaluate(params), long.evaluate(params))
        assert np.array_equal(short.loss(params, y), long.loss(params, y))
        short.update(pop[::-1])
        assert np.array_equal(short.evaluate(params[::-1]), long.evaluate(params)[::-1])


@pytest.mark.slow
def test_the_gpu_s_kernels_do_too(device, pop):
    params = some_params(pop)[None]
    precision = ek.Precision("ieee")
    engine = Engine(pop.expanded(), X, precision=precision, dtype=np.dtype(np.float64), device=device)
    out = device.xp.zeros((1, len(pop), len(X)))
    engine.evaluate(params, out)
    np.testing.assert_allclose(
        np.asarray(out.get() if hasattr(out, "get") else out)[0],
        ek.Evaluator(pop, X, "numpy", dtype="float64").evaluate(params[0]), rtol=1e-12,
    )  # fmt: skip


@pytest.mark.parametrize("backend", ["numpy", "cpu", "cuda"])
def test_derivatives_against_complex_steps(backend, device):
    """Of "cuda" the kernels that the device runs, or that run here in its place."""
    pop = ek.parse(["p1 * swish(x1 * p2)", "hill(x1, p1) * p2", "fma(p1, x1, p2 * p2)", "hard(p1 * x1 + p2)"])
    functions = [
        lambda p, x: p[0] * MEANING["swish"](x * p[1]), lambda p, x: MEANING["hill"](x, p[0]) * p[1],
        lambda p, x: p[0] * x + p[1] ** 2, lambda p, x: MEANING["hard"](p[0] * x + p[1]),
    ]  # fmt: skip
    params, x = some_params(pop), X[:, 0]
    if backend == "cuda":
        precision, dtype = ek.Precision("ieee"), np.dtype(np.float64)
        engine = Engine(pop.expanded(), X[:, :1].copy(), precision=precision, dtype=dtype, device=device)
        out = device.xp.zeros((1, len(pop), len(X), pop.max_params))
        engine.jacobian(params[None], out)
        J = np.asarray(out.get() if hasattr(out, "get") else out)[0]
    else:
        J = ek.Evaluator(pop, X[:, :1], backend, dtype="float64").jacobian(params)
    for j in range(2):
        symbolic = ek.Evaluator(pop.diff(f"p{j + 1}"), X[:, :1], "numpy", dtype="float64").evaluate(params)
        for i, function in enumerate(functions):
            step = np.array(params[i], complex)
            step[j] += 1e-30j
            slope = function(step, x).imag / 1e-30
            np.testing.assert_allclose(J[i, :, j], slope, rtol=1e-10)
            np.testing.assert_allclose(symbolic[i], slope, rtol=1e-10)


def test_fits_are_those_of_the_text_written_out():
    y = 1.5 * MEANING["swish"](X[:, 0] * 2) + 0.1
    pop = ek.parse(["p1 * swish(x1 * p2) + p3", "hill(x1, p1) * p2"])
    short, long = (ek.fit(p, X, y, backend="cpu", dtype="float64") for p in (pop, pop.expanded()))
    assert np.array_equal(short.params, long.params, equal_nan=True)
    assert short.pop.texts() == pop.texts()
    np.testing.assert_allclose(short.params[0], [1.5, 2, 0.1], rtol=1e-6)


def test_what_becomes_too_long_is_said():
    text = "x1"
    for _ in range(20):
        text = f"swish({text})"
    with pytest.raises(PopulationError, match=r"expression 1 \(swish.*more than 65,535 tokens"):
        ek.Evaluator(ek.parse(["x1", text]), X)


# ── generators ──


@pytest.mark.parametrize(
    "names", [("swish", "hill", "add", "clip"), ("fma",), ("fma", "add"), ("swish", "fma"), ("clip", "fma", "sub")]
)
def test_random_populations_use_them(names):
    pop = ek.generate.random(500, operators=names, n_tokens=(1, 25), n_vars=3)
    codes = {(defined.spelled(name) or ops.BY_NAME[name]).code for name in names}
    assert set(pop.values[pop.kinds == 3].tolist()) == codes
    assert ek.parse(pop.texts()) == pop
    arities = {defined.row(code).arity for code in codes}
    feasible = {1}
    for n in range(2, 26):
        feasible |= {n} if any(n - arity in feasible or _splits(n - 1, arity, feasible) for arity in arities) else set()
    assert set(pop.n_tokens.tolist()) <= feasible
    assert len(set(pop.n_tokens.tolist())) > len(feasible) * 0.9


def _splits(rest, arity, feasible):
    """Whether ``rest`` is the sum of so many feasible sizes."""
    if arity == 1:
        return rest in feasible
    return any(_splits(rest - size, arity - 1, feasible) for size in feasible if size < rest)


@pytest.mark.slow
def test_equal_expressions_are_found():
    pop = ek.parse(["fma(x1 + x2, 1, x3)", "fma(x2 + x1, 1, x3)", "fma(1, x1 + x2, x3)", "fma(x1 + x2, x3, 1)",
                    "swish(x1 * x2)", "swish(x2 * x1)"])  # fmt: skip
    assert pop.duplicates().tolist() == [False, True, False, False, False, True]


@pytest.mark.slow
def test_exhaustive_populations_use_them():
    texts = ek.generate.exhaustive(3, operators=("swish", "hill"), n_vars=1, n_params=0).texts()
    assert texts == ["x1", "swish(x1)", "swish(swish(x1))", "hill(x1, x1)"]
    assert ek.generate.exhaustive(4, operators=("fma",), n_vars=1, n_params=0).texts() == ["x1", "fma(x1, x1, x1)"]


# ── SymPy ──


def test_sympy_both_ways(pop):
    assert ek.parse([one.sympy() for one in pop]) == ek.parse([one.sympy() for one in ek.parse(pop.texts())])
    x = sympy.Symbol("x1")
    swish = ek.parse("swish(x1)")[0].sympy()
    assert sympy.simplify(swish.doit() - x / (1 + sympy.exp(-x))) == 0
    slope = swish.diff(x)
    assert abs(float(slope.subs(x, 0.7)) - float((x / (1 + sympy.exp(-x))).diff(x).subs(x, 0.7))) < 1e-14
    assert abs(float(swish.subs(x, 0.7).evalf()) - MEANING["swish"](0.7)) < 1e-14
    assert ek.parse([sympy.Function("swish")(x)]).texts() == ["swish(x1)"]
    nested = ek.parse("fma(swish(x1), hill(x1, 2), x2)")[0]
    assert ek.parse([nested.sympy()])[0] == nested


# ── files and other processes ──


def elsewhere(script, folder, root):
    """What a new process prints that runs a script in a folder."""
    env = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_files_and_pickles_hold_definitions(pop, tmp_path, root):
    pop.save(tmp_path / "pop.npz")
    assert ek.Population.load(tmp_path / "pop.npz") == pop
    assert pickle.loads(pickle.dumps(pop)) == pop
    assert copy.deepcopy(pop) == pop
    (tmp_path / "pop.pickle").write_bytes(pickle.dumps((pop, pop[6])))
    script = """
import pickle, sys
import exprkit as ek
ek.operator("another(a) = a + 1")  # so that codes differ
loaded = ek.Population.load("pop.npz")
pickled, one = pickle.load(open("pop.pickle", "rb"))
assert loaded == pickled and loaded[6] == one
print("\\n".join(loaded.texts()))
print("\\n".join(loaded.expanded().texts()))
try:
    ek.operator("swish(a) = a")
except ValueError as error:
    print(error)
"""
    lines = elsewhere(script, tmp_path, root).splitlines()
    assert lines[: len(pop)] == pop.texts()
    assert lines[len(pop) : 2 * len(pop)] == pop.expanded().texts()
    assert "already" in lines[-1]


@pytest.mark.slow
def test_a_file_with_another_meaning_is_refused(tmp_path, root):
    script = """
import exprkit as ek
ek.operator("swish(a) = a + 1")
ek.parse("swish(x1)").save("pop.npz")
"""
    elsewhere(script, tmp_path, root)
    with pytest.raises(ArgumentError, match=r"'swish' is '.*' here and 'swish\(a\) = a \+ 1' where this was saved"):
        ek.Population.load(tmp_path / "pop.npz")


applied = Expression.applied


def test_a_damaged_file_is_refused(tmp_path):
    arrays = {"kinds": np.zeros(1, np.uint8), "values": np.zeros(1, np.uint64), "offsets": np.array([0, 1])}
    files.write_arrays(tmp_path / "pop.npz", {**arrays, "operators": np.array([["7", "f(a) = a", "", "0 1"]])})
    with pytest.raises(PopulationError, match="no code of an operator"):
        ek.Population.load(tmp_path / "pop.npz")


@pytest.mark.slow
def test_derivatives_look_at_the_operators_of_a_population_once(monkeypatch):
    """To write out its formulas takes longer than a gradient."""
    looked = []
    monkeypatch.setattr(evaluator_module, "check_slopes", lambda pop, name: looked.append(pop))
    pop, X = ek.parse(["p1 * x1", "x1^p1"]), np.ones((5, 1))
    ev = ek.Evaluator(pop, X, "cpu")
    for _ in range(3):
        ev.loss_and_grad([[1.0], [2.0]], X[:, 0])
        ev.jacobian([[1.0], [2.0]])
    ev.update(pop[::-1])
    ev.jacobian([[1.0], [2.0]])
    assert looked == [pop, ev.pop]
