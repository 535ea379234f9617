"""Intervals: no value of an expression lies outside of them, they are narrow where they can be, and errors say why."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import exprkit as ek
from exprkit.errors import ArgumentError
from exprkit.evaluate.ranges import BROKEN, OPEN, PROVED, within
from exprkit.evaluate.trace import parts_of
from exprkit.operators import ops

WRITTEN = [row.name for row in ops.OPERATORS]
UNKNOWN = {"gamma", "lgamma", "digamma"}
ENDS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, np.pi, -np.pi / 2, 1e-200, -1e-200, 1e200, -1e300, 30.0, 700.0]),
    st.floats(-10, 10),
)


def values(pop, X):
    with np.errstate(all="ignore"):
        return ek.Evaluator(pop, X, "numpy", dtype="float64").evaluate()


def points(ends, random, n=60):
    """Rows of a box: random ones, and its corners."""
    low, high = np.array(ends).T
    inside = np.clip(low + random.random((n, len(low))) * (high - low), low, high)
    corners = np.where(random.integers(0, 2, (n, len(low))), low, high)
    return np.vstack([inside, corners, np.where(random.integers(0, 2, (n, len(low))), inside, corners)])


def check(pop, ends, boxes, random, parts=False):
    ranges = ek.range_of(pop, {f"x{k + 1}": pair for k, pair in enumerate(ends)}, boxes)
    X = points(ends, random)
    for i, (y, low, high, finite) in enumerate(zip(values(pop, X), *ranges, strict=True)):
        usual = np.isfinite(y)
        assert not finite or usual.all(), (str(pop[i]), ends)
        if parts and not finite:  # of all parts: min takes the other operand of nan, atan(inf) is a number
            usual = np.isfinite(values(parts_of(pop, i), X)).all(axis=0)
        assert (y[usual] >= low).all() and (y[usual] <= high).all(), (str(pop[i]), ends, low, high, y[usual])


def test_every_operator_has_a_rule():
    assert {row.name for row in ops.OPERATORS if row.interval is None} == UNKNOWN


@settings(max_examples=25, deadline=None, phases=[Phase.generate])
@given(st.lists(st.tuples(ENDS, ENDS), min_size=2, max_size=2), st.integers(0, 2**32 - 1))
def test_values_of_each_operator_lie_in_their_interval(pairs, seed):
    ends = [tuple(sorted(pair)) for pair in pairs]
    texts = [f"{row.name}(x1)" if row.arity == 1 else f"{row.name}(x1, x2)" for row in ops.OPERATORS]
    check(
        ek.parse([*texts, "x1 ^ 2", "x1 ^ 3", "x1 ^ -1", "x1 ^ -2", "x1 ^ 0.5"]), ends, 1, np.random.default_rng(seed)
    )


@settings(max_examples=15, deadline=None, phases=[Phase.generate])
@given(st.lists(st.tuples(ENDS, ENDS), min_size=3, max_size=3), st.integers(0, 2**32 - 1), st.sampled_from([1, 20]))
def test_values_of_random_expressions_lie_in_their_interval(pairs, seed, boxes):
    ends = [tuple(sorted(pair)) for pair in pairs]
    pop = ek.generate.random(12, n_tokens=(1, 25), operators=WRITTEN, n_vars=3, n_params=0, seed=seed)
    check(pop, ends, boxes, np.random.default_rng(seed), parts=True)


def test_ranges_are_as_narrow_as_the_boxes_allow():
    box = {"x1": (-1, 2), "x2": (1, 3)}
    ranges = ek.range_of(["x1 - x1^2", "sin(3 * x1) * x2", "x1 / (x1 + x2 + 1)", "x2^x1"], box, boxes=2_000)
    assert ranges.low == pytest.approx([-2, -3, -1, 1 / 3], abs=0.01) and ranges.finite.all()
    assert ranges.high == pytest.approx([0.25, 3, 0.5, 9], abs=0.01)
    exact = ek.range_of(["exp(-x2) + p1", "abs(x1) * x2", "floor(x1)", "atan2(x1, -x2)"], {**box, "p1": 0.5}, boxes=1)
    assert exact.low == pytest.approx([0.5 + np.exp(-3), 0, -1, -np.pi]) and exact.finite.all()
    assert exact.high == pytest.approx([0.5 + np.exp(-1), 6, 2, np.pi])


def test_what_is_infinite_or_no_number_somewhere_is_not_finite():
    texts = ["1 / x1", "log(x1)", "sqrt(x1 - 1)", "x1^0.5", "atan(1 / x1)", "exp(1000 * x1)", "tan(x1)", "1 / (x1 + 1)"]
    assert ek.range_of(texts, {"x1": (0, 2)}).finite.tolist() == [False, False, False, True, False, False, False, True]
    assert ek.range_of(["gamma(x1)", "inf", "nan"], {"x1": (1, 2)}).finite.tolist() == [False] * 3


def test_operators_of_the_users_own_that_are_formulas_have_ranges(functions):
    ek.operator("swish_of(x) = x * logistic(x)")
    assert ek.range_of("swish_of(x1)", {"x1": (0, 1)}).high == pytest.approx([1 / (1 + np.exp(-1))], abs=0.01)


def test_limits_are_proved_or_broken_or_left_open():
    pop = ek.parse(["x1^2 - x1 + 0.26", "x1^2 - x1 + 0.24", "x1 * x1 - 2 * x1 * 0.5 + 0.25", "1 / (x1 - 0.3)"])
    ends, limits = (np.array([0.0]), np.array([1.0])), [(0.0, np.inf)]
    verdicts = [within([formula], ends, limits, [0], 300) for formula in pop]
    assert verdicts == [PROVED, BROKEN, OPEN, BROKEN]
    assert within(list(ek.parse(["x1 - 2", "x1"])), ends, [(-2.1, -0.9), (0, 1)], [0, 0], 300) == PROVED
    assert within(list(ek.parse(["x1", "x1 - 0.99"])), ends, [(0, 1), (-1, 0)], [0, 0], 300) == BROKEN


@pytest.mark.parametrize(("box", "message"), [
    ({"x1": (0, 1)}, "box needs the least and the largest value of x2 too"),
    ({"x1": (0, 1), "x2": 1, "x3": 2}, "box: there is no 'x3'"),
    ({"x1": (1, 0), "x2": 1}, "box: x1 is empty: 1 is not below 0"),
    ({"x1": (0, np.inf), "x2": 1}, "box: the intervals must be finite"),
    ({"x1": "wide", "x2": 1}, "box: x1 must be (low, high), not 'wide'"),
    ([(0, 1)], 'box must be a dictionary as {"x1": (0, 1)}, not [(0, 1)]'),
])  # fmt: skip
def test_a_box_that_cannot_be_used_is_one_sentence(box, message):
    with pytest.raises(ArgumentError) as error:
        ek.range_of("x1 * x2", box)
    assert str(error.value).startswith(message)
