"""Vector values: the type that the formulas in ``simd_formulas`` compute with.

The CPU's ``kernels`` calls a formula with ``Vec`` arguments and
gets the instructions of a kernel.  Nothing is computed here; every operation writes a
line of LLVM's language (``llvm_writer``).

    >>> from exprkit.operators.llvm_writer import LEVELS, Code
    >>> code = Code(LEVELS["baseline"], "float", 4)
    >>> a = code.vec("%a")
    >>> (a * a).name, code.lines
    ('%t1', ['  %t1 = fmul <4 x float> %a, %a'])

There are no fast-math flags: compensated arithmetic must survive the compiler, and nan
and inf are results.
"""

from __future__ import annotations

import ctypes
import math
import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any

BITS = {"float": "i32", "double": "i64"}  # the whole numbers of the same size
REAL = {whole: real for real, whole in BITS.items()}
SIZE = {"float": 4, "double": 8, "i32": 4, "i64": 8}
SUFFIX = {"float": "f32", "double": "f64", "i32": "i32", "i64": "i64"}
MANTISSA = {"float": 23, "double": 52}  # stored bits
BIAS = {"float": 127, "double": 1023}

# C functions that formulas call a lane at a time, and those that LLVM calls where the
# processor has no instruction
C_FUNCTIONS = {name[1:] for name in (
    "@fmod", "@sin", "@cos", "@tan", "@fma", "@rint", "@floor", "@ceil",
)}  # fmt: skip


def literal(value: float, element: str) -> str:
    """A number as LLVM writes it: integers plainly, reals as the bits of a double."""
    if element[0] == "i":
        return str(int(value))
    if element == "float":
        value = ctypes.c_float(value).value
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _binary(real: str, whole: str) -> Callable[[Vec, Vec | float], Vec]:
    """The method that writes an instruction on two operands: its name for reals, for whole numbers."""
    return lambda a, b: a._new(f"{whole if a.element[0] == 'i' else real} {a.typed}, {a.like(b).name}")


def _reflected(operate: Callable[[Any, Any], Vec]) -> Callable[[Vec, float], Vec]:
    return lambda a, b: operate(a.like(b), a)


def _comparison(real: str, whole: str) -> Callable[[Vec, Vec | float], Vec]:
    def compare(a: Vec, b: Vec | float) -> Vec:
        condition = f"icmp {whole}" if a.element[0] == "i" else f"fcmp {real}"
        return a._new(f"{condition} {a.typed}, {a.like(b).name}", "i1")

    return compare


def _conversion(instruction: str, to: dict[str, str]) -> Callable[[Vec], Vec]:
    """The method that makes elements of the other kind, of the same size."""

    def convert(a: Vec) -> Vec:
        element = to[a.element]
        return a._new(f"{instruction} {a.typed} to {a.code.type(element)}", element)

    return convert


def _intrinsic(name: str) -> Callable[..., Vec]:
    """The method that calls one of LLVM's functions on vectors."""

    def call(a: Vec, *others: Vec | float) -> Vec:
        operands = [a.typed, *(a.like(b).typed for b in others)]
        function = f"{name}.v{a.code.lanes}{SUFFIX[a.element]}"
        return Vec(a.code, a.element, a.code.call(a.code.type(a.element), function, *operands))

    return call


class Vec:
    """A vector of float, double, i32, i64 or (from comparisons) i1, one number per lane.

    A Python number as an operand stands for itself in every lane, rounded to the
    vector's precision.
    """

    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("code", "element", "name")

    def __init__(self, code: Any, element: str, name: str) -> None:
        self.code = code  # the ``llvm_writer.Code`` that the lines are written to
        self.element = element
        self.name = name

    # ── what it is ──

    @property
    def typed(self) -> str:
        return f"{self.code.type(self.element)} {self.name}"

    @property
    def double(self) -> bool:
        return self.element == "double"

    def like(self, b: Vec | float) -> Vec:
        return b if isinstance(b, Vec) else self.code.constant(b, self.element)

    def _new(self, text: str, element: str | None = None) -> Vec:
        return Vec(self.code, element or self.element, self.code.let(text))

    # ── arithmetic ──

    __add__ = _binary("fadd", "add")
    __sub__ = _binary("fsub", "sub")
    __mul__ = _binary("fmul", "mul")
    __truediv__ = _binary("fdiv", "sdiv")

    __radd__, __rsub__ = _reflected(operator.add), _reflected(operator.sub)
    __rmul__, __rtruediv__ = _reflected(operator.mul), _reflected(operator.truediv)

    def __neg__(self) -> Vec:
        return self._new(f"fneg {self.typed}") if self.element[0] != "i" else self.like(0) - self

    def fma(self, b: Vec | float, c: Vec | float) -> Vec:
        """a * b + c, rounded once."""
        if self.element == "float" and not self.code.target.fma:
            return (self.widen() * self.like(b).widen() + self.like(c).widen()).narrow()
        return self._fma(b, c)

    def times_plus(self, b: Vec | float, c: Vec | float) -> Vec:
        """a * b + c, rounded once where an instruction does it."""
        return self.fma(b, c) if self.code.target.fma else self * b + c

    _fma = _intrinsic("llvm.fma")
    sqrt = _intrinsic("llvm.sqrt")
    rint = _intrinsic("llvm.rint")
    floor = _intrinsic("llvm.floor")
    ceil = _intrinsic("llvm.ceil")
    abs = __abs__ = _intrinsic("llvm.fabs")
    copysign = _intrinsic("llvm.copysign")  # the size of a with the sign of b

    def at_least(self, b: Vec | float) -> Vec:
        """The larger of a and b; a where either is nan."""
        return where(self < b, b, self)

    def at_most(self, b: Vec | float) -> Vec:
        """The smaller of a and b; a where either is nan."""
        return where(self > b, b, self)

    # ── comparisons (False with nan, except !=), masks and whole numbers ──

    __lt__ = _comparison("olt", "slt")
    __le__ = _comparison("ole", "sle")
    __gt__ = _comparison("ogt", "sgt")
    __ge__ = _comparison("oge", "sge")
    __eq__ = _comparison("oeq", "eq")  # type: ignore[assignment]
    __ne__ = _comparison("une", "ne")  # type: ignore[assignment]
    below = _comparison("", "ult")  # both taken as unsigned

    def isnan(self) -> Vec:
        return self != self

    __and__ = _binary("", "and")
    __or__ = _binary("", "or")
    __xor__ = _binary("", "xor")
    __lshift__ = _binary("", "shl")
    __rshift__ = _binary("", "ashr")  # copies of the sign come in from the left

    def __invert__(self) -> Vec:
        return self ^ -1

    # ── conversions ──

    bits = _conversion("bitcast", BITS)  # the same bits as a whole number
    real = _conversion("bitcast", REAL)  # the same bits as a real number
    to_real = _conversion("sitofp", REAL)  # the whole number a as a real one
    to_whole = _conversion("fptosi", BITS)  # the real number a, cut to a whole one; a must fit

    def widen(self) -> Vec:
        """float -> double or i32 -> i64, exactly."""
        wide = {"float": "double", "i32": "i64"}[self.element]
        return self._new(f"{'fpext' if wide == 'double' else 'sext'} {self.typed} to {self.code.type(wide)}", wide)

    def narrow(self) -> Vec:
        """double -> float, rounded; i64 -> i32, cut."""
        slim = {"double": "float", "i64": "i32"}[self.element]
        return self._new(f"{'fptrunc' if slim == 'float' else 'trunc'} {self.typed} to {self.code.type(slim)}", slim)

    def power_of_two(self) -> Vec:
        """2^a as a real number, for a whole number a within the normal exponents."""
        real = REAL[self.element]
        return ((self + BIAS[real]) << MANTISSA[real]).real()

    def scale(self, n: Vec) -> Vec:
        """a * 2^n for 0.5 <= a <= 2 and a whole-valued real n of any size; nan where n is nan.

        Where no instruction does it, n is added to the exponent; for results that might be
        subnormal or inf, 2^n is multiplied in two steps, so that they are rounded once.
        """
        if self.code.target.avx512:
            return self._native("mask.scalef", self, n, tail=["i32 4"])
        shift, most = MANTISSA[self.element], BIAS[self.element] - 1
        whole = (n + 1.5 * 2.0**shift).bits()
        in_range = n.abs() < most

        def steps() -> Vec:
            m = n.at_most(2 * most).at_least(-2 * most).to_whole()
            half = m >> 1
            return where(n.isnan(), n, self * half.power_of_two() * (m - half).power_of_two())

        return unless(~in_range, (self.bits() + (whole << shift)).real(), steps)

    def around_one(self) -> tuple[Vec, Vec]:
        """(k, m) with a = 2^k m, k whole and 3/4 <= m < 3/2.

        k is -inf for 0 and inf for inf; m is nan for a < 0, and k or m for nan.
        """
        if self.code.target.avx512:
            m = self._native("mask.getmant", self, middle=["i32 15"], tail=["i32 4"])
            k = self._native("mask.getexp", self, tail=["i32 4"])
            return where(m < 1.0, k + 1.0, k), m
        real, shift = self.element, MANTISSA[self.element]
        smallest = self.like(2.0 ** (1 - BIAS[real]))

        def normal(a: Vec) -> tuple[Vec, Vec]:
            k = (a.bits() - a.like(0.75).bits()) >> shift
            return k.to_real(), (a.bits() - (k << shift)).real()

        def special() -> tuple[Vec, Vec]:
            tiny = self < smallest
            k, m = normal(where(tiny, self * 2.0**64, self))
            k = where(self == 0.0, -math.inf, where(tiny, k - 64.0, where(self < math.inf, k, self)))
            return k, where(self < 0.0, math.nan, m)

        in_range = (self.bits() - smallest.bits()).below(self.like(math.inf).bits() - smallest.bits())
        return unless_both(~in_range, normal(self), special)

    # ── instructions that LLVM has no general name for ──

    def _native(self, instruction: str, *operands: Vec, middle: Sequence[str] = (), tail: Sequence[str] = ()) -> Vec:
        """A masked AVX-512 instruction, on one register after the other."""
        code, lanes = self.code, 64 // SIZE[self.element]
        kind = code.type(self.element, lanes)
        name = f"llvm.x86.avx512.{instruction}.{'pd' if self.double else 'ps'}.512"
        return code.join(
            [
                code.call(kind, name, *pieces, *middle, f"{kind} zeroinitializer", f"i{lanes} -1", *tail)
                for pieces in zip(*(code.split(a, lanes) for a in operands), strict=True)
            ],
            self.element,
        )

    def rsqrt14(self) -> Vec:
        """1 / sqrt(a) to 14 bits, with AVX-512."""
        return self._native("rsqrt14", self)

    def lookup(self, numbers: Sequence[float]) -> Vec:
        """The number that each lane of the whole-number vector a points at, by its low bits.

        Tables of 2 * 64 bytes stay in two registers with AVX-512 (one instruction), float
        ones in four with AVX2; elsewhere they are read from memory.
        """
        code, real = self.code, REAL[self.element]
        if len(numbers) * SIZE[real] == 128:
            if code.target.avx512:
                return self._permute(numbers, real)
            if code.target.width == 32 and real == "float":
                return self._permute_quarters(numbers)
        if len(numbers) == 8 and code.target.width == 32 and real == "float":
            return self._permute_eight(numbers)
        table, kind = code.table(numbers, real), code.type(real)
        index = self & (len(numbers) - 1)
        places = code.let(f"getelementptr {real}, ptr {table}, {index.typed}")
        name = f"llvm.masked.gather.v{code.lanes}{SUFFIX[real]}.v{code.lanes}p0"
        every = f"{code.type('i1')} splat (i1 true)"
        return Vec(
            code,
            real,
            code.call(kind, name, f"{code.type('ptr')} {places}", f"i32 {SIZE[real]}", every, f"{kind} poison"),
        )

    def _permute(self, numbers: Sequence[float], real: str) -> Vec:
        code, lanes = self.code, 64 // SIZE[real]
        kind = code.type(real, lanes)
        low, high = (
            f"{kind} <{', '.join(f'{real} {literal(v, real)}' for v in half)}>"
            for half in (numbers[:lanes], numbers[lanes:])
        )
        name = f"llvm.x86.avx512.vpermi2var.{'pd' if real == 'double' else 'ps'}.512"
        return code.join([code.call(kind, name, low, piece, high) for (piece,) in zip(code.split(self, lanes))], real)

    def _permute_quarters(self, numbers: Sequence[float]) -> Vec:
        quarters = [self._permute_eight(numbers[start : start + 8]) for start in range(0, 32, 8)]
        upper = (self & 8) != 0
        return where((self & 16) != 0, where(upper, quarters[3], quarters[2]), where(upper, quarters[1], quarters[0]))

    def _permute_eight(self, numbers: Sequence[float]) -> Vec:
        code, kind = self.code, "<8 x float>"
        eight = ", ".join(f"float {literal(v, 'float')}" for v in numbers)
        pieces = code.split(self, 8)
        return code.join(
            [code.call(kind, "llvm.x86.avx2.permps", f"{kind} <{eight}>", piece) for piece in pieces], "float"
        )

    def each(self, function: str, *others: Vec) -> Vec:
        """A C function ("@erf"), called for one lane after the other (slow)."""
        code, real, kind = self.code, self.element, self.code.type(self.element)
        function = function[1:] + ("" if self.double else "f")
        arrays = [code.room(kind) for _ in (self, *others)]
        for a, array in zip((self, *others), arrays, strict=True):
            code.line(f"store {a.typed}, ptr {array}")

        def write_lane(i: str) -> None:
            places = [code.let(f"getelementptr {real}, ptr {array}, i64 {i}") for array in arrays]
            numbers = [f"{real} " + code.let(f"load {real}, ptr {place}") for place in places]
            code.line(f"store {real} {code.call(real, function, *numbers)}, ptr {places[0]}")

        code.loop(0, code.lanes, 1, write_lane)
        return Vec(code, real, code.let(f"load {kind}, ptr {arrays[0]}"))


def where(mask: Vec, a: Vec | float, b: Vec | float) -> Vec:
    """a in the lanes where the mask is set, b in the others."""
    a = a if isinstance(a, Vec) else b.like(a)  # type: ignore[union-attr]
    return a._new(f"select {mask.typed}, {a.typed}, {a.like(b).typed}")


def unless(rare: Vec, y: Vec, slow_path: Callable[[], Vec]) -> Vec:
    """y, or ``slow_path()`` for all lanes where any lane of the mask ``rare`` is set.

    A branch that is seldom taken: what the slow path computes costs nothing otherwise.
    """
    return _branch(rare.code, rare.code.any_lane(rare), [y], lambda: [slow_path()])[0]


def unless_both(rare: Vec, y: tuple[Vec, Vec], slow_path: Callable[[], tuple[Vec, Vec]]) -> tuple[Vec, Vec]:
    """``unless`` for two results of one branch."""
    first, second = _branch(rare.code, rare.code.any_lane(rare), y, slow_path)
    return first, second


def unless_finite(y: Vec, parts: Sequence[Vec], slow_path: Callable[[], Vec]) -> Vec:
    """y, or ``slow_path()`` in the lanes where y or one of the parts is inf or nan."""
    code, lanes = y.code, y.code.lanes
    register = min(lanes, code.target.width // SIZE[y.element])
    names = [operand.split("> ")[1] for a in (*parts, y) for operand in code.split(a, register)]
    code.lanes = register
    any_lane = code.any_lane(_zero_or_nan([Vec(code, y.element, name) for name in names]).isnan())
    code.lanes = lanes

    def slowly() -> list[Vec]:
        return [where(_zero_or_nan([y, *parts]).isnan(), slow_path(), y)]

    return _branch(code, any_lane, [y], slowly)[0]


def _zero_or_nan(numbers: Sequence[Vec]) -> Vec:
    """0, or nan where one of the numbers is inf or nan."""
    total = numbers[0] * 0.0
    for a in numbers[1:]:
        total = a.times_plus(0.0, total)
    return total


def _branch(code: Any, any_lane: str, y: Sequence[Vec], slow_path: Callable[[], Sequence[Vec]]) -> list[Vec]:
    before, slow, done = code.block, code.fresh("rare"), code.fresh("done")
    code.line(f"br i1 {any_lane}, label %{slow}, label %{done}, !prof !0")
    code.label(slow)
    results = slow_path()
    code.line(f"br label %{done}")
    end = code.block
    code.label(done)
    return [
        a._new(f"phi {code.type(a.element)} [ {a.name}, %{before} ], [ {b.name}, %{end} ]")
        for a, b in zip(y, results, strict=True)
    ]
