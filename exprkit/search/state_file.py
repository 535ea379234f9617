"""State files of an exhaustive search, so that a killed search can continue.

In: arrays, and all that they depend on.  Out: a file, written whole or not at all; the same arrays, read again by a
search of the same data and settings.

=====================  ==========================================================================
array                  what it holds, beside the search's own
=====================  ==========================================================================
``search.data``        SHA-256 of the data
``search.settings``    JSON of all that decides the result, by name (``as_texts``)
=====================  ==========================================================================
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from exprkit.errors import FileError, NoSuchFileError
from exprkit.expressions.expression import Expression
from exprkit.operators import defined, ops
from exprkit.runtime import files

EVERY = 1.0  # seconds between two writings, at least; chosen, not measured
SHARE = 0.05  # of the time that is spent on writing, at most; chosen, not measured
LONGEST = 80  # characters of a setting beyond which its SHA-256 is written instead; chosen, not measured
WHAT = "checkpoint of a search"


class StateFile:
    """The file at a path, or none, where a search writes its state; ``arrays``: what is there, or None.

    Raises ArgumentError if ``path`` is no path (``argument`` is what it is called), FileError if the file is no
    checkpoint, or is damaged.
    """

    def __init__(self, path: Any, argument: str = "file") -> None:
        self.path = None if path is None else files.checked_path(path, f"{argument} must be None or the path of a file")
        self._depends: dict[str, Any] = {}
        self._due = 0.0
        self.arrays = None if self.path is None else _read(self.path)

    def begin(self, data: Iterable[np.ndarray], settings: Mapping[str, Any]) -> None:
        """Say what the state depends on; raises FileError if what is there is of other data or settings."""
        digested, texts = digest(data), as_texts(settings)
        self._depends = {"search.data": digested, "search.settings": json.dumps(texts)}
        if self.arrays is None:
            return
        given = json.loads(str(self.arrays["search.settings"]))
        differs = [] if np.array_equal(self.arrays["search.data"], digested) else ["its data is other data"]
        differs += [
            f"its {name} is {given.get(name)}, not {text}" for name, text in texts.items() if given.get(name) != text
        ]
        if differs:
            raise FileError(
                f"{str(self.path)!r} is the checkpoint of another search: {'; '.join(differs)}.  Take "
                "another file, or remove it"
            )

    def save(self, arrays: Callable[[], Mapping[str, Any]], now: bool = False) -> None:
        """Write the arrays, if that was long ago or is to be now."""
        begin = time.monotonic()
        if self.path is None or (begin < self._due and not now):
            return
        files.write_arrays(self.path, self._depends | dict(arrays()))
        end = time.monotonic()
        self._due = end + max(EVERY, (end - begin) / SHARE)


def _read(path: Any) -> dict[str, np.ndarray] | None:
    try:
        arrays = files.read_arrays(path, WHAT)
    except NoSuchFileError:
        return None
    with files.damage_errors(path, WHAT):
        if not isinstance(json.loads(str(arrays["search.settings"])), dict):
            raise ValueError("invalid settings")
    return arrays


def digest(arrays: Iterable[np.ndarray]) -> np.ndarray:
    """SHA-256 of arrays."""
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(str(array.shape).encode() + array.tobytes())
    return np.frombuffer(sha.digest(), np.uint8)


def as_texts(settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings as texts; of long ones the beginning and SHA-256."""
    texts = {name: _text(value) for name, value in settings.items()}
    return {
        name: text if len(text) <= LONGEST else f"{text[:40]}… {hashlib.sha256(text.encode()).hexdigest()[:20]}"
        for name, text in texts.items()
    }


def _text(value: Any) -> str:
    """All of a setting, the same in every process."""
    if isinstance(value, ops.Operator):
        return value.name
    if isinstance(value, defined.Definition):
        return value.text
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, (tuple, list)):
        return f"({','.join(map(_text, value))})"
    if isinstance(value, dict):
        return _text(list(value.items()))
    plain = isinstance(value, (Expression, str, int, float, np.generic)) or value is None
    return str(value) if plain else f"{type(value).__name__}{_text(vars(value))}"
