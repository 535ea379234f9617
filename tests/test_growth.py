"""Growth: what is found by adding functions at nodes, and that noise is not described."""

import numpy as np
import pytest

import exprkit as ek
from exprkit.regression.formulas.front import Front
from exprkit.regression.formulas.parameters import as_parameters
from exprkit.regression.problem.rows import Rows
from exprkit.regression.shapes.growth import Growing, dissimilar, grown, leave_one_out_errors
from exprkit.regression.stages import growth
from exprkit.regression.stages.discovery import begin
from exprkit.regression.stages.search import FormulaSearch
from exprkit.regression.stages.search_problem import SearchSettings
from exprkit.regression.sums.inside import Functions
from exprkit.runtime.budget import Budget
from exprkit.text.tokens import CONSTANT, VARIABLE


def sample_of(law, n=200, noise=0.0):
    random = np.random.default_rng(0)
    X = random.uniform(0, 2, (n, 3))
    y = law(*X.T)
    return Rows(X, y + noise * np.std(y) * random.standard_normal(n))


def variables(rows):
    trees = [(CONSTANT, 1.0), *((VARIABLE, k) for k in range(rows.X.shape[1]))]
    return Functions(np.concatenate([np.ones((1, len(rows))), rows.X.T]), trees, np.ones(len(trees), int))


def best_loss(formulas, rows):
    pop, starts = as_parameters(ek.parse(formulas))
    return np.nanmin(ek.fit(pop, rows.X, rows.y, init=starts, dtype="float64", backend="cpu").loss)


def test_a_function_is_added_where_it_gains_most():
    rows = sample_of(lambda a, b, c: np.sin(2 * a + 0.3 * b) * (3 + 0.2 * c))
    before = ek.parse(["3 * sin(2 * x1)"])
    once = grown(before[0], variables(rows), rows, 30)
    twice = [other for one in once for other in grown(one, variables(rows), rows, 30)]
    pop, starts = as_parameters(before)
    was = ek.fit(pop, rows.X, rows.y, init=starts, dtype="float64", backend="cpu").loss[0]
    assert best_loss(once, rows) < 0.5 * was and best_loss(twice, rows) < 1e-12


def test_grown_formulas_are_no_longer_than_they_may_be_and_smaller_ones_are_among_them():
    rows = sample_of(lambda a, b, c: a + 2 * b)
    formula = ek.parse(["1.1 * x1 + 2 * x2 + 0.01 * sin(x3)"])[0]
    found = grown(formula, variables(rows), rows, formula.n_tokens + 4)
    assert max(one.n_tokens for one in found) <= formula.n_tokens + 4
    assert "1.1 * x1 + 2 * x2" in map(str, found)


def test_rows_left_out_are_predicted_as_by_fits_without_them():
    rows = sample_of(lambda a, b, c: a * b, n=30, noise=0.2)
    columns = np.column_stack([np.ones(30), rows.X[:, 0]])
    errors = []
    for row in range(30):
        others = np.arange(30) != row
        numbers = np.linalg.lstsq(columns[others], rows.y[others], rcond=None)[0]
        errors.append((rows.y[row] - columns[row] @ numbers) ** 2)
    numbers = np.linalg.lstsq(columns, rows.y, rcond=None)[0]
    line = ek.parse([f"{numbers[0]!r} + {numbers[1]!r} * x1".replace("np.float64(", "").replace(")", "")])[0]
    np.testing.assert_allclose(leave_one_out_errors([line], rows), np.mean(errors), rtol=1e-9)


def test_of_functions_that_are_nearly_lines_of_each_other_the_smallest_is_kept():
    x = np.linspace(0, 1, 50)
    values = np.array([3 * x + 1, x, np.cos(9 * x), x + 1e-3 * np.cos(9 * x)])
    kept = dissimilar(Functions(values, [(CONSTANT, float(k)) for k in range(4)], np.array([5, 1, 4, 9])))
    assert [tree[1] for tree in kept.trees] == [1.0, 2.0] and kept.sizes.tolist() == [1, 4]


def search(rows, most=40):
    found = FormulaSearch(rows, SearchSettings(maxsize=most, threads=1), Budget())
    for stage in (begin, growth.grow):
        found.run_stage(stage)
    return found.front


@pytest.mark.slow
def test_a_surface_that_is_no_law_is_described_beyond_what_sums_reach():
    rows = sample_of(lambda a, b, c: np.maximum(a, 0.7) / (1 + np.exp(8 * (1 - b))) + 0.3 * np.abs(c - 1), noise=0.02)
    assert search(rows).min_loss < 0.02 * np.var(rows.y)


def test_noise_is_not_described():
    random = np.random.default_rng(3)
    rows = Rows(random.uniform(0, 1, (300, 4)), random.standard_normal(300))
    front = search(rows)
    assert front.min_loss > 0.8 * np.var(rows.y), [str(one.expression) for one in front.entries()]


def test_what_is_longer_by_more_has_to_gain_more():
    """Ten nats are no accident for a variable and its number, but for one of the very many functions of that size."""
    random = np.random.default_rng(0)
    columns, n = np.linalg.qr(random.standard_normal((200, 5)))[0], 200
    noise, gain = columns[:, 4], 10.0
    c = float(np.sqrt(np.exp(2 * gain / n) - 1))
    X = columns[:, :4]
    rows = Rows(X, X[:, 0] + c * X[:, 1] + noise)
    short, added, long = ek.parse(["x1", f"x1 + {c} * x2", f"x1 + {c} * x2 * x3 * x4 / x4 / x3"])
    front = Front(30, rows=n)
    front.offer(short, float(np.mean((short(rows.X) - rows.y) ** 2)))
    growing = Growing(front, variables(rows))
    assert growing.better([added, long], rows) == [added]
