"""Structures: what is compiled of an expression, and the numbers that are not.

In: programs.  Out: the different structures, and each expression's numbers.  The point code of an
expression without the values of its constants, parameters and prologue is its structure;
expressions of one structure share machine code and differ in their numbers.  Where there are many
structures, the columns that they read are numbers of an expression as well: far fewer have to be
compiled.

    >>> import exprkit as ek
    >>> from exprkit.programs.lower import lower
    >>> from exprkit.backends.transpiler.structures import structures
    >>> structures(lower(ek.parse(["x1 + p1", "x1 + 2", "x2 * p1"]))).of
    array([0, 0, 1], dtype=int32)

An operand of a structure is ``index << 2 | kind`` as in ``lower``, but

=======  ==================================================================================
kind     index
=======  ==================================================================================
SLOT     the instruction of the same structure, counted from 0, whose result it is
COLUMN   the column, as in the program; or a column of the structure, see ``given``
UNIFORM  a number of the structure, counted in the order in which they are first used
=======  ==================================================================================

The result of a structure is that of its last instruction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exprkit.backends.gpu import opcodes
from exprkit.backends.gpu.bytecode import Accumulated
from exprkit.backends.transpiler.loops import Made, PointPrograms, find_all
from exprkit.operators import ops
from exprkit.programs.lower import COLUMN, Program


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
    ``make_numbers`` of the interpreter reads them: its "words" are the numbers here.

    Where columns are ``given``, a structure does not say which columns it reads either: each use of one is a
    column of the structure (of a pair two, one after the other), and each expression has its own.  There are
    fewer such structures; they compute nothing together and share no columns.

    ================  =====  ==============  ========================================================
    array             dtype  shape           what it holds
    ================  =====  ==============  ========================================================
    ``n_columns``     int32  n_structures    columns of each structure; 0 where they are not given
    ``first_column``  int32  n_exprs         where in ``columns`` those of each expression begin
    ``columns``       int32  n_given         columns of the program
    ================  =====  ==============  ========================================================
    """

    of: np.ndarray
    first: np.ndarray
    code: np.ndarray
    a: np.ndarray
    b: np.ndarray
    n_numbers: np.ndarray
    example: np.ndarray
    numbers: Accumulated
    given: bool
    n_columns: np.ndarray
    first_column: np.ndarray
    columns: np.ndarray

    def __len__(self) -> int:
        return len(self.first) - 1


def structures(program: Program, given: bool = False) -> Structures:
    """Find the structures of lowered programs.

    Parameters
    ----------
    program : Program
    given : bool
        Expressions that differ in their columns alone have the same structure.
    """
    n_exprs, n_instr = len(program), len(program.code)
    lowered = PointPrograms(
        program.code, program.a, program.b, program.dst, program.offsets, program.n_prologue,
        program.first_const, program.n_params, *_by_code(),
    )  # fmt: skip
    n_steps = int(program.n_prologue.sum())
    most = 2 * n_instr + n_exprs
    made = Made(
        np.empty(n_exprs, np.int32), np.zeros(n_exprs + 1, np.int64), np.empty(n_instr + n_exprs, np.uint8),
        np.empty(n_instr + n_exprs, np.int32), np.empty(n_instr + n_exprs, np.int32), np.empty(n_exprs, np.int32),
        np.empty(n_exprs, np.int32), np.zeros(n_exprs, np.int32), np.empty(most, np.int32),
        np.zeros((n_steps, 4), np.int32), np.zeros(n_exprs + 1, np.int32), np.empty(n_exprs, np.int32),
        np.empty(3 * n_instr if given else 0, np.int32), np.empty(n_exprs, np.int32),
    )  # fmt: skip
    scratch = (
        np.full(max(program.n_uniforms, 1), -1, np.int32), np.zeros(max(program.n_slots, 1), np.int32)
    )  # fmt: skip
    table = np.full(1 << max(4, (2 * n_exprs).bit_length()), -1, np.int32)
    n, n_numbers, n_given, n_results = find_all(lowered, made, given, *scratch, table)
    last = made.first[n]
    numbers = Accumulated(
        words=np.zeros((n_numbers, 2), np.uint32),
        first_word=made.first_number,
        sources=np.append(made.sources[:n_numbers], np.int32(0)),  # where an expression without numbers points to
        steps=made.steps,
        first_step=made.first_step,
        constants=np.append(program.constants, np.nan),
        cost=np.zeros(0, np.int64),
        n_slots=0,
        n_results=n_results,
    )
    return Structures(
        of=made.of,
        first=made.first[: n + 1].copy(),
        code=made.code[:last].copy(),
        a=made.a[:last].copy(),
        b=made.b[:last].copy(),
        n_numbers=made.n_numbers[:n].copy(),
        example=made.example[:n].copy(),
        numbers=numbers,
        given=bool(given),
        n_columns=made.n_columns[:n].copy(),
        first_column=made.first_column,
        columns=made.columns[:n_given].copy(),
    )


MANY = 1_000  # structures from which it matters how many are compiled
FEWER = 2  # times: what given columns must gain
MOST_GIVEN = 64  # columns of a structure


def to_compile(program: Program, given: bool | None = None) -> Structures:
    """The structures that are compiled.

    Parameters
    ----------
    program : Program
    given : bool, optional
        Whether columns are given (where structures have not too many of them); by default where structures are
        many and that makes far fewer of them.
    """
    found = structures(program)
    if given is False or (given is None and len(found) < MANY):
        return found
    fewer = structures(program, given=True)
    pays = given or FEWER * len(fewer) <= len(found)
    return fewer if pays and fewer.n_columns.max(initial=0) <= MOST_GIVEN else found


def _by_code() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By operator code: whether the operands may be exchanged, how wide the result is, whether a is a pair."""
    commutative, width, takes_low = np.zeros(256, np.bool_), np.ones(256, np.uint8), np.zeros(256, np.bool_)
    for row in ops.BY_CODE.values():
        commutative[row.code] = row.commutative and not opcodes.takes_pair(row)
        width[row.code] = row.width
        takes_low[row.code] = opcodes.takes_pair(row)
    return commutative, width, takes_low


def columns_of(found: Structures, n_columns: int) -> np.ndarray:
    """Which columns each structure reads, bool (n_structures, n_columns); of a pair the high part.

    Where columns are given, none: no two structures share one.
    """
    if found.given:
        return np.zeros((len(found), 0), np.bool_)
    used = np.zeros((len(found), max(n_columns, 1)), np.bool_)
    owner = np.repeat(np.arange(len(found)), np.diff(found.first))
    for operand in (found.a, found.b):
        column = (operand >= 0) & (operand & 3 == COLUMN)
        used[owner[column], operand[column] >> 2] = True
    return used
