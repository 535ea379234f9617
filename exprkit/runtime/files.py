"""Files that are whole or absent: a reader, or a run that goes on after a crash, never finds half of one.

Below everything that writes a file which a user named.

    >>> import pathlib, tempfile
    >>> from exprkit.runtime import files
    >>> files.write(pathlib.Path(tempfile.mkdtemp()) / "a.txt", lambda path: path.write_text("whole")).read_text()
    'whole'
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from exprkit.errors import FileError, NoSuchFileError


@contextlib.contextmanager
def told(path: Any, what: str) -> Iterator[None]:
    """Around what reads or writes a file: what goes wrong is an error that says so; ``what``: "read" or "written"."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        kind = NoSuchFileError if isinstance(error, FileNotFoundError) else FileError
        raise kind(f"{os.fspath(path)!r} cannot be {what}: {error.strerror or error}") from error


def write(path: Path, fill: Callable[[Path], Any]) -> Path:
    """Let ``fill`` fill a file beside ``path``, made as any new file is, then put it in place at one stroke."""
    beside = path.with_name(f".{secrets.token_hex(8)}{path.suffix}")
    open(beside, "xb").close()
    try:
        fill(beside)
        with open(beside, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    return path
