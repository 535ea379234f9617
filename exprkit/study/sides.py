"""Where a backend runs, as ``bench`` sees it: its memory, its clocks, its end of a copy.

Used by ``bench`` alone.  ``Host`` is for backends whose results lie in the host's memory,
``Gpu`` for those of a CUDA device; both offer the same.

    >>> from exprkit.study.sides import side_of
    >>> type(side_of("cpu")).__name__
    'Host'

What a GPU does is timed by CUDA events around each step; its clock and whether it is held
back are asked of the driver between two samples, through NVIDIA's nvidia-ml-py where that is
installed (else those columns are empty).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

import numpy as np

from exprkit.backends import load
from exprkit.backends.gpu import device as card
from exprkit.backends.transpiler import assembler
from exprkit.errors import brought_by, number_of
from exprkit.runtime import machine

NOT_HELD_BACK = 0x1 | 0x2  # NVML's reasons for a lower clock that are none: idle, and a clock that somebody chose
COPIED, COPIES = 256 << 20, 7  # bytes, times
WRITTEN, WRITTEN_TIMES = 256 << 20, 32  # bytes, times: longer than the host takes to queue two steps
FOLDER = "EXPRKIT_CACHE_DIR"
KERNEL_FACTS = ("registers", "local_bytes", "shared_bytes", "block_used", "points_used", "resident_blocks")


def side_of(backend: str) -> Host | Gpu:
    """Where the backend of that name runs."""
    return Host() if load(backend).empty is None else Gpu(backend)


class Host:
    """The host: copies are made by NumPy, and nothing has to be waited for."""

    def used_by(self, evaluator: Any) -> dict[str, Any]:
        """What an evaluator ran on; an engine that shares nothing out has the caller's thread alone."""
        threads = evaluator.engine.threads
        return {"device": f"{machine.cpu_model()}, {number_of(threads, 'thread')}", "threads": threads}

    def put(self, array: np.ndarray) -> np.ndarray:
        """A fresh copy, as a user's array would be."""
        return np.array(array, order="C")

    parameters = put

    def room(self, shape: tuple[int, ...], dtype: np.dtype, on_host: bool) -> np.ndarray:
        """Memory for results, touched before, for the host's first touch of fresh memory is slow."""
        return np.zeros(shape, dtype)

    def landing(self, results: np.ndarray) -> None:
        """Memory that results are brought to: none is needed."""

    def get(self, array: Any, place: np.ndarray | None = None) -> np.ndarray:
        """Results in the host's memory."""
        return np.asarray(array)

    def event(self) -> Any:
        """What a moment of the device's own clock is noted in."""
        return None

    def mark(self, event: Any) -> None:
        """Note a moment."""

    def wait(self) -> None:
        """Until everything is done."""

    def seconds(self, marks: list[tuple[Any, Any]]) -> float:
        """Between the marks of each pair, added up."""
        return np.nan

    def alone(self, step: Callable[[], Any], of_many: bool) -> dict[str, float]:
        """A step by the device's own clock."""
        return {"device_s": np.nan, "device_cold_s": np.nan}

    def state(self) -> dict[str, Any]:
        """The clock, and whether something holds it back."""
        return {"sm_mhz": np.nan, "throttled": False}

    def kernel_facts(self, evaluator: Any) -> dict[str, Any]:
        """Of the kernel that ran."""
        return dict.fromkeys(KERNEL_FACTS, np.nan)


class Gpu:
    """A CUDA device, through CuPy."""

    def __init__(self, backend: str) -> None:
        with brought_by("cuda13"):
            import cupy
        self.cupy = cupy
        self.index = cupy.cuda.runtime.getDevice()
        self.device = cupy.cuda.runtime.getDeviceProperties(self.index)["name"].decode()

    def used_by(self, evaluator: Any) -> dict[str, Any]:
        """What an evaluator ran on."""
        return {"device": self.device}

    def put(self, array: np.ndarray) -> Any:
        """A copy on the device, complete."""
        copy = self.cupy.asarray(array)
        self.wait()
        return copy

    def parameters(self, array: np.ndarray) -> np.ndarray:
        """As they are: a backend takes a step's parameters from the host itself."""
        return array

    def room(self, shape: tuple[int, ...], dtype: np.dtype, on_host: bool) -> Any:
        """Memory for results, page-locked on the host."""
        if not on_host:
            return self.cupy.zeros(shape, dtype)
        n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        memory = np.frombuffer(self.cupy.cuda.alloc_pinned_memory(max(n_bytes, 1)), dtype, int(np.prod(shape)))
        memory[...] = 0
        return memory.reshape(shape)

    def landing(self, results: Any) -> np.ndarray | None:
        """Page-locked memory that results are brought to; none for those that are made there."""
        return None if isinstance(results, np.ndarray) else self.room(results.shape, results.dtype, on_host=True)

    def get(self, array: Any, place: np.ndarray | None = None) -> np.ndarray:
        """Results in the host's memory, complete."""
        return array if isinstance(array, np.ndarray) else array.get(out=place)

    def event(self) -> Any:
        """An event, not yet recorded."""
        return self.cupy.cuda.Event()

    def mark(self, event: Any) -> None:
        """Record an event on the current stream."""
        event.record()

    def wait(self) -> None:
        """Until everything on the device is done."""
        self.cupy.cuda.runtime.deviceSynchronize()

    def seconds(self, marks: list[tuple[Any, Any]]) -> float:
        """Between the events of each pair, added up."""
        return sum(self.cupy.cuda.get_elapsed_time(*pair) for pair in marks) / 1e3

    def alone(self, step: Callable[[], Any], of_many: bool) -> dict[str, float]:
        """One step by the device's own clock, all of it queued while the device is busy with other work.

        That work writes more than the second-level cache holds: ``device_cold_s`` follows it at once,
        ``device_s`` after another step.  nan for a step ``of_many`` launches or copies, which the queue does not hold.
        """
        if of_many:
            return {"device_s": np.nan, "device_cold_s": np.nan}
        found = {}
        for name, before in (("device_s", step), ("device_cold_s", None)):
            pair = self.event(), self.event()
            self._write_over()
            if before:
                before()
            self.mark(pair[0])
            step()
            self.mark(pair[1])
            self.wait()
            found[name] = self.seconds([pair])
        return found

    def _write_over(self) -> None:
        memory = _written_over(self.index)
        for turn in range(WRITTEN_TIMES):  # about 2 ms on an H200
            memory.fill(turn)

    def state(self) -> dict[str, Any]:
        """The clock of the multiprocessors in MHz, and whether power or heat holds it back; nan if nobody tells."""
        nvml, handle = _nvml(self.cupy.cuda.runtime.deviceGetPCIBusId(self.index))
        unknown = {"sm_mhz": np.nan, "throttled": False}
        if nvml is None:
            return unknown
        try:
            reasons = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
            clock = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
        except (nvml.NVMLError, AttributeError):  # a virtual machine's driver, or an old library, may not tell
            return unknown
        return {"sm_mhz": float(clock), "throttled": bool(reasons & ~NOT_HELD_BACK)}

    def kernel_facts(self, evaluator: Any) -> dict[str, Any]:
        """Registers, memory and occupancy, the most of all kernels that ran; nan where the engine does not tell."""
        launched = evaluator.engine.kernels()
        names = {"block_used": "block_size", "points_used": "points_per_thread"}
        return {fact: max((one.get(names.get(fact, fact), np.nan) for one in launched), default=np.nan)
                for fact in KERNEL_FACTS}  # fmt: skip


@functools.cache
def _nvml(bus: str) -> tuple[Any, Any]:
    """NVIDIA's management library and the device's handle; (None, None) where it is not to be had."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(bus)
    except Exception:  # not installed, or the driver has no such library: the columns stay empty
        return None, None


@functools.cache
def _written_over(device: int) -> Any:
    """Memory of a device that is several times as large as its second-level cache."""
    import cupy

    return cupy.zeros(WRITTEN // 4, np.float32)


@contextlib.contextmanager
def empty_cache() -> Iterator[None]:
    """Machine code of expressions is kept in an empty folder, which goes at the end, and none from before is found."""
    before = os.environ.get(FOLDER)
    with tempfile.TemporaryDirectory(prefix="exprkit-") as folder:
        os.environ[FOLDER] = folder
        assembler.forget()
        try:
            yield
        finally:
            assembler.forget()
            if before is None:
                del os.environ[FOLDER]
            else:
                os.environ[FOLDER] = before


@functools.cache
def roofs() -> dict[str, float]:
    """Bytes a second that copying moves, read plus written, on the host and on the device: what nothing can beat."""
    found = {"host_bytes_per_s": _host_copy()}
    if not card.missing():
        import cupy

        side, source = Gpu("cuda"), cupy.zeros(COPIED // 4, np.float32)
        target = cupy.empty_like(source)
        marks = [(side.event(), side.event()) for _ in range(COPIES)]
        for before, after in marks:
            side.mark(before)
            cupy.copyto(target, source)
            side.mark(after)
        side.wait()
        found["gpu_bytes_per_s"] = 2 * source.nbytes / min(side.seconds([pair]) for pair in marks)
    return found


def _host_copy() -> float:
    """By all threads together."""
    source = np.zeros(COPIED // 4, np.float32)
    target = np.ones_like(source)
    edges = np.linspace(0, len(source), machine.cores() + 1).astype(int)
    parts = [slice(*pair) for pair in itertools.pairwise(edges)]
    times = []
    with ThreadPoolExecutor(machine.cores()) as threads:
        for _ in range(COPIES):
            begin = perf_counter()
            list(threads.map(lambda part: np.copyto(target[part], source[part]), parts))
            times.append(perf_counter() - begin)
    return 2 * source.nbytes / min(times)


def gpu_record() -> dict[str, Any]:
    """What a measured time depends on besides ``machine.record()``: the device, its driver, its software."""
    if card.missing():
        return {}
    import cupy

    runtime, index = cupy.cuda.runtime, cupy.cuda.runtime.getDevice()
    properties = runtime.getDeviceProperties(index)
    nvml, handle = _nvml(runtime.deviceGetPCIBusId(index))

    def told(name: str, *arguments: Any) -> Any:
        try:
            return getattr(nvml, name)(*arguments)
        except Exception:  # no NVML, or a virtual machine's driver that does not tell
            return None

    return {
        "gpu": {
            "name": properties["name"].decode(),
            "compute_capability": f"{properties['major']}.{properties['minor']}",
            "multiprocessors": int(properties["multiProcessorCount"]),
            "memory": int(properties["totalGlobalMem"]),
            "driver": told("nvmlSystemGetDriverVersion"),
            "cuda_driver": runtime.driverGetVersion(),
            "cuda_runtime": runtime.runtimeGetVersion(),
            "most_sm_mhz": told("nvmlDeviceGetMaxClockInfo", handle, 1),  # NVML_CLOCK_SM
            "devices": runtime.getDeviceCount(),
        }
    }
