"""``compiled``: Numba's njit with machine code kept on disk, never stale and never in the way.

Every loop of the package that Numba compiles is decorated with it.

    >>> from exprkit.runtime.jit import compiled
    >>> @compiled
    ... def twice(a):
    ...     return 2 * a
    >>> twice(21)
    42

Numba's own cache loads whatever lies in its files, and looks only at the file of a function to see
whether its machine code is still good.  Here the machine code is kept in the ``disk_cache``, which
check every file before anything in it is used, and the name of an entry is made of all that the code
depends on: also the text of the files that it takes constants and functions from (``SHARED``).
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba
from numba import config, njit
from numba.core import serialize
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock

from exprkit.runtime import disk_cache

# the modules whose constants and functions others compile into their own code (a test compares)
SHARED = (
    "runtime/jit", "operators/ops", "text/tokens", "runtime/intrinsics", "backends/objective", "backends/decisions",
    "programs/lower", "programs/linearity", "programs/gradient", "expressions/dag", "expressions/rewrite",
    "text/decimals",
    "backends/cpu/kernels", "backends/cpu/reductions", "backends/gpu/opcodes", "backends/gpu/bytecode",
    "backends/cpu/tiles", "backends/cpu/threads", "backends/cpu/derivatives",
)  # fmt: skip

disk_cache.free_at_fork(global_compiler_lock)


def compiled(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Decorator: ``njit(nogil=True, **options)``, its machine code kept with that of the kernels."""
    if function is None:
        return functools.partial(compiled, **options)
    dispatcher = njit(nogil=True, **options)(function)
    if folder() is not None and os.path.isfile(function.__code__.co_filename):  # not typed in
        dispatcher._cache = Kept(function)  # what njit(cache=True) does, with a cache of Numba's
    return dispatcher


@functools.cache
def folder() -> Path | None:
    """Where the machine code of loops is kept as long as this process lives; None: nowhere."""
    return disk_cache.folder()


class Kept(NullCache):
    """The machine code of one function on disk: what a dispatcher of Numba asks before it compiles."""

    def __init__(self, function: Callable[..., Any]) -> None:
        code = function.__code__
        self._parts = (
            "loop", numba.__version__, f"{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')}",
            repr((config.OPT, config.BOUNDSCHECK)), _shared(), _text_of(code.co_filename),
            function.__module__, function.__qualname__, str(code.co_firstlineno), code.co_code,
        )  # fmt: skip

    def load_overload(self, sig: Any, target_context: Any) -> CompileResult | None:
        """The machine code for arguments of these types, or None."""
        target_context.refresh()
        kept = disk_cache.read(self._name(sig, target_context), disk_cache.LOOP, folder())
        if kept is None:
            return None
        try:
            meant, parts = serialize.loads(kept)
            return CompileResult._rebuild(target_context, *parts) if meant == sig else None
        except Exception as error:  # an entry in good order that this Numba or Python cannot use
            disk_cache.warn(f"machine code kept in {folder()} can't be used, it is compiled anew ({error!r})")
            return None

    def save_overload(self, sig: Any, found: CompileResult) -> None:
        """Keep what has been compiled."""
        if not found.library.has_dynamic_globals:  # addresses of this process
            kept = serialize.dumps((sig, found._reduce()))
            disk_cache.write(self._name(sig, found.target_context), kept, disk_cache.LOOP, folder())

    def _name(self, sig: Any, target_context: Any) -> str:
        return disk_cache.key(*self._parts, str(sig), repr(target_context.codegen().magic_tuple()))


@functools.cache
def _shared() -> bytes:
    """A digest of all shared modules."""
    package = Path(__file__).parent.parent
    return b"".join(_text_of(str(package / f"{name}.py")) for name in SHARED)


@functools.cache
def _text_of(path: str) -> bytes:
    return sha256(Path(path).read_bytes()).digest()
