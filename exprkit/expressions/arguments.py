"""Checks of the generators' arguments: operators, numbers, and whether the result fits in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from exprkit import errors
from exprkit.errors import ArgumentError
from exprkit.numbers import as_numbers
from exprkit.operators import defined, ops
from exprkit.runtime.machine import available_memory
from exprkit.text.define import define, of_table
from exprkit.text.names import Names
from exprkit.text.parse_errors import instead
from exprkit.text.tokens import Words

BYTES_PER_TOKEN = 9  # of a population: kind and value
BYTES_PER_EXPRESSION = 13  # of a population: offset, parameter count, validity

Operators = str | Sequence[str]


def operators_of(operators: Operators) -> list[defined.Written]:
    """The operators' rows, in the order given, each once; a symbol stands for its binary operator.

    One that is given as ``"swish(x) = x / (1 + exp(-x))"`` is defined by it.
    """
    if isinstance(operators, str):
        if operators not in ops.SETS:
            if defined.spelled(operators) or "(" in operators:
                raise ArgumentError(f"{operators!r} is a single operator: give a list, [{operators!r}]")
            raise ArgumentError(_unknown("set of operators", operators, ops.SETS) + "; several operators go in a list")
        operators = ops.SETS[operators]
    symbols = {sign: row for row in ops.OPERATORS for sign in (row.infix, *row.aliases) if row.arity == 2 and sign}
    by_code: dict[int, defined.Written] = {}
    if not hasattr(operators, "__iter__") or getattr(operators, "ndim", 1) == 0:
        raise ArgumentError(f"operators must be a set's name or a list of names, not {errors.brief(operators)}")
    for name in operators:
        spelling = getattr(name, "__name__", name)  # of what ``exprkit.operator`` gave, and of np.sin
        row = (symbols.get(spelling) or defined.spelled(spelling)) if isinstance(spelling, str) else None
        if row is None and isinstance(spelling, str) and "(" in spelling:
            row = of_table(spelling) or define(spelling)
        if row is None:
            raise ArgumentError(_unknown("operator", name, defined.spellings()))
        by_code.setdefault(row.code, row)
    return list(by_code.values())


def names(variables: Iterable[str] | None, n_vars: int, usual: int) -> tuple[Words, int]:
    """The names of the variables, None for x1, x2, …, and how many there are; ``n_vars`` is ``usual`` if not given."""
    if variables is None:
        return None, n_vars
    checked = Names(variables, of_data=True)
    n_named = checked.max_x if checked.variables is None else len(checked.variables)
    if n_vars not in (usual, n_named):
        raise ArgumentError(f"n_vars={errors.brief(n_vars)}, but variables are {n_named:,}: give one of the two")
    return checked.variables, n_named


def numbers(name: str, values: object) -> np.ndarray:
    return as_numbers(name, values, gaps=False).astype(np.float64)


def _unknown(what: str, name: object, possible: Iterable[str]) -> str:
    if what == "operator" and (written := instead(str(name))):
        return f"there is no operator {name!r}; '{written[0]} = {written[1]}' in its place defines one"
    hint = errors.did_you_mean(str(name), possible, ops.OTHER_NAMES) or f"; there are {', '.join(possible)}"
    return f"there is no {what} {name!r}{hint}"


def check_memory(needed: float, what: str, remedy: str) -> None:
    available = available_memory()
    if available is not None and needed > available:
        raise ArgumentError(
            f"{what} need about {needed / 1e9:,.1f} GB; {available / 1e9:,.1f} GB are available: {remedy}"
        )
