"""Compiled machine code kept on disk between processes: the CPU's, CUDA's and PTX's.

One file an entry: 8 bytes of length, 32 bytes of SHA-256, then the object code.  A file
that cannot be read or does not match is a miss; a folder that cannot be written to
means no cache, with one warning.  ``compiled`` keeps Numba's loops in the same folder.

    >>> from exprkit.backends import objects
    >>> objects.key("text", b"more text")[:8]
    '80ee98d3'

==================  ==================================================================
EXPRKIT_CACHE_DIR   the folder; by default ``exprkit`` in the user's cache folder; empty:
                    nothing is kept on disk
EXPRKIT_CACHE_BYTES what all entries together may take, by default 1 GiB; those not used
                    for the longest time go first; 0: nothing is kept on disk
==================  ==================================================================

Any number of processes may use a folder at once, and any of them may be killed at any time:
an entry appears under its name complete or not at all, what a killed process leaves behind is
removed later, and two processes that miss the same entry both compile it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import time
import warnings
from hashlib import sha256
from pathlib import Path

from exprkit.errors import ArgumentError

FORMAT = "exprkit object cache 1"
MOST_BYTES = 1 << 30  # unless EXPRKIT_CACHE_BYTES says otherwise
LEFT_BEHIND = 3600  # seconds after which an unfinished file is one of a process that is no more
_SHARE = 16  # the folder is looked through again when this part of its size has been written
_warned = False
_lock = threading.Lock()
_since: dict[Path, int] = {}  # bytes written to a folder since it was looked through


def folder() -> Path | None:
    """Where entries are kept; None: nowhere."""
    if most_bytes() == 0:
        return None
    chosen = os.environ.get("EXPRKIT_CACHE_DIR")
    if chosen is not None:
        return Path(chosen) if chosen else None
    try:
        return _user_cache() / "exprkit"
    except RuntimeError:  # no home folder
        return None


def most_bytes() -> int:
    """What all entries together may take.

    Raises
    ------
    ArgumentError
        If EXPRKIT_CACHE_BYTES is not a whole number.
    """
    chosen = os.environ.get("EXPRKIT_CACHE_BYTES", "")
    if not chosen:
        return MOST_BYTES
    if not chosen.isdecimal():
        raise ArgumentError(f"EXPRKIT_CACHE_BYTES must be a whole number of bytes, not {chosen!r}")
    return int(chosen)


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def key(*parts: str | bytes) -> str:
    """A file name out of everything that the machine code depends on."""
    digest = sha256(FORMAT.encode())
    for part in parts:
        digest.update(b"\0")
        digest.update(part if isinstance(part, bytes) else part.encode())
    return digest.hexdigest()


def read(name: str) -> bytes | None:
    """The entry, or None where there is no such entry in good order."""
    home = folder()
    if home is None:
        return None
    path = home / f"{name}.o"
    try:
        data = path.read_bytes()
    except OSError:
        return None
    code = memoryview(data)[40:]
    if data[:8] != len(code).to_bytes(8, "little") or data[8:40] != sha256(code).digest():
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # used now: others go before it
    return bytes(code)


def write(name: str, code: bytes) -> None:
    """Keep an entry: a complete file appears under its name at once, or not at all."""
    home = folder()
    if home is None:
        return
    try:
        home.mkdir(parents=True, exist_ok=True)
        _replace(home / f"{name}.o", len(code).to_bytes(8, "little") + sha256(code).digest() + code)
        _make_room(home, 40 + len(code))
    except OSError as error:
        warn(home, error)


def _replace(path: Path, data: bytes) -> None:
    """Not flushed to the disk: an entry that a power failure cut short does not match its hash."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _make_room(home: Path, written: int) -> None:
    """Remove the entries not used for the longest time; looks through the folder only now and then."""
    with _lock:
        most, since = most_bytes(), _since.get(home)
        if since is not None and since + written <= most // _SHARE:
            _since[home] = since + written
            return
        _since[home] = 0
        _remove_left_behind(home)
        entries = sorted(_entries(home))
        excess = sum(size for _, size, _ in entries) - most
        for _, size, path in entries:
            if excess <= 0:
                return
            path.unlink(missing_ok=True)
            excess -= size


def _entries(home: Path) -> list[tuple[float, int, Path]]:
    """When each entry was used last, its size and its file; another process may remove some meanwhile."""
    found = []
    for path in home.glob("*.o"):
        with contextlib.suppress(FileNotFoundError):
            state = path.stat()
            found.append((state.st_mtime, state.st_size, path))
    return found


def _remove_left_behind(home: Path) -> None:
    for path in home.glob("*.tmp"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - LEFT_BEHIND:
                path.unlink()


def warn(home: Path, error: OSError) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"compiled kernels cannot be kept in {home} ({error}); they are compiled anew by every process. "
            "EXPRKIT_CACHE_DIR names another folder.", RuntimeWarning, stacklevel=3,
        )
