"""Dataclasses and named tuples as arrays by name, as files hold them, and back.

In: a record.  Out: an array ``PART.FIELD`` for each field that a file can hold.  Back: the fields by name; each has the
kind and shape that its annotation says, or ValueError.

    >>> class Track(NamedTuple):
    ...     points: Annotated[np.ndarray, "float[n, 2]"]
    ...     seconds: float
    ...     weights: Annotated[np.ndarray, "float[n]"] | None = None
    >>> arrays = to_arrays("track", Track(np.ones((3, 2)), 0.5))
    >>> sorted(arrays), from_arrays("track", Track, arrays, n=3)["seconds"]
    (['track.points', 'track.seconds'], 0.5)

Held are ``Annotated[np.ndarray, "KIND[LENGTH, ...]"]`` (a length is a number, a size that is given, or a name that is
the same length wherever it stands), a ``dict`` of such arrays, ``int``, ``float``, ``bool`` and ``str``; with
``| None`` behind it, None is missing.  Other fields are left out.
"""

from __future__ import annotations

import functools
import re
from typing import Annotated, Any, NamedTuple  # noqa: F401 - the example's

import numpy as np

KINDS = {"float": "f", "int": "iu", "bool": "b", "str": "U", "number": "fiub"}  # of dtypes, by a word
ARRAYS = r"""Annotated\[(np\.ndarray|dict\[str, np\.ndarray\]), ["'](\w+)\[(.*?)\]["']\]"""
HINT = re.compile(rf"(?:{ARRAYS}|(\w+))( \| None)?$")


class _Field(NamedTuple):
    """A field that a file holds."""

    name: str
    kind: str  # of ``KINDS``
    lengths: tuple[str, ...] | None  # None: a single one
    is_dict: bool
    may_lack: bool

    def checked(self, key: str, array: np.ndarray, sizes: dict[str, int]) -> np.ndarray:
        """The array; lengths that were not known are added to ``sizes``."""
        lengths = self.lengths or ()
        fits = array.ndim == len(lengths) and array.dtype.kind in KINDS[self.kind]
        for length, n in zip(lengths, array.shape, strict=False):
            fits = fits and n == (int(length) if length.isdigit() else sizes.setdefault(length, n))
        if not fits:
            wanted = f"{self.kind}[{', '.join(lengths)}] must be, with {sizes}"
            raise ValueError(f"its {key!r} is an array of {array.dtype} and shape {array.shape} where {wanted}")
        return array


@functools.cache
def _fields(record: Any) -> list[_Field]:
    fields = []
    for name, hint in record.__annotations__.items():
        match = HINT.match(getattr(hint, "__forward_arg__", str(hint)))
        if match and (match[1] or match[4] in KINDS):
            lengths = tuple(re.findall(r"\w+", match[3])) if match[1] else None
            is_dict = bool(match[1]) and match[1] != "np.ndarray"
            fields.append(_Field(name, match[2] or match[4], lengths, is_dict, bool(match[5])))
    return fields


def to_arrays(part: str, record: Any) -> dict[str, np.ndarray]:
    """The fields of a record, by their names in a file."""
    kind: Any = type(record)
    held = {f"{part}.{field.name}": getattr(record, field.name) for field in _fields(kind)}
    for key in [key for key, value in held.items() if isinstance(value, dict)]:
        held |= {f"{key}.{name}": value for name, value in held.pop(key).items()}
    return {key: np.asarray(value) for key, value in held.items() if value is not None}


def from_arrays(part: str, record: type, arrays: dict[str, np.ndarray], **sizes: int) -> dict[str, Any]:
    """The fields of such a record, from the arrays of a file; KeyError of one that is missing."""
    fields: dict[str, Any] = {}
    for field in _fields(record):
        key = f"{part}.{field.name}"
        if field.is_dict:
            items = of_part(key, arrays).items()
            fields[field.name] = {name: field.checked(f"{key}.{name}", one, sizes) for name, one in items}
        elif key in arrays or not field.may_lack:
            array = field.checked(key, arrays[key], sizes)
            fields[field.name] = array.item() if field.lengths is None else array
    return fields


def in_part(part: str, arrays: dict[str, Any]) -> dict[str, np.ndarray]:
    """Arrays under the names that they have in a file; None is left out."""
    return {f"{part}.{name}": np.asarray(array) for name, array in arrays.items() if array is not None}


def of_part(part: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of a part of a file, by their own names."""
    return {key.removeprefix(f"{part}."): array for key, array in arrays.items() if key.startswith(f"{part}.")}
