"""Machine code of every operator for the CPU: loops over the points of a tile, generated from the operator table.

The backend's loops call these kernels by address.  A kernel applies one
operator to vectors of one tile, ``void k(T* y, const T* a, const T* b, int64 n)`` with
n counted in vectors of ``Kernels.lanes`` numbers; what it computes is the row's formula
in ``simd_formulas``.

    >>> import numpy as np
    >>> from exprkit.operators import ops
    >>> from exprkit.backends.cpu import kernels
    >>> library = kernels.kernels("float32", "ieee")
    >>> a, y = np.full(kernels.TILE, 2.0, np.float32), np.empty(kernels.TILE, np.float32)
    >>> sqrt = library.function(ops.BY_NAME["sqrt"].code, kernels.VV)
    >>> sqrt(y.ctypes.data, a.ctypes.data, None, kernels.TILE // library.lanes); float(y[-1])
    1.4142135381698608

========  =====================================================================
form      operands
========  =====================================================================
VV = 0    vectors (also every unary operator)
VS = 1    a vector and the address of a scalar
SV = 2    the address of a scalar and a vector
UU = 3    scalars: one value is computed and nothing but ``y[0]`` is written
+ PAST    the same, but results go past the caches: ``y`` must be aligned to a
          vector, and ``fence`` must be called before others read them
========  =====================================================================

``y`` may be ``a`` or ``b``; no address need be aligned to a vector.  A pair (high and
low part) lies at ``a[i]`` and ``a[i + TILE]``, a scalar pair at ``a[0]`` and ``a[1]``;
results that are pairs are written alike.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from exprkit.backends.cpu import callbacks
from exprkit.errors import BackendError
from exprkit.operators import defined, llvm_writer, ops, polynomials, simd_formulas, simd_values, traced, traced_vectors
from exprkit.operators.llvm_writer import LEVELS, Code, Target
from exprkit.operators.simd_values import SIZE, Vec
from exprkit.runtime import disk_cache, shipped

TILE = 512  # points that are evaluated together
VV, VS, SV, UU = range(4)
PAST = 4
UNROLL = 2  # vectors side by side in one iteration: their chains of dependent operations overlap
UNROLL_TRACED = 4  # of operators that are functions: log1p(exp(a)) on a tile takes a sixth less
REAL = {"float32": "float", "float64": "double"}
LEVEL = "EXPRKIT_CPU_FEATURES"  # environment: avx512, avx2 or baseline instead of all this machine has
SHIPPED = {"x86-64-v4": "avx512", "x86-64-v3": "avx2", "generic": "aarch64"}  # levels by those of ``shipped``
NONTEMPORAL = "!1 = !{i32 1}"  # what a store past the caches refers to
PAIR_OPERAND = {row.rewrite.split[1] for row in ops.BY_CODE.values() if row.rewrite.split}

_compiling = disk_cache.free_at_fork(threading.RLock())  # one thread at a time: LLVM is not left half-way

Request = tuple[int, int]  # operator code and form
Operand = Vec | tuple[Vec, ...]
BASES = ("%a", "%b")


# ── the processor ────────────────────────────────────────────────────────────────────


@functools.cache
def host(level: str | None = None) -> Target:
    """This machine's processor, or a lower feature level of it (EXPRKIT_CPU_FEATURES)."""
    llvm = _llvm()
    triple, features = llvm.get_default_triple(), _features()
    levels = ["baseline", "avx2", "avx512"] if triple.startswith("x86_64") else []
    if levels and not all(features.get(f"avx512{part}") for part in ("f", "dq", "bw", "vl")):
        levels.remove("avx512")
    if levels and not (features.get("avx2") and features.get("fma")):
        levels = levels[:1]
    if level is None:
        best = LEVELS[levels[-1] if levels else "aarch64"]
        return replace(best, triple=triple, cpu=llvm.get_host_cpu_name(), features=_flat(features))
    if level not in levels:
        raise BackendError(f"{LEVEL}={level}: this machine has {', '.join(levels) or 'no levels to choose from'}.")
    return replace(LEVELS[level], triple=triple)


def _features() -> dict[str, bool]:
    try:
        return dict(_llvm().get_host_cpu_features())
    except RuntimeError:  # LLVM cannot tell on some systems
        return {}


def _flat(features: dict[str, bool]) -> str:
    return ",".join(("+" if there else "-") + name for name, there in sorted(features.items()))


# ── text of the kernels ──────────────────────────────────────────────────────────────


def name_of(operator: int, form: int) -> str:
    return f"k{operator}_{form}"


def kernels_text(target: Target, dtype: str, precision: str, requests: Iterable[Request]) -> str:
    """The LLVM text of the kernels asked for, to look at and to compile."""
    arguments = "ptr %y, ptr %a, ptr %b, i64 %n"
    codes = {name_of(*request): _kernel(target, REAL[dtype], precision, *request) for request in requests}
    return module_text([(code, name, arguments, "void") for name, code in codes.items()])


def module_text(functions: list[tuple[Code, str, str, str]]) -> str:
    declarations = {'!0 = !{!"branch_weights", i32 1, i32 1000}'}
    declarations = declarations.union(*(code.declarations for code, *_ in functions))
    return "\n".join([*sorted(declarations), *(code.function(*head) for code, *head in functions)])


def _kernel(target: Target, real: str, precision: str, operator: int, form: int) -> Code:
    row = ops.BY_CODE[operator]
    formula = (row.simd_fast if precision == "fast" else None) or row.simd
    width = target.width // SIZE[real]
    how, form = f"align {target.width}, !nontemporal !1" if form & PAST else "", form & 3
    code = Code(target, real, width)
    if form == UU:
        _write(code, formula(*_scalars(code, row, (0, 1))), 0, form)
        code.line("ret void")
        return code
    code.declarations.add(NONTEMPORAL)
    end = code.let(f"mul i64 %n, {width}")
    first: str | int = 0
    for step in (_unroll(row, real, precision) * width, width):
        code.lanes = step
        scalars = _scalars(code, row, {VS: (1,), SV: (0,)}.get(form, ()))
        last = code.let(f"and i64 {end}, {-step}")

        def body(i: str, scalars: list[Operand | None] = scalars) -> None:
            operands = [scalars[k] or _vector(code, row, k, i) for k in range(row.arity)]
            _write(code, formula(*operands), i, form, how)

        code.loop(first, last, step, body)
        first = last
    code.line("ret void")
    return code


def _unroll(row: ops.Operator, real: str, precision: str) -> int:
    """The number of vectors side by side: those of a function computed in float64 take twice the registers."""
    if row.traced is None or not (precision == "fast" or real == "double" or row.traced.in_floats):
        return UNROLL
    return UNROLL_TRACED


def _parts(row: ops.Operator, k: int) -> int:
    """The number of parts of operand k."""
    return 2 if k == 0 and (row.name in PAIR_OPERAND or row.packed) else 1


def is_called(row: ops.Operator) -> bool:
    """Whether it is a function of the user's, and none that is known as the table's operators."""
    return row.traced is None and row in defined.functions()


def _scalars(code: Code, row: ops.Operator, which: tuple[int, ...]) -> list[Operand | None]:
    """The operands that are one number for all points, in every lane."""
    scalars: list[Operand | None] = [None] * row.arity
    for k in which[: row.arity]:
        parts = tuple(code.scalar(code.place(BASES[k], part)) for part in range(_parts(row, k)))
        scalars[k] = parts if len(parts) > 1 else parts[0]
    return scalars


def _vector(code: Code, row: ops.Operator, k: int, i: str) -> Operand:
    parts = tuple(code.load(code.place(BASES[k], i, part * TILE)) for part in range(_parts(row, k)))
    return parts if len(parts) > 1 else parts[0]


def _write(code: Code, y: Operand, i: str | int, form: int, how: str = "") -> None:
    for part, value in enumerate(y if isinstance(y, tuple) else (y,)):
        if form == UU:
            code.store_first(value, code.place("%y", part))
        else:
            code.store(value, code.place("%y", i, part * TILE), how)


# ── what happens to results ──────────────────────────────────────────────────────────


def results_text(target: Target, dtype: str) -> str:
    """The LLVM text of the functions that take a tile's results further."""
    copy = _copy(target, REAL[dtype]), "copy_points", "ptr %y, ptr %a, i64 %n", "void"
    return module_text([copy, (_fence(target), "fence", "", "void")])


def _copy(target: Target, real: str) -> Code:
    code = Code(target, real, target.width // SIZE[real])
    whole = code.let(f"and i64 %n, {-code.lanes}")
    code.loop(0, whole, code.lanes, lambda i: code.store(code.load(code.place("%a", i)), code.place("%y", i)))
    mask = code.first_lanes(code.let(f"sub i64 %n, {whole}"))
    code.store_part(code.load_part(code.place("%a", whole), mask), code.place("%y", whole), mask)
    code.line("ret void")
    return code


def _fence(target: Target) -> Code:
    """Make results that went past the caches visible to other threads: after the last such store of a thread."""
    code = Code(target, "float", 1)
    if target.triple.startswith("x86_64"):
        code.run("llvm.x86.sse.sfence")
    else:
        code.line("fence seq_cst")
    code.line("ret void")
    return code


# ── compiling ────────────────────────────────────────────────────────────────────────


class Kernels:
    """The machine code of one dtype and precision; operators are compiled when asked for."""

    def __init__(self, dtype: str, precision: str, target: Target) -> None:
        self.dtype = dtype
        self.precision = precision
        self.target = target
        self.lanes = target.width // SIZE[REAL[dtype]]  # numbers in a vector
        self._addresses = np.zeros((256, 8), np.int64)
        self._functions: dict[str, dict[str, int]] = {}
        self._engines: list[Any] = []
        self._callbacks: list[Any] = []

    def table(self, requests: Iterable[Request]) -> np.ndarray:
        """Addresses by operator code and form, int64 (256, 8); 0 where nothing was asked for so far."""
        with _compiling:
            missing = sorted({request for request in requests if not self._addresses[request]})
            for request in [request for request in missing if is_called(ops.BY_CODE[request[0]])]:
                missing.remove(request)
                self._callbacks.append(callback := self._callback(*request))
                self._addresses[request] = callbacks.address(callback)
            for group in map(all_of, sorted({code for code, _ in missing})):
                if (data := self._shipped(*_names_and_rows(group))) is not None:
                    self._take(group, data)
            if missing := [request for request in missing if not self._addresses[request]]:
                self._take(missing, self._code_of(missing))
        return self._addresses

    def compile_all(self) -> None:
        """Compile the kernels of every operator, so that the disk cache has them, without running them."""
        for operator in ops.BY_CODE:
            self._code_of(all_of(operator))

    def _code_of(self, requests: list[Request]) -> bytes:
        write = functools.partial(kernels_text, self.target, self.dtype, self.precision, requests)
        return self._code(*_names_and_rows(requests), write)

    def _take(self, requests: list[Request], data: bytes) -> None:
        """Put the kernels of machine code into the table."""
        addresses = self._linked([name_of(*request) for request in requests], data)
        for request in requests:
            self._addresses[request] = addresses[name_of(*request)]

    def _callback(self, operator: int, form: int) -> Any:
        """The kernel of an operator that is the user's function."""
        scalars = {VS: (1,), SV: (0,), UU: (0, 1)}.get(form & 3, ())
        lanes = 0 if form & 3 == UU else self.lanes
        return callbacks.kernel(ops.BY_CODE[operator], scalars, lanes, np.dtype(self.dtype), TILE)

    def address(self, operator: int, form: int) -> int:
        return int(self.table([(operator, form)])[operator, form])

    def function(self, operator: int, form: int) -> Any:
        """The kernel as a ctypes function, for tests and for trying out."""
        pointer = ctypes.c_void_p
        return ctypes.CFUNCTYPE(None, pointer, pointer, pointer, ctypes.c_int64)(self.address(operator, form))

    def result(self, name: str) -> int:
        """The address of a function of ``RESULTS``, by name."""
        return self.functions(RESULTS, results_text)[name]

    def functions(self, names: Sequence[str], write: Callable[[Target, str], str], made_of: str = "") -> dict[str, int]:
        """The addresses of the functions in the text ``write(target, dtype)``, by name.

        ``made_of``: the source of ``write``, where it is not in this file.
        """
        with _compiling:
            if names[0] not in self._functions:
                data = self._code(names, made_of, lambda: write(self.target, self.dtype))
                self._functions.update(dict.fromkeys(names, self._linked(names, data)))
        return self._functions[names[0]]

    def _shipped(self, names: Sequence[str], made_of: str) -> bytes | None:
        """The machine code that came with the package, for the level of this processor; None: there is none."""
        archive = shipped.archive((self.target.triple, self.target.cpu, self.target.features))
        if archive is None:
            return None
        level = replace(LEVELS[SHIPPED[archive.processor[1]]], triple=self.target.triple)
        alike = (level.width, level.avx512) == (self.target.width, self.target.avx512)
        return archive.read(self._key(names, made_of, level)) if alike else None

    def _key(self, names: Sequence[str], made_of: str, target: Target) -> str:
        return disk_cache.key(
            repr(list(names)), made_of, self.dtype, self.precision, repr(target), llvm_version(), _source()
        )

    def _code(self, names: Sequence[str], made_of: str, write: Callable[[], str]) -> bytes:
        """Machine code of the disk cache, or what came with the package, or compiled now."""
        key = self._key(names, made_of, self.target)
        data = disk_cache.read(key) or self._shipped(names, made_of)
        if data is None:
            module = _llvm().parse_assembly(write())
            module.verify()
            data = _machine(self.target).emit_object(module)
            disk_cache.write(key, data)
        return data

    def _linked(self, names: Sequence[str], data: bytes) -> dict[str, int]:
        """Addresses by name."""
        llvm = _llvm()
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine(self.target))
        engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        engine.finalize_object()
        self._engines.append(engine)
        return {name: engine.get_function_address(name) for name in names}


RESULTS = ("copy_points", "fence")


def _names_and_rows(requests: list[Request]) -> tuple[list[str], str]:
    """The names of kernels, and what they are made of."""
    return [name_of(*request) for request in requests], repr((requests, [ops.BY_CODE[k].traced for k, _ in requests]))


def all_of(operator: int) -> list[Request]:
    """The kernels of an operator."""
    unary = (VV, SV) if operator == ops.COPY else (VV,)
    forms = (VV, VS, SV) if ops.BY_CODE[operator].arity == 2 else unary
    return [(operator, form) for form in (*forms, UU, *(form | PAST for form in forms))]


def kernels(dtype: str, precision: str, level: str | None = None) -> Kernels:
    """The kernels of a dtype ("float32", "float64") and precision ("ieee", "fast").

    ``level`` (or EXPRKIT_CPU_FEATURES) chooses less than all this machine can do.
    """
    return _kernels(dtype, precision, level or os.environ.get(LEVEL) or None)


@functools.cache
def _kernels(dtype: str, precision: str, level: str | None) -> Kernels:
    return Kernels(dtype, precision, host(level))


@functools.cache
def _llvm() -> Any:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    for name, address in _c_functions():
        binding.add_symbol(name, address)
    return binding


def _c_functions() -> Iterator[tuple[str, int]]:
    """The C functions that formulas call, from the C library of this process."""
    library = ctypes.CDLL("ucrtbase" if os.name == "nt" else None)
    for name in simd_values.C_FUNCTIONS:
        for spelling in (name, name + "f"):
            yield spelling, ctypes.cast(getattr(library, spelling), ctypes.c_void_p).value or 0


def _machine(target: Target) -> Any:
    llvm = _llvm()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=2, jit=True
    )


def llvm_version() -> str:
    import llvmlite

    return f"{llvmlite.__version__} {_llvm().llvm_version_info}"


@functools.cache
def _source() -> str:
    """The text of everything that writes code: kernels on disk are used while it is unchanged."""
    modules = simd_values, llvm_writer, polynomials, simd_formulas, ops, traced, traced_vectors
    return "".join(Path(file or "").read_text("utf-8") for file in (*(module.__file__ for module in modules), __file__))
