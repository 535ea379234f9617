"""The GPU as the backends use it: CuPy arrays, and kernels compiled by ``nvrtc``.

In: nothing.  Out: ``CudaDevice``, all that the backends know of a GPU; the tests put another one in its place that
runs the same kernels' text on the CPU.

    >>> from exprkit.backends.gpu import device
    >>> device.missing() is None or "pip install" in device.missing() or "driver" in device.missing()
    True
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import math
import sys
import threading
from collections.abc import Iterable
from typing import Any

import numpy as np

from exprkit.backends.device_memory import lies_on_device
from exprkit.backends.gpu import nvrtc, opcodes
from exprkit.backends.precision import Precision
from exprkit.operators.defined import table_of_rows
from exprkit.runtime import ranges
from exprkit.runtime.calls import STREAM, DriverCall, Sequence, arrival, repeated, row_addresses

NEEDED = {"cupy": "CuPy", "cuda.core": "cuda-core", "cuda.bindings": "cuda-bindings"}
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_OVERLAP = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
HOST = np.ndarray, list, tuple
MOST_LOCKED = 8 << 20  # bytes of results that go by way of page-locked memory: larger ones gain nothing
_REGISTERS, _LOCAL_BYTES = 4, 3  # CU_FUNC_ATTRIBUTE_NUM_REGS, ..._LOCAL_SIZE_BYTES


_asking = threading.Lock()
_transfers = [0, 0, 0]  # bytes to devices and from them, and how many times: ``transfers``


def count_in(n_bytes: int) -> None:
    """Count a copy from the host to a device, or what a kernel reads of page-locked memory."""
    _transfers[0] += n_bytes
    _transfers[2] += 1


def count_out(n_bytes: int) -> None:
    """Count a copy from a device to the host, or what a kernel writes to page-locked memory."""
    _transfers[1] += n_bytes
    _transfers[2] += 1


def transfers() -> dict[str, int]:
    """What was counted in this process since the last call of this function."""
    counts = dict(zip(("bytes_in", "bytes_out", "transfers"), _transfers, strict=True))
    _transfers[:] = 0, 0, 0
    return counts


def missing() -> str | None:
    """Why there is no GPU to use, and what mends it; None if there is one."""
    if _device.cache_info().currsize:
        return None
    for module, name in NEEDED.items():
        if not _installed(module):
            extra = "'.[cuda13]' in exprkit's folder ('.[cuda12]' for a CUDA 12 driver)"
            return f"{name} is not installed: pip install {extra}"
    import cupy

    with _asking:  # CuPy says no while another thread is asking for the first time
        if cupy.cuda.is_available():
            return None
    if cupy.cuda.runtime.driverGetVersion() == 0:
        return "there is no NVIDIA driver: install one (https://www.nvidia.com/drivers), or use backend='cpu'"
    return "the NVIDIA driver shows no device: see nvidia-smi and CUDA_VISIBLE_DEVICES, or use backend='cpu'"


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


class Kernel:
    """A kernel on the device."""

    def __init__(self, module: Any, name: str, can_overlap: bool = False) -> None:
        from cupy.cuda import driver

        self._can_overlap, self._name = can_overlap, name
        self._driver = driver
        self._module = module  # keeps the code loaded
        self._pointer = module.get_function(name).ptr
        self._shared = 0  # bytes that its launches may ask for
        self._resident: dict[tuple[int, int], int] = {}  # blocks of a multiprocessor, by threads and bytes
        self.registers = driver.funcGetAttribute(_REGISTERS, self._pointer)
        self.local_bytes = driver.funcGetAttribute(_LOCAL_BYTES, self._pointer)

    def resident(self, threads: int, shared: int) -> int:
        """How many blocks a multiprocessor holds at a time; 0 if one needs too much of something."""
        if shared > self._shared:  # never less: other launches of this kernel may need it
            self._driver.funcSetAttribute(self._pointer, _MAX_DYNAMIC_SHARED, shared)
            self._shared = shared
        if (threads, shared) not in self._resident:
            ask = self._driver.occupancyMaxActiveBlocksPerMultiprocessor
            self._resident[threads, shared] = ask(self._pointer, threads, shared)
        return self._resident[threads, shared]

    def prepare(
        self, blocks: tuple[int, int], threads: int, shared: int, arguments: Any, overlaps: bool = False
    ) -> Sequence:
        """The calls that start the kernel on CuPy's current stream with ``arguments`` as they are then.

        One that ``overlaps`` may begin before the launch before it has ended, and waits for that by itself.
        """
        return _sequence(self.call(blocks, threads, shared, arguments, overlaps))

    def call(
        self,
        blocks: tuple[int, int],
        threads: int,
        shared: int,
        arguments: Any,
        overlaps: bool = False,
        stream: Any = STREAM,
    ) -> DriverCall:
        """The call that starts the kernel, for a sequence; perhaps on a stream of its own, by its address."""
        addresses = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))
        place, driver = ctypes.addressof(addresses), _driver()
        keep: tuple[Any, ...] = self, arguments, addresses
        if overlaps and self._can_overlap:
            attribute = _Attribute(_OVERLAP, 1)
            config = _Config(blocks[0], blocks[1], 1, threads, 1, 1, shared, None, ctypes.addressof(attribute), 1)
            where = ctypes.addressof(config)
            given, stream_place = (where, self._pointer, place, 0), where + _Config.stream.offset
            keep = *keep, attribute, config
            return DriverCall(driver["cuLaunchKernelEx"], given, stream_place, keep, self._name)
        size = blocks[0], blocks[1], 1, threads, 1, 1, shared
        return DriverCall(driver["cuLaunchKernel"], (self._pointer, *size, stream, place, 0), 0, keep, self._name)

    def each(self, blocks: int, threads: int, arguments: np.ndarray, streams: list[int]) -> tuple[np.ndarray, Any]:
        """A table of calls (``Sequence``) that start the kernel with every row of ``arguments``, bytes; what to keep.

        They are on streams in turn, or without any on the current one.
        """
        own, size = row_addresses(arguments), (blocks, 1, 1, threads, 1, 1, 0)
        call = DriverCall(_driver()["cuLaunchKernel"], (self._pointer, *size, 0 if streams else STREAM, 0, 0))
        changed = {9: row_addresses(own)} | ({8: np.resize(streams, len(own))} if streams else {})
        return repeated(call, changed), (self, arguments, own)


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int), ("rest", ctypes.c_byte * 60)]

    def __init__(self, number: int, value: int) -> None:
        super().__init__(id=number, value=value)


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        *((name, ctypes.c_uint) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared")),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("n_attributes", ctypes.c_uint),
    ]


@functools.cache
def _driver() -> dict[str, int]:
    """Where the driver's functions are; an old driver may lack one."""
    library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    names = "cuLaunchKernel cuLaunchKernelEx cuMemcpyDtoHAsync_v2 "
    names += "cuStreamSynchronize cuStreamWaitEvent cuEventRecord"
    there = [name for name in names.split() if hasattr(library, name)]
    return {name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in there}


def _sequence(*calls: DriverCall, table: np.ndarray | None = None) -> Sequence:
    """Calls on CuPy's current stream."""
    from cupy.cuda import driver, get_current_stream

    return Sequence(calls, lambda: get_current_stream().ptr, driver.CUDADriverError, table)


class CudaDevice:
    """A device with CUDA, as the threads of one stream see it: what they keep there is theirs alone.

    Attributes
    ----------
    index : int
    stream_number : int
        0: CuPy's default stream, on which everything runs unless ``use`` says otherwise.
    """

    def __init__(self, index: int, stream_number: int = 0) -> None:
        import cupy

        self.xp = cupy
        self.index, self.stream_number = index, stream_number
        self._first = _device(index, 0) if stream_number else self  # of this device: they share kernels
        properties = cupy.cuda.runtime.getDeviceProperties(index)
        self.name = properties["name"].decode()
        self.architecture = f"sm_{properties['major']}{properties['minor']}"
        self.is_hopper = int(properties["major"]) >= 9  # or newer: bulk copies, launches that overlap
        self.multiprocessors = int(properties["multiProcessorCount"])
        self.shared_per_block = int(properties["sharedMemPerBlockOptin"])
        self.shared_per_multiprocessor = int(properties["sharedMemPerMultiprocessor"])
        self.lanes = 32
        self.driver = cupy.cuda.runtime.driverGetVersion()
        self.out_of_memory: type[Exception] = cupy.cuda.memory.OutOfMemoryError
        self._sending = threading.Lock()
        self._outgoing: list[tuple[np.ndarray, Any]] = []  # page-locked memory, and when it has been read; two, in turn

    def use(self) -> None:
        """Make it the current one of this thread."""
        use(self.index, self.stream_number)
        self.xp.cuda.Device().synchronize()  # which gives the thread a context

    def kernel(self, name: str, settings: Precision, text: str | None = None, **macros: Any) -> Kernel:
        """A kernel of the interpreter's text (or of another ``text``), compiled for these macros."""
        return self._first._kernel(name, settings, text, **macros)

    @table_of_rows
    def _kernel(self, name: str, settings: Precision, text: str | None, **macros: Any) -> Kernel:
        text = text or opcodes.source(settings.operators)
        code = nvrtc.compiled(settings.architecture or self.architecture, settings, text, **macros)
        return Kernel(self._module(code), name, self.is_hopper)

    def make_ready(self, wanted: Iterable[nvrtc.KernelRequest]) -> None:
        """Compile kernels side by side, so that ``kernel`` has them at once."""
        nvrtc.compile_together(self.architecture, wanted)

    def load(self, code: bytes, names: tuple[str, ...]) -> list[Kernel]:
        """Kernels of a cubin, which do not begin before those before them have ended."""
        module = self._module(code)
        return [Kernel(module, name) for name in names]

    def _module(self, code: bytes) -> Any:
        module = self.xp.cuda.function.Module()
        module.load(code)
        return module

    def free_bytes(self) -> int:
        """Bytes that can still be taken: the device's free memory and that of CuPy's pool."""
        pool = self.xp.get_default_memory_pool()
        return int(self.xp.cuda.runtime.memGetInfo()[0]) + int(pool.free_bytes())

    def release(self) -> None:
        """Give back what the pool keeps."""
        self.xp.get_default_memory_pool().free_all_blocks()

    def pinned(self, n_bytes: int) -> np.ndarray:
        """Page-locked host memory, which kernels can read, as uint8."""
        memory = self.xp.cuda.alloc_pinned_memory(n_bytes)
        return np.frombuffer(memory, np.uint8, n_bytes)

    def locked(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Page-locked host memory as an array."""
        n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        return self.pinned(max(n_bytes, 1))[:n_bytes].view(dtype).reshape(shape)

    def sent(self, arrays: Iterable[np.ndarray]) -> list[Any]:
        """Arrays of the host's on the device: small ones together, by way of page-locked memory: nobody waits."""
        n_bytes = sum(-(-array.nbytes // 16) * 16 for array in arrays)
        if n_bytes > MOST_LOCKED:
            for array in arrays:
                count_in(array.nbytes)
            return [self.xp.asarray(array) for array in arrays]
        count_in(n_bytes)
        with self._sending:
            if not self._outgoing or len(self._outgoing[0][0]) < n_bytes:
                for _, read in self._outgoing:
                    read.synchronize()
                self._outgoing = [(self.pinned(max(2 * n_bytes, 4096)), self.event()) for _ in range(2)]
            self._outgoing.reverse()
            locked, read = self._outgoing[0]
            read.synchronize()
            there, places, start = self.xp.empty(n_bytes, np.uint8), [], 0
            for array in arrays:
                locked[start : start + array.nbytes].view(array.dtype).reshape(array.shape)[...] = array
                places.append(self.xp.ndarray(array.shape, array.dtype, there.data + start))
                start += -(-array.nbytes // 16) * 16
            there.data.copy_from_host_async(locked.ctypes.data, n_bytes)
            read.record()
        return places

    def copied(self, array: Any) -> Any:
        """A contiguous array of any device's on this one, for all of its streams; without the host, where they can."""
        there, stream = self.xp.empty(array.shape, array.dtype), self.current_stream()
        there.data.copy_from_device_async(array.data, array.nbytes, stream)
        stream.synchronize()
        return there

    def numbers(self, array: Any) -> list[Any]:
        """A few numbers of the device, of whatever was started before: waits for it."""
        place = self.pinned(array.nbytes).view(array.dtype)
        self.fetch(array, place.ctypes.data)
        return place.tolist()

    @ranges.shown("fetch")
    def fetch(self, array: Any, place: int) -> None:
        """Copy a contiguous array into page-locked memory at that address, and wait for it."""
        runtime, stream = self.xp.cuda.runtime, self.current_stream()
        count_out(array.nbytes)
        runtime.memcpyAsync(place, array.data.ptr, array.nbytes, runtime.memcpyDeviceToHost, stream.ptr)
        stream.synchronize()

    def copying(self, source: int, place: int, n_bytes: int) -> DriverCall:
        """The call that copies memory of the device into the host's, best page-locked, by their addresses."""
        return DriverCall(_driver()["cuMemcpyDtoHAsync_v2"], (place, source, n_bytes, STREAM))

    def waiting(self) -> Sequence:
        """The call that waits for all that was started before."""
        return _sequence(DriverCall(_driver()["cuStreamSynchronize"], (STREAM,)))

    def arriving(self, place: int, wanted: int) -> Sequence:
        """Calls that wait until a kernel writes the number at address ``wanted`` to page-locked ``place``.

        Waits for all that was started before where that does not come soon, as after an error.
        """
        return self.sequence([arrival(place, wanted), *self.waiting().calls])

    def sequence(self, calls: list[DriverCall], table: np.ndarray | None = None) -> Sequence:
        """Calls on the current stream, or those of a ``table``."""
        return _sequence(*calls, table=table)

    def side_stream(self, k: int) -> Any:
        """The address of a stream that runs at the same time as the current one."""
        return _side_stream(self, k).ptr

    def side_by_side(self, rows: list[list[DriverCall]], behind: Iterable[DriverCall] = ()) -> Sequence:
        """Calls of which row k is on side stream k, between what was and what will be started on the current one.

        One row alone is on the current stream; ``behind``: calls there that follow all rows.
        """
        if len(rows) < 2:
            return _sequence(*(call for row in rows for call in row), *behind)
        driver, ready = _driver(), _side_event(self, -1)
        calls = [DriverCall(driver["cuEventRecord"], (ready.ptr, STREAM), keep=ready)]
        for k, row in enumerate(rows):
            side, done = self.side_stream(k), _side_event(self, k)
            calls += [
                DriverCall(driver["cuStreamWaitEvent"], (side, ready.ptr, 0)),
                *row,
                DriverCall(driver["cuEventRecord"], (done.ptr, side), keep=done),
                DriverCall(driver["cuStreamWaitEvent"], (STREAM, done.ptr, 0)),
            ]
        return _sequence(*calls, *behind)

    def adopt(self, array: Any) -> Any | None:
        """An array of any device and library as one of CuPy's; None for anything else."""
        return adopt(array)

    def event(self) -> Any:
        """A mark to record on a stream and to wait for."""
        return self.xp.cuda.Event(block=False, disable_timing=True)

    def stream(self) -> Any:
        """A second stream, for copies."""
        return self.xp.cuda.Stream(non_blocking=True)

    def current_stream(self) -> Any:
        """The stream on which everything runs."""
        return self.xp.cuda.get_current_stream()

    @ranges.shown("fetch")
    def to_host(self, source: Any, place: np.ndarray, stream: Any) -> None:
        """Start copying an array (rows, numbers) to the host, on ``stream``; rows may be parts of longer ones."""
        runtime, kind, width = self.xp.cuda.runtime, self.xp.cuda.runtime.memcpyDeviceToHost, place[:1].nbytes
        count_out(place.nbytes)
        to, start, (pitch, _), (step, _) = place.ctypes.data, source.data.ptr, place.strides, source.strides
        if len(place) == 1 or width == pitch == step:
            runtime.memcpyAsync(to, start, place.nbytes, kind, stream.ptr)
        else:
            runtime.memcpy2DAsync(to, pitch, start, step, width, len(place), kind, stream.ptr)

    def part(self, memory: Any, address: int, shape: tuple[int, ...], dtype: Any) -> Any:
        """Part of a device's memory as an array."""
        return self.xp.ndarray(shape, dtype, memory.data + (address - memory.data.ptr))

    def pointer(self, array: Any) -> int:
        """Where an array's data is: on the device, or in page-locked memory."""
        return array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr


@functools.cache
def _device(index: int, stream_number: int) -> CudaDevice:
    """The device of that number, as the threads of a stream see it."""
    return CudaDevice(index, stream_number)


@functools.cache
def _side_stream(device: CudaDevice, k: int) -> Any:
    """Stream k of those that run at the same time as a device's own."""
    return device.stream()


@functools.cache
def _side_event(device: CudaDevice, k: int) -> Any:
    """Says how far side stream k is; -1: the current one.  Who waits for one that was recorded again waits longer."""
    return device.event()


@functools.cache
def _own_stream(index: int, stream_number: int) -> Any:
    """A device's stream of a number from 1; it waits for no other."""
    import cupy

    with cupy.cuda.Device(index):
        return cupy.cuda.Stream(non_blocking=True)


_here = threading.local()  # ``stream_numbers``: by device, those that this thread uses


@functools.cache  # to ask takes as long as many a fit
def names() -> list[str]:
    """Names of the devices of this process, by number."""
    from cupy.cuda import runtime

    return [runtime.getDeviceProperties(k)["name"].decode() for k in range(runtime.getDeviceCount())]


def current() -> CudaDevice:
    """CuPy's current device."""
    import cupy

    index = cupy.cuda.runtime.getDevice()
    return _device(index, getattr(_here, "stream_numbers", {}).get(index, 0))


def use(index: int, stream_number: int = 0) -> None:
    """Make the device of that number this thread's current one, and one of its streams what everything runs on."""
    import cupy

    cupy.cuda.Device(index).use()
    if stream_number:
        _own_stream(index, stream_number).use()
    numbers = _here.__dict__.setdefault("stream_numbers", {})
    numbers[index] = stream_number


def adopt(values: Any) -> Any | None:
    """A device array of any library as a CuPy array on the same memory; None for anything else."""
    if isinstance(values, HOST) or ("cupy" not in sys.modules and not lies_on_device(values)):
        return None
    import cupy

    if isinstance(values, cupy.ndarray):
        return values
    if not lies_on_device(values):
        return None
    return cupy.from_dlpack(values.detach() if hasattr(values, "detach") else values)


def empty(shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Fresh device memory."""
    import cupy

    return cupy.empty(shape, dtype)


def empty_on_host(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Fresh host memory: page-locked, which a device fills about three times as fast, if there is enough of it."""
    from cupy.cuda.runtime import CUDARuntimeError

    try:
        return current().locked(shape, dtype)
    except CUDARuntimeError:
        return np.empty(shape, dtype)


def fetched(array: Any, place: np.ndarray | None = None) -> np.ndarray:
    """An array as one on the host; one of the device in ``place``, if that is given."""
    if isinstance(array, np.ndarray):
        return array
    count_out(array.nbytes)
    there: np.ndarray = array.get(out=place)
    return there


def fetched_together(arrays: Iterable[Any]) -> list[np.ndarray]:
    """Arrays as ones on the host, with one wait for all; small ones by way of page-locked memory."""
    if all(isinstance(array, np.ndarray) for array in arrays) or sum(array.nbytes for array in arrays) > MOST_LOCKED:
        return [fetched(array) for array in arrays]
    import cupy

    ends = np.cumsum([-(-array.nbytes // 16) * 16 for array in arrays]).tolist()
    locked = np.frombuffer(cupy.cuda.alloc_pinned_memory(max(ends[-1], 1)), np.uint8)
    places = [
        locked[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        for array, start in zip(arrays, (0, *ends), strict=False)
    ]
    for array, place in zip(arrays, places, strict=True):
        count_out(array.nbytes)
        array.get(out=place, blocking=False)
    cupy.cuda.get_current_stream().synchronize()
    return [place.copy() for place in places]
