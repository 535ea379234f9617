"""``compiled``: the decorator of every machine-code loop, and the rules for writing such loops.

    >>> from exprkit.runtime.jit import compiled
    >>> @compiled
    ... def twice(a):
    ...     return 2 * a
    >>> twice(21)
    42

It is Numba's ``njit(nogil=True)`` with three changes: arguments have one type each, named tuples are
borrowed, machine code is kept on disk.  What to know, in the order in which one meets it:

Functions   ``@compiled`` is a function of its own, ``@inline`` becomes part of its callers: for the parts of
            a loop that run per instruction or point.  A long function is split into such parts; they cost
            nothing.  At most seven arguments: what belongs together goes into a bag.
Numbers     Every whole number that is handed over arrives as int64, whatever array it comes from, literals
            too.  Only uint64 stays itself; with an int64 it becomes a float64, so both sides of an operation
            need the same sign: hashes and bits are ``np.uint64`` throughout, and a token's value that serves as an
            index or code is made ``np.int64`` where it is read.  A variable keeps one type: ``x = 0.0`` for a float.
Bags        A ``NamedTuple`` of arrays and numbers, each array annotated with its dtype and shape::

                class Nodes(NamedTuple):
                    code: Annotated[np.ndarray, "uint8[n]"]
                    edges: Annotated[np.ndarray, "int32[n, 2]"]

            ``bags.zeros(Nodes, n=100)`` makes one, ``empty`` one that is not yet filled.  Fields stay; what
            arrays hold may change, so a number that a loop changes lives in an array.
Borrowing   A bag is handed over by its address, from Python and between loops, and its arrays have no owner:
            nothing is counted, and it costs as much as one number.  So a loop never returns an array of a bag
            or a slice of one, which would outlive it, but a copy; and keeps none.  Arrays that are arguments
            by themselves are owned, and counted at every call: a bag is better between loops.
            A field that the innermost loop writes through gets a local name before it (``kinds = work.kinds``).
Constants   Plain numbers of a module (``tokens.CONSTANT``, ``ops.POW``).  A global array becomes part of the
            machine code: fine for a fixed table (``decimals``); tables of operators come as bags.
Slices      ``a[i:j] = 0`` and loops over a slice are fine; to assign one array to another (``a[:n] = b[:n]``)
            brings the text of its errors along, some hundred lines of machine code: write the loop.
Indices     A signed index may be negative and count from the end, which is looked at each time.  In the few
            innermost loops where that was measured to matter the index is ``np.uint64``.
Errors      A loop raises nothing: it stops and returns a number that says what and where, and Python words it.
            Indices are not checked (NUMBA_BOUNDSCHECK=1 does); what comes from users is checked before.
Threads     Loops run without Python's lock.  Two threads write the same array only at different places, or by
            ``intrinsics``' atomic functions.  Long loops take a count of pieces of work and come back, so that
            Python sees Ctrl-C (``cpu.threads``).  What is done once per expression is shared out by ``slices``.
Cache       Numba's own would load whatever lies in its files, and looks only at the file of a function.  Here
            machine code is kept in the ``disk_cache``, which checks an entry before anything in it is used,
            under a name made of all that it depends on: the text of the function's file and of all files of
            exprkit that it imports from, the types, the processor, the versions.  What is not there may have been
            ``shipped`` with the package, for a level of processors.  Of processes that start together with an
            empty cache one compiles a loop, and the others wait for it.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from numba import config
from numba.core import event, serialize, types
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from numba.core.runtime import rtsys

from exprkit.runtime import disk_cache, shipped
from exprkit.runtime.borrowed import argument_type

PATIENCE = 1.0  # seconds of compiling that nothing is said of
EVERY = 10.0  # seconds between two lines that say how far it is
REST = 60.0  # seconds without a new loop, after which what is compiled belongs to another feature
COMPILING = "exprkit compiles the loops of this feature, once for this machine, which may take a minute"
WAITING = "exprkit:waiting"  # Numba's event around the wait for a loop that another process compiles
LOG = logging.getLogger(__name__)
ROOT = Path(__file__).parents[2]  # the folder that ``exprkit`` lies in

disk_cache.free_at_fork(global_compiler_lock)

# no_cfunc_wrapper: no function is handed to C, and what that needs takes long to compile
_OPTIONS = {"nopython": True, "nogil": True, "boundscheck": None, "no_cfunc_wrapper": True, "no_cpython_wrapper": False}
_bag_types: dict[tuple[Any, ...], types.Type] = {}  # of the bags that have been handed over
_held: list[contextlib.ExitStack] = []  # locks on disk, of a loop that is being compiled and those that it calls


class CompiledFunction(CPUDispatcher):
    """A compiled function: Numba's, but that its arguments are of ``argument_type``.

    Loops that call it have machine code of their own, without the way in from Python, which takes as long to compile.
    """

    @functools.cached_property
    def within(self) -> CompiledFunction:
        """The function that loops call."""
        if self.targetoptions["no_cpython_wrapper"]:
            return self
        return _compiled(self.py_func, {**self.targetoptions, "no_cpython_wrapper": True})

    @property
    def _numba_type_(self) -> types.Type:
        return types.Dispatcher(self.within)

    def compile(self, sig: Any) -> Any:
        """The entry point for arguments of these types, from the cache or compiled while other processes wait."""
        # Numba's lock first: a thread never waits for a file's lock whose holder, another one, waits for Numba's
        with global_compiler_lock, contextlib.ExitStack() as held:
            _held.append(held)
            try:
                return super().compile(sig)
            finally:
                _held.pop()

    def typeof_pyval(self, val: Any) -> types.Type:
        """The type of an argument from Python; looked up for a bag, since Numba would go through it at every call."""
        if not hasattr(val, "_fields"):
            return argument_type(super().typeof_pyval(val))
        fields = [(f.dtype, f.ndim, f.flags.num) if type(f) is np.ndarray else type(f) for f in val]
        key = (type(val), *fields)
        if key not in _bag_types:
            kind = argument_type(super().typeof_pyval(val))
            if any(isinstance(f, tuple) for f in val):
                return kind
            _bag_types[key] = kind
        return _bag_types[key]

    def get_call_template(self, args: Any, kws: dict[str, types.Type]) -> Any:
        """The typing of a call from compiled code."""
        named = {name: argument_type(kind) for name, kind in kws.items()}
        return super().get_call_template([argument_type(kind) for kind in args], named)


def compiled(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Decorator: a function in machine code, which is kept with that of the kernels."""
    if function is None:
        return functools.partial(compiled, **options)
    return _compiled(function, {**_OPTIONS, **options})


def _compiled(function: Callable[..., Any], options: dict[str, Any]) -> CompiledFunction:
    loop = CompiledFunction(function, targetoptions=options)
    if os.path.isfile(function.__code__.co_filename):  # not typed in
        loop._cache = LoopCache(function, options)  # what njit(cache=True) does, with a cache of Numba's
    return loop


inline = compiled(forceinline=True)  # decorator: part of those that call it, by LLVM


_starts: list[float] = []  # when this process began to compile each loop of what is in use
_reports: list[float] = []  # when it said so
_watchers: list[Callable[[int], None]] = []  # called when a loop has to be compiled


@contextlib.contextmanager
def compiling_watched(watcher: Callable[[int], None]) -> Iterator[None]:
    """A context in which a function of their number is called whenever a loop has to be compiled, by any thread."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def _report_compiling() -> None:
    """A line on stderr where many loops have to be compiled, as at a first use, and one every ten seconds after it.

    A single loop is not worth it.
    """
    now = time.perf_counter()
    if _starts and now - _starts[-1] > REST:
        _starts.clear()
        _reports.clear()
    _starts.append(now)
    for watcher in tuple(_watchers):
        watcher(len(_starts))
    if now - (_reports[-1] if _reports else _starts[0]) > (EVERY if _reports else PATIENCE):
        far = f"exprkit has compiled {len(_starts):,} loops in {now - _starts[0]:.0f} s"
        print(far if _reports else f"{COMPILING}; they are kept in {folder()}", file=sys.stderr, flush=True)
        _reports.append(now)


@functools.cache
def folder() -> Path | None:
    """The folder of machine code of loops while this process lives; None: nothing is kept."""
    return disk_cache.folder()


class LoopCache(NullCache):
    """The machine code of one function on disk: what a dispatcher of Numba asks before it compiles."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        code = function.__code__
        self._path, self._loop = code.co_filename, f"{function.__module__}.{function.__qualname__}"
        entrances = [
            kind for kind in ("cpython", "cfunc") if not options[f"no_{kind}_wrapper"]
        ]  # for others than loops
        self._entrances = [f"llvm_{kind}_wrapper_name" for kind in entrances]
        self._kind = disk_cache.LOOP if entrances else disk_cache.PART
        self._parts = (
            "loop",
            numba.__version__,
            f"{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')}",
            repr((config.OPT, config.BOUNDSCHECK, sorted(options.items()))),
            function.__module__,
            function.__qualname__,
            str(code.co_firstlineno),
            code.co_code,
        )

    def load_overload(self, sig: Any, target_context: Any) -> CompileResult | None:
        """The machine code for arguments of these types, or None."""
        rtsys.initialize(target_context)  # reference counts; the rest of what Numba prepares only compiling needs
        processor = target_context.codegen().magic_tuple()
        stored = self._stored(sig, processor)
        if stored is None:
            _report_compiling()
            stored = self._waited(sig, processor)
        if stored is None:
            LOG.info("compiles %s", self._loop)
            return None
        try:
            meant, parts = serialize.loads(stored)
            return CompileResult._rebuild(target_context, *parts) if meant == sig else None
        except Exception as error:  # an entry in good order that this Numba or Python cannot use
            disk_cache.warn(f"machine code kept in {folder()} can't be used, it is compiled anew ({error!r})")
            return None

    def _stored(self, sig: Any, processor: tuple[str, str, str]) -> bytes | None:
        """The entry of the user's own cache, or of the archive that came with the package."""
        stored = disk_cache.read(self._name(sig, processor), self._kind, folder())
        archive = shipped.archive(processor) if stored is None and self._kind == disk_cache.LOOP else None
        return archive.read(self._name(sig, archive.processor)) if archive else stored

    def _waited(self, sig: Any, processor: tuple[str, str, str]) -> bytes | None:
        """What another process has compiled meanwhile; None: this one has to, alone."""
        if folder() is None:
            return None
        name = self._name(sig, processor)
        with event.trigger_event(WAITING):
            _held[-1].enter_context(disk_cache.alone(name, folder()))
        return disk_cache.read(name, self._kind, folder())

    def save_overload(self, sig: Any, result: CompileResult) -> None:
        """Keep what has been compiled."""
        if result.library.has_dynamic_globals or folder() is None:  # addresses of this process
            return
        (name, kind, (machine_code, bitcode)), *parts = result._reduce()
        if self._entrances:  # no loop calls it: instead of its text a module with its names will do
            names = [getattr(result.fndesc, name) for name in self._entrances]
            text = "".join(f'define void @"{name}"() {{ unreachable }}\n' for name in names)
            bitcode = llvm.parse_assembly(text).as_bitcode()
        stored = serialize.dumps((sig, ((name, kind, (machine_code, bitcode)), *parts)))
        disk_cache.write(self._name(sig, result.target_context.codegen().magic_tuple()), stored, self._kind, folder())

    def _name(self, sig: Any, processor: tuple[str, str, str]) -> str:
        return disk_cache.key(*self._parts, _digest_of_all(self._path), str(sig), repr(processor))


@functools.cache
def _digest_of_all(path: str) -> bytes:
    return sha256(b"".join(digest(source) for source in sorted(sources(path)))).digest()


def sources(path: str) -> set[str]:
    """A file and all files of exprkit that it imports, and they import."""
    paths, waiting = {path}, [path]
    while waiting:
        new = _imports(waiting.pop()) - paths
        paths |= new
        waiting += new
    return paths


@functools.cache
def _imports(path: str) -> set[str]:
    """The files of exprkit that a file imports from, packages and modules."""
    paths = set()
    text = Path(path).read_text(encoding="utf-8")
    for module, names in re.findall(r"^ *from (exprkit\S*) import (\([^)]*\)|.*)", text, re.MULTILINE):
        place = os.path.join(ROOT, *module.split("."))
        modules = re.findall(r"\w+", names) + ["__init__"] * (module != "exprkit")  # no loop uses the face
        paths |= {f"{place}.py", *(os.path.join(place, f"{name}.py") for name in modules)}
    return {path for path in paths if os.path.isfile(path)}


@functools.cache
def digest(path: str) -> bytes:
    """The hash of a file's text."""
    return sha256(Path(path).read_bytes()).digest()
