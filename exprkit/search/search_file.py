"""The state of a search on disk, so that one that was ended goes on where it was.

In: a ``SearchState``.  Out: the same, read again by a search of the same data and settings.  npz without pickle,
written whole or not at all.

    >>> import tempfile, pathlib
    >>> from exprkit.search.search_file import SearchFile, SearchState
    >>> file = SearchFile(pathlib.Path(tempfile.mkdtemp()) / "search.npz", b"of this data")
    >>> file.write(SearchState.empty(2))
    >>> len(file.read(SearchState.empty(2)).loss)
    0
"""

from __future__ import annotations

import dataclasses
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exprkit.errors import ArgumentError, FileError
from exprkit.runtime import files

FORMAT = 2  # also where functions get other numbers than before
EVERY = 10.0  # seconds between two writings


@dataclass
class SearchState:
    """What is known after so many functions; arrays by place in the order of the search.

    Of those ``kept``, places from the shortest description on, ``total`` to ``written`` hold what was described.
    """

    functions: np.ndarray  # their numbers
    forms: np.ndarray  # the form that was fitted
    loss: np.ndarray
    times: np.ndarray  # how often the best loss was found
    params: np.ndarray  # (n, n_params)
    kept: np.ndarray
    total: np.ndarray
    evaluations: np.ndarray  # (1,)

    @classmethod
    def empty(cls, width: int) -> SearchState:
        none, whole = np.empty(0), np.empty(0, np.int64)
        return cls(whole, whole, none, whole, np.empty((0, width)), whole, none, np.zeros(1, np.int64))


class SearchFile:
    """A path, or None, where a search keeps its state."""

    def __init__(self, path: Any, digest: bytes) -> None:
        try:
            self._path = None if path is None else Path(path)
        except TypeError:
            raise ArgumentError(f"file must be a path or None, not {path!r}") from None
        self._digest, self._last = digest, time.monotonic()

    def read(self, state: SearchState) -> SearchState:
        """What is there; ``state`` where nothing is.

        Raises
        ------
        FileError
            Where it is damaged, no search, or one of other data or settings.
        """
        if self._path is None or not self._path.exists():
            return state
        with files.told(self._path, "read"), open(self._path, "rb") as file:
            try:
                with np.load(file, allow_pickle=False) as held:
                    arrays = {name: held[name] for name in held.files}
            except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
                raise FileError(f"{str(self._path)!r} is no search, or is damaged: {error}") from error
        if (
            arrays.pop("format", None) != FORMAT
            or arrays.pop("digest", np.empty(0, np.uint8)).tobytes() != self._digest
        ):
            raise FileError(f"{str(self._path)!r} is of other data or settings; take another file, or remove it")
        return SearchState(**arrays)

    def write_sometimes(self, state: SearchState) -> None:
        """Write, if that was long ago."""
        if time.monotonic() - self._last > EVERY:
            self.write(state)

    def write(self, state: SearchState) -> None:
        """Keep the state."""
        if self._path is None:
            return
        arrays = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}

        def fill(beside: Path) -> None:
            with open(beside, "wb") as file:
                np.savez(file, allow_pickle=False, format=np.int64(FORMAT),
                         digest=np.frombuffer(self._digest, np.uint8), **arrays)  # fmt: skip

        with files.told(self._path, "written"):
            files.write(self._path, fill)
        self._last = time.monotonic()
