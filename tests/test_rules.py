"""Units and constraints of a search: what is allowed is right in its units, and every stage keeps to it."""

from __future__ import annotations

import contextlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import exprkit as ek
from exprkit.errors import ArgumentError
from exprkit.expressions.arguments import operators_of
from exprkit.operators import ops
from exprkit.operators.dimensions import law_of
from exprkit.regression.formulas.trees import nodes, tree_of
from exprkit.regression.pairs.ruled_pool import RuledPool
from exprkit.regression.problem.rows import Rows
from exprkit.regression.rules import units
from exprkit.regression.rules.admission import FormulaRules
from exprkit.regression.rules.constraints import limits
from exprkit.regression.rules.groups import unit_systems
from exprkit.regression.rules.scalings import scaling
from exprkit.regression.rules.surrogate import surrogate_of
from exprkit.regression.rules.units import BASE, exponents
from exprkit.regression.stages.fewer_variables import factor, group, reduce
from exprkit.regression.stages.search import FormulaSearch
from exprkit.regression.stages.search_problem import SearchProblem, SearchSettings
from exprkit.runtime.budget import Budget, Ended
from exprkit.text.tokens import CONSTANT, OPERATOR, VARIABLE

UNITS = [exponents(text) for text in ("m", "s", "m/s", "1")]
NAMES = ["x1", "x2", "x3", "x4"]
CONSTRAINTS = {"*": (-1, 3), "sqr": 2, "^": {"numbers": (-2, 2)}, "cos": {"variables": ["x1", "x4"]}}
NESTED = {"sin": {"sin": 0, "sqr": 1}, "/": {"/": 1, "exp": 0}}
TREES = ek.generate.random(3_000, n_tokens=(1, 15), operators="search", n_vars=4, n_params=0, seed=4)


def drawn(n=60, seed=0):
    return np.random.default_rng(seed).uniform(0.5, 2.0, (n, 4))


def values(pop, X):
    with np.errstate(all="ignore"):
        return ek.Evaluator(pop, X, "numpy", dtype="float64").evaluate()


def scaled(X, exponents_of, by):
    """Data in other units: a base unit is ``by`` times as long."""
    return X * [np.prod([k ** float(power) for k, power in zip(by, unit, strict=False)]) for unit in exponents_of]


def change_with_units(pop, unit, rel=1e-7):
    """Which formulas give the same in other units, but for what y's unit has become."""
    X, by = drawn(), (1.7, 1.0, 0.6)
    with np.errstate(all="ignore"):
        before = values(pop, X) * scaled(np.ones(1), [unit], by)[0]
        after = values(pop, scaled(X, UNITS, by))
        near = np.abs(after - before) <= rel * np.maximum(np.abs(before), 1e-6)
    return (near | ~np.isfinite(before) | ~np.isfinite(after)).all(axis=1)


# ── units ──


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("m/s^2", "m s^-2"), ("N", "kg*m/s**2"), ("kJ/(mol*K)", "J/mol/K"), ("1", ""), ("V^(1/2)", "V^0.5"),
        ("km/h", "m/s"), ("uF*V", "C"), ("Ω", "V/A"), ("mm^2", "cm^2"), ("kg", "g"), 
        ("%", "rad"), ("(m/s)^2", "J/kg"), ("m^+2", "m·m"),
    ],
)  # fmt: skip
def test_texts_of_one_unit(text, same):
    assert exponents(text) == exponents(same) and len(exponents(text)) == len(BASE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("foot", "there is no unit 'foot'"), ("m/", "a unit was expected"), ("m^x", "a number was expected"),
        ("(m", "')' is missing"), ("m)", "nothing was expected here"), ("m$", "stands in no unit"),
        ("m^(1/0)", "divided by 0"), ("m^1000", "larger than 100"), ("m" * 300, "at most 200 characters"),
        (3, "a unit is a text"), (["a"], "must be numbers"), ([np.nan], "must be numbers"),
    ],
)  # fmt: skip
def test_what_is_no_unit_is_named(text, message):
    with pytest.raises(ArgumentError) as raised:
        exponents(text)
    assert message in str(raised.value)


@given(st.text(alphabet="mskgN1/*^() .-", max_size=12))
def test_any_text_is_a_unit_or_an_error_of_ours(text):
    with contextlib.suppress(ArgumentError):
        assert len(exponents(text)) == len(BASE)


@given(st.dictionaries(st.sampled_from(BASE), st.fractions(-5, 5, max_denominator=6)))
def test_exponents_are_those_that_were_written(powers):
    text = "*".join(f"{name}^({power.numerator}/{power.denominator})" for name, power in powers.items())
    assert exponents(text) == tuple(powers.get(name, 0) for name in BASE)


@pytest.mark.parametrize("row", [row for row in ops.OPERATORS if law_of(row.code).kind == 1], ids=lambda row: row.name)
def test_an_operator_s_law_holds_at_other_points(row):
    a, b = np.random.default_rng(row.code).uniform(0.1, 0.9, (2, 50))
    _, powers, shared = law_of(row.code)
    operands = (a, b)[: row.arity]
    factors = np.where(np.isnan(powers), 1.7, (1.3, 0.4)[: row.arity])
    wanted = row.numpy(*operands) * np.prod(factors ** np.nan_to_num(powers)) * 1.7**shared
    assert row.numpy(*(factor * x for factor, x in zip(factors, operands, strict=True))) == pytest.approx(wanted)


def test_what_is_allowed_is_right_in_any_units_and_little_else():
    for target in ("m", "1", "s"):
        rules = FormulaRules(4, UNITS, exponents(target))
        allowed, right = rules.allow(TREES), change_with_units(TREES, exponents(target))
        there = np.isfinite(values(TREES, drawn())).all(axis=1)
        assert right[allowed].all()
        vary = np.ptp(np.nan_to_num(values(TREES, drawn())), axis=1) > 1e-9
        assert allowed.sum() > 20 and (right & there & vary & ~allowed).sum() < 0.2 * allowed.sum()  # x1 - x1 + x2, say


def test_numbers_have_no_units_or_those_that_are_wanted():
    pop = ek.parse(["x1 + 1", "x1 + 0", "2 * x2", "sin(3 * x1)", "x1 ^ 2 / x1", "x1 ^ x4", "x3 * x2"])
    assert FormulaRules(4, UNITS, exponents("m")).allow(pop).tolist() == [False, True, False, False, True, False, True]
    free = FormulaRules(4, UNITS, exponents("m"), free_numbers=True)
    assert free.allow(pop).tolist() == [True, True, True, False, True, False, True]
    anything = FormulaRules(4, UNITS)
    assert anything.allow(pop).tolist() == [False, True, True, False, True, False, True]


# ── constraints ──


def breaks(tree, found):
    """Whether a tree breaks a limit, slowly."""
    if tree[0] != OPERATOR:
        return False
    operands = tree[2:]
    limit = found.get(tree[1])
    if limit is not None:
        if any(0 <= most < nodes(operand) for most, operand in zip(limit.sizes, operands, strict=True)):
            return True
        last = operands[-1]
        if limit.numbers and not (last[0] == CONSTANT and limit.numbers[0] <= last[1] <= limit.numbers[1]):
            return True
        if limit.variables is not None and not used(tree) <= set(limit.variables):
            return True
        if any(depth(operand, code) > most for code, most in limit.inside for operand in operands):
            return True
    return any(breaks(operand, found) for operand in operands)


def used(tree):
    if tree[0] == OPERATOR:
        return set().union(*map(used, tree[2:]))
    return {tree[1]} if tree[0] == VARIABLE else set()


def depth(tree, code):
    if tree[0] != OPERATOR:
        return 0
    return max(depth(operand, code) for operand in tree[2:]) + (tree[1] == code)


def test_constraints_are_kept_and_forbid_nothing_else():
    found = limits(CONSTRAINTS, NESTED, NAMES)
    pop = ek.parse([*TREES, "x1 ^ 2", "x1 ^ 3", "x1 ^ x4", "x1 ^ neg(2)"])
    allowed = FormulaRules(4, limits=found).allow(pop)
    wanted = [not breaks(tree_of(formula), found) for formula in pop]
    wanted[-1] = True  # neg(2) is a number
    assert allowed.tolist() == wanted and 0.2 < allowed.mean() < 0.9


def test_a_pool_holds_what_is_allowed_alone():
    rules = FormulaRules(4, UNITS, limits=limits(CONSTRAINTS, NESTED, NAMES))
    pool = RuledPool(rules, drawn(16), operators_of("search"))
    pool.grow(6, 2_000)
    pool.multiply(3_000)
    assert len(pool) > 2_000 and rules.allow(ek.parse([pool.expression(i) for i in range(len(pool))])).all()


@pytest.mark.slow
@pytest.mark.parametrize("y_units", ["m", None])
def test_every_formula_of_a_search_keeps_to_the_rules(y_units):
    X = drawn(80)
    y = X[:, 2] * X[:, 1] * np.cos(X[:, 3]) + X[:, 0] + 0.05 * np.random.default_rng(0).standard_normal(80)
    model = ek.SymbolicRegressor(niterations=2, population_size=60, pool_size=300, maxsize=11, random_state=0,
                                 constraints=CONSTRAINTS, nested_constraints=NESTED,
                                 unary_operators=["square", "cos", "sin", "exp"])  # fmt: skip
    model.fit(X, y, X_units=["m", "s", "m/s", "1"], y_units=y_units)
    pop = ek.parse([entry.expression for entry in model._front.entries])
    rules = FormulaRules(4, UNITS, y_units and exponents(y_units), limits=limits(CONSTRAINTS, NESTED, NAMES))
    assert rules.allow(pop).all()
    if y_units == "m":
        assert model.score(X, y) > 0.9 and change_with_units(pop, exponents("m")).all()


@pytest.mark.parametrize(
    ("settings", "given", "message"),
    [
        ({"constraints": {"sine": 3}}, {}, "constraints: there is no operator 'sine'; did you mean 'sin'?"),
        ({"constraints": {"sin": (1, 2)}}, {}, "'sin' has 1 operands, not 2"),
        ({"constraints": {"sin": {"size": 1}}}, {}, "did you mean 'sizes'?"),
        ({"constraints": {"^": {"numbers": (3, 1)}}}, {}, r"must be \(low, high\)"),
        ({"constraints": {"sin": {"variables": ["x7"]}}}, {}, "there is no variable 'x7'"),
        ({"constraints": [1]}, {}, "constraints must be a dictionary"),
        ({"nested_constraints": {"sin": 3}}, {}, "must be a dictionary"),
        ({"nested_constraints": {"sin": {"sin": -1}}}, {}, "a whole number >= 0"),
        ({}, {"X_units": ["m"]}, "X_units must be a list of 4 units"),
        ({}, {"X_units": ["m", "s", "1", "metre"]}, "unit of x4: there is no unit 'metre'"),
        ({}, {"X_units": {"x1": "m", "x2": "s", "x3": "1"}}, "X_units says no unit of column 'x4'"),
        ({}, {"X_units": {"m": "m", "x2": "s"}}, "X_units: there is no column 'm'"),
        ({}, {"y_units": "m"}, "y_units needs X_units"),
        ({}, {"X_units": [[1], [0], [1, 2], [0]]}, "equally many exponents"),
        ({}, {"X_units": [[0] * 16 + [1]] * 4}, "at most 16 exponents, not 17"),
        ({}, {"X_units": ["m", "s", "m/s", "1"], "y_units": "kg*m"}, "no formula of these columns has y's unit, 'kg"),
    ],
)
def test_a_wrong_rule_is_named(settings, given, message):
    with pytest.raises(ArgumentError, match=message):
        ek.SymbolicRegressor(**settings).fit(drawn(20), np.arange(20.0), **given)


def test_without_time_for_more_a_formula_has_y_s_unit_all_the_same():
    X = drawn(30)[:, :3]
    for y, X_units, y_units, best in [
        (X[:, 0] * X[:, 1], ["kg", "m/s^2", "1"], "N", "x1 * x2"),
        (2.5 * X[:, 1] / X[:, 2], ["m", "m", "s"], "m/s", "2.5 * x2 / x3"),
        (np.full(30, 2.5), ["m", "m", "s"], "1", "2.5"),
    ]:
        model = ek.SymbolicRegressor(niterations=0, pool_size=0, max_evals=1, random_state=0)
        model.fit(X, y, X_units=X_units, y_units=y_units)
        formula = model.get_best().equation
        assert np.allclose(ek.parse(formula)[0](X), ek.parse(best)[0](X)), f"{formula}, not {best}"


def test_units_may_be_given_by_column():
    """Columns called as units are, say: the names are not taken for units."""
    X = pd.DataFrame(np.random.default_rng(0).uniform(1, 2, (20, 2)), columns=["s", "m"])
    model = ek.SymbolicRegressor(niterations=0, pool_size=0, max_evals=1000, random_state=0)
    assert model.fit(X, X["m"] / X["s"], X_units={"m": "kg", "s": "m"}, y_units="kg/m").get_best().equation == "m / s"


def test_a_law_is_found_in_units_that_its_variables_make():
    units = [(1, 0), (1, 0), (1, -1), (0, 0)]
    rules = FormulaRules(4, units, target=(0, 1))
    formula = ek.parse("x1 / x3 * (1 + sqrt(1 + 2 * x2 / x1) * cos(x4))")[0]
    X = np.random.default_rng(0).uniform(1, 2, (60, 4))
    assert rules.unit_systems
    for system in rules.unit_systems:
        columns, unit = system.columns(X)
        plain = X.copy()
        plain[:, system.repeating], plain[:, system.remaining] = 1.0, columns
        inner = "1 / {x3} * {x1} * (1 + sqrt(1 + 2 * {x2} / {x1}) * cos({x4}))"
        names = {f"x{k + 1}": "1" for k in system.repeating}
        names |= {f"x{k + 1}": f"x{place + 1}" for place, k in enumerate(system.remaining)}
        restored = system.restored(ek.parse(inner.format(**names))[0])
        assert rules.allow(ek.parse([restored])).all()
        assert np.allclose(restored(X), formula(X), rtol=1e-12)
        assert np.allclose(formula(X), unit * formula(plain), rtol=1e-12)


@pytest.mark.slow
def test_fewer_variables_have_no_larger_pools(monkeypatch):
    sizes, pool = [], SearchProblem.pool

    def seen(problem, rows, n, *rest):
        sizes.append(n)
        return pool(problem, rows, n, *rest)

    monkeypatch.setattr(SearchProblem, "pool", seen)
    X = np.random.default_rng(0).uniform(1, 3, (80, 3))
    y = X[:, 0] ** 2 * np.sin(X[:, 1] + X[:, 2]) * (1 + 0.01 * np.random.default_rng(1).standard_normal(80))
    found = FormulaSearch(Rows(X, y), SearchSettings(pool_size=60, threads=1), Budget())
    found.run_stage(factor)
    assert sizes and max(sizes) <= 60


@pytest.mark.slow
def test_a_law_is_found_among_constants_of_nature():
    """The speed of light makes units of time of lengths: a pair of two functions, and three numbers less."""
    random = np.random.default_rng(0)
    X = np.column_stack([random.uniform(1e6, 1e8, 60), random.uniform(1, 9, 60), random.uniform(1, 9, 60) * 1e8])
    c = 299792458.0
    y = (X[:, 1] - X[:, 0] * X[:, 2] / c**2) / np.sqrt(1 - (X[:, 0] / c) ** 2)
    of = [exponents(unit) for unit in ("m/s", "s", "m")]
    rules = FormulaRules(3, of, exponents("s"), True, constants=units.constants())
    found = FormulaSearch(Rows(X, y), SearchSettings(rules=rules, threads=1), Budget())
    with pytest.raises(Ended, match="exact"):
        found.run_stage(group)
    assert found.front.entries()[-1].size <= 18


def test_constants_of_nature_that_no_formula_needs_are_left_out():
    known = units.constants()
    speed, duration = exponents("m/s"), exponents("s")
    made = unit_systems([speed, duration], duration, known)
    assert made[0].constants == (299792458.0,)  # then h and G, whose product has no mass, and so on
    assert not {1.380649e-23, 6.02214076e23} & {value for one in made for value in one.constants}  # of heat, of amount
    assert len(made[0].remaining) == 1
    assert units.are_coherent(["m/s^2", "N*m", "1", "rad"])
    for others in (["km"], ["eV"], ["g"], [(1, 0)], ["m", "h"]):
        assert not units.are_coherent(others), others


# ── products of powers that data depend on ──


REDUCIBLE = {  # a law of x1 to x5 in 1 to 3: powers of the groups and of the factor
    "2.5 * x1 * sqrt(x2) / x4^2": ([], [1, 0.5, 0, -2, 0]),
    "x2 * log(1 + x1 * x3^2 / x5)": ([[1, 0, 2, 0, -1]], [0, 1, 0, 0, 0]),
    "-x1^2 / (3 + exp(x4 / x2))": ([[0, -1, 0, 1, 0]], [2, 0, 0, 0, 0]),
    "x5 * cos(x1 / 2) * exp(-x2 * x3) / x4": ([[1, 0, 0, 0, 0], [0, 1, 1, 0, 0]], [0, 0, 0, -1, 1]),
}


def reduced(law, noise, n=800, multiplicative=False, seed=3):
    random = np.random.default_rng(seed)
    X = random.uniform(1, 3, (n, 5))
    y = ek.Evaluator(ek.parse([law]), X, "numpy", dtype="float64").evaluate()[0]
    errors = noise * random.standard_normal(n)
    return X, y * (1 + errors) if multiplicative else y + np.sqrt(np.mean(y**2)) * errors


@pytest.mark.parametrize("law", REDUCIBLE)
def test_the_groups_of_data_are_exact_also_in_noise(law):
    """Their powers span the same space, and so does the factor's with them."""
    groups, factor = (np.array(powers, float) for powers in REDUCIBLE[law])
    for noise, multiplicative in ((0.0, False), (0.04, False), (0.04, True)):
        system = scaling(Rows(*reduced(law, noise, multiplicative=multiplicative))).system
        powers = np.zeros((len(system.remaining), 5))
        for row, j, unit in zip(powers, system.remaining, system.powers, strict=True):
            row[j], row[list(system.repeating)] = 1, -np.array(unit)
        before = np.zeros(5)
        before[list(system.repeating)] = system.y_powers
        assert len(powers) == len(groups)
        space = np.vstack([groups.reshape(-1, 5), powers, factor - before])
        assert np.linalg.matrix_rank(space, tol=1e-9) == len(groups)


def test_what_depends_on_all_variables_is_not_reduced():
    X = np.random.default_rng(4).uniform(1, 3, (500, 3))
    noise = 0.01 * np.random.default_rng(5).standard_normal(500)
    for y in (np.sin(X[:, 0]) + X[:, 1] * np.exp(X[:, 2]), X[:, 0] + np.sqrt(X[:, 1]) + X[:, 2] ** 2 + 1):
        for target in (y, y + noise):
            assert scaling(Rows(X, target)) is None
    for few in (X[:20], X[:, :1], X * [1, 0, 0]):
        assert scaling(Rows(few, few[:, 0] ** 2)) is None
    assert scaling(Rows(X, np.zeros(500))) is None
    wide = np.random.default_rng(6).uniform(1, 3, (500, 40))  # a search of many columns does not wait for it
    assert scaling(Rows(wide, wide[:, 0] * wide[:, 1])) is None


def test_a_surrogate_s_gradients_are_those_of_the_function():
    u = np.random.default_rng(0).uniform(-1, 1, (150, 2))
    surrogate = surrogate_of(u, np.sin(2 * u[:, 0]) + u[:, 1] ** 2, np.ones(150))
    inner = np.abs(u).max(axis=1) < 0.8
    exact = np.column_stack([2 * np.cos(2 * u[:, 0]), 2 * u[:, 1]])
    assert np.abs(surrogate.gradients() - exact)[inner].max() < 0.02
    assert np.abs(surrogate.means(u) - np.sin(2 * u[:, 0]) - u[:, 1] ** 2).max() < 1e-3


def test_a_reduction_tells_restores_and_draws():
    X, y = reduced("x2 * log(1 + x1 * x3^2 / x5)", 0.0)
    table = pd.DataFrame(X, columns=["m", "v", "a b", "c", "T"]).assign(E=y)
    reduction = ek.reduce(table, "E")
    assert reduction.is_reduced and len(reduction.groups) == 1
    text = str(reduction)
    assert text == repr(reduction) and text.startswith("E is ") and "`a b`" in text and " c" not in text
    columns, factor = reduction.transform(table.drop(columns="E"))
    order = np.argsort(columns[:, 0])
    collapsed = (y / factor)[order]
    assert columns.shape == (800, 1) and np.abs(np.diff(collapsed)).sum() < 1.01 * np.ptp(collapsed)
    restored = reduction.restored("x1^2")
    values = ek.Evaluator([restored], X, "numpy", dtype="float64").evaluate()[0]
    assert np.allclose(values, factor * columns[:, 0] ** 2)
    assert reduction.plot().axes[0].get_xlabel() == str(reduction.groups[0])
    with pytest.raises(ArgumentError, match="2 variables, there are 1 groups"):
        reduction.restored("x1 * x2")
    every = ek.reduce(X[:, :2], np.sin(X[:, 0]) + X[:, 1])
    assert not every.is_reduced and "no reduction was found" in str(every) and len(every.groups) == 2


@pytest.mark.parametrize(
    "law, factor, groups",
    [
        ("x1 * exp(-sqr((x2 - x3) / x4))", "x1", ["(x2 - x3) / x4"]),
        ("sqrt(x1 + x2) * sin(x3)", "sqrt(x1 + x2)", ["x3"]),
        ("x1 * (x2 - x3)", "x1 * (x2 - x3)", []),
        ("x1 * tanh(x2 / x3) + x4", "x4", ["x1 / x4", "x2 / x3"]),
    ],
)
def test_a_reduction_tells_differences_and_sums(law, factor, groups):
    random, law = np.random.default_rng(1), ek.parse([law])[0]
    X = random.uniform(1, 3, (400, law.n_vars))
    y = law(X)
    reduction = ek.reduce(X, y + 0.01 * np.sqrt(np.mean(y**2)) * random.standard_normal(400))
    assert (str(reduction.factor), [str(group) for group in reduction.groups]) == (factor, groups)
    assert reduction.is_reduced and reduction.noise == pytest.approx(0.01, rel=0.2)
    columns, unit = reduction.transform(X)
    formula = "x1" if groups else "3"
    values = unit * (columns[:, 0] if groups else 3)
    np.testing.assert_allclose(reduction.restored(formula)(X), values, rtol=1e-12)
    assert len(reduction.plot().axes) == max(len(groups), 1)


def test_a_law_in_noise_is_found_in_its_groups():
    """Formulas of five variables; the front of the stage alone has the law of one."""
    X, y = reduced("x2 * log(1 + x1 * x3^2 / x5)", 0.01)
    search = FormulaSearch(Rows(X, y), SearchSettings(pool_size=3_000), Budget())
    with contextlib.suppress(Ended):
        search.run_stage(reduce)
    rows = search.problem.rows
    law = ek.Evaluator(ek.parse(["x2 * log(1 + x1 * x3^2 / x5)"]), rows.X, "numpy", dtype="float64").evaluate()[0]
    short = [entry.loss for entry in search.front.entries() if entry.size <= 16]
    assert min(short) < 1.05 * np.mean((rows.y - law) ** 2)
