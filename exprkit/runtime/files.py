"""Atomic file writing: a file is complete or absent, also after a crash.

Below everything that writes a file which a user named.

    >>> import pathlib, tempfile
    >>> from exprkit.runtime import files
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.npz"
    >>> files.write_arrays(path, {"a": 1, "b": [2.0, 3.0]})
    >>> files.read_arrays(path, "file of arrays", ["b"])
    {'b': array([2., 3.])}
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
import zipfile
import zlib
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exprkit.errors import ArgumentError, DamagedFileError, FileError, NoSuchFileError, brief

REMEDY = {"written": "; nothing half-written is left: make room there, or name another folder"}
CHECKSUMS = "checksums"  # the array that holds FORMAT and the checksums of all others, as JSON
IN_USE = 2.0 if os.name == "nt" else 0.0  # seconds in which Windows may let go of a file that somebody reads
FORMAT = 10  # of all files; raised, too, where functions or stages of a search get other numbers than before
MOST = 100  # times its size that a file may hold; others compress populations to a twentieth


@contextlib.contextmanager
def file_errors(path: Any, what: str) -> Iterator[None]:
    """Around what reads or writes a file: what goes wrong is an error that says so; ``what``: "read" or "written"."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        kind = NoSuchFileError if isinstance(error, FileNotFoundError) else FileError
        reason = f"{error.strerror or error}{REMEDY.get(what, '')}"
        raise kind(f"{os.fspath(path)!r} cannot be {what}: {reason}") from error


def write(path: Path, fill: Callable[[Path], Any]) -> Path:
    """Let ``fill`` fill a file beside ``path``, made as any new file is, then put it in place at one stroke.

    Raises FileError if the system refuses, as where the disk is full; what was there before is there still.
    """
    beside = path.with_name(f".{secrets.token_hex(8)}{path.suffix}")
    with file_errors(path, "written"):
        open(beside, "xb").close()
        try:
            fill(beside)
            with open(beside, "rb+") as file:
                os.fsync(file.fileno())
            replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)
    return path


def replace(new: Path, path: Path) -> None:
    """Put a file in the place of another, which Windows refuses for as long as anybody has that open."""
    end = time.monotonic() + IN_USE
    while True:
        try:
            return os.replace(new, path)
        except PermissionError:
            if time.monotonic() >= end:
                raise
            time.sleep(IN_USE / 40)


def write_text(path: Path, text: str) -> Path:
    """Write a text in UTF-8, as ``write`` does."""
    return write(path, lambda beside: beside.write_text(text, encoding="utf-8"))


def folder(path: str | Path) -> Path:
    """The folder, made if it is missing; raises FileError as ``write`` does, ArgumentError for a path of none."""
    path = Path(path).expanduser()
    with file_errors(checked_path(path.absolute()), "written"):  # "." has no name
        path.mkdir(parents=True, exist_ok=True)
    return path


def checked_path(path: Any, rule: str = "a file's path must be a text or a pathlib.Path") -> Path:
    """The path, if it can be one."""
    if isinstance(path, str | Path) and str(path) and "\0" not in str(path) and not Path(path).name:
        raise ArgumentError(f"{brief(str(path))} is a folder: name a file in it")
    try:
        named = Path(os.fsdecode(path)).expanduser()
        if "\0" not in str(named) and named.name:
            os.fsencode(named)
            return named
    except (TypeError, ValueError, RuntimeError):
        pass
    raise ArgumentError(f"{rule}, not {brief(path)}")


# ── arrays by name, as npz without pickle ──


def write_arrays(path: Any, arrays: Mapping[str, Any]) -> None:
    """Write arrays, or what makes some, to a file that is whole or absent, with their checksums."""
    by_name = {name: np.asarray(array) for name, array in arrays.items()}
    sums = json.dumps([FORMAT, {name: _checksum(array) for name, array in by_name.items()}])

    def fill(beside: Path) -> None:
        with open(beside, "wb") as file:
            np.savez(file, allow_pickle=False, **by_name, **{CHECKSUMS: np.array(sums)})

    write(checked_path(path), fill)


def read_arrays(
    path: Any, what: str, wanted: Container[str] | None = None, unchecked: bool = False
) -> dict[str, np.ndarray]:
    """The arrays of a file, or those ``wanted``; nothing is unpacked before it is known to be of a reasonable size.

    ``unchecked``: with their checksums, for ``check`` to look at once the arrays are known to be of the right kinds.

    Raises
    ------
    FileError
        for one that cannot be read.
    DamagedFileError
        for one that is damaged or something else than ``what``.
    """
    with (
        file_errors(path := checked_path(path), "read"),
        open(path, "rb") as file,
        damage_errors(path, what),
        zipfile.ZipFile(file) as archive,
    ):
        entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
        read = entries if wanted is None else {name for name in entries if name in wanted or name == CHECKSUMS}
        entries = {name: entry for name, entry in entries.items() if name in read}
        size, unpacked = os.fstat(file.fileno()).st_size, sum(entry.file_size for entry in entries.values())
        if unpacked > MOST * size:
            raise ValueError(f"a file of {size:,} bytes that holds {unpacked:,}, more than {MOST} times as much")
        arrays = {name: _array(archive, entry) for name, entry in entries.items()}
        _sums(arrays)
        return arrays if unchecked else check(arrays, wanted)


@contextlib.contextmanager
def opened(path: Any, what: str, wanted: Container[str] | None = None) -> Iterator[dict[str, np.ndarray]]:
    """The arrays of a file, or those ``wanted``; what fails inside says that the file is no ``what``."""
    arrays = read_arrays(path, what, wanted, unchecked=True)
    with damage_errors(path, what):
        yield arrays
        check(arrays, wanted)


def check(arrays: dict[str, np.ndarray], wanted: Container[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays without their checksums; ValueError for those that are not as they were written, or have none."""
    sums = _sums(arrays)
    arrays = {name: array for name, array in arrays.items() if name != CHECKSUMS}
    for name in sorted({name for name in sums if wanted is None or name in wanted} ^ set(arrays)):
        raise ValueError(f"it has {'an' if name in arrays else 'no'} array {name!r}")
    for name, array in arrays.items():
        if _checksum(array) != sums[name]:
            raise ValueError(f"its array {name!r} is not as it was written")
    return arrays


def _sums(arrays: dict[str, np.ndarray]) -> dict[str, str]:
    """The checksums that a file has, if it is of this format."""
    if CHECKSUMS not in arrays:
        raise ValueError("it has no checksums")
    version, sums = json.loads(str(arrays[CHECKSUMS]))
    if version != FORMAT:
        raise ValueError(f"it has format {version}; this exprkit reads {FORMAT}")
    return dict(sums)


def _checksum(array: np.ndarray) -> str:
    """An array's type, shape and the checksum of its bytes."""
    number = zlib.crc32(np.ascontiguousarray(array).data if array.dtype.kind in "biuf" else array.tobytes())
    return f"{array.dtype.str}{array.shape}{number:08x}"


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(entry) as file:
        array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
    return array


@contextlib.contextmanager
def damage_errors(path: Any, what: str) -> Iterator[None]:
    """Around what takes a file's bytes apart: whatever fails there, the file is none of these, or damaged."""
    try:
        yield
    except (ArgumentError, FileError, ImportError, MemoryError):
        raise
    except Exception as error:  # damaged bytes make zipfile and NumPy raise nearly anything
        reason = f"it has no {error}" if isinstance(error, KeyError) else error
        raise DamagedFileError(f"{os.fspath(path)!r} is not a {what}, or it is damaged: {reason}") from error
