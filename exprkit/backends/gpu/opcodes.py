"""The text of the CUDA kernels: that of ``PARTS``, with the operators' cases from the table.

In: the operator table.  Out: CUDA C, which ``nvrtc`` compiles.  A word of a GPU program names a *case*, which is
an operator together with where its operand comes from.  This module numbers the cases, for
``bytecode`` to write and for the kernel to read, and writes their code.

    >>> from exprkit.backends.gpu import opcodes
    >>> "a / b" in opcodes.source("ieee")
    True

==============  ========================================================================
form            what the case computes (acc: the accumulator, one value a point)
==============  ========================================================================
ALONE           acc = f(acc)
MEMORY          acc = f(acc, column or slot)
MEMORY_FIRST    acc = f(column or slot, acc); of a pair: its two columns
NUMBER          acc = f(acc, number); of an operator of one operand: f(number)
NUMBER_FIRST    acc = f(number, acc); of a pair: both numbers
BOTH            acc = f(pair of columns, number)
==============  ========================================================================
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from exprkit.operators import ops

HEAD = "gpu/job.cu", "gpu/arithmetic.cu"  # that other kernels begin with, too
PARTS = *HEAD, "interpreter/interpreter.cu", "gpu/support.cu"
ALONE, MEMORY, MEMORY_FIRST, NUMBER, NUMBER_FIRST, BOTH = range(6)
N_FORMS = 6
_NO_CASE = -1
# these take a double-double as operand a
_PAIR_FIRST = frozenset(row.rewrite.split[1] for row in ops.BY_CODE.values() if row.rewrite.split)


def takes_pair(row: ops.Operator) -> bool:
    """Whether operand a is a pair (high part, low part)."""
    return row.name in _PAIR_FIRST


def forms(row: ops.Operator) -> tuple[int, ...]:
    """The forms an operator's cases come in."""
    if row.width > 1:
        return ()  # pairs are made in columns and prologues only
    if takes_pair(row):
        return MEMORY_FIRST, NUMBER_FIRST, BOTH
    if row.arity == 1:
        return (ALONE, NUMBER) if row.code == ops.COPY else (ALONE,)
    short = row.commutative and row.cuda.inline
    return (MEMORY, NUMBER) if short else (MEMORY, MEMORY_FIRST, NUMBER, NUMBER_FIRST)


@functools.cache
def numbers() -> np.ndarray:
    """The number of every case, [operator's code, form]; -1 where there is none."""
    table = np.full((256, N_FORMS), _NO_CASE, np.int32)
    n = 0
    for row in (*rows(common=True), *rows(common=False)):
        for form in forms(row):
            table[row.code, form] = n
            n += 1
    table.flags.writeable = False
    return table


def joined(parts: Iterable[str]) -> str:
    """The texts of these files of the backends, one behind the other."""
    folder = Path(__file__).parents[1]
    return "\n".join((folder / part).read_text() for part in parts)


@functools.cache
def source(operators: str) -> str:
    """The CUDA C of all kernels.

    Parameters
    ----------
    operators : {"ieee", "fast"}
        Which of the table's formulas to use.
    """
    text = joined(PARTS)
    for mark, common in (("common", True), ("other", False)):
        cases = "\n".join(line for row in rows(common) for line in _cases(row, operators))
        text = text.replace(f"            //{{{mark} cases}}", cases)
    scalars = "\n".join(_scalar_case(row, operators) for row in all_rows())
    n_common = sum(len(forms(row)) for row in rows(common=True))
    return text.replace("    //{scalar cases}", scalars).replace("COMMON_CASES", str(n_common))


def all_rows() -> list[ops.Operator]:
    """The operators that programs hold, by their codes."""
    return [ops.IN_VALUES[code] for code in sorted(ops.IN_VALUES)]


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


def _scalar_case(row: ops.Operator, operators: str) -> str:
    return f"    case {row.code}: return {formula(row, operators)};  // {row.name}"


def _cases(row: ops.Operator, operators: str) -> Iterator[str]:
    """An operator's cases; the order of the function's arguments puts the operands in order."""
    body = f"-> T {{ return {formula(row, operators)}; }}"
    if is_long(row, operators) and forms(row):
        first = numbers()[row.code, forms(row)[0]]
        labels = " ".join(f"case {numbers()[row.code, form]}:" for form in forms(row))
        call = _LONG_CALLS[row.arity, takes_pair(row)]
        if row.cuda.fast_path:
            usual = call[call.rindex("[") : call.rindex(")")].replace(")", ", bool &in_range)", 1)
            usual = usual.replace("{}", f"-> T {{ return {row.cuda.fast_path}; }}")
            call = call.replace("[]", f"{usual}, []")
        call = call.replace("{first}", str(first)).replace("{}", body)
        yield f"            {labels} {call}; break;  // {row.name}"
        return
    for form in forms(row):
        call = _CALLS[row.arity, takes_pair(row), form].replace("{}", body)
        yield f"            case {numbers()[row.code, form]}: {call}; break;  // {row.name}"


_CALLS = {  # (arity, takes a pair, form): the call, {} for the function's body
    (1, False, ALONE): "alone(acc, [](T a) {})",
    (1, False, NUMBER): "with_number(acc, high, [](T, T a) {})",
    (2, False, MEMORY): "with_memory(acc, memory, [](T a, T b) {})",
    (2, False, MEMORY_FIRST): "with_memory(acc, memory, [](T b, T a) {})",
    (2, False, NUMBER): "with_number(acc, high, [](T a, T b) {})",
    (2, False, NUMBER_FIRST): "with_number(acc, high, [](T b, T a) {})",
    (2, True, MEMORY_FIRST): "with_pair(acc, memory, [](T b, T a, T a_low) {})",
    (2, True, NUMBER_FIRST): "with_number(acc, high, [a_low](T b, T a) {})",
    (2, True, BOTH): "set(acc, high); with_pair(acc, memory, [](T b, T a, T a_low) {})",
}
_LONG_CALLS = {  # (arity, takes a pair): the call for all forms, {first} for the number of the first one
    (1, False): "go_round(acc, [](T a) {})",
    (2, False): "go_round(acc, form - {first}, memory, high, [](T a, T b) {})",
    (2, True): "go_round_pair(acc, form - {first}, memory, high, a_low, [](T b, T a, T a_low) {})",
}
