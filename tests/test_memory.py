"""No compiled loop writes or reads past its arrays: large parameter numbers, depths and widths, random populations.

Most of these find nothing by themselves: ``make bounds`` runs them once more with NUMBA_BOUNDSCHECK=1, where each
index that is out of bounds is an IndexError.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import exprkit as ek
from exprkit.operators import ops
from exprkit.programs.lower import lower, lower_gradients

X = np.random.default_rng(0).uniform(0.5, 2, (30, 1))
DIFFERENTIABLE = tuple(row.name for row in ops.OPERATORS if row.derivative)


def everything(pop, X, dtype="float64", seed=0):
    """Values, losses, derivatives, sums and fits of a population; gives the derivatives."""
    random = np.random.default_rng(seed)
    params, y = random.uniform(0.5, 1.5, (2, len(pop), pop.max_params)), random.uniform(0.5, 2, len(X))
    weights = np.where(random.random(len(X)) < 0.2, 0.0, 1.0)
    ev = ek.Evaluator(pop, X, "cpu", dtype=dtype)
    values, J = ev.evaluate(params), ev.jacobian(params)
    ev.loss(params, y, weights=weights)
    ev.normal_equations(params, y, weights)
    loss, gradient = ev.loss_and_grad(params, y)
    for method in ("lm", "lbfgs"):
        ek.fit(pop, X, y, method=method, max_iter=3, restarts=1, bounds=(-1, 1), backend="cpu", dtype=dtype)
    sums = np.einsum("sepi,sep->sei", np.nan_to_num(J), np.nan_to_num(values - y))
    usual = np.isfinite(J).all((2, 3)) & np.isfinite(values).all(2) & (np.abs(J).max((2, 3), initial=0) < 1e3)
    few = 1e-3 * (1 + np.abs(loss[usual]).max(initial=0))
    assert gradient[usual] == pytest.approx(2 * sums[usual], rel=1e-3, abs=few)
    return J


# ── large numbers of parameters ──


@pytest.mark.slow
@pytest.mark.parametrize("number", [64, 70, 300])
def test_a_parameter_s_number_may_be_large(number):
    pop = ek.parse([f"p{number} * x1", f"sqr(p{number}) + p1 * x1", f"exp(p{number})"])
    J = everything(pop, X)
    assert J[0, 0, :, number - 1] == pytest.approx(X[:, 0]) and (J[:, :2, :, 1 : number - 1] == 0).all()
    found = ek.fit(ek.parse(f"p{number} * x1"), X, 3 * X[:, 0], backend="cpu")
    assert found.params[0, number - 1] == pytest.approx(3) and found.loss[0] < 1e-9


@pytest.mark.slow
def test_parameters_may_be_numbered_through_a_population():
    pop = ek.parse([f"p{i + 1} * x1" for i in range(130)])
    found = ek.fit(pop, X, 3 * X[:, 0], backend="cpu")
    assert np.diagonal(found.params) == pytest.approx(3) and found.converged.all()
    program = lower_gradients(pop)
    assert program.n_slots <= 3, "parameters that an expression does not use share one column of zeros"


def test_an_expression_may_have_many_parameters():
    texts = [" + ".join(f"p{k + 1} * x1^{k % 7}" for k in range(n)) for n in (8, 9, 10, 63, 64, 65, 130)]
    J = everything(ek.parse(texts), X)
    assert J[0, 6, :, 129] == pytest.approx(X[:, 0] ** (129 % 7))


# ── depths and widths ──


@pytest.mark.parametrize("row", [row for row in ops.OPERATORS if row.derivative], ids=lambda row: row.name)
def test_every_operator_may_be_nested_deeply(row):
    texts = []
    for depth in (1, 2, 41, 60):
        left = right = "p1 * x1"
        for _ in range(depth):
            left = f"{row.name}({left}, p2)" if row.arity == 2 else f"{row.name}({left})"
            right = f"{row.name}(x1, {right})" if row.arity == 2 else f"{row.name}({right})"
        texts += [left, right, f"{left} + {right}"]
    pop = ek.parse(texts)
    for precision in ("ieee", "fast"):
        for dtype in (np.float32, np.float64):
            lower_gradients(pop, precision=precision, positive=np.array([True]), dtype=dtype)
            lower(pop, precision=precision, positive=np.array([True]), dtype=dtype)
    for name in ("x1", "p1"):
        pop.diff(name, errors="mask")


def test_thousands_of_levels():
    texts = ["acosh(" * 6000 + "p1 * x1" + ")" * 6000, "cos(" * 3000 + "p100 * x1" + ")" * 3000]
    found = ek.fit(ek.parse(texts), X, X[:, 0], max_iter=2, backend="cpu", dtype="float64")
    assert found.reason[0] == "the loss is not finite at any start" and np.isfinite(found.loss[1])


def test_wide_sums_and_many_variables():
    n = 300
    X = np.random.default_rng(1).uniform(0.5, 2, (20, n))
    both = "+".join(f"sin(x{i + 1}) * x{i + 1}^p1" for i in range(n))
    alone = [f"{name}(x{i + 1}) + p1" for i in range(n) for name in ("sin", "exp", "logabs", "sqrt")]
    everything(ek.parse([both, *alone]), X)


# ── random populations ──


@pytest.mark.slow
@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**31), longest=st.integers(1, 60), n_params=st.integers(1, 12), n_vars=st.integers(1, 5),
    dtype=st.sampled_from(["float32", "float64"]),
)  # fmt: skip
def test_random_populations(seed, longest, n_params, n_vars, dtype):
    pop = ek.generate.random(
        40, (1, longest), DIFFERENTIABLE if seed % 2 else "thesis", n_vars=n_vars, n_params=n_params, seed=seed
    )
    X = np.random.default_rng(seed).normal(0, 2, (1 + seed % 1100, n_vars))
    everything(pop, X, dtype, seed)


@pytest.mark.slow
@settings(max_examples=12)
@given(
    numbers=st.lists(st.integers(1, 150), min_size=1, max_size=8), texts=st.sampled_from(["esr", "thesis", "gp"]),
    seed=st.integers(0, 1000),
)  # fmt: skip
def test_random_expressions_with_parameters_of_any_number(numbers, texts, seed):
    pop = ek.generate.random(len(numbers), (1, 15), texts, n_vars=2, n_params=1, seed=seed)
    pop = ek.parse([text.replace("p1", f"p{n}") for text, n in zip(pop.texts(), numbers, strict=True)])
    data = np.random.default_rng(seed).uniform(0.5, 2, (9, max(2, pop.n_vars)))
    everything(pop, data)
