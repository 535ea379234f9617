"""Wild rows: formulas that are undefined or far off where their variables are as they usually are."""

import numpy as np
import pytest

import exprkit as ek
from exprkit.regression.estimator import equations
from exprkit.regression.formulas.front import Entry
from exprkit.regression.problem.goal import Goal
from exprkit.regression.problem.rows import Rows
from exprkit.regression.shapes import growth
from exprkit.regression.shapes.between_rows import errors_between_rows
from exprkit.regression.shapes.growth import leave_one_out_errors


def sample_of(n=300, low=46.0):
    random = np.random.default_rng(0)
    X = random.uniform(low, low + 180, (n, 2))
    X[0, 0] = low  # beside the row next to it by about one
    return Rows(X, 45 - 0.1 * X[:, 0] + random.standard_normal(n))


def wild_of(texts, rows):
    return errors_between_rows([ek.parse([text])[0] for text in texts], rows).tolist()


@pytest.mark.slow
def test_what_is_far_off_just_beyond_the_rows_is_wild():
    """The exponential is 9 at the first row, and 60 one unit before it."""
    rows, line = sample_of(), "45 - 0.1 * x1"
    plain, exponential, undefined = wild_of([line, f"{line} + exp(90 - 1.9 * x1)", f"{line} + sqrt(x1 - 45.9)"], rows)
    assert plain == 0 and exponential == undefined == pytest.approx(100 / 300)


def test_to_be_undefined_beside_the_rows_is_worse_than_to_be_far_off():
    rows = sample_of(n=99)
    undefined, far_off = wild_of(["45 - 0.1 * x1 + 0 * log(x1 - x2)", "45 - 1000 * (sign(x2 - x1) + 1)"], rows)
    assert undefined == pytest.approx(10 * far_off, rel=0.1) and far_off > 1


def test_signs_are_kept_and_counts_may_be_0():
    random = np.random.default_rng(0)
    few = np.append(1.0, random.integers(9, 20, 299))  # a count that is 1 once
    positive = np.exp(-9 * random.uniform(0, 1, 300))
    rows = Rows(np.column_stack([few, positive]), np.log(few))
    assert wild_of(["log(x1)", "log(x1 + 1)", "log(x1 + 1) + 0.1 * log(x2)"], rows) == [pytest.approx(1 / 3), 0, 0]


def test_of_few_rows_nothing_is_known_beyond():
    rows, law = sample_of(n=99), "45 - 0.1 * x1 + exp(90 - 1.9 * x1)"
    assert wild_of([law], rows) == [0]
    assert wild_of([law], sample_of(n=100)) == [pytest.approx(1)]


def test_a_wild_formula_neither_grows_nor_is_chosen(monkeypatch):
    rows, line = sample_of(), "45 - 0.1 * x1"
    formulas = [ek.parse([text])[0] for text in (line, f"{line} + exp(90 - 1.9 * x1)")]
    known, errors = expected(formulas, rows), leave_one_out_errors(formulas, rows)
    for module in (equations, growth):
        monkeypatch.setattr(module, "errors_between_rows", lambda formulas, *_: np.zeros(len(formulas)))
    assert errors / leave_one_out_errors(formulas, rows) == pytest.approx([1, 4 / 3])
    assert known - expected(formulas, rows) == pytest.approx([0, 150 * np.log(4 / 3)])


def expected(formulas, rows):
    entries = [Entry(one, float(np.mean((one(rows.X) - rows.y) ** 2)), one.n_tokens) for one in formulas]
    return equations.described(entries, Goal("squares", rows), None, 0.0).expected
