"""Compiled machine code kept on disk between processes.

One file an entry: 8 bytes of length, 32 bytes of SHA-256, then the object code.  A file
that cannot be read or does not match is a miss; a folder that cannot be written to
means no cache, with one warning.  The folder is EXPRKIT_CACHE_DIR (empty: memory only)
or ``exprkit`` in the user's cache folder; ``compiled`` keeps Numba's loops there, too.

    >>> from exprkit.backends import objects
    >>> objects.key("text", "more text")[:8]
    '80ee98d3'
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from hashlib import sha256
from pathlib import Path

FORMAT = "exprkit object cache 1"
MOST_BYTES = 256 << 20  # of all files together; the oldest go first
_warned = False


def folder() -> Path | None:
    """Where entries are kept; None: nowhere."""
    chosen = os.environ.get("EXPRKIT_CACHE_DIR")
    if chosen is not None:
        return Path(chosen) if chosen else None
    try:
        return _user_cache() / "exprkit"
    except RuntimeError:  # no home folder
        return None


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def key(*parts: str) -> str:
    """A file name out of everything that the machine code depends on."""
    return sha256("\0".join((FORMAT, *parts)).encode()).hexdigest()


def read(name: str) -> bytes | None:
    """The entry, or None where there is no such entry in good order."""
    home = folder()
    if home is None:
        return None
    try:
        data = (home / f"{name}.o").read_bytes()
    except OSError:
        return None
    length, digest, code = data[:8], data[8:40], data[40:]
    whole = length == len(code).to_bytes(8, "little") and digest == sha256(code).digest()
    return code if whole else None


def write(name: str, code: bytes) -> None:
    """Keep an entry: a complete file appears under its name at once, or not at all."""
    home = folder()
    if home is None:
        return
    try:
        home.mkdir(parents=True, exist_ok=True)
        _replace(home / f"{name}.o", len(code).to_bytes(8, "little") + sha256(code).digest() + code)
        _remove_oldest(home)
    except OSError as error:
        warn(home, error)


def _replace(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _remove_oldest(home: Path) -> None:
    entries = sorted((file.stat().st_mtime, file.stat().st_size, file) for file in home.glob("*.o"))
    excess = sum(size for _, size, _ in entries) - MOST_BYTES
    for _, size, file in entries:
        if excess <= 0:
            return
        file.unlink(missing_ok=True)
        excess -= size


def warn(home: Path, error: OSError) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"compiled kernels cannot be kept in {home} ({error}); they are compiled anew by every process. "
            "EXPRKIT_CACHE_DIR names another folder.", RuntimeWarning, stacklevel=3,
        )
