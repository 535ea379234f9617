"""From three-address programs to accumulator programs, the words that the GPU reads.

In: programs.  Out: words.  Each instruction of ``lower`` becomes one word: an operator
that works on the accumulator and at most one operand.  A result that the next instruction
uses stays in the accumulator; one that is wanted later is spilled to a slot when the
accumulator is needed for something else.

    >>> import exprkit as ek
    >>> from exprkit.programs.lower import lower
    >>> from exprkit.backends.gpu.bytecode import accumulate
    >>> accumulate(lower(ek.parse(["x1 + x2 * p1", "exp(-x1)"]))).first_word
    array([0, 2], dtype=int32)

The layout of a word is in ``interpreter.cu``; a number's source is ``index << 2 | kind`` with
PARAMETER (index in its expression), CONSTANT or RESULT (index in the whole population).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from exprkit.backends.gpu import opcodes
from exprkit.errors import BackendError
from exprkit.operators import ops
from exprkit.programs.program import COLUMN, SLOT, UNIFORM, Program
from exprkit.runtime.jit import compiled

END, LOAD, SPILL, FROM_SLOT = 1, 2, 4, 8  # of a word's action, as in job.cu
PARAMETER, CONSTANT, RESULT = 1, 2, 3  # where a number comes from
MAX_COLUMNS = 1 << 16  # a word holds 16 bits for one
_CASE, _SPILL_SLOT, _LOADED = 16, 8, 16  # shifts
_COPY = ops.COPY


@dataclass(frozen=True, eq=False)
class Accumulated:
    """The programs of a population as the GPU reads them.

    ==============  ==========  ============  ==============================================
    array           dtype       shape         what it holds
    ==============  ==========  ============  ==============================================
    ``words``       uint32      (n_words, 2)  action and places
    ``first_word``  int32       n_exprs       an expression's words go on to the next one's
    ``sources``     int32       n_words       where a word's number comes from; 0: no number
    ``steps``       int32       (n_steps, 4)  prologues: code, a, b, result << 1 | is a pair
    ``first_step``  int32       n_exprs + 1   steps of expression i
    ``constants``   float64     n_constants   numbers of the expressions, and one nan
    ``cost``        int64       n_exprs + 1   estimated work of all expressions before i
    ==============  ==========  ============  ==============================================

    ``n_slots`` is the most that any expression spills at a time, ``n_results`` how many
    results all prologues have.
    """

    words: np.ndarray
    first_word: np.ndarray
    sources: np.ndarray
    steps: np.ndarray
    first_step: np.ndarray
    constants: np.ndarray
    cost: np.ndarray
    n_slots: int
    n_results: int


def accumulate(program: Program) -> Accumulated:
    """Make accumulator programs of three-address programs.

    Raises
    ------
    BackendError
        If the programs use more columns than a word can name.
    """
    if len(program.column_code) > MAX_COLUMNS:
        raise BackendError(
            f"the population uses {len(program.column_code)} columns (variables and functions of one variable), "
            f"the GPU interpreter can name {MAX_COLUMNS}: evaluate it in parts"
        )
    n_exprs = len(program)
    n_steps = int(program.n_prologue.sum())
    n_words = len(program.code) - n_steps + int(np.count_nonzero(np.diff(program.offsets) == 0))
    made = _Bytecode(
        np.zeros((n_words, 2), np.uint32), np.zeros(n_exprs, np.int32), np.zeros(n_words, np.int32),
        np.zeros((n_steps, 4), np.int32), np.zeros(n_exprs + 1, np.int32), np.zeros(n_exprs + 1, np.int64),
    )  # fmt: skip
    rows = _OperatorRows(opcodes.numbers(), *_by_code(program.precision))
    n_results = _accumulate_all(arrays_of(program), rows, made)
    return Accumulated(
        *made[:5],
        constants=np.append(program.constants, np.nan),
        cost=made.cost,
        n_slots=max(program.n_slots - 1, 0),
        n_results=n_results,
    )


class _OperatorRows(NamedTuple):
    case: np.ndarray  # [code, form]
    arity: np.ndarray
    width: np.ndarray
    pair: np.ndarray  # takes a pair as operand a
    commutative: np.ndarray
    cost: np.ndarray


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


class _Bytecode(NamedTuple):
    words: np.ndarray
    first_word: np.ndarray
    sources: np.ndarray
    steps: np.ndarray
    first_step: np.ndarray
    cost: np.ndarray


def _by_code(precision: str) -> tuple[np.ndarray, ...]:
    """The table's cells that matter here, by code: arity, width, takes a pair, commutative, cost."""
    arrays = tuple(np.zeros(256, np.int64) for _ in range(5))
    for row in ops.BY_CODE.values():
        short = row.cuda.inline or (precision == "fast" and row.cuda.fast)
        cost = (11 if row.cuda.fast else 4) if short else 40
        cells = row.arity, row.width, opcodes.takes_pair(row), opcodes.MEMORY_FIRST not in opcodes.forms(row), cost
        for array, cell in zip(arrays, cells, strict=True):
            array[row.code] = cell
    return arrays


@compiled
def _accumulate_all(lowered, rows, made):
    w = s = n_results = 0
    no_constant = lowered.first_const[-1]  # behind the last one stands nan
    for e in range(len(lowered.offsets) - 1):
        start, stop = lowered.offsets[e], lowered.offsets[e + 1]
        made.first_word[e] = w
        first_result = n_results
        point = start + lowered.n_prologue[e]
        s, n_results = write_prologue(e, s, n_results, lowered, rows.width, made.steps)
        cost = 0
        for k in range(point, stop):
            _word(k, k == point, e, w, first_result, lowered, rows, made)
            cost += rows.cost[lowered.code[k]] + (made.words[w, 0] >> 1 & 7 != 0)
            w += 1
        if start == stop:  # an expression that could not be read
            made.words[w, 0] = rows.case[_COPY, 3] << _CASE
            made.sources[w] = no_constant << 2 | CONSTANT
            w += 1
        made.words[w - 1, 0] |= END
        made.first_step[e + 1] = s
        made.cost[e + 1] = made.cost[e] + cost
    return n_results


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


@compiled
def _word(k, is_first, e, w, first_result, lowered, rows, made):
    """Write word ``w`` for instruction ``k`` of expression ``e``."""
    code, a, b = np.int64(lowered.code[k]), lowered.a[k], lowered.b[k]
    before = -1 if is_first else lowered.dst[k - 1]  # what the accumulator holds
    action = place = 0
    operand, swapped = b, False
    if b == before and not is_first:
        operand, swapped = a, True
    elif a != before or is_first:  # nothing of this instruction is in the accumulator
        if not is_first:
            action |= SPILL | (before >> 2) << _SPILL_SLOT
        swapped = rows.arity[code] == 2 and (rows.pair[code] == 1 or a & 3 == UNIFORM)
        loaded = b if swapped else a
        operand = a if swapped else b
        if loaded & 3 == COLUMN:
            action |= LOAD
            place |= (loaded >> 2) << _LOADED
        elif rows.pair[code] == 1:  # pair of columns, and b is the number
            made.sources[w] = source(b, e, lowered, first_result)
            made.words[w, 0] = action | rows.case[code, 5] << _CASE
            made.words[w, 1] = a >> 2
            return
        else:  # a number that is copied
            operand = loaded
    form = 0
    if operand >= 0:
        first = swapped and rows.commutative[code] == 0
        if operand & 3 == UNIFORM:
            form = 4 if first else 3
            made.sources[w] = source(operand, e, lowered, first_result)
        else:
            form = 2 if first else 1
            place |= operand >> 2
            if operand & 3 == SLOT:
                action |= FROM_SLOT
    made.words[w, 0] = action | rows.case[code, form] << _CASE
    made.words[w, 1] = place


@compiled
def source(operand, e, lowered, first_result):
    """Where the uniform of an operand comes from."""
    if operand < 0:
        return 0
    index = operand >> 2
    n_params = lowered.n_params[e]
    if index < n_params:
        return index << 2 | PARAMETER
    constant = lowered.first_const[e] + index - n_params
    if constant < lowered.first_const[e + 1]:
        return constant << 2 | CONSTANT
    return (first_result + constant - lowered.first_const[e + 1]) << 2 | RESULT
