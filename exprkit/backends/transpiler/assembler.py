"""Assembling PTX to machine code: many modules in parallel, cached on disk, returned as they finish.

In: PTX.  Out: cubins.  nvJitLink compiles for the architecture given, so that no GPU is needed; it runs in threads,
which it uses well: the driver's own compiler would take one module after the other.

    >>> from exprkit.backends.transpiler.assembler import usage
    >>> usage("ptxas info    : Compiling entry function 'k0' for 'sm_90'\\n"
    ...       "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\\n"
    ...       "ptxas info    : Used 24 registers, used 0 barriers\\n")
    {'k0': Usage(registers=24, spill_stores=0, spill_loads=0, stack=0)}

Texts are taken from the iterable as they are needed and results are given as they are made, so
that no more than a few modules per thread are in memory, however many there are.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

from exprkit.backends.gpu.nvrtc import no_architecture
from exprkit.backends.precision import Precision
from exprkit.errors import BackendError
from exprkit.runtime import disk_cache, machine

WAITING = 2  # modules per thread in hand: one in the compiler, one waiting
MEMORY_BYTES = 64 << 20  # of machine code kept in this process as well: thousands of modules, little memory
_SHOWN = 2  # lines of PTX before and after a bad one


class Linked(NamedTuple):
    """A module's machine code."""

    index: int  # type: ignore[assignment]  # of the text; tuples have a method of that name
    cubin: bytes
    report: str  # the assembler's; ``usage`` reads it


class Usage(NamedTuple):
    """A thread's registers in a kernel, and bytes of local memory."""

    registers: int
    spill_stores: int
    spill_loads: int
    stack: int


def compile_modules(
    texts: Iterable[str | bytes],
    architecture: str,
    settings: Precision,
    *,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
    cache: bool = True,
) -> Iterator[Linked]:
    """Machine code of PTX modules, in the order in which they are done: from the cache on disk, else compiled and kept.

    ``texts`` are taken one by one, in the caller's thread; ``workers`` compile at once, by default as many as this
    process has CPUs; ``progress`` is called with the number of modules done so far; without ``cache`` all are compiled
    and nothing is kept.

    Raises
    ------
    BackendError
        If nvJitLink is not installed (says which command brings it) or refuses a module (shows the line of PTX and the
        kernel it stands in).
    """
    if not re.fullmatch(r"sm_\d{2,3}[af]?", str(architecture)):
        raise no_architecture(architecture)
    version()  # here and not in a thread: whether it is installed
    options = [f"-Xptxas=-O{settings.optimisation}"]  # nvJitLink itself knows only -O0 and -O3
    options += [] if settings.max_registers is None else [f"-maxrregcount={settings.max_registers}"]
    options += ["-lineinfo"] if settings.line_info else []
    compile_one = functools.partial(_machine_code, architecture=architecture, options=options, cache=cache)
    return _in_threads(compile_one, texts, workers or machine.cores(), progress)


def _in_threads(
    compile_one: Callable[[int, bytes], Linked],
    texts: Iterable[str | bytes],
    workers: int,
    progress: Callable[[int], None] | None,
) -> Iterator[Linked]:
    waiting: set[Future[Linked]] = set()
    done = itertools.count(1)

    def finished() -> Iterator[Linked]:
        """Wait for at least one and take those that are done away from ``waiting``."""
        ready, _ = wait(waiting, return_when=FIRST_COMPLETED)
        waiting.difference_update(ready)
        for linked in sorted((future.result() for future in ready), key=lambda linked: linked.index):
            if progress:
                progress(next(done))
            yield linked

    pool = ThreadPoolExecutor(workers, "exprkit-ptx")
    try:
        for index, text in enumerate(texts):
            waiting.add(pool.submit(compile_one, index, text.encode("ascii") if isinstance(text, str) else bytes(text)))
            del text
            while len(waiting) >= WAITING * workers or any(future.done() for future in waiting):
                yield from finished()
        while waiting:
            yield from finished()
    finally:  # also when the caller stops early or an error ends it: nothing new is begun
        pool.shutdown(wait=True, cancel_futures=True)


def _machine_code(index: int, text: bytes, *, architecture: str, options: list[str], cache: bool) -> Linked:
    """Machine code of a module: from this process's memory or the disk, else compiled and kept there."""
    key = disk_cache.key("ptx", text, architecture, *options, "nvjitlink", version())
    entry = (_memory_get(key) or disk_cache.read(key)) if cache else None
    is_new = entry is None
    if entry is None:
        cubin, log = run_nvjitlink(text, architecture, options)
        lines = log.decode(errors="replace").splitlines()
        report = "\n".join(line for line in lines if "Compile time" not in line).encode()
        entry = len(report).to_bytes(8, "little") + report + cubin
    if cache:
        if is_new:
            disk_cache.write(key, entry)
        _memory_put(key, entry)
    size = 8 + int.from_bytes(entry[:8], "little")
    return Linked(index, entry[size:], entry[8:size].decode())


# ── in memory ────────────────────────────────────────────────────────────────────────


class RecentlyUsed:
    """Values and how many bytes they take; ``shrink`` drops those not used for the longest time."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
        self.n_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Any) -> bool:
        return key in self._entries

    def get(self, key: Any) -> Any:
        """The value, which is used now; None if there is none."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def items(self) -> list[tuple[Any, Any]]:
        return [(key, value) for key, (value, _) in self._entries.items()]

    def size_of(self, key: Any) -> int:
        return self._entries[key][1]

    def put(self, key: Any, value: Any, n_bytes: int) -> None:
        self.n_bytes += n_bytes - self._entries.pop(key, (None, 0))[1]
        self._entries[key] = value, n_bytes

    def shrink(self, most_bytes: int) -> None:
        while self._entries and self.n_bytes > most_bytes:
            self.n_bytes -= self._entries.popitem(last=False)[1][1]


_memory = RecentlyUsed()  # the last machine code that this process used
_lock = disk_cache.free_at_fork(RLock())


def _memory_get(key: str) -> bytes | None:
    with _lock:
        return _memory.get(key)


def _memory_put(key: str, code: bytes) -> None:
    with _lock:
        _memory.put(key, code, len(code))
        _memory.shrink(MEMORY_BYTES)


def forget() -> None:
    """Empty the process's own store of machine code (not the disk's)."""
    with _lock:
        _memory.shrink(0)


COMPILER = "cuda-core cuda-bindings nvidia-cuda-nvrtc nvidia-nvjitlink"  # packages that make machine code of PTX

# ── the assemblers ───────────────────────────────────────────────────────────────────


def cuda_library(name: str, version_of: str, package: str, purpose: str) -> Any:
    """A module of ``cuda.bindings`` whose library is there.

    BackendError if the module or the library (in a package of its own) is not installed.
    """
    missing = f"{purpose} {{}}: pip install {COMPILER} (which need no GPU)"
    try:
        importlib.import_module("cuda.bindings")
        library = importlib.import_module(f"cuda.bindings.{name}")
    except ImportError:
        raise BackendError(missing.format("cuda-bindings")) from None
    try:
        getattr(library, version_of)()
    except RuntimeError:
        raise BackendError(missing.format(package)) from None
    return library


def _nvjitlink() -> Any:
    return cuda_library("nvjitlink", "version", "nvJitLink (nvidia-nvjitlink)", "compiling PTX needs")


@functools.cache
def version() -> str:
    """Name and full version of nvJitLink, on which the machine code depends; BackendError if it is not installed."""
    packages = machine.installed(("nvidia-nvjitlink", "nvidia-nvjitlink-cu12")).items()
    return " ".join(["nvJitLink", *map(str, _nvjitlink().version()), *map(" ".join, packages)])


def run_nvjitlink(text: bytes, architecture: str, options: list[str]) -> tuple[bytes, bytes]:
    linker = _nvjitlink()
    arguments = [f"-arch={architecture}", "-verbose", "-no-cache", *options]  # it keeps code on disk itself, unbounded
    try:
        handle = linker.create(len(arguments), arguments)
    except linker.nvJitLinkError as error:
        if "_ARCH " in str(error):  # unsupported or unrecognised
            raise no_architecture(architecture) from None
        raise BackendError(f"nvJitLink takes no such options ({error}): {' '.join(arguments)}") from None
    try:
        linker.add_data(handle, linker.InputType.PTX, text, len(text), "module.ptx")
        linker.complete(handle)
        cubin = bytearray(linker.get_linked_cubin_size(handle))
        linker.get_linked_cubin(handle, cubin)
        return bytes(cubin), _log(linker.get_info_log_size, linker.get_info_log, handle)
    except linker.nvJitLinkError as error:
        log = _log(linker.get_error_log_size, linker.get_error_log, handle).decode(errors="replace")
        raise BackendError(_refusal(text, log or str(error), architecture)) from None
    finally:
        linker.destroy(handle)


def _log(size: Callable[[int], int], read: Callable[[int, bytearray], None], handle: int) -> bytes:
    log = bytearray(size(handle))
    if log:
        read(handle, log)
    return bytes(log).rstrip(b"\0")


def tool(name: str) -> str | None:
    """The path of a CUDA program: in the PATH, a pip package or a toolkit; None if there is none."""
    own = [Path(place) / "nvidia" for place in sys.path if place]
    places = [folder for place in own for folder in (*place.glob("cu*/bin"), *place.glob("cuda_*/bin"))]
    toolkit = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    for folder in (*map(str, sorted(places, reverse=True)), None, str(Path(toolkit) / "bin")):
        if path := shutil.which(name, path=folder):
            return path
    return None


# ── what they say ────────────────────────────────────────────────────────────────────

_KERNEL = re.compile(r"(?:Compiling entry function|Function properties for) '?(\w+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")


def usage(report: str) -> dict[str, Usage]:
    """Registers and spills of every kernel, out of an assembler's report."""
    by_entry: dict[str, Usage] = {}
    name, stack, stores, loads = "", 0, 0, 0
    for line in report.splitlines():
        if kernel := _KERNEL.search(line):
            if name != kernel[1]:
                stack = stores = loads = 0
            name = kernel[1]
        elif spills := _STACK.search(line):
            stack, stores, loads = map(int, spills.groups())
        elif used := _USED.search(line):
            by_entry[name] = Usage(int(used[1]), stores, loads, stack)
    return by_entry


def _refusal(text: bytes, log: str, architecture: str) -> str:
    """The compiler's complaint, with the line of PTX and the kernel it stands in."""
    said = [line for line in log.splitlines() if re.search(r"line \d+|error|fatal", line, re.IGNORECASE)]
    message = f"nvJitLink refuses the PTX for {architecture}: {said[0].strip() if said else log.strip()}"
    place = re.search(r"line (\d+)", message)
    return f"{message}\n{_excerpt(text, int(place[1]))}" if place else message


def _excerpt(text: bytes, number: int) -> str:
    lines = text.decode(errors="replace").splitlines()
    head = next((line for line in reversed(lines[:number]) if re.search(r"\.(entry|func)\b", line)), "")
    shown = range(max(number - 1 - _SHOWN, 0), min(number + _SHOWN, len(lines)))
    rows = [f"{'>' if i == number - 1 else ' '} {i + 1:6}  {lines[i].strip()}" for i in shown]
    return "\n".join([*([f"in {head.strip()}"] if head else []), *rows])


def disassemble(cubin: bytes) -> str:
    """A module's machine code as text (SASS), its kernels before the functions that they call.

    BackendError if neither nvdisasm nor cuobjdump is installed: says which command brings one.
    """
    program = tool("nvdisasm") or tool("cuobjdump")
    if program is None:
        raise BackendError("showing machine code needs nvdisasm: pip install nvidia-cuda-nvdisasm")
    with tempfile.TemporaryDirectory(prefix="exprkit-") as folder:
        path = Path(folder, "module.cubin")
        path.write_bytes(cubin)
        options = ["-c"] if Path(program).stem == "nvdisasm" else ["-sass"]
        done = subprocess.run([program, *options, str(path)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise BackendError(f"{Path(program).stem} can't read the machine code: {done.stderr.strip()}")
    return _entries_first(done.stdout)


def _entries_first(text: str) -> str:
    head, *sections = re.split(r"(?m)^(?=//-{8,} )", text)
    return head + "".join(sorted(sections, key=lambda section: "STO_CUDA_ENTRY" not in section))
