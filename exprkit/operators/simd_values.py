"""Vectors of numbers: what the formulas in ``simd_formulas`` compute with.

The CPU's ``kernels`` calls a formula with ``Vec`` arguments and
gets the instructions of a kernel.  Nothing is computed here; every operation writes a
line of LLVM's language (``llvm_writer``).

    >>> from exprkit.operators.llvm_writer import Code, target
    >>> code = Code(target("baseline"), "float", 4)
    >>> a = code.vec("%a")
    >>> (a * a).name, code.lines
    ('%t1', ['  %t1 = fmul <4 x float> %a, %a'])

There are no fast-math flags: compensated arithmetic must survive the compiler, and nan
and inf are results.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol

BITS = {"float": "i32", "double": "i64"}  # the whole numbers of the same size
REAL = {whole: real for real, whole in BITS.items()}
SIZE = {"float": 4, "double": 8, "i32": 4, "i64": 8}
SUFFIX = {"float": "f32", "double": "f64", "i32": "i32", "i64": "i64"}
MANTISSA = {"float": 23, "double": 52}  # stored bits
BIAS = {"float": 127, "double": 1023}

# C functions that formulas call a lane at a time, and those that LLVM calls where the
# processor has no instruction
C_FUNCTIONS = {name[1:] for name in (
    "@fmod", "@sin", "@cos", "@tan", "@fma", "@rint", "@floor", "@ceil", "@trunc",
)}  # fmt: skip


def literal(value: float, element: str) -> str:
    """A number as LLVM writes it: integers plainly, reals as the bits of a double."""
    if element[0] == "i":
        return str(int(value))
    if element == "float" and math.isfinite(value):
        (value,) = struct.unpack("<f", struct.pack("<f", value))
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


class Writer(Protocol):
    """What writes the lines: ``llvm_writer.Code``."""

    lanes: int
    target: Any  # llvm_writer.Target
    block: str

    def type(self, element: str, lanes: int | None = None) -> str: ...
    def line(self, text: str) -> None: ...
    def let(self, text: str) -> str: ...
    def fresh(self, stem: str) -> str: ...
    def label(self, name: str) -> None: ...
    def loop(self, first: str | int, end: str | int, step: int, body: Callable[[str], None]) -> None: ...
    def call(self, result: str, function: str, *operands: str) -> str: ...
    def constant(self, value: float, element: str | None = None) -> Vec: ...
    def split(self, a: Vec, lanes: int) -> list[str]: ...
    def join(self, names: list[str], element: str) -> Vec: ...
    def table(self, numbers: Sequence[float], real: str) -> str: ...
    def room(self, kind: str) -> str: ...
    def place(self, base: str, *steps: str | int) -> str: ...


class Vec:
    """A vector of float, double, i32, i64 or (from comparisons) i1, one number a lane.

    A Python number as an operand stands for itself in every lane, rounded to the
    vector's precision.
    """

    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("code", "element", "name")

    def __init__(self, code: Writer, element: str, name: str) -> None:
        self.code = code
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

    def _binary(self, real: str, whole: str, b: Vec | float) -> Vec:
        operation = whole if self.element[0] == "i" else real
        return self._new(f"{operation} {self.typed}, {self.like(b).name}")

    def _compare(self, real: str, whole: str, b: Vec | float) -> Vec:
        operation = f"icmp {whole}" if self.element[0] == "i" else f"fcmp {real}"
        return self._new(f"{operation} {self.typed}, {self.like(b).name}", "i1")

    def _intrinsic(self, name: str, *others: Vec | float) -> Vec:
        kind = self.code.type(self.element)
        operands = [self.typed, *(self.like(b).typed for b in others)]
        text = self.code.call(kind, f"{name}.v{self.code.lanes}{SUFFIX[self.element]}", *operands)
        return Vec(self.code, self.element, text)

    # ── arithmetic ──

    def __add__(self, b: Vec | float) -> Vec:
        return self._binary("fadd", "add", b)

    def __sub__(self, b: Vec | float) -> Vec:
        return self._binary("fsub", "sub", b)

    def __mul__(self, b: Vec | float) -> Vec:
        return self._binary("fmul", "mul", b)

    def __truediv__(self, b: Vec | float) -> Vec:
        return self._binary("fdiv", "sdiv", b)

    def __radd__(self, b: float) -> Vec:
        return self.like(b) + self

    def __rsub__(self, b: float) -> Vec:
        return self.like(b) - self

    def __rmul__(self, b: float) -> Vec:
        return self.like(b) * self

    def __rtruediv__(self, b: float) -> Vec:
        return self.like(b) / self

    def __neg__(self) -> Vec:
        return self._new(f"fneg {self.typed}") if self.element[0] != "i" else self.like(0) - self

    def fma(self, b: Vec | float, c: Vec | float) -> Vec:
        """a * b + c, rounded once."""
        if self.element == "float" and not self.code.target.fma:
            return (self.widen() * self.like(b).widen() + self.like(c).widen()).narrow()
        return self._intrinsic("llvm.fma", b, c)

    def sqrt(self) -> Vec:
        return self._intrinsic("llvm.sqrt")

    def rint(self) -> Vec:
        return self._intrinsic("llvm.rint")

    def floor(self) -> Vec:
        return self._intrinsic("llvm.floor")

    def ceil(self) -> Vec:
        return self._intrinsic("llvm.ceil")

    def trunc(self) -> Vec:
        return self._intrinsic("llvm.trunc")

    def abs(self) -> Vec:
        return self._intrinsic("llvm.fabs")

    def copysign(self, b: Vec | float) -> Vec:
        """The size of a with the sign of b."""
        return self._intrinsic("llvm.copysign", b)

    def at_least(self, b: Vec | float) -> Vec:
        """The larger of a and b; a where either is nan."""
        return where(self < b, b, self)

    def at_most(self, b: Vec | float) -> Vec:
        """The smaller of a and b; a where either is nan."""
        return where(self > b, b, self)

    # ── comparisons (False with nan, except !=), masks and whole numbers ──

    def __lt__(self, b: Vec | float) -> Vec:
        return self._compare("olt", "slt", b)

    def __le__(self, b: Vec | float) -> Vec:
        return self._compare("ole", "sle", b)

    def __gt__(self, b: Vec | float) -> Vec:
        return self._compare("ogt", "sgt", b)

    def __ge__(self, b: Vec | float) -> Vec:
        return self._compare("oge", "sge", b)

    def __eq__(self, b: Vec | float) -> Vec:  # type: ignore[override]
        return self._compare("oeq", "eq", b)

    def __ne__(self, b: Vec | float) -> Vec:  # type: ignore[override]
        return self._compare("une", "ne", b)

    def below(self, b: Vec | int) -> Vec:
        """a < b, both taken as unsigned."""
        return self._compare("", "ult", b)

    def isnan(self) -> Vec:
        return self != self

    def __and__(self, b: Vec | int) -> Vec:
        return self._binary("", "and", b)

    def __or__(self, b: Vec | int) -> Vec:
        return self._binary("", "or", b)

    def __xor__(self, b: Vec | int) -> Vec:
        return self._binary("", "xor", b)

    def __invert__(self) -> Vec:
        return self ^ -1

    def __lshift__(self, n: Vec | int) -> Vec:
        return self._binary("", "shl", n)

    def __rshift__(self, n: Vec | int) -> Vec:
        """Arithmetic shift: copies of the sign come in from the left."""
        return self._binary("", "ashr", n)

    # ── conversions ──

    def bits(self) -> Vec:
        """The same bits as a whole number."""
        whole = BITS[self.element]
        return self._new(f"bitcast {self.typed} to {self.code.type(whole)}", whole)

    def real(self) -> Vec:
        """The same bits as a real number."""
        real = REAL[self.element]
        return self._new(f"bitcast {self.typed} to {self.code.type(real)}", real)

    def to_real(self) -> Vec:
        """The whole number a as a real one."""
        real = REAL[self.element]
        return self._new(f"sitofp {self.typed} to {self.code.type(real)}", real)

    def to_whole(self) -> Vec:
        """The real number a, cut to a whole one; a must fit."""
        whole = BITS[self.element]
        return self._new(f"fptosi {self.typed} to {self.code.type(whole)}", whole)

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
        usual = n.abs() < most

        def steps() -> Vec:
            m = n.at_most(2 * most).at_least(-2 * most).to_whole()
            half = m >> 1
            return where(n.isnan(), n, self * half.power_of_two() * (m - half).power_of_two())

        return unless(~usual, (self.bits() + (whole << shift)).real(), steps)

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

        usual = (self.bits() - smallest.bits()).below(self.like(math.inf).bits() - smallest.bits())
        return unless_both(~usual, normal(self), special)

    # ── instructions that LLVM has no general name for ──

    def _native(self, instruction: str, *operands: Vec, middle: Sequence[str] = (), tail: Sequence[str] = ()) -> Vec:
        """A masked AVX-512 instruction, on one register after the other."""
        code, lanes = self.code, 64 // SIZE[self.element]
        kind = code.type(self.element, lanes)
        name = f"llvm.x86.avx512.{instruction}.{'pd' if self.double else 'ps'}.512"
        return code.join([
            code.call(kind, name, *pieces, *middle, f"{kind} zeroinitializer", f"i{lanes} -1", *tail)
            for pieces in zip(*(code.split(a, lanes) for a in operands), strict=True)
        ], self.element)

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
        table, kind = code.table(numbers, real), code.type(real)
        index = self & (len(numbers) - 1)
        places = code.let(f"getelementptr {real}, ptr {table}, {index.typed}")
        name = f"llvm.masked.gather.v{code.lanes}{SUFFIX[real]}.v{code.lanes}p0"
        every = f"{code.type('i1')} splat (i1 true)"
        return Vec(code, real, code.call(
            kind, name, f"{code.type('ptr')} {places}", f"i32 {SIZE[real]}", every, f"{kind} poison"))

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
        code, kind = self.code, "<8 x float>"
        found = []
        for start in range(0, 32, 8):
            quarter = ", ".join(f"float {literal(v, 'float')}" for v in numbers[start : start + 8])
            found.append(code.join([
                code.call(kind, "llvm.x86.avx2.permps", f"{kind} <{quarter}>", piece) for piece in code.split(self, 8)
            ], "float"))
        upper = (self & 8) != 0
        return where((self & 16) != 0, where(upper, found[3], found[2]), where(upper, found[1], found[0]))

    def each(self, function: str, *others: Vec) -> Vec:
        """A C function ("@erf"), called for one lane after the other (slow)."""
        code, real, kind = self.code, self.element, self.code.type(self.element)
        function = function[1:] + ("" if self.double else "f")
        rooms = [code.room(kind) for _ in (self, *others)]
        for a, room in zip((self, *others), rooms, strict=True):
            code.line(f"store {a.typed}, ptr {room}")

        def one(i: str) -> None:
            places = [code.place(room, i) for room in rooms]
            numbers = [f"{real} " + code.let(f"load {real}, ptr {place}") for place in places]
            code.line(f"store {real} {code.call(real, function, *numbers)}, ptr {places[0]}")

        code.loop(0, code.lanes, 1, one)
        return Vec(code, real, code.let(f"load {kind}, ptr {rooms[0]}"))


def where(mask: Vec, a: Vec | float, b: Vec | float) -> Vec:
    """a in the lanes where the mask is set, b in the others."""
    a = a if isinstance(a, Vec) else b.like(a)  # type: ignore[union-attr]
    return a._new(f"select {mask.typed}, {a.typed}, {a.like(b).typed}")


def unless(rare: Vec, y: Vec, mend: Callable[[], Vec]) -> Vec:
    """y, or ``mend()`` for all lanes where any lane of the mask ``rare`` is set.

    A branch that is seldom taken: what ``mend`` computes costs nothing otherwise.
    """
    return _choose(rare, [y], lambda: [mend()])[0]


def unless_both(rare: Vec, y: tuple[Vec, Vec], mend: Callable[[], tuple[Vec, Vec]]) -> tuple[Vec, Vec]:
    """``unless`` for two results of one branch."""
    first, second = _choose(rare, y, mend)
    return first, second


def _choose(rare: Vec, y: Sequence[Vec], mend: Callable[[], Sequence[Vec]]) -> list[Vec]:
    code, kind = rare.code, rare.code.type("i1")
    found = code.call("i1", f"llvm.vector.reduce.or.v{code.lanes}i1", f"{kind} {rare.name}")
    before, slow, done = code.block, code.fresh("rare"), code.fresh("done")
    code.line(f"br i1 {found}, label %{slow}, label %{done}, !prof !0")
    code.label(slow)
    mended = mend()
    code.line(f"br label %{done}")
    end = code.block
    code.label(done)
    return [
        a._new(f"phi {code.type(a.element)} [ {a.name}, %{before} ], [ {b.name}, %{end} ]")
        for a, b in zip(y, mended, strict=True)
    ]
