"""The operator table: one row per operator, and nothing about an operator anywhere else.

Parser, printers, SymPy bridge, every backend, the README's table and the tests read ``OPERATORS``.  Adding an
operator is adding a row; for speed on the CPU also a formula of its name in ``simd_formulas``.

    >>> from exprkit.operators import ops
    >>> ops.BY_NAME["sqrt"].meaning
    'square root; sqrt(-0) = -0, nan for a < 0'

Operands are always ``a`` and ``b``, the result is ``y``.  ``Operator`` says what a row holds, group by group: what
it means and how it is written, its formulas for the CPU, CUDA and PTX, its derivative and the rewrite rules, how
others print it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from exprkit.operators import intervals, numpy_definitions, simd_formulas

Interval = tuple[float, float]

ANY: Interval = (-10.0, 10.0)
POSITIVE: Interval = (1e-3, 10.0)
UNIT: Interval = (-1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Cuda:
    """Formulas in CUDA C over ``a``, ``b`` and the type ``T``, for float and double.

    Of a double-double the low parts are ``a_low`` and ``y_low``; of what is packed, the second number.  Functions are
    CUDA's or stand in ``backends/gpu/arithmetic.cu`` (of a derivative in ``tangents.cu``).
    """

    formula: str
    fast: str = ""  # under precision="fast", where it differs
    fast_ulp: float | None = None  # its largest float32 error over ``domain``, of max(|y|, 1)'s last place
    # shorter, for operands in the usual range; makes ``in_range`` false for others, if there are any
    fast_path: str = ""
    inline: bool = False  # few instructions; a kernel holds longer ones once, out of line, and loops over them
    body: str = ""  # of the user's function that the formula calls
    heavy: bool = False  # out of line, it alone decides how many registers a kernel needs
    branches: bool = False  # long code with branches: a kernel of derivatives makes it for one point after the other
    # fast, for 32 points (tests/code_sizes.py), an eighth with a fast path; 0: little, or held once
    code_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Ptx:
    """The operator as one PTX instruction, the one that the compiler makes of it; "" where it is none.

    ``{t}`` is f32 or f64, ``{f}`` .ftz where subnormals are flushed, ``{full}``, ``{quick}`` and ``{root}`` are .rn or,
    of an approximate quotient, .full and .approx, of an approximate root .approx; what says ``.f32`` holds for float32
    only.  Without operands they are ``{y}, {a}`` or ``{y}, {a}, {b}``.
    """

    formula: str = ""
    fast: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Operators that replace this one where something is known of its operands (strength reduction)."""

    inner: Mapping[str, str] = field(default_factory=dict)  # {inner: other}: op(inner(a), ...) is other(a, ...)
    constant_b: Mapping[float, str] = field(default_factory=dict)  # {number: other}: op(a, number) is other(a)
    positive_a: str | None = None  # other: op(a, b) may be other(a, b) where a is known to be >= 0
    whole_b: str | None = None  # other: under precision="fast" op(a, number) is other, of a whole number
    # (first, rest): op(a, b) == rest(first(a), b); ``first`` is done once where ``a`` is the same at every data point,
    # or one column
    split: tuple[str, str] | None = None
    # (first, number): op(a) is the number times both parts of first(a); a derivative takes it from there
    multiple_of: tuple[str, float] | None = None
    in_derivative: str | None = None  # other: in derivatives, where 0 times anything is 0 (a strong zero)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One row of the table."""

    # what it is
    code: int  # number in every program, file and kernel; never renumbered, never reused
    name: str  # as in text, name(a) or name(a, b)
    arity: int
    meaning: str  # one line, in IEEE 754 terms: what happens at 0, inf, nan, negative bases
    width: int = 1  # how many numbers the result is: 2 for a double-double (hi, lo)
    # how it is written
    infix: str | None = None
    precedence: int = 9  # larger binds tighter; 0: a comparison, whose sign is an alias
    right: bool = False  # groups from the right
    aliases: tuple[str, ...] = ()  # further names (or infix symbols) that the parser reads
    method: str = ""  # Python's special method that applies it to an Expression
    chain: bool = False  # name(a, b, c) is read as name(name(a, b), c)
    commutative: bool = False  # op(a, b) == op(b, a): generators write only one of the two
    # the definition, and the CPU's formula
    numpy: Callable[..., Any]  # on float64 arrays
    numpy_fast: Callable[..., Any] | None = None  # under precision="fast", where it differs
    compiled: Any = None  # of a user's function: that of Numba's which is called for one number
    traced: Any = None  # and what it computes, of the table's operators (``traced.TracedFunction``)
    packed: bool = False  # of a user's function of three operands: operand a is the first two (``pair_of``)
    simd: Callable[..., Any]  # on SIMD vectors, float32 and float64: ``simd_formulas`` has it by name
    simd_fast: Callable[..., Any] | None = None
    domain: tuple[Interval, ...] = (ANY, ANY)  # of each operand: where tests and samples draw ordinary inputs
    # largest error against the definition in units of the last place, (float32, float64): precision="ieee", "fast"
    ulp: tuple[float, float] = (1.0, 1.0)
    fast_ulp: tuple[float, float] | None = None
    # intervals of values (``intervals``)
    interval: str | Callable[..., Any] | None = None  # where the extremes are; None: any number
    natural: Interval = (-math.inf, math.inf)  # outside of it, a gives nan
    image: Interval = (-math.inf, math.inf)  # of all values; in a row it follows from the others
    jumps: bool = False  # not continuous
    # the GPU's formulas
    cuda: Cuda
    ptx: Ptx = Ptx()
    # calculus
    derivative: tuple[str, ...] = ()  # dy/da (and dy/db) in exprkit's own text; () where no operator can write it
    rewrite: Rewrite = Rewrite()
    # elsewhere
    latex: str = ""  # template over {a} and {b}, both delimited where needed; in a row also a function's name
    sympy: Callable[..., Any] | None = None  # f(sympy, a, b); in a row also the name of a SymPy class
    sympy_class: tuple[str, ...] = ()  # SymPy's classes that are read as this operator
    # in Python over a and b, with NumPy (or JAX's) as np and SciPy's (or JAX's) special functions as special; where
    # ``numpy`` is a function of NumPy's own, that function
    python: str = ""
    torch: str | None = ""  # the same with PyTorch; "": that text with torch for np, None: it has no such function

    @property
    def letters(self) -> tuple[str, ...]:
        """The names of the operands in formulas for the GPU, all three of one that takes two packed."""
        return ("a", "a_low", "b") if self.packed else ("a", "b")[: self.arity]


# tables whose rows are as long as an operator needs
# fmt: off
OPERATORS: list[Operator] = []
INTERNAL: list[Operator] = []  # made by lowering, never written by a user


def _row(code: int, name: str, arity: int, meaning: str, *, latex: str = "", sympy: Any, **cells: Any) -> None:
    if isinstance(sympy, str):
        sympy, cells["sympy_class"] = _made_by(sympy), (sympy,)
    latex = _template(name, arity, latex)
    OPERATORS.append(_operator(code, name, arity, meaning, latex=latex, sympy=sympy, **cells))


def _template(name: str, arity: int, latex: str) -> str:
    if "{a}" in latex:
        return latex
    word = name.replace("_", r"\_")
    function = latex or rf"\operatorname{{{{{word}}}}}"
    return rf"{function}\left({'{a}' if arity == 1 else '{a}, {b}'}\right)"


def operator(name: str, arity: int, meaning: str, *, latex: str, **cells: Any) -> Operator:
    """A row for an operator that is the user's function; ``defined.add_row`` takes it in."""
    latex = latex.replace("{", "{{").replace("}", "}}").replace("{{a}}", "{a}").replace("{{b}}", "{b}")
    own = {"simd": simd_formulas.copy, "sympy": _made_by(name), "sympy_class": (name,), "torch": None}
    return _operator(0, name, arity, meaning, latex=_template(name, arity, latex), **(own | cells))


def _internal(code: int, name: str, arity: int, meaning: str, **cells: Any) -> None:
    INTERNAL.append(_operator(code, name, arity, meaning, **cells))


def _operator(code: int, name: str, arity: int, meaning: str, **cells: Any) -> Operator:
    """A row, with the cells that follow from others."""
    if "simd" not in cells:
        formula = getattr(simd_formulas, name, None)
        cells["simd"] = formula or simd_formulas.c_function(cells["cuda"].formula)
    cells.setdefault("simd_fast", getattr(simd_formulas, f"fast_{name}", None))
    natural = cells.get("natural", (-math.inf, math.inf))
    cells["image"] = intervals.image(cells.get("interval"), natural, cells["numpy"])
    if "ptx" in cells:
        operands = " {y}, {a};" if arity == 1 else " {y}, {a}, {b};"
        texts = (cells["ptx"].formula, cells["ptx"].fast)
        cells["ptx"] = Ptx(*(text + operands if text and "{y}" not in text else text for text in texts))
    if "python" not in cells and isinstance(cells["numpy"], np.ufunc) and hasattr(np, cells["numpy"].__name__):
        cells["python"] = f"np.{cells['numpy'].__name__}({'a' if arity == 1 else 'a, b'})"
    return Operator(code=code, name=name, arity=arity, meaning=meaning, **cells)


def _made_by(name: str) -> Callable[..., Any]:
    """The function that makes an object of a SymPy class, or an undefined function where SymPy has none."""
    return lambda sympy, *operands: (getattr(sympy, name, None) or sympy.Function(name))(*operands)


# ── the table ────────────────────────────────────────────────────────────────────────

_row(1, "add", 2, "a + b",
    infix="+", precedence=1, method="__add__", chain=True, commutative=True,
    numpy=np.add, ulp=(0.5, 0.5), interval="a b",
    cuda=Cuda("a + b", inline=True), ptx=Ptx("add.rn{f}.{t}"),
    derivative=("1", "1"),
    latex="{a} + {b}", sympy="Add")
_row(2, "sub", 2, "a - b",
    infix="-", precedence=1, method="__sub__",
    numpy=np.subtract, ulp=(0.5, 0.5), interval="a b",
    cuda=Cuda("a - b", inline=True), ptx=Ptx("sub.rn{f}.{t}"),
    derivative=("1", "-1"),
    latex="{a} - {b}", sympy=lambda s, a, b: s.Add(a, s.Mul(-1, b)))
_row(3, "mul", 2, "a * b; 0 * inf = nan",
    infix="*", precedence=2, method="__mul__", chain=True, commutative=True,
    numpy=np.multiply, ulp=(0.5, 0.5), interval="a b",
    cuda=Cuda("a * b", inline=True), ptx=Ptx("mul.rn{f}.{t}"),
    derivative=("b", "a"), rewrite=Rewrite(in_derivative="strong_product"),
    latex=r"{a} \cdot {b}", sympy="Mul")
_row(4, "div", 2, "a / b; a / 0 = +-inf by the signs, 0 / 0 = nan",
    infix="/", precedence=2, method="__truediv__",
    numpy=np.divide, ulp=(0.5, 0.5), interval=intervals.quotient,
    cuda=Cuda("a / b", fast="quotient(a, b)", fast_ulp=4, fast_path="in_range_quotient(a, b, in_range)",
              code_bytes=512),
    ptx=Ptx("div{full}{f}.{t}", fast="div{quick}{f}.{t}"),
    derivative=("1 / b", "-y / b"), rewrite=Rewrite(in_derivative="strong_quotient"),
    latex=r"\frac{{{a}}}{{{b}}}", sympy=lambda s, a, b: s.Mul(a, s.Pow(b, -1)))
_row(5, "pow", 2, "a to the power b, as C's pow: a < 0 gives nan unless b is whole; 1^b = a^0 = 1 even for nan",
    infix="^", precedence=4, right=True, aliases=("**",), method="__pow__",
    numpy=np.power, numpy_fast=numpy_definitions.fast_pow, domain=(POSITIVE, (-4.0, 4.0)), ulp=(5.5, 5.5), fast_ulp=(32, 5.5),
    cuda=Cuda("pow(a, b)", fast="fast_pow(a, b)", fast_ulp=256, fast_path="in_range_power(a, b, in_range)",
              heavy=True, code_bytes=1392),
    derivative=("b * a ^ (b - 1)", "y * log(a)"), interval=intervals.power,
    rewrite=Rewrite(inner={"abs": "powabs"}, positive_a="powabs", whole_b="pow_whole",
                    constant_b={1.0: "copy", 2.0: "sqr", 3.0: "cube", -1.0: "inv"}),
    latex="{a}^{{{b}}}", sympy="Pow",
    torch="torch.pow(a, b)")
_row(6, "neg", 1, "-a; the sign bit changed, nan too",
    infix="-", precedence=3, method="__neg__",
    numpy=np.negative, ulp=(0, 0), interval="a",
    cuda=Cuda("-a", inline=True), ptx=Ptx("neg{f}.{t}"),
    derivative=("-1",),
    latex="-{a}", sympy=lambda s, a: s.Mul(-1, a))
_row(7, "abs", 1, "absolute value; the derivative at 0 is taken as 0",
    method="__abs__",
    numpy=np.abs, ulp=(0, 0), interval="|a|",
    cuda=Cuda("fabs(a)", inline=True), ptx=Ptx("abs{f}.{t}"),
    derivative=("sign(a)",),
    latex=r"\left|{a}\right|", sympy="Abs")
_row(8, "inv", 1, "1 / a; 1 / +-0 = +-inf",
    numpy=np.reciprocal, ulp=(0.5, 0.5), interval=intervals.quotient,
    cuda=Cuda("T(1) / a", fast="reciprocal(a)", fast_ulp=2, fast_path="in_range_quotient(T(1), a, in_range)"),
    ptx=Ptx("rcp{quick}{f}.{t}", fast="rcp{quick}{f}.{t}"),
    derivative=("-y * y",),
    latex=r"\frac{{1}}{{{a}}}", sympy=lambda s, a: s.Pow(a, -1))
_row(9, "sqr", 1, "a * a",
    aliases=("square",),
    numpy=np.square, ulp=(0.5, 0.5), interval="|a|",
    cuda=Cuda("a * a", inline=True), ptx=Ptx("mul.rn{f}.{t} {y}, {a}, {a};"),
    derivative=("2 * a",), rewrite=Rewrite(inner={"abs": "sqr", "neg": "sqr"}),
    latex="{a}^{{2}}", sympy=lambda s, a: a**2)
_row(10, "cube", 1, "a * a * a",
    numpy=lambda a: a * a * a, ulp=(1.5, 0), interval="a",
    cuda=Cuda("a * a * a", inline=True, code_bytes=1024),
    derivative=("3 * a * a",),
    latex="{a}^{{3}}", sympy=lambda s, a: a**3,
    python="a * a * a")
_row(11, "sqrt", 1, "square root; sqrt(-0) = -0, nan for a < 0",
    numpy=np.sqrt, domain=(POSITIVE,), ulp=(0.5, 0.5), interval="a", natural=(0.0, math.inf),
    cuda=Cuda("sqrt(a)", fast="root(a)", fast_ulp=4, fast_path="exact_root(a)"),
    ptx=Ptx("sqrt{root}{f}.{t}", fast="sqrt{root}{f}.{t}"),
    derivative=("0.5 / y",), rewrite=Rewrite(inner={"abs": "sqrtabs"}),
    latex=r"\sqrt{{{a}}}", sympy=lambda s, a: s.sqrt(a), sympy_class=("Sqrt",))
_row(12, "cbrt", 1, "real cube root, odd: cbrt(-8) = -2",
    numpy=np.cbrt, ulp=(2, 2), interval="a",
    cuda=Cuda("cbrt(a)"),
    derivative=("1 / (3 * y * y)",),
    latex=r"\sqrt[3]{{{a}}}", sympy=lambda s, a: s.sign(a) * s.Abs(a) ** s.Rational(1, 3), sympy_class=("Cbrt",),
    torch="torch.copysign(torch.abs(a) ** (1 / 3), a)")
_row(13, "exp", 1, "e to the power a; exp(-inf) = 0",
    numpy=np.exp, ulp=(2, 2), interval="a",
    cuda=Cuda("exp(a)", fast="fast_exp(a)", fast_ulp=32, code_bytes=1024),
    derivative=("y",),
    latex="e^{{{a}}}", sympy="exp")
_row(14, "exp2", 1, "2 to the power a; exact for whole a",
    numpy=np.exp2, ulp=(2.5, 2), interval="a",
    cuda=Cuda("exp2(a)", fast="fast_exp2(a)", fast_ulp=4), ptx=Ptx(fast="ex2.approx{f}.f32"),
    derivative=("y * 0.6931471805599453",),
    latex="2^{{{a}}}", sympy=lambda s, a: 2**a, sympy_class=("exp2",))
_row(15, "log", 1, "natural logarithm; log(+-0) = -inf, nan for a < 0",
    aliases=("ln",),
    numpy=np.log, domain=(POSITIVE,), ulp=(2, 2.5), interval="a", natural=(0.0, math.inf),
    cuda=Cuda("log(a)", fast="fast_log(a)", fast_ulp=64, code_bytes=1024),
    derivative=("1 / a",), rewrite=Rewrite(inner={"abs": "logabs"}),
    latex=r"\ln", sympy="log")
_row(16, "log2", 1, "logarithm to base 2; log2(+-0) = -inf, nan for a < 0",
    numpy=np.log2, domain=(POSITIVE,), ulp=(2, 2), interval="a", natural=(0.0, math.inf),
    cuda=Cuda("log2(a)", fast="fast_log2(a)", fast_ulp=64), ptx=Ptx(fast="lg2.approx{f}.f32"),
    derivative=("1.4426950408889634 / a",),
    latex=r"\log_{{2}}\left({a}\right)", sympy=lambda s, a: s.log(a) / s.log(2), sympy_class=("log2",))
_row(17, "log10", 1, "logarithm to base 10; log10(+-0) = -inf, nan for a < 0",
    numpy=np.log10, domain=(POSITIVE,), ulp=(2.5, 2), interval="a", natural=(0.0, math.inf),
    cuda=Cuda("log10(a)", fast="fast_log10(a)", fast_ulp=64, code_bytes=1024),
    derivative=("0.4342944819032518 / a",),
    latex=r"\log_{{10}}\left({a}\right)", sympy=lambda s, a: s.log(a) / s.log(10), sympy_class=("log10",))
_row(18, "log1p", 1, "log(1 + a), exact near 0; log1p(-1) = -inf, nan for a < -1",
    numpy=np.log1p, domain=((-0.999, 10.0),), ulp=(2, 2.5), interval="a", natural=(-1.0, math.inf),
    cuda=Cuda("log1p(a)"),
    derivative=("1 / (1 + a)",),
    sympy=lambda s, a: s.log(1 + a), sympy_class=("log1p",))
_row(19, "expm1", 1, "exp(a) - 1, exact near 0; expm1(-inf) = -1",
    numpy=np.expm1, ulp=(2, 2), interval="a",
    cuda=Cuda("expm1(a)"),
    derivative=("exp(a)",),
    sympy=lambda s, a: s.exp(a) - 1, sympy_class=("expm1",))
_row(20, "sin", 1, "sine of radians; nan for +-inf",
    numpy=np.sin, ulp=(2, 2), interval=intervals.wave(math.pi / 2),
    cuda=Cuda("sin(a)", fast="fast_sin(a)", fast_ulp=64, code_bytes=3072),
    derivative=("cos(a)",),
    latex=r"\sin", sympy="sin")
_row(21, "cos", 1, "cosine of radians; nan for +-inf",
    numpy=np.cos, ulp=(2, 2), interval=intervals.wave(0.0),
    cuda=Cuda("cos(a)", fast="fast_cos(a)", fast_ulp=64, code_bytes=3072),
    derivative=("-sin(a)",),
    latex=r"\cos", sympy="cos")
_row(22, "tan", 1, "tangent of radians; nan for +-inf",
    numpy=np.tan, domain=((-1.5, 1.5),), ulp=(4, 4), interval=intervals.tangent,
    cuda=Cuda("tan(a)", fast="fast_tan(a)", fast_ulp=256, code_bytes=4608),
    derivative=("1 + y * y",),
    latex=r"\tan", sympy="tan")
_row(23, "asin", 1, "arc sine in [-pi/2, pi/2]; nan for |a| > 1",
    aliases=("arcsin",),
    numpy=np.arcsin, domain=(UNIT,), ulp=(4, 4), interval="a", natural=UNIT,
    cuda=Cuda("asin(a)"),
    derivative=("1 / sqrt((1 - a) * (1 + a))",),
    latex=r"\arcsin", sympy="asin")
_row(24, "acos", 1, "arc cosine in [0, pi]; nan for |a| > 1",
    aliases=("arccos",),
    numpy=np.arccos, domain=(UNIT,), ulp=(4, 4), interval="a", natural=UNIT,
    cuda=Cuda("acos(a)"),
    derivative=("-1 / sqrt((1 - a) * (1 + a))",),
    latex=r"\arccos", sympy="acos")
_row(25, "atan", 1, "arc tangent in [-pi/2, pi/2]; atan(+-inf) = +-pi/2",
    aliases=("arctan",),
    numpy=np.arctan, ulp=(4, 4), interval="a",
    cuda=Cuda("atan(a)"),
    derivative=("1 / (1 + a * a)",),
    latex=r"\arctan", sympy="atan")
_row(26, "sinh", 1, "hyperbolic sine",
    numpy=np.sinh, ulp=(4, 4), interval="a",
    cuda=Cuda("sinh(a)"),
    derivative=("cosh(a)",),
    latex=r"\sinh", sympy="sinh")
_row(27, "cosh", 1, "hyperbolic cosine",
    numpy=np.cosh, ulp=(4, 4), interval="|a|",
    cuda=Cuda("cosh(a)"),
    derivative=("sinh(a)",),
    latex=r"\cosh", sympy="cosh")
_row(28, "tanh", 1, "hyperbolic tangent; tanh(+-inf) = +-1",
    numpy=np.tanh, ulp=(4, 4), interval="a",
    cuda=Cuda("tanh(a)"),
    derivative=("sqr(inv(cosh(a)))",),
    latex=r"\tanh", sympy="tanh")
_row(29, "min", 2, "the smaller; a number wins over nan, either zero of +-0 may come back",
    aliases=("fmin",), chain=True, commutative=True,
    numpy=np.fmin, ulp=(0, 0), interval="a b",
    cuda=Cuda("fmin(a, b)", inline=True, code_bytes=1280), ptx=Ptx("min{f}.{t}"),
    derivative=("lessequal(a, y)", "1 - lessequal(a, y)"),
    latex=r"\min", sympy="Min")
_row(30, "max", 2, "the larger; a number wins over nan, either zero of +-0 may come back",
    aliases=("fmax",), chain=True, commutative=True,
    numpy=np.fmax, ulp=(0, 0), interval="a b",
    cuda=Cuda("fmax(a, b)", inline=True, code_bytes=1280), ptx=Ptx("max{f}.{t}"),
    derivative=("greaterequal(a, y)", "1 - greaterequal(a, y)"),
    latex=r"\max", sympy="Max")
_row(31, "sign", 1, "-1, 0 or 1; sign(+-0) = 0, sign(nan) = nan",
    numpy=np.sign, ulp=(0, 0), interval="a", jumps=True,
    cuda=Cuda("sign_of(a)", inline=True, code_bytes=3072),
    derivative=("0",),
    sympy="sign",
    torch="torch.where(torch.isnan(a), a, torch.sign(a))")
_row(32, "floor", 1, "the largest whole number not above a; the derivative is taken as 0",
    method="__floor__",
    numpy=np.floor, ulp=(0, 0), interval="a", jumps=True,
    cuda=Cuda("floor(a)", inline=True), ptx=Ptx("cvt.rmi{f}.{t}.{t}"),
    derivative=("0",),
    latex=r"\left\lfloor {a} \right\rfloor", sympy="floor")
_row(33, "ceil", 1, "the smallest whole number not below a; the derivative is taken as 0",
    method="__ceil__",
    numpy=np.ceil, ulp=(0, 0), interval="a", jumps=True,
    cuda=Cuda("ceil(a)", inline=True), ptx=Ptx("cvt.rpi{f}.{t}.{t}"),
    derivative=("0",),
    latex=r"\left\lceil {a} \right\rceil", sympy="ceiling")
_row(34, "round", 1, "the nearest whole number, halves to even; the derivative is taken as 0",
    method="__round__",
    numpy=np.rint, ulp=(0, 0), interval="a", jumps=True,
    cuda=Cuda("rint(a)", inline=True), ptx=Ptx("cvt.rni.{t}.{t}"),
    derivative=("0",),
    sympy=lambda s, a: s.floor((2 * a + 1) / 4) + s.ceiling((2 * a - 1) / 4), sympy_class=("round",),
    torch="torch.round(a)")
_row(35, "asinh", 1, "inverse hyperbolic sine",
    aliases=("arcsinh",),
    numpy=np.arcsinh, ulp=(4, 5), interval="a",
    cuda=Cuda("asinh(a)"),
    derivative=("inv(hypot(a, 1))",),
    sympy="asinh")
_row(36, "acosh", 1, "inverse hyperbolic cosine; nan for a < 1",
    aliases=("arccosh",),
    numpy=np.arccosh, domain=((1.0, 10.0),), ulp=(4, 4), interval="a", natural=(1.0, math.inf),
    cuda=Cuda("acosh(a)"),
    derivative=("1 / (sqrt(a - 1) * sqrt(a + 1))",),
    sympy="acosh")
_row(37, "atanh", 1, "inverse hyperbolic tangent; atanh(+-1) = +-inf, nan for |a| > 1",
    aliases=("arctanh",),
    numpy=np.arctanh, domain=((-0.999, 0.999),), ulp=(4, 4), interval="a", natural=UNIT,
    cuda=Cuda("atanh(a)"),
    derivative=("1 / ((1 - a) * (1 + a))",),
    sympy="atanh")
_row(38, "atan2", 2, "the angle of the point (b, a) in [-pi, pi], signed zeros as in C",
    numpy=np.arctan2, ulp=(4, 4), interval=intervals.angle,
    cuda=Cuda("atan2(a, b)", branches=True),
    derivative=("b * inv(hypot(a, b)) * inv(hypot(a, b))", "-a * inv(hypot(a, b)) * inv(hypot(a, b))"),
    sympy="atan2")
_row(39, "hypot", 2, "sqrt(a^2 + b^2) without overflow between; inf wins over nan",
    commutative=True,
    numpy=np.hypot, ulp=(4, 4), interval="|a| |b|",
    cuda=Cuda("hypot(a, b)"),
    derivative=("a / y", "b / y"),
    sympy=lambda s, a, b: s.sqrt(a**2 + b**2), sympy_class=("hypot",))
_row(40, "mod", 2, "a - floor(a / b) * b, exact, with the sign of b; nan for b = 0",
    method="__mod__",
    numpy=np.mod, ulp=(0.5, 0.5), interval=intervals.remainder,
    cuda=Cuda("floor_mod(a, b)", branches=True),
    derivative=("1", "round((y - a) / b)"),
    sympy="Mod")
_row(41, "erf", 1, "error function",
    numpy=numpy_definitions.elementwise(math.erf, math.nan), domain=((-4.0, 4.0),), ulp=(4, 4), interval="a",
    cuda=Cuda("erf(a)"),
    derivative=("1.1283791670955126 * exp(-a * a)",),
    sympy="erf",
    python="special.erf(a)")
_row(42, "erfc", 1, "1 - erf(a) without cancellation",
    numpy=numpy_definitions.elementwise(math.erfc, math.nan), domain=((-4.0, 4.0),), ulp=(5, 5), interval="a",
    cuda=Cuda("erfc(a)"),
    derivative=("-1.1283791670955126 * exp(-a * a)",),
    sympy="erfc",
    python="special.erfc(a)")
_row(43, "gamma", 1, "gamma function; nan at -1, -2, ... and -inf, +-inf at +-0",
    numpy=numpy_definitions.elementwise(numpy_definitions.gamma, math.nan), domain=((0.1, 20.0),), ulp=(11, 10),
    cuda=Cuda("tgamma(a)", branches=True),
    derivative=("y * digamma(a)",),
    latex=r"\Gamma\left({a}\right)", sympy="gamma",
    python="special.gamma(a)", torch=None)
_row(44, "lgamma", 1, "log |gamma(a)|; inf at 0, -1, -2, ...",
    aliases=("loggamma",),
    numpy=numpy_definitions.elementwise(numpy_definitions.lgamma, math.inf), domain=((2.5, 20.0),), ulp=(8, 11),
    cuda=Cuda("lgamma(a)", branches=True),
    derivative=("digamma(a)",),
    latex=r"\ln\left|\Gamma\left({a}\right)\right|", sympy="loggamma",
    python="special.gammaln(a)")
_row(45, "relu", 1, "max(a, 0); nan stays nan",
    numpy=lambda a: np.where(np.less_equal(a, 0), 0.0, a), ulp=(0, 0), interval="a",
    cuda=Cuda("a <= T(0) ? T(0) : a", inline=True),
    derivative=("greater(a, 0)",),
    sympy=lambda s, a: s.Max(0, a), sympy_class=("relu",),
    python="np.where(a <= 0, 0.0, a)")
_row(46, "logistic", 1, "1 / (1 + exp(-a))",
    aliases=("sigmoid",),
    numpy=lambda a: 1 / (1 + np.exp(-a)), ulp=(4, 4), interval="a",
    cuda=Cuda("sigmoid(a)"),
    derivative=("y * logistic(-a)",),
    sympy=lambda s, a: 1 / (1 + s.exp(-a)), sympy_class=("logistic",),
    python="1 / (1 + np.exp(-a))")
_row(47, "logabs", 1, "log |a|; logabs(+-0) = -inf",
    numpy=lambda a: np.log(np.abs(a)), ulp=(2, 2.5), interval="|a|",
    cuda=Cuda("log(fabs(a))", fast="fast_log(fabs(a))", fast_ulp=64, code_bytes=1536),
    derivative=("1 / a",), rewrite=Rewrite(multiple_of=("log2abs_hi_lo", math.log(2.0))),
    latex=r"\ln\left|{a}\right|", sympy=lambda s, a: s.log(s.Abs(a)), sympy_class=("logabs",),
    python="np.log(np.abs(a))")
_row(48, "sqrtabs", 1, "sqrt |a|",
    numpy=lambda a: np.sqrt(np.abs(a)), ulp=(0.5, 0.5), interval="|a|",
    cuda=Cuda("sqrt(fabs(a))", fast="root(fabs(a))", fast_ulp=4, fast_path="exact_root(fabs(a))", code_bytes=1024),
    derivative=("0.5 * sign(a) / y",),
    latex=r"\sqrt{{\left|{a}\right|}}", sympy=lambda s, a: s.sqrt(s.Abs(a)), sympy_class=("sqrtabs",),
    python="np.sqrt(np.abs(a))")
_row(49, "powabs", 2, "|a| to the power b, as C's pow; 1^b = a^0 = 1 even for nan",
    numpy=numpy_definitions.powabs, domain=(POSITIVE, (-4.0, 4.0)), ulp=(5.5, 5.5), fast_ulp=(32, 5.5),
    cuda=Cuda("pow(fabs(a), b)", fast="fast_pow(fabs(a), b)", fast_ulp=256,
              fast_path="in_range_power(fabs(a), b, in_range)", heavy=True, code_bytes=1600),
    derivative=("b * y / a", "y * logabs(a)"), interval=intervals.power_of_size,
    rewrite=Rewrite(constant_b={0.5: "sqrtabs", 1.0: "abs", 2.0: "sqr"}, split=("log2abs_hi_lo", "exp2_product")),
    latex=r"\left|{a}\right|^{{{b}}}", sympy=lambda s, a, b: s.Abs(a) ** b, sympy_class=("powabs",),
    python="np.power(np.abs(a), b)", torch="torch.pow(torch.abs(a), b)")
_row(50, "aq", 2, "analytic quotient a / sqrt(1 + b^2) (Ni, Drieberg and Rockett, 2013)",
    numpy=lambda a, b: a / np.hypot(1, b), ulp=(3, 3), interval="a |b|",
    cuda=Cuda("analytic_quotient(a, b)"),
    derivative=("inv(hypot(1, b))", "-y * (b * inv(hypot(1, b))) * inv(hypot(1, b))"),
    sympy=lambda s, a, b: a / s.sqrt(1 + b**2), sympy_class=("aq",),
    python="a / np.hypot(1.0, b)", torch="a / torch.hypot(torch.ones_like(b), b)")
_row(51, "greater", 2, "1 where a > b, else 0 (also for nan)",
    aliases=(">",), precedence=0, numpy=lambda a, b: np.greater(a, b) * 1.0, ulp=(0, 0),
    cuda=Cuda("T(a > b)", inline=True, code_bytes=2560),
    derivative=("0", "0"), interval="a b", jumps=True,
    latex=r"\left[{a} > {b}\right]", sympy=lambda s, a, b: s.Piecewise((1, a > b), (0, True)),
    sympy_class=("StrictGreaterThan",),
    python="(a > b) * 1.0")
_row(52, "less", 2, "1 where a < b, else 0 (also for nan)",
    aliases=("<",), precedence=0, numpy=lambda a, b: np.less(a, b) * 1.0, ulp=(0, 0),
    cuda=Cuda("T(a < b)", inline=True, code_bytes=2560),
    derivative=("0", "0"), interval="a b", jumps=True,
    latex=r"\left[{a} < {b}\right]", sympy=lambda s, a, b: s.Piecewise((1, a < b), (0, True)),
    sympy_class=("StrictLessThan",),
    python="(a < b) * 1.0")
_row(53, "greaterequal", 2, "1 where a >= b, else 0 (also for nan)",
    aliases=(">=",), precedence=0, numpy=lambda a, b: np.greater_equal(a, b) * 1.0, ulp=(0, 0),
    cuda=Cuda("T(a >= b)", inline=True, code_bytes=2560),
    derivative=("0", "0"), interval="a b", jumps=True,
    latex=r"\left[{a} \geq {b}\right]", sympy=lambda s, a, b: s.Piecewise((1, a >= b), (0, True)),
    sympy_class=("GreaterThan",),
    python="(a >= b) * 1.0")
_row(54, "lessequal", 2, "1 where a <= b, else 0 (also for nan)",
    aliases=("<=",), precedence=0, numpy=lambda a, b: np.less_equal(a, b) * 1.0, ulp=(0, 0),
    cuda=Cuda("T(a <= b)", inline=True, code_bytes=2560),
    derivative=("0", "0"), interval="a b", jumps=True,
    latex=r"\left[{a} \leq {b}\right]", sympy=lambda s, a, b: s.Piecewise((1, a <= b), (0, True)),
    sympy_class=("LessThan",),
    python="(a <= b) * 1.0")
_row(55, "cond", 2, "b where a > 0, else 0 (also for a = nan)",
    numpy=lambda a, b: np.where(np.greater(a, 0), b, 0.0), ulp=(0, 0), interval="a b", jumps=True,
    cuda=Cuda("a > T(0) ? b : T(0)", inline=True, code_bytes=4096),
    derivative=("0", "greater(a, 0)"),
    sympy=lambda s, a, b: s.Piecewise((b, a > 0), (0, True)), sympy_class=("Piecewise",),
    python="np.where(a > 0, b, 0.0)")
_row(56, "logical_and", 2, "1 where a > 0 and b > 0, else 0",
    chain=True, commutative=True,
    numpy=lambda a, b: (np.greater(a, 0) & np.greater(b, 0)) * 1.0, ulp=(0, 0), interval="a b", jumps=True,
    cuda=Cuda("T(a > T(0) && b > T(0))", inline=True, code_bytes=4864),
    derivative=("0", "0"),
    sympy=lambda s, a, b: s.Piecewise((1, s.And(a > 0, b > 0)), (0, True)), sympy_class=("And",),
    python="((a > 0) & (b > 0)) * 1.0")
_row(57, "logical_or", 2, "1 where a > 0 or b > 0, else 0",
    chain=True, commutative=True,
    numpy=lambda a, b: (np.greater(a, 0) | np.greater(b, 0)) * 1.0, ulp=(0, 0), interval="a b", jumps=True,
    cuda=Cuda("T(a > T(0) || b > T(0))", inline=True, code_bytes=4864),
    derivative=("0", "0"),
    sympy=lambda s, a, b: s.Piecewise((1, s.Or(a > 0, b > 0)), (0, True)), sympy_class=("Or",),
    python="((a > 0) | (b > 0)) * 1.0")

_row(58, "digamma", 1, "derivative of lgamma; -+inf at +-0, nan at -1, -2, ... and -inf; to 3e-15 beside its zeros "
    "below 0; can't be differentiated",
    aliases=("psi",),
    numpy=numpy_definitions.elementwise(numpy_definitions.digamma, math.nan), domain=((0.1, 20.0),), ulp=(1, 12),
    cuda=Cuda("digamma(a)", heavy=True, branches=True),
    latex=r"\psi", sympy=lambda s, a: s.digamma(a), sympy_class=("digamma", "polygamma0"),
    python="special.digamma(a)")

# ── made by lowering, never written by a user ────────────────────────────────────────

_internal(0, "copy", 1, "a",
    numpy=np.positive, ulp=(0, 0),
    cuda=Cuda("a", inline=True), ptx=Ptx("mov.{t}"),
    derivative=("1",))
_internal(200, "log2abs_hi_lo", 1, "log2 |a| as a double-double (hi, lo)",
    numpy=lambda a: np.log2(np.abs(a)), width=2,
    cuda=Cuda("log2_hi_lo(a, y_low)", fast="log2_hi_lo_bounded(a, y_low)"),
    derivative=("1.4426950408889634 / a",))
_internal(201, "exp2_product", 2, "2^(a b) for a double-double a = log2 |base|; 1 where the base is 1 or b is 0, even for nan",
    numpy=lambda a, b: np.power(np.exp2(a), b),
    cuda=Cuda("exp2_of_product(a, a_low, b)", fast="fast_exp2_of_product(a, a_low, b)",
              fast_path="in_range_exp2_of_product(a, a_low, b, in_range)", heavy=True),
    derivative=("0.6931471805599453 * b * y", "0.6931471805599453 * a * y"))

_internal(202, "pow_whole", 2, "a to a power b that is a whole number, as C's pow",
    numpy=np.power, simd=simd_formulas.pow,
    cuda=Cuda("whole_power(a, b)", fast_ulp=128, heavy=True, branches=True),
    derivative=("b * a ^ (b - 1)", "y * log(a)"))

# what does not change with a parameter has no slope, however steep the rest is there
_internal(203, "strong_product", 2, "a * b in a derivative: 0 where a or b is 0, whatever the other is",
    numpy=lambda a, b: np.where(np.equal(a, 0) | np.equal(b, 0), 0.0, np.multiply(a, b)), ulp=(0.5, 0.5),
    cuda=Cuda("strong_product(a, b)", inline=True),
    derivative=("b", "a"))
_internal(204, "strong_quotient", 2, "a / b in a derivative: 0 where a is 0, whatever b is",
    numpy=lambda a, b: np.where(np.equal(a, 0), 0.0, np.divide(a, b)), ulp=(0.5, 0.5),
    cuda=Cuda("strong_quotient(a, b)", fast="strong_fast_quotient(a, b)", inline=True),
    derivative=("1 / b", "-y / b"))

_internal(205, "pair_of", 2, "a and b: the first two operands of a user's function of three",
    numpy=lambda a, b: np.stack(np.broadcast_arrays(a, b)), width=2, simd=lambda a, b: (a, b), ulp=(0, 0),
    cuda=Cuda("(y_low = b, a)", inline=True))

BY_NAME: dict[str, Operator] = {row.name: row for row in (*OPERATORS, *INTERNAL)}
BY_CODE: dict[int, Operator] = {row.code: row for row in (*OPERATORS, *INTERNAL)}
_IN_DERIVATIVES = {row.rewrite.in_derivative for row in OPERATORS}
# those of programs of values that GPUs have a formula for
IN_VALUES = {code: row for code, row in BY_CODE.items() if row.name not in _IN_DERIVATIVES and row.cuda.formula}
BY_SPELLING: dict[str, Operator] = {
    name: row for row in OPERATORS for name in (row.name, *row.aliases) if name.isidentifier()
}
# ── names of two operators, the first of them inside of the other ────────────────────

COMPOSED: dict[str, tuple[str, str]] = {
    "sec": ("cos", "inv"), "csc": ("sin", "inv"), "cot": ("tan", "inv"),
    "sech": ("cosh", "inv"), "csch": ("sinh", "inv"), "coth": ("tanh", "inv"),
    "asec": ("inv", "acos"), "acsc": ("inv", "asin"), "acot": ("inv", "atan"),
    "asech": ("inv", "acosh"), "acsch": ("inv", "asinh"), "acoth": ("inv", "atanh"),
}
INSTEAD = {  # what is written for names that others know, over a, b and c; sinc is NumPy's, of pi * a
    "sinc": "cond(abs(a), sin(pi * a) / (pi * a)) + lessequal(abs(a), 0)", "exp10": "10 ^ a", "silu": "a * logistic(a)",
    "factorial": "gamma(a + 1)", "heaviside": "greater(a, 0)", "step": "greater(a, 0)", "logit": "log(a) - log1p(-a)",
    "softplus": "relu(a) + log1p(exp(-abs(a)))", "trunc": "sign(a) * floor(abs(a))", "softsign": "a / (1 + abs(a))",
    "rad2deg": "a * (180 / pi)", "degrees": "a * (180 / pi)", "deg2rad": "a * (pi / 180)", "radians": "a * (pi / 180)",
    "not": "lessequal(a, 0)", "and": "logical_and(a, b)", "or": "logical_or(a, b)", "clip": "max(b, min(a, c))",
    "where": (choice := "cond(a, b) + cond(lessequal(a, 0), c)"), "if": choice, "ifelse": choice, "fmod": "sign(a) * mod(abs(a), abs(b))",
    "logaddexp": "max(a, b) + log1p(exp(-abs(a - b)))"}
OTHER_NAMES = {  # of the table's operators
    "plus": "add", "minus": "sub", "subtract": "sub", "mult": "mul", "times": "mul", "multiply": "mul", "divide": "div",
    "power": "pow", "negative": "neg", "absolute": "abs", "fabs": "abs", "maximum": "max", "minimum": "min", "sgn": "sign",
    "signum": "sign", "ceiling": "ceil", "rint": "round", "remainder": "mod", "arctan2": "atan2", "expit": "logistic",
    "reciprocal": "inv", "gammaln": "lgamma"}

COPY = BY_NAME["copy"].code  # the operator that leaves its operand as it is
PAIR_OF = BY_NAME["pair_of"].code
# those that a derivative is put together with, and simplified by
ADD, SUB, MUL, DIV, POW, NEG, INV = (BY_NAME[name].code for name in ("add", "sub", "mul", "div", "pow", "neg", "inv"))
# whose families of functions the search knows rules for, and that a loss of the user's own is recognised by
POWABS, SQR, CUBE, ABS, SQRT, SQRTABS, EXP, LOG, LOG2, LOGABS, COSH = (BY_NAME[name].code for name in (
    "powabs", "sqr", "cube", "abs", "sqrt", "sqrtabs", "exp", "log", "log2", "logabs", "cosh"))
LARGEST = BY_NAME["max"].name  # also what the largest error is asked for by
CHOOSE = BY_NAME["cond"].code  # takes an operand or 0
GREATER, LESS, GREATEREQUAL, LESSEQUAL = (BY_NAME[name].code for name in ("greater", "less", "greaterequal", "lessequal"))
STRONG_MUL, STRONG_DIV = (BY_NAME[BY_CODE[code].rewrite.in_derivative or ""].code for code in (MUL, DIV))
BY_METHOD = {row.method: row for row in OPERATORS if row.method}  # by the special method of Python's
ARITY = np.zeros(256, np.uint8)  # by code, for compiled loops; 0 where there is no operator
ARITY[list(BY_CODE)] = [row.arity for row in BY_CODE.values()]
ARITY.flags.writeable = False
COMMUTATIVE = np.isin(np.arange(256), [code for code, row in BY_CODE.items() if row.commutative])  # by code, likewise
COMMUTATIVE.flags.writeable = False

# ── in other languages (``text/code_writer.py``) ─────────────────────────────────────

# In C, MATLAB, Julia and Excel over a and b: a word is the function's name, None where there is none.  MATLAB's go by
# element, and may be several statements about the result y.
ELSEWHERE: dict[str, tuple[str | None, ...]] = {
    "pow": ("pow", "power", "a ^ b", "POWER"), "abs": ("fabs", "abs", "abs", "ABS"),
    "inv": ("1 / a", "1 ./ a", "inv", "1 / a"), "sqr": ("a * a", "a .* a", "abs2", "POWER(a, 2)"),
    "cube": ("a * a * a", "a .* a .* a", "a * a * a", "POWER(a, 3)"), "sqrt": ("sqrt", "sqrt", "sqrt", "SQRT"),
    "cbrt": ("cbrt", "nthroot(a, 3)", "cbrt", "SIGN(a) * POWER(ABS(a), 1 / 3)"), "exp": ("exp", "exp", "exp", "EXP"),
    "exp2": ("exp2", "2 .^ a", "exp2", "POWER(2, a)"), "log": ("log", "log", "log", "LN"),
    "log2": ("log2", "log2", "log2", "LOG(a, 2)"), "log10": ("log10", "log10", "log10", "LOG10"),
    "log1p": ("log1p", "log1p", "log1p", "LN(1 + a)"), "expm1": ("expm1", "expm1", "expm1", "EXP(a) - 1"),
    **{name: (name, name, name, name.upper()) for name in (
        "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh")},
    "min": ("fmin", "min", "isnan(a) ? b : isnan(b) ? a : min(a, b)", "MIN"),
    "max": ("fmax", "max", "isnan(a) ? b : isnan(b) ? a : max(a, b)", "MAX"),
    "sign": ("isnan(a) ? a : (a > 0) - (a < 0)", "sign", "sign", "SIGN"), "floor": ("floor", "floor", "floor", "INT"),
    "ceil": ("ceil", "ceil", "ceil", "-INT(-a)"),
    "round": ("rint", "round(a) - (abs(rem(a, 2)) == 0.5) .* sign(a)", "round", "INT(a + 0.5) - IF(MOD(a, 2) = 0.5, 1, 0)"),
    "atan2": ("atan2", "atan2", "atan", "ATAN2(b, a)"),
    "hypot": ("hypot", "hypot", "hypot", "SQRT(POWER(a, 2) + POWER(b, 2))"),
    "mod": ("fmod(a, b) * b < 0 ? fmod(a, b) + b : fmod(a, b)", "mod(a, b) + 0 ./ b", "mod", "MOD"),
    "erf": ("erf", "erf", "SpecialFunctions.erf", "ERF"), "erfc": ("erfc", "erfc", "SpecialFunctions.erfc", "ERFC"),
    "gamma": ("tgamma", "gamma", "SpecialFunctions.gamma", "GAMMA"),
    "lgamma": ("lgamma", "gammaln", "SpecialFunctions.logabsgamma(a)[1]", "GAMMALN"),
    "digamma": (None, "psi", "SpecialFunctions.digamma", None),
    "relu": ("a <= 0 ? 0 : a", "a; y(a <= 0) = 0", "a <= 0 ? zero(a) : a", "MAX(a, 0)"),
    "logistic": ("1 / (1 + exp(-a))", "1 ./ (1 + exp(-a))", "1 / (1 + exp(-a))", "1 / (1 + EXP(-a))"),
    "logabs": ("log(fabs(a))", "log(abs(a))", "log(abs(a))", "LN(ABS(a))"),
    "sqrtabs": ("sqrt(fabs(a))", "sqrt(abs(a))", "sqrt(abs(a))", "SQRT(ABS(a))"),
    "powabs": ("pow(fabs(a), b)", "abs(a) .^ b", "abs(a) ^ b", "POWER(ABS(a), b)"),
    "aq": ("a / hypot(1, b)", "a ./ hypot(1, b)", "a / hypot(1, b)", "a / SQRT(1 + POWER(b, 2))"),
    **{name: (f"a {sign} b", f"double(a {sign} b)", f"float(a {sign} b)", f"IF(a {sign} b, 1, 0)") for name, sign in (
        ("greater", ">"), ("less", "<"), ("greaterequal", ">="), ("lessequal", "<="))},
    "cond": ("a > 0 ? b : 0", "b + zeros(size(a)); y(~(a > 0)) = 0", "a > 0 ? b : zero(b)", "IF(a > 0, b, 0)"),
    "logical_and": ("a > 0 && b > 0", "double(a > 0 & b > 0)", "float(a > 0 && b > 0)", "IF(AND(a > 0, b > 0), 1, 0)"),
    "logical_or": ("a > 0 || b > 0", "double(a > 0 | b > 0)", "float(a > 0 || b > 0)", "IF(OR(a > 0, b > 0), 1, 0)"),
}

# ── formulas that a loss may name, operators of the user's own as it were (``evaluate/loss_text.py``) ─

HUBER = "huber(a, b) = min(abs(a), b) * (abs(a) - 0.5 * min(abs(a), b))"  # P. J. Huber, 1964
LOSS_FORMULAS = (
    HUBER,
    "pinball(a, b) = max(b * a, (b - 1) * a)",  # R. Koenker and G. Bassett, 1978: of quantile b; a is y - f
    # abs(a) + log(1 + exp(-2 * abs(a))) - log(2), by powers of 2
    LOGCOSH := "logcosh(a) = abs(a) + 0.6931471805599453 * log2(0.5 + 0.5 * exp2(-2.8853900817779268 * abs(a)))",
)
LOSS_CUDA = {LOGCOSH: "log_cosh(a)"}  # CUDA C of a loss, shorter than that of its formula's operators

# ── sets of operators by name, for generated populations (``generate.py``) ───────────

SETS: dict[str, tuple[str, ...]] = {
    # exhaustive symbolic regression as in the thesis's data (Bartlett, Desmond, Ferreira, 2023)
    "esr": ("add", "sub", "mul", "div", "powabs", "inv", "sqr"),
    # the same authors' basis "core_maths", by which they count their functions
    "core_maths": ("add", "sub", "mul", "div", "powabs", "inv"),
    # what the thesis evaluates
    "thesis": ("add", "sub", "mul", "div", "pow", "abs", "log", "exp", "inv", "sqrt"),
    # common in genetic programming; defined on the whole real line but at isolated points
    "gp": ("add", "sub", "mul", "div", "sin", "cos", "exp", "logabs"),
    # what a search for a law begins with
    "search": ("add", "sub", "mul", "div", "sqr", "sqrt", "exp", "log", "sin", "cos", "tanh"),
}
OUTERMOST = "asin", "acos", "atan"  # may stand around a whole formula that is searched for: angles
INVERSES = (  # of functions of x1 that no operator undoes; of the logarithm and root of a size x1 is its square
    ("x1 ^ 3", "cbrt(x1)"), ("cbrt(x1)", "x1 ^ 3"), ("1 / x1 ^ 3", "cbrt(1 / x1)"), ("0.5 * log(x1)", "exp(2 * x1)"),
    ("sqrt(sqrt(x1))", "x1 ^ 4"), ("1 / sqrt(sqrt(x1))", "x1 ^ -4"))
