"""A GPU that is not there: the interpreter's kernels compiled as C++ and run on the CPU, for tests without a GPU.

A warp has one lane and a block one warp, so launches are loops; everything else, from the
instructions of a program to the schedule of a launch, is what runs on a GPU.
"""

from __future__ import annotations

import ctypes
import functools
import math
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from exprkit.backends.gpu import nvrtc, opcodes
from exprkit.backends.precision import precision
from exprkit.runtime import calls, disk_cache

SHARED_BYTES = 1 << 20
HEADER = Path(__file__).with_name("emulated_cuda.h")
RUN = """
alignas(16) static unsigned char memory[{shared}];
extern "C" int launch(int blocks_x, int blocks_y, int threads, const {arguments} *args)
{{
    static std::mutex launching;  // a library has one set of thread numbers, and a GPU several threads that launch
    std::lock_guard<std::mutex> alone(launching);
    shared = reinterpret_cast<Vector *>(memory);
    gridDim = {{blocks_x, blocks_y}};
    blockDim = {{threads, 1}};
    for (blockIdx.y = 0; blockIdx.y < blocks_y; ++blockIdx.y)
        for (blockIdx.x = 0; blockIdx.x < blocks_x; ++blockIdx.x)
            for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) {name}(*args);
    return 0;
}}
extern "C" int argument_bytes() {{ return sizeof({arguments}); }}
"""


def compiler():
    """A C++ compiler, or None."""
    return next(filter(None, map(shutil.which, ("g++", "clang++", "c++"))), None)


@functools.cache
def compiler_version():
    return subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True).stdout


def address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


class EmulatedKernel:
    local_bytes = 0
    registers = 0

    def __init__(self, library):
        self._library = library

    def resident(self, threads, shared):
        return 2

    def prepare(self, blocks, threads, shared, arguments, overlaps=False):
        return calls.Sequence([self.call(blocks, threads, shared, arguments)])

    def call(self, blocks, threads, shared, arguments, stream=None):
        assert ctypes.sizeof(arguments) == self._library.argument_bytes()
        assert shared <= SHARED_BYTES
        given = *blocks, threads, ctypes.addressof(arguments)
        return calls.DriverCall(address(self._library.launch), given, keep=(self, arguments))

    def each(self, blocks, threads, arguments, streams):
        assert arguments.shape[1] == self._library.argument_bytes()
        call = calls.DriverCall(address(self._library.launch), (blocks, 1, threads, 0))
        return calls.repeated(call, {3: calls.row_addresses(arguments)}), (self, arguments)


@functools.cache
def driver():
    """What the driver does for everybody."""
    text = """extern "C" int copy(void *to, const void *from, long n) { std::memcpy(to, from, n); return 0; }
extern "C" int nothing() { return 0; }
extern "C" int fail(long status) { return int(status); }"""
    return EmulatedDevice().library(text, precision("ieee"), {})


class EmulatedDevice:
    """What ``exprkit.backends.gpu.device.CudaDevice`` is, in NumPy."""

    xp = np
    lanes = 1
    multiprocessors = 3
    shared_per_block = shared_per_multiprocessor = SHARED_BYTES
    out_of_memory = MemoryError
    is_hopper = True

    def __init__(self):
        self._kernels = {}

    def use(self):
        pass

    def kernel(self, name, settings, text=None, **chosen):
        defined = nvrtc.macros(settings, chosen)
        key = name, settings, text, *sorted(defined.items())
        if key not in self._kernels:
            self._kernels[key] = EmulatedKernel(self._build(name, text or opcodes.source(settings.operators), defined))
        return self._kernels[key]

    def make_ready(self, wanted):
        """Kernels are compiled when they are asked for."""

    def _build(self, name, source, defined):
        arguments = re.search(rf" {name}\(const (\w+) args\)", source)[1]
        return self._compiled(source + RUN.format(shared=SHARED_BYTES, arguments=arguments, name=name), defined)

    def library(self, source, settings, macros):
        """What the text makes ``extern "C"``."""
        return self._compiled(source, nvrtc.macros(settings, macros))

    def _compiled(self, source, defined):
        """A library of the text, kept in the cache on disk: compiled once, whoever runs it."""
        text = HEADER.read_text() + re.sub(r"    extern __shared__ .*\n", "", source)
        options = "-std=c++17", "-O1", "-ffp-contract=off", "-w", *(f"-D{name}={defined[name]}" for name in defined)
        key = disk_cache.key("emulated", text, *options, compiler_version())
        code = disk_cache.read(key)
        with tempfile.TemporaryDirectory() as folder:
            path, library = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
            if code is None:
                path.write_text(text)
                command = [compiler(), *options, "-shared", "-fPIC", str(path), "-o", str(library)]
                subprocess.run(command, check=True, capture_output=True, text=True)
                disk_cache.write(key, library.read_bytes())
            else:
                library.write_bytes(code)
            return ctypes.CDLL(str(library))

    def part(self, memory, address, shape, dtype):
        start, n_bytes = address - memory.ctypes.data, math.prod(shape) * np.dtype(dtype).itemsize
        return memory[start : start + n_bytes].view(dtype).reshape(shape)

    def pinned(self, n_bytes):
        return np.empty(n_bytes, np.uint8)

    def locked(self, shape, dtype):
        return np.empty(shape, dtype)

    def copying(self, source, place, n_bytes):
        return calls.DriverCall(address(driver().copy), (place, source, n_bytes))

    def sequence(self, some, table=None):
        return calls.Sequence(some, table=table)

    def side_stream(self, k):
        return calls.STREAM

    def side_by_side(self, rows, behind=()):
        return calls.Sequence([*(call for row in rows for call in row), *behind])

    def waiting(self):
        return calls.Sequence([calls.DriverCall(address(driver().nothing), ())])

    def arriving(self, place, wanted):
        return calls.Sequence([calls.arrival(place, wanted), *self.waiting().calls])

    def sent(self, arrays):
        return [self.xp.asarray(array) for array in arrays]

    def copied(self, array):
        return array.copy()

    def numbers(self, array):
        return array.tolist()

    def adopt(self, array):
        return np.asarray(array)

    def free_bytes(self):
        return 1 << 32

    def release(self):
        """Nothing is kept."""

    def event(self):
        """Nothing is under way when a call returns."""

    def pointer(self, array):
        return array.ctypes.data
