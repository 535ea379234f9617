"""Compiled loops over items that run where their arrays lie: on host threads, or as a CUDA kernel of the same source.

In: a loop of ``runtime.jit``, ``loop(*bags, begin, end)``, and bags of arrays.  Out: what the loop writes.

    >>> from typing import NamedTuple
    >>> import numpy as np
    >>> from exprkit.backends.device_programs.loops import HostLoops
    >>> from exprkit.runtime.jit import compiled
    >>> class Numbers(NamedTuple):
    ...     a: np.ndarray
    >>> @compiled
    ... def double(numbers, begin, end):
    ...     for i in range(begin, end):
    ...         numbers.a[i] *= 2
    >>> numbers = Numbers(np.arange(3))
    >>> HostLoops().run(double, 3, numbers)
    >>> numbers.a
    array([0, 2, 4])

What an item makes may depend on nothing but the item and what no item writes: then both sides, and any number of
threads, make the same bits.  A loop for both sides is in the words of ``translate``, draws no two random numbers in one
expression (C does not say which comes first), and calls no function of C's, whose last bits differ.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from exprkit.backends import load
from exprkit.backends.device_programs.translate import arrays_text, cuda_text, safe
from exprkit.backends.gpu import device as gpu
from exprkit.backends.gpu import opcodes
from exprkit.backends.precision import precision
from exprkit.runtime import slices

THREADS = 128  # of a block
MOST_BLOCKS = 1 << 16
LEAST = 64  # items of a slice
_ELEMENTS = {
    "uint8": "unsigned char",
    "uint64": "Bits",
    "int64": "Long",
    "int32": "int",
    "float64": "double",
    "float32": "float",
    "bool": "bool",
}
_NUMBERS = {np.uint64: ("Bits", ctypes.c_uint64), float: ("double", ctypes.c_double), int: ("Long", ctypes.c_int64)}

Bag = TypeVar("Bag", bound=tuple[Any, ...])


class HostLoops:
    """Loops on the host's threads, by slices."""

    xp: Any = np
    device: Any = None

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads

    def bag(self, bag: Bag) -> Bag:
        """A bag of arrays of the host's, where the loops are."""
        return bag

    def run(self, loop: Callable[..., Any], n: int, *bags: Any) -> None:
        """``loop(*bags, begin, end)`` for all of n items."""
        slices.each(functools.partial(loop, *bags), slices.even(n, self._threads, LEAST))

    def order(self, keys: Any) -> Any:
        """Indices that sort numbers, equal ones in the order in which they stood."""
        return np.argsort(keys, kind="stable")

    def fetched(self, *arrays: Any) -> list[np.ndarray]:
        """The arrays on the host."""
        return list(arrays)


class DeviceLoops:
    """Loops on a device, a thread an item."""

    def __init__(self, device: Any) -> None:
        self.device, self.xp = device, device.xp

    def bag(self, bag: Bag) -> Bag:
        """A bag of arrays of the host's, where the loops are."""
        there = self.xp.asarray
        return type(bag)(*(there(field) if isinstance(field, np.ndarray) else field for field in bag))

    def run(self, loop: Any, n: int, *bags: Any) -> None:
        """``loop(*bags, i, i + 1)`` for each of n items; it is started, and nobody waits for it."""
        if n == 0:
            return
        kernel, arguments = _kernel(self.device, loop, tuple(map(_kinds, bags)))
        values = [value for bag in bags for field in bag for value in self._values(field)]
        filled = arguments(*values, n)
        threads = 1 if self.device.lanes == 1 else THREADS
        kernel.prepare((min(-(-n // threads), MOST_BLOCKS), 1), threads, 0, filled)()

    def order(self, keys: Any) -> Any:
        """Indices that sort numbers, equal ones in the order in which they stood."""
        return np.argsort(keys, kind="stable") if self.xp is np else self.xp.argsort(keys)  # CuPy's is stable

    def fetched(self, *arrays: Any) -> list[np.ndarray]:
        """The arrays on the host, with one wait for all."""
        return gpu.fetched_together(arrays)

    def _values(self, field: Any) -> tuple[Any, ...]:
        """A field as numbers: of an array its address, the length of its rows, and its own."""
        if isinstance(field, int | float | np.uint64):
            return (field,)
        return self.device.pointer(field), field.shape[1] if field.ndim == 2 else 1, len(field)


def loops_of(backend: str, threads: int | None = None) -> HostLoops | DeviceLoops:
    """Loops where a backend takes populations: on its device, or on the host."""
    return DeviceLoops(gpu.current()) if load(backend).takes_device_populations else HostLoops(threads)


Kinds = tuple[Any, tuple[Any, ...]]  # of a bag: its class, and by field the type of a number or an array's dtype


def _kinds(bag: Any) -> Kinds:
    return type(bag), tuple(type(one) if isinstance(one, int | float | np.uint64) else one.dtype for one in bag)


@functools.cache
def _kernel(device: Any, loop: Any, kinds: tuple[Kinds, ...]) -> tuple[Any, type[ctypes.Structure]]:
    name, bags = loop.py_func.__name__, []
    fields: list[Any] = []
    for k, (bag, kinds_of_fields) in enumerate(kinds):
        lines = []
        for field, kind in zip(bag._fields, kinds_of_fields, strict=True):
            if isinstance(kind, np.dtype):
                text = f"Table<{_ELEMENTS[kind.name]}>"
                fields += [ctypes.c_uint64, ctypes.c_int64, ctypes.c_int64]
            else:
                text, number = _NUMBERS[kind]
                fields.append(number)
            lines.append(f"{text} {safe(field)};")
        bags.append(f"struct Bag{k} {{ {' '.join(lines)} }};")
    members = " ".join(f"Bag{k} bag{k};" for k in range(len(bags)))
    bags.append(f"struct LoopArguments {{ {members} Long n; }};")
    given = ", ".join(f"args.bag{k}" for k in range(len(kinds)))
    kernel = f"""extern "C" __global__ void run_{name}(const LoopArguments args)
{{
    const Long step = Long(gridDim.x) * blockDim.x;
    for (Long i = Long(blockIdx.x) * blockDim.x + threadIdx.x; i < args.n; i += step) {name}({given}, i, i + 1);
}}"""
    parts = {"arrays": arrays_text(), "bags": "\n".join(bags), "translated": cuda_text([loop], {}), "kernel": kernel}
    text = opcodes.joined(("gpu/common.cu", "device_programs/loops.cu"), parts)
    members_of = [(f"f{k}", kind) for k, kind in enumerate([*fields, ctypes.c_int64])]
    arguments = type("LoopArguments", (ctypes.Structure,), {"_fields_": members_of})
    return device.kernel(f"run_{name}", precision("ieee"), text, LANES=device.lanes), arguments
