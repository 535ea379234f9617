"""Description of the machine and its resources, as it is stored with every measurement.

Read by ``generate`` (how much memory is left) and ``records``; knows nothing of expressions.

    >>> from exprkit.runtime import machine
    >>> machine.cores() >= 1
    True
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

PACKAGES = ("exprkit", "numpy", "numba", "llvmlite", "sympy", "pandas", "cupy-cuda12x", "cupy-cuda13x", "cuda-core")
_LIMIT: contextvars.ContextVar[int] = contextvars.ContextVar("exprkit threads", default=0)


def cores() -> int:
    """The number of CPUs this process may use (its affinity, not those of the machine), or what is ``limited``."""
    return _LIMIT.get() or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def limit() -> int:
    """The number of threads that work here is ``limited`` to; 0 where it is not."""
    return _LIMIT.get()


@contextlib.contextmanager
def limited(threads: int | None) -> Iterator[None]:
    """A context in which work takes so many threads where nothing else is said; None: as before."""
    token = _LIMIT.set(threads or _LIMIT.get())
    try:
        yield
    finally:
        _LIMIT.reset(token)


@functools.cache
def cpu_model() -> str:
    """The processor's name as the system tells it."""
    return _field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()


def available_memory() -> int | None:
    """Bytes that can be taken without swapping; None where the system does not tell."""
    line = _field("/proc/meminfo", "MemAvailable")
    return int(line.split()[0]) * 1024 if line else None


def process_memory(name: str = "VmRSS") -> int | None:
    """Bytes that this process holds in memory ("VmHWM": the most so far); None where the system does not tell."""
    line = _field("/proc/self/status", name)
    return int(line.split()[0]) * 1024 if line else None


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that a measurement depends on."""
    return {"python": platform.python_version(), **installed(PACKAGES)}


def installed(packages: Iterable[str]) -> dict[str, str]:
    """The versions of those packages that are installed."""
    versions = {}
    for name in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def commit() -> str | None:
    """The git commit of the checkout that this package is imported from, ``+`` behind it if changed; else None.

    What is made of measurements, results and figures and the tables of pages, is no change of what is measured.
    """
    here = Path(__file__).resolve().parents[2]
    if not (here / ".git").exists():
        return None
    head = _output("git", "-C", str(here), "rev-parse", "HEAD")
    made = ":!data/results", ":!figures", ":!*.md"
    changed = _output("git", "-C", str(here), "status", "--porcelain", "--untracked-files=no", "--", ".", *made)
    return head and head + ("+" if changed else "")


def _field(path: str, name: str) -> str | None:
    """The value of the first ``name: value`` line of a file of /proc."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), None)


def _output(*command: str) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
