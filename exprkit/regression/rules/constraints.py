"""Constraints on operators given by the user, checked.

In: dictionaries in PySR's words.  Out: a ``Limit`` for each operator that has one.

    >>> from exprkit.regression.rules.constraints import limits
    >>> nested = {"sin": {"sin": 0, "exp": 1}}
    >>> allowed = limits({"^": (-1, 1), "sin": {"variables": ["angle"]}}, nested, ["angle", "mass"])
    >>> [(limit.name, limit.sizes, limit.variables) for limit in allowed.values()]
    [('pow', (-1, 1), None), ('sin', (-1,), (0,))]

An operator's constraint is the most tokens of its operands, -1 for any (PySR's form), or a dictionary of:

=============  ===============================================================================
``sizes``      the same
``numbers``    (low, high): the last operand is a number in between (``^``: a range of exponents)
``variables``  names of the only variables that may stand inside
=============  ===============================================================================

``nested``: by operator how many of another (or the same) may at most stand inside of each other in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from exprkit.errors import ArgumentError, brief, did_you_mean, listed, whole
from exprkit.expressions import arguments
from exprkit.operators import defined

KEYS = ("sizes", "numbers", "variables")
MAX_VARIABLES = 52  # of data with constrained variables: bits of a whole number that a double holds


class Limit(NamedTuple):
    """The constraints on one operator."""

    name: str
    sizes: tuple[int, ...]  # tokens of the operands at most; -1: any
    numbers: tuple[float, float] | None = None  # range of the last operand, which must be a number
    variables: tuple[int, ...] | None = None  # indices of those allowed in its operands
    inside: tuple[tuple[int, int], ...] = ()  # codes of operators, and how many of each may be nested in it


def limits(constraints: Any, nested: Any, names: Sequence[str]) -> dict[int, Limit]:
    """The limits of operators, by their codes; raises ArgumentError for what is unknown or out of range."""
    by_code: dict[int, Limit] = {}
    for name, given in _dictionary("constraints", constraints).items():
        row = _operator("constraints", name)
        by_code[row.code] = _limit(row, given, names)
    for name, others in _dictionary("nested_constraints", nested).items():
        row = _operator("nested_constraints", name)
        inside = []
        for other, most in _dictionary(f"nested_constraints[{name!r}]", others).items():
            inside.append(
                (_operator("nested_constraints", other).code, whole(f"constraints: {name!r} of {other!r}", most, 0))
            )
        before = by_code.get(row.code, Limit(row.name, (-1,) * row.arity))
        by_code[row.code] = before._replace(inside=tuple(inside))
    return by_code


def _limit(row: defined.Written, given: Any, names: Sequence[str]) -> Limit:
    if not isinstance(given, Mapping):
        return Limit(row.name, _sizes(row, given))
    for key in given:
        if key not in KEYS:
            hint = did_you_mean(str(key), KEYS)
            raise ArgumentError(f"constraints of {row.name!r}: there are {', '.join(KEYS)}, not {brief(key)}{hint}")
    numbers, variables = given.get("numbers"), given.get("variables")
    return Limit(
        row.name,
        _sizes(row, given.get("sizes", -1)),
        None if numbers is None else _range(row, numbers),
        None if variables is None else _variables(row, variables, names),
    )


def _sizes(row: defined.Written, given: Any) -> tuple[int, ...]:
    sizes = listed(given)
    if sizes is None:
        sizes = (given,) * row.arity
    if len(sizes) != row.arity:
        raise ArgumentError(f"constraints: {row.name!r} has {row.arity} operands, not {len(sizes)}")
    return tuple(whole(f"constraints: size of an operand of {row.name!r}", size, -1) for size in sizes)


def _range(row: defined.Written, given: Any) -> tuple[float, float]:
    values = listed(given)
    if row.arity != 2 or values is None or len(values) != 2:
        raise ArgumentError(f"constraints: numbers of {row.name!r} must be (low, high), of an operator of two operands")
    low, high = arguments.numbers("numbers", values).tolist()
    if not low <= high:
        raise ArgumentError(f"constraints: numbers of {row.name!r} must be (low, high), not {brief(given)}")
    return low, high


def _variables(row: defined.Written, given: Any, names: Sequence[str]) -> tuple[int, ...]:
    if len(names) > MAX_VARIABLES:
        raise ArgumentError(f"constraints: variables are for data of at most {MAX_VARIABLES} columns")
    for name in listed(given) or (given,):
        if name not in names:
            hint = did_you_mean(str(name), names)
            raise ArgumentError(f"constraints of {row.name!r}: there is no variable {brief(name)}{hint}")
    return tuple(list(names).index(name) for name in listed(given) or (given,))


def _dictionary(what: str, given: Any) -> Mapping[Any, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise ArgumentError(f"{what} must be a dictionary by operators, not {brief(given)}")
    return given or {}


def _operator(what: str, name: Any) -> defined.Written:
    try:
        return arguments.operators_of([name])[0]
    except ArgumentError as error:
        raise ArgumentError(f"{what}: {error}") from None
