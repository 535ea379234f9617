"""Parallel lowering: programs of parts of a population, one thread each, joined into those of the whole.

In: what ``lower`` makes of each part.  Out: the same of all, array by array what one pass makes: instructions and
constants one part behind the other, and columns numbered anew.  A part numbers its columns as they first
occur in it, so part by part they first occur as in one pass.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import itertools
from typing import Annotated, Any, NamedTuple

import numpy as np

from exprkit.programs.emit import SLOTS, UNIFORMS
from exprkit.programs.program import COLUMN
from exprkit.runtime import slices
from exprkit.runtime.bags import zeros
from exprkit.runtime.jit import compiled


class Part(NamedTuple):
    """Programs of consecutive expressions: arrays of ``Program``, and of its totals the largest number of each."""

    code: np.ndarray
    a: np.ndarray
    b: np.ndarray
    dst: np.ndarray
    constants: np.ndarray
    offsets: np.ndarray
    first_const: np.ndarray
    column_code: np.ndarray
    column_var: np.ndarray
    results: np.ndarray  # is written where it is
    totals: np.ndarray


class _ColumnNumbers(NamedTuple):
    """The numbers of the columns of all parts so far."""

    column_of: Annotated[np.ndarray, "int32[n]"]  # [variable * 256 + code] -> column + 1, 0 where there is none yet
    code: Annotated[np.ndarray, "uint8[most]"]
    var: Annotated[np.ndarray, "int32[most]"]


def joined(parts: list[Part], cuts: slices.Cuts, width: np.ndarray) -> dict[str, Any]:
    """The fields of the ``Program`` of all parts that are made here.

    ``cuts`` are the parts' expressions, ``width`` the operators' cells of the table.
    """
    fields = (parts[0] if len(parts) == 1 else _joined(parts, cuts, width))._asdict()
    totals, _ = fields.pop("totals"), fields.pop("results")
    return fields | {"n_slots": int(totals[SLOTS]), "n_uniforms": int(totals[UNIFORMS])}


def _joined(parts: list[Part], cuts: slices.Cuts, width: np.ndarray) -> Part:
    n_vars = 1 + max(int(part.column_var.max(initial=0)) for part in parts)
    columns, n_columns, operands = zeros(_ColumnNumbers, n=256 * n_vars, most=512 * n_vars), 0, {}
    for (begin, _), part in zip(cuts, parts, strict=True):
        operands[begin] = np.zeros(len(part.column_code), np.int32)
        n_columns = _add_columns(part.column_code, part.column_var, width, columns, n_columns, operands[begin])
    places = _places(parts, cuts, lambda part: len(part.code)), _places(parts, cuts, lambda part: len(part.constants))
    n_instr, n_const = (place[cuts[-1][0]].stop for place in places)
    first = parts[0]
    whole = first._replace(
        **{name: np.empty(n_instr, getattr(first, name).dtype) for name in ("code", "a", "b", "dst")},
        constants=np.empty(n_const, first.constants.dtype),
        offsets=np.empty(cuts[-1][1] + 1, np.int64),
        first_const=np.empty(cuts[-1][1] + 1, np.int64),
        column_code=columns.code[:n_columns].copy(),
        column_var=columns.var[:n_columns].copy(),
        totals=np.max([part.totals for part in parts], axis=0),
    )
    whole.offsets[0] = whole.first_const[0] = 0
    of = {begin: part for (begin, _), part in zip(cuts, parts, strict=True)}

    def join(begin: int, end: int) -> None:
        part, (instr, const) = of[begin], (place[begin] for place in places)
        whole.code[instr], whole.dst[instr], whole.constants[const] = part.code, part.dst, part.constants
        renamed = operands[begin]
        if np.array_equal(renamed >> 2, np.arange(len(renamed))):
            whole.a[instr], whole.b[instr] = part.a, part.b
        else:
            _rename(part.a, renamed, whole.a[instr])
            _rename(part.b, renamed, whole.b[instr])
        _rename(part.results, operands[begin], part.results)
        np.add(part.offsets[1:], instr.start, out=whole.offsets[begin + 1 : end + 1])
        np.add(part.first_const[1:], const.start, out=whole.first_const[begin + 1 : end + 1])

    slices.each(join, cuts)
    return whole


def _places(parts, cuts, length) -> dict[int, slice]:
    """The place of a part's instructions or constants among those of all, by its first expression."""
    ends = itertools.pairwise(itertools.accumulate(map(length, parts), initial=0))
    return {begin: slice(*pair) for (begin, _), pair in zip(cuts, ends, strict=True)}


@compiled
def _add_columns(code, var, width, columns, n_columns, operands):
    """Number the columns of a part among all; gives how many there are now, and by column of the part its operand."""
    k = 0
    while k < len(code):
        place, n = int(var[k]) * 256 + int(code[k]), int(width[code[k]])
        known = columns.column_of[place] > 0
        if not known:
            columns.column_of[place] = n_columns + 1
        first = columns.column_of[place] - 1
        for part in range(n):
            operands[k + part] = (first + part) << 2 | COLUMN
            columns.code[first + part], columns.var[first + part] = code[k], var[k]
        n_columns += 0 if known else n
        k += n
    return n_columns


@compiled
def _rename(operands, columns, out):
    """The operands of a part with its columns as they are numbered among all."""
    for k in range(len(operands)):
        operand = operands[k]
        out[k] = columns[operand >> 2] if operand & 3 == COLUMN else operand
