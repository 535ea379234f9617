"""Description of the machine and its resources: the record stored with every measurement.

Read by ``generate`` (how much memory is left) and ``bench`` (the record); knows nothing of
expressions.

    >>> from exprkit.runtime import machine
    >>> machine.record()["cores"] >= 1
    True
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("exprkit", "numpy", "numba", "llvmlite", "sympy", "pandas", "cupy-cuda12x", "cupy-cuda13x", "cuda-core")


def cores() -> int:
    """The number of CPUs this process may use (its affinity, not those of the machine)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
    """The git commit of the checkout that this package is imported from, ``+`` behind it if changed; else None."""
    here = Path(__file__).resolve().parents[2]
    if not (here / ".git").exists():
        return None
    head = _output("git", "-C", str(here), "rev-parse", "HEAD")
    changed = _output("git", "-C", str(here), "status", "--porcelain", "--untracked-files=no")
    return head and head + ("+" if changed else "")


def record() -> dict[str, Any]:
    """Everything about the machine and the software that a measured time depends on."""
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "cpu": cpu_model(),
        "cores": cores(),
        "cpus": os.cpu_count(),
        "memory_available": available_memory(),
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "versions": versions(),
        "commit": commit(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


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
