"""A writer of LLVM IR, line by line, and the processors to write it for.

A ``Code`` holds one function; the vectors in it are ``Vec`` (``simd_values``), the loops and
addresses are written here.

    >>> from exprkit.operators.llvm_writer import LEVELS, Code
    >>> code = Code(LEVELS["avx2"], "double", 4)
    >>> code.store(code.load("%a"), "%y")
    >>> print(code.function("copy", "ptr %y, ptr %a"))
    define void @copy(ptr %y, ptr %a) nounwind {
    entry:
      %t1 = load <4 x double>, ptr %a, align 8
      store <4 x double> %t1, ptr %y, align 8
    }
    <BLANKLINE>
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha1

from exprkit.operators.simd_values import SIZE, SUFFIX, Vec, literal


@dataclass(frozen=True)
class Target:
    """A processor to write code for; ``width`` is the size of one vector register in bytes."""

    triple: str
    cpu: str
    features: str
    width: int
    avx512: bool = False
    fma: bool = True


LEVELS = {  # of features
    "avx512": Target("x86_64", "x86-64-v4", "", 64, avx512=True),
    "avx2": Target("x86_64", "x86-64-v3", "", 32),
    "baseline": Target("x86_64", "x86-64", "", 16, fma=False),
    "aarch64": Target("aarch64-linux-gnu", "generic", "", 16),
}


class Code:
    """Writes the body of one function for vectors of ``lanes`` x ``real`` (float or double)."""

    def __init__(self, target: Target, real: str, lanes: int) -> None:
        self.target = target
        self.real = real
        self.lanes = lanes
        self.lines: list[str] = []
        self.declarations: set[str] = set()
        self.rooms: list[str] = []
        self.block = "entry"
        self._count = 0

    # ── text ──

    def type(self, element: str, lanes: int | None = None) -> str:
        return f"<{lanes or self.lanes} x {element}>"

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def let(self, text: str) -> str:
        """Give the instruction ``text`` a name."""
        name = self.fresh("%t")
        self.lines.append(f"  {name} = {text}")
        return name

    def fresh(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    def loop(self, first: str | int, end: str | int, step: int, body: Callable[[str], object]) -> None:
        """for (i = first; i < end; i += step) body(i), where ``end - first`` is whole steps."""

        def without_totals(i: str, _: list[Vec]) -> list[Vec]:
            body(i)
            return []

        self.folds(first, end, step, without_totals, [])

    def folds(
        self,
        first: str | int,
        end: str | int,
        step: int,
        body: Callable[[str, list[Vec]], list[Vec]],
        totals: list[Vec],
        last: Callable[[list[Vec]], Vec] | None = None,
    ) -> list[Vec]:
        """``loop`` with totals = body(i, totals); it ends early where a lane of ``last(totals)`` is set."""
        before, head, done = self.block, self.fresh("loop"), self.fresh("done")
        i, after = self.fresh("%i"), self.fresh("%i")
        running = [Vec(self, total.element, self.fresh("%total")) for total in totals]
        is_inside = self.let(f"icmp ult i64 {first}, {end}")
        self.line(f"br i1 {is_inside}, label %{head}, label %{done}")
        self.label(head)
        start = len(self.lines)
        new = body(i, running)
        merges = [
            f"phi {self.type(a.element)} [ {a.name}, %{before} ], [ {b.name}, %{self.block} ]"
            for a, b in zip(totals, new, strict=True)
        ]
        self.lines[start:start] = [
            f"  {i} = phi i64 [ {first}, %{before} ], [ {after}, %{self.block} ]",
            *(f"  {a.name} = {merge}" for a, merge in zip(running, merges, strict=True)),
        ]
        self.line(f"{after} = add i64 {i}, {step}")
        more = self.let(f"icmp ult i64 {after}, {end}")
        if last is not None:
            more = self.let(f"and i1 {more}, {self.let(f'xor i1 {self.any_lane(last(new))}, true')}")
        self.line(f"br i1 {more}, label %{head}, label %{done}")
        self.label(done)
        return [Vec(self, a.element, self.let(merge)) for a, merge in zip(totals, merges, strict=True)]

    def function(self, name: str, parameters: str, result: str = "void") -> str:
        """The whole text of the function."""
        body = ["entry:", *self.rooms, *self.lines]
        return "\n".join([f"define {result} @{name}({parameters}) nounwind {{", *body, "}\n"])

    def call(self, result: str, function: str, *operands: str) -> str:
        """Call ``function`` with operands written as "type value" and give the result a name."""
        return self.let(self._call(result, function, *operands))

    def run(self, function: str, *operands: str) -> None:
        """Call a function without a result."""
        self.line(self._call("void", function, *operands))

    def _call(self, result: str, function: str, *operands: str) -> str:
        types = (o[: o.index(">") + 1] if o[0] == "<" else o.split()[0] for o in operands)
        self.declarations.add(f"declare {result} @{function}({', '.join(types)})")
        return f"call {result} @{function}({', '.join(operands)})"

    # ── vectors ──

    def vec(self, name: str, element: str | None = None) -> Vec:
        return Vec(self, element or self.real, name)

    def constant(self, value: float, element: str | None = None) -> Vec:
        element = element or self.real
        return self.vec(f"splat ({element} {literal(value, element)})", element)

    def load(self, address: str, element: str | None = None) -> Vec:
        """The vector at an address aligned to its elements only."""
        element = element or self.real
        return self.vec(self.let(f"load {self.type(element)}, ptr {address}, align {SIZE[element]}"), element)

    def store(self, a: Vec, address: str, how: str = "") -> None:
        self.line(f"store {a.typed}, ptr {address}, {how or f'align {SIZE[a.element]}'}")

    def broadcast(self, scalar: str, element: str | None = None) -> Vec:
        element = element or self.real
        kind = self.type(element)
        first = self.let(f"insertelement {kind} poison, {element} {scalar}, i64 0")
        every = self.let(f"shufflevector {kind} {first}, {kind} poison, {self.type('i32')} zeroinitializer")
        return self.vec(every, element)

    def scalar(self, address: str) -> Vec:
        """The number at an address, in every lane."""
        return self.broadcast(self.let(f"load {self.real}, ptr {address}"))

    def first_lanes(self, count: str) -> Vec:
        """The mask of the lanes 0 to count - 1."""
        numbers = ", ".join(f"i64 {i}" for i in range(self.lanes))
        return Vec(self, "i64", f"<{numbers}>").below(self.broadcast(count, "i64"))

    def load_part(self, address: str, mask: Vec) -> Vec:
        """The numbers at an address; 0, and nothing read, where the mask is not set."""
        kind = self.type(self.real)
        name = f"llvm.masked.load.v{self.lanes}{SUFFIX[self.real]}.p0"
        there = f"ptr {address}", f"i32 {SIZE[self.real]}"
        return self.vec(self.call(kind, name, *there, mask.typed, f"{kind} zeroinitializer"))

    def store_part(self, a: Vec, address: str, mask: Vec) -> None:
        name = f"llvm.masked.store.v{self.lanes}{SUFFIX[self.real]}.p0"
        self.run(name, a.typed, f"ptr {address}", f"i32 {SIZE[self.real]}", mask.typed)

    def any_lane(self, mask: Vec) -> str:
        """Whether a lane of the mask is set."""
        return self.call("i1", f"llvm.vector.reduce.or.v{self.lanes}i1", mask.typed)

    def total(self, a: Vec) -> str:
        """The sum of all lanes as a double, added in halves."""
        every, a = self.lanes, self.in_lanes(a if a.double else a.widen(), 1, operator.add)
        self.lanes = every
        return self.let(f"extractelement <1 x double> {a.name}, i64 0")

    def in_lanes(self, a: Vec, lanes: int, combine: Callable[[Vec, Vec], Vec]) -> Vec:
        """The halves of a vector combined, and theirs, down to so many lanes, which the code then has."""
        while self.lanes > lanes:
            halves = self.split(a, self.lanes // 2)
            self.lanes //= 2
            a = combine(*(self.vec(half.split()[-1], a.element) for half in halves))
        return a

    def store_first(self, a: Vec, address: str) -> None:
        """Write the number of lane 0 only."""
        number = self.let(f"extractelement {a.typed}, i64 0")
        self.line(f"store {a.element} {number}, ptr {address}")

    def place(self, base: str, *steps: str | int) -> str:
        """The address ``base + steps``, counted in numbers."""
        for step in steps:
            base = base if step in (0, "0") else self.let(f"getelementptr {self.real}, ptr {base}, i64 {step}")
        return base

    def split(self, a: Vec, lanes: int) -> list[str]:
        """The vector as operands of ``lanes`` each."""
        if lanes == self.lanes:
            return [a.typed]
        kind = self.type(a.element, lanes)
        return [
            f"{kind} " + self.let(f"shufflevector {a.typed}, {self.type(a.element)} poison, {self._places(i, lanes)}")
            for i in range(0, self.lanes, lanes)
        ]

    def join(self, names: list[str], element: str) -> Vec:
        """The opposite of ``split``; the number of pieces is a power of two."""
        lanes = self.lanes // len(names)
        while len(names) > 1:
            kind = self.type(element, lanes)
            names = [
                self.let(f"shufflevector {kind} {low}, {kind} {high}, {self._places(0, 2 * lanes)}")
                for low, high in zip(names[::2], names[1::2], strict=True)
            ]
            lanes *= 2
        return Vec(self, element, names[0])

    def _places(self, start: int, lanes: int) -> str:
        return f"<{lanes} x i32> <{', '.join(f'i32 {i}' for i in range(start, start + lanes))}>"

    def table(self, numbers: Sequence[float], real: str) -> str:
        """A constant array of the module."""
        text = f"[{len(numbers)} x {real}] [{', '.join(f'{real} {literal(v, real)}' for v in numbers)}]"
        name = "@table_" + sha1(text.encode()).hexdigest()[:16]
        self.declarations.add(f"{name} = private unnamed_addr constant {text}, align 64")
        return name

    def room(self, kind: str) -> str:
        """Memory for one value, reserved when the function is entered."""
        name = self.fresh("%room")
        self.rooms.append(f"  {name} = alloca {kind}, align 64")
        return name
