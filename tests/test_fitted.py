"""Fitted expressions: predictions, numbers in formulas, functions for other libraries, ranks, files."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from postfix_text import random_population

import exprkit as ek
from exprkit.errors import ArgumentError, DataError, OperandError, ParseError, PopulationError, SelectionError
from exprkit.fitting.fitted_expression import rounded, without
from exprkit.fitting.plot import beside_data
from exprkit.operators import ops
from exprkit.text.python_writer import JAX, NUMPY, TORCH, function
from exprkit.text.tokens import PARAMETER

AWKWARD = np.array([0.0, -0.0, 1, -1, 0.3, -0.3, 2.5, -2.5, 20.5, 1e300, -1e300, 1e-300, np.inf, -np.inf, np.nan])
X = np.linspace(0.1, 2, 60)[:, None] * [1.0, -0.5] + [0.0, 1.5]
X[::2, 1] += 0.25
NOISE = 0.02 * np.random.default_rng(3).standard_normal(len(X))
Y = 3 * np.exp(-X[:, 0]) + NOISE
TEXTS = ["p1 * exp(p2 * x1)", "p1 + p2 * x1", "p2 * x1 + p1", "p1 * x1 + p2 * x2 + p3", "x1", "p1 / (x1 - x1)"]


def run(text):
    """What a text of Python defines as ``f``."""
    names: dict = {}
    exec(compile(text, "written", "exec"), names)
    return names["f"]


@pytest.fixture(scope="module")
def found():
    return ek.fit(ek.parse(TEXTS), X, Y)


# ── predictions ──


@pytest.mark.slow
def test_predictions_are_those_of_the_definition(found):
    with np.errstate(all="ignore"):
        expected = ek.Evaluator(found.pop, X, "numpy", dtype="float64").evaluate(found.params)
    assert found.predict(X) == pytest.approx(expected, rel=1e-12, nan_ok=True)
    assert found.predict(X).dtype == np.float64
    assert found.predict(X, 1) == pytest.approx(expected[1], rel=1e-12)
    assert found.predict(X, [3, 0]) == pytest.approx(expected[[3, 0]], rel=1e-12)
    assert found[-3](X) == pytest.approx(expected[3], rel=1e-12)
    assert found.pop[1](X, found.params[1]) == pytest.approx(expected[1], rel=1e-12)
    assert found.pop[4](X).tolist() == X[:, 0].tolist()
    assert found.residuals(0) == pytest.approx(found.goal.y - expected[0], abs=1e-6)


def test_a_part_of_a_fit_is_a_fit(found):
    part = found[[3, 0]]
    assert part.pop.texts() == [TEXTS[3], TEXTS[0]] and part.index.tolist() == [3, 0]
    assert part[1].expression == found[0].expression and part.loss.tolist() == found.loss[[3, 0]].tolist()
    assert part.standard_errors == pytest.approx(found.standard_errors[[3, 0]], nan_ok=True)
    assert len(found[1:3]) == 2 and len(found[found.r2 > 0.9]) >= 1 and len(found[[]]) == 0
    assert found[:1].params.shape == (1, 2) and [one.loss for one in found][:2] == found.loss[:2].tolist()
    assert part.to_pandas().index.tolist() == [3, 0]
    for bad in (6, "a", [7], [True]):
        with pytest.raises(SelectionError):
            found[bad]


def test_bounds_stay_with_their_expressions():
    result = ek.fit(ek.parse(["x1", "p1 * x1", "p1 + p2 * x1"]), X, Y, bounds=([-1, 0], [0.5, 0.1]))
    part = result[[1]]
    assert part.goal.upper.tolist() == [[0.5]] and part.at_bound.tolist() == [[True]]
    assert np.isnan(part[0].standard_errors).all() and "bound" in part[0].reason


# ── formulas with numbers ──


def test_the_text_is_read_back_to_the_same_numbers(found):
    for one in found[:4]:
        again = ek.parse(str(one))[0]
        assert again.n_params == 0
        assert again(X).tobytes() == one.expression.with_numbers(one.params)(X).tobytes()


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1))
def test_signs_are_moved_without_changing_a_bit(seed):
    pop = random_population(20, seed)
    points = np.random.default_rng(seed).choice(AWKWARD, (40, max(pop.n_vars, 1)))
    params = np.random.default_rng(seed).standard_normal((len(pop), pop.max_params))
    with np.errstate(all="ignore"):
        expected = ek.Evaluator(pop, points, "numpy", dtype="float64").evaluate(params)
        with_numbers = ek.parse([pop[i].with_numbers(params[i, : pop.n_params[i]]) for i in range(len(pop))])
        values = ek.Evaluator(with_numbers, points, "numpy", dtype="float64").evaluate()
    assert np.array_equal(values, expected, equal_nan=True)


def test_latex_is_rounded_by_the_standard_errors(found):
    for value, error in zip(found[0].params, found[0].standard_errors, strict=True):
        text = rounded(value, error, None)
        step = 10.0 ** -len(text.partition(".")[2])
        assert error / 100 <= step <= error / 9.9
        assert text.lstrip("-") in found[0].latex()
    assert found[0].latex(digits=2) == r"3.0 \cdot e^{-1.0 \cdot x_{1}}"
    assert r"\pm" in found[0].latex(errors=True)
    line = found[1].latex(errors=True)  # 3 exp(-x) falls: its sign stands before the number
    number = r"\\left\(\d\.\d+ \\pm 0\.\d+\\right\)"
    assert re.fullmatch(rf"{number} - {number} \\cdot x_\{{1\}}", line), line
    assert f"${line}$" in found.latex_table(errors=True)
    bound = ek.fit("p1 - p2 * x1", [[0.0], [1.0], [2.0]], [2.0, 3.0, 4.0], bounds=(-1, 3))[0]
    assert bound.latex(digits=3) == r"2.00 + 1.00 \cdot x_{1}" and np.isnan(bound.standard_errors[1])
    with pytest.raises(ArgumentError, match="digits must be a whole number from 1 to 17, not 0"):
        found[0].latex(digits=0)


@pytest.mark.parametrize(
    ("value", "error", "digits", "text"),
    [
        (3.14159, 0.0213, None, "3.142"), (3.14159, 0.0213, 2, "3.1"), (3.14159, np.nan, None, "3.14"),
        (-1234.5678, 0.001, None, "-1234.5678"), (1234.5678, 120.0, None, "1.23e3"), (7.3, 500.0, None, "7"),
        (0.00001234, np.nan, None, "1.23e-5"), (0.0, 0.1, None, "0.0"), (np.nan, np.nan, None, "nan"),
        (99.96, 1.0, None, "100.0"), (1e30, np.nan, 1, "1e30"), (600.0, 70.0, 1, "600"), (0.996, np.nan, 2, "1.0"),
    ],
)  # fmt: skip
def test_numbers_are_written_to_their_last_sure_digit(value, error, digits, text):
    assert rounded(value, error, digits) == text


def test_sympy_has_the_numbers(found):
    sympy = pytest.importorskip("sympy")
    x1 = sympy.Symbol("x1")
    formula = sympy.lambdify(x1, found[0].sympy())
    assert formula(X[:, 0]) == pytest.approx(found[0](X), rel=1e-12)
    assert found[0].sympy(digits=1).free_symbols == {x1}


# ── functions for other libraries ──


def test_every_operator_has_its_numpy_function(op):
    a, b = (grid.ravel() for grid in np.meshgrid(AWKWARD, AWKWARD))
    text = f"{op.name}(x1)" if op.arity == 1 else f"{op.name}(x1, x2)"
    found = run(ek.parse(text)[0].to_numpy())(np.column_stack([a, b]))
    with np.errstate(all="ignore"):
        expected = op.numpy(a) if op.arity == 1 else op.numpy(a, b)
    same = np.isclose(found, expected, rtol=1e-13, equal_nan=True)
    if op.numpy is ops.BY_SPELLING["lgamma"].numpy:
        same |= np.isneginf(a)  # as the docstring says
    assert same.all(), (a[~same], b[~same])


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1))
def test_numpy_functions_of_whole_expressions(seed):
    pop = random_population(8, seed)
    points = np.random.default_rng(seed).uniform(-3, 3, (20, max(pop.n_vars, 1)))
    params = np.random.default_rng(seed).standard_normal((len(pop), pop.max_params))
    for i, expression in enumerate(pop):
        own = params[i, : expression.n_params]
        with np.errstate(all="ignore"):
            expected = ek.Evaluator(pop[[i]], points, "numpy", dtype="float64").evaluate([own])[0]
        text = expression.to_numpy(own.tolist())
        if "gammaln" in text or "special.gamma" in text or "round(" in str(expression):
            continue
        again = run(text)(points)
        assert again.shape == (20,) and "exprkit" not in text
        assert np.isfinite(again).tolist() == np.isfinite(expected).tolist(), text
        fine = np.isfinite(expected)
        assert again[fine] == pytest.approx(expected[fine], rel=1e-6, abs=1e-9), text


def test_the_text_reads_well():
    pop = ek.parse("p1 + `Temp (°C)` * logistic(np - p2) / 2", variables=["np", "Temp (°C)", "unused"])
    assert (
        pop[0].to_numpy([1.0, np.inf])
        == """\
import numpy as np


def logistic(a):
    return 1 / (1 + np.exp(-a))


def f(X, params=(1.0, float("inf"))):
    # p1 + `Temp (°C)` * logistic(np - p2) / 2
    X = np.asarray(X, float)
    x1 = X[:, 0]  # np
    x2 = X[:, 1]  # Temp (°C)
    p1, p2 = np.asarray(params, float)
    with np.errstate(all="ignore"):
        return p1 + x2 * logistic(x1 - p2) / 2.0
"""
    )
    assert "def f(X, params):" in pop[0].to_numpy()
    torch = pop[0].torch([1.0, 2.0])
    assert "import torch" in torch and "np." not in torch and "1 / (1 + torch.exp(-a))" in torch


def test_deep_and_long_expressions_are_many_lines():
    deep = ek.parse("sin(" * 3000 + "x1" + ")" * 3000)[0]
    assert run(deep.to_numpy())([[0.5]]) == pytest.approx(deep([[0.5]]))
    long = ek.parse(" + ".join(["x1 / (1 + x1)"] * 2000))[0]
    assert run(long.to_numpy())([[0.5]]) == pytest.approx(long([[0.5]]))


def test_constants_are_as_many_as_points():
    assert run(ek.parse("1 / 0")[0].to_numpy())(np.ones((3, 1))).tolist() == [np.inf] * 3
    assert run(ek.parse("-(2) ^ 0.5")[0].to_numpy())(np.ones((2, 0))) == pytest.approx([-np.sqrt(2)] * 2)
    assert np.isnan(run(ek.parse("(-2) ^ 0.5 + x1")[0].to_numpy())(np.ones((1, 1)))).all()


def test_names_cannot_carry_code():
    name = 'x\u2028exec(\'\') # """'
    with pytest.raises(ParseError, match="not a name"):
        ek.parse("1", variables=[name])
    quotes = 'a""" \\'
    text = ek.parse(f"`{quotes}` + 1", variables=[quotes])[0].to_numpy()
    assert run(text)([[2.0]]).tolist() == [3.0]


def test_what_a_library_lacks_is_said():
    with pytest.raises(OperandError, match="PyTorch has no function for 'gamma'"):
        ek.parse("gamma(x1)")[0].torch()
    with pytest.raises(ParseError, match="could not be read"):
        ek.parse(["("], errors="mask")[0].to_numpy()
    for row in ops.OPERATORS:
        expression = ek.parse(f"{row.name}(x1)" if row.arity == 1 else f"{row.name}(x1, x2)")[0]
        for library in (NUMPY, JAX, TORCH):
            if library is not TORCH or row.torch is not None:
                compile(function(expression, library), "written", "exec")


def test_jax_functions_agree():
    jax = pytest.importorskip("jax")
    one = ek.parse("p1 * exp(-p2 * x1) + logabs(x2) - cbrt(x1)")[0]
    f = run(one.jax([1.5, 0.5]))
    assert np.asarray(f(X)) == pytest.approx(one(X, [1.5, 0.5]), rel=1e-4)
    slope = jax.grad(lambda params: f(X, params).sum())(np.array([1.5, 0.5], np.float32))
    expected = ek.Evaluator(ek.parse([one]), X, "numpy", dtype="float64").jacobian([[1.5, 0.5]])[0].sum(axis=0)
    assert np.asarray(slope) == pytest.approx(expected, rel=1e-4)


def test_torch_functions_agree():
    torch = pytest.importorskip("torch")
    for row in ops.OPERATORS:
        if row.torch is None:
            continue
        one = ek.parse(f"{row.name}(x1)" if row.arity == 1 else f"{row.name}(x1, x2)")[0]
        assert run(one.torch())(torch.tensor(X)).numpy() == pytest.approx(one(X), rel=1e-9, abs=1e-12, nan_ok=True)


# ── the best of many ──


def test_ranks_are_by_what_is_asked_for(found):
    assert found.rank("loss").index[0] == np.nanargmin(found.loss)
    assert found.rank("bic")[0].expression == found.pop[0]
    assert found.rank("aic").columns["aic"][0] == np.nanmin(found.score("aic"))
    assert found.rank("nodes").pop.n_tokens.tolist() == sorted(found.pop.n_tokens.tolist())
    assert found.rank("r2").index[0] == 0 and np.isnan(found.rank().loss[-1])
    assert found.rank("bic").to_pandas()["bic"].tolist()[:5] == sorted(found.score("bic"))[:5]
    with pytest.raises(ArgumentError, match="did you mean 'bic'"):
        found.rank("bci")
    with pytest.raises(ArgumentError, match="no likelihood"):
        found.rank("description_length")
    with pytest.raises(ArgumentError, match="no likelihood"):
        ek.fit("p1", X, Y, loss="mae").rank("bic")


def test_information_criteria_are_those_of_the_books():
    two = ek.fit(["p1", "p1 + p2 * x1"], X, Y, dtype="float64")
    n, sse = len(Y), two.loss
    nll = n / 2 * (np.log(2 * np.pi * sse / n) + 1)
    assert two.score("aic") == pytest.approx(2 * nll + 2 * np.array([2, 3]))
    assert two.score("bic") == pytest.approx(2 * nll + np.log(n) * np.array([2, 3]))
    normal = ek.fit(["p1", "p1 + p2 * x1"], X, Y, dtype="float64", loss="gaussian")
    assert normal.score("bic") == pytest.approx(two.score("bic"))


def test_what_predicts_the_same_is_folded(found):
    folded = found.fold()
    assert folded.index.tolist() == [0, 1, 3, 4, 5] and folded.columns["alike"].tolist() == [1, 2, 1, 1, 1]
    assert folded.fold().columns["alike"].sum() == len(found)
    searched = ek.fit(ek.generate.exhaustive(5), X, Y)
    some = searched.fold()
    values, spread = some.predict(X), Y.std()
    with np.errstate(invalid="ignore"):
        for i in range(len(some)):
            if np.isfinite(values[i]).all():
                near = np.abs(values[i + 1 :] - values[i]).max(axis=1) / spread
                assert not (near < 5e-5).any(), some.pop.texts()[i]
    assert some.columns["alike"].sum() == len(searched) and len(some) < len(searched)
    with pytest.raises(ArgumentError, match="tolerance must be a number between 0 and 1"):
        found.fold(0)


def test_the_latex_table_has_the_first_rows(found):
    table = found.rank("bic").latex_table(2, digits=2)
    assert table.count(r"\\") == 3 and r"3.0 \cdot e^{-1.0 \cdot x_{1}}" in table and " & bic " in table
    with pytest.raises(ArgumentError, match="n must be"):
        found.latex_table(0)


def test_what_could_not_be_read_says_so():
    found = ek.fit(ek.parse(["p1 * x1", "x1 +"], errors="mask"), X, Y)
    assert repr(found[1]) == "<FittedExpression: , squares nan, the expression could not be read>"
    assert "(unreadable) & nan" in found.latex_table() and "$$" not in found.latex_table()


def test_plots_show_residuals_as_y_minus_f(found):
    pytest.importorskip("matplotlib")
    left, right = found.plot(0).axes
    assert right.get_ylabel() == "y - f" and left.get_xlabel() == "x1"
    assert right.lines[1].get_ydata() == pytest.approx(found.residuals(0), abs=1e-6)
    assert found[3].plot().axes[0].get_xlabel() == "predicted"
    drawn = io.BytesIO()
    found.plot(5).savefig(drawn)
    assert drawn.tell() > 1000


def test_plots_are_labelled_with_the_name_of_y_s_column(tmp_path):
    table = {"t": X[:, 0], "speed (m/s)": Y}
    found = ek.fit(["p1 * exp(p2 * t)", "p1 + p2 * t"], table, "speed (m/s)")
    found.save(tmp_path / "fit.npz")
    own = ek.fit("p1 * exp(p2 * t)", table, "speed (m/s)", loss="(f - y)^2")
    for one in (found, found[1], ek.load(tmp_path / "fit.npz"), own):
        left, right = one.plot().axes
        assert (left.get_ylabel(), right.get_ylabel()) == ("speed (m/s)", "speed (m/s) - f")
    assert ek.fit("p1 * x1", X, Y).plot().axes[0].get_ylabel() == "y"


@pytest.mark.parametrize("text", [f"p1 * x1 + sin(x1) {end}" for end in ("* p2", "/ p2", "* 2 * p2 * x2")])
@pytest.mark.parametrize("errors", [False, True])
def test_a_negative_number_of_a_summand_becomes_a_difference(text, errors):
    formula = ek.parse(text)[0]
    assert formula(X, [3.0, -2.0]).tolist() == formula.with_numbers([3.0, -2.0])(X).tolist()
    found = ek.fit(text, X, formula(X, [3.0, -2.0]) + NOISE, init=[[3.0, -2.0]], dtype="float64")[0]
    line = found.latex(errors=errors)
    assert line.count(" - ") == 1 and "(-" not in line, line
    assert " - " in str(found) and "(-" not in str(found)


def test_a_sign_before_a_number_is_the_number_s():
    formula = ek.parse("exp(-p1 * x1)")[0]
    assert str(formula.with_numbers([2.0])) == "exp(-2 * x1)"
    assert formula.with_numbers([2.0])(X).tolist() == formula(X, [2.0]).tolist()


def test_a_plot_s_legend_lies_outside_and_every_curve_is_seen():
    pytest.importorskip("matplotlib")
    table = {"rate (mM/s)": X[:, 0], "of $": X[:, 0] ** 2}
    one = ek.fit("p1 + p2 * `rate (mM/s)` + p3 * `of $`", table, Y)[0]
    drawn = one.plot()
    drawn.canvas.draw()
    assert not drawn.axes[0].get_legend() and len(drawn.legends) == 1
    legend = drawn.legends[0].get_window_extent()
    assert all(not legend.overlaps(axes.get_tightbbox()) for axes in drawn.axes)
    assert legend.x0 >= 0 and legend.x1 <= drawn.bbox.x1, "nor is it cut off"
    text = drawn.legends[0].get_texts()[1].get_text()
    assert "rate (mM/s)" in text and "`" not in text
    curves = [("a", one.expression, one), ("b", one.expression, one)]
    lines = beside_data(curves, np.column_stack([*table.values()]), Y, None).axes[0].lines
    assert lines[1].get_markersize() > lines[2].get_markersize()


# ── files ──


def test_a_saved_fit_comes_back(found, tmp_path):
    pop = ek.parse(TEXTS, parameters=["p1", "p2", "p3"])
    ranked = ek.fit(pop, X, Y, weights=1 + X[:, 0], bounds=(-5, 9)).rank("bic")
    ranked.save(tmp_path / "fit.npz")
    again = ek.load(tmp_path / "fit.npz")
    assert again.pop == ranked.pop and again.goal.loss == "squares" and again.reason == ranked.reason
    for name in ("params", "loss", "status", "iterations", "r2", "at_bound", "index", "standard_errors"):
        assert np.array_equal(getattr(again, name), getattr(ranked, name), equal_nan=True), name
    assert again.predict(X).tobytes() == ranked.predict(X).tobytes() and again.columns.keys() == {"bic"}
    assert ek.Population.load(tmp_path / "fit.npz") == ranked.pop
    found.pop.save(tmp_path / "pop.npz")
    assert ek.load(tmp_path / "pop.npz") == found.pop


def test_a_saved_fit_says_how_it_was_made(tmp_path):
    """By L-BFGS, for which the loss is smooth, not by Levenberg-Marquardt."""
    found = ek.fit("p1 * x1", X, Y, loss="logcosh(f - y)", dtype="float64")
    found.save(tmp_path / "fit.npz")
    assert ek.load(tmp_path / "fit.npz").method == found.method == "lbfgs"


@pytest.mark.parametrize(
    ("name", "array"),
    [("fit.params", np.ones((6, 9))), ("fit.ended", np.full(6, 250, np.uint8)), ("goal.X", np.ones((60, 1))),
     ("fit.seconds", np.ones(2)), ("goal.y", np.ones(59)), ("fit.loss", np.array(["a"] * 6))],
)  # fmt: skip
def test_a_fit_that_is_none_is_told(found, tmp_path, name, array):
    found.save(tmp_path / "fit.npz")
    arrays = dict(np.load(tmp_path / "fit.npz")) | {name: array}
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(PopulationError, match=r"bad\.npz"):
        ek.load(tmp_path / "bad.npz")


def test_predicting_for_data_that_does_not_fit_says_so(found):
    with pytest.raises(DataError, match="X has 1 column"):
        found.predict(X[:, :1])


def test_terms_that_are_lost_in_rounding_are_not_written():
    texts = ["p1 * x1 - p2 * x2", "p2 + p1 * x1", "p2 * exp(x2) / (x1 + p2) + p1 * x1", "p1 * x1 - p2 * 1e300 * x2"]
    y = 2 * X[:, 0]
    found = ek.fit(texts, X, y, init=np.tile([2.0, 2.2e-268], (4, 1)), dtype="float64", max_iter=0)
    assert [str(one) for one in found][:3] == ["2 * x1"] * 3 and "e-268" in str(found[3]), "this one counts"
    assert found[0].latex() == r"2.00 \cdot x_{1}" and len(found[0].sympy().free_symbols) == 1
    one = found[0]
    one._result.goal = one._result.goal._replace(X=X[:0])
    assert "e-268" in str(one), "what is not known to be lost stays"
    assert "2.2e-268" in found[0].to_numpy() and found.params[0, 1] == 2.2e-268, "the numbers stay"


@settings(max_examples=10)
@given(st.integers(0, 10_000))
def test_what_is_left_out_is_0(seed):
    """Of random expressions: 0 for the parameter, or nothing of it."""
    wide = np.random.default_rng(seed).normal(size=(9, 40))
    names = "add", "sub", "mul", "div", "neg", "sin", "exp", "sqr"
    for expression in random_population(20, seed, rows=[ops.BY_NAME[name] for name in names]):
        if expression.n_params:
            shorter = without(expression, np.array([0]))
            params = [0.0, *[1.3] * (expression.n_params - 1)]
            with np.errstate(all="ignore"):
                before, after = (one.with_numbers(params)(wide) for one in (expression, shorter))
            fine = np.isfinite(before)
            np.testing.assert_allclose(after[fine], before[fine], rtol=1e-12)
            assert not np.any((shorter.kinds == PARAMETER) & (shorter.values == 0))


@pytest.mark.parametrize("folder", [".", "/"])
def test_a_folder_is_no_file(folder):
    found = ek.fit("p1 * x1", [[1.0], [2.0]], [1.0, 2.0])
    for work in (found.save, ek.load):
        with pytest.raises(ArgumentError, match="is a folder: name a file in it"):
            work(folder)


@pytest.mark.parametrize(("loss", "meant"), [("mse", "squares"), ("r2", "squares"), ("l1", "mae"), ("hubber", "huber")])
def test_what_a_loss_is_called_elsewhere_is_known(loss, meant):
    with pytest.raises(ArgumentError, match=f"did you mean '{meant}'"):
        ek.fit("p1 * x1", [[1.0], [2.0]], [1.0, 2.0], loss=loss)
    with pytest.raises(DataError, match="did you mean 'sse'"):
        ek.Evaluator("x1", [[1.0]]).loss(None, [1.0], "squares")


def test_an_infinite_column_is_named_where_it_spoils_a_fit():
    X = np.random.default_rng(0).uniform(1, 2, (40, 2))
    X[[3, 7, 9], 0] = np.inf
    y, w = X[:, 1] * 2, np.ones(40)
    w[3] = 0
    pop = ek.parse(["p1 * width + height", "p1 * height", "exp(-width) + p1 * height"], variables=["width", "height"])
    found = ek.fit(pop, X, y, weights=w, backend="cpu")
    what = "the loss is not finite at any start; column 'width' of X is infinite in 2 of 40 values"
    assert found.reason[0] == what and found[0].reason == what
    assert found.converged.tolist() == [False, True, True]
    w[[7, 9]] = 0
    assert "infinite" not in ek.fit("p1 * x1 * log(x2 - 9)", X, y, weights=w, backend="cpu").reason
