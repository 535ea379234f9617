"""Every operator on every backend that can run here, against the definition.

Ordinary inputs come from the row's domain; awkward ones are zeros of both signs,
negatives, tiny, huge, inf and nan.  Errors are counted in units of the last place and
held to the row's own tolerance; nan and inf must stand in the same places.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import exprkit as ek
from exprkit.operators import ops
from exprkit.study.agreement import disagreement

FAST = [name for name, status in ek.backends().items() if status.available and name != "numpy"]
beside_the_definition = pytest.mark.parametrize(
    "backend", ["cpu", *(pytest.param(name, marks=pytest.mark.gpu) for name in ("cuda", "ptx"))], indirect=True
)
N_ORDINARY = 20_000
AWKWARD = np.array(
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 7.0, 10.0, 100.0, 1e-3, 1e-10, 1e-38, 1e-42, 88.0, 89.5, 1e5, 1e10, 3e38, np.inf]
)
AWKWARD = np.concatenate([AWKWARD, -AWKWARD, [np.nan, np.pi / 2, 16777217.0, 1 - 2**-24, 1 + 2**-23]])


def ulps_apart(result, wanted):
    """How many numbers of the dtype lie between two arrays; nan beside nan is 0, beside a number infinite."""
    same = (result == wanted) | (np.isnan(result) & np.isnan(wanted))
    whole = np.int32 if result.dtype == np.float32 else np.int64
    a, b = ordered(result.view(whole)), ordered(wanted.view(whole))
    with np.errstate(over="ignore"):  # of different signs, float64 is exact enough
        distance = np.where((a < 0) == (b < 0), np.abs(a - b), np.abs(a.astype(np.float64) - b))
    strange = np.isnan(result) != np.isnan(wanted)
    return np.where(same, 0, np.where(strange, np.inf, distance))


def ordered(bits):
    """Bit patterns as whole numbers that grow with the value."""
    return np.where(bits < 0, np.iinfo(bits.dtype).min - bits, bits)


def inputs(row, kind, dtype):
    if kind == "awkward":
        pairs = np.array([(a, b) for a in AWKWARD for b in AWKWARD]) if row.arity == 2 else AWKWARD[:, None]
        with np.errstate(over="ignore", under="ignore"):
            return pairs.astype(dtype)
    random = np.random.default_rng(row.code)
    columns = [random.uniform(*interval, N_ORDINARY) for interval in row.domain[: row.arity]]
    return np.column_stack(columns).astype(dtype)


RANGES = {
    "sin": (-1, 1), "cos": (-1, 1), "tanh": (-1, 1), "erf": (-1, 1), "erfc": (0, 2), "logistic": (0, 1),
    "exp": (0, np.inf), "exp2": (0, np.inf), "expm1": (-1, np.inf), "cosh": (1, np.inf), "acosh": (0, np.inf),
    "acos": (0, np.pi), "asin": (-np.pi / 2, np.pi / 2), "atan": (-np.pi / 2, np.pi / 2), "sqrt": (0, np.inf),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", RANGES)
def test_no_value_leaves_its_range(backend, name, dtype):
    """Else what comes next is nan by a last place."""
    random = np.random.default_rng(0)
    sizes, near_1 = 10.0 ** random.uniform(-35, 35, 3000), 10.0 ** random.uniform(-17, 0, 999)
    ends = np.pi / 2 * np.arange(-100, 100), np.log(2) * np.arange(-60, 60), 1 - near_1, 1 + near_1
    x = np.concatenate([random.uniform(-40, 40, 20_000), np.linspace(-7, 7, 5001), sizes, -sizes, *ends])
    with np.errstate(over="ignore"):
        y = ek.Evaluator(ek.parse(f"{name}(x1)"), x[:, None].astype(dtype), backend, dtype=dtype).evaluate()[0]
    low, high = np.array(RANGES[name]).astype(dtype)
    assert ((low <= y) & (y <= high) | np.isnan(y)).all() and np.isfinite(y).sum() > 500


ABSOLUTE = {"digamma": 3e-15}  # error beside zeros that the operators' table allows


def is_approximate(backend, precision, dtype):
    """A GPU's ``fast`` flushes subnormals of float32 and takes its approximate instructions."""
    return precision == "fast" and dtype == "float32" and backend in ("cuda", "ptx")


def tolerance(row, precision, dtype):
    ulp = row.fast_ulp if precision == "fast" and row.fast_ulp else row.ulp
    # a float64 definition is itself a few units off, a rounded float32 one by half a unit
    return ulp[0] + 0.5 if dtype == "float32" else ulp[1] + 4


@beside_the_definition
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("precision", ["ieee", "fast"])
@pytest.mark.parametrize("kind", ["ordinary", "awkward"])
def test_every_operator_agrees_with_the_definition(backend, kind, precision, dtype):
    if is_approximate(backend, precision, dtype):
        pytest.skip("test_cuda.py has the errors of fast functions on a GPU")
    if kind == "awkward" and precision == "fast" and backend in ("cuda", "ptx"):
        pytest.skip("fast powers on a GPU give -inf for -0 ^ -1")
    wrong = []
    for row in ops.OPERATORS:
        X = inputs(row, kind, dtype)
        text = f"{row.name}({', '.join(['x1', 'x2'][: row.arity])})"
        choice = {"precision": precision, "dtype": dtype}
        wanted = ek.Evaluator(ek.parse([text]), X, backend="numpy", **choice).evaluate()[0]
        result = ek.Evaluator(ek.parse([text]), X, backend=backend, **choice).evaluate()[0]
        with np.errstate(invalid="ignore"):
            near = np.abs(result - wanted) <= ABSOLUTE.get(row.name, 0)
        apart = np.where(near, 0, ulps_apart(result, wanted))
        worst = int(np.argmax(apart))
        if apart[worst] > tolerance(row, precision, dtype):
            wrong.append(
                f"{text} at {X[worst].tolist()}: {result[worst]!r}, should be {wanted[worst]!r} "
                f"({apart[worst]:.4g} ulp, {np.sum(apart > tolerance(row, precision, dtype))} of {len(apart)} points)"
            )
    assert not wrong, "\n".join(wrong)


@beside_the_definition
@pytest.mark.parametrize("precision", ["ieee", "fast"])
@pytest.mark.parametrize(
    "form",
    [
        "{0}(x1, 1.5)",
        "{0}(1.5, x1)",
        "{0}(x1, p1)",
        "{0}(p1, x1)",
        "{0}(abs(x1), x1 + 1)",
        "{0}(x1 + 1, abs(x1))",
        "{0}(p1, 1.5)",
        "{0}(x1 + 1, {0}(x1, 2))",
    ],
)
def test_binary_operators_with_every_kind_of_operand(backend, form, precision):
    X = np.linspace(0.25, 3.0, 97)[:, None].astype(np.float32)
    rows = [row for row in ops.OPERATORS if row.arity == 2]
    pop = ek.parse([form.format(row.name) for row in rows])
    params = np.full((len(pop), pop.max_params), 1.25)
    wanted = ek.Evaluator(pop, X, backend="numpy", precision=precision).evaluate(params)
    result = ek.Evaluator(pop, X, backend=backend, precision=precision).evaluate(params)
    np.testing.assert_allclose(result, wanted, rtol=2e-5, atol=2e-6, err_msg=form)


@beside_the_definition
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("precision", ["ieee", "fast"])
def test_nothing_is_simplified_that_an_inf_or_nan_tells(backend, precision, dtype):
    texts = [
        "x1 - x1",
        "x1 / x1",
        "0 * x1",
        "p1 - p1 + x1",
        "p1 / p1 + x1",
        "(x1 + p1) - (x1 + p1)",
        "(x1 * p1) / (x1 * p1)",
    ]
    X, sets = np.array([[2.0], [0.0], [np.inf], [-np.inf], [np.nan]], dtype), np.array([3.0, 0.0, np.inf, np.nan])
    pop = ek.parse(texts)
    params = np.broadcast_to(sets[:, None, None], (len(sets), len(pop), pop.max_params))
    wanted = ek.Evaluator(pop, X, backend="numpy", precision=precision, dtype=dtype).evaluate(params)
    result = ek.Evaluator(pop, X, backend=backend, precision=precision, dtype=dtype).evaluate(params)
    np.testing.assert_array_equal(result, wanted)
    assert np.isnan(result[0, :3, 2:]).all() and np.isnan(result[2:, 3:5]).all()


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["float32", "float64"]), st.sampled_from(["ieee", "fast"]))
def test_random_trees_agree_as_far_as_rounding_lets_them(seed, dtype, precision):
    pop = ek.generate.random(40, n_tokens=(1, 40), n_vars=3, n_params=2, seed=seed)
    random = np.random.default_rng(seed)
    X = random.uniform(-2.0, 2.0, (37, 3)).astype(dtype)
    params = random.uniform(-2.0, 2.0, (len(pop), pop.max_params)).astype(dtype)
    for name in FAST:
        if is_approximate(name, precision, dtype):
            continue
        result = ek.Evaluator(pop, X, backend=name, dtype=dtype, precision=precision).evaluate(params)
        shares = disagreement(pop, X, params, result, dtype=dtype, precision=precision)
        worst = int(np.argmax(shares))
        # a point may stand on an edge that the definition's own runs did not see
        where = f"{name}: {pop[worst]} at {shares[worst]:.0%} of the points"
        assert shares.mean() < 0.005 and shares[worst] < 0.2, where
