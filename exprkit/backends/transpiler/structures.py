"""Structures: the part of an expression that is compiled, separate from its numbers.

In: programs.  Out: the different structures, and each expression's numbers.  The point code of an
expression without the values of its constants, parameters and prologue is its structure;
expressions of one structure share machine code and differ in their numbers.  Where there are many
structures, columns are indirect: an expression brings the columns that its structure reads as it
brings its numbers, and far fewer structures have to be compiled.

    >>> import exprkit as ek
    >>> from exprkit.programs.lower import lower
    >>> from exprkit.backends.transpiler.structures import find_structures
    >>> find_structures(lower(ek.parse(["x1 + p1", "x1 + 2", "x2 * p1"]))).of
    array([0, 0, 1], dtype=int32)

An operand of a structure is ``index << 2 | kind`` as in ``lower``, but

=======  ==================================================================================
kind     index
=======  ==================================================================================
SLOT     the instruction of the same structure, counted from 0, whose result it is
COLUMN   the column, as in the program; an indirect one: a column of the structure
UNIFORM  a number of the structure, counted in the order in which they are first used
=======  ==================================================================================

The result of a structure is that of its last instruction.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from exprkit.backends.gpu.bytecode import Bytecode, arrays_of, operator_rows, source, write_prologue
from exprkit.backends.gpu.layout import CONSTANT
from exprkit.operators import ops
from exprkit.programs.program import COLUMN, SLOT, UNIFORM, Program, index_of, kind_of, operand_of
from exprkit.runtime.bags import zeros
from exprkit.runtime.jit import compiled

MANY = 1_000  # structures from which compiling takes long enough to share code (data/results/h200_ptx.md, "Compiling")
FEWER = 2  # times: what indirect columns must gain for what they cost, columns that are not shared (the same place)
MOST_COLUMNS = 64  # indirect ones of a structure: their addresses take two registers each, of 255
_COPY = ops.COPY


@dataclass(frozen=True, eq=False)
class Structures:
    """The distinct structures of a population, and where each expression's numbers come from.

    ==============  =======  ================  ==================================================
    array           dtype    shape             what it holds
    ==============  =======  ================  ==================================================
    ``of``          int32    n_exprs           the structure of each expression
    ``first``       int64    n_structures + 1  instructions of structure s: first[s]:first[s + 1]
    ``code``        uint8    n_instructions    operator's code
    ``a, b``        int32    n_instructions    operands; -1 for none
    ``n_numbers``   int32    n_structures      numbers of each structure
    ``example``     int32    n_structures      the first expression of the structure
    ==============  =======  ================  ==================================================

    ``numbers`` has the sources of all numbers and the prologues, as the kernel
    ``make_immediates`` of the interpreter reads them: its "instructions" are the numbers here.

    Where columns are ``indirect``, each use of a column is a column of the structure (of a pair two, one after the
    other), and each expression has its own.  Such structures compute nothing together and share no columns.

    ================  =====  ==============  ========================================================
    array             dtype  shape           what it holds
    ================  =====  ==============  ========================================================
    ``n_columns``     int32  n_structures    indirect columns of each structure
    ``first_column``  int32  n_exprs + 1     where in ``columns`` those of each expression begin
    ``columns``       int32  n_indirect      columns of the program
    ================  =====  ==============  ========================================================
    """

    of: np.ndarray
    first: np.ndarray
    code: np.ndarray
    a: np.ndarray
    b: np.ndarray
    n_numbers: np.ndarray
    example: np.ndarray
    numbers: Bytecode
    indirect: bool
    n_columns: np.ndarray
    first_column: np.ndarray
    columns: np.ndarray

    def __len__(self) -> int:
        return len(self.first) - 1


def to_compile(program: Program, indirect: bool | None = None) -> Structures:
    """The structures that are compiled.

    ``indirect``: whether columns are (where structures have not too many of them); by default where structures are many
    and that makes far fewer of them.
    """
    direct = find_structures(program)
    if indirect is False or (indirect is None and len(direct) < MANY):
        return direct
    fewer = find_structures(program, indirect=True)
    pays = indirect or FEWER * len(fewer) <= len(direct)
    return fewer if pays and fewer.n_columns.max(initial=0) <= MOST_COLUMNS else direct


def find_structures(program: Program, indirect: bool = False) -> Structures:
    """The structures of lowered programs; ``indirect``: those that differ in their columns alone are one."""
    n_exprs, n_instr = len(program), len(program.code)
    most = n_instr + n_exprs  # instructions: one of an expression that could not be read
    lengths = {"n_exprs": n_exprs, "n_ends": n_exprs + 1, "most": most, "n_sources": n_instr + most + 1}
    lengths |= {"n_steps": int(program.n_prologue.sum()), "n_indirect": 3 * n_instr if indirect else 0}
    out = zeros(_StructureArrays, **lengths)
    scratch = _Numbering(
        np.full(max(program.n_uniforms, 1), -1, np.int32),
        np.zeros(max(program.n_slots, 1), np.int32),
        np.full(1 << max(4, (2 * n_exprs).bit_length()), -1, np.int32),
        bool(indirect),
    )
    n, n_results = _find_all(arrays_of(program), operator_rows(program.precision), out, scratch)
    last, n_numbers = out.first[n], out.first_number[-1]
    numbers = Bytecode(
        instructions=np.zeros((n_numbers, 2), np.uint32),
        first_instruction=out.first_number[:-1],
        sources=out.sources[: n_numbers + 1].copy(),  # one further: where an expression without numbers points to
        steps=out.steps,
        first_step=out.first_step,
        constants=np.append(program.constants, np.nan),
        cost=np.zeros(0, np.int64),
        n_slots=0,
        n_results=n_results,
    )
    used = {"first": n + 1, "code": last, "a": last, "b": last, "columns": out.first_column[-1]}
    used |= dict.fromkeys(("n_numbers", "example", "n_columns"), n)
    arrays = {name: getattr(out, name)[:length].copy() for name, length in used.items()}
    return Structures(of=out.of, first_column=out.first_column, numbers=numbers, indirect=bool(indirect), **arrays)


# ── compiled ─────────────────────────────────────────────────────────────────────────


class _StructureArrays(NamedTuple):
    """Arrays that the loop writes; see ``Structures``."""

    of: Annotated[np.ndarray, "int32[n_exprs]"]
    first: Annotated[np.ndarray, "int64[n_ends]"]
    code: Annotated[np.ndarray, "uint8[most]"]
    a: Annotated[np.ndarray, "int32[most]"]
    b: Annotated[np.ndarray, "int32[most]"]
    n_numbers: Annotated[np.ndarray, "int32[n_exprs]"]
    example: Annotated[np.ndarray, "int32[n_exprs]"]
    n_columns: Annotated[np.ndarray, "int32[n_exprs]"]
    first_column: Annotated[np.ndarray, "int32[n_ends]"]
    columns: Annotated[np.ndarray, "int32[n_indirect]"]
    first_number: Annotated[np.ndarray, "int32[n_ends]"]  # of an expression
    sources: Annotated[np.ndarray, "int32[n_sources]"]
    steps: Annotated[np.ndarray, "int32[n_steps, 4]"]
    first_step: Annotated[np.ndarray, "int32[n_ends]"]


class _Numbering(NamedTuple):
    number_of: np.ndarray  # uniform -> its place among all numbers, the last time that it was used
    made_by: np.ndarray  # slot -> the instruction whose result it holds
    table: np.ndarray  # structures by open addressing
    indirect: bool


@compiled
def _find_all(programs, rows, out, scratch):
    """Write every expression behind the structures so far; keep it if none of them is equal.

    How many structures there are, and how many results of prologues.
    """
    n = n_steps = n_results = 0
    for e in range(len(out.of)):
        first_result = n_results
        n_steps, n_results = write_prologue(e, n_steps, n_results, programs, rows.width, out.steps)
        out.first_step[e + 1] = n_steps
        stop = _write(e, out.first[n], first_result, programs, rows, out, scratch)
        s = _look_up(out, n, stop, scratch.table)
        out.of[e] = s
        if s == n:
            out.first[n + 1], out.example[n] = stop, e
            out.n_numbers[n] = out.first_number[e + 1] - out.first_number[e]
            out.n_columns[n] = out.first_column[e + 1] - out.first_column[e]
            n += 1
    return n, n_results


@compiled
def _write(e, at, first_result, programs, rows, out, scratch):
    """Write the instructions of expression ``e`` from place ``at`` on, its numbers and its columns; the place behind.

    Numbers and columns are counted in ``first_number[e + 1]`` and ``first_column[e + 1]`` as they are written.
    """
    start, stop = programs.offsets[e] + programs.n_prologue[e], programs.offsets[e + 1]
    out.first_number[e + 1], out.first_column[e + 1] = out.first_number[e], out.first_column[e]
    if programs.offsets[e] == stop:  # an expression that could not be read: nan, which stands behind all constants
        out.code[at], out.a[at], out.b[at] = _COPY, UNIFORM, -1
        out.sources[out.first_number[e]] = programs.first_const[-1] << 2 | CONSTANT
        out.first_number[e + 1] += 1
        return at + 1
    for k in range(start, stop):
        code = programs.code[k]
        a = _operand(programs.a[k], rows.pair[code] == 1, e, first_result, programs, out, scratch)
        b = _operand(programs.b[k], False, e, first_result, programs, out, scratch)
        if kind_of(programs.dst[k]) == SLOT:
            scratch.made_by[index_of(programs.dst[k])] = k - start
        if rows.commutative[code] == 1 and kind_of(a) > kind_of(b):  # what is packed has a slot as operand a
            a, b = b, a
        out.code[at], out.a[at], out.b[at] = code, a, b
        at += 1
    return at


@compiled
def _operand(operand, is_pair, e, first_result, programs, out, scratch):
    """An operand of a program as one of its structure; -1, for none, is of no kind that is looked at here."""
    index, kind = index_of(operand), kind_of(operand)
    if kind == SLOT:
        return operand_of(SLOT, scratch.made_by[index])
    if kind == UNIFORM:
        if scratch.number_of[index] < out.first_number[e]:  # not used by this expression so far
            n = out.first_number[e + 1]
            scratch.number_of[index] = n
            out.sources[n] = source(operand, e, programs, first_result)
            out.first_number[e + 1] = n + 1
        return operand_of(UNIFORM, scratch.number_of[index] - out.first_number[e])
    if kind == COLUMN and scratch.indirect:
        q = out.first_column[e + 1]
        for low in range(2 if is_pair else 1):
            out.columns[q + low] = index + low
        out.first_column[e + 1] += 2 if is_pair else 1
        return operand_of(COLUMN, q - out.first_column[e])
    return operand


@compiled
def _look_up(out, n, stop, table):
    """The structure that equals the one from ``first[n]`` to ``stop``; n itself, from now on, if there is none."""
    start, mask = out.first[n], len(table) - 1
    h = np.int64(0)
    for k in range(start, stop):  # whole numbers wrap around
        h = (h ^ np.int64(out.code[k]) ^ np.int64(out.a[k]) << 8 ^ np.int64(out.b[k]) << 36) * 0x9E3779B97F4A7C5
        h ^= h >> 29
    place = h & mask
    while table[place] >= 0:
        s = table[place]
        if out.first[s + 1] - out.first[s] == stop - start and _is_equal(out, start, stop, out.first[s]):
            return s
        place = (place + 1) & mask
    table[place] = n
    return n


@compiled
def _is_equal(out, start, stop, other):
    for k in range(start, stop):
        o = other + k - start
        if out.code[k] != out.code[o] or out.a[k] != out.a[o] or out.b[k] != out.b[o]:
            return False
    return True
