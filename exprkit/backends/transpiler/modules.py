"""The module cache: machine code of a population loaded on the device on demand, bounded in memory.

In: texts of PTX.  Out: kernels, and those dropped again that memory has no room for.

    >>> from exprkit.backends.transpiler.modules import EntryArguments
    >>> EntryArguments(job=1, work=2).work
    2
"""

from __future__ import annotations

import ctypes
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from exprkit.backends.precision import Precision
from exprkit.backends.transpiler.assembler import RecentlyUsed
from exprkit.backends.transpiler.program import Transpiled
from exprkit.backends.transpiler.templates import Kind
from exprkit.runtime.progress import shown


class EntryArguments(ctypes.Structure):
    """The argument of every entry: addresses of what all blocks have in common, and of the table of work."""

    _fields_ = [("job", ctypes.c_uint64), ("work", ctypes.c_uint64)]


class ModuleOptions(NamedTuple):
    """How an engine compiles modules, whatever their kind."""

    compiler: Callable[..., Any]  # ``assembler.compile_modules`` or what stands in for it
    most_bytes: int  # of machine code on the device
    seconds: dict[str, float]  # takes the time spent: "emit", "compile" (waited for), "load"
    progress: bool  # show a bar


class ModuleCache:
    """The modules of one kind.

    ``epoch`` is another number whenever a module has left the device; before that ``invalidate`` of all ``dependents``
    is called: what they hold of kernels is no longer good.
    """

    def __init__(
        self, device: Any, transpiled: Transpiled, kind: Kind, settings: Precision, options: ModuleOptions
    ) -> None:
        self.device, self.transpiled, self.kind, self.settings = device, transpiled, kind, settings
        self.options = options
        self._loaded = RecentlyUsed()  # the kernel of each module
        self.epoch = 0
        self.dependents: weakref.WeakSet[Any] = weakref.WeakSet()

    def all(self) -> Iterator[tuple[int, Any]]:
        """Every module's index and kernel, as it is ready: those on the device first.

        A module may leave the device when the next one is asked for.
        """
        missing = [i for i in range(len(self.transpiled)) if i not in self._loaded]
        for i, kernel in self._loaded.items():
            yield i, kernel
            del kernel
        yield from self._compiled(missing)

    def described(self) -> Iterator[dict[str, Any]]:
        """Every kernel on the device: its use of the multiprocessor."""
        for i, kernel in self._loaded.items():
            yield {
                "name": self.kind.task,
                "module": i,
                "registers": kernel.registers,
                "local_bytes": kernel.local_bytes,
                "shared_bytes": 0,
                "block_size": self.kind.block,
                "points_per_thread": self.kind.points,
                "resident_blocks": kernel.resident(self.kind.block, 0),
                "code_bytes": self._loaded.size_of(i),
            }

    def _compiled(self, modules: list[int]) -> Iterator[tuple[int, Any]]:
        if not modules:
            return
        started = time.perf_counter()
        architecture = self.settings.architecture or self.device.architecture
        with shown(self.options.progress, len(modules), "compiling", " modules") as done:
            for linked in self.options.compiler(self._texts(modules), architecture, self.settings):
                i = modules[linked.index]
                self._spent("compile", started)
                kernel = self._load(i, linked.cubin)
                done(1)
                yield i, kernel
                started = time.perf_counter()

    def _texts(self, modules: list[int]) -> Iterator[bytes]:
        for i in modules:
            started = time.perf_counter()
            text = self.transpiled.module(i, self.kind, self.settings)
            self._spent("emit", started)
            yield text

    def _load(self, i: int, cubin: bytes) -> Any:
        started = time.perf_counter()
        if self._loaded and self._loaded.n_bytes + len(cubin) > self.options.most_bytes:
            self.device.current_stream().synchronize()  # they may still run
            self.epoch += 1
            for dependent in self.dependents:
                dependent.invalidate()
            self._loaded.shrink(self.options.most_bytes // 2 - len(cubin))
        (kernel,) = self.device.load(cubin, (self.kind.task,))
        self._loaded.put(i, kernel, len(cubin))
        self._spent("load", started)
        return kernel

    def _spent(self, phase: str, started: float) -> None:
        seconds = self.options.seconds
        seconds[phase] = seconds.get(phase, 0.0) + time.perf_counter() - started
