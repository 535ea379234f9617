"""Bytecode of the GPU interpreter: three-address programs rewritten for one accumulator.

In: programs.  Out: ``Bytecode``.  Each instruction of ``lower`` becomes one: an operator that works on the
accumulator and at most one operand.  A result that the next instruction uses stays in the accumulator; one that is
wanted later is spilled to a slot when the accumulator is needed for something else, or, in programs whose
parts are shared, when it is used for the first time.  Of two operands that are packed (``pair_of``) the second is
copied into the accumulator when the first is in its slot; both are in memory when a function of three takes them.

    >>> import exprkit as ek
    >>> from exprkit.programs.lower import lower
    >>> from exprkit.backends.gpu.bytecode import accumulate
    >>> accumulate(lower(ek.parse(["x1 + x2 * p1", "exp(-x1)"]))).first_instruction
    array([0, 2], dtype=int32)

The bits of an instruction are in ``layout``; an immediate's source is ``index << 2 | kind`` with
PARAMETER (index in its expression), CONSTANT or RESULT (index in the whole population).
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from exprkit.backends.gpu import opcodes
from exprkit.backends.gpu.layout import (
    ACTION,
    ALONE,
    BOTH,
    CONSTANT,
    END,
    FIRST,
    FROM_SLOT,
    IMMEDIATE,
    LOAD,
    LOAD_SHIFT,
    MEMORY,
    MEMORY_FIRST,
    OPCODE_SHIFT,
    PARAMETER,
    PLACES,
    RESULT,
    SPILL,
    SPILL_SHIFT,
)
from exprkit.backends.gpu.opcodes import UNKNOWN_CODE, CodeTraits, operator_traits, traits_of
from exprkit.errors import BackendError
from exprkit.operators import ops
from exprkit.operators.defined import table_of_rows
from exprkit.programs.program import COLUMN, SLOT, UNIFORM, Program, index_of, kind_of
from exprkit.runtime import slices
from exprkit.runtime.bags import zeros
from exprkit.runtime.jit import compiled, inline

MAX_COLUMNS = 1 << 16  # an instruction holds 16 bits for one
MAX_SLOTS = 1 << 8  # and 8 bits for what is spilled
COST_USUAL, COST_FAST, COST_LONG = 4, 11, 40  # of an operator: what its opcode takes, in vectors' work; an estimate
_COPY, _PAIR_OF = ops.COPY, ops.PAIR_OF


@dataclass(frozen=True, eq=False)
class Bytecode:
    """The programs of a population as the GPU reads them.

    =====================  ==========  ===================  ===================================================
    array                  dtype       shape                what it holds
    =====================  ==========  ===================  ===================================================
    ``instructions``       uint32      (n_instructions, 2)  action and places
    ``first_instruction``  int32       n_exprs              an expression's go on to the next one's
    ``sources``            int32       n_instructions       where an immediate comes from; 0: there is none
    ``steps``              int32       (n_steps, 4)         prologues: code, a, b, result << 1 | is double-double
    ``first_step``         int32       n_exprs + 1          steps of expression i
    ``constants``          float64     n_constants          numbers of the expressions, and one nan
    ``cost``               int64       n_exprs + 1          estimated work of all expressions before i
    =====================  ==========  ===================  ===================================================

    ``n_slots`` is the most that any expression spills at a time, ``n_results`` how many
    results all prologues have; ``code`` says what the operators of the instructions ask of a kernel.
    """

    instructions: np.ndarray
    first_instruction: np.ndarray
    sources: np.ndarray
    steps: np.ndarray
    first_step: np.ndarray
    constants: np.ndarray
    cost: np.ndarray
    n_slots: int
    n_results: int
    code: CodeTraits = UNKNOWN_CODE

    @property
    def n_exprs(self) -> int:
        """Number of expressions."""
        return len(self.first_instruction)

    @property
    def n_instructions(self) -> int:
        """Number of instructions."""
        return len(self.instructions)

    @property
    def n_steps(self) -> int:
        """Number of steps of all prologues."""
        return len(self.steps)


def accumulate(program: Program, threads: int | None = None) -> Bytecode:
    """Make bytecode of three-address programs, the same by any number of ``threads``.

    BackendError if the programs use more columns or slots than an instruction can name.
    """
    if len(program.column_code) > MAX_COLUMNS:
        raise too_many_columns(len(program.column_code))
    n_slots = program.n_slots if program.shared else max(program.n_slots - 1, 0)  # a tree never spills the last one
    if n_slots > MAX_SLOTS:
        raise too_many_slots(n_slots)
    n_exprs, n_steps = len(program), int(program.n_prologue.sum())
    n_instructions = len(program.code) - n_steps + int(np.count_nonzero(np.diff(program.offsets) == 0))
    result = zeros(_Arrays, n_instructions=n_instructions, n_exprs=n_exprs, n_steps=n_steps, n_ends=n_exprs + 1)
    lowered, rows = arrays_of(program), operator_rows(program.precision)
    cuts = slices.cut(program.offsets, threads)
    starts = {0: (0, 0, 0)}  # of a slice: its first instruction, step and result
    if len(cuts) > 1:
        counts = slices.each(lambda begin, end: _count(lowered, rows, begin, end), cuts)
        sums = np.cumsum([starts[0], *counts[:-1]], axis=0).tolist()
        starts = {begin: (i, s, r) for (begin, _), (i, s, r) in zip(cuts, sums, strict=True)}
    ends = slices.each(
        lambda begin, end: _accumulate_some(lowered, rows, result, begin, end, starts[begin], program.shared), cuts
    )
    if len(cuts) > 1:
        before = dict(zip(starts, np.cumsum([0, *(cost for _, cost, _ in ends[:-1])]).tolist(), strict=True))
        slices.each(lambda begin, end: _add(result.cost, begin + 1, end + 1, before[begin]), cuts)
    constants = np.append(program.constants, np.nan)
    traits = traits_of(functools.reduce(operator.or_, (int(of_a_slice) for *_, of_a_slice in ends)))
    return Bytecode(*result[:5], constants, result.cost, n_slots, ends[-1][0], traits)


def too_many_columns(n_columns: int) -> BackendError:
    """The error for a population with more columns than an instruction can name."""
    return BackendError(
        f"the population uses {n_columns} columns (variables and functions of one variable), "
        f"the GPU interpreter can name {MAX_COLUMNS}: evaluate it in parts"
    )


def too_many_slots(n_slots: int) -> BackendError:
    """The error for functions of three operands one inside the other, deeper than instructions can name slots."""
    return BackendError(
        f"functions of three operands are nested so deep that {n_slots} values have to be put aside, and the GPU "
        f"interpreter can name {MAX_SLOTS}: nest them in their first operand, or take backend='ptx' or 'cpu'"
    )


class OperatorRows(NamedTuple):
    """The table's cells that matter here, by code."""

    opcode: Annotated[np.ndarray, "int32[256, 6]"]  # [code, addressing mode]
    arity: Annotated[np.ndarray, "int64[256]"]
    width: Annotated[np.ndarray, "int64[256]"]
    pair: Annotated[np.ndarray, "int64[256]"]  # takes a double-double as operand a
    commutative: Annotated[np.ndarray, "int64[256]"]
    cost: Annotated[np.ndarray, "int64[256]"]
    traits: Annotated[np.ndarray, "int64[256]"]


class ProgramArrays(NamedTuple):
    """The arrays of a ``Program`` that compiled loops read."""

    code: np.ndarray
    a: np.ndarray
    b: np.ndarray
    dst: np.ndarray
    offsets: np.ndarray
    n_prologue: np.ndarray
    first_const: np.ndarray
    n_params: np.ndarray


def arrays_of(program: Program) -> ProgramArrays:
    return ProgramArrays(*(getattr(program, name) for name in ProgramArrays._fields))


class _Arrays(NamedTuple):
    """The arrays of ``Bytecode`` that are written here."""

    instructions: Annotated[np.ndarray, "uint32[n_instructions, 2]"]
    first_instruction: Annotated[np.ndarray, "int32[n_exprs]"]
    sources: Annotated[np.ndarray, "int32[n_instructions]"]
    steps: Annotated[np.ndarray, "int32[n_steps, 4]"]
    first_step: Annotated[np.ndarray, "int32[n_ends]"]
    cost: Annotated[np.ndarray, "int64[n_ends]"]


@table_of_rows
def operator_rows(precision: str) -> OperatorRows:
    result = zeros(OperatorRows, opcode=opcodes.numbers(), traits=operator_traits(precision))
    for row in ops.BY_CODE.values():
        short = row.cuda.inline or (precision == "fast" and row.cuda.fast)
        cost = (COST_FAST if row.cuda.fast else COST_USUAL) if short else COST_LONG
        commutative = MEMORY_FIRST not in opcodes.modes(row)
        cells = row.arity, row.width, opcodes.takes_pair(row), commutative, cost
        for array, cell in zip(result[1:-1], cells, strict=True):
            array[row.code] = cell
    return result


@compiled
def _count(lowered, rows, begin, end):
    """(instructions, steps, results) of the bytecode of the expressions begin:end."""
    n_steps = n_results = n_empty = 0
    for e in range(begin, end):
        start = lowered.offsets[e]
        n_steps += lowered.n_prologue[e]
        n_empty += start == lowered.offsets[e + 1]
        for k in range(start, start + lowered.n_prologue[e]):
            n_results += rows.width[lowered.code[k]]
    return lowered.offsets[end] - lowered.offsets[begin] - n_steps + n_empty, n_steps, n_results


@compiled
def _accumulate_some(lowered, rows, result, begin, end, starts, shared):
    """Write the expressions begin:end from the places ``starts`` on; how many results there are then, their cost, and
    the mask of their operators.

    In ``result.cost`` goes the work of the expressions from ``begin`` on.
    """
    i, s, n_results = starts
    total = traits = 0
    no_constant = lowered.first_const[-1]  # behind the last one stands nan
    for e in range(begin, end):
        start, stop = lowered.offsets[e], lowered.offsets[e + 1]
        result.first_instruction[e] = i
        first_result = n_results
        s, n_results = write_prologue(e, s, n_results, lowered, rows.width, result.steps)
        cost = 0
        point = start + lowered.n_prologue[e]
        for k in range(point, stop):
            write_instruction(k, k == point, e, i, first_result, lowered, rows, result)
            if shared and k > point and _is_needed(lowered, k, stop):
                result.instructions[i, ACTION] |= SPILL | index_of(_held(lowered, k - 1)) << SPILL_SHIFT
            cost += rows.cost[lowered.code[k]] + (result.instructions[i, ACTION] & (LOAD | SPILL | FROM_SLOT) != 0)
            traits |= rows.traits[lowered.code[k]]
            i += 1
        if start == stop:  # an expression that could not be read
            result.instructions[i, ACTION] = rows.opcode[_COPY, IMMEDIATE] << OPCODE_SHIFT
            result.sources[i] = no_constant << 2 | CONSTANT
            i += 1
        result.instructions[i - 1, ACTION] |= END
        result.first_step[e + 1] = s
        total += cost
        result.cost[e + 1] = total
    return n_results, total, traits


@inline
def _held(lowered, k):
    """The slot of what instruction k leaves in the accumulator: of what is packed that of the second."""
    return lowered.dst[k] + 4 * (lowered.code[k] == _PAIR_OF)


@inline
def _is_needed(lowered, k, stop):
    """Whether what instruction k finds in the accumulator is read from its slot, by k itself or later."""
    before = _held(lowered, k - 1)
    if lowered.a[k] == before and lowered.b[k] == before:
        return True
    for j in range(k, stop - 1):
        if lowered.dst[j] == before:
            return False
        if lowered.a[j + 1] == before or lowered.b[j + 1] == before:
            return True
    return False


@compiled
def _add(numbers, begin, end, more):
    for k in range(begin, end):
        numbers[k] += more


@compiled
def write_prologue(e, n_steps, n_results, lowered, width, steps):
    """Write the steps of expression ``e`` behind ``n_steps`` others; how many steps and results there are then."""
    first_result, start = n_results, lowered.offsets[e]
    for k in range(start, start + lowered.n_prologue[e]):
        pair = 1 if width[lowered.code[k]] == 2 else 0
        steps[n_steps, 0] = lowered.code[k]
        steps[n_steps, 1] = source(lowered.a[k], e, lowered, first_result)
        steps[n_steps, 2] = source(lowered.b[k], e, lowered, first_result)
        steps[n_steps, 3] = n_results << 1 | pair
        n_steps, n_results = n_steps + 1, n_results + 1 + pair
    return n_steps, n_results


# Which operand is where, plainly:
#
#     the accumulator holds one operand:    it stays there, the other one is this instruction's operand
#     it holds none:                        it is spilled, then
#         a column as one of them is loaded first (a, unless a is uniform or a double-double), the other is the operand;
#         a double-double in columns and an immediate are both operands (BOTH);
#         a number alone (COPY) is the operand itself
#     operands are packed:                  the second one is copied; what the accumulator held, the first, is spilled
@inline
def write_instruction(k, is_first, e, i, first_result, lowered, rows, result):
    """Write instruction ``i`` for instruction ``k`` of the programs, of expression ``e``."""
    here, out = np.uint64(k), np.uint64(i)
    code, a, b = lowered.code[here], lowered.a[here], lowered.b[here]
    before = -1 if is_first else _held(lowered, np.uint64(k - 1))  # what the accumulator holds
    if code == _PAIR_OF:
        code, a, b = _COPY, b, -1
    action = places = 0
    operand, swapped = b, False
    if b == before and not is_first:
        operand, swapped = a, True
    elif a != before or is_first:  # nothing of this instruction is in the accumulator
        if not is_first:
            action |= SPILL | index_of(before) << SPILL_SHIFT
        swapped = rows.arity[code] == 2 and (rows.pair[code] == 1 or kind_of(a) == UNIFORM)
        loaded = b if swapped else a
        operand = a if swapped else b
        if kind_of(loaded) == COLUMN:
            action |= LOAD
            places |= index_of(loaded) << LOAD_SHIFT
        elif rows.pair[code] == 1:
            result.sources[out] = source(b, e, lowered, first_result)
            action |= FROM_SLOT if kind_of(a) == SLOT else 0
            result.instructions[out, ACTION] = action | rows.opcode[code, BOTH] << OPCODE_SHIFT
            result.instructions[out, PLACES] = index_of(a)
            return
        else:  # a number that is copied
            operand = loaded
    mode = ALONE
    if operand >= 0:
        if kind_of(operand) == UNIFORM:
            mode = IMMEDIATE
            result.sources[out] = source(operand, e, lowered, first_result)
        else:
            mode = MEMORY
            places |= index_of(operand)
            if kind_of(operand) == SLOT:
                action |= FROM_SLOT
        if swapped and rows.commutative[code] == 0:
            mode |= FIRST
    result.instructions[out, ACTION] = action | rows.opcode[code, mode] << OPCODE_SHIFT
    result.instructions[out, PLACES] = places


@compiled
def source(operand, e, lowered, first_result):
    """Where the uniform of an operand comes from."""
    if operand < 0:
        return 0
    index = index_of(operand)
    n_params = lowered.n_params[e]
    if index < n_params:
        return index << 2 | PARAMETER
    constant = lowered.first_const[e] + index - n_params
    if constant < lowered.first_const[e + 1]:
        return constant << 2 | CONSTANT
    return (first_result + constant - lowered.first_const[e + 1]) << 2 | RESULT
