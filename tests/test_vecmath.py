"""The CPU kernels against the definition: every operator, form, dtype, precision and kind of processor."""

from __future__ import annotations

import ctypes
import math
import os
from fractions import Fraction
from functools import cache, lru_cache
from itertools import product

import mpmath as mp
import numpy as np
import pytest
import sympy
from hard_inputs import NAMES, defined, hard_inputs, tolerance

from exprkit.backends.cpu import kernels as cpu_kernels
from exprkit.backends.cpu import reductions
from exprkit.errors import BackendError
from exprkit.operators import llvm_writer, ops, polynomials
from exprkit.operators.polynomials import NUMBERS
from exprkit.runtime import disk_cache

LEVELS = ["baseline", "avx2", "avx512"]
POINTER = ctypes.c_void_p
BESIDE_ZEROS = {"digamma": 3e-15}  # the absolute error that is allowed of negative operands
AWKWARD = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 7.0, -2.5, 1 / 3, 0.75, 1.5, 1e-8, -1e-8, 1e5, 1.1e5, -1e20,
    16777216.0, 33554433.0, 4503599627370497.0, math.inf, -math.inf, math.nan,
]  # fmt: skip
EDGES = {  # the smallest and largest numbers, and where exponentials begin to overflow and to vanish
    "float32": [1e-45, -1e-45, 1e-39, -1e-39, 1.1754944e-38, 1e-30, 1e30, 3e38, -3e38, 88.72, 88.73, -87.3, -103.9,
                -104.1, 89.41, 89.42, -89.4, 127.99, 128.0, -126.0, -149.0, -150.0, 1.0000001, 0.99999994, 9.1, -34.9],
    "float64": [5e-324, -5e-324, 1e-310, -1e-310, 2.2250738585072014e-308, 1e-200, 1e200, 1.7e308, -1.7e308, 709.78,
                709.79, -708.4, -745.1, -745.2, 710.47, 710.48, -710.4, 1023.99, 1024.0, -1022.0, -1074.0, -1075.0,
                1 + 2.0**-52, 1 - 2.0**-53, 19.1, -40.0],
}  # fmt: skip


def available_levels():
    """The processors whose code can be run here, this one last."""
    found = []
    for level in LEVELS:
        try:
            cpu_kernels.host(level)
        except BackendError:
            break
        found.append(level)
    return found or [None]


LEVELS_HERE = available_levels()


@pytest.fixture(params=LEVELS_HERE)
def level(request):
    return request.param


def run(kernels, row, a, b, form=cpu_kernels.VV):
    """One kernel over whole vectors, tile by tile."""
    n = max(len(a), len(b))
    kernel, count = kernels.function(row.code, form), -(-n // cpu_kernels.TILE) * cpu_kernels.TILE
    padded = [np.concatenate([x, np.ones(count - len(x), x.dtype)]) for x in (a, b)]
    y = np.empty(count, a.dtype)
    kernel(y.ctypes.data, *(x.ctypes.data for x in padded), count // kernels.lanes)
    return y[:n]


def ordinary(row, dtype, n, rng):
    """Half of the points from the row's domain, the others of every size and sign, and near 1."""
    smallest, largest = (-149, 128) if dtype == "float32" else (-1074, 1024)
    operands = []
    for low, high in (row.domain * 2)[:2]:
        wide = np.exp2(rng.uniform(smallest, largest, n // 6)) * rng.choice([-1, 1], n // 6)
        middle = np.exp2(rng.uniform(-12, 8, n // 6)) * rng.choice([-1, 1], n // 6)
        near_1 = 1 + np.exp2(rng.uniform(-23, 0, n // 6)) * rng.choice([-1, 1], n // 6)
        a = np.concatenate([rng.uniform(low, high, n - 3 * (n // 6)), wide, middle, near_1])
        operands.append(a.astype(dtype))
    rng.shuffle(operands[1])
    return operands


def awkward(row, dtype):
    values = np.array(AWKWARD + EDGES[dtype], dtype)
    if row.arity == 1:
        return values, values
    a, b = np.meshgrid(values, values)
    return a.ravel(), b.ravel()


def ulps(y, reference):
    """Errors in units of the last place; inf counts as the first number that is too large."""
    kind = np.finfo(y.dtype)
    below = np.minimum(np.abs(reference), kind.max).astype(y.dtype)
    below = np.where(below > np.abs(reference), np.nextafter(below, y.dtype.type(0)), below)
    size = np.spacing(below).astype(np.longdouble)
    first = np.longdouble(2.0) ** kind.maxexp
    wide = [np.clip(x.astype(np.longdouble), -first, first) for x in (y, reference)]
    return np.abs(wide[0] - wide[1]) / size


def assert_agrees(row, y, reference, limit, a, b):
    rounded = reference.astype(y.dtype)
    nans = np.isnan(y) != np.isnan(rounded)
    assert not nans.any(), f"nan: {y[nans][:3]} for {a[nans][:3]}, {b[nans][:3]}"
    with np.errstate(invalid="ignore"):
        error = np.nan_to_num(ulps(y, reference).astype(float))
    worst = np.argmax(error)
    assert error[worst] <= limit, f"{error[worst]:.3g} ulp: {y[worst]!r} for {a[worst]!r}, {b[worst]!r}"
    if "either zero" not in row.meaning:
        signs = (np.signbit(y) != np.signbit(rounded)) & (y == 0) & (rounded == 0)
        assert not signs.any(), f"sign of zero for {a[signs][:3]}, {b[signs][:3]}"


@lru_cache(maxsize=2)  # an operator's tests follow one another; definitions by mpmath take seconds
def float32_values(code, precision):
    """Ordinary operands and the definition's values."""
    row = ops.BY_CODE[code]
    a, b = ordinary(row, "float32", 100_000, np.random.default_rng(code))
    return a, b, defined(row, precision, a, b)


@pytest.mark.parametrize("precision", ["ieee", pytest.param("fast", marks=pytest.mark.slow)])
def test_float32_agrees_with_the_definition(op, precision, level):
    """Rounded once from float64, over the whole range."""
    kernels = cpu_kernels.kernels("float32", precision, level)
    limit = tolerance(op, precision, "float32")
    every = slice(None, None, 1 if level == LEVELS_HERE[-1] and precision == "ieee" else 8)
    a, b, wanted = (x[every] for x in float32_values(op.code, precision if op.numpy_fast else "ieee"))
    with np.errstate(over="ignore", under="ignore"):
        assert_agrees(op, run(kernels, op, a, b), wanted, limit, a, b)
        a, b = awkward(op, "float32")
        assert_agrees(op, run(kernels, op, a, b), defined(op, precision, a, b), limit, a, b)


def test_float64_special_values_are_those_of_the_definition(op, level):
    a, b = awkward(op, "float64")
    y, reference = run(cpu_kernels.kernels("float64", "ieee", level), op, a, b), defined(op, "ieee", a, b)
    assert (np.isnan(y) == np.isnan(reference)).all()
    special = ~np.isfinite(reference) | (reference == 0)
    huge = np.abs(y) > 1.79e308  # where the last digits decide whether it is inf
    with np.errstate(invalid="ignore"):
        same = (y == reference) | np.isnan(y) | huge | (np.abs(y - reference) < 2.0**-1020)
    assert same[special].all(), (a[special & ~same], b[special & ~same])


@cache
def formula(name):
    """An operator's formula in SymPy as a function of mpmath's numbers."""
    row = ops.BY_NAME[name]
    symbols = sympy.symbols("a b")[: row.arity]
    return sympy.lambdify(symbols, row.sympy(sympy, *symbols), "mpmath")


@cache
def exact(name, *operands):
    """The formula's value, to 50 digits even where 1 + a is formed on the way."""
    size = min(abs(v) for v in operands) or 1.0
    with mp.workdps(50 + max(0, -math.floor(math.log10(size)))):
        return mp.re(formula(name)(*map(mp.mpf, operands)))


def true_error(y, wanted):
    """The error of one number in units of the last place of the exact value."""
    kind = np.finfo(y.dtype)
    last_place = max(mp.frexp(wanted)[1], kind.minexp + 1) - kind.nmant - 1
    with mp.workdps(50):
        return float(mp.ldexp(abs(mp.mpf(float(y)) - wanted), -last_place))


def assert_right(row, y, limit, a, b):
    """Every finite result within the limit of the exact value."""
    for x, z, found in zip(a.tolist(), b.tolist(), y, strict=True):
        if np.isfinite(found):
            wanted = exact(row.name, *(x, z)[: row.arity])
            if x < 0 and abs(wanted - found) <= BESIDE_ZEROS.get(row.name, 0) * max(1, abs(found)):
                continue
            error = true_error(found, wanted)
            assert error <= limit, f"{row.name}: {error:.4g} ulp: {found!r} for {x!r}, {z!r}"


def everywhere(row, n, rng):
    """float64 numbers from the row's domain, near 1, and of every size and sign; the second operand from its domain."""
    (low, high), (b_low, b_high) = (row.domain * 2)[:2]
    near_1 = 1 + np.exp2(rng.uniform(-40, -1, n // 4))
    wide = np.exp2(rng.uniform(-1074, 1024, n // 4)) * rng.choice([-1, 1], n // 4)
    middle = np.exp2(rng.uniform(-60, 20, n // 4)) * rng.choice([-1, 1], n // 4)
    a = np.concatenate([rng.uniform(low, high, n), near_1, wide, middle])
    return a, rng.uniform(b_low, b_high, len(a))


def test_float64_is_right(op, level):
    """Against 50 digits where the row has a formula in SymPy, else against NumPy, exactly."""
    every = slice(None, None, 1 if level == LEVELS_HERE[-1] else 3)  # of the same points, whose exact values are kept
    a, b = (x[every] for x in everywhere(op, 200, np.random.default_rng(op.code)))
    y, reference = run(cpu_kernels.kernels("float64", "ieee", level), op, a, b), defined(op, "ieee", a, b)
    if op.ulp[1] <= 0.5:
        assert np.array_equal(y, reference, equal_nan=True)
        return
    ordinary = np.isfinite(reference) & (reference != 0)
    assert np.isfinite(y[ordinary]).all()
    assert_right(op, y[ordinary], op.ulp[1], a[ordinary], b[ordinary])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_hard_inputs_are_within_the_errors_of_their_row(name, dtype, level):
    """At the worst inputs found by a search, in both precisions."""
    row = ops.BY_NAME[name]
    a, b = hard_inputs(name, dtype)
    for precision in ("ieee", "fast") if row.simd_fast else ("ieee",):
        y = run(cpu_kernels.kernels(dtype, precision, level), row, a, b)
        usual = slice(None) if precision == "ieee" else a > 0
        assert_right(row, y[usual], tolerance(row, precision, dtype), a[usual], b[usual])


# ── values that no rounding may carry them beyond ────────────────────────────────────

RANGES = {
    "sin": (-1, 1), "cos": (-1, 1), "tanh": (-1, 1), "erf": (-1, 1), "erfc": (0, 2), "logistic": (0, 1),
    "asin": (-math.pi / 2, math.pi / 2), "acos": (0, math.pi), "atan": (-math.pi / 2, math.pi / 2),
    "atan2": (-math.pi, math.pi), "cosh": (1, math.inf), "exp": (0, math.inf), "exp2": (0, math.inf),
    "expm1": (-1, math.inf), "acosh": (0, math.inf), "sqrt": (0, math.inf), "sqrtabs": (0, math.inf),
    "powabs": (0, math.inf), "abs": (0, math.inf), "sqr": (0, math.inf), "relu": (0, math.inf), "sign": (-1, 1),
    "hypot": (lambda a, b: np.fmax(np.abs(a), np.abs(b)), math.inf),
    "aq": (lambda a, b: -np.abs(a), lambda a, b: np.abs(a)),
    "log1p": (lambda a, b: np.where(a < 0, -np.inf, 0), lambda a, b: np.where(a > 0, np.inf, 0)),
}  # fmt: skip


def close_to_extremes(dtype, rng):
    """Numbers of every size, small ones, and those next to multiples of a quarter turn."""
    wide = np.exp2(rng.uniform(-40, 40, 20_000)) * rng.choice([-1, 1], 20_000)
    turns = np.concatenate([np.arange(-5000, 5000), rng.integers(-(2**30), 2**30, 10_000)]) * (math.pi / 2)
    near = turns.astype(dtype)
    near = near + np.spacing(near) * rng.integers(-40, 41, near.size).astype(dtype)
    small = np.exp2(rng.uniform(-16, 0, 20_000)) * rng.choice([-1, 1], 20_000)
    return np.concatenate([wide.astype(dtype), near, small.astype(dtype), np.array(AWKWARD + EDGES[dtype], dtype)])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", sorted(RANGES))
def test_no_result_leaves_its_mathematical_range(name, dtype, level):
    row, rng = ops.BY_NAME[name], np.random.default_rng(0)
    a, b = close_to_extremes(dtype, rng), rng.permutation(close_to_extremes(dtype, rng))
    a, b = (np.concatenate(pair) for pair in zip((a, b), hard_inputs(name, dtype), strict=True))
    low, high = (np.asarray(end(a, b) if callable(end) else end).astype(dtype) for end in RANGES[name])
    for precision in ("ieee", "fast"):
        y = run(cpu_kernels.kernels(dtype, precision, level), row, a, b)
        left = (y < low) | (y > high)
        assert not left.any(), f"{y[left][0]!r} for {a[left][0]!r}, {b[left][0]!r}"


ALL = sorted(ops.BY_CODE)


def is_pair(row):
    return row.name in cpu_kernels.PAIR_OPERAND


@pytest.mark.parametrize("code", [c for c in ALL if ops.BY_CODE[c].width == 1 and not is_pair(ops.BY_CODE[c])])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_forms_give_the_same_bits(code, dtype):
    """Vectors, a scalar on either side, scalars only, in place, an odd number of vectors, and any company."""
    row, rng = ops.BY_CODE[code], np.random.default_rng(code)
    kernels = cpu_kernels.kernels(dtype, "ieee")
    count = 3 * kernels.lanes
    a, b = (x[:count].copy() for x in ordinary(row, dtype, 6 * count, rng))
    a[::5], b[::7] = np.resize(awkward(row, dtype)[0], a[::5].shape), np.resize(awkward(row, dtype)[1], b[::7].shape)
    wanted = run(kernels, row, a, b)

    def same(found, expected):
        return np.array_equal(found.view(f"u{found.itemsize}"), expected.view(f"u{found.itemsize}")) or (
            np.array_equal(found, expected, equal_nan=True)
        )

    order = rng.permutation(count)
    assert same(run(kernels, row, a[order], b[order]), wanted[order])
    for place in (a.copy(), b.copy()):
        others = [place if np.array_equal(x, place, equal_nan=True) else x for x in (a, b)]
        guarded = np.concatenate([place, np.full(4, 77, dtype)])
        operands = [guarded if x is place else x for x in others]
        kernels.function(code, cpu_kernels.VV)(guarded.ctypes.data, *(x.ctypes.data for x in operands), 3)
        assert same(guarded[:count], wanted)
        assert (guarded[count:] == 77).all()
    for i in range(0, count, 5):
        y = np.full(4, 77, dtype)
        kernels.function(code, cpu_kernels.UU)(y.ctypes.data, a[i:].ctypes.data, b[i:].ctypes.data, 1)
        assert same(y[:1], wanted[i : i + 1])
        assert (y[1:] == 77).all()
        if row.arity == 2:
            ends = np.full(count, a[i]), np.full(count, b[i])
            assert same(run(kernels, row, a, b[i:], cpu_kernels.VS), run(kernels, row, a, ends[1]))
            assert same(run(kernels, row, a[i:], b, cpu_kernels.SV), run(kernels, row, ends[0], b))


@pytest.mark.parametrize("row", [row for row in ops.OPERATORS if row.rewrite.split], ids=lambda row: row.name)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_staged_operators_may_be_done_in_two_steps(row, dtype, level):
    """``rest(first(a), b)`` with the pair in a tile, or as two scalars, is as exact as the operator."""
    kernels = cpu_kernels.kernels(dtype, "ieee", level)
    first, rest = (ops.BY_NAME[name] for name in row.rewrite.split)
    a, b = (x[: cpu_kernels.TILE] for x in ordinary(row, dtype, cpu_kernels.TILE, np.random.default_rng(1)))
    a[:60], b[:60] = (np.resize(x, 60) for x in awkward(row, dtype))
    hard = hard_inputs(row.name, dtype)
    a[60 : 60 + len(hard[0])], b[60 : 60 + len(hard[0])] = hard
    n = cpu_kernels.TILE // kernels.lanes
    pair, y = np.empty(2 * cpu_kernels.TILE, dtype), np.empty(cpu_kernels.TILE, dtype)
    kernels.function(first.code, cpu_kernels.VV)(pair.ctypes.data, a.ctypes.data, None, n)
    kernels.function(rest.code, cpu_kernels.VV)(y.ctypes.data, pair.ctypes.data, b.ctypes.data, n)
    reference = defined(row, "ieee", a, b)
    with np.errstate(over="ignore"):
        assert_agrees(row, y, reference, row.ulp[dtype == "float64"], a, b)
    for i in range(0, cpu_kernels.TILE, 31):
        two = np.full(3, 77, dtype)
        kernels.function(first.code, cpu_kernels.UU)(two.ctypes.data, a[i:].ctypes.data, None, 1)
        assert np.array_equal(two, [pair[i], pair[i + cpu_kernels.TILE], 77], equal_nan=True)
        one, all_b = np.full(2, 77, dtype), np.empty(cpu_kernels.TILE, dtype)
        kernels.function(rest.code, cpu_kernels.UU)(one.ctypes.data, two.ctypes.data, b[i:].ctypes.data, 1)
        kernels.function(rest.code, cpu_kernels.SV)(all_b.ctypes.data, two.ctypes.data, b.ctypes.data, n)
        assert np.array_equal(one, [y[i], 77], equal_nan=True)
        assert np.array_equal(all_b[i], y[i], equal_nan=True)


# ── the numbers ──────────────────────────────────────────────────────────────────────

H = math.log(2) / 2
FITS = [  # name, what (of r or of t = r^2), relative to what, from, to, error in powers of two for float and double
    ("exp", mp.exp, mp.exp, -H, H, -28.2, -56.4),
    ("exp2", lambda r: mp.mpf(2) ** r, lambda r: mp.mpf(2) ** r, -0.5, 0.5, -28.3, -56.8),
    ("expm1", lambda r: mp.expm1(r) / r, lambda r: mp.expm1(r) / r, -H, H, -26.1, -55.4),
    ("cosh", lambda t: mp.cosh(mp.sqrt(t)), lambda t: 1, 1e-9, H * H, -33.2, -67.3),
    ("sinh", lambda t: mp.sinh(mp.sqrt(t)) / mp.sqrt(t), lambda t: 1, 1e-9, H * H, -26.1, -61.6),
    ("sin", lambda t: mp.sin(mp.sqrt(t)) / mp.sqrt(t), lambda t: mp.sin(mp.sqrt(t)) / mp.sqrt(t), 1e-9,
     math.pi**2 / 4, -27.2, -57.0),
    ("asin", lambda t: mp.asin(mp.sqrt(t)) / mp.sqrt(t), lambda t: 1, 1e-9, 0.25, -27.5, -55.8),
    ("atan", lambda t: mp.atan(mp.sqrt(t)) / mp.sqrt(t), lambda t: mp.atan(mp.sqrt(t)) / mp.sqrt(t), 1e-9, 1, -25.8,
     -54.7),
    ("asinh", lambda t: mp.asinh(mp.sqrt(t)) / mp.sqrt(t), lambda t: 1, 1e-9, 0.25, -29.5, -59.9),
]  # fmt: skip


def value(polynomial, x):
    return mp.fsum(mp.mpf(c) * x**k for k, c in enumerate(polynomial))


def largest_error(error, low, high):
    with mp.workdps(40):
        points = (low + (high - low) * (mp.mpf(i) + 0.5) / 300 for i in range(300))
        return float(mp.log(max(abs(error(x)) for x in points), 2))


def precise(real):
    """The numbers as they are used: a float's coefficients are rounded to float."""
    rounded = np.float32 if real == "float" else np.float64
    return lambda polynomial: [float(rounded(c)) for c in polynomial]


@pytest.mark.parametrize("real", ["float", "double"])
@pytest.mark.parametrize("fit", FITS, ids=lambda fit: fit[0])
def test_polynomials_are_what_they_say(fit, real):
    name, function, relative, low, high, *bounds = fit
    polynomial = precise(real)(getattr(NUMBERS[real], name))
    bound = bounds[real == "double"]
    assert largest_error(lambda x: (value(polynomial, x) - function(x)) / relative(x), low, high) <= bound + 0.1


@pytest.mark.parametrize(("real", "bounds"), [("float", (-24.8, -25.1, -24.3)), ("double", (-57.0, -55.9, -55.1))])
def test_logarithms_are_what_they_say(real, bounds):
    reach = 1 / len(NUMBERS[real].cells)
    for (base, polynomial), bound in zip(NUMBERS[real].log.items(), bounds, strict=True):
        used = precise(real)(polynomial)

        def error(r, base=base, used=used):
            return r * value(used, r) / mp.log1p(r) * mp.log(mp.e if base == math.e else base) - 1

        assert largest_error(error, -reach, reach) <= bound + 0.1


def float_tail(r):
    return (mp.log1p(r) - r) / mp.log(2) / r**2, r


def double_tail(r):
    return (mp.log1p(r) - r + r * r / 2) / r**3, r * r


@pytest.mark.parametrize(("real", "tail", "bound"), [("float", float_tail, -31.0), ("double", double_tail, -62.4)])
def test_tails_of_the_logarithm_are_what_they_say(real, tail, bound):
    reach, polynomial = 1 / len(NUMBERS[real].cells), precise(real)(NUMBERS[real].log2_tail)

    def error(r):
        exact, weight = tail(r)
        return (value(polynomial, r) - exact) * weight

    assert largest_error(error, -reach, reach) <= bound + 0.1


@pytest.mark.parametrize("real", ["float", "double"])
def test_tables_are_what_they_say(real):
    """c near 1 / m: m c - 1 small, and in float exact; the logarithms of c right to the last digit."""
    numbers, used = NUMBERS[real], precise(real)
    count = len(numbers.cells)
    for m in np.linspace(0.75, 1.5, 4001)[:-1]:
        c = numbers.cells[(polynomials.bits(m, real) >> numbers.cell_shift) % count]
        r = float(np.float32(m)) * c - 1 if real == "float" else m * c - 1
        assert abs(r) <= 1 / count
        assert real == "double" or np.float32(r) == r
    with mp.workdps(40):
        for c, natural, hi, lo in zip(numbers.cells, numbers.logs[math.e], *numbers.log2_hi_lo, strict=True):
            log = -mp.log(c)
            assert natural == used([float(log)])[0]
            assert abs(mp.mpf(hi) + mp.mpf(lo) - log / mp.log(2)) < mp.mpf(2) ** (-36 if real == "float" else -90)
            for k in range(-149, 129) if real == "float" else (-1074, -1025, -1022, -1, 1, 1023):
                assert Fraction(used([k + hi])[0]) == k + Fraction(hi)  # of a subnormal number, too


@pytest.mark.parametrize("real", ["float", "double"])
def test_constants_and_quotients_are_what_they_say(real):
    numbers, used = NUMBERS[real], precise(real)
    with mp.workdps(60):
        for parts, exact, error in ((numbers.pi, mp.pi, -70), (numbers.half_pi, mp.pi / 2, -71),
                                    (numbers.ln2, mp.log(2), -48), (numbers.log2_e, 1 / mp.log(2), -48)):  # fmt: skip
            assert abs(mp.fsum(mp.mpf(part) for part in parts) - exact) < mp.mpf(2) ** error
            assert [*parts] == used(parts)


@pytest.mark.parametrize(("real", "bound"), [("float", -25.7), ("double", -55.3)])
def test_the_tangents_quotient_is_what_it_says(real, bound):
    top, bottom = (precise(real)(part) for part in (NUMBERS[real].tan_top, NUMBERS[real].tan_bottom))

    def error(t):
        return value(top, t) / value(bottom, t) * mp.sqrt(t) / mp.tan(mp.sqrt(t)) - 1

    assert largest_error(error, 1e-9, math.pi**2 / 16) <= bound


@pytest.mark.parametrize(("real", "step", "reach", "bound"), [
    ("float", 0, 0.1024, -14.3), ("double", 0, 0.1029, -14.2), ("double", 1, 1.5e-4, -40),
])  # fmt: skip
def test_steps_to_the_cube_root_are_what_they_say(real, step, reach, bound):
    polynomial = precise(real)(NUMBERS[real].cbrt[step])
    assert largest_error(lambda e: value(polynomial, e) - (1 - e) ** (-mp.mpf(1) / 3), -reach, reach) <= bound


# ── what is done with results ────────────────────────────────────────────────────────


def measures(kernels):
    kind = ctypes.CFUNCTYPE(ctypes.c_double, POINTER, POINTER, POINTER, ctypes.c_int64)
    return [kind(reductions.plain_sum(kernels, loss)) for loss in reductions.PLAIN]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_losses_are_accurate_and_leave_out_points_without_weight(dtype, level):
    rng = np.random.default_rng(0)
    square, absolute, plain = measures(cpu_kernels.kernels(dtype, "ieee", level))
    limit = 1e-6 if dtype == "float32" else 1e-14
    for n, size in product([1, 7, 16, 63, 64, 65, 128, 362, 511, 512], [1, 1e-25, 1e25]):
        pred, target = ((rng.normal(size=n) * size).astype(dtype) for _ in range(2))
        weights = rng.uniform(0.1, 2, n).astype(dtype)
        weights[1::3], left_out = 0, np.where(np.arange(n) % 3 == 1, np.nan, pred).astype(dtype)
        error = pred.astype(float) - target
        at = target.ctypes.data
        for measure, terms in ((square, error**2), (absolute, np.abs(error)), (plain, error)):
            rounding = limit * np.abs(terms).sum()
            assert measure(pred.ctypes.data, at, None, n) == pytest.approx(terms.sum(), rel=limit, abs=rounding)
            found = measure(left_out.ctypes.data, at, weights.ctypes.data, n)
            assert found == pytest.approx((terms * weights).sum(), rel=limit, abs=rounding)
            assert math.isnan(measure(left_out.ctypes.data, at, None, n)) or n == 1
    assert square(None, None, None, 0) == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_copies_write_n_points_and_no_more(dtype, level):
    kernels = cpu_kernels.kernels(dtype, "ieee", level)
    copy = ctypes.CFUNCTYPE(None, POINTER, POINTER, ctypes.c_int64)(kernels.result("copy_points"))
    fence = ctypes.CFUNCTYPE(None)(kernels.result("fence"))
    source = np.random.default_rng(0).normal(size=600).astype(dtype)
    for n, ahead in product([0, 1, 3, 15, 16, 17, 31, 64, 100, 362, 512], range(0, 20, 3)):
        room = np.full(700, 77, dtype)
        copy(room[ahead:].ctypes.data, source[3:].ctypes.data, n)
        fence()
        assert np.array_equal(room[ahead : ahead + n], source[3 : 3 + n])
        assert (room[:ahead] == 77).all()
        assert (room[ahead + n :] == 77).all()


# ── compiling ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_everything_can_be_assembled_for_arm(dtype):
    from llvmlite import binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    arm = llvm_writer.LEVELS["aarch64"]
    machine = llvm.Target.from_triple(arm.triple).create_target_machine(cpu=arm.cpu, features=arm.features)
    requests = [(code, form) for code in ALL for form in (cpu_kernels.VV, cpu_kernels.UU)]
    texts = cpu_kernels.results_text(arm, dtype), reductions.sums_text(arm, dtype)
    for text in (cpu_kernels.kernels_text(arm, dtype, "ieee", requests), *texts):
        module = llvm.parse_assembly(text)
        module.verify()
        assert machine.emit_object(module)[:4] == b"\x7fELF"


def test_a_processor_that_is_not_here_is_refused():
    with pytest.raises(BackendError, match="EXPRKIT_CPU_FEATURES=avx1024: this machine has"):
        cpu_kernels.kernels("float32", "ieee", "avx1024")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EXPRKIT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def answer():
    """What a newly made kernel computes."""
    kernels = cpu_kernels.Kernels("float32", "ieee", cpu_kernels.host())
    a = np.full(kernels.lanes, 3.0, np.float32)
    y = run(kernels, ops.OPERATORS[0], a, a)
    return y[0]


def test_machine_code_is_kept_and_a_damaged_file_is_made_again(cache, monkeypatch):
    assert answer() == 6
    (entry,) = cache.iterdir()
    kept = entry.read_bytes()
    assert disk_cache.read(entry.stem) == kept[40:]
    for damaged in (b"", kept[:20], kept[:-1], kept[:-1] + bytes([kept[-1] ^ 1])):
        entry.write_bytes(damaged)
        monkeypatch.setattr(disk_cache, "_warned", False)
        with pytest.warns(RuntimeWarning, match="is damaged: it is compiled anew and replaced"):
            assert disk_cache.read(entry.stem) is None
        assert answer() == 6
        assert entry.read_bytes() == kept
    assert [entry] == list(cache.iterdir())


def test_a_folder_that_cannot_be_written_means_no_cache_and_one_warning(cache, monkeypatch):
    cache.write_text("a file where the folder should be")
    monkeypatch.setattr(disk_cache, "_warned", False)
    with pytest.warns(RuntimeWarning, match="EXPRKIT_CACHE_DIR names another folder"):
        assert answer() == 6
    assert answer() == 6


def test_an_empty_name_means_memory_only(monkeypatch):
    monkeypatch.setenv("EXPRKIT_CACHE_DIR", "")
    assert disk_cache.folder() is None
    assert answer() == 6


def test_the_oldest_files_go_when_the_cache_is_full(cache, monkeypatch):
    monkeypatch.setattr(disk_cache, "MOST_BYTES", 250)
    for i, name in enumerate("abc"):
        disk_cache.write(name, bytes(60))
        os.utime(cache / f"{name}.o", (i, i))
    disk_cache.write("d", bytes(60))
    assert sorted(file.stem for file in cache.iterdir()) == ["c", "d"]
