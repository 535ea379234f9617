"""Host and GPU side of a measurement: buffers, copies, clocks and rates.

In: a backend's name.  Out: what it runs on, a ``Host``, or a ``Gpu`` (CUDA's, through CuPy) with the same methods.

    >>> from exprkit.study.timed_device import device_of
    >>> type(device_of("cpu")).__name__
    'Host'

What a GPU does is timed by CUDA events around each step; its clock and whether it is held back are asked of the driver
between two samples, by NVIDIA's nvidia-ml-py where that is installed (else those columns are empty).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from exprkit.backends import load
from exprkit.backends.gpu import device
from exprkit.backends.transpiler import assembler
from exprkit.errors import brought_by, number_of
from exprkit.runtime import machine

NOT_HELD_BACK = 0x1 | 0x2  # NVML's reasons for a lower clock that are none: idle, and a clock that somebody chose
COPIED, COPIES = 256 << 20, 7  # bytes, times
WRITTEN, WRITTEN_TIMES = 256 << 20, 32  # bytes, times: longer than the host takes to queue two steps
TRANSFERS = "bytes_in", "bytes_out", "transfers"
READY = 2  # calls until an engine has everything ready for the next one
NO_CLOCK = {"sm_mhz": np.nan, "throttled": False}
CLEAR = Path("/proc/self/clear_refs")  # "5" written there makes the peak of resident memory the present one
FOLDER = "EXPRKIT_CACHE_DIR"
KERNEL_FACTS = {  # column: what the engine calls it
    "registers": "registers",
    "local_bytes": "local_bytes",
    "shared_bytes": "shared_bytes",
    "block_used": "block_size",
    "points_used": "points_per_thread",
    "resident_blocks": "resident_blocks",
}


def device_of(backend: str) -> Host:
    """The device of a backend."""
    return Host() if load(backend).empty is None else Gpu()


class Host:
    """The host, whose copies are NumPy's."""

    pools: tuple[Any, ...] = ()  # of memory that was freed, and is held for later

    def facts(self, evaluator: Any) -> dict[str, Any]:
        """Name and threads of the host for an evaluator."""
        threads = evaluator.engine.threads
        name = f"{machine.cpu_model()}, {number_of(threads, 'thread')}"
        return NO_CLOCK | {"device": name, "threads": threads, "most_warps": np.nan}

    def put(self, array: np.ndarray) -> Any:
        """A fresh copy where the backend runs, complete."""
        return np.array(array, order="C")

    parameters = put  # a step's, as a user hands them over

    def room(self, shape: tuple[int, ...], dtype: np.dtype, on_host: bool) -> tuple[Any, np.ndarray | None]:
        """Memory for results, touched before, for the first touch is slow; and the host's that they are brought to."""
        return np.zeros(shape, dtype), None

    def get(self, array: Any, place: np.ndarray | None = None) -> np.ndarray:
        """Results in the host's memory, complete."""
        return np.asarray(array)

    def event(self) -> Any:
        """A place for a time of the device's own clock."""

    def mark(self, event: Any) -> None:
        """Note a moment."""

    def wait(self) -> None:
        """Until everything is done."""

    def seconds(self, events: list[tuple[Any, Any]]) -> float:
        """Between the moments of each pair, added up; nan where there is no such clock."""
        return np.nan

    def forget_memory(self) -> None:
        """From now on memory is counted; what earlier work left to be collected is given back before."""
        gc.collect()
        for pool in self.pools:
            pool.free_all_blocks()
        with contextlib.suppress(OSError, AttributeError, TypeError):  # glibc alone has it; Windows takes no None
            ctypes.CDLL(None).malloc_trim(0)
        self.before = None
        with contextlib.suppress(OSError):
            CLEAR.write_text("5")
            self.before = machine.process_memory()

    def memory(self) -> dict[str, float]:
        """The most bytes that came to be used since then, of the host and of the device; nan if not told."""
        most = machine.process_memory("VmHWM") or np.nan
        taken = np.nan if self.before is None else np.maximum(most - self.before, 0)  # Linux counts some pages late
        return {"host_bytes": float(taken), "device_bytes": np.nan}

    def blank(self, matrix: Any) -> Any:
        """As much of the device's memory as a matrix takes; None where there is no room."""
        return matrix

    def transfers(self) -> dict[str, float]:
        """Bytes to the device and from it since the last call, and how many copies; nan where there is none."""
        return dict.fromkeys(TRANSFERS, np.nan)

    def alone(self, step: Callable[[], Any]) -> dict[str, float]:
        """A step by the device's own clock, queued while the device is busy; nan where there is no such clock."""
        return {"device_s": np.nan, "device_cold_s": np.nan}


class Gpu(Host):
    """A CUDA device, through CuPy."""

    def __init__(self) -> None:
        with brought_by("cuda13"):
            import cupy
        self.cupy, self.runtime = cupy, cupy.cuda.runtime
        self.index = self.runtime.getDevice()
        self.pools = cupy.get_default_memory_pool(), cupy.get_default_pinned_memory_pool()
        properties = self.runtime.getDeviceProperties(self.index)
        self.name, self.nvml = properties["name"].decode(), _nvml(self.runtime.deviceGetPCIBusId(self.index))
        self.most_warps = properties["maxThreadsPerMultiProcessor"] / 32

    def facts(self, evaluator: Any) -> dict[str, Any]:
        """The device, the clock of its multiprocessors in MHz and whether power or heat holds it back."""
        nvml, handle = self.nvml
        facts = NO_CLOCK | {"device": self.name, "most_warps": self.most_warps}
        with contextlib.suppress(*(nvml.NVMLError, AttributeError) if nvml else ()):  # an old driver may not tell
            if nvml:
                reasons = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
                clock = float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
                facts |= {"sm_mhz": clock, "throttled": bool(reasons & ~NOT_HELD_BACK)}
        return facts

    def put(self, array: np.ndarray) -> Any:
        copy = self.cupy.asarray(array)
        self.wait()
        return copy

    def parameters(self, array: np.ndarray) -> np.ndarray:
        """As they are: a backend takes a step's parameters from the host itself."""
        return array

    def room(self, shape: tuple[int, ...], dtype: np.dtype, on_host: bool) -> tuple[Any, np.ndarray | None]:
        """On the host page-locked, which the system may not count as memory of the process."""
        count, before = int(np.prod(shape)), machine.process_memory() or 0
        pinned = self.cupy.cuda.alloc_pinned_memory(max(count * np.dtype(dtype).itemsize, 1))
        memory = np.frombuffer(pinned, dtype, count).reshape(shape)
        memory[...] = 0
        self.not_counted = max(memory.nbytes - ((machine.process_memory() or 0) - before), 0)
        return (memory, None) if on_host else (self.cupy.zeros(shape, dtype), memory)

    def get(self, array: Any, place: np.ndarray | None = None) -> np.ndarray:
        return device.fetched(array, place)

    def event(self) -> Any:
        return self.cupy.cuda.Event()

    def mark(self, event: Any) -> None:
        event.record()

    def wait(self) -> None:
        self.runtime.deviceSynchronize()

    def seconds(self, events: list[tuple[Any, Any]]) -> float:
        return sum(self.cupy.cuda.get_elapsed_time(*pair) for pair in events) / 1e3

    def forget_memory(self) -> None:
        super().forget_memory()
        self.not_counted, self.free, self.held = 0, self.runtime.memGetInfo()[0], self.pools[0].total_bytes()

    def memory(self) -> dict[str, float]:
        """Of the device: taken from it, code included, or held by CuPy's pool, which gives nothing back."""
        taken = float(max(self.free - self.runtime.memGetInfo()[0], self.pools[0].total_bytes() - self.held))
        return {"host_bytes": super().memory()["host_bytes"] + self.not_counted, "device_bytes": taken}

    def blank(self, matrix: Any) -> Any:
        try:
            return self.cupy.empty(matrix.shape, matrix.dtype)
        except self.cupy.cuda.memory.OutOfMemoryError:
            return None

    def transfers(self) -> dict[str, float]:
        return dict(device.transfers())

    def alone(self, step: Callable[[], Any]) -> dict[str, float]:
        """``device_cold_s`` after what writes over the second-level cache, ``device_s`` after another step.

        Before, the step runs twice: what an engine gets ready in its first calls is no part of it.
        """
        seconds = {}
        for _ in range(READY):
            step()
        for name, before in (("device_s", step), ("device_cold_s", lambda: None)):
            pair = self.event(), self.event()
            for turn in range(WRITTEN_TIMES):  # about 2 ms on an H200
                _written_over(self.index).fill(turn)
            before()
            self.mark(pair[0])
            step()
            self.mark(pair[1])
            self.wait()
            seconds[name] = self.seconds([pair])
        return seconds


def kernel_facts(evaluator: Any) -> dict[str, Any]:
    """Registers, memory and occupancy, the most of all kernels that ran; nan where the engine does not tell."""
    launched = evaluator.engine.kernels()
    return {
        column: max((kernel.get(name, np.nan) for kernel in launched), default=np.nan)
        for column, name in KERNEL_FACTS.items()
    }


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
def _written_over(index: int) -> Any:
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
            del os.environ[FOLDER]
            os.environ.update({} if before is None else {FOLDER: before})


@functools.cache
def link_rate() -> float:
    """Bytes a second from the device to page-locked memory of the host; nan without a GPU."""
    if device.missing():
        return np.nan
    gpu, shape, times = Gpu(), (COPIED // 4,), []
    source, place = (gpu.room(shape, np.dtype("float32"), on_host)[0] for on_host in (False, True))
    for _ in range(COPIES):
        begin = perf_counter()
        gpu.get(source, place)
        times.append(perf_counter() - begin)
    return COPIED / min(times)


def card() -> dict[str, str]:
    """Name and driver of the GPU; "" where there is none, or the driver does not tell."""
    if device.missing():
        return {"gpu": "", "driver": ""}
    gpu, driver = Gpu(), ""
    with contextlib.suppress(Exception):  # no NVML, or a virtual machine's driver that does not tell
        driver = gpu.nvml[0].nvmlSystemGetDriverVersion()
    return {"gpu": gpu.name, "driver": driver}
