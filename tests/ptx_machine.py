"""A machine for PTX text on NumPy: what a kernel does, read from its text, no GPU needed.

All threads of a block run as vectors.  Those with the lowest place in the code go first, so
that threads which took different branches meet again.  The machine is strict: an unknown
instruction, modifier or name, a read of a register that was never written, and an address that
is not aligned or outside what was allocated are errors.

The hardware's approximations (ex2, lg2, sin, ...) are computed exactly and rounded: results
agree within tolerance.  All other instructions give the bits that the PTX manual defines.

    >>> machine = Machine('''.version 6.4 .target sm_75 .address_size 64
    ... .entry double(.param .u64 at) { .reg .u64 %a; .reg .f32 %x; .reg .b32 %t;
    ... ld.param.u64 %a, [at]; mov.u32 %t, %tid.x; mad.wide.u32 %a, %t, 4, %a;
    ... ld.global.f32 %x, [%a]; add.rn.f32 %x, %x, %x; st.global.f32 [%a], %x; ret; }''')
    >>> place = machine.put(np.array([1, 2], np.float32))
    >>> machine.launch("double", 1, 2, place)
    >>> machine.get(place, np.float32, 2)
    array([2., 4.], dtype=float32)
"""

from __future__ import annotations

import bisect
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

from exprkit.backends.transpiler import assembler

TYPES = {
    **{f"{k}{n}": np.dtype(f"{'i' if k == 's' else 'u'}{n // 8}") for k in "sub" for n in (8, 16, 32, 64)},
    "f32": np.dtype("f4"),
    "f64": np.dtype("f8"),
    "pred": np.dtype("?"),
}
BITS = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
WARP = 32
STACK = 4096  # bytes of local memory of a thread
MOST_STEPS = 50_000  # of a kernel that ends: operators take 10,036 at most
CACHING = {"ca", "cg", "cs", "cv", "lu", "wb", "wt", "nc", "volatile", "relaxed", "weak"}  # no meaning for values


class PtxError(Exception):
    """The text is not what this machine runs, or does what no kernel may do."""


@intrinsic
def _llvm_fma(context, a, b, c):
    return a(a, a, a), lambda context, builder, signature, given: builder.fma(*given)


@numba.vectorize([types.float32(*[types.float32] * 3), types.float64(*[types.float64] * 3)])
def fma(a, b, c):
    """a * b + c rounded once."""
    return _llvm_fma(a, b, c)


# ── text ─────────────────────────────────────────────────────────────────────────────


class Operand(NamedTuple):
    kind: str  # register, number, vector, memory, address, special, names
    value: Any
    offset: int = 0


@dataclass
class Instruction:
    text: str
    name: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: tuple[Operand, bool] | None
    run: Any


@dataclass
class Variable:
    space: str
    size: int
    align: int
    data: bytes = b""
    offset: int = 0


@dataclass
class Function:
    name: str
    entry: bool
    results: list[str]
    parameters: list[str]
    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    registers: dict[str, np.dtype] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    tables: dict[str, list[str]] = field(default_factory=dict)  # of branch targets


_STATEMENT = re.compile(r"\s*(?:(?P<label>[\w$%.]+)\s*:|(?P<brace>[{}])|(?P<text>[^;]+);)")
_HEAD = re.compile(
    r"\s*(?:\.(?:visible|weak|extern)\s+)*\.(entry|func)\s*(?:\(([^)]*)\))?\s*([\w$]+)\s*(?:\(([^)]*)\))?([^{;]*)([{;])"
)
_VARIABLE = re.compile(
    r"(?:\.(?:visible|extern)\s+)?\.(param|local|shared|global|const)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)"
    r"(?:\[(\d*)\])?(?:\s*=\s*\{?([^}]*)\}?)?$"
)
_SPECIAL = re.compile(r"%(?:n?tid|n?ctaid|laneid|warpid)(?:\.[xyz])?$")
_LIMITS = re.compile(r"(?:\s*\.(?:maxntid|reqntid|minnctapersm|maxnreg|maxnctapersm)\s+\d+(?:\s*,\s*\d+)*)*\s*$")


def parse(text: str) -> tuple[dict[str, Function], dict[str, Variable]]:
    """The functions and module variables of a module."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
    functions: dict[str, Function] = {}
    variables: dict[str, Variable] = {}
    at = 0
    while match := re.compile(r"\s*\.(version\s+\d+\.\d+|target\s+[\w, ]+|address_size\s+64)(?=\s|$)").match(text, at):
        at = match.end()
    while text[at:].strip():
        if head := _HEAD.match(text, at):
            at = head.end()
            if head[6] == "{":
                end = _closing(text, at)
                functions[head[3]] = _function(head, text[at:end], variables)
                at = end + 1
            continue
        end = text.index(";", at)
        name, variable = _variable(" ".join(text[at:end].split()))
        variables[name] = variable
        at = end + 1
    return functions, variables


def _closing(text: str, at: int) -> int:
    depth = 1
    while depth:
        at = re.compile(r"[{}]").search(text, at).end()
        depth += 1 if text[at - 1] == "{" else -1
    return at - 1


def _variable(text: str) -> tuple[str, Variable]:
    match = _VARIABLE.fullmatch(text)
    if not match:
        raise PtxError(f"not a declaration: {text}")
    space, align, kind, name, many, data = match.groups()
    size = TYPES[kind].itemsize
    total = size * int(many or 0) if many is not None else size
    values = [_number(x, kind) for x in data.split(",")] if data else []
    return name, Variable(space, total, int(align or size), np.array(values, TYPES[kind]).tobytes())


def _function(head: re.Match, body: str, module: dict[str, Variable]) -> Function:
    if not _LIMITS.match(head[5]):
        raise PtxError(f"not known of a function: {head[5].strip()}")
    function = Function(head[3], head[1] == "entry", [], [])
    scopes: list[dict[str, str]] = [{**dict.fromkeys(module, ""), "": "0"}]
    n_scopes = 1
    for names, given in ((function.results, head[2]), (function.parameters, head[4])):
        for part in (given or "").split(","):
            if part.strip():
                name, variable = _variable(" ".join(part.split()))
                function.variables[name] = variable
                scopes[0][name] = name
                names.append(name)
    pending: list[tuple[str, list[dict[str, str]]]] = []
    for match in _STATEMENT.finditer(body):
        if match["label"]:
            label = f"{match['label']}@{scopes[-1]['']}"
            if label in function.labels:
                raise PtxError(f"label {match['label']} twice in {head[3]}")
            function.labels[label] = len(pending)
            scopes[-1][f":{match['label']}"] = label
        elif match["brace"] == "{":
            scopes.append({"": str(n_scopes)})
            n_scopes += 1
        elif match["brace"]:
            scopes.pop()
        else:
            _statement(" ".join(match["text"].split()), function, scopes, pending)
    function.code = [_instruction(text, scopes, function) for text, scopes in pending]
    for name, (labels, chain) in list(function.tables.items()):
        function.tables[name] = [_find(f":{label}", chain) for label in labels]
    return function


def _statement(text: str, function: Function, scopes: list, pending: list) -> None:
    if text.startswith(".reg"):
        _, kind, names = text.split(" ", 2)
        for name in names.split(","):
            stem, _, many = name.strip().rstrip(">").partition("<")
            for full in [f"{stem}{i}" for i in range(int(many))] if many else [stem]:
                scopes[-1][full] = f"{full}@{scopes[-1]['']}"
                function.registers[scopes[-1][full]] = TYPES[kind[1:]]
    elif text.startswith(".branchtargets"):
        label = list(function.labels)[-1]
        function.tables[label] = ([x.strip() for x in text.split(" ", 1)[1].split(",")], list(scopes))
    elif text.startswith(".pragma"):
        return
    elif text.startswith("."):
        name, variable = _variable(text)
        scopes[-1][name] = f"{name}@{scopes[-1]['']}"
        if variable.space == "local":
            used = sum(v.size + 16 for v in function.variables.values() if v.space == "local")
            variable.offset = -(-used // 16) * 16
        function.variables[scopes[-1][name]] = variable
    else:
        pending.append((text, list(scopes)))


def _find(name: str, scopes: list[dict[str, str]]) -> str | None:
    return next((scope[name] or name for scope in reversed(scopes) if name in scope), None)


def _instruction(text: str, scopes: list, function: Function) -> Instruction:
    rest, guard = text, None
    if text.startswith("@"):
        condition, _, rest = text[1:].partition(" ")
        guard = _operand(condition.lstrip("!"), scopes), condition.startswith("!")
    opcode, _, given = rest.partition(" ")
    name, *modifiers = opcode.split(".")
    run = INSTRUCTIONS.get(name)
    if run is None:
        raise PtxError(f"unknown instruction: {text}")
    operands = tuple(_operand(x, scopes) for x in _split(given))
    return Instruction(text, name, tuple(modifiers), operands, guard, run)


def _split(text: str) -> list[str]:
    """At commas that stand in no brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "{[(") - (c in "}])")
        if c == "," and not depth:
            parts.append(text[start:i].strip())
            start = i + 1
    return [*parts, text[start:].strip()] if text.strip() else []


def _operand(text: str, scopes: list) -> Operand:
    if text[0] == "{":
        return Operand("vector", tuple(_operand(x, scopes) for x in _split(text[1:-1])))
    if text[0] == "(":
        return Operand("names", tuple(_operand(x, scopes) for x in _split(text[1:-1])))
    if text[0] == "[":
        base, sign, offset = re.fullmatch(r"\[\s*([\w$%]+)\s*(?:([+-])\s*(-?\w+)\s*)?\]", text).groups()
        return Operand("memory", _operand(base, scopes), int(offset, 0) * (-1 if sign == "-" else 1) if sign else 0)
    if _SPECIAL.match(text):
        return Operand("special", text[1:])
    if re.match(r"-?\d", text):
        return Operand("number", text)
    if text == "_":
        return Operand("sink", None)
    found = _find(text, scopes)
    if found is not None:
        return Operand("name", found)
    label = _find(f":{text}", scopes)
    return Operand("label", label) if label else Operand("name", text)


def _number(text: str, kind: str) -> Any:
    text = text.strip()
    if text[:2].lower() in ("0f", "0d"):
        bits = 32 if text[1] in "fF" else 64
        if len(text) != 2 + bits // 4 or kind not in (f"f{bits}", f"b{bits}"):
            raise PtxError(f"{text} where {kind} is meant")
        return np.array(int(text[2:], 16), BITS[bits // 8]).view(TYPES[kind])[()]
    if kind == "pred":
        return bool(int(text))
    size = TYPES[kind].itemsize
    if kind[0] == "f":
        raise PtxError(f"a whole number where {kind} is meant: {text}")
    return np.array(int(text.rstrip("U"), 0) & (1 << 8 * size) - 1, BITS[size]).view(TYPES[kind])[()]


# ── the machine ──────────────────────────────────────────────────────────────────────


class Memory:
    """Global memory: arrays at addresses, those of the machine's own or of this process."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.arrays: list[np.ndarray] = []  # bytes
        self._next = 1 << 32

    def put(self, array: np.ndarray) -> int:
        """A copy of an array; gives its address."""
        data = np.ascontiguousarray(array).view(np.uint8).reshape(-1).copy()
        address, self._next = self._next, self._next + (len(data) + 511) // 256 * 256
        self._keep(address, data)
        return address

    def adopt(self, array: np.ndarray) -> int:
        """An array of this process as it is, which is kept alive; gives its address."""
        whole = array
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        if whole.nbytes and whole.ctypes.data not in self.starts:
            self._keep(whole.ctypes.data, whole.reshape(-1).view(np.uint8))
        return array.ctypes.data

    def get(self, address: int, dtype: Any, count: int) -> np.ndarray:
        """A copy of ``count`` numbers."""
        data = self.arrays[self.starts.index(address)]
        return data[: count * np.dtype(dtype).itemsize].view(dtype).copy()

    def _keep(self, address: int, data: np.ndarray) -> None:
        place = bisect.bisect(self.starts, address)
        self.starts.insert(place, address)
        self.arrays.insert(place, data)

    def find(self, address: np.ndarray, size: int) -> Any:
        """For every array that addresses lie in: which of them, the array, and where in it."""
        owner = np.searchsorted(np.array(self.starts, np.int64), address, side="right") - 1
        for own in np.unique(owner):
            which = owner == own
            place = address[which] - self.starts[own]
            if own < 0 or (place + size > len(self.arrays[own])).any():
                raise PtxError("an address is outside of its memory")
            yield which, self.arrays[own], place


class Machine:
    """A module loaded into a machine with memory of its own.

    ``executed`` counts for every (function, instruction) how many threads ran it.
    """

    def __init__(self, text: str | bytes, memory: Memory | None = None) -> None:
        self.functions, self.variables = parse(text.decode() if isinstance(text, bytes) else text)
        self.executed: Counter[tuple[str, int]] = Counter()
        self.memory = memory or Memory()
        self.put, self.get = self.memory.put, self.memory.get
        self.addresses = {
            name: self.put(np.frombuffer(v.data.ljust(v.size, b"\0"), np.uint8))
            for name, v in self.variables.items()
            if v.space in ("global", "const")
        }

    def launch(
        self, name: str, blocks: int, threads: int, *given: int | np.generic | np.ndarray, shared: int = 0
    ) -> None:
        """Run a kernel; an int is a 64-bit parameter, an array a struct."""
        function = self.functions[name]
        if len(given) != len(function.parameters):
            raise PtxError(f"{name} takes {len(function.parameters)} parameters, not {len(given)}")
        values = [np.uint64(x) if isinstance(x, int) else x for x in given]
        for block in range(blocks):
            context = Block(self, block, blocks, threads, shared)
            every = np.arange(threads)
            frame = Frame(context, function, every, 0)
            for parameter, value in zip(function.parameters, values, strict=True):
                if frame.parameters[parameter].shape[1] != value.nbytes:
                    raise PtxError(f"{parameter} has {frame.parameters[parameter].shape[1]} bytes, not {value.nbytes}")
                frame.parameters[parameter][:] = np.frombuffer(value.tobytes(), np.uint8)
            with np.errstate(all="ignore"):
                frame.run()


class Block:
    """What the threads of a block share."""

    def __init__(self, machine: Machine, index: int, blocks: int, threads: int, shared: int) -> None:
        self.machine, self.threads = machine, threads
        lane = np.arange(threads, dtype=np.uint32)
        one, zero = np.ones_like(lane), np.zeros_like(lane)
        self.special = {
            "tid.x": lane, "tid.y": zero, "tid.z": zero, "ntid.x": one * np.uint32(threads), "ntid.y": one,
            "ntid.z": one, "ctaid.x": one * np.uint32(index), "ctaid.y": zero, "ctaid.z": zero,
            "nctaid.x": one * np.uint32(blocks), "nctaid.y": one, "nctaid.z": one, "laneid": lane % np.uint32(WARP),
            "warpid": lane // np.uint32(WARP),
        }  # fmt: skip
        self.shared = np.zeros(0, np.uint8)
        self.shared_at: dict[str, int] = {}
        self.dynamic = shared
        self.local = np.full((threads, STACK), 0xCD, np.uint8)

    def shared_address(self, name: str, variable: Variable) -> int:
        if name not in self.shared_at:
            start = -(-len(self.shared) // variable.align) * variable.align
            size = variable.size or self.dynamic
            self.shared_at[name] = start
            self.shared = np.concatenate([self.shared, np.full(start + size - len(self.shared), 0xCD, np.uint8)])
        return self.shared_at[name]


class Frame:
    """A call of a function by some threads."""

    def __init__(self, block: Block, function: Function, threads: np.ndarray, stack: int) -> None:
        self.block, self.function, self.threads, self.stack = block, function, threads, stack
        n = len(threads)
        self.values: dict[str, np.ndarray] = {}
        self.parameters = {
            name: np.zeros((n, v.size), np.uint8) for name, v in function.variables.items() if v.space == "param"
        }
        self.carry = np.zeros(n, np.uint64)
        self.pc = np.zeros(n, np.int64)
        self.done = np.zeros(n, bool)
        self.waiting = np.zeros(n, bool)
        self.frame_bytes = sum(v.size + 32 for v in function.variables.values() if v.space == "local")
        if stack + self.frame_bytes > STACK:
            raise PtxError("too much local memory")

    def run(self) -> None:
        code, steps = self.function.code, 0
        while True:
            able = ~(self.done | self.waiting)
            if not able.any():
                if self.done.all():
                    return
                self.waiting[:] = False  # all that have not ended are at the barrier
                continue
            at = int(self.pc[able].min())
            if at >= len(code):
                if self.function.entry:
                    raise PtxError(f"{self.function.name} runs past its end")
                self.done |= able
                continue
            steps += 1
            if steps > MOST_STEPS:
                raise PtxError(f"{self.function.name} does not end")
            instruction = code[at]
            chosen = np.flatnonzero(able & (self.pc == at))
            self.pc[chosen] = at + 1
            if instruction.guard:
                register, negated = instruction.guard
                chosen = chosen[self.read(register, "pred", chosen) != negated]
            if len(chosen):
                self.block.machine.executed[self.function.name, at] += len(chosen)
                try:
                    instruction.run(self, instruction, chosen)
                except PtxError as error:
                    raise PtxError(f"{error}\n  in {self.function.name}: {instruction.text}") from None

    # ── registers ──

    def read(self, operand: Operand, kind: str, chosen: np.ndarray, narrow: bool = False) -> np.ndarray:
        """An operand's values for the chosen threads."""
        dtype = TYPES[kind]
        if operand.kind == "number":
            return np.full(len(chosen), _number(operand.value, kind), dtype)
        if operand.kind == "special":
            return self.block.special[operand.value][self.threads[chosen]].view(dtype)
        name = operand.value
        if name in self.function.registers:
            if name not in self.values:
                raise PtxError(f"{name.partition('@')[0]} is read before it is written")
            bits = self.values[name][chosen]
            if kind == "pred" or bits.dtype == bool:
                if kind != "pred" or bits.dtype != bool:
                    raise PtxError("a predicate and a number are mixed")
                return bits
            if bits.itemsize != dtype.itemsize:
                if not narrow or bits.itemsize < dtype.itemsize:
                    raise PtxError(f"{name.partition('@')[0]} is not {8 * dtype.itemsize} bits wide")
                bits = bits.astype(BITS[dtype.itemsize])
            return bits.view(dtype)
        return np.full(len(chosen), self.address_of(name), np.uint64).astype(BITS[dtype.itemsize]).view(dtype)

    def write(self, operand: Operand, values: np.ndarray, chosen: np.ndarray, widen: bool = False) -> None:
        if operand.kind == "sink":
            return
        name = operand.value
        if operand.kind != "name" or name not in self.function.registers:
            raise PtxError(f"not a register: {operand.value}")
        dtype = self.function.registers[name]
        if (dtype.kind == "b") != (values.dtype.kind == "b"):
            raise PtxError("a predicate and a number are mixed")
        if values.itemsize != dtype.itemsize:
            if not widen or values.itemsize > dtype.itemsize:
                raise PtxError(f"{name.partition('@')[0]} is not {8 * values.itemsize} bits wide")
            values = values.astype(np.dtype(f"{values.dtype.kind}{dtype.itemsize}"))
        stored = dtype if dtype.kind == "b" else BITS[dtype.itemsize]
        if name not in self.values:
            self.values[name] = np.zeros(len(self.threads), stored)
        self.values[name][chosen] = values.view(stored)

    def address_of(self, name: str) -> int:
        variable = self.function.variables.get(name)
        if variable is not None and variable.space == "local":
            return self.stack + variable.offset
        if variable is not None and variable.space == "shared":
            return self.block.shared_address(name, variable)
        if name in self.block.machine.addresses:
            return self.block.machine.addresses[name]
        if name in self.block.machine.variables:
            return self.block.shared_address(name, self.block.machine.variables[name])
        raise PtxError(f"unknown name {name}")

    # ── memory ──

    def bytes_at(self, space: str, operand: Operand, size: int, chosen: np.ndarray) -> tuple[Any, np.ndarray]:
        """The memory that an operand is in, two-dimensional or flat, and where in it each thread's bytes are."""
        base = operand.value
        if space == "param":
            data = self.parameters.get(base.value)
            if data is None or operand.offset % size or not 0 <= operand.offset <= data.shape[1] - size:
                raise PtxError("outside of a parameter")
            return data.reshape(-1), (chosen * data.shape[1] + operand.offset)[:, None] + np.arange(size)
        if base.kind == "name" and self.function.registers.get(base.value, TYPES["u64"]).itemsize == 4:
            address = self.read(base, "u32", chosen).astype(np.int64)
        else:
            address = self.read(base, "u64", chosen).astype(np.int64)
        address = address + operand.offset
        if (address % size).any():
            raise PtxError(f"an address is not a multiple of {size}")
        if space == "local":
            self._inside(address, size, STACK)
            return self.block.local.reshape(-1), (self.threads[chosen] * STACK + address)[:, None] + np.arange(size)
        if space == "shared":
            self._inside(address, size, len(self.block.shared))
            return self.block.shared, address[:, None] + np.arange(size)
        return None, address

    @staticmethod
    def _inside(address: np.ndarray, size: int, end: int) -> None:
        if (address < 0).any() or (address + size > end).any():
            raise PtxError("an address is outside of its memory")

    def load(self, space: str, operand: Operand, size: int, chosen: np.ndarray) -> np.ndarray:
        """(threads, size) bytes."""
        data, places = self.bytes_at(space, operand, size, chosen)
        if data is not None:
            return data[places]
        result = np.empty((len(chosen), size), np.uint8)
        for which, array, place in self.block.machine.memory.find(places, size):
            result[which] = array[place[:, None] + np.arange(size)]
        return result

    def store(self, space: str, operand: Operand, values: np.ndarray, chosen: np.ndarray) -> None:
        data, places = self.bytes_at(space, operand, values.shape[1], chosen)
        if data is not None:
            data[places] = values
            return
        for which, array, place in self.block.machine.memory.find(places, values.shape[1]):
            array[place[:, None] + np.arange(values.shape[1])] = values[which]


# ── instructions ─────────────────────────────────────────────────────────────────────

INSTRUCTIONS: dict[str, Any] = {}


def instruction(*names: str) -> Any:
    def keep(run: Any) -> Any:
        INSTRUCTIONS.update(dict.fromkeys(names, run))
        return run

    return keep


def _modifiers(given: tuple[str, ...], *allowed: str) -> set[str]:
    """The modifiers before the type; others than those allowed are an error."""
    unknown = set(given) - set(allowed)
    if unknown:
        raise PtxError(f"unknown modifier {', '.join(sorted(unknown))}")
    return set(given)


def flushed(a: np.ndarray, ftz: bool) -> np.ndarray:
    """Subnormal float32 numbers as zeros of their sign."""
    if not ftz or a.dtype != np.float32:
        return a
    return np.where(np.abs(a) < np.float32(2.0**-126), np.copysign(np.float32(0), a), a)


def directed(exact: np.ndarray, rest: np.ndarray, way: str) -> np.ndarray:
    """float32 of exact + rest (rest much smaller), rounded down or to zero."""
    y = exact.astype(np.float32)
    above = y.astype(np.float64) - exact - rest
    low, high = np.nextafter(y, np.float32(-np.inf)), np.nextafter(y, np.float32(np.inf))
    finite = np.isfinite(exact)
    if way == "rm":
        return np.where(finite & (above > 0), low, y)
    if way == "rp":
        return np.where(finite & (above < 0), high, y)
    return np.where(finite & (above > 0) & (exact > 0), low, np.where(finite & (above < 0) & (exact < 0), high, y))


def _sum_in_two(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    s = a + b
    t = s - a
    return s, np.where(np.isfinite(s), (a - (s - t)) + (b - t), 0)


@instruction("add", "sub", "mul", "fma", "mad")
def _arithmetic(f: Frame, i: Instruction, chosen: np.ndarray) -> None:
    kind = i.modifiers[-1]
    if kind[0] != "f":
        return _whole(f, i, chosen)
    given = _modifiers(i.modifiers[:-1], "rn", "rz", "rm", "rp", "ftz")
    way = next((x for x in ("rz", "rm", "rp") if x in given), "rn")
    if i.name in ("fma", "mad") and "rn" not in given and way == "rn":
        raise PtxError("fma without a rounding")
    ftz = "ftz" in given
    a, b, *c = (flushed(f.read(x, kind, chosen), ftz) for x in i.operands[1:])
    if way == "rn":
        y = {"add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b}.get(i.name, lambda: fma(a, b, c[0]))()
    elif kind == "f32":
        wide = [x.astype(np.float64) for x in (a, b, *c)]
        if i.name in ("fma", "mad"):
            wide = [wide[0] * wide[1], wide[2]]
        elif i.name == "mul":
            wide = [wide[0] * wide[1], np.zeros(len(a))]
        y = directed(*_sum_in_two(wide[0], -wide[1] if i.name == "sub" else wide[1]), way)
    else:
        raise PtxError("rounding not known")
    f.write(i.operands[0], flushed(y, ftz), chosen)


def _whole(f: Frame, i: Instruction, chosen: np.ndarray) -> None:
    """Whole numbers: add, sub, mul and mad with their halves and carries."""
    kind, given = i.modifiers[-1], _modifiers(i.modifiers[:-1], "lo", "hi", "wide", "cc", "s24")
    uses = i.name in ("addc", "subc", "madc")
    base = i.name[:3]
    bits = 8 * TYPES[kind].itemsize
    third = kind
    if "wide" in given:
        third = f"{kind[0]}{2 * bits}"
    kinds = [kind, kind, third]
    a, b, *c = (f.read(x, k, chosen).astype(object) for x, k in zip(i.operands[1:], kinds, strict=False))
    carry = f.carry[chosen].astype(object) if uses else 0
    if base == "add":
        y = (a + b if "cc" not in given and not uses else _unsigned(a, bits) + _unsigned(b, bits)) + carry
    elif base == "sub":
        y = _unsigned(a, bits) - _unsigned(b, bits) - carry
    else:
        y = a * b
        if "hi" in given:
            y = y >> bits
        elif "lo" in given:
            y = _unsigned(y, bits)
        elif "wide" not in given:
            raise PtxError("lo, hi or wide?")
        if base == "mad":
            y = _unsigned(y, bits) + _unsigned(c[0], bits) + carry if "wide" not in given else y + c[0]
    if "cc" in given:
        f.carry[chosen] = np.array([int(v < 0 or v >> bits) & 1 for v in y], np.uint64)
    width = 2 * bits if "wide" in given else bits
    f.write(i.operands[0], _unsigned(y, width).astype(BITS[width // 8]), chosen)


INSTRUCTIONS.update(addc=_whole, subc=_whole, madc=_whole)


def _unsigned(values: Any, bits: int) -> Any:
    return values & ((1 << bits) - 1)


@instruction("div", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
def _function_of(f: Frame, i: Instruction, chosen: np.ndarray) -> None:
    kind, given = i.modifiers[-1], _modifiers(i.modifiers[:-1], "rn", "approx", "full", "ftz")
    if len(given - {"ftz"}) != 1 or kind[0] != "f":
        raise PtxError("one of rn, approx and full, and a float")
    if "approx" not in given and i.name not in (("div",) if "full" in given else ("div", "rcp", "sqrt")):
        raise PtxError("no such instruction")
    ftz, double = "ftz" in given, kind == "f64"
    a, *b = (flushed(f.read(x, kind, chosen), ftz) for x in i.operands[1:])
    if double and "approx" in given:
        if i.name not in ("rcp", "rsqrt") or not ftz:
            raise PtxError("no such instruction")
        a = _upper_half(np.where(np.abs(a) < 2.0**-1022, np.copysign(0.0, a), a))
        y = _upper_half(1 / a if i.name == "rcp" else 1 / np.sqrt(a))
        return f.write(i.operands[0], np.where(np.abs(y) < 2.0**-1022, np.copysign(0.0, y), y), chosen)
    wide = a.astype(np.float64)
    functions = {
        "sqrt": np.sqrt, "rcp": lambda x: 1 / x, "rsqrt": lambda x: 1 / np.sqrt(x), "ex2": np.exp2, "lg2": np.log2,
        "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    }  # fmt: skip
    if i.name == "div":
        y = a / b[0]
        if "approx" in given:
            far = (np.abs(b[0]) > np.float32(2.0**126)) & np.isfinite(b[0])  # its reciprocal is 0
            y = np.where(far, a * np.copysign(np.float32(0), b[0]), y)
    elif i.name in ("sqrt", "rcp"):
        y = np.sqrt(a) if i.name == "sqrt" else a.dtype.type(1) / a
    else:
        y = functions[i.name](wide)
    f.write(i.operands[0], flushed(y.astype(a.dtype), ftz), chosen)


def _upper_half(a: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(a), (a.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64), a)


@instruction("neg", "abs", "min", "max", "copysign")
def _sign_and_size(f: Frame, i: Instruction, chosen: np.ndarray) -> None:
    kind, given = i.modifiers[-1], _modifiers(i.modifiers[:-1], "ftz")
    a, *b = (flushed(f.read(x, kind, chosen), "ftz" in given) for x in i.operands[1:])
    if i.name == "neg":
        y = -a if kind[0] == "f" else (0 - a)
    elif i.name == "abs":
        y = np.abs(a)
    elif i.name == "copysign":
        y = np.copysign(b[0], a)  # the sign of the first operand
    elif kind[0] == "f":
        y = (np.fmin if i.name == "min" else np.fmax)(a, b[0])
        zeros = (a == 0) & (b[0] == 0)
        negative = np.signbit(a) | np.signbit(b[0]) if i.name == "min" else np.signbit(a) & np.signbit(b[0])
        y = np.where(zeros, np.where(negative, a.dtype.type(-0.0), a.dtype.type(0.0)), y)
    else:
        y = (np.minimum if i.name == "min" else np.maximum)(a, b[0])
    f.write(i.operands[0], y.astype(a.dtype), chosen)


@instruction("mov")
def _mov(f: Frame, i: Instruction, chosen: np.ndarray) -> None:
    (kind,) = i.modifiers
    to, source = i.operands
    if to.kind == "vector" or source.kind == "vector":
        size = TYPES[kind].itemsize
        if to.kind == "vector":
            part = BITS[size // len(to.value)]
            pieces = f.read(source, kind, chosen).view(part).reshape(len(chosen), -1)
            for k, one in enumerate(to.value):
                f.write(one, np.ascontiguousarray(pieces[:, k]), chosen)
        else:
            part = f"b{8 * size // len(source.value)}"
            pieces = np.stack([f.read(one, part, chosen) for one in source.value], axis=1)
            f.write(to, np.ascontiguousarray(pieces).view(BITS[size]).reshape(-1), chosen)
    else:
        f.write(to, f.read(source, kind, chosen), chosen)


_ORDERED = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_UNSIGNED = {"lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}


@instruction("setp")
def _setp(f: Frame, i: Instruction, chosen: np.ndarray) -> None:
    compare, *given, kind = i.modifiers
    given = _modifiers(tuple(given), "ftz", "and", "or", "xor")
    a, b = (flushed(f.read(x, kind, chosen), "ftz" in given) for x in i.operands[1:3])
    if kind[0] == "f":
        unordered = np.isnan(a) | np.isnan(b)
        if compare in _ORDERED:
            y = _ORDERED[compare](a, b) & ~unordered
        elif compare in ("num", "nan"):
            y = unordered == (compare == "nan")
        elif compare[:-1] in _ORDERED and compare[-1] == "u":
            y = _ORDERED[compare[:-1]](a, b) | unordered
        else:
            raise PtxError(f"unknown comparison {compare}")
    else:
        table = {**_ORDERED, **(_UNSIGNED if kind[0] == "u" else {})} if kind[0] != "b" else {
            name: _ORDERED[name] for name in ("eq", "ne")
        }  # fmt: skip
        if compare not in table:
            raise PtxError(f"unknown comparison {compare}")
        y = table[compare](a, b)
    for name, combine in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)):
        if name in given:
            y = combine(y, f.read(i.operands[3], "pred", chosen))
    if len(i.operands) != 3 + bool(given & {"and", "or", "xor"}):
        raise PtxError("too many operands")
    f.write(i.operands[0], y, chosen)


@instruction("selp")
def _selp(f: Frame, i: Instruction, chosen: np.ndarray) -> None:
    (kind,) = i.modifiers
    a, b = (f.read(x, kind, chosen) for x in i.operands[1:3])
    f.write(i.operands[0], np.where(f.read(i.operands[3], "pred", chosen), a, b), chosen)


@instruction("and", "or", "xor", "not")
def _logic(f: Frame, i: Instruction, chosen: np.ndarray) -> None:
    (kind,) = i.modifiers
    if kind != "pred" and kind[0] != "b":
        raise PtxError("bits or predicates")
    a, *b = (f.read(x, kind, chosen) for x in i.operands[1:])
    y = ~a if i.name == "not" else {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[i.name](a, *b)
    f.write(i.operands[0], y, chosen)


@instruction("shl", "shr")
def _shift(f: Frame, i: Instruction, chosen: np.ndarray) -> None:
    (kind,) = i.modifiers
    if i.name == "shl" and kind[0] != "b":
        raise PtxError("shl is of bits")
    a, by = f.read(i.operands[1], kind, chosen), f.read(i.operands[2], "u32", chosen)
    bits = 8 * a.itemsize
    far, by = by >= bits, np.minimum(by, bits - 1).astype(BITS[a.itemsize])
    if i.name == "shl":
        y = np.where(far, a.dtype.type(0), a << by)
    else:
        y = a >> by.view(a.dtype) if kind[0] == "s" else np.where(far, a.dtype.type(0), a >> by)
    f.write(i.operands[0], y.astype(a.dtype), chosen)


@instruction("shf")
def _funnel(f: Frame, i: Instruction, chosen: np.ndarray) -> None:
    way, wrap, kind = i.modifiers
    if (wrap, kind) != ("wrap", "b32") or way not in "lr":
        raise PtxError("only shf.l.wrap and shf.r.wrap")
    a, b, by = (f.read(x, "u32", chosen).astype(np.uint64) for x in i.operands[1:])
    both, by = b << np.uint64(32) | a, by & np.uint64(31)
    y = (both << by) >> np.uint64(32) if way == "l" else both >> by
    f.write(i.operands[0], y.astype(np.uint32), chosen)


@instruction("bfi")
def _insert(f: Frame, i: Instruction, chosen: np.ndarray) -> None:
    (kind,) = i.modifiers
    bits = 8 * TYPES[kind].itemsize
    a, b = (f.read(x, kind, chosen).astype(object) for x in i.operands[1:3])
    start, length = (f.read(x, "u32", chosen).astype(object) & 0xFF for x in i.operands[3:])
    mask = np.array([(1 << n) - 1 for n in length], object) << start
    f.write(i.operands[0], _unsigned((b & ~mask) | (a << start & mask), bits).astype(BITS[bits // 8]), chosen)


@instruction("clz", "popc")
def _count(f: Frame, i: Instruction, chosen: np.ndarray) -> None:
    (kind,) = i.modifiers
    a, bits = f.read(i.operands[1], kind, chosen), 8 * TYPES[kind].itemsize
    count = [bits - int(x).bit_length() if i.name == "clz" else int(x).bit_count() for x in a]
    f.write(i.operands[0], np.array(count, np.uint32), chosen)


@instruction("lop3")
def _lop3(f: Frame, i: Instruction, chosen: np.ndarray) -> None:
    a, b, c = (f.read(x, "b32", chosen) for x in i.operands[1:4])
    table, y = int(i.operands[4].value, 0), np.zeros_like(a)
    for k in range(8):
        if table >> k & 1:
            y |= (a if k & 4 else ~a) & (b if k & 2 else ~b) & (c if k & 1 else ~c)
    f.write(i.operands[0], y, chosen)


@instruction("cvt")
def _cvt(f: Frame, i: Instruction, chosen: np.ndarray) -> None:
    *given, to, source = i.modifiers
    given = _modifiers(tuple(given), "rn", "rz", "rni", "rzi", "rmi", "rpi", "ftz", "sat")
    ftz = "ftz" in given
    a = flushed(f.read(i.operands[1], source, chosen, narrow=True), ftz)
    way = next((x for x in ("rni", "rzi", "rmi", "rpi") if x in given), None)
    rounds = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
    if source[0] == "f" and to[0] == "f":
        if (to != source) if way else (TYPES[to].itemsize < TYPES[source].itemsize and "rn" not in given):
            raise PtxError("rounding missing or wrong")
        y = (rounds[way](a) if way else a).astype(TYPES[to])
        if "sat" in given:
            y = np.where(np.isnan(y), 0, np.clip(y, 0, 1)).astype(TYPES[to])
        y = flushed(y, ftz)
    elif source[0] == "f":
        if way is None:
            raise PtxError("rounding missing")
        y = _to_whole(rounds[way](a.astype(np.float64)), to, source)
    elif to[0] == "f":
        if "rn" not in given:
            raise PtxError("rounding missing")
        y = a.astype(TYPES[to])
    else:
        y = a.astype(TYPES[to])
    f.write(i.operands[0], y, chosen, widen=True)


def _to_whole(a: np.ndarray, to: str, source: str) -> np.ndarray:
    """Clamped to the type; nan is 0 or, where 64 bits are involved, the top bit alone."""
    bits = 8 * TYPES[to].itemsize
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if to[0] == "s" else (0, (1 << bits) - 1)
    at_nan = (low if to[0] == "s" else 1 << bits - 1) if source == "f64" or bits == 64 else 0
    whole = [at_nan if np.isnan(x) else low if x <= low else high if x >= high else int(x) for x in a]
    return np.array(whole, TYPES[to])


@instruction("cvta")
def _cvta(f: Frame, i: Instruction, chosen: np.ndarray) -> None:
    if i.modifiers not in (("to", "global", "u64"), ("global", "u64"), ("local", "u64"), ("to", "local", "u64")):
        raise PtxError("unknown modifier")
    f.write(i.operands[0], f.read(i.operands[1], "u64", chosen), chosen)


@instruction("ld", "st")
def _memory(f: Frame, i: Instruction, chosen: np.ndarray) -> None:
    *given, kind = i.modifiers
    space, *given = [x for x in given if x not in CACHING]
    if space not in ("global", "shared", "local", "param", "const") or given not in ([], ["v2"], ["v4"]):
        raise PtxError("unknown modifier")
    many, size = int(given[0][1]) if given else 1, TYPES[kind].itemsize
    place, values = (i.operands[1], i.operands[0]) if i.name == "ld" else i.operands
    parts = values.value if many > 1 else (values,)
    if len(parts) != many:
        raise PtxError(f"{many} values, not {len(parts)}")
    if i.name == "ld":
        data = f.load("global" if space == "const" else space, place, many * size, chosen)
        for k, one in enumerate(parts):
            piece = np.ascontiguousarray(data[:, k * size : (k + 1) * size]).view(TYPES[kind]).reshape(-1)
            f.write(one, piece, chosen, widen=True)
    else:
        pieces = [f.read(one, kind, chosen, narrow=True).view(np.uint8).reshape(len(chosen), size) for one in parts]
        f.store(space, place, np.concatenate(pieces, axis=1), chosen)


@instruction("atom", "red")
def _atom(f: Frame, i: Instruction, chosen: np.ndarray) -> None:
    space, *scope, action, kind = i.modifiers
    if space not in ("global", "shared") or action != "add" or set(scope) - {"gpu", "cta", "relaxed"}:
        raise PtxError("only atom.add")
    place, value = i.operands[-2:]
    for thread in chosen:
        one = np.array([thread])
        old = f.load(space, place, TYPES[kind].itemsize, one).view(TYPES[kind]).reshape(-1)
        if i.name == "atom":
            f.write(i.operands[0], old, one)
        f.store(space, place, (old + f.read(value, kind, one)).view(np.uint8).reshape(1, -1), one)


@instruction("shfl")
def _shfl(f: Frame, i: Instruction, chosen: np.ndarray) -> None:
    sync, way, kind = i.modifiers
    if sync != "sync" or kind != "b32" or len(f.threads) != f.block.threads:
        raise PtxError("only shfl.sync of b32 outside of functions")
    by, clamp = (int(f.read(x, "u32", chosen)[0]) for x in i.operands[2:4])
    lane = chosen % WARP
    target = {"bfly": lane ^ by, "down": lane + by, "up": lane - by, "idx": np.full_like(lane, by)}[way]
    if clamp != (0 if way == "up" else WARP - 1):
        raise PtxError("only whole warps")
    target = np.where((target < 0) | (target >= WARP), lane, target) + chosen - lane
    if not np.isin(target, chosen).all():
        raise PtxError("a lane that takes no part is read")
    values = np.zeros(len(f.threads), np.uint32)
    values[chosen] = f.read(i.operands[1], "b32", chosen)
    f.write(i.operands[0], values[target], chosen)


@instruction("bar", "barrier")
def _bar(f: Frame, i: Instruction, chosen: np.ndarray) -> None:
    if i.modifiers != ("sync",) or len(f.threads) != f.block.threads:
        raise PtxError("only bar.sync outside of functions")
    f.waiting[chosen] = True


@instruction("bra")
def _bra(f: Frame, i: Instruction, chosen: np.ndarray) -> None:
    _modifiers(i.modifiers, "uni")
    if i.operands[0].kind != "label":
        raise PtxError("unknown label")
    f.pc[chosen] = f.function.labels[i.operands[0].value]


@instruction("brx")
def _brx(f: Frame, i: Instruction, chosen: np.ndarray) -> None:
    if i.modifiers not in (("idx",), ("idx", "uni")) or i.operands[1].value not in f.function.tables:
        raise PtxError("unknown table of labels")
    table = f.function.tables[i.operands[1].value]
    index = f.read(i.operands[0], "u32", chosen)
    if (index >= len(table)).any():
        raise PtxError("beyond the table of labels")
    f.pc[chosen] = np.array([f.function.labels[label] for label in table])[index]


@instruction("ret", "exit")
def _ret(f: Frame, i: Instruction, chosen: np.ndarray) -> None:
    _modifiers(i.modifiers, "uni")
    f.done[chosen] = True


@instruction("call")
def _call(f: Frame, i: Instruction, chosen: np.ndarray) -> None:
    _modifiers(i.modifiers, "uni")
    results, name, given = i.operands
    function = f.block.machine.functions.get(name.value)
    if function is None:
        raise PtxError(f"unknown function {name.value}")
    called = Frame(f.block, function, f.threads[chosen], f.stack + f.frame_bytes)
    for to, one in zip(function.parameters, given.value, strict=True):
        called.parameters[to][:] = f.parameters[one.value][chosen]
    called.run()
    for to, one in zip(results.value, function.results, strict=True):
        f.parameters[to.value][chosen] = called.parameters[one]


# ── kernels of single operators ──────────────────────────────────────────────────────


def filled(text: str, names: dict[str, Any]) -> str:
    """An operator's text with names in place of its placeholders."""
    return re.sub(r"\{(" + "|".join(names) + r")\}", lambda place: str(names[place[1]]), text)


def operator_kernels(
    chosen: Any, version: str = "6.4", target: str = "sm_75", names: dict[str, str] | None = None
) -> str:
    """A module with a kernel ``k<code>`` for every body: of ``in[thread]`` it makes ``out[thread]``.

    ``in`` has rows a, b, a_low and ``out`` rows y, y_low, each as long as the block has threads.
    """
    of, real, size = chosen.of, chosen.real, int(chosen.real[1:]) // 8
    text = [f".version {version}\n.target {target}\n.address_size 64\n{chosen.head(of.values())}"]
    for code, body in of.items():
        own = {"y": "%y", "y_low": "%y_low", "a": "%a", "a_low": "%a_low", "b": "%b", "n": code, **(names or {})}
        loads = "".join(
            f"\tld.global.{real} {name}, [%in];\n\tadd.u64 %in, %in, %row;\n" for name in ("%a", "%b", "%a_low")
        )
        text.append(
            f".visible .entry k{code}(.param .u64 in, .param .u64 out)\n{{\n"
            f"\t.reg .{real} %a, %b, %a_low, %y, %y_low;\n"
            "\t.reg .b64 %in, %out, %row;\n\t.reg .b32 %thread, %threads;\n"
            "\tld.param.u64 %in, [in];\n\tld.param.u64 %out, [out];\n\tmov.u32 %thread, %tid.x;\n"
            f"\tmov.u32 %threads, %ntid.x;\n\tmul.wide.u32 %row, %threads, {size};\n"
            f"\tmad.wide.u32 %in, %thread, {size}, %in;\n\tmad.wide.u32 %out, %thread, {size}, %out;\n{loads}"
            f"{filled(body.text, own)}\tst.global.{real} [%out], {own['y']};\n"
            + (f"\tadd.u64 %out, %out, %row;\n\tst.global.{real} [%out], %y_low;\n" if "{y_low}" in body.text else "")
            + "\tret;\n}\n"
        )
    return "".join(text)


def as_text(texts, architecture, settings):
    """In place of the compiler: the text itself."""
    for index, text in enumerate(texts):
        yield assembler.Linked(index, text, "")
