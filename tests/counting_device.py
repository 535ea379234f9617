"""A GPU that is not there, whose arrays are not NumPy's: what the host does for it is run, and its calls counted.

``emulated_device.py`` runs the kernels, of which a CPU does the work; its arrays are NumPy's, as if host and device
were one.  Here they are ``Array``, so that everything takes the ways that it takes beside CuPy.

    device, cupy = CountingDevice(), device.xp
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    device.calls                             # a Counter by the name of the call
"""

from __future__ import annotations

import collections
import ctypes
import math
import threading
import types

import numpy as np
from emulated_device import SHARED_BYTES, EmulatedDevice
from numpy.lib.mixins import NDArrayOperatorsMixin

from exprkit.backends.gpu.device import CudaDevice
from exprkit.runtime.calls import LOOK, STREAM, Sequence

CALLS: collections.Counter = collections.Counter()
COPY = 2  # cudaMemcpyDeviceToHost


def there(value):
    return Array.of(value) if isinstance(value, np.ndarray | np.generic) else value


def here(value):
    if isinstance(value, Array):
        return value.array
    return type(value)(map(here, value)) if isinstance(value, list | tuple) else value


class Memory:
    """A pointer, as ``array.data`` of CuPy's arrays."""

    def __init__(self, array):
        self.array, self.ptr = array, array.ctypes.data

    def __add__(self, n_bytes):
        return Memory(self.array.reshape(-1).view(np.uint8)[n_bytes:])

    def copy_from_host_async(self, start, n_bytes):
        CALLS["copy to the device"] += 1
        ctypes.memmove(self.ptr, start, n_bytes)


class Array(NDArrayOperatorsMixin):
    """An array of the device."""

    def __init__(self, shape, dtype, memory):
        n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        self.array = memory.array.reshape(-1).view(np.uint8)[:n_bytes].view(dtype).reshape(shape)

    @classmethod
    def of(cls, array):
        made = cls.__new__(cls)
        made.array = np.asarray(array)
        return made

    @property
    def data(self):
        return Memory(self.array)

    @property
    def device(self):
        return types.SimpleNamespace(id=0)

    @property
    def flags(self):
        return types.SimpleNamespace(c_contiguous=self.array.flags.c_contiguous)

    def __len__(self):
        return len(self.array)

    def __getitem__(self, key):
        CALLS["view"] += 1
        return Array.of(self.array[here(key)])

    def __setitem__(self, key, value):
        CALLS["elements set"] += 1
        self.array[here(key)] = here(value)

    def __array_ufunc__(self, function, method, *given, **named):
        CALLS[function.__name__] += 1
        return there(getattr(function, method)(*map(here, given), **{name: here(named[name]) for name in named}))

    def __array_function__(self, function, _, given, named):
        CALLS[function.__name__] += 1
        return there(function(*map(here, given), **{name: here(named[name]) for name in named}))

    def get(self, out=None, blocking=True):
        CALLS["copy to the host"] += 1
        if out is None:
            return self.array.copy()
        out[...] = self.array
        return out

    def __bool__(self):
        CALLS["waiting"] += 1
        return bool(self.array)

    def __float__(self):
        CALLS["waiting"] += 1
        return float(self.array)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self.array, name)
        return counted(name, found) if callable(found) else found


def counted(name, function):
    """A function of NumPy's as one of the device's."""

    def call(*given, **named):
        CALLS[name] += 1
        return there(function(*map(here, given), **{name: here(named[name]) for name in named}))

    return call


def asarray(array, dtype=None):
    is_one = isinstance(array, Array) and dtype in (None, array.dtype)
    return array if is_one else Array.of(np.array(here(array), dtype))


column_stack = counted("column_stack", np.column_stack)  # of the module that an array's type belongs to


class Stream:
    ptr = 0

    def __init__(self, **_):
        """There is but one."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Everything is done when a call returns."""

    def synchronize(self):
        CALLS["waiting"] += 1

    def wait_event(self, event):
        """Nothing is under way."""


class Event:
    def __init__(self, **_):
        """Nothing is under way when a call returns."""

    def record(self, stream=None):
        CALLS["event"] += 1

    def synchronize(self):
        CALLS["event"] += 1


def copied(to, start, n_bytes, kind, stream):
    CALLS["copy to the host"] += 1
    assert kind == COPY
    ctypes.memmove(to, start, n_bytes)


def cupy():
    """What of the module is used."""
    stream, module = Stream(), types.ModuleType("cupy")
    names = "empty zeros ones full argsort signbit isnan ascontiguousarray"
    for name in names.split():
        setattr(module, name, counted(name, getattr(np, name)))
    module.ndarray, module.asarray = Array, asarray
    runtime = types.SimpleNamespace(memcpyAsync=copied, memcpyDeviceToHost=COPY)
    module.cuda = types.SimpleNamespace(
        get_current_stream=lambda: stream, Stream=Stream, Event=Event, alloc_pinned_memory=bytearray, runtime=runtime,
    )  # fmt: skip
    return module


class CountingDevice(CudaDevice):
    """The device, whose kernels are those of ``EmulatedDevice``."""

    lanes, index, architecture, is_hopper = 1, 0, "sm_90", True
    multiprocessors, shared_per_block, shared_per_multiprocessor = 3, SHARED_BYTES, SHARED_BYTES
    out_of_memory = MemoryError

    def __init__(self):
        self.xp, self.calls, self._emulated = cupy(), CALLS, EmulatedDevice()
        self._sending, self._outgoing = threading.Lock(), []

    def sequence(self, calls, table=None):
        return CountingSequence(calls, table=table)

    def side_stream(self, k):
        return STREAM

    def side_by_side(self, rows, behind=()):
        return CountingSequence([*(call for row in rows for call in row), *behind])

    def copying(self, *given):
        return self._emulated.copying(*given)._replace(name="copy to the host")

    def waiting(self):
        return counting(self._emulated.waiting(), "waiting")

    def kernel(self, name, settings, text=None, **macros):
        return CountingKernel(name, self._emulated.kernel(name, settings, text, **macros))


class CountingKernel:
    registers = local_bytes = 0

    def __init__(self, name, kernel):
        self._name, self._kernel, self.resident, self.each = name, kernel, kernel.resident, kernel.each

    def prepare(self, *given, **named):
        return CountingSequence([self.call(*given, **named)])

    def call(self, *given, overlaps=False, **named):
        return self._kernel.call(*given, **named)._replace(name=self._name)


def counting(calls, name):
    (call,) = calls.calls
    return CountingSequence([call._replace(name=name)])


class CountingSequence(Sequence):
    """Calls of the device, counted by their names."""

    def __call__(self):
        CALLS.update(call.name for call in self.calls if call.function != LOOK)
        super().__call__()
