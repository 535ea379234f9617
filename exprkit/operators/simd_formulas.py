"""The operators' formulas on SIMD vectors: one small function per operator.

Found by the operators' names and called by the CPU's ``kernels`` with ``Vec``
arguments; a call writes the instructions of a kernel.  One text serves float32 and
float64, the numbers in it come from ``polynomials``.

    >>> from exprkit.operators import simd_formulas
    >>> from exprkit.operators.llvm_writer import LEVELS, Code
    >>> code = Code(LEVELS["avx2"], "float", 8)
    >>> y = simd_formulas.exp2(code.vec("%a"))
    >>> print(code.lines[4])
      %t5 = call <8 x float> @llvm.rint.v8f32(<8 x float> %t4)

Everywhere results are right for 0, -0, subnormal and huge numbers, inf and nan.  Compensated
steps (``x * y`` followed by ``x.fma(y, -product)``) give what a rounding lost.  Rare arguments
take a slow path behind a branch (``unless``), so that the others do not pay for them.

``[0.9, 0.8]`` behind a formula is the largest error that was measured, in units of the last place of
float32 and float64 (400,000 and 3,000 arguments of each ordinary range, against NumPy's float64 and
mpmath); a row's ``ulp`` is what the tests allow.  Reductions of arguments are those of W. J. Cody and
W. Waite, "Software Manual for the Elementary Functions" (1980); polynomials are exprkit's own.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from exprkit.operators.polynomials import (
    DIGAMMA_FAR,
    DIGAMMA_NEAR,
    DIGAMMA_ROOT,
    LOGCOSH_TABLES,
    NUMBERS,
    TEN,
    TWO,
    E,
    Numbers,
    logcosh_cells,
)
from exprkit.operators.simd_values import C_FUNCTIONS, Vec, unless, where

HiLo = tuple[Vec, Vec]  # a double-double: a number as the sum of a high and a low part
INF, NAN = math.inf, math.nan
LOG2_E = math.log2(math.e)


def _of(a: Vec) -> Numbers:
    """The numbers of a's precision."""
    return NUMBERS[a.element]


def _polynomial(x: Vec, coefficients: tuple[float, ...]) -> Vec:
    """c0 + c1 x + c2 x^2 + ..., by Horner's rule.

    Long ones: from the third coefficient on as even and odd part, two chains that overlap.
    """
    if len(coefficients) < 8:
        return _horner(x, coefficients)
    head, tail, t = coefficients[:2], coefficients[2:], x * x
    rest = _horner(t, tail[1::2]).fma(x, _horner(t, tail[::2]))
    return rest.fma(x, head[1]).fma(x, head[0])


def _odd(r: Vec, x: Vec, coefficients: tuple[float, ...]) -> Vec:
    """r (1 + c1 x + c2 x^2 + ...) as r + r x (...): nearly all of the error is the last addition's."""
    return (r * x).fma(_polynomial(x, coefficients[1:]), r)


def _horner(x: Vec, coefficients: tuple[float, ...]) -> Vec:
    y = x.like(coefficients[-1])
    for c in coefficients[-2::-1]:
        y = y.fma(x, c)
    return y


# ── arithmetic ───────────────────────────────────────────────────────────────────────

add, sub, mul, div, neg = operator.add, operator.sub, operator.mul, operator.truediv, operator.neg
abs, sqrt, floor, ceil, round = Vec.abs, Vec.sqrt, Vec.floor, Vec.ceil, Vec.rint


def copy(a: Vec) -> Vec:
    return a


def strong_product(a: Vec, b: Vec) -> Vec:
    return where((a == 0.0) | (b == 0.0), 0.0, a * b)


def strong_quotient(a: Vec, b: Vec) -> Vec:
    return where(a == 0.0, 0.0, a / b)


def inv(a: Vec) -> Vec:
    return 1.0 / a


def sqr(a: Vec) -> Vec:
    return a * a


def cube(a: Vec) -> Vec:
    return a * a * a


def sqrt_of_reciprocal(a: Vec) -> Vec:
    """a / sqrt(a) by an estimate of 14 bits and a step of Newton's, where float32 has one; nan for inf. [0.7]

    Of subnormal numbers below 2^-140 the estimate is of 2^-149 more.
    """
    if a.double or not a.code.target.avx512:
        return a.sqrt()
    estimate = (a + 2.0**-149).rsqrt14()  # 0 has one
    y = a * estimate
    return (-y).fma(y, a).fma(estimate * 0.5, y)


def sqrtabs(a: Vec) -> Vec:
    return a.abs().sqrt()


def min(a: Vec, b: Vec) -> Vec:
    """The smaller; b where a is nan, a where b is."""
    return where(a.isnan(), b, a.at_most(b))


def max(a: Vec, b: Vec) -> Vec:
    """The larger; b where a is nan, a where b is."""
    return where(a.isnan(), b, a.at_least(b))


def relu(a: Vec) -> Vec:
    return where(a <= 0.0, 0.0, a)


def sign(a: Vec) -> Vec:
    return where(a == 0.0, 0.0, where(a.isnan(), a, a.like(1.0).copysign(a)))


def mod(a: Vec, b: Vec) -> Vec:
    """a - floor(a / b) b, one rounding: exact as long as the quotient is; else C's fmod. [0.5, 0.5]"""
    q = (a / b).floor()
    r = q.fma(-b, a)
    far = ~(q.abs() < 2.0 ** _of(a).mantissa) | r.isnan()
    r = unless(far, r, lambda: a.each("@fmod", b))
    return where(r == 0.0, r.like(0.0).copysign(b), where((r < 0.0) != (b < 0.0), r + b, r))


def hypot(a: Vec, b: Vec) -> Vec:
    """The square root of the sum of squares, which no float can make overflow in double. [0.5, 1.0]"""
    if a.double:
        y = _double_hypot(a, b)
    else:
        x, z = a.widen(), b.widen()
        y = x.fma(x, z * z).sqrt().narrow()
    return unless(y.isnan(), y, lambda: where((a.abs() == INF) | (b.abs() == INF), INF, y))


def _double_hypot(a: Vec, b: Vec) -> Vec:
    y = a.fma(a, b * b).sqrt()
    far = ~(y < 2.0**500) | (y < 2.0**-450)

    def scaled() -> Vec:
        s = where(y < 1.0, y.like(2.0**600), 2.0**-600)
        x, z = a * s, b * s
        return where(far, x.fma(x, z * z).sqrt() / s, y)

    return unless(far, y, scaled)


def aq(a: Vec, b: Vec) -> Vec:
    """a / sqrt(1 + b^2); where b^2 might overflow, the root is |b|. [1.9, 1.7]"""
    far = b.abs() > 2.0**60
    root = b.fma(b, 1.0).sqrt()
    return a / unless(far, root, lambda: where(far, b.abs(), root))


# ── conditions: 1 or 0 ───────────────────────────────────────────────────────────────


def _one_where(mask: Vec, a: Vec) -> Vec:
    return where(mask, a.like(1.0), 0.0)


def _condition(compare: Callable[[Vec, Vec], Vec]) -> Callable[[Vec, Vec], Vec]:
    return lambda a, b: _one_where(compare(a, b), a)


greater, less, greaterequal, lessequal = map(_condition, (operator.gt, operator.lt, operator.ge, operator.le))


def cond(a: Vec, b: Vec) -> Vec:
    return where(a > 0.0, b, 0.0)


def logical_and(a: Vec, b: Vec) -> Vec:
    return _one_where((a > 0.0) & (b > 0.0), a)


def logical_or(a: Vec, b: Vec) -> Vec:
    return _one_where((a > 0.0) | (b > 0.0), a)


# ── exponentials: a = n ln 2 + r, so that e^a = 2^n e^r with |r| <= ln(2) / 2 ────────


def exp(a: Vec) -> Vec:
    """2^n P(r). [0.9, 0.8]"""
    a = _clamp(a, _of(a).exp_range)
    n = (a * LOG2_E).rint()
    return _polynomial(_minus(a, n, _of(a).ln2), _of(a).exp).scale(n)


def exp2(a: Vec) -> Vec:
    """2^n P(r), a = n + r exactly. [0.8, 0.8]"""
    a = _clamp(a, _of(a).exp2_range)
    n = a.rint()
    return _polynomial(a - n, _of(a).exp2).scale(n)


def expm1(a: Vec) -> Vec:
    """2^n r^2 P(r) + (2^n r + (2^n - 1)), the small terms first; halved, as 2^n may overflow. [1.3, 1.3]"""
    r, half = _halved(_clamp(a, _of(a).expm1_range))
    y = (r * r * half).fma(_polynomial(r, _of(a).expm1[1:]), r.fma(half, half - 0.5))
    return where(a.abs() < 2.0**-60, a, y + y)


def sinh(a: Vec) -> Vec:
    """sinh(n ln 2) cosh r + cosh(n ln 2) sinh r, for |a|: nothing cancels. [2.8, 2.7]"""
    cosh_r, sinh_r, difference, total = _hyperbolic(a)
    y = cosh_r.fma(difference, sinh_r * total) * 8.0
    return where(a.abs() < 2.0**-60, a, y.copysign(a))


def cosh(a: Vec) -> Vec:
    """cosh(n ln 2) cosh r + sinh(n ln 2) sinh r. [2.5, 1.8]"""
    cosh_r, sinh_r, difference, total = _hyperbolic(a)
    return cosh_r.fma(total, sinh_r * difference) * 8.0


def tanh(a: Vec) -> Vec:
    """(e^2z - 1) / (e^2z + 1) for z = |a|. [2.8, 2.4]"""
    z = a.abs().at_most(20.0)
    r, half = _halved(z + z)
    p = _odd(r, r, _of(a).expm1)
    return (p.fma(half, half - 0.5) / p.fma(half, half + 0.5)).copysign(a)


def logistic(a: Vec) -> Vec:
    """1 / (1 + t) or, on the left, t / (1 + t), with t = e^-|a|. [2.3, 1.8]"""
    t = exp(-a.abs())
    return where(a < 0.0, t, 1.0) / (t + 1.0)


def _clamp(a: Vec, between: tuple[float, float]) -> Vec:
    return a.at_most(between[1]).at_least(between[0])


def _nearest(a: Vec, per: float) -> tuple[Vec, Vec]:
    """n = a * per rounded to a whole number: as a real one, and as bits whose low end is n.

    1.5 * 2^23 (double: 2^52) is so large that adding it leaves no bits for a fraction.
    """
    shifted = a.fma(per, _of(a).magic)
    return shifted - _of(a).magic, shifted.bits()


def _minus(a: Vec, n: Vec, unit: tuple[float, ...]) -> Vec:
    """a - n * unit, the unit being a sum of numbers."""
    for part in unit:
        a = n.fma(-part, a)
    return a


def _halved(a: Vec) -> tuple[Vec, Vec]:
    """(r, h) with e^a = 2h e^r, 2h a power of two."""
    n, n_bits = _nearest(a, LOG2_E)
    r = _minus(a, n, _of(a).ln2)
    half = ((n_bits - 1) << _of(a).mantissa) + _of(a).one
    return r, half.real()


def _hyperbolic(a: Vec) -> tuple[Vec, Vec, Vec, Vec]:
    """cosh r, sinh r and sinh(n ln 2) / 8, cosh(n ln 2) / 8, where |a| = n ln 2 + r."""
    z = a.abs().at_most(_of(a).exp_range[1] + 1.0)
    n, n_bits = _nearest(z, LOG2_E)
    r = _minus(z, n, _of(a).ln2)
    power, sixteenth = n_bits << _of(a).mantissa, a.like(0.0625).bits()
    shrunk = sixteenth - power  # no normal number any more where n is large: 0
    grown, shrunk = (power + sixteenth).real(), where(shrunk < 0, 0, shrunk).real()
    t = r * r
    return _polynomial(t, _of(a).cosh), _odd(r, t, _of(a).sinh), grown - shrunk, grown + shrunk


# ── logarithms: a = 2^k m and m = (1 + r) / c, c from a table ────────────────────────
#
# P. T. P. Tang, "Table-driven implementation of the logarithm function in IEEE floating-point arithmetic", ACM
# Transactions on Mathematical Software 16 (1990).


def log(a: Vec) -> Vec:
    return _log(a, E)


def log2(a: Vec) -> Vec:
    return _log(a, TWO)


def log10(a: Vec) -> Vec:
    return _log(a, TEN)


def logabs(a: Vec) -> Vec:
    return _log(a.abs(), E)


def _log(a: Vec, base: float) -> Vec:
    """k log 2 - log c + r P(r). log [1.8, 2.0], log2 [1.6, 1.5], log10 [2.2, 1.2]"""
    k, m = a.around_one()
    cell = m.bits() >> _of(a).cell_shift
    r = m.fma(cell.lookup(_of(a).cells), -1.0)
    s = k.fma(_of(a).log_of_2[base], cell.lookup(_of(a).logs[base]))
    return r.fma(_polynomial(r, _of(a).log[base]), s)


def log1p(a: Vec) -> Vec:
    """``log`` of 1 + a with the digits of a that 1 + a loses, for -1 <= a < 2^60. [1.8, 2.0]"""
    rare = ~(a < 2.0**60) | ~(a >= -1.0)
    y = _log1p(a)
    return unless(rare, y, lambda: where(rare, log(a + 1.0), y)).copysign(a)


def _log1p(a: Vec) -> Vec:
    """log: with m - 1 = 2^-k a + (2^-k - 1), which keeps the digits of a that 1 + a loses."""
    k, m = (a + 1.0).around_one()
    shrink = _power_of_two(-k)
    f = a.fma(shrink, shrink - 1.0)
    cell = m.bits() >> _of(a).cell_shift
    c = cell.lookup(_of(a).cells)
    r = f.fma(c, c - 1.0)
    s = k.fma(_of(a).log_of_2[E], cell.lookup(_of(a).logs[E]))
    return r.fma(_polynomial(r, _of(a).log[E]), s)


def _power_of_two(n: Vec) -> Vec:
    """2^n for a whole-valued real n in the range of exponents."""
    return (((n + _of(n).magic).bits() << _of(n).mantissa) + _of(n).one).real()


def asinh(a: Vec) -> Vec:
    """log(z + sqrt(z^2 + 1)) for z = |a|; a polynomial up to 1/2, log 2z beyond 2^60. [3.8, 2.6]"""
    z = a.abs()
    t = z * z
    y = where(z < 0.5, _odd(z, t, _of(a).asinh), log(z + (t + 1.0).sqrt()))
    return unless(~(z < 2.0**60), y, lambda: where(z < 2.0**60, y, log(z) + math.log(2))).copysign(a)


def acosh(a: Vec) -> Vec:
    """log1p(t + sqrt(t^2 + 2t)) for t = a - 1; log 2a beyond 2^60. [2.0, 2.0]"""
    t = a - 1.0
    y = _log1p(t + t.fma(t, t + t).sqrt())
    in_range = (a.bits() - _of(a).one).below(a.like(2.0**60).bits() - _of(a).one)
    return unless(~in_range, y, lambda: where(in_range, y, where(a < 1.0, NAN, log(a) + math.log(2))))


def atanh(a: Vec) -> Vec:
    """log1p(2z / (1 - z)) / 2 for z = |a|. [2.4, 1.9]"""
    z = a.abs()
    return (log1p((z + z) / (1.0 - z)) * 0.5).copysign(a)


# ── powers: |a|^b = 2^(b log2 |a|), the logarithm as a double-double (hi, lo) ────────
#
# T. J. Dekker, "A floating-point technique for extending the available precision", Numerische Mathematik 18 (1971);
# half as many digits again are enough.


def pow(a: Vec, b: Vec) -> Vec:
    """C's pow: |a|^b, and where a has a sign, what that does to it. [0.9, 0.8]"""
    y = powabs(a, b)
    return unless(a.bits() < 0, y, lambda: _signed_power(a, b, y))


def fast_pow(a: Vec, b: Vec) -> Vec:
    return where(a < 0.0, NAN, powabs(a, b))


def powabs(a: Vec, b: Vec) -> Vec:
    return exp2_product(log2abs_hi_lo(a), b)


def _signed_power(a: Vec, b: Vec, y: Vec) -> Vec:
    """y = |a|^b with a minus for odd b, and nan for a finite a < 0 where b is not whole."""
    half = b * 0.5
    whole, even = b == b.floor(), half == half.floor()
    negative = where(whole, where(even, y, -y), where(a > -INF, NAN, y))
    return where(a < 0.0, negative, where((a == 0.0) & whole & ~even, y.copysign(a), y))


def log2abs_hi_lo(a: Vec) -> HiLo:
    """log2 |a| with a relative error below 2^-28.8 (double: 2^-60.6); the low part is up to 1/60 (1/700) of it.

    Where the high part is inf, the low part is nan.
    """
    z = a.abs()
    k, m = z.around_one()
    cell = m.bits() >> _of(a).cell_shift
    c = cell.lookup(_of(a).cells)
    log2_m, rest = _double_log2_near_1(m, c) if a.double else _float_log2_near_1(m, c)
    hi, lo = (cell.lookup(table) for table in _of(a).log2_hi_lo)
    hi = k + hi  # exact
    total = hi + log2_m
    return total, (log2_m - (total - hi)) + (rest + lo)


def _float_log2_near_1(m: Vec, c: Vec) -> HiLo:
    """log2(1 + r) = r / ln 2 + r^2 P(r) for r = m c - 1, which is exact: the first term in two parts."""
    r = m.fma(c, -1.0)
    k_hi, k_lo = _of(r).log2_e
    h = r * k_hi
    rest = r.fma(k_lo, r.fma(k_hi, -h))
    return h, (r * r).fma(_polynomial(r, _of(r).log2_tail), rest)


def _double_log2_near_1(m: Vec, c: Vec) -> HiLo:
    """(r - r^2 / 2 + r^3 P(r)) / ln 2, the first two terms in two parts, r = m c - 1 too."""
    product = m * c
    r, r_lo = product - 1.0, m.fma(c, -product)
    half = r * 0.5
    square = half * r
    log = r - square
    rest = ((r - log) - square) - half.fma(r, -square)
    rest_of_product = (square - log).fma(r_lo, r_lo)  # r_lo (1 - r + r^2)
    rest = (r * r * r).fma(_polynomial(r, _of(r).log2_tail), rest + rest_of_product)
    k_hi, k_lo = _of(r).log2_e
    h = log * k_hi
    return h, rest.fma(k_hi, log.fma(k_lo, log.fma(k_hi, -h)))


def exp2_product(a: HiLo, b: Vec) -> Vec:
    """2^(b a) for a double-double a; 1 where a is 0 (the base is 1) or b is, even for nan and inf."""
    hi, lo = a
    t = b * hi
    rest = b.fma(lo, b.fma(hi, -t))
    n = (t + rest).rint()
    f = (t - n) + rest
    near = t.abs() < 4096.0

    def far() -> Vec:
        """Beyond, it is 0, inf or nan, for which t will do."""
        y = _polynomial(where(near, f, 0.0), _of(b).exp2).scale(where(near, n, t))
        return where((b == 0.0) | (hi == 0.0), 1.0, y)

    return unless(~near, _polynomial(f, _of(b).exp2).scale(n), far)


def cbrt(a: Vec) -> Vec:
    """z q, where q is 1 / cbrt(z)^2, for z = |a|, and a last step of Newton's method. [0.9, 0.7]"""
    z = a.abs()
    in_range = (z.bits() - _of(a).smallest).below(_of(a).largest - _of(a).smallest)
    y = _cbrt(z)

    def out_of_range() -> Vec:
        """Subnormal and largest numbers times 2^66 and 2^-66; 0, inf and nan are their own roots."""
        tiny = z < 1.0
        scaled = _cbrt(z * where(tiny, z.like(2.0**66), 2.0**-66)) * where(tiny, z.like(2.0**-22), 2.0**22)
        return where((z == 0.0) | ~(z < INF), z, where(in_range, y, scaled))

    return unless(~in_range, y, out_of_range).copysign(a)


def _cbrt(z: Vec) -> Vec:
    """1 / cbrt z: the bits over -3 are a first guess (10 %), (1 - e)^(-1/3) makes it better.

    The guess is W. Kahan's, "Computing a real cube root" (1991).
    """
    y = z.bits().to_real().fma(-1 / 3, _of(z).cbrt_start).to_whole().real()
    for coefficients in _of(z).cbrt:
        e = (z * y).fma(-(y * y), 1.0)
        y = y * _polynomial(e, coefficients)
    q = y * y
    x = z * q
    return ((x * x).fma(x, -z) * (-1 / 3)).fma(q, x)


# ── trigonometry: a = n pi + r with |r| <= pi / 2 ────────────────────────────────────


def sin(a: Vec) -> Vec:
    """sin r for |a|, a minus for odd n and for a < 0. [1.6, 1.5]"""
    z = a.abs()
    n, n_bits = _nearest(z, 1 / math.pi)
    y = _with_sign_of(a, _flipped(_sine(_minus(z, n, _of(a).pi)), n_bits))
    return _from_afar(a, y, "@sin")


def cos(a: Vec) -> Vec:
    """sin r, a minus for odd n, where r = (n + 1/2) pi - a: exact where cos a is small. [1.7, 1.5]"""
    shifted = a.fma(1 / math.pi, -0.5) + _of(a).magic
    n = (shifted - _of(a).magic) + 0.5
    y = _flipped(_sine(_minus(-a, -n, _of(a).pi)), shifted.bits())
    return _from_afar(a, y, "@cos")


def tan(a: Vec) -> Vec:
    """tan r or, for odd n, -1 / tan r, where r = a - n pi / 2: a quotient of polynomials in r^2. [2.9, 2.5]"""
    z = a.abs()
    n, n_bits = _nearest(z, 2 / math.pi)
    r = _minus(z, n, _of(a).half_pi)
    t = r * r
    top, bottom = _odd(r, t, _of(a).tan_top), _polynomial(t, _of(a).tan_bottom)
    odd = (n_bits & 1) != 0
    y = _with_sign_of(a, where(odd, -bottom, top) / where(odd, top, bottom))
    return _from_afar(a, y, "@tan")


def _sine(r: Vec) -> Vec:
    """sin r for |r| <= pi / 2, which rounding does not carry beyond 1."""
    return _clamp(_odd(r, r * r, _of(r).sin), (-1.0, 1.0))


def _flipped(y: Vec, n: Vec) -> Vec:
    """-y where n is odd."""
    sign_place = 63 if y.double else 31
    return (y.bits() ^ (n << sign_place)).real()


def _with_sign_of(a: Vec, y: Vec) -> Vec:
    """-y where a is negative or -0."""
    return (y.bits() ^ (a.bits() & _of(a).sign)).real()


def _from_afar(a: Vec, y: Vec, function: str) -> Vec:
    """y, and the C function of finite numbers so large that pi in three parts is not exact enough."""
    z = a.abs()
    far, finite = z > _of(a).far, z < INF
    return unless(far, y, lambda: unless(far & finite, y, lambda: where(far & finite, a.each(function), y)))


def asin(a: Vec) -> Vec:
    """s P(s^2) for s = |a| up to 1/2, pi/2 - 2 asin(s) for s = sqrt((1 - |a|) / 2) above. [2.2, 1.9]"""
    big, p = _asin_parts(a)
    return where(big, p.fma(-2.0, math.pi / 2), p).copysign(a)


def acos(a: Vec) -> Vec:
    """pi/2 - asin(a); near 1, 2 asin(s) itself, near -1, pi less that. [1.2, 1.1]"""
    big, p = _asin_parts(a)
    twice = p + p
    return where(big, where(a < 0.0, math.pi - twice, twice), math.pi / 2 - p.copysign(a))


def _asin_parts(a: Vec) -> tuple[Vec, Vec]:
    z = a.abs()
    big = z > 0.5
    w = where(big, z.fma(-0.5, 0.5), z * z)
    return big, _odd(where(big, w.sqrt(), z), w, _of(a).asin)


def atan(a: Vec) -> Vec:
    """q P(q^2) for q = |a| up to 1, pi/2 - atan(1 / |a|) above. [1.9, 1.7]"""
    z = a.abs()
    steep = z > 1.0
    return _angle(where(steep, 1.0 / z, z), steep).copysign(a)


def atan2(a: Vec, b: Vec) -> Vec:
    """The angle of (|b|, |a|) from the smaller over the larger, its quadrant by the signs. [1.9, 1.5]"""
    z, x = a.abs(), b.abs()
    steep = z > x
    q = where(steep, x, z) / where(steep, z, x)
    q = unless(q.isnan(), q, lambda: where(z == x, where(z == 0.0, z, 1.0), q))  # 0 / 0 and inf / inf
    y = _angle(q, steep)
    return where(b.bits() < 0, math.pi - y, y).copysign(a)


def _angle(q: Vec, steep: Vec) -> Vec:
    p = _odd(q, q * q, _of(q).atan)
    return where(steep, math.pi / 2 - p, p)


def digamma(a: Vec) -> Vec:
    """The derivative of log gamma(a), in float64; by 1 - a on the left. [0.5, 8; 2e-15 beside the zeros below 0]

    (m - root) P(m - 3/2), where m is a, a + 1 or a - 1, up to 3; else J. Stirling's series, at a + 8 where a < 8: the
    sum of the eight 1 / (a + k) is one quotient.
    """
    if not a.double:
        return digamma(a.widen()).narrow()
    left = a < 0.0
    x = where(left, 1.0 - a, a)
    top, bottom = x.like(1.0), x
    for k in range(1, 8):
        top, bottom = top.fma(x + float(k), bottom), bottom * (x + float(k))
    far = x >= 8.0
    z = where(far, x, x + 8.0)
    w = 1.0 / (z * z)
    y = log(z) - 0.5 / z - w * _horner(w, DIGAMMA_FAR) - where(far, 0.0, top / bottom)
    low, high = x < 1.0, x > 2.0
    m = where(low, x + 1.0, where(high, x - 1.0, x))
    near = ((m - DIGAMMA_ROOT[0]) - DIGAMMA_ROOT[1]) * _polynomial(m - 1.5, DIGAMMA_NEAR)
    y = where(x < 3.0, near + where(low | high, 1.0 / where(low, -x, m), 0.0), y)
    r = a - a.rint()
    return where(left, where(r == 0.0, NAN, y - math.pi / tan(r * math.pi)), y)


def huber(a: Vec, b: Vec) -> Vec:
    """m (|a| - m / 2) with m = |a|, b at the most."""
    z = a.abs()
    m = z.at_most(b)
    return m * (z - 0.5 * m)


def pinball(a: Vec, b: Vec) -> Vec:
    """The larger of b a and (b - 1) a."""
    return (b * a).at_least((b - 1.0) * a)


def logcosh(a: Vec, more: Vec | float = 0.0, fast: bool = False) -> Vec:
    """more + log(cosh(a)): of float32 c1 |a| + c2 a^2 + c4 a^4 + ..., by a table, to 1e-6 (``fast`` 1e-5).

    Without AVX-512 to 2e-5.
    """
    z = a.abs()
    if a.double:
        return z + (log1p(exp(z * -2.0)) - math.log(2)) + more
    powers, n_cells, end = LOGCOSH_TABLES[a.code.target.avx512][fast]
    near = z.at_most(end)
    x, cell = near * near, near.fma((n_cells - 1.4999) / end, _of(a).magic).bits()
    c = [cell.lookup(numbers) for numbers in logcosh_cells(powers, n_cells, end)]
    more = z.fma(c.pop(0), more) if powers[0] == 1 else z - near + more
    y = c.pop()
    while c:
        y = y.fma(x, c.pop())
    return x.fma(y, more)


# ── the C library's functions, a lane at a time ──────────────────────────────────────


def c_function(call: str) -> Callable[..., Vec]:
    """The formula of an operator that has none here: the C function that its CUDA C, as "erf(a)", calls."""
    name, _, operands = call.partition("(")
    if operands not in ("a)", "a, b)"):
        raise ValueError(f"{call} is no call of a C function: write a formula for it")
    C_FUNCTIONS.add(name)
    return lambda a, *others: a.each(f"@{name}", *others)
