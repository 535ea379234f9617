"""The operators of exprkit: one row each, and nothing about an operator anywhere else.

Parser, printers, SymPy bridge, every backend, the README's table and the tests read
``OPERATORS``.  Adding an operator is adding a row, and its formula on vectors in
``simd_formulas``.

    >>> from exprkit.operators import ops
    >>> ops.BY_NAME["sqrt"].meaning
    'square root; sqrt(-0) = -0, nan for a < 0'

Operands are always ``a`` and ``b``, the result is ``y``.  A row's cells:

===========  ==========================================================================
code         number in every program, file and kernel; never renumbered, never reused
name         how it is written in text, ``name(a)`` or ``name(a, b)``
meaning      one line, in IEEE 754 terms: what happens at 0, inf, nan, negative bases
numpy        the definition, on NumPy float64 arrays
vector       the formula on SIMD vectors (``simd_formulas``), float32 and float64
fast_vector  the formula under ``precision="fast"``, where it differs
cuda         the formula in CUDA C over ``a``, ``b`` (of a pair: ``a_low``, ``y_low``) and the type
             ``T``, for float and double; its functions are CUDA's or stand in ``arithmetic.cu``
             (of a derivative in ``tangents.cu``)
cuda_fast    the same under ``precision="fast"``, where it differs
cuda_fast_ulp  largest float32 error of ``cuda_fast`` over ``domain``, of max(|y|, 1)'s last place
ptx          the formula as PTX where that is an instruction, the one that the compiler makes of ``cuda``:
             ``{t}`` is f32 or f64, ``{f}`` .ftz where subnormals are flushed, ``{full}``,
             ``{quick}`` and ``{root}`` are .rn or, of an approximate quotient, .full and
             .approx, of an approximate root .approx; one that says ``.f32`` holds for float32
ptx_fast     the same for ``cuda_fast``
long_code    the formula (``cuda``) is long: a kernel holds it once and loops over it
cuda_usual   a shorter formula for usual operands, which makes ``holds`` false for others
derivative   dy/da (and dy/db) in exprkit's own text, over ``a``, ``b`` and ``y``; empty where
             the table has no operator to write it with
latex        template over ``{a}`` and ``{b}``, both already delimited where needed
sympy        ``f(sympy, a, b)``, the SymPy object
sympy_class  names of the SymPy classes that are read as this operator
infix        symbol, ``precedence`` (larger binds tighter) and ``right`` associativity
aliases      further names (or infix symbols) that the parser reads
chain        ``name(a, b, c)`` is read as ``name(name(a, b), c)``
method       Python's special method that applies it to an Expression
domain       (low, high) of each operand: where tests and samples draw ordinary inputs
ulp          largest error against the definition, in units of the last place, for
             (float32, float64) with ``precision="ieee"``
fast         the definition under ``precision="fast"``, where it differs
fast_ulp     largest error with ``precision="fast"``, where it differs
fused        {inner: other}: ``op(inner(a), ...)`` is lowered to ``other(a, ...)``
constant_b   {number: other}: ``op(a, number)`` is lowered to ``other(a)``
positive_a   other: what op(a, b) may be lowered to where a is known to be >= 0
staged       (first, rest): ``op(a, b) == rest(first(a), b)``, so that ``first`` can be
             done once where ``a`` does not depend on the data point or is one column
of_first     (first, number): ``op(a)`` is the number times both parts of the pair ``first(a)``: a
             derivative takes it from there instead of making it anew
strong       other: what this is in a derivative that is computed, where 0 times anything is 0
whole_b      other: what op(a, number) is lowered to under ``precision="fast"`` where the
             number is whole
width        how many numbers the result is: 2 for a pair (high part, low part)
commutative  ``op(a, b) == op(b, a)``: generators write only one of the two
===========  ==========================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from exprkit.operators import simd_formulas

Interval = tuple[float, float]

ANY: Interval = (-10.0, 10.0)
POSITIVE: Interval = (1e-3, 10.0)
UNIT: Interval = (-1.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One row of the table; the module's docstring says what each cell holds."""

    code: int
    name: str
    arity: int
    meaning: str
    numpy: Callable[..., Any]
    vector: Callable[..., Any]
    cuda: str
    derivative: tuple[str, ...] = ()
    latex: str = ""
    sympy: Callable[..., Any] | None = None
    sympy_class: tuple[str, ...] = ()
    infix: str | None = None
    precedence: int = 9
    right: bool = False
    aliases: tuple[str, ...] = ()
    chain: bool = False
    method: str = ""
    domain: tuple[Interval, ...] = (ANY, ANY)
    ulp: tuple[float, float] = (1.0, 1.0)
    fast: Callable[..., Any] | None = None
    fast_vector: Callable[..., Any] | None = None
    fast_ulp: tuple[float, float] | None = None
    cuda_fast: str = ""
    cuda_fast_ulp: float | None = None
    ptx: str = ""
    ptx_fast: str = ""
    long_code: bool = False
    cuda_usual: str = ""
    fused: Mapping[str, str] = field(default_factory=dict)
    constant_b: Mapping[float, str] = field(default_factory=dict)
    positive_a: str | None = None
    staged: tuple[str, str] | None = None
    of_first: tuple[str, float] | None = None
    strong: str | None = None
    whole_b: str | None = None
    width: int = 1
    commutative: bool = False


OPERATORS: list[Operator] = []
INTERNAL: list[Operator] = []  # made by lowering, never written by a user


def _row(code: int, name: str, arity: int, meaning: str, **cells: Any) -> None:
    cells.setdefault("latex", _function_latex(name, arity))
    OPERATORS.append(Operator(code=code, name=name, arity=arity, meaning=meaning, **cells))


def _internal(code: int, name: str, arity: int, meaning: str, **cells: Any) -> None:
    INTERNAL.append(Operator(code=code, name=name, arity=arity, meaning=meaning, **cells))


def _function_latex(name: str, arity: int) -> str:
    arguments = "{a}" if arity == 1 else "{a}, {b}"
    return rf"\operatorname{{{{{name}}}}}\left({arguments}\right)"


# ── definitions that NumPy does not have ─────────────────────────────────────────────


def _elementwise(function: Callable[[float], float], at_pole: float) -> Callable[..., Any]:
    """A scalar function of the ``math`` module on arrays; its exceptions become values."""

    def one(a: float) -> float:
        if math.isnan(a):
            return math.nan
        try:
            return function(a)
        except ValueError:
            return at_pole
        except OverflowError:
            return math.inf

    ufunc = np.frompyfunc(one, 1, 1)

    def every(a: Any) -> Any:
        with np.errstate(all="ignore"):  # of the floating-point flags that the function leaves behind
            return np.asarray(ufunc(a), dtype=np.float64)

    return every


def _gamma(a: float) -> float:
    if abs(a) < 2.0**-1024:  # 1 / a, which overflows
        return math.copysign(math.inf, a)
    return math.gamma(a)


def _lgamma(a: float) -> float:
    """log |gamma(a)| by mpmath: math.lgamma loses digits where the result is near 0."""
    import mpmath

    if math.isinf(a):
        return math.inf
    if a <= 0 and a == math.floor(a):
        raise ValueError("a pole")
    with mpmath.workprec(120):
        return float(mpmath.loggamma(a) if a > 0 else mpmath.log(abs(mpmath.gamma(a))))


def _powabs(a: Any, b: Any) -> Any:
    return np.power(np.abs(a), b)


def _fast_pow(a: Any, b: Any) -> Any:
    return np.where(np.less(a, 0), np.nan, np.power(np.abs(a), b))


# ── the table ────────────────────────────────────────────────────────────────────────

_row(
    1, "add", 2, "a + b",
    commutative=True, infix="+", precedence=1, chain=True, method="__add__", latex="{a} + {b}",
    numpy=np.add, vector=simd_formulas.add, derivative=("1", "1"), ulp=(0.5, 0.5),
    cuda="a + b", ptx="add.rn{f}.{t} {y}, {a}, {b};",
    sympy=lambda s, a, b: s.Add(a, b), sympy_class=("Add",),
)
_row(
    2, "sub", 2, "a - b",
    infix="-", precedence=1, method="__sub__", latex="{a} - {b}",
    numpy=np.subtract, vector=simd_formulas.sub, derivative=("1", "-1"), ulp=(0.5, 0.5),
    cuda="a - b", ptx="sub.rn{f}.{t} {y}, {a}, {b};",
    sympy=lambda s, a, b: s.Add(a, s.Mul(-1, b)),
)
_row(
    3, "mul", 2, "a * b; 0 * inf = nan",
    commutative=True, infix="*", precedence=2, chain=True, method="__mul__", latex=r"{a} \cdot {b}",
    numpy=np.multiply, vector=simd_formulas.mul, derivative=("b", "a"), ulp=(0.5, 0.5), strong="strong_product",
    cuda="a * b", ptx="mul.rn{f}.{t} {y}, {a}, {b};",
    sympy=lambda s, a, b: s.Mul(a, b), sympy_class=("Mul",),
)
_row(
    4, "div", 2, "a / b; a / 0 = +-inf by the signs, 0 / 0 = nan",
    infix="/", precedence=2, method="__truediv__", latex=r"\frac{{{a}}}{{{b}}}",
    numpy=np.divide, vector=simd_formulas.div, derivative=("1 / b", "-y / b"), ulp=(0.5, 0.5), strong="strong_quotient",
    cuda="a / b", cuda_usual="usual_quotient(a, b, holds)", cuda_fast="quotient(a, b)", long_code=True, cuda_fast_ulp=4, ptx="div{full}{f}.{t} {y}, {a}, {b};", ptx_fast="div{quick}{f}.{t} {y}, {a}, {b};",
    sympy=lambda s, a, b: s.Mul(a, s.Pow(b, -1)),
)
_row(
    5, "pow", 2, "a to the power b, as C's pow: a < 0 gives nan unless b is whole; 1^b = a^0 = 1 even for nan",
    infix="^", precedence=4, right=True, aliases=("**",), method="__pow__", latex="{a}^{{{b}}}",
    numpy=np.power, vector=simd_formulas.pow, derivative=("b * a ^ (b - 1)", "y * log(a)"), ulp=(5.5, 5.5),
    cuda="pow(a, b)", cuda_usual="usual_power(a, b, holds)", cuda_fast="fast_pow(a, b)", long_code=True, cuda_fast_ulp=256,
    fast=_fast_pow, fast_vector=simd_formulas.fast_pow, fast_ulp=(32, 5.5), domain=(POSITIVE, (-4.0, 4.0)),
    fused={"abs": "powabs"}, positive_a="powabs", whole_b="pow_whole",
    constant_b={1.0: "copy", 2.0: "sqr", 3.0: "cube", -1.0: "inv"},
    sympy=lambda s, a, b: s.Pow(a, b), sympy_class=("Pow",),
)
_row(
    6, "neg", 1, "-a; the sign bit changed, nan too",
    infix="-", precedence=3, method="__neg__", latex="-{a}",
    numpy=np.negative, vector=simd_formulas.neg, derivative=("-1",), ulp=(0, 0),
    cuda="-a", ptx="neg{f}.{t} {y}, {a};",
    sympy=lambda s, a: s.Mul(-1, a),
)
_row(
    7, "abs", 1, "absolute value; the derivative at 0 is taken as 0",
    method="__abs__", latex=r"\left|{a}\right|",
    numpy=np.abs, vector=simd_formulas.abs, derivative=("sign(a)",), ulp=(0, 0),
    cuda="fabs(a)", ptx="abs{f}.{t} {y}, {a};",
    sympy=lambda s, a: s.Abs(a), sympy_class=("Abs",),
)
_row(
    8, "inv", 1, "1 / a; 1 / +-0 = +-inf",
    latex=r"\frac{{1}}{{{a}}}",
    numpy=np.reciprocal, vector=simd_formulas.inv, derivative=("-y * y",), ulp=(0.5, 0.5),
    cuda="T(1) / a", cuda_usual="usual_quotient(T(1), a, holds)", cuda_fast="reciprocal(a)", long_code=True, cuda_fast_ulp=2, ptx="rcp{quick}{f}.{t} {y}, {a};", ptx_fast="rcp{quick}{f}.{t} {y}, {a};",
    sympy=lambda s, a: s.Pow(a, -1),
)
_row(
    9, "sqr", 1, "a * a",
    aliases=("square",), latex="{a}^{{2}}",
    numpy=np.square, vector=simd_formulas.sqr, derivative=("2 * a",), ulp=(0.5, 0.5),
    cuda="a * a", ptx="mul.rn{f}.{t} {y}, {a}, {a};",
    fused={"abs": "sqr", "neg": "sqr"},
    sympy=lambda s, a: a**2,
)
_row(
    10, "cube", 1, "a * a * a",
    latex="{a}^{{3}}",
    numpy=lambda a: a * a * a, vector=simd_formulas.cube, derivative=("3 * a * a",), ulp=(1.5, 0),
    cuda="a * a * a",
    sympy=lambda s, a: a**3,
)
_row(
    11, "sqrt", 1, "square root; sqrt(-0) = -0, nan for a < 0",
    latex=r"\sqrt{{{a}}}",
    numpy=np.sqrt, vector=simd_formulas.sqrt, derivative=("0.5 / y",), ulp=(0.5, 0.5), domain=(POSITIVE,),
    cuda="sqrt(a)", cuda_fast="root(a)", long_code=True, cuda_fast_ulp=4, ptx="sqrt{root}{f}.{t} {y}, {a};", ptx_fast="sqrt{root}{f}.{t} {y}, {a};",
    fused={"abs": "sqrtabs"},
    sympy=lambda s, a: s.sqrt(a), sympy_class=("Sqrt",),
)
_row(
    12, "cbrt", 1, "real cube root, odd: cbrt(-8) = -2",
    latex=r"\sqrt[3]{{{a}}}",
    numpy=np.cbrt, vector=simd_formulas.cbrt, derivative=("1 / (3 * y * y)",), ulp=(2, 2),
    cuda="cbrt(a)", long_code=True,
    sympy=lambda s, a: s.sign(a) * s.Abs(a) ** s.Rational(1, 3), sympy_class=("Cbrt",),
)
_row(
    13, "exp", 1, "e to the power a; exp(-inf) = 0",
    latex="e^{{{a}}}",
    numpy=np.exp, vector=simd_formulas.exp, derivative=("y",), ulp=(2, 2),
    cuda="exp(a)", cuda_fast="fast_exp(a)", long_code=True, cuda_fast_ulp=32,
    sympy=lambda s, a: s.exp(a), sympy_class=("exp",),
)
_row(
    14, "exp2", 1, "2 to the power a; exact for whole a",
    latex="2^{{{a}}}",
    numpy=np.exp2, vector=simd_formulas.exp2, derivative=("y * 0.6931471805599453",), ulp=(2.5, 2),
    cuda="exp2(a)", cuda_fast="fast_exp2(a)", long_code=True, cuda_fast_ulp=4, ptx_fast="ex2.approx{f}.f32 {y}, {a};",
    sympy=lambda s, a: 2**a, sympy_class=("exp2",),
)
_row(
    15, "log", 1, "natural logarithm; log(+-0) = -inf, nan for a < 0",
    aliases=("ln",), latex=r"\ln\left({a}\right)",
    numpy=np.log, vector=simd_formulas.log, derivative=("1 / a",), ulp=(2, 2.5), domain=(POSITIVE,),
    cuda="log(a)", cuda_fast="fast_log(a)", long_code=True, cuda_fast_ulp=64,
    fused={"abs": "logabs"},
    sympy=lambda s, a: s.log(a), sympy_class=("log",),
)
_row(
    16, "log2", 1, "logarithm to base 2; log2(+-0) = -inf, nan for a < 0",
    latex=r"\log_{{2}}\left({a}\right)",
    numpy=np.log2, vector=simd_formulas.log2, derivative=("1.4426950408889634 / a",), ulp=(2, 2), domain=(POSITIVE,),
    cuda="log2(a)", cuda_fast="fast_log2(a)", long_code=True, cuda_fast_ulp=64, ptx_fast="lg2.approx{f}.f32 {y}, {a};",
    sympy=lambda s, a: s.log(a, 2), sympy_class=("log2",),
)
_row(
    17, "log10", 1, "logarithm to base 10; log10(+-0) = -inf, nan for a < 0",
    latex=r"\log_{{10}}\left({a}\right)",
    numpy=np.log10, vector=simd_formulas.log10, derivative=("0.4342944819032518 / a",), ulp=(2.5, 2), domain=(POSITIVE,),
    cuda="log10(a)", cuda_fast="fast_log10(a)", long_code=True, cuda_fast_ulp=64,
    sympy=lambda s, a: s.log(a, 10), sympy_class=("log10",),
)
_row(
    18, "log1p", 1, "log(1 + a), exact near 0; log1p(-1) = -inf, nan for a < -1",
    numpy=np.log1p, vector=simd_formulas.log1p, derivative=("1 / (1 + a)",), ulp=(2, 2.5), domain=((-0.999, 10.0),),
    cuda="log1p(a)", long_code=True,
    sympy=lambda s, a: s.log(1 + a), sympy_class=("log1p",),
)
_row(
    19, "expm1", 1, "exp(a) - 1, exact near 0; expm1(-inf) = -1",
    numpy=np.expm1, vector=simd_formulas.expm1, derivative=("y + 1",), ulp=(2, 2),
    cuda="expm1(a)", long_code=True,
    sympy=lambda s, a: s.exp(a) - 1, sympy_class=("expm1",),
)
_row(
    20, "sin", 1, "sine of radians; nan for +-inf",
    latex=r"\sin\left({a}\right)",
    numpy=np.sin, vector=simd_formulas.sin, derivative=("cos(a)",), ulp=(2, 2),
    cuda="sin(a)", cuda_fast="fast_sin(a)", long_code=True, cuda_fast_ulp=64,
    sympy=lambda s, a: s.sin(a), sympy_class=("sin",),
)
_row(
    21, "cos", 1, "cosine of radians; nan for +-inf",
    latex=r"\cos\left({a}\right)",
    numpy=np.cos, vector=simd_formulas.cos, derivative=("-sin(a)",), ulp=(2, 2),
    cuda="cos(a)", cuda_fast="fast_cos(a)", long_code=True, cuda_fast_ulp=64,
    sympy=lambda s, a: s.cos(a), sympy_class=("cos",),
)
_row(
    22, "tan", 1, "tangent of radians; nan for +-inf",
    latex=r"\tan\left({a}\right)",
    numpy=np.tan, vector=simd_formulas.tan, derivative=("1 + y * y",), ulp=(4, 4), domain=((-1.5, 1.5),),
    cuda="tan(a)", cuda_fast="fast_tan(a)", long_code=True, cuda_fast_ulp=256,
    sympy=lambda s, a: s.tan(a), sympy_class=("tan",),
)
_row(
    23, "asin", 1, "arc sine in [-pi/2, pi/2]; nan for |a| > 1",
    aliases=("arcsin",), latex=r"\arcsin\left({a}\right)",
    numpy=np.arcsin, vector=simd_formulas.asin, derivative=("1 / sqrt(1 - a * a)",), ulp=(4, 4), domain=(UNIT,),
    cuda="asin(a)", long_code=True,
    sympy=lambda s, a: s.asin(a), sympy_class=("asin",),
)
_row(
    24, "acos", 1, "arc cosine in [0, pi]; nan for |a| > 1",
    aliases=("arccos",), latex=r"\arccos\left({a}\right)",
    numpy=np.arccos, vector=simd_formulas.acos, derivative=("-1 / sqrt(1 - a * a)",), ulp=(4, 4), domain=(UNIT,),
    cuda="acos(a)", long_code=True,
    sympy=lambda s, a: s.acos(a), sympy_class=("acos",),
)
_row(
    25, "atan", 1, "arc tangent in [-pi/2, pi/2]; atan(+-inf) = +-pi/2",
    aliases=("arctan",), latex=r"\arctan\left({a}\right)",
    numpy=np.arctan, vector=simd_formulas.atan, derivative=("1 / (1 + a * a)",), ulp=(4, 4),
    cuda="atan(a)", long_code=True,
    sympy=lambda s, a: s.atan(a), sympy_class=("atan",),
)
_row(
    26, "sinh", 1, "hyperbolic sine",
    latex=r"\sinh\left({a}\right)",
    numpy=np.sinh, vector=simd_formulas.sinh, derivative=("cosh(a)",), ulp=(4, 4),
    cuda="sinh(a)", long_code=True,
    sympy=lambda s, a: s.sinh(a), sympy_class=("sinh",),
)
_row(
    27, "cosh", 1, "hyperbolic cosine",
    latex=r"\cosh\left({a}\right)",
    numpy=np.cosh, vector=simd_formulas.cosh, derivative=("sinh(a)",), ulp=(4, 4),
    cuda="cosh(a)", long_code=True,
    sympy=lambda s, a: s.cosh(a), sympy_class=("cosh",),
)
_row(
    28, "tanh", 1, "hyperbolic tangent; tanh(+-inf) = +-1",
    latex=r"\tanh\left({a}\right)",
    numpy=np.tanh, vector=simd_formulas.tanh, derivative=("1 - y * y",), ulp=(4, 4),
    cuda="tanh(a)", long_code=True,
    sympy=lambda s, a: s.tanh(a), sympy_class=("tanh",),
)
_row(
    29, "min", 2, "the smaller; a number wins over nan, either zero of +-0 may come back",
    aliases=("fmin",), chain=True, latex=r"\min\left({a}, {b}\right)",
    commutative=True, numpy=np.fmin, vector=simd_formulas.min, derivative=("lessequal(a, y)", "1 - lessequal(a, y)"), ulp=(0, 0),
    cuda="fmin(a, b)", ptx="min{f}.{t} {y}, {a}, {b};",
    sympy=lambda s, a, b: s.Min(a, b), sympy_class=("Min",),
)
_row(
    30, "max", 2, "the larger; a number wins over nan, either zero of +-0 may come back",
    aliases=("fmax",), chain=True, latex=r"\max\left({a}, {b}\right)",
    commutative=True, numpy=np.fmax, vector=simd_formulas.max, derivative=("greaterequal(a, y)", "1 - greaterequal(a, y)"), ulp=(0, 0),
    cuda="fmax(a, b)", ptx="max{f}.{t} {y}, {a}, {b};",
    sympy=lambda s, a, b: s.Max(a, b), sympy_class=("Max",),
)
_row(
    31, "sign", 1, "-1, 0 or 1; sign(+-0) = 0, sign(nan) = nan",
    numpy=np.sign, vector=simd_formulas.sign, derivative=("0",), ulp=(0, 0),
    cuda="sign_of(a)",
    sympy=lambda s, a: s.sign(a), sympy_class=("sign",),
)
_row(
    32, "floor", 1, "the largest whole number not above a; the derivative is taken as 0",
    method="__floor__", latex=r"\left\lfloor {a} \right\rfloor",
    numpy=np.floor, vector=simd_formulas.floor, derivative=("0",), ulp=(0, 0),
    cuda="floor(a)", ptx="cvt.rmi{f}.{t}.{t} {y}, {a};",
    sympy=lambda s, a: s.floor(a), sympy_class=("floor",),
)
_row(
    33, "ceil", 1, "the smallest whole number not below a; the derivative is taken as 0",
    method="__ceil__", latex=r"\left\lceil {a} \right\rceil",
    numpy=np.ceil, vector=simd_formulas.ceil, derivative=("0",), ulp=(0, 0),
    cuda="ceil(a)", ptx="cvt.rpi{f}.{t}.{t} {y}, {a};",
    sympy=lambda s, a: s.ceiling(a), sympy_class=("ceiling",),
)
_row(
    34, "round", 1, "the nearest whole number, halves to even; the derivative is taken as 0",
    method="__round__",
    numpy=np.rint, vector=simd_formulas.round, derivative=("0",), ulp=(0, 0),
    cuda="rint(a)", ptx="cvt.rni.{t}.{t} {y}, {a};",
    sympy=lambda s, a: s.Function("round")(a), sympy_class=("round",),
)
_row(
    35, "asinh", 1, "inverse hyperbolic sine",
    aliases=("arcsinh",), numpy=np.arcsinh, vector=simd_formulas.asinh, derivative=("1 / sqrt(a * a + 1)",), ulp=(4, 5),
    cuda="asinh(a)", long_code=True,
    sympy=lambda s, a: s.asinh(a), sympy_class=("asinh",),
)
_row(
    36, "acosh", 1, "inverse hyperbolic cosine; nan for a < 1",
    aliases=("arccosh",), numpy=np.arccosh, vector=simd_formulas.acosh, derivative=("1 / (sqrt(a - 1) * sqrt(a + 1))",), ulp=(4, 4),
    cuda="acosh(a)", long_code=True,
    domain=((1.0, 10.0),),
    sympy=lambda s, a: s.acosh(a), sympy_class=("acosh",),
)
_row(
    37, "atanh", 1, "inverse hyperbolic tangent; atanh(+-1) = +-inf, nan for |a| > 1",
    aliases=("arctanh",), numpy=np.arctanh, vector=simd_formulas.atanh, derivative=("1 / (1 - a * a)",), ulp=(4, 4), domain=((-0.999, 0.999),),
    cuda="atanh(a)", long_code=True,
    sympy=lambda s, a: s.atanh(a), sympy_class=("atanh",),
)
_row(
    38, "atan2", 2, "the angle of the point (b, a) in [-pi, pi], signed zeros as in C",
    numpy=np.arctan2, vector=simd_formulas.atan2, ulp=(4, 4),
    derivative=("b * inv(hypot(a, b)) * inv(hypot(a, b))", "-a * inv(hypot(a, b)) * inv(hypot(a, b))"),
    cuda="atan2(a, b)", long_code=True,
    sympy=lambda s, a, b: s.atan2(a, b), sympy_class=("atan2",),
)
_row(
    39, "hypot", 2, "sqrt(a^2 + b^2) without overflow between; inf wins over nan",
    commutative=True, numpy=np.hypot, vector=simd_formulas.hypot, derivative=("a / y", "b / y"), ulp=(4, 4),
    cuda="hypot(a, b)", long_code=True,
    sympy=lambda s, a, b: s.sqrt(a**2 + b**2), sympy_class=("hypot",),
)
_row(
    40, "mod", 2, "a - floor(a / b) * b, exact, with the sign of b; nan for b = 0",
    method="__mod__",
    numpy=np.mod, vector=simd_formulas.mod, derivative=("1", "round((y - a) / b)"), ulp=(0.5, 0.5),
    cuda="floor_mod(a, b)", long_code=True,
    sympy=lambda s, a, b: s.Mod(a, b), sympy_class=("Mod",),
)
_row(
    41, "erf", 1, "error function",
    numpy=_elementwise(math.erf, math.nan), vector=simd_formulas.erf, derivative=("1.1283791670955126 * exp(-a * a)",),
    cuda="erf(a)", long_code=True,
    ulp=(4, 4), domain=((-4.0, 4.0),),
    sympy=lambda s, a: s.erf(a), sympy_class=("erf",),
)
_row(
    42, "erfc", 1, "1 - erf(a) without cancellation",
    numpy=_elementwise(math.erfc, math.nan), vector=simd_formulas.erfc, derivative=("-1.1283791670955126 * exp(-a * a)",),
    cuda="erfc(a)", long_code=True,
    ulp=(5, 5), domain=((-4.0, 4.0),),
    sympy=lambda s, a: s.erfc(a), sympy_class=("erfc",),
)
_row(
    43, "gamma", 1, "gamma function; nan at -1, -2, ... and -inf, +-inf at +-0",
    latex=r"\Gamma\left({a}\right)",
    numpy=_elementwise(_gamma, math.nan), vector=simd_formulas.gamma, ulp=(11, 10), domain=((0.1, 20.0),),
    cuda="tgamma(a)", long_code=True,
    sympy=lambda s, a: s.gamma(a), sympy_class=("gamma",),
)
_row(
    44, "lgamma", 1, "log |gamma(a)|; inf at 0, -1, -2, ...",
    aliases=("loggamma",), latex=r"\ln\left|\Gamma\left({a}\right)\right|",
    numpy=_elementwise(_lgamma, math.inf), vector=simd_formulas.lgamma, ulp=(8, 11), domain=((2.5, 20.0),),
    cuda="lgamma(a)", long_code=True,
    sympy=lambda s, a: s.loggamma(a), sympy_class=("loggamma",),
)
_row(
    45, "relu", 1, "max(a, 0); nan stays nan",
    numpy=lambda a: np.where(np.less_equal(a, 0), 0.0, a), vector=simd_formulas.relu, derivative=("greater(a, 0)",), ulp=(0, 0),
    cuda="a <= T(0) ? T(0) : a",
    sympy=lambda s, a: s.Function("relu")(a), sympy_class=("relu",),
)
_row(
    46, "logistic", 1, "1 / (1 + exp(-a))",
    aliases=("sigmoid",), numpy=lambda a: 1 / (1 + np.exp(-a)), vector=simd_formulas.logistic, derivative=("y * (1 - y)",), ulp=(4, 4),
    cuda="sigmoid(a)", long_code=True,
    sympy=lambda s, a: 1 / (1 + s.exp(-a)), sympy_class=("logistic",),
)
_row(
    47, "logabs", 1, "log |a|; logabs(+-0) = -inf",
    latex=r"\ln\left|{a}\right|",
    numpy=lambda a: np.log(np.abs(a)), vector=simd_formulas.logabs, derivative=("1 / a",), ulp=(2, 2.5),
    of_first=("log2abs_pair", math.log(2.0)),
    cuda="log(fabs(a))", cuda_fast="fast_log(fabs(a))", long_code=True, cuda_fast_ulp=64,
    sympy=lambda s, a: s.log(s.Abs(a)), sympy_class=("logabs",),
)
_row(
    48, "sqrtabs", 1, "sqrt |a|",
    latex=r"\sqrt{{\left|{a}\right|}}",
    numpy=lambda a: np.sqrt(np.abs(a)), vector=simd_formulas.sqrtabs, derivative=("0.5 * sign(a) / y",), ulp=(0.5, 0.5),
    cuda="sqrt(fabs(a))", cuda_fast="root(fabs(a))", long_code=True, cuda_fast_ulp=4,
    sympy=lambda s, a: s.sqrt(s.Abs(a)), sympy_class=("sqrtabs",),
)
_row(
    49, "powabs", 2, "|a| to the power b, as C's pow; 1^b = a^0 = 1 even for nan",
    latex=r"\left|{a}\right|^{{{b}}}",
    numpy=_powabs, vector=simd_formulas.powabs, derivative=("b * y / a", "y * logabs(a)"), ulp=(5.5, 5.5), fast_ulp=(32, 5.5),
    cuda="pow(fabs(a), b)", cuda_usual="usual_power(fabs(a), b, holds)", cuda_fast="fast_pow(fabs(a), b)", long_code=True, cuda_fast_ulp=256,
    domain=(POSITIVE, (-4.0, 4.0)), staged=("log2abs_pair", "exp2_product"),
    constant_b={0.5: "sqrtabs", 1.0: "abs", 2.0: "sqr"},
    sympy=lambda s, a, b: s.Abs(a) ** b, sympy_class=("powabs",),
)
_row(
    50, "aq", 2, "analytic quotient a / sqrt(1 + b^2) (Ni, Drieberg and Rockett, 2013)",
    numpy=lambda a, b: a / np.hypot(1, b), vector=simd_formulas.aq,
    cuda="analytic_quotient(a, b)", long_code=True,
    derivative=("1 / sqrt(1 + b * b)", "-y * b / (1 + b * b)"), ulp=(3, 3),
    sympy=lambda s, a, b: a / s.sqrt(1 + b**2), sympy_class=("aq",),
)
_row(
    51, "greater", 2, "1 where a > b, else 0 (also for nan)",
    latex=r"\left[{a} > {b}\right]", cuda="T(a > b)",
    numpy=lambda a, b: np.greater(a, b) * 1.0, vector=simd_formulas.greater, derivative=("0", "0"), ulp=(0, 0),
    sympy=lambda s, a, b: s.Piecewise((1, a > b), (0, True)), sympy_class=("StrictGreaterThan",),
)
_row(
    52, "less", 2, "1 where a < b, else 0 (also for nan)",
    latex=r"\left[{a} < {b}\right]", cuda="T(a < b)",
    numpy=lambda a, b: np.less(a, b) * 1.0, vector=simd_formulas.less, derivative=("0", "0"), ulp=(0, 0),
    sympy=lambda s, a, b: s.Piecewise((1, a < b), (0, True)), sympy_class=("StrictLessThan",),
)
_row(
    53, "greaterequal", 2, "1 where a >= b, else 0 (also for nan)",
    latex=r"\left[{a} \ge {b}\right]", cuda="T(a >= b)",
    numpy=lambda a, b: np.greater_equal(a, b) * 1.0, vector=simd_formulas.greaterequal, derivative=("0", "0"), ulp=(0, 0),
    sympy=lambda s, a, b: s.Piecewise((1, a >= b), (0, True)), sympy_class=("GreaterThan",),
)
_row(
    54, "lessequal", 2, "1 where a <= b, else 0 (also for nan)",
    latex=r"\left[{a} \le {b}\right]", cuda="T(a <= b)",
    numpy=lambda a, b: np.less_equal(a, b) * 1.0, vector=simd_formulas.lessequal, derivative=("0", "0"), ulp=(0, 0),
    sympy=lambda s, a, b: s.Piecewise((1, a <= b), (0, True)), sympy_class=("LessThan",),
)
_row(
    55, "cond", 2, "b where a > 0, else 0 (also for a = nan)",
    numpy=lambda a, b: np.where(np.greater(a, 0), b, 0.0), vector=simd_formulas.cond, derivative=("0", "greater(a, 0)"), ulp=(0, 0),
    cuda="a > T(0) ? b : T(0)",
    sympy=lambda s, a, b: s.Piecewise((b, a > 0), (0, True)), sympy_class=("Piecewise",),
)
_row(
    56, "logical_and", 2, "1 where a > 0 and b > 0, else 0",
    commutative=True, numpy=lambda a, b: (np.greater(a, 0) & np.greater(b, 0)) * 1.0, vector=simd_formulas.logical_and,
    cuda="T(a > T(0) && b > T(0))", derivative=("0", "0"), ulp=(0, 0), chain=True, sympy_class=("And",),
    sympy=lambda s, a, b: s.Piecewise((1, s.And(a > 0, b > 0)), (0, True)),
)
_row(
    57, "logical_or", 2, "1 where a > 0 or b > 0, else 0",
    commutative=True, numpy=lambda a, b: (np.greater(a, 0) | np.greater(b, 0)) * 1.0, vector=simd_formulas.logical_or,
    cuda="T(a > T(0) || b > T(0))", derivative=("0", "0"), ulp=(0, 0), chain=True, sympy_class=("Or",),
    sympy=lambda s, a, b: s.Piecewise((1, s.Or(a > 0, b > 0)), (0, True)),
)

# ── made by lowering, never written by a user ────────────────────────────────────────

_internal(0, "copy", 1, "a", numpy=np.positive, vector=simd_formulas.copy, cuda="a", ptx="mov.{t} {y}, {a};", derivative=("1",), ulp=(0, 0))
_internal(
    200, "log2abs_pair", 1, "log2 |a| as two numbers, high and low part",
    numpy=lambda a: np.log2(np.abs(a)), vector=simd_formulas.log2abs_pair, width=2,
    cuda="log2_pair(a, y_low)", cuda_fast="log2_pair_bounded(a, y_low)", long_code=True,
    derivative=("1.4426950408889634 / a",),
)
_internal(
    201, "exp2_product", 2, "2^(a b) for a pair a = log2 |base|; 1 where the base is 1 or b is 0, even for nan",
    numpy=lambda a, b: np.power(np.exp2(a), b), vector=simd_formulas.exp2_product,
    cuda="exp2_of_product(a, a_low, b)", cuda_usual="usual_exp2_of_product(a, a_low, b, holds)",
    cuda_fast="fast_exp2_of_product(a, a_low, b)", long_code=True,
    derivative=("0.6931471805599453 * b * y", "0.6931471805599453 * a * y"),
)

_internal(
    202, "pow_whole", 2, "a to a power b that is a whole number, as C's pow",
    derivative=("b * a ^ (b - 1)", "y * log(a)"),
    numpy=np.power, vector=simd_formulas.pow,
    cuda="whole_power(a, b)", long_code=True, cuda_fast_ulp=128,
)

# what does not change with a parameter has no slope, however steep the rest is there
_internal(
    203, "strong_product", 2, "a * b in a derivative: 0 where a or b is 0, whatever the other is", derivative=("b", "a"), ulp=(0.5, 0.5),
    numpy=lambda a, b: np.where(np.equal(a, 0) | np.equal(b, 0), 0.0, np.multiply(a, b)), vector=simd_formulas.strong_product, cuda="strong_product(a, b)",
)
_internal(
    204, "strong_quotient", 2, "a / b in a derivative: 0 where a is 0, whatever b is", derivative=("1 / b", "-y / b"), ulp=(0.5, 0.5),
    numpy=lambda a, b: np.where(np.equal(a, 0), 0.0, np.divide(a, b)), vector=simd_formulas.strong_quotient,
    cuda="strong_quotient(a, b)", cuda_fast="strong_fast_quotient(a, b)",
)

BY_NAME: dict[str, Operator] = {row.name: row for row in (*OPERATORS, *INTERNAL)}
BY_CODE: dict[int, Operator] = {row.code: row for row in (*OPERATORS, *INTERNAL)}
IN_VALUES = {code: row for code, row in BY_CODE.items() if row.name not in {other.strong for other in OPERATORS}}  # in programs without derivatives
BY_SPELLING: dict[str, Operator] = {
    name: row for row in OPERATORS for name in (row.name, *row.aliases) if name.isidentifier()
}

COPY = BY_NAME["copy"].code  # the operator that leaves its operand as it is
# those that a derivative is put together with, and simplified by
ADD, SUB, MUL, DIV, POW, NEG, INV = (BY_NAME[name].code for name in ("add", "sub", "mul", "div", "pow", "neg", "inv"))
STRONG_MUL, STRONG_DIV = (BY_NAME[BY_CODE[code].strong or ""].code for code in (MUL, DIV))
ARITY = np.zeros(256, np.uint8)  # by code, for compiled loops; 0 where there is no operator
for _operator in BY_CODE.values():
    ARITY[_operator.code] = _operator.arity
ARITY.flags.writeable = False

# ── sets of operators by name, for generated populations (``generate.py``) ───────────

SETS: dict[str, tuple[str, ...]] = {
    # exhaustive symbolic regression as in the thesis's data (Bartlett, Desmond, Ferreira, 2023)
    "esr": ("add", "sub", "mul", "div", "powabs", "inv", "sqr"),
    # what the thesis evaluates
    "thesis": ("add", "sub", "mul", "div", "pow", "abs", "log", "exp", "inv", "sqrt"),
    # common in genetic programming; defined on the whole real line but at isolated points
    "gp": ("add", "sub", "mul", "div", "sin", "cos", "exp", "logabs"),
}
