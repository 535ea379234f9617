"""Populations on disk: npz without pickle, written whole or not at all.

    >>> import exprkit as ek, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "population.npz"
    >>> ek.parse(["x1 + 1"]).save(path)
    >>> ek.Population.load(path).texts()
    ['x1 + 1']

===============  =======  ======================================================
array            dtype    what it holds
===============  =======  ======================================================
``format``       int64    FORMAT
``kinds``        uint8    as in ``population``, likewise the next two
``values``       uint64
``offsets``      int64
``variables``    str      names; missing where they are x1, x2, …
``parameters``   str      names; missing where they are p1, p2, …
``operators``    str      (n, 4), of every operator of the user's own: its code in ``values``,
                          text, LaTeX and domain; missing where there are none
===============  =======  ======================================================
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from exprkit.errors import ArgumentError, PopulationError, brief
from exprkit.operators import defined, ops
from exprkit.runtime import files
from exprkit.text.tokens import TokenArrays

FORMAT = 1
ARRAYS = ("kinds", "values", "offsets")
NAMES = ("variables", "parameters")
OPERATORS = "operators"
MOST = 100  # times its size that a file may hold; others compress populations to a twentieth


class _Saved(TokenArrays, Protocol):
    """What is saved: a population."""

    def definitions(self) -> tuple[defined.Saved, ...]: ...


def save(
    population: _Saved, path: str | os.PathLike[str], further: Mapping[str, np.ndarray] | None = None
) -> None:
    """Write a new file, then put it in the place of ``path``: a reader never sees half a file.

    ``further`` arrays, of other names, are for other readers of the same file.
    """
    arrays = {name: getattr(population, name) for name in ARRAYS}
    for name in NAMES:
        if getattr(population, name) is not None:
            arrays[name] = np.array(getattr(population, name), dtype=np.str_)
    arrays |= further or {}

    if definitions := population.definitions():
        arrays[OPERATORS] = np.array([_as_texts(*one) for one in definitions], dtype=np.str_)

    def fill(beside: Path) -> None:
        with open(beside, "wb") as file:
            np.savez(file, allow_pickle=False, format=np.int64(FORMAT), **arrays)

    with files.told(path := _path(path), "written"):
        files.write(path, fill)


def load(
    path: str | os.PathLike[str], further: dict[str, np.ndarray] | None = None
) -> tuple[list[np.ndarray], dict[str, tuple[str, ...]]]:
    """What ``save`` wrote, (arrays, names), unchecked; the user's operators are defined.

    ``further`` gets the arrays of other names, if given.
    """
    path = _path(path)
    with files.told(path, "read"), open(path, "rb") as file:
        try:
            version, arrays, names, definitions = _read(file, further)
        except Exception as error:  # damaged bytes make zipfile and NumPy raise nearly anything
            raise PopulationError(f"{os.fspath(path)!r} is not a saved population, or is damaged: {error}") from error
    if version != FORMAT:
        raise PopulationError(f"{os.fspath(path)!r} has format {version}; this exprkit reads {FORMAT}")
    if definitions:
        from exprkit.text.define import restored

        arrays[1] = restored(arrays[0], arrays[1], definitions)
    return arrays, names


def _as_texts(code: int, text: str, latex: str, domain: tuple[ops.Interval, ...]) -> tuple[str, str, str, str]:
    return str(code), text, latex, " ".join(repr(end) for pair in domain for end in pair)


def _from_texts(code: str, text: str, latex: str, domain: str) -> defined.Saved:
    ends = list(map(float, domain.split()))
    if not defined.FIRST_CODE <= int(code) < defined.END_CODE:
        raise ValueError(f"{code} is no code of an operator of one's own")
    return int(code), text, latex, tuple(zip(ends[::2], ends[1::2], strict=True))


def _path(path: Any) -> Path:
    """The path, if it can be one."""
    try:
        os.fsencode(path)
        named = "\0" not in os.fsdecode(path) and Path(os.fsdecode(path)).name != ""
    except (TypeError, ValueError):
        named = False
    if not named:
        raise ArgumentError(f"a file's path must be a text or a pathlib.Path, not {brief(path)}")
    return Path(os.fsdecode(path))


def _read(
    file: Any, further: dict[str, np.ndarray] | None
) -> tuple[int, list[np.ndarray], dict[str, tuple[str, ...]], list[defined.Saved]]:
    """(format, arrays, names, definitions); nothing is unpacked before it is known to be of a reasonable size."""
    with zipfile.ZipFile(file) as archive:
        held = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
        wanted = {"format", *ARRAYS, *NAMES, OPERATORS}
        entries = [held[name] for name in held if name in wanted or further is not None]
        size, unpacked = os.fstat(file.fileno()).st_size, sum(entry.file_size for entry in entries)
        if unpacked > MOST * size:
            raise PopulationError(f"a file of {size:,} bytes that holds {unpacked:,}, more than {MOST} times as much")
        version = int(_array(archive, held["format"]))
        if version != FORMAT:
            return version, [], {}, []
        if further is not None:
            further.update((name, _array(archive, held[name])) for name in held.keys() - wanted)
        names = {name: tuple(map(str, _array(archive, held[name]))) for name in NAMES if name in held}
        rows = _array(archive, held[OPERATORS]).tolist() if OPERATORS in held else []
        definitions = [_from_texts(*row) for row in rows]
        return version, [_array(archive, held[name]) for name in ARRAYS], names, definitions


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(entry) as file:
        array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
    return array
