"""Named tuples of arrays, allocated from their fields' annotations.

    >>> from typing import Annotated, NamedTuple
    >>> import numpy as np
    >>> from exprkit.runtime.bags import zeros
    >>> class Sums(NamedTuple):
    ...     losses: Annotated[np.ndarray, "float64[n]"]  # by row
    ...     squares: Annotated[np.ndarray, "float64[n, 2]"]
    ...     limit: float
    >>> zeros(Sums, n=3, limit=0.5).squares.shape
    (3, 2)

A field of another type, or an array that is there already, is handed over by its own name.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

Bag = TypeVar("Bag", bound=tuple[Any, ...])


def zeros(bag: type[Bag], /, **sizes: Any) -> Bag:
    """A bag whose arrays hold zeros; ``sizes``: the lengths that the annotations name, and fields."""
    return _filled(np.zeros, bag, sizes)


def empty(bag: type[Bag], /, **sizes: Any) -> Bag:
    """A bag whose arrays are not yet written."""
    return _filled(np.empty, bag, sizes)


def larger(bag: Bag, n: int, /, **sizes: Any) -> Bag:
    """A bag of these sizes whose arrays begin with the first n rows of another one's."""
    new = empty(type(bag), **sizes)
    for old, array in zip(bag, new, strict=True):
        array[:n] = old[:n]
    return new


def _filled(array: Callable[..., np.ndarray], bag: type[Bag], sizes: dict[str, Any]) -> Bag:
    fields, numbers = _fields(bag)
    known = {**numbers, **sizes}
    return bag(*[known[name] if name in known else array(shape(known), dtype) for name, shape, dtype in fields])


@functools.cache
def _fields(bag: type) -> tuple[list[tuple[str, Callable[[Any], Any], np.dtype | None]], dict[str, int]]:
    """The name, function of the lengths that gives the shape, and dtype of each field; and lengths that are numbers."""
    fields: list[tuple[str, Callable[[Any], Any], np.dtype | None]] = []
    numbers: dict[str, int] = {}
    for name, hint in bag.__annotations__.items():
        match = re.search(r"""["'](\w+)\[(.*?)\]""", getattr(hint, "__forward_arg__", str(hint)))
        lengths = re.findall(r"\w+", match[2]) if match else [name]  # without an array the field itself is asked for
        numbers |= {length: int(length) for length in lengths if length.isdigit()}
        fields.append((name, operator.itemgetter(*lengths), np.dtype(match[1]) if match else None))
    return fields, numbers
