"""The operators of a search as a user gives them: by the number of their operands.

In: ``binary_operators``, ``unary_operators`` and ``operators`` of a ``SymbolicRegressor``.  Out: rows.

    >>> from exprkit.regression.estimator.chosen_operators import chosen_operators
    >>> rows, _, beside = chosen_operators(["+", "*"], None, {1: ["sin"], 3: ["fma(a, b, c) = a * b + c"]})
    >>> [row.name for row in rows]
    ['fma', 'add', 'mul', 'sin']
    >>> beside
    ()
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from exprkit.errors import ArgumentError, brief, number_of, whole_number
from exprkit.expressions import arguments
from exprkit.operators import defined, ops
from exprkit.operators.defined import MOST_OPERANDS
from exprkit.regression.stages.search_problem import default_operators

PARAMETERS = {2: "binary_operators", 1: "unary_operators"}


def chosen_operators(
    binary: Any, unary: Any, by_operands: Any
) -> tuple[tuple[defined.Written, ...], tuple[defined.Written, ...], tuple[int, ...] | None]:
    """The operators, those of most operands first; those that may stand around a whole formula only; and the codes of
    others that formulas may be written with: of any (None) where nothing is chosen, powers beside the usual arithmetic.

    Raises
    ------
    ArgumentError
        For a name that none has, or one of another number of operands, or where two parameters give the same.
    """
    names = dict(_by_operands(by_operands))
    parameters = {arity: f"operators[{arity}]" for arity in names}
    for arity, value in ((2, binary), (1, unary)):
        if value is not None and arity in names:
            raise ArgumentError(f"operators[{arity}] and {PARAMETERS[arity]} are the same: give one of the two")
        if value is not None:
            names[arity], parameters[arity] = value, PARAMETERS[arity]
    chosen: list[defined.Written] = []
    for arity in range(MOST_OPERANDS, 0, -1):
        if names.get(arity) is None:
            chosen += [row for row in default_operators() if row.arity == arity]
            continue
        try:
            rows = arguments.operators_of(names[arity])
        except ArgumentError as error:
            raise ArgumentError(f"{parameters[arity]}: {error}") from None
        if isinstance(names[arity], str):  # a set's name, whose operators take one operand and two
            rows = [row for row in rows if row.arity == arity]
        for row in rows:
            if row.arity != arity:
                other = PARAMETERS.get(row.arity, "")
                where = other and f", which go into {other}" if arity == MOST_OPERANDS else _hint(row)
                takes = f"{row.name!r} takes {number_of(row.arity, 'operand')}"
                raise ArgumentError(f"{parameters[arity]}: {takes}{where}")
        chosen += rows
    outermost = tuple(ops.BY_NAME[name] for name in ops.OUTERMOST if 1 not in names)
    beside = None if not names.keys() & PARAMETERS.keys() else () if 2 in names else (ops.POW,)
    return tuple(chosen), outermost, beside


def _hint(row: defined.Written) -> str:
    return f"; give it as operators={{{row.arity}: [{row.name!r}]}}" if row.arity == MOST_OPERANDS else ""


def _by_operands(operators: Any) -> Mapping[int, Any]:
    if operators is None:
        return {}
    if not isinstance(operators, Mapping):
        raise ArgumentError(
            f"operators must be a dictionary by the number of operands, as {{3: ['fma']}}, not {brief(operators)}"
        )
    for arity in operators:
        if whole_number(arity) is None or not 1 <= arity <= MOST_OPERANDS:
            raise ArgumentError(f"operators: operators have 1 to {MOST_OPERANDS} operands, not {brief(arity)}")
    return operators


def refuse_elsewhere(operators: tuple[defined.Written, ...], loss: str) -> None:
    """An error for an operator, of a search or in the text of its loss, that processes elsewhere do not know."""
    spelled = [row for word in re.findall(r"\w+", loss) if (row := defined.spelled(word)) is not None]
    for row in (*operators, *spelled):
        if defined.FIRST_CODE <= row.code < defined.END_CODE:
            raise ArgumentError(
                f"{row.name!r} is an operator of this process, which a client's workers do not know; leave client= out "
                "(devices= is of this process)"
            )


def refuse_without_cuda(operators: tuple[defined.Written, ...]) -> None:
    """An error for an operator whose code no kernel of a search on a GPU can hold."""
    for row in operators:
        codes = [row.code] if isinstance(row, ops.Operator) else row.values[row.kinds == defined.OPERATOR].tolist()
        for name in defined.without_cuda(codes):
            uses = "" if name == row.name else f", which {row.name!r} uses,"
            raise ArgumentError(
                f"{name!r}{uses} has no CUDA text, so that no search on a GPU can use it; take backend='cpu', or "
                "define it with code: ek.operator(name, numpy=…, cuda=…, derivative=…)"
            )
