"""``compiled``: Numba's njit with machine code kept on disk, never stale and never in the way.

Beside the pipeline: every loop of the package that Numba compiles is decorated with it.

    >>> from exprkit.compiled import compiled
    >>> @compiled
    ... def twice(a):
    ...     return 2 * a
    >>> twice(21)
    42

Numba looks only at the file of a function to see whether its machine code is still good, not
at the files it takes constants and functions from; a function laid down with an older
``native`` would crash.  So the folder is named by the text of all those files (``SHARED``).
Where no folder can be written to, the code is compiled anew by every process.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba import config, njit

from exprkit.backends import objects

# the modules whose constants and functions others compile into their own code (a test compares)
SHARED = (
    "compiled", "ops", "population", "native", "objective", "lower", "dependence", "graph", "gradient", "text/decimals",
    "backends/simd", "backends/simd_sums", "backends/cases", "backends/accumulator", "backends/cpu_tiles",
    "backends/team", "backends/cpu_gradient",
)  # fmt: skip
KEPT = 8  # folders of other versions; older ones go


def compiled(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Decorator: ``njit(nogil=True, **options)``, its machine code kept in ``folder()``."""
    if function is None:
        return functools.partial(compiled, **options)
    place, before = folder(), config.CACHE_DIR
    if place is None or not os.path.isfile(function.__code__.co_filename):  # typed in, not from a file
        return njit(nogil=True, **options)(function)
    config.CACHE_DIR = str(place)  # read where the decorator is applied; other packages keep their own
    try:
        return njit(nogil=True, cache=True, **options)(function)
    finally:
        config.CACHE_DIR = before


@functools.cache
def folder() -> Path | None:
    """Where the machine code is kept: in NUMBA_CACHE_DIR, else with the kernels (``objects``); None: nowhere."""
    home = Path(config.CACHE_DIR) if config.CACHE_DIR else objects.folder()
    if home is None:
        return None
    package = Path(__file__).parent
    texts = (package.joinpath(f"{name}.py").read_bytes() for name in SHARED)
    place = home / f"loops-{sha256(b''.join(texts)).hexdigest()[:16]}"
    try:
        new = not place.exists()
        place.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=place).close()
        if new:
            _remove_oldest(home)
    except OSError as error:
        objects.warn(home, error)
        return None
    return place


def _remove_oldest(home: Path) -> None:
    places = sorted(home.glob("loops-*"), key=lambda place: place.stat().st_mtime, reverse=True)
    for place in places[1 + KEPT :]:
        shutil.rmtree(place, ignore_errors=True)
