"""The disk cache of compiled machine code, for the CPU, CUDA and PTX backends.

One file an entry: 8 bytes of length, 32 bytes of SHA-256, then the object code.  A file that
does not match is a miss and is made anew; a folder that cannot be written to means no cache.
Nothing is taken from a folder or a file that somebody else could have written.  Each of these
is told once, by a warning.  ``compiled`` keeps Numba's loops in the same folder.

    >>> from exprkit.runtime import disk_cache
    >>> disk_cache.key("text", b"more text")[:8]
    '80ee98d3'

==================  ==================================================================
EXPRKIT_CACHE_DIR   the folder; by default ``exprkit`` in the user's cache folder; empty:
                    nothing is kept on disk
EXPRKIT_CACHE_BYTES what all kernels together may take, and all loops; by default 1 GiB;
                    those not used for the longest time go first; 0: nothing is kept on disk
==================  ==================================================================

Any number of processes may use a folder at once, and any of them may be killed at any time:
an entry appears under its name complete or not at all, what a killed process leaves behind is
removed later.  Of processes that miss the same entry one compiles it, ``alone``, and the others wait for it,
``MOST_WAIT`` seconds at the most; if that one is killed the next one compiles.  On Windows each compiles its own.

A process that is forked has the forking thread alone, and every lock as it was at that moment: one
that another thread held is never released.  What it guarded may be half done as well, as in LLVM,
which has locks of its own.  So a fork waits for those who hold a lock of ``free_at_fork``.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from exprkit.errors import ArgumentError, shortened
from exprkit.runtime import files

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FORMAT = "exprkit object cache 1"
MOST_BYTES = 1 << 30  # unless EXPRKIT_CACHE_BYTES says otherwise
MOST_DIGITS = 30  # of EXPRKIT_CACHE_BYTES
LEFT_BEHIND = 3600  # seconds after which an unfinished file is one of a process that is no more
MOST_WAIT = 120.0  # seconds for another process's kernel or loop; the slowest kernel takes 26 on one slow core
LOOK_AGAIN = 0.002, 0.05  # seconds after which a waiting process looks again, at first and at last
KERNEL, LOOP, PART = ".o", ".loop", ".part"  # the kinds of entries, which have their room each
ANOTHER = "EXPRKIT_CACHE_DIR names another folder."
OTHERS_WRITE = 0o022  # of a mode
_SHARE = 16  # the folder is looked through again when this part of its size has been written
_warned = False
_since: dict[tuple[Path, str], int] = {}  # bytes of a kind written to a folder since it was looked through


def free_at_fork(lock: Any) -> Any:
    """The re-entrant lock, held by no other thread whenever this process is forked.

    Of two locks that a thread may hold at once, the one that it takes last must be registered first.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


_lock = free_at_fork(threading.RLock())


def folder() -> Path | None:
    """The folder of the entries; None: nothing is kept."""
    if most_bytes() == 0:
        return None
    chosen = os.environ.get("EXPRKIT_CACHE_DIR")
    if chosen is not None:
        return _expanded(chosen) if chosen else None
    try:
        return _user_cache() / "exprkit"
    except RuntimeError:  # no home folder
        return None


def _expanded(chosen: str) -> Path:
    try:
        return Path(chosen).expanduser()
    except RuntimeError:
        raise ArgumentError(f"EXPRKIT_CACHE_DIR={chosen}: there is no such home folder") from None


def most_bytes() -> int:
    """The most bytes of all entries of a kind.

    Raises ArgumentError if EXPRKIT_CACHE_BYTES is not a whole number.
    """
    chosen = os.environ.get("EXPRKIT_CACHE_BYTES", "")
    if not chosen:
        return MOST_BYTES
    if not (chosen.isdecimal() and len(chosen) <= MOST_DIGITS):
        raise ArgumentError(f"EXPRKIT_CACHE_BYTES must be a whole number of bytes, not {shortened(chosen, 38)!r}")
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


def read(name: str, kind: str = KERNEL, home: Path | None = None) -> bytes | None:
    """The entry, or None where there is no such entry in good order; ``home``: another folder than ``folder()``."""
    home = home or folder()
    if home is None:
        return None
    path = home / f"{name}{kind}"
    try:
        _refuse_foreign(home.stat(), home)
        with open(path, "rb") as file:
            _refuse_foreign(os.fstat(file.fileno()), path)
            data = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        warn(f"machine code kept in {home} is not used, every process compiles anew ({error}). {ANOTHER}")
        return None
    code = checked(data)
    if code is None:
        warn(f"{path} is damaged: it is compiled anew and replaced")
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # used now: others go before it
    return code


def checked(entry: bytes) -> bytes | None:
    """The code of an entry; None: it is damaged."""
    code = memoryview(entry)[40:]
    good = entry[:8] == len(code).to_bytes(8, "little") and entry[8:40] == sha256(code).digest()
    return bytes(code) if good else None


def write(name: str, code: bytes, kind: str = KERNEL, home: Path | None = None) -> None:
    """Keep an entry: a complete file appears under its name at once, or not at all."""
    home = home or folder()
    if home is None:
        return
    try:
        _make(home)
        _refuse_foreign(home.stat(), home)
        _replace(home / f"{name}{kind}", len(code).to_bytes(8, "little") + sha256(code).digest() + code)
        _make_room(home, kind, 40 + len(code))
    except OSError as error:
        warn(f"machine code can't be kept in {home}, every process compiles anew ({error}). {ANOTHER}")


@contextlib.contextmanager
def alone(name: str, home: Path | None = None) -> Iterator[None]:
    """Around what compiles an entry: no other process of this host does at the same time, if that can be had."""
    home = home or folder()
    with contextlib.ExitStack() as held:
        if home is not None and fcntl is not None:
            with contextlib.suppress(OSError):  # ``write`` says what is wrong with the folder
                _make(home)
                _refuse_foreign(home.stat(), home)
                _hold(home / f"{name}.lock.tmp", held)
        yield


def _hold(path: Path, held: contextlib.ExitStack) -> None:
    """Lock a file until ``held`` ends, which removes it; where that takes longer than ``MOST_WAIT``, do not."""
    end, pause = time.monotonic() + MOST_WAIT, LOOK_AGAIN[0]
    while time.monotonic() < end:
        with contextlib.ExitStack() as attempt:
            file = attempt.enter_context(open(path, "ab"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                attempt.callback(fcntl.flock, file, fcntl.LOCK_UN)  # a forked child has the file open, too
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):  # else it was removed meanwhile
                    attempt.callback(_remove, path)
                    held.enter_context(attempt.pop_all())
                    return
            except FileNotFoundError:
                pass
            except BlockingIOError:
                time.sleep(pause)
                pause = min(2 * pause, LOOK_AGAIN[1])


def _make(home: Path) -> None:
    """Make the folder, and those around it that are missing, for this user alone."""
    for place in (*reversed(home.parents), home):
        place.mkdir(mode=0o700, exist_ok=True)


def _refuse_foreign(state: os.stat_result, path: Path) -> None:
    """An error where somebody else could have written machine code, which this process would run."""
    if not hasattr(os, "geteuid"):  # Windows has no such modes
        return
    if state.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to another user")
    if state.st_mode & OTHERS_WRITE:
        raise PermissionError(f"others may write to {path}: chmod go-w {shlex.quote(str(path))}")


def _replace(path: Path, data: bytes) -> None:
    """Not flushed to the disk: an entry that a power failure cut short does not match its hash."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        files.replace(Path(temporary), path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _make_room(home: Path, kind: str, written: int) -> None:
    """Remove the entries not used for the longest time; looks through the folder only now and then."""
    with _lock:
        most, since = most_bytes(), _since.get((home, kind))
        if since is not None and since + written <= most // _SHARE:
            _since[home, kind] = since + written
            return
        _since[home, kind] = 0
        _remove_left_behind(home)
        entries = sorted(_entries(home, kind))
        excess = sum(size for _, size, _ in entries) - most
        for _, size, path in entries:
            if excess <= 0:
                return
            path.unlink(missing_ok=True)
            excess -= size


def _entries(home: Path, kind: str) -> list[tuple[float, int, Path]]:
    """When each entry was used last, its size and its file; another process may remove some meanwhile."""
    entries = []
    for path in home.glob(f"*{kind}"):
        with contextlib.suppress(FileNotFoundError):
            state = path.stat()
            entries.append((state.st_mtime, state.st_size, path))
    return entries


def _remove_left_behind(home: Path) -> None:
    for path in home.glob("*.tmp"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - LEFT_BEHIND:
                _remove(path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def warn(what: str) -> None:
    """One warning of a process, whatever goes wrong: without a cache it only takes longer."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(what, RuntimeWarning, stacklevel=3)
