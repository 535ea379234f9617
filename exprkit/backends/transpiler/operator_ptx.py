"""PTX of the operators: the instructions that a generated kernel has for each one.

In: the operator table.  Out: a template per operator.  Where the table has a PTX cell, that is the
body.  Every other operator is its CUDA C cell (``ops``, ``arithmetic.cu``), compiled by
NVRTC once, with the interpreter's options, so that interpreter and transpiler make the same
bits; the compiler's PTX is taken apart here and made a template.

    >>> from exprkit.backends.transpiler.operator_ptx import operands
    >>> from exprkit.operators import ops
    >>> operands(ops.BY_NAME["exp2_product"])  # the first one is two numbers
    ('a', 'a_low', 'b')

A body reads ``{a}``, ``{b}`` (of a pair: ``{a_low}``) and writes ``{y}`` (``{y_low}``), names
of registers of the emitter, all ``.f32`` or ``.f64`` or untyped of that size.  Its own names
never begin with ``%`` and stand in a scope of their own, so that the emitter's must begin with
``%``; ``{n}`` is a number that makes labels unique.  ``{y}`` is written last: it may be one of
the operands.  Braces around anything but these names are PTX's own.

==========  ==========================================================================
a body      that is
==========  ==========================================================================
from a cell one instruction
pasted      the compiler's instructions in braces, where there are few of them
called      a call of a ``.func``, which stands once in the module, where there are many
==========  ==========================================================================

Functions and tables that a body needs stand in ``Bodies.parts``; ``Bodies.head`` gives those
that a module needs, in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from exprkit.backends.gpu import nvrtc, opcodes
from exprkit.backends.precision import Precision
from exprkit.backends.transpiler.assembler import cuda_library
from exprkit.operators import ops
from exprkit.operators.defined import table_of_rows
from exprkit.runtime import disk_cache

VERSION, TARGET = "6.4", "sm_75"  # the lowest that have all instructions used; modules declare them
MOST_PASTED = 48  # instructions of a body that is pasted rather than called: code that grows against the call's cost
SOURCE_TARGET = "compute_75"  # one text for all architectures


class Body(NamedTuple):
    """One operator: its template, how many instructions that is, and the module's parts it needs."""

    text: str
    instructions: int
    parts: tuple[str, ...] = ()


class Bodies(NamedTuple):
    """All operators for one precision and type."""

    of: Mapping[int, Body]  # by operator code: what the emitter writes
    parts: Mapping[str, str]  # functions and tables of a module by name, each after those that it needs
    real: str  # f32 or f64

    def head(self, used: Iterable[Body]) -> str:
        """The functions and tables that these bodies need, each once, in the order of ``parts``."""
        names = {name for body in used for name in body.parts}
        return "".join(text for name, text in self.parts.items() if name in names)


def bodies(settings: Precision, dtype: DTypeLike, most_pasted: int = MOST_PASTED) -> Bodies:
    """Every operator of the table as PTX; those of more than ``most_pasted`` instructions are called.

    BackendError if NVRTC is not installed: says which package brings it.
    """
    double = np.dtype(dtype) == np.float64
    own = "operators", "approximate_division", "approximate_root", "flush_subnormals", "contract"
    plain = Precision(*(getattr(settings, name) for name in own))  # one for all levels of optimisation
    return _bodies(replace(plain, flush_subnormals=False) if double else plain, double, most_pasted)


@table_of_rows
def _bodies(settings: Precision, double: bool, most_pasted: int) -> Bodies:
    functions, tables = _parse(compiled(settings, double))
    of = {}
    for row in opcodes.all_rows():
        code = row.code
        name, cell = _name(code), _cell(row, settings, double)
        if cell:
            of[code] = Body(f"\t{cell}\n", 1)
            continue
        needs = _needs(name, functions, tables)
        of[code] = _pasted(functions[name], row, double, needs)
        if of[code].instructions > most_pasted:
            of[code] = _called(name, functions[name], row, double, (*needs, name))
    return Bodies(of, _in_order(functions, tables), "f64" if double else "f32")


# ── from the table's cells ───────────────────────────────────────────────────────────


def _cell(row: ops.Operator, settings: Precision, double: bool) -> str:
    """The table's PTX for an operator; empty where it has none for this precision and type."""
    fast = settings.operators == "fast" and row.cuda.fast
    cell = row.ptx.fast if fast else row.ptx.formula
    if double and ".f32" in cell:
        return ""
    words = {
        "t": "f64" if double else "f32",
        "f": ".ftz" if settings.flush_subnormals and not double else "",
        "full": ".full" if settings.approximate_division and not double else ".rn",
        "quick": ".approx" if settings.approximate_division and not double else ".rn",
        "root": ".approx" if settings.approximate_root and not double else ".rn",
    }
    return re.sub(r"\{(\w+)\}", lambda match: words.get(match[1], match[0]), cell)


# ── from the compiler ────────────────────────────────────────────────────────────────


def _name(code: int) -> str:
    return f"op_{ops.BY_CODE[code].name}"


def source(operators: str) -> str:
    """CUDA C with one function for every operator: arithmetic.cu and the table's formulas."""
    functions = [_function(row, operators) for row in opcodes.all_rows()]
    return "\n".join([opcodes.joined(opcodes.HEAD), *functions, ""])


def _function(row: ops.Operator, operators: str) -> str:
    formula = opcodes.formula(row, operators)
    if row.width > 1:
        result, body = "DoubleDouble", f"T y_low = T(0); const T y = {formula}; return DoubleDouble{{y, y_low}};"
    elif row.cuda.fast_path and not row.ptx.formula and opcodes.is_long(row, operators):  # the interpreter's bits
        result = "T"
        body = f"bool in_range = true; const T y = {row.cuda.fast_path}; return in_range ? y : {formula};"
    else:
        result, body = "T", f"return {formula};"
    arguments = ", ".join(f"T {x}" for x in operands(row))
    return f'extern "C" __device__ {result} {_name(row.code)}({arguments}) {{ {body} }}'


def operands(row: ops.Operator) -> tuple[str, ...]:
    if opcodes.takes_pair(row):
        return "a", "a_low", "b"
    return ("a",) if row.arity == 1 else ("a", "b")


def compiled(settings: Precision, double: bool) -> str:
    """NVRTC's PTX of ``source``, from the cache on disk or the compiler."""
    cuda_library("nvrtc", "nvrtcVersion", "NVRTC (nvidia-cuda-nvrtc)", "the operators' PTX needs")
    real, text = "double" if double else "float", source(settings.operators)
    defined = nvrtc.macros(settings, {"REAL": real, "SUPPORT": 1})

    def word(value: Any) -> str:
        return str(bool(value)).lower()

    options = [
        f"--gpu-architecture={SOURCE_TARGET}",
        "--std=c++17",
        "--relocatable-device-code=true",  # keeps functions that nothing calls
        "--diag-suppress=177",  # a constant that is not used here
        f"--ftz={word(settings.flush_subnormals)}",
        f"--prec-div={word(not settings.approximate_division)}",
        f"--prec-sqrt={word(not settings.approximate_root)}",
        f"--fmad={word(settings.contract)}",
        *(f"--define-macro={name}={value}" for name, value in sorted(defined.items())),
    ]
    key = disk_cache.key("operators", text, *options, nvrtc.compiler_version())
    ptx = disk_cache.read(key)
    if ptx is None:
        ptx = nvrtc.to_ptx(text, [option.encode() for option in options])
        disk_cache.write(key, ptx)
    return ptx.decode("ascii")


# ── the compiler's PTX taken apart ───────────────────────────────────────────────────


class _Function(NamedTuple):
    result: str  # as declared: ".param .b32 func_retval0"
    parameters: tuple[str, ...]  # as declared
    statements: tuple[str, ...]  # without their semicolons; braces and labels stand alone


_FUNCTION = re.compile(
    r"^(?:\.visible )?\.func\s+\((?P<result>[^)]*)\)\s*(?P<name>\w+)\s*\((?P<parameters>[^)]*)\)\s*"
    r"\{\n(?P<body>.*?)^\}",
    re.MULTILINE | re.DOTALL,
)
_TABLE = re.compile(r"^\.global [^=;]*?(\w+)\[\d+\] = \{[^}]*\};$", re.MULTILINE)
_STATEMENT = re.compile(r"\s*(?:(?P<label>\$\w+:)|(?P<brace>[{}])|(?P<text>[^;]+);)")
_REGISTER = re.compile(r"%\w+")
_LOAD = re.compile(r"ld\.param\.\w+ (%\w+), \[\w+_param_(\d+)\]")
_STORE = re.compile(r"st\.param\.(?:v2\.)?\w+ \[func_retval0(?:\+(\d+))?\], (.+)")
_LABEL = re.compile(r"\$L__\w*?_(\d+)")


def _parse(ptx: str) -> tuple[dict[str, _Function], dict[str, str]]:
    text = re.sub(r"//[^\n]*", "", ptx)
    functions = {
        match["name"]: _Function(
            match["result"].strip(),
            tuple(part.strip() for part in match["parameters"].split(",")),
            tuple(_statements(match["body"])),
        )
        for match in _FUNCTION.finditer(text)
    }
    return functions, {match[1]: match[0] + "\n" for match in _TABLE.finditer(text)}


def _statements(body: str) -> Iterator[str]:
    for match in _STATEMENT.finditer(body):
        yield re.sub(r"\s+", " ", match["label"] or match["brace"] or match["text"])


def _is_instruction(statement: str) -> bool:
    return not _stands_alone(statement) and not statement.startswith(".")


def _stands_alone(statement: str) -> bool:
    """Braces and labels, which have no semicolon."""
    return statement in ("{", "}") or statement.endswith(":")


def _needs(name: str, functions: Mapping[str, _Function], tables: Mapping[str, str]) -> tuple[str, ...]:
    """The functions and tables that a function needs, without itself."""
    parts: dict[str, None] = {}
    waiting = [name]
    while waiting:
        words = set(re.findall(r"\w+", " ".join(functions[waiting.pop()].statements)))
        more = [part for part in (*tables, *functions) if part in words and part not in parts]
        parts.update(dict.fromkeys(more))
        waiting += [part for part in more if part in functions]
    return tuple(parts)


def _in_order(functions: Mapping[str, _Function], tables: Mapping[str, str]) -> dict[str, str]:
    """The text of every part of a module, each behind those that it needs."""
    texts = dict(tables)
    for name in sorted(functions, key=lambda name: (len(_needs(name, functions, {})), name)):
        function = functions[name]
        body = "".join(f"\t{line}\n" for line in _lines(function.statements))
        texts[name] = f".func ({function.result}) {name}({', '.join(function.parameters)})\n{{\n{body}}}\n"
    return texts


def _lines(statements: Iterable[str]) -> Iterator[str]:
    for statement in statements:
        yield statement if _stands_alone(statement) else f"{statement};"


def _called(name: str, function: _Function, row: ops.Operator, double: bool, parts: tuple[str, ...]) -> Body:
    bits, size = ("b64", 8) if double else ("b32", 4)
    places = [f"in_{x}" for x in operands(row)]
    lines = ["{", *(f".param .{bits} {x}" for x in places), function.result.replace("func_retval0", "made")]
    lines += [f"st.param.{bits} [{place}], {{{x}}}" for place, x in zip(places, operands(row), strict=True)]
    lines.append(f"call (made), {name}, ({', '.join(places)})")
    lines += [f"ld.param.{bits} {{{y}}}, [made+{i * size}]" for i, y in enumerate(results(row))]
    return Body(_text([*lines, "}"]), sum(map(_is_instruction, lines)), parts)


def results(row: ops.Operator) -> tuple[str, ...]:
    return ("y", "y_low")[: row.width]


def _pasted(function: _Function, row: ops.Operator, double: bool, parts: tuple[str, ...]) -> Body:
    """An operator's instructions, its operands and results replaced by placeholders."""
    names: dict[str, str] = {}  # the compiler's register -> what stands for it
    lines: list[str] = []
    values = dict(zip(results(row), _made(function), strict=True))
    last = len(function.statements) - 1
    for place, statement in enumerate(function.statements):
        if load := _LOAD.fullmatch(statement):
            names[load[1]] = f"{{{operands(row)[int(load[2])]}}}"
        elif _STORE.fullmatch(statement):
            continue
        elif statement != "ret":
            lines.append(statement)
        elif place == last and len(values) == 1 and _is_made_last(values["y"], lines):
            names[values["y"]] = "{y}"
        else:
            lines += [f"mov.{'b64' if double else 'b32'} {{{y}}}, {x}" for y, x in reversed(values.items())]
            lines += [] if place == last else ["bra.uni L{n}_end"]
    if "bra.uni L{n}_end" in lines:
        lines.append("L{n}_end:")
    lines = [_REGISTER.sub(lambda name: names.get(name[0], name[0][1:]), line) for line in lines]
    lines = [_LABEL.sub(r"L{n}_\1", line) for line in lines]
    used = set(re.findall(r"(?<![\w.])[A-Za-z_]\w*", " ".join(line for line in lines if not line.startswith(".reg"))))
    lines = [line for line in lines if not line.startswith(".reg") or _declares_any(line, used)]
    scoped = ["{", *lines, "}"] if any(line.startswith(".") for line in lines) else lines
    return Body(_text(scoped), sum(map(_is_instruction, lines)), parts)


def _made(function: _Function) -> list[str]:
    """The registers that a function gives back; it has one ``ret``, not always at its end."""
    stores = [store[2] for statement in function.statements if (store := _STORE.fullmatch(statement))]
    return [x for names in stores for x in re.findall(r"%\w+|0[fd]\w+", names)]


def _is_made_last(register: str, lines: list[str]) -> bool:
    """Whether the last instruction makes this register, nothing else does and nothing reads it."""
    uses = [line for line in lines if register in _REGISTER.findall(line)]
    return uses == lines[-1:] and _REGISTER.findall(lines[-1]).count(register) == 1 and lines[-1][0] != "@"


def _declares_any(declaration: str, used: set[str]) -> bool:
    """Whether any of the registers that ``.reg .f32 f<7>`` declares is used."""
    stem, _, many = declaration.split()[-1].partition("<")
    return stem in used if not many else any(re.fullmatch(rf"{stem}\d+", name) for name in used)


def _text(statements: Iterable[str]) -> str:
    return "".join(f"\t{line}\n" for line in _lines(statements))
