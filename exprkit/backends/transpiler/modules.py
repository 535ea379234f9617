"""Machine code of a population's modules on the device: compiled when needed, bounded in memory.

In: texts of PTX.  Out: kernels, and those dropped again that memory has no room for.

    >>> from exprkit.backends.transpiler.modules import Given
    >>> Given(job=1, work=2).work
    2
"""

from __future__ import annotations

import contextlib
import ctypes
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from exprkit.backends.gpu import device as cards
from exprkit.backends.precision import Precision
from exprkit.backends.transpiler.program import Transpiled
from exprkit.backends.transpiler.templates import Kind

CUBIN_BYTES = 512 << 20  # of machine code kept in the host's memory


class Given(ctypes.Structure):
    """The argument of every entry: addresses of the job and of the table of work."""

    _fields_ = [("job", ctypes.c_uint64), ("work", ctypes.c_uint64)]


class OnDevice(NamedTuple):
    """A module on the device: a kernel for each of its entries."""

    kernels: list[Any]
    n_bytes: int


class ModuleCode:
    """The modules of one kind.

    Parameters
    ----------
    card : Card
    transpiled : Transpiled
    kind : Kind
    settings : Precision
    separate : bool
        An entry for every bundle.
    compiler : callable
        ``link.compile_modules`` or what stands in for it.
    most_bytes : int
        Of machine code on the device.
    seconds : dict
        Takes the time spent: "emit", "compile" (waited for), "load".
    """

    def __init__(
        self, card: Any, transpiled: Transpiled, kind: Kind, settings: Precision, *, separate: bool,
        compiler: Callable[..., Any], most_bytes: int, seconds: dict[str, float], progress: bool,
    ) -> None:  # fmt: skip
        self.card, self.transpiled, self.kind, self.settings = card, transpiled, kind, settings
        self.separate, self.compiler, self.most_bytes, self.seconds = separate, compiler, most_bytes, seconds
        self.progress = progress
        self.reports: dict[int, str] = {}
        self._loaded: OrderedDict[int, OnDevice] = OrderedDict()
        self._cubins: OrderedDict[int, bytes] = OrderedDict()
        self._names: dict[int, tuple[str, ...]] = {}
        self._bytes = self._cubin_bytes = 0
        self.generation = 0  # another one whenever a module has left the device
        self.watchers: weakref.WeakSet[Any] = weakref.WeakSet()  # their ``forget`` is called before that

    def __len__(self) -> int:
        return len(self.transpiled)

    @property
    def complete(self) -> bool:
        """Whether all modules are on the device."""
        return len(self._loaded) == len(self)

    def all(self) -> Iterator[tuple[int, list[Any]]]:
        """Every module's index and kernels, as they are ready: those on the device first.

        A module may leave the device when the next one is asked for.
        """
        missing = [i for i in range(len(self)) if i not in self._loaded]
        for i, module in list(self._loaded.items()):
            self._loaded.move_to_end(i)
            yield i, module.kernels
            del module
        for i in [i for i in missing if i in self._cubins]:
            yield i, self._load(i, self._cubins[i])
        yield from self._made([i for i in missing if i not in self._cubins])

    def described(self) -> Iterator[dict[str, Any]]:
        """Every kernel on the device: its use of the multiprocessor."""
        for i, module in self._loaded.items():
            for name, kernel in zip(self._names[i], module.kernels, strict=True):
                yield {
                    "name": name, "module": i, "registers": kernel.registers, "local_bytes": kernel.local_bytes,
                    "shared_bytes": 0, "block_size": self.kind.block, "points_per_thread": self.kind.points,
                    "resident_blocks": kernel.resident(self.kind.block, 0), "code_bytes": module.n_bytes,
                }  # fmt: skip

    def _made(self, wanted: list[int]) -> Iterator[tuple[int, list[Any]]]:
        """Compile modules, each loaded as soon as it is done."""
        if not wanted:
            return
        started = time.perf_counter()
        architecture = self.settings.architecture or self.card.architecture
        with _bar(len(wanted), self.progress) as advance:
            for linked in self.compiler(self._texts(wanted), architecture, self.settings):
                i = wanted[linked.index]
                self.seconds["compile"] = self.seconds.get("compile", 0.0) + time.perf_counter() - started
                self._keep(i, linked.cubin, linked.report)
                kernels = self._load(i, linked.cubin)
                advance()
                yield i, kernels
                started = time.perf_counter()

    def _texts(self, wanted: list[int]) -> Iterator[bytes]:
        for i in wanted:
            started = time.perf_counter()
            module = self.transpiled.module(i, self.kind, self.settings, separate=self.separate)
            self._names[i] = module.entries
            self.seconds["emit"] = self.seconds.get("emit", 0.0) + time.perf_counter() - started
            yield module.text

    def _keep(self, i: int, cubin: bytes, report: str) -> None:
        self.reports[i] = report
        self._cubins[i] = cubin
        self._cubin_bytes += len(cubin)
        while self._cubin_bytes > CUBIN_BYTES:
            self._cubin_bytes -= len(self._cubins.popitem(last=False)[1])

    def _load(self, i: int, cubin: bytes) -> list[Any]:
        started = time.perf_counter()
        self._make_room(len(cubin))
        kernels = load(self.card, cubin, self._names[i])
        self._loaded[i] = OnDevice(kernels, len(cubin))
        self._bytes += len(cubin)
        self.seconds["load"] = self.seconds.get("load", 0.0) + time.perf_counter() - started
        return kernels

    def _make_room(self, n_bytes: int) -> None:
        if not self._loaded or self._bytes + n_bytes <= self.most_bytes:
            return
        self.card.current_stream().synchronize()  # they may still run
        self.generation += 1
        for watcher in self.watchers:
            watcher.forget()
        while self._loaded and self._bytes + n_bytes > self.most_bytes / 2:
            self._bytes -= self._loaded.popitem(last=False)[1].n_bytes


def load(card: Any, code: bytes, names: tuple[str, ...]) -> list[Any]:
    """Kernels of a module."""
    if hasattr(card, "load"):
        return list(card.load(code, names))
    module = card.xp.cuda.function.Module()
    module.load(code)
    return [cards.Kernel(module, name) for name in names]


@contextlib.contextmanager
def _bar(total: int, shown: bool) -> Iterator[Callable[[], Any]]:
    """A function that counts one more module, on a bar if one is wanted."""
    if not shown:
        yield lambda: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, desc="compiling", unit="module") as bar:
        yield bar.update
