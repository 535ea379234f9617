"""Source text of the CUDA kernels: the .cu files, with the opcodes' cases generated from the operator table.

In: the operator table.  Out: CUDA C, which ``nvrtc`` compiles.  An opcode is an operator together with an addressing
mode.  This module numbers the opcodes, for ``bytecode`` to write and for the kernels to read, and writes their code:
for values here, for values with derivatives as ``dual_opcodes`` has it.

    >>> from exprkit.backends.gpu import opcodes
    >>> "a / b" in opcodes.source("ieee")
    True

================  ========================================================================
addressing mode   what the opcode computes (acc: the accumulator, one value per point)
================  ========================================================================
ALONE             acc = f(acc)
MEMORY            acc = f(acc, column or slot)
MEMORY_FIRST      acc = f(column or slot, acc); of a double-double: its two columns, of what is packed: its slots
IMMEDIATE         acc = f(acc, immediate); of an operator of one operand: f(immediate)
IMMEDIATE_FIRST   acc = f(immediate, acc); of a double-double: both numbers
BOTH              acc = f(double-double in columns or two operands in slots, immediate)
================  ========================================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from exprkit.backends.gpu import layout, nvrtc
from exprkit.backends.gpu.layout import ALONE, BOTH, IMMEDIATE, IMMEDIATE_FIRST, MEMORY, MEMORY_FIRST
from exprkit.operators import defined, ops
from exprkit.operators.defined import table_of_rows

HEAD = "gpu/common.cu", "gpu/arithmetic.cu"  # that all kernels begin with
PARTS = *HEAD, *(f"interpreter/{name}.cu" for name in ("points", "results", "interpreter")), "gpu/support.cu"
HEAVY = 1  # bit of a mask of operators: one needs many registers; the next ones are those whose code is measured
# What the instruction cache holds of operators' code for 8 vectors, beside + - * and the loop: with more these take up
# to 31 % longer than 4 vectors, with less up to 20 % less (H200, data/results/cases_regret.md).
CACHED_BYTES = 8_000
# these take a double-double as operand a, and the user's functions of three operands two numbers
_PAIR_FIRST = frozenset(row.rewrite.split[1] for row in ops.BY_CODE.values() if row.rewrite.split)


def takes_pair(row: ops.Operator) -> bool:
    """Whether operand a is two numbers: a double-double (high part, low part), or two operands packed."""
    return row.packed or row.name in _PAIR_FIRST


def modes(row: ops.Operator) -> tuple[int, ...]:
    """The addressing modes of an operator's opcodes, which follow one another."""
    if row.width > 1:
        return ()  # double-doubles are made in columns and prologues only; operands are packed by copies
    if row.packed:
        return MEMORY_FIRST, BOTH
    if takes_pair(row):
        return MEMORY_FIRST, IMMEDIATE_FIRST, BOTH
    if row.arity == 1:
        return (ALONE, IMMEDIATE) if row.code == ops.COPY else (ALONE,)
    short = row.commutative and row.cuda.inline
    return (MEMORY, IMMEDIATE) if short else (MEMORY, MEMORY_FIRST, IMMEDIATE, IMMEDIATE_FIRST)


@table_of_rows
def numbers() -> np.ndarray:
    """Every opcode, [operator's code, addressing mode]; -1 where there is none.

    Those of the user's functions are the last, so that the others stay what they are in programs made before.
    """
    table = np.full((256, layout.N_MODES), -1, np.int32)
    own = {row.code: row for row in defined.functions()}
    lasting = [row for row in (*rows(common=True), *rows(common=False)) if row.code not in own]
    pairs = [(row.code, mode) for row in (*lasting, *own.values()) for mode in modes(row)]
    table[tuple(np.transpose(pairs))] = np.arange(len(pairs))
    table.flags.writeable = False
    return table


def all_rows() -> list[ops.Operator]:
    """The operators that programs hold, by their codes; those of the user's without good CUDA text not among them."""
    return [row for _, row in sorted(ops.IN_VALUES.items()) if row.cuda.formula and not refusal(row)]


def refusal(row: ops.Operator) -> str:
    """The compiler's error for the CUDA text of a user's function, so that no kernel holds it; "" if none."""
    return _refusal(_user_function(row)) if row.cuda.body else ""


@cache
def _refusal(function: str) -> str:
    return nvrtc.complaint(joined(HEAD, {"user functions": function}))


def rows(common: bool) -> list[ops.Operator]:
    """The operators that are common in expressions, or the others.

    A compiler makes a tree of comparisons of a switch: that of the common ones is small.
    """
    usual = {*ops.SETS["esr"], *_PAIR_FIRST}
    return [row for row in all_rows() if (row.name in usual) == common]


def formula(row: ops.Operator, operators: str) -> str:
    """The operator's CUDA C under a named precision."""
    return row.cuda.fast if operators == "fast" and row.cuda.fast else row.cuda.formula


def is_long(row: ops.Operator, operators: str) -> bool:
    """Whether a kernel holds the operator's code once and loops over it."""
    return not row.cuda.inline and not (operators == "fast" and row.cuda.fast)


def is_heavy(row: ops.Operator, operators: str) -> bool:
    """Whether the operator's code alone decides how many registers a kernel needs: powers, and what users define.

    Without those, four vectors of float32 need 80 registers in place of 110 (data/results/cases_ptxas.csv).
    """
    return is_long(row, operators) and (row.cuda.heavy or bool(row.cuda.body))


class CodeTraits(NamedTuple):
    """Properties of the operators of a population that decide about kernels."""

    heavy: bool  # some need many registers
    bulky: bool  # their code for 8 vectors outgrows the instruction cache


UNKNOWN_CODE = CodeTraits(heavy=True, bulky=False)


@table_of_rows
def operator_traits(operators: str) -> np.ndarray:
    """By operator's code, int64: its bits in the mask of which ``traits_of`` makes ``CodeTraits``."""
    traits, sized = np.zeros(256, np.int64), _sized()
    for row in ops.BY_CODE.values():
        if row.cuda.formula and is_heavy(row, operators):
            traits[row.code] |= HEAVY
        if operators == "fast" and row in sized:
            traits[row.code] |= HEAVY << (1 + sized.index(row))
    return traits


@lru_cache(maxsize=64)
def traits_of(mask: int) -> CodeTraits:
    """Traits of all operators in use, from the bits of each."""
    size = sum(row.cuda.code_bytes for k, row in enumerate(_sized()) if mask & HEAVY << (1 + k))
    return CodeTraits(bool(mask & HEAVY), size > CACHED_BYTES)


@cache
def _sized() -> list[ops.Operator]:
    return [row for row in ops.OPERATORS if row.cuda.code_bytes]


# ── texts ────────────────────────────────────────────────────────────────────────────


def joined(parts: Iterable[str], cases: Mapping[str, str] | None = None) -> str:
    """The texts of these files of the backends, each line ``//{name}`` replaced by what ``layout`` or ``cases`` has."""
    folder, texts = Path(__file__).parents[1], {**layout.TEXTS, **(cases or {})}
    text = "\n".join((folder / part).read_text() for part in parts)
    if "user functions" not in texts:
        texts["user functions"] = "\n".join(_user_function(row) for row in all_rows() if row.cuda.body)
    text = re.sub(r" *//\{([\w ]+)\}", lambda mark: texts[mark[1]], text)
    if "COMMON_OPCODES" in text:
        text = text.replace("COMMON_OPCODES", str(sum(len(modes(row)) for row in rows(common=True))))
    return text


def _user_function(row: ops.Operator) -> str:
    return f"INLINE T user_{row.name}({', '.join(f'T {x}' for x in 'abc'[: len(row.letters)])}) {{ {row.cuda.body} }}"


@table_of_rows
def source(operators: str, loss: str = "") -> str:
    """The CUDA C of the interpreter's kernels, by the table's formulas of a precision.

    ``loss``: the function of a loss that is a text (``loss_code``), which TASK = TEXT adds up.
    """
    scalars = (f"    case {row.code}: return {formula(row, operators)};  // {row.name}" for row in all_rows())
    return joined(
        PARTS,
        {
            "common cases": cases(rows(common=True), operators, VALUES),
            "other cases": cases(rows(common=False), operators, VALUES),
            "scalar cases": "\n".join(scalars),
            "loss": loss and f"#define HAS_LOSS\n{loss}",
        },
    )


class Dialect(NamedTuple):
    """How kernels name what an opcode needs, and the function that it applies."""

    memory: str
    immediate: str
    operands: str  # both of them
    pair: str  # both of them, the immediate as a double-double
    low: str  # capture of the immediate's low part
    function: Callable[[ops.Operator, str, list[str], bool], str]  # of row, precision, operands, whether it is long
    finished: Callable[[ops.Operator, int, str], str] = lambda row, mode, call: call  # the call and what belongs to it


def _value(row: ops.Operator, operators: str, operands: list[str], long: bool) -> str:
    """The function of values; of long code with a fast path, that first."""
    parameters = ", ".join(f"T {name}" for name in operands)
    slow = f"({parameters}) -> T {{ return {formula(row, operators)}; }}"
    fast = f"({parameters}, bool &in_range) -> T {{ return {row.cuda.fast_path}; }}, []"
    return fast + slow if long and row.cuda.fast_path else slow


VALUES = Dialect("memory", "high", "memory, high", "memory, high, a_low", "a_low", _value)


def cases(rows: Iterable[ops.Operator], operators: str, dialect: Dialect) -> str:
    """The cases of these operators' opcodes; the order of a function's parameters puts its operands in order."""
    lines = []
    for row in rows:
        kind, opcodes = (len(row.letters), takes_pair(row)), [numbers()[row.code, mode] for mode in modes(row)]
        if is_long(row, operators) and opcodes:
            template, operands = _LONG_CALLS[kind]
            function = dialect.function(row, operators, operands.split(), True)
            call = template.format(**dialect._asdict(), first=opcodes[0], f=function)
            line = f"            {' '.join(f'case {opcode}:' for opcode in opcodes)} {call}; break;  // {row.name}"
            lines += ["#if POWERS", line, "#endif"] if is_heavy(row, operators) else [line]
            continue
        for mode, opcode in zip(modes(row), opcodes, strict=True):
            template, operands = _CALLS[*kind, mode]
            call = template.format(**dialect._asdict(), f=dialect.function(row, operators, operands.split(), False))
            lines.append(f"            case {opcode}: {dialect.finished(row, mode, call)}; break;  // {row.name}")
    return "\n".join(lines)


_CALLS = {  # (operands, takes a double-double, mode): the call, {f} for the function; its operands, that in acc first
    (1, False, ALONE): ("alone(acc, []{f})", "a"),
    (1, False, IMMEDIATE): ("from_immediate(acc, {immediate})", ""),
    (2, False, MEMORY): ("with_memory(acc, {memory}, []{f})", "a b"),
    (2, False, MEMORY_FIRST): ("with_memory(acc, {memory}, []{f})", "b a"),
    (2, False, IMMEDIATE): ("with_immediate(acc, {immediate}, []{f})", "a b"),
    (2, False, IMMEDIATE_FIRST): ("with_immediate(acc, {immediate}, []{f})", "b a"),
    (2, True, MEMORY_FIRST): ("with_pair(acc, {memory}, []{f})", "b a a_low"),
    (2, True, IMMEDIATE_FIRST): ("with_immediate(acc, {immediate}, [{low}]{f})", "b a"),
    (2, True, BOTH): ("from_immediate(acc, {immediate}); with_pair(acc, {memory}, []{f})", "b a a_low"),
}
_LONG_CALLS = {  # (operands, takes a double-double or two packed): the call for all modes, {first} for the first opcode
    (1, False): ("go_round(acc, []{f})", "a"),
    (2, False): ("go_round(acc, opcode - {first}, {operands}, []{f})", "a b"),
    (2, True): ("go_round_pair(acc, opcode - {first}, {pair}, []{f})", "b a a_low"),
    (3, True): ("go_round_pair(acc, 2 * (opcode - {first}), {pair}, []{f})", "b a a_low"),
}
