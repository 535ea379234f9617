"""One or two threads of this process per device: the implementation of ``devices=``.

In: the number of a device, and functions.  Out: that they run there.  Threads share all memory, so nothing is sent or
copied, and they are ready at once; what takes long (kernels, copies, compiled loops) runs without Python's lock.

A GPU has two threads, each with a stream of CUDA's: while the kernels of one run, the other brings the next slice there
and puts the last one's results where they belong.

    >>> from queue import SimpleQueue
    >>> from exprkit.distributed.threads import device_here, thread_of
    >>> told = SimpleQueue()
    >>> thread_of(1).do(lambda: told.put(device_here()))
    >>> told.get().device, device_here()
    (1, None)
"""

from __future__ import annotations

import atexit
import functools
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple

STREAMS = 2  # of a GPU
SECONDS_TO_END = 1.0  # that Python's end waits for what runs: a thread must not be cut off within a call of CUDA
_here = threading.local()


class Place(NamedTuple):
    """The device and stream of a thread."""

    device: int
    stream: int

    def __str__(self) -> str:
        return f"device {self.device}" + f", stream {self.stream}" * bool(self.stream)


class DeviceThread:
    """A thread that works on one device as long as Python runs."""

    def __init__(self, place: Place) -> None:
        self._asked: SimpleQueue[Callable[[], Any]] = SimpleQueue()
        self._busy = threading.Lock()
        threading.Thread(target=self._serve, args=[place], daemon=True, name=f"exprkit {place}").start()
        atexit.register(self._settle)

    def do(self, work: Callable[[], Any]) -> None:
        """Call a function, which must raise nothing, after all others that were asked for."""
        self._asked.put(work)

    def _settle(self) -> None:
        if self._busy.acquire(timeout=SECONDS_TO_END):
            self._busy.release()

    def _serve(self, place: Place) -> None:
        _here.place = place
        while True:
            work = self._asked.get()
            with self._busy:
                work()
            del work  # and all that it holds


def thread_of(device: int, stream: int = 0) -> DeviceThread:
    """The device's thread of that stream, which all calls share."""
    return _thread(Place(device, stream))


@functools.cache
def _thread(place: Place) -> DeviceThread:
    return DeviceThread(place)


def places_of(devices: tuple[int, ...], are_gpus: bool) -> list[Place]:
    """The places of devices, the first of every device before the second of any."""
    return [Place(device, stream) for stream in range(STREAMS if are_gpus else 1) for device in devices]


def device_here() -> Place | None:
    """The device and the stream that this thread works on; None in any other thread."""
    return getattr(_here, "place", None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_thread.cache_clear)  # threads do not survive a fork
