"""Memory of a device for several arrays at once, page-locked memory of the host's, and a memo of few entries.

In: what arrays are called, their types and lengths.  Out: where they are; an array itself is made when it is asked for,
since one of CuPy takes longer to make than a launch to start.

    >>> from exprkit.backends.device_memory import Allocation, ArraySpec
    >>> parts = {"kinds": ArraySpec("uint8"), "pairs": ArraySpec("int32", 2)}
    >>> parts["pairs"].n_bytes(3)
    24
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

ALIGNMENT = 256  # bytes, of every array
CUDA_MEMORY = 2  # kDLCUDA


def lies_on_device(values: Any) -> bool:
    """Whether an array of any library is in a GPU's memory."""
    if hasattr(values, "__dlpack_device__"):
        return bool(values.__dlpack_device__()[0] == CUDA_MEMORY)
    return hasattr(values, "__cuda_array_interface__")


class ArraySpec:
    """An array's type, and how many numbers a row has."""

    __slots__ = ("dtype", "row_bytes", "width")

    def __init__(self, dtype: Any, width: int = 1) -> None:
        self.dtype, self.width = np.dtype(dtype), width
        self.row_bytes = self.dtype.itemsize * width

    def n_bytes(self, length: int) -> int:
        """Bytes of some rows."""
        return self.row_bytes * length


class Allocation:
    """Arrays side by side in one stretch of the device's memory; ``lengths``: the most rows of each."""

    __slots__ = ("_device", "_memory", "_parts", "addresses")

    def __init__(self, device: Any, parts: Mapping[str, ArraySpec], lengths: Sequence[int]) -> None:
        end, starts = 0, []
        for part, length in zip(parts.values(), lengths, strict=True):
            starts.append(end)
            end += -(-part.row_bytes * length // ALIGNMENT) * ALIGNMENT
        self._device, self._parts = device, parts
        self._memory = device.xp.empty(max(end, 1), np.uint8)
        begin = device.pointer(self._memory)
        self.addresses = {name: begin + start for name, start in zip(parts, starts, strict=True)}

    def copy(self) -> Allocation:
        """Equal arrays in memory of their own."""
        other = Allocation.__new__(Allocation)
        other._device, other._parts, other._memory = self._device, self._parts, self._memory.copy()
        moved = self._device.pointer(other._memory) - self._device.pointer(self._memory)
        other.addresses = {name: address + moved for name, address in self.addresses.items()}
        return other

    def array(self, name: str, length: int) -> Any:
        """The first rows of an array."""
        part = self._parts[name]
        shape = (length,) if part.width == 1 else (length, part.width)
        return self._device.part(self._memory, self.addresses[name], shape, part.dtype)


class Recent(dict[Any, Any]):
    """Things that were made lately, by key; the oldest makes room."""

    def __init__(self, most: int = 64) -> None:
        super().__init__()
        self._most = most

    def made(self, key: Any, make: Callable[[], Any]) -> Any:
        """The thing of a key, which ``make`` gives if there is none."""
        if (thing := self.get(key)) is None:
            if len(self) >= self._most:
                self.pop(next(iter(self)), None)
            thing = self[key] = make()
        return thing


class LockedRoom:
    """Page-locked memory, which grows as it is needed."""

    def __init__(self, device: Any) -> None:
        self._device, self._memory = device, np.empty(0, np.uint8)
        self._view, self.address = self._memory, 0

    def shaped(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Memory as an array; the next one lies at the same place.  The last one is kept: it is mostly the same."""
        if self._view.shape != shape or self._view.dtype != dtype:
            n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
            if self._memory.nbytes < n_bytes:
                self._memory = self._device.pinned(1 << (n_bytes - 1).bit_length())
                self.address = self._device.pointer(self._memory)
            self._view = self._memory[:n_bytes].view(dtype).reshape(shape)
        return self._view


class LentRooms:
    """Page-locked memory for two results, which is lent again when an array of it and all parts of that are gone."""

    def __init__(self, device: Any, n_bytes: int) -> None:
        rooms: list[tuple[np.ndarray, Callable[[], Any]]] = [(device.pinned(n_bytes), lambda: None) for _ in range(2)]
        self._rooms = rooms

    def array(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An array of it; while the caller has both, new memory, for to lock pages takes longer than a copy."""
        n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        for k, (memory, lent) in enumerate(self._rooms):
            if lent() is None:
                owner = (ctypes.c_uint8 * n_bytes).from_buffer(memory)
                self._rooms[k] = memory, weakref.ref(owner)
                return np.frombuffer(owner, dtype).reshape(shape)
        return np.empty(shape, dtype)
