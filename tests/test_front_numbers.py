"""The numbers of a front have the least loss of their form and the errors of ``ek.fit``; which formula is selected."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import exprkit as ek
from exprkit.errors import ArgumentError
from exprkit.regression.estimator import numbers
from exprkit.regression.estimator.equations import DescribedFront, described, selected
from exprkit.regression.formulas.front import Entry
from exprkit.regression.formulas.parameters import as_parameters
from exprkit.regression.formulas.simplify import simplified, with_signs_inside
from exprkit.regression.problem import effort
from exprkit.regression.problem.goal import rows_for
from exprkit.regression.problem.rows import Rows
from exprkit.regression.shapes.poles import have_poles
from exprkit.regression.shapes.spread import proportional_weights
from exprkit.regression.shapes.turns import turn_too_fast
from exprkit.regression.stages.search import FormulaSearch
from exprkit.regression.stages.search_problem import SearchSettings
from exprkit.runtime.budget import Budget

QUICK = {"niterations": 0, "pool_size": 100, "maxsize": 7, "random_state": 0, "max_evals": 20_000}
ROBUST = "huber(log(f) - log(y), 0.2)"


def table(n=60, seed=0, noise=0.3):
    random = np.random.default_rng(seed)
    x = random.uniform(0.5, 4, n)
    return x[:, None], 3.3 * x**0.8 + 1.7 + noise * random.standard_normal(n)


def front_of(texts, X, y, loss="squares", weights=None):
    """What is shown of a search that has found these formulas, and nothing else."""
    search = FormulaSearch(rows_for(loss, X, y, weights), SearchSettings(loss=loss), Budget())
    search.offer(ek.parse(texts))
    entries, simple = numbers.finished(search.problem)
    return described(entries, search.problem.goal, None, search.front.floor, simple)


def fit_of(formula, X, y, **arguments):
    pop, params = as_parameters(ek.parse([formula]))
    return ek.fit(pop, X, y, init=params, dtype="float64", backend="cpu", tol=1e-14, **arguments)


@pytest.mark.parametrize("text", ["4 * x1", "7", "5 * x1 + 1", "2 * x1 ^ 1.5 + 1", "3 * (0.4 * sqrt(x1) + 0.1)"])
def test_numbers_have_the_least_squares_of_their_form(text):
    X, y = table()
    front = front_of([text], X, y)
    entry = front.entries[0]
    best = fit_of(entry.expression, X, y)
    assert entry.loss == pytest.approx(best.loss[0] / len(y), rel=1e-10)
    assert front.numbers[0] == pytest.approx(best.params[0], rel=1e-5)


@pytest.mark.parametrize("loss", ["mae", "huber", ROBUST])
def test_numbers_have_the_least_loss_that_was_asked_for(loss):
    X, y = table()
    goal = FormulaSearch(rows_for(loss, X, y), SearchSettings(loss=loss), Budget()).problem.goal
    entry = front_of(["5 * x1 + 1"], X, y, loss).entries[0]
    for a, b in np.random.default_rng(1).normal(0, 0.02, (40, 2)):
        slope, cut = (float(number) for number in entry.expression.values[[0, 3]].view(np.float64))
        assert goal.losses(((slope + a) * X[:, 0] + cut + b)[None])[0] >= entry.loss * (1 - 1e-6)


def test_simple_numbers_of_exact_formulas_stay():
    X, _ = table()
    front = front_of(["2 * x1 ^ 1.5 + 1", "3 * x1"], X, 2 * X[:, 0] ** 1.5 + 1)
    assert [str(front.named(i)) for i in range(len(front.entries))][-1] == "2 * x1 ^ 1.5 + 1"
    assert front.exact[-1] and front.entries[-1].loss < 1e-25


def test_an_exponent_of_negative_numbers_stays_whole():
    X, y = table()
    front = front_of(["2 * x1 ^ 3 + 1"], X - 2, y)
    assert "x1 ^ 3" in str(front.named(0))
    powers = np.stack([(X[:, 0] - 2) ** 3, np.ones(len(y))], 1)
    best = np.linalg.lstsq(powers, y, rcond=None)[1][0] / len(y)
    assert front.entries[0].loss == pytest.approx(best, rel=1e-10)


@pytest.mark.parametrize("loss", ["squares", "huber", ROBUST])
@pytest.mark.parametrize("weighted", [False, True])
def test_errors_are_those_of_a_fit(loss, weighted):
    X, y = table()
    X, y = np.concatenate([X, X[:9]]), np.concatenate([y, y[:9]])  # nine rows twice
    w = 1 + 0.5 * np.sin(y) if weighted else None
    front = front_of(["5 * x1 ^ 0.9"], X, y, loss, w)
    best = fit_of(front.entries[0].expression, X, y, loss=loss, weights=w)
    assert front.errors[0] == pytest.approx(best.standard_errors[0], rel=1e-4)
    assert front.covariances[0] == pytest.approx(best.covariance[0], rel=1e-4)


def test_as_many_numbers_as_rows_have_no_errors():
    X, y = table(3)
    for loss in ("squares", "huber"):
        assert np.isnan(front_of(["2 * x1 ^ 1.5 + 1"], X, y, loss).errors).all()


@pytest.mark.parametrize(("text", "shorter"), [
    ("-9.7 * (-19 * sin(6.3 * x1) / x1 - 1.2)", 10), ("3 * (2 * x1 + 5)", 5), ("4 * exp(2 * x1 + 0.3)", 6),
    ("2 * (3 * x1) ^ 0.7", 5), ("2 * log(3 * x1) + 1", 6),
])  # fmt: skip
def test_a_number_that_others_can_stand_for_is_taken_out(text, shorter):
    X, y = table()
    front = front_of([text], X, y)
    assert front.entries[0].size == shorter
    assert np.isfinite(front.errors[0]).all() and (front.errors[0] < 100).all()
    params = np.array([[5.0, 1.5, 2.0]])
    pop = ek.parse("p1 * (p2 * x1 + p3)")
    assert numbers.undetermined(pop, params, X).tolist() == [True] * 3
    assert not numbers.undetermined(ek.parse("p1 * (p2 * x1 + 3)"), params[:, :2], X).any()


@pytest.mark.parametrize(("text", "tidy"), [
    ("-9.3 * (-sin(x1) - 1.04)", "9.3 * (sin(x1) + 1.04)"), ("-2 * (3 - x1) / (x1 + 1)", "2 * (x1 - 3) / (x1 + 1)"),
    ("-75 * (-x1 - 9) * min(x1, 0.4)", "75 * (x1 + 9) * min(x1, 0.4)"), ("-3 * (x1 + sin(x1))", "-3 * (x1 + sin(x1))"),
    ("-((0.003 * exp(x1) - 1.1) * (x1 + 2))", "(1.1 - 0.003 * exp(x1)) * (x1 + 2)"), ("x1 + -3", "x1 - 3"),
])  # fmt: skip
def test_signs_stand_where_they_are_short(text, tidy):
    assert str(with_signs_inside(simplified(ek.parse([text])[0]))) == tidy


@pytest.mark.parametrize("text", ["15 / (1.1 / x1 + 1.2)", "12.3 / (0.8 / x1 + 1)"])
def test_a_number_that_others_are_in_units_of_is_1(text):
    X, y = table()
    front = front_of([text], X, y)
    numbers, errors = front.numbers[0].tolist(), front.errors[0]
    assert 1.0 in numbers and errors[numbers.index(1.0)] == 0 and np.isfinite(errors).all()
    free = ek.fit("p1 * x1 / (x1 + p2)", X, y, dtype="float64", backend="cpu", tol=1e-14)
    assert front.entries[0].loss == pytest.approx(free.loss[0] / len(y), rel=1e-6)
    assert "1.0" not in front.short(0)


def test_formulas_that_differ_by_rounding_alone_are_one():
    X, y = table()
    front = front_of(["3.3 * x1", "3.3 * x1 + 1e-12", "0.99999999 * (3.3 * x1 + 1e-9 * sin(x1))"], X, y)
    sizes = [entry.size for entry in front.entries]
    losses = np.array([entry.loss for entry in front.entries])
    assert sizes[0] == 3 and (losses[1:] < 0.999 * losses[:-1]).all()


# ── which formula is selected ──


def a_front(lengths, expected, poles=None):
    entries = [Entry(ek.parse("x1 + " * k + "x1")[0], 1.0 / (k + 1), 2 * k + 1) for k in range(len(lengths))]
    exact, nothing = np.zeros(len(lengths), bool), np.empty((len(lengths), 0))
    columns = map(np.array, (lengths, expected))
    poles = np.zeros(len(lengths), bool) if poles is None else poles
    return DescribedFront(entries, None, *columns, exact, nothing, nothing, 1e-26, poles)


def test_of_formulas_of_a_size_the_one_of_the_shorter_description_stands_in_the_front():
    """A third number that lowers the loss by less than a number costs, in a formula that is written shorter at last."""
    random = np.random.default_rng(4)
    x = np.repeat([0.2, 0.5, 1, 2, 4, 7, 10], 4)
    y = 1.9 * x / (1.7 + x) + 0.05 * random.standard_normal(len(x))
    front = front_of(["1.9 * x1 / (x1 + 1.7)", "1.9 * (1.01 - 1.71 / (x1 + 1.72))"], x[:, None], y)
    losses = [front_of([text], x[:, None], y).entries[0].loss for text in ("x1 / (x1 + 1.7)", "2 - 3 / (x1 + 1.7)")]
    assert [entry.size for entry in front.entries] == [7] and front.short(0).count(".") == 2
    assert losses[1] < front.entries[0].loss


def test_the_description_length_has_a_veto():
    front = a_front([-20.0, -19.0, -9.0], [0.0, -3.0, -40.0])
    assert [selected(front, how, 0.0) for how in ("best", "mdl", "accuracy")] == [1, 0, 2]
    for length, chosen in ((-15.5, 1), (-14.5, 0)):  # very strong evidence against it, and no less, is a veto
        assert selected(a_front([-20.0, length], [0.0, -1.0]), "best", 0.0) == chosen


def test_a_formula_with_a_pole_is_not_selected():
    front = a_front([-20.0, -19.0, -24.0], [0.0, -3.0, -40.0], np.array([False, False, True]))
    assert selected(front, "best", 0.0) == 1
    every = a_front([-20.0, -19.0], [0.0, -3.0], np.array([True, True]))
    assert selected(every, "best", 0.0) == 1


@pytest.mark.parametrize(("text", "expected"), [
    ("1 / (110.1 - x1)", True), ("1e-6 / (x1 - 51.3)", True), ("1e-3 / sqr(x1 - 51.3)", True), ("log(x1 - 0.5)", False),
    ("log(51.3 - x1)", True), ("tanh(1 / (x1 - 77.7))", False), ("(x1 - 51.3) ^ -3", True), ("1 / sin(x1)", True),
    ("x1 / (exp(x1 / 100) - 1)", False), ("inv(x1 + 3)", False), ("sqrt(abs(x1 - 60) - 0.4)", True),
])  # fmt: skip
def test_poles_between_rows_are_seen(text, expected):
    x = np.linspace(1, 200, 97)
    assert have_poles([ek.parse(text)[0]], Rows(x[:, None], x)).tolist() == [expected]


def test_poles_of_several_variables_are_seen():
    X = np.random.default_rng(0).uniform(1, 3, (80, 2))
    formulas = list(ek.parse(["1e-6 / (x1 - x2)", "x1 / x2", "1e-6 / (x1 - x2 - 2.5)", "1 / (x1 * x2 - 0.5)"]))
    assert have_poles(formulas, Rows(X, X[:, 0])).tolist() == [True, False, False, False]


def test_zeros_of_columns_with_both_signs_are_no_poles():
    X = np.random.default_rng(0).uniform(-3, 3, (80, 2))
    formulas = list(ek.parse(["x1 / x2", "sqrt(x1 * x2)", "1 / sqr(x1 * x2)", "1e-6 / (x2 - 0.37)", "1e-6 / sin(x1)"]))
    assert have_poles(formulas, Rows(X, X[:, 0])).tolist() == [False, False, False, True, True]


# ── noise that grows, and what turns too fast ──


def drawn_wide(law, low, high, n, seed, share):
    random = np.random.default_rng(seed)
    X = np.stack([np.exp(random.uniform(np.log(a), np.log(b), n)) for a, b in zip(low, high, strict=True)], 1)
    return X, law(X), share * random.standard_normal(n)


LAWS = [
    (lambda x: 2.2 * x[:, 0] / x[:, 1] ** 2, [1e3, 1], [1e6, 100], 30),
    (lambda x: 3e7 / x[:, 0] ** 2, [1e3], [1e5], 20),
    (lambda x: 0.5 * x[:, 0] * x[:, 1] ** 1.5, [1, 1], [1e3, 100], 25), (lambda x: -4 * x[:, 0] ** 0.7, [1], [1e4], 30),
]  # fmt: skip


@pytest.mark.parametrize("law", range(len(LAWS)))
def test_noise_in_proportion_gives_weights_and_no_other(law):
    f, low, high, n = LAWS[law]
    told = {"proportional": 0, "constant": 0, "none": 0}
    for seed in range(8):
        X, y, noise = drawn_wide(f, low, high, n, seed, 0.15)
        for kind, data in (("proportional", y * (1 + noise)), ("constant", y + noise * y.std()), ("none", y)):
            weights = proportional_weights(Rows(X, data))
            told[kind] += weights is not None
            if weights is not None:
                assert weights.mean() == pytest.approx(1)
                order = np.lexsort((data, *X.T[::-1]))
                assert np.corrcoef(np.log(weights), np.log(y[order] ** 2))[0, 1] < -0.97
    assert told["proportional"] >= 7 and told["constant"] <= 1 and not told["none"]


def test_noise_of_two_parts_gives_small_values_no_more_than_their_weight():
    """0.08 and 4 % of y: from y = 0.7 to 12 variances differ by some 35, and the squares of y by 290."""
    x = np.repeat([0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3, 5, 8, 12, 16, 20], 6)
    ratios = []
    for seed in range(8):
        random = np.random.default_rng(seed)
        y = 12.5 * x / (0.85 + x) * (1 + 0.04 * random.standard_normal(len(x))) + 0.08 * random.standard_normal(len(x))
        weights = proportional_weights(Rows(x[:, None], y))
        ratios += [] if weights is None else [weights.max() / weights.min()]
    assert len(ratios) >= 4 and 10 < np.median(ratios) < 140
    asked = proportional_weights(Rows(x[:, None], y), always=True)
    assert asked.max() / asked.min() > 200


def wide_table(seed=1):
    X, y, noise = drawn_wide(*LAWS[1][:1], *LAWS[1][1:], seed, 0.15)
    return X, y * (1 + noise)


@pytest.fixture(scope="module")
def weighed():
    return ek.SymbolicRegressor(**QUICK).fit(*wide_table())


@pytest.mark.slow
@pytest.mark.usefixtures("few_stages")
def test_a_search_weighs_rows_where_noise_grows_and_says_so(weighed, capsys):
    X, y = wide_table()
    assert weighed.noise_ == "proportional" and "noise='constant'" in str(weighed)
    errors = np.log(weighed.predict(X) / LAWS[1][0](X))
    assert np.sqrt(np.mean(errors**2)) < 0.1
    equal = ek.SymbolicRegressor(**QUICK | {"verbosity": 1}, noise="constant").fit(X, y)
    assert equal.noise_ == "constant" and "rows weigh" not in str(equal) + capsys.readouterr().out
    given = ek.SymbolicRegressor(**QUICK).fit(X, y, sample_weight=np.ones(len(y)))
    assert given.noise_ == "constant" and given.get_best().equation == equal.get_best().equation
    exact = ek.SymbolicRegressor(**QUICK, noise="proportional").fit(X, 3 / X[:, 0])
    assert exact.noise_ == "constant" and exact.get_best().equation == "3 / x1"


def test_what_is_said_of_noise_is_checked():
    X, y = wide_table()
    for settings, target, message in (
        ({"noise": "relative"}, y, "noise must be"), ({"noise": "proportional"}, y - y.mean(), "y of one sign"),
        ({"noise": "proportional", "elementwise_loss": "mae"}, y, "elementwise_loss='squares'"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=message):
            ek.SymbolicRegressor(**QUICK, **settings).fit(X, target)


@pytest.mark.parametrize(("text", "fast"), [
    ("sin(x1)", False), ("sin(30 * x1)", False), ("sin(70 * x1)", True), ("3 + x1 * sqr(cos(90 * x1 + 1))", True),
    ("tan(20 * x1)", False), ("tan(40 * x1)", True), ("tanh(1e6 * x1)", False), ("sin(2) * x1", False),
    ("sin(1e-3 * exp(2 * x1))", False), ("sin(1e-1 * exp(2.5 * x1))", True),
])  # fmt: skip
def test_what_turns_faster_than_the_rows_tell_is_seen(text, fast):
    X = np.linspace(0, 4, 81)[:, None]
    assert turn_too_fast([ek.parse(text)[0]], X).tolist() == [fast]


def test_what_turns_too_fast_is_taken_only_where_it_is_exact():
    X = np.linspace(0, 4, 41)[:, None]
    noise = 0.05 * np.random.default_rng(0).standard_normal(41)
    for y, taken in ((np.cos(70 * X[:, 0]) + noise, False), (np.cos(70 * X[:, 0]), True)):
        search = FormulaSearch(Rows(X, y), SearchSettings(), Budget())
        search.offer(ek.parse(["0.1 * x1", "cos(70 * x1)"]))
        assert any("cos" in str(entry.expression) for entry in search.front.entries()) == taken


# ── very many rows ──


@pytest.mark.slow
@pytest.mark.usefixtures("few_stages")
def test_very_many_rows_are_searched_in_part_and_fitted_whole(monkeypatch):
    monkeypatch.setattr(effort, "ROWS", replace(effort.ROWS, search=50))
    X, y = table(400)
    model = ek.SymbolicRegressor(**QUICK).fit(X, y)
    assert model.n_rows_searched_ == 50 and "50 of 400 rows" in str(model)
    entry = model._front.entries[1]
    assert entry.loss == pytest.approx(np.mean((y - model.predict(X, 1)) ** 2))
    assert entry.loss == pytest.approx(fit_of(entry.expression, X, y).loss[0] / 400, rel=1e-8)
    again = ek.SymbolicRegressor(**QUICK).fit(X, y)
    assert again.equations_["equation"].tolist() == model.equations_["equation"].tolist()
    exact = ek.SymbolicRegressor(**QUICK).fit(X, 3 / X[:, 0])
    assert exact.get_best().equation == "3 / x1" and exact.stopped_ == "a formula is exact"


# ── what is shown ──


def test_the_front_is_printed_with_the_selected_row_marked(weighed):
    lines = str(weighed).splitlines()
    marked = [line for line in lines if line.startswith(">>>>")]
    assert len(marked) == 1 and len(lines) == len(weighed.equations_) + 2
    chosen = weighed.equations_[weighed.equations_["selected"]]
    assert len(chosen) == 1 and chosen["equation"].item() == weighed.get_best().equation
    assert str(chosen["complexity"].item()) in marked[0] and ">>>>" in weighed._repr_html_().replace("&gt;", ">")
    assert "SymbolicRegressor(" in str(ek.SymbolicRegressor())


def test_numbers_are_shown_with_their_errors(weighed):
    index = next(i for i, size in enumerate(weighed.equations_["complexity"]) if size == 5)
    row, shown = weighed.equations_.iloc[index], weighed.parameter_table(index)
    assert shown["value"].tolist() == row["parameters"] and shown["error"].tolist() == row["parameter_errors"]
    assert shown.index.tolist() == ["p1", "p2"] and "p1" in shown.attrs["formula"]
    assert np.sqrt(np.diag(shown.attrs["covariance"])) == pytest.approx(row["parameter_errors"])
    assert r"\pm" in weighed.latex(index, errors=True) and r"\pm" not in weighed.latex(index)
    assert len(weighed.latex(index)) < len(weighed.latex(index, precision=15))


def test_a_model_is_plotted_beside_its_data(weighed):
    X, y = wide_table()
    left, right = weighed.plot().axes
    assert len(left.lines[0].get_xdata()) == len(right.lines[1].get_xdata()) == len(y)
    copy = pickle.loads(pickle.dumps(weighed))
    with pytest.raises(ArgumentError, match="plot needs X and y"):
        copy.plot()
    assert len(copy.plot(X=X[:5], y=y[:5]).axes[0].lines[0].get_xdata()) == 5


def test_figures_are_labelled_with_the_name_of_the_column():
    X, y = table()
    frame = pd.DataFrame({"t (s)": X[:, 0], "v (m/s)": y, "": y})
    quick = ek.SymbolicRegressor(**QUICK | {"max_evals": 200})
    for target, label in ((frame["v (m/s)"], "v (m/s)"), (y, "y"), (frame[""], "y")):
        axes = quick.fit(frame[["t (s)"]], target).plot().axes
        assert [one.get_ylabel() for one in axes] == [label, f"{label} - f"]
