"""Polynomial coefficients of the formulas in ``simd_formulas``, for float and double.

Each polynomial and rational was fitted for exprkit to the smallest largest error
(Lawson's method in 50 digits, coefficients rounded one after the other); the comment
says what was fitted where and the error left, in powers of two relative to the function.
Constants and tables are computed here from their definitions.

    >>> from exprkit.operators.polynomials import NUMBERS
    >>> sum(NUMBERS["float"].pi)
    3.141592653589793
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cache
from typing import Any

import numpy as np

from exprkit.operators.simd_values import BIAS, MANTISSA

_FORMAT = {"float": ("<f", "<i"), "double": ("<d", "<q")}
_PI = Decimal("3.1415926535897932384626433832795028841971693993751058209749445923078164062862")
E, TWO, TEN = math.e, 2.0, 10.0  # bases of logarithms


def bits(x: float, real: str) -> int:
    """The bits of a number in that precision."""
    as_real, as_whole = _FORMAT[real]
    return int(struct.unpack(as_whole, struct.pack(as_real, x))[0])


def from_bits(whole: int, real: str) -> float:
    as_real, as_whole = _FORMAT[real]
    return float(struct.unpack(as_real, struct.pack(as_whole, whole))[0])


@dataclass(frozen=True)
class Numbers:
    """The constants and coefficients of the formulas in one precision; FLOAT and DOUBLE describe the polynomials."""

    mantissa: int  # stored bits
    magic: float  # adding it rounds to a whole number, in the low bits
    one: int  # bits of 1
    smallest: int  # bits of the smallest normal number
    largest: int  # bits of half the largest power of two
    sign: int  # the sign bit
    far: float  # sin, cos and tan reduce their argument up to here, as far as three parts of pi are exact enough
    ln2: tuple[float, ...]  # ln 2 as a sum of numbers
    pi: tuple[float, ...]
    half_pi: tuple[float, ...]
    log2_e: tuple[float, ...]
    exp_range: tuple[float, float]  # beyond, e^a is 0 or inf
    exp2_range: tuple[float, float]
    expm1_range: tuple[float, float]  # beyond, e^a - 1 is -1 or inf
    cell_shift: int  # m's bits, shifted by this, are its cell
    cells: tuple[float, ...]  # c near 1 / m
    logs: dict[float, tuple[float, ...]]  # by base: -log c
    log_of_2: dict[float, float]
    log2_hi_lo: tuple[tuple[float, ...], ...]  # -log2 c as double-doubles: the high parts, the low parts
    cbrt_start: float  # bits of 1 times 4/3, less what evens out the error of the first guess
    exp: tuple[float, ...]
    exp2: tuple[float, ...]
    expm1: tuple[float, ...]
    cosh: tuple[float, ...]
    sinh: tuple[float, ...]
    log: dict[float, tuple[float, ...]]
    log2_tail: tuple[float, ...]
    cbrt: tuple[tuple[float, ...], ...]  # one polynomial for each step
    sin: tuple[float, ...]
    tan_top: tuple[float, ...]
    tan_bottom: tuple[float, ...]
    asin: tuple[float, ...]
    atan: tuple[float, ...]
    asinh: tuple[float, ...]


# tables of coefficients
# fmt: off
FLOAT: dict[str, Any] = dict(
    # e^r, |r| <= ln(2)/2: -28.2
    exp=(1, 1, 0.49999994, 0.166665211, 0.0416682772, 0.00836868584, 0.00138198212),
    # 2^r, |r| <= 1/2: -28.3
    exp2=(1, 0.693147182, 0.240226477, 0.0555035956, 0.00961849932, 0.00133909693, 0.000153293193),
    # (e^r - 1) / r, |r| <= ln(2)/2: -26.1
    expm1=(1, 0.49999997, 0.166665465, 0.041667439, 0.00836626813, 0.00138703454),
    # cosh r and sinh(r) / r in r^2, |r| <= ln(2)/2: -33.3, -26.2
    cosh=(1, 0.5, 0.0416664593, 0.00139354356),
    sinh=(1, 0.166665435, 0.00836655218),
    # log(1 + r) / r to base e, 2 and 10, |r| <= 1/32: -24.9, -25.1, -24.4
    log={
        E: (1, -0.49999997, 0.333495229, -0.250177294),
        TWO: (1.44269502, -0.721347451, 0.4811593, -0.36096257),
        TEN: (0.434294462, -0.217147231, 0.144862458, -0.108646773),
    },
    # (log2(1 + r) - r / ln 2) / r^2, |r| <= 1/32: -31.0 of log2(1 + r)
    log2_tail=(-0.721347451, 0.480898231, -0.360964447, 0.288855672),
    # (1 - e)^(-1/3), |e| <= 0.1024: -14.4; what is left is squared by the last step
    cbrt=((0.999995589, 0.334692478, 0.224289328),),
    # sin(r) / r in r^2, |r| <= pi/2: -27.3
    sin=(1, -0.166666597, 0.00833306927, -0.000198097783, 2.60610318e-06),
    # tan(r) / r = top / bottom in r^2, |r| <= pi/4: -25.8
    tan_top=(1, -0.0957801268),
    tan_bottom=(1, -0.429113954, 0.00970907416),
    # asin(s) / s in s^2, s <= 1/2: -27.6
    asin=(1, 0.166667521, 0.0749531016, 0.0454690047, 0.0241856128, 0.0421568006),
    # atan(q) / q in q^2, q <= 1: -25.8
    atan=(1, -0.333331525, 0.199937627, -0.142109528, 0.106655568, -0.075511992, 0.0431993864, -0.016360037,
          0.00291867787),
    # asinh(a) / a in a^2, a <= 1/2: -29.6
    asinh=(1, -0.166666433, 0.0749864206, -0.0443833172, 0.0281634964, -0.0132284015),
)

DOUBLE: dict[str, Any] = dict(
    # as above: -56.5
    exp=(1, 1, 0.5000000000000011, 0.1666666666666641, 0.04166666666652918, 0.008333333333495337,
         0.0013888888943928682, 0.00019841269505194538, 2.4801492756466434e-05, 2.7557587120017035e-06,
         2.763038057801148e-07, 2.4999992179135504e-08),
    # -56.9
    exp2=(1, 0.6931471805599453, 0.24022650695910108, 0.055504108664821715, 0.009618129107601188,
          0.0013333558146547445, 0.0001540353044949151, 1.525273363342109e-05, 1.3215438634753773e-06,
          1.0178160078678753e-07, 7.073264181163028e-09, 4.4388819028568937e-10),
    # -55.4
    expm1=(1, 0.5000000000000006, 0.16666666666666632, 0.04166666666657512, 0.008333333333366697,
           0.0013888888931847517, 0.00019841269760809244, 2.480150503882579e-05, 2.755737483601221e-06,
           2.762611639233727e-07, 2.5063093952341805e-08),
    # -67.4, -61.7
    cosh=(1, 0.5, 0.041666666666666685, 0.0013888888888873507, 2.4801587348723875e-05, 2.755725224395103e-07,
          2.0921635767221357e-09),
    sinh=(1, 0.16666666666666677, 0.008333333333321428, 0.00019841269886631383, 2.7557243703786972e-06,
          2.5109213461331272e-08),
    # |r| <= 1/16: -57.1, -56.0, -55.1
    log={
        E: (1, -0.5, 0.33333333333333426, -0.24999999999789008, 0.199999999995465, -0.1666666710505548,
            0.14285714902626737, -0.12499698136179267, 0.11110765410826016, -0.10084703700958374,
            0.0917631720413391),
        TWO: (1.4426950408889634, -0.7213475204444817, 0.4808983469630918, -0.36067376021911135,
              0.2885390080260085, -0.24044917992008735, 0.2060993845285663, -0.18033248106536923,
              0.16027312768445645, -0.145496832909397, 0.13435788737187335),
        TEN: (0.4342944819032518, -0.2171472409516259, 0.1447648273011401, -0.10857362047487686,
              0.08685889629934745, -0.07238241558416732, 0.06204211766521483, -0.054285487384322886,
              0.048241685984470734, -0.04379876527371949, 0.04094216081426103),
    },
    # here (log(1 + r) - r + r^2 / 2) / r^3, |r| <= 1/16: -62.5 of log(1 + r)
    log2_tail=(0.33333333333333504, -0.25000000000000505, 0.1999999999937558, -0.16666666665391572,
               0.14285715025194642, -0.1250000115405805, 0.11110729932828241, -0.09999516984379227,
               0.09179906352002118, -0.0842857316869481),
    # as above, |e| <= 0.1029: -14.3; then what Taylor's series begins with
    cbrt=((0.999995589, 0.334692478, 0.224289328), (1, 1 / 3, 2 / 9)),
    # -57.1
    sin=(1, -0.16666666666666666, 0.008333333333333207, -0.0001984126984121287, 2.7557319211652733e-06,
         -2.5052106913132628e-08, 1.6058941482622904e-10, -7.643032765950653e-13, 2.7215684130800092e-15),
    # -55.4
    tan_top=(1, -0.1282824735018042, 0.0028058071560975836, -7.482558400100486e-06),
    tan_bottom=(1, -0.46161580683513553, 0.023344409434417162, -0.00020843209286189996),
    # -55.9
    asin=(1, 0.16666666666665408, 0.07500000000337173, 0.044642856828196756, 0.03038195914193939,
          0.022371757944897864, 0.01735970615643008, 0.013885223430709637, 0.012169281040797418, 0.00652770992018736,
          0.01952891207162165, -0.01622516391301322, 0.03191283441291465),
    # -54.7
    atan=(1, -0.3333333333333186, 0.19999999999755153, -0.14285714271339237, 0.1111111067882691,
          -0.09090901236223925, 0.07692212936223172, -0.06665860388518552, 0.05877307840806171, -0.0523923307548163,
          0.04673949346279139, -0.040926367093306555, 0.03406777083515792, -0.025826727372345145,
          0.016977951360428945, -0.009184485821733816, 0.003855930152557709, -0.0011640534949772287,
          0.00022301791227397, -2.025805056092352e-05),
    # -60.0
    asinh=(1, -0.1666666666666661, 0.07499999999984416, -0.044642857127829984, 0.030381943716316497,
           -0.022372138356277146, 0.017352386925568935, -0.013960231976512793, 0.011512982311917682,
           -0.00953413498256646, 0.007465578613957143, -0.004747477640157747, 0.0017180587260790738),
)


def _parts(x: Decimal, real: str, *sizes: int) -> tuple[float, ...]:
    """x as a sum: parts of so many bits, and the rest rounded to a number of that precision."""
    parts = []
    for size in sizes:
        step = Decimal(2) ** (math.frexp(float(x))[1] - size)
        parts.append(float((x / step).to_integral_value() * step))
        x -= Decimal(parts[-1])
    return (*parts, from_bits(bits(float(x), real), real))


def _cell(i: int, real: str, size: int) -> float:
    """The number c near 1 / m for the 3/4 <= m < 3/2 whose leading bits are i; 1 where log m is small.

    c is a multiple of 1/64 such that in float m c - 1 is exact.
    """
    shift, count = MANTISSA[real] - size, 1 << size
    first = bits(0.75, real) >> shift
    leading = first + (i - first) % count
    low, high = (from_bits(edge << shift, real) for edge in (leading, leading + 1))
    return 1.0 if low >= 1 - 1 / count and high <= 1 + 1 / count else round(128 / (low + high)) / 64


def _numbers(real: str, cell_bits: int, short: int, ranges: dict[str, Any], fits: dict[str, Any]) -> Numbers:
    """All of them; ``short`` is the size of log2 c's high part, so that a whole number can be added exactly."""
    mantissa = MANTISSA[real]
    with localcontext(prec=60):
        ln2 = Decimal(2).ln()
        cells = tuple(_cell(i, real, cell_bits) for i in range(1 << cell_bits))
        logs = [-Decimal(c).ln() for c in cells]
        bases = {E: Decimal(1), TWO: ln2, TEN: Decimal(10).ln()}
        pi = _parts(_PI, real, mantissa + 1, mantissa + 1)
        return Numbers(
            mantissa=mantissa,
            magic=1.5 * 2.0**mantissa,
            one=bits(1.0, real),
            smallest=bits(2.0 ** (1 - BIAS[real]), real),
            largest=bits(2.0 ** BIAS[real], real),
            sign=-(1 << {"float": 31, "double": 63}[real]),
            ln2=_parts(ln2, real, mantissa + 1),
            pi=pi,
            half_pi=tuple(part / 2 for part in pi),
            log2_e=_parts(1 / ln2, real, mantissa + 1),
            cell_shift=mantissa - cell_bits,
            cells=cells,
            logs={base: tuple(_parts(log / unit, real)[0] for log in logs) for base, unit in bases.items()},
            log_of_2={base: _parts(ln2 / unit, real)[0] for base, unit in bases.items()},
            log2_hi_lo=tuple(zip(*((_parts(log / ln2, real, short) if log else (0.0, 0.0)) for log in logs),
                                 strict=True)),
            **ranges, **fits,
        )


NUMBERS = {
    "float": _numbers("float", 5, 12, dict(
        far=1e5, exp_range=(-104.0, 89.0), exp2_range=(-151.0, 129.0), expm1_range=(-20.0, 89.0),
        cbrt_start=float(0x54A1F000)), FLOAT),
    "double": _numbers("double", 4, 39, dict(
        far=1e9, exp_range=(-746.0, 710.0), exp2_range=(-1076.0, 1025.0), expm1_range=(-45.0, 710.0),
        cbrt_start=6142605136871354368.0), DOUBLE),
}

# of digamma, in float64: where it is 0 as a sum of numbers, digamma(a) / (a - root) in powers of a - 3/2 for
# 1 <= a <= 2 [-58], and Bernoulli's numbers B(2k) / 2k
DIGAMMA_ROOT = 1.4616321449683622, 9.549995429965697e-17
DIGAMMA_NEAR = (
    0.9510558760318328, -0.4236274212814606, 0.24054248424078697, -0.14840492305388092, 0.09498872445289039,
    -0.06192213327548831, 0.040760833940846085, -0.026975796659787055, 0.017907248317313294, -0.011908220105959716,
    0.007927021796868154, -0.005279937255532708, 0.003518106563802472, -0.0023454947397380833, 0.0015633696313653504,
    -0.0010364584817312839, 0.0006909255761282986, -0.00048595039220036254, 0.00032395945401345196,
    -0.00014480643368061614, 9.653646261410062e-05, -0.0001782188548855923, 0.00011881232908510335,
)
DIGAMMA_FAR = 1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160

# fmt: on
# log(cosh(z)) in float32, by whether there is AVX-512, usual and fast: powers of z, cells that registers hold, where
# z - log(2) begins
LOGCOSH_TABLES = {
    True: (((1, 2, 4, 6), 32, 6.5), ((2, 4, 6), 32, 5.1)),
    False: (((1, 2, 4, 6, 8), 8, 5.5), ((1, 2, 4, 6, 8), 8, 5.5)),
}


@cache
def logcosh_cells(powers: Sequence[int], n_cells: int, end: float) -> tuple[tuple[float, ...], ...]:
    """Coefficients of z ** powers (2, 4, ..., or 1 before them) in log(cosh(z)), z near n / (n_cells - 1.5) of the end.

    Least squares of relative errors at Chebyshev's points. In the last cell even powers are those of the end itself;
    without a first power, what is beyond the end is to be added.
    """
    nodes = (1 - np.cos(np.pi * (np.arange(60) + 0.5) / 60)) / 2
    rows = []
    for n in range(n_cells - 1):
        z = (max(n - 0.5, 0) + nodes * (1 if n else 0.5)) * end / (n_cells - 1.5)
        x, left = z * z, int(n == 0 and powers[0] == 1)  # around 0 there is no first power
        log_cosh = z + np.log1p(np.exp(-2 * z)) - np.log(2) if n else x / 2 - x**2 / 12 + x**3 / 45 - 17 * x**4 / 2520
        terms = z[:, None] ** powers[left:] / log_cosh[:, None]
        rows.append([0.0] * left + np.linalg.lstsq(terms, np.ones(len(z)), rcond=None)[0].tolist())
    first, rest = ([1.0], -math.log(2)) if powers[0] == 1 else ([], end - math.log(2))
    rows.append([*first, rest / end**2, *[0.0] * (len(powers) - len(first) - 1)])
    return tuple(zip(*rows, strict=True))
