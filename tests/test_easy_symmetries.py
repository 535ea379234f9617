"""Functions of one product of columns, outer functions that no operator undoes, and a y that is negative everywhere."""

from __future__ import annotations

import numpy as np
import pytest

from exprkit.regression.pairs.links import UNDONE, inverted
from exprkit.regression.problem.rows import Rows
from exprkit.regression.stages import exact, fewer_variables
from exprkit.regression.stages.discovery import Discovery
from exprkit.regression.stages.search import FormulaSearch
from exprkit.regression.stages.search_problem import SearchSettings, Signal
from exprkit.runtime.budget import Budget, Ended


def drawn(n_rows, n_columns, low=1.0, high=5.0, seed=0):
    return np.random.default_rng(seed).uniform(low, high, (n_rows, n_columns))


def found(X, y, stage, **settings):
    """What one step of a search finds."""
    search = FormulaSearch(Rows(X, y), SearchSettings(threads=1, **settings), Budget())
    try:
        search.run_stage(stage)
    except Ended:
        return search.front.entries()[-1].expression
    return None


# ── one product ──

INNER = {"an energy": lambda u: u / np.expm1(u), "a step": lambda u: 1 / (np.exp(u) + 1)}


@pytest.mark.slow
@pytest.mark.parametrize("name", INNER)
def test_functions_of_a_product_of_columns_are_found(name):
    X = drawn(150, 4)
    y = INNER[name](X[:, 0] * X[:, 2] / (X[:, 1] * X[:, 3]))
    np.testing.assert_allclose(found(X, y, fewer_variables.reduce)(X), y, rtol=1e-9)


# ── outer functions ──

OUTER = {
    "a cube": lambda u: u**3, "a cube root": np.cbrt, "an inverse cube": lambda u: u**-3.0,
    "a logarithm of the size": lambda u: np.log(np.abs(u)), "a root of the size": lambda u: np.sqrt(np.abs(u)),
    "an inverse root of the size": lambda u: np.abs(u) ** -0.5,
}  # fmt: skip


@pytest.mark.parametrize(("outer", "undone"), list(zip(OUTER, UNDONE, strict=True)))
def test_what_no_operator_undoes_is_undone(outer, undone):
    u = np.array([0.3, -1.7, 2.5, -0.2])
    y = OUTER[outer](u)
    v = inverted(undone, y)
    np.testing.assert_allclose(undone.numpy(v), y, rtol=1e-12)
    np.testing.assert_allclose(v, u if np.sign(v).min() < 0 else u * u, rtol=1e-9)


@pytest.mark.parametrize("outer", ["a cube", "a cube root", "an inverse cube"])
def test_outer_functions_of_a_difference_of_products_are_found(outer):
    X = drawn(80, 4, 1.0, 3.0, seed=19)
    y = OUTER[outer](X[:, 0] * X[:, 3] - X[:, 1] * X[:, 2])
    formula = found(X, y, exact.join)
    np.testing.assert_allclose(formula(X), y, rtol=1e-6)
    assert formula.n_tokens <= 12


@pytest.mark.parametrize("outer", [*list(OUTER)[3:], "an inverse square"])
def test_those_of_its_size_are_found(outer):
    X = drawn(80, 4, 1.0, 3.0, seed=20)
    y = (OUTER | {"an inverse square": lambda u: u**-2.0})[outer](X[:, 0] * X[:, 3] - X[:, 1] * X[:, 2])
    formula = found(X, y, lambda problem: [*exact.join_three(problem), Signal.PART_DONE])
    np.testing.assert_allclose(formula(X), y, rtol=1e-6)


RECIPROCALS = {
    "an occupation": lambda X: 1 / np.expm1(0.37 * X[:, 0] / X[:, 1]),
    "rates": lambda X: 1 / (X[:, 0] * X[:, 1] + 0.3 * X[:, 2] + 2),
    "a rise": lambda X: 1 / (X[:, 0] / X[:, 1] + np.exp(-0.7 * X[:, 2])),
}


@pytest.mark.parametrize("law", RECIPROCALS)
def test_reciprocals_of_sums_are_found_as_the_sums_are(law):
    X = drawn(60, 3)
    y = RECIPROCALS[law](X)
    for target in (y, 1 / y):
        formula = found(X, target, exact.join, pool_size=1_000)
        np.testing.assert_allclose(formula(X), target, rtol=1e-9)
        assert formula.n_tokens <= 14


# ── the sign of y ──

LAWS = {
    "a root": lambda X: np.sqrt(X[:, 0] + 2 * X[:, 1] * X[:, 2]), "growth": lambda X: np.exp(X[:, 0] - X[:, 1] / 3),
    "a reciprocal": RECIPROCALS["a rise"],
}  # fmt: skip


@pytest.mark.parametrize("law", LAWS)
def test_a_law_is_found_whatever_its_sign(law):
    X = drawn(60, 3)
    y, formulas = LAWS[law](X), []
    for sign in (1.0, -1.0):
        settings = SearchSettings(threads=1, pool_size=1_000, niterations=0)
        discovery = Discovery(Rows(X, sign * y), settings, Budget())
        assert discovery.run() == "a formula is exact"
        formulas.append(discovery.search.front.entries()[-1].expression)
        np.testing.assert_allclose(formulas[-1](X), sign * y, rtol=1e-9)
    assert abs(formulas[0].n_tokens - formulas[1].n_tokens) <= 2
