"""What a user chooses for a search is obeyed, and no choice of operators ends it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import exprkit as ek
from exprkit.errors import ArgumentError
from exprkit.expressions.arguments import operators_of
from exprkit.operators import ops
from exprkit.regression.estimator.chosen_operators import chosen_operators
from exprkit.regression.rules.spelling import ChosenOperators
from exprkit.regression.stages import discovery, sums
from exprkit.regression.sums.inside import is_logarithm
from exprkit.text.tokens import OPERATOR

RANDOM = np.random.default_rng(14)
X = RANDOM.uniform(1, 4, (60, 2))
NOISE = RANDOM.standard_normal(60)
LITTLE = {"niterations": 1, "population_size": 20, "pool_size": 60, "maxsize": 9, "n_jobs": 1, "random_state": 0}
FEW = np.column_stack([np.linspace(0.5, 4, 16), X[:16, 1]])
OF_FEW = 1 + 0.5 * FEW[:, 0] - 0.3 * FEW[:, 1] ** 2 + 0.1 * NOISE[:16]


def codes_of(model):
    """Of all operators in all formulas."""
    return {
        int(code)
        for text in model.equations_.equation
        for one in ek.parse([text])
        for code in one.values[one.kinds == OPERATOR]
    }


def fitted(y, X=X, **chosen):
    return ek.SymbolicRegressor(**LITTLE | chosen).fit(X, y)


# ── obeyed ──

SPELLED = {
    "+ *": {
        "x1 - 3 * x2": "x1 + -3 * x2", "sqr(x1) / 4": "0.25 * (x1 * x1)", "-x1": "-1 * x1", "x1 ^ 3": "x1 * x1 * x1",
        "x1 / x2": None, "sqrt(x1)": None, "x1 ^ 2.5": None, "x1 ^ -1": None,
    },
    "- /": {"x1 + x2": "x1 - (0 - x2)", "x1 * x2": "x2 / (1 / x1)", "4 * x1": "x1 / 0.25", "x1 ^ 0.5": None},
    "+": {"2 * x1": "x1 + x1", "x1 - x2": None},
    "^": {"sqrt(x1)": "x1 ^ 0.5", "1 / sqr(x1)": "x1 ^ -2"},
    "+ * exp": {"x2 / exp(x1)": "x2 * exp(-1 * x1)", "exp(-2 * x1)": "exp(-2 * x1)", "1 / x1": None},
    "* exp log": {"x1 ^ 2.5": "exp(2.5 * log(x1))", "x2 / x1": "x2 * exp(-1 * log(x1))"},
    "* sqrt": {"x1 ^ 2.5": "x1 * x1 * sqrt(x1)", "x1 ^ 0.25": "sqrt(sqrt(x1))"},
    "* cbrt cube": {"x1 ^ (1 / 3)": "cbrt(x1)", "x1 ^ 9": "cube(cube(x1))"},
    "* inv": {"x1 / x2": "x1 * inv(x2)", "x1 ^ -2": "inv(x1 * x1)"},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("chosen", SPELLED)
def test_a_formula_is_written_with_chosen_operators_and_stays_the_same_function(chosen):
    spelling = ChosenOperators(row.code for row in operators_of(chosen.split()))
    for text, expected in SPELLED[chosen].items():
        given = ek.parse([text])[0]
        spelled = spelling.spell(given)
        assert (spelled and str(spelled)) == expected
        if spelled is not None:
            np.testing.assert_allclose(spelled(X), given(X), rtol=1e-12)


CHOICES = {
    "sums and products": (["+", "*"], [], {}, "x1 / x2"),
    "a sine": (["+", "*"], ["sin"], {}, "x1 ^ 2.5"),
    "under limits": (["+", "*"], [], {"constraints": {"*": (3, 3)}}, "sqrt(x1) / x2"),
    "differences and quotients": (["-", "/"], [], {}, "x1 * x2 + sqrt(x1)"),
    "powers": (["^"], [], {}, "x1 ^ 2.5"),
    "squares": (["+", "-", "*"], ["sqr"], {}, "99 / x1 ^ 0.12"),
    "an exponential": (["+", "*"], ["exp"], {}, "x2 * exp(-x1)"),
    "by operands": (None, None, {"operators": {2: ["+", "*"], 1: ["log"]}}, "sqrt(log(x1) / x2)"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("choice", CHOICES)
def test_no_formula_of_the_front_has_an_operator_that_was_not_chosen(choice):
    binary, unary, more, law = CHOICES[choice]
    noise = 0.02 * (list(CHOICES).index(choice) % 2)
    model = fitted(ek.parse([law])[0](X) + noise * NOISE, binary_operators=binary, unary_operators=unary, **more)
    chosen = [*(binary or []), *(unary or []), *(name for some in more.get("operators", {}).values() for name in some)]
    assert codes_of(model) <= {row.code for row in operators_of(chosen)} | ({ops.NEG} if "-" in chosen else set())


def test_the_usual_operators_may_be_shortened_where_none_is_chosen():
    model = ek.SymbolicRegressor(**LITTLE).fit(X, X[:, 0] ** 3 / 7)
    assert len(ek.parse([model.equations_.equation.iloc[-1]])[0].kinds) <= 6


def test_a_guess_with_an_operator_that_was_not_chosen_is_refused():
    with pytest.raises(ArgumentError, match=r"guesses: 'x1 / x2' has an operator that was not chosen"):
        fitted(X[:, 0], binary_operators=["+", "*"], unary_operators=[], guesses=["x1 / x2"])


@pytest.mark.parametrize("law", ["x1 * x2 + 3 * x1 ^ 3 - 2 * x2", "2 * x1 * (x2 + 4) - 7", "x2 - x1"])
def test_laws_of_sums_and_products_are_found_in_those_terms(law):
    y = ek.parse([law])[0](X)
    model = fitted(y, binary_operators=["+", "*"], unary_operators=[], pool_size=5_000, maxsize=20, niterations=0)
    assert model.stopped_ == "a formula is exact" and codes_of(model) <= {ops.ADD, ops.MUL}
    np.testing.assert_allclose(model.predict(X), y, rtol=1e-9)


# ── every choice ──


def test_a_logarithm_is_told_from_what_looks_like_one_at_a_few_points():
    logarithms = ["log", "log2", "log10", "logabs", "db(x) = 10 * log10(x)", "lg(x) = log(x) / log(10)"]
    others = ["sign", "season(t) = sin(2 * pi * t)", "floor", "sqrt", "turns(x) = sin(2 * log(x))"]
    assert all(map(is_logarithm, operators_of(logarithms))) and not any(map(is_logarithm, operators_of(others)))


UNARY = [row.name for row in ops.OPERATORS if row.arity == 1]
OF_USERS = ["db(x) = 10 * log10(x)", "lg(x) = log(x) / log(10)", "season(t) = sin(2 * pi * t)", "none(x) = x - x"]


@pytest.mark.slow
@pytest.mark.parametrize("k", range(0, len(UNARY + OF_USERS), 4))
def test_a_search_with_four_functions_or_one_goes_through(k):
    names = (UNARY + OF_USERS)[k : k + 4]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        fitted(OF_FEW, FEW, unary_operators=names, niterations=k % 8 // 4)
        fitted(
            OF_FEW, FEW, unary_operators=names[k // 4 % len(names) :][:1], binary_operators=["+", "*"], niterations=0
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", [row.name for row in ops.OPERATORS if row.arity == 2])
def test_a_search_with_one_operator_of_two_operands_goes_through(name):
    for binary in ([name], ["+", "*", name]):
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            fitted(OF_FEW, FEW, binary_operators=binary, unary_operators=[], pool_size=300, niterations=0)


# ── an error late in a search ──


@pytest.mark.slow
def test_an_error_in_a_late_step_is_told_and_loses_nothing(monkeypatch):
    def fail(problem):
        raise ZeroDivisionError("a step's own")

    order = [discovery.Turn(fail) if turn.stage is sums.sum else turn for turn in discovery.ORDER]
    monkeypatch.setattr(discovery, "ORDER", tuple(order))
    with pytest.warns(RuntimeWarning, match=r"step 'fail' of the search failed .*ZeroDivisionError: a step's own"):
        model = fitted(OF_FEW, FEW)
    assert len(model.equations_) > 2 and model.stopped_ == "1 iterations are done"


def test_an_error_with_no_formula_yet_and_one_of_the_users_own_function_are_raised(monkeypatch):
    def told(view):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fitted(OF_FEW, FEW, progress=told)
    monkeypatch.setattr(discovery, "ORDER", (discovery.Turn(lambda problem: 1 / 0),))
    with pytest.raises(ZeroDivisionError):
        fitted(OF_FEW, FEW)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"unary_operators": "esr", "binary_operators": "esr"}, ["add", "sub", "mul", "div", "powabs", "inv", "sqr"]),
        ({"unary_operators": ["sqr"], "binary_operators": [">", "**", "<="]}, ["greater", "pow", "lessequal", "sqr"]),
        ({"unary_operators": "sin"}, r"'sin' is a single operator: give a list, \['sin'\]"),
        ({"unary_operators": "sines"}, "there is no set of operators 'sines'"),
        ({"binary_operators": ["plus"]}, "there is no operator 'plus'; did you mean 'add'"),
        ({"unary_operators": ["rad2deg"]}, r"'rad2deg\(a\) = a \* \(180 / pi\)' in its place defines one"),
        ({"unary_operators": ["logaddexp"]}, r"'logaddexp\(a, b\) = max"),
    ],
)
def test_operators_by_the_name_of_a_set_by_their_sign_and_by_what_others_call_them(given, names):
    choice = given.get("binary_operators"), given.get("unary_operators"), None
    if isinstance(names, str):
        with pytest.raises(ArgumentError, match=names):
            chosen_operators(*choice)
    else:
        assert [row.name for row in chosen_operators(*choice)[0]] == names
